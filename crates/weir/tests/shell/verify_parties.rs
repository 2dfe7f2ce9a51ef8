//! What `weir verify` tells of who says what to whom: where one side is missing, odd, or ends what
//! the other awaits. As Suricata 8.0.7 tells it, which was asked.

use serde_json::Value;

use crate::verify_settings::failures;

const CERTIFIED: &str = include_str!("../../../../testdata/applications/tls-certificate.txt");

const EVE: &str = "%YAML 1.1\n---\noutputs:\n  - eve-log: {enabled: yes, filename: eve.json, \
                   types: [alert, http, tls, ssh, ldap, sip, flow, netflow, anomaly]}\n";
/// The same beside settings of applications.
const PARSED: &str = "app-layer:\n  protocols:\n    ldap: {enabled: yes}\n    \
                      sip: {enabled: yes}\n";

/// Runs a test with one check for each of these, which is to be there so many times.
fn assert_told(name: &str, said: &str, rules: &str, more: &str, wanted: &[(&str, u32)]) {
    let filters = wanted
        .iter()
        .map(|(what, count)| format!("  - filter: {{count: {count}, match: {{{what}}}}}\n"));
    let test = format!("args: [-k none]\nchecks:\n{}", filters.collect::<String>());
    let failed = failures(name, said, rules, &format!("{EVE}{more}"), &test);
    assert_eq!(failed, Vec::<Value>::new(), "{name}");
}

/// A record of TLS with one message of a handshake.
fn handshake(kind: u8, body: &[u8]) -> Vec<u8> {
    let length = body.len() as u16;
    let mut record = vec![22, 3, 3];
    record.extend((length + 4).to_be_bytes());
    record.extend([kind, 0]);
    record.extend(length.to_be_bytes());
    record.extend(body);
    record
}

/// A hello with this number of a session; of a server, or of a client.
fn hello(kind: u8, session: &[u8]) -> Vec<u8> {
    let mut body = vec![3, 3];
    body.extend([7; 32]);
    body.push(session.len() as u8);
    body.extend(session);
    body.extend(if kind == 1 { &[0, 2, 0x13, 1, 1, 0][..] } else { &[0x13, 1, 0] });
    handshake(kind, &body)
}

fn line(side: char, bytes: &[u8]) -> String {
    let text: String = bytes.iter().map(|it| format!("\\x{it:02x}")).collect();
    format!("{side} {text}\n")
}

const CHANGE_AND_MORE: [u8; 13] = [20, 3, 3, 0, 1, 1, 22, 3, 3, 0, 2, 9, 9];
const DATA: [u8; 7] = [23, 3, 3, 0, 2, 9, 9];

#[test]
fn a_servers_certificate_leaves_nothing_to_await_of_its_client() {
    let rules = "alert tls any any -> any any (tls.sni; content:\"e\"; sid:1;)\n\
                 alert tls any any -> any any (tls.cert_subject; content:\"e\"; sid:2;)\n";
    let done = "ts_progress: client_handshake_done, tc_progress: server_handshake_done";
    let [one, two] =
        [1, 2].map(|sid| format!("event_type: alert, alert.signature_id: {sid}, {done}"));
    assert_told("certified", CERTIFIED, rules, "", &[(&one, 1), (&two, 1)]);
}

#[test]
fn sessions_without_a_certificate_are_told_where_they_repeat_their_clients_number() {
    let said = |of_server: &[u8]| {
        let lines = [
            ('>', hello(1, &[5; 32])),
            ('<', hello(2, of_server)),
            ('<', CHANGE_AND_MORE.to_vec()),
            ('>', CHANGE_AND_MORE.to_vec()),
            ('>', DATA.to_vec()),
            ('<', DATA.to_vec()),
        ];
        let lines = lines.iter().map(|it| line(it.0, &it.1));
        format!("tcp 443\n{}", lines.collect::<String>())
    };
    // Digests of an empty list, and of the line between two of those.
    let ja4 = "tls.ja4: t12i010000_0f2cb44170f4_d2e2adf7177b";
    let told = format!("event_type: tls, pcap_cnt: 15, tls.session_resumed: true, {ja4}");
    let extended = EVE.replace("tls,", "{tls: {extended: yes}},");
    let test = format!("args: [-k none]\nchecks:\n  - filter: {{count: 1, match: {{{told}}}}}\n");
    let failed = failures("repeated", &said(&[5; 32]), "", &extended, &test);
    assert_eq!(failed, Vec::<Value>::new());
    assert_told("other", &said(&[6; 32]), "", "", &[("event_type: tls", 0)]);
}

