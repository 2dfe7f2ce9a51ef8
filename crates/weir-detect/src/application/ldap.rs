//! LDAP (RFC 4511): requests and what comes back.

use std::collections::VecDeque;

use super::ber::{self, Ber, ENUMERATED, OCTETS, SEQUENCE, SET};
use super::names::{LDAP_OPERATION, LDAP_RESULT, name_of};
use super::unit::{Record, Said, Unit};
use super::{Held, Parser};
use crate::buffers::event::AppEvent;
use crate::heap::heap_size;
use crate::rule::{Buffer, Field, Protocol};
use crate::value::{Object, Value};

/// Requests that wait for an answer, answers of one, and attributes of one, at most.
const WAITING_MAX: usize = 256;
const RESPONSES_MAX: usize = 256;
const ATTRIBUTES_MAX: usize = 256;
/// `1.3.6.1.4.1.1466.20037`: from here on TLS is spoken (RFC 4511 s4.14).
const START_TLS: &[u8] = b"1.3.6.1.4.1.1466.20037";

/// Operations that are asked for (RFC 4511 s4.1.1): all others are answers.
const REQUESTS: [u8; 10] = [0, UNBIND, 3, 6, 8, 10, 12, 14, ABANDON, 23];
const UNBIND: u8 = 2;
const ABANDON: u8 = 16;
const EXTENDED_RESPONSE: u8 = 24;

/// A request and its answers.
#[derive(Debug, Default)]
struct Exchange {
    number: u64,
    identifier: i64,
    request: Option<Part>,
    responses: Vec<Part>,
    is_start_tls: bool,
}
heap_size!(Exchange { request, responses });

/// A message, as far as it is told.
#[derive(Debug, Default)]
struct Part {
    operation: u8,
    names: Vec<Vec<u8>>,
    attributes: Vec<Vec<u8>>,
    result: Option<i64>,
    message: Option<Vec<u8>>,
    object: Object,
}
heap_size!(Part { names, attributes, message, object });

/// A flow between a client and a server.
#[derive(Debug, Default)]
pub(crate) struct Ldap {
    held: [Held; 2],
    waiting: VecDeque<Exchange>,
    count: u64,
    is_over: bool,
}
heap_size!(Ldap { held, waiting });

impl Parser for Ldap {
    fn take(&mut self, side: usize, bytes: &[u8], said: &mut Said) {
        if self.is_over {
            return;
        }
        // Where a segment begins with one, a message begins.
        self.held[side].add_from(bytes, 0, |it| super::begin::is_ldap(it).then_some(0));
        if self.held[side].is_lost() {
            return;
        }
        loop {
            let length = match ber::length(self.held[side].bytes()) {
                Ok(length) => length,
                Err(ber::Unknown::Short) => break,
                Err(ber::Unknown::Bad) => {
                    self.is_over = true;
                    return self.fail(said);
                }
            };
            if self.held[side].is_too_long() {
                self.held[side].drop(length as u64);
                break;
            }
            let Some(bytes) = self.held[side].take(length) else { break };
            // One with a number, and a value that does not fit, waits for the rest with Suricata.
            let number = || Ber::new(Ber::new(&bytes).expect(SEQUENCE)?).integer();
            let waits = || number().is_some() && ber::is_cut(&bytes);
            if self.message(side, &bytes, said).is_none() && !waits() {
                self.fail(said);
            }
        }
    }

    fn lose(&mut self, side: usize, count: u64) -> bool {
        let length = ber::length(self.held[side].bytes()).ok().map(|it| it as u64);
        self.held[side].lose(count, length);
        true
    }

    fn end(&mut self, said: &mut Said) {
        let waiting = std::mem::take(&mut self.waiting);
        said.records.extend(waiting.iter().map(Exchange::record));
    }

    fn becomes_tls(&self) -> bool {
        self.is_over
    }
}

impl Ldap {
    /// A message is none of this protocol's: something is odd about the last request, be it
    /// answered or not, as with Suricata.
    fn fail(&mut self, said: &mut Said) {
        if let Some(number) = self.count.checked_sub(1) {
            let last = self.waiting.back().filter(|it| it.number == number);
            let unit = last.map(Exchange::unit);
            let mut unit = unit.unwrap_or_else(|| Unit::new(Protocol::Ldap, number));
            unit.odd(AppEvent::LdapInvalid);
            said.units.push(unit);
        }
        said.fail();
    }

