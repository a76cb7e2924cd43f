//! Tensor parallelism: `Linear -> AllReduce -> FFN` over all chips, in one orchestration.
//!
//! The tokens go through in batches. For each, a chip multiplies its shard of the linear layer and sends the pieces
//! of the product to the chips that add them; a chip with all pieces of its part adds them and sends the sum to all; and
//! the feed-forward network starts on a chip when the signal says that all parts of the sum are there. Nobody waits
//! inside a kernel: while one batch is on its way, the chips work on the next.
//!
//! Two batches are under way at a time, in two lanes of the window. A chip starts batch `b + 2` after its network of
//! batch `b`. That one had everybody's sums, so everybody has read what came through the lane for batch `b`; and
//! nobody sends the sums of `b + 2` before all have started it, so nobody still reads those of `b`.

use super::dense::{Matrix, apply, silu, wide};
use super::{Choice, Example};
use crate::job::{Check, Job};
use ringwork::isa::Collective;
use ringwork::isa::activations;
use ringwork::kernels;
use ringwork::prelude::*;
use ringwork::runtime::{SignalRow, TaskId};
use std::cell::Cell;
use std::ops::Range;

pub(super) const EXAMPLE: Example = Example {
    name: "tp_ffn",
    about: "Linear -> AllReduce -> FFN, sharded over all chips, one batch overlapping the next",
    min_devices: 1,
    max_devices: Some(INPUT),
    default_devices: 4,
    choice: Choice::OfSome(Collective::AllReduce),
    dtypes: &[Dtype::F32],
    counts_per_chip: |ranks| 7 + 2 * INPUT.div_ceil(HIDDEN * ranks),
    describe: |job| {
        format!(
            "{} tokens of {HIDDEN} in {BATCHES} batches, {INPUT} x {HIDDEN} x {INNER} x {HIDDEN} weights, {}",
            tokens(job),
            job.entry.algorithm
        )
    },
    run,
};

/// Inputs of the linear layer; each rank has some.
const INPUT: usize = 64;
/// Outputs of the linear layer, and of the network.
const HIDDEN: usize = 32;
/// Columns of the network's first weight, rows of its second; each rank has some.
const INNER: usize = 64;
const BATCHES: usize = 4;
const TOLERANCE: f64 = 1e-4;

/// As many as hold `--count` elements.
fn tokens(job: &Job) -> usize {
    job.count.div_ceil(HIDDEN)
}

/// The product of my inputs and my weights, piece by piece to the rank that adds up that piece.
#[kernel]
async fn linear<C: Core>(
    core: &C,
    x: In<f32>,
    weight: In<f32>,
    inbox: Shared<f32>,
    arrived: Signals,
) -> Result<()> {
    let inputs = weight.len() / HIDDEN;
    let tokens = x.len() / inputs.max(1);
    let x = core.load(x).await?.shaped(tokens, inputs)?;
    let weight = core.load(weight).await?.shaped(inputs, HIDDEN)?;
    let product = core.matmul(&x, &weight).await?;
    let (me, ranks) = (inbox.me().0 as usize, inbox.ranks() as usize);
    // One after the other, beginning with my neighbour: not all to the same rank at once.
    for peer in (1..=ranks).map(|step| (me + step) % ranks) {
        let (rank, piece) = (
            Rank(u32::try_from(peer).unwrap_or(u32::MAX)),
            part_range(product.len(), ranks, peer),
        );
        let slot = inbox.part(ranks, me)?.slice(0..piece.len())?;
        core.store(slot.on(rank)?, &product.slice(piece)?).await?;
        core.notify(arrived.at(0)?.on(rank)?, Notify::Add(1)).await?;
    }
    Ok(())
}

/// The sum of the pieces that everybody sent me, to everybody.
#[kernel]
async fn add_up<C: Core>(core: &C, inbox: Shared<f32>, total: Shared<f32>, gathered: Signals) -> Result<()> {
    let (me, ranks) = (inbox.me().0 as usize, inbox.ranks() as usize);
    let piece = total.part(ranks, me)?;
    let slot = |rank| inbox.part(ranks, rank)?.slice(0..piece.len());
    let slots = (0..ranks).map(slot).collect::<Result<Vec<_>>>()?;
    core.reduce(piece, &slots[..], ReduceOp::Sum).await?;
    for peer in (1..=inbox.ranks()).map(|step| Rank((inbox.me().0 + step) % inbox.ranks())) {
        core.copy(piece.on(peer)?, piece).await?;
        core.notify(gathered.at(0)?.on(peer)?, Notify::Add(1)).await?;
    }
    Ok(())
}

