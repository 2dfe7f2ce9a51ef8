//! Plans are reproducible and refuse what makes no sense; a study's folder survives what a killed
//! process leaves, and only what was measured counts.

use std::collections::BTreeMap;
use std::fs::{self, OpenOptions};
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

use weir_lab::report;
use weir_lab::study::catalogue;
use weir_lab::study::design::Study;
use weir_lab::study::environment::Environment;
use weir_lab::study::load::Load;
use weir_lab::study::record::{Folder, Plan, State, TrialRecord, Writing};

const STUDY: &str = r#"
name = "tiny"
title = "A <tiny> study"
question = "Does it work?"
seed = 7
steps = [
    { do = "lab", mtu = 9000 },
    { do = "path", scenario = "$scenario", cipher = "$cipher" },
    { do = "iperf3", seconds = "$seconds", omit = 1 },
]
[design]
replicates = 4
blocks = "replicate"
[settings]
seconds = 60
[quick]
replicates = 2
settings = { seconds = 3 }
[[factors]]
name = "scenario"
levels = ["cable", "weir-sealed"]
[[factors]]
name = "cipher"
levels = ["none", "aes-256-gcm"]
[[exclude]]
scenario = ["cable"]
cipher = ["aes-256-gcm"]
[[exclude]]
scenario = ["weir-sealed"]
cipher = ["none"]
[[responses]]
name = "gbps"
title = "Throughput"
unit = "Gb/s"
[report]
baseline = { scenario = "cable" }
"#;

fn environment() -> Environment {
    Environment {
        processor: "made up".into(),
        processors: 2,
        memory_mib: 1024,
        kernel: "6".into(),
        system: "a test".into(),
        governor: None,
        hypervisor: None,
        weir: "weir 0".into(),
        weir_sha256: String::new(),
        commit: None,
        tools: BTreeMap::new(),
        adapters: Vec::new(),
    }
}

fn record(folder: &Folder, trial: usize, attempt: u32, state: State, gbps: f64) -> TrialRecord {
    let planned = &folder.plan.trials[trial - 1];
    let load = Load { processors: 2, others: gbps / 100.0, ..Load::default() };
    TrialRecord {
        trial,
        attempt,
        replicate: planned.replicate,
        levels: planned.levels.clone(),
        state,
        reason: (state != State::Done).then(|| "a reason".into()),
        began: 1_700_000_000,
        seconds: 4.0,
        session: 0,
        values: BTreeMap::from([("gbps".into(), gbps)]),
        samples: BTreeMap::from([("gbps".into(), vec![gbps - 1.0, gbps + 1.0])]),
        load: Some(load),
        raw: Vec::new(),
    }
}

fn begun(path: &Path) -> (Folder, Writing) {
    let (plan, study) = Plan::new(STUDY, true, &[], None).unwrap();
    let mut folder = Folder::create(path, STUDY, plan, study).unwrap();
    let writing = folder.write(environment()).unwrap();
    (folder, writing)
}

#[test]
fn a_seed_gives_its_order_again_and_blocks_hold_every_combination() {
    let study = Study::parse(STUDY).unwrap();
    let plan = study.plan(7).unwrap();
    assert_eq!(plan, study.plan(7).unwrap());
    assert_eq!(plan.len(), 2 * 4, "excluded combinations are not planned");
    for (block, trials) in plan.chunks(2).enumerate() {
        assert!(trials.iter().all(|it| it.replicate == block as u32 + 1));
        assert_ne!(trials[0].levels, trials[1].levels);
    }
    let orders: Vec<_> = (0..20).map(|seed| study.plan(seed).unwrap()).collect();
    assert!(orders.iter().any(|it| *it != orders[0]), "another seed, another order");
}

#[test]
fn shipped_studies_are_whole_also_when_quick() {
    for study in catalogue::shipped().unwrap() {
        for study in [study.clone(), study.shortened()] {
            let plan = study.plan(study.seed).unwrap();
            let steps = plan.iter().map(|it| study.steps_of(&it.levels).unwrap());
            assert!(steps.into_iter().all(|it| !it.is_empty()), "{}", study.name);
        }
    }
}

