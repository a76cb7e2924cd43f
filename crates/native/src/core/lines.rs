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
    /// size: the reader is looking already, and fetches back what was claimed and not written yet. See [`claim`](Packet::claim).
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

    /// Makes the lines of a packet of `bytes` this core's, before it is put: its readers had them last, and who writes a line that
    /// another has must wait until that one has given it up.
    ///
    /// All of them or none: with some, what is put is slower than with none.
    #[inline(always)]
    pub(super) fn claim(self, bytes: usize) {
        for line in 0..packet_lines(bytes) {
            claim_line(self.0.wrapping_add(line * LINE_BYTES));
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

/// Asks for a line to write it. Whatever the address is, nothing is accessed by that.
#[inline(always)]
fn claim_line(line: *mut u8) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    // SAFETY: a hint, which faults on no address; 64-bit processors that do not know it do nothing.
    unsafe {
        std::arch::asm!("prefetchw [{0}]", in(reg) line, options(nostack, preserves_flags, readonly));
    }
    #[cfg(all(target_arch = "aarch64", not(miri)))]
    // SAFETY: a hint, which faults on no address.
    unsafe {
        std::arch::asm!("prfm pstl1keep, [{0}]", in(reg) line, options(nostack, preserves_flags, readonly));
    }
    #[cfg(any(miri, not(any(target_arch = "x86_64", target_arch = "aarch64"))))]
    let _ = line;
}
