//! `weir rules check` and `weir read --rules` as their user meets them: the real binary, rules and
//! captures in files.

use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use serde_json::Value;
use weir_wire::checksum::pseudo_header_v4;

const RULES: &str = "\
drop rdma any any -> any any (msg:\"READ\"; rdma.opcode:read_request; \
    classtype:policy; sid:1; rev:3;)
alert udp any any -> any 53 (msg:\"a word\"; content:\"word\"; metadata:kind test; \
    classtype:bad-unknown; sid:2;)
alert udp any any -> any any (content:\"word\"; no.such.keyword; sid:3;)
#alert udp any any -> any any (content:\"word\"; sid:4;)
";

fn weir(arguments: &[&str], paths: &[&Path]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_weir"));
    command.args(arguments).args(paths).output().expect("weir runs")
}

/// A capture of Ethernet frames, a second apart.
fn capture(frames: &[Vec<u8>]) -> Vec<u8> {
    let mut file = vec![0xd4, 0xc3, 0xb2, 0xa1, 2, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    file.extend(0x40000_u32.to_le_bytes());
    file.extend(1_u32.to_le_bytes());
    for (index, frame) in frames.iter().enumerate() {
        file.extend((1_700_000_000 + index as u32).to_le_bytes());
        file.extend(250_000_u32.to_le_bytes());
        file.extend((frame.len() as u32).to_le_bytes().repeat(2));
        file.extend(frame);
    }
    file
}

fn datagram(port: u16, payload: &[u8]) -> Vec<u8> {
    let mut frame = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 8, 0, 0x45, 0];
    frame.extend((28 + payload.len() as u16).to_be_bytes());
    frame.extend([0, 1, 0x40, 0, 64, 17, 0, 0, 192, 0, 2, 1, 192, 0, 2, 2, 0xc0, 0]);
    frame.extend(port.to_be_bytes());
    frame.extend((8 + payload.len() as u16).to_be_bytes());
    frame.extend([0, 0]);
    frame.extend(payload);
    frame
}

fn read_request() -> Vec<u8> {
    let mut packet = vec![0x0c, 0, 0xff, 0xff, 0, 0, 0, 7, 0x80, 0, 0, 9];
    packet.extend([0, 0, 0, 0, 0, 0, 0x10, 0, 0, 0, 0x12, 0x34, 0, 0, 0, 64, 0, 0, 0, 0]);
    datagram(4791, &packet)
}

#[test]
fn rules_that_do_not_run_are_counted_by_the_keyword_that_stops_them() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("a.rules"), RULES).unwrap();
    let output = weir(&["rules", "check", "--json"], &[folder.path()]);
    assert_eq!(output.status.code(), Some(1));
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    let expected = serde_json::json!({
        "rules": 4, "enabled": 3, "runnable": 2, "refused": 1,
        "by_keyword": {"no.such.keyword": 1},
    });
    assert_eq!(report, expected);
    let text = weir(&["rules", "check"], &[folder.path()]);
    let text = String::from_utf8(text.stdout).unwrap();
    assert!(text.contains("a.rules:3: sid 3: no.such.keyword"), "{text}");
    assert!(text.contains("3 enabled, 2 run (66.6 %)"), "{text}");
}

