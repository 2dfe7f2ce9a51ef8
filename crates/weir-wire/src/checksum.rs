//! The internet checksum (RFC 1071) and its incremental update (RFC 1624).

use crate::frame::PartialChecksum;

/// A ones-complement sum under way. Pieces of even length may be added in any order.
///
/// Sums are kept in the machine's byte order and turned at the end (RFC 1071 s2(B)).
#[derive(Clone, Copy, Debug, Default)]
pub struct Sum(u64);

impl Sum {
    /// The sum of nothing.
    #[inline]
    pub const fn new() -> Self {
        Self(0)
    }

    /// Adds `bytes`. An odd last byte counts as if a zero followed: only the last piece may be odd.
    #[inline]
    pub fn with(mut self, bytes: &[u8]) -> Self {
        // Eight independent accumulators of 32-bit words in 64-bit lanes: no carry can be lost
        // before 2^32 words, and the compiler turns the loop into vector additions.
        let mut lanes = [0u64; 8];
        let (blocks, rest) = bytes.as_chunks::<32>();
        for block in blocks {
            let (words, _) = block.as_chunks::<4>();
            for (lane, word) in lanes.iter_mut().zip(words) {
                *lane += u64::from(u32::from_ne_bytes(*word));
            }
        }
        let mut sum: u64 = lanes.iter().map(|lane| fold_to_32(*lane)).sum();
        let (words, tail) = rest.as_chunks::<4>();
        for word in words {
            sum += u64::from(u32::from_ne_bytes(*word));
        }
        let mut last = [0; 4];
        last[..tail.len()].copy_from_slice(tail);
        sum += u64::from(u32::from_ne_bytes(last));
        self.0 += fold_to_32(sum);
        self
    }

    /// Adds one 16-bit number.
    #[inline]
    pub fn with_u16(mut self, value: u16) -> Self {
        self.0 += u64::from(value.to_be());
        self
    }

    /// Adds one 32-bit number.
    #[inline]
    pub fn with_u32(mut self, value: u32) -> Self {
        self.0 += u64::from(value.to_be());
        self
    }

    /// The sum itself, not complemented: what a partial checksum's field holds.
    #[inline]
    pub fn folded(self) -> u16 {
        let mut sum = fold_to_32(self.0);
        sum = (sum & 0xffff) + (sum >> 16);
        sum = (sum & 0xffff) + (sum >> 16);
        u16::from_be(sum as u16)
    }

    /// The checksum: the complement of the sum.
    #[inline]
    pub fn checksum(self) -> u16 {
        !self.folded()
    }

    /// The checksum as UDP writes it: all ones instead of zero, since zero means none.
    #[inline]
    pub fn udp_checksum(self) -> u16 {
        match self.checksum() {
            0 => 0xffff,
            checksum => checksum,
        }
    }
}

#[inline]
fn fold_to_32(sum: u64) -> u64 {
    let once = (sum & 0xffff_ffff) + (sum >> 32);
    (once & 0xffff_ffff) + (once >> 32)
}

/// The sum of IPv4's pseudo header (RFC 9293 s3.1); `length` counts transport header and payload.
#[inline]
pub fn pseudo_header_v4(source: [u8; 4], destination: [u8; 4], protocol: u8, length: u16) -> Sum {
    Sum::new().with(&source).with(&destination).with_u16(u16::from(protocol)).with_u16(length)
}

/// The sum of IPv6's pseudo header (RFC 8200 s8.1).
#[inline]
pub fn pseudo_header_v6(
    source: &[u8; 16],
    destination: &[u8; 16],
    protocol: u8,
    length: u32,
) -> Sum {
    Sum::new().with(source).with(destination).with_u32(u32::from(protocol)).with_u32(length)
}

/// `checksum` after one 16-bit word it covers changed from `old` to `new` (RFC 1624 eqn. 3).
#[inline]
pub fn updated(checksum: u16, old: u16, new: u16) -> u16 {
    let mut sum = u32::from(!checksum) + u32::from(!old) + u32::from(new);
    sum = (sum & 0xffff) + (sum >> 16);
    sum = (sum & 0xffff) + (sum >> 16);
    !(sum as u16)
}

