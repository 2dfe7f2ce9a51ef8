//! Operations of several packets: what rules look for may lie over the border of two of them.
//!
//! ```text
//!   FIRST  MIDDLE  MIDDLE  LAST      PSNs count up
//!   ------ past ------ | new         one window a queue pair's requests, one for its READ responses
//! ```
//!
//! A packet that is sent again (go-back-N) takes the place of what came from its PSN on, so that
//! what is looked at is what the receiver has. A packet behind a gap is looked at by itself: its
//! receiver does not take it (reliable connections), or gives the message up.

use weir_wire::bth::{Operation as Kind, Position, Psn};
use weir_wire::ext;

use crate::packet::View;
use crate::rule::RuleIndex;

/// Bytes of an operation's past that are looked at together with a packet's.
const PAST_MAX: usize = 4096;
/// Rules that wait for more of an operation, and rules that matched it, at most.
const RULES_MAX: usize = 256;

/// What the first packet said of its operation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Head {
    pub(crate) remote_key: Option<u32>,
    pub(crate) length: Option<u32>,
}

/// The operations of one sender to one queue pair that are under way.
#[derive(Debug, Default)]
pub(crate) struct Operations {
    request: Option<Operation>,
    response: Option<Operation>,
    /// The packet at hand belongs to the response.
    is_response: bool,
}

/// One of them.
#[derive(Debug)]
pub(crate) struct Operation {
    kind: Kind,
    /// PSNs of its first packet, and of the next.
    first: Psn,
    next: Psn,
    /// Bytes of payload that each packet but the last has.
    packet_len: usize,
    head: Head,
    /// The last bytes so far, of them those of the packet at hand, and bytes before.
    bytes: Vec<u8>,
    new: usize,
    before: u64,
    is_whole: bool,
    waiting: Vec<RuleIndex>,
    matched: Vec<RuleIndex>,
}

impl Operations {
    /// Takes a packet in; whether it is a piece of an operation, in its place.
    pub(crate) fn take(&mut self, view: &View<'_>) -> bool {
        let Some(rdma) = &view.parsed.rdma else { return false };
        let kind = rdma.opcode.operation();
        self.is_response = kind == Kind::ReadResponse;
        if !matches!(kind, Kind::Send | Kind::Write | Kind::ReadResponse) {
            return false;
        }
        let place = if self.is_response { &mut self.response } else { &mut self.request };
        let psn = rdma.psn;
        match (rdma.opcode.position(), place) {
            (Position::First, place) => {
                // One that came before, of an older operation, is none that begins.
                let is_old = |it: &Operation| psn.distance(it.first) < 0;
                if kind != Kind::ReadResponse && place.as_ref().is_some_and(is_old) {
                    return false;
                }
                *place = Some(Operation::begin(kind, psn, view));
                true
            }
            (Position::Middle | Position::Last, Some(operation)) if operation.kind == kind => {
                let is_last = rdma.opcode.position() == Position::Last;
                operation.go_on(psn, view.payload, is_last)
            }
            _ => false,
        }
    }

    /// The operation that the last packet is a piece of.
    pub(crate) fn at_hand(&mut self) -> Option<&mut Operation> {
        match self.is_response {
            true => self.response.as_mut(),
            false => self.request.as_mut(),
        }
    }

    /// Forgets the operation at hand if it is whole.
    pub(crate) fn let_go(&mut self) {
        let place = if self.is_response { &mut self.response } else { &mut self.request };
        place.take_if(|it| it.is_whole);
    }

    /// Other rules will look.
    pub(crate) fn forget_rules(&mut self) {
        for operation in [&mut self.request, &mut self.response].into_iter().flatten() {
            operation.waiting.clear();
            operation.matched.clear();
        }
    }
}

impl Operation {
    fn begin(kind: Kind, psn: Psn, view: &View<'_>) -> Self {
        let reth = view.parsed.rdma.as_ref().and_then(|it| ext::reth(view.bytes, it));
        let head = Head {
            remote_key: reth.map(|it| it.remote_key.get()),
            length: reth.map(|it| it.dma_length.get()),
        };
        Self {
            kind,
            first: psn,
            next: psn.add(1),
            packet_len: view.payload.len(),
            head,
            bytes: view.payload.to_vec(),
            new: view.payload.len(),
            before: 0,
            is_whole: false,
            waiting: Vec::new(),
            matched: Vec::new(),
        }
    }

    /// Takes a packet that is not the first; whether it is one of its own.
    fn go_on(&mut self, psn: Psn, payload: &[u8], is_last: bool) -> bool {
        let place = psn.distance(self.first);
        if place <= 0 || psn.distance(self.next) > 0 {
            return false;
        }
        if psn != self.next {
            // What came from here on comes again.
            let at = (place as u64).saturating_mul(self.packet_len as u64);
            let kept = usize::try_from(at.saturating_sub(self.before)).unwrap_or(usize::MAX);
            self.bytes.truncate(kept);
            if at < self.before {
                self.before = at;
            }
        }
        let past = self.bytes.len().saturating_sub(PAST_MAX);
        self.bytes.drain(..past);
        self.before += past as u64;
        self.bytes.extend_from_slice(payload);
        self.new = payload.len();
        self.next = psn.add(1);
        self.is_whole = is_last;
        true
    }

    /// Its last bytes, how many stand before them, and how many of them are new.
    pub(crate) fn window(&self) -> (&[u8], u64, usize) {
        (&self.bytes, self.before, self.new)
    }

    /// What its first packet said.
    pub(crate) fn head(&self) -> Head {
        self.head
    }

    /// Whether its last packet is here.
    pub(crate) fn is_whole(&self) -> bool {
        self.is_whole
    }

    /// Rules whose fast pattern came, but not all that they ask.
    pub(crate) fn waiting(&self) -> &[RuleIndex] {
        &self.waiting
    }

    /// A rule waits for more; whether there was room for it.
    pub(crate) fn wait(&mut self, rule: RuleIndex) -> bool {
        if self.waiting.contains(&rule) {
            return true;
        }
        let has_room = self.waiting.len() < RULES_MAX;
        if has_room {
            self.waiting.push(rule);
        }
        has_room
    }

    pub(crate) fn is_matched(&self, rule: RuleIndex) -> bool {
        self.matched.contains(&rule)
    }

    /// A rule matched: it does not count again for this operation.
    pub(crate) fn match_ends(&mut self, rule: RuleIndex) {
        self.waiting.retain(|it| *it != rule);
        if self.matched.len() < RULES_MAX {
            self.matched.push(rule);
        }
    }
}