#[test]
fn alerts_of_a_capture_are_written_as_eve() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    fs::write(path("a.rules"), RULES).unwrap();
    let frames = [datagram(53, b"a word"), read_request(), datagram(54, b"a word")];
    fs::write(path("a.pcap"), capture(&frames)).unwrap();
    fs::write(path("classification.config"), "config classification: policy,Against policy,1\n")
        .unwrap();
    let (eve, rules) = (path("eve.json"), folder.path().to_str().unwrap().to_owned());
    let output = weir(
        &["read", "--rules", &rules, "--eve", eve.to_str().unwrap(), "--json"],
        &[&path("a.pcap")],
    );
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(
        (&report["packets"], &report["alerts"], &report["dropped"]),
        (&3.into(), &2.into(), &1.into())
    );
    let text = fs::read_to_string(eve).unwrap();
    let events: Vec<Value> = text.lines().map(|it| serde_json::from_str(it).unwrap()).collect();
    let kinds: Vec<&Value> = events.iter().map(|it| &it["event_type"]).collect();
    assert_eq!(kinds, ["alert", "alert", "drop", "flow", "flow", "flow", "stats"]);
    let told = path("few.json");
    let few = |kinds: &str| {
        let arguments = ["read", "--rules", &rules, "--types", kinds, "--eve"];
        let output =
            weir(&[&arguments[..], &[told.to_str().unwrap()]].concat(), &[&path("a.pcap")]);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let text = fs::read_to_string(&told).unwrap();
        let kind = |it: &str| serde_json::from_str::<Value>(it).unwrap()["event_type"].clone();
        text.lines().map(kind).collect::<Vec<_>>()
    };
    assert_eq!(few("alert"), ["alert", "alert", "drop"]);
    assert_eq!(few("dns,stats"), ["alert", "alert", "drop", "stats"]);
    let [word, read, drop, ..] = events.as_slice() else { panic!("three events: {text}") };
    assert_eq!(word["timestamp"], "2023-11-14T22:13:20.250000+0000");
    assert_eq!((&word["src_ip"], &word["dest_port"]), (&"192.0.2.1".into(), &53.into()));
    assert_eq!(word["alert"]["action"], "allowed");
    assert_eq!(word["alert"]["category"], "Potentially Bad Traffic");
    assert_eq!(word["alert"]["severity"], 2);
    assert_eq!(word["alert"]["metadata"]["kind"], serde_json::json!(["test"]));
    assert_eq!(word["flow"]["pkts_toserver"], 1);
    assert_eq!(read["alert"]["action"], "blocked");
    assert_eq!(read["alert"]["signature_id"], 1);
    assert_eq!(read["alert"]["rev"], 3);
    assert_eq!(read["alert"]["category"], "Against policy");
    assert_eq!(read["alert"]["severity"], 1);
    assert_eq!(read["rdma"]["operation"], "RC RDMA READ Request");
    assert_eq!((&read["rdma"]["rkey"], &read["rdma"]["length"]), (&0x1234.into(), &64.into()));
    assert_eq!(drop["drop"]["reason"], "rules");
}

#[test]
fn lists_of_addresses_are_variables_and_reputations_are_named_by_a_suricata_yaml() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    let put = |name: &str, text: &str| fs::write(path(name), text).unwrap();
    let word = |name: &str| path(name).to_str().unwrap().to_owned();
    put(
        "a.rules",
        "drop ip $DROP any -> any any (msg:\"listed\"; sid:1;)\n\
         drop ip [$DROP,!192.0.2.1] any -> any any (msg:\"excepted\"; sid:2;)\n\
         alert udp any any -> any any (iprep:src,CnC,>,30; sid:3;)\n\
         alert udp any any -> any any (iprep:dst,CnC,>,30; sid:4;)\n",
    );
    put("drop.txt", "; Spamhaus DROP List\n192.0.2.0/31 ; SBL1\nrubbish\n");
    put("categories.txt", "1,CnC,servers of botnets\n");
    put("hosts.list", "192.0.2.1,1,100\n");
    put(
        "weir.yaml",
        "reputation-categories-file: categories.txt\nreputation-files:\n - hosts.list\n",
    );
    fs::write(path("a.pcap"), capture(&[datagram(53, b"a")])).unwrap();
    let (list, yaml) = (format!("DROP={}", word("drop.txt")), word("weir.yaml"));
    let known = ["--list", &list, "--variables", &yaml];
    let checked = weir(&[&["rules", "check"][..], &known].concat(), &[&path("a.rules")]);
    assert!(checked.status.success(), "{checked:?}");
    let warned = String::from_utf8(checked.stderr).unwrap();
    assert!(warned.contains("1 lines of") && warned.contains("name no address"), "{warned}");
    let (rules, eve) = (word("a.rules"), word("eve.json"));
    let read = ["read", "--types", "alert", "--rules", &rules, "--eve", &eve];
    let output = weir(&[&read[..], &known].concat(), &[&path("a.pcap")]);
    assert!(output.status.success(), "{output:?}");
    let text = fs::read_to_string(path("eve.json")).unwrap();
    let events = text.lines().map(|it| serde_json::from_str::<Value>(it).unwrap());
    let alerts = events.filter(|it| it["event_type"] == "alert");
    let told: Vec<Value> = alerts.map(|it| it["alert"]["signature_id"].clone()).collect();
    assert_eq!(told, [1, 3]);
    // Without them these rules do not run, and it is said.
    let alone = weir(&["rules", "check", "--json"], &[&path("a.rules")]);
    let report: Value = serde_json::from_slice(&alone.stdout).unwrap();
    assert_eq!(report["runnable"], 0);
}

