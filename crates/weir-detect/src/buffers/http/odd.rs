//! What is odd about the head of a message, as Suricata's parser of HTTP names it.

use super::half::Half;
use super::told::Range;
use crate::buffers::event::AppEvent;

/// Headers of different names, at most (Suricata's limit).
const HEADERS_MAX: usize = 1024;
/// Encodings within each other, at most (Suricata's limit).
const LAYERS_MAX: usize = 2;
/// Blanks behind a request without a version, at most: with more it is no HTTP/0.9.
const BLANKS_MAX: usize = 16;
/// Methods that Suricata knows.
pub(super) const METHODS: [&[u8]; 28] = [
    b"GET",
    b"PUT",
    b"POST",
    b"DELETE",
    b"CONNECT",
    b"OPTIONS",
    b"TRACE",
    b"PATCH",
    b"PROPFIND",
    b"PROPPATCH",
    b"MKCOL",
    b"COPY",
    b"MOVE",
    b"LOCK",
    b"UNLOCK",
    b"VERSION-CONTROL",
    b"CHECKOUT",
    b"UNCHECKOUT",
    b"CHECKIN",
    b"UPDATE",
    b"LABEL",
    b"REPORT",
    b"MKWORKSPACE",
    b"MKACTIVITY",
    b"BASELINE-CONTROL",
    b"MERGE",
    b"INVALID",
    b"HEAD",
];

/// Versions of HTTP that are told apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Version {
    Invalid,
    Http09,
    Http10,
    Http11,
}

impl Version {
    /// Whether blanks stand before its slash, or blanks or zeros before its number.
    fn has_more(text: &[u8]) -> bool {
        let name = text.trim_ascii().get(4..).unwrap_or_default();
        let number = name.trim_ascii_start().strip_prefix(b"/");
        Self::of(text) != Self::Invalid
            && (!name.starts_with(b"/") || number.is_some_and(|it| !b"1.".contains(&it[0])))
    }

    /// `HTTP/1.1`, blanks and zeros before the number allowed.
    pub(super) fn of(text: &[u8]) -> Self {
        let text = text.trim_ascii();
        if !text.get(..4).is_some_and(|it| it.eq_ignore_ascii_case(b"HTTP")) {
            return Self::Invalid;
        }
        let Some(number) = text[4..].trim_ascii_start().strip_prefix(b"/") else {
            return Self::Invalid;
        };
        let zeros = |it: &&u8| it.is_ascii_whitespace() || **it == b'0';
        match &number[number.iter().take_while(zeros).count()..] {
            b".9" => Self::Http09,
            b"1.0" => Self::Http10,
            b"1.1" => Self::Http11,
            _ => Self::Invalid,
        }
    }
}

/// Whether a word is a method that Suricata knows.
pub(super) fn is_method(word: &[u8]) -> bool {
    METHODS.contains(&word)
}

/// Whether a word may become one.
pub(super) fn begins_method(word: &[u8]) -> bool {
    METHODS.iter().any(|it| it.starts_with(word))
}

pub(super) fn is_space(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\r' | b'\n' | 0x0b | 0x0c)
}

/// Without blanks at both ends, of which a vertical tab is one.
pub(super) fn trimmed(text: &[u8]) -> &[u8] {
    let end = text.iter().rposition(|it| !is_space(*it)).map_or(0, |it| it + 1);
    trimmed_start(&text[..end])
}

/// Without those before it.
pub(super) fn trimmed_start(text: &[u8]) -> &[u8] {
    let start = text.iter().take_while(|it| is_space(**it)).count();
    &text[start..]
}

/// The number in a `Content-Length`: its first digits, whatever stands around them.
pub(super) fn length(value: &[u8]) -> Option<u64> {
    let start = value.iter().position(u8::is_ascii_digit)?;
    let digits = value[start..].iter().take_while(|it| it.is_ascii_digit()).count();
    std::str::from_utf8(&value[start..start + digits]).ok()?.parse().ok()
}

