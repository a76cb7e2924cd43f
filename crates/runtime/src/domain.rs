//! Domains: which chips communicate, and the memory that each exposes.

mod spec;
#[cfg(feature = "collectives")]
mod team_spec;

pub use ringwork_layout::BufferPlace;
pub(crate) use spec::DomainPlan;
pub use spec::DomainSpec;
#[cfg(feature = "collectives")]
pub use team_spec::TeamSpec;

use crate::backend::Members;
#[cfg(feature = "collectives")]
use crate::buffer::TeamHandle;
use crate::buffer::{Buffer, SignalRow};
use crate::erased::AnyBuffer;
use crate::error::{Error, Result};
use crate::node::Shared;
use crate::per_chip::PerChip;
use ringwork_isa::{Device, Element, Rank, Segment};
use std::sync::Arc;

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

    /// The number of ranks, on all workers.
    #[must_use]
    pub fn ranks(&self) -> u32 {
        self.inner.plan.segment.layout.ranks
    }

    /// Releases the domain: from now on its handles are refused.
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

    /// Its buffers: the name of each, and where it lies.
    pub fn buffers(&self) -> impl ExactSizeIterator<Item = (&str, BufferPlace)> {
        let buffers = self.inner.plan.places.buffers.iter();
        buffers.map(|(name, place)| (name.as_str(), *place))
    }

    /// Calls `value` for each member in this node, in the order of ranks, and returns the results, indexed by chip.
    ///
    /// # Errors
    /// The first error of `value`.
    pub fn each<T>(&self, value: impl FnMut(Device) -> Result<T>) -> Result<PerChip<T>> {
        PerChip::try_of(self.members().iter().copied(), value)
    }

    /// A buffer by name.
    ///
    /// # Errors
    /// If there is no such buffer, or it holds another type.
    pub fn buffer<T: Element>(&self, name: &str) -> Result<Buffer<T>> {
        let place = self.buffer_place(name)?;
        if place.dtype != T::DTYPE {
            let what = format!("buffer `{name}` of domain `{}`", self.name());
            return Err(Error::WrongDtype {
                what,
                holds: place.dtype,
                asked: T::DTYPE,
            });
        }
        let layout = self.inner.plan.segment.layout;
        let span = layout.span(Rank(0), place);
        Ok(Buffer::new(self.clone(), place.offset, span))
    }

    /// A buffer by name, of any type.
    ///
    /// # Errors
    /// If there is no such buffer.
    pub fn any_buffer(&self, name: &str) -> Result<AnyBuffer> {
        let place = self.buffer_place(name)?;
        let span = self.inner.plan.segment.layout.span(Rank(0), place);
        Ok(AnyBuffer::new(self.clone(), place.offset, span))
    }

    fn buffer_place(&self, name: &str) -> Result<BufferPlace> {
        let buffers = &self.inner.plan.places.buffers;
        let place = buffers.get(name).copied();
        place.ok_or_else(|| self.missing("buffer", name, buffers.keys()))
    }

    /// A row of signals by name.
    ///
    /// # Errors
    /// If there are no such signals.
    pub fn signals(&self, name: &str) -> Result<SignalRow> {
        let signals = &self.inner.plan.places.signals;
        let row = *signals
            .get(name)
            .ok_or_else(|| self.missing("signals", name, signals.keys()))?;
        let layout = self.inner.plan.segment.layout;
        let row = layout.signals(Rank(0), row);
        Ok(SignalRow::new(self.clone(), row))
    }

    /// A team by name.
    ///
    /// # Errors
    /// If there is no such team.
    #[cfg(feature = "collectives")]
    pub fn team(&self, name: &str) -> Result<TeamHandle> {
        let teams = &self.inner.plan.places.teams;
        let places = teams
            .get(name)
            .ok_or_else(|| self.missing("team", name, teams.keys()))?;
        let memory = places.memory(&self.inner.plan.segment.layout, Rank(0));
        Ok(TeamHandle::new(self.clone(), memory))
    }

    /// A barrier by name.
    ///
    /// # Errors
    /// If there is no such barrier.
    pub fn barrier(&self, name: &str) -> Result<SignalRow> {
        self.signals(name)
    }
}

/// Devices in text form.
pub(crate) fn list(devices: &[Device]) -> String {
    devices
        .iter()
        .map(ToString::to_string)
        .collect::<Vec<_>>()
        .join(", ")
}
