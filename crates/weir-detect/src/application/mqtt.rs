//! MQTT (3.1, 3.1.1, 5.0): messages, and the exchanges that they are part of.

use std::collections::VecDeque;

use super::names::{MQTT_CONNECT, MQTT_TYPE, name_of};
use super::unit::{Record, Said, Unit};
use super::{Held, Parser, Unanswered};
use crate::buffers::event::AppEvent;
use crate::heap::heap_size;
use crate::rule::{Buffer, Field, Protocol};
use crate::value::{Object, Value, text};

/// Bytes of a message that is looked into, at most (Suricata's limit); a longer one is told as cut.
const MESSAGE_LEN_MAX: usize = 1024 * 1024;
/// Bytes of a longer one are passed over once this many came.
const LOOKED_INTO_MAX: usize = 64 * 1024;
/// Exchanges that wait for an answer, and topics of a message, at most.
const WAITING_MAX: usize = 256;
const TOPICS_MAX: usize = 1024;
/// Bits of a first byte that are flags and no number (MQTT 3.1.1 s3.3.1): `DUP` and `RETAIN`.
const FLAGS: u8 = 0x09;
/// Bytes of what is published that are told, at most.
const PUBLISHED_LEN_MAX: usize = 1024;
/// Messages of an exchange, and properties of a message, that are not odd, at most (Suricata's
/// limits).
const MESSAGES_MAX: u32 = 1024;
const PROPERTIES_MAX: usize = 256;

const CONNECT: u8 = 1;
const CONNACK: u8 = 2;
const PUBLISH: u8 = 3;
const PUBREC: u8 = 5;
const PUBREL: u8 = 6;
const SUBSCRIBE: u8 = 8;
const SUBACK: u8 = 9;
const UNSUBSCRIBE: u8 = 10;
const UNSUBACK: u8 = 11;
const DISCONNECT: u8 = 14;
const AUTH: u8 = 15;

/// An exchange that waits for an answer.
#[derive(Debug)]
struct Exchange {
    number: u64,
    side: usize,
    identifier: Option<u16>,
    object: Object,
    /// What rules look at so far.
    unit: Unit,
    messages: u32,
}
heap_size!(Exchange { object, unit });

/// A connection.
#[derive(Debug, Default)]
pub(crate) struct Mqtt {
    held: [Held; 2],
    version: u8,
    is_connected: bool,
    waiting: VecDeque<Exchange>,
    unanswered: Unanswered,
    count: u64,
    is_over: bool,
}
heap_size!(Mqtt { held, waiting });

impl Parser for Mqtt {
    fn take(&mut self, side: usize, bytes: &[u8], said: &mut Said) {
        if self.is_over {
            return;
        }
        self.held[side].add(bytes);
        while let Some((first, head, length)) = head(self.held[side].bytes()) {
            let whole = head + length;
            if length > LOOKED_INTO_MAX {
                self.held[side].drop(whole as u64);
                self.cut(side, first, length, said);
                continue;
            }
            let Some(bytes) = self.held[side].take(whole) else { break };
            self.message(side, first, &bytes[head..], said);
        }
        let is_broken = self.held[side].bytes().len() > 4
            && head(self.held[side].bytes()).is_none_or(|it| it.2 > MESSAGE_LEN_MAX << 8);
        if is_broken || self.held[side].is_too_long() {
            self.odd(AppEvent::MqttMalformed, said);
            self.is_over = true;
            said.has_failed = true;
        }
    }

    fn end(&mut self, said: &mut Said) {
        for it in std::mem::take(&mut self.waiting) {
            said.records.push(Record::new("mqtt", it.number, it.object).from(it.side));
        }
    }
}

/// First byte, bytes of the head, and of what follows (MQTT 5.0 s2.1).
fn head(bytes: &[u8]) -> Option<(u8, usize, usize)> {
    let (first, rest) = bytes.split_first()?;
    let mut length = 0;
    for (place, byte) in rest.iter().take(4).enumerate() {
        length |= usize::from(byte & 0x7f) << (7 * place);
        if byte & 0x80 == 0 {
            return Some((*first, place + 2, length));
        }
    }
    None
}

impl Mqtt {
    fn number(&mut self) -> u64 {
        self.count += 1;
        self.count - 1
    }

    fn odd(&mut self, event: AppEvent, said: &mut Said) {
        let mut unit = Unit::new(Protocol::Mqtt, self.number());
        unit.odd(event);
        said.units.push(unit);
    }

