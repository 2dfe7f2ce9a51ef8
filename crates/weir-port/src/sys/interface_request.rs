//! ioctl(2) on network interfaces: `struct ifreq` (netdevice(7)) and ethtool commands behind it.

use std::io;
use std::os::fd::RawFd;

/// `IFNAMSIZ`, its closing zero included.
pub(crate) const NAME_LEN_MAX: usize = 16;
const UNION_LEN: usize = 24;

/// An interface's name and the argument or answer of a request.
#[repr(C, align(8))]
#[derive(Clone, Copy, Debug)]
pub(crate) struct InterfaceRequest {
    name: [u8; NAME_LEN_MAX],
    /// The C union, as bytes in the machine's order.
    pub(crate) value: [u8; UNION_LEN],
}

const _: () = assert!(size_of::<InterfaceRequest>() == size_of::<libc::ifreq>());

impl InterfaceRequest {
    /// # Errors
    /// `InvalidInput` for a name that the kernel could not hold.
    pub(crate) fn new(name: &str) -> io::Result<Self> {
        if name.is_empty() || name.len() >= NAME_LEN_MAX || name.contains('\0') {
            let what = format!("{name:?} is not an interface name (1 to 15 bytes)");
            return Err(io::Error::new(io::ErrorKind::InvalidInput, what));
        }
        let mut request = Self { name: [0; NAME_LEN_MAX], value: [0; UNION_LEN] };
        request.name[..name.len()].copy_from_slice(name.as_bytes());
        Ok(request)
    }

    pub(crate) fn name(&self) -> &str {
        let len = self.name.iter().position(|byte| *byte == 0).unwrap_or(NAME_LEN_MAX);
        std::str::from_utf8(&self.name[..len]).unwrap_or_default()
    }

    pub(crate) fn with_i32(mut self, value: i32) -> Self {
        self.value[..4].copy_from_slice(&value.to_ne_bytes());
        self
    }

    pub(crate) fn with_u16(mut self, value: u16) -> Self {
        self.value[..2].copy_from_slice(&value.to_ne_bytes());
        self
    }

    pub(crate) fn i32(&self) -> i32 {
        i32::from_ne_bytes([self.value[0], self.value[1], self.value[2], self.value[3]])
    }

    pub(crate) fn u16(&self) -> u16 {
        u16::from_ne_bytes([self.value[0], self.value[1]])
    }

    /// Runs request `number` on `fd`; the kernel's answer is in `self`.
    pub(crate) fn run(&mut self, fd: RawFd, number: libc::c_ulong) -> io::Result<()> {
        debug_assert!(number != libc::SIOCETHTOOL, "that one carries a pointer");
        // SAFETY: the requests used here read and write one ifreq, which `self` is, and none of
        // them takes its union for a pointer.
        let result = unsafe { libc::ioctl(fd, number as _, &raw mut *self) };
        if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }
}

/// Runs an ethtool command; `command` is its C structure, the answer overwrites it.
///
/// The kernel writes no more than the structure that the command number and its own length fields
/// announce, so `command` must be as long as these say.
pub(crate) fn ethtool(fd: RawFd, name: &str, command: &mut [u32]) -> io::Result<()> {
    let mut request = InterfaceRequest::new(name)?;
    let pointer = command.as_mut_ptr() as usize;
    request.value[..size_of::<usize>()].copy_from_slice(&pointer.to_ne_bytes());
    // SAFETY: the ifreq holds a pointer to `command`, which outlives the call; callers size it by
    // the command's own rules, stated above.
    let result = unsafe { libc::ioctl(fd, libc::SIOCETHTOOL as _, &raw mut request) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}
