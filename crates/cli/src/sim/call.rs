//! One collective on a machine: memory, kernels, time, and whether the data is right.

use super::neighbours::{Neighbours, QueueSettings};
use super::prove::{Faults, expected};
use super::way::Way;
use crate::bench::Collective;
use crate::bench::verify::Pattern;
use ringwork::collectives::{Algorithm, Team, kernels};
use ringwork::isa::{
    Arg, Argument, Barrier, Contributions, Dtype, Element, In, Out, Rank, ReduceOp, Segment, Signals, Span,
    Task, with_dtype,
};
use ringwork::native::memory::available_bytes;
use ringwork::registry;
use ringwork::runtime::Interrupter;
use ringwork::sim::timeline::Load;
use ringwork::sim::{Bound, Machine, Options, SegmentSpec, ShowPs, TaskId, Topology, lower_bound};

/// What is simulated.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Call {
    pub(crate) collective: Collective,
    /// `None` where there is one way only.
    pub(crate) algorithm: Option<Way>,
    pub(crate) ranks: u32,
    /// As nccl-tests counts them.
    pub(crate) bytes: usize,
    pub(crate) dtype: Dtype,
    /// Bytes of scratch per rank; as much as everything takes at once unless said otherwise.
    pub(crate) scratch: Option<u64>,
    /// The memory that windows and data are in, by number.
    pub(crate) memory: usize,
    pub(crate) queues: QueueSettings,
    /// Compute time alone: there are no bytes.
    pub(crate) timing_only: bool,
    /// Instead of bytes, track where they come from.
    pub(crate) prove: bool,
}

/// What it would take.
#[derive(Clone, Debug)]
pub(crate) struct Prediction {
    pub(crate) time_ps: u64,
    pub(crate) events: u64,
    pub(crate) bound: Bound,
    pub(crate) busiest: Option<Load>,
}

/// Why there is no prediction.
#[derive(Debug)]
pub(crate) enum Failure {
    Interrupted,
    Because(String),
}

impl Call {
    /// What the algorithm is called.
    pub(crate) fn algorithm_name(&self) -> &'static str {
        self.algorithm.map_or("direct", Way::name)
    }

    /// Runs it on a machine. The lower bound is asserted, and every value of every rank is checked unless
    /// only time is computed.
    /// `heard` is told of events and virtual time from time to time.
    pub(crate) fn simulate(
        &self,
        topology: &Topology,
        stop: &Interrupter,
        heard: &dyn Fn(u64, u64),
    ) -> Result<Prediction, Failure> {
        with_dtype!(self.dtype, T => Run::<T>::new(self, topology)?.finish(stop, heard))
    }

    fn pattern(&self) -> Pattern {
        Pattern {
            collective: self.collective,
            op: ReduceOp::Sum,
            ranks: self.ranks as usize,
            root: 0,
            salt: 1,
        }
    }
}

/// Turns between two looks at Ctrl-C.
const LOOK_TURNS: u32 = 4096;
const SEGMENT: Segment = Segment(1);
const CELL_BYTES: u64 = ringwork::isa::SIGNAL_STRIDE_BYTES;

/// An argument that has been made already.
struct Made(Arg);

impl<P> Argument<P> for Made {
    fn to_arg(&self) -> Arg {
        self.0
    }
}

/// A call on a machine. Every rank has, one after the other: signals, scratch, input, output. Over queues there are
/// neither signals nor scratch, but the queues.
struct Run<'a, T> {
    call: &'a Call,
    topology: &'a Topology,
    machine: Machine,
    cells: u64,
    scratch: usize,
    send: usize,
    recv: usize,
    queues: Option<Neighbours>,
    element: std::marker::PhantomData<T>,
}

