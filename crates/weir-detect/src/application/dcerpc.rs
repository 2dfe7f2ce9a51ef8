//! DCE/RPC over TCP and UDP (C706 s12.5, s12.6).

use super::Parser;
use super::rpc::{Call, Order, Progress, Rpc, identifier, identifier_text};
use super::unit::{Record, Said, TEXT_LEN_MAX, Unit};
use crate::heap::heap_size;
use crate::rule::{Buffer, Field, Protocol};
use crate::value::Object;

/// A connection.
#[derive(Debug)]
pub(crate) struct Dcerpc {
    rpc: Rpc,
    /// Answers that nobody asked for: they are told when all ends.
    lost: Vec<Call>,
}

impl Default for Dcerpc {
    fn default() -> Self {
        Self { rpc: Rpc::of_connection(), lost: Vec::new() }
    }
}
heap_size!(Dcerpc { rpc, lost });

impl Parser for Dcerpc {
    fn take(&mut self, side: usize, bytes: &[u8], said: &mut Said) {
        let lost = &mut self.lost;
        self.rpc.take(side, bytes, &mut |rpc, Progress { call, is_done }| {
            let mut unit = Unit::new(Protocol::Dcerpc, call.number);
            rpc.fill(&call, side, &mut unit);
            let object = call.object(false);
            unit.tells("dcerpc", object.clone());
            said.units.push(unit);
            if is_done && call.was_asked() {
                said.records.push(Record::new("dcerpc", call.number, object));
            } else if is_done && lost.len() < WAITING_MAX {
                lost.push(call);
            }
        });
        said.has_failed |= self.rpc.is_broken;
    }

    fn end(&mut self, said: &mut Said) {
        for call in self.rpc.take_waiting().into_iter().chain(std::mem::take(&mut self.lost)) {
            said.records.push(Record::new("dcerpc", call.number, call.object(false)));
        }
    }
}

/// Bytes of a datagram's header.
const HEAD_LEN: usize = 80;
/// Calls that wait for an answer, and answers that nobody asked for, at most.
const WAITING_MAX: usize = 64;
/// Kinds of datagrams that are read (C706 s12.1).
const REQUEST: u8 = 0;
const RESPONSE: u8 = 2;
/// Flags: a part of a message; its last.
const LAST: u8 = 2;
const PART: u8 = 4;

/// A request by datagrams, and its answer.
#[derive(Debug, Default)]
struct Request {
    number: u64,
    activity: [u8; 16],
    sequence: u32,
    /// Of both sides: parts that came, what they hold as far as it is kept, and how much it was.
    parts: [u32; 2],
    stubs: [Vec<u8>; 2],
    sizes: [u64; 2],
    /// The request's last part came.
    is_whole: bool,
}
heap_size!(Request { stubs });

impl Request {
    fn object(&self) -> Object {
        let of_side = |object: Object, side: usize| {
            object.with("frag_cnt", self.parts[side]).with("stub_data_size", self.sizes[side])
        };
        let has = |side: usize| self.parts[side] > 0;
        // Suricata does not read what is called.
        let request = of_side(Object::default().with("opnum", 0_u8), 0);
        let mut object = Object::default().with("request", "REQUEST").with("req", request);
        object.put("response", if has(1) { "RESPONSE" } else { "UNREPLIED" });
        object.put_some("res", has(1).then(|| of_side(Object::default(), 1)));
        object.put("activityuuid", identifier_text(&self.activity));
        object.put("seqnum", self.sequence);
        object.put("rpc_version", "4.0");
        object
    }

    fn add(&mut self, side: usize, stub: &[u8], size: usize) {
        self.parts[side] += 1;
        self.sizes[side] += size as u64;
        let room = TEXT_LEN_MAX.saturating_sub(self.stubs[side].len());
        self.stubs[side].extend_from_slice(&stub[..stub.len().min(room)]);
    }
}

/// Requests by datagrams.
#[derive(Debug, Default)]
pub(crate) struct Datagrams {
    waiting: Vec<Request>,
    count: u64,
}
heap_size!(Datagrams { waiting });

