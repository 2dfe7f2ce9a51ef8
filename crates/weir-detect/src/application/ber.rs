//! BER (X.690): values behind tags and lengths, as SNMP, LDAP and Kerberos use them.

/// Walks over values that follow each other.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ber<'a> {
    rest: &'a [u8],
}

/// Tags of the universal class.
pub(crate) const INTEGER: u8 = 2;
pub(crate) const OCTETS: u8 = 4;
pub(crate) const IDENTIFIER: u8 = 6;
pub(crate) const ENUMERATED: u8 = 10;
pub(crate) const SEQUENCE: u8 = 0x30;
pub(crate) const SET: u8 = 0x31;

impl<'a> Ber<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    /// The next tag and its content, if it is all there; tags of several bytes are none of these
    /// applications'.
    pub(crate) fn next(&mut self) -> Option<(u8, &'a [u8])> {
        let (tag, head, length) = head(self.rest)?;
        let content = self.rest.get(head..head.checked_add(length)?)?;
        self.rest = &self.rest[head + length..];
        Some((tag, content))
    }

    /// The content of the next value, if it has that tag.
    pub(crate) fn expect(&mut self, tag: u8) -> Option<&'a [u8]> {
        let mut ahead = *self;
        let (known, content) = ahead.next()?;
        (known == tag).then(|| {
            *self = ahead;
            content
        })
    }

    /// The same as a number.
    pub(crate) fn integer(&mut self) -> Option<i64> {
        self.expect(INTEGER).and_then(integer)
    }
}

/// Tag, and lengths of the head and of the content.
fn head(bytes: &[u8]) -> Option<(u8, usize, usize)> {
    let (tag, rest) = bytes.split_first()?;
    if tag & 0x1f == 0x1f {
        return None;
    }
    match *rest.first()? {
        length @ 0..=0x7f => Some((*tag, 2, length.into())),
        count @ 0x81..=0x84 => {
            let count = usize::from(count & 0x7f);
            let digits = rest.get(1..1 + count)?;
            let length = digits.iter().fold(0, |all, it| all << 8 | usize::from(*it));
            Some((*tag, 2 + count, length))
        }
        _ => None,
    }
}

/// Tag of the value that `bytes` begin with, and as much of its content as is there.
pub(crate) fn outer(bytes: &[u8]) -> Option<(u8, &[u8])> {
    let (tag, head, length) = head(bytes)?;
    let rest = bytes.get(head..)?;
    Some((tag, &rest[..rest.len().min(length)]))
}

/// Bytes of the value that `bytes` begin with, its head included.
pub(crate) fn length(bytes: &[u8]) -> Option<usize> {
    head(bytes).and_then(|(_, head, length)| head.checked_add(length))
}

/// Whether a value among those that `bytes` has, or in one of them, is longer than what it stands
/// in.
pub(crate) fn is_cut(bytes: &[u8]) -> bool {
    /// Of a message, values in values so deep are looked at.
    const DEPTH_MAX: usize = 32;
    let mut inside = vec![(bytes, 0)];
    while let Some((mut rest, depth)) = inside.pop() {
        while !rest.is_empty() {
            let Some((tag, head, length)) = head(rest) else { return true };
            let Some(content) = rest.get(head..).and_then(|it| it.get(..length)) else {
                return true;
            };
            if tag & 0x20 != 0 && depth < DEPTH_MAX {
                inside.push((content, depth + 1));
            }
            rest = &rest[head + length..];
        }
    }
    false
}

/// A number's content.
pub(crate) fn integer(content: &[u8]) -> Option<i64> {
    let (first, _) = content.split_first()?;
    let sign = if first & 0x80 != 0 { -1 } else { 0 };
    (content.len() <= 8).then(|| content.iter().fold(sign, |all, it| all << 8 | i64::from(*it)))
}

/// An object identifier's content, as numbers with dots.
pub(crate) fn identifier(content: &[u8]) -> Option<String> {
    let mut numbers = Vec::new();
    let mut number: u64 = 0;
    for byte in content {
        number = number.checked_mul(128)? | u64::from(byte & 0x7f);
        if byte & 0x80 == 0 {
            if numbers.is_empty() {
                let first = (number / 40).min(2);
                numbers.push(first);
                number -= 40 * first;
            }
            numbers.push(number);
            number = 0;
        }
    }
    let texts: Vec<String> = numbers.iter().map(u64::to_string).collect();
    Some(texts.join("."))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_follow_each_other() {
        let mut ber = Ber::new(b"\x02\x01\x05\x04\x81\x02ab\x30\x00");
        assert_eq!(ber.integer(), Some(5));
        assert_eq!(ber.expect(SEQUENCE), None);
        assert_eq!(ber.expect(OCTETS), Some(b"ab".as_slice()));
        assert_eq!(ber.next(), Some((SEQUENCE, b"".as_slice())));
        assert_eq!(ber.next(), None);
    }

    #[test]
    fn what_does_not_fit_into_what_it_stands_in_is_cut() {
        assert!(!is_cut(b"\x30\x05\x02\x01\x05\x04\x00"));
        assert!(is_cut(b"\x30\x05\x02\x01\x05\x04\x01"));
        assert!(is_cut(b"\x30\x04\x02\x01\x05"));
        assert!(!is_cut(b"\x04\x02\x02\x09"));
    }

    #[test]
    fn numbers_and_identifiers_are_read() {
        assert_eq!(integer(b"\xff"), Some(-1));
        assert_eq!(integer(b"\x00\xff"), Some(255));
        assert_eq!(identifier(b"\x2b\x06\x01\x82\x37").as_deref(), Some("1.3.6.1.311"));
        assert_eq!(length(b"\x30\x82\x01\x00"), Some(260));
        assert_eq!(outer(b"\x30\x05ab"), Some((0x30, b"ab".as_slice())));
    }
}
