//! Buffers whose element type is a value, and whose memory another language owns.
//!
//! A binding describes a call as a [`Call`] and its data as [`Operands`], and makes the call with
//! [`Communicator::call`](crate::Communicator::call) or begins it with
//! [`Communicator::begin_call`](crate::Communicator::begin_call).
//!
//! ```no_run
//! use ringwork_communicator::{Call, Communicator, Operands, RawBuffer};
//! use ringwork_isa::{Dtype, ReduceOp};
//!
//! # fn main() -> Result<(), ringwork_communicator::Error> {
//! let comm = Communicator::from_env()?;
//! let mut data = [1f32, 2.0];
//! // SAFETY: `data` outlives the buffer, and nobody else uses it meanwhile (RAW-1).
//! let buffer = unsafe { RawBuffer::new(Dtype::F32, data.as_mut_ptr().cast(), data.len(), true) };
//! comm.call(&Call::AllReduce(ReduceOp::Sum), &Operands::in_place(buffer))?;
//! # Ok(())
//! # }
//! ```
//!
//! # Invariants
//! - **RAW-1 (mapped).** The bytes of a [`RawBuffer`] are mapped, and no Rust reference to them is used, as long as
//!   the `RawBuffer` exists. The caller that makes one guarantees that. A pending call holds its operands, and drops
//!   them before their owner.
//! - **RAW-2 (apart).** The bytes that a call reads and those that it writes are the same, if the call can be made in
//!   place, or disjoint.
//! - **RAW-3 (read-only stays so).** Memory that is not writable is used as an input only.

use crate::buffer::Held;
use crate::erased::{AnyInput, AnyOutput};
use crate::error::{Error, Result};
use ringwork_isa::{Collective, Dtype, ReduceOp};
use ringwork_native::{LentBytes, LentBytesMut};
use std::ops::Range;
use std::sync::Arc;

/// Elements given by an address, a type and a number.
#[derive(Debug)]
pub struct RawBuffer {
    dtype: Dtype,
    pointer: *mut u8,
    bytes: usize,
    writable: bool,
}

// SAFETY: it is an address. Whoever made it guarantees the memory behind it (RAW-1), on every thread.
unsafe impl Send for RawBuffer {}
// SAFETY: as above; a shared `RawBuffer` gives out the same address.
unsafe impl Sync for RawBuffer {}

impl RawBuffer {
    /// `len` elements at `pointer`. If there are none, the address may be anything. An address that is not aligned for the
    /// elements is refused by the call that uses it.
    ///
    /// # Safety
    /// RAW-1; and if it is `writable`, that the memory may be written.
    #[must_use]
    pub unsafe fn new(dtype: Dtype, pointer: *mut u8, len: usize, writable: bool) -> RawBuffer {
        let bytes = len.saturating_mul(dtype.bytes());
        RawBuffer {
            dtype,
            pointer,
            bytes,
            writable,
        }
    }
}

/// Elements in the communicator's window, with a type that is a value; see [`WindowBuffer`](crate::WindowBuffer). A
/// clone is another handle to the same memory, which lives until the last handle is dropped, even if the communicator
/// is gone.
#[derive(Clone, Debug)]
pub struct AnyWindow(Arc<Held>);

impl AnyWindow {
    pub(crate) fn new(held: Held) -> AnyWindow {
        AnyWindow(Arc::new(held))
    }

    /// The type of the elements.
    #[must_use]
    pub fn dtype(&self) -> Dtype {
        self.0.dtype()
    }

    /// How many.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether it has no elements.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// `len` elements of type `dtype`, from byte `offset` of this memory on: another handle to that part of it. `None` if
    /// they do not lie inside, or are not aligned.
    #[must_use]
    pub fn part(&self, dtype: Dtype, offset: usize, len: usize) -> Option<AnyWindow> {
        let part = self.0.part(dtype, offset as u64, len as u64)?;
        Some(AnyWindow::new(part))
    }

    /// The address of this rank's elements. Peers write them during calls and never between calls (WIN-2). A read
    /// during a call returns old values, new ones, or a mix.
    #[must_use]
    pub fn pointer(&self) -> *mut u8 {
        self.0.pointer()
    }
}

/// One operand of a call.
#[derive(Debug)]
pub enum Operand {
    /// In memory of this process.
    Raw(RawBuffer),
    /// In the window.
    Window(AnyWindow),
    /// In memory of this process that may lie in the window. The call uses it there if every rank's does, at the same
    /// place, and as memory of the process otherwise. The ranks agree about that first, in a call on 64 bytes; so every
    /// rank must give such an operand, be it without a window.
    Either(RawBuffer, Option<AnyWindow>),
}

impl From<RawBuffer> for Operand {
    fn from(buffer: RawBuffer) -> Operand {
        Operand::Raw(buffer)
    }
}

impl From<AnyWindow> for Operand {
    fn from(window: AnyWindow) -> Operand {
        Operand::Window(window)
    }
}

