//! A mixture of experts, one on every chip: tokens are routed, sent to their experts, and come back combined.
//!
//! Every chip has tokens of its own and one expert. A gate picks two experts for each token, so that some experts get
//! many tokens and others few or none, and nobody knows before how many. A chip puts rows into its slot of an expert's
//! inbox, with their number, and notifies; an expert starts when it has heard of everybody, and sends the results back
//! the same way; a chip combines when it has heard of all experts. Nobody waits inside a kernel.

use super::dense::{Matrix, apply, silu, wide};
use super::{Choice, Example};
use crate::job::{Check, Job};
use ringwork::isa::activations;
use ringwork::prelude::*;
use std::cell::Cell;

pub(super) const EXAMPLE: Example = Example {
    name: "moe_dispatch",
    about: "mixture of experts: route, dispatch, expert, combine, with uneven loads",
    min_devices: 1,
    max_devices: None,
    default_devices: 4,
    choice: Choice::Nothing,
    dtypes: &[Dtype::F32],
    counts_per_chip: |ranks| 2 * ranks + 4,
    describe: |job| {
        let experts = job.devices.len();
        format!(
            "{} tokens of {HIDDEN} per chip to {} of {experts} experts",
            tokens(job),
            choices(experts)
        )
    },
    run,
};

/// Elements of a token.
const HIDDEN: usize = 16;
/// Experts that a token goes to, if there are as many.
const CHOICES: usize = 2;
const TOLERANCE: f64 = 1e-3;

/// As many on each chip as hold `--count` elements.
fn tokens(job: &Job) -> usize {
    job.count.div_ceil(HIDDEN)
}

fn choices(experts: usize) -> usize {
    CHOICES.min(experts)
}

/// The experts with the largest scores, best first; of equal ones the first.
fn best<T: PartialOrd + Copy>(scores: &[T], choices: usize) -> Vec<usize> {
    let mut experts: Vec<usize> = (0..scores.len()).collect();
    // Stable: equal ones keep their order.
    experts.sort_by(|a, b| {
        scores[*b]
            .partial_cmp(&scores[*a])
            .unwrap_or(std::cmp::Ordering::Equal)
    });
    experts.truncate(choices);
    experts
}

/// Which experts each of my tokens goes to, and how much each of them counts.
#[kernel]
async fn route<C: Core>(
    core: &C,
    x: In<f32>,
    gate: In<f32>,
    chosen: Out<i32>,
    weights: Out<f32>,
) -> Result<()> {
    let (tokens, experts) = (x.len() / HIDDEN, gate.len() / HIDDEN);
    let x = core.load(x).await?.shaped(tokens, HIDDEN)?;
    let gate = core.load(gate).await?.shaped(HIDDEN, experts)?;
    let scores = core.matmul(&x, &gate).await?;
    let parts = activations::softmax(core, &scores).await?;
    let (mut ids, mut shares) = (Vec::new(), Vec::new());
    for (scores, parts) in scores
        .values()
        .chunks(experts)
        .zip(parts.values().chunks(experts))
    {
        let best = best(scores, choices(experts));
        let all: f32 = best.iter().map(|expert| parts[*expert]).sum();
        for expert in best {
            ids.push(i32::try_from(expert).unwrap_or(i32::MAX));
            shares.push(parts[expert] / all);
        }
    }
    core.store(chosen, &Tile::new(ids)).await?;
    core.store(weights, &Tile::new(shares)).await
}

/// My tokens to their experts: into my slot of their inbox, one after the other, and then their number.
#[kernel]
async fn dispatch<C: Core>(
    core: &C,
    x: In<f32>,
    chosen: In<i32>,
    inbox: Shared<f32>,
    counts: Shared<i32>,
    arrived: Signals,
) -> Result<()> {
    let (me, ranks) = (inbox.me().0 as usize, inbox.ranks() as usize);
    let chosen = core.load(chosen).await?;
    for peer in (1..=inbox.ranks()).map(|step| Rank((inbox.me().0 + step) % inbox.ranks())) {
        let slot = inbox.part(ranks, me)?.on(peer)?;
        let mut count = 0;
        for token in tokens_for(chosen.values(), choices(ranks), peer) {
            let row = x.slice(token * HIDDEN..(token + 1) * HIDDEN)?;
            core.copy(slot.slice(count * HIDDEN..(count + 1) * HIDDEN)?, row)
                .await?;
            count += 1;
        }
        let count = Tile::new(vec![i32::try_from(count).unwrap_or(i32::MAX)]);
        core.store(counts.slice(me..me + 1)?.on(peer)?, &count).await?;
        core.notify(arrived.at(0)?.on(peer)?, Notify::Add(1)).await?;
    }
    Ok(())
}

