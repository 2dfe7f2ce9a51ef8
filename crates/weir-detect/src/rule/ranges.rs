//! Sets of addresses and ports, as sorted ranges that do not touch.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// A set of numbers: addresses (IPv4 mapped into IPv6) or ports.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Ranges(Vec<(u128, u128)>);

impl From<Vec<(u128, u128)>> for Ranges {
    /// Ranges in any order, which may overlap.
    fn from(mut ranges: Vec<(u128, u128)>) -> Self {
        ranges.sort_unstable();
        let mut joined: Vec<(u128, u128)> = Vec::with_capacity(ranges.len());
        for (first, last) in ranges {
            match joined.last_mut() {
                Some((_, end)) if first <= end.saturating_add(1) => *end = last.max(*end),
                _ => joined.push((first, last)),
            }
        }
        Self(joined)
    }
}

impl Ranges {
    /// Every number.
    pub fn all() -> Self {
        Self(vec![(0, u128::MAX)])
    }

    /// The numbers from `first` to `last`.
    pub fn of(first: u128, last: u128) -> Self {
        Self(vec![(first, last)])
    }

    /// Whether every number is in it.
    pub fn is_all(&self) -> bool {
        self.0 == [(0, u128::MAX)]
    }

    /// Every IPv4 address, as they are mapped into IPv6.
    pub fn of_ipv4() -> Self {
        Self::of(0xffff << 32, 0xffff_ffff_ffff)
    }

    /// Whether no number is in it.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether `number` is in it.
    #[inline]
    pub fn contains(&self, number: u128) -> bool {
        match self.0.as_slice() {
            [(first, last)] => (*first..=*last).contains(&number),
            many => {
                let after = many.partition_point(|(first, _)| *first <= number);
                after > 0 && number <= many[after - 1].1
            }
        }
    }

    /// Its ranges, in order.
    pub fn iter(&self) -> impl Iterator<Item = (u128, u128)> + '_ {
        self.0.iter().copied()
    }

    /// What is in either.
    #[must_use]
    pub fn union(mut self, other: &Self) -> Self {
        self.0.extend_from_slice(&other.0);
        Self::from(self.0)
    }

    /// What is not in it.
    #[must_use]
    pub fn complement(&self) -> Self {
        let mut rest = Vec::with_capacity(self.0.len() + 1);
        let mut next = Some(0);
        for (first, last) in &self.0 {
            if let Some(start) = next.filter(|start| start < first) {
                rest.push((start, first - 1));
            }
            next = last.checked_add(1);
        }
        rest.extend(next.map(|start| (start, u128::MAX)));
        Self(rest)
    }

    /// What is in both.
    #[must_use]
    pub fn common(&self, other: &Self) -> Self {
        self.without(&other.complement())
    }

    /// What is in it and not in `other`.
    #[must_use]
    pub fn without(&self, other: &Self) -> Self {
        self.complement().union(other).complement()
    }
}

/// An address as a number: IPv4 mapped.
pub fn number(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(address) => u128::from_be_bytes(address.to_ipv6_mapped().octets()),
        IpAddr::V6(address) => u128::from_be_bytes(address.octets()),
    }
}

/// One address, a prefix (`10.0.0.0/8`, `10.0.0.0/255.0.0.0`) or a range (`10.0.0.1-10.0.0.9`).
pub fn address_range(text: &str) -> Option<Ranges> {
    if let Some((first, last)) = text.split_once('-') {
        let (first, last) = (address(first)?, address(last)?);
        let (first, last) = (number(first), number(last));
        return (first <= last).then(|| Ranges::of(first, last));
    }
    let Some((base, length)) = text.split_once('/') else {
        let only = number(address(text)?);
        return Some(Ranges::of(only, only));
    };
    let base = address(base)?;
    let bits = if base.is_ipv4() { 32 } else { 128 };
    let length = match length.trim().parse::<u32>() {
        Ok(length) => length,
        Err(_) if base.is_ipv4() => {
            let mask = u32::from(length.trim().parse::<Ipv4Addr>().ok()?);
            (mask.count_ones() == mask.leading_ones()).then(|| mask.leading_ones())?
        }
        Err(_) => return None,
    };
    let free = bits - Some(length).filter(|it| *it <= bits)?;
    let free_mask = if free == 128 { u128::MAX } else { (1 << free) - 1 };
    let first = number(base) & !free_mask;
    let range = Ranges::of(first, first | free_mask);
    // Those of IPv4 are not meant, although they stand among those of IPv6.
    let own = if base.is_ipv4() { range } else { without_ipv4(range, free) };
    Some(own)
}