#[test]
fn a_hello_of_ssl_2_names_its_version_and_is_tls_with_its_servers_answer() {
    let old = [0x80, 28, 1, 3, 3, 0, 3, 0, 0, 0, 16, 0, 0, 4];
    let old = [&old[..], &[7; 16]].concat();
    let said = format!("tcp 4430\n{}{}", line('>', &old), line('<', &hello(2, b"")));
    let rules = "alert tcp any any -> any any (flow:established,to_server; tls.version:1.2; \
                 sid:1;)\n\
                 alert tcp any any -> any any (flow:established; sid:2;)\n";
    let wanted = [
        ("event_type: alert, alert.signature_id: 1, pcap_cnt: 7", 1),
        ("event_type: alert, alert.signature_id: 2, pcap_cnt: 6, has-key: app_proto", 0),
        ("event_type: alert, alert.signature_id: 2, pcap_cnt: 7, app_proto: tls", 1),
    ];
    assert_told("ssl2", &said, rules, "", &wanted);
}

#[test]
fn nothing_is_awaited_of_a_request_that_nobody_saw_and_each_side_counts_by_what_it_speaks() {
    let said = "tcp 22\n> GET / HTTP/1.1\\r\\nHost: h\\r\\n\\r\\n\n\
                < SSH-2.0-OpenSSH_6.6.1\\r\\n\n< Protocol mismatch.\\n\n";
    let rules = "alert http any any -> any any (file.data; content:\"a\"; sid:1;)\n\
                 alert tcp any any -> any any (flow:established; sid:2;)\n";
    let at = |packet: u32| format!("event_type: alert, alert.signature_id: 2, pcap_cnt: {packet}");
    let [early, late] = [format!("{}, has-key: app_proto_tc", at(6)), at(7)];
    let wanted = [
        ("event_type: alert, alert.signature_id: 1, tx_id: 1, ts_progress: request_complete", 1),
        (early.as_str(), 0),
        (&format!("{late}, app_proto_tc: ssh"), 1),
        ("event_type: netflow, app_proto: http, src_port: 40000", 1),
        ("event_type: netflow, app_proto: ssh, src_port: 22", 1),
    ];
    assert_told("unseen-request", said, rules, "", &wanted);
}

#[test]
fn what_comes_before_a_banner_ends_ssh_on_either_side() {
    let banner = "SSH-2.0-a\\r\\n\n";
    let odd = "hello there what is that\\r\\n\n";
    for (name, said, teller) in [
        ("odd-client", format!("tcp 22\n< {banner}> {odd}> {banner}"), "server"),
        ("odd-server", format!("tcp 22\n> {banner}< {odd}< {banner}"), "client"),
    ] {
        let told = format!("event_type: ssh, pcap_cnt: 7, has-key: ssh.{teller}");
        let policy = "event_type: flow, app_proto: ssh, \
                      \"flow.exception_policy[0].target\": app_layer_error";
        let named = |key: &str| format!("event_type: flow, has-key: {key}");
        let [client, server] = ["app_proto_ts", "app_proto_tc"].map(named);
        let wanted = [(told.as_str(), 1), ("event_type: ssh", 1), (policy, 1)];
        assert_told(name, &said, "", "", &[&wanted[..], &[(&client, 0), (&server, 0)]].concat());
    }
}

#[test]
fn clients_of_ldap_that_say_by_ntlm_who_they_are_are_not_known() {
    let bind = "0\\x19\\x02\\x01\\x01`\\x14\\x02\\x01\\x03\\x04\\x04cn=a\\x8a\\x09NTLMSSP12\n";
    let challenge =
        "0\\x13\\x02\\x01\\x01a\\x0e\\x0a\\x01\\x00\\x04\\x07NTLM\\xff\\xfe\\xfd\\x04\\x00\n";
    let answer = "0\\x0c\\x02\\x01\\x01a\\x07\\x0a\\x01\\x00\\x04\\x00\\x04\\x00\n";
    let unknown = format!("tcp 389\n> {bind}< {challenge}");
    let wanted = [("event_type: ldap", 0), ("event_type: flow, app_proto: failed", 1)];
    assert_told("ntlm", &unknown, "", PARSED, &wanted);
    // Its server is known, and what its client has said cannot be read.
    let half = format!("tcp 389\n> {bind}< {answer}");
    let wanted = [
        ("event_type: ldap, has-key: ldap.request", 0),
        ("event_type: ldap, has-key: ldap.responses", 1),
        ("event_type: flow, app_proto: ldap", 1),
    ];
    assert_told("ntlm-half", &half, "", PARSED, &wanted);
}

