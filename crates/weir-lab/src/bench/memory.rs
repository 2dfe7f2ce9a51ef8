//! What one core does in memory: the engine's own measuring programs, run beside their peers.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};

use super::{Figure, Options};
use crate::process;

/// Building an optimised example, and its run.
const LIMIT: Duration = Duration::from_secs(1800);

pub(super) fn seal_and_open(options: &Options) -> Result<Vec<Figure>> {
    example("weir-engine", "gateway_speed", options, &[])
}

pub(super) fn meter(options: &Options) -> Result<Vec<Figure>> {
    example("weir-engine", "meter_speed", options, &captures()?)
}

pub(super) fn flows(options: &Options) -> Result<Vec<Figure>> {
    example("weir-store", "flow_memory", options, &[])
}

pub(super) fn access(options: &Options) -> Result<Vec<Figure>> {
    example("weir-engine", "access_speed", options, &[])
}

pub(super) fn keying(options: &Options) -> Result<Vec<Figure>> {
    let names = ["handshakes_per_core", "peers_bytes_each", "idle_peers_slowdown"];
    example("weir-engine", "keying_speed", options, &names.map(PathBuf::from))
}

/// In a process of its own: what others left free would be counted as nobody's.
pub(super) fn clients(options: &Options) -> Result<Vec<Figure>> {
    example("weir-engine", "keying_speed", options, &["vpn".into()])
}

/// The RoCE captures that stand beside the source: the project's own, and the shared ones where
/// they are.
pub(super) fn captures() -> Result<Vec<PathBuf>> {
    let folders = ["testdata/roce", "../shared/captures"];
    let entries = folders.iter().flat_map(|folder| Path::new(folder).read_dir()).flatten();
    let mut files: Vec<PathBuf> = entries
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|path| path.extension().is_some_and(|it| it == "pcap"))
        .collect();
    files.sort_by_key(|path| path.file_name().map(ToOwned::to_owned));
    // The shared folder holds some of ours as well.
    files.dedup_by_key(|path| path.file_name().map(ToOwned::to_owned));
    ensure!(!files.is_empty(), "no captures in {}; run it in the source folder", folders[0]);
    Ok(files)
}

/// The lines that an example prints.
fn example(
    package: &str,
    name: &str,
    options: &Options,
    arguments: &[PathBuf],
) -> Result<Vec<Figure>> {
    let mut command = cargo(package, name);
    command.args(arguments);
    figures(name, command, options)
}

/// The lines that `command` prints, which is the example `name`.
pub(super) fn figures(name: &str, mut command: Command, options: &Options) -> Result<Vec<Figure>> {
    if options.quick {
        command.arg("--quick");
    }
    let said = process::run(&mut command, LIMIT)?.stdout;
    let figure = |line: &str| -> Result<Figure> {
        serde_json::from_str(line).with_context(|| format!("{name} printed: {line}"))
    };
    said.lines().map(figure).collect()
}

/// `cargo run` of an optimised example, arguments to follow.
pub(super) fn cargo(package: &str, example: &str) -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.args(["run", "--quiet", "--release", "--locked", "--package", package]);
    command.args(["--example", example, "--"]);
    command
}
