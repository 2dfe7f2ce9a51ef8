//! Masquerade: what clients send leaves for the host under one IPv4 address, and the answers find
//! their way back (docs/adr/0080).
//!
//! ```text
//!   client --> opened --> the joint --> route --> outbound: address and port --> host
//!   client <-- sealed <-- route <-- the joint <-- inbound: back again <--------- host
//! ```
//!
//! The joint sees clients under their own addresses both ways. TCP, UDP and ICMP echo are
//! translated, and the ICMP errors that speak of them; nothing that hides addresses in its payload.

use weir_wire::frame::{PartialChecksum, Time};

use crate::verdict::DropReason;

mod fragments;
mod packet;
mod table;
mod translate;

use fragments::{Fragments, Part};
use packet::{End, Packet, What};
use table::{Flags, Table};

/// Translations behind one address.
#[derive(Debug)]
pub(crate) struct Nat {
    address: [u8; 4],
    table: Table,
    fragments: Fragments,
}

impl Nat {
    pub(crate) fn new(address: [u8; 4]) -> Self {
        Self { address, table: Table::default(), fragments: Fragments::default() }
    }

    /// The address that clients are seen under.
    pub(crate) fn address(&self) -> [u8; 4] {
        self.address
    }

    /// Ends translations that nobody used for long, some a call. Call it every 100 ms.
    pub(crate) fn expire(&mut self, now: Time) {
        self.table.expire(now);
    }

    /// Ends the translations of clients that are gone.
    pub(crate) fn retain(&mut self, is_there: impl FnMut([u8; 4]) -> bool) {
        self.table.retain(is_there);
    }

    /// Gives a client's IPv4 packet its outer source. `partial`: its checksum is still to be
    /// completed.
    ///
    /// # Errors
    /// Why it is dropped; then it has not changed.
    pub(crate) fn outbound(
        &mut self,
        now: Time,
        bytes: &mut [u8],
        partial: Option<PartialChecksum>,
    ) -> Result<(), DropReason> {
        let mut packet = Packet::parse(bytes, partial).ok_or(DropReason::Malformed)?;
        let client = packet.address(End::Source);
        if packet.is_later_fragment() {
            let part = Part::of(&packet, End::Source);
            let address = self.fragments.find(now, &part).ok_or(DropReason::Fragment)?;
            packet.readdress(End::Source, address);
            return Ok(());
        }
        if let What::Error = packet.what() {
            let (protocol, port) = packet.told_of(End::Destination, client)?;
            let outer = self.table.port_of(now, protocol, client, port);
            let outer = outer.ok_or(DropReason::NatNoMapping)?;
            return packet.translate_error(End::Source, self.address, outer);
        }
        let (protocol, port) = packet.port(End::Source).ok_or(DropReason::NatProtocol)?;
        let flags = Flags::of(&packet);
        let outer = self.table.outbound(now, protocol, (client, port), flags)?;
        if packet.is_first_fragment() {
            self.fragments.note(now, Part::of(&packet, End::Source), self.address);
        }
        packet.translate(End::Source, self.address, outer);
        Ok(())
    }

    /// Gives a packet from the host to the masquerade's address its client's. Others stay as they
    /// are.
    ///
    /// # Errors
    /// Why it is dropped; then it has not changed.
    pub(crate) fn inbound(
        &mut self,
        now: Time,
        bytes: &mut [u8],
        partial: Option<PartialChecksum>,
    ) -> Result<(), DropReason> {
        let Some(mut packet) = Packet::parse(bytes, partial) else { return Ok(()) };
        if packet.address(End::Destination) != self.address {
            return Ok(());
        }
        if packet.is_later_fragment() {
            let part = Part::of(&packet, End::Destination);
            let address = self.fragments.find(now, &part).ok_or(DropReason::Fragment)?;
            packet.readdress(End::Destination, address);
            return Ok(());
        }
        if let What::Error = packet.what() {
            let (protocol, port) = packet.told_of(End::Source, self.address)?;
            let client = self.table.client_of(now, protocol, port);
            let (client, inner) = client.ok_or(DropReason::NatNoMapping)?;
            return packet.translate_error(End::Destination, client, inner);
        }
        let (protocol, port) = packet.port(End::Destination).ok_or(DropReason::NatNoMapping)?;
        let flags = Flags::of(&packet);
        let client = self.table.inbound(now, protocol, port, flags);
        let (client, inner) = client.ok_or(DropReason::NatNoMapping)?;
        if packet.is_first_fragment() {
            self.fragments.note(now, Part::of(&packet, End::Destination), client);
        }
        packet.translate(End::Destination, client, inner);
        Ok(())
    }
}

#[cfg(test)]
mod tests;
