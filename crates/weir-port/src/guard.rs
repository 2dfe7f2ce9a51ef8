//! Fail closed: kernel programs on both ports that outlive the gateway (bpf/guard.bpf.c).
//!
//! ```text
//!   port --> packet socket (the gateway) --> tc ingress: guard drops, the stack sees nothing
//!   stack --> tc egress: guard drops --x     packet socket, qdisc bypassed --> port
//! ```
//!
//! Where the kernel does a peer's ESP, its packets pass at the wire port, association by
//! association ([`Guard::let_out`], [`Guard::let_in`]), and the peer's xfrm interface is shut
//! likewise.
//!
//! Attached by netlink, not by a link that dies with its process: kill -9 leaves the ports shut.
//! Dropping a [`Guard`] leaves it attached too; only [`Guard::detach`] opens the ports.

use std::io;
use std::net::IpAddr;

use aya::maps::{Array, HashMap, LpmTrie, MapData, MapError, PerCpuArray};
use aya::programs::tc::{
    NlOptions, SchedClassifierLink, TcAttachOptions, TcError, TcHandle, qdisc_add_clsact,
};
use aya::programs::{ProgramError, SchedClassifier, TcAttachType};
use aya::{Ebpf, EbpfError, EbpfLoader};

use self::nic::{NicIn, NicOut, NicWay};
use crate::fastpath::{FastPath, FastPathOptions};
use crate::gate::Gate;
use crate::interface::Interface;
use crate::mirror::KernelMirrors;
use crate::rule::KernelRule;
use crate::sys::clock::monotonic_ns;

pub mod nic;
mod shutter;

pub use shutter::Shutter;

pub(crate) static OBJECT: &[u8] =
    aya::include_bytes_aligned!(concat!(env!("OUT_DIR"), "/guard.bpf.o"));

/// First of all filters, so that no other one lets a frame pass before.
const PRIORITY: u16 = 1;
/// Tells our filters from others'. "Weir" in ASCII.
const HANDLE: TcHandle = TcHandle::new(0x5765, 0x6972);
const SIDES: [(TcAttachType, &str); 2] =
    [(TcAttachType::Ingress, "weir_guard_in"), (TcAttachType::Egress, "weir_guard_out")];
/// The same in open mode: the kernel shows the names.
const OPEN_SIDES: [(TcAttachType, &str); 2] =
    [(TcAttachType::Ingress, "weir_guard_in_open"), (TcAttachType::Egress, "weir_guard_out")];
/// The same for an xfrm interface.
const XFRM_SIDES: [(TcAttachType, &str); 2] =
    [(TcAttachType::Ingress, "weir_guard_xfrm"), (TcAttachType::Egress, "weir_guard_out")];
/// Counters of one port in the kernel's map.
const KINDS: u32 = 9;
/// `weir_esp_state` of bpf/esp.bpf.h.
const ESP_LEARNT: u32 = 1;
const ESP_PASS: u32 = 2;
const ESP_PASS_ANY: u32 = 3;

/// What the ports do while no gateway runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum GuardMode {
    /// Nothing passes, ever, but what the gateway carries.
    #[default]
    Closed,
    /// Everything passes, unmeasured and unsealed, once the heartbeat is a second old. For
    /// gateways that only monitor.
    OpenOnFailure,
}

/// Why the guard cannot be attached or removed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum GuardError {
    /// The interface is not there.
    #[error("{interface}: {source}; `ip link` lists the interfaces there are")]
    Interface {
        /// As named by the caller.
        interface: String,
        /// The system's reason.
        source: io::Error,
    },
    /// The kernel did not take the program.
    #[error("the kernel refuses the guard program: {0}; run as root, on Linux 5.10 or later")]
    Load(#[from] EbpfError),
    /// The kernel did not take the program, or did not attach it.
    #[error("{interface}: cannot attach the guard: {source}; run as root (CAP_NET_ADMIN, CAP_BPF)")]
    Attach {
        /// As named by the caller.
        interface: String,
        /// The system's reason.
        source: ProgramError,
    },
    /// The kernel did not take the fast path's filter.
    #[error(
        "the kernel refuses the fast path: {0}; it needs Linux 5.12 or later, or fastpath = \"off\""
    )]
    FastPath(ProgramError),
    /// The kernel did not take the gate's filter.
    #[error("the kernel refuses the gate: {0}; it needs Linux 5.12 or later")]
    Gate(ProgramError),
    /// The kernel did not take the gate's XDP program.
    #[error("the kernel refuses the gate's XDP program: {0}; it needs Linux 5.18 or later")]
    GateXdp(ProgramError),
    /// Its memory shared with the kernel cannot be used.
    #[error("the guard's kernel map: {0}")]
    Map(#[from] MapError),
}

