//! Addresses in the form that `Parsed` has them in, and prefixes of them.

use std::net::{IpAddr, Ipv4Addr};

/// Bits before a mapped IPv4 address: an IPv6 prefix of so many or more holds IPv4 alone or none.
pub(super) const MAPPED_LEN: u32 = 96;

/// An address prefix; IPv4 is kept mapped (::ffff:a.b.c.d/96+n).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Prefix {
    pub(super) address: u128,
    pub(super) mask: u128,
    /// Whether it holds only IPv6, although its range includes the mapped IPv4 addresses, as ::/0
    /// does.
    pub(super) without_v4: bool,
}

impl Prefix {
    /// Everything, IPv4 and IPv6.
    pub const ALL: Prefix = Prefix { address: 0, mask: 0, without_v4: false };

    /// `address/len`; bits behind the prefix are ignored. A length beyond the family's counts as a
    /// host prefix.
    pub fn new(address: IpAddr, len: u8) -> Self {
        let (bits, len) = match address {
            IpAddr::V4(v4) => {
                (u128::from(v4.to_ipv6_mapped()), MAPPED_LEN + u32::from(len.min(32)))
            }
            IpAddr::V6(v6) => (u128::from(v6), u32::from(len.min(128))),
        };
        let mask = u128::MAX.checked_shl(128 - len).unwrap_or(0);
        Self { address: bits & mask, mask, without_v4: len < MAPPED_LEN }
    }

    /// Whether `address` (in the form of `Parsed`) lies inside.
    #[inline]
    pub fn contains(&self, address: &[u8; 16]) -> bool {
        let address = u128::from_be_bytes(*address);
        address & self.mask == self.address && !(self.without_v4 && is_mapped(address))
    }

    /// Sorts narrower prefixes first, and of equal lengths those of IPv6 only before those of both
    /// families.
    pub(super) fn rank(self) -> (std::cmp::Reverse<u32>, bool) {
        (std::cmp::Reverse(self.prefix_len()), !self.without_v4)
    }

    /// Its first address.
    pub fn first(&self) -> u128 {
        self.address
    }

    /// Bits that are fixed, 0 to 128.
    pub fn prefix_len(&self) -> u32 {
        self.mask.count_ones()
    }
}

/// The 16-byte form that `Parsed` uses: IPv4 mapped into IPv6.
pub fn mapped(address: IpAddr) -> [u8; 16] {
    match address {
        IpAddr::V4(v4) => v4.to_ipv6_mapped().octets(),
        IpAddr::V6(v6) => v6.octets(),
    }
}

/// The address in `Parsed`'s 16 bytes.
pub(crate) fn address(bytes: &[u8; 16]) -> IpAddr {
    match weir_wire::ip::unmapped(bytes) {
        Some(v4) => IpAddr::V4(Ipv4Addr::from(v4)),
        None => IpAddr::from(*bytes),
    }
}

pub(super) fn is_mapped(address: u128) -> bool {
    address >> 32 == 0xffff
}