impl Operand {
    fn dtype(&self) -> Dtype {
        match self {
            Operand::Raw(buffer) | Operand::Either(buffer, _) => buffer.dtype,
            Operand::Window(window) => window.dtype(),
        }
    }

    /// Where in the window it may lie, on every rank alike.
    fn place(&self) -> [i64; 2] {
        match self {
            Operand::Either(_, Some(window)) => window.0.place(),
            _ => [-1; 2],
        }
    }

    /// It as one of the other two.
    fn settled(&self, in_window: bool) -> Operand {
        match self {
            Operand::Either(_, Some(window)) | Operand::Window(window) if in_window => {
                Operand::Window(window.clone())
            }
            Operand::Window(window) => Operand::Window(window.clone()),
            // It lives no longer than `self`, to which RAW-1 applies.
            Operand::Raw(buffer) | Operand::Either(buffer, _) => Operand::Raw(RawBuffer { ..*buffer }),
        }
    }

    fn addresses(&self) -> Range<usize> {
        let (start, bytes) = match self {
            Operand::Raw(buffer) | Operand::Either(buffer, _) => (buffer.pointer as usize, buffer.bytes),
            Operand::Window(window) => (
                window.pointer() as usize,
                window.len().saturating_mul(window.dtype().bytes()),
            ),
        };
        start..start.saturating_add(bytes)
    }

    #[inline(always)]
    fn input(&self) -> AnyInput<'_> {
        match self {
            // SAFETY: mapped as long as `self` exists, which the result borrows (RAW-1).
            Operand::Raw(buffer) | Operand::Either(buffer, _) => AnyInput::Own(buffer.dtype, unsafe {
                LentBytes::from_raw(buffer.pointer, buffer.bytes)
            }),
            Operand::Window(window) => AnyInput::Window(&window.0),
        }
    }

    #[inline(always)]
    fn output(&self, call: &Call) -> Result<AnyOutput<'_>> {
        match self {
            Operand::Raw(buffer) | Operand::Either(buffer, _) if !buffer.writable => Err(Error::arguments(
                call.name(),
                "the buffer to be written is read-only; give a copy of it",
            )),
            // SAFETY: mapped as long as `self` exists, which the result borrows, and writable (RAW-1, RAW-3).
            Operand::Raw(buffer) | Operand::Either(buffer, _) => Ok(AnyOutput::Own(buffer.dtype, unsafe {
                LentBytesMut::from_raw(buffer.pointer, buffer.bytes)
            })),
            Operand::Window(window) => Ok(AnyOutput::Window(&window.0)),
        }
    }
}

/// The data of a call.
#[derive(Debug, Default)]
pub struct Operands {
    input: Option<Operand>,
    output: Option<Operand>,
    /// Whether both are the same bytes.
    same: bool,
}

impl Operands {
    /// None: a barrier.
    #[must_use]
    pub fn none() -> Operands {
        Operands::default()
    }

    /// Data that is read and written where it is.
    #[must_use]
    pub fn in_place(data: impl Into<Operand>) -> Operands {
        let output = Some(data.into());
        Operands {
            output,
            ..Operands::default()
        }
    }

    /// Data that is only read: of a send, or of a gather on a rank that is not the root.
    #[must_use]
    pub fn reading(data: impl Into<Operand>) -> Operands {
        let input = Some(data.into());
        Operands {
            input,
            ..Operands::default()
        }
    }

    /// Data that is read, and data that is written (RAW-2).
    ///
    /// # Errors
    /// If they overlap and are not the same.
    pub fn between(input: impl Into<Operand>, output: impl Into<Operand>) -> Result<Operands> {
        let (input, output) = (input.into(), output.into());
        let (x, y) = (input.addresses(), output.addresses());
        let same = x == y && !x.is_empty();
        if !same && x.start < y.end && y.start < x.end && !x.is_empty() && !y.is_empty() {
            let problem =
                "the input and the output overlap; they must be the same memory or have no byte in common";
            return Err(Error::arguments("operands", problem));
        }
        let (input, output) = (Some(input), Some(output));
        Ok(Operands { input, output, same })
    }

    /// Type of the elements, if there are any operands.
    fn dtype(&self) -> Dtype {
        let any = self.output.as_ref().or(self.input.as_ref());
        any.map_or(Dtype::U8, Operand::dtype)
    }

