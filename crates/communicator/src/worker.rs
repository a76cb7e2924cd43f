//! The worker: a thread that makes a communicator's pending calls, one after the other.
//!
//! The first non-blocking call starts it. From then on it owns the station, until a blocking call asks for it back;
//! it returns the station when all pending calls are done. So every rank makes all its calls in the order in which
//! the program began them (COMM-1).

use crate::context::CallContext;
use crate::error::{Error, Result};
use std::cell::Cell;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, SyncSender, channel, sync_channel};
use std::thread::JoinHandle;
use std::time::Duration;

/// The most calls that may be pending; beginning another waits.
const MAX_PENDING: usize = 1024;

/// A call to be made.
type Job = Box<dyn FnOnce(&CallContext) + Send>;

enum Order {
    /// Takes over the station.
    Take(Box<CallContext>),
    /// Make this call.
    Run(Job),
    /// Give the station back.
    Return,
}

/// The communicator's end of it.
#[derive(Debug)]
pub(crate) struct Worker {
    orders: Option<SyncSender<Order>>,
    returned: Receiver<Box<CallContext>>,
    /// Whether the station was requested and has not come back yet.
    asked: Cell<bool>,
    thread: Option<JoinHandle<()>>,
}

/// The worker is still making calls.
#[derive(Debug)]
pub(crate) struct NotYet;

impl std::fmt::Debug for Order {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Order")
    }
}

impl Worker {
    pub(crate) fn start() -> Result<Worker> {
        let (orders, inbox) = sync_channel(MAX_PENDING);
        let (outbox, returned) = channel();
        let thread = std::thread::Builder::new()
            .name("ringwork-worker".into())
            .spawn(move || serve(&inbox, &outbox))
            .map_err(Error::Worker)?;
        Ok(Worker {
            orders: Some(orders),
            returned,
            asked: Cell::new(false),
            thread: Some(thread),
        })
    }

    pub(crate) fn take(&self, station: Box<CallContext>) {
        self.order(Order::Take(station));
    }

    pub(crate) fn run(&self, job: Job) {
        self.order(Order::Run(job));
    }

    /// The station, when all pending calls are done; `None` if the worker has ended.
    pub(crate) fn recall(&self) -> Option<Box<CallContext>> {
        self.ask();
        self.asked.set(false);
        self.returned.recv().ok()
    }

    /// As [`recall`](Worker::recall), but waits at most `limit`; may then be called again.
    pub(crate) fn recall_within(
        &self,
        limit: Duration,
    ) -> std::result::Result<Option<Box<CallContext>>, NotYet> {
        self.ask();
        let back = match self.returned.recv_timeout(limit) {
            Err(RecvTimeoutError::Timeout) => return Err(NotYet),
            back => back.ok(),
        };
        self.asked.set(false);
        Ok(back)
    }

    fn ask(&self) {
        if !self.asked.replace(true) {
            self.order(Order::Return);
        }
    }

    fn order(&self, order: Order) {
        if let Some(orders) = &self.orders {
            // If the worker has ended, the receiver of the answer gets an error.
            let _ = orders.send(order);
        }
    }
}

impl Drop for Worker {
    /// Waits for pending calls, each of which ends (COMM-2).
    fn drop(&mut self) {
        self.orders = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn serve(inbox: &Receiver<Order>, outbox: &Sender<Box<CallContext>>) {
    let mut here: Option<Box<CallContext>> = None;
    for order in inbox {
        match order {
            Order::Take(station) => here = Some(station),
            Order::Run(job) => {
                if let Some(station) = &here {
                    job(station);
                }
            }
            Order::Return => {
                let Some(station) = here.take() else { return };
                if outbox.send(station).is_err() {
                    return;
                }
            }
        }
    }
}
