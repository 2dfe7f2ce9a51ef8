//! Which application it is, by how a side of a flow begins.

use crate::rule::Protocol;

/// What carries a flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TransportProtocol {
    Tcp,
    Udp,
}

/// What the first bytes of a side tell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Beginning {
    Is(Protocol),
    /// They may become one that is known.
    Open,
    /// None that is known begins so.
    Other,
}

/// Program of NFS (RFC 5531 s8).
const PROGRAM_NFS: u32 = 100_003;
const PORT_NFS: u16 = 2049;
const PORT_MQTT: u16 = 1883;
const PORT_PGSQL: u16 = 5432;
/// Longest line that tells SIP.
const LINE_LEN_MAX: usize = 1024;

/// What `bytes` of `side` tell; `port` is the server's.
pub(crate) fn beginning(
    transport: TransportProtocol,
    side: usize,
    bytes: &[u8],
    port: u16,
) -> Beginning {
    let is_netbios = transport == TransportProtocol::Tcp && matches!(port, 139 | 445);
    let of_any = match is_sip(bytes) {
        Some(true) => Some(Protocol::Sip),
        _ if is_netbios && behind_session_service(bytes).is_none() => return Beginning::Open,
        _ if is_netbios && behind_session_service(bytes) == Some(true) => Some(Protocol::Smb),
        _ => match transport {
            TransportProtocol::Tcp => stream(side, bytes, port),
            TransportProtocol::Udp => datagram(bytes, port),
        },
    };
    match of_any {
        Some(protocol) => Beginning::Is(protocol),
        None if is_sip(bytes).is_none() => Beginning::Open,
        None => Beginning::Other,
    }
}

/// Whether the first line ends in a version of SIP or begins with one; `None`: it may still.
fn is_sip(bytes: &[u8]) -> Option<bool> {
    const METHODS: [&[u8]; 14] = [
        b"INVITE ",
        b"REGISTER ",
        b"OPTIONS ",
        b"ACK ",
        b"BYE ",
        b"CANCEL ",
        b"UPDATE ",
        b"REFER ",
        b"PRACK ",
        b"SUBSCRIBE ",
        b"NOTIFY ",
        b"PUBLISH ",
        b"MESSAGE ",
        b"INFO ",
    ];
    const VERSION: &[u8] = b"SIP/2.0";
    // Empty lines keep connections alive.
    let blank = bytes.iter().take_while(|it| matches!(it, b'\r' | b'\n')).count();
    let bytes = &bytes[blank..];
    if bytes.starts_with(VERSION) {
        return Some(true);
    }
    if !METHODS.iter().any(|it| bytes.starts_with(it)) {
        return Some(false);
    }
    let head = &bytes[..bytes.len().min(LINE_LEN_MAX)];
    match head.iter().position(|it| *it == b'\n') {
        Some(end) => {
            let version = head[..end].trim_ascii_end().rsplit(|it| *it == b' ').next();
            Some(version.is_some_and(|it| it.starts_with(b"SIP/")))
        }
        None if head.len() == LINE_LEN_MAX => Some(false),
        None => None,
    }
}

/// Whether SMB comes behind a packet of NetBIOS's session service, a session's request for one (RFC
/// 1002 s4.3.1); `None`: it may still.
pub(crate) fn behind_session_service(bytes: &[u8]) -> Option<bool> {
    let Some(([0x81..=0x85, 0, 0, length], behind)) = bytes.split_first_chunk::<4>() else {
        return Some(false);
    };
    let next = behind.get(usize::from(*length)..).filter(|it| it.len() >= 8)?;
    Some(matches!(next, [0, _, _, _, 0xff | 0xfe, b'S', b'M', b'B', ..]))
}

fn begins(bytes: &[u8], words: &[&[u8]]) -> bool {
    let is_head =
        |it: &&[u8]| bytes.get(..it.len()).is_some_and(|it2| it2.eq_ignore_ascii_case(it));
    words.iter().any(is_head)
}

/// Words that clients of FTP begin with.
const FTP: [&[u8]; 16] = [
    b"USER ",
    b"PASS ",
    b"PORT ",
    b"PASV",
    b"FEAT",
    b"SYST",
    b"AUTH TLS",
    b"AUTH SSL",
    b"EPSV",
    b"EPRT ",
    b"RETR ",
    b"STOR ",
    b"LIST",
    b"CWD ",
    b"MKD ",
    b"SITE ",
];
const SMTP: [&[u8]; 6] = [b"EHLO ", b"HELO ", b"EHLO\r", b"HELO\r", b"MAIL FROM:", b"QUIT"];

