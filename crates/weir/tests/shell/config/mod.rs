//! What the configuration accepts and refuses, and with which words.

mod access;
mod keying;
mod offload;
mod tags;
mod workers;

use std::path::Path;

use base64ct::{Base64, Encoding};
use weir::config::problem::{Position, Severity};
use weir::config::settings::*;
use weir::config::{self, KeyAccess, Problems, Settings};
use weir_store::sink::EveRecords;

const HEAD: &str = "[gateway]\nname = \"gw\"\n[[pair]]\nhost = \"h\"\nwire = \"w\"\n";
const ADDRESS: &str = "address = \"192.0.2.1/24\"\n";

fn peer(name: &str, rest: &str, spi: u32) -> String {
    format!(
        "[[peer]]\nname = \"{name}\"\n{rest}\n\
         seal = {{ spi = {spi}, key_file = \"{name}.out\" }}\n\
         open = {{ spi = {spi}, key_file = \"{name}.in\" }}\n"
    )
}

fn ethernet(name: &str, protects: &str, spi: u32) -> String {
    let rest = format!("mode = \"ethernet\"\nendpoint = \"192.0.2.2\"\nprotects = {protects}");
    peer(name, &rest, spi)
}

fn understand(text: &str) -> (Option<Settings>, Problems) {
    let mut problems = Problems::new(Path::new("weir.toml"), text);
    let settings = config::understand(text, Path::new("/etc/weir"), &mut problems);
    (settings, problems)
}

#[track_caller]
fn accepted(text: &str) -> Settings {
    let (settings, problems) = understand(text);
    settings.unwrap_or_else(|| panic!("refused:\n{problems}"))
}

/// The text is refused, with every one of `wanted` among the words, and nothing else is wrong.
#[track_caller]
fn refused(text: &str, wanted: &[&str]) -> Problems {
    let (settings, problems) = understand(text);
    let shown = problems.to_string();
    assert!(settings.is_none() && problems.refused(), "accepted:\n{text}");
    assert_eq!(problems.count(Severity::Error), wanted.len(), "{shown}");
    for words in wanted {
        assert!(shown.contains(words), "no `{words}` in:\n{shown}");
    }
    problems
}

#[test]
fn defaults_are_filled_in() {
    let settings = accepted(&format!("{HEAD}{ADDRESS}{}", ethernet("b", "\"everything\"", 4097)));
    let pair = &settings.pairs[0];
    assert_eq!(settings.gateway.control_socket(), Path::new("/run/weir/gw.sock"));
    assert_eq!(settings.gateway.on_failure, OnFailure::Closed);
    assert_eq!((pair.name.as_str(), pair.driver, pair.icrc), ("h", Driver::Packet, Icrc::Check));
    assert_eq!(pair.unprotected, Unprotected::Drop);
    assert_eq!(pair.frames, default_frames(PairKind::Ethernet));
    let peer = &pair.peers[0];
    assert_eq!((peer.replay_window_packets, peer.extended_sequence), (1024, true));
    let (seal, _) = peer.configured().unwrap();
    assert_eq!((peer.encapsulation, seal.cipher), (Encapsulation::Esp, Cipher::Aes256Gcm));
    assert_eq!(peer.protects, Protects::Everything);
    let weir::config::key::KeySource::File(path) = &seal.key else { panic!() };
    assert_eq!(path, Path::new("/etc/weir/b.out"), "key files start at the configuration");
}

