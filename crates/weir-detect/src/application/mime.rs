//! Messages of mail (RFC 5322) and their parts (RFC 2045 to 2047), line by line.

use super::file::Content;
use crate::buffers::event::{AppEvent, AppEvents};
use crate::digest::FileDigests;
use crate::heap::heap_size;
use crate::value::Object;

/// Bytes of a header with its continuations, and of a file, that are kept, at most.
const HEADER_LEN_MAX: usize = 8 * 1024;
/// Parts within parts, and headers, files and links of a message, at most.
const BOUNDARIES_MAX: usize = 16;
const FIELDS_MAX: usize = 256;
/// Lengths beyond which Suricata calls a line, an encoded one, a header's name and value, a
/// boundary and a file's name long.
const LINE_LEN: usize = 998;
const ENCODED_LEN: usize = 76;
const NAME_LEN: usize = 255;
const VALUE_LEN: usize = 2000;

/// How a body is sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Encoding {
    #[default]
    Plain,
    Base64,
    Quoted,
}

/// Where in a message its next line belongs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Section {
    #[default]
    Headers,
    Body,
    /// Between parts.
    Between,
}

/// A file that came along.
#[derive(Clone, Debug, Default)]
pub(crate) struct File {
    pub(crate) name: Vec<u8>,
    pub(crate) content: Content,
    pub(crate) is_complete: bool,
}
heap_size!(File { name, content });

/// A part's headers, as far as they matter.
#[derive(Debug, Default)]
struct Part {
    /// As its first header of that has it.
    encoding: Option<Encoding>,
    name: Vec<u8>,
    is_text: bool,
    is_message: bool,
    boundary: Option<Vec<u8>>,
}
heap_size!(Part { name, boundary });

/// A message so far.
#[derive(Debug, Default)]
pub(crate) struct Mail {
    place: Section,
    /// A header that may go on with the next line.
    header: Vec<u8>,
    part: Part,
    boundaries: Vec<Vec<u8>>,
    /// The part's body has lines.
    has_lines: bool,
    /// Letters of base 64 that are no whole group yet.
    letters: Vec<u8>,
    /// Headers of the message itself, in lower case, as they came.
    headers: Vec<(Vec<u8>, Vec<u8>)>,
    is_inner: bool,
    pub(crate) attachments: Vec<Vec<u8>>,
    urls: Vec<Vec<u8>>,
    pub(crate) file: Option<File>,
    /// Files that ended since they were asked for.
    ended: Vec<File>,
    /// All headers of the message came.
    pub(crate) has_headers: bool,
    pub(crate) is_done: bool,
    pub(crate) events: AppEvents,
    /// Of files that come along.
    wanted: FileDigests,
}
heap_size!(Mail { header, part, boundaries, letters, headers, attachments, urls, file, ended });

impl Mail {
    pub(crate) fn with_digests(wanted: FileDigests) -> Self {
        Self { wanted, ..Self::default() }
    }

    /// Takes in a line, without its end.
    pub(crate) fn line(&mut self, line: &[u8], is_cut: bool) {
        if is_cut || line.len() > LINE_LEN {
            self.events.raise(AppEvent::SmtpMimeLine);
        }
        if let Some((depth, is_last)) = self.boundary(line) {
            self.end_part();
            self.boundaries.truncate(if is_last { depth } else { depth + 1 });
            self.part = Part::default();
            self.is_inner = true;
            self.place = if is_last { Section::Between } else { Section::Headers };
            return;
        }
        match self.place {
            Section::Headers => self.header_line(line),
            Section::Body => self.body_line(line),
            Section::Between => {}
        }
    }

    /// The message ends.
    pub(crate) fn end(&mut self) {
        if self.place == Section::Headers {
            self.end_headers();
        }
        self.end_part();
        self.is_done = true;
    }

    /// The value of a header.
    pub(crate) fn header(&self, name: &str) -> Option<&[u8]> {
        self.all(name).next()
    }

