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

/// A kernel for each collective: what it does, the parameters it has beside those that all have, its reduction and its root.
macro_rules! kernels {
    ($($does:literal $name:ident($($parameter:ident: $type:ident),*): $collective:expr, $op:expr, $root:expr;)*) => {$(
        #[doc = $does]
        ///
        /// # Errors
        /// As the collective's own function; or if it has no such algorithm, cannot reduce by that operator, or the team's
        /// memory is not for this algorithm.
        #[allow(clippy::too_many_arguments, reason = "they are what a task has")]
        #[kernel]
        pub async fn $name<C: Core, T: Element>(
            core: &C,
            x: In<T>,
            y: Out<T>,
            team: TeamMemory,
            $($parameter: $type,)*
            algorithm: Algorithm,
        ) -> Result<()> {
            run_in(core, team, ($collective, algorithm), (x.erase(), y.erase()), $op, $root).await
        }
    )*};
}

kernels! {
    "`y` becomes the reduction of everybody's `x`."
    all_reduce(op: ReduceOp): Collective::AllReduce, op, Rank(0);
    "`y` becomes everybody's `x`, one after the other."
    all_gather(): Collective::AllGather, ReduceOp::Sum, Rank(0);
    "`y` becomes my part of the reduction of everybody's `x`."
    reduce_scatter(op: ReduceOp): Collective::ReduceScatter, op, Rank(0);
    "`y` becomes the root's `x`."
    broadcast(root: Rank): Collective::Broadcast, ReduceOp::Sum, root;
    "The root's `y` becomes the reduction of everybody's `x`."
    reduce(op: ReduceOp, root: Rank): Collective::Reduce, op, root;
    "The root's `y` becomes everybody's `x`, one after the other."
    gather(root: Rank): Collective::Gather, ReduceOp::Sum, root;
    "`y` becomes my part of the root's `x`."
    scatter(root: Rank): Collective::Scatter, ReduceOp::Sum, root;
    "`y` becomes my part of everybody's `x`, one after the other."
    all_to_all(): Collective::AllToAll, ReduceOp::Sum, Rank(0);
    "Any collective that moves data. Those without a kernel of their own are submitted so; `op` and `root` are ignored by those \
     that have none."
    collective(collective: Collective, op: ReduceOp, root: Rank): collective, op, root;
}
