//! Packets of a peer that pass as they are: it need not be sealed to yet, or nothing is there to do
//! it with (docs/guide/rollout.md).

use weir_wire::frame::Frame;
use weir_wire::parse::Parsed;

use super::rows::Row;
use super::{Leaving, Parts, Protector, clamp};
use crate::output::Destination;
use crate::peer::Peers;
use crate::policy::Policy;
use crate::verdict::{DropReason, Verdict};

/// Anything goes with it.
pub(super) const ROW: Row = Row {
    name: "sealing = \"observe\"",
    what: "packets pass in clear, and the gateway counts what it would seal",
    cannot: &[],
    like: None,
};

/// A packet for a peer that there is nothing to protect with at present.
#[cold]
pub(super) fn protect(
    parts: &mut Parts<'_>,
    packet: Leaving<'_, '_>,
) -> Result<Verdict, DropReason> {
    let peer = packet.peer;
    if let Some(entry) = parts.peers.get_mut(peer)
        && entry.association.is_none()
    {
        entry.wanted = Some([packet.parsed.source, packet.parsed.destination]);
        parts.peers.want(peer, parts.policy, packet.frame, packet.parsed);
    }
    if !parts.policy.may_be_clear(peer) {
        return Err(DropReason::NoAssociation);
    }
    send(parts, packet)
}

/// Sends a packet as it is.
pub(super) fn send(parts: &mut Parts<'_>, packet: Leaving<'_, '_>) -> Result<Verdict, DropReason> {
    let Leaving { peer, index, frame, parsed, .. } = packet;
    let entry = parts.peers.get_mut(peer).ok_or(DropReason::NoPolicy)?;
    // Connections that begin now must fit when they are sealed later.
    clamp(entry, parts.counters, frame, parsed);
    let is_cut = frame.meta.offload.segmentation.is_some();
    let too_big = !is_cut && !entry.fits(parsed, frame.len());
    entry.rollout.count_sent(frame, too_big);
    parts.output.send_whole(Destination::Wire, index, frame);
    Ok(Verdict::Unsealed)
}

/// Whether a packet of a peer's is taken that came in clear.
#[cold]
pub(super) fn unprotect(
    policy: &Policy,
    peer: usize,
    protector: Protector,
) -> Result<Verdict, DropReason> {
    match protector {
        _ if policy.may_be_clear(peer) => Ok(Verdict::Unsealed),
        // It looks as if it had come so; the guard knows better (docs/adr/0035).
        Protector::Nic(_) => Ok(Verdict::Handed),
        _ => Err(DropReason::NotSealed),
    }
}

/// A packet that came in clear was let through: it is counted, and clamped.
pub(crate) fn taken(
    peers: &mut Peers,
    counters: &mut crate::counters::Counters,
    peer: usize,
    frame: &mut Frame<'_>,
    parsed: &Parsed,
) {
    let Some(entry) = peers.get_mut(peer) else { return };
    clamp(entry, counters, frame, parsed);
    entry.rollout.count_received(frame);
}
