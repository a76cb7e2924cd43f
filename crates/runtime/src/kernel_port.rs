//! The host's end of a queue in both directions between a host and a kernel that is already running.
//!
//! [`Node::open_port`] makes the window; a task is submitted with its [`slots`](KernelPort::slots),
//! [`headers`](KernelPort::headers) and [`cells`](KernelPort::cells), and opens the other end. See
//! [`HostPort`](ringwork_isa::HostPort) for the picture and the rules (HST-1 to HST-4). From then until the end of
//! the orchestration, the host sends and receives.
//!
//! A payload is written once, into its slot, and read once, out of it; the kernel works on it in place.
//!
//! # Invariants
//! - **KPT-1 (ends).** Every wait of the host ends: satisfied; with [`Error::PortDead`] when no task uses the port
//!   any more, or when another task of the run has failed or its chip has died; or with [`Error::PortSilent`] at the
//!   limit, after which the port can still be used.
//! - **KPT-2 (nothing is lost).** Messages that the kernel sent before it ended can still be received.
//! - **KPT-3 (served).** While an orchestration runs and does not wait for its tasks, their kernels wait for the host
//!   without a limit; otherwise their limit counts. If the orchestration fails, they are ended.

mod message;

pub use message::{Message, Slot};

use crate::buffer::{Buffer, SignalRow};
use crate::domain::{Domain, DomainSpec};
use crate::error::{Error, Result, millis};
use crate::node::{Node, Shared, State};
use crate::run_to_completion::Progress;
use ringwork_isa::{
    Compare, Device, Direction, Element, Header, MessageKind, PortCell, PortLayout, Rank, Returns, Signal,
};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

/// The host's end of a port. Dropping it makes the kernel at the other end fail, unless the kernel was told to
/// [stop](KernelPort::stop).
#[derive(Debug)]
pub struct KernelPort<T> {
    inner: Arc<Inner<T>>,
    /// Requests so far.
    sent: i32,
    told_to_stop: bool,
    /// Whether the kernel has sent its stop.
    stopped: bool,
}

/// The part that messages share with the port.
#[derive(Debug)]
struct Inner<T> {
    layout: PortLayout,
    device: Device,
    domain: Domain,
    slots: Buffer<T>,
    headers: Buffer<i32>,
    cells: SignalRow,
    /// Locked before the node, if both are.
    responses: Mutex<Returns>,
}

/// A message from the kernel.
#[derive(Debug)]
pub enum Response<T: Element> {
    /// A response.
    Data(Message<T>),
    /// The kernel reports an error, by a number that both ends understand.
    Error(i32, Message<T>),
    /// No more responses will come.
    Stop,
}

impl Node {
    /// Opens a port to a chip: `depth` messages each way, a power of two, of up to `slot_len` elements.
    ///
    /// # Errors
    /// If there is no such chip or no memory, or `depth` cannot be.
    pub fn open_port<T: Element>(
        &self,
        device: Device,
        depth: u32,
        slot_len: usize,
    ) -> Result<KernelPort<T>> {
        let layout = PortLayout { depth, slot_len };
        if !layout.is_valid() || i32::try_from(slot_len).is_err() {
            let (most, longest) = (PortLayout::MAX_DEPTH, i32::MAX);
            let why =
                format!("{depth} messages of {slot_len}; a power of two up to {most}, of up to {longest}");
            return Err(Error::config("port", why));
        }
        let spec = DomainSpec::new("port", [device])
            .buffer::<T>("slots", layout.slots_len())
            .buffer::<i32>("headers", layout.headers_len())
            .signals("cells", PortLayout::CELLS);
        let domain = self.open_domain(&spec)?;
        let inner = Inner {
            layout,
            device,
            slots: domain.buffer("slots")?,
            headers: domain.buffer("headers")?,
            cells: domain.signals("cells")?,
            responses: Mutex::default(),
            domain,
        };
        let attended = inner.cell(PortCell::Attended)?;
        let mut state = inner.node().lock();
        state.ports.insert(inner.domain.segment(), (attended, false));
        state.attend(true);
        drop(state);
        Ok(KernelPort {
            inner: Arc::new(inner),
            sent: 0,
            told_to_stop: false,
            stopped: false,
        })
    }
}

impl<T: Element> KernelPort<T> {
    /// The first argument of a task that opens its end: the slots.
    #[must_use]
    pub fn slots(&self) -> &Buffer<T> {
        &self.inner.slots
    }

    /// The second argument: the headers.
    #[must_use]
    pub fn headers(&self) -> &Buffer<i32> {
        &self.inner.headers
    }

    /// The third argument: the signals.
    #[must_use]
    pub fn cells(&self) -> &SignalRow {
        &self.inner.cells
    }

    /// Sends a request, waiting for a free slot.
    ///
    /// # Errors
    /// As [`reserve`](KernelPort::reserve).
    pub fn send(&mut self, data: &[T]) -> Result<()> {
        let slot = self.reserve(data.len())?;
        slot.write(0, data)?;
        slot.send()
    }