    fn message(&mut self, side: usize, bytes: &[u8], said: &mut Said) -> Option<()> {
        let mut outer = Ber::new(Ber::new(bytes).expect(SEQUENCE)?);
        let identifier = outer.integer()?;
        let (tag, content) = outer.next()?;
        let operation = tag & 0x1f;
        if said.knows_no_more && is_foreign_part(operation, content) {
            said.has_failed = true;
            return Some(());
        }
        let part = part(operation, content)?;
        match side {
            0 => self.request(identifier, part, content, said),
            _ => self.response(identifier, part, said),
        }
        Some(())
    }

    fn request(&mut self, identifier: i64, part: Part, content: &[u8], said: &mut Said) {
        let exchange = Exchange {
            number: self.count,
            identifier,
            is_start_tls: part.operation == 23
                && memchr::memmem::find(content, START_TLS).is_some(),
            request: Some(part),
            responses: Vec::new(),
        };
        self.count += 1;
        let mut unit = exchange.unit();
        let is_alone =
            exchange.request.as_ref().is_some_and(|it| matches!(it.operation, UNBIND | ABANDON));
        if is_alone {
            said.records.push(exchange.record());
        } else {
            if self.waiting.len() == WAITING_MAX {
                unit.odd(AppEvent::LdapMany);
                self.waiting.pop_front();
            }
            self.waiting.push_back(exchange);
        }
        said.units.push(unit);
    }

    fn response(&mut self, identifier: i64, part: Part, said: &mut Said) {
        let is_last = !matches!(part.operation, 4 | 19 | 25);
        let place = self.waiting.iter().position(|it| it.identifier == identifier);
        let Some(place) = place else {
            // Notices are such (RFC 4511 s4.4), which nobody asks for.
            let is_notice = part.operation == EXTENDED_RESPONSE;
            let exchange = Exchange {
                number: self.count,
                identifier,
                responses: vec![part],
                ..Exchange::default()
            };
            self.count += 1;
            let mut unit = exchange.unit();
            if !is_notice {
                unit.odd(AppEvent::LdapUnasked);
            }
            said.records.push(exchange.record());
            said.tell(unit);
            return;
        };
        let exchange = &mut self.waiting[place];
        let has_room = exchange.responses.len() < RESPONSES_MAX;
        let result = part.result;
        if has_room {
            exchange.responses.push(part);
        }
        let mut unit = exchange.unit();
        if !has_room {
            unit.odd(AppEvent::LdapResponses);
        }
        said.units.push(unit);
        if is_last && let Some(exchange) = self.waiting.remove(place) {
            self.is_over = exchange.is_start_tls && result == Some(0);
            said.records.push(exchange.record());
        }
    }
}

impl Exchange {
    fn unit(&self) -> Unit {
        let mut unit = Unit::new(Protocol::Ldap, self.number);
        if let Some(request) = &self.request {
            unit.number(Field::LdapRequest, request.operation);
        }
        if let Some(request) = self.request.as_ref().filter(|it| REQUESTS.contains(&it.operation)) {
            request.names.iter().for_each(|it| unit.text(Buffer::LdapRequestName, it));
            request.attributes.iter().for_each(|it| unit.text(Buffer::LdapRequestAttribute, it));
        }
        unit.number(Field::LdapCount, i64::try_from(self.responses.len()).unwrap_or(i64::MAX));
        for response in &self.responses {
            unit.number(Field::LdapResponse, response.operation);
            response.names.iter().for_each(|it| unit.text(Buffer::LdapResponseName, it));
            response.attributes.iter().for_each(|it| unit.text(Buffer::LdapResponseAttribute, it));
            if let Some(result) = response.result {
                unit.number(Field::LdapResult, result);
            }
            unit.some_text(Buffer::LdapMessage, response.message.as_deref());
        }
        unit.tells("ldap", self.object());
        unit
    }

