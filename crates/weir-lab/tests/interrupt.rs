//! Ctrl-C leaves nothing behind, and ends children of a lab that ignores it.

use std::os::unix::process::ExitStatusExt;
use std::process::Command;
use std::time::Duration;

use rustix::process::Signal;
use weir_lab::process::Running;
use weir_lab::topology::{Gateways, Lab, Plan, Side};
use weir_lab::traffic::ping;
use weir_lab::{interrupt, process};

#[test]
fn an_interrupted_lab_leaves_nothing() {
    const ROLE: &str = "WEIR_LAB_TEST_INTERRUPTED";
    if let Some(file) = std::env::var_os(ROLE) {
        interrupt::watch().expect("handlers");
        let lab = Lab::build(Plan { gateways: Gateways::Bridge, ..Plan::default() }).expect("lab");
        std::fs::write(file, lab.id()).expect("a file for the id");
        let target = lab.host_v4(Side::B).to_string();
        let ended = ping::ping(lab.host(Side::A), &target, 1200, 56);
        assert_eq!(ended.expect_err("the signal ends the wait").to_string(), "interrupted");
        return;
    }
    if process::run(Command::new("ip").args(["netns", "list"]), Duration::from_secs(5)).is_err()
        || !rustix::process::geteuid().is_root()
    {
        return eprintln!("SKIPPED: an_interrupted_lab_leaves_nothing needs root and iproute2");
    }
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("id");
    let mut command = Command::new(std::env::current_exe().expect("this test's program"));
    command.args(["--exact", "an_interrupted_lab_leaves_nothing"]).env(ROLE, &file);
    let owner = Running::start(&mut command).expect("the owner starts");
    interrupt::until("lab", Duration::from_secs(30), || {
        Ok(std::fs::read(&file).is_ok_and(|id| !id.is_empty()))
    })
    .expect("a lab");
    let id = std::fs::read_to_string(&file).expect("the id");
    owner.signal(Signal::INT).expect("signalled");
    let ended = owner.finish(Duration::from_secs(30)).expect("it ends");
    assert!(ended.status.success(), "{}{}", ended.stdout, ended.stderr);
    assert!(weir_lab::netns::list(&format!("weir-{id}-")).is_empty(), "namespaces stay behind");
    assert!(!std::path::Path::new("/run/weir-lab").join(format!("{id}.lock")).exists());
    assert!(!std::path::Path::new("/run/weir-lab").join(format!("{id}.d")).exists());
}

#[test]
fn a_signal_that_the_lab_was_started_to_ignore_ends_its_children() {
    const NAME: &str = "a_signal_that_the_lab_was_started_to_ignore_ends_its_children";
    const ROLE: &str = "WEIR_LAB_TEST_IGNORING";
    if std::env::var_os(ROLE).is_none() {
        let mut command = Command::new("sh");
        command.args(["-c", "trap '' INT QUIT; exec \"$0\" --exact \"$1\""]);
        command.arg(std::env::current_exe().expect("this test's program")).arg(NAME);
        process::run(command.env(ROLE, "yes"), Duration::from_secs(120)).expect("it passes there");
        return;
    }
    for signal in [Signal::INT, Signal::QUIT] {
        let child = Running::start(Command::new("sleep").arg("600")).expect("it starts");
        let ended = child.stop(signal).expect("it ends");
        assert_eq!(ended.status.signal(), Some(signal.as_raw()));
        // It is ignored here as before.
        rustix::process::kill_process(rustix::process::getpid(), signal).expect("signalled");
    }
}
