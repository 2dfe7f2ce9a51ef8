//! The RDMA firewall: who may do what to whose memory.
//!
//! ```text
//!   packet, counted -> which operation? --none: an answer----------------------------> passes
//!                            |
//!                            v
//!            the line kept for this direction of the queue pair, or found now
//!                            |
//!                            +--> allow --> passes;  would_deny --> passes, and an event
//!                            +--> deny  --> dropped, and an event a message
//!                            +--> reject -> dropped, an event, and an answer (ADR 62)
//! ```
//!
//! Requests are judged, by the message that they belong to; responses and acknowledgments pass,
//! for they answer requests that passed. What decides about a direction of a queue pair is found
//! once for each policy and kept, so that a packet costs the same under one line and under ten
//! thousand. Beyond the meter's bound of conversations nothing is kept: the lines are found anew.
//!
//! When a direction's lines are found it is also asked whom its queue pair belongs to ([`state`]):
//! who set it up with connection managers' messages, or spoke to it first.
//!
//! Source: IBTA Vol 1 ch. 9 (operations), ch. 13 (management datagrams).

use std::collections::VecDeque;
use std::sync::Arc;

use weir_wire::cm::{self, Message};
use weir_wire::ethernet::ethertype;
use weir_wire::ext;
use weir_wire::frame::Time;
use weir_wire::icrc::{self, IcrcStatus};
use weir_wire::mad::is_management;
use weir_wire::parse::{Fault, MacAddress, Network, Parsed, Rdma, Transport};
use weir_wire::udp::PORT_ROCE_V2;

use crate::flow::HashSeed;
use crate::meter::{Meter, Observation, Observed};
use crate::rdma::{ConversationHandle, DEPARTED_BYTES, StageData};
use crate::verdict::DropReason;

mod alternate;
mod answer;
mod awaited;
mod check;
mod counted;
mod datagrams;
mod direction;
mod event;
mod index;
mod limits;
mod lines;
mod numbers;
mod operation;
mod owners;
mod policy;
mod saved;
mod settled;
mod state;
mod terms;
mod windows;

pub(crate) use answer::{ANSWER_LEN_MAX, Answer};
pub use check::Oddity;
pub use event::{AccessEvent, EVENTS_MAX, Memory};
pub use limits::{ACCOUNTS_MAX, Limits, Spent};
pub use lines::{
    AccessAction, LINES_MAX, Line, LineNumber, MEMBERS_MAX, Marks, Operation, Operations, Party,
};
pub use operation::{asked, is_group};
pub use owners::ConnectionChange;
pub use policy::{AccessPolicy, Decisions, Lacking};
pub use saved::{SavedOwner, SavingPlace};
pub use state::{AccessState, StateCounters};
pub use terms::{Asked, Hours, QueuePairType, QueuePairTypes, Services, Terms};
pub use windows::PsnCheck;

use direction::{Aparts, DirectionState, Kind, Set, Sets};
use limits::{Cost, Limiter};
use operation::{is_answer, operation};
use state::{Admitted, State};
use windows::{Window, Windows};

/// Bytes that a queue pair takes beyond what the meter counts of it: its direction's data, and what
/// outlasts it, its owner with the place in the table, and what some policies keep apart. Its entry
/// in the index, 8 to 16 bytes, comes on top.
pub const BYTES_PER_QUEUE_PAIR: usize =
    size_of::<StageData>() + DEPARTED_BYTES + owners::OWNER_BYTES + direction::APART_BYTES;
const _: () = assert!(BYTES_PER_QUEUE_PAIR + 16 <= 160);

/// What a line, or the default, decided about.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Hits {
    /// Messages, by their first packets.
    pub messages: u64,
    /// Packets.
    pub packets: u64,
    /// Their bytes on the link.
    pub bytes: u64,
}

/// The lines in force and what they did.
#[derive(Debug)]
pub struct Access {
    policy: Arc<AccessPolicy>,
    seed: HashSeed,
    sets: Sets,
    aparts: Aparts,
    /// What was decided before has another number.
    round: u16,
    /// What lower ones mark is of an earlier life.
    first_round: u16,
    state: State,
    windows: Windows,
    answer: Box<Answer>,
    limiter: Limiter,
    /// Of the lines that do not always hold, which do.
    holding: Vec<bool>,
    /// When to look at that again.
    look_again: Time,
    /// By line.
    hits: Vec<Hits>,
    default_hits: Hits,
    unreadable: u64,
    events: VecDeque<AccessEvent>,
    events_lost: u64,
    /// The queue pair that the last packet showed the owner of, and the packet's direction.
    learnt: Option<(u64, (ConversationHandle, u8))>,
    /// Whether the last packet is a connection managers' message that is to be taken in.
    is_to_follow: bool,
}

