//! Which files a connection has open, and whether they still stand where they stood: a store that
//! is moved away or replaced while a gateway runs would be written on without anybody who reads it.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use rusqlite::Connection;

use super::read::QUERY_TIME_MAX;
use super::schema::beside;

/// Device and number of a file.
type Number = (u64, u64);

/// The file, and the log beside it.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Files {
    file: Option<Number>,
    log: Option<Number>,
}

impl Files {
    /// Those that stand at `path`.
    pub(super) fn of(path: &Path) -> Self {
        Self { file: number(path), log: number(&beside(path, "-wal")) }
    }

    /// Whether another file stands at `path`, or none.
    pub(super) fn are_others(&self, path: &Path) -> bool {
        self.file.is_some() && self.file != number(path)
    }

    /// Ends `connection`, with all of it in the file that it has open, wherever that is by now. Its
    /// log must not be taken for one of what stands at `path`.
    pub(super) fn close(&self, connection: Connection, path: &Path) {
        let _ = connection.busy_timeout(QUERY_TIME_MAX);
        let _ = connection.execute_batch("PRAGMA wal_checkpoint(TRUNCATE)");
        drop(connection);
        if self.log.is_some() && self.log == number(&beside(path, "-wal")) {
            let _ = fs::remove_file(beside(path, "-wal"));
            let _ = fs::remove_file(beside(path, "-shm"));
        }
    }
}

fn number(path: &Path) -> Option<Number> {
    fs::metadata(path).ok().map(|it| (it.dev(), it.ino()))
}