#[test]
fn what_rules_did_not_see_of_a_capture_is_said() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    fs::write(path("a.rules"), RULES).unwrap();
    let mut bytes = capture(&[datagram(53, b"a word"), datagram(54, b"a word")]);
    // The first packet was longer on the wire (the last field of its record's header), the second
    // ends with the file.
    let original = 24 + 12;
    bytes[original..original + 4].copy_from_slice(&1500u32.to_le_bytes());
    bytes.truncate(bytes.len() - 10);
    fs::write(path("a.pcap"), bytes).unwrap();
    let (eve, rules) = (path("eve.json"), path("a.rules"));
    let arguments = ["read", "--rules", rules.to_str().unwrap(), "--eve", eve.to_str().unwrap()];
    let output = weir(&arguments, &[&path("a.pcap")]);
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.starts_with("1 packets, "), "{text}");
    assert!(text.contains("1 packets stand in the captures in part alone"), "{text}");
    assert!(text.contains("1 packets were cut off"), "{text}");
    assert_eq!(output.status.code(), Some(1), "it was not read to its end");
    let output = weir(&["read"], &[&path("a.pcap")]);
    assert_eq!(output.status.code(), Some(1));
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.ends_with("a.pcap: it ends within a packet\n"), "{said}");
    let output = weir(&[&arguments[..], &["--json"]].concat(), &[&path("a.pcap")]);
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((&report["truncated"], &report["cut_records"]), (&1.into(), &1.into()));
}

/// A segment from that port whose checksum is left undone: the field holds what `checksum` says.
fn segment(port: u16, flags: u8, sequence: u32, checksum: u16, payload: &[u8]) -> Vec<u8> {
    let mut frame = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 8, 0, 0x45, 0];
    frame.extend((40 + payload.len() as u16).to_be_bytes());
    let (client, server) = ([192, 0, 2, 1], [192, 0, 2, 2]);
    let is_answer = port == 80;
    let (from, to) = if is_answer { (server, client) } else { (client, server) };
    frame.extend([0, 1, 0x40, 0, 64, 6, 0, 0]);
    frame.extend([from, to].concat());
    let ports = if is_answer { [80, 9000] } else { [port, 80] };
    frame.extend(ports.map(u16::to_be_bytes).concat());
    frame.extend(sequence.to_be_bytes());
    frame.extend([0, 0, 0, if is_answer { 101 } else { 201 }, 0x50, flags, 0x20, 0]);
    frame.extend(checksum.to_be_bytes());
    frame.extend([0, 0]);
    frame.extend(payload);
    frame
}

/// The pseudo header's sum, as a sender leaves it to its adapter.
fn unfinished(payload_len: u16) -> u16 {
    pseudo_header_v4([192, 0, 2, 1], [192, 0, 2, 2], 6, 20 + payload_len).folded()
}

