//! HPACK's code of letters (RFC 7541 s5.2, appendix B).
//!
//! The code is canonical: codes of one length follow each other in the order of their letters, so
//! that the lengths say it all.

/// Bits of each letter's code.
const LENGTHS: [u8; 256] = [
    13, 23, 28, 28, 28, 28, 28, 28, 28, 24, 30, 28, 28, 30, 28, 28, 28, 28, 28, 28, 28, 28, 30, 28,
    28, 28, 28, 28, 28, 28, 28, 28, 6, 10, 10, 12, 13, 6, 8, 11, 10, 10, 8, 11, 8, 6, 6, 6, 5, 5,
    5, 6, 6, 6, 6, 6, 6, 6, 7, 8, 15, 6, 12, 10, 13, 6, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7,
    7, 7, 7, 7, 7, 7, 7, 7, 8, 7, 8, 13, 19, 13, 14, 6, 15, 5, 6, 5, 6, 5, 6, 6, 6, 5, 7, 7, 6, 6,
    6, 5, 6, 7, 6, 5, 5, 6, 7, 7, 7, 7, 7, 15, 11, 14, 13, 28, 20, 22, 20, 20, 22, 22, 22, 23, 22,
    23, 23, 23, 23, 23, 24, 23, 24, 24, 22, 23, 24, 23, 23, 23, 23, 21, 22, 23, 22, 23, 23, 24, 22,
    21, 20, 22, 22, 23, 23, 21, 23, 22, 22, 24, 21, 22, 23, 23, 21, 21, 22, 21, 23, 22, 23, 23, 20,
    22, 22, 22, 23, 22, 22, 23, 26, 26, 20, 19, 22, 23, 22, 25, 26, 26, 26, 27, 27, 26, 24, 25, 19,
    21, 26, 27, 27, 26, 27, 24, 21, 21, 26, 26, 28, 27, 27, 27, 20, 24, 20, 21, 22, 21, 21, 23, 22,
    22, 25, 25, 24, 24, 26, 23, 26, 27, 26, 26, 27, 27, 27, 27, 27, 28, 27, 27, 27, 27, 27, 26,
];
const LENGTH_MAX: usize = 30;

/// Letters in the order of their codes, and for each length the first code of it and where its
/// letters begin.
struct Code {
    letters: [u8; 256],
    first: [u32; LENGTH_MAX + 2],
    start: [u16; LENGTH_MAX + 2],
}

const CODE: Code = Code::of(&LENGTHS);

impl Code {
    const fn of(lengths: &[u8; 256]) -> Self {
        let mut code =
            Self { letters: [0; 256], first: [0; LENGTH_MAX + 2], start: [0; LENGTH_MAX + 2] };
        let (mut length, mut next, mut count) = (1, 0, 0);
        while length <= LENGTH_MAX + 1 {
            next <<= 1;
            code.first[length] = next;
            code.start[length] = count;
            let mut letter = 0;
            while letter < 256 {
                if lengths[letter] as usize == length {
                    code.letters[count as usize] = letter as u8;
                    count += 1;
                    next += 1;
                }
                letter += 1;
            }
            length += 1;
        }
        code
    }
}

/// The letters that `bytes` stand for, up to what is none. Whatever stands behind the last one is
/// taken for padding, as Suricata takes it; a receiver should refuse it.
pub(super) fn decode(bytes: &[u8]) -> Vec<u8> {
    let mut text = Vec::with_capacity(bytes.len() * 8 / 5);
    let (mut code, mut length) = (0_u32, 0_usize);
    for byte in bytes {
        for bit in (0..8).rev() {
            code = code << 1 | u32::from(byte >> bit & 1);
            length += 1;
            if length > LENGTH_MAX {
                return text;
            }
            let count = CODE.start[length + 1] - CODE.start[length];
            let place = code.wrapping_sub(CODE.first[length]);
            if place < count.into() {
                text.push(CODE.letters[(u32::from(CODE.start[length]) + place) as usize]);
                (code, length) = (0, 0);
            }
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn letters_are_those_of_the_specifications_examples() {
        // RFC 7541 s C.4.1, C.6.1.
        let host = [0xf1, 0xe3, 0xc2, 0xe5, 0xf2, 0x3a, 0x6b, 0xa0, 0xab, 0x90, 0xf4, 0xff];
        assert_eq!(decode(&host), b"www.example.com");
        assert_eq!(decode(&[0x64, 0x02]), b"302");
        assert_eq!(decode(&[]), b"");
    }

    #[test]
    fn what_is_no_code_ends_the_letters() {
        assert_eq!(decode(&[0x1f, 0xff, 0xff, 0xff, 0xff, 0x1f]), b"a", "the code of the end");
        assert_eq!(decode(&[0x60]), b"/", "padding of zeros");
    }
}
