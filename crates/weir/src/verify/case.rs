//! A test folder in suricata-verify's format: what to run, and what must come of it.

use std::collections::BTreeMap;
use std::env::consts::ARCH;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use serde::{Deserialize, Deserializer};
use serde_json::Value;

use crate::rules::yaml::{self, without_head};

/// The version of Suricata whose behaviour ours is held against: tests say which they are for.
const VERSION: [u32; 3] = [8, 0, 7];

/// How a command line names a folder of the test for sets that rules change.
const DATA_FOLDER: &str = "--data-dir=${TEST_DIR}";

/// `test.yaml`, as far as it is understood.
#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "kebab-case")]
struct Written {
    #[serde(deserialize_with = "or_default")]
    requires: Requires,
    #[serde(deserialize_with = "or_default")]
    args: Vec<String>,
    command: Option<String>,
    #[serde(deserialize_with = "as_written")]
    pcap: Option<Value>,
    rules: Option<String>,
    #[serde(deserialize_with = "or_default")]
    skip: Vec<Skip>,
    exit_code: Option<i64>,
    #[serde(deserialize_with = "or_default")]
    checks: Vec<BTreeMap<String, Check>>,
    pre_check: Option<String>,
    #[serde(deserialize_with = "or_default")]
    env: BTreeMap<String, Value>,
    #[serde(deserialize_with = "or_default")]
    setup: Vec<BTreeMap<String, String>>,
}

/// A key without a value is as one that is not there.
fn or_default<'d, T: Deserialize<'d> + Default, D: Deserializer<'d>>(
    written: D,
) -> Result<T, D::Error> {
    Option::<T>::deserialize(written).map(Option::unwrap_or_default)
}

/// A key without a value says something else than one that is not there.
fn as_written<'d, D: Deserializer<'d>>(written: D) -> Result<Option<Value>, D::Error> {
    Value::deserialize(written).map(Some)
}

/// When a test is not for somebody.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Skip {
    feature: Option<String>,
    config: Option<Value>,
    uid: Option<u64>,
    msg: Option<String>,
}

/// What a test or a check needs.
#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "kebab-case")]
struct Requires {
    min_version: Option<Value>,
    lt_version: Option<Value>,
    version: Option<Value>,
    os: Option<String>,
    arch: Option<String>,
    features: Vec<String>,
    files: Vec<String>,
    pcap: Option<bool>,
    env: Vec<String>,
    script: Option<Value>,
    lambda: Option<String>,
}

/// One thing to check.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Check {
    /// How many events match.
    pub count: Option<u64>,
    /// Fields, by their dotted names, and what they must be.
    #[serde(rename = "match")]
    pub fields: BTreeMap<String, Value>,
    /// Another file than eve.json; of two files that are compared, the one that is made.
    pub filename: Option<String>,
    /// A file of the test that it must be like.
    pub expected: Option<String>,
    /// A command of the shell, run in the folder of what is made.
    pub args: Option<Value>,
    /// What the command must print.
    pub expect: Option<Value>,
    #[serde(flatten)]
    others: BTreeMap<String, Value>,
}

impl Check {
    /// Whether what the check itself asks for is so. Of counters no name is a requirement.
    fn is_for_us(&self, kind: &str) -> bool {
        let inner = self.others.get("requires").cloned().unwrap_or_default();
        let inner: Requires = serde_json::from_value(inner).unwrap_or_default();
        let own = |name: &str| self.others.get(name).cloned().filter(|_| kind != "stats");
        let feature = own("feature").and_then(|it| it.as_str().map(str::to_owned));
        let outer = Requires {
            min_version: own("min-version"),
            lt_version: own("lt-version"),
            version: own("version"),
            features: feature.into_iter().collect(),
            ..Requires::default()
        };
        inner.unmet().is_none() && outer.unmet().is_none()
    }

    /// What is written beside the known keys: of `stats`, the counters.
    pub fn others(&self) -> impl Iterator<Item = (&str, &Value)> {
        let others = self.others.iter().map(|(name, value)| (name.as_str(), value));
        others.filter(|it| it.0 != "requires")
    }
}

