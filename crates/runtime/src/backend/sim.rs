//! The simulated machine of a node: chips of a described machine, in virtual time.

use super::stepped::{
    GraphOrder, Made, Starts, SteppedBackend, SteppedError, SteppedMachine, Stuck, StuckOn,
};
use super::{Layout, SegmentPlan};
use crate::config::NodeBuilder;
use crate::domain::DomainPlan;
use crate::error::Result;
use crate::platform::{Simulated, Simulation};
use ringwork_check::{AgentId, Detector, watched};
use ringwork_isa::stepped::{Instruction, Payload, SteppedCore};
use ringwork_isa::{Compare, Notify, Rank, Segment, Signal};
use ringwork_layout::CellRow;
use ringwork_sim::{Machine, Options, SegmentSpec, SimError, TaskId};
use ringwork_timeline::Timeline;
use std::cell::RefCell;
use std::rc::Rc;

/// An operation that a simulated machine refused.
#[derive(Debug, thiserror::Error)]
#[error(transparent)]
struct MachineError(SimError);

/// Starts the simulator. The node's devices are ranks of its topology.
pub(super) fn launch(
    simulation: &Simulation,
    builder: &NodeBuilder,
    plans: &[DomainPlan],
    own: Segment,
) -> Result<SteppedBackend<SimMachine>> {
    let (simulation, chips) = (simulation.clone(), builder.devices.len());
    let make = move || {
        let options = Options {
            trace: simulation.trace,
            ..Options::default()
        };
        let detector = simulation.races.then(|| Rc::new(RefCell::new(Detector::new())));
        let chips = u32::try_from(chips).unwrap_or(u32::MAX);
        let order = detector.clone().map(|detector| GraphOrder::new(detector, chips));
        let machine = SimMachine {
            machine: Machine::new(&simulation.topology, options),
            detector,
            topology: simulation.topology.name.clone(),
            traced: simulation.trace,
        };
        Made {
            machine,
            order,
            tells_deaths_at_once: false,
        }
    };
    SteppedBackend::launch("simulated machine", make, builder, plans, own)
}

/// See the [module](self).
#[derive(Clone)]
pub(super) struct SimMachine {
    machine: Machine,
    /// The race detector, if races are looked for.
    detector: Option<Rc<RefCell<Detector>>>,
    topology: String,
    traced: bool,
}

impl SimMachine {
    /// Reports an instruction of the host to the detector.
    fn by_host(&self, host: Option<AgentId>, instruction: &Instruction) {
        if let (Some(detector), Some(host)) = (&self.detector, host) {
            // An instruction without memory is never refused.
            let _ = detector.borrow_mut().perform(host, instruction, None);
        }
    }

    /// A core whose instructions the detector sees.
    fn core(&self, agent: Option<AgentId>, core: SteppedCore) -> SteppedCore {
        match (&self.detector, agent) {
            (Some(detector), Some(agent)) => watched(&core, agent, detector.clone()),
            _ => core,
        }
    }
}

impl SteppedMachine for SimMachine {
    type Task = TaskId;

    fn define(&self, plan: &SegmentPlan, ranks: Vec<u32>) -> Result<()> {
        let spec = SegmentSpec {
            segment: plan.layout.segment,
            members: ranks,
            bytes: plan.layout.bytes(),
            memory: 0,
        };
        self.machine.define(spec).map_err(|error| match error {
            SimError::OutOfMemory {
                memory,
                rank,
                capacity,
                needed,
            } => SteppedError::OutOfMemory {
                what: format!("{}, with what is in {memory} of chip {rank} already,", plan.what),
                need_bytes: needed,
                have_bytes: capacity,
            }
            .into(),
            other => crate::Error::Platform(Box::new(MachineError(other))),
        })?;
        for (first, count, name) in &plan.signals {
            let (first, count) = (*first, *count);
            let row = plan.layout.signals(Rank(0), CellRow { first, count });
            self.machine.name_signals(&row, name);
        }
        if let Some(detector) = &self.detector {
            let (segment, bytes) = (plan.layout.segment, plan.layout.bytes());
            detector.borrow_mut().define(segment, &*plan.what, None, bytes);
        }
        Ok(())
    }

    fn define_scratch(&self, segment: Segment, rank: u32, bytes: u64) -> std::result::Result<(), String> {
        let spec = SegmentSpec {
            segment,
            members: vec![rank],
            bytes,
            memory: 0,
        };
        if let Some(detector) = &self.detector {
            let what = format!("the intermediates of chip {rank}'s graph");
            detector.borrow_mut().define(segment, what, Some(rank), bytes);
        }
        self.machine.define(spec).map_err(|error| error.to_string())
    }

    fn release(&self, segment: Segment) {
        self.machine.release(segment);
        if let Some(detector) = &self.detector {
            detector.borrow_mut().release(segment);
        }
    }

