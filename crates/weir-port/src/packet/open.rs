//! Opening an AF_PACKET port: options, and the order in which the kernel wants them.

use std::io;

use zerocopy::{Immutable, IntoBytes};

use super::{KernelFilter, PacketPort, SUPER_PACKET_LEN_MAX, SUPER_PACKETS};
use crate::interface::{Interface, LinkCounters};
use crate::netlink::Netlink;
use crate::port::PortCounters;
use crate::room::{HEADROOM, TAILROOM};
use crate::sys::receive_ring::{Geometry, ReceiveRing};
use crate::sys::send::SendBatch;
use crate::sys::socket::Socket;

pub(super) const SOL_PACKET: i32 = 263;
const PACKET_ADD_MEMBERSHIP: i32 = 1;
const PACKET_COPY_THRESH: i32 = 7;
pub(super) const PACKET_VERSION: i32 = 10;
const PACKET_RESERVE: i32 = 12;
const PACKET_VNET_HDR: i32 = 15;
const PACKET_FANOUT: i32 = 18;
const PACKET_QDISC_BYPASS: i32 = 20;
pub(super) const PACKET_FANOUT_DATA: i32 = 22;
pub(super) const PACKET_IGNORE_OUTGOING: i32 = 23;
/// Else the group receives what its own members send, whatever they say themselves (Linux 5.16).
const FANOUT_IGNORE_OUTGOING: u32 = 0x4000;
const MEMBERSHIP_PROMISCUOUS: u16 = 1;
const RING_VERSION_2: i32 = 1;
pub(super) const ALL_PROTOCOLS: u16 = libc::ETH_P_ALL as u16;

/// What the kernel puts before a frame in a slot besides the reserve: slot header, address, room
/// to align the network header, virtio header.
const SLOT_OVERHEAD: usize = 96;
const ETHERNET_LEN: usize = 14;
const VLAN_TAG_LEN: usize = 4;

/// How an interface is opened. The defaults suit a gateway port.
#[derive(Clone, Debug)]
pub struct PacketOptions {
    /// Slots of the receive ring. 2048 hold 10 ms of 200,000 frames a second, at MTU 9000 in
    /// 19 MiB; fewer save memory where bursts are short.
    pub ring_slots: usize,
    /// Longest frame that the ring holds in place, without its VLAN tag; `None`: by the MTU.
    /// Longer ones, super-packets above all, cost one more copy.
    pub slot_frame_len: Option<usize>,
    /// Bytes of super-packets that may wait in the socket's queue (kernel memory).
    pub queue_bytes: usize,
    /// Send past the device's queueing discipline: faster, and invisible to the host's own tcpdump
    /// and to tc egress. Super-packets are always queued: the direct way drops what the device
    /// cannot cut itself (`__dev_direct_xmit` in the kernel).
    pub qdisc_bypass: bool,
    /// The mark (skb->mark) of frames that are sent past the queueing discipline.
    pub mark: Option<u32>,
    /// The mark of those that are sent through it: [`crate::GUARD_MARK`], by which guards let them
    /// pass, unless another is wanted, or none.
    pub queued_mark: Option<u32>,
    /// Receive frames for every address.
    pub promiscuous: bool,
    /// Share the interface with other ports, one a worker.
    pub fanout: Option<Fanout>,
    /// Receive what this machine sends through the interface too, as a capture wants it.
    pub outgoing: bool,
    /// Receive only what it takes, and no more of each frame than it says.
    pub filter: Option<KernelFilter>,
    /// Hand over frames that are cut short, by the filter's length or for want of room, and frames
    /// with metadata that contradict them: good to look at, not to forward.
    pub accept_cut: bool,
    /// Times a frame is offered to a full queue before it is dropped and counted.
    pub send_attempts: u32,
}

