//! Word from the kernel that this virtual machine is a copy: it was cloned, or went back to a
//! snapshot. The hypervisor changes its generation identifier then (ACPI `VM_Gen_Counter`), and
//! Linux 6.8 and later tell user space by a uevent with `NEW_VMGENID=1`. Older kernels tell only
//! their own random number generator.

use std::io;
use std::os::fd::RawFd;

use crate::sys::socket::Socket;

/// The group that the kernel tells its uevents to (lib/kobject_uevent.c).
const GROUP_KERNEL: u32 = 1;
/// The line of the uevent (drivers/virt/vmgenid.c).
const CHANGED: &[u8] = b"NEW_VMGENID=1";
/// Uevents taken at one time, at most; the rest is taken the next time.
const MESSAGES_MAX: usize = 1024;
/// The kernel's uevents are at most this long.
const BUFFER_LEN: usize = 8 * 1024;

/// Hears of a new generation of this machine.
#[derive(Debug)]
pub struct VmGeneration {
    socket: Socket,
}

impl VmGeneration {
    /// Listens from now on.
    ///
    /// # Errors
    /// The kernel gives no netlink socket.
    pub fn open() -> io::Result<Self> {
        let protocol = libc::NETLINK_KOBJECT_UEVENT;
        let socket = Socket::open(libc::AF_NETLINK, libc::SOCK_RAW, protocol)?;
        socket.bind_netlink(GROUP_KERNEL)?;
        Ok(Self { socket })
    }

    /// Readable when there are uevents, of this kind or another ([`crate::wait`]).
    pub fn poll_fd(&self) -> RawFd {
        self.socket.fd()
    }

    /// Whether the machine became another since it was last asked.
    pub fn take(&mut self) -> bool {
        let mut buffer = vec![0; BUFFER_LEN];
        let mut is_new = false;
        for _ in 0..MESSAGES_MAX {
            match self.socket.receive(&mut buffer, libc::MSG_DONTWAIT) {
                Ok(length) => is_new |= tells_of_a_new_generation(&buffer[..length]),
                // Lost words (ENOBUFS) are not this one, as a rule: it comes alone, at a resume.
                Err(error) if error.raw_os_error() == Some(libc::ENOBUFS) => {}
                Err(_) => break,
            }
        }
        is_new
    }
}

/// A uevent is lines that end with a zero byte.
fn tells_of_a_new_generation(uevent: &[u8]) -> bool {
    uevent.split(|byte| *byte == 0).any(|line| line == CHANGED)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_generations_uevent_counts() {
        let told =
            b"change@/devices/LNXSYSTM:00/QEMUVGID:00\0ACTION=change\0NEW_VMGENID=1\0SEQNUM=7\0";
        assert!(tells_of_a_new_generation(told));
        for other in [
            &b"add@/module/veth\0ACTION=add\0SEQNUM=8\0"[..],
            b"change@/x\0ACTION=change\0NEW_VMGENID=12\0",
            b"change@/x\0XNEW_VMGENID=1\0",
            b"",
        ] {
            assert!(!tells_of_a_new_generation(other));
        }
    }
}
