//! A resolved machine as a picture: places where they are in their level, links by how much they carry.
//!
//! A link is as wide as it is fast. Its colour says its level, its dimension in a grid of three or more, or, in a machine that
//! is a list of links, its speed.

use crate::ShowPs;
use crate::net::{Attach, Shape};
use crate::topology::Topology;
use layout::{Drawing, Point, coordinates, layout, positions};
use ringwork_timeline::escape;
use std::collections::BTreeMap;
use std::fmt::Write;

mod layout;

/// Larger ones are drawn with fewer members.
const MAX_DRAWN: u64 = 4096;

const COLOURS: [&str; 6] = ["#3f7fd0", "#d9822b", "#3c9a5f", "#9b59b6", "#c0392b", "#16a085"];

impl Topology {
    /// The machine as an SVG picture.
    #[must_use]
    pub fn svg(&self) -> String {
        self.picture().svg()
    }

    fn picture(&self) -> Picture {
        if let Some(smaller) = self.smaller() {
            return smaller.picture();
        }
        let drawing = layout(self);
        let at = positions(self, &drawing);
        let fabric = &self.fabric;
        let mut sections: Vec<&str> = Vec::new();
        // One line for both directions and all lanes between two vertices.
        let mut lines: BTreeMap<(u32, u32), (f64, u32, usize, bool)> = BTreeMap::new();
        let fold = |v: u32| {
            if v < fabric.places() {
                v / drawing.inside * drawing.inside
            } else {
                v
            }
        };
        for link in fabric.links() {
            let Some((from, to)) = fabric.ends(link) else {
                continue;
            };
            let (a, b) = (fold(from), fold(to));
            if a == b || !at.contains_key(&a) || !at.contains_key(&b) {
                continue;
            }
            let name = fabric.section(link);
            let section = sections.iter().position(|s| *s == name).unwrap_or_else(|| {
                sections.push(name);
                sections.len() - 1
            });
            let line = lines
                .entry((a.min(b), a.max(b)))
                .or_insert((0.0, 0, section, false));
            match fabric.class(link) {
                Some(class) => line.0 += class.bandwidth.get() as f64,
                None => line.3 = true,
            }
            line.1 += 1;
        }
        let dimensions = self.dimensions();
        let widest = lines.values().map(|line| line.0).fold(1.0, f64::max);
        // Of a list of links: its speeds, the fastest first.
        let mut speeds: Vec<f64> = lines.values().filter(|line| !line.3).map(|line| line.0).collect();
        speeds.sort_by(|a, b| b.total_cmp(a));
        speeds.dedup();
        if !self.levels.is_empty() || speeds.len() > COLOURS.len() {
            speeds.clear();
        }
        let mut body = String::new();
        let mut reach: Vec<Point> = at.values().copied().collect();
        for ((a, b), (rate, count, section, failed)) in &lines {
            let (p, q) = (at[a], at[b]);
            let width = 0.8 + 4.2 * rate / widest;
            let along = self.along(*a, *b);
            let of = along
                .map(|(dimension, _)| dimension)
                .filter(|_| !dimensions.is_empty());
            let colour = if *failed {
                "#d3364f"
            } else {
                let speed = speeds.iter().position(|speed| speed == rate);
                COLOURS[of.or(speed).unwrap_or(*section) % COLOURS.len()]
            };
            let dash = if *failed { " stroke-dasharray=\"4 4\"" } else { "" };
            let title = format!(
                "{} - {}: {count} links, {}{}",
                fabric.vertex_name(*a),
                fabric.vertex_name(*b),
                crate::time::Scaled(*rate, "B/s in all"),
                if *failed { ", failed" } else { "" }
            );
            let (dx, dy) = (q.0 - p.0, q.1 - p.1);
            let length = (dx * dx + dy * dy).sqrt();
            if along.is_some_and(|(_, around)| around) {
                // Both ends point outwards: it comes in again on the other side.
                let out = drawing.side * if dx != 0.0 && dy != 0.0 { 1.25 } else { 1.0 };
                let (ux, uy) = (dx / length * out, dy / length * out);
                for (end, out) in [(p, (p.0 - ux, p.1 - uy)), (q, (q.0 + ux, q.1 + uy))] {
                    let _ = writeln!(
                        body,
                        "<path class=\"around\" data-ends=\"{a} {b}\" d=\"M{:.1} {:.1}L{:.1} {:.1}\" stroke=\"{colour}\" stroke-width=\"{width:.1}\"{dash}><title>{}</title></path>",
                        end.0,
                        end.1,
                        out.0,
                        out.1,
                        escape(&title)
                    );
                    reach.push(out);
                }
                continue;
            }
            // Other long links bend, so that they do not lie on the short ones.
            let straight = of.is_some_and(|dimension| dimension < 3);
            let bend =
                if length > drawing.side * 2.4 && !straight && a < &fabric.places() && b < &fabric.places() {
                    0.16
                } else {
                    0.0
                };
            let middle = ((p.0 + q.0) / 2.0 - dy * bend, (p.1 + q.1) / 2.0 + dx * bend);
            let crowded = bend > 0.0 && lines.len() > 64;
            let far = if crowded { " class=\"far\"" } else { "" };
            reach.push((
                (p.0 + q.0 + 2.0 * middle.0) / 4.0,
                (p.1 + q.1 + 2.0 * middle.1) / 4.0,
            ));
            let _ = writeln!(
                body,
                "<path{far} data-ends=\"{a} {b}\" d=\"M{:.1} {:.1}Q{:.1} {:.1} {:.1} {:.1}\" stroke=\"{colour}\" stroke-width=\"{width:.1}\"{dash}><title>{}</title></path>",
                p.0,
                p.1,
                middle.0,
                middle.1,
                q.0,
                q.1,
                escape(&title)
            );
        }
        self.write_boxes(&drawing, &at, &mut body);
        let legend = self.legend(&drawing, (&sections, &dimensions), &speeds, &body);
        let (margin, mut low, mut high) = (drawing.side, (f64::MAX, f64::MAX), (f64::MIN, f64::MIN));
        for (x, y) in reach {
            low = (low.0.min(x), low.1.min(y));
            high = (high.0.max(x), high.1.max(y));
        }
        Picture {
            low: (low.0 - margin, low.1 - margin),
            size: (high.0 - low.0 + 2.0 * margin, high.1 - low.1 + 2.0 * margin),
            legend,
            body,
        }
    }

