//! A study file, and the plan of trials that it and a seed give.
//!
//! ```toml
//! name = "example"
//! title = "What a thing costs"
//! question = "Does it?"
//! seed = 7
//! steps = [
//!     { do = "lab", mtu = "$mtu" },
//!     { do = "path", scenario = "$scenario" },
//!     { do = "iperf3", seconds = "$seconds", omit = 1 },
//! ]
//! [design]
//! replicates = 5
//! [settings]
//! seconds = 10
//! [[factors]]
//! name = "scenario"
//! levels = ["cable", "weir-clear"]
//! [[responses]]
//! name = "gbps"
//! title = "Throughput"
//! unit = "Gb/s"
//! ```
//!
//! `"$name"` in a step stands for the trial's level of that factor, or for a setting.

use std::collections::BTreeMap;

use anyhow::{Context, Result, bail, ensure};
use serde::{Deserialize, Serialize};
use toml::{Table, Value};

use super::governor;
use super::order::Draws;
use super::steps::Step;

/// Trials of one plan, at most.
const TRIALS_MAX: usize = 10_000;

/// A study file.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Study {
    /// Its name on the command line.
    pub name: String,
    /// Its title in the report.
    pub title: String,
    /// What it asks.
    pub question: String,
    /// Where the experiment comes from.
    #[serde(default)]
    pub source: String,
    /// The paper whose numbers stand beside ours: `studies/papers/PAPER.csv`.
    #[serde(default)]
    pub paper: String,
    /// Order of trials, unless the command line gives another.
    pub seed: u64,
    /// What a reader must know: stand-ins, what differs from the paper.
    #[serde(default)]
    pub notes: Vec<String>,
    /// What a trial does, in order.
    pub steps: Vec<Table>,
    /// How trials are laid out.
    pub design: Design,
    /// Values that steps refer to by `$name`.
    #[serde(default)]
    pub settings: Table,
    /// What is varied.
    pub factors: Vec<Factor>,
    /// Combinations of levels that make no sense: a trial that matches every line of one is not
    /// planned.
    #[serde(default)]
    pub exclude: Vec<BTreeMap<String, Vec<Value>>>,
    /// What is measured.
    pub responses: Vec<Response>,
    /// What `--quick` changes.
    #[serde(default)]
    pub quick: Quick,
    /// What the report compares.
    #[serde(default)]
    pub report: Comparison,
}

/// How trials are laid out, and when a study ends.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Design {
    /// Runs of each combination.
    pub replicates: u32,
    /// Whether each replicate is a block with an order of its own, or all trials are shuffled.
    #[serde(default)]
    pub blocks: Blocks,
    /// How often a disturbed or failed trial is run again.
    #[serde(default = "two")]
    pub repeats: u32,
    /// So many failures in a row end the study: what breaks every trial is not worth its time.
    #[serde(default = "three")]
    pub failures: u32,
    /// A trial is disturbed when other processes, or other guests of the machine, took more than
    /// this share of its processors.
    #[serde(default = "five")]
    pub disturbed_percent: f64,
    /// Trials with these levels come before all others (of their block): a baseline.
    #[serde(default)]
    pub first: BTreeMap<String, Vec<Value>>,
}

fn two() -> u32 {
    2
}

fn three() -> u32 {
    3
}

fn five() -> f64 {
    5.0
}

/// How trials are put in order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Blocks {
    /// All trials in one random order.
    #[default]
    None,
    /// Replicate by replicate, each in a random order of its own.
    Replicate,
}

/// What is varied.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Factor {
    /// Its name.
    pub name: String,
    /// Its levels: words or numbers.
    pub levels: Vec<Value>,
    /// What it, or a level of it, means.
    #[serde(default)]
    pub meaning: BTreeMap<String, String>,
    /// What a machine must have; where it has not, the factor and its steps are dropped.
    pub needs: Option<Need>,
}

/// What not every machine has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Need {
    /// Frequency governors.
    Cpufreq,
}

impl Need {
    /// Whether this machine has it.
    fn is_met(self) -> bool {
        match self {
            Need::Cpufreq => governor::is_there(),
        }
    }
}