    fn object(&self) -> Object {
        let told = |part: &Part, is_request: bool| {
            let name = name_of(LDAP_OPERATION, part.operation).unwrap_or("unknown");
            let mut object = Object::default();
            if is_request || self.request.is_none() {
                object.put("message_id", self.identifier);
            }
            object.put("operation", name);
            if !part.object.is_empty() {
                object.put(name, part.object.clone());
            }
            object
        };
        let mut object = Object::default();
        object.put_some("request", self.request.as_ref().map(|it| told(it, true)));
        if !self.responses.is_empty() {
            let responses: Vec<Object> = self.responses.iter().map(|it| told(it, false)).collect();
            object.put("responses", responses);
        }
        object
    }

    fn record(&self) -> Record {
        Record::new("ldap", self.number, self.object())
    }
}

/// What an operation says.
fn part(operation: u8, content: &[u8]) -> Option<Part> {
    let mut part = Part { operation, ..Part::default() };
    let mut fields = Ber::new(content);
    match operation {
        0 => bind(&mut fields, &mut part)?,
        3 => search(&mut fields, &mut part)?,
        4 => {
            let name = fields.expect(OCTETS)?;
            part.names.push(name.to_vec());
            part.object.put("base_object", name);
            let attributes = attributes(fields.expect(SEQUENCE)?, "type", &mut part)?;
            part.object.put("attributes", Value::List(attributes));
        }
        6 => {
            let name = fields.expect(OCTETS)?;
            part.names.push(name.to_vec());
            part.object.put("object", name);
            modifications(fields.expect(SEQUENCE)?, &mut part)?;
        }
        8 => {
            let name = fields.expect(OCTETS)?;
            part.names.push(name.to_vec());
            part.object.put("entry", name);
            let attributes = attributes(fields.expect(SEQUENCE)?, "name", &mut part)?;
            part.object.put("attributes", Value::List(attributes));
        }
        10 => {
            part.names.push(content.to_vec());
            part.object.put("dn", content);
        }
        12 => rename(&mut fields, &mut part)?,
        14 => compare(&mut fields, &mut part)?,
        23 => {
            part.object.put("name", fields.next()?.1);
            part.object.put_some("value", fields.next().map(|it| it.1));
        }
        1 | 5 | 7 | 9 | 11 | 13 | 15 | 24 => {
            result(&mut fields, &mut part)?;
            while let Some((tag, value)) = fields.next() {
                match (operation, tag & 0x1f) {
                    (1, 7) => part.object.put("server_sasl_creds", crate::value::hex(value, "")),
                    (24, 10) => part.object.put("name", value),
                    (24, 11) => part.object.put("value", value),
                    _ => {}
                }
            }
        }
        25 => {
            while let Some((tag, value)) = fields.next() {
                part.object.put(if tag & 0x1f == 0 { "name" } else { "value" }, value);
            }
        }
        _ => {}
    }
    Some(part)
}

/// Whether a message is one that Suricata cannot read: its client says by NTLM who it is
/// ([MS-ADTS] 5.1.1.1.3), or what is a text is no UTF-8.
pub(crate) fn is_foreign(message: &[u8]) -> bool {
    let operation = || {
        let mut outer = Ber::new(Ber::new(message).expect(SEQUENCE)?);
        outer.integer()?;
        outer.next()
    };
    operation().is_some_and(|(tag, content)| is_foreign_part(tag & 0x1f, content))
}

fn is_foreign_part(operation: u8, content: &[u8]) -> bool {
    let mut fields = Ber::new(content);
    let mut is_known = || match operation {
        0 => {
            fields.integer()?;
            fields.expect(OCTETS)?;
            Some(matches!(fields.next()?.0 & 0x1f, 0 | 3))
        }
        1 => {
            fields.expect(ENUMERATED)?;
            let texts = [fields.expect(OCTETS)?, fields.expect(OCTETS)?];
            Some(texts.iter().all(|it| std::str::from_utf8(it).is_ok()))
        }
        _ => None,
    };
    is_known() == Some(false)
}

fn bind(fields: &mut Ber<'_>, part: &mut Part) -> Option<()> {
    let (version, name) = (fields.integer()?, fields.expect(OCTETS)?);
    part.names.push(name.to_vec());
    part.object.put("version", version);
    part.object.put("name", name);
    let (tag, how) = fields.next()?;
    if tag & 0x1f == 3 {
        let mut sasl = Ber::new(how);
        let mut told = Object::default().with("mechanism", sasl.expect(OCTETS)?);
        told.put_some("credentials", sasl.expect(OCTETS).map(|it| crate::value::hex(it, "")));
        part.object.put("sasl", told);
    }
    Some(())
}

