//! The rendezvous: how processes that know only an address and their rank find each other.
//!
//! Rank 0 listens, the others say who they are and wait. When all have come, each is told of all, with the
//! descriptor of the first segment. When one ends meanwhile, or time is up, everybody who has come is told who
//! is missing.

use super::socket::{Listens, accept, check_user, connect, listen_at, names_of};
use super::{Attendant, Peer};
use crate::core::NOTICE;
use crate::error::{Error, Result};
use crate::process::bootstrap_socket::{Wire, poll_for};
use crate::ranks::ToLauncher;
use crate::segment::{Attached, Layout};
use ringwork_isa::Rank;
use rustix::event::{PollFd, PollFlags};
use serde::{Deserialize, Serialize};
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

/// What a process says when it comes.
#[derive(Debug, Serialize, Deserialize)]
struct Join {
    version: u64,
    rank: u32,
    size: u32,
    peer: Peer,
}

/// What it is told when all have come; the descriptor of the first segment is in the same packet.
#[derive(Debug, Serialize, Deserialize)]
enum Welcome {
    Here { layout: Layout, peers: Vec<Peer> },
    Refused(String),
}

const VERSION: u64 = ringwork_isa::signature_hash(concat!("ringwork peers v1 ", env!("CARGO_PKG_VERSION")));

/// Longest that a process may take to say who it is once it has connected, and that all take who are turned away.
const PATIENCE: Duration = Duration::from_secs(1);
/// How many may be connected and silent; then the oldest of them is hung up on.
const MAX_VISITORS: usize = 256;

/// Connections whose other end has not said yet who it is, the oldest first. They are polled together: one that says
/// nothing keeps nobody waiting.
type Visitors = Vec<(Wire, Instant)>;

/// Those who have come, by rank.
struct Guests {
    joined: Vec<Option<(Peer, Wire)>>,
    visitors: Visitors,
}

impl Guests {
    fn new(size: u32) -> Guests {
        Guests {
            joined: (0..size).map(|_| None).collect(),
            visitors: Vec::new(),
        }
    }

    /// The ranks that have not come, but 0.
    fn missing(&self) -> Vec<String> {
        let absent = |(rank, guest): (usize, &Option<_>)| guest.is_none().then(|| rank.to_string());
        self.joined
            .iter()
            .enumerate()
            .skip(1)
            .filter_map(absent)
            .collect()
    }

    fn come(&self) -> impl Iterator<Item = (usize, &(Peer, Wire))> {
        self.joined
            .iter()
            .enumerate()
            .filter_map(|(rank, guest)| Some((rank, guest.as_ref()?)))
    }

    /// Waits until somebody connects or says who it is, and takes those in who do; whether somebody connects. An
    /// error if one who has come ends meanwhile, or does not belong here.
    fn wait(&mut self, listener: &OwnedFd, size: u32, left: Duration) -> Result<bool> {
        let oldest = self.visitors.first();
        let oldest = oldest.map(|(_, since)| PATIENCE.saturating_sub(since.elapsed()));
        let mut fds = vec![PollFd::new(listener, PollFlags::IN)];
        // Guests say nothing more: whatever can be read is the end of them.
        fds.extend(self.come().map(|(_, (_, wire))| PollFd::new(wire, PollFlags::IN)));
        fds.extend(
            self.visitors
                .iter()
                .map(|(wire, _)| PollFd::new(wire, PollFlags::IN)),
        );
        poll_for(&mut fds, Some(oldest.map_or(left, |patience| patience.min(left))))?;
        let ready: Vec<bool> = fds.iter().map(|fd| !fd.revents().is_empty()).collect();
        drop(fds);
        let (ended, speaking) = ready[1..].split_at(self.come().count());
        if let Some(((rank, _), _)) = self.come().zip(ended).find(|(_, ended)| **ended) {
            return Err(Error::Gone {
                who: format!("rank {rank}"),
                cause: "it ended before everybody had come".into(),
            });
        }
        let mut refused = None;
        for ((wire, since), speaks) in std::mem::take(&mut self.visitors).into_iter().zip(speaking) {
            if *speaks {
                refused = refused.or(self.admit(wire, size).err());
            } else if since.elapsed() < PATIENCE {
                self.visitors.push((wire, since));
            }
        }
        refused.map_or(Ok(ready[0]), Err)
    }

    /// Somebody has connected.
    fn visit(&mut self, wire: Wire) {
        if self.visitors.len() >= MAX_VISITORS {
            self.visitors.remove(0);
        }
        self.visitors.push((wire, Instant::now()));
    }

