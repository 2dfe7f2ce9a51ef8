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
//! The associations asked with carry no traffic: documentation addresses, random keys, a request
//! number of our own and no xfrm interface. By these, what a gateway left that was killed in
//! between is found and removed at the next start, and nobody else's is touched.

use std::fmt;
use std::fs::File;
use std::io::{self, Read};
use std::net::IpAddr;

use anyhow::{Result, bail};
use weir_xfrm::program::{Association, OFFLOAD_INBOUND, OFFLOAD_PACKET, offloaded};
use weir_xfrm::uapi::{self, MODE_TRANSPORT, MODE_TUNNEL};

use crate::api::dto::OffloadSnapshot;
use crate::config::settings::{Mode, Offload, Peer, Settings};
use crate::daemon::pair::xfrm_socket::{NO_INTERFACE, REQUEST, XfrmSocket};
use crate::machine::Machine;
use weir_store::entropy;

/// From an address for documentation to another (RFC 5737): no packet has them.
const ENDS: [[u8; 4]; 2] = [[192, 0, 2, 250], [192, 0, 2, 251]];
/// Key of AES-GCM-128 and salt.
const KEYING_MATERIAL_LEN: usize = 20;
/// SPIs are drawn until one is free, at most so often.
const DRAWS_MAX: u32 = 8;
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
    /// Whether packets go there.
    pub in_nic: bool,
    /// Why nothing more, for people.
    pub reason: String,
}

impl Answered {
    /// Whether the NIC works for this peer.
    fn works(&self, pair: &str, peer: &Peer) -> bool {
        let is_it = (&*self.pair, &self.peer, self.asked) == (pair, &peer.name, peer.offload);
        is_it && self.in_nic && (peer.offload != Offload::Auto || peer.is_in_nic)
    }

    /// For the status.
    pub fn snapshot(&self) -> OffloadSnapshot {
        OffloadSnapshot {
            asked: self.asked.name().to_owned(),
            in_hw: self.in_nic,
            nic_takes: self.nic_takes.map(|it| it.name().to_owned()),
            reason: self.reason.clone(),
        }
    }
}

/// Asks for every peer that wants its ESP done elsewhere. What `auto` becomes is decided here, into
/// `settings`, unless it was `before`: associations do not move between the kernel and Weir while a
/// gateway runs. A NIC that works for a peer is not asked again: what fills it may be ours.
///
/// # Errors
/// A peer demands `crypto` or `packet` and cannot have it: says why, and what to write.
pub fn ask(
    settings: &mut Settings,
    machine: &Machine,
    before: Option<&[Answered]>,
) -> Result<Vec<Answered>> {
    let mut answered = Vec::new();
    for pair in &mut settings.pairs {
        let index = machine.link(&pair.wire).map_or(0, |link| link.index);
        let wants_nic = |peer: &&mut Peer| !matches!(peer.offload, Offload::None | Offload::Kernel);
        for peer in pair.peers.iter_mut().filter(wants_nic) {
            let works = before.unwrap_or_default().iter().find(|it| it.works(&pair.name, peer));
            if let Some(works) = works {
                answered.push(works.clone());
                continue;
            }
            let mut it = ask_for(&pair.name, peer, index);
            let (name, port) = (&peer.name, &pair.wire);
            match peer.offload {
                Offload::Auto => {
                    if before.is_some() && it.in_nic != peer.is_in_nic {
                        it.reason = format!("as it was decided at the start; now {}", it.reason);
                        it.in_nic = peer.is_in_nic;
                    }
                    peer.is_in_nic = it.in_nic;
                }
                _ if it.in_nic => {}
                demanded => bail!(
                    "peer {name}: offload = \"{}\" on {port}: {}; write offload = \"auto\" (Weir \
                     seals, and says why) or \"none\"",
                    demanded.name(),
                    it.reason,
                ),
            }
            match it.in_nic {
                true => tracing::info!(peer = name, port, "offloaded: {}", it.reason),
                false => tracing::warn!(peer = name, port, "not offloaded: {}", it.reason),
            }
            answered.push(it);
        }
    }
    Ok(answered)
}

