//! `weir read --rules`: captures through the detector.

use std::fs::{self, File, TryLockError};
use std::io::{self, BufWriter, Read, Write};
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};
use weir_detect::{LoadReport, Loaded};
use weir_port::CaptureError;
use weir_store::sink::eve_dns::DnsVersion;

use super::{ReadArgs, interrupted, random_seed, says_interrupted};
use crate::cli::rules::lists;
use crate::cli::terminal::shown;
use crate::cli::{EXIT_USAGE, print_json};
use crate::config::rules::digests;
use crate::read::detection::{Checksums, Detection, Options, Seen};
use crate::read::events::Events;
use crate::rules;

/// Looks at all files, one after the other, with one detector, and writes its alerts to `eve`.
pub(super) fn run(args: &ReadArgs, eve: &Path) -> anyhow::Result<ExitCode> {
    let is_to_stdout = eve == Path::new("-");
    if is_to_stdout && args.json {
        eprintln!("weir: --json and `--eve -` both write to standard output: give --eve a file");
        return Ok(ExitCode::from(EXIT_USAGE));
    }
    let is_over = interrupted()?;
    let Loaded { rules, report } = rules_of(args)?;
    let out: Box<dyn Write> = match is_to_stdout {
        true => Box::new(io::stdout()),
        false => Box::new(create(eve)?),
    };
    let mut detection = Detection::new(rules, options(args), BufWriter::new(out))?;
    detection.tell_rules(&report);
    let mut is_complete = true;
    for file in &args.files {
        if let Err(error) = detection.read(file, &is_over) {
            // What is read may be bad; without a place for events, there is nothing to go on for.
            if !error.is::<CaptureError>() {
                return Err(error);
            }
            eprintln!("weir: {error}");
            is_complete = false;
        }
    }
    let seen = detection.finish()?;
    is_complete &= seen.cut_records == 0;
    if args.json {
        print_json(&summary(&seen, &report))?;
    } else {
        let words = format!(
            "{} packets, {} alerts, {} packets would be dropped; {} of {} rules run\n{}",
            seen.packets,
            seen.alerts,
            seen.detector.dropped,
            report.runnable,
            report.enabled,
            unseen(&seen)
        );
        // Beside events, it would be one that is no JSON.
        match is_to_stdout {
            true => eprint!("{words}"),
            false => print!("{words}"),
        }
    }
    // As `weir rules check` fails: what was to be looked for was not.
    is_complete &= report.runnable > 0 || report.enabled == 0;
    is_complete &= !says_interrupted(args, &is_over);
    Ok(if is_complete { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Its rules; what is to be said of them is.
fn rules_of(args: &ReadArgs) -> Result<Loaded> {
    let lists = lists(&args.lists)?;
    let mut text = rules::read_with(&args.rules, args.variables.as_deref(), &lists)?;
    text.ignore_checksums(args.no_checksums);
    args.geoip.as_deref().map(|it| text.read_countries(it)).transpose()?;
    if let Some(folder) = &args.datasets {
        text.read_kept(folder)?;
    }
    let loaded = text.compile()?;
    loaded.report.spoiled.iter().for_each(|it| eprintln!("weir: {it}"));
    // Who names no rules looks for none.
    let warnings = text.warnings(&loaded.rules, &loaded.report).into_iter();
    for (what, remedy) in warnings.filter(|_| !args.rules.is_empty()) {
        eprintln!("weir: {}; {remedy}", shown(&what));
    }
    Ok(loaded)
}

fn options(args: &ReadArgs) -> Options {
    let mut events = match args.types.as_slice() {
        [] => Events::default(),
        kinds => Events::of_kinds(kinds),
    };
    if args.dns_version == "2" {
        events.applications.dns.version = DnsVersion::Two;
    }
    Options {
        seed: random_seed() as u64,
        is_inline: true,
        events,
        checksums: match args.no_checksums {
            true => Checksums::Trusted,
            false => Checksums::Guessed,
        },
        datasets: args.datasets.clone(),
        ignores_vlans: args.ignore_vlans,
        http_headers: ["request", "response"]
            .map(|it| args.http_headers.iter().any(|own| own == it)),
        digests: digests(args.digests.iter().copied()),
        ..Options::default()
    }
}

fn summary(seen: &Seen, report: &LoadReport) -> Value {
    json!({
        "packets": seen.packets,
        "truncated": seen.truncated,
        "cut_records": seen.cut_records,
        "skipped": seen.skipped,
        "alerts": seen.alerts,
        "alerts_lost": seen.alerts_lost,
        "dropped": seen.detector.dropped,
        "evaluations": seen.detector.evaluations,
        "wrong_checksums": seen.detector.wrong_checksums,
        "unacceptable_segments": seen.detector.unacceptable_segments,
        "candidates_lost": seen.detector.candidates_lost,
        "evaluations_given_up": seen.detector.evaluations_given_up,
        "pcre_limits": seen.detector.pcre_limits,
        "rules": {
            "enabled": report.enabled,
            "runnable": report.runnable,
            "by_keyword": report.by_keyword(),
        },
    })
}

/// What rules did not see.
fn unseen(seen: &Seen) -> String {
    let mut text = String::new();
    for (count, what) in [
        (seen.truncated, "packets stand in the captures in part alone: rules saw no more"),
        (seen.cut_records, "packets were cut off by a capture's end, and not looked at"),
        (
            seen.detector.wrong_checksums,
            "TCP segments have wrong checksums: they are no part of their connections \
             (--no-checksums takes them in)",
        ),
        (
            seen.detector.wrong_icrcs,
            "packets of RDMA have wrong ICRCs: they are no pieces of operations and no evidence \
             of attacks (--no-checksums takes them in)",
        ),
        (
            seen.detector.unacceptable_segments,
            "TCP segments have numbers that no receiver takes: they are no part of their streams",
        ),
        (
            seen.detector.evaluations_given_up + seen.detector.candidates_lost,
            "looks of rules at packets were given up: they would have taken too many tries",
        ),
        (seen.skipped, "packets are of a link type that is not read"),
    ] {
        if count > 0 {
            text += &format!("{count} {what}\n");
        }
    }
    text
}

/// Makes the file of events, anew if it is there. What is there and is no EVE stays: with
/// `--eve *.pcap` it would be the first capture.
fn create(eve: &Path) -> Result<File> {
    let shown = eve.display();
    if eve.is_file() {
        let mut first = [0];
        let file = File::open(eve).and_then(|mut it| it.read(&mut first));
        let length = file.with_context(|| format!("cannot read {shown}"))?;
        if length == 1 && first != *b"{" {
            bail!("{shown} is there and holds no EVE: it is not overwritten");
        }
    }
    let is_pipe = fs::metadata(eve).is_ok_and(|it| it.file_type().is_fifo());
    // Held until the pipe is open: its reader is not gone by then.
    let reader =
        is_pipe.then(|| File::options().write(true).custom_flags(libc::O_NONBLOCK).open(eve));
    let reader = reader.transpose();
    let _reader =
        reader.with_context(|| format!("nobody reads the pipe {shown}: start who does first"))?;
    let file = File::options().write(true).create(true).truncate(false).open(eve);
    let file = file.with_context(|| format!("cannot write {shown}"))?;
    if matches!(file.try_lock(), Err(TryLockError::WouldBlock)) {
        bail!("{shown} is written to by somebody, perhaps a gateway: it is not overwritten");
    }
    // A device has no length, and no lock.
    let _ = file.set_len(0);
    Ok(file)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_replace_those_of_before_and_no_capture() {
        let folder = tempfile::tempdir().unwrap();
        let [events, capture] = ["eve.json", "a.pcap"].map(|it| folder.path().join(it));
        fs::write(&events, "{\"event_type\":\"alert\"}\n").unwrap();
        fs::write(&capture, [0xd4, 0xc3, 0xb2, 0xa1]).unwrap();
        assert_eq!(create(&events).unwrap().metadata().unwrap().len(), 0);
        let held = File::open(&events).unwrap();
        held.lock_shared().unwrap();
        assert!(create(&events).unwrap_err().to_string().contains("not overwritten"));
        drop(held);
        assert!(create(&folder.path().join("new.json")).is_ok());
        let refused = create(&capture).unwrap_err().to_string();
        assert!(refused.ends_with("a.pcap is there and holds no EVE: it is not overwritten"));
        assert_eq!(fs::read(&capture).unwrap().len(), 4);
    }

    #[test]
    fn a_pipe_is_written_to_where_somebody_reads_it() {
        use rustix::fs::{CWD, FileType, Mode, mknodat};
        let folder = tempfile::tempdir().unwrap();
        let pipe = folder.path().join("pipe");
        mknodat(CWD, &pipe, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
        assert!(create(&pipe).unwrap_err().to_string().starts_with("nobody reads the pipe"));
        // Who opens it for both waits for nobody.
        let _reader = File::options().read(true).write(true).open(&pipe).unwrap();
        create(&pipe).unwrap();
    }
}
