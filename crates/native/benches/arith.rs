//! How fast `arith` folds and copies, per dtype, operator and level. GB/s count every byte read and written.
//!
//! `cargo bench -p ringwork-native --bench arith [-- reduce|sources|small|copy|handover|product]`
#![allow(clippy::print_stdout, reason = "a benchmark prints")]

use ringwork_isa::{Dtype, Float, ReduceOp, bf16, f16};
use ringwork_native::arith::{self, Isa};
use rustix::thread::{CpuSet, sched_setaffinity};
use std::hint::{black_box, spin_loop};
use std::sync::atomic::{AtomicU64, Ordering::Acquire, Ordering::Release};
use std::time::Instant;

const KIB: usize = 1024;
/// Total bytes touched, by where they live: 2 sources and a destination.
const PLACES: [(&str, usize); 3] = [("L1", 24 * KIB), ("L2", 768 * KIB), ("DRAM", 96 * KIB * KIB)];

fn main() {
    let asked: Vec<String> = std::env::args().skip(1).filter(|a| !a.starts_with('-')).collect();
    let parts: [(&str, fn()); 6] = [
        ("reduce", every_reduction),
        ("sources", many_sources),
        ("small", small_messages),
        ("copy", copies),
        ("handover", handover),
        ("product", products),
    ];
    println!("best level here: {:?}", Isa::best());
    for (name, run) in parts {
        if asked.is_empty() || asked.iter().any(|a| a == name) {
            run();
        }
    }
}

/// Gflop/s of square matrix products: this processor's level, and the portable loop.
fn products() {
    fn one<T: Float>(side: usize) {
        let values: Vec<T> = (0..side * side)
            .map(|i| T::from_f64((i % 17) as f64 / 16.0))
            .collect();
        let mut c = vec![T::wide(0.0); side * side];
        let shape = [side; 3];
        let work = 2.0 * (side as f64).powi(3) / 1e9;
        let bytes = side * side * 100;
        let best = seconds(bytes, || {
            arith::product(black_box(&mut c), &values, &values, shape)
        });
        let portable = seconds(bytes, || {
            ringwork_isa::product(black_box(&mut c), &values, &values, shape)
        });
        println!(
            "product {:>5} {side:>5}: {:>6.1} Gflop/s, portable {:>6.1}",
            T::DTYPE.name(),
            work / best,
            work / portable
        );
    }
    for side in [32, 128, 512] {
        one::<f32>(side);
        one::<bf16>(side);
        one::<f16>(side);
        one::<f64>(side);
    }
}

fn levels() -> Vec<Isa> {
    Isa::ALL.into_iter().filter(|isa| isa.available()).collect()
}

/// Memory on a page boundary, touched.
struct Buffer {
    words: Vec<u64>,
    skip: usize,
}

impl Buffer {
    fn new(bytes: usize) -> Self {
        // Small positive values of every dtype, so that no operator runs into subnormals or NaN.
        let words = vec![0x3f80_3f80_3f80_3f80_u64; bytes / 8 + 512];
        let skip = words.as_ptr().addr().wrapping_neg() % 4096;
        Buffer { words, skip }
    }

    fn ptr(&mut self) -> *mut u8 {
        // SAFETY: `skip` is less than the page that was allocated on top.
        unsafe { self.words.as_mut_ptr().cast::<u8>().add(self.skip) }
    }
}

/// The least seconds per call in a few batches: others use the machine too.
fn seconds(bytes: usize, mut call: impl FnMut()) -> f64 {
    let calls = (200_000 / bytes.max(1)).clamp(1, 2000);
    let batch = |call: &mut dyn FnMut()| {
        let start = Instant::now();
        (0..calls).for_each(|_| call());
        start.elapsed().as_secs_f64() / calls as f64
    };
    (0..12).map(|_| batch(&mut call)).fold(f64::MAX, f64::min)
}

fn reduce_seconds(isa: Isa, dtype: Dtype, op: ReduceOp, sources: usize, bytes: usize, skew: usize) -> f64 {
    let mut dst = Buffer::new(bytes + skew);
    let mut memory: Vec<_> = (0..sources).map(|_| Buffer::new(bytes + skew)).collect();
    // SAFETY: each buffer has `skew` bytes on top of what is reduced.
    let pointers: Vec<_> = memory
        .iter_mut()
        .map(|m| unsafe { m.ptr().add(skew) }.cast_const())
        .collect();
    // SAFETY: as above.
    let dst = unsafe { dst.ptr().add(skew) };
    seconds(bytes * (sources + 1), || {
        // SAFETY: every buffer holds `bytes`; the level is available.
        unsafe { isa.reduce(dtype, op, dst, black_box(&pointers), bytes / dtype.bytes()) }
    })
}

