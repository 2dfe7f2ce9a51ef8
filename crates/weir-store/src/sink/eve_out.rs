//! A file that lines are added to, as it is open: moved at its size, and made anew where somebody
//! moved or removed it.

use std::fs::{File, OpenOptions};
use std::io::{self, BufWriter, Write};
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::OFlags;
use rustix::io::Errno;

use super::alerts::EveFile;

/// What a file begins to be written by: readable by the group that runs log shippers.
const MODE: u32 = 0o640;

/// The file as it is open.
pub(super) struct Out {
    pub(super) wanted: EveFile,
    file: BufWriter<File>,
    bytes: u64,
    inode: u64,
    fails: bool,
}

impl Out {
    pub(super) fn open(wanted: EveFile) -> io::Result<Self> {
        let file = open(&wanted.path)?;
        let found = file.metadata()?;
        Ok(Self {
            wanted,
            file: BufWriter::new(file),
            bytes: found.len(),
            inode: found.ino(),
            fails: false,
        })
    }

    pub(super) fn write(&mut self, line: &[u8]) -> io::Result<()> {
        if self.bytes > 0 && self.bytes + line.len() as u64 > self.wanted.bytes_max {
            self.file.flush()?;
            std::fs::rename(&self.wanted.path, numbered(&self.wanted.path))?;
            *self = Self::open(self.wanted.clone())?;
        }
        self.file.write_all(line)?;
        self.bytes += line.len() as u64;
        Ok(())
    }

    /// Writes what waits, and says when that begins or ceases to fail; the failure, if it does.
    pub(super) fn look_after(&mut self) -> Option<String> {
        let path = self.wanted.path.clone();
        let path = path.display();
        let Err(error) = self.flush() else {
            if std::mem::replace(&mut self.fails, false) {
                tracing::info!(%path, "alerts are written again");
            }
            return None;
        };
        if !std::mem::replace(&mut self.fails, true) {
            tracing::error!(%error, %path, "alerts are lost");
        }
        Some(format!("{path}: {error}"))
    }

    /// Writes what waits, and begins anew where the file was moved away.
    pub(super) fn flush(&mut self) -> io::Result<()> {
        let written = self.file.flush();
        let is_there =
            std::fs::metadata(&self.wanted.path).is_ok_and(|found| found.ino() == self.inode);
        if is_there {
            return written;
        }
        // What a full disk did not take goes with the file: only so is its room free again.
        let fails = self.fails;
        *self = Self { fails, ..Self::open(self.wanted.clone())? };
        Ok(())
    }
}

/// Follows no link: whoever may write into the folder must not choose what we write to. Nor does it
/// wait for a pipe's reader, who may be none, or slow.
pub(super) fn open(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.append(true).create(true).mode(MODE);
    options.custom_flags((OFlags::NOFOLLOW | OFlags::NONBLOCK).bits() as i32);
    let file = options.open(path).map_err(|error| match Errno::from_io_error(&error) {
        Some(Errno::LOOP) => io::Error::new(error.kind(), "it is a symbolic link"),
        Some(Errno::NXIO) => io::Error::new(error.kind(), "it is a pipe that nobody reads"),
        _ => error,
    })?;
    // Says that it is written to: `weir read --eve` begins no file anew that is.
    let _ = file.try_lock_shared();
    Ok(file)
}

/// Why nothing is written to what is at a path, and what to do about it; `None`: nothing is there,
/// or a file that may take it. Whether somebody reads a pipe is known at the start: to try it would
/// end it for the reader.
pub fn unfit(path: &Path) -> Option<(&'static str, &'static str)> {
    let kind = std::fs::symlink_metadata(path).ok()?.file_type();
    let remedy = "name the file that it leads to: no link is followed";
    kind.is_symlink().then_some(("is a symbolic link", remedy))
}

pub(super) fn is_pipe(path: &Path) -> bool {
    std::fs::symlink_metadata(path).is_ok_and(|it| it.file_type().is_fifo())
}

fn numbered(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".1");
    name.into()
}
