//! A group over a communicator: this process is one rank, and its work happens at once.

use crate::error::Result;
use crate::group::Group;
use ringwork_communicator::Communicator;
use ringwork_isa::{
    Arg, Argument, Consecutive, Device, Dtype, Element, Error as CoreError, In, Rank, ReduceOp, Region,
    Segment, Span, Task,
};
use ringwork_layout::{BufferPlace, Layout};
use ringwork_native::cell::Patience;
use ringwork_native::segment::Attached;
use ringwork_native::{NativeCore, Waiting};
use std::cell::{Cell, RefCell};
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

/// The ranks of a communicator as a [`Group`]: each process runs its own part, on a core of its own, in its own memory.
#[derive(Debug)]
pub struct RankGroup<'c> {
    communicator: &'c Communicator,
    core: RefCell<NativeCore>,
    /// The number of the next piece of memory.
    segments: Cell<u32>,
}

impl<'c> RankGroup<'c> {
    /// The ranks of this communicator, such as [`ParallelState::tensor`](crate::ParallelState::tensor).
    #[must_use]
    pub fn new(communicator: &'c Communicator) -> RankGroup<'c> {
        // The layers' kernels wait for nothing.
        let waiting = Waiting {
            patience: Patience::for_sharing(1, 1),
            limit: Duration::from_secs(60),
        };
        RankGroup {
            communicator,
            core: RefCell::new(NativeCore::new(Device(communicator.rank()), waiting)),
            segments: Cell::new(0),
        }
    }

    fn memory(&self, dtype: Dtype, count: usize) -> Result<RankMemory> {
        let number = Segment(self.segments.get());
        self.segments.set(number.0.wrapping_add(1));
        let bytes = (count as u64).saturating_mul(dtype.bytes() as u64);
        let layout = Layout::private(number, bytes).map_err(ringwork_native::Error::from)?;
        let segment = Arc::new(Attached::on_heap(layout)?);
        let mut core = self.core.borrow_mut();
        core.detach_unused();
        core.attach(Arc::clone(&segment));
        let span = layout.private_span(BufferPlace {
            offset: 0,
            dtype,
            count,
        });
        Ok(RankMemory { segment, span })
    }

    fn placed<T: Element>(&self, values: &[T]) -> Result<RankMemory> {
        let memory = self.memory(T::DTYPE, values.len())?;
        memory.write(values)?;
        Ok(memory)
    }
}

/// Memory of this rank in its own process.
#[derive(Clone, Debug)]
pub struct RankMemory {
    segment: Arc<Attached>,
    span: Span,
}

impl RankMemory {
    /// Its values.
    ///
    /// # Errors
    /// None, unless it is memory of ids.
    pub fn read(&self) -> Result<Vec<f32>> {
        let mut values = vec![0f32; self.count()];
        let bytes = bytemuck::cast_slice_mut(&mut values);
        match self.segment.read(Rank(0), self.offset(), bytes) {
            true => Ok(values),
            false => Err(outside(0..self.count(), self.count()).into()),
        }
    }

    fn write<T: Element>(&self, values: &[T]) -> Result<()> {
        match self
            .segment
            .write(Rank(0), self.offset(), bytemuck::cast_slice(values))
        {
            true => Ok(()),
            false => Err(outside(0..values.len(), self.count()).into()),
        }
    }

    /// Bytes from the start of its segment's data.
    fn offset(&self) -> u64 {
        self.span.start * self.span.dtype.bytes() as u64
    }
}

#[track_caller]
fn outside(range: Range<usize>, len: usize) -> CoreError {
    CoreError::failed(format!(
        "elements {}..{} are outside memory of {len}",
        range.start, range.end
    ))
}

impl Consecutive for RankMemory {
    type Error = CoreError;
    fn count(&self) -> usize {
        usize::try_from(self.span.len).unwrap_or(usize::MAX)
    }
    #[track_caller]
    fn part_of(&self, range: Range<usize>) -> std::result::Result<RankMemory, CoreError> {
        let part =
            Region::<f32, _>::from_span(self.span).map_err(|_| outside(range.clone(), self.count()))?;
        let part: In<f32> = part;
        Ok(RankMemory {
            span: part.slice(range)?.span(),
            ..self.clone()
        })
    }
    #[track_caller]
    fn outside(&self, axis: &'static str, range: Range<usize>, len: usize) -> CoreError {
        CoreError::failed(format!(
            "{axis} {}..{} are outside a matrix with {len}",
            range.start, range.end
        ))
    }
}

impl<T: Element, A> Argument<Region<T, A>> for RankMemory {
    fn to_arg(&self) -> Arg {
        Arg::Memory(self.span)
    }
}

impl Group for RankGroup<'_> {
    type Memory = RankMemory;
    type Ids = RankMemory;

    fn size(&self) -> usize {
        self.communicator.size() as usize
    }

    fn local_ranks(&self) -> Range<usize> {
        let me = self.communicator.rank() as usize;
        me..me + 1
    }

    fn zeros(&self, _: usize, elements: usize) -> Result<RankMemory> {
        self.memory(Dtype::F32, elements)
    }

    fn values(&self, _: usize, values: &[f32]) -> Result<RankMemory> {
        self.placed(values)
    }

    fn ids(&self, _: usize, ids: &[i32]) -> Result<RankMemory> {
        self.placed(ids)
    }

    fn run(&self, _: usize, task: Task) -> Result<()> {
        let kernel = ringwork_registry::find(&task.kernel)?;
        Ok((kernel.run)(&*self.core.borrow(), &task.args)?)
    }

    fn all_reduce(&self, x: &[RankMemory], y: &[RankMemory]) -> Result<()> {
        for (x, y) in x.iter().zip(y) {
            let mut values = x.read()?;
            self.communicator.all_reduce(&mut values, ReduceOp::Sum)?;
            y.write(&values)?;
        }
        Ok(())
    }

    fn all_gather(&self, x: &[RankMemory], y: &[RankMemory]) -> Result<()> {
        for (x, y) in x.iter().zip(y) {
            let mut all = vec![0f32; y.count()];
            self.communicator.all_gather(&x.read()?, &mut all)?;
            y.write(&all)?;
        }
        Ok(())
    }
}
