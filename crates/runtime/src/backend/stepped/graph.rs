//! A chip's own graph on a machine that is stepped: a task that starts others on the chip's cores as soon as they are ready.
//!
//! Building a graph and starting its tasks take no virtual time; a task takes the time of its instructions. The cores
//! of a chip share its engines and its memory. The race detector treats tasks of a graph as ordered by the edges of the
//! graph alone.

use super::machine::SteppedMachine;
use super::panics::{Guarded, Panic};
use super::thread::short_name;
use crate::chip::{Built, CORE_NAMES, CoreTask, SteppedGraph};
use ringwork_check::{AgentId, Detector, Moment, Who};
use ringwork_engine::Dispatch;
use ringwork_isa::{Arg, Error, KernelId, Result, Segment, Span};
use ringwork_registry::SteppedKernel;
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};

/// A task of the graph that runs.
struct Busy<T> {
    dispatch: Dispatch,
    task: T,
    agent: Option<AgentId>,
    panicked: Rc<RefCell<Option<Panic>>>,
}

/// The facts about a graph for the race detector.
pub(super) struct Watched {
    pub(super) detector: Rc<RefCell<Detector>>,
    /// The task that runs the graph, its chip and its number.
    pub(super) agent: AgentId,
    pub(super) chip: u32,
    pub(super) number: u64,
    /// For each task that has not begun: the ends of the tasks before it.
    starts: BTreeMap<u64, Moment>,
    /// Ends of all.
    ends: Moment,
}

impl Watched {
    pub(super) fn new(detector: Rc<RefCell<Detector>>, agent: AgentId, chip: u32, number: u64) -> Watched {
        Watched {
            detector,
            agent,
            chip,
            number,
            starts: BTreeMap::new(),
            ends: Moment::default(),
        }
    }

    /// The orchestration has waited for all tasks that have ended.
    fn learn_all(&mut self) {
        self.detector.borrow_mut().learn(self.agent, &self.ends);
    }

    fn begin(&mut self, task: u64, kernel: &str) -> AgentId {
        let mut detector = self.detector.borrow_mut();
        let mut start = detector.now(self.agent);
        if let Some(before) = self.starts.remove(&task) {
            start.join(&before);
        }
        let who = Who {
            chip: Some(self.chip),
            name: format!("kernel `{kernel}`").into(),
            task: self.number,
        };
        detector.begin(who, &start)
    }

    /// A task has ended: its successors in the graph are ordered after it.
    fn end(&mut self, agent: AgentId, is_well: bool, followers: Vec<u64>) {
        let mut detector = self.detector.borrow_mut();
        let end = detector.end(agent, is_well);
        for follower in followers {
            self.starts.entry(follower).or_default().join(&end);
        }
        self.ends.join(&end);
    }
}

/// The kernel of a chip that runs a graph.
pub(super) struct GraphKernel<M: SteppedMachine> {
    machine: M,
    /// This kernel's own task, once it is known.
    own: Rc<Cell<Option<M::Task>>>,
    rank: u32,
    graph: SteppedGraph,
    busy: Vec<Busy<M::Task>>,
    /// The tasks that have ended, by their numbers in the graph.
    ended: BTreeMap<u64, M::Task>,
    scratch: Segment,
    watched: Option<Watched>,
}

/// Prepares an orchestration's task for a rank; its intermediates have a segment of their own there. `own` will hold
/// the task itself before it is polled first.
pub(super) fn run<M: SteppedMachine>(
    machine: M,
    (kernel, args): (KernelId, Vec<Arg>),
    (rank, scratch): (u32, Segment),
    own: Rc<Cell<Option<M::Task>>>,
    watched: Option<Watched>,
) -> SteppedKernel {
    Box::pin(async move {
        let read = |span: Span| {
            let range = span.byte_range()?;
            let len = usize::try_from(range.end - range.start).ok()?;
            machine.read(
                watched.as_ref().map(|watched| watched.agent),
                span.segment,
                range.start,
                len,
            )
        };
        let built = Built::of(&kernel, &args, read)?;
        machine
            .define_scratch(scratch, rank, built.scratch_bytes())
            .map_err(|error| Error::failed(format!("memory for intermediates: {error}")))?;
        let graph = built
            .begin(scratch, 0)
            .inspect_err(|_| machine.release(scratch))?;
        let kernel = GraphKernel {
            machine,
            own,
            rank,
            graph,
            busy: Vec::new(),
            ended: BTreeMap::new(),
            scratch,
            watched,
        };
        kernel.await
    })
}

impl<M: SteppedMachine> GraphKernel<M> {
    /// Processes the tasks that the cores have finished.
    fn collect(&mut self) {
        let (machine, graph, ended) = (&self.machine, &mut self.graph, &mut self.ended);
        let watched = &mut self.watched;
        self.busy.retain(|busy| {
            let Some(outcome) = machine.outcome(busy.task) else {
                return true;
            };
            let result = match busy.panicked.take() {
                Some(Panic { message, site }) => {
                    Err(Error::failed(format!("the kernel panicked at {site}: {message}")))
                }
                None => outcome,
            };
            ended.insert(busy.dispatch.task.sequence(), busy.task);
            if let (Some(watched), Some(agent)) = (watched.as_mut(), busy.agent) {
                watched.end(agent, result.is_ok(), graph.followers(busy.dispatch));
            }
            graph.ended(busy.dispatch, result);
            false
        });
    }

    fn start(
        &mut self,
        CoreTask {
            dispatch,
            after,
            entry,
            args,
        }: CoreTask,
    ) {
        let panicked = Rc::new(RefCell::new(None));
        let heard = panicked.clone();
        let core = CORE_NAMES
            .get(dispatch.executor.0 as usize)
            .copied()
            .unwrap_or("core");
        let label = short_name(&entry.id());
        let agent = self.watched.as_mut().map(|watched| {
            if self.graph.has_waited() {
                watched.learn_all();
            }
            watched.begin(dispatch.task.sequence(), &label)
        });
        let own = self
            .own
            .get()
            .ok_or_else(|| "the chip's task is not known".to_owned());
        let started = own.and_then(|own| {
            let name = Rc::from(label.as_str());
            let kernel = Box::new(move |core| Guarded {
                kernel: (entry.step)(core, args),
                name,
                panicked: heard,
            });
            let after = after.and_then(|after| self.ended.get(&after).copied());
            self.machine
                .spawn_inside((own, self.rank), after, (core, &label), agent, kernel)
        });
        match started {
            Ok(task) => self.busy.push(Busy {
                dispatch,
                task,
                agent,
                panicked,
            }),
            Err(error) => self.graph.ended(dispatch, Err(Error::failed(error))),
        }
    }
}

impl<M: SteppedMachine> Future for GraphKernel<M> {
    type Output = Result<()>;

    fn poll(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Result<()>> {
        let kernel = &mut *self;
        kernel.collect();
        while let Some(task) = kernel.graph.next() {
            kernel.start(task);
        }
        let over = kernel.graph.over();
        if let (Some(_), Some(watched)) = (&over, &mut kernel.watched) {
            watched.learn_all();
        }
        over.map_or(Poll::Pending, Poll::Ready)
    }
}

impl<M: SteppedMachine> Drop for GraphKernel<M> {
    fn drop(&mut self) {
        self.machine.release(self.scratch);
    }
}