/// What is odd about a request; `line` is its first, as it came, and `behind` what came behind its
/// head.
pub(super) fn of_request(half: &Half, line: &[u8], behind: &[u8], found: &mut Vec<AppEvent>) {
    of_line(half, line, behind, found);
    of_headers(&half.raw_headers, true, found);
    let version = Version::of(&half.protocol);
    // With an encoding or length that is none, Suricata gives up and says nothing.
    let is_chunked = |it: &[u8]| contains(it, b"chunked");
    if half.header(b"transfer-encoding").is_some_and(is_chunked) && version < Version::Http11 {
        found.push(AppEvent::HttpRequestTransferEncoding);
    }
    if let (None, Some(value)) = (half.header(b"transfer-encoding"), half.header(b"content-length"))
    {
        of_length(value, found);
    }
    if let Some(value) = half.header(b"content-encoding") {
        of_encoding(value, true, found);
    }
    let is_tunnel = half.method == b"CONNECT";
    let mut named = half.authority().map(Authority::of_target);
    let is_invalid = |it: &Authority<'_>| {
        let has_port = it.port.is_none_or(|it| port_of(it).is_some());
        it.host.is_some_and(|it| !is_host(it)) || (is_tunnel && !has_port)
    };
    if named.as_ref().is_some_and(is_invalid) {
        found.push(AppEvent::HttpTargetHost);
        named = named.filter(|_| !is_tunnel);
    }
    match half.header(b"host") {
        Some(value) => of_host(value, named, found),
        None if version == Version::Http11 => found.push(AppEvent::HttpHostMissing),
        None => {}
    }
    if let Some(value) = half.header(b"authorization") {
        let begins =
            |word: &[u8]| value.get(..word.len()).is_some_and(|it| it.eq_ignore_ascii_case(word));
        if !begins(b"basic") && !begins(b"digest") && !begins(b"bearer") {
            found.push(AppEvent::HttpAuthorization);
        }
    }
}

fn of_line(half: &Half, line: &[u8], next: &[u8], found: &mut Vec<AppEvent>) {
    let leading = line.iter().take_while(|it| is_space(**it)).count();
    if leading > 0 {
        found.push(AppEvent::HttpLeadingSpace);
    }
    let behind = &line[(leading + half.method.len()).min(line.len())..];
    let blanks = behind.iter().take_while(|it| is_space(**it));
    if blanks.clone().any(|it| *it != b' ') && !half.target.is_empty() {
        found.push(AppEvent::HttpMethodDelimiter);
    }
    let words =
        line.len().checked_sub(half.protocol.len() + 1).filter(|_| !half.protocol.is_empty());
    let before_version = words.and_then(|at| line.get(at)).copied().unwrap_or(b' ');
    let is_odd = |it: u8| is_space(it) && it != b' ';
    if is_odd(before_version) || half.target.iter().any(|it| is_odd(*it)) {
        found.push(AppEvent::HttpTargetDelimiter);
    }
    if Version::has_more(&half.protocol) {
        found.push(AppEvent::HttpProtocolBlanks);
    }
    if !is_method(&half.method) {
        match half.protocol.is_empty() {
            false if Version::of(&half.protocol) == Version::Invalid => {
                found.push(AppEvent::HttpUnknownMethodProtocol);
            }
            false => {}
            true if half.target.is_empty() => found.push(AppEvent::HttpUnknownMethod),
            true => found.push(AppEvent::HttpUnknownMethodAlone),
        }
    }
    // The last of several words is a version, whatever it is.
    if half.protocol.is_empty() {
        let rest = half.raw_headers.iter().chain(next);
        let blanks = rest.take(BLANKS_MAX + 1).take_while(|it| is_space(**it)).count();
        if blanks < (half.raw_headers.len() + next.len()).min(BLANKS_MAX + 1) || blanks > BLANKS_MAX
        {
            found.push(AppEvent::HttpNoProtocol);
        } else if !is_method(&half.method) {
            found.push(AppEvent::HttpLineInvalid);
        }
    }
}

