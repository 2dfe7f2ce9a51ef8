//! What must hold for any input of the `streams` fuzz target: a byte for the server's port (its
//! place in [`PORTS`]; with the highest bit, datagrams follow), then pieces of one connection. A
//! piece is a byte whose bit 0 says who sends and whose bits 1 to 3 where it begins, against the
//! end of what its sender has sent; a byte for its length; its bytes. With bit 4 it is of another
//! connection, to port 50,000 of the server (FTP's data); with bit 5 too, of one from the server's
//! port 20 to that port of the client.

use std::collections::BTreeSet;
use std::sync::{Arc, OnceLock};

use weir_detect::{
    Alerts, AsSuricata, Detector, FlowTable, Limits, LoadOptions, Packet, RuleSet, RuleSource,
    Variables,
};
use weir_wire::frame::{Link, Time};
use weir_wire::parse::parse;

/// Where applications are looked for.
const PORTS: [u16; 28] = [
    80, 53, 25, 21, 445, 135, 389, 88, 5060, 1883, 5900, 502, 5432, 161, 500, 67, 123, 69, 5353,
    4500, 443, 110, 44_818, 20_000, 2049, 23, 6881, 3389,
];
/// Where data of FTP are expected.
const DATA_PORT: u16 = 50_000;
/// Sequence numbers wrap soon.
const BEGINNING: u32 = u32::MAX - 300;

