//! Vector clocks: how much of every agent's past an agent knows.

/// A kernel (numbered by its rank) or a copy under way.
pub(crate) type Agent = u32;

/// For each agent, how many of its events are known. An agent that is not in the list is not known at all.
///
/// The last entry is never zero, so that equal knowledge is equal clocks.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Clock(Vec<u32>);

impl Clock {
    pub(crate) fn get(&self, agent: Agent) -> u32 {
        self.0.get(agent as usize).copied().unwrap_or(0)
    }

    pub(crate) fn set(&mut self, agent: Agent, time: u32) {
        let index = agent as usize;
        if self.0.len() <= index {
            self.0.resize(index + 1, 0);
        }
        self.0[index] = time;
    }

    /// Learns everything that the other knows.
    pub(crate) fn join(&mut self, other: &Clock) {
        if self.0.len() < other.0.len() {
            self.0.resize(other.0.len(), 0);
        }
        for (mine, theirs) in self.0.iter_mut().zip(&other.0) {
            *mine = (*mine).max(*theirs);
        }
    }

    /// Whether event number `time` of `agent` happened before.
    pub(crate) fn knows(&self, agent: Agent, time: u32) -> bool {
        self.get(agent) >= time
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn joining_takes_the_larger_of_each_entry() {
        let (mut a, mut b) = (Clock::default(), Clock::default());
        a.set(0, 3);
        b.set(0, 1);
        b.set(2, 5);
        a.join(&b);
        assert!(a.knows(0, 3) && a.knows(2, 5) && !a.knows(2, 6) && !a.knows(1, 1));
    }
}
