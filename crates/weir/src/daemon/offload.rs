//! Whether the NIC of a wire port would do a peer's ESP: asked of the kernel by NETLINK_XFRM, and
//! read back, since kernels take what they do not do (docs/adr/0013).
//!
//! ```text
//!   NEW_SA, offload dev p0 --refused--> its error number
//!          | taken
//!   GET_SA: offload device in the answer? --no--> the kernel would seal by itself
//!          | yes                                          |
//!   DEL_SA, always <--------------------------------------+
//! ```
//!
//! The associations asked with carry no traffic: documentation addresses, random keys, and a
//! request number of our own. By it, what a gateway left that was killed in between is found and
//! removed at the next start, and nobody else's is touched.

use std::fmt;
use std::fs::File;
use std::io::{self, Read};
use std::net::IpAddr;
use std::os::fd::OwnedFd;

use anyhow::{Context, Result, bail};
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, netlink};
use weir_xfrm::netlink::messages;
use weir_xfrm::program::{self, Association, OFFLOAD_INBOUND, OFFLOAD_PACKET, offloaded};
use weir_xfrm::uapi::{self, MODE_TRANSPORT, MODE_TUNNEL, kind};

use crate::api::dto::OffloadSnapshot;
use crate::config::settings::{Mode, Offload, Pair, Peer, Settings};
use crate::machine::Machine;

/// The request number of associations of ours. "Weir" in ASCII.
const REQUEST: u32 = 0x5765_6972;
/// From an address for documentation to another (RFC 5737): no packet has them.
const ENDS: [[u8; 4]; 2] = [[192, 0, 2, 250], [192, 0, 2, 251]];
/// Key of AES-GCM-128 and salt.
const KEYING_MATERIAL_LEN: usize = 20;
/// The kernel answers in datagrams of at most 32 KiB.
const DATAGRAM_LEN_MAX: usize = 32 * 1024;
/// Datagrams of one answer; a dump that does not end here is given up.
const DATAGRAMS_MAX: usize = 4096;
/// SPIs are drawn until one is free, at most so often.
const DRAWS_MAX: u32 = 8;
const NO_SUCH_ASSOCIATION: i32 = 3;
const ALREADY_THERE: i32 = 17;

/// What the kernel said about one peer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answered {
    /// The pair's name.
    pub pair: String,
    /// The peer's name.
    pub peer: String,
    /// What the configuration wants.
    pub asked: Offload,
    /// The strongest that the NIC takes, for both directions.
    pub nic_takes: Option<Offload>,
    /// Why nothing more, for people.
    pub reason: String,
}

impl Answered {
    /// For the status.
    pub fn snapshot(&self) -> OffloadSnapshot {
        OffloadSnapshot {
            asked: self.asked.name().to_owned(),
            in_hw: false,
            nic_takes: self.nic_takes.map(|it| it.name().to_owned()),
            reason: self.reason.clone(),
        }
    }
}

/// Asks for every peer that wants its ESP done elsewhere.
///
/// # Errors
/// A peer demands `crypto` or `packet` and cannot have it: says why, and what to write.
pub fn ask(settings: &Settings, machine: &Machine) -> Result<Vec<Answered>> {
    let mut answered = Vec::new();
    for pair in &settings.pairs {
        for peer in pair.peers.iter().filter(|peer| peer.offload != Offload::None) {
            let index = machine.link(&pair.wire).map_or(0, |link| link.index);
            let it = ask_for(pair, peer, index);
            if peer.offload != Offload::Auto {
                bail!(
                    "peer {}: offload = \"{}\" on {}: {}; write offload = \"auto\" (Weir seals, \
                     and says why) or \"none\"",
                    peer.name,
                    peer.offload.name(),
                    pair.wire,
                    it.reason,
                );
            }
            tracing::warn!(peer = peer.name, port = pair.wire, "not offloaded: {}", it.reason);
            answered.push(it);
        }
    }
    Ok(answered)
}

fn ask_for(pair: &Pair, peer: &Peer, interface: u32) -> Answered {
    let mode = match peer.mode {
        Mode::Tunnel => Ok(MODE_TUNNEL),
        Mode::Transport => Ok(MODE_TRANSPORT),
        Mode::Ethernet => {
            Err("mode = \"ethernet\" is EtherIP in ESP, which neither kernels nor NICs make")
        }
        Mode::IcrcTag => Err("mode = \"icrc-tag\" is no ESP"),
    };
    let asked = match (mode, peer.offload) {
        (Err(reason), _) => Err(reason.to_owned()),
        (Ok(mode), Offload::Auto) => try_to(interface, mode, Offload::Packet).or_else(|packet| {
            try_to(interface, mode, Offload::Crypto)
                .map_err(|crypto| format!("packet: {packet}; crypto: {crypto}"))
        }),
        (Ok(mode), wanted) => try_to(interface, mode, wanted),
    };
    let (nic_takes, reason) = match asked {
        Ok(taken) => (
            Some(taken),
            format!("the NIC takes `{}`, and Weir hands it no packets yet", taken.name()),
        ),
        Err(reason) => (None, reason),
    };
    let (pair, peer_name) = (pair.name.clone(), peer.name.clone());
    Answered { pair, peer: peer_name, asked: peer.offload, nic_takes, reason }
}

/// Whether the NIC takes both directions.
fn try_to(interface: u32, mode: u8, wanted: Offload) -> Result<Offload, String> {
    let mut kernel = Kernel::open().map_err(|error| error.to_string())?;
    kernel.sweep().map_err(|error| error.to_string())?;
    for inbound in [false, true] {
        let asked = kernel.try_one(interface, mode, wanted, inbound);
        asked.map_err(|why| why.to_string())?;
    }
    Ok(wanted)
}

