//! Sharing memory after the start, splitting into groups, and going on without the dead.

use crate::buffer::{Source, Target};
use crate::error::{Error, Result};
use crate::hosts::{Spread, free_tag, take_tag};
use crate::{Communicator, layout, platform};
use ringwork_isa::{Rank, ReduceOp, Segment};
use ringwork_native::segment::{Attached, Layout};
use std::sync::Arc;

impl Communicator {
    /// A segment for all ranks of each host, created by the lowest of them. A collective call.
    pub(crate) fn share(&self, what: &str, plan: impl FnOnce() -> Result<Layout>) -> Result<Attached> {
        let make = || Ok(Attached::create(what, plan()?)?);
        self.hand_out(0, make)
    }

    /// Distributes the segment that rank `leader` of this host creates to the ranks that name it as their leader. A
    /// collective call of all ranks: each takes part in its own group. All succeed, or all fail.
    fn hand_out(&self, leader: u32, make: impl FnOnce() -> Result<Attached>) -> Result<Attached> {
        let mut made = (leader == self.place.me.0).then(make).transpose();
        let offered = match &made {
            Ok(Some(segment)) => self.attendant.offer(segment).map(Some),
            _ => Ok(None),
        };
        // The offer is withdrawn when this is dropped, on every path out of here.
        let offer = offered.unwrap_or_else(|error| {
            made = Err(error.into());
            None
        });
        let nonce = match &made {
            Ok(Some(segment)) => segment.layout().nonce,
            _ => 0,
        };
        let mut nonces = vec![0i64; self.ranks_here() as usize];
        let nonce = [nonce.cast_signed()];
        let (mine, all) = (nonce[..].input().into(), nonces.output().into());
        self.station()?.here().all_gather(mine, all)?;
        let outcome = made.and_then(|made| match (made, nonces[leader as usize].cast_unsigned()) {
            (Some(segment), _) => Ok(segment),
            (None, 0) => Err(no_memory(leader)),
            (None, nonce) => {
                let leader = &self.members[leader as usize];
                Ok(self.attendant.fetch(leader, nonce, self.timeout)?)
            }
        });
        // No rank continues, or withdraws an offer, before all have taken it or failed to.
        let mut well = [i32::from(outcome.is_ok())];
        self.all_reduce(&mut well, ReduceOp::Min)?;
        drop(offer);
        if well == [0] {
            // Fails if the leader died before it handed out the segment. It may have reported success before.
            self.barrier()?;
            let problem = "another rank could not map the memory, so nobody has it";
            return Err(outcome
                .err()
                .unwrap_or_else(|| Error::arguments("sharing memory", problem)));
        }
        outcome
    }

    /// New communicators: one for each `color`, its ranks ordered by `key` and then by rank here. A collective
    /// call of all ranks; each gets the one of its own color.
    ///
    /// # Errors
    /// COMM-2; or if there is no memory.
    pub fn split(&self, color: u32, key: u32) -> Result<Communicator> {
        let mut all = vec![0i64; 2 * self.size() as usize];
        self.all_gather(&[i64::from(color), i64::from(key)], &mut all)?;
        let mut group: Vec<(i64, u32)> = Vec::new();
        for (rank, pair) in (0..).zip(all.chunks(2)) {
            if pair[0] == i64::from(color) {
                group.push((pair[1], rank));
            }
        }
        group.sort_unstable();
        let ranks: Vec<u32> = group.into_iter().map(|(_, rank)| rank).collect();
        self.group_of(&ranks)
    }

    /// A communicator of `ranks`, in that order. A collective call of all ranks: those in none of the groups
    /// that are made at this moment must still call it, with a group of themselves.
    fn group_of(&self, ranks: &[u32]) -> Result<Communicator> {
        let number = Segment(self.fresh_segment());
        let spread = self.spread_of(ranks)?;
        let here: Vec<u32> = match &self.spread {
            Some(spread) => ranks.iter().filter_map(|rank| spread.local_of(*rank)).collect(),
            None => ranks.to_vec(),
        };
        let size = u32::try_from(here.len()).unwrap_or(u32::MAX);
        let leader = here.first().copied().unwrap_or(self.place.me.0);
        let make = || Ok(Attached::create("a communicator", layout::plan(number, size)?)?);
        let home = self.hand_out(leader, make)?;
        self.successor(home, &here, spread)
    }

