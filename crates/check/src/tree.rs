//! Trees of answers: what a rank's kernel does, as a function of the answers that it got.
//!
//! A kernel is deterministic: the same answers lead to the same next instruction. So each rank has a tree whose nodes are
//! instructions and whose edges are answers. An explorer walks the trees. A future is polled only where a branch is new;
//! if the future that is alive has taken another branch, a new one is replayed along the path.

use crate::mutate::{Mutant, Mutation, may_be_exchanged, only_delays, without};
use ringwork_isa::stepped::{Answer, CoreId, Engine, Instruction, SteppedCore};
use ringwork_isa::{Device, Rank, Result};
use std::cell::{Cell, RefCell};
use std::fmt;
use std::panic::Location;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

/// A rank's kernel, for all its calls.
pub(crate) type Kernel = Pin<Box<dyn Future<Output = Result<()>>>>;

/// Starts a rank's kernel. It writes the number of the call that it is in to the cell.
pub(crate) type Start = Rc<dyn Fn(SteppedCore, Rank, Rc<Cell<u32>>) -> Kernel>;

/// A place in the tree of one rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct NodeId(pub(crate) u32);

/// What a kernel does next.
#[derive(Clone, Debug)]
pub(crate) enum Step {
    Instruction(Rc<Instruction>, &'static Location<'static>),
    Ended(Result<()>),
}

#[derive(Debug)]
struct Node {
    step: Step,
    call: u32,
    /// Instructions before it.
    depth: u32,
    parent: Option<(NodeId, Result<Answer>)>,
    children: Vec<(Result<Answer>, NodeId)>,
}

/// The engine of one future: takes its instruction, hands it the next answer.
#[derive(Debug, Default)]
struct Seam {
    issued: RefCell<Option<(Instruction, &'static Location<'static>)>>,
    answer: RefCell<Option<Result<Answer>>>,
}

impl Engine for Seam {
    fn issue(
        &self,
        _: CoreId,
        instruction: Instruction,
        at: &'static Location<'static>,
    ) -> Poll<Result<Answer>> {
        *self.issued.borrow_mut() = Some((instruction, at));
        Poll::Pending
    }

    fn answer(&self, _: CoreId) -> Poll<Result<Answer>> {
        match self.answer.borrow_mut().take() {
            Some(answer) => Poll::Ready(answer),
            None => Poll::Pending,
        }
    }
}

/// A kernel that was polled as far as a node.
struct Live {
    kernel: Kernel,
    core: SteppedCore,
    seam: Rc<Seam>,
    call: Rc<Cell<u32>>,
    at: NodeId,
    mutant: Option<Rc<Applied>>,
    exchange: Exchange,
}

/// A mutant of a program, and whether it has changed anything yet.
#[derive(Debug)]
pub(crate) struct Applied {
    mutant: Mutant,
    has_changed: Cell<bool>,
    /// Exchanged two instructions, so that something is only published later.
    has_delayed: Cell<bool>,
}

/// What a mutant has changed in the executions that were explored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Change {
    Nothing,
    Delay,
    Program,
}

impl Applied {
    pub(crate) fn new(mutant: Mutant) -> Applied {
        Applied {
            mutant,
            has_changed: Cell::new(false),
            has_delayed: Cell::new(false),
        }
    }

    pub(crate) fn change(&self) -> Change {
        match (self.has_changed.get(), self.has_delayed.get()) {
            (true, _) => Change::Program,
            (false, true) => Change::Delay,
            (false, false) => Change::Nothing,
        }
    }
}

/// Where a rank is that exchanges an instruction with the next one: its kernel is one instruction ahead.
#[derive(Debug, Default)]
enum Exchange {
    #[default]
    None,
    /// The first of two was answered to the kernel, but not done; the second comes out next.
    Held(Issued),
    /// The other of two, which is done next.
    Second(Issued),
    /// The two keep their order: the first was done, this comes next.
    Ordered(Issued),
    /// Both are done, the kernel was not answered to the second.
    Answer(Result<Answer>),
    /// The kernel has ended so, with an instruction to be done.
    Ended(Result<()>),
}