/// The checksum that belongs into `header` (an IPv4 header with options), whatever stands there.
#[inline]
pub fn ipv4_header(header: &[u8]) -> u16 {
    match header.split_at_checked(10) {
        Some((before, [_, _, behind @ ..])) => Sum::new().with(before).with(behind).checksum(),
        _ => 0,
    }
}

/// The checksum of a TCP segment or UDP datagram whose sender left it to an adapter
/// (`CHECKSUM_PARTIAL` in Linux): its field holds the sum of the pseudo header alone. The IP header
/// stands at `network` in `frame`; `None` for a fragment, and where IPv6 extensions follow.
///
/// One right checksum of 65,536 looks the same. To finish that one changes nothing.
#[inline]
pub fn unfinished(frame: &[u8], network: usize) -> Option<PartialChecksum> {
    let Leavable { place, sum, .. } = leavable(frame, network)?;
    let field = usize::from(place.field);
    let found = u16::from_be_bytes([frame[field], frame[field + 1]]);
    // UDP without a checksum, as RoCE is mostly.
    (found != 0 && found == sum).then_some(place)
}

/// What a sender may leave to its adapter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Leavable {
    /// Over IPv6.
    pub is_v6: bool,
    /// TCP or UDP.
    pub protocol: u8,
    /// Where the transport header begins, and its checksum stands.
    pub place: PartialChecksum,
    /// What stands there if it is left: the sum of the pseudo header.
    pub sum: u16,
    /// Where the packet ends by its IP header, which may be before or behind the frame's end.
    pub end: usize,
}

