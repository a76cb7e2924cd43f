//! Memory whose element type and shape are known at run time only: for bindings to other languages.
//!
//! The handles mirror the typed ones: [`AnyTensor`] is a [`Tensor`](crate::Tensor), [`AnyBuffer`] a
//! [`Buffer`](crate::Buffer), [`AnyPart`] a [`Part`](crate::Part) and [`AnyIntermediate`] an
//! [`Intermediate`](crate::Intermediate). They are copied in and out as bytes, in the order of the host. Where a typed
//! handle *is* an argument of a kernel, these *give* one, an [`Arg`]: whether it fits a parameter is checked where the
//! kernel runs.
//!
//! ```no_run
//! # use ringwork_runtime::{Node, Device, Result};
//! # use ringwork_isa::Dtype;
//! # fn main() -> Result<()> {
//! let node = Node::builder().devices(0..1).launch()?;
//! let x = node.any_zeros(Device(0), Dtype::F32, &[2, 3])?;
//! x.write(bytemuck::cast_slice(&[1.0f32; 6]))?;
//! assert_eq!(x.row_range(1..2)?.shape(), [1, 3]);
//! # Ok(()) }
//! ```

use crate::domain::Domain;
use crate::error::{Error, Result};
use crate::handle_ops;
use crate::intermediate;
use crate::node::{Node, Shared};
use crate::orchestrator::Orchestrator;
use crate::task_binding::WHOEVER;
use crate::tensor::Allocated;
use ringwork_isa::{Arg, BlockSpan, Device, Dtype, Rank, Span};
use std::ops::Range;
use std::sync::Arc;

/// The common part of these handles: elements of one type, in some shape, row by row.
#[derive(Clone, Debug)]
struct Shaped {
    span: Span,
    shape: Vec<usize>,
}

/// The number of elements of a shape; `usize::MAX` if it overflows.
fn count(shape: &[usize]) -> usize {
    let product = shape
        .iter()
        .try_fold(1usize, |count, side| count.checked_mul(*side));
    product.unwrap_or(usize::MAX)
}

impl Shaped {
    fn reshaped(&self, shape: &[usize], what: impl FnOnce() -> String) -> Result<Shaped> {
        let (have, asked) = (handle_ops::len(&self.span), count(shape));
        if have != asked {
            let what = what();
            return Err(Error::Length { what, have, asked });
        }
        Ok(Shaped {
            span: self.span,
            shape: shape.to_vec(),
        })
    }

    /// Part of the first dimension.
    fn row_range(&self, range: Range<usize>, what: impl FnOnce() -> String) -> Result<Shaped> {
        let rows = self.shape.first().copied().unwrap_or(1);
        if range.start > range.end || range.end > rows {
            return Err(Error::OutsideBlock {
                what: what(),
                axis: "rows",
                range,
                len: rows,
            });
        }
        let each = self.shape.iter().skip(1).product::<usize>();
        let elements = range.start.saturating_mul(each)..range.end.saturating_mul(each);
        let mut shape = self.shape.clone();
        match shape.first_mut() {
            Some(first) => *first = range.len(),
            None => shape.push(range.len()),
        }
        let span = handle_ops::slice(&self.span, elements, what)?;
        Ok(Shaped { span, shape })
    }

    /// All of it as a matrix: the last dimension is the columns, those before it the rows.
    fn block(&self) -> Arg {
        let columns = self.shape.last().copied().unwrap_or(1) as u64;
        let rows = self.span.len.checked_div(columns).unwrap_or(0);
        Arg::Block(BlockSpan {
            extent: self.span,
            rows,
            columns,
            pitch: columns,
        })
    }

    fn bytes(&self) -> usize {
        handle_ops::len(&self.span).saturating_mul(self.span.dtype.bytes())
    }
}

macro_rules! facts {
    ($($handle:ident)*) => {$(
        impl $handle {
            /// The type of its elements.
            #[must_use]
            pub fn dtype(&self) -> Dtype {
                self.shaped.span.dtype
            }

            /// The length of each dimension; the last one is consecutive in memory.
            #[must_use]
            pub fn shape(&self) -> &[usize] {
                &self.shaped.shape
            }

            /// Bytes of all elements.
            #[must_use]
            pub fn bytes(&self) -> usize {
                self.shaped.bytes()
            }

            /// The same memory in another shape.
            ///
            /// # Errors
            /// If that is another number of elements.
            pub fn reshape(&self, shape: &[usize]) -> Result<$handle> {
                let shaped = self.shaped.reshaped(shape, || self.what())?;
                Ok($handle { shaped, ..self.clone() })
            }

            /// Part of the first dimension; shares the memory.
            ///
            /// # Errors
            /// If it is not all inside.
            pub fn row_range(&self, range: Range<usize>) -> Result<$handle> {
                let shaped = self.shaped.row_range(range, || self.what())?;
                Ok($handle { shaped, ..self.clone() })
            }

            /// The argument for an `In`, `Out` or `InOut`.
            #[must_use]
            pub fn region(&self) -> Arg {
                Arg::Memory(self.shaped.span)
            }

            /// The argument for a `Block` of an `In`, `Out` or `InOut`: the last dimension is its columns, those before
            /// are its rows.
            #[must_use]
            pub fn block(&self) -> Arg {
                self.shaped.block()
            }
        }
    )*};
}
facts! { AnyTensor AnyBuffer AnyPart AnyIntermediate }

