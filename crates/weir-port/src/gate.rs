//! The gate: what is blocked, and floods that were told, are dropped before a frame is copied into
//! a ring of the gateway's: by the filter on its packet sockets, or by an XDP program in front of
//! the one that redirects frames to its AF_XDP sockets (bpf/gate.bpf.h).
//!
//! ```text
//!   blocks, floods --Gate--> kernel maps <-- socket filter or XDP program: counts and drops
//!                                 `--counts--> whoever adds up what was received
//! ```
//!
//! Nothing here decides: who is blocked and what a flood is says the engine. A gateway without its
//! sockets passes nothing, gate or not.

use std::collections::HashSet;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

use aya::Ebpf;
use aya::maps::lpm_trie::Key;
use aya::maps::{Array, LpmTrie, Map, MapData, MapError, PerCpuArray, ProgramArray};
use aya::programs::xdp::XdpLink;
use aya::programs::{ProgramError, ProgramFd, SocketFilter, Xdp};

use crate::guard::{GuardError, take_map};
use crate::steering::SteeredSide;
use crate::sys::clock::monotonic_ns;

/// UDP ports of tunnels that the gate leaves to the gateway.
pub const TUNNEL_PORTS_MAX: usize = 4;
/// Floods that the gate holds at once.
pub const GATE_FLOODS_MAX: usize = 1024;
const FILTER: &str = "weir_gate_filter";
const BYPASS: &str = "weir_gate_bypass";
const NEXT: &str = "gate_next";
const MAPS: [&str; 5] =
    ["gate_blocked", "gate_allowed", "gate_floods", "gate_control", "gate_counts"];

/// `struct gate_prefix` behind its length.
type Address = [u8; 16];
/// `struct gate_block`: until, frames, bytes.
type Block = [u64; 3];
/// `struct gate_flood`: trickle, tokens, last, frames, bytes.
type Flood = [u64; 5];
/// `struct gate_flood_key` behind its length: kind, direction, network, other.
type FloodKey = [u8; 36];
/// `struct gate_control`.
type Control = [u64; 4];

/// Addresses whose first bits are alike; IPv4 ones mapped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct GatePrefix {
    /// The first of them, in network order.
    pub address: [u8; 16],
    /// Bits that are alike, of 128.
    pub bits: u32,
}

/// A flood: packets of one kind from or to one network.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct GateFlood {
    /// The network's first address; an IPv4 address mapped.
    pub network: [u8; 16],
    /// Bits that its addresses have in common, of 128.
    pub bits: u8,
    /// Of what goes to the network, only what this one sends.
    pub talker: Option<[u8; 16]>,
    /// What it is made of, as `enum gate_kind` numbers it.
    pub kind: u8,
    /// Whether it goes to the network, rather than comes from it.
    pub by_destination: bool,
    /// Packets a second that pass for all that, where it goes to the network; 0 of a talker's.
    pub trickle: u32,
}

/// What the gate is to do beside blocks and floods.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GateTerms {
    /// Whether it remembers who was answered: floods may come that hit a destination.
    pub learns: bool,
    /// Keys its hashes; any number that outsiders do not know.
    pub seed: u64,
    /// UDP ports of tunnels, zero for none: the gateway's own, whoever sends.
    pub tunnel_ports: [u16; TUNNEL_PORTS_MAX],
}

/// Frames that were dropped, and their bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GateCount {
    /// Super-packets are one.
    pub frames: u64,
    /// From the Ethernet header on.
    pub bytes: u64,
}

/// What the gate has dropped at one port.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GateDrops {
    /// From blocked sources.
    pub blocked: GateCount,
    /// Of floods.
    pub floods: GateCount,
}

/// The gate of a pair of ports.
pub struct Gate {
    filter: OwnedFd,
    blocked: LpmTrie<MapData, Address, Block>,
    allowed: LpmTrie<MapData, Address, u32>,
    floods: LpmTrie<MapData, FloodKey, Flood>,
    // Tries tell a new entry from one that is replaced since Linux 6.13 only.
    held: HashSet<(u32, FloodKey)>,
    control: Array<MapData, Control>,
    counts: PerCpuArray<MapData, [u64; 2]>,
    bypass: Option<Bypass>,
}

/// The XDP program, and which program gets what it lets through.
struct Bypass {
    // Holds the program.
    object: Ebpf,
    next: ProgramArray<MapData>,
}

impl std::fmt::Debug for Gate {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Gate").finish_non_exhaustive()
    }
}

