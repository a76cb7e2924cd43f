//! Every collective algorithm, once, over [`Core`](ringwork_isa::Core).
//!
//! This layer depends on `isa` alone: it knows regions, signals and a core, and never a process, a clock or a
//! network. Each collective is an `async fn` that all members of a domain call, with the same count, in the same
//! order; the same source runs native, simulated and in the checker.
//!
//! ```
//! use ringwork_collectives::{Team, all_reduce};
//! use ringwork_isa::{Algorithm, Core, InOut, ReduceOp, Result};
//!
//! /// Replaces `grad` by its sum over all ranks, in place.
//! async fn sum_gradients<C: Core>(core: &C, team: Team, grad: InOut<f32>) -> Result<()> {
//!     all_reduce(core, team, grad.into(), grad.into(), ReduceOp::Sum, Algorithm::TwoPhase).await
//! }
//! ```
//!
//! # Staged or in the window
//! The functions at the root of this crate take data from anywhere on the chip and stage it through the
//! scratch buffer of a [`Team`]; what is larger than the scratch is moved in chunks. Those in [`window`]
//! work on data that lives in a window already, and copy nothing twice.
//!
//! The algorithms in [`packets`] are for small data: data and notification travel together.
//!
//! The algorithms in [`network`] are for machines whose links matter: they push tiles through queues between
//! neighbours, and need no scratch and no barrier.
//!
//! # How data is dealt to ranks
//! Where a collective cuts data into one part per rank, part `r` of a total of `N` elements is
//! [`part_range(N, ranks, r)`](ringwork_isa::part_range): equal parts if `N` divides, else the first
//! `N % ranks` parts are one longer.
//!
//! # Contract
//! - **COL-1 (exact).** Direct algorithms accumulate every element in rank order 0..n in
//!   [`Element::Wide`](ringwork_isa::Element::Wide) and round once. Their results are the same bits on every rank,
//!   for every chunking and for each of these algorithms. The rings promise only that all ranks get the same bits;
//!   [`Algorithm::is_exact`](ringwork_isa::Algorithm::is_exact) tells the two kinds apart.
//! - **COL-2 (in place).** The output may be the same memory as the input, or the corresponding part of it: every
//!   chunk is staged before any element of its output is written.
//! - **COL-3 (any mixture).** Collectives may follow each other on one team in any order, any number of
//!   times, with any element types, and nothing needs to be reset between them. See [`Team`].
//! - **COL-4 (checked first).** Lengths, roots and capacities are checked before anything is written or signalled: a
//!   refused call has no effect.
//! - **COL-5 (nothing to do).** A call on no elements returns at once and does not synchronise.
#![forbid(unsafe_code)]

pub mod all_reduce;
mod all_to_all_v;
mod arguments;
mod barrier;
mod blocks;
mod caches;
pub mod catalogue;
mod chunk;
pub mod domain;
pub mod network;
pub mod packets;
mod send_recv;
pub mod table;
mod team;
pub mod window;

pub use all_reduce::all_reduce;
pub use all_to_all_v::all_to_all_v;
pub use barrier::barrier;
pub use catalogue::staged::*;
pub use ringwork_isa::Algorithm;
pub use send_recv::{Post, exchange, recv, send};
pub use team::Team;
