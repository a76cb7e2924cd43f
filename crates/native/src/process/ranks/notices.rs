//! Notices: what ranks that wait for long tell the process that started them, which tells its user.
//!
//! A socket that the ranks inherit, one packet for each notice. Nobody waits for it: if it is full, a notice is lost.

use super::{NOTICES_VARIABLE, RANK_VARIABLE};
use crate::core::LongWaitObserver;
use crate::error::{Error, Result};
use ringwork_isa::Waited;
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

/// The longest notice.
const MAX_BYTES: usize = 1024;

/// The launcher's end, and the one that ranks inherit.
pub(super) fn channel() -> Result<(OwnedFd, OwnedFd)> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    rustix::net::socketpair(AddressFamily::UNIX, SocketType::DGRAM, flags, None)
        .map_err(Error::system("creating a socket for notices"))
}

/// The next notice. Ranks are not trusted to send text that a terminal should see.
pub(super) fn next(from: &OwnedFd) -> Option<String> {
    let mut bytes = [0; MAX_BYTES];
    let (len, _) = rustix::net::recv(from, &mut bytes, RecvFlags::DONTWAIT).ok()?;
    let text = String::from_utf8_lossy(&bytes[..len]);
    Some(text.chars().filter(|char| !char.is_control()).collect())
}

/// A rank's end.
#[derive(Debug)]
pub(crate) struct ToLauncher {
    socket: OwnedFd,
    rank: String,
}

/// Who is told of long waits of this process: the launcher that started it as a rank, if one did that listens.
#[must_use]
pub fn launcher() -> Option<Arc<dyn LongWaitObserver>> {
    ToLauncher::of_this_process().map(|launcher| Arc::new(launcher) as Arc<dyn LongWaitObserver>)
}

impl ToLauncher {
    pub(crate) fn of_this_process() -> Option<ToLauncher> {
        let rank = std::env::var(RANK_VARIABLE).ok()?;
        let number: i32 = std::env::var(NOTICES_VARIABLE).ok()?.parse().ok()?;
        if number < 0 {
            return None;
        }
        // SAFETY: it is not -1, and is used for three calls that fail if it is not open. Whoever started this process left it
        // open, and nothing here closes it.
        let inherited = unsafe { BorrowedFd::borrow_raw(number) };
        // Another program between the launcher and this one may have closed it, and opened something else.
        let kind = rustix::net::sockopt::socket_type(inherited).ok()?;
        let owner = rustix::net::sockopt::socket_peercred(inherited).ok();
        let same_user = owner.is_none_or(|owner| owner.uid == rustix::process::getuid());
        if kind != SocketType::DGRAM || !same_user {
            return None;
        }
        let socket = rustix::io::fcntl_dupfd_cloexec(inherited.as_fd(), 3).ok()?;
        Some(ToLauncher { socket, rank })
    }

    /// Says that this rank has waited for so long, and what for.
    pub(crate) fn say(&self, since: Duration, what: &str) {
        let text = format!("rank {} has waited {} s{what}", self.rank, since.as_secs());
        let text = crate::segment::truncated(&text, MAX_BYTES);
        // Nobody may be there any more, or have time.
        let _ = rustix::net::send(
            &self.socket,
            text.as_bytes(),
            SendFlags::DONTWAIT | SendFlags::NOSIGNAL,
        );
    }
}

impl LongWaitObserver for ToLauncher {
    fn waits_long(&self, since: Duration, waited: &Waited) {
        self.say(since, &format!(": {waited}"));
    }
}
