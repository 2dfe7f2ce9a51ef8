//! Tests of strangers in suricata-verify's format: how many pass must not sink.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use serde_json::Value;

use crate::applications::{frames, suricata_root, write_capture};

/// Cases of the suite that pass; the two others are not for us (docs/guide/detect.md).
const PASSED: u64 = 139;

#[test]
fn as_many_cases_of_suricata_verify_pass_as_ever_did() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let folder = std::env::var_os("WEIR_SHARED").map_or(root.join("../shared"), Into::into);
    let folder = folder.join("conformance/suricata-verify/tests");
    if !folder.is_dir() {
        eprintln!("SKIPPED: {} is not there", folder.display());
        return;
    }
    let mut command = Command::new(env!("CARGO_BIN_EXE_weir"));
    let output = command.args(["verify", "--json"]).arg(&folder).output().unwrap();
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    let failed = report["cases"].as_array().unwrap().iter().filter(|it| it["result"] == "failed");
    let failed: Vec<&Value> = failed.map(|it| &it["name"]).collect();
    assert!(report["passed"].as_u64() >= Some(PASSED), "these fail: {failed:?}");
}

#[test]
fn a_folder_without_tests_is_no_success_and_a_test_alone_has_its_name() {
    let folder = tempfile::tempdir().unwrap();
    let verify = || {
        let mut weir = Command::new(env!("CARGO_BIN_EXE_weir"));
        weir.arg("verify").arg(folder.path()).arg("--json").output().unwrap()
    };
    let output = verify();
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&output.stderr).contains("no folder with a test.yaml"));
    std::fs::write(folder.path().join("test.yaml"), "").unwrap();
    let report: Value = serde_json::from_slice(&verify().stdout).unwrap();
    let name = folder.path().file_name().unwrap().to_str().unwrap();
    assert_eq!(report["cases"][0]["name"], name, "{report}");
}

/// A test whose rule finds three datagrams.
const BESIDE: [(&str, &str); 3] = [
    ("test.yaml", "%YAML 1.1\n---\nargs: [-k none]\n"),
    ("test.rules", "alert udp any any -> any any (content:\"weir\"; sid:1;)\n"),
    (
        "suricata.yaml",
        "%YAML 1.1\n---\noutputs:\n  - eve-log:\n      enabled: yes\n      types: [alert, flow]\n",
    ),
];

/// `weir verify FOLDER --beside PROGRAM`: how it ends, and what it prints.
fn beside(folder: &Path, program: &Path) -> (Option<i32>, String) {
    let mut weir = Command::new(env!("CARGO_BIN_EXE_weir"));
    let output = weir.arg("verify").arg(folder).arg("--beside").arg(program).output().unwrap();
    let text = [output.stdout, output.stderr].concat();
    (output.status.code(), String::from_utf8(text).unwrap())
}

#[test]
fn beside_a_suricata_what_one_alone_tells_is_printed() {
    let program = suricata_root().map(|it| it.join("suricata")).filter(|it| it.exists());
    let Some(program) = program else {
        eprintln!("SKIPPED: no Suricata that reads files: `cargo xtask packages bench`");
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let test = folder.path().join("three");
    std::fs::create_dir(&test).unwrap();
    BESIDE.iter().for_each(|(name, text)| std::fs::write(test.join(name), text).unwrap());
    let datagrams: Vec<_> = (1..4).map(|port| frame(17, [3, 4], &udp(port))).collect();
    write_capture(&test.join("in.pcap"), &datagrams);
    let (code, text) = beside(folder.path(), &program);
    assert_eq!(code, Some(0), "{text}");
    assert!(text.contains(": 1 alike, 0 differ, 0 skipped, 0 failed"), "{text}");
    // The same Suricata, whose events lose one, and say otherwise in another.
    let other = folder.path().join("other");
    let script = r#"#!/bin/sh
SURICATA "$@" || exit
for word; do
    [ "$before" = -l ] && sed -i -e '/"alert".*:8195,/d' \
        -e '/:8194,/s/allowed/other/' "$word/eve.json"
    before=$word
done
exit 0
"#;
    let script = script.replace("SURICATA", program.to_str().unwrap());
    std::fs::write(&other, script).unwrap();
    std::fs::set_permissions(&other, PermissionsExt::from_mode(0o755)).unwrap();
    let (code, text) = beside(folder.path(), &other);
    assert_eq!(code, Some(1), "{text}");
    let expected =
        ["8195: told here alone", "8194: alert.action is \"other\" there and \"allowed\" here"];
    expected.iter().for_each(|it| assert!(text.contains(it), "{text}"));
    assert!(text.contains(": 0 alike, 1 differ, 0 skipped, 0 failed"), "{text}");
}

#[test]
fn beside_what_is_no_suricata_nothing_is_compared() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("test.yaml"), "").unwrap();
    for (program, why) in [("/nowhere/suricata", "cannot run"), ("/bin/echo", "is no Suricata")] {
        let (code, text) = beside(folder.path(), Path::new(program));
        assert_eq!(code, Some(1));
        assert!(text.contains(why), "{text}");
    }
}