#[test]
fn wrong_checksums_hide_an_attack_unless_they_are_unfinished_or_many() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    let rule = "alert tcp any any -> any any (flow:established; content:\"attack\"; sid:1;)";
    fs::write(path("a.rules"), rule).unwrap();
    let rules = path("a.rules").to_str().unwrap().to_owned();
    // `before` packets, and a connection whose checksums are those.
    let read = |before: u16, [of_head, of_data]: [u16; 2], more: &[&str]| -> [Value; 2] {
        let mut frames: Vec<Vec<u8>> =
            (0..before).map(|it| segment(10_000 + it, 2, 1, 1, b"")).collect();
        frames.push(segment(9000, 2, 100, of_head, b""));
        frames.push(segment(80, 0x12, 200, of_head, b""));
        frames.push(segment(9000, 0x10, 101, of_head, b""));
        frames.push(segment(9000, 0x18, 101, of_data, b"attack"));
        fs::write(path("a.pcap"), capture(&frames)).unwrap();
        let eve = path("eve.json");
        let usual = ["read", "--json", "--rules", &rules, "--eve", eve.to_str().unwrap()];
        let output = weir(&[&usual[..], more].concat(), &[&path("a.pcap")]);
        let report: Value = serde_json::from_slice(&output.stdout).unwrap();
        ["alerts", "wrong_checksums"].map(|it| report[it].clone())
    };
    let wrong = [1, 1];
    assert_eq!(read(0, wrong, &[]), [0, 4]);
    assert_eq!(read(0, wrong, &["--no-checksums"]), [1, 0]);
    assert_eq!(read(0, [unfinished(0), unfinished(6)], &[]), [1, 0]);
    assert_eq!(read(998, wrong, &[]), [0, 1000], "the connection has begun");
    assert_eq!(read(1000, wrong, &[]), [1, 1000]);
}

#[test]
fn where_no_rule_is_found_is_said_and_is_a_failure_if_there_is_none_at_all() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    fs::create_dir(path("empty")).unwrap();
    fs::write(path("comments.rules"), "# none yet\n\n").unwrap();
    fs::write(path("one.rules"), "\u{feff}alert ip any any -> any any (sid:1;)\n").unwrap();
    let check = |names: &[&str]| {
        let paths: Vec<_> = names.iter().map(|it| path(it)).collect();
        let paths: Vec<&Path> = paths.iter().map(|it| it.as_path()).collect();
        let output = weir(&["rules", "check"], &paths);
        let said = String::from_utf8(output.stderr).unwrap();
        (output.status.code(), said.matches("no rule was found in ").count())
    };
    assert_eq!(check(&["empty"]), (Some(1), 1));
    assert_eq!(check(&["comments.rules", "empty"]), (Some(1), 2));
    assert_eq!(check(&["one.rules", "empty"]), (Some(0), 1));
    assert_eq!(check(&["one.rules"]), (Some(0), 0), "a byte order mark is none of its text");
}

#[test]
fn refusals_say_what_is_not_supported_and_where_to_ask_for_it() {
    let folder = tempfile::tempdir().unwrap();
    let rules = folder.path().join("a.rules");
    let cases = [
        ("lua:x.lua", "lua: not supported: Weir runs no scripts"),
        ("http.uri; luaxform:x.lua; content:\"x\"", "luaxform: not supported: Weir runs no"),
        ("file.magic; content:\"x\"", "file.magic: not supported: "),
        ("igmp-csum:invalid", "igmp-csum: not supported: "),
        ("nonsense:1", "nonsense: this keyword is not known here"),
        ("decode-event:nonsense", "`decoder.nonsense` is not an event of Suricata 8.0.7"),
        ("geoip:any,US", "name one, --geoip here, `geoip` in [rules]"),
        ("pcre:\"/a(b/\"", "missing closing parenthesis"),
    ];
    let text: String = (1..)
        .zip(cases)
        .map(|(sid, (asks, _))| format!("alert ip any any -> any any ({asks}; sid:{sid};)\n"))
        .collect();
    fs::write(&rules, text).unwrap();
    let said = String::from_utf8(weir(&["rules", "check"], &[&rules]).stdout).unwrap();
    for ((asks, expected), line) in cases.iter().zip(said.lines()) {
        assert!(line.contains(expected), "{asks}: {line}");
    }
    assert!(!said.contains("at offset"), "of a pattern that nobody wrote: {said}");
}

