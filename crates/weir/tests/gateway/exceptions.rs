//! Connections whose application's parser gives up, through real gateways: they go on, or are cut
//! off there where `[rules.exceptions]` says so.

use weir_lab::demo::eve_file;

use super::*;

const SCRIPT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/gateway/exceptions.py");
const RULE: &str = "alert tcp any any -> any any (content:\"behind what is broken\"; sid:1;)\n";

/// A connection of host B to host A; how many bytes the server got from where it is broken on.
fn broken_connection(lab: &Lab, port: &str) -> String {
    let run = |side, arguments: &[&str]| {
        let mut command = lab.host(side).command("python3");
        command.args(["-B", SCRIPT]).args(arguments);
        command
    };
    let mut server = Running::start(&mut run(Side::A, &["serve", port])).unwrap();
    server.wait_for("ready", PATIENCE).unwrap();
    let address = lab.host_v4(Side::A).to_string();
    let sent = process::run(&mut run(Side::B, &["send", port, &address]), PATIENCE).unwrap();
    sent.success("the client").unwrap();
    let served = server.finish(PATIENCE).unwrap().success("the server").unwrap();
    served.stdout.lines().last().unwrap().to_owned()
}

/// The events of EVE of that kind and server's port.
fn events(lab: &Lab, kind: &str, port: u64) -> Vec<Value> {
    let text = std::fs::read_to_string(eve_file(lab.folder())).unwrap_or_default();
    let events = text.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    events.filter(|it| it["event_type"] == kind && it["dest_port"] == port).collect()
}

#[test]
fn a_connection_is_cut_off_where_its_parser_gives_up_if_exceptions_say_so() {
    let Some(Stand { _turn, lab }) = stand("a_connection_is_cut_off") else { return };
    let rules = lab.folder().join("broken.rules");
    std::fs::write(&rules, RULE).unwrap();
    let tables_of_a =
        format!("\n[rules]\npaths = [{rules:?}]\neve = {:?}\n", eve_file(lab.folder()));
    let setup = Setup { tables_of_a, ..Setup::new(WEIR, Protection::Plain) };
    let gateways = Gateways::start(&lab, &setup).unwrap();
    wait_until_it_flows(&lab);
    assert_eq!(broken_connection(&lab, "7001"), "got 33", "it goes on, and rules look at it");
    let is_told = || Ok(!events(&lab, "alert", 7001).is_empty());
    interrupt::until("alert in EVE", PATIENCE, is_told).unwrap();

    let drop = "\n[rules.exceptions]\nparser_errors = \"drop\"\n";
    gateways.add_tables(&lab, Side::A, drop).unwrap();
    assert_eq!(broken_connection(&lab, "7002"), "got 0");
    let dropped = "/pairs/0/wire/dropped_by_reason/parser_error";
    wait_status(&gateways, Side::A, |it| {
        it["adds_up"] == true && it.pointer(dropped).and_then(Value::as_u64) > Some(0)
    });
    let drops = gateways.drops(Side::A).unwrap();
    assert!(drops.contains("parser_error"), "{drops}");
    let is_told = || Ok(!events(&lab, "drop", 7002).is_empty());
    interrupt::until("drop in EVE", PATIENCE, is_told).unwrap();
    assert_eq!(events(&lab, "drop", 7002)[0]["drop"]["reason"], "applayer error");
}