    /// What every message tells.
    fn common(&mut self, first: u8, number: u64) -> (Unit, Object) {
        let mut unit = Unit::new(Protocol::Mqtt, number);
        let (kind, qos) = (first >> 4, first >> 1 & 3);
        unit.number(Field::MqttType, kind);
        unit.number(Field::MqttQos, qos);
        unit.number(Field::MqttFlags, first & FLAGS);
        if self.version > 0 {
            unit.number(Field::MqttVersion, self.version);
        }
        if qos == 3 {
            unit.odd(AppEvent::MqttQos);
        }
        if kind == 0 {
            unit.odd(AppEvent::MqttType);
        }
        let object = Object::default()
            .with("qos", qos)
            .with("retain", first & 1 != 0)
            .with("dup", first & 8 != 0);
        (unit, object)
    }

    fn cut(&mut self, side: usize, first: u8, length: usize, said: &mut Said) {
        let number = self.number();
        let (mut unit, object) = self.common(first, number);
        let object = object.with("truncated", true).with("skipped_length", length);
        let name = name_of(MQTT_TYPE, first >> 4).unwrap_or("unassigned");
        unit.tells("mqtt", Object::default().with(name, object));
        said.message(unit, side);
    }

    fn message(&mut self, side: usize, first: u8, body: &[u8], said: &mut Said) {
        let kind = first >> 4;
        if kind == CONNECT {
            self.version = connect_version(body).unwrap_or_default();
        }
        let number = self.count;
        let (mut unit, mut object) = self.common(first, number);
        let mut reader = Reader { rest: body, has_many: false };
        let properties = match kind {
            CONNECT => connect(&mut reader, &mut unit, &mut object),
            CONNACK => connack(&mut reader, self.version, &mut unit, &mut object),
            PUBLISH => publish(&mut reader, self.version, first >> 1 & 3, &mut unit, &mut object),
            4..=7 => acknowledged(&mut reader, self.version, &mut unit, &mut object),
            SUBSCRIBE | UNSUBSCRIBE => {
                subscribe(&mut reader, self.version, kind, &mut unit, &mut object)
            }
            SUBACK | UNSUBACK => suback(&mut reader, self.version, kind, &mut unit, &mut object),
            DISCONNECT | AUTH => reason(&mut reader, self.version, &mut unit, &mut object),
            _ => Some(Object::default()),
        };
        let Some(properties) = properties else {
            said.has_failed = true;
            return self.odd(AppEvent::MqttMalformed, said);
        };
        if reader.has_many {
            unit.odd(AppEvent::MqttManyProperties);
        }
        put_properties(&mut object, properties);
        match kind {
            CONNECT if self.is_connected => unit.odd(AppEvent::MqttTwice),
            CONNECT | CONNACK => {}
            _ if !self.is_connected => unit.odd(AppEvent::MqttUnintroduced),
            _ => {}
        }
        self.place(side, kind, (unit, object), said);
    }

    /// Puts a message to the exchange that it is part of.
    fn place(
        &mut self,
        side: usize,
        kind: u8,
        (mut unit, object): (Unit, Object),
        said: &mut Said,
    ) {
        let name = name_of(MQTT_TYPE, kind).unwrap_or("unassigned");
        let identifier = identifier(&object);
        let begins = match kind {
            CONNECT | SUBSCRIBE | UNSUBSCRIBE => true,
            PUBLISH => identifier.is_some(),
            _ => false,
        };
        let of = match kind {
            CONNACK => Some("connect"),
            4..=7 => Some("publish"),
            SUBACK => Some("subscribe"),
            UNSUBACK => Some("unsubscribe"),
            _ => None,
        };
        let known = of.map(|of| {
            let is_meant =
                |it: &Exchange| it.identifier == identifier && it.object.value(of).is_some();
            self.waiting.iter().position(is_meant)
        });
        match known {
            Some(Some(place)) => self.answered(side, kind, place, (unit, object), said),
            _ => {
                match known {
                    Some(None) if kind == CONNACK => unit.odd(AppEvent::MqttNoConnect),
                    Some(None) if kind == SUBACK => unit.odd(AppEvent::MqttNoSubscribe),
                    Some(None) if kind == UNSUBACK => unit.odd(AppEvent::MqttNoUnsubscribe),
                    Some(None) => unit.odd(AppEvent::MqttNoPublish),
                    _ => {}
                }
                let number = self.number();
                let object = Object::default().with(name, object);
                unit.tells("mqtt", object.clone());
                if begins {
                    if self.unanswered.make_room(&mut self.waiting, WAITING_MAX) {
                        unit.odd(AppEvent::MqttMany);
                    }
                    self.waiting.push_back(Exchange {
                        number,
                        side,
                        identifier,
                        object,
                        unit: unit.clone(),
                        messages: 0,
                    });
                    said.units.push(unit);
                } else {
                    said.message(unit, side);
                }
            }
        }
    }
}

