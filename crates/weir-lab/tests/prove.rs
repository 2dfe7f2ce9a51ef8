//! `weir prove` from outside: a tiny study end to end, tools that lie and hang, `kill -9`, what
//! cannot be run, statistics of anybody's data.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

/// How every study here begins.
const HEAD: &str = r#"
name = "tiny"
title = "A tiny study"
question = "Does it work?"
seed = 3
"#;

const STUDY: &str = r#"
steps = [
    { do = "lab", mtu = 1500 },
    { do = "path", scenario = "$scenario" },
    { do = "iperf3", seconds = 3, omit = 1, patience = 3 },
]
[design]
replicates = 1
repeats = 0
failures = 1
[[factors]]
name = "scenario"
levels = ["cable", "weir-clear"]
[[responses]]
name = "gbps"
title = "Throughput"
unit = "Gb/s"
"#;

/// A study's file and the folder that it runs into.
struct StudyFolder {
    folder: tempfile::TempDir,
}

impl StudyFolder {
    fn new() -> Self {
        let place = Self { folder: tempfile::tempdir().unwrap() };
        place.write(STUDY);
        place
    }

    /// Writes the study's file, all but its head.
    fn write(&self, study: &str) {
        fs::write(self.study(), format!("{HEAD}{study}")).unwrap();
    }

    fn study(&self) -> PathBuf {
        self.folder.path().join("tiny.toml")
    }

    fn out(&self) -> PathBuf {
        self.folder.path().join("out")
    }

    fn command(&self, more: &[&str]) -> Command {
        let mut command = weir(&[]);
        command.arg("prove").arg(self.study()).arg("--out").arg(self.out()).args(more);
        command
    }

    fn records(&self) -> Vec<Value> {
        let text = fs::read_to_string(self.out().join("trials.jsonl")).unwrap_or_default();
        let whole = text.lines().filter(|line| line.ends_with('}'));
        whole.filter_map(|line| serde_json::from_str(line).ok()).collect()
    }
}

fn weir(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_weir-lab"));
    command.args(arguments);
    command
}

fn said(output: &Output) -> String {
    let words = [&output.stdout[..], &output.stderr[..]].concat();
    String::from_utf8_lossy(&words).into_owned()
}

fn installed(tool: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|folder| folder.join(tool)).find(|file| file.is_file())
}

/// Whether the lab can be built and loaded here.
fn lab_works(test: &str) -> bool {
    let root =
        fs::metadata("/proc/self").is_ok_and(|it| std::os::unix::fs::MetadataExt::uid(&it) == 0);
    if !root || installed("iperf3").is_none() {
        eprintln!("SKIPPED: {test}: needs root and iperf3");
        return false;
    }
    true
}

#[test]
fn a_tiny_study_ends_with_a_report_whose_means_are_those_of_its_raw_data() {
    if !lab_works("a_tiny_study_ends_with_a_report_whose_means_are_those_of_its_raw_data") {
        return;
    }
    let place = StudyFolder::new();
    let output = place.command(&[]).output().unwrap();
    assert!(output.status.success(), "{}", said(&output));
    let records = place.records();
    assert_eq!(records.len(), 2);
    let html = fs::read_to_string(place.out().join("report.html")).unwrap();
    for record in &records {
        let folder =
            place.out().join("raw").join(format!("{:04}-1", record["trial"].as_u64().unwrap()));
        let raw = fs::read_to_string(folder.join("iperf3-receiver.json")).unwrap();
        let mean = mean_of_raw(&serde_json::from_str(&raw).unwrap());
        let recorded = record["values"]["gbps"].as_f64().unwrap();
        assert!((mean - recorded).abs() < 1e-9, "{mean} in raw data, {recorded} recorded");
        let digits = (3 - mean.log10().floor() as i32) as usize;
        assert!(html.contains(&format!(">{mean:.digits$}<")), "{mean} is not in the report");
        assert!(record["load"]["parts"]["generator"].as_f64().unwrap() > 0.0);
    }
    let gateways = |scenario: &str| {
        let record = records.iter().find(|it| it["levels"]["scenario"] == scenario).unwrap();
        record["load"]["parts"]["gateways"].as_f64().unwrap_or(0.0)
    };
    assert!(gateways("weir-clear") > 0.0 && gateways("cable") == 0.0, "{records:?}");
    asks_nobody(&html);
    // The report comes again from the folder alone, elsewhere.
    let moved = place.folder.path().join("moved");
    fs::rename(place.out(), &moved).unwrap();
    fs::remove_file(moved.join("report.html")).unwrap();
    let output = weir(&["prove", "report"]).arg(&moved).output().unwrap();
    assert!(output.status.success(), "{}", said(&output));
    assert_eq!(fs::read_to_string(moved.join("report.html")).unwrap(), html);
}