/// What the guard met on one port, in frames (a super-packet is one).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PortGuardCounters {
    /// Kept from the kernel's stack. The gateway has had these frames before.
    pub ingress_dropped: u64,
    /// Passed to the other port for the gateway: flows on the fast path.
    pub ingress_fast: u64,
    /// Passed to the other port because no gateway was alive ([`GuardMode::OpenOnFailure`]).
    pub ingress_passed_open: u64,
    /// The gateway's own, sent through the queueing discipline.
    pub egress_own: u64,
    /// ARP that the kernel's stack wanted to send; dropped.
    pub egress_arp_dropped: u64,
    /// IPv6 neighbour discovery, router solicitations, multicast reports of the stack; dropped.
    pub egress_ipv6_neighbour_dropped: u64,
    /// Anything else that the stack wanted to send; dropped.
    pub egress_other_dropped: u64,
    /// ESP left to the kernel's own, by [`Guard::let_in`], and packets that the NIC opened.
    pub ingress_esp: u64,
    /// ESP that the kernel's own made, by [`Guard::let_out`], and packets for the NIC to seal.
    pub egress_esp: u64,
}

/// Both ports' counters since the guard was attached.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GuardCounters {
    /// On the host port.
    pub host: PortGuardCounters,
    /// On the wire port.
    pub wire: PortGuardCounters,
    /// On the xfrm interfaces of peers whose ESP the kernel does, all together.
    pub xfrm: PortGuardCounters,
}

/// Packets of an association whose ESP the kernel does, by what the wire shows of them: whole ESP
/// over IPv4 or IPv6, without options or extension headers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EspPackets {
    /// Outer source.
    pub source: IpAddr,
    /// Outer destination.
    pub destination: IpAddr,
    /// Security parameters index.
    pub spi: u32,
}

/// The first two bytes of an explicit IV: where sequence numbers stay below 2^48 and the kernel
/// XORs them with salt of its own, all packets of one installation have them alike.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IvPrefix(pub [u8; 2]);

/// An attached guard.
pub struct Guard {
    heartbeat: Array<MapData, u64>,
    counters: PerCpuArray<MapData, u64>,
    mirrors: KernelMirrors,
    /// By `weir_esp`: `weir_esp_out`.
    esp_out: HashMap<MapData, EspKey, [u32; 6]>,
    /// By `weir_esp`: packets.
    esp_in: HashMap<MapData, EspKey, u64>,
    nic_out: LpmTrie<MapData, NicOut, u32>,
    /// By mark: packets.
    nic_left: HashMap<MapData, u32, u64>,
    nic_in: HashMap<MapData, NicIn, NicWay>,
    gate: Option<Gate>,
    /// Where the gate's XDP program is, until it is known whether that is needed.
    object: Option<Ebpf>,
}

/// What a guard has beside what every one has.
#[derive(Clone, Copy, Default)]
struct Beside<'o> {
    fast_path: Option<&'o FastPathOptions>,
    has_nic_esp: bool,
}

impl std::fmt::Debug for Guard {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Guard").finish_non_exhaustive()
    }
}

impl Guard {
    /// Attaches the guard to both ports, in the calling thread's network namespace. A guard that
    /// is attached already is replaced in one step: nothing passes in between. With
    /// [`GuardMode::OpenOnFailure`] the first heartbeat is given.
    ///
    /// # Errors
    /// [`GuardError`]; the ports keep what guard they had, or get it in part.
    pub fn attach(host: &str, wire: &str, mode: GuardMode) -> Result<Self, GuardError> {
        let (mut guard, object) = Self::attach_object(host, wire, mode, Beside::default())?;
        guard.object = Some(object);
        Ok(guard)
    }

    /// The same for a pair of which the kernel does some peers' ESP, closed: shuts their xfrm
    /// interfaces too. No association passes yet. `has_nic_esp`: a NIC will do all of some peer's
    /// ESP, for which the kernel must have IPsec.
    ///
    /// # Errors
    /// [`GuardError`], likewise.
    pub fn attach_with_xfrm(
        host: &str,
        wire: &str,
        xfrm: &[&str],
        has_nic_esp: bool,
    ) -> Result<Self, GuardError> {
        let beside = Beside { has_nic_esp, ..Beside::default() };
        let (mut guard, mut object) = Self::attach_object(host, wire, GuardMode::Closed, beside)?;
        for (side, name) in XFRM_SIDES {
            for interface in xfrm {
                classifier(&mut object, name)
                    .and_then(|program| {
                        if program.fd().is_err() {
                            program.load()?;
                        }
                        attach(program, interface, side, HANDLE)
                    })
                    .map_err(|e| attach_error(interface, e))?;
            }
        }
        guard.object = Some(object);
        Ok(guard)
    }

