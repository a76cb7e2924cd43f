//! The checking machine of a node: no clock, and a detector that sees every instruction.
//!
//! It has the memory too, so that the values and the faults of a run come from the same execution.

use super::stepped::{GraphOrder, Made, Starts, SteppedBackend, SteppedMachine, Stuck, StuckOn};
use super::{Layout, SegmentPlan};
use crate::config::NodeBuilder;
use crate::domain::DomainPlan;
use crate::error::Result;
use crate::platform::Checking;
use ringwork_check::{AgentId, Detector, Machine, MachineTask};
use ringwork_isa::stepped::{Answer, Instruction, Payload};
use ringwork_isa::{Compare, Notify, Rank, Segment, Signal};
use std::cell::RefCell;
use std::rc::Rc;

/// Starts the checker.
pub(super) fn launch(
    checking: &Checking,
    builder: &NodeBuilder,
    plans: &[DomainPlan],
    own: Segment,
) -> Result<SteppedBackend<CheckMachine>> {
    let (checking, chips) = (checking.clone(), builder.devices.len());
    let make = move || {
        let detector = Rc::new(RefCell::new(Detector::with_memory()));
        let machine = Machine::new(detector.clone(), checking.instructions);
        for (device, instruction) in checking.deaths {
            machine.let_die(device.0, instruction);
        }
        let chips = u32::try_from(chips).unwrap_or(u32::MAX);
        Made {
            order: Some(GraphOrder::new(detector.clone(), chips)),
            machine: CheckMachine { machine, detector },
            tells_deaths_at_once: checking.tells_at_once,
        }
    };
    SteppedBackend::launch("checker", make, builder, plans, own)
}

/// See the [module](self).
#[derive(Clone)]
pub(super) struct CheckMachine {
    machine: Machine,
    detector: Rc<RefCell<Detector>>,
}

impl SteppedMachine for CheckMachine {
    type Task = MachineTask;

    fn define(&self, plan: &SegmentPlan, ranks: Vec<u32>) -> Result<()> {
        let owner = match (plan.layout.ranks, &ranks[..]) {
            (0, [only]) => Some(*only),
            _ => None,
        };
        let (segment, bytes) = (plan.layout.segment, plan.layout.bytes());
        self.detector
            .borrow_mut()
            .define(segment, &*plan.what, owner, bytes);
        Ok(())
    }

    fn define_scratch(&self, segment: Segment, rank: u32, bytes: u64) -> std::result::Result<(), String> {
        let what = format!("the intermediates of chip {rank}'s graph");
        self.detector
            .borrow_mut()
            .define(segment, what, Some(rank), bytes);
        Ok(())
    }

    fn release(&self, segment: Segment) {
        self.detector.borrow_mut().release(segment);
    }

    fn write(&self, host: Option<AgentId>, segment: Segment, at: u64, bytes: &[u8]) -> bool {
        let (dst, data) = (
            super::host_span(segment, at, bytes.len()),
            Payload::Bytes(bytes.to_vec()),
        );
        self.by_host(host, &Instruction::Store { dst, data }).is_some()
    }

    fn read(&self, host: Option<AgentId>, segment: Segment, at: u64, len: usize) -> Option<Vec<u8>> {
        let src = super::host_span(segment, at, len);
        match self.by_host(host, &Instruction::Load { src })? {
            Answer::Loaded(loaded) => match *loaded {
                Payload::Bytes(bytes) if bytes.len() == len => Some(bytes),
                _ => None,
            },
            _ => None,
        }
    }

    fn value(&self, signal: &Signal) -> Option<i32> {
        Some(self.detector.borrow().value(signal))
    }

    fn holds(
        &self,
        host: Option<AgentId>,
        signal: &Signal,
        (compare, operand): (Compare, i32),
        waits: bool,
    ) -> Option<bool> {
        let holds = compare.holds(self.value(signal)?, operand);
        if holds || !waits {
            self.by_host(host, &super::host_look(*signal, compare, operand, waits));
        }
        Some(holds)
    }

    fn notify(&self, host: Option<AgentId>, signal: &Signal, value: i32) -> bool {
        let (signal, how) = (*signal, Notify::Set(value));
        self.by_host(host, &Instruction::Notify { signal, how }).is_some()
    }

    fn reset(&self, layout: &Layout) {
        self.detector.borrow_mut().reset_signals(layout.segment);
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
        _label: String,
        agent: Option<AgentId>,
        kernel: Starts,
    ) -> std::result::Result<MachineTask, String> {
        self.start(rank, agent, None, kernel)
    }

    fn spawn_inside(
        &self,
        (parent, rank): (MachineTask, u32),
        _after: Option<MachineTask>,
        _name: (&str, &str),
        agent: Option<AgentId>,
        kernel: Starts,
    ) -> std::result::Result<MachineTask, String> {
        self.start(rank, agent, Some(parent), kernel)
    }

    fn outcome(&self, task: MachineTask) -> Option<ringwork_isa::Result<()>> {
        self.machine.outcome(task)
    }

    fn take_ended(&self) -> Vec<MachineTask> {
        self.machine.take_ended()
    }

    fn turn(&self) -> std::result::Result<bool, String> {
        Ok(!self.machine.is_bounded() && self.machine.turn())
    }

    fn give_up(&self) -> Vec<Stuck> {
        let bounded = self.machine.is_bounded();
        let halted = self.machine.give_up().into_iter();
        let stuck = halted.map(|halted| Stuck {
            rank: halted.chip,
            on: match (bounded, halted.waited) {
                (true, _) => StuckOn::Stopped(
                    "the bound of instructions was reached; check something smaller or raise the bound"
                        .into(),
                ),
                (false, Some(waited)) => StuckOn::Signal(waited),
                (false, None) => StuckOn::Unknown(halted.site),
            },
        });
        stuck.collect()
    }

    fn drop_task(&self, task: MachineTask) {
        self.machine.drop_task(task);
    }

    fn take_dead(&self) -> Vec<u32> {
        self.machine.take_dead()
    }

    fn died(&self, segment: Segment, rank: Rank, cause: &str) {
        self.machine.died(segment, rank, cause);
    }
}

impl CheckMachine {
    fn by_host(&self, host: Option<AgentId>, instruction: &Instruction) -> Option<Answer> {
        self.machine
            .by_host(host.unwrap_or(Detector::HOST), instruction)
            .ok()
    }

    fn start(
        &self,
        rank: u32,
        agent: Option<AgentId>,
        parent: Option<MachineTask>,
        kernel: Starts,
    ) -> std::result::Result<MachineTask, String> {
        let agent = agent.ok_or("a task that the detector was not told of")?;
        Ok(self
            .machine
            .spawn(rank, agent, parent, |core| Box::pin(kernel(core))))
    }
}
