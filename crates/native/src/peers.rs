//! Peers: processes that were started by somebody else and meet as equals.
//!
//! Every process has an *attendant*: a thread that answers on a socket with an abstract address, hands out
//! descriptors of shared memory to processes of the same user, and watches the others' pidfds. It sleeps
//! unless something happens.
//!
//! They first meet at a *rendezvous*, an address all of them know: rank 0 listens there, the others say who
//! they are, and when all have come, each is told of all the others and given the first segment.
//!
//! # Invariants
//! - **PEER-1 (same user).** Both ends of every connection check that the other runs under the same user id.
//! - **PEER-2 (asked for by number).** A descriptor is handed out only to whoever knows its nonce.
//! - **PEER-3 (a death is told once).** When a pidfd fires, the alarm of every segment that the dead process is
//!   a member of is raised by every survivor; the first one counts.

use crate::error::{Error, Result};
use crate::segment::{Alarm, Attached, Layout};
use crate::wire::{Wire, poll_for};
use ringwork_isa::Rank;
use rustix::event::{EventfdFlags, PollFd, PollFlags};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use rustix::process::{Pid, PidfdFlags};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
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
}

/// What a process says at the rendezvous.
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

/// What a process asks of another's attendant.
#[derive(Debug, Serialize, Deserialize)]
enum Ask {
    /// The segment with this nonce.
    Segment { nonce: u64 },
    /// To be in the successor of a segment whose members died.
    Regroup { nonce: u64, rank: u32 },
}

const VERSION: u64 = ringwork_isa::signature_hash(concat!("ringwork peers v1 ", env!("CARGO_PKG_VERSION")));

/// A segment whose members must hear of deaths.
struct Membership {
    segment: Weak<Attached>,
    /// In rank order.
    members: Vec<u32>,
}

