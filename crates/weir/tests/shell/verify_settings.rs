//! What tests in suricata-verify's format say of EVE and of applications: as Suricata 8.0.7 does
//! it, which was asked.

use std::path::Path;
use std::process::Command;

use serde_json::Value;

use crate::applications::{frames, write_capture};
use crate::verify::verified;

/// Segments that close a conversation.
const CLOSING: usize = 3;

/// Runs one test on that conversation, which is never closed if the test is called `open`; what
/// fails.
pub(crate) fn failures(name: &str, said: &str, rules: &str, yaml: &str, test: &str) -> Vec<Value> {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("settings").join(name);
    std::fs::create_dir_all(&folder).unwrap();
    let mut frames = frames(said);
    if name == "open" {
        frames.truncate(frames.len() - CLOSING);
    }
    write_capture(&folder.join("in.pcap"), &frames);
    std::fs::write(folder.join("test.rules"), rules).unwrap();
    std::fs::write(folder.join("suricata.yaml"), yaml).unwrap();
    std::fs::write(folder.join("test.yaml"), test).unwrap();
    let mut weir = Command::new(env!("CARGO_BIN_EXE_weir"));
    let output = weir.arg("verify").arg(&folder).arg("--json").output().unwrap();
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    let cases = report["cases"].as_array().unwrap();
    assert_eq!(cases.len(), 1, "{report:#}");
    cases.iter().filter(|it| it["result"] != "passed").cloned().collect()
}

fn counts(list: &[(&str, u32)]) -> String {
    let filters = list.iter().map(|(what, count)| {
        format!("  - filter: {{count: {count}, match: {{event_type: alert, {what}}}}}\n")
    });
    format!("args: [-k none]\nchecks:\n{}", filters.collect::<String>())
}

const POST: &str = "tcp 80\n\
    > POST /x HTTP/1.1\\r\\nHost: h\\r\\nX-Forwarded-For: 192.0.2.9, 192.0.2.7:80\\r\\n\
    Content-Length: 5\\r\\n\\r\\nh\\x00llo\n\
    < HTTP/1.1 200 OK\\r\\nContent-Length: 6\\r\\n\\r\\nanswer\n";

#[test]
fn a_logger_that_is_there_once_ends_a_run_that_asks_for_it_twice() {
    let log = |name: &str, kind: &str| {
        format!("  - eve-log: {{enabled: yes, filename: {name}, types: [{kind}]}}\n")
    };
    let rules = "alert http any any -> any any (http.uri; content:\"/x\"; sid:1;)\n";
    let refused = "exit-code: 1\nargs: [-k none]\nchecks:\n\
                   - shell:\n    args: grep -c \"only one 'anomaly' logger\" stderr\n    \
                   expect: 1\n";
    let alerted = counts(&[("alert.signature_id: 1", 1)]);
    for (second, test) in [("anomaly", refused), ("http", alerted.as_str())] {
        let of_both = log("eve.json", "alert, anomaly") + &log("other.json", second);
        let failed = failures(second, POST, rules, &format!("outputs:\n{of_both}"), test);
        assert_eq!(failed, Vec::<Value>::new(), "{second}");
    }
}