/// The tokens that go to an expert, in order.
fn tokens_for(chosen: &[i32], choices: usize, expert: Rank) -> impl Iterator<Item = usize> {
    let is = move |id: &i32| u32::try_from(*id).is_ok_and(|id| id == expert.0);
    let tokens = chosen.chunks(choices).enumerate();
    tokens
        .filter(move |(_, experts)| experts.iter().any(is))
        .map(|(token, _)| token)
}

/// What everybody sent me through my expert, `silu(x w)`, and back to where it came from. `load` is how many rows
/// each rank sent.
#[kernel]
async fn expert<C: Core>(
    core: &C,
    weight: In<f32>,
    inbox: Shared<f32>,
    counts: Shared<i32>,
    results: Shared<f32>,
    returned: Signals,
    load: Out<i32>,
) -> Result<()> {
    let (me, ranks) = (inbox.me().0 as usize, inbox.ranks() as usize);
    let weight = core.load(weight).await?.shaped(HIDDEN, HIDDEN)?;
    let counts = core.load(counts).await?;
    core.store(load, &counts).await?;
    for source in (1..=inbox.ranks()).map(|step| Rank((inbox.me().0 + step) % inbox.ranks())) {
        let at = source.0 as usize;
        let count = counts.values().get(at).copied().unwrap_or(0);
        let count = usize::try_from(count).unwrap_or(usize::MAX);
        if count > 0 {
            let rows = inbox.part(ranks, at)?.slice(0..count.saturating_mul(HIDDEN))?;
            let rows = core.load(rows).await?.shaped(count, HIDDEN)?;
            let y = activations::silu(core, &core.matmul(&rows, &weight).await?).await?;
            let slot = results.part(ranks, me)?.on(source)?;
            core.store(slot.slice(0..y.len())?, &y).await?;
        }
        core.notify(returned.at(0)?.on(source)?, Notify::Add(1)).await?;
    }
    Ok(())
}

/// Each token as the weighted sum of what its experts made of it.
#[kernel]
async fn combine<C: Core>(
    core: &C,
    chosen: In<i32>,
    weights: In<f32>,
    results: Shared<f32>,
    y: Out<f32>,
) -> Result<()> {
    let ranks = results.ranks() as usize;
    let (chosen, weights) = (core.load(chosen).await?, core.load(weights).await?);
    let choices = choices(ranks);
    // Rows that were taken out of each expert's slot: they come back in the order they were sent.
    let mut taken = vec![0; ranks];
    let tokens = chosen
        .values()
        .chunks(choices)
        .zip(weights.values().chunks(choices));
    for (token, (experts, weights)) in tokens.enumerate() {
        let mut sum = Tile::zeros(1, HIDDEN);
        for (id, weight) in experts.iter().zip(weights) {
            let expert = usize::try_from(*id).unwrap_or(usize::MAX);
            let slot = results.part(ranks, expert)?;
            let row = slot.slice(taken[expert] * HIDDEN..(taken[expert] + 1) * HIDDEN)?;
            taken[expert] += 1;
            let row = core
                .scale(&core.load(row).await?, f64::from(*weight), 0.0)
                .await?;
            sum = core.add(&sum, &row).await?;
        }
        core.store(y.slice(token * HIDDEN..(token + 1) * HIDDEN)?, &sum)
            .await?;
    }
    Ok(())
}

/// What one round should give on one chip.
struct Golden {
    chosen: Vec<i32>,
    y: Vec<f64>,
}

