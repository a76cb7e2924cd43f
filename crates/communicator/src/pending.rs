//! Non-blocking calls: begun now, waited for later.
//!
//! A call takes its buffers by value; `wait` gives them back. A blocking call is made after all pending ones.
//!
//! ```no_run
//! # use ringwork_communicator::{Communicator, Error};
//! # use ringwork_isa::ReduceOp::Sum;
//! # fn main() -> Result<(), Error> {
//! let comm = Communicator::from_env()?;
//! let pending = comm.all_reduce_start(vec![1f32; 1 << 20], Sum);
//! // ... compute something else ...
//! let sums = pending.wait()?;
//! # Ok(())
//! # }
//! ```

use crate::Communicator;
use crate::buffer::{Source, Target};
use crate::context::CallContext;
use crate::error::{Error, Result};
use crate::worker::Worker;
use ringwork_isa::{Element, ReduceOp};
use std::sync::mpsc::{Receiver, RecvTimeoutError, TryRecvError, sync_channel};
use std::time::Duration;

/// A call in progress, with its buffers. Dropping it abandons the result but not the call, which other ranks count
/// on: it is made in its turn, and the buffers are freed when it is done.
#[must_use = "the buffers come back from `wait`"]
#[derive(Debug)]
pub struct Pending<D> {
    outcome: Receiver<Result<D>>,
    arrived: Option<Result<D>>,
}

impl<D> Pending<D> {
    /// Waits until the call is done, and gives the buffers back.
    ///
    /// # Errors
    /// Whatever the blocking call would have returned; the buffers are gone then.
    pub fn wait(self) -> Result<D> {
        match self.arrived {
            Some(outcome) => outcome,
            None => self.outcome.recv().unwrap_or_else(|_| Err(Error::lost())),
        }
    }

    /// Whether the call is done: [`wait`](Pending::wait) returns at once.
    pub fn test(&mut self) -> bool {
        if self.arrived.is_none() {
            self.arrived = match self.outcome.try_recv() {
                Ok(outcome) => Some(outcome),
                Err(TryRecvError::Empty) => None,
                Err(TryRecvError::Disconnected) => Some(Err(Error::lost())),
            };
        }
        self.arrived.is_some()
    }

    /// Waits until the call is done, but no longer than `limit`; returns whether it is. Can be called again.
    pub fn wait_for(&mut self, limit: Duration) -> bool {
        if self.arrived.is_none() {
            self.arrived = match self.outcome.recv_timeout(limit) {
                Ok(outcome) => Some(outcome),
                Err(RecvTimeoutError::Timeout) => None,
                Err(RecvTimeoutError::Disconnected) => Some(Err(Error::lost())),
            };
        }
        self.arrived.is_some()
    }
}

impl Communicator {
    /// Hands a call to the worker.
    fn begin<D: Send + 'static>(
        &self,
        data: D,
        work: impl FnOnce(&CallContext, &mut D) -> Result<()> + Send + 'static,
    ) -> Pending<D> {
        self.begin_then(data, work, |data| data, || {})
    }

    /// Hands a call to the worker, which gives `part` of the data back and calls `then` when it is done.
    pub(crate) fn begin_then<D: Send + 'static, P: Send + 'static>(
        &self,
        mut data: D,
        work: impl FnOnce(&CallContext, &mut D) -> Result<()> + Send + 'static,
        part: impl FnOnce(D) -> P + Send + 'static,
        then: impl FnOnce() + Send + 'static,
    ) -> Pending<P> {
        let (done, outcome) = sync_channel(1);
        let mut worker = self.worker.borrow_mut();
        if worker.is_none() {
            match Worker::start() {
                Ok(started) => *worker = Some(started),
                Err(error) => {
                    let arrived = Some(Err(error));
                    return Pending { outcome, arrived };
                }
            }
        }
        if let Some(worker) = worker.as_ref() {
            if let Some(station) = self.station.borrow_mut().take() {
                worker.take(station);
            }
            worker.run(Box::new(move |station| {
                let outcome = work(station, &mut data).map(|()| part(data));
                // The receiver may be gone: the handle was dropped.
                let _ = done.send(outcome);
                then();
            }));
        }
        Pending {
            outcome,
            arrived: None,
        }
    }

    /// Begins an [`all_reduce`](Communicator::all_reduce).
    pub fn all_reduce_start<T: Element, D: Target<T> + Send + 'static>(
        &self,
        data: D,
        op: ReduceOp,
    ) -> Pending<D> {
        self.begin(data, move |station, data| {
            station.all_reduce(data.output().into(), op, None)
        })
    }

    /// Begins an [`all_gather`](Communicator::all_gather); both buffers come back.
    pub fn all_gather_start<T: Element, S, D>(&self, input: S, output: D) -> Pending<(S, D)>
    where
        S: Source<T> + Send + 'static,
        D: Target<T> + Send + 'static,
    {
        self.begin((input, output), |station, (input, output)| {
            station.all_gather(input.input().into(), output.output().into())
        })
    }

    /// Begins a [`reduce_scatter`](Communicator::reduce_scatter); both buffers come back.
    pub fn reduce_scatter_start<T: Element, S, D>(&self, input: S, output: D, op: ReduceOp) -> Pending<(S, D)>
    where
        S: Source<T> + Send + 'static,
        D: Target<T> + Send + 'static,
    {
        self.begin((input, output), move |station, (input, output)| {
            station.reduce_scatter(input.input().into(), output.output().into(), op)
        })
    }

    /// Begins a [`broadcast`](Communicator::broadcast).
    pub fn broadcast_start<T: Element, D: Target<T> + Send + 'static>(
        &self,
        data: D,
        root: u32,
    ) -> Pending<D> {
        self.begin(data, move |station, data| {
            station.broadcast(data.output().into(), root)
        })
    }

    /// Begins an [`all_to_all`](Communicator::all_to_all); both buffers come back.
    pub fn all_to_all_start<T: Element, S, D>(&self, input: S, output: D) -> Pending<(S, D)>
    where
        S: Source<T> + Send + 'static,
        D: Target<T> + Send + 'static,
    {
        self.begin((input, output), |station, (input, output)| {
            station.all_to_all(input.input().into(), output.output().into())
        })
    }

    /// Begins a [`barrier`](Communicator::barrier).
    pub fn barrier_start(&self) -> Pending<()> {
        self.begin((), |station, ()| station.barrier())
    }

    /// Begins a [`send`](Communicator::send).
    ///
    /// Calls are made in order, also those between two ranks. If two ranks each begin a long send to the other and
    /// then a receive, they deadlock. Use [`exchange`](Communicator::exchange) for that.
    pub fn send_start<T: Element, S: Source<T> + Send + 'static>(&self, data: S, to: u32) -> Pending<S> {
        self.begin(data, move |station, data| station.send(data.input().into(), to))
    }

    /// Begins a [`recv`](Communicator::recv).
    pub fn recv_start<T: Element, D: Target<T> + Send + 'static>(&self, data: D, from: u32) -> Pending<D> {
        self.begin(data, move |station, data| {
            station.recv(data.output().into(), from)
        })
    }
}
