//! Long headers of QUIC (RFC 9000 s17.2, RFC 9369 s3.2), and those that Google's own versions had:
//! up to Q043 a public one, where only a client's first packets tell a version.

use super::google::HASH_LEN;

pub(super) const VERSION_1: u32 = 1;
pub(super) const VERSION_2: u32 = 0x6b33_43cf;
pub(super) const DRAFTS: u32 = 0xff00_0000;
pub(super) const DRAFT_MASK: u32 = 0xffff_ff00;
/// `Q0` of Google's versions, which digits follow.
const GOOGLE: u32 = 0x5130_0000;
const GOOGLE_MASK: u32 = 0xffff_0000;
const GOOGLE_46: u32 = 0x5130_3436;
/// Longest number of a connection in versions that are known.
const CONNECTION_LEN_MAX: usize = 20;
pub(super) const LONG: u8 = 0x80;
pub(super) const FIXED: u8 = 0x40;
/// In the flags of a public header: it tells its version, and its connection's number.
const PUBLIC: u8 = 0x09;
const PUBLIC_NUMBER_LEN: usize = 8;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// The first of a side, whose keys are known.
    Initial,
    /// A client's first one, as Google's versions have it: in clear.
    Google,
    Retry,
    /// It tells its version alone.
    Other,
}

/// A packet that tells its version.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Packet<'a> {
    pub(super) kind: Kind,
    pub(super) version: u32,
    pub(super) destination: &'a [u8],
    pub(super) source: &'a [u8],
    /// From its first byte to its last.
    pub(super) bytes: &'a [u8],
    /// Where its packet number begins.
    pub(super) head: usize,
    /// What else is in the datagram.
    pub(super) behind: &'a [u8],
}

/// A version, as EVE spells it.
pub(super) fn version_name(version: u32) -> String {
    match version {
        VERSION_1 => "1".into(),
        VERSION_2 => "v2".into(),
        0x5130_3339 | 0x5130_3433..=GOOGLE_46 => {
            version.to_be_bytes().into_iter().map(char::from).collect()
        }
        other => format!("{other:x}"),
    }
}

/// Whether a version is one that somebody made for use.
pub(super) fn is_known(version: u32) -> bool {
    matches!(version, VERSION_1 | VERSION_2)
        || version & DRAFT_MASK == DRAFTS
        || version & GOOGLE_MASK == GOOGLE
}

impl<'a> Packet<'a> {
    /// The first packet of a datagram; `None`: it has a short header, or is cut.
    pub(super) fn read(datagram: &'a [u8]) -> Option<Self> {
        let ([first, version @ ..], mut rest) = datagram.split_first_chunk::<5>()?;
        let version = u32::from_be_bytes(*version);
        if first & LONG == 0 {
            return Self::public(datagram);
        }
        if version & GOOGLE_MASK == GOOGLE && version <= GOOGLE_46 {
            return Self::google(datagram, version);
        }
        let destination = number(&mut rest)?;
        let source = number(&mut rest)?;
        let whole = |kind| Self {
            kind,
            version,
            destination,
            source,
            bytes: datagram,
            head: datagram.len(),
            behind: &[],
        };
        if version == 0 {
            return Some(whole(Kind::Other));
        }
        // Version 2 counts from one more.
        let kind = (first >> 4).wrapping_sub(u8::from(version == VERSION_2)) & 3;
        let kind = match kind {
            0 => Kind::Initial,
            3 => return Some(whole(Kind::Retry)),
            _ => Kind::Other,
        };
        if kind == Kind::Initial {
            let length = usize::try_from(integer(&mut rest)?).ok()?;
            rest = rest.get(length..)?;
        }
        let length = usize::try_from(integer(&mut rest)?).ok()?;
        let behind = rest.get(length..)?;
        let bytes = &datagram[..datagram.len() - behind.len()];
        let head = bytes.len() - length;
        Some(Self { kind, version, destination, source, bytes, head, behind })
    }

    /// Google's oldest: flags, the connection's number, the version and the packet's number.
    fn public(datagram: &'a [u8]) -> Option<Self> {
        let (first, rest) = datagram.split_first()?;
        if first & (LONG | FIXED | PUBLIC) != PUBLIC {
            return None;
        }
        let (destination, rest) = rest.split_at_checked(PUBLIC_NUMBER_LEN)?;
        let (version, rest) = rest.split_first_chunk()?;
        let [b'Q', b'0', b'0'..=b'4', b'0'..=b'9'] = version else { return None };
        let number_len = [1, 2, 4, 6][usize::from(first >> 4 & 3)];
        rest.get(number_len + HASH_LEN..)?;
        Some(Self {
            kind: Kind::Google,
            version: u32::from_be_bytes(*version),
            destination,
            source: &[],
            bytes: datagram,
            head: datagram.len() - rest.len() + number_len,
            behind: &[],
        })
    }

