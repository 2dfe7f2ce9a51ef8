//! Associations whose keys are agreed by handshakes ([`weir_engine::tunnel`]): they come and go
//! while packets flow.
//!
//! ```text
//!   initiator: opening one in, sealing one in, policy to it, the one before out
//!   responder: opening one in .. its first packet counted .. sealing one in, policy to it
//! ```
//!
//! A key is installed once and dies with the process or before: nothing of it is on disk, and no IV
//! repeats. What fails is never tried again with the same key; a new handshake makes others.

use std::iter;
use std::time::Instant;

use anyhow::{Result, ensure};
use arrayvec::ArrayVec;
use weir_engine::esp::sa::SaParameters;
use weir_engine::peer::life::OPENING_PLACES;
use weir_engine::tunnel::handshake::Role;
use weir_engine::tunnel::key::PublicKey;
use weir_engine::tunnel::state::{Install, PeerActivity};
use weir_port::Interface;
use weir_store::clock;
use weir_xfrm::program::Installed;

use super::nic::{Counted, Handed, RETIRED_FOR};
use super::tunnel::{Direction, Kernel, KernelTunnel};
use crate::api::dto::{KernelEspSnapshot, PeerSnapshot};

/// Those of a NIC that sealed and whose counters may lag, at most: keys that change every second,
/// the shortest time that may be configured, leave six in [`RETIRED_FOR`]. At the bound the oldest
/// goes uncounted, and what left for the NIC is counted anew: keys that change oftener, by bytes or
/// packets, hide a NIC that does not seal.
const RETIRED_MAX: usize = 8;

/// A peer's associations.
pub(super) struct Agreed {
    pub(super) identity: PublicKey,
    seal: Option<Used>,
    /// The one that sealed before: its last packets may be on their way to the guard.
    sealed_before: Option<u32>,
    /// What seals as soon as the opening association of this SPI counted a packet.
    pending: Option<(u32, SaParameters)>,
    /// What sealed before by a NIC, and since when it does no more. Oldest first.
    retired: ArrayVec<(Used, Instant), RETIRED_MAX>,
    /// What left for the NIC to seal.
    handed: Handed,
    /// Oldest first.
    open: ArrayVec<Used, OPENING_PLACES>,
    /// What those did that are gone.
    gone: KernelEspSnapshot,
    /// That and what the others did.
    shown: KernelEspSnapshot,
}

/// An association in the kernel, and what it did when it was last looked at.
#[derive(Clone, Copy)]
struct Used {
    spi: u32,
    by_then: Option<Installed>,
}

impl Used {
    fn packets(&self) -> u64 {
        self.by_then.map_or(0, |it| it.used.packets)
    }
}

impl Agreed {
    pub(super) fn new(identity: PublicKey) -> Self {
        Self {
            identity,
            seal: None,
            sealed_before: None,
            pending: None,
            retired: ArrayVec::new(),
            handed: Handed::default(),
            open: ArrayVec::new(),
            gone: KernelEspSnapshot::default(),
            shown: KernelEspSnapshot::default(),
        }
    }

    /// Whether nothing is in place.
    pub(super) fn is_empty(&self) -> bool {
        self.seal.is_none() && self.open.is_empty()
    }

    /// Packets that a NIC let leave in clear.
    pub(super) fn unsealed_packets(&self) -> u64 {
        self.handed.unsealed()
    }

    /// SPI of the association that seals.
    pub(super) fn seal_spi(&self) -> Option<u32> {
        self.seal.map(|it| it.spi)
    }

    /// SPIs of those that open.
    pub(super) fn open_spis(&self) -> ArrayVec<u32, OPENING_PLACES> {
        self.open.iter().map(|it| it.spi).collect()
    }