#[test]
fn a_suricata_that_fails_is_no_success() {
    let folder = tempfile::tempdir().unwrap();
    let test = folder.path().join("three");
    std::fs::create_dir(&test).unwrap();
    BESIDE.iter().for_each(|(name, text)| std::fs::write(test.join(name), text).unwrap());
    write_capture(&test.join("in.pcap"), &[frame(17, [3, 4], &udp(1))]);
    let other = folder.path().join("other");
    let script = "#!/bin/sh\n[ \"$1\" = -V ] && exec echo This is Suricata version 8.0.7\n\
                  echo E: it is broken >&2\nexit 3\n";
    std::fs::write(&other, script).unwrap();
    std::fs::set_permissions(&other, PermissionsExt::from_mode(0o755)).unwrap();
    let (code, text) = beside(folder.path(), &other);
    assert_eq!(code, Some(1), "{text}");
    assert!(text.contains("exit status: 3: E: it is broken"), "{text}");
    assert!(text.contains("0 alike, 0 differ, 0 skipped, 1 failed"), "{text}");
}

/// A frame of Ethernet with IPv4: protocol, last byte of each address, what follows.
pub(crate) fn frame(protocol: u8, [from, to]: [u8; 2], behind: &[u8]) -> Vec<u8> {
    let mut frame = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 8, 0];
    frame.extend(packet(protocol, [from, to], behind));
    frame
}

pub(crate) fn packet(protocol: u8, [from, to]: [u8; 2], behind: &[u8]) -> Vec<u8> {
    let mut packet = vec![0x45, 0, 0, 20 + behind.len() as u8, 0x12, 0x34, 0, 0, 64, protocol];
    packet.extend([0, 0, 192, 0, 2, from, 192, 0, 2, to]);
    let halves = packet.chunks(2).map(|it| u32::from(it[0]) << 8 | u32::from(it[1]));
    let sum: u32 = halves.sum();
    packet[10..12].copy_from_slice(&(!(sum + (sum >> 16)) as u16).to_be_bytes());
    packet.extend(behind);
    packet
}

fn udp(port: u8) -> [u8; 12] {
    [0x10, 0, 0x20, port, 0, 12, 0, 0, b'w', b'e', b'i', b'r']
}

/// What `weir verify FOLDER --json` says.
pub(crate) fn verified(folder: &Path) -> Value {
    let mut weir = Command::new(env!("CARGO_BIN_EXE_weir"));
    let output = weir.arg("verify").arg(folder).arg("--json").output().unwrap();
    serde_json::from_slice(&output.stdout).unwrap()
}

/// A segment to port 80, or from it.
pub(crate) fn segment(is_answer: bool, [at, seen]: [u32; 2], flags: u8, data: &[u8]) -> Vec<u8> {
    let mut ports = [[0x30, 1], [0, 80]];
    ports.rotate_left(usize::from(is_answer));
    let [at, seen] = [at, seen].map(u32::to_be_bytes);
    let rest = [0x50, flags, 0xff, 0xff, 0, 0, 0, 0];
    let segment = [&ports.concat(), &at[..], &seen, &rest, data].concat();
    frame(6, if is_answer { [4, 3] } else { [3, 4] }, &segment)
}

