//! What is told of messages: each that a line denied, would deny or logs, and each that was dropped
//! for another reason. Whoever runs the engine takes them; what nobody takes is bounded.

use std::sync::Arc;

use weir_wire::bth::Qpn;
use weir_wire::ext;
use weir_wire::frame::Time;
use weir_wire::parse::Rdma;

use super::{Access, AccessAction, LineNumber, Operation};
use crate::meter::Observation;
use crate::verdict::{DropReason, Side};

/// Events that wait to be taken; further ones are lost and counted.
pub const EVENTS_MAX: usize = 1024;

/// What an atomic operation works on.
const ATOMIC_BYTES: u32 = 8;

/// A message that was denied, or would have been, or whose line is logged; or one that was dropped
/// for another reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AccessEvent {
    /// When its packet came.
    pub time: Time,
    /// By which port.
    pub side: Option<Side>,
    /// The name of the line that decided; `None`: the default did, or none was asked.
    pub line: Option<Arc<str>>,
    /// What it did.
    pub action: AccessAction,
    /// Why it was dropped where the line did not do that: more than its limit, forged, without a
    /// connection, or of a number that nobody waits for.
    pub dropped: Option<DropReason>,
    /// Who asked.
    pub from: [u8; 16],
    /// Whom.
    pub to: [u8; 16],
    /// Which queue pair.
    pub destination_qp: Qpn,
    /// For what; of an answer: `other`.
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

impl AccessEvent {
    /// Whether the message went on.
    pub fn passes(&self) -> bool {
        self.dropped.is_none() && self.action.passes()
    }
}

impl Access {
    /// Tells of a message that no line dropped.
    #[cold]
    pub(super) fn tell_of_drop(
        &mut self,
        reason: DropReason,
        operation: Option<Operation>,
        packet: &Observation<'_>,
        rdma: &Rdma,
    ) {
        let is_told = matches!(reason, DropReason::AccessDenied | DropReason::AccessLimit);
        if !is_told && rdma.opcode.starts_message() {
            let operation = operation.unwrap_or(Operation::Other);
            let nobody = (LineNumber::DEFAULT, AccessAction::Deny);
            self.tell(nobody, Some(reason), operation, packet, rdma);
        }
    }

    /// Tells of a message that line `number` decided about.
    #[cold]
    pub(super) fn tell(
        &mut self,
        (number, action): (LineNumber, AccessAction),
        dropped: Option<DropReason>,
        operation: Operation,
        packet: &Observation<'_>,
        rdma: &Rdma,
    ) {
        if self.events.len() >= EVENTS_MAX {
            self.events_lost += 1;
            return;
        }
        let of_request = ext::reth(packet.bytes, rdma)
            .map(|it| Memory { remote_key: it.remote_key.get(), length: it.dma_length.get() });
        let of_atomic = || {
            ext::atomic_eth(packet.bytes, rdma)
                .map(|it| Memory { remote_key: it.remote_key.get(), length: ATOMIC_BYTES })
        };
        let memory = of_request.or_else(of_atomic);
        self.events.push_back(AccessEvent {
            time: packet.now,
            side: packet.side,
            line: number.index().map(|index| Arc::clone(&self.policy.lines()[index].name)),
            action,
            dropped,
            from: packet.parsed.source,
            to: packet.parsed.destination,
            destination_qp: rdma.destination_qp,
            operation,
            memory,
        });
    }

    /// The oldest event that waits.
    pub(crate) fn take_event(&mut self) -> Option<AccessEvent> {
        self.events.pop_front()
    }
}