/// A test, ready to run.
#[derive(Debug)]
pub struct Case {
    /// Its folder.
    pub folder: PathBuf,
    /// The capture, or a folder of them.
    pub capture: PathBuf,
    /// Rule files.
    pub rules: Vec<PathBuf>,
    /// Settings of its suricata.yaml and command line, by dotted names; lists as they are.
    pub settings: BTreeMap<String, Value>,
    /// It has a suricata.yaml: what that does not say is as Suricata's program has it, not as its
    /// suricata.yaml.
    pub has_settings: bool,
    /// Whether packets are dropped, not only told of.
    pub is_inline: bool,
    /// Whether its command line says that wrong checksums matter: by `-k`, or by a setting, which
    /// says more.
    checksums: [Option<bool>; 2],
    /// The words of its command line.
    pub words: Vec<String>,
    /// What must come of it: each kind (`filter`, `stats`, `shell`, `file-compare`) and what it
    /// wants.
    pub checks: Vec<(String, Check)>,
    /// Commands of the shell before the run, and between it and the checks.
    pub scripts: [Vec<String>; 2],
    /// Rules and settings alone are looked at (`-T`).
    pub is_check: bool,
    /// Rules that cannot run end it (`--init-errors-fatal`, `-T`).
    pub is_strict: bool,
    /// Rules are read (`--disable-detection` says no).
    has_detection: bool,
    /// It is run as the suite runs tests that have no command of their own: rules that cannot run
    /// end it too, but those that we alone cannot run do not.
    pub is_usual: bool,
    /// How it must end.
    pub exit_code: i64,
    /// The folder of sets that rules change, if it is not that of all that is made.
    pub data_folder: Option<PathBuf>,
    /// Variables of the environment that it is run with.
    pub environment: BTreeMap<String, Value>,
}

/// A test that is not for us, and why.
#[derive(Debug)]
pub struct Skipped(pub String);

/// Reads the test in `folder`.
///
/// # Errors
/// The test cannot be read. Inner: it is not for us.
pub fn read(folder: &Path) -> Result<Result<Case, Skipped>> {
    let file = folder.join("test.yaml");
    let text = fs::read_to_string(&file).with_context(|| format!("cannot read {file:?}"))?;
    // Of a key that comes twice the last counts, as for who runs the suite.
    let options = serde_saphyr::options! {
        duplicate_keys: serde_saphyr::DuplicateKeyPolicy::LastWins,
    };
    let written: Written = serde_saphyr::from_str_with_options(&without_head(&text), options)
        .with_context(|| format!("{} is not understood", file.display()))?;
    if let Some(why) = written.requires.unmet() {
        return Ok(Err(Skipped(why)));
    }
    if let Some(why) = written.skip.iter().find_map(Skip::why) {
        return Ok(Err(Skipped(why)));
    }
    let mut words: Vec<String> = written.args.iter().flat_map(|it| split(it)).collect();
    if let Some(command) = &written.command {
        words.extend(split(command));
        if !words.iter().any(|it| it.ends_with("suricata")) {
            let name = words.first().cloned().unwrap_or_default();
            return Ok(Err(Skipped(format!("its command runs `{name}`, and not Suricata"))));
        }
    }
    let mut case = Case {
        folder: folder.to_owned(),
        capture: PathBuf::new(),
        rules: Vec::new(),
        settings: settings_in(&folder.join("suricata.yaml"))?,
        has_settings: folder.join("suricata.yaml").exists(),
        // By the suite's convention, as its README says.
        is_inline: folder.file_name().is_some_and(|it| it.to_string_lossy().contains("ips")),
        checksums: [None; 2],
        words: Vec::new(),
        checks: Vec::new(),
        scripts: [
            written.setup.iter().filter_map(|it| it.get("script").cloned()).collect(),
            written.pre_check.clone().into_iter().collect(),
        ],
        is_check: false,
        is_strict: false,
        has_detection: true,
        is_usual: written.command.is_none(),
        exit_code: written.exit_code.unwrap_or(0),
        data_folder: None,
        environment: written.env.clone(),
    };
    if let Some(path) = words.iter().find(|it| it.contains("${SRCDIR}/rules/")) {
        return Ok(Err(Skipped(format!("it needs {path}, which Suricata's sources have"))));
    }
    case.take_words(&words)?;
    case.words = words;
    case.find_files(&written)?;
    for check in written.checks {
        for (kind, check) in check {
            if check.is_for_us(&kind) {
                case.checks.push((kind, check));
            }
        }
    }
    Ok(Ok(case))
}

/// The setting by which wrong checksums of TCP matter.
const CHECKS: &str = "stream.checksum-validation";

