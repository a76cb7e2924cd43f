//! Packets on this host: cache lines with flags, and a payload in them or after them.
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

use super::lent::{self, Source, must_be_copied};
use super::moves::{Pointers, check_length, check_overlap, span_bytes};
use super::{At, NativeCore, not_mapped};
use crate::arith;
use crate::cell::Looking;
use crate::segment::Attached;
use ringwork_isa::{
    Compare, Element, Error, ErrorKind, FLAGGED_BYTES, FLAGGED_LINES, LINE_BYTES, LINE_WORDS, MAX_RANKS,
    Rank, ReduceOp, Result, Shared, Signal, Span, is_flagged, packet_lines,
};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

/// Looks at a flag between two looks at the clock and the exits.
const LOOKS: u32 = 64;

/// Words that hold the payload of any flagged packet.
const TAKEN_WORDS: usize = FLAGGED_LINES * FLAGGED_BYTES / 8;

/// What is common to the packets of one call.
#[derive(Clone, Copy)]
struct Flag(u64);

/// A line with a flag: eight words.
#[derive(Clone, Copy)]
struct Line(*mut u8);

impl Line {
    #[inline]
    fn word(&self, index: usize) -> &AtomicU64 {
        debug_assert!(index < LINE_WORDS);
        // SAFETY: `Packet::line` made this of a resolved, aligned packet, which lives as long as its core; the
        // index is inside it; the flag is only ever accessed as an atomic.
        unsafe { AtomicU64::from_ptr(self.0.add(index * 8).cast()) }
    }

    #[inline]
    fn flag(&self) -> &AtomicU64 {
        self.word(LINE_WORDS - 1)
    }

