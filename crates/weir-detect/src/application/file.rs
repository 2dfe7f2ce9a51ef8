//! A file that an application carries.

use crate::digest::{Digester, Digests, FileDigests};
use crate::heap::heap_size;

/// Bytes of a file that are kept for rules, at most.
pub(crate) const FILE_LEN_MAX: usize = 100 * 1024;

/// The bytes of a file so far.
#[derive(Clone, Debug, Default)]
pub(crate) struct Content {
    /// As far as they are kept.
    pub(crate) bytes: Vec<u8>,
    /// Of all that came.
    pub(crate) size: u64,
    digester: Option<Box<Digester>>,
}
heap_size!(Content { bytes, digester });

impl Content {
    /// Takes in bytes; with the first of them it is decided which digests there will be.
    pub(crate) fn add(&mut self, bytes: &[u8], wanted: FileDigests) {
        if self.size == 0 && self.digester.is_none() {
            self.digester = Digester::of(wanted);
        }
        let room = FILE_LEN_MAX.saturating_sub(self.bytes.len());
        self.bytes.extend_from_slice(&bytes[..bytes.len().min(room)]);
        self.size += bytes.len() as u64;
        self.digester.iter_mut().for_each(|it| it.update(bytes));
    }

    /// Digests of all that came.
    pub(crate) fn digests(&self) -> Digests {
        self.digester.as_ref().map(|it| it.digests()).unwrap_or_default()
    }
}
