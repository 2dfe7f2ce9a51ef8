//! Peers whose ESP the gateway's kernel does (docs/adr/0024): what must be sealed goes to their
//! xfrm interface as the IP packet that it is, what the kernel opened comes from there and is
//! checked as if it had been opened here.
//!
//! ```text
//!   host -> clamp, cut, fits? -> xfrm interface          Verdict::Handed
//!   wire -> ESP of its association: not ours to open     Verdict::Handed
//!   xfrm interface -> selectors -> meter -> host         Verdict::Opened
//! ```

use std::collections::HashMap;

use weir_wire::frame::{Frame, Link, Offload, Time};
use weir_wire::parse::{MacAddress, Network, Parsed};

use super::walked::Walked;
use super::{Engine, send_whole};
use crate::classify::has_address;
use crate::counters::PeerCounters;
use crate::ingress::may_send;
use crate::offload::checksum::complete;
use crate::output::{Destination, Output, Part};
use crate::policy::{Policy, mapped};
use crate::verdict::{DropReason, Side, Verdict};

const ETHERNET_LEN: usize = 14;
const ETHERTYPE_IPV4: [u8; 2] = [8, 0];

/// Peers whose ESP the kernel does, by their place among each other, which no policy changes.
#[derive(Debug, Default)]
pub(super) struct KernelPeers {
    /// Indices into the policy's peers.
    peers: Vec<usize>,
    /// By SPI: where the ESP comes from that the kernel opens.
    opened: HashMap<u32, [u8; 16]>,
    /// Handed to the kernel and taken from it. Kept from policy to policy.
    counters: Vec<PeerCounters>,
    /// Those that the kernel lost.
    lost: Vec<bool>,
}

impl KernelPeers {
    /// Takes those of `policy` instead.
    pub(super) fn renew(&mut self, policy: &Policy) {
        self.peers.clear();
        self.opened.clear();
        for (index, peer) in policy.peers.iter().enumerate() {
            let Some(kernel) = peer.kernel else { continue };
            self.peers.push(index);
            self.opened.extend(peer.endpoint.map(|it| (kernel.open_spi, mapped(it))));
        }
        self.counters.resize(self.peers.len(), PeerCounters::default());
        self.lost.resize(self.peers.len(), false);
    }

    /// Whether this ESP, to an own address, is the kernel's to open.
    pub(super) fn opens(&self, spi: u32, outer: &Parsed) -> bool {
        !self.opened.is_empty() && self.opened.get(&spi) == Some(&outer.source)
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
        if parsed.network != Network::Ipv4 {
            return Err(DropReason::NoPolicy);
        }
        if self.kernel.lost[usize::from(place)] {
            return Err(DropReason::KernelEsp);
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
                let counters = &mut self.kernel.counters[usize::from(place)];
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
        &self.output
    }

    fn opened_frame(
        &mut self,
        place: u16,
        frame: &mut Frame<'_>,
        inner: &mut Walked,
    ) -> Result<Verdict, DropReason> {
        let peer = self.kernel.peers[usize::from(place)];
        if frame.bytes().first().is_none_or(|byte| byte >> 4 != 4) {
            return Err(DropReason::EspTrailer);
        }
        let own = self.policy.own.as_ref().map(|own| own.mac).unwrap_or_default();
        let head = frame.prepend(ETHERNET_LEN).ok_or(DropReason::NoRoom)?;
        head[6..12].copy_from_slice(&own.0);
        head[12..14].copy_from_slice(&ETHERTYPE_IPV4);
        frame.meta.original_len = frame.len() as u32;
        frame.meta.link = Link::Ethernet;
        frame.meta.offload = frame.meta.offload.shifted(ETHERNET_LEN as u16);
        let follows = inner.walker.walk(frame);
        let parsed = inner.parsed();
        if parsed.fault.is_some() && !has_address(parsed) {
            return Err(DropReason::Malformed);
        }
        if !may_send(&self.policy.peers[peer], parsed) {
            return Err(DropReason::SelectorMismatch);
        }
        self.hosts.lead(frame, &mut inner.walker)?;
        inner.note(follows);
        self.observe_next(Side::Wire, frame, inner);
        self.clamp(peer, frame, inner.parsed());
        // The kernel may have gathered segments.
        let packets = self.observation(Side::Wire, frame, inner.parsed()).segments;
        let counters = &mut self.kernel.counters[usize::from(place)];
        counters.opened_packets += u64::from(packets);
        counters.opened_bytes += frame.len() as u64;
        counters.last_opened = frame.meta.time;
        Ok(Verdict::Opened)
    }

    /// Says whether the kernel has lost the associations at `place`: then what belongs there is
    /// dropped as `kernel_esp`.
    pub fn note_kernel(&mut self, place: u16, is_lost: bool) {
        if let Some(lost) = self.kernel.lost.get_mut(usize::from(place)) {
            *lost = is_lost;
        }
    }

    /// The MAC address that sealed packets of the xfrm interface at `place` go to; `None` while
    /// nobody has answered.
    pub fn kernel_hop(&self, place: u16) -> Option<MacAddress> {
        let peer = *self.kernel.peers.get(usize::from(place))?;
        self.sealing[peer].hop()
    }

    /// What was handed to the kernel for the peer of this index and taken from it; `None`: its ESP
    /// is not the kernel's.
    pub(super) fn kernel_counters(&self, peer: usize) -> Option<PeerCounters> {
        let place = self.kernel.peers.iter().position(|index| *index == peer)?;
        Some(self.kernel.counters[place])
    }
}
