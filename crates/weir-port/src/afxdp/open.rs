//! Opening an AF_XDP port: memory, rings and sockets of each queue, program.

use std::io;
use std::os::fd::RawFd;
use std::sync::Arc;
use std::time::Duration;

use aya::maps::XskMap;
use aya::programs::xdp::XdpLink;
use aya::programs::{ProgramError, Xdp, XdpMode};
use aya::{Ebpf, EbpfLoader};
use zerocopy::{Immutable, IntoBytes};

use super::queue::Queue;
use super::rings::{CompletionRing, FillRing, ReceiveRing, TransmitRing};
use super::socket::QueueSocket;
use super::umem::{CHUNK_LENS, Layout, Umem};
use super::{LINEAR_LEN, XdpPort};
use crate::gate::Gate;
use crate::guard::GuardError;
use crate::interface::{Interface, LinkCounters};
use crate::netlink::Netlink;
use crate::packet::hear_all_addresses;
use crate::port::{BATCH, PortCounters};
use crate::room::TAILROOM;
use crate::steering::{SteeredSide, Steering, SteeringError};
use crate::sys::any_readable::AnyReadable;
use crate::sys::clock;
use crate::sys::socket::Socket;

static OBJECT: &[u8] = aya::include_bytes_aligned!(concat!(env!("OUT_DIR"), "/redirect.bpf.o"));

const CHUNKS_MIN: usize = 64;
const CHUNKS_MAX: usize = 1 << 20;
const ETHERNET_LEN: usize = 14;
const VLANS_LEN: usize = 8;
/// What the kernel leaves before each received buffer by itself.
const KERNEL_HEADROOM: usize = 256;
/// Places for ports or Ethernet types in the kernel program.
const SELECTORS: usize = 4;
/// Receive queues of an interface, at most (bpf/redirect.bpf.c, bpf/steer.bpf.c).
pub const QUEUES_MAX: usize = 64;
/// How long a queue may stay busy: the kernel takes a socket off it a moment after it was closed.
const QUEUE_BUSY_MAX: Duration = Duration::from_secs(2);
/// Between two attempts.
const QUEUE_BUSY_PAUSE: Duration = Duration::from_millis(5);

/// How an interface is opened for kernel bypass.
#[derive(Clone, Debug)]
pub struct XdpOptions {
    /// Where in the kernel the program runs.
    pub attach: XdpAttach,
    /// Which frames bypass the kernel; the others go to its stack.
    pub selection: Selection,
    /// Hear frames for every address.
    pub promiscuous: bool,
    /// Memory to receive into, in equal parts for the interface's queues, used as far as powers of
    /// two of chunks go, 64 a queue at least. A chunk has 2 KiB where a frame of the interface's
    /// MTU fits, else 4.
    pub receive_bytes: usize,
    /// Memory to send from, likewise, all of it on one queue.
    pub transmit_bytes: usize,
}

impl Default for XdpOptions {
    fn default() -> Self {
        Self {
            attach: XdpAttach::Auto,
            selection: Selection::All,
            promiscuous: true,
            receive_bytes: 8 << 20,
            transmit_bytes: 8 << 20,
        }
    }
}

/// Where the program runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum XdpAttach {
    /// In the driver, or in the stack where the driver cannot.
    Auto,
    /// In the driver. On a veth this switches segmentation offload off for the peer.
    Native,
    /// In the stack, on the finished socket buffer.
    Generic,
}

/// Which frames are taken. At most four numbers a list; more are an error.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Selection {
    /// Every frame.
    All,
    /// Frames with one of these Ethernet types (untagged), or IP packets without options or
    /// extension headers in the way that go to one of these ports.
    Some {
        /// Ethernet types, such as 0x8915 for RoCE v1.
        ethertypes: Vec<u16>,
        /// UDP destination ports, such as 4791 for RoCE v2.
        udp_ports: Vec<u16>,
        /// TCP destination ports.
        tcp_ports: Vec<u16>,
    },
}

impl Selection {
    /// RoCE v1 and v2.
    pub fn rdma() -> Self {
        Selection::Some { ethertypes: vec![0x8915], udp_ports: vec![4791], tcp_ports: Vec::new() }
    }
}