    /// Puts the associations of a handshake in place.
    pub(super) fn install(
        &mut self,
        tunnel: &KernelTunnel,
        kernel: &mut Kernel<'_>,
        install: &Install,
    ) -> Result<()> {
        let Install { role, path, seal, open, .. } = install;
        ensure!(
            path.remote.address == tunnel.to.destination,
            "it speaks from {}, and the kernel's ESP follows no peer that moves",
            path.remote.address
        );
        if let Some(oldest) = self.open.first().filter(|_| self.open.is_full()) {
            self.forget(tunnel, kernel, oldest.spi)?;
        }
        ensure!(
            self.handed.unsealed() == 0,
            "its NIC let packets leave in clear, and gets none until a restart"
        );
        let spi = open.spi.value();
        tunnel.install(kernel.socket, Direction::In, open)?;
        self.open.push(Used { spi, by_then: None });
        tunnel.let_pass(kernel.guard, Direction::In, spi)?;
        match role {
            Role::Initiator => self.put_in_use(tunnel, kernel, seal),
            Role::Responder => {
                self.pending = Some((spi, seal.clone()));
                Ok(())
            }
        }
    }

    /// Has everything sealed by `seal` from the next packet on.
    fn put_in_use(
        &mut self,
        tunnel: &KernelTunnel,
        kernel: &mut Kernel<'_>,
        seal: &SaParameters,
    ) -> Result<()> {
        let spi = seal.spi.value();
        tunnel.let_pass(kernel.guard, Direction::Out, spi)?;
        tunnel.install(kernel.socket, Direction::Out, seal)?;
        let before = self.seal.replace(Used { spi, by_then: None });
        tunnel.seal_by(kernel.socket, spi, before.is_none())?;
        if let Some(before) = before {
            self.retire(tunnel, kernel, before.spi)?;
        }
        Ok(())
    }

    /// Removes an association that seals no more; a NIC's stays while its counters lag.
    fn retire(&mut self, tunnel: &KernelTunnel, kernel: &mut Kernel<'_>, spi: u32) -> Result<()> {
        if tunnel.is_all_in_nic() {
            if self.retired.is_full() {
                self.remove_retired(tunnel, kernel)?;
                self.handed.begin_anew();
            }
            self.retired.push((Used { spi, by_then: None }, clock::now()));
            return Ok(());
        }
        self.gone.add_sealed(&tunnel.read(kernel.socket, Direction::Out, spi)?, 0);
        tunnel.remove(kernel.socket, Direction::Out, spi)?;
        let before = self.sealed_before.replace(spi);
        self.shut_out(tunnel, kernel, before)
    }

    fn shut_out(
        &mut self,
        tunnel: &KernelTunnel,
        kernel: &mut Kernel<'_>,
        spi: Option<u32>,
    ) -> Result<()> {
        let Some(spi) = spi else { return Ok(()) };
        if !tunnel.is_all_in_nic() {
            self.gone.left_packets += tunnel.left(kernel.guard, iter::once(spi)).unwrap_or(0);
        }
        tunnel.shut(kernel.guard, Direction::Out, spi)
    }

    fn remove_sealing(
        &mut self,
        tunnel: &KernelTunnel,
        kernel: &mut Kernel<'_>,
        it: Used,
    ) -> Result<()> {
        let last = tunnel.read(kernel.socket, Direction::Out, it.spi).ok().or(it.by_then);
        last.iter().for_each(|it| self.gone.add_sealed(it, 0));
        tunnel.remove(kernel.socket, Direction::Out, it.spi)
    }

    /// Removes the one that has been there for longest.
    fn remove_retired(&mut self, tunnel: &KernelTunnel, kernel: &mut Kernel<'_>) -> Result<()> {
        let (oldest, _) = self.retired.remove(0);
        self.remove_sealing(tunnel, kernel, oldest)
    }

    /// Removes an association that opens.
    pub(super) fn forget(
        &mut self,
        tunnel: &KernelTunnel,
        kernel: &mut Kernel<'_>,
        spi: u32,
    ) -> Result<()> {
        let Some(place) = self.open.iter().position(|it| it.spi == spi) else { return Ok(()) };
        let last = tunnel.read_opening(kernel, spi).ok().or(self.open[place].by_then);
        self.open.remove(place);
        self.pending.take_if(|(pending, _)| *pending == spi);
        last.iter().for_each(|it| self.gone.add_opened(it));
        tunnel.shut(kernel.guard, Direction::In, spi)?;
        tunnel.remove(kernel.socket, Direction::In, spi)
    }

