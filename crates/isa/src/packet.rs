//! Packets: small data that carries the flag which says that it is there.
//!
//! A packet begins with a cache line whose last word is a flag; the low half of a flag is the epoch that the packet belongs to.
//! Up to 56 bytes of payload lie before it in the same line and arrive with it, in one hop. More lies in the lines after that
//! one, in one piece: a reader that watched a flag in each of them would take each from the writer once more.

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

/// Payload as a packet of an epoch.
#[must_use]
pub fn pack(payload: &[u8], epoch: i32) -> Vec<u8> {
    let mut lines = vec![0; packet_lines(payload.len()) * LINE_BYTES];
    let flag = u64::from(epoch.cast_unsigned()).to_le_bytes();
    let at = if is_beside_flag(payload.len()) {
        0
    } else {
        LINE_BYTES
    };
    lines[at..][..payload.len()].copy_from_slice(payload);
    if let Some(word) = lines.get_mut(FLAGGED_BYTES..LINE_BYTES) {
        word.copy_from_slice(&flag);
    }
    lines
}

/// The payload of a packet, `bytes` of it.
#[must_use]
pub fn unpack(lines: &[u8], bytes: usize) -> Vec<u8> {
    let at = if is_beside_flag(bytes) { 0 } else { LINE_BYTES };
    lines.iter().skip(at).take(bytes).copied().collect()
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
