//! The clocks of this machine. The store, the server and the gateway's program read them here and
//! nowhere else, so that it is easy to find who depends on the time; clippy refuses other calls.

#![expect(clippy::disallowed_methods, reason = "the one module that reads the clocks")]

use std::time::{Instant, SystemTime, UNIX_EPOCH};

use weir_wire::frame::Time;

/// The monotonic clock, which nobody sets: for deadlines and for how long something took.
pub fn now() -> Instant {
    Instant::now()
}

/// The time of day, as the system's clock has it.
pub fn wall() -> SystemTime {
    SystemTime::now()
}

/// The time of day in nanoseconds since 1970, as frames are stamped; 0 before 1970.
pub fn time() -> Time {
    let since = wall().duration_since(UNIX_EPOCH).unwrap_or_default();
    Time(u64::try_from(since.as_nanos()).unwrap_or(u64::MAX))
}

/// The time of day in whole seconds since 1970; 0 before.
pub fn seconds() -> u64 {
    time().0 / 1_000_000_000
}