    /// The values of all headers of that name.
    pub(crate) fn all(&self, name: &str) -> impl Iterator<Item = &[u8]> {
        let is_meant = move |it: &&(Vec<u8>, Vec<u8>)| it.0 == name.as_bytes();
        self.headers.iter().filter(is_meant).map(|it| it.1.as_slice())
    }

    pub(crate) fn urls(&self) -> &[Vec<u8>] {
        &self.urls
    }

    /// Files that ended since this was asked last.
    pub(crate) fn take_ended(&mut self) -> Vec<File> {
        std::mem::take(&mut self.ended)
    }

    /// EVE's `email`.
    pub(crate) fn object(&self) -> Object {
        // Nothing that counts comes behind the outermost boundary's last.
        let is_closed = self.place == Section::Between && self.boundaries.is_empty();
        let status = match (self.is_done || is_closed, self.place) {
            (true, _) => "PARSE_DONE",
            (false, Section::Headers) => "HEADER_STARTED",
            (false, _) => "BODY_STARTED",
        };
        let mut email = Object::default().with("status", status);
        let list = |name: &str| {
            let value = self.header(name)?;
            let parts = value.split(|it| *it == b',').map(<[u8]>::trim_ascii);
            Some(parts.filter(|it| !it.is_empty()).collect::<Vec<&[u8]>>())
        };
        email.put_some("from", self.header("from"));
        email.put_some("to", list("to"));
        email.put_some("cc", list("cc"));
        if !self.attachments.is_empty() {
            email.put("attachment", self.attachments.iter().collect::<Vec<_>>());
        }
        if !self.urls.is_empty() {
            // Those of later parts first.
            email.put("url", self.urls.iter().rev().collect::<Vec<_>>());
        }
        email
    }

    /// Which of the boundaries the line is, from the outermost, and whether it is its last.
    fn boundary(&self, line: &[u8]) -> Option<(usize, bool)> {
        let rest = line.strip_prefix(b"--")?;
        let (place, rest) = self
            .boundaries
            .iter()
            .enumerate()
            .filter_map(|(place, it)| Some((place, rest.strip_prefix(it.as_slice())?)))
            .max_by_key(|(_, rest)| std::cmp::Reverse(rest.len()))?;
        // Whatever follows, as Suricata has it.
        Some((place, rest.starts_with(b"--")))
    }

    fn header_line(&mut self, line: &[u8]) {
        if matches!(line.first(), Some(b' ' | b'\t')) && !self.header.is_empty() {
            if self.header.len() + line.len() < HEADER_LEN_MAX {
                // Unfolded, the line end alone goes.
                self.header.extend_from_slice(line);
            }
            return;
        }
        self.end_header();
        if line.is_empty() {
            self.end_headers();
        } else {
            self.header.extend_from_slice(&line[..line.len().min(HEADER_LEN_MAX)]);
        }
    }

    /// A header is whole.
    fn end_header(&mut self) {
        let header = std::mem::take(&mut self.header);
        if header.is_empty() {
            return;
        }
        let Some(colon) = header.iter().position(|it| *it == b':') else {
            self.events.raise(AppEvent::SmtpMimeMalformed);
            return;
        };
        let name = header[..colon].trim_ascii().to_ascii_lowercase();
        let value = header[colon + 1..].trim_ascii().to_vec();
        if name.len() > NAME_LEN {
            self.events.raise(AppEvent::SmtpMimeHeaderName);
        }
        if value.len() > VALUE_LEN {
            self.events.raise(AppEvent::SmtpMimeHeaderValue);
        }
        match name.as_slice() {
            b"content-type" => self.content_type(&value),
            b"content-disposition" => {
                if let Some(name) = parameter(&value, b"filename") {
                    self.part.name = name;
                }
            }
            b"content-transfer-encoding" if self.part.encoding.is_none() => {
                let encoding = match value.to_ascii_lowercase().as_slice() {
                    b"base64" => Encoding::Base64,
                    b"quoted-printable" => Encoding::Quoted,
                    _ => Encoding::Plain,
                };
                self.part.encoding = Some(encoding);
            }
            _ => {}
        }
        if !self.is_inner && self.headers.len() < FIELDS_MAX {
            self.headers.push((name, value));
        }
    }

