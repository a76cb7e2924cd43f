//! Peers: processes that were started by somebody else and meet as equals.
//!
//! Every process has an *attendant*: a thread that answers on a socket with an abstract address, hands out
//! descriptors of shared memory to processes of the same user, and watches the others' pidfds. It sleeps
//! unless something happens.
//!
//! They first meet at a rendezvous, an address all of them know, and can regroup when some have died.
//!
//! # Invariants
//! - **PEER-1 (same user).** Both ends of every connection check that the other runs under the same user id.
//! - **PEER-2 (asked for by number).** A descriptor is handed out only to processes that know its nonce.
//! - **PEER-3 (a death is told once).** When a pidfd fires, the alarm of every segment that the dead process is
//!   a member of, and has not left, is raised by every survivor; the first one counts.

mod regroup;
mod rendezvous;
mod socket;

use crate::error::{Error, Result};
use crate::process::bootstrap_socket::{Wire, poll_for};
use crate::ranks::my_cores;
use crate::segment::{Alarm, Attached, Layout};
use crate::sync::primitive::expect_barriers;
use ringwork_isa::Rank;
use rustix::event::{EventfdFlags, PollFd, PollFlags};
use rustix::process::{Pid, PidfdFlags};
use serde::{Deserialize, Serialize};
use socket::{Listens, accept, check_user, connect, listen_anywhere};
use std::collections::BTreeMap;
use std::fmt;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// A process among equals.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Peer {
    /// Its process id.
    pub pid: u32,
    /// Where its attendant answers.
    address: String,
    /// The cores that it might use when it came, and how many of them at once.
    pub(crate) cores: Vec<usize>,
    pub(crate) parallelism: usize,
}

#[cfg(test)]
impl Peer {
    /// A process that may use these cores, so many of them at once.
    pub(crate) fn of_cores(cores: &[usize], parallelism: usize) -> Peer {
        Peer {
            pid: 0,
            address: String::new(),
            cores: cores.to_vec(),
            parallelism,
        }
    }
}

/// What a process asks of another's attendant.
#[derive(Debug, Serialize, Deserialize)]
enum Ask {
    /// The segment with this nonce.
    Segment { nonce: u64 },
    /// To be in the successor of a segment whose members died.
    Regroup { nonce: u64, rank: u32 },
}

/// A segment whose members must hear of deaths.
struct Membership {
    segment: Weak<Attached>,
    /// In rank order.
    members: Vec<u32>,
}

/// A process of the same job that is watched.
struct Watched {
    pid: u32,
    pidfd: Arc<OwnedFd>,
    dead: bool,
}

/// Survivors that wait to be regrouped: rank and connection, by the nonce of what broke.
type Waiting = BTreeMap<u64, Vec<(u32, Wire)>>;

#[derive(Default)]
struct Desk {
    /// Descriptors that may be asked for, by nonce.
    offered: BTreeMap<u64, (Layout, OwnedFd)>,
    memberships: Vec<Membership>,
    watched: Vec<Watched>,
    regrouping: Waiting,
}

/// This process's attendant, and what it knows of the others.
pub struct Attendant {
    me: Peer,
    desk: Arc<Mutex<Desk>>,
    wake: Arc<OwnedFd>,
    stopping: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl fmt::Debug for Attendant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Attendant")
            .field("me", &self.me)
            .finish_non_exhaustive()
    }
}

