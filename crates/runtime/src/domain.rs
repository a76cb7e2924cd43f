//! Domains: which chips communicate, and what each of them exposes.

use crate::buffer::{Buffer, SignalRow};
use crate::error::{Error, Result};
use crate::machine::SegmentPlan;
use crate::node::Shared;
use crate::platform::Platform;
use ringwork_isa::{Device, Dtype, Element, Rank, SIGNAL_STRIDE_BYTES, Segment, Signals, Span};
use ringwork_native::Members;
use ringwork_native::memory::PAGE_BYTES;
use ringwork_native::segment::MAX_SIGNALS;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Buffers start at multiples of this, so that no two share a cache line.
const BUFFER_ALIGN_BYTES: u64 = 128;

/// A domain as it is asked for: members in rank order, and what each has in its window.
///
/// ```
/// use ringwork_runtime::{DomainSpec, Device};
/// let spec = DomainSpec::new("tp", [2, 0].map(Device)) // device 2 is rank 0
///     .buffer::<f32>("scratch", 512)
///     .barrier("meet")
///     .signals("steps", 2);
/// ```
#[derive(Clone, Debug)]
pub struct DomainSpec {
    name: String,
    members: Vec<Device>,
    window_bytes: Option<u64>,
    buffers: Vec<(String, Dtype, usize)>,
    signals: Vec<(String, u32)>,
    staged: Vec<Staged>,
}

/// Host data for a buffer of one rank.
#[derive(Clone, Debug)]
struct Staged {
    buffer: String,
    rank: Rank,
    dtype: Dtype,
    bytes: Vec<u8>,
}

impl DomainSpec {
    /// A domain of these chips; their order gives the ranks.
    pub fn new(name: impl Into<String>, members: impl IntoIterator<Item = Device>) -> DomainSpec {
        DomainSpec {
            name: name.into(),
            members: members.into_iter().collect(),
            window_bytes: None,
            buffers: Vec::new(),
            signals: Vec::new(),
            staged: Vec::new(),
        }
    }

    /// A buffer of `count` elements in every member's window.
    #[must_use]
    pub fn buffer<T: Element>(self, name: impl Into<String>, count: usize) -> DomainSpec {
        self.buffer_of(name, T::DTYPE, count)
    }

    /// The same, with the type as a value.
    #[must_use]
    pub fn buffer_of(mut self, name: impl Into<String>, dtype: Dtype, count: usize) -> DomainSpec {
        self.buffers.push((name.into(), dtype, count));
        self
    }

    /// A barrier of all members.
    #[must_use]
    pub fn barrier(self, name: impl Into<String>) -> DomainSpec {
        self.signals(name, 1)
    }

    /// A row of `count` signals in every member's window.
    #[must_use]
    pub fn signals(mut self, name: impl Into<String>, count: u32) -> DomainSpec {
        self.signals.push((name.into(), count));
        self
    }

    /// How large each window should be; otherwise it is as large as its buffers.
    #[must_use]
    pub fn window_bytes(mut self, bytes: u64) -> DomainSpec {
        self.window_bytes = Some(bytes);
        self
    }

    /// Puts host data into a buffer of one rank before anyone can see the window.
    #[must_use]
    pub fn stage<T: Element>(mut self, buffer: impl Into<String>, rank: Rank, data: &[T]) -> DomainSpec {
        let bytes = bytemuck::cast_slice(data).to_vec();
        self.staged.push(Staged {
            buffer: buffer.into(),
            rank,
            dtype: T::DTYPE,
            bytes,
        });
        self
    }

    /// Works out where everything lies, or says which field cannot be.
    pub(crate) fn plan(
        &self,
        platform: &Platform,
        devices: &[Device],
        segment: Segment,
    ) -> Result<DomainPlan> {
        let field = |name: &str| format!("domain `{}`: {name}", self.name);
        let members = Members::all(self.chips(platform, devices, &field)?);
        let ranks = u32::try_from(members.chips.len()).unwrap_or(u32::MAX);
        self.plan_for(platform, ranks, segment, self.members.clone(), members)
    }

