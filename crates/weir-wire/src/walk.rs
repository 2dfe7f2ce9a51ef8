//! How [`crate::parse::parse`] goes from header to header.
//!
//! Two ends matter at each step: where the packet ended on the wire, as the headers before say
//! (beyond it: malformed), and where the bytes present end (beyond it: truncated).

use zerocopy::{FromBytes, Immutable, KnownLayout, Unaligned};

use crate::arp::ArpPacket;
use crate::bth::{Bth, PartitionKey};
use crate::esp::{EspHeader, NON_ESP_MARKER_LEN};
use crate::ethernet::{CookedHeader, CookedHeader2, EthernetHeader, VlanTag, ethertype};
use crate::frame::Link;
use crate::grh::Grh;
use crate::icmp::IcmpHeader;
use crate::ip::{ExtensionHeader, FragmentHeader, Ipv4Header, Ipv6Header, mapped, protocol};
use crate::ipoib::{IpoibArp, IpoibHeader};
use crate::lrh::{LinkNextHeader, Lrh, lid_address};
use crate::parse::{
    Encapsulation, Fault, Fragment, MacAddress, Network, Parsed, Rdma, Transport, Tunnel,
    TunnelKind,
};
use crate::plain::{self, Plain};
use crate::tcp::TcpHeader;
use crate::tunnel::{ErspanKind, GeneveHeader, GreHeader, VxlanHeader, inner_link};
use crate::udp::{PORT_ESP, PORT_GENEVE, PORT_ROCE_V2, PORT_VXLAN, UdpHeader};

/// More IPv6 extension headers than this are taken for an attack on the walk itself. Receivers have
/// no bound: a datagram that was put together has room for 8,191.
const EXTENSION_HEADERS_MAX: usize = 8192;
/// Bytes of the ICRC.
const ICRC_LEN: usize = 4;

type Step = Result<(), Fault>;

struct Walk<'a> {
    bytes: &'a [u8],
    /// Where the packet ended on the wire, as far as the headers read so far say.
    wire_end: usize,
    parsed: &'a mut Parsed,
}

/// Says whether the packet is plain.
#[inline]
pub(crate) fn walk(parsed: &mut Parsed, bytes: &[u8], link: Link, original_len: u32) -> bool {
    if link == Link::Ethernet
        && original_len as usize <= bytes.len()
        && let Some(plain) = plain::walk(parsed, bytes)
    {
        walk_behind(plain, parsed, bytes);
        return true;
    }
    walk_long(parsed, bytes, link, original_len);
    false
}

/// The walk over a packet, all of whose bytes are present, that begins as the one did that `parsed`
/// describes, whose head was `before`. Says whether it does; `parsed` is as it was when not.
#[inline]
pub(crate) fn follow(parsed: &mut Parsed, before: &[u8; plain::HEAD], bytes: &[u8]) -> bool {
    let Some(plain) = plain::follow(parsed, before, bytes) else { return false };
    walk_behind(plain, parsed, bytes);
    true
}

/// Goes on behind the headers of a plain packet.
#[inline]
fn walk_behind(plain: Plain, parsed: &mut Parsed, bytes: &[u8]) {
    if let Some((offset, end)) = plain.rdma {
        walk_rdma(offset, end, parsed, bytes);
    }
}

#[inline(never)]
fn walk_rdma(offset: usize, end: usize, parsed: &mut Parsed, bytes: &[u8]) {
    let mut walk = Walk { bytes, wire_end: parsed.end as usize, parsed };
    if let Err(fault) = walk.rdma(offset, end, Encapsulation::RoceV2) {
        walk.parsed.fault = Some(fault);
    }
}

/// The long way: any link, any header.
fn walk_long(parsed: &mut Parsed, bytes: &[u8], link: Link, original_len: u32) {
    let wire_end = bytes.len().max(original_len as usize);
    *parsed = Parsed { end: bytes.len() as u32, ..Parsed::default() };
    let mut walk = Walk { bytes, wire_end, parsed };
    if let Err(fault) = walk.link(link) {
        walk.parsed.fault = Some(fault);
    }
}

