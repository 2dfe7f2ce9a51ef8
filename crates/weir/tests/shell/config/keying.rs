//! Peers whose keys are agreed by handshakes: files of keys are no part of it.

use super::*;

pub(super) const PUBLIC: &str = "B6N8vBQgk8i3Vdwb4QMstCY3StFqqFPtC9+wsrhtHHw=";
pub(super) const KEYING: &str = "[keying]\nidentity_file = \"gw.identity\"\n";

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

/// `count` peers with keys by handshakes, a prefix and an address each.
fn many_peers(count: usize) -> String {
    let mut text =
        format!("{HEAD}address = \"172.16.0.1/12\"\n[keying]\nidentity_file = \"gw.identity\"\n");
    for number in 0..count {
        let [_, b, c, d] = (number as u32 + 2).to_be_bytes();
        let key = Base64::encode_string(&{
            let mut key = [7; 32];
            key[..8].copy_from_slice(&(number as u64).to_be_bytes());
            key
        });
        text += &format!(
            "[[peer]]\nname = \"p{number}\"\nmode = \"tunnel\"\nendpoint = \"172.{}.{c}.{d}\"\n\
             protects = \"10.{b}.{c}.{d}/32\"\npublic_key = \"{key}\"\n",
            16 + b
        );
    }
    text
}

#[test]
fn sixteen_thousand_peers_are_taken_and_one_more_is_refused() {
    use weir::config::file::PEERS_MAX;
    let text = many_peers(PEERS_MAX);
    assert_eq!(accepted(&text).pairs[0].peers.len(), 16_384);
    refused(&many_peers(PEERS_MAX + 1), &["16385 tables [[peer]]"]);

    // One that overlaps is found among all, and named with its counterpart.
    let inside = text.replace("\"10.0.1.1/32\"", "\"10.0.7.0/24\"");
    let (_, problems) = understand(&inside);
    assert!(problems.refused());
    let shown = problems.to_string();
    assert!(shown.contains("`10.0.7.1/32` of peer `p1791` overlaps `10.0.7.0/24`"), "{shown}");
}

#[test]
fn a_peer_in_wireguard_mode_needs_a_key_and_an_address_and_takes_no_more_than_wireguard_knows() {
    let keying = "[keying]\nidentity_file = \"gw.identity\"\n";
    let key = "public_key = \"B6N8vBQgk8i3Vdwb4QMstCY3StFqqFPtC9+wsrhtHHw=\"\n";
    let peer = "[[peer]]\nname = \"c\"\nmode = \"wireguard\"\nendpoint = \"192.0.2.2\"\n\
                protects = \"10.0.0.0/8\"\n";
    let text = format!("{HEAD}{ADDRESS}{peer}{key}{keying}");
    assert_eq!(accepted(&text).pairs[0].peers[0].mode, Mode::WireGuard);
    for (more, wanted) in [
        ("sealing = \"prefer\"\n", "needs sealing = \"require\""),
        ("ml_kem = true\n", "needs ml_kem = false"),
    ] {
        refused(&text.replace(key, &format!("{key}{more}")), &[wanted]);
    }
    // Worker 0 has its one association.
    accepted(&text.replace(ADDRESS, &format!("{ADDRESS}workers = 2\n")));
    refused(&text.replace("\"10.0.0.0/8\"", "\"everything\""), &["with \"everything\""]);
}
