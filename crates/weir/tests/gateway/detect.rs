//! Rules of detection in a gateway: attacks stop there, their harmless twins arrive.

use std::path::Path;

use rustix::process::Pid;
use weir_lab::demo::{detection_tables, eve_file};
use weir_lab::gateways::{NAMES, run_folder};
use weir_lab::traffic::frames::planned;
use weir_lab::traffic::ping::ping_all_every;
use weir_lab::traffic::{Kind, bypass, tcp};

use super::*;

const FRAMES: usize = 90;

fn send(lab: &Lab, kind: Kind) -> bypass::Exchange {
    bypass::exchange(lab, &planned(kind, FRAMES).unwrap(), 2000).unwrap()
}

/// Twins first: what a rule says of a TCP stream holds for the rest of its flow.
fn attacks_stop_and_their_twins_arrive(lab: &Lab, gateways: &Gateways) {
    for kind in [Kind::BenignTcp, Kind::RdmaRead] {
        let twin = send(lab, kind);
        assert!(twin.is_exact(), "{}: {twin:?}", kind.name());
    }
    for kind in [Kind::AttackTcp, Kind::AttackRdma] {
        let attack = send(lab, kind);
        assert_eq!((attack.intact, attack.altered), (0, 0), "{}: {attack:?}", kind.name());
    }
    let status = gateways.status(Side::A).unwrap();
    assert_eq!(status["adds_up"], true, "{status:#}");
    let dropped = number(&status, "/pairs/0/wire/dropped_by_reason/rule");
    assert_eq!(dropped, 2 * FRAMES as u64, "{status:#}");
    let drops = gateways.drops(Side::A).unwrap();
    for rule in ["1000001 LAB request for a secret file", "1000002 LAB atomic on memory"] {
        assert!(drops.contains(rule), "{drops}");
    }
}

/// The events of a file.
fn events(file: &Path) -> Vec<Value> {
    let text = std::fs::read_to_string(file).unwrap_or_default();
    text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect()
}

/// The numbers of a rule's alerts in a file, in their order.
fn alert_ids(file: &Path, sid: u64) -> Vec<u64> {
    let events = events(file).into_iter();
    let of_rule = |it: &Value| it["event_type"] == "alert" && it["alert"]["signature_id"] == sid;
    let alerts = events.filter(of_rule);
    alerts.map(|it| it["weir"]["alert_id"].as_u64().unwrap_or_else(|| panic!("{it:#}"))).collect()
}

/// The alerts of EVE, by rule and whether they were blocked.
fn alerts(lab: &Lab, sid: u64, action: &str) -> usize {
    let text = std::fs::read_to_string(eve_file(lab.folder())).unwrap_or_default();
    let of_rule = |line: &&str| {
        let event: Value = serde_json::from_str(line).unwrap_or_default();
        event["event_type"] == "alert"
            && event["alert"]["signature_id"] == sid
            && event["alert"]["action"] == action
    };
    text.lines().filter(of_rule).count()
}

#[test]
fn rules_stop_attacks_in_clear_and_tell_of_them_in_eve() {
    let Some(Stand { _turn, lab }) = stand("rules_stop_attacks_in_clear") else { return };
    let tables_of_a = detection_tables(&lab).unwrap() + "\n[store]\nsize_mib = 16\n";
    let setup = Setup { tables_of_a, ..Setup::new(WEIR, Protection::Plain) };
    let gateways = Gateways::start(&lab, &setup).unwrap();
    wait_until_it_flows(&lab);
    attacks_stop_and_their_twins_arrive(&lab, &gateways);
    for sid in [1_000_001, 1_000_002] {
        let is_told = || Ok(alerts(&lab, sid, "blocked") > 0);
        interrupt::until("alert in EVE", PATIENCE, is_told).unwrap();
    }
    remembers_what_was_blocked(&lab);
    tells_flows_and_counters(&lab, gateways);
}