    /// The same for a domain of so many ranks on several workers; whose they are is still to be said.
    pub(crate) fn plan_wide(&self, platform: &Platform, ranks: u32, segment: Segment) -> Result<DomainPlan> {
        let field = |name: &str| format!("domain `{}`: {name}", self.name);
        if !self.members.is_empty() {
            let why = "a domain over several workers has all their chips; name no members";
            return Err(Error::config(field("members"), why));
        }
        let most = platform.max_ranks();
        if ranks == 0 || ranks > most {
            let why = format!("{ranks} members; a domain has 1 to {most}");
            return Err(Error::config(field("members"), why));
        }
        self.plan_for(platform, ranks, segment, Vec::new(), Members::all([]))
    }

    /// The same for a domain of so many ranks, of which these are chips of one worker.
    pub(crate) fn plan_for(
        &self,
        platform: &Platform,
        ranks: u32,
        segment: Segment,
        devices: Vec<Device>,
        members: Members,
    ) -> Result<DomainPlan> {
        let field = |name: &str| format!("domain `{}`: {name}", self.name);
        let mut place = Places {
            buffers: BTreeMap::new(),
            signals: BTreeMap::new(),
            data_bytes: 0,
            cells: 0,
        };
        for (name, dtype, count) in &self.buffers {
            place
                .add_buffer(name, *dtype, *count)
                .map_err(|why| Error::config(field("buffers"), why))?;
        }
        for (name, count) in &self.signals {
            place
                .add_signals(name, *count)
                .map_err(|why| Error::config(field("signals"), why))?;
        }
        let asked = self.window_bytes.unwrap_or(place.data_bytes);
        if place.data_bytes > asked {
            let why = format!(
                "the buffers need {} bytes and the window has {asked}",
                place.data_bytes
            );
            return Err(Error::config(field("buffers"), why));
        }
        let layout = platform
            .windows(segment, ranks, place.cells, asked)
            .map_err(|error| Error::config(field("window_bytes"), error.to_string()))?;
        let what = format!("window \"{}\"", self.name);
        let plan = DomainPlan {
            name: self.name.clone(),
            members: devices,
            asked_bytes: asked,
            places: place,
            segment: SegmentPlan {
                layout,
                what,
                members,
            },
        };
        self.check_staged(&plan, &field)?;
        Ok(plan)
    }

    fn chips(
        &self,
        platform: &Platform,
        devices: &[Device],
        field: &dyn Fn(&str) -> String,
    ) -> Result<Vec<usize>> {
        let most = platform.max_ranks();
        if self.members.is_empty() || self.members.len() > most as usize {
            let why = format!("{} members; a domain has 1 to {most}", self.members.len());
            return Err(Error::config(field("members"), why));
        }
        let mut chips = Vec::with_capacity(self.members.len());
        for member in &self.members {
            let Some(chip) = devices.iter().position(|device| device == member) else {
                let why = format!(
                    "device {member} is not a chip of this worker, which has {}",
                    list(devices)
                );
                return Err(Error::config(field("members"), why));
            };
            if chips.contains(&chip) {
                return Err(Error::config(
                    field("members"),
                    format!("device {member} is there twice"),
                ));
            }
            chips.push(chip);
        }
        Ok(chips)
    }

    fn check_staged(&self, plan: &DomainPlan, field: &dyn Fn(&str) -> String) -> Result<()> {
        for Staged {
            buffer,
            rank,
            dtype,
            bytes,
        } in &self.staged
        {
            let wrong = |why: String| {
                Err(Error::config(
                    field("stage"),
                    format!("`{buffer}` of rank {rank}: {why}"),
                ))
            };
            let Some(place) = plan.places.buffers.get(buffer) else {
                return wrong("there is no such buffer".into());
            };
            let ranks = plan.segment.layout.ranks;
            if rank.0 >= ranks {
                return wrong(format!("the domain has {ranks} ranks"));
            }
            if *dtype != place.dtype {
                return wrong(format!("the data is {dtype} and the buffer {}", place.dtype));
            }
            let (given, have) = (bytes.len() / dtype.bytes(), place.count);
            if given != have {
                return wrong(format!("the data has {given} elements and the buffer {have}"));
            }
        }
        Ok(())
    }

