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
/// Bytes of one text that are told of, at most.
const TEXT_LEN_MAX: usize = 2048;
/// Messages of an answer that are not odd, at most, rows and pieces of a copy together one
/// (Suricata's limit).
const RESPONSES_MAX: u64 = 64;

const SSL_REQUEST: u32 = 80_877_103;
const GSSENC_REQUEST: u32 = 80_877_104;
const CANCEL_REQUEST: u32 = 80_877_102;
const VERSION_3: u32 = 0x0003_0000;
/// What servers say of who a client is: that it is, or how to prove it; by SASL (RFC 5802) in
/// three steps.
const OK: u32 = 0;
const CLEAR_TEXT: u32 = 3;
const SASL: u32 = 10;
const SASL_CONTINUE: u32 = 11;
const SASL_FINAL: u32 = 12;

/// A request, and what came back of it.
#[derive(Debug, Default)]
struct Exchange {
    number: u64,
    request: Option<Object>,
    query: Option<Vec<u8>>,
    response: Object,
    parameters: Vec<Value>,
    /// Rows, or pieces of a copy in either direction, that nothing was told of yet, and their
    /// bytes.
    rows: u64,
    row_bytes: u64,
    /// It is data that the client copies into a table.
    is_copy: bool,
    /// Messages of the server, rows together one.
    responses: u64,
    /// One of them was odd.
    is_odd: bool,
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
    /// What the server asked for, for the client to prove who it is.
    authentication: u32,
    /// The server waits for the client to copy data into a table.
    takes_copy: bool,
    /// The server answers by one letter.
    asked_for_tls: bool,
    is_tls: bool,
    is_over: bool,
}
heap_size!(Pgsql { held, waiting });

/// Whether a message begins so: a kind, and how long it is.
fn is_message(bytes: &[u8]) -> bool {
    let Some([kind, length @ ..]) = bytes.first_chunk::<5>() else { return false };
    kind.is_ascii_alphanumeric() && (4..=LENGTH_MAX).contains(&u32::from_be_bytes(*length))
}

