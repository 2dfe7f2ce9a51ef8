//! What is told of conversations of one protocol, beside what Suricata 8.0.7 tells of them.
//!
//! `testdata/judged/NAME.tsv` has Suricata's answers, a line for each conversation. Where Suricata
//! is installed it is asked again; with `WEIR_WRITE` set its answers are written there.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use serde_json::Value;

use crate::applications::{frames, suricata_in, write_capture};
use crate::verify::verified;

/// The first client's port; the next conversation has the next one.
const PORT: usize = 40_000;

/// Has both read the conversations with a server at that port of TCP, each with its name and what
/// the two say, and compares what `told` makes of events.
pub(crate) fn judge(
    name: &str,
    port: u16,
    yaml: &str,
    cases: &[(String, String)],
    told: fn(&Value) -> Option<String>,
) {
    let judged = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata/judged");
    let list = judged.join(name).with_extension("tsv");
    let scratch = tempfile::tempdir().unwrap();
    let (mut packets, mut first) = (Vec::new(), Vec::new());
    for (place, (_, conversation)) in cases.iter().enumerate() {
        first.push(packets.len() as u64);
        let client = PORT + place;
        packets.extend(frames(&format!("tcp {port} from {client}\n{conversation}")));
    }
    write_capture(&scratch.path().join("in.pcap"), &packets);
    let test = "args: [-k none]\nchecks:\n- shell:\n    args: cp eve.json $TEST_DIR\n";
    for (name, text) in [("test.yaml", test), ("suricata.yaml", yaml), ("test.rules", "")] {
        fs::write(scratch.path().join(name), text).unwrap();
    }
    let answers = |eve: &str| {
        let found = by_place(eve, &first, told);
        let answer = |(place, (name, _)): (usize, &(String, String))| {
            (name.clone(), found.get(&place).cloned().unwrap_or_default())
        };
        cases.iter().enumerate().map(answer).collect::<Vec<_>>()
    };
    let theirs = suricata_in(&format!("judged-{name}"), scratch.path(), "").map(|it| answers(&it));
    if let Some(theirs) = theirs.as_ref().filter(|_| std::env::var_os("WEIR_WRITE").is_some()) {
        let lines: Vec<_> = theirs.iter().map(|it| format!("{}\t{}\n", it.0, it.1)).collect();
        fs::write(&list, lines.concat()).unwrap();
    }
    let text = fs::read_to_string(&list).unwrap_or_default();
    let kept: BTreeMap<&str, &str> = text.lines().filter_map(|it| it.split_once('\t')).collect();
    let wrong = |answers: &[(String, String)]| {
        let mut wrong = String::new();
        for (name, found) in answers {
            if kept.get(&**name).copied() != Some(found) {
                writeln!(wrong, "{name}\n    {found}\n    {:?}", kept.get(&**name)).unwrap();
            }
        }
        wrong
    };
    let theirs = theirs.as_deref().map(wrong).unwrap_or_default();
    assert_eq!(verified(scratch.path())["passed"], 1);
    let ours = wrong(&answers(&fs::read_to_string(scratch.path().join("eve.json")).unwrap()));
    assert!(theirs.is_empty() && ours.is_empty(), "Suricata:\n{theirs}\nweir:\n{ours}");
    assert_eq!(kept.len(), cases.len(), "one answer for each case");
}

/// What is told of each conversation, by its place: with which of its packets, and what.
fn by_place(
    eve: &str,
    first: &[u64],
    told: fn(&Value) -> Option<String>,
) -> BTreeMap<usize, String> {
    let mut by_place: BTreeMap<usize, Vec<String>> = BTreeMap::new();
    for line in eve.lines() {
        let event: Value = serde_json::from_str(line).unwrap();
        let ports = [&event["src_port"], &event["dest_port"]].map(|it| it.as_u64().unwrap_or(0));
        let Some(place) = ports[0].max(ports[1]).checked_sub(PORT as u64) else { continue };
        let place = usize::try_from(place).unwrap();
        let packet = event["pcap_cnt"].as_u64();
        let packet = packet.map_or("end".into(), |it| (it - first[place]).to_string());
        if let Some(what) = told(&event) {
            by_place.entry(place).or_default().push(format!("{packet} {what}"));
        }
    }
    let join = |(place, mut what): (usize, Vec<String>)| {
        what.sort();
        (place, what.join(", "))
    };
    by_place.into_iter().map(join).collect()
}