/// Has `next` keep what was decided about its peers with `auto`; of others nothing was.
pub fn keep_decided(next: &mut Settings, before: &Settings) {
    for pair in &mut next.pairs {
        for peer in pair.peers.iter_mut().filter(|it| it.offload == Offload::Auto) {
            peer.is_in_nic = decided(before, &pair.name, peer);
        }
    }
}

fn decided(before: &Settings, pair: &str, peer: &Peer) -> bool {
    let pairs = before.pairs.iter().filter(|it| it.name == pair);
    let mut peers = pairs.flat_map(|it| &it.peers);
    peer.auto_lacks.is_none() && peers.any(|it| it.name == peer.name && it.is_in_nic)
}

fn ask_for(pair: &str, peer: &Peer, interface: u32) -> Answered {
    let mode = match peer.mode {
        Mode::Tunnel => Ok(MODE_TUNNEL),
        Mode::Transport => Ok(MODE_TRANSPORT),
        Mode::Ethernet => {
            Err("mode = \"ethernet\" is EtherIP in ESP, which neither kernels nor NICs make")
        }
        Mode::IcrcTag => Err("mode = \"icrc-tag\" is no ESP"),
        Mode::WireGuard | Mode::OpenVpn => Err("a client's packets are no ESP"),
    };
    let asked = match (mode, peer.offload) {
        (Err(reason), _) => Err(reason.to_owned()),
        (Ok(mode), Offload::Auto) => {
            // It goes no farther than `crypto`; whether it could is good to know.
            let crypto = try_to(interface, mode, Offload::Crypto);
            match (try_to(interface, mode, Offload::Packet), crypto) {
                (Ok(packet), Ok(_)) => Ok(packet),
                (_, Ok(crypto)) => Ok(crypto),
                (Ok(_), Err(crypto)) => Err(format!("crypto: {crypto}")),
                (Err(packet), Err(crypto)) => Err(format!("packet: {packet}; crypto: {crypto}")),
            }
        }
        (Ok(mode), wanted) => try_to(interface, mode, wanted),
    };
    let (nic_takes, in_nic, reason) = match (asked, peer.auto_lacks) {
        (Ok(taken), None) => {
            let of_auto = peer.offload == Offload::Auto;
            let done = if of_auto { Offload::Crypto } else { taken };
            (Some(taken), true, format!("the NIC takes `{}`", done.name()))
        }
        (Ok(taken), Some(needs)) => {
            let reason = format!("the NIC takes `{}`, and that needs {needs}", taken.name());
            (Some(taken), false, reason)
        }
        (Err(reason), _) => (None, false, reason),
    };
    let (pair, peer_name) = (pair.to_owned(), peer.name.clone());
    Answered { pair, peer: peer_name, asked: peer.offload, nic_takes, in_nic, reason }
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

/// Whom to ask.
struct Kernel {
    socket: XfrmSocket,
    random: File,
}

impl Kernel {
    fn open() -> Result<Self> {
        let random = entropy::source()?;
        Ok(Self { socket: XfrmSocket::open()?, random })
    }

    /// Removes what a killed gateway left.
    fn sweep(&mut self) -> Result<()> {
        self.socket.remove(NO_INTERFACE).map(drop)
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
                bound: None,
            };
            match self.socket.request(|sequence| association.install(sequence)) {
                Err(error) if error.raw_os_error() == Some(ALREADY_THERE) => continue,
                Err(error) => return Err(Refusal::Kernel(error)),
                Ok(_) => {}
            }
            let found = self.socket.read_back(&association);
            self.sweep().map_err(|error| Refusal::Kernel(io::Error::other(error.to_string())))?;
            let found = found.map_err(Refusal::Kernel)?;
            let wants = (device.interface, flags & OFFLOAD_PACKET);
            let is_done = offloaded(&found)
                .is_some_and(|it| (it.interface, it.flags & OFFLOAD_PACKET) == wants);
            return if is_done { Ok(()) } else { Err(Refusal::Silent) };
        }
        Err(Refusal::Kernel(io::Error::from_raw_os_error(ALREADY_THERE)))
    }
}
