//! Finds races of tasks while they run, whoever decides what happens when.
//!
//! A platform says who begins, what each does, and what orders them beside signals: the edges of a task graph, a
//! submission, a host that waits. What it does not say is not ordered. So a race is found also if the platform happened to
//! do the two accesses one long after the other.
//!
//! ```
//! use ringwork_check::{Detector, TaskFault, Who};
//! use ringwork_isa::stepped::Instruction;
//! use ringwork_isa::{Dtype, Rank, Segment, Span};
//! use std::panic::Location;
//!
//! let mut detector = Detector::new();
//! let who = |chip, task| Who { chip: Some(chip), name: "kernel `fill`".into(), task };
//! let place = Span {
//!     segment: Segment(1), base: 0, stride: 64, me: Rank(0), rank: Rank(1), ranks: 2,
//!     dtype: Dtype::I32, start: 0, len: 4,
//! };
//! let here = Location::caller();
//! let start = detector.now(Detector::HOST);
//! // Two tasks, of which neither comes after the other.
//! for task in 1..3 {
//!     let agent = detector.begin(who(0, task), &start);
//!     let store = Instruction::Store { dst: place, data: Default::default() };
//!     detector.perform(agent, &store, Some(here)).unwrap();
//! }
//! assert!(matches!(&detector.take_faults()[..], [TaskFault::Race(_)]));
//! ```

use crate::cells::Broken;
use crate::clock::Clock;
use crate::fault::Misuse;
use crate::memory::Contents;
use crate::run::{Awaited, Run, place};
use crate::shadow::Access;
use crate::task_fault::{Checked, TaskFault, TaskRace, TaskSide, Unproved, Who};
use crate::tree::NodeId;
use crate::words::{Finding, name};
use ringwork_isa::stepped::{Answer, Instruction};
use ringwork_isa::{Compare, Result, Segment, Signal, Site, Span, Ticket};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::panic::Location;

/// The number of an agent, which does instructions one after the other. Numbers of agents that have ended are used again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AgentId(u32);

/// What an agent knows at some moment: what happened before it.
#[derive(Clone, Debug, Default)]
pub struct Moment(Clock);

impl Moment {
    /// The events known at either of two moments.
    pub fn join(&mut self, other: &Moment) {
        self.0.join(&other.0);
    }
}

/// An instruction of an agent, for reports.
#[derive(Clone, Copy, Debug)]
struct Place {
    instruction: &'static str,
    at: Option<&'static Location<'static>>,
    /// Which of `whos`.
    who: u32,
}

/// One agent's life.
#[derive(Clone, Debug, Default)]
struct Life {
    who: u32,
    chip: Option<u32>,
    /// The places of its events, the first of which is event number `before + 1`.
    events: Vec<NodeId>,
    before: u32,
    alive: bool,
    /// Tickets of another engine, and the ones here.
    tickets: BTreeMap<u64, Ticket>,
}

/// A detector of races, misuse and deadlocks in what kernels do.
#[derive(Debug)]
pub struct Detector {
    run: Run,
    lives: BTreeMap<u32, Life>,
    /// Agents that can be used again.
    free: Vec<u32>,
    whos: Vec<Who>,
    places: Vec<Place>,
    known_places: BTreeMap<(u32, usize, &'static str), NodeId>,
    segments: BTreeMap<Segment, String>,
    /// Whether memory is kept here.
    keeps_memory: bool,
    faults: Vec<TaskFault>,
    /// How many of them were taken.
    taken: usize,
    unproved: Vec<Unproved>,
    broken: BTreeSet<crate::cells::Place>,
    tasks: u64,
    instructions: u64,
}

impl Default for Detector {
    fn default() -> Detector {
        Detector::new()
    }
}

/// The most reports that are kept.
const MOST_FAULTS: usize = 100;

impl Detector {
    /// The host: an agent that is always there.
    pub const HOST: AgentId = AgentId(0);

    /// With a host and nobody else. Memory is kept elsewhere: what is loaded is hollow.
    #[must_use]
    pub fn new() -> Detector {
        let mut detector = Detector {
            run: Run::open(),
            lives: BTreeMap::new(),
            free: Vec::new(),
            whos: Vec::new(),
            places: Vec::new(),
            known_places: BTreeMap::new(),
            segments: BTreeMap::new(),
            keeps_memory: false,
            faults: Vec::new(),
            taken: 0,
            unproved: Vec::new(),
            broken: BTreeSet::new(),
            tasks: 0,
            instructions: 0,
        };
        let host = detector.agent();
        detector.live(host, Who::host(), Clock::default());
        detector
    }

