//! TAP port: the gateway's own kernel at the other end. Punted packets go there, what it sends
//! comes from there; super-packets stay whole both ways.
//!
//! A TAP lives as long as its port: when the process dies the interface goes, and whatever a kernel
//! program still redirects to it is dropped.

use std::fs::File;
use std::io::{self, Read};
use std::net::IpAddr;
use std::os::fd::{AsRawFd, RawFd};

use arrayvec::ArrayVec;
use weir_wire::frame::{Frame, Meta, Time};
use zerocopy::FromBytes;

use crate::interface::{Interface, LinkCounters};
use crate::netlink::{FLAG_CREATE_NEW, FLAG_CREATE_REPLACE, Netlink, RTM_NEWADDR, push_attribute};
use crate::packet::{OpenError, Opening};
use crate::port::{BATCH, Outgoing, Port, PortCounters, Transmitted};
use crate::room::{HEADROOM, TAILROOM};
use crate::sys::{clock, send, tun};
use crate::vnet::{VNET_HEADER_LEN, VnetHeader};

/// 64 KiB of IP and its Ethernet header with two tags.
const FRAME_LEN_MAX: usize = 65_536 + 22;
/// A batch ends when it holds this much: what it fills stays in a second-level cache.
const BATCH_BYTES: usize = 1 << 20;

/// What a TAP is to be.
#[derive(Clone, Debug)]
pub struct TapOptions {
    /// Largest network-layer packet.
    pub mtu: u32,
    /// Its address; `None`: the kernel makes one up.
    pub mac: Option<[u8; 6]>,
    /// Addresses and prefix lengths of the kernel's end.
    pub addresses: Vec<(IpAddr, u8)>,
    /// Frames that the kernel may queue towards us. The kernel's default of 1000 loses RoCE bursts.
    pub queue_frames: u32,
    /// Whether the kernel may speak IPv6 by itself.
    pub quiet_ipv6: bool,
}

impl Default for TapOptions {
    fn default() -> Self {
        Self { mtu: 1500, mac: None, addresses: Vec::new(), queue_frames: 10_000, quiet_ipv6: true }
    }
}

/// A TAP made by us.
#[derive(Debug)]
pub struct TapPort {
    name: String,
    index: i32,
    file: File,
    buffers: Vec<Box<[u8]>>,
    netlink: Netlink,
    at_open: LinkCounters,
    counters: PortCounters,
}

impl TapPort {
    /// Creates TAP `name` (`%d` is replaced by a number) in the calling thread's network namespace
    /// and switches it on.
    ///
    /// # Errors
    /// [`OpenError`]: no `/dev/net/tun`, no privilege, name taken, address refused.
    pub fn open(name: &str, options: &TapOptions) -> Result<Self, OpenError> {
        let opening = Opening(name);
        let (file, name) =
            opening.step("create the TAP", tun::create(name, VNET_HEADER_LEN as i32))?;
        let interface = opening.step("find it", Interface::find(&name))?;
        let index = opening.step("read its number", interface.index())?;
        if let Some(mac) = options.mac {
            opening.step("set its MAC address", interface.set_mac(mac))?;
        }
        opening.step("set its MTU", interface.set_mtu(options.mtu))?;
        let queue = interface.set_transmit_queue_len(options.queue_frames);
        opening.step("set its queue length", queue)?;
        if options.quiet_ipv6 && !options.addresses.iter().any(|(address, _)| address.is_ipv6()) {
            opening.step("switch its IPv6 off", interface.quiet_ipv6())?;
        }
        let mut netlink = opening.step("open a netlink socket", Netlink::open())?;
        opening.step("switch it on", interface.set_up())?;
        for (address, prefix_len) in &options.addresses {
            let added =
                add_address(&mut netlink, index, *address, *prefix_len, FLAG_CREATE_REPLACE);
            opening.step("give it its address", added)?;
        }
        let at_open = opening.step("read its counters", LinkCounters::read(&mut netlink, index))?;
        let buffer_len = HEADROOM + FRAME_LEN_MAX + TAILROOM;
        // Zeroed memory costs nothing until a frame touches it.
        let buffers = (0..BATCH).map(|_| vec![0; buffer_len].into_boxed_slice()).collect();
        let counters = PortCounters::default();
        Ok(Self { name, index, file, buffers, netlink, at_open, counters })
    }
}

impl Port for TapPort {
    fn name(&self) -> &str {
        &self.name
    }

