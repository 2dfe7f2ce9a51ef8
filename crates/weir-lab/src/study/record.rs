//! A study's folder: what was planned, on which machine, and a line for every trial that ended.
//!
//! ```text
//!   DIR/study.toml        the study as it was planned
//!   DIR/plan.json         seed, quick or not, trials in their order
//!   DIR/sessions.jsonl    the machine, a line each time the study was started or resumed
//!   DIR/trials.jsonl      a line a trial, written and synced when it ends
//!   DIR/raw/0007-1/       what the tools said in trial 7, first attempt
//! ```
//!
//! A line is whole or it is not there: what a killed process half wrote is cut off when the folder
//! is opened again.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{Read, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};
use serde::{Deserialize, Serialize};

use super::design::{Study, Trial};
use super::environment::{Environment, sha256};
use super::load::Load;

/// What `plan.json` is written by; another number is another form.
const FORMAT: u32 = 1;
/// A file of raw output that is larger is not read again for its hash.
const HASHED_MAX: u64 = 256 << 20;

/// What was planned.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Plan {
    format: u32,
    /// The study's name.
    pub study: String,
    /// SHA-256 of `study.toml`.
    pub study_sha256: String,
    /// Whether `--quick` shortened it.
    pub quick: bool,
    /// What `--only` left.
    pub only: Vec<String>,
    /// Factors that were dropped, for what the machine has not.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub dropped: Vec<String>,
    /// What gave the order.
    pub seed: u64,
    /// All trials in their order.
    pub trials: Vec<Trial>,
}

/// How a trial ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum State {
    /// As planned.
    Done,
    /// It measured, while somebody else used the machine.
    Disturbed,
    /// It did not measure: it never counts.
    Failed,
}

impl State {
    /// As results have it.
    pub fn word(self) -> &'static str {
        match self {
            State::Done => "done",
            State::Disturbed => "disturbed",
            State::Failed => "failed",
        }
    }
}

/// A trial that ended.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TrialRecord {
    /// Its number in the plan.
    pub trial: usize,
    /// Which attempt, from 1.
    pub attempt: u32,
    /// Which run of its combination.
    pub replicate: u32,
    /// Its levels.
    pub levels: BTreeMap<String, String>,
    /// How it ended.
    pub state: State,
    /// Why, unless it is done.
    pub reason: Option<String>,
    /// When it began, seconds since 1970.
    pub began: u64,
    /// How long it took, with building and removing its lab.
    pub seconds: f64,
    /// Which line of `sessions.jsonl` it belongs to, from 0.
    pub session: usize,
    /// Responses.
    pub values: BTreeMap<String, f64>,
    /// What they were taken from.
    pub samples: BTreeMap<String, Vec<f64>>,
    /// Who used the processors.
    pub load: Option<Load>,
    /// Raw output.
    pub raw: Vec<RawFile>,
}

/// A file of raw output.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RawFile {
    /// Its path in the folder.
    pub path: String,
    /// Its length.
    pub bytes: u64,
    /// SHA-256; empty where it was too long to read again.
    pub sha256: String,
}

/// A study's folder.
#[derive(Debug)]
pub struct Folder {
    path: PathBuf,
    /// What was planned.
    pub plan: Plan,
    /// Its study, shortened and limited as planned.
    pub study: Study,
    /// Machines, one for each start.
    pub sessions: Vec<Environment>,
    /// Trials that ended, in their order of time.
    pub records: Vec<TrialRecord>,
}

/// The right to write to a folder, until dropped.
#[derive(Debug)]
pub struct Writing {
    _lock: File,
    trials: File,
}

impl Plan {
    /// Plans `text`, a study file.
    ///
    /// # Errors
    /// It is no study, has no such level, or no trials.
    pub fn new(
        text: &str,
        quick: bool,
        only: &[String],
        seed: Option<u64>,
    ) -> Result<(Self, Study)> {
        let dropped = Study::parse(text)?.unmet();
        let study = planned(text, quick, only, &dropped)?;
        let seed = seed.unwrap_or(study.seed);
        let plan = Self {
            format: FORMAT,
            study: study.name.clone(),
            study_sha256: sha256(text.as_bytes()),
            quick,
            only: only.to_vec(),
            dropped,
            seed,
            trials: study.plan(seed)?,
        };
        Ok((plan, study))
    }
}

fn planned(text: &str, quick: bool, only: &[String], dropped: &[String]) -> Result<Study> {
    let study = Study::parse(text)?.without(dropped);
    let study = if quick { study.shortened() } else { study };
    study.only(only)
}

impl Folder {
    /// Whether one can be made there.
    ///
    /// # Errors
    /// Something is there.
    pub fn check_free(path: &Path) -> Result<()> {
        if path.join("plan.json").exists() {
            bail!(
                "{} holds a study already; --resume goes on with it, --out names another folder",
                path.display()
            );
        }
        let entries = fs::read_dir(path).into_iter().flatten().count();
        ensure!(entries == 0, "{} is not empty; --out names another folder", path.display());
        Ok(())
    }

    /// Makes one; it is empty or not there before.
    ///
    /// # Errors
    /// Something is there, or it cannot be written.
    pub fn create(path: &Path, text: &str, plan: Plan, study: Study) -> Result<Self> {
        Self::check_free(path)?;
        fs::create_dir_all(path.join("raw"))
            .with_context(|| format!("cannot make folder {}", path.display()))?;
        fs::write(path.join("study.toml"), text)?;
        // The plan comes last: with it, the folder is a study's.
        let unfinished = path.join("plan.json.part");
        fs::write(&unfinished, serde_json::to_string_pretty(&plan)? + "\n")?;
        fs::rename(unfinished, path.join("plan.json"))?;
        let (sessions, records) = (Vec::new(), Vec::new());
        Ok(Self { path: path.to_owned(), plan, study, sessions, records })
    }

