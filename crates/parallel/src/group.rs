//! A tensor-parallel group: what the layers are written over.

use crate::error::{Error, Result, Shape};
use ringwork_isa::{Argument, Block, Consecutive, In, InOut, Out, Task};
use std::ops::Range;

/// Ranks that share layers, and how work gets to them.
///
/// A layer is written once, over this. Local work is a [`Task`] of one of the [`kernels`](crate::kernels) for each rank;
/// between them are two collectives. [`RankGroup`](crate::RankGroup) runs the tasks of its own rank at once, in this process;
/// [`ChipTasks`](crate::ChipTasks) submits those of all ranks to the chips of a node.
///
/// Lists of memory have one entry for each of [`local_ranks`](Group::local_ranks), in order.
pub trait Group {
    /// Values of type f32 in the memory of one rank.
    type Memory: Clone + Consecutive + Argument<In<f32>> + Argument<Out<f32>> + Argument<InOut<f32>>;
    /// The ids of tokens in the memory of one rank.
    type Ids: Clone + Argument<In<i32>>;

    /// Ranks of the group.
    fn size(&self) -> usize;

    /// The ranks whose work goes through this handle: one's own, or all.
    fn local_ranks(&self) -> Range<usize>;

    /// Memory for so many values of a rank, zeros.
    ///
    /// # Errors
    /// If there is no memory.
    fn zeros(&self, rank: usize, elements: usize) -> Result<Self::Memory>;

    /// Memory of a rank with these values.
    ///
    /// # Errors
    /// If there is no memory.
    fn values(&self, rank: usize, values: &[f32]) -> Result<Self::Memory>;

    /// Memory of a rank with these ids.
    ///
    /// # Errors
    /// If there is no memory.
    fn ids(&self, rank: usize, ids: &[i32]) -> Result<Self::Ids>;

    /// Runs or submits a task of a rank.
    ///
    /// # Errors
    /// The task's own if it runs at once; if it cannot be submitted.
    fn run(&self, rank: usize, task: Task) -> Result<()>;

    /// Every `y` becomes the sum of all `x`, added in the order of the ranks: the same bits on every rank.
    ///
    /// # Errors
    /// If a rank fails or cannot be reached.
    fn all_reduce(&self, x: &[Self::Memory], y: &[Self::Memory]) -> Result<()>;

    /// Every `y` becomes all `x`, one after the other.
    ///
    /// # Errors
    /// If a rank fails or cannot be reached.
    fn all_gather(&self, x: &[Self::Memory], y: &[Self::Memory]) -> Result<()>;
}

/// A matrix on every rank of a group, of the same shape on each; row by row. The values may differ.
#[derive(Clone, Debug)]
pub struct Matrix<M> {
    shape: Shape,
    parts: Vec<M>,
}

impl<M: Clone + Consecutive> Matrix<M> {
    /// Zeros.
    ///
    /// # Errors
    /// If there is no memory.
    pub fn zeros<G: Group<Memory = M>>(group: &G, shape: Shape) -> Result<Matrix<M>> {
        let parts = group
            .local_ranks()
            .map(|rank| group.zeros(rank, shape.elements()));
        Ok(Matrix {
            shape,
            parts: parts.collect::<Result<_>>()?,
        })
    }

    /// The values that `values` returns for each rank.
    ///
    /// # Errors
    /// If that is another number of values; if there is no memory.
    pub fn new<G: Group<Memory = M>>(
        group: &G,
        shape: Shape,
        values: impl Fn(usize) -> Vec<f32>,
    ) -> Result<Matrix<M>> {
        let part = |rank| {
            let values = values(rank);
            if values.len() != shape.elements() {
                let problem = format!("{} values; {shape} has {}", values.len(), shape.elements());
                return Err(Error::Argument {
                    what: "a matrix",
                    problem,
                });
            }
            group.values(rank, &values)
        };
        let parts = group.local_ranks().map(part).collect::<Result<_>>()?;
        Ok(Matrix { shape, parts })
    }

    /// The same matrix on every rank.
    ///
    /// # Errors
    /// If there is no memory.
    pub fn replicated<G: Group<Memory = M>>(group: &G, matrix: &Dense) -> Result<Matrix<M>> {
        Matrix::new(group, matrix.shape, |_| matrix.values.clone())
    }

    /// Its shape on each rank.
    #[must_use]
    pub fn shape(&self) -> Shape {
        self.shape
    }

    /// The memory of each of the group's [local ranks](Group::local_ranks).
    #[must_use]
    pub fn parts(&self) -> &[M] {
        &self.parts
    }

    /// The same memory in another shape, or some of it.
    pub(crate) fn with(shape: Shape, parts: Vec<M>) -> Matrix<M> {
        Matrix { shape, parts }
    }

    /// What a task of one of the local ranks is given.
    pub(crate) fn block(&self, index: usize) -> Result<Block<M>> {
        let part = self.parts.get(index).cloned();
        let block = part.and_then(|part| Block::of(part, self.shape.rows, self.shape.columns));
        block.ok_or_else(|| Error::Argument {
            what: "a matrix",
            problem: "it belongs to another group".into(),
        })
    }

    /// Refuses another shape.
    pub(crate) fn check(&self, what: &'static str, wanted: Shape) -> Result<()> {
        if self.shape == wanted {
            return Ok(());
        }
        Err(Error::Shape {
            what,
            got: self.shape,
            wanted,
        })
    }
}

/// A whole matrix on the host, row by row: what layers are made from, each rank taking its part.
#[derive(Clone, Debug, PartialEq)]
pub struct Dense {
    shape: Shape,
    values: Vec<f32>,
}

impl Dense {
    /// A matrix of these values.
    ///
    /// # Errors
    /// If that is another number of values.
    pub fn new(rows: usize, columns: usize, values: Vec<f32>) -> Result<Dense> {
        let shape = Shape { rows, columns };
        if values.len() == shape.elements() {
            return Ok(Dense { shape, values });
        }
        let problem = format!("{} values; {shape} has {}", values.len(), shape.elements());
        Err(Error::Argument {
            what: "a dense matrix",
            problem,
        })
    }

    /// Its shape.
    #[must_use]
    pub fn shape(&self) -> Shape {
        self.shape
    }

    /// Its values, row by row.
    #[must_use]
    pub fn values(&self) -> &[f32] {
        &self.values
    }

    /// Refuses another shape.
    pub(crate) fn check(&self, what: &'static str, wanted: Shape) -> Result<()> {
        if self.shape == wanted {
            return Ok(());
        }
        Err(Error::Shape {
            what,
            got: self.shape,
            wanted,
        })
    }

    /// Some of its rows.
    pub(crate) fn rows(&self, range: Range<usize>) -> Vec<f32> {
        let columns = self.shape.columns;
        self.values[range.start * columns..range.end * columns].to_vec()
    }

    /// Some of its columns.
    pub(crate) fn columns(&self, range: Range<usize>) -> Vec<f32> {
        let rows = self.values.chunks_exact(self.shape.columns.max(1));
        rows.flat_map(|row| &row[range.clone()]).copied().collect()
    }
}
