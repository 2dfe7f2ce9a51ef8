//! What sessions show before they are encrypted, and HTTP/2.

use weir_detect::{Direction, Limits};

use crate::bench::{Bench, refused};

fn der(tag: u8, content: &[u8]) -> Vec<u8> {
    let length = content.len() as u16;
    match length {
        0..128 => [&[tag, length as u8], content].concat(),
        _ => [&[tag, 0x82], length.to_be_bytes().as_slice(), content].concat(),
    }
}

/// A certificate of `CN=name` by `CN=issuer`, valid in the years from `from` to `to`, with
/// alternative names between commas.
pub(crate) fn certificate(
    name: &str,
    issuer: &str,
    from: &str,
    to: &str,
    alternative: &str,
) -> Vec<u8> {
    let named = |name: &str| {
        let pair = [der(6, &[0x55, 4, 3]), der(0x0c, name.as_bytes())].concat();
        der(0x30, &der(0x31, &der(0x30, &pair)))
    };
    let year = |year: &str| der(0x18, format!("{year}0101000000Z").as_bytes());
    let names: Vec<u8> = alternative.split(',').flat_map(|it| der(0x82, it.as_bytes())).collect();
    let names = der(4, &der(0x30, &names));
    let extension = der(0x30, &[der(6, &[0x55, 29, 17]), names].concat());
    let fields = [
        der(2, &[0x12, 0x34]),
        der(0x30, &[]),
        named(issuer),
        der(0x30, &[year(from), year(to)].concat()),
        named(name),
        der(0x30, &[]),
        der(0xa3, &der(0x30, &extension)),
    ];
    der(0x30, &der(0x30, &fields.concat()))
}

pub(crate) fn handshake(kind: u8, body: &[u8]) -> Vec<u8> {
    let message = [&[kind], &(body.len() as u32).to_be_bytes()[1..], body].concat();
    [&[22, 3, 3], (message.len() as u16).to_be_bytes().as_slice(), &message].concat()
}

fn counted(width: usize, bytes: &[u8]) -> Vec<u8> {
    [&(bytes.len() as u32).to_be_bytes()[4 - width..], bytes].concat()
}

pub(crate) fn hello(kind: u8, suites: &[u8], protocol: &str) -> Vec<u8> {
    let random: Vec<u8> = (0..32).collect();
    let alpn = counted(2, &counted(2, &counted(1, protocol.as_bytes())));
    let extensions = counted(2, &[&[0, 16], alpn.as_slice()].concat());
    handshake(kind, &[&[3, 3], random.as_slice(), &[0], suites, &extensions].concat())
}

fn client_hello() -> Vec<u8> {
    hello(1, &[0, 2, 0x13, 1, 1, 0], "h2")
}

pub(crate) fn chain(certificates: &[Vec<u8>]) -> Vec<u8> {
    let list: Vec<u8> = certificates.iter().flat_map(|it| counted(3, it)).collect();
    handshake(11, &counted(3, &list))
}

const TLS: &str = "\
    alert tls any any -> any any (tls.subject:\"CN=good.org\"; sid:1;)\n\
    alert tls any any -> any any (tls.issuerdn:!\"CN=root\"; sid:2;)\n\
    alert tls any any -> any any (tls_cert_notbefore:>2019-12-31; sid:3;)\n\
    alert tls any any -> any any (tls_cert_notafter:2020<>2022; sid:4;)\n\
    alert tls any any -> any any (tls_cert_expired; sid:5;)\n\
    alert tls any any -> any any (tls_cert_valid; sid:6;)\n\
    alert tls any any -> any any (tls.cert_chain_len:2; sid:7;)\n\
    alert tls any any -> any any (tls.subjectaltname; content:\"alt.org\"; bsize:7; sid:8;)\n\
    alert tls any any -> any any (flow:to_server; tls.alpn; content:\"h2\"; sid:9;)\n\
    alert tls any any -> any any (tls.random_time; content:\"|00 01 02 03|\"; bsize:4; sid:10;)\n\
    alert tls any any -> any any (tls.random_bytes; content:\"|04 05|\"; startswith; sid:11;)\n\
    alert tls any any -> any any (flow:to_server; ssl_state:client_hello; sid:12;)\n\
    alert tls any any -> any any (flow:to_server; ssl_state:client_keyx|server_keyx; sid:13;)\n\
    alert tls any any -> any any (flow:to_server; tls.cert_subject; content:\"CN=me\"; sid:14;)\n\
    alert tcp any any -> any any (flow:to_client; tls.version:1.2; sid:15;)\n\
    alert tls any any -> any any (tls.sni; absent; sid:16;)";

