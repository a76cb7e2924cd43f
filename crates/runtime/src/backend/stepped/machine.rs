//! What a machine must do for a worker, so that its chips can be stepped: memory by number, tasks, and turns.
//!
//! The simulator and the checker are such machines. They differ in which task takes the next step, and in clocks. [The
//! thread](super::thread) handles queues of tasks, failures and panics.

use super::panics::Guarded;
use crate::backend::{Layout, SegmentPlan};
use crate::error::Result;
use crate::platform::Simulated;
use ringwork_check::AgentId;
use ringwork_isa::stepped::SteppedCore;
use ringwork_isa::{Compare, Rank, Segment, Signal, Site, Waited};
use ringwork_timeline::Timeline;

/// Starts a kernel on the given core.
pub(in crate::backend) type Starts = Box<dyn FnOnce(SteppedCore) -> Guarded>;

/// A kernel that waits for ever.
#[derive(Clone, Debug)]
pub(in crate::backend) struct Stuck {
    pub(in crate::backend) rank: u32,
    pub(in crate::backend) on: StuckOn,
}

/// What a kernel can be stuck on.
#[derive(Clone, Debug)]
pub(in crate::backend) enum StuckOn {
    Signal(Waited),
    /// A future that is not an instruction; the last instruction was at this line.
    Unknown(Option<Site>),
    /// The machine has stopped, for this reason.
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
    /// Copies bytes of a segment to the host. With `host` the detector sees the read, without it not.
    fn read(&self, host: Option<AgentId>, segment: Segment, at: u64, len: usize) -> Option<Vec<u8>>;
    fn value(&self, signal: &Signal) -> Option<i32>;
    /// Whether the comparison holds for a signal, for a host that waits for it or only tests it.
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
    /// Makes the machine stop when one of these changes.
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
    /// Starts a task of a chip's graph on a core of that chip, after another task has ended. When it ends, the task
    /// that runs the graph is polled.
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
    /// Makes one step; false if nothing can happen any more, an error if virtual time would overflow.
    fn turn(&self) -> std::result::Result<bool, String>;
    /// Ends all kernels, and returns those that were waiting for ever.
    fn give_up(&self) -> Vec<Stuck>;
    /// Drops a task of a chip that has died.
    fn drop_task(&self, _task: Self::Task) {}
    /// The chips that have died since the last call.
    fn take_dead(&self) -> Vec<u32> {
        Vec::new()
    }
    /// Ends every wait in a domain because a member has died.
    fn died(&self, _segment: Segment, _rank: Rank, _cause: &str) {}
    fn simulated(&self) -> Option<Simulated> {
        None
    }
    fn timeline(&self) -> Option<Timeline> {
        None
    }
}
