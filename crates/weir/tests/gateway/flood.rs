//! The rules in `rules/` in a gateway: attacks told over many packets stop there, floods too, and
//! what is beside them goes on.

use weir_lab::traffic::bypass;
use weir_lab::traffic::hostile::{Campaign, Hostile};
use weir_lab::traffic::iperf::{self, Extent};

use std::path::Path;

use weir_lab::gateways::{NAMES, run_folder};
use weir_lab::topology::{GATEWAY_MAC, GATEWAY_V4, HOST_DEVICE};

use super::*;

/// `[rules]` with what is in the repository's `rules/`.
fn tables() -> String {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../rules");
    format!("\n[rules]\npaths = [\"{}\"]\n", folder.display())
}

fn dropped_by_rules(gateways: &Gateways) -> u64 {
    let status = gateways.status(Side::A).unwrap();
    assert_eq!(status["adds_up"], true, "{status:#}");
    let dropped = status.pointer("/pairs/0/wire/dropped_by_reason/rule");
    dropped.and_then(Value::as_u64).unwrap_or_default()
}

#[test]
fn attacks_on_queue_pairs_stop_and_their_twins_arrive() {
    let Some(Stand { _turn, lab }) = stand("attacks_on_queue_pairs") else { return };
    let setup = Setup { tables_of_a: tables(), ..Setup::new(WEIR, Protection::Plain) };
    let gateways = Gateways::start(&lab, &setup).unwrap();
    wait_until_it_flows(&lab);
    let send = |hostile, is_benign, count| {
        let campaign = Campaign { hostile, is_benign, count, sources: 1, seed: 7 };
        bypass::exchange(&lab, &campaign.frames(), 2000).unwrap()
    };
    // Twins first: guesses are remembered for longer than this takes.
    let attacks = [
        // A connection counts that is open for a second: half of these come behind that.
        (Hostile::QpExhaustion, 4_000, "WEIR RDMA connections asked for and never used"),
        (Hostile::ForgedCnp, 1_000, "WEIR RDMA congestion notifications for data that nobody sent"),
        (Hostile::KeyGuessing, 1_000, "WEIR RDMA guessed remote keys"),
    ];
    for (hostile, ..) in attacks {
        let twin = send(hostile, true, 500);
        assert!(twin.is_exact(), "{hostile:?}: {twin:?}");
    }
    assert_eq!(dropped_by_rules(&gateways), 0);
    for (hostile, count, message) in attacks {
        let before = dropped_by_rules(&gateways);
        let attack = send(hostile, false, count);
        let dropped = dropped_by_rules(&gateways) - before;
        assert!(dropped > 300, "{hostile:?}: {dropped} dropped, {attack:?}");
        assert_eq!(attack.intact + dropped, attack.sent, "{hostile:?}: {attack:?}");
        let drops = gateways.drops(Side::A).unwrap();
        assert!(drops.contains(message), "{drops}");
    }
}

