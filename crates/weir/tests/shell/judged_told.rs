//! What is told of conversations, held against the answers that Suricata 8.0.7 gave.
//!
//! Each conversation is a connection of its own in one capture. `testdata/judged` has Suricata's
//! answers. Where Suricata is installed it is asked again.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use serde_json::Value;

use crate::applications::{frames, suricata_in, write_capture};
use crate::verify::verified;

/// The first client's port; the others follow in their order.
const PORT: u64 = 40_000;

/// Conversations, and what is compared of them.
pub(crate) struct Judged<'a> {
    /// The answers' file, without its end.
    pub(crate) name: &'a str,
    /// The server's port.
    pub(crate) port: u16,
    /// What Suricata is to write.
    pub(crate) yaml: &'a str,
    /// Names, and what client and server say.
    pub(crate) cases: Vec<(String, String)>,
    /// What an event says, if it counts.
    pub(crate) tell: &'a dyn Fn(&Value) -> Option<String>,
}

impl Judged<'_> {
    /// What is told of each connection, by its place: with which of its packets, and what.
    fn told(&self, eve: &str, first: &[u64]) -> BTreeMap<usize, String> {
        let mut told: BTreeMap<usize, Vec<String>> = BTreeMap::new();
        for line in eve.lines() {
            let event: Value = serde_json::from_str(line).unwrap();
            let ports =
                [&event["src_port"], &event["dest_port"]].map(|it| it.as_u64().unwrap_or(0));
            let Some(place) = ports[0].max(ports[1]).checked_sub(PORT) else { continue };
            let Some(what) = (self.tell)(&event) else { continue };
            let place = usize::try_from(place).unwrap();
            let packet = event["pcap_cnt"].as_u64();
            let packet = packet.map_or("end".into(), |it| (it - first[place]).to_string());
            told.entry(place).or_default().push(format!("{packet} {what}"));
        }
        let joined = told.into_iter().map(|(place, mut what)| {
            what.sort();
            (place, what.join(", "))
        });
        joined.collect()
    }

    /// Asks Weir, and Suricata where it is installed; each must say what is kept.
    pub(crate) fn judge(&self) {
        let file = format!("../../testdata/judged/{}.tsv", self.name);
        let file = Path::new(env!("CARGO_MANIFEST_DIR")).join(file);
        let text = fs::read_to_string(file).unwrap_or_default();
        let kept: BTreeMap<&str, &str> =
            text.lines().filter_map(|it| it.split_once('\t')).collect();
        let scratch = tempfile::tempdir().unwrap();
        let (mut packets, mut first) = (Vec::new(), Vec::new());
        for (place, (_, conversation)) in self.cases.iter().enumerate() {
            first.push(packets.len() as u64);
            let (server, client) = (self.port, PORT + place as u64);
            packets.extend(frames(&format!("tcp {server} from {client}\n{conversation}")));
        }
        write_capture(&scratch.path().join("in.pcap"), &packets);
        let test = "args: [-k none]\nchecks:\n- shell:\n    args: cp eve.json $TEST_DIR\n";
        for (name, text) in [("test.yaml", test), ("suricata.yaml", self.yaml), ("test.rules", "")]
        {
            fs::write(scratch.path().join(name), text).unwrap();
        }
        let mut wrong = [String::new(), String::new()];
        let mut compare = |who: usize, eve: &str| {
            let found = self.told(eve, &first);
            for (place, (name, _)) in self.cases.iter().enumerate() {
                let found = found.get(&place).map_or("", String::as_str);
                if kept.get(&**name).copied() != Some(found) {
                    writeln!(wrong[who], "{name}\t{found}").unwrap();
                }
            }
        };
        if let Some(eve) = suricata_in(&format!("judged-{}", self.name), scratch.path(), "") {
            compare(0, &eve);
        }
        assert_eq!(verified(scratch.path())["passed"], 1);
        compare(1, &fs::read_to_string(scratch.path().join("eve.json")).unwrap());
        let [theirs, ours] = wrong;
        assert!(theirs.is_empty() && ours.is_empty(), "Suricata:\n{theirs}\nweir:\n{ours}");
        assert_eq!(kept.len(), self.cases.len(), "one answer for each case");
    }
}
