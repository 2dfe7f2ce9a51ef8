//! Wire to host: an ESP packet is opened and checked against what its peer may send.

use std::collections::BTreeMap;

use weir_wire::frame::{Frame, Link, Offload};
use weir_wire::parse::{MacAddress, Network, Parsed, Transport};
use weir_wire::walker::Walker;

use crate::classify::has_address;
use crate::counters::PeerCounters;
use crate::egress::LINK_LEN_MAX;
use crate::esp::next_header;
use crate::esp::open::OpeningSa;
use crate::esp::outer::{combine_ecn, strip_etherip, write_ecn};
use crate::esp::silent::silent_message;
use crate::esp::transport::open_transport;
use crate::policy::{Mode, Peer, Policy};
use crate::tunnel::path_mtu::ProbeMessage;
use crate::verdict::DropReason;

const ESP_HEADER_LEN: usize = 8;
const UDP_HEADER_LEN: usize = 8;
const ETHERNET_LEN: usize = 14;
const ETHERTYPE_OFFSET_BACK: usize = 2;

/// The opening side of one peer.
#[derive(Debug)]
pub(crate) struct OpeningPeer {
    /// Index of the peer in the policy.
    pub(crate) peer: usize,
    pub(crate) association: OpeningSa,
    /// ESP in UDP: address and port that the last authentic packet came from.
    pub(crate) came_from: Option<([u8; 16], u16)>,
    pub(crate) counters: PeerCounters,
    /// Whether its key was agreed by a handshake.
    pub(crate) is_agreed: bool,
    /// Whether its first packet confirms that handshake.
    pub(crate) pending: bool,
}

/// What an authentic packet held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Inner {
    /// A packet for the host.
    Packet {
        /// Whether it follows the one opened before: [`Walker::walk`]'s answer.
        follows: bool,
        /// Whether the outer packet's CE mark was written into it.
        congestion_combined: bool,
    },
    /// Nothing: it hid when traffic flows, gave a sign of life, or is about the path's width.
    Nothing(Option<ProbeMessage>),
}

impl OpeningPeer {
    /// An association that opened nothing yet; its peer is set by who takes it in.
    pub(crate) fn new(association: OpeningSa) -> Self {
        Self {
            peer: 0,
            association,
            came_from: None,
            counters: PeerCounters::default(),
            is_agreed: false,
            pending: false,
        }
    }

    /// One whose key was agreed.
    pub(crate) fn agreed(association: OpeningSa) -> Self {
        Self { is_agreed: true, ..Self::new(association) }
    }

    /// Opens `frame` in place: afterwards it is the frame for the host, which `inner` walks over.
    /// `outer` describes what it was; `sources` holds for `policy` alone.
    #[inline]
    pub(crate) fn open(
        &mut self,
        policy: &Policy,
        hosts: &HostAddresses,
        frame: &mut Frame<'_>,
        outer: &Parsed,
        (inner, sources): (&mut Walker, &mut Sources),
    ) -> Result<Inner, DropReason> {
        let peer = &policy.peers[self.peer];
        let came_from = udp_source(frame, outer);
        if outer.fragment.is_some() {
            return Err(DropReason::Fragment);
        }
        if let Some(dummy) = self.decapsulate(peer, frame, outer)? {
            return Ok(dummy);
        }
        if came_from.is_some() {
            self.came_from = came_from;
        }
        // The length on the wire is that of what was inside; ESP proved it whole.
        frame.meta.original_len = frame.len() as u32;
        // ESP proved that nobody changed it on the way, not that its sender had summed right: a
        // wrong inner checksum must stay wrong, so it is verified before segments are gathered.
        frame.meta.offload = Offload::default();
        frame.meta.link = Link::Ethernet;
        let follows = inner.walk(frame);
        let parsed = inner.parsed();
        if parsed.fault.is_some() && !has_address(parsed) {
            return Err(DropReason::Malformed);
        }
        if !sources.are_of(policy, self.peer, parsed) {
            let said = silent(peer, frame, parsed);
            self.counters.refused_packets += u64::from(said.is_none());
            return said.ok_or(DropReason::SelectorMismatch);
        }
        let ends_here = match peer.mode {
            Mode::Tunnel => peer.endpoint.is_some(),
            mode => mode == Mode::WireGuard,
        };
        if ends_here && let Err(reason) = hosts.lead(frame, inner) {
            return silent(peer, frame, inner.parsed()).ok_or(reason);
        }
        let congestion_combined = carry_congestion(peer, frame, outer.traffic_class, inner)?;
        self.counters.opened_packets += 1;
        self.counters.opened_bytes += frame.len() as u64;
        self.counters.last_opened = frame.meta.time;
        Ok(Inner::Packet { follows, congestion_combined })
    }

