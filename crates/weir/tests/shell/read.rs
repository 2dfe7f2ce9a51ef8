//! `weir read` on every capture, judged by tshark and softflowd, and on captures that lost, doubled
//! or damaged packets on the way.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::Value;
use weir_port::capture::{CaptureFormat, CaptureReader, CaptureWriter, PacketNote};
use weir_wire::frame::{Frame, Link, Meta};

fn weir(arguments: &[&str], files: &[&Path]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_weir"))
        .arg("read")
        .args(arguments)
        .args(files)
        .output()
        .expect("weir runs")
}

/// As tcpdump is: `tcpdump -w - | weir read -` ends by it.
#[test]
fn ctrl_c_ends_a_capture_that_goes_on_and_what_came_is_told() {
    let folder = tempfile::tempdir().unwrap();
    let [rules, events] = ["a.rules", "eve.json"].map(|name| folder.path().join(name));
    std::fs::write(&rules, "alert ip any any -> any any (msg:\"any\"; sid:1;)\n").unwrap();
    let mut child = Command::new(env!("CARGO_BIN_EXE_weir"))
        .args(["read", "-", "--rules"])
        .arg(&rules)
        .arg("--eve")
        .arg(&events)
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let mut input = child.stdin.take().unwrap();
    // The header of a capture, and nothing for a while.
    let header = [0xa1b2_c3d4_u32, 4 << 16 | 2, 0, 0, 65_535, 1].map(u32::to_le_bytes).concat();
    std::io::Write::write_all(&mut input, &header).unwrap();
    while !events.exists() {
        assert_eq!(child.try_wait().unwrap(), None, "it has ended");
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    let pid = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
    let ended = child.wait_with_output().unwrap();
    assert_eq!(ended.status.code(), Some(0), "{ended:?}");
    assert!(text(&ended.stdout).starts_with("0 packets, 0 alerts"), "{ended:?}");
}

fn read_json(file: &Path) -> Value {
    let output = weir(&["--json", "--flows", "--conversations"], &[file]);
    assert!(output.status.success(), "{}: {}", file.display(), text(&output.stderr));
    serde_json::from_slice(&output.stdout).expect("valid JSON")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Every capture of the folder beside the workspace; none, loudly, where it is missing.
fn captures() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/captures");
    let files = ["", "public"].iter().filter_map(|sub| std::fs::read_dir(folder.join(sub)).ok());
    let mut files: Vec<_> = files
        .flatten()
        .map(|entry| entry.expect("a readable folder").path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "pcap"))
        .collect();
    files.sort();
    if files.is_empty() {
        eprintln!("SKIPPED: no captures in {}", folder.display());
    }
    files
}

fn capture(name: &str) -> Option<PathBuf> {
    captures().into_iter().find(|path| path.ends_with(name))
}

/// The fields that tshark prints for each packet; `None`, loudly, where it is not installed.
fn tshark(file: &Path, fields: &[&str]) -> Option<Vec<Vec<String>>> {
    let mut command = Command::new("tshark");
    // Source port 69 makes tshark take RoCE for TFTP; nothing here is TFTP.
    command.args(["--disable-protocol", "tftp", "-n", "-T", "fields", "-r"]).arg(file);
    for field in fields {
        command.args(["-e", field]);
    }
    let Ok(output) = command.output() else {
        eprintln!("SKIPPED: tshark is not installed");
        return None;
    };
    assert!(output.status.success(), "tshark: {}", text(&output.stderr));
    let lines = text(&output.stdout);
    Some(lines.lines().map(|line| line.split('\t').map(str::to_string).collect()).collect())
}

fn number(field: &str) -> u32 {
    match field.strip_prefix("0x") {
        Some(digits) => u32::from_str_radix(digits, 16).expect("a number"),
        None => field.parse().expect("a number"),
    }
}

/// What tshark's fields say, in our JSON's terms.
#[derive(Debug, Default, PartialEq)]
struct Judged {
    rdma_packets: u64,
    opcodes: BTreeMap<String, u64>,
    queue_pairs: usize,
    naks: u64,
    rnr_naks: u64,
    cnp: u64,
    retransmissions: u64,
}

