//! Queues between neighbours, and copies that are joined.
#![allow(missing_docs, reason = "the names are sentences")]

use crate::refused::refused;
use crate::{Machine, Seat};
use ringwork_isa::{Core, Element, Notify, Port, Queues, Rank, Result, Shared, Tile};

/// Ports of a ring: to the rank before, and to the one after.
const WEST: u32 = 0;
const EAST: u32 = 1;
const DEPTH: u32 = 2;

/// Two ports with two slots of five elements each, over the signals from the fourth on.
fn queues<T: Element>(seat: Seat) -> Queues<T> {
    Queues::new(seat.buffer(1024, 20), seat.row(4), 2, DEPTH).unwrap()
}

/// My ports in a ring: west and east. In a ring of two both lead to the same peer.
fn ring<T: Element>(seat: Seat) -> (Port<T>, Port<T>) {
    let (me, ranks) = (seat.me.0, seat.layout.ranks);
    let queues = queues(seat);
    let west = queues.port(WEST, Rank((me + ranks - 1) % ranks), EAST).unwrap();
    let east = queues.port(EAST, Rank((me + 1) % ranks), WEST).unwrap();
    (west, east)
}

fn message(from: Rank, port: u32, round: i32) -> Tile<i32> {
    let first = from.0.cast_signed() * 1000 + port.cast_signed() * 100 + round;
    Tile::new((0..=round % 5).map(|i| first * 10 + i).collect())
}

pub fn messages_go_both_ways_around_a_ring_in_order<M: Machine>() {
    for ranks in [2, 3] {
        M::new(ranks).run_well(async |core, seat| {
            let (west, east) = ring::<i32>(seat);
            for round in 0..9 {
                core.send(east, &message(seat.me, EAST, round)).await?;
                core.send(west, &message(seat.me, WEST, round)).await?;
                let (from_west, from_east) = (
                    message(west.peer(), EAST, round),
                    message(east.peer(), WEST, round),
                );
                assert_eq!(core.recv(east, from_east.len()).await?, from_east);
                assert_eq!(core.recv(west, from_west.len()).await?, from_west);
            }
            Ok(())
        });
    }
}

pub fn a_sender_waits_for_a_slot_and_overtakes_nobody<M: Machine>() {
    M::new(2).run_well(async |core, seat| {
        let (west, east) = ring::<i32>(seat);
        for round in 0..20 {
            if seat.me.0 == 0 {
                core.send(east, &message(seat.me, EAST, round)).await?;
            } else {
                let wanted = message(Rank(0), EAST, round);
                assert_eq!(core.recv(west, wanted.len()).await?, wanted);
            }
        }
        Ok(())
    });
}

pub fn asynchronous_messages_keep_their_numbers_in_whatever_order_they_are_joined<M: Machine>() {
    M::new(2).run_well(async |core, seat| {
        let (west, east) = ring::<i32>(seat);
        let own = |round| message(seat.me, EAST, round);
        // More than there are slots: the last cannot go out before the peer has received.
        let sends = [
            core.send_async(east, &own(0)).await?,
            core.send_async(east, &own(1)).await?,
            core.send_async(east, &own(2)).await?,
        ];
        let theirs = |round| message(west.peer(), EAST, round);
        let first = core.recv_async(west, theirs(0).len()).await?;
        let second = core.recv_async(west, theirs(1).len()).await?;
        assert_eq!(core.join([first, second]).await?, [theirs(0), theirs(1)]);
        let [a, b, c] = sends;
        core.join(c).await?;
        core.join(a).await?;
        core.join(b).await?;
        assert_eq!(core.recv(west, theirs(2).len()).await?, theirs(2));
        Ok(())
    });
}

pub fn a_message_publishes_what_its_sender_did_before<M: Machine>() {
    M::new(2).run_well(async |core, seat| {
        let (west, east) = ring::<i32>(seat);
        let data: Shared<i32> = seat.buffer(0, 4);
        if seat.me.0 == 0 {
            core.store(data.on(Rank(1))?, &Tile::new(vec![7; 4])).await?;
            core.send(east, &Tile::new(vec![])).await
        } else {
            assert!(core.recv(west, 0).await?.is_empty());
            assert_eq!(core.load(data).await?.values(), [7; 4]);
            Ok(())
        }
    });
}