    fn write(&self, host: Option<AgentId>, segment: Segment, at: u64, bytes: &[u8]) -> bool {
        let dst = super::host_span(segment, at, bytes.len());
        let data = Payload::Hollow;
        self.by_host(host, &Instruction::Store { dst, data });
        self.machine.write(segment, at, bytes).is_ok()
    }

    fn read(&self, host: Option<AgentId>, segment: Segment, at: u64, len: usize) -> Option<Vec<u8>> {
        let src = super::host_span(segment, at, len);
        self.by_host(host, &Instruction::Load { src });
        self.machine.read(segment, at, len).ok()
    }

    fn value(&self, signal: &Signal) -> Option<i32> {
        let bytes = self.machine.read(signal.segment(), signal.offset()?, 4).ok()?;
        Some(i32::from_le_bytes(bytes.try_into().ok()?))
    }

    fn holds(
        &self,
        host: Option<AgentId>,
        signal: &Signal,
        (compare, operand): (Compare, i32),
        waits: bool,
    ) -> Option<bool> {
        let holds = self.value(signal).map(|value| compare.holds(value, operand))?;
        if holds {
            let signal = *signal;
            self.by_host(host, &super::host_look(signal, compare, operand, waits));
        }
        Some(holds)
    }

    fn notify(&self, host: Option<AgentId>, signal: &Signal, value: i32) -> bool {
        let how = Notify::Set(value);
        self.by_host(host, &Instruction::Notify { signal: *signal, how });
        let offset = signal.offset();
        offset.is_some_and(|offset| self.machine.notify(signal.segment(), offset, value).is_ok())
    }

    fn reset(&self, layout: &Layout) {
        let zeros = vec![0; usize::try_from(layout.data_offset() - layout.header_bytes).unwrap_or(0)];
        for rank in (0..layout.ranks).map(Rank) {
            // The cells are part of the segment.
            let _ = self
                .machine
                .write(layout.segment, layout.window_offset(rank), &zeros);
        }
        if let Some(detector) = &self.detector {
            detector.borrow_mut().reset_signals(layout.segment);
        }
    }

    fn watch(&self, signals: &[(Segment, u64)]) {
        self.machine.watch(signals);
    }

    fn take_news(&self) -> bool {
        self.machine.take_news()
    }

    fn abort(&self, segment: Segment, reason: &str) {
        self.machine.abort(segment, reason);
    }

    fn calm(&self, segment: Segment) {
        self.machine.calm(segment);
    }

    fn spawn(
        &self,
        rank: u32,
        label: String,
        agent: Option<AgentId>,
        kernel: Starts,
    ) -> std::result::Result<TaskId, String> {
        let spawned = self
            .machine
            .spawn(rank, label, |core| kernel(self.core(agent, core)));
        spawned.map_err(|error| error.to_string())
    }

    fn spawn_inside(
        &self,
        (parent, _): (TaskId, u32),
        after: Option<TaskId>,
        name: (&str, &str),
        agent: Option<AgentId>,
        kernel: Starts,
    ) -> std::result::Result<TaskId, String> {
        let spawned = self
            .machine
            .spawn_inside(parent, after, name, |core| kernel(self.core(agent, core)));
        spawned.map_err(|error| error.to_string())
    }

    fn outcome(&self, task: TaskId) -> Option<ringwork_isa::Result<()>> {
        self.machine.outcome(task).map(|outcome| outcome.result)
    }

    fn take_ended(&self) -> Vec<TaskId> {
        self.machine.take_ended()
    }

    fn turn(&self) -> std::result::Result<bool, String> {
        self.machine.turn().map_err(|error| error.to_string())
    }

    fn give_up(&self) -> Vec<Stuck> {
        let stuck = match self.machine.run() {
            Err(SimError::Deadlock { stuck, .. } | SimError::Failed { stuck, .. }) => stuck,
            _ => Vec::new(),
        };
        let known = |stuck: ringwork_sim::Stuck| Stuck {
            rank: stuck.rank,
            on: match stuck.on {
                ringwork_sim::StuckOn::Signal(waited) => StuckOn::Signal(waited),
                ringwork_sim::StuckOn::Unknown(site) => StuckOn::Unknown(site),
            },
        };
        stuck.into_iter().map(known).collect()
    }

    fn simulated(&self) -> Option<Simulated> {
        Some(Simulated {
            topology: self.topology.clone(),
            now_ps: self.machine.now_ps(),
            events: self.machine.events(),
            fingerprint: self.machine.fingerprint(),
            loads: self.machine.loads(),
        })
    }

    fn timeline(&self) -> Option<Timeline> {
        self.traced.then(|| self.machine.timeline())
    }
}
