//! `weir access` without a gateway: verdicts on captures, held against what tshark counts.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::Value;

const LINES: &str = "[gateway]\nname = \"gw\"\n\
    [[pair]]\nhost = \"h\"\nwire = \"w\"\ndefault = \"forward\"\n\
    [[access]]\nname = \"writes\"\noperations = \"write\"\naction = \"deny\"\n\
    [[access]]\nname = \"reads\"\noperations = \"read\"\naction = \"allow\"\n\
    [[access]]\nname = \"atomics\"\noperations = \"atomic\"\naction = \"would_deny\"\n\
    [[access]]\nname = \"writes-of-one\"\nfrom = \"10.0.0.1\"\noperations = \"write\"\n\
    action = \"allow\"\n";

fn configuration(test: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("access-{test}"));
    fs::create_dir_all(&folder).unwrap();
    let file = folder.join("gw.toml");
    fs::write(&file, LINES).unwrap();
    file
}

fn weir(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_weir")).arg("access").args(arguments).output().unwrap()
}

fn json(output: &Output) -> Value {
    let words = String::from_utf8_lossy(&output.stderr);
    serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {words}"))
}

/// The opcode of each packet, none for those that are not RDMA; `None`: there is no tshark.
fn opcodes_by_tshark(capture: &Path) -> Option<Vec<Option<u8>>> {
    let mut command = Command::new("tshark");
    command.arg("-r").arg(capture).args(["-T", "fields", "-e", "infiniband.bth.opcode"]);
    let said = command.output().ok()?;
    let lines = String::from_utf8(said.stdout).unwrap();
    Some(lines.lines().map(|line| line.trim().parse().ok()).collect())
}

#[test]
fn verdicts_on_captures_are_what_tshark_s_opcodes_demand() {
    let file = configuration("captures");
    let captures = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata/roce");
    let mut judged = 0;
    for capture in fs::read_dir(captures).unwrap().map(|it| it.unwrap().path()) {
        if capture.extension().is_none_or(|it| it != "pcap") {
            continue;
        }
        let Some(opcodes) = opcodes_by_tshark(&capture) else {
            eprintln!(
                "SKIPPED: verdicts_on_captures_are_what_tshark_s_opcodes_demand needs tshark"
            );
            return;
        };
        // RC and UC have these in their low five bits; the third bits are the service.
        let count = |of: &[u8]| {
            let is = |it: &&u8| of.contains(&(**it & 0x1f)) && **it >> 5 <= 1;
            opcodes.iter().flatten().filter(is).count() as u64
        };
        let (writes, starts) = (count(&[6, 7, 8, 9, 10, 11]), count(&[6, 10, 11]));
        let said = weir(&["test", file.to_str().unwrap(), capture.to_str().unwrap(), "--json"]);
        let said = json(&said);
        let line = |name: &str, key: &str| {
            let lines = said["lines"].as_array().unwrap();
            lines.iter().find(|line| line["name"] == name).unwrap()[key].as_u64().unwrap()
        };
        assert_eq!(said["packets"], opcodes.len() as u64, "{}", capture.display());
        assert_eq!(said["denied"], writes, "{}: {said:#}", capture.display());
        assert_eq!(said["allowed"], opcodes.len() as u64 - writes);
        assert_eq!((line("writes", "packets"), line("writes", "messages")), (writes, starts));
        assert_eq!(line("reads", "packets"), count(&[12]));
        assert_eq!(line("atomics", "packets"), count(&[19, 20]));
        assert_eq!(line("writes-of-one", "packets"), 0, "the first line decides");
        judged += 1;
    }
    assert!(judged > 3, "{judged} captures");
}

#[test]
fn explain_names_the_line_and_what_there_is_without_it() {
    let file = configuration("explain");
    let ask = |from: &str, op: &str| {
        let file = file.to_str().unwrap();
        weir(&["explain", file, "--from", from, "--to", "10.0.0.2", "--op", op, "--json"])
    };
    let write = ask("10.0.0.1", "write");
    assert_eq!(write.status.code(), Some(1), "it would be dropped");
    let said = json(&write);
    assert_eq!((&said["action"], &said["line"]), (&"deny".into(), &"writes".into()));
    assert_eq!(said["otherwise"]["line"], "writes-of-one");
    let send = ask("10.0.0.1", "send");
    assert_eq!(send.status.code(), Some(0));
    assert_eq!((&json(&send)["action"], &json(&send)["line"]), (&"allow".into(), &Value::Null));
    assert_eq!(ask("10.0.0.1", "scribble").status.code(), Some(2));
}

