//! Where handshakes travel: between which addresses, and by which Ethernet header where the gateway
//! has no address of its own.

use std::net::IpAddr;

use arrayvec::ArrayVec;

use crate::policy::mapped;

/// Ethernet with two tags.
pub const LINK_LEN_MAX: usize = 22;

/// Where a datagram came from, or goes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Remote {
    /// The outer address.
    pub address: IpAddr,
    /// The UDP port.
    pub port: u16,
}

impl Remote {
    pub(super) fn bytes(&self) -> [u8; 18] {
        let mut bytes = [0; 18];
        bytes[..16].copy_from_slice(&mapped(self.address));
        bytes[16..].copy_from_slice(&self.port.to_be_bytes());
        bytes
    }

    /// What one station is known by: its IPv4 address, or the /64 that its IPv6 address is of.
    pub(super) fn address_bytes(&self) -> [u8; 16] {
        let mut bytes = mapped(self.address);
        if self.address.is_ipv6() {
            bytes[8..].fill(0);
        }
        bytes
    }
}

/// An Ethernet header, tags and EtherType included.
pub type LinkHeader = ArrayVec<u8, LINK_LEN_MAX>;

/// Both ends of the way of a datagram.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Path {
    /// The peer's end.
    pub remote: Remote,
    /// Our end, where it is borrowed of a host; else it is the own address.
    pub borrowed: Option<IpAddr>,
    /// The header of a frame to the remote; empty: the neighbour table knows.
    pub link: LinkHeader,
}

impl Path {
    /// To an endpoint, from the own address.
    pub fn to(address: IpAddr, port: u16) -> Self {
        Self { remote: Remote { address, port }, borrowed: None, link: LinkHeader::new() }
    }

    /// What stays true after the answer: who has an own address asks for neighbours.
    pub fn lasting(&self) -> Self {
        match self.borrowed {
            Some(_) => self.clone(),
            None => Self { link: LinkHeader::new(), ..self.clone() },
        }
    }
}