#[test]
fn evidence_is_kept_as_written_and_within_its_bounds() {
    let with = |lines: &str| format!("{HEAD}default = \"forward\"\n[evidence]\n{lines}");
    let kept = accepted(&with("")).evidence.unwrap();
    assert_eq!((kept.memory.bytes, kept.memory.snap_bytes), (64 << 20, 384));
    assert!(kept.disk.is_none(), "memory only");
    let kept = accepted(&with("memory_mib = 8\nsnap = 0\ndisk = \"ev\"\ndisk_mib = 100"));
    let kept = kept.evidence.unwrap();
    assert_eq!((kept.memory.bytes, kept.memory.snap_bytes), (8 << 20, usize::MAX));
    let disk = kept.disk.unwrap();
    assert_eq!((disk.folder.as_path(), disk.bytes), (Path::new("/etc/weir/ev"), 100 << 20));
    assert!(accepted(&with("memory_mib = 0")).evidence.is_none());
    refused(&with("memory_mib = 7"), &["write a number from 8"]);
    refused(&with("memory_mib = 1000000"), &["0 keeps nothing"]);
    refused(&with("disk = \"ev\"\ndisk_mib = 1"), &["disk_mib = 1"]);
    refused(&with("disk_mib = 100"), &["disk_mib without a disk"]);
    refused(&with("memory_mib = 0\ndisk = \"ev\""), &["passes through memory"]);
    refused(&with("snip = 1"), &["snip"]);
}

#[test]
fn what_goes_beside_eve_is_refused_without_it() {
    let with = |line: &str| format!("{HEAD}default = \"forward\"\n[rules]\npaths = \"r\"\n{line}");
    refused(&with("fast = \"fast.log\""), &["fast, and no `eve`"]);
    refused(&with("eve_anomalies = true"), &["eve_anomalies, and no records"]);
    refused(&with("eve_digests = \"md5\""), &["eve_digests, and no records"]);
    let without = "eve = \"e\"\neve_anomalies = true\neve_records = [\"flow\"]";
    refused(&with(without), &["have `anomaly` among `eve_records`"]);
}

#[test]
fn records_of_eve_are_all_or_none_or_some_kinds() {
    let with = |line: &str| {
        format!("{HEAD}default = \"forward\"\n[rules]\npaths = \"r\"\neve = \"e\"\n{line}")
    };
    let records =
        |line: &str| accepted(&with(line)).detection.unwrap().eve.unwrap().records.clone();
    assert_eq!(records(""), EveRecords::All);
    assert_eq!(records("eve_records = true"), EveRecords::All);
    assert_eq!(records("eve_records = false"), EveRecords::None);
    assert_eq!(records("eve_records = []"), EveRecords::None);
    let some = records("eve_records = [\"flow\", \"dns\"]");
    assert!(some.has("dns") && some.has("flow") && !some.has("tls"));
    assert!(records("eve_records = \"tls\"").has("tls"));
    refused(&with("eve_records = [\"netflow\"]"), &["no record is called \"netflow\""]);
    refused(&with("eve_records = [true, \"dns\"]"), &["no record is called \"true\""]);
    refused(&with("eve_records = 3"), &["expected true, false, or EVE's names"]);
}

#[test]
fn what_names_a_stream_or_a_host_is_refused_as_a_file_of_eve() {
    let with = |line: &str| format!("{HEAD}default = \"forward\"\n[rules]\npaths = \"r\"\n{line}");
    for name in ["-", "tcp:192.0.2.1", "udp://192.0.2.1:514", "unix:", "unix-dgram:", "file:a"] {
        refused(&with(&format!("eve = \"{name}\"")), &["names no file and no socket"]);
    }
    refused(&with("eve = \"e.json\"\nfast = \"-\""), &["fast = \"-\" names no file"]);
}

#[test]
fn every_file_of_rules_that_is_not_there_is_named_with_its_key() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("weir.toml");
    let said = |lines: &str| {
        let text = format!("{HEAD}default = \"forward\"\n[rules]\n{lines}");
        std::fs::write(&file, text).unwrap();
        config::load(&file, KeyAccess::Needed).unwrap_err()
    };
    let geoip = said("paths = \".\"\ngeoip = \"no.mmdb\"").to_string();
    assert!(geoip.contains("no.mmdb: "), "though no rule asks for it: {geoip}");
    let all = said(
        "paths = \"no.rules\"\nvariables = \"no.yaml\"\nlists = { A = \"no.txt\" }\n\
         geoip = \"no.mmdb\"",
    );
    assert_eq!(all.count(Severity::Error), 4, "{all}");
    for key in ["paths", "variables", "lists", "geoip"] {
        assert!(all.to_string().contains(&format!("correct `{key}` in [rules]")), "{all}");
    }
}

