//! The kernel carries what needs no more than counting: in order, counted in full, and only while a
//! gateway lives that would let it pass.

use rustix::process::Signal;
use weir_lab::gateways::{Gateways, configurations, configure};
use weir_lab::topology::{HOST_V4, Hosts};
use weir_lab::traffic::bypass::stream_while;
use weir_lab::traffic::iperf::{self, Extent};
use weir_lab::vm::{Guest, GuestKernel};

use super::*;

const RATE_PER_SECOND: u32 = 5000;
/// A guest is emulated; a run of any tool takes seconds.
const RUN: Duration = Duration::from_secs(120);

/// Gateways that forward in clear, `mode` on the first and none on the second.
fn forwarding(mode: &str) -> Setup {
    let pair_lines = format!("fastpath = \"{mode}\"\n");
    Setup { pair_lines, ..Setup::new(WEIR, Protection::Plain) }
}

fn fast(status: &Value) -> u64 {
    number(status, "/pairs/0/host/fast") + number(status, "/pairs/0/wire/fast")
}

#[test]
fn tcp_moves_to_the_fast_path_and_every_frame_is_accounted_for() {
    let Some(Stand { _turn, lab }) = stand("tcp_moves_to_the_fast_path") else { return };
    let gateways = Gateways::start(&lab, &forwarding("tc")).unwrap();
    wait_until_it_flows(&lab);
    let address = lab.host_v4(Side::B).into();
    let report =
        iperf::tcp(lab.host(Side::A), lab.host(Side::B), address, Extent::Seconds(3)).unwrap();
    for side in Side::BOTH {
        let status = gateways.status(side).unwrap();
        let pair = &status["pairs"][0];
        assert_eq!(status["adds_up"], true);
        assert_eq!(pair["fast_path"]["state"], "open", "{pair:#}");
        let share = pair["fast_path"]["share_bytes"].as_f64().unwrap();
        assert!(share > 0.5, "{share}: {pair:#}");
        let carried = number(&status, "/pairs/0/host/fast_bytes")
            + number(&status, "/pairs/0/wire/fast_bytes");
        assert!(carried > report.bytes / 2, "{carried} of {}", report.bytes);
        let rules = pair["fast_path"]["rules"].as_array().unwrap();
        let guards = rules.iter().filter(|rule| rule["program"] == "weir_guard_in").count();
        assert_eq!(guards, 2, "{rules:?}");
        assert!(rules.iter().all(|rule| rule["placement"] != "in_hw"), "a veth is no hardware");
    }
}

#[test]
fn a_connection_that_was_inspected_for_long_moves_to_the_fast_path_and_is_counted() {
    let Some(Stand { _turn, lab }) = stand("a_connection_that_was_inspected") else { return };
    let rules = lab.folder().join("word.rules");
    let drops = "drop tcp any any -> any any (content:\"/etc/shadow\"; sid:1;)\n";
    std::fs::write(&rules, drops).unwrap();
    let rules = format!("\n[rules]\npaths = [{:?}]\nbypass_mib = 1\n", rules.display().to_string());
    let setup = Setup { tables_of_a: rules, ..forwarding("tc") };
    let gateways = Gateways::start(&lab, &setup).unwrap();
    wait_until_it_flows(&lab);
    let address = lab.host_v4(Side::B).into();
    let (a, b) = (lab.host(Side::A), lab.host(Side::B));
    // Less than the bound: all of it is inspected.
    iperf::tcp(a, b, address, Extent::Bytes(500_000)).unwrap();
    let before = gateways.status(Side::A).unwrap();
    assert_eq!(fast(&before), 0, "{before:#}");
    assert!(number(&before, "/pairs/0/detection/packets") > 0, "{before:#}");
    assert_eq!(number(&before, "/pairs/0/detection/bypassed"), 0, "{before:#}");
    let report = iperf::tcp(a, b, address, Extent::Seconds(3)).unwrap();
    let status = gateways.status(Side::A).unwrap();
    assert_eq!(status["adds_up"], true);
    assert!(number(&status, "/pairs/0/detection/bypassed") > 0, "{status:#}");
    let carried = number(&status, "/pairs/0/host/fast_bytes");
    assert!(carried > report.bytes / 2, "{carried} of {}: {status:#}", report.bytes);
    // What it carried is counted as received and forwarded.
    let received = number(&status, "/pairs/0/host/received_bytes");
    assert!(received >= report.bytes, "{received}: {status:#}");
}

