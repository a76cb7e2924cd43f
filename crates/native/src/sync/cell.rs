//! The signal cell: a counter in shared memory that can be waited for.
//!
//! A cell is the only thing that ringwork ever waits on: signals of kernels, the ends of a mailbox ring
//! and the host's bell are all cells. A waiter spins for a moment, then yields, then sleeps: `README.md` in this
//! folder describes the states and the race between them.
//!
//! # Invariants
//! - **CELL-1 (publication).** Data that was written before a change of the value is visible to every process that
//!   has seen the new value.
//! - **CELL-2 (no lost wake-up).** A change is either seen by a waiter before it sleeps, or wakes it. The waiter
//!   counts itself in `parked`, then reads the value again; the writer changes the value, then reads `parked`. One of
//!   the two must see the other.
//! - **CELL-3 (every wait ends).** A waiter checks its exits between counting itself and sleeping. An exit is raised
//!   first and the cell roused afterwards, so exits are noticed under the same rule as CELL-2.
//! - **CELL-4 (notes).** The second word of a note is never older than the first. The first word identifies the call,
//!   so a reader that finds the first word of a call has the second one too.

pub use super::backoff::Patience;

use super::primitive::{AtomicI32, AtomicU32, AtomicU64, Futex, Ordering, heavy_barrier, light_barrier};
use std::time::{Duration, Instant};

/// A counter that can be waited for. All zero is a valid, fresh cell.
#[derive(Debug, Default)]
#[repr(C, align(128))]
pub struct Cell {
    /// The counter: `notify` changes it and `wait` compares it.
    value: AtomicI32,
    /// Two words about the call of the last change, for even and odd calls. In the line of the value, so that a reader
    /// of the value has them without another cache miss.
    notes: [[AtomicU64; 2]; 2],
    _rest_of_line: [u64; 3],
    /// How many waiters are asleep or about to be. This field and the next ones are in a second line: the first line is
    /// in the cache of the waiter that looked last, and to fetch it back would cost the writer as much as a message.
    parked: AtomicU32,
    /// The word they sleep on. Every wake-up changes it, so a wake-up just before the sleep is not lost.
    futex: Futex,
    /// The value again, for its writer.
    written: AtomicI32,
}

#[cfg(not(loom))]
const _: () = assert!(std::mem::size_of::<Cell>() as u64 == ringwork_isa::SIGNAL_STRIDE_BYTES);

/// When the exit is checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Looking {
    /// At each poll: must be quick.
    Awake,
    /// Once before every sleep.
    BeforeSleep,
}

/// When a wait ends in any case.
#[derive(Clone, Copy)]
enum Until {
    /// At this time, if any.
    At(Option<Instant>),
    /// After sleeping for this long.
    Slept(Duration),
}

/// Why a wait ended without being satisfied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended<E> {
    /// An exit was raised.
    Exit(E),
    /// The deadline passed.
    Deadline,
}

impl Cell {
    /// The value now. Acquires (CELL-1).
    #[inline]
    pub fn load(&self) -> i32 {
        // SYNC: pairs with the release in `add` and `set`.
        self.value.load(Ordering::Acquire)
    }

    /// Adds, wrapping, and wakes every sleeper. Releases (CELL-1). Any number of writers.
    #[inline]
    pub fn add(&self, amount: i32) {
        self.add_then(amount, || {});
    }

    /// The same, with `meanwhile` between the change and the wake-up, which can take this core away. Waiters that do not
    /// sleep see the new value meanwhile.
    #[inline]
    pub fn add_then(&self, amount: i32, meanwhile: impl FnOnce()) {
        // SYNC: pairs with the acquire in `load` (CELL-1), and with `parked` in `sleep` (CELL-2).
        let before = self.value.fetch_add(amount, Ordering::AcqRel);
        self.written.store(before.wrapping_add(amount), Ordering::Relaxed);
        meanwhile();
        self.rouse();
    }

    /// Stores and wakes every sleeper. Releases (CELL-1). For cells with one writer.
    #[inline]
    pub fn set(&self, value: i32) {
        // SYNC: pairs with the acquire in `load` (CELL-1); `rouse` orders it before `parked` (CELL-2).
        self.value.store(value, Ordering::Release);
        self.written.store(value, Ordering::Relaxed);
        self.rouse();
    }

    /// The value that its writer has last stored. For cells with one writer, and for that writer only.
    #[inline]
    pub fn written(&self) -> i32 {
        self.written.load(Ordering::Relaxed)
    }

    /// Stores without waking anybody, for a value that is polled and never waited for. One writer.
    #[inline]
    pub fn mark(&self, value: u32) {
        // SYNC: pairs with the acquire in `load` (CELL-1).
        self.value.store(value.cast_signed(), Ordering::Release);
    }

    /// Writes a note for call `sequence`, to be published by the next change of the value. One writer.
    ///
    /// A reader that comes while it is being written finds a second word that is at least as new as the first
    /// (CELL-4): the first is written last.
    #[inline]
    pub fn note(&self, sequence: u32, words: [u64; 2]) {
        let [first, second] = &self.notes[sequence as usize & 1];
        second.store(words[1], Ordering::Relaxed);
        // SYNC: pairs with the load in `noted` (CELL-4).
        first.store(words[0], Ordering::Release);
    }

    /// The note for call `sequence`, or for another of the same parity.
    #[inline]
    pub fn noted(&self, sequence: u32) -> [u64; 2] {
        let [first, second] = &self.notes[sequence as usize & 1];
        // SYNC: pairs with the store in `note` (CELL-4).
        [first.load(Ordering::Acquire), second.load(Ordering::Relaxed)]
    }