#[test]
fn alerts_tell_what_settings_ask_for_and_no_more() {
    let rules = "alert http any any -> any any (msg:\"m\"; http.uri; content:\"/x\"; \
                 reference:url,weir.example/a; sid:1;)\n";
    let log = |of_alert: &str, more: &str| {
        format!(
            "outputs:\n  - eve-log:\n      enabled: yes\n      filename: eve.json\n{more}      \
             types:\n        - alert:\n{of_alert}        - http\n"
        )
    };
    let all = log(
        "            http-body: yes\n            payload-printable: yes\n            metadata: \
         {rule: {raw: yes, reference: yes}}\n",
        "      xff: {enabled: yes, mode: extra-data, deployment: reverse}\n",
    );
    let told = counts(&[
        ("http.http_request_body: aABsbG8=", 1),
        ("http.http_response_body: YW5zd2Vy", 1),
        ("has-key: http.http_request_body_printable", 0),
        ("alert.xff: 192.0.2.7, src_ip: 192.0.2.1", 1),
        ("'alert.references[0]': 'https://weir.example/a'", 1),
        ("alert.rule.__startswith: 'alert http any any -> any any (msg'", 1),
        ("has-key: payload_printable", 1),
        ("has-key: payload", 0),
        ("has-key: packet", 0),
        ("has-key: verdict", 0),
    ]);
    let none: &[Value] = &[];
    assert_eq!(failures("told", POST, rules, &all, &told), none);
    let overwritten = log(
        "            payload: no\n",
        "      xff: {enabled: yes, mode: overwrite, deployment: forward}\n",
    );
    let told = counts(&[
        ("src_ip: 192.0.2.9", 1),
        ("has-key: alert.xff", 0),
        ("has-key: http.http_request_body", 0),
        ("has-key: alert.rule", 0),
        ("has-key: stream", 0),
    ]);
    assert_eq!(failures("overwritten", POST, rules, &overwritten, &told), none);
}

const ALERTS: &str = "outputs:\n  - eve-log: {enabled: yes, filename: eve.json, types: [alert]}\n";

#[test]
fn rules_that_ask_what_is_spoken_match_as_often_as_suricatas() {
    let rules = "alert http any any -> any any (sid:1;)\n\
                 alert http any any -> any any (flow:established; sid:2;)\n\
                 alert tcp any any -> any any (app-layer-protocol:http; sid:3;)\n\
                 alert tcp any any -> any any (app-layer-protocol:http; flow:established; \
                 sid:4;)\n";
    let said = "tcp 80\n> GET /x HTTP/1.1\\r\\nHost: h\\r\\n\\r\\n\n\
                < HTTP/1.1 200 OK\\r\\nContent-Length: 2\\r\\n\\r\\nok\n";
    let none: &[Value] = &[];
    for (name, counted) in [("spoken", [6, 6, 2, 4]), ("spoken-ips", [7, 7, 4, 6])] {
        let sids = [1, 2, 3, 4].map(|it| format!("alert.signature_id: {it}"));
        let counted: Vec<(&str, u32)> = sids.iter().map(String::as_str).zip(counted).collect();
        assert_eq!(failures(name, said, rules, ALERTS, &counts(&counted)), none);
    }
    // Nobody closes it: the first rule matches once more a side.
    let late = counts(&[
        ("alert.signature_id: 1, pkt_src: stream (flow timeout)", 2),
        ("alert.signature_id: 2, pkt_src: stream (flow timeout)", 0),
    ]);
    assert_eq!(failures("open", said, rules, ALERTS, &late), none);
}

#[test]
fn applications_that_are_off_are_not_known() {
    let rules = "alert http any any -> any any (sid:1;)\n\
                 alert tcp any any -> any any (flow:established,to_server; content:\"GET\"; \
                 sid:2;)\n\
                 alert tcp any any -> any any (app-layer-protocol:failed; sid:3;)\n";
    let said = "tcp 80\n> GET /x HTTP/1.1\\r\\nHost: h\\r\\n\\r\\n\n\
                < HTTP/1.1 200 OK\\r\\nContent-Length: 2\\r\\n\\r\\nok\n";
    let none: &[Value] = &[];
    for (name, enabled, of_http, messages) in
        [("on", "yes", 6, 1), ("known", "detection-only", 6, 0), ("off", "no", 0, 0)]
    {
        let failed = if of_http == 0 { 2 } else { 0 };
        let yaml = format!(
            "outputs:\n  - eve-log: {{enabled: yes, filename: eve.json, types: [alert, http]}}\n\
             app-layer: {{protocols: {{http: {{enabled: {enabled}}}}}}}\n"
        );
        let test = format!(
            "args: [-k none]\nchecks:\n  \
             - filter: {{count: {of_http}, match: {{event_type: alert, \
             alert.signature_id: 1}}}}\n  \
             - filter: {{count: 1, match: {{event_type: alert, alert.signature_id: 2}}}}\n  \
             - filter: {{count: {failed}, match: {{event_type: alert, alert.signature_id: 3}}}}\n  \
             - filter: {{count: {messages}, match: {{event_type: http}}}}\n"
        );
        assert_eq!(failures(name, said, rules, &yaml, &test), none);
    }
}

