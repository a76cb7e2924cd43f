//! Packets on this host: putting them, waiting for them, reducing them. Their layout in memory is in
//! [`lines`](super::lines).

use super::lent::{Source, must_be_copied};
use super::lines::{Flag, Lines, Packet};
use super::moves::{Pointers, check_overlap, dst_len, span_bytes};
use super::neighbours::Neighbours;
use super::{At, NativeCore, not_mapped};
use crate::arith;
use crate::cell::Looking;
use crate::cpu_tuning::STORES_TO_NOWHERE;
use crate::segment::Attached;
use ringwork_isa::{
    Compare, Epoch, Error, ErrorKind, LINE_WORDS, MAX_RANKS, Packets, Rank, ReduceOp, Result, Shared, Signal,
    Span, is_beside_flag, others, packet_lines,
};
use std::time::Instant;

/// Polls of a flag between two readings of the clock and of the exits.
const LOOKS: u32 = 64;

/// The packets of all ranks, resolved: rank 0's, and each next one `stride` bytes further.
struct PeerPackets {
    first: *mut u8,
    stride: usize,
    me: Rank,
    ranks: u32,
    flag: Flag,
}

impl PeerPackets {
    #[inline(always)]
    fn packet_of(&self, rank: Rank) -> Packet {
        debug_assert!(rank.0 < self.ranks);
        // SAFETY: every rank's packet was resolved, in one mapping, when this was made.
        Packet(unsafe { self.first.add(rank.0 as usize * self.stride) })
    }
}

/// The lines of a packet of `bytes` in the place of an epoch.
#[inline(always)]
fn lines_for(packets: &Packets, bytes: usize, epoch: Epoch) -> Result<Span> {
    let lines = packets.at(epoch).slice(0..packet_lines(bytes) * LINE_WORDS)?;
    Ok(lines.span())
}

impl NativeCore {
    #[inline(always)]
    fn flag(&self, domain: Option<&Attached>, epoch: Epoch) -> Flag {
        let generation = domain.map_or(0, Attached::generation);
        let when =
            u64::from(i32::from(epoch).cast_unsigned()).wrapping_add(generation.wrapping_mul(0x9e37_79b9));
        Flag(self.call.tag() & !u64::from(u32::MAX) | when & u64::from(u32::MAX))
    }

    #[inline(always)]
    fn packet(&self, packets: &Packets, bytes: usize, epoch: Epoch, at: At) -> Result<(Packet, Flag)> {
        let span = lines_for(packets, bytes, epoch)?;
        let segment = self.segment(span.segment);
        let found = segment.and_then(|segment| segment.resolve(&span));
        let found = found.ok_or_else(|| not_mapped(span.segment, span.byte_range(), at))?;
        Ok((Packet(found), self.flag(segment, epoch)))
    }

    #[inline(always)]
    pub(super) fn put_packet_now(&self, packets: &Packets, src: &Span, epoch: Epoch, at: At) -> Result<()> {
        let bytes = span_bytes(src);
        if bytes == 0 {
            return Ok(());
        }
        let from = self.resolve(src, false, at)?;
        let (packet, flag) = self.packet(packets, bytes, epoch, at)?;
        // SAFETY: the source was resolved to `bytes` bytes, for which the packet was resolved.
        unsafe { packet.put(src, from, bytes, flag) };
        self.has_put.set(true);
        // The next packet goes to the other one of the two places, which every reader has left by now. Rings of more
        // places were not measured.
        if packets.places() == 2 {
            self.prefetch_write(&packets.at(epoch.next()), bytes);
        }
        Ok(())
    }

    /// Fills the store buffer with dummy stores. To be called before polling for a packet: a processor executes loads
    /// ahead of earlier stores until the store buffer is full, and an early poll takes the line away from its writer.
    /// Between far cores, packets of more than a line took 390 to 430 ns without this and 215 to 260 with it; fences,
    /// and loops of loads or multiplications, made no difference. Near it costs 3 to 7 ns.
    #[inline(always)]
    fn drain_store_buffer(&self) {
        if !self.has_put.replace(false) || self.patience.spin.is_zero() {
            return;
        }
        let mut nowhere = 0;
        for store in 0..STORES_TO_NOWHERE {
            // SAFETY: a variable of this function.
            unsafe { std::ptr::write_volatile(&raw mut nowhere, store) };
        }
    }

