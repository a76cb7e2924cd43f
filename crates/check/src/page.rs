//! A fault as a page: a lane for each rank, the causal past of both sides in colour, and the edge that is missing.
//!
//! The page is one file without scripts. Time goes down, one row for each instruction that matters. An arrow goes from a
//! notify to the wait that it satisfies, and from a packet or message to who takes it. Blue is what happens before the first side of a race, green what happens before the
//! second, and the dotted line is the order that nothing provides.

use crate::fault::{Fault, Side};
use crate::verdict::Verdict;
use std::fmt::Write;

const LANE: usize = 300;
const BOX: usize = 270;
const ROW: usize = 34;
const TOP: usize = 56;

/// The first fault of a verdict as a page; `None` if it has none.
#[must_use]
pub fn page(name: &str, verdict: &Verdict) -> Option<String> {
    let (fault, trace) = (verdict.faults.first()?, verdict.trace.as_ref()?);
    let steps = &trace.steps;
    let edges = &trace.edges;
    let sides: Vec<usize> = match fault {
        Fault::Race(race) => [&race.first, &race.second].map(|side| place(steps, side)).into(),
        Fault::Misuse { sides, .. } => sides.iter().map(|side| place(steps, side)).collect(),
        _ => vec![None],
    }
    .into_iter()
    .flatten()
    .collect();
    let pasts: Vec<Vec<bool>> = sides.iter().map(|side| past(steps, edges, *side)).collect();
    let width = LANE * verdict.ranks as usize + 20;
    let height = TOP + ROW * (steps.len() + 1);
    let mut svg = String::new();
    for rank in 0..verdict.ranks {
        let x = LANE * rank as usize + 20;
        let middle = x + BOX / 2;
        let _ = write!(
            svg,
            "<text class=rank x={x} y=30>rank {rank}</text><line class=lane x1={middle} y1=40 x2={middle} y2={height} />"
        );
    }
    for (index, step) in steps.iter().enumerate() {
        let is_past = |side: usize| pasts.get(side).is_some_and(|past| past[index]);
        let class = match (sides.contains(&index), is_past(0), is_past(1)) {
            (true, ..) => "side",
            (_, true, true) => "both",
            (_, true, false) => "first",
            (_, false, true) => "second",
            _ => "other",
        };
        let (x, y) = (LANE * step.rank as usize + 20, TOP + ROW * index);
        let site = step.site.to_string();
        let short = site.rsplit('/').next().unwrap_or(&site);
        let (tooltip, label) = (
            escape(&format!("{step}  {}", step.signal)),
            escape(&format!("{}  {short}  call {}", step.instruction, step.call)),
        );
        let _ = write!(
            svg,
            "<g><title>{tooltip}</title><rect class={class} x={x} y={y} width={BOX} height=24 rx=4 /><text x={} y={}>{label}</text></g>",
            x + 8,
            y + 16
        );
    }
    for (from, to) in edges {
        svg.push_str(&line("edge", steps, *from, *to));
    }
    if let [first, second, ..] = sides[..] {
        svg.push_str(&line("missing", steps, first, second));
    }
    let (title, report) = (escape(name), escape(&verdict.to_string()));
    Some(format!(
        "<!doctype html><html lang=en><meta charset=utf-8><title>{title}</title><style>{STYLE}</style><h1>{title}</h1>\
         <pre>{report}</pre><p><b class=first>before the first side</b> <b class=second>before the second</b> \
         <b class=both>before both</b> <b class=side>the sides</b> an arrow is a notify and the wait that it satisfies, or a packet or message and who takes it; the dotted \
         line is the order that is missing</p><svg width={width} height={height}><defs><marker id=head viewBox=\"0 0 8 8\" refX=7 \
         refY=4 markerWidth=7 markerHeight=7 orient=auto><path d=\"M0 0 8 4 0 8z\" /></marker></defs>{svg}</svg></html>\n"
    ))
}

/// Both of what a reader's system asks for: light and dark.
const STYLE: &str = ":root{color-scheme:light dark;--page:#fff;--text:#222;--panel:#f4f4f4;--lane:#ddd;--box:#eee;--line:#888;--first:#cfe3ff;\
    --second:#d5f2d5;--both:#c8ecec;--side:#ffd0c8;--bad:#c00;--edge:#456}@media(prefers-color-scheme:dark){:root{--page:#16181c;\
    --text:#e4e6ea;--panel:#22252b;--lane:#33373f;--box:#2a2e35;--line:#6b7280;--first:#1d3a63;--second:#1f4a2a;--both:#1d4a4f;\
    --side:#6b241c;--bad:#ff6b5e;--edge:#9fb3c8}}body{font:14px system-ui,sans-serif;margin:24px;color:var(--text);\
    background:var(--page)}pre{background:var(--panel);padding:12px;white-space:pre-wrap}svg text{font:12px ui-monospace,monospace;\
    fill:var(--text)}svg path{fill:var(--edge)}text.rank{font-weight:bold}.lane{stroke:var(--lane)}rect{stroke:var(--line);fill:var(--box)}\
    .first{fill:var(--first)}.second{fill:var(--second)}.both{fill:var(--both)}.side{fill:var(--side)}rect.side{stroke:var(--bad)}\
    b{padding:2px 6px}b.first{background:var(--first)}b.second{background:var(--second)}b.both{background:var(--both)}\
    b.side{background:var(--side)}.edge{stroke:var(--edge);marker-end:url(#head)}\
    .missing{stroke:var(--bad);stroke-width:2;stroke-dasharray:3 5}";

