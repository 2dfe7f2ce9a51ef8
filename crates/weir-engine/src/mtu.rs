//! Keeping packets small enough to be sealed: the TCP MSS and the RDMA path MTU are clamped while
//! a connection is set up; what is too big all the same is answered with ICMP.
//!
//! RoCE ignores ICMP, so for it the clamp in the connection manager's request is the only remedy.

use std::net::Ipv6Addr;

use weir_wire::checksum::{self, Sum};
use weir_wire::cm::{self, PathMtu};
use weir_wire::frame::Time;
use weir_wire::icrc::{self, IcrcStatus};
use weir_wire::parse::{MacAddress, Network, Parsed, Transport};

const TCP_SYN: u8 = 0x02;
const ETHERNET_LEN: u16 = 14;
const PROTOCOL_ICMP: u8 = 1;
const PROTOCOL_ICMPV6: u8 = 58;
/// RFC 1812 s4.3.2.3: an ICMPv4 error is at most 576 bytes long.
const ICMPV4_BYTES_MAX: usize = 576;
/// RFC 4443 s2.4 (c): an ICMPv6 error fits the minimum MTU.
const ICMPV6_BYTES_MAX: usize = 1280;

/// Lowers the MSS option of a TCP SYN so that segments fit IP packets of `ip_mtu` bytes. The
/// checksum is mended, unless it is partial (its sender's hardware will sum the new bytes).
/// Returns whether it changed the packet.
pub fn clamp_mss(bytes: &mut [u8], parsed: &Parsed, ip_mtu: u16, checksum_partial: bool) -> bool {
    let Transport::Tcp { flags, .. } = parsed.transport else { return false };
    if flags & TCP_SYN == 0 {
        return false;
    }
    let headers = match parsed.network {
        Network::Ipv4 => 40,
        Network::Ipv6 => 60,
        _ => return false,
    };
    let limit = ip_mtu.saturating_sub(headers);
    let tcp = parsed.transport_offset as usize;
    let Some(at) = mss_option(bytes, tcp, parsed.payload_offset as usize) else { return false };
    let old = u16::from_be_bytes([bytes[at], bytes[at + 1]]);
    if old <= limit {
        return false;
    }
    bytes[at..at + 2].copy_from_slice(&limit.to_be_bytes());
    if !checksum_partial {
        let field = tcp + 16;
        let sum = u16::from_be_bytes([bytes[field], bytes[field + 1]]);
        // An option at an odd offset straddles two of the summed words: swapped in both places.
        let (old, new) = match (at - tcp) % 2 {
            0 => (old, limit),
            _ => (old.swap_bytes(), limit.swap_bytes()),
        };
        let sum = checksum::updated(sum, old, new);
        bytes[field..field + 2].copy_from_slice(&sum.to_be_bytes());
    }
    true
}

/// Offset of the value of the MSS option (RFC 9293 s3.1) in the TCP header `bytes[tcp..end]`.
fn mss_option(bytes: &[u8], tcp: usize, end: usize) -> Option<usize> {
    let end = end.min(bytes.len());
    let mut at = tcp + 20;
    while at < end {
        match bytes[at] {
            0 => return None,
            1 => at += 1,
            kind => {
                let len = *bytes.get(at + 1)? as usize;
                if len < 2 || at + len > end {
                    return None;
                }
                if kind == 2 && len == 4 {
                    return Some(at + 2);
                }
                at += len;
            }
        }
    }
    None
}

/// Headers that a payload packet has at most behind the UDP header or GRH: BTH, RETH, immediate
/// data; and the ICRC behind the payload (IBTA Vol 1 s9.2 to s9.6).
const RDMA_HEADERS_LEN: usize = 12 + 16 + 4 + 4;

/// Lowers the path MTU in a connection manager's REQ so that RDMA packets fit IP packets of
/// `ip_mtu` bytes, and renews the ICRC. A packet whose ICRC is wrong stays as it is: its receiver
/// drops it. Returns whether it changed the packet.
pub fn clamp_path_mtu(bytes: &mut [u8], parsed: &Parsed, ip_mtu: u16) -> bool {
    let Some(rdma) = parsed.rdma else { return false };
    let headers = usize::from(rdma.bth_offset - parsed.network_offset) + RDMA_HEADERS_LEN;
    let Some(limit) = PathMtu::at_most(usize::from(ip_mtu).saturating_sub(headers)) else {
        return false;
    };
    let Some(asked) = cm::request_mut(bytes, parsed).and_then(|request| request.path_mtu()) else {
        return false;
    };
    if asked.bytes() <= limit.bytes() || icrc::check(bytes, parsed) != IcrcStatus::Valid {
        return false;
    }
    let Some(request) = cm::request_mut(bytes, parsed) else { return false };
    request.set_path_mtu(limit);
    icrc::write(bytes, parsed)
}