impl<'a> Walk<'a> {
    /// The header at `offset`.
    #[inline]
    fn view<T>(&self, offset: usize) -> Result<&'a T, Fault>
    where
        T: FromBytes + KnownLayout + Immutable + Unaligned,
    {
        view(self.bytes, offset, self.wire_end)
    }

    /// Notes that a header says where the packet ends: no later than was known.
    #[inline]
    fn end_at(&mut self, end: usize) -> Step {
        if end > self.wire_end {
            return Err(Fault::Malformed);
        }
        self.wire_end = end;
        self.parsed.end = end.min(self.bytes.len()) as u32;
        if end > self.bytes.len() {
            self.parsed.fault = Some(Fault::Truncated);
        }
        Ok(())
    }

    /// `offset` as a field of [`Parsed`]: on the wire no later than `wire_end`, and at most the
    /// bytes present.
    #[inline]
    fn place(&self, offset: usize) -> Result<u16, Fault> {
        if offset > self.wire_end {
            return Err(Fault::Malformed);
        }
        u16::try_from(offset.min(self.bytes.len())).map_err(|_| Fault::Malformed)
    }

    #[inline]
    fn link(&mut self, link: Link) -> Step {
        match link {
            Link::Ethernet => {
                let header = self.view::<EthernetHeader>(0)?;
                self.parsed.link.destination = header.destination;
                self.parsed.link.source = header.source;
                self.ethertype(header.ethertype.get(), size_of::<EthernetHeader>())
            }
            Link::Ip => self.ip(0),
            Link::Loopback => self.ip(4),
            Link::Ppp => self.ppp(),
            Link::CiscoHdlc => {
                let [_, _, high, low] = *self.view::<[u8; 4]>(0)?;
                self.ethertype(u16::from_be_bytes([high, low]), 4)
            }
            Link::LinuxSll => {
                let header = self.view::<CookedHeader>(0)?;
                self.parsed.link.source = cooked_source(header.address_len.get(), &header.address);
                self.ethertype(header.ethertype.get(), size_of::<CookedHeader>())
            }
            Link::LinuxSll2 => {
                let header = self.view::<CookedHeader2>(0)?;
                self.parsed.link.source =
                    cooked_source(u16::from(header.address_len), &header.address);
                self.ethertype(header.ethertype.get(), size_of::<CookedHeader2>())
            }
            Link::InfiniBand => self.infiniband(),
            Link::Ipoib => self.ipoib(),
        }
    }

    fn ppp(&mut self) -> Step {
        const ADDRESS_AND_CONTROL: [u8; 2] = [0xff, 0x03];
        let start = if *self.view::<[u8; 2]>(0)? == ADDRESS_AND_CONTROL { 2 } else { 0 };
        match self.view::<[u8; 2]>(start)? {
            [0, 0x21 | 0x57] => self.ip(start + 2),
            // A compressed protocol field is one byte, the last bit of which is set.
            [0x21 | 0x57, _] => self.ip(start + 1),
            _ => Ok(()),
        }
    }

    /// VLAN tags, then the network header that the innermost EtherType announces.
    #[inline]
    fn ethertype(&mut self, mut kind: u16, mut offset: usize) -> Step {
        self.parsed.link.ethertype = kind;
        while ethertype::is_vlan(kind) {
            let link = &mut self.parsed.link;
            let Some(tci) = link.vlan_tci.get_mut(usize::from(link.vlan_count)) else {
                // Its receiver may strip them all and find addresses that nobody looked at here.
                self.parsed.network_offset = self.place(offset)?;
                return Err(Fault::Malformed);
            };
            let tag = view::<VlanTag>(self.bytes, offset, self.wire_end)?;
            *tci = tag.tci.get();
            link.vlan_count += 1;
            kind = tag.ethertype.get();
            link.ethertype = kind;
            offset += size_of::<VlanTag>();
        }
        self.parsed.network_offset = self.place(offset)?;
        match kind {
            ethertype::IPV4 => self.ipv4(offset),
            ethertype::IPV6 => self.ipv6(offset),
            ethertype::ROCE_V1 => self.grh(offset, Encapsulation::RoceV1),
            ethertype::ARP => self.arp(offset),
            length if ethertype::is_length(length) => self.end_at(offset + usize::from(length)),
            _ => Ok(()),
        }
    }