fn search(fields: &mut Ber<'_>, part: &mut Part) -> Option<()> {
    let name = fields.expect(OCTETS)?;
    let enumerated = |fields: &mut Ber<'_>| fields.expect(ENUMERATED).and_then(ber::integer);
    let (scope, aliases) = (enumerated(fields)?, enumerated(fields)?);
    let (size, time) = (fields.integer()?, fields.integer()?);
    let is_types_only = fields.next()?.1.first().is_some_and(|it| *it != 0);
    part.names.push(name.to_vec());
    part.object.put("base_object", name);
    part.object.put("scope", scope);
    part.object.put("deref_alias", aliases);
    part.object.put("size_limit", size);
    part.object.put("time_limit", time);
    part.object.put("types_only", is_types_only);
    let (tag, filter) = fields.next()?;
    if tag == 0x87 {
        let told = Object::default().with("type", "present").with("value", filter);
        part.object.put("filter", told);
    }
    let mut attributes = Ber::new(fields.expect(SEQUENCE)?);
    let mut told = Vec::new();
    while let Some(kind) = attributes.expect(OCTETS) {
        if told.len() < ATTRIBUTES_MAX {
            part.attributes.push(kind.to_vec());
            told.push(kind);
        }
    }
    if !told.is_empty() {
        part.object.put("attributes", told);
    }
    Some(())
}

fn rename(fields: &mut Ber<'_>, part: &mut Part) -> Option<()> {
    let (name, new) = (fields.expect(OCTETS)?, fields.expect(OCTETS)?);
    let deletes = fields.next()?.1.first().is_some_and(|it| *it != 0);
    part.names.push(name.to_vec());
    part.object.put("entry", name);
    part.object.put("new_rdn", new);
    part.object.put("delete_old_rdn", deletes);
    part.object.put_some("new_superior", fields.next().map(|it| it.1));
    Some(())
}

fn compare(fields: &mut Ber<'_>, part: &mut Part) -> Option<()> {
    let name = fields.expect(OCTETS)?;
    part.names.push(name.to_vec());
    part.object.put("entry", name);
    let mut assertion = Ber::new(fields.expect(SEQUENCE)?);
    let (kind, value) = (assertion.expect(OCTETS)?, assertion.expect(OCTETS)?);
    part.attributes.push(kind.to_vec());
    let told = Object::default().with("description", kind).with("value", value);
    part.object.put("attribute_value_assertion", told);
    Some(())
}

/// Kinds of attributes and their values.
fn attributes(content: &[u8], name: &'static str, part: &mut Part) -> Option<Vec<Value>> {
    let mut list = Ber::new(content);
    let mut told = Vec::new();
    while let Some(attribute) = list.expect(SEQUENCE) {
        if told.len() < ATTRIBUTES_MAX {
            told.push(attribute_of(attribute, name, part)?.into());
        }
    }
    Some(told)
}

fn attribute_of(content: &[u8], name: &'static str, part: &mut Part) -> Option<Object> {
    let mut fields = Ber::new(content);
    let kind = fields.expect(OCTETS)?;
    part.attributes.push(kind.to_vec());
    let mut values = Ber::new(fields.expect(SET)?);
    let mut all = Vec::new();
    while let Some(value) = values.expect(OCTETS) {
        if all.len() < ATTRIBUTES_MAX {
            all.push(value);
        }
    }
    Some(Object::default().with(name, kind).with("values", all))
}

fn modifications(content: &[u8], part: &mut Part) -> Option<()> {
    let mut list = Ber::new(content);
    let mut told: Vec<Value> = Vec::new();
    while let Some(change) = list.expect(SEQUENCE) {
        let mut fields = Ber::new(change);
        let operation = match fields.expect(ENUMERATED).and_then(ber::integer)? {
            0 => "add",
            1 => "delete",
            2 => "replace",
            _ => "increment",
        };
        let attribute = attribute_of(fields.expect(SEQUENCE)?, "type", part)?;
        let mut object = Object::default().with("operation", operation);
        let mut modification = Object::default();
        modification.put_some("attribute_type", attribute.value("type").cloned());
        modification.put_some("attribute_values", attribute.value("values").cloned());
        object.put("modification", modification);
        if told.len() < ATTRIBUTES_MAX {
            told.push(object.into());
        }
    }
    part.object.put("changes", Value::List(told));
    Some(())
}