    /// Reads one.
    ///
    /// # Errors
    /// It holds no study, or what it holds does not fit together: says what.
    pub fn open(path: &Path) -> Result<Self> {
        let read = |name: &str| {
            let file = path.join(name);
            fs::read_to_string(&file).with_context(|| format!("cannot read {}", file.display()))
        };
        let plan = read("plan.json").context("no study has been run there")?;
        let plan: Plan = serde_json::from_str(&plan).context("plan.json is broken")?;
        ensure!(plan.format == FORMAT, "plan.json has form {}, not {FORMAT}", plan.format);
        let text = read("study.toml")?;
        ensure!(
            sha256(text.as_bytes()) == plan.study_sha256,
            "study.toml was changed after plan.json was made from it"
        );
        let study = planned(&text, plan.quick, &plan.only, &plan.dropped)?;
        let records: Vec<TrialRecord> = lines(&path.join("trials.jsonl"))?;
        for record in &records {
            let known = plan.trials.get(record.trial.wrapping_sub(1));
            ensure!(
                known.is_some_and(|trial| trial.levels == record.levels),
                "trials.jsonl has a trial {} that plan.json has not",
                record.trial
            );
        }
        let sessions = lines(&path.join("sessions.jsonl"))?;
        Ok(Self { path: path.to_owned(), plan, study, sessions, records })
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Takes the right to write to it, and notes the machine. What a killed process half wrote is
    /// cut off.
    ///
    /// # Errors
    /// Another process has the right, or the disk refuses.
    pub fn write(&mut self, environment: Environment) -> Result<Writing> {
        let lock = File::options().create(true).append(true).open(self.path.join("lock"))?;
        if lock.try_lock().is_err() {
            bail!("another process runs the study in {}", self.path.display());
        }
        for name in ["trials.jsonl", "sessions.jsonl"] {
            cut_torn_line(&self.path.join(name))?;
        }
        let mut sessions = append(&self.path.join("sessions.jsonl"))?;
        add_line(&mut sessions, &environment)?;
        self.sessions.push(environment);
        Ok(Writing { _lock: lock, trials: append(&self.path.join("trials.jsonl"))? })
    }

    /// Adds a trial that ended; it is on disk when this returns.
    ///
    /// # Errors
    /// The disk refuses.
    pub fn add(&mut self, writing: &mut Writing, record: TrialRecord) -> Result<()> {
        add_line(&mut writing.trials, &record).context("cannot record the trial")?;
        self.records.push(record);
        Ok(())
    }

    /// Attempts at a trial so far.
    pub fn attempts(&self, trial: usize) -> impl Iterator<Item = &TrialRecord> {
        self.records.iter().filter(move |record| record.trial == trial)
    }

    /// The attempt at a trial that counts: one that is done; else, of those that measured, the
    /// least disturbed.
    pub fn counted(&self, trial: usize) -> Option<&TrialRecord> {
        let disturbance =
            |it: &TrialRecord| it.load.as_ref().map_or(0.0, Load::disturbance_percent);
        let done = self.attempts(trial).find(|it| it.state == State::Done);
        done.or_else(|| {
            let measured = self.attempts(trial).filter(|it| it.state == State::Disturbed);
            measured.min_by(|a, b| disturbance(a).total_cmp(&disturbance(b)))
        })
    }

    /// Raw files that are not as recorded: gone or changed.
    pub fn changed_raw_files(&self) -> Vec<String> {
        let files = self.records.iter().flat_map(|record| &record.raw);
        let changed = files.filter(|file| {
            let now = raw_file(&self.path, &self.path.join(&file.path));
            now.ok().as_ref() != Some(file)
        });
        changed.map(|file| file.path.clone()).collect()
    }
}

/// A file of raw output as it is recorded.
///
/// # Errors
/// It cannot be read.
pub fn raw_file(folder: &Path, path: &Path) -> Result<RawFile> {
    let bytes = fs::metadata(path)?.len();
    let sha256 = if bytes <= HASHED_MAX { sha256(&fs::read(path)?) } else { String::new() };
    let path = path.strip_prefix(folder).unwrap_or(path).display().to_string();
    Ok(RawFile { path, bytes, sha256 })
}

fn append(path: &Path) -> Result<File> {
    let file = File::options().create(true).append(true).open(path);
    file.with_context(|| format!("cannot write {}", path.display()))
}

fn add_line(file: &mut File, value: &impl Serialize) -> Result<()> {
    let line = serde_json::to_string(value)? + "\n";
    file.write_all(line.as_bytes())?;
    file.sync_data()?;
    Ok(())
}

/// Whole lines of a file; none where it is missing.
fn lines<T: for<'de> Deserialize<'de>>(path: &Path) -> Result<Vec<T>> {
    let Ok(text) = fs::read_to_string(path) else { return Ok(Vec::new()) };
    let whole = text.rsplit_once('\n').map_or("", |(whole, _)| whole);
    let parsed = whole.lines().enumerate().map(|(at, line)| {
        let place = || format!("{}, line {}", path.display(), at + 1);
        serde_json::from_str(line).with_context(place)
    });
    parsed.collect()
}

fn cut_torn_line(path: &Path) -> Result<()> {
    let Ok(mut file) = File::options().read(true).write(true).open(path) else { return Ok(()) };
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes)?;
    let whole = bytes.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
    if whole < bytes.len() {
        file.set_len(whole as u64)?;
    }
    Ok(())
}