#[test]
fn check_names_the_line_that_another_contradicts() {
    let file = configuration("check");
    let said = weir(&["check", file.to_str().unwrap(), "--json"]);
    assert_eq!(said.status.code(), Some(1));
    let odd = json(&said);
    // Beside it, lines that do what the default does are told of.
    let is = |it: &&Value| it["is"] == "contradicted";
    let odd: Vec<&Value> = odd.as_array().unwrap().iter().filter(is).collect();
    assert_eq!(odd.len(), 1, "{odd:#?}");
    assert_eq!((&odd[0]["line"], &odd[0]["by"]), (&"writes-of-one".into(), &"writes".into()));
}

/// What the connection in `rc-write-rdmacm.pcap` was made for.
const SERVICE: &str = "tcp/18515";

/// A configuration of this pair, and these lines.
fn configured(test: &str, pair: &str, lines: &str) -> PathBuf {
    let file = configuration(test);
    let text = format!(
        "[gateway]\nname = \"gw\"\n[[pair]]\nhost = \"h\"\nwire = \"w\"\ndefault = \"forward\"\n\
         {pair}\n{lines}"
    );
    fs::write(&file, text).unwrap();
    file
}

/// What is denied of the capture of a WRITE over a connection that rdma_cm made.
fn denied_of_rdma_cm(file: &Path) -> [u64; 2] {
    let capture =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata/roce/rc-write-rdmacm.pcap");
    let said = json(&weir(&["test", file.to_str().unwrap(), capture.to_str().unwrap(), "--json"]));
    ["denied", "packets"].map(|key| said[key].as_u64().unwrap())
}

#[test]
fn a_connection_that_rdma_cm_made_passes_strict_state_and_its_service_is_known() {
    let strict = "access_state = \"strict\"";
    let line = |service: &str| {
        format!("[[access]]\nname = \"one\"\nservice = \"{service}\"\naction = \"allow\"")
    };
    assert_eq!(denied_of_rdma_cm(&configured("strict", strict, ""))[0], 0);
    let only = format!("{strict}\naccess_default = \"deny\"");
    assert_eq!(denied_of_rdma_cm(&configured("service", &only, &line(SERVICE)))[0], 0);
    let [denied, packets] = denied_of_rdma_cm(&configured("other", &only, &line("tcp/1")));
    assert!(denied > 0 && denied < packets, "{denied} of {packets}: answers to REQ pass");
}

#[test]
fn nothing_of_honest_hosts_is_taken_for_forged() {
    let file = configured("honest", "access_state = \"learn\"", "");
    let captures = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata/roce");
    let mut judged = 0;
    for capture in fs::read_dir(captures).unwrap().map(|it| it.unwrap().path()) {
        if capture.extension().is_some_and(|it| it == "pcap") {
            let said = weir(&["test", file.to_str().unwrap(), capture.to_str().unwrap(), "--json"]);
            let said = json(&said);
            assert_eq!(said["denied"], 0, "{}", capture.display());
            judged += said["packets"].as_u64().unwrap();
        }
    }
    assert!(judged > 400, "{judged} packets");
}

#[test]
fn terms_that_cannot_be_read_are_refused_with_their_place() {
    for (key, value) in
        [("service", "http"), ("expires", "soon"), ("hours", "8-18"), ("qp_type", "dc")]
    {
        let line = format!("[[access]]\nname = \"one\"\n{key} = \"{value}\"\naction = \"allow\"");
        let file = configured(&format!("refused-{key}"), "", &line);
        let said = weir(&["check", file.to_str().unwrap()]);
        assert_eq!(said.status.code(), Some(2), "{key}");
        let words = String::from_utf8_lossy(&said.stderr).into_owned();
        assert!(words.contains(value) && words.contains(":10:"), "{words}");
    }
}

