//! Prefixes that overlap, among tens of thousands, without comparing all pairs.
//!
//! Two prefixes are disjoint, or one holds the other. Sorted by network and then by length, a
//! prefix comes before all that it holds, and these come before any that it does not: so one
//! comparison each, with the widest at hand, finds whatever lies in another.

use super::address::Prefix;

/// Every item whose prefix lies in another's, with one that it lies in. Of several with the same
/// prefix, the first in `items` holds the others.
pub(super) fn find<T: Copy>(mut items: Vec<T>, prefix: impl Fn(&T) -> Prefix) -> Vec<(T, T)> {
    items.sort_by_key(|item| (prefix(item).network(), prefix(item).length_bits()));
    let mut found = Vec::new();
    let mut widest: Option<T> = None;
    for item in items {
        match widest {
            Some(other) if prefix(&other).overlaps(&prefix(&item)) => found.push((item, other)),
            _ => widest = Some(item),
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

    use proptest::prelude::*;

    use super::*;

    /// Few bits, so that much overlaps, at both ends of both families.
    fn prefixes() -> impl Strategy<Value = Vec<Prefix>> {
        let one =
            (any::<bool>(), 0..=4_u8, 0..16_u32, 0..4_u32).prop_map(|(v4, len, high, low)| {
                let (address, len): (IpAddr, u8) = match (v4, len) {
                    (true, 4) => (Ipv4Addr::from(high << 28 | low).into(), 32),
                    (true, _) => (Ipv4Addr::from(high << 28).into(), len),
                    (false, 4) => {
                        (Ipv6Addr::from(u128::from(high) << 124 | u128::from(low)).into(), 128)
                    }
                    (false, _) => (Ipv6Addr::from(u128::from(high) << 124).into(), len),
                };
                let bits = match address {
                    IpAddr::V4(v4) => u128::from(v4.to_bits()) << 96,
                    IpAddr::V6(v6) => v6.to_bits(),
                };
                let kept = bits & u128::MAX.checked_shl(128 - u32::from(len)).unwrap_or(0);
                let network: IpAddr = match address {
                    IpAddr::V4(_) => Ipv4Addr::from((kept >> 96) as u32).into(),
                    IpAddr::V6(_) => Ipv6Addr::from(kept).into(),
                };
                format!("{network}/{len}").parse().unwrap()
            });
        prop::collection::vec(one, 0..24)
    }

    /// Whether `inner`, the item of that index, lies in another one: all pairs compared.
    fn lies_in_another(all: &[Prefix], index: usize) -> bool {
        let inner = all[index];
        all.iter().enumerate().any(|(other, outer)| {
            let narrower = inner.length_bits() > outer.length_bits();
            let later = inner == *outer && index > other;
            outer.overlaps(&inner) && (narrower || later)
        })
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2000))]

        #[test]
        fn what_overlaps_is_what_all_pairs_say(all in prefixes()) {
            let items: Vec<usize> = (0..all.len()).collect();
            let found = find(items, |index| all[*index]);
            for (inner, outer) in &found {
                prop_assert!(inner != outer && all[*outer].overlaps(&all[*inner]));
                prop_assert!(all[*outer].length_bits() <= all[*inner].length_bits());
            }
            let mut named: Vec<usize> = found.iter().map(|(inner, _)| *inner).collect();
            named.sort_unstable();
            let expected: Vec<usize> =
                (0..all.len()).filter(|index| lies_in_another(&all, *index)).collect();
            prop_assert_eq!(named, expected);
        }
    }
}
