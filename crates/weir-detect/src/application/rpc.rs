//! DCE/RPC's messages of connections (C706 s12.6): which interface is bound, what is called.
//! Whoever carries them - TCP, or SMB's pipes - hands the bytes in.

use std::sync::Arc;

use super::Held;
use super::unit::{TEXT_LEN_MAX, Unit};
use crate::heap::{heap_size, no_heap};
use crate::rule::{Buffer, Field};
use crate::value::Object;

/// Bytes of the common header.
const HEAD_LEN: usize = 16;
/// The same with what a request has before its arguments.
const REQUEST_LEN: usize = 24;
/// Interfaces of a connection, and calls that wait for an answer, at most.
const INTERFACES_MAX: usize = 256;
const CALLS_MAX: usize = 64;

const REQUEST: u8 = 0;
const RESPONSE: u8 = 2;
const BIND: u8 = 11;
const BIND_ACK: u8 = 12;
const ALTER: u8 = 14;
const ALTER_ACK: u8 = 15;

/// An interface that the client asked for.
#[derive(Clone, Debug)]
struct Interface {
    context: u16,
    /// In the order in which it is written.
    identifier: [u8; 16],
    version: [u16; 2],
    /// It was asked for by the first fragment of a message, and by the first message.
    is_of_first: bool,
    is_of_bind: bool,
    /// What the server said to it, and why.
    result: Option<[u16; 2]>,
}
no_heap!(Interface);

/// A message and its answer.
#[derive(Clone, Debug, Default)]
pub(crate) struct Call {
    pub(crate) number: u64,
    pub(crate) identifier: u32,
    /// Kinds of both.
    kinds: [Option<u8>; 2],
    context: u16,
    operation: Option<u16>,
    fragments: [u32; 2],
    /// Bytes of arguments and results, as far as they are kept.
    stubs: [Vec<u8>; 2],
    /// How many came, with the object that is called, and with who vouches for it.
    lengths: [u64; 2],
    /// Where what the newest fragment brought begins.
    newest: [usize; 2],
    version: [u8; 2],
    /// How a side writes numbers.
    orders: [Order; 2],
    /// The last fragment of a side came.
    is_whole: [bool; 2],
    /// Interfaces that were bound with it, or that it may be for.
    bound: Arc<Vec<Interface>>,
}
heap_size!(Call { stubs, bound });

/// What a connection is about.
#[derive(Debug, Default)]
pub(crate) struct Rpc {
    held: [Held; 2],
    interfaces: Arc<Vec<Interface>>,
    calls: Vec<Call>,
    count: u64,
    pub(crate) is_broken: bool,
    /// Over TCP: what stands before the results in a response counts as theirs, as Suricata has it.
    is_of_connection: bool,
}
heap_size!(Rpc { held, interfaces, calls });

/// A call that came further.
pub(crate) struct Progress {
    pub(crate) call: Call,
    /// It was answered.
    pub(crate) is_done: bool,
}

impl Rpc {
    /// Calls over a connection of their own.
    pub(crate) fn of_connection() -> Self {
        Self { is_of_connection: true, ..Self::default() }
    }

    /// Whether bytes are a first message of a connection, and nothing else.
    pub(crate) fn begins(bytes: &[u8]) -> bool {
        let [5, 0 | 1, REQUEST | BIND | ALTER, _, order, ..] = bytes else { return false };
        let length = Order { is_little: order & 0x10 != 0 }.word(bytes, 8).map(usize::from);
        bytes.len() >= HEAD_LEN && length == Some(bytes.len())
    }