#[test]
fn of_two_rules_with_one_number_each_is_told_of_the_other() {
    let folder = tempfile::tempdir().unwrap();
    let rules = folder.path().join("a.rules");
    let rule = |sid, rev| format!("alert ip any any -> any any (sid:{sid}; rev:{rev};)\n");
    let pairs = [(1, 1), (1, 1), (2, 2), (2, 1), (3, 1), (3, 2)];
    fs::write(&rules, pairs.map(|(sid, rev)| rule(sid, rev)).concat()).unwrap();
    let said = String::from_utf8(weir(&["rules", "check"], &[&rules]).stdout).unwrap();
    for expected in [
        "a.rules:2: sid 1: sid: sid 1 is also the rule's in ",
        "a.rules:1, of the same revision: the first runs\n",
        "a.rules:4: sid 2: sid: sid 2 is also the rule's in ",
        "a.rules:3, which is newer, and runs\n",
        "a.rules:5: sid 3: sid: sid 3 is also the rule's in ",
        "a.rules:6, which is newer, and runs\n",
    ] {
        assert!(said.contains(expected), "{expected}: {said}");
    }
}

#[test]
fn rules_that_cannot_be_read_are_named() {
    let output = weir(&["rules", "check", "/no/such.rules"], &[]);
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&output.stderr).contains("/no/such.rules"));
    let usage = weir(&["read", "--rules", "x", "y.pcap"], &[]);
    assert_eq!(usage.status.code(), Some(2), "--rules needs --eve");
}

#[test]
fn events_go_to_standard_output_by_themselves_and_refused_rules_are_told_of() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    fs::write(path("a.rules"), RULES).unwrap();
    fs::write(path("a.pcap"), capture(&[datagram(53, b"a word")])).unwrap();
    let rules = path("a.rules").to_str().unwrap().to_owned();
    let output = weir(&["read", "--rules", &rules, "--eve", "-"], &[&path("a.pcap")]);
    assert!(output.status.success() && !std::path::Path::new("-").exists());
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(!text.is_empty());
    text.lines().for_each(|it| drop(serde_json::from_str::<Value>(it).unwrap()));
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.contains("1 packets, "), "{said}");
    assert!(said.contains("1 of 3 rules do not run, by keyword: 1 no.such.keyword; the first: "));
    for more in ["--json", "--flows", "--conversations"] {
        let output = weir(&["read", "--rules", &rules, "--eve", "-", more], &[&path("a.pcap")]);
        assert_eq!(output.status.code(), Some(2), "{more}");
    }
    let output = weir(&["read", "--rules", &rules, "--eve", "-"], &[&path("no.pcap")]);
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(said.matches("No such file").count(), 1, "{said}");
}

#[test]
fn a_reader_that_goes_away_ends_a_command_quietly() {
    let folder = tempfile::tempdir().unwrap();
    let rules = folder.path().join("a.rules");
    fs::write(&rules, "alert ip any any -> any any (nobodys:1; sid:9;)\n".repeat(10_000)).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_weir"));
    command.args(["rules", "check"]).arg(rules);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    // Some rules do not run, whether or not anybody reads which.
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(String::from_utf8(output.stderr).unwrap(), "");
}

#[test]
fn where_nothing_can_be_said_the_exit_code_says_it() {
    for arguments in
        [&["rules", "check", "none.rules"][..], &["read", "none.pcap"], &["verify", "x"]]
    {
        let full = fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_weir"));
        let status = command.args(arguments).stdout(Stdio::null()).stderr(full).status().unwrap();
        assert_eq!(status.code(), Some(1), "{arguments:?}");
    }
}

#[test]
fn events_of_a_capture_are_told_without_rules_too() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.pcap");
    fs::write(&path, capture(&[datagram(53, b"a word")])).unwrap();
    let output = weir(&["read", "--eve", "-"], &[&path]);
    let events = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success() && events.contains("\"event_type\":\"flow\""), "{events}");
    assert!(!events.contains("\"event_type\":\"alert\""));
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.contains("0 of 0 rules run") && !said.contains("no rule runs"), "{said}");
}

