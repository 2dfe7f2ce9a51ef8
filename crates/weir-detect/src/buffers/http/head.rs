//! Where a message's head ends, and what it says of what follows.

use super::transaction::Half;
use super::{Expect, Upgrade, odd};

/// How far bytes were looked through for the end of a head.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Search {
    /// Where the line begins that is not whole yet.
    pub(super) line: usize,
    /// Bytes that were looked at.
    looked_at: usize,
}

impl Search {
    /// Bytes through the empty line that ends headers; those before are the same as last time.
    pub(super) fn end(&mut self, bytes: &[u8]) -> Option<usize> {
        let from = self.looked_at.min(bytes.len());
        for (at, byte) in bytes.iter().enumerate().skip(from) {
            if *byte == b'\n' {
                if self.line > 0 && bytes[self.line..at].trim_ascii().is_empty() {
                    return Some(at + 1);
                }
                self.line = at + 1;
            }
        }
        self.looked_at = bytes.len();
        None
    }
}

/// What a response that switches protocols goes on in.
pub(super) fn upgrade_of(half: &Half) -> Option<Upgrade> {
    let name = half.header(b"upgrade")?;
    let extensions = half.header(b"sec-websocket-extensions").unwrap_or_default();
    match () {
        () if name == b"h2c" => Some(Upgrade::Http2),
        () if name.eq_ignore_ascii_case(b"websocket") => {
            Some(Upgrade::Websocket { deflates: odd::contains(extensions, b"permessage-deflate") })
        }
        () => None,
    }
}

/// What follows the headers of `half`.
pub(super) fn body_of(half: &Half, is_response: bool) -> Expect {
    let encoding = half.header(b"transfer-encoding");
    if encoding.is_some_and(|it| it.to_ascii_lowercase().windows(7).any(|it| it == b"chunked")) {
        return Expect::ChunkSize;
    }
    match half.header(b"content-length").and_then(odd::length) {
        Some(0) => Expect::Head,
        Some(length) => Expect::Body(length),
        None if is_response => Expect::BodyToEnd,
        // A receiver that knows neither where the body ends nor how it is sent gives up.
        None if half.header(b"content-length").is_some() || encoding.is_some() => Expect::Nothing,
        None => Expect::Head,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_head_ends_at_its_first_empty_line_and_each_byte_is_looked_at_once() {
        let head = b"GET / HTTP/1.1\r\nHost: a\r\n \r\nbody\n\n";
        let mut search = Search::default();
        for known in 0..head.len() {
            let before = search.looked_at;
            match search.end(&head[..known]) {
                Some(end) => {
                    assert_eq!((end, known), (28, 28));
                    return;
                }
                None => assert_eq!((before, search.looked_at), (known.saturating_sub(1), known)),
            }
        }
        panic!("no end");
    }
}
