//! PostgreSQL's protocol, version 3: who logs in, and what is asked.

use std::collections::VecDeque;

use super::unit::{Record, Said, Unit};
use super::{Held, Parser, Unanswered};
use crate::buffers::event::AppEvent;
use crate::heap::heap_size;
use crate::rule::{Buffer, Protocol};
use crate::value::{Object, Value};

/// Bytes of a message that is looked into, at most; rows are counted only.
const MESSAGE_LEN_MAX: usize = 64 * 1024;
/// A message that says it is longer is none.
const LENGTH_MAX: u32 = 1 << 30;
/// Requests that wait for an answer, and parameters of one, at most.
const WAITING_MAX: usize = 64;
const PARAMETERS_MAX: usize = 64;
/// Messages of an answer beside rows that are not odd, at most (Suricata's limit).
const RESPONSES_MAX: u64 = 64;

const SSL_REQUEST: u32 = 80_877_103;
const GSSENC_REQUEST: u32 = 80_877_104;
const CANCEL_REQUEST: u32 = 80_877_102;
const VERSION_3: u32 = 0x0003_0000;

/// A request, and what came back of it.
#[derive(Debug, Default)]
struct Exchange {
    number: u64,
    request: Option<Object>,
    query: Option<Vec<u8>>,
    response: Object,
    parameters: Vec<Value>,
    rows: u64,
    row_bytes: u64,
    /// Messages of the server beside rows.
    responses: u64,
}
heap_size!(Exchange { request, query, response, parameters });

/// A connection.
#[derive(Debug, Default)]
pub(crate) struct Pgsql {
    held: [Held; 2],
    waiting: VecDeque<Exchange>,
    unanswered: Unanswered,
    count: u64,
    /// The client's messages have their kind before them.
    has_begun: bool,
    /// The server answers by one letter.
    asked_for_tls: bool,
    is_tls: bool,
    is_over: bool,
}
heap_size!(Pgsql { held, waiting });

impl Parser for Pgsql {
    fn take(&mut self, side: usize, bytes: &[u8], said: &mut Said) {
        if self.is_over || self.is_tls {
            return;
        }
        self.held[side].add(bytes);
        loop {
            let before = self.held[side].bytes().len();
            let is_read = match side {
                0 if !self.has_begun => self.beginning(said),
                1 if self.asked_for_tls => self.letter(said),
                _ => self.message(side, said),
            };
            if is_read.is_none() || before == self.held[side].bytes().len() {
                return;
            }
        }
    }

    fn end(&mut self, said: &mut Said) {
        for exchange in std::mem::take(&mut self.waiting) {
            said.records.push(exchange.record());
        }
    }

    fn becomes_tls(&self) -> bool {
        self.is_tls
    }
}

impl Pgsql {
    fn broken(&mut self, event: AppEvent, said: &mut Said) {
        let mut unit = Unit::new(Protocol::Pgsql, self.count);
        unit.odd(event);
        said.unreadable(unit);
        self.is_over = true;
        self.held.iter_mut().for_each(Held::clear);
    }

    /// The first messages of a client, which have no kind.
    fn beginning(&mut self, said: &mut Said) -> Option<()> {
        let head: [u8; 8] = *self.held[0].bytes().first_chunk()?;
        let length = u32::from_be_bytes([head[0], head[1], head[2], head[3]]);
        let code = u32::from_be_bytes([head[4], head[5], head[6], head[7]]);
        if !(8..=10_000).contains(&length) {
            self.broken(AppEvent::PgsqlLength, said);
            return None;
        }
        let message = self.held[0].take(length as usize)?;
        let request = match code {
            SSL_REQUEST => {
                self.asked_for_tls = true;
                Object::default().with("message", "SSL Request")
            }
            GSSENC_REQUEST => {
                self.asked_for_tls = true;
                Object::default().with("message", "GSSENC Request")
            }
            CANCEL_REQUEST => Object::default().with("message", "cancel_request"),
            VERSION_3 => {
                self.has_begun = true;
                let parameters = parameters(message.get(8..)?);
                Object::default()
                    .with("protocol_version", "3.0")
                    .with("startup_parameters", parameters)
            }
            _ => {
                self.broken(AppEvent::PgsqlRequest, said);
                return None;
            }
        };
        self.request(request, None, said);
        Some(())
    }

    /// Whether the server takes TLS.
    fn letter(&mut self, said: &mut Said) -> Option<()> {
        let letter = self.held[1].take(1)?[0];
        self.asked_for_tls = false;
        self.is_tls = letter == b'S';
        if let Some(exchange) = self.waiting.back_mut() {
            exchange.response.put("ssl_accepted", self.is_tls);
        }
        self.answered(said);
        Some(())
    }

