//! One capture file being written: whole blocks are gathered and leave by one large write, and
//! after a write that fails the file still ends with a whole block.

use std::fs::File;
use std::io::{self, Write};
use std::path::PathBuf;

use weir_port::capture::{InterfaceStatistics, PacketNote};
use weir_port::{CaptureFormat, CaptureWriter};
use weir_wire::frame::{Link, Meta, Time};

/// Bytes gathered before a write: few system calls, and still in a second-level cache when the
/// kernel copies them. Not yet measured against other sizes.
const GATHERED_BYTES: usize = 1 << 20;
/// Room for the packet that goes beyond, so that the memory never moves.
const BEYOND_BYTES: usize = 512 << 10;
/// The fastest ordinary level: the same core also captures.
const ZSTD_LEVEL: i32 = 1;

/// A file, a pipe or a device, and the blocks on their way there.
pub(super) struct Segment {
    /// As the user knows it.
    pub(super) path: PathBuf,
    file: File,
    /// Absent: the blocks go out as they are.
    compression: Option<Compression>,
    writer: CaptureWriter<Vec<u8>>,
    waiting: u64,
    /// Packets in the file.
    pub(super) written: u64,
    /// Packets that the file did not take.
    pub(super) lost: u64,
    /// Bytes in the file.
    pub(super) file_bytes: u64,
}

/// Each write becomes a zstd frame of its own (RFC 8878 section 3: frames may follow each other),
/// so that a file can end after any of them.
struct Compression {
    compressor: zstd::bulk::Compressor<'static>,
    frame: Vec<u8>,
}

impl Segment {
    /// Begins a capture of `interface` in `file`.
    pub(super) fn begin(
        path: PathBuf,
        file: File,
        interface: &str,
        compress: bool,
    ) -> io::Result<Self> {
        let buffer = Vec::with_capacity(GATHERED_BYTES + BEYOND_BYTES);
        let interfaces = [(interface, Link::Ethernet)];
        let writer = CaptureWriter::new(buffer, CaptureFormat::PcapNg, &interfaces)?;
        let compression = if compress {
            let compressor = zstd::bulk::Compressor::new(ZSTD_LEVEL)?;
            Some(Compression { compressor, frame: Vec::new() })
        } else {
            None
        };
        Ok(Self { path, file, compression, writer, waiting: 0, written: 0, lost: 0, file_bytes: 0 })
    }

    /// Bytes in the file and on their way (these before compression).
    pub(super) fn bytes(&self) -> u64 {
        self.file_bytes + self.writer.sink().len() as u64
    }

    /// Packets in the file and on their way.
    pub(super) fn packets(&self) -> u64 {
        self.written + self.waiting
    }

    /// Adds one packet.
    ///
    /// # Errors
    /// The file takes no more; what is lost has been counted.
    pub(super) fn push(&mut self, meta: &Meta, bytes: &[u8]) -> io::Result<()> {
        self.waiting += 1;
        self.writer.write(0, meta, &[bytes], PacketNote::default())?;
        if self.writer.sink().len() >= GATHERED_BYTES { self.flush() } else { Ok(()) }
    }

    /// Hands on what was gathered.
    ///
    /// # Errors
    /// The file takes no more; what is lost has been counted.
    pub(super) fn flush(&mut self) -> io::Result<()> {
        let Self { file, compression, writer, .. } = self;
        let blocks = writer.sink_mut();
        if blocks.is_empty() {
            return Ok(());
        }
        let (taken, result) = match compression {
            None => write_counted(file, blocks),
            Some(Compression { compressor, frame }) => {
                frame.clear();
                frame.reserve(zstd::zstd_safe::compress_bound(blocks.len()));
                compressor.compress_to_buffer(blocks, frame)?;
                write_counted(file, frame)
            }
        };
        match result {
            Ok(()) => {
                self.file_bytes += taken as u64;
                self.written += self.waiting;
            }
            Err(_) => {
                let whole = match compression {
                    None => WholeBlocks::of(&blocks[..taken]),
                    Some(_) => WholeBlocks::default(),
                };
                self.file_bytes += whole.bytes as u64;
                self.written += whole.packets;
                self.lost += self.waiting - whole.packets;
                // A pipe or device cannot be cut, and need not.
                let _ = file.set_len(self.file_bytes);
            }
        }
        self.waiting = 0;
        blocks.clear();
        result
    }

    /// Ends the capture with the interface's statistics.
    ///
    /// # Errors
    /// The file takes no more; what is lost has been counted.
    pub(super) fn end(&mut self, now: Time, statistics: &InterfaceStatistics) -> io::Result<()> {
        self.writer.write_statistics(0, now, statistics)?;
        self.flush()
    }
}

/// Writes all of `bytes`; how many were taken, also when not all were.
fn write_counted(file: &mut File, bytes: &[u8]) -> (usize, io::Result<()>) {
    let mut taken = 0;
    while taken < bytes.len() {
        match file.write(&bytes[taken..]) {
            Ok(0) => return (taken, Err(io::ErrorKind::WriteZero.into())),
            Ok(count) => taken += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return (taken, Err(error)),
        }
    }
    (taken, Ok(()))
}

/// The blocks that lie whole in a run of bytes.
#[derive(Debug, Default, PartialEq, Eq)]
struct WholeBlocks {
    bytes: usize,
    packets: u64,
}

impl WholeBlocks {
    /// Walks over blocks of our own making: type, length.
    fn of(bytes: &[u8]) -> Self {
        const ENHANCED_PACKET: [u8; 4] = [6, 0, 0, 0];
        let mut whole = Self::default();
        while let Some((head, _)) = bytes[whole.bytes..].split_first_chunk::<8>() {
            let [kind @ .., a, b, c, d] = *head;
            let len = u32::from_le_bytes([a, b, c, d]) as usize;
            if len < 12 || len > bytes.len() - whole.bytes {
                break;
            }
            whole.bytes += len;
            whole.packets += u64::from(kind == ENHANCED_PACKET);
        }
        whole
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_whole_blocks_count() {
        let interfaces = [("p0", Link::Ethernet)];
        let mut writer =
            CaptureWriter::new(Vec::new(), CaptureFormat::PcapNg, &interfaces).unwrap();
        let head = writer.sink().len();
        for _ in 0..3 {
            writer.write(0, &Meta::default(), &[&[7; 61]], PacketNote::default()).unwrap();
        }
        let bytes = writer.finish().unwrap();
        let record = (bytes.len() - head) / 3;
        for (len, packets) in [(head - 1, 0), (head, 0), (head + record, 1), (bytes.len() - 1, 2)] {
            let whole = WholeBlocks::of(&bytes[..len]);
            assert_eq!(whole.packets, packets, "{len}");
            assert!(whole.bytes <= len);
        }
        assert_eq!(WholeBlocks::of(&bytes), WholeBlocks { bytes: bytes.len(), packets: 3 });
    }
}
