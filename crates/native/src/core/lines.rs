//! A packet as it lies in memory: a cache line with a flag, and a payload in it or after it.
//!
//! The writer stores the payload and then its flag; the reader watches the flag. What is in the flag's own line comes with
//! it: between cores that is one transfer instead of two.
//!
//! # Invariants
//! - **PACK-1 (payload first).** A flag is stored, with release, after all of its payload, and loaded, with acquire,
//!   before it.
//! - **PACK-2 (whose).** The flag's high half tells calls apart, so that ranks that disagree about a call find out
//!   from the first flag.
//! - **PACK-3 (when).** The low half is the epoch, moved by the number of times that the domain was reset: epochs
//!   begin again then, and packets of old ones are still there.
//! - **PACK-4 (flags only).** Where a flag is looked for, there is never payload that could be taken for one.

use super::lent::{self, must_be_copied};
use crate::cpu_vendor::is_intel;
use ringwork_isa::{LINE_BYTES, LINE_WORDS, Span, is_beside_flag, packet_lines};
use std::sync::atomic::{AtomicU64, Ordering};

/// What is common to the packets of one call.
#[derive(Clone, Copy)]
pub(super) struct Flag(pub(super) u64);

/// The packet of one rank.
#[derive(Clone, Copy)]
pub(super) struct Packet(pub(super) *mut u8);

impl Packet {
    /// A word of the first line.
    #[inline]
    fn word(&self, index: usize) -> &AtomicU64 {
        debug_assert!(index < LINE_WORDS);
        // SAFETY: whoever made this resolved an aligned packet, which lives as long as its core; the index is inside its
        // first line; the flag is only ever accessed as an atomic.
        unsafe { AtomicU64::from_ptr(self.0.add(index * 8).cast()) }
    }

    #[inline]
    pub(super) fn flag(&self) -> &AtomicU64 {
        self.word(LINE_WORDS - 1)
    }

    /// Whether it is there.
    #[inline(always)]
    pub(super) fn has_come(&self, flag: Flag) -> bool {
        // SYNC: pairs with the store in `put` (PACK-1).
        self.flag().load(Ordering::Acquire) == flag.0
    }

    /// Where a payload of `bytes` lies, with which this was resolved.
    #[inline]
    pub(super) fn payload(self, bytes: usize) -> *mut u8 {
        if is_beside_flag(bytes) {
            return self.0;
        }
        // SAFETY: a packet with more than a line holds was resolved with lines after the first.
        unsafe { self.0.add(LINE_BYTES) }
    }

    /// Writes a payload beside the flag, from registers: through memory, a word that was just put together of bytes must wait until
    /// all stores before it are done, those to lines of other cores included.
    ///
    /// # Safety
    /// `from` is valid for reading `len` bytes, which lie beside a flag.
    #[inline]
    unsafe fn fill(&self, from: *const u8, len: usize) {
        let whole = len / 8;
        for word in 0..whole {
            // SAFETY: inside the `len` bytes; of any alignment.
            let value = unsafe { from.add(word * 8).cast::<u64>().read_unaligned() };
            self.word(word).store(value, Ordering::Relaxed);
        }
        if !len.is_multiple_of(8) {
            // SAFETY: the rest of the `len` bytes.
            let value = unsafe { short_word(from.add(whole * 8), len % 8) };
            self.word(whole).store(value, Ordering::Relaxed);
        }
    }

    /// Copies a payload out from beside the flag.
    ///
    /// # Safety
    /// `to` is valid for writing `len` bytes, which lie beside a flag.
    #[inline]
    pub(super) unsafe fn drain(&self, to: *mut u8, len: usize) {
        for word in 0..len / 8 {
            let value = self.word(word).load(Ordering::Relaxed);
            // SAFETY: inside the `len` bytes; of any alignment.
            unsafe { to.add(word * 8).cast::<u64>().write_unaligned(value) };
        }
        let rest = len / 8 * 8..len;
        if !rest.is_empty() {
            let value = self.word(rest.start / 8).load(Ordering::Relaxed).to_le_bytes();
            for at in rest {
                // SAFETY: inside the `len` bytes.
                unsafe { to.add(at).write(value[at % 8]) };
            }
        }
    }

    /// Writes the payload and raises the flag. To ask for the lines here, ahead of the stores, makes this slower on every
    /// size: the reader is looking already, and fetches back what was claimed and not written yet. See [`Lines::claim`].
    ///
    /// # Safety
    /// `from` is what `src` was resolved to: `bytes` bytes, with which this packet was resolved.
    #[inline(always)]
    pub(super) unsafe fn put(self, src: &Span, from: *const u8, bytes: usize, flag: Flag) {
        if is_beside_flag(bytes) {
            // SAFETY: the caller's promise.
            unsafe { self.fill(from, bytes) };
        } else {
            // SAFETY: the caller's promise.
            unsafe { lent::copy(self.payload(bytes), must_be_copied(src), from, bytes) };
        }
        // SYNC: pairs with the load in `has_come` (PACK-1).
        self.flag().store(flag.0, Ordering::Release);
    }

