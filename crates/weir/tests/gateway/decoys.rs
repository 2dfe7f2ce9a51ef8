//! What no receiver takes hides nothing from the rules: a client that sends decoys among the pieces
//! of a word, real gateways, and a server whose kernel judges what was said. And what tunnels carry
//! hides nothing up to their bound.

use weir_lab::demo::eve_file;
use weir_lab::topology::{HOST_DEVICE, HOST_MAC};

use super::*;

const FOLDER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/gateway");
const EVIL: &str = "evil-command";
const RULES: &str = "\
    drop tcp any any -> any any (msg:\"a word in a stream\"; content:\"evil-command\"; sid:1;)\n\
    drop udp any any -> any any (msg:\"a word in a datagram\"; content:\"evil-command\"; sid:2;)\n";
/// Carried in more packets than are looked into.
const TOO_DEEP: [&str; 3] =
    ["beyond the bound of gre", "beyond the bound of ip", "far beyond the bound"];
/// Kernels differ in these: before Linux 6.7, 6.16 and 6.17 they took the decoy.
const BY_KERNEL: [&str; 3] = [
    "acknowledges what is before all",
    "echo of nothing with the third segment",
    "ends beyond the window",
];
/// The receiver's patience is nothing to pieces that wait at the gateway: it gets the decoy.
const WAITS: &str = "fragments too late";
/// The gateway takes sides where data differ, so that what it takes is seen.
const LENIENT: &str = "[rules.exceptions]\nconflicts = \"pass\"\n";
/// Words that arrive then, to be mended: one is struck out when it does no longer.
const OPEN: [&str; 41] = [
    // What Linux discards beyond the RFCs' tests.
    "md5 signature",
    "acknowledges what is before all",
    "ends beyond the window",
    "older by one with the third segment",
    "echo of nothing with the third segment",
    // Taken by the receiver, and left out of the stream.
    "all acknowledges what is far behind on the fast path",
    "urgent byte",
    // Of the last 64 overlaps the receiver's way is known, if `host-os-policy` names it.
    "what is longer is taken",
    "what is longer is taken after many others",
    // Packets that IP discards.
    "option without length",
    "option too long",
    "loose source route",
    "strict source route",
    "unknown option of the destination",
    "unknown option of hops",
    "routing header",
    "authentication header",
    "authentication header over ipv6",
    "mobility header",
    "host identity header",
    // Frames that are not for the receiver.
    "other hardware address",
    "broadcast",
    "multicast",
    "another vlan",
    "vlan in vlan",
    // More tags than are walked over.
    "in three vlans zero",
    // Carried by others, and taken for the flow's own.
    "decoy in ip in ip",
    "decoy in gre",
    "decoy in vxlan",
    "decoy in ipv6 in ip",
    "mpls",
    "pppoe",
    // Pieces that the receiver discards, or puts together otherwise.
    "fragments that overlap",
    "fragment without bytes",
    "fragment of few bytes",
    "fragment of odd length",
    "fragments that differ in ecn",
    "fragment to another hardware address",
    "the last fragment to another hardware address",
    "fragments over ipv6 that overlap",
    "fragment over ipv6 of odd length",
];
/// Those of overlaps if the rules know what the receiver is.
const OPEN_IF_NAMED: [&str; 1] = ["what is longer is taken after many others"];

/// Of this case the server does not always see the harmless pieces, one time in six on two busy
/// cores, though the gateway counts them as sent; it is not known why. Its evil ones never arrive.
const SOMETIMES_LOST: &str = "ip in ip in pieces";

/// What came of a case.
#[derive(Debug)]
struct Outcome {
    name: String,
    /// What the server got of the harmless word, if that is not what its kernel should take.
    strays: Option<String>,
    /// The evil word arrived, all of it.
    arrives: bool,
    /// An alert tells of it.
    is_told: bool,
}

/// `python3` with one of the scripts beside this file.
fn script(lab: &Lab, side: Side, name: &str, more: &[&str]) -> Command {
    let mut command = lab.host(side).command("python3");
    command.args(["-B", &format!("{FOLDER}/{name}")]).args(more);
    command
}

/// The client has addresses that no kernel has: none says a word for it.
fn introduce_the_client(lab: &Lab) {
    let mac = HOST_MAC[1].map(|it| format!("{it:02x}")).join(":");
    let known = |address| format!("neigh add {address} lladdr {mac} dev {HOST_DEVICE}\n");
    lab.host(Side::A).ip(&(known("10.77.0.77") + &known("fd77::77"))).unwrap();
    // A case waits until the server has forgotten pieces: 30 s else.
    lab.host(Side::A).set(&[("net.ipv4.ipfrag_time", "1")]).unwrap();
}