    /// The dimension that a link of a single grid goes along, and whether it closes a ring there.
    fn along(&self, a: u32, b: u32) -> Option<(usize, bool)> {
        let [level] = self.levels.as_slice() else {
            return None;
        };
        let (Shape::Torus(dims) | Shape::Mesh(dims)) = &level.shape else {
            return None;
        };
        let [a, b] = [a, b].map(|place| coordinates(place as usize, dims));
        let mut differ = a.iter().zip(&b).enumerate().filter(|(_, (a, b))| a != b);
        let (dimension, ((from, size), (to, _))) = differ.next()?;
        let apart = from.abs_diff(*to);
        (differ.next().is_none()).then_some((dimension, *size > 2 && apart == size - 1))
    }

    /// What each dimension of a grid of three or more is drawn like; links of other machines go by their level.
    fn dimensions(&self) -> Vec<String> {
        let [level] = self.levels.as_slice() else {
            return Vec::new();
        };
        let (dims, line) = match &level.shape {
            Shape::Torus(dims) => (dims, "rings"),
            Shape::Mesh(dims) => (dims, "lines"),
            _ => return Vec::new(),
        };
        if dims.len() < 3 {
            return Vec::new();
        }
        let way = ["to the right", "down", "to the back", "beside", "below"];
        let name = |(dimension, size): (usize, &u32)| {
            let way = way.get(dimension).copied().unwrap_or("beside");
            format!("{way}: {line} of {size}")
        };
        dims.iter().rev().enumerate().map(name).collect()
    }

    /// A machine of the same shapes with fewer members, if this one is too large to draw.
    fn smaller(&self) -> Option<Topology> {
        let outermost = self
            .levels
            .first()
            .map_or(u64::from(self.fabric.places()), |level| level.shape.size());
        if outermost <= MAX_DRAWN {
            return None;
        }
        let clip = |n: &u32| (*n).min(8);
        let mut level = self.levels.first().cloned().unwrap_or_else(|| crate::net::Level {
            name: "links".into(),
            shape: Shape::Ring(8),
            link: crate::net::LinkClass::new(crate::Rate::UNLIMITED, 0),
            one_way: false,
            attach: Attach::Each,
        });
        level.attach = Attach::Each;
        level.shape = match level.shape {
            Shape::Ring(_) => Shape::Ring(32),
            Shape::Line(_) => Shape::Line(32),
            Shape::Full(_) => Shape::Full(32),
            Shape::Switch { core, .. } => Shape::Switch { size: 32, core },
            Shape::Mesh(dims) => Shape::Mesh(dims.iter().take(4).map(clip).collect()),
            Shape::Torus(dims) => Shape::Torus(dims.iter().take(4).map(clip).collect()),
            Shape::FatTree { .. } => Shape::FatTree {
                down: vec![8, 4],
                up: vec![8],
            },
        };
        let places = u32::try_from(level.shape.size()).ok()?;
        let fabric = crate::net::Fabric::of_levels(std::slice::from_ref(&level), places);
        Some(Topology {
            name: format!(
                "{} (drawn with {places} of its {} ranks)",
                self.name,
                self.ranks()
            ),
            levels: vec![level],
            fabric: std::sync::Arc::new(fabric),
            cores_per_chip: 1,
            unit: crate::topology::Unit::Core,
            speed: BTreeMap::new(),
            ..self.clone()
        })
    }

