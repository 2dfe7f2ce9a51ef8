//! A message of HTTP: its first line, its headers, its body.

use super::form::Form;
use super::http2::{Header, Note};
use super::inflate::Inflate;
use super::names::{HEADERS_MAX, Names};
use super::odd::{folds, is_space, trimmed, trimmed_start};
use super::uri;
use crate::buffers::event::AppEvent;
use crate::digest::{Digester, Digests, FileDigests};
use crate::heap::heap_size;
use crate::rule::Buffer;

/// Bytes of a body that are kept, unless somebody says otherwise (as Suricata's settings do).
pub(crate) const BODY_LEN: usize = 100 * 1024;
/// A body is looked at again when it has grown by so much, and when no more of it comes.
const BODY_STEP: usize = 16 * 1024;
/// Bytes of the headers of a message of HTTP/2, at most, in all its blocks, and of those behind a
/// body.
const FIELDS_LEN_MAX: usize = 64 * 1024;
/// Headers before a response's own that are kept, and their bytes.
const INTERIM_MAX: usize = 64;
const INTERIM_LEN_MAX: usize = 4 * 1024;

/// When rules look at what came of a body, beside whenever much more of it has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Look {
    /// With each piece.
    Always,
    /// With the first piece, and when no more of it comes.
    AtFirst,
    /// With each piece once so much of a request's or of a response's has come, or no more of it
    /// comes or is kept.
    From([u64; 2]),
}

/// What is wanted of the messages of a side.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BodyWanted {
    pub(crate) digests: FileDigests,
    /// Bytes of each body that are kept.
    pub(crate) kept: usize,
    /// Files are no longer than that.
    pub(crate) cuts_files: bool,
    /// Separators in a request's path stay as they are.
    pub(crate) keeps_separators: bool,
}

impl Default for BodyWanted {
    fn default() -> Self {
        Self {
            digests: FileDigests::default(),
            kept: BODY_LEN,
            cuts_files: false,
            keeps_separators: false,
        }
    }
}

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

/// How much of a file came in frames of data, be they empty.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Data {
    #[default]
    Nothing,
    Part,
    /// One of them said that it is the last. Where headers say so, the file has no end.
    Whole,
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
    /// The same, what is told of some otherwise, by their places.
    pub(super) notes: Vec<(usize, Note)>,
    /// The same, how much of a file came in frames of data.
    pub(super) data: Data,
    pub(super) protocol: Vec<u8>,
    pub(crate) method: Vec<u8>,
    pub(super) target: Vec<u8>,
    pub(super) normalized: Vec<u8>,
    pub(crate) status: Vec<u8>,
    pub(super) reason: Vec<u8>,
    pub(super) body: Vec<u8>,
    /// Bytes of it that are kept, at most: no rule sees the rest.
    body_len_max: usize,
    /// A file ends there, too.
    is_cut_there: bool,
    /// Bytes of the whole body so far, those that are not kept too.
    pub(super) body_size: u64,
    /// Bytes of it as they were sent: compressed, and with the lines around chunks.
    pub(super) sent: u64,
    /// What its bytes are made by, where they are sent compressed.
    pub(super) inflate: Option<Box<Inflate>>,
    /// Bytes that the body had when it was let go.
    pub(super) let_go: usize,
    /// Bytes of the body at the last look.
    pub(super) looked_at: usize,
    /// All that is kept of the body came before its last piece.
    was_full: bool,
    pub(super) headers_looked_at: bool,
    /// The same with the headers that stood behind the body, and without the body.
    pub(super) trailing: Option<Box<Trailing>>,
    pub(crate) is_complete: bool,
    /// Its side ended before its body did.
    pub(super) is_cut: bool,
    /// More of its body may come although it is complete.
    pub(super) goes_on: bool,
    /// What stands behind it is a line that is not whole.
    pub(super) is_followed: bool,
    /// Of a request that sends a form.
    pub(super) form: Option<Box<Form>>,
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
    notes,
    protocol,
    method,
    target,
    normalized,
    status,
    reason,
    body,
    inflate,
    trailing,
    form,
    digester
});

