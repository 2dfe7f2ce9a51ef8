//! Mirrors of all of a host's frames, made by the kernel where the guard meets them
//! (bpf/mirror.bpf.h): a copy shares the frame's memory, and super-packets stay whole.
//!
//! ```text
//!   host port, tc ingress --clone--+--> analyser's port --> tc egress: VXLAN, if asked for
//!   host port, tc egress ---clone--+
//! ```
//!
//! What is sent past the queueing discipline never comes by tc egress: the host's port must send
//! through it ([`crate::Port::set_through_discipline`]).

use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use aya::maps::{Array, MapData, MapError, PerCpuArray};
use aya::programs::TcAttachType;
use aya::programs::tc::TcHandle;
use aya::{Ebpf, EbpfLoader};

use crate::guard::{GuardError, attach, attach_error, classifier, detach, take_map};

static OBJECT: &[u8] = aya::include_bytes_aligned!(concat!(env!("OUT_DIR"), "/mirror.bpf.o"));

/// Mirrors of one host that the kernel makes, at most.
pub const KERNEL_MIRRORS_MAX: usize = 4;
/// Bytes of the outer headers: Ethernet, IPv4, UDP, VXLAN.
pub const VXLAN_OUTER_LEN: usize = 14 + 20 + 8 + 8;

/// Fields of `struct mirror`, and kinds of counters (bpf/mirror.bpf.h).
const FIELDS: usize = 3;
const KINDS: u32 = 4;
const FROM_HOST: u32 = 1;
const TO_HOST: u32 = 2;
/// The upper half of a mirror's mark. "MI" in ASCII.
const MARK: u32 = 0x4d49_0000;
/// Tells the filters of mirrors from others'.
const HANDLE_MAJOR: u16 = 0x4d49;

/// Which frames, and where their copies go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KernelMirror<'a> {
    /// The analyser's port.
    pub port: &'a str,
    /// Frames that the host sends.
    pub from_host: bool,
    /// Frames that it gets.
    pub to_host: bool,
    /// VXLAN around them.
    pub vxlan: Option<Vxlan>,
}

/// What is put around copies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Vxlan {
    /// The outer headers, lengths and IPv4's checksum left 0.
    pub outer: [u8; VXLAN_OUTER_LEN],
    /// Bytes of an outer frame, at most: one that would be longer is cut short. Super-packets get
    /// shorter segments.
    pub len_max: u32,
}

/// What became of copies, in packets: of an encapsulated super-packet, its segments.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CloneCounters {
    /// The port took them.
    pub taken: u64,
    /// Its queue was full.
    pub queue_full: u64,
    /// It was down or gone.
    pub port_down: u64,
    /// Of those taken: cut short.
    pub truncated: u64,
    /// Nothing could be put around them; the port did not get them. Of those, `queue_full` counts
    /// each too, as the kernel says no more.
    pub refused: u64,
}

/// A guard's mirrors.
#[derive(Clone)]
pub struct KernelMirrors {
    maps: Arc<Mutex<Maps>>,
    host_index: u32,
}

impl std::fmt::Debug for KernelMirrors {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("KernelMirrors").finish_non_exhaustive()
    }
}

/// The kernel's two maps, and what stands in the first.
struct Maps {
    mirrors: Array<MapData, [u32; FIELDS * KERNEL_MIRRORS_MAX]>,
    counters: PerCpuArray<MapData, u64>,
    is_taken: [bool; KERNEL_MIRRORS_MAX],
    places: [u32; FIELDS * KERNEL_MIRRORS_MAX],
}

impl KernelMirrors {
    pub(crate) fn of(object: &mut Ebpf, host_index: u32) -> Result<Self, MapError> {
        let maps = Maps {
            mirrors: Array::try_from(take_map(object, "mirrors")?)?,
            counters: PerCpuArray::try_from(take_map(object, "mirror_counters")?)?,
            is_taken: Default::default(),
            places: Default::default(),
        };
        Ok(Self { maps: Arc::new(Mutex::new(maps)), host_index })
    }