    /// Takes what a process says when it comes.
    fn admit(&mut self, wire: Wire, size: u32) -> Result<()> {
        let Ok(Some((join, _))) = wire.recv::<Join>(Some(Instant::now())) else {
            return Ok(());
        };
        let refusal = if join.version != VERSION {
            Some("it is another version of ringwork".to_owned())
        } else if join.size != size {
            Some(format!("it counts {} ranks and rank 0 counts {size}", join.size))
        } else if join.rank == 0 || join.rank >= size || self.joined[join.rank as usize].is_some() {
            Some(format!(
                "there are two of rank {}, or fewer ranks than that",
                join.rank
            ))
        } else {
            None
        };
        let Some(why) = refusal else {
            self.joined[join.rank as usize] = Some((join.peer, wire));
            return Ok(());
        };
        let _ = wire.send(&Welcome::Refused(why.clone()), None);
        Err(Error::Gone {
            who: format!("rank {}", join.rank),
            cause: why,
        })
    }

    /// Sends `Refused(why)` to each process that has joined.
    fn refuse(&self, why: &Error) {
        for (_, (_, wire)) in self.come() {
            let _ = wire.send(&Welcome::Refused(why.to_string()), None);
        }
    }
}

/// Tells those who have connected, or do now, and were not let in that it came to nothing.
fn turn_away(listener: &OwnedFd, mut visitors: Visitors, why: &Error) {
    let until = Instant::now() + PATIENCE;
    loop {
        let left = until.saturating_duration_since(Instant::now());
        let mut fds = vec![PollFd::new(listener, PollFlags::IN)];
        fds.extend(visitors.iter().map(|(wire, _)| PollFd::new(wire, PollFlags::IN)));
        let patience = if visitors.is_empty() { Duration::ZERO } else { left };
        if !poll_for(&mut fds, Some(patience)).is_ok_and(|any| any) {
            return;
        }
        let ready: Vec<bool> = fds.iter().map(|fd| !fd.revents().is_empty()).collect();
        drop(fds);
        let mut speaks = ready[1..].iter();
        visitors.retain(|(wire, _)| {
            if speaks.next() != Some(&true) {
                return true;
            }
            // What it says is heard first: to hang up on unread words is an error at its end, in place of the answer.
            let _ = wire.recv::<Join>(Some(Instant::now()));
            let _ = wire.send(&Welcome::Refused(why.to_string()), None);
            false
        });
        if ready[0] {
            let Ok(Some(socket)) = accept(listener) else {
                return;
            };
            if check_user(&socket, "a stranger").is_ok() {
                visitors.push((Wire::from_fd(socket, "a rank".into()), Instant::now()));
            }
        }
    }
}

impl Attendant {
    /// Meets `size` processes at `rendezvous` as `rank`: returns all of them in rank order, and the first
    /// segment, which rank 0 makes by `make`.
    ///
    /// # Errors
    /// If somebody does not come in time, ends, or the ranks do not fit together: who, and why. Everybody who
    /// has come is told the same.
    pub fn meet(
        &self,
        rendezvous: &str,
        rank: Rank,
        size: u32,
        limit: Duration,
        make: impl FnOnce() -> Result<Attached>,
    ) -> Result<(Vec<Peer>, Attached)> {
        let deadline = Instant::now() + limit;
        if rank.0 != 0 {
            return self.join(rendezvous, rank, size, deadline);
        }
        let listener = if size > 1 {
            Some(listen_at(rendezvous)?)
        } else {
            None
        };
        self.host(listener.as_ref(), size, limit, deadline, make)
    }

    /// Waits for all processes at the rendezvous; if it fails, those that have joined get the reason.
    fn host(
        &self,
        listener: Option<&OwnedFd>,
        size: u32,
        limit: Duration,
        deadline: Instant,
        make: impl FnOnce() -> Result<Attached>,
    ) -> Result<(Vec<Peer>, Attached)> {
        let mut guests = Guests::new(size);
        let met = self.receive(&mut guests, listener, limit, deadline, make);
        if let Err(error) = &met {
            guests.refuse(error);
            if let Some(listener) = listener {
                turn_away(listener, std::mem::take(&mut guests.visitors), error);
            }
        }
        met
    }

