//! IP prefixes and interface addresses as the configuration writes them (`10.0.0.0/24`).

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// A network: all bits right of the prefix are zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Deserialize, Serialize)]
#[serde(try_from = "String", into = "String")]
pub struct Prefix {
    network: IpAddr,
    length_bits: u8,
}

impl Prefix {
    /// The first address.
    pub fn network(&self) -> IpAddr {
        self.network
    }

    /// Leading bits that are fixed: 0-32 for IPv4, 0-128 for IPv6.
    pub fn length_bits(&self) -> u8 {
        self.length_bits
    }

    /// Whether `address` lies inside.
    pub fn contains(&self, address: IpAddr) -> bool {
        self.network.is_ipv4() == address.is_ipv4()
            && masked(address, self.length_bits) == self.network
    }

    /// Whether an address lies in both.
    pub fn overlaps(&self, other: &Prefix) -> bool {
        self.contains(other.network) || other.contains(self.network)
    }
}

impl fmt::Display for Prefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.network, self.length_bits)
    }
}

impl FromStr for Prefix {
    type Err = String;

    /// Accepts `10.0.0.0/24`; an address without a length stands for that address alone.
    fn from_str(text: &str) -> Result<Self, String> {
        let (address, length_bits) = split(text)?;
        let length_bits = length_bits.unwrap_or(width_bits(address));
        if let (IpAddr::V4(v4), 96..) = (address.to_canonical(), length_bits)
            && address.is_ipv6()
        {
            let bits = length_bits - 96;
            return Err(format!("`{text}` is IPv4 in the form of IPv6; write `{v4}/{bits}`"));
        }
        let network = masked(address, length_bits);
        if network != address {
            return Err(format!(
                "`{text}` has bits set right of its prefix; \
                 write `{network}/{length_bits}`, or `{address}` for this address alone"
            ));
        }
        Ok(Self { network, length_bits })
    }
}

impl TryFrom<String> for Prefix {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl From<Prefix> for String {
    fn from(prefix: Prefix) -> Self {
        prefix.to_string()
    }
}

/// An address of an interface with the length of its network: `192.0.2.1/24`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Deserialize, Serialize)]
#[serde(try_from = "String", into = "String")]
pub struct InterfaceAddress {
    /// The address itself.
    pub address: IpAddr,
    /// Leading bits that are the network's.
    pub length_bits: u8,
}

impl InterfaceAddress {
    /// The network that the address is in.
    pub fn network(&self) -> Prefix {
        Prefix { network: masked(self.address, self.length_bits), length_bits: self.length_bits }
    }
}

impl fmt::Display for InterfaceAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.length_bits)
    }
}

impl FromStr for InterfaceAddress {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (address, length_bits) = split(text)?;
        let length_bits = length_bits.ok_or_else(|| {
            format!("`{text}` lacks the length of its network; write `{text}/24`, or what it is")
        })?;
        if address.is_unspecified() || address.is_multicast() {
            return Err(format!("`{address}` is no address that an interface can have"));
        }
        Ok(Self { address, length_bits })
    }
}

impl TryFrom<String> for InterfaceAddress {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl From<InterfaceAddress> for String {
    fn from(address: InterfaceAddress) -> Self {
        address.to_string()
    }
}

fn split(text: &str) -> Result<(IpAddr, Option<u8>), String> {
    let (address, length) = match text.split_once('/') {
        Some((address, length)) => (address, Some(length)),
        None => (text, None),
    };
    let address: IpAddr =
        address.parse().map_err(|_| format!("`{address}` is no IPv4 or IPv6 address"))?;
    let Some(length) = length else { return Ok((address, None)) };
    match length.parse::<u8>() {
        Ok(bits) if bits <= width_bits(address) => Ok((address, Some(bits))),
        _ => Err(format!(
            "`/{length}` is no prefix length; write a number from 0 to {}",
            width_bits(address)
        )),
    }
}

fn width_bits(address: IpAddr) -> u8 {
    if address.is_ipv4() { 32 } else { 128 }
}

fn masked(address: IpAddr, length_bits: u8) -> IpAddr {
    match address {
        IpAddr::V4(v4) => {
            let mask = u32::MAX.checked_shl(32 - u32::from(length_bits)).unwrap_or(0);
            IpAddr::V4((v4.to_bits() & mask).into())
        }
        IpAddr::V6(v6) => {
            let mask = u128::MAX.checked_shl(128 - u32::from(length_bits)).unwrap_or(0);
            IpAddr::V6((v6.to_bits() & mask).into())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn prefix(text: &str) -> Prefix {
        text.parse().unwrap()
    }

    #[test]
    fn a_prefix_without_length_is_one_address() {
        assert_eq!(prefix("10.0.0.1").to_string(), "10.0.0.1/32");
        assert_eq!(prefix("fd00::1").to_string(), "fd00::1/128");
    }

    #[test]
    fn host_bits_in_a_prefix_are_refused_with_the_right_spelling() {
        let error = "10.0.0.7/24".parse::<Prefix>().unwrap_err();
        assert!(error.contains("10.0.0.0/24"), "{error}");
    }

    #[test]
    fn ipv4_in_the_form_of_ipv6_is_refused_with_the_right_spelling() {
        // Else it would lie in another peer's IPv4 prefix, and no comparison would tell.
        for (text, right) in [("::ffff:10.0.0.0/104", "10.0.0.0/8"), ("::ffff:10.0.0.1", "/32")] {
            let error = text.parse::<Prefix>().unwrap_err();
            assert!(error.contains(right), "{error}");
        }
    }

    #[test]
    fn lengths_beyond_the_address_are_refused() {
        for text in ["10.0.0.0/33", "fd00::/129", "10.0.0.0/-1", "10.0.0.0/x", "10.0.0/24", ""] {
            assert!(text.parse::<Prefix>().is_err(), "{text}");
        }
    }

    #[test]
    fn networks_overlap_when_one_holds_the_other() {
        assert!(prefix("10.0.0.0/8").overlaps(&prefix("10.1.0.0/16")));
        assert!(prefix("10.1.0.0/16").overlaps(&prefix("10.0.0.0/8")));
        assert!(prefix("0.0.0.0/0").overlaps(&prefix("10.0.0.0/8")));
        assert!(!prefix("10.0.0.0/16").overlaps(&prefix("10.1.0.0/16")));
        assert!(!prefix("0.0.0.0/0").overlaps(&prefix("::/0")));
    }

    #[test]
    fn an_interface_address_needs_its_length() {
        assert!("192.0.2.1".parse::<InterfaceAddress>().is_err());
        assert!("224.0.0.1/24".parse::<InterfaceAddress>().is_err());
        let address: InterfaceAddress = "192.0.2.1/24".parse().unwrap();
        assert_eq!(address.network().to_string(), "192.0.2.0/24");
    }
}
