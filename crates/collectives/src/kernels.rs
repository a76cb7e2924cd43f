//! The collectives as kernels, to be submitted as tasks: each is its function with the team in pieces.
//!
//! ```ignore
//! orch.group(members, |chip| Ok(kernels::all_reduce::task(&x[chip], &y[chip], scratch, meet, steps, Sum, TwoPhase)))
//! ```

use crate::{Algorithm, Team};
use ringwork_isa::{
    Arg, Argument, Barrier, Core, Element, In, Out, Parameter, Rank, ReduceOp, Result, Shared, Signals, Tag,
    Value,
};
use ringwork_macros::kernel;

/// `y` becomes the reduction of everybody's `x`. See [`all_reduce`](crate::all_reduce()).
///
/// # Errors
/// As [`all_reduce`](crate::all_reduce()).
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
    crate::all_reduce(
        core,
        Team::new(scratch, meet, steps)?,
        x.erase(),
        y.erase(),
        op,
        algorithm,
    )
    .await
}

/// `y` becomes everybody's `x`, one after the other. See [`all_gather`](crate::all_gather()).
///
/// # Errors
/// As [`all_gather`](crate::all_gather()).
#[kernel]
pub async fn all_gather<C: Core, T: Element>(
    core: &C,
    x: In<T>,
    y: Out<T>,
    scratch: Shared<T>,
    meet: Barrier,
    steps: Signals,
) -> Result<()> {
    crate::all_gather(core, Team::new(scratch, meet, steps)?, x.erase(), y.erase()).await
}

/// `y` becomes my part of the reduction of everybody's `x`. See [`reduce_scatter`](crate::reduce_scatter()).
///
/// # Errors
/// As [`reduce_scatter`](crate::reduce_scatter()).
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
    crate::reduce_scatter(core, Team::new(scratch, meet, steps)?, x.erase(), y.erase(), op).await
}

/// `y` becomes the root's `x`. See [`broadcast`](crate::broadcast()).
///
/// # Errors
/// As [`broadcast`](crate::broadcast()).
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
    crate::broadcast(core, Team::new(scratch, meet, steps)?, x.erase(), y.erase(), root).await
}

/// The root's `y` becomes the reduction of everybody's `x`. See [`reduce`](crate::reduce()).
///
/// # Errors
/// As [`reduce`](crate::reduce()).
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
    crate::reduce(
        core,
        Team::new(scratch, meet, steps)?,
        x.erase(),
        y.erase(),
        op,
        root,
    )
    .await
}

/// The root's `y` becomes everybody's `x`, one after the other. See [`gather`](crate::gather()).
///
/// # Errors
/// As [`gather`](crate::gather()).
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
    crate::gather(core, Team::new(scratch, meet, steps)?, x.erase(), y.erase(), root).await
}

/// `y` becomes my part of the root's `x`. See [`scatter`](crate::scatter()).
///
/// # Errors
/// As [`scatter`](crate::scatter()).
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
    crate::scatter(core, Team::new(scratch, meet, steps)?, x.erase(), y.erase(), root).await
}

/// `y` becomes my part of everybody's `x`, one after the other. See [`all_to_all`](crate::all_to_all()).
///
/// # Errors
/// As [`all_to_all`](crate::all_to_all()).
#[kernel]
pub async fn all_to_all<C: Core, T: Element>(
    core: &C,
    x: In<T>,
    y: Out<T>,
    scratch: Shared<T>,
    meet: Barrier,
    steps: Signals,
) -> Result<()> {
    crate::all_to_all(core, Team::new(scratch, meet, steps)?, x.erase(), y.erase()).await
}

impl Parameter for Algorithm {
    const TAG: Tag = Tag::Value;
    fn type_name() -> String {
        "Algorithm".into()
    }
    fn from_arg(arg: &Arg) -> std::result::Result<Self, String> {
        let Arg::Value(Value::U64(index)) = arg else {
            return Err(Self::type_name());
        };
        let found = usize::try_from(*index)
            .ok()
            .and_then(|index| Algorithm::ALL.get(index));
        found.copied().ok_or_else(Self::type_name)
    }
}

impl Argument<Algorithm> for Algorithm {
    fn to_arg(&self) -> Arg {
        Arg::Value((*self as usize).into())
    }
}