/// A rule for every buffer, so that each is filled.
const RULES: &str = r#"
alert tcp any any -> any any (content:"evil"; sid:1;)
alert tcp any any -> any any (flow:established; content:"a"; depth:9; content:"b"; distance:1; sid:2;)
alert http any any -> any any (http.uri; content:"a"; sid:3;)
alert http any any -> any any (http.header; content:"a"; http.header_names; content:"a"; sid:4;)
alert http any any -> any any (http.cookie; content:"a"; http.host; content:"a"; sid:5;)
alert http any any -> any any (http.request_body; content:"a"; sid:6;)
alert http any any -> any any (file.data; content:"a"; content:"b"; distance:0; sid:7;)
alert http any any -> any any (http.start; content:"a"; http.request_line; pcre:"/a+b/"; sid:8;)
alert http any any -> any any (http.stat_code; content:"2"; http.response_line; content:"O"; sid:9;)
alert tls any any -> any any (tls.sni; content:"a"; sid:10;)
alert tls any any -> any any (tls.cert_subject; content:"a"; tls.cert_issuer; content:"a"; sid:11;)
alert tls any any -> any any (tls.certs; content:"a"; tls.cert_serial; content:"0"; sid:12;)
alert tls any any -> any any (ja3.hash; content:"a"; ja3.string; content:"7"; sid:13;)
alert tls any any -> any any (ja3s.hash; content:"a"; tls.cert_fingerprint; content:"a"; sid:14;)
alert dns any any -> any any (dns.query; to_sha256; content:"a"; sid:15;)
alert ssh any any -> any any (ssh.proto; content:"2"; ssh.software; content:"a"; sid:16;)
alert dns any any -> any any (dns.query; dataset:set,names,type string; sid:17;)
alert smtp any any -> any any (smtp.rcpt_to; content:"a"; file.data; content:"e"; sid:18;)
alert ftp any any -> any any (ftp.command; content:"R"; sid:19;)
alert ftp any any -> any any (ftp.reply; content:"a"; sid:61;)
alert http any any => any any (http.uri; content:"a"; http.stat_msg; content:"O"; sid:62;)
alert smb any any -> any any (smb.share; content:"a"; smb.version:2; sid:20;)
alert tcp any any -> any any (dcerpc.stub_data; content:"a"; dcerpc.opnum:1-20; sid:21;)
alert snmp any any -> any any (snmp.community; content:"a"; snmp.pdu_type:get_request; sid:22;)
alert krb5 any any -> any any (krb5.cname; content:"u"; krb5_msg_type:11; sid:23;)
alert ldap any any -> any any (ldap.request.dn; content:"x"; ldap.responses.count:>0; sid:24;)
alert sip any any -> any any (sip.from; content:"a"; sdp.media.media; content:"a"; sid:25;)
alert mqtt any any -> any any (mqtt.publish.topic; content:"a"; mqtt.qos:1; sid:26;)
alert rfb any any -> any any (rfb.name; content:"d"; rfb.secresult:ok; sid:27;)
alert ike any any -> any any (ike.vendor; content:"4"; ike.exchtype:2; sid:28;)
alert modbus any any -> any any (modbus: access write holding, value >5; sid:29;)
alert pgsql any any -> any any (pgsql.query; content:"s"; sid:30;)
alert dhcp any any -> any any (dhcp.leasetime:>1; sid:31;)
alert mdns any any -> any any (mdns.queries.rrname; content:"l"; sid:32;)
alert ntp any any -> any any (ntp.reference_id; content:"G"; sid:33;)
alert udp any any -> any any (app-layer-protocol:!dns; content:"a"; sid:34;)
alert tls any any -> any any (tls.alpn; content:"h"; tls.random; content:"a"; sid:48;)
alert tls any any -> any any (tls.subjectaltname; content:"a"; tls_cert_expired; sid:49;)
alert tls any any -> any any (ssl_state:client_keyx; tls.version:1.2; sid:50;)
alert ssh any any -> any any (ssh.hassh; content:"a"; ssh.hassh.string; content:"a"; sid:51;)
alert http2 any any -> any any (http2.header_name; content:"a"; http.uri; gunzip; content:"a"; sid:52;)
alert http2 any any -> any any (http2.frametype:GOAWAY; http2.settings:SETTINGS_ENABLE_PUSH; sid:53;)
alert http any any -> any any (http.uri; from_base64; pcrexform:"(a+)"; content:"a"; sid:54;)
alert http any any -> any any (http.request_body; zlib_deflate; entropy:value > 2; sid:55;)
alert quic any any -> any any (quic.sni; content:"a"; ja4.hash; content:"q"; sid:56;)
alert quic any any -> any any (quic.cyu.string; content:"4"; quic.ua; content:"a"; sid:57;)
alert websocket any any -> any any (websocket.payload; content:"a"; websocket.flags:fin; sid:58;)
alert pop3 any any -> any any (app-layer-event:pop3.unknown_command; sid:59;)
alert enip any any -> any any (cip_service:14,1; enip.product_name; content:"a"; sid:60;)
alert nfs any any -> any any (nfs_procedure:1-30; nfs.version:3; sid:63;)
alert nfs any any -> any any (file.data; content:"e"; sid:64;)
alert dnp3 any any -> any any (dnp3_func:1; dnp3_obj:60,2; sid:65;)
alert dnp3 any any -> any any (dnp3.data; content:"<"; sid:66;)
alert tftp any any -> any any (content:"octet"; sid:67;)
alert bittorrent-dht any any -> any any (app-layer-event:bittorrent-dht.malformed_packet; sid:68;)
alert telnet any any -> any any (content:"login"; sid:69;)
alert doh2 any any -> any any (dns.query; content:"example"; sid:70;)
alert ftp-data any any -> any any (file.data; content:"secret"; sid:71;)
alert ftp-data any any -> any any (ftpdata_command:stor; sid:72;)
alert smtp any any -> any any (email.from; content:"a"; email.subject; content:"a"; sid:73;)
alert http1 any any -> any any (frame:request; content:"a"; sid:80;)
alert http2 any any -> any any (frame:data; content:"a"; sid:81;)
alert tls any any -> any any (frame:pdu; content:"a"; sid:82;)
alert dns any any -> any any (frame:pdu; content:"a"; sid:83;)
alert ssh any any -> any any (frame:record.data; content:"a"; sid:84;)
alert smb any any -> any any (frame:smb2.data; content:"a"; sid:85;)
alert dcerpc any any -> any any (frame:data; content:"a"; sid:86;)
alert sip any any -> any any (frame:request.line; content:"a"; sid:87;)
alert nfs any any -> any any (frame:rpc.creds; content:"host"; sid:88;)
alert mqtt any any -> any any (frame:data; content:"a"; sid:89;)
alert ldap any any -> any any (frame:pdu; content:"x"; sid:90;)
alert enip any any -> any any (frame:enip.enip.item; content:"t"; sid:91;)
alert websocket any any -> any any (frame:pdu; content:"a"; sid:92;)
alert telnet any any -> any any (frame:data; content:"login"; sid:93;)
alert smtp any any -> any any (frame:command_line; content:"a"; sid:94;)
alert rfb any any -> any any (frame:pdu; content:"R"; sid:95;)
alert mdns any any -> any any (frame:pdu; content:"local"; sid:96;)
"#;

