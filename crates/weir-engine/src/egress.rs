//! Host to wire: a packet for a peer is clamped, sealed and given its outer headers.
//!
//! | mode | own address | bump in the wire |
//! |---|---|---|
//! | ethernet | whole frame in EtherIP in ESP, from us to the peer | refused: nothing to borrow |
//! | tunnel | IP packet in ESP, from us to the peer | outer addresses and Ethernet header repeat the inner |
//! | transport | ESP behind the packet's own IP header | the same |

use std::borrow::Cow;
use std::net::{IpAddr, Ipv4Addr};
use std::ops::Range;

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
use crate::esp::{TRAILER_LEN, max_inner, next_header, wireguard};
use crate::limit::RateLimit;
use crate::neighbour::Neighbours;
use crate::offload::segment::Cut;
use crate::output::{Destination, Output, Part};
use crate::pipeline::{AgreedPeer, Rollout, TaggedPeer};
use crate::policy::{Encapsulation, Marking, Mode, OwnAddress, Peer};
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
            _ if peer.mode == Mode::WireGuard => Some(UdpEncapsulation::STANDARD),
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
        };
        peer.fit_text();
        peer
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
            mtu: self.mtu,
            inner_max: self.inner_max,
            counters: self.counters,
            rollout: self.rollout,
            limit: self.limit.take(),
            tag: self.tag.take(),
            agreed: self.agreed.take(),
        }
    }

    /// Takes over what a peer of the same identity had; false when its keys were agreed for
    /// something else.
    pub(crate) fn go_on(&mut self, before: Self) -> bool {
        // The port of a client is learned from it.
        let is_client = self.mode == Mode::WireGuard && before.mode == Mode::WireGuard;
        if is_client {
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

    /// Sends to this UDP port from `own_port`: where a client that speaks WireGuard is now.
    pub(crate) fn set_client_port(&mut self, own_port: u16, port: u16) {
        let udp = UdpEncapsulation {
            source: UdpSource::Fixed(own_port),
            destination_port: port,
            ..UdpEncapsulation::STANDARD
        };
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

    /// Seals `frame` in place: afterwards it is what the wire carries. `fields` are
    /// [`outer_fields`] of it.
    #[inline]
    pub(crate) fn seal(
        &mut self,
        frame: &mut Frame<'_>,
        parsed: &Parsed,
        fields: OuterFields,
    ) -> Result<(), DropReason> {
        let inner_len = frame.len();
        match self.mode {
            Mode::Ethernet => self.seal_ethernet(frame, fields)?,
            Mode::Tunnel | Mode::WireGuard => self.seal_tunnel(frame, parsed, fields)?,
            // Tagged, and never sealed.
            Mode::IcrcTag(_) => return Err(DropReason::NoAssociation),
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
        let has_own_outer = self.endpoint.is_some() || self.mode == Mode::WireGuard;
        if has_own_outer && self.outer.is_none() {
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
        frame.meta.offload = frame.meta.offload.shifted(link_len as u16);
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
        fields: OuterFields,
        output: &mut Output,
    ) -> Result<(), DropReason> {
        self.fit_segments(frame, parsed)?;
        let cut = Cut::new(frame, parsed).ok_or(DropReason::Malformed)??;
        let association = self.association.as_mut().ok_or(DropReason::NoAssociation)?;
        // Whole or not at all.
        let longest = association.packet_len(cut.longest());
        let each = LINK_LEN_MAX + OUTER_LEN_MAX + OVERHEAD_LEN_MAX + longest;
        if output.free() < cut.count() * each {
            return Err(DropReason::ArenaFull);
        }
        let to = Sending { association, counters: &mut self.counters, output };
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
                seal_around(&around, frame, fields, cut, to)
            }
            Mode::Tunnel | Mode::WireGuard => {
                let outer = self.outer.as_ref().map(|(_, outer)| outer);
                let around = match (outer, self.endpoint) {
                    (Some(outer), _) => Around::tunnel(outer, parsed)?,
                    (None, Some(_)) => return Err(DropReason::NeighbourUnknown),
                    (None, None) if self.mode == Mode::WireGuard => {
                        return Err(DropReason::NeighbourUnknown);
                    }
                    (None, None) => Around::borrowed_tunnel(self.udp, frame, parsed)?,
                };
                seal_around(&around, frame, fields, cut, to)
            }
            Mode::Transport => seal_inside(self.udp, frame, parsed, fields, cut, to),
            Mode::IcrcTag(_) => Err(DropReason::NoAssociation),
        }
    }

    /// Cuts a super-packet into IP packets for the kernel's ESP, each of which it gives one number;
    /// returns how many.
    pub(crate) fn cut_for_kernel(
        &self,
        frame: &mut Frame<'_>,
        parsed: &Parsed,
        place: u16,
        output: &mut Output,
    ) -> Result<u64, DropReason> {
        self.fit_segments(frame, parsed)?;
        let mut cut = Cut::new(frame, parsed).ok_or(DropReason::Malformed)??;
        // Whole or not at all.
        if output.free() < cut.count() * cut.longest() {
            return Err(DropReason::ArenaFull);
        }
        let count = cut.count() as u64;
        while let Some(segment) = cut.next_in_place(frame.bytes_mut()) {
            let packet = &frame.bytes()[segment][usize::from(parsed.network_offset)..];
            let range = output.allocate(packet.len()).ok_or(DropReason::ArenaFull)?;
            output.arena_mut(&range).copy_from_slice(packet);
            output.send(Destination::Kernel(place), Offload::default(), Part::Arena(range));
        }
        Ok(count)
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

/// Most bytes that may be sealed in outer IP packets of `mtu` bytes, by family: IPv4, IPv6.
fn inner_max(mode: Mode, mtu: u16, udp: Option<UdpEncapsulation>) -> [usize; 2] {
    let udp_len = if udp.is_some() { UDP_LEN } else { 0 };
    [20, 40].map(|ip| usize::from(mtu).saturating_sub(ip + udp_len)).map(|budget| match mode {
        Mode::WireGuard => wireguard::max_inner(budget),
        _ => max_inner(budget).unwrap_or(0),
    })
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

/// Where sealed segments go.
struct Sending<'a> {
    association: &'a mut SealingSa,
    counters: &'a mut PeerCounters,
    output: &'a mut Output,
}

impl Sending<'_> {
    /// Sends the ESP packet in `range` of the arena, which holds `inner_len` bytes of plaintext.
    #[inline]
    fn send(&mut self, range: Range<u32>, offload: Offload, inner_len: usize) {
        self.output.send(Destination::Wire, offload, Part::Arena(range));
        self.counters.sealed_packets += 1;
        self.counters.sealed_bytes += inner_len as u64;
    }
}

/// One pass over memory: each segment is sealed from the super-packet into the arena, behind outer
/// headers.
fn seal_around(
    around: &Around<'_>,
    frame: &mut Frame<'_>,
    fields: OuterFields,
    mut cut: Cut,
    mut to: Sending<'_>,
) -> Result<(), DropReason> {
    let Around { link, outer, inner_offset, next_header } = around;
    while let Some(segment) = cut.next_in_place(frame.bytes_mut()) {
        let segment = &frame.bytes()[segment];
        let inner = &segment[*inner_offset..];
        let head = link.len() + outer.len();
        let len = head + to.association.packet_len(inner.len());
        let range = to.output.allocate(len).ok_or(DropReason::ArenaFull)?;
        let packet = to.output.arena_mut(&range);
        to.association.seal_to(inner, *next_header, &mut packet[head..])?;
        packet[..link.len()].copy_from_slice(link);
        let checksum = outer.write(&mut packet[link.len()..], fields)?;
        let offload = Offload { checksum, joinable: outer.joinable(), ..Offload::default() };
        to.send(range, offload.shifted(link.len() as u16), segment.len());
    }
    Ok(())
}

/// The same with ESP behind each segment's own IP header.
fn seal_inside(
    udp: Option<UdpEncapsulation>,
    frame: &mut Frame<'_>,
    parsed: &Parsed,
    fields: OuterFields,
    mut cut: Cut,
    mut to: Sending<'_>,
) -> Result<(), DropReason> {
    let network_offset = usize::from(parsed.network_offset);
    while let Some(segment) = cut.next_in_place(frame.bytes_mut()) {
        let segment = &frame.bytes()[segment];
        let len_max = segment.len() + OVERHEAD_LEN_MAX;
        let range = to.output.allocate(len_max).ok_or(DropReason::ArenaFull)?;
        let packet = to.output.arena_mut(&range);
        let (len, checksum) =
            seal_transport_to(to.association, segment, network_offset, udp, fields.flow, packet)?;
        let offload = Offload { checksum, ..Offload::default() };
        to.send(range.start..range.start + len as u32, offload, segment.len());
    }
    Ok(())
}

/// What outer headers take over from the packet inside.
#[inline]
pub(crate) fn outer_fields(parsed: &Parsed, marking: &Marking) -> OuterFields {
    OuterFields {
        traffic_class: marking.traffic_class(parsed),
        pcp: marking.pcp(parsed),
        flow: flow(parsed),
    }
}

/// A number that packets of one flow share: of one queue pair, where they are RDMA's. Fragments go
/// by their addresses, since only the first has ports.
#[inline]
fn flow(parsed: &Parsed) -> u16 {
    use weir_wire::parse::Transport;
    let ports = match parsed.transport {
        _ if parsed.fragment.is_some() => 0,
        Transport::Tcp { source, destination, .. } | Transport::Udp { source, destination } => {
            u32::from(source) << 16 | u32::from(destination)
        }
        _ => 0,
    };
    // Senders of RoCE may use one source port for all their queue pairs.
    let queue_pair = parsed.rdma.map_or(0, |rdma| rdma.destination_qp.value());
    let ports = ports ^ queue_pair.wrapping_mul(0x85eb_ca6b);
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
