//! Associations whose keys are in files: no nonce and no number twice, over restarts too.
//!
//! **No nonce twice.** The kernel XORs each number with 64 random bits of an installation to make
//! its IV. Numbers go on at the mark on disk and end below 2^48, so all IVs of an installation
//! begin with the same 16 bits: of each key those are noted on disk before the guard lets a packet
//! out, and an installation that draws bits that were there before is made anew. Bits of zero are
//! Weir's own IVs, which are the numbers.
//!
//! **No number accepted twice.** What the kernel accepted is written ten times a second, and read
//! from the kernel itself after a crash of this process alone.

use std::io::IoSlice;
use std::sync::mpsc::Sender;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use weir_engine::esp::open::OpeningState;
use weir_engine::esp::replay::ReplayState;
use weir_engine::esp::sa::SaParameters;
use weir_engine::esp::seal::SealingState;
use weir_engine::esp::silent::silent_packet;
use weir_port::{Guard, IvPrefix, Outgoing, PacketPort, Port};
use weir_store::clock;
use weir_wire::frame::Offload;

use super::tunnel::{Direction, Kernel, KernelTunnel, Numbers};
use crate::api::dto::{KernelEspSnapshot, PeerSnapshot};
use crate::daemon::keys::state::{Reserved, Reserver, StateFile, StateStore};
use crate::daemon::pair::plan::AssociationPlan;
use crate::daemon::pair::xfrm_socket::XfrmSocket;

/// Numbers reserved at a time: at a million packets a second the disk is asked each 8 seconds, and
/// the far side guesses the upper half right behind a gap of less than 2^31.
const RESERVATION: u64 = 1 << 24;
/// Numbers end here: above are the bits that tell installations apart.
const NUMBERS_END: u64 = 1 << 48;
/// Installations of a key until one draws bits that none had before. Of 65,536, with a thousand
/// gone, eight draws all fail once in 10^14 starts.
const DRAWS_MAX: u32 = 8;
/// How long the first packet may take through the kernel.
const PATIENCE: Duration = Duration::from_secs(2);

/// A peer's two associations.
pub(super) struct FromFiles {
    pub(super) seal: SaParameters,
    open: SaParameters,
    /// The last number that was used before the association was installed.
    before: u64,
    reserved_until: u64,
    is_asked: bool,
    opening_file: StateFile,
    /// The highest accepted number that is on disk.
    opened: u64,
    shown: KernelEspSnapshot,
}

impl FromFiles {
    pub(super) fn new(plan: AssociationPlan) -> Self {
        let AssociationPlan { seal, open, sealing_state, opening_state, opening_file, .. } = plan;
        let next = sealing_state.map_or(1, |it| it.reserved_until);
        Self {
            seal,
            open,
            before: next - 1,
            reserved_until: next,
            is_asked: false,
            opening_file,
            opened: opening_state.map_or(0, |it| it.replay.highest),
            shown: KernelEspSnapshot::default(),
        }
    }

    /// SPI of the association of that direction.
    pub(super) fn spi(&self, direction: Direction) -> u32 {
        let parameters = if direction == Direction::Out { &self.seal } else { &self.open };
        parameters.spi.value()
    }

    fn sealing_numbers(&self) -> Numbers {
        // The last reserved number is the one below the mark.
        Numbers { used: self.before, packets_max: self.reserved_until - 1 - self.before }
    }

    /// What to have on disk next; `None`: there are no more numbers.
    fn next_reservation(&self) -> Option<SealingState> {
        let until = (self.reserved_until + RESERVATION).min(NUMBERS_END);
        let state = SealingState { fingerprint: self.seal.fingerprint(), reserved_until: until };
        (until > self.reserved_until).then_some(state)
    }

    /// Installs them and lets their packets pass. Waits for the disk and the kernel.
    pub(super) fn install(
        &mut self,
        tunnel: &KernelTunnel,
        Kernel { socket, guard, .. }: &mut Kernel<'_>,
        port: &mut PacketPort,
        store: &mut StateStore,
    ) -> Result<()> {
        let state = self
            .next_reservation()
            .context("its key is used up; make new keys on both gateways (`weir keys generate`)")?;
        store.reserver().wait(vec![state])?;
        self.reserved_until = state.reserved_until;
        let packets = tunnel.packets(Direction::Out, self.spi(Direction::Out));
        tunnel.seal_by(socket, packets.spi, true)?;
        for _ in 0..DRAWS_MAX {
            guard.let_out(tunnel.mark(), packets)?;
            tunnel.install_in_kernel(socket, Direction::Out, &self.seal, self.sealing_numbers())?;
            send_first(tunnel, port)?;
            let prefix = self.first_iv(tunnel, guard)?;
            if store.note_iv(self.seal.fingerprint(), prefix)? {
                guard.pass(packets)?;
                let accepted = Numbers { used: self.opened, packets_max: u64::MAX };
                tunnel.install_in_kernel(socket, Direction::In, &self.open, accepted)?;
                return Ok(guard.let_in(tunnel.packets(Direction::In, self.spi(Direction::In)))?);
            }
            self.before = tunnel.read(socket, Direction::Out, packets.spi)?.sealed;
            tunnel.remove(socket, Direction::Out, packets.spi)?;
        }
        bail!("its key was installed too often; make new keys (`weir keys generate`)")
    }

