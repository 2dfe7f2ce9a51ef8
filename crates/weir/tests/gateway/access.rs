//! Lines of access: host B may READ from host A, and may not WRITE.

use weir_lab::demo::access_lines;
use weir_lab::traffic::bypass::stream_while;
use weir_lab::traffic::frames::planned;
use weir_lab::traffic::{Kind, bypass};

use super::*;

/// Both kinds of traffic, judged by gateway A.
fn reads_arrive_and_writes_do_not(lab: &Lab, gateways: &Gateways) {
    let send = |kind| bypass::exchange(lab, &planned(kind, 90).unwrap(), 2000).unwrap();
    let reads = send(Kind::RdmaRead);
    assert!(reads.is_exact(), "{reads:?}");
    let writes = send(Kind::RdmaWrite);
    assert_eq!((writes.sent, writes.intact, writes.altered), (90, 0, 0), "{writes:?}");
    let hits = gateways.access_hits(Side::A).unwrap();
    let line = |name: &str| {
        let lines = hits.pointer("/pairs/0/lines").and_then(Value::as_array).unwrap();
        let line = lines.iter().find(|line| line["name"] == name).unwrap();
        [&line["messages"], &line["packets"]].map(|it| it.as_u64().unwrap())
    };
    assert_eq!(line("b-may-read"), [45, 45], "{hits:#}");
    assert_eq!(line("b-may-not-write"), [30, 90], "{hits:#}");
    let status = gateways.status(Side::A).unwrap();
    assert_eq!(status["adds_up"], true, "{status:#}");
    assert_eq!(number(&status, "/pairs/0/wire/dropped_by_reason/access_denied"), 90);
    let drops = gateways.drops(Side::A).unwrap();
    assert!(
        drops.contains("access_denied") && drops.contains("by line b-may-not-write"),
        "{drops}"
    );
    // The log is written ten times a second.
    let tells = || Ok(gateways.log(Side::A).contains("access denied"));
    interrupt::until("word of a denied message", PATIENCE, tells).unwrap();
    let log = gateways.log(Side::A);
    assert!(log.contains("b-may-not-write") && log.contains("0x00001a2b"), "{log}");
}

#[test]
fn a_line_stops_writes_and_lets_reads_through_in_clear() {
    let Some(Stand { _turn, lab }) = stand("a_line_stops_writes_in_clear") else { return };
    let setup = Setup { tables_of_a: access_lines(&lab), ..Setup::new(WEIR, Protection::Plain) };
    let gateways = Gateways::start(&lab, &setup).unwrap();
    wait_until_it_flows(&lab);
    reads_arrive_and_writes_do_not(&lab, &gateways);
}

#[test]
fn a_reload_puts_lines_before_what_comes_out_of_a_tunnel_and_takes_them_away() {
    let Some(Stand { _turn, lab }) = stand("a_reload_puts_lines") else { return };
    let gateways = sealing_gateways(&lab, &sealed());
    let send = || bypass::exchange(&lab, &planned(Kind::RdmaWrite, 90).unwrap(), 2000).unwrap();
    assert!(send().is_exact());
    let before = std::fs::read_to_string(lab.folder().join("gw-a.toml")).unwrap();
    gateways.add_tables(&lab, Side::A, &access_lines(&lab)).unwrap();
    reads_arrive_and_writes_do_not(&lab, &gateways);
    configure(&lab, Side::A, &before).unwrap();
    gateways.add_tables(&lab, Side::A, "").unwrap();
    assert!(send().is_exact());
}

