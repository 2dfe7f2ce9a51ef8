//! `weir read` of a large RoCE capture beside `softflowd -r` of the same file.

use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use super::memory::{captures, cargo};
use super::{Figure, Options, Samples};
use crate::process;

/// Size of the file, MiB; of a quick run's.
const SIZE_MIB: u32 = 1024;
const QUICK_SIZE_MIB: u32 = 32;
/// Interleaved pairs.
const PAIRS: usize = 5;
/// Building and running the program that makes the file.
const MAKING: Duration = Duration::from_secs(1800);

pub(super) fn against_softflowd(options: &Options) -> Result<Vec<Figure>> {
    process::require(&["softflowd"])?;
    let size_mib = if options.quick { QUICK_SIZE_MIB } else { SIZE_MIB };
    // Beside the results, on a disk: a temporary folder may be memory, and small. It goes with
    // its guard.
    let target = options.output.parent().context("the results lie in a folder")?;
    let folder = tempfile::tempdir_in(target).context("no folder for the capture")?;
    let file = folder.path().join("large.pcap");
    let mut command = cargo("weir", "repeat_capture");
    command.arg(&file).arg(size_mib.to_string()).args(captures()?);
    process::run(&mut command, MAKING)?;
    let mut weir = Command::new(&options.program);
    weir.args(["read", "--json"]).arg(&file);
    let mut softflowd = Command::new("softflowd");
    softflowd.current_dir(folder.path());
    softflowd.args(["-n", "127.0.0.1:9", "-6", "-d", "-v", "9", "-c", "none", "-p", "none", "-r"]);
    softflowd.arg(std::path::absolute(&file)?);
    // Into the page cache, for both.
    std::io::copy(&mut std::fs::File::open(&file)?, &mut std::io::sink())?;
    let (mut ours, mut theirs) = (Samples::default(), Samples::default());
    for _ in 0..options.rounds(PAIRS) {
        theirs.0.push(seconds(&mut softflowd)?);
        ours.0.push(seconds(&mut weir)?);
    }
    let figure = Figure::new("read_vs_softflowd", "s", &ours).against("softflowd -r", &theirs);
    Ok(vec![figure.noted(&format!(
        "{size_mib} MiB of RoCE, ICRC checked, file in the page cache; smaller is better"
    ))])
}

/// How long `command` runs, its words thrown away.
fn seconds(command: &mut Command) -> Result<f64> {
    crate::interrupt::check()?;
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let begin = Instant::now();
    let status = command.status()?;
    let seconds = begin.elapsed().as_secs_f64();
    ensure!(status.success(), "{command:?} ended with {status}");
    Ok(seconds)
}