fn lock(desk: &Mutex<Desk>) -> MutexGuard<'_, Desk> {
    desk.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Attendant {
    /// Starts this process's attendant.
    ///
    /// # Errors
    /// If there are no sockets or threads to be had.
    pub fn start() -> Result<Attendant> {
        expect_barriers();
        let pid = std::process::id();
        let (address, listener) = listen_anywhere()?;
        let wake =
            rustix::event::eventfd(0, EventfdFlags::CLOEXEC).map_err(Error::system("creating an eventfd"))?;
        let (desk, wake, stopping): (Arc<Mutex<Desk>>, _, Arc<AtomicBool>) =
            (Arc::default(), Arc::new(wake), Arc::default());
        let (their_desk, their_wake, their_stopping) = (desk.clone(), wake.clone(), stopping.clone());
        let thread = std::thread::Builder::new()
            .name("ringwork-attendant".into())
            .spawn(move || attend(&listener, &their_desk, &their_wake, &their_stopping))
            .map_err(Error::system("starting the attendant thread"))?;
        Ok(Attendant {
            me: Peer {
                pid,
                address,
                cores: my_cores(),
                parallelism: std::thread::available_parallelism().map_or(1, usize::from),
            },
            desk,
            wake,
            stopping,
            thread: Some(thread),
        })
    }

    /// Watches these processes, in rank order, from now on.
    ///
    /// # Errors
    /// If one is gone already.
    pub fn watch(&self, peers: &[Peer]) -> Result<()> {
        let mut desk = lock(&self.desk);
        for (rank, peer) in peers.iter().enumerate() {
            if peer.pid == self.me.pid || desk.watched.iter().any(|watched| watched.pid == peer.pid) {
                continue;
            }
            let gone = || Error::Gone {
                who: format!("rank {rank} (process {})", peer.pid),
                cause: "it ended before everybody was ready".into(),
            };
            let pid = i32::try_from(peer.pid)
                .ok()
                .and_then(Pid::from_raw)
                .ok_or_else(gone)?;
            let opened = rustix::process::pidfd_open(pid, PidfdFlags::empty());
            let pidfd = opened.map_err(|error| match error {
                rustix::io::Errno::SRCH => gone(),
                error => Error::system(format!("watching rank {rank}: pidfd_open"))(error),
            })?;
            desk.watched.push(Watched {
                pid: peer.pid,
                pidfd: Arc::new(pidfd),
                dead: false,
            });
        }
        drop(desk);
        self.wake();
        Ok(())
    }

    /// Raises the segment's alarm when one of its members, in rank order, ends; at once if one has.
    pub fn tell(&self, segment: &Arc<Attached>, members: &[Peer]) {
        let mut desk = lock(&self.desk);
        let members: Vec<u32> = members.iter().map(|peer| peer.pid).collect();
        for dead in desk.watched.iter().filter(|watched| watched.dead) {
            raise(segment, &members, dead.pid);
        }
        desk.memberships
            .retain(|membership| membership.segment.strong_count() > 0);
        desk.memberships.push(Membership {
            segment: Arc::downgrade(segment),
            members,
        });
    }

    /// Which of these processes have ended.
    #[must_use]
    pub fn dead(&self, peers: &[Peer]) -> Vec<usize> {
        let desk = lock(&self.desk);
        let ended = |peer: &Peer| {
            let watched = desk.watched.iter().find(|watched| watched.pid == peer.pid);
            watched.is_some_and(|watched| watched.dead || has_ended(&watched.pidfd))
        };
        peers
            .iter()
            .enumerate()
            .filter(|(_, peer)| ended(peer))
            .map(|(rank, _)| rank)
            .collect()
    }

    /// Lets others fetch a segment that this process made, by its nonce, until the offer is dropped.
    ///
    /// # Errors
    /// If it has no descriptor.
    pub fn offer(&self, segment: &Attached) -> Result<Offer<'_>> {
        let fd = segment.fd().ok_or_else(|| Error::Gone {
            who: "the segment".into(),
            cause: "its descriptor is closed".into(),
        })?;
        let fd = fd
            .try_clone_to_owned()
            .map_err(Error::system("offering a segment"))?;
        let nonce = segment.layout().nonce;
        lock(&self.desk).offered.insert(nonce, (segment.layout(), fd));
        Ok(Offer {
            attendant: self,
            nonce,
        })
    }

    /// Fetches a segment that another process offers.
    ///
    /// # Errors
    /// If it is gone or offers no such thing.
    pub fn fetch(&self, from: &Peer, nonce: u64, limit: Duration) -> Result<Attached> {
        let who = format!("process {}", from.pid);
        let deadline = Instant::now() + limit;
        let address = std::slice::from_ref(&from.address);
        let wire = connect(address, &who, Listens::Already, deadline)?;
        wire.send(&Ask::Segment { nonce }, None)?;
        match wire.recv::<Layout>(Some(deadline))? {
            Some((layout, Some(fd))) => Attached::open(fd, layout),
            _ => Err(Error::Gone {
                who,
                cause:
                    "it closed the connection: it does not offer this segment, or has no descriptors left \
                        (raise `ulimit -n`)"
                        .into(),
            }),
        }
    }

    /// This process, as others see it.
    #[must_use]
    pub fn me(&self) -> &Peer {
        &self.me
    }

    /// Wakes the attendant; returns whether that succeeded.
    fn wake(&self) -> bool {
        rustix::io::write(&*self.wake, &1u64.to_ne_bytes()).is_ok()
    }
}

/// A segment that others may fetch while this lives.
#[derive(Debug)]
pub struct Offer<'a> {
    attendant: &'a Attendant,
    nonce: u64,
}

impl Drop for Offer<'_> {
    fn drop(&mut self) {
        lock(&self.attendant.desk).offered.remove(&self.nonce);
    }
}

impl Drop for Attendant {
    fn drop(&mut self) {
        self.stopping.store(true, Ordering::SeqCst);
        // A thread that could not be woken ends with the process.
        if self.wake()
            && let Some(thread) = self.thread.take()
        {
            let _ = thread.join();
        }
    }
}

