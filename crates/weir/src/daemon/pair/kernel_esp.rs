//! Peers whose ESP the kernel does (`offload = "kernel"`, docs/adr/0024): their associations and
//! the way of their packets, looked after by the pair's control thread, removed at its end.
//!
//! ```text
//!   remove_left -> open: interfaces, ports -> guard, shut -> start: routes, keys from files
//!   handshake: agreed -> associations in and out          tick: what they did, what is lost
//! ```
//!
//! `tunnel.rs` is a peer's interface and what all associations have in common; those with keys in
//! files are `from_files.rs`, those that handshakes bring `agreed.rs`; `link.rs` is the way to the
//! worker, which has the engine.

use std::net::IpAddr;
use std::sync::mpsc::Sender;

use anyhow::{Context, Result, bail};
use weir_engine::esp::open::OpeningState;
use weir_engine::esp::replay::ReplayState;
use weir_engine::esp::sa::{Fingerprint, SaParameters, Spi};
use weir_engine::esp::seal::SealingState;
use weir_engine::policy::Policy;
use weir_engine::tunnel::key::PublicKey;
use weir_engine::tunnel::state::{Install, PeerActivity};
use weir_port::{
    Guard, Hop, Interface, PacketOptions, PacketPort, Port, XfrmInterface, restore_tap,
};
use weir_xfrm::program::{Installed, keying_material};

use self::agreed::Agreed;
use self::from_files::FromFiles;
pub use self::link::{KernelControl, KernelOrder, ToKernel};
use self::link::{ToWorker, Update};
use self::nic::Nic;
use self::tunnel::{Direction, Kernel, KernelTunnel};
use crate::api::dto::{KernelEspSnapshot, PeerSnapshot};
use crate::config::settings::Pair;
use crate::daemon::control::notify;
use crate::daemon::keys::state::{Reserved, Reserver, StateStore};
use crate::daemon::pair::plan::{AssociationPlan, PairPlan};
use crate::daemon::pair::xfrm_socket::XfrmSocket;

mod agreed;
mod from_files;
mod link;
pub mod nic;
mod tunnel;

/// Slots of an xfrm interface's ring.
const RING_SLOTS: usize = 1024;
/// Ticks between two looks whether packets have a way to the wire still.
const ROUTES_PERIOD: u64 = 10;

/// A peer whose ESP the kernel does.
#[derive(Debug)]
pub struct KernelPlan {
    /// Its name.
    pub peer: String,
    /// Where its sealed packets go.
    pub to: Hop,
    /// Where its associations come from.
    pub keys: KernelKeys,
    /// The NIC beneath, where one is to do its part.
    pub nic: Option<Nic>,
}

/// Where associations come from.
#[derive(Debug)]
pub enum KernelKeys {
    /// Files, with their numbers so far.
    Files(Box<AssociationPlan>),
    /// Handshakes with who has this key.
    Agreed(PublicKey),
}

impl KernelPlan {
    /// Of which keys its associations are, to the peer and from it; `None`: that is agreed.
    pub fn fingerprints(&self) -> Option<[Fingerprint; 2]> {
        let KernelKeys::Files(plan) = &self.keys else { return None };
        Some([plan.seal.fingerprint(), plan.open.fingerprint()])
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
        socket.remove_policies(number)?;
    }
    XfrmInterface::remove_all(wire).context("cannot remove an xfrm interface of ours")?;
    Ok(left)
}

