//! Numbers as rules write and compare them: `5`, `>5`, `<5`, `3<>9`, `!5`, `&0xf=4`, in hex and
//! with units too.

/// A range of numbers, perhaps of some of their bits alone; or all but it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Numbers {
    mask: u64,
    first: u64,
    last: u64,
    is_negated: bool,
}

/// How a keyword's numbers are written, and how many bits they have at most.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    /// In every way that there is.
    Any(u32),
    /// The same, but the ends of a range belong to it.
    WithEnds(u32),
    /// One number, decimal, to this.
    Digits(u64),
    /// By names alone.
    Named,
}

impl Form {
    /// Reads numbers that are written so.
    pub(crate) fn parse(self, text: &str) -> Result<Numbers, String> {
        match self {
            Self::Any(bits) => Numbers::parse(text, bits),
            Self::WithEnds(bits) => match Numbers::with_ends(text, bits) {
                Some(range) => Ok(range),
                None => Numbers::parse(text, bits),
            },
            Self::Digits(most) => digits(text)
                .filter(|it| *it <= most)
                .map(Numbers::one)
                .ok_or_else(|| format!("`{text}` where a number to {most} is expected")),
            Self::Named => Err(format!("`{text}` is none of its names")),
        }
    }
}

impl Numbers {
    /// `number` and no other.
    pub(crate) fn one(number: u64) -> Self {
        Self::between(number, number, false)
    }

    /// All that is not meant.
    pub(crate) fn negated(self) -> Self {
        Self { is_negated: !self.is_negated, ..self }
    }

    /// Whether `number` is meant.
    #[inline]
    pub(crate) fn contain(&self, number: u64) -> bool {
        (self.first..=self.last).contains(&(number & self.mask)) != self.is_negated
    }

    /// The one number that is meant, if it is one.
    pub(crate) fn only(&self) -> Option<u64> {
        let is_one = self.first == self.last && self.mask == u64::MAX;
        (is_one && !self.is_negated).then_some(self.first)
    }

    /// The greatest number that is meant, if there is one.
    pub(crate) fn most(&self) -> Option<u64> {
        match (self.mask, self.is_negated, self.last) {
            (u64::MAX, true, u64::MAX) => self.first.checked_sub(1),
            (u64::MAX, false, last) if last < u64::MAX => Some(last),
            _ => None,
        }
    }

    /// From the first to the last, or all but these.
    pub(crate) fn between(first: u64, last: u64, is_negated: bool) -> Self {
        Self { mask: u64::MAX, first, last, is_negated }
    }

    /// Reads what stands behind a keyword whose numbers have so many bits. The ends of `3<>9` do
    /// not belong to it, nor do those of `3-9`, which means the same.
    ///
    /// # Errors
    /// It is none of the forms, or every number is meant, or none is.
    pub(crate) fn parse(text: &str, bits: u32) -> Result<Self, String> {
        let most = u64::MAX >> (64 - bits);
        let wrong = || format!("`{text}` where a number or a range is expected, to {most}");
        Self::read(text.trim(), most).ok_or_else(wrong)
    }

    fn read(text: &str, most: u64) -> Option<Self> {
        let one = |text: &str| with_unit(text).filter(|it| *it <= most);
        if let Some((mask, number)) = text.strip_prefix('&').and_then(|it| it.split_once('=')) {
            let plain = mask.strip_suffix('!');
            let (mask, number) = (one(plain.unwrap_or(mask))?, one(number)?);
            let masked = Self { mask, ..Self::between(number, number, plain.is_some()) };
            return (number & mask == number).then_some(masked);
        }
        if let Some((is_negated, low, high)) = ends(text) {
            let (low, high) = (one(low)?, one(high)?);
            let is_range = high > low && high - low > 1;
            return is_range.then(|| Self::between(low + 1, high - 1, is_negated));
        }
        let sign = text.find(|it| !"<>=!".contains(it))?;
        let (sign, number) = (&text[..sign], one(&text[sign..])?);
        let is_of_some = match sign {
            "<" | ">=" => number > 0,
            ">" | "<=" => number < most,
            _ => true,
        };
        Self::compared(sign, number).filter(|_| is_of_some)
    }

    /// Those that stand to `number` as the operator says; `None`: there is no such operator.
    pub(crate) fn compared(operator: &str, number: u64) -> Option<Self> {
        Some(match operator {
            "" | "=" => Self::one(number),
            "!" | "!=" => Self::one(number).negated(),
            "<" => Self::between(number, u64::MAX, true),
            ">" => Self::between(0, number, true),
            "<=" => Self::between(0, number, false),
            ">=" => Self::between(number, u64::MAX, false),
            _ => return None,
        })
    }