fn stream(side: usize, bytes: &[u8], port: u16) -> Option<Protocol> {
    let is_client = side == 0;
    Some(match bytes {
        [_, _, _, _, 0xfd..=0xff, b'S', b'M', b'B', ..] => Protocol::Smb,
        // Clients of POP3 begin with a word of FTP's too.
        _ if port == 110 && is_client && begins(bytes, &[b"USER ", b"CAPA", b"AUTH", b"APOP "]) => {
            Protocol::Pop3
        }
        _ if port == 110 && !is_client && begins(bytes, &[b"+OK"]) => Protocol::Pop3,
        _ if is_client && begins(bytes, &SMTP) => Protocol::Smtp,
        _ if is_client && begins(bytes, &FTP) => Protocol::Ftp,
        _ if is_dcerpc(bytes) => Protocol::Dcerpc,
        [0x10, rest @ ..] if (is_client || port == PORT_MQTT) && is_mqtt(rest) => Protocol::Mqtt,
        // An answer that nobody asked for.
        [0x20, 2..=0x7f, 0 | 1, ..] if !is_client && port == PORT_MQTT => Protocol::Mqtt,
        [0x30..=0x3d | 0x82 | 0xa2, rest @ ..]
            if is_client && port == PORT_MQTT && is_mqtt_unintroduced(bytes[0], rest) =>
        {
            Protocol::Mqtt
        }
        [b'R', b'F', b'B', b' ', b'0', ..] => Protocol::Rfb,
        [0x05, 0x64, ..] if port == 20_000 => Protocol::Dnp3,
        _ if is_rpc_nfs(bytes.get(4..).unwrap_or_default(), bytes.len()) => Protocol::Nfs,
        // An answer that nobody asked for.
        _ if !is_client && port == PORT_NFS && is_answer_of_nfs(bytes) => Protocol::Nfs,
        _ if port == 502 && is_modbus(bytes) => Protocol::Modbus,
        _ if port == 88 && is_krb5(bytes.get(4..).unwrap_or_default()) => Protocol::Krb5,
        _ if matches!(port, 389 | 3268) && is_ldap(bytes) => Protocol::Ldap,
        _ if is_client && is_pgsql(bytes) => Protocol::Pgsql,
        // Who may come in, or may not.
        [b'R', 0, 0, 0, 8..=64, ..] | [b'E', 0, 0, _, _, b'S', ..]
            if !is_client && port == PORT_PGSQL =>
        {
            Protocol::Pgsql
        }
        // Behind a beginning that nobody saw.
        [b'Q', 0, 0, ..] if is_client && port == PORT_PGSQL && bytes.len() > 5 => Protocol::Pgsql,
        [0xff, 0xf0..=0xfe, ..] if port == 23 => Protocol::Telnet,
        _ if port == 44_818 && is_enip(bytes) => Protocol::Enip,
        _ if is_client && is_rdp(bytes, port) => Protocol::Rdp,
        _ if begins(bytes, &[b"* OK ", b"* PREAUTH "]) => Protocol::Imap,
        _ => return None,
    })
}

fn datagram(bytes: &[u8], port: u16) -> Option<Protocol> {
    Some(match (port, bytes) {
        (161 | 162, _) if is_snmp(bytes) => Protocol::Snmp,
        (88, _) if is_krb5(bytes) => Protocol::Krb5,
        (389, _) if is_ldap(bytes) => Protocol::Ldap,
        (500, _) if is_ike(bytes) => Protocol::Ike,
        (4500, [0, 0, 0, 0, rest @ ..]) if is_ike(rest) => Protocol::Ike,
        (5353, [_, _, _, _, ..]) if bytes.len() >= 12 => Protocol::Mdns,
        (67 | 68, [1 | 2, ..]) if bytes.len() >= 240 && bytes[236..240] == [99, 130, 83, 99] => {
            Protocol::Dhcp
        }
        (123, [first, ..]) if bytes.len() >= 12 && matches!(first >> 3 & 7, 1..=4) => Protocol::Ntp,
        (69, [0, 1..=5, ..]) => Protocol::Tftp,
        (PORT_NFS, _) if is_rpc_nfs(bytes, bytes.len()) => Protocol::Nfs,
        (44_818, _) if is_enip(bytes) => Protocol::Enip,
        (135, _) | (_, [4, 0, ..]) if is_dcerpc_datagram(bytes) => Protocol::Dcerpc,
        (_, [b'd', b'1' | b'2', b':', ..]) if is_dht(bytes) => Protocol::BittorrentDht,
        _ if super::quic::begins(bytes, port) => Protocol::Quic,
        _ => return None,
    })
}

