//! What rules have done to a buffer before they look at it.

use std::borrow::Cow;
use std::io::Read;

use flate2::read::{GzDecoder, ZlibDecoder};

use crate::rule::{Base64Mode, Expression, FromBase64, Transform};

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
        Transform::Gunzip(most) => inflated(GzDecoder::new(bytes), *most, bytes),
        Transform::ZlibInflate(most) => inflated(ZlibDecoder::new(bytes), *most, bytes),
        Transform::Domain => weir_suffix::domain(bytes).to_vec(),
        Transform::PublicSuffix => weir_suffix::public_suffix(bytes).to_vec(),
        Transform::Captured(Expression { regex, .. }) => {
            let captured = regex.captures(bytes).ok().flatten();
            let group = captured.and_then(|it| it.get(1).map(|it| it.as_bytes().to_vec()));
            group.unwrap_or_else(|| bytes.to_vec())
        }
    }
}

/// What letters of base 64 stand for, or the bytes as they are where they stand for none.
fn from_base64(bytes: &[u8], from: &FromBase64) -> Vec<u8> {
    let given = bytes.get(from.offset as usize..).unwrap_or_default();
    let length = from.bytes.map_or(given.len(), |it| given.len().min(it as usize));
    let (mut decoded, mut number, mut letters) = (Vec::new(), 0_u32, 0);
    for byte in &given[..length] {
        let value = match byte {
            b'A'..=b'Z' => byte - b'A',
            b'a'..=b'z' => byte - b'a' + 26,
            b'0'..=b'9' => byte - b'0' + 52,
            b'+' => 62,
            b'/' => 63,
            b'=' => break,
            _ if from.mode == Base64Mode::Rfc2045 => continue,
            _ if from.mode == Base64Mode::Strict => return bytes.to_vec(),
            _ => break,
        };
        number = number << 6 | u32::from(value);
        letters += 1;
        if letters % 4 != 1 {
            decoded.push((number >> [0, 0, 4, 2][letters % 4]) as u8);
        }
    }
    if decoded.is_empty() { bytes.to_vec() } else { decoded }
}

/// What compressed bytes become, as far as they can be read, or the bytes as they are.
fn inflated(decoder: impl Read, most: usize, bytes: &[u8]) -> Vec<u8> {
    let mut made = Vec::new();
    // What came before it failed is all there is.
    let _ = decoder.take(most as u64).read_to_end(&mut made);
    if made.is_empty() { bytes.to_vec() } else { made }
}

fn is_space(byte: u8) -> bool {
    byte.is_ascii_whitespace() || byte == 0x0b
}

fn url_decoded(bytes: &[u8]) -> Vec<u8> {
    let mut decoded = Vec::with_capacity(bytes.len());
    let mut rest = bytes;
    let digit = |byte: u8| char::from(byte).to_digit(16);
    while let [byte, behind @ ..] = rest {
        rest = behind;
        decoded.push(match (byte, behind) {
            (b'+', _) => b' ',
            (b'%', [high, low, after @ ..]) => match (digit(*high), digit(*low)) {
                (Some(high), Some(low)) => {
                    rest = after;
                    (high << 4 | low) as u8
                }
                _ => b'%',
            },
            _ => *byte,
        });
    }
    decoded
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

    #[test]
    fn each_transform_does_what_its_name_says() {
        assert_eq!(one(b"a.b", &Transform::DotPrefix), b".a.b");
        assert_eq!(one(b" a\tb\r\n", &Transform::StripWhitespace), b"ab");
        assert_eq!(one(b"a \t b", &Transform::CompressWhitespace), b"a b");
        assert_eq!(one(b"a%41+%zz%4", &Transform::UrlDecode), b"aA %zz%4");
        assert_eq!(one(b"AbC: DeF\r\nG: H", &Transform::HeaderLowercase), b"abc: DeF\r\ng: H");
        assert_eq!(one(b":m: x\r\nh: y\r\n", &Transform::StripPseudoHeaders), b"h: y\r\n");
        assert_eq!(one(b"abc", &Transform::Xor([1, 2].as_slice().into())), b"``b");
        let both = [Transform::ToUppercase, Transform::DotPrefix];
        assert_eq!(apply(b"ab", &both).as_ref(), b".AB");
    }
}
