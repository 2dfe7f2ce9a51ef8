//! Which frames no address decides, and which kind each is.

use weir_wire::ip::Ipv6Header;
use weir_wire::parse::{Network, Parsed, Transport};

use crate::policy::FrameClass;

const ETHERTYPE_LLDP: u16 = 0x88cc;
const ETHERTYPE_SLOW: u16 = 0x8809;
const ETHERTYPE_EAPOL: u16 = 0x888e;
const ETHERTYPE_PTP: u16 = 0x88f7;
const ETHERTYPE_MAC_CONTROL: u16 = 0x8808;

/// The class of a frame that belongs to the link or to a group; `None` for the rest, which its
/// addresses decide. A protocol's EtherType counts whatever its destination address: 802.1X and
/// PTP also use unicast.
///
/// A packet with addresses is a group's when its destination is one, whatever its MAC address: who
/// answers a host's ARP question with a group's MAC changes nothing.
#[inline]
pub fn frame_class(parsed: &Parsed) -> Option<FrameClass> {
    match parsed.link.ethertype {
        ETHERTYPE_LLDP => return Some(FrameClass::Lldp),
        ETHERTYPE_SLOW => return Some(FrameClass::Lacp),
        ETHERTYPE_EAPOL => return Some(FrameClass::Eapol),
        ETHERTYPE_PTP => return Some(FrameClass::Ptp),
        ETHERTYPE_MAC_CONTROL => return Some(FrameClass::Pause),
        _ => {}
    }
    match parsed.network {
        Network::Arp => return Some(FrameClass::Arp),
        Network::Ipv6 if is_neighbour_discovery(parsed) => {
            return Some(FrameClass::NeighbourDiscovery);
        }
        Network::Ipv4 | Network::Ipv6 | Network::Grh => return group_class(&parsed.destination),
        Network::None | Network::Lrh => {}
    }
    let to = &parsed.link.destination.0;
    if to[0] & 1 == 0 {
        return None;
    }
    Some(match to {
        [0x01, 0x80, 0xc2, 0, 0, 0] => FrameClass::Stp,
        [0x01, 0x80, 0xc2, 0, 0, 1..=0x0f] => FrameClass::LinkLocal,
        [0xff, 0xff, 0xff, 0xff, 0xff, 0xff] => FrameClass::Broadcast,
        _ => FrameClass::Multicast,
    })
}

/// RFC 4861 s6.1, s7.1, s8.1: every message has hop limit 255, so that none comes from off the
/// link. Anything else of these types is a packet like others.
fn is_neighbour_discovery(parsed: &Parsed) -> bool {
    matches!(parsed.transport, Transport::Icmp { kind: 133..=137, code: 0 })
        && parsed.hop_limit == u8::MAX
        && usize::from(parsed.transport_offset - parsed.network_offset) == Ipv6Header::LEN
}

/// The class of what goes to this address, if that is a group's. A subnet's broadcast address
/// cannot be told from a host's: its prefix decides.
fn group_class(address: &[u8; 16]) -> Option<FrameClass> {
    match address {
        [0xff, ..] => Some(FrameClass::Multicast),
        [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, v4 @ ..] => match v4 {
            [0xff, 0xff, 0xff, 0xff] => Some(FrameClass::Broadcast),
            [0xe0..=0xef, ..] => Some(FrameClass::Multicast),
            _ => None,
        },
        _ => None,
    }
}

/// Whether a packet has addresses that policy knows.
#[inline]
pub fn has_address(parsed: &Parsed) -> bool {
    matches!(parsed.network, Network::Ipv4 | Network::Ipv6 | Network::Grh)
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use super::*;
    use weir_wire::parse::{LinkFields, MacAddress};

    fn class(destination: [u8; 6], ethertype: u16) -> Option<FrameClass> {
        frame_class(&Parsed {
            link: LinkFields {
                destination: MacAddress(destination),
                ethertype,
                ..LinkFields::default()
            },
            ..Parsed::default()
        })
    }

    #[test]
    fn what_a_bridge_never_forwards_is_told_by_address_and_by_protocol() {
        assert_eq!(class([0x01, 0x80, 0xc2, 0, 0, 0x0e], 0x88cc), Some(FrameClass::Lldp));
        assert_eq!(class([0x01, 0x80, 0xc2, 0, 0, 2], 0x8809), Some(FrameClass::Lacp));
        assert_eq!(class([0x01, 0x80, 0xc2, 0, 0, 1], 0x8808), Some(FrameClass::Pause));
        assert_eq!(class([0x01, 0x80, 0xc2, 0, 0, 0], 0x0026), Some(FrameClass::Stp));
        assert_eq!(class([0x01, 0x80, 0xc2, 0, 0, 5], 0x1234), Some(FrameClass::LinkLocal));
        assert_eq!(class([0x01, 0x1b, 0x19, 0, 0, 0], 0x88f7), Some(FrameClass::Ptp));
    }

    #[test]
    fn what_has_no_address_is_told_by_its_mac() {
        assert_eq!(class([2, 0, 0, 0, 0, 1], 0x88b5), None);
        assert_eq!(class([0xff; 6], 0x88b5), Some(FrameClass::Broadcast));
        assert_eq!(class([0x01, 0, 0x5e, 0, 0, 5], 0x88b5), Some(FrameClass::Multicast));
    }

    #[test]
    fn what_has_addresses_is_told_by_its_destination() {
        let to = |address: &str, network| {
            let destination = match address.parse().unwrap() {
                IpAddr::V4(v4) => v4.to_ipv6_mapped().octets(),
                IpAddr::V6(v6) => v6.octets(),
            };
            let link = LinkFields { destination: MacAddress([0xff; 6]), ..LinkFields::default() };
            frame_class(&Parsed { link, network, destination, ..Parsed::default() })
        };
        for address in ["10.0.0.255", "223.255.255.255", "240.0.0.1", "255.255.255.254"] {
            assert_eq!(to(address, Network::Ipv4), None, "{address}");
        }
        for address in ["224.0.0.0", "239.255.255.255"] {
            assert_eq!(to(address, Network::Ipv4), Some(FrameClass::Multicast), "{address}");
        }
        assert_eq!(to("255.255.255.255", Network::Ipv4), Some(FrameClass::Broadcast));
        for network in [Network::Ipv6, Network::Grh] {
            assert_eq!(to("ff02::1", network), Some(FrameClass::Multicast));
            assert_eq!(to("fe80::1", network), None);
            assert_eq!(to("fd00::ff", network), None);
        }
    }
}
