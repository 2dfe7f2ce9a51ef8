//! A second run, alone, for the few tests that failed among others. One that passes then is named
//! and counted as unsteady: a fault of the test or of the gateway that is to be found, but not one
//! that keeps everything else from being judged.

use std::fs::{self, File};
use std::io;
use std::path::Path;

use anyhow::Result;

use super::{Program, report};
use crate::tally::Tally;

/// Where more have failed, something is wrong.
const AT_MOST: usize = 8;

/// Runs again what failed according to the programs' logs; true when everything passed then.
pub(super) fn run(
    programs: &[Program],
    folder: &Path,
    log: &File,
    tally: &mut Tally,
) -> Result<bool> {
    let mut failed = Vec::new();
    for program in programs {
        let said = fs::read(program.log(folder))?;
        let names = failures(&String::from_utf8_lossy(&said));
        if !names.is_empty() {
            failed.push((program, names));
        }
    }
    let count = failed.iter().map(|(_, names)| names.len()).sum::<usize>();
    // A program that died amidst a test, or took too long, named none.
    if count as u64 != tally.failed || count > AT_MOST {
        return Ok(false);
    }
    let mut good = true;
    for (program, names) in failed {
        println!("once more, alone: {} {}", program.name, names.join(" "));
        let own = program.log(folder).with_extension("again.log");
        let ended = program.run(&own, &names)?;
        let mut second = Tally::default();
        if report(&ended, &own, &mut io::stdout(), log, &mut second)? && second.failed == 0 {
            tally.failed -= names.len() as u64;
            tally.passed += names.len() as u64;
            tally.unsteady.extend(names);
        } else {
            good = false;
        }
    }
    Ok(good)
}

/// The tests that failed, by what their program said.
fn failures(said: &str) -> Vec<String> {
    let lines = said.lines().filter_map(|line| line.strip_prefix("test "));
    lines.filter_map(|line| line.strip_suffix(" ... FAILED")).map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;

    #[test]
    fn one_that_passes_when_it_is_alone_is_unsteady_and_one_that_does_not_has_failed() {
        let folder = tempfile::tempdir().unwrap();
        // Plays a test program: passes, or fails with a name.
        let judge = |script: &str| {
            let file = folder.path().join("program");
            fs::write(&file, format!("#!/bin/sh\n{script}\n")).unwrap();
            use std::os::unix::fs::PermissionsExt;
            fs::set_permissions(&file, fs::Permissions::from_mode(0o755)).unwrap();
            let program =
                Program { name: "played".to_owned(), file, folder: PathBuf::from(folder.path()) };
            let first = "test a ... ok\ntest b::c ... FAILED\n";
            fs::write(program.log(folder.path()), first).unwrap();
            let log = File::create(folder.path().join("all.log")).unwrap();
            let mut tally = Tally::default();
            (tally.passed, tally.failed) = (1, 1);
            let good = run(&[program], folder.path(), &log, &mut tally).unwrap();
            (good, tally.passed, tally.failed, tally.unsteady.len())
        };
        let ok = "[ \"$*\" = '--test-threads=1 --exact b::c --show-output' ] || exit 9; exit 0";
        assert_eq!(judge(ok), (true, 2, 0, 1));
        assert_eq!(judge("exit 101"), (false, 1, 1, 0));
    }
}
