//! Rules at the joint: every packet in clear is looked at by `weir-detect`, and a rule may drop it.
//!
//! ```text
//!   packet that access lets pass -> its flow -> rules --Drop, Reject--> dropped as `rule`
//!                                                 |  `--else---------> passes
//!                                                 `--> alerts, taken by the shell
//! ```
//!
//! The rules are shared by all workers; flows are each worker's own, and what rules count over
//! flows the workers tell each other (docs/adr/0221).

mod drops;
mod early;
mod reject;
mod replace;

use std::collections::HashMap;
use std::sync::Arc;

use weir_detect::alert::TunnelView;
use weir_detect::dataset::Change;
use weir_detect::record::{
    AnomalyRecord, ApplicationRecord, DropRecord, FlowRecord, HttpRecord, UnitRecord,
};
use weir_detect::tunnels::TunnelPorts;
use weir_detect::{
    Alert, Alerts, Answered, Blocked, Counters, Decision, Detector, Expected, Flood, FlowTable,
    Limits, Packet, RuleIndex, RuleSet, SharedCounts, Unseen,
};
use weir_wire::bth::Qpn;
use weir_wire::frame::{Frame, Meta, Time};
use weir_wire::icrc::IcrcStatus;
use weir_wire::parse::{Fault, Network, Parsed, Transport};

use drops::Drops;
use early::Early;
pub use early::FLOODS_MAX;
pub use reject::Answers;
pub(crate) use reject::End;
use reject::Refusal;
use replace::Replacing;

use crate::meter::Observation;
use crate::verdict::{DropReason, Side};

/// Alerts that wait to be taken, of one worker; further ones are lost and counted.
pub const ALERTS_MAX: usize = 4096;

/// Packets that rules told of and that wait to be taken, at most; further ones are kept as short as
/// others.
const TOLD_PACKETS_MAX: usize = 32;

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
    /// Whether flows that end, and what is spoken, are told of beside alerts.
    pub tells_records: bool,
    /// Where all workers wait for connections that others have announced.
    pub expected: Expected,
}

impl PartialEq for Rules {
    /// Whether they are the same set, not only one of the same text.
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.set, &other.set)
            && self.mode == other.mode
            && self.limits == other.limits
            && self.tells_records == other.tells_records
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
    /// Packets that each rule dropped or would have, and those that it only would have, by its
    /// index.
    dropped: Vec<[u64; 2]>,
    would_drop: u64,
    refusal: Refusal,
    /// The RDMA packet that was dropped last is to be answered.
    refuses_rdma: bool,
    replacing: Replacing,
    early: Early,
    told: Vec<ToldPacket>,
    drops: Drops,
}

/// A packet that a rule told of.
#[derive(Clone, Debug)]
pub struct ToldPacket {
    /// When it came.
    pub time: Time,
    /// By which port.
    pub side: Side,
    /// Whether it went no further.
    pub is_dropped: bool,
    /// In clear, from the Ethernet header on.
    pub bytes: Vec<u8>,
}

/// What is told beside alerts.
#[derive(Clone, Debug)]
pub enum DetectionRecord {
    /// A flow that ended.
    Flow(FlowRecord),
    /// A transaction of HTTP.
    Http(HttpRecord),
    /// A message of DNS or TLS.
    Application(ApplicationRecord),
    /// A transaction of another application.
    Unit(UnitRecord),
    /// Something odd about a packet.
    Anomaly(AnomalyRecord),
    /// A packet that was dropped, of which no alert tells.
    Drop(DropRecord),
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
    /// Of those, packets that passed: it would have dropped them.
    pub would_drop: u64,
}

