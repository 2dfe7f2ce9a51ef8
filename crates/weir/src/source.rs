//! Where the packets of captures and meters come from: a packet socket beside the host's stack, or
//! AF_XDP in its place.

use std::io;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use clap::ValueEnum;
use weir_port::{
    FrameFilter, KernelFilter, ListenOptions, PacketListener, Port, PortCounters, RETIRE_AFTER_MS,
    XdpOptions, XdpPort, wait,
};
use weir_store::clock;
use weir_wire::frame::Frame;

use crate::daemon::control::lock::gateway_on;

/// The longest wait for a packet, so that signals and times are seen.
pub const WAIT: Duration = Duration::from_millis(100);
/// The same, while the last block is awaited.
const LAST_WAIT: Duration = Duration::from_millis(5);
/// A wake-up costs whoever hands packets over more than the packet, and one that sleeps may wake up
/// on a processor that is taken, milliseconds late: while packets come, look again at once, and a
/// while longer by the clock.
const DENSE: Duration = Duration::from_micros(100);
const NAP: Duration = Duration::from_micros(50);
const BUSY: Duration = Duration::from_millis(10);
/// AF_XDP cycles through all of its memory, and is the faster the less of it there is; but a reader
/// may be kept from a processor for tens of milliseconds.
const XDP_RING: u64 = 256 << 20;

/// How packets are taken off an interface.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Driver {
    /// A packet socket: the host gets its packets as before
    #[default]
    Packet,
    /// AF_XDP: more packets, which the host no longer gets. For mirror and SPAN ports
    Xdp,
}

/// What is listened to, and how.
#[derive(Clone, Debug)]
pub struct Listening<'a> {
    /// The interface, in the calling thread's network namespace.
    pub interface: &'a str,
    /// How packets are taken.
    pub driver: Driver,
    /// pcap-filter(7).
    pub expression: Option<&'a str>,
    /// Bytes kept of each packet where the kernel can cut it; it may be longer all the same.
    pub snap_bytes: Option<u32>,
    /// Nothing but RDMA is wanted: a filter that the kernel may apply, where there is no other.
    pub only_rdma: bool,
    /// Take what is for other stations too.
    pub promiscuous: bool,
    /// Memory for the ring; absent: what suits the driver.
    pub ring_bytes: Option<u64>,
}

/// An interface that is listened to.
pub enum Source {
    /// Beside the host's stack.
    Packet(Box<PacketListener>),
    /// In its place.
    Xdp {
        /// The interface's queues.
        port: Box<XdpPort>,
        /// What is passed over.
        filter: Option<FrameFilter>,
        /// When something last came.
        last: Instant,
    },
}

impl Source {
    /// Listens from this moment on; `packet_ring` is a packet socket's memory where none is asked
    /// for.
    ///
    /// # Errors
    /// No such interface, no privilege, no memory, or the expression is wrong.
    pub fn open(listening: &Listening<'_>, packet_ring: u64) -> Result<Self> {
        let Listening { interface, promiscuous, .. } = *listening;
        if listening.driver == Driver::Packet {
            let filter = listening.kernel_filter()?;
            let ring_bytes = listening.ring_bytes.unwrap_or(packet_ring) as usize;
            let options = ListenOptions { ring_bytes, promiscuous, filter };
            return Ok(Self::Packet(Box::new(PacketListener::open(interface, &options)?)));
        }
        if let Some(process) = gateway_on(interface) {
            bail!(
                "{interface} belongs to a gateway that runs (process {process}), which would get \
                 no packets of it any more: capture there without --driver xdp"
            );
        }
        let options = XdpOptions {
            promiscuous,
            receive_bytes: listening.ring_bytes.unwrap_or(XDP_RING) as usize,
            transmit_bytes: 0,
            ..XdpOptions::default()
        };
        let filter = listening.expression.map(FrameFilter::compile).transpose()?;
        let port = Box::new(XdpPort::open(interface, &options)?);
        Ok(Self::Xdp { port, filter, last: clock::now() })
    }

    /// Passes the packets that wait, at most a batch, to `handle`; how many were there, those
    /// included that the filter passes over.
    ///
    /// # Errors
    /// The interface is of no use any more.
    pub fn receive(&mut self, handle: &mut dyn FnMut(&mut [Frame<'_>])) -> io::Result<usize> {
        match self {
            Self::Packet(listener) => Ok(listener.receive(handle)),
            Self::Xdp { port, filter, last } => {
                let count = port.receive(&mut |frames| match filter {
                    None => handle(frames),
                    Some(filter) => {
                        let takes = |it: &Frame<'_>| filter.takes(it.bytes(), it.meta.original_len);
                        for frame in frames.iter_mut().filter(|it| takes(it)) {
                            handle(std::slice::from_mut(frame));
                        }
                    }
                })?;
                if count > 0 {
                    *last = clock::now();
                }
                Ok(count)
            }
        }
    }

    /// Waits for packets, [`WAIT`] at most; what the interface has to complain of.
    ///
    /// # Errors
    /// The kernel refuses to wait.
    pub fn wait(&mut self) -> Result<Option<io::Error>> {
        let fd = match self {
            Self::Packet(listener) => listener.poll_fd(),
            Self::Xdp { last, .. } if last.elapsed() < DENSE => {
                std::hint::spin_loop();
                return Ok(None);
            }
            Self::Xdp { last, .. } if last.elapsed() < BUSY => {
                std::thread::sleep(NAP);
                return Ok(None);
            }
            Self::Xdp { port, .. } => port.poll_fd().context("an AF_XDP socket can be polled")?,
        };
        if !wait(&[fd], WAIT).context("cannot wait for packets")? {
            return Ok(None);
        }
        Ok(match self {
            Self::Packet(listener) => listener.take_error(),
            Self::Xdp { port, .. } => port.take_error(),
        })
    }

    /// Lets nothing more in, so that no fast sender keeps us for ever; until when to ask for what
    /// the kernel still holds.
    ///
    /// # Errors
    /// The kernel refuses, which it has no reason to.
    pub fn close(&mut self) -> io::Result<Instant> {
        match self {
            Self::Packet(listener) => {
                listener.stop_receiving()?;
                // The kernel hands its last block over when its timer runs out.
                Ok(clock::now() + 2 * Duration::from_millis(RETIRE_AFTER_MS.into()))
            }
            Self::Xdp { port, .. } => {
                port.stop_receiving();
                Ok(clock::now())
            }
        }
    }

    /// Waits a little for the last block.
    pub fn wait_for_last(&self) {
        if let Self::Packet(listener) = self {
            let _ = wait(&[listener.poll_fd()], LAST_WAIT);
        }
    }

    /// Totals, read from the kernel where they live there.
    pub fn counters(&mut self) -> PortCounters {
        match self {
            Self::Packet(listener) => listener.counters(),
            Self::Xdp { port, .. } => port.counters(),
        }
    }
}

impl Listening<'_> {
    /// What the kernel is to pass over, if anything. It cuts only what need not be looked at whole.
    fn kernel_filter(&self) -> Result<Option<KernelFilter>> {
        let filter = match self.expression {
            Some(expression) => KernelFilter::compile(self.interface, expression)?,
            None if self.only_rdma => KernelFilter::rdma(),
            None if self.snap_bytes.is_none() => return Ok(None),
            None => KernelFilter::everything(),
        };
        Ok(Some(match self.snap_bytes {
            Some(bytes) if !self.only_rdma => filter.with_snap_len(bytes),
            _ => filter,
        }))
    }
}