    /// Sends a request if a slot is free; returns whether it was.
    ///
    /// # Errors
    /// As [`reserve`](KernelPort::reserve), without the wait.
    pub fn try_send(&mut self, data: &[T]) -> Result<bool> {
        if !self.is_free()? {
            return Ok(false);
        }
        self.send(data).map(|()| true)
    }

    /// Reports an error to the kernel: a number that both ends understand, and data.
    ///
    /// # Errors
    /// As [`reserve`](KernelPort::reserve).
    pub fn send_error(&mut self, code: i32, data: &[T]) -> Result<()> {
        let slot = self.reserve(data.len())?;
        slot.write(0, data)?;
        slot.publish(MessageKind::Error(code))
    }

    /// Ends the requests. The kernel ends when it has taken all earlier ones; receive until [`Response::Stop`] if the
    /// kernel sends its own stop.
    ///
    /// # Errors
    /// As [`reserve`](KernelPort::reserve).
    pub fn stop(&mut self) -> Result<()> {
        self.reserve(0)?.publish(MessageKind::Stop)?;
        self.told_to_stop = true;
        Ok(())
    }

    /// Whether [`stop`](KernelPort::stop) was sent.
    #[must_use]
    pub fn is_told_to_stop(&self) -> bool {
        self.told_to_stop
    }

    /// Waits for a free slot for a request of `len` elements. The request is written into the slot and then
    /// [sent](Slot::send).
    ///
    /// # Errors
    /// If it is longer than a slot or the kernel was told to stop; or as KPT-1 says.
    pub fn reserve(&mut self, len: usize) -> Result<Slot<'_, T>> {
        if len > self.inner.layout.slot_len {
            return Err(Error::Length {
                what: format!("a slot of the port to chip {}", self.inner.device),
                have: self.inner.layout.slot_len,
                asked: len,
            });
        }
        if self.told_to_stop {
            let why = "the kernel was told to stop; open another port to go on";
            return Err(Error::config("port", why));
        }
        let needed = self.inner.layout.needs_freed(self.sent);
        let (cell, what) = (PortCell::RequestsFreed, "a free slot for a request");
        self.inner.wait(self.sent, cell, needed, what)?;
        Ok(Slot { port: self, len })
    }

    /// Whether a slot for a request is free.
    ///
    /// # Errors
    /// [`Error::PortDead`] if the node was closed, its signals were made fresh after a failure, or none is free and
    /// the run has failed.
    pub fn is_free(&self) -> Result<bool> {
        let needed = self.inner.layout.needs_freed(self.sent);
        let mut state = self.inner.node().lock();
        state.move_on();
        let failed = state.run_is_over();
        let free = self
            .inner
            .look(&mut state, self.sent, (PortCell::RequestsFreed, needed), false)?;
        if !free && failed {
            return Err(self.inner.dead(&state));
        }
        Ok(free)
    }

    /// Waits for the next response, in the order they were sent. After the kernel's stop, every call returns that stop
    /// again.
    ///
    /// # Errors
    /// As KPT-1 says.
    pub fn recv(&mut self) -> Result<Response<T>> {
        if self.stopped {
            return Ok(Response::Stop);
        }
        let needed = self.inner.responses().next().wrapping_add(1);
        self.inner
            .wait(self.sent, PortCell::ResponsesSent, needed, "a response")?;
        self.take()
    }

    /// The next response, if it has arrived.
    ///
    /// # Errors
    /// [`Error::PortDead`] if it is not and never will be.
    pub fn try_recv(&mut self) -> Result<Option<Response<T>>> {
        if self.stopped {
            return Ok(Some(Response::Stop));
        }
        let needed = self.inner.responses().next().wrapping_add(1);
        let mut state = self.inner.node().lock();
        state.move_on();
        let over = state.unused(self.inner.domain.segment()) || state.run_is_over();
        let there = self
            .inner
            .look(&mut state, self.sent, (PortCell::ResponsesSent, needed), false)?;
        if !there && over {
            return Err(self.inner.dead(&state));
        }
        drop(state);
        there.then(|| self.take()).transpose()
    }

    /// Takes a response that has arrived.
    fn take(&mut self) -> Result<Response<T>> {
        let Inner { layout, .. } = *self.inner;
        let number = self.inner.responses().next();
        let start = layout.header_start(Direction::Response, number);
        let mut words = [0; PortLayout::HEADER_LEN];
        self.inner.headers.peek_at(start, &mut words)?;
        // Copied once, then checked: later writes of the kernel change nothing.
        let Some(header) = Header::from_words(&words, &layout) else {
            let state = self.inner.node().lock();
            return Err(self
                .inner
                .dead_because(&state, "the kernel wrote a header that is none"));
        };
        self.inner.responses().take();
        let message = Message {
            inner: self.inner.clone(),
            number,
            len: header.len,
        };
        Ok(match header.kind {
            MessageKind::Data => Response::Data(message),
            MessageKind::Error(code) => Response::Error(code, message),
            MessageKind::Stop => {
                self.stopped = true;
                Response::Stop
            }
        })
    }
}

