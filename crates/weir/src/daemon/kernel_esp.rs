//! Peers whose ESP the kernel does (`offload = "kernel"`, docs/adr/0024): their associations and
//! the way of their packets, made at start, looked after by the worker, removed at its end.
//!
//! ```text
//!   remove_left -> open: interfaces, ports -> guard, shut -> start: associations, routes
//!        -> a packet that the guard keeps: its IV -> known? another installation : pass
//!   tick: numbers used -> more reserved on disk -> limit raised; numbers accepted -> disk
//! ```
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
use std::net::{IpAddr, Ipv4Addr};
use std::sync::mpsc::Sender;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use weir_engine::esp::open::OpeningState;
use weir_engine::esp::replay::ReplayState;
use weir_engine::esp::sa::{Fingerprint, SaParameters, Spi};
use weir_engine::esp::seal::SealingState;
use weir_engine::pipeline::Engine;
use weir_port::{
    EspPackets, Guard, Hop, Interface, IvPrefix, Outgoing, PacketOptions, PacketPort, Port,
    XfrmInterface,
};
use weir_wire::checksum;
use weir_wire::frame::Offload;
use weir_xfrm::netlink::messages;
use weir_xfrm::program::{Association, Bound, Installed, PolicyRequest, keying_material};
use weir_xfrm::uapi::{DIRECTION_OUT, MODE_TUNNEL};

use super::plan::{AssociationPlan, PairPlan};
use super::state::{Reserved, Reserver, StateFile, StateStore};
use super::xfrm_socket::{REQUEST, XfrmSocket};
use crate::api::dto::{KernelEspSnapshot, PairSnapshot};
use crate::config::settings::Pair;

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
/// Slots of an xfrm interface's ring.
const RING_SLOTS: usize = 1024;
/// What a sealing association's window is: the kernel wants one.
const SEALING_WINDOW: u32 = 64;
/// Until the hop has told its address, packets go nowhere: the guard keeps them.
const NOBODY: [u8; 6] = [2, 0, 0, 0, 0, 0];
const NO_SUCH_POLICY: i32 = 2;

/// A peer's associations, and where its sealed packets go.
#[derive(Debug)]
pub struct KernelPlan {
    /// By the wire.
    pub to: Hop,
    /// With their numbers so far.
    pub associations: AssociationPlan,
}

impl KernelPlan {
    /// Of which keys they are: to the peer, and from it.
    pub fn fingerprints(&self) -> [Fingerprint; 2] {
        [self.associations.seal.fingerprint(), self.associations.open.fingerprint()]
    }
}

/// What a gateway that was killed left in the kernel: keys, and the highest number that each
/// accepted.
#[derive(Debug, Default)]
pub struct Left(Vec<(Fingerprint, u64)>);

/// Removes what is left over `wire`, whose lock we hold.
///
/// # Errors
/// The kernel does not let us.
pub fn remove_left(wire: &str) -> Result<Left> {
    let numbers = XfrmInterface::numbers(wire)
        .with_context(|| format!("cannot list the xfrm interfaces over {wire}"))?;
    let mut left = Left::default();
    if numbers.is_empty() {
        return Ok(left);
    }
    let mut socket = XfrmSocket::open()?;
    for number in numbers {
        for body in socket.remove(number)? {
            let fingerprint = keying_material(&body).and_then(|material| {
                let spi = Spi::new(Installed::read(&body)?.spi).ok()?;
                Some(SaParameters::new(spi, material).ok()?.fingerprint())
            });
            let opened = Installed::read(&body).map_or(0, |it| it.opened);
            left.0.extend(fingerprint.map(|it| (it, opened)));
        }
        let everyone = Ipv4Addr::UNSPECIFIED;
        let policy = policy(number, [everyone, everyone]);
        match socket.request(|sequence| policy.remove(sequence)) {
            Err(error) if error.raw_os_error() != Some(NO_SUCH_POLICY) => {
                return Err(error).context("cannot remove a policy of ours");
            }
            _ => {}
        }
    }
    XfrmInterface::remove_all(wire).context("cannot remove an xfrm interface of ours")?;
    Ok(left)
}

/// Numbers that `left` says were accepted stay so.
pub fn take_over(plan: &mut PairPlan, left: &Left) {
    let kernel = plan.kernel.iter_mut().map(|it| &mut it.associations);
    for association in plan.associations.iter_mut().chain(kernel) {
        let fingerprint = association.open.fingerprint();
        for (_, opened) in left.0.iter().filter(|(key, _)| *key == fingerprint) {
            let known = association.opening_state.as_ref().map_or(0, |it| it.replay.highest);
            if *opened > known {
                let replay = ReplayState::up_to(*opened);
                association.opening_state = Some(OpeningState { fingerprint, replay });
            }
        }
    }
}