    /// Asks for the packet of another core, of `bytes`, to read it soon: for all of its lines if they are few, else for that with
    /// the flag. The others would take the place of what else is under way.
    #[inline(always)]
    pub(super) fn approach(self, bytes: usize) {
        let lines = packet_lines(bytes);
        for line in 0..if lines <= FEW_LINES { lines } else { 1 } {
            approach_line(self.0.wrapping_add(line * LINE_BYTES));
        }
    }
}

/// Lines that a core can ask for without standing still.
const FEW_LINES: usize = 8;

/// How a core asks other cores for the lines of packets.
#[derive(Clone, Copy, Debug)]
pub(super) struct Asking {
    /// Whether it stands still when it asks for many: then it claims those of its next packet when it has read the others', and not
    /// as soon as it has put one.
    pub(super) few_at_once: bool,
    /// Whether it asks for those of another's packet before it looks for them.
    pub(super) before_looking: bool,
}

impl Asking {
    /// Intel's cores have some ten requests under way, and stand still with one more: to claim the 17 lines of 1 KiB behind a put
    /// took 86 ns of a call of 465. And from a put to the look they need 75 ns, where 30 are enough for the others' packets to be
    /// there: so these are asked for on the way. What that does on others was not measured, and between far cores no claim is
    /// early enough.
    pub(super) fn of_this_processor() -> Asking {
        let intel = is_intel();
        Asking {
            few_at_once: intel,
            before_looking: intel,
        }
    }
}

/// Lines of a packet that is put next. An address for hints, and no pointer: a core may go to another thread with it.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Lines {
    first: usize,
    count: usize,
}

impl Lines {
    /// Those of a packet of `bytes`, of which there are `most` at most.
    #[inline(always)]
    pub(super) fn of(packet: *mut u8, bytes: usize, most: usize) -> Lines {
        Lines {
            first: packet.addr(),
            count: packet_lines(bytes).min(most),
        }
    }

    /// Whether a core may have to wait until it has asked for all of them.
    #[inline(always)]
    pub(super) fn are_many(self) -> bool {
        self.count > FEW_LINES
    }

    /// Makes them this core's, before they are written: their readers had them last, and who writes a line that another has must
    /// wait until that one has given it up.
    ///
    /// All of them or none: with some, what is put is slower than with none.
    #[inline(always)]
    pub(super) fn claim(self) {
        for line in 0..self.count {
            let at = self.first.wrapping_add(line * LINE_BYTES);
            claim_line(std::ptr::without_provenance_mut(at));
        }
    }
}

/// The first `len` bytes of a word, fewer than eight; the rest is zero.
///
/// # Safety
/// `from` is valid for reading `len` bytes.
#[inline(always)]
unsafe fn short_word(from: *const u8, len: usize) -> u64 {
    let mut value = 0;
    let mut at = 0;
    // SAFETY: each part lies inside the `len` bytes; of any alignment.
    unsafe {
        if len & 4 != 0 {
            value = u64::from(u32::from_le(from.cast::<u32>().read_unaligned()));
            at = 4;
        }
        if len & 2 != 0 {
            let part = u16::from_le(from.add(at).cast::<u16>().read_unaligned());
            value |= u64::from(part) << (at * 8);
            at += 2;
        }
        if len & 1 != 0 {
            value |= u64::from(from.add(at).read()) << (at * 8);
        }
    }
    u64::from_le(value)
}

/// Defines hints: each is one instruction that asks for a line, and accesses nothing, whatever the address is. 64-bit processors
/// that do not know one do nothing.
macro_rules! hints {
    ($($(#[$doc:meta])* $name:ident = $x86:literal, $arm:literal;)+) => {$(
        $(#[$doc])*
        #[inline(always)]
        fn $name(line: *mut u8) {
            #[cfg(all(target_arch = "x86_64", not(miri)))]
            // SAFETY: a hint, which faults on no address.
            unsafe {
                std::arch::asm!($x86, in(reg) line, options(nostack, preserves_flags, readonly));
            }
            #[cfg(all(target_arch = "aarch64", not(miri)))]
            // SAFETY: a hint, which faults on no address.
            unsafe {
                std::arch::asm!($arm, in(reg) line, options(nostack, preserves_flags, readonly));
            }
            #[cfg(any(miri, not(any(target_arch = "x86_64", target_arch = "aarch64"))))]
            let _ = line;
        }
    )+};
}

hints! {
    /// Asks for a line to write it.
    claim_line = "prefetchw [{0}]", "prfm pstl1keep, [{0}]";
    /// Asks for a line to read it.
    approach_line = "prefetcht0 [{0}]", "prfm pldl1keep, [{0}]";
}
