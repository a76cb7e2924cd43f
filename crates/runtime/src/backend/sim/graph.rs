//! A chip's own graph in virtual time: a task that starts others on the chip's cores as soon as they are ready.
//!
//! Building a graph and passing a task from one core to the next take no time; the tasks take the time of their
//! instructions. The cores of a chip share its engines and its memory.

use super::panics::{Guarded, Panic};
use super::sim_thread::short_name;
use crate::chip::{Built, CORE_NAMES, CoreTask, SteppedGraph};
use ringwork_engine::Dispatch;
use ringwork_isa::{Arg, Error, KernelId, Result, Segment, Span};
use ringwork_registry::SteppedKernel;
use ringwork_sim::{Machine, SegmentSpec, TaskId};
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};

/// A running task of the graph.
struct Busy {
    dispatch: Dispatch,
    task: TaskId,
    panicked: Rc<RefCell<Option<Panic>>>,
}

/// The kernel of a chip that runs a graph.
pub(super) struct GraphKernel {
    machine: Machine,
    /// This kernel's own task, once it is known.
    own: Rc<Cell<Option<TaskId>>>,
    graph: SteppedGraph,
    busy: Vec<Busy>,
    /// The tasks that have ended, by their numbers in the graph.
    ended: BTreeMap<u64, TaskId>,
    scratch: Segment,
}

/// Prepares an orchestration's task for stepping on a rank; its intermediates have a segment of their own there.
/// `own` is this task, known before it is polled.
pub(super) fn run(
    machine: Machine,
    (kernel, args): (KernelId, Vec<Arg>),
    (rank, scratch): (u32, Segment),
    own: Rc<Cell<Option<TaskId>>>,
) -> SteppedKernel {
    Box::pin(async move {
        let read = |span: Span| {
            let range = span.byte_range()?;
            let len = usize::try_from(range.end - range.start).ok()?;
            machine.read(span.segment, range.start, len).ok()
        };
        let built = Built::of(&kernel, &args, read)?;
        let defined = machine.define(SegmentSpec {
            segment: scratch,
            members: vec![rank],
            bytes: built.scratch_bytes(),
            memory: 0,
        });
        defined.map_err(|error| Error::failed(format!("memory for intermediates: {error}")))?;
        let graph = built
            .begin(scratch, 0)
            .inspect_err(|_| machine.release(scratch))?;
        let kernel = GraphKernel {
            machine,
            own,
            graph,
            busy: Vec::new(),
            ended: BTreeMap::new(),
            scratch,
        };
        kernel.await
    })
}

impl GraphKernel {
    /// Processes the tasks that the cores have finished.
    fn collect(&mut self) {
        let (machine, graph, ended) = (&self.machine, &mut self.graph, &mut self.ended);
        self.busy.retain(|busy| {
            let Some(outcome) = machine.outcome(busy.task) else {
                return true;
            };
            let result = match busy.panicked.take() {
                Some(Panic { message, site }) => {
                    Err(Error::failed(format!("the kernel panicked at {site}: {message}")))
                }
                None => outcome.result,
            };
            ended.insert(busy.dispatch.task.sequence(), busy.task);
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
        let own = self.own.get().ok_or(ringwork_sim::SimError::NoSuchTask);
        let started = own.and_then(|own| {
            let kernel = move |core| Guarded {
                kernel: (entry.step)(core, args),
                panicked: heard,
            };
            let after = after.and_then(|after| self.ended.get(&after).copied());
            let label = short_name(&entry.id());
            self.machine.spawn_inside(own, after, (core, &label), kernel)
        });
        match started {
            Ok(task) => self.busy.push(Busy {
                dispatch,
                task,
                panicked,
            }),
            Err(error) => self.graph.ended(dispatch, Err(Error::failed(error.to_string()))),
        }
    }
}

impl Future for GraphKernel {
    type Output = Result<()>;

    fn poll(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Result<()>> {
        let kernel = &mut *self;
        kernel.collect();
        while let Some(task) = kernel.graph.next() {
            kernel.start(task);
        }
        kernel.graph.over().map_or(Poll::Pending, Poll::Ready)
    }
}

impl Drop for GraphKernel {
    fn drop(&mut self) {
        self.machine.release(self.scratch);
    }
}
