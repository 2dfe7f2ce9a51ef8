//! EVE as Elastic's integration for Suricata reads it: each field that its ingest pipelines
//! convert, split or compare has the form that the step wants (elastic/integrations,
//! packages/suricata, data_stream/eve: elasticsearch/ingest_pipeline and fields). A step that
//! cannot be carried out ends the pipeline, and the event is stored as an error.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::net::IpAddr;
use std::path::Path;
use std::process::Command;

use serde_json::Value;

use super::applications::{frames, write_capture};

/// What a step wants of a value.
#[derive(Clone, Copy, Debug)]
enum Form {
    Text,
    Number,
    Bool,
    Address,
    /// `ISO8601` of the `date` step.
    Date,
    /// `yyyy_MM_dd` or `yyyy-MM-dd`.
    Day,
    /// A word, a space, more: what `dissect` takes apart.
    TwoWords,
    /// `K=V`, several parted by a comma and a space.
    Names,
    OneOf(&'static [&'static str]),
}

use Form::*;

/// Fields, by the kind of event they are read of; `*` is any kind, `[]` each of a list.
const WANTED: [(&str, &str, Form); 66] = [
    ("*", "timestamp", Date),
    ("*", "event_type", Text),
    ("*", "src_ip", Address),
    ("*", "dest_ip", Address),
    ("*", "src_port", Number),
    ("*", "dest_port", Number),
    ("*", "proto", Text),
    ("*", "flow_id", Number),
    ("*", "app_proto", Text),
    ("*", "icmp_type", Number),
    ("*", "icmp_code", Number),
    ("*", "pcap_cnt", Number),
    ("*", "tx_id", Number),
    ("*", "http.status", Number),
    ("*", "http.length", Number),
    ("*", "http.http_port", Number),
    ("*", "http.hostname", Text),
    ("*", "http.url", Text),
    ("*", "http.http_method", Text),
    ("*", "http.http_refer", Text),
    ("*", "http.http_user_agent", Text),
    ("*", "http.http_content_type", Text),
    ("*", "http.protocol", Text),
    ("*", "http.redirect", Text),
    ("*", "fileinfo.filename", Text),
    ("*", "fileinfo.size", Number),
    ("*", "fileinfo.state", Text),
    ("*", "fileinfo.stored", Bool),
    ("*", "fileinfo.gaps", Bool),
    ("*", "fileinfo.tx_id", Number),
    ("*", "fileinfo.md5", Text),
    ("*", "fileinfo.sha1", Text),
    ("*", "fileinfo.sha256", Text),
    ("*", "flow.pkts_toserver", Number),
    ("*", "flow.pkts_toclient", Number),
    ("*", "flow.bytes_toserver", Number),
    ("*", "flow.bytes_toclient", Number),
    ("*", "flow.start", Date),
    ("flow", "flow.end", Date),
    ("flow", "flow.age", Number),
    ("flow", "flow.state", OneOf(&["new", "established", "closed", "bypassed"])),
    ("flow", "flow.reason", Text),
    ("flow", "flow.alerted", Bool),
    ("flow", "tcp.tcp_flags", Text),
    ("flow", "tcp.state", Text),
    ("flow", "tcp.syn", Bool),
    ("alert", "alert.action", OneOf(&["allowed", "blocked"])),
    ("alert", "alert.signature_id", Number),
    ("alert", "alert.gid", Number),
    ("alert", "alert.rev", Number),
    ("alert", "alert.severity", Number),
    ("alert", "alert.signature", Text),
    ("alert", "alert.category", Text),
    ("alert", "alert.metadata.created_at[]", Day),
    ("dns", "dns.type", OneOf(&["query", "answer"])),
    ("dns", "dns.id", Number),
    ("dns", "dns.rrname", Text),
    ("dns", "dns.rrtype", Text),
    ("dns", "dns.rcode", Text),
    ("dns", "dns.answers[].rrname", Text),
    ("dns", "dns.answers[].ttl", Number),
    ("tls", "tls.version", TwoWords),
    ("tls", "tls.issuerdn", Names),
    ("tls", "tls.subject", Names),
    ("tls", "tls.notbefore", Date),
    ("tls", "tls.notafter", Date),
];

/// Fields that no conversation of `testdata/applications` brings.
const NOT_SAID: [&str; 6] =
    ["icmp_type", "icmp_code", "http.http_port", "http.redirect", "http.http_refer", "tcp.syn"];

fn has_form(value: &Value, form: Form) -> bool {
    let text = value.as_str().unwrap_or_default();
    match form {
        Text => value.is_string(),
        Number => value.is_number(),
        Bool => value.is_boolean(),
        Address => text.parse::<IpAddr>().is_ok(),
        Date => {
            let (day, time) = text.split_once('T').unwrap_or_default();
            is_day(day, '-') && time.get(..8).is_some_and(is_time)
        }
        Day => is_day(text, '_') || is_day(text, '-'),
        // A version that nobody knows is a number alone, also as Suricata writes it.
        TwoWords => {
            let is_unknown = text == "UNDETERMINED" || text.bytes().all(|it| it.is_ascii_digit());
            is_unknown || text.contains(' ')
        }
        Names => text.split(", ").all(|it| it.contains('=')),
        OneOf(words) => words.contains(&text),
    }
}

