//! Linear layers whose weight is divided among the ranks.
//!
//! As in Megatron, a weight has a row for each output and a column for each input: `y = x W^T + b`.

use crate::error::{Result, Shape, divide};
use crate::group::{Dense, Group, Matrix};
use crate::mapping::Mapping;
use crate::operations::{Turned, add_row, column_sum, product};
use ringwork_isa::Consecutive;

/// The gradients of a linear layer.
#[derive(Clone, Debug)]
pub struct LinearGradients<M> {
    /// Of its input.
    pub input: Matrix<M>,
    /// Of this rank's part of the weight.
    pub weight: Matrix<M>,
    /// Of the bias, or of this rank's part of it; `None` if the layer has none.
    pub bias: Option<Matrix<M>>,
}

/// A linear layer of which each rank has some outputs: rows of the weight, and the bias for them.
#[derive(Clone, Debug)]
pub struct ColumnParallelLinear<M> {
    weight: Matrix<M>,
    bias: Option<Matrix<M>>,
    gather_output: bool,
}

impl<M: Clone + Consecutive> ColumnParallelLinear<M> {
    /// Takes each rank's part of a weight, outputs x inputs, and of a bias, 1 x outputs. With `gather_output` every rank gets all
    /// outputs; without it, its own, as a [`RowParallelLinear`] wants them.
    ///
    /// # Errors
    /// If the outputs cannot be divided among the ranks, or the bias has another length.
    pub fn new<G: Group<Memory = M>>(
        group: &G,
        weight: &Dense,
        bias: Option<&Dense>,
        gather_output: bool,
    ) -> Result<ColumnParallelLinear<M>> {
        let Shape { rows, columns } = weight.shape();
        let each = divide("outputs of a column-parallel layer", rows, group.size())?;
        let mine = |rank: usize| rank * each..(rank + 1) * each;
        if let Some(bias) = bias {
            bias.check(
                "the bias",
                Shape {
                    rows: 1,
                    columns: rows,
                },
            )?;
        }
        let part_of_bias = |bias: &Dense| {
            Matrix::new(
                group,
                Shape {
                    rows: 1,
                    columns: each,
                },
                |rank| bias.columns(mine(rank)),
            )
        };
        Ok(ColumnParallelLinear {
            weight: Matrix::new(group, Shape { rows: each, columns }, |rank| {
                weight.rows(mine(rank))
            })?,
            bias: bias.map(part_of_bias).transpose()?,
            gather_output,
        })
    }

    /// This rank's part of the weight.
    #[must_use]
    pub fn weight(&self) -> &Matrix<M> {
        &self.weight
    }

    /// This rank's part of the bias.
    #[must_use]
    pub fn bias(&self) -> Option<&Matrix<M>> {
        self.bias.as_ref()
    }

    /// The outputs for `x`, tokens x inputs, which is the same on every rank.
    ///
    /// # Errors
    /// If `x` does not fit; if the group fails.
    pub fn forward<G: Group<Memory = M>>(&self, group: &G, x: &Matrix<M>) -> Result<Matrix<M>> {
        let x = Mapping::CopyTo.forward(group, x)?;
        let y = with_bias(
            group,
            product(group, &x, &self.weight, Turned::Right)?,
            self.bias.as_ref(),
        )?;
        if self.gather_output {
            Mapping::GatherFrom.forward(group, &y)
        } else {
            Ok(y)
        }
    }

    /// The gradients, from `x` as it was given to [`forward`](ColumnParallelLinear::forward) and the gradient of its result.
    ///
    /// # Errors
    /// As [`forward`](ColumnParallelLinear::forward).
    pub fn backward<G: Group<Memory = M>>(
        &self,
        group: &G,
        x: &Matrix<M>,
        dy: &Matrix<M>,
    ) -> Result<LinearGradients<M>> {
        let dy = if self.gather_output {
            Mapping::GatherFrom.backward(group, dy)?
        } else {
            dy.clone()
        };
        let gradients = local_gradients(group, (x, &self.weight, self.bias.is_some()), &dy)?;
        let input = Mapping::CopyTo.backward(group, &gradients.input)?;
        Ok(LinearGradients { input, ..gradients })
    }
}

/// A linear layer of which each rank has some inputs: columns of the weight. All ranks have the bias.
#[derive(Clone, Debug)]
pub struct RowParallelLinear<M> {
    weight: Matrix<M>,
    bias: Option<Matrix<M>>,
    input_is_parallel: bool,
}

