//! Tensors: memory of one chip that stays until its handle is dropped.

use crate::error::{Error, Result};
use crate::node::Shared;
use ringwork_isa::{Arg, Argument, Device, Element, In, InOut, Out, Rank, Segment, Span};
use ringwork_native::segment::Layout;
use std::marker::PhantomData;
use std::ops::Range;
use std::sync::Arc;

/// Elements in a chip's memory. They live as long as a handle to them: over any number of runs.
///
/// Pass it where a kernel has an `In`, `Out` or `InOut`.
#[derive(Clone, Debug)]
pub struct Tensor<T> {
    inner: Arc<Allocated>,
    span: Span,
    element: PhantomData<T>,
}

#[derive(Debug)]
struct Allocated {
    segment: Segment,
    device: Device,
    node: Shared,
}

impl Drop for Allocated {
    fn drop(&mut self) {
        self.node.lock().release(self.segment);
    }
}

impl<T: Element> Tensor<T> {
    pub(crate) fn new(layout: Layout, device: Device, count: usize, node: Shared) -> Tensor<T> {
        let span = Span {
            segment: layout.segment,
            base: layout.data_offset(),
            stride: 0,
            me: Rank(0),
            rank: Rank(0),
            ranks: 1,
            dtype: T::DTYPE,
            start: 0,
            len: count as u64,
        };
        let inner = Arc::new(Allocated {
            segment: layout.segment,
            device,
            node,
        });
        Tensor {
            inner,
            span,
            element: PhantomData,
        }
    }

    /// The chip it is on.
    #[must_use]
    pub fn device(&self) -> Device {
        self.inner.device
    }

    /// Number of elements.
    #[must_use]
    pub fn len(&self) -> usize {
        usize::try_from(self.span.len).unwrap_or(usize::MAX)
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.span.len == 0
    }

    /// Some of its elements; shares the memory.
    ///
    /// # Errors
    /// If they are not all inside.
    pub fn slice(&self, range: Range<usize>) -> Result<Tensor<T>> {
        if range.start > range.end || range.end > self.len() {
            return Err(Error::Length {
                what: self.what(),
                have: self.len(),
                asked: range.end,
            });
        }
        let span = Span {
            start: self.span.start + range.start as u64,
            len: range.len() as u64,
            ..self.span
        };
        Ok(Tensor { span, ..self.clone() })
    }

    fn what(&self) -> String {
        format!("a tensor on device {}", self.inner.device)
    }

    fn byte_offset(&self) -> u64 {
        self.span.start * T::DTYPE.bytes() as u64
    }

    /// Copies host data in, after the tasks submitted before.
    ///
    /// # Errors
    /// If the lengths differ or the node is closed.
    pub fn write(&self, data: &[T]) -> Result<()> {
        if data.len() != self.len() {
            return Err(Error::Length {
                what: self.what(),
                have: self.len(),
                asked: data.len(),
            });
        }
        let mut node = self.inner.node.settled()?;
        node.write(
            self.span.segment,
            Rank(0),
            self.byte_offset(),
            bytemuck::cast_slice(data),
        )
    }

    /// Copies the elements to the host, after the tasks submitted before.
    ///
    /// # Errors
    /// If a task before failed, or the node is closed.
    pub fn read(&self) -> Result<Vec<T>> {
        let mut data = vec![T::zeroed(); self.len()];
        let mut node = self.inner.node.settled()?;
        node.read(
            self.span.segment,
            Rank(0),
            self.byte_offset(),
            bytemuck::cast_slice_mut(&mut data),
        )?;
        Ok(data)
    }
}

impl<T: Element> Argument<In<T>> for Tensor<T> {
    fn to_arg(&self) -> Arg {
        Arg::Memory(self.span)
    }
}
impl<T: Element> Argument<Out<T>> for Tensor<T> {
    fn to_arg(&self) -> Arg {
        Arg::Memory(self.span)
    }
}
impl<T: Element> Argument<InOut<T>> for Tensor<T> {
    fn to_arg(&self) -> Arg {
        Arg::Memory(self.span)
    }
}