    /// Removes all. Goes on behind an error, and returns the first.
    pub(super) fn close(&mut self, tunnel: &KernelTunnel, kernel: &mut Kernel<'_>) -> Result<()> {
        self.pending = None;
        let mut result = tunnel.shut_nic(kernel.guard).map(|left| self.gone.left_packets += left);
        result = result.and(tunnel.seal_nothing(kernel.socket));
        for spi in self.open_spis() {
            result = result.and(self.forget(tunnel, kernel, spi));
        }
        while !self.retired.is_empty() {
            result = result.and(self.remove_retired(tunnel, kernel));
        }
        self.handed.begin_anew();
        if let Some(seal) = self.seal.take() {
            result = result.and(self.remove_sealing(tunnel, kernel, seal));
            result = result.and(self.shut_out(tunnel, kernel, Some(seal.spi)));
        }
        let before = self.sealed_before.take();
        result.and(self.shut_out(tunnel, kernel, before))
    }

    /// Sees what the kernel did. A first packet that came by the association that waits for one
    /// says that the initiator has the new keys: then they seal.
    pub(super) fn look(
        &mut self,
        tunnel: &KernelTunnel,
        kernel: &mut Kernel<'_>,
    ) -> Result<PeerActivity> {
        let mut activity = PeerActivity::default();
        for association in &mut self.open {
            let now = tunnel.read_opening(kernel, association.spi)?;
            activity.heard |= now.used.packets > association.packets();
            association.by_then = Some(now);
            if now.used.packets > 0 && self.pending.as_ref().is_some_and(|it| it.0 == now.spi) {
                activity.confirmed = Some(now.spi);
            }
        }
        if let Some((_, seal)) = self.pending.take_if(|it| activity.confirmed == Some(it.0)) {
            self.put_in_use(tunnel, kernel, &seal)?;
        }
        if let Some(association) = &mut self.seal {
            let now = tunnel.read(kernel.socket, Direction::Out, association.spi)?;
            if now.used.packets > association.packets() {
                activity.sealed = Some((now.spi, now.used.packets, now.used.bytes));
            }
            association.by_then = Some(now);
        }
        for (retired, _) in &mut self.retired {
            retired.by_then = Some(tunnel.read(kernel.socket, Direction::Out, retired.spi)?);
        }
        if self.retired.first().is_some_and(|(_, since)| since.elapsed() > RETIRED_FOR) {
            self.remove_retired(tunnel, kernel)?;
        }
        self.sum_up(tunnel, kernel)?;
        if tunnel.is_all_in_nic() {
            let KernelEspSnapshot { left_packets: left, sealed_packets: sealed, .. } = self.shown;
            let dropped = || Ok(Interface::find(kernel.wire)?.lost_leaving()?);
            let checked = self.handed.check(clock::now(), Counted { left, sealed }, dropped);
            self.gone.unsealed_packets = self.handed.unsealed();
            self.shown.unsealed_packets = self.handed.unsealed();
            checked?;
        }
        Ok(activity)
    }

    fn sum_up(&mut self, tunnel: &KernelTunnel, kernel: &Kernel<'_>) -> Result<()> {
        let mut sum = self.gone.clone();
        let spis = self.sealed_before.into_iter().chain(self.seal_spi());
        sum.left_packets += tunnel.left(kernel.guard, spis)?;
        let retired = self.retired.iter().filter_map(|(it, _)| it.by_then.as_ref());
        retired.for_each(|it| sum.add_sealed(it, 0));
        if let Some(sealed) = self.seal.and_then(|it| it.by_then) {
            sum.add_sealed(&sealed, 0);
            // A NIC keeps its numbers to itself: one a packet.
            sum.sequence_sent = sealed.sealed.max(sealed.used.packets);
        }
        let opened = self.open.iter().filter_map(|it| it.by_then.as_ref());
        opened.for_each(|it| sum.add_opened(it));
        self.shown = sum;
        Ok(())
    }

    pub(super) fn show(&self, peer: &mut PeerSnapshot) -> KernelEspSnapshot {
        peer.seal_spi = self.seal_spi().unwrap_or_default();
        let newest = self.open.last();
        peer.open_spi = newest.map_or(0, |it| it.spi);
        peer.sequence_next = self.shown.sequence_sent + 1;
        peer.sequence_reserved_until = u64::MAX;
        peer.sequence_remaining = u64::MAX - peer.sequence_next;
        peer.sequence_received = newest.and_then(|it| it.by_then).map_or(0, |it| it.opened);
        self.shown.clone()
    }
}