    /// Hands every staged piece to `write(rank, offset, bytes)`. The plan was checked against it.
    pub(crate) fn for_each_staged(&self, plan: &DomainPlan, mut write: impl FnMut(Rank, u64, &[u8])) {
        for Staged {
            buffer, rank, bytes, ..
        } in &self.staged
        {
            if let Some(place) = plan.places.buffers.get(buffer) {
                write(*rank, place.offset, bytes);
            }
        }
    }
}

/// Devices as a person reads them.
pub(crate) fn list(devices: &[Device]) -> String {
    devices
        .iter()
        .map(ToString::to_string)
        .collect::<Vec<_>>()
        .join(", ")
}

/// Where a buffer lies in every window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BufferPlace {
    /// Bytes from the start of the window's data.
    pub(crate) offset: u64,
    /// Type of its elements.
    pub dtype: Dtype,
    /// Number of its elements.
    pub count: usize,
}

/// Where everything lies in every window of a domain.
#[derive(Clone, Debug)]
pub(crate) struct Places {
    pub(crate) buffers: BTreeMap<String, BufferPlace>,
    /// First cell and number of cells.
    signals: BTreeMap<String, (u32, u32)>,
    data_bytes: u64,
    cells: u32,
}

impl Places {
    fn add_buffer(&mut self, name: &str, dtype: Dtype, count: usize) -> std::result::Result<(), String> {
        let offset = self.data_bytes;
        let end = (count as u64)
            .checked_mul(dtype.bytes() as u64)
            .and_then(|bytes| {
                offset
                    .checked_add(bytes)?
                    .checked_next_multiple_of(BUFFER_ALIGN_BYTES)
            })
            .ok_or_else(|| format!("`{name}`: {count} elements of {dtype} are more than any memory"))?;
        if self
            .buffers
            .insert(name.to_owned(), BufferPlace { offset, dtype, count })
            .is_some()
        {
            return Err(format!("`{name}` is there twice"));
        }
        self.data_bytes = end;
        Ok(())
    }

    fn add_signals(&mut self, name: &str, count: u32) -> std::result::Result<(), String> {
        let first = self.cells;
        let cells = first.checked_add(count).filter(|cells| *cells <= MAX_SIGNALS);
        self.cells = cells.ok_or_else(|| format!("`{name}`: more than {MAX_SIGNALS} signals"))?;
        match self.signals.insert(name.to_owned(), (first, count)) {
            Some(_) => Err(format!("`{name}` is there twice")),
            None => Ok(()),
        }
    }
}

/// A domain that can be made.
#[derive(Clone, Debug)]
pub(crate) struct DomainPlan {
    pub(crate) name: String,
    /// In the order of the segment's members.
    pub(crate) members: Vec<Device>,
    pub(crate) asked_bytes: u64,
    pub(crate) places: Places,
    pub(crate) segment: SegmentPlan,
}

/// An open domain. Released when the last handle to it or to its buffers is dropped, or by
/// [`release`](Domain::release); its memory is freed when the tasks that use it are done.
#[derive(Clone, Debug)]
pub struct Domain {
    inner: Arc<OpenDomain>,
}

#[derive(Debug)]
struct OpenDomain {
    plan: DomainPlan,
    node: Shared,
}

impl Drop for OpenDomain {
    fn drop(&mut self) {
        self.node.lock().release(self.plan.segment.layout.segment);
    }
}

impl Domain {
    pub(crate) fn new(plan: DomainPlan, node: Shared) -> Domain {
        Domain {
            inner: Arc::new(OpenDomain { plan, node }),
        }
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.inner.plan.name
    }

    /// Its members in rank order; of a [domain over several workers](crate::PodDomain), those of this one.
    #[must_use]
    pub fn members(&self) -> &[Device] {
        &self.inner.plan.members
    }

