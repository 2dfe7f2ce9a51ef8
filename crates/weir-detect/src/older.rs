//! TCP connections that began before anybody looked: which of their ends is the server.

use weir_wire::parse::{Parsed, Transport};
use weir_wire::tcp::flags::{RST, SYN};

use crate::conversation::begins_as;
use crate::detector::Packet;

/// Ports below are the system's (RFC 6335, section 6).
const SYSTEM: u16 = 1024;
/// The first port that Linux takes for a client; those of others begin further up.
const EPHEMERAL: u16 = 32768;

/// Whether it is a segment of a server, by its ports: to one that hosts take for themselves, from
/// one that they do not. Of others the ports say too little: who may choose his own would choose
/// which rules look at him.
pub(crate) fn has_ports_of_server(parsed: &Parsed) -> bool {
    let Transport::Tcp { source, destination, flags, .. } = parsed.transport else { return false };
    flags & (SYN | RST) == 0 && source < EPHEMERAL && EPHEMERAL <= destination
}

/// Whether it is a segment of a server, by what it says; ports tell where clients say the same.
pub(crate) fn is_answer(packet: &Packet<'_>) -> bool {
    let parsed = packet.parsed;
    let Transport::Tcp { source, destination, flags, .. } = parsed.transport else { return false };
    let said = parsed.payload(packet.bytes);
    if said.is_empty() || flags & (SYN | RST) != 0 {
        return false;
    }
    match begins_as(said, [destination, source]) {
        [is_client, true] => !is_client || (source < SYSTEM && SYSTEM <= destination),
        _ => false,
    }
}
