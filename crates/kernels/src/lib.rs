//! The collectives as kernels, to be submitted as tasks: each is its function with the team in pieces.
//!
//! ```ignore
//! orch.group(members, |chip| Ok(kernels::all_reduce::task(&x[chip], &y[chip], scratch, meet, steps, Sum, TwoPhase)))
//! ```

use ringwork_collectives::Team;
use ringwork_isa::{Algorithm, Barrier, Core, Element, In, Out, Rank, ReduceOp, Result, Shared, Signals};
use ringwork_macros::kernel;

// The code that `#[kernel]` writes says `::ringwork`.
extern crate ringwork_native as ringwork;

/// `y` becomes the reduction of everybody's `x`. See [`all_reduce`](ringwork_collectives::all_reduce()).
///
/// # Errors
/// As [`all_reduce`](ringwork_collectives::all_reduce()).
#[kernel]
pub async fn all_reduce<C: Core, T: Element>(
    core: &C,
    x: In<T>,
    y: Out<T>,
    scratch: Shared<T>,
    meet: Barrier,
    steps: Signals,
    op: ReduceOp,
    algorithm: Algorithm,
) -> Result<()> {
    ringwork_collectives::all_reduce(
        core,
        Team::new(scratch, meet, steps)?,
        x.erase(),
        y.erase(),
        op,
        algorithm,
    )
    .await
}

/// `y` becomes everybody's `x`, one after the other. See [`all_gather`](ringwork_collectives::all_gather()).
///
/// # Errors
/// As [`all_gather`](ringwork_collectives::all_gather()).
#[kernel]
pub async fn all_gather<C: Core, T: Element>(
    core: &C,
    x: In<T>,
    y: Out<T>,
    scratch: Shared<T>,
    meet: Barrier,
    steps: Signals,
) -> Result<()> {
    ringwork_collectives::all_gather(core, Team::new(scratch, meet, steps)?, x.erase(), y.erase()).await
}

/// `y` becomes my part of the reduction of everybody's `x`. See [`reduce_scatter`](ringwork_collectives::reduce_scatter()).
///
/// # Errors
/// As [`reduce_scatter`](ringwork_collectives::reduce_scatter()).
#[kernel]
pub async fn reduce_scatter<C: Core, T: Element>(
    core: &C,
    x: In<T>,
    y: Out<T>,
    scratch: Shared<T>,
    meet: Barrier,
    steps: Signals,
    op: ReduceOp,
) -> Result<()> {
    ringwork_collectives::reduce_scatter(core, Team::new(scratch, meet, steps)?, x.erase(), y.erase(), op)
        .await
}

/// `y` becomes the root's `x`. See [`broadcast`](ringwork_collectives::broadcast()).
///
/// # Errors
/// As [`broadcast`](ringwork_collectives::broadcast()).
#[kernel]
pub async fn broadcast<C: Core, T: Element>(
    core: &C,
    x: In<T>,
    y: Out<T>,
    scratch: Shared<T>,
    meet: Barrier,
    steps: Signals,
    root: Rank,
) -> Result<()> {
    ringwork_collectives::broadcast(core, Team::new(scratch, meet, steps)?, x.erase(), y.erase(), root).await
}

/// The root's `y` becomes the reduction of everybody's `x`. See [`reduce`](ringwork_collectives::reduce()).
///
/// # Errors
/// As [`reduce`](ringwork_collectives::reduce()).
#[kernel]
pub async fn reduce<C: Core, T: Element>(
    core: &C,
    x: In<T>,
    y: Out<T>,
    scratch: Shared<T>,
    meet: Barrier,
    steps: Signals,
    op: ReduceOp,
    root: Rank,
) -> Result<()> {
    ringwork_collectives::reduce(
        core,
        Team::new(scratch, meet, steps)?,
        x.erase(),
        y.erase(),
        op,
        root,
    )
    .await
}

/// The root's `y` becomes everybody's `x`, one after the other. See [`gather`](ringwork_collectives::gather()).
///
/// # Errors
/// As [`gather`](ringwork_collectives::gather()).
#[kernel]
pub async fn gather<C: Core, T: Element>(
    core: &C,
    x: In<T>,
    y: Out<T>,
    scratch: Shared<T>,
    meet: Barrier,
    steps: Signals,
    root: Rank,
) -> Result<()> {
    ringwork_collectives::gather(core, Team::new(scratch, meet, steps)?, x.erase(), y.erase(), root).await
}

/// `y` becomes my part of the root's `x`. See [`scatter`](ringwork_collectives::scatter()).
///
/// # Errors
/// As [`scatter`](ringwork_collectives::scatter()).
#[kernel]
pub async fn scatter<C: Core, T: Element>(
    core: &C,
    x: In<T>,
    y: Out<T>,
    scratch: Shared<T>,
    meet: Barrier,
    steps: Signals,
    root: Rank,
) -> Result<()> {
    ringwork_collectives::scatter(core, Team::new(scratch, meet, steps)?, x.erase(), y.erase(), root).await
}

/// `y` becomes my part of everybody's `x`, one after the other. See [`all_to_all`](ringwork_collectives::all_to_all()).
///
/// # Errors
/// As [`all_to_all`](ringwork_collectives::all_to_all()).
#[kernel]
pub async fn all_to_all<C: Core, T: Element>(
    core: &C,
    x: In<T>,
    y: Out<T>,
    scratch: Shared<T>,
    meet: Barrier,
    steps: Signals,
) -> Result<()> {
    ringwork_collectives::all_to_all(core, Team::new(scratch, meet, steps)?, x.erase(), y.erase()).await
}