/// What is odd about a body that is a form of several parts (RFC 7578).
pub(super) fn of_form(half: &Half, found: &mut Vec<AppEvent>) {
    let kind = half.header(b"content-type").unwrap_or_default();
    let Some(boundary) = parameter(kind, b"boundary=") else { return };
    let begin = [b"--", boundary].concat();
    let end = [begin.as_slice(), b"--"].concat();
    let mut rest = half.body.as_slice();
    while let Some(start) = place(rest, &begin) {
        rest = &rest[start..];
        let Some(head) = place(rest, b"\r\n\r\n") else { return };
        let last = rest.len().min(head + end.len());
        if place(&rest[..last], &end).is_some() {
            return;
        }
        let lines = rest.get(begin.len() + 2..head).unwrap_or_default();
        let mut lines = lines.split(|it| *it == b'\n').map(<[u8]>::trim_ascii_end);
        let is_odd =
            |it: &[u8]| it.iter().position(|it| *it == b':').is_none_or(|at| at + 1 == it.len());
        if lines.clone().any(|it| !it.is_empty() && is_odd(it)) {
            found.push(AppEvent::HttpMultipartHeader);
        }
        let has_file = lines.any(|it| contains(it, b"filename="));
        rest = &rest[head + 4..];
        if has_file && rest.starts_with(&end) {
            found.push(AppEvent::HttpMultipartEmpty);
        }
    }
}

/// What stands behind a name in a header, without quotes.
pub(super) fn parameter<'v>(value: &'v [u8], name: &[u8]) -> Option<&'v [u8]> {
    let at = value.windows(name.len()).position(|it| it.eq_ignore_ascii_case(name))?;
    let rest = value[at + name.len()..].trim_ascii();
    let found = match rest.strip_prefix(b"\"") {
        Some(quoted) => quoted.split(|it| *it == b'"').next()?,
        None => rest.split(|it| matches!(it, b';' | b' ')).next()?,
    };
    (!found.is_empty()).then_some(found)
}

/// What stands up to the next quote; a byte behind a backslash stands for itself (RFC 9110 s5.6.4).
pub(super) fn unquoted(text: &[u8]) -> Vec<u8> {
    let (mut bytes, mut found) = (text.iter(), Vec::new());
    while let Some(byte) = bytes.next().filter(|it| **it != b'"') {
        found.extend(if *byte == b'\\' { bytes.next() } else { Some(byte) });
    }
    found
}

fn place(text: &[u8], word: &[u8]) -> Option<usize> {
    memchr::memmem::find(text, word)
}

/// What is odd about a `Content-Length`: something before its digits, or behind them.
fn of_length(value: &[u8], found: &mut Vec<AppEvent>) {
    let value = value.trim_ascii();
    let Some(start) = value.iter().position(u8::is_ascii_digit) else { return };
    if start > 0 {
        found.push(AppEvent::HttpLengthBegin);
    }
    if !value[start..].iter().all(u8::is_ascii_digit) {
        found.push(AppEvent::HttpLengthEnd);
    }
}

/// The status of a response, if it is one.
pub(super) fn status(half: &Half) -> Option<u16> {
    status_number(&half.status)
}

/// The number that a status is, if it may be one.
pub(super) fn status_number(status: &[u8]) -> Option<u16> {
    let digits = Some(status).filter(|it| it.iter().all(u8::is_ascii_digit))?;
    let number = std::str::from_utf8(digits).ok()?.parse().ok();
    number.filter(|it| (100..1000).contains(it))
}

/// What is odd about the head of a response, whose body is none where it answers HEAD.
pub(super) fn of_response(half: &Half, answers_head: bool, found: &mut Vec<AppEvent>) {
    let version = Version::of(&half.protocol);
    if Version::has_more(&half.protocol) {
        found.push(AppEvent::HttpProtocolBlanks);
    }
    if version == Version::Invalid {
        found.push(AppEvent::HttpResponseLineProtocol);
    }
    let status = status(half);
    if status.is_none() {
        found.push(AppEvent::HttpResponseLineStatus);
    }
    of_headers(&half.raw_headers, false, found);
    let encoding = half.header(b"transfer-encoding");
    let length_of = half.header(b"content-length");
    let is_framed = encoding.is_some() || length_of.is_some();
    match status {
        Some(100) if encoding.is_none() => {
            if let Some(value) = length_of {
                of_length(value, found);
            }
            if length_of.and_then(length).is_none_or(|it| it == 0) {
                return;
            }
        }
        Some(101) if is_framed => found.push(AppEvent::HttpSwitchesWithBody),
        _ => {}
    }
    if !answers_head {
        if is_framed && matches!(status, Some(100..200 | 204 | 304)) {
            found.push(AppEvent::HttpResponseBodyUnexpected);
        }
        if let Some(encoding) = encoding.filter(|it| contains(it, b"chunked")) {
            if !encoding.eq_ignore_ascii_case(b"chunked") {
                found.push(AppEvent::HttpChunkedOddly);
            }
            if version < Version::Http11 {
                found.push(AppEvent::HttpChunkedEarly);
            }
        } else if let Some(value) = length_of {
            of_length(value, found);
            if length(value).is_none() {
                found.push(AppEvent::HttpResponseLength);
            }
        }
    }
    if let Some(value) = half.header(b"content-encoding") {
        of_encoding(value, false, found);
    }
    let is_empty = half.header(b"content-length").is_some_and(|it| length(it) == Some(0));
    if let Some(value) = half.header(b"content-range")
        && !is_empty
        && !Range::read(value).is_some_and(|it| it.is_possible())
    {
        found.push(AppEvent::HttpRange);
    }
}

