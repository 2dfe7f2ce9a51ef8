//! IP packets that hold nothing for a host (next header 59, RFC 8200 s4.7), from gateway to gateway
//! inside a tunnel: signs of life, and messages about the path's width.
//!
//! ESP has dummy packets for that (RFC 4303 s2.6), but Linux drops those without counting them:
//! who has the kernel's ESP would never hear one. For NICs, which take no IPv6 packet with such a
//! header, they are UDP packets to be discarded (RFC 863).

use std::net::IpAddr;

use weir_wire::checksum;
use weir_wire::ip::protocol::{NO_NEXT_HEADER, UDP};

use super::outer::{ipv4_header, ipv6_header};

/// Bytes before the message over IPv4.
const IPV4_LEN: usize = 20;
/// Bytes before the message over IPv6.
const IPV6_LEN: usize = 40;
/// Where an IPv6 header names what follows it.
const IPV6_PROTOCOL: usize = 6;
/// Bytes of a UDP header.
const UDP_LEN: usize = 8;
/// The discard service's port.
const DISCARD: u16 = 9;
const HOP_LIMIT: u8 = 64;

/// The same as [`silent_packet`] for a NIC to seal (docs/adr/0035).
pub fn silent_packet_for_nic(
    source: IpAddr,
    destination: IpAddr,
    message: &[u8],
    len: usize,
) -> Option<Vec<u8>> {
    let (IpAddr::V6(from), IpAddr::V6(to)) = (source, destination) else {
        return silent_packet(source, destination, message, len);
    };
    let mut udp = [0; UDP_LEN];
    let udp_len = (UDP_LEN + message.len()).max(len.saturating_sub(IPV6_LEN));
    for (field, value) in [(0, DISCARD), (2, DISCARD), (4, u16::try_from(udp_len).ok()?)] {
        udp[field..field + 2].copy_from_slice(&value.to_be_bytes());
    }
    let sum = checksum::pseudo_header_v6(&from.octets(), &to.octets(), UDP, udp_len as u32);
    let sum = sum.with(&udp).with(message).udp_checksum();
    udp[6..].copy_from_slice(&sum.to_be_bytes());
    let mut packet = silent_packet(source, destination, &[&udp, message].concat(), len)?;
    packet[IPV6_PROTOCOL] = UDP;
    Some(packet)
}

/// A packet that holds `message`, padded to `len` bytes where it is shorter, and that nobody may
/// fragment. `None`: the ends are of two families, or it is longer than an IP packet can be.
pub fn silent_packet(
    source: IpAddr,
    destination: IpAddr,
    message: &[u8],
    len: usize,
) -> Option<Vec<u8>> {
    let (mut packet, header_len) = match (source, destination) {
        (IpAddr::V4(source), IpAddr::V4(destination)) => {
            (ipv4_header(source, destination, HOP_LIMIT, NO_NEXT_HEADER).to_vec(), IPV4_LEN)
        }
        (IpAddr::V6(source), IpAddr::V6(destination)) => {
            (ipv6_header(source, destination, HOP_LIMIT, NO_NEXT_HEADER).to_vec(), IPV6_LEN)
        }
        _ => return None,
    };
    packet.extend(message);
    packet.resize(packet.len().max(len), 0);
    let total_len = u16::try_from(packet.len()).ok()?.to_be_bytes();
    match header_len {
        IPV4_LEN => {
            packet[2..4].copy_from_slice(&total_len);
            let sum = checksum::ipv4_header(&packet[..IPV4_LEN]);
            packet[10..12].copy_from_slice(&sum.to_be_bytes());
        }
        _ => {
            let payload_len = (packet.len() - IPV6_LEN) as u16;
            packet[4..6].copy_from_slice(&payload_len.to_be_bytes());
        }
    }
    Some(packet)
}

/// The message of such a packet, padding included; `None`: it is another one.
pub fn silent_message(packet: &[u8]) -> Option<&[u8]> {
    let (protocol, header_len) = match packet.first()? {
        0x45 => (*packet.get(9)?, IPV4_LEN),
        0x60..=0x6f => (*packet.get(IPV6_PROTOCOL)?, IPV6_LEN),
        _ => return None,
    };
    let behind = packet.get(header_len..)?;
    match (protocol, header_len) {
        (NO_NEXT_HEADER, _) => Some(behind),
        (UDP, IPV6_LEN) => {
            let (udp, message) = behind.split_at_checked(UDP_LEN)?;
            let ports = [DISCARD.to_be_bytes(); 2];
            udp.starts_with(ports.as_flattened()).then_some(message)
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_comes_back_padded_over_both_families() {
        for (a, b) in [("192.0.2.1", "192.0.2.2"), ("2001:db8::1", "2001:db8::2")] {
            let [a, b]: [IpAddr; 2] = [a, b].map(|it| it.parse().unwrap());
            let header_len = if a.is_ipv4() { IPV4_LEN } else { IPV6_LEN };
            let packet = silent_packet(a, b, b"message", 100).unwrap();
            assert_eq!(packet.len(), 100);
            let message = silent_message(&packet).unwrap();
            assert_eq!((&message[..7], message.len()), (&b"message"[..], 100 - header_len));
            assert_eq!(silent_packet(a, b, b"", 0).unwrap().len(), header_len);
            let mut other = packet.clone();
            other[if a.is_ipv4() { 9 } else { 6 }] = 17;
            assert_eq!(silent_message(&other), None);
            assert_eq!(silent_packet(a, b, &[0; 65536], 0), None);
        }
        let [a, b]: [IpAddr; 2] = ["2001:db8::1", "2001:db8::2"].map(|it| it.parse().unwrap());
        let packet = silent_packet_for_nic(a, b, b"message", 101).unwrap();
        assert_eq!((packet.len(), packet[6], &packet[40..46]), (101, 17, &[0, 9, 0, 9, 0, 61][..]));
        assert_eq!(&silent_message(&packet).unwrap()[..8], b"message\0");
        let mut other = packet.clone();
        other[43] = 53;
        assert_eq!(silent_message(&other), None, "a host's");
        assert_eq!(silent_packet([1, 2, 3, 4].into(), [0u16; 8].into(), b"", 0), None);
        for short in [&[][..], &[0x45], &[0x60; 7]] {
            assert_eq!(silent_message(short), None);
        }
    }
}
