//! The seam between a worker and a platform: memory by number, tasks by chip, events.
//!
//! Everything above speaks to a [`Backend`] in the types of this module, and cannot tell processes from a
//! simulation. To add a platform, implement `Backend` in a file beside [`native`], or a machine that is
//! [stepped] as in `sim` and [`check`], and name it in [`Platform`] and [`launch`]. Of the crate
//! `ringwork-native` a platform needs the [`Interrupter`] only.

pub(crate) mod check;
pub(crate) mod native;
#[cfg(feature = "sim")]
pub(crate) mod sim;
mod stepped;

use crate::config::NodeBuilder;
use crate::domain::DomainPlan;
use crate::error::{Error, Result};
use crate::platform::{Platform, Simulated};
use crate::signal_names::SignalsOf;
use crate::timeline::Records;
use native::{HostSegment, NativeBackend};
use ringwork_check::{Checked, TaskFault};
use ringwork_isa::stepped::Instruction;
use ringwork_isa::{Compare, Dtype, Rank, Segment, Signal, Site, Span, Task};
pub(crate) use ringwork_layout::Layout;
pub use ringwork_native::Interrupter;
use ringwork_registry::UnknownKernel;
use ringwork_timeline::Timeline;
use std::ops::Range;
use std::sync::Arc;
use std::time::Instant;

/// A segment to create, and the chips that map it; in rank order if it is a domain's windows.
#[derive(Clone, Debug)]
pub(crate) struct SegmentPlan {
    pub(crate) layout: Layout,
    /// Such as `window "tp"`.
    pub(crate) what: String,
    pub(crate) members: Members,
    /// Its rows of signals.
    pub(crate) signals: Vec<SignalsOf>,
}

/// The members of a domain that are chips of one worker. Their ranks are consecutive, because a domain may span
/// workers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Members {
    /// The rank of the first.
    pub(crate) first: u32,
    /// The chips, by position, in rank order.
    pub(crate) chips: Vec<usize>,
}

impl Members {
    /// All members of a domain of one worker.
    pub(crate) fn all(chips: impl Into<Vec<usize>>) -> Members {
        let chips = chips.into();
        Members { first: 0, chips }
    }

    /// The rank of a chip, if it is a member.
    pub(crate) fn rank_of(&self, chip: usize) -> Option<Rank> {
        let place = self.chips.iter().position(|member| *member == chip)?;
        self.first.checked_add(u32::try_from(place).ok()?).map(Rank)
    }

    /// The chip with this rank, if it is a member.
    pub(crate) fn chip_of(&self, rank: Rank) -> Option<usize> {
        let place = usize::try_from(rank.0.checked_sub(self.first)?).ok()?;
        self.chips.get(place).copied()
    }
}

/// Something that happened on a chip.
#[derive(Debug)]
pub(crate) enum Event {
    /// A task ended. `task` is the number that it was submitted with.
    Ran {
        chip: usize,
        task: u64,
        outcome: std::result::Result<(), Failure>,
    },
    /// The chip could not map a segment that was handed to it.
    NotMapped { chip: usize, message: String },
    /// The chip is gone.
    Ended { chip: usize, cause: String },
}

/// What orders the tasks of the graph, by their numbers, for a platform that looks for races.
#[derive(Clone, Debug)]
pub(crate) enum Order {
    /// The host submitted a task. It comes after these, which have ended already.
    Submitted {
        task: u64,
        after: Vec<u64>,
        /// Signals that it waits for before it starts, and after it has run.
        when: Vec<(Signal, Compare, i32)>,
        until: Vec<(Signal, Compare, i32)>,
    },
    /// A task comes after another one in the graph, and that has ended.
    Follows { task: u64, before: u64 },
    /// A part of a task will be submitted to its chip with this number.
    Sent { id: u64, task: u64 },
    /// A closure on the host begins. Until it ends, what the host does is done by this closure.
    HostBegins { task: u64, name: String },
    /// It has ended.
    HostEnds { task: u64 },
    /// The host has waited: for all tasks, or until some have ended and there was room.
    Waited { all: bool },
    /// These bytes of an arena are allocated again; the tasks that used them before have ended.
    HandedOut { segment: Segment, bytes: Range<u64> },
}

