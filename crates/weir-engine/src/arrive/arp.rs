//! ARP with the hosts, where tunnels end at an own address. A host that asks for a client is told
//! the gateway's own MAC address (RFC 1027), so that clients look like neighbours to it. A host
//! that a packet is for, and that has not spoken yet, is asked for. IPv6 hosts need a route to
//! clients, and must have spoken.

use weir_wire::arp::ArpPacket;
use weir_wire::ethernet::ethertype;
use weir_wire::frame::{Frame, Offload};
use weir_wire::ip::unmapped;
use weir_wire::parse::{MacAddress, Network, Parsed};

use crate::output::{Destination, Output, Part};
use crate::policy::{Policy, Route};

const ETHERNET_LEN: usize = 14;

/// What became of an ARP packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Taken {
    /// It was for the gateway.
    Heard,
    /// It asked for a client, and was answered.
    Answered,
}

/// Takes in an ARP packet of the host's that asks for a client's address or answers the gateway;
/// `None`: it is another. `masquerade` is what clients are seen under.
#[cold]
pub(crate) fn take(
    policy: &Policy,
    masquerade: Option<[u8; 4]>,
    output: &mut Output,
    (frame, parsed): (&Frame<'_>, &Parsed),
) -> Option<Taken> {
    if parsed.network != Network::Arp || parsed.link.vlan_count > 0 {
        return None;
    }
    let own = policy.own.as_ref()?.mac;
    if parsed.link.destination == own {
        return Some(Taken::Heard);
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
    tell(output, parsed.link.source, own, &answer)?;
    Some(Taken::Answered)
}

/// Asks where `address` is, which a packet is for; whether there was anything to ask.
#[cold]
pub(crate) fn ask(policy: &Policy, output: &mut Output, address: &[u8; 16]) -> bool {
    let own = policy.own.as_ref().map(|own| own.mac);
    let (Some(own), Some(target)) = (own, unmapped(address)) else { return false };
    tell(output, MacAddress::BROADCAST, own, &ArpPacket::probe(own, target)).is_some()
}

fn tell(output: &mut Output, to: MacAddress, own: MacAddress, arp: &[u8]) -> Option<()> {
    let range = output.allocate(ETHERNET_LEN + arp.len())?;
    let frame = output.arena_mut(&range);
    frame[..6].copy_from_slice(&to.0);
    frame[6..12].copy_from_slice(&own.0);
    frame[12..ETHERNET_LEN].copy_from_slice(&ethertype::ARP.to_be_bytes());
    frame[ETHERNET_LEN..].copy_from_slice(arp);
    output.send(Destination::Host, Offload::default(), Part::Arena(range));
    Some(())
}