impl Mqtt {
    /// A message of the exchange at that place.
    fn answered(
        &mut self,
        side: usize,
        kind: u8,
        place: usize,
        (mut unit, object): (Unit, Object),
        said: &mut Said,
    ) {
        self.is_connected |= kind == CONNACK;
        let exchange = &mut self.waiting[place];
        unit.number = exchange.number;
        let is_other = exchange.side != side;
        exchange.object.put(name_of(MQTT_TYPE, kind).unwrap_or("unassigned"), object);
        exchange.messages += 1;
        if exchange.messages == MESSAGES_MAX {
            unit.odd(AppEvent::MqttManyMessages);
        }
        unit.tells("mqtt", exchange.object.clone());
        unit.go_on_from(&exchange.unit);
        if matches!(kind, PUBREC | PUBREL) {
            exchange.unit.clone_from(&unit);
        } else {
            let told = self.waiting.remove(place);
            let record = |it: Exchange| Record::new("mqtt", it.number, it.object).from(it.side);
            said.records.extend(told.map(record));
        }
        // A transaction is its beginner's: the other side's answer is looked at with it.
        match is_other {
            true => said.later.push(unit),
            false => said.units.push(unit),
        }
    }
}

fn identifier(object: &Object) -> Option<u16> {
    match object.value("message_id")? {
        Value::Number(number) => u16::try_from(*number).ok(),
        _ => None,
    }
}

/// Reads the fields of a message one after the other.
struct Reader<'a> {
    rest: &'a [u8],
    /// It has more properties than there may be.
    has_many: bool,
}

impl<'a> Reader<'a> {
    fn bytes(&mut self, count: usize) -> Option<&'a [u8]> {
        let (bytes, rest) = self.rest.split_at_checked(count)?;
        self.rest = rest;
        Some(bytes)
    }

    fn byte(&mut self) -> Option<u8> {
        self.bytes(1).map(|it| it[0])
    }

    fn word(&mut self) -> Option<u16> {
        self.bytes(2).map(|it| u16::from_be_bytes([it[0], it[1]]))
    }

    fn text(&mut self) -> Option<&'a [u8]> {
        let length = self.word()?;
        self.bytes(length.into())
    }

    fn variable(&mut self) -> Option<usize> {
        let mut number = 0;
        for place in 0..4 {
            let byte = self.byte()?;
            number |= usize::from(byte & 0x7f) << (7 * place);
            if byte & 0x80 == 0 {
                return Some(number);
            }
        }
        None
    }

    /// Properties of version 5 (s2.2.2).
    fn properties(&mut self, version: u8) -> Option<Object> {
        let mut object = Object::default();
        if version < 5 || self.rest.is_empty() {
            return Some(object);
        }
        let length = self.variable()?;
        let mut inner = Reader { rest: self.bytes(length)?, has_many: false };
        let mut users = Vec::new();
        while !inner.rest.is_empty() {
            let (name, form) = property(inner.variable()?)?;
            let value: Value = match form {
                Form::Byte => inner.byte()?.into(),
                Form::Word => inner.word()?.into(),
                Form::Long => u32::from_be_bytes(*inner.bytes(4)?.first_chunk()?).into(),
                Form::Variable => inner.variable()?.into(),
                Form::Text => inner.text()?.into(),
                Form::Pair => {
                    let (key, value) = (inner.text()?, inner.text()?);
                    users.push(Object::default().with("key", key).with("value", value));
                    continue;
                }
            };
            object.put(name, value);
        }
        self.has_many |= users.len() > PROPERTIES_MAX;
        if !users.is_empty() {
            object.put("user_properties", users);
        }
        Some(object)
    }
}

enum Form {
    Byte,
    Word,
    Long,
    Variable,
    Text,
    Pair,
}

