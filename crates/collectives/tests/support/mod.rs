//! A small stepped engine for tests: one thread, any schedule, every byte watched.
//!
//! Kernels run on [`SteppedCore`](ringwork_isa::stepped::SteppedCore)s over plain vectors. A [`Schedule`]
//! decides who takes the next step, a happens-before detector ([`race`]) judges every access, and a state in
//! which nobody can move is reported with what each rank waits for. So every test of a collective is also
//! a test that it neither races nor deadlocks.
#![allow(
    dead_code,
    unused_imports,
    missing_docs,
    unreachable_pub,
    reason = "shared by several test programs"
)]

pub mod calls;
pub mod engine;
pub mod race;
pub mod reference;
pub mod schedule;
pub mod world;

pub use calls::{Call, Op};
pub use engine::Failure;
pub use ringwork_testkit::Rng;
pub use schedule::Schedule;
pub use world::World;