/// `gzip`, `deflate` or several of them; `identity` is odd in a request.
fn of_encoding(value: &[u8], is_request: bool, found: &mut Vec<AppEvent>) {
    // The last is none of a request's.
    const PLAIN: [&[u8]; 9] = [
        b"gzip",
        b"x-gzip",
        b"deflate",
        b"x-deflate",
        b"lzma",
        b"inflate",
        b"none",
        b"br",
        b"identity",
    ];
    let plain = &PLAIN[..PLAIN.len() - usize::from(is_request)];
    if plain.iter().any(|it| it.eq_ignore_ascii_case(value)) {
        return;
    }
    let layers = value.split(|it| matches!(it, b',' | b' ')).filter(|it| !it.is_empty());
    for (layer, name) in layers.enumerate() {
        if layer == LAYERS_MAX {
            found.push(AppEvent::HttpEncodingLayers);
            break;
        }
        if !plain.contains(&name) {
            found.push(AppEvent::HttpEncodingHeader);
        }
    }
}

pub(super) fn of_headers(raw: &[u8], is_request: bool, found: &mut Vec<AppEvent>) {
    let of = |request, response| if is_request { request } else { response };
    let mut names: Vec<(&[u8], &[u8])> = Vec::new();
    let mut is_first = true;
    for line in raw.split(|it| *it == b'\n') {
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        if line.is_empty() {
            continue;
        }
        if folds(line, !is_request) && !is_first {
            continue;
        }
        let line = if is_first { line } else { line.trim_ascii_start() };
        if matches!(line.first(), Some(b' ' | b'\t')) {
            found.push(of(AppEvent::HttpRequestFolding, AppEvent::HttpResponseFolding));
        }
        is_first = false;
        // Without a name, all is the value of a header that has none.
        let colon = line.iter().position(|it| *it == b':').filter(|it| *it > 0);
        if colon.is_none() {
            found.push(of(AppEvent::HttpRequestColon, AppEvent::HttpResponseColon));
        }
        let behind = colon.map_or(0, |it| it + 1);
        let colon = colon.unwrap_or_default();
        let (name, value) = (line[..colon].trim_ascii(), line[behind..].trim_ascii());
        if matches!(line[..colon].last(), Some(b' ' | b'\t')) {
            found.push(of(AppEvent::HttpRequestNameBlank, AppEvent::HttpResponseNameBlank));
        }
        if !line[..colon].iter().all(|it| is_token(*it)) {
            found.push(of(AppEvent::HttpRequestHeader, AppEvent::HttpResponseName));
        }
        match names.iter().find(|it| it.0.eq_ignore_ascii_case(name)) {
            Some((_, known)) => {
                found.push(of(AppEvent::HttpRequestRepetition, AppEvent::HttpResponseRepetition));
                let is_length = name.eq_ignore_ascii_case(b"content-length");
                if is_length && (length(known).is_none() || length(known) != length(value)) {
                    found.push(of(AppEvent::HttpRequestLengths, AppEvent::HttpResponseLengths));
                }
            }
            None if names.len() > HEADERS_MAX => {
                found.push(of(AppEvent::HttpRequestHeaders, AppEvent::HttpResponseHeaders));
                break;
            }
            None => names.push((name, value)),
        }
    }
}

/// Whether a line goes on with the header before it (RFC 9112 s5.2). Of a response, one that has a
/// name and a colon behind its blanks is a header of its own.
pub(super) fn folds(line: &[u8], is_response: bool) -> bool {
    let text = line.trim_ascii_start();
    let name = text.split(|it| *it == b':').next().filter(|it| it.len() < text.len());
    let name = name.map(<[u8]>::trim_ascii_end).filter(|it| !it.is_empty());
    matches!(line.first(), Some(b' ' | b'\t'))
        && !(is_response && name.is_some_and(|it| it.iter().all(|it| is_token(*it))))
}

