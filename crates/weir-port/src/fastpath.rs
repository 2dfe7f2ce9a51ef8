//! The fast path's kernel side: which flows the kernel carries from port to port, and what it
//! counted (bpf/fastpath.bpf.h).
//!
//! ```text
//!   port --> the gateway's packet socket: filter --+-> flow carried: counted, tc redirects it
//!                                                  +-> else: into the ring, as without
//! ```
//!
//! The filter decides and the guard's program at tc ingress obeys, frame by frame. When the gateway
//! dies its sockets close, no filter runs any more, and the guard drops everything as before; when
//! it merely hangs, the filter stops carrying after [`LEASE_NS`].
//!
//! Each of a pair's workers has a part of the table: its flows, whose frames come to its sockets
//! alone, its epoch, its heartbeat, its counts. Events and heads come by one ring buffer each,
//! which worker 0 reads: it hands events on to whose flow they are of, by a bounded queue.
//!
//! Nothing here decides: keys and slots come from `weir_engine::fastpath`.

use std::io;
use std::mem::offset_of;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

use aya::maps::{HashMap, Map, MapData, MapError, PerCpuArray, RingBuf};
use aya::programs::{ProgramError, SocketFilter};
use aya::{Ebpf, EbpfLoader};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use weir_wire::fastpath::{Control, Count, Event, Head, Key, LEASE_NS, NONE, Slot, WORKERS_MAX};
use zerocopy::{FromBytes, IntoBytes};

use crate::guard::{GuardError, take_map};
use crate::sys::clock::monotonic_ns;
use crate::sys::program::test_run;
use crate::sys::shared_map::SharedMap;
use crate::sys::urgent::Urgent;

/// Bytes of events that may wait: 1,200 of them. A power of two of pages.
const EVENTS_BYTES: u32 = 256 * 1024;
/// Bytes of heads that may wait: 20,000 of them, which is 20 ms of a million frames a second. It is
/// the kernel's memory, all of it at once. A power of two of pages.
const HEADS_BYTES: u32 = 8 << 20;
/// Heartbeats come in time if they are no farther apart.
const HEARTBEAT_NS_MAX: u64 = LEASE_NS / 2;
/// Events that wait for another worker than the one that reads them, at most.
const EVENTS_HANDED_ON_MAX: usize = 1024;
const KEY_LEN: usize = size_of::<Key>();

/// Bounds of the fast path, and what the kernel must know of opcodes.
#[derive(Clone, Copy, Debug)]
pub struct FastPathOptions {
    /// Directions of flows carried at once; each takes about 500 bytes of kernel memory.
    pub flows_max: u32,
    /// Workers that share them, 1 to [`WORKERS_MAX`].
    pub workers: usize,
    /// By opcode: `weir_engine::fastpath::opcode_words`.
    pub opcode_words: [u32; 256],
}

/// One worker's part of the kernel's table of carried flows. Numbers of slots begin at 0 in each.
pub struct FastPath {
    filter: OwnedFd,
    worker: usize,
    flows: HashMap<MapData, [u8; KEY_LEN], u32>,
    slots: SharedMap,
    control: SharedMap,
    events: Events,
    /// Of all workers; worker 0's.
    heads: Option<RingBuf<MapData>>,
    opcodes: PerCpuArray<MapData, [u64; 256]>,
    flows_max: u32,
}

/// Where a worker's events come from.
enum Events {
    /// The kernel, and those of other workers go on to them.
    Read { ring: Box<RingBuf<MapData>>, others: Vec<SyncSender<Event>>, lost: Arc<AtomicU64> },
    /// Worker 0.
    Handed(Receiver<Event>),
}

impl std::fmt::Debug for FastPath {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("FastPath").field("flows_max", &self.flows_max).finish_non_exhaustive()
    }
}

impl FastPathOptions {
    /// Makes the object's maps as large as they must be.
    pub(crate) fn apply<'a>(&'a self, loader: &mut EbpfLoader<'a>) {
        loader
            .override_global("opcode_words", &self.opcode_words, true)
            .map_max_entries("flows", self.flows_max)
            .map_max_entries("slots", self.flows_max)
            .map_max_entries("events", EVENTS_BYTES)
            .map_max_entries("heads", HEADS_BYTES);
    }
}