/// AF_XDP at the ports, a ring of evidence and a mirror change nothing about it.
#[test]
fn rules_stop_attacks_by_af_xdp_beside_evidence_and_a_mirror() {
    let Some(Stand { _turn, lab }) = stand("rules_stop_attacks_by_af_xdp") else { return };
    let tables_of_a = detection_tables(&lab).unwrap() + &super::access::bystanders(&lab);
    let driver = Some("xdp".to_owned());
    let setup = Setup { tables_of_a, driver, ..Setup::new(WEIR, Protection::Plain) };
    let gateways = Gateways::start(&lab, &setup).unwrap();
    wait_until_it_flows(&lab);
    attacks_stop_and_their_twins_arrive(&lab, &gateways);
    let is_told = || Ok(alerts(&lab, 1_000_002, "blocked") > 0);
    interrupt::until("alert in EVE", PATIENCE, is_told).unwrap();
}

/// EVE has `flow` of what ended with the gateway, `stats`, and the same Community ID in both.
fn tells_flows_and_counters(lab: &Lab, mut gateways: Gateways) {
    let of_kind = |kind: &str| -> Vec<Value> {
        let text = std::fs::read_to_string(eve_file(lab.folder())).unwrap_or_default();
        let events = text.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
        events.filter(|event| event["event_type"] == kind).collect()
    };
    let is_counted = || Ok(!of_kind("stats").is_empty());
    interrupt::until("stats in EVE", Duration::from_secs(30), is_counted).unwrap();
    let stats = of_kind("stats").pop().unwrap();
    assert!(stats["stats"]["ips"]["blocked"].as_u64() > Some(0), "{stats:#}");
    gateways.end(Side::A, Signal::TERM).unwrap();
    let alert = of_kind("alert").into_iter().find(|it| it["proto"] == "TCP").unwrap();
    let id = &alert["community_id"];
    let flows = of_kind("flow");
    let flow = flows.iter().find(|flow| flow["community_id"] == *id);
    let flow = flow.unwrap_or_else(|| panic!("{id}: {flows:#?}"));
    // Segments without a handshake are judged one by one: the flow itself is not dropped.
    assert_eq!(flow["flow"]["alerted"], true, "{flow:#}");
}

/// `weir alerts` says of the store what EVE said.
fn remembers_what_was_blocked(lab: &Lab) {
    let store = lab.folder().join("state").join(NAMES[0]).join("store");
    let remembered = |more: &[&str]| {
        let mut command = Command::new(WEIR);
        command.args(["alerts", "--json", "--limit", "1000", "--store"]).arg(&store).args(more);
        let said = process::run(&mut command, Duration::from_secs(10))?.stdout;
        let rows: Value = serde_json::from_str(&said)?;
        Ok::<_, anyhow::Error>(rows.as_array().cloned().unwrap_or_default())
    };
    let all = || Ok(remembered(&["--sid", "1000002"])?.len() == alerts(lab, 1_000_002, "blocked"));
    interrupt::until("all alerts in the store", PATIENCE, all).unwrap();
    let rows = remembered(&["--sid", "1000002", "--action", "blocked"]).unwrap();
    let row = &rows[0];
    assert_eq!(row["signature"], "LAB atomic on memory", "{row:#}");
    assert_eq!(row["source"], lab.host_v4(Side::B).to_string(), "{row:#}");
    assert_eq!(row["event"]["rdma"]["operation"], "RC FetchAdd", "{row:#}");
    assert!(remembered(&["--action", "would_block"]).unwrap().is_empty());
}

