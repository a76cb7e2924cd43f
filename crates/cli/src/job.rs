//! What an example is asked to do, and what it answers.

use crate::interrupt;
use crate::output::announce;
use indicatif::ProgressBar;
use ringwork::check::Checked;
use ringwork::collectives::catalogue::Entry;
use ringwork::prelude::*;
use ringwork::runtime::{Clock, NodeBuilder, Platform, Simulated, TeamSpec};
use ringwork::sim::timeline::Timeline;
use std::cell::RefCell;
use std::ops::Range;
use std::time::{Duration, Instant};

/// What a user asked for.
#[derive(Debug)]
pub(crate) struct Job {
    pub(crate) devices: Vec<u32>,
    pub(crate) count: usize,
    pub(crate) dtype: Dtype,
    /// How its collective is done. Examples without a collective do not look at it.
    pub(crate) entry: &'static Entry,
    /// The sides of the grid that its ranks form, if they form one.
    pub(crate) grid: Option<Vec<u32>>,
    pub(crate) rounds: u32,
    pub(crate) bar: ProgressBar,
    pub(crate) platform: Platform,
    pub(crate) times: RefCell<Times>,
}

/// How long things took.
#[derive(Debug, Default)]
pub(crate) struct Times {
    pub(crate) launch: Duration,
    pub(crate) rounds: Vec<Duration>,
    /// What was asked of the node's clock, if time is virtual.
    pub(crate) predicted: Option<Predicted>,
    /// Of the nodes that were launched.
    pub(crate) clocks: Vec<Clock>,
}

/// What a simulated run would take.
#[derive(Debug, Default)]
pub(crate) struct Predicted {
    /// Picoseconds of each round: of the node that took longest, if there are several.
    pub(crate) rounds: Vec<u64>,
    /// Where each node's clock was after the last of them.
    at_ps: Vec<u64>,
    /// The clock that is furthest, and its links.
    pub(crate) end: Option<Simulated>,
    /// What ran where and when, if it was asked for.
    pub(crate) timeline: Option<Timeline>,
}

impl Predicted {
    /// How many nodes there are, each with a clock of its own.
    pub(crate) fn nodes(&self) -> usize {
        self.at_ps.len()
    }
}

/// One result, compared with its golden value.
#[derive(Debug)]
pub(crate) struct Check {
    pub(crate) device: Device,
    /// Such as `rank 2` or `rank 0 of "left"`.
    pub(crate) who: String,
    pub(crate) values: usize,
    pub(crate) wrong: Option<String>,
}

impl Job {
    /// Launches the node that an example runs on: what is asked for on the command line.
    pub(crate) fn launch(&self, builder: NodeBuilder) -> ringwork::Result<Node> {
        let start = Instant::now();
        let builder = builder
            .devices(self.devices.iter().copied())
            .platform(self.platform.clone());
        let builder = self.telling_of_waits(builder);
        let node = builder.launch()?;
        let clock = node.clock();
        let mut times = self.times.borrow_mut();
        times.launch = start.elapsed();
        times.predicted = clock.simulated().map(|_| Predicted::default());
        times.clocks = vec![clock];
        interrupt::watch(node.interrupter());
        Ok(node)
    }

    /// Says on standard error what a node waits for that waits for long.
    fn telling_of_waits(&self, builder: NodeBuilder) -> NodeBuilder {
        let bar = self.bar.clone();
        builder.on_long_wait(move |what| bar.suspend(|| announce("note", what)))
    }

    /// The memory for collectives of up to so many elements, by the algorithm that was chosen.
    pub(crate) fn team(&self, elements: usize) -> TeamSpec {
        let team = TeamSpec::new(self.dtype, elements).algorithm(self.entry);
        match &self.grid {
            Some(sides) => team.grid(sides.clone()),
            None => team,
        }
    }

