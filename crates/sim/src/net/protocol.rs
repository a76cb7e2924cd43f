//! What a link does: its rate, its latency, and the protocols it is used with.
//!
//! A library has several ways to send over one link. NCCL's LL sends a flag with every word: that is quick for a few bytes and
//! wastes half of the rate and more. Its Simple protocol sends whole chunks and then a flag. Which of them a message uses
//! follows from its size: the quickest, unless the description says up to which size one is used.

use crate::time::{Ps, Rate};

/// Protocols that one link may have.
pub const MAX_PROTOCOLS: usize = 4;

/// One way to send over a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Protocol {
    /// Bytes a second, in one direction.
    pub bandwidth: Rate,
    /// From the first byte leaving to the first byte arriving.
    pub latency_ps: Ps,
    /// The longest message that it is used for.
    pub up_to_bytes: u64,
}

/// What a wire does: its rate in one direction, and how long the first byte takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct LinkClass {
    /// Bytes a second, in one direction; of its quickest protocol, if it has some.
    pub bandwidth: Rate,
    /// From the first byte leaving to the first byte arriving; the least of its protocols, if it has some.
    pub latency_ps: Ps,
    /// In the order in which they are used, by the size of messages.
    protocols: [Option<Protocol>; MAX_PROTOCOLS],
}

impl LinkClass {
    /// A link that is used in one way.
    #[must_use]
    pub const fn new(bandwidth: Rate, latency_ps: Ps) -> LinkClass {
        LinkClass {
            bandwidth,
            latency_ps,
            protocols: [None; MAX_PROTOCOLS],
        }
    }

    /// A link with several protocols, at most [`MAX_PROTOCOLS`]. One that says `None` is used for as long as it is the
    /// quickest.
    #[must_use]
    pub fn with_protocols(mut all: Vec<(Rate, Ps, Option<u64>)>) -> LinkClass {
        all.sort_by_key(|(bandwidth, latency_ps, _)| (*latency_ps, std::cmp::Reverse(*bandwidth)));
        all.truncate(MAX_PROTOCOLS);
        let mut class = LinkClass::new(
            all.iter().map(|one| one.0).max().unwrap_or(Rate::UNLIMITED),
            all.first().map_or(0, |one| one.1),
        );
        let up_to = |(bandwidth, latency_ps, stated): &(Rate, Ps, Option<u64>)| {
            let others = all.iter().filter(|other| other.0 > *bandwidth);
            let overtaken = others.map(|other| last_ahead((*bandwidth, *latency_ps), (other.0, other.1)));
            stated.unwrap_or(overtaken.min().unwrap_or(u64::MAX))
        };
        for (place, one) in class.protocols.iter_mut().zip(&all) {
            *place = Some(Protocol {
                bandwidth: one.0,
                latency_ps: one.1,
                up_to_bytes: up_to(one),
            });
        }
        class
    }

    /// Its protocols; none if it is used in one way.
    pub fn protocols(&self) -> impl Iterator<Item = &Protocol> {
        self.protocols.iter().flatten()
    }

    /// The rate and the latency for a message of so many bytes.
    #[must_use]
    pub fn of(&self, bytes: u64) -> (Rate, Ps) {
        let fits = self.protocols().find(|protocol| bytes <= protocol.up_to_bytes);
        fits.or(self.protocols().last())
            .map_or((self.bandwidth, self.latency_ps), |protocol| {
                (protocol.bandwidth, protocol.latency_ps)
            })
    }

    /// The same link, other rates.
    #[must_use]
    pub fn map_bandwidth(self, change: impl Fn(Rate) -> Rate) -> LinkClass {
        self.map(|protocol| Protocol {
            bandwidth: change(protocol.bandwidth),
            ..protocol
        })
    }

    /// The same link, other latencies. Messages keep their protocols.
    #[must_use]
    pub fn map_latency(self, change: impl Fn(Ps) -> Ps) -> LinkClass {
        self.map(|protocol| Protocol {
            latency_ps: change(protocol.latency_ps),
            ..protocol
        })
    }

    fn map(mut self, change: impl Fn(Protocol) -> Protocol) -> LinkClass {
        let own = change(Protocol {
            bandwidth: self.bandwidth,
            latency_ps: self.latency_ps,
            up_to_bytes: u64::MAX,
        });
        (self.bandwidth, self.latency_ps) = (own.bandwidth, own.latency_ps);
        self.protocols = self.protocols.map(|one| one.map(&change));
        self
    }
}

/// The longest message that a protocol sends no later than another with a higher rate.
fn last_ahead((rate, latency_ps): (Rate, Ps), (other, other_ps): (Rate, Ps)) -> u64 {
    let time = |rate: Rate, latency_ps: Ps, bytes| latency_ps.saturating_add(rate.time_ps(bytes));
    let is_ahead = |bytes| time(rate, latency_ps, bytes) <= time(other, other_ps, bytes);
    let (mut least, mut most) = (0u64, 1u64 << 50);
    if is_ahead(most) {
        return u64::MAX;
    }
    while least < most {
        let middle = least + (most - least).div_ceil(2);
        if is_ahead(middle) {
            least = middle;
        } else {
            most = middle - 1;
        }
    }
    least
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gb(per_second: u64) -> Rate {
        Rate::per_second(per_second * 1_000_000_000).unwrap()
    }

    #[test]
    fn a_message_takes_the_quickest_protocol_for_its_size() {
        // 0.5 us and 50 GB/s against 3 us and 100 GB/s: equal at 2.5 us / (20 - 10 ps a byte) = 250,000 bytes.
        let class = LinkClass::with_protocols(vec![(gb(100), 3_000_000, None), (gb(50), 500_000, None)]);
        assert_eq!(class.of(0), (gb(50), 500_000));
        assert_eq!(class.of(250_000), (gb(50), 500_000));
        assert_eq!(class.of(250_001), (gb(100), 3_000_000));
        assert_eq!((class.bandwidth, class.latency_ps), (gb(100), 500_000));
    }

    #[test]
    fn one_of_three_that_is_never_the_quickest_is_never_used() {
        let class = LinkClass::with_protocols(vec![
            (gb(50), 500_000, None),
            (gb(51), 2_900_000, None),
            (gb(100), 3_000_000, None),
        ]);
        for bytes in [0, 1 << 10, 200_000, 250_000, 250_001, 1 << 20, 1 << 40] {
            let quickest = class
                .protocols()
                .min_by_key(|one| one.latency_ps + one.bandwidth.time_ps(bytes))
                .unwrap();
            assert_eq!(class.of(bytes).0, quickest.bandwidth, "{bytes}");
        }
    }

    #[test]
    fn a_stated_size_is_kept_and_halves_keep_the_choice() {
        let class =
            LinkClass::with_protocols(vec![(gb(100), 3_000_000, None), (gb(50), 500_000, Some(4096))]);
        assert_eq!(class.of(4096).1, 500_000);
        assert_eq!(class.of(4097).1, 3_000_000);
        let half = class.map_latency(|latency_ps| latency_ps / 2);
        assert_eq!(half.of(4096), (gb(50), 250_000));
        assert_eq!(half.of(4097), (gb(100), 1_500_000));
    }
}
