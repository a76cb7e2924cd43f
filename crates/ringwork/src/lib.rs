//! Multi-chip programs: kernels, the memory they share, and the order they run in.
//!
//! This crate is what a program adds to its `Cargo.toml`; it only gathers the layers below. The words are
//! those of [`isa`]: read its front page first.
//!
//! ```no_run
//! use ringwork::prelude::*;
//!
//! /// Every chip puts its rank where its neighbour finds it.
//! #[kernel]
//! async fn pass_on<C: Core>(core: &C, from: In<i32>, to: Out<i32>, slot: Shared<i32>, meet: Barrier) -> Result<()> {
//!     let next = Rank((slot.me().0 + 1) % slot.ranks());
//!     core.copy(slot.on(next)?, from).await?; // into the neighbour's window
//!     meet.arrive_and_wait(core).await?;
//!     core.copy(to, slot).await // out of my own
//! }
//!
//! fn main() -> ringwork::Result<()> {
//!     let node = Node::builder().devices(0..4).launch()?; // four processes, ready
//!     let chips = node.devices();
//!     let ring = node.open_domain(&DomainSpec::new("ring", chips.clone()).buffer::<i32>("slot", 1).barrier("meet"))?;
//!     let from = chips.iter().map(|chip| node.tensor(*chip, &[chip.0 as i32])).collect::<ringwork::Result<Vec<_>>>()?;
//!     let to = chips.iter().map(|chip| node.zeros::<i32>(*chip, 1)).collect::<ringwork::Result<Vec<_>>>()?;
//!     node.run(|orch| {
//!         orch.group(chips.iter().copied(), |chip| {
//!             let i = chip.0 as usize;
//!             Ok(pass_on::task(&from[i], &to[i], ring.buffer("slot")?, ring.barrier("meet")?))
//!         })
//!     })?;
//!     assert_eq!(to[0].read()?, [3]);
//!     Ok(()) // chips, windows and memory are gone when `node` is
//! }
//! ```
#![forbid(unsafe_code)]

pub use ringwork_collectives as collectives;
pub use ringwork_isa as isa;
pub use ringwork_macros::kernel;
pub use ringwork_native as native;
pub use ringwork_runtime as runtime;
pub use ringwork_runtime::{Error, Result};

#[doc(hidden)]
pub use ringwork_native::__kernel;

/// Everything that a program with kernels and an orchestration needs.
///
/// `Result` here is the kernels' one; a host program's is [`ringwork::Result`](crate::Result).
pub mod prelude {
    pub use ringwork_isa::{
        Barrier, Compare, Core, Device, Dtype, Element, Error, In, InOut, Notify, Out, Rank, ReduceOp,
        Region, Result, Shared, Signal, Signals, Task, Tile, bf16, f16, part_range, with_dtype,
    };
    pub use ringwork_macros::kernel;
    pub use ringwork_runtime::{Buffer, Domain, DomainSpec, Node, Orchestrator, Tensor};
}