/// Tokens of small whole numbers: scores are exact, so that the choice is the same in f32 and f64.
fn token_values(rank: usize, tokens: usize, parity: usize) -> Matrix {
    let mut x = Matrix::mixed(tokens, HIDDEN, u32::try_from(2 * rank + parity).unwrap_or(0));
    for (i, value) in x.values.iter_mut().enumerate() {
        // The first element is the same in all: what the gate gives it is what makes some experts popular.
        *value = if i % HIDDEN == 0 {
            4.0
        } else {
            (*value * 8.0).round()
        };
    }
    x
}

/// A gate that likes the first experts best.
fn gate_values(experts: usize) -> Matrix {
    let mut gate = Matrix::mixed(HIDDEN, experts, 77);
    for (i, value) in gate.values.iter_mut().enumerate() {
        let (input, expert) = (i / experts, i % experts);
        *value = if input == 0 {
            -((expert % 8) as f32)
        } else {
            (*value * 4.0).round() / 4.0
        };
    }
    gate
}

fn golden(x: &Matrix, gate: &Matrix, experts: &[Matrix]) -> Golden {
    let (mut chosen, mut y) = (Vec::new(), Vec::new());
    for token in 0..x.rows {
        let row = wide(x.row(token));
        let scores = apply(&row, gate);
        let best = best(&scores, choices(experts.len()));
        let share = |expert: usize| (scores[expert] - scores[best[0]]).exp();
        let all: f64 = best.iter().map(|expert| share(*expert)).sum();
        let mut sum = vec![0.0; HIDDEN];
        for expert in best.iter().copied() {
            let mut made = apply(&row, &experts[expert]);
            silu(&mut made);
            for (sum, made) in sum.iter_mut().zip(made) {
                *sum += made * share(expert) / all;
            }
            chosen.push(i32::try_from(expert).unwrap_or(i32::MAX));
        }
        y.extend(sum);
    }
    Golden { chosen, y }
}

/// What a chip has.
struct Member {
    /// Tokens for even and for odd rounds: what is left of one round would be wrong in the next.
    x: [Tensor<f32>; 2],
    golden: [Golden; 2],
    gate: Tensor<f32>,
    weight: Tensor<f32>,
    chosen: Tensor<i32>,
    weights: Tensor<f32>,
    load: Tensor<i32>,
    y: Tensor<f32>,
}

fn member(node: &Node, job: &Job, rank: usize, experts: &[Matrix]) -> ringwork::Result<Member> {
    let (chip, tokens) = (node.devices()[rank], tokens(job));
    let gate = gate_values(experts.len());
    let x = [token_values(rank, tokens, 0), token_values(rank, tokens, 1)];
    Ok(Member {
        golden: [golden(&x[0], &gate, experts), golden(&x[1], &gate, experts)],
        x: [node.tensor(chip, &x[0].values)?, node.tensor(chip, &x[1].values)?],
        gate: node.tensor(chip, &gate.values)?,
        weight: node.tensor(chip, &experts[rank].values)?,
        chosen: node.zeros(chip, tokens * choices(experts.len()))?,
        weights: node.zeros(chip, tokens * choices(experts.len()))?,
        load: node.zeros(chip, experts.len())?,
        y: node.zeros(chip, tokens * HIDDEN)?,
    })
}

fn run(job: &Job) -> ringwork::Result<Vec<Check>> {
    let node = job.launch(Node::builder())?;
    let (chips, tokens) = (node.devices(), tokens(job));
    let slots = chips.len() * tokens * HIDDEN;
    let spec = DomainSpec::new("experts", chips.clone())
        .buffer::<f32>("inbox", slots)
        .buffer::<i32>("counts", chips.len())
        .buffer::<f32>("results", slots)
        .signals("arrived", 1)
        .signals("returned", 1);
    let domain = node.open_domain(&spec)?;
    let experts: Vec<_> = (0u32..)
        .zip(&chips)
        .map(|(seed, _)| Matrix::mixed(HIDDEN, HIDDEN, 1000 + seed))
        .collect();
    let members = (0..chips.len()).map(|rank| member(&node, job, rank, &experts));
    let members = members.collect::<ringwork::Result<Vec<_>>>()?;
    // Rounds so far.
    let round = Cell::new(0usize);
    job.rounds(
        || {
            round.set(round.get() + 1);
            for member in &members {
                member.y.write(&vec![0.0; tokens * HIDDEN])?;
            }
            node.run(|orch| submit(orch, &domain, &members, round.get()))
        },
        || {
            let mut checks = Vec::new();
            for (rank, member) in members.iter().enumerate() {
                checks.extend(member.checks(&members, chips[rank], rank, round.get() % 2)?);
            }
            Ok(checks)
        },
    )
}

