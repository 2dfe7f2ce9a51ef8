//! `weir-lab`: what `weir lab` and `weir prove` run. No gateway needs it.

use std::process::ExitCode;

mod cli;

fn main() -> ExitCode {
    cli::main()
}