#[test]
fn a_limit_denies_what_is_more_and_one_without_sense_is_refused() {
    let limited = |limit: &str, action: &str| {
        format!("[[access]]\nname = \"one\"\nlimit = {{ {limit} }}\naction = \"{action}\"")
    };
    let file = configured("limit", "", &limited("messages = 1", "allow"));
    assert!(denied_of_rdma_cm(&file)[0] > 0);
    let file = configured("wide", "", &limited("messages = 1000000", "allow"));
    assert_eq!(denied_of_rdma_cm(&file)[0], 0);
    for (limit, action) in [("messages = 0", "allow"), ("", "allow"), ("messages = 1", "deny")] {
        let file = configured("senseless", "", &limited(limit, action));
        let said = weir(&["check", file.to_str().unwrap()]);
        assert_eq!(said.status.code(), Some(2), "{limit} {action}");
    }
}

#[test]
fn learnt_lines_allow_what_was_seen_and_nothing_else() {
    let folder = configuration("learn").parent().unwrap().to_owned();
    let captures = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata/roce");
    let mut learnt = 0;
    for capture in fs::read_dir(&captures).unwrap().map(|it| it.unwrap().path()) {
        if capture.extension().is_none_or(|it| it != "pcap") {
            continue;
        }
        let lines = weir(&["learn", capture.to_str().unwrap()]);
        if !lines.status.success() {
            let words = String::from_utf8_lossy(&lines.stderr).into_owned();
            assert!(words.contains("nobody asks anything"), "{}: {words}", capture.display());
            continue;
        }
        let lines = String::from_utf8(lines.stdout).unwrap();
        let file = folder.join("learnt.toml");
        let head = "[gateway]\nname = \"gw\"\n[[pair]]\nhost = \"h\"\nwire = \"w\"\n\
                    default = \"forward\"\naccess_default = \"deny\"\n";
        fs::write(&file, format!("{head}{lines}")).unwrap();
        let test = |of: &Path| {
            let arguments = ["test", file.to_str().unwrap(), of.to_str().unwrap(), "--json"];
            json(&weir(&arguments))["denied"].as_u64().unwrap()
        };
        assert_eq!(test(&capture), 0, "{}:\n{lines}", capture.display());
        if capture.ends_with("rc-fetch-add.pcap") {
            assert!(lines.contains("atomic"), "{lines}");
            assert!(test(&captures.join("rc-write-rdmacm.pcap")) > 0, "{lines}");
        }
        learnt += 1;
    }
    assert!(learnt >= 3, "{learnt} captures");
    let _ = fs::remove_dir_all(folder);
}

