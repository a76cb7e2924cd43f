//! What signals order between ranks.
#![allow(missing_docs, reason = "the names are sentences")]

use crate::{Machine, Seat};
use ringwork_isa::{Compare, Core, Epoch, Notify, Packets, Rank, ReduceOp, Result, Tile};

/// Enough to meet each half of the scratch several times; few enough for Miri.
const ROUNDS: i32 = 6;

pub fn what_was_put_before_a_notify_is_there_after_the_wait<M: Machine>() {
    M::new(2).run_well(async |core, seat| {
        let (data, signal) = (seat.buffer::<i32>(0, 16), seat.signal(1));
        let peer = Rank(1 - seat.me.0);
        for round in 1..=ROUNDS {
            // Rank 0 puts, rank 1 looks and puts back: the same place, twice a round.
            for turn in 0..2 {
                let count = 2 * round + turn;
                if seat.me.0 == turn.cast_unsigned() {
                    core.store(data.on(peer)?, &Tile::new(vec![count; 16])).await?;
                    core.notify(signal.on(peer)?, Notify::Set(round)).await?;
                } else {
                    core.wait(signal, Compare::Ge, round).await?;
                    assert_eq!(core.load(data).await?.values(), [count; 16]);
                }
            }
        }
        Ok(())
    });
}

pub fn adds_of_all_ranks_are_never_lost<M: Machine>() {
    M::new(3).run_well(async |core, seat| {
        let sum = seat.signal(1).on(Rank(0))?;
        for _ in 0..ROUNDS {
            core.notify(sum, Notify::Add(1)).await?;
        }
        core.wait(sum, Compare::Eq, 3 * ROUNDS).await
    });
}

pub fn ranks_write_into_each_others_windows<M: Machine>() {
    M::new(3).run_well(async |core, seat| {
        let (mine, inbox) = (seat.buffer::<i64>(1024, 2), seat.buffer::<i64>(0, 6));
        let me = i64::from(seat.me.0);
        core.store(mine, &Tile::new(vec![me * 10, me * 10 + 1])).await?;
        let slot = |rank: u32| 2 * rank as usize..2 * rank as usize + 2;
        for peer in 0..seat.layout.ranks {
            core.copy(inbox.on(Rank(peer))?.slice(slot(seat.me.0))?, mine)
                .await?;
        }
        seat.barrier().arrive_and_wait(core).await?;
        assert_eq!(core.load(inbox).await?.values(), [0, 1, 10, 11, 20, 21]);
        // And what a peer has, read from here.
        let theirs = core.load(inbox.on(Rank((seat.me.0 + 1) % 3))?).await?;
        assert_eq!(theirs.values(), [0, 1, 10, 11, 20, 21]);
        Ok(())
    });
}

pub fn one_barrier_and_two_halves_are_enough_for_any_number_of_rounds<M: Machine>() {
    M::new(3).run_well(async |core, seat| {
        let (scratch, result, meet) = (
            seat.buffer::<i32>(0, 8),
            seat.buffer::<i32>(64, 4),
            seat.barrier(),
        );
        for round in 1..=ROUNDS {
            let epoch = meet.epoch(core).await?;
            assert_eq!(i32::from(epoch), round);
            let slot = scratch.half(epoch);
            let me = seat.me.0.cast_signed();
            core.store(slot, &Tile::new(vec![round * 10 + me; 4])).await?;
            meet.arrive_and_wait(core).await?;
            core.reduce(result, slot.on_all(), ReduceOp::Sum).await?;
            assert_eq!(core.load(result).await?.values(), [round * 30 + 3; 4]);
        }
        Ok(())
    });
}

pub fn one_signal_wakes_every_rank_that_waits_for_it<M: Machine>() {
    M::new(3).run_well(async |core, seat| {
        let signal = seat.signal(2).on(Rank(1))?;
        if seat.me.0 == 0 {
            core.notify(signal, Notify::Set(1)).await?;
        }
        core.wait(signal, Compare::Eq, 1).await
    });
}

/// Two places for packets of up to 504 bytes, in the first 2 KiB of the data, raised by signal 1.
fn packets(seat: Seat) -> Result<Packets> {
    let area = seat.buffer::<i64>(0, 256);
    Packets::new(area, (0, 72, 128), 2, seat.signals().own(1)?)
}

