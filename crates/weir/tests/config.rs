//! What the configuration accepts and refuses, and with which words.

use std::path::Path;

use weir::config::problem::{Place, Severity};
use weir::config::settings::*;
use weir::config::{self, KeyAccess, Problems, Settings};

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
    assert_eq!(problem.place, Some(Place { line: 6, column: 1 }));
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
}

#[test]
fn a_missing_oversized_or_binary_file_is_one_clear_error() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("weir.toml");
    let error = |path: &Path| config::load(path, KeyAccess::Needed).unwrap_err().to_string();
    assert!(error(&path).contains("cannot read it: No such file"), "{}", error(&path));
    std::fs::write(&path, [0xff, 0xfe]).unwrap();
    assert!(error(&path).contains("not UTF-8"));
    std::fs::write(&path, vec![b'#'; (4 << 20) + 1]).unwrap();
    assert!(error(&path).contains("longer than 4 MiB"));
}

#[test]
fn a_flood_of_problems_is_cut_off() {
    let unknown: String = (0..20_000).map(|number| format!("k{number} = 1\n")).collect();
    let (_, problems) = understand(&format!("[gateway]\nname = \"g\"\n{unknown}"));
    assert_eq!(problems.problems.len(), 100);
    assert!(problems.to_string().contains("only the first 100"));
}

const PUBLIC: &str = "B6N8vBQgk8i3Vdwb4QMstCY3StFqqFPtC9+wsrhtHHw=";
const KEYING: &str = "[keying]\nidentity_file = \"gw.identity\"\n";

fn keyed(rest: &str) -> String {
    format!(
        "{HEAD}{ADDRESS}[[peer]]\nname = \"b\"\nmode = \"ethernet\"\nprotects = \"everything\"\n\
         endpoint = \"192.0.2.2\"\npublic_key = \"{PUBLIC}\"\n{rest}"
    )
}

#[test]
fn a_peer_with_a_public_key_needs_an_identity_and_no_other_key() {
    let settings = accepted(&keyed(KEYING));
    let keying = settings.keying.as_ref().unwrap();
    assert_eq!((keying.port, keying.limits.rekey_after_ns), (51840, 120_000_000_000));
    assert_eq!(keying.identity_file, Path::new("/etc/weir/gw.identity"));
    assert_eq!(settings.associations().count(), 0);

    refused(&keyed(""), &["peers with `public_key`, and no [keying]"]);
    let association = "seal = { spi = 4097, key_file = \"a\" }\n";
    refused(&keyed(&format!("{association}{KEYING}")), &["a `public_key` and a key of its own"]);
    refused(
        &keyed(&format!("extended_sequence = false\n{KEYING}")),
        &["extended_sequence = false"],
    );
    refused(&keyed(KEYING).replace(PUBLIC, "AAAA"), &["is no public key"]);
    let without =
        format!("{HEAD}{ADDRESS}{}ml_kem = true\n", ethernet("b", "\"everything\"", 4097));
    refused(&without, &["`ml_kem` without `public_key`"]);
    let neither = keyed("").replace(&format!("public_key = \"{PUBLIC}\"\n"), "");
    refused(&neither, &["no `public_key`, and no `seal`", "no `public_key`, and no `open`"]);
}

#[test]
fn two_peers_cannot_have_one_public_key() {
    let second = format!(
        "[[peer]]\nname = \"c\"\nmode = \"ethernet\"\nprotects = [\"10.0.0.0/8\"]\n\
         endpoint = \"192.0.2.3\"\npublic_key = \"{PUBLIC}\"\n"
    );
    refused(&keyed(&format!("{second}{KEYING}")), &["have the same public key"]);
}

#[test]
fn bounds_of_keying_are_named() {
    for (line, words) in [
        ("rekey_after_s = 0", "write a number from 1 to 86400"),
        ("rekey_after_mib = 0", "write 1 or more"),
        ("rekey_after_packets = 10", "write 1000 or more"),
        ("keepalive_ms = 5", "write a number from 100 to 60000"),
        ("port = 4500", "another protocol's"),
    ] {
        refused(&keyed(&format!("{KEYING}{line}\n")), &[words]);
    }
    accepted(&keyed(&format!("{KEYING}keepalive_ms = 0\n")));
    let waits = keyed(KEYING).replace("endpoint = \"192.0.2.2\"\n", "");
    accepted(&waits);
}
