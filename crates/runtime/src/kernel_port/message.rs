//! The messages of a port: a slot to write a request into, and a response that has arrived.

use super::{Inner, KernelPort};
use crate::error::{Error, Result};
use ringwork_isa::{Device, Direction, Element, Header, MessageKind, PortCell};
use std::sync::Arc;

/// A free slot for a request.
#[derive(Debug)]
#[must_use = "nothing is sent until it is"]
pub struct Slot<'p, T> {
    pub(super) port: &'p mut KernelPort<T>,
    pub(super) len: usize,
}

impl<T: Element> Slot<'_, T> {
    /// Elements of the request.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether it has none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Writes some elements of the request, from element `at` on.
    ///
    /// # Errors
    /// If they are not all inside.
    pub fn write(&self, at: usize, data: &[T]) -> Result<()> {
        let Inner {
            layout,
            slots,
            device,
            ..
        } = &*self.port.inner;
        inside(*device, self.len, at, data.len())?;
        let start = layout.payload_start(Direction::Request, self.port.sent);
        slots.poke_at(start + at, data)
    }

    /// Sends it.
    ///
    /// # Errors
    /// [`Error::Closed`] and the like.
    pub fn send(self) -> Result<()> {
        self.publish(MessageKind::Data)
    }

    pub(super) fn publish(self, kind: MessageKind) -> Result<()> {
        let Slot { port, len } = self;
        let (inner, number) = (&port.inner, port.sent);
        let start = inner.layout.header_start(Direction::Request, number);
        inner.headers.poke_at(start, &Header { kind, len }.words())?;
        let next = number.wrapping_add(1);
        inner.notify(&inner.node().lock(), PortCell::RequestsSent, next)?;
        port.sent = next;
        Ok(())
    }
}

/// A response. It stays in its slot until this handle is dropped. Handles may be dropped in any order; the kernel
/// gets the slots back in order.
#[derive(Debug)]
pub struct Message<T: Element> {
    pub(super) inner: Arc<Inner<T>>,
    pub(super) number: i32,
    pub(super) len: usize,
}

impl<T: Element> Message<T> {
    /// Elements of its payload.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether it has none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Messages that came before it, since the port was opened; wraps.
    #[must_use]
    pub fn number(&self) -> i32 {
        self.number
    }

    /// Its payload.
    ///
    /// # Errors
    /// If the node was closed.
    pub fn read(&self) -> Result<Vec<T>> {
        let mut data = vec![T::zeroed(); self.len];
        self.read_at(0, &mut data)?;
        Ok(data)
    }

    /// Some elements of its payload, from element `at` on.
    ///
    /// # Errors
    /// If they are not all inside, or the node was closed.
    pub fn read_at(&self, at: usize, data: &mut [T]) -> Result<()> {
        let Inner {
            layout,
            slots,
            device,
            ..
        } = &*self.inner;
        inside(*device, self.len, at, data.len())?;
        let start = layout.payload_start(Direction::Response, self.number);
        slots.peek_at(start + at, data)
    }
}

impl<T: Element> Drop for Message<T> {
    fn drop(&mut self) {
        let mut responses = self.inner.responses();
        if responses.give_back(self.number) {
            // If the signal cannot be set any more, the kernel does not wait for the slot either.
            let state = self.inner.node().lock();
            let _ = self
                .inner
                .notify(&state, PortCell::ResponsesFreed, responses.freed());
        }
    }
}

pub(super) fn inside(device: Device, have: usize, at: usize, len: usize) -> Result<()> {
    match at.checked_add(len) {
        Some(end) if end <= have => Ok(()),
        end => Err(Error::Length {
            what: format!("a message of the port to chip {device}"),
            have,
            asked: end.unwrap_or(usize::MAX),
        }),
    }
}