    fn arp(&mut self, offset: usize) -> Step {
        let packet = self.view::<ArpPacket>(offset)?;
        self.parsed.network = Network::Arp;
        if packet.is_ipv4_over_ethernet() {
            self.parsed.source = mapped(packet.sender_ip);
            self.parsed.destination = mapped(packet.target_ip);
            self.end_at(offset + size_of::<ArpPacket>())?;
        }
        Ok(())
    }

    /// IPoIB knows no tags, and no other types (RFC 4391 s6).
    fn ipoib(&mut self) -> Step {
        let offset = IpoibHeader::offset_in(self.bytes);
        let kind = self.view::<IpoibHeader>(offset)?.ethertype.get();
        let behind = offset + IpoibHeader::LEN;
        self.parsed.link.ethertype = kind;
        self.parsed.network_offset = self.place(behind)?;
        match kind {
            ethertype::IPV4 => self.ipv4(behind),
            ethertype::IPV6 => self.ipv6(behind),
            ethertype::ARP => self.ipoib_arp(behind),
            _ => Ok(()),
        }
    }

    fn ipoib_arp(&mut self, offset: usize) -> Step {
        let packet = self.view::<IpoibArp>(offset)?;
        self.parsed.network = Network::Arp;
        if packet.is_ipv4_over_infiniband() {
            self.parsed.source = mapped(packet.sender_ip);
            self.parsed.destination = mapped(packet.target_ip);
            self.end_at(offset + size_of::<IpoibArp>())?;
        }
        Ok(())
    }

    fn ip(&mut self, offset: usize) -> Step {
        self.parsed.network_offset = self.place(offset)?;
        match self.view::<[u8; 1]>(offset)?[0] >> 4 {
            4 => self.ipv4(offset),
            6 => self.ipv6(offset),
            _ => Err(Fault::Malformed),
        }
    }

    #[inline]
    fn ipv4(&mut self, offset: usize) -> Step {
        let header = self.view::<Ipv4Header>(offset)?;
        if header.version() != 4 || header.header_len() < Ipv4Header::LEN {
            return Err(Fault::Malformed);
        }
        let parsed = &mut self.parsed;
        parsed.network = Network::Ipv4;
        parsed.source = mapped(header.source);
        parsed.destination = mapped(header.destination);
        parsed.protocol = header.protocol;
        parsed.traffic_class = header.traffic_class;
        parsed.hop_limit = header.ttl;
        let (more, fragment_offset) = (header.more_fragments(), header.fragment_offset());
        if more || fragment_offset != 0 {
            let id = u32::from(header.id.get());
            parsed.fragment = Some(Fragment { id, offset: fragment_offset, more });
        }
        let total_len = usize::from(header.total_len.get());
        if total_len < header.header_len() {
            return Err(Fault::Malformed);
        }
        self.end_at(offset + total_len)?;
        self.upper_layer(header.protocol, offset + header.header_len())
    }

    #[inline]
    fn ipv6(&mut self, offset: usize) -> Step {
        let header = self.view::<Ipv6Header>(offset)?;
        if header.version() != 6 {
            return Err(Fault::Malformed);
        }
        let parsed = &mut self.parsed;
        parsed.network = Network::Ipv6;
        parsed.source = header.source;
        parsed.destination = header.destination;
        parsed.protocol = header.next_header;
        parsed.traffic_class = header.traffic_class();
        parsed.hop_limit = header.hop_limit;
        let payload_offset = offset + Ipv6Header::LEN;
        let payload_len = usize::from(header.payload_len.get());
        // Where options of hops may tell the length, receivers go by the frame's (RFC 2675).
        if payload_len > 0 || header.next_header != protocol::HOP_BY_HOP {
            self.end_at(payload_offset + payload_len)?;
        }
        self.upper_layer(header.next_header, payload_offset)
    }