#[test]
fn alerts_are_not_written_over_what_the_gateway_reads() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("weir.toml");
    std::fs::write(folder.path().join("my.rules"), "").unwrap();
    let said = |lines: &str| {
        let text = format!("{HEAD}default = \"forward\"\n[rules]\npaths = \"my.rules\"\n{lines}");
        std::fs::write(&file, text).unwrap();
        config::load(&file, KeyAccess::Needed).map(|_| ()).map_err(|it| it.to_string())
    };
    for (lines, what) in [
        ("eve = \"./weir.toml\"", "is this configuration"),
        ("eve = \"my.rules\"", "is a file of rules"),
        ("eve = \"e.json\"\nfast = \"e.json\"", "is where `eve` goes"),
        ("eve = \"s.sqlite\"\n[store]\npath = \"s.sqlite\"", "is the store"),
    ] {
        assert!(said(lines).unwrap_err().contains(what), "{lines}");
    }
    said("eve = \"e.json\"\nfast = \"fast.log\"").unwrap();
}

#[test]
fn what_is_no_number_is_told_in_no_programmers_words() {
    let with = |line: &str| format!("{HEAD}default = \"forward\"\n[rules]\npaths = \"r\"\n{line}");
    refused(&with("would_drop = [\"x\"]"), &["write a rule's number"]);
    refused(&with("would_drop = [-1]"), &["write a rule's number"]);
    refused(&with("flows = \"x\""), &["write a whole number"]);
    assert!(accepted(&with("would_drop = 7")).detection.unwrap().would_drop.contains(&7));
}

#[test]
fn memory_of_flows_has_bounds_and_what_goes_past_cannot_be_strict() {
    let with = |line: &str| format!("{HEAD}default = \"forward\"\n[rules]\npaths = \"r\"\n{line}");
    let strict =
        "[rules.exceptions]\nmidstream = \"drop\"\ngaps = \"drop\"\nparser_errors = \"drop\"";
    let rules = accepted(&with(&format!("memory_mib = 64\n{strict}"))).detection.unwrap();
    assert_eq!((rules.memory, rules.drops_midstream, rules.drops_gaps), (64 << 20, true, true));
    assert!(rules.drops_parser_errors);
    let usual = accepted(&with("")).detection.unwrap();
    assert_eq!((usual.memory, usual.drops_parser_errors), (1 << 30, false));
    refused(&with("memory_mib = 15"), &["write a number from 16"]);
    refused(&with(&format!("bypass_mib = 1\n{strict}")), &["bypass_mib, and `midstream"]);
    refused(&with("tunnel_ports = { vxlan = [1, 2, 3, 4, 5] }"), &["tunnel_ports: vxlan, port 5"]);
    refused(&with("tunnel_ports = { teredo = 0 }"), &["tunnel_ports: teredo, port 0"]);
}

#[test]
fn every_example_is_accepted() {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy/examples");
    let mut seen = 0;
    for entry in std::fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        let (settings, problems) = understand(&std::fs::read_to_string(&path).unwrap());
        assert!(settings.is_some(), "{}:\n{problems}", path.display());
        seen += 1;
    }
    assert!(seen >= 3);
}

#[test]
fn an_unknown_key_is_named_with_its_place_and_the_right_ones() {
    let problems = refused(
        &HEAD.replace("wire = \"w\"", "wire = \"w\"\ndefualt = \"forward\""),
        &["unknown field `defualt`"],
    );
    let problem = problems.problems.iter().find(|it| it.severity == Severity::Error).unwrap();
    assert_eq!(problem.place, Some(Position { line: 6, column: 1 }));
    assert!(problem.remedy.contains("`default`"), "{}", problem.remedy);
}

