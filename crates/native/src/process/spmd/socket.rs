//! Sockets with an abstract address, between processes of one user (PEER-1).

use crate::error::{Error, Result};
use crate::process::bootstrap_socket::Wire;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

fn unix_socket() -> Result<OwnedFd> {
    let (family, kind) = (AddressFamily::UNIX, SocketType::SEQPACKET);
    rustix::net::socket_with(family, kind, SocketFlags::CLOEXEC, None)
        .map_err(Error::system("creating a socket"))
}

fn abstract_address(name: &str) -> Result<SocketAddrUnix> {
    SocketAddrUnix::new_abstract_name(name.as_bytes()).map_err(Error::system(format!("the address `{name}`")))
}

pub(super) fn listen(name: &str) -> Result<OwnedFd> {
    let socket = unix_socket()?;
    rustix::net::bind(&socket, &abstract_address(name)?)
        .map_err(Error::system(format!("listening at `{name}`")))?;
    rustix::net::listen(&socket, 64).map_err(Error::system("listening"))?;
    Ok(socket)
}

/// Connects to an address of this user's (PEER-1), trying until the deadline: the other may not be there yet.
pub(super) fn connect(name: &str, who: &str, deadline: Instant) -> Result<Wire> {
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
