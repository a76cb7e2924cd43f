//! Multi-chip programs: kernels, the memory they share, and the order they run in.
//!
//! This crate is what a program adds to its `Cargo.toml`; it only gathers the layers below. The words are
//! those of [`isa`]: read its front page first.
//!
//! ```
#![doc = include_str!("../examples/sum.rs")]
//! ```
//!
//! # The layers
//! - [`isa`]: the words as types, and the instructions of a kernel.
//! - [`kernel`] and [`orchestration`]: the attributes that make a function submittable.
//! - [`registry`]: the kernels of a program, found at link time.
//! - [`native`]: shared memory, signals and processes of one host.
//! - [`check`]: finds races and deadlocks of kernels, or proves that there are none.
//! - [`layout`]: what lies where in the windows of a domain.
//! - [`timeline`]: what ran where and when, as a page or for Perfetto.
//! - [`runtime`]: the node, its domains, its tensors, its runs.
#![cfg_attr(
    feature = "sim",
    doc = "- [`sim`]: described machines, and what runs on them, in virtual time."
)]
#![cfg_attr(
    feature = "collectives",
    doc = "- [`collectives`]: all-reduce and its relatives, as functions over a core, and their catalogue.
- [`kernels`]: the collectives as kernels to submit.
- [`communicator`]: the collectives for programs in which every rank runs the same code."
)]
#![cfg_attr(
    feature = "parallel",
    doc = "- [`parallel`]: tensor-parallel layers, over a communicator and as tasks of a node."
)]
//!
//! # Features
//! All are on by default and can be left out (`default-features = false`):
//! - `before-main`: a program that a node starts as a chip becomes one before its `main`. Without it, chips are a program
//!   of their own, whose main is [`native::chip::main`] and which [`NodeBuilder::program`](runtime::NodeBuilder::program)
//!   names. A shared library never becomes a chip, with or without.
//! - `sim`: simulated machines, with the parser of their descriptions.
//! - `collectives`: the collectives and the communicator.
//! - `parallel`: tensor-parallel layers; it includes `collectives`.
#![forbid(unsafe_code)]

#[cfg(all(feature = "collectives", feature = "sim"))]
pub use ringwork_ccl as ccl;
pub use ringwork_check as check;
#[cfg(feature = "collectives")]
pub use ringwork_collectives as collectives;
#[cfg(feature = "collectives")]
pub use ringwork_communicator as communicator;
pub use ringwork_isa as isa;
#[cfg(feature = "collectives")]
pub use ringwork_kernels as kernels;
pub use ringwork_layout as layout;
pub use ringwork_macros::{kernel, orchestration};
pub use ringwork_native as native;
#[cfg(feature = "parallel")]
pub use ringwork_parallel as parallel;
pub use ringwork_registry as registry;
pub use ringwork_runtime as runtime;
pub use ringwork_runtime::Error;
#[cfg(feature = "sim")]
pub use ringwork_sim as sim;
pub use ringwork_timeline as timeline;

#[doc(hidden)]
pub use ringwork_native::__kernel;
#[doc(hidden)]
pub use ringwork_runtime::__orchestration;

/// The result of what a host program does; with a second parameter, any other result.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Everything that a program with kernels and an orchestration needs.
///
/// [`Error`](enum@Error) and [`Result`] are those of `main` and of orchestrations on the host. Under `#[kernel]` and `#[orchestration]`
/// the attribute makes `Result<()>` the kernels' result. A function that helps a kernel, and has no attribute, returns
/// [`KernelResult`](prelude::KernelResult).
///
/// ```
/// use ringwork::prelude::*;
///
/// #[kernel]
/// async fn scale<C: Core>(core: &C, y: InOut<f32>, by: f32) -> Result<()> {
///     if by == 0.0 {
///         return Err(KernelError::failed("a scale of 0 would lose everything"));
///     }
///     checked(core, y, by).await
/// }
///
/// async fn checked<C: Core>(core: &C, y: InOut<f32>, by: f32) -> KernelResult<()> {
///     let tile: Tile<f32> = core.load(y).await?;
///     let scaled = core.scale(&tile, by.into(), 0.0).await?;
///     core.store(y, &scaled).await
/// }
///
/// fn main() -> Result<()> {
///     let node = Node::builder().devices(0..1).launch()?;
///     let y = node.tensor(Device(0), &[1.5f32; 64])?;
///     node.run(|orch| orch.submit(Device(0), scale::task(&y, 2.0f32)).map(drop))?;
///     assert_eq!(y.read()?, [3.0; 64]);
///     Ok(())
/// }
/// ```
pub mod prelude {
    pub use crate::Result;
    pub use ringwork_isa::elements::*;
    pub use ringwork_isa::{
        Barrier, Compare, Core, Device, Dtype, Element, Error as KernelError, Float, In, InOut, Notify, Out,
        Rank, ReduceOp, Region, Result as KernelResult, Shared, Signal, Signals, Task, Tile, TileOps,
        part_range, with_dtype,
    };
    pub use ringwork_macros::{kernel, orchestration};
    pub use ringwork_runtime::{
        Buffer, Captured, ChipOrchestrator, CoreKind, Domain, DomainSpec, Error, Intermediate, Node,
        Orchestrator, PerChip, Pod, Tensor,
    };
}

/// Mistakes that must not compile. What the compiler says about them is in the `on_unimplemented` attributes of the traits.
///
/// A tensor of another element type than the kernel's parameter:
/// ```compile_fail,E0277
/// use ringwork::prelude::*;
/// #[kernel]
/// async fn copy<C: Core>(core: &C, x: In<f32>, y: Out<f32>) -> Result<()> {
///     core.copy(y, x).await
/// }
/// fn wrong(x: &Tensor<f64>, y: &Tensor<f32>) -> Task {
///     copy::task(x, y)
/// }
/// ```
///
/// Operands of a copy the wrong way round:
/// ```compile_fail,E0277
/// use ringwork::prelude::*;
/// async fn copy<C: Core>(core: &C, x: In<f32>, y: Out<f32>) -> KernelResult<()> {
///     core.copy(x, y).await
/// }
/// ```
#[cfg(doctest)]
mod refused {}

/// The programs in the pages that people read first, as tests.
#[cfg(doctest)]
mod pages {
    #[doc = include_str!("../../../README.md")]
    struct Readme;
    #[doc = include_str!("../../../docs/kernels.md")]
    struct Kernels;
    #[doc = include_str!("../../../docs/memory.md")]
    struct Memory;
    #[doc = include_str!("../../../docs/parallel.md")]
    struct Parallel;
    #[doc = include_str!("../../../docs/simulator.md")]
    struct Simulator;
    #[doc = include_str!("../../../docs/orchestration.md")]
    struct Orchestration;
}