#[test]
fn a_factor_that_needs_what_the_machine_has_not_is_dropped_and_that_is_said() {
    let factor = "[[factors]]\nname = \"governor\"\nlevels = [\"performance\", \"powersave\"]\n\
                  needs = \"cpufreq\"\n[[exclude]]\ngovernor = [\"powersave\"]\n\
                  cipher = [\"none\"]\n[[responses]]";
    let text = STUDY.replace("[[responses]]", factor).replace(
        "{ do = \"lab\", mtu = 9000 },",
        "{ do = \"governor\", name = \"$governor\" },\n    { do = \"lab\", mtu = 9000 },",
    );
    let whole = Study::parse(&text).unwrap();
    let study = whole.clone().without(&["governor".to_owned()]);
    assert_eq!((whole.factors.len(), study.factors.len()), (3, 2));
    assert_eq!((whole.steps.len(), study.steps.len()), (4, 3));
    assert_eq!(study.combinations(), Study::parse(STUDY).unwrap().combinations());
    let place = tempfile::tempdir().unwrap();
    let (mut plan, _) = Plan::new(&text, true, &[], None).unwrap();
    if plan.dropped.is_empty() {
        assert!(Path::new("/sys/devices/system/cpu/cpu0/cpufreq").exists());
        plan.dropped = vec!["governor".to_owned()];
        return;
    }
    let study = study.shortened();
    Folder::create(place.path(), &text, plan, study).unwrap();
    report::write(place.path()).unwrap();
    let markdown = fs::read_to_string(place.path().join("report.md")).unwrap();
    assert!(markdown.contains("Dropped, because the machine has not"), "{markdown}");
}

#[test]
fn a_shipped_study_s_file_says_what_each_of_its_words_means() {
    for study in catalogue::shipped().unwrap() {
        for factor in &study.factors {
            for level in factor.levels.iter().filter_map(|it| it.as_str()) {
                let (name, of) = (&study.name, &factor.name);
                assert!(factor.meaning.contains_key(level), "{name}: {of} = {level}?");
            }
        }
    }
}

#[test]
fn a_study_that_makes_no_sense_is_refused_with_the_place() {
    for (from, to, said) in [
        ("seconds = \"$seconds\"", "seconds = \"$secs\"", "$secs is neither"),
        ("scenario = \"$scenario\"", "scenario = \"cable\"", "no step uses factor scenario"),
        ("levels = [\"cable\", ", "levels = [\"string\", ", "unknown variant `string`"),
        ("do = \"lab\"", "do = \"laboratory\"", "unknown variant `laboratory`"),
        ("mtu = 9000", "mtu = 9000, mut = 1", "unknown field `mut`"),
        ("[quick]\nreplicates", "[quick]\nreplicas", "unknown field `replicas`"),
        ("baseline = { scenario", "baseline = { scenery", "no factor is called scenery"),
        ("replicates = 4", "replicates = 0", "no replicate"),
    ] {
        let text = STUDY.replacen(from, to, 1);
        assert_ne!(text, STUDY, "{from}");
        let reason = format!("{:#}", Study::parse(&text).unwrap_err());
        assert!(reason.contains(said), "{from} -> {to}: {reason}");
    }
    let study = Study::parse(STUDY).unwrap();
    let reason = study.clone().only(&["cipher=rot13".into()]).unwrap_err().to_string();
    assert!(reason.contains("there are none, aes-256-gcm"), "{reason}");
    let none = study.only(&["scenario=cable".into(), "cipher=aes-256-gcm".into()]).unwrap();
    assert!(none.plan(1).unwrap_err().to_string().contains("all combinations are excluded"));
}

#[test]
fn a_half_written_line_is_cut_and_the_trial_is_missing() {
    let place = tempfile::tempdir().unwrap();
    let (mut folder, mut writing) = begun(place.path());
    let first = record(&folder, 1, 1, State::Done, 10.0);
    folder.add(&mut writing, first).unwrap();
    drop(writing);
    let file = place.path().join("trials.jsonl");
    let mut torn = OpenOptions::new().append(true).open(&file).unwrap();
    torn.write_all(b"{\"trial\":2,\"attempt\":1,\"lev").unwrap();
    drop(torn);
    let mut folder = Folder::open(place.path()).unwrap();
    assert_eq!(folder.records.len(), 1);
    let mut writing = folder.write(environment()).unwrap();
    let second = record(&folder, 2, 1, State::Done, 5.0);
    folder.add(&mut writing, second).unwrap();
    drop(writing);
    let again = Folder::open(place.path()).unwrap();
    assert_eq!(again.records, folder.records);
    assert_eq!((again.records.len(), again.sessions.len()), (2, 2));
}

#[test]
fn a_folder_has_one_writer_and_is_never_begun_twice() {
    let place = tempfile::tempdir().unwrap();
    let (folder, _writing) = begun(place.path());
    let reason = Folder::open(place.path()).unwrap().write(environment()).unwrap_err();
    assert!(reason.to_string().contains("another process runs"), "{reason}");
    let (plan, study) = (folder.plan.clone(), folder.study.clone());
    let reason = Folder::create(place.path(), STUDY, plan, study).unwrap_err().to_string();
    assert!(reason.contains("--resume"), "{reason}");
}

