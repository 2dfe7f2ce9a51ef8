//! Mirrors of a host's frames, made by the kernel where the guard meets them (bpf/mirror.bpf.h): a
//! copy shares the frame's memory, and super-packets stay whole.
//!
//! ```text
//!   host port, tc ingress --filter--clone--+--> analyser's port --> tc egress: outer headers
//!   host port, tc egress ---filter--clone--+
//! ```
//!
//! What is sent past the queueing discipline never comes by tc egress: the host's port must send
//! through it ([`crate::Port::set_through_discipline`]).

mod around;
mod filter;

use std::os::fd::AsFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use aya::Ebpf;
use aya::maps::{Array, Map, MapData, MapError, PerCpuArray};
use aya::programs::ProgramError;

use crate::guard::{GuardError, classifier, take_map};
use crate::packet::FrameFilter;
use crate::sys::program::put_program;
use around::Around;
pub use around::{GRE_LEN, Outer, OuterHeaders, VXLAN_LEN};
use filter::KernelFrameFilter;

/// Mirrors of one host that the kernel makes, at most.
pub const KERNEL_MIRRORS_MAX: usize = 4;

/// Fields of `struct mirror`, and kinds of counters (bpf/mirror.bpf.h).
const FIELDS: usize = 3;
const KINDS: u32 = 4;
const FROM_HOST: u32 = 1;
const TO_HOST: u32 = 2;
const FILTERED: u32 = 4;
/// The guard's own programs, in the map behind those of filters.
const FIRST_MAIN: u32 = KERNEL_MIRRORS_MAX as u32;
const MAIN: [&str; 2] = ["weir_guard_in_asked", "weir_guard_out_asked"];
/// The upper half of a mirror's mark. "MI" in ASCII.
const MARK: u32 = 0x4d49_0000;

/// Which frames, and where their copies go.
#[derive(Clone, Copy, Debug)]
pub struct KernelMirror<'a> {
    /// The analyser's port.
    pub port: &'a str,
    /// Frames that the host sends.
    pub from_host: bool,
    /// Frames that it gets.
    pub to_host: bool,
    /// Of those, these alone.
    pub filter: Option<&'a FrameFilter>,
    /// What is put around them.
    pub outer: Option<Outer>,
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

/// The kernel's maps, and what stands in the first.
struct Maps {
    mirrors: Array<MapData, [u32; FIELDS * KERNEL_MIRRORS_MAX]>,
    /// Programs; the kernel empties it when nobody holds it any more.
    filters: MapData,
    counters: PerCpuArray<MapData, u64>,
    is_taken: [bool; KERNEL_MIRRORS_MAX],
    places: [u32; FIELDS * KERNEL_MIRRORS_MAX],
}

impl KernelMirrors {
    pub(crate) fn of(object: &mut Ebpf, host_index: u32) -> Result<Self, ProgramError> {
        let filters = match take_map(object, "filters")? {
            Map::ProgramArray(filters) => filters,
            _ => return Err(MapError::InvalidName { name: "filters".to_owned() }.into()),
        };
        for (index, name) in (FIRST_MAIN..).zip(MAIN) {
            let program = classifier(object, name)?;
            program.load()?;
            let (programs, program) = (filters.fd().as_fd(), program.fd()?.as_fd());
            put_program(programs, index, program)
                .map_err(|e| ProgramError::MapError(MapError::IoError(e)))?;
        }
        let maps = Maps {
            mirrors: Array::try_from(take_map(object, "mirrors")?)?,
            filters,
            counters: PerCpuArray::try_from(take_map(object, "mirror_counters")?)?,
            is_taken: Default::default(),
            places: Default::default(),
        };
        Ok(Self { maps: Arc::new(Mutex::new(maps)), host_index })
    }

    /// Lets the kernel make copies until what is returned is dropped. `None`: it makes as many as
    /// it can ([`KERNEL_MIRRORS_MAX`]), or the filter has no form that it takes.
    ///
    /// # Errors
    /// The port is gone, or the kernel refuses the program or its map.
    pub fn start(&self, mirror: &KernelMirror<'_>) -> Result<Option<RunningMirror>, GuardError> {
        let mut maps = self.maps();
        let Some(place) = maps.is_taken.iter().position(|taken| !taken) else { return Ok(None) };
        let index = crate::guard::interface_index(mirror.port)?;
        let low = (self.host_index << 2 | place as u32) as u16;
        let mark = MARK | u32::from(low);
        let filter = match mirror.filter {
            Some(filter) => match maps.filter(filter, place)? {
                Some(filter) => Some(filter),
                None => return Ok(None),
            },
            None => None,
        };
        let around = match &mirror.outer {
            Some(outer) => Some(Around::attach(mirror.port, mark, low, outer)?),
            None => None,
        };
        let mark = if around.is_some() { mark } else { 0 };
        let directions = [
            (mirror.from_host, FROM_HOST),
            (mirror.to_host, TO_HOST),
            (filter.is_some(), FILTERED),
        ];
        let directions = directions.iter().map(|(wanted, bit)| u32::from(*wanted) * bit).sum();
        for kind in 0..KINDS {
            maps.reset(place as u32 * KINDS + kind)?;
        }
        maps.put(place, [index, directions, mark])?;
        maps.is_taken[place] = true;
        Ok(Some(RunningMirror { mirrors: self.clone(), place, around, _filter: filter }))
    }

    fn maps(&self) -> MutexGuard<'_, Maps> {
        self.maps.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Maps {
    fn filter(
        &self,
        filter: &FrameFilter,
        place: usize,
    ) -> Result<Option<KernelFrameFilter>, MapError> {
        KernelFrameFilter::start(filter, self.filters.fd().as_fd(), place as u32)
            .map_err(MapError::IoError)
    }

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
    // Held for its drop.
    _filter: Option<KernelFrameFilter>,
}

impl RunningMirror {
    /// Has the kernel copy no more; the counters stay until this is dropped.
    pub fn end(&self) {
        // Writing to a map that is held does not fail.
        let _ = self.mirrors.maps().put(self.place, [0; FIELDS]);
    }

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
        self.end();
        self.mirrors.maps().is_taken[self.place] = false;
    }
}