fn is_day(text: &str, separator: char) -> bool {
    let parts: Vec<&str> = text.split(separator).collect();
    let is_number = |it: &&str| it.bytes().all(|it| it.is_ascii_digit());
    parts.iter().map(|it| it.len()).eq([4, 2, 2]) && parts.iter().all(is_number)
}

fn is_time(text: &str) -> bool {
    let parts: Vec<&str> = text.split(':').collect();
    parts.len() == 3 && parts.iter().all(|it| it.len() == 2 && it.parse::<u8>().is_ok())
}

/// The values at `path`.
fn at<'a>(event: &'a Value, path: &str) -> Vec<&'a Value> {
    let mut found = vec![event];
    for part in path.split('.') {
        let (name, is_list) = match part.strip_suffix("[]") {
            Some(name) => (name, true),
            None => (part, false),
        };
        found = found.into_iter().filter_map(|it| it.get(name)).collect();
        if is_list {
            let each = found.into_iter().map(|it| it.as_array().expect("a list"));
            found = each.flatten().collect();
        }
    }
    found
}

/// EVE of all conversations, `dns` in version 2, and with each flow an alert.
fn events(scratch: &Path) -> Vec<Value> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata/applications");
    let (rules, eve) = (scratch.join("all.rules"), scratch.join("eve.json"));
    let rule = "alert ip any any -> any any (msg:\"all\"; classtype:misc-attack; \
                metadata:created_at 2026_11_27, mitre_technique_id T1498; sid:1; rev:2;)\n";
    fs::write(&rules, rule).unwrap();
    let capture = scratch.join("in.pcap");
    let mut events = Vec::new();
    for path in fs::read_dir(folder).unwrap().map(|it| it.unwrap().path()) {
        if path.extension().is_none_or(|it| it != "txt") {
            continue;
        }
        write_capture(&capture, &frames(&fs::read_to_string(&path).unwrap()));
        let mut weir = Command::new(env!("CARGO_BIN_EXE_weir"));
        weir.args(["read", "--no-checksums", "--dns-version", "2", "--digests", "md5,sha1,sha256"]);
        weir.arg("--rules").arg(&rules).arg("--eve").arg(&eve).arg(&capture);
        assert!(weir.output().unwrap().status.success());
        let text = fs::read_to_string(&eve).unwrap();
        events.extend(text.lines().map(|it| serde_json::from_str::<Value>(it).expect("EVE")));
    }
    events
}

#[test]
fn fields_have_the_forms_that_elastics_pipelines_want() {
    let scratch = tempfile::tempdir().unwrap();
    let events = events(scratch.path());
    let mut seen: BTreeSet<&str> = BTreeSet::new();
    let mut wrong: BTreeMap<&str, String> = BTreeMap::new();
    for event in &events {
        for (kind, path, form) in WANTED {
            if kind != "*" && event["event_type"] != kind {
                continue;
            }
            for value in at(event, path) {
                seen.insert(path);
                if !has_form(value, form) {
                    wrong.entry(path).or_insert_with(|| format!("{value} is no {form:?}: {event}"));
                }
            }
        }
    }
    assert_eq!(wrong, BTreeMap::new());
    let missing = WANTED.iter().map(|it| it.1).filter(|it| !seen.contains(it));
    let missing: Vec<&str> = missing.filter(|it| !NOT_SAID.contains(it)).collect();
    assert_eq!(missing, [""; 0], "nothing was looked at of these");
}

/// The pipeline finds what was asked for, and addresses that answers name, in version 2 alone.
#[test]
fn what_was_asked_and_answered_is_found_where_elastics_pipeline_looks() {
    let scratch = tempfile::tempdir().unwrap();
    let events = events(scratch.path());
    let of_dns: Vec<&Value> = events.iter().filter(|it| it["event_type"] == "dns").collect();
    let questions = of_dns.iter().filter(|it| it["dns"]["type"] == "query").count();
    assert!(questions > 0 && questions < of_dns.len());
    for event in of_dns {
        let dns = &event["dns"];
        assert!(dns["type"] == "query" || dns["version"] == 2, "{event}");
        for answer in dns["answers"].as_array().into_iter().flatten() {
            if matches!(answer["rrtype"].as_str(), Some("A" | "AAAA")) {
                let address = answer["rdata"].as_str().expect("text");
                // Of a record that is cut there is none.
                assert!(address.is_empty() || address.parse::<IpAddr>().is_ok(), "{event}");
            }
        }
    }
}
