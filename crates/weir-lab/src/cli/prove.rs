//! `weir prove`: designed experiments in the lab, recorded trial by trial, with a report.

use std::io::{self, IsTerminal, Read, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use clap::{Args, Subcommand};
use indicatif::{ProgressBar, ProgressStyle};
use serde_json::json;
use weir_lab::stats::table::{FactorTest, Table};
use weir_lab::study::record::{Folder, State};
use weir_lab::study::run::{self, Event, Options};
use weir_lab::study::{catalogue, design};
use weir_lab::{interrupt, report};

use super::{EXIT_USAGE, gateway_program, print_json};

const PROVE_HELP: &str = "\
A study runs in network namespaces on this machine and needs root. It ends with DIR/report.html (one
file, nothing to fetch), report.md, results.csv, samples.csv, and in raw/ what every tool said.
Ctrl-C and power loss lose the running trial at most: the same command with --resume goes on. Trials
that other load on the machine disturbed are marked, and repeated; failed ones never count.

Examples:
  weir prove --list
  weir prove ipsec-cost --plan
  weir prove ipsec-cost --quick --out /var/tmp/ipsec-cost
  weir prove ipsec-cost --only cipher=none,aes-256-gcm --out DIR --resume
  weir prove report DIR
  weir prove stats results.csv --value gbps --by scenario,cipher

Exit codes:
  0  all trials have a result
  1  the study cannot be run, was interrupted, or trials have no result
  2  the command line is wrong";

/// Arguments of `weir prove`.
#[derive(Debug, Args)]
#[command(after_help = PROVE_HELP, args_conflicts_with_subcommands = true)]
pub(crate) struct ProveArgs {
    #[command(subcommand)]
    command: Option<ProveCommand>,
    /// A shipped study, or a file of your own (.toml)
    #[arg(required_unless_present = "list")]
    study: Option<String>,
    /// Short trials and few of them: shows that the study runs, not what it measures
    #[arg(long)]
    quick: bool,
    /// Show the trials, their order and the expected time, and run nothing
    #[arg(long)]
    plan: bool,
    /// Go on with the study in the folder
    #[arg(long)]
    resume: bool,
    /// The folder of plan, raw data and report [default: prove-STUDY]
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Another order of the trials
    #[arg(long, value_name = "NUMBER")]
    seed: Option<u64>,
    /// Only these levels of a factor; may be repeated
    #[arg(long, value_name = "FACTOR=LEVEL[,LEVEL]")]
    only: Vec<String>,
    /// List the studies
    #[arg(long)]
    list: bool,
    /// Print --list or --plan as JSON
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Subcommand)]
enum ProveCommand {
    /// Make a study's report again from its folder, without a lab
    #[command(after_help = REPORT_HELP)]
    Report(ReportArgs),
    /// Test whether groups differ in anybody's data: Kruskal-Wallis, Dunn, effect sizes
    #[command(after_help = STATS_HELP)]
    Stats(StatsArgs),
}

const REPORT_HELP: &str = "\
Examples:
  weir prove report prove-ipsec-cost
  weir prove report prove-monitoring --threshold Identify=20 --threshold Detect=90

Exit codes:
  0  written
  1  the folder holds no study, it is broken, or the study has no such requirement";

#[derive(Debug, Args)]
struct ReportArgs {
    /// The study's folder
    #[arg(value_name = "DIR")]
    folder: PathBuf,
    /// Judge a requirement of the study by another value; may be repeated
    #[arg(long, value_name = "NAME=VALUE")]
    threshold: Vec<String>,
}

const STATS_HELP: &str = "\
Kruskal-Wallis (corrected for ties) by each factor on its own, epsilon squared; for each pair of
levels Dunn's z, its p corrected by Holm, and Cliff's delta. Rows whose value or level is an empty
cell, NA or NaN are left out, and counted on standard error. CSV as spreadsheets, R and pandas write
it: quotes, CRLF, a byte order mark, semicolons or tabs. Where all values are equal there is no
test: h, p, z are null.

Example:
  weir prove stats results.csv --value gbps --by scenario,cipher --json

Exit codes:
  0  tested
  1  the file cannot be read, a column is missing, or there is nothing to compare";

/// Bytes of a file of data, at most.
const STATS_BYTES_MAX: u64 = 1 << 30;

#[derive(Debug, Args)]
struct StatsArgs {
    /// A CSV file whose first line names columns; - is standard input
    file: PathBuf,
    /// The column of numbers
    #[arg(long, value_name = "COLUMN")]
    value: String,
    /// The columns that name groups
    #[arg(long, value_name = "FACTOR", value_delimiter = ',', required = true)]
    by: Vec<String>,
    /// Print as JSON
    #[arg(long)]
    json: bool,
}