impl Case {
    fn take_words(&mut self, words: &[String]) -> Result<()> {
        let mut words = words.iter();
        while let Some(word) = words.next() {
            let mut set = |text: &str| {
                let (name, value) = text.split_once('=').unwrap_or((text, "yes"));
                set_setting(&mut self.settings, name, value.trim());
            };
            match word.as_str() {
                "--simulate-ips" => self.is_inline = true,
                "-k" => self.checksums[0] = words.next().map(|it| it != "none"),
                "-T" => (self.is_check, self.is_strict) = (true, true),
                "--disable-detection" => self.has_detection = false,
                "--init-errors-fatal" => self.is_strict = true,
                "--set" => {
                    let text = words.next().context("--set without a value")?;
                    set(text);
                    if text.starts_with(CHECKS) {
                        self.checksums[1] = Some(self.is_on(CHECKS, true));
                    }
                }
                "-r" => self.capture = self.folder.join(place(words.next())),
                "-c" => {
                    self.settings = settings_in(&self.folder.join(place(words.next())))?;
                    self.has_settings = true;
                }
                "-S" => self.rules.push(self.folder.join(place(words.next()))),
                it if it.starts_with(DATA_FOLDER) => {
                    let below = it[DATA_FOLDER.len()..].trim_start_matches('/');
                    self.data_folder = Some(self.folder.join(below));
                }
                it if it.starts_with("--simulate-") => set(&it[2..]),
                _ => {}
            }
        }
        Ok(())
    }

    fn find_files(&mut self, written: &Written) -> Result<()> {
        let with = |ending: &str| -> Result<Vec<PathBuf>> {
            let mut found = Vec::new();
            for entry in fs::read_dir(&self.folder)? {
                let path = entry?.path();
                if path.extension().is_some_and(|it| it.to_string_lossy().starts_with(ending)) {
                    found.push(path);
                }
            }
            found.sort();
            Ok(found)
        };
        let captures = with("pcap")?;
        let needs_none = written.requires.pcap == Some(false) || written.command.is_some();
        let has_none = self.is_check
            || written.pcap.as_ref().is_some_and(says_none)
            || (needs_none && captures.is_empty());
        if let Some(Value::String(path)) = written.pcap.as_ref().filter(|it| !says_none(it)) {
            self.capture = self.folder.join(path);
        } else if has_none && self.capture.as_os_str().is_empty() {
            self.is_check = true;
        } else if self.capture.as_os_str().is_empty() {
            self.capture = captures.first().context("the test has no capture")?.clone();
        }
        if let Some(path) = &written.rules {
            self.rules = vec![self.folder.join(path)];
        } else if self.rules.is_empty() {
            self.rules = with("rules")?;
            let named = self.folder.join("test.rules");
            if self.rules.len() > 1 && self.rules.contains(&named) {
                self.rules = vec![named];
            }
        }
        if !self.has_detection {
            self.rules.clear();
        }
        if !self.is_check && !self.capture.exists() {
            bail!("{} is not there", self.capture.display());
        }
        Ok(())
    }

    /// Whether TCP segments with wrong checksums are left out of streams: `-k none` says no.
    pub fn checks_segments(&self) -> bool {
        let [by_word, by_setting] = self.checksums;
        let checks = by_setting.or(by_word).unwrap_or_else(|| self.is_on(CHECKS, true));
        checks && !self.trusts_checksums()
    }

    /// Whether all checksums count as right.
    pub fn trusts_checksums(&self) -> bool {
        !self.is_on("pcap-file.checksum-checks", true)
    }

    /// A setting as text.
    pub fn setting(&self, name: &str) -> Option<String> {
        match self.settings.get(name)? {
            Value::String(text) => Some(text.clone()),
            Value::Bool(is_on) => Some(if *is_on { "yes" } else { "no" }.to_owned()),
            Value::Number(number) => Some(number.to_string()),
            _ => None,
        }
    }

    /// Whether a setting says yes; `default` where it says nothing.
    pub fn is_on(&self, name: &str, default: bool) -> bool {
        match self.setting(name).as_deref() {
            Some("yes" | "true" | "on" | "1") => true,
            Some("no" | "false" | "off" | "0") => false,
            _ => default,
        }
    }
}

/// Whether `pcap` says that there is none.
fn says_none(pcap: &Value) -> bool {
    matches!(pcap, Value::Bool(false) | Value::Null) || *pcap == ""
}