#[test]
fn a_connection_between_the_ports_of_one_that_was_carried_is_inspected() {
    let Some(Stand { _turn, lab }) = stand("a_connection_between_the_ports") else { return };
    let rules = lab.folder().join("word.rules");
    // Behind the bound nobody finds it.
    let drops = "drop tcp any any -> any any (content:\"/etc/shadow\"; sid:1;)\n";
    std::fs::write(&rules, drops).unwrap();
    let rules = format!("\n[rules]\npaths = [{:?}]\nbypass_mib = 1\n", rules.display().to_string());
    let setup = Setup { tables_of_a: rules, ..forwarding("tc") };
    let gateways = Gateways::start(&lab, &setup).unwrap();
    wait_until_it_flows(&lab);
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/gateway/successors.py");
    let address = lab.host_v4(Side::B).to_string();
    let python = |side: Side, role: &str| {
        let mut command = lab.host(side).command("python3");
        command.args(["-B", script, role, &address]);
        command
    };
    let mut server = Running::start(&mut python(Side::B, "server")).unwrap();
    server.wait_for("ready", PATIENCE).unwrap();
    let done = process::run(&mut python(Side::A, "client"), PATIENCE).unwrap();
    let said = done.success("connections").unwrap();
    // Long after the bound the word passes; in the next connection it does not.
    assert_eq!(said.stdout.trim(), "rst True False\nfin True False");
    let status = gateways.status(Side::A).unwrap();
    assert_eq!(status["adds_up"], true);
    assert!(fast(&status) > 0, "{status:#}");
}

#[test]
fn a_stream_changes_paths_back_and_forth_and_nothing_is_lost_altered_or_reordered() {
    let Some(Stand { _turn, lab }) = stand("a_stream_changes_paths") else { return };
    let setup = forwarding("tc");
    let texts = configurations(&lab, &setup).unwrap();
    let mut gateways = Gateways::start_configured(&lab, &setup, &texts).unwrap();
    wait_until_it_flows(&lab);
    let frames = RoceStream::new(1024).unwrap();
    let (streamed, ()) = stream_while(&lab, &frames, RATE_PER_SECOND, || {
        for round in 2..=5 {
            // On the fast path first, so that the reload takes it off.
            let before = gateways.status(Side::A).unwrap();
            wait_status(&gateways, Side::A, |status| fast(status) > fast(&before) + 500);
            let icrc = if round % 2 == 0 { "off" } else { "check" };
            reload(&lab, &mut gateways, &texts, &format!("icrc = \"{icrc}\""), round);
        }
    })
    .unwrap();
    let seen = Side::BOTH.map(|side| gateways.status(side).unwrap()["pairs"][0].clone());
    assert!(streamed.is_exact(), "{streamed:?} {seen:#?}");
    for side in Side::BOTH {
        let status = gateways.status(side).unwrap();
        assert_eq!(status["adds_up"], true);
        // A machine that stops for a moment makes the gateway begin anew, and say so.
        let halts = gateways.log(side).matches("came to a halt").count() as u64;
        assert_eq!(number(&status, "/pairs/0/fast_path/voided"), 4 + halts);
        assert_eq!(number(&status, "/pairs/0/rdma/packets"), streamed.sent, "{status:#}");
        assert_eq!(number(&status, "/pairs/0/rdma/retransmissions"), 0, "{status:#}");
        assert!(fast(&status) > streamed.sent / 4, "{status:#}");
    }
}