impl Default for PacketOptions {
    fn default() -> Self {
        Self {
            ring_slots: 2048,
            slot_frame_len: None,
            queue_bytes: 32 << 20,
            qdisc_bypass: true,
            mark: None,
            queued_mark: Some(crate::GUARD_MARK),
            promiscuous: true,
            fanout: None,
            outgoing: false,
            filter: None,
            accept_cut: false,
            send_attempts: 4,
        }
    }
}

/// A group of ports that share one interface's frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fanout {
    /// The group's number, unique in its network namespace.
    pub group: u16,
    /// Who gets which frame.
    pub mode: FanoutMode,
}

/// How frames are shared out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FanoutMode {
    /// By the flow's hash: a flow stays with one port.
    Hash,
    /// By the processor that received it.
    Cpu,
    /// By a program, which the first member brings ([`PacketPort::steer_by`]); the number that it
    /// returns is that of the port in the order of joining. Until then the first port gets all.
    Program,
}

/// Why a port cannot be opened.
#[derive(Debug, thiserror::Error)]
#[error("{interface}: cannot {action}: {source}{}", remedy(source))]
pub struct OpenError {
    /// The interface as named by the caller.
    pub interface: String,
    /// What was being done.
    pub action: &'static str,
    /// The system's reason.
    pub source: io::Error,
}

fn remedy(error: &io::Error) -> &'static str {
    match error.raw_os_error() {
        Some(libc::EPERM | libc::EACCES) => "; run as root or with CAP_NET_RAW and CAP_NET_ADMIN",
        Some(libc::ENODEV | libc::ENXIO) => "; `ip link` lists the interfaces there are",
        Some(libc::ENOMEM | libc::ENOBUFS) => "; ask for fewer ring slots",
        _ => "",
    }
}

/// `struct packet_mreq`.
#[repr(C)]
#[derive(IntoBytes, Immutable)]
struct Membership {
    interface_index: i32,
    kind: u16,
    address_len: u16,
    address: [u8; 8],
}

/// Names the step of an opening that failed.
pub(crate) struct Opening<'a>(pub(crate) &'a str);

impl Opening<'_> {
    pub(crate) fn step<T>(
        &self,
        action: &'static str,
        result: io::Result<T>,
    ) -> Result<T, OpenError> {
        result.map_err(|source| OpenError { interface: self.0.to_owned(), action, source })
    }
}

impl PacketPort {
    /// Opens `interface` in the calling thread's network namespace. Frames are taken from this
    /// moment on.
    ///
    /// # Errors
    /// [`OpenError`]: no such interface, no privilege, no memory for the ring.
    pub fn open(interface: &str, options: PacketOptions) -> Result<Self, OpenError> {
        let opening = Opening(interface);
        let known = opening.step("find it", Interface::find(interface))?;
        let index = opening.step("read its number", known.index())?;
        let mtu = opening.step("read its MTU", known.mtu())?;

        let receiver = opening.step("open a packet socket", packet_socket())?;
        let frame_len = options.slot_frame_len.unwrap_or(mtu as usize + ETHERNET_LEN);
        let slot_len = SLOT_OVERHEAD + HEADROOM + VLAN_TAG_LEN + frame_len + TAILROOM;
        let geometry = Geometry::new(slot_len, options.ring_slots);
        opening.step("set up its receiver", prepare_receiver(&receiver, &options))?;
        let ring =
            opening.step("map its receive ring", ReceiveRing::create(&receiver, geometry))?;

        let sender = |bypass| -> Result<Socket, OpenError> {
            let socket = opening.step("open a packet socket", packet_socket())?;
            let mark = if bypass { options.mark } else { options.queued_mark };
            opening.step("set up its sender", prepare_sender(&socket, bypass, mark, index))?;
            Ok(socket)
        };
        let (direct, queued) = (sender(options.qdisc_bypass)?, sender(false)?);
        let mut netlink = opening.step("open a netlink socket", Netlink::open())?;
        let at_open = opening.step("read its counters", LinkCounters::read(&mut netlink, index))?;

        // From here frames arrive.
        opening.step("bind to it", receiver.bind_link(index, ALL_PROTOCOLS))?;
        if let Some(fanout) = options.fanout {
            let mode: u32 = match fanout.mode {
                FanoutMode::Hash => 0,
                FanoutMode::Cpu => 2,
                FanoutMode::Program => 7,
            };
            let flags = if options.outgoing { 0 } else { FANOUT_IGNORE_OUTGOING };
            let group = u32::from(fanout.group) | (mode | flags) << 16;
            opening
                .step("join its fanout group", receiver.set(SOL_PACKET, PACKET_FANOUT, &group))?;
        }
        if options.promiscuous {
            let set = hear_all_addresses(&receiver, index);
            opening.step("receive for all addresses", set)?;
        }
        let buffer_len = HEADROOM + SUPER_PACKET_LEN_MAX + TAILROOM;
        Ok(Self {
            name: interface.to_owned(),
            index,
            receiver,
            ring,
            // Zeroed memory costs nothing until a super-packet touches it.
            super_packets: (0..SUPER_PACKETS)
                .map(|_| vec![0; buffer_len].into_boxed_slice())
                .collect(),
            direct,
            queued,
            is_all_queued: false,
            batch: SendBatch::default(),
            joins: true,
            netlink,
            at_open,
            counters: PortCounters::default(),
            accept_cut: options.accept_cut,
            send_attempts: options.send_attempts,
        })
    }
}