/// The kernel's ESP of one pair.
pub struct KernelEsp {
    wire: String,
    socket: XfrmSocket,
    peers: Vec<KernelPeer>,
    /// Beside `peers`, until the start.
    ports: Vec<PacketPort>,
}

struct KernelPeer {
    name: String,
    interface: XfrmInterface,
    to: Hop,
    seal: SaParameters,
    open: SaParameters,
    /// The last number that was used before the association was installed.
    before: u64,
    reserved_until: u64,
    is_asked: bool,
    opening_file: StateFile,
    /// The highest accepted number that is on disk.
    opened: u64,
    hop_mac: Option<[u8; 6]>,
    is_lost: bool,
    shown: KernelEspSnapshot,
}

impl KernelEsp {
    /// Makes the xfrm interfaces of `plans` and opens ports on them, in their order; `None` without
    /// plans. No packet passes yet.
    ///
    /// # Errors
    /// The kernel lacks xfrm interfaces, or would drop what comes in.
    pub fn open(pair: &Pair, wire_mtu: u16, plans: Vec<KernelPlan>) -> Result<Option<Self>> {
        if plans.is_empty() {
            return Ok(None);
        }
        let wire = Interface::find(&pair.wire)?;
        wire.switch_reverse_path_filter_off()?;
        if wire.reverse_path_filter()? {
            bail!(
                "offload = \"kernel\": the kernel would drop what comes in by {} (rp_filter); set \
                 net.ipv4.conf.all.rp_filter = 0",
                pair.wire
            );
        }
        let (mut peers, mut ports) = (Vec::new(), Vec::new());
        for KernelPlan { to, associations } in plans {
            let interface = XfrmInterface::create(&pair.wire, wire_mtu.into()).context(
                "offload = \"kernel\": cannot make an xfrm interface; the kernel needs \
                 CONFIG_XFRM_INTERFACE (`modprobe xfrm_interface`)",
            )?;
            let options = PacketOptions {
                ring_slots: RING_SLOTS,
                promiscuous: false,
                ..PacketOptions::default()
            };
            ports.push(PacketPort::open(interface.name(), options)?);
            let AssociationPlan { peer, seal, open, opening_file, .. } = associations;
            let next = associations.sealing_state.map_or(1, |it| it.reserved_until);
            peers.push(KernelPeer {
                name: peer,
                interface,
                to,
                seal,
                open,
                before: next - 1,
                reserved_until: next,
                is_asked: false,
                opening_file,
                opened: associations.opening_state.map_or(0, |it| it.replay.highest),
                hop_mac: None,
                is_lost: false,
                shown: KernelEspSnapshot::default(),
            });
        }
        let socket = XfrmSocket::open()?;
        Ok(Some(Self { wire: pair.wire.clone(), socket, peers, ports }))
    }

    /// The xfrm interfaces, for the guard.
    pub fn interfaces(&self) -> Vec<&str> {
        self.peers.iter().map(|peer| peer.interface.name()).collect()
    }

    /// Installs the associations, lets their packets pass and hands the ports over. Waits for the
    /// disk and the kernel.
    ///
    /// # Errors
    /// The kernel refuses, or does not seal; the disk refuses; a key is used up.
    pub fn start(
        &mut self,
        guard: &mut Guard,
        store: &mut StateStore,
    ) -> Result<Vec<Box<dyn Port + Send>>> {
        for (peer, port) in self.peers.iter_mut().zip(&mut self.ports) {
            peer.install(&self.wire, &mut self.socket, (&mut *guard, port), store)
                .with_context(|| format!("peer {}: offload = \"kernel\"", peer.name))?;
        }
        let boxed = |port| Box::new(port) as Box<dyn Port + Send>;
        Ok(std::mem::take(&mut self.ports).into_iter().map(boxed).collect())
    }

    /// Looks after them. Call it ten times a second.
    pub fn tick(
        &mut self,
        guard: &Guard,
        engine: &mut Engine,
        reserver: &Reserver,
        answer: &Sender<Reserved>,
    ) {
        for (peer, place) in self.peers.iter_mut().zip(0..) {
            if peer.is_lost {
                continue;
            }
            peer.follow_hop(&self.wire, engine.kernel_hop(place).map(|mac| mac.0));
            if let Err(error) = peer.look(&mut self.socket, guard, reserver, answer) {
                tracing::error!(
                    peer = peer.name,
                    "the kernel lost its ESP, nothing passes until a restart: {error:#}"
                );
                peer.is_lost = true;
                engine.note_kernel(place, true);
            }
        }
    }

