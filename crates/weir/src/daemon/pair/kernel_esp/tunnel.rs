//! A peer's xfrm interface, and how its packets get to the wire and its associations into the
//! kernel: the same whoever makes the keys.

use std::io::{self, Read};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use anyhow::{Context, Result, bail};
use weir_engine::esp::sa::{SaParameters, Spi};
use weir_port::{
    EspPackets, Guard, Hop, Interface, NicAssociation, NicPackets, PacketPort, XfrmInterface,
};
use weir_xfrm::netlink::messages;
use weir_xfrm::program::{Association, Bound, Installed, OFFLOAD_PACKET, PolicyRequest, offloaded};
use weir_xfrm::uapi::{DIRECTION_OUT, MODE_TUNNEL, Offload, Statistics};
use zeroize::Zeroizing;

use super::nic::{self, Nic};
use crate::api::dto::KernelEspSnapshot;
use crate::daemon::pair::xfrm_socket::{REQUEST, XfrmSocket};
use weir_store::entropy;

/// What a sealing association's window is: the kernel wants one.
const SEALING_WINDOW: u32 = 64;
/// All addresses of either family.
const EVERYTHING: [IpAddr; 2] =
    [IpAddr::V4(Ipv4Addr::UNSPECIFIED), IpAddr::V6(Ipv6Addr::UNSPECIFIED)];
/// Until the hop has told its address, packets go nowhere: the guard keeps them.
const NOBODY: [u8; 6] = [2, 0, 0, 0, 0, 0];
const NO_SUCH_ASSOCIATION: i32 = 3;

/// Where associations are, and what lets their packets pass.
pub(super) struct Kernel<'k> {
    pub(super) socket: &'k mut XfrmSocket,
    pub(super) guard: &'k mut Guard,
    /// The wire port's name.
    pub(super) wire: &'k str,
}

/// To the peer, or from it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Direction {
    Out,
    In,
}

/// Numbers of an association when it is installed.
#[derive(Clone, Copy, Debug)]
pub(super) struct Numbers {
    /// Used, or accepted, up to here.
    pub(super) used: u64,
    /// Packets that it may seal.
    pub(super) packets_max: u64,
}

impl Numbers {
    /// Those of a key that is installed once.
    pub(super) const FRESH: Self = Self { used: 0, packets_max: u64::MAX };
}

/// A peer's xfrm interface and where its packets go.
#[derive(Debug)]
pub(super) struct KernelTunnel {
    pub(super) interface: XfrmInterface,
    pub(super) to: Hop,
    pub(super) hop_mac: Option<[u8; 6]>,
    pub(super) nic: Option<Nic>,
}

impl KernelTunnel {
    /// The mark of its sealed packets, and the `if_id` of its associations.
    pub(super) fn mark(&self) -> u32 {
        self.interface.number()
    }

    /// Packets of one of its associations on the wire.
    pub(super) fn packets(&self, direction: Direction, spi: u32) -> EspPackets {
        let Hop { source, destination, .. } = self.to;
        match direction {
            Direction::Out => EspPackets { source, destination, spi },
            Direction::In => EspPackets { source: destination, destination: source, spi },
        }
    }

    /// Leads its sealed packets to the wire port, and to nobody there yet.
    pub(super) fn lead(&self, wire: &str) -> Result<()> {
        self.interface
            .set_neighbour(wire, self.to.hop, NOBODY)
            .context("cannot set the neighbour of its packets")?;
        self.interface.lead(wire, self.to).context("cannot make the route of its packets")
    }

    /// Makes its way to the wire anew where the port was down meanwhile.
    pub(super) fn restore(&self, wire: &str) -> io::Result<()> {
        self.interface.restore(wire, self.to, self.hop_mac.unwrap_or(NOBODY))
    }

    /// Has its sealed packets go to `mac`.
    pub(super) fn follow_hop(&mut self, wire: &str, mac: Option<[u8; 6]>) -> io::Result<()> {
        let Some(address) = mac.filter(|_| mac != self.hop_mac) else { return Ok(()) };
        self.interface.set_neighbour(wire, self.to.hop, address)?;
        self.hop_mac = mac;
        Ok(())
    }

