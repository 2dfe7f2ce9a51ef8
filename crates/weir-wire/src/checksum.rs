//! The internet checksum (RFC 1071) and its incremental update (RFC 1624).

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
