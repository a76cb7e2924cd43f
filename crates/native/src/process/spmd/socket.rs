//! Sockets with an abstract address, between processes of one user (PEER-1).

use crate::error::{Error, Result};
use crate::process::bootstrap_socket::Wire;
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use std::hash::{BuildHasher, RandomState};
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

fn unix_socket(flags: SocketFlags) -> Result<OwnedFd> {
    let (family, kind) = (AddressFamily::UNIX, SocketType::SEQPACKET);
    rustix::net::socket_with(family, kind, SocketFlags::CLOEXEC | flags, None)
        .map_err(Error::system("creating a socket"))
}

fn abstract_address(name: &str) -> Result<SocketAddrUnix> {
    SocketAddrUnix::new_abstract_name(name.as_bytes()).map_err(Error::system(format!("the address `{name}`")))
}

fn bind(socket: &OwnedFd, name: &str) -> Result<rustix::io::Result<()>> {
    Ok(rustix::net::bind(socket, &abstract_address(name)?))
}

/// How many names are tried. Random ones have 64 random bits, so that a second one is hardly ever needed. Those of a
/// rendezvous can be guessed if the job's variables can: any user may then hold some of them.
const MAX_NAMES: u32 = 16;

/// The names of a rendezvous, the same for every rank.
pub(super) fn names_of(rendezvous: &str) -> impl Iterator<Item = String> {
    (0..MAX_NAMES).map(move |number| match number {
        0 => rendezvous.to_owned(),
        more => format!("{rendezvous}-{more}"),
    })
}

/// Listens at the first name of a rendezvous that is free.
pub(super) fn listen_at(rendezvous: &str) -> Result<OwnedFd> {
    listen_at_one_of(names_of(rendezvous)).map(|(_, socket)| socket)
}

/// A name that no other process can guess, and so cannot take before this one does.
fn random_name() -> String {
    // `RandomState` is keyed with random bits of the operating system. Its keys differ by one from call to call in
    // a thread, which SipHash turns into unrelated values.
    let random = RandomState::new().hash_one(std::process::id());
    format!("ringwork-{random:016x}")
}

/// Listens at a random name: returns it with the socket.
pub(super) fn listen_anywhere() -> Result<(String, OwnedFd)> {
    listen_at_one_of((0..MAX_NAMES).map(|_| random_name()))
}

/// Listens at the first of these names that is free.
fn listen_at_one_of(names: impl Iterator<Item = String>) -> Result<(String, OwnedFd)> {
    let socket = unix_socket(SocketFlags::empty())?;
    let mut tried = 0;
    for name in names {
        match bind(&socket, &name)? {
            Ok(()) => {
                rustix::net::listen(&socket, 64).map_err(Error::system("listening"))?;
                return Ok((name, socket));
            }
            Err(Errno::ADDRINUSE) => tried += 1,
            Err(error) => return Err(Error::system(format!("listening at `{name}`"))(error)),
        }
    }
    let doing = format!("listening at one of {tried} socket names");
    Err(Error::system(doing)(Errno::ADDRINUSE))
}

/// Whether the process to connect to may still have to begin to listen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Listens {
    /// It has told its address, so it listens, or it is gone.
    Already,
    /// It may begin to listen any time until the deadline.
    Later,
}

/// Connects to a process of this user (PEER-1) that listens at one of these names, before the deadline. Names that
/// another user holds are passed over if there are several.
///
/// The socket does not block while it connects: if the other process is stopped and its queue of connections is full,
/// a blocking `connect` would never return. The kernel then answers EAGAIN, and this tries again.
pub(super) fn connect(names: &[String], who: &str, listens: Listens, deadline: Instant) -> Result<Wire> {
    let addresses: Vec<_> = names
        .iter()
        .map(|name| abstract_address(name))
        .collect::<Result<_>>()?;
    let begun = Instant::now();
    let mut pause = Duration::from_micros(200);
    loop {
        let (mut later, mut strangers) = (None, 0);
        for address in &addresses {
            let socket = unix_socket(SocketFlags::NONBLOCK)?;
            let error = match rustix::net::connect(&socket, address) {
                Ok(()) => match check_user(&socket, who) {
                    Err(stranger) if addresses.len() == 1 => return Err(stranger),
                    Err(_) => {
                        strangers += 1;
                        continue;
                    }
                    Ok(_) => {
                        rustix::io::ioctl_fionbio(&socket, false)
                            .map_err(Error::system("preparing a socket"))?;
                        return Ok(Wire::from_fd(socket, who.into()));
                    }
                },
                Err(error) => error,
            };
            later = later.or(match error {
                Errno::AGAIN => Some("its queue of connections is full"),
                Errno::CONNREFUSED | Errno::NOENT if listens == Listens::Later => None,
                _ => {
                    return Err(Error::Gone {
                        who: who.into(),
                        cause: format!("it does not answer ({error})"),
                    });
                }
            });
        }
        if Instant::now() >= deadline {
            let later = later.unwrap_or("it does not listen");
            let taken = match strangers {
                0 => String::new(),
                some => format!(
                    "; {some} of its {} socket names belong to another user",
                    addresses.len()
                ),
            };
            return Err(Error::Deadline {
                what: format!("connecting to {who} ({later}; it has not started, or is stopped{taken})"),
                limit_ms: deadline.saturating_duration_since(begun).as_millis(),
            });
        }
        std::thread::park_timeout(pause);
        pause = (pause * 2).min(Duration::from_millis(5));
    }
}

