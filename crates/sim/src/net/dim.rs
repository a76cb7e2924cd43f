//! Dimensions: levels taken apart into rows that are routed one after the other, by arithmetic alone.
//!
//! # Invariants
//! - **DIM-1 (no tables).** A route costs time and memory in proportion to its length, never to the machine.
//! - **DIM-2 (outermost first).** A route crosses dimensions from the outermost inward; before a dimension
//!   that is reached through a gateway it walks to that gateway.

use super::protocol::LinkClass;
use super::shape::{Attach, Level, Shape};
use crate::time::Rate;

/// The kinds of rows.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Row {
    Ring {
        one_way: bool,
    },
    Line,
    Full,
    /// `core` is the first of the links through blocking switches, one per switch.
    Switch {
        core: Option<u32>,
    },
    FatTree {
        down: Vec<u32>,
        up: Vec<u32>,
        bases: Vec<u32>,
    },
}

/// One dimension of a machine made of levels.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Dim {
    pub(crate) row: Row,
    pub(crate) size: u32,
    /// Places between neighbours of this row.
    pub(crate) stride: u32,
    /// Places inside one member of this dimension's level.
    pub(crate) inner: u32,
    /// First dimension of the level inside.
    pub(crate) inner_dim: usize,
    /// The place inside through which this dimension is reached, if not every place has a port.
    pub(crate) gateway: Option<u32>,
    /// First link, and links per owner.
    pub(crate) base: u32,
    pub(crate) ports: u32,
    pub(crate) switch_base: u32,
    pub(crate) level: usize,
}

impl Dim {
    /// Places per owner of ports.
    pub(crate) fn owner_div(&self) -> u32 {
        if self.gateway.is_some() { self.inner } else { 1 }
    }

    fn coordinate(&self, place: u32) -> u32 {
        place / self.stride % self.size
    }

    /// The row (of all rows of this dimension) that an owner is in.
    pub(crate) fn row_of(&self, owner: u32) -> u32 {
        let step = self.stride / self.owner_div();
        owner / (step * self.size) * step + owner % step
    }

    fn port(&self, place: u32, port: u32) -> u32 {
        self.base + place / self.owner_div() * self.ports + port
    }

    /// The links from `place` to coordinate `to` of its row.
    fn cross(&self, place: u32, to: u32, out: &mut Vec<u32>) {
        let from = self.coordinate(place);
        let target = place - from * self.stride + to * self.stride;
        match &self.row {
            Row::Ring { one_way } => self.around(place, from, to, *one_way, out),
            Row::Line => {
                let mut at = place;
                while at != target {
                    out.push(self.port(at, u32::from(to < from)));
                    at = if to > from {
                        at + self.stride
                    } else {
                        at - self.stride
                    };
                }
            }
            Row::Full => out.push(self.port(place, if to < from { to } else { to - 1 })),
            Row::Switch { core } => {
                out.push(self.port(place, 0));
                if let Some(core) = core {
                    out.push(core + self.row_of(place / self.owner_div()));
                }
                out.push(self.port(target, 1));
            }
            Row::FatTree { down, up, bases } => {
                out.push(self.port(place, 0));
                self.climb(
                    self.row_of(place / self.owner_div()),
                    (from, to),
                    (down, up, bases),
                    out,
                );
                out.push(self.port(target, 1));
            }
        }
    }

    /// The shorter way round; at exactly half, even members go up and odd ones down, so that both
    /// directions carry the same.
    fn around(&self, place: u32, from: u32, to: u32, one_way: bool, out: &mut Vec<u32>) {
        let ahead = (to + self.size - from) % self.size;
        let behind = self.size - ahead;
        let up = one_way || ahead < behind || (ahead == behind && from.is_multiple_of(2));
        let origin = place - from * self.stride;
        let mut at = from;
        while at != to {
            // Two members have one link between them, whichever way one looks.
            let port = if up || self.size == 2 { 0 } else { 1 };
            out.push(self.port(origin + at * self.stride, port));
            at = if up {
                (at + 1) % self.size
            } else {
                (at + self.size - 1) % self.size
            };
        }
    }