    fn first_iv(&self, tunnel: &KernelTunnel, guard: &Guard) -> Result<IvPrefix> {
        let begun = clock::now();
        while begun.elapsed() < PATIENCE {
            if let Some(prefix) =
                guard.learnt(tunnel.packets(Direction::Out, self.spi(Direction::Out)))?
            {
                return Ok(prefix);
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        bail!(
            "the kernel sealed nothing for the wire port; is it up? `nstat -a '*Xfrm*'` tells more"
        )
    }

    /// Takes in what the disk said about its numbers.
    pub(super) fn reserved(
        &mut self,
        tunnel: &KernelTunnel,
        socket: &mut XfrmSocket,
        granted: Option<&SealingState>,
    ) -> Result<()> {
        self.is_asked = false;
        let Some(state) = granted else { return Ok(()) };
        self.reserved_until = state.reserved_until;
        let numbers = self.sealing_numbers();
        tunnel
            .with(Direction::Out, &self.seal, numbers, None, |it| socket.request(|n| it.extend(n)))
            .context("the kernel does not take a higher limit")
    }

    /// Sees what the kernel did, has more numbers reserved and accepted ones kept.
    pub(super) fn look(
        &mut self,
        tunnel: &KernelTunnel,
        Kernel { socket, guard, .. }: &mut Kernel<'_>,
        reserver: &Reserver,
        answer: &Sender<Reserved>,
    ) -> Result<()> {
        let out = tunnel.read(socket, Direction::Out, self.spi(Direction::Out))?;
        let inward = tunnel.read(socket, Direction::In, self.spi(Direction::In))?;
        let is_short = self.reserved_until.saturating_sub(out.sealed) < RESERVATION / 2;
        if is_short
            && !self.is_asked
            && let Some(state) = self.next_reservation()
        {
            self.is_asked = reserver.ask(state, answer);
        }
        if inward.opened > self.opened {
            self.keep(inward.opened)?;
        }
        let left = guard.passed(tunnel.packets(Direction::Out, self.spi(Direction::Out)))?;
        self.shown = KernelEspSnapshot::default();
        self.shown.add_sealed(&out, left);
        self.shown.add_opened(&inward);
        self.shown.sequence_sent = out.sealed;
        Ok(())
    }

    /// Shuts the guard, and keeps what was accepted.
    pub(super) fn stop(
        &mut self,
        tunnel: &KernelTunnel,
        Kernel { socket, guard, .. }: &mut Kernel<'_>,
    ) -> Result<()> {
        for direction in [Direction::Out, Direction::In] {
            guard.shut(tunnel.packets(direction, self.spi(direction)))?;
        }
        if let Ok(installed) = tunnel.read(socket, Direction::In, self.spi(Direction::In)) {
            self.keep(installed.opened)?;
        }
        Ok(())
    }

    /// Writes that numbers up to `opened` were accepted.
    fn keep(&mut self, opened: u64) -> Result<()> {
        let replay = ReplayState::up_to(opened);
        let mut record = Vec::new();
        OpeningState { fingerprint: self.open.fingerprint(), replay }.encode(&mut record);
        self.opening_file.write(&record).context("what it accepted cannot be kept on disk")?;
        self.opened = opened;
        Ok(())
    }

    pub(super) fn show(&self, peer: &mut PeerSnapshot) -> KernelEspSnapshot {
        (peer.seal_spi, peer.open_spi) = (self.spi(Direction::Out), self.spi(Direction::In));
        peer.sequence_next = self.shown.sequence_sent + 1;
        peer.sequence_reserved_until = self.reserved_until;
        peer.sequence_remaining = NUMBERS_END.saturating_sub(peer.sequence_next);
        peer.sequence_received = self.opened;
        self.shown.clone()
    }
}

/// A packet for nobody, from gateway to gateway: the guard keeps it.
fn send_first(tunnel: &KernelTunnel, port: &mut PacketPort) -> Result<()> {
    let packet = silent_packet(tunnel.to.source, tunnel.to.destination, &[], 0)
        .context("its addresses are of two families")?;
    let parts = [IoSlice::new(&packet)];
    port.transmit(&[Outgoing { parts: &parts, offload: Offload::default() }]);
    Ok(())
}