impl Access {
    /// Judges by `policy` what `meter` counts. Lines of the same name and action as `before` go on
    /// counting, and queue pairs keep their owners.
    pub(crate) fn new(policy: Arc<AccessPolicy>, before: Option<Self>, meter: &mut Meter) -> Self {
        let mut hits = vec![Hits::default(); policy.lines().len()];
        let conversations_max = meter.limits().conversations_max;
        let Some(before) = before else {
            let (knows_sides, round) = (policy.knows_sides(), meter.next_round());
            return Self {
                policy,
                seed: meter.seed(),
                sets: Sets::default(),
                aparts: Aparts::new(conversations_max),
                round,
                first_round: round,
                windows: Windows::default(),
                state: State::new(meter.seed(), conversations_max, knows_sides),
                answer: Box::default(),
                limiter: Limiter::new(meter.seed()),
                holding: Vec::new(),
                look_again: Time::default(),
                hits,
                default_hits: Hits::default(),
                unreadable: 0,
                events: VecDeque::with_capacity(EVENTS_MAX),
                events_lost: 0,
                learnt: None,
                is_to_follow: false,
            };
        };
        for (line, earlier) in policy.in_common(&before.policy) {
            hits[line] = before.hits[earlier];
        }
        let knows_no_numbers = before.policy.psn() != policy.psn();
        let mut access = Self { policy, hits, look_again: Time::default(), ..before };
        access.decide_anew(meter);
        // Who looked at no numbers, or not at all of them, knows none now.
        if knows_no_numbers {
            access.first_round = access.round;
        }
        access
    }

    /// Whether a packet may pass that was counted as `seen`. If nothing else drops it, it has
    /// [`Access::passed`].
    ///
    /// # Errors
    /// [`DropReason::AccessDenied`]; [`DropReason::AccessUnreadable`] for a fragment and for
    /// datagrams that come joined: what follows the first may say otherwise; those of
    /// [`AccessState`].
    #[inline]
    pub(crate) fn judge(
        &mut self,
        seen: &Observed,
        packet: &Observation<'_>,
        rdma: &Rdma,
        meter: &mut Meter,
    ) -> Result<(), DropReason> {
        if packet.parsed.fragment.is_some() || packet.segments > 1 {
            return Err(self.unreadable());
        }
        if packet.now >= self.look_again {
            self.look_at_time(packet.now, meter);
        }
        (self.learnt, self.is_to_follow) = (None, false);
        let operation = operation(packet.parsed, rdma);
        let judged = match operation {
            Some(operation) => self.judge_request(operation, seen, packet, rdma, meter),
            None => self.judge_answer(seen, packet, rdma, meter),
        };
        if let Err(reason) = judged {
            self.tell_of_drop(reason, operation, packet, rdma);
            self.unlearn(meter);
        }
        judged
    }

    /// The packet that was judged last passes, by what else judges too: what connection managers
    /// say by it is so (docs/adr/0305).
    ///
    /// # Errors
    /// [`DropReason::AccessUnreadable`] for a REQ that contradicts an earlier one; those of
    /// [`AccessState`].
    #[inline]
    pub(crate) fn passed(
        &mut self,
        packet: &Observation<'_>,
        rdma: &Rdma,
        meter: &mut Meter,
    ) -> Result<(), DropReason> {
        // A receiver throws a message away that has another ICRC.
        let is_damaged = || icrc::check(packet.bytes, packet.parsed) == IcrcStatus::Invalid;
        if !std::mem::take(&mut self.is_to_follow) || is_damaged() {
            return Ok(());
        }
        self.follow(packet, meter).inspect_err(|reason| {
            self.tell_of_drop(*reason, Some(Operation::Connect), packet, rdma);
        })
    }

    /// The packet that was judged last is dropped: it shows nobody's queue pair. Otherwise whoever
    /// may send nothing could take away everybody's.
    #[inline]
    pub(crate) fn unlearn(&mut self, meter: &mut Meter) {
        if let Some((key, judged)) = self.learnt.take() {
            self.state.withdraw(key);
            forget([Some(judged)], meter);
        }
    }