fn escape(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
}

fn line(class: &str, steps: &[Side], from: usize, to: usize) -> String {
    let (a, b) = (steps[from].rank as usize, steps[to].rank as usize);
    let x = |lane: usize, other: usize| LANE * lane + 20 + if other > lane { BOX } else { 0 };
    let y = |index: usize| TOP + ROW * index + 12;
    let (x1, y1, x2, y2) = (x(a, b), y(from), x(b, a), y(to));
    format!("<line class={class} x1={x1} y1={y1} x2={x2} y2={y2} />")
}

/// The step of one side of a fault.
fn place(steps: &[Side], side: &Side) -> Option<usize> {
    steps.iter().rposition(|step| {
        (step.rank, step.call, step.instruction, &step.site)
            == (side.rank, side.call, side.instruction, &side.site)
    })
}

/// What happens before a step.
fn past(steps: &[Side], edges: &[(usize, usize)], side: usize) -> Vec<bool> {
    let mut past = vec![false; steps.len()];
    past[side] = true;
    for later in (0..=side).rev().filter(|later| *later < steps.len()) {
        if !past[later] {
            continue;
        }
        if let Some(before) = steps[..later]
            .iter()
            .rposition(|step| step.rank == steps[later].rank)
        {
            past[before] = true;
        }
        for (from, to) in edges {
            if *to == later {
                past[*from] = true;
            }
        }
    }
    past
}

#[cfg(test)]
mod tests {
    use super::*;
    use ringwork_isa::{Compare, Core, Epoch, Notify, Packets, Rank, Tile};

    /// Rank 1 reads what rank 0 writes after its notify.
    fn early() -> Verdict {
        crate::prove(2, 1, async |core, seat| {
            let (data, ready) = (seat.buffer::<i32>(0, 4), seat.signal(0)?);
            if seat.me == Rank(0) {
                core.notify(ready.on(Rank(1))?, Notify::Set(1)).await?;
                core.store(data.on(Rank(1))?, &Tile::new(vec![1, 2, 3, 4])).await
            } else {
                core.wait(ready, Compare::Ge, 1).await?;
                core.load(data).await.map(drop)
            }
        })
    }

    #[test]
    fn a_race_is_drawn_with_both_sides_their_past_and_the_missing_edge() {
        let verdict = early();
        let page = page("early <1>", &verdict).unwrap_or_default();
        let count = |what: &str| page.matches(what).count();
        assert_eq!(
            (
                count("rect class=side"),
                count("class=missing"),
                count("class=edge")
            ),
            (2, 1, 1),
            "{page}"
        );
        assert_eq!(
            (count("rect class=both"), count("rect class=second")),
            (1, 1),
            "{page}"
        );
        assert!(page.contains("early &lt;1&gt;") && !page.contains("<script"));
        assert!(page.contains("prefers-color-scheme:dark"));
        if let Some(path) = std::env::var_os("RINGWORK_PAGE") {
            let _ = std::fs::write(path, page);
        }
    }

    #[test]
    fn a_packet_and_who_takes_it_are_joined_by_an_arrow() {
        let verdict = crate::prove(2, 1, async |core, seat| {
            let area = seat.buffer::<i64>(0, 8);
            let packets = Packets::new(area, (0, 8, 8), 1, seat.signals(0).own(0)?)?;
            let (x, y) = (seat.input::<i32>(0, 1), seat.output::<i32>(64, 1));
            let late = seat.buffer::<i32>(128, 1);
            if seat.me == Rank(0) {
                core.put_packet(&packets, x, Epoch::of(1)).await?;
                core.store(late.on(Rank(1))?, &Tile::new(vec![1])).await
            } else {
                core.get_packet(y, &packets.on(Rank(0))?, Epoch::of(1)).await?;
                core.load(late).await.map(drop)
            }
        });
        let trace = verdict.trace.as_ref();
        let edges = trace.map(|trace| {
            let name = |step: usize| trace.steps[step].instruction;
            trace
                .edges
                .iter()
                .map(|(from, to)| (name(*from), name(*to)))
                .collect::<Vec<_>>()
        });
        assert_eq!(edges, Some(vec![("put_packet", "get_packet")]), "{verdict}");
    }

    #[test]
    fn what_is_proved_has_no_page() {
        assert!(page("nothing", &crate::prove(2, 1, async |_, _| Ok(()))).is_none());
    }
}