/// Gb/s, without the first second and without a last part of a second.
fn mean_of_raw(report: &Value) -> f64 {
    let sums = report["intervals"].as_array().unwrap().iter().map(|it| &it["sum"]);
    let whole = sums.filter(|it| it["seconds"].as_f64().unwrap() >= 0.9);
    let rates: Vec<f64> =
        whole.map(|it| it["bits_per_second"].as_f64().unwrap() / 1e9).take(3).skip(1).collect();
    rates.iter().sum::<f64>() / rates.len() as f64
}

/// Nothing in it makes a browser fetch anything. Text may name addresses (versions of tools do),
/// and the name of SVG's own namespace is none.
fn asks_nobody(html: &str) {
    for mark in ["<script", "<link", "<iframe", "<img", "<object", "<use", "@import", "url("] {
        assert!(!html.contains(mark), "{mark} in the report");
    }
    let tags = html.split('<').skip(1).filter_map(|rest| rest.split('>').next());
    for tag in tags {
        // A file that the report carries along.
        if tag.starts_with("a download=") && tag.contains(" href=\"data:text/plain;base64,") {
            continue;
        }
        let tag = tag.replace("xmlns=\"http://www.w3.org/2000/svg\"", "");
        for mark in ["http:", "https:", "src=", "href=", "//"] {
            assert!(!tag.contains(mark), "<{tag}> in the report");
        }
    }
    assert!(html.contains("<svg") && html.contains("@media print"));
}

#[test]
fn a_tool_that_lies_or_hangs_fails_its_trial_and_never_counts() {
    if !lab_works("a_tool_that_lies_or_hangs_fails_its_trial_and_never_counts") {
        return;
    }
    let real = installed("iperf3").unwrap();
    let lies = [("exit 0", "without a report"), ("exec sleep 600", "no end of iperf3")];
    for (client, reason) in lies {
        let place = StudyFolder::new();
        let folder = place.folder.path().join("bin");
        fs::create_dir(&folder).unwrap();
        let script = format!(
            "#!/bin/sh\ncase \"$1\" in -s|--version) exec {} \"$@\";; esac\n{client}\n",
            real.display()
        );
        let fake = folder.join("iperf3");
        fs::write(&fake, script).unwrap();
        fs::set_permissions(&fake, fs::Permissions::from_mode(0o755)).unwrap();
        let path = format!("{}:{}", folder.display(), std::env::var("PATH").unwrap());
        let output = place.command(&[]).env("PATH", path).output().unwrap();
        assert_eq!(output.status.code(), Some(1), "{}", said(&output));
        assert!(said(&output).contains(reason), "{}", said(&output));
        let records = place.records();
        assert_eq!(records.len(), 1, "one failure in a row ends this study");
        assert_eq!(
            (&records[0]["state"], records[0]["values"].as_object().unwrap().len()),
            (&"failed".into(), 0)
        );
        let report = fs::read_to_string(place.out().join("report.md")).unwrap();
        assert!(report.contains("INCOMPLETE: 2 OF 2"), "{report}");
    }
}

#[test]
fn a_killed_study_goes_on_where_it_was() {
    if !lab_works("a_killed_study_goes_on_where_it_was") {
        return;
    }
    let place = StudyFolder::new();
    let mut running =
        place.command(&[]).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    // In the middle of the second trial.
    let until = Instant::now() + Duration::from_secs(60);
    while place.records().is_empty() || !place.out().join("running").exists() {
        assert!(Instant::now() < until, "no first trial");
        std::thread::sleep(Duration::from_millis(20));
    }
    running.kill().unwrap();
    running.wait().unwrap();
    let lab = fs::read_to_string(place.out().join("running")).unwrap();
    let first = place.records();
    assert_eq!(first.len(), 1);
    let refused = place.command(&[]).output().unwrap();
    assert!(said(&refused).contains("--resume goes on"), "{}", said(&refused));
    assert!(!said(&refused).contains("incomplete"), "nothing was begun: {}", said(&refused));
    let refused = place.command(&["--resume", "--seed", "99"]).output().unwrap();
    assert!(said(&refused).contains("another plan"), "{}", said(&refused));
    let output = place.command(&["--resume"]).output().unwrap();
    assert!(output.status.success(), "{}", said(&output));
    let records = place.records();
    assert_eq!((records.len(), &records[0]), (2, &first[0]), "the first trial is not run again");
    let numbers: Vec<u64> = records.iter().map(|it| it["trial"].as_u64().unwrap()).collect();
    assert_eq!(numbers, [1, 2]);
    let left = fs::read_dir("/run/netns").unwrap().flatten();
    let left =
        left.filter(|it| it.file_name().to_string_lossy().starts_with(&format!("weir-{lab}-")));
    assert_eq!(left.count(), 0, "the killed run's namespaces are gone");
}