impl Parser for Pgsql {
    fn take(&mut self, side: usize, bytes: &[u8], said: &mut Said) {
        if self.is_over || self.is_tls {
            return;
        }
        // Where a segment begins with one, a message begins.
        self.held[side].add_from(bytes, 0, |it| is_message(it).then_some(0));
        if self.held[side].is_lost() {
            // Its server is known, and what a client began with is none of its beginnings.
            if side == 0 && !std::mem::replace(&mut self.has_begun, true) && self.count == 0 {
                let mut unit = Unit::new(Protocol::Pgsql, 0);
                unit.odd(AppEvent::PgsqlRequest);
                said.tell(unit);
            }
            return;
        }
        // The length of a beginning begins with a zero.
        self.has_begun |= side == 0 && self.held[0].bytes().first().is_some_and(|it| *it != 0);
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

    fn lose(&mut self, side: usize, count: u64) -> bool {
        let head = self.held[side].bytes().first_chunk::<5>().copied();
        let length = head.map(|[_, length @ ..]| 1 + u64::from(u32::from_be_bytes(length)));
        self.held[side].lose(count, length.filter(|_| side == 1 || self.has_begun));
        true
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
        said.has_failed = true;
        said.tell(unit);
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
            CANCEL_REQUEST => {
                let mut request = Object::default().with("message", "cancel_request");
                request.put_some("process_id", word(&message, 8));
                request.put_some("secret_key", word(&message, 12));
                request
            }
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
        // Nothing answers it.
        if code == CANCEL_REQUEST {
            self.answered(said);
        }
        Some(())
    }

    /// Whether the server takes TLS.
    fn letter(&mut self, said: &mut Said) -> Option<()> {
        let letter = self.held[1].take(1)?[0];
        self.asked_for_tls = false;
        self.is_tls = letter == b'S';
        // All that follows is encrypted by GSS-API.
        self.is_over = letter == b'G';
        if let Some(exchange) = self.waiting.back_mut() {
            exchange.response.put("ssl_accepted", self.is_tls);
        }
        self.answered(said);
        Some(())
    }

    fn message(&mut self, side: usize, said: &mut Said) -> Option<()> {
        let head: [u8; 5] = *self.held[side].bytes().first_chunk()?;
        let length = u32::from_be_bytes([head[1], head[2], head[3], head[4]]);
        if length < 4 {
            self.broken(AppEvent::PgsqlLength, said);
            return None;
        }
        // Of a length that no message has, this side says nothing more that can be read.
        let whole = 1 + length as usize;
        let looked_into = whole.min(MESSAGE_LEN_MAX);
        if self.held[side].bytes().len() < looked_into {
            return None;
        }
        let body = self.held[side].bytes()[5..looked_into].to_vec();
        self.held[side].drop(whole as u64);
        match side {
            0 => self.asked(head[0], length, &body, said),
            _ => self.told(head[0], length, &body, said),
        }
        Some(())
    }

    fn asked(&mut self, kind: u8, length: u32, body: &[u8], said: &mut Said) {
        let text = until_nul(body);
        let (request, query) = match kind {
            b'Q' => (Object::default().with("simple_query", text), Some(text)),
            b'p' => (self.proof(body), None),
            b'X' => (Object::default().with("message", "termination_message"), None),
            b'd' => return self.copied(length, said),
            b'c' => return self.copy_ends("message", b"copy_done", said),
            b'f' => return self.copy_ends("copy_fail", body, said),
            _ => return,
        };
        self.request(request, query.map(<[u8]>::to_vec), said);
        if kind == b'X' {
            self.answered(said);
        }
    }

    /// What a client proves with who it is; passwords are not told of.
    fn proof(&self, body: &[u8]) -> Object {
        let mut object = Object::default();
        match self.authentication {
            SASL => {
                let name = until_nul(body);
                object.put("sasl_authentication_mechanism", mechanism(name));
                // Behind the name stands the length of the rest.
                object.put_some("sasl_param", body.get(name.len() + 5..));
            }
            SASL_CONTINUE => object.put("sasl_response", body),
            _ => object.put("password_redacted", true),
        }
        object
    }

    /// A piece of what a client copies into a table. All that it copies is one exchange.
    fn copied(&mut self, length: u32, said: &mut Said) {
        if std::mem::take(&mut self.takes_copy) {
            self.request(None, None, said);
            self.waiting.back_mut().into_iter().for_each(|it| it.is_copy = true);
        }
        if let Some(copy) = self.waiting.back_mut().filter(|it| it.is_copy) {
            copy.rows += 1;
            copy.row_bytes += u64::from(length).saturating_sub(4);
        }
    }

    /// The client copies no more.
    fn copy_ends(&mut self, name: &'static str, value: &[u8], said: &mut Said) {
        self.takes_copy = false;
        let Some(copy) = self.waiting.back_mut().filter(|it| it.is_copy) else { return };
        // It ends once.
        copy.is_copy = false;
        let data = Object::default().with("msg_count", copy.rows).with("data_size", copy.row_bytes);
        copy.request = Some(Object::default().with("copy_data_in", data).with(name, value));
        said.units.push(copy.unit());
    }

    fn request(
        &mut self,
        request: impl Into<Option<Object>>,
        query: Option<Vec<u8>>,
        said: &mut Said,
    ) {
        let request = request.into();
        let exchange = Exchange { number: self.count, request, query, ..Exchange::default() };
        self.count += 1;
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
        let code = word(body, 0).filter(|it| authentication(*it).is_some());
        if kind == b'R' && code.is_none() {
            // Once an exchange, and without what is told of it: a server may send any number.
            let waiting = self.waiting.front_mut();
            let number = waiting.as_ref().map_or(self.count, |it| it.number);
            if !waiting.is_some_and(|it| std::mem::replace(&mut it.is_odd, true)) {
                let mut unit = Unit::new(Protocol::Pgsql, number);
                unit.odd(AppEvent::PgsqlResponse);
                said.tell(unit);
            }
            return;
        }
        // What nobody asked for is not told of.
        let Some(exchange) = self.waiting.front_mut() else { return };
        let before = exchange.responses;
        let is_done = match kind {
            b'R' => {
                let code = code.unwrap_or_default();
                self.authentication = code;
                exchange.asked_who(code, body);
                !matches!(code, OK | SASL_FINAL)
            }
            b'G' => {
                exchange.copies("copy_in_response", body);
                self.takes_copy = true;
                true
            }
            b'Z' => {
                exchange.responses += 1;
                true
            }
            _ => {
                exchange.answer(kind, length, body);
                false
            }
        };
        if before <= RESPONSES_MAX && exchange.responses > RESPONSES_MAX {
            let mut unit = exchange.unit();
            unit.odd(AppEvent::PgsqlManyResponses);
            said.tell(unit);
        }
        if is_done {
            self.answered(said);
        }
    }
}

impl Exchange {
    /// What the server asks for, for the client to prove who it is.
    fn asked_who(&mut self, code: u32, body: &[u8]) {
        self.responses += 1;
        let Some(name) = authentication(code) else { return };
        let content = body.get(4..).unwrap_or_default();
        match code {
            OK | CLEAR_TEXT | SASL | SASL_CONTINUE => self.response.put("message", name),
            _ => self.response.put(name, content),
        }
    }

