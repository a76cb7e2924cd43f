//! Packets: small data that carries the flag which says that it is there.
//!
//! A packet begins with five cache lines whose last words are flags; the low half of a flag is the epoch that the packet
//! belongs to. Up to 280 bytes of payload lie in these, 56 in each, and arrive with their flags, in one hop. More lies in the
//! lines after them, in one piece, and only the first line has a flag: a reader that watches many lines while they are being
//! written takes each of them from the writer once more.

/// Bytes of a cache line.
pub const LINE_BYTES: usize = 64;
/// Words of a line, as packets lie in an `i64` buffer.
pub const LINE_WORDS: usize = LINE_BYTES / 8;
/// Bytes of payload beside a flag.
pub const FLAGGED_BYTES: usize = LINE_BYTES - 8;
/// Lines that may have flags.
pub const FLAGGED_LINES: usize = 5;

/// Lines of a packet with `bytes` of payload.
#[must_use]
#[inline]
pub const fn packet_lines(bytes: usize) -> usize {
    // For a single line, dividing takes as long as filling it.
    if bytes <= FLAGGED_BYTES {
        return (bytes != 0) as usize;
    }
    if is_flagged(bytes) {
        bytes.div_ceil(FLAGGED_BYTES)
    } else {
        FLAGGED_LINES + bytes.div_ceil(LINE_BYTES)
    }
}

/// Whether every line of a packet with `bytes` of payload has its flag.
#[must_use]
#[inline]
pub const fn is_flagged(bytes: usize) -> bool {
    bytes <= FLAGGED_LINES * FLAGGED_BYTES
}

/// The most bytes of payload in a packet of `lines`.
#[must_use]
#[inline]
pub const fn packet_payload(lines: usize) -> usize {
    const FLAGGED: usize = FLAGGED_LINES * FLAGGED_BYTES;
    match lines {
        0..=FLAGGED_LINES => lines * FLAGGED_BYTES,
        lines if (lines - FLAGGED_LINES) * LINE_BYTES <= FLAGGED => FLAGGED,
        lines => (lines - FLAGGED_LINES) * LINE_BYTES,
    }
}

/// Payload as a packet of an epoch.
#[must_use]
pub fn pack(payload: &[u8], epoch: i32) -> Vec<u8> {
    let mut lines = vec![0; packet_lines(payload.len()) * LINE_BYTES];
    let flag = u64::from(epoch.cast_unsigned()).to_le_bytes();
    if is_flagged(payload.len()) {
        for (line, piece) in lines.chunks_mut(LINE_BYTES).zip(payload.chunks(FLAGGED_BYTES)) {
            line[..piece.len()].copy_from_slice(piece);
            line[FLAGGED_BYTES..].copy_from_slice(&flag);
        }
    } else {
        lines[FLAGGED_BYTES..LINE_BYTES].copy_from_slice(&flag);
        lines[FLAGGED_LINES * LINE_BYTES..][..payload.len()].copy_from_slice(payload);
    }
    lines
}

/// The payload of a packet, `bytes` of it.
#[must_use]
pub fn unpack(lines: &[u8], bytes: usize) -> Vec<u8> {
    if !is_flagged(bytes) {
        let payload = lines.iter().skip(FLAGGED_LINES * LINE_BYTES);
        return payload.take(bytes).copied().collect();
    }
    let payload = lines
        .chunks(LINE_BYTES)
        .flat_map(|line| line.iter().take(FLAGGED_BYTES));
    payload.take(bytes).copied().collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn what_is_packed_is_unpacked_and_the_first_line_carries_the_epoch(payload in prop::collection::vec(any::<u8>(), 0..700), epoch: i32) {
            let lines = pack(&payload, epoch);
            prop_assert_eq!(lines.len(), packet_lines(payload.len()) * LINE_BYTES);
            if let Some(line) = lines.get(..LINE_BYTES) {
                prop_assert_eq!(&line[56..60], &epoch.to_le_bytes());
            }
            prop_assert_eq!(unpack(&lines, payload.len()), payload);
        }

        #[test]
        fn the_most_that_lines_carry_fits_them_and_a_byte_more_does_not(lines in 0usize..100) {
            let most = packet_payload(lines);
            prop_assert!(packet_lines(most) <= lines);
            prop_assert!(packet_lines(most + 1) > lines);
        }
    }
}