impl Detection {
    /// A detector with `rules` and no flow yet.
    ///
    /// # Errors
    /// [`NoMemory`].
    pub(crate) fn new(rules: &Rules) -> Result<Self, NoMemory> {
        let mut detector = Detector::new(Arc::clone(&rules.set), rules.limits).or(Err(NoMemory))?;
        let mut flows = FlowTable::new(rules.limits);
        detector.keep_dataset_changes();
        detector.expect_with(rules.expected.clone());
        if rules.tells_records {
            detector.keep_what_rules_see();
            flows.keep_records();
        }
        Ok(Self {
            mode: rules.mode,
            detector,
            flows,
            alerts: Alerts::new(ALERTS_MAX),
            left: Vec::new(),
            dropped: vec![[0; 2]; rules.set.len()],
            would_drop: 0,
            refusal: Refusal::default(),
            refuses_rdma: false,
            replacing: Replacing::default(),
            early: Early::default(),
            told: Vec::new(),
            drops: Drops::new(rules.tells_records),
        })
    }

    /// Keeps what it counts over flows for the other workers from now on.
    pub(crate) fn share(&mut self) {
        self.detector.share();
    }

    /// What it counted since this was asked last, for the other workers.
    pub(crate) fn take_shared(&mut self) -> Option<SharedCounts> {
        self.detector.take_shared()
    }

    /// Adds what another worker counted.
    pub(crate) fn add_shared(&mut self, now: Time, shared: &SharedCounts) {
        self.detector.add_shared(now, shared);
    }

    /// Goes on with other rules; flows stay. Rules of the same number go on counting.
    ///
    /// # Errors
    /// [`NoMemory`]; the rules before run on.
    pub(crate) fn swap(&mut self, rules: &Rules) -> Result<(), NoMemory> {
        if std::mem::replace(&mut self.mode, rules.mode) != rules.mode {
            self.early.clear();
            // What rules only watched is not held against connections.
            self.detector.forgive_all();
        }
        self.drops.set_wanted(rules.tells_records);
        self.detector.set_bypass(rules.limits.bypass_bytes);
        self.detector.expect_with(rules.expected.clone());
        self.detector.keep_anomalies(rules.limits.anomalies);
        self.detector.set_digests(rules.limits.digests);
        self.detector.check_segments(rules.limits.checks_segments);
        self.detector.refuse_as(&rules.limits);
        self.flows.limit_as(&rules.limits);
        if rules.tells_records && !self.flows.keeps_records() {
            self.detector.keep_what_rules_see();
            self.flows.keep_records();
        }
        let before = Arc::clone(self.detector.rules());
        if Arc::ptr_eq(&before, &rules.set) {
            return Ok(());
        }
        self.detector.swap(Arc::clone(&rules.set)).or(Err(NoMemory))?;
        self.early.clear();
        let alerts: Vec<Alert> = self.alerts.drain().collect();
        if !alerts.is_empty() {
            self.left.push((Arc::clone(&before), alerts));
        }
        let counted: HashMap<(u32, u32), [u64; 2]> = before
            .iter()
            .zip(&self.dropped)
            .filter(|(_, packets)| packets[0] > 0)
            .map(|(rule, packets)| ((rule.generator, rule.sid), *packets))
            .collect();
        let packets = |rule: &weir_detect::Rule| counted.get(&(rule.generator, rule.sid)).copied();
        self.dropped = rules.set.iter().map(|it| packets(it).unwrap_or_default()).collect();
        Ok(())
    }

    /// Whether a packet may pass, whose ICRC was checked so; one that `is_spared` does, whatever a
    /// rule says, which is told as what would have been.
    ///
    /// # Errors
    /// [`DropReason::Rule`], or why its flow cannot be looked at.
    pub(crate) fn judge(
        &mut self,
        side: Side,
        frame: &Frame<'_>,
        parsed: &Parsed,
        icrc: Option<IcrcStatus>,
        is_spared: bool,
    ) -> Result<(), DropReason> {
        let Meta { time: now, offload, .. } = frame.meta;
        let told = self.alerts.len();
        let (bytes, is_rebuilt) = (frame.bytes(), false);
        let is_verified = offload.is_verified();
        let port = Some(u8::from(side == Side::Wire));
        let packet = Packet { bytes, parsed, decoded: None, is_rebuilt, is_verified, icrc, port };
        let judged = self.look(now, &packet, is_spared, true);
        let judged = judged.and_then(|()| self.may_be_unread(now, bytes, parsed, is_spared));
        let may_replace = judged.is_ok() && !is_spared && self.mode == RuleMode::Enforce;
        let texts = self.detector.take_replacements();
        self.replacing.keep(texts.filter(|_| may_replace));
        self.keep_told(told, side, now, bytes, judged.is_err());
        judged
    }