#[test]
fn all_problems_are_named_at_once() {
    let text = "[gateway]\nname = \"a b\"\ncolour = 1\nsize = 2\n\
                [[pair]]\nhost = \"h\"\nwire = \"h\"\ndriver = \"dpdk\"\n\
                [[pair]]\nhost = \"x\"\nwire = \"x\"\nvlan = 5000\n[limits]\nflows = 0\n[extra]\n";
    refused(
        text,
        &[
            "`a b` is no name",
            "unknown field `colour`",
            "unknown field `size`",
            "unknown variant `dpdk`",
            "interface `x` is in use twice",
            "5000 is no VLAN",
            "flows = 0",
            "unknown table `extra`",
        ],
    );
}

#[test]
fn values_of_the_wrong_kind_say_what_is_wanted() {
    refused(&HEAD.replace("\"h\"", "7"), &["invalid type: integer `7`"]);
    refused(&format!("{HEAD}address = 7"), &["a string or a list of strings"]);
    refused(&format!("{HEAD}address = \"192.0.2.1\""), &["lacks the length"]);
    refused(&format!("{HEAD}roce_mtu = 1500"), &["1500 is no RoCE MTU"]);
    refused(&format!("{HEAD}roce_mtu = \"4k\""), &["invalid type: string \"4k\""]);
    refused("pair = 3\n[gateway]\nname = \"g\"", &["no list of tables"]);
    refused("[gateway\nname = 1", &["not TOML"]);
    refused("", &["[gateway] is missing", "there is no [[pair]]"]);
}

#[test]
fn overlapping_prefixes_are_refused_wherever_they_stand() {
    let first = ethernet("b", "[\"10.0.0.0/8\"]", 4097);
    let inside = ethernet("c", "[\"172.16.0.0/12\", \"10.1.0.0/16\"]", 4098);
    let text = format!("{HEAD}{ADDRESS}{first}{inside}");
    refused(&text, &["`10.1.0.0/16` of peer `c` overlaps `10.0.0.0/8` of peer `b`"]);
    let everything = ethernet("d", "\"everything\"", 4099);
    accepted(&format!("{HEAD}{ADDRESS}{first}{everything}"));
    let again = ethernet("e", "\"everything\"", 4100);
    let text = format!("{HEAD}{ADDRESS}{everything}{again}");
    refused(&text, &["peers `d` and `e` both protect everything"]);
}

#[test]
fn one_key_in_both_directions_is_refused() {
    let text = format!("{HEAD}{ADDRESS}{}", ethernet("b", "\"everything\"", 4097));
    refused(&text.replace("b.in", "b.out"), &["the same key: AES-GCM dies"]);
}

#[test]
fn an_spi_is_used_once_a_direction_and_is_not_reserved() {
    let one = ethernet("b", "\"10.0.0.0/8\"", 4097);
    let two = ethernet("c", "\"11.0.0.0/8\"", 4097);
    refused(&format!("{HEAD}{ADDRESS}{one}{two}"), &["same SPI 0x1001", "same SPI 0x1001"]);
    let reserved = ethernet("b", "\"10.0.0.0/8\"", 255);
    refused(&format!("{HEAD}{ADDRESS}{reserved}"), &["SPI 255 is reserved", "SPI 255"]);
}

#[test]
fn a_gateway_that_seals_cannot_fail_open() {
    let text = format!("{HEAD}{ADDRESS}{}", ethernet("b", "\"everything\"", 4097));
    let open = text.replace("name = \"gw\"", "name = \"gw\"\non_failure = \"open\"");
    refused(&open, &["a crash would send plaintext"]);

    // Nor one that has no peer yet, but whose clients, tunnels or front ends bring them.
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path().display();
    let keying = "[keying]\nidentity_file = \"identity\"\n";
    let vpn = format!(
        "[pair.vpn]\nclients = \"{folder}\"\npool = \"10.9.0.0/24\"\n\
         endpoint = \"192.0.2.1\"\n{keying}"
    );
    let openvpn = format!("[pair.openvpn]\ntunnels = \"{folder}\"\n");
    for table in [&vpn, &openvpn, "xfrm = true\n"] {
        let text = format!("{HEAD}{ADDRESS}{table}");
        accepted(&text);
        let open = text.replace("name = \"gw\"", "name = \"gw\"\non_failure = \"open\"");
        refused(&open, &["a crash would send plaintext"]);
    }
    let watches = format!("{HEAD}default = \"forward\"\n");
    accepted(&watches.replace("name = \"gw\"", "name = \"gw\"\non_failure = \"open\""));
}

