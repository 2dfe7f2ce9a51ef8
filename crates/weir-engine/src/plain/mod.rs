//! The plaintext joint: every packet that the gateway carries is judged here once, in clear,
//! whichever way it takes.
//!
//! ```text
//!   from the host, as it came ------+
//!   from the wire, opened or clear -+--> blocks -> meter -> access -> detect --> Ok: goes on
//!   tags off, opened by the kernel -+                              `--> Err(reason): dropped
//! ```
//!
//! Nothing else in the engine meters or judges (docs/adr/0049). Without access lines and rules a
//! packet costs two branches more than its counting. The kernel's fast path carries only flows
//! that cannot get another verdict: lines of access allow every operation of them, and no rule
//! looks at them any more.

use std::sync::Arc;

use weir_detect::alert::TunnelView;
use weir_detect::tunnels::TunnelPorts;
use weir_detect::{Alert, Packet, RuleSet};
use weir_wire::bth::Qpn;
use weir_wire::checksum::unfinished;
use weir_wire::frame::{Frame, Link, Meta, Time};
use weir_wire::parse::{Network, Parsed, parse};

mod blocks;
mod inside;
mod judge;

pub use judge::Judge;

pub use blocks::{BLOCKS_MAX, Block, Blocks};
pub use inside::InsideCounters;

use blocks::Gate;
pub(crate) use inside::{Abandoned, Aside};

pub(crate) use crate::detect::End;
use inside::{Found, Inside};

use crate::access::Access;
use crate::detect::{Detection, NoMemory, RuleMode, Rules};
use crate::meter::{FlowPlace, Icrc, Meter, Observation, Observed};
use crate::policy::{Exception, Exceptions, Policy};
use crate::verdict::{DropReason, Side};

/// The stages of the joint, each with its state.
#[derive(Debug)]
pub(crate) struct Plain {
    pub(crate) meter: Meter,
    /// `None`: everybody may do everything.
    access: Option<Box<Access>>,
    /// `None`: no rule looks at anything.
    detection: Option<Box<Detection>>,
    /// `None`: nobody is blocked.
    gate: Option<Gate>,
    /// `None`: nobody looks into what packets carry.
    inside: Option<Box<Inside>>,
    /// Where datagrams carry packets.
    tunnels: TunnelPorts,
    /// One more that judges, of who embeds the engine.
    added: Option<Box<dyn Judge>>,
    icrc: Icrc,
    /// Whether flows of datagrams that come in pieces may be other workers'.
    is_one_of_several: bool,
    /// What the frame waits for that passed last, if it is not to go on.
    aside: Option<Box<Aside>>,
}

impl Plain {
    /// A joint that only counts.
    pub(crate) fn new(meter: Meter) -> Self {
        let (access, detection, gate, inside, added) = (None, None, None, None, None);
        let tunnels = TunnelPorts::default();
        let (icrc, is_one_of_several, aside) = (Icrc::Check, false, None);
        Self {
            meter,
            access,
            detection,
            gate,
            inside,
            tunnels,
            added,
            icrc,
            is_one_of_several,
            aside,
        }
    }

    /// Leaves datagrams that came in pieces to whoever has their flow (see [`Aside::datagram`]),
    /// and keeps what it counts for the other workers.
    pub(crate) fn set_one_of_several(&mut self) {
        self.is_one_of_several = true;
        self.share();
    }

    fn share(&mut self) {
        if !self.is_one_of_several {
            return;
        }
        if let Some(detection) = &mut self.detection {
            detection.share();
        }
        if let Some(access) = &mut self.access {
            access.share();
        }
    }

    /// Whether the frame that passed last is not to go on yet; or, if it was dropped, whether it is
    /// so with others.
    #[inline]
    pub(crate) fn has_aside(&self) -> bool {
        self.aside.is_some()
    }

    /// What that frame waits for.
    pub(crate) fn aside(&self) -> Option<&Aside> {
        self.aside.as_deref()
    }

    /// The same, for good.
    pub(crate) fn take_aside(&mut self) -> Option<Box<Aside>> {
        self.aside.take()
    }

    /// Whether pieces are held until their datagram was judged.
    pub(crate) fn holds_pieces(&self) -> bool {
        self.inside.as_ref().is_some_and(|it| it.holds())
    }