type Issued = (Instruction, &'static Location<'static>);

/// Everything that one rank's kernel was seen to do.
pub(crate) struct Tree {
    rank: Rank,
    start: Start,
    mutant: Option<Rc<Applied>>,
    nodes: Vec<Node>,
    live: Live,
}

impl fmt::Debug for Tree {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Tree of rank {} with {} nodes", self.rank, self.nodes.len())
    }
}

/// An edge with its answer, and what the allocator adds.
const EACH_EDGE_BYTES: usize = 128;

pub(crate) const ROOT: NodeId = NodeId(0);

impl Tree {
    pub(crate) fn new(rank: Rank, start: Start, mutant: Option<Rc<Applied>>) -> Tree {
        let (live, step) = begin(rank, &start, mutant.clone());
        let root = Node {
            step,
            call: live.call.get(),
            depth: 0,
            parent: None,
            children: Vec::new(),
        };
        Tree {
            rank,
            start,
            mutant,
            nodes: vec![root],
            live,
        }
    }

    fn node(&self, id: NodeId) -> &Node {
        &self.nodes[id.0 as usize]
    }

    /// What it holds, about: a node and its instruction.
    pub(crate) fn bytes(&self) -> u64 {
        let each = size_of::<Node>() + size_of::<Instruction>() + EACH_EDGE_BYTES;
        (self.nodes.len() * each) as u64
    }

    /// What the kernel does at a node.
    pub(crate) fn step(&self, id: NodeId) -> &Step {
        &self.node(id).step
    }

    /// The number of the call that a node belongs to.
    pub(crate) fn call(&self, id: NodeId) -> u32 {
        self.node(id).call
    }

    /// The instruction before `id` that is number `depth` of its kernel.
    pub(crate) fn ancestor(&self, mut id: NodeId, depth: u32) -> NodeId {
        while self.node(id).depth > depth
            && let Some((parent, _)) = &self.node(id).parent
        {
            id = *parent;
        }
        id
    }

    /// All instructions that its kernel was seen to do.
    pub(crate) fn instructions(&self) -> impl Iterator<Item = (&Instruction, &'static Location<'static>)> {
        self.nodes.iter().filter_map(|node| match &node.step {
            Step::Instruction(instruction, at) => Some((&**instruction, *at)),
            Step::Ended(_) => None,
        })
    }

    /// The instruction before, if there is one.
    pub(crate) fn parent(&self, id: NodeId) -> Option<NodeId> {
        self.node(id).parent.as_ref().map(|(parent, _)| *parent)
    }

    /// Where the kernel goes if the instruction at `id` is answered so.
    pub(crate) fn next(&mut self, id: NodeId, answer: Result<Answer>) -> NodeId {
        let known = self.node(id).children.iter().find(|(known, _)| *known == answer);
        if let Some((_, child)) = known {
            return *child;
        }
        if self.live.at != id {
            self.replay(id);
        }
        let step = self.live.poll(Some(answer.clone()));
        let child = NodeId(u32::try_from(self.nodes.len()).unwrap_or(u32::MAX));
        self.nodes.push(Node {
            step,
            call: self.live.call.get(),
            depth: self.node(id).depth + 1,
            parent: Some((id, answer.clone())),
            children: Vec::new(),
        });
        self.nodes[id.0 as usize].children.push((answer, child));
        self.live.at = child;
        child
    }

    /// Makes the future that is alive one that has come as far as `id`.
    fn replay(&mut self, id: NodeId) {
        let mut path = Vec::new();
        let mut at = id;
        while let Some((parent, answer)) = &self.node(at).parent {
            path.push(answer.clone());
            at = *parent;
        }
        (self.live, _) = begin(self.rank, &self.start, self.mutant.clone());
        for answer in path.into_iter().rev() {
            self.live.poll(Some(answer));
        }
        self.live.at = id;
    }
}