    /// Takes the packet out of its ESP packet; what it held instead of one.
    #[inline]
    fn decapsulate(
        &mut self,
        peer: &Peer,
        frame: &mut Frame<'_>,
        outer: &Parsed,
    ) -> Result<Option<Inner>, DropReason> {
        let dummy = |frame: &Frame<'_>, at: usize| {
            let payload = frame.bytes().get(at..).unwrap_or_default();
            Ok(Some(Inner::Nothing(ProbeMessage::parse(payload))))
        };
        if peer.mode == Mode::Transport {
            let network_offset = usize::from(outer.network_offset);
            let opened = open_transport(&mut self.association, frame, network_offset)?;
            return match opened.is_dummy() {
                true => dummy(frame, usize::from(outer.transport_offset)),
                false => Ok(None),
            };
        }
        let mut link = [0; LINK_LEN_MAX];
        let link = match (peer.mode, peer.endpoint) {
            (Mode::Tunnel, Some(_)) | (Mode::WireGuard, _) => &mut link[..ETHERNET_LEN],
            // Between addresses of the gateways' own, tags are the wire's and not the host's.
            (Mode::Tunnel, None) => {
                link.get_mut(..usize::from(outer.network_offset)).ok_or(DropReason::Malformed)?
            }
            _ => &mut [],
        };
        if !link.is_empty() {
            link.copy_from_slice(&frame.bytes()[..link.len()]);
        }
        cut_to_sealed(frame, outer);
        let ethertype: u16 = match (self.association.open(frame)?.next_header, peer.mode) {
            (next_header::DUMMY, _) => return dummy(frame, 0),
            (next_header::ETHERIP, Mode::Ethernet) if strip_etherip(frame) => return Ok(None),
            (next_header::IPV4, Mode::Tunnel | Mode::WireGuard) => 0x0800,
            (next_header::IPV6, Mode::Tunnel | Mode::WireGuard) => 0x86dd,
            _ => return Err(DropReason::EspTrailer),
        };
        let ethertype_offset = link.len() - ETHERTYPE_OFFSET_BACK;
        link[ethertype_offset..].copy_from_slice(&ethertype.to_be_bytes());
        let packet = frame.prepend(link.len()).ok_or(DropReason::NoRoom)?;
        packet[..link.len()].copy_from_slice(link);
        Ok(None)
    }
}

/// Cuts everything but the sealed packet off, link padding included.
fn cut_to_sealed(frame: &mut Frame<'_>, outer: &Parsed) {
    let header_len = match outer.transport {
        Transport::Esp { .. } => ESP_HEADER_LEN,
        _ => 0,
    };
    frame.truncate(outer.end as usize);
    frame.trim_front(usize::from(outer.payload_offset) - header_len);
}

/// Address and port that a sealed packet in UDP came from.
#[inline]
fn udp_source(frame: &Frame<'_>, outer: &Parsed) -> Option<([u8; 16], u16)> {
    if let Transport::Udp { source, .. } = outer.transport {
        return Some((outer.source, source));
    }
    let Transport::Esp { in_udp: true, .. } = outer.transport else { return None };
    let udp = usize::from(outer.payload_offset).checked_sub(ESP_HEADER_LEN + UDP_HEADER_LEN)?;
    let port = frame.bytes().get(udp..)?.first_chunk()?;
    Some((outer.source, u16::from_be_bytes(*port)))
}

/// What an authentic packet that no host may get says to the gateway itself; `None`: nothing.
#[cold]
fn silent(peer: &Peer, frame: &Frame<'_>, parsed: &Parsed) -> Option<Inner> {
    if peer.mode != Mode::Tunnel {
        return None;
    }
    silent_in(frame, parsed).map(Inner::Nothing)
}