/// Why a port cannot be opened for kernel bypass.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum XdpOpenError {
    /// A system call failed.
    #[error("{interface}: cannot {action}: {source}; AF_XDP needs root and Linux 6.6 or later")]
    System {
        /// The interface as named by the caller.
        interface: String,
        /// What was being done.
        action: &'static str,
        /// The system's reason.
        source: io::Error,
    },
    /// The kernel did not take the program.
    #[error(
        "{interface}: cannot attach the XDP program: {source}; another one may be there \
             (`ip link` shows it)"
    )]
    Program {
        /// The interface as named by the caller.
        interface: String,
        /// The kernel's reason.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The options contradict the format.
    #[error("{0}")]
    Options(String),
}

/// What holds an XDP program on an interface, which it leaves with this.
pub(super) enum Program {
    /// The port's own, or the gate's, which hands on to that.
    Own { _link: XdpLink, _object: Ebpf },
    /// The steering's, likewise.
    Steering { _link: XdpLink },
}

impl std::fmt::Debug for Program {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Program").finish_non_exhaustive()
    }
}

/// `struct xdp_umem_reg`.
#[repr(C)]
#[derive(IntoBytes, Immutable)]
struct UmemRegistration {
    address: u64,
    len: u64,
    chunk_len: u32,
    headroom: u32,
    flags: u32,
    metadata_len: u32,
}

/// `struct sockaddr_xdp`.
#[repr(C)]
#[derive(IntoBytes, Immutable)]
struct XdpAddress {
    family: u16,
    flags: u16,
    interface_index: u32,
    queue: u32,
    shared_umem_fd: u32,
}

impl XdpPort {
    /// Opens all queues of `interface` in the calling thread's network namespace and takes the
    /// selected frames from this moment on.
    ///
    /// # Errors
    /// [`XdpOpenError`].
    pub fn open(interface: &str, options: &XdpOptions) -> Result<Self, XdpOpenError> {
        Self::open_one(interface, options, None)
    }

    /// The same behind the gate, which drops frames from the `side` before they come here.
    ///
    /// # Errors
    /// [`XdpOpenError`].
    pub fn open_behind(
        interface: &str,
        options: &XdpOptions,
        gate: &mut Gate,
        side: SteeredSide,
    ) -> Result<Self, XdpOpenError> {
        Self::open_one(interface, options, Some((gate, side)))
    }

    fn open_one(
        interface: &str,
        options: &XdpOptions,
        gate: Option<(&mut Gate, SteeredSide)>,
    ) -> Result<Self, XdpOpenError> {
        let mut ports = open_queues(interface, options, 1)?;
        let mut port = ports.pop().expect("one was asked for");
        port.program = Some(load(interface, options, &port.sockets, gate)?);
        Ok(port)
    }

    /// Opens each queue of `interface` once for each of `workers`, and has `steering` share all
    /// frames of that `side` out among them from this moment on, by whichever queue they come. The
    /// memory in `options` is each worker's. Close them together: the program goes with the first.
    /// `gate`, if there is one, drops frames before that.
    ///
    /// # Errors
    /// [`XdpOpenError`].
    pub fn open_several(
        interface: &str,
        options: &XdpOptions,
        workers: usize,
        (steering, side): (&mut Steering, SteeredSide),
        gate: Option<&mut Gate>,
    ) -> Result<Vec<Self>, XdpOpenError> {
        let mut ports = open_queues(interface, options, workers)?;
        let by_worker = ports.iter().map(|port| port.sockets.iter().map(|it| &it.socket).collect());
        let sockets: Vec<Vec<&Socket>> = by_worker.collect();
        let refused = |source: SteeringError| XdpOpenError::Program {
            interface: interface.to_owned(),
            source: source.into(),
        };
        let program = steering.bypass(side, &sockets).map_err(refused)?;
        let attach = |program: &mut Xdp| attach(program, interface, options.attach);
        let link = match gate {
            Some(gate) => stand_before(gate, program, side, interface, attach)?,
            None => attach(program).map_err(|error| refused(error.into()))?,
        };
        let program = Program::Steering { _link: link };
        if let Some(first) = ports.first_mut() {
            first.program = Some(program);
        }
        Ok(ports)
    }
}