    /// Datagrams whose pieces are held in vain, since this was asked last.
    pub(crate) fn take_abandoned(&mut self) -> impl Iterator<Item = Abandoned> + use<> {
        self.inside.as_mut().map(|it| it.take_abandoned()).into_iter().flatten()
    }

    /// Gives up datagrams of which pieces were lost.
    pub(crate) fn expire_pieces(&mut self, now: Time) {
        if let Some(inside) = &mut self.inside {
            inside.expire(now);
        }
    }

    /// Whether [`Plain::renew`] would take `policy`.
    ///
    /// # Errors
    /// [`NoMemory`].
    pub(crate) fn check(&self, policy: &Policy) -> Result<(), NoMemory> {
        match &policy.rules {
            Some(rules) if !self.runs(rules) => Detection::new(rules).map(drop),
            _ => Ok(()),
        }
    }

    fn runs(&self, rules: &Rules) -> bool {
        self.detection.as_ref().is_some_and(|it| Arc::ptr_eq(it.rules(), &rules.set))
    }

    /// Judges by `policy` from now on. What stands is judged again with its next packet.
    ///
    /// # Errors
    /// [`NoMemory`]; then nothing has changed.
    pub(crate) fn renew(&mut self, policy: &Policy) -> Result<(), NoMemory> {
        match (&mut self.detection, &policy.rules) {
            (Some(detection), Some(rules)) => detection.swap(rules)?,
            (detection, Some(rules)) => *detection = Some(Box::new(Detection::new(rules)?)),
            (detection, None) => *detection = None,
        }
        self.gate = policy.blocks.as_ref().map(Gate::new);
        self.icrc = if policy.check_icrc { Icrc::Check } else { Icrc::Skip };
        let before = self.access.take().map(|it| *it);
        let lines = policy.access.as_ref();
        let meter = &mut self.meter;
        self.access = lines.map(|lines| Box::new(Access::new(Arc::clone(lines), before, meter)));
        self.meter.set_learns_when_told(self.access.is_some());
        self.share();
        self.renew_inside(policy);
        Ok(())
    }

    fn renew_inside(&mut self, policy: &Policy) {
        self.tunnels = policy.tunnels;
        let exceptions = match self.access {
            None => policy.exceptions,
            Some(_) => Exceptions { layers: Exception::Drop, fragments: Exception::Drop },
        };
        if self.access.is_none() && self.detection.is_none() {
            self.inside = None;
            return;
        }
        // Rules that only watch drop nothing; lines of access do.
        let rules = policy.rules.as_ref();
        let enforces =
            self.access.is_some() || rules.is_none_or(|rules| rules.mode != RuleMode::Watch);
        let exceptions = if enforces { exceptions } else { Exceptions::default() };
        let refuses = enforces && rules.is_none_or(|rules| rules.limits.refuses_conflicts);
        let inside = self.inside.get_or_insert_with(|| {
            let seed = rules.map_or(0, |rules| rules.limits.seed);
            Box::new(Inside::new(exceptions, seed))
        });
        inside.renew(exceptions, refuses, enforces, policy.tunnels);
    }

    /// Judges what a packet carries, or is the last piece of.
    #[cold]
    fn pass_inside(
        &mut self,
        side: Side,
        frame: &Frame<'_>,
        parsed: &Parsed,
    ) -> Result<(), DropReason> {
        let (now, bytes) = (frame.meta.time, frame.bytes());
        let is_verified = frame.meta.offload.is_verified();
        self.judge_inside(side, now, (bytes, parsed), |inside, judge| {
            inside.look(now, bytes, parsed, is_verified, judge)
        })
    }

    /// Judges a datagram whose pieces came to another worker, and whose flow is ours.
    ///
    /// # Errors
    /// Why its last piece is dropped.
    pub(crate) fn judge_whole(
        &mut self,
        side: Side,
        now: Time,
        datagram: &[u8],
    ) -> Result<(), DropReason> {
        let parsed = parse(datagram, Link::Ethernet, datagram.len() as u32);
        self.judge_inside(side, now, (datagram, &parsed), |inside, judge| {
            inside.look_at_whole(now, datagram, judge)
        })
    }

