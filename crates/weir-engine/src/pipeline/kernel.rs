//! Peers whose ESP the gateway's kernel does (docs/adr/0024): what must be sealed goes to their
//! xfrm interface as the IP packet that it is, what the kernel opened comes from there and is
//! checked as if it had been opened here. Agreed keys are installed by who speaks to the kernel,
//! and told here by SPI alone.
//!
//! ```text
//!   host -> clamp, cut, fits? -> xfrm interface          Verdict::Handed
//!   wire -> ESP of its association: not ours to open     Verdict::Handed
//!   xfrm interface -> selectors -> meter -> host         Verdict::Opened
//! ```
//!
//! What a NIC opened (docs/adr/0035) shows on the wire port too, as it would look if somebody had
//! sent it in clear. It is left to the guard, which knows the one from the other: the one comes by
//! the xfrm interface, the other goes nowhere.

use std::collections::HashMap;

use weir_wire::frame::{Frame, Link, Offload, Time};
use weir_wire::ip::protocol::NO_NEXT_HEADER;
use weir_wire::parse::{MacAddress, Network, Parsed};

use super::walked::Walked;
use super::{Engine, send_whole};
use crate::classify::has_address;
use crate::counters::PeerCounters;
use crate::ingress::silent_in;
use crate::offload::checksum::complete;
use crate::output::{Destination, Output, Part};
use crate::plain::segments;
use crate::policy::{Policy, mapped};
use crate::tunnel::state::Report;
use crate::verdict::{DropReason, Side, Verdict};

const ETHERNET_LEN: usize = 14;
const ETHERTYPE_IPV4: [u8; 2] = [8, 0];
const ETHERTYPE_IPV6: [u8; 2] = [0x86, 0xdd];

/// Peers whose ESP the kernel does, by their place among each other, which no policy changes.
#[derive(Debug, Default)]
pub(super) struct KernelPeers {
    peers: Vec<KernelPeer>,
    /// By SPI: where the ESP comes from that the kernel opens.
    opened: HashMap<u32, [u8; 16]>,
}

/// One of them. All but its index stays from policy to policy.
#[derive(Debug, Default)]
struct KernelPeer {
    /// In the policy.
    index: usize,
    /// Handed to the kernel and taken from it.
    counters: PeerCounters,
    /// Whether the kernel lost its associations.
    is_lost: bool,
    /// The association that seals.
    seal_spi: Option<u32>,
    /// Those that open.
    open_spis: Vec<u32>,
}

impl KernelPeers {
    /// Takes those of `policy` instead.
    pub(super) fn renew(&mut self, policy: &Policy) {
        let by_kernel = || policy.peers.iter().enumerate().filter(|(_, it)| it.kernel.is_some());
        self.peers.resize_with(by_kernel().count(), KernelPeer::default);
        for (peer, (index, wanted)) in self.peers.iter_mut().zip(by_kernel()) {
            peer.index = index;
            if let Some([seal, open]) = wanted.kernel.and_then(|it| it.spis) {
                (peer.seal_spi, peer.open_spis) = (Some(seal), vec![open]);
            }
        }
        self.note_opened(policy);
    }

    fn note_opened(&mut self, policy: &Policy) {
        self.opened.clear();
        for peer in &self.peers {
            let Some(endpoint) = policy.peers[peer.index].endpoint else { continue };
            self.opened.extend(peer.open_spis.iter().map(|spi| (*spi, mapped(endpoint))));
        }
    }

    /// Whether this ESP, to an own address, is the kernel's to open.
    pub(super) fn opens(&self, spi: u32, outer: &Parsed) -> bool {
        !self.opened.is_empty() && self.opened.get(&spi) == Some(&outer.source)
    }

    /// Whether this may be what a NIC opened for the gateway itself ([`crate::esp::silent`]).
    pub(super) fn may_be_silent(&self, policy: &Policy, parsed: &Parsed) -> bool {
        parsed.protocol == NO_NEXT_HEADER
            && self.peers.iter().map(|it| &policy.peers[it.index]).any(|it| {
                it.kernel.is_some_and(|kernel| kernel.nic_reaches.is_some())
                    && it.endpoint.is_some_and(|endpoint| mapped(endpoint) == parsed.source)
            })
    }

