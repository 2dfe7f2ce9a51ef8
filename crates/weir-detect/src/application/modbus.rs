//! Modbus over TCP: requests for registers and coils, and the answers.

mod fault;

use std::collections::VecDeque;

use fault::Faults;

use super::names::{MODBUS_ACCESS, number_of};
use super::unit::{Record, Said, Unit};
use super::{Held, Parser};
use crate::buffers::event::AppEvent;
use crate::heap::heap_size;
use crate::rule::{Field, Protocol};
use crate::value::Object;

/// Bytes of the header (MODBUS messaging on TCP/IP, s3.1.3) up to what its length counts.
const HEAD_LEN: usize = 6;
/// Bytes of a message behind its length, at most.
const LENGTH_MAX: usize = 254;
/// Requests that wait for their answer, at most.
const WAITING_MAX: usize = 64;
/// Values of a request that rules look at, at most.
const VALUES_MAX: usize = 1024;

/// A connection.
#[derive(Debug, Default)]
pub(crate) struct Modbus {
    held: [Held; 2],
    waiting: VecDeque<Request>,
    count: u64,
}
heap_size!(Modbus { held, waiting });

#[derive(Debug)]
struct Request {
    number: u64,
    transaction: u16,
    /// Whom it is for, what it asks for, and of what.
    body: Vec<u8>,
    object: Object,
}
heap_size!(Request { body, object });

/// What stands before a message's length.
#[derive(Debug)]
struct Head {
    transaction: u16,
    /// 0, unless it is odd.
    protocol: u16,
}

impl Head {
    /// What is wrong about it.
    fn faults(&self) -> Faults {
        if self.protocol == 0 { Faults::default() } else { Faults::PROTOCOL }
    }
}

impl Parser for Modbus {
    fn take(&mut self, side: usize, bytes: &[u8], said: &mut Said) {
        // Behind what is no message, one begins where a segment begins with one.
        self.held[side].add_from(bytes, 0, |it| super::begin::is_modbus(it).then_some(0));
        if self.held[side].is_lost() {
            return;
        }
        while let Some(head) = self.held[side].bytes().first_chunk::<HEAD_LEN>().copied() {
            let length = usize::from(u16::from_be_bytes([head[4], head[5]]));
            let is_long = !(2..=LENGTH_MAX).contains(&length);
            // Of one that is too long or too short nothing is looked at but its head.
            let length = match is_long {
                true => length.min(self.held[side].bytes().len() - HEAD_LEN),
                false => length,
            };
            let Some(message) = self.held[side].take(HEAD_LEN + length) else { return };
            let word = |at: usize| u16::from_be_bytes([head[at], head[at + 1]]);
            let head = Head { transaction: word(0), protocol: word(2) };
            let body = if is_long { &[][..] } else { &message[HEAD_LEN..] };
            match side {
                0 => self.request(&head, body, said),
                _ => self.response(&head, body, said),
            }
        }
    }

    fn lose(&mut self, side: usize, count: u64) -> bool {
        let head = self.held[side].bytes().first_chunk::<6>().copied();
        let length = head.map(|it| 6 + u64::from(u16::from_be_bytes([it[4], it[5]])));
        self.held[side].lose(count, length);
        true
    }

    fn end(&mut self, said: &mut Said) {
        for it in std::mem::take(&mut self.waiting) {
            said.records.push(Record::new("modbus", it.number, it.object));
        }
    }
}

impl Modbus {
    /// A request; without a `body` one whose length is wrong.
    fn request(&mut self, head: &Head, body: &[u8], said: &mut Said) {
        let number = self.count;
        self.count += 1;
        let mut unit = Unit::new(Protocol::Modbus, number);
        let (function, data, mut faults) = head.read(body, Faults::of_request);
        let mut object = described(head, body);
        unit.number(Field::ModbusUnit, body.first().copied().unwrap_or_default());
        // The bit of exceptions says nothing of what is asked.
        let asked_for = function & 0x7f;
        unit.number(Field::ModbusFunction, asked_for);
        unit.number(Field::ModbusCategory, category(asked_for, data).0);
        unit.number(Field::ModbusAccess, access(asked_for));
        if !body.is_empty() && asked(asked_for, data, &mut unit, &mut object).is_none() {
            faults.add(Faults::LENGTH);
            put_rest(data, &mut object);
        }
        object.put("error_flags", faults.names());
        faults.events(0).for_each(|it| unit.odd(it));
        let object = Object::default().with("id", number + 1).with("request", object);
        unit.tells("modbus", object.clone());
        if self.waiting.len() == WAITING_MAX {
            unit.odd(AppEvent::ModbusFlooded);
            self.waiting.pop_front();
        }
        let body = body.to_vec();
        let transaction = head.transaction;
        self.waiting.push_back(Request { number, transaction, body, object });
        said.tell(unit);
    }

