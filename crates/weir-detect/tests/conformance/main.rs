//! Judged by Suricata: the rules of others that lie beside the checkout, and what Suricata said
//! about traffic that is made from them.
//!
//! Looks in `WEIR_SHARED`, else in `shared` beside the checkout; skips loudly where nothing is.
//! Made flows are read from `WEIR_MADE_FLOWS` (a folder of `traffic_from_rules.py`, whole or cut),
//! else one part of them is made, whole and cut. `--nocapture` prints the figures.

#![allow(clippy::disallowed_methods, reason = "only the detector itself does without these")]

mod capture;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use weir_detect::{
    Alerts, Detector, Direction, FlowSlot, Limits, LoadOptions, Loaded, Packet, RuleSet,
    RuleSource, Variables,
};
use weir_wire::frame::{Link, Time};
use weir_wire::parse::parse;

/// At least so much of the enabled rules runs.
const RUNNABLE_SHARE: f64 = 0.95;
/// At least so many of Suricata's pairs of flow and rule are ours too, of one part.
const AGREED_SHARE: f64 = 0.95;
/// At most so many pairs are ours alone.
const EXTRA_SHARE: f64 = 0.01;
/// The part that is made where none is given, whole and cut.
const PART: &str = "3";
/// Bytes of a segment of the flows that are cut.
const CUT: &str = "61";

fn shared() -> Option<PathBuf> {
    let beside = || Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared");
    let folder = std::env::var_os("WEIR_SHARED").map_or_else(beside, PathBuf::from);
    if folder.join("rules").is_dir() && folder.join("conformance").is_dir() {
        return Some(folder);
    }
    eprintln!("SKIPPED: no rules and verdicts of others in {}", folder.display());
    None
}

fn rule_files(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).expect("a folder of rules") {
        let path = entry.expect("a folder of rules").path();
        if path.is_dir() {
            rule_files(&path, found);
        } else if path.extension().is_some_and(|it| it == "rules") {
            found.push(path);
        }
    }
}

fn load(shared: &Path) -> Loaded {
    let mut files = Vec::new();
    rule_files(&shared.join("rules"), &mut files);
    files.sort();
    let source = |path: &PathBuf| RuleSource {
        name: path.display().to_string(),
        text: String::from_utf8_lossy(&fs::read(path).expect("a rule file")).into_owned(),
    };
    let sources: Vec<RuleSource> = files.iter().map(source).collect();
    let mut variables = Variables::default();
    let home = "[192.168.0.0/16,10.0.0.0/8]".to_owned();
    variables.addresses.insert("HOME_NET".to_owned(), home);
    let mut options = LoadOptions::default();
    let classes = shared.join("rules/et-open-2025-09/classification.config");
    options.classes.read(&fs::read_to_string(classes).unwrap_or_default());
    RuleSet::load(&sources, &variables, &options).expect("memory for the patterns")
}

#[test]
fn the_runnable_share_of_the_rules_of_others_does_not_shrink() {
    let Some(shared) = shared() else { return };
    let report = load(&shared).report;
    let share = report.runnable as f64 / report.enabled as f64;
    println!("{} of {} enabled rules run: {share:.4}", report.runnable, report.enabled);
    let mut stopped: Vec<_> = report.by_keyword().into_iter().collect();
    stopped.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    for (keyword, count) in stopped {
        let of = |it: &&weir_detect::Refusal| it.keyword == keyword;
        let first = report.refused.iter().find(of).map_or("", |it| it.reason.as_str());
        println!("  {count:6} {keyword}: {first}");
    }
    assert!(share >= RUNNABLE_SHARE, "{share}");
}

type Pair = (BTreeSet<String>, u32);

/// Verdicts of Suricata: pairs of flow and sid, and the flows that there are.
fn verdicts(path: &Path) -> (BTreeSet<Pair>, HashMap<BTreeSet<String>, String>) {
    let text = fs::read_to_string(path).expect("a table of verdicts");
    let (mut pairs, mut flows) = (BTreeSet::new(), HashMap::new());
    for line in text.lines().filter(|it| !it.starts_with('#')) {
        let fields: Vec<&str> = line.split('\t').collect();
        let flow = BTreeSet::from([fields[1].to_owned(), fields[3].to_owned()]);
        let sids = fields[7].split(',').filter_map(|it| it.parse().ok());
        pairs.extend(sids.map(|sid| (flow.clone(), sid)));
        flows.insert(flow, fields[8].to_owned());
    }
    (pairs, flows)
}

