//! X.509 certificates (RFC 5280): what rules and records ask of one.

use crate::digest;
use crate::heap::heap_size;
use crate::value::hex;

/// What is read of a certificate.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Certificate {
    /// `C=NL, O=Example, CN=www.example.org`
    pub(crate) subject: Vec<u8>,
    /// Likewise.
    pub(crate) issuer: Vec<u8>,
    /// `0A:1B:2C`
    pub(crate) serial: Vec<u8>,
    /// When it begins to be valid, and when it ends.
    pub(crate) not_before: Moment,
    pub(crate) not_after: Moment,
    /// Further names of its subject.
    pub(crate) alternative_names: Vec<Vec<u8>>,
    /// SHA-1 of it all, `0a:1b:...`.
    pub(crate) fingerprint: Vec<u8>,
}
heap_size!(Certificate { subject, issuer, serial, alternative_names, fingerprint });

/// Seconds in UTC, counted from the beginning of the year 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Moment(pub(crate) u64);

/// The year 1970, as a [`Moment`].
pub(crate) const EPOCH: u64 = 62_167_219_200;
const DAY: u64 = 86_400;
/// Days from the March of the year -400, where the calendar's 400 years begin, to the year 0.
const BEFORE: u64 = 146_037;
/// Alternative names that are kept, at most.
pub(super) const NAMES_MAX: usize = 4096;

pub(super) const SEQUENCE: u8 = 0x30;
const SET: u8 = 0x31;
const BOOLEAN: u8 = 0x01;
pub(super) const INTEGER: u8 = 0x02;
const OCTETS: u8 = 0x04;
pub(super) const OBJECT: u8 = 0x06;
const UTC_TIME: u8 = 0x17;
const GENERALIZED_TIME: u8 = 0x18;
const BMP_STRING: u8 = 0x1e;
pub(super) const VERSION: u8 = 0xa0;
pub(super) const EXTENSIONS: u8 = 0xa3;
const ALTERNATIVE_NAMES: [u8; 3] = [0x55, 29, 17];

impl Certificate {
    /// What a certificate in DER says; of one that is built wrongly as much as can be found.
    pub(crate) fn read(certificate: &[u8]) -> Option<Self> {
        let (tag, body, _) = element(certificate)?;
        let (inner, to_be_signed, _) = element(body)?;
        if (tag, inner) != (SEQUENCE, SEQUENCE) {
            return None;
        }
        let (mut tag, mut number, mut rest) = element(to_be_signed)?;
        if tag == VERSION {
            (tag, number, rest) = element(rest)?;
        }
        if tag != INTEGER {
            return None;
        }
        let (_algorithm, _, rest) = element(rest)?;
        let (_, issuer, rest) = element(rest)?;
        let (_, validity, rest) = element(rest)?;
        let (_, subject, rest) = element(rest)?;
        let [not_before, not_after] = times(validity);
        Some(Self {
            subject: name(subject),
            issuer: name(issuer),
            serial: hex(number, ":").to_ascii_uppercase().into_bytes(),
            not_before,
            not_after,
            alternative_names: alternative_names(rest),
            fingerprint: hex(&digest::sha1(certificate), ":").into_bytes(),
        })
    }
}

impl Moment {
    /// `2015-02-12T18:07:27`
    pub(crate) fn text(self) -> String {
        let (day, second) = (self.0 / DAY, self.0 % DAY);
        // Years begin in March here, so that the day that some lack is their last.
        let day = day + BEFORE;
        let era = day / 146_097;
        let of_era = day % 146_097;
        let year = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
        let of_year = of_era - (365 * year + year / 4 - year / 100);
        let month = (5 * of_year + 2) / 153;
        let date = of_year - (153 * month + 2) / 5 + 1;
        let month = if month < 10 { month + 3 } else { month - 9 };
        let year = (year + era * 400 + u64::from(month <= 2)).saturating_sub(400);
        let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
        format!("{year:04}-{month:02}-{date:02}T{hour:02}:{minute:02}:{second:02}")
    }

