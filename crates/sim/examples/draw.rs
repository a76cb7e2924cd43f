//! Writes the pictures of a machine and of an all-to-all on it: `cargo run --example draw -- torus-4x4 out`.
#![allow(clippy::print_stdout, reason = "an example says what it did")]

use ringwork_isa::{Compare, Core, Dtype, Notify, Rank, Region, Segment, Shared, Signals, Span};
use ringwork_sim::{Machine, Options, SegmentSpec, Topology};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut args = std::env::args().skip(1);
    let preset = args.next().unwrap_or_else(|| "torus-4x4".into());
    let out = args.next().unwrap_or_else(|| preset.clone());
    let topology = Topology::preset(&preset)?;
    let (ranks, part, head) = (topology.ranks(), 64 * 1024u64, 4096u64);
    let stride = head + 2 * part * u64::from(ranks);
    let machine = Machine::new(
        &topology,
        Options {
            trace: true,
            timing_only: true,
            ..Options::default()
        },
    );
    machine.define(SegmentSpec {
        segment: Segment(1),
        members: (0..ranks).collect(),
        bytes: stride * u64::from(ranks),
        memory: 0,
    })?;
    for rank in 0..ranks {
        let me = Rank(rank);
        let window = Span {
            segment: Segment(1),
            base: head,
            stride,
            me,
            rank: me,
            ranks,
            dtype: Dtype::U8,
            start: 0,
            len: 2 * part * u64::from(ranks),
        };
        let window: Shared<u8> = Region::from_span(window).map_err(|dtype| format!("not {dtype}"))?;
        let signals = Signals {
            segment: Segment(1),
            base: 0,
            stride,
            count: 1,
            me,
            ranks,
        };
        machine.spawn(rank, "all to all", move |core| async move {
            let n = ranks as usize;
            for k in 1..n {
                let peer = Rank((rank + u32::try_from(k).unwrap_or(0)) % ranks);
                let (from, to) = (
                    window.part(2 * n, peer.0 as usize)?,
                    window.part(2 * n, n + rank as usize)?,
                );
                core.copy(to.on(peer)?, from).await?;
                core.notify(signals.at(0)?.on(peer)?, Notify::Add(1)).await?;
            }
            core.wait(signals.at(0)?, Compare::Ge, i32::try_from(n).unwrap_or(0) - 1)
                .await
                .map(drop)
        })?;
    }
    machine.run()?;
    let timeline = machine.timeline();
    std::fs::write(format!("{out}.svg"), topology.svg())?;
    std::fs::write(format!("{out}.html"), topology.html())?;
    std::fs::write(format!("{out}-timeline.html"), timeline.html())?;
    std::fs::write(format!("{out}-timeline.json"), timeline.chrome_json())?;
    println!("{}", topology.describe());
    println!(
        "{:.3} us, hash {:016x}",
        machine.now_ps() as f64 / 1e6,
        timeline.hash()
    );
    Ok(())
}
