//! Pairs with several workers.

use super::tags::TAGGED;
use super::*;

/// A pair with several workers, and a peer with keys in files whose SPIs are `spi`.
fn several(pair: &str, peer_lines: &str, spi: u32) -> String {
    let peer = ethernet("b", "\"everything\"", spi);
    let peer = peer.replace("seal =", &format!("{peer_lines}\nseal ="));
    format!("{HEAD}{ADDRESS}workers = 4\n{pair}{peer}")
}

#[test]
fn several_workers_take_a_peers_spis_as_the_base_of_theirs() {
    let settings = accepted(&several("", "workers = 2", 0x1000));
    assert_eq!((settings.pairs[0].workers, settings.pairs[0].peers[0].workers), (4, 2));
    let one = accepted(&format!("{HEAD}{ADDRESS}{}", ethernet("b", "\"everything\"", 4097)));
    assert_eq!((one.pairs[0].workers, one.pairs[0].peers[0].workers), (1, 1));
    refused(&several("", "workers = 2", 0x1001), &["`open` of `b`: SPI 0x1001", "`seal`"]);
    refused(&several("", "", 0x1001), &["`open` of `b`: SPI 0x1001 in a pair with several"]);
    refused(&several("", "workers = 5", 0x1000), &["workers = 5, and its pair has 4"]);
    let more = HEAD.replace("host", "workers = 17\nhost");
    let text = format!("{more}{ADDRESS}{}", ethernet("b", "\"everything\"", 4097));
    refused(&text, &["workers = 17"]);
}

#[test]
fn spis_of_several_workers_are_nobody_elses() {
    let text = several("", "workers = 2", 0x1000);
    let second = "[[peer]]\nname = \"c\"\nendpoint = \"192.0.2.3\"\nmode = \"tunnel\"\n\
                  protects = \"10.0.0.0/8\"\npair = \"p\"\n\
                  seal = { spi = 0x1001, key_file = \"c.out\" }\n\
                  open = { spi = 0x1010, key_file = \"c.in\" }\n\
                  [[pair]]\nname = \"p\"\nhost = \"h2\"\nwire = \"w2\"\n\
                  address = \"192.0.2.9/24\"\n";
    let text = format!("{}{second}", text.replace("mode = \"eth", "pair = \"h\"\nmode = \"eth"));
    refused(&text, &["have the same SPI 0x1001"]);
}

#[test]
fn several_workers_share_what_a_tagged_peer_says_and_a_pair_s_evidence() {
    let tagged = format!("{HEAD}workers = 4\n{TAGGED}tag = {{ key_file = \"ab.tag\" }}\n");
    assert_eq!(accepted(&tagged).pairs[0].peers[0].workers, 4);
    let words = ["peer `b` has `workers` and mode = \"icrc-tag\""];
    refused(&tagged.replace("tag =", "workers = 2\ntag ="), &words);
    let with = |table: &str| format!("{}{table}", several("xfrm = true\n", "", 0x1000));
    let mirror = "[[mirror]]\nname = \"m\"\nport = \"mon0\"\n";
    let settings = accepted(&with(&format!("[evidence]\nmemory_mib = 32\n{mirror}")));
    let share = settings.evidence.unwrap().share(4);
    assert_eq!((share.memory.bytes, settings.mirrors.len()), (8 << 20, 1));
    let words = ["memory_mib = 31 in [evidence], for a pair with 4 workers"];
    refused(&with("[evidence]\nmemory_mib = 31\n"), &words);
    let disk = "[evidence]\ndisk = \"e\"\ndisk_mib = 36\n";
    refused(&with(disk), &["disk_mib in [evidence] is too small for a pair with 4 workers"]);
}

#[test]
fn what_several_workers_cannot_do_is_refused_with_the_reason() {
    let tunnel = several("", "offload = \"kernel\"", 0x1000).replace("\"ethernet\"", "\"tunnel\"");
    let tunnel = tunnel.replace("\"everything\"", "\"10.0.0.0/8\"");
    refused(&tunnel, &["needs a pair with one worker"]);
    accepted(&several("driver = \"xdp\"\n", "workers = 2", 0x1000));
}
