//! The thread of a machine that is stepped: it owns the machine, its memory, and a queue of tasks for each chip.

use super::machine::{SteppedMachine, Stuck, StuckOn};
use super::order::GraphOrder;
use super::panics::{Guarded, Panic};
use super::{Board, graph};
use crate::backend::{Event, Failure, Layout, Members, Order, SegmentPlan};
use crate::chip::is_orchestration;
use crate::platform::Simulated;
use ringwork_check::{AgentId, Checked, TaskFault};
use ringwork_isa::{
    Arg, Compare, Device, Error, ErrorKind, KernelId, Rank, Segment, Signal, Site, Task, Waited,
};
use ringwork_registry as registry;
use ringwork_timeline::Timeline;
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

/// Steps between two checks for commands of the host.
const LOOK_TURNS: u64 = 64;
/// Checks for commands between two readings of the clock.
const CLOCK_LOOKS: u64 = 16;

/// A task that runs.
struct Running<T> {
    id: u64,
    kernel: KernelId,
    task: T,
    agent: Option<AgentId>,
    domains: Vec<Segment>,
    panicked: Rc<RefCell<Option<Panic>>>,
}

struct Chip<T> {
    rank: u32,
    /// The segment for the intermediates of this chip's own graphs, of one graph at a time (SMN-1).
    scratch: Segment,
    waiting: VecDeque<(u64, Task)>,
    running: Option<Running<T>>,
    /// How it died.
    death: Option<String>,
}

/// Why a domain was aborted.
#[derive(Clone, Debug)]
struct Alarm {
    dead: Option<Rank>,
    reason: String,
}

pub(in crate::backend) struct SteppedThread<M: SteppedMachine> {
    machine: M,
    chips: Vec<Chip<M::Task>>,
    segments: BTreeMap<Segment, (Layout, Members)>,
    /// Domains that were aborted.
    alarms: BTreeMap<Segment, Alarm>,
    /// Domains that the host notifies.
    attended: BTreeSet<Segment>,
    /// The facts for the race detector.
    order: Option<GraphOrder>,
    /// Chips that have died and were not reported yet.
    untold: Vec<usize>,
    /// Whether deaths are reported at once, and not only when nothing else can happen.
    tells_at_once: bool,
    board: Arc<Board>,
}

/// Access of the host to memory.
impl<M: SteppedMachine> SteppedThread<M> {
    pub(super) fn new(
        machine: M,
        order: Option<GraphOrder>,
        tells_at_once: bool,
        (ranks, own): (Vec<u32>, Segment),
        board: Arc<Board>,
    ) -> SteppedThread<M> {
        let chip = |(own, rank)| Chip {
            rank,
            scratch: Segment(own),
            waiting: VecDeque::new(),
            running: None,
            death: None,
        };
        SteppedThread {
            machine,
            chips: (own.0..).zip(ranks).map(chip).collect(),
            segments: BTreeMap::new(),
            alarms: BTreeMap::new(),
            attended: BTreeSet::new(),
            order,
            untold: Vec::new(),
            tells_at_once,
            board,
        }
    }

    pub(super) fn create(&mut self, plan: &SegmentPlan) -> crate::Result<()> {
        let chips = plan.members.chips.iter();
        self.machine
            .define(plan, chips.map(|chip| self.chips[*chip].rank).collect())?;
        self.segments
            .insert(plan.layout.segment, (plan.layout, plan.members.clone()));
        Ok(())
    }

    fn host(&self) -> Option<AgentId> {
        self.order.as_ref().map(GraphOrder::host)
    }

    /// Records a fact that orders tasks.
    pub(super) fn hear(&mut self, order: Order) {
        if let Some(ordered) = &mut self.order {
            ordered.hear(order);
        }
    }

    pub(super) fn take_faults(&self) -> Vec<TaskFault> {
        self.order
            .as_ref()
            .map(GraphOrder::take_faults)
            .unwrap_or_default()
    }

    pub(super) fn checked(&self) -> Option<Checked> {
        self.order.as_ref().map(GraphOrder::checked)
    }

    pub(super) fn release(&mut self, segment: Segment) {
        self.machine.release(segment);
        self.machine.calm(segment);
        self.segments.remove(&segment);
        self.alarms.remove(&segment);
        self.attended.remove(&segment);
    }

    /// Where bytes of a rank's data are; `None` if they are not all there.
    fn place(&self, segment: Segment, rank: Rank, offset: u64, len: usize) -> Option<u64> {
        let (layout, _) = self.segments.get(&segment)?;
        layout.data_at(rank, offset, len as u64)
    }

    pub(super) fn write(&mut self, segment: Segment, rank: Rank, offset: u64, bytes: &[u8]) -> bool {
        let at = self.place(segment, rank, offset, bytes.len());
        at.is_some_and(|at| self.machine.write(self.host(), segment, at, bytes))
    }

    pub(super) fn read(&self, segment: Segment, rank: Rank, offset: u64, len: usize) -> Option<Vec<u8>> {
        let at = self.place(segment, rank, offset, len)?;
        self.machine.read(self.host(), segment, at, len)
    }