#[test]
fn what_matched_is_looked_at_again_inline_and_segments_say_what_was_said_first() {
    let rules = "alert tcp-stream any any -> any any (content:\"EVIL\"; sid:1;)\n\
                 alert tcp any any -> any any (content:\"more\"; sid:2;)\n";
    let said = "tcp 9999\n> xxEVILxx\n> aaaa\n> bbmore\n> cccc\n";
    let none: &[Value] = &[];
    let watched = counts(&[("alert.signature_id: 1", 1), ("alert.signature_id: 2", 1)]);
    assert_eq!(failures("again", said, rules, ALERTS, &watched), none);
    let inline = counts(&[("alert.signature_id: 1", 4), ("alert.signature_id: 2", 2)]);
    assert_eq!(failures("again-ips", said, rules, ALERTS, &inline), none);
}

#[test]
fn streams_of_nothing_known_are_looked_at_in_chunks_by_who_watches() {
    let rules = "alert tcp any any -> any any (content:\"bbb\"; sid:1;)\n";
    let none: &[Value] = &[];
    // What was acknowledged, when the client closes.
    let short = "tcp 9999\n> xbbbx\n> xbbbx\n> xbbbx\n";
    let once = counts(&[("alert.signature_id: 1", 1), ("pcap_cnt: 10", 1)]);
    assert_eq!(failures("chunk", short, rules, ALERTS, &once), none);
    let thrice = counts(&[("alert.signature_id: 1", 3)]);
    assert_eq!(failures("chunk-ips", short, rules, ALERTS, &thrice), none);
    // After three of 1,000 bytes more than a chunk is acknowledged.
    let long = format!("tcp 9999\n{}", format!("> {}bbb\n", "x".repeat(997)).repeat(7));
    let chunks = counts(&[("alert.signature_id: 1", 3), ("pcap_cnt: 10", 1), ("pcap_cnt: 16", 1)]);
    assert_eq!(failures("chunks", &long, rules, ALERTS, &chunks), none);
}

#[test]
fn alerts_are_told_as_their_settings_say() {
    let rules = "alert http any any -> any any (http.method; content:\"POST\"; metadata:policy x; \
                 sid:1;)\nalert tcp any any -> any any (content:\"h\"; sid:2;)\n";
    let log = |of_log: &str, of_alert: &str| {
        format!(
            "%YAML 1.1\n---\noutputs:\n  - eve-log:\n      enabled: yes\n      \
             filename: eve.json\n      {of_log}\n      types: [{{alert: {{{of_alert}}}}}]\n"
        )
    };
    let id = "community_id: \"1:1u931kJ35oakXCbRtqU9rNHKj2U=\"";
    let cases = [
        ("off", "metadata: yes", "enabled: no", "alert.signature_id: 1", 0),
        ("buffer", "metadata: yes", "payload: yes, payload-buffer-size: 5", "payload: UE9TVA==", 2),
        ("bare", "metadata: yes", "metadata: no", "has-key: alert.metadata", 0),
        ("told", "metadata: yes", "metadata: yes", "has-key: alert.metadata", 1),
        ("seed", "community-id: yes\n      community-id-seed: 123", "metadata: yes", id, 3),
    ];
    for (name, of_log, of_alert, what, count) in cases {
        let test = counts(&[(what, count)]);
        let failed = failures(name, POST, rules, &log(of_log, of_alert), &test);
        assert_eq!(failed, Vec::<Value>::new(), "{name}");
    }
}

