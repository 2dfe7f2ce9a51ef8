//! A peer whose RoCE packets carry a tag in the place of their ICRC ([`crate::esp::icrc_tag`]), and
//! what happens to its other packets.
//!
//! | packet | to the peer | from the peer |
//! |---|---|---|
//! | RoCE | ICRC verified, tagged | tag verified, ICRC put back |
//! | no RoCE | dropped, or in clear: [`OtherTraffic`] | the same |
//! | a fragment | dropped: it may hide RoCE | the same |
//!
//! While the peer's sealing is no more than preferred, what cannot be tagged passes in clear, and
//! an untagged packet is taken. No association seals to such a peer; where keys are agreed, there
//! is one for signs of life.

use weir_wire::checksum::updated;
use weir_wire::ethernet::ethertype;
use weir_wire::frame::Frame;
use weir_wire::icrc;
use weir_wire::parse::{Encapsulation, Parsed, Transport};
use weir_wire::udp::PORT_ROCE_V2;

use super::rows::{Given, Row};
use super::{Leaving, Parts, clear};
use crate::esp::icrc_tag::TagRefusal;
use crate::output::Destination;
use crate::policy::{Mode, OtherTraffic};
use crate::verdict::{DropReason, Verdict};

const UDP_CHECKSUM_OFFSET: usize = 6;

/// What such a peer needs.
pub(super) const ROW: Row = Row {
    name: "mode = \"icrc-tag\"",
    what: "RoCE packets carry a tag in place of the ICRC",
    cannot: &[(
        Given::DefaultSeal,
        "a pair without default = \"seal\", because its packets are tagged and not sealed",
    )],
    like: None,
};

impl From<TagRefusal> for DropReason {
    fn from(refusal: TagRefusal) -> Self {
        match refusal {
            TagRefusal::NotRoce => DropReason::TagNotRoce,
            TagRefusal::IcrcBad => DropReason::IcrcBad,
            TagRefusal::NoKey => DropReason::NoAssociation,
            TagRefusal::Foreign => DropReason::TagForeign,
            TagRefusal::Forged => DropReason::TagForged,
            TagRefusal::OtherEpoch => DropReason::TagOldEpoch,
            TagRefusal::FailureLimit => DropReason::TagFailureLimit,
            TagRefusal::CipherRefused => DropReason::CipherRefused,
        }
    }
}

/// What a packet is to a tagged peer.
enum Kind {
    /// RoCE, with a place for a tag.
    Roce,
    /// For certain no RoCE.
    Other,
}

/// A packet for a peer whose packets are tagged.
pub(super) fn protect(
    parts: &mut Parts<'_>,
    packet: Leaving<'_, '_>,
) -> Result<Verdict, DropReason> {
    let peer = packet.peer;
    let Mode::IcrcTag(terms) = parts.policy.peers[peer].mode else {
        return Err(DropReason::NoPolicy);
    };
    let is_lenient = parts.policy.may_be_clear(peer);
    let entry = parts.peers.get_mut(peer).ok_or(DropReason::NoPolicy)?;
    let is_off = entry.rollout.is_off();
    if entry.association.is_none() {
        // A packet that is sent shows a host address that a handshake may borrow.
        parts.peers.want(peer, parts.policy, packet.frame, packet.parsed);
    }
    if is_off {
        return clear::send(parts, packet);
    }
    match kind(packet.frame, packet.parsed) {
        Ok(Kind::Roce) => {}
        Ok(Kind::Other) if terms.other == OtherTraffic::Clear => {
            return clear::send(parts, packet);
        }
        _ if is_lenient => return clear::send(parts, packet),
        Ok(Kind::Other) => return Err(DropReason::TagNotRoce),
        Err(reason) => return Err(reason),
    }
    let now = parts.now;
    let tagged = parts.peers.get_mut(peer).and_then(|it| it.tag.as_mut());
    let Some(tagged) = tagged.filter(|it| it.can_tag()) else {
        return clear::protect(parts, packet);
    };
    let Leaving { index, frame, parsed, .. } = packet;
    replace(frame, parsed, |bytes| tagged.tag.tag(now, bytes, parsed))?;
    tagged.counters.tagged_packets += 1;
    tagged.counters.tagged_bytes += frame.len() as u64;
    parts.output.send_whole(Destination::Wire, index, frame);
    Ok(Verdict::Tagged)
}