    /// The packets that its NIC does all of ESP for; `None`: there is no such NIC.
    pub(super) fn to_nic(&self) -> Option<NicPackets> {
        let networks = self.nic.as_ref()?.networks()?.to_vec();
        Some(NicPackets { mark: self.mark(), networks })
    }

    /// Whether a NIC does all of its ESP.
    pub(super) fn is_all_in_nic(&self) -> bool {
        self.nic.as_ref().is_some_and(|it| it.networks().is_some())
    }

    /// The number by which its policies ask for its associations.
    fn request(&self) -> u32 {
        // A NIC goes by it alone.
        if self.is_all_in_nic() { self.mark() } else { REQUEST }
    }

    fn by_nic(&self, spi: u32) -> NicAssociation {
        NicAssociation { request: self.request(), spi }
    }

    /// An association as it is to be installed.
    pub(super) fn with<T>(
        &self,
        direction: Direction,
        parameters: &SaParameters,
        numbers: Numbers,
        offload: Option<Offload>,
        then: impl FnOnce(&Association<'_>) -> T,
    ) -> T {
        let EspPackets { source, destination, spi } =
            self.packets(direction, parameters.spi.value());
        let bound = Bound { interface: self.mark(), packets_max: u64::MAX, ..Bound::default() };
        let (bound, window) = match (direction, self.is_all_in_nic()) {
            (Direction::Out, _) => {
                let Numbers { used: sealed, packets_max } = numbers;
                (Bound { sealed, packets_max, ..bound }, SEALING_WINDOW)
            }
            (Direction::In, false) => {
                (Bound { opened: numbers.used, ..bound }, parameters.replay_window)
            }
            (Direction::In, true) => (bound, nic::window(parameters.replay_window)),
        };
        then(&Association {
            ends: [source, destination],
            spi,
            request: self.request(),
            mode: MODE_TUNNEL,
            keying_material: &parameters.keying_material(),
            extended_window: Some(window),
            offload,
            bound: Some(bound),
        })
    }

    /// Installs an association whose key is installed once, in the NIC where one is asked for.
    pub(super) fn install(
        &self,
        socket: &mut XfrmSocket,
        direction: Direction,
        parameters: &SaParameters,
    ) -> Result<()> {
        let Some(nic) = &self.nic else {
            return self.install_in_kernel(socket, direction, parameters, Numbers::FRESH);
        };
        let refused = match self.install_in_nic(socket, nic, direction, parameters) {
            Err(error) if !nic.is_demanded => error,
            result => {
                nic.took.set(Some(result.is_ok()));
                return result;
            }
        };
        if nic.took.replace(Some(false)) != Some(false) {
            tracing::warn!("the NIC takes no more, the kernel seals: {refused:#}");
        }
        self.install_in_kernel(socket, direction, parameters, Numbers::FRESH)
    }

    /// Installs an association of the kernel's own.
    pub(super) fn install_in_kernel(
        &self,
        socket: &mut XfrmSocket,
        direction: Direction,
        parameters: &SaParameters,
        numbers: Numbers,
    ) -> Result<()> {
        self.with(direction, parameters, numbers, None, |it| socket.request(|n| it.install(n)))
            .context("the kernel refuses an association (esp4, esp6, gcm and seqiv loaded?)")
    }

    fn install_in_nic(
        &self,
        socket: &mut XfrmSocket,
        nic: &Nic,
        direction: Direction,
        parameters: &SaParameters,
    ) -> Result<()> {
        let wanted = nic.request(Some(direction));
        let install = |it: &Association<'_>| socket.request(|n| it.install(n));
        self.with(direction, parameters, Numbers::FRESH, Some(wanted), install)
            .context("the NIC or the kernel refuses an association")?;
        // Kernels take what the NIC does not do, and seal by themselves.
        let spi = parameters.spi.value();
        let found = socket.read_back(&self.name(direction, spi));
        let does = |it: Offload| (it.interface, it.flags & OFFLOAD_PACKET);
        let is_done = |found: &[u8]| offloaded(found).map(does) == Some(does(wanted));
        if found.as_ref().is_ok_and(|found| is_done(found)) {
            return Ok(());
        }
        self.remove(socket, direction, spi)?;
        found?;
        bail!("the kernel took an association for the NIC and would seal by itself")
    }

    /// Has the kernel take an association with a random key and give it up again: what it lacks
    /// is known at the start, and nobody waits for it to load the cipher, which takes seconds. A
    /// NIC that does all of ESP is tried with packets.
    pub(super) fn try_out(&self, kernel: &mut Kernel<'_>, port: &mut PacketPort) -> Result<()> {
        if let Some(packets) = self.to_nic() {
            return nic::prove(self, kernel, port, &packets);
        }
        let parameters = random_association()?;
        self.install(kernel.socket, Direction::In, &parameters)?;
        self.remove(kernel.socket, Direction::In, parameters.spi.value())
    }

    /// Lets the packets of an association whose key is installed once leave, or come in.
    pub(super) fn let_pass(&self, guard: &mut Guard, direction: Direction, spi: u32) -> Result<()> {
        match (direction, self.to_nic()) {
            (Direction::Out, None) => {
                guard.let_out_any(self.mark(), self.packets(direction, spi))?
            }
            (Direction::In, None) => guard.let_in(self.packets(direction, spi))?,
            (Direction::Out, Some(packets)) => guard.let_out_to_nic(&packets)?,
            (Direction::In, Some(_)) => {
                let index = Interface::find(self.interface.name())?.index()?;
                guard.let_in_from_nic(self.by_nic(spi), index as u32)?;
            }
        }
        Ok(())
    }

    /// Lets them pass no more. Those for a NIC go on to leave by other associations: see
    /// [`KernelTunnel::shut_nic`].
    pub(super) fn shut(&self, guard: &mut Guard, direction: Direction, spi: u32) -> Result<()> {
        match (direction, self.is_all_in_nic()) {
            (_, false) => guard.shut(self.packets(direction, spi))?,
            (Direction::Out, true) => {}
            (Direction::In, true) => guard.shut_from_nic(self.by_nic(spi))?,
        }
        Ok(())
    }

    /// Gives the NIC no packets any more; returns how many it was given.
    pub(super) fn shut_nic(&self, guard: &mut Guard) -> Result<u64> {
        let Some(packets) = self.to_nic() else { return Ok(0) };
        let left = guard.left_to_nic(&packets).unwrap_or(0);
        guard.shut_to_nic(&packets)?;
        Ok(left)
    }

    /// How many packets left by these associations, as the guard saw them.
    pub(super) fn left(&self, guard: &Guard, spis: impl Iterator<Item = u32>) -> Result<u64> {
        match self.to_nic() {
            Some(packets) => Ok(guard.left_to_nic(&packets).unwrap_or(0)),
            None => spis.map(|spi| Ok(guard.passed(self.packets(Direction::Out, spi))?)).sum(),
        }
    }

    /// What an association that opens did. Of a NIC's, the guard counts packets first.
    pub(super) fn read_opening(&self, kernel: &mut Kernel<'_>, spi: u32) -> Result<Installed> {
        let mut installed = self.read(kernel.socket, Direction::In, spi)?;
        if self.is_all_in_nic() {
            installed.used.packets = kernel.guard.came_from_nic(self.by_nic(spi))?;
        }
        Ok(installed)
    }

    /// What an association did.
    pub(super) fn read(
        &self,
        socket: &mut XfrmSocket,
        direction: Direction,
        spi: u32,
    ) -> Result<Installed> {
        let named = |socket: &mut XfrmSocket| socket.read_back(&self.name(direction, spi));
        let datagram = named(socket).with_context(|| match direction {
            Direction::Out => "the association to it is gone",
            Direction::In => "the association from it is gone",
        })?;
        let body = messages(&datagram).next().map(|(_, body)| body);
        body.and_then(Installed::read).context("the kernel's answer is no association")
    }

    /// Removes an association; one that is gone already is no error.
    pub(super) fn remove(
        &self,
        socket: &mut XfrmSocket,
        direction: Direction,
        spi: u32,
    ) -> Result<()> {
        match socket.request(|n| self.name(direction, spi).remove(n)) {
            Err(error) if error.raw_os_error() != Some(NO_SUCH_ASSOCIATION) => {
                Err(error).context("cannot remove an association of ours")
            }
            _ => Ok(()),
        }
    }

    /// Enough of an association to ask for it.
    fn name(&self, direction: Direction, spi: u32) -> Association<'static> {
        let EspPackets { source, destination, .. } = self.packets(direction, spi);
        Association {
            ends: [source, destination],
            spi,
            request: self.request(),
            mode: MODE_TUNNEL,
            keying_material: &[],
            extended_window: None,
            offload: None,
            bound: None,
        }
    }