#[test]
fn what_is_said_in_vain_is_told() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| fs::write(folder.path().join(name), text).unwrap();
    write("a.rules", "alert ip any any -> any any (flowbits:isset,never; sid:1;)\n");
    write("threshold.config", "suppress gen_id 1, sig_id 1\nsuppress gen_id 1, sig_id 7\n");
    let output = Command::new(env!("CARGO_BIN_EXE_weir"))
        .args(["rules", "check"])
        .arg(folder.path())
        .output()
        .unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.contains("threshold.config:2: no rule 1:7 runs; "), "{said}");
    assert!(said.contains("rule 1 asks for the flow bit `never`, which no rule sets; "), "{said}");
    assert_eq!((said.lines().count(), output.status.code()), (2, Some(0)), "{said}");
}

/// `weir rules check -`, with these rules.
fn check_from_input(arguments: &[&str], rules: &str) -> Output {
    let mut weir = Command::new(env!("CARGO_BIN_EXE_weir"));
    weir.args(["rules", "check", "-"]).args(arguments);
    let mut child = weir
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("weir runs");
    child.stdin.take().unwrap().write_all(rules.as_bytes()).unwrap();
    child.wait_with_output().unwrap()
}

#[test]
fn rules_are_taken_from_standard_input_and_quoted_no_longer_than_can_be_read() {
    let output = check_from_input(&["--json"], "alert udp any any -> any any (sid:1;)\n");
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((output.status.code(), &report["runnable"]), (Some(0), &1.into()), "{report}");
    let nested = format!("alert ip {} any -> any any (sid:1;)\n", "[".repeat(30_000));
    let output = check_from_input(&[], &nested);
    assert_eq!(output.status.code(), Some(1));
    assert!(output.stdout.len() < 1000, "{}", output.stdout.len());
}

#[test]
fn a_segment_in_pieces_has_no_wrong_checksum() {
    let whole = segment(9000, 0x18, 101, 0, b"twenty bytes and four...");
    let (head, body) = (&whole[..34], &whole[34..]);
    let pieces = body.chunks(16).zip(0_u8..).map(|(piece, number)| {
        let mut frame = [head, piece].concat();
        let more = if usize::from(number) * 16 + piece.len() < body.len() { 0x20 } else { 0 };
        frame[16..18].copy_from_slice(&(20 + piece.len() as u16).to_be_bytes());
        frame[20..22].copy_from_slice(&[more, 2 * number]);
        frame
    });
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    fs::write(path("a.rules"), "alert tcp any any -> any any (sid:1;)").unwrap();
    // The first ends within the header of TCP.
    fs::write(path("a.pcap"), capture(&pieces.take(1).collect::<Vec<_>>())).unwrap();
    let [rules, eve] = ["a.rules", "eve.json"].map(|it| path(it).to_str().unwrap().to_owned());
    let usual = ["read", "--json", "--rules", &rules, "--eve", &eve];
    let report: Value = serde_json::from_slice(&weir(&usual, &[&path("a.pcap")]).stdout).unwrap();
    assert_eq!(report["wrong_checksums"], 0, "{report}");
}

#[test]
fn of_a_flow_that_is_dropped_each_side_is_told_once() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    fs::write(path("a.rules"), "drop ip any any -> 192.0.2.2 any (sid:1;)").unwrap();
    fs::write(path("a.pcap"), capture(&vec![datagram(53, b"word"); 5])).unwrap();
    let [rules, eve] = ["a.rules", "eve.json"].map(|it| path(it).to_str().unwrap().to_owned());
    weir(&["read", "--rules", &rules, "--eve", &eve], &[&path("a.pcap")]);
    let text = fs::read_to_string(&eve).unwrap();
    let events = text.lines().map(|it| serde_json::from_str::<Value>(it).unwrap());
    let drops: Vec<Value> = events.filter(|it| it["event_type"] == "drop").collect();
    let reasons: Vec<&Value> = drops.iter().map(|it| &it["drop"]["reason"]).collect();
    assert_eq!(reasons, ["rules"], "{text}");
    assert!(drops[0]["community_id"].is_string(), "{}", drops[0]);
}
