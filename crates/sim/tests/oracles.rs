//! Exact times without contention: closed forms, to the picosecond.

mod common;

use common::*;
use ringwork_isa::Core;
use ringwork_sim::Topology;

/// 10 GB/s: 100 ps per byte; 1 us; the vector engine combines 20 GB/s: 50 ps per byte.
const A: u64 = 1_000_000;
const B: u64 = 100;
const G: u64 = 50;
const WIRE: &str = "bandwidth: 10 GB/s, latency: 1 us";

fn machine(network: &str) -> Topology {
    topology(&format!(
        "network: {{{network}, {WIRE}}}\nchip: {{vector: 20 GB/s}}\n"
    ))
}

fn ring(n: usize) -> Topology {
    machine(&format!("kind: ring, size: {n}"))
}

#[test]
fn ring_collectives_take_their_closed_form() {
    for n in [2usize, 3, 4, 8, 13] {
        let s = 2600 * n;
        let (steps, chunk) = (n as u64 - 1, 2600);
        let t = timed(&ring(n), s, s, |core, d| async move {
            ring_all_gather(&core, d, RING, 0).await
        });
        assert_eq!(t, steps * (A + chunk * B), "all-gather {n}");
        let t = timed(&ring(n), s, s, |core, d| async move {
            ring_reduce_scatter(&core, d, RING).await
        });
        assert_eq!(t, steps * (A + chunk * B + chunk * G), "reduce-scatter {n}");
        let t = timed(&ring(n), s, s, |core, d| async move {
            ring_all_reduce(&core, d, RING).await
        });
        assert_eq!(
            t,
            2 * steps * (A + chunk * B) + steps * chunk * G,
            "all-reduce {n}"
        );
    }
}