#[test]
fn a_changed_study_or_plan_is_told() {
    let place = tempfile::tempdir().unwrap();
    drop(begun(place.path()));
    let file = place.path().join("study.toml");
    fs::write(&file, STUDY.replace("omit = 1", "omit = 2")).unwrap();
    let reason = Folder::open(place.path()).unwrap_err().to_string();
    assert!(reason.contains("study.toml was changed"), "{reason}");
}

#[test]
fn only_what_was_measured_counts_and_the_report_says_what_did_not() {
    let place = tempfile::tempdir().unwrap();
    let (mut folder, mut writing) = begun(place.path());
    let sealed = |it: &Folder, trial: usize| it.plan.trials[trial - 1].levels["cipher"] != "none";
    let records = [
        // Done after a failure; its number would spoil any mean.
        record(&folder, 1, 1, State::Failed, 1e9),
        record(&folder, 1, 2, State::Done, 20.0),
        // Disturbed twice: the less disturbed one counts.
        record(&folder, 2, 1, State::Disturbed, 16.0),
        record(&folder, 2, 2, State::Disturbed, 12.0),
        record(&folder, 3, 1, State::Failed, 1e9),
    ];
    for record in records {
        folder.add(&mut writing, record).unwrap();
    }
    let counted = |trial| folder.counted(trial).map(|it| (it.attempt, it.values["gbps"]));
    assert_eq!(counted(1), Some((2, 20.0)));
    assert_eq!(counted(2), Some((2, 12.0)));
    assert_eq!((counted(3), counted(4)), (None, None));
    report::write(place.path()).unwrap();
    let markdown = fs::read_to_string(place.path().join("report.md")).unwrap();
    for said in ["QUICK RUN", "INCOMPLETE: 2 OF 4", "DISTURBED: IN 1 OF 4", "A \\<tiny\\> study"] {
        assert!(markdown.contains(said), "{said}: {markdown}");
    }
    assert!(!markdown.contains("1000000000"), "a failed trial was averaged in");
    // Trials 1 and 2 are a block: one of each combination.
    assert_ne!(sealed(&folder, 1), sealed(&folder, 2));
    let share = if sealed(&folder, 1) { "166.7 %" } else { "60.0 %" };
    assert!(markdown.contains(share), "{share}: {markdown}");
    let results = fs::read_to_string(place.path().join("results.csv")).unwrap();
    assert_eq!(results.lines().count(), 1 + 5, "every attempt is a row");
    assert_eq!(results.lines().filter(|line| line.contains(",yes,")).count(), 2);
}

#[test]
fn strangers_open_the_results_and_find_the_same_numbers() {
    let place = tempfile::tempdir().unwrap();
    let (mut folder, mut writing) = begun(place.path());
    for (trial, state, gbps) in [
        (1, State::Done, 20.5),
        (2, State::Disturbed, 12.0),
        (3, State::Failed, 1e9),
        (4, State::Done, 14.25),
    ] {
        let record = record(&folder, trial, 1, state, gbps);
        folder.add(&mut writing, record).unwrap();
    }
    report::write(place.path()).unwrap();
    let examples = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/results");
    let run = |program: &str, script: &str, more: &[&str]| {
        let mut command = Command::new(program);
        let output = command.arg(examples.join(script)).arg(place.path()).args(more).output();
        let Ok(output) = output else { return Err(format!("no {program}")) };
        let words = [&output.stdout[..], &output.stderr[..]].concat();
        let words = String::from_utf8_lossy(&words).into_owned();
        let lacks = words.contains("was not read") || words.contains("No module named");
        assert!(output.status.success() || lacks, "{words}");
        if lacks { Err(words) } else { Ok(words) }
    };
    for (program, script, more) in
        [("python3", "results.py", &["gbps"][..]), ("Rscript", "results.R", &["gbps", "scenario"])]
    {
        match run(program, script, more) {
            Ok(words) => assert!(words.contains("results.parquet agrees: 4 rows"), "{words}"),
            // No skip: Debian has neither pyarrow nor a reader for R, so no machine that tests
            // is expected to have them. The form is looked at below.
            Err(reason) => eprintln!("not read by {program}: {reason}"),
        }
    }
    let bytes = fs::read(place.path().join("results.parquet")).unwrap();
    assert!(bytes.starts_with(b"PAR1") && bytes.ends_with(b"PAR1"));
}