/// The common header of C706 s12.6, of a connection.
fn is_dcerpc(bytes: &[u8]) -> bool {
    matches!(bytes, [5, 0 | 1, 0..=19, _, order, 0..=4, 0, 0, ..] if order & 0xee == 0)
}

/// The header of C706 s12.5, of datagrams.
fn is_dcerpc_datagram(bytes: &[u8]) -> bool {
    matches!(bytes, [4, 0..=10, _, _, order, 0..=4, ..] if order & 0xee == 0) && bytes.len() >= 80
}

/// What follows the first byte of PUBLISH, SUBSCRIBE or UNSUBSCRIBE of a client that sent no
/// CONNECT (MQTT 3.1.1 s3.3, s3.8): a length, and a topic that fits into it.
fn is_mqtt_unintroduced(first: u8, bytes: &[u8]) -> bool {
    let Some(end) = bytes.iter().take(4).position(|it| it & 0x80 == 0) else { return false };
    let length = bytes[..=end].iter().rev().fold(0, |all, it| all << 7 | usize::from(it & 0x7f));
    let is_publish = first >> 4 == 3;
    let before = if is_publish { 0 } else { 2 };
    let topic = bytes.get(end + 1 + before..).and_then(|it| it.first_chunk::<2>());
    let topic = topic.map(|it| usize::from(u16::from_be_bytes(*it)));
    first & 0x06 != 0x06 && topic.is_some_and(|it| it > 0 && before + 2 + it <= length)
}

/// What follows the first byte of CONNECT (MQTT 3.1.1 s3.1).
fn is_mqtt(bytes: &[u8]) -> bool {
    let length = bytes.iter().take(4).take_while(|it| **it & 0x80 != 0).count() + 1;
    let name = bytes.get(length..).unwrap_or_default();
    name.starts_with(b"\0\x04MQTT") || name.starts_with(b"\0\x06MQIsdp")
}

/// A call or a reply of ONC RPC (RFC 5531 s9), a call's for NFS.
fn is_rpc_nfs(bytes: &[u8], length: usize) -> bool {
    let word = |at: usize| {
        bytes.get(at..at + 4).map(|it| u32::from_be_bytes([it[0], it[1], it[2], it[3]]))
    };
    length >= 24 && word(4) == Some(0) && word(8) == Some(2) && word(12) == Some(PROGRAM_NFS)
}

fn is_answer_of_nfs(bytes: &[u8]) -> bool {
    super::nfs::begins(1, bytes) == Some(super::nfs::Beginning::Is)
}

pub(super) fn is_modbus(bytes: &[u8]) -> bool {
    matches!(bytes, [_, _, 0, 0, 0 | 1, _, _, function, ..] if *function != 0)
}

/// Begins with an application tag of a message of Kerberos (RFC 4120 s5.10).
fn is_krb5(bytes: &[u8]) -> bool {
    matches!(bytes, [0x6a..=0x6f | 0x74..=0x76 | 0x7e, ..])
}

/// A sequence of a number and an operation (RFC 4511 s4.1.1).
pub(super) fn is_ldap(bytes: &[u8]) -> bool {
    let Some((0x30, content)) = super::ber::outer(bytes) else { return false };
    matches!(content, [2, 1..=4, ..])
}

/// A sequence that begins with a version (RFC 1157 s4, RFC 3412 s6).
fn is_snmp(bytes: &[u8]) -> bool {
    let Some((0x30, content)) = super::ber::Ber::new(bytes).next() else { return false };
    // As long as somebody likes.
    matches!(content, [2, 1, 0 | 1 | 3, ..] | [2, 2, 0, 0 | 1 | 3, ..])
}

/// A request, an answer or an error (BEP 5), or whom an answer is for (BEP 42).
fn is_dht(bytes: &[u8]) -> bool {
    const BEGINNINGS: [&[u8]; 5] =
        [b"d1:ad2:id20:", b"d1:rd2:id20:", b"d1:eli20", b"d2:ip6:", b"d2:ip18:"];
    BEGINNINGS.iter().any(|it| bytes.starts_with(it))
}

