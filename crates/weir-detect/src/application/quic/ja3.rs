//! JA3 and JA3S of hellos in QUIC. Values that say nothing (RFC 8701) count here: of extensions as
//! one number for all, of the rest as what they are.

use crate::buffers::tls::{Hello, counted};
use crate::digest;

const GROUPS: u16 = 10;
const POINT_FORMATS: u16 = 11;
/// The number of an extension that says nothing.
const GREASE: u16 = 0xfafa;

/// Gives a hello, which was read of `bytes`, its fingerprint.
pub(super) fn put(hello: &mut Hello, bytes: &[u8], is_client: bool) {
    let kinds: Vec<u16> = hello.extensions.iter().map(|it| told(*it)).collect();
    hello.ja3.line = line(bytes, &kinds, is_client).unwrap_or_default().into_bytes();
    hello.ja3.hash = digest::hex(&digest::md5(&hello.ja3.line));
}

/// An extension, as it is told.
pub(super) fn told(kind: u16) -> u16 {
    let is_grease = kind & 0x0f0f == 0x0a0a && kind >> 8 == kind & 0xff;
    if is_grease { GREASE } else { kind }
}

/// Version, suites and extensions; of a client groups and point formats, too.
fn line(bytes: &[u8], kinds: &[u16], is_client: bool) -> Option<String> {
    let (version, rest) = bytes.split_at_checked(2)?;
    let (_session, rest) = counted(rest.get(32..)?, 1)?;
    let kinds = list(kinds.iter().copied());
    if !is_client {
        let suite = rest.get(..2)?;
        return Some([words(version), words(suite), kinds].join(","));
    }
    let (suites, rest) = counted(rest, 2)?;
    let (_compressions, rest) = counted(rest, 1)?;
    let groups = body(rest, GROUPS).and_then(|it| counted(it, 2)).map_or(&[][..], |it| it.0);
    let formats =
        body(rest, POINT_FORMATS).and_then(|it| counted(it, 1)).map_or(&[][..], |it| it.0);
    let formats = list(formats.iter().map(|it| u16::from(*it)));
    Some([words(version), words(suites), kinds, words(groups), formats].join(","))
}

/// What an extension says, among all.
fn body(extensions: &[u8], kind: u16) -> Option<&[u8]> {
    let (mut rest, _) = counted(extensions, 2)?;
    loop {
        let (own, behind) = rest.split_first_chunk()?;
        let (body, behind) = counted(behind, 2)?;
        if u16::from_be_bytes(*own) == kind {
            return Some(body);
        }
        rest = behind;
    }
}

fn words(bytes: &[u8]) -> String {
    list(bytes.chunks_exact(2).map(|it| u16::from_be_bytes([it[0], it[1]])))
}

fn list(numbers: impl Iterator<Item = u16>) -> String {
    numbers.map(|it| it.to_string()).collect::<Vec<_>>().join("-")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(hello: &[u8], is_client: bool) -> String {
        let mut read = Hello::read(hello, is_client);
        put(&mut read, hello, is_client);
        assert_eq!(read.ja3.hash, digest::hex(&digest::md5(&read.ja3.line)));
        String::from_utf8(read.ja3.line).unwrap()
    }

    #[test]
    fn values_that_say_nothing_count() {
        let extensions =
            b"\x1a\x1a\0\0\0\x0a\0\x06\0\x04\x3a\x3a\0\x17\0\x0b\0\x02\x01\0\xca\xca\0\0";
        let suites = b"\0\x06\x1a\x1a\x13\x01\xca\xca\x01\0";
        let length = [0, extensions.len() as u8];
        let client = [&b"\x03\x03"[..], &[0; 32], b"\0", suites, &length, extensions].concat();
        assert_eq!(told(&client, true), "771,6682-4865-51914,64250-10-11-64250,14906-23,0");
        let server =
            [&b"\x03\x03"[..], &[0; 32], b"\0\x13\x01\0\0\x0a\0\x2b\0\x02\x03\x04\x5a\x5a\0\0"];
        assert_eq!(told(&server.concat(), false), "771,4865,43-64250");
        for length in 0..client.len() {
            told(&client[..length], true);
        }
    }
}
