//! The state of a machine: its clock, what is under way, and what each core is doing.

use super::Options;
use super::error::{Stuck, StuckOn};
use super::guards::{Guards, Inflight, Until};
use super::memory::{Located, Memory};
use super::moves::Moved;
use super::signals::Signals;
use super::trace::Trace;
use crate::net::{Flow, LinkClass, Network};
use crate::queue::EventQueue;
use crate::time::{Ps, Rate};
use crate::topology::Topology;
use ringwork_isa::stepped::{Answer, Instruction};
use ringwork_isa::{Compare, Dtype, Epoch, Notify, ReduceOp, Result, Signal};
use std::collections::{BTreeMap, VecDeque};
use std::panic::Location;

/// What can happen.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Event {
    /// A core goes on.
    Poll(u32),
    /// A core tries its instruction again.
    Retry(u32),
    /// A message on its way moves or arrives.
    Flow(Flow),
    /// A notification is there.
    Signal(u32),
    /// A question about a signal reaches its owner.
    Ask(u32),
    /// A DMA engine of this rank may be free.
    Dma(u32),
    /// A task whose kernel has returned has nothing under way any more.
    Drained(u32),
    /// A message is in its slot: the core that sent it, and the notification that says so.
    Put(u32, u32),
    /// A transfer that was queued has arrived: the core, and the low bits of its sequence number.
    Landed(u32, u32),
}

/// What a booked message is for.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Purpose {
    /// A copy, store or get that the core does not wait for.
    Posted {
        core: u32,
        sequence: u64,
        to: u32,
        start_ps: Ps,
        bytes: u64,
        from: u32,
        moved: Option<Moved>,
    },
    /// A message to a neighbour's slot.
    Put {
        core: u32,
        notice: u32,
        moved: Option<Moved>,
        /// What it takes from its arrival until it is in the slot.
        after_ps: Ps,
        /// For the trace: when it began, how many bytes, and between whom.
        start_ps: Ps,
        bytes: u64,
        between: (u32, u32),
    },
    /// Bytes that the core waits for.
    Fetch {
        core: u32,
        /// For the trace: when it began, how many bytes, and between whom.
        start_ps: Ps,
        bytes: u64,
        between: (u32, u32),
    },
    /// A notification.
    Notify(u32),
}

/// A notification on its way.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Notice {
    pub(crate) core: u32,
    pub(crate) slot: u32,
    pub(crate) how: Notify,
    /// It may not be seen before these are done: everything its core posted earlier...
    pub(crate) after: u64,
    /// ...and not before this time.
    pub(crate) floor_ps: Ps,
    pub(crate) issued_ps: Ps,
    pub(crate) rank: u32,
}

/// A transfer that waits for a DMA engine.
#[derive(Clone, Debug)]
pub(crate) struct Queued {
    pub(crate) core: u32,
    pub(crate) sequence: u64,
    pub(crate) src: Option<Located>,
    pub(crate) dst: Located,
    /// The data of a store.
    pub(crate) moved: Option<Moved>,
}

/// What a core waits for, if it is a signal.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Waiting {
    pub(crate) signal: Signal,
    pub(crate) slot: u32,
    pub(crate) wanted: Wanted,
    pub(crate) since_ps: Ps,
    /// The time the answer takes to come back.
    pub(crate) back_ps: Ps,
}

/// What a core asks of a signal.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Wanted {
    /// To go on when it compares so.
    Until(Compare, i32),
    /// Whether it compares so now.
    Test(Compare, i32),
    /// Its value now.
    Value,
}

impl Wanted {
    /// What is waited for; `None` if the answer comes at once, whatever it is.
    pub(crate) fn condition(self) -> Option<(Compare, i32)> {
        match self {
            Wanted::Until(compare, operand) => Some((compare, operand)),
            Wanted::Test(..) | Wanted::Value => None,
        }
    }

    /// The answer, if a signal of this value gives one.
    #[inline(always)]
    pub(crate) fn reply(self, value: i32) -> Option<Reply> {
        match self {
            Wanted::Until(compare, operand) => compare.holds(value, operand).then_some(Reply::Done),
            Wanted::Test(compare, operand) => Some(Reply::Tested(compare.holds(value, operand))),
            Wanted::Value => Some(Reply::Value(value)),
        }
    }
}

/// Packets that a core takes: it waits for one after the other, then reads all of them.
#[derive(Clone, Debug)]
pub(crate) struct Taking {
    pub(crate) dst: Located,
    /// Where each payload is.
    pub(crate) sources: Vec<Located>,
    /// Flags that are still to be waited for, the next one last, each with the signal that stands for it in reports.
    pub(crate) flags: Vec<(Signal, Signal)>,
    pub(crate) dtype: Dtype,
    pub(crate) op: ReduceOp,
    pub(crate) epoch: Epoch,
    /// When the questions after all of them were sent.
    pub(crate) asked_ps: Ps,
}

