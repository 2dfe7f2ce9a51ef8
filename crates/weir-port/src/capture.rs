//! Capture files: one fast reader for pcap and pcapng, one writer for each.
//!
//! ```text
//!  file --(reader thread, 1 MiB blocks)--> window --step--> Frame, in place, 64 at a time
//! ```
//!
//! A record is never copied, save the one that a block boundary cuts, and no memory is taken after
//! [`CaptureReader::open`]. What a file claims is never believed: a packet above [`PACKET_LEN_MAX`]
//! bytes, or a pcapng block above [`BLOCK_LEN_MAX`] that cannot be skipped, is an error with its
//! byte offset. A last record that is cut short is counted and everything before it delivered.
//!
//! Formats: pcap (micro- and nanoseconds, either byte order, also the modified header of old Linux
//! tools), pcapng (IETF draft-ietf-opsawg-pcapng; EPB, SPB, OPB, several interfaces), ERF records
//! inside either (link type 197).

mod blocks;
mod erf;
mod link;
mod pcap;
mod pcapng;
mod port;
mod write;

pub use port::CapturePort;
pub use write::{
    CaptureFormat, CaptureWriter, Direction, FILLER_LEN_MIN, InterfaceStatistics,
    PACKET_BLOCK_OVERHEAD, PacketNote, put_filler, put_packet,
};

use std::fs::File;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use arrayvec::ArrayVec;
use weir_wire::frame::{Frame, Meta};

use crate::port::BATCH;
use blocks::Blocks;

/// Longest packet that a capture may hold, in bytes (tcpdump's largest snapshot length).
pub const PACKET_LEN_MAX: usize = 256 * 1024;

/// Longest pcapng block that is read, in bytes: the longest packet and 64 KiB of options. Longer
/// blocks of other kinds are skipped unread.
pub const BLOCK_LEN_MAX: usize = PACKET_LEN_MAX + 64 * 1024;

/// Why a capture cannot be read (further). Everything before the place was delivered.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CaptureError {
    /// The file cannot be opened.
    #[error("{file}: cannot open: {source}")]
    Open {
        /// File as named by the caller.
        file: String,
        /// The system's reason.
        source: io::Error,
    },
    /// The file cannot be read, or written, at this place.
    #[error("{file}: byte {offset}: {source}")]
    Io {
        /// File as named by the caller.
        file: String,
        /// Byte offset where the operation failed.
        offset: u64,
        /// The system's reason.
        source: io::Error,
    },
    /// The content contradicts the format.
    #[error("{file}: byte {offset}: {what}")]
    Malformed {
        /// File as named by the caller.
        file: String,
        /// Byte offset of the record.
        offset: u64,
        /// What is wrong and what to do.
        what: String,
    },
}

/// What was read so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CaptureStats {
    /// Packets delivered.
    pub packets: u64,
    /// Their bytes present in the file.
    pub bytes: u64,
    /// Records cut short by the end of the file; not delivered.
    pub truncated_records: u64,
    /// Packets not delivered: their link type or ERF record type is not one we read.
    pub skipped_packets: u64,
}

/// Reads a capture batch by batch; frames lie in place in the block that was read.
///
/// A frame has its record header as headroom and no tailroom: enough to look, not to seal. Use
/// [`CapturePort`] where the room of the port contract is needed.
#[derive(Debug)]
pub struct CaptureReader {
    name: String,
    total_bytes: Option<u64>,
    blocks: Blocks,
    format: Format,
    stats: CaptureStats,
    failed: Option<CaptureError>,
}

/// What stands at the front of the bytes that are left.
enum Step {
    /// A packet in a record of `len` bytes; the packet is `start..end` of it.
    Packet { len: usize, start: usize, end: usize, meta: Meta },
    /// A packet that we do not read, in a record of `len` bytes.
    Unread { len: usize },
    /// `len` bytes that hold no packet.
    Skip { len: u64 },
    /// A record that needs `len` bytes in one piece.
    Need { len: usize },
}