#[test]
fn chunks_one_after_the_other_cost_a_latency_each() {
    let (n, c, s) = (4usize, 5usize, 40_000usize);
    let t = timed(&ring(n), s, s, |core, d| async move {
        for chunk in 0..c {
            let part = Domain {
                buffer: d.buffer.part(c, chunk)?,
                scratch: d.scratch.part(c, chunk)?,
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
    });
    let chunk = (s / (c * n)) as u64;
    assert_eq!(t, 5 * (2 * 3 * (A + chunk * B) + 3 * chunk * G));
}

#[test]
fn two_counter_rotating_rings_halve_the_bandwidth_term() {
    // Two kernels per chip, one per direction, as two channels would be.
    let (n, s) = (8usize, 64_000usize);
    let topology = topology(&format!("network: {{kind: ring, size: {n}, {WIRE}}}"));
    let options = ringwork_sim::Options {
        timing_only: true,
        ..Default::default()
    };
    let machine = ringwork_sim::Machine::new(&topology, options);
    let spec = ringwork_sim::SegmentSpec {
        segment: ringwork_isa::Segment(1),
        members: (0..8).collect(),
        bytes: Domain::<u8>::places(n, s, s).0.bytes(),
        memory: 0,
    };
    machine.define(spec).unwrap();
    for rank in 0..8u32 {
        for lane in 0..2 {
            let d = Domain::<u8>::new(rank as usize, n, s, s);
            let ring = Ring {
                forward: lane == 0,
                signal: 2 * lane,
                lanes: (2, lane),
            };
            machine
                .spawn(rank, "lane", |core| async move {
                    ring_all_reduce(&core, d, ring).await
                })
                .unwrap();
        }
    }
    machine.run().unwrap();
    assert_eq!(machine.now_ps(), 2 * 7 * (A + (s as u64 / 16) * B));
}

#[test]
fn bidirectional_all_gather_takes_half_the_steps() {
    let (n, s) = (9usize, 90_000usize);
    let t = timed(&ring(n), s, 1, |core, d| async move {
        let part = |back: usize, forward: bool| {
            d.buffer.part(
                d.n,
                if forward {
                    (d.me + d.n - back) % d.n
                } else {
                    (d.me + back) % d.n
                },
            )
        };
        for step in 0..d.n / 2 {
            let (up, down) = (part(step, true)?, part(step, false)?);
            d.send(&core, d.me + 1, up, up, 0).await?;
            d.send(&core, d.me + d.n - 1, down, down, 1).await?;
            d.recv(&core, 0, step + 1).await?;
            d.recv(&core, 1, step + 1).await?;
        }
        Ok(())
    });
    assert_eq!(t, 4 * A + 8 * (s as u64 / 18) * B);
}

#[test]
fn recursive_algorithms_on_a_full_mesh() {
    let (n, s) = (8usize, 64_000usize);
    let full = machine(&format!("kind: full, size: {n}"));
    let bytes = s as u64;
    let t = timed(&full, s, 3 * s, |core, d| async move {
        recursive_doubling(&core, d).await
    });
    assert_eq!(t, 3 * (A + bytes * B + bytes * G));
    let t = timed(&full, s, 3 * s, |core, d| async move {
        halving_doubling(&core, d).await
    });
    assert_eq!(t, 2 * 3 * A + 2 * 7 * bytes / 8 * B + 7 * bytes / 8 * G);
}

#[test]
fn direct_algorithms_use_all_private_links_at_once() {
    let (n, s) = (8usize, 64_000usize);
    let full = machine(&format!("kind: full, size: {n}"));
    let (bytes, part) = (s as u64, s as u64 / 8);
    let t = timed(
        &full,
        s,
        s,
        |core, d| async move { direct_all_reduce(&core, d).await },
    );
    assert_eq!(t, 2 * (A + part * B) + 7 * part * G);
    let t = timed(&full, s, 8 * s, |core, d| async move {
        one_shot_all_reduce(&core, d).await
    });
    assert_eq!(t, A + bytes * B + 7 * bytes * G);
    let t = timed(
        &full,
        s,
        1,
        |core, d| async move { direct_all_gather(&core, d).await },
    );
    assert_eq!(t, A + part * B);
}

#[test]
fn broadcasts_by_chain_and_by_tree() {
    let s = 60_000usize;
    for k in [1usize, 2, 5, 12] {
        let line = machine("kind: line, size: 6");
        let (n, k64, segment) = (6, k as u64, (s / k) as u64 * B);
        let t = timed(&line, s, 1, move |core, d| async move {
            chain_broadcast(&core, d, k, true).await
        });
        assert_eq!(t, (n - 2 + k64) * (A + segment), "k = {k}");
        // Segments that follow each other closely share the latency.
        let t = timed(&line, s, 1, move |core, d| async move {
            chain_broadcast(&core, d, k, false).await
        });
        assert_eq!(t, (n - 1) * A + (n - 2 + k64) * segment, "k = {k}");
    }
    for (n, rounds) in [(2u64, 1u64), (5, 3), (8, 3), (16, 4)] {
        let full = machine(&format!("kind: full, size: {n}"));
        let t = timed(&full, s, 1, |core, d| async move {
            binomial_broadcast(&core, d).await
        });
        assert_eq!(t, rounds * (A + s as u64 * B), "n = {n}");
    }
}

#[test]
fn a_torus_dimension_by_dimension() {
    let s = 64_000usize;
    let torus = topology(&format!("network: {{kind: torus, dims: [4, 4, 4], {WIRE}}}"));
    let t = timed(&torus, s, 3 * s, |core, d| async move {
        by_dimensions(&core, d, &[(1, 4), (4, 4), (16, 4)]).await
    });
    assert_eq!(t, 2 * 9 * A + 2 * 63 * s as u64 / 64 * B);
}

#[test]
fn a_hierarchy_inside_then_between() {
    let (m, g, s) = (4usize, 3usize, 120_000usize);
    let nodes = topology(
        "levels:
  - {name: between, kind: ring, size: 3, bandwidth: 5 GB/s, latency: 4 us}
  - {name: inside, kind: ring, size: 4, bandwidth: 10 GB/s, latency: 1 us}
",
    );
    let t = timed(&nodes, s, 2 * s, move |core, d| async move {
        by_dimensions(&core, d, &[(1, m), (m, g)]).await
    });
    let s = s as u64;
    assert_eq!(
        t,
        2 * 3 * A + 2 * 3 * s / 4 * B + 2 * 2 * 4 * A + 2 * 2 * (s / 4) / 3 * 2 * B
    );
}

#[test]
fn all_to_all_needs_at_least_what_the_bisection_says_and_gets_close() {
    let s = 1 << 20;
    for (network, n, k) in [
        ("kind: ring, size: 16", 16u64, 16u64),
        ("kind: torus, dims: [8, 8]", 64, 8),
    ] {
        let fast = topology(&format!("network: {{{network}, bandwidth: 10 GB/s, latency: 0}}"));
        let t = timed(&fast, s, s, |core, d| async move { all_to_all(&core, d).await });
        let bound = k * s as u64 / 8 * B;
        assert!(t >= bound, "{network}: {t} is below {bound}");
        assert!(t < bound * 2, "{network}: {t} is far above {bound} ({n} ranks)");
    }
}

#[test]
fn store_and_forward_flits_and_shared_links() {
    let s = 10_000usize;
    let far = |extra: &str| {
        let line = topology(&format!("network: {{kind: line, size: 5, {WIRE}, {extra}}}"));
        timed(&line, s, 1, |core, d| async move {
            if d.me == 0 {
                d.send(&core, 4, d.buffer, d.buffer, 0).await?;
            } else if d.me == 4 {
                d.recv(&core, 0, 1).await?;
            }
            Ok(())
        })
    };
    let bytes = s as u64 * B;
    assert_eq!(far("switching: cut-through"), 4 * A + bytes);
    assert_eq!(far("switching: store-and-forward"), 4 * (A + bytes));
    assert_eq!(far("flit: 256 B"), 4 * A + bytes + 3 * 256 * B);
    let star = machine("kind: switch, size: 6, blocking: no");
    let t = timed(&star, s, 6 * s, |core, d| async move {
        if d.me == 0 {
            return d.recv(&core, 0, 5).await;
        }
        d.send(&core, 0, d.scratch.part(d.n, d.me)?, d.buffer, 0).await
    });
    assert_eq!(t, 5 * bytes + A);
}

#[test]
fn h100_ring_is_within_three_percent_of_what_was_measured() {
    let h100 = Topology::preset("h100x8").unwrap();
    for (mib, measured_us) in [(256u64, 1_310.0), (1024, 5_090.0)] {
        let s = usize::try_from(mib << 20).unwrap();
        let t = timed(&h100, s, s, |core, d| async move {
            ring_all_reduce(&core, d, RING).await
        });
        let us = t as f64 / 1e6;
        assert!(
            (us / measured_us - 1.0).abs() < 0.03,
            "{mib} MiB: {us} us, measured {measured_us}"
        );
    }
}

/// 64 KB from the memory of one cube to the next: published is 545 ns, 512 of it draining. A crossing is 16 ns, HBM is
/// 6 ns at either end; wires and routers are not modelled.
#[test]
fn the_ancestors_dma_over_one_ucie() {
    let sip = Topology::preset("sip6-torus").unwrap();
    let sip = Topology {
        unit: ringwork_sim::Unit::Member(8),
        ..sip
    };
    let bytes = 65_536usize;
    let t = timed(&sip, bytes, bytes, |core, d| async move {
        if d.me == 0 {
            let there = d.buffer.on(d.rank(1))?;
            core.copy(there, d.buffer).await?;
        }
        Ok(())
    });
    assert_eq!(t, 512_000 + 16_000 + 2 * 6_000);
    assert!((t as f64 / 545_000.0 - 1.0).abs() < 0.01);
}

/// LL: 1 us and 25 GB/s; Simple: 3 us and 100 GB/s. They are equal at 2 us / (40 - 10 ps a byte), 66,666 2/3 bytes.
#[test]
fn a_link_with_protocols_takes_the_quickest_for_each_message() {
    let protocols = "bandwidth: 100 GB/s, protocols: [{name: LL, latency: 1 us, efficiency: 0.25}, \
                     {name: Simple, latency: 3 us, efficiency: 1}]";
    let time = |network: &str, bytes: usize| {
        timed(
            &topology(&format!("network: {{{network}}}\n")),
            bytes,
            1,
            |core, d| async move {
                if d.me == 0 {
                    core.copy(d.buffer.on(d.rank(1))?, d.buffer).await?;
                }
                Ok(())
            },
        )
    };
    for kind in ["kind: ring, size: 2", "kind: switch, size: 2, blocking: no"] {
        let network = format!("{kind}, {protocols}");
        for (bytes, wanted) in [
            (1, 1_000_000 + 40),
            (66_666, 1_000_000 + 66_666 * 40),
            (66_667, 3_000_000 + 66_667 * 10),
            (1 << 20, 3_000_000 + (1 << 20) * 10),
        ] {
            assert_eq!(time(&network, bytes), wanted, "{kind}, {bytes} B");
        }
    }
    // Used up to a size that is stated.
    let stated = "kind: ring, size: 2, bandwidth: 100 GB/s, protocols: [{name: LL, latency: 1 us, efficiency: 0.25, \
                  up_to: 8 KiB}, {name: Simple, latency: 3 us, efficiency: 1}]";
    assert_eq!(time(stated, 8192), 1_000_000 + 8192 * 40);
    assert_eq!(time(stated, 8193), 3_000_000 + 8193 * 10);
    // A ring of 4 with parts of 1 KiB takes 6 steps of LL.
    let ring = topology(&format!("network: {{kind: ring, size: 4, {protocols}}}\n"));
    let t = timed(&ring, 4096, 4096, |core, d| async move {
        ring_all_reduce(&core, d, RING).await
    });
    assert_eq!(t, 6 * (1_000_000 + 1024 * 40));
}