fn sorted(bench: &mut Bench) -> Vec<u32> {
    let mut found = bench.alerted();
    found.sort_unstable();
    found
}

#[test]
fn certificates_of_both_sides_are_looked_at_however_they_are_cut() {
    let server = [
        hello(2, &[0x13, 1, 0], "h2"),
        chain(&[
            certificate("good.org", "other", "2020", "2021", "alt.org"),
            certificate("other", "root", "2020", "2021", "a"),
        ]),
    ];
    let client = [
        chain(&[certificate("me", "root", "2020", "2040", "b")]),
        handshake(16, &[0; 32]),
        vec![20, 3, 3, 0, 1, 1],
    ];
    for piece in [1, 7, 5000] {
        let mut bench = Bench::new(TLS);
        bench.connect();
        let mut said = |side: Direction, bytes: &[u8]| {
            bytes.chunks(piece).for_each(|it| _ = bench.data(side, it));
            sorted(&mut bench)
        };
        assert_eq!(said(Direction::Initiator, &client_hello()), [9, 10, 11, 12, 16], "{piece}");
        let told = said(Direction::Responder, &server.concat());
        assert_eq!(told, [1, 2, 3, 4, 5, 7, 8, 10, 11, 15], "{piece}");
        assert_eq!(said(Direction::Initiator, &client.concat()), [13, 14], "{piece}");
    }
}

/// Who works with a server can begin with what is no record, and the server passes it over.
#[test]
fn a_server_that_speaks_tls_is_looked_at_whatever_its_client_began_with() {
    let server = [
        hello(2, &[0xc0, 0x2f, 0], "h2"),
        chain(&[certificate("good.org", "other", "2020", "2021", "alt.org")]),
    ];
    for junk in [&b"\0"[..], b"\x18\x03\x01\0\x01a", b"GARBAGE of any length, and more\r\n"] {
        let mut bench = Bench::new(
            "alert tls any any -> any any (tls.cert_subject; content:\"good.org\"; sid:1;)\n\
             alert tcp any any -> any any (flow:to_client; app-layer-protocol:\"tls\"; sid:2;)",
        );
        bench.connect();
        bench.client(&[junk, &client_hello()].concat());
        bench.server(&server.concat());
        assert_eq!(sorted(&mut bench), [1, 2], "{junk:?}");
    }
}

#[test]
fn what_rules_say_of_tls_is_read_or_refused() {
    for wrong in [
        "tls_cert_notbefore:soon",
        "tls_cert_notafter:2020<>2019",
        "ssl_state:half_way",
        "tls.cert_chain_len:many",
        "tls.version:2.0",
    ] {
        let keyword = refused(&format!("alert tls any any -> any any ({wrong}; sid:1;)"));
        assert!(wrong.starts_with(&keyword), "{wrong}");
    }
}

