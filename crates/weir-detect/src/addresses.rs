//! From an address to the rules that name it: one look for any number of address lists.

use crate::rule::RuleIndex;
use crate::rule::ranges::Ranges;

/// A rule that names at most so many addresses on a side is found by them.
const SELECTIVE_MAX: u128 = 1 << 20;

/// Rules by the addresses that they name.
#[derive(Debug, Default)]
pub(crate) struct AddressMap {
    /// Where each piece of the address space begins; the first is 0.
    starts: Vec<u128>,
    /// The rules of each piece.
    rules: Vec<Vec<RuleIndex>>,
}

/// Collects what an [`AddressMap`] is made of.
#[derive(Debug, Default)]
pub(crate) struct AddressMapBuilder {
    /// Where a rule's range begins, and where it has ended; none beyond the last address.
    edges: Vec<(u128, RuleIndex, bool)>,
}

impl AddressMapBuilder {
    pub(crate) fn add(&mut self, ranges: &Ranges, rule: RuleIndex) {
        for (first, last) in ranges.iter() {
            self.edges.push((first, rule, true));
            if let Some(behind) = last.checked_add(1) {
                self.edges.push((behind, rule, false));
            }
        }
    }

    pub(crate) fn build(mut self) -> AddressMap {
        self.edges.sort_unstable();
        let mut map = AddressMap { starts: vec![0], rules: vec![Vec::new()] };
        let mut inside: Vec<RuleIndex> = Vec::new();
        let mut edges = self.edges.into_iter().peekable();
        while let Some((at, rule, begins)) = edges.next() {
            match begins {
                true => inside.push(rule),
                false => inside.retain(|it| *it != rule),
            }
            if edges.peek().is_some_and(|next| next.0 == at) {
                continue;
            }
            if map.starts.last() == Some(&at) {
                map.rules.pop();
            } else {
                map.starts.push(at);
            }
            map.rules.push(inside.clone());
        }
        map
    }
}

impl AddressMap {
    /// The rules that name `address`.
    #[inline]
    pub(crate) fn of(&self, address: u128) -> &[RuleIndex] {
        let behind = self.starts.partition_point(|start| *start <= address);
        behind.checked_sub(1).and_then(|at| self.rules.get(at)).map_or(&[], Vec::as_slice)
    }
}

/// Whether few enough addresses are named that a rule is better found by them.
pub(crate) fn is_selective(ranges: &Ranges) -> bool {
    let sizes = ranges.iter().map(|(first, last)| last - first);
    let sum = sizes.fold(0_u128, |sum, size| sum.saturating_add(size).saturating_add(1));
    sum <= SELECTIVE_MAX
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn the_map_finds_what_asking_every_rule_finds(
            ranges in prop::collection::vec((0u128..40, 0u128..10), 0..20),
            address in 0u128..60,
        ) {
            let mut builder = AddressMapBuilder::default();
            let mut naive = Vec::new();
            for (index, (first, length)) in ranges.iter().enumerate() {
                let range = Ranges::of(*first, first + length);
                let index = RuleIndex(index as u32);
                builder.add(&range, index);
                if range.contains(address) {
                    naive.push(index);
                }
            }
            let mut found = builder.build().of(address).to_vec();
            found.sort_unstable();
            prop_assert_eq!(found, naive);
        }
    }

    #[test]
    fn the_last_address_has_its_rules() {
        let mut builder = AddressMapBuilder::default();
        builder.add(&Ranges::of(5, u128::MAX), RuleIndex(1));
        let map = builder.build();
        assert_eq!(map.of(u128::MAX), [RuleIndex(1)]);
        assert_eq!(map.of(4), []);
    }
}
