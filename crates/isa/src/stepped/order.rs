//! The order in which a kernel makes its instructions and awaits them.
//!
//! `native` does an instruction when its future is made, platforms that step when it is awaited. A kernel that awaits each
//! instruction before it makes the next runs alike on both. Others are refused here, with both lines.

use crate::{Error, ErrorKind, Result};
use std::cell::Cell;

use super::At;

/// The instructions of one core.
#[derive(Debug, Default)]
pub(super) struct Order {
    /// Instructions made so far.
    made: Cell<u64>,
    /// Instructions awaited so far.
    awaited: Cell<u64>,
    /// The line of the oldest instruction that was made and not awaited.
    waiting: Cell<Option<At>>,
    /// The line of an instruction that was dropped without being awaited.
    dropped: Cell<Option<At>>,
}

impl Order {
    /// Takes note of an instruction whose future is made.
    #[inline]
    pub(super) fn made(&self, at: At) -> Made<'_> {
        let number = self.made.get();
        self.made.set(number + 1);
        if number == self.awaited.get() {
            self.waiting.set(Some(at));
        }
        Made {
            order: self,
            number,
            at,
            awaited: false,
        }
    }

    pub(super) fn check_all_awaited(&self) -> Result<()> {
        match self.dropped.get() {
            None => Ok(()),
            Some(at) => Err(never_awaited(at)),
        }
    }
}

/// An instruction whose future was made.
pub(super) struct Made<'a> {
    order: &'a Order,
    number: u64,
    at: At,
    awaited: bool,
}

impl Made<'_> {
    /// The instruction is awaited now: the line it belongs to.
    ///
    /// # Errors
    /// If another one was made before and is not awaited yet, or never was.
    #[inline]
    pub(super) fn await_now(mut self) -> Result<At> {
        self.awaited = true;
        let order = self.order;
        if self.number != order.awaited.get() {
            return Err(self.out_of_order());
        }
        order.awaited.set(self.number + 1);
        Ok(self.at)
    }

    #[cold]
    fn out_of_order(&self) -> Error {
        if let Some(at) = self.order.dropped.get() {
            return never_awaited(at);
        }
        let before = self.order.waiting.get().unwrap_or(self.at);
        ErrorKind::Failed {
            message: format!(
                "this instruction is awaited before the one that was made at {}:{}; await each instruction where it is made",
                before.file(),
                before.line()
            ),
            site: self.at.into(),
        }
        .into()
    }
}

impl Drop for Made<'_> {
    #[inline]
    fn drop(&mut self) {
        if !self.awaited && self.order.dropped.get().is_none() {
            self.order.dropped.set(Some(self.at));
        }
    }
}

#[cold]
fn never_awaited(at: At) -> Error {
    ErrorKind::Failed {
        message: "this instruction was made and never awaited; await each instruction where it is made"
            .into(),
        site: at.into(),
    }
    .into()
}