    /// Has all packets of the interface sealed by this association, from one packet to the next. A
    /// NIC, once it knows which packets, goes by the newest.
    pub(super) fn seal_by(&self, socket: &mut XfrmSocket, spi: u32, is_first: bool) -> Result<()> {
        if self.is_all_in_nic() {
            return if is_first { self.install_policies(socket) } else { Ok(()) };
        }
        for everything in EVERYTHING {
            let policy = PolicyRequest { spi: Some(spi), ..self.policy((everything, 0)) };
            socket.request(|n| policy.replace(n)).context("the kernel refuses a policy")?;
        }
        Ok(())
    }

    /// Puts policies back that others have removed. What is there stays untouched; what a NIC does
    /// goes by policies that it knows itself.
    pub(super) fn restore_policies(&self, socket: &mut XfrmSocket, spi: u32) -> io::Result<()> {
        for everything in EVERYTHING.into_iter().filter(|_| !self.is_all_in_nic()) {
            let policy = PolicyRequest { spi: Some(spi), ..self.policy((everything, 0)) };
            match socket.request(|n| policy.install(n)) {
                Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
                _ => {}
            }
        }
        Ok(())
    }

    /// Has no packet of the interface sealed any more: the kernel drops them.
    pub(super) fn seal_nothing(&self, socket: &mut XfrmSocket) -> Result<()> {
        socket.remove_policies(self.mark())
    }