/// What Suricata 8.0.7 tells of the same packets and rules: it was asked.
const TOLD: &str = "%YAML 1.1
---
args: [-k none]
checks:
  - filter: {count: 1, match: {event_type: alert, alert.signature_id: 1, proto: IGMP}}
  - filter: {count: 0, match: {event_type: flow, proto: GRE}}
  - filter: {count: 0, match: {event_type: flow, proto: IGMP}}
  - filter: {count: 1, match: {event_type: flow, proto: IP-in-IP}}
  - filter: {count: 1, match: {event_type: flow, proto: ICMP}}
  - filter: {count: 3, match: {event_type: flow, proto: UDP, 'metadata.flowbits[0]': seen}}
  - filter:
      count: 1
      match:
        event_type: flow
        src_port: 20480
        flow.state: new
        tcp.tcp_flags: '00'
        not-has-key: tcp.state
  - filter:
      count: 1
      match: {event_type: flow, dest_port: 80, tcp.state: close_wait, tcp.tcp_flags_ts: 1b}
  - filter:
      count: 1
      match: {event_type: http, http.http_content_type: text/html, http.status: 200}
  - filter:
      count: 1
      match:
        event_type: netflow
        dest_ip: 192.0.2.6
        netflow.min_ttl: 64
        netflow.max_ttl: 64
        icmp_type: 8
  - filter:
      count: 1
      match: {event_type: netflow, dest_port: 80, netflow.tx_cnt: 1, tcp.tcp_flags: 1b}
  - filter: {count: 0, match: {event_type: alert, dest_port: 80}}
  - stats:
      decoder.max_pkt_size: 132
      decoder.ipv4_in_ipv4: 1
      decoder.gre: 1
      detect.alerts_suppressed: 3
";

const TOLD_INLINE: &str = "args: [-k none]
checks:
  - filter:
      count: 1
      match:
        event_type: drop
        src_ip: 192.0.2.5
        drop.len: 28
        drop.ipid: 4660
        drop.ttl: 64
        drop.icmp_id: 256
        drop.icmp_seq: 512
        drop.reason: rules
  - filter:
      count: 1
      match: {event_type: drop, src_port: 20480, drop.tcpwin: 65535, drop.syn: false}
  - filter: {count: 3, match: {event_type: drop, drop.udplen: 12}}
";

#[test]
fn packets_and_flows_are_told_of_as_by_suricata() {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("told");
    let head =
        b"HTTP/1.1 200 OK\r\nContent-Type: text/html; charset=UTF-8\r\nContent-Length: 0\r\n\r\n";
    let ask = b"GET / HTTP/1.1\r\nHost: weir.example\r\n\r\n";
    let (asked, told) = (11 + ask.len() as u32, 21 + head.len() as u32);
    let echo = [8, 0, 0, 0, 0, 1, 0, 2];
    let unknown = [&[0x50, 0, 0, 9], &[0, 0, 0, 1, 0, 0, 0, 1, 0x50, 0x18][..]].concat();
    let frames = [
        frame(2, [1, 2], &[0x16, 0, 0, 0, 224, 0, 0, 1]),
        frame(47, [1, 2], &[&[0, 0, 8, 0][..], &packet(17, [7, 8], &udp(1))].concat()),
        frame(4, [1, 2], &packet(17, [7, 8], &udp(2))),
        frame(17, [7, 8], &udp(3)),
        // Time ran out for a packet that nobody has seen.
        frame(1, [1, 9], &[&[11, 0, 0, 0, 0, 0, 0, 0][..], &packet(17, [9, 10], &udp(4))].concat()),
        frame(1, [5, 6], &echo),
        frame(6, [1, 2], &[&unknown[..], &[0xff, 0xff, 0, 0, 0, 0, b'?']].concat()),
        segment(false, [10, 0], 0x02, &[]),
        segment(true, [20, 11], 0x12, &[]),
        segment(false, [11, 21], 0x10, &[]),
        segment(false, [11, 21], 0x18, ask),
        segment(true, [21, asked], 0x18, head),
        segment(false, [asked, told], 0x10, &[]),
        segment(false, [asked, told], 0x11, &[]),
    ];
    let rules = "\
        alert ip any any -> any any (ip_proto:2; sid:1;)\n\
        pass tcp any any -> any 80 (sid:2;)\n\
        alert udp any any -> any any (flowbits:set,seen; noalert; sid:3;)\n";
    let inline = "\
        drop icmp any any -> any any (itype:8; sid:1;)\n\
        drop tcp any 20480 -> any any (sid:2;)\n\
        drop udp any any -> any any (sid:3;)\n";
    let types = ["alert", "drop", "flow", "netflow", "http: {extended: yes}", "stats"]
        .map(|it| format!("        - {it}\n"));
    let eve = "outputs:\n  - eve-log:\n      enabled: yes\n      filetype: regular\n      types:\n";
    for (name, rules, test) in [("told", rules, TOLD), ("told-ips", inline, TOLD_INLINE)] {
        let folder = folder.join(name);
        std::fs::create_dir_all(&folder).unwrap();
        write_capture(&folder.join("in.pcap"), &frames);
        std::fs::write(folder.join("test.rules"), rules).unwrap();
        std::fs::write(
            folder.join("suricata.yaml"),
            format!("%YAML 1.1\n---\n{eve}{}", types.concat()),
        )
        .unwrap();
        std::fs::write(folder.join("test.yaml"), test).unwrap();
    }
    let report = verified(&folder);
    assert_eq!(report["passed"], 2, "{report:#}");
}

