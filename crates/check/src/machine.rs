//! A machine without a clock: tasks come and go on it, each instruction is done as soon as it can be, and everything is
//! looked at by a [`Detector`].
//!
//! One core goes on until it must wait; then the one that has waited longest for its turn. What that schedule does stands
//! for all others where the signals keep the [conditions](crate::cells); where one does not, the detector says so.
//!
//! ```
//! use ringwork_check::{Detector, Machine, Who};
//! use ringwork_isa::{Compare, Core, Notify, Rank, Segment, Signals};
//! use std::{cell::RefCell, rc::Rc};
//!
//! let detector = Rc::new(RefCell::new(Detector::with_memory()));
//! detector.borrow_mut().define(Segment(1), "window \"tp\"", None, 8192);
//! let machine = Machine::new(detector.clone(), 1000);
//! for me in 0..2 {
//!     let row = Signals { segment: Segment(1), base: 0, stride: 4096, count: 1, me: Rank(me), ranks: 2 };
//!     let who = Who { chip: Some(me), name: "kernel `ping`".into(), task: 1 };
//!     let start = detector.borrow_mut().now(Detector::HOST);
//!     let agent = detector.borrow_mut().begin(who, &start);
//!     machine.spawn(me, agent, None, |core| Box::pin(async move {
//!         let mine = row.at(0)?;
//!         core.notify(mine.on(Rank(1 - me))?, Notify::Add(1)).await?;
//!         core.wait(mine, Compare::Ge, 1).await
//!     }));
//! }
//! while machine.turn() {}
//! assert_eq!(machine.take_ended().len(), 2);
//! ```
//!
//! # Invariants
//! - **CHM-1 (deterministic).** The same calls give the same schedule.
//! - **CHM-2 (no hang).** [`Machine::turn`] ends; it says so when nothing can happen any more, or the bound is reached.

use crate::detector::{AgentId, Detector};
use crate::run::Awaited;
use crate::task_fault::Unproved;
use ringwork_isa::stepped::{Answer, CoreId, Engine, Instruction, SteppedCore};
use ringwork_isa::{Device, ErrorKind, Rank, Result, Segment, Signal, Site, Waited};
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt;
use std::panic::Location;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

/// A task's kernel on the machine.
pub type TaskKernel = Pin<Box<dyn Future<Output = Result<()>>>>;

/// A task on the machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MachineTask(u32);

/// A kernel that cannot go on.
#[derive(Clone, Debug, PartialEq)]
pub struct Halted {
    /// Its chip.
    pub chip: u32,
    /// What it waits for; none if it awaits something that is not an instruction.
    pub waited: Option<Waited>,
    /// The line of its last instruction.
    pub site: Option<Site>,
}

type At = &'static Location<'static>;

#[derive(Clone, Debug)]
enum Alarm {
    Aborted(String),
    Died(Rank, String),
}

struct CoreState {
    chip: u32,
    agent: AgentId,
    /// Its instruction, if that could not be done yet.
    pending: Option<(Instruction, At)>,
    reply: Option<Result<Answer>>,
    /// The answer that it gets in its next turn.
    next_reply: Option<Result<Answer>>,
    last: Option<At>,
    parent: Option<u32>,
    children: u32,
}

#[derive(Default)]
struct State {
    cores: Vec<Option<CoreState>>,
    ready: VecDeque<u32>,
    /// Cores that repeat a failed test.
    polling: VecDeque<u32>,
    /// Polls since something else was done.
    idle_polls: u32,
    /// Cores that wait for a cell.
    blocked: BTreeMap<(Segment, u64), Vec<u32>>,
    alarms: BTreeMap<Segment, Alarm>,
    watched: BTreeSet<(Segment, u64)>,
    has_news: bool,
    ended: Vec<MachineTask>,
    outcomes: BTreeMap<u32, Result<()>>,
    /// Chips that die: before their instruction of this number, from 0.
    mortal: BTreeMap<u32, u64>,
    /// Instructions of mortal chips so far.
    lived: BTreeMap<u32, u64>,
    dead: BTreeSet<u32>,
    newly_dead: Vec<u32>,
    done: u64,
    bound: u64,
}

struct Inner {
    detector: Rc<RefCell<Detector>>,
    state: RefCell<State>,
    kernels: RefCell<Vec<Option<TaskKernel>>>,
}

/// A machine without time: it runs tasks one instruction at a time, under a detector.
#[derive(Clone)]
pub struct Machine {
    inner: Rc<Inner>,
}