    /// Takes in a side's next bytes; what they brought further goes to `tell`.
    pub(crate) fn take(
        &mut self,
        side: usize,
        bytes: &[u8],
        tell: &mut dyn FnMut(&Self, Progress),
    ) {
        if self.is_broken {
            return;
        }
        self.held[side].add(bytes);
        while let Some(head) = self.held[side].bytes().first_chunk::<HEAD_LEN>().copied() {
            let order = Order { is_little: head[4] & 0x10 != 0 };
            let length = usize::from(order.word(&head, 8).unwrap_or_default());
            if head[0] != 5 || length < HEAD_LEN {
                self.is_broken = true;
                return self.held[side].clear();
            }
            let Some(mut bytes) = self.held[side].take(length) else { return };
            if head[2] == REQUEST && length < REQUEST_LEN {
                // What is called stands in its place, however short the message says that it is.
                let behind = self.held[side].bytes().iter().take(REQUEST_LEN - length);
                bytes.extend(behind);
            }
            if let Some(progress) = self.message(side, &bytes, order) {
                tell(self, progress);
            }
        }
    }

    /// Calls that nobody answered.
    pub(crate) fn take_waiting(&mut self) -> Vec<Call> {
        std::mem::take(&mut self.calls)
    }

    /// A call that will not be answered.
    pub(crate) fn forget(&mut self, identifier: u32) -> Option<Call> {
        let place = self.calls.iter().position(|it| it.identifier == identifier)?;
        Some(self.calls.remove(place))
    }

    fn message(&mut self, side: usize, bytes: &[u8], order: Order) -> Option<Progress> {
        let (kind, flags) = (bytes[2], bytes[3]);
        let is_known = matches!(kind, REQUEST | RESPONSE | BIND | BIND_ACK | ALTER | ALTER_ACK);
        // Over TCP others are no messages for Suricata, a fault no answer.
        if self.is_of_connection && !is_known {
            return None;
        }
        let identifier = order.long(bytes, 12)?;
        let place = self
            .calls
            .iter()
            .rposition(|it| it.identifier == identifier && (side == 1 || !it.is_whole[0]));
        let place = place.unwrap_or_else(|| {
            if self.calls.len() == CALLS_MAX {
                self.calls.remove(0);
            }
            let version = [bytes[0], bytes[1]];
            let number = self.count;
            self.count += 1;
            self.calls.push(Call { number, identifier, version, ..Call::default() });
            self.calls.len() - 1
        });
        let call = &mut self.calls[place];
        call.kinds[side] = Some(kind);
        call.orders[side] = order;
        call.fragments[side] += 1;
        call.is_whole[side] = flags & 2 != 0 || !matches!(kind, REQUEST | RESPONSE);
        let authentication = usize::from(order.word(bytes, 10)?);
        let end =
            bytes.len().saturating_sub(if authentication > 0 { authentication + 8 } else { 0 });
        match kind {
            REQUEST => {
                call.context = order.word(bytes, 20)?;
                call.bound.clone_from(&self.interfaces);
                call.operation = order.word(bytes, 22);
                let from = if flags & 0x80 != 0 { REQUEST_LEN + 16 } else { REQUEST_LEN };
                call.add(0, bytes.get(from..end).unwrap_or_default());
                call.lengths[0] += bytes.len().saturating_sub(REQUEST_LEN) as u64;
            }
            RESPONSE => {
                let from = if self.is_of_connection { HEAD_LEN } else { REQUEST_LEN };
                call.add(1, bytes.get(from..end).unwrap_or_default());
                call.lengths[1] += bytes.len().saturating_sub(from) as u64;
                if self.is_of_connection {
                    call.bound.clone_from(&self.interfaces);
                }
            }
            BIND | ALTER => self.bind(place, bytes, order),
            BIND_ACK | ALTER_ACK => self.answer(place, bytes, order),
            _ => {}
        }
        let is_done = side == 1 && self.calls[place].is_whole[1];
        let call = if is_done { self.calls.remove(place) } else { self.calls[place].clone() };
        Some(Progress { call, is_done })
    }

