//! A request and its response, and the buffers that rules know of them.

use super::http2::{Frames, Header, tell};
use super::inflate::Inflate;
use super::names::Names;
use super::odd::is_space;
use super::{joined, told, uri};
use crate::buffers::event::{AppEvent, AppEvents};
use crate::digest::{Digester, Digests, FileDigests};
use crate::heap::heap_size;
use crate::record::HttpRecord;
use crate::rule::{Buffer, Hook, Rule, RuleIndex};
use crate::ruleset::Successors;
use crate::value::Object;

/// Bytes of a body that are kept, at most (Suricata's limit): no rule sees the rest.
const BODY_LEN_MAX: usize = 100 * 1024;
/// A body is looked at again when it has grown by so much, and when no more of it comes.
const BODY_STEP: usize = 16 * 1024;
/// Headers of different names of a message, at most (Suricata's limit); the rest is not looked at.
const NAMES_MAX: usize = 1024;
/// Headers of a message of HTTP/2, at most; the rest is not looked at.
const HEADERS_MAX: usize = 256;
/// Bytes of the headers of a message of HTTP/2, at most, in all its blocks.
const FIELDS_LEN_MAX: usize = 64 * 1024;
/// Rules that wait for more of a transaction, at most.
const WAITING_MAX: usize = 1024;

/// Some states of a message by their places among those of HTTP/1. No line is looked at in part.
const IN_HEADERS: usize = 2;
const IN_BODY: usize = 3;
const COMPLETE: usize = 5;

/// A request and its response.
#[derive(Debug, Default)]
pub(crate) struct Transaction {
    /// Its record was handed over.
    pub(crate) is_told: bool,
    pub(crate) request: Option<Half>,
    pub(crate) response: Option<Half>,
    /// Rules whose fast pattern is there and that do not match yet, by side.
    pub(crate) waiting: [Vec<RuleIndex>; 2],
    /// Rules that matched, by the side that was looked at.
    pub(crate) matched: [Vec<RuleIndex>; 2],
    /// Rules about both sides whose part about the request matched.
    pub(crate) asked: Vec<RuleIndex>,
    /// The states that each side has come through with what is looked at: the first and the last
    /// of them, as rules count them.
    pub(crate) states: [Option<(usize, usize)>; 2],
    /// An interim response came.
    pub(super) was_continued: bool,
    /// What was odd about it.
    pub(crate) events: AppEvents,
    /// How many of those were looked at, by side.
    pub(super) events_looked_at: [usize; 2],
    /// Set of HTTP/2: the number of its stream, and what came in frames, by side.
    pub(super) stream: Option<Box<(u32, [Frames; 2])>>,
}
heap_size!(Transaction { request, response, stream });

/// How much of a message's head came.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Head {
    #[default]
    Whole,
    /// Its line and so many headers; more may come.
    Begun,
    /// The same, and no more comes.
    Cut,
}

/// One message.
#[derive(Debug, Default)]
pub(crate) struct Half {
    pub(super) head: Head,
    pub(super) first_line: Vec<u8>,
    pub(super) raw_headers: Vec<u8>,
    pub(super) headers: Vec<(Vec<u8>, Vec<u8>)>,
    /// Of HTTP/2, headers as they came: several of a name apart.
    pub(super) fields: Vec<(Vec<u8>, Vec<u8>)>,
    pub(super) protocol: Vec<u8>,
    pub(crate) method: Vec<u8>,
    pub(super) target: Vec<u8>,
    normalized: Vec<u8>,
    pub(crate) status: Vec<u8>,
    reason: Vec<u8>,
    pub(super) body: Vec<u8>,
    /// Bytes of the whole body so far, those that are not kept too.
    pub(super) body_size: u64,
    /// Bytes of it as they were sent: compressed, and with the lines around chunks.
    pub(super) sent: u64,
    /// What its bytes are made by, where they are sent compressed.
    inflate: Option<Box<Inflate>>,
    /// Bytes that the body had when it was let go.
    let_go: usize,
    /// Bytes of the body at the last look.
    looked_at: usize,
    headers_looked_at: bool,
    /// The same with the headers that stood behind the body, and without the body.
    trailing: Option<Box<Half>>,
    pub(crate) is_complete: bool,
    /// Its side ended before its body did.
    pub(super) is_cut: bool,
    /// More of its body may come although it is complete.
    pub(super) goes_on: bool,
    /// Its files were told of.
    pub(super) are_files_told: bool,
    /// Has seen the whole body, where somebody wants digests of files.
    pub(super) digester: Option<Box<Digester>>,
}
heap_size!(Half {
    first_line,
    raw_headers,
    headers,
    fields,
    protocol,
    method,
    target,
    normalized,
    status,
    reason,
    body,
    inflate,
    trailing,
    digester
});

