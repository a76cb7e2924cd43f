//! Every layer once, forward and backward, over any group; and what each result must be.

use crate::reference::{self, Wide, gradient};
use ringwork_isa::Consecutive;
use ringwork_parallel::{
    AttentionShape, BlockGradients, ColumnParallelLinear, Dense, Group, LinearGradients, Matrix,
    ParallelAttention, ParallelMlp, Result, RowParallelLinear, Tokens, VocabParallelEmbedding,
};

const TOKENS: usize = 6;
const HIDDEN: usize = 8;
/// Outputs of the column-parallel layer, inputs of the row-parallel one, inner columns of the MLP, the vocabulary.
const WIDE: usize = 12;
const HEADS: usize = 6;
const HEAD_WIDTH: usize = 2;
const SEQUENCE: usize = 3;
const IDS: [i32; TOKENS] = [3, 11, 0, 3, 7, 3];

/// How the whole of a result is made of the ranks' parts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Spread {
    /// Every rank has all of it: the same bits (PAR-1).
    Everywhere,
    /// The ranks' rows below each other.
    Rows,
    /// The ranks' columns beside each other.
    Columns,
}

use Spread::{Columns, Everywhere, Rows};

/// A result, or what it must be.
#[derive(Debug)]
pub struct Named<M> {
    pub name: &'static str,
    pub spread: Spread,
    pub value: M,
}

fn named<M>(name: &'static str, spread: Spread, value: M) -> Named<M> {
    Named { name, spread, value }
}

