//! What is odd, and flows when they end, beside what Suricata 8.0.7 tells of them.

use std::fs;
use std::path::Path;
use std::process::Command;

use serde_json::Value;

use crate::applications::{frames, suricata, suricata_yaml, write_capture};

/// Odd things in a first transaction and in later ones, and a connection without its beginning.
const CONVERSATION: &str = r"
tcp 80
> GET / HTTP/1.1\r\nHost: a.example\r\n\r\n
< HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n
> GET /b HTTP/1.1\r\nUser-Agent: b\r\n\r\n
< HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n
tcp 443
> \x16\x03\x01\x00\x05\x01\x00\x00\x01\xff
udp 53
> \x00\x01\x01\x00\x00\x01\x00\x00\x00\x00\x00\x00\x01a\x07example\x00\x00\x01\x00\x01
< \x00\x01\x81\x80\x00\x01\x00\x00\x00\x00\x00\x00\x01a\x07example\x00\x00\x01\x00\x01
> \x00\x02\x01\x40\x00\x01\x00\x00\x00\x00\x00\x00\x01a\x07example\x00\x00\x01\x00\x01
";

/// As Suricata 8.0.7 has it: what is odd, its transaction, and the port of its flow's client; then
/// of flows of TCP that port, how many regions there were, and what exception was made.
const EXPECTED: [&str; 6] = [
    "HANDSHAKE_INVALID_LENGTH tls 0 of 40001",
    "MISSING_HOST_HEADER http 1 of 40000",
    "flow 40000: 1 1 null",
    "flow 40001: 1 1 null",
    "flow 50000: null null [{\"policy\":\"ignore\",\"target\":\"stream_midstream\"}]",
    "z_flag_set dns 2 of 40002",
];

/// The conversation, and the answer to a SYN that was not seen.
fn capture(path: &Path) {
    let mut all = frames(CONVERSATION);
    let mut midstream = all[1].clone();
    // The server's SYN and acknowledgment, to another port.
    midstream[36..38].copy_from_slice(&50_000_u16.to_be_bytes());
    all.push(midstream);
    write_capture(path, &all);
}

fn told(eve: &str) -> Vec<String> {
    let events: Vec<Value> = eve.lines().map(|it| serde_json::from_str(it).unwrap()).collect();
    let client = |event: &Value| {
        let ports = ["src_port", "dest_port"].map(|it| event[it].as_u64().unwrap());
        ports.into_iter().max().unwrap()
    };
    let flow = |event: &Value| {
        let ends = events
            .iter()
            .find(|it| it["event_type"] == "flow" && it["flow_id"] == event["flow_id"]);
        ends.map(client).unwrap_or_default()
    };
    let mut lines = Vec::new();
    for event in &events {
        let (odd, tcp) = (&event["anomaly"], &event["tcp"]);
        match event["event_type"].as_str() {
            Some("anomaly") if odd["type"] == "applayer" => {
                let [name, spoken] = ["event", "app_proto"].map(|it| odd[it].as_str().unwrap());
                lines.push(format!("{name} {spoken} {} of {}", event["tx_id"], flow(event)));
            }
            Some("flow") if event["proto"] == "TCP" => lines.push(format!(
                "flow {}: {} {} {}",
                client(event),
                tcp["ts_max_regions"],
                tcp["tc_max_regions"],
                event["flow"]["exception_policy"],
            )),
            _ => {}
        }
    }
    lines.sort();
    lines
}

/// What is told here, with these rules.
fn ours(scratch: &Path, file: &Path, rules: &str) -> String {
    let [named, eve] = ["test.rules", "eve.json"].map(|it| scratch.join(it));
    fs::write(&named, rules).unwrap();
    let mut weir = Command::new(env!("CARGO_BIN_EXE_weir"));
    weir.args(["read", "--no-checksums", "--rules"]).arg(&named).arg("--eve").arg(&eve).arg(file);
    let output = weir.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    fs::read_to_string(&eve).unwrap()
}

#[test]
fn anomalies_name_their_flow_and_transaction_as_suricata_does() {
    let scratch = tempfile::tempdir().unwrap();
    let file = scratch.path().join("in.pcap");
    capture(&file);
    let rule = "alert tcp any any -> any any (content:\"never said\"; sid:1;)\n";
    assert_eq!(told(&ours(scratch.path(), &file, rule)), EXPECTED);

    // Without records of TLS it does not tell what is odd there.
    let types = "types: [flow, tls, {anomaly: {enabled: yes, types: {applayer: yes}}}, ";
    let yaml = suricata_yaml().replacen("types: [", types, 1);
    if let Some(theirs) = suricata("anomalies", &yaml, &file) {
        assert_eq!(told(&theirs), EXPECTED, "Suricata");
    }
}

#[test]
fn tracking_and_logging_are_the_same_to_config() {
    let scratch = tempfile::tempdir().unwrap();
    let file = scratch.path().join("in.pcap");
    capture(&file);
    // So many transactions of HTTP are told with Suricata 8.0.7, too.
    for (what, count) in [("tracking disable", 1), ("logging disable", 1)] {
        let rule = format!(
            "config http any any -> any any (http.uri; content:\"/b\"; \
             config:{what}, type tx, scope tx; sid:1;)\n"
        );
        let eve = ours(scratch.path(), &file, &rule);
        assert_eq!(eve.matches("\"event_type\":\"http\"").count(), count, "{what}");
    }
}