    /// Of year, month, day, hour, minute and second; `None`: there is no such moment.
    pub(crate) fn of([year, month, date, hour, minute, second]: [u64; 6]) -> Option<Self> {
        let is_there = year <= 9999
            && (1..=12).contains(&month)
            && (1..=31).contains(&date)
            && hour < 24
            && minute < 60
            && second <= 60;
        if !is_there {
            return None;
        }
        let (years, month) = if month > 2 { (400, month - 3) } else { (399, month + 9) };
        let (era, of_era) = ((year + years) / 400, (year + years) % 400);
        let of_year = (153 * month + 2) / 5 + date - 1;
        let day = era * 146_097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year;
        let day = day.checked_sub(BEFORE)?;
        Some(Self(day * DAY + hour * 3600 + minute * 60 + second))
    }
}

/// Tag, content and what follows.
pub(super) fn element(bytes: &[u8]) -> Option<(u8, &[u8], &[u8])> {
    let [tag, length, rest @ ..] = bytes else { return None };
    let (length, rest) = match length {
        0..=0x7f => (usize::from(*length), rest),
        0x81..=0x84 => {
            let (count, rest) = rest.split_at_checked(usize::from(length & 0x7f))?;
            (count.iter().fold(0, |length, byte| length << 8 | usize::from(*byte)), rest)
        }
        _ => return None,
    };
    let (content, rest) = rest.split_at_checked(length)?;
    Some((*tag, content, rest))
}

/// Both ends of a validity; one that is no moment is the year 0.
fn times(validity: &[u8]) -> [Moment; 2] {
    let mut rest = validity;
    [(); 2].map(|()| {
        let Some((tag, text, behind)) = element(rest) else { return Moment::default() };
        rest = behind;
        time(tag, text).unwrap_or_default()
    })
}

/// `YYMMDDhhmmssZ` or `YYYYMMDDhhmmssZ` (RFC 5280 s4.1.2.5).
pub(super) fn time(tag: u8, text: &[u8]) -> Option<Moment> {
    let width = match tag {
        UTC_TIME => 2,
        GENERALIZED_TIME => 4,
        _ => return None,
    };
    let number = |bytes: &[u8]| std::str::from_utf8(bytes).ok()?.parse::<u64>().ok();
    let (year, rest) = text.split_at_checked(width)?;
    let year = match (width, number(year)?) {
        (2, year @ 0..50) => year + 2000,
        (2, year) => year + 1900,
        (_, year) => year,
    };
    let mut parts = rest.chunks_exact(2).map(number);
    let mut part = || parts.next().flatten();
    Moment::of([year, part()?, part()?, part()?, part()?, part().unwrap_or_default()])
}

/// A distinguished name, its parts in the order in which they stand.
fn name(mut bytes: &[u8]) -> Vec<u8> {
    let mut text = Vec::new();
    while let Some((SET, set, rest)) = element(bytes) {
        bytes = rest;
        let Some((SEQUENCE, pair, _)) = element(set) else { continue };
        let Some((OBJECT, object, value)) = element(pair) else { continue };
        let Some((tag, value, _)) = element(value) else { continue };
        if !text.is_empty() {
            text.extend_from_slice(b", ");
        }
        text.extend_from_slice(attribute(object).as_bytes());
        text.push(b'=');
        match tag {
            BMP_STRING => text.extend(value.chunks_exact(2).map(|it| it[1])),
            _ => text.extend_from_slice(value),
        }
    }
    text
}

