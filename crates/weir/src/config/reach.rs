//! Where a VPN client may send, as people write it: `10.0.0.0/28`, `10.0.0.5,tcp/443`,
//! `fd00::/64,udp/4791-4800`, `10.0.0.5,icmp`.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use weir_engine::policy;

use super::address::Prefix;

/// Protocols by name; others are written by number.
const PROTOCOLS: [(&str, u8); 6] =
    [("tcp", 6), ("udp", 17), ("icmp", 1), ("icmpv6", 58), ("sctp", 132), ("esp", 50)];
/// Those that have ports.
const WITH_PORTS: [u8; 2] = [6, 17];

/// A place that a client may send to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(try_from = "String", into = "String")]
pub struct Reach {
    to: Prefix,
    protocol: Option<u8>,
    ports: Option<(u16, u16)>,
}

impl Reach {
    /// As the engine has it.
    pub fn compiled(self) -> policy::Reach {
        let to = policy::Prefix::new(self.to.network(), self.to.length_bits());
        policy::Reach { to, protocol: self.protocol, ports: self.ports }
    }
}

impl FromStr for Reach {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (to, by) = match text.split_once(',') {
            Some((to, by)) => (to.trim(), Some(by.trim())),
            None => (text, None),
        };
        let to = to.parse::<Prefix>()?;
        let Some(by) = by else { return Ok(Self { to, protocol: None, ports: None }) };
        let wrong = |what: &str| {
            format!("`{text}`: {what}; write it as 10.0.0.5,tcp/443 or 10.0.0.0/24,icmp")
        };
        let (protocol, ports) = match by.split_once('/') {
            Some((protocol, ports)) => (protocol, Some(ports)),
            None => (by, None),
        };
        let known = PROTOCOLS.iter().find(|(name, _)| *name == protocol).map(|(_, it)| *it);
        let protocol = known.or_else(|| protocol.parse().ok());
        let protocol = protocol.ok_or_else(|| wrong("this is no protocol"))?;
        let ports = match ports {
            None => None,
            Some(_) if !WITH_PORTS.contains(&protocol) => {
                return Err(wrong("only tcp and udp have ports here"));
            }
            Some(ports) => {
                let (first, last) = ports.split_once('-').unwrap_or((ports, ports));
                let range = first.parse().ok().zip(last.parse().ok());
                Some(range.filter(|(first, last)| first <= last).ok_or_else(|| {
                    wrong("this is neither a port nor two of them, the lesser first")
                })?)
            }
        };
        Ok(Self { to, protocol: Some(protocol), ports })
    }
}

impl TryFrom<String> for Reach {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl From<Reach> for String {
    fn from(reach: Reach) -> Self {
        reach.to_string()
    }
}

impl fmt::Display for Reach {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.to)?;
        let Some(protocol) = self.protocol else { return Ok(()) };
        match PROTOCOLS.iter().find(|(_, it)| *it == protocol) {
            Some((name, _)) => write!(f, ",{name}")?,
            None => write!(f, ",{protocol}")?,
        }
        match self.ports {
            None => Ok(()),
            Some((first, last)) if first == last => write!(f, "/{first}"),
            Some((first, last)) => write!(f, "/{first}-{last}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_and_shown_alike() {
        for text in [
            "10.0.0.0/28",
            "10.0.0.5/32,tcp/443",
            "fd00::/64,udp/4791-4800",
            "10.0.0.0/8,icmp",
            "10.0.0.0/8,47",
        ] {
            assert_eq!(text.parse::<Reach>().unwrap().to_string(), text);
        }
        assert_eq!("10.0.0.5, tcp/1-1".parse::<Reach>().unwrap().to_string(), "10.0.0.5/32,tcp/1");
    }

    #[test]
    fn what_cannot_be_meant_is_refused() {
        for text in ["", "host", "10.0.0.5,http", "10.0.0.5,icmp/1", "10.0.0.5,tcp/", "::1,tcp/9-2"]
        {
            assert!(text.parse::<Reach>().is_err(), "{text}");
        }
    }
}
