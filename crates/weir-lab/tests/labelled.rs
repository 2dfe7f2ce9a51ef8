//! The labelled captures in `testdata/attacks`: every attack is told by its rule, and no harmless
//! twin by any. Read from the files, as others would.

use std::path::Path;
use std::sync::Arc;

use weir_detect::{
    Alerts, Detector, FlowTable, Limits, LoadOptions, Packet, RuleSet, RuleSource, Variables,
};
use weir_port::CaptureReader;
use weir_wire::parse::parse_frame;

fn repository() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))
}

fn rules() -> Arc<RuleSet> {
    let source = |name: &str| RuleSource {
        name: name.to_owned(),
        text: std::fs::read_to_string(repository().join("rules").join(name)).expect("it is there"),
    };
    let sources = [source("rdma.rules"), source("flood.rules")];
    let loaded = RuleSet::load(&sources, &Variables::default(), &LoadOptions::default());
    Arc::new(loaded.expect("memory").rules)
}

/// The rules that tell of a capture, and its packets.
fn told(rules: &Arc<RuleSet>, path: &Path) -> (Vec<u32>, u64) {
    let limits = Limits::default();
    let mut detector = Detector::new(Arc::clone(rules), limits).expect("memory");
    let (mut flows, mut alerts) = (FlowTable::new(limits), Alerts::new(4096));
    let (mut sids, mut packets) = (Vec::new(), 0);
    let mut reader = CaptureReader::open(path).expect("it can be read");
    loop {
        let count = reader.next_batch(&mut |frames| {
            for frame in frames {
                packets += 1;
                let parsed = parse_frame(frame);
                let packet = Packet {
                    bytes: frame.bytes(),
                    parsed: &parsed,
                    decoded: None,
                    is_rebuilt: false,
                    is_verified: false,
                    icrc: None,
                    port: None,
                };
                flows.inspect(&mut detector, frame.meta.time, &packet, &mut alerts);
            }
        });
        sids.extend(alerts.drain().map(|alert| rules.rule(alert.rule).sid));
        if count.expect("it is whole") == 0 {
            break;
        }
    }
    sids.sort_unstable();
    sids.dedup();
    (sids, packets)
}

#[test]
fn every_labelled_attack_is_told_by_its_rule_and_no_twin_by_any() {
    let rules = rules();
    let folder = repository().join("testdata/attacks");
    let labels = std::fs::read_to_string(folder.join("labels.tsv")).expect("it is there");
    let mut files = 0;
    for line in labels.lines().skip(1) {
        let mut fields = line.split('\t');
        let mut next = || fields.next().expect("six fields");
        let (file, sid) = (next(), next().parse::<u32>().expect("a number"));
        let frames: u64 = next().parse().expect("a number");
        let (sids, packets) = told(&rules, &folder.join(file));
        assert!(packets >= frames, "{file}: {packets}");
        match sid {
            0 => assert_eq!(sids, [], "{file}"),
            _ => assert!(sids.contains(&sid), "{file}: {sids:?} instead of {sid}"),
        }
        files += 1;
    }
    assert!(files >= 50, "{files}");
}
