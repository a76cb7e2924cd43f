//! What layers are made of: a kernel on every rank, with its shapes checked.

use crate::error::{Error, Result, Shape, divide};
use crate::group::{Group, Matrix};
use crate::kernels;
use ringwork_isa::{Consecutive, Task};

/// Runs a task on each local rank, and returns its result.
fn on_each<G: Group>(
    group: &G,
    shape: Shape,
    task: impl Fn(usize, &Matrix<G::Memory>) -> Result<Task>,
) -> Result<Matrix<G::Memory>> {
    let y = Matrix::zeros(group, shape)?;
    for (index, rank) in group.local_ranks().enumerate() {
        group.run(rank, task(index, &y)?)?;
    }
    Ok(y)
}

/// Which factor of a product is transposed first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Turned {
    Neither,
    Left,
    Right,
}

pub(crate) fn product<G: Group>(
    group: &G,
    a: &Matrix<G::Memory>,
    b: &Matrix<G::Memory>,
    turned: Turned,
) -> Result<Matrix<G::Memory>> {
    let (turn_a, turn_b) = (turned == Turned::Left, turned == Turned::Right);
    let as_factor = |shape: Shape, turn| if turn { shape.turned() } else { shape };
    let (left, right) = (as_factor(a.shape(), turn_a), as_factor(b.shape(), turn_b));
    if left.columns != right.rows {
        let wanted = Shape {
            rows: left.rows,
            columns: right.rows,
        };
        return Err(Error::Shape {
            what: "the left factor of a product",
            got: left,
            wanted,
        });
    }
    let shape = Shape {
        rows: left.rows,
        columns: right.columns,
    };
    on_each(group, shape, |i, y| {
        Ok(kernels::product::task(
            a.block(i)?,
            b.block(i)?,
            y.block(i)?,
            turn_a,
            turn_b,
        ))
    })
}

pub(crate) fn add_row<G: Group>(
    group: &G,
    x: &Matrix<G::Memory>,
    row: &Matrix<G::Memory>,
) -> Result<Matrix<G::Memory>> {
    row.check(
        "the bias",
        Shape {
            rows: 1,
            columns: x.shape().columns,
        },
    )?;
    on_each(group, x.shape(), |i, y| {
        Ok(kernels::add_row::task(x.block(i)?, row.block(i)?, y.block(i)?))
    })
}

pub(crate) fn column_sum<G: Group>(group: &G, x: &Matrix<G::Memory>) -> Result<Matrix<G::Memory>> {
    let shape = Shape {
        rows: 1,
        columns: x.shape().columns,
    };
    on_each(group, shape, |i, y| {
        Ok(kernels::column_sum::task(x.block(i)?, y.block(i)?))
    })
}

pub(crate) fn transpose<G: Group>(group: &G, x: &Matrix<G::Memory>) -> Result<Matrix<G::Memory>> {
    on_each(group, x.shape().turned(), |i, y| {
        Ok(kernels::transpose::task(x.block(i)?, y.block(i)?))
    })
}

pub(crate) fn gelu<G: Group>(group: &G, x: &Matrix<G::Memory>) -> Result<Matrix<G::Memory>> {
    on_each(group, x.shape(), |i, y| {
        Ok(kernels::gelu::task(x.block(i)?, y.block(i)?))
    })
}

pub(crate) fn gelu_backward<G: Group>(
    group: &G,
    x: &Matrix<G::Memory>,
    dy: &Matrix<G::Memory>,
) -> Result<Matrix<G::Memory>> {
    dy.check("the gradient of an activation", x.shape())?;
    on_each(group, x.shape(), |i, dx| {
        Ok(kernels::gelu_backward::task(
            x.block(i)?,
            dy.block(i)?,
            dx.block(i)?,
        ))
    })
}

/// What attention is computed over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Heads {
    /// Heads of this rank.
    pub(crate) count: usize,
    /// Rows of each sequence.
    pub(crate) sequence: usize,
    /// Whether a token looks only at those before it.
    pub(crate) causal: bool,
}

pub(crate) fn attention<G: Group>(
    group: &G,
    qkv: &Matrix<G::Memory>,
    heads: Heads,
) -> Result<Matrix<G::Memory>> {
    let shape = Shape {
        rows: qkv.shape().rows,
        columns: qkv.shape().columns / 3,
    };
    divide(
        "tokens, among sequences of this length",
        shape.rows,
        heads.sequence,
    )?;
    let Heads {
        count,
        sequence,
        causal,
    } = heads;
    on_each(group, shape, |i, y| {
        Ok(kernels::attention::task(
            qkv.block(i)?,
            y.block(i)?,
            count,
            sequence,
            causal,
        ))
    })
}