/// A [`Tensor`](crate::Tensor) of any element type.
#[derive(Clone, Debug)]
pub struct AnyTensor {
    inner: Arc<Allocated>,
    shaped: Shaped,
}

impl AnyTensor {
    /// The chip it is on.
    #[must_use]
    pub fn device(&self) -> Device {
        self.inner.device
    }

    fn what(&self) -> String {
        format!("a tensor on device {}", self.inner.device)
    }

    /// Copies host bytes in, after the tasks submitted before.
    ///
    /// # Errors
    /// If the lengths differ or the node is closed.
    pub fn write(&self, bytes: &[u8]) -> Result<()> {
        let (node, place) = (&self.inner.node, (Rank(0), 0));
        node.write_bytes(&self.shaped.span, place, bytes, || self.what())
    }

    /// Copies the elements to the host, after the tasks submitted before.
    ///
    /// # Errors
    /// If the lengths differ, an earlier task failed, or the node is closed.
    pub fn read(&self, bytes: &mut [u8]) -> Result<()> {
        let (node, place) = (&self.inner.node, (Rank(0), 0));
        node.read_bytes(&self.shaped.span, place, bytes, || self.what())
    }
}

/// A [`Buffer`](crate::Buffer) of any element type.
#[derive(Clone, Debug)]
pub struct AnyBuffer {
    domain: Domain,
    /// Bytes from the start of the window's data to element 0.
    offset: u64,
    shaped: Shaped,
}

impl AnyBuffer {
    pub(crate) fn new(domain: Domain, offset: u64, span: Span) -> AnyBuffer {
        let shape = vec![handle_ops::len(&span)];
        AnyBuffer {
            domain,
            offset,
            shaped: Shaped { span, shape },
        }
    }

    fn what(&self) -> String {
        format!("a buffer of domain `{}`", self.domain.name())
    }

    /// One member's part, for a task on any member.
    ///
    /// # Errors
    /// If there is no such rank.
    pub fn on(&self, rank: Rank) -> Result<AnyPart> {
        let ranks = self.shaped.span.ranks;
        if rank.0 >= ranks {
            return Err(Error::Length {
                what: format!("domain `{}`", self.domain.name()),
                have: ranks as usize,
                asked: rank.0 as usize + 1,
            });
        }
        let mut shaped = self.shaped.clone();
        (shaped.span.me, shaped.span.rank) = (WHOEVER, rank);
        Ok(AnyPart {
            shaped,
            buffer: self.clone(),
        })
    }

    /// The argument for a `Shared`.
    #[must_use]
    pub fn window(&self) -> Arg {
        Arg::Window(self.shaped.span)
    }
}

/// A [`Part`](crate::Part) of any element type.
#[derive(Clone, Debug)]
pub struct AnyPart {
    shaped: Shaped,
    buffer: AnyBuffer,
}

impl AnyPart {
    /// Whose it is.
    #[must_use]
    pub fn rank(&self) -> Rank {
        self.shaped.span.rank
    }

    fn what(&self) -> String {
        format!("{} on rank {}", self.buffer.what(), self.rank())
    }

    fn place(&self) -> (Rank, u64) {
        (self.rank(), self.buffer.offset)
    }

    /// Copies host bytes in, after the tasks submitted before.
    ///
    /// # Errors
    /// If the lengths differ, or the domain was released.
    pub fn write(&self, bytes: &[u8]) -> Result<()> {
        let node = self.buffer.domain.node();
        node.write_bytes(&self.shaped.span, self.place(), bytes, || self.what())
    }

    /// Copies the part to the host, after the tasks submitted before.
    ///
    /// # Errors
    /// If the lengths differ, or the domain was released.
    pub fn read(&self, bytes: &mut [u8]) -> Result<()> {
        let node = self.buffer.domain.node();
        node.read_bytes(&self.shaped.span, self.place(), bytes, || self.what())
    }
}

/// An [`Intermediate`](crate::Intermediate) of any element type.
#[derive(Clone, Debug)]
pub struct AnyIntermediate {
    device: Device,
    shaped: Shaped,
}

impl AnyIntermediate {
    /// The chip it is on.
    #[must_use]
    pub fn device(&self) -> Device {
        self.device
    }

    fn what(&self) -> String {
        format!("an intermediate on device {}", self.device)
    }
}

impl Node {
    /// Zeroed memory on a chip for elements of any type, in some shape.
    ///
    /// # Errors
    /// If there is no such chip or no memory.
    pub fn any_zeros(&self, device: Device, dtype: Dtype, shape: &[usize]) -> Result<AnyTensor> {
        let inner = self.allocate(device, dtype, count(shape))?;
        let shaped = Shaped {
            span: inner.span,
            shape: shape.to_vec(),
        };
        Ok(AnyTensor {
            inner: Arc::new(inner),
            shaped,
        })
    }
}

impl Orchestrator<'_> {
    /// As [`intermediate`](Orchestrator::intermediate), for elements of any type.
    ///
    /// # Errors
    /// As there.
    pub fn any_intermediate(&self, device: Device, dtype: Dtype, shape: &[usize]) -> Result<AnyIntermediate> {
        let node: &Shared = self.node;
        let span = intermediate::allocate(node, device, dtype, count(shape))?;
        let shaped = Shaped {
            span,
            shape: shape.to_vec(),
        };
        Ok(AnyIntermediate { device, shaped })
    }
}
