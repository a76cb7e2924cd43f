//! Ready-made kernels, to be submitted as tasks: the collectives, and in [`dense`] arithmetic on matrices.
//!
//! The memory that the members of a collective share is one argument.
//!
//! ```text
//! let spec = DomainSpec::new("tp", chips).team::<f32>("team", 1 << 20);
//! let team = node.open_domain(&spec)?.team("team")?;
//! orch.group(chips, |chip| Ok(kernels::all_reduce::task(&x[chip], &y[chip], &team, ReduceOp::Sum, Algorithm::TwoPhase)))
//! ```

pub mod dense;

use ringwork_collectives::domain::run_in;
use ringwork_isa::{Algorithm, Collective, Core, Element, In, Out, Rank, ReduceOp, Result, TeamMemory};
use ringwork_macros::kernel;

// The code that `#[kernel]` writes says `::ringwork`.
extern crate ringwork_native as ringwork;

/// `y` becomes the reduction of everybody's `x`. See [`all_reduce`](ringwork_collectives::all_reduce()).
///
/// # Errors
/// As [`all_reduce`](ringwork_collectives::all_reduce()); or if the team's memory is not for this algorithm.
#[kernel]
pub async fn all_reduce<C: Core, T: Element>(
    core: &C,
    x: In<T>,
    y: Out<T>,
    team: TeamMemory,
    op: ReduceOp,
    algorithm: Algorithm,
) -> Result<()> {
    let what = (Collective::AllReduce, algorithm);
    run_in(core, team, what, (x.erase(), y.erase()), op, Rank(0)).await
}

/// `y` becomes everybody's `x`, one after the other. See [`all_gather`](ringwork_collectives::all_gather()).
///
/// # Errors
/// As [`all_gather`](ringwork_collectives::all_gather()); or if the team's memory is not for this algorithm.
#[kernel]
pub async fn all_gather<C: Core, T: Element>(
    core: &C,
    x: In<T>,
    y: Out<T>,
    team: TeamMemory,
    algorithm: Algorithm,
) -> Result<()> {
    let what = (Collective::AllGather, algorithm);
    run_in(core, team, what, (x.erase(), y.erase()), ReduceOp::Sum, Rank(0)).await
}

/// `y` becomes my part of the reduction of everybody's `x`. See [`reduce_scatter`](ringwork_collectives::reduce_scatter()).
///
/// # Errors
/// As [`reduce_scatter`](ringwork_collectives::reduce_scatter()); or if the team's memory is not for this algorithm.
#[kernel]
pub async fn reduce_scatter<C: Core, T: Element>(
    core: &C,
    x: In<T>,
    y: Out<T>,
    team: TeamMemory,
    op: ReduceOp,
    algorithm: Algorithm,
) -> Result<()> {
    let what = (Collective::ReduceScatter, algorithm);
    run_in(core, team, what, (x.erase(), y.erase()), op, Rank(0)).await
}

/// `y` becomes the root's `x`. See [`broadcast`](ringwork_collectives::broadcast()).
///
/// # Errors
/// As [`broadcast`](ringwork_collectives::broadcast()); or if the team's memory is not for this algorithm.
#[kernel]
pub async fn broadcast<C: Core, T: Element>(
    core: &C,
    x: In<T>,
    y: Out<T>,
    team: TeamMemory,
    root: Rank,
    algorithm: Algorithm,
) -> Result<()> {
    let what = (Collective::Broadcast, algorithm);
    run_in(core, team, what, (x.erase(), y.erase()), ReduceOp::Sum, root).await
}

/// The root's `y` becomes the reduction of everybody's `x`. See [`reduce`](ringwork_collectives::reduce()).
///
/// # Errors
/// As [`reduce`](ringwork_collectives::reduce()); or if the team's memory is not for this algorithm.
#[kernel]
pub async fn reduce<C: Core, T: Element>(
    core: &C,
    x: In<T>,
    y: Out<T>,
    team: TeamMemory,
    op: ReduceOp,
    root: Rank,
    algorithm: Algorithm,
) -> Result<()> {
    let what = (Collective::Reduce, algorithm);
    run_in(core, team, what, (x.erase(), y.erase()), op, root).await
}

/// The root's `y` becomes everybody's `x`, one after the other. See [`gather`](ringwork_collectives::gather()).
///
/// # Errors
/// As [`gather`](ringwork_collectives::gather()); or if the team's memory is not for this algorithm.
#[kernel]
pub async fn gather<C: Core, T: Element>(
    core: &C,
    x: In<T>,
    y: Out<T>,
    team: TeamMemory,
    root: Rank,
    algorithm: Algorithm,
) -> Result<()> {
    let what = (Collective::Gather, algorithm);
    run_in(core, team, what, (x.erase(), y.erase()), ReduceOp::Sum, root).await
}

/// `y` becomes my part of the root's `x`. See [`scatter`](ringwork_collectives::scatter()).
///
/// # Errors
/// As [`scatter`](ringwork_collectives::scatter()); or if the team's memory is not for this algorithm.
#[kernel]
pub async fn scatter<C: Core, T: Element>(
    core: &C,
    x: In<T>,
    y: Out<T>,
    team: TeamMemory,
    root: Rank,
    algorithm: Algorithm,
) -> Result<()> {
    let what = (Collective::Scatter, algorithm);
    run_in(core, team, what, (x.erase(), y.erase()), ReduceOp::Sum, root).await
}

/// `y` becomes my part of everybody's `x`, one after the other. See [`all_to_all`](ringwork_collectives::all_to_all()).
///
/// # Errors
/// As [`all_to_all`](ringwork_collectives::all_to_all()); or if the team's memory is not for this algorithm.
#[kernel]
pub async fn all_to_all<C: Core, T: Element>(
    core: &C,
    x: In<T>,
    y: Out<T>,
    team: TeamMemory,
    algorithm: Algorithm,
) -> Result<()> {
    let what = (Collective::AllToAll, algorithm);
    run_in(core, team, what, (x.erase(), y.erase()), ReduceOp::Sum, Rank(0)).await
}