impl FastPath {
    /// Takes the maps and the filters out of a loaded object: each worker's part.
    pub(crate) fn of(mut object: Ebpf, options: &FastPathOptions) -> Result<Vec<Self>, GuardError> {
        let workers = options.workers.clamp(1, WORKERS_MAX);
        let [slots, control] = [take_map(&mut object, "slots")?, take_map(&mut object, "control")?];
        let [flows, opcodes] = [take_map(&mut object, "flows")?, take_map(&mut object, "opcodes")?];
        let ring = Box::new(RingBuf::try_from(take_map(&mut object, "events")?)?);
        let mut heads = Some(RingBuf::try_from(take_map(&mut object, "heads")?)?);
        let mut others = Vec::new();
        let handed = (1..workers).map(|_| {
            let (sender, receiver) = sync_channel(EVENTS_HANDED_ON_MAX);
            others.push(sender);
            Events::Handed(receiver)
        });
        let handed: Vec<Events> = handed.collect();
        let read = Events::Read { ring, others, lost: Arc::default() };
        let events = std::iter::once(read).chain(handed);
        let part = |(worker, events)| {
            Ok(Self {
                filter: filter(&mut object, worker)?,
                worker,
                flows: HashMap::try_from(Map::HashMap(again(&flows)?))?,
                slots: shared(&slots, options.flows_max, size_of::<Slot>())?,
                control: shared(&control, WORKERS_MAX as u32, size_of::<Control>())?,
                events,
                heads: heads.take(),
                opcodes: PerCpuArray::try_from(Map::PerCpuArray(again(&opcodes)?))?,
                flows_max: options.flows_max / workers as u32,
            })
        };
        events.enumerate().map(part).collect()
    }

    /// The first worker's part of a fast path without ports, to try frames on
    /// ([`FastPath::trial`]).
    ///
    /// # Errors
    /// The kernel refuses the program.
    pub fn detached(options: &FastPathOptions) -> Result<Self, GuardError> {
        let mut loader = EbpfLoader::new();
        options.apply(&mut loader);
        let parts = Self::of(loader.load(crate::guard::OBJECT)?, options)?;
        Ok(parts.into_iter().next().expect("there is one worker at least"))
    }

    /// Directions of this worker's flows that can be carried at once.
    pub fn flows_max(&self) -> u32 {
        self.flows_max
    }