impl<'a, T: Element> Run<'a, T> {
    fn new(call: &'a Call, topology: &'a Topology) -> Result<Run<'a, T>, Failure> {
        let (size, ranks) = (T::DTYPE.bytes(), call.ranks as usize);
        let elements = call.bytes / size;
        let counts = call.collective.counts(elements, ranks);
        let asked = call.scratch.map_or(2 * elements, |bytes| {
            usize::try_from(bytes).unwrap_or(usize::MAX) / size
        });
        let options = Options {
            timing_only: call.timing_only,
            prove: call.prove,
            ..Options::default()
        };
        let mut run = Run {
            call,
            topology,
            machine: Machine::new(topology, options),
            cells: u64::from(1 + Team::STEP_CELLS),
            scratch: asked.max(2 * ranks),
            send: counts.send,
            recv: counts.recv,
            queues: None,
            element: std::marker::PhantomData,
        };
        if let Some(Way::Queues(algorithm)) = call.algorithm {
            (run.cells, run.scratch) = (0, 0);
            let queues = Neighbours::new(call, algorithm, topology, run.stride());
            run.queues = Some(queues.map_err(Failure::Because)?);
        }
        let window = SegmentSpec {
            segment: SEGMENT,
            members: (0..call.ranks).collect(),
            bytes: run.stride().saturating_mul(u64::from(call.ranks)),
            memory: call.memory,
        };
        let segments: Vec<SegmentSpec> = run.queues.iter().map(Neighbours::spec).chain([window]).collect();
        let need_bytes = segments
            .iter()
            .fold(0u64, |all, segment| all.saturating_add(segment.bytes));
        if !call.timing_only && need_bytes > available_bytes() {
            return Err(Failure::Because(format!(
                "{} of {} B over {} ranks needs {need_bytes} B of memory and {} are free; use --timing-only, --scratch or smaller sizes",
                call.collective,
                call.bytes,
                call.ranks,
                available_bytes()
            )));
        }
        for segment in segments {
            run.machine.define(segment).map_err(because)?;
        }
        Ok(run)
    }

    fn at(&self, before: &[usize]) -> u64 {
        let room = |count: &usize| ((*count * T::DTYPE.bytes()) as u64).next_multiple_of(CELL_BYTES);
        self.cells * CELL_BYTES + before.iter().map(room).sum::<u64>()
    }

    fn bytes(&self, elements: usize) -> u64 {
        (elements * T::DTYPE.bytes()) as u64
    }

    fn stride(&self) -> u64 {
        self.at(&[self.scratch, self.send, self.recv])
    }

    fn span(&self, me: u32, base: u64, len: usize) -> Span {
        Span {
            segment: SEGMENT,
            base,
            stride: self.stride(),
            me: Rank(me),
            rank: Rank(me),
            ranks: self.call.ranks,
            dtype: T::DTYPE,
            start: 0,
            len: len as u64,
        }
    }

    fn signals(&self, me: u32, first: u64, count: u32) -> Signals {
        Signals {
            segment: SEGMENT,
            base: first * CELL_BYTES,
            stride: self.stride(),
            count,
            me: Rank(me),
            ranks: self.call.ranks,
        }
    }

    /// Starts a rank's kernel.
    fn start(&self, me: u32) -> Result<TaskId, Failure> {
        let name = self.call.collective.name();
        if let Some(queues) = &self.queues {
            let (x, y) = (
                self.span(me, self.at(&[]), self.send),
                self.span(me, self.at(&[self.send]), self.recv),
            );
            let wrong = |found: Dtype| because(format!("data of {found}; this is a bug of ours"));
            let (x, y) = (
                In::from_span(x).map_err(wrong)?,
                Out::from_span(y).map_err(wrong)?,
            );
            let kernel = queues.kernel::<T>(me, x, y).map_err(because)?;
            return self.machine.spawn(me, name, kernel).map_err(because);
        }
        let Task { kernel, args, .. } = self.task(me)?;
        let entry = registry::find(&kernel).map_err(because)?;
        let spawned = self.machine.spawn(me, name, |core| (entry.step)(core, args));
        spawned.map_err(because)
    }

    /// The kernel that one rank runs on windows.
    fn task(&self, me: u32) -> Result<Task, Failure> {
        let x = Made(Arg::Memory(self.span(me, self.at(&[self.scratch]), self.send)));
        let y = Made(Arg::Memory(self.span(
            me,
            self.at(&[self.scratch, self.send]),
            self.recv,
        )));
        let scratch = Made(Arg::Window(self.span(me, self.at(&[]), self.scratch)));
        let meet = Made(Arg::Barrier(Barrier::new(self.signals(me, 0, 1))));
        let steps = Made(Arg::Signals(self.signals(me, 1, Team::STEP_CELLS)));
        let (op, root) = (ReduceOp::Sum, Rank(0));
        Ok(match self.call.collective {
            Collective::AllReduce => {
                let algorithm = match self.call.algorithm {
                    Some(Way::Windows(algorithm)) => algorithm,
                    _ => Algorithm::TwoPhase,
                };
                kernels::all_reduce::task::<T>(x, y, scratch, meet, steps, op, algorithm)
            }
            Collective::AllGather => kernels::all_gather::task::<T>(x, y, scratch, meet, steps),
            Collective::ReduceScatter => kernels::reduce_scatter::task::<T>(x, y, scratch, meet, steps, op),
            Collective::Broadcast => kernels::broadcast::task::<T>(x, y, scratch, meet, steps, root),
            Collective::Reduce => kernels::reduce::task::<T>(x, y, scratch, meet, steps, op, root),
            Collective::AllToAll => kernels::all_to_all::task::<T>(x, y, scratch, meet, steps),
            Collective::Gather => kernels::gather::task::<T>(x, y, scratch, meet, steps, root),
            Collective::Scatter => kernels::scatter::task::<T>(x, y, scratch, meet, steps, root),
            Collective::Barrier => {
                return Err(Failure::Because(
                    "a barrier moves no data; there is nothing to predict per size".into(),
                ));
            }
        })
    }

    fn finish(self, stop: &Interrupter, heard: &dyn Fn(u64, u64)) -> Result<Prediction, Failure> {
        let pattern = self.call.pattern();
        let mut tasks = Vec::new();
        for rank in 0..self.call.ranks {
            if self.call.prove {
                let input = Contributions::input(rank, 0, self.bytes(self.send));
                let at = self.stride() * u64::from(rank) + self.at(&[self.scratch]);
                self.machine.set_origin(SEGMENT, at, &input).map_err(because)?;
            } else if !self.call.timing_only {
                let values: Vec<T> = (0..self.send).map(|i| pattern.input(rank as usize, i)).collect();
                let at = self.stride() * u64::from(rank) + self.at(&[self.scratch]);
                let bytes = bytemuck::cast_slice(&values);
                self.machine.write(SEGMENT, at, bytes).map_err(because)?;
            }
            tasks.push(self.start(rank)?);
        }
        'run: loop {
            for _ in 0..LOOK_TURNS {
                if !self.machine.turn().map_err(because)? {
                    break 'run;
                }
            }
            if stop.is_interrupted() {
                return Err(Failure::Interrupted);
            }
            heard(self.machine.events(), self.machine.now_ps());
        }
        self.machine.run().map_err(because)?;
        if self.call.prove {
            self.check_origins()?;
        } else if !self.call.timing_only {
            self.check(&pattern)?;
        }
        // Credits may still be on their way when the last task is over.
        let ends = tasks.into_iter().filter_map(|task| self.machine.outcome(task));
        self.predict(ends.map(|outcome| outcome.end_ps).max().unwrap_or(0))
    }

    /// Where every byte of every rank comes from.
    fn check_origins(&self) -> Result<(), Failure> {
        let mut faults = Faults::default();
        for rank in 0..self.call.ranks {
            let (send, recv) = (self.bytes(self.send), self.bytes(self.recv));
            let Some(expected) = expected(self.call, rank, send, recv) else {
                continue;
            };
            let at = self.stride() * u64::from(rank) + self.at(&[self.scratch, self.send]);
            let origin = self.machine.origin(SEGMENT, at, recv).map_err(because)?;
            faults.add(rank, &origin.differences(&expected), T::DTYPE.bytes() as u64);
        }
        faults
            .why(self.call)
            .map_or(Ok(()), |why| Err(Failure::Because(why)))
    }

    /// Every value of every rank.
    fn check(&self, pattern: &Pattern) -> Result<(), Failure> {
        let everybody_gets_the_same = matches!(
            self.call.collective,
            Collective::AllReduce | Collective::AllGather | Collective::Broadcast
        );
        let mut expected: Vec<Option<T>> = Vec::new();
        for rank in 0..self.call.ranks {
            let me = rank as usize;
            // Out of place, a reduction leaves the others' output alone.
            if self.call.collective == Collective::Reduce && me != pattern.root {
                continue;
            }
            let at = self.stride() * u64::from(rank) + self.at(&[self.scratch, self.send]);
            let bytes = self
                .machine
                .read(SEGMENT, at, self.recv * T::DTYPE.bytes())
                .map_err(because)?;
            let values: Vec<T> = bytemuck::pod_collect_to_vec(&bytes);
            if rank == 0 || !everybody_gets_the_same {
                expected = (0..self.recv).map(|i| pattern.result(me, i, self.recv)).collect();
            }
            for (i, (value, expected)) in values.iter().zip(&expected).enumerate() {
                if let Some(expected) = expected.filter(|expected| expected != value) {
                    return Err(Failure::Because(format!(
                        "WRONG RESULT: {} {}, {} B over {} ranks: element {i} of rank {rank} is {value}, should be {expected}",
                        self.call.collective,
                        self.call.algorithm_name(),
                        self.call.bytes,
                        self.call.ranks
                    )));
                }
            }
        }
        Ok(())
    }

    fn predict(&self, time_ps: u64) -> Result<Prediction, Failure> {
        let op = self.call.collective.name().parse().map_err(Failure::Because)?;
        let bound = lower_bound(op, self.topology, self.call.ranks, self.call.bytes as u64);
        bound.check(time_ps, self.call.ranks).map_err(|below| {
            Failure::Because(format!(
                "{} {} of {} B over {} ranks of {}: predicted {}, and no algorithm can take less than {}: {below}",
                self.call.collective,
                self.call.algorithm_name(),
                self.call.bytes,
                self.call.ranks,
                self.topology.name,
                ShowPs(time_ps),
                ShowPs(bound.total_ps()),
            ))
        })?;
        Ok(Prediction {
            time_ps,
            events: self.machine.events(),
            bound,
            busiest: self.machine.busiest(),
        })
    }
}

