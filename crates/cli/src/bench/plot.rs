//! Curves of latency and bandwidth: an SVG, or a page in which curves can be switched on and off.
//!
//! Curve `i` has one colour, dash and marker everywhere, and no other curve among the first 40 has the same three.

use super::row::Row;
use crate::units::short_bytes;
use std::fmt::Write;

/// A curve: its name and its points, as (bytes, value).
#[derive(Clone, Debug)]
pub(crate) struct Curve {
    pub(crate) name: String,
    pub(crate) points: Vec<(f64, f64)>,
    /// What no algorithm can beat: drawn behind the others, without a colour of its own.
    pub(crate) is_bound: bool,
}

/// Two charts side by side with the same curves, and a table below them.
#[derive(Clone, Debug)]
pub(crate) struct Plot {
    pub(crate) title: String,
    pub(crate) charts: [(&'static str, Vec<Curve>); 2],
    /// What the horizontal axis is.
    pub(crate) across: String,
    /// The table's rows, the first its head: for the page.
    pub(crate) table: Vec<Vec<String>>,
}

/// Puts a point on the curve of this name, which may be new.
pub(crate) fn add(curves: &mut Vec<Curve>, name: &str, point: (f64, f64)) {
    put(curves, name, point, false);
}

/// Puts a point on the curve of what no algorithm can beat, unless it has one for this size.
pub(crate) fn add_bound(curves: &mut Vec<Curve>, name: &str, point: (f64, f64)) {
    let known = curves.iter().find(|curve| curve.name == name);
    if known.is_none_or(|curve| curve.points.iter().all(|at| at.0 != point.0)) {
        put(curves, name, point, true);
    }
}

fn put(curves: &mut Vec<Curve>, name: &str, point: (f64, f64), is_bound: bool) {
    if point.1 <= 0.0 {
        return;
    }
    match curves.iter_mut().find(|curve| curve.name == name) {
        Some(curve) => curve.points.push(point),
        None => curves.push(Curve {
            name: name.to_owned(),
            points: vec![point],
            is_bound,
        }),
    }
}

/// A chart's place and axes. Both axes are logarithmic: x in base 2, y in base 10.
struct Chart {
    left: f64,
    title: &'static str,
    across: String,
    x: (f64, f64),
    y: (i32, i32),
}

const WIDTH: f64 = 480.0;
const HEIGHT: f64 = 340.0;
const TOP: f64 = 64.0;
const LEFT: f64 = 70.0;
const GAP: f64 = 100.0;
/// Below a chart: its sizes, and what they are.
const BELOW: f64 = 50.0;
/// Bright enough on black, dark enough on white.
const COLOURS: [&str; 10] = [
    "#3b7dd8", "#d9622b", "#2e9e6b", "#b565c9", "#c99a1c", "#1fa3b8", "#d6486f", "#7a8b2f", "#8b6f5c",
    "#6f6fd6",
];
const DASHES: [&str; 4] = ["", "9 4", "2 4", "9 4 2 4"];

/// Colours of paper and ink, light and dark.
const STYLE: &str = "\
svg{--ink:#1c2430;--dim:#66717f;--line:#e2e6eb;--paper:#fff;font-family:system-ui,sans-serif;font-size:12px}\
@media(prefers-color-scheme:dark){svg{--ink:#e6ebf2;--dim:#93a0b2;--line:#2b333e;--paper:#12161c}}\
.paper{fill:var(--paper)}text{fill:var(--ink)}.dim{fill:var(--dim)}.grid{stroke:var(--line)}\
.frame{fill:none;stroke:var(--dim)}.title{font-size:17px;font-weight:600}.head{font-weight:600}\
.curve path{fill:none;stroke-width:2}.curve .point{stroke:var(--paper);stroke-width:.8}\
.bound path{stroke:var(--dim);stroke-width:1.5}.bound .point{fill:var(--dim)}";

/// What a benchmark draws; rows without a size (barrier) are left out.
pub(crate) fn of_rows(rows: &[Row]) -> Plot {
    let rows: Vec<&Row> = rows.iter().filter(|row| row.question.bytes > 0).collect();
    let (mut latency, mut bandwidth) = (Vec::new(), Vec::new());
    let head = [
        "what",
        "size",
        "median us",
        "min us",
        "p99 us",
        "busbw GB/s",
        "wrong",
        "cores",
    ];
    let mut table = vec![head.map(String::from).to_vec()];
    for row in &rows {
        let (name, bytes, stats) = (name(row), row.question.bytes as f64, row.stats);
        add(&mut latency, &name, (bytes, stats.p50));
        add(&mut bandwidth, &name, (bytes, row.busbw()));
        table.push(vec![
            name,
            short_bytes(row.question.bytes),
            format!("{:.3}", stats.p50),
            format!("{:.3}", stats.min),
            format!("{:.3}", stats.p99),
            format!("{:.2}", row.busbw()),
            row.wrong.map_or_else(|| "-".into(), |wrong| wrong.to_string()),
            row.placement(),
        ]);
    }
    let ranks = rows.first().map_or(0, |row| row.ranks);
    Plot {
        title: format!("ringwork bench, {ranks} ranks"),
        charts: [
            ("time of a call (us, median)", latency),
            ("bus bandwidth (GB/s)", bandwidth),
        ],
        across: "size (bytes)".into(),
        table,
    }
}

impl Plot {
    /// As an SVG, or as a page with the table.
    pub(crate) fn draw(&self, html: bool) -> String {
        if html { self.page() } else { self.picture() }
    }

    /// Both charts and the names of their curves.
    fn picture(&self) -> String {
        let curves = &self.charts[0].1;
        let (width, top) = (2.0 * (LEFT + WIDTH) + GAP - 40.0, TOP + HEIGHT + BELOW + 16.0);
        let height = top + 22.0 * curves.len().div_ceil(3) as f64;
        let mut svg = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" width=\"{width}\" \
             height=\"{height}\">\n<style>{STYLE}</style>\n<rect class=\"paper\" width=\"100%\" height=\"100%\"/>\n\
             <text class=\"title\" x=\"{LEFT}\" y=\"26\">{}</text>\n",
            escape(&self.title)
        );
        for ((title, curves), left) in self.charts.iter().zip([LEFT, LEFT + WIDTH + GAP]) {
            if let Some(chart) = Chart::around(title, left, &self.across, curves) {
                chart.draw(&mut svg, curves);
            }
        }
        for (i, curve) in curves.iter().enumerate() {
            let (x, y) = (LEFT + (i % 3) as f64 * 330.0, top + (i / 3) as f64 * 22.0);
            let _ = writeln!(
                svg,
                "<g transform=\"translate({x} {y})\">{}<text x=\"46\">{}</text></g>",
                sample(i, curve),
                escape(&curve.name)
            );
        }
        svg + "</svg>\n"
    }

    /// The charts beside or above each other, as the page is wide; a button for each curve; the table.
    fn page(&self) -> String {
        let (title, mut charts, mut key) = (escape(&self.title), String::new(), String::new());
        for (title, curves) in &self.charts {
            let Some(chart) = Chart::around(title, LEFT, &self.across, curves) else {
                continue;
            };
            let (width, height, top) = (LEFT + WIDTH + 20.0, HEIGHT + BELOW + 30.0, TOP - 30.0);
            let _ = writeln!(
                charts,
                "<svg viewBox=\"0 {top} {width} {height}\" role=\"img\" aria-label=\"{title}\">"
            );
            chart.draw(&mut charts, curves);
            charts.push_str("</svg>\n");
        }
        for (i, curve) in self.charts[0].1.iter().enumerate() {
            let _ = writeln!(
                key,
                "<button data-curve=\"{i}\" aria-pressed=\"true\"><svg viewBox=\"0 -9 42 14\" width=\"42\" \
                 height=\"14\">{}</svg>{}</button>",
                sample(i, curve),
                escape(&curve.name)
            );
        }
        PAGE.replace("@STYLE@", STYLE)
            .replace("@TITLE@", &title)
            .replace("@CHARTS@", &charts)
            .replace("@KEY@", &key)
            .replace("@TABLE@", &self.page_table())
    }

    fn page_table(&self) -> String {
        let mut table = String::new();
        for (i, row) in self.table.iter().enumerate() {
            let tag = if i == 0 { "th" } else { "td" };
            let cells: String = row
                .iter()
                .map(|cell| format!("<{tag}>{}</{tag}>", escape(cell)))
                .collect();
            let _ = writeln!(table, "<tr>{cells}</tr>");
        }
        table
    }
}

/// The page around charts, key and table.
const PAGE: &str = include_str!("plot.html");

fn escape(text: &str) -> String {
    ringwork::timeline::escape(text)
}

/// A piece of a curve with its marker, for the key.
fn sample(i: usize, curve: &Curve) -> String {
    let class = if curve.is_bound { "curve bound" } else { "curve" };
    let mark = if curve.is_bound {
        String::new()
    } else {
        marker(i, (18.0, -4.0), "")
    };
    format!(
        "<g class=\"{class}\"><path d=\"M0 -4H36\" {}/>{mark}</g>",
        stroke(i, curve)
    )
}

fn name(row: &Row) -> String {
    let question = &row.question;
    let mut name = format!("{}, {}", question.collective, question.mode.title());
    if let Some(way) = question.way {
        let _ = write!(name, ", {way}");
    }
    if row.dtype != ringwork::isa::Dtype::F32 {
        let _ = write!(name, ", {}", row.dtype);
    }
    name
}

fn stroke(i: usize, curve: &Curve) -> String {
    if curve.is_bound {
        return "stroke-dasharray=\"1 3\"".into();
    }
    // Neighbours differ in their dashes too: of two curves on each other both are seen.
    let dash = DASHES[(i + i / COLOURS.len()) % DASHES.len()];
    format!(
        "stroke=\"{}\" stroke-dasharray=\"{dash}\"",
        COLOURS[i % COLOURS.len()]
    )
}

/// Neighbours differ in their dashes too.
fn dash(i: usize) -> &'static str {
    DASHES[(i + i / COLOURS.len()) % DASHES.len()]
}

