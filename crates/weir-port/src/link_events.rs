//! Word from the kernel that something about links or their tc rules changed (rtnetlink(7)): a
//! reason to look, no more. What changed is asked of the kernel then, so that lost words cost
//! nothing.

use std::io;
use std::os::fd::RawFd;

use crate::sys::socket::Socket;

/// `RTMGRP_LINK` and `RTMGRP_TC` (linux/rtnetlink.h).
const GROUP_LINK: u32 = 1;
const GROUP_TC: u32 = 8;
/// Messages taken at one time, at most; the rest is another word.
const MESSAGES_MAX: usize = 1024;
const BUFFER_LEN: usize = 32 * 1024;

/// Hears of changes in the network namespace of the thread that opened it.
#[derive(Debug)]
pub struct LinkEvents {
    socket: Socket,
}

impl LinkEvents {
    /// Listens from now on.
    ///
    /// # Errors
    /// The kernel gives no netlink socket.
    pub fn open() -> io::Result<Self> {
        let socket = Socket::open(libc::AF_NETLINK, libc::SOCK_RAW, libc::NETLINK_ROUTE)?;
        socket.bind_netlink(GROUP_LINK | GROUP_TC)?;
        Ok(Self { socket })
    }

    /// Readable when something changed ([`crate::wait`]).
    pub fn poll_fd(&self) -> RawFd {
        self.socket.fd()
    }

    /// Whether something changed since it was last asked, or words were lost.
    pub fn take(&mut self) -> bool {
        let mut buffer = vec![0; BUFFER_LEN];
        for taken in 0..MESSAGES_MAX {
            match self.socket.receive(&mut buffer, libc::MSG_DONTWAIT | libc::MSG_TRUNC) {
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return taken > 0,
                // ENOBUFS: words were lost.
                Err(_) => return true,
            }
        }
        true
    }
}