fn judge(file: &Path) -> Option<(u64, Judged)> {
    let rows = tshark(
        file,
        &[
            "infiniband.bth.opcode",
            "infiniband.bth.destqp",
            "infiniband.bth.psn",
            "infiniband.aeth.syndrome",
            "ip.src",
            "ip.dst",
            "ipv6.src",
            "ipv6.dst",
            "infiniband.grh.sgid",
            "infiniband.grh.dgid",
            "infiniband.lrh.slid",
            "infiniband.lrh.dlid",
        ],
    )?;
    let mut judged = Judged::default();
    let (mut queue_pairs, mut requests) = (BTreeSet::new(), HashSet::new());
    for row in &rows {
        let [opcode, qp, psn, syndrome, addresses @ ..] = row.as_slice() else { continue };
        if opcode.is_empty() {
            continue;
        }
        // A packet with a GRH belongs to its GIDs, one without to its LIDs.
        let has_grh = !addresses[4].is_empty();
        let shown = |at: usize| !has_grh || at < 6;
        let end = |from: usize| {
            let parts = addresses.iter().enumerate().skip(from).step_by(2);
            parts.filter(|(at, _)| shown(*at)).map(|(_, part)| part.as_str()).collect::<String>()
        };
        let code = weir_wire::bth::Opcode(number(opcode) as u8);
        judged.rdma_packets += 1;
        *judged.opcodes.entry(code.to_string()).or_default() += 1;
        judged.cnp += u64::from(code.0 == 0x81);
        if code.0 != 0x81 && number(qp) != 0xff_ffff {
            queue_pairs.insert((end(1), number(qp)));
        }
        if !syndrome.is_empty() {
            let syndrome = number(syndrome);
            judged.naks += u64::from(syndrome >> 5 == 3);
            judged.rnr_naks += u64::from(syndrome >> 5 == 1);
        }
        let is_rc_request = matches!(code.0, 0x00..=0x0c | 0x13..=0x17);
        if is_rc_request && !requests.insert((end(0), end(1), number(qp), number(psn))) {
            judged.retransmissions += 1;
        }
    }
    judged.queue_pairs = queue_pairs.len();
    Some((rows.len() as u64, judged))
}

fn claimed(report: &Value) -> Judged {
    let rdma = &report["rdma"];
    let count = |value: &Value| value.as_u64().expect("a count");
    let counts = |value: &Value| -> BTreeMap<String, u64> {
        let map = value.as_object().expect("an object").iter();
        map.map(|(name, value)| (name.clone(), count(value))).collect()
    };
    Judged {
        rdma_packets: count(&rdma["packets"]),
        opcodes: counts(&rdma["opcodes"]),
        queue_pairs: count(&rdma["queue_pairs"]) as usize,
        naks: counts(&rdma["naks"]).values().sum(),
        rnr_naks: count(&rdma["rnr_naks"]),
        cnp: count(&rdma["cnp"]),
        retransmissions: count(&rdma["retransmissions"]),
    }
}

/// Opens a file's packets in memory.
fn packets(file: &Path) -> Vec<(Vec<u8>, Meta)> {
    let mut reader = CaptureReader::open(file).expect("a capture");
    let mut packets = Vec::new();
    let mut take = |frames: &mut [Frame<'_>]| {
        packets.extend(frames.iter().map(|frame| (frame.bytes().to_vec(), frame.meta)));
    };
    while reader.next_batch(&mut take).expect("a sound capture") > 0 {}
    packets
}

fn write(file: &Path, packets: &[(Vec<u8>, Meta)]) {
    let ports = [("test", Link::Ethernet)];
    let mut writer =
        CaptureWriter::create(file, CaptureFormat::PcapNg, &ports).expect("a writable folder");
    for (bytes, meta) in packets {
        writer.write(0, meta, &[bytes], PacketNote::default()).expect("a writable file");
    }
    writer.finish().expect("a writable file");
}

/// A fixed sequence of numbers that looks like chance (a 64-bit linear congruential generator).
struct Chance(u64);

impl Chance {
    fn one_in(&mut self, count: u64) -> bool {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33).is_multiple_of(count)
    }
}

#[test]
fn every_capture_holds_what_tshark_says() {
    for file in captures() {
        let report = read_json(&file);
        let Some((packets, judged)) = judge(&file) else { return };
        assert_eq!(report["packets"], packets, "{}", file.display());
        assert_eq!(claimed(&report), judged, "{}", file.display());
    }
}

#[test]
fn every_icrc_of_the_captures_is_right() {
    for file in captures() {
        let rdma = &read_json(&file)["rdma"];
        assert_eq!(rdma["icrc_ok"], rdma["packets"], "{}", file.display());
    }
}

#[test]
fn lists_add_up_to_the_totals() {
    for file in captures() {
        let report = read_json(&file);
        let sum = |list: &Value, parts: &[&str]| -> u64 {
            let items = list.as_array().expect("a list").iter();
            items
                .map(|item| parts.iter().filter_map(|part| item[*part].as_u64()).sum::<u64>())
                .sum()
        };
        let conversations = report["conversation_list"].as_array().expect("a list");
        let packets: u64 =
            conversations.iter().map(|one| sum(&one["directions"], &["packets"])).sum();
        assert_eq!(packets, report["rdma"]["packets"].as_u64().unwrap(), "{}", file.display());
        assert_eq!(conversations.len() as u64, report["rdma"]["conversations"].as_u64().unwrap());
        let flows = &report["flow_list"];
        assert_eq!(flows.as_array().unwrap().len() as u64, report["flows"].as_u64().unwrap());
        let in_flows = sum(flows, &["packets_ab", "packets_ba"]);
        assert!(in_flows <= report["packets"].as_u64().unwrap());
        assert!(in_flows >= report["rdma"]["roce_v2"].as_u64().unwrap());
    }
}

