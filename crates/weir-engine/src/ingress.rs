//! Wire to host: an ESP packet is opened and checked against what its peer may send.

use std::collections::BTreeMap;

use weir_wire::frame::{Frame, Link, Offload};
use weir_wire::parse::{MacAddress, Network, Parsed, Transport, parse_into};

use crate::classify::has_address;
use crate::counters::PeerCounters;
use crate::egress::LINK_LEN_MAX;
use crate::esp::next_header;
use crate::esp::open::OpeningSa;
use crate::esp::outer::{combine_ecn, strip_etherip, write_ecn};
use crate::esp::transport::open_transport;
use crate::policy::{Mode, Peer};
use crate::verdict::DropReason;

const ESP_HEADER_LEN: usize = 8;
const UDP_HEADER_LEN: usize = 8;
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
        /// Whether the outer packet's CE mark was written into it.
        congestion_combined: bool,
    },
    /// Nothing: it hid when traffic flows.
    Dummy,
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

    /// Opens `frame` in place: afterwards it is the frame for the host. `parsed` describes the
    /// outer packet before and the inner one afterwards.
    #[inline]
    pub(crate) fn open(
        &mut self,
        peer: &Peer,
        hosts: &HostAddresses,
        frame: &mut Frame<'_>,
        parsed: &mut Parsed,
    ) -> Result<Inner, DropReason> {
        let outer = &*parsed;
        let outer_traffic_class = outer.traffic_class;
        let came_from = udp_source(frame, outer);
        if outer.fragment.is_some() {
            return Err(DropReason::Fragment);
        }
        if !self.decapsulate(peer.mode, frame, outer)? {
            return Ok(Inner::Dummy);
        }
        if came_from.is_some() {
            self.came_from = came_from;
        }
        // The length on the wire is that of what was inside; ESP proved it whole.
        frame.meta.original_len = frame.len() as u32;
        // ESP proved that nobody changed it on the way, not that its sender had summed right: a
        // wrong inner checksum must stay wrong, so it is verified before segments are gathered.
        frame.meta.offload = Offload::default();
        parse_into(parsed, frame.bytes(), Link::Ethernet, frame.len() as u32);
        if parsed.fault.is_some() && !has_address(parsed) {
            return Err(DropReason::Malformed);
        }
        if !may_send(peer, parsed) {
            return Err(DropReason::SelectorMismatch);
        }
        if peer.mode == Mode::Tunnel && peer.endpoint.is_some() {
            hosts.lead(frame, parsed)?;
        }
        let congestion_combined = carry_congestion(peer, frame, outer_traffic_class, parsed)?;
        self.counters.opened_packets += 1;
        self.counters.opened_bytes += frame.len() as u64;
        self.counters.last_opened = frame.meta.time;
        Ok(Inner::Packet { congestion_combined })
    }

    /// Takes the packet out of its ESP packet; `false` when it held none.
    #[inline]
    fn decapsulate(
        &mut self,
        mode: Mode,
        frame: &mut Frame<'_>,
        outer: &Parsed,
    ) -> Result<bool, DropReason> {
        match mode {
            Mode::Ethernet => {
                cut_to_esp(frame, outer);
                match self.association.open(frame)?.next_header {
                    next_header::ETHERIP if strip_etherip(frame) => {}
                    next_header::DUMMY => return Ok(false),
                    _ => return Err(DropReason::EspTrailer),
                }
            }
            Mode::Tunnel => {
                let mut link = [0; LINK_LEN_MAX];
                let link_len = usize::from(outer.network_offset);
                let link = link.get_mut(..link_len).ok_or(DropReason::Malformed)?;
                link.copy_from_slice(&frame.bytes()[..link_len]);
                cut_to_esp(frame, outer);
                let ethertype: u16 = match self.association.open(frame)?.next_header {
                    next_header::IPV4 => 0x0800,
                    next_header::IPV6 => 0x86dd,
                    next_header::DUMMY => return Ok(false),
                    _ => return Err(DropReason::EspTrailer),
                };
                link[link_len - ETHERTYPE_OFFSET_BACK..].copy_from_slice(&ethertype.to_be_bytes());
                frame.prepend(link_len).ok_or(DropReason::NoRoom)?[..link_len]
                    .copy_from_slice(link);
            }
            Mode::Transport => {
                let network_offset = usize::from(outer.network_offset);
                if open_transport(&mut self.association, frame, network_offset)?.is_dummy() {
                    return Ok(false);
                }
            }
        }
        Ok(true)
    }
}

