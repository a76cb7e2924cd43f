//! The signal cell: a counter in shared memory that can be waited for.
//!
//! A cell is the only thing that ringwork ever waits on: signals of kernels, the ends of a mailbox ring
//! and the host's bell are all cells. Waiting is polite: spin for a moment, then yield, then sleep.
//!
//! # Invariants
//! - **CELL-1 (publication).** What was written before a change of the value is visible to whoever saw
//!   the new value.
//! - **CELL-2 (no lost wake-up).** A change is either seen by a waiter before it sleeps, or wakes it.
//!   The waiter says that it is about to sleep, then looks again; the writer changes the value, then
//!   looks for sleepers. One of the two must see the other.
//! - **CELL-3 (every wait ends).** Exits are looked at between saying and sleeping, and whoever raises
//!   an exit rouses the cell afterwards, so they are noticed under the same rule as CELL-2.
//! - **CELL-4 (notes).** The second word of a note is never older than the first. The first tells calls apart, so
//!   whoever finds the one it looks for has all of it.

use super::sync::{AtomicI32, AtomicU32, AtomicU64, Futex, Ordering, heavy_barrier, light_barrier};
use std::time::{Duration, Instant};

/// A counter that can be waited for. All zero is a valid, fresh cell.
#[derive(Debug, Default)]
#[repr(C, align(128))]
pub struct Cell {
    /// What `notify` changes and `wait` compares.
    value: AtomicI32,
    /// What the last change was about, for even and odd calls: in the line of the value, so that whoever
    /// reads the one has the other.
    notes: [[AtomicU64; 2]; 2],
    _rest_of_line: [u64; 3],
    /// How many waiters are asleep or about to be. From here on in a line of its own: the value's is in the cache of
    /// whoever looked last, and a writer that reads there has to fetch it back, which costs as much as a message.
    parked: AtomicU32,
    /// What they sleep on: changed by every wake-up, so that no wake-up comes too early to count.
    futex: Futex,
    /// The value again, for its writer.
    written: AtomicI32,
}

#[cfg(not(loom))]
const _: () = assert!(std::mem::size_of::<Cell>() as u64 == ringwork_isa::SIGNAL_STRIDE_BYTES);

/// A core that was given away for longer went to programs that nobody here waits for: whoever sleeps gets it back sooner.
#[cfg(not(loom))]
const LONGEST_YIELDING: Duration = Duration::from_millis(1);

/// How long to look before sleeping.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Patience {
    /// Look again and again for this long; right when every rank has a core of its own.
    pub spin: Duration,
    /// Then give the core away this many times, looking in between.
    pub yields: u32,
}

impl Patience {
    /// For `runners` processes that share `cores` cores.
    ///
    /// Waking a sleeper on another core costs tens of microseconds, so where cores are free it pays to
    /// spin that long; where they are not, the one that is waited for needs the core.
    #[must_use]
    pub fn for_sharing(runners: usize, cores: usize) -> Patience {
        if runners <= cores {
            Patience {
                spin: Duration::from_micros(20),
                yields: 4,
            }
        } else {
            Patience {
                spin: Duration::ZERO,
                yields: 32,
            }
        }
    }
}

/// When an exit is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Looking {
    /// Again and again: be quick.
    Awake,
    /// Once before every sleep.
    BeforeSleep,
}

/// When a wait ends that nothing else has ended.
#[derive(Clone, Copy)]
enum Until {
    /// At a time, if at all.
    At(Option<Instant>),
    /// When it has slept for so long.
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

    /// Adds, wrapping, and wakes whoever waits. Releases (CELL-1). Any number of writers.
    #[inline]
    pub fn add(&self, amount: i32) {
        self.add_then(amount, || {});
    }

    /// The same, and something before whoever sleeps is woken, which can take this core away. Those who do not sleep
    /// see the new value meanwhile.
    #[inline]
    pub fn add_then(&self, amount: i32, meanwhile: impl FnOnce()) {
        // SYNC: pairs with the acquire in `load` (CELL-1), and with `parked` in `sleep` (CELL-2).
        let before = self.value.fetch_add(amount, Ordering::AcqRel);
        self.written.store(before.wrapping_add(amount), Ordering::Relaxed);
        meanwhile();
        self.rouse();
    }

    /// Stores and wakes whoever waits. Releases (CELL-1). For cells with one writer.
    #[inline]
    pub fn set(&self, value: i32) {
        // SYNC: pairs with the acquire in `load` (CELL-1); `rouse` orders it before `parked` (CELL-2).
        self.value.store(value, Ordering::Release);
        self.written.store(value, Ordering::Relaxed);
        self.rouse();
    }

    /// What its writer last made of it. For cells with one writer, and for that one only.
    #[inline]
    pub fn written(&self) -> i32 {
        self.written.load(Ordering::Relaxed)
    }

    /// Stores without waking anybody, for a value that is looked at and not waited for. One writer.
    #[inline]
    pub fn mark(&self, value: u32) {
        // SYNC: pairs with the acquire in `load` (CELL-1).
        self.value.store(value.cast_signed(), Ordering::Release);
    }

    /// Writes a note for call `sequence`, to be published by the next change of the value. One writer.
    ///
    /// Who reads it earlier, while it is being written, finds a second word that is at least as new as the first
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
    /// `exit` is asked whether to give up; whoever makes it say so must call [`rouse`](Cell::rouse)
    /// afterwards. `deadline` bounds the wait in any case.
    ///
    /// # Errors
    /// [`Ended`]: what ended the wait instead.
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
                // It may have come between the two looks: who said goodbye said this before.
                now().or(Some(Err(Ended::Exit(why))))
            })
        };
        #[cfg(not(loom))]
        {
            // The clock costs as much as a hop between cores: look many times for each reading.
            if !patience.spin.is_zero() {
                let start = Instant::now();
                while start.elapsed() < patience.spin {
                    for _ in 0..SPINS_PER_CLOCK {
                        if let Some(end) = look(Looking::Awake) {
                            return end;
                        }
                        std::hint::spin_loop();
                    }
                }
            }
            let mut yielding = None;
            for turn in 0..patience.yields {
                if let Some(end) = look(Looking::Awake) {
                    return end;
                }
                // Who is in step with the others needs one turn, and no clock.
                if turn > 0 && yielding.get_or_insert_with(Instant::now).elapsed() > LONGEST_YIELDING {
                    break;
                }
                std::thread::yield_now();
            }
        }
        #[cfg(loom)]
        let _ = patience;
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

/// Looks at the value between two readings of the clock.
#[cfg(not(loom))]
const SPINS_PER_CLOCK: u32 = 32;

/// A sleeper wakes at least this often. Nothing depends on it; it only bounds what a bug of ours costs.
const LONGEST_SLEEP: Duration = Duration::from_secs(60);
/// How long it sleeps at most where the kernel cannot make sure that it is woken.
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