/// Source ports of the flows of which EVE tells a blocked alert.
fn told_ports(lab: &Lab) -> Vec<u64> {
    let text = std::fs::read_to_string(eve_file(lab.folder())).unwrap_or_default();
    let events = text.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let is_alert = |it: &Value| it["event_type"] == "alert" && it["alert"]["action"] == "blocked";
    events.filter(is_alert).filter_map(|it| it["src_port"].as_u64()).collect()
}

/// Plays the cases of such modules.
fn play(lab: &Lab, port: u16, modules: &[&str]) -> Vec<Outcome> {
    let mut server = Running::start(&mut script(lab, Side::A, "decoys_server.py", &[])).unwrap();
    server.wait_for("ready", PATIENCE).unwrap();
    let mut client = script(lab, Side::B, "decoys.py", &[&[&*port.to_string()], modules].concat());
    let played = process::run(&mut client, PATIENCE).unwrap().success("decoys.py").unwrap();
    let said = server.finish(PATIENCE).unwrap().success("decoys_server.py").unwrap().stdout;
    let said: Value = serde_json::from_str(said.lines().last().unwrap()).unwrap();
    let marks = said["marks"].as_array().unwrap();
    let cases = played.stdout.lines().map(|it| serde_json::from_str(it).unwrap());
    let mut cases: Vec<Value> = cases.collect();
    let told_last = cases.pop().unwrap()["told_last"].as_u64().unwrap();
    let got = |case: &Value, of: usize| {
        let word = [case["expected"].as_str().unwrap(), EVIL][of];
        if case["is_seen"] == true {
            let mark = format!("{} {word}", case["name"].as_str().unwrap());
            let is_seen = marks.iter().any(|it| *it == mark);
            return if is_seen { word } else { "" }.to_owned();
        }
        said["got"][case["ports"][of].to_string()].as_str().unwrap_or_default().to_owned()
    };
    let arrives = |case: &Value| got(case, 1).contains(EVIL);
    // EVE is written behind the packets, in their order.
    let is_written = || Ok(told_ports(lab).contains(&told_last));
    interrupt::until("alert of the last word", PATIENCE, is_written).unwrap();
    let told = told_ports(lab);
    let is_told = |case: &Value| told.contains(&case["ports"][1].as_u64().unwrap());
    let outcome = |case: &Value| Outcome {
        name: case["name"].as_str().unwrap().to_owned(),
        strays: Some(got(case, 0)).filter(|it| *it != case["expected"]),
        arrives: arrives(case),
        is_told: is_told(case),
    };
    cases.iter().map(outcome).collect()
}

/// No word arrived but of cases that are open, and all others were told of; the harmless ones did.
#[track_caller]
fn assert_held(outcomes: &[Outcome], open: &[&str]) {
    let is_open = |it: &&Outcome| open.contains(&&*it.name);
    let is_lost = |it: &Outcome| it.name == SOMETIMES_LOST && it.strays.as_deref() == Some("");
    outcomes.iter().filter(|it| is_lost(it)).for_each(|it| println!("{}: lost", it.name));
    let is_known = |name: &str| name == WAITS || BY_KERNEL.contains(&name);
    let strays = |it: &&Outcome| it.strays.is_some() && !is_known(&it.name) && !is_lost(it);
    let others: Vec<_> = outcomes.iter().filter(strays).collect();
    assert!(others.is_empty(), "the server's kernel takes something else: {others:#?}");
    let is_held = |it: &Outcome| !it.arrives && (it.is_told || it.name == WAITS);
    let lost: Vec<_> = outcomes.iter().filter(|it| !is_open(it) && !is_held(it)).collect();
    assert!(lost.is_empty(), "a word arrives, or nothing is told: {lost:#?}");
    let mended: Vec<_> = outcomes.iter().filter(|it| is_open(it) && is_held(it)).collect();
    assert!(mended.is_empty(), "no longer open, to be struck from the list: {mended:#?}");
}

