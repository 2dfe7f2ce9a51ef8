//! The clock: the only place of the daemon that reads the time of day.

use std::time::{SystemTime, UNIX_EPOCH};

use weir_wire::frame::Time;

/// The time that frames are stamped with.
pub(in crate::daemon) fn clock() -> Time {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Time(u64::try_from(since.as_nanos()).unwrap_or(u64::MAX))
}

/// The same in whole seconds since 1970.
pub(in crate::daemon) fn seconds() -> u64 {
    clock().0 / 1_000_000_000
}