#[test]
fn a_study_that_cannot_be_run_is_refused_before_the_first_trial() {
    if !lab_works("a_study_that_cannot_be_run_is_refused_before_the_first_trial") {
        return;
    }
    let place = StudyFolder::new();
    let folder = place.folder.path().join("bin");
    fs::create_dir(&folder).unwrap();
    for tool in ["ip", "tc", "ethtool", "setpriv"] {
        symlink(installed(tool).unwrap(), folder.join(tool)).unwrap();
    }
    let output = place.command(&[]).env("PATH", &folder).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    let words = said(&output);
    assert!(
        words.contains("tiny cannot be run") && words.contains("apt-get install iperf3"),
        "{words}"
    );
    assert!(place.records().is_empty() && !place.out().join("report.html").exists());
}

#[test]
fn a_plan_is_shown_without_running_it() {
    let output = weir(&["prove", "ipsec-cost", "--plan", "--quick", "--json"]).output().unwrap();
    let shown: Value = serde_json::from_slice(&output.stdout).unwrap();
    let trials = shown["plan"]["trials"].as_array().unwrap();
    assert_eq!(trials.len(), 11 * 2);
    assert!(shown["expected_seconds"].as_f64().unwrap() > 100.0);
    let output =
        weir(&["prove", "ipsec-cost", "--plan", "--only", "cipher=rot13"]).output().unwrap();
    assert!(said(&output).contains("there are none, aes-256-gcm, aes-128-gcm"));
    let output = weir(&["prove", "nothing"]).output().unwrap();
    assert!(said(&output).contains("no study is called nothing; there are ipsec-cost"));
    let output = weir(&["prove", "--list", "--json"]).output().unwrap();
    let listed: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(listed[0]["name"], "ipsec-cost");
}

#[test]
fn statistics_of_anybodys_data_are_json_of_the_stated_form() {
    let place = StudyFolder::new();
    let file = place.folder.path().join("plants.csv");
    write_plants(&file);
    let arguments = ["--value", "weight", "--by", "group,half", "--json"];
    let output = weir(&["prove", "stats"]).arg(&file).args(arguments).output().unwrap();
    assert!(output.status.success(), "{}", said(&output));
    let tests: Value = serde_json::from_slice(&output.stdout).unwrap();
    let group = &tests["group"];
    let near = |value: &Value, wanted: f64| (value.as_f64().unwrap() - wanted).abs() < 1e-4;
    // R: kruskal.test(weight ~ group, PlantGrowth).
    assert!(near(&group["h"], 7.9882) && near(&group["p"], 0.01842), "{group}");
    assert!(group["df"] == 2 && near(&group["epsilon_squared"], 7.9882 / 29.0), "{group}");
    assert!(near(&group["groups"]["trt2"]["mean"], 5.526));
    let pairs = group["pairs"].as_array().unwrap();
    assert_eq!(pairs.len(), 3);
    let keys: Vec<&String> = pairs[0].as_object().unwrap().keys().collect();
    assert_eq!(keys, ["a", "b", "cliffs_delta", "p_holm", "z"]);
    assert_eq!(tests["half"]["df"], 1);
    for (column, words) in
        [("height", "no column is called height"), ("group", "is no finite number")]
    {
        let output =
            weir(&["prove", "stats"]).arg(&file).args(["--value", column, "--by", "half"]).output();
        let output = output.unwrap();
        assert_eq!(output.status.code(), Some(1));
        assert!(said(&output).contains(words), "{}", said(&output));
    }
}

/// R's PlantGrowth.
fn write_plants(file: &Path) {
    let groups = [
        ("ctrl", [4.17, 5.58, 5.18, 6.11, 4.50, 4.61, 5.17, 4.53, 5.33, 5.14]),
        ("trt1", [4.81, 4.17, 4.41, 3.59, 5.87, 3.83, 6.03, 4.89, 4.32, 4.69]),
        ("trt2", [6.31, 5.12, 5.54, 5.50, 5.37, 5.29, 4.92, 6.15, 5.80, 5.26]),
    ];
    let mut text = String::from("group,half,weight\n");
    for (group, weights) in groups {
        for (at, weight) in weights.iter().enumerate() {
            text += &format!("{group},{},{weight}\n", at / 5);
        }
    }
    fs::write(file, text).unwrap();
}

