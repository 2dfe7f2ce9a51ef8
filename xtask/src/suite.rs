//! All tests: built once, by clippy, then run one program beside another, since most of them wait
//! more than they work; doc tests and documentation beside them.

use std::collections::VecDeque;
use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use serde_json::Value;

use crate::tally::Tally;

mod again;
mod compiler;

use compiler::Compiler;

/// Test programs that run at a time: the two long ones, and the others one by one beside them.
const SIDE_BY_SIDE: usize = 3;

/// A program that has not ended by then is killed and has failed.
const LIMIT: Duration = Duration::from_secs(40 * 60);

/// Programs that take longest, which start first, and their threads: as many as there are
/// processors would leave tests behind that wait for another's turn. How many of them work at a
/// time they know themselves.
const LONG: &[(&str, usize)] = &[("weir xfrm", 23), ("weir gateway", 3)];

/// A test program.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Program {
    /// Package and target: `weir gateway`.
    name: String,
    file: PathBuf,
    /// Where cargo would run it: the package's folder.
    folder: PathBuf,
}

impl Program {
    /// What a message of `cargo build` tells of; `None` when it is none of a test program.
    fn told(message: &str) -> Option<Self> {
        let message: Value = serde_json::from_str(message).ok()?;
        if message["reason"] != "compiler-artifact" || message["profile"]["test"] != true {
            return None;
        }
        let file = PathBuf::from(message["executable"].as_str()?);
        let folder = Path::new(message["manifest_path"].as_str()?).parent()?.to_owned();
        let package = folder.file_name()?.to_string_lossy();
        let target = match message["target"]["kind"][0].as_str()? {
            "lib" => "lib".to_owned(),
            "test" => message["target"]["name"].as_str()?.to_owned(),
            kind => format!("{kind} {}", message["target"]["name"].as_str()?),
        };
        Some(Self { name: format!("{package} {target}"), file, folder })
    }

    /// Its place among the [`LONG`] ones, or behind them.
    fn rank(&self) -> usize {
        LONG.iter().position(|(name, _)| *name == self.name).unwrap_or(LONG.len())
    }

    /// What it says, in this folder.
    fn log(&self, folder: &Path) -> PathBuf {
        folder.join(format!("{}.log", self.name.replace(' ', "-")))
    }

    /// Runs it to its end, all its output in `log`; only the tests of these names, if any is given.
    fn run(&self, log: &Path, only: &[String]) -> Result<Ended> {
        let output = File::create(log).with_context(|| format!("no {}", log.display()))?;
        let mut command = Command::new(&self.file);
        if !only.is_empty() {
            command.args(["--test-threads=1", "--exact"]).args(only);
        } else if let Some((_, threads)) = LONG.get(self.rank()) {
            command.arg(format!("--test-threads={threads}"));
        }
        let started = Instant::now();
        let mut child = command
            .arg("--show-output")
            .current_dir(&self.folder)
            .env("CARGO_MANIFEST_DIR", &self.folder)
            .stdin(Stdio::null())
            .stdout(output.try_clone()?)
            .stderr(output)
            .spawn()
            .with_context(|| format!("cannot run {}", self.file.display()))?;
        let (status, worked) = wait(&mut child, started + LIMIT)?;
        Ok(Ended { name: self.name.clone(), status, worked, took: started.elapsed() })
    }
}

/// How a program ended.
#[derive(Debug)]
struct Ended {
    name: String,
    /// `None`: killed at the [`LIMIT`].
    status: Option<ExitStatus>,
    took: Duration,
    /// Processor time, with that of its children.
    worked: Duration,
}

/// Tests that are built.
pub(crate) struct Suite {
    compiler: Compiler,
    programs: Vec<Program>,
    /// `target/test.log`, which gets everything that they say.
    log: File,
}