    /// A range that its ends belong to.
    pub(crate) fn with_ends(text: &str, bits: u32) -> Option<Self> {
        let one = |text: &str| with_unit(text).filter(|it| *it <= u64::MAX >> (64 - bits));
        let (is_negated, low, high) = ends(text.trim())?;
        let (low, high) = (one(low)?, one(high)?);
        (low <= high).then(|| Self::between(low, high, is_negated))
    }
}

/// `!3-9`: whether it is negated, and both ends.
fn ends(text: &str) -> Option<(bool, &str, &str)> {
    let plain = text.strip_prefix('!');
    let range = plain.unwrap_or(text);
    let (low, high) = range.split_once("<>").or_else(|| range.split_once('-'))?;
    Some((plain.is_some(), low, high))
}

/// `0x1f`, `31`, `2kb`
fn with_unit(text: &str) -> Option<u64> {
    const UNITS: [(&str, u64); 7] = [
        ("", 1),
        ("kib", 1 << 10),
        ("kb", 1 << 10),
        ("mib", 1 << 20),
        ("mb", 1 << 20),
        ("gib", 1 << 30),
        ("gb", 1 << 30),
    ];
    let text = text.trim();
    if let Some(hex) = text.strip_prefix("0x") {
        return u64::from_str_radix(hex, 16).ok();
    }
    let (number, unit) =
        text.split_at(text.find(|it: char| !it.is_ascii_digit()).unwrap_or(text.len()));
    let factor = UNITS.iter().find(|it| it.0.eq_ignore_ascii_case(unit))?.1;
    number.parse::<u64>().ok()?.checked_mul(factor)
}

/// Digits and nothing else.
pub(crate) fn digits(text: &str) -> Option<u64> {
    let text = text.trim();
    text.bytes().all(|it| it.is_ascii_digit()).then(|| text.parse().ok())?
}

/// A number, decimal or hex (`0x1f`).
pub(crate) fn number(text: &str) -> Option<u64> {
    let text = text.trim();
    match text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
        Some(hex) => u64::from_str_radix(hex, 16).ok(),
        None => text.parse().ok(),
    }
}

/// A number with a sign, decimal or hex.
pub(crate) fn signed(text: &str) -> Option<i64> {
    let text = text.trim();
    match text.strip_prefix('-') {
        Some(rest) => number(rest).and_then(|it| i64::try_from(it).ok()).map(|it| -it),
        None => number(text.trim_start_matches('+')).and_then(|it| it.try_into().ok()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As Suricata 8.0.7 reads them.
    #[test]
    fn every_form_means_what_it_says() {
        let has = |text: &str, number| Numbers::parse(text, 16).unwrap().contain(number);
        assert!(has("5", 5) && !has("5", 4) && has("0x10", 16) && has("= 5", 5));
        assert!(has(">5", 6) && !has(">5", 5) && has(">= 5", 5));
        assert!(has("<5", 4) && !has("<5", 5) && has("<=5", 5));
        assert!(!has("!5", 5) && has("! 5", 6) && !has("!=5", 5));
        for range in ["3<>6", "3-6", "3 - 6"] {
            assert!(!has(range, 3) && has(range, 4) && has(range, 5) && !has(range, 6), "{range}");
        }
        for rest in ["!3<>6", "!3-6"] {
            assert!(has(rest, 3) && !has(rest, 4) && !has(rest, 5) && has(rest, 6), "{rest}");
        }
        for number in 0..64 {
            assert_eq!(has("&0x0c=0x04", number), number & 0xc == 4);
            assert_eq!(has("& 0x0c != 0x04", number), number & 0xc != 4);
        }
        assert!(has("1kb", 1024) && has(">1KiB", 1025) && !has(">1KiB", 1024));
    }

    /// What Suricata 8.0.7 refuses.
    #[test]
    fn numbers_are_refused_that_cannot_be_meant() {
        for wrong in [
            "", "x", "<0", ">=0", "3<>4", "5-5", "5-6", "6-3", "-1", "256", ">255", "<=255", "1kb",
            "&1", "&4=1", "!&1=1", "==5", "0X5", "5b", "+5", "5,6",
        ] {
            assert!(Numbers::parse(wrong, 8).is_err(), "{wrong}");
        }
        assert!(Numbers::parse("18446744073709551615", 64).is_ok());
        assert!(Numbers::parse("65535", 16).is_ok() && Numbers::parse("65536", 16).is_err());
        assert!(Form::Digits(255).parse("0x5").is_err() && Form::Named.parse("5").is_err());
    }

    #[test]
    fn the_ends_of_a_range_belong_to_it_where_a_keyword_has_them() {
        let has = |text: &str, number| Form::WithEnds(32).parse(text).unwrap().contain(number);
        assert!(has("5-6", 5) && has("5-6", 6) && !has("5<>6", 7) && !has("!5-6", 6));
        assert!(has(">5", 6) && !has("!5", 5));
    }
}
