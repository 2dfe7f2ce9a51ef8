//! What is told of a request and its response of HTTP/1: EVE's `http`.

use super::files::URI_NOT_SEEN;
use super::half::Half;
use super::{Transaction, odd};
use crate::rule::Buffer;
use crate::value::{Object, Value, base64, printable};

/// Fields, by who said what they tell.
const FIELDS: [(usize, &str, Buffer); 9] = [
    (0, "hostname", Buffer::HttpHost),
    (0, "url", Buffer::HttpUriRaw),
    (0, "http_user_agent", Buffer::HttpUserAgent),
    (0, "http_refer", Buffer::HttpReferer),
    (0, "http_method", Buffer::HttpMethod),
    (0, "protocol", Buffer::HttpProtocol),
    (1, "http_content_type", Buffer::HttpContentType),
    (1, "redirect", Buffer::HttpLocation),
    (1, "status", Buffer::HttpStatusCode),
];

/// Puts the bodies, as EVE's alerts have them.
pub(super) fn put_bodies(transaction: &Transaction, object: &mut Object) {
    let names = [
        ("http_request_body", "http_request_body_printable"),
        ("http_response_body", "http_response_body_printable"),
    ];
    for (side, (encoded, letters)) in names.into_iter().enumerate() {
        let body = transaction.body(side);
        if !body.is_empty() {
            object.put(letters, printable(body));
            object.put(encoded, base64(body));
        }
    }
}

pub(super) fn object(transaction: &Transaction) -> Object {
    let mut object = Object::default();
    if transaction.request.is_none() {
        object.put("url", URI_NOT_SEEN);
    }
    for (side, name, buffer) in FIELDS {
        transaction.each(side, buffer, &mut |bytes| {
            match odd::status_number(bytes).filter(|_| name == "status") {
                _ if bytes.is_empty() => {}
                Some(number) => object.put(name, u64::from(number)),
                None if name == "status" => object.put("status_string", bytes),
                // What the content is, without how it is spelled.
                _ if name == "http_content_type" => {
                    let end = bytes.iter().position(|it| *it == b';').unwrap_or(bytes.len());
                    object.put(name, &bytes[..end]);
                }
                _ => object.put(name, bytes),
            }
            true
        });
    }
    let in_target = transaction.request.as_ref().and_then(Half::authority);
    match in_target {
        Some(authority) => object.put_some("http_port", port(authority)),
        None => {
            transaction.each(0, Buffer::HttpHostRaw, &mut |host| {
                object.put_some("http_port", port(host));
                true
            });
        }
    }
    let asking = transaction.half(0).filter(|_| transaction.has_headers(0));
    if let Some(client) = asking.and_then(|it| it.header(b"x-forwarded-for")) {
        object.put("xff", client);
    }
    let half = transaction.half(1).filter(|_| transaction.has_headers(1));
    if let Some(range) = half.and_then(|it| it.header(b"content-range")) {
        object.put("content_range", content_range(range));
    }
    object
}

/// Puts all headers of those `sides`. HTTP/2's are there in any case.
pub(super) fn put_headers(object: &mut Object, transaction: &Transaction, sides: [bool; 2]) {
    for (side, name) in [(0, "request_headers"), (1, "response_headers")] {
        let half = transaction.half(side).filter(|_| sides[side]);
        let Some(half) = half.filter(|it| !it.first_line.is_empty()) else { continue };
        object.put(name, headers(&half.headers));
    }
}

/// A list of headers, as EVE has it.
pub(super) fn headers(list: &[(Vec<u8>, Vec<u8>)]) -> Vec<Value> {
    let header = |(name, value): &(Vec<u8>, Vec<u8>)| {
        Value::from(Object::default().with("name", name).with("value", value))
    };
    list.iter().map(header).collect()
}