/// Which buffers of a message are new.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Fresh {
    pub(crate) headers: bool,
    /// Where the bytes of the body begin that were not looked at before.
    pub(crate) body: Option<usize>,
}

impl Half {
    /// A request's head.
    pub(super) fn request(head: &[u8]) -> Self {
        let mut half = Self::of(head);
        let line = half.first_line.as_slice();
        let start = line.iter().take_while(|it| is_space(**it)).count();
        let length = line[start..].iter().take_while(|it| !is_space(**it)).count();
        let method = line[start..start + length].to_vec();
        let rest = line[start + length..].trim_ascii();
        // The protocol is the last word, if it is one.
        let last = rest.iter().rposition(|it| is_space(*it)).filter(|at| {
            rest[at + 1..].get(..5).is_some_and(|it| it.eq_ignore_ascii_case(b"HTTP/"))
        });
        let (target, protocol) = match last {
            Some(at) => (rest[..at].trim_ascii().to_vec(), rest[at + 1..].to_vec()),
            None => (rest.to_vec(), Vec::new()),
        };
        // What a tunnel is asked for leads nowhere else.
        half.normalized = if method == b"CONNECT" { Vec::new() } else { uri::normalized(&target) };
        half.method = method;
        half.target = target;
        half.protocol = protocol;
        half
    }

    /// A message of HTTP/2: names that begin with a colon stand for its first line. Whether there
    /// was room for all of them.
    pub(super) fn of_fields(fields: Vec<Header>) -> (Self, bool) {
        let mut half = Self { protocol: b"HTTP/2".to_vec(), ..Self::default() };
        let is_whole = half.put_fields(fields);
        let encoding = half.header(b"content-encoding");
        half.inflate = encoding.and_then(Inflate::of).map(Box::new);
        (half, is_whole)
    }

    /// Adds headers, of HTTP/2, that came in one block; whether there was room for all of them.
    fn put_fields(&mut self, fields: Vec<Header>) -> bool {
        let is_of_line = fields.iter().any(|it| it.name.starts_with(b":"));
        let mut is_whole = true;
        for Header { name, value } in fields {
            match name.as_slice() {
                b":method" => self.method.clone_from(&value),
                // Both as it came: rules about HTTP/2 are written so.
                b":path" => {
                    self.normalized.clone_from(&value);
                    self.target.clone_from(&value);
                }
                b":status" => self.status.clone_from(&value),
                _ => {}
            }
            let len = self.raw_headers.len() + name.len() + value.len() + 4;
            if self.fields.len() == HEADERS_MAX || len > FIELDS_LEN_MAX {
                is_whole = false;
                continue;
            }
            self.raw_headers.extend([name.as_slice(), b": ", &value, b"\r\n"].concat());
            self.fields.push((name.clone(), value.clone()));
            match self.headers.iter().position(|it| it.0 == name) {
                Some(known) => {
                    self.headers[known].1.extend([b", ".as_slice(), &value].concat());
                }
                None => self.headers.push((name, value)),
            }
        }
        // Blocks behind a body say nothing of it: its path is not copied for each of them.
        if is_of_line || self.first_line.is_empty() {
            self.first_line = match self.status.as_slice() {
                [] => [self.method.as_slice(), b" ", &self.target, b" HTTP/2\r\n"].concat(),
                status => [b"HTTP/2 ", status, b"\r\n"].concat(),
            };
        }
        is_whole
    }