fn rules() -> Arc<RuleSet> {
    static RULE_SET: OnceLock<Arc<RuleSet>> = OnceLock::new();
    let made = RULE_SET.get_or_init(|| {
        let source = RuleSource { name: "streams".into(), text: RULES.into() };
        let loaded =
            RuleSet::load(&[source], &Variables::default(), &LoadOptions::default()).unwrap();
        assert_eq!(loaded.report.refused, []);
        Arc::new(loaded.rules)
    });
    made.clone()
}

/// A connection: its ports, and how far each side has come.
struct Talk {
    ports: [u16; 2],
    /// Which side of the input is the one that opens it.
    opener: usize,
    sent: [u32; 2],
    is_open: bool,
}

impl Talk {
    fn new(ports: [u16; 2], opener: usize) -> Self {
        Self { ports, opener, sent: [BEGINNING.wrapping_add(1); 2], is_open: false }
    }
}

/// As who reads a capture, as a gateway, and as Suricata inline.
pub(crate) fn exercise(input: &[u8]) {
    let few = Limits { flows: 2, ..Limits::default() };
    let gateway = Limits {
        sees_all: true,
        refuses_midstream: true,
        refuses_gaps: true,
        refuses_conflicts: true,
        refuses_parser_errors: true,
        ..few
    };
    let as_suricata = AsSuricata {
        looks_at_pieces: true,
        looks_again: 2560,
        tells_early: [true; 2],
        tells_bodies: true,
        ..AsSuricata::default()
    };
    let waiting = Limits { waits_for_acknowledgment: true, anomalies: 1 << 8, ..few };
    matched(input);
    for limits in [gateway, waiting, Limits { as_suricata, ..few }] {
        matched_within(limits, input);
    }
}

/// The rules that match.
pub(crate) fn matched(input: &[u8]) -> BTreeSet<u32> {
    matched_within(Limits { flows: 2, ..Limits::default() }, input)
}