/// Who reads EVE finds the packets of an alert, whichever worker it is of.
#[test]
fn the_number_of_an_alert_in_eve_leads_to_its_packets() {
    let Some(Stand { _turn, lab }) = stand("the_number_of_an_alert") else { return };
    let path = |name: &str| lab.folder().join(name);
    let rule = "alert udp any any -> any [7001:7008] (msg:\"word\"; dsize:200; sid:7;)\n";
    std::fs::write(path("word.rules"), rule).unwrap();
    let tables_of_a = format!(
        "\n[rules]\npaths = [{:?}]\neve = {:?}\n\n[store]\nsize_mib = 16\n\n\
         [evidence]\nmemory_mib = 16\nsnap = 0\n",
        path("word.rules"),
        eve_file(lab.folder())
    );
    let pair_lines = "workers = 2\n".to_owned();
    let setup = Setup { tables_of_a, pair_lines, ..Setup::new(WEIR, Protection::Plain) };
    let gateways = Gateways::start(&lab, &setup).unwrap();
    wait_until_it_flows(&lab);
    let send = "import socket, sys\n\
                sending = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)\n\
                for port in range(7001, 7009):\n    \
                    sending.sendto(b'x' * 200, (sys.argv[1], port))\n";
    let mut command = lab.host(Side::B).command("python3");
    command.args(["-c", send, &lab.host_v4(Side::A).to_string()]);
    process::run(&mut command, PATIENCE).unwrap().success("eight words").unwrap();
    let all = || Ok(alert_ids(&eve_file(lab.folder()), 7).len() == 8);
    interrupt::until("alerts in EVE", PATIENCE, all).unwrap();
    let told = events(&eve_file(lab.folder()));
    let told: Vec<_> = told.into_iter().filter(|it| it["event_type"] == "alert").collect();
    for alert in &told {
        let (number, port) = (alert["weir"]["alert_id"].to_string(), &alert["dest_port"]);
        let file = path(&format!("alert-{number}.pcapng"));
        // Its number is looked for in the store of the gateway that is asked.
        let arguments = ["--alert", &number];
        let mut said = String::new();
        let is_cut = || {
            let (is_cut, words) = super::evidence::cut(&lab, &file, &arguments);
            said = words;
            Ok(is_cut)
        };
        interrupt::until("the evidence of the alert", PATIENCE, is_cut)
            .unwrap_or_else(|error| panic!("{error}: {said}"));
        let found = super::evidence::tshark(&file, "udp", &["udp.dstport", "udp.length"]);
        assert_eq!(found, [format!("{port}\t208")], "alert {number}: {said}");
    }
    let number = told[0]["weir"]["alert_id"].to_string();
    let none = path("none.pcapng");
    let (is_cut, said) = super::evidence::cut(&lab, &none, &["--alert", &number, "udp port 9"]);
    assert!(!is_cut && said.contains("none of the packets of alert"), "{said}");
    assert!(!none.exists(), "an empty file looks like evidence");
    drop(gateways);
}

/// Sends, with addresses inside that are nobody's, a datagram to port 7001 in VXLAN; and one of
/// 20,000 bytes to port 7002, in three fragments.
const CARRIED: &str = "\
import socket, struct, sys
sending = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
sending.setsockopt(socket.IPPROTO_IP, 10, 0)
inner = struct.pack('>HHHH', 7000, 7001, 208, 0) + b'x' * 200
ip = struct.pack('>BBHHHBBH4s4s', 0x45, 0, 20 + len(inner), 1, 0, 64, 17, 0,
                 bytes([198, 51, 100, 1]), bytes([198, 51, 100, 2]))
total = sum(struct.unpack('>10H', ip))
total = (total & 0xffff) + (total >> 16)
ip = ip[:10] + struct.pack('>H', ~((total & 0xffff) + (total >> 16)) & 0xffff) + ip[12:]
frame = bytes([2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 8, 0]) + ip + inner
sending.sendto(bytes([8, 0, 0, 0, 0, 0, 7, 0]) + frame, (sys.argv[1], 4789))
sending.sendto(b'x' * 20000, (sys.argv[1], 7002))
";