    /// Alerts that wait.
    pub(crate) fn waiting(&self) -> usize {
        self.alerts.len()
    }

    /// Of the alerts that wait, those from the `first` on are of a packet that was carried so.
    pub(crate) fn note_tunnel(&mut self, first: usize, tunnel: TunnelView) {
        self.alerts.carried_from(first, tunnel);
    }

    /// Keeps a packet whole that rules told of, which is so if more alerts wait than `before`.
    pub(crate) fn keep_told(
        &mut self,
        before: usize,
        side: Side,
        time: Time,
        bytes: &[u8],
        is_dropped: bool,
    ) {
        if self.alerts.len() > before && self.told.len() < TOLD_PACKETS_MAX {
            self.told.push(ToldPacket { time, side, is_dropped, bytes: bytes.to_vec() });
        }
    }

    /// Writes what rules replace into the frame that was judged last, if it goes on.
    #[inline]
    pub(crate) fn replace(&mut self, frame: &mut Frame<'_>, parsed: &Parsed, tunnels: TunnelPorts) {
        if self.replacing.waits() {
            self.replacing.write(frame, parsed, tunnels);
        }
    }

    /// The same as [`Detection::judge`] of a packet that another carries, and that is kept with it,
    /// or that was put together from fragments. Only if it `may_answer` is anybody told: what a
    /// tunnel carries has no way back but the tunnel's. Nothing is replaced in it.
    ///
    /// # Errors
    /// [`DropReason::Rule`], or why its flow cannot be looked at.
    pub(crate) fn judge_inside(
        &mut self,
        now: Time,
        packet: &Packet<'_>,
        is_spared: bool,
        may_answer: bool,
    ) -> Result<(), DropReason> {
        self.look(now, packet, is_spared, may_answer)?;
        if !is_spared && self.mode == RuleMode::Enforce {
            self.replacing.left += self.detector.take_replacements().len() as u64;
        }
        Ok(())
    }

    fn look(
        &mut self,
        now: Time,
        packet: &Packet<'_>,
        is_spared: bool,
        may_answer: bool,
    ) -> Result<(), DropReason> {
        let Self { detector, flows, alerts, .. } = self;
        let Packet { bytes, parsed, .. } = *packet;
        let told = alerts.len();
        let decision = flows.inspect(detector, now, packet, alerts);
        for rule in detector.would_drop() {
            self.dropped[rule.0 as usize][0] += 1;
            self.dropped[rule.0 as usize][1] += 1;
        }
        let passes = decision == Decision::Pass;
        self.would_drop += u64::from(passes && !detector.would_drop().is_empty());
        if decision != Decision::Pass {
            // Nobody took it: its packet came where nothing is answered.
            self.refusal.forget();
            self.refuses_rdma = false;
        }
        let (rule, is_refused) = match decision {
            Decision::Pass => return Ok(()),
            Decision::Drop { rule } => (rule, false),
            Decision::Reject { rule } => (rule, may_answer),
            Decision::Unseen(why) if is_spared || self.mode == RuleMode::Watch => {
                if is_spared && why == Unseen::ParserError {
                    self.flows.excuse(&mut self.detector, packet);
                }
                self.would_drop += 1;
                return Ok(());
            }
            Decision::Unseen(why) => return Err(self.refuse(why)),
        };
        self.dropped[rule.0 as usize][0] += 1;
        if is_spared {
            self.alerts.spare_from(told);
            // Or the answers to what passes would be dropped. What the other end said is another
            // matter.
            if !self.detector.dropped_by_other() {
                self.flows.forgive(&mut self.detector, packet);
            }
        }
        if is_spared || self.mode == RuleMode::Watch {
            self.would_drop += 1;
            self.dropped[rule.0 as usize][1] += 1;
            return Ok(());
        }
        if is_refused {
            // A rule that does not name the ends was made to reject by a rate.
            let whom = self.rules().rule(rule).answered.unwrap_or_default();
            match parsed.rdma {
                None => self.refusal.refuse(now, bytes, parsed, whom),
                // Nothing ends a receiver's queue pair.
                Some(_) => self.refuses_rdma = whom != Answered::Receiver,
            }
        }
        if let Some(record) = self.detector.untold_drop() {
            self.drops.keep(record);
        }
        if let Some(flood) = self.detector.flood(rule, parsed) {
            self.early.want(flood, rule);
        }
        Err(DropReason::Rule)
    }

