//! EtherNet/IP (The CIP Networks Library, volume 2): commands and answers, and messages of CIP in
//! them.

pub(crate) mod cip;
mod names;

use std::collections::VecDeque;

use super::names::{ENIP_COMMAND, ENIP_STATUS, Names, name_of};
use super::unit::{Record, Said, Unit};
use super::{Held, Parser};
use crate::buffers::event::AppEvent;
use crate::heap::{heap_size, no_heap};
use crate::rule::{Buffer, Field, Protocol};
use crate::value::Object;
use names::DEVICES;

/// Bytes before a command's data.
const HEAD_LEN: usize = 24;
/// Commands that wait for an answer, at most.
const WAITING_MAX: usize = 256;

const LIST_SERVICES: u16 = 0x04;
const LIST_IDENTITY: u16 = 0x63;
const REGISTER_SESSION: u16 = 0x65;
const SEND_RR_DATA: u16 = 0x6f;
const SEND_UNIT_DATA: u16 = 0x70;

/// Items of the common packet format (volume 2 s2-6).
const ITEM_IDENTITY: u16 = 0x0c;
const ITEM_CONNECTED: u16 = 0xb1;
const ITEM_UNCONNECTED: u16 = 0xb2;
const ITEM_SERVICES: u16 = 0x100;
const ITEMS_MAX: usize = 64;

/// What a response is found by that answers it.
type Name = (u16, [u8; 8]);

/// A command, and its answer.
#[derive(Debug)]
struct Exchange {
    number: u64,
    name: Name,
    /// What its path names, which rules ask of the answer too.
    asked: Vec<(Field, i64)>,
    object: Object,
}
no_heap!(Field);
heap_size!(Exchange { asked, object });

/// A connection, or datagrams of one flow.
#[derive(Debug, Default)]
pub(crate) struct Enip {
    held: [Held; 2],
    is_of_datagrams: bool,
    waiting: VecDeque<Exchange>,
    count: u64,
}
heap_size!(Enip { held, waiting });

impl Enip {
    pub(crate) fn of_datagrams() -> Self {
        Self { is_of_datagrams: true, ..Self::default() }
    }
}

impl Parser for Enip {
    fn take(&mut self, side: usize, bytes: &[u8], said: &mut Said) {
        if self.is_of_datagrams {
            self.held[side].clear();
        }
        self.held[side].add(bytes);
        while let Some([_, _, low, high, ..]) = self.held[side].bytes().first_chunk::<HEAD_LEN>() {
            let length = HEAD_LEN + usize::from(u16::from_le_bytes([*low, *high]));
            let Some(message) = self.held[side].take(length) else { break };
            self.message(side, &message, said);
        }
    }

    fn end(&mut self, said: &mut Said) {
        for it in std::mem::take(&mut self.waiting) {
            said.records.push(Record::new("enip", it.number, it.object));
        }
    }
}

impl Enip {
    fn message(&mut self, side: usize, bytes: &[u8], said: &mut Said) {
        let mut reader = Reader { rest: bytes };
        let Some(head) = Head::read(&mut reader) else { return };
        let known = match side {
            0 => None,
            _ => self.waiting.iter().position(|it| it.name == head.name),
        };
        let mut exchange = match known.and_then(|it| self.waiting.remove(it)) {
            Some(exchange) => exchange,
            None => {
                self.count += 1;
                let (asked, object) = (Vec::new(), Object::default());
                Exchange { number: self.count - 1, name: head.name, asked, object }
            }
        };
        let mut unit = Unit::new(Protocol::Enip, exchange.number);
        let command = head.name.0;
        unit.number(Field::EnipCommand, command);
        unit.number(Field::EnipStatus, head.status);
        let mut object = Object::default()
            .with("command", named(ENIP_COMMAND, command))
            .with("status", named(ENIP_STATUS, head.status));
        let is_empty = reader.rest.is_empty();
        if !is_empty && data(command, side, &mut reader, &mut unit, &mut object).is_none()
            || is_empty && matches!(command, SEND_RR_DATA | SEND_UNIT_DATA) && head.status == 0
        {
            unit.odd(AppEvent::EnipInvalid);
        }
        exchange.object.put(["request", "response"][side], object);
        if side == 0 {
            for field in [Field::EnipClass, Field::EnipInstance, Field::EnipAttribute] {
                exchange.asked.extend(unit.numbers(field).map(|it| (field, it)));
            }
        } else {
            exchange.asked.iter().for_each(|(field, number)| unit.number(*field, *number));
        }
        unit.tells("enip", exchange.object.clone());
        said.tell(unit);
        if side == 1 {
            said.records.push(Record::new("enip", exchange.number, exchange.object));
            return;
        }
        if self.waiting.len() == WAITING_MAX {
            let oldest = self.waiting.pop_front();
            let record = |it: Exchange| Record::new("enip", it.number, it.object);
            said.records.extend(oldest.map(record));
            if let Some(unit) = said.units.last_mut() {
                unit.odd(AppEvent::EnipMany);
            }
        }
        self.waiting.push_back(exchange);
    }
}

