//! How fast the simulator is: events per second, whole collectives, data and proofs, and the memory each takes.
//!
//! `cargo bench -p ringwork-sim --bench engine`, or with the names of some: `queue ring torus hops data prove large`.
//! Each runs in a process of its own, so that peaks of memory are its own. `chrt -f 50 taskset -c 1` before it keeps
//! other programs out of the numbers.
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

/// Most memory this process ever had, in MB.
fn peak_mb() -> f64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kb = peak.and_then(|peak| peak.split_whitespace().next()?.parse::<f64>().ok());
    kb.unwrap_or(0.0) / 1000.0
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
    let machine = run_on(&topology, options, bytes, 3 * bytes, false, kernel);
    let seconds = start.elapsed().as_secs_f64();
    let cpu = cpu_seconds() - cpu;
    println!(
        "{name:<38} {cpu:>7.3} s of CPU ({seconds:.3} s, {:.3} s to make), {sends:>8} sends, {:>8} events, {:>5.1} M events/s, peak {:>6.1} MB, T = {:.1} us",
        made.as_secs_f64(),
        machine.events(),
        machine.events() as f64 / cpu / 1e6,
        peak_mb(),
        machine.now_ps() as f64 / 1e6,
    );
}

fn data_mode() {
    let (start, cpu) = (Instant::now(), cpu_seconds());
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
        "64 chips x 1 MiB f32 ring, data        {:>7.3} s of CPU ({:.3} s), peak {:.1} MB",
        cpu_seconds() - cpu,
        start.elapsed().as_secs_f64(),
        peak_mb()
    );
}

/// Proves that an all-reduce of `count` bytes per rank counts every input once on every rank.
fn proof<F, Fut>(name: &str, preset: &str, count: usize, kernel: F)
where
    F: Fn(ringwork_sim::SimCore, Domain<u8>) -> Fut,
    Fut: Future<Output = ringwork_isa::Result<()>> + 'static,
{
    let (start, cpu) = (Instant::now(), cpu_seconds());
    let topology = Topology::preset(preset).expect("a preset");
    let machine = prove_on(&topology, count, 3 * count, kernel);
    let ran = cpu_seconds() - cpu;
    for rank in 0..machine.ranks() as usize {
        let wrong = not_all(&machine, rank, count, 3 * count);
        assert!(wrong.is_empty(), "rank {rank}: {:?}", wrong.first());
    }
    println!(
        "{name:<38} {:>7.3} s of CPU ({:.3} s, {ran:.3} s of CPU to run), {:>8} events, peak {:>6.1} MB",
        cpu_seconds() - cpu,
        start.elapsed().as_secs_f64(),
        machine.events(),
        peak_mb(),
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

const ALL: [&str; 8] = [
    "queue",
    "ring",
    "torus",
    "hops",
    "data",
    "prove",
    "prove-ring",
    "large",
];

fn main() {
    let wanted: Vec<String> = std::env::args()
        .skip(1)
        .filter(|arg| !arg.starts_with('-'))
        .collect();
    match wanted.as_slice() {
        [one] => run(one),
        wanted => {
            let all = ALL.map(String::from);
            let each = if wanted.is_empty() { &all } else { wanted };
            for one in each {
                let program = std::env::current_exe().expect("this program");
                let ended = std::process::Command::new(program).arg(one).status();
                assert!(ended.is_ok_and(|ended| ended.success()), "{one}");
            }
        }
    }
}

fn run(name: &str) {
    match name {
        "queue" => {
            for pending in [1_000, 10_000, 100_000] {
                for spread in [1_000, 10_000_000] {
                    queue(pending, spread);
                }
            }
        }
        "ring" => collective(
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
                    let ring = Ring {
                        signal: 2 * chunk,
                        ..RING
                    };
                    ring_all_reduce(&core, part, ring).await?;
                }
                Ok(())
            },
        ),
        "small" => collective(
            "128-rank ring all-reduce",
            "ring-128",
            128 * 64,
            2 * 127 * 128,
            |core, d| async move { ring_all_reduce(&core, d, RING).await },
        ),
        "torus" => collective(
            "4,096-rank 3-D torus all-reduce",
            "torus-16x16x16",
            4096 * 64,
            4096 * 90,
            |core, d| async move { by_dimensions(&core, d, &[(1, 16), (16, 16), (256, 16)]).await },
        ),
        "hops" => collective(
            "512-rank torus all-to-all",
            "torus-8x8x8",
            512 * 64,
            512 * 511,
            |core, d| async move { all_to_all(&core, d).await },
        ),
        "data" => data_mode(),
        "prove" => proof(
            "4,096-rank 3-D torus, proved",
            "torus-16x16x16",
            4096 * 4,
            |core, d| async move { by_dimensions(&core, d, &[(1, 16), (16, 16), (256, 16)]).await },
        ),
        "prove-ring" => proof(
            "4,096-rank ring, proved",
            "ring-4096",
            4096 * 4,
            |core, d| async move { ring_all_reduce(&core, d, RING).await },
        ),
        "large" => {
            collective(
                "65,536-rank hierarchical all-reduce",
                "torus-64x32x32",
                65_536 * 4,
                65_536 * 250,
                |core, d| async move { by_dimensions(&core, d, &[(1, 32), (32, 32), (1024, 64)]).await },
            );
            idle_machine();
        }
        other => panic!("there is no `{other}`; there are {ALL:?} and `small`"),
    }
}