#[test]
fn endpoints_need_an_address_to_send_from() {
    let bare = ethernet("b", "\"everything\"", 4097);
    refused(&format!("{HEAD}{bare}"), &["its pair no IPv4 `address`"]);
    refused(&format!("{HEAD}address = \"fd00::1/64\"\n{bare}"), &["no IPv4 `address`"]);
    let far = bare.replace("192.0.2.2", "203.0.113.1");
    refused(&format!("{HEAD}{ADDRESS}{far}"), &["there is no next hop"]);
    accepted(&format!("{HEAD}{ADDRESS}next_hop = \"192.0.2.254\"\n{far}"));
    let own = bare.replace("192.0.2.2", "192.0.2.1");
    refused(&format!("{HEAD}{ADDRESS}{own}"), &["the pair's own address"]);
    let hop = format!("{HEAD}{ADDRESS}next_hop = \"203.0.113.254\"\n{far}");
    refused(&hop, &["in no network of the pair's"]);
}

#[test]
fn modes_take_what_they_can_carry() {
    let transport = peer("b", "mode = \"transport\"\nprotects = \"everything\"", 4097);
    refused(&format!("{HEAD}{transport}"), &["transport mode with \"everything\""]);
    let addressed = peer(
        "b",
        "mode = \"transport\"\nendpoint = \"192.0.2.2\"\nprotects = \"10.0.0.0/8\"",
        4097,
    );
    refused(&format!("{HEAD}{ADDRESS}{addressed}"), &["packets keep their own addresses"]);
    let homeless = peer("b", "mode = \"ethernet\"\nprotects = \"everything\"", 4097);
    refused(&format!("{HEAD}{ADDRESS}{homeless}"), &["has no `endpoint`"]);
    let ip = peer("b", "mode = \"tunnel\"\nprotects = \"10.0.0.0/8\"", 4097);
    assert_eq!(accepted(&format!("{HEAD}{ip}")).pairs[0].frames, default_frames(PairKind::Ip));
    let frames = format!("{HEAD}[pair.frames]\nlldp = \"seal\"\n{ip}");
    refused(&frames, &["no peer of the pair carries whole frames"]);
}

#[test]
fn classes_of_traffic_are_mapped_only_where_there_is_an_outer_header() {
    let one = ethernet("b", "\"10.0.0.0/8\"", 4097);
    let with = |lines: &str| format!("{HEAD}{ADDRESS}{lines}{one}");
    let pair = accepted(&with("vlan = 0\ndscp_map = { \"26\" = 34 }\npcp_map = { \"0\" = 5 }\n"));
    let marking = &pair.pairs[0].marking;
    assert_eq!(marking.dscp_changes().collect::<Vec<_>>(), [(26, 34)]);
    assert_eq!(marking.pcp_changes().collect::<Vec<_>>(), [(0, 5)]);
    assert_eq!(pair.pairs[0].vlan, Some(0));

    for (lines, words) in [
        ("dscp_map = { \"64\" = 1 }\n", "`64` is no DSCP"),
        ("dscp_map = { \"ef\" = 1 }\n", "`ef` is no DSCP"),
        ("dscp_map = { \"1\" = -1 }\n", "-1 is no DSCP"),
        ("dscp_map = { \"1\" = 2, \"01\" = 3 }\n", "DSCP 1 is mapped twice"),
        ("vlan = 7\npcp_map = { \"3\" = 8 }\n", "8 is no VLAN priority"),
        ("pcp_map = { \"3\" = 5 }\n", "outer frames of the pair have no tag"),
    ] {
        let problems = refused(&with(lines), &[words]);
        let line = problems.problems[0].place.unwrap().line;
        assert_eq!(with(lines).lines().nth(line - 1).unwrap(), lines.lines().last().unwrap());
    }
    let own = peer("b", "mode = \"transport\"\nprotects = \"10.0.0.0/8\"", 4097);
    let text = format!("{HEAD}dscp_map = {{ \"1\" = 2 }}\n{own}");
    refused(&text, &["packets keep their own"]);
    let text = format!("{HEAD}vlan = 7\n{own}");
    refused(&text, &["`vlan` without outer frames of our own"]);
}

