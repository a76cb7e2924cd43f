//! The kernel's end of a queue in both directions between a host and a kernel that is already running.
//!
//! The host opens a *port* on a chip: a window of that chip alone, with slots for requests and for responses, a header
//! for each slot, and a few signals. A kernel that was submitted with it takes requests as they come and sends
//! responses, for as long as it likes: until the host says stop, unless it stops by itself.
//!
//! ```text
//!            host                    window of the chip                    kernel
//!   send ── payload, header ──►  requests   5 6 [7] .   ── in place ──►  recv ... release
//!   recv ◄────────────────────   responses  . 2 3 [4]   ◄── in place ──  reserve ... send
//! ```
//!
//! ```
//! use ringwork_isa::{Core, HostPort, Received, Result, Shared, Signals};
//!
//! /// Sends every request back.
//! async fn echo<C: Core>(core: &C, slots: Shared<u8>, headers: Shared<i32>, cells: Signals) -> Result<()> {
//!     let mut port = HostPort::open(core, slots, headers, cells).await?;
//!     while let Received::Data(request) = port.recv(core).await? {
//!         let reply = port.reserve(core, request.payload().len()).await?;
//!         core.copy(reply.place(), request.payload()).await?;
//!         port.send(core, reply).await?;
//!         port.release(core, request).await?;
//!     }
//!     port.stop(core).await
//! }
//! ```
//!
//! # Invariants
//! - **HST-1 (one writer).** Slots and headers of requests are written by the host until they are sent, those of
//!   responses by the kernel. `sent` is written by who sends, `freed` by who receives.
//! - **HST-2 (together).** Payload and header of a message are published by one release, that of `sent`. Messages
//!   are sent, and so received, in order.
//! - **HST-3 (no overwriting).** Message `i` is written when `freed > i - depth`. Messages may be given back in any
//!   order; `freed` moves past a message when it and all before it were given back.
//! - **HST-4 (patience).** Neither a full queue nor an empty one is an error: while the host attends to the port, the
//!   kernel waits as long as it takes. It hears at once that the host has dropped its end.

use crate::{
    Compare, Core, Direction, Element, Error, ErrorKind, Header, In, MessageKind, Notify, Out, PortCell,
    PortLayout, Result, Returns, Shared, Signal, Signals, Tile,
};
use std::future::Future;

/// A message from the host, in its slot until it is [released](HostPort::release).
#[derive(Debug)]
#[must_use = "its slot is free again only when it is released"]
pub struct Request<T> {
    number: i32,
    payload: In<T>,
}

impl<T: Element> Request<T> {
    /// Its payload, where the host put it.
    #[must_use]
    pub fn payload(&self) -> In<T> {
        self.payload
    }

    /// Messages that came before it, since the port was opened; wraps.
    #[must_use]
    pub fn number(&self) -> i32 {
        self.number
    }
}

/// A slot for a message to the host.
#[derive(Debug)]
#[must_use = "it holds up all that come after it until it is sent"]
pub struct Reply<T> {
    number: i32,
    place: Out<T>,
}

impl<T: Element> Reply<T> {
    /// Where its payload goes.
    #[must_use]
    pub fn place(&self) -> Out<T> {
        self.place
    }
}

/// What came from the host.
#[derive(Debug)]
#[must_use = "a request is to be released"]
pub enum Received<T> {
    /// A request.
    Data(Request<T>),
    /// The host reports something that went wrong on its side.
    Error(i32, Request<T>),
    /// No more requests will come.
    Stop,
}

/// The kernel's end of a port.
#[derive(Debug)]
pub struct HostPort<T> {
    slots: Shared<T>,
    headers: Shared<i32>,
    cells: Signals,
    layout: PortLayout,
    requests: Returns,
    /// Responses that were reserved, and those of them that were sent.
    reserved: i32,
    sent: i32,
    stopped: bool,
}