/// The same of a packet that the kernel opened.
#[cold]
pub(crate) fn silent_in(frame: &Frame<'_>, parsed: &Parsed) -> Option<Option<ProbeMessage>> {
    let packet = usize::from(parsed.network_offset)..parsed.end as usize;
    let message = silent_message(frame.bytes().get(packet)?)?;
    Some(ProbeMessage::parse(message))
}

/// Whom opened packets may come from, under one policy: from behind the peer that sealed them, and
/// from behind no other that has a longer prefix. Packets to there would go to that one.
#[derive(Debug, Default)]
pub(crate) struct Sources {
    /// The last peer, and an address that it may send from: most packets are of the same few flows.
    last: Option<(usize, [u8; 16])>,
}

impl Sources {
    /// Whether the packet comes from behind the peer of this index.
    #[inline]
    pub(crate) fn are_of(&mut self, policy: &Policy, peer: usize, inner: &Parsed) -> bool {
        if !has_address(inner) {
            return policy.peers[peer].everything;
        }
        if self.last == Some((peer, inner.source)) {
            return true;
        }
        let may_send = policy.may_send(peer, &inner.source);
        if may_send {
            self.last = Some((peer, inner.source));
        }
        may_send
    }
}

/// RFC 6040: a CE mark set on the way must reach the inner packet, or no CNP will answer it.
#[inline]
fn carry_congestion(
    peer: &Peer,
    frame: &mut Frame<'_>,
    outer_traffic_class: u8,
    inner: &mut Walker,
) -> Result<bool, DropReason> {
    let parsed = inner.parsed();
    if peer.mode == Mode::Transport || !has_address(parsed) {
        return Ok(false);
    }
    let combined = combine_ecn(parsed.traffic_class, outer_traffic_class)
        .ok_or(DropReason::CongestionUnheard)?;
    if combined == parsed.traffic_class & 3 {
        return Ok(false);
    }
    write_ecn(&mut frame.bytes_mut()[usize::from(parsed.network_offset)..], combined);
    let traffic_class = parsed.traffic_class & !3 | combined;
    inner.parsed_mut().traffic_class = traffic_class;
    Ok(true)
}

/// Hosts behind the host port, by the source addresses of what they send. Needed only where ESP
/// tunnels end at an own address: the outer Ethernet header then leads to us and not to the host.
#[derive(Debug, Default)]
pub(crate) struct HostAddresses {
    known: BTreeMap<[u8; 16], MacAddress>,
}

/// Hosts remembered; a further one is not, and packets to it are dropped as `neighbour_unknown`.
pub(crate) const HOSTS_MAX: usize = 4096;

impl HostAddresses {
    /// Remembers where `parsed`, seen on the host port, came from; true when that is news.
    pub(crate) fn learn(&mut self, parsed: &Parsed) -> bool {
        // A host that only listens says who it is by ARP.
        let speaks = matches!(parsed.network, Network::Arp | Network::Ipv4 | Network::Ipv6);
        speaks && parsed.source != [0; 16] && self.note(parsed.source, parsed.link.source)
    }

    /// Remembers where `address` is; true when that is news.
    pub(crate) fn note(&mut self, address: [u8; 16], mac: MacAddress) -> bool {
        let room = self.known.len() < HOSTS_MAX;
        match self.known.get_mut(&address) {
            Some(known) => std::mem::replace(known, mac) != mac,
            None if room => self.known.insert(address, mac).is_none(),
            None => false,
        }
    }

    /// Sends the frame to the host that its packet is for.
    pub(crate) fn lead(&self, frame: &mut Frame<'_>, inner: &mut Walker) -> Result<(), DropReason> {
        let to = &inner.parsed().destination;
        let mac = self.find(to).ok_or(DropReason::NeighbourUnknown)?;
        frame.bytes_mut()[..6].copy_from_slice(&mac.0);
        inner.parsed_mut().link.destination = mac;
        Ok(())
    }

    fn find(&self, address: &[u8; 16]) -> Option<MacAddress> {
        self.known.get(address).copied()
    }
}