    fn message(&mut self, side: usize, said: &mut Said) -> Option<()> {
        let head: [u8; 5] = *self.held[side].bytes().first_chunk()?;
        let length = u32::from_be_bytes([head[1], head[2], head[3], head[4]]);
        if !(4..=LENGTH_MAX).contains(&length) {
            self.broken(AppEvent::PgsqlLength, said);
            return None;
        }
        let whole = 1 + length as usize;
        let looked_into = whole.min(MESSAGE_LEN_MAX);
        if self.held[side].bytes().len() < looked_into {
            return None;
        }
        let body = self.held[side].bytes()[5..looked_into].to_vec();
        self.held[side].drop(whole as u64);
        match side {
            0 => self.asked(head[0], &body, said),
            _ => self.told(head[0], length, &body, said),
        }
        Some(())
    }

    fn asked(&mut self, kind: u8, body: &[u8], said: &mut Said) {
        let text = until_nul(body);
        let (request, query) = match kind {
            b'Q' => (Object::default().with("simple_query", text), Some(text)),
            b'p' => {
                // Not told of, as passwords.
                let mut object = Object::default();
                match body {
                    _ if text.starts_with(b"SCRAM-") => {
                        object.put("sasl_authentication_mechanism", mechanism(text));
                    }
                    _ if memchr::memmem::find(body, b"p=").is_some() => {
                        object.put("sasl_response", body);
                    }
                    _ => object.put("password_redacted", true),
                }
                (object, None)
            }
            b'X' => (Object::default().with("message", "termination_message"), None),
            b'c' => (Object::default().with("copy_done", true), None),
            b'f' => (Object::default().with("copy_fail", text), None),
            _ => return,
        };
        self.request(request, query.map(<[u8]>::to_vec), said);
        if kind == b'X' {
            self.answered(said);
        }
    }

    fn request(&mut self, request: Object, query: Option<Vec<u8>>, said: &mut Said) {
        let number = self.count;
        self.count += 1;
        let exchange = Exchange { number, request: Some(request), query, ..Exchange::default() };
        let mut unit = exchange.unit();
        if self.unanswered.make_room(&mut self.waiting, WAITING_MAX) {
            unit.odd(AppEvent::PgsqlMany);
        }
        said.units.push(unit);
        self.waiting.push_back(exchange);
    }

    /// The first exchange is done with.
    fn answered(&mut self, said: &mut Said) {
        let Some(exchange) = self.waiting.pop_front() else { return };
        said.units.push(exchange.unit());
        said.records.push(exchange.record());
    }

    fn told(&mut self, kind: u8, length: u32, body: &[u8], said: &mut Said) {
        if self.waiting.is_empty() {
            let number = self.count;
            self.count += 1;
            self.waiting.push_back(Exchange { number, ..Exchange::default() });
        }
        let Some(exchange) = self.waiting.front_mut() else { return };
        exchange.responses += u64::from(kind != b'D');
        if exchange.responses == RESPONSES_MAX + 1 {
            let mut unit = exchange.unit();
            unit.odd(AppEvent::PgsqlManyResponses);
            said.units.push(unit);
        }
        let number = |at: usize| {
            body.get(at..).and_then(<[u8]>::first_chunk).map(|it| u32::from_be_bytes(*it))
        };
        let mut is_done = false;
        let response = &mut exchange.response;
        match kind {
            b'R' => {
                let Some(name) = number(0).and_then(authentication) else {
                    let mut unit = exchange.unit();
                    unit.odd(AppEvent::PgsqlResponse);
                    return said.units.push(unit);
                };
                let content = body.get(4..).unwrap_or_default();
                match number(0) {
                    Some(0) => response.put("message", name),
                    Some(10) => response.put(name, mechanism(until_nul(content))),
                    _ => response.put(name, content),
                }
                is_done = !matches!(number(0), Some(0 | 12));
            }
            b'S' => {
                let name = until_nul(body);
                let value = until_nul(body.get(name.len() + 1..).unwrap_or_default());
                if exchange.parameters.len() < PARAMETERS_MAX {
                    let pair = Object::default().with(crate::value::text(name), value);
                    exchange.parameters.push(pair.into());
                }
            }
            b'K' => {
                response.put_some("process_id", number(0));
                response.put_some("secret_key", number(4));
            }
            b'T' => {
                let count = body.first_chunk().map(|it| u16::from_be_bytes(*it));
                response.put("row_description_malformed", count.is_none());
                response.put_some("field_count", count);
            }
            b'D' => {
                exchange.rows += 1;
                // Behind their number, each value has its length before it.
                let count = body.first_chunk().map_or(0, |it| u16::from_be_bytes(*it));
                let heads = 6 + 4 * u64::from(count);
                exchange.row_bytes += u64::from(length).saturating_sub(heads);
            }
            b'C' => response.put("command_completed", until_nul(body)),
            b'E' | b'N' => fields(body, response),
            b'Z' => is_done = true,
            _ => {}
        }
        if is_done {
            self.answered(said);
        }
    }
}

