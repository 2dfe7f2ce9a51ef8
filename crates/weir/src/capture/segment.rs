//! One capture file being written, chunk by chunk. After a write that fails the file still ends
//! with a whole block.

use std::fs::File;
use std::io::{self, Write};
use std::path::PathBuf;

use rustix::fs::OFlags;
use weir_port::capture::InterfaceStatistics;
use weir_port::{CaptureFormat, CaptureWriter};
use weir_wire::frame::{Link, Time};

use super::chunk::ALIGNMENT;

/// The fastest ordinary level: the other cores also capture.
const ZSTD_LEVEL: i32 = 1;

/// A file, a pipe or a device.
pub(super) struct Segment {
    /// As the user knows it.
    pub(super) path: PathBuf,
    file: File,
    direct: Direct,
    /// Absent: the blocks go out as they are.
    compression: Option<Compression>,
    /// Packets in the file.
    pub(super) written: u64,
    /// Bytes in the file.
    pub(super) file_bytes: u64,
}

/// Whether writes go past the page cache (`O_DIRECT`): the disk takes them from our memory, which
/// spares the kernel a copy and its memory pages, and the machine a flood of dirty ones.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Direct {
    /// The file system cannot, or it is no file.
    Never,
    Off,
    On,
}

/// Each chunk becomes a zstd frame of its own (RFC 8878 section 3: frames may follow each other),
/// so that a file can end after any of them.
struct Compression {
    compressor: zstd::bulk::Compressor<'static>,
    frame: Vec<u8>,
}

/// What a file of `interface` begins with.
pub(super) fn header(interface: &str) -> io::Result<Vec<u8>> {
    let interfaces = [(interface, Link::Ethernet)];
    CaptureWriter::new(Vec::new(), CaptureFormat::PcapNg, &interfaces)?.finish()
}

impl Segment {
    /// Begins a capture in `file`.
    pub(super) fn begin(
        path: PathBuf,
        file: File,
        header: &[u8],
        compress: bool,
    ) -> io::Result<Self> {
        let compression = if compress {
            let compressor = zstd::bulk::Compressor::new(ZSTD_LEVEL)?;
            Some(Compression { compressor, frame: Vec::new() })
        } else {
            None
        };
        // What stands behind standard output is not ours alone: its mode stays.
        let is_file = path.as_os_str() != "-" && file.metadata().is_ok_and(|it| it.is_file());
        let direct = if is_file && !compress { Direct::Off } else { Direct::Never };
        let (written, file_bytes) = (0, 0);
        let mut segment = Self { path, file, direct, compression, written, file_bytes };
        segment.write(header, 0)?;
        Ok(segment)
    }

    /// Adds whole blocks, among them `packets` packets.
    ///
    /// # Errors
    /// The file takes no more; what it took has been counted.
    pub(super) fn write(&mut self, blocks: &[u8], packets: u64) -> io::Result<()> {
        let (taken, result) = match &mut self.compression {
            None => {
                self.switch_direct(blocks);
                self.write_plain(blocks)
            }
            Some(Compression { compressor, frame }) => {
                frame.clear();
                frame.reserve(zstd::zstd_safe::compress_bound(blocks.len()));
                compressor.compress_to_buffer(blocks, frame)?;
                write_counted(&mut self.file, frame)
            }
        };
        if result.is_ok() {
            self.file_bytes += taken as u64;
            self.written += packets;
            return Ok(());
        }
        let whole = match self.compression {
            None => WholeBlocks::of(&blocks[..taken]),
            Some(_) => WholeBlocks::default(),
        };
        self.file_bytes += whole.bytes as u64;
        self.written += whole.packets;
        // A pipe or device cannot be cut, and need not.
        let _ = self.file.set_len(self.file_bytes);
        result
    }

    /// Ends the capture with the interface's statistics.
    ///
    /// # Errors
    /// The file does not take them.
    pub(super) fn end(&mut self, now: Time, statistics: &InterfaceStatistics) -> io::Result<()> {
        let interfaces = [("", Link::Ethernet)];
        let mut writer = CaptureWriter::new(Vec::new(), CaptureFormat::PcapNg, &interfaces)?;
        writer.sink_mut().clear();
        writer.write_statistics(0, now, statistics)?;
        self.write(&writer.finish()?, 0)
    }

    fn write_plain(&mut self, blocks: &[u8]) -> (usize, io::Result<()>) {
        match write_counted(&mut self.file, blocks) {
            (0, Err(error)) if self.direct == Direct::On && is_refusal(&error) => {
                self.set_direct(false);
                self.direct = Direct::Never;
                write_counted(&mut self.file, blocks)
            }
            // A direct write is taken by sectors; the end of the room by bytes.
            (taken, Err(_)) if self.direct == Direct::On => {
                self.set_direct(false);
                let (more, result) = write_counted(&mut self.file, &blocks[taken..]);
                (taken + more, result)
            }
            outcome => outcome,
        }
    }

    /// Past the page cache where place and length allow it.
    fn switch_direct(&mut self, blocks: &[u8]) {
        let aligned = self.file_bytes.is_multiple_of(ALIGNMENT as u64)
            && blocks.len().is_multiple_of(ALIGNMENT)
            && blocks.as_ptr().addr().is_multiple_of(ALIGNMENT);
        match (self.direct, aligned) {
            (Direct::Off, true) => self.set_direct(true),
            (Direct::On, false) => self.set_direct(false),
            _ => {}
        }
    }

    fn set_direct(&mut self, wanted: bool) {
        let set = rustix::fs::fcntl_getfl(&self.file).and_then(|mut flags| {
            flags.set(OFlags::DIRECT, wanted);
            rustix::fs::fcntl_setfl(&self.file, flags)
        });
        self.direct = match (set.is_ok(), wanted) {
            (false, _) => Direct::Never,
            (true, true) => Direct::On,
            (true, false) => Direct::Off,
        };
    }
}

/// The file system cannot write past the page cache after all, or not from such a place.
fn is_refusal(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::InvalidInput | io::ErrorKind::Unsupported)
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
    use weir_port::capture::PacketNote;
    use weir_wire::frame::Meta;

    use super::*;

    #[test]
    fn only_whole_blocks_count() {
        let interfaces = [("p0", Link::Ethernet)];
        let mut writer =
            CaptureWriter::new(Vec::new(), CaptureFormat::PcapNg, &interfaces).unwrap();
        let head = writer.sink().len();
        assert_eq!(header("p0").unwrap(), *writer.sink());
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