    /// Where these ranks are, if they are on several hosts. A collective call of all ranks, if some are on other hosts.
    fn spread_of(&self, ranks: &[u32]) -> Result<Option<Arc<Spread>>> {
        let Some(spread) = &self.spread else {
            return Ok(None);
        };
        // The groups that are made at this moment have no rank in common, so they may have the same tag.
        let mut tag = [i64::from(free_tag())];
        self.all_reduce(&mut tag, ReduceOp::Max)?;
        let tag = take_tag(u32::try_from(tag[0]).unwrap_or(u32::MAX))?;
        let me = ranks.iter().position(|rank| *rank == self.rank());
        let me = me.and_then(|me| u32::try_from(me).ok()).unwrap_or(u32::MAX);
        let members = ranks.iter().map(|rank| spread.members[*rank as usize].clone());
        let spread = Spread::new(me, members.collect(), tag)?;
        Ok((spread.hosts.len() > 1).then(|| Arc::new(spread)))
    }

    /// A communicator of these `ranks` of this host, and of others as `spread` says.
    fn successor(&self, home: Attached, ranks: &[u32], spread: Option<Arc<Spread>>) -> Result<Communicator> {
        let me = ranks.iter().position(|rank| *rank == self.place.me.0);
        let me = me
            .and_then(|me| u32::try_from(me).ok())
            .ok_or_else(|| Error::arguments("split", "a group without this rank"))?;
        let members = ranks
            .iter()
            .filter_map(|rank| self.members.get(*rank as usize).cloned())
            .collect();
        let attendant = Arc::clone(&self.attendant);
        Communicator::on(
            home,
            (Rank(me), spread),
            members,
            attendant,
            Arc::clone(&self.rules),
            self.timeout,
        )
    }

    /// A sub-group of these ranks, in this order; `None` for ranks that are not in it. A collective call of all
    /// ranks with the same list.
    ///
    /// # Errors
    /// If the list is empty, names a rank twice or one that is not there; COMM-2.
    pub fn group(&self, ranks: &[u32]) -> Result<Option<Communicator>> {
        for (i, rank) in ranks.iter().enumerate() {
            if *rank >= self.size() {
                let problem = format!("there is no rank {rank} among {}", self.size());
                return Err(Error::arguments("group", problem));
            }
            if ranks[..i].contains(rank) {
                return Err(Error::arguments("group", format!("rank {rank} is named twice")));
            }
        }
        if ranks.is_empty() {
            return Err(Error::arguments("group", "a group needs at least one rank"));
        }
        let inside = ranks.contains(&self.rank());
        let mine = [self.rank()];
        let made = self.group_of(if inside { ranks } else { &mine })?;
        Ok(inside.then_some(made))
    }

    /// A working communicator of the ranks that are still alive, in the same order. All survivors call it, after a
    /// call failed because a rank died (or was aborted for another reason). Ranks that die meanwhile are left out
    /// too.
    ///
    /// # Errors
    /// If a survivor does not come in time.
    pub fn shrink(&self) -> Result<Communicator> {
        if self.spread.is_some() {
            let problem = "a communicator over several hosts cannot go on after a death; start the job again";
            return Err(Error::arguments("shrink", problem));
        }
        // Frees the ranks that have not noticed yet from their waits.
        self.abort("shrinking");
        let nonce = self.home.layout().nonce;
        let number = Segment(self.fresh_segment().saturating_add(1 << 16));
        let make = |size| {
            let layout = layout::plan(number, size).map_err(platform)?;
            Attached::create("a communicator", layout)
        };
        loop {
            let (survivors, home) = self.attendant.regroup(nonce, &self.members, self.timeout, make)?;
            let rest = self.successor(home, &survivors, None)?;
            // Either all ranks that arrive in this meeting leave it, or none does, so the survivors agree (see
            // `regroup`). A rank for which it fails comes again: at most once for each death.
            match rest.barrier() {
                Ok(()) => return Ok(rest),
                Err(Error::Died { .. }) => {}
                Err(other) => return Err(other),
            }
        }
    }
}

fn no_memory(leader: u32) -> Error {
    let problem = format!("rank {leader} could not make the memory; its error says why");
    Error::arguments("sharing memory", problem)
}