    /// What was checked on all nodes together, if anything was.
    pub(crate) fn checked(&self) -> Option<Checked> {
        let times = self.times.borrow();
        let all = times.clocks.iter().filter_map(Clock::checked);
        all.reduce(|mut whole, part| {
            whole.chips += part.chips;
            whole.tasks += part.tasks;
            whole.failed += part.failed;
            whole.instructions += part.instructions;
            whole.faults.extend(part.faults);
            whole.unproved.extend(part.unproved);
            whole
        })
    }

    /// Launches a pod of two nodes that share the devices.
    pub(crate) fn launch_pod(&self) -> ringwork::Result<Pod> {
        let start = Instant::now();
        let (left, right) = self.devices.split_at(self.devices.len().div_ceil(2));
        let node = |name: &str, devices: &[u32]| {
            let node = Node::builder().name(name).devices(devices.iter().copied());
            self.telling_of_waits(node.platform(self.platform.clone()))
        };
        let pod = Pod::launch("pod", [node("left", left), node("right", right)])?;
        let mut times = self.times.borrow_mut();
        times.launch = start.elapsed();
        for node in pod.children() {
            times.clocks.push(node.clock());
            interrupt::watch(node.interrupter());
        }
        let simulated = times.clocks.iter().any(|clock| clock.simulated().is_some());
        times.predicted = simulated.then(Predicted::default);
        drop(times);
        Ok(pod)
    }

    /// Does `round` as often as asked, checking the result each time; returns the last round's checks, or
    /// those of the first round that was wrong.
    pub(crate) fn rounds<R>(
        &self,
        mut round: impl FnMut() -> ringwork::Result<R>,
        mut check: impl FnMut() -> ringwork::Result<Vec<Check>>,
    ) -> ringwork::Result<Vec<Check>> {
        let mut checks = Vec::new();
        for _ in 0..self.rounds {
            let start = Instant::now();
            let outcome = round();
            self.times.borrow_mut().note(start.elapsed());
            outcome?;
            checks = check()?;
            self.bar.inc(1);
            if checks.iter().any(|check| check.wrong.is_some()) {
                break;
            }
        }
        Ok(checks)
    }
}

impl Times {
    /// What ran where and when, as far as it was recorded.
    pub(crate) fn timeline(&self) -> Option<Timeline> {
        match &self.predicted {
            Some(predicted) => predicted.timeline.clone(),
            None => Clock::timeline_of(&self.clocks),
        }
    }

    /// A round has ended, well or not.
    fn note(&mut self, took: Duration) {
        self.rounds.push(took);
        let Some(predicted) = &mut self.predicted else {
            return;
        };
        let now: Vec<Simulated> = self.clocks.iter().filter_map(Clock::simulated).collect();
        predicted.at_ps.resize(now.len(), 0);
        let took_ps = now
            .iter()
            .zip(&predicted.at_ps)
            .map(|(now, before)| now.now_ps - before);
        predicted.rounds.extend(took_ps.max());
        predicted.at_ps = now.iter().map(|now| now.now_ps).collect();
        predicted.end = now
            .into_iter()
            .max_by_key(|now| now.now_ps)
            .or(predicted.end.take());
        predicted.timeline = Clock::timeline_of(&self.clocks);
    }
}

impl Check {
    /// Compares values with a golden function of the index.
    pub(crate) fn compare<T: Element>(
        device: Device,
        who: impl Into<String>,
        values: &[T],
        golden: impl Fn(usize) -> T,
    ) -> Check {
        let wrong = values.iter().enumerate().find(|(i, value)| **value != golden(*i));
        let wrong = wrong.map(|(i, value)| format!("element {i} is {value}, should be {}", golden(i)));
        Check {
            device,
            who: who.into(),
            values: values.len(),
            wrong,
        }
    }
}