#[test]
fn what_both_sides_of_ssh_offer_is_told_apart() {
    let mut bench = Bench::new(
        "alert ssh any any -> any any (ssh.hassh.string; \
            content:\"kex|3b|c0|3b|m0|3b|z0\"; sid:1;)\n\
         alert ssh any any -> any any (ssh.hassh.server.string; content:\"c1\"; sid:2;)\n\
         alert ssh any any -> any any (ssh.hassh; bsize:32; sid:3;)\n\
         alert ssh any any -> any any (ssh.hassh.server; bsize:32; sid:4;)\n\
         alert ssh any any -> any any (flow:to_server; ssh.protoversion:2_compat; sid:5;)\n\
         alert ssh any any -> any any (flow:to_server; ssh.protoversion:2.1; sid:6;)\n\
         alert ssh any any -> any any (flow:to_client; ssh.softwareversion:\"OpenSSH\"; sid:7;)",
    );
    bench.connect();
    let lists = ["kex", "key", "c0", "c1", "m0", "m1", "z0", "z1", "", ""];
    let lists: Vec<u8> = lists.iter().flat_map(|it| counted(4, it.as_bytes())).collect();
    let packet = counted(4, &[&[4, 20], [0; 16].as_slice(), &lists, &[0; 9]].concat());
    bench.client(b"SSH-2.0-x\r\n");
    assert_eq!(sorted(&mut bench), [5]);
    bench.server(&[b"SSH-1.99-OpenSSH_3\r\n".as_slice(), &packet].concat());
    assert_eq!(sorted(&mut bench), [2, 4, 7]);
    bench.client(&packet);
    assert_eq!(sorted(&mut bench), [1, 3]);
}

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let head = [&counted(3, payload)[..3], &[kind, flags], &stream.to_be_bytes()].concat();
    [head.as_slice(), payload].concat()
}

const HTTP2: &str = "\
    alert http any any -> any any (http.uri; content:\"/index.html\"; bsize:11; sid:1;)\n\
    alert http2 any any -> any any (http.host; content:\"www.example.com\"; sid:2;)\n\
    alert http1 any any -> any any (http.method; content:\"GET\"; sid:3;)\n\
    alert http any any -> any any (http.stat_code; content:\"200\"; sid:4;)\n\
    alert http any any -> any any (file.data; content:\"secret\"; sid:5;)\n\
    alert http2 any any -> any any (http2.frametype:GOAWAY; http2.errorcode:CANCEL; sid:6;)\n\
    alert http2 any any -> any any (http2.settings:SETTINGS_ENABLE_PUSH=0; sid:7;)\n\
    alert http2 any any -> any any (http2.window:>10; sid:8;)\n\
    alert http2 any any -> any any (http2.header_name; content:\"|3a|path\"; sid:9;)\n\
    alert http2 any any -> any any (flow:to_server; http2.priority:200; sid:10;)\n\
    alert http2 any any -> any any (app-layer-event:http2.data_stream_zero; sid:11;)";
const MAGIC: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
/// GET http://www.example.com/index.html
const GET: &[u8] = b"\x82\x86\x85\x41\x8c\xf1\xe3\xc2\xe5\xf2\x3a\x6b\xa0\xab\x90\xf4\xff";

#[test]
fn http2_is_looked_at_as_http_and_by_its_frames() {
    let prioritized = [[0, 0, 0, 0, 200].as_slice(), GET].concat();
    let client =
        [MAGIC.to_vec(), frame(4, 0, 0, &[0, 2, 0, 0, 0, 0]), frame(1, 0x25, 1, &prioritized)];
    let server = [
        frame(4, 0, 0, &[]),
        frame(1, 4, 1, b"\x88"),
        frame(0, 0, 1, b"the sec"),
        frame(0, 1, 1, b"ret"),
    ];
    for piece in [1, 7, 5000] {
        let mut bench = Bench::new(HTTP2);
        bench.connect();
        let mut said = |side: Direction, bytes: &[u8]| {
            bytes.chunks(piece).for_each(|it| _ = bench.data(side, it));
            sorted(&mut bench)
        };
        let told = said(Direction::Initiator, &client.concat());
        assert_eq!(told, [1, 2, 7, 9, 10], "{piece}");
        assert_eq!(said(Direction::Responder, &server.concat()), [4, 5], "{piece}");
        let window = frame(8, 0, 0, &[0, 0, 1, 0]);
        assert_eq!(said(Direction::Initiator, &window), [8], "{piece}");
        let odd = frame(0, 0, 0, b"a");
        assert!(said(Direction::Initiator, &odd).contains(&11), "{piece}");
        let end = frame(7, 0, 0, &[0, 0, 0, 1, 0, 0, 0, 8]);
        assert_eq!(said(Direction::Initiator, &end), [6], "{piece}");
    }
}