fn property(identifier: usize) -> Option<(&'static str, Form)> {
    Some(match identifier {
        1 => ("payload_format_indicator", Form::Byte),
        2 => ("message_expiry_interval", Form::Long),
        3 => ("content_type", Form::Text),
        8 => ("response_topic", Form::Text),
        9 => ("correlation_data", Form::Text),
        11 => ("subscription_identifier", Form::Variable),
        17 => ("session_expiry_interval", Form::Long),
        18 => ("assigned_client_identifier", Form::Text),
        19 => ("server_keep_alive", Form::Word),
        21 => ("authentication_method", Form::Text),
        22 => ("authentication_data", Form::Text),
        23 => ("request_problem_information", Form::Byte),
        24 => ("will_delay_interval", Form::Long),
        25 => ("request_response_information", Form::Byte),
        26 => ("response_information", Form::Text),
        28 => ("server_reference", Form::Text),
        31 => ("reason_string", Form::Text),
        33 => ("receive_maximum", Form::Word),
        34 => ("topic_alias_maximum", Form::Word),
        35 => ("topic_alias", Form::Word),
        36 => ("maximum_qos", Form::Byte),
        37 => ("retain_available", Form::Byte),
        38 => ("", Form::Pair),
        39 => ("maximum_packet_size", Form::Long),
        40 => ("wildcard_subscription_available", Form::Byte),
        41 => ("subscription_identifiers_available", Form::Byte),
        42 => ("shared_subscription_available", Form::Byte),
        _ => return None,
    })
}

fn put_properties(object: &mut Object, properties: Object) {
    if !properties.is_empty() {
        object.put("properties", properties);
    }
}

fn connect_version(body: &[u8]) -> Option<u8> {
    let mut reader = Reader { rest: body, has_many: false };
    reader.text()?;
    reader.byte()
}

// Each reads a message, and returns its properties.

fn connect(reader: &mut Reader<'_>, unit: &mut Unit, object: &mut Object) -> Option<Object> {
    let name = reader.text()?;
    let (version, flags, _) = (reader.byte()?, reader.byte()?, reader.word()?);
    let properties = reader.properties(version)?;
    let client = reader.text()?;
    unit.text(Buffer::MqttProtocolString, name);
    unit.text(Buffer::MqttClient, client);
    unit.number(Field::MqttConnectFlags, flags);
    object.put("protocol_string", name);
    object.put("protocol_version", version);
    let mut told = Object::default();
    MQTT_CONNECT.iter().for_each(|(name, bit)| told.put(*name, i64::from(flags) & bit != 0));
    object.put("flags", told);
    object.put("client_id", client);
    let mut will = None;
    if flags & 4 != 0 {
        let properties = reader.properties(version)?;
        let (topic, message) = (reader.text()?, reader.text()?);
        unit.text(Buffer::MqttWillTopic, topic);
        unit.text(Buffer::MqttWillMessage, message);
        let mut object = Object::default().with("topic", topic).with("message", message);
        put_properties(&mut object, properties);
        will = Some(object);
    }
    if flags & 0x80 != 0 {
        let user = reader.text()?;
        unit.text(Buffer::MqttUser, user);
        object.put("username", user);
    }
    if flags & 0x40 != 0 {
        let password = reader.text()?;
        unit.text(Buffer::MqttPassword, password);
        object.put("password", password);
    }
    object.put_some("will", will);
    Some(properties)
}

fn connack(
    reader: &mut Reader<'_>,
    version: u8,
    unit: &mut Unit,
    object: &mut Object,
) -> Option<Object> {
    let (flags, code) = (reader.byte()?, reader.byte()?);
    unit.number(Field::MqttSession, flags & 1);
    unit.number(Field::MqttReason, code);
    object.put("session_present", flags & 1 != 0);
    object.put("return_code", code);
    reader.properties(version)
}

fn publish(
    reader: &mut Reader<'_>,
    version: u8,
    qos: u8,
    unit: &mut Unit,
    object: &mut Object,
) -> Option<Object> {
    let topic = reader.text()?;
    let identifier = if qos > 0 { Some(reader.word()?) } else { None };
    let properties = reader.properties(version)?;
    unit.text(Buffer::MqttTopic, topic);
    unit.text(Buffer::MqttMessage, reader.rest);
    object.put("topic", topic);
    object.put_some("message_id", identifier);
    object.put("message", shortened(reader.rest));
    Some(properties)
}

/// What was published, and how much more it was than is told.
fn shortened(bytes: &[u8]) -> String {
    match bytes.split_at_checked(PUBLISHED_LEN_MAX) {
        Some((told, rest)) if !rest.is_empty() => {
            format!("{}[truncated {} additional bytes]", text(told), rest.len())
        }
        _ => text(bytes),
    }
}

fn acknowledged(
    reader: &mut Reader<'_>,
    version: u8,
    unit: &mut Unit,
    object: &mut Object,
) -> Option<Object> {
    object.put("message_id", reader.word()?);
    reason(reader, version, unit, object)
}

/// A reason, which version 5 has, and properties behind it.
fn reason(
    reader: &mut Reader<'_>,
    version: u8,
    unit: &mut Unit,
    object: &mut Object,
) -> Option<Object> {
    if version < 5 {
        return Some(Object::default());
    }
    let code = if reader.rest.is_empty() { 0 } else { reader.byte()? };
    unit.number(Field::MqttReason, code);
    object.put("reason_code", code);
    reader.properties(version)
}