    fn response(&mut self, head: &Head, body: &[u8], said: &mut Said) {
        let (function, data, mut faults) = head.read(body, Faults::of_answer);
        let is_meant = |it: &Request| it.transaction == head.transaction && it.is_for(body);
        let place = self.waiting.iter().position(is_meant);
        let mut object = described(head, body);
        match (data.first(), function & 0x80 != 0) {
            (Some(code), true) => {
                let told = Object::default().with("raw", *code).with("code", exception(*code));
                object.put("exception", told);
            }
            _ if body.is_empty() => {}
            _ if answered(function & 0x7f, data, &mut object).is_none() => {
                put_rest(data, &mut object);
            }
            _ => {}
        }
        let request = place.and_then(|it| self.waiting.remove(it));
        let number = request.as_ref().map_or(self.count, |it| it.number);
        let mut unit = Unit::new(Protocol::Modbus, number);
        unit.number(Field::ModbusUnit, body.first().copied().unwrap_or_default());
        let is_unsolicited = request.is_none();
        let mut told = match request {
            Some(request) => {
                let asked = request.body.get(2..).unwrap_or_default();
                if function & 0x80 == 0 && !is_answer(function, asked, data) {
                    faults.add(Faults::VALUE);
                }
                request.object
            }
            None => {
                self.count += 1;
                Object::default().with("id", number + 1)
            }
        };
        faults.events(1).for_each(|it| unit.odd(it));
        if is_unsolicited {
            unit.odd(AppEvent::ModbusUnsolicited);
        }
        object.put("error_flags", faults.names());
        told.put("response", object);
        said.records.push(Record::new("modbus", number, told.clone()));
        unit.tells("modbus", told);
        said.tell(unit);
    }
}

impl Head {
    /// What a message does, what it says of that, and what is wrong about it.
    fn read<'a>(&self, body: &'a [u8], of: fn(u8, &[u8]) -> Faults) -> (u8, &'a [u8], Faults) {
        let mut faults = self.faults();
        let [_, function, data @ ..] = body else {
            faults.add(Faults::LENGTH);
            return (0, &[], faults);
        };
        faults.add(of(*function, data));
        (*function, data, faults)
    }
}

/// What cannot be read as what its function has is told as it is.
fn put_rest(data: &[u8], object: &mut Object) {
    if object.value("read").is_none() && object.value("write").is_none() {
        object.put("data", data);
    }
}

impl Request {
    /// Whether an answer comes from whom it asks, and is one to what it asks for.
    fn is_for(&self, answer: &[u8]) -> bool {
        let [unit, function] = [0, 1].map(|at| answer.get(at).copied().unwrap_or_default());
        let own = [0, 1].map(|at| self.body.get(at).copied().unwrap_or_default());
        let is_exception = function & 0x80 != 0;
        let is_same = own[0] == unit && own[1] & 0x7f == function & 0x7f;
        let function = function & 0x7f;
        is_same && (function != 8 || is_exception || self.body.get(2..4) == answer.get(2..4))
    }
}

/// Whether what a request asks for comes back, and what it wrote, as it was (MODBUS application
/// protocol s6). Suricata counts the bytes of registers as if they were coils.
fn is_answer(function: u8, asked: &[u8], answer: &[u8]) -> bool {
    let word = |at: usize| asked.get(at..at + 2).map(|it| u16::from_be_bytes([it[0], it[1]]));
    let Some(quantity) = word(2) else { return true };
    let count = answer.len().saturating_sub(1);
    match function {
        1 | 2 => count == usize::from(quantity.div_ceil(8)),
        3 | 4 | 23 => count == 2 * usize::from(quantity),
        5 | 6 => answer == asked,
        15 | 16 => Some(answer) == asked.get(..4),
        22 => Some(answer) == asked.get(..6),
        _ => true,
    }
}

