//! What is wrong about how a certificate is built (RFC 5280 s4.1), in the names of Suricata's
//! events.

use super::certificate::{EXTENSIONS, INTEGER, OBJECT, SEQUENCE, VERSION, element, time as moment};
use crate::buffers::event::AppEvent;

const BITS: u8 = 0x03;
/// Numbers of issuer and subject that nobody uses.
const UNIQUE: [u8; 4] = [0x81, 0x82, 0xa1, 0xa2];

/// The first thing that is wrong about a certificate in DER.
pub(super) fn fault(certificate: &[u8]) -> Option<AppEvent> {
    if certificate.is_empty() {
        return Some(AppEvent::TlsCertificateLength);
    }
    walk(certificate).err()
}

/// Takes an element with that tag from the front of `rest`; another is what `event` says.
fn part<'a>(rest: &mut &'a [u8], tag: u8, event: AppEvent) -> Result<&'a [u8], AppEvent> {
    if rest.first().is_some_and(|it| *it != tag) {
        return Err(event);
    }
    let (_, content, behind) = element(rest).ok_or(AppEvent::TlsCertificate)?;
    *rest = behind;
    Ok(content)
}

fn walk(mut certificate: &[u8]) -> Result<(), AppEvent> {
    const DER: AppEvent = AppEvent::TlsCertificateDer;
    element(certificate).ok_or(AppEvent::TlsCertificate)?;
    let mut body = part(&mut certificate, SEQUENCE, DER)?;
    let mut rest = part(&mut body, SEQUENCE, DER)?;
    if rest.first() == Some(&VERSION) {
        let mut number = part(&mut rest, VERSION, DER)?;
        let event = AppEvent::TlsCertificateVersion;
        part(&mut number, INTEGER, event).map_err(|_| event)?;
    }
    part(&mut rest, INTEGER, AppEvent::TlsCertificateSerial)?;
    algorithm(part(&mut rest, SEQUENCE, DER)?)?;
    let _issuer = part(&mut rest, SEQUENCE, DER)?;
    validity(part(&mut rest, SEQUENCE, DER)?)?;
    let _subject = part(&mut rest, SEQUENCE, DER)?;
    let mut key = part(&mut rest, SEQUENCE, DER)?;
    part(&mut key, SEQUENCE, DER)?;
    part(&mut key, BITS, DER)?;
    while let Some(tag) = rest.first().filter(|it| UNIQUE.contains(it)) {
        part(&mut rest, *tag, DER)?;
    }
    if !rest.is_empty() {
        match part(&mut rest, EXTENSIONS, AppEvent::TlsCertificateExtensions) {
            Ok([SEQUENCE, ..] | []) | Err(AppEvent::TlsCertificate) => {}
            Ok(_) => return Err(DER),
            Err(event) => return Err(event),
        }
    }
    part(&mut body, SEQUENCE, DER)?;
    Ok(())
}

/// An object, and perhaps what it is used with.
fn algorithm(mut bytes: &[u8]) -> Result<(), AppEvent> {
    part(&mut bytes, OBJECT, AppEvent::TlsCertificateAlgorithm)?;
    match bytes.is_empty() || element(bytes).is_some() {
        true => Ok(()),
        false => Err(AppEvent::TlsCertificateLength),
    }
}

/// Two moments.
fn validity(bytes: &[u8]) -> Result<(), AppEvent> {
    let mut rest = bytes;
    for _ in 0..2 {
        let (tag, text, behind) = element(rest).ok_or(AppEvent::TlsCertificateDate)?;
        moment(tag, text).ok_or(AppEvent::TlsCertificateDate)?;
        rest = behind;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn der(tag: u8, content: &[u8]) -> Vec<u8> {
        [&[tag, 0x81, content.len() as u8], content].concat()
    }

    /// A certificate whose parts are these, the signature's algorithm last.
    fn certificate(parts: &[Vec<u8>; 9]) -> Vec<u8> {
        der(SEQUENCE, &[der(SEQUENCE, &parts[..8].concat()), parts[8].clone()].concat())
    }

    #[test]
    fn the_part_that_is_wrong_is_named() {
        use AppEvent::*;
        let algorithm = der(SEQUENCE, &der(OBJECT, &[42, 3]));
        let times = [der(0x17, b"250101000000Z"), der(0x18, b"20500101000000Z")].concat();
        let key = [der(SEQUENCE, &[]), der(BITS, &[0, 1])].concat();
        let right = [
            der(VERSION, &der(INTEGER, &[2])),
            der(INTEGER, &[1]),
            algorithm.clone(),
            der(SEQUENCE, &[]),
            der(SEQUENCE, &times),
            der(SEQUENCE, &[]),
            der(SEQUENCE, &key),
            der(EXTENSIONS, &der(SEQUENCE, &[])),
            algorithm,
        ];
        assert_eq!(fault(&certificate(&right)), None);
        let wrong = [
            (0, der(VERSION, &der(OBJECT, &[2])), TlsCertificateVersion),
            (1, der(OBJECT, &[1]), TlsCertificateSerial),
            (2, der(SEQUENCE, &der(INTEGER, &[1])), TlsCertificateAlgorithm),
            (2, der(SEQUENCE, &[OBJECT, 1, 1, 5]), TlsCertificateLength),
            (3, der(INTEGER, &[1]), TlsCertificateDer),
            (4, der(SEQUENCE, &der(0x17, b"251301000000Z")), TlsCertificateDate),
            (6, der(SEQUENCE, &[SEQUENCE, 0, BITS, 9, 0]), TlsCertificate),
            (7, der(SEQUENCE, &[]), TlsCertificateExtensions),
            (7, der(EXTENSIONS, &der(OBJECT, &[])), TlsCertificateDer),
            (8, der(OBJECT, &[]), TlsCertificateDer),
        ];
        for (place, part, event) in wrong {
            let mut parts = right.clone();
            parts[place] = part;
            assert_eq!(fault(&certificate(&parts)), Some(event), "{place}");
        }
        let whole = certificate(&right);
        for length in 1..whole.len() {
            assert!(fault(&whole[..length]).is_some(), "{length}");
        }
        assert_eq!(fault(b""), Some(TlsCertificateLength));
    }
}
