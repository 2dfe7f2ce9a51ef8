//! A peer's xfrm interface, and how its packets get to the wire and its associations into the
//! kernel: the same whoever makes the keys.

use std::fs::File;
use std::io::{self, Read};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use anyhow::{Context, Result, bail};
use weir_engine::esp::sa::{SaParameters, Spi};
use weir_port::{EspPackets, Guard, Hop, XfrmInterface};
use weir_xfrm::netlink::messages;
use weir_xfrm::program::{
    Association, Bound, Installed, OFFLOAD_INBOUND, PolicyRequest, offloaded,
};
use weir_xfrm::uapi::{DIRECTION_OUT, MODE_TUNNEL, Offload, Statistics};
use zeroize::Zeroizing;

use crate::api::dto::KernelEspSnapshot;
use crate::daemon::xfrm_socket::{REQUEST, XfrmSocket};

/// What a sealing association's window is: the kernel wants one.
const SEALING_WINDOW: u32 = 64;
/// All addresses of either family.
const EVERYTHING: [IpAddr; 2] =
    [IpAddr::V4(Ipv4Addr::UNSPECIFIED), IpAddr::V6(Ipv6Addr::UNSPECIFIED)];
/// Until the hop has told its address, packets go nowhere: the guard keeps them.
const NOBODY: [u8; 6] = [2, 0, 0, 0, 0, 0];
const NO_SUCH_ASSOCIATION: i32 = 3;
const NO_SUCH_POLICY: i32 = 2;

/// Where associations are, and what lets their packets pass.
pub(super) struct Kernel<'k> {
    pub(super) socket: &'k mut XfrmSocket,
    pub(super) guard: &'k mut Guard,
}

/// To the peer, or from it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
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
pub(super) struct Lane {
    pub(super) interface: XfrmInterface,
    pub(super) to: Hop,
    pub(super) hop_mac: Option<[u8; 6]>,
    /// Number of the wire port, where its NIC is to do the cipher (`crypto`).
    pub(super) nic: Option<u32>,
}

impl Lane {
    /// The mark of its sealed packets, and the `if_id` of its associations.
    pub(super) fn mark(&self) -> u32 {
        self.interface.number()
    }

    /// Packets of one of its associations on the wire.
    pub(super) fn packets(&self, way: Way, spi: u32) -> EspPackets {
        let Hop { source, destination, .. } = self.to;
        match way {
            Way::Out => EspPackets { source, destination, spi },
            Way::In => EspPackets { source: destination, destination: source, spi },
        }
    }

    /// Leads its sealed packets to the wire port, and to nobody there yet.
    pub(super) fn lead(&self, wire: &str) -> Result<()> {
        XfrmInterface::set_neighbour(wire, self.to.hop, NOBODY)
            .context("cannot set the neighbour of its packets")?;
        self.interface.lead(wire, self.to).context("cannot make the route of its packets")
    }

    /// Has its sealed packets go to `mac`.
    pub(super) fn follow_hop(&mut self, wire: &str, mac: Option<[u8; 6]>) -> io::Result<()> {
        let Some(address) = mac.filter(|_| mac != self.hop_mac) else { return Ok(()) };
        XfrmInterface::set_neighbour(wire, self.to.hop, address)?;
        self.hop_mac = mac;
        Ok(())
    }