/// Builds all tests; `None` when something does not compile.
pub(crate) fn build(root: &Path, cargo: &str) -> Result<Option<Suite>> {
    fs::create_dir_all(root.join("target"))?;
    let path = root.join("target/test.log");
    let log = File::create(&path).with_context(|| format!("cannot write {}", path.display()))?;
    let compiler = Compiler::find(root)?;
    let (built, mut programs) = compile(root, cargo, &compiler, &log)?;
    programs.sort_by_key(Program::rank);
    Ok(built.then_some(Suite { compiler, programs, log }))
}

impl Suite {
    /// Runs all tests; whether none failed, and the processor time of their programs.
    pub(crate) fn run(
        &self,
        root: &Path,
        cargo: &str,
        tally: &mut Tally,
    ) -> Result<(bool, Duration)> {
        let Self { programs, log, compiler } = self;
        let folder = root.join("target/tests");
        fs::create_dir_all(&folder)?;
        let docs = folder.join("docs.log");
        let (good, mut all, documented) = thread::scope(|scope| -> Result<_> {
            let documenting = scope.spawn(|| document(root, cargo, compiler, &docs));
            let (good, all) = side_by_side(programs.clone(), &folder, log, tally)?;
            let good = good || again::run(programs, &folder, log, tally)?;
            let documented = documenting.join();
            Ok((good, all, documented.unwrap_or_else(|panic| std::panic::resume_unwind(panic))?))
        })?;
        report_docs(&docs, log, tally)?;
        let (documented, took) = documented;
        let verdict = if documented { "ok" } else { "FAILED" };
        println!("doc tests and documentation: {verdict}, {} s beside the tests", took.as_secs());
        let good = good && documented;
        all.sort_by_key(|ended| std::cmp::Reverse(ended.took));
        let worked = all.iter().map(|ended| ended.worked).sum();
        println!("{:>8} {:>8}", "took", "worked");
        for Ended { name, took, worked, .. } in all {
            println!("{:>6.1} s {:>6.1} s  {name}", took.as_secs_f64(), worked.as_secs_f64());
        }
        Ok((good, worked))
    }
}

/// Whether everything compiles, and the test programs.
fn compile(
    root: &Path,
    cargo: &str,
    compiler: &Compiler,
    mut log: &File,
) -> Result<(bool, Vec<Program>)> {
    let mut command = Command::new(cargo);
    command
        .args(["build", "--workspace", "--all-targets", "--locked"])
        .arg("--message-format=json-render-diagnostics")
        .current_dir(root)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut child = compiler.set(&mut command).spawn().context("cannot run cargo")?;
    let messages = child.stdout.take().context("a pipe was asked for")?;
    let said = child.stderr.take().context("a pipe was asked for")?;
    let programs = thread::scope(|scope| -> Result<Vec<Program>> {
        let listener = scope.spawn(move || -> Result<()> {
            for line in BufReader::new(said).split(b'\n') {
                let line = line?;
                let line = String::from_utf8_lossy(&line);
                println!("{line}");
                writeln!(log, "{line}")?;
            }
            Ok(())
        });
        let lines: Result<Vec<String>, _> = BufReader::new(messages).lines().collect();
        listener.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
        Ok(lines?.iter().filter_map(|line| Program::told(line)).collect())
    })?;
    Ok((child.wait()?.success(), programs))
}