struct Head {
    name: Name,
    status: u32,
}

impl Head {
    fn read(reader: &mut Reader<'_>) -> Option<Self> {
        let command = reader.word()?;
        let (_length, _session, status) = (reader.word()?, reader.long()?, reader.long()?);
        let context = *reader.take(8)?.first_chunk()?;
        let _options = reader.long()?;
        Some(Self { name: (command, context), status })
    }
}

/// What a command carries, where it carries something; `None`: it is cut.
fn data(
    command: u16,
    side: usize,
    reader: &mut Reader<'_>,
    unit: &mut Unit,
    object: &mut Object,
) -> Option<()> {
    match command {
        REGISTER_SESSION => {
            let (version, options) = (reader.word()?, reader.word()?);
            unit.number(Field::EnipVersion, version);
            let told = Object::default().with("protocol_version", version).with("options", options);
            object.put("register_session", told);
        }
        LIST_SERVICES | LIST_IDENTITY if side == 1 => items(reader, unit, object)?,
        SEND_RR_DATA | SEND_UNIT_DATA => {
            let (_interface, _timeout) = (reader.long()?, reader.word()?);
            items(reader, unit, object)?;
        }
        _ => {}
    }
    Some(())
}

fn items(reader: &mut Reader<'_>, unit: &mut Unit, object: &mut Object) -> Option<()> {
    for _ in 0..usize::from(reader.word()?).min(ITEMS_MAX) {
        let (kind, length) = (reader.word()?, usize::from(reader.word()?));
        let mut item = Reader { rest: reader.take(length)? };
        match kind {
            ITEM_IDENTITY => identity(&mut item, unit, object)?,
            ITEM_SERVICES => services(&mut item, unit, object)?,
            ITEM_UNCONNECTED => object.put("cip", cip::message(item.rest, unit)?),
            ITEM_CONNECTED => {
                item.word()?;
                object.put("cip", cip::message(item.rest, unit)?);
            }
            _ => {}
        }
    }
    Some(())
}

/// Who answers (volume 2 s2-4.2).
fn identity(item: &mut Reader<'_>, unit: &mut Unit, object: &mut Object) -> Option<()> {
    let version = item.word()?;
    let _address = item.take(16)?;
    let (vendor, device, product) = (item.word()?, item.word()?, item.word()?);
    let (major, minor) = (item.byte()?, item.byte()?);
    let (status, serial, length) = (item.word()?, item.long()?, item.byte()?);
    let name = item.take(usize::from(length))?;
    let state = item.byte()?;
    unit.number(Field::EnipVersion, version);
    unit.number(Field::EnipVendor, vendor);
    unit.number(Field::EnipDevice, device);
    unit.number(Field::EnipProduct, product);
    unit.number(Field::EnipRevision, u16::from_be_bytes([major, minor]));
    unit.number(Field::EnipIdentityStatus, status);
    unit.number(Field::EnipSerial, serial);
    unit.number(Field::EnipState, state);
    unit.text(Buffer::EnipProductName, name);
    let told = Object::default()
        .with("protocol_version", version)
        .with("revision", format!("{major}.{minor}"))
        .with("vendor_id", format!("unknown-{vendor}"))
        .with("device_type", named(DEVICES, device))
        .with("product_code", product)
        .with("status", status)
        .with("serial", serial)
        .with("product_name", name)
        .with("state", state);
    object.put("identity", told);
    Some(())
}

fn services(item: &mut Reader<'_>, unit: &mut Unit, object: &mut Object) -> Option<()> {
    let (version, capabilities) = (item.word()?, item.word()?);
    unit.number(Field::EnipVersion, version);
    unit.number(Field::EnipCapabilities, capabilities);
    unit.text(Buffer::EnipServiceName, item.rest);
    let told = Object::default()
        .with("protocol_version", version)
        .with("capabilities", capabilities)
        .with("service_name", item.rest);
    object.put("list_services", told);
    Some(())
}