/// What a port's queues have in common.
struct Device<'a> {
    interface: &'a str,
    index: i32,
    chunk_len: usize,
    /// Chunks that one socket receives into.
    incoming: u32,
    /// Chunks that one worker sends from.
    outgoing: u32,
}

impl Device<'_> {
    fn step(&self, action: &'static str) -> impl Fn(io::Error) -> XdpOpenError + use<> {
        step(self.interface, action)
    }
}

fn step(interface: &str, action: &'static str) -> impl Fn(io::Error) -> XdpOpenError + use<> {
    let interface = interface.to_owned();
    move |source| XdpOpenError::System { interface: interface.clone(), action, source }
}

/// A port for each of so many workers, with a socket on each queue, into whose rings no program
/// redirects yet.
fn open_queues(
    interface: &str,
    options: &XdpOptions,
    workers: usize,
) -> Result<Vec<XdpPort>, XdpOpenError> {
    let step = |action: &'static str| step(interface, action);
    let known = Interface::find(interface).map_err(step("find it"))?;
    let index = known.index().map_err(step("read its number"))?;
    let (queues, sending) = queues(&known, interface)?;
    let chunk_len = chunk_len(known.mtu().map_err(step("read its MTU"))?);
    let share = |bytes: usize| 1u32 << (bytes / chunk_len).clamp(CHUNKS_MIN, CHUNKS_MAX).ilog2();
    let (incoming, outgoing) =
        (share(options.receive_bytes / queues), share(options.transmit_bytes));
    let device = Device { interface, index, chunk_len, incoming, outgoing };
    let mut sockets: Vec<Vec<QueueSocket>> = (0..workers).map(|_| Vec::new()).collect();
    for queue in 0..queues {
        let senders = (0..workers).filter(|worker| worker % sending == queue).collect();
        let of_queue = open_queue(&device, queue as u32, workers, senders)?;
        sockets.iter_mut().zip(of_queue).for_each(|(all, one)| all.push(one));
    }
    let mut netlink = Netlink::open().map_err(step("open a netlink socket"))?;
    let at_open = LinkCounters::read(&mut netlink, index).map_err(step("read its counters"))?;
    let port = |(number, sockets): (usize, Vec<QueueSocket>)| {
        let all = || sockets.iter().map(QueueSocket::fd);
        let readable = (queues > 1).then(|| AnyReadable::of(all())).transpose();
        let listening = if number == 0 { listen_to_all(index, options) } else { Ok(None) };
        Ok(XdpPort {
            name: interface.to_owned(),
            index,
            sender: number % sending,
            next: 0,
            readable: readable.map_err(step("watch its queues"))?,
            sockets,
            received: Vec::with_capacity(BATCH * super::BUFFERS_MAX),
            // Zeroed memory costs nothing until a packet of several buffers touches it.
            linear: (0..BATCH).map(|_| vec![0; LINEAR_LEN].into_boxed_slice()).collect(),
            netlink: Netlink::open().map_err(step("open a netlink socket"))?,
            at_open,
            program: None,
            _listening: listening.map_err(step("receive for all addresses"))?,
        })
    };
    sockets.into_iter().enumerate().map(port).collect()
}

