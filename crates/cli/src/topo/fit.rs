//! `ringwork topo fit`: numbers of a described machine that bring predictions near to measured times.
//!
//! Every number that is fitted is scaled; the scales are found by the method of Nelder and Mead on the mean square of the
//! logarithms of predicted over measured. Some points are held out: the error on them says what the fit is worth.

use super::measured::{self, Measured};
use crate::machine;
use crate::output::{say, write_new};
use crate::sim::{Failure, Fitted};
use crate::units::short_bytes;
use clap::Args;
use ringwork::isa::Collective;
use ringwork::native::read_config_file;
use ringwork::runtime::Interrupter;
use ringwork::sim::Topology;
use ringwork::sim::yaml::{Reader, Tree};
use serde_json::json;
use std::path::PathBuf;

#[derive(Debug, Args)]
#[command(after_help = "\
The table is what nccl-tests, rccl-tests or `ringwork bench` print, or CSV with a line that names its columns: bytes (or size), \
us (or time, time_us, med_us) and, if there are several operations or algorithms, op and algorithm.

A prediction is that of the fastest algorithm that goes through queues, or of --algo. Every third point is held out: it is \
predicted and not fitted.

Example:
  ringwork topo fit table.csv --topology mi300x-8 --fit chip.launch --fit network.bandwidth")]
pub(crate) struct FitArguments {
    /// The measured times
    table: PathBuf,
    /// The machine: a preset (`ringwork topo list`) or a file
    #[arg(short, long, value_name = "FILE|PRESET")]
    topology: String,
    /// A number to fit, by its place in the YAML: network.bandwidth, levels.0.latency, chip.launch
    #[arg(long = "fit", value_name = "PLACE", required = true)]
    places: Vec<String>,
    /// The operation of the table, or the only one to look at
    #[arg(long, value_name = "OP")]
    op: Option<Collective>,
    /// The algorithm [default: the fastest]
    #[arg(long, value_name = "NAME")]
    algo: Option<String>,
    /// How many ranks took part [default: all of the machine]
    #[arg(short = 'g', long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    ranks: Option<u32>,
    /// Hold out every N-th point; 0 for none
    #[arg(long, value_name = "N", default_value_t = 3)]
    hold_out: usize,
    /// Write the fitted machine
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// As one JSON object
    #[arg(long)]
    json: bool,
}

/// A number in the YAML: where, how much, of what.
struct Place {
    name: String,
    value: f64,
    unit: String,
}

impl Place {
    fn scaled(&self, factor: f64) -> String {
        let value = self.value * factor;
        let digits = match value {
            1000.0.. => 1,
            10.0.. => 3,
            0.1.. => 5,
            _ => 8,
        };
        format!("{value:.digits$} {}", self.unit)
    }
}

/// A measured time, and what is predicted.
pub(super) struct Point {
    measured: Measured,
    held_out: bool,
    predicted_us: f64,
    algorithm: &'static str,
}

impl Point {
    pub(super) fn new(measured: Measured, held_out: bool) -> Point {
        Point {
            measured,
            held_out,
            predicted_us: 0.0,
            algorithm: "",
        }
    }

    /// The logarithm of predicted over measured.
    fn error(&self) -> f64 {
        (self.predicted_us / self.measured.us).ln()
    }
}

const MOST_TRIES: usize = 120;
const SMALL: usize = 64 << 10;
const MIDDLE: usize = 16 << 20;

