//! One collective on a machine: memory, kernels, time, and whether the data is right.

use super::algorithms::grid_of;
use super::prove::{Faults, expected};
use crate::bench::verify::Pattern;
use ringwork::check::{Detector, Who, watched};
use ringwork::collectives::catalogue::{self, Entry, Needs, Resources};
use ringwork::collectives::domain::Demand;
use ringwork::isa::{
    Algorithm, Collective, Contributions, Counts, Dtype, Element, In, MAX_GRID_SIDES, Out, Rank, ReduceOp,
    Region, Segment, with_dtype,
};
use ringwork::layout::{BufferPlace, Bytes, Layout, WindowBuilder};
use ringwork::native::memory::available_bytes;
use ringwork::registry::SteppedKernel;
use ringwork::runtime::Interrupter;
use ringwork::sim::timeline::{Load, Timeline};
use ringwork::sim::{Bound, Machine, Options, SegmentSpec, ShowPs, SimCore, TaskId, Topology, lower_bound};
use std::cell::RefCell;
use std::rc::Rc;

/// What is said of queues between neighbours; the rest is chosen so that everything goes at once, if the memory has room for it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct QueueSettings {
    /// Slots of a queue.
    pub(crate) slots: Option<u32>,
    /// Bytes of a slot.
    pub(crate) slot: Option<u64>,
    /// The memory they are in, by number.
    pub(crate) memory: Option<usize>,
    /// What goes along each dimension of the grid; rings where nothing is said.
    pub(crate) dimensions: [Option<Algorithm>; MAX_GRID_SIDES],
}

impl QueueSettings {
    fn by_side(&self) -> Vec<Algorithm> {
        let ring_or = |said: &Option<Algorithm>| said.unwrap_or(Algorithm::Ring);
        self.dimensions.iter().map(ring_or).collect()
    }
}

/// What is simulated.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Call {
    pub(crate) entry: &'static Entry,
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
    /// Look for races.
    pub(crate) races: bool,
    /// Keep a timeline.
    pub(crate) trace: bool,
}

/// What it would take.
#[derive(Clone, Debug)]
pub(crate) struct Prediction {
    pub(crate) time_ps: u64,
    pub(crate) events: u64,
    pub(crate) bound: Bound,
    pub(crate) busiest: Option<Load>,
    /// What ran where and when, if that was asked for.
    pub(crate) timeline: Option<Timeline>,
}

/// Why there is no prediction.
#[derive(Debug)]
pub(crate) enum Failure {
    Interrupted,
    Because(String),
}

impl Call {
    pub(crate) fn collective(&self) -> Collective {
        self.entry.collective
    }

    /// What the algorithm is called.
    pub(crate) fn algorithm_name(&self) -> &'static str {
        self.entry.algorithm.name()
    }

    /// What a machine keeps of it.
    pub(super) fn options(&self) -> Options {
        Options {
            timing_only: self.timing_only,
            prove: self.prove,
            trace: self.trace,
            ..Options::default()
        }
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
        let run = Run::new(self, topology)?;
        let tasks = run.start_all()?;
        turn_until_done(&run.machine, stop, heard, &mut || Ok(()))?;
        run.finish(tasks)
    }

    /// Elements of the size; a barrier takes a byte along.
    fn elements(&self) -> usize {
        self.bytes / self.dtype.bytes()
    }

    fn counts(&self) -> Counts {
        match self.collective() {
            Collective::Barrier => Counts { send: 1, recv: 1 },
            other => other.counts(self.elements(), self.ranks as usize),
        }
    }

    fn pattern(&self) -> Pattern {
        Pattern {
            collective: self.collective(),
            op: ReduceOp::Sum,
            ranks: self.ranks as usize,
            root: 0,
            salt: 1,
        }
    }

    /// What the algorithm needs of the domain, on this machine, beside `data_bytes` of data on every rank.
    fn demand(&self, topology: &Topology, grid: Vec<u32>, data_bytes: u64) -> Demand {
        let memory = self.resource_memory(topology);
        let used = if memory == self.memory { data_bytes } else { 0 };
        let capacity = topology.chip.memories.get(memory);
        Demand {
            grid,
            scratch_bytes: self.scratch,
            slots: self.queues.slots,
            slot_bytes: self.queues.slot,
            by_side: self.queues.by_side(),
            latency_bytes: topology.latency_bytes(),
            room_bytes: capacity.map_or(u64::MAX, |memory| memory.capacity.saturating_sub(used)),
            ..Demand::new(self.ranks, self.dtype, self.elements())
        }
    }

    /// The memory that the algorithm's own places are in.
    fn resource_memory(&self, topology: &Topology) -> usize {
        match self.entry.needs {
            Needs::Queues => {
                let of_chip = topology.chip.queues.as_ref().map_or(0, |queues| queues.memory);
                self.queues.memory.unwrap_or(of_chip)
            }
            _ => self.memory,
        }
    }
}

