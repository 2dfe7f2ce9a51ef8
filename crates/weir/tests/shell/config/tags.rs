//! Peers that tag instead of seal.

use super::*;

pub(super) const TAGGED: &str = "[[peer]]\nname = \"b\"\nmode = \"icrc-tag\"\n\
    weaker_than_esp = true\nprotects = \"10.0.0.2/32\"\n";

#[test]
fn tags_must_be_called_weaker_than_esp() {
    let whole = format!("{HEAD}{TAGGED}tag = {{ key_file = \"ab.tag\" }}\n");
    let settings = accepted(&whole);
    let peer = &settings.pairs[0].peers[0];
    assert_eq!(peer.mode, Mode::IcrcTag);
    let tagging = peer.tag.unwrap();
    assert_eq!((tagging.keyed_by, tagging.epoch_s), (KeyedBy::QueuePair, 10));
    assert_eq!(tagging.other, OtherTraffic::Drop);
    assert!(understand(&whole).1.to_string().contains("32 bits, and readable"), "a warning");
    for silent in ["", "weaker_than_esp = false\n"] {
        let text = whole.replace("weaker_than_esp = true\n", silent);
        let problems = refused(&text, &["is weaker than ESP: nothing is encrypted"]);
        assert!(problems.to_string().contains("write weaker_than_esp = true here"));
    }
    let sealed = ethernet("b", "\"everything\"", 4097);
    let text = sealed.replace("mode =", "weaker_than_esp = true\nmode =");
    refused(&format!("{HEAD}{ADDRESS}{text}"), &["whose packets are sealed by ESP"]);
}

#[test]
fn tags_take_keys_from_one_place_and_say_what_is_too_much() {
    let with = |more: &str| format!("{HEAD}{TAGGED}{more}");
    refused(&with(""), &["no `public_key`, and no `key_file`"]);
    let association = "{ spi = 256, key_file = \"x\" }";
    let file = "tag = { key_file = \"ab.tag\" }\n";
    refused(&with(&format!("{file}seal = {association}")), &["whose packets are not sealed"]);
    refused(&with("tag = { key_file = \"a\", previous_key_file = \"a\" }"), &["are the same"]);
    for epoch in [0, 3601] {
        let tag = format!("tag = {{ key_file = \"a\", epoch_s = {epoch} }}");
        refused(&with(&tag), &["epoch_s ="]);
    }
    refused(&with("tag = { key_file = \"a\", keyed_by = \"flow\" }"), &["unknown variant `flow`"]);
    let everything = with(file).replace("\"10.0.0.2/32\"", "\"everything\"");
    refused(&everything, &["icrc-tag mode with \"everything\""]);
    let text = with(file).replace("[[peer]]", "default = \"seal\"\n[[peer]]");
    refused(&text, &["needs a pair without default = \"seal\""]);
    let endpoint = format!("{file}endpoint = \"192.0.2.2\"\n");
    let text = format!("{HEAD}{ADDRESS}{TAGGED}{endpoint}");
    refused(&text, &["packets keep their own addresses"]);
    let second = TAGGED.replace("\"b\"", "\"c\"").replace("0.2/", "0.3/");
    let text = with(&format!("{file}{second}{file}"));
    refused(&text, &["peers `b` and `c` have the same key file"]);
}

#[test]
fn tags_by_handshakes_have_no_file_and_no_epochs() {
    let key = "public_key = \"B6N8vBQgk8i3Vdwb4QMstCY3StFqqFPtC9+wsrhtHHw=\"\n";
    let keying = "[keying]\nidentity_file = \"gw.identity\"\n";
    let with = |tag: &str| format!("{HEAD}{TAGGED}{key}{tag}{keying}");
    accepted(&with(""));
    accepted(&with("tag = { other = \"clear\", keyed_by = \"partition\" }\n"));
    let what = "and keys or epochs of its own";
    refused(&with("tag = { key_file = \"a\" }\n"), &[what]);
    refused(&with("tag = { epoch_s = 10 }\n"), &[what]);
}

#[test]
fn a_tagged_peer_takes_every_step_of_a_roll_out() {
    for sealing in ["observe", "prefer", "require"] {
        let file = "tag = { key_file = \"ab.tag\" }\n";
        accepted(&format!("{HEAD}{TAGGED}sealing = \"{sealing}\"\n{file}"));
    }
}

/// The guide's examples are configurations.
#[test]
fn the_guide_to_tags_shows_what_is_accepted() {
    let guide = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/guide/icrc-tag.md");
    let guide = std::fs::read_to_string(guide).unwrap();
    let examples: Vec<&str> =
        guide.split("```toml\n").skip(1).map(|it| it.split("```").next().unwrap()).collect();
    assert!(examples.len() >= 2, "{} examples", examples.len());
    for example in examples {
        let settings = accepted(example);
        assert_eq!(settings.pairs[0].peers[0].mode, Mode::IcrcTag);
    }
}