    /// A response's head; [`begins_response`] has looked at its line.
    pub(super) fn response(head: &[u8]) -> Self {
        let mut half = Self::of(head);
        let line = half.first_line.clone();
        let (protocol, rest) = split(&line, b' ').unwrap_or((&line, b""));
        let rest = rest.trim_ascii_start();
        let (status, reason) = split(rest, b' ').unwrap_or((rest.trim_ascii_end(), b""));
        half.protocol = protocol.trim_ascii_end().to_vec();
        half.status = status.to_vec();
        half.reason = reason.trim_ascii_start().to_vec();
        // As Suricata has it: with its end.
        half.first_line =
            head.split_inclusive(|it| *it == b'\n').next().unwrap_or_default().to_vec();
        half
    }

    fn of(head: &[u8]) -> Self {
        let end = head.iter().position(|it| *it == b'\n').map_or(head.len(), |it| it + 1);
        let (line, raw) = head.split_at(end);
        let mut half = Self { raw_headers: raw.to_vec(), ..Self::default() };
        let mut names = Names::default();
        raw.split(|it| *it == b'\n').for_each(|line| half.put_header(line, Some(&mut names)));
        half.first_line = without_end(line).to_vec();
        let encoding = half.header(b"content-encoding");
        half.inflate = encoding.and_then(Inflate::of).map(Box::new);
        half
    }

    /// Adds a line of the headers: one, or more of the last.
    fn put_header(&mut self, line: &[u8], names: Option<&mut Names>) {
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        if line.is_empty() {
            return;
        }
        if let (b' ' | b'\t', Some((_, value))) = (line[0], self.headers.last_mut()) {
            // A folded line.
            value.extend_from_slice(line.trim_ascii_end());
            return;
        }
        let (name, value) = split(line, b':').unwrap_or((b"", line));
        let (name, value) = (name.trim_ascii_end(), value.trim_ascii());
        // Who keeps no names looks through all.
        let most = if names.is_some() { NAMES_MAX } else { HEADERS_MAX };
        let place = match names {
            Some(names) => names.place(name, &self.headers),
            None => self.headers.iter().position(|it| it.0.eq_ignore_ascii_case(name)),
        };
        let is_full = self.headers.len() >= most;
        match place.and_then(|it| self.headers.get_mut(it)) {
            // One header, as if it had been sent so (RFC 9110 s5.2).
            Some(_) if name.eq_ignore_ascii_case(b"content-length") => {}
            Some((_, joined)) => {
                joined.extend_from_slice(b", ");
                joined.extend_from_slice(value);
            }
            None if is_full => {}
            None => self.headers.push((name.to_vec(), value.to_vec())),
        }
    }

    /// Adds a line that stands behind a body that came in chunks (RFC 9112 s7.1.2).
    pub(super) fn put_trailer(&mut self, line: &[u8]) {
        let head = || Self {
            first_line: self.first_line.clone(),
            headers: self.headers.clone(),
            head: self.head,
            ..Self::default()
        };
        let trailing = self.trailing.get_or_insert_with(|| Box::new(head()));
        // What came counts, were it for the bound alone.
        if trailing.sent + line.len() as u64 <= FIELDS_LEN_MAX as u64 {
            trailing.sent += line.len() as u64;
            trailing.put_header(line, None);
            self.headers_looked_at = false;
        }
    }

    /// Of a request, what its target names, without what is asked of it.
    pub(super) fn path(&self) -> &[u8] {
        let target = self.normalized.as_slice();
        target.split(|it| matches!(it, b'?' | b'#')).next().unwrap_or_default()
    }

    /// The host that its target names, with what stands around it there (RFC 3986 s3.2).
    pub(super) fn authority(&self) -> Option<&[u8]> {
        match self.method == b"CONNECT" {
            true => Some(&self.target),
            false => uri::authority(&self.target),
        }
    }

    /// The value of a header by its name in lower case; several were joined by commas.
    pub(crate) fn header(&self, name: &[u8]) -> Option<&[u8]> {
        let found = self.headers.iter().find(|it| it.0.eq_ignore_ascii_case(name));
        found.map(|it| it.1.as_slice())
    }

