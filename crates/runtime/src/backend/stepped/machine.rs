//! What a machine must do for a worker, so that its chips can be stepped: memory by number, tasks, and turns.
//!
//! The simulator and the checker are such machines. They differ in who goes next and in clocks; queues of tasks, failures
//! and panics are [the thread's](super::thread).

use super::panics::Guarded;
use crate::backend::{Layout, SegmentPlan};
use crate::error::Result;
use crate::platform::Simulated;
use ringwork_check::AgentId;
use ringwork_isa::stepped::SteppedCore;
use ringwork_isa::{Compare, Rank, Segment, Signal, Site, Waited};
use ringwork_timeline::Timeline;

/// A kernel, to be given its core.
pub(in crate::backend) type Starts = Box<dyn FnOnce(SteppedCore) -> Guarded>;

/// A kernel that can never go on.
#[derive(Clone, Debug)]
pub(in crate::backend) struct Stuck {
    pub(in crate::backend) rank: u32,
    pub(in crate::backend) on: StuckOn,
}

/// What a kernel can be stuck on.
#[derive(Clone, Debug)]
pub(in crate::backend) enum StuckOn {
    Signal(Waited),
    /// Something that is not an instruction, after this line.
    Unknown(Option<Site>),
    /// The machine does not go on, for this reason.
    Stopped(String),
}

/// See the [module](self). A handle: clones are the same machine.
pub(in crate::backend) trait SteppedMachine: Clone + Unpin + 'static {
    /// A task on the machine.
    type Task: Copy + PartialEq + Unpin + 'static;

    /// Makes a segment, zeroed, for these ranks of the machine.
    fn define(&self, plan: &SegmentPlan, ranks: Vec<u32>) -> Result<()>;
    /// Makes a segment for the intermediates of a chip's own graph.
    fn define_scratch(&self, segment: Segment, rank: u32, bytes: u64) -> std::result::Result<(), String>;
    fn release(&self, segment: Segment);
    /// Copies bytes of the host to a place of a segment; false if they do not fit.
    fn write(&self, host: Option<AgentId>, segment: Segment, at: u64, bytes: &[u8]) -> bool;
    /// Copies bytes of a segment to the host, for it or for nobody.
    fn read(&self, host: Option<AgentId>, segment: Segment, at: u64, len: usize) -> Option<Vec<u8>>;
    fn value(&self, signal: &Signal) -> Option<i32>;
    /// Whether a signal compares so, for a host that waits for that, or that only asks.
    fn holds(
        &self,
        _host: Option<AgentId>,
        signal: &Signal,
        (compare, operand): (Compare, i32),
        _waits: bool,
    ) -> Option<bool> {
        self.value(signal).map(|value| compare.holds(value, operand))
    }
    fn notify(&self, host: Option<AgentId>, signal: &Signal, value: i32) -> bool;
    /// Makes the signals of a segment zero.
    fn reset(&self, layout: &Layout);
    /// Stops turns when one of these changes.
    fn watch(&self, signals: &[(Segment, u64)]);
    fn take_news(&self) -> bool;
    fn abort(&self, segment: Segment, reason: &str);
    fn calm(&self, segment: Segment);
    /// Starts a task.
    fn spawn(
        &self,
        rank: u32,
        label: String,
        agent: Option<AgentId>,
        kernel: Starts,
    ) -> std::result::Result<Self::Task, String>;
    /// Starts a task for a task that runs, on a core of the same chip, which came after the end of another one. When it ends,
    /// the task that it was started for is polled.
    fn spawn_inside(
        &self,
        parent: (Self::Task, u32),
        after: Option<Self::Task>,
        name: (&str, &str),
        agent: Option<AgentId>,
        kernel: Starts,
    ) -> std::result::Result<Self::Task, String>;
    fn outcome(&self, task: Self::Task) -> Option<ringwork_isa::Result<()>>;
    fn take_ended(&self) -> Vec<Self::Task>;
    /// One step; false if nothing can happen any more, an error if time has no more room.
    fn turn(&self) -> std::result::Result<bool, String>;
    /// Ends everything; those who were stuck.
    fn give_up(&self) -> Vec<Stuck>;
    /// Ends a task of a chip that has died.
    fn drop_task(&self, _task: Self::Task) {}
    /// Chips that have died since this was last asked.
    fn take_dead(&self) -> Vec<u32> {
        Vec::new()
    }
    /// Ends every wait in a domain: a member has died.
    fn died(&self, _segment: Segment, _rank: Rank, _cause: &str) {}
    fn simulated(&self) -> Option<Simulated> {
        None
    }
    fn timeline(&self) -> Option<Timeline> {
        None
    }
}
