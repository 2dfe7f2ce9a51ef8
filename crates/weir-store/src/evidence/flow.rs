//! Which packets are of a flow: those between its two ends, whatever carries them.
//!
//! pcap-filter's expressions see neither behind tags, tunnels and extension headers nor ports in
//! fragments; the walk that rules go by does.

use std::net::{IpAddr, Ipv6Addr};

use serde::{Deserialize, Serialize};
use weir_detect::tunnels::{Ports, TunnelPorts};
use weir_wire::frame::Link;
use weir_wire::parse::{Network, Parsed, parse};
use weir_wire::udp::PORT_ROCE_V2;

use crate::sink::eve;
use crate::sqlite::AlertRow;

/// Where a gateway may have looked for VXLAN: the standard's port, and Linux's own.
const EVERY_VXLAN: Ports = Ports::These([4789, 8472, 0, 0]);

/// Packets within a packet that are looked at, at most, as `weir read` does.
const LAYERS_MAX: usize = 16;

/// An end of a flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub struct FlowEnd {
    /// Who: IPv4, IPv6, or a GID.
    pub address: IpAddr,
    /// Absent: any.
    pub port: Option<u16>,
}

/// The packets of a flow, both ways.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub struct FlowFilter {
    /// Between whom.
    pub ends: [FlowEnd; 2],
    /// IP's protocol number; absent: any.
    pub protocol: Option<u8>,
}

impl FlowFilter {
    /// What belongs to an alert.
    pub fn of_alert(alert: &AlertRow) -> Self {
        let protocol = eve::protocol_number(&alert.protocol);
        // Of RDMA the ports are one way's alone.
        let has_ports = protocol.is_some_and(has_ports) && alert.destination_port != PORT_ROCE_V2;
        let end = |address: [u8; 16], port: u16| FlowEnd {
            address: Ipv6Addr::from(address).to_canonical(),
            port: Some(port).filter(|it| has_ports && *it != 0),
        };
        let source = end(alert.source, alert.source_port);
        let destination = end(alert.destination, alert.destination_port);
        Self { ends: [source, destination], protocol }
    }

    /// Whether a frame, of which `bytes` were kept, is of the flow, or carries a packet that is.
    /// A fragment that does not say its ports is taken by its addresses.
    pub fn takes(&self, mut bytes: &[u8], mut original_len: u32) -> bool {
        let mut link = Link::Ethernet;
        let tunnels = TunnelPorts { vxlan: EVERY_VXLAN, ..TunnelPorts::default() };
        for _ in 0..LAYERS_MAX {
            let parsed = parse(bytes, link, original_len);
            if self.is_of(bytes, &parsed) {
                return true;
            }
            let Some((start, inside, _)) = tunnels.inner(bytes, &parsed) else { return false };
            let Some(carried) = bytes.get(start..) else { return false };
            (bytes, link) = (carried, inside);
            original_len = original_len.saturating_sub(start as u32);
        }
        false
    }

    fn is_of(&self, bytes: &[u8], parsed: &Parsed) -> bool {
        if matches!(parsed.network, Network::None | Network::Arp) {
            return false;
        }
        let is_later = parsed.fragment.is_some_and(|it| it.offset > 0);
        // What later fragments of IPv6 say is the next header, not the last.
        let is_told = !(is_later && parsed.network == Network::Ipv6);
        if is_told && self.protocol.is_some_and(|it| it != parsed.protocol) {
            return false;
        }
        let ports = if is_later { None } else { ports(bytes, parsed) };
        let at = |end: &FlowEnd, address: &[u8; 16], port: Option<u16>| {
            let is_port = is_later || end.port.is_none_or(|it| port == Some(it));
            is_port && mapped(end.address) == *address
        };
        let goes = |from: &FlowEnd, to: &FlowEnd| {
            at(from, &parsed.source, ports.map(|it| it.0))
                && at(to, &parsed.destination, ports.map(|it| it.1))
        };
        let [one, other] = &self.ends;
        goes(one, other) || goes(other, one)
    }
}

fn has_ports(protocol: u8) -> bool {
    matches!(protocol, 6 | 17 | 132)
}

/// Source and destination port, if they are among the bytes.
fn ports(bytes: &[u8], parsed: &Parsed) -> Option<(u16, u16)> {
    let header = bytes.get(usize::from(parsed.transport_offset)..)?;
    let [a, b, c, d] = *header.first_chunk()?;
    has_ports(parsed.protocol).then(|| (u16::from_be_bytes([a, b]), u16::from_be_bytes([c, d])))
}