/// Values that repeat nowhere near, in [-0.5, 0.5).
fn mixed(rows: usize, columns: usize, seed: u64) -> Dense {
    let value = |at: usize| {
        let mixed =
            (at as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ seed.wrapping_mul(0xd1b5_4a32_d192_ed03);
        (mixed.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 52) as f32 / 4096.0 - 0.5
    };
    Dense::new(rows, columns, (0..rows * columns).map(value).collect()).unwrap()
}

struct Inputs {
    x: Dense,
    wide_x: Dense,
    dy: Dense,
    wide_dy: Dense,
    up: [Dense; 2],
    down: [Dense; 2],
    qkv: [Dense; 2],
    output: [Dense; 2],
    table: Dense,
}

fn inputs() -> Inputs {
    let attended = HEADS * HEAD_WIDTH;
    let layer = |out, inputs, seed| [mixed(out, inputs, seed), mixed(1, out, seed + 1)];
    Inputs {
        x: mixed(TOKENS, HIDDEN, 1),
        wide_x: mixed(TOKENS, WIDE, 2),
        dy: mixed(TOKENS, HIDDEN, 3),
        wide_dy: mixed(TOKENS, WIDE, 4),
        up: layer(WIDE, HIDDEN, 10),
        down: layer(HIDDEN, WIDE, 20),
        qkv: layer(3 * attended, HIDDEN, 30),
        output: layer(HIDDEN, attended, 40),
        table: mixed(WIDE, HIDDEN, 50),
    }
}

fn shape(causal: bool) -> AttentionShape {
    AttentionShape {
        heads: HEADS,
        sequence: SEQUENCE,
        causal,
    }
}

type Names = [&'static str; 3];

fn linear_gradients<M: Clone>(
    [dx, dw, db]: Names,
    [x, w, b]: [Spread; 3],
    gradients: &LinearGradients<M>,
) -> Vec<Named<Matrix<M>>> {
    let bias = gradients.bias.clone().unwrap();
    vec![
        named(dx, x, gradients.input.clone()),
        named(dw, w, gradients.weight.clone()),
        named(db, b, bias),
    ]
}

fn block_gradients<M: Clone>(
    first: Names,
    second: Names,
    gradients: &BlockGradients<M>,
) -> Vec<Named<Matrix<M>>> {
    let mut all = linear_gradients(first, [Everywhere, Rows, Columns], &gradients.first);
    all.extend(linear_gradients(
        second,
        [Columns, Columns, Everywhere],
        &gradients.second,
    ));
    all
}

/// Everything over a group.
pub fn compute<G: Group>(group: &G) -> Result<Vec<Named<Matrix<G::Memory>>>>
where
    G::Memory: Consecutive,
{
    let with = inputs();
    let put = |matrix: &Dense| Matrix::replicated(group, matrix);
    let (x, wide_x, dy, wide_dy) = (
        put(&with.x)?,
        put(&with.wide_x)?,
        put(&with.dy)?,
        put(&with.wide_dy)?,
    );
    let mut all = Vec::new();

    let column = ColumnParallelLinear::new(group, &with.up[0], Some(&with.up[1]), true)?;
    all.push(named("column y", Everywhere, column.forward(group, &x)?));
    let gradients = column.backward(group, &x, &wide_dy)?;
    all.extend(linear_gradients(
        ["column dx", "column dw", "column db"],
        [Everywhere, Rows, Columns],
        &gradients,
    ));

    let row = RowParallelLinear::new(group, &with.down[0], Some(&with.down[1]), false)?;
    all.push(named("row y", Everywhere, row.forward(group, &wide_x)?));
    let gradients = row.backward(group, &wide_x, &dy)?;
    all.extend(linear_gradients(
        ["row dx", "row dw", "row db"],
        [Everywhere, Columns, Everywhere],
        &gradients,
    ));

    let tokens = Tokens::new(group, &IDS)?;
    let embedding = VocabParallelEmbedding::new(group, &with.table)?;
    all.push(named(
        "embedding y",
        Everywhere,
        embedding.forward(group, &tokens)?,
    ));
    all.push(named(
        "embedding dtable",
        Rows,
        embedding.backward(group, &tokens, &dy)?,
    ));

    let [up, down] = [&with.up, &with.down].map(|[weight, bias]| (weight, Some(bias)));
    let mlp = ParallelMlp::new(group, up, down)?;
    let (y, saved) = mlp.forward(group, &x)?;
    all.push(named("mlp y", Everywhere, y));
    let gradients = mlp.backward(group, &saved, &dy)?;
    let second = ["mlp dinner", "mlp ddown", "mlp ddown bias"];
    all.extend(block_gradients(
        ["mlp dx", "mlp dup", "mlp dup bias"],
        second,
        &gradients,
    ));

    let [qkv, output] = [&with.qkv, &with.output].map(|[weight, bias]| (weight, Some(bias)));
    for causal in [true, false] {
        let attention = ParallelAttention::new(group, shape(causal), qkv, output)?;
        let (y, saved) = attention.forward(group, &x)?;
        let gradients = attention.backward(group, &saved, &dy)?;
        let (name, first, second) = match causal {
            true => (
                "causal y",
                ["causal dx", "causal dqkv", "causal dqkv bias"],
                ["causal dattended", "causal doutput", "causal doutput bias"],
            ),
            false => (
                "full y",
                ["full dx", "full dqkv", "full dqkv bias"],
                ["full dattended", "full doutput", "full doutput bias"],
            ),
        };
        all.push(named(name, Everywhere, y));
        all.extend(block_gradients(first, second, &gradients));
    }
    Ok(all)
}

/// What the whole of each result must be; for those that a dense model has.
pub fn expected() -> Vec<(&'static str, Wide)> {
    let with = inputs();
    let wide = Wide::of;
    let (x, wide_x, dy, wide_dy) = (
        wide(&with.x),
        wide(&with.wide_x),
        wide(&with.dy),
        wide(&with.wide_dy),
    );
    let [
        [up, up_bias],
        [down, down_bias],
        [qkv, qkv_bias],
        [output, output_bias],
    ] = [&with.up, &with.down, &with.qkv, &with.output].map(|layer| layer.each_ref().map(wide));
    let mut all = vec![
        ("column y", reference::linear(&x, &up, &up_bias)),
        (
            "column dx",
            gradient(&x, &wide_dy, |x| reference::linear(x, &up, &up_bias)),
        ),
        (
            "column dw",
            gradient(&up, &wide_dy, |up| reference::linear(&x, up, &up_bias)),
        ),
        (
            "column db",
            gradient(&up_bias, &wide_dy, |bias| reference::linear(&x, &up, bias)),
        ),
        ("row y", reference::linear(&wide_x, &down, &down_bias)),
        (
            "row dx",
            gradient(&wide_x, &dy, |x| reference::linear(x, &down, &down_bias)),
        ),
        (
            "row dw",
            gradient(&down, &dy, |down| reference::linear(&wide_x, down, &down_bias)),
        ),
        (
            "row db",
            gradient(&down_bias, &dy, |bias| reference::linear(&wide_x, &down, bias)),
        ),
    ];
    let table = wide(&with.table);
    all.push(("embedding y", reference::embedding(&IDS, &table)));
    all.push((
        "embedding dtable",
        gradient(&table, &dy, |table| reference::embedding(&IDS, table)),
    ));

    let mlp = |x: &Wide, weights: [&Wide; 4]| reference::mlp(x, weights);
    let weights = [&up, &up_bias, &down, &down_bias];
    let names = [
        "mlp y",
        "mlp dx",
        "mlp dup",
        "mlp dup bias",
        "mlp ddown",
        "mlp ddown bias",
    ];
    all.extend(block(names, &x, weights, &dy, mlp));

    for causal in [true, false] {
        let attention =
            |x: &Wide, weights: [&Wide; 4]| reference::attention(x, weights, HEADS, SEQUENCE, causal);
        let names = match causal {
            true => [
                "causal y",
                "causal dx",
                "causal dqkv",
                "causal dqkv bias",
                "causal doutput",
                "causal doutput bias",
            ],
            false => [
                "full y",
                "full dx",
                "full dqkv",
                "full dqkv bias",
                "full doutput",
                "full doutput bias",
            ],
        };
        all.extend(block(
            names,
            &x,
            [&qkv, &qkv_bias, &output, &output_bias],
            &dy,
            attention,
        ));
    }
    all
}

/// The output of a block, and the gradient of everything that it is computed from.
fn block(
    names: [&'static str; 6],
    x: &Wide,
    weights: [&Wide; 4],
    dy: &Wide,
    f: impl Fn(&Wide, [&Wide; 4]) -> Wide,
) -> Vec<(&'static str, Wide)> {
    let mut all = vec![
        (names[0], f(x, weights)),
        (names[1], gradient(x, dy, |x| f(x, weights))),
    ];
    for (which, name) in names[2..].iter().enumerate() {
        let moved = |weight: &Wide| {
            let mut weights = weights;
            weights[which] = weight;
            f(x, weights)
        };
        all.push((name, gradient(weights[which], dy, moved)));
    }
    all
}

/// The part of a rank of the whole.
pub fn part(whole: &Wide, spread: Spread, rank: usize, ranks: usize) -> Vec<f64> {
    let (rows, columns) = match spread {
        Everywhere => (0..whole.rows, 0..whole.columns),
        Rows => (
            whole.rows / ranks * rank..whole.rows / ranks * (rank + 1),
            0..whole.columns,
        ),
        Columns => (
            0..whole.rows,
            whole.columns / ranks * rank..whole.columns / ranks * (rank + 1),
        ),
    };
    let row = |row: usize| whole.values[row * whole.columns..][columns.clone()].to_vec();
    rows.flat_map(row).collect()
}

/// One rank's results must be its parts of the reference.
pub fn check(results: &[Named<Vec<f32>>], rank: usize, ranks: usize) {
    let expected = expected();
    let mut compared = 0;
    for Named { name, spread, value } in results {
        let Some((_, whole)) = expected.iter().find(|(expected, _)| expected == name) else {
            continue; // a value between two layers
        };
        compared += 1;
        let wanted = part(whole, *spread, rank, ranks);
        assert_eq!(value.len(), wanted.len(), "{name} on rank {rank} of {ranks}");
        for (i, (got, wanted)) in value.iter().zip(&wanted).enumerate() {
            let error = (f64::from(*got) - wanted).abs();
            assert!(
                error < 1e-5,
                "{name}[{i}] on rank {rank} of {ranks}: {got} instead of {wanted}"
            );
        }
    }
    assert_eq!(compared, expected.len(), "a result is missing");
}