#[test]
fn a_killed_gateway_carries_nothing_any_more() {
    let Some(Stand { _turn, lab }) = stand("a_killed_gateway_carries_nothing") else { return };
    let setup = forwarding("auto");
    let mut gateways = Gateways::start(&lab, &setup).unwrap();
    wait_until_it_flows(&lab);
    let from_host_a = format!("src host {} or src host {}", HOST_V4[0], HOST_V6[0]);
    under_traffic(&lab, || {
        wait_status(&gateways, Side::A, |status| fast(status) > 1000);
        gateways.end(Side::A, Signal::KILL).unwrap();
        let wire = listen(&lab, 128);
        pause(2000);
        let wire = wire.stop().unwrap();
        assert_eq!(wire.count(&from_host_a).unwrap(), 0, "of a gateway that is dead");
        gateways.start_again(&lab, &setup, Side::A).unwrap();
        wait_status(&gateways, Side::A, |status| fast(status) > 1000);
        // One that hangs carries nothing either, once its lease has run out.
        gateways.daemon(Side::A).signal(Signal::STOP).unwrap();
        pause(2000);
        let wire = listen(&lab, 128);
        pause(1000);
        let wire = wire.stop().unwrap();
        assert_eq!(wire.count(&from_host_a).unwrap(), 0, "of a gateway that hangs");
        gateways.daemon(Side::A).signal(Signal::CONT).unwrap();
        let status = gateways.status(Side::A).unwrap();
        wait_status(&gateways, Side::A, |after| fast(after) > fast(&status) + 1000);
    });
}

#[test]
fn a_policy_that_seals_takes_everything_off_the_fast_path_at_once() {
    let Some(Stand { _turn, lab }) = stand("a_policy_that_seals") else { return };
    let plain = forwarding("auto");
    let seals = Setup { protection: Protection::Sealed, ..plain.clone() };
    let clear = configurations(&lab, &plain).unwrap();
    let sealed = configurations(&lab, &seals).unwrap();
    let mut gateways = Gateways::start_configured(&lab, &plain, &clear).unwrap();
    wait_until_it_flows(&lab);
    under_traffic(&lab, || {
        wait_status(&gateways, Side::A, |status| fast(status) > 1000);
        // From the first moment that a gateway says so, nothing that it sends is in clear.
        for side in Side::BOTH {
            configure(&lab, side, &sealed[side.index()]).unwrap();
            gateways.daemon(side).signal(Signal::HUP).unwrap();
            wait_status(&gateways, side, |it| it["pairs"][0]["policy_epoch"] == 2);
        }
        let wire = listen(&lab, 512);
        wait_until_it_flows(&lab);
        pause(1000);
        let wire = wire.stop().unwrap();
        assert!(wire.count(ESP).unwrap() > 100, "traffic was sealed meanwhile");
        assert_sealed(&wire);
        let status = gateways.status(Side::A).unwrap();
        let state = status["pairs"][0]["fast_path"]["state"].as_str().unwrap();
        assert!(state.contains("seals"), "{state}");
        assert_eq!(number(&status, "/pairs/0/fast_path/flows"), 0);
    });
}

#[test]
fn what_can_never_be_carried_is_refused_with_its_reason() {
    let Some(Stand { _turn, lab }) = stand("what_can_never_be_carried") else { return };
    let pair_lines = "fastpath = \"tc\"\n".to_owned();
    let seals = Setup { pair_lines, ..sealed() };
    let error = Gateways::start(&lab, &seals).expect_err("nothing could be carried").to_string();
    let error = format!("{error} {:?}", Gateways::start(&lab, &seals).map(drop));
    assert!(error.contains("no traffic of a pair that seals"), "{error}");
}

