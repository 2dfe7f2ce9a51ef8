//! An IPv4 packet that is to get another address, in place, checksums included.

use weir_wire::checksum::{Sum, updated};
use weir_wire::frame::PartialChecksum;

use super::table::Protocol;
use crate::verdict::DropReason;

const TCP: u8 = 6;
const UDP: u8 = 17;
const ICMP: u8 = 1;
const ECHO_REPLY: u8 = 0;
const ECHO_REQUEST: u8 = 8;
/// Destination unreachable, time exceeded, parameter problem.
const ERRORS: [u8; 3] = [3, 11, 12];
/// What an ICMP error has before the packet that it speaks of.
const ERROR_HEADER_LEN: usize = 8;
/// What it has of that packet at least (RFC 792): the header, and so much behind it.
const TOLD_LEN_MIN: usize = 8;

/// Whose address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum End {
    Source,
    Destination,
}

impl End {
    fn address_offset(self) -> usize {
        match self {
            End::Source => 12,
            End::Destination => 16,
        }
    }
}

/// What a packet is to the translation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum What {
    Tcp,
    Udp,
    EchoRequest,
    EchoReply,
    /// An ICMP error.
    Error,
    Other,
}

/// An IPv4 packet.
pub(super) struct Packet<'a> {
    bytes: &'a mut [u8],
    header_len: usize,
    /// The transport checksum is the pseudo header's sum yet.
    is_partial: bool,
}

impl<'a> Packet<'a> {
    /// `None`: it is no IPv4 packet, or its header contradicts itself. Link padding is cut off.
    pub(super) fn parse(bytes: &'a mut [u8], partial: Option<PartialChecksum>) -> Option<Self> {
        let first = *bytes.first()?;
        let header_len = usize::from(first & 15) * 4;
        let total = usize::from(u16::from_be_bytes(*bytes.get(2..)?.first_chunk()?));
        let is_right = first >> 4 == 4 && header_len >= 20 && total >= header_len;
        let bytes = bytes.get_mut(..total).filter(|_| is_right)?;
        Some(Self { bytes, header_len, is_partial: partial.is_some() })
    }

    pub(super) fn address(&self, end: End) -> [u8; 4] {
        let at = end.address_offset();
        [self.bytes[at], self.bytes[at + 1], self.bytes[at + 2], self.bytes[at + 3]]
    }

    /// Number and protocol: what the fragments of one packet share beside addresses.
    pub(super) fn identification(&self) -> (u16, u8) {
        (u16::from_be_bytes([self.bytes[4], self.bytes[5]]), self.protocol())
    }

    fn protocol(&self) -> u8 {
        self.bytes[9]
    }

    fn fragment(&self) -> u16 {
        u16::from_be_bytes([self.bytes[6], self.bytes[7]])
    }

    pub(super) fn is_later_fragment(&self) -> bool {
        self.fragment() & 0x1fff != 0
    }

    pub(super) fn is_first_fragment(&self) -> bool {
        self.fragment() & 0x3fff == 0x2000
    }

    pub(super) fn what(&self) -> What {
        let kind = self.bytes.get(self.header_len).copied();
        match (self.protocol(), kind) {
            (TCP, _) => What::Tcp,
            (UDP, _) => What::Udp,
            (ICMP, Some(ECHO_REQUEST)) => What::EchoRequest,
            (ICMP, Some(ECHO_REPLY)) => What::EchoReply,
            (ICMP, Some(kind)) if ERRORS.contains(&kind) => What::Error,
            _ => What::Other,
        }
    }

    /// TCP's flags.
    pub(super) fn tcp_flags(&self) -> Option<u8> {
        (self.what() == What::Tcp).then(|| self.bytes.get(self.header_len + 13).copied())?
    }

    /// Where the port of `end` stands, or the number of an echo. A client asks and a host answers.
    fn port_offset(&self, end: End) -> Option<(Protocol, usize)> {
        let offset = match end {
            End::Source => 0,
            End::Destination => 2,
        };
        let (protocol, offset) = match (self.what(), end) {
            (What::Tcp, _) => (Protocol::Tcp, offset),
            (What::Udp, _) => (Protocol::Udp, offset),
            (What::EchoRequest, End::Source) | (What::EchoReply, End::Destination) => {
                (Protocol::Echo, 4)
            }
            _ => return None,
        };
        // Cut so short that the checksum is missing, it says nothing to anyone.
        let checksum = self.checksum_offset(protocol);
        (self.bytes.len() >= self.header_len + offset + 2 && self.bytes.len() >= checksum + 2)
            .then_some((protocol, self.header_len + offset))
    }

    fn checksum_offset(&self, protocol: Protocol) -> usize {
        self.header_len
            + match protocol {
                Protocol::Tcp => 16,
                Protocol::Udp => 6,
                Protocol::Echo => 2,
            }
    }

    /// The port of `end`; `None`: it has none that is translated.
    pub(super) fn port(&self, end: End) -> Option<(Protocol, u16)> {
        let (protocol, at) = self.port_offset(end)?;
        Some((protocol, self.word(at)))
    }

    fn word(&self, at: usize) -> u16 {
        u16::from_be_bytes([self.bytes[at], self.bytes[at + 1]])
    }

    fn set_word(&mut self, at: usize, value: u16) {
        self.bytes[at..at + 2].copy_from_slice(&value.to_be_bytes());
    }