pub(crate) fn attention_backward<G: Group>(
    group: &G,
    qkv: &Matrix<G::Memory>,
    dy: &Matrix<G::Memory>,
    heads: Heads,
) -> Result<Matrix<G::Memory>> {
    let wanted = Shape {
        rows: qkv.shape().rows,
        columns: qkv.shape().columns / 3,
    };
    dy.check("the gradient of attention", wanted)?;
    let Heads {
        count,
        sequence,
        causal,
    } = heads;
    on_each(group, qkv.shape(), |i, dqkv| {
        let (qkv, dy, dqkv) = (qkv.block(i)?, dy.block(i)?, dqkv.block(i)?);
        Ok(kernels::attention_backward::task(
            qkv, dy, dqkv, count, sequence, causal,
        ))
    })
}

/// Token ids on every rank, the same on each.
#[derive(Clone, Debug)]
pub struct Tokens<I> {
    count: usize,
    parts: Vec<I>,
}

impl<I> Tokens<I> {
    /// These ids.
    ///
    /// # Errors
    /// If there is no memory.
    pub fn new<G: Group<Ids = I>>(group: &G, ids: &[i32]) -> Result<Tokens<I>> {
        let parts = group
            .local_ranks()
            .map(|rank| group.ids(rank, ids))
            .collect::<Result<_>>()?;
        Ok(Tokens {
            count: ids.len(),
            parts,
        })
    }

    /// How many.
    #[must_use]
    pub fn count(&self) -> usize {
        self.count
    }

    fn part(&self, index: usize) -> Result<&I> {
        self.parts.get(index).ok_or_else(|| Error::Argument {
            what: "token ids",
            problem: "they belong to another group".into(),
        })
    }
}

/// Each rank's table has the next ids: rank 0 those from 0 on.
pub(crate) fn embed<G: Group>(
    group: &G,
    ids: &Tokens<G::Ids>,
    table: &Matrix<G::Memory>,
) -> Result<Matrix<G::Memory>> {
    let Shape { rows, columns } = table.shape();
    on_each(
        group,
        Shape {
            rows: ids.count,
            columns,
        },
        |i, y| {
            let first = (group.local_ranks().start + i) * rows;
            let (ids, table, y) = (ids.part(i)?, table.block(i)?, y.block(i)?);
            Ok(kernels::embed::task(ids, table, y, first, rows * group.size()))
        },
    )
}

pub(crate) fn embed_backward<G: Group>(
    group: &G,
    ids: &Tokens<G::Ids>,
    dy: &Matrix<G::Memory>,
    table: Shape,
) -> Result<Matrix<G::Memory>> {
    dy.check(
        "the gradient of an embedding",
        Shape {
            rows: ids.count,
            columns: table.columns,
        },
    )?;
    on_each(group, table, |i, dtable| {
        let first = (group.local_ranks().start + i) * table.rows;
        let (ids, dy, dtable) = (ids.part(i)?, dy.block(i)?, dtable.block(i)?);
        Ok(kernels::embed_backward::task(
            ids,
            dy,
            dtable,
            first,
            table.rows * group.size(),
        ))
    })
}

/// The sum of all ranks' matrices, on every rank.
pub(crate) fn all_reduce<G: Group>(group: &G, x: &Matrix<G::Memory>) -> Result<Matrix<G::Memory>> {
    if group.size() == 1 {
        return Ok(x.clone());
    }
    let y = Matrix::zeros(group, x.shape())?;
    group.all_reduce(x.parts(), y.parts())?;
    Ok(y)
}

/// All ranks' columns beside each other.
pub(crate) fn gather_columns<G: Group>(group: &G, x: &Matrix<G::Memory>) -> Result<Matrix<G::Memory>> {
    if group.size() == 1 {
        return Ok(x.clone());
    }
    // Columns of a matrix are not consecutive, rows of its transpose are.
    let x = transpose(group, x)?;
    let Shape { rows, columns } = x.shape();
    let all = Matrix::zeros(
        group,
        Shape {
            rows: rows * group.size(),
            columns,
        },
    )?;
    group.all_gather(x.parts(), all.parts())?;
    transpose(group, &all)
}

/// Each rank's part of the columns of a matrix that all have.
pub(crate) fn split_columns<G: Group>(group: &G, x: &Matrix<G::Memory>) -> Result<Matrix<G::Memory>> {
    if group.size() == 1 {
        return Ok(x.clone());
    }
    let columns = divide("columns of a matrix", x.shape().columns, group.size())?;
    let x = transpose(group, x)?;
    let shape = Shape {
        rows: columns,
        columns: x.shape().columns,
    };
    let each = shape.elements();
    let own = |(rank, part): (usize, &G::Memory)| {
        let foreign = || Error::Argument {
            what: "a matrix",
            problem: "it is shorter than its shape".into(),
        };
        part.part_of(rank * each..(rank + 1) * each)
            .map_err(|_| foreign())
    };
    let parts = group
        .local_ranks()
        .zip(x.parts())
        .map(own)
        .collect::<Result<_>>()?;
    transpose(group, &Matrix::with(shape, parts))
}