    /// The server wants data for a table, or sends what is in one.
    fn copies(&mut self, name: &'static str, body: &[u8]) {
        self.responses += 1;
        let count = body.get(1..).and_then(<[u8]>::first_chunk);
        let (count, is_cut) = (count.map_or(0, |it| u16::from_be_bytes(*it)), count.is_none());
        self.response.put(name, Object::default().with("columns", count).with("malformed", is_cut));
    }

    /// A message of an answer that is not its last. Of too many, the rest is not told of.
    fn answer(&mut self, kind: u8, length: u32, body: &[u8]) {
        match kind {
            b'D' => {
                self.rows += 1;
                // Behind their number, each value has its length before it.
                let count = body.first_chunk().map_or(0, |it| u16::from_be_bytes(*it));
                let heads = 6 + 4 * u64::from(count);
                self.row_bytes += u64::from(length).saturating_sub(heads);
            }
            b'd' => {
                self.rows += 1;
                self.row_bytes += u64::from(length).saturating_sub(4);
            }
            b'H' => self.copies("copy_out_response", body),
            b'C' | b'c' => self.ends(kind, body),
            _ => self.says(kind, body),
        }
    }

    /// Rows, or a copy, end; in EVE they are a message more.
    fn ends(&mut self, kind: u8, body: &[u8]) {
        let rows = std::mem::take(&mut self.rows);
        let bytes = std::mem::take(&mut self.row_bytes);
        self.responses += 1 + u64::from(rows > 0);
        if self.responses > RESPONSES_MAX {
            return;
        }
        match kind {
            b'c' => {
                if rows > 0 {
                    let data = Object::default().with("row_count", rows).with("data_size", bytes);
                    self.response.put("copy_data_out", data);
                }
                self.response.put("message", "copy_done");
            }
            _ => {
                if rows > 0 {
                    self.response.put("data_rows", rows);
                    self.response.put("data_size", bytes);
                }
                self.response.put("command_completed", until_nul(body));
            }
        }
    }

    fn says(&mut self, kind: u8, body: &[u8]) {
        self.responses += u64::from(matches!(kind, b'S' | b'K' | b'T' | b'E'));
        if self.responses > RESPONSES_MAX {
            return;
        }
        let response = &mut self.response;
        match kind {
            b'S' => {
                let name = until_nul(body);
                let value = until_nul(body.get(name.len() + 1..).unwrap_or_default());
                if self.parameters.len() < PARAMETERS_MAX {
                    let name = &name[..name.len().min(TEXT_LEN_MAX)];
                    let value = &value[..value.len().min(TEXT_LEN_MAX)];
                    let pair = Object::default().with(parameter_name(name), value);
                    self.parameters.push(pair.into());
                }
            }
            b'K' => {
                response.put_some("process_id", word(body, 0));
                response.put_some("secret_key", word(body, 4));
            }
            b'T' => {
                let count = body.first_chunk().map(|it| u16::from_be_bytes(*it));
                response.put("row_description_malformed", count.is_none());
                response.put_some("field_count", count);
            }
            b'E' => fields(body, response),
            _ => {}
        }
    }

