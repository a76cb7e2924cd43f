//! What holds of every time on every machine: scaling, order, conservation, the lower bound.

use crate::common::*;
use proptest::prelude::*;
use ringwork_isa::Collective;
use ringwork_sim::{Machine, Options, Topology, lower_bound};

fn any_topology() -> impl Strategy<Value = String> {
    let network = prop_oneof![
        (2u32..9).prop_map(|n| format!("kind: ring, size: {n}")),
        (2u32..9).prop_map(|n| format!("kind: line, size: {n}")),
        (1u32..4, 2u32..4).prop_map(|(x, y)| format!("kind: mesh, dims: [{x}, {y}]")),
        (1u32..4, 2u32..4, 1u32..3).prop_map(|(x, y, z)| format!("kind: torus, dims: [{x}, {y}, {z}]")),
        (2u32..9).prop_map(|n| format!("kind: full, size: {n}")),
        (2u32..9).prop_map(|n| format!("kind: switch, size: {n}, blocking: no")),
        (2u32..9).prop_map(|n| format!("kind: switch, size: {n}, blocking: 20 GB/s")),
        (2u32..4, 2u32..4).prop_map(|(x, y)| format!("kind: fat-tree, down: [{x}, {y}], up: [2]")),
    ];
    network.boxed()
}

fn run_algorithm(
    network: &str,
    picos_per_byte: u64,
    latency_ns: u64,
    bytes: usize,
    algorithm: usize,
) -> (Machine, Topology) {
    let rate = 1_000_000_000_000 / picos_per_byte;
    let network = network.replace("20 GB/s", &format!("{} B/s", rate * 2));
    let topology = topology(&format!(
        "network: {{{network}, bandwidth: {rate} B/s, latency: {latency_ns} ns}}\nchip: {{vector: {rate} B/s}}\n"
    ));
    let n = topology.ranks() as usize;
    let options = Options {
        timing_only: true,
        ..Options::default()
    };
    let count = bytes * n;
    let machine = run_on::<u8, _, _>(
        &topology,
        options,
        count,
        count * n,
        false,
        |core, d| async move {
            match algorithm {
                0 => ring_all_reduce(&core, d, RING).await,
                1 => direct_all_reduce(&core, d).await,
                _ => all_to_all(&core, d).await,
            }
        },
    );
    (machine, topology)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn doubling_bandwidths_and_halving_latencies_halves_the_time_exactly(network in any_topology(), latency in 0u64..500, bytes in 1usize..3000, algorithm in 0usize..3) {
        let (slow, _) = run_algorithm(&network, 200, latency * 4, bytes, algorithm);
        let (fast, _) = run_algorithm(&network, 100, latency * 2, bytes, algorithm);
        prop_assert_eq!(slow.now_ps(), 2 * fast.now_ps());
    }

    #[test]
    fn time_grows_with_bytes_latency_and_time_per_byte(network in any_topology(), latency in 0u64..500, bytes in 1usize..3000, algorithm in 0usize..3) {
        let time = |ppb, latency, bytes| run_algorithm(&network, ppb, latency, bytes, algorithm).0.now_ps();
        let base = time(100, latency, bytes);
        prop_assert!(time(100, latency, 2 * bytes) >= base);
        prop_assert!(time(200, latency, bytes) >= base);
        // Where messages share links, a little more can change which goes first, and with it the time of all.
        if network.contains("full") {
            prop_assert!(time(100, latency, bytes + 100) >= base);
            prop_assert!(time(100, latency + 10, bytes) >= base);
        }
    }

    #[test]
    fn no_link_is_busy_longer_than_the_run_and_no_byte_is_lost(network in any_topology(), latency in 0u64..500, bytes in 1usize..3000, algorithm in 0usize..3) {
        let (machine, topology) = run_algorithm(&network, 100, latency, bytes, algorithm);
        for load in machine.loads() {
            prop_assert!(load.busy_ps <= machine.now_ps(), "{:?}", load);
        }
        let op = if algorithm == 2 { Collective::AllToAll } else { Collective::AllReduce };
        let vector = bytes as u64 * u64::from(topology.ranks());
        let bound = lower_bound(op, &topology, topology.ranks(), vector);
        prop_assert_eq!(bound.check(machine.now_ps(), topology.ranks()), Ok(()), "{} on {}", op, network);
        if network.contains("full") {
            // One hop each: what the links carried is what the algorithm moves.
            let n = u64::from(topology.ranks());
            let moved = match algorithm { 2 => n * (n - 1), _ => 2 * n * (n - 1) };
            prop_assert_eq!(machine.bytes_carried(), moved * bytes as u64);
        }
    }

    #[test]
    fn an_idle_link_never_slows(bytes in 1usize..3000, extra in 0u32..6) {
        let line = |more: &str| {
            let text = format!("network: {{kind: links, chips: 4, bandwidth: 10 GB/s, latency: 1 us, links: [{{from: 0, to: 1}}, {{from: 1, to: 2}}, {{from: 2, to: 3}}, {{from: 3, to: 0}}{more}]}}");
            timed(&topology(&text), 4 * bytes, 4 * bytes, |core, d| async move { ring_all_reduce(&core, d, RING).await })
        };
        // A ring only talks to neighbours, so a diagonal is idle.
        let diagonal = ["", ", {from: 0, to: 2}", ", {from: 1, to: 3}", ", {from: 0, to: 2, lanes: 4}", ", {from: 2, to: 0, direction: one-way}", ", {from: 3, to: 1}"];
        prop_assert_eq!(line(""), line(diagonal[extra as usize]));
    }

    #[test]
    fn the_same_input_gives_the_same_events(network in any_topology(), bytes in 1usize..2000, algorithm in 0usize..3) {
        let (a, _) = run_algorithm(&network, 100, 100, bytes, algorithm);
        let (b, _) = run_algorithm(&network, 100, 100, bytes, algorithm);
        prop_assert_eq!((a.fingerprint(), a.events(), a.now_ps()), (b.fingerprint(), b.events(), b.now_ps()));
    }
}