    /// Extension headers (AH also behind IPv4), then the transport header.
    #[inline]
    fn upper_layer(&mut self, mut kind: u8, mut offset: usize) -> Step {
        let is_v6 = self.parsed.network == Network::Ipv6;
        for _ in 0..EXTENSION_HEADERS_MAX {
            self.parsed.protocol = kind;
            self.parsed.transport_offset = self.place(offset)?;
            self.parsed.payload_offset = self.parsed.transport_offset;
            if self.parsed.fragment.is_some_and(|fragment| fragment.offset != 0) {
                return Ok(());
            }
            let extends = match kind {
                protocol::AH => true,
                protocol::HOP_BY_HOP
                | protocol::ROUTING
                | protocol::FRAGMENT
                | protocol::DESTINATION_OPTIONS
                | protocol::MOBILITY
                | protocol::HIP
                | protocol::SHIM6 => is_v6,
                _ => false,
            };
            if !extends {
                return self.transport(kind, offset);
            }
            (kind, offset) = self.extension_header(kind, offset)?;
        }
        Err(Fault::Malformed)
    }

    /// What follows an extension header, and where.
    fn extension_header(&mut self, kind: u8, offset: usize) -> Result<(u8, usize), Fault> {
        if kind == protocol::FRAGMENT {
            let header = self.view::<FragmentHeader>(offset)?;
            let place = header.offset_and_more.get();
            let (fragment_offset, more) = (place & !7, place & 1 != 0);
            // An atomic fragment (RFC 6946) is a whole packet.
            if more || fragment_offset != 0 {
                let id = header.id.get();
                self.parsed.fragment = Some(Fragment { id, offset: fragment_offset, more });
            }
            return Ok((header.next_header, offset + size_of::<FragmentHeader>()));
        }
        let header = self.view::<ExtensionHeader>(offset)?;
        let length = match kind {
            protocol::AH => (usize::from(header.length) + 2) * 4,
            _ => (usize::from(header.length) + 1) * 8,
        };
        Ok((header.next_header, offset + length))
    }

    #[inline]
    fn transport(&mut self, kind: u8, offset: usize) -> Step {
        match kind {
            protocol::UDP => self.udp(offset),
            protocol::TCP => self.tcp(offset),
            protocol::ESP => self.esp(offset, false),
            protocol::GRE => self.gre(offset),
            protocol::ICMP if self.parsed.network == Network::Ipv4 => self.icmp(offset),
            protocol::ICMPV6 if self.parsed.network == Network::Ipv6 => self.icmp(offset),
            _ => Ok(()),
        }
    }

    fn tcp(&mut self, offset: usize) -> Step {
        let header = self.view::<TcpHeader>(offset)?;
        self.parsed.transport = Transport::Tcp {
            source: header.source.get(),
            destination: header.destination.get(),
            sequence: header.sequence.get(),
            acknowledgment: header.acknowledgment.get(),
            flags: header.flags,
        };
        if header.header_len() < TcpHeader::LEN {
            return Err(Fault::Malformed);
        }
        self.parsed.payload_offset = self.place(offset + header.header_len())?;
        Ok(())
    }

    fn icmp(&mut self, offset: usize) -> Step {
        let header = self.view::<IcmpHeader>(offset)?;
        self.parsed.transport = Transport::Icmp { kind: header.kind, code: header.code };
        self.parsed.payload_offset = self.place(offset + IcmpHeader::LEN)?;
        Ok(())
    }

    fn esp(&mut self, offset: usize, in_udp: bool) -> Step {
        let header = self.view::<EspHeader>(offset)?;
        let (spi, sequence) = (header.spi.get(), header.sequence.get());
        self.parsed.transport = Transport::Esp { spi, sequence, in_udp };
        self.parsed.payload_offset = self.place(offset + EspHeader::LEN)?;
        Ok(())
    }

