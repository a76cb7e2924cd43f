//! The two halves of a transformer layer. Each communicates once forward and once backward.

use crate::error::{Error, Result, divide};
use crate::group::{Dense, Group, Matrix};
use crate::linear::{ColumnParallelLinear, LinearGradients, RowParallelLinear};
use crate::operations::{Heads, attention, attention_backward, gelu, gelu_backward};
use ringwork_isa::Consecutive;

/// A weight, outputs x inputs, with a bias, 1 x outputs, if it has one.
pub type Weights<'a> = (&'a Dense, Option<&'a Dense>);

/// `gelu(x U^T + b) D^T + c`: each rank has some of the inner columns.
#[derive(Clone, Debug)]
pub struct ParallelMlp<M> {
    up: ColumnParallelLinear<M>,
    down: RowParallelLinear<M>,
}

/// What the backward pass of a [`ParallelMlp`] needs of the forward pass.
#[derive(Clone, Debug)]
pub struct MlpSaved<M> {
    input: Matrix<M>,
    /// Before the activation.
    inner: Matrix<M>,
    /// After it.
    activated: Matrix<M>,
}

/// The gradients of a block of two linear layers; each layer's `input` is that of the layer.
#[derive(Clone, Debug)]
pub struct BlockGradients<M> {
    /// Of the first layer, whose input is the block's.
    pub first: LinearGradients<M>,
    /// Of the second.
    pub second: LinearGradients<M>,
}

impl<M: Clone + Consecutive> ParallelMlp<M> {
    /// Takes each rank's part of the weights.
    ///
    /// # Errors
    /// If the inner columns cannot be divided among the ranks.
    pub fn new<G: Group<Memory = M>>(
        group: &G,
        up: Weights<'_>,
        down: Weights<'_>,
    ) -> Result<ParallelMlp<M>> {
        Ok(ParallelMlp {
            up: ColumnParallelLinear::new(group, up.0, up.1, false)?,
            down: RowParallelLinear::new(group, down.0, down.1, true)?,
        })
    }

    /// The block's output for `x`, tokens x inputs; and what [`backward`](ParallelMlp::backward) needs.
    ///
    /// # Errors
    /// If `x` does not fit; if the group fails.
    pub fn forward<G: Group<Memory = M>>(
        &self,
        group: &G,
        x: &Matrix<M>,
    ) -> Result<(Matrix<M>, MlpSaved<M>)> {
        let inner = self.up.forward(group, x)?;
        let activated = gelu(group, &inner)?;
        let y = self.down.forward(group, &activated)?;
        Ok((
            y,
            MlpSaved {
                input: x.clone(),
                inner,
                activated,
            },
        ))
    }

    /// The gradients, from that of the output.
    ///
    /// # Errors
    /// As [`forward`](ParallelMlp::forward).
    pub fn backward<G: Group<Memory = M>>(
        &self,
        group: &G,
        saved: &MlpSaved<M>,
        dy: &Matrix<M>,
    ) -> Result<BlockGradients<M>> {
        let second = self.down.backward(group, &saved.activated, dy)?;
        let dinner = gelu_backward(group, &saved.inner, &second.input)?;
        let first = self.up.backward(group, &saved.input, &dinner)?;
        Ok(BlockGradients { first, second })
    }
}

/// How an attention block is divided into heads and sequences.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AttentionShape {
    /// Heads of all ranks together.
    pub heads: usize,
    /// Tokens of each sequence; the rows of the input are any number of sequences.
    pub sequence: usize,
    /// Whether a token looks only at itself and those before it.
    pub causal: bool,
}

/// Self-attention of which each rank has some heads.
///
/// The first weight has, for each head, rows for its query, then its key, then its value; so each rank's rows are its heads.
#[derive(Clone, Debug)]
pub struct ParallelAttention<M> {
    qkv: ColumnParallelLinear<M>,
    output: RowParallelLinear<M>,
    heads: Heads,
}

/// What the backward pass of a [`ParallelAttention`] needs of the forward pass.
#[derive(Clone, Debug)]
pub struct AttentionSaved<M> {
    input: Matrix<M>,
    qkv: Matrix<M>,
    attended: Matrix<M>,
}

impl<M: Clone + Consecutive> ParallelAttention<M> {
    /// Takes each rank's part of the weights: `qkv` is 3 heads x width of a head by inputs, `output` is outputs by heads x width.
    ///
    /// # Errors
    /// If the heads cannot be divided among the ranks, or the rows of `qkv` among the heads.
    pub fn new<G: Group<Memory = M>>(
        group: &G,
        shape: AttentionShape,
        qkv: Weights<'_>,
        output: Weights<'_>,
    ) -> Result<ParallelAttention<M>> {
        let AttentionShape {
            heads,
            sequence,
            causal,
        } = shape;
        let count = divide("attention heads", heads, group.size())?;
        divide(
            "rows of the weight of query, key and value, among three for each head",
            qkv.0.shape().rows,
            3 * heads,
        )?;
        if sequence == 0 {
            let problem = "0 tokens; a sequence has at least one".into();
            return Err(Error::Argument {
                what: "the length of a sequence",
                problem,
            });
        }
        Ok(ParallelAttention {
            qkv: ColumnParallelLinear::new(group, qkv.0, qkv.1, false)?,
            output: RowParallelLinear::new(group, output.0, output.1, true)?,
            heads: Heads {
                count,
                sequence,
                causal,
            },
        })
    }

    /// The block's output for `x`, tokens x inputs; and what [`backward`](ParallelAttention::backward) needs.
    ///
    /// # Errors
    /// If `x` does not fit, or is not a whole number of sequences; if the group fails.
    pub fn forward<G: Group<Memory = M>>(
        &self,
        group: &G,
        x: &Matrix<M>,
    ) -> Result<(Matrix<M>, AttentionSaved<M>)> {
        let qkv = self.qkv.forward(group, x)?;
        let attended = attention(group, &qkv, self.heads)?;
        let y = self.output.forward(group, &attended)?;
        Ok((
            y,
            AttentionSaved {
                input: x.clone(),
                qkv,
                attended,
            },
        ))
    }

    /// The gradients, from that of the output.
    ///
    /// # Errors
    /// As [`forward`](ParallelAttention::forward).
    pub fn backward<G: Group<Memory = M>>(
        &self,
        group: &G,
        saved: &AttentionSaved<M>,
        dy: &Matrix<M>,
    ) -> Result<BlockGradients<M>> {
        let second = self.output.backward(group, &saved.attended, dy)?;
        let dqkv = attention_backward(group, &saved.qkv, &second.input, self.heads)?;
        let first = self.qkv.backward(group, &saved.input, &dqkv)?;
        Ok(BlockGradients { first, second })
    }
}