/// RFC 7296 s3.1, RFC 2408 s3.1.
fn is_ike(bytes: &[u8]) -> bool {
    bytes.len() >= 28
        && matches!(bytes[17], 0x10 | 0x20)
        && u32::from_be_bytes([bytes[24], bytes[25], bytes[26], bytes[27]]) as usize <= bytes.len()
}

/// A StartupMessage, SSLRequest, GSSENCRequest or CancelRequest.
fn is_pgsql(bytes: &[u8]) -> bool {
    let Some((head, _)) = bytes.split_first_chunk::<8>() else { return false };
    let length = u32::from_be_bytes([head[0], head[1], head[2], head[3]]);
    let code = u32::from_be_bytes([head[4], head[5], head[6], head[7]]);
    match code {
        0x0003_0000 => (9..10_000).contains(&length),
        80_877_103 | 80_877_104 => length == 8,
        80_877_102 => length == 16,
        _ => false,
    }
}

fn is_enip(bytes: &[u8]) -> bool {
    let known = |command: u8| matches!(command, 0 | 4 | 0x63..=0x66 | 0x6f | 0x70 | 0x72 | 0x73);
    bytes.len() >= 24 && bytes[1] == 0 && known(bytes[0])
}

/// A connection request of X.224 in a TPKT (RFC 1006 s6); at other ports than RDP's, one that says
/// what only RDP's do.
fn is_rdp(bytes: &[u8], port: u16) -> bool {
    (port == 3389 && matches!(bytes, [3, 0, _, _, _, 0xe0, 0, 0, _, _, 0, ..]))
        || matches!(
            bytes,
            [3, 0, _, _, _, 0xe0, 0, 0, _, _, 0, b'C', b'o', b'o', b'k', b'i', b'e', ..]
        )
        || matches!(bytes, [3, 0, 0, 19, 14, 0xe0, 0, 0, _, _, 0, 1, _, 8, 0, ..])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tcp(side: usize, bytes: &[u8], port: u16) -> Beginning {
        beginning(TransportProtocol::Tcp, side, bytes, port)
    }

    #[test]
    fn a_side_is_told_by_its_first_bytes() {
        assert_eq!(tcp(0, b"EHLO me\r\n", 25), Beginning::Is(Protocol::Smtp));
        assert_eq!(tcp(0, b"USER me\r\n", 21), Beginning::Is(Protocol::Ftp));
        assert_eq!(tcp(0, b"USER me\r\n", 110), Beginning::Is(Protocol::Pop3));
        assert_eq!(tcp(1, b"+OK ready\r\n", 110), Beginning::Is(Protocol::Pop3));
        assert_eq!(tcp(1, b"RFB 003.008\n", 5900), Beginning::Is(Protocol::Rfb));
        assert_eq!(tcp(0, b"\x10\x10\0\x04MQTT\x04", 1), Beginning::Is(Protocol::Mqtt));
        assert_eq!(tcp(1, b"\x10\x10\0\x04MQTT\x04", 1883), Beginning::Is(Protocol::Mqtt));
        assert_eq!(tcp(1, b"\x20\x02\0\0", 1883), Beginning::Is(Protocol::Mqtt));
        assert_eq!(tcp(1, b"\x20\x02\0\0", 1), Beginning::Other);
        assert_eq!(tcp(1, b"R\0\0\0\x08\0\0\0\0", 5432), Beginning::Is(Protocol::Pgsql));
        assert_eq!(tcp(0, b"GET / HTTP/1.1\r\n", 80), Beginning::Other);
    }

    #[test]
    fn smb_may_come_behind_packets_of_the_session_service() {
        let smb = b"\0\0\0\x40\xfeSMB";
        let asked = [&b"\x81\0\0\x02ab"[..], smb].concat();
        assert_eq!(tcp(0, &asked, 139), Beginning::Is(Protocol::Smb));
        assert_eq!(tcp(0, &asked[..9], 139), Beginning::Open);
        assert_eq!(tcp(0, b"\x81\0\0\x02abnothing else", 139), Beginning::Other);
        assert_eq!(tcp(0, &asked, 80), Beginning::Other);
    }

    #[test]
    fn requests_of_sip_are_told_from_those_of_http_by_their_version() {
        assert_eq!(tcp(0, b"OPTIONS sip:a SIP/2.0\r\n", 80), Beginning::Is(Protocol::Sip));
        assert_eq!(tcp(0, b"OPTIONS * HTTP/1.1\r\n", 80), Beginning::Other);
        assert_eq!(tcp(0, b"OPTIONS ", 80), Beginning::Open);
    }
}
