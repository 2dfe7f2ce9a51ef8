//! Host to wire: a packet for a peer is clamped, sealed and given its outer headers.
//!
//! | mode | own address | bump in the wire |
//! |---|---|---|
//! | ethernet | whole frame in EtherIP in ESP, from us to the peer | refused: nothing to borrow |
//! | tunnel | IP packet in ESP, from us to the peer | outer addresses and Ethernet header repeat the inner |
//! | transport | ESP behind the packet's own IP header | the same |

use std::borrow::Cow;
use std::net::{IpAddr, Ipv4Addr};

use arrayvec::ArrayVec;

use weir_wire::frame::{Frame, Offload, SegmentKind, Time};
use weir_wire::parse::{MacAddress, Network, Parsed};

use crate::counters::PeerCounters;
use crate::esp::outer::{
    ETHERIP_LEN, OUTER_LEN_MAX, OuterFields, OuterHeader, OuterLink, UdpEncapsulation, UdpSource,
    prepend_etherip,
};
use crate::esp::seal::SealingSa;
use crate::esp::transport::{OVERHEAD_LEN_MAX, seal_transport, seal_transport_to};
use crate::esp::{esp_len, max_inner, next_header};
use crate::neighbour::Neighbours;
use crate::offload::segment::Cut;
use crate::output::{Destination, Output, Part};
use crate::pipeline::AgreedPeer;
use crate::pipeline::Rollout;
use crate::policy::{Encapsulation, Mode, OwnAddress, Peer};
use crate::verdict::DropReason;

/// Hop limit of outer packets.
const HOP_LIMIT: u8 = 64;
const UDP_LEN: usize = 8;
/// Ethernet with two tags.
pub(crate) const LINK_LEN_MAX: usize = 22;

/// The sealing side of one peer.
#[derive(Debug)]
pub(crate) struct SealingPeer {
    mode: Mode,
    udp: Option<UdpEncapsulation>,
    endpoint: Option<IpAddr>,
    pub(crate) association: Option<SealingSa>,
    /// A packet that wanted an association when there was none: source and destination.
    pub(crate) wanted: Option<[[u8; 16]; 2]>,
    outer: Option<(MacAddress, OuterHeader)>,
    /// Most bytes that ESP may carry, by outer family: IPv4, IPv6.
    inner_max: [usize; 2],
    pub(crate) counters: PeerCounters,
    /// Whether it may be sent plaintext, and what of it was.
    pub(crate) rollout: Rollout,
    /// What its keying needs, where keys are agreed.
    pub(crate) agreed: Option<Box<AgreedPeer>>,
}

impl SealingPeer {
    /// `counters` go on where the association's stood.
    pub(crate) fn new(
        peer: &Peer,
        association: Option<SealingSa>,
        wire_mtu: u16,
        counters: PeerCounters,
    ) -> Self {
        let udp = match peer.encapsulation {
            Encapsulation::Esp => None,
            Encapsulation::Udp => Some(UdpEncapsulation::STANDARD),
            Encapsulation::UdpPorts { source, destination } => Some(UdpEncapsulation {
                source: UdpSource::Fixed(source),
                destination_port: destination,
                ..UdpEncapsulation::STANDARD
            }),
        };
        let udp_len = if udp.is_some() { UDP_LEN } else { 0 };
        let room = |header: usize| {
            max_inner(usize::from(wire_mtu).saturating_sub(header + udp_len)).unwrap_or(0)
        };
        Self {
            mode: peer.mode,
            udp,
            endpoint: peer.endpoint,
            association,
            wanted: None,
            outer: None,
            inner_max: [room(20), room(40)],
            counters,
            rollout: Rollout::new(peer.sealing),
            agreed: peer.agreed.map(|it| Box::new(AgreedPeer::new(it, peer.endpoint))),
        }
    }

    /// Moves everything out, to [`SealingPeer::go_on`] under another policy.
    pub(crate) fn take(&mut self) -> Self {
        Self {
            mode: self.mode,
            udp: self.udp,
            endpoint: self.endpoint,
            association: self.association.take(),
            wanted: self.wanted.take(),
            outer: self.outer.take(),
            inner_max: self.inner_max,
            counters: self.counters,
            rollout: self.rollout,
            agreed: self.agreed.take(),
        }
    }

