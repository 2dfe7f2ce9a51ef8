//! The ioctls of a TAP and of a tunnel device (linux/if_tun.h).

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;

use super::interface_request::InterfaceRequest;

const TUNSETIFF: libc::c_ulong = 0x4004_54ca;
const TUNSETPERSIST: libc::c_ulong = 0x4004_54cb;
const TUNSETOWNER: libc::c_ulong = 0x4004_54cc;
const TUNSETOFFLOAD: libc::c_ulong = 0x4004_54d0;
const TUNSETVNETHDRSZ: libc::c_ulong = 0x4004_54d8;

const IFF_TUN: u16 = 0x0001;
const IFF_TAP: u16 = 0x0002;
const IFF_NO_PI: u16 = 0x1000;
const IFF_VNET_HDR: u16 = 0x4000;

/// Checksums, TCP over IPv4 and IPv6 with ECN.
const OFFLOAD_TCP: libc::c_ulong = 0x01 | 0x02 | 0x04 | 0x08;
/// UDP over IPv4 and IPv6 (Linux 6.2).
const OFFLOAD_UDP: libc::c_ulong = 0x20 | 0x40;

/// Creates TAP `name` (`%d` is replaced by a number), with virtio headers of `vnet_header_len`
/// bytes; returns it with its final name.
pub(crate) fn create(name: &str, vnet_header_len: i32) -> io::Result<(File, String)> {
    let file = open()?;
    let flags = IFF_TAP | IFF_NO_PI | IFF_VNET_HDR;
    let mut request = InterfaceRequest::new(name)?.with_u16(flags);
    request.run(file.as_raw_fd(), TUNSETIFF)?;
    // SAFETY: this request reads one int, which outlives the call.
    check(unsafe {
        libc::ioctl(file.as_raw_fd(), TUNSETVNETHDRSZ as _, &raw const vnet_header_len)
    })?;
    // A kernel without UDP segmentation refuses the whole set.
    set_offload(&file, OFFLOAD_TCP | OFFLOAD_UDP).or_else(|_| set_offload(&file, OFFLOAD_TCP))?;
    Ok((file, request.name().to_owned()))
}

/// Creates the tunnel device `name`, without headers before its packets, to stay when nobody has it
/// open; the user numbered `owner` may open it then.
pub(crate) fn create_persistent(name: &str, owner: u32) -> io::Result<()> {
    let file = open()?;
    let mut request = InterfaceRequest::new(name)?.with_u16(IFF_TUN | IFF_NO_PI);
    request.run(file.as_raw_fd(), TUNSETIFF)?;
    set(&file, TUNSETOWNER, owner.into())?;
    set(&file, TUNSETPERSIST, 1)
}

fn open() -> io::Result<File> {
    OpenOptions::new()
        .read(true)
        .write(true)
        .custom_flags(libc::O_NONBLOCK | libc::O_CLOEXEC)
        .open("/dev/net/tun")
}

fn set_offload(file: &File, offload: libc::c_ulong) -> io::Result<()> {
    set(file, TUNSETOFFLOAD, offload)
}

fn set(file: &File, request: libc::c_ulong, value: libc::c_ulong) -> io::Result<()> {
    // SAFETY: the requests that this is called with take their argument by value.
    check(unsafe { libc::ioctl(file.as_raw_fd(), request as _, value) })
}

fn check(result: i32) -> io::Result<()> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}
