//! Development tasks, in Rust rather than in shell: `cargo xtask TASK`, which the Makefile calls.
//!
//! Builds without clang and without root, because `packages` brings those things.

#![forbid(unsafe_code)]

use std::path::{Path, PathBuf};
use std::process::ExitCode;

mod check;
mod packages;
mod skips;
mod suite;
mod tally;
mod terms;
mod tidy;

const USAGE: &str = "\
Usage: cargo xtask TASK

  packages PURPOSE   install the Debian packages that are missing, for: build, demo, demo-rdma,
                     test, bench
  tidy               check what the compiler does not: arrows between crates, names, lengths
  check              everything that CI runs: fmt, tidy, licences, all tests, clippy, docs

Exit codes: 0 done; 1 something is wrong; 2 no such task";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let result = match arguments[..] {
        ["packages", purpose] => packages::install(purpose),
        ["tidy"] => tidy::run(&root()),
        ["check"] => check::run(&root()),
        _ => {
            eprintln!("{USAGE}");
            return ExitCode::from(2);
        }
    };
    match result {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("xtask: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// The workspace.
fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap_or(Path::new(".")).to_owned()
}
