//! The simulator's thread: it owns the machine, its memory, and a queue of tasks for each chip.

use super::panics::{Guarded, Panic};
use super::{Board, SimBackendError, graph};
use crate::backend::{Event, Failure, Layout, SegmentPlan};
use crate::chip::is_orchestration;
use crate::platform::{Simulated, Simulation};
use ringwork_isa::{Arg, Device, Error, ErrorKind, KernelId, Rank, Segment, Signal, Site, Task, Waited};
use ringwork_registry as registry;
use ringwork_sim::{Machine, Options, SegmentSpec, SimError, Stuck, StuckOn, TaskId};
use ringwork_timeline::Timeline;
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

/// Steps between two checks for requests of the host.
const LOOK_TURNS: u64 = 64;
/// Checks for requests between two readings of the clock.
const CLOCK_LOOKS: u64 = 16;

/// A running task.
struct Running {
    id: u64,
    kernel: KernelId,
    task: TaskId,
    domains: Vec<Segment>,
    panicked: Rc<RefCell<Option<Panic>>>,
}

struct Chip {
    rank: u32,
    /// The place of the intermediates of its own graphs, one graph at a time (SMN-1).
    scratch: Segment,
    waiting: VecDeque<(u64, Task)>,
    running: Option<Running>,
}

pub(super) struct SimThread {
    machine: Machine,
    topology: String,
    traced: bool,
    chips: Vec<Chip>,
    segments: BTreeMap<Segment, Layout>,
    /// Aborted domains, with the reason.
    alarms: BTreeMap<Segment, String>,
    /// Domains whose signals the host may notify.
    attended: BTreeSet<Segment>,
    board: Arc<Board>,
}

/// Memory, in the form that the host uses.
impl SimThread {
    pub(super) fn new(
        simulation: &Simulation,
        ranks: Vec<u32>,
        own: Segment,
        board: Arc<Board>,
    ) -> SimThread {
        let options = Options {
            trace: simulation.trace,
            ..Options::default()
        };
        let chip = |(own, rank)| Chip {
            rank,
            scratch: Segment(own),
            waiting: VecDeque::new(),
            running: None,
        };
        SimThread {
            machine: Machine::new(&simulation.topology, options),
            topology: simulation.topology.name.clone(),
            traced: simulation.trace,
            chips: (own.0..).zip(ranks).map(chip).collect(),
            segments: BTreeMap::new(),
            alarms: BTreeMap::new(),
            attended: BTreeSet::new(),
            board,
        }
    }

    pub(super) fn create(&mut self, plan: &SegmentPlan) -> crate::Result<()> {
        let spec = SegmentSpec {
            segment: plan.layout.segment,
            members: plan
                .members
                .chips
                .iter()
                .map(|chip| self.chips[*chip].rank)
                .collect(),
            bytes: plan.layout.bytes(),
            memory: 0,
        };
        self.machine.define(spec).map_err(|error| match error {
            SimError::OutOfMemory {
                memory,
                rank,
                capacity,
                needed,
            } => SimBackendError::OutOfMemory {
                what: format!("{}, with what is in {memory} of chip {rank} already,", plan.what),
                need_bytes: needed,
                have_bytes: capacity,
            },
            other => SimBackendError::Machine(other),
        })?;
        self.segments.insert(plan.layout.segment, plan.layout);
        Ok(())
    }

    pub(super) fn release(&mut self, segment: Segment) {
        self.machine.release(segment);
        self.machine.calm(segment);
        self.segments.remove(&segment);
        self.alarms.remove(&segment);
        self.attended.remove(&segment);
    }

    /// The place of bytes of a rank's data; `None` if a part of them does not exist.
    fn place(&self, segment: Segment, rank: Rank, offset: u64, len: usize) -> Option<u64> {
        let layout = self.segments.get(&segment)?;
        layout.data_at(rank, offset, len as u64)
    }

    pub(super) fn write(&mut self, segment: Segment, rank: Rank, offset: u64, bytes: &[u8]) -> bool {
        let at = self.place(segment, rank, offset, bytes.len());
        at.is_some_and(|at| self.machine.write(segment, at, bytes).is_ok())
    }

    pub(super) fn read(&self, segment: Segment, rank: Rank, offset: u64, len: usize) -> Option<Vec<u8>> {
        let at = self.place(segment, rank, offset, len)?;
        self.machine.read(segment, at, len).ok()
    }

    pub(super) fn peek(&self, signal: &Signal) -> Option<i32> {
        let bytes = self.machine.read(signal.segment(), signal.offset()?, 4).ok()?;
        Some(i32::from_le_bytes(bytes.try_into().ok()?))
    }