/// Bytes of a segment, as the operand of an instruction of the host.
fn host_span(segment: Segment, at: u64, len: usize) -> Span {
    Span {
        segment,
        base: at,
        stride: 0,
        me: Rank(0),
        rank: Rank(0),
        ranks: 1,
        dtype: Dtype::U8,
        start: 0,
        len: len as u64,
    }
}

/// The instruction that a host performs when it has waited for a signal, or only tests it.
fn host_look(signal: Signal, compare: Compare, operand: i32, waits: bool) -> Instruction {
    if waits {
        Instruction::Wait {
            signal,
            compare,
            operand,
        }
    } else {
        Instruction::Test {
            signal,
            compare,
            operand,
        }
    }
}

/// How a kernel failed on a chip that lives on.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Failure {
    /// It returned an error.
    #[error("{0}")]
    Returned(ringwork_isa::Error),
    /// It panicked.
    #[error("the kernel panicked at {site}: {message}")]
    Panicked {
        /// The panic's message.
        message: String,
        /// Where.
        site: Site,
    },
    /// It was not started, because a domain that it uses had been aborted.
    #[error("not begun: {why}")]
    NotBegun {
        /// The dead member that caused the abort.
        dead: Option<Rank>,
        /// Why.
        why: String,
    },
    /// The chip has no such kernel.
    #[error("{0}")]
    Unknown(UnknownKernel),
}

/// What a chip was doing when it was last observed.
#[derive(Clone, Debug)]
pub(crate) struct LastSeen {
    /// Counts up while the chip makes progress.
    pub(crate) count: u64,
    /// Such as `wait at src/kernel.rs:12`.
    pub(crate) what: String,
}

/// Brings up the chips of a node, with the configured domains and the data staged in them. Each chip may use one
/// segment for its own graphs, numbered `own` and up.
///
/// # Errors
/// The first chip that did not come up, or that there is no memory.
pub(crate) fn launch(
    builder: &mut NodeBuilder,
    plans: &[DomainPlan],
    own: Segment,
) -> Result<Box<dyn Backend>> {
    Ok(match builder.platform.clone() {
        Platform::Native => Box::new(NativeBackend::launch(builder, plans)?),
        #[cfg(feature = "sim")]
        Platform::Sim(simulation) => Box::new(sim::launch(&simulation, builder, plans, own)?),
        Platform::Check(checking) => Box::new(check::launch(&checking, builder, plans, own)?),
    })
}

/// Waits for events of a backend while the backend itself is not locked.
pub(crate) trait Waiter: Send + Sync {
    /// Waits until something happens; false at the deadline or when interrupted.
    fn wait(&self, deadline: Option<Instant>) -> bool;
    /// Ends the wait.
    fn wake(&self);
}

