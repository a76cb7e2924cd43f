//! What orders the tasks of the graph, told to a platform that looks for races.
//!
//! The engine knows the edges between tasks that are not done. A task that is submitted when another one has ended has no edge to
//! it; but if the two touch the same memory, and one of them writes it, it comes after it by the rules of the graph, whenever
//! the other one happened to end. So what was touched is kept until the host has waited for all.

use crate::backend::Order;
use crate::node::State;
use crate::orchestrator::Conditions;
use ringwork_engine::{Access, Spec, TaskId};
use std::collections::BTreeMap;

/// What tasks touch, since the host last waited for all.
#[derive(Default)]
pub(crate) struct GraphRecord {
    running: BTreeMap<u64, Vec<Access>>,
    ended: Vec<(TaskId, Vec<Access>)>,
}

impl GraphRecord {
    /// Tasks that have ended and come before one that does this.
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
    /// Tells the platform, if it wants to know.
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

    /// A task, or a part of it, has ended well, and the engine is about to hear of it.
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

    /// The host has waited for all tasks.
    pub(crate) fn tell_waited_for_all(&mut self) {
        if self.backend.is_told() {
            self.order = GraphRecord::default();
            self.backend.hear(Order::Waited { all: true });
        }
    }
}