/// A `Host` header, beside what the target names.
fn of_host(value: &[u8], named: Option<Authority<'_>>, found: &mut Vec<AppEvent>) {
    let Authority { host, port, has_more } = Authority::of(value);
    let named_host = named.and_then(|it| it.host);
    let Some(host) = host else {
        if named_host.is_some() {
            found.push(AppEvent::HttpHostAmbiguous);
        }
        return;
    };
    let port = port.map(port_of);
    if !is_host(host) || port == Some(None) || has_more {
        found.push(AppEvent::HttpHeaderHost);
    }
    if let Some(named_host) = named_host {
        let named_port = named.and_then(|it| it.port).and_then(port_of);
        let is_other_port = port.is_some_and(|it| named_port.is_some() && it != named_port);
        if !named_host.eq_ignore_ascii_case(host) || is_other_port {
            found.push(AppEvent::HttpHostAmbiguous);
        }
    }
}

/// `host:port`
#[derive(Clone, Copy)]
struct Authority<'a> {
    host: Option<&'a [u8]>,
    port: Option<&'a [u8]>,
    /// Something that is no port follows the host.
    has_more: bool,
}

impl<'a> Authority<'a> {
    /// That of a target, where a user may stand before it.
    fn of_target(text: &'a [u8]) -> Self {
        let user = text.iter().position(|it| *it == b'@').map_or(0, |it| it + 1);
        Self::of(&text[user..])
    }

    fn of(text: &'a [u8]) -> Self {
        let text = text.strip_prefix(b"//").unwrap_or(text).trim_ascii_start();
        let is_end = |it: &u8| matches!(it, b'/' | b'?' | b'#' | b':');
        let bracket = text.first().filter(|it| **it == b'[');
        let end = match bracket.and_then(|_| text.iter().position(|it| *it == b']')) {
            Some(at) => at + 1,
            None => text.iter().position(is_end).unwrap_or(text.len()),
        };
        let (host, rest) = text.split_at(end);
        let port = rest.strip_prefix(b":").map(|it| {
            let end = it.iter().position(|it| matches!(it, b'/' | b'?' | b'#'));
            it[..end.unwrap_or(it.len())].trim_ascii()
        });
        let port = port.filter(|it| !it.is_empty());
        let host = Some(host.trim_ascii_end()).filter(|it| !it.is_empty());
        Self { host, port, has_more: port.is_none() && !rest.is_empty() }
    }
}

fn port_of(text: &[u8]) -> Option<u16> {
    std::str::from_utf8(text).ok()?.parse().ok().filter(|it| *it != 0)
}

/// Whether a name or address may be a host's; an underscore may stand in one.
fn is_host(host: &[u8]) -> bool {
    if host.is_empty() || host.len() > 255 {
        return false;
    }
    if let Some(address) = host.strip_prefix(b"[").and_then(|it| it.strip_suffix(b"]")) {
        let address = std::str::from_utf8(address).ok();
        return address.is_some_and(|it| it.parse::<std::net::Ipv6Addr>().is_ok());
    }
    let is_letter = |it: &u8| matches!(it, b'_' | b'-') || char::from(*it).is_alphanumeric();
    let is_label = |it: &[u8]| it.len() <= 63 && it.iter().all(is_letter);
    !host.starts_with(b".")
        && !host.windows(2).any(|it| it == b"..")
        && host.split(|it| *it == b'.').all(is_label)
}

/// RFC 9110 s5.6.2, as Suricata has it.
fn is_token(byte: u8) -> bool {
    let is_separator = matches!(
        byte,
        b'(' | b')'
            | b'<'
            | b'>'
            | b'@'
            | b','
            | b';'
            | b':'
            | b'\\'
            | b'"'
            | b'/'
            | b'['
            | b']'
            | b'?'
            | b'='
            | b'{'
            | b'}'
            | b' '
    );
    (33..=126).contains(&byte) && !is_separator
}