/// Cuts everything but the ESP packet off, link padding included.
fn cut_to_esp(frame: &mut Frame<'_>, outer: &Parsed) {
    frame.truncate(outer.end as usize);
    frame.trim_front(usize::from(outer.payload_offset) - ESP_HEADER_LEN);
}

/// Address and port that an ESP packet in UDP came from.
#[inline]
fn udp_source(frame: &Frame<'_>, outer: &Parsed) -> Option<([u8; 16], u16)> {
    let Transport::Esp { in_udp: true, .. } = outer.transport else { return None };
    let udp = usize::from(outer.payload_offset).checked_sub(ESP_HEADER_LEN + UDP_HEADER_LEN)?;
    let port = frame.bytes().get(udp..)?.first_chunk()?;
    Some((outer.source, u16::from_be_bytes(*port)))
}

/// Whether the inner source lies behind the peer.
#[inline]
fn may_send(peer: &Peer, inner: &Parsed) -> bool {
    peer.everything
        || (has_address(inner) && peer.protects.iter().any(|prefix| prefix.contains(&inner.source)))
}

/// RFC 6040: a CE mark set on the way must reach the inner packet, or no CNP will answer it.
#[inline]
fn carry_congestion(
    peer: &Peer,
    frame: &mut Frame<'_>,
    outer_traffic_class: u8,
    inner: &mut Parsed,
) -> Result<bool, DropReason> {
    if peer.mode == Mode::Transport || !has_address(inner) {
        return Ok(false);
    }
    let combined = combine_ecn(inner.traffic_class, outer_traffic_class)
        .ok_or(DropReason::CongestionUnheard)?;
    if combined == inner.traffic_class & 3 {
        return Ok(false);
    }
    write_ecn(&mut frame.bytes_mut()[usize::from(inner.network_offset)..], combined);
    inner.traffic_class = inner.traffic_class & !3 | combined;
    Ok(true)
}

/// Hosts behind the host port, by the source addresses of what they send. Needed only where ESP
/// tunnels end at an own address: the outer Ethernet header then leads to us and not to the host.
#[derive(Debug, Default)]
pub(crate) struct HostAddresses {
    known: BTreeMap<[u8; 16], MacAddress>,
}

/// Hosts remembered; a further one is not, and packets to it are dropped as `neighbour_unknown`.
const HOSTS_MAX: usize = 4096;

impl HostAddresses {
    /// Remembers where `parsed`, seen on the host port, came from.
    pub(crate) fn learn(&mut self, parsed: &Parsed) {
        if !matches!(parsed.network, Network::Ipv4 | Network::Ipv6) || parsed.source == [0; 16] {
            return;
        }
        let room = self.known.len() < HOSTS_MAX;
        match self.known.get_mut(&parsed.source) {
            Some(mac) => *mac = parsed.link.source,
            None if room => {
                self.known.insert(parsed.source, parsed.link.source);
            }
            None => {}
        }
    }

    /// Sends the frame to the host that its packet is for.
    fn lead(&self, frame: &mut Frame<'_>, inner: &mut Parsed) -> Result<(), DropReason> {
        let mac = self.find(&inner.destination).ok_or(DropReason::NeighbourUnknown)?;
        frame.bytes_mut()[..6].copy_from_slice(&mac.0);
        inner.link.destination = mac;
        Ok(())
    }

    fn find(&self, address: &[u8; 16]) -> Option<MacAddress> {
        self.known.get(address).copied()
    }
}
