//! The arithmetic of the layers, as kernels: the only place where it is written.
//!
//! A [`Group`](crate::Group) over a node submits them to its chips, one over a communicator runs them in its own process.

use ringwork_isa::{
    Block, Core, Error, In, InOut, Out, ReduceOp, Region, Result, Tile, TileOps, Work, activations,
};
use ringwork_macros::kernel;

/// `y = a b`, with `a` or `b` transposed first where asked.
#[kernel]
pub async fn product<C: Core>(
    core: &C,
    a: Block<In<f32>>,
    b: Block<In<f32>>,
    y: Block<Out<f32>>,
    turn_a: bool,
    turn_b: bool,
) -> Result<()> {
    let (mut a, mut b) = (core.load(a).await?, core.load(b).await?);
    if turn_a {
        a = core.transpose(&a).await?;
    }
    if turn_b {
        b = core.transpose(&b).await?;
    }
    core.store(y, &core.matmul(&a, &b).await?).await
}

/// `y = x + row`, for every row of `x`.
#[kernel]
pub async fn add_row<C: Core>(
    core: &C,
    x: Block<In<f32>>,
    row: Block<In<f32>>,
    y: Block<Out<f32>>,
) -> Result<()> {
    let (x, row) = (core.load(x).await?, core.load(row).await?);
    core.store(y, &core.add(&x, &row).await?).await
}

/// `y` is the sum of all rows of `x`, in their order.
#[kernel]
pub async fn column_sum<C: Core>(core: &C, x: Block<In<f32>>, y: Block<Out<f32>>) -> Result<()> {
    let x = core.load(x).await?;
    core.store(y, &core.col_sum(&x).await?).await
}

/// `y` is `x` with rows as columns.
#[kernel]
pub async fn transpose<C: Core>(core: &C, x: Block<In<f32>>, y: Block<Out<f32>>) -> Result<()> {
    let x = core.load(x).await?;
    core.store(y, &core.transpose(&x).await?).await
}

/// `y = gelu(x)`. See [`activations::gelu`].
#[kernel]
pub async fn gelu<C: Core>(core: &C, x: Block<In<f32>>, y: Block<Out<f32>>) -> Result<()> {
    let x = core.load(x).await?;
    core.store(y, &activations::gelu(core, &x).await?).await
}

/// `dx = gelu'(x) dy`.
#[kernel]
pub async fn gelu_backward<C: Core>(
    core: &C,
    x: Block<In<f32>>,
    dy: Block<In<f32>>,
    dx: Block<Out<f32>>,
) -> Result<()> {
    let (x, dy) = (core.load(x).await?, core.load(dy).await?);
    core.store(dx, &core.mul(&dy, &gelu_slope(core, &x).await?).await?)
        .await
}

/// The derivative of `x s(z)`, where `s` is the sigmoid and `z = x (c + d x^2)`: `s (1 + x (1 - s) (c + 3 d x^2))`.
async fn gelu_slope<C: Core>(core: &C, x: &Tile<f32>) -> Result<Tile<f32>> {
    // 2 sqrt(2 / pi), and 0.044715 times as much: those of `activations::gelu`.
    const C: f64 = 1.595_769_121_605_730_8;
    const D: f64 = C * 0.044_715;
    let square = core.mul(x, x).await?;
    let z = core.mul(x, &core.scale(&square, D, C).await?).await?;
    let s = core.sigmoid(&z).await?;
    let slope_of_z = core.mul(x, &core.scale(&square, 3.0 * D, C).await?).await?;
    let rest = core.mul(&core.scale(&s, -1.0, 1.0).await?, &slope_of_z).await?;
    core.mul(&s, &core.scale(&rest, 1.0, 1.0).await?).await
}

/// Causal or full attention. Each row of `qkv` is a token; it holds query, key and value of the first head, then of the second,
/// and so on. Every `sequence` rows are a sequence of their own.
#[kernel]
pub async fn attention<C: Core>(
    core: &C,
    qkv: Block<In<f32>>,
    y: Block<Out<f32>>,
    heads: usize,
    sequence: usize,
    causal: bool,
) -> Result<()> {
    let mask = causal.then(|| causal_mask(sequence)).transpose()?;
    let width = y.shape().1 / heads.max(1);
    for first in (0..qkv.shape().0).step_by(sequence.max(1)) {
        let (qkv, y) = (
            qkv.rows(first..first + sequence)?,
            y.rows(first..first + sequence)?,
        );
        for head in 0..heads {
            let [q, k, v] = load_head(core, qkv, head, width).await?;
            let weights = attention_weights(core, &q, &k, mask.as_ref()).await?;
            let result = core.matmul(&weights, &v).await?;
            core.store(y.columns(head * width..(head + 1) * width)?, &result)
                .await?;
        }
    }
    Ok(())
}

