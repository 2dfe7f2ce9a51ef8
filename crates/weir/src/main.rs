//! The gateway's program. All of it is in the library, so that tests and fuzz targets reach it.

use std::process::ExitCode;

fn main() -> ExitCode {
    weir::cli::main()
}
