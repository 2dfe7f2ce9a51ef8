//! What rules have done to a buffer before they look at it.

use std::borrow::Cow;
use std::io::Read;

use flate2::read::{GzDecoder, ZlibDecoder};

use crate::inspect::base64;
use crate::rule::{Expression, FromBase64, Transform};

/// `bytes` after all `transforms`, in their order.
pub(crate) fn apply<'a>(bytes: &'a [u8], transforms: &[Transform]) -> Cow<'a, [u8]> {
    let mut bytes = Cow::Borrowed(bytes);
    for transform in transforms {
        bytes = Cow::Owned(one(&bytes, transform));
    }
    bytes
}

fn one(bytes: &[u8], transform: &Transform) -> Vec<u8> {
    match transform {
        Transform::Xor(key) => {
            bytes.iter().zip(key.iter().cycle()).map(|(byte, key)| byte ^ key).collect()
        }
        Transform::DotPrefix if bytes.is_empty() => Vec::new(),
        Transform::DotPrefix => [b".", bytes].concat(),
        Transform::StripWhitespace => bytes.iter().copied().filter(|it| !is_space(*it)).collect(),
        Transform::CompressWhitespace => {
            let mut was_space = false;
            let keep = |byte: &u8| {
                let is_first = !(was_space && is_space(*byte));
                was_space = is_space(*byte);
                is_first
            };
            bytes.iter().copied().filter(keep).collect()
        }
        Transform::ToLowercase => bytes.to_ascii_lowercase(),
        Transform::ToUppercase => bytes.to_ascii_uppercase(),
        Transform::UrlDecode => url_decoded(bytes),
        Transform::HeaderLowercase => header_names_lowercased(bytes),
        Transform::Md5 => crate::digest::md5(bytes).to_vec(),
        Transform::Sha1 => crate::digest::sha1(bytes).to_vec(),
        Transform::Sha256 => crate::digest::sha256(bytes).to_vec(),
        Transform::StripPseudoHeaders => without_pseudo_headers(bytes),
        Transform::FromBase64(from) => from_base64(bytes, from),
        Transform::Gunzip(most) => inflated(GzDecoder::new(bytes), *most),
        Transform::ZlibInflate(most) => inflated(ZlibDecoder::new(bytes), *most),
        Transform::Domain => weir_suffix::domain(bytes).to_vec(),
        Transform::PublicSuffix => public_suffix(bytes).to_vec(),
        Transform::Captured(Expression { regex, .. }) => {
            let captured = regex.captures(bytes).ok().flatten();
            let group = captured.and_then(|it| it.get(1).map(|it| it.as_bytes().to_vec()));
            // As Suricata has it: nothing that is captured changes nothing.
            group.filter(|it| !it.is_empty()).unwrap_or_else(|| bytes.to_vec())
        }
    }
}

/// What letters of base 64 stand for, or the bytes as they are where they stand for none, or where
/// no more is there than is to be decoded.
fn from_base64(bytes: &[u8], from: &FromBase64) -> Vec<u8> {
    let start = from.offset as usize;
    let end = match from.bytes {
        None | Some(0) => bytes.len(),
        Some(count) if start + (count as usize) < bytes.len() => start + count as usize,
        Some(_) => return bytes.to_vec(),
    };
    let decoded = bytes.get(start..end).and_then(|it| base64::decode(it, from.mode));
    decoded.unwrap_or_else(|| bytes.to_vec())
}

/// What compressed bytes become, as far as they can be read.
fn inflated(decoder: impl Read, most: usize) -> Vec<u8> {
    let mut made = Vec::new();
    // What came before it failed is all there is.
    let _ = decoder.take(most as u64).read_to_end(&mut made);
    made
}

fn is_space(byte: u8) -> bool {
    byte.is_ascii_whitespace() || byte == 0x0b
}

/// Where a `%` stands before what are no two digits, it and what was read so far stay as they are.
fn url_decoded(bytes: &[u8]) -> Vec<u8> {
    let mut decoded = Vec::with_capacity(bytes.len());
    let mut rest = bytes;
    let digit = |byte: u8| char::from(byte).to_digit(16);
    while let Some(byte) = rest.first() {
        let mut taken = 1;
        match (byte, rest.get(1), rest.get(2)) {
            (b'+', ..) => decoded.push(b' '),
            (b'%', Some(high), low) => match (digit(*high), low.and_then(|it| digit(*it))) {
                (Some(high), Some(low)) => {
                    taken = 3;
                    decoded.push((high << 4 | low) as u8);
                }
                (first, _) => {
                    taken = if first.is_some() && low.is_some() { 3 } else { 2 };
                    decoded.extend(&rest[..taken]);
                }
            },
            _ => decoded.push(*byte),
        }
        rest = &rest[taken..];
    }
    decoded
}