    /// Up to the lowest switch above both, and down again; lanes are chosen by destination.
    fn climb(
        &self,
        row: u32,
        (from, to): (u32, u32),
        (down, up, bases): (&[u32], &[u32], &[u32]),
        out: &mut Vec<u32>,
    ) {
        let mut covered = down[0];
        let mut descent = Vec::new();
        for level in 0..up.len() {
            if from / covered == to / covered {
                break;
            }
            let (lane, count) = (to % up[level], self.size / covered);
            let link = |member: u32| bases[level] + ((row * count + member / covered) * up[level] + lane) * 2;
            out.push(link(from));
            descent.push(link(to) + 1);
            covered *= down[level + 1];
        }
        out.extend(descent.into_iter().rev());
    }
}

/// Appends the links from `src` to `dst`.
pub(crate) fn route(dims: &[Dim], src: u32, dst: u32, out: &mut Vec<u32>) {
    walk(dims, 0, src, dst, out);
}

fn walk(dims: &[Dim], first: usize, src: u32, dst: u32, out: &mut Vec<u32>) {
    let mut at = src;
    for dim in &dims[first..] {
        let (from, to) = (dim.coordinate(at), dim.coordinate(dst));
        if from == to {
            continue;
        }
        if let Some(gateway) = dim.gateway {
            let door = at - at % dim.inner + gateway;
            walk(dims, dim.inner_dim, at, door, out);
            at = door;
        }
        dim.cross(at, to, out);
        at = at - from * dim.stride + to * dim.stride;
    }
}

/// Links and vertices as they are added.
pub(crate) struct Wiring {
    pub(crate) ends: Vec<[u32; 2]>,
    pub(crate) class_of: Vec<u16>,
    pub(crate) classes: Vec<LinkClass>,
    pub(crate) vertices: u32,
    /// Name and first link of each level, in order of links.
    pub(crate) sections: Vec<(String, u32)>,
}

/// A port that leads nowhere: the end of a line.
pub(crate) const ABSENT: [u32; 2] = [u32::MAX; 2];

impl Wiring {
    pub(crate) fn new(places: u32) -> Wiring {
        Wiring {
            ends: Vec::new(),
            class_of: Vec::new(),
            classes: Vec::new(),
            vertices: places,
            sections: Vec::new(),
        }
    }

    pub(crate) fn class(&mut self, class: LinkClass) -> u16 {
        let known = self.classes.iter().position(|c| *c == class);
        let index = known.unwrap_or_else(|| {
            self.classes.push(class);
            self.classes.len() - 1
        });
        // FAILED is kept free; more classes than that are more than any description has links to give.
        u16::try_from(index).unwrap_or(u16::MAX - 1).min(u16::MAX - 1)
    }

    pub(crate) fn next_link(&self) -> u32 {
        u32::try_from(self.ends.len()).unwrap_or(u32::MAX)
    }

    pub(crate) fn link(&mut self, ends: [u32; 2], class: u16) {
        self.ends.push(ends);
        self.class_of.push(class);
    }

    fn switches(&mut self, count: u32) -> u32 {
        let base = self.vertices;
        self.vertices += count;
        base
    }
}

/// Takes levels apart and lays every link. The caller has checked that sizes and links fit.
pub(crate) fn build(levels: &[Level], places: u32, wiring: &mut Wiring) -> Vec<Dim> {
    let mut dims: Vec<Dim> = Vec::new();
    let mut outer = places;
    for (index, level) in levels.iter().enumerate() {
        let size = u32::try_from(level.shape.size()).unwrap_or(u32::MAX);
        let inner = outer / size;
        let rows: Vec<(Row, u32)> = match &level.shape {
            Shape::Ring(n) => vec![(
                Row::Ring {
                    one_way: level.one_way,
                },
                *n,
            )],
            Shape::Line(n) => vec![(Row::Line, *n)],
            Shape::Mesh(sizes) => sizes.iter().map(|n| (Row::Line, *n)).collect(),
            Shape::Torus(sizes) => sizes
                .iter()
                .map(|n| {
                    (
                        Row::Ring {
                            one_way: level.one_way,
                        },
                        *n,
                    )
                })
                .collect(),
            Shape::Full(n) => vec![(Row::Full, *n)],
            Shape::Switch { size, core } => vec![(
                Row::Switch {
                    core: (!core.is_unlimited()).then_some(0),
                },
                *size,
            )],
            Shape::FatTree { down, up } => {
                vec![(
                    Row::FatTree {
                        down: down.clone(),
                        up: up.clone(),
                        bases: Vec::new(),
                    },
                    size,
                )]
            }
        };
        let inner_dim = dims.len() + rows.len();
        let mut stride = outer;
        for (row, size) in rows {
            stride /= size;
            let mut dim = Dim {
                ports: if row == Row::Full {
                    size.saturating_sub(1)
                } else {
                    2
                },
                row,
                size,
                stride,
                inner,
                inner_dim,
                gateway: match level.attach {
                    Attach::Each => None,
                    Attach::Gateway(gateway) => Some(gateway),
                },
                base: wiring.next_link(),
                switch_base: 0,
                level: index,
            };
            wiring.sections.push((level.name.clone(), dim.base));
            wire(&mut dim, level, places, wiring);
            dims.push(dim);
        }
        outer = inner;
    }
    dims
}