fn because(error: impl std::fmt::Display) -> Failure {
    Failure::Because(error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(collective: Collective) -> Call {
        Call {
            collective,
            algorithm: None,
            ranks: 3,
            bytes: 96,
            dtype: Dtype::F32,
            scratch: None,
            memory: 0,
            queues: QueueSettings::default(),
            timing_only: false,
            prove: false,
        }
    }

    #[test]
    fn a_proof_finds_what_was_put_in_the_way() {
        let topology = Topology::preset("ring-3").unwrap();
        for collective in [
            Collective::AllReduce,
            Collective::AllGather,
            Collective::ReduceScatter,
            Collective::Broadcast,
            Collective::Reduce,
            Collective::AllToAll,
            Collective::Gather,
            Collective::Scatter,
        ] {
            let call = Call {
                timing_only: true,
                prove: true,
                ..call(collective)
            };
            let stop = Interrupter::new().unwrap();
            call.simulate(&topology, &stop, &|_, _| {}).ok().unwrap();
            // Nothing ran: every rank with a result lacks all of it.
            let run = Run::<f32>::new(&call, &topology).ok().unwrap();
            let Err(Failure::Because(why)) = run.check_origins() else {
                panic!("{collective}: an empty result was taken for a right one");
            };
            assert!(why.contains("rank 0, elements 0.."), "{why}");
            assert!(why.contains("lacks the input of rank 0"), "{why}");
            // One element of rank 0's result from elsewhere.
            let at = run.at(&[run.scratch, run.send]);
            let right = expected(&call, 0, run.bytes(run.send), run.bytes(run.recv)).unwrap();
            let wrong = right.replaced(4, &Contributions::input(2, 1000, 4));
            run.machine.set_origin(SEGMENT, at, &wrong).unwrap();
            let Err(Failure::Because(why)) = run.check_origins() else {
                panic!("{collective}: a wrong element was not noticed");
            };
            assert!(why.contains("rank 0, elements 1..2: "), "{why}");
        }
    }

    #[test]
    fn one_wrong_value_on_the_last_rank_is_noticed() {
        let topology = Topology::preset("ring-3").unwrap();
        for collective in [Collective::AllReduce, Collective::Scatter, Collective::AllToAll] {
            let call = call(collective);
            let run = Run::<f32>::new(&call, &topology).ok().unwrap();
            let pattern = call.pattern();
            let place = |rank: u64| run.stride() * rank + run.at(&[run.scratch, run.send]);
            for rank in 0..3u32 {
                let right: Vec<f32> = (0..run.recv)
                    .map(|i| pattern.result(rank as usize, i, run.recv).unwrap())
                    .collect();
                let bytes = bytemuck::cast_slice(&right);
                run.machine.write(SEGMENT, place(u64::from(rank)), bytes).unwrap();
            }
            assert!(run.check(&pattern).is_ok());
            run.machine.write(SEGMENT, place(2) + 4, &[0xff]).unwrap();
            let Err(Failure::Because(why)) = run.check(&pattern) else {
                panic!("{collective}: a wrong value was not noticed");
            };
            assert!(why.contains("element 1 of rank 2"), "{why}");
        }
    }

    #[test]
    fn a_kernel_that_refuses_is_heard() {
        let topology = Topology::preset("ring-3").unwrap();
        let packet = Call {
            algorithm: Some(Way::Windows(Algorithm::Packet)),
            ..call(Collective::AllReduce)
        };
        let stop = Interrupter::new().unwrap();
        let Err(Failure::Because(why)) = packet.simulate(&topology, &stop, &|_, _| {}) else {
            panic!("a team without packets cannot do this");
        };
        assert!(why.contains("no packets"), "{why}");
        stop.interrupt();
        let stopped = call(Collective::Broadcast).simulate(&topology, &stop, &|_, _| {});
        assert!(stopped.is_ok(), "shorter than one look");
    }
}
