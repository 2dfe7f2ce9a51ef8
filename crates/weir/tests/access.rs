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
    let folder = std::env::temp_dir().join(format!("weir-access-{test}-{}", std::process::id()));
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
    let file = configured("learn", "access_state = \"learn\"", "");
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