/// Whether `word`, in lower case, stands in `text`.
pub(super) fn contains(text: &[u8], word: &[u8]) -> bool {
    text.windows(word.len()).any(|it| it.eq_ignore_ascii_case(word))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn odd(head: &[u8]) -> Vec<AppEvent> {
        let mut found = Vec::new();
        let half = Half::request(head);
        let line = head.split(|it| *it == b'\r').next().unwrap();
        of_request(&half, line, &[], &mut found);
        found
    }

    #[test]
    fn an_ordinary_request_has_nothing_odd() {
        for head in [
            b"GET /a?b HTTP/1.1\r\nHost: www.Example.org:8080\r\nA: b\r\n c\r\n\r\n".as_slice(),
            b"GET http://a.b/ HTTP/1.1\r\nHost: A.b\r\nAuthorization: Basic x\r\n\r\n",
            b"POST / HTTP/1.0\r\nContent-Length: 5\r\n\r\n",
            b"GET / HTTP/1.1\r\nHost: [::1]:80\r\n\r\n",
        ] {
            assert_eq!(odd(head), [], "{}", String::from_utf8_lossy(head));
        }
    }

    #[test]
    fn what_is_odd_about_a_form_is_named() {
        let events = |parts: &[u8]| {
            let head = b"POST / HTTP/1.1\r\nContent-Type: multipart/form-data; boundary=x\r\n\r\n";
            let mut half = Half::request(head);
            half.body = parts.to_vec();
            let mut found = Vec::new();
            of_form(&half, &mut found);
            found
        };
        let named = b"--x\r\nContent-Disposition: form-data; filename=\"a\"\r\n\r\n";
        assert_eq!(events(&[named.as_slice(), b"data\r\n--x--\r\n"].concat()), []);
        let empty = events(&[named.as_slice(), b"--x--\r\n"].concat());
        assert_eq!(empty, [AppEvent::HttpMultipartEmpty]);
        let odd = events(b"--x\r\nno header\r\n\r\ndata\r\n--x--\r\n");
        assert_eq!(odd, [AppEvent::HttpMultipartHeader]);
    }

    #[test]
    fn what_is_odd_about_a_request_is_named() {
        use AppEvent::*;
        for (head, event) in [
            ("GET / HTTP/1.1\r\n\r\n", HttpHostMissing),
            ("GET / HTTP/1.1\r\nHost: a b\r\n\r\n", HttpHeaderHost),
            ("GET / HTTP/1.1\r\nHost: a:0\r\n\r\n", HttpHeaderHost),
            ("GET / HTTP/1.1\r\nHost: a/b\r\n\r\n", HttpHeaderHost),
            ("GET / HTTP/1.1\r\nHost: .a\r\n\r\n", HttpHeaderHost),
            ("GET http://b/ HTTP/1.1\r\nHost: a\r\n\r\n", HttpHostAmbiguous),
            ("GET http://b*/ HTTP/1.1\r\nHost: b*\r\n\r\n", HttpTargetHost),
            ("GET\t/ HTTP/1.1\r\nHost: a\r\n\r\n", HttpMethodDelimiter),
            ("GET /\x0b HTTP/1.1\r\nHost: a\r\n\r\n", HttpTargetDelimiter),
            ("GET /\tHTTP/1.1\r\nHost: a\r\n\r\n", HttpTargetDelimiter),
            ("  GET / HTTP/1.1\r\nHost: a\r\n\r\n", HttpLeadingSpace),
            ("GET /\r\nHost: a\r\n\r\n", HttpNoProtocol),
            ("NONE\r\n\r\n", HttpLineInvalid),
            ("GET / HTTP/1.1\r\nHost: a\r\nb\r\n\r\n", HttpRequestColon),
            ("GET / HTTP/1.1\r\nHost: a\r\nb@: c\r\n\r\n", HttpRequestHeader),
            ("GET / HTTP/1.1\r\n b: c\r\nHost: a\r\n\r\n", HttpRequestFolding),
            ("GET / HTTP/1.1\r\nHost: a\r\nB: c\r\nb: d\r\n\r\n", HttpRequestRepetition),
            ("GET / HTTP/1.1\r\nHost: a\r\nAuthorization: x\r\n\r\n", HttpAuthorization),
            (
                "GET / HTTP/1.0\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n",
                HttpRequestTransferEncoding,
            ),
        ] {
            assert!(odd(head.as_bytes()).contains(&event), "{head:?}: {event:?}");
        }
    }
}