#[test]
fn a_replay_window_is_a_multiple_of_64() {
    let one = ethernet("b", "\"10.0.0.0/8\"", 4097);
    for window in [0, 63, 100, 8256] {
        let text = one.replace("mode =", &format!("replay_window = {window}\nmode ="));
        refused(&format!("{HEAD}{ADDRESS}{text}"), &["replay_window ="]);
    }
}

#[test]
fn peers_find_their_pair() {
    let two = format!("{HEAD}{ADDRESS}[[pair]]\nname = \"p\"\nhost = \"h2\"\nwire = \"w2\"\n");
    let lost = ethernet("b", "\"everything\"", 4097);
    refused(&format!("{two}{lost}"), &["does not say which pair"]);
    let wrong = lost.replace("mode =", "pair = \"q\"\nmode =");
    refused(&format!("{two}{wrong}"), &["which is not there"]);
    let right = lost.replace("mode =", "pair = \"h\"\nmode =");
    let settings = accepted(&format!("{two}{right}"));
    assert_eq!(settings.pairs[0].peers.len(), 1);
    assert!(settings.pairs[1].monitors_only());
}

#[test]
fn a_pair_that_passes_nothing_or_much_in_clear_is_warned_about() {
    let warnings = |text: &str| understand(text).1.count(Severity::Warning);
    assert_eq!(warnings(HEAD), 1);
    assert_eq!(warnings(&format!("{HEAD}default = \"forward\"")), 0);
    let sealing = ethernet("b", "\"10.0.0.0/8\"", 4097);
    assert_eq!(warnings(&format!("{HEAD}{ADDRESS}{sealing}")), 0);
    assert_eq!(warnings(&format!("{HEAD}{ADDRESS}default = \"forward\"\n{sealing}")), 1);
    let inline = sealing.replace("key_file = \"b.in\"", "key = \"00\"");
    assert_eq!(warnings(&format!("{HEAD}{ADDRESS}{inline}")), 1);
}

#[test]
fn keys_are_read_from_files_and_may_not_repeat() {
    let directory = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| {
        use std::os::unix::fs::PermissionsExt;
        let path = directory.path().join(name);
        std::fs::write(&path, text).unwrap();
        std::fs::set_permissions(&path, PermissionsExt::from_mode(0o600)).unwrap();
        path
    };
    let text = format!("{HEAD}{ADDRESS}{}", ethernet("b", "\"everything\"", 4097));
    let file = write("weir.toml", &text);
    let hex: String = (0..36).map(|byte| format!("{byte:02x}")).collect();
    write("b.out", &hex);
    write("b.in", &hex);
    let same = config::load(&file, KeyAccess::Needed).unwrap_err().to_string();
    assert!(same.contains("have the same key"), "{same}");

    write("b.in", &hex.replace("0001", "ff01"));
    let loaded = config::load(&file, KeyAccess::Needed).unwrap();
    let keys = loaded.keys.unwrap();
    for association in loaded.settings.associations() {
        assert_eq!(keys.find(&association.key).unwrap().material().len(), 36);
    }

    std::fs::remove_file(directory.path().join("b.in")).unwrap();
    let missing = config::load(&file, KeyAccess::Needed).unwrap_err().to_string();
    assert!(missing.contains("cannot read the key file"), "{missing}");
    assert!(missing.contains("weir keys generate"), "{missing}");
}

