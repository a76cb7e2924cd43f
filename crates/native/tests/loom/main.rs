//! Model checks: loom runs the shipped cell, channel, barrier and packet flag through every interleaving and every
//! stale value that the memory model allows, up to a number of preemptions.
//!
//! ```text
//! RUSTFLAGS="--cfg loom" cargo test -p ringwork-native --release --test loom
//! ```
//!
//! There is no clock in a model: a lost wake-up is a deadlock, which loom reports. Data lies in loom's
//! `UnsafeCell`, so an access that is not ordered by signals is a causality violation. Beside the models
//! that must hold stand broken ones that must not, so that we know a flaw would be found.
#![cfg(loom)]

mod barrier;
mod cell;
mod channel;
mod litmus;
mod packets;
mod small_core;
mod unfenced;

use ringwork_native::cell::Patience;
use std::time::Duration;

/// Models do not spin.
const PATIENCE: Patience = Patience {
    spin: Duration::ZERO,
    yields: 0,
};

/// Explores a model with at most so many preemptions; `LOOM_MAX_PREEMPTIONS` overrides it.
fn explore(preemptions: usize, model: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = builder.preemption_bound.or(Some(preemptions));
    builder.check(model);
}