#[test]
fn lines_that_are_refused_leave_those_before_in_force_and_whoever_asks_is_told_these() {
    let Some(Stand { _turn, lab }) = stand("lines_that_are_refused_leave_those_before") else {
        return;
    };
    let setup = Setup { tables_of_a: access_lines(&lab), ..Setup::new(WEIR, Protection::Plain) };
    let mut gateways = Gateways::start(&lab, &setup).unwrap();
    wait_until_it_flows(&lab);
    let good = std::fs::read_to_string(lab.folder().join("gw-a.toml")).unwrap();
    let members = lab.folder().join("members.txt");
    std::fs::write(&members, "# nobody\n").unwrap();
    let group = |name: &str, more: &str| format!("\n[[group]]\nname = \"{name}\"\n{more}\n");
    let many: String = (0..100_000)
        .map(|it| format!("\n[[access]]\nname = \"l{it}\"\naction = \"deny\"\n"))
        .collect();
    let from_file = format!("members_file = \"{}\"", members.display());
    let wrong = [
        many,
        group("empty", &from_file),
        group("twice", "members = \"10.0.0.1\"") + &group("twice", "members = \"10.0.0.2\""),
        "\n[[access]]\nname = \"b-may-read\"\naction = \"deny\"\n".to_owned(),
    ];
    for (count, more) in (1..).zip(&wrong) {
        configure(&lab, Side::A, &(good.clone() + more)).unwrap();
        gateways.daemon(Side::A).signal(Signal::HUP).unwrap();
        wait_status(&gateways, Side::A, |it| it["reloads_refused"] == count);
    }
    reads_arrive_and_writes_do_not(&lab, &gateways);

    // The file is wrong; what is in force is what the gateway is asked for.
    let run_dir = weir_lab::gateways::run_folder(&lab, Side::A);
    let access = |words: &[&str]| {
        let mut command = Command::new(WEIR);
        command.arg("access").args(words).arg("--run-dir").arg(&run_dir);
        Running::start(&mut command).unwrap().finish(PATIENCE).unwrap()
    };
    let [a, b] = Side::BOTH.map(|side| lab.host_v4(side).to_string());
    let asked = access(&["explain", "--from", &b, "--to", &a, "--op", "write", "--json"]);
    assert_eq!(asked.status.code(), Some(1), "{}", asked.stderr);
    let said: Value = serde_json::from_str(&asked.stdout).unwrap();
    assert_eq!((&said["action"], &said["line"]), (&"deny".into(), &"b-may-not-write".into()));
    let odd = access(&["check", "--json"]);
    assert!(serde_json::from_str::<Value>(&odd.stdout).unwrap().is_array(), "{}", odd.stderr);
}

#[test]
fn lines_that_change_under_traffic_lose_none_of_it() {
    let Some(Stand { _turn, lab }) = stand("lines_that_change_under_traffic") else { return };
    let setup = Setup { tables_of_a: access_lines(&lab), ..Setup::new(WEIR, Protection::Plain) };
    let mut gateways = Gateways::start(&lab, &setup).unwrap();
    wait_until_it_flows(&lab);
    let file = lab.folder().join("gw-a.toml");
    let good = std::fs::read_to_string(&file).unwrap();
    let frames = RoceStream::new(1024).unwrap();
    let (streamed, ()) = stream_while(&lab, &frames, 5000, || {
        for round in 2..=5 {
            pause(300);
            let more = format!(
                "\n[[access]]\nname = \"round-{round}\"\noperations = \"send\"\n\
                 action = \"allow\"\n"
            );
            configure(&lab, Side::A, &(good.clone() + &more)).unwrap();
            gateways.daemon(Side::A).signal(Signal::HUP).unwrap();
            wait_status(&gateways, Side::A, |it| it["pairs"][0]["policy_epoch"] == round);
        }
    })
    .unwrap();
    assert!(streamed.sent > 5000, "{streamed:?}");
    assert!(streamed.is_exact(), "{streamed:?}");
    let hits = gateways.access_hits(Side::A).unwrap();
    let lines = hits.pointer("/pairs/0/lines").and_then(Value::as_array).unwrap();
    let last = lines.iter().find(|it| it["name"] == "round-5").unwrap();
    assert!(number(last, "/packets") > 0, "{hits:#}");
}

/// WRITEs that a line rejects: host B gets a NAK for each, in host A's name.
fn writes_are_refused_in_the_responder_s_name(lab: &Lab, gateways: &Gateways) {
    let send = |kind| bypass::exchange(lab, &planned(kind, 90).unwrap(), 2000).unwrap();
    // Their answers show which queue pairs belong together.
    let reads = send(Kind::RdmaRead);
    assert!(reads.is_exact(), "{reads:?}");
    let writes = send(Kind::RdmaWrite);
    // A frame that nobody of us sent, for each of 30 messages.
    assert_eq!((writes.sent, writes.intact, writes.altered), (90, 0, 30), "{writes:?}");
    let hits = gateways.access_hits(Side::A).unwrap();
    assert_eq!(hits.pointer("/pairs/0/answered"), Some(&30.into()), "{hits:#}");
    assert_eq!(gateways.status(Side::A).unwrap()["adds_up"], true);
    let drops = gateways.drops(Side::A).unwrap();
    assert!(drops.contains("by line b-may-not-write"), "{drops}");
}

fn rejecting_lines(lab: &Lab) -> String {
    access_lines(lab).replace("action = \"deny\"", "action = \"reject\"")
}

#[test]
fn a_rejected_write_is_answered_in_clear() {
    let Some(Stand { _turn, lab }) = stand("a_rejected_write_in_clear") else { return };
    let setup = Setup { tables_of_a: rejecting_lines(&lab), ..Setup::new(WEIR, Protection::Plain) };
    let gateways = Gateways::start(&lab, &setup).unwrap();
    wait_until_it_flows(&lab);
    writes_are_refused_in_the_responder_s_name(&lab, &gateways);
}

