//! Runs a plan: each trial in a lab of its own, recorded when it ends.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, bail, ensure};

use super::design::{Study, Trial};
use super::environment::Environment;
use super::load::Load;
use super::record::{Folder, Plan, State, TrialRecord, Writing, raw_file};
use super::steps::{Measured, Stage, Step};
use crate::{interrupt, process, topology};

/// Removing a lab takes about so long.
const CLEARING_SECONDS: f64 = 1.0;

/// What to run.
#[derive(Clone, Debug)]
pub struct Options {
    /// The `weir` program under test.
    pub program: PathBuf,
    /// The study file's text.
    pub study: String,
    /// Short runs and fewer of them.
    pub quick: bool,
    /// Levels to keep: `FACTOR=LEVEL,LEVEL`.
    pub only: Vec<String>,
    /// Another order.
    pub seed: Option<u64>,
    /// The folder.
    pub out: PathBuf,
    /// Goes on with what is in the folder.
    pub resume: bool,
}

/// What happens, for whoever watches.
#[derive(Debug)]
pub enum Event<'a> {
    /// A trial begins.
    Begins {
        /// The trial.
        trial: &'a Trial,
        /// Which attempt.
        attempt: u32,
        /// Trials of the plan that are over.
        over: usize,
        /// Trials of the plan.
        of: usize,
        /// Seconds until the study's end, if nothing is repeated.
        left_seconds: f64,
    },
    /// A share of the running trial is over.
    Ticks(f64),
    /// A trial ended.
    Ended(&'a TrialRecord),
}

/// The plan that `options` give, and its expected seconds.
///
/// # Errors
/// There is no such study, factor or level.
pub fn plan(options: &Options) -> Result<(Plan, f64)> {
    let (plan, study) = Plan::new(&options.study, options.quick, &options.only, options.seed)?;
    let mut seconds = 0.0;
    for trial in &plan.trials {
        seconds += expected_seconds(&study.steps_of(&trial.levels)?);
    }
    Ok((plan, seconds))
}

fn expected_seconds(steps: &[Step]) -> f64 {
    steps.iter().map(Step::expected_seconds).sum::<f64>() + CLEARING_SECONDS
}