    /// Whether a packet that asks for something may pass.
    ///
    /// # Errors
    /// Those of [`Access::judge`].
    #[inline]
    fn judge_request(
        &mut self,
        operation: Operation,
        seen: &Observed,
        packet: &Observation<'_>,
        rdma: &Rdma,
        meter: &mut Meter,
    ) -> Result<(), DropReason> {
        let (number, is_plain) = match operation {
            Operation::Connect if self.policy.names_terms() => {
                (self.line_of_message(packet), false)
            }
            _ => self.line_for(operation, seen, packet, rdma, meter)?,
        };
        if self.policy.psn() != PsnCheck::Off && windows::are_for(rdma) {
            self.check_request(seen, packet, rdma, meter)?;
        }
        let hits = match number.index() {
            Some(index) => &mut self.hits[index],
            None => &mut self.default_hits,
        };
        hits.messages += u64::from(rdma.opcode.starts_message());
        hits.packets += 1;
        hits.bytes += u64::from(packet.original_len);
        if is_plain && operation != Operation::Connect {
            return Ok(());
        }
        self.act((number, operation), seen, packet, rdma, meter)
    }

    /// Does what the line says that decides about a request, beside counting it.
    ///
    /// # Errors
    /// Those of [`Access::judge`].
    #[inline(never)]
    fn act(
        &mut self,
        (number, operation): (LineNumber, Operation),
        seen: &Observed,
        packet: &Observation<'_>,
        rdma: &Rdma,
        meter: &mut Meter,
    ) -> Result<(), DropReason> {
        let (action, log) = self.policy.action_of(number);
        if rdma.opcode.starts_message() && (action != AccessAction::Allow || log) {
            self.tell((number, action), None, operation, packet, rdma);
        }
        if !action.passes() {
            self.answer.clear();
            if action == AccessAction::Reject {
                self.reject(operation, seen, packet, rdma, meter);
            }
            return Err(DropReason::AccessDenied);
        }
        if self.policy.limits_of(number).is_some() {
            self.limit(number, operation, packet, rdma)?;
        }
        self.is_to_follow = operation == Operation::Connect;
        Ok(())
    }

    /// Whether an answer may pass, or a packet that asks for nothing.
    ///
    /// # Errors
    /// [`DropReason::AccessPsn`]; those of [`AccessState`].
    fn judge_answer(
        &mut self,
        seen: &Observed,
        packet: &Observation<'_>,
        rdma: &Rdma,
        meter: &mut Meter,
    ) -> Result<(), DropReason> {
        if self.policy.state() != AccessState::Off || self.policy.rejects() {
            self.line_for(Operation::Other, seen, packet, rdma, meter)?;
        }
        if self.policy.psn() != PsnCheck::Off && windows::are_for(rdma) {
            self.check_response(seen, packet, rdma, meter)?;
        }
        if self.policy.rejects() {
            self.note_acknowledged(seen, packet, rdma);
        }
        Ok(())
    }

    /// Charges the packet's source with it.
    ///
    /// # Errors
    /// [`DropReason::AccessLimit`].
    #[inline(never)]
    fn limit(
        &mut self,
        line: LineNumber,
        operation: Operation,
        packet: &Observation<'_>,
        rdma: &Rdma,
    ) -> Result<(), DropReason> {
        let Some(limits) = self.policy.limits_of(line) else { return Ok(()) };
        let asks_for_connection = operation == Operation::Connect
            && matches!(
                cm::message(packet.bytes, packet.parsed),
                Some((_, Message::Request(_) | Message::ServiceRequest(_)))
            );
        let [source, queue_pair] = self.state.fingerprints(packet, rdma);
        let reads = ext::reth(packet.bytes, rdma).filter(|_| operation == Operation::Read);
        let cost = Cost {
            now: packet.now,
            line,
            source,
            queue_pair,
            operation,
            starts_message: rdma.opcode.starts_message(),
            asks_for_connection,
            read_bytes: reads.map_or(0, |it| u64::from(it.dma_length.get())),
            bits: u64::from(packet.original_len) * 8,
        };
        let stand = || u64::from(self.state.connections_of(&packet.parsed.source));
        let has_room = !asks_for_connection || limits.queue_pairs.is_none_or(|most| stand() < most);
        if has_room && self.limiter.take(limits, &cost) {
            return Ok(());
        }
        self.limiter.limited += u64::from(!has_room);
        if rdma.opcode.starts_message() {
            let decided = (line, self.policy.action_of(line).0);
            self.tell(decided, Some(DropReason::AccessLimit), operation, packet, rdma);
        }
        Err(DropReason::AccessLimit)
    }

    /// The answer to the packet that was rejected last.
    pub(crate) fn take_answer(&mut self) -> Option<&[u8]> {
        self.answer.take()
    }