    pub(super) fn notify(&mut self, signal: &Signal, value: i32) -> bool {
        let offset = signal.offset();
        offset.is_some_and(|offset| self.machine.notify(signal.segment(), offset, value).is_ok())
    }

    /// Makes time stop when one of these signals changes (SMN-4).
    pub(super) fn watch(&mut self, signals: &[Signal]) {
        let place = |signal: &Signal| Some((signal.segment(), signal.offset()?));
        let places: Vec<_> = signals.iter().filter_map(place).collect();
        self.machine.watch(&places);
    }

    pub(super) fn attend(&mut self, segment: Segment, attended: bool) {
        if attended {
            self.attended.insert(segment);
        } else {
            self.attended.remove(&segment);
        }
    }

    pub(super) fn abort(&mut self, segment: Segment, reason: &str) {
        self.alarms.entry(segment).or_insert_with(|| reason.to_owned());
        self.machine.abort(segment, reason);
    }

    /// Resets the signals and the alarm.
    pub(super) fn reset(&mut self, segment: Segment) {
        let Some(layout) = self.segments.get(&segment) else {
            return;
        };
        self.alarms.remove(&segment);
        self.machine.calm(segment);
        let zeros = vec![0; usize::try_from(layout.data_offset() - layout.header_bytes).unwrap_or(0)];
        for rank in (0..layout.ranks).map(Rank) {
            // The cells are part of the segment.
            let _ = self.machine.write(segment, layout.window_offset(rank), &zeros);
        }
    }
}

/// Tasks.
impl SimThread {
    pub(super) fn submit(&mut self, chip: usize, id: u64, task: Task) {
        self.chips[chip].waiting.push_back((id, task));
        self.begin(chip);
    }

    /// Starts the next task of an idle chip (SMN-1).
    fn begin(&mut self, chip: usize) {
        while self.chips[chip].running.is_none() {
            let Some((id, task)) = self.chips[chip].waiting.pop_front() else {
                return;
            };
            match self.start(&self.chips[chip], id, task) {
                Ok(running) => self.chips[chip].running = Some(running),
                Err(failure) => self.ran(chip, id, Err(failure)),
            }
        }
    }

    fn start(&self, chip: &Chip, id: u64, task: Task) -> Result<Running, Failure> {
        let (rank, scratch) = (chip.rank, chip.scratch);
        let Task { kernel, args, .. } = task;
        let is_domain = |segment: &Segment| self.segments.get(segment).is_some_and(|layout| layout.ranks > 0);
        let domains: Vec<Segment> = args.iter().filter_map(Arg::segment).filter(is_domain).collect();
        if let Some(reason) = domains.iter().find_map(|domain| self.alarms.get(domain)) {
            let why = format!("aborted because {reason}");
            return Err(Failure::NotBegun { dead: None, why });
        }
        let entry = registry::find(&kernel).map_err(Failure::Unknown)?;
        let panicked = Rc::new(RefCell::new(None));
        let (heard, own) = (panicked.clone(), Rc::new(Cell::new(None)));
        let (machine, id_of_kernel, known) = (self.machine.clone(), kernel.clone(), own.clone());
        let spawned = self.machine.spawn(rank, short_name(&kernel), move |core| {
            let kernel = if is_orchestration(&id_of_kernel) {
                graph::run(machine, (id_of_kernel, args), (rank, scratch), known)
            } else {
                (entry.step)(core, args)
            };
            Guarded {
                kernel,
                panicked: heard,
            }
        });
        let task = spawned.map_err(|error| Failure::Returned(Error::failed(error.to_string())))?;
        own.set(Some(task));
        Ok(Running {
            id,
            kernel,
            task,
            domains,
            panicked,
        })
    }

    fn ran(&self, chip: usize, task: u64, outcome: Result<(), Failure>) {
        self.board.post(Event::Ran { chip, task, outcome });
    }

    /// Lets time pass until a task has ended, a watched signal has changed, no event is left, the host has a request,
    /// or `deadline`.
    pub(super) fn run(&mut self, deadline: Instant) {
        // The end of a task that could not even begin is reported before any other event.
        if !self.board.events().is_empty() {
            return;
        }
        let mut turns = 0u64;
        loop {
            // The only error is a limit of the clock, and there is no limit.
            if !matches!(self.machine.turn(), Ok(true)) {
                if !self.waits_for_the_host() {
                    self.give_up();
                }
                break;
            }
            let ended = self.machine.take_ended();
            // Tasks of a chip's own graph do not count.
            if ended.into_iter().filter(|task| self.ended(*task)).count() > 0 {
                break;
            }
            if self.machine.take_news() {
                break;
            }
            turns += 1;
            if turns.is_multiple_of(LOOK_TURNS) {
                self.board.turns.fetch_add(LOOK_TURNS, Ordering::Relaxed);
                let late = || turns.is_multiple_of(LOOK_TURNS * CLOCK_LOOKS) && Instant::now() >= deadline;
                if self.board.attention.load(Ordering::Relaxed) || late() {
                    break;
                }
            }
        }
        self.board
            .turns
            .fetch_add(turns % LOOK_TURNS + 1, Ordering::Relaxed);
    }