fn every_reduction() {
    println!("\nreduce, 2 sources, GB/s (times plain)");
    print!("{:<10}", "");
    for (place, _) in PLACES {
        levels()
            .iter()
            .for_each(|isa| print!("{:>16}", format!("{place} {isa:?}")));
    }
    println!();
    for dtype in Dtype::ALL {
        for op in ReduceOp::ALL {
            print!("{:<10}", format!("{dtype} {op}"));
            for (_, total) in PLACES {
                let mut plain = 0.0;
                for isa in levels() {
                    let speed = total as f64 / reduce_seconds(isa, dtype, op, 2, total / 3, 0) / 1e9;
                    plain = if isa == Isa::Plain { speed } else { plain };
                    print!("{:>16}", format!("{speed:.1} ({:.1}x)", speed / plain));
                }
            }
            println!();
        }
    }
}

fn many_sources() {
    println!(
        "\nreduce f32 sum at {:?}, GB/s by sources; skew 4 misaligns everything",
        Isa::best()
    );
    for skew in [0, 4] {
        for (place, total) in PLACES {
            print!("skew {skew} {place:<6}");
            for sources in [1, 2, 3, 4, 8, 16, 64] {
                let bytes = total / (sources + 1) / 64 * 64;
                let time = reduce_seconds(Isa::best(), Dtype::F32, ReduceOp::Sum, sources, bytes, skew);
                print!(
                    "{:>10}",
                    format!("{sources}: {:.1}", (bytes * (sources + 1)) as f64 / time / 1e9)
                );
            }
            println!();
        }
    }
}

fn small_messages() {
    println!("\nreduce, 2 sources, ns per call by bytes");
    for isa in levels() {
        for dtype in [Dtype::F32, Dtype::BF16] {
            print!("{:<12}", format!("{isa:?} {dtype}"));
            for bytes in [4, 8, 12, 28, 32, 60, 64, 128, 252, 256, 1024, 4096] {
                let time = reduce_seconds(isa, dtype, ReduceOp::Sum, 2, bytes, 0);
                print!("{:>12}", format!("{bytes}: {:.1}", time * 1e9));
            }
            println!();
        }
    }
}

fn copies() {
    println!("\ncopy inside one core, GB/s ordinary / streaming, by bytes");
    for isa in levels() {
        print!("{:<8}", format!("{isa:?}"));
        for bytes in [
            64,
            1024,
            4 * KIB,
            12 * KIB,
            64 * KIB,
            384 * KIB,
            4096 * KIB,
            48 * KIB * KIB,
        ] {
            let (mut src, mut dst) = (Buffer::new(bytes), Buffer::new(bytes));
            let (src, dst) = (src.ptr(), dst.ptr());
            // SAFETY: both hold `bytes`; the level is available.
            let ordinary = seconds(bytes, || unsafe { isa.copy(black_box(dst), src, bytes) });
            // SAFETY: as above.
            let streaming = seconds(bytes, || unsafe {
                isa.copy_streaming(black_box(dst), src, bytes)
            });
            let speed = |time: f64| 2.0 * bytes as f64 / time / 1e9;
            print!(
                "{:>20}",
                format!("{bytes}: {:.0}/{:.0}", speed(ordinary), speed(streaming))
            );
        }
        println!();
    }
}

fn pin(cpu: usize) {
    let mut set = CpuSet::new();
    set.set(cpu);
    sched_setaffinity(None, &set).expect("pinning needs the processor to be ours");
}

/// Pointers that two threads hand to and fro.
#[derive(Clone, Copy)]
struct Shared(*mut u8);
// SAFETY: the threads take turns, by the turn counter in `round_trips`.
unsafe impl Send for Shared {}
// SAFETY: as above.
unsafe impl Sync for Shared {}