    /// Lets these packets leave by the wire port with this mark, as soon as [`Guard::pass`] has
    /// said which IVs they have: the first of them is dropped, and tells.
    ///
    /// # Errors
    /// The kernel's table cannot be written, or is full: 512 associations.
    pub fn let_out(&mut self, mark: u32, packets: EspPackets) -> Result<(), GuardError> {
        Ok(self.esp_out.insert(packets.key(), [mark, 0, 0, 0, 0, 0], 0)?)
    }

    /// The same at once and with any IV, for a key that is installed once.
    ///
    /// # Errors
    /// As [`Guard::let_out`].
    pub fn let_out_any(&mut self, mark: u32, packets: EspPackets) -> Result<(), GuardError> {
        Ok(self.esp_out.insert(packets.key(), [mark, 0, ESP_PASS_ANY, 0, 0, 0], 0)?)
    }

    /// The IV's beginning of the first of these packets; `None`: there was none yet.
    ///
    /// # Errors
    /// They are not let out.
    pub fn learnt(&self, packets: EspPackets) -> Result<Option<IvPrefix>, GuardError> {
        let value = self.esp_out.get(&packets.key(), 0)?;
        Ok((value[2] == ESP_LEARNT).then_some(IvPrefix((value[1] as u16).to_ne_bytes())))
    }

    /// Lets what [`Guard::learnt`] told of pass from now on, with this beginning of the IV alone.
    ///
    /// # Errors
    /// As [`Guard::let_out`].
    pub fn pass(&mut self, packets: EspPackets) -> Result<(), GuardError> {
        let mut value = self.esp_out.get(&packets.key(), 0)?;
        value[2] = ESP_PASS;
        Ok(self.esp_out.insert(packets.key(), value, 0)?)
    }

    /// How many of these packets left.
    ///
    /// # Errors
    /// They are not let out.
    pub fn passed(&self, packets: EspPackets) -> Result<u64, GuardError> {
        let value = self.esp_out.get(&packets.key(), 0)?;
        let [a, b, c, d] = value[4].to_ne_bytes();
        let [e, f, g, h] = value[5].to_ne_bytes();
        Ok(u64::from_ne_bytes([a, b, c, d, e, f, g, h]))
    }

    /// Leaves these packets from the wire to the kernel's ESP.
    ///
    /// # Errors
    /// As [`Guard::let_out`].
    pub fn let_in(&mut self, packets: EspPackets) -> Result<(), GuardError> {
        Ok(self.esp_in.insert(packets.key(), 0, 0)?)
    }

    /// Lets these packets pass no more, neither out nor in.
    ///
    /// # Errors
    /// The kernel's table cannot be written.
    pub fn shut(&mut self, packets: EspPackets) -> Result<(), GuardError> {
        let key = packets.key();
        unless_gone(self.esp_out.remove(&key))?;
        unless_gone(self.esp_in.remove(&key))
    }

    /// The same, with a fast path between the two ports, of which each worker has a part: empty,
    /// and in force for a port once its socket has the filter
    /// ([`crate::PacketPort::filter_fast_path`]).
    ///
    /// # Errors
    /// [`GuardError`], likewise.
    pub fn attach_with_fast_path(
        host: &str,
        wire: &str,
        mode: GuardMode,
        options: &FastPathOptions,
    ) -> Result<(Self, Vec<FastPath>), GuardError> {
        let beside = Beside { fast_path: Some(options), ..Beside::default() };
        let (guard, object) = Self::attach_object(host, wire, mode, beside)?;
        Ok((guard, FastPath::of(object, options)?))
    }