#[test]
fn a_rejected_write_is_answered_through_the_tunnel() {
    let Some(Stand { _turn, lab }) = stand("a_rejected_write_sealed") else { return };
    let setup = Setup { tables_of_a: rejecting_lines(&lab), ..sealed() };
    let gateways = sealing_gateways(&lab, &setup);
    writes_are_refused_in_the_responder_s_name(&lab, &gateways);
}

/// Evidence of whole packets and a mirror, beside lines of access or rules.
pub(super) fn bystanders(lab: &Lab) -> String {
    let gateway = lab.gateway(Side::A);
    gateway.ip("link add mon0 mtu 9000 type veth peer name an0 mtu 9000").unwrap();
    gateway.set(&[("net.ipv6.conf.mon0.disable_ipv6", "1")]).unwrap();
    gateway.ip("link set an0 up\nlink set mon0 up").unwrap();
    "\n[evidence]\nmemory_mib = 16\nsnap = 0\n[[mirror]]\nname = \"ids\"\nport = \"mon0\"\n"
        .to_owned()
}

#[test]
fn lines_hold_with_several_sealing_workers_evidence_and_a_mirror_beside() {
    let Some(Stand { _turn, lab }) = stand("lines_hold_with_several_workers") else { return };
    let setup = Setup {
        pair_lines: "workers = 2\n".to_owned(),
        tables_of_a: access_lines(&lab) + &bystanders(&lab),
        ..super::keying::keyed(Protection::Sealed, "", "")
    };
    let gateways = sealing_gateways(&lab, &setup);
    reads_arrive_and_writes_do_not(&lab, &gateways);
}

#[test]
fn lines_hold_where_af_xdp_moves_the_frames() {
    let Some(Stand { _turn, lab }) = stand("lines_hold_where_af_xdp_moves_the_frames") else {
        return;
    };
    let setup = Setup {
        driver: Some("xdp".to_owned()),
        tables_of_a: access_lines(&lab),
        ..Setup::new(WEIR, Protection::Plain)
    };
    let gateways = Gateways::start(&lab, &setup).unwrap();
    wait_until_it_flows(&lab);
    reads_arrive_and_writes_do_not(&lab, &gateways);
}

/// A connection that was strict before goes on after kill -9, and a stranger's does not.
#[test]
fn owners_of_queue_pairs_are_known_after_a_kill() {
    let Some(Stand { _turn, lab }) = stand("owners_of_queue_pairs_are_known_after_a_kill") else {
        return;
    };
    let pair_lines = "access_state = \"learn\"\n".to_owned();
    let setup = Setup { pair_lines, ..Setup::new(WEIR, Protection::Plain) };
    let mut gateways = Gateways::start(&lab, &setup).unwrap();
    wait_until_it_flows(&lab);
    let reads = bypass::exchange(&lab, &planned(Kind::RdmaRead, 90).unwrap(), 2000).unwrap();
    assert!(reads.is_exact(), "{reads:?}");
    let owners = |gateways: &Gateways| {
        number(&gateways.access_hits(Side::A).unwrap(), "/pairs/0/state/queue_pairs")
    };
    let before = owners(&gateways);
    assert!(before > 0);
    // Written within seconds of a change: perhaps after the first owner, and after all.
    let kept = lab.folder().join("state/gw-a/owners-gw-a-pf0hpf.state");
    // How many the one worker has stands behind magic, seed, time and the number of workers.
    let in_file = || {
        let bytes = std::fs::read(&kept).unwrap_or_default();
        bytes.get(36..40).map(|it| u32::from_le_bytes(it.try_into().unwrap()))
    };
    let all = || Ok(in_file().map(u64::from) == Some(before));
    interrupt::until("file of all owners", PATIENCE, all).unwrap();
    gateways.end(Side::A, Signal::KILL).unwrap();
    gateways.start_again(&lab, &setup, Side::A).unwrap();
    assert_eq!(owners(&gateways), before);
    // A damaged file is ignored with a word.
    gateways.end(Side::A, Signal::KILL).unwrap();
    let mut bytes = std::fs::read(&kept).unwrap();
    bytes[40] ^= 1;
    std::fs::write(&kept, bytes).unwrap();
    gateways.start_again(&lab, &setup, Side::A).unwrap();
    assert_eq!(owners(&gateways), 0);
    assert!(gateways.log(Side::A).contains("learnt anew"), "{}", gateways.log(Side::A));
}
