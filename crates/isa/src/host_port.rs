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
//! - **HST-4 (patience).** A full queue is no error, nor is an empty one: while the host attends to the port, the
//!   kernel waits as long as it takes. It hears at once that the host has dropped its end.

use crate::{
    Compare, Core, Element, Error, ErrorKind, In, Notify, Out, Result, Shared, Signal, Signals, Tile,
};
use std::collections::VecDeque;
use std::future::Future;

/// What both ends know of a port: how it lies in its window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PortLayout {
    /// Messages that each direction holds; a power of two.
    pub depth: u32,
    /// Elements that fit one.
    pub slot_len: usize,
}

/// The signals of a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PortCell {
    /// Requests that the host has sent.
    RequestsSent,
    /// Requests that the kernel has given back.
    RequestsFreed,
    /// Responses that the kernel has sent.
    ResponsesSent,
    /// Responses that the host has given back.
    ResponsesFreed,
    /// Not 0 while the host attends to the port.
    Attended,
}

/// Which way a message goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// From the host to the kernel.
    Request,
    /// From the kernel to the host.
    Response,
}

impl PortLayout {
    /// Signals that a port has.
    pub const CELLS: u32 = 5;
    /// Numbers in a header.
    pub const HEADER_LEN: usize = 4;
    /// The most messages a direction may hold.
    pub const MAX_DEPTH: u32 = 1 << 16;

    /// Whether there can be such a port.
    #[must_use]
    pub fn is_valid(&self) -> bool {
        self.depth.is_power_of_two() && self.depth <= PortLayout::MAX_DEPTH
    }

    /// Elements of the slots of both directions.
    #[must_use]
    pub fn slots_len(&self) -> usize {
        (2 * self.depth as usize).saturating_mul(self.slot_len)
    }

    /// Numbers in the headers of both directions.
    #[must_use]
    pub fn headers_len(&self) -> usize {
        2 * self.depth as usize * PortLayout::HEADER_LEN
    }

    /// Which slot a message goes through. Depth is a power of two, so this goes on across the wrap.
    fn slot(&self, direction: Direction, number: i32) -> usize {
        let first = match direction {
            Direction::Request => 0,
            Direction::Response => self.depth,
        };
        (first + number.cast_unsigned() % self.depth) as usize
    }

    /// Where the payload of a message begins among the slots.
    #[must_use]
    pub fn payload_start(&self, direction: Direction, number: i32) -> usize {
        self.slot(direction, number) * self.slot_len
    }

    /// Where the header of a message begins among the headers.
    #[must_use]
    pub fn header_start(&self, direction: Direction, number: i32) -> usize {
        self.slot(direction, number) * PortLayout::HEADER_LEN
    }

    /// What `freed` must be before message `number` may be written (HST-3).
    #[must_use]
    pub fn needs_freed(&self, number: i32) -> i32 {
        number.wrapping_add(1).wrapping_sub(self.depth.cast_signed())
    }
}

/// What a message is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MessageKind {
    /// Payload.
    Data,
    /// No more will come this way.
    Stop,
    /// Something went wrong: a number that both ends understand, and a payload if there is more to say.
    Error(i32),
}

/// The header of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// What it is.
    pub kind: MessageKind,
    /// Elements of its payload.
    pub len: usize,
}

impl Header {
    /// As it lies in the window.
    #[must_use]
    pub fn words(&self) -> [i32; PortLayout::HEADER_LEN] {
        let (kind, code) = match self.kind {
            MessageKind::Data => (0, 0),
            MessageKind::Stop => (1, 0),
            MessageKind::Error(code) => (2, code),
        };
        [kind, i32::try_from(self.len).unwrap_or(i32::MAX), code, 0]
    }

    /// From a window. `None` if it is none, or longer than a slot: whoever wrote it is no port.
    #[must_use]
    pub fn from_words(words: &[i32], layout: &PortLayout) -> Option<Header> {
        let &[kind, len, code, _] = words else { return None };
        let kind = match kind {
            0 => MessageKind::Data,
            1 => MessageKind::Stop,
            2 => MessageKind::Error(code),
            _ => return None,
        };
        let len = usize::try_from(len).ok().filter(|len| *len <= layout.slot_len)?;
        Some(Header { kind, len })
    }
}

