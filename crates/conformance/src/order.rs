//! What signals order between ranks.
#![allow(missing_docs, reason = "the names are sentences")]

use crate::Machine;
use ringwork_isa::{Compare, Core, LINE_WORDS, Notify, Rank, ReduceOp, Tile, packet_lines};

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
        assert_eq!(core.wait(sum, Compare::Ge, 3 * ROUNDS).await?, 3 * ROUNDS);
        Ok(())
    });
}

pub fn ranks_write_into_each_others_windows<M: Machine>() {
    M::new(3).run_well(async |core, seat| {
        let (mine, inbox) = (seat.buffer::<i64>(1024, 2), seat.buffer::<i64>(0, 6));
        let me = i64::from(seat.me.0);
        core.store(mine, &Tile::new(vec![me * 10, me * 10 + 1])).await?;
        let slot = |rank: u32| 2 * rank as usize..2 * rank as usize + 2;
        for peer in 0..seat.ranks {
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
            assert_eq!(epoch, round);
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
        core.wait(signal, Compare::Eq, 1).await.map(drop)
    });
}

pub fn packets_carry_any_length_and_reduce_in_rank_order<M: Machine>() {
    M::new(3).run_well(async |core, seat| {
        let signal = seat.signal(1);
        for (epoch, len) in (1i32..).zip([0i32, 1, 13, 14, 15, 40, 70, 71, 100]) {
            let elements = u64::from(len.cast_unsigned());
            let words = (packet_lines(4 * len.cast_unsigned() as usize) * LINE_WORDS) as u64;
            // A half for each parity, 64 bytes aligned; then the data.
            let packets = seat.buffer::<i64>(u64::from(epoch.cast_unsigned() % 2) * 1024, words);
            let (mine, result) = (seat.buffer(2048, elements), seat.buffer(2560, elements));
            let value = |rank: u32| (0..len).map(|i| 100 * rank.cast_signed() + i).collect();
            core.store(mine, &Tile::<i32>::new(value(seat.me.0))).await?;
            core.put_packet(packets, mine, epoch).await?;
            core.notify(signal, Notify::Set(epoch)).await?;
            core.reduce_packets(result, mine, packets, signal, ReduceOp::Sum, epoch)
                .await?;
            let sums: Vec<i32> = (0..len).map(|i| 300 + 3 * i).collect();
            assert_eq!(core.load(result).await?.values(), sums);
            let next = Rank((seat.me.0 + 1) % 3);
            core.get_packet(result, packets.on(next)?, signal.on(next)?, epoch)
                .await?;
            let theirs: Vec<i32> = value(next.0);
            assert_eq!(core.load(result).await?.values(), theirs);
        }
        Ok(())
    });
}