/// Takes a connection. `None` if it has gone meanwhile.
///
/// # Errors
/// If the system has no descriptor or memory for it: to try again at once would fail again.
pub(super) fn accept(listener: &OwnedFd) -> Result<Option<OwnedFd>> {
    match rustix::net::accept_with(listener, SocketFlags::CLOEXEC) {
        Ok(socket) => Ok(Some(socket)),
        Err(Errno::INTR | Errno::AGAIN | Errno::CONNABORTED | Errno::PERM | Errno::PROTO) => Ok(None),
        Err(error @ (Errno::MFILE | Errno::NFILE)) => {
            let doing = "accepting the connection of another rank (raise `ulimit -n`)";
            Err(Error::system(doing)(error))
        }
        Err(error) => Err(Error::system("accepting the connection of another rank")(error)),
    }
}

pub(super) fn check_user(socket: &OwnedFd, who: &str) -> Result<u32> {
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

#[cfg(all(test, not(miri)))]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_is_taken_is_passed_over() {
        let taken = random_name();
        let _squatter = listen_at(&taken).unwrap();
        let free = random_name();
        let names = [taken.clone(), free.clone()];
        assert_eq!(listen_at_one_of(names.into_iter()).unwrap().0, free);
        let error = listen_at_one_of([taken].into_iter()).unwrap_err().to_string();
        assert!(error.contains("listening at one of 1 socket names"), "{error}");
    }

    #[test]
    fn names_cannot_be_guessed_from_each_other() {
        let names: std::collections::BTreeSet<_> = (0..100).map(|_| random_name()).collect();
        assert_eq!(names.len(), 100);
        let pid = std::process::id().to_string();
        assert!(names.iter().all(|name| !name.contains(&format!("-{pid}-"))));
    }

    #[test]
    fn a_full_queue_of_connections_ends_at_the_deadline() {
        let (name, _never_accepts) = listen_anywhere().unwrap();
        let address = abstract_address(&name).unwrap();
        let mut waiting = Vec::new();
        loop {
            let socket = unix_socket(SocketFlags::NONBLOCK).unwrap();
            if rustix::net::connect(&socket, &address).is_err() {
                break;
            }
            waiting.push(socket);
        }
        let deadline = Instant::now() + Duration::from_millis(20);
        let error = connect(&[name], "rank 0", Listens::Later, deadline).unwrap_err();
        assert!(matches!(error, Error::Deadline { limit_ms: 10.., .. }), "{error}");
        assert!(error.to_string().contains("rank 0"), "{error}");
    }

    #[test]
    fn ranks_find_each_other_at_any_name_of_their_rendezvous() {
        let rendezvous = random_name();
        let names: Vec<_> = names_of(&rendezvous).collect();
        // Bound by somebody who does not listen there.
        let squatter = unix_socket(SocketFlags::empty()).unwrap();
        bind(&squatter, &names[0]).unwrap().unwrap();
        let _listener = listen_at(&rendezvous).unwrap();
        let deadline = Instant::now() + Duration::from_secs(10);
        connect(&names, "rank 0", Listens::Later, deadline).unwrap();
    }

    #[test]
    fn a_rank_that_does_not_listen_yet_is_not_called_gone() {
        let error = connect(&[random_name()], "rank 0", Listens::Later, Instant::now()).unwrap_err();
        assert!(matches!(error, Error::Deadline { .. }), "{error}");
        let error = connect(&[random_name()], "rank 0", Listens::Already, Instant::now()).unwrap_err();
        assert!(matches!(error, Error::Gone { .. }), "{error}");
    }
}