    /// Adds to the body, of which such digests are wanted; what is odd about that.
    pub(super) fn add_body(&mut self, bytes: &[u8], wanted: FileDigests) -> Option<AppEvent> {
        self.sent += bytes.len() as u64;
        if self.body_size == 0 && self.digester.is_none() {
            self.digester = Digester::of(wanted);
        }
        let Self { inflate, body, digester, .. } = self;
        if let Some(inflate) = inflate {
            let is_bomb = inflate.take(bytes, body, BODY_LEN_MAX, digester.as_deref_mut());
            self.body_size = inflate.made() as u64;
            if !inflate.is_whole() {
                // Nobody knows the rest.
                *digester = None;
            }
            return is_bomb.then_some(AppEvent::HttpBomb);
        }
        digester.iter_mut().for_each(|it| it.update(bytes));
        self.body_size += bytes.len() as u64;
        let room = BODY_LEN_MAX.saturating_sub(self.body.len());
        self.body.extend_from_slice(&bytes[..bytes.len().min(room)]);
        None
    }

    /// No more of it comes.
    pub(super) fn complete(&mut self) {
        self.is_complete = true;
        let Self { inflate, body, digester, .. } = self;
        if let Some(inflate) = inflate {
            inflate.finish(body, BODY_LEN_MAX, digester.as_deref_mut());
            self.body_size = inflate.made() as u64;
        }
    }

    /// Digests of the whole body, if all of it was seen.
    pub(super) fn digests(&self) -> Digests {
        let digester = self.digester.as_ref().filter(|_| self.is_complete);
        digester.map(|it| it.digests()).unwrap_or_default()
    }

    fn fresh(&mut self, is_inline: bool) -> Fresh {
        let headers = !std::mem::replace(&mut self.headers_looked_at, true);
        let grown = self.body.len() - self.looked_at;
        let is_over = self.is_complete || self.is_cut;
        let is_due =
            grown > 0 && (is_inline || is_over || grown >= BODY_STEP || self.looked_at == 0);
        let body = is_due.then(|| std::mem::replace(&mut self.looked_at, self.body.len()));
        Fresh { headers, body }
    }
}

impl Transaction {
    /// One of HTTP/2, of a stream or of the connection (0).
    pub(super) fn of_stream(stream: u32) -> Self {
        let stream = Some(Box::new((stream, Default::default())));
        Self { stream, ..Self::default() }
    }

    /// What came in a side's frames.
    pub(super) fn frames_mut(&mut self, side: usize) -> &mut Frames {
        &mut self.stream.get_or_insert_default().1[side]
    }

    /// The same, to look at; `None`: it is of HTTP/1.
    pub(crate) fn frames(&self, side: usize) -> Option<&Frames> {
        self.stream.as_ref().map(|it| &it.1[side])
    }

    /// Whether it is of HTTP/2.
    pub(crate) fn is_of_http2(&self) -> bool {
        self.stream.is_some()
    }

    /// Whether it is of a frame that belongs to the connection as a whole.
    pub(crate) fn is_of_connection(&self) -> bool {
        self.stream.as_ref().is_some_and(|it| it.0 == 0)
    }

    /// The request, as the first stream of a connection that goes on in HTTP/2 has it.
    pub(super) fn request_fields(&self) -> Vec<Header> {
        let Some(half) = &self.request else { return Vec::new() };
        let header =
            |name: &[u8], value: &[u8]| Header { name: name.to_vec(), value: value.to_vec() };
        let host = half.header(b"host").unwrap_or_default();
        let pseudo =
            [(&b":method"[..], &half.method[..]), (b":path", &half.target), (b":authority", host)];
        let pseudo = pseudo.into_iter().map(|(name, value)| header(name, value));
        let is_other = |it: &&(Vec<u8>, Vec<u8>)| {
            !it.0.eq_ignore_ascii_case(b"host") && !it.0.eq_ignore_ascii_case(b"http2-settings")
        };
        let others = half.headers.iter().filter(is_other).map(|it| header(&it.0, &it.1));
        pseudo.chain(others).collect()
    }

    /// Takes in the headers of a block: a message's, or what follows its body. Whether there was
    /// room for all of them.
    pub(super) fn put_fields(&mut self, side: usize, fields: Vec<Header>) -> bool {
        let half = if side == 0 { &mut self.request } else { &mut self.response };
        let is_first = fields.iter().any(|it| it.name.starts_with(b":"));
        match half {
            Some(half) if !is_first => {
                half.headers_looked_at = false;
                half.put_fields(fields)
            }
            _ => {
                let (fresh, is_whole) = Half::of_fields(fields);
                *half = Some(fresh);
                is_whole
            }
        }
    }

