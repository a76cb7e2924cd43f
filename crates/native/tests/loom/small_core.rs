//! A `Core` of loom's cells and bytes: just enough for kernels that store, meet, load and exchange packets.

use super::PATIENCE;
use loom::cell::UnsafeCell;
use ringwork_isa::{
    Attribution, Barrier, CanRead, CanWrite, Compare, Core, Destinations, Device, Element, ElementType,
    Epoch, Error, LINE_BYTES, Notify, OwnSignal, Packets, Rank, Readable, ReduceOp, Region, Result, Segment,
    Shared, Signal, Signals, Sources, Span, TileValues, Work, Writable,
};
use ringwork_native::cell::Cell;
use ringwork_native::flag::FlagWord;
use std::future::{Future, ready};

/// Windows of a few bytes and one signal cell for each rank. All ranks share it.
pub(crate) struct SmallCore {
    cells: Vec<Cell>,
    bytes: Vec<UnsafeCell<u8>>,
    window_bytes: usize,
    /// A flag for each line of all windows; the first lines of packets use theirs.
    flags: Vec<FlagWord>,
    /// Where the packets begin in a window.
    packets_begin: usize,
    /// Readers of packets sleep before they look.
    sleeps: bool,
}

impl SmallCore {
    pub(crate) fn new(ranks: u32, window_bytes: usize) -> SmallCore {
        SmallCore {
            cells: (0..ranks).map(|_| Cell::default()).collect(),
            bytes: (0..ranks as usize * window_bytes)
                .map(|_| UnsafeCell::new(0))
                .collect(),
            window_bytes,
            flags: Vec::new(),
            packets_begin: 0,
            sleeps: false,
        }
    }

    /// Its windows have packets from this byte on.
    pub(crate) fn with_packets(self, packets_begin: usize, sleeps: bool) -> SmallCore {
        let lines = (self.window_bytes - packets_begin) / LINE_BYTES * self.cells.len();
        SmallCore {
            flags: (0..lines).map(|_| FlagWord::default()).collect(),
            packets_begin,
            sleeps,
            ..self
        }
    }

    /// The flag of the packet of an epoch.
    fn flag(&self, packets: &Packets, epoch: Epoch) -> &FlagWord {
        let place = packets.at(epoch).span();
        let first = place.byte_range().unwrap().start as usize - self.packets_begin;
        let each = (self.window_bytes - self.packets_begin) / LINE_BYTES;
        let rank = place.rank.0 as usize;
        &self.flags[rank * each + (first - rank * self.window_bytes) / LINE_BYTES]
    }

    /// The payload of the packet of an epoch.
    fn payload(&self, packets: &Packets, epoch: Epoch, like: &Span) -> &[UnsafeCell<u8>] {
        self.bytes(&packets.payload(epoch, like))
    }

    fn ranks(&self) -> u32 {
        u32::try_from(self.cells.len()).unwrap()
    }

    /// The one signal of each rank.
    pub(crate) fn signals(&self, me: u32) -> Signals {
        Signals {
            segment: Segment(1),
            base: 0,
            stride: 128,
            count: 1,
            me: Rank(me),
            ranks: self.ranks(),
        }
    }

    pub(crate) fn barrier(&self, me: u32) -> Barrier {
        Barrier::new(self.signals(me))
    }

    pub(crate) fn scratch<T: Element>(&self, me: u32) -> Shared<T> {
        Region::from_span(Span {
            segment: Segment(1),
            base: 0,
            stride: self.window_bytes as u64,
            me: Rank(me),
            rank: Rank(me),
            ranks: self.ranks(),
            dtype: T::DTYPE,
            start: 0,
            len: (self.window_bytes / size_of::<T>()) as u64,
        })
        .unwrap()
    }

    fn cell(&self, signal: &Signal) -> &Cell {
        &self.cells[signal.rank().0 as usize]
    }

    fn bytes(&self, span: &Span) -> &[UnsafeCell<u8>] {
        let range = span.byte_range().unwrap();
        &self.bytes[range.start as usize..range.end as usize]
    }
}

fn copy(to: &[UnsafeCell<u8>], from: &[UnsafeCell<u8>]) {
    for (to, from) in to.iter().zip(from) {
        // SAFETY: loom checks that no other thread writes it.
        let byte = from.with(|at| unsafe { *at });
        // SAFETY: loom checks that no other thread is at it.
        to.with_mut(|at| unsafe { *at = byte });
    }
}

/// For the instructions that the models do not use.
fn unused<T>() -> impl Future<Output = Result<T>> {
    ready(Err(Error::failed("not an instruction of this core")))
}

