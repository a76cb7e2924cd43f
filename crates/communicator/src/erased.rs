//! A caller's buffers with their element type as a value.
//!
//! The calls of a [`Communicator`](crate::Communicator) are generic and thin. Their implementation is compiled once,
//! in this crate.

use crate::buffer::{Held, Input, Output};
use ringwork_isa::{Dtype, Element};
use ringwork_native::{LentBytes, LentBytesMut};

/// The elements that a call reads; their type is a value.
pub(crate) enum AnyInput<'a> {
    /// Bytes of this process's memory, aligned for the type.
    Own(Dtype, LentBytes<'a>),
    Window(&'a Held),
}

/// The elements that a call writes; their type is a value.
pub(crate) enum AnyOutput<'a> {
    /// Bytes of this process's memory, aligned for the type.
    Own(Dtype, LentBytesMut<'a>),
    Window(&'a Held),
}

impl<'a, T: Element> From<Input<'a, T>> for AnyInput<'a> {
    #[inline(always)]
    fn from(input: Input<'a, T>) -> AnyInput<'a> {
        match input {
            Input::Own(slice) => AnyInput::Own(T::DTYPE, bytemuck::cast_slice::<_, u8>(slice).into()),
            Input::Window(buffer) => AnyInput::Window(buffer.held()),
        }
    }
}

impl<'a, T: Element> From<Output<'a, T>> for AnyOutput<'a> {
    #[inline(always)]
    fn from(output: Output<'a, T>) -> AnyOutput<'a> {
        match output {
            Output::Own(slice) => AnyOutput::Own(T::DTYPE, bytemuck::cast_slice_mut::<_, u8>(slice).into()),
            Output::Window(buffer) => AnyOutput::Window(buffer.held()),
        }
    }
}

impl AnyInput<'_> {
    #[inline(always)]
    pub(crate) fn dtype(&self) -> Dtype {
        match self {
            AnyInput::Own(dtype, _) => *dtype,
            AnyInput::Window(held) => held.dtype(),
        }
    }

    /// Number of elements.
    pub(crate) fn len(&self) -> usize {
        match self {
            AnyInput::Own(dtype, bytes) => bytes.len() / dtype.bytes(),
            AnyInput::Window(held) => held.len(),
        }
    }

    /// Bytes of all elements.
    pub(crate) fn bytes(&self) -> usize {
        self.len().saturating_mul(self.dtype().bytes())
    }

    /// The communicator it belongs to, if any.
    #[inline(always)]
    pub(crate) fn home(&self) -> Option<u64> {
        match self {
            AnyInput::Own(..) => None,
            AnyInput::Window(held) => Some(held.home()),
        }
    }

    pub(crate) fn in_window(&self) -> bool {
        matches!(self, AnyInput::Window(_))
    }
}

impl AnyOutput<'_> {
    /// The same elements, to be read first.
    pub(crate) fn as_input(&self) -> AnyInput<'_> {
        match self {
            AnyOutput::Own(dtype, bytes) => AnyInput::Own(*dtype, bytes.as_input()),
            AnyOutput::Window(held) => AnyInput::Window(held),
        }
    }

    #[inline(always)]
    pub(crate) fn dtype(&self) -> Dtype {
        match self {
            AnyOutput::Own(dtype, _) => *dtype,
            AnyOutput::Window(held) => held.dtype(),
        }
    }

    /// Number of elements.
    pub(crate) fn len(&self) -> usize {
        match self {
            AnyOutput::Own(dtype, bytes) => bytes.len() / dtype.bytes(),
            AnyOutput::Window(held) => held.len(),
        }
    }

    /// Bytes of all elements.
    pub(crate) fn bytes(&self) -> usize {
        self.len().saturating_mul(self.dtype().bytes())
    }

    /// The communicator it belongs to, if any.
    #[inline(always)]
    pub(crate) fn home(&self) -> Option<u64> {
        match self {
            AnyOutput::Own(..) => None,
            AnyOutput::Window(held) => Some(held.home()),
        }
    }

    pub(crate) fn in_window(&self) -> bool {
        matches!(self, AnyOutput::Window(_))
    }
}
