//! Where a packet was lost or overtaken: before it came here, in the gateway, or after it left.
//!
//! ```text
//!   sender --before--> [ gateway: inside ] --after--> receiver
//! ```
//!
//! What is known comes from numbers alone (IBTA Vol 1 s9.7): a number skipped on arrival was lost
//! before; one that we passed on and that its receiver refuses (NAK), or that its sender repeats
//! unasked, was lost after, unless the gateway knows that it lost it itself. A [`Trail`] is what a
//! direction of reliable requests must remember for that. It is touched when something is out of
//! order, never by a packet in its place.
//!
//! In doubt the gateway is charged, then nobody: what cannot be known is not counted
//! (docs/adr/0021).

use weir_wire::bth::{Position, Psn, Service};
use weir_wire::ext::{NakCause, Syndrome};
use weir_wire::frame::Time;

use super::psn::PsnOrder;
use super::qp::{Conversation, Direction, RdmaPacket};
use crate::verdict::Side;

/// A number that was skipped and comes within this time, unrefused, was overtaken; later, its
/// sender has repeated it. Below the acknowledgment timeouts in use (IBTA Vol 1 s9.7.6.1.3: 67 ms
/// is common), above any queue's reordering.
const OVERTAKEN_MS_MAX: u16 = 32;

/// Losses charged to one direction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Losses {
    /// Packets lost before they came here: numbers skipped, less those that were overtaken only.
    pub before: u32,
    /// Packets that the gateway dropped or lost.
    pub inside: u32,
    /// Losses after the packets left here, one for each time that the receiver refused what had
    /// passed here in its place, or that the sender went back: each is a packet or more.
    pub after: u32,
    /// Packets overtaken by others before they came here.
    pub overtaken: u32,
}

/// What one packet shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Finding {
    /// So many packets were lost before they came here.
    Before(u32),
    /// One that was counted so was overtaken only.
    Overtaken,
    /// One was lost behind us.
    After,
    /// One was lost here.
    Inside,
}

impl Losses {
    /// Counts a finding.
    pub(crate) fn charge(&mut self, finding: Finding) {
        match finding {
            Finding::Before(packets) => self.before = self.before.saturating_add(packets),
            Finding::Overtaken => {
                self.before = self.before.saturating_sub(1);
                self.overtaken = self.overtaken.saturating_add(1);
            }
            Finding::After => self.after = self.after.saturating_add(1),
            Finding::Inside => self.inside = self.inside.saturating_add(1),
        }
    }

    /// Takes the blame for `packets` of what `finding` was charged with.
    pub(crate) fn own_up(&mut self, finding: Finding, packets: u32) {
        match finding {
            Finding::Before(_) => self.before = self.before.saturating_sub(packets),
            Finding::After => self.after = self.after.saturating_sub(packets),
            Finding::Overtaken | Finding::Inside => return,
        }
        self.inside = self.inside.saturating_add(packets);
    }
}

/// Consecutive numbers. Six bytes: a million queue pairs remember two each way.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C, packed(2))]
struct Run {
    first: u32,
    /// Zero: none; longer runs are cut.
    len: u16,
}

impl Run {
    /// From `first` up to `end`.
    fn between(first: Psn, end: Psn) -> Self {
        let len = u16::try_from(end.distance(first).max(0)).unwrap_or(u16::MAX);
        Self { first: first.value(), len }
    }

    fn holds(&self, psn: Psn) -> bool {
        (0..i32::from(self.len)).contains(&psn.distance(Psn::new(self.first)))
    }

    fn end(&self) -> Psn {
        Psn::new(self.first).add(self.len.into())
    }

    /// Moves the beginning behind a packet that passes now. Returns whether the packet was within.
    fn pass(&mut self, psn: Psn, count: u32) -> bool {
        let held = self.holds(psn);
        if held {
            *self = Self::between(psn.add(count), self.end());
        }
        held
    }
}

/// What is remembered of a direction of requests, to tell later what became of one.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Trail {
    /// From the first number skipped to the last, while numbers are missing; kept until others are.
    skipped: Run,
    skipped_at_ms: u16,
    /// Numbers that the gateway dropped last.
    dropped: Run,
    /// What a sender that went back sends next.
    repeats_next: u32,
    /// A number whose repetition is accounted for.
    explained: u32,
    /// The highest number that an answer covers.
    answered: u32,
    /// Of the marks below.
    marks: u8,
}

/// The receiver refused `skipped`.
const REFUSED: u8 = 1 << 0;
/// `skipped` was left out of a repetition: no number is charged yet.
const SUSPECTED: u8 = 1 << 1;
const REPEATING: u8 = 1 << 2;
const EXPLAINED: u8 = 1 << 3;
const ANSWERED: u8 = 1 << 4;
/// The last answer was dropped here.
const ANSWER_DROPPED: u8 = 1 << 5;

