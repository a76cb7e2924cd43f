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
//!
//! # Features
//! Both are on by default and can be left out (`default-features = false`) to build in less time:
//! - `sim`: simulated machines, with the parser of their descriptions.
//! - `collectives`: the collectives and the communicator.
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
pub use ringwork_registry as registry;
pub use ringwork_runtime as runtime;
pub use ringwork_runtime::{Error, Result};
#[cfg(feature = "sim")]
pub use ringwork_sim as sim;
pub use ringwork_timeline as timeline;

#[doc(hidden)]
pub use ringwork_native::__kernel;
#[doc(hidden)]
pub use ringwork_runtime::__orchestration;

/// Everything that a program with kernels and an orchestration needs.
///
/// `Result` here is the kernels' one; a host program's is [`ringwork::Result`](crate::Result).
pub mod prelude {
    pub use ringwork_isa::elements::*;
    pub use ringwork_isa::{
        Barrier, Compare, Core, Device, Dtype, Element, Error, Float, In, InOut, Notify, Out, Rank, ReduceOp,
        Region, Result, Shared, Signal, Signals, Task, Tile, TileOps, part_range, with_dtype,
    };
    pub use ringwork_macros::{kernel, orchestration};
    pub use ringwork_runtime::{
        Buffer, Captured, ChipOrchestrator, CoreKind, Domain, DomainSpec, Intermediate, Node, Orchestrator,
        Pod, Tensor,
    };
}

/// The programs in the pages that people read first, as tests.
#[cfg(doctest)]
mod pages {
    #[doc = include_str!("../../../README.md")]
    struct Readme;
    #[doc = include_str!("../../../docs/kernels.md")]
    struct Kernels;
    #[doc = include_str!("../../../docs/memory.md")]
    struct Memory;
    #[doc = include_str!("../../../docs/simulator.md")]
    struct Simulator;
    #[doc = include_str!("../../../docs/orchestration.md")]
    struct Orchestration;
}
