//! What buffers of rules hold in conversations of many applications, judged by Suricata 8.0.7.
//!
//! One rule a buffer captures all of it into the alert. `testdata/applications/buffers.tsv` has
//! what Suricata found in the conversations beside it, a buffer a line: the conversation, the
//! client's port, the buffer, and its instances as EVE writes them. Where Suricata is installed it
//! is asked again; `WEIR_WRITE=1` has the file written from what it says.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::process::Command;

use serde_json::Value;

use crate::applications::{
    conversations, folder, frames, suricata_with, suricata_yaml, write_capture,
};

/// Those that are asked for. Streams are looked at in other portions (`pkt_data`).
const BUFFERS: &str = "\
    icmpv4.hdr tls.alpn http.cookie http.method http.protocol http.start http.request_body \
    http.response_body http.header http.header_names http.accept http.accept_lang \
    http.accept_enc http.connection http.content_len http.content_type http.location http.server \
    http.referer http.header.raw http.uri http.uri.raw http.stat_msg http.stat_code \
    http.user_agent http.host http.host.raw http.request_line http.response_line ssh.proto \
    ssh.software ssh.hassh ssh.hassh.server ssh.hassh.string ssh.hassh.server.string \
    http2.header_name http.request_header http.response_header dcerpc.stub_data smb.named_pipe \
    smb.share smb.ntlmssp_user smb.ntlmssp_domain file.name dns.response.rrname tls.sni \
    tls.certs tls.cert_issuer tls.cert_subject tls.cert_serial tls.cert_fingerprint \
    tls.subjectaltname tls.random_time tls.random_bytes tls.random ja3.hash ja3.string ja3s.hash \
    ja3s.string dnp3.data krb5.cname krb5.sname ipv4.hdr ipv6.hdr icmpv6.hdr tcp.hdr udp.hdr \
    quic.version quic.sni quic.ua ike.init_spi ike.resp_spi ike.vendor ike.nonce_payload \
    ike.key_exchange_payload ja4.hash ftp.reply ftp.completion_code dns.queries.rrname \
    dns.answers.rrname dns.additionals.rrname dns.authorities.rrname mdns.queries.rrname \
    mdns.answers.rrname mdns.additionals.rrname mdns.authorities.rrname mdns.response.rrname \
    email.from email.subject email.to email.cc email.date email.message_id email.x_mailer \
    email.url email.received smtp.helo smtp.mail_from smtp.rcpt_to websocket.payload \
    enip.product_name enip.service_name mqtt.unsubscribe.topic mqtt.subscribe.topic \
    mqtt.publish.topic mqtt.publish.message mqtt.connect.willtopic mqtt.connect.willmessage \
    mqtt.connect.username mqtt.connect.protocol_string mqtt.connect.password \
    mqtt.connect.clientid rfb.name sip.protocol sip.stat_code sip.stat_msg sip.request_line \
    sip.response_line sip.from sip.to sip.via sip.user_agent sip.content_type sip.content_length \
    ldap.request.dn ldap.responses.dn ldap.responses.message ldap.request.attribute_type \
    ldap.responses.attribute_type sdp.session_name sdp.session_info sdp.origin sdp.uri sdp.email \
    sdp.phone_number sdp.connection_data sdp.bandwidth sdp.time sdp.repeat_time sdp.timezone \
    sdp.encryption_key sdp.attribute sdp.media.media sdp.media.media_info \
    sdp.media.connection_data sdp.media.encryption_key dns.answer.name dns.query.name dns.query \
    pgsql.query ntp.reference_id snmp.usm snmp.community file.data ftp.command ftp.command_data \
    sip.method sip.uri quic.cyu.hash quic.cyu.string";