impl<T> Drop for KernelPort<T> {
    fn drop(&mut self) {
        let segment = self.inner.domain.segment();
        let mut state = self.inner.domain.node().lock();
        state.stop_attending(segment);
        if !self.told_to_stop && !state.unused(segment) {
            let device = self.inner.device;
            let reason = format!("the host dropped its end of the port to chip {device} without a stop");
            state.backend.abort(segment, &reason);
        }
    }
}

impl<T: Element> Inner<T> {
    fn node(&self) -> &Shared {
        self.domain.node()
    }

    fn responses(&self) -> MutexGuard<'_, Returns> {
        self.responses.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn cell(&self, cell: PortCell) -> Result<Signal> {
        self.cells.cell(Rank(0), cell as u32)
    }

    fn notify(&self, state: &State, cell: PortCell, value: i32) -> Result<()> {
        state.usable(self.domain.segment())?;
        if state.backend.notify(&self.cell(cell)?, value) {
            Ok(())
        } else {
            Err(self.dead(state))
        }
    }

    /// Whether a signal of the kernel has reached the needed value; an error if it never will (KPT-1).
    fn look(
        &self,
        state: &mut State,
        sent: i32,
        (cell, needed): (PortCell, i32),
        waits: bool,
    ) -> Result<bool> {
        state.usable(self.domain.segment())?;
        let mine = self.cell(PortCell::RequestsSent)?;
        if state.backend.peek(&mine) != Some(sent) {
            return Err(self.dead_because(state, "its signals were made fresh after a failed run"));
        }
        let holds = state
            .backend
            .holds(&self.cell(cell)?, (Compare::Ge, needed), waits);
        Ok(holds.unwrap_or(false))
    }

    /// Waits for a signal of the kernel, while the graph makes progress.
    fn wait(&self, sent: i32, cell: PortCell, needed: i32, what: &str) -> Result<()> {
        let mut progress = Progress::watching(self.cell(cell)?);
        let start = Instant::now();
        let mut over = false;
        loop {
            let mut state = self.node().lock();
            // In this order: what the kernel sent before it ended is there when its end is known (KPT-2). A failed
            // run starts no more tasks, and the task for the other end may not have started.
            let ended = over || state.unused(self.domain.segment()) || state.run_is_over();
            let looks = !state.backend.moving();
            if looks && self.look(&mut state, sent, (cell, needed), true)? {
                return Ok(());
            }
            if ended && looks {
                return Err(self.dead(&state));
            }
            if state.is_host_task() {
                let why = "a host task cannot wait for a kernel; do it in the orchestration";
                return Err(Error::config("port", why));
            }
            if start.elapsed() >= state.wait_limit {
                return Err(Error::PortSilent {
                    worker: state.name.clone(),
                    device: self.device,
                    after_ms: millis(start.elapsed()),
                    what: what.into(),
                    last_seen: state.last_seen(self.device),
                    stopped: state.stopped(),
                });
            }
            state.attend(true);
            drop(state);
            over = self.node().advance(&mut progress);
        }
    }

    /// Why the other end of the port is not served.
    fn dead(&self, state: &State) -> Error {
        let gone = state
            .chip(self.device)
            .ok()
            .and_then(|chip| state.backend.end(chip));
        match (gone, state.first_failure()) {
            (Some(cause), _) => self.dead_because(state, &format!("the chip is gone: {cause}")),
            (None, Some(failure)) => self.dead_because(state, &format!("the run has failed: {failure}")),
            (None, None) => self.dead_because(
                state,
                "no task has its other end: not yet, or its kernel has ended",
            ),
        }
    }

    fn dead_because(&self, state: &State, why: &str) -> Error {
        Error::PortDead {
            worker: state.name.clone(),
            device: self.device,
            why: why.into(),
        }
    }
}

impl State {
    /// Notifies kernels at open ports whether the host serves the ports now (KPT-3).
    pub(crate) fn attend(&mut self, attend: bool) {
        for (segment, (cell, attended)) in &mut self.ports {
            if *attended != attend {
                *attended = attend;
                self.backend.notify(cell, i32::from(attend));
                self.backend.attend(*segment, attend);
            }
        }
    }

    fn stop_attending(&mut self, segment: ringwork_isa::Segment) {
        if let Some((cell, _)) = self.ports.remove(&segment) {
            self.backend.notify(&cell, 0);
            self.backend.attend(segment, false);
        }
    }

    /// Whether no task in flight, and no submitted one, uses a segment.
    pub(crate) fn unused(&self, segment: ringwork_isa::Segment) -> bool {
        self.segments.get(&segment).is_none_or(|known| known.uses == 0)
    }

    fn last_seen(&self, device: Device) -> String {
        let chip = self.chip(device).ok();
        chip.map_or_else(String::new, |chip| self.backend.last_seen(chip).what)
    }
}