    fn attach_object(
        host: &str,
        wire: &str,
        mode: GuardMode,
        beside: Beside<'_>,
    ) -> Result<(Self, Ebpf), GuardError> {
        let (host_index, wire_index) = (interface_index(host)?, interface_index(wire)?);
        let open_on_failure = u32::from(mode == GuardMode::OpenOnFailure);
        let has_nic_esp = u32::from(beside.has_nic_esp);
        let mut loader = EbpfLoader::new();
        loader
            .override_global("host_index", &host_index, true)
            .override_global("wire_index", &wire_index, true)
            .override_global("open_on_failure", &open_on_failure, true)
            .override_global("has_nic_esp", &has_nic_esp, true)
            .override_global("own_mark", &crate::GUARD_MARK, true);
        if let Some(options) = beside.fast_path {
            options.apply(&mut loader);
        }
        let mut object = loader.load(OBJECT)?;
        let heartbeat = Array::try_from(take_map(&mut object, "heartbeat")?)?;
        let counters = PerCpuArray::try_from(take_map(&mut object, "counters")?)?;
        let mirrors =
            KernelMirrors::of(&mut object, host_index).map_err(|e| attach_error(host, e))?;
        let esp_out = HashMap::try_from(take_map(&mut object, "esp_out")?)?;
        let esp_in = HashMap::try_from(take_map(&mut object, "esp_in")?)?;
        let nic_out = LpmTrie::try_from(take_map(&mut object, "nic_out")?)?;
        let nic_in = HashMap::try_from(take_map(&mut object, "nic_in")?)?;
        let nic_left = HashMap::try_from(take_map(&mut object, "nic_left")?)?;
        let gate = Some(Gate::of(&mut object)?);
        let mut guard = Self {
            heartbeat,
            counters,
            mirrors,
            esp_out,
            esp_in,
            nic_out,
            nic_left,
            nic_in,
            gate,
            object: None,
        };
        guard.heartbeat()?;
        let sides = if mode == GuardMode::OpenOnFailure { OPEN_SIDES } else { SIDES };
        for (side, name) in sides {
            let program = classifier(&mut object, name).map_err(|e| attach_error(host, e))?;
            program.load().map_err(|e| attach_error(host, e))?;
            for interface in [wire, host] {
                attach(program, interface, side, HANDLE).map_err(|e| attach_error(interface, e))?;
            }
        }
        Ok((guard, object))
    }

    /// What drops frames before the pair's sockets receive them; once. In force for a port that has
    /// its filter ([`crate::PacketPort::filter_by`]), or the fast path's.
    pub fn take_gate(&mut self) -> Option<Gate> {
        self.object = None;
        self.gate.take()
    }

    /// The same for ports of AF_XDP ([`crate::XdpPort::open_behind`]); no gate beside a fast path.
    ///
    /// # Errors
    /// The kernel refuses the program.
    pub fn take_gate_for_xdp(&mut self) -> Result<Option<Gate>, GuardError> {
        let parts = self.gate.take().zip(self.object.take());
        parts.map(|(gate, object)| gate.before_xdp(object)).transpose()
    }

    /// The copies that the guard makes for analysers: none at first.
    pub fn mirrors(&self) -> &KernelMirrors {
        &self.mirrors
    }

    /// Says that the gateway lives. With [`GuardMode::OpenOnFailure`], and with mirrors, to be
    /// called several times a second; otherwise without effect.
    ///
    /// # Errors
    /// The kernel's map cannot be written.
    pub fn heartbeat(&mut self) -> Result<(), GuardError> {
        Ok(self.heartbeat.set(0, monotonic_ns(), 0)?)
    }

    /// What the guard met so far.
    ///
    /// # Errors
    /// The kernel's map cannot be read.
    pub fn counters(&self) -> Result<GuardCounters, GuardError> {
        Ok(GuardCounters {
            host: self.port_counters(0)?,
            wire: self.port_counters(KINDS)?,
            xfrm: self.port_counters(2 * KINDS)?,
        })
    }

    /// Whether `interface` has a guard in both directions, whoever attached it, in the calling
    /// thread's network namespace. One with [`GuardMode::OpenOnFailure`] counts.
    ///
    /// # Errors
    /// [`GuardError::Interface`] when it is gone or the kernel does not answer.
    pub fn is_attached(interface: &str) -> Result<bool, GuardError> {
        Ok(Self::mode_of(interface)?.is_some())
    }

    /// The mode of the guard that `interface` has in both directions, as the kernel tells it,
    /// whoever attached it, in the calling thread's network namespace.
    ///
    /// # Errors
    /// [`GuardError::Interface`] when it is gone or the kernel does not answer.
    pub fn mode_of(interface: &str) -> Result<Option<GuardMode>, GuardError> {
        let rules =
            KernelRule::all(interface).map_err(|source| interface_error(interface, source))?;
        let has = |sides: &[(TcAttachType, &str); 2]| {
            sides.iter().all(|(_, name)| rules.iter().any(|rule| rule.program == *name))
        };
        let modes = [(OPEN_SIDES, GuardMode::OpenOnFailure), (SIDES, GuardMode::Closed)];
        Ok(modes.into_iter().find(|(sides, _)| has(sides)).map(|(_, mode)| mode))
    }

