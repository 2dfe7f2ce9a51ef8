//! `weir read --rules`: captures through the detector.

use std::fs::File;
use std::io::BufWriter;
use std::path::Path;
use std::process::ExitCode;

use anyhow::Context;
use serde_json::json;
use weir_detect::Variables;

use super::{ReadArgs, random_seed};
use crate::cli::print_json;
use crate::config::rules::digests;
use crate::read::detection::{Detection, Options};
use crate::read::events::Events;
use crate::rules;

/// Looks at all files, one after the other, with one detector, and writes its alerts to `eve`.
pub(super) fn run(args: &ReadArgs, eve: &Path) -> anyhow::Result<ExitCode> {
    let variables = match &args.variables {
        Some(path) => rules::variables(path)?,
        None => Variables::default(),
    };
    let mut text = rules::read(&args.rules, variables)?;
    text.ignore_checksums(args.no_checksums);
    args.geoip.as_deref().map(|it| text.read_countries(it)).transpose()?;
    if let Some(folder) = &args.datasets {
        text.read_kept(folder)?;
    }
    let loaded = text.compile()?;
    let out = File::create(eve).with_context(|| format!("cannot write {}", eve.display()))?;
    let events = match args.types.as_slice() {
        [] => Events::default(),
        kinds => Events::of_kinds(kinds),
    };
    let seed = random_seed() as u64;
    let options = Options {
        seed,
        is_inline: true,
        events,
        datasets: args.datasets.clone(),
        digests: digests(args.digests.iter().copied()),
        ..Options::default()
    };
    let mut detection = Detection::new(loaded.rules, options, BufWriter::new(out))?;
    let mut is_complete = true;
    for file in &args.files {
        if let Err(error) = detection.read(file) {
            eprintln!("weir: {error:#}");
            is_complete = false;
        }
    }
    let seen = detection.finish()?;
    let report = &loaded.report;
    if args.json {
        print_json(&json!({
            "packets": seen.packets,
            "alerts": seen.alerts,
            "alerts_lost": seen.alerts_lost,
            "dropped": seen.detector.dropped,
            "evaluations": seen.detector.evaluations,
            "candidates_lost": seen.detector.candidates_lost,
            "evaluations_given_up": seen.detector.evaluations_given_up,
            "pcre_limits": seen.detector.pcre_limits,
            "rules": { "enabled": report.enabled, "runnable": report.runnable },
        }))?;
    } else {
        println!(
            "{} packets, {} alerts, {} packets would be dropped; {} of {} rules run",
            seen.packets, seen.alerts, seen.detector.dropped, report.runnable, report.enabled
        );
    }
    Ok(if is_complete { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
