//! What a frame is that arrives: whom it is for, and what must be taken off before anything else.

use weir_wire::frame::Frame;
use weir_wire::parse::{Parsed, Transport};

use crate::classify::has_address;
use crate::esp::wireguard;
use crate::peer::Peers;
use crate::policy::Policy;
use crate::run::Run;
use crate::verdict::DropReason;

pub(crate) mod arp;
pub(crate) mod keying;
mod own;

pub use keying::INBOX_MAX;
pub(crate) use keying::Inbox;
pub(crate) use own::{is_own, may_leave, tag, untag};

/// A frame from the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Arrival {
    /// A packet that the association at this place opens.
    Sealed(usize),
    /// A packet that the kernel opens.
    ForKernel,
    /// What may be a NIC's own copy of what it opened for the gateway itself.
    OfNic,
    /// A handshake, from this port.
    Keying(u16),
    /// For the gateway's own kernel.
    Own,
    /// Any other: in clear, or tagged.
    Plain,
}

/// What the frame is that `run` walked over last.
///
/// # Errors
/// Why it is dropped.
#[inline]
pub(crate) fn from_wire(
    policy: &Policy,
    peers: &Peers,
    frame: &Frame<'_>,
    run: &mut Run,
) -> Result<Arrival, DropReason> {
    let parsed = run.parsed();
    if !is_routable(parsed) && policy.seals() {
        return Err(DropReason::Malformed);
    }
    if let Transport::Esp { spi, in_udp, .. } = parsed.transport {
        if !in_udp && peers.kernel.opens(spi, parsed) && is_own(policy, parsed) {
            return Ok(Arrival::ForKernel);
        }
        match run.opening(spi, &peers.openings) {
            Some(place) => return Ok(Arrival::Sealed(place)),
            None if is_own(policy, run.parsed()) => return Err(DropReason::UnknownSpi),
            None => {}
        }
    }
    let parsed = run.parsed();
    if let Some(port) = keying::source(policy, parsed) {
        if let Some(receiver) = wireguard::receiver(parsed.payload(frame.bytes())) {
            let place = run.opening(receiver, &peers.openings);
            return place.map(Arrival::Sealed).ok_or(DropReason::UnknownSpi);
        }
        return Ok(Arrival::Keying(port));
    }
    if !is_own(policy, parsed) {
        return Ok(Arrival::Plain);
    }
    match peers.kernel.may_be_silent(policy, parsed) {
        true => Ok(Arrival::OfNic),
        false => Ok(Arrival::Own),
    }
}

/// Whether it is known where the packet belongs. What is wrong behind the addresses is for its
/// receiver to judge: a gateway carries it.
#[inline]
pub(crate) fn is_routable(parsed: &Parsed) -> bool {
    parsed.fault.is_none() || has_address(parsed)
}
