//! Writing timelines: Chrome's JSON for Perfetto, and a page that needs nothing else.

use crate::{Kind, ShowPs, Timeline, trimmed};
use std::collections::BTreeMap;
use std::fmt::Write;

/// A string as JSON, safe inside a script element too.
fn json_string(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    out.push('"');
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '<' | '>' | '&' | '\u{2028}' | '\u{2029}' => {
                let _ = write!(out, "\\u{:04x}", c as u32);
            }
            c if (c as u32) < 0x20 => {
                let _ = write!(out, "\\u{:04x}", c as u32);
            }
            c => out.push(c),
        }
    }
    out.push('"');
    out
}

/// Text inside HTML or SVG.
#[must_use]
pub fn escape(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
        .replace('"', "&quot;")
}

/// Picoseconds as microseconds, exactly.
fn micros(ps: u64) -> String {
    format!("{}.{:06}", ps / 1_000_000, ps % 1_000_000)
}

impl Timeline {
    /// For each slice the lane of its row and kind that it fits in, so that slices of a lane never overlap.
    fn lanes(&self) -> Vec<u32> {
        let mut order: Vec<usize> = (0..self.slices.len()).collect();
        order.sort_by_key(|i| (self.slices[*i].start_ps, *i));
        let mut busy: BTreeMap<(u32, Kind), Vec<u64>> = BTreeMap::new();
        let mut lanes = vec![0; self.slices.len()];
        for index in order {
            let slice = &self.slices[index];
            let ends = busy.entry((slice.row, slice.kind)).or_default();
            let lane = ends
                .iter()
                .position(|end| *end <= slice.start_ps)
                .unwrap_or_else(|| {
                    ends.push(0);
                    ends.len() - 1
                });
            ends[lane] = slice.end_ps;
            lanes[index] = u32::try_from(lane).unwrap_or(u32::MAX);
        }
        lanes
    }

