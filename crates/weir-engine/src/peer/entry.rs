//! One peer: what seals to it, its outer headers, and what it may send and be sent.

use std::net::IpAddr;

use weir_wire::frame::Time;
use weir_wire::parse::{MacAddress, Network, Parsed};

use super::agreed::AgreedPeer;
use super::limit::RateLimit;
use super::rollout::Rollout;
use super::tags::TaggedPeer;
use crate::counters::PeerCounters;
use crate::esp::outer::{ETHERIP_LEN, OuterHeader, OuterLink, UdpEncapsulation, UdpSource};
use crate::esp::seal::SealingSa;
use crate::esp::{TRAILER_LEN, max_inner, wireguard};
use crate::neighbour::Neighbours;
use crate::policy::{self, Encapsulation, Mode, OwnAddress};

/// Hop limit of outer packets.
pub(crate) const HOP_LIMIT: u8 = 64;
const UDP_LEN: usize = 8;

/// What is known of one peer where packets are sealed to it.
#[derive(Debug)]
pub(crate) struct PeerEntry {
    pub(crate) mode: Mode,
    pub(crate) udp: Option<UdpEncapsulation>,
    endpoint: Option<IpAddr>,
    pub(crate) association: Option<SealingSa>,
    /// A packet that wanted an association when there was none: source and destination.
    pub(crate) wanted: Option<[[u8; 16]; 2]>,
    pub(crate) outer: Option<(MacAddress, OuterHeader)>,
    /// The largest outer IP packet: as the wire has it, or what the path carries of it.
    mtu: u16,
    /// Most bytes that ESP may carry, by outer family: IPv4, IPv6.
    inner_max: [usize; 2],
    pub(crate) counters: PeerCounters,
    /// Whether it may be sent plaintext, and what of it was.
    pub(crate) rollout: Rollout,
    /// How much it may send and be sent.
    pub(crate) limit: Option<Box<RateLimit>>,
    /// What its tags need, where packets carry them instead of being sealed.
    pub(crate) tag: Option<Box<TaggedPeer>>,
    /// What its keying needs, where keys are agreed.
    pub(crate) agreed: Option<Box<AgreedPeer>>,
    port: Port,
}

/// Whether the UDP port that a peer's packets come from is where packets to it go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Port {
    /// It is: of a client that speaks WireGuard, from any port of its own.
    Client,
    /// It is: 4500, unless a translator changes it.
    Translated,
    /// It is not: packets go to the port that the policy says, or come without UDP.
    Fixed,
}

impl PeerEntry {
    /// `counters` go on where the association's stood.
    pub(crate) fn new(
        peer: &policy::Peer,
        association: Option<SealingSa>,
        wire_mtu: u16,
        counters: PeerCounters,
    ) -> Self {
        let udp = match peer.encapsulation {
            // Its port is not known before it was heard.
            _ if peer.mode == Mode::WireGuard => {
                Some(UdpEncapsulation { destination_port: 0, ..UdpEncapsulation::STANDARD })
            }
            Encapsulation::Esp => None,
            Encapsulation::Udp => Some(UdpEncapsulation::STANDARD),
            Encapsulation::UdpSpread => {
                Some(UdpEncapsulation { source: UdpSource::Flow, ..UdpEncapsulation::STANDARD })
            }
            Encapsulation::UdpPorts { source, destination } => Some(UdpEncapsulation {
                source: UdpSource::Fixed(source),
                destination_port: destination,
                ..UdpEncapsulation::STANDARD
            }),
        };
        let is_tagged = matches!(peer.mode, Mode::IcrcTag(_));
        let port = match (peer.mode, peer.encapsulation) {
            (Mode::WireGuard, _) => Port::Client,
            (_, Encapsulation::Udp) if peer.agreed.is_some() => Port::Translated,
            _ => Port::Fixed,
        };
        let mut peer = Self {
            mode: peer.mode,
            udp,
            endpoint: peer.endpoint,
            association,
            wanted: None,
            outer: None,
            mtu: wire_mtu,
            inner_max: inner_max(peer.mode, wire_mtu, udp),
            counters,
            rollout: Rollout::new(peer.sealing, is_tagged),
            limit: peer.rate_limit.map(|it| Box::new(RateLimit::new(it))),
            tag: match (peer.mode, peer.agreed) {
                (Mode::IcrcTag(terms), Some(_)) => {
                    Some(Box::new(TaggedPeer::agreed(terms.keyed_by)))
                }
                _ => None,
            },
            agreed: peer.agreed.map(|it| Box::new(AgreedPeer::new(it, peer.endpoint))),
            port,
        };
        peer.fit_text();
        peer
    }

    /// Takes over what a peer of the same identity had; false when its keys were agreed for
    /// something else.
    pub(crate) fn go_on(&mut self, before: Self) -> bool {
        let is_learned = self.port != Port::Fixed && self.port == before.port;
        if is_learned {
            self.udp = before.udp;
        }
        if let (Some(limit), Some(before)) = (&mut self.limit, &before.limit) {
            limit.go_on(before);
        }
        if !self.mode.has_keys_of(before.mode) || self.udp != before.udp {
            return false;
        }
        self.association = before.association;
        self.counters = before.counters;
        self.agreed = before.agreed;
        self.set_mtu(self.mtu.min(before.mtu));
        self.tag = before.tag;
        true
    }

    /// Lets outer IP packets have so many bytes.
    pub(crate) fn set_mtu(&mut self, mtu: u16) {
        self.mtu = mtu;
        self.inner_max = inner_max(self.mode, mtu, self.udp);
        self.fit_text();
    }

    /// Seals with `association` from now on.
    pub(crate) fn seal_with(&mut self, association: SealingSa) {
        self.association = Some(association);
        self.fit_text();
    }