/// Verifies the tag of a packet of a peer's, and puts its ICRC back.
pub(super) fn unprotect(
    parts: &mut Parts<'_>,
    peer: usize,
    frame: &mut Frame<'_>,
    parsed: &Parsed,
) -> Result<Verdict, DropReason> {
    let Mode::IcrcTag(terms) = parts.policy.peers[peer].mode else {
        return Err(DropReason::NoPolicy);
    };
    let is_lenient = parts.policy.may_be_clear(peer);
    match kind(frame, parsed) {
        Ok(Kind::Roce) => {}
        Ok(Kind::Other) if terms.other == OtherTraffic::Clear => return Ok(Verdict::Unsealed),
        _ if is_lenient => return Ok(Verdict::Unsealed),
        Ok(Kind::Other) => return Err(DropReason::TagNotRoce),
        Err(reason) => return Err(reason),
    }
    let now = parts.now;
    let entry = parts.peers.get_mut(peer).ok_or(DropReason::NoPolicy)?;
    let tagged = entry.tag.as_mut().ok_or(DropReason::NoAssociation)?;
    let restored = replace(frame, parsed, |bytes| tagged.tag.restore(now, bytes, parsed));
    let number = match restored {
        Ok(number) => number,
        Err(TagRefusal::Foreign | TagRefusal::NoKey) if is_lenient => {
            return Ok(Verdict::Unsealed);
        }
        Err(refusal) => {
            tagged.count(refusal);
            return Err(refusal.into());
        }
    };
    tagged.counters.restored_packets += 1;
    tagged.counters.restored_bytes += frame.len() as u64;
    tagged.counters.last_restored = frame.meta.time;
    if entry.agreed.as_ref().is_some_and(|it| it.life.awaits(number)) {
        parts.peers.confirm(peer, number);
    }
    Ok(Verdict::Tagged)
}

/// What the packet is. What nobody can tell for certain is refused: a fragment or a damaged header
/// may be RoCE to its receiver.
fn kind(frame: &Frame<'_>, parsed: &Parsed) -> Result<Kind, DropReason> {
    if parsed.fragment.is_some() {
        return Err(DropReason::Fragment);
    }
    if let Some(rdma) = &parsed.rdma {
        let is_whole = rdma.icrc_offset.is_some() && frame.meta.offload.segmentation.is_none();
        let is_roce = rdma.encapsulation != Encapsulation::InfiniBand;
        return if is_whole && is_roce { Ok(Kind::Roce) } else { Err(DropReason::TagNotRoce) };
    }
    if parsed.fault.is_some() {
        return Err(DropReason::Malformed);
    }
    let to_roce = matches!(parsed.transport, Transport::Udp { destination: PORT_ROCE_V2, .. })
        || parsed.link.ethertype == ethertype::ROCE_V1;
    if to_roce { Err(DropReason::TagNotRoce) } else { Ok(Kind::Other) }
}

/// Has `change` write the four bytes, and a UDP checksum that is in use follow.
fn replace<T>(
    frame: &mut Frame<'_>,
    parsed: &Parsed,
    change: impl FnOnce(&mut [u8]) -> Result<T, TagRefusal>,
) -> Result<T, TagRefusal> {
    let before = icrc::present(frame.bytes(), parsed).ok_or(TagRefusal::NotRoce)?;
    let outcome = change(frame.bytes_mut())?;
    let is_udp = parsed.rdma.is_some_and(|it| it.encapsulation == Encapsulation::RoceV2);
    // A checksum that was left to the port is summed there.
    if is_udp && frame.meta.offload.checksum.is_none() {
        let after = icrc::present(frame.bytes(), parsed).ok_or(TagRefusal::NotRoce)?;
        let at = usize::from(parsed.transport_offset) + UDP_CHECKSUM_OFFSET;
        let field = frame.bytes_mut().get_mut(at..).and_then(|rest| rest.first_chunk_mut());
        let field: &mut [u8; 2] = field.ok_or(TagRefusal::NotRoce)?;
        *field = followed(*field, before, after);
    }
    Ok(outcome)
}

/// A UDP checksum (0: none) after four bytes at an even distance changed.
fn followed(field: [u8; 2], before: [u8; 4], after: [u8; 4]) -> [u8; 2] {
    let mut sum = u16::from_be_bytes(field);
    if sum == 0 {
        return field;
    }
    for at in [0, 2] {
        let word = |bytes: [u8; 4]| u16::from_be_bytes([bytes[at], bytes[at + 1]]);
        sum = updated(sum, word(before), word(after));
    }
    let sum = if sum == 0 { 0xffff } else { sum };
    sum.to_be_bytes()
}