/// The gradient of [`attention()`] with respect to `qkv`. The weights of the attention are computed again.
#[kernel]
pub async fn attention_backward<C: Core>(
    core: &C,
    qkv: Block<In<f32>>,
    dy: Block<In<f32>>,
    dqkv: Block<Out<f32>>,
    heads: usize,
    sequence: usize,
    causal: bool,
) -> Result<()> {
    let mask = causal.then(|| causal_mask(sequence)).transpose()?;
    let width = dy.shape().1 / heads.max(1);
    for first in (0..qkv.shape().0).step_by(sequence.max(1)) {
        let rows = first..first + sequence;
        let (qkv, dy, dqkv) = (qkv.rows(rows.clone())?, dy.rows(rows.clone())?, dqkv.rows(rows)?);
        for head in 0..heads {
            let [q, k, v] = load_head(core, qkv, head, width).await?;
            let dy = core.load(dy.columns(head * width..(head + 1) * width)?).await?;
            let weights = attention_weights(core, &q, &k, mask.as_ref()).await?;
            let dv = core.matmul(&core.transpose(&weights).await?, &dy).await?;
            let dweights = core.matmul(&dy, &core.transpose(&v).await?).await?;
            // Through the softmax: `w (dw - sum of w dw)` in each row.
            let weighted = core.row_sum(&core.mul(&weights, &dweights).await?).await?;
            let dscores = core.mul(&weights, &core.sub(&dweights, &weighted).await?).await?;
            let dscores = core.scale(&dscores, score_scale(width), 0.0).await?;
            let dq = core.matmul(&dscores, &k).await?;
            let dk = core.matmul(&core.transpose(&dscores).await?, &q).await?;
            for (part, tile) in [dq, dk, dv].iter().enumerate() {
                core.store(dqkv.columns(head_columns(head, part, width))?, tile)
                    .await?;
            }
        }
    }
    Ok(())
}

/// Query, key and value of a head, for all rows.
async fn load_head<C: Core>(
    core: &C,
    qkv: Block<In<f32>>,
    head: usize,
    width: usize,
) -> Result<[Tile<f32>; 3]> {
    Ok([
        core.load(qkv.columns(head_columns(head, 0, width))?).await?,
        core.load(qkv.columns(head_columns(head, 1, width))?).await?,
        core.load(qkv.columns(head_columns(head, 2, width))?).await?,
    ])
}

/// The columns of query (0), key (1) or value (2) of a head.
fn head_columns(head: usize, part: usize, width: usize) -> std::ops::Range<usize> {
    let first = (3 * head + part) * width;
    first..first + width
}

fn score_scale(width: usize) -> f64 {
    1.0 / (width.max(1) as f64).sqrt()
}

/// `softmax(q k^T / sqrt(width))`, row by row.
async fn attention_weights<C: Core>(
    core: &C,
    q: &Tile<f32>,
    k: &Tile<f32>,
    mask: Option<&Tile<u8>>,
) -> Result<Tile<f32>> {
    let scores = core.matmul(q, &core.transpose(k).await?).await?;
    let mut scores = core.scale(&scores, score_scale(q.columns()), 0.0).await?;
    if let Some(mask) = mask {
        let nothing = Tile::full(1, 1, f32::NEG_INFINITY);
        scores = core.select(mask, &scores, &nothing).await?;
    }
    activations::softmax(core, &scores).await
}

/// 1 where a token may look: at itself and at those before it. A constant, so it takes no time.
fn causal_mask(sequence: usize) -> Result<Tile<u8>> {
    let cell = |at: usize| u8::from(at % sequence <= at / sequence);
    Tile::new((0..sequence * sequence).map(cell).collect()).shaped(sequence, sequence)
}

/// Row `t` of `y` is row `ids[t] - first` of `table`, or zeros if the table does not have it.
#[kernel]
pub async fn embed<C: Core>(
    core: &C,
    ids: In<i32>,
    table: Block<In<f32>>,
    y: Block<Out<f32>>,
    first: usize,
    vocabulary: usize,
) -> Result<()> {
    let (rows, columns) = table.shape();
    let ids = core.load(ids).await?;
    let nothing = Tile::zeros(1, columns);
    for token in 0..ids.len() {
        match table_row(&ids, token, (first, rows), vocabulary)? {
            Some(row) => core.copy(y.row(token)?, table.row(row)?).await?,
            None => core.store(y.row(token)?, &nothing).await?,
        }
    }
    Ok(())
}

/// Row `r` of `dtable` is the sum of the rows `t` of `dy` with `ids[t] - first = r`, in the order of `t`.
#[kernel]
pub async fn embed_backward<C: Core>(
    core: &C,
    ids: In<i32>,
    dy: Block<In<f32>>,
    dtable: Block<InOut<f32>>,
    first: usize,
    vocabulary: usize,
) -> Result<()> {
    let (rows, columns) = dtable.shape();
    let ids = core.load(ids).await?;
    let zeros = Work::Vector {
        elements: (rows * columns) as u64,
        dtype: ringwork_isa::Dtype::F32,
    };
    core.spend(zeros).await?;
    core.store(dtable, &Tile::zeros(rows, columns)).await?;
    for token in 0..ids.len() {
        if let Some(row) = table_row(&ids, token, (first, rows), vocabulary)? {
            let sum: Region<f32, _> = dtable.row(row)?;
            let more = dy.row(token)?;
            let both = [core.load(sum).await?, core.load(more).await?];
            core.store(sum, &core.fold(&[&both[0], &both[1]], ReduceOp::Sum).await?)
                .await?;
        }
    }
    Ok(())
}

/// The row of a part of the table that a token has. Of ids without values, some row: for a simulation of time alone.
fn table_row(
    ids: &Tile<i32>,
    token: usize,
    (first, rows): (usize, usize),
    vocabulary: usize,
) -> Result<Option<usize>> {
    let Some(id) = ids.values().get(token) else {
        return Ok((rows > 0).then(|| token % rows));
    };
    match usize::try_from(*id) {
        Ok(id) if id < vocabulary => Ok(id.checked_sub(first).filter(|row| *row < rows)),
        _ => Err(Error::failed(format!(
            "token {token} has the id {id}; the vocabulary has {vocabulary}, counted from 0"
        ))),
    }
}