    /// Takes over what a peer of the same identity had; false when its keys were agreed for
    /// something else.
    pub(crate) fn go_on(&mut self, before: Self) -> bool {
        if self.mode != before.mode || self.udp != before.udp {
            return false;
        }
        self.association = before.association;
        self.counters = before.counters;
        self.agreed = before.agreed;
        true
    }

    pub(crate) fn endpoint(&self) -> Option<IpAddr> {
        self.endpoint
    }

    pub(crate) fn set_endpoint(&mut self, endpoint: IpAddr) {
        if self.endpoint != Some(endpoint) {
            self.endpoint = Some(endpoint);
            self.outer = None;
        }
    }

    pub(crate) fn outer_header(&self) -> Option<&OuterHeader> {
        self.outer.as_ref().map(|(_, header)| header)
    }

    pub(crate) fn udp(&self) -> Option<UdpEncapsulation> {
        self.udp
    }

    /// Whether there is an association to seal with, and it is to be used.
    #[inline]
    pub(crate) fn seals(&self) -> bool {
        self.association.is_some() && !self.rollout.is_clear()
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
            Mode::Tunnel => inner,
            Mode::Transport if parsed.network == Network::Ipv6 => inner + 40,
            Mode::Transport => inner + 20,
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

    /// Seals `frame` in place: afterwards it is what the wire carries.
    #[inline]
    pub(crate) fn seal(
        &mut self,
        frame: &mut Frame<'_>,
        parsed: &Parsed,
    ) -> Result<(), DropReason> {
        let inner_len = frame.len();
        let fields = OuterFields { traffic_class: parsed.traffic_class, flow: flow(parsed) };
        match self.mode {
            Mode::Ethernet => self.seal_ethernet(frame, fields)?,
            Mode::Tunnel => self.seal_tunnel(frame, parsed, fields)?,
            Mode::Transport => seal_transport(
                self.association.as_mut().ok_or(DropReason::NoAssociation)?,
                frame,
                usize::from(parsed.network_offset),
                self.udp,
                fields.flow,
            )?,
        }
        frame.meta.offload.segmentation = None;
        self.counters.sealed_packets += 1;
        self.counters.sealed_bytes += inner_len as u64;
        Ok(())
    }

    #[inline]
    fn seal_ethernet(
        &mut self,
        frame: &mut Frame<'_>,
        fields: OuterFields,
    ) -> Result<(), DropReason> {
        let association = self.association.as_mut().ok_or(DropReason::NoAssociation)?;
        let Some((_, outer)) = &self.outer else { return Err(DropReason::NeighbourUnknown) };
        prepend_etherip(frame)?;
        association.seal(frame, next_header::ETHERIP)?;
        Ok(outer.prepend(frame, fields)?)
    }

    fn seal_tunnel(
        &mut self,
        frame: &mut Frame<'_>,
        parsed: &Parsed,
        fields: OuterFields,
    ) -> Result<(), DropReason> {
        let protocol = match parsed.network {
            Network::Ipv4 => next_header::IPV4,
            Network::Ipv6 => next_header::IPV6,
            _ => return Err(DropReason::NoPolicy),
        };
        if self.endpoint.is_some() && self.outer.is_none() {
            return Err(DropReason::NeighbourUnknown);
        }
        let link_len = usize::from(parsed.network_offset);
        let mut link = [0; LINK_LEN_MAX];
        let link = link.get_mut(..link_len).ok_or(DropReason::Malformed)?;
        link.copy_from_slice(&frame.bytes()[..link_len]);
        frame.truncate(parsed.end as usize);
        frame.trim_front(link_len);
        self.association.as_mut().ok_or(DropReason::NoAssociation)?.seal(frame, protocol)?;
        if let Some((_, outer)) = &self.outer {
            return Ok(outer.prepend(frame, fields)?);
        }
        let (source, destination) = (address(&parsed.source), address(&parsed.destination));
        let borrowed = OuterHeader::new(None, source, destination, parsed.hop_limit, self.udp)?;
        borrowed.prepend(frame, fields)?;
        let bytes = frame.prepend(link_len).ok_or(DropReason::NoRoom)?;
        bytes[..link_len].copy_from_slice(link);
        Ok(())
    }
}

impl SealingPeer {
    /// Cuts a super-packet into segments that fit the wire and seals each into the arena.
    ///
    /// A TCP sender that never saw a clamped MSS is cut smaller than it asked for: its receiver
    /// cannot tell. A UDP sender's datagrams must stay as they are.
    pub(crate) fn seal_cut(
        &mut self,
        frame: &mut Frame<'_>,
        parsed: &Parsed,
        output: &mut Output,
    ) -> Result<(), DropReason> {
        self.fit_segments(frame, parsed)?;
        let cut = Cut::new(frame, parsed).ok_or(DropReason::Malformed)??;
        // Whole or not at all.
        let each = LINK_LEN_MAX + OUTER_LEN_MAX + OVERHEAD_LEN_MAX + esp_len(cut.longest());
        if output.free() < cut.count() * each {
            return Err(DropReason::ArenaFull);
        }
        match self.mode {
            Mode::Ethernet => {
                let (_, outer) = self.outer.as_ref().ok_or(DropReason::NeighbourUnknown)?;
                let around = Around {
                    link: ArrayVec::new(),
                    outer: Cow::Borrowed(outer),
                    inner_offset: 0,
                    next_header: next_header::ETHERIP,
                };
                let cut = cut.with_etherip(frame)?;
                seal_around(&around, &mut self.association, frame, parsed, cut, output)
            }
            Mode::Tunnel => {
                let outer = self.outer.as_ref().map(|(_, outer)| outer);
                let around = match (outer, self.endpoint) {
                    (Some(outer), _) => Around::tunnel(outer, parsed)?,
                    (None, Some(_)) => return Err(DropReason::NeighbourUnknown),
                    (None, None) => Around::borrowed_tunnel(self.udp, frame, parsed)?,
                };
                seal_around(&around, &mut self.association, frame, parsed, cut, output)
            }
            Mode::Transport => {
                seal_inside(self.udp, &mut self.association, frame, parsed, cut, output)
            }
        }
        .map(|sealed| self.counters.count_sealed(sealed))
    }

