//! Packets on this host: a cache line that carries its own flag.
//!
//! The writer fills a line's payload and then its trailer; the reader watches the trailer and has the payload
//! in the same line. Between cores that is one transfer instead of two.
//!
//! # Invariants
//! - **PACK-1 (payload first).** A trailer is stored, with release, after its payload, and loaded, with acquire,
//!   before it.
//! - **PACK-2 (whose).** The trailer's high half tells calls apart, so that ranks that disagree about a call
//!   find out from the first packet.
//! - **PACK-3 (when).** The low half is the epoch, moved by the number of times that the domain was reset: epochs
//!   begin again then, and packets of old ones are still there.

use super::lent::{Source, must_be_copied};
use super::moves::{Pointers, check_length, check_overlap, span_bytes};
use super::{At, NativeCore, not_mapped};
use crate::arith;
use crate::cell::Looking;
use crate::segment::Attached;
use ringwork_isa::{
    Compare, Element, Error, ErrorKind, MAX_RANKS, PACKET_BYTES, PACKET_WORDS, PAYLOAD_BYTES, Rank, ReduceOp,
    Result, Segment, Shared, Signal, Span, packets_for,
};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

/// Looks at a trailer between two looks at the clock and the exits.
const LOOKS: u32 = 64;

/// What is common to the packets of one call.
#[derive(Clone, Copy)]
struct Flag(u64);

/// A line of packets: eight words, reached only as atomics.
#[derive(Clone, Copy)]
struct Line(*mut u8);

impl Line {
    #[inline]
    fn word(&self, index: usize) -> &AtomicU64 {
        debug_assert!(index < PACKET_WORDS);
        // SAFETY: `Lines::at` made this of a resolved, aligned packet, which lives as long as its core; the
        // index is inside it; it is only ever accessed as atomics.
        unsafe { AtomicU64::from_ptr(self.0.add(index * 8).cast()) }
    }

    #[inline]
    fn trailer(&self) -> &AtomicU64 {
        self.word(PACKET_WORDS - 1)
    }