fn matched_within(limits: Limits, input: &[u8]) -> BTreeSet<u32> {
    let mut sids = BTreeSet::new();
    let Ok(mut detector) = Detector::new(rules(), limits) else { return sids };
    let (mut table, mut alerts) = (FlowTable::new(limits), Alerts::new(1 << 8));
    if limits.waits_for_acknowledgment {
        detector.keep_records();
        detector.keep_frames();
    }
    let Some((port, mut rest)) = input.split_first() else { return sids };
    let is_of_datagrams = port & 0x80 != 0;
    let port = PORTS[usize::from(port & 0x7f) % PORTS.len()];
    let mut talks = [([1024, port], 0), ([1025, DATA_PORT], 0), ([DATA_PORT, 20], 1)]
        .map(|it| Talk::new(it.0, it.1));
    let mut packets = 0;
    let mut send = |side: usize, ports: [u16; 2], numbers: [u32; 2], flags: u8, payload: &[u8]| {
        let frame = match is_of_datagrams {
            true => datagram(side, ports, payload),
            false => segment(side, ports, numbers, flags, payload),
        };
        let parsed = parse(&frame, Link::Ethernet, frame.len() as u32);
        let packet = Packet {
            bytes: &frame,
            parsed: &parsed,
            decoded: None,
            is_rebuilt: false,
            is_verified: false,
            icrc: None,
            port: None,
        };
        packets += 1;
        table.inspect(&mut detector, Time(packets), &packet, &mut alerts);
    };
    while let [how, length, behind @ ..] = rest {
        let (payload, after) = behind.split_at(usize::from(*length).min(behind.len()));
        rest = after;
        let side = usize::from(how & 1);
        let talk = match how >> 4 & 3 {
            1 => &mut talks[1],
            3 => &mut talks[2],
            _ => &mut talks[0],
        };
        if !is_of_datagrams && !talk.is_open {
            talk.is_open = true;
            let (ports, opener) = (talk.ports, talk.opener);
            let first = talk.sent[0];
            send(opener, ports, [BEGINNING, 0], 2, b"");
            send(1 - opener, ports, [BEGINNING, first], 0x12, b"");
            send(opener, ports, [first, first], 0x10, b"");
        }
        // At the end, ahead of it, or over what was sent before.
        let start = match how >> 1 & 7 {
            0..=3 => talk.sent[side],
            4 => talk.sent[side].wrapping_add(7),
            5 => talk.sent[side].wrapping_add(1 << 20),
            6 => talk.sent[side].wrapping_sub(5),
            _ => talk.sent[side].wrapping_sub(100),
        };
        send(side, talk.ports, [start, talk.sent[1 - side]], 0x18, payload);
        if how >> 1 & 7 < 4 {
            talk.sent[side] = talk.sent[side].wrapping_add(payload.len() as u32);
        }
    }
    let counters = detector.counters();
    assert_eq!(counters.packets, packets);
    assert_eq!(counters.alerts, alerts.len() as u64 + alerts.overflow());
    table.flush(&mut detector);
    assert_eq!((detector.flows(), detector.memory()), (0, 0));
    let rules = rules();
    sids.extend(alerts.drain().map(|it| rules.rule(it.rule).sid));
    sids
}

/// The headers up to the ports, and `length` bytes behind that of IP.
fn head(side: usize, ports: [u16; 2], protocol: u8, length: usize) -> Vec<u8> {
    let mut frame = vec![0; 12];
    frame.extend([8, 0, 0x45, 0]);
    frame.extend((20 + length as u16).to_be_bytes());
    frame.extend([0, 0, 0, 0, 64, protocol, 0, 0]);
    let ends = [([10, 0, 0, 1], ports[0]), ([192, 0, 2, 1], ports[1])];
    let (from, to) = (ends[side], ends[1 - side]);
    frame.extend(from.0.into_iter().chain(to.0));
    frame.extend(from.1.to_be_bytes().into_iter().chain(to.1.to_be_bytes()));
    frame
}

fn datagram(side: usize, ports: [u16; 2], payload: &[u8]) -> Vec<u8> {
    let mut frame = head(side, ports, 17, 8 + payload.len());
    frame.extend((8 + payload.len() as u16).to_be_bytes());
    frame.extend([0, 0]);
    frame.extend(payload);
    frame
}

/// `numbers`: where it begins, and what it acknowledges.
fn segment(side: usize, ports: [u16; 2], numbers: [u32; 2], flags: u8, payload: &[u8]) -> Vec<u8> {
    let mut frame = head(side, ports, 6, 20 + payload.len());
    numbers.iter().for_each(|it| frame.extend(it.to_be_bytes()));
    frame.extend([0x50, flags, 0x20, 0, 0, 0, 0, 0]);
    frame.extend(payload);
    frame
}