    fn bind(&mut self, place: usize, bytes: &[u8], order: Order) {
        let count = usize::from(bytes.get(24).copied().unwrap_or_default());
        let mut at = 28;
        for _ in 0..count {
            let Some(mut interface) = interface(bytes, at, order) else { return };
            interface.is_of_first = bytes[3] & 1 != 0;
            interface.is_of_bind = bytes[2] == BIND;
            let kinds = usize::from(bytes[at + 2]);
            at += 24 + 20 * kinds;
            let bound = Arc::make_mut(&mut self.calls[place].bound);
            if bound.len() < INTERFACES_MAX {
                bound.push(interface.clone());
            }
            if self.interfaces.len() < INTERFACES_MAX {
                let interfaces = Arc::make_mut(&mut self.interfaces);
                interfaces.retain(|it| it.context != interface.context);
                interfaces.push(interface);
            }
        }
    }

    /// What the server says to each interface.
    fn answer(&mut self, place: usize, bytes: &[u8], order: Order) {
        let Some(length) = order.word(bytes, 24) else { return };
        let at = (26 + usize::from(length)).next_multiple_of(4);
        let count = usize::from(bytes.get(at).copied().unwrap_or_default());
        let call = &mut self.calls[place];
        let asked = call.bound.len();
        let first = self.interfaces.len().saturating_sub(asked);
        let interfaces = Arc::make_mut(&mut self.interfaces);
        for (index, bound) in Arc::make_mut(&mut call.bound).iter_mut().take(count).enumerate() {
            let at = at + 4 + 24 * index;
            let (Some(result), Some(reason)) = (order.word(bytes, at), order.word(bytes, at + 2))
            else {
                return;
            };
            bound.result = Some([result, reason]);
            if let Some(interface) = interfaces.get_mut(first + index) {
                interface.result = Some([result, reason]);
            }
        }
    }

    /// Puts what rules ask of a call.
    pub(crate) fn fill(&self, call: &Call, side: usize, unit: &mut Unit) {
        let is_call = matches!(call.kinds[side], Some(REQUEST | RESPONSE));
        if let Some(operation) = call.operation.filter(|_| is_call) {
            unit.number(Field::DcerpcOpnum, operation);
        }
        if is_call {
            let stub = &call.stubs[side];
            unit.text(Buffer::DcerpcStub, stub);
            // Over TCP each fragment may be looked at by itself, too.
            if self.is_of_connection && call.fragments[side] > 1 {
                unit.text(Buffer::DcerpcStub, &stub[call.newest[side]..]);
            }
            unit.is_little = call.orders[side].is_little;
            let of_call = |it: &&Interface| {
                it.context == call.context && it.result.is_none_or(|it| it[0] == 0)
            };
            for interface in self.interfaces.iter().filter(of_call) {
                let is_first = u8::from(interface.is_of_first);
                let version = interface.version[0].to_be_bytes();
                let text = [&interface.identifier[..], &version, &[is_first]].concat();
                unit.text(Buffer::DcerpcInterface, &text);
            }
        }
    }
}

impl Call {
    fn add(&mut self, side: usize, stub: &[u8]) {
        self.newest[side] = self.stubs[side].len();
        let room = TEXT_LEN_MAX.saturating_sub(self.stubs[side].len());
        self.stubs[side].extend_from_slice(&stub[..stub.len().min(room)]);
    }

    /// Whether its request came.
    pub(crate) fn was_asked(&self) -> bool {
        self.kinds[0].is_some()
    }

    /// EVE's `dcerpc`; in SMB the operation stands outside of the request.
    pub(crate) fn object(&self, is_in_smb: bool) -> Object {
        let is_call = self.kinds[0] == Some(REQUEST);
        let mut object = Object::default();
        let name = |side: usize| self.kinds[side].map(kind_name);
        object.put("request", name(0).unwrap_or("REQUEST_LOST"));
        let of_side = |side: usize| {
            Object::default()
                .with("frag_cnt", self.fragments[side])
                .with("stub_data_size", self.lengths[side])
        };
        // Suricata tells what was bound first, and what the call is for.
        let is_told = |it: &&Interface| match is_call {
            true => it.context == self.context && (it.is_of_bind || !is_in_smb),
            false => it.is_of_bind,
        };
        let bound = self.bound.iter().filter(is_told).map(|it| it.object(is_in_smb, is_call));
        let bound: Vec<_> = bound.collect();
        if !bound.is_empty() {
            object.put("interfaces", bound);
        }
        if self.kinds[0] == Some(REQUEST) {
            let mut request = Object::default();
            if is_in_smb {
                object.put_some("opnum", self.operation);
            } else {
                request.put_some("opnum", self.operation);
            }
            of_side(0).iter().for_each(|(name, value)| request.put(name.to_owned(), value.clone()));
            object.put("req", request);
        }
        object.put("response", name(1).unwrap_or("UNREPLIED"));
        if self.kinds[1] == Some(RESPONSE) {
            object.put("res", of_side(1));
        }
        object.put("call_id", self.identifier);
        if !is_in_smb {
            object.put("rpc_version", format!("{}.{}", self.version[0], self.version[1]));
        }
        object
    }
}