/// A capture that lost one packet in twenty and holds one in fifteen twice.
#[test]
fn doubled_packets_are_counted_as_tshark_would_find_them() {
    let folder = tempfile::tempdir().expect("a folder");
    for name in ["rc-write-mtu1024.pcap", "rc-send-mtu256.pcap", "rc-fetch-add.pcap"] {
        let Some(file) = capture(name) else { return };
        for seed in 0..8 {
            let mut chance = Chance(seed);
            let mut changed = Vec::new();
            for packet in packets(&file) {
                if chance.one_in(20) {
                    continue;
                }
                changed.push(packet.clone());
                if chance.one_in(15) {
                    changed.push(packet);
                }
            }
            let file = folder.path().join(format!("{seed}-{name}"));
            write(&file, &changed);
            let Some((_, judged)) = judge(&file) else { return };
            assert!(judged.retransmissions > 0, "the test doubles requests");
            assert_eq!(claimed(&read_json(&file)), judged, "{name}, seed {seed}");
        }
    }
}

#[test]
fn a_changed_byte_is_one_wrong_icrc() {
    let Some(file) = capture("rc-write-mtu4096.pcap") else { return };
    let folder = tempfile::tempdir().expect("a folder");
    let mut packets = packets(&file);
    for at in [100, 200, 300] {
        let last = packets[at].0.len() - 1;
        packets[at].0[last] ^= 0x10;
    }
    let changed = folder.path().join("changed.pcapng");
    write(&changed, &packets);
    let rdma = &read_json(&changed)["rdma"];
    assert_eq!((rdma["icrc_bad"].as_u64(), rdma["icrc_unchecked"].as_u64()), (Some(3), Some(0)));
}

#[test]
fn packets_cut_short_are_truncated_and_unchecked_and_still_counted() {
    let Some(file) = capture("rc-write-mtu4096.pcap") else { return };
    let folder = tempfile::tempdir().expect("a folder");
    let mut packets = packets(&file);
    for (bytes, _) in &mut packets {
        bytes.truncate(100);
    }
    let cut = folder.path().join("cut.pcapng");
    write(&cut, &packets);
    let (whole, report) = (read_json(&file), read_json(&cut));
    assert_eq!(report["bytes"], whole["bytes"], "bytes are the wire's");
    assert_eq!(report["rdma"]["opcodes"], whole["rdma"]["opcodes"]);
    assert_eq!(report["malformed"], 0);
    let long = packets.iter().filter(|(bytes, meta)| meta.original_len as usize > bytes.len());
    assert_eq!(report["truncated"].as_u64(), Some(long.count() as u64));
    assert_eq!(report["rdma"]["icrc_bad"], 0);
    assert_ne!(report["rdma"]["icrc_unchecked"], 0);
}

#[test]
fn connections_of_rdma_cm_are_joined_by_it() {
    let Some(file) = capture("rc-write-rdmacm.pcap") else { return };
    let report = read_json(&file);
    let joined: Vec<_> = report["conversation_list"]
        .as_array()
        .unwrap()
        .iter()
        .map(|one| (one["service"].as_str().unwrap(), one["joined"].as_str().unwrap()))
        .collect();
    assert_eq!(joined, [("rc", "cm"), ("rc", "cm"), ("ud", "datagram")]);
    assert_eq!(report["rdma"]["psn_jumps"], 0, "requests start where the managers agreed");
    assert_eq!(report["rdma"]["psn_missing"], 0);
}

#[test]
fn eight_queue_pairs_are_eight_conversations() {
    let Some(file) = capture("rc-write-8qp.pcap") else { return };
    let report = read_json(&file);
    assert_eq!(report["rdma"]["conversations"], 8);
    for one in report["conversation_list"].as_array().unwrap() {
        assert_eq!((&one["joined"], &one["path_mtu"]), (&"data".into(), &1024.into()));
        assert_eq!(one["directions"].as_array().unwrap().len(), 2);
        assert_eq!(one["directions"][0]["messages"], 20);
    }
}

