//! Many descriptors as one that is readable when any of them is (epoll).

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};

/// Readable when one of its descriptors is. One that is closed leaves by itself.
#[derive(Debug)]
pub(crate) struct AnyReadable(OwnedFd);

impl AnyReadable {
    /// Of `descriptors`.
    ///
    /// # Errors
    /// The system's own.
    pub(crate) fn of(descriptors: impl Iterator<Item = RawFd>) -> io::Result<Self> {
        // SAFETY: no memory is passed; the descriptor is new, and nobody else's.
        let made = unsafe {
            let fd = libc::epoll_create1(libc::EPOLL_CLOEXEC);
            if fd < 0 {
                return Err(io::Error::last_os_error());
            }
            Self(OwnedFd::from_raw_fd(fd))
        };
        for descriptor in descriptors {
            let mut event = libc::epoll_event { events: libc::EPOLLIN as u32, u64: 0 };
            // SAFETY: the event is ours and outlives the call, which copies it.
            let added = unsafe {
                libc::epoll_ctl(made.fd(), libc::EPOLL_CTL_ADD, descriptor, &raw mut event)
            };
            if added < 0 {
                return Err(io::Error::last_os_error());
            }
        }
        Ok(made)
    }

    /// What to poll.
    pub(crate) fn fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }
}