    /// Opens the two ports to the kernel's stack again, whoever attached the guard.
    ///
    /// # Errors
    /// [`GuardError::Interface`] when one is gone; a port without guard is no error.
    pub fn detach(host: &str, wire: &str) -> Result<(), GuardError> {
        for interface in [host, wire] {
            for (side, _) in SIDES {
                detach(interface, side, HANDLE)
                    .map_err(|source| interface_error(interface, source))?;
            }
        }
        Ok(())
    }

    fn port_counters(&self, first: u32) -> Result<PortGuardCounters, GuardError> {
        let total = |kind: u32| -> Result<u64, GuardError> {
            Ok(self.counters.get(&(first + kind), 0)?.iter().sum())
        };
        Ok(PortGuardCounters {
            ingress_dropped: total(0)?,
            ingress_passed_open: total(1)?,
            egress_own: total(2)?,
            egress_arp_dropped: total(3)?,
            egress_ipv6_neighbour_dropped: total(4)?,
            egress_other_dropped: total(5)?,
            ingress_fast: total(6)?,
            ingress_esp: total(7)?,
            egress_esp: total(8)?,
        })
    }
}

/// `weir_esp`.
type EspKey = [u32; 9];

impl EspPackets {
    fn key(self) -> EspKey {
        let mut key = [0; 9];
        key[..4].copy_from_slice(&mapped_words(self.source));
        key[4..8].copy_from_slice(&mapped_words(self.destination));
        key[8] = u32::from_ne_bytes(self.spi.to_be_bytes());
        key
    }
}

/// An address in the kernel's maps: in network order, an IPv4 one as `::ffff:0:0/96`.
fn mapped_words(address: IpAddr) -> [u32; 4] {
    let mapped = match address {
        IpAddr::V4(address) => address.to_ipv6_mapped(),
        IpAddr::V6(address) => address,
    };
    let mut words = [0; 4];
    for (word, bytes) in words.iter_mut().zip(mapped.octets().as_chunks::<4>().0) {
        *word = u32::from_ne_bytes(*bytes);
    }
    words
}

/// What was in no map is removed from it.
fn unless_gone(removed: Result<(), MapError>) -> Result<(), GuardError> {
    match removed {
        Err(MapError::SyscallError(error))
            if error.io_error.raw_os_error() != Some(libc::ENOENT) =>
        {
            Err(MapError::SyscallError(error).into())
        }
        _ => Ok(()),
    }
}

/// Puts the program where an older guard is, in one step, or else where none is.
pub(crate) fn attach(
    program: &mut SchedClassifier,
    interface: &str,
    side: TcAttachType,
    handle: TcHandle,
) -> Result<(), ProgramError> {
    match qdisc_add_clsact(interface) {
        Ok(()) | Err(TcError::AlreadyAttached) => {}
        // Without the qdisc the next step says what is wrong.
        Err(_) => {}
    }
    let older = SchedClassifierLink::attached(interface, side, PRIORITY, handle, None)
        .map_err(TcError::IoError)?;
    let id = match program.attach_to_link(older) {
        Ok(id) => id,
        Err(_) => {
            let options = NlOptions { priority: PRIORITY, handle, classid: None };
            program.attach_with_options(interface, side, TcAttachOptions::Netlink(options))?
        }
    };
    // Dropping the link would detach the program.
    std::mem::forget(program.take_link(id)?);
    Ok(())
}

/// Takes away what [`attach`] put there; where nothing is, nothing happens.
pub(crate) fn detach(interface: &str, side: TcAttachType, handle: TcHandle) -> io::Result<()> {
    // Dropping the link detaches, and fails where nothing is attached.
    drop(SchedClassifierLink::attached(interface, side, PRIORITY, handle, None)?);
    Ok(())
}

pub(crate) fn classifier<'e>(
    object: &'e mut Ebpf,
    name: &str,
) -> Result<&'e mut SchedClassifier, ProgramError> {
    object.program_mut(name).ok_or(ProgramError::NotLoaded)?.try_into()
}

pub(crate) fn take_map(object: &mut Ebpf, name: &str) -> Result<aya::maps::Map, MapError> {
    object.take_map(name).ok_or_else(|| MapError::InvalidName { name: name.to_owned() })
}

pub(crate) fn interface_index(interface: &str) -> Result<u32, GuardError> {
    let index = Interface::find(interface).and_then(|interface| interface.index());
    index.map(|index| index as u32).map_err(|source| interface_error(interface, source))
}

fn interface_error(interface: &str, source: io::Error) -> GuardError {
    GuardError::Interface { interface: interface.to_owned(), source }
}

pub(crate) fn attach_error(interface: &str, source: ProgramError) -> GuardError {
    GuardError::Attach { interface: interface.to_owned(), source }
}