impl Requires {
    /// Why it is not met, if it is not.
    fn unmet(&self) -> Option<String> {
        if let Some(least) = &self.min_version
            && version(least) > VERSION
        {
            return Some(format!("for Suricata {} and later", shown(least)));
        }
        if let Some(bound) = &self.lt_version
            && version(bound) <= VERSION
        {
            return Some(format!("for Suricata before {}", shown(bound)));
        }
        if let Some(only) = &self.version
            && !shown(&Value::String("8.0.7".into())).starts_with(&shown(only))
        {
            return Some(format!("for Suricata {} alone", shown(only)));
        }
        let other = [
            (self.os.as_deref().is_some_and(|it| it != "linux"), "another system"),
            (self.arch.as_deref().is_some_and(|it| it != ARCH), "another processor"),
            (!self.files.iter().all(|it| is_of_sources(it)), "files that are not here"),
            (!self.env.is_empty(), "variables of the environment"),
            (self.script.is_some(), "a script"),
            (
                self.lambda.as_deref().is_some_and(|it| !is_about_windows(it)),
                "an expression in Python",
            ),
        ];
        if let Some((_, what)) = other.iter().find(|(is_so, _)| *is_so) {
            return Some(format!("it asks for {what}"));
        }
        let lacks = |it: &&String| !has_feature(it);
        self.features.iter().find(lacks).map(|it| format!("it asks for the feature {it}"))
    }
}

impl Skip {
    /// Why the test is to be skipped here, if it is.
    fn why(&self) -> Option<String> {
        let is_meant = self.feature.as_deref().is_some_and(has_feature)
            || self.uid.is_some_and(|it| it == u64::from(rustix::process::getuid().as_raw()))
            || (self.feature.is_none() && self.uid.is_none() && self.config.is_none());
        let why = self.msg.clone();
        is_meant.then(|| why.unwrap_or_else(|| "it says itself that it is to be skipped".into()))
    }
}

/// Whether a file that is asked for is one of Suricata's sources, which says that it can do
/// something: what the version says as well.
fn is_of_sources(path: &str) -> bool {
    ["src/", "rust/src/"].iter().any(|it| path.trim_start_matches("./").starts_with(it))
}

/// Whether an expression only asks that the system is not Windows.
fn is_about_windows(expression: &str) -> bool {
    let plain = expression.replace(['"', '\'', ' '], "");
    matches!(plain.as_str(), "sys.platform!=win32" | "platform.system()!=Windows")
}

/// Whether what Suricata is built with under that name is here too.
fn has_feature(name: &str) -> bool {
    matches!(
        name,
        "HAVE_LIBJANSSON"
            | "RUST"
            | "HAVE_JA3"
            | "HAVE_JA4"
            | "HAVE_NSS"
            | "LIBNET1.1"
            | "HTTP2_DECOMPRESSION"
            | "PCRE_JIT"
            | "PCRE2_JIT"
    )
}

