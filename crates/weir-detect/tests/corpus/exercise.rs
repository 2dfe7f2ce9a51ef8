//! What must hold for any input of the `rules` fuzz target: rule text to the first NUL, then frames,
//! each behind a byte for its direction and two for its length.

use std::sync::Arc;

use weir_detect::{
    Alerts, Decision, Detector, Direction, FlowSlot, Limits, LoadOptions, Packet, RuleSet,
    RuleSource, Variables,
};
use weir_wire::frame::{Link, Time};
use weir_wire::parse::parse;

pub(crate) fn exercise(input: &[u8]) {
    let end = input.iter().position(|it| *it == 0).unwrap_or(input.len());
    let (text, frames) = input.split_at(end);
    let text = String::from_utf8_lossy(text).into_owned();
    let source = RuleSource { name: "input".into(), text };
    let loaded = RuleSet::load(&[source], &Variables::default(), &LoadOptions::default());
    let Ok(loaded) = loaded else { return };
    let report = &loaded.report;
    assert_eq!(report.enabled, report.runnable + report.refused.len() as u64);
    assert_eq!(report.runnable, loaded.rules.len() as u64);
    let limits = Limits { flows: 2, ..Limits::default() };
    let Ok(mut detector) = Detector::new(Arc::new(loaded.rules), limits) else { return };
    let (mut slot, mut alerts) = (FlowSlot::default(), Alerts::new(8));
    let mut rest = frames.get(1..).unwrap_or_default();
    let mut dropped = 0;
    while let [direction, high, low, behind @ ..] = rest {
        let length = usize::from(u16::from_be_bytes([*high, *low])).min(behind.len());
        let (frame, after) = behind.split_at(length);
        rest = after;
        let direction =
            if direction & 1 == 0 { Direction::Initiator } else { Direction::Responder };
        let parsed = parse(frame, Link::Ethernet, frame.len() as u32);
        let packet = Packet {
            bytes: frame,
            parsed: &parsed,
            decoded: None,
            is_rebuilt: false,
            is_verified: false,
            icrc: None,
            port: None,
        };
        let decision = detector.inspect(Time(1), &mut slot, direction, &packet, &mut alerts);
        dropped += u64::from(decision != Decision::Pass);
    }
    let counters = detector.counters();
    assert_eq!(counters.dropped, dropped);
    assert_eq!(counters.alerts, alerts.len() as u64 + alerts.overflow());
    detector.release(slot);
    assert_eq!(detector.flows(), 0);
}