/// Turns between two reports of progress.
const REPORT_TURNS: u32 = 4096;

/// Runs a machine until nothing is left to happen. `ended` is called when tasks may have ended.
pub(super) fn turn_until_done(
    machine: &Machine,
    stop: &Interrupter,
    heard: &dyn Fn(u64, u64),
    ended: &mut dyn FnMut() -> Result<(), Failure>,
) -> Result<(), Failure> {
    loop {
        for _ in 0..REPORT_TURNS {
            // Before every turn: one that reduces the data of a thousand ranks takes milliseconds.
            if stop.is_interrupted() {
                return Err(Failure::Interrupted);
            }
            if !machine.turn().map_err(because)? {
                return machine.run().map_err(because);
            }
            ended()?;
        }
        heard(machine.events(), machine.now_ps());
    }
}

/// A call on a machine, perhaps beside others.
pub(super) struct Run<'a> {
    pub(super) call: &'a Call,
    topology: &'a Topology,
    machine: Machine,
    /// The machine's rank of each rank of the call.
    members: Vec<u32>,
    grid: Rc<[u32]>,
    /// Who looks for races, if anybody does.
    detector: Option<Rc<RefCell<Detector>>>,
    data: Layout,
    input: BufferPlace,
    output: BufferPlace,
    resources: Vec<Resources>,
}

