//! JA4: what a TLS client can, in a form that the order of its extensions does not change.
//!
//! ```text
//!   t13d1516h2_8daaf6152771_e5627efa2ab1
//!   | | |  |  |       |            `- SHA-256 of extensions and signature algorithms, its beginning
//!   | | |  |  |       `- SHA-256 of the suites, its beginning
//!   | | |  |  `- first protocol above it, its first and last letter
//!   | | |  `- counts of suites and extensions
//!   | | `- a server's name (d), or none (i)
//!   | `- version
//!   `- TCP
//! ```

use super::counted;
use super::ja3::{is_grease, words};
use crate::digest;

const SERVER_NAME: u16 = 0;
const SIGNATURE_ALGORITHMS: u16 = 13;
const PROTOCOLS: u16 = 16;
const SUPPORTED_VERSIONS: u16 = 43;
/// Bytes of a digest that are shown.
const SHOWN: usize = 12;

/// What Suricata tells where no hello was seen.
pub(super) const OF_NOTHING: &str = "t00i000000_e3b0c44298fc_d2e2adf7177b";

/// Of a ClientHello; and what Suricata makes of it, which digests empty lists too, where one is.
pub(super) fn of_client(hello: &[u8]) -> Option<(String, Option<String>)> {
    let (version, rest) = hello.split_at_checked(2)?;
    let (_session, rest) = counted(rest.get(32..)?, 1)?;
    let (suites, rest) = counted(rest, 2)?;
    let (_compressions, rest) = counted(rest, 1)?;
    let mut version = u16::from_be_bytes([version[0], version[1]]);
    let mut suites: Vec<u16> = words(suites).filter(|it| !is_grease(*it)).collect();
    let (mut kinds, mut algorithms, mut protocol) = (Vec::new(), Vec::new(), *b"00");
    for (kind, body) in extensions(rest) {
        match kind {
            SUPPORTED_VERSIONS => {
                let offered = counted(body, 1).map(|it| it.0).unwrap_or_default();
                version = words(offered).filter(|it| !is_grease(*it)).max().unwrap_or(version);
            }
            SIGNATURE_ALGORITHMS => {
                algorithms.extend(words(counted(body, 2).map(|it| it.0).unwrap_or_default()));
            }
            PROTOCOLS => {
                let list = counted(body, 2).map(|it| it.0).unwrap_or_default();
                let first = counted(list, 1).map(|it| it.0).unwrap_or_default();
                protocol = letters(first).unwrap_or(protocol);
            }
            _ => {}
        }
        kinds.push(kind);
    }
    let name = if kinds.contains(&SERVER_NAME) { 'd' } else { 'i' };
    let counts = (suites.len().min(99), kinds.len().min(99));
    let head = format!(
        "t{}{name}{:02}{:02}{}{}",
        version_name(version),
        counts.0,
        counts.1,
        char::from(protocol[0]),
        char::from(protocol[1])
    );
    suites.sort_unstable();
    kinds.retain(|it| !matches!(*it, SERVER_NAME | PROTOCOLS));
    kinds.sort_unstable();
    let (suites, extensions, algorithms) = (list(&suites), list(&kinds), list(&algorithms));
    let both = match algorithms.as_str() {
        _ if kinds.is_empty() => String::new(),
        "" => extensions.clone(),
        some => format!("{extensions}_{some}"),
    };
    let of_suricata =
        [&suites, &extensions, &algorithms].iter().any(|it| it.is_empty()).then(|| {
            let both = digested(&format!("{extensions}_{algorithms}"));
            format!("{head}_{}_{both}", digested(&suites))
        });
    Some((format!("{head}_{}_{}", shown(&suites), shown(&both)), of_suricata))
}

fn extensions(bytes: &[u8]) -> Vec<(u16, &[u8])> {
    let mut found = Vec::new();
    let mut rest = counted(bytes, 2).map(|it| it.0).unwrap_or_default();
    while let [high, low, behind @ ..] = rest {
        let Some((body, behind)) = counted(behind, 2) else { break };
        let kind = u16::from_be_bytes([*high, *low]);
        if !is_grease(kind) {
            found.push((kind, body));
        }
        rest = behind;
    }
    found
}

/// First and last letter; of bytes that are none, the first and last digit in hex.
fn letters(name: &[u8]) -> Option<[u8; 2]> {
    let (first, last) = (*name.first()?, *name.last()?);
    if first.is_ascii_alphanumeric() && last.is_ascii_alphanumeric() {
        return Some([first, last]);
    }
    let digit = |it: u8| b"0123456789abcdef"[usize::from(it & 15)];
    Some([digit(first >> 4), digit(last)])
}

fn version_name(version: u16) -> &'static str {
    match version {
        0x304 => "13",
        0x303 => "12",
        0x302 => "11",
        0x301 => "10",
        0x300 => "s3",
        0x002 => "s2",
        _ => "00",
    }
}

fn list(numbers: &[u16]) -> String {
    numbers.iter().map(|it| format!("{it:04x}")).collect::<Vec<_>>().join(",")
}

fn shown(text: &str) -> String {
    if text.is_empty() {
        return "0".repeat(SHOWN);
    }
    digested(text)
}

fn digested(text: &str) -> String {
    let mut digest = digest::hex(&digest::sha256(text.as_bytes()));
    digest.truncate(SHOWN);
    String::from_utf8_lossy(&digest).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_is_told_whatever_the_order_of_its_extensions() {
        let hello = |extensions: &[&[u8]]| {
            let extensions = extensions.concat();
            let mut hello = vec![3, 3];
            hello.extend([0; 32]);
            hello.extend([0, 0, 6, 0x0a, 0x0a, 0x13, 0x02, 0x13, 0x01, 1, 0]);
            hello.extend((extensions.len() as u16).to_be_bytes());
            hello.extend(extensions);
            of_client(&hello).unwrap()
        };
        let name: &[u8] = &[0, 0, 0, 0];
        let alpn: &[u8] = &[0, 16, 0, 5, 0, 3, 2, b'h', b'2'];
        let versions: &[u8] = &[0, 43, 0, 5, 4, 3, 4, 3, 3];
        let groups: &[u8] = &[0, 10, 0, 4, 0, 2, 0, 29];
        let one = hello(&[name, alpn, versions, groups]);
        assert_eq!(one, hello(&[groups, versions, alpn, name]));
        // The digests are of `1301,1302` and `000a,002b`, by sha256sum.
        assert_eq!(one.0, "t13d0204h2_62ed6f6ca7ad_b0ac53b37fa7");
        assert_eq!(hello(&[]).0, "t12i020000_62ed6f6ca7ad_000000000000");
        // Suricata 8.0.7 digests a list that is empty, and the line between the two.
        let of_suricata = hello(&[]).1;
        assert_eq!(of_suricata.as_deref(), Some("t12i020000_62ed6f6ca7ad_d2e2adf7177b"));
    }
}