/// Lays the links of one dimension.
fn wire(dim: &mut Dim, level: &Level, places: u32, wiring: &mut Wiring) {
    let owners = places / dim.owner_div();
    let (div, door) = (dim.owner_div(), dim.gateway.unwrap_or(0));
    let place_of = |owner: u32| owner * div + door;
    let half = level.link.map_latency(|latency_ps| latency_ps / 2);
    let rest = level.link.map_latency(|latency_ps| latency_ps - latency_ps / 2);
    let rows = owners / dim.size;
    let mut blocking = Rate::UNLIMITED;
    if let Shape::Switch { core, .. } = &level.shape {
        blocking = *core;
    }
    // A blocking switch is two vertices, in and out, with its capacity between them.
    let through = if blocking.is_unlimited() { 0 } else { rows };
    let has_switch = matches!(dim.row, Row::Switch { .. } | Row::FatTree { .. });
    if has_switch {
        let leaves = if let Row::FatTree { down, .. } = &dim.row {
            dim.size / down[0]
        } else {
            1
        };
        dim.switch_base = wiring.switches(rows * leaves + through);
    }
    let (whole, up, down) = if has_switch {
        (0, wiring.class(half), wiring.class(rest))
    } else {
        (wiring.class(level.link), 0, 0)
    };
    for owner in 0..owners {
        let here = place_of(owner);
        let at = dim.coordinate(here);
        let peer = |to: u32| here - at * dim.stride + to * dim.stride;
        match &dim.row {
            Row::Ring { one_way } => {
                let n = dim.size;
                let ahead = if n > 1 { [here, peer((at + 1) % n)] } else { ABSENT };
                let behind = if n > 2 && !one_way {
                    [here, peer((at + n - 1) % n)]
                } else {
                    ABSENT
                };
                wiring.link(ahead, whole);
                wiring.link(behind, whole);
            }
            Row::Line => {
                wiring.link(
                    if at + 1 < dim.size {
                        [here, peer(at + 1)]
                    } else {
                        ABSENT
                    },
                    whole,
                );
                wiring.link(if at > 0 { [here, peer(at - 1)] } else { ABSENT }, whole);
            }
            Row::Full => (0..dim.size)
                .filter(|to| *to != at)
                .for_each(|to| wiring.link([here, peer(to)], whole)),
            Row::Switch { .. } => {
                let switch = dim.switch_base + dim.row_of(owner);
                wiring.link([here, switch], up);
                wiring.link([switch + through, here], down);
            }
            Row::FatTree { down: fan, .. } => {
                let switch = dim.switch_base + dim.row_of(owner) * (dim.size / fan[0]) + at / fan[0];
                wiring.link([here, switch], up);
                wiring.link([switch, here], down);
            }
        }
    }
    if let Row::Switch { core: core @ Some(_) } = &mut dim.row {
        *core = Some(wiring.next_link());
        let class = wiring.class(LinkClass::new(blocking, 0));
        for row in 0..rows {
            wiring.link([dim.switch_base + row, dim.switch_base + rows + row], class);
        }
    }
    if let Row::FatTree {
        down: fan,
        up: lanes,
        bases,
    } = &mut dim.row
    {
        let (mut covered, mut below) = (fan[0], dim.switch_base);
        for (level, lanes) in lanes.iter().enumerate() {
            bases.push(wiring.next_link());
            let count = dim.size / covered;
            let above = wiring.switches(rows * (count / fan[level + 1]));
            for switch in 0..rows * count {
                let (row, member) = (switch / count, switch % count);
                let parent = above + row * (count / fan[level + 1]) + member / fan[level + 1];
                for _ in 0..*lanes {
                    wiring.link([below + switch, parent], up);
                    wiring.link([parent, below + switch], down);
                }
            }
            below = above;
            covered *= fan[level + 1];
        }
    }
}
