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

use std::collections::BTreeMap;

use weir_wire::checksum::updated;
use weir_wire::ethernet::ethertype;
use weir_wire::frame::Frame;
use weir_wire::icrc;
use weir_wire::parse::{Encapsulation, Parsed, Transport};
use weir_wire::udp::PORT_ROCE_V2;

use super::{Engine, send_whole};
use crate::counters::TagCounters;
use crate::esp::icrc_tag::{IcrcTag, TagKey, TagRefusal};
use crate::meter::FlowPlace;
use crate::output::Destination;
use crate::policy::{KeyedBy, Mode, OtherTraffic, TagTerms};
use crate::tunnel::handshake::Role;
use crate::verdict::{DropReason, Side, Verdict};

const UDP_CHECKSUM_OFFSET: usize = 6;

/// What belongs to a peer whose packets are tagged.
#[derive(Debug)]
pub(crate) struct TaggedPeer {
    tag: IcrcTag,
    /// To tag with as soon as a packet came by the association of this SPI.
    pending: Option<Pending>,
    counters: TagCounters,
}

#[derive(Debug)]
struct Pending {
    open_spi: u32,
    seal_spi: u32,
    key: TagKey,
}

/// What survives a change of policy, by the peers' names.
pub(super) type Tags = BTreeMap<String, Box<TaggedPeer>>;

impl TaggedPeer {
    /// One whose keys are agreed; there are none yet.
    pub(crate) fn agreed(keyed_by: KeyedBy) -> Self {
        let counters = TagCounters::default();
        Self { tag: IcrcTag::agreed(keyed_by), pending: None, counters }
    }

    /// Whether there is a key to tag with.
    pub(crate) fn can_tag(&self) -> bool {
        self.tag.can_tag()
    }

    /// Takes agreed keys: to tag and to accept with, beside associations of these SPIs.
    pub(super) fn install(
        &mut self,
        role: Role,
        [seal_spi, open_spi]: [u32; 2],
        [seal, open]: [TagKey; 2],
    ) {
        // A refusal by the cipher library leaves the peer without keys: then nothing passes.
        let _ = self.tag.accept(open_spi, &open);
        match role {
            Role::Initiator => drop(self.tag.tag_with(seal_spi, &seal)),
            Role::Responder => self.pending = Some(Pending { open_spi, seal_spi, key: seal }),
        }
    }

    /// The initiator uses the keys beside `open_spi`: so do we.
    pub(super) fn confirm(&mut self, open_spi: u32) {
        if let Some(pending) = self.pending.take_if(|it| it.open_spi == open_spi) {
            let _ = self.tag.tag_with(pending.seal_spi, &pending.key);
        }
    }

    pub(super) fn forget(&mut self, open_spi: u32) {
        self.tag.forget(open_spi);
        self.pending.take_if(|it| it.open_spi == open_spi);
    }

    pub(super) fn close(&mut self) {
        self.tag.close();
        self.pending = None;
    }

    fn count(&mut self, refusal: TagRefusal) {
        match refusal {
            TagRefusal::Foreign => self.counters.foreign += 1,
            TagRefusal::Forged => self.counters.forged += 1,
            TagRefusal::OtherEpoch => self.counters.old_epoch += 1,
            TagRefusal::FailureLimit => self.counters.limited += 1,
            _ => {}
        }
    }
}

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

impl Engine {
    /// A packet for a peer whose packets are tagged.
    pub(super) fn send_tagged(
        &mut self,
        terms: TagTerms,
        peer: usize,
        index: u32,
        frame: &mut Frame<'_>,
        parsed: &Parsed,
    ) -> Result<Verdict, DropReason> {
        let is_lenient = self.policy.may_be_clear(peer);
        if self.sealing[peer].association.is_none() {
            // Whatever is sent tells whose address a handshake may borrow.
            self.want(peer, frame, parsed);
        }
        if self.sealing[peer].rollout.is_off() {
            return Ok(self.send_in_clear(peer, index, frame, parsed));
        }
        match kind(frame, parsed) {
            Ok(Kind::Roce) => {}
            Ok(Kind::Other) if terms.other == OtherTraffic::Clear => {
                return Ok(self.send_in_clear(peer, index, frame, parsed));
            }
            _ if is_lenient => return Ok(self.send_in_clear(peer, index, frame, parsed)),
            Ok(Kind::Other) => return Err(DropReason::TagNotRoce),
            Err(reason) => return Err(reason),
        }
        let now = self.now;
        let tagged = self.sealing[peer].tag.as_mut().filter(|it| it.can_tag());
        let Some(tagged) = tagged else {
            return self.send_without_keys(peer, index, frame, parsed);
        };
        replace(frame, parsed, |bytes| tagged.tag.tag(now, bytes, parsed))?;
        tagged.counters.tagged_packets += 1;
        tagged.counters.tagged_bytes += frame.len() as u64;
        send_whole(&mut self.output, Destination::Wire, index, frame);
        Ok(Verdict::Tagged)
    }