/// Numbers that `left` says were accepted stay so.
pub fn take_over(plan: &mut PairPlan, left: &Left) {
    let kernel = plan.kernel.iter_mut().filter_map(|it| match &mut it.keys {
        KernelKeys::Files(associations) => Some(&mut **associations),
        KernelKeys::Agreed(_) => None,
    });
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

/// The kernel's ESP of one pair. However it ends, nothing of it stays in the kernel.
pub struct KernelEsp {
    wire: String,
    /// The interface of the gateway's own addresses, and these.
    own: Option<(String, Vec<(IpAddr, u8)>)>,
    socket: XfrmSocket,
    peers: Vec<KernelPeer>,
    /// Beside `peers`, until the start.
    ports: Vec<PacketPort>,
    ticks: u64,
    is_stopped: bool,
}

struct KernelPeer {
    name: String,
    tunnel: KernelTunnel,
    keys: Keys,
    is_lost: bool,
}

enum Keys {
    Files(Box<FromFiles>),
    Agreed(Box<Agreed>),
}

impl Keys {
    /// SPI of the association that seals, if there is one.
    fn seal_spi(&self) -> Option<u32> {
        match self {
            Keys::Files(keys) => Some(keys.spi(Direction::Out)),
            Keys::Agreed(keys) => keys.seal_spi(),
        }
    }
}

impl KernelEsp {
    /// Makes the xfrm interfaces of `plans` and opens ports on them, in their order; `None` without
    /// plans. No packet passes yet.
    ///
    /// # Errors
    /// The kernel lacks xfrm interfaces, or would drop what comes in.
    pub fn open(pair: &Pair, policy: &Policy, plans: Vec<KernelPlan>) -> Result<Option<Self>> {
        if plans.is_empty() {
            return Ok(None);
        }
        let wire = Interface::find(&pair.wire)?;
        wire.switch_reverse_path_filter_off()?;
        if wire.reverse_path_filter()? {
            bail!(
                "ESP by the kernel: it would drop what comes in by {} (rp_filter); set \
                 net.ipv4.conf.all.rp_filter = 0",
                pair.wire
            );
        }
        let mut kernel = Self {
            wire: pair.wire.clone(),
            own: policy.own.as_ref().map(|it| (pair.own_port(), it.addresses.clone())),
            socket: XfrmSocket::open()?,
            peers: Vec::new(),
            ports: Vec::new(),
            ticks: 0,
            is_stopped: false,
        };
        for KernelPlan { peer, to, keys, nic } in plans {
            let interface = XfrmInterface::create(&pair.wire, policy.wire_mtu.into()).context(
                "ESP by the kernel: cannot make an xfrm interface; it needs \
                 CONFIG_XFRM_INTERFACE (`modprobe xfrm_interface`)",
            )?;
            let options = PacketOptions {
                ring_slots: RING_SLOTS,
                promiscuous: false,
                mark: nic.as_ref().and_then(Nic::networks).map(|_| interface.number()),
                ..PacketOptions::default()
            };
            kernel.ports.push(PacketPort::open(interface.name(), options)?);
            kernel.peers.push(KernelPeer {
                name: peer,
                tunnel: KernelTunnel { interface, to, hop_mac: None, nic },
                keys: match keys {
                    KernelKeys::Files(plan) => Keys::Files(Box::new(FromFiles::new(*plan))),
                    KernelKeys::Agreed(identity) => Keys::Agreed(Box::new(Agreed::new(identity))),
                },
                is_lost: false,
            });
        }
        Ok(Some(kernel))
    }

    /// Whether a NIC does all of some peer's ESP.
    pub fn has_nic_esp(&self) -> bool {
        self.peers.iter().any(|peer| peer.tunnel.is_all_in_nic())
    }

    /// The xfrm interfaces, for the guard.
    pub fn interfaces(&self) -> Vec<&str> {
        self.peers.iter().map(|peer| peer.tunnel.interface.name()).collect()
    }

    /// Makes the ways to the wire, installs the associations from files, lets their packets pass
    /// and hands the ports over. Waits for the disk and the kernel.
    ///
    /// # Errors
    /// The kernel refuses, or does not seal; the disk refuses; a key is used up.
    pub fn start(
        &mut self,
        guard: &mut Guard,
        store: &mut StateStore,
    ) -> Result<Vec<Box<dyn Port + Send>>> {
        let Self { wire, socket, peers, ports, .. } = self;
        if peers.iter().any(|peer| peer.tunnel.to.destination.is_ipv6()) {
            Interface::find(wire)?.take_ipv6().context("cannot have the wire port take IPv6")?;
        }
        for (KernelPeer { name, tunnel, keys, .. }, port) in peers.iter_mut().zip(&mut *ports) {
            let mut kernel = Kernel { socket: &mut *socket, guard: &mut *guard, wire };
            let led = tunnel.lead(wire).and_then(|()| match keys {
                Keys::Files(keys) => keys.install(tunnel, &mut kernel, port, store),
                Keys::Agreed(_) => tunnel.try_out(&mut kernel, port),
            });
            led.with_context(|| format!("peer {name}: ESP by the kernel"))?;
        }
        let boxed = |port| Box::new(port) as Box<dyn Port + Send>;
        Ok(std::mem::take(ports).into_iter().map(boxed).collect())
    }

    /// Who has keys that handshakes agree on.
    fn identities(&self) -> impl Iterator<Item = PublicKey> {
        self.peers.iter().filter_map(|peer| match &peer.keys {
            Keys::Agreed(keys) => Some(keys.identity),
            Keys::Files(_) => None,
        })
    }

    /// Puts the associations of a handshake in place. What cannot be is told by the next activity.
    fn install(&mut self, guard: &mut Guard, worker: &ToWorker, install: &Install) {
        self.change(guard, worker, &install.peer, |keys, tunnel, kernel| {
            keys.install(tunnel, kernel, install)
        });
    }

    /// Removes an agreed association that opens.
    fn forget(&mut self, guard: &mut Guard, worker: &ToWorker, peer: &PublicKey, open_spi: u32) {
        let forget = |keys: &mut Agreed, tunnel: &KernelTunnel, kernel: &mut Kernel<'_>| {
            keys.forget(tunnel, kernel, open_spi)
        };
        self.change(guard, worker, peer, forget);
    }

    /// Removes all associations that were agreed with a peer.
    fn close(&mut self, guard: &mut Guard, worker: &ToWorker, peer: &PublicKey) {
        self.change(guard, worker, peer, |keys, tunnel, kernel| keys.close(tunnel, kernel));
    }

    fn change(
        &mut self,
        guard: &mut Guard,
        worker: &ToWorker,
        identity: &PublicKey,
        change: impl FnOnce(&mut Agreed, &KernelTunnel, &mut Kernel<'_>) -> Result<()>,
    ) {
        let Self { wire, socket, peers, .. } = self;
        let mut kernel = Kernel { socket, guard, wire };
        for (peer, place) in peers.iter_mut().zip(0..) {
            let Keys::Agreed(keys) = &mut peer.keys else { continue };
            if keys.identity != *identity {
                continue;
            }
            let followed = peer.tunnel.follow_hop(wire, worker.hop(place));
            let followed = followed.map_err(anyhow::Error::from);
            let result = followed.and_then(|()| change(keys, &peer.tunnel, &mut kernel));
            peer.note(&mut kernel, (worker, place), result.map(|()| PeerActivity::default()));
            return;
        }
    }

    /// Looks after them. Call it ten times a second.
    fn tick(
        &mut self,
        guard: &mut Guard,
        worker: &ToWorker,
        reserver: &Reserver,
        answer: &Sender<Reserved>,
    ) {
        self.ticks += 1;
        let looks_at_routes = self.ticks.is_multiple_of(ROUTES_PERIOD);
        let Self { wire, own, socket, peers, .. } = self;
        if looks_at_routes
            && let Some((name, addresses)) = own
            && let Err(error) = restore_tap(name, addresses)
        {
            tracing::error!(%error, "cannot give {name} its addresses again");
        }
        let mut kernel = Kernel { socket, guard, wire };
        for (peer, place) in peers.iter_mut().zip(0..) {
            if looks_at_routes && let Err(error) = peer.tunnel.restore(wire) {
                tracing::error!(peer = peer.name, %error, "its packets have no way to {wire}");
            }
            if peer.is_lost {
                continue;
            }
            if looks_at_routes
                && let Some(spi) = peer.keys.seal_spi()
                && let Err(error) = peer.tunnel.restore_policies(kernel.socket, spi)
            {
                tracing::error!(peer = peer.name, %error, "nothing has its packets sealed");
            }
            if let Err(error) = peer.tunnel.follow_hop(wire, worker.hop(place)) {
                tracing::error!(peer = peer.name, %error, "cannot set its neighbour");
            }
            let KernelPeer { tunnel, keys, .. } = peer;
            let seen = match keys {
                Keys::Files(keys) => keys
                    .look(tunnel, &mut kernel, reserver, answer)
                    .map(|()| PeerActivity::default()),
                Keys::Agreed(keys) => keys.look(tunnel, &mut kernel),
            };
            peer.note(&mut kernel, (worker, place), seen);
        }
    }

    /// Takes in what the disk said about numbers of ours.
    fn reserved(&mut self, key: Fingerprint, granted: Option<&SealingState>) {
        for KernelPeer { name, tunnel, keys, .. } in &mut self.peers {
            let Keys::Files(keys) = keys else { continue };
            if keys.seal.fingerprint() != key {
                continue;
            }
            if let Err(error) = keys.reserved(tunnel, &mut self.socket, granted) {
                tracing::error!(peer = name, "{error:#}");
            }
        }
    }

    /// Shuts the guard, keeps what was accepted, and removes everything.
    ///
    /// # Errors
    /// Something stays in the kernel; the next start removes it.
    fn stop(mut self, guard: &mut Guard) -> Result<()> {
        self.is_stopped = true;
        let Self { wire, socket, peers, .. } = &mut self;
        let mut kernel = Kernel { socket, guard, wire };
        for KernelPeer { tunnel, keys, .. } in peers {
            match keys {
                Keys::Files(keys) => keys.stop(tunnel, &mut kernel)?,
                Keys::Agreed(keys) => keys.close(tunnel, &mut kernel)?,
            }
        }
        remove_left(&self.wire).map(drop)
    }

    /// What the kernel did, by peer.
    fn show(&self) -> Vec<PeerSnapshot> {
        let show = |KernelPeer { name, tunnel, keys, is_lost }: &KernelPeer| {
            let mut shown = PeerSnapshot { name: name.clone(), ..PeerSnapshot::default() };
            let kernel = match keys {
                Keys::Files(keys) => keys.show(&mut shown),
                Keys::Agreed(keys) => keys.show(&mut shown),
            };
            let (interface, is_lost) = (tunnel.interface.name().to_owned(), *is_lost);
            let in_nic = tunnel.nic.as_ref().is_some_and(|it| it.took.get() == Some(true));
            shown.kernel = Some(KernelEspSnapshot { interface, is_lost, in_nic, ..kernel });
            shown
        };
        self.peers.iter().map(show).collect()
    }
}

impl Drop for KernelEsp {
    /// A gateway that did not start, or lost its ports.
    fn drop(&mut self) {
        if self.is_stopped {
            return;
        }
        if let Err(error) = remove_left(&self.wire) {
            tracing::error!("what the kernel did for peers stays there: {error:#}");
        }
    }
}

impl KernelPeer {
    /// Tells the engine what the associations did, or that they are lost.
    fn note(
        &mut self,
        kernel: &mut Kernel<'_>,
        (worker, place): (&ToWorker, u16),
        seen: Result<PeerActivity>,
    ) {
        self.is_lost |= seen.is_err();
        let activity = seen.unwrap_or_else(|error| {
            let lost = "the kernel lost its ESP, or does not take it";
            match &mut self.keys {
                Keys::Files(_) => tracing::error!(
                    peer = self.name,
                    "{lost}; nothing passes until a restart: {error:#}"
                ),
                Keys::Agreed(keys) => {
                    match keys.unsealed_packets() {
                        0 => tracing::error!(
                            peer = self.name,
                            "{lost}; nothing passes until a new handshake: {error:#}"
                        ),
                        unsealed => {
                            tracing::error!(
                                peer = self.name,
                                "nothing passes until a restart: {error:#}"
                            );
                            notify::alarm(&format!(
                                "ALARM: peer {}: {unsealed} packets left that its NIC did not seal",
                                self.name
                            ));
                        }
                    }
                    // What is left of it must not stay behind; what is gone is no matter.
                    let _ = keys.close(&self.tunnel, kernel);
                }
            }
            PeerActivity { lost: true, ..PeerActivity::default() }
        });
        let mut associations = None;
        if let Keys::Agreed(keys) = &self.keys {
            self.is_lost &= keys.is_empty();
            associations = Some((keys.seal_spi(), keys.open_spis().to_vec()));
        }
        worker.tell(Update { place, associations, used: activity, is_lost: self.is_lost });
    }
}
