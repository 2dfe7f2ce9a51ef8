//! Base64 (RFC 4648) as rules decode it, and as Suricata 8.0.7 does: four letters at a time.

use crate::rule::Base64Mode;

/// What letters stand for; `None` if they stand for nothing.
pub(crate) fn decode(encoded: &[u8], mode: Base64Mode) -> Option<Vec<u8>> {
    let mut decoded = Vec::with_capacity(encoded.len() / 4 * 3);
    let (mut letters, mut held) = ([0; 4], 0);
    for letter in encoded {
        if *letter != b'=' && digit(*letter).is_none() {
            match mode {
                Base64Mode::Strict => return None,
                Base64Mode::Rfc4648 => break,
                Base64Mode::Rfc2045 => continue,
            }
        }
        letters[held] = *letter;
        held += 1;
        if held == letters.len() {
            decoded.extend(quad(&letters)?);
            held = 0;
        }
    }
    match (held, mode) {
        (0, Base64Mode::Strict) if !is_canonical(encoded) => return None,
        (0, _) | (_, Base64Mode::Rfc2045) => {}
        (_, Base64Mode::Strict) => return None,
        (_, Base64Mode::Rfc4648) => decoded.extend(quad(&letters[..held])?),
    }
    Some(decoded).filter(|it| !it.is_empty())
}

/// Four letters or fewer, of which two are no padding.
fn quad(letters: &[u8]) -> Option<Vec<u8>> {
    let digits: Vec<u32> = letters.iter().map_while(|it| digit(*it)).map(u32::from).collect();
    let bits = digits.iter().enumerate().fold(0, |bits, (at, it)| bits | it << (18 - 6 * at));
    let bytes = digits.len().checked_sub(1).filter(|it| *it > 0)?;
    Some(bits.to_be_bytes()[1..=bytes].to_vec())
}

/// Whether there is padding but at the end, and no bit is left over.
fn is_canonical(encoded: &[u8]) -> bool {
    let end = encoded.iter().position(|it| *it == b'=').unwrap_or(encoded.len());
    let last = end.checked_sub(1).and_then(|it| digit(encoded[it])).unwrap_or_default();
    let left_over = [0, 0, 0x0f, 0x03][end % 4];
    encoded[end..].iter().all(|it| *it == b'=') && last & left_over == 0
}

/// What a letter stands for.
pub(crate) fn digit(letter: u8) -> Option<u8> {
    Some(match letter {
        b'A'..=b'Z' => letter - b'A',
        b'a'..=b'z' => letter - b'a' + 26,
        b'0'..=b'9' => letter - b'0' + 52,
        b'+' => 62,
        b'/' => 63,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As Suricata 8.0.7 has them; empty is what stands for nothing.
    #[test]
    fn letters_are_decoded_as_the_mode_says() {
        for (encoded, plain, strict, mime) in [
            ("YWJjZA==", "abcd", "abcd", "abcd"),
            ("YWJjZA", "abcd", "", "abc"),
            ("YWJjZ", "", "", "abc"),
            ("YWJjZ=", "", "", "abc"),
            ("YW=", "a", "", ""),
            ("YW\r\n JjZGVm", "a", "", "abcdef"),
            ("YWJj!ZGVm", "abc", "", "abcdef"),
            ("YWJj\0ZGVm", "abc", "", "abcdef"),
            ("  YWJj", "", "", "abc"),
            ("YWJjZGVm\r\n", "abcdef", "", "abcdef"),
            ("YWJj=ZGVm", "", "", ""),
            ("YWI=ZGVm", "abdef", "", "abdef"),
            ("YW==ZGVm", "adef", "", "adef"),
            ("YWI==", "", "", "ab"),
            ("YWJjZGVmZA=Z", "abcdefd", "", "abcdefd"),
            ("YR==", "a", "", "a"),
            ("====", "", "", ""),
            ("Y=WJ", "", "", ""),
            ("Y", "", "", ""),
        ] {
            let as_read = |mode| decode(encoded.as_bytes(), mode).unwrap_or_default();
            assert_eq!(as_read(Base64Mode::Rfc4648), plain.as_bytes(), "{encoded}");
            assert_eq!(as_read(Base64Mode::Strict), strict.as_bytes(), "{encoded}, strict");
            assert_eq!(as_read(Base64Mode::Rfc2045), mime.as_bytes(), "{encoded}, rfc2045");
        }
    }
}