/// A gateway whose side A has the rules, which are the last table of its configuration.
fn start(lab: &Lab) -> Gateways {
    introduce_the_client(lab);
    let path = lab.folder().join("word.rules");
    std::fs::write(&path, RULES).unwrap();
    let eve = eve_file(lab.folder());
    let tables_of_a = format!("\n{LENIENT}\n[rules]\npaths = [{path:?}]\neve = {eve:?}\n");
    let setup = Setup { tables_of_a, ..Setup::new(WEIR, Protection::Plain) };
    let gateways = Gateways::start(lab, &setup).unwrap();
    wait_until_it_flows(lab);
    gateways
}

/// The rules know what the server is, and what is nested too deep is dropped.
fn go_on_strictly(lab: &Lab, gateways: &Gateways) {
    let known = lab.folder().join("hosts.yaml");
    std::fs::write(&known, "host-os-policy:\n  linux: [10.77.0.1, \"fd77::1\"]\n").unwrap();
    change(lab, LENIENT, &format!("{LENIENT}layers = \"drop\"\n"));
    gateways.add_tables(lab, Side::A, &format!("variables = {known:?}\n")).unwrap();
}

/// What may be read in two ways is dropped, as it is by default: no word arrives.
fn go_on_by_default(lab: &Lab, gateways: &Gateways) {
    change(lab, LENIENT, "[rules.exceptions]\n");
    gateways.add_tables(lab, Side::A, "").unwrap();
}

/// Changes the configuration of gateway A, which reads it when it is reloaded.
fn change(lab: &Lab, from: &str, to: &str) {
    let file = lab.folder().join(format!("{}.toml", weir_lab::gateways::NAMES[0]));
    let text = std::fs::read_to_string(&file).unwrap();
    assert!(text.contains(from), "{text}");
    std::fs::write(&file, text.replace(from, to)).unwrap();
}

/// Waits until so many packets too deep are counted, and dropped: two of each case.
#[track_caller]
fn wait_counted_too_deep(gateways: &Gateways, cases: [usize; 2]) {
    let dropped = "/pairs/0/wire/dropped_by_reason/tunnel_too_deep";
    wait_status(gateways, Side::A, |it| {
        let dropped = it.pointer(dropped).and_then(Value::as_u64).unwrap_or_default();
        [number(it, "/pairs/0/inside/too_deep"), dropped] == cases.map(|it| 2 * it as u64)
    });
}

#[test]
fn neither_decoys_nor_tunnels_hide_a_word() {
    let Some(Stand { _turn, lab }) = stand("neither_decoys_nor_tunnels") else { return };
    let gateways = start(&lab);
    assert_held(&play(&lab, 20_000, &["decoys_tcp", "decoys_ip", "decoys_overlaps"]), &OPEN);
    let tunnels = play(&lab, 30_000, &["decoys_tunnels"]);
    assert_held(&tunnels, &[&TOO_DEEP[..], &OPEN].concat());
    // And one case of too many tags.
    wait_counted_too_deep(&gateways, [TOO_DEEP.len() + 1, 0]);
    go_on_strictly(&lab, &gateways);
    assert_held(&play(&lab, 40_000, &["decoys_overlaps"]), &OPEN_IF_NAMED);
    let tunnels = play(&lab, 50_000, &["decoys_tunnels"]);
    let (too_deep, others): (Vec<_>, Vec<_>) =
        tunnels.into_iter().partition(|it| TOO_DEEP.contains(&&*it.name));
    assert_held(&others, &OPEN);
    let arrives = |it: &Outcome| it.arrives || it.strays.is_none();
    assert!(!too_deep.iter().any(arrives), "{too_deep:#?}");
    wait_counted_too_deep(&gateways, [2 * TOO_DEEP.len() + 1, TOO_DEEP.len()]);
    go_on_by_default(&lab, &gateways);
    let cases = play(&lab, 60_000, &["decoys_tcp", "decoys_ip", "decoys_overlaps"]);
    let arrived: Vec<_> = cases.iter().filter(|it| it.arrives).map(|it| &*it.name).collect();
    assert!(arrived.is_empty(), "{arrived:?}");
}

/// Pieces that were judged in one datagram, and make another; and what finds no room.
#[test]
fn pieces_that_were_judged_make_no_word() {
    let Some(Stand { _turn, lab }) = stand("pieces_that_were_judged") else { return };
    let gateways = start(&lab);
    go_on_by_default(&lab, &gateways);
    let cases = play(&lab, 20_000, &["decoys_mixed"]);
    let arrived: Vec<_> = cases.iter().filter(|it| it.arrives).map(|it| &*it.name).collect();
    assert!(arrived.is_empty(), "{arrived:?}");
}