#[test]
fn secrets_in_files_that_others_may_read_are_refused() {
    use std::os::unix::fs::PermissionsExt;
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("weir.toml");
    let set = |path: &Path, mode| {
        std::fs::set_permissions(path, PermissionsExt::from_mode(mode)).unwrap();
    };
    let load = |mode| {
        set(&file, mode);
        config::load(&file, KeyAccess::IfPermitted).map(drop).map_err(|error| error.to_string())
    };
    let hex: String = (0..36).map(|byte| format!("{byte:02x}")).collect();
    let sealing = ethernet("b", "\"everything\"", 4097)
        .replace("key_file = \"b.out\"", &format!("key = \"{hex}\""))
        .replace("key_file = \"b.in\"", &format!("key = \"{}\"", hex.replace("0001", "ff01")));
    std::fs::write(&file, format!("{HEAD}{ADDRESS}{sealing}")).unwrap();
    let open = load(0o644).unwrap_err();
    assert!(open.contains("a key stands in it, and it is open to every user"), "{open}");
    assert!(open.contains("chmod 600"), "{open}");
    assert_eq!(load(0o600), Ok(()));

    let key = directory.path().join("flows.key");
    std::fs::write(&key, "of TLS").unwrap();
    let export = "[[export]]\ncollector = \"tls://192.0.2.9:4740\"\nformat = \"ipfix\"\n\
                  authority_file = \"ca.pem\"\ncertificate_file = \"flows.pem\"\n\
                  key_file = \"flows.key\"\n";
    std::fs::write(&file, format!("{HEAD}default = \"forward\"\n{export}")).unwrap();
    set(&key, 0o644);
    let open = load(0o644).unwrap_err();
    assert!(open.contains("TLS key") && open.contains("is open to every user"), "{open}");
    set(&key, 0o600);
    assert_eq!(load(0o644), Ok(()), "the configuration itself holds no secret");

    let folder = directory.path().join("tunnels");
    std::fs::create_dir(&folder).unwrap();
    let server = folder.join("server-1.conf");
    std::fs::write(&server, "<key>").unwrap();
    let tunnel = "server = \"server-1.conf\"\ndevice = \"weir-ovpn1\"\nport = 1194\n\
                  networks = [\"10.9.0.0/24\"]\nmtu = 1400\n";
    std::fs::write(folder.join("tunnel-1.toml"), tunnel).unwrap();
    let folder = folder.display();
    let text = format!("{HEAD}{ADDRESS}[pair.openvpn]\ntunnels = \"{folder}\"\n");
    std::fs::write(&file, text).unwrap();
    set(&server, 0o644);
    let open = load(0o600).unwrap_err();
    assert!(open.contains("server-1.conf, and it is open to every user"), "{open}");
    set(&server, 0o600);
    assert_eq!(load(0o600), Ok(()));
}

#[test]
fn the_examples_public_key_and_a_filter_of_no_known_words_are_refused() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("weir.toml");
    let example = include_str!("../../../../../deploy/examples/two-gateways.toml");
    std::fs::write(&file, example).unwrap();
    let refused = config::load(&file, KeyAccess::IfPermitted).unwrap_err().to_string();
    assert!(refused.contains("has the public key of the examples"), "{refused}");
    let mirror = "[[mirror]]\nname = \"m\"\npair = \"h\"\nport = \"m\"\nfilter = \"imcp\"\n";
    std::fs::write(&file, format!("{HEAD}default = \"forward\"\n{mirror}")).unwrap();
    let refused = config::load(&file, KeyAccess::IfPermitted).unwrap_err().to_string();
    assert!(refused.contains("filter `imcp`"), "{refused}");
}

#[test]
fn a_missing_identity_is_told_how_to_make_it() {
    let directory = tempfile::tempdir().unwrap();
    let example = include_str!("../../../../../deploy/examples/two-gateways.toml");
    let file = directory.path().join("weir.toml");
    std::fs::write(&file, example).unwrap();
    let missing = config::load(&file, KeyAccess::Needed).unwrap_err().to_string();
    for words in ["cannot read the key file", "gw-a.identity", "make it with `weir keys identity"] {
        assert!(missing.contains(words), "{missing}");
    }
}