impl Core for SmallCore {
    fn device(&self) -> Device {
        Device(0)
    }

    // All threads share this core, and it names no lines: each call gets one that nobody else has.
    fn attribution(&self) -> &Attribution {
        Box::leak(Box::default())
    }

    fn copy<T: ElementType>(
        &self,
        _: impl Writable<T>,
        _: impl Readable<T>,
    ) -> impl Future<Output = Result<()>> {
        unused()
    }

    fn reduce<T: ElementType>(
        &self,
        _: impl Destinations<T>,
        _: impl Sources<T>,
        _: ReduceOp,
    ) -> impl Future<Output = Result<()>> {
        unused()
    }

    fn load<T: ElementType>(&self, src: impl Readable<T>) -> impl Future<Output = Result<T::Tile>> {
        let span = src.span();
        let bytes = self.bytes(&span);
        ready(Ok(T::Tile::filled(span.dtype, bytes.len(), |to| {
            for (to, byte) in to.iter_mut().zip(bytes) {
                // SAFETY: loom checks that no other thread writes it.
                *to = byte.with(|at| unsafe { *at });
            }
        })))
    }

    fn store<T: ElementType>(
        &self,
        dst: impl Writable<T>,
        tile: &T::Tile,
    ) -> impl Future<Output = Result<()>> {
        for (byte, value) in self.bytes(&dst.span()).iter().zip(tile.bytes()) {
            // SAFETY: loom checks that no other thread is at it.
            byte.with_mut(|at| unsafe { *at = *value });
        }
        ready(Ok(()))
    }

    fn spend(&self, _: Work) -> impl Future<Output = Result<()>> {
        unused()
    }

    fn put_packet<T: ElementType>(
        &self,
        packets: &Packets,
        src: Region<T, impl CanRead>,
        epoch: Epoch,
    ) -> impl Future<Output = Result<()>> {
        let src = src.span();
        copy(self.payload(packets, epoch, &src), self.bytes(&src));
        self.flag(packets, epoch).raise(i32::from(epoch) as u64);
        ready(Ok(()))
    }

    fn get_packet<T: ElementType>(
        &self,
        dst: Region<T, impl CanWrite>,
        packets: &Packets,
        epoch: Epoch,
    ) -> impl Future<Output = Result<()>> {
        // As the native core: look; if it has not come, wait for the signal behind it and look again.
        let flag = self.flag(packets, epoch);
        let has_come = || flag.seen() == i32::from(epoch) as u64;
        if self.sleeps || !has_come() {
            let satisfied = |value| Compare::Ge.holds(value, epoch.into());
            let raised = self.cell(&packets.raised());
            raised.wait(PATIENCE, None, satisfied, |_| None::<()>).unwrap();
            assert!(has_come(), "the peer raised its signal without the packets");
        }
        let dst = dst.span();
        copy(self.bytes(&dst), self.payload(packets, epoch, &dst));
        ready(Ok(()))
    }

    fn reduce_packets<T: ElementType>(
        &self,
        _: Region<T, impl CanWrite>,
        _: Region<T, impl CanRead>,
        _: &Packets,
        _: ReduceOp,
        _: Epoch,
    ) -> impl Future<Output = Result<()>> {
        unused()
    }

    fn notify(&self, signal: Signal, how: Notify) -> impl Future<Output = Result<()>> {
        async move {
            match how {
                Notify::Set(value) => self.cell(&signal).set(value),
                Notify::Add(amount) => self.cell(&signal).add(amount),
            }
            Ok(())
        }
    }

    fn wait(
        &self,
        signal: Signal,
        compare: Compare,
        operand: impl Into<i32>,
    ) -> impl Future<Output = Result<()>> {
        let operand = operand.into();
        async move {
            let satisfied = |value| compare.holds(value, operand);
            let waited = self.cell(&signal).wait(PATIENCE, None, satisfied, |_| None::<()>);
            waited.unwrap();
            Ok(())
        }
    }

    fn test(
        &self,
        signal: Signal,
        compare: Compare,
        operand: impl Into<i32>,
    ) -> impl Future<Output = Result<bool>> {
        let operand = operand.into();
        async move { Ok(compare.holds(self.cell(&signal).load(), operand)) }
    }

    fn peek(&self, signal: Signal) -> impl Future<Output = Result<i32>> {
        async move { Ok(self.cell(&signal).load()) }
    }

    fn own_value(&self, signal: OwnSignal) -> impl Future<Output = Result<i32>> {
        self.peek(signal.signal())
    }
}
