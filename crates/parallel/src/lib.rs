//! Tensor-parallel layers: Megatron's, over a communicator and as tasks of a node.
//!
//! A layer's weights are divided among the ranks of a tensor-parallel group. Each rank multiplies with its part, and one
//! collective puts the parts together. [`ParallelState`] and [`Grid`] say which ranks form such groups, [`Mapping`] has the
//! functions between what all ranks have and what each has a part of, and the layers are made of these:
//! [`ColumnParallelLinear`], [`RowParallelLinear`], [`VocabParallelEmbedding`], [`ParallelMlp`], [`ParallelAttention`]. All have
//! `forward` and `backward`. Values are f32 and accumulated in f32.
//!
//! A layer is written once, over a [`Group`]. Over a [`RankGroup`] every rank is a process with a communicator and works at
//! once; over a [`ChipGroup`] one orchestration submits the work of all ranks to the chips of a node, which may be simulated.
//! The local arithmetic is the same [`kernels`] in both.
//!
//! ```no_run
//! use ringwork_communicator::Communicator;
//! use ringwork_parallel::{ColumnParallelLinear, Dense, Matrix, ParallelState, RankGroup};
//!
//! # fn main() -> Result<(), ringwork_parallel::Error> {
//! let state = ParallelState::initialize(Communicator::from_env()?, 2, 1)?; // tensor groups of 2, no pipeline
//! let group = RankGroup::new(state.tensor());
//! let layer = ColumnParallelLinear::new(&group, &Dense::new(4, 2, vec![1.0; 8])?, None, true)?;
//! let x = Matrix::replicated(&group, &Dense::new(1, 2, vec![2.0, 3.0])?)?;
//! let y = layer.forward(&group, &x)?;
//! assert_eq!(y.parts()[0].read()?, [5.0; 4]);
//! # Ok(()) }
//! ```
//!
//! # Invariants
//! - **PAR-1 (equal).** What every rank has (the outputs of row-parallel layers, of gathered ones and of embeddings, and the
//!   gradients of replicated inputs) has the same bits on every rank.
//! - **PAR-2 (one arithmetic).** The same layers give the same bits over a communicator, on a native node and on a simulated
//!   one, if their group has the same size.
#![forbid(unsafe_code)]

// The code that `#[kernel]` writes says `::ringwork`.
extern crate ringwork_native as ringwork;

mod blocks;
mod chip_group;
mod embedding;
mod error;
mod grid;
mod group;
pub mod kernels;
mod linear;
mod mapping;
mod operations;
mod rank_group;
mod state;

pub use blocks::{
    AttentionSaved, AttentionShape, BlockGradients, MlpSaved, ParallelAttention, ParallelMlp, Weights,
};
pub use chip_group::{ChipGroup, ChipTasks};
pub use embedding::VocabParallelEmbedding;
pub use error::{Error, Result, Shape};
pub use grid::{Axis, Grid};
pub use group::{Dense, Group, Matrix};
pub use linear::{ColumnParallelLinear, LinearGradients, RowParallelLinear};
pub use mapping::Mapping;
pub use operations::Tokens;
pub use rank_group::{RankGroup, RankMemory};
pub use state::ParallelState;