    /// An association as it is to be installed.
    pub(super) fn with<T>(
        &self,
        way: Way,
        parameters: &SaParameters,
        numbers: Numbers,
        then: impl FnOnce(&Association<'_>) -> T,
    ) -> T {
        let EspPackets { source, destination, spi } = self.packets(way, parameters.spi.value());
        let bound = Bound { interface: self.mark(), packets_max: u64::MAX, ..Bound::default() };
        let (bound, window) = match way {
            Way::Out => {
                let Numbers { used: sealed, packets_max } = numbers;
                (Bound { sealed, packets_max, ..bound }, SEALING_WINDOW)
            }
            Way::In => (Bound { opened: numbers.used, ..bound }, parameters.replay_window),
        };
        let inbound = if way == Way::In { OFFLOAD_INBOUND } else { 0 };
        let offload =
            |index| Offload { interface: index as i32, flags: inbound, ..Offload::default() };
        then(&Association {
            ends: [source, destination],
            spi,
            request: REQUEST,
            mode: MODE_TUNNEL,
            keying_material: &parameters.keying_material(),
            extended_window: Some(window),
            offload: self.nic.map(offload),
            bound: Some(bound),
        })
    }

    pub(super) fn install(
        &self,
        socket: &mut XfrmSocket,
        way: Way,
        parameters: &SaParameters,
        numbers: Numbers,
    ) -> Result<()> {
        self.with(way, parameters, numbers, |it| socket.request(|n| it.install(n)))
            .context("the kernel refuses an association (esp4, esp6, gcm and seqiv loaded?)")?;
        let Some(nic) = self.nic else { return Ok(()) };
        // Kernels take what the NIC does not do, and seal by themselves.
        let spi = parameters.spi.value();
        let found = socket.read_back(&self.name(way, spi))?;
        if offloaded(&found).is_some_and(|it| it.interface == nic as i32) {
            return Ok(());
        }
        self.remove(socket, way, spi)?;
        bail!("the kernel took an association for the NIC and would seal by itself")
    }

    /// Has the kernel take an association with a random key and give it up again: what it lacks
    /// is known at the start, and nobody waits for it to load the cipher, which takes seconds.
    pub(super) fn try_out(&self, socket: &mut XfrmSocket) -> Result<()> {
        let mut secret = Zeroizing::new([0; 40]);
        File::open("/dev/urandom").and_then(|mut it| it.read_exact(&mut secret[..]))?;
        let (spi, material) = secret.split_first_chunk().expect("40 bytes");
        let spi = Spi::new(u32::from_be_bytes(*spi).max(256))?;
        let parameters = SaParameters::new(spi, material)?;
        self.install(socket, Way::In, &parameters, Numbers::FRESH)?;
        self.remove(socket, Way::In, spi.value())
    }

    /// What an association did.
    pub(super) fn read(&self, socket: &mut XfrmSocket, way: Way, spi: u32) -> Result<Installed> {
        let named = |socket: &mut XfrmSocket| socket.read_back(&self.name(way, spi));
        let datagram = named(socket).with_context(|| match way {
            Way::Out => "the association to it is gone",
            Way::In => "the association from it is gone",
        })?;
        let body = messages(&datagram).next().map(|(_, body)| body);
        body.and_then(Installed::read).context("the kernel's answer is no association")
    }

    /// Removes an association; one that is gone already is no error.
    pub(super) fn remove(&self, socket: &mut XfrmSocket, way: Way, spi: u32) -> Result<()> {
        match socket.request(|n| self.name(way, spi).remove(n)) {
            Err(error) if error.raw_os_error() != Some(NO_SUCH_ASSOCIATION) => {
                Err(error).context("cannot remove an association of ours")
            }
            _ => Ok(()),
        }
    }

    /// Enough of an association to ask for it.
    fn name(&self, way: Way, spi: u32) -> Association<'static> {
        let EspPackets { source, destination, .. } = self.packets(way, spi);
        Association {
            ends: [source, destination],
            spi,
            request: REQUEST,
            mode: MODE_TUNNEL,
            keying_material: &[],
            extended_window: None,
            offload: None,
            bound: None,
        }
    }

    /// Has all packets of the interface sealed by this association, from one packet to the next.
    pub(super) fn seal_by(&self, socket: &mut XfrmSocket, spi: u32) -> Result<()> {
        let ends = [self.to.source, self.to.destination];
        for everything in EVERYTHING {
            let policy = PolicyRequest { spi: Some(spi), ..policy(self.mark(), everything, ends) };
            socket.request(|n| policy.replace(n)).context("the kernel refuses a policy")?;
        }
        Ok(())
    }

    /// Has no packet of the interface sealed any more: the kernel drops them.
    pub(super) fn seal_nothing(&self, socket: &mut XfrmSocket) -> Result<()> {
        remove_policies(socket, self.mark())
    }
}

/// Removes the policies of an xfrm interface; those that are gone already are no error.
pub(super) fn remove_policies(socket: &mut XfrmSocket, interface: u32) -> Result<()> {
    for everything in EVERYTHING {
        let policy = policy(interface, everything, [everything; 2]);
        match socket.request(|sequence| policy.remove(sequence)) {
            Err(error) if error.raw_os_error() != Some(NO_SUCH_POLICY) => {
                return Err(error).context("cannot remove a policy of ours");
            }
            _ => {}
        }
    }
    Ok(())
}

/// What leads all packets of a family and an xfrm interface into an association: which they are,
/// Weir has decided before.
fn policy(interface: u32, everything: IpAddr, ends: [IpAddr; 2]) -> PolicyRequest {
    PolicyRequest {
        networks: [(everything, 0); 2],
        direction: DIRECTION_OUT,
        ends,
        request: REQUEST,
        spi: None,
        mode: MODE_TUNNEL,
        offload: None,
        interface: Some(interface),
    }
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