#[test]
fn an_alert_inside_a_tunnel_and_one_of_fragments_lead_to_their_packets() {
    let Some(Stand { _turn, lab }) = stand("an_alert_inside_a_tunnel") else { return };
    let path = |name: &str| lab.folder().join(name);
    let rules = "alert udp any any -> any 7001 (msg:\"carried\"; sid:7;)\n\
                 alert udp any any -> any 7002 (msg:\"in pieces\"; sid:8;)\n";
    std::fs::write(path("word.rules"), rules).unwrap();
    let tables_of_a = format!(
        "\n[rules]\npaths = [{:?}]\neve = {:?}\n\n[store]\nsize_mib = 16\n\n\
         [evidence]\nmemory_mib = 16\n",
        path("word.rules"),
        eve_file(lab.folder())
    );
    let setup = Setup { tables_of_a, ..Setup::new(WEIR, Protection::Plain) };
    let gateways = Gateways::start(&lab, &setup).unwrap();
    wait_until_it_flows(&lab);
    let mut command = lab.host(Side::B).command("python3");
    command.args(["-c", CARRIED, &lab.host_v4(Side::A).to_string()]);
    process::run(&mut command, PATIENCE).unwrap().success("two datagrams").unwrap();
    let number_of = |sid| alert_ids(&eve_file(lab.folder()), sid).first().map(u64::to_string);
    let all = || Ok(number_of(7).is_some() && number_of(8).is_some());
    interrupt::until("alerts in EVE", PATIENCE, all).unwrap();
    let cut = |sid, wanted: &str, fields: &[&str], count: usize| {
        let file = path(&format!("alert-{sid}.pcapng"));
        let (mut found, mut said) = (Vec::new(), String::new());
        let is_cut = || {
            let number = number_of(sid).unwrap();
            let (is_cut, words) =
                super::evidence::cut(&lab, &file, &["--force", "--alert", &number]);
            said = words;
            if !is_cut {
                return Ok(false);
            }
            found = super::evidence::tshark(&file, wanted, fields);
            Ok(found.len() == count)
        };
        let waited = interrupt::until("the evidence of the alert", PATIENCE, is_cut);
        waited.unwrap_or_else(|error| panic!("{error}: {found:?}, {said}"));
    };
    cut(7, "vxlan && udp.dstport == 7001", &["vxlan.vni"], 1);
    // Each piece is there as it was held, and as it went on, and the last whole for the alert.
    cut(8, "ip.frag_offset > 0 || ip.flags.mf == 1", &["ip.frag_offset"], 7);
    let status = gateways.status(Side::A).unwrap();
    for alert in events(&eve_file(lab.folder())) {
        if alert["event_type"] == "alert" {
            assert_eq!(alert["in_iface"], status["pairs"][0]["wire"]["interface"], "{alert:#}");
            assert_eq!(alert["ip_v"], 4, "{alert:#}");
        }
    }
    drop(gateways);
}

#[test]
fn rules_judge_what_comes_out_of_a_tunnel_and_watch_only_tells() {
    let Some(Stand { _turn, lab }) = stand("rules_judge_tunnels") else { return };
    let gateways = sealing_gateways(&lab, &sealed());
    let before = std::fs::read_to_string(lab.folder().join("gw-a.toml")).unwrap();
    let rules = detection_tables(&lab).unwrap();
    let watch = rules.clone() + "mode = \"watch\"\n";
    gateways.add_tables(&lab, Side::A, &watch).unwrap();
    for kind in [Kind::BenignTcp, Kind::AttackRdma, Kind::RdmaRead] {
        assert!(send(&lab, kind).is_exact(), "{}", kind.name());
    }
    let is_told = || Ok(alerts(&lab, 1_000_002, "allowed") > 0);
    interrupt::until("alert of what would be dropped", PATIENCE, is_told).unwrap();
    configure(&lab, Side::A, &before).unwrap();
    gateways.add_tables(&lab, Side::A, &rules).unwrap();
    attacks_stop_and_their_twins_arrive(&lab, &gateways);
}

/// Hears EVE at a socket, one connection after the other.
const HEAR: &str = "\
import os, socket, sys
path, out = sys.argv[1:]
if os.path.exists(path):
    os.unlink(path)
listener = socket.socket(socket.AF_UNIX)
listener.bind(path)
listener.listen(1)
with open(out, 'ab', 0) as heard:
    while True:
        connection, _ = listener.accept()
        while data := connection.recv(65536):
            heard.write(data)
";

/// Sends a message of ICMP that is of no known type.
const ODD: &str = "\
import socket, sys
kind = socket.getprotobyname('icmp')
sending = socket.socket(socket.AF_INET, socket.SOCK_RAW, kind)
sending.sendto(bytes([200, 0]) + bytes(6), (sys.argv[1], 0))
";