#[test]
fn a_missing_oversized_or_binary_file_is_one_clear_error() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("weir.toml");
    let error = |path: &Path| config::load(path, KeyAccess::Needed).unwrap_err().to_string();
    assert!(error(&path).contains("cannot read it: No such file"), "{}", error(&path));
    std::fs::write(&path, [0xff, 0xfe]).unwrap();
    assert!(error(&path).contains("not UTF-8"));
    std::fs::write(&path, vec![b'#'; (32 << 20) + 1]).unwrap();
    assert!(error(&path).contains("longer than 32 MiB"));
}

#[test]
fn a_flood_of_problems_is_cut_off() {
    let unknown: String = (0..20_000).map(|number| format!("k{number} = 1\n")).collect();
    let (_, problems) = understand(&format!("[gateway]\nname = \"g\"\n{unknown}"));
    assert_eq!(problems.problems.len(), 100);
    assert!(problems.to_string().contains("only the first 100"));
}

#[test]
fn prefer_with_keys_in_files_is_refused_with_the_reason() {
    let rest = "mode = \"ethernet\"\nendpoint = \"192.0.2.2\"\nprotects = \"everything\"\n\
                sealing = \"prefer\"";
    let text = format!("{HEAD}{ADDRESS}{}", peer("b", rest, 4097));
    let problems = refused(&text, &["peer `b` has keys in files and sealing = \"prefer\""]);
    let shown = problems.to_string();
    assert!(shown.contains("nothing tells whether it can open what is sealed"), "{shown}");
    assert!(shown.contains("give it a `public_key`"), "{shown}");
    accepted(&text.replace("\"prefer\"", "\"require\""));
}

#[test]
fn front_ends_that_are_left_nothing_to_decide_are_warned_of() {
    let with = |protects: &str| {
        let text = format!("{HEAD}{ADDRESS}xfrm = true\n{}", ethernet("b", protects, 4097));
        accepted(&text);
        understand(&text).1.to_string().contains("front ends decide")
    };
    assert!(with("\"everything\""));
    assert!(!with("\"10.0.0.0/24\""));
}

#[test]
fn a_key_of_transport_mode_for_more_than_one_pair_of_hosts_is_warned_of() {
    let with = |protects: &str| {
        let text = peer("b", &format!("mode = \"transport\"\nprotects = [{protects}]"), 4097);
        accepted(&format!("{HEAD}{text}"));
        understand(&format!("{HEAD}{text}")).1.to_string().contains("exchange the hosts")
    };
    assert!(!with("\"10.0.0.2\""));
    assert!(!with("\"10.0.0.2/32\", \"fd00::2/128\""), "one host of both families");
    assert!(with("\"10.0.0.0/31\""));
    assert!(with("\"10.0.0.2\", \"10.0.0.3\""));
    assert!(with("\"10.0.0.2\", \"fd00::/64\""));
    let tunnel = peer("b", "mode = \"tunnel\"\nprotects = [\"10.0.0.0/24\"]", 4097);
    assert!(!understand(&format!("{HEAD}{tunnel}")).1.to_string().contains("exchange"));
}

#[test]
fn what_a_mirror_is_numbered_by_fits_its_encapsulation() {
    let mirror = |form: &str, id: &str| {
        format!(
            "{HEAD}[[mirror]]\nname = \"m\"\nport = \"mon0\"\nencapsulation = \"{form}\"\n\
             local = \"192.0.2.1\"\nremote = \"192.0.2.9\"\n\
             remote_mac = \"02:00:00:00:00:09\"\n{id}"
        )
    };
    for (form, most) in [("vxlan", 0xff_ffff), ("erspan2", 0x3ff), ("erspan3", 0x3ff)] {
        accepted(&mirror(form, ""));
        accepted(&mirror(form, &format!("id = {most}\n")));
        refused(&mirror(form, &format!("id = {}\n", most + 1)), &["id = "]);
    }
    accepted(&mirror("erspan1", ""));
    let problems = refused(&mirror("erspan1", "id = 1\n"), &["id = 1"]);
    assert!(problems.to_string().contains("type I carries no number"), "{problems}");
}