impl fmt::Debug for Machine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Machine({} cores)", self.inner.state.borrow().cores.len())
    }
}

/// How often each core may repeat a failed test while nothing else happens.
const MOST_POLLS: u32 = 64;

impl Machine {
    /// A machine that does at most so many instructions.
    #[must_use]
    pub fn new(detector: Rc<RefCell<Detector>>, bound: u64) -> Machine {
        let state = State {
            bound,
            ..State::default()
        };
        let inner = Inner {
            detector,
            state: RefCell::new(state),
            kernels: RefCell::default(),
        };
        Machine {
            inner: Rc::new(inner),
        }
    }

    /// Lets a chip die before its instruction of this number, from 0: it does nothing from then on.
    pub fn let_die(&self, chip: u32, instruction: u64) {
        self.inner.state.borrow_mut().mortal.insert(chip, instruction);
        self.inner.detector.borrow_mut().not_proved(Unproved::Death);
    }

    /// Starts a kernel on a chip. If it is started for another task, that is polled when this one has ended.
    pub fn spawn(
        &self,
        chip: u32,
        agent: AgentId,
        parent: Option<MachineTask>,
        kernel: impl FnOnce(SteppedCore) -> TaskKernel,
    ) -> MachineTask {
        let mut state = self.inner.state.borrow_mut();
        let id = u32::try_from(state.cores.len()).unwrap_or(u32::MAX);
        if let Some(MachineTask(parent)) = parent
            && let Some(Some(parent)) = state.cores.get_mut(parent as usize)
        {
            parent.children += 1;
        }
        state.cores.push(Some(CoreState {
            chip,
            agent,
            pending: None,
            reply: None,
            next_reply: None,
            last: None,
            parent: parent.map(|MachineTask(parent)| parent),
            children: 0,
        }));
        state.ready.push_back(id);
        drop(state);
        let engine = Rc::clone(&self.inner) as Rc<dyn Engine>;
        let core = SteppedCore::new(engine, CoreId(id), Device(chip));
        let kernel = kernel(core.clone());
        let kernel: TaskKernel = Box::pin(async move {
            kernel.await?;
            core.check_all_awaited()
        });
        self.inner.kernels.borrow_mut().push(Some(kernel));
        MachineTask(id)
    }

    /// How a task ended, once it has.
    #[must_use]
    pub fn outcome(&self, MachineTask(task): MachineTask) -> Option<Result<()>> {
        self.inner.state.borrow().outcomes.get(&task).cloned()
    }

    /// Tasks that have ended since this was last asked.
    #[must_use]
    pub fn take_ended(&self) -> Vec<MachineTask> {
        std::mem::take(&mut self.inner.state.borrow_mut().ended)
    }

    /// Chips that have died since this was last asked.
    #[must_use]
    pub fn take_dead(&self) -> Vec<u32> {
        std::mem::take(&mut self.inner.state.borrow_mut().newly_dead)
    }

    /// Whether the bound was reached: then nothing happens any more.
    #[must_use]
    pub fn is_bounded(&self) -> bool {
        let state = self.inner.state.borrow();
        state.done >= state.bound
    }