#[test]
fn eve_goes_to_whoever_listens_at_a_socket_and_tells_what_is_odd() {
    let Some(Stand { _turn, lab }) = stand("eve_goes_to_a_socket") else { return };
    let path = |name: &str| lab.folder().join(name).display().to_string();
    let rule = "drop icmp any any -> any any (msg:\"odd\"; itype:200; sid:7;)\n";
    std::fs::write(path("odd.rules"), rule).unwrap();
    let tables_of_a = format!(
        "\n[rules]\npaths = [\"{}\"]\neve = \"unix:{}\"\neve_anomalies = true\n",
        path("odd.rules"),
        path("eve.sock")
    );
    let setup = Setup { tables_of_a, ..Setup::new(WEIR, Protection::Plain) };
    let gateways = Gateways::start(&lab, &setup).unwrap();
    wait_until_it_flows(&lab);
    let target = lab.host_v4(Side::A).to_string();
    let send_odd = || {
        let mut command = lab.host(Side::B).command("python3");
        process::run(command.args(["-c", ODD, &target]), PATIENCE).unwrap().success("odd").unwrap();
    };
    let hear = |name: &str| {
        let mut command = Command::new("python3");
        Running::start(command.args(["-c", HEAR, &path("eve.sock"), &path(name)])).unwrap()
    };
    let heard = |name: &str, kind: &str| -> Vec<Value> {
        let text = std::fs::read_to_string(path(name)).unwrap_or_default();
        let events = text.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
        events.filter(|it| it["event_type"] == kind).collect()
    };
    // Kernels send odd things too, such as reports of multicast listeners.
    let odd = |name: &str| {
        let mut odd = heard(name, "anomaly").into_iter();
        odd.find(|it| it["anomaly"]["event"] == "decoder.icmpv4.unknown_type")
    };
    // Each time nobody listens yet.
    for (count, name) in [(1, "first"), (2, "second")] {
        send_odd();
        let listener = hear(name);
        let both = || Ok(!heard(name, "drop").is_empty() && odd(name).is_some());
        interrupt::until("a drop and an anomaly", PATIENCE, both).unwrap();
        let odd = odd(name).unwrap();
        assert_eq!(
            (&odd["anomaly"]["type"], &odd["dest_ip"]),
            (&"decode".into(), &target.clone().into())
        );
        assert_eq!(odd["flow_id"], heard(name, "alert")[0]["flow_id"], "{odd:#}");
        let is_counted = || {
            let status = gateways.status(Side::A)?;
            let anomalies = number(&status, "/pairs/0/detection/anomalies");
            Ok(number(&status, "/alerts/written") == count && anomalies >= count)
        };
        interrupt::until("counts of both", PATIENCE, is_counted).unwrap();
        listener.stop(Signal::TERM).unwrap();
    }
    // Pings in pieces, there and back.
    let mut pieces = lab.host(Side::B).command("ping");
    pieces.args(["-q", "-n", "-c", "2", "-i", "0.2", "-s", "30000", "-M", "dont", &target]);
    process::run(&mut pieces, PATIENCE).unwrap().success("pings in pieces").unwrap();
    let put_together = || {
        let status = gateways.status(Side::A)?;
        Ok(number(&status, "/pairs/0/inside/assembled") >= 4)
    };
    interrupt::until("datagrams put together", PATIENCE, put_together).unwrap();
    let mut command = Command::new(WEIR);
    command.args(["status", NAMES[0], "--run-dir"]).arg(run_folder(&lab, Side::A));
    let table = process::run(&mut command, PATIENCE).unwrap().stdout;
    assert!(table.contains("datagrams put together"), "{table}");
}

/// What a program of host B's gets when it asks host A: the error's name, or `OK`.
const ASK: &str = "\
import errno, socket, sys
kind = socket.SOCK_STREAM if sys.argv[1] == 'tcp' else socket.SOCK_DGRAM
asking = socket.socket(socket.AF_INET, kind)
asking.settimeout(3)
try:
    asking.connect((sys.argv[2], int(sys.argv[3])))
    asking.send(b'word')
    asking.recv(1)
    print('OK')
except socket.timeout:
    print('TIMEOUT')
except OSError as error:
    print(errno.errorcode[error.errno])
";