    /// Processes the end of a task; returns whether it was a task of a chip, and not of a chip's own graph.
    fn ended(&mut self, task: TaskId) -> bool {
        let of = |chip: &Chip| chip.running.as_ref().is_some_and(|running| running.task == task);
        let Some(chip) = self.chips.iter().position(of) else {
            return false;
        };
        let result = self
            .machine
            .outcome(task)
            .map_or(Ok(()), |outcome| outcome.result);
        if let Some(running) = self.chips[chip].running.take() {
            let outcome = result.map_err(|error| match running.panicked.take() {
                Some(Panic { message, site }) => Failure::Panicked { message, site },
                None => Failure::Returned(error),
            });
            self.end(chip, running, outcome);
        }
        true
    }

    /// A task is over. If it failed, its domains are aborted before any other event (SMN-2).
    fn end(&mut self, chip: usize, running: Running, outcome: Result<(), Failure>) {
        if let Err(failure) = &outcome {
            let (device, kernel) = (self.chips[chip].rank, &running.kernel);
            let reason = format!("chip {device}, kernel `{kernel}` failed: {failure}");
            for domain in &running.domains {
                self.abort(*domain, &reason);
            }
        }
        self.ran(chip, running.id, outcome);
        self.begin(chip);
    }

    /// Whether the host may still notify a kernel that waits.
    fn waits_for_the_host(&self) -> bool {
        let running = self.chips.iter().filter_map(|chip| chip.running.as_ref());
        let mut domains = running.flat_map(|running| &running.domains);
        domains.any(|domain| self.attended.contains(domain))
    }

    /// No event is left: all running kernels wait for ever (SMN-3).
    fn give_up(&mut self) {
        let stuck = match self.machine.run() {
            Err(SimError::Deadlock { stuck, .. } | SimError::Failed { stuck, .. }) => stuck,
            _ => Vec::new(),
        };
        let waiting: Vec<(Device, Waited)> = stuck.iter().filter_map(waits).collect();
        // All of them end before any chip begins another task.
        let mut over = Vec::new();
        for (index, chip) in self.chips.iter_mut().enumerate() {
            if let Some(running) = chip.running.take() {
                over.push((index, chip.rank, running));
            }
        }
        for (chip, rank, running) in over {
            let mine = stuck.iter().find(|stuck| stuck.rank == rank);
            let error = match mine.map(|stuck| &stuck.on) {
                Some(StuckOn::Unknown(site)) => ErrorKind::Failed {
                    message: "the kernel stopped after this and awaits what is no instruction".into(),
                    site: site.clone().unwrap_or_else(Site::caller),
                },
                _ => ErrorKind::Deadlock {
                    waiting: waiting.clone(),
                },
            };
            self.end(chip, running, Err(Failure::Returned(error.into())));
        }
    }
}

/// The requests of the host.
impl SimThread {
    /// What a chip is doing, as text.
    pub(super) fn doing(&self, chip: usize) -> String {
        match &self.chips[chip].running {
            None => "idle".into(),
            Some(running) => format!("kernel `{}`", running.kernel),
        }
    }

    pub(super) fn simulated(&self) -> Simulated {
        Simulated {
            topology: self.topology.clone(),
            now_ps: self.machine.now_ps(),
            events: self.machine.events(),
            fingerprint: self.machine.fingerprint(),
            loads: self.machine.loads(),
        }
    }

    pub(super) fn timeline(&self) -> Option<Timeline> {
        self.traced.then(|| self.machine.timeline())
    }
}

fn waits(stuck: &Stuck) -> Option<(Device, Waited)> {
    match &stuck.on {
        StuckOn::Signal(waited) => Some((Device(stuck.rank), waited.clone())),
        StuckOn::Unknown(_) => None,
    }
}

/// The last part of a kernel's name, for messages.
pub(super) fn short_name(kernel: &KernelId) -> String {
    kernel.name.rsplit("::").next().unwrap_or(&kernel.name).to_owned()
}
