//! What the status says of the store.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use weir_store::sqlite::StoreCounters;

/// What the gateway remembers, and how that goes.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
pub struct StoreSnapshot {
    /// The file.
    pub path: PathBuf,
    /// Records handed over by the meters.
    pub records: u64,
    /// Of those, lost because the store could not take them in time.
    pub overflowed: u64,
    /// Of those, on the disk.
    pub written: u64,
    /// Samples of counters and lines of the log book lost likewise.
    pub notes_lost: u64,
    /// Alerts lost likewise.
    #[serde(default)]
    pub alerts_lost: u64,
    /// Bytes in use in the file.
    pub bytes: u64,
    /// Bytes that it may have.
    pub bytes_max: u64,
    /// Why nothing is stored now, if so.
    pub failure: Option<String>,
    /// A damaged store that was moved aside since the start.
    pub moved_aside: Option<PathBuf>,
}

impl From<StoreCounters> for StoreSnapshot {
    fn from(counters: StoreCounters) -> Self {
        Self {
            path: counters.path,
            records: counters.records,
            overflowed: counters.overflowed,
            written: counters.written,
            notes_lost: counters.notes_lost,
            alerts_lost: counters.alerts_lost,
            bytes: counters.bytes,
            bytes_max: counters.bytes_max,
            failure: counters.failure,
            moved_aside: counters.moved_aside,
        }
    }
}