    #[inline]
    fn udp(&mut self, offset: usize) -> Step {
        let header = self.view::<UdpHeader>(offset)?;
        let (source, destination) = (header.source.get(), header.destination.get());
        self.parsed.transport = Transport::Udp { source, destination };
        let payload_offset = offset + UdpHeader::LEN;
        self.parsed.payload_offset = self.place(payload_offset)?;
        let mut end = self.wire_end;
        if self.parsed.fragment.is_none() {
            let length = usize::from(header.length.get());
            // Receivers take all that there is for a length of 0, as jumbograms have it (RFC 2675),
            // of any IPv6 packet.
            let is_jumbo = length == 0 && self.parsed.network == Network::Ipv6;
            end = if is_jumbo { self.wire_end } else { offset + length };
            if !is_jumbo && (length < UdpHeader::LEN || end > self.wire_end) {
                return Err(Fault::Malformed);
            }
        }
        match destination {
            PORT_ROCE_V2 => self.rdma(payload_offset, end, Encapsulation::RoceV2),
            PORT_VXLAN => self.vxlan(payload_offset),
            PORT_GENEVE => self.geneve(payload_offset),
            _ if destination == PORT_ESP || source == PORT_ESP => {
                self.udp_encapsulated(payload_offset, end)
            }
            _ => Ok(()),
        }
    }

    /// Port 4500: ESP, unless it is IKE behind a marker of zeros, or a one-byte keepalive.
    fn udp_encapsulated(&mut self, offset: usize, end: usize) -> Step {
        if end - offset < EspHeader::LEN {
            return Ok(());
        }
        match self.view::<[u8; NON_ESP_MARKER_LEN]>(offset)? {
            [0, 0, 0, 0] => Ok(()),
            _ => self.esp(offset, true),
        }
    }

    fn vxlan(&mut self, offset: usize) -> Step {
        if self.parsed.fragment.is_some() {
            return Ok(());
        }
        let header = self.view::<VxlanHeader>(offset)?;
        let Some(id) = header.vni() else { return Ok(()) };
        self.enter(TunnelKind::Vxlan, id, offset + size_of::<VxlanHeader>(), Link::Ethernet)
    }

    fn geneve(&mut self, offset: usize) -> Step {
        if self.parsed.fragment.is_some() {
            return Ok(());
        }
        let header = self.view::<GeneveHeader>(offset)?;
        match inner_link(header.protocol.get()) {
            Some(link) if header.version() == 0 => {
                self.enter(TunnelKind::Geneve, header.vni(), offset + header.header_len(), link)
            }
            _ => Ok(()),
        }
    }

    fn gre(&mut self, offset: usize) -> Step {
        if self.parsed.fragment.is_some() {
            return Ok(());
        }
        let header = self.view::<GreHeader>(offset)?;
        if !header.is_plain() {
            return Ok(());
        }
        let behind = offset + header.header_len();
        self.parsed.payload_offset = self.place(behind)?;
        if let Some(kind) = header.erspan() {
            return self.erspan(kind, behind);
        }
        let Some(link) = inner_link(header.protocol.get()) else { return Ok(()) };
        let id = match header.key_offset() {
            Some(key) => u32::from_be_bytes(*self.view(offset + key)?),
            None => 0,
        };
        self.enter(TunnelKind::Gre, id, behind, link)
    }

    fn erspan(&mut self, kind: ErspanKind, offset: usize) -> Step {
        let mut inner = offset + kind.header_len();
        let id = match kind {
            ErspanKind::I => 0,
            ErspanKind::II | ErspanKind::III => {
                let [_, _, high, low] = *self.view::<[u8; 4]>(offset)?;
                u32::from(u16::from_be_bytes([high, low]) & 0x3ff)
            }
        };
        if kind == ErspanKind::III && self.view::<[u8; 12]>(offset)?[11] & 1 != 0 {
            inner += 8;
        }
        self.enter(TunnelKind::Erspan, id, inner, Link::Ethernet)
    }