    /// Writes the payload, from registers: through memory, a word that was just put together of bytes must wait until
    /// all stores before it are done, those to lines of other cores included.
    ///
    /// # Safety
    /// `from` is valid for reading `len` bytes, at most a payload.
    #[inline]
    unsafe fn fill(&self, from: *const u8, len: usize) {
        if len == FLAGGED_BYTES {
            // SAFETY: a payload each, by the caller and by `Packet::line`.
            return unsafe { copy_payload(self.0, from) };
        }
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

    /// Copies the payload out.
    ///
    /// # Safety
    /// `to` is valid for writing `len` bytes, at most a payload.
    #[inline]
    unsafe fn drain(&self, to: *mut u8, len: usize) {
        if len == FLAGGED_BYTES {
            // SAFETY: a payload each, by the caller and by `Packet::line`.
            return unsafe { copy_payload(to, self.0) };
        }
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

/// Copies a payload, in or out. As everywhere in `arith`, what is shared is reached by vector loads and stores, and
/// is only ever data; every processor of this kind has these.
///
/// # Safety
/// Both are valid for a payload's bytes, and do not overlap.
#[cfg(all(target_arch = "x86_64", not(miri)))]
#[inline(always)]
unsafe fn copy_payload(to: *mut u8, from: *const u8) {
    use std::arch::x86_64::{__m128i, _mm_loadu_si128, _mm_storeu_si128};
    const { assert!(FLAGGED_BYTES == 3 * 16 + 8) };
    // SAFETY: 3 * 16 + 8 bytes of each, of any alignment; the caller's promise.
    unsafe {
        let parts = [0, 16, 32].map(|at| _mm_loadu_si128(from.add(at).cast::<__m128i>()));
        let last = from.add(48).cast::<u64>().read_unaligned();
        for (part, at) in parts.into_iter().zip([0, 16, 32]) {
            _mm_storeu_si128(to.add(at).cast::<__m128i>(), part);
        }
        to.add(48).cast::<u64>().write_unaligned(last);
    }
}

#[cfg(not(all(target_arch = "x86_64", not(miri))))]
#[inline(always)]
unsafe fn copy_payload(to: *mut u8, from: *const u8) {
    // SAFETY: the caller's promise, unchanged.
    unsafe { arith::copy(to, from, FLAGGED_BYTES) }
}

/// The packet of one rank.
#[derive(Clone, Copy)]
struct Packet(*mut u8);

impl Packet {
    /// A line with a flag, of those that the packet was resolved with.
    #[inline]
    fn line(self, index: usize) -> Line {
        debug_assert!(index < FLAGGED_LINES);
        // SAFETY: the caller's index is inside what was resolved.
        Line(unsafe { self.0.add(index * LINE_BYTES) })
    }

    /// Where a payload lies that only the first line has a flag for.
    #[inline]
    fn rest(self) -> *mut u8 {
        // SAFETY: a packet that is not flagged was resolved with lines after these.
        unsafe { self.0.add(FLAGGED_LINES * LINE_BYTES) }
    }

    /// Writes the payload and raises the flags. Asking for the lines ahead of the stores (`prefetchw`) makes this slower on
    /// every size: the reader fetches back what was claimed and not written yet.
    ///
    /// # Safety
    /// `from` is what `src` was resolved to: `bytes` bytes, with which this packet was resolved.
    #[inline(always)]
    unsafe fn put(self, src: &Span, from: *const u8, bytes: usize, flag: Flag) {
        if is_flagged(bytes) {
            let (mut index, mut done) = (0, 0);
            while done < bytes {
                let (line, len) = (self.line(index), (bytes - done).min(FLAGGED_BYTES));
                // SAFETY: `len` bytes at `done` are inside what the caller vouches for.
                unsafe { line.fill(from.add(done), len) };
                // SYNC: pairs with the load in `await_line` (PACK-1).
                line.flag().store(flag.0, Ordering::Release);
                (index, done) = (index + 1, done + FLAGGED_BYTES);
            }
        } else {
            // SAFETY: the caller's promise.
            unsafe { lent::copy(self.rest(), must_be_copied(src), from, bytes) };
            // SYNC: as above.
            self.line(0).flag().store(flag.0, Ordering::Release);
        }
    }
}

/// Everybody's packets, resolved: rank 0's, and every other's `stride` bytes further on.
struct Everybody {
    first: *mut u8,
    stride: usize,
    me: Rank,
    ranks: u32,
    flag: Flag,
}

impl Everybody {
    #[inline(always)]
    fn packet_of(&self, rank: Rank) -> Packet {
        debug_assert!(rank.0 < self.ranks);
        // SAFETY: every rank's packet was resolved, in one mapping, when this was made.
        Packet(unsafe { self.first.add(rank.0 as usize * self.stride) })
    }
}

/// The lines that a packet of `bytes` takes.
#[inline(always)]
fn room_for(packets: &Shared<i64>, bytes: usize) -> Result<Span> {
    Ok(packets.slice(0..packet_lines(bytes) * LINE_WORDS)?.span())
}

impl NativeCore {
    #[inline(always)]
    fn flag(&self, domain: Option<&Attached>, epoch: i32) -> Flag {
        let generation = domain.map_or(0, Attached::generation);
        let when = u64::from(epoch.cast_unsigned()).wrapping_add(generation.wrapping_mul(0x9e37_79b9));
        Flag(self.call.tag() & !u64::from(u32::MAX) | when & u64::from(u32::MAX))
    }

    #[inline(always)]
    fn packet(&self, packets: &Shared<i64>, bytes: usize, writing: bool, at: At) -> Result<Packet> {
        let span = room_for(packets, bytes)?;
        Ok(Packet(self.resolve(&span, writing, at)?))
    }

    #[inline(always)]
    pub(super) fn put_packet_now(&self, packets: &Shared<i64>, src: &Span, epoch: i32, at: At) -> Result<()> {
        let bytes = span_bytes(src);
        if bytes == 0 {
            return Ok(());
        }
        let from = self.resolve(src, false, at)?;
        let packet = self.packet(packets, bytes, true, at)?;
        let flag = self.flag(self.segment(packets.span().segment), epoch);
        // SAFETY: the source was resolved to `bytes` bytes, for which the packet was resolved.
        unsafe { packet.put(src, from, bytes, flag) };
        Ok(())
    }

    #[inline(always)]
    pub(super) fn get_packet_now(
        &self,
        dst: &Span,
        packets: &Shared<i64>,
        raised: &Signal,
        epoch: i32,
        at: At,
    ) -> Result<()> {
        let bytes = span_bytes(dst);
        if bytes == 0 {
            return Ok(());
        }
        let to = self.resolve(dst, true, at)?;
        let packet = self.packet(packets, bytes, false, at)?;
        let flag = self.flag(self.segment(raised.segment()), epoch);
        let whose = (raised, raised.rank());
        if is_flagged(bytes) {
            // SAFETY: `to` was resolved for writing `bytes` bytes.
            return unsafe { self.take(to, bytes, packet, flag, whose, epoch, at) };
        }
        check_overlap(to, packet.rest(), bytes, 0, at)?;
        self.await_line(packet.line(0), flag, whose, epoch, at)?;
        // SAFETY: both were resolved for `bytes` bytes, and do not overlap.
        unsafe { arith::copy(to, packet.rest(), bytes) };
        Ok(())
    }

    /// Finds everybody's packets of `bytes`.
    #[inline(always)]
    fn everybody(
        &self,
        packets: &Shared<i64>,
        raised: &Signal,
        bytes: usize,
        epoch: i32,
        at: At,
    ) -> Result<Everybody> {
        let (me, ranks) = (packets.me(), packets.ranks());
        if ranks == 0 || ranks > MAX_RANKS || (raised.rank(), raised.ranks()) != (me, ranks) {
            return Err(not_of_one_domain(packets, raised));
        }
        let span = room_for(packets, bytes)?;
        let segment = self.segment(span.segment);
        let first = segment.and_then(|segment| segment.resolve_on_all(&span));
        Ok(Everybody {
            first: first.ok_or_else(|| not_mapped(span.segment, span.byte_range(), at))?,
            stride: usize::try_from(span.stride).unwrap_or(0),
            me,
            ranks,
            flag: self.flag(segment, epoch),
        })
    }

    /// Waits for everybody's packets and reduces them, and my part in its place among them.
    #[inline(always)]
    pub(super) fn reduce_packets_now<T: Element>(
        &self,
        (dst, mine): (&Span, &Span),
        packets: &Shared<i64>,
        raised: &Signal,
        op: ReduceOp,
        epoch: i32,
        at: At,
    ) -> Result<()> {
        check_length("my part", mine.len, dst.len, at)?;
        let bytes = span_bytes(dst);
        let found = self.everybody(packets, raised, bytes, epoch, at)?;
        let (to, from) = (self.resolve(dst, true, at)?, self.resolve(mine, false, at)?);
        check_overlap(to, from, bytes, found.me.0 as usize, at)?;
        if bytes == 0 {
            return Ok(());
        }
        // SAFETY: it was resolved to `bytes` bytes.
        let (from, _kept) = unsafe { Source::copied_if(must_be_copied(mine), from, bytes) };
        let mut room = Pointers::new(std::ptr::null());
        let sources = room.of(found.ranks as usize);
        let mut taken = self.taken.borrow_mut();
        for rank in (0..found.ranks).map(Rank) {
            let packet = found.packet_of(rank);
            let whose = (raised, rank);
            sources[rank.0 as usize] = if rank == found.me {
                from
            } else if bytes <= FLAGGED_BYTES || !is_flagged(bytes) {
                // In one piece: reduced where it lies, where it stays until the epoch after next.
                self.await_line(packet.line(0), found.flag, whose, epoch, at)?;
                let payload = if is_flagged(bytes) {
                    packet.0
                } else {
                    packet.rest()
                };
                payload.cast_const()
            } else {
                let place = rank.0 as usize * TAKEN_WORDS;
                if taken.len() < place + TAKEN_WORDS {
                    taken.resize(found.ranks as usize * TAKEN_WORDS, 0);
                }
                let room = taken[place..][..TAKEN_WORDS].as_mut_ptr().cast::<u8>();
                // SAFETY: `room` is private and holds what a flagged packet carries.
                unsafe { self.take(room, bytes, packet, found.flag, whose, epoch, at) }?;
                room.cast_const()
            };
        }
        // SAFETY: the sources are private, or packets or my part, which do not overlap `to` or are it; all were resolved or
        // made for `bytes` bytes.
        unsafe { arith::reduce(T::DTYPE, op, to, sources, bytes / size_of::<T>()) };
        Ok(())
    }

    /// Waits for a flagged packet and copies its payload to `to`.
    ///
    /// # Safety
    /// `to` is valid for writing `bytes` bytes.
    #[expect(
        clippy::too_many_arguments,
        reason = "what a line is waited for with, and where it goes"
    )]
    unsafe fn take(
        &self,
        to: *mut u8,
        bytes: usize,
        packet: Packet,
        flag: Flag,
        whose: (&Signal, Rank),
        epoch: i32,
        at: At,
    ) -> Result<()> {
        let (mut index, mut done) = (0, 0);
        while done < bytes {
            let (line, len) = (packet.line(index), (bytes - done).min(FLAGGED_BYTES));
            self.await_line(line, flag, whose, epoch, at)?;
            // SAFETY: `len` bytes at `done` lie inside what the caller vouches for.
            unsafe { line.drain(to.add(done), len) };
            (index, done) = (index + 1, done + FLAGGED_BYTES);
        }
        Ok(())
    }

    #[inline]
    fn await_line(&self, line: Line, flag: Flag, whose: (&Signal, Rank), epoch: i32, at: At) -> Result<()> {
        for _ in 0..self.eager_looks {
            // SYNC: pairs with the stores in `put` (PACK-1).
            if line.flag().load(Ordering::Acquire) == flag.0 {
                return Ok(());
            }
            std::hint::spin_loop();
        }
        self.await_line_long(line, flag, &whose.0.on(whose.1)?, epoch, at)
    }

    #[cold]
    fn await_line_long(&self, line: Line, flag: Flag, raised: &Signal, epoch: i32, at: At) -> Result<()> {
        let awaited = self.signal(raised, at)?;
        let astray = || {
            self.astray(awaited, (Compare::Ge, epoch), at)
                .unwrap_or_else(|| stray(raised, at))
        };
        let start = Instant::now();
        while start.elapsed() < self.patience.spin
            && self
                .exit(awaited.segment, awaited.name.on(), Looking::Awake)
                .is_none()
        {
            for _ in 0..LOOKS {
                // SYNC: as in `await_line`.
                let seen = line.flag().load(Ordering::Acquire);
                if seen == flag.0 {
                    return Ok(());
                }
                if (seen ^ flag.0) & u64::from(u32::MAX) == 0 {
                    return Err(astray());
                }
                std::hint::spin_loop();
            }
        }
        // Its signal follows its packets: what sleeps on the one finds the other. The flag says more than a note beside
        // the signal would, which may be of a later call by now.
        self.wait_long(awaited, (Compare::Ge, epoch), at)?;
        match line.flag().load(Ordering::Acquire) {
            seen if seen == flag.0 => Ok(()),
            _ => Err(astray()),
        }
    }
}

#[cold]
fn not_of_one_domain(packets: &Shared<i64>, raised: &Signal) -> Error {
    Error::failed(format!(
        "packets of rank {} of {} and a signal of rank {} of {}; they must be of one domain of at most {MAX_RANKS}, and \
         mine",
        packets.me(),
        packets.ranks(),
        raised.rank(),
        raised.ranks(),
    ))
}

/// A signal came and its packets did not.
fn stray(raised: &Signal, at: At) -> Error {
    let message = format!(
        "rank {} raised its signal without the packets of this call",
        raised.rank()
    );
    ErrorKind::Failed {
        message,
        site: at.into(),
    }
    .into()
}