    /// The filter, for the worker's receiving socket of each port.
    pub fn filter(&self) -> BorrowedFd<'_> {
        self.filter.as_fd()
    }

    /// Runs the filter once on a frame that no port received; whether it would be carried.
    ///
    /// # Errors
    /// The kernel refuses: frames are bounded by a page.
    pub fn trial(&self, frame: &[u8]) -> io::Result<bool> {
        // The kernel takes the first 14 bytes for the Ethernet header and gives a socket filter
        // what is behind it; on a packet socket it gives the whole frame.
        let mut bytes = vec![0; 14];
        bytes.extend_from_slice(frame);
        Ok(test_run(self.filter(), &bytes)? == 0)
    }

    /// Has the kernel carry `key` as slot `number`, once its last frame on the slow path has left
    /// ([`FastPath::set_departed`]).
    ///
    /// # Errors
    /// The kernel's table is full, or out of memory.
    pub fn insert(&mut self, key: &Key, number: u32, slot: &Slot) -> Result<(), GuardError> {
        let mut slot = *slot;
        (slot.is_fast, slot.last_admitted, slot.last_ns) = (0, NONE, monotonic_ns());
        let place = self.place(number);
        self.slots.write(place, &slot);
        self.flows.insert(as_array(key), place as u32, 0)?;
        Ok(())
    }

    /// Has the kernel forget `key`. Its slot may be counted into for a moment yet.
    ///
    /// # Errors
    /// The kernel's table cannot be written. A key that is not there is no error.
    pub fn remove(&mut self, key: &Key) -> Result<(), GuardError> {
        match self.flows.remove(&as_array(key)) {
            Ok(()) | Err(MapError::KeyNotFound) => Ok(()),
            Err(error) if is_absent(&error) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// A slot as it is; the fields that are [taken](Slot) begin again at zero.
    pub fn take(&self, number: u32) -> Slot {
        let number = self.place(number);
        let mut slot: Slot = self.slots.read(number);
        if slot.tcp_flags != 0 {
            let flags = self.slots.word_u32(number, offset_of!(Slot, tcp_flags));
            slot.tcp_flags = flags.swap(0, Ordering::Relaxed);
        }
        if slot.remote_key_count != 0 {
            let count = self.slots.word_u32(number, offset_of!(Slot, remote_key_count));
            slot.remote_key_count = count.swap(0, Ordering::Relaxed);
        }
        slot
    }

    /// Tells how many bytes of payload a packet of slot `number` holds.
    pub fn set_path_mtu(&self, number: u32, bytes: u16) {
        let place = self.slots.word_u32(self.place(number), offset_of!(Slot, path_mtu));
        place.store(bytes.into(), Ordering::Relaxed);
    }

    /// Makes slots of other epochs void, all at once; zero: all slots.
    pub fn set_epoch(&self, epoch: u32) {
        self.control
            .word_u32(self.worker, offset_of!(Control, epoch))
            .store(epoch, Ordering::SeqCst);
    }

    /// Says that the gateway lives. When it comes so late that the kernel may have stopped carrying
    /// meanwhile, nothing is said and the answer is false: make all slots void first.
    #[must_use]
    pub fn heartbeat(&self) -> bool {
        let is_late = self.is_late();
        if !is_late {
            let lease = self.control.word_u64(self.worker, offset_of!(Control, lease_ns));
            lease.store(monotonic_ns(), Ordering::SeqCst);
        }
        !is_late
    }

    /// Whether the latest heartbeat is so old that the kernel may have stopped carrying.
    pub fn is_late(&self) -> bool {
        let lease = self.control.word_u64(self.worker, offset_of!(Control, lease_ns));
        let last = lease.load(Ordering::Relaxed);
        last != 0 && monotonic_ns().saturating_sub(last) > HEARTBEAT_NS_MAX
    }

    /// Lets the next heartbeat be the first: no slot is valid, so a late one does no harm.
    pub fn forget_heartbeat(&self) {
        self.control
            .word_u64(self.worker, offset_of!(Control, lease_ns))
            .store(0, Ordering::SeqCst);
    }

    /// Frames that the kernel let up to the socket of `side` (0 host, 1 wire), since its filter was
    /// attached. Each of them is received or lost there, later.
    pub fn admitted(&self, side: usize) -> u64 {
        let place = offset_of!(Control, admitted) + size_of::<Count>() * side.min(1);
        self.control.word_u64(self.worker, place).load(Ordering::SeqCst)
    }

    /// Says that of the frames admitted at `side` the first `frames` have left, so that none of
    /// them can be overtaken.
    pub fn set_departed(&self, side: usize, frames: u64) {
        let place = offset_of!(Control, departed) + 8 * side.min(1);
        self.control.word_u64(self.worker, place).store(frames, Ordering::SeqCst);
    }

    /// The next event of this worker's flows that waits.
    pub fn next_event(&mut self) -> Option<Event> {
        let Self { events, flows_max, worker, .. } = self;
        let mut event = match events {
            Events::Handed(events) => events.try_recv().ok()?,
            Events::Read { ring, others, lost } => loop {
                let item = ring.next()?;
                let Ok((event, _)) = Event::read_from_prefix(&item) else { continue };
                let Some(other) = (event.slot / *flows_max).checked_sub(1) else { break event };
                let other = others.get(other as usize);
                if other.is_none_or(|other| other.try_send(event).is_err()) {
                    lost.fetch_add(1, Ordering::Relaxed);
                }
            },
        };
        event.slot -= *worker as u32 * *flows_max;
        Some(event)
    }

    /// Events that found no room, of this worker's flows; worker 0 also counts those that it could
    /// not hand on.
    pub fn events_lost(&self) -> u64 {
        let not_handed_on = match &self.events {
            Events::Read { lost, .. } => lost.load(Ordering::Relaxed),
            Events::Handed(_) => 0,
        };
        let place = offset_of!(Control, events_lost);
        self.control.word_u64(self.worker, place).load(Ordering::Relaxed) + not_handed_on
    }

    /// Whether [`FastPath::take_heads`] gets the head of every frame that is carried from now on.
    pub fn want_heads(&self, wants: bool) {
        let place = self.control.word_u32(self.worker, offset_of!(Control, wants_heads));
        place.store(wants.into(), Ordering::Relaxed);
    }

    /// Whether the heads that all workers want come by here: to worker 0.
    pub fn has_heads(&self) -> bool {
        self.heads.is_some()
    }

    /// Hands over the heads that wait, of all workers' flows, at most `max`; returns how many those
    /// were.
    pub fn take_heads(&mut self, max: usize, mut take: impl FnMut(&Head)) -> usize {
        let Some(heads) = &mut self.heads else { return 0 };
        let mut taken = 0;
        while taken < max {
            let Some(item) = heads.next() else { break };
            if let Ok((head, _)) = Head::ref_from_prefix(&item) {
                take(head);
            }
            taken += 1;
        }
        taken
    }

    /// Heads that found no room.
    pub fn heads_lost(&self) -> u64 {
        let place = offset_of!(Control, heads_lost);
        self.control.word_u64(self.worker, place).load(Ordering::Relaxed)
    }

    fn place(&self, number: u32) -> usize {
        self.worker * self.flows_max as usize + number as usize
    }

    /// Packets carried, by opcode byte.
    ///
    /// # Errors
    /// The kernel's map cannot be read.
    pub fn opcode_packets(&self) -> Result<[u64; 256], GuardError> {
        let mut sums = [0; 256];
        for processor in self.opcodes.get(&(self.worker as u32), 0)?.iter() {
            for (sum, packets) in sums.iter_mut().zip(processor) {
                *sum += packets;
            }
        }
        Ok(sums)
    }
}

/// Runs `visit` on every processor that this thread may run on, and returns to where it was.
///
/// A processor that runs this thread has finished the frame that it was taking from port to port:
/// softirqs are not preempted by threads. A system call in `visit` that lets go of a lock taken
/// against softirqs makes it work off those that wait.
pub fn on_every_processor(mut visit: impl FnMut()) {
    let Ok(home) = sched_getaffinity(None) else { return };
    // Frames wait meanwhile: not behind whoever else wants that processor.
    let _urgent = Urgent::begin();
    let mut all = CpuSet::new();
    (0..CpuSet::MAX_CPU).for_each(|processor| all.set(processor));
    // The kernel leaves those that are there, and that its cpuset allows.
    let _refused = sched_setaffinity(None, &all);
    let allowed = sched_getaffinity(None).unwrap_or(home);
    for processor in (0..CpuSet::MAX_CPU).filter(|at| allowed.is_set(*at)) {
        let mut one = CpuSet::new();
        one.set(processor);
        if sched_setaffinity(None, &one).is_ok() {
            visit();
        }
    }
    let _refused = sched_setaffinity(None, &home);
}

/// The clock of slots and events: CLOCK_MONOTONIC, nanoseconds.
pub fn now_ns() -> u64 {
    monotonic_ns()
}

fn as_array(key: &Key) -> [u8; KEY_LEN] {
    let mut bytes = [0; KEY_LEN];
    bytes.copy_from_slice(key.as_bytes());
    bytes
}

/// A worker's filter, loaded.
fn filter(object: &mut Ebpf, worker: usize) -> Result<OwnedFd, GuardError> {
    let name = format!("weir_fast_filter_{worker}");
    let program = object.program_mut(&name).ok_or(ProgramError::NotLoaded);
    let program: Result<&mut SocketFilter, _> = program.and_then(TryInto::try_into);
    let program = program.map_err(GuardError::FastPath)?;
    program.load().map_err(GuardError::FastPath)?;
    let fd = program.fd().map_err(GuardError::FastPath)?;
    Ok(fd.as_fd().try_clone_to_owned().map_err(MapError::IoError)?)
}

/// Another handle of the same map.
fn again(map: &Map) -> Result<MapData, GuardError> {
    let (Map::HashMap(data) | Map::PerCpuArray(data)) = map else {
        return Err(MapError::InvalidMapType { map_type: 0 }.into());
    };
    let fd = data.fd().as_fd().try_clone_to_owned().map_err(MapError::IoError)?;
    Ok(MapData::from_fd(fd)?)
}

fn shared(map: &Map, elements: u32, element_len: usize) -> Result<SharedMap, GuardError> {
    let Map::Array(data) = map else {
        return Err(MapError::InvalidMapType { map_type: 0 }.into());
    };
    let shared = SharedMap::new(data.fd().as_fd(), elements as usize, element_len);
    Ok(shared.map_err(MapError::IoError)?)
}

fn is_absent(error: &MapError) -> bool {
    match error {
        MapError::SyscallError(error) => error.io_error.raw_os_error() == Some(libc::ENOENT),
        _ => false,
    }
}
