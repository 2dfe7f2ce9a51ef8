//! `weir verify --beside`: the same tests through a Suricata as well, and each event that one of
//! the two tells and the other does not. What the tests check is not looked at: so tests may be
//! made without it.
//!
//! ```text
//!   test --run--> ours ---------+
//!    |                          +--differences--> alike, or how they differ
//!    +--suricata -r--> theirs --+
//! ```

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt;
use std::fs;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use serde::Serialize;
use serde_json::Value;

use super::case::{self, Case};
use super::outputs;

/// Where it writes its events, and what it says of errors.
const EVE: &str = "eve.json";
const ERRORS: &str = "weir-stderr";
/// How long a test may take.
const PATIENCE: Duration = Duration::from_secs(120);
const STEP: Duration = Duration::from_millis(5);
/// Names that each program gives as it likes, or when it likes.
const OWN_NAMES: [&str; 2] = ["flow_id", "pcap_filename"];
/// What we tell always, and Suricata where its settings say so.
const MORE_NAMES: [&str; 4] = ["community_id", "ether", "flow", "verdict"];
/// Events that tell of a program, not of traffic.
const OF_PROGRAM: [&str; 2] = ["stats", "engine"];
/// Which events are held against one another: those that are alike in these fields.
const OF_EVENT: [&str; 8] = [
    "event_type",
    "pcap_cnt",
    "alert.signature_id",
    "src_ip",
    "src_port",
    "dest_ip",
    "dest_port",
    "proto",
];

/// Fields by their dotted names.
type Fields = BTreeMap<String, Value>;

/// What two programs tell of the same tests.
#[derive(Debug, Default, Serialize)]
pub struct BesideReport {
    /// The other program, in its own words.
    pub program: String,
    /// Tests of which both tell the same.
    pub alike: u64,
    /// Tests of which they do not.
    pub differ: u64,
    /// Tests that are not for us, or cannot be compared.
    pub skipped: u64,
    /// Tests that one of the two could not run.
    pub failed: u64,
    /// Each test.
    pub cases: Vec<Compared>,
}

/// What two programs tell of a test.
#[derive(Debug, Serialize)]
pub struct Compared {
    /// Its folder, from where was looked.
    pub name: String,
    /// `alike`, `differ`, `skipped` or `failed`.
    pub result: &'static str,
    /// Why it was skipped, or failed.
    pub reason: String,
    /// How they differ, in the order of their packets.
    pub differences: Vec<Difference>,
}

/// An event that one tells and the other does not, or tells otherwise.
#[derive(Debug, Serialize)]
pub struct Difference {
    /// `theirs` or `ours`: it alone tells the event. `both`: both do, and fields differ.
    pub told: &'static str,
    /// The event, by what it was found by.
    pub event: BTreeMap<&'static str, Value>,
    /// The fields that differ.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub fields: Vec<FieldDifference>,
}

/// A field of an event, in which two programs differ.
#[derive(Debug, Serialize)]
pub struct FieldDifference {
    /// Its dotted name.
    pub name: String,
    /// What the other program says, if anything.
    pub theirs: Option<Value>,
    /// What we say, if anything.
    pub ours: Option<Value>,
}

impl fmt::Display for Difference {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        let of = |name: &str| self.event.get(name).map(plain);
        write!(to, "{}", of("event_type").unwrap_or_default())?;
        let [sid, packet] = ["alert.signature_id", "pcap_cnt"].map(of);
        sid.map_or(Ok(()), |it| write!(to, " of rule {it}"))?;
        packet.map_or(Ok(()), |it| write!(to, " at packet {it}"))?;
        for [address, port, before] in [["src_ip", "src_port", ","], ["dest_ip", "dest_port", " >"]]
        {
            let Some(address) = of(address) else { continue };
            let port = of(port).map_or_else(String::new, |it| format!(" {it}"));
            write!(to, "{before} {address}{port}")?;
        }
        match self.told {
            "theirs" => write!(to, ": told there alone")?,
            "ours" => write!(to, ": told here alone")?,
            _ => {}
        }
        let value = |it: &Option<Value>| it.as_ref().map_or("nothing".into(), Value::to_string);
        for (place, field) in self.fields.iter().enumerate() {
            let [theirs, ours] = [&field.theirs, &field.ours].map(value);
            let before = if place == 0 { ':' } else { ';' };
            write!(to, "{before} {} is {theirs} there and {ours} here", field.name)?;
        }
        Ok(())
    }
}

impl Difference {
    /// What of it others may share: the kind of event, and how it differs.
    pub fn shared(&self) -> Vec<String> {
        let event = self.event.get("event_type").map(plain).unwrap_or_default();
        match self.told {
            "theirs" => vec![format!("{event}: told there alone")],
            "ours" => vec![format!("{event}: told here alone")],
            _ => self.fields.iter().map(|it| format!("{event}: {} differs", it.name)).collect(),
        }
    }
}

