//! DCE/RPC over TCP and UDP (C706 s12.5, s12.6).

use super::Parser;
use super::rpc::{Call, Order, Progress, Rpc, identifier, identifier_text, kind_name};
use super::unit::{Record, Said, Unit};
use crate::heap::heap_size;
use crate::rule::{Buffer, Field, Protocol};
use crate::value::Object;

/// A connection.
#[derive(Debug)]
pub(crate) struct Dcerpc {
    rpc: Rpc,
}

impl Default for Dcerpc {
    fn default() -> Self {
        Self { rpc: Rpc::of_connection() }
    }
}
heap_size!(Dcerpc { rpc });

impl Parser for Dcerpc {
    fn take(&mut self, side: usize, bytes: &[u8], said: &mut Said) {
        self.rpc.take(side, bytes, &mut |rpc, Progress { call, is_done }| {
            let mut unit = Unit::new(Protocol::Dcerpc, call.number);
            rpc.fill(&call, side, &mut unit);
            let object = object(&call);
            unit.tells("dcerpc", object.clone());
            if is_done {
                said.records.push(Record::new("dcerpc", call.number, object));
            }
            said.units.push(unit);
        });
        said.has_failed |= self.rpc.is_broken;
    }

    fn end(&mut self, said: &mut Said) {
        for call in self.rpc.take_waiting() {
            said.records.push(Record::new("dcerpc", call.number, object(&call)));
        }
    }
}

/// EVE's `dcerpc` of a connection's call: a fault counts as no reply.
fn object(call: &Call) -> Object {
    let mut object = Object::default();
    for (name, value) in call.object(false).iter() {
        let is_fault = name == "response" && *value == "FAULT".into();
        object.put(name.to_owned(), if is_fault { "UNREPLIED".into() } else { value.clone() });
    }
    object
}

/// Bytes of a datagram's header.
const HEAD_LEN: usize = 80;
/// Datagrams that wait for an answer, at most.
const WAITING_MAX: usize = 64;

/// A request by datagrams, and its answer.
#[derive(Debug)]
struct Request {
    number: u64,
    activity: [u8; 16],
    sequence: u32,
    object: Object,
}
heap_size!(Request { object });

/// Requests by datagrams.
#[derive(Debug, Default)]
pub(crate) struct Datagrams {
    waiting: Vec<Request>,
    count: u64,
}
heap_size!(Datagrams { waiting });

impl Parser for Datagrams {
    fn take(&mut self, side: usize, bytes: &[u8], said: &mut Said) {
        let Some((head, body)) = bytes.split_at_checked(HEAD_LEN) else {
            said.has_failed = true;
            return;
        };
        let order = Order { is_little: head[4] & 0x10 != 0 };
        let (Some(interface), Some(activity)) =
            (identifier(head, 24, order), identifier(head, 40, order))
        else {
            return;
        };
        let version = order.long(head, 60).unwrap_or_default();
        let sequence = order.long(head, 64).unwrap_or_default();
        let operation = order.word(head, 68).unwrap_or_default();
        let place =
            self.waiting.iter().position(|it| it.activity == activity && it.sequence == sequence);
        let size = Object::default().with("frag_cnt", 1_u8).with("stub_data_size", body.len());
        let mut unit = Unit::new(Protocol::Dcerpc, self.count);
        unit.number(Field::DcerpcOpnum, operation);
        unit.text(Buffer::DcerpcStub, body);
        unit.is_little = order.is_little;
        let version = u16::try_from(version & 0xffff).unwrap_or_default().to_be_bytes();
        unit.text(Buffer::DcerpcInterface, &[&interface[..], &version, &[1]].concat());
        let mut object = match place {
            Some(place) => {
                let request = self.waiting.remove(place);
                unit.number = request.number;
                request.object
            }
            None => {
                self.count += 1;
                Object::default()
            }
        };
        if side == 0 {
            object.put("request", kind_name(head[1]));
            let mut request = Object::default().with("opnum", operation);
            size.iter().for_each(|(name, value)| request.put(name.to_owned(), value.clone()));
            object.put("req", request);
        } else {
            object.put("response", kind_name(head[1]));
            object.put("res", size);
        }
        object.put("activityuuid", identifier_text(&activity));
        object.put("seqnum", sequence);
        object.put("rpc_version", "4.0");
        unit.tells("dcerpc", object.clone());
        if side == 0 && self.waiting.len() < WAITING_MAX {
            let number = unit.number;
            self.waiting.push(Request { number, activity, sequence, object });
            said.units.push(unit);
        } else {
            said.message(unit, 0);
        }
    }

    fn end(&mut self, said: &mut Said) {
        for it in std::mem::take(&mut self.waiting) {
            let object = it.object.with("response", "UNREPLIED");
            said.records.push(Record::new("dcerpc", it.number, object));
        }
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
        let object = &said.records[0].objects[0].1;
        assert_eq!(object.value("response"), Some(&"UNREPLIED".into()));
        assert!(object.value("res").is_none());
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
