//! ESP and WireGuard's data messages, made and opened here.

use crate::offload::checksum::complete;
use crate::output::Destination;
use crate::verdict::{DropReason, Verdict};

use super::rows::Row;
use super::{Leaving, Parts, clamp, clear};

mod open;
mod seal;

pub(crate) use open::{Inner, open, silent_in};

/// What is made here goes with everything.
pub(super) const ROW: Row = Row {
    name: "mode = \"ethernet\", \"tunnel\" or \"transport\"",
    what: "Weir seals packets by ESP",
    cannot: &[],
    like: None,
};

/// Seals a packet, in place or segment by segment.
#[inline]
pub(super) fn protect(
    parts: &mut Parts<'_>,
    packet: Leaving<'_, '_>,
) -> Result<Verdict, DropReason> {
    let Some(entry) = parts.peers.get_mut(packet.peer) else { return Err(DropReason::NoPolicy) };
    if !entry.seals() {
        return clear::protect(parts, packet);
    }
    let Leaving { peer, index, frame, parsed, fields } = packet;
    clamp(entry, parts.counters, frame, parsed);
    if frame.meta.offload.segmentation.is_some() {
        entry.seal_cut(frame, parsed, fields, parts.output)?;
        parts.peers.sealed(peer);
        return Ok(Verdict::Sealed);
    }
    if !entry.fits(parsed, frame.len()) {
        return Err(DropReason::TooBig);
    }
    if !complete(frame) {
        return Err(DropReason::Malformed);
    }
    entry.seal(frame, parsed, fields)?;
    parts.peers.sealed(peer);
    parts.output.send_whole(Destination::Wire, index, frame);
    Ok(Verdict::Sealed)
}
