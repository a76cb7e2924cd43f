//! What a caller gave, its element type forgotten, and the calls that find the type again.
//!
//! The calls of a [`Communicator`](super::Communicator) are generic, and thin; what they do is not: it is compiled for every
//! element type once, in this crate, and not again in every program that calls it.

use super::buffer::{Held, Input, Output};
use super::error::Result;
use super::station::Station;
use crate::Algorithm;
use ringwork_isa::{Dtype, Element, ReduceOp, with_dtype};

/// Where elements of some type are that a call reads.
pub(super) enum AnyInput<'a> {
    /// Bytes of this process's memory, aligned for the type.
    Own(Dtype, &'a [u8]),
    Window(&'a Held),
}

/// Where elements of some type are that a call writes.
pub(super) enum AnyOutput<'a> {
    /// Bytes of this process's memory, aligned for the type.
    Own(Dtype, &'a mut [u8]),
    Window(&'a Held),
}

impl<'a, T: Element> From<Input<'a, T>> for AnyInput<'a> {
    #[inline(always)]
    fn from(input: Input<'a, T>) -> AnyInput<'a> {
        match input {
            Input::Own(slice) => AnyInput::Own(T::DTYPE, bytemuck::cast_slice(slice)),
            Input::Window(buffer) => AnyInput::Window(buffer.held()),
        }
    }
}

impl<'a, T: Element> From<Output<'a, T>> for AnyOutput<'a> {
    #[inline(always)]
    fn from(output: Output<'a, T>) -> AnyOutput<'a> {
        match output {
            Output::Own(slice) => AnyOutput::Own(T::DTYPE, bytemuck::cast_slice_mut(slice)),
            Output::Window(buffer) => AnyOutput::Window(buffer.held()),
        }
    }
}

impl AnyInput<'_> {
    #[inline(always)]
    fn dtype(&self) -> Dtype {
        match self {
            AnyInput::Own(dtype, _) => *dtype,
            AnyInput::Window(held) => held.dtype(),
        }
    }

    /// Number of elements.
    pub(super) fn len(&self) -> usize {
        match self {
            AnyInput::Own(dtype, bytes) => bytes.len() / dtype.bytes(),
            AnyInput::Window(held) => held.len(),
        }
    }

    /// The communicator it belongs to, if any.
    #[inline(always)]
    pub(super) fn home(&self) -> Option<u64> {
        match self {
            AnyInput::Own(..) => None,
            AnyInput::Window(held) => Some(held.home()),
        }
    }

    pub(super) fn in_window(&self) -> bool {
        matches!(self, AnyInput::Window(_))
    }
}

impl AnyOutput<'_> {
    #[inline(always)]
    fn dtype(&self) -> Dtype {
        match self {
            AnyOutput::Own(dtype, _) => *dtype,
            AnyOutput::Window(held) => held.dtype(),
        }
    }

    /// Number of elements.
    pub(super) fn len(&self) -> usize {
        match self {
            AnyOutput::Own(dtype, bytes) => bytes.len() / dtype.bytes(),
            AnyOutput::Window(held) => held.len(),
        }
    }

    /// The communicator it belongs to, if any.
    #[inline(always)]
    pub(super) fn home(&self) -> Option<u64> {
        match self {
            AnyOutput::Own(..) => None,
            AnyOutput::Window(held) => Some(held.home()),
        }
    }

    pub(super) fn in_window(&self) -> bool {
        matches!(self, AnyOutput::Window(_))
    }
}

/// The calls of a station: each checks whose window its buffers are in, finds their type, and is done by the function of
/// [`operations`](super::operations) for it.
macro_rules! calls {
    ($($name:ident as $typed:ident($($buffer:ident: $Any:ty),+; $($argument:ident: $Argument:ty),*);)+) => {
        impl Station {$(
            pub(super) fn $name(&self, $($buffer: $Any,)+ $($argument: $Argument),*) -> Result<()> {
                $(self.check_home(stringify!($name), $buffer.home())?;)+
                let [dtype, ..] = [$($buffer.dtype()),+];
                with_dtype!(dtype, T => self.$typed::<T>($($buffer,)+ $($argument),*))
            }
        )+}
    };
}

calls! {
    all_reduce as all_reduce_of(data: AnyOutput<'_>; op: ReduceOp, asked: Option<Algorithm>);
    all_reduce_into as all_reduce_into_of(input: AnyInput<'_>, output: AnyOutput<'_>; op: ReduceOp);
    all_gather as all_gather_of(input: AnyInput<'_>, output: AnyOutput<'_>;);
    all_gather_in_place as all_gather_in_place_of(data: AnyOutput<'_>;);
    reduce_scatter as reduce_scatter_of(input: AnyInput<'_>, output: AnyOutput<'_>; op: ReduceOp);
    reduce_scatter_in_place as reduce_scatter_in_place_of(data: AnyOutput<'_>; op: ReduceOp);
    broadcast as broadcast_of(data: AnyOutput<'_>; root: u32);
    reduce as reduce_of(data: AnyOutput<'_>; op: ReduceOp, root: u32);
    gather as gather_of(input: AnyInput<'_>, output: AnyOutput<'_>; root: u32);
    scatter as scatter_of(input: AnyInput<'_>, output: AnyOutput<'_>; root: u32);
    all_to_all as all_to_all_of(input: AnyInput<'_>, output: AnyOutput<'_>;);
    all_to_all_in_place as all_to_all_in_place_of(data: AnyOutput<'_>;);
    all_to_all_v as all_to_all_v_of(input: AnyInput<'_>, output: AnyOutput<'_>; counts: &[usize]);
    send as send_of(data: AnyInput<'_>; to: u32);
    recv as recv_of(data: AnyOutput<'_>; from: u32);
    exchange as exchange_of(input: AnyInput<'_>, output: AnyOutput<'_>; to: u32, from: u32);
}