/// Runs `weir prove`.
///
/// # Errors
/// The study cannot be run, was interrupted, or its folder is broken.
pub(crate) fn run(args: ProveArgs) -> Result<ExitCode> {
    match &args.command {
        Some(ProveCommand::Report(args)) => {
            report::write_with(&args.folder, &args.threshold)?;
            println!("{}", args.folder.join("report.html").display());
            Ok(ExitCode::SUCCESS)
        }
        Some(ProveCommand::Stats(args)) => run_stats(args),
        None if args.list => run_list(args.json),
        None => run_study(&args),
    }
}

fn run_list(as_json: bool) -> Result<ExitCode> {
    let studies = catalogue::shipped()?;
    if as_json {
        let studies: Vec<_> = studies
            .iter()
            .map(|it| {
                let quick = it.clone().shortened();
                let trials = |study: &design::Study| {
                    study.combinations().len() * study.design.replicates as usize
                };
                json!({
                    "name": it.name, "title": it.title, "question": it.question,
                    "source": it.source, "factors": it.factor_names(), "trials": trials(it),
                    "trials_quick": trials(&quick),
                })
            })
            .collect();
        print_json(&studies)?;
    } else {
        let mut out = io::stdout().lock();
        for study in studies {
            writeln!(out, "{:<14} {}", study.name, study.title)?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn run_study(args: &ProveArgs) -> Result<ExitCode> {
    let Some(name) = &args.study else { return Ok(ExitCode::from(EXIT_USAGE)) };
    let study = catalogue::find(name)?;
    let title = design::Study::parse(&study)?.name;
    let options = Options {
        program: gateway_program()?,
        study,
        quick: args.quick,
        only: args.only.clone(),
        seed: args.seed,
        out: args.out.clone().unwrap_or_else(|| PathBuf::from(format!("prove-{title}"))),
        resume: args.resume,
    };
    let (plan, seconds) = run::plan(&options)?;
    if args.plan {
        return show_plan(&plan, seconds, args.json);
    }
    if !options.resume {
        Folder::check_free(&options.out)?;
    }
    interrupt::watch()?;
    let trials = plan.trials.len();
    tell(&format!("{}: {trials} trials, about {}", plan.study, duration(seconds)));
    let mut progress = Progress::new(plan.trials.len());
    let ran = run::run(&options, &mut |event| progress.show(&event));
    progress.finish();
    let folder = match ran {
        Ok(folder) => folder,
        Err(reason) => {
            // What there is can be looked at.
            if options.out.join("trials.jsonl").exists() && report::write(&options.out).is_ok() {
                let report = options.out.join("report.html");
                tell(&format!("{} (incomplete); --resume goes on", report.display()));
            }
            return Err(reason);
        }
    };
    report::write(folder.path())?;
    println!("{}", folder.path().join("report.html").display());
    let has_result = |trial: &design::Trial| folder.counted(trial.number).is_some();
    let all = folder.plan.trials.iter().all(has_result);
    Ok(if all { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn show_plan(
    plan: &weir_lab::study::record::Plan,
    seconds: f64,
    as_json: bool,
) -> Result<ExitCode> {
    if as_json {
        print_json(&json!({ "plan": plan, "expected_seconds": seconds }))?;
        return Ok(ExitCode::SUCCESS);
    }
    let mut out = io::stdout().lock();
    for trial in &plan.trials {
        writeln!(out, "{:>4}  run {}  {}", trial.number, trial.replicate, trial.label())?;
    }
    if !plan.dropped.is_empty() {
        let dropped = plan.dropped.join(", ");
        writeln!(out, "dropped, because this machine has not what it needs: {dropped}")?;
    }
    let trials = plan.trials.len();
    writeln!(out, "{trials} trials, seed {}, about {}", plan.seed, duration(seconds))?;
    Ok(ExitCode::SUCCESS)
}

fn run_stats(args: &StatsArgs) -> Result<ExitCode> {
    let place = || format!("cannot read {}", args.file.display());
    let bytes = match args.file.as_os_str() == "-" {
        true => {
            let mut bytes = Vec::new();
            io::stdin().read_to_end(&mut bytes)?;
            bytes
        }
        false => {
            let length = std::fs::metadata(&args.file).with_context(place)?.len();
            ensure!(length <= STATS_BYTES_MAX, "{} has {length} bytes", args.file.display());
            std::fs::read(&args.file).with_context(place)?
        }
    };
    let mut table = Table::from_bytes(&bytes).with_context(|| args.file.display().to_string())?;
    match table.leave_out_uncounted() {
        0 => {}
        left_out => tell(&format!("left out {left_out} rows of trials that do not count")),
    }
    let factors: Vec<&str> = args.by.iter().map(|it| it.trim()).collect();
    let tests = table.test(args.value.trim(), &factors)?;
    for factor in &factors {
        let groups = table.groups(args.value.trim(), factor)?;
        let (values, levels) = (groups.without_value, groups.without_level);
        if values + levels > 0 {
            tell(&format!(
                "{factor}: left out {values} rows without a value, {levels} without a level"
            ));
        }
    }
    if args.json {
        print_json(&tests)?;
        return Ok(ExitCode::SUCCESS);
    }
    let mut out = io::stdout().lock();
    for factor in factors {
        if let Some(test) = tests.get(factor) {
            write_test(&mut out, factor, test)?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn write_test(out: &mut impl Write, factor: &str, test: &FactorTest) -> Result<()> {
    match (test.h, test.p, test.epsilon_squared) {
        (Some(h), Some(p), Some(effect)) => writeln!(
            out,
            "{factor}: Kruskal-Wallis H = {h:.4}, df = {}, p = {p:.4e}, epsilon squared = \
             {effect:.3}",
            test.df
        )?,
        _ => writeln!(out, "{factor}: all values are equal, no test")?,
    }
    for (level, it) in &test.groups {
        let sd = it.sd.map_or("-".to_owned(), |sd| format!("{sd:.4}"));
        writeln!(
            out,
            "  {level:<24} n {:<6} mean {:<12.4} SD {sd:<12} median {:.4}",
            it.n, it.mean, it.median
        )?;
    }
    for pair in &test.pairs {
        let names = format!("{} - {}", pair.a, pair.b);
        let delta = pair.cliffs_delta;
        match (pair.z, pair.p_holm) {
            (Some(z), Some(p)) => writeln!(
                out,
                "  {names:<40} z {z:>8.3}  p (Holm) {p:<11.4e} Cliff's delta {delta:.3}"
            )?,
            _ => writeln!(out, "  {names:<40} no test, Cliff's delta {delta:.3}")?,
        }
    }
    Ok(())
}

/// A bar on a terminal, lines elsewhere.
struct Progress {
    bar: Option<ProgressBar>,
    over: usize,
}

impl Progress {
    /// Steps of the bar for each trial.
    const FINENESS: u64 = 100;

    fn new(trials: usize) -> Self {
        let bar = io::stderr().is_terminal().then(|| {
            let bar = ProgressBar::new(trials as u64 * Self::FINENESS);
            let template = "{bar:30} {percent}% {msg}";
            match ProgressStyle::with_template(template) {
                Ok(style) => bar.with_style(style),
                Err(_) => bar,
            }
        });
        Self { bar, over: 0 }
    }

    fn show(&mut self, event: &Event<'_>) {
        match event {
            Event::Begins { trial, attempt, over, of, left_seconds } => {
                self.over = *over;
                let again =
                    if *attempt > 1 { format!(", attempt {attempt}") } else { String::new() };
                let words = format!(
                    "trial {} of {of}{again}, {} left: {}",
                    trial.number,
                    duration(*left_seconds),
                    trial.label()
                );
                match &self.bar {
                    Some(bar) => bar.set_message(words),
                    None => tell(&words),
                }
            }
            Event::Ticks(share) => {
                if let Some(bar) = &self.bar {
                    let done = (self.over as f64 + share) * Self::FINENESS as f64;
                    bar.set_position(done as u64);
                }
            }
            Event::Ended(record) => {
                let values: Vec<String> = record
                    .values
                    .iter()
                    .map(|(name, value)| format!("{name} {value:.3}"))
                    .collect();
                let values = values.join(", ");
                let reason = record.reason.as_deref().unwrap_or("");
                let words = match record.state {
                    State::Done => format!("  {values}"),
                    State::Disturbed => format!("  disturbed ({reason}): {values}"),
                    State::Failed => format!("  FAILED: {reason}"),
                };
                match &self.bar {
                    Some(bar) => bar.println(words),
                    None => tell(&words),
                }
            }
        }
    }

    fn finish(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

/// A line for whoever watches. A study outlives its watcher: `eprintln!` would not.
fn tell(line: &str) {
    let _ = writeln!(io::stderr(), "{line}");
}

/// A time as people say it.
fn duration(seconds: f64) -> String {
    let rounded = Duration::from_secs_f64(seconds.max(0.0)).as_secs();
    match rounded {
        0..120 => format!("{rounded} s"),
        120..7200 => format!("{} min", rounded.div_ceil(60)),
        _ => format!("{} h {} min", rounded / 3600, rounded % 3600 / 60),
    }
}