/// Runs `programs`, a few at a time; true when all succeeded.
fn side_by_side(
    programs: Vec<Program>,
    folder: &Path,
    log: &File,
    tally: &mut Tally,
) -> Result<(bool, Vec<Ended>)> {
    let waiting = Mutex::new(VecDeque::from(programs));
    let told = Mutex::new((true, Vec::new(), tally));
    let work = || -> Result<()> {
        loop {
            let next = waiting.lock().unwrap_or_else(PoisonError::into_inner).pop_front();
            let Some(program) = next else { return Ok(()) };
            let own = program.log(folder);
            let ended = program.run(&own, &[])?;
            let mut told = told.lock().unwrap_or_else(PoisonError::into_inner);
            let (good, all, tally) = &mut *told;
            *good &= report(&ended, &own, &mut io::stdout(), log, tally)?;
            all.push(ended);
        }
    };
    thread::scope(|scope| -> Result<()> {
        let workers: Vec<_> = (0..SIDE_BY_SIDE).map(|_| scope.spawn(work)).collect();
        let mut ends = workers.into_iter().map(|worker| worker.join());
        ends.try_for_each(|end| end.unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
    })?;
    let (good, all, _) = told.into_inner().unwrap_or_else(PoisonError::into_inner);
    Ok((good, all))
}

/// Adds what a program said to the log, shows its failures, and says whether it succeeded.
fn report(
    ended: &Ended,
    own: &Path,
    screen: &mut impl Write,
    mut log: &File,
    tally: &mut Tally,
) -> Result<bool> {
    let Ended { name, status, took, .. } = ended;
    writeln!(screen, "{name}: {} s", took.as_secs())?;
    writeln!(log, "     Running {name}")?;
    let results_before = tally.results;
    for line in BufReader::new(File::open(own)?).split(b'\n') {
        let line = line?;
        let line = String::from_utf8_lossy(&line);
        writeln!(log, "{line}")?;
        if tally.take(&line) {
            writeln!(screen, "{line}")?;
        }
    }
    let good = status.is_some_and(|status| status.success());
    // Who said no result of its own has died amidst a test.
    if !good && tally.results == results_before {
        let how = status.map_or("took too long".to_owned(), |status| status.to_string());
        let word = format!("{name} FAILED without a result: {how}");
        writeln!(screen, "{word}")?;
        writeln!(log, "{word}")?;
        tally.died();
    }
    Ok(good)
}

/// Runs doc tests and makes the documentation, all that is said in `own`; whether both succeeded,
/// and how long it took.
fn document(root: &Path, cargo: &str, compiler: &Compiler, own: &Path) -> Result<(bool, Duration)> {
    let output = File::create(own).with_context(|| format!("no {}", own.display()))?;
    let started = Instant::now();
    let mut command = Command::new("nice");
    command
        .args(["-n", "5", cargo, "test", "--workspace", "--locked", "--no-fail-fast", "--doc"])
        .args(["--", "--show-output"])
        .current_dir(root)
        .stdin(Stdio::null())
        .stdout(output.try_clone()?)
        .stderr(output);
    let status = compiler.set(&mut command).status().context("cannot run cargo")?;
    Ok((status.success(), started.elapsed()))
}

/// Adds what doc tests and rustdoc said to the log and the tally, and shows what is not as it must
/// be.
fn report_docs(own: &Path, mut log: &File, tally: &mut Tally) -> Result<()> {
    for line in BufReader::new(File::open(own)?).split(b'\n') {
        let line = line?;
        let line = String::from_utf8_lossy(&line);
        writeln!(log, "{line}")?;
        let from_cargo = ["Doc-tests ", "error", "warning", "-->"];
        let from_cargo = from_cargo.iter().any(|word| line.trim_start().starts_with(word));
        if tally.take(&line) || from_cargo {
            println!("{line}");
        }
    }
    Ok(())
}

/// Waits for a child's end, or kills it when `end` has come; its status, and its processor time.
fn wait(child: &mut Child, end: Instant) -> Result<(Option<ExitStatus>, Duration)> {
    let file = format!("/proc/{}/stat", child.id());
    loop {
        // An ended child's account stands until it is waited for.
        let stat = fs::read_to_string(&file)?;
        let (state, worked) = account(&stat)?;
        if state == "Z" {
            return Ok((Some(child.wait()?), worked));
        }
        if Instant::now() >= end {
            child.kill()?;
            child.wait()?;
            return Ok((None, worked));
        }
        thread::sleep(Duration::from_millis(20));
    }
}

/// State and processor time of a process and the children that it has waited for, by its
/// `/proc/PID/stat`.
fn account(stat: &str) -> Result<(&str, Duration)> {
    // The name before it may hold blanks and brackets.
    let fields = stat.rsplit_once(')').map(|(_, rest)| rest.split_whitespace().collect());
    let fields: Vec<&str> = fields.unwrap_or_default();
    let (Some(state), Some(times)) = (fields.first(), fields.get(11..15)) else {
        bail!("an unknown form of /proc/PID/stat: {stat}");
    };
    let ticks: u64 = times.iter().filter_map(|it| it.parse::<u64>().ok()).sum();
    // The kernel tells user space hundredths of a second on every architecture that we know.
    Ok((state, Duration::from_millis(ticks * 10)))
}

/// Processor time of this process and what it has started and waited for.
pub(crate) fn worked() -> Result<Duration> {
    Ok(account(&fs::read_to_string("/proc/self/stat")?)?.1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn artifact(kind: &str, test: bool) -> String {
        serde_json::json!({
            "reason": "compiler-artifact",
            "manifest_path": "/w/crates/weir/Cargo.toml",
            "target": { "kind": [kind], "name": "gateway" },
            "profile": { "test": test },
            "executable": "/w/target/debug/deps/gateway-1",
        })
        .to_string()
    }

    #[test]
    fn test_programs_are_told_from_all_else_that_cargo_builds() {
        let found = |line: &str| Program::told(line).map(|it| it.name);
        assert_eq!(found(&artifact("test", true)).unwrap(), "weir gateway");
        assert_eq!(found(&artifact("lib", true)).unwrap(), "weir lib");
        assert_eq!(found(&artifact("bin", true)).unwrap(), "weir bin gateway");
        assert_eq!(found(&artifact("bin", false)), None);
        assert_eq!(found(r#"{"reason":"build-finished","success":true}"#), None);
        assert_eq!(found("   Compiling weir"), None);
        let program = Program::told(&artifact("test", true)).unwrap();
        assert_eq!(program.folder, Path::new("/w/crates/weir"));
        assert_eq!(program.rank(), 1);
    }

    #[test]
    fn a_childs_work_counts_and_one_that_goes_on_is_killed() {
        let start = |script: &str| Command::new("sh").args(["-c", script]).spawn().unwrap();
        let patience = Instant::now() + Duration::from_secs(300);
        let mut child = start("sh -c 'i=0; while [ $i -lt 300000 ]; do i=$((i+1)); done'; exit 3");
        let (status, worked) = wait(&mut child, patience).unwrap();
        assert_eq!(status.unwrap().code(), Some(3));
        assert!(worked > Duration::ZERO);
        let (status, _) = wait(&mut start("exec sleep 600"), Instant::now()).unwrap();
        assert_eq!(status, None);
    }

    #[test]
    fn a_program_that_dies_amidst_its_tests_counts_as_a_failure() {
        let folder = tempfile::tempdir().unwrap();
        let own = folder.path().join("own.log");
        let all = folder.path().join("all.log");
        let log = File::create(&all).unwrap();
        let mut tally = Tally::default();
        let mut judge = |script: &str, said: &str| {
            fs::write(&own, said).unwrap();
            let status = Command::new("sh").args(["-c", script]).status().unwrap();
            let (took, worked) = (Duration::ZERO, Duration::ZERO);
            let ended = Ended { name: "weir lib".to_owned(), status: Some(status), took, worked };
            // Not on the screen, where this test's own results are counted.
            let good = report(&ended, &own, &mut io::sink(), &log, &mut tally).unwrap();
            (good, tally.passed, tally.failed)
        };
        let passed = "test result: ok. 2 passed; 0 failed; 0 ignored\n";
        let failed = "failures:\nb\ntest result: FAILED. 2 passed; 1 failed; 0 ignored\n";
        assert_eq!(judge("exit 0", passed), (true, 2, 0));
        assert_eq!(judge("exit 101", failed), (false, 4, 1));
        assert_eq!(judge("kill -ABRT $$", "running 3 tests\n"), (false, 4, 2));
        let log = fs::read_to_string(&all).unwrap();
        assert!(log.contains("     Running weir lib\nrunning 3 tests\nweir lib FAILED"), "{log}");
    }
}
