//! Conditions on signals: which tasks wait for which signals, and the values that the driver reported.
//!
//! # Invariants
//! - **COND-1 (last value).** The engine keeps the last value that the driver reported, for as long as a
//!   condition waits for the signal; of other signals it keeps nothing.
//! - **COND-2 (latch).** A condition that has held once does not count again.

use crate::access_index::Lookup;
use crate::ids::SignalId;
use crate::spec::Condition;

/// A signal that the driver should watch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Watched {
    /// Which.
    pub signal: SignalId,
    /// The last value that the driver reported, if any.
    pub value: Option<i32>,
    /// Conditions that wait for it.
    pub waiters: usize,
}

/// A condition of a task that does not hold yet.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Waiter {
    pub(crate) slot: u32,
    pub(crate) condition: Condition,
}

#[derive(Clone, Debug)]
struct Watch {
    value: Option<i32>,
    waiters: Vec<Waiter>,
}

/// See the [module](self).
#[derive(Clone, Debug, Default)]
pub(crate) struct Watches {
    watches: Lookup<SignalId, Watch>,
    /// The keys, in the order they were first waited for.
    order: Vec<SignalId>,
}

impl Watches {
    /// Signals somebody waits for, in the order they were first waited for.
    pub(crate) fn iter(&self) -> impl Iterator<Item = Watched> {
        self.order.iter().map(|&signal| {
            let watch = &self.watches[&signal];
            Watched {
                signal,
                value: watch.value,
                waiters: watch.waiters.len(),
            }
        })
    }

    pub(crate) fn value(&self, signal: SignalId) -> Option<i32> {
        self.watches.get(&signal)?.value
    }

    /// Waits for a condition; `false` if it holds already.
    pub(crate) fn wait(&mut self, slot: u32, condition: Condition) -> bool {
        let watch = self.watches.entry(condition.signal).or_insert_with(|| {
            self.order.push(condition.signal);
            Watch {
                value: None,
                waiters: Vec::new(),
            }
        });
        if watch
            .value
            .is_some_and(|value| condition.compare.holds(value, condition.operand))
        {
            return false;
        }
        watch.waiters.push(Waiter { slot, condition });
        true
    }

    /// Takes a value in, and appends to `satisfied` the slots of the conditions that hold now.
    pub(crate) fn changed(&mut self, signal: SignalId, value: i32, satisfied: &mut Vec<u32>) {
        let Some(watch) = self.watches.get_mut(&signal) else {
            return;
        };
        watch.value = Some(value);
        watch.waiters.retain(|waiter| {
            let holds = waiter.condition.compare.holds(value, waiter.condition.operand);
            if holds {
                satisfied.push(waiter.slot);
            }
            !holds
        });
        self.forget_if_idle(signal);
    }

    /// Stops waiting on behalf of a slot; returns how many conditions did not hold.
    pub(crate) fn cancel(&mut self, slot: u32, conditions: &[Condition]) -> u32 {
        let mut cancelled = 0;
        for condition in conditions {
            if let Some(watch) = self.watches.get_mut(&condition.signal) {
                watch.waiters.retain(|waiter| {
                    cancelled += u32::from(waiter.slot == slot);
                    waiter.slot != slot
                });
                self.forget_if_idle(condition.signal);
            }
        }
        cancelled
    }

    /// Conditions of a slot that do not hold, among these signals.
    pub(crate) fn open<'a>(
        &'a self,
        slot: u32,
        conditions: &'a [Condition],
    ) -> impl Iterator<Item = Condition> + 'a {
        conditions.iter().copied().filter(move |condition| {
            self.watches.get(&condition.signal).is_some_and(|watch| {
                let mut waiters = watch.waiters.iter();
                waiters.any(|waiter| waiter.slot == slot && waiter.condition == *condition)
            })
        })
    }

    fn forget_if_idle(&mut self, signal: SignalId) {
        if self
            .watches
            .get(&signal)
            .is_some_and(|watch| watch.waiters.is_empty())
        {
            self.watches.remove(&signal);
            self.order.retain(|&other| other != signal);
        }
    }
}