/// The name of a number, or that it has none.
fn named(names: Names, number: impl Into<i64>) -> String {
    let number = number.into();
    name_of(names, number).map_or_else(|| format!("unknown-{number}"), str::to_owned)
}

/// Little-endian numbers from the front of what is left.
struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.rest.split_at_checked(count)?;
        self.rest = rest;
        Some(taken)
    }

    fn byte(&mut self) -> Option<u8> {
        Some(self.take(1)?[0])
    }

    fn word(&mut self) -> Option<u16> {
        Some(u16::from_le_bytes(*self.take(2)?.first_chunk()?))
    }

    fn long(&mut self) -> Option<u32> {
        Some(u32::from_le_bytes(*self.take(4)?.first_chunk()?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(command: u16, status: u8, data: &[u8]) -> Vec<u8> {
        let mut bytes = command.to_le_bytes().to_vec();
        bytes.extend((data.len() as u16).to_le_bytes());
        bytes.extend([1, 0, 0, 0, status, 0, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8, 0, 0, 0, 0]);
        bytes.extend(data);
        bytes
    }

    /// A message of CIP that no connection carries.
    fn unconnected(cip: &[u8]) -> Vec<u8> {
        let mut data = vec![0, 0, 0, 0, 5, 0, 2, 0, 0, 0, 0, 0, 0xb2, 0, cip.len() as u8, 0];
        data.extend(cip);
        message(SEND_RR_DATA, 0, &data)
    }

    fn said(messages: &[(usize, Vec<u8>)]) -> Said {
        let (mut enip, mut said) = (Enip::default(), Said::default());
        for (side, bytes) in messages {
            bytes.chunks(5).for_each(|it| enip.take(*side, it, &mut said));
        }
        enip.end(&mut said);
        said
    }

    #[test]
    fn an_answer_belongs_to_the_request_with_its_context() {
        let request = unconnected(&[0x0e, 3, 0x20, 1, 0x24, 1, 0x30, 3]);
        let said = said(&[(0, request), (1, unconnected(&[0x8e, 0, 5, 1, 1, 2]))]);
        let [record] = &said.records[..] else { panic!("{said:?}") };
        let object = &record.objects[0].1;
        assert!(object.value("request").is_some() && object.value("response").is_some());
        let numbers =
            |field| said.units.iter().flat_map(|it| it.numbers(field)).collect::<Vec<_>>();
        assert_eq!(numbers(Field::EnipAttribute), [3, 3]);
        assert_eq!(numbers(Field::EnipCipStatus), [5]);
        assert_eq!(numbers(Field::EnipExtendedStatus), [0x201]);
        let services: Vec<_> = numbers(Field::EnipService).into_iter().map(cip::unpacked).collect();
        assert_eq!(services, [(14, Some(1), Some(3)), (14, None, None)]);
    }

    #[test]
    fn messages_within_a_message_are_read() {
        let one = [0x0e, 2, 0x20, 1, 0x30, 7];
        let mut all = vec![0x0a, 2, 0x20, 2, 0x24, 1, 2, 0, 6, 0, 12, 0];
        all.extend(one);
        all.extend([0x10, 2, 0x20, 0xf6, 0x30, 6]);
        let told = said(&[(0, unconnected(&all))]);
        let classes: Vec<i64> = told.units[0].numbers(Field::EnipClass).collect();
        assert_eq!(classes, [2, 1, 0xf6]);
        // Themselves they may not be so again.
        let nested = [0x0a, 0, 1, 0, 4, 0, 0x0a, 0, 1, 0, 4, 0];
        let told = said(&[(0, unconnected(&nested))]);
        assert_eq!(told.units[0].numbers(Field::EnipService).count(), 2);
    }

    #[test]
    fn what_is_cut_is_odd() {
        for bytes in [
            message(REGISTER_SESSION, 0, &[1]),
            message(SEND_RR_DATA, 0, &[]),
            unconnected(&[14, 9]),
        ] {
            assert!(said(&[(0, bytes)]).units[0].events.has(AppEvent::EnipInvalid));
        }
        assert!(!said(&[(0, message(0x66, 0, &[]))]).units[0].events.has(AppEvent::EnipInvalid));
    }

    #[test]
    fn of_an_extended_status_the_low_half_is_told() {
        let said = said(&[(0, unconnected(&[0x4c, 0])), (1, unconnected(&[0xcc, 0, 5, 1, 1, 0]))]);
        let told = format!("{:?}", said.records[0].objects);
        assert!(told.contains("status_extended"), "{told}");
        assert!(told.contains("\"01\"") && !told.contains("0100"), "{told}");
    }
}