/// A prefix of IPv6 of which so many bits are free.
fn without_ipv4(prefix: Ranges, free: u32) -> Ranges {
    const FREE_OF_IPV4: u32 = 32;
    if free <= FREE_OF_IPV4 { prefix } else { prefix.without(&Ranges::of_ipv4()) }
}

fn address(text: &str) -> Option<IpAddr> {
    let text = text.trim();
    match text.parse::<Ipv6Addr>() {
        Ok(address) => Some(IpAddr::V6(address)),
        Err(_) => text.parse().ok().map(IpAddr::V4),
    }
}

/// A port or a range of ports (`80`, `1024:`, `:80`, `1:10`, also with a dash).
pub fn port_range(text: &str) -> Option<Ranges> {
    let number = |text: &str| text.trim().parse::<u16>().ok().map(u128::from);
    let dashed = || text.split_once('-').filter(|it| !it.0.trim().is_empty());
    let Some((first, last)) = text.split_once(':').or_else(dashed) else {
        let only = number(text)?;
        return Some(Ranges::of(only, only));
    };
    let first = if first.trim().is_empty() { 0 } else { number(first)? };
    let last = if last.trim().is_empty() { u16::MAX.into() } else { number(last)? };
    (first <= last).then(|| Ranges::of(first, last))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_set_and_what_is_not_in_it_are_everything() {
        let some = Ranges::of(3, 5).union(&Ranges::of(6, 9)).union(&Ranges::of(20, u128::MAX));
        assert_eq!(some.iter().count(), 2);
        assert_eq!(some.complement().iter().collect::<Vec<_>>(), [(0, 2), (10, 19)]);
        assert!(some.clone().union(&some.complement()).is_all());
        assert!(Ranges::all().complement().is_empty());
        assert!(Ranges::default().complement().is_all());
        assert!(!some.without(&Ranges::of(4, 4)).contains(4));
    }

    #[test]
    fn addresses_are_read_in_every_form() {
        let has = |text: &str, address: &str| {
            address_range(text).unwrap().contains(number(address.parse().unwrap()))
        };
        assert!(has("10.0.0.0/8", "10.255.255.255") && !has("10.0.0.0/8", "11.0.0.0"));
        assert!(has("10.0.0.0/255.0.0.0", "10.1.2.3"));
        assert!(has("10.1.2.3", "10.1.2.3") && has("0.0.0.0/0", "255.255.255.255"));
        assert!(!has("0.0.0.0/0", "2001:db8::1") && has("::/0", "2001:db8::1"));
        assert!(!has("::/0", "10.0.0.1") && has("::ffff:10.0.0.0/104", "10.0.0.1"));
        assert!(has("2001:db8::/32", "2001:db8::1"));
        assert!(has("10.0.0.1-10.0.0.9", "10.0.0.9") && !has("10.0.0.1-10.0.0.9", "10.0.0.10"));
        for wrong in ["10.0.0", "10.0.0.0/33", "10.0.0.9-10.0.0.1", "", "x"] {
            assert_eq!(address_range(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn ports_are_read_in_every_form() {
        let list = |text: &str| port_range(text).unwrap().iter().next().unwrap();
        assert_eq!(list("80"), (80, 80));
        assert_eq!(list("1024:"), (1024, 65535));
        assert_eq!(list(":80"), (0, 80));
        assert_eq!(list("1:10"), (1, 10));
        for wrong in ["65536", "10:1", "", "http", "-1"] {
            assert_eq!(port_range(wrong), None, "{wrong}");
        }
    }
}