#[derive(Debug)]
enum Format {
    Pcap(pcap::Pcap),
    PcapNg(pcapng::PcapNg),
}

impl Format {
    fn step(&mut self, bytes: &[u8]) -> Result<Step, String> {
        match self {
            Format::Pcap(pcap) => pcap.step(bytes),
            Format::PcapNg(pcapng) => pcapng.step(bytes),
        }
    }
}

impl CaptureReader {
    /// Opens `path` (`-` is standard input) and reads its file header.
    ///
    /// # Errors
    /// [`CaptureError::Open`], or [`CaptureError::Malformed`] when it is no capture.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, CaptureError> {
        Self::open_until(path, Arc::default())
    }

    /// The same; once `is_over` is set, the capture has ended, within a tenth of a second also
    /// where it comes from a pipe that says nothing.
    ///
    /// # Errors
    /// As [`CaptureReader::open`].
    pub fn open_until(
        path: impl AsRef<Path>,
        is_over: Arc<AtomicBool>,
    ) -> Result<Self, CaptureError> {
        let path = path.as_ref();
        let (name, file) = if path == Path::new("-") {
            use std::os::fd::AsFd;
            let stdin = io::stdin().as_fd().try_clone_to_owned().map(File::from);
            ("standard input".to_owned(), stdin)
        } else {
            (path.display().to_string(), File::open(path))
        };
        let file = file.map_err(|source| CaptureError::Open { file: name.clone(), source })?;
        let metadata = file.metadata().ok().filter(|m| m.is_file());
        Self::start(name, metadata.map(|m| m.len()), file, is_over)
    }

    /// Reads a capture from any byte source; `name` appears in errors.
    ///
    /// # Errors
    /// As [`CaptureReader::open`].
    pub fn from_source(
        name: &str,
        source: impl io::Read + Send + 'static,
    ) -> Result<Self, CaptureError> {
        Self::start(name.to_owned(), None, source, Arc::default())
    }

    fn start(
        name: String,
        total_bytes: Option<u64>,
        source: impl io::Read + Send + 'static,
        is_over: Arc<AtomicBool>,
    ) -> Result<Self, CaptureError> {
        let mut blocks = Blocks::start(source, is_over);
        let head = match blocks.fill(pcap::FILE_HEADER_LEN) {
            Ok(_) => blocks.window(),
            Err(source) => return Err(CaptureError::Io { file: name, offset: 0, source }),
        };
        let malformed = |what| CaptureError::Malformed { file: name.clone(), offset: 0, what };
        let (format, used) = if pcapng::PcapNg::recognises(head) {
            (Format::PcapNg(pcapng::PcapNg::new()), 0)
        } else {
            let pcap = pcap::Pcap::from_file_header(head).map_err(malformed)?;
            (Format::Pcap(pcap), pcap::FILE_HEADER_LEN)
        };
        blocks.consume(used);
        let stats = CaptureStats::default();
        Ok(Self { name, total_bytes, blocks, format, stats, failed: None })
    }

    /// The file's name, as given.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Size of the file in bytes; `None` for pipes.
    pub fn total_bytes(&self) -> Option<u64> {
        self.total_bytes
    }

    /// Bytes of the file that are behind us.
    pub fn bytes_read(&self) -> u64 {
        self.blocks.offset()
    }

    /// Totals so far.
    pub fn stats(&self) -> CaptureStats {
        self.stats
    }

    /// Passes the next packets, at most [`BATCH`], to `handle`; returns how many. Zero: the end.
    ///
    /// # Errors
    /// The first thing that cannot be read further; the packets before it have been delivered, and
    /// every later call returns zero.
    pub fn next_batch(
        &mut self,
        handle: &mut dyn FnMut(&mut [Frame<'_>]),
    ) -> Result<usize, CaptureError> {
        loop {
            if self.blocks.is_over() {
                self.blocks.end();
                return Ok(0);
            }
            if let Some(error) = self.failed.take() {
                self.blocks.end();
                return Err(error);
            }
            let mut frames = ArrayVec::<Frame<'_>, BATCH>::new();
            let gathered =
                gather(&mut self.format, self.blocks.window_mut(), &mut frames, &mut self.stats);
            let delivered = frames.len();
            if delivered > 0 {
                handle(&mut frames);
            }
            drop(frames);
            self.blocks.consume(gathered.used);
            self.settle(gathered.stop);
            if delivered > 0 {
                return Ok(delivered);
            }
            if self.failed.is_none() && self.blocks.at_end() {
                return Ok(0);
            }
        }
    }

    /// Does what the end of a batch asks for: more bytes, a skip, or an error to report next.
    fn settle(&mut self, stop: Stop) {
        let result = match stop {
            Stop::Full => return,
            Stop::Need(len) => self.blocks.fill(len).map(|complete| {
                if !complete {
                    let is_cut = !self.blocks.window().is_empty() && !self.blocks.is_over();
                    self.stats.truncated_records += u64::from(is_cut);
                    self.blocks.end();
                }
            }),
            Stop::Skip(len) => self.blocks.skip(len).map(|complete| {
                self.stats.truncated_records += u64::from(!complete);
            }),
            Stop::Malformed(what) => {
                let (file, offset) = (self.name.clone(), self.blocks.offset());
                self.failed = Some(CaptureError::Malformed { file, offset, what });
                return;
            }
        };
        if let Err(source) = result {
            let (file, offset) = (self.name.clone(), self.blocks.offset());
            self.failed = Some(CaptureError::Io { file, offset, source });
        }
    }
}

/// Why a batch ended.
enum Stop {
    Full,
    Need(usize),
    Skip(u64),
    Malformed(String),
}

struct Gathered {
    used: usize,
    stop: Stop,
}

/// Takes whole records off the front of `window` until the batch is full or the window is not.
fn gather<'a>(
    format: &mut Format,
    window: &'a mut [u8],
    frames: &mut ArrayVec<Frame<'a>, BATCH>,
    stats: &mut CaptureStats,
) -> Gathered {
    let mut rest = window;
    let mut used = 0;
    while !frames.is_full() {
        let (len, packet) = match format.step(rest) {
            Ok(Step::Packet { len, .. } | Step::Unread { len }) if len > rest.len() => {
                return Gathered { used, stop: Stop::Need(len) };
            }
            Ok(Step::Packet { len, start, end, meta }) => (len, Some((start, end, meta))),
            Ok(Step::Unread { len }) => {
                stats.skipped_packets += 1;
                (len, None)
            }
            Ok(Step::Skip { len }) => match usize::try_from(len) {
                Ok(len) if len <= rest.len() => (len, None),
                _ => return Gathered { used, stop: Stop::Skip(len) },
            },
            Ok(Step::Need { len }) => return Gathered { used, stop: Stop::Need(len) },
            Err(what) => return Gathered { used, stop: Stop::Malformed(what) },
        };
        let (record, tail) = rest.split_at_mut(len);
        rest = tail;
        used += len;
        if let Some((start, end, meta)) = packet {
            stats.packets += 1;
            stats.bytes += (end - start) as u64;
            frames.push(Frame::new(record, start, end, meta));
        }
    }
    Gathered { used, stop: Stop::Full }
}

/// Two or four bytes in the byte order of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ByteOrder {
    Little,
    Big,
}

impl ByteOrder {
    /// The 16-bit number at `at`, which the caller knows to lie inside.
    fn u16(self, bytes: &[u8], at: usize) -> u16 {
        let raw = [bytes[at], bytes[at + 1]];
        match self {
            ByteOrder::Little => u16::from_le_bytes(raw),
            ByteOrder::Big => u16::from_be_bytes(raw),
        }
    }

    /// The 32-bit number at `at`, which the caller knows to lie inside.
    fn u32(self, bytes: &[u8], at: usize) -> u32 {
        let raw = [bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]];
        match self {
            ByteOrder::Little => u32::from_le_bytes(raw),
            ByteOrder::Big => u32::from_be_bytes(raw),
        }
    }
}
