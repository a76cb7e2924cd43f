//! A packet as it lies in memory: a cache line with a flag, and a payload in it or after it.
//!
//! The writer stores the payload and then its flag; the reader polls the flag. The payload in the flag's own line
//! arrives with it: between cores that is one transfer instead of two.
//!
//! # Invariants
//! - **PACK-1 (payload first).** A flag is raised after all of its payload was stored, and seen before it is loaded: see
//!   [`FlagWord`].
//! - **PACK-2 (whose).** The flag's high half identifies the call, so ranks that disagree about a call get an error
//!   at the first flag.
//! - **PACK-3 (when).** The low half is the epoch plus a number that changes at each reset of the domain: after a reset
//!   the epochs start again, while old packets are still in memory.
//! - **PACK-4 (flags only).** A word that is polled as a flag is never payload.

use super::lent::{self, must_be_copied};
use crate::cpu_tuning::FEW_LINES;
use crate::flag::FlagWord;
use ringwork_isa::{LINE_BYTES, LINE_WORDS, Span, is_beside_flag, packet_lines};
use std::sync::atomic::{AtomicU64, Ordering};

/// The flag of the packets of one call.
#[derive(Clone, Copy)]
pub(super) struct Flag(pub(super) u64);

/// The packet of one rank.
#[derive(Clone, Copy)]
pub(super) struct Packet(pub(super) *mut u8);

impl Packet {
    /// A word of the first line, beside the flag.
    #[inline]
    fn word(&self, index: usize) -> &AtomicU64 {
        debug_assert!(index < LINE_WORDS - 1);
        // SAFETY: it was made from a resolved and aligned packet, which lives as long as its core; the index is inside its
        // first line, before the flag; these words are only ever accessed as atomics while they are packets.
        unsafe { AtomicU64::from_ptr(self.0.add(index * 8).cast()) }
    }

    #[inline]
    pub(super) fn flag(&self) -> &FlagWord {
        // SAFETY: as in `word`; a `FlagWord` is one atomic word, and this word is never accessed as anything else.
        unsafe { &*self.0.add((LINE_WORDS - 1) * 8).cast::<FlagWord>() }
    }

    /// Whether the packet has arrived.
    #[inline(always)]
    pub(super) fn has_come(&self, flag: Flag) -> bool {
        self.flag().seen() == flag.0
    }

    /// The payload of `bytes`, the length with which this packet was resolved.
    #[inline]
    pub(super) fn payload(self, bytes: usize) -> *mut u8 {
        if is_beside_flag(bytes) {
            return self.0;
        }
        // SAFETY: a packet with more than a line holds was resolved with lines after the first.
        unsafe { self.0.add(LINE_BYTES) }
    }

    /// Writes a payload beside the flag, from registers. Assembled in memory, the word could not be forwarded to the
    /// load and would wait for all earlier stores, also those to lines of other cores.
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

    /// Writes the payload and raises the flag. Prefetching the lines for writing here is slower for every size: the
    /// reader polls already and takes back lines that were claimed and not written yet. See [`Lines::prefetch`].
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
        self.flag().raise(flag.0);
    }

    /// Prefetches the packet of another core, of `bytes`, for reading: all of its lines if there are few, else the
    /// line with the flag, because more requests would delay other ones in flight.
    #[inline(always)]
    pub(super) fn prefetch_peers(self, bytes: usize) {
        let lines = packet_lines(bytes);
        for line in 0..if lines <= FEW_LINES { lines } else { 1 } {
            approach_line(self.0.wrapping_add(line * LINE_BYTES));
        }
    }
}

/// The lines of the next packet. An address for prefetch hints, not a pointer, so that a core may move to another
/// thread.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Lines {
    first: usize,
    count: usize,
}

impl Lines {
    /// The lines of a packet of `bytes`, of at most `most` bytes.
    #[inline(always)]
    pub(super) fn of(packet: *mut u8, bytes: usize, most: usize) -> Lines {
        Lines {
            first: packet.addr(),
            count: packet_lines(bytes).min(most),
        }
    }

    /// Whether prefetching all of them can stall the core.
    #[inline(always)]
    pub(super) fn are_many(self) -> bool {
        self.count > FEW_LINES
    }

    /// Prefetches the lines for writing. Their readers had them last, and a store to a line that another core holds
    /// waits until that core gives it up. Either all lines are prefetched or none: if only some are, the put is slower
    /// than without prefetching.
    #[inline(always)]
    pub(super) fn prefetch(self) {
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

/// Defines prefetch hints: one instruction each, which accesses nothing, whatever the address is. 64-bit processors
/// without the instruction do nothing.
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
    /// Prefetches a line for writing.
    claim_line = "prefetchw [{0}]", "prfm pstl1keep, [{0}]";
    /// Prefetches a line for reading.
    approach_line = "prefetcht0 [{0}]", "prfm pldl1keep, [{0}]";
}