#[test]
fn who_is_rejected_by_a_rule_is_told_at_once() {
    let Some(Stand { _turn, lab }) = stand("who_is_rejected_by_a_rule") else { return };
    let gateways = sealing_gateways(&lab, &sealed());
    let rules = "\
        reject tcp any any -> any 8080 (msg:\"no web\"; flags:S; sid:1;)\n\
        reject udp any any -> any 9999 (msg:\"no discard\"; sid:2;)\n\
        reject rdma any any -> any any (msg:\"no atomics\"; rdma.opcode:atomic; sid:3;)\n";
    let path = lab.folder().join("reject.rules");
    std::fs::write(&path, rules).unwrap();
    let tables = format!("\n[rules]\npaths = [\"{}\"]\n", path.display());
    let asked = |kind: &str, port: &str| {
        let mut command = lab.host(Side::B).command("python3");
        command.args(["-c", ASK, kind, &lab.host_v4(Side::A).to_string(), port]);
        process::run(&mut command, PATIENCE).unwrap().stdout.trim().to_owned()
    };
    let mut web = lab.host(Side::A).command("python3");
    let web = Running::start(web.args(["-m", "http.server", "8080"])).unwrap();
    let listens = || Ok(asked("tcp", "8080") != "ECONNREFUSED");
    interrupt::until("listener", PATIENCE, listens).unwrap();
    gateways.add_tables(&lab, Side::A, &tables).unwrap();
    assert_eq!(asked("tcp", "8080"), "ECONNREFUSED", "a reset");
    assert_eq!(asked("udp", "9999"), "EHOSTUNREACH", "administratively prohibited");
    // READs show who is the other of the pair; atomics are then answered in its name.
    assert!(send(&lab, Kind::RdmaRead).is_exact());
    let answered = send(&lab, Kind::AttackRdma);
    assert_eq!((answered.intact, answered.altered), (0, FRAMES as u64), "{answered:?}");
    web.stop(Signal::TERM).unwrap();
}

/// Hosts on the gateway's machine leave checksums to adapters that there are none of. Packet
/// sockets say so; AF_XDP does not, and finishes them. Loss has the sender repeat itself.
#[test]
fn nothing_that_hosts_send_each_other_is_left_out_of_its_stream() {
    let Some(Stand { _turn, lab }) = stand("nothing_is_left_out_of_its_stream") else { return };
    let path = lab.folder().join("stream.rules");
    let rule = "alert tcp any any -> any any (flow:established; content:\"never\"; sid:1;)\n";
    std::fs::write(&path, rule).unwrap();
    for (driver, workers, loses) in [("packet", 1, false), ("packet", 3, true), ("xdp", 1, true)] {
        let setup = Setup {
            driver: Some(driver.to_owned()),
            pair_lines: format!("workers = {workers}\n"),
            tables_of_a: format!("\n[rules]\npaths = [\"{}\"]\n", path.display()),
            ..Setup::new(WEIR, Protection::Plain)
        };
        let gateways = Gateways::start(&lab, &setup).unwrap();
        wait_until_it_flows(&lab);
        const LEN: usize = 1 << 23;
        if loses {
            lose_at_both_hosts(&lab);
        }
        assert_eq!(tcp::transfer(&lab, LEN).unwrap(), LEN as u64, "{driver}");
        let status = gateways.status(Side::A).unwrap();
        assert!(number(&status, "/pairs/0/detection/packets") > 0, "{driver}: {status:#}");
        assert_eq!(number(&status, "/pairs/0/detection/wrong_checksums"), 0, "{driver}");
        assert_eq!(number(&status, "/pairs/0/detection/unacceptable_segments"), 0, "{driver}");
    }
}

/// One packet of 50 is lost, behind the gateways, where it arrives.
fn lose_at_both_hosts(lab: &Lab) {
    let rule = "flush ruleset; add table netdev loss; add chain netdev loss in { type filter hook \
                ingress device eth0 priority 0; }; \
                add rule netdev loss in numgen random mod 50 == 0 drop";
    for side in [Side::A, Side::B] {
        lab.host(side).run(&format!("nft {rule}")).unwrap();
    }
}

