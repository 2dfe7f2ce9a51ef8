//! TCP connections that began before anybody looked: which of their ends is the server.

use weir_wire::parse::{Parsed, Transport};
use weir_wire::tcp::flags::{RST, SYN};

use crate::conversation::begins_as;
use crate::detector::Packet;

/// Ports of the system (RFC 6335, section 6) below are no client's: from here to 1023 privileged
/// clients take theirs, those of NFS for one (rresvport(3)).
const SYSTEM: u16 = 512;
/// The first port that Linux takes for a client; others begin further up.
const EPHEMERAL: u16 = 32768;

/// Whether it is a segment of a server, by its ports: from one of the system to another, or from
/// one that may be registered to one that hosts take for themselves.
pub(crate) fn has_ports_of_server(parsed: &Parsed) -> bool {
    let Transport::Tcp { source, destination, flags, .. } = parsed.transport else { return false };
    let is_below = |bound| source < bound && bound <= destination;
    flags & (SYN | RST) == 0 && (is_below(SYSTEM) || is_below(EPHEMERAL))
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
        [is_client, true] => !is_client || has_ports_of_server(parsed),
        _ => false,
    }
}