/// An answer, small: the usual ones without the room that errors need.
#[derive(Debug, Default)]
pub(crate) enum Reply {
    #[default]
    None,
    Done,
    Value(i32),
    Tested(bool),
    /// What has been loaded; `None` if no data is kept.
    Loaded(Option<Moved>),
    Other(Box<Result<Answer>>),
}

/// A signal that a core has just used: most use two, their own and a neighbour's, over and over.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Recent {
    pub(crate) segment: u32,
    /// Segments come and go: when this was known; 0 for never.
    pub(crate) generation: u32,
    pub(crate) offset: u64,
    pub(crate) slot: u32,
    pub(crate) owner: u32,
}

/// One running kernel.
#[derive(Debug)]
pub(crate) struct Core {
    pub(crate) rank: u32,
    /// Where its timeline is.
    pub(crate) row: u32,
    /// The task that started it and goes on when it ends.
    pub(crate) parent: Option<u32>,
    /// Tasks that it started and that have not ended.
    pub(crate) children: u32,
    pub(crate) label: String,
    pub(crate) started_ps: Ps,
    pub(crate) at: Option<&'static Location<'static>>,
    pub(crate) answer: Reply,
    /// Whether the answer may be seen yet.
    pub(crate) open: bool,
    /// Whether the kernel is being polled, and so sees an answer without being woken.
    pub(crate) polling: bool,
    /// Everything posted with a known arrival has arrived by then.
    pub(crate) floor_ps: Ps,
    /// When the engine that works for it is done.
    pub(crate) computing_until_ps: Ps,
    pub(crate) inflight: Inflight,
    pub(crate) guards: Guards,
    /// Notifications that have arrived before what they must follow.
    pub(crate) parked: Vec<Notice>,
    /// An instruction that waits for memory or a DMA queue.
    pub(crate) stalled: Option<Box<Instruction>>,
    /// Fetches still to come, and what the vector engine then combines.
    pub(crate) fetches: u32,
    pub(crate) fetched_ps: Ps,
    pub(crate) combine_bytes: u64,
    /// What its reduction writes when it is done.
    pub(crate) reduced: Option<Moved>,
    pub(crate) waiting: Option<Waiting>,
    /// When it asked for the signals that it waits for together.
    pub(crate) asked_ps: Ps,
    /// The packets that it takes, while it waits for them.
    pub(crate) taking: Option<Box<Taking>>,
    /// Its own signal, and another's.
    pub(crate) recent: [Recent; 2],
    /// Free peeks since the clock last moved for this core.
    pub(crate) peeks: (Ps, u32),
    /// Messages on their way.
    pub(crate) puts: u32,
    /// Transfers that the kernel may join, by ticket, and the number of the next.
    pub(crate) tickets: BTreeMap<u64, Until>,
    pub(crate) next_ticket: u64,
    /// Changes to signals of its own rank that are not there yet: the core itself sees them, in order.
    pub(crate) unseen: Vec<(u32, Notify)>,
    /// The kernel has returned this; the task ends when nothing is under way.
    pub(crate) returned: Option<Result<()>>,
}

/// Engines of one rank.
#[derive(Clone, Debug)]
pub(crate) struct Engines {
    pub(crate) place: u32,
    /// The rank it last reached over a single link, and that link.
    pub(crate) last_link: (u32, u32),
    pub(crate) vector: Rate,
    pub(crate) vector_free_ps: Ps,
    /// How fast this rank computes, 1 being what its chip says.
    pub(crate) speed: f64,
    pub(crate) matrix_free_ps: Ps,
    /// When each DMA engine is free; empty if there is no limit.
    pub(crate) dma_free_ps: Vec<Ps>,
    pub(crate) queue: VecDeque<Queued>,
    /// Cores that could not even queue.
    pub(crate) refused: VecDeque<u32>,
}

