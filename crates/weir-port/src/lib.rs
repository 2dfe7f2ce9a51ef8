//! Frames in and out of the gateway. The only system calls and the only unsafe code of the data
//! path live here, in `sys/` and `afxdp/`. A port never decides what becomes of a frame, never
//! allocates a frame's memory on the way, and counts what it or the kernel loses.
//!
//! ```text
//!             PacketPort  TapPort  XdpPort  CapturePort  MemoryPort
//!   receive:  kernel or file memory --> [Frame; at most 64] --> the caller's closure
//!   transmit: pieces of the caller's memory (IoSlice) --> kernel, in one call
//!             Tracer<P>, FaultInjector<P>, Recorder<P>: a port over a port
//!   Guard:    kernel programs that keep the ports shut when no gateway runs
//!   KernelMirrors: copies of all of a host's frames that the kernel makes
//!   FastPath: flows that the kernel carries and counts, for as long as the gateway lives
//! ```
//!
//! Which port for what (veth, MTU 9000): [`PacketPort`] for
//! gateway ports, since it changes frames in place and carries super-packets whole; [`TapPort`] for
//! the gateway's own kernel; [`XdpPort`] where the kernel must not see the frames at all.
//!
//! ```no_run
//! use weir_port::{PacketOptions, PacketPort, Port};
//! let mut port = PacketPort::open("pf0hpf", PacketOptions::default())?;
//! let waiting = port.receive(&mut |frames| println!("{} frames", frames.len()))?;
//! println!("{waiting} received, {:?}", port.counters());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

pub mod port;

pub mod afxdp;
pub mod packet;
pub mod tap;
pub mod tun;

pub mod fastpath;
pub mod gate;
pub mod guard;
pub mod mirror;
pub mod rule;
pub mod steering;

pub mod capture;
pub mod memory;

pub mod layer;

pub mod interface;
pub mod link_events;
pub mod vm_generation;

pub mod stream;

pub mod xfrm_interface;

mod netlink;
mod room;
mod sys;
mod vnet;

pub use afxdp::{QUEUES_MAX, Selection, XdpAttach, XdpOpenError, XdpOptions, XdpPort};
pub use capture::{CaptureError, CaptureFormat, CapturePort, CaptureReader, CaptureWriter};
pub use fastpath::{FastPath, FastPathOptions};
pub use gate::{Gate, GateCount, GateDrops, GateFlood, GatePrefix, GateTerms};
pub use guard::nic::{NicAssociation, NicPackets};
pub use guard::{EspPackets, Guard, GuardCounters, GuardError, GuardMode, IvPrefix, Shutter};
pub use interface::{DeviceLosses, DeviceLost, Interface, LinkCounters};
pub use link_events::LinkEvents;
pub use memory::MemoryPort;
pub use mirror::{CloneCounters, KernelMirror, KernelMirrors, Outer, OuterHeaders, RunningMirror};
pub use packet::{
    Fanout, FanoutMode, FilterError, FrameFilter, KernelFilter, ListenOptions, OpenError,
    PacketListener, PacketOptions, PacketPort, RETIRE_AFTER_MS,
};
pub use port::{BATCH, Outgoing, Port, PortCounters, Transmitted};
pub use rule::{KernelRule, Placement};
pub use steering::{FlowWorkers, SteeredSide, Steering, SteeringError, SteeringOptions};
pub use sys::poll::wait;
pub use tap::{TapOptions, TapPort, restore as restore_tap};
pub use tun::TunDevice;
pub use vm_generation::VmGeneration;
pub use xfrm_interface::{Hop, XfrmInterface};

/// The mark (`SO_MARK`, skb->mark) of frames that the gateway itself sends through a queueing
/// discipline; the guard lets these pass and nothing else. "Weir" in ASCII.
pub const GUARD_MARK: u32 = 0x5765_6972;
