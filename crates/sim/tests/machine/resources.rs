//! Engines, memories and links are charged when they are granted, and what must follow something does.

use crate::common::*;
use ringwork_isa::{Compare, Core, Notify, Rank, Tile, TileOps};
use ringwork_sim::{Options, Topology};

#[test]
fn dma_engines_are_charged_when_they_take_a_transfer_and_a_full_queue_holds_the_core() {
    let wire = "bandwidth: 10 GB/s, latency: 1 us";
    let time = |dma: &str| {
        let full = topology(&format!(
            "network: {{kind: full, size: 5, {wire}}}\nchip: {{dma: {{{dma}}}}}\n"
        ));
        timed(&full, 10_000, 1, |core, d| async move {
            if d.me > 0 {
                return d.recv(&core, 0, 1).await;
            }
            for to in 1..5 {
                d.send(&core, to, d.buffer, d.buffer, 0).await?;
            }
            Ok(())
        })
    };
    let bytes = 1_000_000;
    assert_eq!(time("engines: 4"), bytes + 1_000_000);
    assert_eq!(time("engines: 2"), 2 * bytes + 1_000_000);
    assert_eq!(time("engines: 1"), 4 * bytes + 1_000_000);
    assert_eq!(time("engines: 1, queue: 0"), 4 * bytes + 1_000_000);
    assert_eq!(time("engines: 1, queue: 1"), 4 * bytes + 1_000_000);
}

#[test]
fn memory_is_a_resource_that_copies_inside_a_chip_use_twice() {
    let chip = topology(
        "network: {kind: ring, size: 2, bandwidth: 10 GB/s, latency: 1 us}\nchip: {memory: {bandwidth: 100 GB/s, latency: 10 ns}}\n",
    );
    let t = timed(&chip, 10_000, 10_000, |core, d| async move {
        if d.me == 0 {
            core.copy(d.scratch, d.buffer).await
        } else {
            Ok(())
        }
    });
    assert_eq!(t, 200_000 + 10_000);
    // What is read must have been written: the second copy waits for the first.
    let t = timed(&chip, 10_000, 10_000, |core, d| async move {
        if d.me > 0 {
            return Ok(());
        }
        core.copy(d.scratch.part(2, 0)?, d.buffer.part(2, 0)?).await?;
        core.copy(d.scratch.part(2, 1)?, d.scratch.part(2, 0)?).await
    });
    assert_eq!(t, 2 * (100_000 + 10_000));
}

#[test]
fn a_product_takes_its_flops_or_its_folds_whichever_is_longer() {
    let time = |chip: &str, shape: [usize; 3]| {
        let machine = topology(&format!(
            "network: {{kind: ring, size: 2, bandwidth: 10 GB/s, latency: 1 us}}\nchip: {{{chip}}}\n"
        ));
        timed(&machine, 8, 8, move |core, d| async move {
            if d.me > 0 {
                return Ok(());
            }
            let [m, k, n] = shape;
            let (a, b) = (Tile::<f32>::hollow(m * k), Tile::hollow(k * n));
            let (a, b) = (a.shaped(m, k)?, b.shaped(k, n)?);
            let product = core.matmul(&a, &b).await?;
            assert!(product.is_hollow() && product.len() == m * n);
            Ok(())
        })
    };
    let shape = [64, 100, 33];
    let flops = 2 * 64 * 100 * 33;
    assert_eq!(time("matrix: 1 Tflop/s", shape), flops);
    // Rows 16, columns 8: 4 x 5 folds of 2R + C + K - 2 cycles, a nanosecond each.
    let folds = 4 * 5 * (32 + 8 + 100 - 2) * 1000;
    let array = "array: {rows: 16, columns: 8, clock: 1 GHz}";
    assert_eq!(time(array, shape), folds);
    assert_eq!(
        time(&format!("matrix: 1 Tflop/s, {array}"), shape),
        folds.max(flops)
    );
    assert_eq!(time(&format!("matrix: 1 Gflop/s, {array}"), shape), flops * 1000);
    assert_eq!(time("vector: 1 GB/s", shape), 0);
}

#[test]
fn every_operation_on_a_tile_takes_the_time_of_its_elements() {
    let machine = topology(
        "network: {kind: ring, size: 2, bandwidth: 10 GB/s, latency: 1 us}\nchip: {vector: 1 GB/s}\n",
    );
    let t = timed(&machine, 8, 8, |core, d| async move {
        if d.me > 0 {
            return Ok(());
        }
        let x = Tile::<f32>::hollow(100).shaped(10, 10)?;
        core.log(&x).await?;
        core.sqrt(&x).await?;
        core.rsqrt(&x).await?;
        core.tanh(&x).await?;
        core.sigmoid(&x).await?;
        core.reciprocal(&x).await?;
        core.abs(&x).await?;
        core.neg(&x).await?;
        core.transpose(&x).await?;
        core.col_sum(&x).await?;
        core.col_max(&x).await?;
        core.col_min(&x).await?;
        core.row_min(&x).await?;
        let mask = core.compare(&x, &x, Compare::Lt).await?;
        core.select(&mask, &x, &x).await?;
        core.full(10, 10, 1.0f32).await?;
        core.iota::<f32>(10, 10).await?;
        Ok(())
    });
    let one = timed(&machine, 8, 8, |core, d| async move {
        if d.me > 0 {
            return Ok(());
        }
        core.exp(&Tile::<f32>::hollow(100)).await.map(drop)
    });
    assert!(one > 0);
    assert_eq!(t, 17 * one);
}

