//! The facts that order the tasks of a graph, for the race detector: edges of the graph, submissions, and waits of the
//! host. The order in which tasks happened to be sent is not one of them.
//!
//! A task's start comes after its submission, after the ends of its predecessors in the graph, and after the notifies
//! of the signals that it waited for. When the host has waited for all tasks, it comes after their ends.

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
    /// The task of the graph to which each sent part belongs.
    sent: BTreeMap<u64, u64>,
    /// The agent that acts for the host now: its thread, or one of its closures.
    host: AgentId,
    failed: u64,
}

/// A task of the graph.
#[derive(Default)]
struct Ordered {
    /// The moment of its submission.
    start: Moment,
    /// Tasks before it.
    after: Vec<u64>,
    when: Vec<Condition>,
    until: Vec<Condition>,
    /// The ends of its finished parts, joined.
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
                // The host only waits for signals that exist.
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

    /// The facts about the chip's own graph that this part runs.
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