    fn fit_segments(&self, frame: &mut Frame<'_>, parsed: &Parsed) -> Result<(), DropReason> {
        let segmentation = frame.meta.offload.segmentation.as_mut().ok_or(DropReason::Malformed)?;
        let headers = parsed.payload_offset.saturating_sub(parsed.network_offset);
        let payload_max = self.ip_mtu(parsed).saturating_sub(headers);
        if segmentation.segment_len > payload_max {
            if segmentation.kind == SegmentKind::Udp || payload_max == 0 {
                return Err(DropReason::TooBig);
            }
            segmentation.segment_len = payload_max;
        }
        Ok(())
    }
}

/// What stands around each sealed segment of a super-packet.
struct Around<'a> {
    /// The link header before borrowed addresses; empty where `outer` has its own.
    link: ArrayVec<u8, LINK_LEN_MAX>,
    outer: Cow<'a, OuterHeader>,
    /// Where what is sealed begins in a segment.
    inner_offset: usize,
    next_header: u8,
}

impl<'a> Around<'a> {
    /// Tunnel mode behind headers of our own.
    fn tunnel(outer: &'a OuterHeader, parsed: &Parsed) -> Result<Self, DropReason> {
        let next_header = match parsed.network {
            Network::Ipv4 => next_header::IPV4,
            Network::Ipv6 => next_header::IPV6,
            _ => return Err(DropReason::NoPolicy),
        };
        let inner_offset = usize::from(parsed.network_offset);
        Ok(Self { link: ArrayVec::new(), outer: Cow::Borrowed(outer), inner_offset, next_header })
    }

    /// Tunnel mode behind the packet's own addresses.
    fn borrowed_tunnel(
        udp: Option<UdpEncapsulation>,
        frame: &Frame<'_>,
        parsed: &Parsed,
    ) -> Result<Around<'static>, DropReason> {
        let (source, destination) = (address(&parsed.source), address(&parsed.destination));
        let outer = OuterHeader::new(None, source, destination, parsed.hop_limit, udp)?;
        let Around { inner_offset, next_header, .. } = Around::tunnel(&outer, parsed)?;
        let link = &frame.bytes()[..inner_offset];
        let link = ArrayVec::try_from(link).map_err(|_| DropReason::Malformed)?;
        Ok(Around { link, outer: Cow::Owned(outer), inner_offset, next_header })
    }
}