    fn content_type(&mut self, value: &[u8]) {
        let kind = value.split(|it| *it == b';').next().unwrap_or_default();
        let kind = kind.trim_ascii().to_ascii_lowercase();
        self.part.is_text = kind.starts_with(b"text/");
        self.part.is_message = kind == b"message/rfc822";
        if kind.starts_with(b"multipart/")
            && let Some(boundary) = parameter(value, b"boundary")
        {
            if boundary.len() > NAME_LEN {
                self.events.raise(AppEvent::SmtpMimeBoundary);
            }
            self.part.boundary = Some(boundary);
        }
        if self.part.name.is_empty()
            && let Some(name) = parameter(value, b"name")
        {
            self.part.name = name;
        }
    }

    fn end_headers(&mut self) {
        self.end_header();
        self.has_headers |= !self.is_inner;
        let part = &mut self.part;
        if self.boundaries.len() < BOUNDARIES_MAX
            && let Some(boundary) = part.boundary.take()
        {
            self.boundaries.push(boundary);
            self.place = Section::Between;
            return;
        }
        if part.is_message {
            // Its own headers follow.
            (self.part, self.is_inner) = (Part::default(), true);
            return;
        }
        self.place = Section::Body;
        self.letters.clear();
        self.has_lines = false;
        if !part.name.is_empty() {
            if part.name.len() > NAME_LEN {
                self.events.raise(AppEvent::SmtpMimeFileName);
            }
            if self.attachments.len() < FIELDS_MAX {
                self.attachments.push(part.name.clone());
            }
            self.file = Some(File { name: part.name.clone(), ..File::default() });
        }
    }

    fn body_line(&mut self, line: &[u8]) {
        let encoding = self.part.encoding.unwrap_or_default();
        let decoded = match encoding {
            // The end of the last line is the boundary's.
            Encoding::Plain if std::mem::replace(&mut self.has_lines, true) => {
                [b"\r\n", line].concat()
            }
            Encoding::Plain => line.to_vec(),
            Encoding::Quoted => self.quoted(line),
            Encoding::Base64 => self.base64(line),
        };
        if self.part.is_text || encoding == Encoding::Plain {
            self.find_urls(&decoded);
        }
        if let Some(file) = &mut self.file {
            file.content.add(&decoded, self.wanted);
        }
    }

    fn quoted(&mut self, line: &[u8]) -> Vec<u8> {
        if line.len() > ENCODED_LEN {
            self.events.raise(AppEvent::SmtpMimeEncodedLine);
        }
        let mut decoded = Vec::with_capacity(line.len() + 2);
        let mut rest = line.trim_ascii_end();
        let digit = |byte: u8| char::from(byte).to_digit(16).map(|it| it as u8);
        while let [byte, behind @ ..] = rest {
            rest = behind;
            match (byte, behind) {
                // The line goes on.
                (b'=', []) => return decoded,
                (b'=', [high, low, after @ ..]) => match (digit(*high), digit(*low)) {
                    (Some(high), Some(low)) => {
                        decoded.push(high << 4 | low);
                        rest = after;
                    }
                    // What is no code is dropped, up to the byte that breaks it.
                    (high, _) => {
                        rest = &behind[1 + usize::from(high.is_some())..];
                        let _ = self.events.raise(AppEvent::SmtpMimeQuoted);
                    }
                },
                (b'=', _) => {
                    rest = &[];
                    let _ = self.events.raise(AppEvent::SmtpMimeQuoted);
                }
                _ => decoded.push(*byte),
            }
        }
        decoded.extend_from_slice(b"\r\n");
        decoded
    }