    /// Lets the kernel make copies until what is returned is dropped. `None`: it makes as many as
    /// it can ([`KERNEL_MIRRORS_MAX`]).
    ///
    /// # Errors
    /// The port is gone, or the kernel refuses the program or its map.
    pub fn start(&self, mirror: &KernelMirror<'_>) -> Result<Option<RunningMirror>, GuardError> {
        let mut maps = self.maps();
        let Some(place) = maps.is_taken.iter().position(|taken| !taken) else { return Ok(None) };
        let index = crate::guard::interface_index(mirror.port)?;
        let low = (self.host_index << 2 | place as u32) as u16;
        let around = match &mirror.vxlan {
            Some(vxlan) => Some(Around::attach(mirror.port, low, vxlan)?),
            None => None,
        };
        let mark = if around.is_some() { MARK | u32::from(low) } else { 0 };
        let directions = [(mirror.from_host, FROM_HOST), (mirror.to_host, TO_HOST)];
        let directions = directions.iter().map(|(wanted, bit)| u32::from(*wanted) * bit).sum();
        for kind in 0..KINDS {
            maps.reset(place as u32 * KINDS + kind)?;
        }
        maps.put(place, [index, directions, mark])?;
        maps.is_taken[place] = true;
        Ok(Some(RunningMirror { mirrors: self.clone(), place, around }))
    }

    fn maps(&self) -> MutexGuard<'_, Maps> {
        self.maps.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Maps {
    fn put(&mut self, place: usize, fields: [u32; FIELDS]) -> Result<(), MapError> {
        self.places[place * FIELDS..][..FIELDS].copy_from_slice(&fields);
        self.mirrors.set(0, self.places, 0)
    }

    fn total(&self, key: u32) -> Result<u64, MapError> {
        Ok(self.counters.get(&key, 0)?.iter().sum())
    }

    fn reset(&mut self, key: u32) -> Result<(), MapError> {
        let none = self.counters.get(&key, 0)?.iter().map(|_| 0).collect::<Vec<u64>>();
        let none = aya::maps::PerCpuValues::try_from(none).map_err(MapError::IoError)?;
        self.counters.set(key, none, 0)
    }
}

/// A mirror that the kernel makes; it ends when this is dropped.
#[derive(Debug)]
pub struct RunningMirror {
    mirrors: KernelMirrors,
    place: usize,
    around: Option<Around>,
}

impl RunningMirror {
    /// What became of its copies so far.
    ///
    /// # Errors
    /// The kernel's map cannot be read.
    pub fn counters(&self) -> Result<CloneCounters, GuardError> {
        let maps = self.mirrors.maps();
        let total = |kind: u32| maps.total(self.place as u32 * KINDS + kind);
        let [truncated, refused] = self.around.as_ref().map_or(Ok([0; 2]), Around::counters)?;
        Ok(CloneCounters {
            taken: total(0)?,
            queue_full: total(1)?,
            port_down: total(2)?,
            truncated,
            refused,
        })
    }
}

impl Drop for RunningMirror {
    fn drop(&mut self) {
        let mut maps = self.mirrors.maps();
        maps.is_taken[self.place] = false;
        // Writing to a map that is held does not fail.
        let _ = maps.put(self.place, [0; FIELDS]);
    }
}

/// The program that puts VXLAN around copies, attached to the analyser's port.
struct Around {
    port: String,
    handle: TcHandle,
    counters: PerCpuArray<MapData, u64>,
}

impl std::fmt::Debug for Around {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Around").field("port", &self.port).finish_non_exhaustive()
    }
}

impl Around {
    fn attach(port: &str, low: u16, vxlan: &Vxlan) -> Result<Self, GuardError> {
        let mut object = EbpfLoader::new()
            .override_global("mirror_mark", &(MARK | u32::from(low)), true)
            .override_global("outer", &vxlan.outer[..], true)
            .override_global("len_max", &vxlan.len_max, true)
            .load(OBJECT)?;
        let counters = PerCpuArray::try_from(take_map(&mut object, "counters")?)?;
        let program =
            classifier(&mut object, "weir_mirror_out").map_err(|e| attach_error(port, e))?;
        program.load().map_err(|e| attach_error(port, e))?;
        let handle = TcHandle::new(HANDLE_MAJOR, low);
        attach(program, port, TcAttachType::Egress, handle).map_err(|e| attach_error(port, e))?;
        Ok(Self { port: port.to_owned(), handle, counters })
    }

    /// Truncated and refused.
    fn counters(&self) -> Result<[u64; 2], MapError> {
        let total =
            |kind: u32| -> Result<u64, MapError> { Ok(self.counters.get(&kind, 0)?.iter().sum()) };
        Ok([total(0)?, total(1)?])
    }
}

impl Drop for Around {
    fn drop(&mut self) {
        // A port that is gone took its filters along.
        let _: io::Result<()> = detach(&self.port, TcAttachType::Egress, self.handle);
    }
}