pub(super) fn run(arguments: &FitArguments) -> Result<(), String> {
    let file = arguments.table.display().to_string();
    let text = read_config_file(&arguments.table).map_err(|error| format!("{file}: {error}"))?;
    let measured = measured::read(&file, &text, arguments.op)?;
    let (name, yaml) = machine::source(&arguments.topology)?;
    let tree = Tree::parse(&name, &yaml).map_err(|error| error.to_string())?;
    let mut points: Vec<Point> = (1..)
        .zip(measured)
        .map(|(number, measured): (usize, Measured)| {
            // The last of every so many.
            let held_out = arguments.hold_out > 0 && number.is_multiple_of(arguments.hold_out);
            Point::new(measured, held_out)
        })
        .collect();
    let used = points.iter().filter(|point| !point.held_out).count();
    if used < arguments.places.len() {
        return Err(format!(
            "{file}: {used} points without those held out are too few to fit {} numbers; fit fewer, or --hold-out 0",
            arguments.places.len()
        ));
    }
    let (found, before) = fit(
        &tree,
        &name,
        &arguments.places,
        &mut points,
        (arguments.ranks, arguments.algo.as_deref()),
    )?;
    if arguments.json {
        say!("{}", as_json(&name, &points, &found));
    } else {
        say!("{}", as_text(&name, &points, &found, before));
    }
    if let Some(path) = &arguments.output {
        let mut tree = tree.clone();
        for (place, value) in &found {
            tree.set(place, value).map_err(|error| error.to_string())?;
        }
        write_new(path, &format!("{}\n", tree.reader().flow()))?;
    }
    Ok(())
}

/// Where a number is and what it should be.
pub(super) type Found = Vec<(String, String)>;

/// Finds the numbers at these places that bring the points that are not held out nearest, and predicts all of them. Also the
/// error before that.
pub(super) fn fit(
    tree: &Tree,
    name: &str,
    places: &[String],
    points: &mut [Point],
    (ranks, algorithm): (Option<u32>, Option<&str>),
) -> Result<(Found, (f64, f64)), String> {
    let places: Vec<Place> = places
        .iter()
        .map(|place| find(tree, name, place))
        .collect::<Result<_, _>>()?;
    let stop = crate::sim::stopper()?;
    let with = |scales: &[f64]| -> Result<Topology, String> {
        let mut tree = tree.clone();
        for (place, scale) in places.iter().zip(scales) {
            tree.set(&place.name, &place.scaled(scale.exp()))
                .map_err(|error| error.to_string())?;
        }
        Topology::from_tree(name, &tree).map_err(|error| error.to_string())
    };
    let none = vec![0.0; places.len()];
    let mut fitted = Fitted::new(&with(&none)?, ranks, algorithm)?;
    predict(&mut fitted, &with(&none)?, points, true, &stop)?;
    let before = spread(points, false);
    let mut cost = |scales: &[f64]| -> Result<f64, String> {
        predict(&mut fitted, &with(scales)?, points, false, &stop)?;
        let used = points.iter().filter(|point| !point.held_out);
        let (count, sum) = used.fold((0.0, 0.0), |(count, sum), point| {
            (count + 1.0, point.error().mul_add(point.error(), sum))
        });
        Ok(sum / count)
    };
    let scales = minimum(places.len(), &mut cost)?;
    predict(&mut fitted, &with(&scales)?, points, true, &stop)?;
    let found = places
        .iter()
        .zip(&scales)
        .map(|(place, scale)| (place.name.clone(), place.scaled(scale.exp())))
        .collect();
    Ok((found, before))
}

/// The number at a place of a machine's YAML.
fn find(tree: &Tree, file: &str, place: &str) -> Result<Place, String> {
    let missing = || {
        format!(
            "{file}: there is no `{place}` to fit; `ringwork topo show {file} --yaml` shows what there is"
        )
    };
    let mut reader: Reader<'_> = tree.reader();
    for part in place.split('.') {
        reader = if reader.is_list() {
            let items = reader.list().map_err(|error| error.to_string())?;
            let index: usize = part.parse().map_err(|_| missing())?;
            items.into_iter().nth(index).ok_or_else(missing)?
        } else {
            let entries = reader.entries().map_err(|_| missing())?;
            let found = entries.into_iter().find(|(key, _)| *key == part);
            found.map(|(_, reader)| reader).ok_or_else(missing)?
        };
    }
    let text = reader
        .text()
        .map_err(|_| format!("{}: `{place}` is not a number", reader.place()))?;
    let end = text
        .find(|c: char| !c.is_ascii_digit() && c != '.')
        .unwrap_or(text.len());
    let value: f64 = text[..end].parse().unwrap_or(0.0);
    if value <= 0.0 {
        return Err(format!(
            "{}: `{place}` is `{text}`; what is fitted is scaled, so begin with a number above 0",
            reader.place()
        ));
    }
    Ok(Place {
        name: place.to_owned(),
        value,
        unit: text[end..].trim().to_owned(),
    })
}

