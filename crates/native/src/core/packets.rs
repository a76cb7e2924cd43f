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

use super::lent::Source;
use super::{At, NativeCore, dst_len, span_bytes};
use crate::arith;
use crate::cell::Looking;
use crate::segment::Attached;
use ringwork_isa::{
    Compare, Element, Error, MAX_RANKS, PACKET_BYTES, PACKET_WORDS, PAYLOAD_BYTES, Rank, ReduceOp, Result,
    Segment, Shared, Signal, Span, packets_for,
};
use std::cell::RefCell;
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
    fn word(&self, index: usize) -> &AtomicU64 {
        debug_assert!(index < PACKET_WORDS);
        // SAFETY: `Lines::at` made this of a resolved, aligned packet, which lives as long as its core; the
        // index is inside it; it is only ever accessed as atomics.
        unsafe { AtomicU64::from_ptr(self.0.add(index * 8).cast()) }
    }

    /// Asks for the line to be this core's to write, without waiting for it: the requests of many lines then
    /// overlap, where stores would make them one after the other.
    #[inline]
    fn claim(self) {
        #[cfg(all(target_arch = "x86_64", not(miri)))]
        {
            use std::arch::x86_64::{_MM_HINT_ET0, _mm_prefetch};
            // SAFETY: a hint about a resolved line; it has no effect on values.
            unsafe { _mm_prefetch::<_MM_HINT_ET0>(self.0.cast()) };
        }
    }

    fn trailer(&self) -> &AtomicU64 {
        self.word(PACKET_WORDS - 1)
    }
}

/// The packets of one rank for one piece of data.
#[derive(Clone, Copy)]
struct Lines {
    first: *mut u8,
    count: usize,
}

impl Lines {
    fn at(self, index: usize) -> Line {
        debug_assert!(index < self.count);
        // SAFETY: the span of `count` lines was resolved when this was made.
        Line(unsafe { self.first.add(index * PACKET_BYTES) })
    }
}

/// Words that hold `bytes` bytes.
fn words(bytes: usize) -> usize {
    bytes.div_ceil(8)
}

impl NativeCore {
    fn flag(&self, domain: Segment, epoch: i32) -> Flag {
        let call = self
            .call
            .get()
            .map_or(0, |(_, [head, count])| head.rotate_left(17) ^ count);
        let mixed = call.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let generation = self.segment(domain).map_or(0, Attached::generation);
        let when = u64::from(epoch.cast_unsigned()).wrapping_add(generation.wrapping_mul(0x9e37_79b9));
        Flag(mixed & !u64::from(u32::MAX) | when & u64::from(u32::MAX))
    }

    fn lines(&self, packets: &Shared<i64>, like: &Span, writing: bool, at: At) -> Result<Lines> {
        let count = packets_for(span_bytes(like));
        let span = packets.slice(0..count * PACKET_WORDS)?.span();
        Ok(Lines {
            first: self.resolve(&span, writing, at)?,
            count,
        })
    }

    pub(super) fn put_packets_now(&self, packets: &Shared<i64>, src: Span, epoch: i32, at: At) -> Result<()> {
        let from = self.resolve(&src, false, at)?;
        let lines = self.lines(packets, &src, true, at)?;
        let (flag, bytes) = (self.flag(packets.span().segment, epoch), span_bytes(&src));
        for index in 0..lines.count {
            lines.at(index).claim();
        }
        for index in 0..lines.count {
            let done = index * PAYLOAD_BYTES;
            let len = (bytes - done).min(PAYLOAD_BYTES);
            let mut payload = [0u64; PACKET_WORDS - 1];
            // SAFETY: `len` bytes at `done` lie inside the resolved source, and inside the private payload.
            unsafe { std::ptr::copy_nonoverlapping(from.add(done), payload.as_mut_ptr().cast::<u8>(), len) };
            let line = lines.at(index);
            for (word, value) in payload[..words(len)].iter().enumerate() {
                line.word(word).store(*value, Ordering::Relaxed);
            }
            // SYNC: pairs with the load in `await_line` (PACK-1).
            line.trailer().store(flag.0, Ordering::Release);
        }
        Ok(())
    }

    pub(super) fn get_packets_now(
        &self,
        dst: Span,
        packets: &Shared<i64>,
        raised: &Signal,
        epoch: i32,
        at: At,
    ) -> Result<()> {
        let to = self.resolve(&dst, true, at)?;
        let lines = self.lines(packets, &dst, false, at)?;
        // SAFETY: `to` was resolved for writing the bytes of `dst`.
        unsafe { self.take(to, span_bytes(&dst), lines, raised, epoch, at) }
    }