fn submit(
    orch: &mut Orchestrator<'_>,
    domain: &Domain,
    members: &[Member],
    round: usize,
) -> ringwork::Result<()> {
    let (inbox, counts) = (domain.buffer("inbox")?, domain.buffer("counts")?);
    let results = domain.buffer("results")?;
    let (arrived, returned) = (domain.signals("arrived")?, domain.signals("returned")?);
    // Signals only grow: everybody notifies everybody once in every round.
    let all_have = i32::try_from(round * members.len()).unwrap_or(i32::MAX);
    for (chip, member) in domain.members().iter().zip(members) {
        let (x, chosen) = (&member.x[round % 2], &member.chosen);
        orch.submit(*chip, route::task(x, &member.gate, chosen, &member.weights))?;
        orch.submit(*chip, dispatch::task(x, chosen, &inbox, &counts, &arrived))?;
    }
    for (rank, (chip, member)) in (0..).map(Rank).zip(domain.members().iter().zip(members)) {
        let Member { weight, load, .. } = member;
        orch.when(arrived.cell(rank, 0)?, Compare::Ge, all_have).submit(
            *chip,
            expert::task(weight, &inbox, &counts, &results, &returned, load),
        )?;
    }
    for (rank, (chip, member)) in (0..).map(Rank).zip(domain.members().iter().zip(members)) {
        let Member {
            chosen, weights, y, ..
        } = member;
        orch.when(returned.cell(rank, 0)?, Compare::Ge, all_have)
            .submit(*chip, combine::task(chosen, weights, &results, y))?;
    }
    Ok(())
}

impl Member {
    fn checks(
        &self,
        members: &[Member],
        chip: Device,
        rank: usize,
        parity: usize,
    ) -> ringwork::Result<Vec<Check>> {
        let Golden { chosen, y } = &self.golden[parity];
        let me = i32::try_from(rank).unwrap_or(i32::MAX);
        let sent = |source: usize| {
            let chosen = &members[source].golden[parity].chosen;
            i32::try_from(chosen.iter().filter(|expert| **expert == me).count()).unwrap_or(i32::MAX)
        };
        let (routes, load, values) = (self.chosen.read()?, self.load.read()?, self.y.read()?);
        Ok(vec![
            Check::compare(chip, format!("rank {rank} routes"), &routes, |i| chosen[i]),
            Check::compare(chip, format!("rank {rank} load"), &load, sent),
            Check::close(chip, format!("rank {rank}"), &values, |i| y[i], TOLERANCE),
        ])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn some_experts_get_more_than_twice_as_many_tokens_as_others() {
        for ranks in [4usize, 8, 16] {
            let gate = gate_values(ranks);
            let experts: Vec<_> = (0..ranks).map(|_| Matrix::mixed(HIDDEN, HIDDEN, 9)).collect();
            let mut loads = vec![0; ranks];
            for rank in 0..ranks {
                for expert in golden(&token_values(rank, 16, 0), &gate, &experts).chosen {
                    loads[usize::try_from(expert).unwrap()] += 1;
                }
            }
            assert_eq!(loads.iter().sum::<usize>(), ranks * 16 * CHOICES);
            let (most, least) = (loads.iter().max().unwrap(), loads.iter().min().unwrap());
            assert!(most > &(2 * least), "{loads:?}");
        }
    }

    #[test]
    fn of_equal_experts_the_first_is_chosen() {
        assert_eq!(best(&[1.0, 3.0, 3.0, 2.0], 2), [1, 2]);
        assert_eq!(best(&[0.0], 1), [0]);
    }
}
