//! X.509 certificates (RFC 5280): the names in them, as rules write them.

/// Names of a certificate.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Names {
    /// `C=NL, O=Example, CN=www.example.org`
    pub(crate) subject: Vec<u8>,
    /// Likewise.
    pub(crate) issuer: Vec<u8>,
    /// `0A:1B:2C`
    pub(crate) serial: Vec<u8>,
}

const SEQUENCE: u8 = 0x30;
const SET: u8 = 0x31;
const INTEGER: u8 = 0x02;
const OBJECT: u8 = 0x06;
const BMP_STRING: u8 = 0x1e;

/// Why a certificate cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// A length reaches beyond what is there.
    Cut,
    /// Something stands where something else should.
    Odd,
}

/// The names in a certificate in DER.
pub(crate) fn names(certificate: &[u8]) -> Result<Names, Fault> {
    let next = |bytes| element(bytes).ok_or(Fault::Cut);
    let (tag, certificate, _) = next(certificate)?;
    let (inner, to_be_signed, _) = next(certificate)?;
    if (tag, inner) != (SEQUENCE, SEQUENCE) {
        return Err(Fault::Odd);
    }
    let (mut tag, mut body, mut rest) = next(to_be_signed)?;
    if tag == 0xa0 {
        (tag, body, rest) = next(rest)?;
    }
    if tag != INTEGER {
        return Err(Fault::Odd);
    }
    let serial = body.iter().map(|it| format!("{it:02X}")).collect::<Vec<_>>().join(":");
    let (_, _, rest) = next(rest)?;
    let (_, issuer, rest) = next(rest)?;
    let (_, _, rest) = next(rest)?;
    let (_, subject, _) = next(rest)?;
    Ok(Names { subject: name(subject), issuer: name(issuer), serial: serial.into_bytes() })
}

/// Tag, content and what follows.
fn element(bytes: &[u8]) -> Option<(u8, &[u8], &[u8])> {
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

/// An attribute by its short name (RFC 4519, PKCS #9).
fn attribute(object: &[u8]) -> String {
    let known = match object {
        [0x55, 4, 3] => "CN",
        [0x55, 4, 4] => "SN",
        [0x55, 4, 5] => "serialNumber",
        [0x55, 4, 6] => "C",
        [0x55, 4, 7] => "L",
        [0x55, 4, 8] => "ST",
        [0x55, 4, 9] => "street",
        [0x55, 4, 10] => "O",
        [0x55, 4, 11] => "OU",
        [0x55, 4, 12] => "title",
        [0x55, 4, 13] => "description",
        [0x55, 4, 17] => "postalCode",
        [0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 9, 1] => "emailAddress",
        [0x09, 0x92, 0x26, 0x89, 0x93, 0xf2, 0x2c, 0x64, 1, 25] => "DC",
        [0x09, 0x92, 0x26, 0x89, 0x93, 0xf2, 0x2c, 0x64, 1, 1] => "UID",
        other => return other.iter().map(|it| format!("{it:02x}")).collect(),
    };
    known.to_owned()
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
    fn names_stand_in_their_order() {
        let name =
            der(SEQUENCE, &[part(&[0x55, 4, 6], b"NL"), part(&[0x55, 4, 3], b"a.nl")].concat());
        let fields = [
            der(0xa0, &der(INTEGER, &[2])),
            der(INTEGER, &[0x0a, 0xff]),
            der(SEQUENCE, &[]),
            name.clone(),
            der(SEQUENCE, &[]),
            name,
        ];
        let certificate = der(SEQUENCE, &der(SEQUENCE, &fields.concat()));
        let found = names(&certificate).unwrap();
        assert_eq!(found.subject, b"C=NL, CN=a.nl");
        assert_eq!(found.issuer, b"C=NL, CN=a.nl");
        assert_eq!(found.serial, b"0A:FF");
        for length in 0..certificate.len() {
            assert_eq!(names(&certificate[..length]), Err(Fault::Cut));
        }
    }
}
