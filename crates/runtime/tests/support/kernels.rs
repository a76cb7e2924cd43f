//! Kernels that run on a native node and on a simulated one.

use ringwork_isa::{Barrier, Core, Element, Error, InOut, Out, Rank, Result, Shared, TileOps};
use ringwork_macros::kernel;

/// x = x + 1 on this chip's own memory.
#[kernel]
pub(crate) async fn increment<C: Core>(core: &C, x: InOut<i32>) -> Result<()> {
    let one = core.load(x).await?;
    let ones = ringwork_isa::Tile::new(vec![1; one.len()]);
    core.store(x, &core.add(&one, &ones).await?).await
}

/// y = the neighbour's slot, through the window.
#[kernel]
pub(crate) async fn shift<C: Core, T: Element>(
    core: &C,
    y: Out<T>,
    slot: Shared<T>,
    meet: Barrier,
) -> Result<()> {
    meet.arrive_and_wait(core).await?;
    let next = Rank((slot.me().0 + 1) % slot.ranks());
    core.copy(y, slot.on(next)?).await?;
    meet.arrive_and_wait(core).await
}

#[kernel]
pub(crate) async fn meet_or_fail<C: Core>(core: &C, meet: Barrier, bad: u32) -> Result<()> {
    if meet.rank().0 == bad {
        return Err(Error::failed("this rank has had enough"));
    }
    meet.arrive_and_wait(core).await
}