    fn receive(&mut self, handle: &mut dyn FnMut(&mut [Frame<'_>])) -> io::Result<usize> {
        let Self { file, buffers, counters, .. } = self;
        let mut frames = ArrayVec::<Frame<'_>, BATCH>::new();
        let mut bytes = 0;
        let time = clock::time();
        for buffer in buffers.iter_mut() {
            let room = buffer.len() - TAILROOM;
            let count = match file.read(&mut buffer[HEADROOM - VNET_HEADER_LEN..room]) {
                Ok(count) => count,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => break,
                Err(error) if frames.is_empty() => return Err(error),
                Err(_) => break,
            };
            let Some(frame) = frame_of(buffer, count, time) else {
                counters.lost_truncated += 1;
                continue;
            };
            bytes += frame.len();
            frames.push(frame);
            if bytes >= BATCH_BYTES {
                break;
            }
        }
        counters.received_frames += frames.len() as u64;
        counters.received_bytes += bytes as u64;
        if !frames.is_empty() {
            handle(&mut frames);
        }
        Ok(frames.len())
    }

    fn transmit(&mut self, frames: &[Outgoing<'_>]) -> Transmitted {
        let mut done = Transmitted::default();
        for frame in frames {
            match send::write_frame(self.file.as_raw_fd(), frame) {
                Ok(count) => {
                    done.sent += 1;
                    self.counters.sent_bytes += count.saturating_sub(VNET_HEADER_LEN) as u64;
                }
                Err(error) => {
                    done.dropped += 1;
                    match error.raw_os_error() {
                        Some(libc::EAGAIN | libc::ENOBUFS) => self.counters.send_queue_full += 1,
                        Some(libc::EMSGSIZE) => self.counters.send_too_large += 1,
                        _ => self.counters.send_refused += 1,
                    }
                }
            }
        }
        self.counters.sent_frames += done.sent;
        done
    }

    fn counters(&mut self) -> PortCounters {
        if let Ok(link) = LinkCounters::read(&mut self.netlink, self.index) {
            let since = link.since(&self.at_open);
            // What the kernel sends is what we receive: its transmit queue is our ring.
            self.counters.lost_ring_full = since.tx_dropped;
            self.counters.device_dropped = since.rx_lost();
        }
        self.counters
    }

    fn poll_fd(&self) -> Option<RawFd> {
        Some(self.file.as_raw_fd())
    }
}

fn frame_of(buffer: &mut [u8], count: usize, time: Time) -> Option<Frame<'_>> {
    let len = count.checked_sub(VNET_HEADER_LEN)?;
    let end = HEADROOM + len;
    let (header, packet) =
        VnetHeader::read_from_prefix(&buffer[HEADROOM - VNET_HEADER_LEN..end]).ok()?;
    let offload = header.to_offload(packet)?;
    let meta = Meta { time, original_len: len as u32, offload, ..Meta::default() };
    Some(Frame::new(buffer, HEADROOM, end, meta))
}

/// Switches a TAP on and gives it its addresses where somebody else took them away.
///
/// # Errors
/// It is gone, or the kernel refuses.
pub fn restore(name: &str, addresses: &[(IpAddr, u8)]) -> io::Result<()> {
    let interface = Interface::find(name)?;
    interface.set_up()?;
    let index = interface.index()?;
    let mut netlink = Netlink::open()?;
    for (address, prefix_len) in addresses {
        match add_address(&mut netlink, index, *address, *prefix_len, FLAG_CREATE_NEW) {
            Err(error) if error.raw_os_error() != Some(libc::EEXIST) => return Err(error),
            _ => {}
        }
    }
    Ok(())
}

/// Gives interface number `index` an address.
fn add_address(
    netlink: &mut Netlink,
    index: i32,
    address: IpAddr,
    prefix_len: u8,
    flags: u16,
) -> io::Result<()> {
    const IFA_ADDRESS: u16 = 1;
    const IFA_LOCAL: u16 = 2;
    /// No duplicate address detection: the address is needed at once, and is ours.
    const IFA_F_NODAD: u8 = 2;
    let (family, bytes) = match address {
        IpAddr::V4(address) => (libc::AF_INET, address.octets().to_vec()),
        IpAddr::V6(address) => (libc::AF_INET6, address.octets().to_vec()),
    };
    // struct ifaddrmsg: family, prefix length, flags, scope, index.
    let mut body = vec![family as u8, prefix_len, IFA_F_NODAD, 0];
    body.extend(index.to_ne_bytes());
    push_attribute(&mut body, IFA_LOCAL, &bytes);
    push_attribute(&mut body, IFA_ADDRESS, &bytes);
    netlink.request(RTM_NEWADDR, flags, &body).map(drop)
}