    fn enter(&mut self, kind: TunnelKind, id: u32, inner: usize, inner_link: Link) -> Step {
        let inner_offset = self.place(inner)?;
        self.parsed.tunnel = Some(Tunnel { kind, id, inner_offset, inner_link });
        Ok(())
    }

    fn infiniband(&mut self) -> Step {
        let header = self.view::<Lrh>(0)?;
        self.parsed.network = Network::Lrh;
        self.parsed.source = lid_address(header.source.get());
        self.parsed.destination = lid_address(header.destination.get());
        self.end_at(header.packet_len())?;
        match header.next_header() {
            LinkNextHeader::Local => self.rdma(Lrh::LEN, self.wire_end, Encapsulation::InfiniBand),
            LinkNextHeader::Global => self.grh(Lrh::LEN, Encapsulation::InfiniBand),
            LinkNextHeader::RawIpv6 => self.ip(Lrh::LEN),
            LinkNextHeader::RawEthertype => Ok(()),
        }
    }

    fn grh(&mut self, offset: usize, encapsulation: Encapsulation) -> Step {
        let header = self.view::<Grh>(offset)?;
        if header.version() != 6 {
            return Err(Fault::Malformed);
        }
        self.parsed.network_offset = self.place(offset)?;
        let parsed = &mut self.parsed;
        parsed.network = Network::Grh;
        parsed.source = header.source;
        parsed.destination = header.destination;
        parsed.protocol = header.next_header;
        parsed.traffic_class = header.traffic_class();
        parsed.hop_limit = header.hop_limit;
        let behind = offset + Grh::LEN;
        self.end_at(behind + usize::from(header.payload_len.get()))?;
        if header.next_header == protocol::IBA {
            return self.rdma(behind, self.wire_end, encapsulation);
        }
        self.parsed.transport_offset = self.place(behind)?;
        self.parsed.payload_offset = self.parsed.transport_offset;
        Ok(())
    }

    /// The BTH at `offset`, of a packet whose ICRC ends at `end`.
    #[inline]
    fn rdma(&mut self, offset: usize, end: usize, encapsulation: Encapsulation) -> Step {
        if encapsulation != Encapsulation::RoceV2 {
            self.parsed.transport_offset = self.place(offset)?;
            self.parsed.payload_offset = self.place(offset + Bth::LEN)?;
        }
        let bth = self.view::<Bth>(offset)?;
        let opcode = bth.opcode();
        let payload_offset = offset + Bth::LEN + opcode.extensions_len();
        let is_fragment = self.parsed.fragment.is_some();
        let trailer = if is_fragment { 0 } else { usize::from(bth.pad_count()) + ICRC_LEN };
        let payload_len = end.checked_sub(payload_offset + trailer).ok_or(Fault::Malformed)?;
        let icrc_offset = (end - ICRC_LEN.min(end)).try_into().map_err(|_| Fault::Malformed)?;
        let is_whole = !is_fragment && end <= self.bytes.len();
        self.parsed.rdma = Some(Rdma {
            encapsulation,
            opcode,
            destination_qp: bth.destination_qp(),
            psn: bth.psn(),
            partition_key: PartitionKey(bth.partition_key.get()),
            flags: bth.flags,
            congestion: bth.congestion(),
            ack_request: bth.ack_request(),
            bth_offset: self.place(offset)?,
            payload_offset: self.place(payload_offset)?,
            payload_len: payload_len.try_into().map_err(|_| Fault::Malformed)?,
            icrc_offset: is_whole.then_some(icrc_offset),
        });
        Ok(())
    }
}

#[inline]
fn view<T>(bytes: &[u8], offset: usize, wire_end: usize) -> Result<&T, Fault>
where
    T: FromBytes + KnownLayout + Immutable + Unaligned,
{
    let end = offset + size_of::<T>();
    if end > wire_end {
        return Err(Fault::Malformed);
    }
    let bytes = bytes.get(offset..end).ok_or(Fault::Truncated)?;
    T::ref_from_bytes(bytes).map_err(|_| Fault::Malformed)
}

