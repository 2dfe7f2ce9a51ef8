//! Front ends as their users run them: `ip xfrm`, charon and pluto, unpatched, under `weir xfrm`.
//! The judge on the other side is a stranger: a Debian kernel's own ESP in a guest, or strongSwan's
//! user-space ESP.
//!
//! Needs root and the strangers; says so and passes where they are missing. Two labs with a guest
//! stand at a time, and one without.

mod charon;
mod gateways;
mod kernel;
mod kernel_agreed;
mod kernel_esp;
mod nic;
mod nonces;
mod pluto;

use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use weir_lab::gateways::{Gateways, NAMES, Protection, Setup, run_folder};
use weir_lab::interrupt;

use weir_lab::process::{self, Finished, Running};
use weir_lab::topology::{HOST_PORT, Hosts, Lab, Plan, Side, WIRE_PORT};
use weir_lab::traffic::ping::{ping, ping_all};
use weir_lab::turn::{Turn, Turns};

const WEIR: &str = env!("CARGO_BIN_EXE_weir");
/// What a healthy gateway does, it has done by then.
const PATIENCE: Duration = Duration::from_secs(60);
/// What a tool is given to say its word.
const SHORT: Duration = Duration::from_secs(20);
const TOOLS: [&str; 6] = ["ip", "tc", "ethtool", "setpriv", "ping", "tcpdump"];

/// One lab at a time, and beside it two with a guest, each of which waits half of its time.
static LABS: Turns = Turns::new(1);
static GUESTS: Turns = Turns::new(2);

/// A lab, and the turn to use the machine.
struct Stand {
    lab: Lab,
    _turn: Turn,
}

/// A lab for `test`, or word that there is none.
fn stand(test: &str, plan: Plan, tools: &[&str]) -> Option<Stand> {
    let turn = if plan.hosts == Hosts::Guests { GUESTS.take() } else { LABS.take() };
    let privileged = Command::new("unshare").args(["-n", "true"]).output();
    if !privileged.is_ok_and(|output| output.status.success()) {
        eprintln!("SKIPPED: {test} needs root (unshare -n)");
        return None;
    }
    if let Err(missing) = process::require(&[&TOOLS, tools].concat()) {
        eprintln!("SKIPPED: {test}: {missing}");
        return None;
    }
    Some(Stand { lab: Lab::build(plan).unwrap(), _turn: turn })
}

/// A gateway's configuration with front ends; `lines` are more of its `[[pair]]`.
fn configuration(lab: &Lab, side: Side, lines: &str) -> String {
    let name = NAMES[side.index()];
    format!(
        "[gateway]\nname = \"{name}\"\nstate_dir = \"{}\"\nrun_dir = \"{}\"\n\n\
         [[pair]]\nname = \"port0\"\nhost = \"{HOST_PORT}\"\nwire = \"{WIRE_PORT}\"\n\
         xfrm = true\n{lines}",
        lab.folder().join("state").join(name).display(),
        run_folder(lab, side).display(),
    )
}

/// Both gateways, with front ends.
fn gateways(lab: &Lab, lines: &str) -> Gateways {
    let texts = Side::BOTH.map(|side| configuration(lab, side, lines));
    Gateways::start_configured(lab, &Setup::new(WEIR, Protection::Plain), &texts).unwrap()
}

fn library_folder(lab: &Lab) -> PathBuf {
    lab.folder().join("library")
}

/// `weir xfrm -- PROGRAM ARGUMENTS` beside the gateway of `side`.
fn under_weir(lab: &Lab, side: Side, words: &[&str]) -> Command {
    let mut command = lab.gateway(side).command(WEIR);
    command.args(["xfrm", "--run-dir"]).arg(run_folder(lab, side));
    command.arg("--library-dir").arg(library_folder(lab)).arg("--").args(words);
    command
}

/// What a line of a shell says, with `weir xfrm --` before it; quotes group words.
fn says(lab: &Lab, side: Side, line: &str) -> Finished {
    let words = words(line);
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    Running::start(&mut under_weir(lab, side, &words)).unwrap().finish(SHORT).unwrap()
}

/// The same for what must succeed.
#[track_caller]
fn xfrm(lab: &Lab, side: Side, line: &str) -> String {
    let said = says(lab, side, line);
    assert!(said.status.success(), "{line}: {}{}", said.stdout, said.stderr);
    said.stdout
}

/// Splits at spaces, except within single quotes.
fn words(line: &str) -> Vec<String> {
    let quoted = line.split('\'').enumerate();
    quoted
        .flat_map(|(place, part)| match place % 2 {
            1 => vec![part.to_owned()],
            _ => part.split_whitespace().map(str::to_owned).collect(),
        })
        .collect()
}

#[track_caller]
fn wait_for_ping(lab: &Lab, target: &str) {
    let answered = || Ok(ping(lab.host(Side::A), target, 2, 56)?.answered > 0);
    interrupt::until("answer through the association", PATIENCE, answered).unwrap();
}