#[test]
fn softflowd_finds_as_many_flows() {
    for file in captures() {
        let report = read_json(&file);
        let command = ["-n", "127.0.0.1:9", "-6", "-d", "-v", "9", "-c", "none", "-p", "none"];
        let folder = tempfile::tempdir().expect("a folder");
        let run = Command::new("softflowd")
            .current_dir(folder.path())
            .args(command)
            .arg("-r")
            .arg(&file)
            .output();
        let Ok(output) = run else {
            eprintln!("SKIPPED: softflowd is not installed");
            return;
        };
        let said = text(&output.stdout) + &text(&output.stderr);
        let expired = said.lines().find_map(|line| line.strip_prefix("Flows expired: "));
        // It cannot read InfiniBand link types.
        let Some(expired) = expired else { continue };
        let flows: u64 = expired.split(' ').next().unwrap().parse().expect("a number");
        assert_eq!(report["flows"].as_u64(), Some(flows), "{}: {said}", file.display());
    }
}

/// Writes a pcap file of `link` type: each packet behind `head` instead of its Ethernet header.
fn write_raw(file: &Path, link: u32, head: &[u8], packets: &[(Vec<u8>, Meta)]) {
    let mut pcap = Vec::new();
    for word in [0xa1b2_c3d4, 4 << 16 | 2, 0, 0, 65_535, link] {
        pcap.extend(u32::to_le_bytes(word));
    }
    for (second, (bytes, _)) in packets.iter().enumerate() {
        let len = (head.len() + bytes.len() - 14) as u32;
        for word in [second as u32, 0, len, len] {
            pcap.extend(word.to_le_bytes());
        }
        pcap.extend(head);
        pcap.extend(&bytes[14..]);
    }
    std::fs::write(file, pcap).expect("a writable folder");
}

#[test]
fn captures_of_the_loopback_and_of_ppp_are_read_as_tshark_reads_them() {
    let Some(original) = capture("ud-send.pcap") else { return };
    let wanted = read_json(&original);
    let (packets, folder) = (packets(&original), tempfile::tempdir().unwrap());
    let kinds: [(&str, u32, &[u8]); 4] = [
        ("BSD loopback, this machine's bytes", 0, &[2, 0, 0, 0]),
        ("BSD loopback, another's", 0, &[0, 0, 0, 2]),
        ("PPP", 9, &[0, 0x21]),
        ("PPP in HDLC-like framing", 9, &[0xff, 3, 0, 0x21]),
    ];
    for (name, link, head) in kinds {
        let file = folder.path().join("linked.pcap");
        write_raw(&file, link, head, &packets);
        let report = read_json(&file);
        assert_eq!(report["packets"], wanted["packets"], "{name}");
        for field in ["packets", "icrc_ok", "icrc_bad", "conversations"] {
            assert_eq!(report["rdma"][field], wanted["rdma"][field], "{name}: {field}");
        }
        let Some(opcodes) = tshark(&file, &["infiniband.bth.opcode"]) else { return };
        let rdma = opcodes.iter().filter(|fields| !fields[0].is_empty()).count() as u64;
        assert_eq!(report["rdma"]["packets"].as_u64(), Some(rdma), "{name}");
    }
}

#[test]
fn what_cannot_be_read_is_said_and_the_rest_still_counts() {
    let Some(file) = capture("ud-send.pcap") else { return };
    let missing = Path::new("no-such-file.pcap");
    let output = weir(&["--json"], &[missing, &file]);
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).contains("no-such-file.pcap: cannot open"));
    let report: Value = serde_json::from_slice(&output.stdout).expect("valid JSON");
    assert_eq!(report["packets"], 90);
    assert!(report["files"][0]["error"].is_string() && report["files"][1]["error"].is_null());
}

#[test]
fn csv_wants_one_list() {
    let Some(file) = capture("ud-send.pcap") else { return };
    for lists in
        [vec!["--csv"], vec!["--csv", "--flows", "--conversations"], vec!["--csv", "--json"]]
    {
        assert_eq!(weir(&lists, &[&file]).status.code(), Some(2), "{lists:?}");
    }
    for (list, columns) in [("--flows", 15), ("--conversations", 31)] {
        let output = weir(&["--csv", list], &[&file]);
        assert!(output.status.success());
        let lines = text(&output.stdout);
        assert!(lines.lines().count() > 1);
        assert!(lines.lines().all(|line| line.split(',').count() == columns), "{lines}");
    }
}

#[test]
fn the_summary_fits_a_screen_and_names_what_it_found() {
    let Some(file) = capture("rc-read-mtu1024.pcap") else { return };
    let said = text(&weir(&[], &[&file]).stdout);
    for part in
        ["360 RoCE v2", "360 right", "240 RC RDMA READ response Middle", "10.77.0.1 QP 0x14"]
    {
        assert!(said.contains(part), "{part} in {said}");
    }
    assert!(said.lines().count() <= 40);
}