/// One core copies into a place whose lines the other holds; the other then reads it.
///
/// Where the cores sit flips every few seconds: a sample counts only if the hop was the same before and after.
fn handover() {
    println!(
        "\nhand-over between cores, median us: copy-in + the peer's read, by vectors | as chosen | streaming"
    );
    let placed = |hop: f64| match hop {
        ..40.0 => Some("one core"),
        40.0..160.0 => Some("near"),
        190.0..350.0 => Some("far"),
        _ => None,
    };
    // SAFETY: whoever calls it vouches for both; the level is available.
    let vectors: Copier = |to, from, bytes| unsafe { Isa::best().copy(to, from, bytes) };
    let ways: [(Copier, Copier); 3] = [
        (vectors, vectors),
        (arith::copy, arith::copy),
        (arith::copy_streaming, arith::copy),
    ];
    for bytes in [
        KIB,
        4 * KIB,
        16 * KIB,
        64 * KIB,
        256 * KIB,
        1024 * KIB,
        4096 * KIB,
        16 * KIB * KIB,
    ] {
        let mut samples = Vec::new();
        let mut before = placed(hop_ns());
        for _ in 0..24 {
            let times = ways.map(|way| round_trips(bytes, way));
            let after = placed(hop_ns());
            if before == after {
                samples.extend(after.map(|place| (place, times)));
            }
            before = after;
        }
        for place in ["one core", "near", "far"] {
            let here: Vec<_> = samples.iter().filter(|sample| sample.0 == place).collect();
            if here.is_empty() {
                continue;
            }
            print!("{bytes:>9} B {place:<8}");
            for way in 0..ways.len() {
                let of =
                    |part: fn(&(f64, f64)) -> f64| median(here.iter().map(|sample| part(&sample.1[way])));
                print!("{:>9.1} + {:<8.1}", of(|times| times.0), of(|times| times.1));
            }
            println!();
        }
    }
}

/// How something is copied: to, from, how many bytes.
type Copier = unsafe fn(*mut u8, *const u8, usize);

fn median(values: impl IntoIterator<Item = f64>) -> f64 {
    let mut values: Vec<_> = values.into_iter().collect();
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// Takes turns on two cores: even turns copy in, odd ones copy out. Median microseconds of each.
fn round_trips(bytes: usize, (copy_in, copy_out): (Copier, Copier)) -> (f64, f64) {
    let rounds = (64 * KIB * KIB / bytes).clamp(5, 100) as u64;
    let (mut src, mut window, mut out) = (Buffer::new(bytes), Buffer::new(bytes), Buffer::new(bytes));
    let (src, window, out) = (Shared(src.ptr()), Shared(window.ptr()), Shared(out.ptr()));
    let turn = AtomicU64::new(0);
    let await_turn = |mine: u64| {
        while turn.load(Acquire) != mine {
            spin_loop();
        }
    };
    std::thread::scope(|scope| {
        let reader = scope.spawn(|| {
            pin(1);
            let (window, out) = (window, out);
            let read = |round| {
                await_turn(2 * round + 1);
                let start = Instant::now();
                // SAFETY: both hold `bytes`.
                unsafe { copy_out(out.0, window.0, bytes) };
                let time = start.elapsed().as_secs_f64();
                turn.store(2 * round + 2, Release);
                time
            };
            (0..rounds).map(read).collect::<Vec<_>>()
        });
        let writer = scope.spawn(|| {
            pin(0);
            let (window, src) = (window, src);
            let send = |round| {
                await_turn(2 * round);
                let start = Instant::now();
                // SAFETY: both hold `bytes`, and it is our turn.
                unsafe { copy_in(window.0, src.0, bytes) };
                turn.store(2 * round + 1, Release);
                start.elapsed().as_secs_f64()
            };
            (0..rounds).map(send).collect::<Vec<_>>()
        });
        let read = reader.join().expect("the reader does not panic");
        let written = writer.join().expect("the writer does not panic");
        (median(written) * 1e6, median(read) * 1e6)
    })
}

/// Nanoseconds of one hop of a flag between the two cores.
fn hop_ns() -> f64 {
    const TURNS: u64 = 4_000;
    let turn = AtomicU64::new(0);
    let play = |cpu: usize, first: u64| {
        pin(cpu);
        let mut start = Instant::now();
        for mine in (first..TURNS).step_by(2) {
            while turn.load(Acquire) != mine {
                spin_loop();
            }
            if mine == first + 2 {
                start = Instant::now(); // both have started
            }
            turn.store(mine + 1, Release);
        }
        start.elapsed().as_secs_f64() * 1e9 / (TURNS - 4) as f64
    };
    std::thread::scope(|scope| {
        scope.spawn(|| play(1, 1));
        scope.spawn(|| play(0, 0)).join().expect("no panic")
    })
}