    /// Requests that were rejected and answered, and those that could not be.
    pub fn answers(&self) -> [u64; 2] {
        [self.answer.sent, self.answer.unsent]
    }

    /// Takes in what connection managers agree.
    #[cold]
    fn follow(&mut self, packet: &Observation<'_>, meter: &mut Meter) -> Result<(), DropReason> {
        let followed = self.state.follow(self.policy.state(), packet, meter);
        if followed.err() == Some(DropReason::AccessUnreadable) {
            return Err(self.unreadable());
        }
        let void = followed?;
        forget(void, meter);
        if std::mem::take(&mut self.state.serves_anew) {
            self.decide_anew(meter);
        }
        for (key, psn) in self.state.take_agreed().into_iter().flatten() {
            self.begin_window(&key, psn, packet.now, meter);
        }
        Ok(())
    }

    /// Whether a packet may pass in which no queue pair was found.
    ///
    /// # Errors
    /// [`DropReason::AccessUnreadable`]: it is RDMA by its port or EtherType, or hides both; its
    /// receiver might read it, after reassembly for one.
    pub(crate) fn judge_other(&mut self, parsed: &Parsed) -> Result<(), DropReason> {
        let is_roce = matches!(parsed.transport, Transport::Udp { destination: PORT_ROCE_V2, .. })
            || parsed.link.ethertype == ethertype::ROCE_V1;
        // More tags than the walk looks behind, or headers that it could not follow.
        let has_many_tags = ethertype::is_vlan(parsed.link.ethertype);
        let hides_port = matches!(parsed.network, Network::Ipv4 | Network::Ipv6)
            && parsed.transport == Transport::None
            && parsed.fault == Some(Fault::Malformed);
        if is_roce || has_many_tags || hides_port {
            return Err(self.unreadable());
        }
        Ok(())
    }

    #[cold]
    fn unreadable(&mut self) -> DropReason {
        self.unreadable += 1;
        DropReason::AccessUnreadable
    }

    /// The line that decides about `operation` of the packet's direction, and whether it lets pass
    /// and does nothing else.
    ///
    /// # Errors
    /// Those of [`AccessState`].
    #[inline]
    fn line_for(
        &mut self,
        operation: Operation,
        seen: &Observed,
        packet: &Observation<'_>,
        rdma: &Rdma,
        meter: &mut Meter,
    ) -> Result<(LineNumber, bool), DropReason> {
        let kind = Kind::new(packet.side, QueuePairType::of(rdma.opcode));
        let known = seen.conversation.and_then(|handle| {
            let kept =
                DirectionState::since(meter.stage_data(handle, seen.direction)?, self.round)?;
            let is_it = kept.kind.is(kind, !is_answer(rdma.opcode))
                && (!self.policy.names_links()
                    || self.aparts.at(handle, seen.direction).link == self.link(packet, rdma));
            self.sets.at(kept.set().filter(|_| is_it)?)
        });
        match known {
            Some(set) => Ok(set.of(operation)),
            None => Ok(self.find_lines(kind, seen, packet, rdma, meter)?.of(operation)),
        }
    }

    /// Asks whose queue pair it is, and which lines decide.
    #[cold]
    fn find_lines(
        &mut self,
        kind: Kind,
        seen: &Observed,
        packet: &Observation<'_>,
        rdma: &Rdma,
        meter: &mut Meter,
    ) -> Result<Set, DropReason> {
        let admitted = match is_management(rdma) {
            true => Admitted::default(),
            false => {
                let kind = self.policy.state();
                let admitted = self.state.admit(kind, seen, packet, meter.conversations());
                admitted.inspect_err(|_| self.ask_anew(seen, meter))?
            }
        };
        forget([admitted.void], meter);
        self.learnt = admitted.learnt.zip(seen.conversation.map(|handle| (handle, seen.direction)));
        let Parsed { source, destination, .. } = packet.parsed;
        let qp_type = QueuePairType::of(rdma.opcode);
        let asked = Asked { qp_type, service: admitted.service, ..Asked::of_packet(packet) };
        let decisions = self.policy.decide(source, destination, &asked);
        let set = Set::new(decisions, |number| self.policy.lets_past(number));
        let Some(handle) = seen.conversation.filter(|_| !admitted.is_passing) else {
            return Ok(set);
        };
        let number = self.number_of(&set, meter);
        if let Some(data) = meter.stage_data(handle, seen.direction) {
            // Its numbers go on, unless it is another queue pair's.
            let before = DirectionState::since(data, self.first_round);
            let kept = before.unwrap_or(DirectionState::with_window(Window::default()));
            *data = kept.decided(number, kind).stage_data(self.round);
            if self.policy.names_links() || self.policy.rejects() {
                let link = self.link(packet, rdma);
                let apart = self.aparts.at_mut(handle, seen.direction);
                apart.link = link;
                if before.is_none() {
                    apart.message_sequence = 0;
                }
            }
        }
        Ok(set)
    }