fn predict(
    fitted: &mut Fitted,
    topology: &Topology,
    points: &mut [Point],
    all: bool,
    stop: &Interrupter,
) -> Result<(), String> {
    for point in points.iter_mut().filter(|point| all || !point.held_out) {
        let (ps, algorithm) = fitted
            .predict(
                topology,
                (point.measured.collective, point.measured.bytes),
                point.measured.algorithm.as_deref(),
                stop,
            )
            .map_err(|failure| match failure {
                Failure::Interrupted => "interrupted".to_owned(),
                Failure::Because(why) => why,
            })?;
        (point.predicted_us, point.algorithm) = (ps as f64 / 1e6, algorithm);
    }
    Ok(())
}

/// The typical factor between predicted and measured: the geometric mean, less one; and the largest.
pub(super) fn spread(points: &[Point], held_out: bool) -> (f64, f64) {
    of(points.iter().filter(|point| point.held_out == held_out))
}

fn of<'a>(points: impl Iterator<Item = &'a Point>) -> (f64, f64) {
    let (mut count, mut sum, mut most) = (0.0f64, 0.0f64, 0.0f64);
    for point in points {
        count += 1.0;
        sum += point.error().abs();
        most = most.max(point.error().abs());
    }
    ((sum / count.max(1.0)).exp() - 1.0, most.exp() - 1.0)
}

/// Where a function is least, by the method of Nelder and Mead from 0 on.
fn minimum(dims: usize, cost: &mut dyn FnMut(&[f64]) -> Result<f64, String>) -> Result<Vec<f64>, String> {
    let mut corners: Vec<(f64, Vec<f64>)> = Vec::new();
    for corner in 0..=dims {
        let at: Vec<f64> = (0..dims)
            .map(|i| if i + 1 == corner { 0.4 } else { 0.0 })
            .collect();
        corners.push((cost(&at)?, at));
    }
    for _ in 0..MOST_TRIES {
        corners.sort_by(|a, b| a.0.total_cmp(&b.0));
        let (best, worst) = (corners[0].0, corners[dims].0);
        let wide = |i: usize| {
            corners.iter().map(|c| c.1[i]).fold(f64::MIN, f64::max)
                - corners.iter().map(|c| c.1[i]).fold(f64::MAX, f64::min)
        };
        if worst - best < 1e-9 && (0..dims).all(|i| wide(i) < 1e-3) {
            break;
        }
        let middle: Vec<f64> = (0..dims)
            .map(|i| corners[..dims].iter().map(|corner| corner.1[i]).sum::<f64>() / dims as f64)
            .collect();
        let towards = |step: f64| -> Vec<f64> {
            (0..dims)
                .map(|i| middle[i] + step * (corners[dims].1[i] - middle[i]))
                .collect()
        };
        let turned = towards(-1.0);
        let turned_cost = cost(&turned)?;
        let next = if turned_cost < best {
            let far = towards(-2.0);
            let far_cost = cost(&far)?;
            if far_cost < turned_cost {
                (far_cost, far)
            } else {
                (turned_cost, turned)
            }
        } else if turned_cost < corners[dims.saturating_sub(1)].0 {
            (turned_cost, turned)
        } else {
            let near = towards(if turned_cost < worst { -0.5 } else { 0.5 });
            (cost(&near)?, near)
        };
        if next.0 < worst {
            corners[dims] = next;
            continue;
        }
        let first = corners[0].1.clone();
        for corner in &mut corners[1..] {
            corner.1 = corner.1.iter().zip(&first).map(|(a, b)| (a + b) / 2.0).collect();
            corner.0 = cost(&corner.1)?;
        }
    }
    corners.sort_by(|a, b| a.0.total_cmp(&b.0));
    Ok(corners.swap_remove(0).1)
}