/// Where Weir has something else: conversation, the client's port (0: any), buffer, and why.
const DIFFERENCES: &[(&str, u16, &str, &str)] = &[
    ("dns", 40000, "dns.answers.rrname", AN_EMPTY_ONE),
    ("dns", 40000, "dns.answer.name", AN_EMPTY_ONE),
    ("ftp", 40000, "ftp.completion_code", AN_EMPTY_ONE),
    (
        "ftp",
        40001,
        "file.data",
        "its rules see a file that is stored by FTP, and none that is fetched",
    ),
    ("nfs4", 43009, "file.data", "a file is looked at with its first piece, not when it is whole"),
    ("http-heads", 40010, "http.start", "the head of an interim response is looked at too"),
    ("http2", 0, "file.name", "a file is named by its request's target"),
    ("http2", 0, "http.request_line", STREAM_0),
    ("http2", 0, "http.response_line", STREAM_0),
    ("http2", 0, "http.response_header", TOO_EARLY),
    ("http2", 0, "http2.header_name", TOO_EARLY),
    ("http2", 40001, "file.data", AS_IT_COMES),
    ("http2", 40001, "http.request_body", AS_IT_COMES),
    ("http2", 40001, "http.response_body", "gzip whose first piece is shorter than its header"),
    ("http2", 40003, "http.header", "a promised request is of the response there"),
    ("http2", 40003, "http.header_names", "a promised request is of the response there"),
    ("http2", 40004, "http.header", "an upgrade's request has HTTP/2's form there"),
    ("http2", 40004, "http.header_names", "an upgrade's request has HTTP/2's form there"),
    ("http2", 40004, "http.start", ANOTHER),
    ("http2", 40005, "file.data", "what goes through a tunnel is looked at too"),
    ("http2", 40005, "http.request_body", "what goes through a tunnel is looked at too"),
    ("http2", 40007, "http.server", "a name in capitals is the same name"),
    ("http2", 40010, "file.data", "data without headers are looked at too"),
    ("http2", 40011, "file.data", "it undoes `br` and not zlib; here it is the other way round"),
    ("http2", 40011, "http.response_body", "as file.data"),
    ("http2", 40012, "dns.answer.name", IN_DNS),
    ("http2", 40012, "dns.answers.rrname", IN_DNS),
    ("http2", 40012, "dns.response.rrname", IN_DNS),
    ("http2", 40012, "http.content_len", IN_DNS),
    ("http2", 40012, "http.header", IN_DNS),
    ("http2", 40012, "http.header_names", IN_DNS),
    ("http2", 40012, "http.method", IN_DNS),
    ("http2", 40012, "http.request_body", IN_DNS),
    ("http2", 40012, "http.request_header", IN_DNS),
    ("http2", 40012, "http.response_body", IN_DNS),
    ("http2", 40012, "http.stat_code", IN_DNS),
    ("http2", 40012, "http.uri", IN_DNS),
    ("http2", 40012, "http.uri.raw", IN_DNS),
    ("http2", 40013, "file.data", AS_IT_COMES),
    ("http2", 40013, "http.response_body", AS_IT_COMES),
    ("smb", 40000, "file.data", "looked at as it comes, by both: of two pieces, one is first"),
    ("tls", 40002, "http.header", ANOTHER),
    ("tls", 40002, "http.header_names", ANOTHER),
    ("tls", 40002, "http.start", ANOTHER),
    ("tls-certificate", 40000, "tls.random", "zeros before there is one"),
    ("websocket", 0, "http.header", ANOTHER),
    ("websocket", 0, "http.header_names", ANOTHER),
    ("websocket", 0, "http.start", ANOTHER),
];
const AN_EMPTY_ONE: &str = "behind an empty instance it looks at no further one";
const STREAM_0: &str = "it makes a line of the frames of stream 0";
const TOO_EARLY: &str = "it looks at a response's headers when the request ends, and not again";
const AS_IT_COMES: &str = "a body is looked at as it comes; there once the receiver has it";
const IN_DNS: &str = "once DNS is in a connection, its rules see nothing further of HTTP";
const ANOTHER: &str = "once another protocol begins, it looks at no head any more";

/// By conversation, port and buffer: the first instance of each packet.
type Found = BTreeMap<(String, u16, String), BTreeSet<String>>;

fn buffers() -> impl Iterator<Item = &'static str> {
    BUFFERS.split_ascii_whitespace()
}

fn rules() -> String {
    let rule = |(sid, buffer): (u32, &str)| {
        format!(
            "alert ip any any -> any any ({buffer}; pcre:\"/^(?P<pkt_b{sid}>.*)$/s\"; sid:{sid};)\n"
        )
    };
    (1..).zip(buffers()).map(rule).collect()
}

/// What alerts of these rules have captured.
fn found(name: &str, eve: &str, out: &mut Found) {
    for line in eve.lines() {
        let event: Value = serde_json::from_str(line).expect("EVE");
        let Some(sid) = event["alert"]["signature_id"].as_u64() else { continue };
        let buffer = buffers().nth(sid as usize - 1).unwrap().to_owned();
        let is_clients = event["src_ip"] == "192.0.2.1";
        let port = event[if is_clients { "src_port" } else { "dest_port" }].as_u64().unwrap_or(0);
        let captured = event["metadata"]["pktvars"].as_array();
        let field = format!("b{sid}");
        let values = captured.into_iter().flatten().filter_map(|it| it.get(&field)?.as_str());
        // Nothing is captured of what is empty, and here of long ones their beginning.
        let values: Vec<String> =
            values.filter(|it| !it.is_empty()).map(|it| it.chars().take(1000).collect()).collect();
        if !values.is_empty() {
            out.entry((name.to_owned(), port as u16, buffer)).or_default().extend(values);
        }
    }
}

