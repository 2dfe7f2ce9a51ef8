//! `asn1`: what is wrong about values in BER (X.690).

/// Values that are looked at, at most (Suricata's limit).
const VALUES_MAX: usize = 256;
/// Characters of a number beyond which decoders have failed.
const REAL_LEN: usize = 256;
const BIT_STRING: u8 = 3;
const REAL: u8 = 9;

/// `asn1:double_overflow, bitstring_overflow, relative_offset 54, oversize_length 2048`: one
/// suffices.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Asn1Test {
    reals: bool,
    bit_strings: bool,
    length: Option<u64>,
    offset: i64,
    pub(crate) is_relative: bool,
}

impl Asn1Test {
    pub(super) fn parse(value: &str) -> Result<Self, String> {
        let mut test = Self::default();
        for part in value.split(',').map(str::trim) {
            let (word, rest) = part.split_once(char::is_whitespace).unwrap_or((part, ""));
            let number = || rest.trim().parse().map_err(|_| format!("`{part}` behind asn1"));
            match word {
                "double_overflow" => test.reals = true,
                "bitstring_overflow" => test.bit_strings = true,
                "oversize_length" => {
                    test.length = Some(number().and_then(|it: i64| {
                        u64::try_from(it).map_err(|_| format!("`{part}` behind asn1"))
                    })?);
                }
                "absolute_offset" => test.offset = number()?,
                "relative_offset" => (test.offset, test.is_relative) = (number()?, true),
                other => return Err(format!("`{other}` behind asn1")),
            }
        }
        Ok(test)
    }

    /// Whether something is wrong about what stands behind `here`, or behind the beginning.
    pub(crate) fn holds(&self, bytes: &[u8], here: usize) -> bool {
        let base = if self.is_relative { here as i64 } else { 0 };
        let start = usize::try_from(base + self.offset).ok();
        let mut rest = start.and_then(|it| bytes.get(it..)).unwrap_or_default();
        for _ in 0..VALUES_MAX {
            let Some((tag, head, length)) = head(rest) else { return false };
            let content = &rest[head..];
            let content =
                &content[..content.len().min(usize::try_from(length).unwrap_or(usize::MAX))];
            if self.length.is_some_and(|it| length > it) || self.is_wrong(tag, content, length) {
                return true;
            }
            // What is made of others is looked into.
            let passed = if tag & 0x20 != 0 { head } else { head + content.len() };
            rest = &rest[passed..];
        }
        false
    }

    fn is_wrong(&self, tag: u8, content: &[u8], length: u64) -> bool {
        let unused = content.first().map_or(0, |it| u64::from(*it));
        match tag {
            BIT_STRING => self.bit_strings && length.saturating_sub(1) * 8 < unused,
            REAL => self.reals && unused & 0xc0 == 0 && length > REAL_LEN as u64,
            _ => false,
        }
    }
}

/// The tag's first byte, bytes of the head, and those that the value says to have.
fn head(bytes: &[u8]) -> Option<(u8, usize, u64)> {
    let (tag, rest) = bytes.split_first()?;
    let mut at = 0;
    if tag & 0x1f == 0x1f {
        at = rest.iter().position(|it| it & 0x80 == 0)? + 1;
    }
    let first = *rest.get(at)?;
    if first & 0x80 == 0 {
        return Some((*tag, at + 2, first.into()));
    }
    let count = usize::from(first & 0x7f);
    let digits = rest.get(at + 1..at + 1 + count)?;
    let length = digits.iter().fold(0_u64, |all, it| all.saturating_mul(256) | u64::from(*it));
    Some((*tag, at + 2 + count, length))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn holds(value: &str, bytes: &[u8]) -> bool {
        Asn1Test::parse(value).unwrap().holds(bytes, 0)
    }

    #[test]
    fn lengths_that_are_too_long_are_found_inside_of_others() {
        let bytes = b"\x30\x06\x04\x82\x10\x00ab";
        assert!(holds("oversize_length 2048", bytes) && !holds("oversize_length 4096", bytes));
        assert!(holds("oversize_length 5, absolute_offset 0", bytes));
        assert!(!holds("oversize_length 4096, absolute_offset 2", bytes));
    }

    #[test]
    fn bits_that_are_not_there_are_found() {
        assert!(holds("bitstring_overflow", b"\x03\x02\x10\xff"));
        assert!(!holds("bitstring_overflow", b"\x03\x02\x04\xff"));
    }

    #[test]
    fn numbers_that_are_too_long_are_found() {
        let long = [b"\x09\x82\x02\x00\x01".as_slice(), &[b'1'; 511]].concat();
        assert!(holds("double_overflow", &long));
        assert!(!holds("double_overflow", b"\x09\x02\x011"));
    }
}