/// What Suricata 8.0.7 makes of a connection that is taken up late, and of rules that go for the
/// rest of one: it was asked.
const FATES: [(&str, &str, &str); 8] = [
    (
        "bypassed",
        "alert ip any any -> any any (sid:1;)",
        "args: [-k none, --set stream.midstream-policy=bypass]
checks:
  - filter: {count: 0, match: {event_type: alert}}
  - filter: {count: 1, match: {event_type: flow, flow.state: bypassed, flow.alerted: false}}
  - stats: {flow_bypassed.local_pkts: 2}
",
    ),
    (
        "rejected-ips",
        "alert ip any any -> any any (sid:1;)",
        "args: [-k none, --set stream.midstream-policy=reject]
checks:
  - filter: {count: 0, match: {event_type: alert}}
  - filter: {count: 1, match: {event_type: flow, flow.action: drop, flow.alerted: false}}
  - filter:
      count: 1
      match: {event_type: drop, drop.reason: stream midstream, 'verdict.reject[0]': tcp-reset}
",
    ),
    (
        "refused",
        "alert ip any any -> any any (sid:1;)",
        "args: [-k none, --set stream.midstream-policy=drop-flow]
exit-code: 1
checks:
  - filter: {filename: suricata.json, count: 1, match: {event_type: engine, log_level: Error}}
",
    ),
    (
        "both-ways",
        "alert ip any any <> 0.0.0.0/0 any (sid:1;)\n\
         alert tcp any any -> any any (content:!\"zz\"; endswith; sid:2;)",
        "args: [-k none, --set stream.midstream=true]
checks:
  - filter: {count: 2, match: {event_type: alert, alert.signature_id: 1, pcap_cnt: 1}}
  - filter: {count: 1, match: {event_type: alert, alert.signature_id: 2}}
",
    ),
    (
        "each-packet-ips",
        "alert ip any any -> any any (sid:1;)",
        "args: [-k none, --set stream.midstream=true, --set stream.midstream-policy=drop-packet]
checks:
  - filter: {count: 2, match: {event_type: drop, drop.reason: stream midstream}}
  - stats: {ips.blocked: 3}
  - filter: {count: 0, match: {event_type: http}}
  - filter: {count: 1, match: {event_type: flow, flow.alerted: false, flow.state: new}}
",
    ),
    (
        "taken-up",
        "alert tcp any any -> any any (flow:established; dsize:>0; sid:1;)",
        "args: [-k none, --set stream.midstream=true]
checks:
  - filter: {count: 1, match: {event_type: alert, pcap_cnt: 2}}
  - filter: {count: 0, match: {event_type: anomaly}}
",
    ),
    (
        "passed-ips",
        "pass tcp any any -> any 80 (sid:1;)\n\
         drop tcp any any -> any any (content:\"Host\"; sid:2;)",
        "args: [-k none, --set stream.midstream=true]
checks:
  - filter: {count: 0, match: {event_type: drop}}
  - filter: {count: 1, match: {event_type: flow, flow.action: pass}}
",
    ),
    (
        "told",
        "drop tcp any any -> any any (sid:1;)\n\
         alert tcp any any -> any any (dsize:>0; sid:2;)",
        "args: [-k none, --set stream.midstream=true]
checks:
  - filter: {count: 1, match: {event_type: alert, pcap_cnt: 1, alert.action: allowed}}
  - filter: {count: 0, match: {event_type: alert, pcap_cnt: 2}}
  - filter: {count: 0, match: {event_type: drop}}
  - filter: {count: 1, match: {event_type: flow, flow.action: drop}}
",
    ),
];

