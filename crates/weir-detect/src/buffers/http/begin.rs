//! Whether a stream begins as HTTP/1 does.

use super::odd;

/// Bytes of a line that begins with a method that no list knows, at most.
const REQUEST_LINE_MAX: usize = 16 * 1024;

/// Whether a stream that begins so is a client's: a method that Suricata knows, in letters of
/// either case, and a blank.
pub(crate) fn begins(bytes: &[u8]) -> bool {
    odd::METHODS.iter().any(|it| match bytes.split_at_checked(it.len()) {
        Some((word, [b' ' | b'\t', ..])) => word.eq_ignore_ascii_case(it),
        _ => false,
    })
}

/// A client's stream behind what servers pass over before a request (RFC 9112 s2.2): blank lines,
/// and with some of them blanks and zeros.
pub(crate) fn behind_blanks(bytes: &[u8]) -> &[u8] {
    let is_blank = |it: &u8| matches!(it, b'\r' | b'\n' | b' ' | b'\t' | 0);
    let count = bytes.iter().take_while(|it| is_blank(it)).count();
    &bytes[count..]
}

/// Whether a stream that begins so is a client's, whatever its method: a word first, the version
/// last in the line. `None`: too little was said.
pub(crate) fn begins_with_any_method(bytes: &[u8]) -> Option<bool> {
    let known = &bytes[..bytes.len().min(REQUEST_LINE_MAX)];
    // RFC 9110 s5.6.2.
    let is_of_word = |it: &&u8| it.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(it);
    let word = known.iter().take_while(is_of_word).count();
    if word == 0 || !known.get(word).is_none_or(|it| matches!(it, b' ' | b'\t')) {
        return Some(false);
    }
    match memchr::memchr(b'\n', &known[word..]) {
        None if known.len() < REQUEST_LINE_MAX => None,
        None => Some(false),
        Some(end) => Some(has_version(&known[word..word + end])),
    }
}

/// Whether behind a method stands a version, and something before that.
fn has_version(line: &[u8]) -> bool {
    let target = line.iter().position(|it| !matches!(it, b' ' | b'\t'));
    let behind = target.map_or(&[][..], |it| &line[it..]);
    behind
        .windows(8)
        .any(|it| matches!(it, [b' ' | b'\t', b'H', b'T', b'T', b'P', b'/', b'1', b'.']))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_of_an_unknown_method_has_a_target_and_a_version() {
        for (line, begins) in [
            ("GETX /a HTTP/1.1\n", Some(true)),
            ("GETX  * HTTP/1.0\n", Some(true)),
            ("GETX HTTP/1.1\n", Some(false)),
            ("GETX  HTTP/1.1\n", Some(false)),
            ("GETX /a\n", Some(false)),
            ("GETX /a HTTP/1.1", None),
        ] {
            assert_eq!(begins_with_any_method(line.as_bytes()), begins, "{line}");
        }
    }
}