    fn receive(
        &self,
        guests: &mut Guests,
        listener: Option<&OwnedFd>,
        limit: Duration,
        deadline: Instant,
        make: impl FnOnce() -> Result<Attached>,
    ) -> Result<(Vec<Peer>, Attached)> {
        let size = u32::try_from(guests.joined.len()).unwrap_or(u32::MAX);
        let mut notice = Some(Instant::now() + NOTICE);
        while let Some(listener) = listener
            && let missing = guests.missing()
            && !missing.is_empty()
        {
            let left = deadline.saturating_duration_since(Instant::now());
            let told = notice.map_or(left, |at| at.saturating_duration_since(Instant::now()));
            if !guests.wait(listener, size, left.min(told))? {
                if notice.take_if(|at| *at <= Instant::now()).is_some()
                    && let Some(launcher) = ToLauncher::of_this_process()
                {
                    launcher.say(
                        NOTICE,
                        &format!(" for rank {} to join the job", missing.join(", ")),
                    );
                }
                if left.is_zero() {
                    let what = format!("waiting for rank {} to join the job", missing.join(", "));
                    return Err(Error::Deadline {
                        what,
                        limit_ms: limit.as_millis(),
                    });
                }
                continue;
            }
            let Some(socket) = accept(listener)? else {
                continue;
            };
            if check_user(&socket, "a stranger").is_ok() {
                guests.visit(Wire::from_fd(socket, "a rank".into()));
            }
        }
        let mut peers = vec![self.me.clone()];
        peers.extend(guests.come().map(|(_, (peer, _))| peer.clone()));
        let segment = make()?;
        for (rank, (_, wire)) in guests.come() {
            let welcome = Welcome::Here {
                layout: segment.layout(),
                peers: peers.clone(),
            };
            wire.send(&welcome, segment.fd()).map_err(|error| Error::Gone {
                who: format!("rank {rank}"),
                cause: format!("it ended at the rendezvous ({error})"),
            })?;
        }
        Ok((peers, segment))
    }

    fn join(
        &self,
        rendezvous: &str,
        rank: Rank,
        size: u32,
        deadline: Instant,
    ) -> Result<(Vec<Peer>, Attached)> {
        let names: Vec<String> = names_of(rendezvous).collect();
        let wire = connect(&names, "rank 0", Listens::Later, deadline)?;
        wire.send(
            &Join {
                version: VERSION,
                rank: rank.0,
                size,
                peer: self.me.clone(),
            },
            None,
        )?;
        // Rank 0 has the same limit, and says who is missing: give it a moment to do so.
        match wire.recv(Some(deadline + PATIENCE))? {
            Some((Welcome::Here { layout, peers }, Some(fd))) if peers.len() == size as usize => {
                Ok((peers, Attached::open(fd, layout)?))
            }
            Some((Welcome::Refused(why), _)) => Err(Error::Gone {
                who: "the rendezvous".into(),
                cause: why,
            }),
            Some(_) => {
                Err(ringwork_isa::Error::corrupt("the welcome", "peers", "another number", size).into())
            }
            None => Err(Error::Gone {
                who: "rank 0".into(),
                cause: "it ended at the rendezvous".into(),
            }),
        }
    }
}

#[cfg(all(test, not(miri)))]
mod tests {
    #![allow(clippy::unwrap_used, reason = "helpers of tests")]

    use super::*;

    /// An address of a test, and what rank `rank` of `size` says who comes to it.
    fn knock(attendant: &Attendant, address: &str, rank: u32, size: u32) -> Wire {
        let deadline = Instant::now() + LONG;
        let wire = connect(&[address.to_owned()], "rank 0", Listens::Already, deadline).unwrap();
        let (version, peer) = (VERSION, attendant.me.clone());
        let join = Join {
            version,
            rank,
            size,
            peer,
        };
        wire.send(&join, None).unwrap();
        wire
    }

    const LONG: Duration = Duration::from_secs(10);

    #[test]
    fn a_late_joiner_of_a_failed_rendezvous_gets_the_reason() {
        let address = format!("ringwork-test-connecting-{}", std::process::id());
        let attendant = Attendant::start().unwrap();
        let listener = listen_at(&address).unwrap();
        let deadline = Instant::now() + LONG;
        let _wrong = knock(&attendant, &address, 1, 9);
        let right = knock(&attendant, &address, 2, 3);
        let make = || unreachable!("not everybody comes");
        let met = attendant.host(Some(&listener), 3, LONG, deadline, make);
        let why = met.unwrap_err().to_string();
        assert!(why.contains("it counts 9 ranks"), "{why}");
        match right.recv::<Welcome>(Some(deadline)).unwrap() {
            Some((Welcome::Refused(told), _)) => assert_eq!(told, why),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn silent_connections_keep_nobody_waiting() {
        let address = format!("ringwork-test-silent-{}", std::process::id());
        let attendant = Attendant::start().unwrap();
        let listener = listen_at(&address).unwrap();
        // One after the other they would take as many times the patience, which is longer than there is.
        let silent: Vec<Wire> = (0..40)
            .map(|_| {
                connect(
                    std::slice::from_ref(&address),
                    "rank 0",
                    Listens::Already,
                    Instant::now() + LONG,
                )
                .unwrap()
            })
            .collect();
        let right = knock(&attendant, &address, 1, 2);
        let make = || Attached::create("a test", Layout::windows(ringwork_isa::Segment(1), 2, 1, 100)?);
        let (peers, _) = attendant
            .host(Some(&listener), 2, LONG, Instant::now() + LONG, make)
            .unwrap();
        assert_eq!(peers.len(), 2);
        assert!(matches!(
            right.recv::<Welcome>(Some(Instant::now() + LONG)),
            Ok(Some((Welcome::Here { .. }, Some(_))))
        ));
        drop(silent);
    }
}
