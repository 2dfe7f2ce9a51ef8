//! Link headers: Ethernet II, VLAN tags (IEEE 802.1Q, 802.1ad) and Linux cooked captures.

use zerocopy::network_endian::U16;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::parse::MacAddress;

/// EtherTypes (IEEE registry).
pub mod ethertype {
    /// IPv4.
    pub const IPV4: u16 = 0x0800;
    /// ARP.
    pub const ARP: u16 = 0x0806;
    /// Transparent Ethernet bridging: a whole frame inside GRE or GENEVE.
    pub const BRIDGED_ETHERNET: u16 = 0x6558;
    /// IEEE 802.1Q customer VLAN tag.
    pub const VLAN: u16 = 0x8100;
    /// IPv6.
    pub const IPV6: u16 = 0x86dd;
    /// MAC control: pause and priority flow control.
    pub const MAC_CONTROL: u16 = 0x8808;
    /// Slow protocols: LACP.
    pub const SLOW_PROTOCOLS: u16 = 0x8809;
    /// IEEE 802.1X authentication.
    pub const EAPOL: u16 = 0x888e;
    /// IEEE 802.1ad service VLAN tag.
    pub const SERVICE_VLAN: u16 = 0x88a8;
    /// IEEE 802.1AB link layer discovery (LLDP).
    pub const LLDP: u16 = 0x88cc;
    /// IEEE 1588 precision time protocol over Ethernet.
    pub const PTP: u16 = 0x88f7;
    /// RoCE v1.
    pub const ROCE_V1: u16 = 0x8915;
    /// The service VLAN tag of equipment older than 802.1ad.
    pub const OLD_SERVICE_VLAN: u16 = 0x9100;

    /// Whether a VLAN tag follows.
    #[inline]
    pub const fn is_vlan(value: u16) -> bool {
        matches!(value, VLAN | SERVICE_VLAN | OLD_SERVICE_VLAN)
    }

    /// Whether the field is an 802.3 length rather than an EtherType.
    #[inline]
    pub const fn is_length(value: u16) -> bool {
        value < 0x0600
    }
}

/// Where the IP header begins in a frame that has nothing but VLAN tags before it.
#[inline]
pub fn ip_offset(frame: &[u8]) -> Option<usize> {
    let mut at = 12;
    loop {
        let kind = u16::from_be_bytes([*frame.get(at)?, *frame.get(at + 1)?]);
        match kind {
            ethertype::IPV4 | ethertype::IPV6 => return Some(at + 2),
            _ if ethertype::is_vlan(kind) => at += 4,
            _ => return None,
        }
    }
}

/// An Ethernet header.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned,
)]
#[repr(C)]
pub struct EthernetHeader {
    /// Destination address.
    pub destination: MacAddress,
    /// Source address.
    pub source: MacAddress,
    /// EtherType, or the length of an 802.3 frame.
    pub ethertype: U16,
}

/// A VLAN tag, behind the EtherType that announces it.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned,
)]
#[repr(C)]
pub struct VlanTag {
    /// Priority (bits 15-13), drop eligible (12), VLAN identifier (11-0).
    pub tci: U16,
    /// EtherType of what follows.
    pub ethertype: U16,
}

/// A Linux cooked header, version 1 (libpcap LINKTYPE_LINUX_SLL).
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned,
)]
#[repr(C)]
pub struct CookedHeader {
    /// To us, broadcast, multicast, to others, sent by us (0-4).
    pub packet_kind: U16,
    /// ARPHRD number of the device.
    pub device_kind: U16,
    /// Bytes of the address that are valid.
    pub address_len: U16,
    /// Sender's link address, padded with zeros.
    pub address: [u8; 8],
    /// EtherType.
    pub ethertype: U16,
}

/// A Linux cooked header, version 2 (libpcap LINKTYPE_LINUX_SLL2).
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned,
)]
#[repr(C)]
pub struct CookedHeader2 {
    /// EtherType.
    pub ethertype: U16,
    /// Reserved.
    pub reserved: U16,
    /// Interface index at the capturing machine.
    pub interface_index: [U16; 2],
    /// ARPHRD number of the device.
    pub device_kind: U16,
    /// As in version 1.
    pub packet_kind: u8,
    /// Bytes of the address that are valid.
    pub address_len: u8,
    /// Sender's link address, padded with zeros.
    pub address: [u8; 8],
}

const _: () = assert!(size_of::<EthernetHeader>() == 14);
const _: () = assert!(size_of::<VlanTag>() == 4);
const _: () = assert!(size_of::<CookedHeader>() == 16);
const _: () = assert!(size_of::<CookedHeader2>() == 20);