    /// Google's: lengths in one byte, and a datagram to itself.
    fn google(datagram: &'a [u8], version: u32) -> Option<Self> {
        let (first, lengths) = (*datagram.first()?, *datagram.get(5)?);
        let length = |it: u8| if it == 0 { 0 } else { usize::from(it) + 3 };
        let rest = &datagram[6..];
        let (destination, rest) = rest.split_at_checked(length(lengths >> 4))?;
        let (source, rest) = rest.split_at_checked(length(lengths & 15))?;
        let (is_first, number_len) = match version {
            GOOGLE_46 => (first & 0x30 == 0, usize::from(first & 3) + 1),
            _ => (first & 0x7f == 0x7f, 4),
        };
        rest.get(number_len..)?;
        Some(Self {
            kind: if is_first { Kind::Google } else { Kind::Other },
            version,
            destination,
            source,
            bytes: datagram,
            head: datagram.len() - rest.len() + number_len,
            behind: &[],
        })
    }
}

/// A connection's number behind its length.
fn number<'a>(rest: &mut &'a [u8]) -> Option<&'a [u8]> {
    let (length, behind) = rest.split_first()?;
    let (number, behind) = behind.split_at_checked(usize::from(*length))?;
    *rest = behind;
    (number.len() <= CONNECTION_LEN_MAX).then_some(number)
}

/// An integer whose first two bits say how long it is (RFC 9000 s16).
pub(super) fn integer(rest: &mut &[u8]) -> Option<u64> {
    let length = 1 << (rest.first()? >> 6);
    let (bytes, behind) = rest.split_at_checked(length)?;
    *rest = behind;
    let all = bytes.iter().fold(0, |number, byte| number << 8 | u64::from(*byte));
    Some(all & (u64::MAX >> (66 - 8 * length)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn integers_say_how_long_they_are() {
        // RFC 9000 A.1.
        let cases: [(&[u8], u64); 5] = [
            (&[0xc2, 0x19, 0x7c, 0x5e, 0xff, 0x14, 0xe8, 0x8c], 151_288_809_941_952_652),
            (&[0x9d, 0x7f, 0x3e, 0x7d], 494_878_333),
            (&[0x7b, 0xbd], 15_293),
            (&[0x25], 37),
            (&[0x40, 0x25], 37),
        ];
        for (bytes, number) in cases {
            assert_eq!(integer(&mut &*bytes), Some(number));
            assert_eq!(integer(&mut &bytes[..bytes.len() - 1]), None);
        }
    }

    #[test]
    fn packets_of_a_datagram_are_told_apart() {
        let initial = b"\xc0\0\0\0\x01\x02ab\x01c\0\x03\0\0\0";
        let handshake = b"\xe0\0\0\0\x01\x02ab\x01c\x02\0\0";
        let both = [&initial[..], handshake].concat();
        let first = Packet::read(&both).unwrap();
        assert_eq!((first.kind, first.destination, first.head), (Kind::Initial, &b"ab"[..], 12));
        assert_eq!(first.behind, handshake);
        assert_eq!(Packet::read(first.behind).unwrap().kind, Kind::Other);
        for length in 0..initial.len() {
            assert_eq!(Packet::read(&initial[..length]), None);
        }
        assert_eq!(Packet::read(b"\x40abcdefghijk"), None);
    }

    #[test]
    fn googles_oldest_tell_their_version_behind_the_connections_number() {
        let with = |first: u8, version: &[u8]| {
            [&[first], &b"connects"[..], version, b"\x01", &[0; HASH_LEN]].concat()
        };
        let bytes = with(0x0d, b"Q043");
        let read = Packet::read(&bytes).unwrap();
        assert_eq!((read.kind, read.version, read.head), (Kind::Google, 0x5130_3433, 14));
        assert_eq!(read.destination, b"connects");
        assert_eq!(Packet::read(&bytes[..bytes.len() - 1]), None);
        let others: [(u8, &[u8]); 5] =
            [(0x0d, b"Q0x3"), (0x0d, b"Q099"), (0x0c, b"Q043"), (0x01, b"Q043"), (0x4d, b"Q043")];
        for (first, version) in others {
            assert_eq!(Packet::read(&with(first, version)), None, "{first:x} {version:?}");
        }
        assert_eq!(Packet::read(&with(0x2d, b"Q043")), None, "its number is longer");
    }

    #[test]
    fn version_2_counts_kinds_from_one_more() {
        let initial = b"\xd0\x6b\x33\x43\xcf\x02ab\x01c\0\x03\0\0\0";
        assert_eq!(Packet::read(initial).unwrap().kind, Kind::Initial);
        assert_eq!(Packet::read(b"\xc0\x6b\x33\x43\xcf\0\0token").unwrap().kind, Kind::Retry);
    }
}
