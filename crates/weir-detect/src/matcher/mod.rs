//! Many strings looked for at once, by Hyperscan.

mod ffi;

use std::collections::BTreeSet;
use std::sync::OnceLock;

pub use ffi::{MatcherError, Patterns, Scratch};

use crate::rule::{FastPattern, RuleIndex};
use crate::ruleset::RuleSet;

/// A string to look for.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Pattern {
    /// Its bytes; at least one.
    pub bytes: Vec<u8>,
    /// Upper and lower case are alike (ASCII).
    pub is_nocase: bool,
}

/// Bytes of a fast pattern that are looked for, at most: with each segment so many less one of the
/// bytes before are looked through again. Of longer ones it is the last, with which all has come.
pub(crate) const SOUGHT_MAX: usize = 64;

impl Pattern {
    /// What is looked for to find a rule that has that fast pattern.
    pub(crate) fn of(fast: &FastPattern) -> Self {
        let from = fast.bytes.len().saturating_sub(SOUGHT_MAX);
        Self { bytes: fast.bytes[from..].to_vec(), is_nocase: fast.is_nocase }
    }

    /// The pattern in the matcher's own language.
    fn expression(&self) -> String {
        use std::fmt::Write;
        let mut text = String::with_capacity(self.bytes.len() * 4);
        for byte in &self.bytes {
            let _ = write!(text, "\\x{byte:02x}");
        }
        text
    }
}

impl RuleSet {
    /// The fast patterns of its rules, each once: what the matcher alone would look for.
    pub fn fast_patterns(&self) -> Vec<Pattern> {
        let rules = (0..self.sids().count() as u32).map(|it| self.rule(RuleIndex(it)));
        let fast = rules.filter_map(|it| it.fast.as_ref());
        let patterns = fast.map(|it| Pattern { bytes: it.bytes.to_vec(), is_nocase: it.is_nocase });
        patterns.collect::<BTreeSet<_>>().into_iter().collect()
    }
}

/// Makes sure that the library finds what is there. Vectorscan 5.4.9, which Debian 12 has, misses
/// patterns at the end of data on x86-64 (docs/adr/0258): with it no rules are loaded.
///
/// # Errors
/// It does not, or has no memory.
pub(crate) fn try_out() -> Result<(), MatcherError> {
    static TRIED: OnceLock<Result<(), MatcherError>> = OnceLock::new();
    TRIED.get_or_init(finds_patterns_at_the_end).clone()
}

fn finds_patterns_at_the_end() -> Result<(), MatcherError> {
    for (patterns, end, wanted) in
        [(&["aaA", "|Aba"][..], "aaAbBAA", 0), (&["AA", "BA|A", "a|b", "A"], "A", 3)]
    {
        let pattern = |it: &&str| Pattern { bytes: it.as_bytes().to_vec(), is_nocase: false };
        let compiled = Patterns::compile(&patterns.iter().map(pattern).collect::<Vec<_>>())?;
        let mut scratch = Scratch::new(&[&compiled])?;
        for count in 20..120 {
            let data = ["ab".repeat(count).as_str(), end].concat();
            let mut is_found = false;
            compiled.scan(data.as_bytes(), &mut scratch, &mut |it| is_found |= it == wanted);
            if !is_found {
                return Err(MatcherError::Misses);
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The same by comparing at every place.
    fn naive(patterns: &[Pattern], data: &[u8]) -> Vec<u32> {
        let found = |it: &Pattern| {
            data.windows(it.bytes.len()).any(|window| match it.is_nocase {
                true => window.eq_ignore_ascii_case(&it.bytes),
                false => window == it.bytes,
            })
        };
        let indices = patterns.iter().enumerate().filter(|(_, it)| found(it));
        indices.map(|(index, _)| index as u32).collect()
    }

    fn scan(patterns: &[Pattern], data: &[u8]) -> Vec<u32> {
        let compiled = Patterns::compile(patterns).unwrap();
        let mut scratch = Scratch::new(&[&compiled]).unwrap();
        let mut found = Vec::new();
        compiled.scan(data, &mut scratch, &mut |id| found.push(id));
        found.sort_unstable();
        found
    }

    prop_compose! {
        fn pattern()(
            bytes in prop::collection::vec(prop::sample::select(b"aAbB\0\x7c".to_vec()), 1..5),
            is_nocase: bool,
        ) -> Pattern {
            Pattern { bytes, is_nocase }
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(200))]

        #[test]
        fn the_matcher_finds_what_comparing_at_every_place_finds(
            patterns in prop::collection::vec(pattern(), 1..8),
            data in prop::collection::vec(prop::sample::select(b"aAbB\0\x7c".to_vec()), 0..64),
        ) {
            prop_assert_eq!(scan(&patterns, &data), naive(&patterns, &data));
        }

        /// Where only the end has what most patterns want.
        #[test]
        fn and_at_the_end_of_long_data(
            patterns in prop::collection::vec(pattern(), 1..8),
            mut data in prop::collection::vec(prop::sample::select(b"ab".to_vec()), 0..500),
            end in prop::collection::vec(prop::sample::select(b"aAbB\0\x7c".to_vec()), 0..8),
        ) {
            data.extend(end);
            prop_assert_eq!(scan(&patterns, &data), naive(&patterns, &data));
        }
    }

    #[test]
    fn the_library_finds_what_is_there() {
        assert_eq!(try_out(), Ok(()));
    }

    #[test]
    fn of_thousands_of_patterns_each_is_found_once() {
        let pattern = |it: usize| Pattern { bytes: format!("<{it}>").into(), is_nocase: it > 1000 };
        let patterns: Vec<Pattern> = (0..2500).map(pattern).collect();
        assert_eq!(scan(&patterns, b"<0> <17> <0> <2499> <2500> <170>"), [0, 17, 170, 2499]);
        assert_eq!(scan(&patterns, b"<1>"), [1], "short data");
    }

    #[test]
    fn no_pattern_at_all_matches_nothing() {
        assert_eq!(scan(&[], b"abc"), []);
    }
}