    fn write_boxes(&self, drawing: &Drawing, at: &BTreeMap<u32, Point>, body: &mut String) {
        let (side, half) = (drawing.side, drawing.side / 2.0);
        for (vertex, (x, y)) in at {
            if *vertex >= self.fabric.places() {
                let name = self.fabric.vertex_name(*vertex);
                let _ = writeln!(
                    body,
                    "<g data-vertex=\"{vertex}\"><circle class=\"switch\" cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"{:.1}\"/><text x=\"{x:.1}\" y=\"{y:.1}\">{name}</text></g>",
                    half * 0.8
                );
            } else if vertex % drawing.inside == 0 {
                let number = vertex / drawing.inside;
                let slow = self
                    .speed
                    .iter()
                    .any(|(rank, speed)| self.place(*rank) / drawing.inside == number && *speed < 1.0);
                let class = if slow { "chip slow" } else { "chip" };
                let inside = if drawing.hidden.is_empty() {
                    String::new()
                } else {
                    format!(" ({})", escape(&drawing.hidden))
                };
                let _ = writeln!(
                    body,
                    "<g data-vertex=\"{vertex}\"><rect class=\"{class}\" x=\"{:.1}\" y=\"{:.1}\" width=\"{side}\" height=\"{side}\" rx=\"6\"/><text x=\"{x:.1}\" y=\"{y:.1}\">{number}</text><title>chip {number}{inside}</title></g>",
                    x - half,
                    y - half,
                );
            }
        }
    }

    /// What the colours mean, after the machine's name.
    fn legend(
        &self,
        drawing: &Drawing,
        (sections, dimensions): (&[&str], &[String]),
        speeds: &[f64],
        body: &str,
    ) -> Vec<(String, String)> {
        let mut legend = vec![(String::new(), format!("{}: {} ranks", self.name, self.ranks()))];
        for (colour, speed) in COLOURS.iter().zip(speeds) {
            let text = crate::time::Scaled(*speed, "B/s, both directions together");
            legend.push(((*colour).to_owned(), text.to_string()));
        }
        let sections = if speeds.is_empty() { sections } else { &[] };
        for (i, section) in sections.iter().enumerate() {
            let level = self.levels.iter().find(|level| level.name == *section);
            let text = level.map_or_else(
                || (*section).to_owned(),
                |level| {
                    let through = match level.attach {
                        Attach::Each => "",
                        Attach::Gateway(_) => ", through one gateway",
                    };
                    let (shape, link) = (level.shape.describe(), level.link);
                    format!(
                        "{section}: {shape}, {}, {}{through}",
                        link.bandwidth,
                        ShowPs(link.latency_ps)
                    )
                },
            );
            // Of a grid of many dimensions the colours are those of the dimensions.
            let colour = if dimensions.is_empty() {
                COLOURS[i % COLOURS.len()]
            } else {
                ""
            };
            legend.push((colour.to_owned(), text));
        }
        for (colour, text) in COLOURS.iter().cycle().zip(dimensions) {
            legend.push(((*colour).to_owned(), text.clone()));
        }
        if body.contains("class=\"around\"") {
            let dotted = "dotted: comes in again on the other side";
            legend.push((String::new(), dotted.to_owned()));
        }
        if !drawing.hidden.is_empty() {
            legend.push((String::new(), format!("inside each: {}", drawing.hidden)));
        }
        legend
    }

    /// The picture and the description as one page that needs nothing else.
    #[must_use]
    pub fn html(&self) -> String {
        let picture = self.picture();
        let key: String = picture.legend[1..]
            .iter()
            .map(|(colour, text)| {
                let line = if colour.is_empty() {
                    String::new()
                } else {
                    format!("<i style=\"background:{colour}\"></i>")
                };
                format!("<span>{line}{}</span>\n", escape(text))
            })
            .collect();
        PAGE.replace("@STYLE@", STYLE)
            .replace("@TITLE@", &escape(&picture.legend[0].1))
            .replace("@KEY@", &key)
            .replace("@PICTURE@", &picture.alone())
            .replace("@DESCRIPTION@", &escape(&self.describe()))
    }
}

/// A machine, drawn.
struct Picture {
    /// The corner at the top left.
    low: Point,
    size: Point,
    /// Colours, and what they mean; the first is the title.
    legend: Vec<(String, String)>,
    body: String,
}