    /// Tells the NIC which packets it does all of ESP for, whatever the association.
    pub(super) fn install_policies(&self, socket: &mut XfrmSocket) -> Result<()> {
        let Some((nic, networks)) = self.nic.as_ref().and_then(|it| Some((it, it.networks()?)))
        else {
            return Ok(());
        };
        let policies = networks.iter().map(|network| PolicyRequest {
            offload: Some(nic.request(None)),
            ..self.policy(*network)
        });
        for policy in policies {
            socket
                .request(|sequence| policy.install(sequence))
                .context("the NIC or the kernel refuses a policy (tc rules offloaded to it?)")?;
        }
        Ok(())
    }

    /// What leads the packets of the interface to a network into an association. Which they are,
    /// Weir has decided before. None leads out of one: the guard knows what was opened.
    fn policy(&self, network: (IpAddr, u8)) -> PolicyRequest {
        let everything = EVERYTHING[usize::from(network.0.is_ipv6())];
        PolicyRequest {
            networks: [(everything, 0), network],
            direction: DIRECTION_OUT,
            ends: [self.to.source, self.to.destination],
            request: self.request(),
            spi: None,
            mode: MODE_TUNNEL,
            offload: None,
            interface: Some(self.mark()),
        }
    }
}

/// An association with a random key, which nobody else has.
pub(super) fn random_association() -> Result<SaParameters> {
    let mut secret = Zeroizing::new([0; 40]);
    entropy::source()?.read_exact(&mut secret[..])?;
    let (spi, material) = secret.split_first_chunk().expect("40 bytes");
    let spi = Spi::new(u32::from_be_bytes(*spi).max(256))?;
    Ok(SaParameters::new(spi, material)?)
}

impl KernelEspSnapshot {
    /// Adds what an association sealed, and how many of its packets the guard saw leave.
    pub(super) fn add_sealed(&mut self, sealed: &Installed, left_packets: u64) {
        self.sealed_packets += sealed.used.packets;
        self.sealed_bytes += sealed.used.bytes;
        self.left_packets += left_packets;
    }

    /// Adds what an association opened, and what it refused.
    pub(super) fn add_opened(&mut self, opened: &Installed) {
        let Statistics { replay_window, replay, integrity_failed } = opened.statistics;
        self.opened_packets += opened.used.packets;
        self.opened_bytes += opened.used.bytes;
        self.replayed += u64::from(replay) + u64::from(replay_window);
        self.forged += u64::from(integrity_failed);
    }
}
