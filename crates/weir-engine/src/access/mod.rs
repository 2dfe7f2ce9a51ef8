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
//! ```
//!
//! Requests are judged, by the message that they belong to; responses and acknowledgments pass,
//! for they answer requests that passed. What decides about a direction of a queue pair is found
//! once for each policy and kept, so that a packet costs the same under one line and under ten
//! thousand. Beyond the meter's bound of conversations nothing is kept: the lines are found anew.
//!
//! Source: IBTA Vol 1 ch. 9 (operations), ch. 13 (management datagrams).

use std::collections::VecDeque;
use std::sync::Arc;

use weir_wire::bth::{self, Extension, Qpn, Service};
use weir_wire::ethernet::ethertype;
use weir_wire::ext;
use weir_wire::frame::Time;
use weir_wire::parse::{Fault, Network, Parsed, Rdma, Transport};
use weir_wire::udp::PORT_ROCE_V2;

use crate::meter::{Observation, Observed};
use crate::rdma::ConversationHandle;
use crate::verdict::{DropReason, Side};

mod check;
mod index;
mod lines;
mod policy;

pub use check::Oddity;
pub use lines::{
    AccessAction, LINES_MAX, Line, LineNumber, MEMBERS_MAX, Operation, Operations, Party,
};
pub use policy::{AccessPolicy, Decisions};

/// Events that wait to be taken; further ones are lost and counted.
pub const EVENTS_MAX: usize = 1024;

/// What decides about one direction of a queue pair.
#[derive(Clone, Copy, Debug, Default)]
struct Judged {
    /// Of the conversation; 0, which none has: nothing was found yet.
    generation: u32,
    decisions: Decisions,
}

// Two directions a queue pair, beyond what the meter keeps of it.
const _: () = assert!(2 * size_of::<Judged>() <= 128);

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

/// A message that was denied, or would have been, or whose line is logged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AccessEvent {
    /// When its packet came.
    pub time: Time,
    /// By which port.
    pub side: Option<Side>,
    /// The name of the line that decided; `None`: the default did.
    pub line: Option<Arc<str>>,
    /// What it did.
    pub action: AccessAction,
    /// Who asked.
    pub from: [u8; 16],
    /// Whom.
    pub to: [u8; 16],
    /// Which queue pair.
    pub destination_qp: Qpn,
    /// For what.
    pub operation: Operation,
    /// The memory that the packet names, if it does.
    pub memory: Option<Memory>,
}

/// Memory that an RDMA request names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Memory {
    /// The key to it.
    pub remote_key: u32,
    /// How much of it, bytes.
    pub length: u32,
}

/// The lines in force and what they did.
#[derive(Debug)]
pub struct Access {
    policy: Arc<AccessPolicy>,
    /// By place of the conversation, two directions each.
    judged: Vec<[Judged; 2]>,
    /// By line.
    hits: Vec<Hits>,
    default_hits: Hits,
    unreadable: u64,
    events: VecDeque<AccessEvent>,
    events_lost: u64,
}

impl Access {
    /// Judges by `policy` what a meter counts that has room for `conversations_max`. Lines of the
    /// same name and action as `before` go on counting.
    pub(crate) fn new(
        policy: Arc<AccessPolicy>,
        before: Option<Self>,
        conversations_max: usize,
    ) -> Self {
        let mut hits = vec![Hits::default(); policy.lines().len()];
        let Some(before) = before else {
            return Self {
                policy,
                judged: Vec::with_capacity(conversations_max),
                hits,
                default_hits: Hits::default(),
                unreadable: 0,
                events: VecDeque::with_capacity(EVENTS_MAX),
                events_lost: 0,
            };
        };
        for (line, earlier) in policy.in_common(&before.policy) {
            hits[line] = before.hits[earlier];
        }
        let mut judged = before.judged;
        judged.clear();
        Self { policy, judged, hits, ..before }
    }

