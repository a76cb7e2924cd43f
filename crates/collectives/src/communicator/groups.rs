//! Sharing memory after the start, splitting into groups, and going on without the dead.

use super::error::{Error, Result};
use super::{Communicator, layout, platform};
use ringwork_isa::{Rank, Segment};
use ringwork_native::segment::{Attached, Layout};
use std::sync::Arc;

impl Communicator {
    /// A segment of all ranks, which rank 0 makes. A collective call.
    pub(super) fn share(&self, what: &str, plan: impl FnOnce() -> Result<Layout>) -> Result<Attached> {
        let everybody: Vec<u32> = (0..self.size()).collect();
        let mine = if self.rank() == 0 {
            Some(Attached::create(what, plan()?)?)
        } else {
            None
        };
        self.hand_out(mine, &everybody)
    }

    /// Hands the segment that the first of `group` has made to all of it. A collective call of all ranks: each
    /// takes part in the group that it is in.
    fn hand_out(&self, mine: Option<Attached>, group: &[u32]) -> Result<Attached> {
        if let Some(segment) = &mine {
            self.attendant.offer(segment)?;
        }
        let nonce = mine.as_ref().map_or(0, |segment| segment.layout().nonce);
        let mut nonces = vec![0i64; self.size() as usize];
        self.all_gather(&[nonce.cast_signed()], &mut nonces)?;
        let outcome = match mine {
            Some(segment) => Ok((segment, Some(nonce))),
            None => {
                let leader = group[0] as usize;
                let wanted = nonces[leader].cast_unsigned();
                let fetched = self.attendant.fetch(&self.members[leader], wanted, self.timeout);
                fetched.map(|segment| (segment, None)).map_err(Error::from)
            }
        };
        // Nobody withdraws an offer before everybody has taken it, or failed to.
        self.barrier()?;
        let (segment, offered) = outcome?;
        if let Some(nonce) = offered {
            self.attendant.withdraw(nonce);
        }
        Ok(segment)
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
        let size = u32::try_from(ranks.len()).unwrap_or(u32::MAX);
        let leads = ranks.first() == Some(&self.rank());
        let mine = if leads {
            Some(Attached::create("a communicator", layout::plan(number, size)?)?)
        } else {
            None
        };
        let home = self.hand_out(mine, ranks)?;
        self.successor(home, ranks)
    }

    fn successor(&self, home: Attached, ranks: &[u32]) -> Result<Communicator> {
        let me = ranks.iter().position(|rank| *rank == self.rank());
        let me = me
            .and_then(|me| u32::try_from(me).ok())
            .ok_or_else(|| Error::arguments("split", "a group without this rank"))?;
        let members = ranks
            .iter()
            .filter_map(|rank| self.members.get(*rank as usize).cloned())
            .collect();
        Communicator::on(home, Rank(me), members, Arc::clone(&self.attendant), self.timeout)
    }

    /// A sub-group of these ranks, in this order; `None` for ranks that are not in it. A collective call of all
    /// ranks with the same list.
    ///
    /// # Errors
    /// If the list names a rank twice or one that is not there; COMM-2.
    pub fn group(&self, ranks: &[u32]) -> Result<Option<Communicator>> {
        for (i, rank) in ranks.iter().enumerate() {
            if *rank >= self.size() || ranks[..i].contains(rank) {
                let problem = format!(
                    "rank {rank} is there twice, or not among the {} here",
                    self.size()
                );
                return Err(Error::arguments("group", problem));
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

    /// A working communicator of the ranks that are still alive, in the same order. A call of all survivors,
    /// after a call failed because a rank died (or was aborted for another reason).
    ///
    /// # Errors
    /// If a survivor does not come in time.
    pub fn shrink(&self) -> Result<Communicator> {
        // Those who have not noticed yet are freed from whatever they wait in.
        self.abort("shrinking");
        let nonce = self.home.layout().nonce;
        let number = Segment(self.fresh_segment().saturating_add(1 << 16));
        let make = |size| Attached::create("a communicator", layout::plan(number, size).map_err(platform)?);
        let (survivors, home) = self.attendant.regroup(nonce, &self.members, self.timeout, make)?;
        self.successor(home, &survivors)
    }
}
