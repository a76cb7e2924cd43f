//! An embedding whose table is divided among the ranks.

use crate::error::{Result, Shape, divide};
use crate::group::{Dense, Group, Matrix};
use crate::mapping::Mapping;
use crate::operations::{Tokens, embed, embed_backward};
use ringwork_isa::Consecutive;

/// An embedding of which each rank has some of the vocabulary: rows of the table.
#[derive(Clone, Debug)]
pub struct VocabParallelEmbedding<M> {
    table: Matrix<M>,
}

impl<M: Clone + Consecutive> VocabParallelEmbedding<M> {
    /// Takes each rank's part of a table, vocabulary x width.
    ///
    /// # Errors
    /// If the vocabulary cannot be divided among the ranks.
    pub fn new<G: Group<Memory = M>>(group: &G, table: &Dense) -> Result<VocabParallelEmbedding<M>> {
        let Shape { rows, columns } = table.shape();
        let rows = divide("the vocabulary", rows, group.size())?;
        let mine = |rank: usize| table.rows(rank * rows..(rank + 1) * rows);
        Ok(VocabParallelEmbedding {
            table: Matrix::new(group, Shape { rows, columns }, mine)?,
        })
    }

    /// This rank's part of the table.
    #[must_use]
    pub fn table(&self) -> &Matrix<M> {
        &self.table
    }

    /// The rows of the table for these tokens, on every rank: a rank that does not have a row adds zeros.
    ///
    /// # Errors
    /// If an id is outside the vocabulary; if the group fails.
    pub fn forward<G: Group<Memory = M>>(&self, group: &G, tokens: &Tokens<G::Ids>) -> Result<Matrix<M>> {
        Mapping::ReduceFrom.forward(group, &embed(group, tokens, &self.table)?)
    }

    /// The gradient of this rank's part of the table.
    ///
    /// # Errors
    /// As [`forward`](VocabParallelEmbedding::forward).
    pub fn backward<G: Group<Memory = M>>(
        &self,
        group: &G,
        tokens: &Tokens<G::Ids>,
        dy: &Matrix<M>,
    ) -> Result<Matrix<M>> {
        embed_backward(
            group,
            tokens,
            &Mapping::ReduceFrom.backward(group, dy)?,
            self.table.shape(),
        )
    }
}
