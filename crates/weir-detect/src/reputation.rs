//! What is known of addresses: categories, and a score of each address in them (`iprep`).

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::rule::Numbers;
use crate::rule::ranges::address_range;

/// Addresses and nets that are kept, at most; lines beyond are passed over and counted.
const ENTRIES_MAX: usize = 4_000_000;
/// The best score.
const SCORE_MAX: u8 = 127;

/// Categories by name, and who is in them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Reputation {
    categories: BTreeMap<String, u8>,
    scores: Arc<BTreeMap<u8, Scores>>,
    entries: usize,
    /// Lines that could not be read, or for which there was no room.
    pub lines_left: u64,
}

/// One category.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
struct Scores {
    /// Those of addresses that are listed themselves.
    hosts: BTreeMap<u128, u8>,
    /// Those of nets, by the number of addresses behind the first, then by the first. `/32` is one.
    nets: BTreeMap<u128, BTreeMap<u128, u8>>,
}

impl Scores {
    /// The score that the narrowest net gives.
    fn of_net(&self, address: u128) -> Option<u8> {
        self.nets.iter().find_map(|(span, nets)| nets.get(&(address & !span)).copied())
    }

    /// The score of an address that is listed itself.
    fn of_host(&self, address: u128) -> Option<u8> {
        self.hosts.get(&address).copied()
    }
}

impl Reputation {
    /// Reads lines of `number,name,description`.
    pub fn read_categories(&mut self, text: &str) {
        for line in lines(text) {
            let mut parts = line.splitn(3, ',').map(str::trim);
            let (number, name) = (parts.next().and_then(|it| it.parse().ok()), parts.next());
            match number.zip(name) {
                Some((number, name)) => _ = self.categories.insert(name.to_owned(), number),
                None => self.lines_left += 1,
            }
        }
    }

    /// Reads lines of `address or net,category,score`. An address that comes again has the score
    /// of the last line.
    pub fn read_scores(&mut self, text: &str) {
        for line in lines(text) {
            match entry(line) {
                Some(((first, last), category, score)) if self.entries < ENTRIES_MAX => {
                    self.entries += 1;
                    let scores = Arc::make_mut(&mut self.scores).entry(category).or_default();
                    match is_net(line) {
                        true => scores.nets.entry(last - first).or_default().insert(first, score),
                        false => scores.hosts.insert(first, score),
                    };
                }
                _ => self.lines_left += 1,
            }
        }
    }