#[test]
fn a_flow_of_datagrams_is_told_by_the_first_of_each_side() {
    let body = "v=0\\r\\no=a 1 2 IN IP4 192.0.2.1\\r\\ns=NAME\\r\\nc=IN IP4 192.0.2.1\\r\\n\
                t=0 0\\r\\nm=audio 8000 RTP/AVP 0\\r\\n";
    let head = "Via: SIP/2.0/UDP 192.0.2.1:5060\\r\\nCall-ID: 1\\r\\nCSeq: 1 INVITE\\r\\n\\r\\n";
    let invite = |name: &str| {
        format!("> INVITE sip:a@b SIP/2.0\\r\\n{head}{}\n", body.replace("NAME", name))
    };
    let ok = format!("SIP/2.0 200 OK\\r\\n{head}\n");
    let of = |what: &str| format!("event_type: sip, {what}");
    // Without a type a body is a description all the same, if its name is plain.
    let said = format!("udp 5060\n{}{}", invite("plain 1"), invite("X-Lite"));
    let [with, all] = [of("has-key: sip.sdp"), of("has-key: sip")];
    assert_told("descriptions", &said, "", PARSED, &[(&with, 1), (&all, 2)]);
    // Who answers first is no client, and stays unknown.
    let said = format!("udp 5060\n> {ok}{}", invite("a"));
    let wanted = [("event_type: sip", 0), ("event_type: flow, app_proto: failed", 1)];
    assert_told("answer-first", &said, "", PARSED, &wanted);
    // Once the other side is known, so is what follows.
    let said = format!("udp 5060\n> hello world\n{}< {ok}{}", invite("a"), invite("b"));
    let [third, fourth] = [of("pcap_cnt: 3"), of("pcap_cnt: 4")];
    let wanted = [("event_type: sip", 2), (third.as_str(), 1), (&fourth, 1)];
    assert_told("nonsense-first", &said, "", PARSED, &wanted);
}

#[test]
fn how_much_came_is_asked_of_each_packet_too() {
    let rules = "alert tcp any any -> any any (stream_size:server,>,5; content:\"a\"; sid:1;)\n";
    let said = "tcp 7000\n> hello a\n< what a\n> bya\n";
    let at = |packet: u32| format!("event_type: alert, pcap_cnt: {packet}");
    let [first, second] = [at(6), at(8)];
    assert_told("sizes", said, rules, "", &[(&at(4), 0), (&first, 1), (&second, 1)]);
}

#[test]
fn streams_of_ssh_are_looked_at_once_more_when_both_sides_encrypt() {
    let keys = "\\x00\\x00\\x00\\x06\\x04\\x15abcd\n";
    let said = format!(
        "tcp 22\n> SSH-2.0-a\\r\\n\n< SSH-2.0-b\\r\\n\n> {keys}< {keys}> sealed\n< sealed\n"
    );
    let rules = "alert tcp-stream any any -> any any (content:\"abcd\"; sid:1;)\n\
                 alert tcp-stream any any -> any any (content:\"SSH\"; sid:2;)\n";
    let made_up = "event_type: alert, alert.signature_id: 1, pkt_src: stream (detect/log)";
    let each = |sid: u32| format!("event_type: alert, alert.signature_id: {sid}");
    let wanted = [(made_up, 2), (&each(1), 2), (&each(2), 2)];
    assert_told("flushed", &said, rules, "", &wanted);
}

#[test]
fn what_is_encrypted_is_left_alone_where_settings_say_so() {
    let bypassed = "event_type: flow, app_proto: tls, flow.bypass: local, tcp.state: established";
    for how in ["encryption-handling: bypass", "no-reassemble: yes"] {
        let more = format!("app-layer: {{protocols: {{tls: {{{how}}}}}}}\n");
        let wanted = [(bypassed, 1), ("event_type: flow, has-key: flow.tx_cnt", 0)];
        assert_told("left-alone", &with_data(), "", &more, &wanted);
    }
    let plain = "event_type: flow, flow.tx_cnt: 1, tcp.state: closed";
    assert_told("not-left-alone", &with_data(), "", "", &[(plain, 1)]);
}

/// A conversation in which the server, too, sends something encrypted.
fn with_data() -> String {
    format!("{CERTIFIED}{}{}", line('<', &DATA), line('>', &DATA))
}

#[test]
fn datagrams_behind_one_that_cannot_be_read_are_left_alone_where_settings_say_so() {
    let head = "Via: SIP/2.0/UDP 192.0.2.1:5060\\r\\nCall-ID: 1\\r\\nCSeq: 1 OPTIONS\\r\\n\\r\\n\n";
    let request = format!("OPTIONS sip:a@b SIP/2.0\\r\\n{head}");
    let answer = format!("SIP/2.0 200 OK\\r\\n{head}");
    let said = format!("udp 5060\n> {request}< {answer}< {request}> {request}< {answer}");
    let more = "app-layer:\n  error-policy: bypass\n  protocols:\n    sip: {enabled: yes}\n";
    let bypassed = "event_type: flow, app_proto: sip, flow.bypass: local";
    assert_told("unreadable-sip", &said, "", more, &[("event_type: sip", 2), (bypassed, 1)]);
}