/// Programs that listen, as the shipped study has them.
fn programs() -> &'static str {
    let study = include_str!("../../../studies/monitoring.toml");
    let begin = study.find("[settings.programs.").unwrap();
    &study[begin..study.find("[quick]").unwrap()]
}

#[test]
fn a_tool_that_listens_is_judged_by_what_came_to_its_port() {
    if !lab_works("a_tool_that_listens_is_judged_by_what_came_to_its_port") {
        return;
    }
    let place = StudyFolder::new();
    let study = r#"
[[steps]]
do = "listen"
tool = "$tool"
programs = "$programs"
frame_bytes = 1442
gbps = 0.05
seconds = 1
[design]
replicates = 1
repeats = 0
failures = 1
[[factors]]
name = "tool"
levels = ["nobody", "weir-capture", "tcpdump"]
[[responses]]
name = "arrived"
title = "Arrived"
unit = "%"
[[responses]]
name = "taken"
title = "Taken"
unit = "%"
optional = true
[[report.thresholds]]
name = "Detect"
response = "taken"
at_least = 80.0
"#;
    place.write(&format!("{study}{}", programs()));
    let output = place.command(&[]).output().unwrap();
    assert!(output.status.success(), "{}", said(&output));
    for record in place.records() {
        let values = &record["values"];
        assert_eq!(values["arrived"], 100.0, "{record}");
        let is_nobody = record["levels"]["tool"] == "nobody";
        assert_eq!(values["taken"].is_null(), is_nobody, "{record}");
        assert!(is_nobody || values["taken"].as_f64().unwrap() > 80.0, "{record}");
    }
    let report = fs::read_to_string(place.out().join("report.md")).unwrap();
    assert!(report.contains("| tcpdump | yes |") && report.contains("| nobody | - |"), "{report}");
}

const GATEWAY_STUDY: &str = r#"
[settings]
gbps = 0.02
[[steps]]
do = "listen"
tool = "$tool"
programs = "$programs"
frame_bytes = 1442
gbps = "$gbps"
seconds = 1
place = "gateway"
path = "$path"
mirror = "$mirror"
[design]
replicates = 1
repeats = 0
failures = 1
disturbed_percent = 1000.0
first = { tool = ["nobody"] }
[[factors]]
name = "tool"
levels = ["tcpdump", "nobody"]
[[factors]]
name = "path"
levels = ["weir-fastpath", "ovs"]
[[factors]]
name = "mirror"
levels = ["none", "weir"]
[[exclude]]
path = ["ovs"]
mirror = ["weir"]
[[exclude]]
path = ["weir-fastpath"]
mirror = ["none"]
[[responses]]
name = "carried"
title = "Carried"
unit = "Gb/s"
[[report.thresholds]]
name = "No negative impact"
response = "carried"
at_least = 50.0
share_of = { tool = "nobody" }
[report.losses]
tool = "tool"
level = "mirror"
baseline = "nobody"
name = "Case study"
"#;

#[test]
fn a_tool_at_a_gateway_takes_what_the_gateway_carries_and_mirrors() {
    if !lab_works("a_tool_at_a_gateway_takes_what_the_gateway_carries_and_mirrors") {
        return;
    }
    let place = StudyFolder::new();
    place.write(&format!("{GATEWAY_STUDY}{}", programs()));
    let only: &[&str] =
        if installed("ovs-vswitchd").is_some() { &[] } else { &["--only", "path=weir-fastpath"] };
    let output = place.command(only).output().unwrap();
    assert!(output.status.success(), "{}", said(&output));
    let records = place.records();
    let tool = |it: &Value| it["levels"]["tool"].as_str().unwrap().to_owned();
    let first: Vec<String> = records.iter().map(tool).collect();
    let baselines = records.iter().filter(|it| tool(it) == "nobody").count();
    assert!(first[..baselines].iter().all(|it| it == "nobody"), "{first:?}");
    for record in records {
        let values = &record["values"];
        // OVS in user space loses frames on a busy machine; Weir's fast path does not.
        let is_ovs = record["levels"]["path"] == "ovs";
        assert!(is_ovs || values["arrived"].as_f64().unwrap() > 90.0, "{record}");
        if tool(&record) != "nobody" {
            let least = if is_ovs { 1.0 } else { 80.0 };
            assert!(values["taken"].as_f64().unwrap() > least, "{record}");
        }
    }
    let report = fs::read_to_string(place.out().join("report.md")).unwrap();
    for words in ["Case study 1: path", "Tables 4, 6 and 8", "Baseline, nobody listens"] {
        assert!(report.contains(words), "{words}: {report}");
    }
    let judge = |threshold: &str| {
        let mut command = weir(&["prove", "report", "--threshold", threshold]);
        command.arg(place.out()).output().unwrap()
    };
    assert!(judge("No negative impact=101000").status.success());
    let report = fs::read_to_string(place.out().join("report.md")).unwrap();
    assert!(report.contains("| tcpdump | weir | no |"), "{report}");
    assert!(said(&judge("Impact=3")).contains("there are No negative impact"));
}