fn plain(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

/// Runs every test below `folder` with `program`, a Suricata, beside; gives each to `tell`.
///
/// # Errors
/// A folder cannot be read, there is no test, or the program is none.
pub fn run(
    folder: &Path,
    program: &Path,
    is_over: &AtomicBool,
    mut tell: impl FnMut(&Compared),
) -> Result<BesideReport> {
    // It is run in the tests' folders.
    let program = match program.components().count() {
        1 => program.to_owned(),
        _ => fs::canonicalize(program).with_context(|| format!("cannot run {program:?}"))?,
    };
    let mut report = BesideReport { program: version(&program)?, ..BesideReport::default() };
    for test in super::tests(folder)?.into_iter().take_while(|_| !is_over.load(Relaxed)) {
        let (result, reason, differences) = match one(&test, &program) {
            Ok(Ok(differences)) if differences.is_empty() => ("alike", String::new(), Vec::new()),
            Ok(Ok(differences)) => ("differ", String::new(), differences),
            Ok(Err(why)) => ("skipped", why, Vec::new()),
            Err(error) => ("failed", format!("{error:#}"), Vec::new()),
        };
        match result {
            "alike" => report.alike += 1,
            "differ" => report.differ += 1,
            "failed" => report.failed += 1,
            _ => report.skipped += 1,
        }
        let name = super::name(&test, folder);
        let compared = Compared { name, result, reason, differences };
        tell(&compared);
        report.cases.push(compared);
    }
    Ok(report)
}

/// What the program says that it is.
fn version(program: &Path) -> Result<String> {
    let mut asked = Command::new(program);
    let said = asked.arg("-V").output().with_context(|| format!("cannot run {program:?}"))?;
    let said = String::from_utf8_lossy(&said.stdout).trim().to_owned();
    let version = said.strip_prefix("This is Suricata version ");
    let version =
        version.with_context(|| format!("{program:?} is no Suricata: -V says {said:?}"))?;
    Ok(format!("Suricata {}", version.split_whitespace().next().unwrap_or_default()))
}

/// How the two differ over a test. Inner error: why it cannot be run.
fn one(folder: &Path, program: &Path) -> Result<std::result::Result<Vec<Difference>, String>> {
    let folder = &fs::canonicalize(folder)?;
    let case = match case::read(folder)? {
        Ok(case) => case,
        Err(skipped) => return Ok(Err(skipped.0)),
    };
    if let Some(why) = incomparable(&case) {
        return Ok(Err(why.into()));
    }
    let [here, there] = [(); 2].map(|()| tempfile::tempdir());
    let [here, there] = [here?, there?];
    let mut other = suricata(&case, program, there.path())?;
    let ours = super::run::run(&case, here.path());
    let status = end_of(&mut other);
    let said = fs::read(there.path().join(ERRORS)).unwrap_or_default();
    if !status.as_ref().is_ok_and(ExitStatus::success) {
        let said = String::from_utf8_lossy(&said);
        let last = said.lines().rev().find(|it| it.contains("E: ")).or(said.lines().last());
        bail!("Suricata: {}: {}", status?, last.unwrap_or("it says nothing"));
    }
    let ours = ours?.events;
    let ours: Vec<Value> = outputs::of_eve_json(&case, &ours).cloned().collect();
    let theirs = fs::read_to_string(there.path().join(EVE)).context("Suricata's eve.json")?;
    let theirs: Vec<Value> =
        theirs.lines().map(serde_json::from_str).collect::<Result<_, _>>().context("its EVE")?;
    let kinds = kinds(&case, &theirs);
    let [theirs, ours] = [&theirs, &ours].map(|it| fields(it, &kinds, &theirs));
    Ok(Ok(differences(&theirs, &ours)))
}

/// Why what the two tell of a test cannot be compared, if so.
fn incomparable(case: &Case) -> Option<&'static str> {
    let outputs = case.settings.get("outputs").and_then(Value::as_array).into_iter().flatten();
    let mut logs = outputs.filter_map(|it| it.get("eve-log"));
    let is_elsewhere = |it: &Value| it.get("filename").is_some_and(|it| it != EVE);
    let has_own_command = || !case.words.first().is_some_and(|it| it.ends_with("/suricata"));
    match () {
        () if case.is_check => Some("it has no capture"),
        () if !case.is_usual && has_own_command() => Some("it has a command of its own"),
        () if case.is_usual && case.words.iter().any(|it| it == "-l") => {
            Some("its events go to a folder of its own")
        }
        () if logs.any(is_elsewhere) => Some("its events go elsewhere than to eve.json"),
        () if case.scripts.iter().any(|it| !it.is_empty()) => Some("it has scripts"),
        () => None,
    }
}

