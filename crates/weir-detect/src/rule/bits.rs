//! Flags of TCP and of fragments, as rules compare them: `flags:SA`, `flags:*FR`, `fragbits:!MD`.

use super::header::HeaderTest;

const SYN_RST_FIN: u8 = 0x07;
const URG_ECE_CWR: u8 = 0xe0;

/// How flag bits are compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BitsHow {
    /// These and no others.
    Exactly,
    /// These and others (`+`); of TCP perhaps no others.
    All,
    /// Any of these (`*`).
    Any,
    /// Not all of these (`!`).
    NotAll,
}

impl BitsHow {
    fn of(sign: char) -> Option<Self> {
        match sign {
            '+' => Some(Self::All),
            '*' => Some(Self::Any),
            '!' => Some(Self::NotAll),
            _ => None,
        }
    }

    fn holds(self, present: u8, bits: u8) -> bool {
        match self {
            Self::Exactly => present == bits,
            Self::All => present & bits == bits,
            Self::Any => present & bits != 0,
            Self::NotAll => present & bits != bits,
        }
    }

    /// Whether the bits of a fragment are as asked.
    pub(crate) fn hold_of_fragment(self, present: u8, bits: u8) -> bool {
        self.holds(present, bits) && (self != Self::All || present != bits)
    }

    /// Whether the flags of a segment are as asked. As in Suricata 8.0.7, who asks for one of SYN,
    /// RST and FIN is not told of segments without any of them, whatever the comparison; nor is who
    /// asks for one of URG, ECE and CWR.
    pub(crate) fn hold_of_segment(self, flags: u8, bits: u8, ignored: u8) -> bool {
        let is_told = |group: u8| bits & group == 0 || flags & group != 0;
        match (bits, self) {
            (0, Self::NotAll) => flags != 0,
            (0, Self::Any) => false,
            (0, _) => flags == 0,
            _ => is_told(SYN_RST_FIN) && is_told(URG_ECE_CWR) && self.holds(flags & !ignored, bits),
        }
    }
}

/// `fragbits:+MD`: what stands behind the letters is passed over, as Suricata 8.0.7 does.
pub(super) fn of_fragment(value: &str) -> Result<HeaderTest, String> {
    let text = value.trim();
    let how = text.chars().next().and_then(BitsHow::of);
    let letters = if how.is_some() { text[1..].trim_start() } else { text };
    let bits = letters.chars().map_while(|it| "MDR".find(it)).fold(0, |bits, it| bits | 1 << it);
    match bits {
        0 => Err(format!("`{value}`: no fragment bit")),
        _ => Ok(HeaderTest::FragmentBits { bits, how: how.unwrap_or(BitsHow::Exactly) }),
    }
}

/// `flags:+SA,12`: how, which, and which are not looked at.
pub(super) fn of_segment(value: &str) -> Result<HeaderTest, String> {
    let (flags, ignored) = value.split_once(',').unwrap_or((value, ""));
    let mut signs = flags.chars().filter_map(BitsHow::of);
    let how = signs.next().unwrap_or(BitsHow::Exactly);
    if signs.next().is_some() {
        return Err(format!("`{value}`: compared in two ways"));
    }
    let letters = flags.replace(['+', '*', '!', ' '], "");
    if letters.is_empty() {
        return Err("no TCP flag".to_owned());
    }
    let bits = letters.chars().try_fold(0, |bits, letter| match letter {
        '0' => Ok(0),
        _ => flag(letter).map(|flag| bits | flag),
    })?;
    let ignored = ignored.trim().chars().try_fold(0, |bits, it| flag(it).map(|it| bits | it))?;
    Ok(HeaderTest::TcpFlags { bits, ignored, how })
}

fn flag(letter: char) -> Result<u8, String> {
    Ok(match letter.to_ascii_uppercase() {
        'F' => 0x01,
        'S' => 0x02,
        'R' => 0x04,
        'P' => 0x08,
        'A' => 0x10,
        'U' => 0x20,
        'E' | '2' => 0x40,
        'C' | '1' => 0x80,
        other => return Err(format!("TCP flag `{other}`")),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Flags, of all that there are, with which a segment is as asked.
    fn segments(value: &str) -> Vec<u8> {
        let Ok(HeaderTest::TcpFlags { bits, ignored, how }) = of_segment(value) else {
            panic!("{value}");
        };
        (0..=u8::MAX).filter(|it| how.hold_of_segment(*it, bits, ignored)).collect()
    }

    fn fragments(value: &str) -> Vec<u8> {
        let Ok(HeaderTest::FragmentBits { bits, how }) = of_fragment(value) else {
            panic!("{value}");
        };
        (0..8).filter(|it| how.hold_of_fragment(*it, bits)).collect()
    }

    /// As many as Suricata 8.0.7 alerts on, of one segment with each of the 256.
    #[test]
    fn flags_of_tcp_are_compared_as_suricata_does() {
        for (value, count) in [
            ("S", 1),
            ("!S", 96),
            ("!SA", 160),
            ("+0", 1),
            ("!0", 255),
            ("*0", 0),
            ("+A", 128),
            ("AP+", 64),
            ("*SU", 160),
            ("+SU", 64),
            ("SU", 1),
            ("*PA", 192),
            ("!PA", 192),
            ("!U", 96),
            ("!UP", 160),
            ("0,12", 1),
            ("S,12", 4),
            ("+S,12", 128),
            ("!SA,12", 160),
            ("*SU,12", 160),
            ("!CE", 160),
            ("A,S", 2),
            ("!A,SF", 128),
            ("*AS", 176),
            ("+0,12", 1),
        ] {
            assert_eq!(segments(value).len(), count, "{value}");
        }
        assert_eq!(segments("S,12"), [0x02, 0x42, 0x82, 0xc2]);
        assert_eq!(segments("A,S"), [0x10, 0x12]);
        for wrong in ["", "+", ",12", "+!S", "X"] {
            assert!(of_segment(wrong).is_err(), "{wrong}");
        }
    }

    /// More fragments is 1, do not fragment 2, reserved 4.
    #[test]
    fn bits_of_fragments_are_compared_as_suricata_does() {
        let of: &[(&str, &[u8])] = &[
            ("M", &[1]),
            ("MD", &[3]),
            ("+M", &[3, 5, 7]),
            ("+D", &[3, 6, 7]),
            ("+MD", &[7]),
            ("*MD", &[1, 2, 3, 5, 6, 7]),
            ("!M", &[0, 2, 4, 6]),
            ("!MD", &[0, 1, 2, 4, 5, 6]),
            ("!MDR", &[0, 1, 2, 3, 4, 5, 6]),
            ("+DR", &[7]),
            ("D+", &[2]),
            ("M D", &[1]),
            ("D,M", &[2]),
        ];
        for (value, found) in of {
            assert_eq!(fragments(value), *found, "{value}");
        }
        for wrong in ["", "+", "!", "m", "X"] {
            assert!(of_fragment(wrong).is_err(), "{wrong}");
        }
    }
}