pub fn packets_carry_any_length_and_reduce_in_rank_order<M: Machine>() {
    M::new(3).run_well(async |core, seat| {
        let packets = packets(seat)?;
        for (round, len) in (1i32..).zip([0i32, 1, 13, 14, 15, 40, 70, 71, 100]) {
            let (epoch, elements) = (Epoch::of(round), u64::from(len.cast_unsigned()));
            let (mine, result) = (
                seat.buffer::<i32>(2048, elements),
                seat.buffer::<i32>(2560, elements),
            );
            let value = |rank: u32| (0..len).map(|i| 100 * rank.cast_signed() + i).collect();
            core.store(mine, &Tile::<i32>::new(value(seat.me.0))).await?;
            core.put_packet(&packets, mine, epoch).await?;
            core.notify(seat.signal(1), Notify::Set(round)).await?;
            core.reduce_packets(result, mine, &packets, ReduceOp::Sum, epoch)
                .await?;
            let sums: Vec<i32> = (0..len).map(|i| 300 + 3 * i).collect();
            assert_eq!(core.load(result).await?.values(), sums);
            let next = Rank((seat.me.0 + 1) % 3);
            core.get_packet(result, &packets.on(next)?, epoch).await?;
            let theirs: Vec<i32> = value(next.0);
            assert_eq!(core.load(result).await?.values(), theirs);
        }
        Ok(())
    });
}

/// Full release and acquire: not the payload alone.
pub fn a_packet_publishes_everything_its_writer_did_before<M: Machine>() {
    M::new(3).run_well(async |core, seat| {
        let (packets, data) = (packets(seat)?, seat.buffer::<i32>(4096, 300));
        let (mine, result) = (seat.buffer::<i32>(2048, 2), seat.buffer::<i32>(2560, 2));
        for round in 1..=ROUNDS {
            let epoch = Epoch::of(round);
            match seat.me.0 {
                // Puts data into the window of rank 2, and a packet into its own.
                0 => {
                    core.store(data.on(Rank(2))?, &Tile::new(vec![round; 300]))
                        .await?;
                    core.put_packet(&packets, mine, epoch).await?;
                    core.notify(seat.signal(1), Notify::Set(round)).await?;
                }
                // Takes the packet, and reads from rank 2 what was put there before.
                1 => {
                    core.get_packet(result, &packets.on(Rank(0))?, epoch).await?;
                    let seen = core.load(data.on(Rank(2))?).await?;
                    assert_eq!(seen.values(), vec![round; 300]);
                }
                _ => {}
            }
            seat.barrier().arrive_and_wait(core).await?;
        }
        Ok(())
    });
}

pub fn more_than_a_packet_holds_is_refused<M: Machine>() {
    M::new(1).run_well(async |core, seat| {
        let (packets, long) = (packets(seat)?, seat.buffer::<i32>(2048, 200));
        assert!(core.put_packet(&packets, long, Epoch::of(1)).await.is_err());
        assert!(core.get_packet(long, &packets, Epoch::of(1)).await.is_err());
        Ok(())
    });
}

/// For platforms that step: the native core does an instruction when it is made.
pub fn an_instruction_that_is_awaited_out_of_order_names_both_lines<M: Machine>() {
    let ends = M::new(1).run(async |core, seat| {
        let data = seat.buffer::<i32>(0, 8);
        let line = line!() + 1;
        let copy = core.copy(data.slice(0..2)?, data.slice(2..4)?);
        let error = core.notify(seat.signal(0), Notify::Set(1)).await.unwrap_err();
        assert!(
            error.to_string().contains(&format!(
                "order.rs:{line}; await each instruction where it is made"
            )),
            "{error}"
        );
        copy.await
    });
    assert_eq!(ends, [Ok(())]);
}

pub fn an_instruction_that_is_never_awaited_is_an_error<M: Machine>() {
    let ends = M::new(1).run(async |core, seat| {
        let data = seat.buffer::<i32>(0, 8);
        drop(core.copy(data.slice(0..2)?, data.slice(2..4)?));
        Ok(())
    });
    let error = ends[0].as_ref().unwrap_err().to_string();
    assert!(
        error.contains("order.rs") && error.contains("never awaited"),
        "{error}"
    );
}