    fn base64(&mut self, line: &[u8]) -> Vec<u8> {
        if line.len() > ENCODED_LEN {
            self.events.raise(AppEvent::SmtpMimeEncodedLine);
        }
        let mut decoded = Vec::with_capacity(line.len());
        for byte in line {
            match crate::inspect::base64::digit(*byte) {
                Some(digit) => self.letters.push(digit),
                None if byte.is_ascii_whitespace() || *byte == b'=' => {}
                None => _ = self.events.raise(AppEvent::SmtpMimeBase64),
            }
            if let [a, b, c, d] = self.letters[..] {
                decoded.extend([a << 2 | b >> 4, b << 4 | c >> 2, c << 6 | d]);
                self.letters.clear();
            }
        }
        decoded
    }

    /// What is left of base 64 at a part's end.
    fn end_part(&mut self) {
        let Some(mut file) = self.file.take() else { return };
        match self.letters[..] {
            [a, b] => file.content.add(&[a << 2 | b >> 4], self.wanted),
            [a, b, c] => {
                file.content.add(&[a << 2 | b >> 4, b << 4 | c >> 2], self.wanted);
            }
            _ => {}
        }
        self.letters.clear();
        file.is_complete = true;
        if self.ended.len() < FIELDS_MAX {
            self.ended.push(file);
        }
    }

    fn find_urls(&mut self, bytes: &[u8]) {
        const SCHEME: &[u8] = b"http://";
        let mut rest = bytes;
        while let Some(at) = memchr::memmem::find(rest, SCHEME) {
            rest = &rest[at + SCHEME.len()..];
            let is_end = |it: &u8| !it.is_ascii_graphic() || matches!(it, b'"' | b'<' | b'>');
            let end = rest.iter().position(is_end).unwrap_or(rest.len());
            let url = rest[..end].to_ascii_lowercase();
            if !url.is_empty() && self.urls.len() < FIELDS_MAX && !self.urls.contains(&url) {
                self.urls.push(url);
            }
            rest = &rest[end..];
        }
    }
}

/// The value of `name=value` or `name="value"` behind a semicolon: of several the last, and one
/// that comes in numbered sections, or with its character set, put together (RFC 2231 s3, s4).
fn parameter(value: &[u8], name: &[u8]) -> Option<Vec<u8>> {
    let (mut found, mut sections) = (None, Vec::new());
    let mut rest = value;
    while let Some(semicolon) = rest.iter().position(|it| *it == b';') {
        rest = rest[semicolon + 1..].trim_ascii_start();
        let is_meant = rest.get(..name.len()).is_some_and(|it| it.eq_ignore_ascii_case(name));
        let Some(behind) = rest.get(name.len()..).filter(|_| is_meant) else { continue };
        let Some(equals) = behind.iter().position(|it| matches!(it, b'=' | b';')) else { break };
        let form = behind[..equals].trim_ascii();
        let Some(text) = behind[equals..].strip_prefix(b"=") else { continue };
        let text = text.trim_ascii_start();
        let (text, behind) = match text.strip_prefix(b"\"") {
            Some(quoted) => {
                let end = quoted.iter().position(|it| *it == b'"').unwrap_or(quoted.len());
                quoted.split_at(end)
            }
            None => {
                let is_end = |it: &u8| *it == b';' || it.is_ascii_whitespace();
                text.split_at(text.iter().position(is_end).unwrap_or(text.len()))
            }
        };
        rest = behind;
        match form {
            b"" => found = Some(text.to_vec()),
            // A character set, and a language.
            b"*" => found = text.rsplit(|it| *it == b'\'').next().map(<[u8]>::to_vec),
            [b'*', ..] if sections.len() < FIELDS_MAX => sections.extend_from_slice(text),
            _ => {}
        }
    }
    found.or_else(|| Some(sections).filter(|it| !it.is_empty()))
}