    /// Lets one core go on; `false` if none can.
    #[must_use]
    pub fn turn(&self) -> bool {
        let mut state = self.inner.state.borrow_mut();
        let next = match state.ready.pop_front() {
            Some(core) => Some(core),
            None => state.next_poll(),
        };
        let Some(id) = next else { return false };
        let Some(core) = state.cores[id as usize].as_mut() else {
            return true;
        };
        core.reply = core.next_reply.take();
        let (chip, agent, pending) = (core.chip, core.agent, core.pending.take());
        if state.dead.contains(&chip) {
            return true;
        }
        drop(state);
        if let Some((instruction, at)) = pending {
            match self.inner.step(id, agent, &instruction, at) {
                Poll::Ready(reply) => self.inner.set_reply(id, reply),
                Poll::Pending => return true,
            }
        }
        let kernel = self.inner.kernels.borrow_mut()[id as usize].take();
        let Some(mut kernel) = kernel else { return true };
        match kernel.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Pending => self.inner.kernels.borrow_mut()[id as usize] = Some(kernel),
            Poll::Ready(result) => {
                drop(kernel);
                self.inner.state.borrow_mut().returned(id, result);
            }
        }
        true
    }

    /// Ends every wait for a signal of this segment, now and from now on.
    pub fn abort(&self, segment: Segment, reason: &str) {
        self.alarm(segment, Alarm::Aborted(reason.to_owned()));
    }

    /// Says that a member of a domain has died: every wait for one of its signals that is not satisfied ends.
    pub fn died(&self, segment: Segment, rank: Rank, cause: &str) {
        self.alarm(segment, Alarm::Died(rank, cause.to_owned()));
    }

    fn alarm(&self, segment: Segment, alarm: Alarm) {
        let state = &mut *self.inner.state.borrow_mut();
        state.alarms.entry(segment).or_insert(alarm);
        let cells = state.blocked.range((segment, 0)..=(segment, u64::MAX));
        let cells: Vec<_> = cells.map(|(cell, _)| *cell).collect();
        for cell in cells {
            state
                .ready
                .extend(state.blocked.remove(&cell).into_iter().flatten());
        }
    }

    /// Lets kernels wait for signals of this segment again.
    pub fn calm(&self, segment: Segment) {
        self.inner.state.borrow_mut().alarms.remove(&segment);
    }

    /// Watches these cells, and no others.
    pub fn watch(&self, cells: &[(Segment, u64)]) {
        self.inner.state.borrow_mut().watched = cells.iter().copied().collect();
    }

    /// Whether a watched cell was changed since this was last asked.
    #[must_use]
    pub fn take_news(&self) -> bool {
        std::mem::take(&mut self.inner.state.borrow_mut().has_news)
    }

    /// The host does an instruction: it never has to wait.
    ///
    /// # Errors
    /// What every core checks.
    pub fn by_host(&self, agent: AgentId, instruction: &Instruction) -> Result<Answer> {
        let answer = self.inner.detector.borrow_mut().perform(agent, instruction, None);
        self.inner.state.borrow_mut().changed(instruction);
        answer
    }

    /// Ends every kernel, and says what those were waiting for that had not ended.
    pub fn give_up(&self) -> Vec<Halted> {
        let mut state = self.inner.state.borrow_mut();
        let detector = self.inner.detector.borrow();
        let halted = state.cores.iter().flatten().filter(|core| core.children == 0);
        let halted = halted.map(|core| Halted {
            chip: core.chip,
            waited: core.pending.as_ref().and_then(|(instruction, at)| {
                let awaited = detector.awaited(instruction)?;
                Some(waited(&detector, &awaited, at))
            }),
            site: core.last.map(Site::from),
        });
        let halted = halted.collect();
        drop(detector);
        for core in &mut state.cores {
            *core = None;
        }
        state.ready.clear();
        state.polling.clear();
        state.blocked.clear();
        drop(state);
        let kernels: Vec<_> = self
            .inner
            .kernels
            .borrow_mut()
            .iter_mut()
            .map(Option::take)
            .collect();
        drop(kernels);
        halted
    }

    /// Ends a task, whatever it was doing.
    pub fn drop_task(&self, MachineTask(task): MachineTask) {
        let core = self.inner.state.borrow_mut().cores[task as usize].take();
        let kernel = self.inner.kernels.borrow_mut()[task as usize].take();
        drop((core, kernel));
    }
}

fn waited(detector: &Detector, awaited: &Awaited, at: At) -> Waited {
    let value = detector.value(&awaited.signal);
    Waited::new(&awaited.signal, value, (awaited.compare, awaited.operand), at)
}

impl State {
    /// A core that repeats a test, if that may still change anything.
    fn next_poll(&mut self) -> Option<u32> {
        let most = MOST_POLLS.saturating_mul(u32::try_from(self.polling.len()).unwrap_or(u32::MAX));
        if self.idle_polls >= most {
            return None;
        }
        self.idle_polls += 1;
        self.polling.pop_front()
    }

    /// An instruction was done: who waited for that may go on.
    fn changed(&mut self, instruction: &Instruction) {
        let (Instruction::Notify { signal, .. }
        | Instruction::Put { full: signal, .. }
        | Instruction::PutPacket { flag: signal, .. }) = instruction
        else {
            return;
        };
        self.idle_polls = 0;
        let cell = Detector::place_of(signal);
        self.ready
            .extend(self.blocked.remove(&cell).into_iter().flatten());
        self.has_news |= self.watched.contains(&cell);
    }