/// Why a NIC does not take an association.
#[derive(Debug)]
enum Refusal {
    /// The kernel's number.
    Kernel(io::Error),
    /// It would be sealed all the same, by the kernel.
    Silent,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Kernel(error) => write!(f, "the kernel refuses it ({error})"),
            Self::Silent => f.write_str("the kernel takes it and would seal by itself"),
        }
    }
}

/// The kernel's associations.
struct Kernel {
    socket: OwnedFd,
    random: File,
    sequence: u32,
}

impl Kernel {
    fn open() -> Result<Self> {
        let kind = (SocketType::RAW, SocketFlags::CLOEXEC, Some(netlink::XFRM));
        let socket = rustix::net::socket_with(AddressFamily::NETLINK, kind.0, kind.1, kind.2)
            .context("this kernel has no IPsec")?;
        let random = File::open("/dev/urandom").context("cannot read /dev/urandom")?;
        Ok(Self { socket, random, sequence: 0 })
    }

    /// Removes what a killed gateway left.
    fn sweep(&mut self) -> Result<()> {
        let sequence = self.next();
        let listed = self
            .request(&program::list(sequence), true)
            .context("cannot list the kernel's associations")?;
        for body in listed {
            let sequence = self.next();
            let Some(removal) = program::remove_listed(&body, REQUEST, sequence) else { continue };
            match self.request(&removal, false) {
                Err(error) if error.raw_os_error() != Some(NO_SUCH_ASSOCIATION) => {
                    return Err(error).context("cannot remove an association of ours");
                }
                _ => {}
            }
        }
        Ok(())
    }

    fn try_one(
        &mut self,
        interface: u32,
        mode: u8,
        wanted: Offload,
        inbound: bool,
    ) -> Result<(), Refusal> {
        let mut flags = if inbound { OFFLOAD_INBOUND } else { 0 };
        if wanted == Offload::Packet {
            flags |= OFFLOAD_PACKET;
        }
        let device = uapi::Offload { interface: interface as i32, flags, ..Default::default() };
        let mut secret = [0; KEYING_MATERIAL_LEN + 4];
        let mut ends = ENDS.map(IpAddr::from);
        if inbound {
            ends.reverse();
        }
        for _ in 0..DRAWS_MAX {
            self.random.read_exact(&mut secret).map_err(Refusal::Kernel)?;
            let (keying_material, spi) = secret.split_at(KEYING_MATERIAL_LEN);
            let spi = u32::from_be_bytes([spi[0], spi[1], spi[2], spi[3]]).max(256);
            let association = Association {
                ends,
                spi,
                request: REQUEST,
                mode,
                keying_material,
                extended_window: Some(64),
                offload: Some(device),
            };
            let sequence = self.next();
            match self.request(&association.install(sequence), false) {
                Err(error) if error.raw_os_error() == Some(ALREADY_THERE) => continue,
                Err(error) => return Err(Refusal::Kernel(error)),
                Ok(_) => {}
            }
            let found = self.read_back(&association);
            self.sweep().map_err(|error| Refusal::Kernel(io::Error::other(error.to_string())))?;
            let found = found.map_err(Refusal::Kernel)?;
            let wants = (device.interface, flags & OFFLOAD_PACKET);
            let is_done =
                found.is_some_and(|it| (it.interface, it.flags & OFFLOAD_PACKET) == wants);
            return if is_done { Ok(()) } else { Err(Refusal::Silent) };
        }
        Err(Refusal::Kernel(io::Error::from_raw_os_error(ALREADY_THERE)))
    }

    fn read_back(&mut self, association: &Association<'_>) -> io::Result<Option<uapi::Offload>> {
        let sequence = self.next();
        self.send(&association.query(sequence))?;
        let datagram = self.receive()?;
        match messages(&datagram).next() {
            Some((header, _)) if header.kind == kind::NEW_SA => Ok(offloaded(&datagram)),
            Some((_, body)) => Err(refused(body).unwrap_or_else(|| io::Error::other("no answer"))),
            None => Err(io::Error::other("no answer")),
        }
    }

    fn next(&mut self) -> u32 {
        self.sequence += 1;
        self.sequence
    }

    fn send(&self, datagram: &[u8]) -> io::Result<()> {
        rustix::net::send(&self.socket, datagram, SendFlags::empty())?;
        Ok(())
    }

    fn receive(&self) -> io::Result<Vec<u8>> {
        let mut buffer = vec![0; DATAGRAM_LEN_MAX];
        let (len, _) = rustix::net::recv(&self.socket, &mut buffer[..], RecvFlags::empty())?;
        buffer.truncate(len);
        Ok(buffer)
    }

    /// Sends a request and collects the bodies of its answer, a dump's to its end, until the
    /// acknowledgement otherwise.
    fn request(&mut self, datagram: &[u8], is_dump: bool) -> io::Result<Vec<Vec<u8>>> {
        self.send(datagram)?;
        let mut bodies = Vec::new();
        for _ in 0..DATAGRAMS_MAX {
            for (header, body) in messages(&self.receive()?) {
                match header.kind {
                    kind::DONE => return Ok(bodies),
                    kind::ERROR => match refused(body) {
                        Some(error) => return Err(error),
                        None if is_dump => {}
                        None => return Ok(bodies),
                    },
                    _ => bodies.push(body.to_vec()),
                }
            }
        }
        Err(io::Error::other("the kernel's netlink answer does not end"))
    }
}

/// The error of an acknowledgement; `None`: there is none.
fn refused(body: &[u8]) -> Option<io::Error> {
    let number = i32::from_ne_bytes(*body.first_chunk()?);
    (number != 0).then(|| io::Error::from_raw_os_error(-number))
}
