//! Address resolution for IPv4 over Ethernet (RFC 826).

use zerocopy::network_endian::U16;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::ethernet::ethertype;
use crate::parse::MacAddress;

/// An ARP packet for IPv4 over Ethernet.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned,
)]
#[repr(C)]
pub struct ArpPacket {
    /// Hardware type: 1 for Ethernet.
    pub hardware_kind: U16,
    /// Protocol type: the EtherType of IPv4.
    pub protocol_kind: U16,
    /// Bytes of a hardware address: 6.
    pub hardware_len: u8,
    /// Bytes of a protocol address: 4.
    pub protocol_len: u8,
    /// [`ArpPacket::REQUEST`] or [`ArpPacket::REPLY`].
    pub operation: U16,
    /// Sender's link address.
    pub sender_mac: MacAddress,
    /// Sender's IPv4 address.
    pub sender_ip: [u8; 4],
    /// Target's link address; zero in a request.
    pub target_mac: MacAddress,
    /// Target's IPv4 address.
    pub target_ip: [u8; 4],
}

const _: () = assert!(size_of::<ArpPacket>() == 28);

impl ArpPacket {
    /// Who has this address?
    pub const REQUEST: u16 = 1;
    /// I have it.
    pub const REPLY: u16 = 2;

    /// The packet that `bytes` begin with; none where they are too few.
    pub fn of(bytes: &[u8]) -> Option<Self> {
        Self::read_from_prefix(bytes).ok().map(|it| it.0)
    }

    /// Whether it speaks of IPv4 over Ethernet; the address fields mean nothing otherwise.
    #[inline]
    pub fn is_ipv4_over_ethernet(&self) -> bool {
        self.hardware_kind.get() == 1
            && self.protocol_kind.get() == ethertype::IPV4
            && self.hardware_len == 6
            && self.protocol_len == 4
    }

    /// The bytes of a request for `target` that tells no address of who asks (RFC 5227 s1.1).
    pub fn probe(mac: MacAddress, target: [u8; 4]) -> [u8; size_of::<ArpPacket>()] {
        let mut bytes = [0; size_of::<ArpPacket>()];
        let probe = Self {
            hardware_kind: U16::new(1),
            protocol_kind: U16::new(ethertype::IPV4),
            hardware_len: 6,
            protocol_len: 4,
            operation: U16::new(Self::REQUEST),
            sender_mac: mac,
            sender_ip: [0; 4],
            target_mac: MacAddress::default(),
            target_ip: target,
        };
        bytes.copy_from_slice(probe.as_bytes());
        bytes
    }

    /// The bytes of the answer that `mac` has what the request at the start of `bytes` asks for;
    /// `None`: no request for another's address stands there.
    pub fn answer(bytes: &[u8], mac: MacAddress) -> Option<[u8; size_of::<ArpPacket>()]> {
        let (asked, _) = Self::read_from_prefix(bytes).ok()?;
        let is_request = asked.is_ipv4_over_ethernet() && asked.operation.get() == Self::REQUEST;
        if !is_request || asked.sender_ip == asked.target_ip {
            return None;
        }
        let answer = Self {
            operation: U16::new(Self::REPLY),
            sender_mac: mac,
            sender_ip: asked.target_ip,
            target_mac: asked.sender_mac,
            target_ip: asked.sender_ip,
            ..asked
        };
        answer.as_bytes().try_into().ok()
    }
}