/// Suricata's configuration, to tell what rules have captured.
fn alerts_alone() -> String {
    let yaml = suricata_yaml();
    let (before, behind) = yaml.split_once("types: [").expect("a list of types");
    let (_, behind) = behind.split_once("]\n").expect("its end");
    let libhtp = "http: {enabled: yes, libhtp: {default-config: {personality: IDS, \
                  request-body-limit: 100kb, response-body-limit: 100kb}}}";
    let behind = behind.replacen("http: {enabled: yes}", libhtp, 1);
    format!(
        "{before}types: [{{alert: {{metadata: {{app-layer: false, flow: false}}}}}}]\n\
         packet-alert-max: 255\n{behind}"
    )
}

fn as_lines(found: &Found) -> String {
    let line = |((name, port, buffer), values): (&(String, u16, String), &BTreeSet<String>)| {
        format!("{name}\t{port}\t{buffer}\t{}\n", serde_json::to_string(values).unwrap())
    };
    found.iter().map(line).collect()
}

fn of_lines(text: &str) -> Found {
    let entry = |line: &str| {
        let fields: Vec<&str> = line.splitn(4, '\t').collect();
        let [name, port, buffer, values] = fields[..] else { panic!("{line}") };
        let key = (name.to_owned(), port.parse().unwrap(), buffer.to_owned());
        (key, serde_json::from_str(values).unwrap())
    };
    text.lines().map(entry).collect()
}

#[test]
fn buffers_hold_what_suricata_s_do() {
    let scratch = tempfile::tempdir().unwrap();
    let path = |name: &str| scratch.path().join(name);
    let list = Path::new(&folder()).join("buffers.tsv");
    fs::write(path("a.rules"), rules()).unwrap();
    let (mut ours, mut theirs, mut is_asked) = (Found::new(), Found::new(), true);
    for conversation in conversations() {
        let name = conversation.file_stem().unwrap().to_str().unwrap();
        write_capture(&path("in.pcap"), &frames(&fs::read_to_string(&conversation).unwrap()));
        let mut weir = Command::new(env!("CARGO_BIN_EXE_weir"));
        weir.args(["read", "--no-checksums", "--types", "alert", "--rules"]).arg(path("a.rules"));
        weir.arg("--eve").arg(path("eve.json")).arg(path("in.pcap"));
        assert!(weir.output().unwrap().status.success());
        found(name, &fs::read_to_string(path("eve.json")).unwrap(), &mut ours);
        match suricata_with("buffers", &alerts_alone(), &rules(), &path("in.pcap")) {
            Some(eve) => found(name, &eve, &mut theirs),
            None => is_asked = false,
        }
    }
    if is_asked && std::env::var_os("WEIR_WRITE").is_some() {
        fs::write(&list, as_lines(&theirs)).unwrap();
    }
    let expected = of_lines(&fs::read_to_string(&list).unwrap());
    assert!(!is_asked || theirs == expected, "Suricata says:\n{}", as_lines(&theirs));
    let keys: BTreeSet<_> = ours.keys().chain(expected.keys()).collect();
    let differs = |it: &&&(String, u16, String)| ours.get(*it) != expected.get(*it);
    let mut unexpected = String::new();
    for key in keys.iter().filter(differs) {
        let is_known = |it: &(&str, u16, &str, &str)| {
            it.0 == key.0 && (it.1 == 0 || it.1 == key.1) && it.2 == key.2
        };
        if !DIFFERENCES.iter().any(is_known) {
            let (ours, theirs) = (ours.get(*key), expected.get(*key));
            unexpected += &format!("{key:?}\n    ours {ours:?}\n    Suricata's {theirs:?}\n");
        }
    }
    assert!(unexpected.is_empty(), "{unexpected}");
    let is_same = |it: &&&(&str, u16, &str, &str)| {
        let is_of = |key: &(String, u16, String)| {
            key.0 == it.0 && (it.1 == 0 || it.1 == key.1) && key.2 == it.2
        };
        !keys.iter().any(|key| is_of(key) && ours.get(*key) != expected.get(*key))
    };
    let same: Vec<_> = DIFFERENCES.iter().filter(|it| is_same(&it)).collect();
    assert!(same.is_empty(), "the same now: {same:#?}");
}
