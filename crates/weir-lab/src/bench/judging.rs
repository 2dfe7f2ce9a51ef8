//! How far our detection says what Suricata says: over the flows that are made from the rules
//! themselves, and by tests in suricata-verify's format.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use super::detecting::{JUDGED, RULES, joined};
use super::{Figure, Options, Samples};
use crate::process;

/// Others' tests, which are read where they lie.
const VERIFIED: &str = "../shared/conformance/suricata-verify/tests";
/// The engine's own event rules, which the comparison leaves out.
const EVENT_RULES: &str = "2200000-2299999";
pub(super) const PATIENCE: Duration = Duration::from_secs(600);
/// What Suricata says of the flows, whole and cut into segments of 61 bytes.
const WHOLE: &str = "alerts-from-rules-odd.tsv";
const CUT: &str = "alerts-from-rules-odd-split.tsv";
/// Rules that are missing or extra and named in a figure's note, at most.
const NAMED_MAX: usize = 12;

/// Pairs of flow and rule, whole and cut into segments of 61 bytes; tests that pass.
pub(super) fn conformance(options: &Options) -> Result<Vec<Figure>> {
    let folder = tempfile::tempdir()?;
    fs::write(folder.path().join("all.rules"), joined(Path::new(RULES))?)?;
    let mut figures = Vec::new();
    for (name, table, split) in [("whole", WHOLE, None), ("cut", CUT, Some("61"))] {
        let flows = folder.path().join(name);
        let mut make = Command::new("python3");
        make.arg(Path::new(JUDGED).join("traffic_from_rules.py"));
        make.args(["--rules", RULES, "--sids", "odd", "--out"]).arg(&flows);
        if let Some(length) = split {
            make.args(["--split", length]);
        }
        if options.quick {
            make.args(["--part", "3"]);
        }
        process::run(&mut make, PATIENCE)?;
        if options.quick {
            fs::rename(flows.join("flows-003.tsv"), flows.join("flows.tsv"))?;
        }
        let ours = alerts(options, folder.path(), &flows)?;
        let verdict = compared(folder.path(), &flows, &[table], &ours)?;
        let figure = format!("conformance_{name}");
        let [agreed, mut extra] = shares(&figure, &verdict, options.quick)?;
        if split.is_some() {
            // Suricata looks at some bytes of a stream in pieces: what it finds in them depends on
            // how they were cut, and what it finds in none of them is ours alone.
            let of_both = compared(folder.path(), &flows, &[WHOLE, CUT], &ours)?;
            let alone = &of_both["all"]["extra"];
            extra.note += &format!("; {alone} that it does not tell of the same flows whole");
        }
        figures.extend([agreed, extra]);
    }
    figures.push(verified(options)?);
    Ok(figures)
}

/// Our alerts on `flows`, as a table.
fn alerts(options: &Options, folder: &Path, flows: &Path) -> Result<PathBuf> {
    let mut parts: Vec<_> = fs::read_dir(flows)?.map(|it| Ok(it?.path())).collect::<Result<_>>()?;
    parts.retain(|it| it.extension().is_some_and(|it| it == "pcap"));
    parts.sort();
    let eve = eve_of(options, &folder.join("all.rules"), &parts, folder)?;
    let mut join = Command::new("python3");
    join.arg(Path::new(JUDGED).join("join_eve.py")).arg("flows");
    join.arg(flows.join("flows.tsv")).arg(&eve);
    let ours = folder.join("ours.tsv");
    fs::write(&ours, process::run(&mut join, PATIENCE)?.stdout)?;
    Ok(ours)
}

/// What we tell of captures, in `folder`.
pub(super) fn eve_of(
    options: &Options,
    rules: &Path,
    captures: &[PathBuf],
    folder: &Path,
) -> Result<PathBuf> {
    let eve = folder.join("eve.json");
    let mut read = Command::new(&options.program);
    read.args(["read", "--no-checksums", "--rules"]).arg(rules);
    read.arg("--variables").arg(Path::new(JUDGED).join("suricata.yaml")).arg("--eve").arg(&eve);
    process::run(read.args(captures), PATIENCE)?;
    Ok(eve)
}

/// What the comparison with Suricata's tables says of our alerts on `flows`.
fn compared(folder: &Path, flows: &Path, tables: &[&str], ours: &Path) -> Result<Value> {
    let judged = Path::new(JUDGED);
    // Of the flows that were made, which may be a part of all.
    let mut all = String::new();
    for table in tables {
        all += &fs::read_to_string(judged.join(table))?;
    }
    let made = fs::read_to_string(flows.join("flows.tsv"))?;
    let key = |line: &str| line.split('\t').take(5).collect::<Vec<_>>().join("\t");
    let made: std::collections::BTreeSet<String> = made.lines().map(key).collect();
    let of_made = all.lines().filter(|it| it.starts_with('#') || made.contains(&key(it)));
    let theirs = folder.join("theirs.tsv");
    fs::write(&theirs, of_made.collect::<Vec<_>>().join("\n") + "\n")?;
    let mut compare = Command::new("python3");
    compare.arg(judged.join("compare.py")).arg(theirs).arg(ours);
    compare.arg("--ignore").arg(judged.join("unstable-sids.txt"));
    let said = process::run(compare.args(["--range", EVENT_RULES, "--json"]), PATIENCE)?.stdout;
    serde_json::from_str(&said).context("compare.py says no JSON")
}

/// The shares of Suricata's pairs that are ours too, and that are ours alone, as figures of `name`.
pub(super) fn shares(name: &str, verdict: &Value, is_part: bool) -> Result<[Figure; 2]> {
    let all = &verdict["all"];
    let count = |what: &str| all[what].as_f64().with_context(|| format!("no {what} in {all}"));
    let reference = count("reference")?;
    ensure!(reference > 0.0, "no flow was judged");
    let figure = |what: &str, sids: &str| -> Result<Figure> {
        let named = verdict[sids].as_array().into_iter().flatten().take(NAMED_MAX);
        let named: Vec<String> = named.map(|it| it[0].to_string()).collect();
        let part = if is_part { "a part: " } else { "" };
        let note = format!(
            "{part}{} of {reference} pairs of flow and sid; most in {sids}: {}",
            count(what)?,
            named.join(" ")
        );
        let share = Samples(vec![100.0 * count(what)? / reference]);
        Ok(Figure::new(&format!("{name}_{what}"), "%", &share).noted(&note))
    };
    Ok([figure("agreed", "missing_sids")?, figure("extra", "extra_sids")?])
}

fn verified(options: &Options) -> Result<Figure> {
    let mut verify = Command::new(&options.program);
    verify.args(["verify", "--json", VERIFIED]);
    // It fails where a test does: what it says counts.
    let said = verify.output().context("weir verify")?.stdout;
    let report: Value = serde_json::from_slice(&said).context("weir verify says no JSON")?;
    let mut reasons = BTreeMap::new();
    for case in report["cases"].as_array().into_iter().flatten() {
        if case["result"] != "passed" {
            reasons.insert(case["name"].to_string(), case["reason"].to_string());
        }
    }
    let cases = report["cases"].as_array().map_or(0, Vec::len);
    let names: Vec<_> = reasons.keys().map(|it| it.trim_matches('"').to_owned()).collect();
    let passed = Samples(vec![report["passed"].as_f64().unwrap_or_default()]);
    let note = format!("of {cases} cases; not: {}", names.join(" "));
    Ok(Figure::new("conformance_verify", "cases", &passed).noted(&note))
}
