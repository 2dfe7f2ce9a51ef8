//! The guard before, under and after a gateway: a middle that would bridge everything if it could.

use rustix::process::Signal;
use weir_lab::gateways::{Gateways, NAMES, configurations, configure};
use weir_lab::process::Finished;
use weir_lab::topology::{HOST_PORT, Side, WIRE_PORT};

use super::*;

pub(super) const SHORT: Duration = Duration::from_secs(20);

/// `weir guard` of one side, to its end, whatever that is.
pub(super) fn guard(lab: &Lab, side: Side, words: &[&str]) -> Finished {
    let file = lab.folder().join(format!("{}.toml", NAMES[side.index()]));
    let mut command = lab.gateway(side).command(WEIR);
    command.arg("guard").arg(words[0]).arg(file).args(&words[1..]);
    Running::start(&mut command).unwrap().finish(SHORT).unwrap()
}

pub(super) fn passes(lab: &Lab) -> bool {
    ping(lab.host(Side::A), &lab.host_v4(Side::B).to_string(), 2, 56).unwrap().answered > 0
}

/// Bridges over both gateways' ports: what a machine does that was never meant to be a gateway.
pub(super) fn bridge(lab: &Lab) {
    for side in Side::BOTH {
        let lines = format!(
            "link add br0 type bridge\nlink set br0 up\nlink set {HOST_PORT} master br0\n\
             link set {WIRE_PORT} master br0\n"
        );
        lab.gateway(side).ip(&lines).unwrap();
    }
    interrupt::until("answer through the bridges", PATIENCE, || Ok(passes(lab))).unwrap();
}

#[test]
fn the_guard_shuts_what_a_bridge_would_pass_before_and_after_a_gateway() {
    let Some(Stand { _turn, lab }) = stand("the_guard_shuts") else { return };
    let setup = Setup::new(WEIR, Protection::Plain);
    let texts = configurations(&lab, &setup).unwrap();
    for side in Side::BOTH {
        configure(&lab, side, &texts[side.index()]).unwrap();
    }
    bridge(&lab);
    for side in Side::BOTH {
        assert_eq!(guard(&lab, side, &["show"]).status.code(), Some(1), "open");
        // The second time nothing changes.
        for _ in 0..2 {
            assert_eq!(guard(&lab, side, &["on"]).status.code(), Some(0));
        }
        let shown = guard(&lab, side, &["show", "--json"]);
        assert_eq!(shown.status.code(), Some(0));
        let ports: Value = serde_json::from_str(&shown.stdout).unwrap();
        assert_eq!(ports.as_array().unwrap().len(), 2);
        assert!(ports.as_array().unwrap().iter().all(|port| port["is_shut"] == true));
    }
    assert!(!passes(&lab), "shut");

    let mut gateways = Gateways::start_configured(&lab, &setup, &texts).unwrap();
    wait_until_it_flows(&lab);
    let refused = guard(&lab, Side::A, &["off"]);
    assert_eq!(refused.status.code(), Some(1));
    assert!(refused.stderr.contains("stay shut while a gateway runs"), "{}", refused.stderr);
    assert_eq!(guard(&lab, Side::A, &["on"]).status.code(), Some(0), "shut already, by it");
    wait_until_it_flows(&lab);
    gateways.end(Side::A, Signal::KILL).unwrap();
    gateways.end(Side::B, Signal::TERM).unwrap();
    assert!(!passes(&lab), "after the gateways nothing passes");
    for side in Side::BOTH {
        // The second time there is nothing to open.
        for _ in 0..2 {
            assert_eq!(guard(&lab, side, &["off"]).status.code(), Some(0));
        }
        assert_eq!(guard(&lab, side, &["show"]).status.code(), Some(1));
    }
    interrupt::until("answer through the bridges", PATIENCE, || Ok(passes(&lab))).unwrap();
}

#[test]
fn a_guard_waits_for_ports_and_says_which_is_missing() {
    let Some(Stand { _turn, lab }) = stand("a_guard_waits_for_ports") else { return };
    let setup = Setup::new(WEIR, Protection::Plain);
    let texts = configurations(&lab, &setup).unwrap();
    let late = texts[0].replace(HOST_PORT, "late0").replace(WIRE_PORT, "late1");
    configure(&lab, Side::A, &late).unwrap();
    let missing = guard(&lab, Side::A, &["on"]);
    assert_eq!(missing.status.code(), Some(1));
    assert!(missing.stderr.contains("late0 is not there"), "{}", missing.stderr);

    let file = lab.folder().join(format!("{}.toml", NAMES[0]));
    let mut command = lab.gateway(Side::A).command(WEIR);
    let mut waiting =
        Running::start(command.args(["guard", "on", "--wait", "60"]).arg(file)).unwrap();
    lab.gateway(Side::A).ip("link add late0 type veth peer name late1\n").unwrap();
    interrupt::until("end of the wait", PATIENCE, || Ok(!waiting.is_running()?)).unwrap();
    assert!(waiting.stdout().contains("late1 is shut"), "{}", waiting.stderr());
    assert_eq!(guard(&lab, Side::A, &["show"]).status.code(), Some(0));

    configure(&lab, Side::A, &late.replace("[[pair]]", "on_failure = \"open\"\n[[pair]]")).unwrap();
    let refused = guard(&lab, Side::A, &["on"]);
    assert!(refused.stderr.contains("to pass everything without it"), "{}", refused.stderr);
    configure(&lab, Side::A, "colour = 1\n").unwrap();
    assert_eq!(guard(&lab, Side::A, &["on"]).status.code(), Some(2));
}

#[test]
fn what_the_kernel_has_is_shown_whatever_the_file_says() {
    let Some(Stand { _turn, lab }) = stand("what_the_kernel_has_is_shown") else { return };
    let setup = Setup::new(WEIR, Protection::Plain);
    let closed = configurations(&lab, &setup).unwrap();
    let open =
        closed.clone().map(|text| text.replace("[[pair]]", "on_failure = \"open\"\n[[pair]]"));
    let mut gateways = Gateways::start_configured(&lab, &setup, &open).unwrap();
    wait_until_it_flows(&lab);
    for side in Side::BOTH {
        configure(&lab, side, &closed[side.index()]).unwrap();
    }
    let shown = || guard(&lab, Side::A, &["show", "--json"]);
    assert_eq!(guard(&lab, Side::A, &["on"]).status.code(), Some(1), "it fails open");
    for side in Side::BOTH {
        gateways.end(side, Signal::KILL).unwrap();
    }
    interrupt::until("traffic without a gateway", PATIENCE, || Ok(passes(&lab))).unwrap();
    assert_eq!(shown().status.code(), Some(1), "open");
    let ports: Value = serde_json::from_str(&shown().stdout).unwrap();
    for port in ports.as_array().unwrap() {
        assert_eq!((&port["is_shut"], &port["guard"]), (&false.into(), &"open_on_failure".into()));
    }
    assert_eq!(guard(&lab, Side::A, &["on"]).status.code(), Some(0));
    assert!(!passes(&lab), "shut");
    assert_eq!(shown().status.code(), Some(0));
}