impl<'a> Run<'a> {
    /// A call over the first ranks of a machine of its own.
    fn new(call: &'a Call, topology: &'a Topology) -> Result<Run<'a>, Failure> {
        let machine = Machine::new(topology, call.options());
        let detector = call.races.then(|| Rc::new(RefCell::new(Detector::new())));
        Run::beside(call, topology, machine, (0..call.ranks).collect(), 0, detector)
    }

    /// A call over some ranks of a machine where there may be others. `number` tells them apart.
    pub(super) fn beside(
        call: &'a Call,
        topology: &'a Topology,
        machine: Machine,
        members: Vec<u32>,
        number: u32,
        detector: Option<Rc<RefCell<Detector>>>,
    ) -> Result<Run<'a>, Failure> {
        // Where the data is, and where what the algorithm needs beside it.
        let (of_data, of_resources) = (Segment(2 * number + 1), Segment(2 * number + 2));
        let grid = grid_of(topology, &members);
        let Counts { send, recv } = call.counts();
        let mut window = WindowBuilder::default();
        let input = window.buffer(call.dtype, send).map_err(because)?;
        let output = if call.entry.is_in_place() {
            input
        } else {
            window.buffer(call.dtype, recv).map_err(because)?
        };
        let data = window.packed(of_data, call.ranks);
        let mut window = WindowBuilder::default();
        let places = call
            .demand(topology, grid.clone(), data.stride)
            .declare(call.entry, &mut window)
            .map_err(because)?;
        let own = window.packed(of_resources, call.ranks);
        let bind = |rank| places.bind(&own, Rank(rank)).map_err(because);
        let resources = (0..call.ranks).map(bind).collect::<Result<_, _>>()?;
        let need_bytes = data.bytes().saturating_add(own.bytes());
        if !call.timing_only && need_bytes > available_bytes() {
            return Err(Failure::Because(format!(
                "{} of {} over {} ranks needs {} of memory and {} are free; use --timing-only, --scratch or smaller sizes",
                call.collective(),
                Bytes(call.bytes as u64),
                call.ranks,
                Bytes(need_bytes),
                Bytes(available_bytes())
            )));
        }
        let segments = [(own, call.resource_memory(topology)), (data, call.memory)];
        for (layout, memory) in segments {
            let segment = SegmentSpec {
                segment: layout.segment,
                members: members.clone(),
                bytes: layout.bytes(),
                memory,
            };
            machine.define(segment).map_err(because)?;
        }
        if let Some(detector) = &detector {
            let mut detector = detector.borrow_mut();
            detector.define(of_data, "the data", None, data.bytes());
            detector.define(of_resources, "what the algorithm needs", None, own.bytes());
        }
        Ok(Run {
            call,
            topology,
            machine,
            members,
            grid: grid.into(),
            detector,
            data,
            input,
            output,
            resources,
        })
    }

    /// Where a buffer of a rank lies in the segment of the data.
    fn at(&self, rank: u32, buffer: BufferPlace) -> u64 {
        let at = self
            .data
            .data_at(Rank(rank), buffer.offset, buffer.bytes() as u64);
        at.unwrap_or(u64::MAX)
    }

    /// Starts the kernel of one of its ranks.
    pub(super) fn start(&self, me: u32) -> Result<TaskId, Failure> {
        let (entry, resources) = (self.call.entry, self.resources[me as usize]);
        let span = |buffer| self.data.span(Rank(me), buffer);
        let x: In = Region::of_span(span(self.input));
        let y: Out = Region::of_span(span(self.output));
        let grid = Rc::clone(&self.grid);
        let by_side: Rc<[Algorithm]> = self.call.queues.by_side().into();
        let chip = self.members[me as usize];
        let workers = self.call.ranks;
        let detector = self.detector.clone();
        let name = self.call.algorithm_name();
        let kernel = move |core: SimCore| {
            let core = match detector {
                None => core,
                Some(detector) => {
                    let who = Who {
                        chip: Some(chip),
                        name: name.into(),
                        task: 0,
                    };
                    let agent = {
                        let mut detector = detector.borrow_mut();
                        let start = detector.now(Detector::HOST);
                        detector.begin(who, &start)
                    };
                    watched(&core, agent, detector)
                }
            };
            let kernel = async move {
                let call = catalogue::Call {
                    x,
                    y,
                    op: ReduceOp::Sum,
                    root: Rank(0),
                    workers,
                    grid: &grid,
                    by_side: &by_side,
                };
                catalogue::run(&core, entry, resources, call).await
            };
            Box::pin(kernel) as SteppedKernel
        };
        let name = self.call.collective().name();
        self.machine.spawn(chip, name, kernel).map_err(because)
    }

    /// Writes the inputs of all ranks.
    pub(super) fn write_inputs(&self) -> Result<(), Failure> {
        for rank in 0..self.call.ranks {
            let at = self.at(rank, self.input);
            if self.call.prove {
                let input = Contributions::input(rank, 0, self.input.bytes() as u64);
                let data = self.data.segment;
                self.machine.set_origin(data, at, &input).map_err(because)?;
            } else if !self.call.timing_only {
                let bytes = with_dtype!(self.call.dtype, T => inputs::<T>(&self.call.pattern(), rank, self.input.count));
                let data = self.data.segment;
                self.machine.write(data, at, &bytes).map_err(because)?;
            }
        }
        Ok(())
    }

    /// Starts the kernels of all ranks.
    fn start_all(&self) -> Result<Vec<TaskId>, Failure> {
        self.write_inputs()?;
        (0..self.call.ranks).map(|rank| self.start(rank)).collect()
    }

    /// Refuses races that were found and wrong results.
    pub(super) fn verify(&self) -> Result<(), Failure> {
        if let Some(detector) = &self.detector {
            let faults = detector.borrow_mut().take_faults();
            let texts: Vec<String> = faults.iter().map(ToString::to_string).collect();
            if !texts.is_empty() {
                return Err(Failure::Because(texts.join("\n")));
            }
        }
        if self.call.prove {
            self.check_origins()?;
        } else if !self.call.timing_only {
            with_dtype!(self.call.dtype, T => self.check::<T>())?;
        }
        Ok(())
    }

    fn finish(self, tasks: Vec<TaskId>) -> Result<Prediction, Failure> {
        self.verify()?;
        // Credits may still be on their way when the last task is over.
        let ends = tasks.into_iter().filter_map(|task| self.machine.outcome(task));
        self.predict(ends.map(|outcome| outcome.end_ps).max().unwrap_or(0))
    }

    /// Where every byte of every rank comes from.
    fn check_origins(&self) -> Result<(), Failure> {
        let mut faults = Faults::default();
        for rank in 0..self.call.ranks {
            let Some(expected) = expected(self.call, rank) else {
                continue;
            };
            let (at, bytes) = (self.at(rank, self.output), self.output.bytes() as u64);
            let origin = self
                .machine
                .origin(self.data.segment, at, bytes)
                .map_err(because)?;
            let element_bytes = self.call.dtype.bytes() as u64;
            faults.add(rank, &origin.differences(&expected), element_bytes);
        }
        faults
            .why(self.call)
            .map_or(Ok(()), |why| Err(Failure::Because(why)))
    }

    /// Every value of every rank.
    fn check<T: Element>(&self) -> Result<(), Failure> {
        let (pattern, count) = (self.call.pattern(), self.output.count);
        let mut expected: (Vec<_>, Vec<Option<T>>) = Default::default();
        for rank in 0..self.call.ranks {
            let golden = self
                .call
                .collective()
                .golden(rank, self.call.ranks, 0, self.call.elements());
            // Often everybody gets the same: then it is worked out once.
            if rank == 0 || golden != expected.0 {
                expected = (golden, pattern.results(rank as usize, count));
            }
            let at = self.at(rank, self.output);
            let bytes = self
                .machine
                .read(self.data.segment, at, self.output.bytes())
                .map_err(because)?;
            let values: Vec<T> = bytemuck::pod_collect_to_vec(&bytes);
            for (i, (value, expected)) in values.iter().zip(&expected.1).enumerate() {
                if let Some(expected) = expected.filter(|expected| expected != value) {
                    return Err(Failure::Because(format!(
                        "WRONG RESULT: {} {}, {} B over {} ranks: element {i} of rank {rank} is {value}, should be {expected}",
                        self.call.collective(),
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
        let op = self.call.collective();
        let bound = lower_bound(op, self.topology, self.call.ranks, self.call.bytes as u64);
        bound.check(time_ps, self.call.ranks).map_err(|below| {
            Failure::Because(format!(
                "{} {} of {} B over {} ranks of {}: predicted {}, and no algorithm can take less than {}: {below}",
                self.call.collective(),
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
            timeline: self.call.trace.then(|| self.machine.timeline_with_links()),
        })
    }
}

/// The bytes of a rank's input.
fn inputs<T: Element>(pattern: &Pattern, rank: u32, count: usize) -> Vec<u8> {
    let values: Vec<T> = (0..count).map(|i| pattern.input(rank as usize, i)).collect();
    bytemuck::cast_slice(&values).to_vec()
}

fn because(error: impl std::fmt::Display) -> Failure {
    Failure::Because(error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(collective: Collective, algorithm: Algorithm) -> Call {
        Call {
            entry: catalogue::find(collective, algorithm).unwrap(),
            ranks: 3,
            bytes: 96,
            dtype: Dtype::F32,
            scratch: None,
            memory: 0,
            queues: QueueSettings::default(),
            timing_only: false,
            prove: false,
            races: false,
            trace: false,
        }
    }

    #[test]
    fn every_algorithm_of_the_catalogue_is_right_and_proved() {
        let topology = Topology::preset("ring-3").unwrap();
        let stop = Interrupter::new().unwrap();
        let fits = |entry: &&Entry| entry.fits(3, Some(&[3])).is_ok();
        for entry in catalogue::CATALOGUE.iter().filter(fits) {
            let verified = call(entry.collective, entry.algorithm);
            let Ok(first) = verified.simulate(&topology, &stop, &|_, _| {}) else {
                panic!("{entry:?}");
            };
            let proved = Call {
                timing_only: true,
                prove: true,
                ..verified
            };
            let Ok(second) = proved.simulate(&topology, &stop, &|_, _| {}) else {
                panic!("{entry:?}");
            };
            assert_eq!(first.time_ps, second.time_ps, "{entry:?}");
            let watched = Call {
                races: true,
                ..verified
            };
            let third = match watched.simulate(&topology, &stop, &|_, _| {}) {
                Ok(third) => third,
                Err(why) => panic!("{entry:?}: {why:?}"),
            };
            assert_eq!(first.time_ps, third.time_ps, "{entry:?}");
        }
    }

    #[test]
    fn a_proof_finds_what_was_put_in_the_way() {
        let topology = Topology::preset("ring-3").unwrap();
        for collective in Collective::ALL
            .into_iter()
            // Of an exclusive scan rank 0 gets nothing.
            .filter(|one| !matches!(one, Collective::Barrier | Collective::AllReduce | Collective::ExclusiveScan))
        {
            let call = Call {
                timing_only: true,
                prove: true,
                ..call(collective, Algorithm::Staged)
            };
            // Nothing ran: every rank with a result lacks all of it.
            let run = Run::new(&call, &topology).ok().unwrap();
            let Err(Failure::Because(why)) = run.check_origins() else {
                panic!("{collective}: an empty result was taken for a right one");
            };
            assert!(why.contains("rank 0, elements 0.."), "{why}");
            assert!(why.contains("lacks the input of rank 0"), "{why}");
            // One element of rank 0's result from elsewhere.
            let right = expected(&call, 0).unwrap();
            let wrong = right.replaced(4, &Contributions::input(2, 1000, 4));
            let at = run.at(0, run.output);
            run.machine.set_origin(run.data.segment, at, &wrong).unwrap();
            let Err(Failure::Because(why)) = run.check_origins() else {
                panic!("{collective}: a wrong element was not noticed");
            };
            assert!(why.contains("rank 0, elements 1..2: "), "{why}");
        }
    }

    #[test]
    fn one_wrong_value_on_the_last_rank_is_noticed() {
        let topology = Topology::preset("ring-3").unwrap();
        for (collective, algorithm) in [
            (Collective::AllReduce, Algorithm::TwoPhase),
            (Collective::Scatter, Algorithm::Staged),
            (Collective::AllToAll, Algorithm::WindowPull),
        ] {
            let call = call(collective, algorithm);
            let run = Run::new(&call, &topology).ok().unwrap();
            for rank in 0..3u32 {
                let right = call.pattern().results::<f32>(rank as usize, run.output.count);
                let right: Vec<f32> = right.into_iter().map(Option::unwrap).collect();
                let at = run.at(rank, run.output);
                run.machine
                    .write(run.data.segment, at, bytemuck::cast_slice(&right))
                    .unwrap();
            }
            assert!(run.check::<f32>().is_ok());
            let at = run.at(2, run.output) + 4;
            run.machine.write(run.data.segment, at, &[0xff]).unwrap();
            let Err(Failure::Because(why)) = run.check::<f32>() else {
                panic!("{collective}: a wrong value was not noticed");
            };
            assert!(why.contains("element 1 of rank 2"), "{why}");
        }
    }

    #[test]
    fn an_interrupted_call_ends_at_its_next_turn() {
        let topology = Topology::preset("ring-3").unwrap();
        let stop = Interrupter::new().unwrap();
        stop.interrupt();
        let stopped = call(Collective::Broadcast, Algorithm::Staged).simulate(&topology, &stop, &|_, _| {});
        assert!(matches!(stopped, Err(Failure::Interrupted)));
    }
}
