//! A socket with typed options.

use std::io;
use std::mem::size_of;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};

use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes};

/// An owned socket, closed on exec.
#[derive(Debug)]
pub(crate) struct Socket(OwnedFd);

/// `struct sockaddr_ll` (linux/if_packet.h).
#[repr(C)]
#[derive(IntoBytes, Immutable, FromBytes)]
struct LinkLayerAddress {
    family: u16,
    protocol_be: u16,
    interface_index: i32,
    hardware_type: u16,
    packet_type: u8,
    address_len: u8,
    address: [u8; 8],
}

/// `struct sockaddr_nl` (linux/netlink.h).
#[repr(C)]
#[derive(IntoBytes, Immutable)]
struct NetlinkAddress {
    family: u16,
    padding: u16,
    port: u32,
    groups: u32,
}

/// `struct sock_filter` (linux/filter.h): one instruction of classic BPF.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FilterInstruction {
    pub(crate) code: u16,
    /// Instructions to skip when the comparison holds.
    pub(crate) yes: u8,
    /// Instructions to skip when it does not.
    pub(crate) no: u8,
    pub(crate) value: u32,
}

const _: () = assert!(size_of::<FilterInstruction>() == size_of::<libc::sock_filter>());

impl Socket {
    pub(crate) fn open(domain: i32, kind: i32, protocol: i32) -> io::Result<Self> {
        // SAFETY: socket(2) takes three numbers and touches no memory of ours.
        let fd = unsafe { libc::socket(domain, kind | libc::SOCK_CLOEXEC, protocol) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the kernel has just given us this descriptor; nobody else owns it.
        Ok(Self(unsafe { OwnedFd::from_raw_fd(fd) }))
    }

    pub(crate) fn fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }

    /// setsockopt(2) with the value's own size.
    pub(crate) fn set(
        &self,
        level: i32,
        name: i32,
        value: &(impl IntoBytes + Immutable),
    ) -> io::Result<()> {
        let bytes = value.as_bytes();
        // SAFETY: pointer and length describe `bytes`, which the kernel only reads.
        let result = unsafe {
            libc::setsockopt(
                self.fd(),
                level,
                name,
                bytes.as_ptr().cast(),
                bytes.len() as libc::socklen_t,
            )
        };
        if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }

    /// getsockopt(2) of a value of known size; a shorter answer leaves zeros behind it.
    pub(crate) fn option<T: FromBytes + IntoBytes>(&self, level: i32, name: i32) -> io::Result<T> {
        let mut value = T::new_zeroed();
        let mut len = size_of::<T>() as libc::socklen_t;
        // SAFETY: pointer and length describe `value`, whose type takes any bytes.
        let result = unsafe {
            libc::getsockopt(
                self.fd(),
                level,
                name,
                value.as_mut_bytes().as_mut_ptr().cast(),
                &mut len,
            )
        };
        if result < 0 { Err(io::Error::last_os_error()) } else { Ok(value) }
    }

    /// Lets the socket take only what `program` accepts, in place of an earlier program.
    pub(crate) fn attach_filter(&self, program: &[FilterInstruction]) -> io::Result<()> {
        let too_long = |_| io::Error::from_raw_os_error(libc::E2BIG);
        let program = libc::sock_fprog {
            len: program.len().try_into().map_err(too_long)?,
            filter: program.as_ptr().cast_mut().cast(),
        };
        // SAFETY: the program's length and address describe the slice, which the kernel copies;
        // its instructions have the layout that the kernel expects.
        let result = unsafe {
            libc::setsockopt(
                self.fd(),
                libc::SOL_SOCKET,
                libc::SO_ATTACH_FILTER,
                (&raw const program).cast(),
                size_of::<libc::sock_fprog>() as libc::socklen_t,
            )
        };
        if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }

    /// bind(2) to a packet address; protocol 0 receives nothing.
    pub(crate) fn bind_link(&self, interface_index: i32, protocol: u16) -> io::Result<()> {
        let address = LinkLayerAddress {
            family: libc::AF_PACKET as u16,
            protocol_be: protocol.to_be(),
            interface_index,
            ..LinkLayerAddress::new_zeroed()
        };
        self.bind_bytes(address.as_bytes())
    }

    /// bind(2) of a netlink socket, which hears of these groups from then on.
    pub(crate) fn bind_netlink(&self, groups: u32) -> io::Result<()> {
        let family = libc::AF_NETLINK as u16;
        self.bind_bytes(NetlinkAddress { family, padding: 0, port: 0, groups }.as_bytes())
    }

    /// bind(2) to an address of any family, given as its C structure's bytes.
    pub(crate) fn bind_bytes(&self, address: &[u8]) -> io::Result<()> {
        // SAFETY: pointer and length describe `address`, which the kernel only reads.
        let result = unsafe {
            libc::bind(self.fd(), address.as_ptr().cast(), address.len() as libc::socklen_t)
        };
        if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }

    /// recv(2); with `MSG_TRUNC` the result may exceed the buffer.
    pub(crate) fn receive(&self, buffer: &mut [u8], flags: i32) -> io::Result<usize> {
        // SAFETY: pointer and length describe `buffer`, which is ours to write.
        let count =
            unsafe { libc::recv(self.fd(), buffer.as_mut_ptr().cast(), buffer.len(), flags) };
        usize::try_from(count).map_err(|_| io::Error::last_os_error())
    }

    /// Bytes sent that the kernel still holds (`SIOCOUTQ`).
    pub(crate) fn unsent_bytes(&self) -> io::Result<u64> {
        let mut bytes: libc::c_int = 0;
        // SAFETY: the kernel writes one int, which `bytes` is.
        let result = unsafe { libc::ioctl(self.fd(), libc::TIOCOUTQ, &raw mut bytes) };
        if result < 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(u64::try_from(bytes).unwrap_or(0))
    }

    /// What it has to complain of since it was last asked (`SO_ERROR`).
    pub(crate) fn take_error(&self) -> Option<io::Error> {
        let error = self.option::<i32>(libc::SOL_SOCKET, libc::SO_ERROR).ok()?;
        (error != 0).then(|| io::Error::from_raw_os_error(error))
    }

    /// send(2) of one message.
    pub(crate) fn send(&self, message: &[u8]) -> io::Result<usize> {
        // SAFETY: pointer and length describe `message`, which the kernel only reads.
        let count = unsafe { libc::send(self.fd(), message.as_ptr().cast(), message.len(), 0) };
        usize::try_from(count).map_err(|_| io::Error::last_os_error())
    }

    /// sendto(2) of nothing: tells an AF_XDP socket to look at its transmit ring.
    pub(crate) fn kick(&self) -> io::Result<()> {
        // SAFETY: a null buffer of length zero is not touched.
        let result = unsafe {
            libc::sendto(self.fd(), std::ptr::null(), 0, libc::MSG_DONTWAIT, std::ptr::null(), 0)
        };
        if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }
}
