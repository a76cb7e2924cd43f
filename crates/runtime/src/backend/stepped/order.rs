//! What orders the tasks of a graph, for a detector: the edges of the graph, submissions, and a host that waits. Not the order
//! in which they happened to be sent.
//!
//! A task's start knows what its host knew when it submitted it, the ends of the tasks that the graph puts before it, and
//! what the signals released that it waited for. A host that waits for all tasks knows their ends.

use super::graph::Watched;
use crate::backend::Order;
use ringwork_check::{AgentId, Checked, Detector, Moment, TaskFault, Who};
use ringwork_isa::stepped::Instruction;
use ringwork_isa::{Compare, Signal};
use std::cell::{RefCell, RefMut};
use std::collections::BTreeMap;
use std::rc::Rc;

type Condition = (Signal, Compare, i32);

/// See the [module](self).
pub(in crate::backend) struct GraphOrder {
    detector: Rc<RefCell<Detector>>,
    chips: u32,
    tasks: BTreeMap<u64, Ordered>,
    /// The task of each number that was sent.
    sent: BTreeMap<u64, u64>,
    /// Who the host is now: itself, or one of its closures.
    host: AgentId,
    failed: u64,
}

/// A task of the graph.
#[derive(Default)]
struct Ordered {
    /// What its submitter knew.
    start: Moment,
    /// Tasks before it.
    after: Vec<u64>,
    when: Vec<Condition>,
    until: Vec<Condition>,
    /// What those of its parts knew that have ended.
    end: Moment,
}

impl GraphOrder {
    pub(in crate::backend) fn new(detector: Rc<RefCell<Detector>>, chips: u32) -> GraphOrder {
        GraphOrder {
            detector,
            chips,
            tasks: BTreeMap::new(),
            sent: BTreeMap::new(),
            host: Detector::HOST,
            failed: 0,
        }
    }

    fn look(&self) -> RefMut<'_, Detector> {
        self.detector.borrow_mut()
    }

    pub(super) fn host(&self) -> AgentId {
        self.host
    }

    pub(super) fn hear(&mut self, order: Order) {
        match order {
            Order::Submitted {
                task,
                after,
                when,
                until,
            } => {
                let start = self.look().now(self.host);
                let ordered = Ordered {
                    start,
                    after,
                    when,
                    until,
                    end: Moment::default(),
                };
                self.tasks.insert(task, ordered);
            }
            Order::Sent { id, task } => {
                self.sent.insert(id, task);
            }
            Order::Follows { task, before } => {
                if let Some(ordered) = self.tasks.get_mut(&task) {
                    ordered.after.push(before);
                }
            }
            Order::HostBegins { task, name } => {
                let who = Who {
                    chip: None,
                    name: format!("host task `{name}`").into(),
                    task,
                };
                self.host = self.begin(task, who);
            }
            Order::HostEnds { task } => {
                let end = self.look().end(self.host, true);
                self.host = Detector::HOST;
                self.ended(task, &end);
            }
            Order::HandedOut { segment, bytes } => self.look().hand_out(segment, &bytes),
            Order::Waited { all } => self.waited(all),
        }
    }

    /// A part of a task begins on a chip.
    pub(super) fn begin_part(&mut self, id: u64, chip: u32, kernel: &str) -> AgentId {
        let task = self.sent.get(&id).copied();
        let who = Who {
            chip: Some(chip),
            name: format!("kernel `{kernel}`").into(),
            task: task.unwrap_or(0),
        };
        self.begin(task.unwrap_or(u64::MAX), who)
    }

    fn begin(&mut self, task: u64, who: Who) -> AgentId {
        let mut start = Moment::default();
        let mut when: &[Condition] = &[];
        if let Some(ordered) = self.tasks.get(&task) {
            start = ordered.start.clone();
            when = &ordered.when;
            for before in ordered.after.iter().filter_map(|before| self.tasks.get(before)) {
                start.join(&before.end);
                self.learn_signals(&mut start, &before.until);
            }
        }
        let mut detector = self.detector.borrow_mut();
        let agent = detector.begin(who, &start);
        for (signal, compare, operand) in when.iter().copied() {
            if compare.holds(detector.value(&signal), operand) {
                let wait = Instruction::Wait {
                    signal,
                    compare,
                    operand,
                };
                // A signal that the host may wait for is there.
                let _ = detector.perform(agent, &wait, None);
            }
        }
        agent
    }

    fn learn_signals(&self, moment: &mut Moment, conditions: &[Condition]) {
        let detector = self.detector.borrow();
        for (signal, compare, operand) in conditions {
            moment.join(&detector.released_by(signal, *compare, *operand));
        }
    }

    /// What is told of a chip's own graph, which this part runs.
    pub(super) fn watch_graph(&self, id: u64, agent: AgentId, chip: u32) -> Watched {
        let number = self.sent.get(&id).copied().unwrap_or(0);
        Watched::new(self.detector.clone(), agent, chip, number)
    }

    /// A part has ended.
    pub(super) fn end_part(&mut self, id: u64, agent: AgentId, is_well: bool) {
        self.failed += u64::from(!is_well);
        let end = self.look().end(agent, is_well);
        if let Some(task) = self.sent.remove(&id) {
            self.ended(task, &end);
        }
    }

    fn ended(&mut self, task: u64, end: &Moment) {
        if let Some(ordered) = self.tasks.get_mut(&task) {
            ordered.end.join(end);
        }
    }

    /// The host has waited: for all tasks, or for room among them.
    fn waited(&mut self, all: bool) {
        for ordered in self.tasks.values() {
            let mut end = ordered.end.clone();
            self.learn_signals(&mut end, &ordered.until);
            self.look().learn(self.host, &end);
        }
        if all {
            self.tasks.clear();
            self.sent.clear();
            self.look().settle();
        }
    }

    pub(super) fn take_faults(&self) -> Vec<TaskFault> {
        self.look().take_faults()
    }

    pub(super) fn checked(&self) -> Checked {
        Checked {
            chips: self.chips,
            failed: self.failed,
            ..self.look().checked()
        }
    }
}