    /// Other rules run from here on.
    pub(super) fn change_rules(&mut self, successors: &Successors) {
        for list in self.matched.iter_mut().chain(&mut self.waiting).chain([&mut self.asked]) {
            successors.rename(list, |it| it);
        }
    }

    pub(super) fn half_mut(&mut self, side: usize) -> Option<&mut Half> {
        if side == 0 { self.request.as_mut() } else { self.response.as_mut() }
    }

    pub(super) fn half(&self, side: usize) -> Option<&Half> {
        if side == 0 { self.request.as_ref() } else { self.response.as_ref() }
    }

    /// The message of a side, which is one without a head where nothing came before.
    pub(super) fn half_or_new(&mut self, side: usize) -> &mut Half {
        let half = if side == 0 { &mut self.request } else { &mut self.response };
        half.get_or_insert_default()
    }

    /// Whether a rule that does so once matched what that side says.
    pub(crate) fn is_matched(&self, index: RuleIndex, rule: &Rule, side: usize) -> bool {
        !matches!(rule.hook, Some(Hook::State(_))) && self.matched[side].contains(&index)
    }

    /// A rule matched what that side says.
    pub(crate) fn note_match(&mut self, side: usize, index: RuleIndex) {
        if !self.matched[side].contains(&index) {
            self.matched[side].push(index);
        }
    }

    /// What was odd about it that a side has not looked at.
    pub(crate) fn fresh_events(&mut self, side: usize) -> &[AppEvent] {
        let all = self.events.as_slice();
        let looked_at = std::mem::replace(&mut self.events_looked_at[side], all.len());
        &all[looked_at.min(all.len())..]
    }

    /// What is new of a side since this was asked last. Inline no byte waits for others: it would
    /// be gone.
    pub(crate) fn fresh(&mut self, side: usize, is_inline: bool) -> Fresh {
        let frames = self.stream.as_mut().map(|it| &mut it.1[side]);
        let of_frames = frames.is_some_and(|it| std::mem::take(&mut it.is_fresh));
        let fresh = self.half_mut(side).map(|it| it.fresh(is_inline)).unwrap_or_default();
        Fresh { headers: fresh.headers || of_frames, ..fresh }
    }

    /// Notes how far a side has come since it was looked at last.
    pub(crate) fn come_further(&mut self, side: usize) {
        let now = match self.half(side) {
            Some(half) if half.is_complete => COMPLETE,
            Some(Half { head: Head::Begun, .. }) => IN_HEADERS,
            None if !self.is_of_http2() => return,
            _ => IN_BODY,
        };
        let from = match self.states[side] {
            None => 0,
            Some((_, COMPLETE)) => COMPLETE + 1,
            Some((_, last)) => last,
        };
        self.states[side] = Some((from, now));
    }

    /// Whether more of a side's body comes, and so little is there that rules wait that want
    /// something not to be in it (Suricata's `minimal-inspect-size`).
    pub(crate) fn awaits_body(&self, side: usize) -> bool {
        const ENOUGH: u64 = 32 << 10;
        self.half(side).is_some_and(|it| !it.is_complete && !it.is_cut && it.body_size < ENOUGH)
    }

    /// Whether a side has come behind where a buffer would stand.
    pub(crate) fn is_behind(&self, side: usize, buffer: Buffer) -> bool {
        let is_last = is_body(buffer) || buffer == Buffer::FileName;
        let has_come = |half: &Half| half.head != Head::Begun || is_of_line(buffer);
        self.half(side).is_some_and(|it| it.is_complete || (!is_last && has_come(it)))
    }

    /// Whether a side ended within its message.
    pub(crate) fn is_cut(&self, side: usize) -> bool {
        self.half(side).is_some_and(|it| it.is_cut)
    }

    /// Whether a side is whole.
    pub(crate) fn is_complete(&self, side: usize) -> bool {
        self.half(side).is_some_and(|it| it.is_complete)
    }

