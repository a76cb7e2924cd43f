//! A load sees what has arrived at that moment, whoever was stepped first.

use crate::common::*;
use ringwork_isa::{Core, Dtype, ReduceOp, Result, Tile, Work};
use ringwork_sim::{Options, SimCore, Topology};
use std::cell::RefCell;
use std::rc::Rc;

/// 4 bytes take 400 ps and 1 us; the vector engine takes a picosecond a byte.
const LINK: &str =
    "network: {kind: line, size: 3, bandwidth: 10 GB/s, latency: 1 us}\nchip: {vector: 1 TB/s}\n";
const ARRIVAL: u64 = 1_000_000 + 400;

/// Waits for a time. A load may begin before arithmetic is over, but not a copy to the same place.
async fn pause(core: &SimCore, d: &Domain<f32>, ps: u64) -> Result<()> {
    let work = Work::Vector {
        elements: ps,
        dtype: Dtype::U8,
    };
    core.spend(work).await?;
    core.copy(d.scratch, d.scratch).await
}

/// What `reader` sees in its own first element at a time, after `writer` has stored 7 there at time 0.
fn seen(topology: &Topology, (writer, reader): (usize, usize), at_ps: u64) -> f32 {
    let seen = Rc::new(RefCell::new(Vec::new()));
    let out = Rc::clone(&seen);
    run_on::<f32, _, _>(topology, Options::default(), 1, 1, false, move |core, d| {
        let out = Rc::clone(&out);
        async move {
            if d.me == writer {
                core.store(d.buffer.on(d.rank(reader))?, &Tile::new(vec![7.0]))
                    .await?;
            }
            if d.me == reader {
                pause(&core, &d, at_ps).await?;
                let loaded = core.load(d.buffer).await?;
                out.borrow_mut().push(loaded.values()[0]);
            }
            Ok(())
        }
    });
    let seen = seen.borrow();
    seen[0]
}

#[test]
fn a_load_without_a_wait_sees_the_old_value_until_the_store_has_arrived() {
    let topology = topology(LINK);
    for between in [(0, 1), (1, 0)] {
        assert_eq!(seen(&topology, between, 0), 0.0);
        assert_eq!(seen(&topology, between, ARRIVAL - 1), 0.0);
        assert_eq!(seen(&topology, between, ARRIVAL), 7.0);
    }
    // Over two links the message is booked ahead.
    for between in [(0, 2), (2, 0)] {
        assert_eq!(seen(&topology, between, ARRIVAL + 1_000_000 - 1), 0.0);
        assert_eq!(seen(&topology, between, ARRIVAL + 1_000_000 + 1), 7.0);
    }
}

/// A store from rank 0 to rank 1 at a time; rank 2 asks for the same place at time 0.
fn asked(stored_at_ps: u64, reduce: bool) -> f32 {
    let seen = Rc::new(RefCell::new(Vec::new()));
    let out = Rc::clone(&seen);
    run_on::<f32, _, _>(
        &topology(LINK),
        Options::default(),
        1,
        1,
        false,
        move |core, d| {
            let out = Rc::clone(&out);
            async move {
                match d.me {
                    1 => {
                        pause(&core, &d, stored_at_ps).await?;
                        core.store(d.buffer, &Tile::new(vec![7.0])).await?;
                    }
                    2 if reduce => {
                        let there = d.buffer.on(d.rank(1))?;
                        core.reduce(d.buffer, [there, there], ReduceOp::Sum).await?;
                        let loaded = core.load(d.buffer).await?;
                        out.borrow_mut().push(loaded.values()[0]);
                    }
                    2 => {
                        let loaded = core.load(d.buffer.on(d.rank(1))?).await?;
                        out.borrow_mut().push(loaded.values()[0]);
                    }
                    _ => {}
                }
                Ok(())
            }
        },
    );
    let seen = seen.borrow();
    seen[0]
}

#[test]
fn a_load_from_another_chip_sees_what_is_there_when_the_request_gets_there() {
    assert_eq!(asked(1_000_000 - 1, false), 7.0);
    assert_eq!(asked(1_000_000 + 1, false), 0.0);
    assert_eq!(asked(1_000_000 - 1, true), 14.0);
    assert_eq!(asked(1_000_000 + 1, true), 0.0);
}

#[test]
fn a_copy_takes_what_is_at_its_source_when_it_begins() {
    // Rank 2 gets from rank 1 what rank 1 overwrites before or after the request is there.
    let copied = |stored_at_ps: u64| {
        let machine = run_on::<f32, _, _>(
            &topology(LINK),
            Options::default(),
            1,
            1,
            false,
            move |core, d| async move {
                match d.me {
                    1 => {
                        pause(&core, &d, stored_at_ps).await?;
                        core.store(d.buffer, &Tile::new(vec![7.0])).await
                    }
                    2 => core.copy(d.buffer, d.buffer.on(d.rank(1))?).await,
                    _ => Ok(()),
                }
            },
        );
        buffer::<f32>(&machine, 2, 1, 1)[0]
    };
    assert_eq!(copied(1_000_000 - 1), 7.0);
    assert_eq!(copied(1_000_000 + 1), 0.0);
}
