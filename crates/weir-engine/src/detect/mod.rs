//! Rules at the joint: every packet in clear is looked at by `weir-detect`, and a rule may drop it.
//!
//! ```text
//!   packet that access lets pass -> its flow -> rules --Drop, Reject--> dropped as `rule`
//!                                                 |  `--else---------> passes
//!                                                 `--> alerts, taken by the shell
//! ```
//!
//! The rules are shared by all workers; flows, counts and thresholds are each worker's own.

use std::collections::HashMap;
use std::sync::Arc;

use weir_detect::{
    Alert, Alerts, Blocked, Counters, Decision, Detector, FlowTable, Limits, Packet, RuleIndex,
    RuleSet,
};
use weir_wire::frame::Time;
use weir_wire::parse::Parsed;

use crate::verdict::DropReason;

/// Alerts that wait to be taken, of one worker; further ones are lost and counted.
pub const ALERTS_MAX: usize = 4096;

/// Flows that end in one call of [`Detection::expire`], at most.
const EXPIRED_MAX: usize = 64;

/// What rules may do to packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RuleMode {
    /// `drop` and `reject` drop.
    #[default]
    Enforce,
    /// Everything passes; alerts say what would have been dropped.
    Watch,
}

/// The rules of a policy.
#[derive(Clone, Debug)]
pub struct Rules {
    /// Compiled, shared by all workers.
    pub set: Arc<RuleSet>,
    /// What they may do.
    pub mode: RuleMode,
    /// Bounds of one worker's detector.
    pub limits: Limits,
}

impl PartialEq for Rules {
    /// Whether they are the same set, not only one of the same text.
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.set, &other.set) && self.mode == other.mode && self.limits == other.limits
    }
}

impl Eq for Rules {}

/// One worker's detector, its flows, and what waits to be told.
#[derive(Debug)]
pub struct Detection {
    mode: RuleMode,
    detector: Detector,
    flows: FlowTable,
    alerts: Alerts,
    /// Alerts of rules that ran before.
    left: Vec<(Arc<RuleSet>, Vec<Alert>)>,
    /// Packets that each rule dropped, or would have, by its index.
    dropped: Vec<u64>,
    would_drop: u64,
}

/// A rule that dropped packets, or would have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RuleDrops<'a> {
    /// Its number.
    pub sid: u32,
    /// Its `msg`.
    pub message: &'a str,
    /// How many packets.
    pub packets: u64,
}

impl Detection {
    /// A detector with `rules` and no flow yet.
    ///
    /// # Errors
    /// [`NoMemory`].
    pub(crate) fn new(rules: &Rules) -> Result<Self, NoMemory> {
        let detector = Detector::new(Arc::clone(&rules.set), rules.limits).or(Err(NoMemory))?;
        Ok(Self {
            mode: rules.mode,
            detector,
            flows: FlowTable::new(rules.limits),
            alerts: Alerts::new(ALERTS_MAX),
            left: Vec::new(),
            dropped: vec![0; rules.set.len()],
            would_drop: 0,
        })
    }

    /// Goes on with other rules; flows stay. Rules of the same number go on counting.
    ///
    /// # Errors
    /// [`NoMemory`]; the rules before run on.
    pub(crate) fn swap(&mut self, rules: &Rules) -> Result<(), NoMemory> {
        self.mode = rules.mode;
        let before = Arc::clone(self.detector.rules());
        if Arc::ptr_eq(&before, &rules.set) {
            return Ok(());
        }
        self.detector.swap(Arc::clone(&rules.set)).or(Err(NoMemory))?;
        let alerts: Vec<Alert> = self.alerts.drain().collect();
        if !alerts.is_empty() {
            self.left.push((Arc::clone(&before), alerts));
        }
        let counted: HashMap<(u32, u32), u64> = before
            .iter()
            .zip(&self.dropped)
            .filter(|(_, packets)| **packets > 0)
            .map(|(rule, packets)| ((rule.generator, rule.sid), *packets))
            .collect();
        let packets = |rule: &weir_detect::Rule| counted.get(&(rule.generator, rule.sid)).copied();
        self.dropped = rules.set.iter().map(|it| packets(it).unwrap_or_default()).collect();
        Ok(())
    }

    /// Whether a packet may pass; one that `is_spared` does, whatever a rule says, which is told
    /// as what would have been.
    ///
    /// # Errors
    /// [`DropReason::Rule`].
    pub(crate) fn judge(
        &mut self,
        now: Time,
        bytes: &[u8],
        parsed: &Parsed,
        is_spared: bool,
    ) -> Result<(), DropReason> {
        let Self { detector, flows, alerts, .. } = self;
        let told = alerts.len();
        let rule =
            match flows.inspect(detector, now, &Packet { bytes, parsed, decoded: None }, alerts) {
                Decision::Pass => return Ok(()),
                Decision::Drop { rule } | Decision::Reject { rule } => rule,
            };
        self.dropped[rule.0 as usize] += 1;
        if is_spared {
            self.alerts.spare_from(told);
        }
        if is_spared || self.mode == RuleMode::Watch {
            self.would_drop += 1;
            return Ok(());
        }
        Err(DropReason::Rule)
    }

    /// Hands over the alerts that wait, with the rules that they are of.
    pub(crate) fn take_alerts(&mut self, take: &mut dyn FnMut(Alert, &Arc<RuleSet>)) {
        let mode = self.mode;
        let mut hand_over = |mut alert: Alert, rules: &Arc<RuleSet>| {
            if mode == RuleMode::Watch && alert.blocked != Blocked::No {
                alert.blocked = Blocked::Would;
            }
            take(alert, rules);
        };
        for (rules, alerts) in self.left.drain(..) {
            alerts.into_iter().for_each(|alert| hand_over(alert, &rules));
        }
        let rules = Arc::clone(self.detector.rules());
        self.alerts.drain().for_each(|alert| hand_over(alert, &rules));
    }

    /// Ends a few flows that have been silent for long.
    pub(crate) fn expire(&mut self, now: Time) {
        self.flows.expire(now, EXPIRED_MAX, &mut self.detector);
    }

    /// The rules that run.
    pub fn rules(&self) -> &Arc<RuleSet> {
        self.detector.rules()
    }

    /// What they may do.
    pub fn mode(&self) -> RuleMode {
        self.mode
    }

    /// What the detector counted.
    pub fn counters(&self) -> Counters {
        self.detector.counters()
    }

    /// Flows that it keeps state of.
    pub fn flows(&self) -> usize {
        self.flows.len()
    }

    /// Flows that were forgotten before their time, for there was no room.
    pub fn flows_evicted(&self) -> u64 {
        self.flows.evicted()
    }

    /// Alerts for which there was no room.
    pub fn alerts_lost(&self) -> u64 {
        self.alerts.overflow()
    }

    /// Packets that passed although a rule drops them, in [`RuleMode::Watch`].
    pub fn would_drop(&self) -> u64 {
        self.would_drop
    }

    /// The rules that dropped packets, or would have, in their order.
    pub fn drops(&self) -> impl Iterator<Item = RuleDrops<'_>> {
        let rules = self.rules();
        let dropped = self.dropped.iter().zip(0..).filter(|(packets, _)| **packets > 0);
        dropped.map(|(packets, index)| {
            let rule = rules.rule(RuleIndex(index));
            RuleDrops { sid: rule.sid, message: &rule.message, packets: *packets }
        })
    }
}

/// The pattern matcher has no memory for its scans.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no memory for a detector with these rules")]
pub struct NoMemory;
