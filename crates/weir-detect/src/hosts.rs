//! What kind of system a host is, where that decides which of two pieces it believes that overlap:
//! fragments of a datagram, or segments of a connection.

use std::sync::Arc;

use crate::fragments::Policy;
use crate::rule::ranges::{Ranges, address_range};

/// Lines of hosts, at most.
pub const HOSTS_MAX: usize = 4096;

/// A kind of system, by the names of suricata.yaml's `host-os-policy`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum System {
    /// `bsd`, and what nobody names.
    #[default]
    Bsd,
    /// `bsd-right`
    BsdRight,
    /// `old-linux`: 2.2 and before.
    OldLinux,
    /// `linux`
    Linux,
    /// `old-solaris`
    OldSolaris,
    /// `solaris`
    Solaris,
    /// `hpux10`
    Hpux10,
    /// `hpux11`
    Hpux11,
    /// `irix`
    Irix,
    /// `macos`
    MacOs,
    /// `windows`
    Windows,
    /// `vista`, and what came after it.
    Vista,
    /// `windows2k3`
    Windows2003,
    /// `first`: always the first piece.
    First,
    /// `last`: always the last.
    Last,
}

impl System {
    /// By its name.
    pub fn from_name(name: &str) -> Option<Self> {
        Some(match name {
            "bsd" => Self::Bsd,
            "bsd-right" => Self::BsdRight,
            "old-linux" => Self::OldLinux,
            "linux" => Self::Linux,
            "old-solaris" => Self::OldSolaris,
            "solaris" => Self::Solaris,
            "hpux10" => Self::Hpux10,
            "hpux11" => Self::Hpux11,
            "irix" => Self::Irix,
            "macos" => Self::MacOs,
            "windows" => Self::Windows,
            "vista" => Self::Vista,
            "windows2k3" => Self::Windows2003,
            "first" => Self::First,
            "last" => Self::Last,
            _ => return None,
        })
    }

    /// How it puts fragments together.
    pub fn fragments(self) -> Policy {
        match self {
            Self::Bsd | Self::Hpux10 | Self::Irix => Policy::Bsd,
            Self::BsdRight => Policy::BsdRight,
            Self::OldLinux | Self::Linux => Policy::Linux,
            Self::OldSolaris | Self::Hpux11 | Self::MacOs | Self::First => Policy::First,
            Self::Solaris => Policy::Solaris,
            Self::Windows | Self::Vista | Self::Windows2003 => Policy::Windows,
            Self::Last => Policy::Last,
        }
    }

    /// Whether it takes a second segment's bytes for a first one's, which it has not handed on:
    /// where each begins and ends, against any number.
    pub(crate) fn takes_second(self, first: (i32, i32), second: (i32, i32)) -> bool {
        let covers = second.1 >= first.1;
        let (is_earlier, is_same) = (second.0 < first.0, second.0 == first.0);
        match self {
            Self::Last => true,
            Self::First | Self::Vista => false,
            Self::Solaris | Self::OldSolaris | Self::Hpux11 => {
                covers && (is_earlier || second.1 > first.1 || is_same)
            }
            Self::OldLinux => is_earlier || (is_same && covers),
            Self::Linux => is_earlier || (is_same && second.1 > first.1),
            Self::Bsd | Self::BsdRight | Self::Hpux10 | Self::Irix | Self::MacOs => is_earlier,
            Self::Windows | Self::Windows2003 => is_earlier,
        }
    }
}

/// Hosts whose system is known.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Hosts(Arc<Vec<(Ranges, System)>>);

impl Hosts {
    /// From pairs of an address or prefix and the system there.
    ///
    /// # Errors
    /// An address cannot be read, or there are too many.
    pub fn new<'t>(named: impl IntoIterator<Item = (&'t str, System)>) -> Result<Self, String> {
        let mut hosts = Vec::new();
        for (text, system) in named {
            let wrong = || format!("`{text}` is no address or prefix");
            hosts.push((address_range(text.trim()).ok_or_else(wrong)?, system));
            if hosts.len() > HOSTS_MAX {
                return Err(format!("more than {HOSTS_MAX} hosts"));
            }
        }
        // The narrowest that an address is in counts.
        hosts.sort_by_key(|(ranges, _)| ranges.iter().map(|(a, b)| b - a).max());
        Ok(Self(Arc::new(hosts)))
    }

    /// What is at an address (IPv4 mapped).
    pub fn system(&self, address: [u8; 16]) -> System {
        self.named(address).unwrap_or_default()
    }

    /// The same, where somebody has named it.
    pub fn named(&self, address: [u8; 16]) -> Option<System> {
        let number = u128::from_be_bytes(address);
        self.0.iter().find(|(ranges, _)| ranges.contains(number)).map(|it| it.1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_narrowest_prefix_counts() {
        let named = [("0.0.0.0/0", System::Windows), ("192.0.2.2", System::OldLinux)];
        let hosts = Hosts::new(named).unwrap();
        let at = |text: &str| {
            let number = crate::rule::ranges::number(text.parse().unwrap());
            hosts.system(number.to_be_bytes())
        };
        assert_eq!(at("192.0.2.2"), System::OldLinux);
        assert_eq!(at("192.0.2.3"), System::Windows);
        assert_eq!(at("2001:db8::1"), System::Bsd);
        assert!(Hosts::new([("x", System::First)]).is_err());
    }

    #[test]
    fn systems_differ_in_which_segment_they_believe() {
        let same = |of: System| of.takes_second((0, 4), (0, 4));
        assert!(same(System::OldLinux) && same(System::Last) && same(System::Solaris));
        assert!(!same(System::Linux) && !same(System::Windows) && !same(System::Bsd));
        assert!(
            System::Bsd.takes_second((4, 8), (2, 6)) && !System::Vista.takes_second((4, 8), (2, 6))
        );
        // With segments these are as their kin: they differ in fragments alone.
        let second = [(4, 8), (0, 6), (0, 4)].map(|it| (it, (2, 8)));
        for (a, b) in [(System::BsdRight, System::Bsd), (System::OldSolaris, System::Solaris)] {
            let of = |it: System| second.map(|(first, second)| it.takes_second(first, second));
            assert_eq!(of(a), of(b), "{a:?}");
        }
        assert!(
            System::Linux.takes_second((0, 4), (0, 8)) && !System::Bsd.takes_second((0, 4), (0, 8))
        );
    }
}
