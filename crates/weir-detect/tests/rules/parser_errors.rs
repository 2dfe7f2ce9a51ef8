//! Where parsers of applications give up, and where they read on: Suricata 8.0.7 was asked about
//! each case, and does the same unless one says otherwise.

use weir_detect::{Decision, Direction, Limits, Unseen};

use crate::bench::{Bench, CLIENT, SERVER, udp};

use Direction::{Initiator as C, Responder as S};

/// What a side says.
type Said<'a> = (Direction, &'a [u8]);

const CUT_OFF: Decision = Decision::Unseen(Unseen::ParserError);

fn bench(port: u16) -> Bench {
    let limits = Limits { sees_all: true, refuses_parser_errors: true, ..Limits::default() };
    let mut bench = Bench::with("alert tcp any any -> any 9 (sid:1;)", limits);
    bench.server_port = port;
    bench
}

/// The place of what a connection is cut off with; `None`: of nothing.
fn stream(port: u16, said: &[Said<'_>]) -> Option<usize> {
    let mut bench = bench(port);
    bench.connect();
    said.iter().position(|(side, bytes)| bench.data(*side, bytes) == CUT_OFF)
}

/// The same of datagrams of a client.
fn datagrams(port: u16, said: &[&[u8]]) -> Option<usize> {
    let mut bench = bench(port);
    let mut send = |bytes: &[u8]| bench.send(C, &udp(CLIENT, SERVER, 40_000, port, bytes));
    said.iter().position(|bytes| send(bytes) == CUT_OFF)
}

#[track_caller]
fn gives_up(port: u16, said: &[Said<'_>]) {
    assert_eq!(stream(port, said), Some(said.len() - 1), "{:?}", said.last());
}

#[track_caller]
fn reads_on(port: u16, said: &[Said<'_>]) {
    assert_eq!(stream(port, said), None, "{:?}", said.last());
}

/// A hello of TLS without extensions.
fn hello() -> Vec<u8> {
    let body = [&[3, 3][..], &[0; 32], &[0, 0, 2, 0x13, 1, 1, 0]].concat();
    let message = [&[1, 0, 0, body.len() as u8], &body[..]].concat();
    [&[22, 3, 1, 0, message.len() as u8], &message[..]].concat()
}

#[test]
fn tls_ends_at_what_is_no_record() {
    let hello = hello();
    gives_up(443, &[(C, &hello), (C, b"\x16\x05\0\0\x01a")]);
    reads_on(443, &[(C, &hello), (C, b"\x63\x03\x03\0\x01a")]);
    reads_on(443, &[(C, &hello), (C, b"\x16\x03\x03\0\x05\x63\0\0\x01a")]);
    let encrypted: &[u8] = b"\x14\x03\x03\0\x01\x01\x17\x03\x03\0\x03abc";
    reads_on(443, &[(C, &hello), (C, encrypted), (S, encrypted), (C, b"GET / HTTP/1.1\r\n")]);
}

#[test]
fn ssh_ends_at_what_is_no_banner_and_no_packet() {
    const BANNER: &[u8] = b"SSH-2.0-a\r\n";
    gives_up(22, &[(C, BANNER), (S, b"SSH-2\r\n")]);
    gives_up(22, &[(C, BANNER), (S, BANNER), (C, b"\0\0\0\x01....")]);
    // Servers may say other things before (RFC 4253 s4.2); Suricata takes none of them.
    reads_on(22, &[(C, BANNER), (S, b"welcome\r\nSSH-2.0-b\r\n")]);
}

#[test]
fn dns_over_tcp_ends_at_what_is_no_message() {
    const HEAD: &[u8] = b"\x12\x34\x01\0\0\x01\0\0\0\0\0\0";
    let query = [b"\0\x21", HEAD, b"\x03www\x07example\x03org\0\0\x01\0\x01"].concat();
    gives_up(53, &[(C, &query), (C, b"\0\x05abcde")]);
    reads_on(53, &[(C, &query), (C, b"\0\0"), (C, &query)]);
}

#[test]
fn http_ends_where_nobody_knows_how_long_a_message_is() {
    const GET: &[u8] = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n";
    let post = |field: &str| format!("POST / HTTP/1.1\r\nHost: a\r\n{field}\r\n\r\n").into_bytes();
    gives_up(80, &[(C, &post("Content-Length: abc"))]);
    gives_up(80, &[(C, &post("Transfer-Encoding: weird"))]);
    gives_up(80, &[(C, &post("Transfer-Encoding: chunked")), (C, b"zz\r\n")]);
    let long = [b"GET /", &[b'a'; 20_000][..]].concat();
    gives_up(80, &[(C, &long)]);
    let answer = |field: &str| format!("HTTP/1.1 200 OK\r\n{field}\r\n\r\n").into_bytes();
    gives_up(80, &[(C, GET), (S, &answer("Content-Length: abc"))]);
    // What these end with, the end of the connection does.
    reads_on(80, &[(C, GET), (S, &answer("Transfer-Encoding: chunked")), (S, b"zz\r\nab\r\n")]);
    reads_on(80, &[(C, GET), (S, b"nonsense\r\n\r\n")]);
    reads_on(80, &[(C, GET), (C, b"\x01\x02 nonsense\r\n\r\n"), (C, GET)]);
    reads_on(80, &[(C, &post("Content-Length: 2")), (S, &answer("Content-Length: 0"))]);
}

#[test]
fn other_streams_end_at_what_is_no_message_of_theirs() {
    const CONNECT: &[u8] = b"\x10\x10\0\x04MQTT\x04\x02\0\x3c\0\x04abcd";
    gives_up(1883, &[(C, CONNECT), (C, b"\x30\xff\xff\xff\xff\x7f")]);
    gives_up(1883, &[(C, CONNECT), (C, b"\x30\x03\0\x50a")]);
    const BIND: &[u8] = b"\x30\x0c\x02\x01\x01\x60\x07\x02\x01\x03\x04\0\x80\0";
    gives_up(389, &[(C, BIND), (C, b"\x30\x06\x04\x01\x01abc")]);
    const STARTUP: &[u8] = b"\0\0\0\x11\0\x03\0\0user\0me\0\0";
    gives_up(5432, &[(C, STARTUP), (S, b"R\0\0\0\x08\0\0\0\0"), (C, b"Q\0\0\0\x01")]);
    gives_up(5900, &[(S, b"RFB 003.008\n"), (C, b"RFB nonsense")]);
    gives_up(5060, &[(C, b"REGISTER sip:a SIP/2.0\r\n\r\n"), (C, b"nonsense\r\n\r\n")]);
    let smb = |head: &[u8]| [&[0, 0, 0, head.len() as u8 + 10], head, &[0; 10]].concat();
    let negotiation = [
        b"\0\0\0\x2f\xffSMB\x72\0\0\0\0\x18\x53\xc8".as_slice(),
        &[0; 20],
        b"\0\x0c\0\x02NT LM 0.12\0\0\0\0",
    ];
    let negotiation = &negotiation.concat()[..51];
    gives_up(445, &[(C, negotiation), (C, &smb(b"\xfeSMB"))]);
    reads_on(445, &[(C, negotiation), (C, &smb(b"\xfaSMB"))]);
    const READ: &[u8] = b"\0\x01\0\0\0\x06\x01\x03\0\0\0\x01";
    reads_on(502, &[(C, READ), (C, b"\0\x01\0\x07\0\x06\x01\x03\0\0\0\x01")]);
    reads_on(502, &[(C, READ), (C, b"\0\x01\0\0\0\x01\x01\x03\0\0\0\x01")]);
}

#[test]
fn lines_of_text_and_frames_that_are_found_again_end_nothing() {
    reads_on(110, &[(S, b"+OK\r\n"), (C, b"USER a\r\n"), (S, b"what\r\n")]);
    reads_on(21, &[(S, b"220 a\r\n"), (C, b"USER a\r\n"), (S, b"what\r\n")]);
    reads_on(25, &[(S, b"220 a\r\n"), (C, b"EHLO a\r\n"), (S, b"what\r\n"), (C, b"QUIT\r\n")]);
    reads_on(20_000, &[(C, b"\x05\x64\x05\xc0\x01\0\x02\0\0\0"), (C, b"nonsense!!")]);
}

#[test]
fn what_keeps_a_mapping_alive_and_others_on_the_same_ports_ends_nothing() {
    let stun = b"\0\x01\0\0\x21\x12\xa4\x42transaction.";
    let register: &[u8] = b"REGISTER sip:a SIP/2.0\r\n\r\n";
    assert_eq!(datagrams(5060, &[register, b"\r\n\r\n", b"\0\0\0\0", stun, register]), None);
    let request: &[u8] = b"\0\x01file\0octet\0";
    let (data, options): (&[u8], &[u8]) = (b"\0\x03\0\x01abc", b"\0\x06tsize\x000\0");
    assert_eq!(datagrams(69, &[request, options, data]), None);
    let ike = [&[7; 16][..], &[0, 0x20, 34, 8, 0, 0, 0, 0, 0, 0, 0, 28]].concat();
    assert_eq!(datagrams(500, &[&ike, b"\xff", &ike]), None);
}

#[test]
fn postgresql_that_is_encrypted_by_gss_api_is_not_read() {
    reads_on(
        5432,
        &[
            (C, b"\0\0\0\x08\x04\xd2\x16/"),
            (S, b"N"),
            (C, b"\0\0\0\x08\x04\xd2\x160"),
            (S, b"G"),
            (C, b"\0\0\0\x40 a token of GSS-API"),
        ],
    );
}

#[test]
fn datagrams_are_dropped_that_are_no_message_of_their_flow() {
    let ends = |port, first: &[u8], other: &[u8]| {
        assert_eq!(datagrams(port, &[first, other, first]), Some(1), "{port}");
        assert_eq!(datagrams(port, &[first, first]), None, "{port}");
    };
    ends(123, &[0x23; 48], b"\x23abc");
    ends(69, b"\0\x01file\0octet\0", b"\0\x01file\0weird\0");
    ends(5060, b"REGISTER sip:a SIP/2.0\r\n\r\n", b"REGISTER \r\n\r\n");
    let ping = b"d1:ad2:id20:abcdefghij0123456789e1:q4:ping1:t2:aa1:y1:qe";
    ends(6881, ping, b"d1:ad2:id20:abce");
    let dhcp = [&[1, 1, 6, 0][..], &[0; 232], &[99, 130, 83, 99, 53, 1, 1, 255]].concat();
    ends(67, &dhcp, &dhcp[..200]);
    let get = b"\x30\x1c\x02\x01\x01\x04\x06public\xa0\x0f\x02\x01\x01\x02\x01\0\x02\x01\0\x30\x04\
                \x30\x02\x06\0";
    ends(161, get, b"\x30\x06\x04\x01\x01abc");
}
