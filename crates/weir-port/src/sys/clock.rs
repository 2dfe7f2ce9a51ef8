//! The clocks of this machine. Ports and kernel programs get the time here and nowhere else; clippy
//! refuses other calls.

#![expect(clippy::disallowed_methods, reason = "the one module that reads the clocks")]

use std::time::{Instant, SystemTime, UNIX_EPOCH};

use weir_wire::frame::Time;

/// The monotonic clock, which nobody sets: for how long something took.
pub(crate) fn now() -> Instant {
    Instant::now()
}

/// The time of day in nanoseconds since 1970, to stamp frames that the kernel does not; 0 before
/// 1970.
pub(crate) fn time() -> Time {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Time(u64::try_from(since.as_nanos()).unwrap_or(u64::MAX))
}

/// CLOCK_MONOTONIC in nanoseconds, as `bpf_ktime_get_ns` gives it to kernel programs.
pub(crate) fn monotonic_ns() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the kernel writes one timespec, which `time` is.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}
