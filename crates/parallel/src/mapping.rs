//! The ways into the tensor-parallel region of a model and out of it.

use crate::error::Result;
use crate::group::{Group, Matrix};
use crate::operations::{all_reduce, gather_columns, split_columns};

/// A function between values that all ranks have and values of which each rank has a part, with its gradient. Two of these and
/// the matrix products between them make a layer.
///
/// | | forward | backward |
/// |---|---|---|
/// | `CopyTo` | the same value | the sum of all ranks' gradients |
/// | `ReduceFrom` | the sum of all ranks' values | the same gradient |
/// | `ScatterTo` | my part of the columns | all ranks' columns |
/// | `GatherFrom` | all ranks' columns | my part of the columns |
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mapping {
    /// Into the region: every rank uses the whole value.
    CopyTo,
    /// Out of the region: every rank has a summand.
    ReduceFrom,
    /// Into the region: every rank uses some columns.
    ScatterTo,
    /// Out of the region: every rank has some columns.
    GatherFrom,
}

impl Mapping {
    /// The function.
    ///
    /// # Errors
    /// If the columns cannot be divided; if the group fails.
    pub fn forward<G: Group>(self, group: &G, x: &Matrix<G::Memory>) -> Result<Matrix<G::Memory>> {
        match self {
            Mapping::CopyTo => Ok(x.clone()),
            Mapping::ReduceFrom => all_reduce(group, x),
            Mapping::ScatterTo => split_columns(group, x),
            Mapping::GatherFrom => gather_columns(group, x),
        }
    }

    /// The gradient of its input, from that of its output.
    ///
    /// # Errors
    /// As [`forward`](Mapping::forward).
    pub fn backward<G: Group>(self, group: &G, dy: &Matrix<G::Memory>) -> Result<Matrix<G::Memory>> {
        let opposite = match self {
            Mapping::CopyTo => Mapping::ReduceFrom,
            Mapping::ReduceFrom => Mapping::CopyTo,
            Mapping::ScatterTo => Mapping::GatherFrom,
            Mapping::GatherFrom => Mapping::ScatterTo,
        };
        opposite.forward(group, dy)
    }
}
