//! The checking platform: finds every race, deadlock and misused signal of a kernel, or proves that there is none.
//!
//! It sits on `isa` and `layout`: it runs the same unmodified kernels as every other platform. It has no clock, no
//! threads and no unsafe code, and it never contains a collective.
//!
//! A kernel's instructions are values, and nothing but signals and packets orders two ranks. So an engine can decide
//! what happens in which order, and knows of every access whether it is ordered after the one before it. What that means
//! exactly is written in `docs/memory-model.md`.
//!
//! # Example
//! Rank 0 writes into the window of rank 1, which reads it without waiting:
//!
//! ```
//! use ringwork_check::{Fault, prove};
//! use ringwork_isa::{Compare, Core, Notify, Rank, Tile};
//!
//! let verdict = prove(2, 1, async |core, seat| {
//!     let (data, ready) = (seat.buffer::<i32>(0, 4), seat.signal(0)?);
//!     if seat.me == Rank(0) {
//!         core.store(data.on(Rank(1))?, &Tile::new(vec![1, 2, 3, 4])).await?;
//!         core.notify(ready.on(Rank(1))?, Notify::Set(1)).await
//!     } else {
//!         // The wait is left out: core.wait(ready, Compare::Ge, 1).await?;
//!         core.load(data).await.map(drop)
//!     }
//! });
//! assert!(matches!(&verdict.faults[..], [Fault::Race(race)]
//!     if race.first.instruction == "store" && race.second.instruction == "load"));
//! ```
//!
//! In a test of a kernel that is right, `prove(..).expect_proved()` is the whole test.
//!
//! # How it decides
//! 1. **One execution.** Most programs use signals in one way: each has one writer, only grows, and is waited for by `>=`.
//!    Then an instruction that can happen stays possible, and those of two ranks commute: all interleavings are one
//!    execution up to equivalence. One schedule is run with vector clocks and shadow memory, in which a wait learns from
//!    the *first* value that satisfies it. That these conditions hold is checked for every signal, not assumed.
//! 2. **All executions.** Instructions on signals that do not keep the conditions are done in every order, and a foreign
//!    `test` or `peek` reads every value that it may read, also stale ones.
//! 3. **Any number of calls.** If one schedule stands for all, and the program comes to a state in which it was before, it
//!    goes on so for ever: [`Program::prove_reuse`].
//!
//! The verdict says [which](Verdict::tier) of the three it is. A [bound](Bounds) that is reached, of states, instructions or
//! memory, is [said](Verdict::is_bounded) to be one. It is not a proof.
#![forbid(unsafe_code)]

mod cells;
mod clock;
mod detector;
mod explore;
mod fault;
mod front;
mod interleave;
mod machine;
mod memory;
mod mutate;
mod page;
mod program;
mod replay;
mod reuse;
mod run;
mod schedule;
mod shadow;
mod task_fault;
mod tree;
mod verdict;
mod words;

pub use cells::Broken;
pub use detector::{AgentId, Detector, Moment};
pub use explore::{Bound, Bounds};
pub use fault::{Fault, Misuse, Race, Side, Stuck};
pub use front::watched;
pub use interleave::Interleavings;
pub use machine::{Halted, Machine, MachineTask, TaskKernel, cell_of};
pub use memory::Contents;
pub use mutate::{Mutant, Mutation};
pub use page::page;
pub use program::{Noticed, Program, Seat, typed};
pub use replay::{Replay, Trace};
pub use reuse::Reuse;
pub use schedule::{Schedule, ScheduleError};
pub use task_fault::{Checked, TaskFault, TaskRace, TaskSide, Unproved, Who};
pub use verdict::{Proof, Tier, Verdict};

use ringwork_isa::Result;
use ringwork_isa::stepped::SteppedCore;

/// Checks a kernel that each of `ranks` calls `calls` times.
///
/// [`Seat`] says which rank it is and hands out its memory: 64 signals and 64 KiB of window and of private memory, all zero. Use
/// [`Program`] for other sizes, inputs and results. Check two calls at least: memory that is used again is where most
/// kernels go wrong. In a test of your own kernel this is all:
///
/// ```
/// use ringwork_isa::{Core, Rank, Result, Shared, Barrier};
///
/// /// Every rank writes its line and reads that of the next rank.
/// async fn exchange<C: Core>(core: &C, mine: Shared<i32>, meet: Barrier) -> Result<()> {
///     let half = mine.half(meet.epoch(core).await?);
///     let tile = core.load(half).await?;
///     core.store(half, &tile).await?;
///     meet.arrive_and_wait(core).await?;
///     let next = Rank((meet.rank().0 + 1) % meet.ranks());
///     core.load(half.on(next)?).await.map(drop)
/// }
///
/// // #[test] fn exchange_has_no_race() {
/// ringwork_check::prove(3, 4, async |core, seat| exchange(core, seat.buffer(0, 32), seat.barrier()).await).expect_proved();
/// // }
/// ```
///
/// Without the barrier, or without `half`, the test fails with both lines, what each rank knew, and what to do.
pub fn prove<K>(ranks: u32, calls: u32, kernel: K) -> Verdict
where
    K: AsyncFn(&SteppedCore, Seat) -> Result<()> + 'static,
{
    Program::new(ranks, calls, kernel).prove()
}
