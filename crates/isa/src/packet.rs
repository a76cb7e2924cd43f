//! Packets: payload and flag in one cache line, so that small data arrives in one hop.
//!
//! A packet is 64 bytes: 56 of payload and a trailer whose low half is the epoch it belongs to. Whoever sees
//! the epoch in the trailer may read the payload beside it, without a second trip for the data.

/// Bytes of a packet: a cache line.
pub const PACKET_BYTES: usize = 64;
/// Bytes of payload in it.
pub const PAYLOAD_BYTES: usize = 56;
/// Words of a packet, as packets lie in an `i64` buffer.
pub const PACKET_WORDS: usize = PACKET_BYTES / 8;

/// Packets that `bytes` of payload take.
#[must_use]
#[inline]
pub const fn packets_for(bytes: usize) -> usize {
    // For a single packet, dividing takes as long as filling it.
    if bytes <= PAYLOAD_BYTES {
        return (bytes != 0) as usize;
    }
    bytes.div_ceil(PAYLOAD_BYTES)
}

/// Payload as packets of an epoch.
#[must_use]
pub fn pack(payload: &[u8], epoch: i32) -> Vec<u8> {
    let mut lines = Vec::with_capacity(packets_for(payload.len()) * PACKET_BYTES);
    for piece in payload.chunks(PAYLOAD_BYTES) {
        lines.extend_from_slice(piece);
        lines.resize(lines.len().next_multiple_of(PACKET_BYTES) - 8, 0);
        lines.extend_from_slice(&u64::from(epoch.cast_unsigned()).to_le_bytes());
    }
    lines
}

/// The first `bytes` of payload of packets.
#[must_use]
pub fn unpack(lines: &[u8], bytes: usize) -> Vec<u8> {
    let mut payload: Vec<u8> = lines
        .chunks(PACKET_BYTES)
        .flat_map(|line| &line[..PAYLOAD_BYTES.min(line.len())])
        .copied()
        .collect();
    payload.truncate(bytes);
    payload
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn what_is_packed_is_unpacked_and_every_line_carries_the_epoch(payload in prop::collection::vec(any::<u8>(), 0..400), epoch: i32) {
            let lines = pack(&payload, epoch);
            prop_assert_eq!(lines.len(), packets_for(payload.len()) * PACKET_BYTES);
            for line in lines.chunks(PACKET_BYTES) {
                prop_assert_eq!(&line[56..60], &epoch.to_le_bytes());
            }
            prop_assert_eq!(unpack(&lines, payload.len()), payload);
        }
    }
}
