//! Wire to host: an ESP packet is opened and checked against what its peer may send.

use weir_wire::frame::{Frame, Link, Offload};
use weir_wire::parse::{Parsed, Transport};
use weir_wire::walker::Walker;

use crate::classify::has_address;
use crate::esp::next_header;
use crate::esp::outer::{combine_ecn, strip_etherip, write_ecn};
use crate::esp::silent::silent_message;
use crate::esp::transport::open_transport;
use crate::peer::{Nearby, OpeningPeer, Sources};
use crate::policy::{Mode, Peer, Policy};
use crate::protect::Parts;
use crate::surroundings::{HostAddresses, Surroundings};
use crate::tunnel::path_mtu::ProbeMessage;
use crate::verdict::DropReason;

use super::seal::LINK_LEN_MAX;

const ESP_HEADER_LEN: usize = 8;
const UDP_HEADER_LEN: usize = 8;
const ETHERNET_LEN: usize = 14;
const ETHERTYPE_OFFSET_BACK: usize = 2;

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

/// An authentic packet.
pub(crate) struct Arrived {
    /// The index of the peer that it is from.
    pub(crate) peer: usize,
    pub(crate) inner: Inner,
}

/// Opens a packet by the association at `at`, and notes what that tells of its peer.
///
/// # Errors
/// Why it is dropped. [`DropReason::NeighbourUnknown`]: nobody knows where its host is.
#[inline]
pub(crate) fn open(
    parts: &mut Parts<'_>,
    surroundings: &mut Surroundings,
    at: usize,
    (frame, outer): (&mut Frame<'_>, &Parsed),
    inner: (&mut Walker, &mut Sources),
) -> Result<Arrived, DropReason> {
    let opening = parts.peers.openings.at_mut(at).ok_or(DropReason::UnknownSpi)?;
    let (peer, highest) = (opening.peer, opening.association.highest());
    let came_from = udp_source(frame, outer);
    let from = (outer, came_from);
    let held = opening.open(parts.policy, &surroundings.hosts, frame, from, inner)?;
    if opening.is_agreed {
        let is_newest = opening.association.highest() > highest;
        let neighbours = &mut surroundings.neighbours;
        let mut nearby = Nearby { policy: parts.policy, neighbours, now: parts.now };
        let from = (outer, came_from.map(|(_, port)| port));
        let moved = parts.peers.heard(at, from, is_newest, &mut nearby);
        parts.counters.peers_moved += u64::from(moved);
    }
    Ok(Arrived { peer, inner: held })
}

impl OpeningPeer {
    /// Opens `frame` in place: afterwards it is the frame for the host, which `inner` walks over.
    /// `outer` describes what it was; `sources` holds for `policy` alone.
    #[inline]
    fn open(
        &mut self,
        policy: &Policy,
        hosts: &HostAddresses,
        frame: &mut Frame<'_>,
        (outer, came_from): (&Parsed, Option<([u8; 16], u16)>),
        (inner, sources): (&mut Walker, &mut Sources),
    ) -> Result<Inner, DropReason> {
        let peer = policy.peers.get(self.peer).ok_or(DropReason::NoPolicy)?;
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
        if !peer.may_reach(parsed) {
            self.counters.denied_packets += 1;
            return Err(DropReason::PeerReach);
        }
        if peer.ends_here()
            && let Err(reason) = hosts.lead(frame, inner)
        {
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