/// Rules of others, as many as a SOC has, changed under a stream that `ping` counts.
#[test]
fn thirty_thousand_rules_are_changed_without_a_packet_lost() {
    let Some(Stand { _turn, lab }) = stand("thirty_thousand_rules") else { return };
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/rules");
    if !folder.exists() {
        return println!("SKIPPED thirty_thousand_rules: no {}", folder.display());
    }
    let extra = lab.folder().join("extra.rules");
    std::fs::write(&extra, "alert ip any any -> any any (ttl:1; sid:9000001;)\n").unwrap();
    let table = format!("\n[rules]\npaths = [{folder:?}, {extra:?}]\nmode = \"watch\"\n");
    let setup = Setup { tables_of_a: table, ..Setup::new(WEIR, Protection::Plain) };
    let gateways = Gateways::start(&lab, &setup).unwrap();
    wait_until_it_flows(&lab);
    let peak_kib = || {
        let id = gateways.process_ids()[0];
        let status = std::fs::read_to_string(format!("/proc/{id}/status")).unwrap();
        let line = status.lines().find(|line| line.starts_with("VmHWM")).unwrap();
        line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap()
    };
    let status = wait_status(&gateways, Side::A, |_| true);
    let (count, before) = (number(&status, "/pairs/0/detection/rules"), peak_kib());
    assert!(count > 20_000, "{count}");
    let (from, to) = (lab.host(Side::B), lab.host_v4(Side::A).to_string());
    let lost = std::thread::scope(|scope| {
        let stream = scope.spawn(|| ping_all_every(Duration::from_millis(2), from, &to, 5000, 56));
        let more = "alert ip any any -> any any (ttl:2; sid:9000002;)\n";
        let text = std::fs::read_to_string(&extra).unwrap() + more;
        std::fs::write(&extra, text).unwrap();
        let id = Pid::from_raw(gateways.process_ids()[0].cast_signed()).unwrap();
        rustix::process::kill_process(id, Signal::HUP).unwrap();
        let has_more = |it: &Value| number(it, "/pairs/0/detection/rules") == count + 1;
        wait_status_within(&gateways, Side::A, 120, has_more);
        let report = stream.join().unwrap().unwrap();
        report.sent - report.answered
    });
    assert_eq!(lost, 0, "packets lost by a reload");
    let after = peak_kib();
    // Both sets are there for a moment, and the text of one.
    assert!(after < before * 5 / 2, "{before} KiB before, {after} KiB at most in between");
}

#[test]
fn a_set_that_rules_fill_goes_on_over_a_reload_and_a_restart() {
    let Some(Stand { _turn, lab }) = stand("a_set_that_rules_fill") else { return };
    let path = |name: &str| lab.folder().join(name).display().to_string();
    let fill = "alert icmp any any -> any any (itype:8; ip.dst; \
                dataset:set,ends,type ipv4,state ends.lst; sid:7;)\n";
    let every = |sid: u32| format!("alert icmp any any -> any any (itype:8; sid:{sid};)\n");
    std::fs::write(path("set.rules"), fill).unwrap();
    let tables_of_a = format!(
        "\n[rules]\npaths = [\"{}\"]\neve = \"{}\"\n",
        path("set.rules"),
        eve_file(lab.folder()).display()
    );
    let setup = Setup { tables_of_a, ..Setup::new(WEIR, Protection::Plain) };
    let mut gateways = Gateways::start(&lab, &setup).unwrap();
    wait_until_it_flows(&lab);
    let is_told = || Ok(alerts(&lab, 7, "allowed") == 1);
    interrupt::until("the set's first value", PATIENCE, is_told).unwrap();
    // With other rules what is in the set is in it, and the next ping nothing new.
    std::fs::write(path("set.rules"), fill.to_owned() + &every(8)).unwrap();
    gateways.add_tables(&lab, Side::A, "").unwrap();
    wait_until_it_flows(&lab);
    let is_told = || Ok(alerts(&lab, 8, "allowed") > 0);
    interrupt::until("an alert of the other rules", PATIENCE, is_told).unwrap();
    assert_eq!(alerts(&lab, 7, "allowed"), 1);
    gateways.end(Side::A, Signal::TERM).unwrap();
    let kept = lab.folder().join("state").join(NAMES[0]);
    let kept = kept.join(format!("datasets-{}", NAMES[0])).join("ends.lst");
    let target = lab.host_v4(Side::B).to_string();
    assert_eq!(std::fs::read_to_string(kept).unwrap(), target + "\n");
    std::fs::write(path("set.rules"), fill.to_owned() + &every(9)).unwrap();
    gateways.start_again(&lab, &setup, Side::A).unwrap();
    wait_until_it_flows(&lab);
    let is_told = || Ok(alerts(&lab, 9, "allowed") > 0);
    interrupt::until("an alert after the restart", PATIENCE, is_told).unwrap();
    assert_eq!(alerts(&lab, 7, "allowed"), 1);
}