/// A message's head with what stood behind the body.
#[derive(Debug, Default)]
pub(super) struct Trailing {
    pub(super) half: Half,
    names: Names,
}
heap_size!(Trailing { half, names });

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
        let mut half = Self::of(head, false);
        let line = half.first_line.as_slice();
        let start = line.iter().take_while(|it| is_space(**it)).count();
        let length = line[start..].iter().take_while(|it| !is_space(**it)).count();
        let method = line[start..start + length].to_vec();
        let rest = trimmed(&line[start + length..]);
        // The protocol is the last of several words, whatever it is.
        let last = rest.iter().rposition(|it| *it == b' ');
        let last = last.or_else(|| rest.iter().rposition(|it| is_space(*it)));
        let (target, protocol) = match last {
            Some(at) => (rest[..at].trim_ascii().to_vec(), rest[at + 1..].to_vec()),
            None => (rest.to_vec(), Vec::new()),
        };
        // What a tunnel is asked for leads nowhere else.
        half.normalized =
            if method == b"CONNECT" { Vec::new() } else { uri::normalized(&target, false) };
        half.method = method;
        half.target = target;
        half.protocol = protocol;
        if half.method == b"POST" {
            half.form = half.header(b"content-type").and_then(Form::of).map(Box::new);
        }
        half
    }

    /// Takes a request's path with its separators as they are.
    pub(super) fn keep_separators(&mut self) {
        if self.method != b"CONNECT" {
            self.normalized = uri::normalized(&self.target, true);
        }
    }

    /// Adds headers, of HTTP/2, that came in one block, with what is told of them: names that
    /// begin with a colon stand for the first line. Whether there was room for all of them.
    pub(super) fn put_fields(&mut self, fields: Vec<Header>, notes: &[(usize, Note)]) -> bool {
        self.protocol = b"HTTP/2".to_vec();
        self.headers_looked_at = false;
        let mut has_new_line = self.first_line.is_empty();
        if fields.iter().any(|it| it.name == b":status") && self.sent == 0 {
            self.pass_interim();
        }
        let mut is_whole = true;
        let mut names = Names::default();
        let mut notes = notes.iter().peekable();
        for (place, Header { name, value }) in fields.into_iter().enumerate() {
            match name.as_slice() {
                b":method" if self.method.is_empty() => {
                    has_new_line = true;
                    self.method.clone_from(&value);
                }
                // Both as it came: rules about HTTP/2 are written so.
                b":path" if self.target.is_empty() => {
                    has_new_line = true;
                    self.normalized.clone_from(&value);
                    self.target.clone_from(&value);
                }
                b":status" => {
                    has_new_line |= self.status != value;
                    self.status.clone_from(&value);
                }
                _ => {}
            }
            let note = notes.next_if(|it| it.0 == place);
            let len = self.raw_headers.len() + name.len() + value.len() + 4;
            if self.fields.len() == HEADERS_MAX || len > FIELDS_LEN_MAX {
                is_whole = false;
                continue;
            }
            self.raw_headers.extend([name.as_slice(), b": ", &value, b"\r\n"].concat());
            self.notes.extend(note.map(|it| (self.fields.len(), it.1)));
            self.fields.push((name.clone(), value.clone()));
            match names.place(&name, &self.headers) {
                Some(known) => {
                    self.headers[known].1.extend([b", ".as_slice(), &value].concat());
                }
                None => self.headers.push((name, value)),
            }
        }
        // What came before a message's own headers says nothing of what its body is.
        if self.sent == 0 && self.inflate.is_none() {
            let encoding = self.header(b"content-encoding");
            self.inflate = encoding.and_then(Inflate::of).map(Box::new);
        }
        // A block that says nothing new of it costs no copy of its path.
        if has_new_line {
            self.first_line = match self.status.as_slice() {
                [] => [self.method.as_slice(), b" ", &self.target, b" HTTP/2\r\n"].concat(),
                status => [b"HTTP/2 ", status, b"\r\n"].concat(),
            };
        }
        is_whole
    }

    /// What came before a response's own headers, of an interim one or of a promise, says nothing
    /// of it, and is kept only as far as it takes no room from it.
    fn pass_interim(&mut self) {
        if !matches!(self.status.as_slice(), [] | [b'1', ..]) {
            return;
        }
        self.headers.clear();
        self.inflate = None;
        if self.fields.len() > INTERIM_MAX || self.raw_headers.len() > INTERIM_LEN_MAX {
            (self.fields, self.notes, self.raw_headers) = Default::default();
        }
    }

    /// A response's head; [`super::transaction::begins_response`] has looked at its line.
    pub(super) fn response(head: &[u8]) -> Self {
        let mut half = Self::of(head, true);
        let line = half.first_line.clone();
        let words = trimmed_start(&line);
        let word = |text: &[u8]| text.iter().position(|it| is_space(*it)).unwrap_or(text.len());
        let (protocol, rest) = words.split_at(word(words));
        let rest = trimmed_start(rest);
        let (status, reason) = rest.split_at(word(rest));
        half.protocol = protocol.to_vec();
        half.status = status.to_vec();
        half.reason = reason.trim_ascii_start().to_vec();
        // As Suricata has it: with its end.
        half.first_line =
            head.split_inclusive(|it| *it == b'\n').next().unwrap_or_default().to_vec();
        half
    }

    fn of(head: &[u8], is_response: bool) -> Self {
        let end = head.iter().position(|it| *it == b'\n').map_or(head.len(), |it| it + 1);
        let (line, raw) = head.split_at(end);
        let mut half = Self { raw_headers: raw.to_vec(), ..Self::default() };
        half.put_headers(raw, is_response);
        half.first_line = without_end(line).to_vec();
        let encoding = half.header(b"content-encoding");
        half.inflate = encoding.and_then(Inflate::of).map(Box::new);
        half
    }

    fn put_headers(&mut self, raw: &[u8], is_response: bool) {
        let mut names = Names::default();
        // A line without a colon, which may come with the next.
        let mut begun: Option<Vec<u8>> = None;
        for line in raw.split(|it| *it == b'\n') {
            let has_header = begun.is_some() || !self.headers.is_empty();
            let is_folded = has_header && folds(line, is_response);
            if let Some(mut joined) = begun.take() {
                if is_folded {
                    joined.extend_from_slice(line.trim_ascii_end());
                    begun = Some(joined);
                    continue;
                }
                self.put_header(&joined, false, &mut names);
            }
            match is_folded || line.contains(&b':') {
                true => self.put_header(line, is_folded, &mut names),
                false => begun = Some(line.trim_ascii_end().to_vec()),
            }
        }
        if let Some(line) = begun {
            self.put_header(&line, false, &mut names);
        }
    }

    /// Adds a line of the headers: one, or more of the last.
    fn put_header(&mut self, line: &[u8], is_folded: bool, names: &mut Names) {
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        if line.is_empty() {
            return;
        }
        let last = names.last.and_then(|it| self.headers.get_mut(it));
        if let (true, Some((_, value))) = (is_folded, last) {
            // Where nothing stood before it, its blanks are none of the value.
            let is_first = value.is_empty() || value.ends_with(b", ");
            value.extend_from_slice(if is_first { trimmed(line) } else { line.trim_ascii_end() });
            return;
        }
        let (name, value) = split(line, b':').unwrap_or((b"", line));
        let (name, value) = (name.trim_ascii(), trimmed(value));
        let place = names.place(name, &self.headers);
        let is_full = self.headers.len() >= HEADERS_MAX;
        names.last = place.or_else(|| (!is_full).then_some(self.headers.len()));
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
        let trailing = || Box::new(Trailing { half: head(), names: Names::default() });
        let Trailing { half, names } = &mut **self.trailing.get_or_insert_with(trailing);
        // What came counts, were it for the bound alone.
        if half.sent + line.len() as u64 <= FIELDS_LEN_MAX as u64 {
            half.sent += line.len() as u64;
            half.put_header(line, folds(line, false), names);
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

    /// Adds to the body; what is odd about that.
    pub(super) fn add_body(&mut self, bytes: &[u8], wanted: BodyWanted) -> Option<AppEvent> {
        self.sent += bytes.len() as u64;
        if self.body_size == 0 && self.digester.is_none() {
            self.digester = Digester::of(wanted.digests);
            (self.body_len_max, self.is_cut_there) = (wanted.kept, wanted.cuts_files);
        }
        self.was_full = self.body.len() >= self.body_len_max;
        let Self { inflate, body, body_len_max, is_cut_there, digester, .. } = self;
        let event = if let Some(inflate) = inflate {
            let before = body.len();
            let of_all = digester.as_deref_mut().filter(|_| !*is_cut_there);
            let is_bomb = inflate.take(bytes, body, *body_len_max, of_all);
            if !*is_cut_there && !inflate.is_whole() {
                // Nobody knows the rest.
                *digester = None;
            }
            self.count_unpacked(before);
            is_bomb.then_some(AppEvent::HttpBomb)
        } else {
            let room = body_len_max.saturating_sub(body.len());
            let kept = &bytes[..bytes.len().min(room)];
            let of_file = if *is_cut_there { kept } else { bytes };
            digester.iter_mut().for_each(|it| it.update(of_file));
            self.body_size += of_file.len() as u64;
            body.extend_from_slice(kept);
            None
        };
        self.form.iter_mut().for_each(|it| it.grow(&self.body));
        event
    }

    /// No more of it comes.
    pub(super) fn complete(&mut self) {
        self.is_complete = true;
        let Self { inflate, body, body_len_max, is_cut_there, digester, .. } = self;
        if let Some(inflate) = inflate {
            let before = body.len();
            let of_all = digester.as_deref_mut().filter(|_| !*is_cut_there);
            inflate.finish(body, *body_len_max, of_all);
            self.count_unpacked(before);
            self.form.iter_mut().for_each(|it| it.grow(&self.body));
        }
        if !self.is_cut && self.body.len() as u64 == self.body_size {
            self.form.iter_mut().for_each(|it| it.end());
        }
    }

    /// Counts what was unpacked behind the first `before` bytes of the body: all of it, or, where
    /// the file is cut, what was kept.
    fn count_unpacked(&mut self, before: usize) {
        let Self { inflate, body, body_size, is_cut_there, digester, .. } = self;
        if *is_cut_there {
            digester.iter_mut().for_each(|it| it.update(&body[before..]));
            *body_size = body.len() as u64;
        } else if let Some(inflate) = inflate {
            *body_size = inflate.made() as u64;
        }
    }

    /// Whether its file ended where no more of it is kept, which Suricata hears with the next
    /// piece.
    pub(super) fn is_file_cut(&self) -> bool {
        self.is_cut_there && self.was_full && !self.is_complete
    }

    /// Digests of the whole body, if all of it was seen.
    pub(super) fn digests(&self) -> Digests {
        let digester = self.digester.as_ref().filter(|_| self.is_complete);
        digester.map(|it| it.digests()).unwrap_or_default()
    }

    /// Whether so much of the body of this side has come that rules look at it. Suricata hears that
    /// a response is longer than it keeps with the next piece.
    pub(super) fn is_body_due(&self, side: usize, from: [u64; 2]) -> bool {
        let is_full = if side == 0 { self.body.len() >= self.body_len_max } else { self.was_full };
        self.is_complete || self.is_cut || self.body.len() as u64 >= from[side] || is_full
    }

    pub(super) fn fresh(&mut self, side: usize, when: Look) -> Fresh {
        let headers = !std::mem::replace(&mut self.headers_looked_at, true);
        let grown = self.body.len() - self.looked_at;
        let is_over = self.is_complete || self.is_cut;
        let is_due = match when {
            Look::Always => true,
            Look::AtFirst => is_over || grown >= BODY_STEP || self.looked_at == 0,
            Look::From(from) => self.is_body_due(side, from),
        };
        let is_due = is_due && grown > 0;
        let body = is_due.then(|| std::mem::replace(&mut self.looked_at, self.body.len()));
        Fresh { headers, body }
    }
}

impl Head {
    /// Whether rules see a buffer of a message of which so much came.
    pub(super) fn tells(self, buffer: Buffer) -> bool {
        use Buffer as B;
        match self {
            Self::Whole => true,
            // Whom a request is for is settled when its head ends.
            Self::Cut => buffer != B::HttpHost,
            Self::Begun => !matches!(
                buffer,
                B::HttpHeader | B::HttpHeaderRaw | B::HttpHeaderNames | B::HttpStart | B::HttpHost
            ),
        }
    }
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