    /// Lets the body of a side go that is whole and was looked at.
    pub(crate) fn let_go(&mut self, side: usize) {
        if let Some(half) = self.half_mut(side).filter(|it| it.is_complete && !it.goes_on) {
            half.let_go = half.let_go.max(half.body.len());
            (half.body, half.looked_at, half.inflate) = Default::default();
        }
    }

    /// Has a rule wait for more of a side; whether there is room for it.
    #[must_use]
    pub(crate) fn wait(&mut self, side: usize, rule: RuleIndex) -> bool {
        let waiting = &mut self.waiting[side];
        let is_known = waiting.contains(&rule);
        let has_room = is_known || waiting.len() < WAITING_MAX;
        if !is_known && has_room {
            waiting.push(rule);
        }
        has_room
    }

    /// What a rule about both sides asks of the request is so.
    pub(crate) fn ask(&mut self, rule: RuleIndex) {
        if self.asked.len() < WAITING_MAX && !self.asked.contains(&rule) {
            self.asked.push(rule);
        }
    }

    /// What is told of it, once, if there is something to tell.
    pub(crate) fn record(&mut self) -> Option<HttpRecord> {
        let is_told = std::mem::replace(&mut self.is_told, true);
        let object = if is_told { Object::default() } else { self.object() };
        let is_of_http2 = self.is_of_http2();
        (!object.is_empty()).then(|| HttpRecord { object, is_of_http2, ..HttpRecord::default() })
    }

    /// What is known of it.
    pub(crate) fn object(&self) -> Object {
        if let Some(stream) = &self.stream {
            return tell::object(stream, [self.request.as_ref(), self.response.as_ref()]);
        }
        let mut object = told::object(self);
        let length = self.response.as_ref().map_or(0, |it| it.sent);
        object.put("length", length);
        object
    }

    /// Whether that side's headers have come.
    pub(super) fn has_headers(&self, side: usize) -> bool {
        self.half(side).is_some_and(|it| it.head.tells(Buffer::HttpHeader))
    }

    /// The body of a side, so far.
    pub(crate) fn body(&self, side: usize) -> &[u8] {
        self.half(side).map(|it| it.body.as_slice()).unwrap_or_default()
    }

    /// Calls `look` with the buffer as that side has it, if it has; what `look` says.
    pub(crate) fn each(
        &self,
        side: usize,
        buffer: Buffer,
        look: &mut dyn FnMut(&[u8]) -> bool,
    ) -> bool {
        let Some(half) = self.half(side) else { return false };
        // Whom a request is for, its head has said.
        let is_of_head = is_of_line(buffer) || is_body(buffer);
        let is_of_head = is_of_head || matches!(buffer, Buffer::FileName | Buffer::HttpHost);
        let trailing = half.trailing.as_ref().filter(|_| !is_of_head);
        trailing.is_some_and(|it| self.each_of(it, side, buffer, look))
            || self.each_of(half, side, buffer, look)
    }