#[test]
fn raw_data_that_was_changed_is_told() {
    let place = tempfile::tempdir().unwrap();
    let (mut folder, mut writing) = begun(place.path());
    let file = place.path().join("raw/0001-1.txt");
    fs::write(&file, "as measured").unwrap();
    let mut first = record(&folder, 1, 1, State::Done, 10.0);
    first.raw = vec![weir_lab::study::record::raw_file(place.path(), &file).unwrap()];
    folder.add(&mut writing, first).unwrap();
    report::write(place.path()).unwrap();
    let report = || fs::read_to_string(place.path().join("report.md")).unwrap();
    assert!(!report().contains("RAW DATA CHANGED"));
    fs::write(&file, "as wished").unwrap();
    report::write(place.path()).unwrap();
    assert!(report().contains("RAW DATA CHANGED"), "{}", report());
}

/// A report of a study whose trials all counted, in the folder.
fn reported(path: &Path) {
    let (mut folder, mut writing) = begun(path);
    for trial in 1..=folder.plan.trials.len() {
        let record = record(&folder, trial, 1, State::Done, 10.0 + trial as f64 / 7.0);
        folder.add(&mut writing, record).unwrap();
    }
    report::write(path).unwrap();
}

#[test]
fn the_report_alone_has_the_study_its_order_and_its_results() {
    let place = tempfile::tempdir().unwrap();
    reported(place.path());
    let html = fs::read_to_string(place.path().join("report.html")).unwrap();
    for name in ["study.toml", "plan.json", "results.csv", "samples.csv"] {
        let mark = format!("<a download=\"{name}\" href=\"data:text/plain;base64,");
        let (_, rest) = html.split_once(&mark).unwrap_or_else(|| panic!("{name} is not in it"));
        let (data, _) = rest.split_once('"').unwrap();
        let mut base64 = Command::new("base64");
        base64.arg("-d").stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut base64 = base64.spawn().unwrap();
        base64.stdin.take().unwrap().write_all(data.as_bytes()).unwrap();
        let saved = base64.wait_with_output().unwrap().stdout;
        assert_eq!(saved, fs::read(place.path().join(name)).unwrap(), "{name}");
    }
}

#[test]
fn a_browser_prints_the_report_as_a_pdf_with_all_of_its_words() {
    let found = |program: &str| Command::new(program).arg("--version").output().is_ok();
    if !found("chromium") || !found("pdftotext") {
        eprintln!("SKIPPED: the report is not printed: chromium and poppler-utils are not here");
        return;
    }
    let place = tempfile::tempdir().unwrap();
    reported(place.path());
    let (html, pdf) = (place.path().join("report.html"), place.path().join("report.pdf"));
    let mut chromium = Command::new("chromium");
    chromium.args(["--headless", "--no-sandbox", "--disable-gpu", "--no-pdf-header-footer"]);
    chromium.arg(format!("--user-data-dir={}", place.path().join("profile").display()));
    chromium.arg(format!("--print-to-pdf={}", pdf.display()));
    let output = chromium.arg(format!("file://{}", html.display())).output().unwrap();
    assert!(pdf.is_file(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = Command::new("pdftotext").arg("-layout").arg(&pdf).arg("-").output().unwrap();
    let text = String::from_utf8_lossy(&text.stdout).into_owned();
    let words = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
    let printed = words(&text);
    for said in ["A <tiny> study", "QUICK RUN", "Methods", "Machine", "Raw data", "results.csv"] {
        assert!(printed.contains(said), "{said} is not printed: {text}");
    }
    // Figures are drawn, not left out, and no table runs over the edge of its page.
    assert!(printed.contains("Throughput (Gb/s)"), "{text}");
    let info = Command::new("pdfinfo").arg(&pdf).output().unwrap();
    let info = String::from_utf8_lossy(&info.stdout).into_owned();
    assert!(info.contains("A <tiny> study"), "its title: {info}");
    let mut boxes = Command::new("pdftotext");
    let boxes = boxes.args(["-bbox"]).arg(&pdf).arg("-").output().unwrap();
    let boxes = String::from_utf8_lossy(&boxes.stdout).into_owned();
    let number = |line: &str, name: &str| -> f64 {
        let (_, rest) = line.split_once(&format!(" {name}=\"")).unwrap();
        rest.split('"').next().unwrap().parse().unwrap()
    };
    let mut width = 0.0;
    for line in boxes.lines() {
        if line.contains("<page ") {
            width = number(line, "width");
        } else if line.contains("<word ") {
            let (left, right) = (number(line, "xMin"), number(line, "xMax"));
            assert!(left >= 20.0 && right <= width - 20.0, "over the edge of {width}: {line}");
        }
    }
    assert!(width > 0.0, "{boxes}");
}