/// ESP packets made, and the bytes of plaintext in them.
#[derive(Clone, Copy, Debug, Default)]
struct Sealed {
    packets: u64,
    bytes: u64,
}

impl PeerCounters {
    fn count_sealed(&mut self, sealed: Sealed) {
        self.sealed_packets += sealed.packets;
        self.sealed_bytes += sealed.bytes;
    }
}

/// One pass over memory: each segment is sealed from the super-packet into the arena, behind outer
/// headers.
fn seal_around(
    around: &Around<'_>,
    association: &mut Option<SealingSa>,
    frame: &mut Frame<'_>,
    parsed: &Parsed,
    mut cut: Cut,
    output: &mut Output,
) -> Result<Sealed, DropReason> {
    let association = association.as_mut().ok_or(DropReason::NoAssociation)?;
    let fields = OuterFields { traffic_class: parsed.traffic_class, flow: flow(parsed) };
    let Around { link, outer, inner_offset, next_header } = around;
    let mut sealed = Sealed::default();
    while let Some(segment) = cut.next_in_place(frame.bytes_mut()) {
        let segment = &frame.bytes()[segment];
        let inner = &segment[*inner_offset..];
        let head = link.len() + outer.len();
        let range = output.allocate(head + esp_len(inner.len())).ok_or(DropReason::ArenaFull)?;
        let packet = output.arena_mut(&range);
        association.seal_to(inner, *next_header, &mut packet[head..])?;
        packet[..link.len()].copy_from_slice(link);
        let checksum = outer.write(&mut packet[link.len()..], fields)?.map(|mut partial| {
            partial.start += link.len() as u16;
            partial.field += link.len() as u16;
            partial
        });
        let offload = Offload { checksum, ..Offload::default() };
        output.send(Destination::Wire, offload, Part::Arena(range));
        sealed.packets += 1;
        sealed.bytes += segment.len() as u64;
    }
    Ok(sealed)
}

/// The same with ESP behind each segment's own IP header.
fn seal_inside(
    udp: Option<UdpEncapsulation>,
    association: &mut Option<SealingSa>,
    frame: &mut Frame<'_>,
    parsed: &Parsed,
    mut cut: Cut,
    output: &mut Output,
) -> Result<Sealed, DropReason> {
    let association = association.as_mut().ok_or(DropReason::NoAssociation)?;
    let network_offset = usize::from(parsed.network_offset);
    let mut sealed = Sealed::default();
    while let Some(segment) = cut.next_in_place(frame.bytes_mut()) {
        let segment = &frame.bytes()[segment];
        let range =
            output.allocate(segment.len() + OVERHEAD_LEN_MAX).ok_or(DropReason::ArenaFull)?;
        let packet = output.arena_mut(&range);
        let (len, checksum) =
            seal_transport_to(association, segment, network_offset, udp, flow(parsed), packet)?;
        let offload = Offload { checksum, ..Offload::default() };
        let range = range.start..range.start + len as u32;
        output.send(Destination::Wire, offload, Part::Arena(range));
        sealed.packets += 1;
        sealed.bytes += segment.len() as u64;
    }
    Ok(sealed)
}

/// A number that packets of one flow share.
#[inline]
fn flow(parsed: &Parsed) -> u16 {
    use weir_wire::parse::Transport;
    let ports = match parsed.transport {
        Transport::Tcp { source, destination, .. } | Transport::Udp { source, destination } => {
            u32::from(source) << 16 | u32::from(destination)
        }
        _ => parsed.rdma.map_or(0, |rdma| rdma.destination_qp.value()),
    };
    let word = |bytes: &[u8; 16]| u32::from_be_bytes([bytes[12], bytes[13], bytes[14], bytes[15]]);
    let mixed = (ports ^ word(&parsed.source).rotate_left(7) ^ word(&parsed.destination))
        .wrapping_mul(0x9e37_79b1);
    (mixed >> 16) as u16
}

/// The address in `Parsed`'s 16 bytes.
pub(crate) fn address(bytes: &[u8; 16]) -> IpAddr {
    match weir_wire::ip::unmapped(bytes) {
        Some(v4) => IpAddr::V4(Ipv4Addr::from(v4)),
        None => IpAddr::from(*bytes),
    }
}