    /// As [`new`](Detector::new), with memory: instructions do what they say.
    #[must_use]
    pub fn with_memory() -> Detector {
        Detector {
            keeps_memory: true,
            ..Detector::new()
        }
    }

    fn agent(&mut self) -> u32 {
        self.free.pop().unwrap_or_else(|| self.run.add_agent())
    }

    fn live(&mut self, agent: u32, who: Who, mut knows: Clock) {
        let before = self.run.knows(agent).get(agent);
        knows.set(agent, before);
        *self.run.knows(agent) = knows;
        let chip = who.chip;
        self.whos.push(who);
        let who = u32::try_from(self.whos.len() - 1).unwrap_or(u32::MAX);
        let life = Life {
            who,
            chip,
            events: Vec::new(),
            before,
            alive: true,
            tickets: BTreeMap::new(),
        };
        self.lives.insert(agent, life);
    }

    /// A new agent, which knows what was known then.
    pub fn begin(&mut self, who: Who, after: &Moment) -> AgentId {
        self.tasks += 1;
        let agent = self.agent();
        self.live(agent, who, after.0.clone());
        AgentId(agent)
    }

    /// An agent has ended; what it knew. If it ended well, what it left behind is looked at.
    pub fn end(&mut self, AgentId(agent): AgentId, is_well: bool) -> Moment {
        if let (Some(left), true) = (self.run.end_transfers(agent), is_well) {
            let sides = vec![self.side_at(left, true)];
            self.found(TaskFault::Misuse {
                what: Misuse::NeverJoined,
                sides,
                signal: None,
            });
        }
        if let Some(life) = self.lives.get_mut(&agent) {
            life.alive = false;
        }
        Moment(self.run.knows(agent).clone())
    }

    /// What an agent knows now.
    #[must_use]
    pub fn now(&mut self, AgentId(agent): AgentId) -> Moment {
        Moment(self.run.knows(agent).clone())
    }

    /// An agent learns of what happened before a moment: it waited for that.
    pub fn learn(&mut self, AgentId(agent): AgentId, of: &Moment) {
        self.run.knows(agent).join(&of.0);
    }

    /// The events that an agent knows once it has seen a signal compare so.
    #[must_use]
    pub fn released_by(&self, signal: &Signal, compare: Compare, operand: i32) -> Moment {
        let clock = self.run.released_by(signal, compare, operand);
        clock.map(|clock| Moment(clock.clone())).unwrap_or_default()
    }

    /// Nobody is there but the host, which has waited for all: whatever comes is ordered after what was done, so that no
    /// record of it is needed.
    pub fn settle(&mut self) {
        if self
            .lives
            .iter()
            .any(|(agent, life)| life.alive && *agent != Self::HOST.0)
        {
            return;
        }
        self.run.settle();
        self.places.clear();
        self.known_places.clear();
        self.whos.truncate(1);
        let ended: Vec<u32> = self
            .lives
            .keys()
            .copied()
            .filter(|agent| *agent != Self::HOST.0)
            .collect();
        for agent in ended {
            self.lives.remove(&agent);
            let time = self.run.knows(agent).get(agent);
            self.run.knows(Self::HOST.0).set(agent, time);
            self.free.push(agent);
        }
        let now = self.run.knows(Self::HOST.0).get(Self::HOST.0);
        if let Some(host) = self.lives.get_mut(&Self::HOST.0) {
            host.events.clear();
            host.before = now;
        }
    }
}

/// Memory.
impl Detector {
    /// A segment, called so in reports; zeroed, if memory is kept. Only `owner` may touch it, if there is one.
    pub fn define(&mut self, segment: Segment, what: impl Into<String>, owner: Option<u32>, bytes: u64) {
        if self.keeps_memory {
            self.run.memory.define(segment, owner, bytes, Contents::Bytes);
        }
        self.segments.insert(segment, what.into());
    }

    /// Takes a segment away.
    pub fn release(&mut self, segment: Segment) {
        self.run.memory.release(segment);
        self.run.forget_signals(segment);
        self.run.forget_bytes(segment, &(0..u64::MAX));
        self.segments.remove(&segment);
    }

    /// Makes the signals of a segment zero.
    pub fn reset_signals(&mut self, segment: Segment) {
        self.run.forget_signals(segment);
    }

    /// These bytes are handed out anew: whoever gets them comes after those who had them.
    pub fn hand_out(&mut self, segment: Segment, bytes: &Range<u64>) {
        self.run.forget_bytes(segment, bytes);
    }

