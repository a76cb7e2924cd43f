//! Data that a collective works on: in this process's own memory, or in the communicator's window.

use crate::layout::region;
use ringwork_isa::{Dtype, Element, Rank, Shared, Span};
use ringwork_native::segment::Attached;
use std::marker::PhantomData;
use std::sync::Arc;

/// Elements in the communicator's window: collectives use them where they are, without a copy.
///
/// Peers can see them, so there is no slice of them: values are copied in and out. Every rank must allocate, and
/// drop, the same buffers; the memory is freed when the last rank has dropped its handle.
#[derive(Debug)]
pub struct WindowBuffer<T> {
    held: Held,
    elements: PhantomData<T>,
}

/// What a window buffer has in the window, whatever its type.
#[derive(Debug)]
pub(crate) struct Held {
    segment: Arc<Attached>,
    /// The nonce of the communicator's segment: the communicator that this buffer belongs to.
    home: u64,
    span: Span,
}

impl Held {
    pub(crate) fn new(segment: Arc<Attached>, home: u64, me: Rank, (dtype, len): (Dtype, usize)) -> Held {
        let span = region(&segment.layout(), me, dtype, (0, len as u64)).span();
        Held { segment, home, span }
    }

    /// The address of this rank's elements in this process.
    pub(crate) fn pointer(&self) -> *mut u8 {
        let mut mine = self.span;
        mine.rank = mine.me;
        // The region was made by this window. A dangling pointer is right for a buffer without elements.
        self.segment
            .resolve(&mine)
            .unwrap_or(std::ptr::without_provenance_mut(self.span.dtype.bytes()))
    }

    pub(crate) fn home(&self) -> u64 {
        self.home
    }

    pub(crate) fn dtype(&self) -> Dtype {
        self.span.dtype
    }

    /// Number of elements.
    pub(crate) fn len(&self) -> usize {
        // The length was a `usize` when the buffer was allocated.
        usize::try_from(self.span.len).unwrap_or(usize::MAX)
    }

    #[inline(always)]
    pub(crate) fn region(&self) -> Shared {
        Shared::of_span(self.span)
    }
}

impl<T: Element> WindowBuffer<T> {
    pub(crate) fn new(held: Held) -> WindowBuffer<T> {
        WindowBuffer {
            held,
            elements: PhantomData,
        }
    }

    /// Number of elements.
    #[must_use]
    pub fn len(&self) -> usize {
        self.held.len()
    }

    /// Whether it has no elements.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Copies values in, from element `start` on. Returns false, having done nothing, if they do not fit.
    #[must_use]
    pub fn write(&mut self, start: usize, values: &[T]) -> bool {
        self.fits(start, values.len())
            && self.held.segment.write(
                self.held.span.me,
                (start * T::DTYPE.bytes()) as u64,
                bytemuck::cast_slice(values),
            )
    }

    /// Copies values out, from element `start` on. Returns false, having done nothing, if there are fewer.
    #[must_use]
    pub fn read(&self, start: usize, values: &mut [T]) -> bool {
        self.fits(start, values.len())
            && self.held.segment.read(
                self.held.span.me,
                (start * T::DTYPE.bytes()) as u64,
                bytemuck::cast_slice_mut(values),
            )
    }

    fn fits(&self, start: usize, len: usize) -> bool {
        start.checked_add(len).is_some_and(|end| end <= self.len())
    }

    /// All values.
    #[must_use]
    pub fn to_vec(&self) -> Vec<T> {
        let mut values = vec![T::zeroed(); self.len()];
        let there = self.read(0, &mut values);
        debug_assert!(there, "all of it is there");
        values
    }

    /// Sets all elements to `value`.
    pub fn fill(&mut self, value: T) {
        const BLOCK: usize = 1024;
        let block = [value; BLOCK];
        for start in (0..self.len()).step_by(BLOCK) {
            let len = BLOCK.min(self.len() - start);
            let fits = self.write(start, &block[..len]);
            debug_assert!(fits, "inside");
        }
    }

    pub(crate) fn held(&self) -> &Held {
        &self.held
    }
}

/// The elements that a call reads.
#[derive(Debug)]
pub enum Input<'a, T> {
    /// In this process's memory.
    Own(&'a [T]),
    /// In a window.
    Window(&'a WindowBuffer<T>),
}

/// The elements that a call writes.
#[derive(Debug)]
pub enum Output<'a, T> {
    /// In this process's memory.
    Own(&'a mut [T]),
    /// In a window.
    Window(&'a mut WindowBuffer<T>),
}

/// Something a collective can read: a slice, a vector, a window buffer.
pub trait Source<T> {
    /// Where it is.
    fn input(&self) -> Input<'_, T>;
}

/// Something a collective can write: a slice, a vector, a window buffer.
pub trait Target<T>: Source<T> {
    /// Where it is.
    fn output(&mut self) -> Output<'_, T>;
}

impl<T> Source<T> for [T] {
    fn input(&self) -> Input<'_, T> {
        Input::Own(self)
    }
}
impl<T> Target<T> for [T] {
    fn output(&mut self) -> Output<'_, T> {
        Output::Own(self)
    }
}
impl<T, const N: usize> Source<T> for [T; N] {
    fn input(&self) -> Input<'_, T> {
        Input::Own(self)
    }
}
impl<T, const N: usize> Target<T> for [T; N] {
    fn output(&mut self) -> Output<'_, T> {
        Output::Own(self)
    }
}
impl<T> Source<T> for Vec<T> {
    fn input(&self) -> Input<'_, T> {
        Input::Own(self)
    }
}
impl<T> Target<T> for Vec<T> {
    fn output(&mut self) -> Output<'_, T> {
        Output::Own(self)
    }
}
impl<T> Source<T> for Box<[T]> {
    fn input(&self) -> Input<'_, T> {
        Input::Own(self)
    }
}
impl<T> Target<T> for Box<[T]> {
    fn output(&mut self) -> Output<'_, T> {
        Output::Own(self)
    }
}
impl<T> Source<T> for WindowBuffer<T> {
    fn input(&self) -> Input<'_, T> {
        Input::Window(self)
    }
}
impl<T> Target<T> for WindowBuffer<T> {
    fn output(&mut self) -> Output<'_, T> {
        Output::Window(self)
    }
}