/// My columns of the first weight, and with the same rows of the second: a part of every output.
#[kernel]
async fn ffn<C: Core>(core: &C, total: In<f32>, up: In<f32>, down: In<f32>, y: Out<f32>) -> Result<()> {
    let inner = up.len() / HIDDEN;
    let x = core.load(total).await?.shaped(y.len() / HIDDEN, HIDDEN)?;
    let up = core.load(up).await?.shaped(HIDDEN, inner)?;
    let down = core.load(down).await?.shaped(inner, HIDDEN)?;
    let middle = activations::silu(core, &core.matmul(&x, &up).await?).await?;
    core.store(y, &core.matmul(&middle, &down).await?).await
}

/// What is dense on paper.
struct Model {
    linear: Matrix,
    up: Matrix,
    down: Matrix,
}

impl Model {
    fn golden(&self, x: &Matrix) -> Vec<f64> {
        let token = |token| {
            let hidden = apply(&wide(x.row(token)), &self.linear);
            let mut middle = apply(&hidden, &self.up);
            silu(&mut middle);
            apply(&middle, &self.down)
        };
        (0..x.rows).flat_map(token).collect()
    }
}

/// Memory and signals in the window that a batch goes through.
struct Lane {
    inbox: Buffer<f32>,
    total: Buffer<f32>,
    arrived: SignalRow,
    gathered: SignalRow,
}

/// What a chip has.
struct Shard {
    /// Two inputs, for even and odd rounds: what is left of one round would be wrong in the next.
    x: [Vec<Tensor<f32>>; 2],
    linear: Tensor<f32>,
    up: Tensor<f32>,
    down: Tensor<f32>,
    partial: Tensor<f32>,
    y: Tensor<f32>,
}

fn run(job: &Job) -> ringwork::Result<Vec<Check>> {
    let node = job.launch(Node::builder())?;
    let (chips, tokens) = (node.devices(), tokens(job));
    let model = Model {
        linear: Matrix::mixed(INPUT, HIDDEN, 1),
        up: Matrix::mixed(HIDDEN, INNER, 2),
        down: Matrix::mixed(INNER, HIDDEN, 3),
    };
    let inputs = [Matrix::mixed(tokens, INPUT, 4), Matrix::mixed(tokens, INPUT, 5)];
    let goldens = [model.golden(&inputs[0]), model.golden(&inputs[1])];
    let tp = open(job, &node, tokens)?;
    let batches = (0..BATCHES).map(|batch| part_range(tokens, BATCHES, batch));
    let batches: Vec<_> = batches.filter(|batch| !batch.is_empty()).collect();
    let mut shards = Vec::new();
    for (rank, chip) in chips.iter().enumerate() {
        shards.push(shard(
            &node,
            *chip,
            (rank, chips.len()),
            &model,
            &inputs,
            &batches,
        )?);
    }
    // Rounds before this one.
    let round = Cell::new(0usize);
    let mut began = 0..;
    job.rounds(
        || {
            round.set(began.next().unwrap_or(0));
            for shard in &shards {
                shard.y.write(&vec![0.0; tokens * HIDDEN])?;
            }
            node.run(|orch| submit(orch, &tp, &batches, &shards, round.get(), job))
        },
        || {
            let golden = &goldens[round.get() % 2];
            let check = |(rank, shard): (usize, &Shard)| {
                let (who, y) = (format!("rank {rank}"), shard.y.read()?);
                Ok(Check::close(chips[rank], who, &y, |i| golden[i], TOLERANCE))
            };
            shards.iter().enumerate().map(check).collect()
        },
    )
}