/// Whether the sender of a packet that is too big may and should be told by ICMP: IPv6, or IPv4
/// with DF; never about ICMP errors, fragments or group traffic (RFC 1122 s3.2.2, RFC 4443 s2.4).
pub fn may_answer(parsed: &Parsed, bytes: &[u8]) -> bool {
    let may_be_cut = || {
        let flags = bytes.get(parsed.network_offset as usize + 6);
        parsed.network == Network::Ipv4 && flags.is_none_or(|it| it & 0x40 == 0)
    };
    is_answerable(parsed) && !may_be_cut()
}

/// Whether a packet goes from one host to another, by its link header, which it has, and by its
/// addresses: only then can one be answered in the other's name.
pub fn is_between_hosts(parsed: &Parsed) -> bool {
    let is_host = |address: &[u8; 16]| match (parsed.network, address) {
        (Network::Ipv4, [.., first, _, _, _]) => !matches!(first, 0 | 127 | 224..=255),
        (_, address) => {
            let address = Ipv6Addr::from(*address);
            !(address.is_unspecified() || address.is_loopback() || address.is_multicast())
        }
    };
    let is_group = |mac: MacAddress| mac.0[0] & 1 == 1;
    parsed.network_offset >= ETHERNET_LEN
        && !is_group(parsed.link.source)
        && !is_group(parsed.link.destination)
        && is_host(&parsed.source)
        && is_host(&parsed.destination)
}

/// Whether ICMP may speak of a packet at all (RFC 1122 s3.2.2, RFC 4443 s2.4 (e)): not of a
/// group's, of later fragments, or of another error.
pub fn is_answerable(parsed: &Parsed) -> bool {
    if !is_between_hosts(parsed) || parsed.fragment.is_some_and(|f| f.offset > 0) {
        return false;
    }
    if let Transport::Icmp { kind, .. } = parsed.transport {
        let error = match parsed.network {
            Network::Ipv4 => matches!(kind, 3 | 4 | 5 | 11 | 12),
            _ => kind < 128,
        };
        if error {
            return false;
        }
    }
    matches!(parsed.network, Network::Ipv4 | Network::Ipv6)
}

/// Cuts an IPv4 packet that may be cut (RFC 791 s2.3) into fragments whose IP packets have at most
/// `ip_mtu` bytes, each with the link header. `None`: it may not be cut - DF, IPv6, options, or
/// RDMA, whose adapters put no fragments together.
pub fn cut(parsed: &Parsed, bytes: &[u8], ip_mtu: u16) -> Option<Vec<Vec<u8>>> {
    const HEADER_LEN: usize = 20;
    const DONT_FRAGMENT: u16 = 0x4000;
    const MORE_FRAGMENTS: u16 = 0x2000;
    let at = usize::from(parsed.network_offset);
    let packet = bytes.get(at..parsed.end as usize)?;
    let (header, payload) = packet.split_at_checked(HEADER_LEN)?;
    let flags = u16::from_be_bytes([header[6], header[7]]);
    let room = usize::from(ip_mtu).checked_sub(HEADER_LEN)? & !7;
    if parsed.network != Network::Ipv4
        || header[0] != 0x45
        || flags & DONT_FRAGMENT != 0
        || parsed.rdma.is_some()
        || room == 0
    {
        return None;
    }
    let first = flags & 0x1fff;
    let count = payload.len().div_ceil(room);
    let piece = |(number, piece): (usize, &[u8])| {
        let mut fragment = [&bytes[..at], header, piece].concat();
        let more = if number + 1 < count { MORE_FRAGMENTS } else { flags & MORE_FRAGMENTS };
        let offset = more | (first + (number * room / 8) as u16);
        let header = &mut fragment[at..at + HEADER_LEN];
        header[2..4].copy_from_slice(&((HEADER_LEN + piece.len()) as u16).to_be_bytes());
        header[6..8].copy_from_slice(&offset.to_be_bytes());
        header[10..12].fill(0);
        let sum = checksum::ipv4_header(header);
        header[10..12].copy_from_slice(&sum.to_be_bytes());
        fragment
    };
    Some(payload.chunks(room).enumerate().map(piece).collect())
}

/// Length of the ICMP answer to a packet of `parsed.end` bytes.
pub fn answer_len(parsed: &Parsed) -> usize {
    let header = parsed.network_offset as usize;
    let quoted = (parsed.end as usize).saturating_sub(header);
    match parsed.network {
        Network::Ipv4 => header + 20 + 8 + quoted.min(ICMPV4_BYTES_MAX - 28),
        _ => header + 40 + 8 + quoted.min(ICMPV6_BYTES_MAX - 48),
    }
}

/// Writes "fragmentation needed" (RFC 1191) or "packet too big" (RFC 8201) for `bytes` into `out`,
/// which is [`answer_len`] long. It comes from the packet's destination, as from a router on the
/// way that has no address of its own.
pub fn answer_too_big(parsed: &Parsed, bytes: &[u8], mtu: u16, out: &mut [u8]) {
    let [high, low] = mtu.to_be_bytes();
    answer(parsed, bytes, ([3, 4, 0, 0, 0, 0, high, low], [2, 0, 0, 0, 0, 0, high, low]), out);
}