    /// Writes the address of `end`, and its header's checksum; returns the words that changed.
    pub(super) fn readdress(&mut self, end: End, address: [u8; 4]) -> [(u16, u16); 2] {
        const CHECKSUM: usize = 10;
        let at = end.address_offset();
        let words = [[address[0], address[1]], [address[2], address[3]]].map(u16::from_be_bytes);
        let changed = [(self.word(at), words[0]), (self.word(at + 2), words[1])];
        for (index, (old, new)) in changed.into_iter().enumerate() {
            self.set_word(at + 2 * index, new);
            self.set_word(CHECKSUM, updated(self.word(CHECKSUM), old, new));
        }
        changed
    }

    /// Writes address and port of `end`, and both checksums. A wrong one stays wrong.
    pub(super) fn translate(&mut self, end: End, address: [u8; 4], port: u16) {
        let Some((protocol, at)) = self.port_offset(end) else { return };
        let addresses = self.readdress(end, address);
        let ports = (self.word(at), port);
        self.set_word(at, port);
        self.correct(protocol, addresses, ports);
    }

    fn correct(&mut self, protocol: Protocol, addresses: [(u16, u16); 2], ports: (u16, u16)) {
        let field = self.checksum_offset(protocol);
        if field + 2 > self.bytes.len() {
            return;
        }
        let sum = self.word(field);
        if self.is_partial {
            // The pseudo header's sum, not complemented, of which ports are no part.
            let renewed = addresses.iter().fold(!sum, |it, (old, new)| updated(it, *old, *new));
            self.set_word(field, !renewed);
            return;
        }
        if protocol == Protocol::Udp && sum == 0 {
            return;
        }
        let pseudo = if protocol == Protocol::Echo { &[][..] } else { &addresses[..] };
        let changed = pseudo.iter().chain([&ports]);
        let renewed = changed.fold(sum, |it, (old, new)| updated(it, *old, *new));
        let is_none = protocol == Protocol::Udp && renewed == 0;
        self.set_word(field, if is_none { u16::MAX } else { renewed });
    }

    /// The packet that an ICMP error speaks of, as far as it is there.
    fn told(&mut self) -> Option<Packet<'_>> {
        let bytes = self.bytes.get_mut(self.header_len + ERROR_HEADER_LEN..)?;
        let header_len = usize::from(bytes.first()? & 15) * 4;
        let is_right = bytes[0] >> 4 == 4 && header_len >= 20;
        let told = Packet { bytes, header_len, is_partial: false };
        let is_there = is_right && told.bytes.len() >= header_len + TOLD_LEN_MIN;
        (is_there && !told.is_later_fragment()).then_some(told)
    }

    /// The port of `end` in the packet that an ICMP error speaks of; `end` is to be `address`.
    ///
    /// # Errors
    /// It speaks of none that is translated, or its checksum is wrong.
    pub(super) fn told_of(
        &mut self,
        end: End,
        address: [u8; 4],
    ) -> Result<(Protocol, u16), DropReason> {
        let sum = Sum::new().with(&self.bytes[self.header_len..]).folded();
        if sum != u16::MAX || self.is_first_fragment() {
            return Err(DropReason::Malformed);
        }
        let told = self.told().ok_or(DropReason::NatNoMapping)?;
        if told.address(end) != address {
            return Err(DropReason::NatNoMapping);
        }
        let (protocol, at) = told.told_port(end).ok_or(DropReason::NatNoMapping)?;
        Ok((protocol, told.word(at)))
    }

    /// [`Packet::port_offset`] of a packet that an error speaks of: that may have been cut behind
    /// its first eight bytes.
    fn told_port(&self, end: End) -> Option<(Protocol, usize)> {
        let offset = match end {
            End::Source => 0,
            End::Destination => 2,
        };
        match (self.what(), end) {
            (What::Tcp, _) => Some((Protocol::Tcp, self.header_len + offset)),
            (What::Udp, _) => Some((Protocol::Udp, self.header_len + offset)),
            // Of a client's question, and of a host's answer.
            (What::EchoRequest, End::Source) | (What::EchoReply, End::Destination) => {
                Some((Protocol::Echo, self.header_len + 4))
            }
            _ => None,
        }
    }

    /// Writes `address` at `end` of an ICMP error, and that and `port` at the other end of what it
    /// speaks of, of which [`Packet::told_of`] told.
    ///
    /// # Errors
    /// It speaks of nothing.
    pub(super) fn translate_error(
        &mut self,
        end: End,
        address: [u8; 4],
        port: u16,
    ) -> Result<(), DropReason> {
        let other = match end {
            End::Source => End::Destination,
            End::Destination => End::Source,
        };
        let mut told = self.told().ok_or(DropReason::Malformed)?;
        let (protocol, at) = told.told_port(other).ok_or(DropReason::Malformed)?;
        let addresses = told.readdress(other, address);
        let ports = (told.word(at), port);
        told.set_word(at, port);
        told.correct(protocol, addresses, ports);
        self.readdress(end, address);
        let field = self.header_len + 2;
        self.set_word(field, 0);
        let checksum = Sum::new().with(&self.bytes[self.header_len..]).checksum();
        self.set_word(field, checksum);
        Ok(())
    }
}
