//! Host tasks: closures that take their turn in the graph, on the thread that waits for it.

use crate::engine::TaskId;
use crate::error::{Error, Result};
use crate::node::{Shared, State};
use ringwork_native::ticks;
use std::collections::BTreeMap;
use std::panic::AssertUnwindSafe;

/// A closure that waits for its turn.
pub(crate) type Closure = Box<dyn FnOnce() -> std::result::Result<(), String> + Send>;

/// Closures by task. Beside the node's state, so that nothing a closure holds is dropped while that is locked.
pub(crate) type Closures = BTreeMap<TaskId, Closure>;

impl Shared {
    pub(crate) fn keep_closure(&self, task: TaskId, closure: Closure) {
        self.closures().insert(task, closure);
    }

    /// All that are left.
    pub(crate) fn take_closures(&self) -> Closures {
        std::mem::take(&mut *self.closures())
    }

    /// Runs a closure whose turn it is.
    pub(crate) fn run_host_task(&self, task: TaskId) {
        let closure = self.closures().remove(&task);
        self.lock().host_thread = Some(std::thread::current().id());
        let start = ticks::now();
        let outcome = closure.map_or(Ok(()), |closure| {
            let ended = std::panic::catch_unwind(AssertUnwindSafe(closure));
            ended.unwrap_or_else(|panic| Err(format!("it panicked: {}", words(&*panic))))
        });
        let mut state = self.lock();
        state.host_thread = None;
        let name = state
            .engine
            .payload(task)
            .map_or_else(String::new, ToString::to_string);
        state.log.hosted(task, name.clone(), start);
        let worker = state.name.clone();
        let outcome = outcome.map_err(|message| Error::Host {
            worker,
            name,
            message,
        });
        state.host_task_done(task, outcome);
    }
}

impl State {
    /// Whether this thread is inside a host task.
    pub(crate) fn is_host_task(&self) -> bool {
        self.host_thread == Some(std::thread::current().id())
    }

    pub(crate) fn host_task_done(&mut self, task: TaskId, outcome: Result<()>) {
        let (work, on) = (self.engine.payload(task).cloned(), self.host_executor());
        let reported = match outcome {
            Ok(()) => {
                self.log.waited_for(task, self.engine.successors(task));
                self.engine.complete(task, on)
            }
            Err(error) => {
                self.went_wrong(error);
                self.engine.fail(task, on, ())
            }
        };
        debug_assert!(reported.is_ok(), "the closure was dispatched");
        if let Some(work) = work {
            self.let_go(&work);
        }
    }
}

pub(crate) fn words(panic: &(dyn std::any::Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("without a message")
}