/// A socket for each of so many workers on one queue, of which `senders` send by it.
fn open_queue(
    device: &Device<'_>,
    queue: u32,
    workers: usize,
    senders: Vec<usize>,
) -> Result<Vec<QueueSocket>, XdpOpenError> {
    let Device { index, chunk_len, incoming, outgoing, .. } = *device;
    let (all_incoming, all_outgoing) = (incoming * workers as u32, outgoing * senders.len() as u32);
    let layout = Layout { chunks: all_incoming + all_outgoing, chunk_len };
    let (umem, mut chunks) = Umem::create(layout).map_err(device.step("take memory for frames"))?;
    let xdp_socket = || {
        let opened = Socket::open(libc::AF_XDP, libc::SOCK_RAW, 0);
        opened.map_err(device.step("open an AF_XDP socket"))
    };
    let first = xdp_socket()?;
    register(&first, &umem).map_err(device.step("share its memory"))?;
    let ring_step = || device.step("make its rings");
    // Twice the chunks: the kernel shows what it received before it shows that it has taken the
    // chunks for it, and until then their places count as full (xsk_flush in net/xdp/xsk.c).
    let fill = FillRing::create(&first, (2 * all_incoming).next_power_of_two());
    let mut fill = fill.map_err(ring_step())?;
    let completed = all_outgoing.max(CHUNKS_MIN as u32).next_power_of_two();
    let completion = CompletionRing::create(&first, completed, layout).map_err(ring_step())?;
    fill.give(chunks.drain(..all_incoming as usize));
    let shares = (all_incoming as usize, outgoing as usize);
    let rings = (fill, completion);
    let common = Arc::new(Queue::new(umem, rings, shares, (workers, senders.clone())));

    let first_fd = first.fd();
    let mut first = Some(first);
    let mut sockets = Vec::new();
    for number in 0..workers {
        let socket = first.take().map_or_else(xdp_socket, Ok)?;
        let sends = senders.contains(&number);
        let to_send = if sends { outgoing } else { CHUNKS_MIN as u32 };
        let receive = ReceiveRing::create(&socket, incoming, layout).map_err(ring_step())?;
        let transmit = TransmitRing::create(&socket, to_send).map_err(ring_step())?;
        let address = address(index, queue, (number > 0).then_some(first_fd));
        bind(&socket, &address).map_err(device.step("bind to its queue"))?;
        let of_its_own = if sends { outgoing as usize } else { 0 };
        sockets.push(QueueSocket {
            number,
            returned: Vec::with_capacity(incoming as usize),
            free: chunks.drain(..of_its_own).collect(),
            scratch: Vec::new(),
            counters: PortCounters::default(),
            receive,
            transmit,
            socket,
            queue: Arc::clone(&common),
        });
    }
    Ok(sockets)
}

/// Takes the queue, also a moment after another socket has left it.
fn bind(socket: &Socket, address: &XdpAddress) -> io::Result<()> {
    let begun = clock::now();
    loop {
        match socket.bind_bytes(address.as_bytes()) {
            Err(error)
                if error.raw_os_error() == Some(libc::EBUSY)
                    && begun.elapsed() < QUEUE_BUSY_MAX =>
            {
                std::thread::sleep(QUEUE_BUSY_PAUSE);
            }
            bound => return bound,
        }
    }
}

/// A queue, to be had in copy mode; or the same as the socket of this descriptor has it.
fn address(index: i32, queue: u32, shared: Option<RawFd>) -> XdpAddress {
    let flags = match shared {
        None => libc::XDP_COPY | libc::XDP_USE_NEED_WAKEUP | libc::XDP_USE_SG,
        Some(_) => libc::XDP_SHARED_UMEM,
    };
    XdpAddress {
        family: libc::AF_XDP as u16,
        flags,
        interface_index: index as u32,
        queue,
        shared_umem_fd: shared.unwrap_or(0) as u32,
    }
}

/// The least that holds a frame of the MTU with the room around it.
fn chunk_len(mtu: u32) -> usize {
    let frame_len = ETHERNET_LEN + VLANS_LEN + mtu as usize;
    let [least, most] = CHUNK_LENS;
    if KERNEL_HEADROOM + frame_len + TAILROOM <= least { least } else { most }
}

/// How many queues an interface receives by, and by how many of them it also sends.
fn queues(known: &Interface, interface: &str) -> Result<(usize, usize), XdpOpenError> {
    // A device that knows no such numbers has one of each.
    let (receiving, sending) = known.queues().unwrap_or((1, 1));
    let receiving = receiving.max(1) as usize;
    if receiving > QUEUES_MAX {
        return Err(XdpOpenError::Options(format!(
            "{interface} has {receiving} receive queues, and driver xdp takes {QUEUES_MAX}: \
             `ethtool -L {interface} combined {QUEUES_MAX}`, or driver packet"
        )));
    }
    Ok((receiving, (sending.max(1) as usize).min(receiving)))
}

/// An AF_XDP socket cannot ask for promiscuity; a packet socket that receives nothing can.
fn listen_to_all(index: i32, options: &XdpOptions) -> io::Result<Option<Socket>> {
    if !options.promiscuous {
        return Ok(None);
    }
    let socket = Socket::open(libc::AF_PACKET, libc::SOCK_RAW, 0)?;
    hear_all_addresses(&socket, index)?;
    Ok(Some(socket))
}