impl Gate {
    /// Takes the maps and the filter out of the guard's object.
    pub(crate) fn of(object: &mut Ebpf) -> Result<Self, GuardError> {
        let program = object.program_mut(FILTER).ok_or(aya::programs::ProgramError::NotLoaded);
        let program: &mut SocketFilter =
            program.and_then(TryInto::try_into).map_err(GuardError::Gate)?;
        program.load().map_err(GuardError::Gate)?;
        let filter = program.fd().map_err(GuardError::Gate)?.as_fd().try_clone_to_owned();
        let filter = filter.map_err(MapError::IoError)?;
        let mut maps = Vec::with_capacity(MAPS.len());
        for name in MAPS {
            maps.push(take_map(object, name)?);
        }
        Ok(Self::from_maps(filter, maps)?)
    }

    fn from_maps(filter: OwnedFd, maps: Vec<Map>) -> Result<Self, MapError> {
        let mut maps = maps.into_iter();
        let mut next = || maps.next().ok_or(MapError::InvalidMapType { map_type: 0 });
        Ok(Self {
            filter,
            blocked: LpmTrie::try_from(next()?)?,
            allowed: LpmTrie::try_from(next()?)?,
            floods: LpmTrie::try_from(next()?)?,
            held: HashSet::new(),
            control: Array::try_from(next()?)?,
            counts: PerCpuArray::try_from(next()?)?,
            bypass: None,
        })
    }

    /// The same for ports of AF_XDP, of the object that [`Gate::of`] had.
    pub(crate) fn before_xdp(mut self, mut object: Ebpf) -> Result<Self, GuardError> {
        let next = ProgramArray::try_from(take_map(&mut object, NEXT)?)?;
        bypass_of(&mut object).and_then(Xdp::load).map_err(GuardError::GateXdp)?;
        self.bypass = Some(Bypass { object, next });
        Ok(self)
    }

    /// Has the XDP program stand before `program`, that of the port on `side`, and attaches it in
    /// that one's place as `attach` does.
    pub(crate) fn stand_before(
        &mut self,
        program: &ProgramFd,
        side: SteeredSide,
        attach: impl FnOnce(&mut Xdp) -> Result<XdpLink, ProgramError>,
    ) -> Result<XdpLink, GuardError> {
        let not_loaded = || GuardError::GateXdp(ProgramError::NotLoaded);
        let Bypass { object, next } = self.bypass.as_mut().ok_or_else(not_loaded)?;
        next.set(u32::from(side == SteeredSide::Wire), program, 0)?;
        bypass_of(object).and_then(attach).map_err(GuardError::GateXdp)
    }

    /// Says what the gate has to do.
    ///
    /// # Errors
    /// The kernel's map cannot be written.
    pub fn set(
        &mut self,
        terms: &GateTerms,
        has_blocks: bool,
        has_allowed: bool,
        has_floods: bool,
    ) -> Result<(), GuardError> {
        let pair = |low: bool, high: bool| -> u64 {
            let words = [u32::from(low), u32::from(high)].map(u32::to_ne_bytes);
            let mut bytes = [0; 8];
            bytes[..4].copy_from_slice(&words[0]);
            bytes[4..].copy_from_slice(&words[1]);
            u64::from_ne_bytes(bytes)
        };
        let mut ports = [0; 8];
        for (place, port) in ports.chunks_exact_mut(2).zip(terms.tunnel_ports) {
            place.copy_from_slice(&port.to_ne_bytes());
        }
        let value = [
            pair(has_blocks, has_allowed),
            pair(has_floods, terms.learns),
            terms.seed,
            u64::from_ne_bytes(ports),
        ];
        Ok(self.control.set(0, value, 0)?)
    }

    /// Drops what comes from `prefix`, for so many nanoseconds from now; `None`: until
    /// [`Gate::unblock`].
    ///
    /// # Errors
    /// The table is full (65,536), or the kernel has no memory.
    pub fn block(&mut self, prefix: GatePrefix, for_ns: Option<u64>) -> Result<(), GuardError> {
        let until = for_ns.map_or(0, |it| monotonic_ns().saturating_add(it).max(1));
        Ok(self.blocked.insert(&prefix.key(), [until, 0, 0], 0)?)
    }

    /// Drops it no more; what it dropped, all in all.
    ///
    /// # Errors
    /// The kernel's table cannot be written.
    pub fn unblock(&mut self, prefix: GatePrefix) -> Result<GateCount, GuardError> {
        let count = self.blocked_by(prefix)?;
        match self.blocked.remove(&prefix.key()) {
            Err(error) if !is_absent(&error) => Err(error.into()),
            _ => Ok(count),
        }
    }

    /// What a block has dropped so far, here.
    ///
    /// # Errors
    /// The kernel's table cannot be read. What is not there has dropped nothing.
    pub fn blocked_by(&self, prefix: GatePrefix) -> Result<GateCount, GuardError> {
        match self.blocked.get(&prefix.key(), 0) {
            // The trie finds the narrowest prefix that holds the address: ours, if it is there.
            Ok([_, frames, bytes]) => Ok(GateCount { frames, bytes }),
            Err(error) if is_absent(&error) => Ok(GateCount::default()),
            Err(error) => Err(error.into()),
        }
    }