pub fn messages_and_ports_that_do_not_fit_are_refused<M: Machine>() {
    M::new(2).run_well(async |core, seat| {
        let (west, east) = ring::<i32>(seat);
        let long = Tile::new(vec![1; 6]);
        if seat.me.0 == 0 {
            core.send(east, &Tile::new(vec![1, 2, 3])).await?;
            return Ok(());
        }
        refused!(
            core.recv(west, 2),
            "{site}: the message from rank 0 in the queue of port 0 has 3 elements where 2 are needed"
        );
        let message =
            "{site}: elements 0..6 are outside a region of 5; make the buffer larger or split the transfer";
        refused!(core.send(west, &long), message);
        refused!(core.recv(west, 6), message);
        let queues = queues::<i32>(seat);
        assert!(queues.port(2, Rank(0), 0).is_err() && queues.port(0, Rank(0), 2).is_err());
        assert!(queues.port(0, Rank(2), 0).is_err());
        let row = seat.signals();
        assert!(
            Queues::new(seat.buffer::<i32>(0, 20), row, 2, 3).is_err(),
            "three slots"
        );
        assert!(
            Queues::new(seat.buffer::<i32>(0, 20), row, 5, 2).is_err(),
            "too few signals"
        );
        Ok(())
    });
}

pub fn a_copy_that_was_joined_is_there_and_can_be_published<M: Machine>() {
    M::new(2).run_well(async |core, seat| -> Result<()> {
        let (mine, inbox, signal) = (
            seat.buffer::<i32>(0, 8),
            seat.buffer::<i32>(64, 8),
            seat.signal(1),
        );
        let peer = Rank(1 - seat.me.0);
        let value = |rank: Rank| Tile::new(vec![rank.0.cast_signed() + 5; 8]);
        core.store(mine, &value(seat.me)).await?;
        let first = core
            .copy_async(inbox.slice(0..4)?.on(peer)?, mine.slice(0..4)?)
            .await?;
        let second = core
            .copy_async(inbox.slice(4..8)?.on(peer)?, mine.slice(4..8)?)
            .await?;
        core.join(second).await?;
        core.join(first).await?;
        core.store(mine, &Tile::new(vec![0; 8])).await?;
        core.notify(signal.on(peer)?, Notify::Set(1)).await?;
        core.wait(signal, ringwork_isa::Compare::Ge, 1).await?;
        assert_eq!(core.load(inbox).await?, value(peer));
        refused!(
            core.copy_async(inbox, mine.slice(0..3)?),
            "{site}: the source has 3 elements where 8 are needed"
        );
        Ok(())
    });
}

/// Rank 1 never reads: what a sender is told when the domain ends.
pub fn a_full_queue_names_the_reader_that_stopped<M: Machine>() {
    let machine = M::new(2);
    machine.alarm(None, "the user asked");
    machine.run_well(async |core, seat| {
        if seat.me.0 == 1 {
            return Ok(());
        }
        let (west, east) = ring::<i32>(seat);
        let tile = Tile::new(vec![1]);
        core.send(east, &tile).await?;
        core.send(east, &tile).await?;
        refused!(
            core.send(east, &tile),
            "aborted because the user asked; rank 0 waited at {site} for a free slot in the queue of port 1 to rank 1, \
             which stopped reading: it took message 0 out of this slot and not 1"
        );
        refused!(
            core.recv(west, 1),
            "aborted because the user asked; rank 0 waited at {site} for message 1 in the queue of port 0 from rank 1, \
             which did not send it"
        );
        refused!(
            seat.barrier().arrive_and_wait(core),
            "aborted because the user asked; rank 0 waited at {site} for signal 0 of rank 1 to be >= 1, it is 0"
        );
        Ok(())
    });
}