fn register(socket: &Socket, umem: &Umem) -> io::Result<()> {
    let registration = UmemRegistration {
        address: umem.address(),
        len: umem.layout().len() as u64,
        chunk_len: umem.layout().chunk_len as u32,
        headroom: 0,
        flags: 0,
        metadata_len: 0,
    };
    socket.set(libc::SOL_XDP, libc::XDP_UMEM_REG, &registration)
}

/// Has the gate's program attached in the place of the port's own, to which it hands on.
fn stand_before(
    gate: &mut Gate,
    program: &Xdp,
    side: SteeredSide,
    interface: &str,
    attach: impl FnOnce(&mut Xdp) -> Result<XdpLink, ProgramError>,
) -> Result<XdpLink, XdpOpenError> {
    let next = program.fd().map_err(GuardError::GateXdp);
    let link = next.and_then(|next| gate.stand_before(next, side, attach));
    link.map_err(|source| XdpOpenError::Program {
        interface: interface.to_owned(),
        source: source.into(),
    })
}

/// Loads the program, puts the socket of each queue in its map and attaches it, or the gate's.
fn load(
    interface: &str,
    options: &XdpOptions,
    sockets: &[QueueSocket],
    gate: Option<(&mut Gate, SteeredSide)>,
) -> Result<Program, XdpOpenError> {
    let refused = |source: Box<dyn std::error::Error + Send + Sync>| XdpOpenError::Program {
        interface: interface.to_owned(),
        source,
    };
    let (take_all, ethertypes, udp_ports, tcp_ports) = match &options.selection {
        Selection::All => (1u32, [0; SELECTORS], [0; SELECTORS], [0; SELECTORS]),
        Selection::Some { ethertypes, udp_ports, tcp_ports } => {
            (0, selectors(ethertypes)?, selectors(udp_ports)?, selectors(tcp_ports)?)
        }
    };
    let mut object = EbpfLoader::new()
        .override_global("take_all", &take_all, true)
        .override_global("ethertypes", &ethertypes, true)
        .override_global("udp_ports", &udp_ports, true)
        .override_global("tcp_ports", &tcp_ports, true)
        .load(OBJECT)
        .map_err(|error| refused(error.into()))?;
    let own = own_program(&mut object, sockets).map_err(refused)?;
    let attach = |program: &mut Xdp| attach(program, interface, options.attach);
    let link = match gate {
        Some((gate, side)) => stand_before(gate, own, side, interface, attach)?,
        None => attach(own).map_err(|error| refused(error.into()))?,
    };
    Ok(Program::Own { _object: object, _link: link })
}

/// The port's own program, which knows the socket of each queue; not attached yet.
fn own_program<'o>(
    object: &'o mut Ebpf,
    sockets: &[QueueSocket],
) -> Result<&'o mut Xdp, Box<dyn std::error::Error + Send + Sync>> {
    let map = object.map_mut("sockets").ok_or("the object lacks its map")?;
    let mut places = XskMap::try_from(map)?;
    for (queue, socket) in (0..).zip(sockets) {
        places.set(queue, socket.fd(), 0)?;
    }
    let program = object.program_mut("weir_redirect").ok_or("the object lacks its program")?;
    let program: &mut Xdp = program.try_into()?;
    program.load()?;
    Ok(program)
}

fn attach(program: &mut Xdp, interface: &str, attach: XdpAttach) -> Result<XdpLink, ProgramError> {
    let native = XdpMode::Driver;
    let id = match attach {
        XdpAttach::Native => program.attach(interface, native),
        XdpAttach::Generic => program.attach(interface, XdpMode::Skb),
        XdpAttach::Auto => {
            program.attach(interface, native).or_else(|_| program.attach(interface, XdpMode::Skb))
        }
    };
    program.take_link(id?)
}

fn selectors(numbers: &[u16]) -> Result<[u16; SELECTORS], XdpOpenError> {
    let mut list = [0; SELECTORS];
    let places = list.get_mut(..numbers.len()).ok_or_else(|| {
        let what = format!("{} selectors in one list, {SELECTORS} are possible", numbers.len());
        XdpOpenError::Options(what)
    })?;
    places.copy_from_slice(numbers);
    Ok(list)
}