    /// Lets everything from `prefix` through to the gateway.
    ///
    /// # Errors
    /// As [`Gate::block`].
    pub fn allow(&mut self, prefix: GatePrefix) -> Result<(), GuardError> {
        Ok(self.allowed.insert(&prefix.key(), 1, 0)?)
    }

    /// No longer.
    ///
    /// # Errors
    /// The kernel's table cannot be written.
    pub fn disallow(&mut self, prefix: GatePrefix) -> Result<(), GuardError> {
        match self.allowed.remove(&prefix.key()) {
            Err(error) if !is_absent(&error) => Err(error.into()),
            _ => Ok(()),
        }
    }

    /// Drops a flood from now on; false: somebody else has that done already.
    ///
    /// # Errors
    /// The table is full ([`GATE_FLOODS_MAX`]), or the kernel has no memory.
    pub fn stop_flood(&mut self, flood: &GateFlood) -> Result<bool, GuardError> {
        let key = flood.key();
        if self.held.contains(&key) {
            return Ok(false);
        }
        let value = [flood.trickle.into(), 0, monotonic_ns(), 0, 0];
        self.floods.insert(&Key::new(key.0, key.1), value, 0)?;
        self.held.insert(key);
        Ok(true)
    }

    /// What of a flood was dropped so far, here.
    ///
    /// # Errors
    /// The kernel's table cannot be read.
    pub fn stopped(&self, flood: &GateFlood) -> Result<GateCount, GuardError> {
        let (bits, key) = flood.key();
        match self.floods.get(&Key::new(bits, key), 0) {
            Ok([_, _, _, frames, bytes]) => Ok(GateCount { frames, bytes }),
            Err(error) if is_absent(&error) => Ok(GateCount::default()),
            Err(error) => Err(error.into()),
        }
    }

    /// Lets it pass again.
    ///
    /// # Errors
    /// The kernel's table cannot be written.
    pub fn let_flood_pass(&mut self, flood: &GateFlood) -> Result<(), GuardError> {
        let (bits, key) = flood.key();
        self.held.remove(&(bits, key));
        match self.floods.remove(&Key::new(bits, key)) {
            Err(error) if !is_absent(&error) => Err(error.into()),
            _ => Ok(()),
        }
    }

    /// What was dropped so far at the host's port and the wire's.
    ///
    /// # Errors
    /// The kernel's map cannot be read.
    pub fn drops(&self) -> Result<[GateDrops; 2], GuardError> {
        let of = |place: u32| -> Result<GateCount, GuardError> {
            let mut sum = GateCount::default();
            for [frames, bytes] in self.counts.get(&place, 0)?.iter() {
                sum.frames += frames;
                sum.bytes += bytes;
            }
            Ok(sum)
        };
        let of_port = |first| -> Result<GateDrops, GuardError> {
            Ok(GateDrops { blocked: of(first)?, floods: of(first + 1)? })
        };
        Ok([of_port(0)?, of_port(2)?])
    }

    /// The filter's number, as a socket wants it.
    pub(crate) fn raw_filter(&self) -> i32 {
        self.filter.as_raw_fd()
    }
}

fn bypass_of(object: &mut Ebpf) -> Result<&mut Xdp, ProgramError> {
    object.program_mut(BYPASS).ok_or(ProgramError::NotLoaded)?.try_into()
}

impl GatePrefix {
    fn key(self) -> Key<Address> {
        Key::new(self.bits, self.address)
    }
}

impl GateFlood {
    /// Bits that count of the key, and the key.
    fn key(&self) -> (u32, FloodKey) {
        /// What stands before the network.
        const KIND_BITS: u32 = 32;
        const HOST_BITS: u32 = 128;
        let mut key = [0; 36];
        key[0] = self.kind;
        match self.talker {
            None => {
                key[1] = self.by_destination.into();
                key[4..20].copy_from_slice(&self.network);
                (KIND_BITS + u32::from(self.bits), key)
            }
            // What comes from it, a longer prefix of that.
            Some(talker) => {
                key[4..20].copy_from_slice(&talker);
                key[20..].copy_from_slice(&self.network);
                (KIND_BITS + HOST_BITS + u32::from(self.bits), key)
            }
        }
    }
}

fn is(error: &MapError, number: i32) -> bool {
    match error {
        MapError::SyscallError(error) => error.io_error.raw_os_error() == Some(number),
        _ => false,
    }
}

fn is_absent(error: &MapError) -> bool {
    matches!(error, MapError::KeyNotFound) || is(error, libc::ENOENT)
}