impl Trail {
    /// `missing` numbers up to `psn` were skipped; `is_open`: others still are.
    #[cold]
    pub(crate) fn skip(&mut self, psn: Psn, missing: u32, is_open: bool, now: Time) {
        let first = psn.add(0u32.wrapping_sub(missing));
        let goes_on = is_open && self.skipped.len > 0;
        let first = if goes_on { Psn::new(self.skipped.first) } else { first };
        self.skipped = Run::between(first, psn);
        self.skipped_at_ms = milliseconds(now);
        // Whoever goes back repeats all that is open.
        self.marks &= if goes_on { !SUSPECTED } else { !(SUSPECTED | REFUSED) };
    }

    /// A number that was skipped is here; whether it was overtaken only. `next` is the first number
    /// never seen; `None`: a sender that never repeats.
    #[cold]
    pub(crate) fn fill(&mut self, psn: Psn, count: u32, next: Option<Psn>, now: Time) -> bool {
        let age_ms = milliseconds(now).wrapping_sub(self.skipped_at_ms);
        let is_asked_for = self.is(REFUSED) || self.is_explained(psn);
        let is_repeated = is_asked_for || self.is(REPEATING) || age_ms > OVERTAKEN_MS_MAX;
        let Some(next) = next.filter(|_| is_repeated) else { return true };
        // Sent again: from here on it has its place, and may be lost once more, behind us.
        self.skipped.pass(psn, count);
        if self.explained == psn.value() {
            self.marks &= !EXPLAINED;
        }
        self.leave_out(psn, now);
        self.go_on(psn.add(count), next);
        false
    }

    /// A repetition goes on with `psn`; whether there is one. What it left out was lost before us
    /// again, if its receiver refuses it: whoever repeats single packets leaves out what arrived.
    fn leave_out(&mut self, psn: Psn, now: Time) -> bool {
        let ahead = psn.distance(Psn::new(self.repeats_next));
        let goes_on = self.is(REPEATING) && ahead >= 0;
        if goes_on && ahead > 0 {
            self.skip(psn, ahead as u32, false, now);
            self.marks |= SUSPECTED;
        }
        goes_on
    }

    fn go_on(&mut self, repeats_next: Psn, next: Psn) {
        self.repeats_next = repeats_next.value();
        match repeats_next.distance(next) < 0 {
            true => self.marks |= REPEATING,
            false => self.marks &= !REPEATING,
        }
    }

    /// A number that had passed comes again; whether it begins a repetition that nothing explains.
    /// `next` is the first number never seen.
    #[cold]
    pub(crate) fn repeat(&mut self, psn: Psn, count: u32, next: Psn, now: Time) -> bool {
        let goes_on = self.leave_out(psn, now);
        self.go_on(psn.add(count), next);
        // What was asked for may come from there on, its first packets lost before us.
        let is_explained = self.is_explained(psn);
        if psn.value() == self.explained {
            self.marks &= !EXPLAINED;
        }
        let is_skipped = self.skipped.pass(psn, count);
        let is_dropped = self.dropped.pass(psn, count);
        !(goes_on || is_explained || is_dropped || is_skipped)
    }

    /// The receiver refuses everything from `psn` on, which it misses; `has_passed` here before?
    #[cold]
    pub(crate) fn refuse(&mut self, psn: Psn, has_passed: bool) -> Option<Finding> {
        if self.is(EXPLAINED) && self.explained == psn.value() {
            return None; // The same refusal again.
        }
        self.explain(psn);
        if self.dropped.holds(psn) {
            return None;
        }
        if self.skipped.holds(psn) || !has_passed {
            self.marks |= REFUSED;
            // What never came was charged when it was skipped.
            return (self.take(SUSPECTED) && has_passed).then_some(Finding::Before(1));
        }
        // A repetition has not come so far: its packet is missing, or a sender that repeats single
        // packets never meant to send it.
        let is_due = self.is(REPEATING) && psn.distance(Psn::new(self.repeats_next)) >= 0;
        (!is_due).then_some(Finding::After)
    }

    /// The repetition of `psn` was asked for.
    pub(crate) fn explain(&mut self, psn: Psn) {
        self.marks |= EXPLAINED;
        self.explained = psn.value();
    }

    /// The gateway dropped this packet of requests.
    #[cold]
    pub(crate) fn drop_request(&mut self, psn: Psn, count: u32) {
        let goes_on = self.dropped.len > 0 && self.dropped.end() == psn;
        let first = if goes_on { Psn::new(self.dropped.first) } else { psn };
        self.dropped = Run::between(first, psn.add(count));
    }

