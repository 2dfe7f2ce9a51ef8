//! Which frames no address decides, and which kind each is.

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
    if parsed.network == Network::Arp {
        return Some(FrameClass::Arp);
    }
    if let (Network::Ipv6, Transport::Icmp { kind: 133..=137, .. }) =
        (parsed.network, parsed.transport)
    {
        return Some(FrameClass::NeighbourDiscovery);
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

/// Whether a packet has addresses that policy knows.
#[inline]
pub fn has_address(parsed: &Parsed) -> bool {
    matches!(parsed.network, Network::Ipv4 | Network::Ipv6 | Network::Grh)
}

#[cfg(test)]
mod tests {
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
    fn unicast_is_left_to_its_addresses() {
        assert_eq!(class([2, 0, 0, 0, 0, 1], 0x0800), None);
        assert_eq!(class([0xff; 6], 0x0800), Some(FrameClass::Broadcast));
        assert_eq!(class([0x01, 0, 0x5e, 0, 0, 5], 0x0800), Some(FrameClass::Multicast));
    }
}
