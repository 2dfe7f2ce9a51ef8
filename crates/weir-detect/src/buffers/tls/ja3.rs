//! JA3 and JA3S: what a TLS hello says it can, as a line of numbers, and its MD5.

use super::counted;
use crate::digest;

/// Extensions whose content is part of the line.
const GROUPS: u16 = 10;
const POINT_FORMATS: u16 = 11;

/// A hello's line and its digest, in hex.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Fingerprint {
    pub(crate) line: Vec<u8>,
    pub(crate) hash: Vec<u8>,
}

/// Of a ClientHello: version, cipher suites, extensions, groups and point formats.
pub(crate) fn of_client(hello: &[u8]) -> Option<Fingerprint> {
    let (version, rest) = hello.split_at_checked(2)?;
    let (_session, rest) = counted(rest.get(32..)?, 1)?;
    let (suites, rest) = counted(rest, 2)?;
    let (_compressions, rest) = counted(rest, 1)?;
    let extensions = Extensions::read(rest);
    Some(fingerprint(&[
        list(words(version)),
        list(words(suites).filter(|it| !is_grease(*it))),
        list(extensions.kinds.iter().copied()),
        list(words(extensions.groups).filter(|it| !is_grease(*it))),
        list(extensions.formats.iter().map(|it| u16::from(*it))),
    ]))
}

/// Of a ServerHello: version, the suite that it chose, extensions.
pub(crate) fn of_server(hello: &[u8]) -> Option<Fingerprint> {
    let (version, rest) = hello.split_at_checked(2)?;
    let (_session, rest) = counted(rest.get(32..)?, 1)?;
    let (suite, rest) = rest.split_at_checked(2)?;
    let extensions = Extensions::read(rest.get(1..)?);
    let parts = [list(words(version)), list(words(suite)), list(extensions.kinds.iter().copied())];
    Some(fingerprint(&parts))
}

#[derive(Default)]
struct Extensions<'a> {
    kinds: Vec<u16>,
    groups: &'a [u8],
    formats: &'a [u8],
}

impl<'a> Extensions<'a> {
    fn read(bytes: &'a [u8]) -> Self {
        let mut read = Self::default();
        let Some((mut rest, _)) = counted(bytes, 2) else { return read };
        while let Some((kind, behind)) = rest.split_at_checked(2) {
            let Some((body, behind)) = counted(behind, 2) else { break };
            rest = behind;
            let kind = u16::from_be_bytes([kind[0], kind[1]]);
            match kind {
                GROUPS => read.groups = counted(body, 2).map(|it| it.0).unwrap_or_default(),
                POINT_FORMATS => read.formats = counted(body, 1).map(|it| it.0).unwrap_or_default(),
                _ => {}
            }
            if !is_grease(kind) {
                read.kinds.push(kind);
            }
        }
        read
    }
}

fn fingerprint(parts: &[String]) -> Fingerprint {
    let line = parts.join(",").into_bytes();
    Fingerprint { hash: digest::hex(&digest::md5(&line)), line }
}

pub(super) fn words(bytes: &[u8]) -> impl Iterator<Item = u16> + '_ {
    bytes.chunks_exact(2).map(|it| u16::from_be_bytes([it[0], it[1]]))
}

fn list(numbers: impl Iterator<Item = u16>) -> String {
    numbers.map(|it| it.to_string()).collect::<Vec<_>>().join("-")
}

/// Values that say nothing, so that servers pass over what they do not know (RFC 8701).
pub(super) fn is_grease(value: u16) -> bool {
    value & 0x0f0f == 0x0a0a && value >> 8 == value & 0xff
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hello_is_told_by_what_it_offers() {
        let mut hello = vec![3, 3];
        hello.extend([0; 32]);
        hello.extend([0, 0, 6, 0x0a, 0x0a, 0x13, 0x01, 0xc0, 0x2f, 1, 0]);
        let extensions = [
            &[0x1a, 0x1a, 0, 0][..],
            &[0, 0, 0, 0],
            &[0, 10, 0, 6, 0, 4, 0x2a, 0x2a, 0, 29],
            &[0, 11, 0, 2, 1, 0],
        ]
        .concat();
        hello.extend((extensions.len() as u16).to_be_bytes());
        hello.extend(&extensions);
        let found = of_client(&hello).unwrap();
        assert_eq!(found.line, b"771,4865-49199,0-10-11,29,0");
        assert_eq!(found.hash.len(), 32);
        for length in 0..hello.len() {
            let _ = of_client(&hello[..length]);
        }
    }

    #[test]
    fn a_server_is_told_by_what_it_chose() {
        let mut hello = vec![3, 3];
        hello.extend([0; 32]);
        hello.extend([0, 0x13, 0x01, 0, 0, 6, 0, 43, 0, 2, 3, 4]);
        assert_eq!(of_server(&hello).unwrap().line, b"771,4865,43");
    }
}