    /// Chrome's trace format: open it in <https://ui.perfetto.dev>. One process per row, one thread per kind
    /// and lane, arrows as flows, the critical path as a process of its own.
    #[must_use]
    pub fn chrome_json(&self) -> String {
        let lanes = self.lanes();
        let mut out = String::from("{\"displayTimeUnit\":\"ns\",\"traceEvents\":[\n");
        let mut first = true;
        let mut event = |out: &mut String, text: String| {
            out.push_str(if std::mem::take(&mut first) { "" } else { ",\n" });
            out.push_str(&text);
        };
        for (row, name) in self.rows.iter().enumerate() {
            let name = json_string(name);
            event(
                &mut out,
                format!(r#"{{"ph":"M","pid":{row},"name":"process_name","args":{{"name":{name}}}}}"#),
            );
            event(
                &mut out,
                format!(
                    r#"{{"ph":"M","pid":{row},"name":"process_sort_index","args":{{"sort_index":{row}}}}}"#
                ),
            );
        }
        let thread = |kind: Kind, lane: u32| kind as u32 * 1000 + lane.min(999);
        let mut named = std::collections::BTreeSet::new();
        for (slice, lane) in self.slices.iter().zip(&lanes) {
            let tid = thread(slice.kind, *lane);
            if named.insert((slice.row, tid)) {
                let (row, name) = (slice.row, slice.kind.name());
                event(
                    &mut out,
                    format!(
                        r#"{{"ph":"M","pid":{row},"tid":{tid},"name":"thread_name","args":{{"name":"{name}"}}}}"#
                    ),
                );
            }
            let text = format!(
                r#"{{"ph":"X","pid":{},"tid":{tid},"ts":{},"dur":{},"cat":"{}","name":{},"args":{{"bytes":{}}}}}"#,
                slice.row,
                micros(slice.start_ps),
                micros(slice.end_ps - slice.start_ps),
                slice.kind.name(),
                json_string(&slice.label),
                slice.bytes,
            );
            event(&mut out, text);
        }
        let mut slices_of: Vec<Vec<usize>> = vec![Vec::new(); self.rows.len()];
        for (index, slice) in self.slices.iter().enumerate() {
            if let Some(row) = slices_of.get_mut(slice.row as usize) {
                row.push(index);
            }
        }
        for row in &mut slices_of {
            row.sort_by_key(|index| self.slices[*index].start_ps);
        }
        for (id, arrow) in self.arrows.iter().enumerate() {
            // An arrow hangs on a slice, and is drawn only from and to moments inside one.
            let hang = |(row, at): (u32, u64)| {
                let of_row = slices_of.get(row as usize).map_or(&[][..], |row| row);
                let begun = of_row.partition_point(|i| self.slices[*i].start_ps <= at);
                let near = of_row[..begun].iter().rev().take(NEAR);
                let around = near.filter(|i| at <= self.slices[**i].end_ps);
                let innermost = around.min_by_key(|i| {
                    let slice = &self.slices[**i];
                    (slice.end_ps - slice.start_ps, slice.kind)
                });
                innermost.map_or((row, thread(Kind::Task, 0), micros(at)), |i| {
                    let slice = &self.slices[*i];
                    let inside = at.min(slice.end_ps.saturating_sub(1000)).max(slice.start_ps);
                    (row, thread(slice.kind, lanes[*i]), micros(inside))
                })
            };
            let (start, end) = (hang(arrow.from), hang(arrow.to));
            event(
                &mut out,
                format!(
                    r#"{{"ph":"s","id":{id},"pid":{},"tid":{},"ts":{},"cat":"cause","name":"cause"}}"#,
                    start.0, start.1, start.2
                ),
            );
            event(
                &mut out,
                format!(
                    r#"{{"ph":"f","bp":"e","id":{id},"pid":{},"tid":{},"ts":{},"cat":"cause","name":"cause"}}"#,
                    end.0, end.1, end.2
                ),
            );
        }
        // The critical path is a row of its own: which chip decides the total time, when.
        let pid = self.rows.len();
        for (index, (row, from, to)) in self.critical_path().into_iter().enumerate() {
            if index == 0 {
                event(
                    &mut out,
                    format!(
                        r#"{{"ph":"M","pid":{pid},"name":"process_name","args":{{"name":"critical path"}}}}"#
                    ),
                );
            }
            let name = self.rows.get(row as usize).map_or("", |name| name);
            event(
                &mut out,
                format!(
                    r#"{{"ph":"X","pid":{pid},"tid":0,"ts":{},"dur":{},"cat":"critical path","name":{}}}"#,
                    micros(from),
                    micros(to - from),
                    json_string(name),
                ),
            );
        }
        out.push_str("\n]}\n");
        out
    }

    /// One page with everything in it: rows per chip, zoom with the wheel or the keys, move by dragging, point to
    /// read. Its address can say what to show first: `#12us-40us`.
    #[must_use]
    pub fn html(&self) -> String {
        let lanes = self.lanes();
        let mut labels: BTreeMap<&str, usize> = BTreeMap::new();
        for slice in &self.slices {
            let next = labels.len();
            labels.entry(&slice.label).or_insert(next);
        }
        let mut names = vec![""; labels.len()];
        for (label, index) in &labels {
            names[*index] = label;
        }
        let join = |items: Vec<String>| items.join(",");
        let slices = self.slices.iter().zip(&lanes).map(|(s, lane)| {
            format!(
                "[{},{},{},{},{},{},{}]",
                s.row,
                s.kind as u8,
                lane,
                s.start_ps,
                s.end_ps,
                labels[s.label.as_str()],
                s.bytes
            )
        });
        let path = self.critical_path();
        let end = self.end_ps().max(1);
        let loads = self.loads.iter().take(12).map(|load| {
            let percent = 100.0 * load.busy_ps as f64 / end as f64;
            format!(
                "<tr><td>{}</td><td>{} B</td><td>{}</td><td><div class=bar-of style=\"width:{:.1}px\"></div>{}%</td></tr>",
                escape(&load.name),
                load.bytes,
                ShowPs(load.busy_ps),
                percent * 1.2,
                trimmed((percent * 10.0).round() / 10.0),
            )
        });
        PAGE.replace("@TITLE@", &escape(&self.title))
            .replace(
                "@SUMMARY@",
                &format!(
                    "{} in all on {} rows; the critical path is on {} of them",
                    ShowPs(self.end_ps()),
                    self.rows.len(),
                    path.iter()
                        .map(|(row, ..)| row)
                        .collect::<std::collections::BTreeSet<_>>()
                        .len(),
                ),
            )
            .replace("@LOADS@", &loads.collect::<String>())
            .replace(
                "@ROWS@",
                &join(self.rows.iter().map(|row| json_string(row)).collect()),
            )
            .replace("@LABELS@", &join(names.into_iter().map(json_string).collect()))
            .replace("@SLICES@", &join(slices.collect()))
            .replace(
                "@ARROWS@",
                &join(
                    self.arrows
                        .iter()
                        .map(|a| format!("[{},{},{},{}]", a.from.0, a.from.1, a.to.0, a.to.1))
                        .collect(),
                ),
            )
            .replace(
                "@PATH@",
                &join(
                    path.iter()
                        .map(|(row, from, to)| format!("[{row},{from},{to}]"))
                        .collect(),
                ),
            )
    }
}

/// How many slices before a moment are looked at for the one that an arrow hangs on; a task is found without that.
const NEAR: usize = 64;

const PAGE: &str = include_str!("timeline.html");

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Arrow, Load, Slice};

    fn sample() -> Timeline {
        let slice = |row, kind, start_ps, end_ps, label: &str| Slice {
            row,
            kind,
            start_ps,
            end_ps,
            label: label.into(),
            bytes: 64,
        };
        Timeline {
            title: "a < b & \"c\"".into(),
            rows: vec!["chip 0".into(), "chip 1".into()],
            slices: vec![
                slice(0, Kind::Task, 0, 3_000_000, "k</script>"),
                slice(0, Kind::Transfer, 0, 2_000_000, "0 to 1"),
                slice(0, Kind::Transfer, 1_000_000, 3_000_000, "0 to 1"),
                slice(1, Kind::Wait, 0, 2_500_001, "signal"),
            ],
            arrows: vec![Arrow {
                from: (0, 10),
                to: (1, 2_500_001),
            }],
            loads: vec![Load {
                name: "ring 0>1".into(),
                bytes: 128,
                busy_ps: 1_500_000,
            }],
        }
    }

    #[test]
    fn overlapping_slices_get_lanes_of_their_own() {
        assert_eq!(sample().lanes(), [0, 0, 1, 0]);
    }

    #[test]
    fn chrome_json_is_exact_to_the_picosecond_and_well_formed() {
        let json = sample().chrome_json();
        assert!(json.contains(r#""dur":2.500001"#), "{json}");
        assert!(json.contains("k\\u003c/script\\u003e"));
        let depth = json.chars().fold(0i32, |d, c| {
            d + i32::from(matches!(c, '{' | '[')) - i32::from(matches!(c, '}' | ']'))
        });
        assert_eq!(depth, 0);
    }

    #[test]
    fn the_page_holds_everything_and_nothing_from_elsewhere() {
        let page = sample().html();
        assert!(!page.contains('@') || !page.contains("@SLICES@"));
        assert!(page.contains("a &lt; b &amp; &quot;c&quot;"));
        assert!(!page.contains("http"), "nothing is fetched");
        assert_eq!(page.matches("</script>").count(), 1);
        assert!(page.contains("[1,1,0,0,2500001,"));
    }
}
