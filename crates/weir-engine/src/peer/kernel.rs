//! Peers whose ESP the gateway's kernel does, with or without a NIC beneath (docs/adr/0024).

use std::collections::HashMap;

use weir_wire::ip::protocol::NO_NEXT_HEADER;
use weir_wire::parse::Parsed;

use crate::counters::PeerCounters;
use crate::policy::{Policy, mapped};

/// All of them, by their place among each other, which no policy changes.
#[derive(Debug, Default)]
pub(crate) struct KernelPeers {
    peers: Vec<KernelPeer>,
    /// By SPI: where the ESP comes from that the kernel opens.
    opened: HashMap<u32, [u8; 16]>,
}

/// One of them. All but its index stays from policy to policy.
#[derive(Debug, Default)]
pub(crate) struct KernelPeer {
    /// In the policy.
    pub(crate) index: usize,
    /// Handed to the kernel and taken from it.
    pub(crate) counters: PeerCounters,
    /// Whether the kernel lost its associations.
    pub(crate) is_lost: bool,
    /// The association that seals.
    pub(crate) seal_spi: Option<u32>,
    /// Those that open.
    pub(super) open_spis: Vec<u32>,
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

    /// The one at `place`.
    #[inline]
    pub(crate) fn at(&self, place: u16) -> Option<&KernelPeer> {
        self.peers.get(usize::from(place))
    }

    /// The same, to change it.
    #[inline]
    pub(crate) fn at_mut(&mut self, place: u16) -> Option<&mut KernelPeer> {
        self.peers.get_mut(usize::from(place))
    }

    /// Counts a packet that came by the interface at `place` from addresses that are not its
    /// peer's.
    #[cold]
    pub(crate) fn refused(&mut self, place: u16) {
        if let Some(peer) = self.at_mut(place) {
            peer.counters.refused_packets += 1;
        }
    }

    /// Counts a packet that went where its peer may not send.
    #[cold]
    pub(crate) fn denied(&mut self, place: u16) {
        if let Some(peer) = self.at_mut(place) {
            peer.counters.denied_packets += 1;
        }
    }

    /// The associations that the kernel has at `place`.
    pub(crate) fn set(&mut self, place: u16, seal: Option<u32>, open: &[u32], policy: &Policy) {
        let Some(peer) = self.at_mut(place) else { return };
        peer.seal_spi = seal;
        open.clone_into(&mut peer.open_spis);
        self.note_opened(policy);
    }

    /// Whether this ESP, to an own address, is the kernel's to open.
    #[inline]
    pub(crate) fn opens(&self, spi: u32, outer: &Parsed) -> bool {
        !self.opened.is_empty() && self.opened.get(&spi) == Some(&outer.source)
    }

    /// Whether this may be what a NIC opened for the gateway itself ([`crate::esp::silent`]).
    #[inline]
    pub(crate) fn may_be_silent(&self, policy: &Policy, parsed: &Parsed) -> bool {
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

    /// What was handed to the kernel for the peer of this index and taken from it; `None`: its ESP
    /// is not the kernel's.
    pub(super) fn counters(&self, index: usize) -> Option<PeerCounters> {
        Some(self.peers.iter().find(|it| it.index == index)?.counters)
    }
}