/// The public suffix below which a name stands, in small letters; else its last label.
fn public_suffix(name: &[u8]) -> &[u8] {
    let known = weir_suffix::public_suffix(name);
    let last = name.iter().rposition(|it| *it == b'.').map(|at| &name[at + 1..]);
    let suffix = if known.is_empty() { last.unwrap_or_default() } else { known };
    // A name that is a suffix stands below none.
    if name.len() <= suffix.len() + 1 { &[] } else { suffix }
}

fn header_names_lowercased(bytes: &[u8]) -> Vec<u8> {
    let mut in_name = true;
    let lower = |byte: &u8| {
        match byte {
            b':' => in_name = false,
            b'\n' => in_name = true,
            _ => {}
        }
        if in_name { byte.to_ascii_lowercase() } else { *byte }
    };
    bytes.iter().map(lower).collect()
}

fn without_pseudo_headers(bytes: &[u8]) -> Vec<u8> {
    let lines = bytes.split_inclusive(|it| *it == b'\n');
    lines.filter(|line| !line.starts_with(b":")).flatten().copied().collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rule::Base64Mode;

    #[test]
    fn each_transform_does_what_its_name_says() {
        assert_eq!(one(b"a.b", &Transform::DotPrefix), b".a.b");
        assert_eq!(one(b" a\tb\r\n", &Transform::StripWhitespace), b"ab");
        assert_eq!(one(b"a \t b", &Transform::CompressWhitespace), b"a b");
        assert_eq!(one(b"", &Transform::DotPrefix), b"");
        assert_eq!(one(b"AbC: DeF\r\nG: H", &Transform::HeaderLowercase), b"abc: DeF\r\ng: H");
        assert_eq!(one(b":m: x\r\nh: y\r\n", &Transform::StripPseudoHeaders), b"h: y\r\n");
        assert_eq!(one(b"abc", &Transform::Xor([1, 2].as_slice().into())), b"``b");
        let both = [Transform::ToUppercase, Transform::DotPrefix];
        assert_eq!(apply(b"ab", &both).as_ref(), b".AB");
    }

    /// As Suricata 8.0.7 decodes them.
    #[test]
    fn a_percent_before_no_two_digits_stays_and_what_was_read_behind_it() {
        for (text, decoded) in [
            ("a%41+%zz%4", "aA %zz%4"),
            ("%%41", "%%41"),
            ("%%%41", "%%A"),
            ("x%4%41", "x%4%41"),
            ("%+", "%+"),
            ("%4+", "%4+"),
            ("%%%%41", "%%%%41"),
            ("%", "%"),
        ] {
            let found = one(text.as_bytes(), &Transform::UrlDecode);
            assert_eq!(found, decoded.as_bytes(), "{text}");
        }
    }

    /// As Suricata 8.0.7 has it.
    #[test]
    fn a_public_suffix_is_known_in_small_letters_and_else_the_last_label() {
        for (name, suffix) in [
            ("www.example.co.uk", "co.uk"),
            ("WWW.Example.Co.UK", "UK"),
            ("EXAMPLE.COM", "COM"),
            ("foo.bar.github.io", "github.io"),
            ("a.b.nosuchtld", "nosuchtld"),
            ("1.2.3.4", "4"),
            ("com", ""),
            ("co.uk", ""),
            (".com", ""),
            ("COM", ""),
            ("x", ""),
        ] {
            let found = one(name.as_bytes(), &Transform::PublicSuffix);
            assert_eq!(found, suffix.as_bytes(), "{name}");
        }
    }

    /// As Suricata 8.0.7 has it.
    #[test]
    fn base_64_that_does_not_decode_stays_and_so_does_what_is_to_be_decoded_whole() {
        let decoded = |bytes, offset, text: &[u8]| {
            let from = FromBase64 { bytes, offset, mode: Base64Mode::Rfc4648 };
            one(text, &Transform::FromBase64(from))
        };
        assert_eq!(decoded(None, 0, b"YWJjZGVm"), b"abcdef");
        assert_eq!(decoded(None, 0, b"YWJjZ"), b"YWJjZ");
        assert_eq!(decoded(Some(4), 0, b"YWJjZGVm"), b"abc");
        assert_eq!(decoded(Some(5), 0, b"YWJjZGVm"), b"YWJjZGVm");
        assert_eq!(decoded(Some(8), 0, b"YWJjZGVm"), b"YWJjZGVm");
        assert_eq!(decoded(Some(0), 0, b"YWJjZGVm"), b"abcdef");
        assert_eq!(decoded(Some(4), 4, b"YWJjZGVmZ2hp"), b"def");
        assert_eq!(decoded(Some(4), 4, b"YWJjZGVm"), b"YWJjZGVm");
        assert_eq!(decoded(None, 100, b"YWJjZGVm"), b"YWJjZGVm");
    }

    #[test]
    fn what_is_not_compressed_becomes_nothing() {
        assert_eq!(one(b"plain text", &Transform::Gunzip(1024)), b"");
        assert_eq!(one(b"plain text", &Transform::ZlibInflate(1024)), b"");
    }
}