    /// Takes in what the disk said about numbers of ours.
    pub fn reserved(&mut self, key: Fingerprint, granted: Option<&SealingState>) {
        let of_key = |peer: &&mut KernelPeer| peer.seal.fingerprint() == key;
        let Some(peer) = self.peers.iter_mut().find(of_key) else { return };
        peer.is_asked = false;
        let Some(state) = granted else { return };
        peer.reserved_until = state.reserved_until;
        if let Err(error) = peer.with(Way::Out, |it| self.socket.request(|n| it.extend(n))) {
            tracing::error!(peer = peer.name, %error, "the kernel does not take a higher limit");
        }
    }

    /// Shuts the guard, keeps what was accepted, and removes everything.
    ///
    /// # Errors
    /// Something stays in the kernel; the next start removes it.
    pub fn stop(mut self, guard: &mut Guard) -> Result<()> {
        for peer in &mut self.peers {
            guard.shut(peer.mark(), peer.packets(Way::In))?;
            if let Ok(installed) = peer.read(&mut self.socket, Way::In) {
                peer.keep(installed.opened)?;
            }
        }
        remove_left(&self.wire).map(drop)
    }

    /// Adds what the kernel did to what the status shows of the peers.
    pub fn show(&self, pair: &mut PairSnapshot) {
        for peer in &self.peers {
            let Some(shown) = pair.peers.iter_mut().find(|it| it.name == peer.name) else {
                continue;
            };
            (shown.seal_spi, shown.open_spi) = (peer.seal.spi.value(), peer.open.spi.value());
            shown.sequence_next = peer.shown.sequence_sent + 1;
            shown.sequence_reserved_until = peer.reserved_until;
            shown.sequence_remaining = NUMBERS_END.saturating_sub(shown.sequence_next);
            shown.sequence_received = peer.opened;
            shown.kernel = Some(KernelEspSnapshot { is_lost: peer.is_lost, ..peer.shown.clone() });
        }
    }
}

/// One of a peer's associations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    Out,
    In,
}

impl KernelPeer {
    /// The mark of its sealed packets.
    fn mark(&self) -> u32 {
        self.interface.number()
    }

    /// Its packets on the wire.
    fn packets(&self, way: Way) -> EspPackets {
        let Hop { source, destination, .. } = self.to;
        match way {
            Way::Out => EspPackets { source, destination, spi: self.seal.spi.value() },
            Way::In => {
                EspPackets { source: destination, destination: source, spi: self.open.spi.value() }
            }
        }
    }