    /// Says whether a packet that passed may go on though it contradicts itself before its ports:
    /// no rule about them saw it. Its receiver discards it, unless a port on the way fills its
    /// frame up (IEEE 802.3 s4.2.8: to 60 bytes), so that there are as many bytes as its IP header
    /// says.
    ///
    /// # Errors
    /// [`DropReason::Malformed`].
    #[inline]
    fn may_be_unread(
        &mut self,
        now: Time,
        bytes: &[u8],
        parsed: &Parsed,
        is_spared: bool,
    ) -> Result<(), DropReason> {
        if parsed.fault != Some(Fault::Malformed)
            || !matches!(parsed.network, Network::Ipv4 | Network::Ipv6)
            || parsed.transport != Transport::None
            || parsed.fragment.is_some()
        {
            return Ok(());
        }
        if is_spared || self.mode == RuleMode::Watch {
            self.would_drop += 1;
            return Ok(());
        }
        self.note_drop(now, DropReason::Malformed, bytes, parsed);
        Err(DropReason::Malformed)
    }

    /// Why a packet is dropped that cannot be looked at, which is told: of parsers in Suricata's
    /// words, which the detector has found.
    fn refuse(&mut self, why: Unseen) -> DropReason {
        let reason = match why {
            Unseen::Beginning => DropReason::StreamUnseen,
            Unseen::Gap => DropReason::StreamGap,
            Unseen::Conflict => DropReason::StreamConflict,
            Unseen::ParserError => DropReason::ParserError,
        };
        if let Some(record) = self.detector.untold_drop() {
            let told = match why {
                Unseen::ParserError => record.reason,
                _ => reason.name(),
            };
            self.drops.keep(DropRecord { reason: told, ..record });
        }
        reason
    }

    /// Has a packet told of that was dropped before it came to its flow, once a source and second.
    pub(crate) fn note_drop(
        &mut self,
        now: Time,
        reason: DropReason,
        bytes: &[u8],
        parsed: &Parsed,
    ) {
        // ARP has addresses, and no protocol of IP's that could be told.
        if parsed.network != Network::Arp {
            self.drops.keep_of_source(now, reason, bytes, parsed);
        }
    }

    /// Records of packets that were dropped for which there was no room, since the last call.
    pub(crate) fn take_lost_records(&mut self) -> u64 {
        self.drops.take_lost()
    }

    /// Whether the packet that was judged last is of a flow that is looked at no further.
    pub(crate) fn is_settled(&self) -> bool {
        self.detector.is_settled()
    }

    /// Hands over the floods that may be dropped before they are received, since the last call.
    pub(crate) fn take_floods(&mut self, take: &mut dyn FnMut(Flood)) {
        self.early.take().for_each(take);
    }

    /// Takes in how many packets of a flood were dropped before they were received; whether that
    /// is to go on.
    pub(crate) fn dropped_early(&mut self, now: Time, flood: &Flood, packets: u64) -> bool {
        let Some(rule) = self.early.rule(flood) else { return false };
        self.dropped[rule.0 as usize][0] += packets;
        let packets = u32::try_from(packets).unwrap_or(u32::MAX);
        let goes_on = self.detector.dropped_early(now, flood, packets);
        if !goes_on {
            self.early.release(flood);
        }
        goes_on
    }