    fn returned(&mut self, id: u32, result: Result<()>) {
        let Some(core) = self.cores[id as usize].take() else {
            return;
        };
        self.outcomes.insert(id, result);
        self.ended.push(MachineTask(id));
        self.idle_polls = 0;
        if let Some(parent) = core.parent
            && let Some(waiting) = self.cores[parent as usize].as_mut()
        {
            waiting.children -= 1;
            self.ready.push_back(parent);
        }
    }

    /// Whether a chip lives to do one more instruction.
    fn lives(&mut self, chip: u32) -> bool {
        if self.dead.contains(&chip) {
            return false;
        }
        let Some(last) = self.mortal.get(&chip) else {
            return true;
        };
        let lived = self.lived.entry(chip).or_default();
        if *lived < *last {
            *lived += 1;
            return true;
        }
        self.dead.insert(chip);
        self.newly_dead.push(chip);
        false
    }
}

impl Inner {
    /// Does an instruction if that is possible now. If not, the core is where it will be found when it is.
    fn step(&self, id: u32, agent: AgentId, instruction: &Instruction, at: At) -> Poll<Result<Answer>> {
        let awaited = self.detector.borrow().awaited(instruction);
        let mut state = self.state.borrow_mut();
        let chip = state.cores[id as usize].as_ref().map_or(0, |core| core.chip);
        if let Some(awaited) = awaited {
            let mut detector = self.detector.borrow_mut();
            if !detector.is_there(chip, &awaited.cell) {
                drop(state);
                return Poll::Ready(detector.perform(agent, instruction, Some(at)));
            }
            if let Some(alarm) = state.alarms.get(&awaited.cell.segment()) {
                let waited = waited(&detector, &awaited, at);
                let error = match alarm.clone() {
                    Alarm::Aborted(reason) => ErrorKind::Aborted { reason, waited },
                    Alarm::Died(rank, cause) => ErrorKind::PeerDied { rank, cause, waited },
                };
                return Poll::Ready(Err(error.into()));
            }
            let cell = Detector::place_of(&awaited.cell);
            state.blocked.entry(cell).or_default().push(id);
            state.keep(id, instruction, at);
            return Poll::Pending;
        }
        if state.done >= state.bound {
            let instructions = state.bound;
            drop(state);
            self.detector
                .borrow_mut()
                .not_proved(Unproved::Bound { instructions });
            return Poll::Pending;
        }
        state.done += 1;
        drop(state);
        let answer = self.detector.borrow_mut().perform(agent, instruction, Some(at));
        self.state.borrow_mut().changed(instruction);
        Poll::Ready(answer)
    }

    fn set_reply(&self, id: u32, reply: Result<Answer>) {
        if let Some(core) = self.state.borrow_mut().cores[id as usize].as_mut() {
            core.reply = Some(reply);
        }
    }
}

impl State {
    fn keep(&mut self, id: u32, instruction: &Instruction, at: At) {
        if let Some(core) = self.cores[id as usize].as_mut() {
            core.pending = Some((instruction.clone(), at));
        }
    }
}

impl Engine for Inner {
    fn issue(&self, CoreId(id): CoreId, instruction: Instruction, at: At) -> Poll<Result<Answer>> {
        let agent = {
            let mut state = self.state.borrow_mut();
            let Some(core) = state.cores[id as usize].as_mut() else {
                return Poll::Pending;
            };
            core.last = Some(at);
            let (agent, chip) = (core.agent, core.chip);
            if !state.lives(chip) {
                return Poll::Pending;
            }
            agent
        };
        match self.step(id, agent, &instruction, at) {
            // Whoever repeats a test lets the others go on.
            Poll::Ready(reply @ Ok(Answer::Tested(false) | Answer::Value(_)))
                if !matches!(instruction, Instruction::OwnValue { .. }) =>
            {
                let mut state = self.state.borrow_mut();
                if let Some(core) = state.cores[id as usize].as_mut() {
                    core.next_reply = Some(reply);
                }
                state.polling.push_back(id);
                Poll::Pending
            }
            done => done,
        }
    }

    fn answer(&self, CoreId(id): CoreId) -> Poll<Result<Answer>> {
        let mut state = self.state.borrow_mut();
        match state.cores[id as usize]
            .as_mut()
            .and_then(|core| core.reply.take())
        {
            Some(reply) => Poll::Ready(reply),
            None => Poll::Pending,
        }
    }
}

/// Where a signal lies, as [`Machine::watch`] wants it.
#[must_use]
pub fn cell_of(signal: &Signal) -> (Segment, u64) {
    Detector::place_of(signal)
}
