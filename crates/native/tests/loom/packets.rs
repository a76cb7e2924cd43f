//! Packets: payload and flag (FLAG-1), and the signal for readers that sleep (FLAG-2). The flag is the shipped one, the handles
//! are `isa`'s, the payload lies in bytes that loom watches.

use super::explore;
use super::small_core::SmallCore;
use ringwork_isa::{
    Core, Epoch, FLAGGED_BYTES, LINE_BYTES, LINE_WORDS, Notify, Packets, Rank, Result, Shared, Signals, Tile,
};
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

/// How a packet is put.
#[derive(Clone, Copy)]
struct Protocol {
    /// Bytes of payload.
    bytes: usize,
    /// Places that are used in turn.
    places: u32,
    /// The reader waits for the signal, and looks at the flag only then.
    sleeps: bool,
    /// The signal is raised before the packet is put.
    raises_first: bool,
}

impl Protocol {
    /// Small packets in two places, read awake.
    const SHIPPED: Protocol = Protocol {
        bytes: 1,
        places: 2,
        sleeps: false,
        raises_first: false,
    };

    /// Lines of one place.
    fn lines(self) -> usize {
        ringwork_isa::packet_lines(self.bytes)
    }

    /// Where the packets of a rank are: behind `bytes` to send and as many to receive, from the next line on.
    fn packets(self, core: &SmallCore, me: u32) -> Packets {
        let words = self.lines() * LINE_WORDS;
        let signals: Signals = core.signals(me);
        let raised = signals.own(0).unwrap();
        let begin = self.area() / 8;
        Packets::new(core.scratch(me), (begin, words, words), self.places, raised).unwrap()
    }

    /// Bytes before the packets.
    fn area(self) -> usize {
        (2 * self.bytes).next_multiple_of(LINE_BYTES)
    }

    fn window_bytes(self) -> usize {
        self.area() + self.places as usize * self.lines() * LINE_BYTES
    }
}

/// What packet collectives do: put mine, raise my signal, take those of the others; and again.
async fn exchange<C: Core>(
    core: &C,
    mine: Shared<u8>,
    packets: Packets,
    protocol: Protocol,
    rounds: u8,
) -> Result<()> {
    let (me, bytes) = (packets.me(), protocol.bytes);
    let value = |rank: Rank, round: u8| vec![10 * round + u8::try_from(rank.0).unwrap(); bytes];
    let (from, to) = (mine.slice(0..bytes)?, mine.slice(bytes..2 * bytes)?);
    for round in 1..=rounds {
        let epoch = Epoch::of(round.into());
        core.store(from, &Tile::new(value(me, round))).await?;
        let raise = async || core.notify(packets.raised(), Notify::Set(epoch.into())).await;
        if protocol.raises_first {
            raise().await?;
            core.put_packet(&packets, from, epoch).await?;
        } else {
            core.put_packet(&packets, from, epoch).await?;
            raise().await?;
        }
        for peer in (0..packets.ranks()).map(Rank).filter(|peer| *peer != me) {
            core.get_packet(to, &packets.on(peer)?, epoch).await?;
            let tile = core.load(to).await?;
            assert_eq!(tile.values(), value(peer, round), "another packet");
        }
    }
    Ok(())
}

fn exchanges(preemptions: usize, ranks: u32, rounds: u8, protocol: Protocol) {
    explore(preemptions, move || {
        let core = SmallCore::new(ranks, protocol.window_bytes());
        let core = Arc::new(core.with_packets(protocol.area(), protocol.sleeps));
        let run = move |core: &SmallCore, me: u32| {
            let packets = protocol.packets(core, me);
            let kernel = exchange(core, core.scratch(me), packets, protocol, rounds);
            let end = pin!(kernel).poll(&mut Context::from_waker(Waker::noop()));
            assert_eq!(end, Poll::Ready(Ok(())));
        };
        let others: Vec<_> = (1..ranks)
            .map(|me| {
                let core = core.clone();
                loom::thread::spawn(move || run(&core, me))
            })
            .collect();
        run(&core, 0);
        for other in others {
            other.join().unwrap();
        }
    });
}

#[test]
fn packets_of_one_line_arrive_whole_three_times() {
    exchanges(3, 2, 3, Protocol::SHIPPED);
}

#[test]
fn packets_of_several_lines_arrive_whole_three_times() {
    let protocol = Protocol {
        bytes: FLAGGED_BYTES + 1,
        ..Protocol::SHIPPED
    };
    exchanges(2, 2, 3, protocol);
}

#[test]
fn three_ranks_exchange_packets() {
    exchanges(1, 3, 2, Protocol::SHIPPED);
}

#[test]
fn a_reader_that_sleeps_finds_the_packet() {
    let protocol = Protocol {
        sleeps: true,
        ..Protocol::SHIPPED
    };
    exchanges(3, 2, 3, protocol);
}

// Broken on purpose.

#[test]
#[should_panic]
fn broken_one_place_for_all_epochs_is_overwritten_early() {
    let protocol = Protocol {
        places: 1,
        ..Protocol::SHIPPED
    };
    exchanges(3, 2, 3, protocol);
}

#[test]
#[should_panic(expected = "raised its signal without the packets")]
fn broken_a_signal_that_is_raised_before_the_packet_wakes_a_reader_for_nothing() {
    let protocol = Protocol {
        sleeps: true,
        raises_first: true,
        ..Protocol::SHIPPED
    };
    exchanges(3, 2, 1, protocol);
}