/// What either side says.
fn described(head: &Head, body: &[u8]) -> Object {
    let (unit, function, data) = match body {
        [unit, function, data @ ..] => (*unit, *function, data),
        _ => (0, 0, &[][..]),
    };
    Object::default()
        .with("transaction_id", head.transaction)
        .with("protocol_id", head.protocol)
        .with("unit_id", unit)
        .with("function_raw", function)
        .with("function_code", name(function & 0x7f))
        .with("access_type", access_name(function & 0x7f))
        .with("category", category(function & 0x7f, data).1)
}

/// Addresses and values of a request.
fn asked(function: u8, data: &[u8], unit: &mut Unit, object: &mut Object) -> Option<()> {
    let word = |at: usize| data.get(at..at + 2).map(|it| u16::from_be_bytes([it[0], it[1]]));
    let mut place = |name: &'static str, at: usize, object: &mut Object| {
        let (address, quantity) = (word(at)?, word(at + 2)?);
        // In rules, the first has the number 1.
        unit.number(Field::ModbusAddress, i64::from(address) + 1);
        unit.number(Field::ModbusQuantity, quantity);
        if name == "read" {
            let told = Object::default().with("address", address).with("quantity", quantity);
            object.put(name, told);
        }
        Some(())
    };
    match function {
        1..=4 => place("read", 0, object)?,
        5 | 6 => {
            let (address, value) = (word(0)?, word(2)?);
            unit.number(Field::ModbusAddress, i64::from(address) + 1);
            unit.number(Field::ModbusQuantity, 1_u8);
            unit.number(
                Field::ModbusValue,
                if function == 5 { u16::from(value != 0) } else { value },
            );
            let told = Object::default().with("address", address).with("data", value);
            object.put("write", told);
        }
        8 => {
            unit.number(Field::ModbusSubfunction, word(0)?);
            diagnostic(data, object);
        }
        22 => {
            unit.number(Field::ModbusAddress, i64::from(word(0)?) + 1);
            unit.number(Field::ModbusQuantity, 1_u8);
            object.put("write", mask(data)?);
        }
        43 => mei(data, object),
        15 | 16 => {
            place("written", 0, object)?;
            let values = data.get(5..)?;
            let told = Object::default().with("address", word(0)?).with("quantity", word(2)?);
            object.put("write", told.with("data", values));
            match function {
                16 => values.chunks_exact(2).take(VALUES_MAX).for_each(|it| {
                    unit.number(Field::ModbusValue, u16::from_be_bytes([it[0], it[1]]));
                }),
                _ => (0..usize::from(word(2)?).min(VALUES_MAX)).for_each(|at| {
                    let byte = values.get(at / 8).copied().unwrap_or_default();
                    unit.number(Field::ModbusValue, byte >> (at % 8) & 1);
                }),
            }
        }
        23 => {
            place("read", 0, object)?;
            place("written", 4, object)?;
            let told = Object::default().with("address", word(4)?).with("quantity", word(6)?);
            object.put("write", told.with("data", data.get(9..)?));
            data.get(9..)?.chunks_exact(2).take(VALUES_MAX).for_each(|it| {
                unit.number(Field::ModbusValue, u16::from_be_bytes([it[0], it[1]]));
            });
        }
        _ => object.put("data", data),
    }
    Some(())
}

/// What an answer says.
fn answered(function: u8, data: &[u8], object: &mut Object) -> Option<()> {
    let word = |at: usize| data.get(at..at + 2).map(|it| u16::from_be_bytes([it[0], it[1]]));
    match function {
        1..=4 | 23 => {
            object.put("read", Object::default().with("data", data.get(1..)?));
        }
        5 | 6 | 15 | 16 => {
            let told = Object::default().with("address", word(0)?).with("data", word(2)?);
            object.put("write", told);
        }
        8 => diagnostic(data, object),
        22 => object.put("write", mask(data)?),
        43 => mei(data, object),
        _ => object.put("data", data),
    }
    Some(())
}

fn mask(data: &[u8]) -> Option<Object> {
    let word = |at: usize| data.get(at..at + 2).map(|it| u16::from_be_bytes([it[0], it[1]]));
    let told = Object::default().with("address", word(0)?);
    Some(told.with("and_mask", word(2)?).with("or_mask", word(4)?))
}

