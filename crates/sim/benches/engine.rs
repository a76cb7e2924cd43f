//! How fast the simulator is: events per second, and whole collectives.
#![allow(
    clippy::print_stdout,
    missing_docs,
    reason = "a benchmark says what it measured"
)]

#[path = "../tests/common/mod.rs"]
mod common;

use common::*;
use ringwork_sim::{EventQueue, Machine, Options, SegmentSpec, Topology};
use std::hint::black_box;
use std::time::Instant;

/// Most memory this process ever had, in MB; resets by `/proc/self/clear_refs` where that is allowed.
fn peak_mb() -> f64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status
        .lines()
        .find(|line| line.starts_with("VmHWM"))
        .unwrap_or("0 0 kB")
        .to_owned();
    line.split_whitespace()
        .nth(1)
        .and_then(|kb| kb.parse::<f64>().ok())
        .unwrap_or(0.0)
        / 1000.0
}

/// Processor seconds this process has used: what another process takes does not count.
fn cpu_seconds() -> f64 {
    let text = std::fs::read_to_string("/proc/self/schedstat").unwrap_or_default();
    text.split_whitespace()
        .next()
        .and_then(|ns| ns.parse::<f64>().ok())
        .unwrap_or(0.0)
        / 1e9
}

fn queue(pending: u64, spread: u64) {
    let mut queue = EventQueue::new();
    let mut seed = 1u64;
    let mut random = move || {
        seed = seed
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        seed >> 33
    };
    for i in 0..pending {
        queue.push(random() % spread, i);
    }
    let (start, count) = (cpu_seconds(), 5_000_000u64);
    for _ in 0..count {
        let (now, event) = queue.pop().unwrap_or((0, 0));
        queue.push(now + 1 + random() % spread, event);
    }
    black_box(&queue);
    let rate = count as f64 / (cpu_seconds() - start) / 1e6;
    println!("queue, {pending:>7} pending, spread {spread:>10} ps: {rate:>6.1} M events/s");
}

/// Runs `kernel` on every rank of a preset, timing only, and says how long that took.
fn collective<F, Fut>(name: &str, preset: &str, bytes: usize, sends: u64, kernel: F)
where
    F: Fn(ringwork_sim::SimCore, Domain<u8>) -> Fut,
    Fut: Future<Output = ringwork_isa::Result<()>> + 'static,
{
    let (start, cpu) = (Instant::now(), cpu_seconds());
    let topology = Topology::preset(preset).expect("a preset");
    let made = start.elapsed();
    let options = Options {
        timing_only: true,
        ..Options::default()
    };
    let machine = run_on(&topology, options, bytes, bytes, false, kernel);
    let seconds = start.elapsed().as_secs_f64();
    let cpu = cpu_seconds() - cpu;
    println!(
        "{name:<38} {cpu:>7.3} s of CPU ({seconds:.3} s, {:.3} s to make), {sends:>8} sends, {:>8} events, {:>5.1} M sends/s, peak {:>6.1} MB, T = {:.1} us",
        made.as_secs_f64(),
        machine.events(),
        sends as f64 / cpu / 1e6,
        peak_mb(),
        machine.now_ps() as f64 / 1e6,
    );
}

fn data_mode() {
    let start = Instant::now();
    let topology = Topology::preset("ring-64").expect("a preset");
    let count = (1 << 20) / 4;
    let machine = run_on::<f32, _, _>(
        &topology,
        Options::default(),
        count,
        count,
        true,
        |core, d| async move { ring_all_reduce(&core, d, RING).await },
    );
    black_box(&machine);
    println!(
        "64 chips x 1 MiB f32 ring all-reduce, data {:>7.3} s",
        start.elapsed().as_secs_f64()
    );
}

fn idle_machine() {
    let start = Instant::now();
    let topology = Topology::preset("torus-64x32x32").expect("a preset");
    let machine = Machine::new(
        &topology,
        Options {
            timing_only: true,
            ..Options::default()
        },
    );
    let spec = SegmentSpec {
        segment: ringwork_isa::Segment(1),
        members: (0..65_536).collect(),
        bytes: 1 << 30,
        memory: 0,
    };
    machine.define(spec).expect("room");
    println!(
        "65,536-chip torus, made {:>20.3} s, peak {:.1} MB",
        start.elapsed().as_secs_f64(),
        peak_mb()
    );
}

fn main() {
    let wanted: Vec<String> = std::env::args()
        .skip(1)
        .filter(|arg| !arg.starts_with('-'))
        .collect();
    let run = |name: &str| wanted.is_empty() || wanted.iter().any(|w| name.contains(w.as_str()));
    if run("queue") {
        for pending in [1_000, 10_000, 100_000] {
            for spread in [1_000, 10_000_000] {
                queue(pending, spread);
            }
        }
    }
    if run("ring") {
        collective(
            "512-rank ring all-reduce, 4 chunks",
            "ring-512",
            4 * 512 * 64,
            4 * 2 * 511 * 512,
            |core, d| async move {
                for chunk in 0..4 {
                    let part = Domain {
                        buffer: d.buffer.part(4, chunk)?,
                        scratch: d.scratch.part(4, chunk)?,
                        ..d
                    };
                    ring_all_reduce(
                        &core,
                        part,
                        Ring {
                            signal: 2 * chunk,
                            ..RING
                        },
                    )
                    .await?;
                }
                Ok(())
            },
        );
    }
    if wanted.iter().any(|w| w == "small") {
        collective(
            "128-rank ring all-reduce",
            "ring-128",
            128 * 64,
            2 * 127 * 128,
            |core, d| async move { ring_all_reduce(&core, d, RING).await },
        );
    }
    if run("torus") {
        collective(
            "4,096-rank 3-D torus all-reduce",
            "torus-16x16x16",
            4096 * 64,
            4096 * 90,
            |core, d| async move { by_dimensions(&core, d, &[(1, 16), (16, 16), (256, 16)]).await },
        );
    }
    if run("hops") {
        collective(
            "512-rank torus all-to-all",
            "torus-8x8x8",
            512 * 64,
            512 * 511,
            |core, d| async move { all_to_all(&core, d).await },
        );
    }
    if run("data") {
        data_mode();
    }
    if run("large") {
        collective(
            "65,536-rank hierarchical all-reduce",
            "torus-64x32x32",
            65_536 * 4,
            65_536 * 250,
            |core, d| async move { by_dimensions(&core, d, &[(1, 32), (32, 32), (1024, 64)]).await },
        );
        idle_machine();
    }
}
