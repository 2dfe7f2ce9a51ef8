//! The files of one capture: one after the other, each begun when its predecessor is full or old,
//! the oldest removed when there are too many.

use std::collections::VecDeque;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use weir_port::capture::InterfaceStatistics;
use weir_store::clock;
use weir_wire::frame::Time;

use super::chunk::Chunk;
use super::names::NamePattern;
use super::segment::{self, Segment};

/// Where a capture goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// Standard output.
    StandardOutput,
    /// Files (or a device, or a pipe) of this name.
    Files(NamePattern),
}

/// When a file ends and another begins, and how many stay.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FileLimits {
    /// Bytes of a file; it is ended with the batch of packets that reaches them.
    pub bytes: Option<u64>,
    /// Age of a file; it is ended before the first packet that comes later.
    pub age: Option<Duration>,
    /// Files that stay; the oldest of this capture are removed.
    pub keep: Option<usize>,
}

impl FileLimits {
    /// Whether there is more than one file.
    pub fn rotates(&self) -> bool {
        self.bytes.is_some() || self.age.is_some()
    }
}

/// How files are opened.
#[derive(Clone, Debug)]
pub(super) struct FileOptions {
    pub(super) interface: String,
    pub(super) target: Target,
    pub(super) limits: FileLimits,
    pub(super) compress: bool,
    pub(super) overwrite: bool,
}

/// The file being written and those before it.
pub(super) struct Files {
    options: FileOptions,
    header: Vec<u8>,
    current: Segment,
    number: u32,
    /// Ended files that are still there, the oldest first.
    ended: VecDeque<PathBuf>,
    before: Totals,
}

/// What the files of a capture took.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Totals {
    pub(super) written: u64,
    pub(super) bytes: u64,
}

impl Files {
    pub(super) fn begin(options: FileOptions) -> Result<Self> {
        let header = segment::header(&options.interface)?;
        let current = begin_segment(&options, &header, 1)?;
        let (ended, before) = (VecDeque::new(), Totals::default());
        Ok(Self { options, header, current, number: 1, ended, before })
    }

    /// Bytes that every file begins with.
    pub(super) fn header_len(&self) -> u64 {
        self.header.len() as u64
    }

    /// Adds a chunk to the current file. True: that has its size now.
    pub(super) fn write(&mut self, chunk: &Chunk) -> io::Result<bool> {
        self.current.write(chunk.bytes(), chunk.packets)?;
        let limit = self.options.limits.bytes;
        Ok(limit.is_some_and(|limit| self.current.file_bytes >= limit))
    }

    /// Ends the current file and begins the next.
    pub(super) fn rotate(&mut self, now: Time, statistics: &InterfaceStatistics) -> Result<()> {
        self.end(now, statistics).with_context(|| self.name())?;
        self.number += 1;
        let next = begin_segment(&self.options, &self.header, self.number)?;
        let last = std::mem::replace(&mut self.current, next);
        self.before.written += last.written;
        self.before.bytes += last.file_bytes;
        self.ended.push_back(last.path);
        if let Some(keep) = self.options.limits.keep {
            while self.ended.len() + 1 > keep.max(1) {
                let Some(oldest) = self.ended.pop_front() else { break };
                remove(&oldest);
            }
        }
        Ok(())
    }

    /// Ends the last file.
    pub(super) fn end(&mut self, now: Time, statistics: &InterfaceStatistics) -> io::Result<()> {
        self.current.end(now, statistics)
    }

    /// The current file's name.
    pub(super) fn name(&self) -> String {
        match self.options.target {
            Target::StandardOutput => "standard output".to_owned(),
            Target::Files(_) => self.current.path.display().to_string(),
        }
    }

    /// Files that are there.
    pub(super) fn paths(&self) -> Vec<PathBuf> {
        match self.options.target {
            Target::StandardOutput => Vec::new(),
            Target::Files(_) => self.ended.iter().chain([&self.current.path]).cloned().collect(),
        }
    }

    pub(super) fn totals(&self) -> Totals {
        Totals {
            written: self.before.written + self.current.written,
            bytes: self.before.bytes + self.current.file_bytes,
        }
    }
}

impl Target {
    /// Whether a capture of that interface may begin there, before anything is done to the
    /// interface.
    pub(super) fn check_free(&self, interface: &str, overwrite: bool) -> Result<()> {
        let Self::Files(pattern) = self else { return Ok(()) };
        let path = pattern.path(1, clock::wall(), interface);
        check_older(&path, overwrite)
    }
}

/// An older file of that name is evidence; it stays unless the user says otherwise.
fn check_older(path: &Path, overwrite: bool) -> Result<()> {
    if !overwrite && fs::metadata(path).is_ok_and(|it| it.is_file()) {
        bail!("{}: there is such a file; --force overwrites it", path.display());
    }
    Ok(())
}

fn begin_segment(options: &FileOptions, header: &[u8], number: u32) -> Result<Segment> {
    let (path, file) = match &options.target {
        Target::StandardOutput => {
            let file = io::stdout().as_fd().try_clone_to_owned().map(File::from);
            (PathBuf::from("-"), file.context("standard output")?)
        }
        Target::Files(pattern) => {
            let path = pattern.path(number, clock::wall(), &options.interface);
            let file = create(&path, options.overwrite)?;
            (path, file)
        }
    };
    let name = path.display().to_string();
    Segment::begin(path, file, header, options.compress).context(name)
}

/// Creates a file that only its owner may read: it holds what others sent in confidence.
fn create(path: &Path, overwrite: bool) -> Result<File> {
    let mut options = OpenOptions::new();
    options.write(true).mode(0o600);
    check_older(path, overwrite)?;
    match fs::metadata(path) {
        Ok(there) => options.truncate(there.is_file()),
        Err(_) => options.create_new(true),
    };
    options.open(path).with_context(|| format!("{}: cannot write there", path.display()))
}

fn remove(path: &Path) {
    if let Err(error) = fs::remove_file(path)
        && error.kind() != io::ErrorKind::NotFound
    {
        eprintln!("weir: {}: cannot remove the oldest file: {error}", path.display());
    }
}
