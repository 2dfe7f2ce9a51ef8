//! A prefix as a run of numbers.

use super::prefix::{MAPPED_LEN, Prefix};

/// The mapped IPv4 addresses, first and last.
const MAPPED: (u128, u128) = (0xffff << 32, (0xffff << 32) | u32::MAX as u128);

const _: () = assert!(MAPPED_LEN == 96);

impl Prefix {
    /// Its first and last address, as numbers; IPv4 between them may not be its own.
    pub(crate) fn bounds(&self) -> (u128, u128) {
        (self.address, self.address | !self.mask)
    }

    /// Whether it holds IPv6 alone, although IPv4 lies between its bounds.
    pub(crate) fn is_v6_alone(&self) -> bool {
        let (first, last) = self.bounds();
        self.without_v4 && first <= MAPPED.0 && last >= MAPPED.1
    }

    /// Its addresses, as first and last of one or two runs.
    pub(crate) fn ranges(&self) -> impl Iterator<Item = (u128, u128)> + use<> {
        let (first, last) = self.bounds();
        let runs = match self.is_v6_alone() {
            true => [Some((first, MAPPED.0.wrapping_sub(1))), Some((MAPPED.1 + 1, last))],
            false => [Some((first, last)), None],
        };
        runs.into_iter().flatten().filter(|(first, last)| first <= last)
    }
}
