//! The description of a domain, and the layout of its memory.

use super::list;
#[cfg(feature = "collectives")]
use super::team_spec::TeamSpec;
use crate::backend::{Members, SegmentPlan};
use crate::error::{Error, Result};
use crate::platform::Platform;
use crate::signal_names::SignalsOf;
use ringwork_isa::{Device, Dtype, Element, Rank, Segment};
use ringwork_layout::{BufferPlace, CellRow, LayoutError, WindowBuilder};
use std::collections::BTreeMap;

/// The specification of a domain: its members in rank order, and the contents of their windows.
///
/// ```
/// use ringwork_runtime::{DomainSpec, Device};
/// let spec = DomainSpec::new("tp", [2, 0].map(Device)) // device 2 is rank 0
///     .buffer::<f32>("slots", 512)
///     .barrier("meet")
///     .signals("filled", 2);
/// ```
#[derive(Clone, Debug)]
pub struct DomainSpec {
    name: String,
    members: Vec<Device>,
    window_bytes: Option<u64>,
    buffers: Vec<(String, Dtype, usize)>,
    signals: Vec<(String, u32)>,
    staged: Vec<Staged>,
    #[cfg(feature = "collectives")]
    teams: Vec<(String, TeamSpec)>,
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
            #[cfg(feature = "collectives")]
            teams: Vec::new(),
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

    /// A team of all members: the memory for collective calls of up to `elements` elements of type `T`, by every algorithm
    /// that shares memory. Longer calls are possible too, and go in several pieces.
    #[cfg(feature = "collectives")]
    #[must_use]
    pub fn team<T: Element>(self, name: impl Into<String>, elements: usize) -> DomainSpec {
        self.team_by(name, TeamSpec::new(T::DTYPE, elements))
    }

    /// The same, for one algorithm.
    #[cfg(feature = "collectives")]
    #[must_use]
    pub fn team_by(mut self, name: impl Into<String>, team: TeamSpec) -> DomainSpec {
        self.teams.push((name.into(), team));
        self
    }

    /// Sets the size of each window; the default is the size of its buffers.
    #[must_use]
    pub fn window_bytes(mut self, bytes: u64) -> DomainSpec {
        self.window_bytes = Some(bytes);
        self
    }

    /// Puts host data into a buffer of one rank before anyone can see the window.
    #[must_use]
    pub fn stage<T: Element>(self, buffer: impl Into<String>, rank: Rank, data: &[T]) -> DomainSpec {
        self.stage_bytes(buffer, rank, T::DTYPE, bytemuck::cast_slice(data).to_vec())
    }

    /// The same, of data whose type is a value.
    #[must_use]
    pub fn stage_bytes(
        mut self,
        buffer: impl Into<String>,
        rank: Rank,
        dtype: Dtype,
        bytes: Vec<u8>,
    ) -> DomainSpec {
        self.staged.push(Staged {
            buffer: buffer.into(),
            rank,
            dtype,
            bytes,
        });
        self
    }

    /// The name of one of its fields, for errors.
    pub(crate) fn field(&self, name: &str) -> String {
        format!("domain `{}`: {name}", self.name)
    }

    /// Computes the layout, or names the field that is wrong.
    pub(crate) fn plan(
        &self,
        platform: &Platform,
        devices: &[Device],
        segment: Segment,
    ) -> Result<DomainPlan> {
        let members = Members::all(self.chips(platform, devices)?);
        let ranks = u32::try_from(members.chips.len()).unwrap_or(u32::MAX);
        self.plan_for(platform, ranks, segment, self.members.clone(), members)
    }

    /// The same for a domain with this many ranks on several workers; the chips are not known yet.
    pub(crate) fn plan_wide(&self, platform: &Platform, ranks: u32, segment: Segment) -> Result<DomainPlan> {
        if !self.members.is_empty() {
            let why = "a spec for several workers names no members: `open_domain` takes all chips, `open_domain_of` some";
            return Err(Error::config(self.field("members"), why));
        }
        let most = platform.max_ranks();
        if ranks == 0 || ranks > most {
            let why = format!("{ranks} members; a domain has 1 to {most}");
            return Err(Error::config(self.field("members"), why));
        }
        self.plan_for(platform, ranks, segment, Vec::new(), Members::all([]))
    }