/// All of it: what a batch needs is said by signals, what comes last by the data.
fn submit(
    orch: &mut Orchestrator<'_>,
    tp: &Domain,
    batches: &[Range<usize>],
    shards: &[Shard],
    round: usize,
    job: &Job,
) -> ringwork::Result<()> {
    let lanes = [lane(tp, 0)?, lane(tp, 1)?];
    let mut networks: Vec<TaskId> = Vec::new();
    for (at, tokens) in batches.iter().enumerate() {
        let Lane {
            inbox,
            total,
            arrived,
            gathered,
        } = &lanes[at % 2];
        let ranks = shards.len();
        let inbox = inbox.slice(0..(tokens.len() * HIDDEN).div_ceil(ranks) * ranks)?;
        let total = total.slice(0..tokens.len() * HIDDEN)?;
        // Signals only grow: everybody notifies once for every batch that goes through the lane.
        let through = round * batches.len().saturating_sub(at % 2).div_ceil(2) + at / 2 + 1;
        let all_have = i32::try_from(through * ranks).unwrap_or(i32::MAX);
        for (rank, (chip, shard)) in tp.members().iter().zip(shards).enumerate() {
            let task = linear::task(&shard.x[round % 2][at], &shard.linear, &inbox, arrived);
            match at.checked_sub(2) {
                Some(before) => orch.after(networks[before * ranks + rank]).submit(*chip, task)?,
                None => orch.submit(*chip, task)?,
            };
        }
        for (rank, (chip, shard)) in (0..).map(Rank).zip(tp.members().iter().zip(shards)) {
            orch.when(arrived.cell(rank, 0)?, Compare::Ge, all_have)
                .priority(1)
                .submit(*chip, add_up::task(&inbox, &total, gathered))?;
            let partial = shard.partial.slice(tokens.start * HIDDEN..tokens.end * HIDDEN)?;
            let network = orch
                .when(gathered.cell(rank, 0)?, Compare::Ge, all_have)
                .priority(2)
                .submit(*chip, ffn::task(&total, &shard.up, &shard.down, &partial))?;
            networks.push(network);
        }
    }
    let team = tp.team("team")?;
    orch.group(tp.members().iter().copied(), |chip| {
        let shard = &shards[tp.rank_of(chip).map_or(0, |rank| rank.0 as usize)];
        let (x, y, op) = (&shard.partial, &shard.y, ReduceOp::Sum);
        Ok(kernels::all_reduce::task(x, y, &team, op, job.entry.algorithm))
    })?;
    Ok(())
}

/// The domain of all chips, with two lanes that are wide enough for the longest batch.
fn open(job: &Job, node: &Node, tokens: usize) -> ringwork::Result<Domain> {
    let chips = node.devices();
    let mut spec = DomainSpec::new("tp", chips.clone()).team_by("team", job.team(tokens * HIDDEN));
    let elements = tokens.div_ceil(BATCHES) * HIDDEN;
    // A slot for each rank, as long as the longest piece.
    let slots = elements.div_ceil(chips.len()) * chips.len();
    for lane in 0..2 {
        spec = spec
            .buffer::<f32>(format!("inbox {lane}"), slots)
            .buffer::<f32>(format!("total {lane}"), elements)
            .signals(format!("arrived {lane}"), 1)
            .signals(format!("gathered {lane}"), 1);
    }
    node.open_domain(&spec)
}

fn lane(tp: &Domain, lane: usize) -> ringwork::Result<Lane> {
    Ok(Lane {
        inbox: tp.buffer(&format!("inbox {lane}"))?,
        total: tp.buffer(&format!("total {lane}"))?,
        arrived: tp.signals(&format!("arrived {lane}"))?,
        gathered: tp.signals(&format!("gathered {lane}"))?,
    })
}

/// One chip's part of everything.
fn shard(
    node: &Node,
    chip: Device,
    (rank, ranks): (usize, usize),
    model: &Model,
    inputs: &[Matrix; 2],
    batches: &[Range<usize>],
) -> ringwork::Result<Shard> {
    let (mine, inner) = (part_range(INPUT, ranks, rank), part_range(INNER, ranks, rank));
    let x = |input: &Matrix| {
        let batch = |batch: &Range<usize>| {
            let tokens = Matrix {
                rows: batch.len(),
                columns: INPUT,
                values: input.rows(batch.clone()),
            };
            node.tensor(chip, &tokens.columns(mine.clone()))
        };
        batches.iter().map(batch).collect::<ringwork::Result<Vec<_>>>()
    };
    let elements = inputs[0].rows * HIDDEN;
    Ok(Shard {
        x: [x(&inputs[0])?, x(&inputs[1])?],
        linear: node.tensor(chip, &model.linear.rows(mine.clone()))?,
        up: node.tensor(chip, &model.up.columns(inner.clone()))?,
        down: node.tensor(chip, &model.down.rows(inner))?,
        partial: node.zeros(chip, elements)?,
        y: node.zeros(chip, elements)?,
    })
}
