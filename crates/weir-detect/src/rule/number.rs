//! Numbers as rules write and compare them: `5`, `>5`, `<5`, `3<>9`, `3-9`, `!5`, in hex too.

/// A range of numbers, or all but it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Numbers {
    first: u64,
    last: u64,
    is_negated: bool,
}

impl Numbers {
    /// `number` and no other.
    pub(crate) fn one(number: u64) -> Self {
        Self { first: number, last: number, is_negated: false }
    }

    /// All that is not meant.
    pub(crate) fn negated(self) -> Self {
        Self { is_negated: !self.is_negated, ..self }
    }

    /// Whether `number` is meant.
    #[inline]
    pub(crate) fn contain(&self, number: u64) -> bool {
        (self.first..=self.last).contains(&number) != self.is_negated
    }

    /// The one number that is meant, if it is one.
    pub(crate) fn only(&self) -> Option<u64> {
        (self.first == self.last && !self.is_negated).then_some(self.first)
    }

    /// Whether all but some are meant.
    pub(crate) fn is_negated(&self) -> bool {
        self.is_negated
    }

    /// The greatest number that is meant, if there is one.
    pub(crate) fn most(&self) -> Option<u64> {
        (!self.is_negated && self.last != u64::MAX).then_some(self.last)
    }

    /// From the first to the last, or all but these.
    pub(crate) fn between(first: u64, last: u64, is_negated: bool) -> Self {
        Self { first, last, is_negated }
    }

    /// Reads what stands behind a keyword. The ends of `3<>9` do not belong to it, those of `3-9`
    /// do.
    ///
    /// # Errors
    /// It is none of those forms, or names no number.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let text = text.trim();
        let wrong = || format!("`{text}` where a number or a range is expected");
        let one = |text: &str| number(text).ok_or_else(wrong);
        let range = |first: u64, last: u64| {
            let is_range = first <= last;
            is_range.then_some(Self { first, last, is_negated: false }).ok_or_else(wrong)
        };
        if let Some((low, high)) = text.split_once("<>") {
            let (low, high) = (one(low)?, one(high)?);
            return range(low.checked_add(1).ok_or_else(wrong)?, high.saturating_sub(1));
        }
        if let Some(rest) = text.strip_prefix("<=") {
            return range(0, one(rest)?);
        }
        if let Some(rest) = text.strip_prefix(">=") {
            return range(one(rest)?, u64::MAX);
        }
        if let Some(rest) = text.strip_prefix('<') {
            return range(0, one(rest)?.checked_sub(1).ok_or_else(wrong)?);
        }
        if let Some(rest) = text.strip_prefix('>') {
            return range(one(rest)?.checked_add(1).ok_or_else(wrong)?, u64::MAX);
        }
        if let Some(rest) = text.strip_prefix('!') {
            return Ok(Self { is_negated: true, ..Self::parse(rest)? });
        }
        if let Some((low, high)) = text.split_once('-') {
            return range(one(low)?, one(high)?);
        }
        let only = one(text.trim_start_matches('='))?;
        range(only, only)
    }
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

    #[test]
    fn every_form_means_what_it_says() {
        let has = |text: &str, number| Numbers::parse(text).unwrap().contain(number);
        assert!(has("5", 5) && !has("5", 4) && has("0x10", 16) && has("=5", 5));
        assert!(has(">5", 6) && !has(">5", 5) && has(">=5", 5));
        assert!(has("<5", 4) && !has("<5", 5) && has("<=5", 5));
        assert!(!has("3<>6", 3) && has("3<>6", 4) && has("3<>6", 5) && !has("3<>6", 6));
        assert!(has("3-6", 3) && has("3-6", 6) && !has("!5", 5) && has("!5", 6));
        for wrong in ["", "x", "<0", "3<>4", "6-3", "-1"] {
            assert!(Numbers::parse(wrong).is_err(), "{wrong}");
        }
    }
}