    /// A packet of a peer that came without ESP.
    pub(super) fn take_plain(
        &mut self,
        peer: usize,
        frame: &mut Frame<'_>,
        parsed: &Parsed,
    ) -> Result<Verdict, DropReason> {
        if let Mode::IcrcTag(terms) = self.policy.peers[peer].mode {
            return self.take_tagged(terms, peer, frame, parsed);
        }
        match self.policy.may_be_clear(peer) {
            true => self.take_unsealed(peer, frame, parsed),
            false if self.is_opened_by_nic(peer) => Ok(Verdict::Handed),
            false => Err(DropReason::NotSealed),
        }
    }

    fn take_tagged(
        &mut self,
        terms: TagTerms,
        peer: usize,
        frame: &mut Frame<'_>,
        parsed: &Parsed,
    ) -> Result<Verdict, DropReason> {
        let is_lenient = self.policy.may_be_clear(peer);
        match kind(frame, parsed) {
            Ok(Kind::Roce) => {}
            Ok(Kind::Other) if terms.other == OtherTraffic::Clear => {
                return self.take_unsealed(peer, frame, parsed);
            }
            _ if is_lenient => return self.take_unsealed(peer, frame, parsed),
            Ok(Kind::Other) => return Err(DropReason::TagNotRoce),
            Err(reason) => return Err(reason),
        }
        let now = self.now;
        let tagged = self.sealing[peer].tag.as_mut().ok_or(DropReason::NoAssociation)?;
        let restored = replace(frame, parsed, |bytes| tagged.tag.restore(now, bytes, parsed));
        let number = match restored {
            Ok(number) => number,
            Err(TagRefusal::Foreign | TagRefusal::NoKey) if is_lenient => {
                return self.take_unsealed(peer, frame, parsed);
            }
            Err(refusal) => {
                tagged.count(refusal);
                return Err(refusal.into());
            }
        };
        tagged.counters.restored_packets += 1;
        tagged.counters.restored_bytes += frame.len() as u64;
        tagged.counters.last_restored = frame.meta.time;
        if tagged.pending.as_ref().is_some_and(|it| it.open_spi == number) {
            self.confirm_by_tag(number);
        }
        self.plain.pass(Side::Wire, frame, parsed, &mut FlowPlace::default())?;
        Ok(Verdict::Tagged)
    }

    /// What was done about the tags of the peer of this index; `None`: its packets carry none.
    pub fn tag_counters(&self, peer: usize) -> Option<TagCounters> {
        self.sealing[peer].tag.as_ref().map(|it| it.counters)
    }

    /// Whether the peer of this name has keys to go on with.
    pub(super) fn has_tag(&self, name: &str) -> bool {
        let mut peers = self.policy.peers.iter().zip(&self.sealing);
        peers.any(|(peer, it)| peer.name == name && peer.agreed.is_none() && it.tag.is_some())
    }

    /// Parts what tagged peers of the present policy have from the rest; those whose keys are
    /// agreed go with their associations.
    pub(super) fn take_tags(&mut self) -> Tags {
        let peers = self.policy.peers.iter().zip(&mut self.sealing);
        let shared = peers.filter(|(peer, _)| peer.agreed.is_none());
        shared.filter_map(|(peer, it)| Some((peer.name.clone(), it.tag.take()?))).collect()
    }

    /// Gives tagged peers of the new policy the keys that are `new`, or those that they had.
    pub(super) fn restore_tags(&mut self, mut before: Tags, new: Vec<(String, IcrcTag)>) {
        let mut new: BTreeMap<String, IcrcTag> = new.into_iter().collect();
        for (peer, it) in self.policy.peers.iter().zip(&mut self.sealing) {
            let Mode::IcrcTag(_) = peer.mode else { continue };
            if peer.agreed.is_some() {
                continue;
            }
            let before = before.remove(&peer.name);
            it.tag = match new.remove(&peer.name) {
                Some(tag) => {
                    let counters = before.map(|it| it.counters).unwrap_or_default();
                    Some(Box::new(TaggedPeer { tag, pending: None, counters }))
                }
                None => before,
            };
        }
    }
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