    /// The gateway dropped an answer of the other direction to requests of this one.
    #[cold]
    pub(crate) fn drop_answer(&mut self) {
        self.marks |= ANSWER_DROPPED;
    }

    /// An answer up to `psn` passed.
    #[inline]
    pub(crate) fn answer(&mut self, psn: Psn) {
        self.answered = psn.value();
        self.marks = self.marks & !ANSWER_DROPPED | ANSWERED;
        if self.is_explained(psn) {
            self.marks &= !EXPLAINED;
        }
    }

    /// Whether an answer to `psn` passed.
    pub(crate) fn is_answered(&self, psn: Psn) -> bool {
        self.is(ANSWERED) && Psn::new(self.answered).distance(psn) >= 0
    }

    /// Whether the last answer was dropped here.
    pub(crate) fn lost_answer(&self) -> bool {
        self.is(ANSWER_DROPPED)
    }

    fn is_explained(&self, psn: Psn) -> bool {
        self.is(EXPLAINED) && psn.distance(Psn::new(self.explained)) >= 0
    }

    fn is(&self, mark: u8) -> bool {
        self.marks & mark != 0
    }

    fn take(&mut self, mark: u8) -> bool {
        let was = self.is(mark);
        self.marks &= !mark;
        was
    }
}

/// It wraps after a minute.
fn milliseconds(now: Time) -> u16 {
    (now.0 / 1_000_000) as u16
}

/// What a packet showed, and of which direction: its own, or the one that it answers to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Charged {
    pub(crate) finding: Finding,
    pub(crate) is_of_other: bool,
}

impl Charged {
    fn own(finding: Finding) -> Self {
        Self { finding, is_of_other: false }
    }

    fn other(finding: Finding) -> Self {
        Self { finding, is_of_other: true }
    }
}

impl Conversation {
    /// What a request of direction `side` shows that was not in its place.
    #[cold]
    pub(crate) fn charge_request(
        &mut self,
        side: usize,
        packet: &RdmaPacket<'_>,
        order: PsnOrder,
        count: u32,
    ) -> Option<Charged> {
        let (psn, now) = (packet.rdma.psn, packet.now);
        let may_repeat = packet.rdma.opcode.service() != Service::UnreliableConnection;
        let direction = self.direction_mut(side);
        let next = direction.requests.next_expected();
        let charged = match order {
            PsnOrder::InOrder => None,
            PsnOrder::Jump => {
                direction.trail = Trail::default();
                None
            }
            PsnOrder::Gap { missing } => {
                let is_open = direction.requests.open_count() > 1;
                direction.trail.skip(psn, missing, is_open, now);
                Some(Charged::own(Finding::Before(missing)))
            }
            PsnOrder::Late => direction
                .trail
                .fill(psn, count, may_repeat.then_some(next), now)
                .then_some(Charged::own(Finding::Overtaken)),
            PsnOrder::Seen => {
                let is_new = may_repeat && direction.trail.repeat(psn, count, next, now);
                // A number that never came is reason enough to go back.
                let is_explained = direction.requests.is_missing_before(psn);
                if is_new && !is_explained { self.charge_repetition(side, psn) } else { None }
            }
        };
        self.apply(side, charged)
    }

    /// The sender goes back to `psn` unasked: it misses an answer.
    fn charge_repetition(&mut self, side: usize, psn: Psn) -> Option<Charged> {
        if self.directions().any(|it| it.counters.fast_packets > 0) {
            return None; // Answers that the kernel carried were not followed.
        }
        let other = self.other_mut(side)?;
        // The responses to a READ, or what stands for any other request.
        let is_missing = other.responses.is_missing(psn);
        let has_responded = other.responses.has_used(psn);
        let trail = &self.direction_mut(side).trail;
        if is_missing || trail.lost_answer() {
            return None; // Charged when it showed.
        }
        Some(match has_responded || trail.is_answered(psn) {
            true => Charged::other(Finding::After),
            false => Charged::own(Finding::After),
        })
    }

    /// What an answer of direction `side` says of the other's requests. `is_carried`: the kernel
    /// carried those that were in their place.
    #[inline]
    pub(crate) fn charge_answer(
        &mut self,
        side: usize,
        packet: &RdmaPacket<'_>,
        syndrome: Option<Syndrome>,
        is_carried: bool,
    ) -> Option<Charged> {
        let psn = packet.rdma.psn;
        let requester = self.other_mut(side)?;
        match syndrome {
            None => None,
            Some(Syndrome::Nak(NakCause::SequenceError)) => {
                let charged = requester.refused(psn, is_carried);
                self.apply(side, charged.map(Charged::other))
            }
            Some(Syndrome::RnrNak { .. }) => {
                requester.trail.explain(psn);
                None
            }
            Some(_) => {
                requester.trail.answer(psn);
                None
            }
        }
    }

