//! DNS over HTTP/2 (RFC 8484): where in a message one of DNS is.

use crate::buffers::http::half::Half;

/// What a body says of itself that is a message of DNS.
const TYPE: &[u8] = b"application/dns-message";
/// What stands before one in a target.
const NAME: &[u8] = b"dns=";

/// The message of DNS that a side's whole message carries, if it does.
pub(super) fn message(half: &Half, side: usize) -> Option<Vec<u8>> {
    if half.header(b"content-type").is_some_and(|it| it.eq_ignore_ascii_case(TYPE)) {
        return Some(half.body.clone());
    }
    let target = if side == 0 { half.target.as_slice() } else { &[] };
    let (_, query) = target.split_at_checked(memchr::memchr(b'?', target)? + 1)?;
    let named = query.split(|it| *it == b'&').find_map(|it| it.strip_prefix(NAME))?;
    Some(decoded(named))
}

/// Base 64 with the letters of URLs (RFC 4648 s5), up to the first that is none.
fn decoded(text: &[u8]) -> Vec<u8> {
    let (mut bytes, mut bits, mut held) = (Vec::new(), 0_u32, 0);
    for letter in text {
        let value = match letter {
            b'A'..=b'Z' => letter - b'A',
            b'a'..=b'z' => letter - b'a' + 26,
            b'0'..=b'9' => letter - b'0' + 52,
            b'-' => 62,
            b'_' => 63,
            _ => break,
        };
        bits = bits << 6 | u32::from(value);
        held += 6;
        if held >= 8 {
            held -= 8;
            bytes.push((bits >> held) as u8);
        }
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::decoded;

    #[test]
    fn targets_have_letters_of_their_own() {
        assert_eq!(decoded(b"AAABAAABAAAA"), [0, 0, 1, 0, 0, 1, 0, 0, 0]);
        assert_eq!(decoded(b"-_8"), [0xfb, 0xff]);
        assert_eq!(decoded(b"AA+A"), [0]);
    }
}
