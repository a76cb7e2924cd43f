//! A domain over the chips of several nodes: one window of shared memory that all of them map.
//!
//! # Invariants
//! - **WIDE-1 (one number).** Its segment has the same number on every node, so that handles to it mean the same.
//! - **WIDE-2 (one alarm).** A chip that dies, or a task that fails, on any node ends every wait in it, on all.
//! - **WIDE-3 (fresh).** No node resets it by itself, because another may be using it: the worker that opened it
//!   does, when no node uses it.

use crate::backend::native::HostSegment;
use crate::backend::{Members, SegmentPlan};
use crate::domain::{Domain, DomainPlan, DomainSpec, list};
use crate::error::{Error, Result};
use crate::node::Node;
use crate::platform::Platform;
use crate::segments::Sort;
use ringwork_isa::{Device, Segment};
use std::sync::{Arc, Weak};

/// An open domain of chips of several nodes of this host; see [`Pod::open_domain`](super::Pod::open_domain). Every
/// node has its own handle to it, for its own tasks. Released with the last of these handles.
#[derive(Clone, Debug)]
pub struct PodDomain {
    inner: Arc<Wide>,
}

/// State shared by the handles and the worker that opened the domain.
#[derive(Debug)]
pub(super) struct Wide {
    segment: HostSegment,
    /// For each node that has members.
    parts: Vec<Domain>,
    /// The chips of the domain: places among all nodes.
    of_node: Vec<usize>,
}

/// Chips of one node.
pub(super) struct Chosen {
    /// Its place among all nodes.
    node: usize,
    devices: Vec<Device>,
}

/// All chips of all nodes, node by node.
pub(super) fn everyone(nodes: &[&Node]) -> Vec<Chosen> {
    let all = nodes.iter().enumerate();
    all.map(|(node, worker)| Chosen {
        node,
        devices: worker.devices(),
    })
    .collect()
}

/// Some chips, each by its node's place and its own number, in the order of their ranks.
pub(super) fn chosen(
    nodes: &[&Node],
    spec: &DomainSpec,
    members: impl IntoIterator<Item = (usize, Device)>,
) -> Result<Vec<Chosen>> {
    let wrong = |why: String| Err(Error::config(spec.field("members"), why));
    let mut all: Vec<Chosen> = Vec::new();
    for (node, device) in members {
        let Some(worker) = nodes.get(node) else {
            return wrong(format!("node {node} of {}; they count from 0", nodes.len()));
        };
        let name = worker.name();
        let have = worker.devices();
        if !have.contains(&device) {
            let have = list(&have);
            return wrong(format!(
                "device {device} is not a chip of `{name}`, which has {have}"
            ));
        }
        match all.iter().position(|chosen| chosen.node == node) {
            None => all.push(Chosen {
                node,
                devices: vec![device],
            }),
            Some(at) if all[at].devices.contains(&device) => {
                return wrong(format!("device {device} of `{name}` is there twice"));
            }
            Some(at) if at + 1 < all.len() => {
                return wrong(format!(
                    "the chips of `{name}` are apart; name them one after the other"
                ));
            }
            Some(at) => all[at].devices.push(device),
        }
    }
    Ok(all)
}

impl PodDomain {
    pub(super) fn open(nodes: &[&Node], spec: &DomainSpec, members: Vec<Chosen>) -> Result<PodDomain> {
        let ranks: usize = members.iter().map(|chosen| chosen.devices.len()).sum();
        let ranks = u32::try_from(ranks).unwrap_or(u32::MAX);
        let taking_part: Vec<&Node> = members.iter().map(|chosen| nodes[chosen.node]).collect();
        let whole = spec.plan_wide(&Platform::Native, ranks, claim(&taking_part))?;
        let segment = HostSegment::create(&whole.segment.what, whole.segment.layout)?;
        // The plan was checked against the data, so the data fits.
        spec.for_each_staged(&whole, |rank, offset, bytes| {
            let _ = segment.write(rank, offset, bytes);
        });
        let (mut parts, mut first) = (Vec::with_capacity(members.len()), 0);
        for Chosen { node, devices } in &members {
            let part = join(nodes[*node], &segment, &whole, (first, devices))?;
            first += u32::try_from(part.members().len()).unwrap_or(u32::MAX);
            parts.push(part);
        }
        let of_node = members.iter().map(|chosen| chosen.node).collect();
        Ok(PodDomain {
            inner: Arc::new(Wide {
                segment,
                parts,
                of_node,
            }),
        })
    }

    /// One handle for each node that has members, in the order of ranks. The handle's members are the chips of that
    /// node; its ranks and its memory are those of the whole domain.
    #[must_use]
    pub fn parts(&self) -> &[Domain] {
        &self.inner.parts
    }

    /// The handle for tasks of the node with this place among all nodes below; `None` if it has no members.
    #[must_use]
    pub fn part(&self, node: usize) -> Option<&Domain> {
        let at = self.inner.of_node.iter().position(|of| *of == node)?;
        self.inner.parts.get(at)
    }

    pub(super) fn weak(&self) -> Weak<Wide> {
        Arc::downgrade(&self.inner)
    }
}

/// A number that no node has used for a segment (WIDE-1).
fn claim(nodes: &[&Node]) -> Segment {
    let mut number = Segment(0);
    loop {
        let taken = nodes
            .iter()
            .find_map(|node| node.shared.lock().claim_segment(number).err());
        match taken {
            None => return number,
            // Numbers that others have claimed meanwhile are skipped, which costs nothing.
            Some(next) => number = next,
        }
    }
}

/// Passes the memory to the chips of a node, whose ranks begin with `first`.
fn join(
    node: &Node,
    segment: &HostSegment,
    whole: &DomainPlan,
    (first, devices): (u32, &[Device]),
) -> Result<Domain> {
    let mut state = node.shared.lock();
    state.check_open()?;
    let chip = |device| state.devices.iter().position(|known| known == device);
    let chips: Vec<usize> = devices.iter().filter_map(chip).collect();
    for &chip in &chips {
        state.check_alive(chip)?;
    }
    let plan = DomainPlan {
        members: devices.to_vec(),
        segment: SegmentPlan {
            members: Members { first, chips },
            ..whole.segment.clone()
        },
        ..whole.clone()
    };
    if !state.backend.join(segment, &plan.segment)? {
        let why = format!(
            "the chips of `{}` cannot map memory of this host; pass data through the worker's tensors",
            state.name
        );
        return Err(Error::config(format!("domain `{}`", plan.name), why));
    }
    state.know_domain(&plan, Sort::Wide);
    drop(state);
    Ok(Domain::new(plan, node.shared.clone()))
}

impl Wide {
    /// Resets the domain if its waits were ended.
    pub(super) fn revive(&self) {
        if self.segment.is_aborted() {
            self.reset();
        }
    }

    /// Signals at zero and no alarm, unless a member has ended or a task uses it (WIDE-3).
    pub(super) fn reset(&self) {
        let number = self.segment.number();
        let mut states = Vec::with_capacity(self.parts.len());
        for part in &self.parts {
            states.push(part.node().lock());
        }
        let known = |state: &crate::node::State| state.segments.get(&number).map_or(0, |known| known.uses);
        if states.iter().any(|state| known(state) > 0) {
            return;
        }
        self.segment.reset();
        // Segments are attached first. So a chip's death is either seen here, or raises the alarm itself.
        let mut members = states.iter().zip(&self.parts);
        let dead = members.find_map(|(state, part)| state.backend.dead_member(part.segment_members()));
        if let Some((rank, reason)) = dead {
            self.segment.abort(Some(rank), &reason);
        }
    }
}
