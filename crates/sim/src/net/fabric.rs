//! The fabric: every link of a machine, and the way from each place to each other.

use super::dim::{self, ABSENT, Dim, Wiring};
use super::protocol::LinkClass;
use super::shape::Level;
use std::collections::BTreeMap;
use std::ops::Range;

/// The most links a machine may have; a full mesh of 2,048 chips just fits.
pub const MAX_LINKS: u64 = 1 << 22;
/// The most places (chips, or cores of chips) a machine may have.
pub const MAX_PLACES: u64 = 1 << 20;

/// The class of a link that does not work.
const FAILED: u16 = u16::MAX;

/// How the way from one place to another is found.
#[derive(Clone, Debug)]
pub(crate) enum Router {
    /// Dimension by dimension; see [`dim`].
    Dimensions(Vec<Dim>),
    /// Least latency, then fewest links, then lowest link numbers; the table's routes come first.
    Shortest(BTreeMap<(u32, u32), Vec<u32>>),
}

/// A link written down one by one.
#[derive(Clone, Debug, PartialEq)]
pub struct ExplicitLink {
    /// The vertex it leaves: a chip, or a switch after the chips.
    pub from: u32,
    /// The vertex it reaches.
    pub to: u32,
    /// What it does.
    pub class: LinkClass,
}

/// Every link of a machine. Links are directed; vertices are places, then switches.
#[derive(Clone, Debug)]
pub struct Fabric {
    places: u32,
    vertices: u32,
    ends: Vec<[u32; 2]>,
    class_of: Vec<u16>,
    classes: Vec<LinkClass>,
    sections: Vec<(String, u32)>,
    pub(crate) router: Router,
}

impl Fabric {
    /// A machine made of levels, outermost first. The caller has checked the sizes.
    pub(crate) fn of_levels(levels: &[Level], places: u32) -> Fabric {
        let mut wiring = Wiring::new(places);
        let dims = dim::build(levels, places, &mut wiring);
        Fabric::of_wiring(wiring, places, Router::Dimensions(dims))
    }

    /// A machine made of links written down one by one.
    pub(crate) fn of_links(places: u32, switches: u32, links: &[ExplicitLink]) -> Fabric {
        let mut wiring = Wiring::new(places);
        wiring.vertices = places + switches;
        wiring.sections.push(("links".into(), 0));
        for link in links {
            let class = wiring.class(link.class);
            wiring.link([link.from, link.to], class);
        }
        Fabric::of_wiring(wiring, places, Router::Shortest(BTreeMap::new()))
    }

    fn of_wiring(wiring: Wiring, places: u32, router: Router) -> Fabric {
        Fabric {
            places,
            vertices: wiring.vertices,
            ends: wiring.ends,
            class_of: wiring.class_of,
            classes: wiring.classes,
            sections: wiring.sections,
            router,
        }
    }

    /// Chips, or cores of chips: where kernels run.
    #[must_use]
    pub fn places(&self) -> u32 {
        self.places
    }

    /// Places and switches.
    #[must_use]
    pub fn vertices(&self) -> u32 {
        self.vertices
    }

    /// Link numbers; some may be [absent](Fabric::ends).
    #[must_use]
    pub fn links(&self) -> Range<u32> {
        0..u32::try_from(self.ends.len()).unwrap_or(u32::MAX)
    }

    /// Where a link leaves and arrives; `None` if this number is the missing port at a line's end.
    #[must_use]
    pub fn ends(&self, link: u32) -> Option<(u32, u32)> {
        let ends = *self.ends.get(link as usize)?;
        (ends != ABSENT).then_some((ends[0], ends[1]))
    }

    /// What a link does; `None` if it failed or does not exist.
    #[must_use]
    #[inline]
    pub fn class(&self, link: u32) -> Option<LinkClass> {
        let class = *self.class_of.get(link as usize)?;
        self.classes.get(class as usize).copied()
    }

    /// The level a link belongs to.
    #[must_use]
    pub fn section(&self, link: u32) -> &str {
        let after = self.sections.partition_point(|(_, first)| *first <= link);
        after.checked_sub(1).map_or("", |i| self.sections[i].0.as_str())
    }

    /// The links between two vertices, in this direction.
    pub fn between(&self, from: u32, to: u32) -> impl Iterator<Item = u32> + '_ {
        self.links()
            .filter(move |link| self.ends[*link as usize] == [from, to])
    }

    /// A vertex as people call it.
    #[must_use]
    pub fn vertex_name(&self, vertex: u32) -> String {
        match vertex.checked_sub(self.places) {
            None => format!("{vertex}"),
            Some(switch) => format!("s{switch}"),
        }
    }

    /// A link as people call it: `3>4`.
    #[must_use]
    pub fn link_name(&self, link: u32) -> String {
        match self.ends(link) {
            Some((from, to)) => format!("{}>{}", self.vertex_name(from), self.vertex_name(to)),
            None => format!("port {link}"),
        }
    }

    /// Takes a link out of service.
    pub(crate) fn fail(&mut self, link: u32) {
        self.class_of[link as usize] = FAILED;
    }

    /// Gives a link another class.
    pub(crate) fn reclass(&mut self, link: u32, class: LinkClass) {
        let known = self.classes.iter().position(|c| *c == class);
        let index = known.unwrap_or_else(|| {
            self.classes.push(class);
            self.classes.len() - 1
        });
        self.class_of[link as usize] = u16::try_from(index).unwrap_or(FAILED - 1).min(FAILED - 1);
    }

    /// Whether a link works.
    #[must_use]
    pub fn works(&self, link: u32) -> bool {
        self.ends[link as usize] != ABSENT && self.class_of[link as usize] != FAILED
    }

    /// Whether it has the same links, and messages take the same ways.
    #[must_use]
    pub(crate) fn behaves_as(&self, other: &Fabric) -> bool {
        let ways = match (&self.router, &other.router) {
            (Router::Dimensions(_), Router::Dimensions(_)) => true,
            (Router::Shortest(mine), Router::Shortest(others)) => mine == others,
            _ => false,
        };
        ways && self.ends == other.ends
            && self
                .links()
                .all(|link| self.class(link) == other.class(link) && self.works(link) == other.works(link))
    }

    /// A place that cannot reach every other place, or be reached from it; `None` if there is none.
    #[must_use]
    pub fn cut_off(&self) -> Option<u32> {
        [false, true].into_iter().find_map(|backwards| {
            let paths = super::route::Adjacency::new(self, backwards);
            let mut seen = vec![false; self.vertices as usize];
            let mut stack = vec![0u32];
            if let Some(first) = seen.first_mut() {
                *first = true;
            }
            while let Some(vertex) = stack.pop() {
                for link in paths.out(vertex) {
                    let ends = self.ends[*link as usize];
                    let next = if backwards { ends[0] } else { ends[1] };
                    if !std::mem::replace(&mut seen[next as usize], true) {
                        stack.push(next);
                    }
                }
            }
            let lost = seen[..self.places as usize].iter().position(|reached| !reached)?;
            u32::try_from(lost).ok()
        })
    }
}