#[test]
fn late_connections_and_the_rest_of_flows_go_as_by_suricata() {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("fates");
    let ask = b"GET / HTTP/1.1\r\nHost: weir.example\r\n\r\n";
    let asked = 11 + ask.len() as u32;
    let frames = [
        segment(false, [11, 21], 0x10, &[]),
        segment(false, [11, 21], 0x18, ask),
        segment(true, [21, asked], 0x10, &[]),
    ];
    let types = ["alert", "drop", "flow", "http", "stats", "anomaly: {types: {stream: yes}}"]
        .map(|it| format!("        - {it}\n"));
    let eve = "outputs:\n  - eve-log:\n      enabled: yes\n      filetype: regular\n      types:\n";
    for (name, rules, test) in FATES {
        let folder = folder.join(name);
        std::fs::create_dir_all(&folder).unwrap();
        write_capture(&folder.join("in.pcap"), &frames);
        std::fs::write(folder.join("test.rules"), rules).unwrap();
        std::fs::write(folder.join("suricata.yaml"), format!("{eve}{}", types.concat())).unwrap();
        std::fs::write(folder.join("test.yaml"), test).unwrap();
    }
    let report = verified(&folder);
    assert_eq!(report["passed"], FATES.len(), "{report:#}");
}

/// What Suricata 8.0.7 makes of SSH behind both sides' `NEWKEYS`, by `encryption-handling`:
/// alerts, and flows that are bypassed.
const ENCRYPTED: [(&str, u32, u32); 3] = [("track-only", 0, 0), ("full", 2, 0), ("bypass", 0, 1)];

#[test]
fn encrypted_connections_are_looked_at_as_far_as_suricata_is_told() {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("encrypted");
    let begun =
        |name| format!("SSH-2.0-{name}\\r\\n\\x00\\x00\\x00\\x0c\\x0a\\x15{}", "\\x00".repeat(10));
    let data = "> secret\n< answer\n".repeat(2);
    let said = format!("tcp 22\n> {}\n< {}\n> now\n< yes\n{data}", begun("a"), begun("b"));
    for (how, alerts, bypassed) in ENCRYPTED {
        let folder = folder.join(how);
        std::fs::create_dir_all(&folder).unwrap();
        write_capture(&folder.join("in.pcap"), &frames(&said));
        let rule = "alert tcp any any -> any any (dsize:6; content:\"secret\"; sid:1;)\n";
        std::fs::write(folder.join("test.rules"), rule).unwrap();
        let yaml = format!(
            "outputs:\n  - eve-log: {{enabled: yes, filetype: regular, filename: eve.json, \
             types: [alert, flow, stats]}}\n\
             app-layer: {{protocols: {{ssh: {{enabled: yes, encryption-handling: {how}}}}}}}\n"
        );
        std::fs::write(folder.join("suricata.yaml"), yaml).unwrap();
        let test = format!(
            "args: [-k none]\nchecks:\n  \
             - filter: {{count: {alerts}, match: {{event_type: alert}}}}\n  \
             - filter: {{count: {bypassed}, match: {{event_type: flow, flow.state: bypassed}}}}\n"
        );
        std::fs::write(folder.join("test.yaml"), test).unwrap();
    }
    let report = verified(&folder);
    assert_eq!(report["passed"], 3, "{report:#}");
}

/// What Suricata 8.0.7 makes of a side of 30 bytes of which 16 are put together, in segments of
/// ten: it was asked. Of `cdefgh` the stream has the first four bytes.
const DEPTHS: [(&str, &str, [u32; 4]); 3] = [
    ("whole", "0", [0, 1, 1, 1]),
    ("bounded-ips", "16", [1, 1, 1, 0]),
    ("bypassed-ips", "16, --set stream.bypass=true", [1, 1, 0, 0]),
];