/// A process of the same job that is watched.
struct Watched {
    pid: u32,
    pidfd: OwnedFd,
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

fn unix_socket() -> Result<OwnedFd> {
    let (family, kind) = (AddressFamily::UNIX, SocketType::SEQPACKET);
    rustix::net::socket_with(family, kind, SocketFlags::CLOEXEC, None)
        .map_err(Error::system("creating a socket"))
}

fn abstract_address(name: &str) -> Result<SocketAddrUnix> {
    SocketAddrUnix::new_abstract_name(name.as_bytes()).map_err(Error::system(format!("the address `{name}`")))
}

fn listen(name: &str) -> Result<OwnedFd> {
    let socket = unix_socket()?;
    rustix::net::bind(&socket, &abstract_address(name)?)
        .map_err(Error::system(format!("listening at `{name}`")))?;
    rustix::net::listen(&socket, 64).map_err(Error::system("listening"))?;
    Ok(socket)
}

/// Connects to an address of this user's (PEER-1), trying until the deadline: the other may not be there yet.
fn connect(name: &str, who: &str, deadline: Instant) -> Result<Wire> {
    let address = abstract_address(name)?;
    let mut pause = Duration::from_micros(200);
    loop {
        let socket = unix_socket()?;
        match rustix::net::connect(&socket, &address) {
            Ok(()) => {
                check_user(&socket, who)?;
                return Ok(Wire::from_fd(socket, who.into()));
            }
            Err(rustix::io::Errno::CONNREFUSED | rustix::io::Errno::NOENT | rustix::io::Errno::AGAIN)
                if Instant::now() < deadline =>
            {
                std::thread::park_timeout(pause);
                pause = (pause * 2).min(Duration::from_millis(5));
            }
            Err(error) => {
                return Err(Error::Gone {
                    who: who.into(),
                    cause: format!("it does not answer ({error})"),
                });
            }
        }
    }
}

fn check_user(socket: &OwnedFd, who: &str) -> Result<u32> {
    let other =
        rustix::net::sockopt::socket_peercred(socket).map_err(Error::system("asking who is there"))?;
    if other.uid != rustix::process::getuid() {
        let cause = format!("it runs as another user ({})", other.uid.as_raw());
        return Err(Error::Gone {
            who: who.into(),
            cause,
        });
    }
    Ok(other.pid.as_raw_nonzero().get().cast_unsigned())
}

impl Attendant {
    /// Starts this process's attendant.
    ///
    /// # Errors
    /// If there are no sockets or threads to be had.
    pub fn start() -> Result<Attendant> {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let pid = std::process::id();
        let address = format!("ringwork-{pid}-{}", COUNT.fetch_add(1, Ordering::Relaxed));
        let listener = listen(&address)?;
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
            me: Peer { pid, address },
            desk,
            wake,
            stopping,
            thread: Some(thread),
        })
    }

    /// Meets `size` processes at `rendezvous` as `rank`: returns all of them in rank order, and the first
    /// segment, which rank 0 makes by `make`.
    ///
    /// # Errors
    /// If somebody does not come in time, or the ranks do not fit together: who, and why.
    pub fn meet(
        &self,
        rendezvous: &str,
        rank: Rank,
        size: u32,
        limit: Duration,
        make: impl FnOnce() -> Result<Attached>,
    ) -> Result<(Vec<Peer>, Attached)> {
        let deadline = Instant::now() + limit;
        if rank.0 == 0 {
            self.host(rendezvous, size, limit, deadline, make)
        } else {
            self.join(rendezvous, rank, size, deadline)
        }
    }

    fn host(
        &self,
        rendezvous: &str,
        size: u32,
        limit: Duration,
        deadline: Instant,
        make: impl FnOnce() -> Result<Attached>,
    ) -> Result<(Vec<Peer>, Attached)> {
        let listener = if size > 1 { Some(listen(rendezvous)?) } else { None };
        let mut joined: Vec<Option<(Peer, Wire)>> = (0..size).map(|_| None).collect();
        while let Some(listener) = &listener
            && joined[1..].iter().any(Option::is_none)
        {
            let left = deadline.saturating_duration_since(Instant::now());
            if !poll_for(&mut [PollFd::new(listener, PollFlags::IN)], Some(left))? && left.is_zero() {
                let missing: Vec<String> = (1..size)
                    .filter(|rank| joined[*rank as usize].is_none())
                    .map(|rank| rank.to_string())
                    .collect();
                let what = format!("waiting at the rendezvous for rank {}", missing.join(", "));
                return Err(Error::Deadline {
                    what,
                    limit_ms: limit.as_millis(),
                });
            }
            let Ok(socket) = rustix::net::accept_with(listener, SocketFlags::CLOEXEC) else {
                continue;
            };
            if check_user(&socket, "a stranger").is_ok() {
                admit(
                    Wire::from_fd(socket, "a rank".into()),
                    size,
                    &mut joined,
                    deadline,
                )?;
            }
        }
        let mut peers = vec![self.me.clone()];
        peers.extend(joined.iter().flatten().map(|(peer, _)| peer.clone()));
        let segment = make()?;
        for (_, wire) in joined.iter().flatten() {
            let welcome = Welcome::Here {
                layout: segment.layout(),
                peers: peers.clone(),
            };
            wire.send(&welcome, segment.fd())?;
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
        let wire = connect(rendezvous, "rank 0", deadline)?;
        wire.send(
            &Join {
                version: VERSION,
                rank: rank.0,
                size,
                peer: self.me.clone(),
            },
            None,
        )?;
        match wire.recv(Some(deadline))? {
            Some((Welcome::Here { layout, peers }, Some(fd))) if peers.len() == size as usize => {
                Ok((peers, Attached::open(fd, layout)?))
            }
            Some((Welcome::Refused(why), _)) => Err(Error::Gone {
                who: "rank 0".into(),
                cause: format!("it refused: {why}"),
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

    /// Watches these processes from now on.
    ///
    /// # Errors
    /// If one is gone already.
    pub fn watch(&self, peers: &[Peer]) -> Result<()> {
        let mut desk = lock(&self.desk);
        for peer in peers.iter().filter(|peer| peer.pid != self.me.pid) {
            if desk.watched.iter().any(|watched| watched.pid == peer.pid) {
                continue;
            }
            let gone = || Error::Gone {
                who: format!("process {}", peer.pid),
                cause: "it ended".into(),
            };
            let pid = i32::try_from(peer.pid)
                .ok()
                .and_then(Pid::from_raw)
                .ok_or_else(gone)?;
            let pidfd = rustix::process::pidfd_open(pid, PidfdFlags::empty()).map_err(|_| gone())?;
            desk.watched.push(Watched {
                pid: peer.pid,
                pidfd,
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

    /// Lets others fetch a segment that this process made, by its nonce, until [`withdraw`](Attendant::withdraw).
    ///
    /// # Errors
    /// If it has no descriptor.
    pub fn offer(&self, segment: &Attached) -> Result<()> {
        let fd = segment.fd().and_then(|fd| fd.try_clone_to_owned().ok());
        let fd = fd.ok_or_else(|| Error::Gone {
            who: "the segment".into(),
            cause: "its descriptor is closed".into(),
        })?;
        lock(&self.desk)
            .offered
            .insert(segment.layout().nonce, (segment.layout(), fd));
        Ok(())
    }

    /// Ends an offer.
    pub fn withdraw(&self, nonce: u64) {
        lock(&self.desk).offered.remove(&nonce);
    }

    /// Fetches a segment that another process offers.
    ///
    /// # Errors
    /// If it is gone or offers no such thing.
    pub fn fetch(&self, from: &Peer, nonce: u64, limit: Duration) -> Result<Attached> {
        let who = format!("process {}", from.pid);
        let deadline = Instant::now() + limit;
        let wire = connect(&from.address, &who, deadline)?;
        wire.send(&Ask::Segment { nonce }, None)?;
        match wire.recv::<Layout>(Some(deadline))? {
            Some((layout, Some(fd))) => Attached::open(fd, layout),
            _ => Err(Error::Gone {
                who,
                cause: "it does not offer this segment".into(),
            }),
        }
    }

    /// Gathers the survivors of a broken segment around the lowest of them: each returns with the ranks that
    /// survived and a fresh segment, which the lowest makes by `make(survivors)`.
    ///
    /// # Errors
    /// If a survivor does not come in time.
    pub fn regroup(
        &self,
        nonce: u64,
        members: &[Peer],
        limit: Duration,
        make: impl Fn(u32) -> Result<Attached>,
    ) -> Result<(Vec<u32>, Attached)> {
        let deadline = Instant::now() + limit;
        let me = members.iter().position(|peer| *peer == self.me).unwrap_or(0);
        loop {
            let dead = self.dead(members);
            let alive: Vec<usize> = (0..members.len()).filter(|rank| !dead.contains(rank)).collect();
            let leader = alive.first().copied().unwrap_or(me);
            let outcome = if leader == me {
                self.lead(nonce, members, deadline, &make)
            } else {
                self.follow(nonce, &members[leader], me, deadline)
            };
            match outcome {
                // The leader died: there is another.
                Err(Error::Gone { .. }) if Instant::now() < deadline => {}
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
    ) -> Result<(Vec<u32>, Attached)> {
        loop {
            let dead = self.dead(members);
            let me = members.iter().position(|peer| *peer == self.me).unwrap_or(0);
            let others: Vec<usize> = (0..members.len())
                .filter(|rank| *rank != me && !dead.contains(rank))
                .collect();
            let mut desk = lock(&self.desk);
            let waiting = desk.regrouping.entry(nonce).or_default();
            let came = |rank: &usize| waiting.iter().any(|(other, _)| *other as usize == *rank);
            if others.iter().all(came) {
                let waiting = desk.regrouping.remove(&nonce).unwrap_or_default();
                drop(desk);
                let survivors: Vec<u32> = (0..members.len())
                    .filter(|rank| *rank == me || others.contains(rank))
                    .filter_map(|rank| u32::try_from(rank).ok())
                    .collect();
                let segment = make(u32::try_from(survivors.len()).unwrap_or(u32::MAX))?;
                for (_, wire) in &waiting {
                    // One that died meanwhile is noticed in the new segment.
                    let _ = wire.send(&(segment.layout(), survivors.clone()), segment.fd());
                }
                return Ok((survivors, segment));
            }
            let missing: Vec<String> = others
                .iter()
                .filter(|rank| !came(rank))
                .map(ToString::to_string)
                .collect();
            drop(desk);
            if Instant::now() >= deadline {
                let what = format!("regrouping: rank {} did not come", missing.join(", "));
                return Err(Error::Deadline { what, limit_ms: 0 });
            }
            std::thread::park_timeout(Duration::from_micros(500));
        }
    }

    fn follow(
        &self,
        nonce: u64,
        leader: &Peer,
        me: usize,
        deadline: Instant,
    ) -> Result<(Vec<u32>, Attached)> {
        let who = format!("process {}", leader.pid);
        let wire = connect(&leader.address, &who, Instant::now())?;
        wire.send(
            &Ask::Regroup {
                nonce,
                rank: u32::try_from(me).unwrap_or(u32::MAX),
            },
            None,
        )?;
        match wire.recv::<(Layout, Vec<u32>)>(Some(deadline))? {
            Some(((layout, survivors), Some(fd))) => Ok((survivors, Attached::open(fd, layout)?)),
            _ => Err(Error::Gone {
                who,
                cause: "it ended while regrouping".into(),
            }),
        }
    }

    /// This process, as others see it.
    #[must_use]
    pub fn me(&self) -> &Peer {
        &self.me
    }

    fn wake(&self) {
        // A full eventfd wakes as well.
        let _ = rustix::io::write(&*self.wake, &1u64.to_ne_bytes());
    }
}

impl Drop for Attendant {
    fn drop(&mut self) {
        self.stopping.store(true, Ordering::SeqCst);
        self.wake();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Takes what a process says at the rendezvous.
fn admit(wire: Wire, size: u32, joined: &mut [Option<(Peer, Wire)>], deadline: Instant) -> Result<()> {
    let Ok(Some((join, _))) = wire.recv::<Join>(Some(deadline)) else {
        return Ok(());
    };
    let refusal = if join.version != VERSION {
        Some("it is another version of ringwork".to_owned())
    } else if join.size != size {
        Some(format!("it counts {} ranks and rank 0 counts {size}", join.size))
    } else if join.rank == 0 || join.rank >= size || joined[join.rank as usize].is_some() {
        Some(format!(
            "there are two of rank {}, or fewer ranks than that",
            join.rank
        ))
    } else {
        None
    };
    match refusal {
        None => {
            let rank = join.rank as usize;
            joined[rank] = Some((join.peer, wire));
            Ok(())
        }
        Some(why) => {
            let _ = wire.send(&Welcome::Refused(why.clone()), None);
            Err(Error::Gone {
                who: format!("rank {}", join.rank),
                cause: why,
            })
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
        .and_then(|rank| u32::try_from(rank).ok());
    if let Some(rank) = rank {
        segment.raise(&Alarm {
            dead: Some(Rank(rank)),
            reason: format!("process {pid} ended"),
        });
    }
}

/// The attendant's life.
fn attend(listener: &OwnedFd, desk: &Mutex<Desk>, wake: &OwnedFd, stopping: &AtomicBool) {
    while !stopping.load(Ordering::SeqCst) {
        let watched: Vec<(u32, OwnedFd)> = lock(desk)
            .watched
            .iter()
            .filter(|watched| !watched.dead)
            .filter_map(|watched| Some((watched.pid, watched.pidfd.try_clone().ok()?)))
            .collect();
        let mut fds = vec![
            PollFd::new(listener, PollFlags::IN),
            PollFd::new(wake, PollFlags::IN),
        ];
        fds.extend(watched.iter().map(|(_, pidfd)| PollFd::new(pidfd, PollFlags::IN)));
        if !matches!(poll_for(&mut fds, None), Ok(true)) {
            continue;
        }
        let ready: Vec<bool> = fds.iter().map(|fd| !fd.revents().is_empty()).collect();
        if ready[1] {
            let _ = rustix::io::read(wake, &mut [0; 8]);
        }
        for ((pid, _), _) in watched.iter().zip(&ready[2..]).filter(|(_, ended)| **ended) {
            tell_of(desk, *pid);
        }
        if ready[0]
            && let Ok(socket) = rustix::net::accept_with(listener, SocketFlags::CLOEXEC)
            && check_user(&socket, "a stranger").is_ok()
        {
            answer(desk, Wire::from_fd(socket, "a peer".into()));
        }
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

/// Longest that a connected process may take to say what it wants.
const PATIENCE: Duration = Duration::from_secs(5);

fn answer(desk: &Mutex<Desk>, wire: Wire) {
    match wire.recv::<Ask>(Some(Instant::now() + PATIENCE)) {
        Ok(Some((Ask::Segment { nonce }, _))) => {
            let desk = lock(desk);
            // Whoever asks for something else sees the connection close (PEER-2).
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