impl Parser for Datagrams {
    fn take(&mut self, side: usize, bytes: &[u8], said: &mut Said) {
        let parts = bytes.split_at_checked(HEAD_LEN);
        let read = parts.and_then(|(head, body)| self.datagram(side, head, body, said));
        if read.is_none() {
            said.has_failed = true;
            for it in std::mem::take(&mut self.waiting) {
                said.records.push(Record::new("dcerpc", it.number, it.object()));
            }
        }
    }

    // What nobody answered is not told.
    fn end(&mut self, _: &mut Said) {}
}

impl Datagrams {
    fn datagram(&mut self, side: usize, head: &[u8], body: &[u8], said: &mut Said) -> Option<()> {
        let order = Order { is_little: head[4] & 0x10 != 0 };
        let interface = identifier(head, 24, order)?;
        let activity = identifier(head, 40, order)?;
        let (version, sequence) = (order.long(head, 60)?, order.long(head, 64)?);
        let mut unit = Unit::new(Protocol::Dcerpc, self.count.saturating_sub(1));
        unit.number(Field::DcerpcOpnum, order.word(head, 68)?);
        unit.text(Buffer::DcerpcStub, body);
        unit.is_little = order.is_little;
        let version = u16::try_from(version & 0xffff).unwrap_or_default().to_be_bytes();
        unit.text(Buffer::DcerpcInterface, &[&interface[..], &version, &[1]].concat());
        let size = usize::from(order.word(head, 74)?);
        if !matches!(head[1], REQUEST | RESPONSE) || size > body.len() {
            unit.is_aside = true;
            said.units.push(unit);
            return None;
        }
        let is_last = head[2] & PART == 0 || head[2] & LAST != 0;
        let Some(place) = self.place_of(side, activity, sequence) else {
            // What nobody asked for is not told.
            unit.is_aside = true;
            said.units.push(unit);
            return Some(());
        };
        let request = &mut self.waiting[place];
        request.add(side, body, size);
        unit.number = request.number;
        if request.parts[side] > 1 {
            unit.text(Buffer::DcerpcStub, &request.stubs[side]);
        }
        unit.tells("dcerpc", request.object());
        request.is_whole |= is_last;
        if side == 1 && is_last {
            self.waiting.remove(place);
            said.message(unit, 0);
        } else {
            said.units.push(unit);
        }
        Some(())
    }

