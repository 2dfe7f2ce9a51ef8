//! Messages of the Common Industrial Protocol (volume 1, chapter 2).

use super::names::{CLASSES, SERVICES, STATUS};
use super::{Reader, named};
use crate::application::unit::Unit;
use crate::rule::Field;
use crate::value::{Object, Value, hex};

/// Attributes are named behind the path.
const GET_LIST: u8 = 3;
const SET_LIST: u8 = 4;
/// A message that carries others.
const MULTIPLE: u8 = 0x0a;
const ANSWER: u8 = 0x80;
/// Messages within one, and segments of a path, at most.
const MESSAGES_MAX: usize = 64;
const SEGMENTS_MAX: usize = 32;

/// What a segment of a path names (volume 1, appendix C).
const CLASS: u8 = 0;
const INSTANCE: u8 = 1;
const ATTRIBUTE: u8 = 4;

/// Puts what a message asks or answers to the unit; what is told of it. `None`: it is cut.
pub(super) fn message(bytes: &[u8], unit: &mut Unit) -> Option<Object> {
    one(bytes, true, unit)
}

fn one(bytes: &[u8], is_outer: bool, unit: &mut Unit) -> Option<Object> {
    let mut reader = Reader { rest: bytes };
    let first = reader.byte()?;
    let service = first & !ANSWER;
    let mut object = Object::default().with("service", named(SERVICES, service));
    if first & ANSWER == 0 {
        let length = usize::from(reader.byte()?) * 2;
        let path = path(reader.take(length)?, &mut object);
        let [class, instance, attribute] =
            [CLASS, INSTANCE, ATTRIBUTE].map(|kind| path.iter().find(|it| it.0 == kind));
        let [class, instance, attribute] = [class, instance, attribute].map(|it| it.map(|it| it.1));
        unit.number(Field::EnipService, packed(service, class, attribute));
        for (field, number) in [
            (Field::EnipClass, class),
            (Field::EnipInstance, instance),
            (Field::EnipAttribute, attribute),
        ] {
            if let Some(number) = number {
                unit.number(field, number);
            }
        }
        if service == GET_LIST || service == SET_LIST {
            attributes(service, reader.rest, unit);
        }
        if let Some(class) = class {
            object.put("class_name", named(CLASSES, class));
        }
    } else {
        reader.byte()?;
        let (status, words) = (reader.byte()?, reader.byte()?);
        let extended = reader.take(usize::from(words) * 2)?;
        unit.number(Field::EnipService, packed(service, None, None));
        unit.number(Field::EnipCipStatus, status);
        if let [low, high, ..] = extended {
            unit.number(Field::EnipExtendedStatus, u16::from_le_bytes([*low, *high]));
        }
        object.put("status", named(STATUS, status));
        if !extended.is_empty() {
            // Of words, as many bytes, as with Suricata.
            object.put("status_extended", hex(&extended[..words.into()], ""));
        }
    }
    if service == MULTIPLE && is_outer {
        let inner = multiple(reader.rest, unit)?;
        object.put("multiple", Value::List(inner));
    }
    Some(object)
}

/// A service, and the class and attribute that it is asked of, as one number that rules compare.
pub(crate) fn packed(service: u8, class: Option<u32>, attribute: Option<u32>) -> i64 {
    let place = |it: Option<u32>| it.map_or(0, |it| i64::from(it & 0xffff) + 1);
    i64::from(service) | place(class) << 8 | place(attribute) << 32
}

/// The service in such a number, and where they are known class and attribute.
pub(crate) fn unpacked(number: i64) -> (i64, Option<i64>, Option<i64>) {
    let known = |it: i64| (it != 0).then(|| it - 1);
    (number & 0xff, known(number >> 8 & 0xff_ffff), known(number >> 32))
}

/// Attributes that are asked for by a list; of one to be set, values follow whose lengths only
/// their class knows, so that the first is looked at alone.
fn attributes(service: u8, bytes: &[u8], unit: &mut Unit) {
    let mut reader = Reader { rest: bytes };
    let count = usize::from(reader.word().unwrap_or_default()).min(MESSAGES_MAX);
    let count = if service == SET_LIST { count.min(1) } else { count };
    for number in (0..count).map_while(|_| reader.word()) {
        unit.number(Field::EnipAttribute, number);
    }
}

/// Messages behind a count and their places (volume 1, appendix A).
fn multiple(bytes: &[u8], unit: &mut Unit) -> Option<Vec<Value>> {
    let mut reader = Reader { rest: bytes };
    let count = usize::from(reader.word()?).min(MESSAGES_MAX);
    let mut places = Vec::new();
    for _ in 0..count {
        places.push(usize::from(reader.word()?));
    }
    let mut found = Vec::new();
    for (index, place) in places.iter().enumerate() {
        let end = places.get(index + 1).copied().unwrap_or(bytes.len());
        found.push(one(bytes.get(*place..end)?, false, unit)?.into());
    }
    Some(found)
}

/// The segments of a path that name by number, and what is told of them; others end the look.
fn path(bytes: &[u8], object: &mut Object) -> Vec<(u8, u32)> {
    let mut reader = Reader { rest: bytes };
    let (mut found, mut told): (Vec<(u8, u32)>, Vec<Value>) = (Vec::new(), Vec::new());
    while let (Some(segment), true) = (reader.byte(), found.len() < SEGMENTS_MAX) {
        let number = match segment & 0xe3 {
            0x20 => reader.byte().map(u32::from),
            0x21 => reader.byte().and(reader.word()).map(u32::from),
            0x22 => reader.byte().and(reader.long()),
            _ => None,
        };
        let kind = segment >> 2 & 7;
        let (Some(number), true) = (number, matches!(kind, CLASS | INSTANCE | ATTRIBUTE)) else {
            break;
        };
        let name = match kind {
            CLASS => "class",
            INSTANCE => "instance",
            _ => "attribute",
        };
        found.push((kind, number));
        told.push(Object::default().with("segment_type", name).with("value", number).into());
    }
    if !told.is_empty() {
        object.put("path", Value::List(told));
    }
    found
}