impl<M: Clone + Consecutive> RowParallelLinear<M> {
    /// Takes each rank's part of a weight, outputs x inputs, and the whole bias, 1 x outputs. With `input_is_parallel` each rank
    /// is given its own inputs, as a [`ColumnParallelLinear`] yields them; without it, all.
    ///
    /// # Errors
    /// If the inputs cannot be divided among the ranks, or the bias has another length.
    pub fn new<G: Group<Memory = M>>(
        group: &G,
        weight: &Dense,
        bias: Option<&Dense>,
        input_is_parallel: bool,
    ) -> Result<RowParallelLinear<M>> {
        let Shape { rows, columns } = weight.shape();
        let each = divide("inputs of a row-parallel layer", columns, group.size())?;
        if let Some(bias) = bias {
            bias.check(
                "the bias",
                Shape {
                    rows: 1,
                    columns: rows,
                },
            )?;
        }
        let mine = |rank: usize| weight.columns(rank * each..(rank + 1) * each);
        Ok(RowParallelLinear {
            weight: Matrix::new(group, Shape { rows, columns: each }, mine)?,
            bias: bias.map(|bias| Matrix::replicated(group, bias)).transpose()?,
            input_is_parallel,
        })
    }

    /// This rank's part of the weight.
    #[must_use]
    pub fn weight(&self) -> &Matrix<M> {
        &self.weight
    }

    /// The bias.
    #[must_use]
    pub fn bias(&self) -> Option<&Matrix<M>> {
        self.bias.as_ref()
    }

    /// The outputs for `x`, tokens x inputs: all outputs, the same bits on every rank.
    ///
    /// # Errors
    /// If `x` does not fit; if the group fails.
    pub fn forward<G: Group<Memory = M>>(&self, group: &G, x: &Matrix<M>) -> Result<Matrix<M>> {
        let x = self.own_inputs(group, x)?;
        let y = Mapping::ReduceFrom.forward(group, &product(group, &x, &self.weight, Turned::Right)?)?;
        // Once, behind the sum.
        with_bias(group, y, self.bias.as_ref())
    }

    /// The gradients, from `x` as it was given to [`forward`](RowParallelLinear::forward) and the gradient of its result.
    ///
    /// # Errors
    /// As [`forward`](RowParallelLinear::forward).
    pub fn backward<G: Group<Memory = M>>(
        &self,
        group: &G,
        x: &Matrix<M>,
        dy: &Matrix<M>,
    ) -> Result<LinearGradients<M>> {
        let x = self.own_inputs(group, x)?;
        let dy = Mapping::ReduceFrom.backward(group, dy)?;
        let mut gradients = local_gradients(group, (&x, &self.weight, self.bias.is_some()), &dy)?;
        if !self.input_is_parallel {
            gradients.input = Mapping::ScatterTo.backward(group, &gradients.input)?;
        }
        Ok(gradients)
    }

    fn own_inputs<G: Group<Memory = M>>(&self, group: &G, x: &Matrix<M>) -> Result<Matrix<M>> {
        if self.input_is_parallel {
            Ok(x.clone())
        } else {
            Mapping::ScatterTo.forward(group, x)
        }
    }
}

fn with_bias<G: Group>(
    group: &G,
    y: Matrix<G::Memory>,
    bias: Option<&Matrix<G::Memory>>,
) -> Result<Matrix<G::Memory>> {
    match bias {
        Some(bias) => add_row(group, &y, bias),
        None => Ok(y),
    }
}

/// The gradients of `x W^T + b` on one rank.
fn local_gradients<G: Group>(
    group: &G,
    (x, weight, has_bias): (&Matrix<G::Memory>, &Matrix<G::Memory>, bool),
    dy: &Matrix<G::Memory>,
) -> Result<LinearGradients<G::Memory>> {
    let wanted = Shape {
        rows: x.shape().rows,
        columns: weight.shape().rows,
    };
    dy.check("the gradient of a linear layer", wanted)?;
    Ok(LinearGradients {
        input: product(group, dy, weight, Turned::Neither)?,
        weight: product(group, dy, x, Turned::Left)?,
        bias: has_bias.then(|| column_sum(group, dy)).transpose()?,
    })
}