/// An attribute as Suricata spells it, which rules are written by, else by its numbers.
fn attribute(object: &[u8]) -> String {
    let known = match object {
        [0x55, 4, 3] => "CN",
        [0x55, 4, 4] => "surname",
        [0x55, 4, 5] => "serialNumber",
        [0x55, 4, 6] => "C",
        [0x55, 4, 7] => "L",
        [0x55, 4, 8] => "ST",
        [0x55, 4, 9] => "streetAddress",
        [0x55, 4, 10] => "O",
        [0x55, 4, 11] => "OU",
        [0x55, 4, 12] => "title",
        [0x55, 4, 13] => "description",
        [0x55, 4, 14] => "searchGuide",
        [0x55, 4, 15] => "businessCategory",
        [0x55, 4, 16] => "postalAddress",
        [0x55, 4, 17] => "postalCode",
        [0x55, 4, 41] => "name",
        [0x55, 4, 42] => "givenName",
        [0x55, 4, 43] => "initials",
        [0x55, 4, 44] => "generationQualifier",
        [0x55, 4, 45] => "uniqueIdentifier",
        [0x55, 4, 46] => "dnQualifier",
        [0x55, 29, 17] => "subjectAltName",
        // Those of certificates of extended validation.
        [0x2b, 6, 1, 4, 1, 0x82, 0x37, 60, 2, 1, 1] => "msJurisdictionLocality",
        [0x2b, 6, 1, 4, 1, 0x82, 0x37, 60, 2, 1, 2] => "msJurisdictionStateOrProvince",
        [0x2b, 6, 1, 4, 1, 0x82, 0x37, 60, 2, 1, 3] => "msJurisdictionCountry",
        [0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 9, 1] => "Email",
        [0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 9, 2] => "unstructuredName",
        [0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 9, 7] => "challengePassword",
        [0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 9, 14] => "extensionRequest",
        [0x09, 0x92, 0x26, 0x89, 0x93, 0xf2, 0x2c, 0x64, 1, 25] => "DC",
        [0x09, 0x92, 0x26, 0x89, 0x93, 0xf2, 0x2c, 0x64, 1, 1] => "uid",
        other => return format!("OID({})", dotted(other)),
    };
    known.to_owned()
}

/// An object identifier as `1.3.6.1`.
fn dotted(object: &[u8]) -> String {
    let mut parts: Vec<u64> = Vec::new();
    let mut number: u64 = 0;
    for byte in object {
        number = number << 7 | u64::from(byte & 0x7f);
        if byte & 0x80 == 0 {
            if parts.is_empty() {
                let first = (number / 40).min(2);
                parts.push(first);
                number -= 40 * first;
            }
            parts.push(number);
            number = 0;
        }
    }
    parts.iter().map(u64::to_string).collect::<Vec<_>>().join(".")
}

/// The names in the extension that has them, of what stands behind a certificate's subject.
fn alternative_names(mut rest: &[u8]) -> Vec<Vec<u8>> {
    let mut names = Vec::new();
    while let Some((tag, body, behind)) = element(rest) {
        rest = behind;
        let Some((SEQUENCE, mut extensions, _)) = element(body).filter(|_| tag == EXTENSIONS)
        else {
            continue;
        };
        while let Some((SEQUENCE, extension, behind)) = element(extensions) {
            extensions = behind;
            let Some((OBJECT, object, mut value)) = element(extension) else { continue };
            if object != ALTERNATIVE_NAMES {
                continue;
            }
            if let Some((BOOLEAN, _, behind)) = element(value) {
                value = behind;
            }
            let Some((OCTETS, list, _)) = element(value) else { continue };
            let Some((SEQUENCE, mut list, _)) = element(list) else { continue };
            while let Some((tag, value, behind)) = element(list) {
                list = behind;
                if names.len() < NAMES_MAX {
                    names.extend(general_name(tag, value));
                }
            }
        }
    }
    names
}