/// Waits for the end of a Suricata, for which there is a time.
fn end_of(other: &mut Child) -> Result<ExitStatus> {
    let mut waited = Duration::ZERO;
    while waited < PATIENCE {
        if let Some(status) = other.try_wait()? {
            return Ok(status);
        }
        std::thread::sleep(STEP);
        waited += STEP;
    }
    other.kill()?;
    other.wait()?;
    bail!("it did not end within {} s", PATIENCE.as_secs());
}

/// Starts the program as suricata-verify starts it; what it makes goes to `made`.
fn suricata(case: &Case, program: &Path, made: &Path) -> Result<Child> {
    let mut command = Command::new(program);
    command.current_dir(&case.folder);
    let words = &case.words[usize::from(!case.is_usual)..];
    let has = |name: &str| words.iter().any(|it| it == name);
    if !has("-l") {
        command.arg("-l").arg(made);
    }
    let settings = case.folder.join("suricata.yaml");
    if settings.exists() && !has("-c") {
        command.arg("-c").arg(settings);
    }
    if !has("-r") {
        command.arg("-r").arg(&case.capture);
    }
    if !has("-S") {
        // It takes one file of rules.
        let mut rules = Vec::new();
        case.rules.iter().try_for_each(|it| {
            rules.extend(fs::read(it)?);
            rules.push(b'\n');
            std::io::Result::Ok(())
        })?;
        let file = made.join("weir-all.rules");
        fs::write(&file, rules)?;
        command.arg("-S").arg(file);
    }
    let value = |it: &Value| it.as_str().map_or_else(|| it.to_string(), str::to_owned);
    command.envs(case.environment.iter().map(|(name, it)| (name, value(it))));
    if case.is_inline && !has("--simulate-ips") {
        command.arg("--simulate-ips");
    }
    if !has("--runmode") && !words.iter().any(|it| it.starts_with("--runmode=")) {
        // So that packets are looked at in their order.
        command.args(["--runmode", "single"]);
    }
    let [test, made] = [&case.folder, made].map(|it| it.display().to_string());
    let word = |it: &String| it.replace("${TEST_DIR}", &test).replace("${OUTPUT_DIR}", &made);
    command.args(words.iter().map(word));
    let errors = fs::File::create(Path::new(&made).join(ERRORS))?;
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(errors);
    command.spawn().with_context(|| format!("cannot run {}", program.display()))
}

/// The kinds of events that are compared: those that the test's settings ask for; where they do
/// not say, those that the other program tells, and alerts.
fn kinds(case: &Case, theirs: &[Value]) -> BTreeSet<String> {
    let outputs = case.settings.get("outputs").and_then(Value::as_array).into_iter().flatten();
    let types = outputs.filter_map(|it| it.get("eve-log")?.get("types")?.as_array()).flatten();
    let name = |it: &Value| {
        it.as_str().map(str::to_owned).or_else(|| it.as_object()?.keys().next().cloned())
    };
    let mut kinds: BTreeSet<String> = types.filter_map(name).collect();
    if kinds.is_empty() {
        kinds.insert("alert".into());
        kinds.extend(theirs.iter().filter_map(|it| name(&it["event_type"])));
    }
    if kinds.remove("files") {
        kinds.insert("fileinfo".into());
    }
    kinds.retain(|it| !OF_PROGRAM.contains(&it.as_str()));
    kinds
}

/// The events of these kinds, without what is each program's own and what `theirs` never tell.
fn fields(events: &[Value], kinds: &BTreeSet<String>, theirs: &[Value]) -> Vec<Fields> {
    let kind = |it: &Value| it["event_type"].as_str().unwrap_or_default().to_owned();
    let mut told = BTreeSet::new();
    for event in theirs {
        let names = MORE_NAMES.iter().filter(|name| event.get(**name).is_some());
        told.extend(names.map(|name| (kind(event), *name)));
    }
    let one = |event: &Value| {
        let (kind, mut event) = (kind(event), event.as_object().cloned().unwrap_or_default());
        OWN_NAMES.iter().for_each(|it| drop(event.remove(*it)));
        if kind == "flow" {
            // When it found that the flow was over.
            event.remove("timestamp");
        }
        let untold = MORE_NAMES.iter().filter(|it| !told.contains(&(kind.clone(), **it)));
        untold.for_each(|it| drop(event.remove(*it)));
        let mut fields = Fields::new();
        flatten(&Value::Object(event), String::new(), &mut fields);
        fields
    };
    events.iter().filter(|it| kinds.contains(&kind(it))).map(one).collect()
}

fn flatten(value: &Value, name: String, fields: &mut Fields) {
    let Value::Object(inner) = value else {
        fields.insert(name, value.clone());
        return;
    };
    for (key, value) in inner {
        let name = if name.is_empty() { key.clone() } else { format!("{name}.{key}") };
        flatten(value, name, fields);
    }
}