    /// What a READ or atomic response of direction `side` shows: inside one message, its packets
    /// have consecutive numbers.
    #[inline]
    pub(crate) fn charge_response(
        &mut self,
        side: usize,
        packet: &RdmaPacket<'_>,
        order: PsnOrder,
    ) -> Option<Charged> {
        let PsnOrder::Gap { missing } = order else { return None };
        let position = packet.rdma.opcode.position();
        let is_inside = matches!(position, Position::Middle | Position::Last);
        let charged = is_inside.then_some(Charged::own(Finding::Before(missing)));
        self.apply(side, charged)
    }

    /// The gateway dropped a packet of direction `side` that was counted.
    #[cold]
    pub(crate) fn charge_drop(&mut self, side: usize, packet: &RdmaPacket<'_>) -> Charged {
        let (psn, opcode) = (packet.rdma.psn, packet.rdma.opcode);
        if opcode.is_request() {
            let direction = self.direction_mut(side);
            let next = direction.requests.next_expected();
            let count = if psn.add(1).distance(next) > 0 { 1 } else { next.distance(psn) as u32 };
            direction.trail.drop_request(psn, count);
        } else if opcode.is_response()
            && let Some(requester) = self.other_mut(side)
        {
            requester.trail.drop_answer();
        }
        let charged = Charged::own(Finding::Inside);
        self.apply(side, Some(charged));
        charged
    }

    fn apply(&mut self, side: usize, charged: Option<Charged>) -> Option<Charged> {
        let Charged { finding, is_of_other } = charged?;
        self.direction_mut(side ^ usize::from(is_of_other)).counters.losses.charge(finding);
        charged
    }
}

impl Direction {
    fn refused(&mut self, psn: Psn, is_carried: bool) -> Option<Finding> {
        let has_passed = is_carried || self.requests.has_used(psn);
        self.trail.refuse(psn, has_passed && !self.requests.is_missing(psn))
    }
}

/// How long a loss at a port may stand behind a gap: longer than a full ring takes to be read.
const OWN_LOSS_NS_MAX: u64 = 1_000_000_000;

/// Which way a packet went that the gateway's own ports lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LossWay {
    /// On its way in: the ring was full before the engine saw it.
    In,
    /// On its way out: the port did not take it.
    Out,
}

/// Packets that the ports lost, not known which: gaps that show soon after are charged to us.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct OwnLosses {
    /// By way and side: so many, and when the last was told.
    unclaimed: [[(u64, Time); 2]; 2],
}

impl OwnLosses {
    pub(crate) fn note(&mut self, way: LossWay, side: Side, packets: u64, now: Time) {
        let (count, at) = &mut self.unclaimed[way as usize][side as usize];
        if now.since_ns(*at) > OWN_LOSS_NS_MAX {
            *count = 0;
        }
        *count += packets;
        *at = now;
    }

    /// How many of `wanted` packets that went missing on this way may be among them.
    pub(crate) fn claim(&mut self, way: LossWay, side: Side, wanted: u32, now: Time) -> u32 {
        let (count, at) = &mut self.unclaimed[way as usize][side as usize];
        if *count == 0 || now.since_ns(*at) > OWN_LOSS_NS_MAX {
            *count = 0;
            return 0;
        }
        let claimed = (*count).min(u64::from(wanted));
        *count -= claimed;
        claimed as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Time = Time(1_000_000_000);

    #[test]
    fn own_losses_are_claimed_once_and_forgotten_after_a_second() {
        let mut own = OwnLosses::default();
        own.note(LossWay::In, Side::Host, 3, NOW);
        assert_eq!(own.claim(LossWay::Out, Side::Host, 5, NOW), 0);
        assert_eq!(own.claim(LossWay::In, Side::Wire, 5, NOW), 0);
        assert_eq!(own.claim(LossWay::In, Side::Host, 2, NOW), 2);
        assert_eq!(own.claim(LossWay::In, Side::Host, 2, NOW), 1);
        assert_eq!(own.claim(LossWay::In, Side::Host, 2, NOW), 0);
        own.note(LossWay::In, Side::Host, 3, NOW);
        assert_eq!(own.claim(LossWay::In, Side::Host, 2, NOW.plus_ns(OWN_LOSS_NS_MAX + 1)), 0);
    }

    #[test]
    fn the_blame_moves_and_does_not_grow() {
        let mut losses = Losses::default();
        losses.charge(Finding::Before(3));
        losses.own_up(Finding::Before(3), 2);
        assert_eq!((losses.before, losses.inside), (1, 2));
        losses.charge(Finding::Overtaken);
        assert_eq!((losses.before, losses.overtaken), (0, 1));
    }
}
