//! How long chips take to come up and go, and a task to be sent and done.
//!
//! ```text
//! cargo bench -p ringwork-runtime --bench node
//! ```
#![allow(clippy::print_stdout, reason = "a benchmark prints")]

extern crate ringwork_native as ringwork;

use ringwork_isa::{Core, Device, Result};
use ringwork_macros::kernel;
use ringwork_runtime::Node;
use std::time::{Duration, Instant};

#[kernel]
async fn nothing<C: Core>(_core: &C) -> Result<()> {
    Ok(())
}

fn percentiles(name: &str, mut times: Vec<Duration>) {
    times.sort_unstable();
    let at = |part: usize| times[(times.len() - 1) * part / 100].as_secs_f64() * 1e6;
    println!(
        "{name:<44} p10 {:>9.1} us   p50 {:>9.1} us   p99 {:>9.1} us",
        at(10),
        at(50),
        at(99)
    );
}

fn bring_up(chips: u32) {
    let (mut up, mut down) = (Vec::new(), Vec::new());
    for _ in 0..50 {
        let start = Instant::now();
        let node = Node::builder().devices(0..chips).launch().expect("launch");
        up.push(start.elapsed());
        let start = Instant::now();
        node.close();
        down.push(start.elapsed());
    }
    percentiles(&format!("bring-up of {chips} chips"), up);
    percentiles(&format!("teardown of {chips} chips"), down);
}

fn round_trips() {
    let node = Node::builder().devices(0..1).launch().expect("launch");
    let mut times = Vec::new();
    node.run(|orch| {
        for _ in 0..20_000 {
            let start = Instant::now();
            orch.submit(Device(0), nothing::task())?;
            orch.wait()?;
            times.push(start.elapsed());
        }
        Ok(())
    })
    .expect("run");
    percentiles("round trip of an empty task, one at a time", times);
}

fn throughput(chips: u32) {
    let node = Node::builder().devices(0..chips).launch().expect("launch");
    let tasks = 200_000;
    let start = Instant::now();
    node.run(|orch| {
        for i in 0..tasks {
            orch.submit(Device(i % chips), nothing::task())?;
        }
        Ok(())
    })
    .expect("run");
    let rate = f64::from(tasks) / start.elapsed().as_secs_f64();
    println!(
        "{:<44} {:>9.0} tasks/s",
        format!("empty tasks to {chips} chips, as fast as they go"),
        rate
    );
}

fn main() {
    for chips in [1, 2, 4, 8] {
        bring_up(chips);
    }
    round_trips();
    throughput(1);
    throughput(2);
}