impl Interface {
    fn object(&self, is_in_smb: bool, is_call: bool) -> Object {
        let [major, minor] = self.version;
        let mut object = Object::default()
            .with("uuid", identifier_text(&self.identifier))
            .with("version", format!("{major}.{minor}"));
        match self.result {
            Some(_) if is_in_smb && is_call => {}
            // In SMB Suricata tells both bytes of the result.
            Some([result, _]) if is_in_smb => {
                object.put("ack_result", result & 0xff);
                object.put("ack_reason", result >> 8);
            }
            Some([result, _]) => object.put("ack_result", result),
            None => {}
        }
        object
    }
}

/// `367abb81-9844-35f1-ad32-98f038001003`
pub(crate) fn identifier_text(identifier: &[u8; 16]) -> String {
    let text = crate::value::hex(identifier, "");
    let parts = [&text[..8], &text[8..12], &text[12..16], &text[16..20], &text[20..]];
    parts.join("-")
}

/// An identifier as it is written, from how it is sent.
pub(crate) fn identifier(bytes: &[u8], at: usize, order: Order) -> Option<[u8; 16]> {
    let mut identifier: [u8; 16] = *bytes.get(at..)?.first_chunk()?;
    if order.is_little {
        identifier[..4].reverse();
        identifier[4..6].reverse();
        identifier[6..8].reverse();
    }
    Some(identifier)
}

fn interface(bytes: &[u8], at: usize, order: Order) -> Option<Interface> {
    Some(Interface {
        context: order.word(bytes, at)?,
        identifier: identifier(bytes, at + 4, order)?,
        version: [order.word(bytes, at + 20)?, order.word(bytes, at + 22)?],
        is_of_first: false,
        is_of_bind: false,
        result: None,
    })
}

/// How numbers are sent.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Order {
    pub(crate) is_little: bool,
}

impl Order {
    pub(crate) fn word(self, bytes: &[u8], at: usize) -> Option<u16> {
        let bytes = *bytes.get(at..)?.first_chunk()?;
        Some(if self.is_little { u16::from_le_bytes(bytes) } else { u16::from_be_bytes(bytes) })
    }

    pub(crate) fn long(self, bytes: &[u8], at: usize) -> Option<u32> {
        let bytes = *bytes.get(at..)?.first_chunk()?;
        Some(if self.is_little { u32::from_le_bytes(bytes) } else { u32::from_be_bytes(bytes) })
    }
}

/// As EVE spells them.
pub(crate) fn kind_name(kind: u8) -> &'static str {
    const NAMES: [&str; 21] = [
        "REQUEST",
        "PING",
        "RESPONSE",
        "FAULT",
        "WORKING",
        "NOCALL",
        "REJECT",
        "ACK",
        "CL_CANCEL",
        "FACK",
        "CANCEL_ACK",
        "BIND",
        "BINDACK",
        "BINDNAK",
        "ALTER_CONTEXT",
        "ALTER_CONTEXT_RESP",
        "AUTH3",
        "SHUTDOWN",
        "CO_CANCEL",
        "ORPHANED",
        "RTS",
    ];
    NAMES.get(usize::from(kind)).copied().unwrap_or("UNKNOWN")
}