/// Our verdicts on the captures of `folder`, and the flows in them.
fn ours(folder: &Path, rules: RuleSet) -> (BTreeSet<Pair>, BTreeSet<BTreeSet<String>>) {
    let rules = Arc::new(rules);
    let mut detector = Detector::new(rules.clone(), Limits::default()).expect("memory");
    let mut alerts = Alerts::new(1 << 16);
    let mut slots: HashMap<(String, String, u32), (FlowSlot, String)> = HashMap::new();
    let (mut pairs, mut flows) = (BTreeSet::new(), BTreeSet::new());
    let mut files: Vec<PathBuf> =
        fs::read_dir(folder).expect("made flows").map(|it| it.unwrap().path()).collect();
    files.retain(|it| it.extension().is_some_and(|it| it == "pcap"));
    files.sort();
    for file in files {
        capture::each(&fs::read(file).expect("a capture"), &mut |time_ns, bytes| {
            let parsed = parse(bytes, Link::Ethernet, bytes.len() as u32);
            let view = capture::ends(bytes);
            let Some((source, destination, ports)) = view else { return };
            let key = match source < destination {
                true => (source.clone(), destination.clone(), ports),
                false => (destination.clone(), source.clone(), ports),
            };
            let (slot, initiator) =
                slots.entry(key).or_insert_with(|| (FlowSlot::default(), source.clone()));
            let direction = match *initiator == source {
                true => Direction::Initiator,
                false => Direction::Responder,
            };
            let packet = Packet {
                bytes,
                parsed: &parsed,
                decoded: None,
                is_rebuilt: false,
                is_verified: false,
                icrc: None,
                port: None,
            };
            detector.inspect(Time(time_ns), slot, direction, &packet, &mut alerts);
            let flow = BTreeSet::from([source, destination]);
            pairs.extend(alerts.drain().map(|it| (flow.clone(), rules.rule(it.rule).sid)));
            flows.insert(flow);
        });
    }
    println!("{:?}", detector.counters());
    (pairs, flows)
}

fn unstable(shared: &Path) -> BTreeSet<u32> {
    let path = shared.join("conformance/suricata-eve/unstable-sids.txt");
    let text = fs::read_to_string(path).unwrap_or_default();
    text.lines().filter_map(|it| it.split_whitespace().next()?.parse().ok()).collect()
}

/// Makes one part of the flows, whole or cut; `None`, loudly: nothing here can.
fn make(shared: &Path, folder: &Path, is_cut: bool) -> Option<()> {
    let cut: &[&str] = if is_cut { &["--split", CUT] } else { &[] };
    let status = Command::new("python3")
        .arg(shared.join("conformance/suricata-eve/traffic_from_rules.py"))
        .arg("--rules")
        .arg(shared.join("rules"))
        .args(["--sids", "odd", "--part", PART])
        .args(cut)
        .arg("--out")
        .arg(folder)
        .status();
    if status.is_ok_and(|it| it.success()) {
        return Some(());
    }
    eprintln!("SKIPPED: python3 3.11 makes the flows, and does not here");
    None
}

#[test]
fn made_flows_alert_as_with_suricata() {
    let Some(shared) = shared() else { return };
    if let Some(made) = std::env::var_os("WEIR_MADE_FLOWS").map(PathBuf::from) {
        let is_cut = made.to_string_lossy().contains("split");
        return judge(&shared, &made, is_cut);
    }
    for is_cut in [false, true] {
        let name = format!("weir-made-flows-{}-{is_cut}", std::process::id());
        let scratch = std::env::temp_dir().join(name);
        if make(&shared, &scratch, is_cut).is_some() {
            judge(&shared, &scratch, is_cut);
        }
        let _ = fs::remove_dir_all(&scratch);
    }
}

/// Compares our verdicts on made flows with Suricata's.
fn judge(shared: &Path, folder: &Path, is_cut: bool) {
    let table = shared.join("conformance/suricata-eve");
    let name = if is_cut { "alerts-from-rules-odd-split.tsv" } else { "alerts-from-rules-odd.tsv" };
    let (mut theirs, categories) = verdicts(&table.join(name));
    let (mut ours, flows) = ours(folder, load(shared).rules);
    let unstable = unstable(shared);
    let counts = |it: &Pair| {
        flows.contains(&it.0)
            && !unstable.contains(&it.1)
            && !(2_200_000..2_300_000).contains(&it.1)
    };
    theirs.retain(counts);
    ours.retain(counts);
    let (missing, extra): (Vec<_>, Vec<_>) =
        (theirs.difference(&ours).collect(), ours.difference(&theirs).collect());
    let mut by_category: BTreeMap<&str, [usize; 2]> = BTreeMap::new();
    for (of, pairs) in [&missing, &extra].into_iter().enumerate() {
        for (flow, _) in pairs {
            let category = categories.get(flow).map_or("-", String::as_str);
            by_category.entry(category).or_default()[of] += 1;
        }
    }
    let share = |count: usize| count as f64 / theirs.len() as f64;
    println!(
        "{name}: {} pairs of theirs, {} missing ({:.4}), {} extra ({:.4}); {by_category:?}",
        theirs.len(),
        missing.len(),
        share(missing.len()),
        extra.len(),
        share(extra.len())
    );
    for (name, pairs) in [("missing", &missing), ("extra", &extra)] {
        let mut sids: BTreeMap<u32, usize> = BTreeMap::new();
        pairs.iter().for_each(|it| *sids.entry(it.1).or_default() += 1);
        let mut sids: Vec<_> = sids.into_iter().collect();
        sids.sort_by_key(|it| std::cmp::Reverse(it.1));
        println!("{name}: {:?}", &sids[..sids.len().min(60)]);
        if std::env::var_os("WEIR_JUDGE_ALL").is_some() {
            pairs.iter().for_each(|it| println!("{name} {:?} {}", it.0, it.1));
        }
    }
    assert!(share(missing.len()) <= 1.0 - AGREED_SHARE);
    assert!(share(extra.len()) <= EXTRA_SHARE);
}