    /// Whether a packet may pass that was counted as `seen`.
    ///
    /// # Errors
    /// [`DropReason::AccessDenied`]; [`DropReason::AccessUnreadable`] for a fragment and for
    /// datagrams that come joined: what follows the first may say otherwise.
    #[inline]
    pub(crate) fn judge(
        &mut self,
        seen: &Observed,
        packet: &Observation<'_>,
        rdma: &Rdma,
    ) -> Result<(), DropReason> {
        if packet.parsed.fragment.is_some() || packet.segments > 1 {
            return Err(self.unreadable());
        }
        let Some(operation) = operation(packet.parsed, rdma) else { return Ok(()) };
        let number = self.line_of(seen, operation, packet);
        let starts_message = rdma.opcode.starts_message();
        let hits = match number.index() {
            Some(index) => &mut self.hits[index],
            None => &mut self.default_hits,
        };
        hits.messages += u64::from(starts_message);
        hits.packets += 1;
        hits.bytes += u64::from(packet.original_len);
        let (action, log) = self.policy.action_of(number);
        if action == AccessAction::Allow && !log {
            return Ok(());
        }
        if starts_message {
            self.tell(number, action, operation, packet, rdma);
        }
        if action.passes() { Ok(()) } else { Err(DropReason::AccessDenied) }
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

    #[inline]
    fn line_of(
        &mut self,
        seen: &Observed,
        operation: Operation,
        packet: &Observation<'_>,
    ) -> LineNumber {
        let (from, to) = (&packet.parsed.source, &packet.parsed.destination);
        let Some(conversation) = seen.conversation else {
            return self.policy.decide_one(from, to, operation);
        };
        let direction = usize::from(seen.direction);
        let known = self.judged.get(conversation.place()).map(|both| &both[direction]);
        match known {
            Some(it) if it.generation == conversation.generation() => it.decisions.of(operation),
            _ => self.find_lines(conversation, direction, packet.parsed).of(operation),
        }
    }

    #[cold]
    fn find_lines(
        &mut self,
        conversation: ConversationHandle,
        direction: usize,
        parsed: &Parsed,
    ) -> Decisions {
        let decisions = self.policy.decide(&parsed.source, &parsed.destination);
        let place = conversation.place();
        if self.judged.len() <= place {
            self.judged.resize(place + 1, Default::default());
        }
        self.judged[place][direction] = Judged { generation: conversation.generation(), decisions };
        decisions
    }

    #[cold]
    fn tell(
        &mut self,
        number: LineNumber,
        action: AccessAction,
        operation: Operation,
        packet: &Observation<'_>,
        rdma: &Rdma,
    ) {
        if self.events.len() >= EVENTS_MAX {
            self.events_lost += 1;
            return;
        }
        let memory = ext::reth(packet.bytes, rdma).map(|reth| Memory {
            remote_key: reth.remote_key.get(),
            length: reth.dma_length.get(),
        });
        self.events.push_back(AccessEvent {
            time: packet.now,
            side: packet.side,
            line: number.index().map(|index| Arc::clone(&self.policy.lines()[index].name)),
            action,
            from: packet.parsed.source,
            to: packet.parsed.destination,
            destination_qp: rdma.destination_qp,
            operation,
            memory,
        });
    }

    /// The lines in force.
    pub fn policy(&self) -> &Arc<AccessPolicy> {
        &self.policy
    }

    /// How often each line decided, in their order.
    pub fn hits(&self) -> &[Hits] {
        &self.hits
    }

    /// How often each line decided, in their order, and last the default.
    pub fn hits_by_line(&self) -> impl Iterator<Item = (LineNumber, Hits)> {
        let lines = (0..).map(LineNumber).zip(self.hits.iter().copied());
        lines.chain([(LineNumber::DEFAULT, self.default_hits)])
    }

    /// How often no line matched.
    pub fn default_hits(&self) -> Hits {
        self.default_hits
    }

    /// Packets that are RDMA and could not be read.
    pub fn unreadable_packets(&self) -> u64 {
        self.unreadable
    }

    /// Events for which there was no room.
    pub fn events_lost(&self) -> u64 {
        self.events_lost
    }

    /// The oldest event that waits.
    pub(crate) fn take_event(&mut self) -> Option<AccessEvent> {
        self.events.pop_front()
    }
}

/// What the packet asks; `None`: nothing, it answers or is of the fabric.
#[inline]
fn operation(parsed: &Parsed, rdma: &Rdma) -> Option<Operation> {
    let opcode = rdma.opcode;
    Some(match opcode.operation() {
        bth::Operation::Send if opcode.service() == Service::UnreliableDatagram => {
            datagram(parsed, rdma)
        }
        bth::Operation::Send if opcode.carries(Extension::ImmDt) => Operation::SendImmediate,
        bth::Operation::Send => Operation::Send,
        bth::Operation::Write | bth::Operation::AtomicWrite | bth::Operation::Flush => {
            Operation::Write
        }
        bth::Operation::ReadRequest => Operation::Read,
        bth::Operation::Atomic => Operation::Atomic,
        bth::Operation::Resync | bth::Operation::Reserved => Operation::Other,
        bth::Operation::ReadResponse
        | bth::Operation::Acknowledge
        | bth::Operation::AtomicAcknowledge
        | bth::Operation::CongestionNotification => return None,
    })
}

fn datagram(parsed: &Parsed, rdma: &Rdma) -> Operation {
    if rdma.destination_qp == Qpn::GENERAL_SERVICES {
        Operation::Connect
    } else if rdma.destination_qp == Qpn::MULTICAST || is_group(&parsed.destination) {
        Operation::Multicast
    } else if rdma.opcode.carries(Extension::ImmDt) {
        Operation::SendImmediate
    } else {
        Operation::Send
    }
}

/// Whether an address, in the form of `Parsed`, is a group's.
fn is_group(address: &[u8; 16]) -> bool {
    let is_v4 = address[..12] == [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff];
    address[0] == 0xff || (is_v4 && address[12] & 0xf0 == 0xe0)
}
