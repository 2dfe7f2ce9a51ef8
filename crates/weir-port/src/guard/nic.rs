//! Packets that a NIC seals and opens whole (docs/adr/0035, bpf/esp.bpf.h).
//!
//! ```text
//!   xfrm interface -> wire port's tc egress: mark and destination known? -> NIC seals
//!   NIC opened -> wire port's tc ingress: association known? -> the peer's xfrm interface
//! ```

use std::net::IpAddr;

use aya::maps::lpm_trie::Key;

use super::{Guard, GuardError, mapped_words, unless_gone};

/// `weir_nic_out` behind its length: mark, and an address of a network.
pub(super) type NicOut = [u32; 5];
/// `weir_nic_in`.
pub(super) type NicIn = [u32; 2];
/// `weir_nic_way`: packets, and the number of an interface.
pub(super) type NicWay = [u32; 4];

/// Bits of the mark.
const MARK_BITS: u32 = 32;
/// Bits before an IPv4 address in its mapped form.
const MAPPED_BITS: u32 = 96;

/// Packets that a NIC is to seal: those that the gateway gave this mark, to these networks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NicPackets {
    /// Of the socket that sends them.
    pub mark: u32,
    /// Addresses and lengths, as the NIC was told to match them.
    pub networks: Vec<(IpAddr, u8)>,
}

impl NicPackets {
    fn keys(&self) -> impl Iterator<Item = Key<NicOut>> {
        self.networks.iter().map(|(address, len)| {
            let [a, b, c, d] = mapped_words(*address);
            let before = if address.is_ipv4() { MAPPED_BITS } else { 0 };
            let mark = u32::from_ne_bytes(self.mark.to_be_bytes());
            Key::new(MARK_BITS + before + u32::from(*len), [mark, a, b, c, d])
        })
    }
}

/// An association that a NIC opens by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NicAssociation {
    /// Its request number.
    pub request: u32,
    /// Security parameters index.
    pub spi: u32,
}

impl NicAssociation {
    fn key(self) -> NicIn {
        [self.request, u32::from_ne_bytes(self.spi.to_be_bytes())]
    }
}

impl Guard {
    /// Lets these packets leave by the wire port as they are.
    ///
    /// # Errors
    /// The kernel's table cannot be written, or is full: 4096 networks.
    pub fn let_out_to_nic(&mut self, packets: &NicPackets) -> Result<(), GuardError> {
        if self.nic_left.get(&packets.mark, 0).is_err() {
            self.nic_left.insert(packets.mark, 0, 0)?;
        }
        packets.keys().try_for_each(|key| Ok(self.nic_out.insert(&key, 0, 0)?))
    }

    /// How many of these packets left since they were let out.
    ///
    /// # Errors
    /// They are not let out.
    pub fn left_to_nic(&self, packets: &NicPackets) -> Result<u64, GuardError> {
        Ok(self.nic_left.get(&packets.mark, 0)?)
    }

    /// Lets none of these packets leave any more.
    ///
    /// # Errors
    /// The kernel's table cannot be written.
    pub fn shut_to_nic(&mut self, packets: &NicPackets) -> Result<(), GuardError> {
        unless_gone(self.nic_left.remove(&packets.mark))?;
        packets.keys().try_for_each(|key| unless_gone(self.nic_out.remove(&key)))
    }

    /// Takes what the NIC opened by this association to the interface of this number.
    ///
    /// # Errors
    /// The kernel's table cannot be written, or is full: 512 associations.
    pub fn let_in_from_nic(
        &mut self,
        association: NicAssociation,
        interface: u32,
    ) -> Result<(), GuardError> {
        Ok(self.nic_in.insert(association.key(), [0, 0, interface, 0], 0)?)
    }

    /// How many packets the NIC opened by it.
    ///
    /// # Errors
    /// It is not let in.
    pub fn came_from_nic(&self, association: NicAssociation) -> Result<u64, GuardError> {
        let [a, b, ..] = self.nic_in.get(&association.key(), 0)?;
        let ([a, b, c, d], [e, f, g, h]) = (a.to_ne_bytes(), b.to_ne_bytes());
        Ok(u64::from_ne_bytes([a, b, c, d, e, f, g, h]))
    }

    /// Takes nothing in by it any more.
    ///
    /// # Errors
    /// The kernel's table cannot be written.
    pub fn shut_from_nic(&mut self, association: NicAssociation) -> Result<(), GuardError> {
        unless_gone(self.nic_in.remove(&association.key()))
    }
}