/// What is measured.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Response {
    /// Its name in results.
    pub name: String,
    /// Its title.
    pub title: String,
    /// Its unit.
    pub unit: String,
    /// Whether some trials do not have it, by their nature.
    #[serde(default)]
    pub optional: bool,
}

/// What `--quick` changes.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Quick {
    /// Runs of each combination.
    pub replicates: Option<u32>,
    /// How often a disturbed or failed trial is run again.
    pub repeats: Option<u32>,
    /// Other values of settings.
    #[serde(default)]
    pub settings: Table,
    /// Fewer levels of factors.
    #[serde(default)]
    pub levels: BTreeMap<String, Vec<Value>>,
}

/// What the report compares.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Comparison {
    /// Levels of the combination that others are a share of.
    #[serde(default)]
    pub baseline: BTreeMap<String, Value>,
    /// Factors to test one by one; absent, whole combinations are compared.
    #[serde(default)]
    pub factors: Vec<String>,
    /// The factor within whose levels the other factors are tested one by one, in a table.
    pub screen: Option<String>,
    /// Pairs of factors whose interaction is drawn.
    #[serde(default)]
    pub interactions: Vec<[String; 2]>,
    /// Whether combinations meet requirements: a table of yes and no.
    #[serde(default)]
    pub thresholds: Vec<Threshold>,
    /// A response over two factors, drawn as a map for each level of a third.
    pub surface: Option<Surface>,
    /// Whether the report holds one table of all responses and nothing more: where they are plain
    /// facts, as who sees what.
    #[serde(default)]
    pub only_overview: bool,
    /// Responses whose tables, figures and tests the report holds; absent: all.
    #[serde(default)]
    pub detail: Vec<String>,
    /// Tables and figures of what tools lost, as Hintze (2021) has them: from the values
    /// `lost_packets`, `lost_before` and `packets` of trials.
    pub losses: Option<Losses>,
}

/// Which factors tables of losses are made of; the others tell the tables apart.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Losses {
    /// The factor that names tools.
    pub tool: String,
    /// The factor that losses rise with.
    pub level: String,
    /// The tool that is none.
    pub baseline: String,
    /// What the tables are called.
    pub name: String,
}

/// A requirement of the mean of a response.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Threshold {
    /// What is met.
    pub name: String,
    /// The response.
    pub response: String,
    /// The least mean that meets it.
    pub at_least: f64,
    /// Where it is per cent of the same response of the combination that differs by these levels.
    #[serde(default)]
    pub share_of: BTreeMap<String, Value>,
}

/// What is drawn as maps.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Surface {
    /// The factor from left to right.
    pub across: String,
    /// The factor from below.
    pub up: String,
    /// A map for each level of this.
    pub each: String,
}

/// One run of one combination of levels.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Trial {
    /// Its place in the plan, from 1.
    pub number: usize,
    /// Which run of its combination, from 1.
    pub replicate: u32,
    /// Its levels by factor.
    pub levels: BTreeMap<String, String>,
}

impl Trial {
    /// Its levels as text.
    pub fn label(&self) -> String {
        label(&self.levels)
    }
}

/// Levels as text.
pub fn label(levels: &BTreeMap<String, String>) -> String {
    let words: Vec<String> =
        levels.iter().map(|(factor, level)| format!("{factor}={level}")).collect();
    words.join(" ")
}