impl Check {
    /// Compares values with a golden function of the index that is computed more exactly: each may be off by
    /// `tolerance`, or by as large a part of itself if it is larger than 1.
    pub(crate) fn close(
        device: Device,
        who: impl Into<String>,
        values: &[f32],
        golden: impl Fn(usize) -> f64,
        tolerance: f64,
    ) -> Check {
        // NaN is near nothing.
        let near = |i: usize, value: f32| {
            (f64::from(value) - golden(i)).abs() <= tolerance * golden(i).abs().max(1.0)
        };
        let wrong = values.iter().enumerate().find(|(i, value)| !near(*i, **value));
        let wrong = wrong.map(|(i, value)| {
            format!(
                "element {i} is {value}, should be {} within {tolerance}",
                golden(i)
            )
        });
        Check {
            device,
            who: who.into(),
            values: values.len(),
            wrong,
        }
    }
}

/// An element of a test pattern: `value`, or what is left of it when sums of 64 such values must stay exact
/// in `T` whichever way they are added.
pub(crate) fn pattern<T: Element>(value: usize) -> T {
    T::from_i64(small::<T>(value))
}

/// `value`, cut so that sums of 64 of it are exact in `T`.
pub(crate) fn small<T: Element>(value: usize) -> i64 {
    let (dtype, value) = (T::DTYPE, i64::try_from(value).unwrap_or(0));
    let room = dtype.exact_integers() / exact_ranks(dtype) as i64;
    match room {
        // Integers wrap, which is exact as well.
        0..4 if !dtype.is_float() => value % 4,
        // A one now and then: fewer than 8 of 64 ranks have one, unless their values are 11 apart.
        0..2 => i64::from(value % 11 == 0),
        _ => value % room.min(1 << 24),
    }
}

/// The ranks whose patterns add up exactly.
pub(crate) fn exact_ranks(dtype: Dtype) -> usize {
    match dtype.exact_integers() {
        exact if exact >= 1 << 53 => 1 << 20,
        exact if exact >= 1 << 24 => 256,
        _ => 64,
    }
}

/// The sum of a pattern over ranks: the closed form, as exact as the pattern.
pub(crate) fn sum_of_patterns<T: Element>(ranks: usize, value: impl Fn(usize) -> usize) -> T {
    sum_of_patterns_of(0..ranks, value)
}

/// The sum of a pattern over some of the ranks.
pub(crate) fn sum_of_patterns_of<T: Element>(ranks: Range<usize>, value: impl Fn(usize) -> usize) -> T {
    T::from_i64(ranks.map(|rank| small::<T>(value(rank))).sum())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_golden_sum_is_the_closed_form() {
        for ranks in [1usize, 2, 4, 16, 64] {
            for i in [0usize, 1, 255] {
                let closed = ranks * i + 100 * ranks * (ranks - 1) / 2;
                assert_eq!(sum_of_patterns::<f32>(ranks, |r| r * 100 + i), closed as f32);
                assert_eq!(sum_of_patterns::<i64>(ranks, |r| r * 100 + i), closed as i64);
            }
        }
    }

    #[test]
    fn close_is_within_the_tolerance_and_nan_is_not() {
        let wrong = |value| Check::close(Device(0), "", &[value], |_| 1.0, 1e-4).wrong;
        assert_eq!(wrong(1.000_05), None);
        assert!(wrong(1.000_2).is_some());
        assert!(wrong(f32::NAN).is_some());
    }

    #[test]
    fn sums_of_64_patterns_are_exact_in_every_type_at_every_step() {
        for dtype in Dtype::ALL {
            with_dtype!(dtype, T => {
                let mut sum = T::from_i64(0);
                let mut exact = 0;
                for rank in 0..64 {
                    let value = pattern::<T>(rank * 100 + 77_777);
                    sum = T::narrow(T::combine(ReduceOp::Sum, sum.widen(), value.widen()));
                    exact += small::<T>(rank * 100 + 77_777);
                    assert_eq!(sum, T::from_i64(exact), "{dtype}");
                }
            });
        }
    }
}
