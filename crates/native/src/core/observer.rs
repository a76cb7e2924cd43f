//! The observer of waits, for callers that must know that a core waits: an interpreter that releases its lock, a
//! program that handles signals.

use ringwork_isa::Waited;
use std::fmt::Debug;
use std::time::Duration;

/// Is called for long waits, on the thread that waits. A wait first polls about 256 times, which takes a few
/// microseconds; only then is the observer called.
pub trait WaitObserver: Debug + Send + Sync {
    /// A wait begins to take long. Called for each such wait, also within the same call.
    fn waits(&self);

    /// Whether to give up waiting. Asked before the core sleeps, after a signal handler of the process has run on
    /// this thread, and at least every 100 ms. If so, the domain is aborted, so that its other ranks do not wait for
    /// this one.
    fn is_interrupted(&self) -> bool;
}

/// Is called for waits that last for seconds, on the thread that waits, so that a program can inform its user before
/// the limit.
pub trait LongWaitObserver: Debug + Send + Sync {
    /// A wait has lasted for `since` and goes on. Called once for each wait.
    fn waits_long(&self, since: Duration, waited: &Waited);
}

/// How long a wait lasts before it is reported.
pub(crate) const NOTICE: Duration = Duration::from_secs(3);

/// The longest sleep of a core with an observer.
pub(super) const LOOK_UP: Duration = Duration::from_millis(100);
