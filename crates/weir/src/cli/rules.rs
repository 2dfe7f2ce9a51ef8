//! `weir rules`: what detection rules can be run.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, ensure};
use clap::{Args, Subcommand};
use serde::Serialize;
use weir_detect::{Loaded, Refusal};

use super::print_json;
use super::terminal::shown;
use crate::rules::{self, Lists, SEE_REFUSED};

const HELP: &str = "\
A rule runs in full or not at all. Folders are read with their *.rules and classification.config.

Examples:
  weir rules check /etc/weir/rules
  weir rules check --json local.rules | jq .by_keyword
  weir rules check - <new.rules

Exit codes:
  0  every enabled rule runs
  1  some do not, or a file cannot be read, or there is no rule but in comments
  2  the command line is wrong";

/// Arguments of `weir rules`.
#[derive(Debug, Args)]
pub struct RulesArgs {
    /// What to do.
    #[command(subcommand)]
    pub command: RulesCommand,
}

/// The commands of `weir rules`.
#[derive(Debug, Subcommand)]
pub enum RulesCommand {
    /// Name every enabled rule that does not run, and the keyword that stops it
    #[command(after_help = HELP)]
    Check(CheckArgs),
}

/// Arguments of `weir rules check`.
#[derive(Debug, Args)]
pub struct CheckArgs {
    /// Rule files, or folders of them; - is standard input
    #[arg(required = true, value_name = "PATH")]
    pub paths: Vec<PathBuf>,
    /// A suricata.yaml whose address and port groups and reputations the rules use
    #[arg(long, value_name = "FILE")]
    pub variables: Option<PathBuf>,
    /// A file of addresses and nets that $NAME in rules stands for, such as Spamhaus' drop.txt
    #[arg(long = "list", value_name = "NAME=FILE", value_parser = list)]
    pub lists: Vec<(String, PathBuf)>,
    /// A MaxMind database (.mmdb) of countries, for rules with `geoip`
    #[arg(long, value_name = "FILE")]
    pub geoip: Option<PathBuf>,
    /// Print counts as one JSON object
    #[arg(long)]
    pub json: bool,
}

#[derive(Serialize)]
struct RulesReport<'a> {
    rules: u64,
    enabled: u64,
    runnable: u64,
    refused: u64,
    by_keyword: BTreeMap<&'a str, u64>,
}

/// Runs `weir rules`.
///
/// # Errors
/// A file cannot be read, or standard output not be written.
pub fn run(args: &RulesArgs) -> anyhow::Result<ExitCode> {
    let RulesCommand::Check(args) = &args.command;
    let lists = lists(&args.lists)?;
    let (stdin, paths): (Vec<_>, Vec<_>) =
        args.paths.iter().cloned().partition(|it| it.as_os_str() == "-");
    let mut text = rules::read_with(&paths, args.variables.as_deref(), &lists)?;
    if !stdin.is_empty() {
        text.read_stdin()?;
    }
    args.geoip.as_deref().map(|it| text.read_countries(it)).transpose()?;
    let Loaded { rules, report } = text.compile()?;
    for (what, remedy) in text.warnings(&rules, &report) {
        // The rules that do not run are all named below.
        if remedy != SEE_REFUSED {
            eprintln!("weir: {}; {remedy}", shown(&what));
        }
    }
    for path in text.without_rules(&paths) {
        eprintln!("weir: warning: no rule was found in {}", shown(&path.display().to_string()));
    }
    if args.json {
        // They are none of the counts, and end it with 1 too.
        report.unused.iter().for_each(|it| eprintln!("weir: {}", line(it)));
        print_json(&RulesReport {
            rules: report.rules,
            enabled: report.enabled,
            runnable: report.runnable,
            refused: report.refused.len() as u64,
            by_keyword: report.by_keyword(),
        })?;
    } else {
        let lines = report.refused.iter().chain(&report.unused).map(|it| line(it) + "\n");
        let text = lines.collect::<String>()
            + &format!(
                "{} rules, {} enabled, {} run ({:.1} %), {} do not\n",
                report.rules,
                report.enabled,
                report.runnable,
                share(report.runnable, report.enabled),
                report.refused.len()
            );
        // Who reads the first lines alone hears by the exit code what there is.
        match io::stdout().write_all(text.as_bytes()) {
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => {}
            written => written.context("standard output cannot be written")?,
        }
    }
    let all_run = report.refused.is_empty() && report.unused.is_empty() && report.enabled > 0;
    Ok(if all_run { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// In percent, rounded down: 100.0 is all.
fn share(runnable: u64, enabled: u64) -> f64 {
    (runnable * 1000 / enabled.max(1)) as f64 / 10.0
}

/// A list's name and its file.
///
/// # Errors
/// There are not both.
pub(super) fn list(text: &str) -> Result<(String, PathBuf), String> {
    match text.split_once('=') {
        Some((name, file)) if !name.is_empty() && !file.is_empty() => {
            Ok((name.trim_start_matches('$').to_owned(), file.into()))
        }
        _ => Err("NAME=FILE, such as DROP=drop.txt".to_owned()),
    }
}

/// The files of lists by their names.
///
/// # Errors
/// A name has two.
pub(super) fn lists(named: &[(String, PathBuf)]) -> anyhow::Result<Lists> {
    let mut lists = Lists::new();
    for (name, file) in named {
        let other = lists.insert(name.clone(), file.clone());
        ensure!(other.is_none(), "--list {name} is given twice: a name stands for one file");
    }
    Ok(lists)
}

/// What a rule file is told of one of its rules. The keyword and the reason may quote it.
fn line(refusal: &Refusal) -> String {
    let Refusal { source, line, sid, keyword, reason } = refusal;
    let sid = sid.map_or_else(|| "no sid".to_owned(), |sid| format!("sid {sid}"));
    // The reason names the key of a configuration, which is not what was asked with.
    let reason = match keyword.as_str() {
        "geoip" => reason.replace("`geoip` in [rules]", "--geoip here, `geoip` in [rules]"),
        _ => reason.clone(),
    };
    shown(&format!("{source}:{line}: {sid}: {keyword}: {reason}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_all_are_a_hundred_percent() {
        assert_eq!((share(0, 0), share(2, 3)), (0.0, 66.6));
        assert_eq!((share(9_999, 10_000), share(10_000, 10_000)), (99.9, 100.0));
    }

    #[test]
    fn a_rule_that_is_refused_steers_no_terminal() {
        let refusal = Refusal {
            source: "a.rules".to_owned(),
            line: 3,
            sid: Some(7),
            keyword: "\u{1b}]0;owned\u{7}".to_owned(),
            reason: "this keyword is not known here".to_owned(),
        };
        let expected = "a.rules:3: sid 7: \u{fffd}]0;owned\u{fffd}: this keyword is not known here";
        assert_eq!(line(&refusal), expected);
    }
}