fn mapped(address: IpAddr) -> [u8; 16] {
    match address {
        IpAddr::V4(address) => address.to_ipv6_mapped().octets(),
        IpAddr::V6(address) => address.octets(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn filter(protocol: Option<u8>, ends: [(&str, Option<u16>); 2]) -> FlowFilter {
        let ends = ends.map(|(address, port)| FlowEnd { address: address.parse().unwrap(), port });
        FlowFilter { ends, protocol }
    }

    /// IPv4 from 10.0.0.1 to 10.0.0.2; `fragment` are the flags and the offset.
    fn ipv4(protocol: u8, fragment: u16, payload: &[u8]) -> Vec<u8> {
        let length = (20 + payload.len() as u16).to_be_bytes();
        let [flags, offset] = fragment.to_be_bytes();
        let mut packet = vec![0x45, 0, length[0], length[1], 0, 1, flags, offset, 64, protocol];
        packet.extend([0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
        packet.extend(payload);
        packet
    }

    /// IPv6 from fd00::1 to fd00::2.
    fn ipv6(next: u8, payload: &[u8]) -> Vec<u8> {
        let [high, low] = (payload.len() as u16).to_be_bytes();
        let mut packet = vec![0x60, 0, 0, 0, high, low, next, 64];
        for last in [1, 2] {
            packet.extend([0xfd, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, last]);
        }
        packet.extend(payload);
        packet
    }

    fn udp(from: u16, to: u16, payload: &[u8]) -> Vec<u8> {
        let length = 8 + payload.len() as u16;
        let words = [from, to, length, 0];
        words.into_iter().flat_map(u16::to_be_bytes).chain(payload.iter().copied()).collect()
    }

    fn frame(behind: &[u8], packet: &[u8]) -> Vec<u8> {
        [&[2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2], behind, packet].concat()
    }

    fn takes(filter: &FlowFilter, frame: &[u8]) -> bool {
        filter.takes(frame, frame.len() as u32)
    }

    #[test]
    fn a_flow_is_both_its_ways_behind_whatever_carries_it() {
        let datagram = || udp(7, 9, b"hello, there");
        let plain = frame(&[8, 0], &ipv4(17, 0, &datagram()));
        let carried = [&[8, 0, 0, 0, 0, 0, 1, 0][..], &plain].concat();
        let outer = ipv6(17, &udp(50_000, 4789, &carried));
        let options = [&[17, 0, 1, 4, 0, 0, 0, 0][..], &datagram()].concat();
        let of_v4 = [
            plain.clone(),
            frame(&[0x81, 0, 0, 7, 8, 0], &ipv4(17, 0, &datagram())),
            frame(&[0x88, 0xa8, 0, 7, 0x81, 0, 0, 8, 8, 0], &ipv4(17, 0, &datagram())),
            frame(&[0x86, 0xdd], &outer),
            frame(&[8, 0], &ipv4(47, 0, &[&[0, 0, 8, 0][..], &ipv4(17, 0, &datagram())].concat())),
            // The first fragment, and another.
            frame(&[8, 0], &ipv4(17, 0x2000, &datagram())),
            frame(&[8, 0], &ipv4(17, 3, b"behind the header")),
        ];
        let ends = [("10.0.0.1", Some(7)), ("10.0.0.2", Some(9))];
        let v4 = filter(Some(17), ends);
        for (number, frame) in of_v4.iter().enumerate() {
            assert!(takes(&v4, frame), "{number}");
            assert!(takes(&filter(None, [ends[1], ends[0]]), frame), "{number}, the other way");
            assert!(v4.takes(&frame[..frame.len() - 4], frame.len() as u32), "{number}, cut");
            assert!(!takes(&filter(Some(6), ends), frame), "{number}, another protocol");
        }
        let others = [("10.0.0.1", Some(9)), ("10.0.0.2", Some(7))];
        assert!(!takes(&filter(Some(17), others), &plain));
        assert!(!takes(&filter(None, [("10.0.0.1", None), ("10.0.0.3", None)]), &plain));

        let piece = [&[17, 0, 0, 0x10, 0, 0, 0, 1][..], b"behind the header"].concat();
        let v6 = filter(Some(17), [("fd00::1", Some(7)), ("fd00::2", Some(9))]);
        assert!(takes(&v6, &frame(&[0x86, 0xdd], &ipv6(60, &options))), "extension headers");
        assert!(takes(&v6, &frame(&[0x86, 0xdd], &ipv6(44, &piece))), "a fragment");
        assert!(!takes(&v6, &plain));
    }

    #[test]
    fn what_belongs_to_an_alert_is_of_its_protocol_and_of_its_ports_where_it_has_any() {
        let alert = |protocol: &str, destination_port| AlertRow {
            protocol: protocol.to_owned(),
            source: mapped("10.0.0.1".parse().unwrap()),
            source_port: 7,
            destination: mapped("10.0.0.2".parse().unwrap()),
            destination_port,
            ..AlertRow::default()
        };
        let of = |protocol: &str, port| FlowFilter::of_alert(&alert(protocol, port));
        let (ported, portless) = ([Some(7), Some(9)], [None, None]);
        for (name, port, protocol, ports) in [
            ("TCP", 9, Some(6), ported),
            ("UDP", 9, Some(17), ported),
            ("UDP", PORT_ROCE_V2, Some(17), portless),
            ("ICMP", 9, Some(1), portless),
            ("RDMA", 9, None, portless),
        ] {
            let filter = of(name, port);
            assert_eq!((filter.protocol, filter.ends.map(|it| it.port)), (protocol, ports));
        }
    }
}