impl<T: Element> HostPort<T> {
    /// The end that belongs to these: what the host's end hands to a task. It goes on where the kernel before it
    /// ended; requests that that one did not release come again.
    ///
    /// # Errors
    /// If they do not belong together, or as [`Core::peek`].
    #[track_caller]
    pub fn open<C: Core>(
        core: &C,
        slots: Shared<T>,
        headers: Shared<i32>,
        cells: Signals,
    ) -> impl Future<Output = Result<HostPort<T>>> {
        let at = core.attribution().site();
        async move {
            let _caller = core.attribution().to(at);
            let depth = headers.len() / (2 * PortLayout::HEADER_LEN);
            let layout = PortLayout {
                depth: u32::try_from(depth).unwrap_or(u32::MAX),
                slot_len: slots.len().checked_div(2 * depth).unwrap_or(0),
            };
            if !layout.is_valid()
                || (layout.headers_len(), layout.slots_len()) != (headers.len(), slots.len())
                || cells.count != PortLayout::CELLS
            {
                return Err(Error::failed(format!(
                    "{} elements, {} numbers of headers and {} signals are no port; pass what the host's end gives",
                    slots.len(),
                    headers.len(),
                    cells.count
                )));
            }
            let freed = core.peek(cells.at(PortCell::RequestsFreed as u32)?).await?;
            let sent = core.peek(cells.at(PortCell::ResponsesSent as u32)?).await?;
            Ok(HostPort {
                slots,
                headers,
                cells,
                layout,
                requests: Returns::from(freed),
                reserved: sent,
                sent,
                stopped: false,
            })
        }
    }

    /// Elements that fit a message.
    #[must_use]
    pub fn slot_len(&self) -> usize {
        self.layout.slot_len
    }

    fn cell(&self, cell: PortCell) -> Result<Signal> {
        self.cells.at(cell as u32)
    }

    /// Waits for the next message of the host. After a stop there is only that.
    ///
    /// **Acquire**: sees everything that the host wrote before it sent the message.
    ///
    /// # Errors
    /// As [`Core::wait`]. The limit does not count while the host serves the port (HST-4).
    #[track_caller]
    pub fn recv<C: Core>(&mut self, core: &C) -> impl Future<Output = Result<Received<T>>> {
        let at = core.attribution().site();
        async move {
            let _caller = core.attribution().to(at);
            if self.stopped {
                return Ok(Received::Stop);
            }
            let needed = self.requests.next().wrapping_add(1);
            self.wait(core, PortCell::RequestsSent, needed).await?;
            self.take(core).await
        }
    }

    /// The next message of the host, if it is there.
    ///
    /// # Errors
    /// As [`Core::peek`].
    #[track_caller]
    pub fn try_recv<C: Core>(&mut self, core: &C) -> impl Future<Output = Result<Option<Received<T>>>> {
        let at = core.attribution().site();
        async move {
            let _caller = core.attribution().to(at);
            if self.stopped {
                return Ok(Some(Received::Stop));
            }
            let needed = self.requests.next().wrapping_add(1);
            let sent = self.cell(PortCell::RequestsSent)?;
            if !core.test(sent, Compare::Ge, needed).await? {
                return Ok(None);
            }
            self.take(core).await.map(Some)
        }
    }

    /// Takes a message that is there.
    async fn take<C: Core>(&mut self, core: &C) -> Result<Received<T>> {
        let (layout, number) = (self.layout, self.requests.next());
        let start = layout.header_start(Direction::Request, number);
        let words = self.headers.slice(start..start + PortLayout::HEADER_LEN)?;
        let words = core.load(words).await?;
        let header = Header::from_words(words.values(), &layout)
            .ok_or_else(|| Error::failed(format!("request {number} has no header that a host writes")))?;
        self.requests.take();
        let start = layout.payload_start(Direction::Request, number);
        let request = Request {
            number,
            payload: self.slots.slice(start..start + header.len)?.into(),
        };
        match header.kind {
            MessageKind::Data => Ok(Received::Data(request)),
            MessageKind::Error(code) => Ok(Received::Error(code, request)),
            MessageKind::Stop => {
                self.stopped = true;
                self.give_back(core, number).await?;
                Ok(Received::Stop)
            }
        }
    }

    /// Gives a request's slot back. In any order; the host gets slots back in order.
    ///
    /// **Release**: what the kernel read is read before the host writes there again.
    ///
    /// # Errors
    /// As [`Core::notify`].
    #[track_caller]
    pub fn release<C: Core>(&mut self, core: &C, request: Request<T>) -> impl Future<Output = Result<()>> {
        let at = core.attribution().site();
        async move {
            let _caller = core.attribution().to(at);
            self.give_back(core, request.number).await
        }
    }