#[test]
fn streams_are_as_deep_as_suricata_is_told() {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("depths");
    for (name, depth, alerts) in DEPTHS {
        let folder = folder.join(name);
        std::fs::create_dir_all(&folder).unwrap();
        let said = "tcp 80\n> 0123456789\n> abcdefghij\n> klmnopqrst\n";
        write_capture(&folder.join("in.pcap"), &frames(said));
        let wanted = [
            "stream-event:reassembly_depth_reached;",
            "content:\"cdefgh\";",
            "content:\"lmn\";",
            "content:\"9abc\";",
        ];
        let mut rules = String::new();
        let mut test = format!("args: [-k none, --set stream.reassembly.depth={depth}]\nchecks:\n");
        for (sid, (wanted, count)) in (1..).zip(wanted.into_iter().zip(alerts)) {
            rules += &format!("alert tcp any any -> any any ({wanted} sid:{sid};)\n");
            test += &format!(
                "  - filter: {{count: {count}, match: {{event_type: alert, \
                 alert.signature_id: {sid}}}}}\n"
            );
        }
        test += &format!("  - stats: {{tcp.stream_depth_reached: {}}}\n", alerts[0]);
        std::fs::write(folder.join("test.rules"), rules).unwrap();
        std::fs::write(folder.join("test.yaml"), test).unwrap();
    }
    let report = verified(&folder);
    assert_eq!(report["passed"], 3, "{report:#}");
}

#[test]
fn segments_without_a_place_in_their_connection_are_dropped_inline_as_by_suricata() {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("placeless");
    let segments: [(bool, [u32; 2], u8, &[u8]); 12] = [
        (false, [10, 0], 0x02, b""),
        (true, [20, 11], 0x12, b""),
        // Before the handshake is over: dropped.
        (true, [21, 11], 0x18, b"early"),
        (false, [11, 21], 0x10, b""),
        (false, [11, 21], 0x18, b"asked"),
        (true, [21, 16], 0x10, b""),
        // A reset with another's number, a FIN with a SYN: dropped.
        (false, [12, 0], 0x04, b""),
        (false, [16, 21], 0x03, b""),
        // Beyond the window: told alone.
        (false, [90_000, 21], 0x18, b"far"),
        (true, [21, 16], 0x18, b"told"),
        (false, [16, 25], 0x10, b""),
        // It would be right but for the one that was too far.
        (false, [16, 25], 0x04, b""),
    ];
    let frames =
        segments.map(|(is_answer, numbers, flags, data)| segment(is_answer, numbers, flags, data));
    // It was asked.
    let dropped = "reason: stream error";
    let cases = [("watched", [0, 1]), ("stopped-ips", [4, 0])];
    for (name, [drops, early]) in cases {
        let folder = folder.join(name);
        std::fs::create_dir_all(&folder).unwrap();
        write_capture(&folder.join("in.pcap"), &frames);
        let rule = "alert tcp any any -> any any (content:\"early\"; sid:1;)\n";
        std::fs::write(folder.join("test.rules"), rule).unwrap();
        let yaml = "outputs:\n  - eve-log: {enabled: yes, filetype: regular, filename: eve.json, \
                    types: [alert, {drop: {flows: all}}, stats]}\n";
        std::fs::write(folder.join("suricata.yaml"), yaml).unwrap();
        let test = format!(
            "args: [-k none]\nchecks:\n  \
             - filter: {{count: {drops}, match: {{event_type: drop, drop.{dropped}}}}}\n  \
             - filter: {{count: {early}, match: {{event_type: alert}}}}\n"
        );
        std::fs::write(folder.join("test.yaml"), test).unwrap();
    }
    let report = verified(&folder);
    assert_eq!(report["passed"], 2, "{report:#}");
}