    /// Makes every waiter look again, at the value and at its exits.
    #[inline]
    pub fn rouse(&self) {
        // SYNC: what was changed before comes before the look at `parked`, for the sleeper that has passed its
        // heavy barrier (CELL-2, CELL-3).
        light_barrier();
        if self.parked.load(Ordering::Relaxed) != 0 {
            self.futex.unpark_all();
        }
    }

    /// Back to a fresh cell. Only while nobody waits and nobody notifies.
    pub fn reset(&self) {
        self.value.store(0, Ordering::SeqCst);
        self.written.store(0, Ordering::SeqCst);
    }

    /// Waits until `satisfied(value)`, and returns the value.
    ///
    /// `exit` is asked whether to give up. Code that changes its answer must call [`rouse`](Cell::rouse)
    /// afterwards. `deadline` bounds the wait in any case.
    ///
    /// # Errors
    /// [`Ended`]: the exit or the deadline that ended the wait.
    #[inline]
    pub fn wait<E>(
        &self,
        patience: Patience,
        deadline: Option<Instant>,
        satisfied: impl Fn(i32) -> bool,
        exit: impl Fn(Looking) -> Option<E>,
    ) -> Result<i32, Ended<E>> {
        let value = self.load();
        if satisfied(value) {
            return Ok(value);
        }
        self.wait_long(patience, Until::At(deadline), &satisfied, &exit)
    }

    /// [`wait`](Cell::wait) that ends when it has slept for `limit`: most waits end before they sleep, and those need no clock.
    ///
    /// # Errors
    /// As [`wait`](Cell::wait).
    #[inline]
    pub fn wait_within<E>(
        &self,
        patience: Patience,
        limit: Duration,
        satisfied: impl Fn(i32) -> bool,
        exit: impl Fn(Looking) -> Option<E>,
    ) -> Result<i32, Ended<E>> {
        self.wait_long(patience, Until::Slept(limit), &satisfied, &exit)
    }

    #[cold]
    fn wait_long<E>(
        &self,
        patience: Patience,
        until: Until,
        satisfied: &dyn Fn(i32) -> bool,
        exit: &dyn Fn(Looking) -> Option<E>,
    ) -> Result<i32, Ended<E>> {
        let look = |looking| {
            let now = || Some(self.load()).filter(|value| satisfied(*value)).map(Ok);
            now().or_else(|| {
                let why = exit(looking)?;
                // The value may have changed between the two looks: a rank that leaves notifies before it leaves.
                now().or(Some(Err(Ended::Exit(why))))
            })
        };
        if let Some(end) = patience.spin_and_yield(|| look(Looking::Awake)) {
            return end;
        }
        self.sleep(until, &|| look(Looking::BeforeSleep))
    }

    fn sleep<E>(
        &self,
        until: Until,
        look: &dyn Fn() -> Option<Result<i32, Ended<E>>>,
    ) -> Result<i32, Ended<E>> {
        let deadline = match until {
            Until::At(deadline) => deadline,
            Until::Slept(limit) => Instant::now().checked_add(limit),
        };
        self.parked.fetch_add(1, Ordering::SeqCst);
        // SYNC: pairs with the light barrier in `rouse`. From here on every change is seen by `look`, or its
        // writer sees `parked` and changes the ticket (CELL-2, CELL-3).
        let certain = heavy_barrier();
        let longest = if certain { LONGEST_SLEEP } else { UNCERTAIN_SLEEP };
        let end = loop {
            let ticket = self.futex.ticket();
            if let Some(end) = look() {
                break end;
            }
            let at_most = match deadline {
                None => longest,
                Some(deadline) => match deadline.checked_duration_since(Instant::now()) {
                    None => break Err(Ended::Deadline),
                    Some(left) => left.min(longest),
                },
            };
            self.futex.park(ticket, at_most);
        };
        self.parked.fetch_sub(1, Ordering::SeqCst);
        end
    }
}

/// A sleeper wakes at least this often. Nothing depends on it; it limits the cost of a bug in this module.
const LONGEST_SLEEP: Duration = Duration::from_secs(60);
/// The longest sleep where the kernel cannot guarantee the wake-up.
const UNCERTAIN_SLEEP: Duration = Duration::from_millis(1);

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::sync::atomic::AtomicBool;

    const IMPATIENT: Patience = Patience {
        spin: Duration::ZERO,
        yields: 0,
    };

    #[test]
    fn a_waiter_sees_what_was_written_before_the_change() {
        let shared = Arc::new((Cell::default(), AtomicI32::new(0)));
        let other = shared.clone();
        let waiter = std::thread::spawn(move || {
            other
                .0
                .wait(IMPATIENT, None, |value| value >= 3, |_| None::<()>)
                .unwrap();
            other.1.load(Ordering::Relaxed)
        });
        shared.1.store(7, Ordering::Relaxed);
        for _ in 0..3 {
            shared.0.add(1);
        }
        assert_eq!(waiter.join().unwrap(), 7);
    }

    #[test]
    fn a_raised_exit_ends_a_sleep() {
        let shared = Arc::new((Cell::default(), AtomicBool::new(false)));
        let other = shared.clone();
        let waiter = std::thread::spawn(move || {
            let exit = |_| other.1.load(Ordering::SeqCst).then_some("stop");
            other.0.wait(IMPATIENT, None, |value| value > 0, exit)
        });
        shared.1.store(true, Ordering::SeqCst);
        shared.0.rouse();
        assert_eq!(waiter.join().unwrap(), Err(Ended::Exit("stop")));
    }

    #[test]
    fn a_deadline_ends_a_sleep() {
        let cell = Cell::default();
        let soon = Instant::now() + Duration::from_millis(5);
        let ended = cell.wait(IMPATIENT, Some(soon), |value| value > 0, |_| None::<()>);
        assert_eq!(ended, Err(Ended::Deadline));
        assert!(Instant::now() >= soon);
    }
}