/// hping3's flood of the Amsterdam paper, then with another source each time, then at the gateway's
/// own address.
#[test]
fn syn_floods_stop_while_a_connection_goes_on() {
    let Some(Stand { _turn, lab }) = stand("syn_floods_stop") else { return };
    if !process::installed("hping3") {
        return println!("SKIPPED syn_floods_stop: no hping3; try `apt-get install hping3`");
    }
    let setup = Setup { tables_of_a: tables(), ..Setup::new(WEIR, Protection::Plain) };
    let gateways = Gateways::start(&lab, &setup).unwrap();
    wait_until_it_flows(&lab);
    let [own, _] = GATEWAY_V4;
    let [a, b, c, d, e, f] = GATEWAY_MAC[Side::A.index()];
    lab.host(Side::B)
        .ip(&format!(
            "route add {own}/32 dev {HOST_DEVICE}\nneigh add {own} dev {HOST_DEVICE} lladdr \
             {a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{f:02x}"
        ))
        .unwrap();
    let host = lab.host_v4(Side::A);
    for (target, sources) in
        [(host, &[][..]), (host, &["--rand-source"]), (own, &["--rand-source"])]
    {
        let before = dropped_by_rules(&gateways);
        let mut hping = lab.host(Side::B).command("hping3");
        hping.args(["-q", "-i", "u20", "-S", "-p", "80", "-c", "50000"]).args(sources);
        let flood = Running::start(hping.arg(target.to_string())).unwrap();
        let (client, server) = (lab.host(Side::B), lab.host(Side::A));
        let address = lab.host_v4(Side::A).into();
        let beside = iperf::tcp(client, server, address, Extent::Bytes(50_000_000)).unwrap();
        assert!(beside.bytes > 40_000_000, "{beside:?}");
        flood.finish(PATIENCE).unwrap();
        // What the kernel dropped is counted with the next tick.
        let most = || Ok(dropped_by_rules(&gateways) - before > 40_000);
        interrupt::until("most of 50,000 dropped", PATIENCE, most).unwrap();
    }
    let status = gateways.status(Side::A).unwrap();
    let early = number(&status, "/pairs/0/wire/dropped_early");
    assert!(early > 10_000, "most need not be received: {status:#}");
    let port = number(&status, "/pairs/0/wire/port/received_frames");
    assert!(port >= number(&status, "/pairs/0/wire/received"), "{status:#}");
    let drops = gateways.drops(Side::A).unwrap();
    // Of a slow sender the rule about its host does not hear enough in a second, but the others do.
    for names in [["SYN from one source", "SYN on one destination"], ["half open"; 2]] {
        assert!(names.iter().any(|it| drops.contains(it)), "{drops}");
    }
}

/// `weir block` and `weir allow` with their effect on a ping.
#[test]
fn who_is_blocked_is_not_heard_until_the_time_is_over() {
    let Some(Stand { _turn, lab }) = stand("who_is_blocked_is_not_heard") else { return };
    let gateways = sealing_gateways(&lab, &sealed());
    let run_dir = run_folder(&lab, Side::A);
    let run_dir = run_dir.to_str().unwrap();
    let weir = |args: &[&str]| {
        let mut command = Command::new(WEIR);
        command.args(args).args(["--gateway", NAMES[0], "--run-dir", run_dir, "--json"]);
        let finished = process::run(&mut command, Duration::from_secs(10)).unwrap();
        serde_json::from_str::<Value>(&finished.stdout).unwrap_or_default()
    };
    let host_b = lab.host_v4(Side::B).to_string();
    let host_a = lab.host_v4(Side::A).to_string();
    let answers = || ping(lab.host(Side::B), &host_a, 5, 56).map(|it| it.answered).unwrap_or(0);
    let blocked = weir(&["block", "add", &host_b, "--ttl", "1h", "--reason", "test"]);
    assert_eq!(blocked[0]["prefix"], format!("{host_b}/32"), "{blocked:#}");
    assert_eq!(answers(), 0, "blocked");
    let listed = weir(&["block", "list"]);
    assert!(listed[0]["packets"].as_u64().unwrap() >= 5, "{listed:#}");
    weir(&["allow", "add", &host_b]);
    assert_eq!(answers(), 5, "an allow list wins");
    weir(&["allow", "remove", &host_b]);
    assert_eq!(answers(), 0, "blocked as before");
    // A block of two seconds in the place of the long one is over by itself.
    weir(&["block", "add", &host_b, "--ttl", "2s"]);
    interrupt::until("end of the block", PATIENCE, || Ok(answers() == 5)).unwrap();
    assert_eq!(weir(&["block", "list"]).as_array().map(Vec::len), Some(0));
    let status = gateways.status(Side::A).unwrap();
    assert_eq!(status["adds_up"], true, "{status:#}");
    assert!(number(&status, "/pairs/0/wire/dropped_by_reason/blocked") >= 10, "{status:#}");
}

/// In clear, the kernel drops who is blocked before it is received; all of it adds up.
#[test]
fn what_a_blocked_host_sends_is_not_received_and_counted() {
    let Some(Stand { _turn, lab }) = stand("what_a_blocked_host_sends") else { return };
    for (driver, workers) in [("packet", 1), ("xdp", 1), ("xdp", 2)] {
        println!("driver {driver}, {workers} workers");
        let setup = Setup {
            driver: Some(driver.to_owned()),
            pair_lines: format!("workers = {workers}\n"),
            ..Setup::new(WEIR, Protection::Plain)
        };
        blocked_hosts_are_not_received(&lab, Gateways::start(&lab, &setup).unwrap());
    }
}