#[test]
fn a_connection_goes_on_in_http2_where_both_sides_agree() {
    let mut bench = Bench::new(HTTP2);
    bench.connect();
    bench.client(b"GET /up HTTP/1.1\r\nHost: a\r\nUpgrade: h2c\r\nConnection: Upgrade\r\n\r\n");
    assert_eq!(bench.alerted(), [3]);
    bench.server(b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: h2c\r\n\r\n");
    bench.client(&[MAGIC.to_vec(), frame(1, 5, 3, GET)].concat());
    assert_eq!(sorted(&mut bench), [1, 2, 9]);
    bench.server(&[frame(1, 4, 1, b"\x88"), frame(0, 1, 1, b"secret")].concat());
    assert_eq!(sorted(&mut bench), [4, 5]);
}

#[test]
fn what_is_spoken_is_told_once_a_side() {
    let mut bench = Bench::new("alert tcp any any -> any any (app-layer-protocol:http; sid:1;)");
    bench.connect();
    for _ in 0..2 {
        bench.client(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n");
        bench.server(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
    }
    assert_eq!(bench.alerted(), [1, 1]);
}

#[test]
fn buffers_are_changed_before_they_are_looked_at() {
    let mut bench = Bench::new(
        "alert http any any -> any any (http.uri; pcrexform:\"id=([A-Za-z0-9+=]+)\"; from_base64; \
            content:\"hello\"; bsize:5; sid:1;)\n\
         alert http any any -> any any (http.uri; from_base64:offset 4; content:\"hello\"; \
            sid:2;)\n\
         alert http any any -> any any (http.request_body; gunzip; content:\"aaaa\"; sid:3;)\n\
         alert http any any -> any any (http.request_body; entropy:value < 1; sid:4;)\n\
         alert http any any -> any any (http.host; entropy:offset 1, bytes 2, value = 1; sid:5;)",
    );
    bench.connect();
    let gzipped = b"\x1f\x8b\x08\0\0\0\0\0\0\x03\x4b\x4c\x4c\x4c\x04\0\x45\xe5\x98\xad\x04\0\0\0";
    let head = format!(
        "POST /id=aGVsbG8= HTTP/1.1\r\nHost: xab\r\nContent-Length: {}\r\n\r\n",
        gzipped.len()
    );
    bench.client(&[head.as_bytes(), gzipped].concat());
    assert_eq!(sorted(&mut bench), [1, 2, 3, 5]);
    let keyword =
        refused("alert http any any -> any any (http.uri; luaxform:a.lua; content:\"a\"; sid:1;)");
    assert_eq!(keyword, "luaxform");
}

/// As Suricata does unless told otherwise (`encryption-handling: track-only`).
#[test]
fn rules_see_no_payload_once_both_sides_encrypt() {
    let rules = "alert tcp any any -> any any (flow:to_server; content:\"secret\"; sid:1;)\n\
                 alert tcp any any -> any any (flow:to_server; content:!\"other\"; sid:2;)\n\
                 alert tcp any any -> any any (flow:to_server; dsize:6; sid:3;)\n\
                 alert tcp any any -> any any (flow:to_server; flags:PA; sid:4;)";
    let ssh = |name: &str| format!("SSH-2.0-{name}\r\n\0\0\0\x0c\x0a\x15{}", "\0".repeat(10));
    let hellos = [client_hello(), hello(2, &[0xc0, 0x2f, 0], "h2")];
    let data = b"\x17\x03\x03\0\x06secret";
    for looks_into in [false, true] {
        let limits = Limits { looks_into_encrypted: [looks_into; 2], ..Limits::default() };
        let mut bench = Bench::with(rules, limits);
        bench.connect();
        bench.client(ssh("a").as_bytes());
        bench.server(ssh("b").as_bytes());
        bench.alerted();
        bench.client(b"secret");
        let seen: &[u32] = if looks_into { &[1, 2, 3, 4] } else { &[4] };
        assert_eq!(sorted(&mut bench), seen, "SSH");

        let mut bench = Bench::with(rules, limits);
        bench.connect();
        bench.client(&hellos[0]);
        bench.server(&[hellos[1].as_slice(), data].concat());
        bench.alerted();
        bench.client(b"secret");
        assert_eq!(sorted(&mut bench), seen, "TLS");
    }
}