/// Everything but the kernels themselves.
#[derive(Debug)]
pub(crate) struct State {
    pub(crate) topology: Topology,
    pub(crate) queue: EventQueue<Event>,
    pub(crate) network: Network,
    pub(crate) memory: Memory,
    pub(crate) signals: Signals,
    pub(crate) cores: Vec<Option<Box<Core>>>,
    pub(crate) engines: Vec<Engines>,
    pub(crate) purposes: Vec<Option<Purpose>>,
    pub(crate) notices: Vec<Notice>,
    pub(crate) free_notices: Vec<u32>,
    /// Cores to be polled at once.
    pub(crate) ready: VecDeque<u32>,
    /// Cores whose task is over.
    pub(crate) finished: Vec<u32>,
    pub(crate) trace: Trace,
    pub(crate) path: Vec<u32>,
    pub(crate) asked_path: Vec<u32>,
    pub(crate) operands: Vec<Located>,
    /// Ports of memories: first link, memories per rank, and which of them cost anything.
    pub(crate) first_port: u32,
    pub(crate) ports: Vec<bool>,
    /// Whether any of them does.
    pub(crate) has_ports: bool,
    pub(crate) fingerprint: u64,
    /// Segments that were given up, and why.
    pub(crate) alarms: BTreeMap<u32, String>,
    /// The first kernel that failed since the last run ended.
    pub(crate) failure: Option<(u32, String, ringwork_isa::Error)>,
}

impl State {
    pub(crate) fn new(topology: &Topology, options: Options) -> State {
        let ranks = topology.ranks();
        let memories = &topology.chip.memories;
        let ports: Vec<bool> = memories
            .iter()
            .map(|m| !m.bandwidth.is_unlimited() || m.latency_ps > 0)
            .collect();
        let per_rank = memories.iter().map(|m| LinkClass::new(m.bandwidth, m.latency_ps));
        let classes = if ports.contains(&true) {
            (0..ranks).flat_map(|_| per_rank.clone()).collect()
        } else {
            Vec::new()
        };
        let engines = |rank: u32| Engines {
            place: topology.place(rank),
            last_link: (u32::MAX, 0),
            vector: topology
                .chip
                .vector
                .scaled(topology.speed.get(&rank).copied().unwrap_or(1.0)),
            vector_free_ps: 0,
            speed: topology.speed.get(&rank).copied().unwrap_or(1.0),
            matrix_free_ps: 0,
            dma_free_ps: match topology.chip.dma.engines {
                u32::MAX => Vec::new(),
                engines => vec![0; engines as usize],
            },
            queue: VecDeque::new(),
            refused: VecDeque::new(),
        };
        let fabric = std::sync::Arc::clone(&topology.fabric);
        let mut network = Network::new(fabric, classes, topology.switching);
        if options.trace {
            network.keep_uses();
        }
        State {
            queue: EventQueue::new(),
            first_port: topology.fabric.links().end,
            network,
            memory: Memory::new(options, ranks, memories.len()),
            signals: Signals::default(),
            cores: Vec::new(),
            engines: (0..ranks).map(engines).collect(),
            purposes: Vec::new(),
            notices: Vec::new(),
            free_notices: Vec::new(),
            ready: VecDeque::new(),
            finished: Vec::new(),
            trace: Trace::new(options.trace),
            path: Vec::new(),
            asked_path: Vec::new(),
            operands: Vec::new(),
            has_ports: ports.contains(&true),
            ports,
            fingerprint: 0xcbf2_9ce4_8422_2325,
            alarms: BTreeMap::new(),
            failure: None,
            topology: topology.clone(),
        }
    }

    #[inline]
    pub(crate) fn now(&self) -> Ps {
        self.queue.now()
    }

    /// Does to memory what is due by now.
    pub(crate) fn catch_up(&mut self) {
        let now = self.now();
        self.memory.catch_up(now);
    }

    /// A running core. Numbers come from ourselves, so it is there; a stale one is a bug of ours.
    #[inline(always)]
    pub(crate) fn core(&mut self, core: u32) -> &mut Core {
        self.cores[core as usize].as_mut().expect("a core that runs")
    }

    /// Starts a core for a kernel, and says which.
    pub(crate) fn start(&mut self, rank: u32, label: String) -> u32 {
        let start_ps = self.now().saturating_add(self.topology.chip.launch_ps);
        self.start_at(start_ps, (rank, rank), None, label)
    }

    /// Starts a core of a rank for a task of its own, now.
    pub(crate) fn start_inside(&mut self, parent: u32, after: Option<u32>, core: &str, label: String) -> u32 {
        self.core(parent).children += 1;
        let rank = self.core(parent).rank;
        let row = self.topology.ranks() + self.trace.row(rank, core);
        if let Some(after) = after {
            self.trace.follows(after, (row, self.now()));
        }
        self.start_at(self.now(), (rank, row), Some(parent), label)
    }

