//! ARP and neighbour discovery with the hosts, where tunnels end at an own address. A host that
//! asks for a client is told the gateway's own MAC address (RFC 1027), so that clients look like
//! neighbours to it. A host that a packet is for, and that has not spoken yet, is asked for. IPv6
//! hosts need a route to clients.

use std::net::Ipv6Addr;

use weir_wire::arp::ArpPacket;
use weir_wire::ethernet::ethertype;
use weir_wire::frame::{Frame, Offload};
use weir_wire::ip::unmapped;
use weir_wire::parse::{MacAddress, Network, Parsed, Transport};

use crate::neighbour::solicitation_of;
use crate::output::{Destination, Output, Part};
use crate::policy::{Policy, Route};

const ETHERNET_LEN: usize = 14;

/// What became of an ARP packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Taken {
    /// It was for the gateway: who sent it is known by then.
    Heard,
    /// It asked for a client, and was answered.
    Answered,
}

/// Takes in an ARP packet of the host's that asks for a client's address or answers the gateway, or
/// a packet of neighbour discovery to the gateway; `None`: it is another. `masquerade` is what
/// clients are seen under.
#[cold]
pub(crate) fn take(
    policy: &Policy,
    masquerade: Option<[u8; 4]>,
    output: &mut Output,
    (frame, parsed): (&Frame<'_>, &Parsed),
) -> Option<Taken> {
    if parsed.link.vlan_count > 0 {
        return None;
    }
    let own = policy.own.as_ref()?.mac;
    let is_for_us = parsed.link.destination == own;
    if is_for_us || parsed.network != Network::Arp {
        return is_for_us.then_some(Taken::Heard);
    }
    let is_client = match policy.route_to(&parsed.destination) {
        Some(Route::Peer(peer)) => policy.peers[peer as usize].mode.is_client(),
        _ => false,
    };
    let is_masquerade = masquerade.is_some() && masquerade == unmapped(&parsed.destination);
    if !is_client && !is_masquerade {
        return None;
    }
    let bytes = frame.bytes().get(usize::from(parsed.network_offset)..)?;
    let answer = ArpPacket::answer(bytes, own)?;
    tell(output, parsed.link.source, own, (ethertype::ARP, &answer))?;
    Some(Taken::Answered)
}

/// Whether it is ARP, or a solicitation or an advertisement that no router forwarded (RFC 4861
/// s7.1).
#[inline]
pub(crate) fn speaks_of_neighbours(parsed: &Parsed) -> bool {
    let is_discovery = || parsed.network == Network::Ipv6 && parsed.hop_limit == 255;
    match parsed.transport {
        Transport::Icmp { kind: 135..=136, .. } => is_discovery(),
        _ => parsed.network == Network::Arp,
    }
}

/// Asks where `address` is, which a packet is for; whether there was anything to ask.
#[cold]
pub(crate) fn ask(policy: &Policy, output: &mut Output, address: &[u8; 16]) -> bool {
    let Some(own) = policy.own.as_ref().map(|own| own.mac) else { return false };
    let target = Ipv6Addr::from(*address);
    let told = match unmapped(address) {
        Some(target) => {
            let probe = ArpPacket::probe(own, target);
            tell(output, MacAddress::BROADCAST, own, (ethertype::ARP, &probe))
        }
        None if target.is_multicast() || target.is_unspecified() => return false,
        None => {
            let (to, packet) = solicitation_of(own, link_local(own), target);
            tell(output, to, own, (ethertype::IPV6, &packet))
        }
    };
    told.is_some()
}

/// The address that a MAC address makes on its link (RFC 4291, appendix A).
fn link_local(MacAddress([a, b, c, d, e, f]): MacAddress) -> Ipv6Addr {
    Ipv6Addr::from([0xfe, 0x80, 0, 0, 0, 0, 0, 0, a ^ 2, b, c, 0xff, 0xfe, d, e, f])
}

fn tell(
    output: &mut Output,
    to: MacAddress,
    own: MacAddress,
    (kind, packet): (u16, &[u8]),
) -> Option<()> {
    let range = output.allocate(ETHERNET_LEN + packet.len())?;
    let frame = output.arena_mut(&range);
    frame[..6].copy_from_slice(&to.0);
    frame[6..12].copy_from_slice(&own.0);
    frame[12..ETHERNET_LEN].copy_from_slice(&kind.to_be_bytes());
    frame[ETHERNET_LEN..].copy_from_slice(packet);
    output.send(Destination::Host, Offload::default(), Part::Arena(range));
    Some(())
}
