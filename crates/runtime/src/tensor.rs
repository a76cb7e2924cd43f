//! Tensors: memory of one chip that stays until its handle is dropped.

use crate::error::Result;
use crate::handle_ops;
use crate::node::Shared;
use ringwork_isa::{Device, Element, Rank, Span};
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

/// Memory of a chip, freed with the last handle to it.
#[derive(Debug)]
pub(crate) struct Allocated {
    pub(crate) device: Device,
    pub(crate) node: Shared,
    /// All of it.
    pub(crate) span: Span,
}

impl Drop for Allocated {
    fn drop(&mut self) {
        self.node.lock().release(self.span.segment);
    }
}

impl<T: Element> Tensor<T> {
    /// The handle to memory that was allocated for elements of the type `T`.
    pub(crate) fn new(allocated: Allocated) -> Tensor<T> {
        Tensor {
            span: allocated.span,
            inner: Arc::new(allocated),
            element: PhantomData,
        }
    }

    /// The chip it is on.
    #[must_use]
    pub fn device(&self) -> Device {
        self.inner.device
    }

    /// A range of its elements, in the same memory.
    ///
    /// # Errors
    /// If they are not all inside.
    pub fn slice(&self, range: Range<usize>) -> Result<Tensor<T>> {
        let span = handle_ops::slice(&self.span, range, || self.what())?;
        Ok(Tensor { span, ..self.clone() })
    }

    fn what(&self) -> String {
        format!("a tensor on device {}", self.inner.device)
    }

    /// Copies host data in, after the tasks submitted before.
    ///
    /// # Errors
    /// If the lengths differ or the node is closed.
    pub fn write(&self, data: &[T]) -> Result<()> {
        let node = &self.inner.node;
        node.write_span(&self.span, (Rank(0), 0), data, || self.what())
    }

    /// Copies the elements to the host, after the tasks submitted before.
    ///
    /// # Errors
    /// If an earlier task failed, or the node is closed.
    pub fn read(&self) -> Result<Vec<T>> {
        self.inner.node.read_span(&self.span, (Rank(0), 0))
    }
}

handle_ops::counted!(Tensor);
handle_ops::matrix!(Tensor);
handle_ops::chip_argument!(Tensor);