/// Verdicts made by hand from tshark's opcodes: packets, denied, and of each line that decided,
/// messages and packets.
type ByHand = (&'static str, u64, u64, &'static [(&'static str, u64, u64)]);
const BY_HAND: [ByHand; 15] = [
    ("rc-compare-swap", 119, 0, &[("atomics", 40, 40)]),
    ("rc-fetch-add", 161, 0, &[("atomics", 60, 60)]),
    ("rc-read-mtu1024", 400, 40, &[("reads", 40, 40)]),
    ("rc-send-bidirectional", 132, 0, &[]),
    ("rc-send-mtu256", 572, 0, &[]),
    ("rc-write-8qp", 868, 640, &[("writes", 160, 640)]),
    ("rc-write-ipv6", 311, 240, &[("writes", 30, 240)]),
    ("rc-write-latency", 265, 120, &[("writes", 120, 120)]),
    ("rc-write-mtu1024", 1345, 1280, &[("writes", 20, 1280)]),
    ("rc-write-mtu4096", 381, 320, &[("writes", 20, 320)]),
    ("rc-write-rdmacm", 154, 40, &[("writes", 40, 40)]),
    ("rping-ipv6-cm", 133, 16, &[("writes", 8, 8), ("reads", 8, 8)]),
    ("uc-send-segmented", 389, 360, &[("uc-sends", 60, 360)]),
    ("uc-write-segmented", 400, 360, &[("writes", 60, 360)]),
    ("ud-send", 90, 60, &[("datagrams", 60, 60)]),
];

#[test]
fn verdicts_on_shared_captures_are_those_of_a_table_made_by_hand() {
    let captures = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/captures");
    if !captures.is_dir() {
        eprintln!("SKIPPED: verdicts_on_shared_captures_are_those_of_a_table_made_by_hand");
        return;
    }
    let line = |name: &str, rest: &str| format!("[[access]]\nname = \"{name}\"\n{rest}\n");
    let lines = [
        line("writes", "operations = \"write\"\naction = \"deny\""),
        line("reads", "operations = \"read\"\naction = \"reject\""),
        line("atomics", "operations = \"atomic\"\naction = \"would_deny\""),
        line("uc-sends", "operations = [\"send\"]\nqp_type = \"uc\"\naction = \"deny\""),
        line("datagrams", "operations = [\"send\"]\nqp_type = \"ud\"\naction = \"deny\""),
    ];
    let file = configured("by-hand", "", &lines.concat());
    for (name, packets, denied, deciding) in BY_HAND {
        let capture = captures.join(format!("{name}.pcap"));
        let arguments = ["test", file.to_str().unwrap(), capture.to_str().unwrap(), "--json"];
        let said = json(&weir(&arguments));
        let counted = ["packets", "denied", "allowed"].map(|key| said[key].as_u64().unwrap());
        assert_eq!(counted, [packets, denied, packets - denied], "{name}: {said:#}");
        let decided: Vec<_> = said["lines"]
            .as_array()
            .unwrap()
            .iter()
            .filter_map(|it| {
                let [messages, packets] =
                    ["messages", "packets"].map(|key| it[key].as_u64().unwrap());
                let name = it["name"].as_str().unwrap();
                (packets > 0 && name != "default").then_some((name.to_owned(), messages, packets))
            })
            .collect();
        let deciding: Vec<_> = deciding.iter().map(|it| (it.0.to_owned(), it.1, it.2)).collect();
        assert_eq!(decided, deciding, "{name}");
    }
}

#[test]
fn a_group_has_members_from_a_file_and_peers_and_is_refused_when_empty() {
    let group = "[[peer]]\nname = \"gw-b\"\nmode = \"ethernet\"\nencapsulation = \"udp\"\n\
        endpoint = \"192.0.2.2\"\nprotects = [\"10.9.0.0/24\"]\n\
        seal = { spi = 0x1000, cipher = \"aes-256-gcm\", key_file = \"a\" }\n\
        open = { spi = 0x1010, cipher = \"aes-256-gcm\", key_file = \"b\" }\n\
        [[group]]\nname = \"many\"\nmembers = [\"peer:gw-b\", \"02:77:00:00:00:0a\"]\n\
        members_file = \"many.txt\"\n\
        [[access]]\nname = \"one\"\nfrom = \"many\"\naction = \"deny\"\n";
    let pair = "address = \"192.0.2.1/24\"\n";
    let file = configured("group", pair, group);
    let members = file.parent().unwrap().join("many.txt");
    let explain = |from: &str, rest: &[&str]| {
        let file = file.to_str().unwrap();
        let mut arguments = vec!["explain", file, "--from", from, "--to", "10.1.0.1"];
        arguments.extend(["--op", "write", "--json"]);
        arguments.extend(rest);
        let said = weir(&arguments);
        (said.status.code(), String::from_utf8_lossy(&said.stderr).into_owned())
    };
    fs::write(&members, "# storage\n10.0.0.0/28\n\n10.0.7.1  # the loader\nfd00::7\n").unwrap();
    for from in ["10.0.0.3", "10.0.7.1", "fd00::7", "10.9.0.200"] {
        assert_eq!(explain(from, &[]).0, Some(1), "{from}: {}", explain(from, &[]).1);
    }
    assert_eq!(explain("10.0.7.2", &[]).0, Some(0));
    let macs = ["--macs", "02:77:00:00:00:0a", "02:77:00:00:00:0b"];
    assert_eq!(explain("10.0.7.2", &macs).0, Some(1));
    // Read again at each reload; one wrong line, and all is refused.
    fs::write(&members, "10.0.7.2\n").unwrap();
    assert_eq!(explain("10.0.7.2", &[]).0, Some(1));
    fs::write(&members, "10.0.7.2\n10.0.7.300\n").unwrap();
    let (code, words) = explain("10.0.7.2", &[]);
    assert!(code == Some(2) && words.contains("many.txt, line 2"), "{words}");
    fs::remove_file(&members).unwrap();
    assert_eq!(explain("10.0.7.2", &[]).0, Some(2));
    let empty = "[[group]]\nname = \"none\"\nmembers_file = \"none.txt\"\n";
    let file = configured("empty", "", empty);
    fs::write(file.parent().unwrap().join("none.txt"), "# nobody\n").unwrap();
    let said = weir(&["check", file.to_str().unwrap()]);
    assert_eq!(said.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&said.stderr).contains("has no members"));
}

#[test]
fn explain_says_what_would_change_the_verdict() {
    let lines = "[[access]]\nname = \"nvme\"\nto = \"10.0.0.1\"\nservice = \"nvme-of\"\n\
        action = \"allow\"\n\
        [[access]]\nname = \"tenant\"\nto = \"10.0.0.1\"\nvlan = 100\naction = \"allow\"\n\
        [[access]]\nname = \"partition\"\nto = \"10.0.0.1\"\np_key = 0x8005\naction = \"allow\"\n\
        [[access]]\nname = \"far\"\nto = \"10.0.0.9\"\nvlan = [7, 8]\naction = \"allow\"\n";
    let file = configured("change", "access_default = \"deny\"", lines);
    let ask = |rest: &[&str]| {
        let mut arguments = vec!["explain", file.to_str().unwrap(), "--from", "10.1.0.7"];
        arguments.extend(["--to", "10.0.0.1", "--op", "write", "--json"]);
        arguments.extend(rest);
        json(&weir(&arguments))
    };
    let said = ask(&[]);
    let changes: Vec<_> = said["would_change"]
        .as_array()
        .unwrap()
        .iter()
        .map(|it| (it["line"].as_str().unwrap(), it["lacks"].as_str().unwrap()))
        .collect();
    assert_eq!(changes, [("nvme", "service"), ("tenant", "vlan"), ("partition", "p_key")]);
    for rest in [&["--service", "nvme-of"], &["--vlan", "100"], &["--p-key", "0x0005"]] {
        assert_eq!(ask(rest)["action"], "allow", "{rest:?}");
    }
}

#[test]
fn a_hundred_thousand_lines_are_refused_in_a_word_and_what_fits_is_checked() {
    let line = |number: usize| {
        format!(
            "[[access]]\nname = \"l{number}\"\nfrom = \"10.{}.{}.0/24\"\naction = \"deny\"\n",
            number / 256 % 256,
            number % 256
        )
    };
    let file = configured("many", "", &(0..100_000).map(line).collect::<String>());
    let said = weir(&["check", file.to_str().unwrap()]);
    assert_eq!(said.status.code(), Some(2));
    let words = String::from_utf8_lossy(&said.stderr).into_owned();
    assert!(words.contains("32768") && words.len() < 2000, "{words}");
    let file = configured("most", "", &(0..32_768).map(line).collect::<String>());
    assert_eq!(weir(&["check", file.to_str().unwrap()]).status.code(), Some(0));
}

#[test]
fn a_denied_write_gets_through_in_no_disguise() {
    let lines = "[[access]]\nname = \"writes\"\noperations = \"write\"\naction = \"deny\"\n";
    let file = configured("disguises", "", lines);
    let capture = file.parent().unwrap().join("disguises.pcap");
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/access_disguises.py");
    let made = Command::new("/usr/bin/python3").arg(script).arg(&capture).output();
    let Some(made) = made.ok().filter(|it| it.status.success()) else {
        eprintln!("SKIPPED: a_denied_write_gets_through_in_no_disguise needs python3-scapy");
        return;
    };
    let count: u64 = String::from_utf8_lossy(&made.stdout).trim().parse().unwrap();
    assert!(count > 30);
    let said = json(&weir(&["test", file.to_str().unwrap(), capture.to_str().unwrap(), "--json"]));
    assert_eq!((&said["packets"], &said["denied"]), (&count.into(), &count.into()), "{said:#}");
}