/// The same way "communication administratively prohibited" (RFC 1812 s5.2.7.1, RFC 4443 s3.1).
pub fn answer_prohibited(parsed: &Parsed, bytes: &[u8], out: &mut [u8]) {
    answer(parsed, bytes, ([3, 13, 0, 0, 0, 0, 0, 0], [1, 1, 0, 0, 0, 0, 0, 0]), out);
}

/// An ICMP or ICMPv6 message that begins with the first or second of `heads` and quotes `bytes`.
fn answer(parsed: &Parsed, bytes: &[u8], heads: ([u8; 8], [u8; 8]), out: &mut [u8]) {
    let at = parsed.network_offset as usize;
    out[..at].copy_from_slice(&bytes[..at]);
    out[..6].copy_from_slice(&parsed.link.source.0);
    out[6..12].copy_from_slice(&parsed.link.destination.0);
    let (link, packet) = out.split_at_mut(at);
    debug_assert!(link.len() >= usize::from(ETHERNET_LEN));
    match parsed.network {
        Network::Ipv4 => answer_v4(parsed, &bytes[at..], heads.0, packet),
        _ => answer_v6(parsed, &bytes[at..], heads.1, packet),
    }
    set_session_len(out, at);
}

/// An answer within a PPPoE session has another length than what it answers (RFC 2516 s4).
pub fn set_session_len(frame: &mut [u8], network: usize) {
    const ETHERTYPE: [u8; 2] = [0x88, 0x64];
    const PROTOCOL_LEN: usize = 2;
    const HEADER_LEN: usize = 6 + PROTOCOL_LEN;
    let Some(header) = network.checked_sub(HEADER_LEN) else { return };
    let payload = frame.len() - network + PROTOCOL_LEN;
    let is_session = header >= 14 && frame[header - 2..header] == ETHERTYPE;
    if let Some(payload) = u16::try_from(payload).ok().filter(|_| is_session) {
        frame[header + 4..header + 6].copy_from_slice(&payload.to_be_bytes());
    }
}

fn answer_v4(parsed: &Parsed, original: &[u8], head: [u8; 8], packet: &mut [u8]) {
    let total = packet.len() as u16;
    let (header, message) = packet.split_at_mut(20);
    header[0..2].copy_from_slice(&[0x45, 0]);
    header[2..4].copy_from_slice(&total.to_be_bytes());
    header[4..10].copy_from_slice(&[0, 0, 0, 0, 64, PROTOCOL_ICMP]);
    header[10..12].fill(0);
    header[12..16].copy_from_slice(&parsed.destination[12..]);
    header[16..20].copy_from_slice(&parsed.source[12..]);
    let sum = checksum::ipv4_header(header);
    header[10..12].copy_from_slice(&sum.to_be_bytes());
    message[..8].copy_from_slice(&head);
    let quoted = message.len() - 8;
    message[8..].copy_from_slice(&original[..quoted]);
    let sum = Sum::new().with(message).checksum();
    message[2..4].copy_from_slice(&sum.to_be_bytes());
}

fn answer_v6(parsed: &Parsed, original: &[u8], head: [u8; 8], packet: &mut [u8]) {
    let payload = (packet.len() - 40) as u16;
    let (header, message) = packet.split_at_mut(40);
    header[0..4].copy_from_slice(&[0x60, 0, 0, 0]);
    header[4..6].copy_from_slice(&payload.to_be_bytes());
    header[6..8].copy_from_slice(&[PROTOCOL_ICMPV6, 64]);
    header[8..24].copy_from_slice(&parsed.destination);
    header[24..40].copy_from_slice(&parsed.source);
    message[..8].copy_from_slice(&head);
    let quoted = message.len() - 8;
    message[8..].copy_from_slice(&original[..quoted]);
    let pseudo = checksum::pseudo_header_v6(
        &parsed.destination,
        &parsed.source,
        PROTOCOL_ICMPV6,
        u32::from(payload),
    );
    let sum = pseudo.with(message).checksum();
    message[2..4].copy_from_slice(&sum.to_be_bytes());
}

/// At most so many ICMP answers a second (RFC 4443 s2.4 (f)): a token bucket.
#[derive(Debug)]
pub struct AnswerLimit {
    tokens: u32,
    refilled: Time,
}

const ANSWERS_PER_SECOND: u32 = 100;

impl Default for AnswerLimit {
    fn default() -> Self {
        Self { tokens: ANSWERS_PER_SECOND, refilled: Time::default() }
    }
}

impl AnswerLimit {
    /// Takes one answer out, when there is one.
    pub fn take(&mut self, now: Time) -> bool {
        if now.since_ns(self.refilled) >= 1_000_000_000 {
            self.tokens = ANSWERS_PER_SECOND;
            self.refilled = now;
        }
        let granted = self.tokens > 0;
        self.tokens = self.tokens.saturating_sub(1);
        granted
    }
}