fn diagnostic(data: &[u8], object: &mut Object) {
    let Some(raw) = data.first_chunk().map(|it| u16::from_be_bytes(*it)) else { return };
    let code = match raw {
        0 => "RetQueryData",
        1 => "RestartCommOpt",
        2 => "RetDiagReg",
        3 => "ChangeInputDelimiter",
        4 => "ForceListenOnlyMode",
        10 => "ClearCtrDiagReg",
        11 => "RetBusMsgCount",
        12 => "RetBusCommErrCount",
        13 => "RetBusExcErrCount",
        14 => "RetServerMsgCount",
        15 => "RetServerNoRespCount",
        16 => "RetServerNAKCount",
        17 => "RetServerBusyCount",
        18 => "RetBusCharOverrunCount",
        20 => "ClearOverrunCounterFlag",
        _ => "Reserved",
    };
    let told = Object::default().with("raw", raw).with("code", code).with("data", &data[2..]);
    object.put("diagnostic", told);
}

/// Encapsulated interfaces.
fn mei(data: &[u8], object: &mut Object) {
    let Some((raw, rest)) = data.split_first() else { return };
    let code = match raw {
        13 => "CANOpenGenRefReqResp",
        14 => "RdDevId",
        _ => "Unknown",
    };
    object.put("mei", Object::default().with("raw", *raw).with("code", code).with("data", rest));
}

/// What a function does to which table, as rules have it.
fn access(function: u8) -> i64 {
    let words: &[&str] = match function {
        1 => &["read", "coils"],
        2 => &["read", "discretes"],
        3 | 24 => &["read", "holding"],
        4 => &["read", "input"],
        5 | 15 => &["write", "coils"],
        6 | 16 | 22 => &["write", "holding"],
        23 => &["read", "write", "holding"],
        20 => &["read"],
        21 => &["write"],
        _ => &[],
    };
    words.iter().filter_map(|it| number_of(MODBUS_ACCESS, it)).sum()
}

/// The same as EVE has it.
fn access_name(function: u8) -> &'static str {
    match function {
        1 => "READ | COILS",
        2 => "READ | DISCRETES",
        3 | 24 => "READ | HOLDING",
        4 => "READ | INPUT",
        5 => "WRITE | COILS | SINGLE | WRITE_SINGLE",
        6 => "WRITE | HOLDING | SINGLE | WRITE_SINGLE",
        15 => "WRITE | COILS | MULTIPLE | WRITE_MULTIPLE",
        16 => "WRITE | HOLDING | MULTIPLE | WRITE_MULTIPLE",
        22 => "WRITE | HOLDING",
        23 => "READ | WRITE | HOLDING | MULTIPLE | WRITE_MULTIPLE",
        20 => "READ",
        21 => "WRITE",
        _ => "NONE",
    }
}

/// Whether a function is assigned, for rules and for EVE.
fn category(function: u8, data: &[u8]) -> (i64, &'static str) {
    const PUBLIC_ASSIGNED: (i64, &str) = (2, "PUBLIC_ASSIGNED");
    const PUBLIC_UNASSIGNED: (i64, &str) = (1 | 4, "PUBLIC_UNASSIGNED");
    let subfunction = u16::from_be_bytes([
        data.first().copied().unwrap_or_default(),
        data.get(1).copied().unwrap_or_default(),
    ]);
    match function {
        0 => (0, "NONE"),
        8 if matches!(subfunction, 5..=9 | 19 | 21..) => (16, "RESERVED"),
        43 => match data.first() {
            Some(13 | 14) => PUBLIC_ASSIGNED,
            _ => (16, "RESERVED"),
        },
        1..=8 | 11 | 12 | 15..=17 | 20..=24 => PUBLIC_ASSIGNED,
        9 | 10 | 13 | 14 | 41 | 42 | 90 | 91 | 125..=127 => (16, "RESERVED"),
        65..=72 | 100..=110 => (8, "USER_DEFINED"),
        _ => PUBLIC_UNASSIGNED,
    }
}

fn name(function: u8) -> &'static str {
    match function {
        1 => "RdCoils",
        2 => "RdDiscreteInputs",
        3 => "RdHoldRegs",
        4 => "RdInputRegs",
        5 => "WrSingleCoil",
        6 => "WrSingleReg",
        7 => "RdExcStatus",
        8 => "Diagnostic",
        9 => "Program484",
        10 => "Poll484",
        11 => "GetCommEventCtr",
        12 => "GetCommEventLog",
        13 => "ProgramController",
        14 => "PollController",
        15 => "WrMultCoils",
        16 => "WrMultRegs",
        17 => "ReportServerID",
        18 => "Program884",
        19 => "ResetCommLink",
        20 => "RdFileRec",
        21 => "WrFileRec",
        22 => "MaskWrReg",
        23 => "RdWrMultRegs",
        24 => "RdFIFOQueue",
        43 => "MEI",
        _ => "Unknown",
    }
}

