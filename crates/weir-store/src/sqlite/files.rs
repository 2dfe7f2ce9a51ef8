//! Which files a connection has open: that nobody else writes them (docs/adr/0268), and whether
//! they still stand where they stood. A store that is moved away or replaced while a gateway runs
//! would be written on without anybody who reads it.

use std::fs::{self, File, TryLockError};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use rusqlite::Connection;

use super::read::QUERY_TIME_MAX;
use super::schema::{StoreError, beside};

/// Device and number of a file.
type Number = (u64, u64);

/// The file, and the log beside it.
#[derive(Debug, Default)]
pub(super) struct Files {
    file: Option<Number>,
    log: Option<Number>,
    /// Locked for as long as it is open. To be closed after the connection: the first that closes a
    /// file takes all locks of SQLite's kind from it.
    _claim: Option<File>,
}

impl Files {
    /// Claims the file at `path` for one writer.
    ///
    /// # Errors
    /// [`StoreError::Taken`], or it cannot be opened.
    pub(super) fn claim(path: &Path) -> Result<Self, StoreError> {
        let failed = |error| StoreError::Io { path: path.to_owned(), error };
        let file = File::options().append(true).open(path).map_err(failed)?;
        match file.try_lock() {
            Ok(()) => Ok(Self { file: number(path), log: None, _claim: Some(file) }),
            Err(TryLockError::WouldBlock) => Err(StoreError::Taken(path.to_owned())),
            Err(TryLockError::Error(error)) => Err(failed(error)),
        }
    }

    /// Notes the log that a connection has opened.
    pub(super) fn note_log(&mut self, path: &Path) {
        self.log = number(&beside(path, "-wal"));
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
