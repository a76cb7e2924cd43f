//! Who takes the next step.

use ringwork_testkit::Rng;

/// A way to choose among the ranks that can move.
#[derive(Clone, Copy, Debug)]
pub enum Schedule {
    /// Any of them, equally likely.
    Random(u64),
    /// Always the one with the highest priority; at `depth` random moments the one that would run drops
    /// below all others (probabilistic concurrency testing).
    Priority { seed: u64, depth: usize },
}

impl Schedule {
    /// Half random, half by priority with 0 to 4 changes.
    pub fn from_seed(seed: u64) -> Schedule {
        if seed.is_multiple_of(2) {
            Schedule::Random(seed)
        } else {
            let depth = (seed / 2 % 5) as usize;
            Schedule::Priority { seed, depth }
        }
    }

    pub fn start(self, ranks: usize) -> Chooser {
        match self {
            Schedule::Random(seed) => Chooser::Random(Rng(seed)),
            Schedule::Priority { seed, depth } => {
                let mut rng = Rng(seed);
                let mut priority: Vec<i64> = (0..ranks as i64).collect();
                for i in (1..ranks).rev() {
                    priority.swap(i, rng.below(i + 1));
                }
                // Early moments are as likely as late ones, whatever the length of the run.
                let changes = (0..depth)
                    .map(|_| {
                        let span = 1 << (3 + rng.below(10));
                        rng.below(span)
                    })
                    .collect();
                Chooser::Priority {
                    priority,
                    changes,
                    step: 0,
                    lowest: 0,
                }
            }
        }
    }
}

#[derive(Debug)]
pub enum Chooser {
    Random(Rng),
    Priority {
        priority: Vec<i64>,
        changes: Vec<usize>,
        step: usize,
        lowest: i64,
    },
}

impl Chooser {
    /// One of `ready`, which is not empty.
    pub fn choose(&mut self, ready: &[usize]) -> usize {
        match self {
            Chooser::Random(rng) => ready[rng.below(ready.len())],
            Chooser::Priority {
                priority,
                changes,
                step,
                lowest,
            } => {
                let best = |priority: &[i64]| *ready.iter().max_by_key(|&&r| priority[r]).unwrap();
                for _ in changes.iter().filter(|&&change| change == *step) {
                    *lowest -= 1;
                    let falling = best(priority);
                    priority[falling] = *lowest;
                }
                *step += 1;
                best(priority)
            }
        }
    }
}