    async fn give_back<C: Core>(&mut self, core: &C, number: i32) -> Result<()> {
        if self.requests.give_back(number) {
            let freed = self.cell(PortCell::RequestsFreed)?;
            core.notify(freed, Notify::Set(self.requests.freed())).await?;
        }
        Ok(())
    }

    /// Waits for a free slot for a message of `len` elements to the host, to be filled and then
    /// [sent](HostPort::send).
    ///
    /// # Errors
    /// If it is longer than a slot, or as [`recv`](HostPort::recv).
    #[track_caller]
    pub fn reserve<C: Core>(&mut self, core: &C, len: usize) -> impl Future<Output = Result<Reply<T>>> {
        let at = core.attribution().site();
        async move {
            let _caller = core.attribution().to(at);
            if len > self.layout.slot_len {
                return Err(Error::out_of_bounds(0, len as u64, self.layout.slot_len as u64));
            }
            let number = self.reserved;
            self.wait(core, PortCell::ResponsesFreed, self.layout.needs_freed(number))
                .await?;
            let start = self.layout.payload_start(Direction::Response, number);
            let place = self.slots.slice(start..start + len)?.into();
            self.reserved = number.wrapping_add(1);
            Ok(Reply { number, place })
        }
    }

    /// Sends a message whose slot was filled. In the order of reservation.
    ///
    /// **Release**: who receives it sees everything this kernel did before.
    ///
    /// # Errors
    /// If one that was reserved before was not sent, or as [`Core::notify`].
    #[track_caller]
    pub fn send<C: Core>(&mut self, core: &C, reply: Reply<T>) -> impl Future<Output = Result<()>> {
        let at = core.attribution().site();
        async move {
            let _caller = core.attribution().to(at);
            self.publish(core, MessageKind::Data, &reply).await
        }
    }

    /// Sends a message that says that something went wrong: a number, and what is in the slot.
    ///
    /// # Errors
    /// As [`send`](HostPort::send).
    #[track_caller]
    pub fn send_error<C: Core>(
        &mut self,
        core: &C,
        code: i32,
        reply: Reply<T>,
    ) -> impl Future<Output = Result<()>> {
        let at = core.attribution().site();
        async move {
            let _caller = core.attribution().to(at);
            self.publish(core, MessageKind::Error(code), &reply).await
        }
    }

    /// Says that no more responses will come. The last thing that a kernel does with its port.
    ///
    /// # Errors
    /// As [`reserve`](HostPort::reserve) and [`send`](HostPort::send).
    #[track_caller]
    pub fn stop<C: Core>(&mut self, core: &C) -> impl Future<Output = Result<()>> {
        let at = core.attribution().site();
        async move {
            let _caller = core.attribution().to(at);
            let reply = self.reserve(core, 0).await?;
            self.publish(core, MessageKind::Stop, &reply).await
        }
    }

    async fn publish<C: Core>(&mut self, core: &C, kind: MessageKind, reply: &Reply<T>) -> Result<()> {
        if reply.number != self.sent {
            return Err(Error::failed(format!(
                "response {} is sent before response {}; send them in the order they were reserved",
                reply.number, self.sent
            )));
        }
        let header = Header {
            kind,
            len: reply.place.len(),
        };
        let start = self.layout.header_start(Direction::Response, reply.number);
        let words = self.headers.slice(start..start + PortLayout::HEADER_LEN)?;
        core.store(words, &Tile::new(header.words().to_vec())).await?;
        self.sent = reply.number.wrapping_add(1);
        let sent = self.cell(PortCell::ResponsesSent)?;
        core.notify(sent, Notify::Set(self.sent)).await
    }

    /// Waits as long as it takes while the host attends (HST-4).
    async fn wait<C: Core>(&self, core: &C, cell: PortCell, needed: i32) -> Result<()> {
        let (signal, attended) = (self.cell(cell)?, self.cell(PortCell::Attended)?);
        loop {
            let Err(error) = core.wait(signal, Compare::Ge, needed).await else {
                return Ok(());
            };
            let is_late = matches!(error.kind(), ErrorKind::Deadline { .. });
            if !is_late || !core.test(attended, Compare::Ne, 0).await? {
                return Err(error);
            }
        }
    }
}
