//! What is told of the headers of a packet that was dropped: what Linux's firewall logs tell.

use weir_wire::parse::{Network, Parsed, Transport};

use crate::icmp;

/// Fields of a packet's headers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Headers {
    /// Those of IP, or what stands in its place.
    pub network: NetworkFields,
    /// Those behind it.
    pub transport: TransportFields,
}

/// Fields of the network header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NetworkFields {
    /// IPv4 (RFC 791).
    Ipv4 {
        /// Total length in bytes.
        length: u16,
        /// Type of service.
        service: u8,
        /// Time to live.
        hops: u8,
        /// Identification, by which its fragments belong together.
        id: u16,
    },
    /// IPv6 (RFC 8200).
    Ipv6 {
        /// Bytes behind the header.
        length: u16,
        /// Traffic class.
        class: u8,
        /// Hop limit.
        hops: u8,
        /// Flow label.
        label: u32,
    },
    /// None of both: the GRH of RoCE v1, or no IP at all.
    Other {
        /// Bytes from the network header on.
        length: u32,
        /// Traffic class.
        class: u8,
        /// Hop limit.
        hops: u8,
    },
}

/// Fields of the transport header.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TransportFields {
    /// TCP (RFC 9293).
    Tcp {
        /// Sequence number.
        sequence: u32,
        /// Acknowledgment number.
        acknowledgment: u32,
        /// Window, not scaled.
        window: u16,
        /// The flag byte (CWR ECE URG ACK PSH RST SYN FIN).
        flags: u8,
        /// The four reserved bits.
        reserved: u8,
        /// Urgent pointer.
        urgent: u16,
    },
    /// UDP (RFC 768).
    Udp {
        /// Length in bytes, its header with it.
        length: u16,
    },
    /// ICMP (RFC 792) and ICMPv6: the second word of the header, in two halves.
    Icmp {
        /// Identifier, of an echo.
        id: u16,
        /// Sequence number, of an echo.
        sequence: u16,
    },
    /// Something else, or a header that was cut.
    #[default]
    Other,
}

impl Default for NetworkFields {
    fn default() -> Self {
        Self::Other { length: 0, class: 0, hops: 0 }
    }
}

impl Headers {
    /// Those of a packet of these bytes.
    pub fn of(bytes: &[u8], parsed: &Parsed) -> Self {
        let network = bytes.get(parsed.network_offset.into()..).unwrap_or_default();
        let transport = bytes.get(parsed.transport_offset.into()..).unwrap_or_default();
        let number = |pair: &[u8]| u16::from_be_bytes([pair[0], pair[1]]);
        let hops = parsed.hop_limit;
        let network = match (parsed.network, network) {
            (Network::Ipv4, [_, service, rest @ ..]) if rest.len() >= 4 => NetworkFields::Ipv4 {
                length: number(rest),
                service: *service,
                hops,
                id: number(&rest[2..]),
            },
            (Network::Ipv6, [_, second, a, b, rest @ ..]) if rest.len() >= 2 => {
                NetworkFields::Ipv6 {
                    length: number(rest),
                    class: parsed.traffic_class,
                    hops,
                    label: u32::from_be_bytes([0, second & 15, *a, *b]),
                }
            }
            _ => NetworkFields::Other {
                length: parsed.end.saturating_sub(parsed.network_offset.into()),
                class: parsed.traffic_class,
                hops,
            },
        };
        let transport = match (parsed.transport, transport) {
            // What a piece begins with is the whole's.
            _ if parsed.fragment.is_some() => TransportFields::Other,
            (Transport::Tcp { sequence, acknowledgment, flags, .. }, tcp) if tcp.len() >= 20 => {
                TransportFields::Tcp {
                    sequence,
                    acknowledgment,
                    window: number(&tcp[14..]),
                    flags,
                    reserved: tcp[12] & 15,
                    urgent: number(&tcp[18..]),
                }
            }
            (Transport::Udp { .. }, udp) if udp.len() >= 8 => {
                TransportFields::Udp { length: number(&udp[4..]) }
            }
            (Transport::Icmp { kind, code }, icmp) if icmp.len() >= 8 => {
                let has_id = icmp::has_id(parsed.network, kind, code);
                let word = |at: usize| if has_id { number(&icmp[at..]) } else { 0 };
                TransportFields::Icmp { id: word(4), sequence: word(6) }
            }
            _ => TransportFields::Other,
        };
        Self { network, transport }
    }
}

#[cfg(test)]
mod tests {
    use weir_wire::frame::Link;
    use weir_wire::parse::parse;

    use super::*;

    fn headers(ether_type: [u8; 2], packet: &[u8]) -> Headers {
        let mut bytes = vec![2; 12];
        bytes.extend(ether_type);
        bytes.extend(packet);
        Headers::of(&bytes, &parse(&bytes, Link::Ethernet, bytes.len() as u32))
    }

    #[test]
    fn fields_stand_where_the_rfcs_say() {
        let mut tcp = vec![0x45, 8, 0, 40, 0x12, 0x34, 0x40, 0, 63, 6, 0, 0, 10, 0, 0, 1];
        tcp.extend([10, 0, 0, 2, 0xc0, 0, 0, 80, 0, 0, 0, 7, 0, 0, 0, 9, 0x51, 0x18]);
        tcp.extend([0x20, 0x00, 0, 0, 0, 5]);
        let told = headers([8, 0], &tcp);
        let network = NetworkFields::Ipv4 { length: 40, service: 8, hops: 63, id: 0x1234 };
        let transport = TransportFields::Tcp {
            sequence: 7,
            acknowledgment: 9,
            window: 0x2000,
            flags: 0x18,
            reserved: 1,
            urgent: 5,
        };
        assert_eq!(told, Headers { network, transport });

        let mut echo = vec![0x6a, 0xb1, 0x23, 0x45, 0, 8, 58, 64];
        echo.extend([[0xfe; 16], [0xfd; 16]].concat());
        echo.extend([128, 0, 0, 0, 0, 3, 0, 4]);
        let told = headers([0x86, 0xdd], &echo);
        let network = NetworkFields::Ipv6 { length: 8, class: 0xab, hops: 64, label: 0x1_2345 };
        assert_eq!(told.network, network);
        assert_eq!(told.transport, TransportFields::Icmp { id: 3, sequence: 4 });
    }

    #[test]
    fn what_is_no_ip_or_was_cut_has_none() {
        let told = headers([8, 6], &[0; 28]);
        assert!(matches!(told.network, NetworkFields::Other { .. }), "{told:?}");
        assert_eq!(told.transport, TransportFields::Other);
        assert_eq!(headers([8, 0], &[0x45, 0, 0]).transport, TransportFields::Other);
    }

    #[test]
    fn what_a_piece_begins_with_is_of_the_whole() {
        let mut piece = vec![0x45, 0, 0, 36, 0, 1, 0x20, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2];
        piece.extend([0, 7, 0, 9, 0, 40, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8]);
        assert_eq!(headers([8, 0], &piece).transport, TransportFields::Other);
    }
}