    fn start_at(&mut self, start_ps: Ps, (rank, row): (u32, u32), parent: Option<u32>, label: String) -> u32 {
        let core = Core {
            rank,
            row,
            parent,
            children: 0,
            label,
            started_ps: start_ps,
            at: None,
            answer: Reply::None,
            taking: None,
            open: false,
            polling: false,
            floor_ps: 0,
            computing_until_ps: 0,
            inflight: Inflight::default(),
            guards: Guards::default(),
            parked: Vec::new(),
            stalled: None,
            fetches: 0,
            fetched_ps: 0,
            combine_bytes: 0,
            reduced: None,
            waiting: None,
            asked_ps: 0,
            recent: [Recent::default(); 2],
            peeks: (0, 0),
            puts: 0,
            tickets: BTreeMap::new(),
            next_ticket: 0,
            unseen: Vec::new(),
            returned: None,
        };
        self.cores.push(Some(Box::new(core)));
        let index = u32::try_from(self.cores.len() - 1).unwrap_or(u32::MAX);
        self.queue.push(start_ps, Event::Poll(index));
        index
    }

    /// Handles one event; `false` if there is none.
    pub(crate) fn step(&mut self) -> bool {
        let Some((now, event)) = self.queue.pop() else {
            return false;
        };
        self.fingerprint = (self.fingerprint ^ now).wrapping_mul(0x0100_0000_01b3);
        match event {
            // Left over from a task that is gone.
            Event::Poll(core)
            | Event::Retry(core)
            | Event::Ask(core)
            | Event::Drained(core)
            | Event::Put(core, _)
            | Event::Landed(core, _)
                if self.cores[core as usize].is_none() => {}
            Event::Poll(core) => self.open(core),
            Event::Retry(core) => self.retry(core),
            Event::Flow(flow) => self.flow(flow),
            Event::Signal(notice) => self.deliver(notice),
            Event::Ask(core) => self.asked(core),
            Event::Dma(rank) => self.dma_free(rank),
            Event::Drained(core) => self.drain(core),
            Event::Put(core, notice) => self.in_slot(core, notice),
            Event::Landed(core, sequence) => self.landed(core, sequence),
        }
        self.schedule_wakes();
        true
    }

    #[inline(always)]
    pub(crate) fn schedule_wakes(&mut self) {
        if !self.network.is_settled() {
            self.queue_wakes();
        }
    }

    #[inline(never)]
    fn queue_wakes(&mut self) {
        for (at, flow) in self.network.wakes() {
            self.queue.push(at, Event::Flow(flow));
        }
    }

    /// Lets a core see its answer now.
    #[inline(always)]
    pub(crate) fn open(&mut self, core: u32) {
        let state = self.core(core);
        state.open = true;
        if !state.polling {
            self.ready.push_back(core);
        }
    }

    /// Lets a core see this answer at a time.
    // Inlined, an answer is written where it is kept and never passed.
    #[inline(always)]
    pub(crate) fn reply(&mut self, core: u32, at: Ps, answer: Reply) {
        self.core(core).answer = answer;
        self.open_at(core, at);
    }

    /// Lets a core see the answer it has at a time.
    #[inline(always)]
    pub(crate) fn open_at(&mut self, core: u32, at: Ps) {
        if at > self.now() {
            self.core(core).open = false;
            self.queue.push(at, Event::Poll(core));
        } else {
            self.open(core);
        }
    }

    /// The kernel of a core has returned.
    pub(crate) fn returned(&mut self, core: u32, result: Result<()>) {
        if let (Err(error), None) = (&result, &self.failure) {
            let (rank, label) = (self.core(core).rank, self.core(core).label.clone());
            self.failure = Some((rank, label, error.clone()));
        }
        self.core(core).returned = Some(result);
        self.drain(core);
    }

    /// Ends a task as soon as nothing it posted is under way.
    pub(crate) fn drain(&mut self, core: u32) {
        let now = self.now();
        let state = self.core(core);
        if state.returned.is_none() || !state.inflight.is_empty() || state.puts > 0 {
            return;
        }
        if state.floor_ps > now {
            let at = std::mem::replace(&mut state.floor_ps, now);
            self.queue.push(at, Event::Drained(core));
            return;
        }
        let (row, start, label) = (state.row, state.started_ps, state.label.clone());
        self.trace.task(core, row, (start, now), label);
        self.finished.push(core);
    }

    /// What a core that never ends is stuck on.
    pub(crate) fn stuck(&self, core: &Core) -> Stuck {
        let on = match self.waited(core) {
            Some(waited) => StuckOn::Signal(waited),
            None => StuckOn::Unknown(core.at.map(Into::into)),
        };
        Stuck {
            rank: core.rank,
            task: core.label.clone(),
            on,
        }
    }
}