    /// What is told of it, long texts cut.
    fn object(&self) -> Object {
        let mut object = Object::default().with("tx_id", self.number + 1);
        object.put_some("request", self.request.clone());
        let mut response = self.response.clone();
        if !self.parameters.is_empty() {
            response.put("parameter_status", Value::List(self.parameters.clone()));
        }
        if !response.is_empty() {
            object.put("response", response);
        }
        object.shorten(TEXT_LEN_MAX);
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
        OK => "authentication_ok",
        CLEAR_TEXT => "authentication_cleartext_password",
        5 => "authentication_md5_password",
        9 => "authentication_gss",
        SASL => "authentication_sasl",
        SASL_CONTINUE => "authentication_sasl_continue",
        SASL_FINAL => "authentication_sasl_final",
        2 | 6 | 7 | 8 => "authentication",
        _ => return None,
    })
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    bytes.get(at..).and_then(<[u8]>::first_chunk).map(|it| u32::from_be_bytes(*it))
}

fn until_nul(bytes: &[u8]) -> &[u8] {
    let end = bytes.iter().position(|it| *it == 0).unwrap_or(bytes.len());
    &bytes[..end]
}

/// A mechanism of SASL as EVE spells it.
fn mechanism(name: &[u8]) -> String {
    match name {
        b"SCRAM-SHA-256" => "scram_SHA256".to_owned(),
        b"SCRAM-SHA-256-PLUS" => "scram_SHA256_plus".to_owned(),
        other => crate::value::text(other),
    }
}

