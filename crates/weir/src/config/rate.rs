//! Bits a second, as people write them: 50M, 1.5G, 800k.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// The least: a packet of 1500 bytes takes a fifth of a second.
const LEAST: u64 = 64_000;
/// More is no limit here.
const MOST: u64 = 1_000_000_000_000;
const UNITS: [(char, u64); 3] = [('G', 1_000_000_000), ('M', 1_000_000), ('k', 1_000)];

/// Bits a second.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(try_from = "String", into = "String")]
pub struct Rate(u64);

impl Rate {
    /// As a number.
    pub fn bits_per_second(self) -> u64 {
        self.0
    }
}

impl FromStr for Rate {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("`{text}` is no rate: write bits a second, as 50M, 1.5G or 800k");
        let (number, unit) = UNITS
            .iter()
            .find_map(|(letter, unit)| Some((text.strip_suffix(*letter)?, *unit)))
            .unwrap_or((text, 1));
        let is_plain = number.bytes().all(|it| it.is_ascii_digit() || it == b'.');
        let number: f64 = number.parse().map_err(|_| wrong())?;
        let bits = number * unit as f64;
        if !is_plain {
            return Err(wrong());
        }
        if !(LEAST as f64..=MOST as f64).contains(&bits) {
            return Err(format!("`{text}` is not between 64k and 1000G"));
        }
        Ok(Self(bits.round() as u64))
    }
}

impl TryFrom<String> for Rate {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match UNITS.iter().find(|(_, unit)| self.0.is_multiple_of(*unit)) {
            Some((letter, unit)) => write!(f, "{}{letter}", self.0 / unit),
            None => write!(f, "{}", self.0),
        }
    }
}

impl From<Rate> for String {
    fn from(rate: Rate) -> String {
        rate.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_read_and_written_as_people_do() {
        for (text, bits, shown) in [
            ("50M", 50_000_000, "50M"),
            ("1.5G", 1_500_000_000, "1500M"),
            ("800k", 800_000, "800k"),
            ("64000", 64_000, "64k"),
            ("1000001", 1_000_001, "1000001"),
        ] {
            let rate: Rate = text.parse().unwrap();
            assert_eq!((rate.bits_per_second(), rate.to_string().as_str()), (bits, shown));
            assert_eq!(shown.parse(), Ok(rate));
        }
        for wrong in ["", "M", "50MM", "50 M", "-1M", "1e9", "inf", "63k", "2000G", "nan"] {
            assert!(wrong.parse::<Rate>().is_err(), "{wrong}");
        }
    }
}
