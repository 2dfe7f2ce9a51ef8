//! The packet that Suricata makes up for what it looks at when a flow is over.

use weir_wire::checksum::{Sum, ipv4_header, pseudo_header_v4, pseudo_header_v6};
use weir_wire::parse::{Network, Parsed, Transport};

const TCP: u8 = 6;
const TCP_LEN: u16 = 20;
/// What every one of them says of its receiver's room.
const WINDOW: u16 = 2560;
const TTL: u8 = 64;

/// One of the sender of `parsed`, whose stream goes on with the byte `next`: it says nothing.
pub(super) fn pseudo_packet(parsed: &Parsed, next: u32) -> Vec<u8> {
    let Transport::Tcp { source: from, destination: to, .. } = parsed.transport else {
        return Vec::new();
    };
    let mut segment = [from.to_be_bytes(), to.to_be_bytes()].concat();
    segment.extend(next.to_be_bytes());
    segment.extend([0, 0, 0, 0, 0x50, 0]);
    segment.extend(WINDOW.to_be_bytes());
    segment.extend([0; 4]);
    let (mut packet, sum) = head(parsed);
    let checksum = sum.with(&segment).checksum();
    segment[16..18].copy_from_slice(&checksum.to_be_bytes());
    packet.extend(segment);
    packet
}

/// Its header of IP, and the sum of what TCP's checksum covers of that.
fn head(parsed: &Parsed) -> (Vec<u8>, Sum) {
    let ends = [parsed.source, parsed.destination];
    if parsed.network == Network::Ipv6 {
        let mut head = vec![0x60, 0, 0, 0, 0, TCP_LEN as u8, TCP, TTL];
        head.extend(ends.concat());
        return (head, pseudo_header_v6(&ends[0], &ends[1], TCP, TCP_LEN.into()));
    }
    let [source, destination] = ends.map(|it| [it[12], it[13], it[14], it[15]]);
    let mut head = vec![0x45, 0, 0, 20 + TCP_LEN as u8, 0, 0, 0, 0, TTL, TCP, 0, 0];
    head.extend([source, destination].concat());
    let checksum = ipv4_header(&head);
    head[10..12].copy_from_slice(&checksum.to_be_bytes());
    (head, pseudo_header_v4(source, destination, TCP, TCP_LEN))
}