    pub(super) fn reduce_packets_now<T: Element>(
        &self,
        (dst, mine): (Span, Span),
        packets: &Shared<i64>,
        raised: &Signal,
        (op, epoch): (ReduceOp, i32),
        at: At,
    ) -> Result<()> {
        super::check_length("my part", mine.len, dst.len, at)?;
        let (to, from) = (self.resolve(&dst, true, at)?, self.resolve(&mine, false, at)?);
        let (bytes, ranks) = (span_bytes(&dst), packets.ranks().min(MAX_RANKS) as usize);
        super::check_overlap(to, from, bytes, packets.me().0 as usize, at)?;
        // SAFETY: it was just resolved to `bytes` bytes.
        let (from, _kept) = unsafe { Source::of(&mine, from, bytes) };
        thread_local! {
            static TAKEN: RefCell<Vec<u64>> = const { RefCell::new(Vec::new()) };
        }
        TAKEN.with_borrow_mut(|taken| {
            let each = words(bytes);
            taken.resize(taken.len().max(each * ranks), 0);
            let mut sources = [std::ptr::null(); MAX_RANKS as usize];
            for (index, source) in sources[..ranks].iter_mut().enumerate() {
                let rank = Rank(u32::try_from(index).unwrap_or(u32::MAX));
                if rank == packets.me() {
                    *source = from;
                    continue;
                }
                let lines = self.lines(&packets.on(rank)?, &dst, false, at)?;
                let room = &mut taken[index * each..][..each];
                // SAFETY: `room` is private and holds `bytes` bytes.
                unsafe {
                    self.take(
                        room.as_mut_ptr().cast(),
                        bytes,
                        lines,
                        &raised.on(rank)?,
                        epoch,
                        at,
                    )
                }?;
                *source = room.as_ptr().cast();
            }
            // SAFETY: the sources are private, or my part, which is `dst` or does not overlap it; all were
            // resolved or made for `dst.len` elements.
            unsafe { arith::reduce(T::DTYPE, op, to, &sources[..ranks], dst_len(&dst)) };
            Ok(())
        })
    }

    /// Waits for packets and copies their payload to `to`.
    ///
    /// # Safety
    /// `to` is valid for writing `bytes` bytes.
    unsafe fn take(
        &self,
        to: *mut u8,
        bytes: usize,
        lines: Lines,
        raised: &Signal,
        epoch: i32,
        at: At,
    ) -> Result<()> {
        let flag = self.flag(raised.segment(), epoch);
        // The last line is written last: once it is there, all are, and their fetches overlap.
        if lines.count > 1 {
            self.await_line(lines.at(lines.count - 1), flag, raised, epoch, at)?;
        }
        for index in 0..lines.count {
            let line = lines.at(index);
            self.await_line(line, flag, raised, epoch, at)?;
            let done = index * PAYLOAD_BYTES;
            let len = (bytes - done).min(PAYLOAD_BYTES);
            let mut payload = [0u64; PACKET_WORDS - 1];
            for (word, value) in payload[..words(len)].iter_mut().enumerate() {
                *value = line.word(word).load(Ordering::Relaxed);
            }
            // SAFETY: `len` bytes at `done` lie inside what the caller vouches for, and inside the payload.
            unsafe { std::ptr::copy_nonoverlapping(payload.as_ptr().cast::<u8>(), to.add(done), len) };
        }
        Ok(())
    }

    #[inline]
    fn await_line(&self, line: Line, flag: Flag, raised: &Signal, epoch: i32, at: At) -> Result<()> {
        // SYNC: pairs with the store in `put_packets_now` (PACK-1).
        if line.trailer().load(Ordering::Acquire) == flag.0 {
            return Ok(());
        }
        self.await_line_long(line, flag, raised, epoch, at)
    }

    #[cold]
    fn await_line_long(&self, line: Line, flag: Flag, raised: &Signal, epoch: i32, at: At) -> Result<()> {
        let (segment, _) = self.signal(raised, at)?;
        let start = Instant::now();
        loop {
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
            if start.elapsed() >= self.patience.spin || self.exit(segment, raised, Looking::Awake).is_some() {
                break;
            }
        }
        // Its signal follows its packets: what sleeps on the one finds the other.
        self.wait_now(*raised, Compare::Ge, epoch, at)?;
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
    Error::Failed {
        message,
        site: at.into(),
    }
}