#[test]
fn bodies_have_the_limits_of_suricatas_program_where_settings_name_none() {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("limits");
    let said = format!(
        "tcp 80\n> POST /a%2fb HTTP/1.1\\r\\nHost: a\\r\\nContent-Length: 5000\\r\\n\\r\\n{}\n\
         < HTTP/1.1 200 OK\\r\\nContent-Length: 2\\r\\n\\r\\nok\n",
        "x".repeat(5000)
    );
    let limits = "app-layer: {protocols: {http: {libhtp: {default-config: {personality: IDS, \
                  request-body-limit: 0}}}}}\n";
    for (name, settings, size, path) in [("own", "", 4096, "a%2fb"), ("said", limits, 5000, "a/b")]
    {
        let folder = folder.join(name);
        std::fs::create_dir_all(&folder).unwrap();
        write_capture(&folder.join("in.pcap"), &frames(&said));
        let rule =
            format!("alert http any any -> any any (http.uri; content:\"{path}\"; sid:1;)\n");
        std::fs::write(folder.join("test.rules"), rule).unwrap();
        let yaml = format!(
            "outputs:\n  - eve-log: {{enabled: yes, filetype: regular, filename: eve.json, types: \
             [alert, files]}}\n{settings}"
        );
        std::fs::write(folder.join("suricata.yaml"), yaml).unwrap();
        // What is told of the file has the answer, which came meanwhile.
        let test = format!(
            "args: [-k none]\nchecks:\n  \
             - filter: {{count: 1, match: {{event_type: fileinfo, fileinfo.size: {size}, \
             fileinfo.filename: /{path}, http.status: 200}}}}\n  \
             - filter: {{count: 1, match: {{event_type: alert}}}}\n"
        );
        std::fs::write(folder.join("test.yaml"), test).unwrap();
    }
    let report = verified(&folder);
    assert_eq!(report["passed"], 2, "{report:#}");
}

#[test]
fn a_reset_behind_its_own_fin_ends_a_connection_inline() {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("behind-fin-ips");
    std::fs::create_dir_all(&folder).unwrap();
    let segments: [(bool, [u32; 2], u8, &[u8]); 7] = [
        (false, [10, 0], 0x02, b""),
        (true, [20, 11], 0x12, b""),
        (false, [11, 21], 0x10, b""),
        (true, [21, 11], 0x11, b""),
        (false, [11, 22], 0x18, b"more"),
        (true, [22, 0], 0x04, b""),
        (true, [40, 0], 0x04, b""),
    ];
    let frames =
        segments.map(|(is_answer, numbers, flags, data)| segment(is_answer, numbers, flags, data));
    write_capture(&folder.join("in.pcap"), &frames[..6]);
    std::fs::write(folder.join("test.rules"), "").unwrap();
    let yaml = "outputs:\n  - eve-log: {enabled: yes, filetype: regular, filename: eve.json, \
                types: [flow, {drop: {flows: all}}]}\n";
    std::fs::write(folder.join("suricata.yaml"), yaml).unwrap();
    let test = "args: [-k none]\nchecks:\n  \
                - filter: {count: 0, match: {event_type: drop}}\n  \
                - filter: {count: 1, match: {event_type: flow, tcp.state: closed}}\n";
    std::fs::write(folder.join("test.yaml"), test).unwrap();
    let why = || {
        let report = verified(&folder);
        report["cases"][0]["reason"].as_str().unwrap().to_owned()
    };
    assert_eq!(why(), "");
    // One with any other number is none.
    write_capture(&folder.join("in.pcap"), &[&frames[..5], &frames[6..]].concat());
    assert!(why().starts_with("1 events, not 0, with event_type=\"drop\""), "{}", why());
}

#[test]
fn headers_that_settings_name_are_told_as_by_suricata() {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("headers");
    std::fs::create_dir_all(&folder).unwrap();
    let said = "tcp 80\n\
        > GET / HTTP/1.1\\r\\nHost: h\\r\\nCookie: c\\r\\nX-Other: o\\r\\n\\r\\n\n\
        < HTTP/1.1 200 OK\\r\\nContent-Length: 0\\r\\n\\r\\n\n";
    write_capture(&folder.join("in.pcap"), &frames(said));
    std::fs::write(folder.join("test.rules"), "").unwrap();
    let yaml = "outputs:\n  - eve-log: {enabled: yes, filetype: regular, filename: eve.json, \
                types: [{http: {custom: [Cookie, X-Other, Server]}}]}\n";
    std::fs::write(folder.join("suricata.yaml"), yaml).unwrap();
    // It was asked: names that it does not know are passed over.
    let test = "args: [-k none]\nchecks:\n  \
        - filter:\n      count: 1\n      match:\n        event_type: http\n        \
        http.request_headers[0].name: Cookie\n        \
        not-has-key: http.request_headers[1]\n  \
        - filter: {count: 0, match: {event_type: http, has-key: http.response_headers}}\n";
    std::fs::write(folder.join("test.yaml"), test).unwrap();
    let report = verified(&folder);
    assert_eq!(report["passed"], 1, "{report:#}");
}