    /// Judges what `look` finds. `told` is kept where a rule tells of it.
    fn judge_inside(
        &mut self,
        side: Side,
        now: Time,
        (told, outer): (&[u8], &Parsed),
        look: impl FnOnce(&mut Inside, inside::Judge<'_>) -> Result<(), DropReason>,
    ) -> Result<(), DropReason> {
        let Self { access, detection, meter, gate, inside, .. } = self;
        let Some(inside) = inside else { return Ok(()) };
        let before = detection.as_ref().map_or(0, |it| it.waiting());
        let judged = look(inside, &mut |bytes, parsed, Found { is_rebuilt, carriers }| {
            let is_carried = carriers > 0;
            let original_len = bytes.len() as u32;
            if let Some(gate) = gate.as_mut()
                && gate.stops(now, parsed, original_len)
            {
                if let Some(detection) = detection.as_mut() {
                    detection.note_drop(now, DropReason::Blocked, bytes, parsed);
                }
                return Err(DropReason::Blocked);
            }
            let observation = Observation {
                now,
                side: Some(side),
                bytes,
                parsed,
                original_len,
                segments: 1,
                icrc: Icrc::Skip,
            };
            if let Some(access) = access.as_mut() {
                let judged = match &parsed.rdma {
                    Some(rdma) => access.judge(&Observed::default(), &observation, rdma, meter),
                    None => access.judge_other(parsed),
                };
                if is_carried && judged.is_err() {
                    // Its answer would have to be carried too.
                    access.take_answer();
                }
                judged?;
            }
            if let Some(detection) = detection.as_mut() {
                let is_spared = gate.as_ref().is_some_and(|gate| gate.spares(parsed));
                // Whose checksum was left to an adapter before it was put into the tunnel.
                let is_verified = unfinished(bytes, parsed.network_offset.into()).is_some();
                let port = Some(u8::from(side == Side::Wire));
                let (decoded, icrc) = (None, None);
                let packet = Packet { bytes, parsed, decoded, is_rebuilt, is_verified, icrc, port };
                let first = detection.waiting();
                let judged = detection.judge_inside(now, &packet, is_spared, !is_carried);
                if is_carried && detection.waiting() > first {
                    detection.note_tunnel(first, TunnelView::of(told, outer, carriers));
                }
                judged?;
            }
            // What a tunnel carries says nothing of queue pairs outside.
            match (access.as_mut(), &parsed.rdma) {
                (Some(access), Some(rdma)) if !is_carried => {
                    access.passed(&observation, rdma, meter)
                }
                _ => Ok(()),
            }
        });
        self.aside = inside.take_aside();
        if let Some(detection) = detection {
            detection.keep_told(before, side, now, told, judged.is_err());
        }
        judged
    }

    /// Whether neither lines nor rules want to see more of the flow of the packet that was judged
    /// last: the kernel may carry it.
    pub(crate) fn is_settled(&self, parsed: &Parsed) -> bool {
        let by_lines = self.access.as_ref().is_none_or(|access| access.settles(parsed));
        let by_rules = self.detection.as_ref().is_none_or(|it| it.is_settled());
        let by_others = self.added.is_none();
        by_lines && by_rules && by_others && (self.inside.is_none() || !self.tunnels.wraps(parsed))
    }

    /// How often packets were looked into.
    pub(crate) fn inside_counters(&self) -> InsideCounters {
        self.inside.as_ref().map(|it| it.counters()).unwrap_or_default()
    }

    /// Counts a packet that came in by `side` and says whether it goes on, with what rules replace
    /// in it. `place` is where the
    /// packets of its flow before it were counted, or empty; afterwards it is this packet's.
    ///
    /// `Ok(None)`: it followed others of its flow, and was counted where they were.
    ///
    /// # Errors
    /// Why it is dropped.
    #[inline]
    pub(crate) fn pass(
        &mut self,
        side: Side,
        frame: &mut Frame<'_>,
        parsed: &Parsed,
        place: &mut FlowPlace,
    ) -> Result<Option<Observed>, DropReason> {
        let passed = self.judge(side, frame, parsed, place)?;
        if let Some(detection) = &mut self.detection {
            detection.replace(frame, parsed, self.tunnels);
        }
        Ok(passed)
    }

    #[inline]
    fn judge(
        &mut self,
        side: Side,
        frame: &Frame<'_>,
        parsed: &Parsed,
        place: &mut FlowPlace,
    ) -> Result<Option<Observed>, DropReason> {
        let Meta { time, original_len, offload, .. } = frame.meta;
        if let Some(gate) = &mut self.gate
            && gate.stops(time, parsed, original_len)
        {
            *place = FlowPlace::default();
            self.tell_drop(time, DropReason::Blocked, frame.bytes(), parsed);
            return Err(DropReason::Blocked);
        }
        if let Some(judge) = &mut self.added {
            judge.judge(side, frame, parsed).inspect_err(|_| *place = FlowPlace::default())?;
        }
        let wraps = self.inside.is_some() && self.tunnels.wraps(parsed);
        if !wraps
            && offload.segmentation.is_none()
            && self.meter.observe_follower(time, parsed, original_len, *place)
        {
            // Access lines are about RDMA, of which nothing follows; rules are about everything.
            let Some(detection) = &mut self.detection else { return Ok(None) };
            let is_spared = self.gate.as_ref().is_some_and(|gate| gate.spares(parsed));
            return detection
                .judge(side, frame, parsed, None, is_spared)
                .map(|()| None)
                .inspect_err(|_| *place = FlowPlace::default());
        }
        self.pass_first(side, frame, parsed, place).map(Some)
    }

    #[inline(never)]
    fn pass_first(
        &mut self,
        side: Side,
        frame: &Frame<'_>,
        parsed: &Parsed,
        place: &mut FlowPlace,
    ) -> Result<Observed, DropReason> {
        let observation = self.observation(side, frame, parsed);
        let seen = self.meter.observe_at(&observation, place);
        let Self { access, detection, meter, gate, .. } = self;
        let mut judged = match (access.as_mut(), &parsed.rdma) {
            (None, _) => Ok(()),
            (Some(access), Some(rdma)) => access.judge(&seen, &observation, rdma, meter),
            (Some(access), None) => access.judge_other(parsed),
        };
        if let (Ok(()), Some(detection)) = (judged, detection) {
            let is_spared = gate.as_ref().is_some_and(|gate| gate.spares(parsed));
            judged = detection.judge(side, frame, parsed, seen.icrc, is_spared);
            if judged.is_err() {
                detection.refuse_rdma(&observation, || requester(meter, &seen));
            }
        }
        if let (Some(access), Some(rdma)) = (access, &parsed.rdma) {
            match judged {
                Ok(()) => judged = access.passed(&observation, rdma, meter),
                Err(_) => access.unlearn(meter),
            }
        }
        if judged.is_ok()
            && let Some(inside) = &mut self.inside
            && self.tunnels.wraps(parsed)
        {
            judged = if self.is_one_of_several && parsed.fragment.is_some() {
                let taken = inside.take_piece(frame.meta.time, frame.bytes(), parsed);
                self.aside = inside.take_aside();
                taken
            } else {
                self.pass_inside(side, frame, parsed)
            };
        }
        if let Err(reason) = judged {
            if reason.is_unseen_inside() {
                self.tell_drop(frame.meta.time, reason, frame.bytes(), parsed);
            }
            // The next packet of the flow is judged for itself.
            *place = FlowPlace::default();
            // What is dropped of the host's is charged by who gives the verdict.
            if side == Side::Wire {
                self.meter.note_drop(&observation);
            }
        }
        judged.map(|()| seen)
    }

    /// Says whether a packet from the wire that is for the gateway itself may come to its kernel.
    /// It is nobody's flow, and lines of access are about hosts.
    ///
    /// # Errors
    /// Why it is dropped.
    pub(crate) fn pass_own(
        &mut self,
        frame: &mut Frame<'_>,
        parsed: &Parsed,
    ) -> Result<(), DropReason> {
        if !matches!(parsed.network, Network::Ipv4 | Network::Ipv6) {
            return Ok(());
        }
        let Meta { time, original_len, .. } = frame.meta;
        let Self { gate, detection, .. } = self;
        if let Some(gate) = gate
            && gate.stops(time, parsed, original_len)
        {
            self.tell_drop(time, DropReason::Blocked, frame.bytes(), parsed);
            return Err(DropReason::Blocked);
        }
        if let Some(detection) = detection {
            let is_spared = gate.as_ref().is_some_and(|gate| gate.spares(parsed));
            detection.judge(Side::Wire, frame, parsed, None, is_spared)?;
            detection.replace(frame, parsed, self.tunnels);
        }
        if !self.tunnels.wraps(parsed) {
            return Ok(());
        }
        self.pass_inside(Side::Wire, frame, parsed).inspect_err(|reason| {
            if reason.is_unseen_inside() {
                self.tell_drop(time, *reason, frame.bytes(), parsed);
            }
        })
    }

    /// Has a packet told of that is dropped before it comes to a flow.
    #[cold]
    pub(crate) fn tell_drop(
        &mut self,
        now: Time,
        reason: DropReason,
        bytes: &[u8],
        parsed: &Parsed,
    ) {
        if let Some(detection) = &mut self.detection {
            detection.note_drop(now, reason, bytes, parsed);
        }
    }

    /// Has one more judge look at every packet; `None`: no more.
    pub(crate) fn set_judge(&mut self, judge: Option<Box<dyn Judge>>) {
        self.added = judge;
    }

    /// Charges the gateway with a packet of the host's that it counted and dropped.
    pub(crate) fn note_drop(&mut self, side: Side, frame: &Frame<'_>, parsed: &Parsed) {
        let observation = self.observation(side, frame, parsed);
        self.meter.note_drop(&observation);
    }

    /// Who may do what, and how often that decided.
    pub(crate) fn access(&self) -> Option<&Access> {
        self.access.as_deref()
    }

    /// The rules at work.
    pub(crate) fn detection(&self) -> Option<&Detection> {
        self.detection.as_deref()
    }

    /// The same, to tell it what was dropped before.
    pub(crate) fn detection_mut(&mut self) -> Option<&mut Detection> {
        self.detection.as_deref_mut()
    }

    /// The answer to the packet that was rejected last, by a line of access or a rule, for that end
    /// of it.
    pub(crate) fn take_answer(&mut self, reason: DropReason, to: End) -> Option<&[u8]> {
        match (reason, to) {
            (DropReason::AccessDenied, End::Sender) => self.access.as_mut()?.take_answer(),
            (DropReason::Rule, to) => self.detection.as_mut()?.take_answer(to),
            _ => None,
        }
    }

    /// Hands over the alerts that wait.
    pub(crate) fn take_alerts(&mut self, take: &mut dyn FnMut(Alert, &Arc<RuleSet>)) {
        if let Some(detection) = &mut self.detection {
            detection.take_alerts(take);
        }
    }

    /// Ends a few flows of detection that have been silent for long.
    pub(crate) fn expire(&mut self, now: Time) {
        if let Some(detection) = &mut self.detection {
            detection.expire(now);
        }
    }

    /// The same as [`Plain::access`], to take its events.
    pub(crate) fn access_mut(&mut self) -> Option<&mut Access> {
        self.access.as_deref_mut()
    }

    #[inline]
    fn observation<'a>(
        &self,
        side: Side,
        frame: &'a Frame<'_>,
        parsed: &'a Parsed,
    ) -> Observation<'a> {
        Observation {
            now: frame.meta.time,
            side: Some(side),
            bytes: frame.bytes(),
            parsed,
            original_len: frame.meta.original_len,
            segments: segments(frame, parsed),
            icrc: self.icrc,
        }
    }
}

/// The queue pair of a packet's sender: where its receiver's packets go.
fn requester(meter: &Meter, seen: &Observed) -> Option<Qpn> {
    let directions = meter.conversations().entry(seen.conversation?)?.directions();
    directions.map(|it| it.key.destination_qp()).nth(usize::from(seen.direction ^ 1))
}

/// Packets that a frame stands for: 1, or a super-packet's segments.
#[inline]
pub(crate) fn segments(frame: &Frame<'_>, parsed: &Parsed) -> u32 {
    frame.meta.offload.segmentation.map_or(1, |segmentation| {
        let payload = parsed.end.saturating_sub(u32::from(parsed.payload_offset));
        payload.div_ceil(u32::from(segmentation.segment_len).max(1))
    })
}