    /// Prefetches the packets of `bytes` that are needed soon, on processors where that helps.
    #[inline(always)]
    fn prefetch_peers(&self, packets: impl Iterator<Item = Packet>, bytes: usize) {
        if !self.prefetching.before_looking || self.patience.spin.is_zero() {
            return;
        }
        self.drain_store_buffer();
        for packet in packets {
            packet.prefetch_peers(bytes);
        }
    }

    /// Prefetches the lines of the next packet for writing. Not when ranks share a core: the lines would be evicted first.
    #[inline(always)]
    fn prefetch_write(&self, packets: &Shared<i64>, bytes: usize) {
        if self.patience.spin.is_zero() {
            return;
        }
        let span = packets.span();
        if let Some(segment) = self.segment(span.segment) {
            let next = Lines::of(segment.hint(&span), bytes, packets.len() / LINE_WORDS);
            if self.prefetching.few_at_once && next.are_many() {
                // If several packets are put in a row, the lines of the last one are prefetched later, and those of the
                // others now.
                self.next_lines.replace(next).prefetch();
            } else {
                next.prefetch();
            }
        }
    }

    #[inline(always)]
    pub(super) fn get_packet_now(&self, dst: &Span, packets: &Packets, epoch: Epoch, at: At) -> Result<()> {
        let bytes = span_bytes(dst);
        if bytes == 0 {
            return Ok(());
        }
        let to = self.resolve(dst, true, at)?;
        let (packet, flag) = self.packet(packets, bytes, epoch, at)?;
        let raised = &packets.raised();
        let whose = (raised, raised.rank());
        if let Some(neighbours) = &self.neighbours {
            self.look_for(neighbours, packet, flag, *raised, epoch, at);
        }
        self.drain_store_buffer();
        if is_beside_flag(bytes) {
            self.await_packet(packet, flag, whose, epoch, at)?;
            // SAFETY: `to` was resolved for writing `bytes` bytes.
            unsafe { packet.drain(to, bytes) };
            self.next_lines.take().prefetch();
            return Ok(());
        }
        check_overlap(to, packet.payload(bytes), bytes, 0, at)?;
        self.await_packet(packet, flag, whose, epoch, at)?;
        // SAFETY: both were resolved for `bytes` bytes, and do not overlap.
        unsafe { arith::copy(to, packet.payload(bytes), bytes) };
        self.next_lines.take().prefetch();
        Ok(())
    }

    /// Polls for a rank's packet for a while, if that rank is on another core and all ranks on this core have arrived
    /// in this epoch: then no rank here has work before it arrives.
    #[inline(never)]
    fn look_for(
        &self,
        neighbours: &Neighbours,
        packet: Packet,
        flag: Flag,
        raised: Signal,
        epoch: Epoch,
        at: At,
    ) {
        let peer = raised.rank();
        let is_here = |rank| {
            let found = self.signal_on(&raised, rank, at);
            found.is_ok_and(|found| Compare::Ge.holds(found.cell.load(), epoch.into()))
        };
        let ranks = 0..raised.ranks();
        if neighbours.among(&ranks).all(|rank| rank != peer && is_here(rank)) {
            let came = |_| packet.has_come(flag);
            neighbours.spin_for_others(std::iter::once(peer), came);
        }
    }

    /// Resolves the packets of all ranks, of `bytes` each.
    #[inline(always)]
    fn peer_packets(&self, packets: &Packets, bytes: usize, epoch: Epoch, at: At) -> Result<PeerPackets> {
        let raised = &packets.raised();
        let (me, ranks) = (packets.me(), packets.ranks());
        if ranks == 0 || ranks > MAX_RANKS || (raised.rank(), raised.ranks()) != (me, ranks) {
            return Err(not_of_one_domain((me, ranks), (raised.rank(), raised.ranks())));
        }
        let span = lines_for(packets, bytes, epoch)?;
        let segment = self.segment(span.segment);
        let first = segment.and_then(|segment| segment.resolve_on_all(&span));
        Ok(PeerPackets {
            first: first.ok_or_else(|| not_mapped(span.segment, span.byte_range(), at))?,
            stride: usize::try_from(span.stride).unwrap_or(0),
            me,
            ranks,
            flag: self.flag(segment, epoch),
        })
    }

