//! Frames in and out of the gateway. The only system calls and the only unsafe code of the data
//! path live here.

pub mod port;

pub mod afxdp;
pub mod packet;
pub mod tap;

pub mod guard;

pub mod capture;
pub mod memory;

pub mod layer;

pub mod interface;

mod netlink;
mod room;
mod sys;
mod vnet;

pub use afxdp::{Selection, XdpAttach, XdpOpenError, XdpOptions, XdpPort};
pub use capture::{CaptureError, CaptureFormat, CapturePort, CaptureReader, CaptureWriter};
pub use guard::{Guard, GuardCounters, GuardError, GuardMode};
pub use interface::{Interface, LinkCounters};
pub use memory::MemoryPort;
pub use packet::{OpenError, PacketOptions, PacketPort};
pub use port::{BATCH, Outgoing, Port, PortCounters, Transmitted};
pub use sys::poll::wait;
pub use tap::{TapOptions, TapPort};

/// The mark (`SO_MARK`, skb->mark) of frames that the gateway itself sends through a queueing
/// discipline; the guard lets these pass and nothing else. "Weir" in ASCII.
pub const GUARD_MARK: u32 = 0x5765_6972;
