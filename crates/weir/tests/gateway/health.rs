//! `weir status --check`, which monitors run: it fails for each thing that somebody must see to,
//! names it, and is silent again when it is mended.

use std::fs;

use weir_lab::gateways::{NAMES, configurations, run_folder};
use weir_lab::topology::{GATEWAY_V4, WIRE_PORT};

use super::keying::keyed;
use super::*;

/// The exit code of `weir status --check`, and its words.
fn check(lab: &Lab) -> (Option<i32>, String) {
    let mut command = Command::new(WEIR);
    command.args(["status", NAMES[0], "--check", "--run-dir"]).arg(run_folder(lab, Side::A));
    let said = Running::start(&mut command).unwrap().finish(PATIENCE).unwrap();
    (said.status.code(), said.stdout + &said.stderr)
}

/// Waits until the check fails and says all of `wanted`.
#[track_caller]
fn wait_for_words(lab: &Lab, wanted: &[&str]) {
    let mut last = (None, String::new());
    let waited = interrupt::until("finding", 2 * PATIENCE, || {
        last = check(lab);
        Ok(last.0 == Some(1) && wanted.iter().all(|it| last.1.contains(it)))
    });
    if waited.is_err() {
        panic!("{wanted:?} in {last:?}");
    }
}

#[track_caller]
fn wait_for_health(lab: &Lab) {
    let mut last = (None, String::new());
    let waited = interrupt::until("no finding", 2 * PATIENCE, || {
        last = check(lab);
        Ok(last == (Some(0), String::new()))
    });
    if waited.is_err() {
        panic!("{last:?}");
    }
}

#[test]
fn a_check_names_links_that_are_down_ports_that_are_gone_and_a_dead_peer() {
    let Some(Stand { _turn, lab }) = stand("a_check_names_links") else { return };
    let setup = keyed(Protection::Sealed, "", "");
    let mut gateways = sealing_gateways(&lab, &setup);
    wait_for_health(&lab);

    let gateway = lab.gateway(Side::A);
    gateway.ip(&format!("link set {WIRE_PORT} down\n")).unwrap();
    wait_for_words(&lab, &[&format!("port {WIRE_PORT} is down")]);
    gateway.ip(&format!("link set {WIRE_PORT} up\n")).unwrap();
    wait_until_it_flows(&lab);
    wait_for_health(&lab);

    gateways.end(Side::B, Signal::KILL).unwrap();
    wait_for_words(&lab, &["peer gw-b: dead", "initiations unanswered", "the last handshake was"]);
    gateways.start_again(&lab, &setup, Side::B).unwrap();
    wait_until_it_flows(&lab);
    wait_for_health(&lab);

    gateway.ip(&format!("link del {WIRE_PORT}\n")).unwrap();
    wait_for_words(&lab, &[&format!("port {WIRE_PORT} is gone")]);
    // The log has what the check found.
    let log = gateways.log(Side::A);
    for words in ["the link is down", "the interface is gone"] {
        assert!(log.contains(words) && log.contains(WIRE_PORT), "{words} in {log}");
    }
    gateways.end(Side::A, Signal::TERM).unwrap();
    assert_ne!(check(&lab).0, Some(0), "a gateway that does not run is not healthy");
}

#[test]
fn a_check_names_why_a_peer_is_refused_and_one_that_was_never_reached() {
    let Some(Stand { _turn, lab }) = stand("a_check_names_why") else { return };
    let setup = keyed(Protection::Sealed, "", "");
    let texts = configurations(&lab, &setup).unwrap();
    let other_key = lab.folder().join("keys/other.psk");
    let mut command = Command::new(WEIR);
    process::run(command.args(["keys", "preshared"]).arg(&other_key), PATIENCE).unwrap();
    // Each looks for the other where nobody is.
    let elsewhere = Side::BOTH.map(|side| {
        let right = format!("endpoint = \"{}\"", GATEWAY_V4[side.other().index()]);
        let text = &texts[side.index()];
        assert!(text.contains(&right), "{text}");
        text.replace(&right, "endpoint = \"192.168.77.99\"")
    });
    let mut gateways = Gateways::start_configured(&lab, &setup, &elsewhere).unwrap();
    wait_for_words(&lab, &["peer gw-b", "initiations unanswered", "no handshake ever came"]);

    configure(&lab, Side::B, &texts[1]).unwrap();
    gateways.daemon(Side::B).signal(Signal::HUP).unwrap();
    wait_status(&gateways, Side::B, |it| it["pairs"][0]["policy_epoch"] == 2);
    // Each file in its turn, at A alone.
    let mut epoch = 1;
    let mut becomes = |text: &str| {
        configure(&lab, Side::A, text).unwrap();
        gateways.daemon(Side::A).signal(Signal::HUP).unwrap();
        epoch += 1;
        wait_status(&gateways, Side::A, |it| it["pairs"][0]["policy_epoch"] == epoch);
    };
    let keys = fs::read_dir(lab.folder().join("keys")).unwrap();
    let shared = keys.filter_map(Result::ok).find(|it| it.file_name() == "shared.psk").unwrap();
    let shared = shared.path().display().to_string();
    becomes(&texts[0].replace(&shared, &other_key.display().to_string()));
    wait_for_words(&lab, &["peer gw-b", "compare the preshared keys at both ends"]);
    becomes(&texts[0].replace("[keying]", "ml_kem = true\n\n[keying]"));
    wait_for_words(&lab, &["peer gw-b: refused:", "ml_kem"]);
    becomes(&texts[0]);
    wait_until_it_flows(&lab);
    wait_for_health(&lab);
}
