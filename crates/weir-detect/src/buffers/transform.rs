//! What rules have done to a buffer before they look at it.

use std::borrow::Cow;

use crate::rule::Transform;

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
    }
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
