//! Packets: small data that carries the flag which says that it is there (the LL protocol of other libraries).
//!
//! A packet begins with a cache line whose last word is a flag; the low half of a flag is the epoch that the packet belongs to.
//! Up to 56 bytes of payload lie before it in the same line and arrive with it, in one hop. More lies in the lines after that
//! one, in one piece: a reader that watched a flag in each of them would take each from the writer once more.

use crate::{Epoch, Error, OwnSignal, Rank, Result, Shared, Signal, Signals, Span};

/// Bytes of a cache line.
pub const LINE_BYTES: usize = 64;
/// Words of a line, as packets lie in an `i64` buffer.
pub const LINE_WORDS: usize = LINE_BYTES / 8;
/// Bytes of payload beside a flag.
pub const FLAGGED_BYTES: usize = LINE_BYTES - 8;

/// Lines of a packet with `bytes` of payload.
#[must_use]
#[inline]
pub const fn packet_lines(bytes: usize) -> usize {
    match bytes {
        0 => 0,
        1..=FLAGGED_BYTES => 1,
        bytes => 1 + bytes.div_ceil(LINE_BYTES),
    }
}

/// Whether a payload of `bytes` lies beside its flag.
#[must_use]
#[inline]
pub const fn is_beside_flag(bytes: usize) -> bool {
    bytes <= FLAGGED_BYTES
}

/// The most bytes of payload in a packet of `lines`.
#[must_use]
#[inline]
pub const fn packet_payload(lines: usize) -> usize {
    match lines {
        0 => 0,
        1 => FLAGGED_BYTES,
        lines => (lines - 1) * LINE_BYTES,
    }
}

/// Where one rank puts packets for others: a few places of equal size in its window, used in turn by epoch.
///
/// A handle: copy it freely. The same handle [`on`](Packets::on) a peer is where that peer puts its own.
///
/// # Invariants
/// - **PKT-1 (one writer).** A place is written by the rank whose window it is in.
/// - **PKT-2 (flags stay flags).** Where the first line of a packet lies, nothing but first lines of packets ever lies.
/// - **PKT-3 (taken before overwritten).** A place is written for epoch `e` when every reader has taken the packet that was
///   there before. The program must see to that; a checker can see when it does not.
#[derive(Clone, Copy, Debug)]
pub struct Packets {
    /// The place of epoch 0.
    first: Shared<i64>,
    /// Words from one place to the next.
    apart: u64,
    /// How many there are: a power of two.
    places: u32,
    /// The signal that the writer raises to the epoch after its packet is put, for readers that have gone to sleep.
    raised: Signal,
}

impl Packets {
    /// `places` places of `words` words each, whose first begin `apart` words apart in `area`, the earliest at `start`.
    ///
    /// # Errors
    /// If the last does not lie inside `area`, the places are not a power of two, or area and signal are of different domains.
    #[track_caller]
    pub fn new(
        area: Shared<i64>,
        (start, words, apart): (usize, usize, usize),
        places: u32,
        raised: OwnSignal,
    ) -> Result<Packets> {
        let raised = raised.signal();
        if (area.me(), area.ranks()) != (raised.holder(), raised.ranks()) {
            return Err(Error::failed(format!(
                "packets of rank {} of {} and a signal of rank {} of {}; open both on one domain",
                area.me(),
                area.ranks(),
                raised.holder(),
                raised.ranks()
            )));
        }
        if !places.is_power_of_two() {
            return Err(Error::failed(format!(
                "{places} places for packets; they must be a power of two"
            )));
        }
        area.slice(start + (places as usize - 1) * apart..start + (places as usize - 1) * apart + words)?;
        Ok(Packets {
            first: area.slice(start..start + words)?,
            apart: apart as u64,
            places,
            raised,
        })
    }

    /// The same places in the window of another rank.
    ///
    /// # Errors
    /// [`ErrorKind::NoSuchRank`](crate::ErrorKind::NoSuchRank) if the domain is smaller.
    #[track_caller]
    #[inline(always)]
    pub fn on(&self, peer: Rank) -> Result<Packets> {
        Ok(Packets {
            first: self.first.on(peer)?,
            raised: self.raised.on(peer)?,
            ..*self
        })
    }

    /// The places that lie `words` further on in the same area. The caller knows that they do.
    #[must_use]
    #[inline(always)]
    pub fn further(&self, words: usize) -> Packets {
        Packets {
            first: self.first.shifted(words as u64),
            ..*self
        }
    }

    /// The place of an epoch.
    #[must_use]
    #[inline(always)]
    pub fn at(&self, epoch: Epoch) -> Shared<i64> {
        // Inside the area: `new` checked the last place.
        self.first
            .shifted(u64::from(epoch.place(self.places)) * self.apart)
    }

    /// Where the payload of an epoch's packet lies, for as many elements as `like` has: for platforms that step.
    #[must_use]
    pub fn payload(&self, epoch: Epoch, like: &Span) -> Span {
        let place = self.at(epoch).span();
        let beside = is_beside_flag(like.byte_len());
        Span {
            base: place.base + place.start * 8 + if beside { 0 } else { LINE_BYTES as u64 },
            dtype: like.dtype,
            start: 0,
            len: like.len,
            ..place
        }
    }

    /// The flag of an epoch's packet, as a signal: for platforms that step.
    #[must_use]
    pub fn flag(&self, epoch: Epoch) -> Signal {
        let place = self.at(epoch).span();
        let row = Signals {
            segment: place.segment,
            base: place.base + place.start * 8 + FLAGGED_BYTES as u64,
            stride: place.stride,
            count: 1,
            me: place.me,
            ranks: place.ranks,
        };
        row.first().moved(place.rank)
    }

    /// How many places there are.
    #[must_use]
    #[inline(always)]
    pub fn places(&self) -> u32 {
        self.places
    }

    /// The signal that is raised after a packet was put.
    #[must_use]
    #[inline(always)]
    pub fn raised(&self) -> Signal {
        self.raised
    }

    /// The rank that holds this handle.
    #[must_use]
    #[inline(always)]
    pub fn me(&self) -> Rank {
        self.first.me()
    }

    /// Members of the domain.
    #[must_use]
    #[inline(always)]
    pub fn ranks(&self) -> u32 {
        self.first.ranks()
    }

    /// The most bytes of payload in one packet.
    #[must_use]
    #[inline(always)]
    pub fn payload_bytes(&self) -> usize {
        packet_payload(self.first.len() / LINE_WORDS)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn the_most_that_lines_carry_fits_them_and_a_byte_more_does_not(lines in 0usize..100) {
            let most = packet_payload(lines);
            prop_assert!(packet_lines(most) <= lines);
            prop_assert!(packet_lines(most + 1) > lines);
        }
    }
}