fn shown(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

fn version(value: &Value) -> [u32; 3] {
    let mut version = [0; 3];
    for (part, text) in version.iter_mut().zip(shown(value).split('.')) {
        *part =
            text.chars().take_while(char::is_ascii_digit).collect::<String>().parse().unwrap_or(0);
    }
    version
}

/// A path of a command line, from the test's folder.
fn place(word: Option<&String>) -> PathBuf {
    let word = word.map(String::as_str).unwrap_or_default();
    // Others' paths are theirs, where they begin at the root.
    PathBuf::from(word.strip_prefix("${TEST_DIR}").map_or(word, |it| it.trim_start_matches('/')))
}

/// The words of a command line; quotes hold together.
fn split(line: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let mut quote = None;
    for letter in line.chars() {
        match (letter, quote) {
            ('"' | '\'', None) => quote = Some(letter),
            (it, Some(open)) if it == open => quote = None,
            (it, None) if it.is_whitespace() || it == '\\' => words.push(String::new()),
            (it, _) => words.last_mut().into_iter().for_each(|word| word.push(it)),
        }
    }
    words.retain(|it| !it.is_empty());
    words
}

/// The settings of a suricata.yaml, by dotted names; none where there is no such file.
fn settings_in(file: &Path) -> Result<BTreeMap<String, Value>> {
    let mut settings = BTreeMap::new();
    if file.exists() {
        flatten(&Value::Object(yaml::keys(file)?), String::new(), &mut settings);
    }
    Ok(settings)
}

/// Sets what `--set` names. Numbers in a name are places of lists: `outputs.1.eve-log.filename`.
fn set_setting(settings: &mut BTreeMap<String, Value>, name: &str, value: &str) {
    let value = Value::String(value.to_owned());
    let parts: Vec<&str> = name.split('.').collect();
    let place = parts.iter().position(|it| it.parse::<usize>().is_ok()).unwrap_or_default();
    if place == 0 {
        settings.insert(name.to_owned(), value);
        return;
    }
    let list = settings.entry(parts[..place].join(".")).or_insert_with(|| Value::Array(Vec::new()));
    let mut at = list;
    for part in &parts[place..] {
        at = match part.parse::<usize>() {
            Ok(number) if number < LIST_MAX => {
                if !at.is_array() {
                    *at = Value::Array(Vec::new());
                }
                let Value::Array(list) = at else { return };
                list.resize_with(list.len().max(number + 1), Value::default);
                &mut list[number]
            }
            Ok(_) => return,
            Err(_) => {
                if !at.is_object() {
                    *at = Value::Object(serde_json::Map::new());
                }
                &mut at[*part]
            }
        };
    }
    *at = value;
}

/// Places of a list that `--set` names, at most.
const LIST_MAX: usize = 1024;

fn flatten(value: &Value, name: String, out: &mut BTreeMap<String, Value>) {
    match value {
        Value::Object(fields) => {
            for (key, value) in fields {
                let name = if name.is_empty() { key.clone() } else { format!("{name}.{key}") };
                flatten(value, name, out);
            }
        }
        other => drop(out.insert(name, other.clone())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn unmet(yaml: &str) -> Option<String> {
        serde_saphyr::from_str::<Requires>(yaml).unwrap().unmet()
    }

    #[test]
    fn what_suricata_8_has_on_linux_is_met() {
        assert_eq!(unmet("files: [src/datasets.c, rust/src/lib.rs]"), None);
        assert_eq!(unmet("lambda: sys.platform != \"win32\""), None);
        assert_eq!(unmet("min-version: 8.0.7"), None);
        assert!(unmet("files: [/etc/passwd]").is_some());
        assert!(unmet("lambda: os.cpu_count() > 8").is_some());
        assert!(unmet("min-version: 8.0.8").is_some() && unmet("lt-version: 8").is_some());
    }

    #[test]
    fn settings_of_a_command_line_reach_into_lists() {
        let mut settings = BTreeMap::new();
        let outputs = serde_json::json!([{ "fast": {} }, { "eve-log": { "types": ["dns"] } }]);
        settings.insert("outputs".into(), outputs);
        set_setting(&mut settings, "outputs.1.eve-log.types.1", "tls");
        set_setting(&mut settings, "outputs.1.eve-log.xff.enabled", "yes");
        set_setting(&mut settings, "stream.inline", "no");
        let log = serde_json::json!({ "types": ["dns", "tls"], "xff": { "enabled": "yes" } });
        assert_eq!(settings["outputs"][1]["eve-log"], log);
        assert_eq!(settings["stream.inline"], "no");
        set_setting(&mut settings, "reputation-files.0", "one");
        assert_eq!(settings["reputation-files"], serde_json::json!(["one"]));
    }

    #[test]
    fn paths_are_of_the_tests_folder_unless_they_begin_at_the_root() {
        let path = |word: &str| Path::new("/t").join(place(Some(&word.to_owned())));
        assert_eq!(path("${TEST_DIR}/a"), Path::new("/t/a"));
        assert_eq!(path("${TEST_DIR}"), Path::new("/t/"));
        assert_eq!(path("../a"), Path::new("/t/../a"));
        assert_eq!(path("/etc/a"), Path::new("/etc/a"));
    }

    #[test]
    fn rules_that_cannot_run_end_a_test_that_expects_it() {
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| fs::write(folder.path().join(name), text).unwrap();
        write("in.pcap", "");
        write("test.yaml", "exit-code: 1\n");
        let case = read(folder.path()).unwrap().unwrap();
        assert!(case.is_usual && !case.is_strict && case.exit_code == 1);
        write("test.yaml", "exit-code: 0\nexit-code: 1\n");
        assert_eq!(read(folder.path()).unwrap().unwrap().exit_code, 1);
        write("test.yaml", "command: suricata -r in.pcap\n");
        assert!(!read(folder.path()).unwrap().unwrap().is_usual);
    }
}