fn exception(code: u8) -> &'static str {
    match code {
        1 => "IllegalFunction",
        2 => "IllegalDataAddr",
        3 => "IllegalDataValue",
        4 => "ServerDeviceFail",
        5 => "Ack",
        6 => "ServerDeviceBusy",
        7 => "NegAck",
        8 => "MemParityErr",
        10 => "GatewayPathUnavailable",
        11 => "GatewayTargetFailToResp",
        _ => "Unknown",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::value::Value;

    #[test]
    fn a_request_and_its_answer_are_one_record() {
        let (mut modbus, mut said) = (Modbus::default(), Said::default());
        modbus.take(0, b"\0\x07\0\0\0\x06\x01\x03\0\x10\0\x02", &mut said);
        modbus.take(1, b"\0\x07\0\0\0\x07\x01\x03\x04\0\x01\0\x02", &mut said);
        let [record] = &said.records[..] else { panic!("{said:?}") };
        assert!(record.objects[0].1.value("request").is_some());
        assert!(record.objects[0].1.value("response").is_some());
        assert_eq!(said.units[0].numbers(Field::ModbusAddress).next(), Some(17));
        modbus.take(1, b"\0\x09\0\0\0\x03\x01\x83\x02", &mut said);
        assert!(said.units[2].events.has(AppEvent::ModbusUnsolicited));
        modbus.take(0, b"\0\x09\0\x05\0\x03\x01\x83\x02", &mut said);
        assert!(said.units[3].events.has(AppEvent::ModbusProtocol));
    }

    #[test]
    fn of_other_functions_the_bytes_are_told() {
        let (mut modbus, mut said) = (Modbus::default(), Said::default());
        modbus.take(0, b"\0\x0b\0\0\0\x02\x01\x07", &mut said);
        modbus.take(1, b"\0\x0b\0\0\0\x03\x01\x07m", &mut said);
        let told = |name: &str| match said.records[0].objects[0].1.value(name) {
            Some(Value::Object(part)) => part.value("data").cloned(),
            _ => None,
        };
        assert_eq!(["request", "response"].map(told), [Some("".into()), Some("m".into())]);
    }

    #[test]
    fn answers_are_to_what_was_asked_and_bring_it_back() {
        let answered = |asked: &[u8], answer: &[u8]| {
            let message = |body: &[u8]| [&[0, 7, 0, 0, 0, body.len() as u8], body].concat();
            let (mut modbus, mut said) = (Modbus::default(), Said::default());
            modbus.take(0, &message(asked), &mut said);
            modbus.take(1, &message(answer), &mut said);
            let is_odd = |it: &&Unit| !it.events.as_slice().is_empty();
            assert_eq!(said.later.len(), said.units.iter().filter(is_odd).count());
            said.units[1].events.as_slice().first().copied()
        };
        let (mismatch, unsolicited) =
            (Some(AppEvent::ModbusMismatch), Some(AppEvent::ModbusUnsolicited));
        for (asked, answer, event) in [
            (&b"\x01\x16\0\x01\0\xf2\0\x25"[..], &b"\x01\x16\0\x01\0\xf2\0\x25"[..], None),
            (b"\x01\x16\0\x01\0\xf2\0\x25", b"\x01\x16\0\x01\0\xf2\0\x26", mismatch),
            (b"\x01\x06\0\x01\0\x07", b"\x01\x06\0\x01\0\x08", mismatch),
            (b"\x01\x10\0\x01\0\x01\x02\0\x07", b"\x01\x10\0\x01\0\x01", None),
            (b"\x01\x10\0\x01\0\x01\x02\0\x07", b"\x01\x10\0\x01\0\x02", mismatch),
            (b"\x01\x03\0\x01\0\x02", b"\x01\x03\x04\0\x01\0\x02", None),
            (b"\x01\x03\0\x01\0\x02", b"\x01\x03\x02\0\x01", mismatch),
            (b"\x01\x01\0\x01\0\x09", b"\x01\x01\x02\xff\x01", None),
            (b"\x01\x03\0\x01\0\x02", b"\x01\x83\x02", None),
            (b"\x01\x03\0\x01\0\x02", b"\x01\x84\x02", unsolicited),
            (b"\x01\x06\0\x01\0\x07", b"\x02\x06\0\x01\0\x07", unsolicited),
        ] {
            assert_eq!(answered(asked, answer), event, "{asked:x?} {answer:x?}");
        }
    }
}