/// The port that a host has behind it.
fn port(host: &[u8]) -> Option<u16> {
    let host = &host[host.iter().rposition(|it| *it == b'@').map_or(0, |it| it + 1)..];
    let behind = match host.iter().position(|it| *it == b']') {
        Some(bracket) => &host[bracket + 1..],
        None => &host[host.iter().position(|it| *it == b':')?..],
    };
    let digits = std::str::from_utf8(behind.strip_prefix(b":")?).ok()?;
    digits.parse().ok().filter(|it| *it != 0)
}

impl Transaction {
    /// The first and the last byte of a response in a content of which it is a part.
    pub(crate) fn range(&self, side: usize) -> Option<[u64; 2]> {
        let header = self.half(side).filter(|_| side == 1)?.header(b"content-range")?;
        let Range { part: Some([start, end]), size: Some(size) } = Range::read(header)? else {
            return None;
        };
        let is_part = start <= end && end < size && end - start + 1 < size;
        is_part.then_some([start, end])
    }
}

/// Which part of a content was sent, and of how much (RFC 9110 s14.4).
pub(super) struct Range {
    /// Its first byte, and its last.
    part: Option<[u64; 2]>,
    size: Option<u64>,
}

impl Range {
    pub(super) fn read(raw: &[u8]) -> Option<Self> {
        let blank = raw.iter().position(|it| *it == b' ')?;
        let mut rest = raw[blank..].trim_ascii_start();
        let mut part = None;
        if let Some(behind) = rest.strip_prefix(b"*") {
            rest = behind;
        } else {
            let start = digits(&mut rest)?;
            rest = rest.strip_prefix(b"-")?;
            part = Some([start, digits(&mut rest)?]);
        }
        rest = rest.strip_prefix(b"/")?;
        let size = if rest.starts_with(b"*") { None } else { Some(digits(&mut rest)?) };
        Some(Self { part, size })
    }

    /// Whether there may be such a part.
    pub(super) fn is_possible(&self) -> bool {
        match (self.part, self.size) {
            (Some([start, end]), size) => start <= end && size.is_none_or(|it| end < it),
            (None, size) => size.is_some(),
        }
    }
}

fn content_range(raw: &[u8]) -> Object {
    let mut object = Object::default().with("raw", raw);
    if let Some(Range { part, size }) = Range::read(raw) {
        object.put_some("start", part.map(|it| it[0]));
        object.put_some("end", part.map(|it| it[1]));
        object.put_some("size", size);
    }
    object
}

/// The number that stands first, which is taken away.
fn digits(rest: &mut &[u8]) -> Option<u64> {
    let end = rest.iter().position(|it| !it.is_ascii_digit()).unwrap_or(rest.len());
    let (number, behind) = rest.split_at(end);
    *rest = behind;
    std::str::from_utf8(number).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::value::Value;

    #[test]
    fn a_range_tells_what_is_known_of_it() {
        for (text, numbers) in [
            ("bytes 10-19/100", [Some(10_u64), Some(19), Some(100)]),
            ("bytes */100", [None, None, Some(100)]),
            ("bytes 5-9/*", [Some(5), Some(9), None]),
            ("bytes 5-/9", [None; 3]),
            ("garbage", [None; 3]),
        ] {
            let range = content_range(text.as_bytes());
            assert_eq!(range.value("raw"), Some(&text.into()));
            for (name, number) in ["start", "end", "size"].into_iter().zip(numbers) {
                assert_eq!(range.value(name), number.map(Value::from).as_ref(), "{name} of {text}");
            }
        }
    }

    #[test]
    fn a_port_is_a_number_behind_the_host() {
        assert_eq!(port(b"h.example:8080"), Some(8080));
        assert_eq!(port(b"[2001:db8::1]:81"), Some(81));
        assert_eq!(port(b"user:word@h.example:81"), Some(81));
        for none in ["h.example", "[2001:db8::1]", "h:0", "h:x", "h:99999", "h:"] {
            assert_eq!(port(none.as_bytes()), None, "{none}");
        }
    }
}
