//! Regrouping: how the survivors of a broken segment find each other again.
//!
//! Everybody turns to the lowest rank that is alive. That one waits until every rank it knows to be alive has
//! come, makes a fresh segment and hands it out. If it dies meanwhile there is another lowest.
//!
//! This alone does not make the survivors agree: the lowest may die after it has answered some of them. Whoever
//! calls this must meet in the fresh segment before it relies on it, and come again if that fails because
//! somebody died. As a meeting either succeeds for all who arrive or for none, nobody goes on alone.

use super::socket::{Listens, connect};
use super::{Ask, Attendant, Peer, lock};
use crate::error::{Error, Result};
use crate::segment::{Attached, Layout};
use std::time::{Duration, Instant};

/// The interval of checks for new arrivals.
const PAUSE: Duration = Duration::from_micros(200);
/// How long a process that lives may refuse to answer before it is taken to have left.
const SILENCE: Duration = Duration::from_secs(1);

type Regrouped = Result<(Vec<u32>, Attached)>;

impl Attendant {
    /// Gathers the survivors of a broken segment around the lowest of them: each returns with the ranks that
    /// survived and a fresh segment, which the lowest makes by `make(survivors)`.
    ///
    /// # Errors
    /// If a survivor does not come in time, or has stopped its attendant.
    pub fn regroup(
        &self,
        nonce: u64,
        members: &[Peer],
        limit: Duration,
        make: impl Fn(u32) -> Result<Attached>,
    ) -> Regrouped {
        let deadline = Instant::now() + limit;
        let me = members.iter().position(|peer| *peer == self.me).unwrap_or(0);
        let mut silent: Option<(usize, Instant)> = None;
        loop {
            let dead = self.dead(members);
            let leader = (0..members.len()).find(|rank| !dead.contains(rank)).unwrap_or(me);
            let outcome = if leader == me {
                self.lead(nonce, members, deadline, &make)
            } else {
                self.follow(nonce, &members[leader], me, deadline)
            };
            match outcome {
                // It died, and there is another; or it left, and never will answer.
                Err(Error::Gone { who, cause }) if leader != me && Instant::now() < deadline => {
                    let since = match silent {
                        Some((rank, since)) if rank == leader => since,
                        _ => silent.insert((leader, Instant::now())).1,
                    };
                    if since.elapsed() > SILENCE {
                        let cause = format!("{cause}, though it lives: it has dropped its communicators");
                        return Err(Error::Gone {
                            who: format!("rank {leader} ({who})"),
                            cause,
                        });
                    }
                    std::thread::park_timeout(PAUSE);
                }
                Err(Error::Deadline { what, .. }) => {
                    return Err(Error::Deadline {
                        what,
                        limit_ms: limit.as_millis(),
                    });
                }
                other => return other,
            }
        }
    }

    fn lead(
        &self,
        nonce: u64,
        members: &[Peer],
        deadline: Instant,
        make: &dyn Fn(u32) -> Result<Attached>,
    ) -> Regrouped {
        let me = members.iter().position(|peer| *peer == self.me).unwrap_or(0);
        loop {
            let dead = self.dead(members);
            let others: Vec<usize> = (0..members.len())
                .filter(|rank| *rank != me && !dead.contains(rank))
                .collect();
            let mut desk = lock(&self.desk);
            let waiting = desk.regrouping.entry(nonce).or_default();
            let came = |rank: &usize| waiting.iter().any(|(other, _)| *other as usize == *rank);
            let missing: Vec<String> = others
                .iter()
                .filter(|rank| !came(rank))
                .map(ToString::to_string)
                .collect();
            if missing.is_empty() {
                let waiting = desk.regrouping.remove(&nonce).unwrap_or_default();
                drop(desk);
                let survivors: Vec<u32> = (0..members.len())
                    .filter(|rank| *rank == me || others.contains(rank))
                    .filter_map(|rank| u32::try_from(rank).ok())
                    .collect();
                let segment = make(u32::try_from(survivors.len()).unwrap_or(u32::MAX))?;
                for (_, wire) in waiting.iter().filter(|(rank, _)| survivors.contains(rank)) {
                    // One that died meanwhile is noticed in the new segment.
                    let _ = wire.send(&(segment.layout(), survivors.clone()), segment.fd());
                }
                return Ok((survivors, segment));
            }
            if Instant::now() >= deadline {
                desk.regrouping.remove(&nonce);
                let what = format!("regrouping: rank {} did not come", missing.join(", "));
                return Err(Error::Deadline { what, limit_ms: 0 });
            }
            drop(desk);
            std::thread::park_timeout(PAUSE);
        }
    }

    fn follow(&self, nonce: u64, leader: &Peer, me: usize, deadline: Instant) -> Regrouped {
        let who = format!("process {}", leader.pid);
        let gone = |cause: &str| Error::Gone {
            who: who.clone(),
            cause: cause.into(),
        };
        let address = std::slice::from_ref(&leader.address);
        let wire = connect(address, &who, Listens::Already, deadline)?;
        let rank = u32::try_from(me).unwrap_or(u32::MAX);
        wire.send(&Ask::Regroup { nonce, rank }, None)
            .map_err(|_| gone("it closed the connection"))?;
        match wire.recv::<(Layout, Vec<u32>)>(Some(deadline))? {
            Some(((layout, survivors), Some(fd))) => Ok((survivors, Attached::open(fd, layout)?)),
            _ => Err(gone("it ended while regrouping")),
        }
    }
}