/// A point of curve `i`, with `inside` in it.
fn marker(i: usize, (x, y): (f64, f64), inside: &str) -> String {
    let shape = match i % 5 {
        0 => format!("M{:.1} {y:.1}a3.4 3.4 0 1 0 6.8 0a3.4 3.4 0 1 0 -6.8 0", x - 3.4),
        1 => format!("M{:.1} {:.1}h6v6h-6z", x - 3.0, y - 3.0),
        2 => format!("M{x:.1} {:.1}l4 7h-8z", y - 4.2),
        3 => format!("M{x:.1} {:.1}l4.2 4.2l-4.2 4.2l-4.2 -4.2z", y - 4.2),
        _ => format!("M{x:.1} {:.1}l-4 -7h8z", y + 4.2),
    };
    format!(
        "<path class=\"point\" d=\"{shape}\" style=\"fill:{}\">{inside}</path>",
        COLOURS[i % COLOURS.len()]
    )
}

impl Chart {
    /// Axes that hold every point.
    fn around(title: &'static str, left: f64, across: &str, curves: &[Curve]) -> Option<Chart> {
        let points = || curves.iter().flat_map(|curve| &curve.points);
        let least = |of: fn(&(f64, f64)) -> f64| points().map(of).min_by(f64::total_cmp);
        let most = |of: fn(&(f64, f64)) -> f64| points().map(of).max_by(f64::total_cmp);
        let x = (least(|p| p.0)?.log2(), most(|p| p.0)?.log2());
        let (low, high) = (least(|p| p.1)?.log10().floor(), most(|p| p.1)?.log10().ceil());
        #[allow(
            clippy::cast_possible_truncation,
            reason = "decades of a time or a bandwidth are few"
        )]
        let y = (low as i32, (high as i32).max(low as i32 + 1));
        Some(Chart {
            left,
            title,
            across: escape(across),
            x: (x.0, x.1.max(x.0 + 1.0)),
            y,
        })
    }

    fn at(&self, (x, y): (f64, f64)) -> (f64, f64) {
        let (low, high) = (f64::from(self.y.0), f64::from(self.y.1));
        (
            self.left + (x.log2() - self.x.0) / (self.x.1 - self.x.0) * WIDTH,
            TOP + HEIGHT - (y.log10() - low) / (high - low) * HEIGHT,
        )
    }

    fn draw(&self, svg: &mut String, curves: &[Curve]) {
        let Chart { left, title, .. } = self;
        let _ = writeln!(
            svg,
            "<text class=\"head\" x=\"{left}\" y=\"{}\">{title}</text>",
            TOP - 12.0
        );
        self.grid(svg);
        // Behind lies what bounds the others, then what has no gaps: of two curves on each other both are seen.
        let mut order: Vec<_> = curves.iter().enumerate().collect();
        order.sort_by_key(|(i, curve)| (!curve.is_bound, !dash(*i).is_empty()));
        for (i, curve) in order {
            let class = if curve.is_bound { "curve bound" } else { "curve" };
            let mut path = String::new();
            for (at, point) in curve.points.iter().enumerate() {
                let (x, y) = self.at(*point);
                let _ = write!(path, "{}{x:.1} {y:.1}", if at == 0 { "M" } else { "L" });
            }
            let _ = writeln!(
                svg,
                "<g class=\"{class}\" data-curve=\"{i}\"><path d=\"{path}\" {}/>",
                stroke(i, curve)
            );
            for point in curve.points.iter().filter(|_| !curve.is_bound) {
                #[allow(clippy::cast_possible_truncation, reason = "it was a size")]
                let bytes = point.0 as usize;
                let said = format!(
                    "<title>{}, {}: {}</title>",
                    escape(&curve.name),
                    short_bytes(bytes),
                    crate::bench::table::time(point.1)
                );
                svg.push_str(&marker(i, self.at(*point), &said));
            }
            svg.push_str("</g>\n");
        }
    }

    fn grid(&self, svg: &mut String) {
        let (left, right, bottom) = (self.left, self.left + WIDTH, TOP + HEIGHT);
        for decade in self.y.0..=self.y.1 {
            let value = 10f64.powi(decade);
            let y = self.at((2f64.powf(self.x.0), value)).1;
            let label = if decade < 0 {
                format!("{value:.*}", decade.unsigned_abs() as usize)
            } else {
                format!("{value}")
            };
            let _ = writeln!(
                svg,
                "<line class=\"grid\" x1=\"{left}\" y1=\"{y:.1}\" x2=\"{right}\" y2=\"{y:.1}\"/>\
                 <text x=\"{}\" y=\"{:.1}\" text-anchor=\"end\">{label}</text>",
                left - 8.0,
                y + 4.0
            );
        }
        #[allow(clippy::cast_possible_truncation, reason = "sizes are below 2^40")]
        let (first, last) = (self.x.0.ceil() as i32, self.x.1.floor() as i32);
        // Labels are for about eight sizes, and always for the largest.
        let step = ((last - first) / 8 + 1).max(1);
        for power in (first..=last).filter(|power| (last - power) % step == 0) {
            let x = self.at((2f64.powi(power), 1.0)).0;
            let _ = writeln!(
                svg,
                "<line class=\"grid\" x1=\"{x:.1}\" y1=\"{TOP}\" x2=\"{x:.1}\" y2=\"{bottom}\"/>\
                 <text x=\"{x:.1}\" y=\"{}\" text-anchor=\"middle\">{}</text>",
                bottom + 18.0,
                short_bytes(1usize << power.clamp(0, 40))
            );
        }
        let _ = writeln!(
            svg,
            "<rect class=\"frame\" x=\"{left}\" y=\"{TOP}\" width=\"{WIDTH}\" height=\"{HEIGHT}\"/>\
             <text class=\"dim\" x=\"{}\" y=\"{}\" text-anchor=\"middle\">{}</text>",
            left + WIDTH / 2.0,
            bottom + 38.0,
            self.across
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    fn plot(curves: usize) -> Plot {
        let mut times = Vec::new();
        for i in 0..curves {
            for (bytes, us) in [(1024.0, 3.0), (262_144.0, 40.0)] {
                add(&mut times, &format!("way <{i}>"), (bytes, us + i as f64));
            }
        }
        for _ in 0..2 {
            add_bound(&mut times, "least possible", (1024.0, 1.0));
        }
        Plot {
            title: "test".into(),
            charts: [("time (us)", times.clone()), ("bandwidth (GB/s)", times)],
            across: "size (bytes)".into(),
            table: vec![vec!["what".into()], vec!["way <0>".into()]],
        }
    }

    #[test]
    fn no_two_of_forty_curves_look_alike() {
        let curves = plot(40).charts[0].1.clone();
        let looks = |(i, curve)| (stroke(i, curve), i % 5);
        let different: BTreeSet<_> = curves[..40].iter().enumerate().map(looks).collect();
        assert_eq!(different.len(), 40);
    }

    #[test]
    fn the_bound_is_one_curve_behind_the_others_and_the_largest_size_has_its_label() {
        let plot = plot(2);
        assert_eq!(plot.charts[0].1[2].points.len(), 1, "one point for one size");
        for html in [false, true] {
            let drawn = plot.draw(html);
            let bound = drawn.find("class=\"curve bound\" data-curve=\"2\"").unwrap();
            assert!(bound < drawn.find("data-curve=\"0\"").unwrap());
            assert!(drawn.contains(">256K</text>") && drawn.contains("prefers-color-scheme:dark"));
            assert!(drawn.contains("way &lt;1&gt;") && !drawn.contains("way <1>"));
            assert!(!drawn.contains("@KEY@") && !drawn.contains("@CHARTS@"));
        }
    }

    #[test]
    fn the_page_has_a_button_for_each_curve() {
        let page = plot(3).draw(true);
        assert_eq!(page.matches("<button data-curve=").count(), 4);
    }
}
