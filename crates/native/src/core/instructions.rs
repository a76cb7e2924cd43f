//! The instructions. Each is done when it is issued; its future only carries the result.
//!
//! A value that is kept in a future until it is awaited is written to memory and read back in other pieces. Such a
//! load cannot be forwarded from the store buffer; it waits for all earlier stores, which takes as long as a whole
//! message if one of them goes to a line that another core has.

use super::NativeCore;
use crate::arith;
use crate::trace::progress::Doing;
use ringwork_isa::{
    Attribution, CanRead, CanWrite, Compare, Core, Destinations, Device, ElementType, Epoch, Float, Notify,
    OwnSignal, Packets, Readable, ReduceOp, Region, Result, Signal, Sources, Tile, Work, Writable,
};
use std::future::ready;
use std::mem::ManuallyDrop;
use std::ops::Range;
use std::pin::Pin;
use std::task::{Context, Poll};

/// A finished instruction: its result, for the `await`. It has no destructor, so a kernel with no other destructors
/// needs no unwind path, and its handles stay in registers. The error of an instruction that is never awaited is
/// lost.
struct Done<R>(ManuallyDrop<Option<R>>);

#[inline(always)]
fn done<R>(result: R) -> Done<R> {
    Done(ManuallyDrop::new(Some(result)))
}

impl<R> Unpin for Done<R> {}

impl<R> Future for Done<R> {
    type Output = R;

    #[inline(always)]
    fn poll(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<R> {
        Poll::Ready(self.0.take().expect("it is awaited once"))
    }
}

impl Core for NativeCore {
    fn device(&self) -> Device {
        self.device
    }

    fn attribution(&self) -> &Attribution {
        &self.attribution
    }

    #[track_caller]
    #[inline(always)]
    fn copy<T: ElementType>(
        &self,
        dst: impl Writable<T>,
        src: impl Readable<T>,
    ) -> impl Future<Output = Result<()>> {
        let at = self.attribution.site();
        // Constant at compile time: regions are never blocks.
        if dst.block().is_some() || src.block().is_some() {
            return done(self.copy_block_now(&dst, &src, at));
        }
        done(self.copy_now(&dst.span(), &src.span(), at))
    }

    #[track_caller]
    #[inline(always)]
    fn reduce<T: ElementType>(
        &self,
        dsts: impl Destinations<T>,
        sources: impl Sources<T>,
        op: ReduceOp,
    ) -> impl Future<Output = Result<()>> {
        let at = self.attribution.site();
        done(self.reduce_now(&dsts, &sources, op, at))
    }

    #[track_caller]
    fn load<T: ElementType>(&self, src: impl Readable<T>) -> impl Future<Output = Result<T::Tile>> {
        let at = self.attribution.site();
        ready(match src.block() {
            None => self.load_now(&src.span(), at),
            Some(block) => self.load_block_now(&block, at),
        })
    }

    #[track_caller]
    fn store<T: ElementType>(
        &self,
        dst: impl Writable<T>,
        tile: &T::Tile,
    ) -> impl Future<Output = Result<()>> {
        let at = self.attribution.site();
        done(match dst.block() {
            None => self.store_now(&dst.span(), tile, at),
            Some(block) => self.store_block_now(&block, tile, at),
        })
    }

    #[track_caller]
    fn spend(&self, work: Work) -> impl Future<Output = Result<()>> {
        let doing = match work {
            Work::Vector { .. } => Doing::Vector,
            Work::Matrix { .. } => Doing::Matmul,
        };
        self.say(doing, self.attribution.site());
        done(Ok(()))
    }

    #[track_caller]
    fn matrix_product<T: Float>(
        &self,
        acc: Tile<T::Wide>,
        a: &Tile<T>,
        b: &Tile<T>,
    ) -> impl Future<Output = Result<Tile<T::Wide>>> {
        self.say(Doing::Matmul, self.attribution.site());
        ready(Tile::add_product(acc, a, b, arith::product::<T>))
    }

    #[track_caller]
    #[inline(always)]
    fn put_packet<T: ElementType>(
        &self,
        packets: &Packets,
        src: Region<T, impl CanRead>,
        epoch: Epoch,
    ) -> impl Future<Output = Result<()>> {
        let at = self.attribution.site();
        done(self.put_packet_now(packets, &src.span(), epoch, at))
    }

    #[track_caller]
    #[inline(always)]
    fn get_packet<T: ElementType>(
        &self,
        dst: Region<T, impl CanWrite>,
        packets: &Packets,
        epoch: Epoch,
    ) -> impl Future<Output = Result<()>> {
        let at = self.attribution.site();
        done(self.get_packet_now(&dst.span(), packets, epoch, at))
    }

    #[track_caller]
    #[inline(always)]
    fn reduce_packets<T: ElementType>(
        &self,
        dst: Region<T, impl CanWrite>,
        mine: Region<T, impl CanRead>,
        packets: &Packets,
        op: ReduceOp,
        epoch: Epoch,
    ) -> impl Future<Output = Result<()>> {
        let at = self.attribution.site();
        done(self.reduce_packets_now((&dst.span(), &mine.span()), packets, op, epoch, at))
    }

    #[track_caller]
    #[inline(always)]
    fn notify(&self, signal: Signal, how: Notify) -> impl Future<Output = Result<()>> {
        let at = self.attribution.site();
        let found = self.signal(&signal, at);
        done(found.and_then(|found| {
            if cfg!(debug_assertions) {
                ringwork_isa::Error::check_growth(&signal, found.cell.load(), how, at)?;
            }
            self.notify_now(found.cell, how, at);
            Ok(())
        }))
    }

    #[track_caller]
    #[inline(always)]
    fn wait(
        &self,
        signal: Signal,
        compare: Compare,
        operand: impl Into<i32>,
    ) -> impl Future<Output = Result<()>> {
        let at = self.attribution.site();
        let found = self.signal(&signal, at);
        done(found.and_then(|found| self.wait_now(found, compare, operand.into(), at)))
    }

    #[track_caller]
    #[inline(always)]
    fn wait_on(
        &self,
        signal: Signal,
        ranks: Range<u32>,
        compare: Compare,
        operand: impl Into<i32>,
    ) -> impl Future<Output = Result<()>> {
        let at = self.attribution.site();
        done(self.wait_on_now(&signal, ranks, (compare, operand.into()), at))
    }

    #[track_caller]
    #[inline(always)]
    fn test(
        &self,
        signal: Signal,
        compare: Compare,
        operand: impl Into<i32>,
    ) -> impl Future<Output = Result<bool>> {
        let found = self.signal(&signal, self.attribution.site());
        done(found.map(|found| compare.holds(found.cell.load(), operand.into())))
    }

    #[track_caller]
    #[inline(always)]
    fn peek(&self, signal: Signal) -> impl Future<Output = Result<i32>> {
        let found = self.signal(&signal, self.attribution.site());
        done(found.map(|found| found.cell.load()))
    }

    #[track_caller]
    #[inline(always)]
    fn own_value(&self, signal: OwnSignal) -> impl Future<Output = Result<i32>> {
        let found = self.signal(&signal.signal(), self.attribution.site());
        done(found.map(|found| found.cell.written()))
    }
}