/// Hears events at a TCP port, one connection after the other, each to its end.
const HEAR_TCP: &str = "\
import socket, sys
listener = socket.create_server(('127.0.0.1', int(sys.argv[1])))
with open(sys.argv[2], 'ab', 0) as heard:
    while True:
        connection, _ = listener.accept()
        with connection:
            while data := connection.recv(65536):
                heard.write(data)
";

/// Each time the gateway ends as soon as the ping is through that made the alert.
#[test]
fn what_was_told_last_before_a_stop_reaches_file_store_and_sink() {
    let Some(Stand { _turn, lab }) = stand("what_was_told_last") else { return };
    let path = |name: &str| lab.folder().join(name).display().to_string();
    let rule = "alert icmp any any -> any any (msg:\"ping\"; itype:8; dsize:>300; sid:7;)\n";
    std::fs::write(path("ping.rules"), rule).unwrap();
    let tables_of_a = format!(
        "\n[rules]\npaths = [\"{}\"]\neve = \"{}\"\n\n[store]\nsize_mib = 16\n\n\
         [[sink]]\nto = \"tcp://127.0.0.1:5514\"\nformat = \"eve\"\n",
        path("ping.rules"),
        eve_file(lab.folder()).display()
    );
    let setup = Setup { tables_of_a, ..Setup::new(WEIR, Protection::Plain) };
    let mut up = lab.gateway(Side::A).command("ip");
    process::run(up.args(["link", "set", "lo", "up"]), PATIENCE).unwrap();
    let mut listener = lab.gateway(Side::A).command("python3");
    let listener = Running::start(listener.args(["-c", HEAR_TCP, "5514", &path("heard")])).unwrap();
    let heard = |kind: &str, wanted: &dyn Fn(&Value) -> bool| {
        let events = events(path("heard").as_ref()).into_iter();
        events.filter(|it| it["event_type"] == kind && wanted(it)).count()
    };
    let mut gateways = Gateways::start(&lab, &setup).unwrap();
    let target = lab.host_v4(Side::B).to_string();
    for round in 1..=4 {
        wait_until_it_flows(&lab);
        assert_eq!(ping(lab.host(Side::A), &target, 1, 400).unwrap().answered, 1);
        gateways.end(Side::A, Signal::TERM).unwrap();
        assert_eq!(alerts(&lab, 7, "allowed"), round, "in the file");
        let mut command = Command::new(WEIR);
        command.args(["alerts", "--json", "--sid", "7", "--store"]);
        command.arg(lab.folder().join("state").join(NAMES[0]).join("store"));
        let said = process::run(&mut command, PATIENCE).unwrap().stdout;
        let stored: Value = serde_json::from_str(&said).unwrap();
        assert_eq!(stored.as_array().unwrap().len(), round, "in the store: {said}");
        let is_told = || {
            let told = heard("alert", &|it| it["alert"]["signature_id"] == 7);
            Ok(told == round && heard("gateway", &|it| it["what"] == "stop") == round)
        };
        interrupt::until("the alert and the stop at the sink", PATIENCE, is_told).unwrap();
        // All call it by the same number, which none before had.
        let mut numbers: Vec<u64> =
            stored.as_array().unwrap().iter().map(|it| it["number"].as_u64().unwrap()).collect();
        numbers.sort_unstable();
        assert_eq!(alert_ids(&eve_file(lab.folder()), 7), numbers, "in the file");
        assert_eq!(alert_ids(path("heard").as_ref(), 7), numbers, "at the sink");
        numbers.dedup();
        assert_eq!(numbers.len(), round);
        gateways.start_again(&lab, &setup, Side::A).unwrap();
    }
    listener.stop(Signal::TERM).unwrap();
}
