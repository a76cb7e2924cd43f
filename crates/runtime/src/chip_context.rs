//! What a chip is, and the domains that it is a member of.

use crate::domain::{BufferPlace, DomainPlan};
use ringwork_isa::{Device, Rank};
use std::collections::BTreeMap;

/// A chip: its device and its part in every open domain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChipContext {
    /// Which accelerator.
    pub device: Device,
    /// Its part in each domain that it is a member of.
    pub domains: Vec<DomainContext>,
}

/// A chip's part in a domain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DomainContext {
    /// The domain's name.
    pub name: String,
    /// The chip's rank in it.
    pub rank: Rank,
    /// Its members.
    pub ranks: u32,
    /// The requested bytes of the window.
    pub window_bytes_asked: u64,
    /// The actual bytes of the window.
    pub window_bytes: u64,
    /// The buffers in the window, by name.
    pub buffers: BTreeMap<String, BufferPlace>,
}

impl ChipContext {
    pub(crate) fn of_all<'a>(
        devices: &[Device],
        plans: impl Iterator<Item = &'a DomainPlan> + Clone,
    ) -> Vec<ChipContext> {
        let context = |device: &Device| ChipContext {
            device: *device,
            domains: plans
                .clone()
                .filter_map(|plan| DomainContext::of(*device, plan))
                .collect(),
        };
        devices.iter().map(context).collect()
    }
}

impl DomainContext {
    fn of(device: Device, plan: &DomainPlan) -> Option<DomainContext> {
        let place = plan.members.iter().position(|member| *member == device)?;
        let first = plan.segment.members.first;
        let layout = plan.segment.layout;
        Some(DomainContext {
            name: plan.name.clone(),
            rank: Rank(first.checked_add(u32::try_from(place).ok()?)?),
            ranks: layout.ranks,
            window_bytes_asked: plan.asked_bytes,
            window_bytes: layout.data_bytes(),
            buffers: plan.places.buffers.clone(),
        })
    }
}