/// A packet socket that receives nothing until it is bound to a protocol.
pub(super) fn packet_socket() -> io::Result<Socket> {
    Socket::open(libc::AF_PACKET, libc::SOCK_RAW, 0)
}

/// Makes the interface promiscuous for as long as the socket lives.
pub(crate) fn hear_all_addresses(socket: &Socket, interface_index: i32) -> io::Result<()> {
    let kind = MEMBERSHIP_PROMISCUOUS;
    let membership = Membership { interface_index, kind, address_len: 0, address: [0; 8] };
    socket.set(SOL_PACKET, PACKET_ADD_MEMBERSHIP, &membership)
}

fn prepare_receiver(socket: &Socket, options: &PacketOptions) -> io::Result<()> {
    socket.set(SOL_PACKET, PACKET_VERSION, &RING_VERSION_2)?;
    socket.set(SOL_PACKET, PACKET_VNET_HDR, &1i32)?;
    socket.set(SOL_PACKET, PACKET_RESERVE, &(HEADROOM as u32))?;
    socket.set(SOL_PACKET, PACKET_COPY_THRESH, &1i32)?;
    socket.set(SOL_PACKET, PACKET_IGNORE_OUTGOING, &i32::from(!options.outgoing))?;
    if let Some(filter) = &options.filter {
        filter.attach(socket)?;
    }
    // The kernel doubles the value.
    socket.set(libc::SOL_SOCKET, libc::SO_RCVBUFFORCE, &((options.queue_bytes / 2) as i32))
}

fn prepare_sender(
    socket: &Socket,
    qdisc_bypass: bool,
    mark: Option<u32>,
    index: i32,
) -> io::Result<()> {
    /// Enough for a batch of super-packets, which are charged until the device has sent them.
    const SEND_BUFFER_LEN: i32 = 16 << 20;
    socket.set(SOL_PACKET, PACKET_VNET_HDR, &1i32)?;
    socket.set(libc::SOL_SOCKET, libc::SO_SNDBUFFORCE, &SEND_BUFFER_LEN)?;
    if qdisc_bypass {
        socket.set(SOL_PACKET, PACKET_QDISC_BYPASS, &1i32)?;
    }
    if let Some(mark) = mark {
        socket.set(libc::SOL_SOCKET, libc::SO_MARK, &mark)?;
    }
    socket.bind_link(index, 0)
}