    /// Whether the peer at `index` of the policy is sealed to under this SPI.
    pub(super) fn seals(&self, index: usize, spi: u32) -> bool {
        self.peers.iter().any(|it| it.index == index && it.seal_spi == Some(spi))
    }
}

/// What is decided about ESP for the kernel: no fragment leads to its association.
pub(super) fn handed_whole(outer: &Parsed) -> Result<Verdict, DropReason> {
    match outer.fragment {
        Some(_) => Err(DropReason::Fragment),
        None => Ok(Verdict::Handed),
    }
}

impl Engine {
    /// Sends what belongs to `peer` to its xfrm interface, the one at `place`.
    pub(super) fn hand_over(
        &mut self,
        now: Time,
        (peer, place): (usize, u16),
        index: u32,
        frame: &mut Frame<'_>,
        parsed: &Parsed,
    ) -> Result<Verdict, DropReason> {
        if !matches!(parsed.network, Network::Ipv4 | Network::Ipv6) {
            return Err(DropReason::NoPolicy);
        }
        let kernel = &self.kernel.peers[usize::from(place)];
        if kernel.is_lost {
            return Err(DropReason::KernelEsp);
        }
        if kernel.seal_spi.is_none() {
            return self.send_without_keys(peer, index, frame, parsed);
        }
        if self.sealing[peer].outer_header().is_none() {
            return Err(DropReason::NeighbourUnknown);
        }
        self.clamp(peer, frame, parsed);
        let bytes = frame.len() as u64;
        let handed = if frame.meta.offload.segmentation.is_some() {
            self.sealing[peer].cut_for_kernel(frame, parsed, place, &mut self.output)
        } else if !self.sealing[peer].fits(parsed, frame.len()) {
            Err(DropReason::TooBig)
        } else if !complete(frame) {
            Err(DropReason::Malformed)
        } else {
            let range = u32::from(parsed.network_offset)..parsed.end;
            let part = Part::Frame { frame: index, range };
            self.output.send(Destination::Kernel(place), Offload::default(), part);
            Ok(1)
        };
        match handed {
            Ok(packets) => {
                let counters = &mut self.kernel.peers[usize::from(place)].counters;
                counters.sealed_packets += packets;
                counters.sealed_bytes += bytes;
                Ok(Verdict::Handed)
            }
            Err(reason) => {
                if reason == DropReason::TooBig {
                    self.answer_too_big(now, peer, parsed, frame);
                }
                Err(reason)
            }
        }
    }

    /// Whether a NIC does all of the ESP of the peer at `index`.
    pub(super) fn is_opened_by_nic(&self, index: usize) -> bool {
        self.policy.peers[index].kernel.is_some_and(|it| it.nic_reaches.is_some())
    }

