//! A `Core` of loom's cells and bytes: just enough for kernels that store, meet and load.

use super::PATIENCE;
use loom::cell::UnsafeCell;
use ringwork_isa::{
    Attribution, Barrier, CanRead, CanWrite, Compare, Core, Destinations, Device, Element, ElementType,
    Epoch, Error, Notify, OwnSignal, Packets, Rank, Readable, ReduceOp, Region, Result, Segment, Shared,
    Signal, Signals, Sources, Span, TileValues, Work, Writable,
};
use ringwork_native::cell::Cell;
use std::future::{Future, ready};

/// Windows of a few bytes and one signal cell for each rank. All ranks share it.
pub(crate) struct SmallCore {
    cells: Vec<Cell>,
    bytes: Vec<UnsafeCell<u8>>,
    window_bytes: usize,
}

impl SmallCore {
    pub(crate) fn new(ranks: u32, window_bytes: usize) -> SmallCore {
        SmallCore {
            cells: (0..ranks).map(|_| Cell::default()).collect(),
            bytes: (0..ranks as usize * window_bytes)
                .map(|_| UnsafeCell::new(0))
                .collect(),
            window_bytes,
        }
    }

    fn ranks(&self) -> u32 {
        u32::try_from(self.cells.len()).unwrap()
    }

    pub(crate) fn barrier(&self, me: u32) -> Barrier {
        Barrier::new(Signals {
            segment: Segment(1),
            base: 0,
            stride: 128,
            count: 1,
            me: Rank(me),
            ranks: self.ranks(),
        })
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
        _: &Packets,
        _: Region<T, impl CanRead>,
        _: Epoch,
    ) -> impl Future<Output = Result<()>> {
        unused()
    }

    fn get_packet<T: ElementType>(
        &self,
        _: Region<T, impl CanWrite>,
        _: &Packets,
        _: Epoch,
    ) -> impl Future<Output = Result<()>> {
        unused()
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