/// What is in one and not in the other: first whole events, then those of the same packet.
fn differences(theirs: &[Fields], ours: &[Fields]) -> Vec<Difference> {
    let text = |it: &Fields| serde_json::to_string(it).unwrap_or_default();
    let mut same: BTreeMap<String, usize> = BTreeMap::new();
    ours.iter().for_each(|it| *same.entry(text(it)).or_default() += 1);
    let mut take = |it: &&Fields| match same.get_mut(&text(it)) {
        Some(left) if *left > 0 => {
            *left -= 1;
            false
        }
        _ => true,
    };
    let theirs: Vec<&Fields> = theirs.iter().filter(&mut take).collect();
    let mut left: BTreeMap<String, VecDeque<&Fields>> = BTreeMap::new();
    for event in ours.iter().rev() {
        // Of several that are the same, the first were those that the other has as well.
        if let Some(count) = same.get_mut(&text(event)).filter(|it| **it > 0) {
            *count -= 1;
            left.entry(place(event)).or_default().push_front(event);
        }
    }
    let mut found = Vec::new();
    for event in theirs {
        match left.get_mut(&place(event)).and_then(VecDeque::pop_front) {
            Some(other) => found.push(of_fields(event, other)),
            None => found.push(whole("theirs", event)),
        }
    }
    found.extend(left.into_values().flatten().map(|it| whole("ours", it)));
    found.sort_by_key(|it| it.event.get("pcap_cnt").and_then(Value::as_u64));
    found
}

/// By what events are held against one another.
fn place(event: &Fields) -> String {
    OF_EVENT.iter().map(|it| format!("{:?} ", event.get(*it))).collect()
}

fn named(event: &Fields) -> BTreeMap<&'static str, Value> {
    OF_EVENT.iter().filter_map(|it| Some((*it, event.get(*it)?.clone()))).collect()
}

fn whole(told: &'static str, event: &Fields) -> Difference {
    Difference { told, event: named(event), fields: Vec::new() }
}

fn of_fields(theirs: &Fields, ours: &Fields) -> Difference {
    let names: BTreeSet<&String> = theirs.keys().chain(ours.keys()).collect();
    let differing = names.into_iter().filter(|it| theirs.get(*it) != ours.get(*it));
    let one = |name: &String| FieldDifference {
        name: name.clone(),
        theirs: theirs.get(name).cloned(),
        ours: ours.get(name).cloned(),
    };
    Difference { told: "both", event: named(theirs), fields: differing.map(one).collect() }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn told(theirs: &[Value], ours: &[Value]) -> Vec<String> {
        let kinds = ["alert", "flow"].map(str::to_owned).into();
        let [of_theirs, of_ours] = [theirs, ours].map(|it| fields(it, &kinds, theirs));
        differences(&of_theirs, &of_ours).iter().map(Difference::to_string).collect()
    }

    #[test]
    fn events_that_are_the_same_are_no_difference_in_whatever_order() {
        let alert = |packet: u64| json!({"event_type": "alert", "pcap_cnt": packet});
        let (first, second) = (alert(1), alert(2));
        assert_eq!(told(&[first.clone(), second.clone()], &[second, first]), [""; 0]);
    }

    #[test]
    fn what_each_chooses_or_tells_besides_is_no_difference() {
        let theirs = json!({"event_type": "flow", "flow_id": 1, "timestamp": "a"});
        let ours = json!({"event_type": "flow", "flow_id": 2, "timestamp": "b", "ether": {}});
        assert_eq!(told(&[theirs], &[ours]), [""; 0]);
    }

    #[test]
    fn an_event_told_once_too_often_is_told_by_one_alone() {
        let alert = json!({"event_type": "alert", "pcap_cnt": 7, "alert": {"signature_id": 3}});
        let [once, twice] = [vec![alert.clone()], vec![alert.clone(), alert]];
        let expected = "alert of rule 3 at packet 7: told ";
        assert_eq!(told(&once, &twice), [format!("{expected}here alone")]);
        assert_eq!(told(&twice, &once), [format!("{expected}there alone")]);
    }

    #[test]
    fn fields_of_the_same_event_are_held_against_one_another() {
        let flow = |state: &str| {
            json!({"event_type": "flow", "src_ip": "10.0.0.1", "src_port": 5, "dest_ip": "10.0.0.2",
                "dest_port": 7, "flow": {"state": state, "age": 1}})
        };
        let expected =
            "flow, 10.0.0.1 5 > 10.0.0.2 7: flow.state is \"new\" there and \"closed\" here";
        assert_eq!(told(&[flow("new")], &[flow("closed")]), [expected]);
    }
}