    /// The same for a domain with this many ranks, of which these chips belong to one worker.
    pub(crate) fn plan_for(
        &self,
        platform: &Platform,
        ranks: u32,
        segment: Segment,
        devices: Vec<Device>,
        members: Members,
    ) -> Result<DomainPlan> {
        let (mut window, mut places) = (WindowBuilder::default(), Places::default());
        for (name, dtype, count) in &self.buffers {
            add(&mut places.buffers, name, window.buffer(*dtype, *count))
                .map_err(|why| Error::config(self.field("buffers"), why))?;
        }
        for (name, count) in &self.signals {
            add(&mut places.signals, name, window.row(*count))
                .map_err(|why| Error::config(self.field("signals"), why))?;
        }
        let rows = places.signals.iter();
        let signals: Vec<SignalsOf> = rows
            .map(|(name, row)| (row.first, row.count, name.clone()))
            .collect();
        #[cfg(feature = "collectives")]
        let signals = {
            let mut signals = signals;
            for (name, team) in &self.teams {
                let first = window.cells();
                add(&mut places.teams, name, team.declare(ranks, &mut window))
                    .map_err(|why| Error::config(self.field("teams"), why))?;
                signals.push((first, window.cells() - first, name.clone()));
            }
            signals
        };
        let needed = window.data_bytes();
        let asked = self.window_bytes.unwrap_or(needed);
        if needed > asked {
            let why = format!("the buffers need {needed} bytes and the window has {asked}");
            return Err(Error::config(self.field("buffers"), why));
        }
        let layout = platform
            .windows(segment, ranks, window.cells(), asked)
            .map_err(|error| Error::config(self.field("window_bytes"), error.to_string()))?;
        let what = format!("window \"{}\"", self.name);
        let plan = DomainPlan {
            name: self.name.clone(),
            members: devices,
            asked_bytes: asked,
            places,
            segment: SegmentPlan {
                layout,
                what,
                members,
                signals,
            },
        };
        self.check_staged(&plan)?;
        Ok(plan)
    }

    fn chips(&self, platform: &Platform, devices: &[Device]) -> Result<Vec<usize>> {
        let most = platform.max_ranks();
        if self.members.is_empty() || self.members.len() > most as usize {
            let why = format!("{} members; a domain has 1 to {most}", self.members.len());
            return Err(Error::config(self.field("members"), why));
        }
        let mut chips = Vec::with_capacity(self.members.len());
        for member in &self.members {
            let Some(chip) = devices.iter().position(|device| device == member) else {
                let why = format!(
                    "device {member} is not a chip of this worker, which has {}",
                    list(devices)
                );
                return Err(Error::config(self.field("members"), why));
            };
            if chips.contains(&chip) {
                return Err(Error::config(
                    self.field("members"),
                    format!("device {member} is there twice"),
                ));
            }
            chips.push(chip);
        }
        Ok(chips)
    }

    fn check_staged(&self, plan: &DomainPlan) -> Result<()> {
        for Staged {
            buffer,
            rank,
            dtype,
            bytes,
        } in &self.staged
        {
            let wrong = |why: String| {
                Err(Error::config(
                    self.field("stage"),
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

    /// Passes every staged piece to `write(rank, offset, bytes)`. The plan was checked against it.
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

/// The places of all parts of a window, by name.
#[derive(Clone, Debug, Default)]
pub(crate) struct Places {
    pub(crate) buffers: BTreeMap<String, BufferPlace>,
    pub(super) signals: BTreeMap<String, CellRow>,
    #[cfg(feature = "collectives")]
    pub(super) teams: BTreeMap<String, ringwork_collectives::domain::Places>,
}

/// Names a place; refuses a name that is taken.
fn add<P>(
    places: &mut BTreeMap<String, P>,
    name: &str,
    made: std::result::Result<P, LayoutError>,
) -> std::result::Result<(), String> {
    let place = made.map_err(|why| format!("`{name}`: {why}"))?;
    match places.insert(name.to_owned(), place) {
        Some(_) => Err(format!("`{name}` is there twice")),
        None => Ok(()),
    }
}

/// A checked domain with its layout.
#[derive(Clone, Debug)]
pub(crate) struct DomainPlan {
    pub(crate) name: String,
    /// In the order of the segment's members.
    pub(crate) members: Vec<Device>,
    pub(crate) asked_bytes: u64,
    pub(crate) places: Places,
    pub(crate) segment: SegmentPlan,
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
                prop_assert!(place.offset >= end && place.offset.is_multiple_of(ringwork_layout::BUFFER_ALIGN_BYTES));
                end = place.offset + place.bytes() as u64;
            }
            prop_assert!(end <= plan.segment.layout.data_bytes());
        }
    }
}