    /// Where the request stands that a datagram belongs to.
    fn place_of(&mut self, side: usize, activity: [u8; 16], sequence: u32) -> Option<usize> {
        let is_meant = |it: &Request| {
            it.activity == activity && it.sequence == sequence && (side == 1 || !it.is_whole)
        };
        let known = self.waiting.iter().position(is_meant);
        if known.is_some() || side == 1 {
            return known;
        }
        if self.waiting.len() == WAITING_MAX {
            self.waiting.remove(0);
        }
        let number = self.count;
        self.count += 1;
        self.waiting.push(Request { number, activity, sequence, ..Request::default() });
        Some(self.waiting.len() - 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const IDENTIFIER: [u8; 16] =
        [0x81, 0xbb, 0x7a, 0x36, 0x44, 0x98, 0xf1, 0x35, 0xad, 0x32, 0x98, 0xf0, 0x38, 0, 0x10, 3];

    fn message(kind: u8, call: u8, body: &[u8]) -> Vec<u8> {
        let length = (16 + body.len()) as u8;
        [&[5, 0, kind, 3, 0x10, 0, 0, 0, length, 0, 0, 0, call, 0, 0, 0], body].concat()
    }

    #[test]
    fn calls_are_of_the_interface_that_was_bound() {
        let (mut dcerpc, mut said) = (Dcerpc::default(), Said::default());
        let interface = [&[0, 0, 1, 0], &IDENTIFIER[..], &[2, 0, 0, 0], &[0; 20]].concat();
        let bind = [&[0; 8], &[1, 0, 0, 0][..], &interface].concat();
        let answer =
            [&[0; 8], &[4, 0, b'1', b'3', b'5', 0, 0, 0][..], &[1, 0, 0, 0], &[0; 24]].concat();
        dcerpc.take(0, &message(11, 1, &bind), &mut said);
        dcerpc.take(1, &message(12, 1, &answer), &mut said);
        dcerpc.take(0, &message(0, 2, b"\0\0\0\0\0\0\x0f\0stub"), &mut said);
        dcerpc.take(1, &message(2, 2, b"\0\0\0\0\0\0\0\0result"), &mut said);
        let request = &said.units[2];
        assert_eq!(request.numbers(Field::DcerpcOpnum).next(), Some(15));
        assert!(request.each(Buffer::DcerpcStub, &mut |it| it == b"stub"));
        let test =
            crate::rule::UnitTest::parse("dcerpc.iface", "367abb81-9844-35f1-ad32-98f038001003,>1");
        assert!(test.unwrap().unwrap().holds(request, 0));
        let object = &said.records[1].objects[0].1;
        assert_eq!(object.value("response"), Some(&"RESPONSE".into()));
        assert_eq!(object.value("rpc_version"), Some(&"5.0".into()));
        assert_eq!(said.records.len(), 2);
    }

    fn bound() -> Dcerpc {
        let mut dcerpc = Dcerpc::default();
        let interface = [&[0, 0, 1, 0], &IDENTIFIER[..], &[2, 0, 0, 0], &[0; 20]].concat();
        let bind = [&[0; 8], &[1, 0, 0, 0][..], &interface].concat();
        dcerpc.take(0, &message(11, 1, &bind), &mut Said::default());
        dcerpc
    }

    #[test]
    fn fragments_are_looked_at_by_themselves_and_joined() {
        let (mut dcerpc, mut said) = (bound(), Said::default());
        for (flags, stub) in [(1, b"\0\0\0\0\0\0\x0f\0one"), (2, b"\0\0\0\0\0\0\x0f\0two")] {
            let mut fragment = message(0, 2, stub);
            fragment[3] = flags;
            dcerpc.take(0, &fragment, &mut said);
        }
        let last = said.units.last().unwrap();
        for stub in [&b"onetwo"[..], b"two"] {
            assert!(last.each(Buffer::DcerpcStub, &mut |it| it == stub));
        }
        let test =
            crate::rule::UnitTest::parse("dcerpc.iface", "367abb81-9844-35f1-ad32-98f038001003");
        assert!(test.unwrap().unwrap().holds(last, 0), "the interface was bound by a first one");
    }

    #[test]
    fn a_fault_is_no_reply() {
        let (mut dcerpc, mut said) = (bound(), Said::default());
        dcerpc.take(0, &message(0, 2, b"\0\0\0\0\0\0\x0f\0stub"), &mut said);
        dcerpc.take(1, &message(3, 2, &[0; 16]), &mut said);
        assert!(said.records.is_empty(), "it is told when all ends");
        dcerpc.end(&mut said);
        let object = &said.records[1].objects[0].1;
        assert_eq!(object.value("response"), Some(&"UNREPLIED".into()));
        assert!(object.value("res").is_none());
    }

    #[test]
    fn parts_of_datagrams_are_joined_and_looked_at() {
        let part = |kind: u8, flags: u8, stub: &[u8]| {
            let mut head = [0; HEAD_LEN];
            (head[0], head[1], head[2], head[4]) = (4, kind, flags, 0x10);
            head[74] = stub.len() as u8;
            [&head[..], stub].concat()
        };
        let (mut datagrams, mut said) = (Datagrams::default(), Said::default());
        datagrams.take(0, &part(REQUEST, PART, b"one"), &mut said);
        datagrams.take(0, &part(REQUEST, PART | LAST, b"two"), &mut said);
        let last = said.units.last().unwrap();
        assert!(last.each(Buffer::DcerpcStub, &mut |it| it == b"onetwo"));
        datagrams.take(1, &part(RESPONSE, 0, b"result"), &mut said);
        let [told] = &said.records[..] else { panic!("{said:?}") };
        let request = told.objects[0].1.value("req").unwrap();
        let expected = Object::default().with("opnum", 0_u8).with("frag_cnt", 2_u32);
        assert_eq!(*request, expected.with("stub_data_size", 6_u64).into());
    }

    #[test]
    fn what_is_called_is_read_of_a_message_that_says_it_is_shorter() {
        let (mut dcerpc, mut said) = (bound(), Said::default());
        let mut request = message(0, 2, b"\0\0\0\0\0\0\x0f\0stub");
        request[8] = 20;
        dcerpc.take(0, &request, &mut said);
        assert_eq!(said.units[0].numbers(Field::DcerpcOpnum).next(), Some(15));
    }
}