    /// An empty input, for a rank that is not the root and gave none.
    #[inline(always)]
    pub(crate) fn input(&self) -> AnyInput<'_> {
        match &self.input {
            Some(input) => input.input(),
            None => AnyInput::Own(self.dtype(), (&[][..]).into()),
        }
    }

    /// An empty output, for a rank that is not the root and gave none.
    #[inline(always)]
    pub(crate) fn output(&self, call: &Call) -> Result<AnyOutput<'_>> {
        match &self.output {
            Some(output) => output.output(call),
            None => Ok(AnyOutput::Own(self.dtype(), (&mut [][..]).into())),
        }
    }

    /// Whether the ranks must agree where the data is.
    #[inline(always)]
    pub(crate) fn may_be_either(&self) -> bool {
        let either = |operand: &Option<Operand>| matches!(operand, Some(Operand::Either(..)));
        either(&self.output) || either(&self.input)
    }

    /// The places of the input and of the output in the window, on every rank alike.
    pub(crate) fn places(&self) -> [i64; 4] {
        let place = |operand: &Option<Operand>| operand.as_ref().map_or([-1; 2], Operand::place);
        let ([a, b], [c, d]) = (place(&self.input), place(&self.output));
        [a, b, c, d]
    }

    /// These operands, each in the window or not.
    pub(crate) fn settled(&self, [input, output]: [bool; 2]) -> Operands {
        Operands {
            input: self.input.as_ref().map(|operand| operand.settled(input)),
            output: self.output.as_ref().map(|operand| operand.settled(output)),
            same: self.same,
        }
    }

    /// Whether the call is in place: it has one buffer, or both are the same.
    pub(crate) fn are_one(&self) -> bool {
        self.same || self.input.is_none()
    }

    pub(crate) fn are_same(&self) -> bool {
        self.same
    }
}

/// A call, as the method of [`Communicator`](crate::Communicator) with that name.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the fields are what the methods' parameters are")]
#[non_exhaustive]
pub enum Call {
    /// `all_reduce`, or `all_reduce_into` with two operands.
    AllReduce(ReduceOp),
    /// `all_gather`, or `all_gather_in_place` with one operand.
    AllGather,
    /// `reduce_scatter`, or `reduce_scatter_in_place` with one operand.
    ReduceScatter(ReduceOp),
    /// `broadcast`, in place.
    Broadcast { root: u32 },
    /// `reduce`, in place.
    Reduce { op: ReduceOp, root: u32 },
    /// `gather`; ranks that are not the root may leave the output out.
    Gather { root: u32 },
    /// `scatter`; ranks that are not the root may leave the input out.
    Scatter { root: u32 },
    /// `all_to_all`, or `all_to_all_in_place` with one operand.
    AllToAll,
    /// `all_to_all_v`.
    AllToAllV { sends: Vec<usize>, receives: Vec<usize> },
    /// `send`: the input.
    Send { to: u32 },
    /// `recv`: the output.
    Recv { from: u32 },
    /// `exchange`.
    Exchange { to: u32, from: u32 },
    /// `barrier`, without operands.
    Barrier,
    /// `collective`, or `collective_in_place` with one operand.
    Collective {
        collective: Collective,
        op: ReduceOp,
        root: u32,
    },
}

impl Call {
    /// The method's name.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Call::AllReduce(_) => "all_reduce",
            Call::AllGather => "all_gather",
            Call::ReduceScatter(_) => "reduce_scatter",
            Call::Broadcast { .. } => "broadcast",
            Call::Reduce { .. } => "reduce",
            Call::Gather { .. } => "gather",
            Call::Scatter { .. } => "scatter",
            Call::AllToAll => "all_to_all",
            Call::AllToAllV { .. } => "all_to_all_v",
            Call::Send { .. } => "send",
            Call::Recv { .. } => "recv",
            Call::Exchange { .. } => "exchange",
            Call::Barrier => "barrier",
            Call::Collective { collective, .. } => collective.name(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn over(bytes: &mut [u8], range: Range<usize>, writable: bool) -> RawBuffer {
        let part = &mut bytes[range];
        // SAFETY: the tests drop the buffer before the bytes, and use neither to access memory (RAW-1).
        unsafe { RawBuffer::new(Dtype::U8, part.as_mut_ptr(), part.len(), writable) }
    }

    #[test]
    fn operands_that_overlap_are_refused_and_the_same_or_disjoint_ones_are_not() {
        let mut bytes = [0u8; 16];
        let pair = |bytes: &mut [u8], x: Range<usize>, y: Range<usize>| {
            Operands::between(over(bytes, x, true), over(bytes, y, true))
        };
        assert!(pair(&mut bytes, 0..4, 2..10).is_err());
        assert!(pair(&mut bytes, 2..10, 0..4).is_err());
        assert!(pair(&mut bytes, 0..16, 4..5).is_err());
        assert!(pair(&mut bytes, 0..4, 4..8).is_ok_and(|pair| !pair.are_one()));
        assert!(pair(&mut bytes, 3..7, 3..7).is_ok_and(|pair| pair.are_one()));
        assert!(
            pair(&mut bytes, 3..3, 0..16).is_ok_and(|pair| !pair.are_one()),
            "nothing overlaps nothing"
        );
    }

    #[test]
    fn what_is_read_only_becomes_an_input_only() {
        let mut bytes = [0u8; 4];
        let data = Operands::in_place(over(&mut bytes, 0..4, false));
        let error = data.output(&Call::AllGather).err().map(|error| error.to_string());
        assert!(error.is_some_and(|error| error.contains("read-only")));
        assert_eq!(Operands::reading(over(&mut bytes, 0..4, false)).input().len(), 4);
    }
}