fn subscribe(
    reader: &mut Reader<'_>,
    version: u8,
    kind: u8,
    unit: &mut Unit,
    object: &mut Object,
) -> Option<Object> {
    object.put("message_id", reader.word()?);
    let properties = reader.properties(version)?;
    let mut topics: Vec<Value> = Vec::new();
    while !reader.rest.is_empty() && topics.len() < TOPICS_MAX {
        let topic = reader.text()?;
        if kind == SUBSCRIBE {
            unit.text(Buffer::MqttSubscribed, topic);
            let qos = reader.byte()? & 3;
            topics.push(Object::default().with("topic", topic).with("qos", qos).into());
        } else {
            unit.text(Buffer::MqttUnsubscribed, topic);
            topics.push(topic.into());
        }
    }
    object.put("topics", Value::List(topics));
    Some(properties)
}

fn suback(
    reader: &mut Reader<'_>,
    version: u8,
    kind: u8,
    unit: &mut Unit,
    object: &mut Object,
) -> Option<Object> {
    object.put("message_id", reader.word()?);
    let properties = reader.properties(version)?;
    let codes: Vec<u8> = reader.rest.iter().take(TOPICS_MAX).copied().collect();
    codes.iter().for_each(|it| unit.number(Field::MqttReason, *it));
    if kind == SUBACK {
        object.put("qos_granted", codes);
    } else if version >= 5 {
        object.put("reason_codes", codes);
    }
    Some(properties)
}

#[cfg(test)]
mod tests {
    use super::*;

    const CONNECT_5: &[u8] =
        b"\x10\x1c\0\x04MQTT\x05\xc2\0\x3c\x03\x21\0\x14\0\x02id\0\x02me\0\x04pass";

    fn said(lines: &[(usize, &[u8])]) -> Said {
        let (mut mqtt, mut said) = (Mqtt::default(), Said::default());
        for (side, bytes) in lines {
            bytes.chunks(5).for_each(|it| mqtt.take(*side, it, &mut said));
        }
        said
    }

    #[test]
    fn messages_of_an_exchange_are_one_record() {
        let said = said(&[(0, CONNECT_5), (1, b"\x20\x03\0\0\0"), (0, b"\x30\x06\0\x01t\0hi")]);
        let [connect, publish] = &said.records[..] else { panic!("{said:?}") };
        let Some(Value::Object(object)) = connect.objects[0].1.value("connect") else { panic!() };
        assert_eq!(object.value("client_id"), Some(&"id".into()));
        assert_eq!(object.value("password"), Some(&"pass".into()));
        assert!(connect.objects[0].1.value("connack").is_some());
        let Some(Value::Object(object)) = publish.objects[0].1.value("publish") else { panic!() };
        assert_eq!(object.value("message"), Some(&"hi".into()));
        assert!(said.units[0].each(Buffer::MqttPassword, &mut |it| it == b"pass"));
    }

    #[test]
    fn what_nobody_asked_for_is_odd() {
        let said = said(&[(1, b"\x20\x02\0\0"), (0, b"\x36\x03\0\x01t")]);
        assert!(said.units[0].events.has(AppEvent::MqttNoConnect));
        assert!(said.units[1].events.has(AppEvent::MqttMalformed));
    }

    #[test]
    fn answers_are_looked_at_with_who_began_and_who_is_not_answered_is_not_introduced() {
        let publish = b"\x30\x06\0\x01t\0hi";
        let said = said(&[(0, CONNECT_5), (0, publish), (1, b"\x20\x03\0\0\0"), (0, publish)]);
        let odd: Vec<bool> =
            said.units.iter().map(|it| it.events.has(AppEvent::MqttUnintroduced)).collect();
        assert_eq!(odd, [false, true, false]);
        let [answer] = &said.later[..] else { panic!("{said:?}") };
        assert_eq!((answer.number, answer.numbers(Field::MqttReason).next()), (0, Some(0)));
        let kinds: Vec<i64> = answer.numbers(Field::MqttType).collect();
        assert_eq!(kinds, [1, 2], "a transaction has all its messages");
        assert!(answer.each(Buffer::MqttPassword, &mut |it| it == b"pass"));
    }

    #[test]
    fn what_is_published_is_told_up_to_a_length() {
        assert_eq!(shortened(&[b'B'; 1024]), "B".repeat(1024));
        let told = shortened(&[b'B'; 3000]);
        assert_eq!(told, "B".repeat(1024) + "[truncated 1976 additional bytes]");
    }
}