/// A name (RFC 5280 s4.2.1.6) as Suricata writes it.
fn general_name(tag: u8, value: &[u8]) -> Option<Vec<u8>> {
    let within = |kind: &str, text: &[u8]| [kind.as_bytes(), b"(", text, b")"].concat();
    Some(match tag {
        0x81 => within("RFC822Name", value),
        // A host, a URI.
        0x82 | 0x86 => value.to_vec(),
        0xa4 => within("DirectoryName", &name(element(value)?.1)),
        0x87 => format!("{value:?}").into_bytes(),
        0x88 => within("RegisteredID", dotted(value).as_bytes()),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn der(tag: u8, content: &[u8]) -> Vec<u8> {
        [&[tag, content.len() as u8], content].concat()
    }

    fn part(object: &[u8], value: &[u8]) -> Vec<u8> {
        der(SET, &der(SEQUENCE, &[der(OBJECT, object), der(0x0c, value)].concat()))
    }

    #[test]
    fn attributes_are_spelled_as_in_suricata() {
        const COUNTRY: [u8; 11] = [0x2b, 6, 1, 4, 1, 0x82, 0x37, 60, 2, 1, 3];
        assert_eq!(attribute(&COUNTRY), "msJurisdictionCountry");
        assert_eq!(attribute(&[0x55, 4, 43]), "initials");
        assert_eq!(attribute(&[0x55, 4, 99]), "OID(2.5.4.99)");
    }

    #[test]
    fn what_a_certificate_says_is_read() {
        let name =
            der(SEQUENCE, &[part(&[0x55, 4, 6], b"NL"), part(&[0x2b, 6, 1], b"a.nl")].concat());
        let times = [der(UTC_TIME, b"150212180727Z"), der(GENERALIZED_TIME, b"20500209180727Z")];
        let names = [der(0x82, b"b.nl"), der(0x87, &[192, 0, 2, 1])].concat();
        let extension =
            [der(OBJECT, &ALTERNATIVE_NAMES), der(OCTETS, &der(SEQUENCE, &names))].concat();
        let fields = [
            der(VERSION, &der(INTEGER, &[2])),
            der(INTEGER, &[0, 0xff]),
            der(SEQUENCE, &[]),
            name.clone(),
            der(SEQUENCE, &times.concat()),
            name,
            der(SEQUENCE, &[]),
            der(EXTENSIONS, &der(SEQUENCE, &der(SEQUENCE, &extension))),
        ];
        let bytes = fields.concat();
        let inner = [&[SEQUENCE, 0x81, bytes.len() as u8], bytes.as_slice()].concat();
        let whole = [&[SEQUENCE, 0x81, inner.len() as u8], inner.as_slice()].concat();
        let found = Certificate::read(&whole).unwrap();
        assert_eq!(found.subject, b"C=NL, OID(1.3.6.1)=a.nl");
        assert_eq!(found.issuer, found.subject);
        assert_eq!(found.serial, b"00:FF");
        assert_eq!(found.not_before.text(), "2015-02-12T18:07:27");
        assert_eq!(found.not_after.text(), "2050-02-09T18:07:27");
        assert_eq!(found.alternative_names, [b"b.nl".to_vec(), b"[192, 0, 2, 1]".to_vec()]);
        for length in 0..whole.len() {
            assert_eq!(Certificate::read(&whole[..length]), None);
        }
    }

    #[test]
    fn moments_are_those_of_the_calendar() {
        assert_eq!(Moment::of([1970, 1, 1, 0, 0, 0]), Some(Moment(EPOCH)));
        assert_eq!(Moment::of([0, 1, 1, 0, 0, 1]), Some(Moment(1)));
        for parts in [[2000, 2, 29, 23, 59, 59], [1900, 3, 1, 0, 0, 0], [2024, 12, 31, 1, 2, 3]] {
            let [year, month, date, hour, minute, second] = parts;
            let text = format!("{year:04}-{month:02}-{date:02}T{hour:02}:{minute:02}:{second:02}");
            assert_eq!(Moment::of(parts).unwrap().text(), text);
        }
        let days = |parts| Moment::of(parts).unwrap().0 / DAY;
        assert_eq!(days([2024, 3, 1, 0, 0, 0]) - days([2024, 2, 28, 0, 0, 0]), 2);
        assert_eq!(days([2023, 3, 1, 0, 0, 0]) - days([2023, 2, 28, 0, 0, 0]), 1);
        assert_eq!(Moment::of([2024, 13, 1, 0, 0, 0]), None);
    }
}