#[test]
fn soft_roce_through_the_fast_path_is_in_order_and_counted_as_without_it() {
    let test = "soft_roce_through_the_fast_path";
    let kernel = match GuestKernel::find() {
        Ok(kernel) => kernel,
        Err(reason) => return eprintln!("SKIPPED: {test}: {reason:#}"),
    };
    let plan = Plan { hosts: Hosts::Guests, ..Plan::default() };
    let Some(Stand { _turn, lab }) = stand_with(test, plan) else { return };
    let mut a = Guest::boot(&lab, Side::A, &kernel).unwrap();
    let mut b = Guest::boot(&lab, Side::B, &kernel).unwrap();
    // The first gateway with, the second without: both see the same packets.
    let setup = forwarding("tc");
    let mut texts = configurations(&lab, &setup).unwrap();
    texts[1] = texts[1].replace("fastpath = \"tc\"\n", "");
    let mut gateways = Gateways::start_configured(&lab, &setup, &texts).unwrap();
    a.wait_ready().unwrap();
    b.wait_ready().unwrap();
    let address = HOST_V4[1];
    let mut epoch = 1;
    for tool in [
        "ib_write_bw -d rxe0 -x 1 -m 1024 -n 500",
        "ib_send_bw -d rxe0 -x 1 -m 1024 -n 500",
        "ib_read_bw -d rxe0 -x 1 -m 1024 -n 500",
        "ib_write_lat -d rxe0 -x 1 -m 1024 -n 500",
        "ib_atomic_lat -d rxe0 -x 1 -n 500",
    ] {
        let server = b.start(tool).unwrap();
        b.wait_for_rdma_server().unwrap();
        let client = a.start(&format!("{tool} {address}")).unwrap();
        // Off the fast path in the middle of it, and on again.
        pause(1500);
        epoch += 1;
        let icrc = if epoch % 2 == 0 { "off" } else { "check" };
        let changed = format!("[[pair]]\nicrc = \"{icrc}\"");
        configure(&lab, Side::A, &texts[0].replace("[[pair]]", &changed)).unwrap();
        gateways.daemon(Side::A).signal(Signal::HUP).unwrap();
        let done = client.finish(RUN).unwrap();
        // perftest dislikes the clock of an emulated machine; the transfer is done by then.
        let is_done = done.code == 0 || done.output.contains("Correlation coefficient");
        assert!(is_done, "{tool}: {}", done.output);
        b.finish_or_stop(server, RUN).unwrap();
    }
    let rdma = |side: Side| gateways.status(side).unwrap()["pairs"][0]["rdma"].clone();
    let last = |side: Side| number(&gateways.status(side).unwrap(), "/pairs/0/rdma/packets");
    interrupt::until("the same number of packets", PATIENCE, || {
        Ok(last(Side::A) == last(Side::B) && last(Side::A) == last(Side::B))
    })
    .unwrap();
    let (mut with, mut without) = (rdma(Side::A), rdma(Side::B));
    for rdma in [&mut with, &mut without] {
        let rdma = rdma.as_object_mut().unwrap();
        // What a copy of some packets cannot tell (docs/guide/fastpath.md).
        for name in ["icrc_ok", "icrc_bad", "icrc_unchecked", "losses"] {
            rdma.remove(name);
        }
    }
    let fast_path = &gateways.status(Side::A).unwrap()["pairs"][0]["fast_path"];
    assert_eq!(with, without, "{fast_path:#}");
    assert_eq!(with["naks"], serde_json::json!({}), "no packet overtook another: {with:#}");
    let status = gateways.status(Side::A).unwrap();
    assert_eq!(status["adds_up"], true);
    assert_eq!(number(&status, "/pairs/0/fast_path/events_lost"), 0);
    let (fast, all) = (fast(&status), number(&status, "/pairs/0/rdma/packets"));
    eprintln!("{fast} frames carried, {all} RDMA packets; {:#}", status["pairs"][0]["fast_path"]);
    assert!(fast > all / 4, "{fast} of {all}: {:#}", status["pairs"][0]["fast_path"]);
}
