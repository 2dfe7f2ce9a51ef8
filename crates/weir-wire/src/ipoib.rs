//! IP over InfiniBand: what stands before a packet, and ARP between link addresses of 20 bytes
//! (RFC 4391; connected mode, RFC 4755, has the same header).
//!
//! ```text
//!   native:         LRH (GRH) BTH DETH | type 2, reserved 2 | IPv4, IPv6 or ARP | ICRC VCRC
//!   link type 242:  GRH, or 20 zeros and a link address | type 2, reserved 2 | IPv4, IPv6 or ARP
//! ```

use zerocopy::network_endian::U16;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::ethernet::ethertype;
use crate::grh::Grh;

/// The encapsulation header (RFC 4391 s6).
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned,
)]
#[repr(C)]
pub struct IpoibHeader {
    /// EtherType of what follows.
    pub ethertype: U16,
    /// Zero from who sends; who receives ignores it.
    pub reserved: U16,
}

/// A link address: flags, the queue pair in the low 24 bits of the first word, the port's GID
/// (RFC 4391 s9.1.1).
pub type LinkAddress = [u8; 20];

/// An ARP packet for IPv4 over InfiniBand (RFC 4391 s9.2).
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned,
)]
#[repr(C)]
pub struct IpoibArp {
    /// Hardware type: 32 for InfiniBand.
    pub hardware_kind: U16,
    /// Protocol type: the EtherType of IPv4.
    pub protocol_kind: U16,
    /// Bytes of a hardware address: 20.
    pub hardware_len: u8,
    /// Bytes of a protocol address: 4.
    pub protocol_len: u8,
    /// As [`crate::arp::ArpPacket`] has it.
    pub operation: U16,
    /// Sender's link address.
    pub sender: LinkAddress,
    /// Sender's IPv4 address.
    pub sender_ip: [u8; 4],
    /// Target's link address; zero in a request.
    pub target: LinkAddress,
    /// Target's IPv4 address.
    pub target_ip: [u8; 4],
}

const _: () = assert!(size_of::<IpoibHeader>() == IpoibHeader::LEN);
const _: () = assert!(size_of::<IpoibArp>() == 56);

impl IpoibHeader {
    /// Its length in bytes.
    pub const LEN: usize = 4;

    /// Where it stands in a packet of link type 242. tcpdump.org names this header alone; who
    /// writes such captures (Solaris), tcpdump and Wireshark have 40 bytes before it: the GRH that
    /// came with the packet, or 20 zeros and the link address that it is for. No type of what
    /// IPoIB carries begins as one of these.
    #[inline]
    pub fn offset_in(bytes: &[u8]) -> usize {
        match bytes {
            [0x00 | 0x60..=0x6f, ..] => Grh::LEN,
            _ => 0,
        }
    }
}

impl IpoibArp {
    /// Hardware type of InfiniBand.
    pub const INFINIBAND: u16 = 32;

    /// The packet that `bytes` begin with; none where they are too few.
    pub fn of(bytes: &[u8]) -> Option<Self> {
        Self::read_from_prefix(bytes).ok().map(|it| it.0)
    }

    /// Whether it speaks of IPv4 over InfiniBand; the address fields mean nothing otherwise.
    #[inline]
    pub fn is_ipv4_over_infiniband(&self) -> bool {
        self.hardware_kind.get() == Self::INFINIBAND
            && self.protocol_kind.get() == ethertype::IPV4
            && usize::from(self.hardware_len) == size_of::<LinkAddress>()
            && self.protocol_len == 4
    }
}

#[cfg(test)]
mod tests {
    use crate::frame::Link;
    use crate::ip::mapped;
    use crate::parse::{Fault, Network, Parsed, Transport, parse};

    /// UDP from 10.0.0.1 port 7 to 10.0.0.2 port 9, with nothing in it.
    const UDP: [u8; 28] = [
        0x45, 0, 0, 28, 0, 1, 0, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2, 0, 7, 0, 9, 0, 8, 0, 0,
    ];

    /// The three ways in which link type 242 begins.
    fn heads() -> [Vec<u8>; 3] {
        let for_whom = [&[0; 20][..], &[0, 0, 0, 0x48], &[0xfe; 16]].concat();
        let mut route = vec![0x60, 0, 0, 0, 0, 60, 0x1b, 64];
        route.extend([0xfe; 32]);
        [vec![], for_whom, route]
    }

    fn walk(bytes: &[u8]) -> Parsed {
        parse(bytes, Link::Ipoib, bytes.len() as u32)
    }

    #[test]
    fn the_header_stands_first_or_behind_what_says_for_whom_it_is() {
        for head in heads() {
            let bytes = [&head, &[8, 0, 0, 0][..], &UDP].concat();
            let parsed = walk(&bytes);
            assert_eq!(parsed.transport, Transport::Udp { source: 7, destination: 9 });
            assert_eq!(usize::from(parsed.network_offset), head.len() + 4);
            assert_eq!((parsed.link.ethertype, parsed.fault), (0x0800, None));
            for cut in 0..bytes.len() {
                let parsed = parse(&bytes[..cut], Link::Ipoib, bytes.len() as u32);
                assert_eq!(parsed.fault, Some(Fault::Truncated), "{cut} of {head:?}");
            }
        }
    }

    #[test]
    fn who_receives_ignores_the_reserved_bytes_and_no_other_type_is_looked_into() {
        assert_eq!(walk(&[&[8, 0, 0xab, 0xcd][..], &UDP].concat()).network, Network::Ipv4);
        for kind in [[0x80, 0x35], [0x81, 0], [0x89, 0x15], [0x88, 0x47]] {
            let parsed = walk(&[&kind[..], &[0, 0], &UDP].concat());
            assert_eq!((parsed.network, parsed.fault), (Network::None, None), "{kind:?}");
        }
    }

    #[test]
    fn arp_says_who_asks_for_whom() {
        let mut bytes = vec![8, 6, 0, 0, 0, 32, 8, 0, 20, 4, 0, 1];
        bytes.extend([&[1; 20][..], &[10, 0, 0, 1], &[0; 20], &[10, 0, 0, 2], &[0; 6]].concat());
        let parsed = walk(&bytes);
        assert_eq!(parsed.network, Network::Arp);
        assert_eq!(parsed.source, mapped([10, 0, 0, 1]));
        assert_eq!(parsed.destination, mapped([10, 0, 0, 2]));
        assert_eq!((parsed.end, parsed.fault), (60, None), "padding is none of it");
        // Ethernet's ARP is none of InfiniBand's.
        bytes[5] = 1;
        assert_eq!((walk(&bytes).network, walk(&bytes).source), (Network::Arp, [0; 16]));
        bytes.truncate(40);
        assert_eq!(walk(&bytes).fault, Some(Fault::Malformed));
    }
}
