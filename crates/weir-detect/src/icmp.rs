//! What stands where in messages of ICMP (RFC 792, RFC 950, RFC 1256) and ICMPv6 (RFC 4443).

use weir_wire::parse::{Network, Parsed, Transport};

/// Bytes before what a message of ICMP carries, at least.
const HEADER_LEN: usize = 8;
/// The same of ICMPv6, of types that have no more.
const SHORT_LEN: usize = 4;

/// Where what a message carries begins, in the bytes that were parsed: behind the times and routers
/// that it names. `None`: it is no message of ICMP.
pub fn payload_offset(parsed: &Parsed, bytes: &[u8]) -> Option<usize> {
    let Transport::Icmp { kind, .. } = parsed.transport else { return None };
    let start = usize::from(parsed.transport_offset);
    let message = bytes.get(start..parsed.end as usize).unwrap_or_default();
    let header = match (parsed.network, kind) {
        (Network::Ipv6, 1..=4 | 128 | 129) => HEADER_LEN,
        (Network::Ipv6, _) => SHORT_LEN,
        // One that is cut short names nobody.
        (_, 9 | 13 | 14) if HEADER_LEN + more(message) <= message.len() => {
            HEADER_LEN + more(message)
        }
        _ => HEADER_LEN,
    };
    Some(start + header.min(message.len()))
}

/// Bytes of an ICMP message of its type, beyond the eight that all have.
fn more(message: &[u8]) -> usize {
    match message {
        // A router's advertisement: so many addresses, of so many words.
        [9, _, _, _, count, words, ..] => usize::from(*count) * usize::from(*words) * 4,
        [13 | 14, ..] => 12,
        [17 | 18, ..] => 4,
        _ => 0,
    }
}

/// The length of an ICMP message's header, what its type has more included. An address mask is of
/// the header and of what the message carries, as by Suricata 8.0.7.
pub(crate) fn header_len(message: &[u8]) -> usize {
    HEADER_LEN + more(message)
}

/// Whether identifier and sequence stand in such a message: an echo, a timestamp, information or an
/// address mask, or an echo of ICMPv6.
pub(crate) fn has_id(network: Network, kind: u8, code: u8) -> bool {
    match network {
        Network::Ipv6 => matches!(kind, 128 | 129) && code == 0,
        _ => matches!(kind, 0 | 8 | 13..=18),
    }
}
