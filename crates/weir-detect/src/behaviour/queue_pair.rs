//! What one queue pair is sent: PSNs in order, message by message, each once.

use std::hash::{BuildHasher, Hasher};

use weir_wire::bth::{Opcode, Operation, Psn};
use weir_wire::ext;
use weir_wire::frame::Time;
use weir_wire::parse::{Parsed, Rdma};

use crate::state::Keyed;

/// How far a request may be from the one expected: more than any requester has on its way.
const WINDOW: i32 = 1 << 14;
/// The smallest path MTU: so many packets may answer a READ at most.
const MTU_MIN: u32 = 256;
/// Requests whose content is remembered.
const REMEMBERED: usize = 16;
/// Bytes at each end of a payload that stand for it.
const ENDS: usize = 48;

/// One direction of a reliable queue pair.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct QueuePair {
    /// Which of the pair's connections it belongs to: see `Pair::epoch`.
    pub(super) epoch: u32,
    /// When it was last sent a request.
    pub(super) last: Time,
    is_known: bool,
    /// The highest PSN that was sent, and the highest that may come next.
    low: Psn,
    high: Psn,
    /// The operation whose Last has not come yet.
    open: Option<Operation>,
    /// PSN and content of the requests before.
    requests: [(u32, u32); REMEMBERED],
    next: u8,
    /// The UDP ports it came from: the last, and another before.
    ports: [u16; 2],
}

/// What is wrong with a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Wrong {
    /// Its PSN is far from all that could come.
    pub(super) is_far: bool,
    /// Another request had its PSN.
    pub(super) is_other: bool,
    /// It does not continue the message before it, or begins one too early.
    pub(super) is_disordered: bool,
    /// It came from a port that the queue pair had left.
    pub(super) is_from_other_port: bool,
}

/// Whether an opcode is one of a requester's on a reliable connection.
pub(super) fn is_request(rdma: &Rdma) -> bool {
    // IBTA Vol 1 table 38: the upper three bits are the transport, 0 is RC.
    rdma.opcode.0 >> 5 == 0
        && matches!(
            rdma.opcode.operation(),
            Operation::Send | Operation::Write | Operation::ReadRequest | Operation::Atomic
        )
}

impl QueuePair {
    /// One of the pair's connections at that time, of which nothing is known yet.
    pub(super) fn of(epoch: u32, last: Time) -> Self {
        Self { epoch, last, ..Self::default() }
    }

    /// Takes a request into account.
    pub(super) fn take(&mut self, bytes: &[u8], parsed: &Parsed, rdma: &Rdma, port: u16) -> Wrong {
        let psn = rdma.psn;
        let length = ext::reth(bytes, rdma).map_or(0, |it| it.dma_length.get());
        let count = match rdma.opcode.operation() {
            Operation::ReadRequest => length.div_ceil(MTU_MIN).clamp(1, 1 << 22),
            _ => 1,
        };
        let content = content(bytes, parsed, rdma);
        let mut wrong = Wrong { is_from_other_port: self.is_other_port(port), ..Wrong::default() };
        if !self.is_known {
            (self.is_known, self.low, self.high) = (true, psn, psn.add(count));
            self.open = opens(rdma.opcode);
            self.remember(psn, content);
            return wrong;
        }
        let ahead = psn.distance(self.low);
        if ahead < -WINDOW || ahead > self.high.distance(self.low) + WINDOW {
            wrong.is_far = true;
            return wrong;
        }
        match self.requests.iter().find(|it| it.0 == psn.value() | 1 << 31) {
            Some((_, before)) => wrong.is_other = *before != content,
            None => self.remember(psn, content),
        }
        if ahead > 0 {
            // Behind a gap, what is missing may have been the First or the Last.
            let is_next = ahead == 1;
            wrong.is_disordered = is_next && continues(rdma.opcode) != self.open;
            self.open = opens(rdma.opcode);
            (self.low, self.high) = (psn, psn.add(count));
        }
        wrong
    }

    fn remember(&mut self, psn: Psn, content: u32) {
        self.requests[usize::from(self.next)] = (psn.value() | 1 << 31, content);
        self.next = (self.next + 1) % REMEMBERED as u8;
    }

    /// Whether the port is the one before the last: two senders take turns.
    fn is_other_port(&mut self, port: u16) -> bool {
        let [last, before] = self.ports;
        if port == last {
            return false;
        }
        self.ports = [port, last];
        port == before && last != 0
    }
}

/// The operation that a packet leaves open, or `None` with its Last or Only.
fn opens(opcode: Opcode) -> Option<Operation> {
    let goes_on = matches!(opcode.0 & 0x1f, 0x00 | 0x01 | 0x06 | 0x07);
    goes_on.then(|| opcode.operation())
}

/// The operation that must be open before a packet, or `None` before a First or an Only.
fn continues(opcode: Opcode) -> Option<Operation> {
    // Middle, Last, Last with immediate or with invalidate.
    let continues = matches!(opcode.0 & 0x1f, 0x01..=0x03 | 0x07..=0x09 | 0x16);
    continues.then(|| opcode.operation())
}

/// What stands behind the BTH, by its ends and length: the same for a packet that is sent again.
fn content(bytes: &[u8], parsed: &Parsed, rdma: &Rdma) -> u32 {
    let end = rdma.icrc_offset.map_or(parsed.end as usize, usize::from);
    let begin = usize::from(rdma.bth_offset) + 12;
    let bytes = bytes.get(begin..end).unwrap_or_default();
    let mut hasher = Keyed(0).build_hasher();
    hasher.write_u8(rdma.opcode.0);
    hasher.write_usize(bytes.len());
    hasher.write(&bytes[..bytes.len().min(ENDS)]);
    hasher.write(&bytes[bytes.len().saturating_sub(ENDS)..]);
    hasher.finish() as u32
}