fn has_ended(pidfd: &OwnedFd) -> bool {
    poll_for(&mut [PollFd::new(pidfd, PollFlags::IN)], Some(Duration::ZERO)).unwrap_or(false)
}

fn raise(segment: &Attached, members: &[u32], pid: u32) {
    let rank = members
        .iter()
        .position(|member| *member == pid)
        .and_then(|rank| u32::try_from(rank).ok())
        .map(Rank);
    if let Some(rank) = rank.filter(|rank| !segment.has_left(*rank)) {
        segment.raise(&Alarm {
            dead: Some(rank),
            reason: format!("process {pid} ended"),
        });
    }
}

fn tell_of(desk: &Mutex<Desk>, pid: u32) {
    let mut desk = lock(desk);
    for watched in desk.watched.iter_mut().filter(|watched| watched.pid == pid) {
        watched.dead = true;
    }
    for membership in &desk.memberships {
        if let Some(segment) = membership.segment.upgrade() {
            raise(&segment, &membership.members, pid);
        }
    }
}

/// Longest that a connected process may take to say what it wants, and how many may be about to.
const PATIENCE: Duration = Duration::from_secs(5);
const MAX_VISITORS: usize = 256;

/// The attendant's life. Visitors are polled like everything else: one that says nothing keeps nobody waiting.
fn attend(listener: &OwnedFd, desk: &Mutex<Desk>, wake: &OwnedFd, stopping: &AtomicBool) {
    let mut visitors: Vec<(Wire, Instant)> = Vec::new();
    // Given up when there are no descriptors left, so that a visitor can be accepted and hung up on. Otherwise it
    // would wait, and the listener would stay ready: a spin.
    let mut spare = listener.try_clone().ok();
    while !stopping.load(Ordering::SeqCst) {
        let alive = |watched: &&Watched| !watched.dead;
        let watched: Vec<(u32, Arc<OwnedFd>)> = lock(desk)
            .watched
            .iter()
            .filter(alive)
            .map(|watched| (watched.pid, Arc::clone(&watched.pidfd)))
            .collect();
        let mut fds = vec![
            PollFd::new(listener, PollFlags::IN),
            PollFd::new(wake, PollFlags::IN),
        ];
        fds.extend(
            watched
                .iter()
                .map(|(_, pidfd)| PollFd::new(&**pidfd, PollFlags::IN)),
        );
        fds.extend(visitors.iter().map(|(wire, _)| PollFd::new(wire, PollFlags::IN)));
        let patience = (!visitors.is_empty()).then_some(PATIENCE);
        let polled = poll_for(&mut fds, patience);
        let ready: Vec<bool> = fds.iter().map(|fd| !fd.revents().is_empty()).collect();
        drop(fds);
        if polled.is_err() {
            // Out of kernel memory, at worst: deaths must still be noticed, and no core be burnt.
            std::thread::park_timeout(Duration::from_millis(1));
            continue;
        }
        if ready[1] {
            let _ = rustix::io::read(wake, &mut [0; 8]);
        }
        let (ended, speaking) = ready[2..].split_at(watched.len());
        for ((pid, _), _) in watched.iter().zip(ended).filter(|(_, ended)| **ended) {
            tell_of(desk, *pid);
        }
        let mut speaking = speaking.iter();
        for (wire, since) in std::mem::take(&mut visitors) {
            if speaking.next() == Some(&true) {
                answer(desk, wire);
            } else if since.elapsed() < PATIENCE {
                visitors.push((wire, since));
            }
        }
        if !ready[0] {
            continue;
        }
        let accepted = accept(listener);
        if accepted.is_err() {
            drop(spare.take());
            if accept(listener).is_err() {
                std::thread::park_timeout(Duration::from_millis(1));
            }
            spare = listener.try_clone().ok();
        }
        if let Ok(Some(socket)) = accepted
            && check_user(&socket, "a stranger").is_ok()
            && visitors.len() < MAX_VISITORS
        {
            visitors.push((Wire::from_fd(socket, "a peer".into()), Instant::now()));
        }
    }
}

/// Does what a visitor that has begun to speak asks for.
fn answer(desk: &Mutex<Desk>, wire: Wire) {
    match wire.recv::<Ask>(Some(Instant::now())) {
        Ok(Some((Ask::Segment { nonce }, _))) => {
            let desk = lock(desk);
            // For any other request the connection is closed (PEER-2).
            if let Some((layout, fd)) = desk.offered.get(&nonce) {
                let _ = wire.send(layout, Some(fd.as_fd()));
            }
        }
        Ok(Some((Ask::Regroup { nonce, rank }, _))) => {
            let mut desk = lock(desk);
            let waiting = desk.regrouping.entry(nonce).or_default();
            waiting.retain(|(other, _)| *other != rank);
            waiting.push((rank, wire));
        }
        Ok(None) | Err(_) => {}
    }
}
