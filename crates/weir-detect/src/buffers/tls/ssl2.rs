//! Records of SSL 2, of which nothing but the head is looked at.

/// Bits of a record's first byte that tell it from a record of SSL 3.
const BITS: u8 = 0xc0;
/// The bit of a head of two bytes; others have a third, the length of padding.
const SHORT: u8 = 0x80;
/// Bytes that a record has at least, where many come at once.
const RECORD_LEN_MIN: usize = 6;
const ERROR: u8 = 0;
const CLIENT_HELLO: u8 = 1;
/// What a client's hello has in front of its lists, with its type.
const HELLO_LEN: usize = 7;

/// What is odd about a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    /// It has no length.
    Header,
    /// A hello that is too short.
    Record,
}

/// A record that is whole: its bytes, its type, and what is odd about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Record {
    pub(super) length: usize,
    pub(super) is_hello: bool,
    /// That a hello names.
    pub(super) version: u16,
    pub(super) is_error: bool,
    pub(super) fault: Option<Fault>,
}

/// Whether a client that begins so speaks SSL 2: its hello names the version, or a later one that
/// it could go on with (RFC 5246 appendix E.2).
pub(super) fn begins(bytes: &[u8]) -> bool {
    match bytes {
        [_, _, CLIENT_HELLO, 0, 2, ..] => true,
        [first, _, CLIENT_HELLO, 3, 0..=4, ciphers @ ..] if first & SHORT != 0 => {
            let length = ciphers.first_chunk().map(|it| u16::from_be_bytes(*it));
            length.is_none_or(|it| it > 0 && it % 3 == 0)
        }
        _ => false,
    }
}

/// Whether such a beginning names a later version: Suricata knows it by its server's answer alone,
/// or by the port of HTTPS.
pub(crate) fn names_later(bytes: &[u8]) -> bool {
    is_record(bytes) && matches!(bytes, [_, _, CLIENT_HELLO, 3, ..])
}

/// Whether a record that begins so is of SSL 2.
pub(super) fn is_record(bytes: &[u8]) -> bool {
    bytes.first().is_some_and(|it| it & BITS != 0)
}

/// Whether so many records are more than `length` bytes have room for.
pub(super) fn are_too_many(count: usize, length: usize) -> bool {
    count > (length / RECORD_LEN_MIN).max(1)
}

/// The first record, once it is whole.
pub(super) fn record(bytes: &[u8]) -> Option<Record> {
    let [first, second, ..] = *bytes else { return None };
    let (head, mask) = if first & SHORT != 0 { (2, 0x7f) } else { (3, 0x3f) };
    let length = usize::from(first & mask) << 8 | usize::from(second);
    let kind = *bytes.get(head)?;
    if length == 0 {
        // What has no length is told by what follows its type.
        let fault = bytes.get(head + 1).map(|_| Fault::Header)?;
        let fault = Some(fault);
        return Some(Record { length: 0, is_hello: false, version: 0, is_error: false, fault });
    }
    let body = &bytes.get(..head + length)?[head..];
    let is_hello = kind == CLIENT_HELLO;
    let version = body.get(1..).and_then(<[u8]>::first_chunk).copied();
    let version = version.map_or(0, u16::from_be_bytes);
    let fault = (is_hello && length < HELLO_LEN).then_some(Fault::Record);
    Some(Record { length: head + length, is_hello, version, is_error: kind == ERROR, fault })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_is_known_once_it_is_whole() {
        let hello = [0x80, 9, 1, 0, 2, 0, 0, 0, 0, 0, 0];
        assert!(begins(&hello));
        assert!(begins(&[0x80, 0x32, 1, 3, 3, 0, 9, 0, 0, 0, 0x20]), "of TLS 1.2");
        assert!(!begins(&[0x80, 0x32, 1, 3, 3, 0, 8, 0, 0, 0, 0x20]), "no whole ciphers");
        assert_eq!(record(&hello[..10]), None);
        let whole = record(&hello).unwrap();
        assert_eq!((whole.length, whole.is_hello, whole.fault), (11, true, None));
        let padded = [0x40, 3, 0, 0, 7, 7];
        let whole = record(&padded).unwrap();
        assert_eq!((whole.length, whole.is_error, whole.fault), (6, true, None));
        assert_eq!(record(&[0x80, 1, 1]).unwrap().fault, Some(Fault::Record));
        assert_eq!(record(&[0x80, 0, 1]), None);
        assert_eq!(record(&[0x80, 0, 1, 2]).unwrap().fault, Some(Fault::Header));
    }

    #[test]
    fn many_are_too_many_for_few_bytes() {
        assert!(!are_too_many(1, 3) && are_too_many(2, 3));
        assert!(!are_too_many(200, 1200) && are_too_many(201, 1200));
    }
}
