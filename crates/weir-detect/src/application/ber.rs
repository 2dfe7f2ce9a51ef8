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
        let value = head(self.rest).ok()?;
        let content = self.rest.get(value.head..value.head.checked_add(value.content)?)?;
        self.rest = self.rest.get(value.whole()?..)?;
        Some((value.tag, content))
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

/// What a value begins with, and how long it is.
#[derive(Clone, Copy, Debug)]
struct Head {
    tag: u8,
    /// Bytes of tag and length.
    head: usize,
    content: usize,
    /// Bytes behind the content that end it (X.690 s8.1.3.6).
    tail: usize,
}

impl Head {
    fn whole(&self) -> Option<usize> {
        self.head.checked_add(self.content)?.checked_add(self.tail)
    }
}

/// Why it is not known how long a value is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unknown {
    /// More of it is to come.
    Short,
    /// It is none that these applications use.
    Bad,
}

/// Bytes of a value whose end is looked for, at most; values that stand in each other.
const ENDLESS_MAX: usize = 4096;
const ENDLESS_DEPTH_MAX: usize = 8;

fn head(bytes: &[u8]) -> Result<Head, Unknown> {
    head_at(bytes, 0)
}

fn head_at(bytes: &[u8], depth: usize) -> Result<Head, Unknown> {
    let [tag, rest @ ..] = bytes else { return Err(Unknown::Short) };
    if tag & 0x1f == 0x1f {
        return Err(Unknown::Bad);
    }
    let short = |head, content| Head { tag: *tag, head, content, tail: 0 };
    match *rest.first().ok_or(Unknown::Short)? {
        length @ 0..=0x7f => Ok(short(2, length.into())),
        0x80 if tag & 0x20 != 0 => {
            let content = endless(&rest[1..], depth)?;
            Ok(Head { tag: *tag, head: 2, content, tail: 2 })
        }
        count @ 0x81..=0xfe => {
            let count = usize::from(count & 0x7f);
            let digits = rest.get(1..1 + count).ok_or(Unknown::Short)?;
            let zeros = digits.iter().take_while(|it| **it == 0).count();
            if count - zeros > size_of::<usize>() {
                return Err(Unknown::Bad);
            }
            let length = digits.iter().fold(0, |all, it| all << 8 | usize::from(*it));
            Ok(short(2 + count, length))
        }
        _ => Err(Unknown::Bad),
    }
}

/// Bytes before two zeros that end a content.
fn endless(bytes: &[u8], depth: usize) -> Result<usize, Unknown> {
    if depth == ENDLESS_DEPTH_MAX {
        return Err(Unknown::Bad);
    }
    let mut at = 0;
    loop {
        if at > ENDLESS_MAX {
            return Err(Unknown::Bad);
        }
        let rest = bytes.get(at..).ok_or(Unknown::Short)?;
        if rest.starts_with(&[0, 0]) {
            return Ok(at);
        }
        let whole = head_at(rest, depth + 1)?.whole().ok_or(Unknown::Bad)?;
        at = at.checked_add(whole).ok_or(Unknown::Bad)?;
    }
}

/// Tag of the value that `bytes` begin with, and as much of its content as is there.
pub(crate) fn outer(bytes: &[u8]) -> Option<(u8, &[u8])> {
    // One that has no end yet goes on as far as is known.
    if let [tag, 0x80, rest @ ..] = bytes
        && tag & 0x20 != 0
    {
        return Some((*tag, rest));
    }
    let Head { tag, head, content, .. } = head(bytes).ok()?;
    let rest = bytes.get(head..)?;
    Some((tag, &rest[..rest.len().min(content)]))
}

/// Bytes of the value that `bytes` begin with, its head included.
///
/// # Errors
/// It is not known.
pub(crate) fn length(bytes: &[u8]) -> Result<usize, Unknown> {
    head(bytes)?.whole().ok_or(Unknown::Bad)
}

/// Whether a value among those that `bytes` has, or in one of them, is longer than what it stands
/// in.
pub(crate) fn is_cut(bytes: &[u8]) -> bool {
    /// Of a message, values in values so deep are looked at.
    const DEPTH_MAX: usize = 32;
    let mut inside = vec![(bytes, 0)];
    while let Some((mut rest, depth)) = inside.pop() {
        while !rest.is_empty() {
            let Ok(value) = head(rest) else { return true };
            let content = rest.get(value.head..).and_then(|it| it.get(..value.content));
            let behind = value.whole().and_then(|it| rest.get(it..));
            let (Some(content), Some(behind)) = (content, behind) else { return true };
            if value.tag & 0x20 != 0 && depth < DEPTH_MAX {
                inside.push((content, depth + 1));
            }
            rest = behind;
        }
    }
    false
}

/// A number's content: of one that is longer than 64 bits the last of them.
pub(crate) fn integer(content: &[u8]) -> Option<i64> {
    let (first, _) = content.split_first()?;
    let sign = if first & 0x80 != 0 { -1 } else { 0 };
    Some(content.iter().fold(sign, |all, it| all << 8 | i64::from(*it)))
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
    fn a_length_may_be_long_or_not_said() {
        let mut ber =
            Ber::new(b"\x30\x85\0\0\0\0\x03\x02\x01\x05\x30\x80\x02\x01\x07\0\0\x02\x01\x09");
        assert_eq!(ber.expect(SEQUENCE), Some(b"\x02\x01\x05".as_slice()));
        assert_eq!(ber.expect(SEQUENCE), Some(b"\x02\x01\x07".as_slice()));
        assert_eq!(ber.integer(), Some(9));
        for (bytes, found) in [
            (&b"\x30\x80\x30\x80\0\0"[..], Err(Unknown::Short)),
            (b"\x30\x80\x30\x80\0\0\0\0", Ok(8)),
            (b"\x04\x80\0\0", Err(Unknown::Bad)),
            (b"\x30\xff", Err(Unknown::Bad)),
            (b"\x3f\x01", Err(Unknown::Bad)),
            (b"\x30\x85", Err(Unknown::Short)),
            (&[0x30, 0x80].repeat(20), Err(Unknown::Bad)),
            (&[&[0x30, 0x80][..], &[2, 1, 5].repeat(2000)].concat(), Err(Unknown::Bad)),
        ] {
            assert_eq!(length(bytes), found, "{bytes:?}");
        }
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
        assert_eq!(length(b"\x30\x82\x01\x00"), Ok(260));
        assert_eq!(outer(b"\x30\x05ab"), Some((0x30, b"ab".as_slice())));
    }
}