    pub(super) fn peek(&self, signal: &Signal) -> Option<i32> {
        self.machine.value(signal)
    }

    pub(super) fn holds(&self, signal: &Signal, condition: (Compare, i32), waits: bool) -> Option<bool> {
        self.machine.holds(self.host(), signal, condition, waits)
    }

    pub(super) fn notify(&mut self, signal: &Signal, value: i32) -> bool {
        self.machine.notify(self.host(), signal, value)
    }

    /// Makes the machine stop whenever one of these changes (SMN-4).
    pub(super) fn watch(&mut self, signals: &[Signal]) {
        let place = |signal: &Signal| Some((signal.segment(), signal.offset()?));
        let places: Vec<_> = signals.iter().filter_map(place).collect();
        self.machine.watch(&places);
    }

    /// Completes the transfers in flight although no task runs. Returns whether a watched signal changed.
    pub(super) fn settle(&mut self) -> bool {
        while self.machine.turn() == Ok(true) {
            if self.machine.take_news() {
                return true;
            }
        }
        false
    }

    pub(super) fn attend(&mut self, segment: Segment, attended: bool) {
        if attended {
            self.attended.insert(segment);
        } else {
            self.attended.remove(&segment);
        }
    }

    pub(super) fn abort(&mut self, segment: Segment, reason: &str) {
        let alarm = || Alarm {
            dead: None,
            reason: format!("aborted because {reason}"),
        };
        self.alarms.entry(segment).or_insert_with(alarm);
        self.machine.abort(segment, reason);
    }

    /// Sets the signals of a domain to zero and clears its alarm.
    pub(super) fn reset(&mut self, segment: Segment) {
        let Some((layout, _)) = self.segments.get(&segment) else {
            return;
        };
        self.alarms.remove(&segment);
        self.machine.calm(segment);
        self.machine.reset(layout);
    }
}

/// Tasks.
impl<M: SteppedMachine> SteppedThread<M> {
    pub(super) fn submit(&mut self, chip: usize, id: u64, task: Task) {
        self.chips[chip].waiting.push_back((id, task));
        self.begin(chip);
    }

    /// Starts the next task of a chip that is idle (SMN-1).
    fn begin(&mut self, chip: usize) {
        while self.chips[chip].running.is_none() {
            let Some((id, task)) = self.chips[chip].waiting.pop_front() else {
                return;
            };
            match self.start(chip, id, task) {
                Ok(running) => self.chips[chip].running = Some(running),
                Err(failure) => self.ran(chip, id, Err(failure)),
            }
        }
    }

    fn start(&mut self, chip: usize, id: u64, task: Task) -> Result<Running<M::Task>, Failure> {
        let (rank, scratch) = (self.chips[chip].rank, self.chips[chip].scratch);
        let Task { kernel, args, .. } = task;
        let is_domain = |segment: &Segment| {
            self.segments
                .get(segment)
                .is_some_and(|(layout, _)| layout.ranks > 0)
        };
        let domains: Vec<Segment> = args.iter().filter_map(Arg::segment).filter(is_domain).collect();
        if let Some(alarm) = domains.iter().find_map(|domain| self.alarms.get(domain)) {
            let Alarm { dead, reason: why } = alarm.clone();
            return Err(Failure::NotBegun { dead, why });
        }
        let entry = registry::find(&kernel).map_err(Failure::Unknown)?;
        let panicked = Rc::new(RefCell::new(None));
        let (heard, own) = (panicked.clone(), Rc::new(Cell::new(None)));
        let label = short_name(&kernel);
        let order = self.order.as_mut();
        let agent = order.map(|order| order.begin_part(id, rank, &label));
        let watched = self.order.as_ref().zip(agent);
        let watched = watched.map(|(order, agent)| order.watch_graph(id, agent, rank));
        let (machine, id_of_kernel, known) = (self.machine.clone(), kernel.clone(), own.clone());
        let name = Rc::from(label.as_str());
        let starts = Box::new(move |core| {
            let kernel = if is_orchestration(&id_of_kernel) {
                graph::run(machine, (id_of_kernel, args), (rank, scratch), known, watched)
            } else {
                (entry.step)(core, args)
            };
            Guarded {
                kernel,
                name,
                panicked: heard,
            }
        });
        let spawned = self.machine.spawn(rank, label, agent, starts);
        let task = spawned.map_err(|error| Failure::Returned(Error::failed(error)))?;
        own.set(Some(task));
        Ok(Running {
            id,
            kernel,
            task,
            agent,
            domains,
            panicked,
        })
    }

    fn ran(&self, chip: usize, task: u64, outcome: Result<(), Failure>) {
        self.board.post(Event::Ran { chip, task, outcome });
    }