    fn each_of(
        &self,
        half: &Half,
        side: usize,
        buffer: Buffer,
        look: &mut dyn FnMut(&[u8]) -> bool,
    ) -> bool {
        if buffer == Buffer::Http2HeaderName {
            let is_of_http2 = self.stream.is_some();
            return is_of_http2 && half.fields.iter().any(|it| look(&it.0));
        }
        if half.first_line.is_empty() && !is_body(buffer) || !half.head.tells(buffer) {
            return false;
        }
        let is_request = side == 0;
        let of_request = |bytes: &[u8], look: &mut dyn FnMut(&[u8]) -> bool| {
            is_request && !bytes.is_empty() && look(bytes)
        };
        if matches!(buffer, Buffer::HttpRequestHeaderLine | Buffer::HttpResponseHeaderLine) {
            let is_of_request = buffer == Buffer::HttpRequestHeaderLine;
            return is_of_request == is_request && joined::each_header(half, look);
        }
        let mut header = |name: &[u8]| half.header(name).is_some_and(&mut *look);
        match buffer {
            Buffer::HttpUri => of_request(&half.normalized, look),
            Buffer::HttpUriRaw => of_request(&half.target, look),
            Buffer::HttpMethod => of_request(&half.method, look),
            Buffer::HttpRequestLine => of_request(&half.first_line, look),
            Buffer::HttpResponseLine => !is_request && look(&half.first_line),
            Buffer::HttpProtocol => !half.protocol.is_empty() && look(&half.protocol),
            Buffer::HttpStatusCode => !is_request && look(&half.status),
            Buffer::HttpStatusMessage | Buffer::HttpStart if self.is_of_http2() => false,
            Buffer::HttpStatusMessage => !is_request && look(&half.reason),
            Buffer::HttpRequestBody => of_request(&half.body, look),
            Buffer::HttpResponseBody => !is_request && !half.body.is_empty() && look(&half.body),
            Buffer::FileName => self.files(side).iter().any(|it| look(&it.name)),
            Buffer::FileData => self.each_file(side, look),
            Buffer::HttpHeader | Buffer::HttpHeaderNames if half.headers.is_empty() => false,
            Buffer::HttpHeader => look(&joined::headers(half, is_request)),
            Buffer::HttpHeaderRaw => look(&half.raw_headers),
            Buffer::HttpHeaderNames => look(&joined::header_names(half)),
            Buffer::HttpStart => look(&joined::start(half)),
            Buffer::HttpCookie if is_request => header(b"cookie"),
            Buffer::HttpCookie => header(b"set-cookie"),
            Buffer::HttpUserAgent if is_request => header(b"user-agent"),
            Buffer::HttpHost | Buffer::HttpHostRaw if is_request => {
                joined::host(half, buffer == Buffer::HttpHostRaw).is_some_and(|it| look(&it))
            }
            Buffer::HttpReferer if is_request => header(b"referer"),
            Buffer::HttpAccept if is_request => header(b"accept"),
            Buffer::HttpAcceptEncoding if is_request => header(b"accept-encoding"),
            Buffer::HttpAcceptLanguage if is_request => header(b"accept-language"),
            Buffer::HttpConnection => header(b"connection"),
            Buffer::HttpContentType => header(b"content-type"),
            Buffer::HttpContentLength => header(b"content-length"),
            Buffer::HttpServer if !is_request => header(b"server"),
            Buffer::HttpLocation if !is_request => header(b"location"),
            _ => false,
        }
    }
}

impl Head {
    /// Whether rules see a buffer of a message of which so much came.
    fn tells(self, buffer: Buffer) -> bool {
        use Buffer as B;
        match self {
            Self::Whole => true,
            // Whom a request is for is settled when its head ends.
            Self::Cut => buffer != B::HttpHost,
            Self::Begun => !matches!(
                buffer,
                B::HttpHeader
                    | B::HttpHeaderRaw
                    | B::HttpHeaderNames
                    | B::HttpStart
                    | B::HttpCookie
                    | B::HttpHost
            ),
        }
    }
}

/// Whether a buffer is of a message's first line.
pub(crate) fn is_of_line(buffer: Buffer) -> bool {
    use Buffer as B;
    matches!(
        buffer,
        B::HttpUri
            | B::HttpUriRaw
            | B::HttpMethod
            | B::HttpProtocol
            | B::HttpRequestLine
            | B::HttpResponseLine
            | B::HttpStatusCode
            | B::HttpStatusMessage
    )
}

/// Whether a line begins a response: `HTTP`, whatever blanks stand before it.
pub(super) fn begins_response(line: &[u8]) -> bool {
    let start = line.iter().take_while(|it| is_space(**it) || **it == 0).count();
    line[start..].get(..4).is_some_and(|it| it.eq_ignore_ascii_case(b"HTTP"))
}

/// Whether a buffer is a message's body.
pub(crate) fn is_body(buffer: Buffer) -> bool {
    matches!(buffer, Buffer::HttpRequestBody | Buffer::HttpResponseBody | Buffer::FileData)
}

/// A line without its end.
fn without_end(line: &[u8]) -> &[u8] {
    let line = line.strip_suffix(b"\n").unwrap_or(line);
    line.strip_suffix(b"\r").unwrap_or(line)
}

/// What stands before and behind the first `separator`.
fn split(bytes: &[u8], separator: u8) -> Option<(&[u8], &[u8])> {
    let at = bytes.iter().position(|it| *it == separator)?;
    Some((&bytes[..at], &bytes[at + 1..]))
}
