//! A campaign through the detector, without a network and without waiting: each frame comes at the
//! time at which it would be sent.

use std::sync::Arc;

use anyhow::{Result, bail};
use weir_detect::{
    Action, Alerts, Classes, Decision, Detector, FlowTable, Limits, LoadOptions, Packet, RuleSet,
    RuleSource, Variables,
};
use weir_wire::frame::{Link, Time};
use weir_wire::parse::parse;

use crate::traffic::frames::Planned;
use crate::traffic::hostile::Campaign;

/// When the first frame comes.
const START_NS: u64 = 1_000_000_000_000;
/// Alerts that one frame may make.
const ALERTS_MAX: usize = 4096;

/// Reads rules, each `(name, text)` a file; `classes` is a classification.config.
///
/// # Errors
/// A rule does not run, or there is no memory for them.
pub fn load(files: &[(&str, &str)], classes: &str) -> Result<Arc<RuleSet>> {
    let source =
        |(name, text): &(&str, &str)| RuleSource { name: (*name).into(), text: (*text).into() };
    let sources: Vec<_> = files.iter().map(source).collect();
    let mut options = LoadOptions { classes: Classes::default(), ..LoadOptions::default() };
    options.classes.read(classes);
    let loaded = RuleSet::load(&sources, &Variables::default(), &options)?;
    if let Some(refused) = loaded.report.refused.first() {
        bail!("{}, line {}: {}", refused.source, refused.line, refused.reason);
    }
    Ok(Arc::new(loaded.rules))
}

/// Shows each of `frames`, which are `campaign`'s, to a new detector, `rate` of them a second.
/// `seen` is told a frame's number, what becomes of it, and what it is told of.
///
/// # Errors
/// There is no memory for the detector.
pub fn each(
    rules: &Arc<RuleSet>,
    (campaign, frames): (&Campaign, &[Planned]),
    rate: u64,
    mut seen: impl FnMut(u64, Decision, &mut Alerts),
) -> Result<()> {
    let limits = Limits { seed: campaign.seed, ..Limits::default() };
    let mut detector = Detector::new(Arc::clone(rules), limits)?;
    let (mut flows, mut alerts) = (FlowTable::new(limits), Alerts::new(ALERTS_MAX));
    for (number, frame) in frames.iter().enumerate() {
        let now = Time(START_NS + campaign.sent_ns(number as u64, rate));
        let parsed = parse(&frame.bytes, Link::Ethernet, frame.bytes.len() as u32);
        let packet = Packet {
            bytes: &frame.bytes,
            parsed: &parsed,
            decoded: None,
            is_rebuilt: false,
            is_verified: false,
            icrc: None,
            port: None,
        };
        let decision = flows.inspect(&mut detector, now, &packet, &mut alerts);
        seen(number as u64, decision, &mut alerts);
    }
    Ok(())
}

/// What was told and dropped of a campaign.
#[derive(Debug, Default)]
pub struct Outcome {
    /// Milliseconds from the first frame to the first alert of each rule, by its sid.
    pub told: Vec<(u32, u64)>,
    /// Frames that were dropped.
    pub dropped: u64,
    /// Frames from the first alert of a rule that drops on.
    pub behind: u64,
}

/// Plays `campaign`, `rate` frames a second.
///
/// # Errors
/// As [`each`].
pub fn run(rules: &Arc<RuleSet>, campaign: &Campaign, rate: u64) -> Result<Outcome> {
    let (mut outcome, mut drops) = (Outcome::default(), false);
    each(rules, (campaign, &campaign.frames()), rate, |number, decision, alerts| {
        for alert in alerts.drain() {
            let sid = rules.rule(alert.rule).sid;
            drops |= rules.rule(alert.rule).action == Action::Drop;
            if !outcome.told.iter().any(|(known, _)| *known == sid) {
                outcome.told.push((sid, number * 1_000 / rate));
            }
        }
        if drops {
            outcome.behind += 1;
            outcome.dropped += u64::from(matches!(decision, Decision::Drop { .. }));
        }
    })?;
    Ok(outcome)
}