fn cooked_source(address_len: u16, address: &[u8; 8]) -> MacAddress {
    match address {
        [mac @ .., _, _] if address_len == 6 => MacAddress(*mac),
        _ => MacAddress::default(),
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::parse::parse;
    use proptest::prelude::*;

    /// Ethernet and IPv4 to UDP, with lengths that are right for 60 bytes.
    pub(crate) const FRAME: [u8; 60] = [
        2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 8, 0, 0x45, 2, 0, 46, 0, 1, 0x40, 0, 64, 17, 0, 0, 10,
        0, 0, 1, 10, 0, 0, 2, 0xc0, 0, 0x12, 0xb7, 0, 26, 0, 0, 4, 0x40, 0xff, 0xff, 0, 0, 0, 17,
        0x80, 0, 0, 5, 1, 2, 3, 4, 5, 6,
    ];
    /// The bytes that decide which way the walk goes.
    const DECIDING: [usize; 19] =
        [12, 13, 14, 16, 17, 20, 21, 23, 34, 35, 36, 37, 38, 39, 42, 43, 46, 47, 53];

    prop_compose! {
        /// [`FRAME`] or one like it, mostly broken, sometimes cut short.
        pub(crate) fn packet()(
            changes in prop::collection::vec((0..DECIDING.len(), any::<u8>()), 0..4),
            protocol in prop::sample::select(&[6u8, 17, 50, 47, 1]),
            ports in prop::sample::select(&[4791_u16, 4500, 4789, 6081]),
            swaps_ports: bool,
            len in 0usize..=70,
        ) -> Vec<u8> {
            let mut bytes = [FRAME.as_slice(), &[0; 10]].concat();
            bytes[23] = protocol;
            let port = if swaps_ports { 34 } else { 36 };
            bytes[port..port + 2].copy_from_slice(&ports.to_be_bytes());
            for (place, value) in changes {
                bytes[DECIDING[place]] = value;
            }
            bytes.truncate(len);
            bytes
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(4000))]

        #[test]
        fn the_short_cut_describes_a_packet_as_the_long_way_does(
            bytes in packet(),
            on_wire in 0u32..80,
        ) {
            let (mut short, mut long) = (Parsed::default(), Parsed::default());
            walk(&mut short, &bytes, Link::Ethernet, on_wire);
            walk_long(&mut long, &bytes, Link::Ethernet, on_wire);
            prop_assert_eq!(short, long);
        }
    }

    #[test]
    fn a_datagram_over_ipv6_may_say_no_length() {
        let mut bytes = vec![2; 12];
        bytes.extend([0x86, 0xdd, 0x60, 0, 0, 0, 0, 12, 17, 64]);
        bytes.extend([9; 32]);
        bytes.extend([0xc0, 0, 0, 53, 0, 0, 0, 0, 1, 2, 3, 4]);
        let parsed = parse(&bytes, Link::Ethernet, bytes.len() as u32);
        assert_eq!((parsed.fault, parsed.payload(&bytes)), (None, &[1, 2, 3, 4][..]));
        bytes[59] = 7;
        let parsed = parse(&bytes, Link::Ethernet, bytes.len() as u32);
        assert_eq!(parsed.fault, Some(Fault::Malformed));
    }

    #[test]
    fn plain_packets_take_the_short_cut() {
        for protocol in [6, 17, 50] {
            let mut bytes = FRAME;
            bytes[23] = protocol;
            bytes[46] = 0x50;
            assert!(plain::walk(&mut Parsed::default(), &bytes).is_some(), "{protocol}");
        }
        let mut esp_in_udp = FRAME;
        esp_in_udp[36..38].copy_from_slice(&PORT_ESP.to_be_bytes());
        let mut parsed = Parsed::default();
        assert!(plain::walk(&mut parsed, &esp_in_udp).is_some());
        assert!(matches!(parsed.transport, Transport::Esp { in_udp: true, .. }));
    }
}
