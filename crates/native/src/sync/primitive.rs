//! Atomics and parking: the operating system's, or loom's when the protocols are model-checked.
//!
//! Everything that synchronises is written against this module, so the code that is checked is the code
//! that ships.

#[cfg(loom)]
pub(crate) use loom::sync::atomic::{AtomicI32, AtomicU32, AtomicU64, Ordering, fence};
#[cfg(not(loom))]
pub(crate) use std::sync::atomic::{AtomicI32, AtomicU32, AtomicU64, Ordering, fence};

use std::time::Duration;

/// Whether [`heavy_barrier`] reaches this process. Checked and registered once.
#[cfg(not(loom))]
#[inline]
fn barriers_reach() -> bool {
    use rustix::thread::{MembarrierCommand, membarrier};
    static REACH: std::sync::OnceLock<bool> = std::sync::OnceLock::new();
    *REACH.get_or_init(|| !cfg!(miri) && membarrier(MembarrierCommand::RegisterGlobalExpedited).is_ok())
}

/// Registers this process with the kernel for [`heavy_barrier`] now, and not when it first waits or wakes: that takes ten
/// milliseconds once the process has several threads, and no time before.
pub(crate) fn expect_barriers() {
    #[cfg(not(loom))]
    barriers_reach();
}

/// Keeps a store before it and a load after it in order, for processes that call [`heavy_barrier`].
///
/// The cheap half of an asymmetric pair. A full fence waits until the core that holds the stored line has given it
/// up, which between processors is the price of the whole message. The expensive half is left to the process that is
/// about to sleep anyway.
#[inline(always)]
pub(crate) fn light_barrier() {
    #[cfg(not(loom))]
    if barriers_reach() {
        std::sync::atomic::compiler_fence(Ordering::SeqCst);
        return;
    }
    fence(Ordering::SeqCst);
}

/// Keeps a store before it and a load after it in order, and turns every [`light_barrier`] of every process into a
/// full one: either the earlier store is visible here, or the later load sees what was stored here. Returns whether
/// the kernel supports it. If not, a sleeper must not rely on being woken, and polls.
///
/// Returns whether it could. If not, a sleeper must not count on being woken, and looks up by itself.
pub(crate) fn heavy_barrier() -> bool {
    fence(Ordering::SeqCst);
    #[cfg(not(loom))]
    {
        use rustix::thread::{MembarrierCommand, membarrier};
        barriers_reach() && membarrier(MembarrierCommand::GlobalExpedited).is_ok()
    }
    #[cfg(loom)]
    true
}

/// A place to sleep on a word until it changes.
#[derive(Debug, Default)]
#[cfg_attr(not(loom), repr(transparent))]
pub(crate) struct Futex {
    word: AtomicU32,
    /// Stands in for the kernel's queue of sleepers.
    #[cfg(loom)]
    queue: (loom::sync::Mutex<()>, loom::sync::Condvar),
}

impl Futex {
    /// The word now.
    pub(crate) fn ticket(&self) -> u32 {
        self.word.load(Ordering::SeqCst)
    }

    /// Changes the word and wakes every sleeper.
    pub(crate) fn unpark_all(&self) {
        self.word.fetch_add(1, Ordering::SeqCst);
        self.wake_all();
    }
}

#[cfg(not(loom))]
impl Futex {
    /// Sleeps unless the word is no longer `ticket`. May wake for no reason.
    pub(crate) fn park(&self, ticket: u32, at_most: Duration) {
        use rustix::thread::futex;
        let timeout = futex::Timespec {
            tv_sec: i64::try_from(at_most.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: at_most.subsec_nanos().into(),
        };
        // Every outcome (woken, changed already, timed out, interrupted) means the same: look again.
        // The futex is not private: the waker may be another process.
        let _ = futex::wait(&self.word, futex::Flags::empty(), ticket, Some(&timeout));
    }

    fn wake_all(&self) {
        use rustix::thread::futex;
        // Waking cannot fail for a mapped, aligned word.
        let _ = futex::wake(&self.word, futex::Flags::empty(), i32::MAX as u32);
    }
}

/// As the kernel does it: the word is compared, and sleepers are woken, under the lock of the queue.
/// There is no time in a model, so a wake-up that is lost is a deadlock.
#[cfg(loom)]
impl Futex {
    pub(crate) fn park(&self, ticket: u32, _at_most: Duration) {
        let (lock, sleepers) = &self.queue;
        let held = lock.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        if self.word.load(Ordering::SeqCst) == ticket {
            drop(sleepers.wait(held));
        }
    }

    fn wake_all(&self) {
        let (lock, sleepers) = &self.queue;
        let _held = lock.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        sleepers.notify_all();
    }
}
