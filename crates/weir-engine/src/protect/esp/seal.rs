//! Sealing in place, and a super-packet segment by segment.
//!
//! | mode | own address | bump in the wire |
//! |---|---|---|
//! | ethernet | whole frame in EtherIP in ESP, from us to the peer | refused: nothing to borrow |
//! | tunnel | IP packet in ESP, from us to the peer | outer addresses and Ethernet header repeat the inner |
//! | transport | ESP behind the packet's own IP header | the same |

use std::borrow::Cow;
use std::ops::Range;

use arrayvec::ArrayVec;
use weir_wire::frame::{Frame, Offload, SegmentKind};
use weir_wire::parse::{Network, Parsed};

use crate::counters::PeerCounters;
use crate::esp::next_header;
use crate::esp::outer::{
    OUTER_LEN_MAX, OuterFields, OuterHeader, UdpEncapsulation, prepend_etherip,
};
use crate::esp::seal::SealingSa;
use crate::esp::transport::{OVERHEAD_LEN_MAX, seal_transport, seal_transport_to};
use crate::offload::segment::Cut;
use crate::output::{Destination, Output, Part};
use crate::peer::PeerEntry;
use crate::policy::{Mode, address};
use crate::verdict::DropReason;

/// Ethernet with two tags.
pub(super) const LINK_LEN_MAX: usize = 22;

impl PeerEntry {
    /// Seals `frame` in place: afterwards it is what the wire carries. `fields` are
    /// its outer fields.
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
            // Tagged, or sealed by a daemon, and never here.
            Mode::IcrcTag(_) | Mode::Device { .. } => return Err(DropReason::NoAssociation),
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
        self.counters.last_sealed = frame.meta.time;
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
        let has_own_outer = self.endpoint().is_some() || self.mode == Mode::WireGuard;
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

impl PeerEntry {
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
        let endpoint = self.endpoint();
        let association = self.association.as_mut().ok_or(DropReason::NoAssociation)?;
        // Whole or not at all.
        let longest = association.packet_len(cut.longest());
        let each = LINK_LEN_MAX + OUTER_LEN_MAX + OVERHEAD_LEN_MAX + longest;
        if output.free() < cut.count() * each {
            return Err(DropReason::ArenaFull);
        }
        self.counters.last_sealed = frame.meta.time;
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
                let around = match (outer, endpoint) {
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
            Mode::IcrcTag(_) | Mode::Device { .. } => Err(DropReason::NoAssociation),
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