/// What a platform does for a worker. Chips are named by their position among the worker's devices.
pub(crate) trait Backend: Send {
    fn create(&mut self, plan: &SegmentPlan) -> Result<()>;
    /// Maps the memory of a domain that spans other workers of this host; false if the chips cannot map memory of this
    /// host.
    fn join(&mut self, _segment: &HostSegment, _plan: &SegmentPlan) -> Result<bool> {
        Ok(false)
    }
    /// The first of these members whose chip has ended, and the cause.
    fn dead_member(&self, _members: &Members) -> Option<(Rank, String)> {
        None
    }
    /// Frees a segment once the tasks submitted before are done with it.
    fn release(&mut self, segment: Segment, chips: &[usize]);
    /// Copies host bytes into a rank's data; false if they do not fit.
    fn write(&self, segment: Segment, rank: Rank, offset: u64, bytes: &[u8]) -> bool;
    /// Copies a rank's data out; false if it is not all there.
    fn read(&self, segment: Segment, rank: Rank, offset: u64, bytes: &mut [u8]) -> bool;
    /// The current value of a signal, with acquire order; `None` if there is no such signal.
    fn peek(&self, signal: &Signal) -> Option<i32>;
    /// Whether the comparison holds for a signal now, for a host that waits for it or only tests it; `None` if there is
    /// no such signal.
    fn holds(&self, signal: &Signal, (compare, operand): (Compare, i32), _waits: bool) -> Option<bool> {
        self.peek(signal).map(|value| compare.holds(value, operand))
    }
    /// Sets a signal from outside, after everything written before; false if there is none.
    fn notify(&self, signal: &Signal, value: i32) -> bool;
    /// Sets the signals that the host waits for. Returns whether a wait ends when one of them changes; a virtual
    /// clock then stops until the host has seen it.
    fn watch(&mut self, _signals: &[Signal]) -> bool {
        false
    }
    /// Completes the transfers in flight while no task runs. Returns whether a [watched](Self::watch) signal changed.
    fn settle(&mut self) -> bool {
        false
    }
    /// Whether virtual time passes right now, so that what the host reads depends on the moment at which it reads.
    fn moving(&self) -> bool {
        false
    }
    /// Sets whether the host will notify signals of this domain: a kernel that waits there may be waiting for the
    /// host.
    fn attend(&mut self, _segment: Segment, _attended: bool) {}
    /// Ends every wait in a domain.
    fn abort(&mut self, segment: Segment, reason: &str);
    /// Resets the signals, unless a member has ended. Only while no task uses the domain, and only if all its members
    /// are this worker's.
    fn reset(&mut self, segment: Segment, members: &Members);
    /// Sends a task; false if there is no room for now. `Error::Gone` if the chip has ended: its end is already an
    /// event, or will be.
    fn submit(&mut self, chip: usize, id: u64, task: &Task) -> Result<bool>;
    fn events(&mut self) -> Vec<Event>;
    /// Waits until something happens; false at the deadline or when interrupted.
    fn wait(&mut self, deadline: Option<Instant>) -> bool;
    /// Waits as `wait` does, while others use the backend; `None` if the platform cannot do that.
    fn waiter(&self) -> Option<Arc<dyn Waiter>> {
        None
    }
    fn interrupted(&self) -> bool;
    fn interrupter(&self) -> Interrupter;
    /// How a chip ended, if it has.
    fn end(&self, chip: usize) -> Option<String>;
    fn last_seen(&self, chip: usize) -> LastSeen;
    fn pid(&self, chip: usize) -> Option<u32>;
    /// The chip's process, if it is stopped by a signal.
    fn stopped(&self, _chip: usize) -> Option<u32> {
        None
    }
    fn kill(&mut self, chip: usize);
    fn close(&mut self);
    /// The virtual time; `None` where time is real.
    fn simulated(&self) -> Option<Simulated> {
        None
    }
    /// What the chips have recorded; `None` if they do not record.
    fn records(&self) -> Option<Records> {
        None
    }
    /// The timeline, if the platform itself keeps it.
    fn timeline(&self) -> Option<Timeline> {
        None
    }
    /// Whether this platform [needs to know](Backend::hear) what orders the tasks of the graph.
    fn is_told(&self) -> bool {
        false
    }
    /// Takes note of one fact that orders tasks of the graph. Facts come in the order in which they became true.
    fn hear(&mut self, _order: Order) {}
    /// Races and misused signals that were found since this was last asked.
    fn take_faults(&mut self) -> Vec<TaskFault> {
        Vec::new()
    }
    /// What was checked; `None` where nothing is.
    fn checked(&self) -> Option<Checked> {
        None
    }
}

impl From<ringwork_layout::LayoutError> for Error {
    fn from(error: ringwork_layout::LayoutError) -> Error {
        Error::Platform(Box::new(error))
    }
}