    /// What `iprep:any,category,>,10` asks.
    pub(crate) fn test(&self, value: &str) -> Result<ReputationTest, String> {
        let wrong = || format!("`{value}` behind iprep: a side, a category and a score");
        let parts: Vec<&str> = value.split(',').map(str::trim).collect();
        let (side, name, wanted) = match parts.as_slice() {
            [side, name, "isset"] => (*side, *name, Wanted::Known(true)),
            [side, name, "isnotset"] => (*side, *name, Wanted::Known(false)),
            [side, name, comparison, score] => {
                let score: u8 = score.parse().map_err(|_| wrong())?;
                if score > SCORE_MAX {
                    return Err(format!("a score of {score}, {SCORE_MAX} at most"));
                }
                let comparison = match *comparison {
                    "=" => "",
                    "!=" => "!",
                    other => other,
                };
                let numbers = Numbers::parse(&format!("{comparison}{score}"), 8)?;
                (*side, *name, Wanted::Score(numbers))
            }
            _ => return Err(wrong()),
        };
        let side = match side {
            "src" => Side::Source,
            "dst" => Side::Destination,
            "any" => Side::Any,
            "both" => Side::Both,
            _ => return Err(wrong()),
        };
        let category = self.categories.get(name);
        let category = *category.ok_or_else(|| format!("no category `{name}`"))?;
        Ok(ReputationTest { side, wanted, category, scores: self.scores.clone() })
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Side {
    Source,
    Destination,
    Any,
    Both,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wanted {
    Score(Numbers),
    Known(bool),
}

/// What a rule asks of the reputation of a packet's ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ReputationTest {
    side: Side,
    wanted: Wanted,
    category: u8,
    scores: Arc<BTreeMap<u8, Scores>>,
}

impl ReputationTest {
    /// The score of an address. As with Suricata, one that is listed itself, in any category, has
    /// 0 in the others, whatever nets say; one that is not has the narrowest net's, or none.
    fn score(&self, address: u128) -> Option<u8> {
        let own = self.scores.get(&self.category);
        let is_listed = || self.scores.values().any(|it| it.of_host(address).is_some());
        match own.and_then(|it| it.of_host(address)) {
            None if is_listed() => Some(0),
            None => own.and_then(|it| it.of_net(address)),
            score => score,
        }
    }

    /// Where an address has no score no comparison holds. `isnotset` takes 0 for none, too.
    pub(crate) fn holds(&self, source: u128, destination: u128) -> bool {
        let one = |address| match (self.wanted, self.score(address)) {
            (Wanted::Known(true), score) => score.is_some(),
            (Wanted::Known(false), score) => score.is_none_or(|it| it == 0),
            (Wanted::Score(numbers), score) => score.is_some_and(|it| numbers.contain(it.into())),
        };
        match self.side {
            Side::Source => one(source),
            Side::Destination => one(destination),
            Side::Any => one(source) || one(destination),
            Side::Both => one(source) && one(destination),
        }
    }
}

fn lines(text: &str) -> impl Iterator<Item = &str> {
    text.lines().map(str::trim).filter(|it| !it.is_empty() && !it.starts_with('#'))
}

/// Whether a line is about a net, be it one of a single address.
fn is_net(line: &str) -> bool {
    line.split(',').next().is_some_and(|it| it.contains(['/', '-']))
}

/// First and last address, category, score.
fn entry(line: &str) -> Option<((u128, u128), u8, u8)> {
    let mut parts = line.split(',').map(str::trim);
    let range = address_range(parts.next()?)?;
    let (first, last) = range.iter().next()?;
    let (category, score) = (parts.next()?.parse().ok()?, parts.next()?.parse().ok()?);
    // A net: its addresses are one block.
    let is_block = (last - first).checked_add(1).is_none_or(u128::is_power_of_two);
    (is_block && score <= SCORE_MAX).then_some(((first, last), category, score))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rule::ranges::number;

    fn holds(test: &str, source: &str, destination: &str) -> bool {
        let mut reputation = Reputation::default();
        reputation.read_categories("# none\n1,bad,Bad\n2,good,Good\n");
        reputation.read_scores("10.0.0.0/8,1,20\n10.1.0.0/16,1,0\n10.1.1.1,1,99\nx,1,1\n::1,2,5\n");
        assert_eq!(reputation.lines_left, 1);
        let at = |text: &str| number(text.parse().unwrap());
        reputation.test(test).unwrap().holds(at(source), at(destination))
    }

    #[test]
    fn the_narrowest_entry_counts() {
        assert!(holds("src,bad,=,99", "10.1.1.1", "1.1.1.1"));
        assert!(holds("src,bad,=,0", "10.1.1.2", "1.1.1.1"));
        assert!(holds("any,bad,>,19", "1.1.1.1", "10.2.0.1"));
        assert!(!holds("both,bad,>,19", "1.1.1.1", "10.2.0.1"));
        assert!(holds("dst,good,<,6", "1.1.1.1", "::1"));
    }

    #[test]
    fn who_is_not_known_has_no_score() {
        assert!(!holds("src,bad,!=,5", "1.1.1.1", "1.1.1.1"));
        assert!(holds("src,bad,isnotset", "1.1.1.1", "1.1.1.1"));
        assert!(holds("src,bad,isset", "10.9.9.9", "1.1.1.1"));
    }

    #[test]
    fn an_address_that_is_listed_has_0_in_other_categories() {
        let of = |test: &str| holds(test, "10.1.1.1", "1.1.1.1");
        assert!(of("src,good,=,0") && of("src,good,isset") && of("src,good,isnotset"));
        assert!(!holds("src,good,isset", "10.1.1.2", "1.1.1.1"), "a net is in its category alone");
        assert!(holds("src,bad,=,0", "::1", "1.1.1.1"));
    }

    #[test]
    fn a_net_of_one_address_is_in_its_category_alone() {
        let mut reputation = Reputation::default();
        reputation.read_categories("1,bad,Bad\n2,good,Good\n");
        reputation.read_scores("10.0.0.1/32,1,50\n10.0.0.0/8,2,30\n");
        let host = number("10.0.0.1".parse().unwrap());
        for held in ["src,bad,=,50", "src,good,=,30"] {
            assert!(reputation.test(held).unwrap().holds(host, 0), "{held}");
        }
    }
}
