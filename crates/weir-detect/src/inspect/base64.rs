//! Base64 (RFC 4648) as rules decode it: spaces passed over, an end wherever it stops making sense.

/// Decoded bytes of at most `count` encoded ones.
pub(super) fn decode(encoded: &[u8], count: Option<u32>) -> Vec<u8> {
    let encoded = &encoded[..encoded.len().min(count.map_or(usize::MAX, |it| it as usize))];
    let mut decoded = Vec::with_capacity(encoded.len() / 4 * 3);
    let (mut bits, mut held) = (0_u32, 0);
    for byte in encoded.iter().filter(|it| !it.is_ascii_whitespace()) {
        let Some(value) = digit(*byte) else { break };
        bits = bits << 6 | u32::from(value);
        held += 6;
        if held >= 8 {
            held -= 8;
            decoded.push((bits >> held) as u8);
        }
    }
    decoded
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
    use super::decode;

    #[test]
    fn what_is_encoded_comes_back_and_the_rest_is_left() {
        assert_eq!(decode(b"aGVsbG8=", None), b"hello");
        assert_eq!(decode(b"aGVs\r\nbG8 =!x", None), b"hello");
        assert_eq!(decode(b"aGVsbG8=", Some(4)), b"hel");
        assert_eq!(decode(b"%%", None), b"");
    }
}
