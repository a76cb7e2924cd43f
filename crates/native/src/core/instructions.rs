//! The instructions. Each is done when it is issued, and its future is nothing but the result.
//!
//! What is kept in a future until it is awaited is written to memory and read back in other pieces, which the processor
//! does only after all stores before; and that is the time of a whole message when one of them is to a line that another
//! core has.

use super::NativeCore;
use crate::activity::Doing;
use crate::arith;
use ringwork_isa::{
    Attribution, CanRead, CanWrite, Compare, Core, Device, Element, Float, Notify, ReduceOp, Region, Result,
    Shared, Signal, Sources, Tile, Work,
};
use std::future::ready;
use std::mem::ManuallyDrop;
use std::ops::Range;
use std::pin::Pin;
use std::task::{Context, Poll};

/// An instruction that is done: its result, for whoever awaits it.
///
/// Not dropped with its kernel: a kernel that has nothing to drop need not lie in memory, where a panic would find it, and its
/// handles stay in registers. What is lost is the error of an instruction that nobody awaits.
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
    fn copy<T: Element>(
        &self,
        dst: Region<T, impl CanWrite>,
        src: Region<T, impl CanRead>,
    ) -> impl Future<Output = Result<()>> {
        let at = self.attribution.site();
        done(self.copy_now(&dst.span(), &src.span(), at))
    }

    #[track_caller]
    #[inline(always)]
    fn reduce<T: Element>(
        &self,
        dst: Region<T, impl CanWrite>,
        sources: impl Sources<T>,
        op: ReduceOp,
    ) -> impl Future<Output = Result<()>> {
        let at = self.attribution.site();
        done(self.reduce_now::<T>(&dst.span(), &sources, op, at))
    }

    #[track_caller]
    #[inline(always)]
    fn reduce_to_all<T: Element>(&self, region: Shared<T>, op: ReduceOp) -> impl Future<Output = Result<()>> {
        let at = self.attribution.site();
        done(self.reduce_to_all_now::<T>(&region.span(), op, at))
    }

    #[track_caller]
    #[inline(always)]
    fn reduce_to_both<T: Element>(
        &self,
        dst: Region<T, impl CanWrite>,
        shared: Shared<T>,
        sources: impl Sources<T>,
        op: ReduceOp,
    ) -> impl Future<Output = Result<()>> {
        let at = self.attribution.site();
        done(self.reduce_to_both_now::<T>(&dst.span(), &shared.span(), &sources, op, at))
    }

    #[track_caller]
    fn load<T: Element>(&self, src: Region<T, impl CanRead>) -> impl Future<Output = Result<Tile<T>>> {
        let at = self.attribution.site();
        ready(self.load_now(&src.span(), at))
    }

    #[track_caller]
    fn store<T: Element>(
        &self,
        dst: Region<T, impl CanWrite>,
        tile: &Tile<T>,
    ) -> impl Future<Output = Result<()>> {
        let at = self.attribution.site();
        done(self.store_now(&dst.span(), tile, at))
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
    fn matmul_add<T: Float>(
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
    fn put_packet<T: Element>(
        &self,
        packets: Shared<i64>,
        src: Region<T, impl CanRead>,
        epoch: i32,
    ) -> impl Future<Output = Result<()>> {
        let at = self.attribution.site();
        done(self.put_packet_now(&packets, &src.span(), epoch, at))
    }

    #[inline(always)]
    fn foresee_packet(&self, packet: Shared<i64>, bytes: usize) {
        self.foresee_packet_now(&packet, bytes);
    }

    #[track_caller]
    #[inline(always)]
    fn get_packet<T: Element>(
        &self,
        dst: Region<T, impl CanWrite>,
        packets: Shared<i64>,
        raised: Signal,
        epoch: i32,
    ) -> impl Future<Output = Result<()>> {
        let at = self.attribution.site();
        done(self.get_packet_now(&dst.span(), &packets, &raised, epoch, at))
    }

    #[track_caller]
    #[inline(always)]
    fn reduce_packets<T: Element>(
        &self,
        dst: Region<T, impl CanWrite>,
        mine: Region<T, impl CanRead>,
        packets: Shared<i64>,
        raised: Signal,
        op: ReduceOp,
        epoch: i32,
    ) -> impl Future<Output = Result<()>> {
        let at = self.attribution.site();
        done(self.reduce_packets_now::<T>((&dst.span(), &mine.span()), &packets, &raised, op, epoch, at))
    }

    #[track_caller]
    #[inline(always)]
    fn notify(&self, signal: Signal, how: Notify) -> impl Future<Output = Result<()>> {
        let at = self.attribution.site();
        let found = self.signal(&signal, at);
        done(found.map(|found| self.notify_now(found.cell, how, at)))
    }

    #[track_caller]
    #[inline(always)]
    fn wait(&self, signal: Signal, compare: Compare, operand: i32) -> impl Future<Output = Result<i32>> {
        let at = self.attribution.site();
        let found = self.signal(&signal, at);
        done(found.and_then(|found| self.wait_now(found, compare, operand, at)))
    }

    #[track_caller]
    #[inline(always)]
    fn wait_on(
        &self,
        signal: Signal,
        ranks: Range<u32>,
        compare: Compare,
        operand: i32,
    ) -> impl Future<Output = Result<()>> {
        let at = self.attribution.site();
        done(self.wait_on_now(&signal, ranks, (compare, operand), at))
    }

    #[track_caller]
    #[inline(always)]
    fn peek(&self, signal: Signal) -> impl Future<Output = Result<i32>> {
        let found = self.signal(&signal, self.attribution.site());
        done(found.map(|found| found.cell.load()))
    }

    #[track_caller]
    #[inline(always)]
    fn recall(&self, signal: Signal) -> impl Future<Output = Result<i32>> {
        let found = self.signal(&signal, self.attribution.site());
        done(found.map(|found| found.cell.written()))
    }
}
