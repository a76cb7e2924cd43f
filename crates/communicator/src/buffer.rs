//! Data that a collective works on: in this process's own memory, or in the communicator's window.

use crate::error::{Error, Result};
use crate::layout::region;
use ringwork_isa::{Dtype, Element, Rank, Shared, Span};
use ringwork_native::segment::Attached;
use std::marker::PhantomData;
use std::sync::Arc;

/// Elements in the communicator's window: collectives use them where they are, without a copy.
///
/// Other processes may write there at any time, so a `&[T]` into it would be unsound: there is none. Values are copied in and
/// out instead, one ([`get`](Self::get), [`set`](Self::set)), some ([`read`](Self::read), [`write`](Self::write)), or all in
/// turn ([`iter`](Self::iter), [`fill_with`](Self::fill_with), [`update`](Self::update)); none of these needs a second buffer.
///
/// Every rank must allocate, and drop, the same buffers; the memory is free when the last rank has dropped its handle.
///
/// ```no_run
/// # use ringwork_communicator::{Communicator, Error};
/// # fn train(comm: &Communicator) -> Result<(), Error> {
/// let mut grad = comm.alloc::<f32>(1 << 20)?;
/// grad.fill_with(|i| i as f32 * 0.5);
/// comm.all_reduce(&mut grad, ringwork_isa::ReduceOp::Sum)?;
/// let ranks = comm.size() as f32;
/// grad.update(|_, sum| sum / ranks);
/// let largest = grad.iter().fold(0.0, f32::max);
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct WindowBuffer<T> {
    held: Held,
    elements: PhantomData<T>,
}

/// The number of elements that a loop over a whole buffer copies at once.
const BLOCK: usize = 1024;

/// The untyped part of a window buffer: its place in the window.
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

    /// `len` elements of type `dtype`, from byte `offset` of this memory on, if they lie inside and are aligned.
    pub(crate) fn part(&self, dtype: Dtype, offset: u64, len: u64) -> Option<Held> {
        let (size, mut span) = (dtype.bytes() as u64, self.span);
        let end = len.checked_mul(size)?.checked_add(offset)?;
        span.base += offset;
        let fits = end <= span.len * span.dtype.bytes() as u64 && span.base.is_multiple_of(size);
        (span.dtype, span.len) = (dtype, len);
        fits.then(|| Held {
            segment: self.segment.clone(),
            home: self.home,
            span,
        })
    }

    /// What tells this memory from all other in the windows of the communicator, on every rank alike.
    pub(crate) fn place(&self) -> [i64; 2] {
        let nonce = self.segment.layout().nonce;
        [nonce.cast_signed(), self.span.base.cast_signed()]
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

    /// Copies `values` in, from element `start` on.
    ///
    /// # Errors
    /// [`Error::OutsideBuffer`] if they do not fit; nothing is written then.
    pub fn write(&mut self, start: usize, values: &[T]) -> Result<()> {
        let (held, bytes) = (&self.held, bytemuck::cast_slice(values));
        let fits = self.place(start, values.len());
        let written = fits.is_some_and(|at| held.segment.write(held.span.me, at, bytes));
        if written {
            Ok(())
        } else {
            Err(self.outside(start, values.len()))
        }
    }

    /// Copies elements out into `values`, from element `start` on.
    ///
    /// # Errors
    /// [`Error::OutsideBuffer`] if there are fewer; `values` is as it was then.
    pub fn read(&self, start: usize, values: &mut [T]) -> Result<()> {
        let (held, len) = (&self.held, values.len());
        let there = self.place(start, len);
        let read = there.is_some_and(|at| {
            let bytes = bytemuck::cast_slice_mut(values);
            held.segment.read(held.span.me, at, bytes)
        });
        if read {
            Ok(())
        } else {
            Err(self.outside(start, len))
        }
    }

    /// Copies `values` in, which must be as many as there are.
    ///
    /// # Errors
    /// [`Error::OutsideBuffer`] if they are more or fewer; nothing is written then.
    pub fn copy_from_slice(&mut self, values: &[T]) -> Result<()> {
        if values.len() != self.len() {
            return Err(self.outside(0, values.len()));
        }
        self.write(0, values)
    }

    /// Element `index`, if there is one.
    #[must_use]
    pub fn get(&self, index: usize) -> Option<T> {
        let mut value = [T::zeroed()];
        self.read(index, &mut value).ok().map(|()| value[0])
    }

    /// Sets element `index`.
    ///
    /// # Errors
    /// [`Error::OutsideBuffer`] if there is none.
    pub fn set(&mut self, index: usize, value: T) -> Result<()> {
        self.write(index, &[value])
    }

    /// Iterates over the values. They are copied out block by block while the iterator runs.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = T> + '_ {
        let mut block = [T::zeroed(); BLOCK];
        (0..self.len()).map(move |index| {
            if index % BLOCK == 0 {
                let len = BLOCK.min(self.len() - index);
                // Within the buffer by the bounds of the loop.
                let _ = self.read(index, &mut block[..len]);
            }
            block[index % BLOCK]
        })
    }

    /// All values.
    #[must_use]
    pub fn to_vec(&self) -> Vec<T> {
        let mut values = vec![T::zeroed(); self.len()];
        let there = self.read(0, &mut values);
        debug_assert!(there.is_ok(), "all of it is there");
        values
    }

    /// Sets all elements to `value`.
    pub fn fill(&mut self, value: T) {
        self.fill_with(|_| value);
    }

    /// Sets every element `i` to `value(i)`.
    pub fn fill_with(&mut self, mut value: impl FnMut(usize) -> T) {
        self.by_blocks(|_, start, block| {
            for (index, element) in (start..).zip(block) {
                *element = value(index);
            }
        });
    }

    /// Sets every element `i` with the value `x` to `change(i, x)`.
    pub fn update(&mut self, mut change: impl FnMut(usize, T) -> T) {
        self.by_blocks(|buffer, start, block| {
            // Within the buffer by the bounds of the loop.
            let _ = buffer.read(start, block);
            for (index, element) in (start..).zip(block) {
                *element = change(index, *element);
            }
        });
    }

    /// Calls `make` for each block, with the index of its first element and the space for its values, and copies these
    /// in.
    fn by_blocks(&mut self, mut make: impl FnMut(&Self, usize, &mut [T])) {
        let mut block = [T::zeroed(); BLOCK];
        for start in (0..self.len()).step_by(BLOCK) {
            let block = &mut block[..BLOCK.min(self.len() - start)];
            make(self, start, block);
            let fits = self.write(start, block);
            debug_assert!(fits.is_ok(), "inside");
        }
    }

    /// The byte offset of elements `start..start + len`, if they are all inside.
    fn place(&self, start: usize, len: usize) -> Option<u64> {
        let inside = start.checked_add(len).is_some_and(|end| end <= self.len());
        inside.then(|| (start * T::DTYPE.bytes()) as u64)
    }

    #[cold]
    fn outside(&self, start: usize, len: usize) -> Error {
        Error::OutsideBuffer {
            start,
            end: start.saturating_add(len),
            len: self.len(),
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
