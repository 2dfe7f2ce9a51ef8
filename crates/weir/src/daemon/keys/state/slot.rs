//! A state file: two slots, written in turn, of which the newest whole one counts.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::Arc;

use weir_engine::esp::state::RECORD_LEN_MAX;

/// Bytes of a slot: a page, so that no write touches both.
const SLOT_BYTES: usize = 4096;
pub(super) const MAGIC: [u8; 8] = *b"weirSLT1";
/// Magic, generation, boot identifier, record length.
pub(super) const HEAD_BYTES: usize = 8 + 8 + 16 + 4;
const CHECKSUM_BYTES: usize = 4;
const _: () = assert!(HEAD_BYTES + RECORD_LEN_MAX + CHECKSUM_BYTES <= SLOT_BYTES);

/// One key's file.
#[derive(Debug)]
pub struct StateFile {
    pub(super) file: Arc<File>,
    pub(super) path: PathBuf,
    pub(super) generation: u64,
    pub(super) boot: [u8; 16],
    pub(super) slot: Vec<u8>,
    /// The next record was written, and does not count yet.
    pub(super) is_written: bool,
}

impl StateFile {
    /// Writes a record, as `SealingState::encode` and `OpeningState::encode` make it, to the page
    /// cache: a killed process loses nothing, a power failure may. Allocates the first time only.
    ///
    /// # Errors
    /// The disk is full or gone; the record before it is still there.
    pub fn write(&mut self, record: &[u8]) -> io::Result<()> {
        self.write_next(record)?;
        self.advance();
        Ok(())
    }

    /// Writes the next record, and again the next until [`StateFile::advance`]: as long as nobody
    /// knows that it is on the disk, the one before must stay.
    ///
    /// # Errors
    /// As [`StateFile::write`].
    pub(super) fn write_next(&mut self, record: &[u8]) -> io::Result<()> {
        if record.len() > RECORD_LEN_MAX {
            return Err(io::Error::other("record longer than a slot"));
        }
        let generation = self.generation + 1;
        self.slot.clear();
        self.slot.extend_from_slice(&MAGIC);
        self.slot.extend_from_slice(&generation.to_be_bytes());
        self.slot.extend_from_slice(&self.boot);
        self.slot.extend_from_slice(&(record.len() as u32).to_be_bytes());
        self.slot.extend_from_slice(record);
        let checksum = crc32fast::hash(&self.slot);
        self.slot.extend_from_slice(&checksum.to_be_bytes());
        self.file.write_all_at(&self.slot, generation % 2 * SLOT_BYTES as u64)?;
        self.is_written = true;
        Ok(())
    }

    /// What was written counts from now on.
    pub(super) fn advance(&mut self) {
        self.generation += u64::from(std::mem::take(&mut self.is_written));
    }

    /// Waits until what was written is on the disk.
    ///
    /// # Errors
    /// The disk refuses.
    pub fn sync(&self) -> io::Result<()> {
        self.file.sync_data()
    }
}

/// What a state file holds.
#[derive(Debug, Default)]
pub(super) struct Newest {
    /// 0: nothing that is whole.
    pub(super) generation: u64,
    pub(super) record: Option<Vec<u8>>,
    /// The other slot is not whole: a later record may have stood there.
    pub(super) is_alone: bool,
}

/// The newest whole record of `file` that `valid` takes.
pub(super) fn newest(file: &File, valid: impl Fn(&[u8]) -> bool) -> io::Result<Newest> {
    let (mut best, mut whole) = (Newest::default(), 0);
    for slot in 0..2 {
        let mut bytes = vec![0; SLOT_BYTES];
        let mut length = 0;
        while length < SLOT_BYTES {
            let offset = (slot * SLOT_BYTES + length) as u64;
            match file.read_at(&mut bytes[length..], offset)? {
                0 => break,
                count => length += count,
            }
        }
        let Some((generation, record)) = read_slot(&bytes[..length]) else { continue };
        if !valid(record) {
            continue;
        }
        whole += 1;
        if generation > best.generation {
            (best.generation, best.record) = (generation, Some(record.to_vec()));
        }
    }
    best.is_alone = whole == 1;
    Ok(best)
}

fn read_slot(bytes: &[u8]) -> Option<(u64, &[u8])> {
    let rest = bytes.strip_prefix(&MAGIC)?;
    let (generation, rest) = rest.split_first_chunk::<8>()?;
    let (_boot, rest) = rest.split_first_chunk::<16>()?;
    let (length, rest) = rest.split_first_chunk::<4>()?;
    let (record, rest) = rest.split_at_checked(u32::from_be_bytes(*length) as usize)?;
    let checksum = rest.first_chunk::<CHECKSUM_BYTES>()?;
    let covered = &bytes[..HEAD_BYTES + record.len()];
    let right = crc32fast::hash(covered).to_be_bytes() == *checksum;
    right.then_some((u64::from_be_bytes(*generation), record))
}

/// Which start of the machine wrote a slot, for those who read the files after a power failure.
pub(super) fn boot_identifier() -> [u8; 16] {
    let text = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    let digits: Vec<u8> =
        text.chars().filter_map(|c| c.to_digit(16)).map(|digit| digit as u8).collect();
    let mut identifier = [0; 16];
    for (byte, pair) in identifier.iter_mut().zip(digits.chunks_exact(2)) {
        *byte = pair[0] << 4 | pair[1];
    }
    identifier
}