    /// The rank of a chip, if it is a member.
    #[must_use]
    pub fn rank_of(&self, device: Device) -> Option<Rank> {
        let place = self.members().iter().position(|member| *member == device)?;
        let first = self.inner.plan.segment.members.first;
        first.checked_add(u32::try_from(place).ok()?).map(Rank)
    }

    /// How many ranks it has, on whichever worker.
    #[must_use]
    pub fn ranks(&self) -> u32 {
        self.inner.plan.segment.layout.ranks
    }

    /// No more uses: handles to it are refused from now on.
    pub fn release(&self) {
        self.inner.node.lock().release(self.segment());
    }

    pub(crate) fn node(&self) -> &Shared {
        &self.inner.node
    }

    pub(crate) fn segment_members(&self) -> &Members {
        &self.inner.plan.segment.members
    }

    pub(crate) fn segment(&self) -> Segment {
        self.inner.plan.segment.layout.segment
    }

    fn missing<'a>(&self, kind: &'static str, name: &str, have: impl Iterator<Item = &'a String>) -> Error {
        let have = have
            .map(|name| format!("`{name}`"))
            .collect::<Vec<_>>()
            .join(", ");
        let have = if have.is_empty() { "none".into() } else { have };
        Error::NoSuchName {
            domain: self.name().into(),
            kind,
            name: name.into(),
            have,
        }
    }

    /// A buffer by name.
    ///
    /// # Errors
    /// If there is no such buffer, or it holds another type.
    pub fn buffer<T: Element>(&self, name: &str) -> Result<Buffer<T>> {
        let buffers = &self.inner.plan.places.buffers;
        let place = buffers
            .get(name)
            .ok_or_else(|| self.missing("buffer", name, buffers.keys()))?;
        if place.dtype != T::DTYPE {
            let what = format!("buffer `{name}` of domain `{}`", self.name());
            return Err(Error::WrongDtype {
                what,
                holds: place.dtype,
                asked: T::DTYPE,
            });
        }
        let layout = self.inner.plan.segment.layout;
        let span = Span {
            segment: layout.segment,
            base: layout.data_offset() + place.offset,
            stride: layout.stride,
            me: Rank(0),
            rank: Rank(0),
            ranks: layout.ranks,
            dtype: T::DTYPE,
            start: 0,
            len: place.count as u64,
        };
        Ok(Buffer::new(self.clone(), place.offset, span))
    }

    /// A row of signals by name.
    ///
    /// # Errors
    /// If there are no such signals.
    pub fn signals(&self, name: &str) -> Result<SignalRow> {
        let signals = &self.inner.plan.places.signals;
        let (first, count) = *signals
            .get(name)
            .ok_or_else(|| self.missing("signals", name, signals.keys()))?;
        let layout = self.inner.plan.segment.layout;
        let row = Signals {
            segment: layout.segment,
            base: PAGE_BYTES + u64::from(first) * SIGNAL_STRIDE_BYTES,
            stride: layout.stride,
            count,
            me: Rank(0),
            ranks: layout.ranks,
        };
        Ok(SignalRow::new(self.clone(), row))
    }

    /// A barrier by name.
    ///
    /// # Errors
    /// If there is no such barrier.
    pub fn barrier(&self, name: &str) -> Result<SignalRow> {
        self.signals(name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn buffers_lie_in_the_window_aligned_and_apart(counts in prop::collection::vec((0usize..3000, 0usize..8), 0..12)) {
            let mut spec = DomainSpec::new("d", [Device(0), Device(1)]).signals("s", 3);
            for (i, (count, dtype)) in counts.iter().enumerate() {
                spec = spec.buffer_of(i.to_string(), Dtype::ALL[*dtype], *count);
            }
            let plan = spec.plan(&Platform::Native, &[Device(0), Device(1)], Segment(0)).unwrap();
            let mut end = 0;
            for i in 0..counts.len() {
                let place = plan.places.buffers[&i.to_string()];
                prop_assert!(place.offset >= end && place.offset.is_multiple_of(BUFFER_ALIGN_BYTES));
                end = place.offset + (place.count * place.dtype.bytes()) as u64;
            }
            prop_assert!(end <= plan.segment.layout.data_bytes());
        }
    }
}
