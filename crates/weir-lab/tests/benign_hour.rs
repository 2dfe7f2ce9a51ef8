//! An hour of what harmless hosts do, in virtual time, through a whole engine with the rules in
//! `rules/`: every attack's twin, each between hosts of its own, in bursts as they come.

use std::path::Path;
use std::sync::Arc;

use weir_detect::{Expected, Limits, LoadOptions, RuleSet, RuleSource, Variables};
use weir_engine::detect::{RuleMode, Rules};
use weir_engine::meter::{Meter, MeterLimits};
use weir_engine::pipeline::{Associations, Engine};
use weir_engine::policy::Policy;
use weir_engine::verdict::Side;
use weir_lab::traffic::hostile::{Campaign, Hostile};
use weir_wire::frame::{Frame, Link, Meta, Offload, Time};

const HOUR_NS: u64 = 3_600_000_000_000;
const BEGIN: Time = Time(1_700_000_000_000_000_000);
/// Frames of a twin in the hour, in so many bursts, so many a second within one.
const COUNT: usize = 4_000;
const BURSTS: u64 = 40;
const RATE: u64 = 200;
const WIRE_MTU: u16 = 9000;

fn engine() -> Engine {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../rules");
    let source = |name: &str| RuleSource {
        name: name.to_owned(),
        text: std::fs::read_to_string(folder.join(name)).expect("it is there"),
    };
    let sources = [source("rdma.rules"), source("flood.rules")];
    let loaded = RuleSet::load(&sources, &Variables::default(), &LoadOptions::default());
    let set = Arc::new(loaded.expect("memory").rules);
    let mut policy = Policy::watch(1, WIRE_MTU);
    // Addresses are changed below.
    policy.check_icrc = false;
    let limits = Limits { seed: 11, ..Limits::default() };
    policy.rules = Some(Rules {
        set,
        mode: RuleMode::Enforce,
        limits,
        tells_records: false,
        expected: Expected::default(),
    });
    let meter = Meter::new(MeterLimits::default(), 7);
    Engine::new(policy, Associations::default(), meter).expect("memory")
}

/// The second byte of an IPv4 packet's addresses: each pair of hosts a network of its own.
fn move_to(network: u8, frame: &mut [u8]) {
    for at in [26, 30] {
        if frame[12..14] == [8, 0] && frame[at] == 10 {
            frame[at + 1] = network;
        }
    }
}

/// When, from which side, and what.
fn hour() -> Vec<(u64, Side, Vec<u8>)> {
    let mut events = Vec::new();
    for (number, (_, hostile)) in (100..).zip(Hostile::ALL) {
        let campaign = Campaign { hostile, is_benign: true, count: COUNT, sources: 1, seed: 5 };
        let frames = campaign.frames();
        let each = frames.len().div_ceil(BURSTS as usize);
        for (burst, run) in (0..).zip(frames.chunks(each)) {
            let begin = burst * HOUR_NS / BURSTS + u64::from(number) * 1_000_000_000;
            for (at, frame) in (0..).zip(run) {
                let mut bytes = frame.bytes.clone();
                move_to(number, &mut bytes);
                // Host B is beyond the wire.
                let side = if bytes[26..30].ends_with(&[1]) { Side::Host } else { Side::Wire };
                events.push((begin + at * 1_000_000_000 / RATE, side, bytes));
            }
        }
    }
    events.sort_by_key(|event| event.0);
    events
}

#[test]
fn an_hour_of_harmless_traffic_raises_no_alarm_and_loses_nothing() {
    let mut engine = engine();
    let (mut alerts, mut frames) = (Vec::new(), 0_u64);
    for (at, side, bytes) in hour() {
        let time = BEGIN.plus_ns(at);
        let original_len = bytes.len() as u32;
        let mut buffer = [&[0; 192][..], &bytes, &[0; 64]].concat();
        let meta = Meta { time, original_len, link: Link::Ethernet, offload: Offload::default() };
        let end = buffer.len() - 64;
        engine.process(time, side, &mut [Frame::new(&mut buffer, 192, end, meta)]);
        frames += 1;
        engine.take_alerts(&mut |alert, rules| {
            alerts.push((at / 1_000_000_000, rules.rule(alert.rule).message.clone()));
        });
    }
    assert!(frames >= 80_000, "{frames}");
    assert_eq!(alerts, [], "second and message");
    let (host, wire) = (&engine.counters().host, &engine.counters().wire);
    assert_eq!(host.dropped_total() + wire.dropped_total(), 0);
    assert_eq!(host.forwarded + wire.forwarded, frames);
    assert!(host.adds_up() && wire.adds_up());
}