fn blocked_hosts_are_not_received(lab: &Lab, mut gateways: Gateways) {
    let run_dir = run_folder(lab, Side::A);
    let run_dir = run_dir.to_str().unwrap();
    let weir = |args: &[&str]| {
        let mut command = Command::new(WEIR);
        command.args(args).args(["--gateway", NAMES[0], "--run-dir", run_dir, "--json"]);
        let finished = process::run(&mut command, Duration::from_secs(10)).unwrap();
        serde_json::from_str::<Value>(&finished.stdout).unwrap_or_default()
    };
    wait_until_it_flows(lab);
    let early = |gateways: &Gateways, side: &str| {
        let status = gateways.status(Side::A).unwrap();
        assert_eq!(status["adds_up"], true, "{status:#}");
        number(&status, &format!("/pairs/0/{side}/dropped_early"))
    };
    let [a, b] = Side::BOTH.map(|side| lab.host_v4(side).to_string());
    // Whoever is blocked is not asked for its address either, so what is known of it is kept.
    for (side, other) in [(Side::A, &b), (Side::B, &a)] {
        lab.host(side)
            .ip(&format!("neigh change {other} dev {HOST_DEVICE} nud permanent"))
            .unwrap();
    }
    let answers = || ping(lab.host(Side::B), &a, 5, 56).map(|it| it.answered).unwrap_or(0);
    weir(&["block", "add", &b]);
    let is_early = || Ok(answers() == 0 && early(&gateways, "wire") >= 5);
    interrupt::until("drops before they are received", PATIENCE, is_early).unwrap();
    let is_listed = || Ok(weir(&["block", "list"])[0]["packets"].as_u64() >= Some(5));
    interrupt::until("the block's own count", PATIENCE, is_listed).unwrap();
    weir(&["allow", "add", &b]);
    assert_eq!(answers(), 5, "an allow list wins");
    weir(&["allow", "remove", &b]);
    weir(&["block", "remove", &b]);
    assert_eq!(answers(), 5, "nobody is blocked");
    // What its own host sends is no different.
    weir(&["block", "add", &a]);
    let is_early = || Ok(answers() == 0 && early(&gateways, "host") >= 5);
    interrupt::until("drops at the host's port", PATIENCE, is_early).unwrap();
    // Nobody is blocked, but no gateway lives.
    weir(&["block", "remove", &a]);
    gateways.end(Side::A, Signal::KILL).unwrap();
    assert_eq!(ping(lab.host(Side::A), &b, 5, 56).map(|it| it.answered).unwrap_or(0), 0);
}

/// All that a flood's sender sends belongs to it, but for replies to whom he floods: the kernel,
/// which drops the flood, lets those through.
#[test]
fn who_floods_is_heard_where_he_answers() {
    let Some(Stand { _turn, lab }) = stand("who_floods_is_heard") else { return };
    if !process::installed("hping3") {
        return println!("SKIPPED who_floods_is_heard: no hping3; try `apt-get install hping3`");
    }
    let rules = lab.folder().join("icmp.rules");
    let rule = "drop icmp any any -> any any (flood:icmp, by_src, rate 200, hold 10; sid:9;)\n";
    std::fs::write(&rules, rule).unwrap();
    let tables_of_a = format!("\n[rules]\npaths = [{rules:?}]\n");
    let setup = Setup { tables_of_a, ..Setup::new(WEIR, Protection::Plain) };
    let gateways = Gateways::start(&lab, &setup).unwrap();
    wait_until_it_flows(&lab);
    let [a, b] = Side::BOTH.map(|side| lab.host_v4(side).to_string());
    let mut hping = lab.host(Side::B).command("hping3");
    let _flood = Running::start(hping.args(["-q", "--icmp", "-i", "u500", &a])).unwrap();
    let early = || number(&gateways.status(Side::A).unwrap(), "/pairs/0/wire/dropped_early");
    interrupt::until("a flood that the kernel drops", PATIENCE, || Ok(early() > 1000)).unwrap();
    assert_eq!(ping(lab.host(Side::A), &b, 10, 56).unwrap().answered, 10);
}