/// The checksum of a TCP segment or UDP datagram that its sender may leave to an adapter, whether
/// it did or not. Otherwise as [`unfinished`].
#[inline]
pub fn leavable(frame: &[u8], network: usize) -> Option<Leavable> {
    const MORE_FRAGMENTS_OR_OFFSET: u8 = 0x3f;
    let packet = frame.get(network..)?;
    let (header_len, protocol, length, addresses) = match packet.first()? >> 4 {
        4 => {
            let header_len = usize::from(packet[0] & 0xf) * 4;
            let header = packet.get(..header_len.max(20))?;
            if header[6] & MORE_FRAGMENTS_OR_OFFSET != 0 || header[7] != 0 {
                return None;
            }
            let length = usize::from(u16::from_be_bytes([header[2], header[3]]));
            (header_len, header[9], length.checked_sub(header_len)?, &header[12..20])
        }
        6 => {
            let header = packet.get(..40)?;
            let length = usize::from(u16::from_be_bytes([header[4], header[5]]));
            (40, header[6], length, &header[8..40])
        }
        _ => return None,
    };
    let field = header_len
        + match protocol {
            6 => 16,
            17 => 6,
            _ => return None,
        };
    packet.get(field..field + 2)?;
    let sum = Sum::new().with(addresses).with_u16(protocol.into()).with_u32(length as u32);
    let at = |within: usize| u16::try_from(network + within).ok();
    let place = PartialChecksum { start: at(header_len)?, field: at(field)? };
    let (is_v6, end) = (packet[0] >> 4 == 6, network + header_len + length);
    Some(Leavable { is_v6, protocol, place, sum: sum.folded(), end })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// RFC 1071's definition, word by word.
    fn plain(bytes: &[u8]) -> u16 {
        let mut sum = 0u64;
        for pair in bytes.chunks(2) {
            sum += u64::from(u16::from_be_bytes([pair[0], *pair.get(1).unwrap_or(&0)]));
        }
        while sum >> 16 != 0 {
            sum = (sum & 0xffff) + (sum >> 16);
        }
        !(sum as u16)
    }

    #[test]
    fn the_example_of_rfc_1071_sums_up() {
        let sum = Sum::new().with(&[0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7]);
        assert_eq!(sum.folded(), 0xddf2);
    }

    /// A packet of `protocol` whose checksum is left to an adapter.
    fn left_undone(network: usize, is_v6: bool, protocol: u8) -> (Vec<u8>, PartialChecksum) {
        let segment_len = if protocol == 6 { 20 } else { 8 } + 5;
        let mut frame = vec![2; network];
        match is_v6 {
            true => {
                frame.extend([0x60, 0, 0, 0, 0, segment_len, protocol, 64]);
                frame.extend([0x20; 16]);
                frame.extend([0x30; 16]);
            }
            false => {
                frame.extend([0x45, 0, 0, 20 + segment_len, 1, 2, 0x40, 0, 64, protocol, 0, 0]);
                frame.extend([192, 0, 2, 1, 10, 0, 0, 2]);
            }
        }
        let start = frame.len();
        frame.extend(1..=segment_len);
        let field = start + if protocol == 6 { 16 } else { 6 };
        let sum = match is_v6 {
            true => pseudo_header_v6(&[0x20; 16], &[0x30; 16], protocol, segment_len.into()),
            false => pseudo_header_v4([192, 0, 2, 1], [10, 0, 0, 2], protocol, segment_len.into()),
        };
        frame[field..field + 2].copy_from_slice(&sum.folded().to_be_bytes());
        (frame, PartialChecksum { start: start as u16, field: field as u16 })
    }

    #[test]
    fn what_holds_the_sum_of_the_pseudo_header_alone_is_unfinished() {
        for (network, is_v6, protocol) in
            [(14, false, 6), (14, false, 17), (14, true, 6), (18, true, 17), (0, false, 6)]
        {
            let (mut frame, place) = left_undone(network, is_v6, protocol);
            assert_eq!(unfinished(&frame, network), Some(place), "{network} {is_v6} {protocol}");
            let (start, field) = (usize::from(place.start), usize::from(place.field));
            let finished = Sum::new().with(&frame[start..]).udp_checksum();
            frame[field..field + 2].copy_from_slice(&finished.to_be_bytes());
            assert_eq!(unfinished(&frame, network), None, "finished");
            frame[field..field + 2].fill(0);
            assert_eq!(unfinished(&frame, network), None, "none");
        }
    }

    #[test]
    fn no_fragment_is_unfinished_and_no_header_is_read_beyond_its_end() {
        let (frame, _) = left_undone(14, false, 6);
        for (at, bits) in [(20, 0x20), (20, 1), (21, 1)] {
            let mut piece = frame.clone();
            piece[at] |= bits;
            assert_eq!(unfinished(&piece, 14), None, "{at} {bits}");
        }
        for len in 0..14 + 20 + 18 {
            assert_eq!(unfinished(&frame[..len], 14), None, "{len}");
        }
    }

    proptest! {
        #[test]
        fn the_fast_sum_equals_the_definition(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
            prop_assert_eq!(Sum::new().with(&bytes).checksum(), plain(&bytes));
        }

        #[test]
        fn pieces_sum_to_the_whole(
            bytes in prop::collection::vec(any::<u8>(), 0..300), cut in 0usize..150,
        ) {
            let cut = (cut * 2).min(bytes.len() & !1);
            let pieces = Sum::new().with(&bytes[..cut]).with(&bytes[cut..]);
            prop_assert_eq!(pieces.checksum(), plain(&bytes));
        }

        #[test]
        fn an_update_equals_a_new_sum(
            mut bytes in prop::collection::vec(any::<u8>(), 20..21), new in any::<u16>(),
            at in 0usize..10,
        ) {
            let at = at * 2;
            let old = u16::from_be_bytes([bytes[at], bytes[at + 1]]);
            let before = plain(&bytes);
            bytes[at..at + 2].copy_from_slice(&new.to_be_bytes());
            // Both zeros of ones-complement are one value; a header's sum is never all zeros.
            let canonical = |sum: u16| if sum == 0xffff { 0 } else { sum };
            prop_assert_eq!(canonical(updated(before, old, new)), canonical(plain(&bytes)));
        }
    }
}
