//! A request and its response, and the buffers that rules know of them.

use super::half::{Fresh, Half, Head};
use super::http2::{Frames, Header, tell};
use super::odd::is_space;
use super::{joined, told};
use crate::buffers::event::{AppEvent, AppEvents};
use crate::detector::Limits;
use crate::heap::heap_size;
use crate::record::HttpRecord;
use crate::rule::{Buffer, Hook, HttpPlace, Rule, RuleIndex};
use crate::ruleset::Successors;
use crate::value::Object;

/// Oddities of a transaction that are told again, at most.
const REPEATED_MAX: u8 = 254;
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
    /// What came up again, by the side that it is about.
    pub(super) again: [Vec<AppEvent>; 2],
    pub(super) repeated: u8,
    /// Set of HTTP/2: the number of its stream, and what came in frames, by side.
    pub(super) stream: Option<Box<(u32, [Frames; 2])>>,
}
heap_size!(Transaction { request, response, stream });

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

    /// Notes what was odd before and is told each time; whether it is that, and to be told.
    pub(super) fn raise_again(&mut self, side: usize, event: AppEvent) -> Option<bool> {
        if !event.is_told_each_time() || !self.events.has(event) {
            return None;
        }
        let is_told = self.repeated < REPEATED_MAX;
        if is_told {
            self.repeated += 1;
            self.again[side].push(event);
        }
        Some(is_told)
    }

    /// What was odd about what a side says and was odd before.
    pub(crate) fn take_again(&mut self, side: usize) -> Vec<AppEvent> {
        std::mem::take(&mut self.again[side])
    }

    /// What is new of a side since this was asked last. Inline no byte waits for others: it would
    /// be gone.
    pub(crate) fn fresh(&mut self, side: usize, limits: &Limits) -> Fresh {
        let when = limits.looks_at_bodies(self.is_of_http2());
        let frames = self.stream.as_mut().map(|it| &mut it.1[side]);
        let of_frames = frames.is_some_and(|it| std::mem::take(&mut it.is_fresh));
        let fresh = self.half_mut(side).map(|it| it.fresh(side, when)).unwrap_or_default();
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

    /// Whether more of a side's head is to come.
    pub(crate) fn is_begun(&self, side: usize) -> bool {
        self.half(side).is_some_and(|it| it.head == Head::Begun)
    }

    /// Whether rules are to look at a side's body later, when more of it has come than so many
    /// bytes of a request's, and of a response's.
    pub(crate) fn is_body_early(&self, side: usize, from: [u64; 2]) -> bool {
        self.half(side).is_some_and(|it| !it.is_body_due(side, from))
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

    /// Whether its response is whole, and its request; of HTTP/1, if one came.
    pub(crate) fn is_over(&self) -> bool {
        self.half(1).is_some_and(|it| it.is_complete && !it.is_followed)
            && self.half(0).map_or(!self.is_of_http2(), |it| it.is_complete)
    }

    /// Whether a side was looked at when its message was whole.
    pub(crate) fn is_looked_through(&self, side: usize) -> bool {
        self.states[side].is_some_and(|it| it.1 == COMPLETE)
    }

    /// Lets the body of a side go that is whole and was looked at.
    pub(crate) fn let_go(&mut self, side: usize) {
        if let Some(half) = self.half_mut(side).filter(|it| it.is_complete && !it.goes_on) {
            half.let_go = half.let_go.max(half.body.len());
            (half.body, half.looked_at, half.inflate) = Default::default();
            half.form.iter_mut().for_each(|it| it.let_go());
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

    /// What is told of it, once, if there is something to tell, with all headers of those sides.
    pub(crate) fn record(&mut self, headers: [bool; 2]) -> Option<HttpRecord> {
        let is_told = std::mem::replace(&mut self.is_told, true);
        let is_telling = self.stream.as_ref().is_none_or(|it| tell::is_telling(&it.1));
        let mut object = Object::default();
        if !is_told && is_telling {
            object = self.object();
        }
        if !object.is_empty() {
            told::put_headers(&mut object, self, headers);
        }
        let is_of_http2 = self.is_of_http2();
        (!object.is_empty()).then(|| HttpRecord { object, is_of_http2, ..HttpRecord::default() })
    }

    /// Puts its bodies, so far as they are kept.
    pub(crate) fn put_bodies(&self, object: &mut Object) {
        told::put_bodies(self, object);
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

    /// How far each side has come, by the place among the states of HTTP/1: what it is in, not what
    /// it has behind it.
    pub(crate) fn places(&self) -> [usize; 2] {
        let is_unasked = !self.is_of_http2() && self.request.is_none() && self.response.is_some();
        let place = |side| match self.half(side) {
            // Nothing is awaited of a request that nobody has seen.
            None if side == 0 && is_unasked => HttpPlace::Complete,
            None => HttpPlace::Started,
            Some(half) if half.is_complete => HttpPlace::Complete,
            Some(half) if half.head == Head::Whole => HttpPlace::Body,
            Some(_) => HttpPlace::Headers,
        };
        [0, 1].map(|side| place(side) as usize)
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
        trailing.is_some_and(|it| self.each_of(&it.half, side, buffer, look))
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
