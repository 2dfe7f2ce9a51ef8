//! `requires`: what a rule says that its reader must be able to do. A rule whose requirements are
//! not met is left out without being wrong.

use super::Buffer;
use super::header;
use super::spoken::MessageTest;
use super::transforms;
use super::units::UnitTest;

/// The version whose language this is.
const VERSION: [u32; 3] = [8, 0, 7];

/// `requires:version >= 7.0.4 < 8 | >= 8.0.3, keyword foo`: whether this language is as that one.
pub(super) fn check(value: &str) -> Result<(), String> {
    for part in value.split(',').map(str::trim) {
        let (word, rest) = part.split_once(char::is_whitespace).unwrap_or((part, ""));
        let is_met = match word {
            "version" => rest.split('|').any(has_version),
            "keyword" => is_known(rest.trim()),
            "feature" => matches!(rest.trim(), "ja3" | "ja4"),
            _ => false,
        };
        if !is_met {
            return Err(format!("`{part}` is not met"));
        }
    }
    Ok(())
}

/// Whether a keyword of that name may be used.
fn is_known(name: &str) -> bool {
    Buffer::from_name(name).is_some()
        || Buffer::from_modifier(name).is_some()
        || MessageTest::parse(name, "").is_some()
        || UnitTest::parse(name, "").is_some()
        || header::test(name, "").is_some()
        || transforms::parse(name, "").map_or(true, |it| it.is_some())
        || STEPS.contains(&name)
}

/// Keywords that stand for steps, and those about flows and rules as a whole.
const STEPS: [&str; 27] = [
    "content",
    "pcre",
    "isdataat",
    "byte_test",
    "byte_jump",
    "byte_extract",
    "byte_math",
    "bsize",
    "urilen",
    "entropy",
    "base64_decode",
    "base64_data",
    "absent",
    "dataset",
    "datarep",
    "filemd5",
    "filesha1",
    "filesha256",
    "flow",
    "flowbits",
    "flowint",
    "xbits",
    "hostbits",
    "stream_size",
    "iprep",
    "geoip",
    "rpc",
];

/// Whether the version whose language this is lies in all of the bounds.
fn has_version(bounds: &str) -> bool {
    let spaced = bounds.replace(['<', '>', '='], " ");
    let numbers = spaced.split_whitespace();
    let signs: Vec<&str> = bounds
        .split(|it: char| it.is_ascii_digit() || it == '.' || it.is_whitespace())
        .filter(|it| !it.is_empty())
        .collect();
    let mut count = 0;
    let holds = numbers.zip(&signs).all(|(text, sign)| {
        count += 1;
        let mut bound = [0; 3];
        for (part, text) in bound.iter_mut().zip(text.split('.')) {
            *part = text.parse().unwrap_or(0);
        }
        match *sign {
            ">=" => VERSION >= bound,
            ">" => VERSION > bound,
            "<" => VERSION < bound,
            "<=" => VERSION <= bound,
            _ => false,
        }
    });
    holds && count == signs.len() && count > 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_keywords_and_features_are_told() {
        for met in ["version >= 7.0.4 < 8 | >= 8.0.3, keyword content", "feature ja4"] {
            assert_eq!(check(met), Ok(()), "{met}");
        }
        for unmet in ["version >= 9", "keyword foo.bar", "feature lua", "something else"] {
            assert!(check(unmet).is_err(), "{unmet}");
        }
    }
}