/// Runs the plan to its end, and returns its folder.
///
/// # Errors
/// The study cannot be run (before the first trial), too many trials failed in a row, a signal
/// came, or the disk refuses. What was recorded stays; `resume` goes on.
pub fn run(options: &Options, watch: &mut dyn FnMut(Event<'_>)) -> Result<Folder> {
    let mut folder = open(options)?;
    remove_left_lab(folder.path())?;
    let mut writing = folder.write(Environment::of_this_machine(&options.program))?;
    let trials = folder.plan.trials.clone();
    let repeats = folder.study.design.repeats;
    // First every trial once, then again those that need it: a disturbance may be over by then.
    for attempt in 1..=repeats + 1 {
        for trial in &trials {
            let attempts = folder.attempts(trial.number).count() as u32;
            let is_done = folder.attempts(trial.number).any(|it| it.state == State::Done);
            if is_done || attempts >= attempt {
                continue;
            }
            interrupt::check()?;
            let record = attempt_at(options, &mut folder, &mut writing, trial, watch)?;
            watch(Event::Ended(&record));
            stop_after_failures(&folder)?;
        }
    }
    Ok(folder)
}

fn open(options: &Options) -> Result<Folder> {
    let (plan, study) = Plan::new(&options.study, options.quick, &options.only, options.seed)?;
    // Before the folder is made: once the remedy is applied, the same command runs.
    require(&study)?;
    if !options.resume {
        return Folder::create(&options.out, &options.study, plan, study);
    }
    let folder = Folder::open(&options.out)?;
    ensure!(
        folder.plan == plan,
        "{} holds another plan (study {}{}, seed {}, {} trials): resume it with the same arguments",
        options.out.display(),
        folder.plan.study,
        if folder.plan.quick { ", --quick" } else { "" },
        folder.plan.seed,
        folder.plan.trials.len()
    );
    Ok(folder)
}

/// Refuses what cannot be run, before anything is.
fn require(study: &Study) -> Result<()> {
    ensure!(rustix::process::geteuid().is_root(), "the lab needs root; try `sudo weir prove`");
    process::require(&["ip"])?;
    for levels in study.combinations() {
        for step in study.steps_of(&levels)? {
            let label = super::design::label(&levels);
            step.require().with_context(|| {
                let name = &study.name;
                format!("{name} cannot be run ({label}; --only can leave such levels out)")
            })?;
        }
    }
    Ok(())
}

fn running_file(folder: &Path) -> PathBuf {
    folder.join("running")
}

/// What a killed run left standing.
fn remove_left_lab(folder: &Path) -> Result<()> {
    let file = running_file(folder);
    if let Ok(id) = fs::read_to_string(&file) {
        topology::remove_abandoned(id.trim())?;
        let _ = fs::remove_file(file);
    }
    Ok(())
}

fn attempt_at(
    options: &Options,
    folder: &mut Folder,
    writing: &mut Writing,
    trial: &Trial,
    watch: &mut dyn FnMut(Event<'_>),
) -> Result<TrialRecord> {
    let attempt = folder.attempts(trial.number).count() as u32 + 1;
    let over = folder.plan.trials.iter().filter(|it| folder.attempts(it.number).count() > 0);
    let (over, of) = (over.count(), folder.plan.trials.len());
    let left_seconds = left_seconds(folder)?;
    watch(Event::Begins { trial, attempt, over, of, left_seconds });
    let raw = folder.path().join("raw").join(format!("{:04}-{attempt}", trial.number));
    // What a killed attempt left.
    let _ = fs::remove_dir_all(&raw);
    fs::create_dir_all(&raw).with_context(|| format!("cannot make folder {}", raw.display()))?;
    let steps = folder.study.steps_of(&trial.levels)?;
    let began = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO).as_secs();
    let started = Instant::now();
    let mut tick = |share: f64| watch(Event::Ticks(share));
    let mut stage = Stage::new(&options.program, &raw, running_file(folder.path()), &mut tick);
    let outcome = stage.run(&steps);
    let measured = std::mem::take(&mut stage.measured);
    drop(stage);
    // A trial that a signal ended is not recorded: it is run again.
    interrupt::check()?;
    let (state, reason) = judge(folder, &outcome, &measured);
    let record = TrialRecord {
        trial: trial.number,
        attempt,
        replicate: trial.replicate,
        levels: trial.levels.clone(),
        state,
        reason,
        began,
        seconds: started.elapsed().as_secs_f64(),
        session: folder.sessions.len().saturating_sub(1),
        values: measured.values,
        samples: measured.samples,
        load: measured.load,
        raw: raw_files(folder.path(), &raw)?,
    };
    folder.add(writing, record.clone())?;
    Ok(record)
}

/// How a trial ended: a response that is missing or no number is a failure.
fn judge(folder: &Folder, outcome: &Result<()>, measured: &Measured) -> (State, Option<String>) {
    if let Err(reason) = outcome {
        return (State::Failed, Some(format!("{reason:#}")));
    }
    for response in folder.study.responses.iter().filter(|it| !it.optional) {
        if !measured.values.get(&response.name).is_some_and(|it| it.is_finite()) {
            return (State::Failed, Some(format!("no {} was measured", response.name)));
        }
    }
    let percent = measured.load.as_ref().map_or(0.0, Load::disturbance_percent);
    if percent > folder.study.design.disturbed_percent {
        let reason = format!("others took {percent:.1} % of the processors");
        return (State::Disturbed, Some(reason));
    }
    (State::Done, None)
}

fn raw_files(folder: &Path, raw: &Path) -> Result<Vec<super::record::RawFile>> {
    let mut paths: Vec<PathBuf> =
        fs::read_dir(raw)?.filter_map(|entry| Some(entry.ok()?.path())).collect();
    paths.sort();
    paths.iter().filter(|path| path.is_file()).map(|path| raw_file(folder, path)).collect()
}

/// By what trials took so far, or are expected to take.
fn left_seconds(folder: &Folder) -> Result<f64> {
    let mut left = 0.0;
    let (mut expected, mut taken) = (0.0, 0.0);
    for trial in &folder.plan.trials {
        let seconds = expected_seconds(&folder.study.steps_of(&trial.levels)?);
        match folder.attempts(trial.number).next() {
            Some(record) => (expected, taken) = (expected + seconds, taken + record.seconds),
            None => left += seconds,
        }
    }
    Ok(if expected > 0.0 { left * taken / expected } else { left })
}

fn stop_after_failures(folder: &Folder) -> Result<()> {
    let limit = folder.study.design.failures as usize;
    let last: Vec<&TrialRecord> = folder.records.iter().rev().take(limit).collect();
    if limit > 0 && last.len() == limit && last.iter().all(|it| it.state == State::Failed) {
        let reason = last[0].reason.as_deref().unwrap_or("unknown");
        bail!("{limit} trials failed in a row, the last one: {reason}. Mend it, then --resume");
    }
    Ok(())
}