#[test]
fn stragglers_and_slow_links_slow_what_depends_on_them() {
    let base = "network: {kind: ring, size: 4, bandwidth: 10 GB/s, latency: 1 us}\nchip: {vector: 10 GB/s}\n";
    let time = |extra: &str| {
        timed(
            &topology(&format!("{base}{extra}")),
            40_000,
            40_000,
            |core, d| async move { ring_all_reduce(&core, d, RING).await },
        )
    };
    let even = time("");
    assert!(time("stragglers: [{rank: 2, speed: 0.5}]\n") > even);
    assert!(time("faults: [{from: 0, to: 1, factor: 0.5}]\n") > even);
    assert!(time("faults: [{from: 0, to: 1, failed: true}]\n") > even);
    assert_eq!(
        time("faults: [{from: 1, to: 0, factor: 0.5, direction: one-way}]\n"),
        even,
        "nobody uses that link"
    );
}

#[test]
fn reading_from_another_chip_costs_the_way_there_and_back() {
    let ring = topology("network: {kind: ring, size: 2, bandwidth: 10 GB/s, latency: 1 us}\n");
    let t = timed(&ring, 10_000, 10_000, |core, d| async move {
        if d.me == 0 {
            core.copy(d.scratch, d.buffer.on(Rank(1))?).await
        } else {
            Ok(())
        }
    });
    assert_eq!(t, 2_000_000 + 1_000_000);
    let t = timed(&ring, 10_000, 10_000, |core, d| async move {
        if d.me == 0 {
            core.load(d.buffer.on(Rank(1))?).await.map(drop)
        } else {
            Ok(())
        }
    });
    assert_eq!(t, 2_000_000 + 1_000_000);
}

/// A notification follows its core's transfers, but the core itself sees it at once: program order.
#[test]
fn a_kernel_sees_its_own_notifications_whatever_they_still_wait_for() {
    for preset in ["ring-2", "sip6-torus"] {
        let machine = run_on::<u8, _, _>(
            &Topology::preset(preset).unwrap(),
            Options::default(),
            1 << 16,
            0,
            false,
            |core, d| async move {
                if d.me > 0 {
                    return Ok(());
                }
                for round in 1..=5 {
                    // Under way long after the next two instructions.
                    core.copy(d.buffer.on(d.rank(1))?, d.buffer).await?;
                    core.notify(d.signal(0), Notify::Add(1)).await?;
                    assert_eq!(core.peek(d.signal(0)).await?, round);
                    core.notify(d.signal(0), Notify::Set(round)).await?;
                    core.wait(d.signal(0), Compare::Eq, round).await?;
                }
                Ok(())
            },
        );
        assert!(machine.now_ps() > 0);
    }
}

/// Tiles of 100 ns (1,000 bytes at 10 GB/s) that take as long, half as long and twice as long to compute with.
#[test]
fn the_next_tile_is_loaded_while_this_one_is_computed_with() {
    let tiles = 8u64;
    for compute_ps in [50_000, 100_000, 200_000] {
        let machine = topology(&format!(
            "network: {{kind: line, size: 2, bandwidth: 10 GB/s, latency: 1 us}}\n\
             chip: {{memory: {{bandwidth: 10 GB/s, latency: 0}}, vector: {} GB/s}}\n",
            1000 * 1000 / compute_ps
        ));
        let t = timed(&machine, 1000, 1000, move |core, d| async move {
            if d.me > 0 {
                return Ok(());
            }
            for _ in 0..tiles {
                let _tile = core.load(d.buffer).await?;
                core.spend(ringwork_isa::Work::Vector {
                    elements: 1000,
                    dtype: ringwork_isa::Dtype::U8,
                })
                .await?;
            }
            Ok(())
        });
        // The first load, then the slower of the two for each tile, then the faster once at the end.
        let (slow, fast) = (compute_ps.max(100_000), compute_ps.min(100_000));
        assert_eq!(t, tiles * slow + fast, "{compute_ps}");
    }
}

#[test]
fn what_follows_arithmetic_waits_for_it_unless_it_is_a_load() {
    let machine = topology(
        "network: {kind: line, size: 2, bandwidth: 10 GB/s, latency: 1 us}\nchip: {vector: 1 GB/s}\n",
    );
    let t = timed(&machine, 1000, 1000, move |core, d| async move {
        if d.me == 0 {
            core.spend(ringwork_isa::Work::Vector {
                elements: 1000,
                dtype: ringwork_isa::Dtype::U8,
            })
            .await?;
            core.notify(d.signal(0).on(d.rank(1))?, Notify::Add(1)).await
        } else {
            core.wait(d.signal(0), Compare::Ge, 1).await
        }
    });
    assert_eq!(t, 1_000_000 + 1_000_000);
}