fn result(fields: &mut Ber<'_>, part: &mut Part) -> Option<()> {
    let code = fields.expect(ENUMERATED).and_then(ber::integer)?;
    let (name, message) = (fields.expect(OCTETS)?, fields.expect(OCTETS)?);
    part.names.push(name.to_vec());
    part.result = Some(code);
    part.message = Some(message.to_vec());
    let spelt = name_of(LDAP_RESULT, code).map_or(format!("unknown-{code}"), str::to_owned);
    part.object.put("result_code", spelt);
    part.object.put("matched_dn", name);
    part.object.put("message", message);
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const SEARCH: &[u8] = b"\x30\x20\x02\x01\x02\x63\x1b\x04\x04dc=x\x0a\x01\x02\x0a\x01\x00\x02\
        \x01\x00\x02\x01\x00\x01\x01\x00\x87\x02cn\x30\x00";
    const DONE: &[u8] = b"\x30\x0c\x02\x01\x02\x65\x07\x0a\x01\x20\x04\x00\x04\x00";

    #[test]
    fn a_request_is_told_with_its_answers() {
        let (mut ldap, mut said) = (Ldap::default(), Said::default());
        SEARCH.chunks(6).for_each(|it| ldap.take(0, it, &mut said));
        ldap.take(1, DONE, &mut said);
        let [record] = &said.records[..] else { panic!("{said:?}") };
        assert!(record.objects[0].1.value("request").is_some());
        assert_eq!(said.units[1].numbers(Field::LdapResult).next(), Some(32));
        assert!(said.units[0].each(Buffer::LdapRequestName, &mut |it| it == b"dc=x"));
        ldap.take(1, DONE, &mut said);
        assert!(said.units[2].events.has(AppEvent::LdapUnasked));
        assert_eq!(said.later, said.units[2..], "it is either side's");
    }

    #[test]
    fn what_a_client_answers_has_no_names_of_a_request() {
        let (mut ldap, mut said) = (Ldap::default(), Said::default());
        ldap.take(0, b"\x30\x0c\x02\x01\x02\x64\x07\x04\x03a=b\x30\x00", &mut said);
        assert_eq!(said.units[0].numbers(Field::LdapRequest).next(), Some(4));
        assert!(!said.units[0].each(Buffer::LdapRequestName, &mut |_| true));
    }

    /// What is told of an answer that nobody asked for.
    fn answer(bytes: &[u8]) -> Object {
        let (mut ldap, mut said) = (Ldap::default(), Said::default());
        ldap.take(1, bytes, &mut said);
        let Some(Value::List(mut answers)) =
            said.records[0].objects[0].1.value("responses").cloned()
        else {
            panic!("{said:?}")
        };
        let Value::Object(answer) = answers.remove(0) else { panic!("{said:?}") };
        answer
    }

    #[test]
    fn answers_that_nobody_asked_for_tell_what_message_they_are() {
        assert_eq!(answer(DONE).value("message_id"), Some(&2_u8.into()));
    }

    #[test]
    fn notices_are_not_asked_for() {
        let notice = DONE.iter().map(|it| if *it == 0x65 { 0x78 } else { *it }).collect::<Vec<_>>();
        for (bytes, is_odd) in [(DONE, true), (&notice, false)] {
            let (mut ldap, mut said) = (Ldap::default(), Said::default());
            ldap.take(1, bytes, &mut said);
            assert_eq!(said.units[0].events.has(AppEvent::LdapUnasked), is_odd);
        }
    }

    #[test]
    fn results_without_a_name_tell_their_number() {
        let odd = DONE.iter().map(|it| if *it == 0x20 { 30 } else { *it }).collect::<Vec<_>>();
        let answer = answer(&odd);
        let Some(Value::Object(done)) = answer.value("search_result_done") else {
            panic!("{answer:?}")
        };
        assert_eq!(done.value("result_code"), Some(&"unknown-30".into()));
    }
}