    /// Whether a chip can reach a signal.
    #[must_use]
    pub fn is_there(&self, chip: u32, signal: &Signal) -> bool {
        self.run.is_there(chip, signal)
    }

    /// A signal's value.
    #[must_use]
    pub fn value(&self, signal: &Signal) -> i32 {
        self.run.value(signal)
    }
}

/// Instructions.
impl Detector {
    pub(crate) fn awaited(&self, instruction: &Instruction) -> Option<Awaited> {
        self.run.awaited(instruction)
    }

    /// An agent does an instruction that has to wait for nothing.
    ///
    /// # Errors
    /// If memory is kept: what every core checks before it does anything.
    pub fn perform(
        &mut self,
        AgentId(agent): AgentId,
        instruction: &Instruction,
        at: Option<&'static Location<'static>>,
    ) -> Result<Answer> {
        self.instructions += 1;
        let node = self.place(agent, instruction, at);
        let Some(life) = self.lives.get_mut(&agent) else {
            return Ok(Answer::Done);
        };
        life.events.push(node);
        let chip = life.chip.filter(|_| self.keeps_memory);
        let at = at.unwrap_or_else(Location::caller);
        let answer = self.run.perform(agent, chip, node, instruction, at);
        if answer.is_err() {
            // It did not happen, so it has no number.
            life.events.pop();
        }
        if !self.run.findings.is_empty() {
            self.take_findings();
        }
        if let Some((place, broken)) = self.run.broken.take()
            && self.broken.insert(place)
            && let Some(signal) = self.run.signal_at(&place)
        {
            let signal = self.describe(&signal);
            self.unproved.push(Unproved::Order { signal, broken });
        }
        answer
    }

    /// As [`perform`](Detector::perform), where another engine has done the instruction and given this answer.
    pub fn note(
        &mut self,
        agent: AgentId,
        instruction: &Instruction,
        at: &'static Location<'static>,
        answer: &Answer,
    ) {
        // It was satisfied by a value that another one has replaced since.
        if let Some(awaited) = self.run.awaited(instruction) {
            let signal = self.describe(&awaited.signal);
            let broken = Broken::GoesBack;
            return self.not_proved(Unproved::Order { signal, broken });
        }
        let tickets = self.lives.get_mut(&agent.0).map(|life| &mut life.tickets);
        let joined = match (instruction, tickets) {
            (Instruction::Join(theirs), Some(tickets)) => tickets.remove(&theirs.0).map(Instruction::Join),
            _ => None,
        };
        let done = self.perform(agent, joined.as_ref().unwrap_or(instruction), Some(at));
        if let (
            Ok(Answer::Ticket(ours) | Answer::Taken(ours, _)),
            Answer::Ticket(theirs) | Answer::Taken(theirs, _),
        ) = (done, answer)
            && let Some(life) = self.lives.get_mut(&agent.0)
        {
            life.tickets.insert(theirs.0, ours);
        }
    }

    fn place(
        &mut self,
        agent: u32,
        instruction: &Instruction,
        at: Option<&'static Location<'static>>,
    ) -> NodeId {
        let who = self.lives.get(&agent).map_or(0, |life| life.who);
        let instruction = match (name(instruction), at) {
            ("load", None) => "read",
            ("store", None) => "write",
            (name, _) => name,
        };
        let line = at.map_or(0, |at| std::ptr::from_ref(at) as usize);
        let places = &mut self.places;
        *self
            .known_places
            .entry((who, line, instruction))
            .or_insert_with(|| {
                places.push(Place { instruction, at, who });
                NodeId(u32::try_from(places.len() - 1).unwrap_or(u32::MAX))
            })
    }
}

/// Reports.
impl Detector {
    /// An order of more than one schedule was not looked at, or not all of it.
    pub fn not_proved(&mut self, why: Unproved) {
        if !self.unproved.contains(&why) {
            self.unproved.push(why);
        }
    }

    /// Faults that were found since this was last asked.
    pub fn take_faults(&mut self) -> Vec<TaskFault> {
        let new = self.faults[self.taken..].to_vec();
        self.taken = self.faults.len();
        new
    }

    /// The faults found so far.
    #[must_use]
    pub fn checked(&self) -> Checked {
        Checked {
            tasks: self.tasks,
            instructions: self.instructions,
            faults: self.faults.clone(),
            unproved: self.unproved.clone(),
            ..Checked::default()
        }
    }

