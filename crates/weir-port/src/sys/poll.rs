//! Waiting for frames.

use std::io;
use std::os::fd::RawFd;
use std::time::Duration;

/// Waits until one of `descriptors` (see [`crate::Port::poll_fd`]) is readable, at most `timeout`;
/// true when one is.
///
/// # Errors
/// The system's own; an interrupting signal is no error, only an early return.
pub fn wait(descriptors: &[RawFd], timeout: Duration) -> io::Result<bool> {
    const DESCRIPTORS_MAX: usize = 64;
    let mut list = [libc::pollfd { fd: -1, events: libc::POLLIN, revents: 0 }; DESCRIPTORS_MAX];
    let count = descriptors.len().min(DESCRIPTORS_MAX);
    for (entry, fd) in list.iter_mut().zip(descriptors) {
        entry.fd = *fd;
    }
    let timeout = libc::timespec {
        tv_sec: timeout.as_secs() as libc::time_t,
        tv_nsec: timeout.subsec_nanos().into(),
    };
    // SAFETY: list and count describe initialised entries; the timeout outlives the call.
    let ready = unsafe {
        libc::ppoll(list.as_mut_ptr(), count as libc::nfds_t, &timeout, std::ptr::null())
    };
    if ready >= 0 {
        return Ok(ready > 0);
    }
    let error = io::Error::last_os_error();
    if error.kind() == io::ErrorKind::Interrupted { Ok(false) } else { Err(error) }
}
