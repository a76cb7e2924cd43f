//! The history of a node's tasks, for the timeline: which tasks each chip was sent, which task waited for which and for
//! which signal, and the closures that ran on the host. Bounded: new entries replace the oldest.

use std::collections::VecDeque;

/// How many tasks are remembered for each chip: as many as a chip records itself.
const SENT_PER_CHIP: usize = 4096;
/// How many edges are remembered for each task.
const EDGES_PER_TASK: usize = 4;
/// How many host tasks are remembered.
const HOSTED: usize = 4096;

/// See the [module](self).
#[derive(Debug)]
pub(crate) struct TaskHistory {
    on: bool,
    capacity: usize,
    /// The number of the first in `sent`.
    first: u64,
    /// The task of each sent part; parts have consecutive numbers.
    sent: VecDeque<u64>,
    /// Pairs of tasks, the second of which waited for the first.
    edges: VecDeque<(u64, u64)>,
    /// Signals, by their cells, and the task that waited for each.
    signals: VecDeque<(u64, u64)>,
    hosted: VecDeque<Hosted>,
}

/// A closure that ran on the host.
#[derive(Clone, Debug)]
pub(crate) struct Hosted {
    pub(crate) task: u64,
    pub(crate) name: String,
    /// The index of the host's thread that ran it.
    pub(crate) sub_worker: u32,
    pub(crate) start: u64,
    pub(crate) end: u64,
}

impl TaskHistory {
    pub(crate) fn new(on: bool, chips: usize) -> TaskHistory {
        TaskHistory {
            on,
            capacity: SENT_PER_CHIP.saturating_mul(chips),
            first: 1,
            sent: VecDeque::new(),
            edges: VecDeque::new(),
            signals: VecDeque::new(),
            hosted: VecDeque::new(),
        }
    }

    /// Records that the next number belongs to this task.
    pub(crate) fn sent(&mut self, task: u64) {
        if self.on {
            if self.sent.len() == self.capacity {
                self.sent.pop_front();
                self.first += 1;
            }
            self.sent.push_back(task);
        }
    }

    /// Other tasks waited for this task, which is done.
    pub(crate) fn waited_for(&mut self, task: u64, others: impl Iterator<Item = u64>) {
        if self.on {
            for other in others {
                if self.edges.len() >= self.capacity * EDGES_PER_TASK {
                    self.edges.pop_front();
                }
                self.edges.push_back((task, other));
            }
        }
    }

    /// This task waited for the signals in these cells, and is done.
    pub(crate) fn waited_for_signals(&mut self, task: u64, cells: impl Iterator<Item = u64>) {
        if self.on {
            for cell in cells {
                if self.signals.len() >= self.capacity * EDGES_PER_TASK {
                    self.signals.pop_front();
                }
                self.signals.push_back((cell, task));
            }
        }
    }

    pub(crate) fn hosted(&mut self, task: u64, name: String, sub_worker: u32, (start, end): (u64, u64)) {
        if self.on {
            if self.hosted.len() == HOSTED {
                self.hosted.pop_front();
            }
            self.hosted.push_back(Hosted {
                task,
                name,
                sub_worker,
                start,
                end,
            });
        }
    }

    /// The task that was sent with this number.
    pub(crate) fn task(&self, number: u64) -> Option<u64> {
        let at = usize::try_from(number.checked_sub(self.first)?).ok()?;
        self.sent.get(at).copied()
    }

    pub(crate) fn edges(&self) -> impl Iterator<Item = (u64, u64)> {
        self.edges.iter().copied()
    }

    /// Cells of signals, each with a task that waited for it.
    pub(crate) fn signals(&self) -> impl Iterator<Item = (u64, u64)> {
        self.signals.iter().copied()
    }

    pub(crate) fn on_host(&self) -> impl Iterator<Item = &Hosted> {
        self.hosted.iter()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_is_forgotten_and_numbers_stay_right() {
        let mut log = TaskHistory::new(true, 1);
        let all = SENT_PER_CHIP as u64 + 3;
        for number in 1..=all {
            log.sent(1000 + number);
        }
        assert_eq!(log.task(3), None);
        assert_eq!(log.task(4), Some(1004));
        assert_eq!(log.task(all), Some(1000 + all));
        assert_eq!(log.task(all + 1), None);
    }

    #[test]
    fn edges_are_bounded() {
        let mut log = TaskHistory::new(true, 1);
        let most = SENT_PER_CHIP * EDGES_PER_TASK;
        log.waited_for(1, 0..most as u64 + 5);
        assert_eq!(log.edges().count(), most);
        assert_eq!(log.edges().next(), Some((1, 5)));
    }
}