impl Exchange {
    fn object(&self) -> Object {
        let mut object = Object::default().with("tx_id", self.number + 1);
        object.put_some("request", self.request.clone());
        let mut response = self.response.clone();
        if self.rows > 0 {
            response.put("data_rows", self.rows);
            response.put("data_size", self.row_bytes);
        }
        if !self.parameters.is_empty() {
            response.put("parameter_status", Value::List(self.parameters.clone()));
        }
        if !response.is_empty() {
            object.put("response", response);
        }
        object
    }

    fn unit(&self) -> Unit {
        let mut unit = Unit::new(Protocol::Pgsql, self.number);
        unit.some_text(Buffer::PgsqlQuery, self.query.as_deref());
        unit.tells("pgsql", self.object());
        unit
    }

    fn record(&self) -> Record {
        Record::new("pgsql", self.number, self.object())
    }
}

/// What a server asks a client for, or says of that.
fn authentication(code: u32) -> Option<&'static str> {
    Some(match code {
        0 => "authentication_ok",
        3 => "authentication_cleartext_password",
        5 => "authentication_md5_password",
        9 => "authentication_gss",
        10 => "authentication_sasl",
        11 => "authentication_sasl_continue",
        12 => "authentication_sasl_final",
        2 | 6 | 7 | 8 => "authentication",
        _ => return None,
    })
}

fn until_nul(bytes: &[u8]) -> &[u8] {
    let end = bytes.iter().position(|it| *it == 0).unwrap_or(bytes.len());
    &bytes[..end]
}

fn mechanism(name: &[u8]) -> String {
    crate::value::text(name).to_lowercase().replace('-', "_")
}

/// Names and values of a startup message: the user, and others.
fn parameters(bytes: &[u8]) -> Object {
    let mut texts = bytes.split(|it| *it == 0);
    let mut object = Object::default();
    let mut others: Vec<Value> = Vec::new();
    while let (Some(name), Some(value)) = (texts.next(), texts.next()) {
        if name.is_empty() || others.len() == PARAMETERS_MAX {
            break;
        }
        match name {
            b"user" => object.put("user", value),
            _ => others.push(Object::default().with(crate::value::text(name), value).into()),
        }
    }
    if !others.is_empty() {
        object.put("optional_parameters", Value::List(others));
    }
    object
}

/// What an error says.
fn fields(bytes: &[u8], response: &mut Object) {
    for field in bytes.split(|it| *it == 0) {
        let Some((kind, text)) = field.split_first() else { continue };
        let name = match kind {
            b'S' => "severity_localizable",
            b'V' => "severity_non_localizable",
            b'C' => "code",
            b'M' => "message",
            b'F' => "file",
            b'L' => "line",
            b'R' => "routine",
            b'P' => "position",
            b'D' => "detail",
            b'H' => "hint",
            _ => continue,
        };
        response.put(name, text);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queries_are_told_with_what_came_back() {
        let (mut pgsql, mut said) = (Pgsql::default(), Said::default());
        let lines: [(usize, &[u8]); 4] = [
            (0, b"\0\0\0\x11\0\x03\0\0user\0me\0\0"),
            (1, b"R\0\0\0\x08\0\0\0\0Z\0\0\0\x05I"),
            (0, b"Q\0\0\0\x0dselect 1\0"),
            (1, b"D\0\0\0\x06\0\0C\0\0\0\x0dSELECT 1\0Z\0\0\0\x05I"),
        ];
        for (side, bytes) in lines {
            bytes.chunks(3).for_each(|it| pgsql.take(side, it, &mut said));
        }
        let [login, query] = &said.records[..] else { panic!("{said:?}") };
        assert!(login.objects[0].1.value("request").is_some());
        let Some(Value::Object(response)) = query.objects[0].1.value("response") else { panic!() };
        assert_eq!(response.value("data_rows"), Some(&1_u64.into()));
        assert!(
            said.units.iter().any(|it| it.each(Buffer::PgsqlQuery, &mut |it| it == b"select 1"))
        );
    }

    #[test]
    fn what_is_no_message_is_odd() {
        let (mut pgsql, mut said) = (Pgsql::default(), Said::default());
        pgsql.take(1, b"R\0\0\0\0", &mut said);
        assert!(said.units[0].events.has(AppEvent::PgsqlLength));
    }
}