/// A value as a word.
pub fn word(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

impl Study {
    /// Reads a study file.
    ///
    /// # Errors
    /// It is no study: says where and why.
    pub fn parse(text: &str) -> Result<Self> {
        let study: Self = toml::from_str(text)?;
        study.check()?;
        Ok(study)
    }

    /// Itself as `--quick` has it.
    pub fn shortened(mut self) -> Self {
        self.design.replicates = self.quick.replicates.unwrap_or(self.design.replicates);
        self.design.repeats = self.quick.repeats.unwrap_or(self.design.repeats);
        self.settings.extend(self.quick.settings.clone());
        for factor in &mut self.factors {
            if let Some(levels) = self.quick.levels.get(&factor.name) {
                factor.levels.clone_from(levels);
            }
        }
        self
    }

    /// Itself with only those levels: `FACTOR=LEVEL,LEVEL`.
    ///
    /// # Errors
    /// There is no such factor or level; says which there are.
    pub fn only(mut self, choices: &[String]) -> Result<Self> {
        for choice in choices {
            let (name, wanted) = choice
                .split_once('=')
                .with_context(|| format!("{choice}: write FACTOR=LEVEL[,LEVEL]"))?;
            let names = self.factor_names().join(", ");
            let factor = self.factors.iter_mut().find(|factor| factor.name == name);
            let factor =
                factor.with_context(|| format!("no factor is called {name}; there are {names}"))?;
            let there: Vec<String> = factor.levels.iter().map(word).collect();
            let wanted: Vec<&str> = wanted.split(',').map(str::trim).collect();
            for level in &wanted {
                ensure!(
                    there.iter().any(|it| it == level),
                    "{name} has no level {level}; there are {}",
                    there.join(", ")
                );
            }
            factor.levels.retain(|level| wanted.contains(&word(level).as_str()));
        }
        Ok(self)
    }

    /// Factors that need what this machine has not.
    pub fn unmet(&self) -> Vec<String> {
        let unmet = self.factors.iter().filter(|it| it.needs.is_some_and(|need| !need.is_met()));
        unmet.map(|it| it.name.clone()).collect()
    }

    /// Itself without these factors, and without the steps that they are for.
    pub fn without(mut self, dropped: &[String]) -> Self {
        let is_dropped = |name: &String| dropped.contains(name);
        let is_for = |value: &Value| {
            let name = value.as_str().and_then(|it| it.strip_prefix('$'));
            name.is_some_and(|name| dropped.iter().any(|it| it == name))
        };
        self.factors.retain(|factor| !is_dropped(&factor.name));
        self.steps.retain(|step| !step.values().any(is_for));
        self.report.factors.retain(|it| !is_dropped(it));
        self.report.interactions.retain(|pair| !pair.iter().any(is_dropped));
        // What a rule leaves out with some of its levels, it does not leave out without.
        self.exclude.retain(|rule| !rule.keys().any(is_dropped));
        self
    }

    /// Names of its factors.
    pub fn factor_names(&self) -> Vec<&str> {
        self.factors.iter().map(|factor| factor.name.as_str()).collect()
    }

    /// Every combination that is not excluded, in the order of the file.
    pub fn combinations(&self) -> Vec<BTreeMap<String, String>> {
        let mut all = vec![BTreeMap::new()];
        for factor in &self.factors {
            let longer = all.iter().flat_map(|before: &BTreeMap<String, String>| {
                factor.levels.iter().map(|level| {
                    let mut levels = before.clone();
                    levels.insert(factor.name.clone(), word(level));
                    levels
                })
            });
            all = longer.take(TRIALS_MAX + 1).collect();
        }
        let excluded = |levels: &BTreeMap<String, String>| {
            self.exclude.iter().any(|rule| {
                rule.iter().all(|(factor, those)| {
                    those.iter().any(|level| levels.get(factor) == Some(&word(level)))
                })
            })
        };
        all.retain(|levels| !excluded(levels));
        all
    }

    /// The trials, in an order that `seed` gives.
    ///
    /// # Errors
    /// There are none, or too many.
    pub fn plan(&self, seed: u64) -> Result<Vec<Trial>> {
        let combinations = self.combinations();
        let replicates = self.design.replicates;
        let count = combinations.len() * replicates as usize;
        ensure!(count > 0, "study {} has no trial: all combinations are excluded", self.name);
        ensure!(count <= TRIALS_MAX, "study {} has more than {TRIALS_MAX} trials", self.name);
        let mut draws = Draws::new(seed);
        let mut trials = Vec::with_capacity(count);
        for replicate in 1..=replicates {
            let mut block: Vec<Trial> = combinations
                .iter()
                .map(|levels| Trial { number: 0, replicate, levels: levels.clone() })
                .collect();
            if self.design.blocks == Blocks::Replicate {
                draws.shuffle(&mut block);
            }
            trials.extend(block);
        }
        if self.design.blocks == Blocks::None {
            draws.shuffle(&mut trials);
        }
        // Stable: the random order stays within both parts.
        trials.sort_by_key(|trial| {
            let block = if self.design.blocks == Blocks::Replicate { trial.replicate } else { 0 };
            (block, !self.comes_first(&trial.levels))
        });
        trials.iter_mut().enumerate().for_each(|(at, trial)| trial.number = at + 1);
        Ok(trials)
    }

    fn comes_first(&self, levels: &BTreeMap<String, String>) -> bool {
        let first = &self.design.first;
        !first.is_empty()
            && first.iter().all(|(factor, those)| {
                those.iter().any(|level| levels.get(factor) == Some(&word(level)))
            })
    }

    /// What a trial does: its steps with levels and settings in their places.
    ///
    /// # Errors
    /// A step does not exist, or cannot have such a value.
    pub fn steps_of(&self, levels: &BTreeMap<String, String>) -> Result<Vec<Step>> {
        let mut steps = Vec::new();
        for (at, table) in self.steps.iter().enumerate() {
            let mut filled = Table::new();
            for (key, value) in table {
                let value = match value.as_str().and_then(|text| text.strip_prefix('$')) {
                    Some(name) => self.look_up(name, levels)?,
                    None => value.clone(),
                };
                filled.insert(key.clone(), value);
            }
            let step = Step::deserialize(Value::Table(filled));
            steps.push(step.with_context(|| format!("step {} of {}", at + 1, label(levels)))?);
        }
        Ok(steps)
    }

    fn look_up(&self, name: &str, levels: &BTreeMap<String, String>) -> Result<Value> {
        if let Some(level) = levels.get(name) {
            let factor = self.factors.iter().find(|factor| factor.name == name);
            let values = factor.map(|factor| factor.levels.as_slice()).unwrap_or_default();
            let found = values.iter().find(|value| word(value) == *level);
            return found.cloned().with_context(|| format!("{name} has no level {level}"));
        }
        let setting = self.settings.get(name).cloned();
        setting.with_context(|| format!("${name} is neither a factor nor a setting"))
    }

    fn check(&self) -> Result<()> {
        let name = &self.name;
        let plain = |it: char| it.is_ascii_lowercase() || it.is_ascii_digit() || it == '-';
        ensure!(!name.is_empty() && name.chars().all(plain), "name: small letters, digits and -");
        ensure!(!self.factors.is_empty(), "{name} has no factor");
        ensure!(!self.responses.is_empty(), "{name} has no response");
        ensure!(!self.steps.is_empty(), "{name} has no step");
        ensure!(self.design.replicates > 0, "{name} has no replicate");
        for factor in &self.factors {
            ensure!(!factor.levels.is_empty(), "factor {} has no level", factor.name);
            let same = self.factors.iter().filter(|it| it.name == factor.name).count();
            ensure!(same == 1, "two factors are called {}", factor.name);
            let used = format!("${}", factor.name);
            let in_step = |step: &Table| step.values().any(|it| it.as_str() == Some(&used));
            if !self.steps.iter().any(in_step) {
                bail!("no step uses factor {}: write \"{used}\" in one", factor.name);
            }
        }
        let known = |factor: &String| self.factors.iter().any(|it| it.name == *factor);
        let named = self.exclude.iter().flat_map(BTreeMap::keys);
        let named = named.chain(self.report.baseline.keys()).chain(&self.report.factors);
        let named = named.chain(self.report.interactions.iter().flatten());
        let surface = self.report.surface.iter().flat_map(|it| [&it.across, &it.up, &it.each]);
        let named = named.chain(surface).chain(self.design.first.keys());
        let named = named.chain(self.report.losses.iter().flat_map(|it| [&it.tool, &it.level]));
        let shares = self.report.thresholds.iter().flat_map(|it| it.share_of.keys());
        let named = named.chain(shares).chain(&self.report.screen);
        for factor in named.chain(self.quick.levels.keys()) {
            ensure!(known(factor), "no factor is called {factor}");
        }
        let judged = self.report.thresholds.iter().map(|it| &it.response);
        for of in judged.chain(&self.report.detail) {
            let known = self.responses.iter().any(|it| it.name == *of);
            ensure!(known, "no response is called {of}");
        }
        for setting in self.quick.settings.keys() {
            ensure!(self.settings.contains_key(setting), "quick: no setting is called {setting}");
        }
        for levels in self.combinations() {
            self.steps_of(&levels)?;
        }
        for levels in self.clone().shortened().combinations() {
            self.clone().shortened().steps_of(&levels)?;
        }
        Ok(())
    }
}
