//! ARP with the hosts, where tunnels end at an own address. A host that asks for a client is told
//! the gateway's own MAC address (RFC 1027), so that clients look like neighbours to it; a host
//! that
//! a packet is for, and that has not spoken yet, is asked for. IPv6 hosts need a route to clients,
//! and must have spoken.

use weir_wire::arp::ArpPacket;
use weir_wire::ethernet::ethertype;
use weir_wire::frame::{Frame, Offload};
use weir_wire::ip::unmapped;
use weir_wire::parse::{MacAddress, Network, Parsed};

use super::Engine;
use crate::output::{Destination, Part};
use crate::policy::{Mode, Way};
use crate::verdict::Verdict;

const ETHERNET_LEN: usize = 14;

impl Engine {
    /// Takes in an ARP packet of the host's that asks for a client's address or answers the
    /// gateway;
    /// `None`: it is another.
    #[cold]
    pub(super) fn take_arp(&mut self, frame: &Frame<'_>, parsed: &Parsed) -> Option<Verdict> {
        if parsed.network != Network::Arp || parsed.link.vlan_count > 0 {
            return None;
        }
        let own = self.policy.own.as_ref()?.mac;
        if parsed.link.destination == own {
            return Some(Verdict::Consumed);
        }
        let is_client = match self.policy.way_to(&parsed.destination) {
            Some(Way::Peer(peer)) => self.policy.peers[usize::from(peer)].mode == Mode::WireGuard,
            _ => false,
        };
        if !is_client && !self.is_masquerade(&parsed.destination) {
            return None;
        }
        let bytes = frame.bytes().get(usize::from(parsed.network_offset)..)?;
        let answer = ArpPacket::answer(bytes, own)?;
        self.tell_host_by_arp(parsed.link.source, own, &answer)?;
        Some(Verdict::Consumed)
    }

    /// Asks where `address` is, which a packet is for.
    #[cold]
    pub(super) fn ask_for_host(&mut self, address: &[u8; 16]) {
        let own = self.policy.own.as_ref().map(|own| own.mac);
        let (Some(own), Some(target)) = (own, unmapped(address)) else { return };
        if self.answers.take(self.now) {
            self.tell_host_by_arp(MacAddress::BROADCAST, own, &ArpPacket::probe(own, target));
        }
    }

    fn tell_host_by_arp(&mut self, to: MacAddress, own: MacAddress, arp: &[u8]) -> Option<()> {
        let range = self.output.allocate(ETHERNET_LEN + arp.len())?;
        let frame = self.output.arena_mut(&range);
        frame[..6].copy_from_slice(&to.0);
        frame[6..12].copy_from_slice(&own.0);
        frame[12..ETHERNET_LEN].copy_from_slice(&ethertype::ARP.to_be_bytes());
        frame[ETHERNET_LEN..].copy_from_slice(arp);
        self.output.send(Destination::Host, Offload::default(), Part::Arena(range));
        self.counters.own_sent += 1;
        Some(())
    }
}