    /// Somebody else has the flood dropped, or nobody can: it is dropped here.
    pub(crate) fn release_flood(&mut self, flood: &Flood) {
        self.early.release(flood);
    }

    /// Prepares the answer to an RDMA packet that was just dropped, if a rule rejects it;
    /// `requester` knows its sender's queue pair.
    pub(crate) fn refuse_rdma(
        &mut self,
        packet: &Observation<'_>,
        requester: impl FnOnce() -> Option<Qpn>,
    ) {
        if std::mem::take(&mut self.refuses_rdma) {
            self.refusal.refuse_rdma(packet, requester());
        }
    }

    /// The answer to the packet that was rejected last, for that end of it.
    pub(crate) fn take_answer(&mut self, to: End) -> Option<&[u8]> {
        self.refusal.take(to)
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

    /// Hands over what there is to tell beside alerts: flows that ended, transactions, messages,
    /// what is odd.
    pub(crate) fn take_records(&mut self, take: &mut dyn FnMut(DetectionRecord)) {
        for mut flow in self.flows.take_ended() {
            let units = std::mem::take(&mut flow.units);
            units.into_iter().for_each(|it| take(DetectionRecord::Unit(it)));
            let told = std::mem::take(&mut flow.applications);
            told.into_iter().for_each(|it| take(DetectionRecord::Application(it)));
            if !flow.is_untold {
                take(DetectionRecord::Flow(flow));
            }
        }
        self.detector.take_http().into_iter().for_each(|it| take(DetectionRecord::Http(it)));
        self.detector.take_told().into_iter().for_each(|it| take(DetectionRecord::Application(it)));
        self.detector.take_units().into_iter().for_each(|it| take(DetectionRecord::Unit(it)));
        self.detector.take_anomalies().for_each(|it| take(DetectionRecord::Anomaly(it)));
        self.drops.drain().for_each(|it| take(DetectionRecord::Drop(it)));
    }

    /// What rules put into sets that are kept in files, or took from them, since the last call.
    pub(crate) fn take_dataset_changes(&mut self) -> Vec<Change> {
        self.detector.take_dataset_changes()
    }

    /// The packets that rules told of, since the last call.
    pub(crate) fn take_told_packets(&mut self) -> Vec<ToldPacket> {
        std::mem::take(&mut self.told)
    }

    /// Between whom flows were that went past the rules and do so no more, since the last call.
    pub(crate) fn take_returned(&mut self) -> Vec<[weir_detect::alert::End; 2]> {
        self.flows.take_returned()
    }

    /// Ends all flows.
    pub(crate) fn end_flows(&mut self) {
        self.flows.flush(&mut self.detector);
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

    /// Bytes of memory that flows hold for what they say.
    pub fn memory(&self) -> usize {
        self.detector.memory()
    }

    /// Flows that were forgotten before their time: for want of room, or of memory.
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

    /// Texts that rules replaced in packets, and those that they found where nothing is replaced.
    pub fn replaced(&self) -> [u64; 2] {
        let lost = self.counters().replacements_lost;
        [self.replacing.replaced, self.replacing.left + lost]
    }

    /// Answers to packets that rules rejected.
    pub fn answers(&self) -> Answers {
        self.refusal.answers()
    }

    /// The rules that dropped packets, or would have, in their order.
    pub fn drops(&self) -> impl Iterator<Item = RuleDrops<'_>> {
        let rules = self.rules();
        let dropped = self.dropped.iter().zip(0..).filter(|(packets, _)| packets[0] > 0);
        dropped.map(|([packets, would], index)| {
            let rule = rules.rule(RuleIndex(index));
            let message = &rule.message;
            RuleDrops { sid: rule.sid, message, packets: *packets, would_drop: *would }
        })
    }
}

/// The pattern matcher has no memory for its scans.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no memory for a detector with these rules")]
pub struct NoMemory;