/// Messages that were taken and not yet given back: in any order by who used them, in order to who sends (HST-3).
#[derive(Clone, Debug, Default)]
pub struct Returns {
    /// The oldest that was not given back.
    first: i32,
    /// Which of those from there on were.
    back: VecDeque<bool>,
}

impl Returns {
    /// None under way; the next is number `first`.
    #[must_use]
    pub fn from(first: i32) -> Returns {
        Returns {
            first,
            back: VecDeque::new(),
        }
    }

    /// The number of the next message.
    #[must_use]
    pub fn next(&self) -> i32 {
        self.first
            .wrapping_add(i32::try_from(self.back.len()).unwrap_or(i32::MAX))
    }

    /// What `freed` is.
    #[must_use]
    pub fn freed(&self) -> i32 {
        self.first
    }

    /// The next message was taken.
    pub fn take(&mut self) -> i32 {
        let number = self.next();
        self.back.push_back(false);
        number
    }

    /// A message is not needed any more; whether `freed` has moved.
    pub fn give_back(&mut self, number: i32) -> bool {
        let at = usize::try_from(number.wrapping_sub(self.first)).unwrap_or(usize::MAX);
        if let Some(back) = self.back.get_mut(at) {
            *back = true;
        }
        let before = self.first;
        while self.back.front() == Some(&true) {
            self.back.pop_front();
            self.first = self.first.wrapping_add(1);
        }
        self.first != before
    }
}

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
    /// As [`Core::wait`], but for a limit that passes while the host attends to the port (HST-4).
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

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const LAYOUT: PortLayout = PortLayout {
        depth: 4,
        slot_len: 10,
    };

    #[test]
    fn headers_survive_the_window_and_nonsense_is_refused() {
        for kind in [MessageKind::Data, MessageKind::Stop, MessageKind::Error(-7)] {
            let header = Header { kind, len: 10 };
            assert_eq!(Header::from_words(&header.words(), &LAYOUT), Some(header));
        }
        for words in [[3, 0, 0, 0], [-1, 0, 0, 0], [0, 11, 0, 0], [0, -1, 0, 0]] {
            assert_eq!(Header::from_words(&words, &LAYOUT), None, "{words:?}");
        }
        assert_eq!(Header::from_words(&[0, 0], &LAYOUT), None);
    }

    #[test]
    fn slots_of_the_two_directions_are_apart_and_go_on_across_the_wrap() {
        let mut starts: Vec<_> = (i32::MAX - 1..=i32::MAX)
            .chain(i32::MIN..=i32::MIN + 1)
            .flat_map(|number| {
                [Direction::Request, Direction::Response].map(|way| LAYOUT.payload_start(way, number))
            })
            .collect();
        starts.sort_unstable();
        assert_eq!(starts, [0, 10, 20, 30, 40, 50, 60, 70]);
        assert_eq!(LAYOUT.slots_len(), 80);
    }

    proptest! {
        #[test]
        fn given_back_in_any_order_freed_in_order(first: i32, order in Just((0..12).collect::<Vec<i32>>()).prop_shuffle()) {
            let mut returns = Returns::from(first);
            for i in 0..12 {
                prop_assert_eq!(returns.take(), first.wrapping_add(i));
            }
            let mut back = [false; 12];
            for i in order {
                let before = returns.freed();
                back[usize::try_from(i).unwrap()] = true;
                let moved = returns.give_back(first.wrapping_add(i));
                let all = back.iter().take_while(|back| **back).count();
                prop_assert_eq!(returns.freed(), first.wrapping_add(i32::try_from(all).unwrap()));
                prop_assert_eq!(moved, returns.freed() != before);
            }
            prop_assert_eq!(returns.next(), returns.freed());
        }
    }
}