    /// Decides about IP packets that the kernel opened, which came by the xfrm interface at
    /// `place`. Like [`Engine::process`].
    pub fn process_opened(&mut self, now: Time, place: u16, frames: &mut [Frame<'_>]) -> &Output {
        self.output.clear();
        self.now = now;
        let mut inner = Walked::default();
        for (index, frame) in frames.iter_mut().enumerate() {
            let bytes = frame.len();
            let verdict = self.opened_frame(place, frame, &mut inner);
            let verdict = verdict.unwrap_or_else(Verdict::Drop);
            if verdict == Verdict::Opened {
                send_whole(&mut self.output, Destination::Host, index as u32, frame);
            }
            self.output.verdicts.push(verdict);
            self.counters.kernel.count(bytes, verdict);
        }
        self.plain.meter.end_train();
        &self.output
    }

    fn opened_frame(
        &mut self,
        place: u16,
        frame: &mut Frame<'_>,
        inner: &mut Walked,
    ) -> Result<Verdict, DropReason> {
        let peer = self.kernel.peers[usize::from(place)].index;
        let ethertype = match frame.bytes().first().map(|byte| byte >> 4) {
            Some(4) => ETHERTYPE_IPV4,
            Some(6) => ETHERTYPE_IPV6,
            _ => return Err(DropReason::EspTrailer),
        };
        let own = self.policy.own.as_ref().map(|own| own.mac).unwrap_or_default();
        let head = frame.prepend(ETHERNET_LEN).ok_or(DropReason::NoRoom)?;
        head[6..12].copy_from_slice(&own.0);
        head[12..14].copy_from_slice(&ethertype);
        frame.meta.original_len = frame.len() as u32;
        frame.meta.link = Link::Ethernet;
        frame.meta.offload = frame.meta.offload.shifted(ETHERNET_LEN as u16);
        let (walker, sources) = inner.opened();
        let follows = walker.walk(frame);
        let parsed = walker.parsed();
        if parsed.fault.is_some() && !has_address(parsed) {
            return Err(DropReason::Malformed);
        }
        let led = match sources.are_of(&self.policy, peer, parsed) {
            true => self.hosts.lead(frame, walker),
            false => Err(DropReason::SelectorMismatch),
        };
        if let Err(reason) = led {
            let message = silent_in(frame, inner.parsed()).ok_or(reason)?;
            return Ok(self.heard_dummy(peer, message));
        }
        inner.note(follows);
        inner.pass(&mut self.plain, Side::Wire, frame)?;
        self.clamp(peer, frame, inner.parsed());
        // The kernel may have gathered segments.
        let packets = segments(frame, inner.parsed());
        let counters = &mut self.kernel.peers[usize::from(place)].counters;
        counters.opened_packets += u64::from(packets);
        counters.opened_bytes += frame.len() as u64;
        counters.last_opened = frame.meta.time;
        Ok(Verdict::Opened)
    }

    /// Hands over an IP packet of the gateway's own.
    pub(super) fn hand_over_own(&mut self, place: u16, packet: &[u8]) -> Option<()> {
        self.kernel.peers[usize::from(place)].seal_spi?;
        let range = self.output.allocate(packet.len())?;
        self.output.arena_mut(&range).copy_from_slice(packet);
        self.output.send(Destination::Kernel(place), Offload::default(), Part::Arena(range));
        Some(())
    }

    /// Says whether the kernel has lost the associations at `place`: then what belongs there is
    /// dropped as `kernel_esp`.
    pub fn note_kernel(&mut self, place: u16, is_lost: bool) {
        if let Some(peer) = self.kernel.peers.get_mut(usize::from(place)) {
            peer.is_lost = is_lost;
        }
    }

    /// Says which agreed associations the kernel has at `place`: the one that seals, without which
    /// packets are dropped as `no_association`, and those that open.
    pub fn set_kernel_associations(&mut self, place: u16, seal: Option<u32>, open: &[u32]) {
        let Some(peer) = self.kernel.peers.get_mut(usize::from(place)) else { return };
        peer.seal_spi = seal;
        open.clone_into(&mut peer.open_spis);
        self.kernel.note_opened(&self.policy);
    }

    /// Adds to what the next report tells of the peer at `place` what its associations in the
    /// kernel did: what they sealed, whether they opened anything, whether they are gone.
    pub fn note_kernel_use(&mut self, place: u16, used: &Report) {
        let Some(index) = self.kernel.peers.get(usize::from(place)).map(|it| it.index) else {
            return;
        };
        let Some(agreed) = &mut self.sealing[index].agreed else { return };
        let note = &mut agreed.note;
        note.sealed = used.sealed.or(note.sealed);
        note.confirmed = used.confirmed.or(note.confirmed);
        note.heard |= used.heard;
        note.lost |= used.lost;
        self.note(index);
    }

    /// The MAC address that sealed packets of the xfrm interface at `place` go to; `None` while
    /// nobody has answered.
    pub fn kernel_hop(&self, place: u16) -> Option<MacAddress> {
        let peer = self.kernel.peers.get(usize::from(place))?;
        self.sealing[peer.index].hop()
    }

    /// What was handed to the kernel for the peer of this index and taken from it; `None`: its ESP
    /// is not the kernel's.
    pub(super) fn kernel_counters(&self, peer: usize) -> Option<PeerCounters> {
        let peer = self.kernel.peers.iter().find(|it| it.index == peer)?;
        Some(peer.counters)
    }
}
