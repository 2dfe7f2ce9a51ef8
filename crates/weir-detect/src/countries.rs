//! Where addresses are, by country (`geoip`).

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::rule::ranges::Ranges;

/// Countries that a rule names, at most.
const NAMED_MAX: usize = 256;

/// Countries by their codes of two letters (ISO 3166-1), and the addresses there.
#[derive(Clone, Debug, Default, Hash)]
pub struct Countries {
    by_code: BTreeMap<String, Ranges>,
    /// Of all of them.
    all: Arc<Ranges>,
}

impl Countries {
    /// From ranges of addresses (IPv4 mapped into IPv6), in any order.
    pub fn new(found: BTreeMap<String, Vec<(u128, u128)>>) -> Self {
        let by_code: BTreeMap<String, Ranges> =
            found.into_iter().map(|(code, ranges)| (code, Ranges::from(ranges))).collect();
        let all = by_code.values().flat_map(Ranges::iter).collect::<Vec<_>>();
        Self { by_code, all: Arc::new(Ranges::from(all)) }
    }

    /// What `geoip:src,!RU,!CN` asks.
    pub(crate) fn test(&self, value: &str) -> Result<CountryTest, String> {
        let (side, codes) = match value.split_once(',') {
            Some((side, codes)) => (side.trim(), codes),
            None => ("any", value),
        };
        let side = match side {
            "src" => Side::Source,
            "dst" => Side::Destination,
            "both" => Side::Both,
            "any" => Side::Any,
            other => return Err(format!("`{other}` behind geoip: src, dst, both, any")),
        };
        let codes: Vec<&str> = codes.split(',').map(str::trim).collect();
        if codes.len() > NAMED_MAX {
            return Err(format!("more than {NAMED_MAX} countries"));
        }
        let is_negated = codes.first().is_some_and(|it| it.starts_with('!'));
        let mut named = Ranges::default();
        for code in codes {
            let (is_other, code) = match code.strip_prefix('!') {
                Some(code) => (!is_negated, code.trim()),
                None => (is_negated, code),
            };
            let is_code = code.len() == 2 && code.bytes().all(|it| it.is_ascii_alphabetic());
            if is_other || !is_code {
                return Err(format!(
                    "`{code}` behind geoip: countries of two letters, `!` before \
                                    each or none"
                ));
            }
            // One that no address is in.
            if let Some(ranges) = self.by_code.get(&code.to_ascii_uppercase()) {
                named = named.union(ranges);
            }
        }
        Ok(CountryTest { side, named: Arc::new(named), is_negated, all: Arc::clone(&self.all) })
    }
}

/// Whose address it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Side {
    Source,
    Destination,
    Any,
    Both,
}

/// What a rule asks of where a packet's ends are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CountryTest {
    side: Side,
    named: Arc<Ranges>,
    is_negated: bool,
    all: Arc<Ranges>,
}

impl CountryTest {
    /// Of an address of which nothing is known nothing holds.
    pub(crate) fn holds(&self, source: u128, destination: u128) -> bool {
        let one = |address| match self.named.contains(address) {
            true => !self.is_negated,
            false => self.is_negated && self.all.contains(address),
        };
        match self.side {
            Side::Source => one(source),
            Side::Destination => one(destination),
            Side::Any => one(source) || one(destination),
            Side::Both => one(source) && one(destination),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rule::ranges::{address_range, number};

    fn countries() -> Countries {
        let net = |text: &str| address_range(text).unwrap().iter().next().unwrap();
        Countries::new(BTreeMap::from([
            ("SE".to_owned(), vec![net("192.0.2.0/25"), net("2001:db8:1::/48")]),
            ("NO".to_owned(), vec![net("198.51.100.0/24"), net("192.0.2.128/25")]),
        ]))
    }

    fn holds(test: &str, source: &str, destination: &str) -> bool {
        let [source, destination] =
            [source, destination].map(|it| number(it.parse().expect("an address")));
        countries().test(test).unwrap().holds(source, destination)
    }

    #[test]
    fn an_end_is_where_its_address_is() {
        let (swede, norwegian, nowhere) = ("192.0.2.1", "192.0.2.200", "203.0.113.1");
        assert!(holds("src,SE", swede, nowhere) && !holds("src,SE", nowhere, swede));
        assert!(holds("dst,NO,SE", nowhere, norwegian) && holds("dst,no,SE", nowhere, swede));
        assert!(holds("any,SE", nowhere, swede) && holds("SE", swede, nowhere));
        assert!(holds("both,SE,NO", swede, norwegian) && !holds("both,SE", swede, norwegian));
        assert!(holds("src,SE", "2001:db8:1::7", nowhere));
        assert!(!holds("src,XX", swede, nowhere));
    }

    #[test]
    fn not_somewhere_is_somewhere_else() {
        let (swede, norwegian, nowhere) = ("192.0.2.1", "192.0.2.200", "203.0.113.1");
        assert!(holds("src,!SE", norwegian, nowhere) && !holds("src,!SE", swede, nowhere));
        assert!(!holds("src,!SE", nowhere, nowhere), "nobody knows where that is");
        assert!(!holds("src,!SE,!NO", norwegian, nowhere));
    }

    #[test]
    fn what_names_no_country_is_refused() {
        for wrong in ["src", "there,SE", "src,Sweden", "src,SE,!NO", "src,!SE,NO", "src,S1"] {
            assert!(countries().test(wrong).is_err(), "{wrong}");
        }
    }
}
