//! What lies where in a unit: the whole, its head, what it carries, by the names of their frames.

use std::ops::Range;

use crate::rule::Protocol;

/// Tells of a part, by its name and place: in the order in which EVE numbers them.
type Tell<'a> = &'a mut dyn FnMut(&'static str, Range<usize>);

/// Bytes of heads: of SMB 1, 2 and 3 (MS-CIFS s2.2.3.1, MS-SMB2 s2.2.1 and 2.2.41), of
/// EtherNet/IP, of DCE/RPC's connections and datagrams, of HTTP/2's frames.
const SMB1: usize = 32;
const SMB2: usize = 64;
const SMB3: usize = 52;
const ENIP: usize = 24;
const DCERPC: usize = 16;
const DCERPC_DATAGRAM: usize = 80;
const HTTP2: usize = 9;
/// An ONC RPC call's head, up to its credentials, and a reply's up to its verifier
/// (RFC 5531 s9).
const CALL: usize = 24;
const REPLY: usize = 12;

/// The parts of a unit of a stream that `side` has sent.
pub(super) fn of_unit(protocol: Protocol, side: usize, unit: &[u8], tell: Tell<'_>) {
    let end = unit.len();
    match protocol {
        Protocol::Http => tell(["request", "response"][side], 0..end),
        Protocol::Tls => tls(unit, tell),
        Protocol::Smb => smb(unit, tell),
        Protocol::Dns => tell("pdu", 2..end),
        Protocol::Nfs => rpc(unit, 4, side, tell),
        Protocol::Http2 | Protocol::Doh2 => {
            head_and_data(["hdr", "data"], HTTP2, end, tell);
            tell("pdu", 0..end);
        }
        Protocol::Websocket => head_first(["header", "data"], websocket(unit), end, tell),
        Protocol::Mqtt => {
            let digits = unit.iter().skip(1).take_while(|it| **it & 0x80 != 0).count();
            whole(["header", "data", "pdu"], digits + 2, end, tell);
        }
        Protocol::Ssh => whole(["record.hdr", "record.data", "record.pdu"], 6, end, tell),
        Protocol::Dcerpc => head_first(["hdr", "data"], DCERPC, end, tell),
        Protocol::Smtp if side == 1 => tell("response_line", 0..end),
        Protocol::Smtp => {
            let lines = memchr::memchr_iter(b'\n', unit).take(2).count();
            if lines > 1 {
                return tell("data", 0..end);
            }
            // With the line's end, and without.
            tell("command_line", 0..end);
            let said = unit.trim_ascii_end().len();
            if said > 0 {
                tell("command_line", 0..said);
            }
        }
        Protocol::Telnet => {
            tell("pdu", 0..end);
            tell(if unit[0] == 0xff { "ctl" } else { "data" }, 0..end);
        }
        other => of_datagram(other, side, unit, tell),
    }
}

/// The parts of a datagram.
pub(super) fn of_datagram(protocol: Protocol, side: usize, unit: &[u8], tell: Tell<'_>) {
    let end = unit.len();
    match protocol {
        Protocol::Nfs => rpc(unit, 0, side, tell),
        Protocol::Sip => sip(side, unit, tell),
        Protocol::Enip => enip(unit, tell),
        Protocol::Dcerpc => head_first(["hdr", "data"], DCERPC_DATAGRAM, end, tell),
        _ => tell("pdu", 0..end),
    }
}

/// The whole, its head, and what is behind that.
fn whole(names: [&'static str; 3], head: usize, end: usize, tell: Tell<'_>) {
    let [name, data, pdu] = names;
    tell(pdu, 0..end);
    head_and_data([name, data], head, end, tell);
}

fn head_and_data([name, data]: [&'static str; 2], head: usize, end: usize, tell: Tell<'_>) {
    if head <= end {
        tell(name, 0..head);
        tell(data, head..end);
    }
}

/// A head, the whole, which is called `pdu`, and what is behind the head.
fn head_first([name, data]: [&'static str; 2], head: usize, end: usize, tell: Tell<'_>) {
    if head <= end {
        tell(name, 0..head);
    }
    tell("pdu", 0..end);
    if head <= end {
        tell(data, head..end);
    }
}

fn tls(unit: &[u8], tell: Tell<'_>) {
    let end = unit.len();
    if unit[0] & 0x80 != 0 {
        tell("ssl2.pdu", 0..end);
        tell("ssl2.hdr", 0..end.min(2));
        return;
    }
    head_first(["hdr", "data"], 5, end, tell);
    match unit[0] {
        0x15 => tell("alert", 5..end),
        0x18 => tell("heartbeat", 5..end),
        _ => {}
    }
}

/// NetBIOS's session service, and the messages in it; those of SMB 2 lie one behind the other.
fn smb(unit: &[u8], tell: Tell<'_>) {
    let end = unit.len();
    whole(["nbss.hdr", "nbss.data", "nbss.pdu"], 4, end, tell);
    let mut at = 4;
    while let Some(message) = unit.get(at..) {
        let (names, head, length) = match message {
            [0xff, b'S', b'M', b'B', ..] => {
                (["smb1.hdr", "smb1.data", "smb1.pdu"], SMB1, message.len())
            }
            [0xfd, b'S', b'M', b'B', ..] => {
                (["smb3.hdr", "smb3.data", "smb3.pdu"], SMB3, message.len())
            }
            [0xfe, b'S', b'M', b'B', ..] => {
                let next = message
                    .get(20..24)
                    .map_or(0, |it| u32::from_le_bytes([it[0], it[1], it[2], it[3]]) as usize);
                let length = if next >= SMB2 { next.min(message.len()) } else { message.len() };
                (["smb2.hdr", "smb2.data", "smb2.pdu"], SMB2, length)
            }
            _ => return,
        };
        whole(names, head, length, &mut |name, part| tell(name, part.start + at..part.end + at));
        at += length;
    }
}

/// A call or a reply, behind `mark` bytes that say how long it is.
fn rpc(unit: &[u8], mark: usize, side: usize, tell: Tell<'_>) {
    let end = unit.len();
    tell("rpc.pdu", 0..end);
    let word = |at: usize| {
        let bytes = unit.get(mark + at..mark + at + 4)?;
        Some(u32::from_be_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]) as usize)
    };
    // What is longer than the unit ends with it.
    let behind = |at: usize| word(at + 4).map(|it| (at + 8).saturating_add(it.next_multiple_of(4)));
    if side == 1 {
        let Some(data) = behind(REPLY).map(|it| mark + it + 4).filter(|it| *it <= end) else {
            return;
        };
        tell("rpc.hdr", 0..mark + 8);
        tell("rpc.data", mark + 8..end);
        if data + 4 <= end {
            tell("nfs.pdu", data..end);
            tell("nfs.status", data..data + 4);
        }
        return;
    }
    let Some(verifier) = behind(CALL).filter(|it| mark + it <= end) else { return };
    let Some(data) = behind(verifier).map(|it| mark + it).filter(|it| *it <= end) else { return };
    tell("rpc.creds", mark + CALL..mark + verifier);
    let is_four = word(16) == Some(4);
    tell(if is_four { "nfs4.pdu" } else { "nfs.pdu" }, data..end);
}

fn sip(side: usize, unit: &[u8], tell: Tell<'_>) {
    let end = unit.len();
    tell("pdu", 0..end);
    let line = memchr::memchr(b'\n', unit).map_or(end, |it| it + 1);
    let head = unit.windows(4).position(|it| it == b"\r\n\r\n").map(|it| it + 2);
    let names = [
        ["request.line", "request.headers", "request.body"],
        ["response.line", "response.headers", "response.body"],
    ];
    let [of_line, of_headers, of_body] = names[side];
    tell(of_line, 0..line);
    let Some(head) = head.filter(|it| *it >= line) else { return };
    tell(of_headers, line..head);
    if head + 2 < end {
        tell(of_body, head + 2..end);
    }
}

/// Bytes of a WebSocket frame's head.
fn websocket(unit: &[u8]) -> usize {
    let second = unit.get(1).copied().unwrap_or_default();
    let mask = if second & 0x80 != 0 { 4 } else { 0 };
    let length = match second & 0x7f {
        126 => 2,
        127 => 8,
        _ => 0,
    };
    2 + length + mask
}

/// A command, its items, and the message of CIP in one.
fn enip(unit: &[u8], tell: Tell<'_>) {
    let end = unit.len();
    head_and_data(["hdr", "data"], ENIP, end, tell);
    tell("pdu", 0..end);
    let word = |at: usize| {
        let bytes = unit.get(at..at + 2)?;
        Some(usize::from(u16::from_le_bytes([bytes[0], bytes[1]])))
    };
    // Behind an interface handle and a timeout, of commands that carry items.
    let is_data = matches!(word(0), Some(0x6f | 0x70));
    let mut at = if is_data { ENIP + 6 } else { ENIP };
    let is_of_items = is_data || matches!(word(0), Some(4 | 0x63 | 0x64));
    let Some(count) = word(at).filter(|_| is_of_items) else { return };
    at += 2;
    for _ in 0..count.min(64) {
        let (Some(kind), Some(length)) = (word(at), word(at + 2)) else { return };
        let item = at..(at + 4 + length).min(end);
        // Of connected ones a number stands before it.
        let from = item.start + if kind == 0xb1 { 6 } else { 4 };
        at = item.end;
        tell("enip.item", item.clone());
        if matches!(kind, 0xb1 | 0xb2) && from < item.end {
            tell("cip", from..item.end);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(protocol: Protocol, side: usize, unit: &[u8]) -> Vec<(&'static str, Range<usize>)> {
        let mut found = Vec::new();
        of_unit(protocol, side, unit, &mut |name, part| found.push((name, part)));
        found
    }

    #[test]
    fn a_record_of_tls_has_a_head_and_data() {
        let parts = told(Protocol::Tls, 0, b"\x15\x03\x03\x00\x02\x01\x00");
        assert_eq!(parts, [("hdr", 0..5), ("pdu", 0..7), ("data", 5..7), ("alert", 5..7)]);
    }

    #[test]
    fn messages_of_smb_2_lie_one_behind_the_other() {
        let mut message = b"\xfeSMB".to_vec();
        message.resize(72, 0);
        let mut first = message.clone();
        first[20] = 72;
        let unit = [&b"\0\0\0\x90"[..], &first, &message].concat();
        let found = told(Protocol::Smb, 0, &unit);
        assert_eq!(found[0], ("nbss.pdu", 0..148));
        let of_two: Vec<_> = found.into_iter().filter(|it| it.0 == "smb2.data").collect();
        assert_eq!(of_two, [("smb2.data", 68..76), ("smb2.data", 140..148)]);
    }

    #[test]
    fn a_message_of_sip_has_lines_and_a_body() {
        let parts = told(Protocol::Sip, 1, b"SIP/2.0 200 OK\r\nVia: a\r\n\r\nbody");
        assert_eq!(
            parts[1..],
            [("response.line", 0..16), ("response.headers", 16..24), ("response.body", 26..30)]
        );
    }

    #[test]
    fn parts_lie_within_their_units() {
        for protocol in [Protocol::Nfs, Protocol::Enip, Protocol::Smb, Protocol::Tls] {
            for length in 1..80 {
                for byte in [0, 0x11, 0x70, 0xff] {
                    let unit = vec![byte; length];
                    for (name, part) in told(protocol, length % 2, &unit) {
                        assert!(part.start <= part.end && part.end <= length, "{name} {part:?}");
                    }
                }
            }
        }
    }
}
