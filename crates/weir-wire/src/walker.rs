//! The walk over packets that come one after another, most of them of the same few flows.

use crate::frame::{Frame, Link, Meta};
use crate::parse::Parsed;
use crate::plain::HEAD;
use crate::walk;

/// Walks over packets one after another and remembers how the last one began: a plain packet that
/// begins alike is described by what was found then, and only its lengths, its transport header and
/// what lies behind are read.
///
/// It describes every packet as [`crate::parse::parse`] does.
#[derive(Debug, Default)]
pub struct Walker {
    parsed: Parsed,
    /// How the packet began that `parsed` describes; `None` when that was not plain, or `parsed`
    /// was changed since.
    head: Option<[u8; HEAD]>,
}

impl Walker {
    /// Walks over `frame`. Says whether it follows the packet before: of the same addresses,
    /// protocol, ports or SPI, traffic class and hop limit, both plain.
    #[inline]
    pub fn walk(&mut self, frame: &Frame<'_>) -> bool {
        let (bytes, meta) = (frame.bytes(), &frame.meta);
        let is_whole = meta.original_len as usize <= bytes.len();
        if let Some(head) = &self.head
            && meta.link == Link::Ethernet
            && is_whole
            && walk::follow(&mut self.parsed, head, bytes)
        {
            return true;
        }
        self.walk_anew(bytes, meta);
        false
    }

    // Apart, so that the way of most packets is short enough to stand in its caller.
    #[inline(never)]
    fn walk_anew(&mut self, bytes: &[u8], meta: &Meta) {
        let is_plain = walk::walk(&mut self.parsed, bytes, meta.link, meta.original_len);
        self.head = bytes.first_chunk().copied().filter(|_| is_plain);
    }

    /// The last packet's description.
    #[inline]
    pub fn parsed(&self) -> &Parsed {
        &self.parsed
    }

    /// The same, to change: no packet follows this one.
    #[inline]
    pub fn parsed_mut(&mut self) -> &mut Parsed {
        self.head = None;
        &mut self.parsed
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parse::parse;
    use crate::walk::tests::{FRAME, packet};
    use proptest::prelude::*;

    /// Walks over `bytes` of `on_wire` bytes on the wire.
    fn walk(walker: &mut Walker, bytes: &[u8], on_wire: u32) -> bool {
        let mut bytes = bytes.to_vec();
        let meta = Meta { original_len: on_wire, ..Meta::default() };
        let len = bytes.len();
        walker.walk(&Frame::new(&mut bytes, 0, len, meta))
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2000))]

        #[test]
        fn each_packet_is_described_as_if_it_came_alone(
            packets in prop::collection::vec((packet(), 0u32..80), 1..6),
            order in prop::collection::vec(any::<prop::sample::Index>(), 1..12),
        ) {
            let mut walker = Walker::default();
            for index in order {
                let (bytes, on_wire) = &packets[index.index(packets.len())];
                walk(&mut walker, bytes, *on_wire);
                prop_assert_eq!(*walker.parsed(), parse(bytes, Link::Ethernet, *on_wire));
            }
        }
    }

    #[test]
    fn what_follows_may_differ_in_length_number_checksums_and_esp_sequence() {
        for protocol in [17, 50] {
            let mut first = [FRAME.as_slice(), &[0; 4]].concat();
            first[23] = protocol;
            // Two bytes behind the UDP datagram, and two behind the packet: room to be longer.
            first[17] += 2;
            for place in 0..HEAD {
                let mut walker = Walker::default();
                assert!(!walk(&mut walker, &first, 0), "nothing came before");
                let mut next = first.clone();
                next[place] ^= 1;
                // 16 and 38, high bytes of lengths, would make them longer than the packet.
                let may_differ =
                    matches!(place, 17..=19 | 24 | 25 | 39..=41) || place == 38 && protocol == 50;
                assert_eq!(walk(&mut walker, &next, 0), may_differ, "{protocol}: byte {place}");
            }
        }
    }

    #[test]
    fn in_udp_an_association_is_followed_by_itself_alone() {
        // Behind the UDP header: SPI and sequence number, or IKE's marker; a keepalive ends there.
        let datagram = |spi: u32, sequence: u32, len: u16| {
            let mut bytes = FRAME;
            bytes[36..38].copy_from_slice(&4500u16.to_be_bytes());
            bytes[38..40].copy_from_slice(&len.to_be_bytes());
            bytes[42..46].copy_from_slice(&spi.to_be_bytes());
            bytes[46..50].copy_from_slice(&sequence.to_be_bytes());
            bytes
        };
        let packets = [
            (datagram(0x1000, 1, 26), false),
            (datagram(0x1000, 2, 26), true),
            (datagram(0x1001, 3, 26), false),
            (datagram(0, 4, 26), false),
            (datagram(0, 5, 26), true),
            (datagram(0xff00_0000, 0, 9), true),
            (datagram(0x1001, 6, 26), false),
        ];
        let mut walker = Walker::default();
        for (bytes, follows) in packets {
            assert_eq!(walk(&mut walker, &bytes, 0), follows, "{bytes:x?}");
            assert_eq!(*walker.parsed(), parse(&bytes, Link::Ethernet, 0));
        }
    }

    #[test]
    fn nothing_follows_a_changed_description() {
        let mut walker = Walker::default();
        walk(&mut walker, &FRAME, 0);
        assert!(walk(&mut walker, &FRAME, 0));
        walker.parsed_mut().traffic_class = 3;
        assert!(!walk(&mut walker, &FRAME, 0));
        assert_eq!(walker.parsed().traffic_class, 2);
    }

    #[test]
    fn nothing_follows_a_packet_that_is_not_plain() {
        let mut walker = Walker::default();
        let mut tagged = FRAME;
        tagged[12..14].copy_from_slice(&[0x81, 0]);
        for _ in 0..2 {
            assert!(!walk(&mut walker, &tagged, 0));
        }
    }
}