    /// Lets time pass until a task has ended, a watched signal has changed, nothing can happen any more, the host wants something, or
    /// `deadline`.
    pub(super) fn run(&mut self, deadline: Instant) {
        // The error of a task that could not begin is processed before anything else happens.
        if !self.board.events().is_empty() {
            return;
        }
        let mut turns = 0u64;
        loop {
            let moved = match self.machine.turn() {
                Ok(moved) => moved,
                Err(why) => {
                    *self.board.over() = Some(why);
                    break;
                }
            };
            self.note_deaths();
            let tells = !self.untold.is_empty() && (self.tells_at_once || !moved);
            if tells {
                self.tell_deaths();
                break;
            }
            if !moved {
                if !self.waits_for_the_host() {
                    self.give_up();
                }
                break;
            }
            let ended = self.machine.take_ended();
            // Tasks of a chip's own graph are not reported to the host.
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

    /// Processes the end of a task. Returns whether the host submitted it, and not a chip's own graph.
    fn ended(&mut self, task: M::Task) -> bool {
        let of = |chip: &Chip<M::Task>| chip.running.as_ref().is_some_and(|running| running.task == task);
        let Some(chip) = self.chips.iter().position(of) else {
            return false;
        };
        let result = self.machine.outcome(task).unwrap_or(Ok(()));
        if let Some(running) = self.chips[chip].running.take() {
            let outcome = result.map_err(|error| match running.panicked.take() {
                Some(Panic { message, site }) => Failure::Panicked { message, site },
                None => Failure::Returned(error),
            });
            self.end(chip, running, outcome);
        }
        true
    }

    /// Processes the outcome of a task. If it failed, its domains are aborted before anything else happens (SMN-2).
    fn end(&mut self, chip: usize, running: Running<M::Task>, outcome: Result<(), Failure>) {
        self.end_part(&running, outcome.is_ok());
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

    fn end_part(&mut self, running: &Running<M::Task>, is_well: bool) {
        if let (Some(order), Some(agent)) = (&mut self.order, running.agent) {
            order.end_part(running.id, agent, is_well);
        }
    }

    /// Drops the tasks of chips that have died.
    fn note_deaths(&mut self) {
        for rank in self.machine.take_dead() {
            let Some(chip) = self.chips.iter().position(|chip| chip.rank == rank) else {
                continue;
            };
            let doing = self.doing(chip);
            self.chips[chip].waiting.clear();
            if let Some(running) = self.chips[chip].running.take() {
                self.machine.drop_task(running.task);
                self.end_part(&running, false);
            }
            self.chips[chip].death = Some(format!("it was made to die in {doing}"));
            self.untold.push(chip);
        }
    }

    /// Reports dead chips to the host and to the members of their domains.
    fn tell_deaths(&mut self) {
        for chip in std::mem::take(&mut self.untold) {
            let cause = self.chips[chip].death.clone().unwrap_or_default();
            for (segment, (layout, members)) in &self.segments {
                let Some(rank) = members.rank_of(chip).filter(|_| layout.ranks > 0) else {
                    continue;
                };
                let alarm = || Alarm {
                    dead: Some(rank),
                    reason: format!("rank {rank} died ({cause})"),
                };
                self.alarms.entry(*segment).or_insert_with(alarm);
                self.machine.died(*segment, rank, &cause);
            }
            self.board.post(Event::Ended { chip, cause });
        }
    }

    /// Whether the host may still notify a signal that a kernel waits for.
    fn waits_for_the_host(&self) -> bool {
        let running = self.chips.iter().filter_map(|chip| chip.running.as_ref());
        let mut domains = running.flat_map(|running| &running.domains);
        domains.any(|domain| self.attended.contains(domain))
    }

    /// Nothing can happen any more: whatever still runs waits for ever (SMN-3).
    fn give_up(&mut self) {
        let stuck = self.machine.give_up();
        let waiting: Vec<(Device, Waited)> = stuck.iter().filter_map(waits).collect();
        // All of these end before any chip starts another task.
        let mut over = Vec::new();
        for (index, chip) in self.chips.iter_mut().enumerate() {
            if let Some(running) = chip.running.take() {
                over.push((index, chip.rank, running));
            }
        }
        for (chip, rank, running) in over {
            let mine = stuck.iter().find(|stuck| stuck.rank == rank);
            let error = match mine.map(|stuck| &stuck.on) {
                Some(StuckOn::Stopped(why)) => ErrorKind::Failed {
                    message: why.clone(),
                    site: Site::caller(),
                },
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

/// The queries.
impl<M: SteppedMachine> SteppedThread<M> {
    /// What a chip is doing, in words.
    pub(super) fn doing(&self, chip: usize) -> String {
        match &self.chips[chip].running {
            None => "idle".into(),
            Some(running) => format!("kernel `{}`", running.kernel),
        }
    }

    pub(super) fn simulated(&self) -> Option<Simulated> {
        self.machine.simulated()
    }

    pub(super) fn timeline(&self) -> Option<Timeline> {
        self.machine.timeline()
    }
}

fn waits(stuck: &Stuck) -> Option<(Device, Waited)> {
    match &stuck.on {
        StuckOn::Signal(waited) => Some((Device(stuck.rank), waited.clone())),
        StuckOn::Unknown(_) | StuckOn::Stopped(_) => None,
    }
}

/// The last part of a kernel's name: what a person calls it.
pub(in crate::backend) fn short_name(kernel: &KernelId) -> String {
    kernel.name.rsplit("::").next().unwrap_or(&kernel.name).to_owned()
}