#[test]
fn tunnels_carry_streams_each_and_what_cannot_be_is_refused() {
    if !lab_works("tunnels_carry_streams_each_and_what_cannot_be_is_refused") {
        return;
    }
    let place = StudyFolder::new();
    let study = r#"
[[steps]]
do = "tunnels"
by = "$by"
tunnels = "$tunnels"
mtu = 9000
seconds = 2
wire_mtu = 9000
wanted_mbps = 50.0
one_process_above = 16
[design]
replicates = 1
repeats = 0
failures = 1
[[factors]]
name = "by"
levels = ["openvpn-aes-256-cbc", "weir-aes-256-gcm"]
[[factors]]
name = "tunnels"
levels = [2, 18]
[[exclude]]
by = ["openvpn-aes-256-cbc"]
tunnels = [18]
[[responses]]
name = "gbps"
title = "Throughput"
unit = "Gb/s"
"#;
    let text =
        study.replacen("[[exclude]]\nby = [\"openvpn-aes-256-cbc\"]\ntunnels = [18]\n", "", 1);
    place.write(&text);
    let refused = place.command(&[]).output().unwrap();
    assert!(
        said(&refused).contains("16 tunnels of OpenVpnAes256Cbc at most"),
        "{}",
        said(&refused)
    );
    assert!(!place.out().exists(), "the same command runs once the study is mended");
    place.write(study);
    let only: &[&str] = match installed("openvpn") {
        Some(_) => &[],
        None => &["--only", "by=weir-aes-256-gcm"],
    };
    let output = place.command(only).output().unwrap();
    assert!(output.status.success(), "{}", said(&output));
    for record in place.records() {
        let values = &record["values"];
        assert!(values["slowest"].as_f64().unwrap() > 0.0, "{record}");
        let count: f64 = record["levels"]["tunnels"].as_str().unwrap().parse().unwrap();
        let (all, each) = (values["gbps"].as_f64().unwrap(), values["each"].as_f64().unwrap());
        assert!((all * 1000.0 / count - each).abs() < 0.3 * each, "{record}");
        assert!(values["memory"].as_f64().unwrap() > 1.0, "{record}");
    }
}

#[test]
fn a_program_that_the_study_names_sends_and_what_arrives_counts() {
    if !lab_works("a_program_that_the_study_names_sends_and_what_arrives_counts") {
        return;
    }
    let place = StudyFolder::new();
    let study = r#"
steps = [
    { do = "lab", mtu = 1500 },
    { do = "path", scenario = "cable" },
    { do = "generate", generator = "$generator", programs = "$programs", seconds = 3, omit = 1 },
]
[design]
replicates = 1
repeats = 0
failures = 5
disturbed_percent = 1000.0
[[factors]]
name = "generator"
levels = ["iperf", "hping3", "trafgen", "liar"]
[[responses]]
name = "kpps"
title = "Arrived"
unit = "thousand frames/s"
[settings.programs.iperf]
command = "iperf -c $target -u -b 20M -l 1000 -t $seconds"
server = "iperf -s -u"
ready = "Server listening"
[settings.programs.hping3]
command = "hping3 --syn --faster -q -p 80 $target"
[settings.programs.trafgen]
command = "trafgen -o $device -P 1 -n 20000 -t 100us {eth(da=$target_mac),fill(0x55,100)}"
[settings.programs.liar]
command = "true"
"#;
    place.write(study);
    let there = ["iperf", "hping3", "trafgen"].into_iter().filter(|it| installed(it).is_some());
    let levels = there.chain(["liar"]).collect::<Vec<_>>().join(",");
    let output = place.command(&["--only", &format!("generator={levels}")]).output().unwrap();
    let records = place.records();
    assert_eq!(records.len(), levels.split(',').count(), "{}", said(&output));
    for record in records {
        let is_liar = record["levels"]["generator"] == "liar";
        let state = if is_liar { "failed" } else { "done" };
        assert_eq!(record["state"], state, "{record}");
        if !is_liar {
            assert!(record["values"]["kpps"].as_f64().unwrap() > 0.5, "{record}");
        }
    }
}