    /// Waits for the packets of all ranks and reduces them, with my part in its place among them.
    #[inline(always)]
    pub(super) fn reduce_packets_now(
        &self,
        (dst, mine): (&Span, &Span),
        packets: &Packets,
        op: ReduceOp,
        epoch: Epoch,
        at: At,
    ) -> Result<()> {
        Error::check_operands("my part", mine, dst, at)?;
        let (bytes, raised) = (span_bytes(dst), &packets.raised());
        let found = self.peer_packets(packets, bytes, epoch, at)?;
        self.prefetch_peers(
            others(found.me, 0..found.ranks).map(|rank| found.packet_of(rank)),
            bytes,
        );
        let to = self.resolve(dst, true, at)?;
        let from = if mine == dst {
            to
        } else {
            self.resolve(mine, false, at)?
        };
        check_overlap(to, from, bytes, found.me.0 as usize, at)?;
        if bytes == 0 {
            return Ok(());
        }
        // SAFETY: it was resolved to `bytes` bytes.
        let (from, _kept) = unsafe { Source::copied_if(must_be_copied(mine), from, bytes) };
        let reduce = arith::reducer(dst.dtype);
        let mut room = Pointers::new(std::ptr::null());
        let sources = room.of(found.ranks as usize);
        if let Some(neighbours) = &self.neighbours {
            for rank in neighbours.among(&(0..found.ranks)) {
                self.await_packet(found.packet_of(rank), found.flag, (raised, rank), epoch, at)?;
            }
            let came = |rank| found.packet_of(rank).has_come(found.flag);
            neighbours.spin_for_others(others(found.me, 0..found.ranks), came);
        }
        self.drain_store_buffer();
        for rank in (0..found.ranks).map(Rank) {
            sources[rank.0 as usize] = if rank == found.me {
                from
            } else {
                // Reduced in place: the packet stays there until the epoch after next.
                let packet = found.packet_of(rank);
                self.await_packet(packet, found.flag, (raised, rank), epoch, at)?;
                packet.payload(bytes).cast_const()
            };
        }
        // SAFETY: the sources are packets or my part, which do not overlap `to` or are it; all were resolved for `bytes` bytes.
        unsafe { reduce(op, to, sources, dst_len(dst)) };
        self.next_lines.take().prefetch();
        Ok(())
    }

    #[inline(always)]
    fn await_packet(
        &self,
        packet: Packet,
        flag: Flag,
        whose: (&Signal, Rank),
        epoch: Epoch,
        at: At,
    ) -> Result<()> {
        for _ in 0..self.eager_looks {
            if packet.has_come(flag) {
                return Ok(());
            }
            std::hint::spin_loop();
        }
        self.await_packet_long(packet, flag, whose.0.on(whose.1)?, epoch, at)
    }

    /// Takes the signal by value, like all functions that are rarely called: a handle behind a reference must lie in
    /// memory, and every instruction would read it from there.
    #[cold]
    fn await_packet_long(
        &self,
        packet: Packet,
        flag: Flag,
        raised: Signal,
        epoch: Epoch,
        at: At,
    ) -> Result<()> {
        let awaited = self.signal(&raised, at)?;
        let astray = || {
            self.astray(awaited, (Compare::Ge, epoch.into()), at)
                .unwrap_or_else(|| stray(&raised, at))
        };
        if let Some(observer) = &self.observer {
            observer.waits();
        }
        let start = (!self.patience.spin.is_zero()).then(Instant::now);
        while start.is_some_and(|start| start.elapsed() < self.patience.spin)
            && self
                .exit(awaited.segment, awaited.name.on(), Looking::Awake)
                .is_none()
        {
            for _ in 0..LOOKS {
                let seen = packet.flag().seen();
                if seen == flag.0 {
                    return Ok(());
                }
                if (seen ^ flag.0) & u64::from(u32::MAX) == 0 {
                    return Err(astray());
                }
                std::hint::spin_loop();
            }
        }
        // The signal of a rank follows its packets, so a sleeper on the signal finds the packet. The flag is better
        // evidence than the note beside the signal, which may belong to a later call by now.
        self.wait_long(awaited, (Compare::Ge, epoch.into()), at)?;
        match packet.flag().seen() {
            seen if seen == flag.0 => Ok(()),
            _ => Err(astray()),
        }
    }
}

#[cold]
fn not_of_one_domain(packets: (Rank, u32), raised: (Rank, u32)) -> Error {
    let ((me, ranks), (rank, all)) = (packets, raised);
    Error::failed(format!(
        "packets of rank {me} of {ranks} and a signal of rank {rank} of {all}; they must be of one domain of at most \
         {MAX_RANKS}, and mine"
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