#[cfg(test)]
mod tests {
    use super::*;

    const MESSAGE: &str = "From: A <a@example.org>\nTo: b@example.org,\n c@example.org\n\
        Subject: s\nContent-Type: multipart/mixed; boundary=\"xyz\"\n\nfor others\n--xyz\n\
        Content-Type: text/plain\n\nsee http://Example.org/a?b now\n--xyz\n\
        Content-Type: application/zip; name=a.zip\nContent-Transfer-Encoding: base64\n\n\
        aGVsbG8g\nd29ybGQ=\n--xyz\nContent-Disposition: attachment; filename=\"b c.txt\"\n\
        Content-Transfer-Encoding: quoted-printable\n\na=3Db=\nc\n--xyz--\nmore\n";

    fn mail() -> Mail {
        let mut mail = Mail::default();
        MESSAGE.lines().for_each(|it| mail.line(it.as_bytes(), false));
        mail.end();
        mail
    }

    #[test]
    fn parts_are_files_in_the_form_that_their_senders_had() {
        let mut mail = mail();
        let files = mail.take_ended();
        let told: Vec<(&[u8], &[u8])> =
            files.iter().map(|it| (&it.name[..], &it.content.bytes[..])).collect();
        let expected: [(&[u8], &[u8]); 2] = [(b"a.zip", b"hello world"), (b"b c.txt", b"a=bc\r\n")];
        assert_eq!(told, expected);
        assert!(files.iter().all(|it| it.is_complete));
    }

    #[test]
    fn headers_are_unfolded_and_links_found() {
        let mail = mail();
        assert_eq!(mail.header("to"), Some(b"b@example.org, c@example.org".as_slice()));
        assert_eq!(mail.urls(), [b"example.org/a?b".to_vec()]);
        assert_eq!(mail.header("content-disposition"), None, "a part's own");
        let object = mail.object();
        assert_eq!(object.value("to"), Some(&vec!["b@example.org", "c@example.org"].into()));
    }

    #[test]
    fn what_no_encoder_writes_is_odd() {
        let mut mail = Mail::default();
        for line in ["Content-Transfer-Encoding: base64", "", "ab*d"] {
            mail.line(line.as_bytes(), false);
        }
        assert!(mail.events.has(AppEvent::SmtpMimeBase64));
    }

    #[test]
    fn names_are_put_together_and_the_last_counts() {
        let name = |it: &str| parameter(it.as_bytes(), b"filename").unwrap();
        assert_eq!(name("attachment; filename=\"b.txt\"; filename=a.exe"), b"a.exe");
        assert_eq!(name("attachment; filename*0=\"a.\"; filename*1=exe"), b"a.exe");
        assert_eq!(name("attachment; filename*=UTF-8''a.exe"), b"a.exe");
        assert_eq!(parameter(b"attachment; x=1", b"filename"), None);
    }

    #[test]
    fn a_part_is_as_its_first_encoding_says_and_its_boundary_may_go_on() {
        let mut mail = Mail::default();
        let message = "Content-Type: multipart/mixed; boundary=xyz\n\n--xyzzy\n\
            Content-Disposition: attachment; filename=a\nContent-Transfer-Encoding: base64\n\
            Content-Transfer-Encoding: 7bit\n\naGVsbG8=\n--xyz\n\
            Content-Disposition: attachment; filename=b\n\nsome\nlines\n--xyz--\n";
        message.lines().for_each(|it| mail.line(it.as_bytes(), false));
        mail.end();
        let files = mail.take_ended();
        let [one, two] = &files[..] else { panic!("{files:?}") };
        assert_eq!(one.content.bytes, b"hello");
        assert_eq!(two.content.bytes, b"some\r\nlines", "the last line's end is the boundary's");
    }
}