    /// An association as it is to be installed.
    fn with<T>(&self, way: Way, then: impl FnOnce(&Association<'_>) -> T) -> T {
        let EspPackets { source, destination, spi } = self.packets(way);
        let parameters = if way == Way::Out { &self.seal } else { &self.open };
        let bound = Bound { interface: self.mark(), packets_max: u64::MAX, ..Bound::default() };
        let (bound, window) = match way {
            Way::Out => {
                // The last reserved number is the one below the mark.
                let packets_max = self.reserved_until - 1 - self.before;
                (Bound { sealed: self.before, packets_max, ..bound }, SEALING_WINDOW)
            }
            Way::In => (Bound { opened: self.opened, ..bound }, self.open.replay_window),
        };
        then(&Association {
            ends: [IpAddr::V4(source), IpAddr::V4(destination)],
            spi,
            request: REQUEST,
            mode: MODE_TUNNEL,
            keying_material: &parameters.keying_material(),
            extended_window: Some(window),
            offload: None,
            bound: Some(bound),
        })
    }

    fn read(&self, socket: &mut XfrmSocket, way: Way) -> Result<Installed> {
        let datagram = self.with(way, |it| socket.read_back(it))?;
        let body = messages(&datagram).next().map(|(_, body)| body);
        body.and_then(Installed::read).context("the kernel's answer is no association")
    }

    /// What to have on disk next; `None`: there are no more numbers.
    fn next_reservation(&self) -> Option<SealingState> {
        let until = (self.reserved_until + RESERVATION).min(NUMBERS_END);
        let state = SealingState { fingerprint: self.seal.fingerprint(), reserved_until: until };
        (until > self.reserved_until).then_some(state)
    }

    fn install(
        &mut self,
        wire: &str,
        socket: &mut XfrmSocket,
        (guard, port): (&mut Guard, &mut PacketPort),
        store: &mut StateStore,
    ) -> Result<()> {
        let state = self
            .next_reservation()
            .context("its key is used up; make new keys on both gateways (`weir keys generate`)")?;
        store.reserver().wait(vec![state])?;
        self.reserved_until = state.reserved_until;
        XfrmInterface::set_neighbour(wire, self.to.hop, NOBODY)
            .context("cannot set the neighbour of its packets")?;
        self.interface.lead(wire, self.to).context("cannot make the route of its packets")?;
        let policy = policy(self.mark(), [self.to.source, self.to.destination]);
        socket.request(|n| policy.install(n)).context("the kernel refuses a policy")?;
        for _ in 0..DRAWS_MAX {
            guard.let_out(self.mark(), self.packets(Way::Out))?;
            self.with(Way::Out, |it| socket.request(|n| it.install(n)))
                .context("the kernel refuses an association (esp4, gcm and seqiv loaded?)")?;
            self.send_first(port);
            let prefix = self.first_iv(guard)?;
            if store.note_iv(self.seal.fingerprint(), prefix)? {
                guard.pass(self.mark())?;
                self.with(Way::In, |it| socket.request(|n| it.install(n)))
                    .context("the kernel refuses an association")?;
                return Ok(guard.let_in(self.packets(Way::In))?);
            }
            self.before = self.read(socket, Way::Out)?.sealed;
            self.with(Way::Out, |it| socket.request(|n| it.remove(n)))?;
        }
        bail!("its key was installed too often; make new keys (`weir keys generate`)")
    }

    /// A packet of no protocol from gateway to gateway (RFC 8200 s4.7): the guard keeps it.
    fn send_first(&self, port: &mut PacketPort) {
        let mut packet = [0u8; 20];
        packet[..4].copy_from_slice(&[0x45, 0, 0, 20]);
        packet[8..10].copy_from_slice(&[64, 59]);
        packet[12..16].copy_from_slice(&self.to.source.octets());
        packet[16..].copy_from_slice(&self.to.destination.octets());
        let sum = checksum::ipv4_header(&packet);
        packet[10..12].copy_from_slice(&sum.to_be_bytes());
        let parts = [IoSlice::new(&packet)];
        port.transmit(&[Outgoing { parts: &parts, offload: Offload::default() }]);
    }

    fn first_iv(&self, guard: &Guard) -> Result<IvPrefix> {
        let begun = Instant::now();
        while begun.elapsed() < PATIENCE {
            if let Some(prefix) = guard.learnt(self.mark())? {
                return Ok(prefix);
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        bail!(
            "the kernel sealed nothing for the wire port; is it up? `nstat -a '*Xfrm*'` tells more"
        )
    }

    fn follow_hop(&mut self, wire: &str, mac: Option<[u8; 6]>) {
        if mac.is_none() || mac == self.hop_mac {
            return;
        }
        let Some(address) = mac else { return };
        match XfrmInterface::set_neighbour(wire, self.to.hop, address) {
            Ok(()) => self.hop_mac = mac,
            Err(error) => tracing::error!(peer = self.name, %error, "cannot set its neighbour"),
        }
    }

    /// Sees what the kernel did, has more numbers reserved and accepted ones kept.
    fn look(
        &mut self,
        socket: &mut XfrmSocket,
        guard: &Guard,
        reserver: &Reserver,
        answer: &Sender<Reserved>,
    ) -> Result<()> {
        let out = self.read(socket, Way::Out).context("the association to it is gone")?;
        let inward = self.read(socket, Way::In).context("the association from it is gone")?;
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
        self.shown = KernelEspSnapshot {
            interface: self.interface.name().to_owned(),
            sealed_packets: out.used.packets,
            sealed_bytes: out.used.bytes,
            left_packets: guard.passed(self.mark())?,
            opened_packets: inward.used.packets,
            opened_bytes: inward.used.bytes,
            replayed: u64::from(inward.statistics.replay)
                + u64::from(inward.statistics.replay_window),
            forged: inward.statistics.integrity_failed.into(),
            sequence_sent: out.sealed,
            is_lost: false,
        };
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
}

/// What leads all packets of an xfrm interface into its association: which they are, Weir has
/// decided before.
fn policy(interface: u32, ends: [Ipv4Addr; 2]) -> PolicyRequest {
    let everything = (IpAddr::V4(Ipv4Addr::UNSPECIFIED), 0);
    PolicyRequest {
        networks: [everything, everything],
        direction: DIRECTION_OUT,
        ends: ends.map(IpAddr::V4),
        request: REQUEST,
        mode: MODE_TUNNEL,
        offload: None,
        interface: Some(interface),
    }
}