    /// Tells the association how much text packets may have on the path.
    fn fit_text(&mut self) {
        let text_max = match (self.mode, self.endpoint) {
            // Behind the packet's own IP header, which may have options.
            (Mode::Transport, _) => 0,
            (_, Some(IpAddr::V4(_))) => self.inner_max[0] + TRAILER_LEN,
            (_, Some(IpAddr::V6(_)) | None) => self.inner_max[1] + TRAILER_LEN,
        };
        if let Some(association) = &mut self.association {
            association.set_text_max(text_max);
        }
    }

    pub(crate) fn endpoint(&self) -> Option<IpAddr> {
        self.endpoint
    }

    pub(crate) fn set_endpoint(&mut self, endpoint: IpAddr) {
        if self.endpoint != Some(endpoint) {
            self.endpoint = Some(endpoint);
            self.outer = None;
            self.fit_text();
        }
    }

    /// Whether it speaks WireGuard.
    pub(crate) fn is_client(&self) -> bool {
        self.port == Port::Client
    }

    /// Whether a packet from UDP port `port` says that it has another than it had.
    #[inline]
    pub(super) fn is_at_another(&self, port: Option<u16>) -> bool {
        match (self.port, port, self.udp) {
            (Port::Fixed, ..) | (_, None, _) | (.., None) => false,
            (_, Some(port), Some(udp)) => udp.destination_port != port,
        }
    }

    /// Sends to UDP port `port`, where it was heard at; to a client from `keying_port`.
    pub(super) fn set_port(&mut self, port: u16, keying_port: Option<u16>) {
        let Some(mut udp) = self.udp else { return };
        match (self.port, keying_port) {
            (Port::Fixed, _) | (Port::Client, None) => return,
            (Port::Client, Some(own)) => udp.source = UdpSource::Fixed(own),
            (Port::Translated, _) => {}
        }
        udp.destination_port = port;
        if self.udp.replace(udp) != Some(udp) {
            self.outer = None;
        }
    }

    pub(crate) fn outer_header(&self) -> Option<&OuterHeader> {
        self.outer.as_ref().map(|(_, header)| header)
    }

    /// Where its packets go on the wire.
    pub(crate) fn hop(&self) -> Option<MacAddress> {
        self.outer.as_ref().map(|(mac, _)| *mac)
    }

    pub(crate) fn udp(&self) -> Option<UdpEncapsulation> {
        self.udp
    }

    /// Whether there is an association to seal with, and it is to be used.
    #[inline]
    pub(crate) fn seals(&self) -> bool {
        self.association.is_some() && !self.rollout.is_clear()
    }

    /// Whether packets to it are sealed, or tagged, at present.
    pub(crate) fn protects(&self) -> bool {
        match &self.tag {
            Some(tagged) => tagged.can_tag() && !self.rollout.is_off(),
            None => self.seals(),
        }
    }

    /// Writes the outer headers anew when the next hop's MAC address is new.
    pub(crate) fn refresh(&mut self, own: Option<&OwnAddress>, hops: &Neighbours, now: Time) {
        let (Some(own), Some(endpoint)) = (own, self.endpoint) else { return };
        let Some(mac) = hops.mac_for(endpoint, now) else {
            self.outer = None;
            return;
        };
        if self.outer.as_ref().is_some_and(|(known, _)| *known == mac) {
            return;
        }
        let Some(source) = own.source_for(endpoint) else { return };
        let link = OuterLink { destination: mac, source: own.mac, vlan_tci: own.vlan };
        self.outer = OuterHeader::new(Some(link), source, endpoint, HOP_LIMIT, self.udp)
            .ok()
            .map(|header| (mac, header));
    }

    /// The largest inner IP packet behind a link header of `link_len` bytes that fits the wire.
    pub(crate) fn ip_mtu(&self, parsed: &Parsed) -> u16 {
        let outer_is_v6 = match self.endpoint {
            Some(endpoint) if self.mode != Mode::Transport => endpoint.is_ipv6(),
            _ => parsed.network == Network::Ipv6,
        };
        let inner = self.inner_max[usize::from(outer_is_v6)];
        let mtu = match self.mode {
            Mode::Ethernet => {
                inner.saturating_sub(ETHERIP_LEN + usize::from(parsed.network_offset))
            }
            Mode::Tunnel | Mode::WireGuard => inner,
            Mode::Transport if parsed.network == Network::Ipv6 => inner + 40,
            Mode::Transport => inner + 20,
            Mode::Device { mtu } => usize::from(mtu),
            // Nothing is added: what a host may send fits.
            Mode::IcrcTag(_) => usize::from(u16::MAX),
        };
        mtu.min(usize::from(u16::MAX)) as u16
    }

    /// Whether `frame` fits the wire once sealed.
    pub(crate) fn fits(&self, parsed: &Parsed, frame_len: usize) -> bool {
        let network_len = match self.mode {
            Mode::Ethernet => frame_len,
            _ => parsed.end as usize,
        }
        .saturating_sub(usize::from(parsed.network_offset));
        network_len <= usize::from(self.ip_mtu(parsed))
    }
}

/// Most bytes that may be sealed in outer IP packets of `mtu` bytes, by family: IPv4, IPv6.
fn inner_max(mode: Mode, mtu: u16, udp: Option<UdpEncapsulation>) -> [usize; 2] {
    let udp_len = if udp.is_some() { UDP_LEN } else { 0 };
    [20, 40].map(|ip| usize::from(mtu).saturating_sub(ip + udp_len)).map(|budget| match mode {
        Mode::WireGuard => wireguard::max_inner(budget),
        _ => max_inner(budget).unwrap_or(0),
    })
}