impl Picture {
    /// Without the legend, as large as the page lets it be.
    fn alone(&self) -> String {
        let ((x, y), (width, height)) = (self.low, self.size);
        format!(
            "<svg viewBox=\"{x:.1} {y:.1} {width:.1} {height:.1}\">\n{}</svg>",
            self.body
        )
    }

    /// With the legend above it.
    fn svg(&self) -> String {
        let Picture { legend, body, .. } = self;
        // Whoever shows a large picture shows it smaller; its words must still be read.
        let scale = (self.size.0.max(self.size.1) / READ_AT).max(1.0);
        let legend_height = (legend.len() as f64 * 20.0 + 14.0) * scale;
        let (x, y) = (self.low.0, self.low.1 - legend_height);
        let (width, height) = (self.size.0.max(420.0), self.size.1 + legend_height);
        let mut head = String::new();
        for (i, (colour, text)) in legend.iter().enumerate() {
            let (tx, ty) = (16.0, 22.0 + i as f64 * 20.0);
            let mut shift = 0.0;
            if !colour.is_empty() {
                shift = 24.0;
                let _ = write!(
                    head,
                    "<line x1=\"{tx:.1}\" y1=\"{:.1}\" x2=\"{:.1}\" y2=\"{:.1}\" stroke=\"{colour}\" stroke-width=\"3\"/>",
                    ty - 4.0,
                    tx + 16.0,
                    ty - 4.0
                );
            }
            let class = if i == 0 { "title" } else { "legend" };
            let _ = writeln!(
                head,
                "<text class=\"{class}\" x=\"{:.1}\" y=\"{ty:.1}\">{}</text>",
                tx + shift,
                escape(text)
            );
        }
        format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"{x:.1} {y:.1} {width:.1} {height:.1}\" width=\"{width:.0}\" height=\"{height:.0}\">\n<style>{STYLE}</style>\n<rect class=\"paper\" x=\"{x:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"{height:.1}\"/>\n<g transform=\"translate({x:.1} {y:.1}) scale({scale:.3})\">\n{head}</g>\n{body}</svg>\n"
        )
    }
}

/// The page around a picture, its key and the description.
const PAGE: &str = include_str!("picture/page.html");

/// The side of a picture that a page shows about as large as it is.
const READ_AT: f64 = 800.0;

/// Colours of paper and ink, light and dark.
const STYLE: &str = "\
svg{--ink:#1c2430;--dim:#44546a;--chip:#eef3f9;--paper:#fff;--switch:#44546a;--slow:#fbe3e4}\
@media(prefers-color-scheme:dark){svg{--ink:#e6ebf2;--dim:#9aa8ba;--chip:#222b37;--paper:#12161c;--switch:#5d7391;--slow:#4a2229}}\
path{fill:none;opacity:.9}.far{opacity:.4}.around{stroke-linecap:round;stroke-dasharray:1 5;opacity:.75}.paper{fill:var(--paper)}\
.chip{fill:var(--chip);stroke:var(--dim)}.slow{fill:var(--slow);stroke:#d3364f}.switch{fill:var(--switch)}\
text{font:11px system-ui,sans-serif;text-anchor:middle;dominant-baseline:central;fill:var(--ink)}circle+text{fill:#fff}\
.title{font-size:15px;font-weight:600;text-anchor:start;dominant-baseline:auto}\
.legend{font-size:12px;text-anchor:start;dominant-baseline:auto;fill:var(--dim)}";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_preset_has_a_picture_of_bearable_size() {
        for name in [
            "h100x8",
            "v100x8",
            "tpu-v5e-16x16",
            "ascend-a3-pod",
            "sip6-torus",
            "ring-12",
            "mesh-3x4",
            "torus-4x4x4",
            "fat-tree",
            "full-9",
            "torus-32x32x32",
        ] {
            let topology = Topology::preset(name).unwrap();
            let svg = topology.svg();
            assert!(svg.starts_with("<svg") && svg.ends_with("</svg>\n"), "{name}");
            assert!(svg.contains("class=\"chip\""), "{name}");
            assert!(
                svg.len() < 2_000_000 && !svg.contains("NaN"),
                "{name}: {} bytes",
                svg.len()
            );
            assert!(topology.html().contains(&escape(&topology.describe())));
        }
    }

    #[test]
    fn links_of_a_list_have_the_colour_and_the_width_of_their_speed() {
        let svg = Topology::preset("v100x8").unwrap().svg();
        let drawn = |colour: &str, width: &str| {
            let link = format!("stroke=\"{colour}\" stroke-width=\"{width}\"");
            svg.matches(&link).count()
        };
        assert_eq!((drawn(COLOURS[0], "5.0"), drawn(COLOURS[1], "2.9")), (8, 8));
        assert!(svg.contains(">100 GB/s, both directions together<"), "{svg}");
    }
}
