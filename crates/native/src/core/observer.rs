//! Whoever must know that a core waits: an interpreter that lends its lock, a program that takes signals.

use ringwork_isa::Waited;
use std::fmt::Debug;
use std::time::Duration;

/// Is told of waits that last, on the thread that waits.
///
/// A wait first looks some 256 times, which takes a few microseconds; only if that was in vain is the observer told.
pub trait WaitObserver: Debug + Send + Sync {
    /// A wait begins to last. It is told again for every such wait, also of the same call.
    fn waits(&self);

    /// Whether to give up waiting: asked before the core sleeps, when a signal handler of the process has run on this thread,
    /// and at least every 100 ms. The domain is then aborted: its other ranks must not wait for this one.
    fn is_interrupted(&self) -> bool;
}

/// Is told of waits that last for seconds, on the thread that waits: for programs that tell their user before the limit.
pub trait LongWaitObserver: Debug + Send + Sync {
    /// A wait has lasted for so long and goes on. Told once for each wait.
    fn waits_long(&self, since: Duration, waited: &Waited);
}

/// How long a wait lasts before it is told of.
pub(crate) const NOTICE: Duration = Duration::from_secs(3);

/// The longest sleep of a core that is observed.
pub(super) const LOOK_UP: Duration = Duration::from_millis(100);