#[test]
fn a_test_whose_rules_do_not_run_says_so_and_a_command_of_another_program_is_skipped() {
    let folder = tempfile::tempdir().unwrap();
    let case = folder.path().join("case");
    std::fs::create_dir(&case).unwrap();
    write_capture(&case.join("in.pcap"), &frames(POST));
    let write = |name: &str, text: &str| std::fs::write(case.join(name), text).unwrap();
    write("test.rules", "alert ip any any -> any any (nobodys:1; sid:9;)\n");
    write("test.yaml", "checks:\n- filter: {count: 0, match: {event_type: alert}}\n");
    // A link back to itself is no other test.
    std::os::unix::fs::symlink(&case, case.join("self")).unwrap();
    let report = verified(folder.path());
    let cases = report["cases"].as_array().unwrap();
    assert_eq!((&report["passed"], cases.len()), (&1.into(), 1), "{report:#}");
    let reason = cases[0]["reason"].as_str().unwrap();
    assert!(reason.starts_with("rule 9 does not run: nobodys: "), "{reason}");
    write("test.yaml", "command: \"true\"\n");
    let report = verified(folder.path());
    assert_eq!(report["skipped"], 1, "{report:#}");
}

#[test]
fn what_settings_switch_off_is_not_told_and_files_are_kept_where_they_say_so() {
    let told = |types: &str, wanted: &str| {
        let yaml = format!(
            "outputs:\n  - eve-log: {{enabled: yes, filename: eve.json, types: [{types}]}}\n"
        );
        let test = format!("args: [-k none]\nchecks:\n{wanted}");
        let said = POST.replace("200 OK\\r\\n", "206 OK\\r\\nContent-Range: bytes 9-5/10\\r\\n");
        failures("switched", &said, "", &yaml, &test)
    };
    let none: &[Value] = &[];
    for kind in ["anomaly", "flow", "netflow"] {
        let count =
            |count: u32| format!("  - filter: {{count: {count}, match: {{event_type: {kind}}}}}\n");
        assert_eq!(told(&format!("{{{kind}: {{enabled: no}}}}"), &count(0)), none, "{kind}");
        let is_on = if kind == "netflow" { 2 } else { 1 };
        assert_eq!(told(&format!("{{{kind}: {{enabled: yes}}}}"), &count(is_on)), none, "{kind}");
    }
    let kept = "  - filter: {count: 2, match: {event_type: fileinfo, fileinfo.storing: true}}\n";
    assert_eq!(told("{files: {force-filestore: yes}}", kept), none);
}

/// How many transactions of a conversation are of these kinds.
const KINDS_OF_SMB: [(&str, u32); 10] = [
    ("file", 2),
    ("tree_connect", 2),
    ("negotiate", 1),
    ("dcerpc", 2),
    ("create", 5),
    ("session_setup", 1),
    ("generic", 5),
    ("rename", 0),
    ("file, ioctl", 2),
    ("all", 18),
];

#[test]
fn transactions_of_smb_are_told_by_their_kinds() {
    let said = include_str!("../../../../testdata/applications/smb.txt");
    for (kinds, count) in KINDS_OF_SMB {
        let yaml = format!(
            "outputs:\n  - eve-log: {{enabled: yes, filename: eve.json, types: [{{smb: {{types: \
             [{kinds}]}}}}]}}\napp-layer: {{protocols: {{smb: {{enabled: yes}}}}}}\n"
        );
        let test = format!(
            "args: [-k none]\nchecks:\n  - filter: {{count: {count}, match: {{event_type: \
             smb}}}}\n"
        );
        assert_eq!(failures("kinds", said, "", &yaml, &test), Vec::<Value>::new(), "{kinds}");
    }
}