fn begin(rank: Rank, start: &Start, mutant: Option<Rc<Applied>>) -> (Live, Step) {
    let (seam, call) = (Rc::new(Seam::default()), Rc::new(Cell::new(0)));
    let core = SteppedCore::new(seam.clone(), CoreId(rank.0), Device(rank.0));
    let mut live = Live {
        kernel: start(core.clone(), rank, call.clone()),
        core,
        seam,
        call,
        at: ROOT,
        mutant: mutant.filter(|applied| applied.mutant.is_on(rank)),
        exchange: Exchange::None,
    };
    let step = live.poll(None);
    (live, step)
}

impl Live {
    /// What the kernel does after an answer, with the mutant applied.
    fn poll(&mut self, mut answer: Option<Result<Answer>>) -> Step {
        match (std::mem::take(&mut self.exchange), &mut answer) {
            (Exchange::Second((instruction, at)), Some(other)) => {
                self.exchange = Exchange::Answer(other.clone());
                return Step::Instruction(Rc::new(instruction), at);
            }
            (Exchange::Ordered((instruction, at)), Some(first)) => {
                if first.is_ok() {
                    return Step::Instruction(Rc::new(instruction), at);
                }
            }
            // An error of either is the answer to the second.
            (Exchange::Answer(first), Some(second)) if second.is_ok() => *second = first,
            (Exchange::Ended(result), Some(last)) => return Step::Ended(last.clone().map(drop).and(result)),
            (exchange, _) => self.exchange = exchange,
        }
        let Some(applied) = self.mutant.clone() else {
            return self.poll_kernel(answer);
        };
        loop {
            let step = self.poll_kernel(answer.take());
            if let Exchange::Held((first, line)) = std::mem::take(&mut self.exchange) {
                return self.exchanged(first, line, step, &applied);
            }
            let Step::Instruction(instruction, at) = &step else {
                return step;
            };
            if !applied.mutant.is_of(instruction, at) {
                return step;
            }
            match applied.mutant.mutation {
                Mutation::Drop => {
                    applied.has_changed.set(true);
                    answer = without(instruction).map(Ok);
                }
                Mutation::Exchange => {
                    self.exchange = Exchange::Held(((**instruction).clone(), at));
                    answer = Some(Ok(Answer::Done));
                }
                other => {
                    let Some(wrong) = other.of(instruction) else {
                        return step;
                    };
                    applied.has_changed.set(true);
                    return Step::Instruction(Rc::new(wrong), at);
                }
            }
        }
    }

    /// Begins to do `second` and then `first`; in their own order if that makes no difference.
    fn exchanged(
        &mut self,
        first: Instruction,
        line: &'static Location<'static>,
        second: Step,
        applied: &Applied,
    ) -> Step {
        match second {
            Step::Ended(result) => {
                // There is nothing to exchange it with.
                self.exchange = Exchange::Ended(result);
                Step::Instruction(Rc::new(first), line)
            }
            Step::Instruction(second, at) => {
                if may_be_exchanged(&first, &second) {
                    self.exchange = Exchange::Ordered(((*second).clone(), at));
                    return Step::Instruction(Rc::new(first), line);
                }
                match only_delays(&first, &second) {
                    true => applied.has_delayed.set(true),
                    false => applied.has_changed.set(true),
                }
                self.exchange = Exchange::Second((first, line));
                Step::Instruction(second, at)
            }
        }
    }

    fn poll_kernel(&mut self, answer: Option<Result<Answer>>) -> Step {
        *self.seam.answer.borrow_mut() = answer;
        let mut context = Context::from_waker(Waker::noop());
        loop {
            if let Poll::Ready(result) = self.kernel.as_mut().poll(&mut context) {
                return Step::Ended(result.and_then(|()| self.core.check_all_awaited()));
            }
            if let Some((instruction, at)) = self.seam.issued.borrow_mut().take() {
                return Step::Instruction(Rc::new(instruction), at);
            }
            // Some instructions suspend once before they ask for their answer.
            assert!(
                self.seam.answer.borrow().is_some(),
                "a kernel awaits something that is not an instruction of its core; await instructions only"
            );
        }
    }
}
