//! Atomics and parking: the operating system's, or loom's when the protocols are model-checked.
//!
//! Everything that synchronises is written against this module, so the code that is checked is the code
//! that ships.

#[cfg(loom)]
pub(crate) use loom::sync::atomic::{AtomicI32, AtomicU32, AtomicU64, Ordering};
#[cfg(not(loom))]
pub(crate) use std::sync::atomic::{AtomicI32, AtomicU32, AtomicU64, Ordering};

use std::time::Duration;

/// Keeps a store before it and a load after it in order.
///
/// The accesses around it are sequentially consistent already, which is enough on hardware and in the
/// language; loom treats such accesses as acquire-release only, so it gets a fence.
#[inline(always)]
pub(crate) fn store_load_barrier() {
    #[cfg(loom)]
    loom::sync::atomic::fence(Ordering::SeqCst);
}

/// A place to sleep on a word until it changes. Under loom it holds what stands in for the kernel.
#[derive(Debug, Default)]
#[repr(transparent)]
pub(crate) struct Futex {
    #[cfg(not(loom))]
    word: AtomicU32,
    #[cfg(loom)]
    queue: (loom::sync::Mutex<u32>, loom::sync::Condvar),
}

#[cfg(not(loom))]
impl Futex {
    /// The word now.
    pub(crate) fn ticket(&self) -> u32 {
        self.word.load(Ordering::SeqCst)
    }

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

    /// Changes the word and wakes everybody who sleeps on it.
    pub(crate) fn unpark_all(&self) {
        use rustix::thread::futex;
        self.word.fetch_add(1, Ordering::SeqCst);
        // Waking cannot fail for a mapped, aligned word.
        let _ = futex::wake(&self.word, futex::Flags::empty(), i32::MAX as u32);
    }
}

#[cfg(loom)]
impl Futex {
    pub(crate) fn ticket(&self) -> u32 {
        *self
            .queue
            .0
            .lock()
            .unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    pub(crate) fn park(&self, ticket: u32, _at_most: Duration) {
        let mut word = self
            .queue
            .0
            .lock()
            .unwrap_or_else(|poisoned| poisoned.into_inner());
        while *word == ticket {
            word = self
                .queue
                .1
                .wait(word)
                .unwrap_or_else(|poisoned| poisoned.into_inner());
        }
    }

    pub(crate) fn unpark_all(&self) {
        *self
            .queue
            .0
            .lock()
            .unwrap_or_else(|poisoned| poisoned.into_inner()) += 1;
        self.queue.1.notify_all();
    }
}