fn group(bytes: usize) -> &'static str {
    if bytes <= SMALL {
        "to 64K"
    } else if bytes <= MIDDLE {
        "to 16M"
    } else {
        "above"
    }
}

fn as_text(machine: &str, points: &[Point], found: &[(String, String)], before: (f64, f64)) -> String {
    let mut text = format!(
        "# {machine}, fitted to {} points, {} held out\n",
        points.iter().filter(|p| !p.held_out).count(),
        points.iter().filter(|p| p.held_out).count()
    );
    text += &format!(
        "# {:<14} {:>6}  {:<18} {:>12} {:>12} {:>8}\n",
        "operation", "size", "algorithm", "measured us", "predicted us", "off"
    );
    for point in points {
        text += &format!(
            "  {:<14} {:>6}  {:<18} {:>12.2} {:>12.2} {:>+7.1}%{}\n",
            point.measured.collective.name(),
            short_bytes(point.measured.bytes),
            point.algorithm,
            point.measured.us,
            point.predicted_us,
            100.0 * (point.predicted_us / point.measured.us - 1.0),
            if point.held_out { "  held out" } else { "" },
        );
    }
    let line = |what: &str, (mean, worst): (f64, f64)| {
        format!(
            "# {what:<22} geometric mean {:>5.1} %, worst {:>5.1} %\n",
            100.0 * mean,
            100.0 * worst
        )
    };
    text += &line("before the fit", before);
    text += &line("fitted", spread(points, false));
    if points.iter().any(|point| point.held_out) {
        text += &line("held out", spread(points, true));
    }
    for size in ["to 64K", "to 16M", "above"] {
        let here = || points.iter().filter(|point| group(point.measured.bytes) == size);
        if here().next().is_some() {
            text += &line(&format!("all points {size}"), of(here()));
        }
    }
    for (place, value) in found {
        text += &format!("{place}: {value}\n");
    }
    text.trim_end().to_owned()
}

fn as_json(machine: &str, points: &[Point], found: &[(String, String)]) -> serde_json::Value {
    let error = |held_out| {
        let (mean, worst) = spread(points, held_out);
        json!({"geometric_mean": mean, "worst": worst})
    };
    let rows: Vec<_> = points
        .iter()
        .map(|point| {
            json!({
                "op": point.measured.collective.name(),
                "bytes": point.measured.bytes,
                "algo": point.algorithm,
                "measured_us": point.measured.us,
                "predicted_us": point.predicted_us,
                "held_out": point.held_out,
            })
        })
        .collect();
    let fitted: serde_json::Map<String, serde_json::Value> = found
        .iter()
        .map(|(place, value)| (place.clone(), json!(value)))
        .collect();
    json!({
        "topology": machine,
        "fitted": fitted,
        "error": error(false),
        "error_held_out": points.iter().any(|point| point.held_out).then(|| error(true)),
        "points": rows,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_minimum_of_a_bowl_is_found_in_one_and_three_dimensions() {
        for dims in [1, 3] {
            let wanted = [0.7, -1.3, 0.2];
            let mut cost = |at: &[f64]| Ok(at.iter().zip(&wanted).map(|(a, b)| (a - b) * (a - b)).sum());
            let found = minimum(dims, &mut cost).unwrap();
            for (found, wanted) in found.iter().zip(&wanted) {
                assert!((found - wanted).abs() < 0.02, "{found} {wanted}");
            }
        }
    }
}
