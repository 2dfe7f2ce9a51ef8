//! Addresses that are the gateway's own.

use std::net::IpAddr;

use weir_wire::parse::MacAddress;

use super::{Prefix, mapped};

/// The gateway's own place on the wire side.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OwnAddress {
    /// The wire port's MAC address.
    pub mac: MacAddress,
    /// Own addresses with their prefix lengths.
    pub addresses: Vec<(IpAddr, u8)>,
    /// Where to send what is not on a local prefix.
    pub next_hop: Option<IpAddr>,
    /// UDP ports from which daemons of the gateway's own speak on the wire, besides IKE's.
    pub daemon_ports: Vec<u16>,
    /// VLAN of the outer frames; 0: a tag that carries no more than the priority.
    pub vlan: Option<u16>,
}

impl OwnAddress {
    /// The own address of `peer`'s family.
    pub fn source_for(&self, peer: IpAddr) -> Option<IpAddr> {
        self.addresses.iter().map(|(address, _)| *address).find(|a| a.is_ipv4() == peer.is_ipv4())
    }

    /// Whose MAC address a packet to `peer` needs: the peer's, or the next hop's.
    pub fn hop_for(&self, peer: IpAddr) -> IpAddr {
        let bytes = mapped(peer);
        let local = self.addresses.iter().any(|(a, len)| {
            a.is_ipv4() == peer.is_ipv4() && Prefix::new(*a, *len).contains(&bytes)
        });
        match self.next_hop {
            Some(hop) if !local && hop.is_ipv4() == peer.is_ipv4() => hop,
            _ => peer,
        }
    }

    /// Whether `group` is the solicited-node group (RFC 4291 s2.7.1) of an own address.
    pub fn is_solicited_group(&self, group: &[u8; 16]) -> bool {
        const PREFIX: [u8; 13] = [0xff, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0xff];
        group.starts_with(&PREFIX)
            && self
                .addresses
                .iter()
                .any(|(own, _)| own.is_ipv6() && mapped(*own)[13..] == group[13..])
    }

    /// Whether `address` is one of our own.
    pub fn holds(&self, address: &[u8; 16]) -> bool {
        self.addresses.iter().any(|(own, _)| mapped(*own) == *address)
    }
}
