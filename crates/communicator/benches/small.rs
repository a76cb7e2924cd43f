//! What small calls cost: two ranks, each with a core of its own, calls back to back on data in the window.
//!
//! `cargo bench -p ringwork-communicator --bench small [-- OPERATION... BYTES... own]`; with `own`, data in each process's own
//! memory. Times are of sixteen calls at once, beside the hop between the cores, which is the least that any exchange costs; `ringwork bench` is for
//! everything else.
#![allow(clippy::print_stdout, reason = "a program for people")]

use ringwork_communicator::{Communicator, Result, Target};
use ringwork_isa::ReduceOp;
use ringwork_native::ranks::{Job, RANK_VARIABLE, Stop, run};
use ringwork_native::trace::tsc_clock;
use std::process::ExitCode;

/// Calls between two looks at the clock, which costs as much as the least of them.
const BATCH: u64 = 16;
const BATCHES: usize = 10_000;

/// What can be measured; in place.
const OPERATIONS: [&str; 6] = [
    "barrier",
    "all_reduce",
    "all_gather",
    "reduce_scatter",
    "broadcast",
    "all_to_all",
];

fn main() -> ExitCode {
    if std::env::var_os(RANK_VARIABLE).is_some() {
        return match measure() {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => {
                println!("{error}");
                ExitCode::FAILURE
            }
        };
    }
    let mut job = Job::new("/proc/self/exe", 2);
    job.arguments = std::env::args_os().skip(1).collect();
    let ended = Stop::new().and_then(|stop| run(&job, &stop, &mut |_| {}));
    match ended.map(|outcome| outcome.exit_code()) {
        Ok(0) => ExitCode::SUCCESS,
        _ => ExitCode::FAILURE,
    }
}

fn measure() -> Result<()> {
    let comm = Communicator::from_env()?;
    let mut sizes: Vec<usize> = std::env::args()
        .filter_map(|argument| argument.parse().ok())
        .collect();
    if sizes.is_empty() {
        sizes = vec![4, 64, 256, 1024, 4096, 16384];
    }
    let mut probe = comm.hop_probe()?;
    let mut hop = || {
        comm.barrier()?;
        let hop = probe.measure();
        comm.barrier()?;
        Ok::<_, ringwork_communicator::Error>(hop.unwrap_or_default())
    };
    let ns_per_tick = tsc_clock::ns_per_tick();
    let say = |what: String, mut times: Vec<u64>, hop: std::time::Duration| {
        times.sort_unstable();
        if comm.rank() == 0 {
            let at = |percent: usize| times[times.len() * percent / 100] as f64 * ns_per_tick / BATCH as f64;
            let (quarter, median, hop) = (at(25), at(50), hop.as_nanos());
            println!("{what:<20} {median:>7.0} ns (first quarter {quarter:>6.0}), hop {hop} ns");
        }
    };
    let calls = |call: &mut dyn FnMut() -> Result<()>| {
        let mut times = Vec::with_capacity(BATCHES);
        let mut last = tsc_clock::now();
        for _ in 0..BATCHES {
            for _ in 0..BATCH {
                call()?;
            }
            let now = tsc_clock::now();
            times.push(now - last);
            last = now;
        }
        Ok::<_, ringwork_communicator::Error>(times)
    };
    let asked: Vec<&str> = OPERATIONS
        .into_iter()
        .filter(|name| std::env::args().any(|argument| argument == **name))
        .collect();
    let operations = if asked.is_empty() {
        vec!["barrier", "all_reduce"]
    } else {
        asked
    };
    let own = std::env::args().any(|argument| argument == "own");
    for operation in operations {
        if operation == "barrier" {
            say(operation.into(), calls(&mut || comm.barrier())?, hop()?);
            continue;
        }
        for bytes in &sizes {
            let times = if own {
                let mut data = vec![0f32; bytes / 4];
                calls(&mut || call(&comm, operation, &mut data))?
            } else {
                let mut data = comm.alloc::<f32>(bytes / 4)?;
                calls(&mut || call(&comm, operation, &mut data))?
            };
            say(format!("{operation} {bytes} B"), times, hop()?);
        }
    }
    comm.barrier()
}

fn call(comm: &Communicator, operation: &str, data: &mut impl Target<f32>) -> Result<()> {
    match operation {
        "all_gather" => comm.all_gather_in_place(data),
        "reduce_scatter" => comm.reduce_scatter_in_place(data, ReduceOp::Sum),
        "broadcast" => comm.broadcast(data, 0),
        "all_to_all" => comm.all_to_all_in_place(data),
        _ => comm.all_reduce(data, ReduceOp::Sum),
    }
}