    /// Has the next packet of the direction ask whose its queue pair is: then its owner is heard,
    /// where a stranger has spoken in its name by the other port.
    fn ask_anew(&self, seen: &Observed, meter: &mut Meter) {
        let Some(handle) = seen.conversation else { return };
        let Some(data) = meter.stage_data(handle, seen.direction) else { return };
        if let Some(kept) = DirectionState::since(data, self.first_round) {
            *data = DirectionState::with_window(kept.window).stage_data(data.round);
        }
    }

    /// The number of a set; where there is no room for another, all lines are found anew.
    fn number_of(&mut self, set: &Set, meter: &mut Meter) -> u16 {
        if let Some(number) = self.sets.number_of(set) {
            return number;
        }
        self.decide_anew(meter);
        self.sets.number_of(set).unwrap_or_default()
    }

    /// A fingerprint of what lines may name and the conversation's key does not hold.
    fn link(&self, packet: &Observation<'_>, rdma: &Rdma) -> u32 {
        let word = |it: MacAddress| it.0.iter().fold(0, |sum, byte| sum << 8 | u64::from(*byte));
        let link = &packet.parsed.link;
        let words = [word(link.source), word(link.destination), u64::from(rdma.partition_key.0)];
        self.seed.hash(&words) as u32
    }

    /// Has every direction's lines be found again.
    fn decide_anew(&mut self, meter: &mut Meter) {
        self.round = meter.next_round();
        self.first_round = self.first_round.min(self.round);
        self.sets.clear();
    }

    /// The line that decides about a management datagram, which says what is asked for, or
    /// belongs to what was asked for before.
    #[cold]
    fn line_of_message(&self, packet: &Observation<'_>) -> LineNumber {
        let (qp_type, service) = match cm::message(packet.bytes, packet.parsed) {
            Some((_, Message::Request(it))) => {
                let kind = QueuePairType::of_request(it.transport_service());
                (kind, Some(it.service_id.get()))
            }
            Some((_, Message::ServiceRequest(it))) => {
                (Some(QueuePairType::Ud), Some(it.service_id.get()))
            }
            _ => (None, None),
        };
        let is_open = service.is_none();
        let asked = Asked { qp_type, service, is_open, ..Asked::of_packet(packet) };
        let Parsed { source, destination, .. } = packet.parsed;
        self.policy.decide_one(source, destination, Operation::Connect, &asked)
    }

    /// Forgets what was found when a line begins or ends to hold.
    #[cold]
    fn look_at_time(&mut self, now: Time, meter: &mut Meter) {
        let (holding, look_again) = self.policy.holding(now);
        if std::mem::replace(&mut self.holding, holding) != self.holding {
            self.decide_anew(meter);
        }
        self.look_again = look_again;
    }

    /// What sources have taken out of their limits and other workers have not heard of.
    pub fn take_spent(&mut self, tell: impl FnMut(Spent)) {
        self.limiter.take_spent(tell);
    }

    /// Charges a source with what another worker let it do.
    pub fn note_spent(&mut self, spent: &Spent, now: Time) {
        self.limiter.note_spent(spent, now);
    }

    /// Keeps for other workers which connections stand, from now on.
    pub(crate) fn share(&mut self) {
        self.state.share();
    }

    /// Connections that were made or ended here, of which other workers have not heard.
    pub(crate) fn take_connections(&mut self) -> Vec<ConnectionChange> {
        self.state.take_connections()
    }

    /// Takes in what another worker told of its connections.
    pub(crate) fn note_connections(&mut self, changes: &[ConnectionChange]) {
        self.state.note_connections(changes);
    }

    /// Takes an owner of an earlier life in: its queue pair goes on to be its. The meter must have
    /// the seed of that life.
    pub(crate) fn restore(&mut self, saved: &SavedOwner, now: Time) {
        self.state.restore(saved, now);
    }
}

/// Forgets what was decided about directions whose queue pairs went to others.
fn forget<const COUNT: usize>(void: [Option<(ConversationHandle, u8)>; COUNT], meter: &mut Meter) {
    for (conversation, direction) in void.into_iter().flatten() {
        if let Some(data) = meter.stage_data(conversation, direction) {
            *data = StageData::default();
        }
    }
}