    fn found(&mut self, fault: TaskFault) {
        for known in &mut self.faults {
            match (known, &fault) {
                (TaskFault::Race(known), TaskFault::Race(new)) if known.is_same(new) => {
                    let count = known.count + 1;
                    // A read that comes too early is easier to understand than a write over what is still read.
                    if new.first.writes && !known.first.writes {
                        **known = (**new).clone();
                    }
                    known.count = count;
                    return;
                }
                (known, new) if *known == *new => return,
                _ => {}
            }
        }
        if self.faults.len() < MOST_FAULTS {
            self.faults.push(fault);
        }
    }

    fn take_findings(&mut self) {
        for finding in std::mem::take(&mut self.run.findings) {
            match finding {
                Finding::Race {
                    first,
                    second,
                    span,
                    bytes,
                    known,
                } => {
                    let race = self.race(first, second, &span, &bytes, known);
                    self.found(TaskFault::Race(Box::new(race)));
                }
                Finding::Misuse(what, first, second, signal) => {
                    let all = [Some(first), second].into_iter().flatten();
                    let sides = all.map(|access| self.side(access)).collect();
                    let signal = signal.map(|signal| self.describe(&signal));
                    self.found(TaskFault::Misuse { what, sides, signal });
                }
                Finding::Failed { .. } => {}
            }
        }
    }

    fn race(&self, first: Access, second: Access, span: &Span, bytes: &Range<u64>, known: u32) -> TaskRace {
        let size = span.dtype.bytes() as u64;
        let base = span.base + span.stride * u64::from(span.rank.0);
        let what = self.segments.get(&span.segment).map_or("memory", String::as_str);
        let is_private = span.ranks == 1 && span.stride == 0;
        let memory = match is_private {
            true => what.to_owned(),
            false => format!("{what} of rank {}", span.rank),
        };
        let sides = (self.side(first), self.side(second));
        let events = self.lives.get(&first.rank);
        let known = events.and_then(|life| {
            let index = known.checked_sub(life.before + 1)?;
            life.events.get(index as usize)
        });
        let is_under_way = [first, second].iter().any(|access| access.agent != access.rank);
        TaskRace {
            memory,
            elements: bytes.start.saturating_sub(base) / size..bytes.end.saturating_sub(base).div_ceil(size),
            known: known.map(|node| self.side_at(*node, false)),
            help: help(&sides.0, &sides.1, is_under_way),
            first: sides.0,
            second: sides.1,
            count: 1,
        }
    }

    fn side(&self, access: Access) -> TaskSide {
        self.side_at(access.node, access.writes)
    }

    fn side_at(&self, node: NodeId, writes: bool) -> TaskSide {
        let place = self.places[node.0 as usize];
        TaskSide {
            who: self.whos[place.who as usize].clone(),
            instruction: place.instruction,
            site: place.at.map(Site::from),
            writes,
        }
    }

    fn describe(&self, signal: &Signal) -> String {
        let what = self.segments.get(&signal.segment());
        let what = what.map(|what| format!(" in {what}")).unwrap_or_default();
        format!("signal {} of rank {}{what}", signal.index(), signal.rank())
    }

    /// Where a signal lies.
    pub(crate) fn place_of(signal: &Signal) -> crate::cells::Place {
        place(signal)
    }
}

/// What to do about a race.
fn help(a: &TaskSide, b: &TaskSide, is_under_way: bool) -> String {
    if is_under_way {
        return "a copy is under way until its `join`: join it before its memory is touched and before the notify that publishes it".into();
    }
    let (first, second) = (a.instruction, b.instruction);
    match (a.who.chip, b.who.chip) {
        (None, None) => "order the two with `after`, or with `reads` and `writes` of what they touch".into(),
        (None, Some(_)) | (Some(_), None) => format!(
            "the host and a task touch the same memory, and neither waits for the other: wait for the run, or order them with `after`, or with `reads` and `writes` of what they touch (here {first} and {second})"
        ),
        (Some(chip), Some(other)) if chip == other => format!(
            "the {first} and the {second} are of two tasks of one chip, and nothing in the graph orders those: pass the memory to both as an argument, say it with `reads` or `writes`, or submit the later one with `after`"
        ),
        (Some(_), Some(_)) if a.writes => format!(
            "let {} notify after its {first}, and {} wait for that before its {second}",
            a.who, b.who
        ),
        (Some(_), Some(_)) => format!(
            "let {} notify after its {first}, and {} wait for that before its {second}; or use two halves in turn (`half(epoch)`)",
            a.who, b.who
        ),
    }
}