    /// Writes the payload, from registers: through memory, a word that was just put together of bytes must wait until
    /// all stores before it are done, those to lines of other cores included.
    ///
    /// # Safety
    /// `from` is valid for reading `len` bytes, at most a payload.
    #[inline]
    unsafe fn fill(&self, from: *const u8, len: usize) {
        if len == PAYLOAD_BYTES {
            // SAFETY: a payload each, by the caller and by `Lines::at`.
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
        if len == PAYLOAD_BYTES {
            // SAFETY: a payload each, by the caller and by `Lines::at`.
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
    const { assert!(PAYLOAD_BYTES == 3 * 16 + 8) };
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
    unsafe { arith::copy(to, from, PAYLOAD_BYTES) }
}

/// The packets of one rank for one piece of data.
#[derive(Clone, Copy)]
struct Lines {
    first: *mut u8,
    count: usize,
}

impl Lines {
    #[inline]
    fn at(self, index: usize) -> Line {
        debug_assert!(index < self.count);
        // SAFETY: the span of `count` lines was resolved when this was made.
        Line(unsafe { self.first.add(index * PACKET_BYTES) })
    }
}

/// Everybody's packets for one piece of data: rank 0's, and every other's `stride` bytes further on.
#[derive(Clone, Copy)]
struct Everybody {
    first: Lines,
    stride: usize,
    ranks: u32,
}

impl Everybody {
    #[inline]
    fn of(self, rank: Rank) -> Lines {
        debug_assert!(rank.0 < self.ranks);
        // SAFETY: every rank's lines were resolved, in one mapping, when this was made.
        let first = unsafe { self.first.first.add(rank.0 as usize * self.stride) };
        Lines { first, ..self.first }
    }
}

/// Fills lines with a payload and raises their flags. Asking for the lines ahead of the stores (`prefetchw`) makes this
/// slower on every size: the reader fetches back what was claimed and not written yet.
///
/// # Safety
/// `from` is valid for reading `bytes` bytes, which are as many as `lines` hold.
#[inline(always)]
unsafe fn put(lines: Lines, from: *const u8, bytes: usize, flag: Flag) {
    for index in 0..lines.count {
        let done = index * PAYLOAD_BYTES;
        let (line, len) = (lines.at(index), (bytes - done).min(PAYLOAD_BYTES));
        // SAFETY: `len` bytes at `done` are inside what the caller vouches for.
        unsafe { line.fill(from.add(done), len) };
        // SYNC: pairs with the load in `await_line` (PACK-1).
        line.trailer().store(flag.0, Ordering::Release);
    }
}

/// The packets that `bytes` bytes take, and their number.
#[inline(always)]
fn room_for(packets: &Shared<i64>, bytes: usize) -> Result<(Span, usize)> {
    let count = packets_for(bytes);
    Ok((packets.slice(0..count * PACKET_WORDS)?.span(), count))
}

/// Words that hold `bytes` bytes.
fn words(bytes: usize) -> usize {
    bytes.div_ceil(8)
}

impl NativeCore {
    #[inline(always)]
    fn flag(&self, domain: Segment, epoch: i32) -> Flag {
        let generation = self.segment(domain).map_or(0, Attached::generation);
        let when = u64::from(epoch.cast_unsigned()).wrapping_add(generation.wrapping_mul(0x9e37_79b9));
        Flag(self.call.tag() & !u64::from(u32::MAX) | when & u64::from(u32::MAX))
    }

    #[inline(always)]
    fn lines(&self, packets: &Shared<i64>, bytes: usize, writing: bool, at: At) -> Result<Lines> {
        let (span, count) = room_for(packets, bytes)?;
        Ok(Lines {
            first: self.resolve(&span, writing, at)?,
            count,
        })
    }

    #[inline(always)]
    fn everybody(&self, packets: &Shared<i64>, bytes: usize, at: At) -> Result<Everybody> {
        let (span, count) = room_for(packets, bytes)?;
        let found = self.segment(span.segment);
        let first = found.and_then(|segment| segment.resolve_on_all(&span));
        Ok(Everybody {
            first: Lines {
                first: first.ok_or_else(|| not_mapped(span.segment, span.byte_range(), at))?,
                count,
            },
            stride: usize::try_from(span.stride).unwrap_or(0),
            ranks: span.ranks,
        })
    }

    #[inline(always)]
    pub(super) fn put_packets_now(
        &self,
        packets: &Shared<i64>,
        src: &Span,
        epoch: i32,
        at: At,
    ) -> Result<()> {
        let bytes = span_bytes(src);
        let from = self.resolve(src, false, at)?;
        let lines = self.lines(packets, bytes, true, at)?;
        let flag = self.flag(packets.span().segment, epoch);
        // SAFETY: the source was resolved to `bytes` bytes, which are as many as `lines` hold.
        unsafe { put(lines, from, bytes, flag) };
        Ok(())
    }

    #[inline(always)]
    pub(super) fn get_packets_now(
        &self,
        dst: &Span,
        packets: &Shared<i64>,
        raised: &Signal,
        epoch: i32,
        at: At,
    ) -> Result<()> {
        let to = self.resolve(dst, true, at)?;
        let lines = self.lines(packets, span_bytes(dst), false, at)?;
        let flag = self.flag(raised.segment(), epoch);
        // SAFETY: `to` was resolved for writing the bytes of `dst`.
        unsafe { self.take(to, span_bytes(dst), lines, flag, raised, epoch, at) }
    }

    /// Reduces everybody's packets, and my part in its place among them.
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
        let (bytes, me, ranks) = (span_bytes(dst), packets.me(), packets.ranks());
        if ranks == 0 || ranks > MAX_RANKS || (raised.rank(), raised.ranks()) != (me, ranks) {
            return Err(Error::failed(format!(
                "packets of rank {me} of {ranks} and a signal of rank {} of {}; they must be of one domain of at most \
                 {MAX_RANKS}, and mine",
                raised.rank(),
                raised.ranks(),
            )));
        }
        let everybody = self.everybody(packets, bytes, at)?;
        let flag = self.flag(packets.span().segment, epoch);
        let (to, from) = (self.resolve(dst, true, at)?, self.resolve(mine, false, at)?);
        check_overlap(to, from, bytes, me.0 as usize, at)?;
        if bytes == 0 {
            return Ok(());
        }
        // SAFETY: it was resolved to `bytes` bytes.
        let (from, _kept) = unsafe { Source::copied_if(must_be_copied(mine), from, bytes) };
        let mut room = Pointers::default();
        let sources = room.of(ranks as usize);
        let (count, each) = (bytes / size_of::<T>(), words(bytes));
        // Of a single line nothing is kept: it is reduced where it lies, and stays until the epoch after next.
        let single = everybody.first.count <= 1;
        let mut taken = self.taken.borrow_mut();
        if !single && taken.len() < each * ranks as usize {
            taken.resize(each * ranks as usize, 0);
        }
        for rank in (0..ranks).map(Rank) {
            let index = rank.0 as usize;
            sources[index] = if rank == me {
                from
            } else if single {
                let line = everybody.of(rank).at(0);
                self.await_line(line, flag, (raised, rank), epoch, at)?;
                line.0.cast_const()
            } else {
                let room = taken[index * each..][..each].as_mut_ptr().cast::<u8>();
                // SAFETY: `room` is private and holds `bytes` bytes.
                unsafe {
                    self.take(
                        room,
                        bytes,
                        everybody.of(rank),
                        flag,
                        &raised.on(rank)?,
                        epoch,
                        at,
                    )
                }?;
                room.cast_const()
            };
        }
        // SAFETY: the sources are private, or a line of packets, or my part, which is `to` or does not overlap
        // it; all were resolved or made for `count` elements of T.
        unsafe { arith::reduce(T::DTYPE, op, to, sources, count) };
        Ok(())
    }

    /// Waits for packets and copies their payload to `to`.
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
        lines: Lines,
        flag: Flag,
        raised: &Signal,
        epoch: i32,
        at: At,
    ) -> Result<()> {
        for index in 0..lines.count {
            let line = lines.at(index);
            self.await_line(line, flag, (raised, raised.rank()), epoch, at)?;
            let done = index * PAYLOAD_BYTES;
            let len = (bytes - done).min(PAYLOAD_BYTES);
            // SAFETY: `len` bytes at `done` lie inside what the caller vouches for.
            unsafe { line.drain(to.add(done), len) };
        }
        Ok(())
    }

    #[inline]
    fn await_line(&self, line: Line, flag: Flag, whose: (&Signal, Rank), epoch: i32, at: At) -> Result<()> {
        for _ in 0..self.eager_looks {
            // SYNC: pairs with the store in `put_packets_now` (PACK-1).
            if line.trailer().load(Ordering::Acquire) == flag.0 {
                return Ok(());
            }
            std::hint::spin_loop();
        }
        self.await_line_long(line, flag, &whose.0.on(whose.1)?, epoch, at)
    }

    #[cold]
    fn await_line_long(&self, line: Line, flag: Flag, raised: &Signal, epoch: i32, at: At) -> Result<()> {
        let awaited = self.signal(raised, at)?;
        let start = Instant::now();
        while start.elapsed() < self.patience.spin
            && self
                .exit(awaited.segment, awaited.name.on(), Looking::Awake)
                .is_none()
        {
            for _ in 0..LOOKS {
                // SYNC: as in `await_line`.
                let seen = line.trailer().load(Ordering::Acquire);
                if seen == flag.0 {
                    return Ok(());
                }
                if (seen ^ flag.0) & u64::from(u32::MAX) == 0 {
                    return Err(self.mismatch(raised.rank()).unwrap_or_else(|| stray(raised, at)));
                }
                std::hint::spin_loop();
            }
        }
        // Its signal follows its packets: what sleeps on the one finds the other.
        self.wait_now(awaited, Compare::Ge, epoch, at)?;
        match line.trailer().load(Ordering::Acquire) {
            seen if seen == flag.0 => Ok(()),
            _ => Err(self.mismatch(raised.rank()).unwrap_or_else(|| stray(raised, at))),
        }
    }
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
