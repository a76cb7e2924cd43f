//! Reports the order of the graph's tasks to a platform that looks for races.
//!
//! The engine knows the edges between tasks that are not done. If a task was submitted after an earlier task had ended,
//! there is no edge between the two. But if they touch the same memory and one of them writes it, the rules of the
//! graph order them in any case. So this module remembers what ended tasks have touched, until the host has waited for
//! all tasks.

use crate::backend::Order;
use crate::node::State;
use crate::orchestrator::Conditions;
use ringwork_engine::{Access, Spec, TaskId};
use std::collections::BTreeMap;

/// The memory that tasks have touched since the host last waited for all.
#[derive(Default)]
pub(crate) struct GraphRecord {
    running: BTreeMap<u64, Vec<Access>>,
    ended: Vec<(TaskId, Vec<Access>)>,
}

impl GraphRecord {
    /// The ended tasks that come before a task with this spec.
    fn before(&self, spec: &Spec) -> Vec<u64> {
        let conflict = |a: &Access, b: &Access| {
            let orders =
                a.kind.writes() && (b.kind.reads() || b.kind.writes()) || a.kind.reads() && b.kind.writes();
            a.buffer == b.buffer && orders && a.view.overlaps(&b.view)
        };
        let comes_before = |(task, accesses): &&(TaskId, Vec<Access>)| {
            let mut pairs = accesses
                .iter()
                .flat_map(|a| spec.accesses.iter().map(move |b| (a, b)));
            spec.after.contains(task) || pairs.any(|(a, b)| conflict(a, b))
        };
        let before = self.ended.iter().filter(comes_before);
        before.map(|(task, _)| task.sequence()).collect()
    }
}

impl State {
    /// Reports this to the platform, if it looks for races.
    pub(crate) fn tell(&mut self, order: Order) {
        if self.backend.is_told() {
            self.backend.hear(order);
        }
    }

    pub(crate) fn tell_submitted(&mut self, task: TaskId, spec: &Spec, conditions: &Conditions) {
        if !self.backend.is_told() {
            return;
        }
        let after = self.order.before(spec);
        self.order.running.insert(task.sequence(), spec.accesses.clone());
        self.backend.hear(Order::Submitted {
            task: task.sequence(),
            after,
            when: conditions.when.clone(),
            until: conditions.until.clone(),
        });
    }

    /// Reports that a task, or a part of it, has ended well, before the engine processes it.
    pub(crate) fn tell_ended(&mut self, task: TaskId) {
        if !self.backend.is_told() {
            return;
        }
        let before = task.sequence();
        let followers: Vec<u64> = self.engine.successors(task).map(TaskId::sequence).collect();
        for task in followers {
            self.backend.hear(Order::Follows { task, before });
        }
        if let Some(accesses) = self.order.running.remove(&before) {
            self.order.ended.push((task, accesses));
        }
    }

    /// Reports that the host has waited for all tasks.
    pub(crate) fn tell_waited_for_all(&mut self) {
        if self.backend.is_told() {
            self.order = GraphRecord::default();
            self.backend.hear(Order::Waited { all: true });
        }
    }
}
