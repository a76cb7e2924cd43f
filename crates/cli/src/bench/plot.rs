//! Curves of latency and bandwidth: one self-contained SVG, alone or in an HTML page.

use super::row::Row;
use crate::units::short_bytes;
use std::fmt::Write;

/// A curve: its name and its points, as (bytes, value).
#[derive(Clone, Debug)]
pub(crate) struct Curve {
    pub(crate) name: String,
    pub(crate) points: Vec<(f64, f64)>,
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
    if point.1 <= 0.0 {
        return;
    }
    match curves.iter_mut().find(|curve| curve.name == name) {
        Some(curve) => curve.points.push(point),
        None => curves.push(Curve {
            name: name.to_owned(),
            points: vec![point],
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
/// Distinguishable also by those who see few colours (Okabe and Ito).
const COLOURS: [&str; 8] = [
    "#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000", "#8c6d1f",
];
const DASHES: [&str; 3] = ["", "7 4", "2 3"];

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
        let curves = &self.charts[0].1;
        let legend_height = 22.0 * curves.len().div_ceil(3) as f64;
        let (width, height) = (
            2.0 * (LEFT + WIDTH) + GAP - 40.0,
            TOP + HEIGHT + 64.0 + legend_height,
        );
        let title = escape(&self.title);
        let mut svg = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" width=\"{width}\" \
             height=\"{height}\" font-family=\"system-ui, sans-serif\" font-size=\"12\" fill=\"#222\">\n\
             <rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>\n\
             <text x=\"{LEFT}\" y=\"26\" font-size=\"17\" font-weight=\"600\">{title}</text>\n"
        );
        for ((title, curves), left) in self.charts.iter().zip([LEFT, LEFT + WIDTH + GAP]) {
            if let Some(chart) = Chart::around(title, left, &self.across, curves) {
                chart.draw(&mut svg, curves);
            }
        }
        for (i, curve) in curves.iter().enumerate() {
            let (x, y) = (
                LEFT + (i % 3) as f64 * 330.0,
                TOP + HEIGHT + 66.0 + (i / 3) as f64 * 22.0,
            );
            let _ = writeln!(
                svg,
                "<line x1=\"{x}\" y1=\"{0}\" x2=\"{1}\" y2=\"{0}\" {2}/><text x=\"{3}\" y=\"{y}\">{4}</text>",
                y - 4.0,
                x + 30.0,
                stroke(i),
                x + 38.0,
                escape(&curve.name)
            );
        }
        svg.push_str("</svg>\n");
        if !html {
            return svg;
        }
        format!(
            "<!doctype html>\n<html lang=\"en\"><meta charset=\"utf-8\"><title>{title}</title>\n\
             <style>body{{margin:2rem auto;max-width:{width}px;font:14px system-ui,sans-serif;color:#222}}\
             svg{{max-width:100%;height:auto}}table{{border-collapse:collapse;margin-top:1.5rem}}\
             td,th{{padding:.2rem .8rem;text-align:right;border-bottom:1px solid #e4e4e4;white-space:nowrap}}\
             th{{color:#666;font-weight:600}}tr:hover td{{background:#f5f8fb}}\
             th:first-child,td:first-child{{text-align:left}}</style>\n{svg}{}</html>\n",
            self.page_table()
        )
    }

    fn page_table(&self) -> String {
        let mut table = String::from("<table>");
        for (i, row) in self.table.iter().enumerate() {
            let tag = if i == 0 { "th" } else { "td" };
            let cells: String = row
                .iter()
                .map(|cell| format!("<{tag}>{}</{tag}>", escape(cell)))
                .collect();
            let _ = writeln!(table, "<tr>{cells}</tr>");
        }
        table + "</table>\n"
    }
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
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

fn stroke(i: usize) -> String {
    let (colour, dash) = (
        COLOURS[i % COLOURS.len()],
        DASHES[i / COLOURS.len() % DASHES.len()],
    );
    format!("fill=\"none\" stroke=\"{colour}\" stroke-width=\"2\" stroke-dasharray=\"{dash}\"")
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
            "<text x=\"{left}\" y=\"{}\" font-weight=\"600\">{title}</text>",
            TOP - 12.0
        );
        self.grid(svg);
        for (i, curve) in curves.iter().enumerate() {
            let mut path = String::new();
            for point in &curve.points {
                let (x, y) = self.at(*point);
                let _ = write!(path, "{x:.1},{y:.1} ");
            }
            let _ = writeln!(svg, "<polyline points=\"{}\" {}/>", path.trim_end(), stroke(i));
            for point in &curve.points {
                let (x, y) = self.at(*point);
                #[allow(clippy::cast_possible_truncation, reason = "it was a size")]
                let bytes = point.0 as usize;
                let _ = writeln!(
                    svg,
                    "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"3\" fill=\"{}\"><title>{}, {}: {:.3}</title></circle>",
                    COLOURS[i % COLOURS.len()],
                    escape(&curve.name),
                    short_bytes(bytes),
                    point.1
                );
            }
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
                "<line x1=\"{left}\" y1=\"{y:.1}\" x2=\"{right}\" y2=\"{y:.1}\" stroke=\"#ddd\"/>\
                 <text x=\"{}\" y=\"{:.1}\" text-anchor=\"end\">{label}</text>",
                left - 8.0,
                y + 4.0
            );
        }
        #[allow(clippy::cast_possible_truncation, reason = "sizes are below 2^40")]
        let (first, last) = (self.x.0.ceil() as i32, self.x.1.floor() as i32);
        let step = if last - first > 12 { 4 } else { 2 };
        for power in (first..=last).filter(|power| (power - first) % step == 0) {
            let x = self.at((2f64.powi(power), 1.0)).0;
            let _ = writeln!(
                svg,
                "<line x1=\"{x:.1}\" y1=\"{TOP}\" x2=\"{x:.1}\" y2=\"{bottom}\" stroke=\"#eee\"/>\
                 <text x=\"{x:.1}\" y=\"{}\" text-anchor=\"middle\">{}</text>",
                bottom + 18.0,
                short_bytes(1usize << power.clamp(0, 40))
            );
        }
        let _ = writeln!(
            svg,
            "<rect x=\"{left}\" y=\"{TOP}\" width=\"{WIDTH}\" height=\"{HEIGHT}\" fill=\"none\" stroke=\"#999\"/>\
             <text x=\"{}\" y=\"{}\" text-anchor=\"middle\">{}</text>",
            left + WIDTH / 2.0,
            bottom + 38.0,
            self.across
        );
    }
}
