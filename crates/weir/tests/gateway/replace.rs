//! Texts that rules replace on the way between two real hosts: each gets the new ones in the place
//! of the old, in a connection that goes on.

use serde_json::json;
use weir_lab::topology::HOST_DEVICE;

use super::*;

const SCRIPT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/gateway/replace.py");
/// What host B asks, and what host A answers; each is of another port of the gateway.
const RULES: &str = "\
    alert tcp any any -> any any (content:\"an evil word\"; replace:\" a good word\"; sid:1;)\n\
    alert tcp any any -> any any (content:\"an old answer\"; replace:\"a new answer!\"; sid:2;)\n";
/// Requests of one exchange, and as many answers.
const ROUNDS: usize = 3;
const SIZE: usize = 40_000;

fn gateways(lab: &Lab, protection: Protection) -> Gateways {
    let path = lab.folder().join("replace.rules");
    std::fs::write(&path, RULES).unwrap();
    let tables_of_a = format!("\n[rules]\npaths = [{path:?}]\n");
    sealing_gateways(lab, &Setup { tables_of_a, ..Setup::new(WEIR, protection) })
}

/// A connection of host B to host A; what the server and the client tell of it.
fn exchange(lab: &Lab, port: &str) -> [Value; 2] {
    let run = |side, arguments: &[&str]| {
        let mut command = lab.host(side).command("python3");
        command.args(["-B", SCRIPT]).args(arguments);
        command
    };
    let mut server = Running::start(&mut run(Side::A, &["serve", port])).unwrap();
    server.wait_for("ready", PATIENCE).unwrap();
    let address = lab.host_v4(Side::A).to_string();
    let asked = process::run(&mut run(Side::B, &["ask", port, &address]), PATIENCE).unwrap();
    let asked = asked.success("the client").unwrap().stdout;
    let served = server.finish(PATIENCE).unwrap().success("the server").unwrap().stdout;
    [served, asked].map(|said| serde_json::from_str(said.lines().last().unwrap()).unwrap())
}

/// All of it came, with the new texts, and no kernel discarded a segment.
#[track_caller]
fn assert_replaced(exchanged: &[Value; 2]) {
    for (told, word) in exchanged.iter().zip([" a good word", "a new answer!"]) {
        let all = vec![json!({ "word": word, "length": SIZE }); ROUNDS];
        assert_eq!(*told, json!({ "told": all, "wrong_checksums": 0 }));
    }
}

/// Hosts that cut what they send into segments and make checksums themselves; else both is left to
/// the gateway's port and to whoever receives from it.
fn without_offload(lab: &Lab) {
    for side in Side::BOTH {
        let line = format!("ethtool -K {HOST_DEVICE} tx off rx off tso off gso off gro off");
        lab.host(side).run(&line).unwrap();
    }
}

fn texts_arrive_replaced(lab: &Lab, protection: Protection) {
    let gateways = gateways(lab, protection);
    assert_replaced(&exchange(lab, "7001"));
    without_offload(lab);
    assert_replaced(&exchange(lab, "7002"));
    let replaced = 2 * 2 * ROUNDS as u64;
    let status = wait_status(&gateways, Side::A, |it| {
        it["pairs"][0]["detection"]["replaced"].as_u64() >= Some(replaced)
    });
    assert_eq!(status["adds_up"], true, "{status:#}");
    assert_eq!(number(&status, "/pairs/0/detection/not_replaced"), 0, "{status:#}");
}

#[test]
fn texts_arrive_replaced_and_their_checksums_are_accepted() {
    let Some(Stand { _turn, lab }) = stand("texts_arrive_replaced") else { return };
    texts_arrive_replaced(&lab, Protection::Plain);
}

#[test]
fn texts_are_replaced_before_they_are_sealed_and_after_they_were_opened() {
    let Some(Stand { _turn, lab }) = stand("texts_are_replaced_sealed") else { return };
    let wire = listen(&lab, 9100);
    texts_arrive_replaced(&lab, Protection::Sealed);
    assert_sealed(&wire.stop().unwrap());
}