/// A parameter as EVE spells it.
fn parameter_name(name: &[u8]) -> String {
    match name {
        b"DateStyle" => "date_style".to_owned(),
        b"IntervalStyle" => "interval_style".to_owned(),
        b"TimeZone" => "time_zone".to_owned(),
        other => crate::value::text(other),
    }
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
            _ => others.push(Object::default().with(parameter_name(name), value).into()),
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
            b'p' => "internal_position",
            b'q' => "internal_query",
            b'W' => "where",
            b's' => "schema_name",
            b't' => "table_name",
            b'c' => "column_name",
            b'd' => "data_type",
            b'n' => "constraint_name",
            _ => continue,
        };
        response.put(name, &text[..text.len().min(TEXT_LEN_MAX)]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::heap::HeapSize;

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

    /// The exchanges of a connection that has begun.
    fn exchanges(lines: &[(usize, &[u8])]) -> (Vec<Object>, Said) {
        let (mut pgsql, mut said) = (Pgsql::default(), Said::default());
        pgsql.take(0, b"\0\0\0\x11\0\x03\0\0user\0me\0\0", &mut said);
        pgsql.take(1, b"R\0\0\0\x08\0\0\0\0Z\0\0\0\x05I", &mut said);
        said.records.clear();
        for (side, bytes) in lines {
            bytes.chunks(3).for_each(|it| pgsql.take(*side, it, &mut said));
        }
        let records = std::mem::take(&mut said.records);
        (records.into_iter().map(|mut it| it.objects.remove(0).1).collect(), said)
    }

    fn part(exchange: &Object, side: &str, name: &str) -> Option<Value> {
        let Some(Value::Object(part)) = exchange.value(side) else { return None };
        part.value(name).cloned()
    }

    #[test]
    fn what_a_server_says_again_and_again_is_told_once_and_long_texts_are_cut() {
        let parameter = [b"S\0\0\xea\x64a\0".as_slice(), &[0xff; 59_997], b"\0"].concat();
        let mut said: Vec<(usize, &[u8])> = vec![(0, b"Q\0\0\0\x09COPY\0")];
        said.extend([(1, parameter.as_slice()); 4]);
        said.extend([(1, b"R\0\0\0\x08\0\0\0\x04".as_slice()); 100]);
        let (_, told) = exchanges(&said);
        let odd = told.units.iter().filter(|it| it.events.has(AppEvent::PgsqlResponse)).count();
        assert_eq!(odd, 1);
        let size = |it: &Unit| it.objects.iter().map(|it| it.1.heap_size()).sum::<usize>();
        assert!(told.units.iter().all(|it| size(it) < 64 * 1024));
    }

    #[test]
    fn what_is_copied_into_a_table_is_an_exchange_of_its_own() {
        let (told, _) = exchanges(&[
            (0, b"Q\0\0\0\x09COPY\0"),
            (1, b"G\0\0\0\x09\0\0\x01\0\0"),
            (0, b"d\0\0\0\x06a\nd\0\0\0\x07bc\nc\0\0\0\x04"),
            (1, b"C\0\0\0\x0bCOPY 2\0Z\0\0\0\x05I"),
        ]);
        let [asked, copied] = &told[..] else { panic!("{told:?}") };
        let columns = Object::default().with("columns", 1_u16).with("malformed", false);
        assert_eq!(part(asked, "response", "copy_in_response"), Some(columns.into()));
        let data = Object::default().with("msg_count", 2_u64).with("data_size", 5_u64);
        assert_eq!(part(copied, "request", "copy_data_in"), Some(data.into()));
        assert_eq!(part(copied, "request", "message"), Some("copy_done".into()));
        assert_eq!(part(copied, "response", "command_completed"), Some("COPY 2".into()));
    }

    #[test]
    fn too_many_messages_of_an_answer_are_odd_once_and_not_told_of() {
        let answer = [b"S\0\0\0\x08a\0b\0".repeat(70), b"Z\0\0\0\x05I".to_vec()].concat();
        let (told, said) = exchanges(&[(0, b"Q\0\0\0\x05\0"), (1, &answer)]);
        let Some(Value::List(list)) = part(&told[0], "response", "parameter_status") else {
            panic!("{told:?}")
        };
        assert_eq!(list.len(), 64);
        let is_odd = |it: &&Unit| it.events.has(AppEvent::PgsqlManyResponses);
        assert_eq!(said.units.iter().filter(is_odd).count(), 1);
    }

    #[test]
    fn a_request_to_cancel_is_told_of_at_once() {
        let (mut pgsql, mut said) = (Pgsql::default(), Said::default());
        pgsql.take(0, b"\0\0\0\x10\x04\xd2\x16.\0\0\0\x07\0\0\0\x08", &mut said);
        let request = &said.records[0].objects[0].1;
        assert_eq!(part(request, "request", "process_id"), Some(7_u32.into()));
        assert_eq!(part(request, "request", "secret_key"), Some(8_u32.into()));
    }

    #[test]
    fn what_is_no_message_is_odd() {
        let (mut pgsql, mut said) = (Pgsql::default(), Said::default());
        pgsql.take(1, b"R\0\0\0\0", &mut said);
        assert!(said.units[0].events.has(AppEvent::PgsqlLength));
    }

    #[test]
    fn a_client_that_begins_as_none_is_odd_and_what_it_asks_is_told() {
        let (mut pgsql, mut said) = (Pgsql::default(), Said::default());
        assert!(pgsql.lose(0, 1));
        pgsql.take(0, b"\0\0\0\x10\x7f\x03\0\0user\0me\0", &mut said);
        assert!(said.units[0].events.has(AppEvent::PgsqlRequest));
        assert_eq!(said.later, said.units);
        pgsql.take(0, b"Q\0\0\0\x0dselect 1\0", &mut said);
        assert!(said.units[1].each(Buffer::PgsqlQuery, &mut |it| it == b"select 1"));
    }

    #[test]
    fn parameters_have_the_names_that_eve_gives_them() {
        let parameters = b"S\0\0\0\x0fTimeZone\0v\0S\0\0\0\x10MixedCase\0v\0Z\0\0\0\x05I";
        let (told, _) = exchanges(&[(0, b"Q\0\0\0\x05\0"), (1, parameters)]);
        let named = |name| Value::from(Object::default().with(name, "v"));
        let list = Value::List(vec![named("time_zone"), named("MixedCase")]);
        assert_eq!(part(&told[0], "response", "parameter_status"), Some(list));
    }

    #[test]
    fn errors_tell_where_they_are() {
        let error = b"E\0\0\0\x19qselect\0ttable\0nkey\0\0Z\0\0\0\x05I";
        let (told, _) = exchanges(&[(0, b"Q\0\0\0\x05\0"), (1, error)]);
        let names = ["internal_query", "table_name", "constraint_name"];
        let said = names.map(|it| part(&told[0], "response", it));
        assert_eq!(said, ["select", "table", "key"].map(|it| Some(it.into())));
    }
}
