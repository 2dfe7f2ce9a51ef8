//! Digests that rules compare: MD5 (RFC 1321), SHA-1 and SHA-256 (FIPS 180-4). None of them
//! protects anything here.

use crate::heap::no_heap;
use ring::digest::{Context, SHA1_FOR_LEGACY_USE_ONLY, SHA256, digest};

/// Which digests of files somebody wants to know.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FileDigests {
    /// MD5.
    pub md5: bool,
    /// SHA-1.
    pub sha1: bool,
    /// SHA-256.
    pub sha256: bool,
}

impl FileDigests {
    /// What either wants.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        Self {
            md5: self.md5 | other.md5,
            sha1: self.sha1 | other.sha1,
            sha256: self.sha256 | other.sha256,
        }
    }
}

/// Digests of a file, as far as they were wanted when it began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Digests {
    pub(crate) md5: Option<[u8; 16]>,
    pub(crate) sha1: Option<[u8; 20]>,
    pub(crate) sha256: Option<[u8; 32]>,
}

/// Takes a file's bytes as they come.
#[derive(Clone)]
pub(crate) struct Digester {
    wanted: FileDigests,
    md5: Option<Md5>,
    sha1: Option<Context>,
    sha256: Option<Context>,
}
no_heap!(Digests, Digester);

impl std::fmt::Debug for Digester {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.wanted.fmt(f)
    }
}

impl Digester {
    /// One of what is wanted; `None`: nothing is.
    pub(crate) fn of(wanted: FileDigests) -> Option<Box<Self>> {
        (wanted != FileDigests::default()).then(|| {
            Box::new(Self {
                wanted,
                md5: wanted.md5.then(Md5::default),
                sha1: wanted.sha1.then(|| Context::new(&SHA1_FOR_LEGACY_USE_ONLY)),
                sha256: wanted.sha256.then(|| Context::new(&SHA256)),
            })
        })
    }

    /// What it was made for.
    pub(crate) fn wanted(&self) -> FileDigests {
        self.wanted
    }

    pub(crate) fn update(&mut self, bytes: &[u8]) {
        self.md5.iter_mut().for_each(|it| it.update(bytes));
        self.sha1.iter_mut().for_each(|it| it.update(bytes));
        self.sha256.iter_mut().for_each(|it| it.update(bytes));
    }

    /// Digests of what came so far.
    pub(crate) fn digests(&self) -> Digests {
        Digests {
            md5: self.md5.as_ref().map(|it| it.clone().finish()),
            sha1: self.sha1.as_ref().map(|it| array(it.clone().finish().as_ref())),
            sha256: self.sha256.as_ref().map(|it| array(it.clone().finish().as_ref())),
        }
    }
}

/// MD5 of bytes that come piece by piece.
#[derive(Clone, Debug)]
struct Md5 {
    state: [u32; 4],
    /// Bytes that are no whole block yet.
    held: Vec<u8>,
    length: u64,
}

const BLOCK_LEN: usize = 64;

impl Default for Md5 {
    fn default() -> Self {
        let state = [0x6745_2301, 0xefcd_ab89, 0x98ba_dcfe, 0x1032_5476];
        Self { state, held: Vec::new(), length: 0 }
    }
}

impl Md5 {
    fn update(&mut self, bytes: &[u8]) {
        self.length = self.length.wrapping_add(bytes.len() as u64);
        let mut rest = bytes;
        if !self.held.is_empty() {
            let room = BLOCK_LEN - self.held.len();
            let (first, behind) = rest.split_at(rest.len().min(room));
            self.held.extend_from_slice(first);
            rest = behind;
            if self.held.len() < BLOCK_LEN {
                return;
            }
            let block = std::mem::take(&mut self.held);
            self.block(&block);
        }
        let blocks = rest.chunks_exact(BLOCK_LEN);
        self.held.extend_from_slice(blocks.remainder());
        blocks.for_each(|it| self.block(it));
    }

    fn block(&mut self, block: &[u8]) {
        const SHIFTS: [[u32; 4]; 4] =
            [[7, 12, 17, 22], [5, 9, 14, 20], [4, 11, 16, 23], [6, 10, 15, 21]];
        let word = |at: usize| u32::from_le_bytes([0, 1, 2, 3].map(|it| block[4 * at + it]));
        let [mut a, mut b, mut c, mut d] = self.state;
        for (step, sine) in SINES.iter().enumerate() {
            let (mixed, at) = match step / 16 {
                0 => ((b & c) | (!b & d), step),
                1 => ((d & b) | (!d & c), 5 * step + 1),
                2 => (b ^ c ^ d, 3 * step + 5),
                _ => (c ^ (b | !d), 7 * step),
            };
            let sum = a.wrapping_add(mixed).wrapping_add(*sine).wrapping_add(word(at % 16));
            let turned = sum.rotate_left(SHIFTS[step / 16][step % 4]);
            (a, d, c, b) = (d, c, b, b.wrapping_add(turned));
        }
        for (sum, one) in self.state.iter_mut().zip([a, b, c, d]) {
            *sum = sum.wrapping_add(one);
        }
    }

    /// A one bit, zeros, and the length at the end of the last block.
    fn finish(mut self) -> [u8; 16] {
        let length = self.length.wrapping_mul(8).to_le_bytes();
        let zeros = (2 * BLOCK_LEN - 9 - self.held.len()) % BLOCK_LEN;
        self.update(&[&[0x80][..], &[0; BLOCK_LEN][..zeros], &length].concat());
        let mut digest = [0; 16];
        for (place, word) in digest.chunks_exact_mut(4).zip(self.state) {
            place.copy_from_slice(&word.to_le_bytes());
        }
        digest
    }
}

/// The integer part of 2^32 times a sine, as the specification says.
static SINES: std::sync::LazyLock<[u32; 64]> = std::sync::LazyLock::new(|| {
    std::array::from_fn(|step| ((step as f64 + 1.0).sin().abs() * 4_294_967_296.0) as u32)
});

/// MD5 of `bytes`.
pub(crate) fn md5(bytes: &[u8]) -> [u8; 16] {
    let mut md5 = Md5::default();
    md5.update(bytes);
    md5.finish()
}

/// SHA-1 of `bytes`.
pub(crate) fn sha1(bytes: &[u8]) -> [u8; 20] {
    array(digest(&SHA1_FOR_LEGACY_USE_ONLY, bytes).as_ref())
}

/// SHA-256 of `bytes`.
pub(crate) fn sha256(bytes: &[u8]) -> [u8; 32] {
    array(digest(&SHA256, bytes).as_ref())
}

/// A digest is as long as its kind says.
fn array<const N: usize>(bytes: &[u8]) -> [u8; N] {
    let mut array = [0; N];
    array.copy_from_slice(bytes);
    array
}

/// In lower case.
pub(crate) fn hex(bytes: &[u8]) -> Vec<u8> {
    crate::value::hex(bytes, "").into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(digest: &[u8]) -> String {
        String::from_utf8(hex(digest)).unwrap()
    }

    #[test]
    fn digests_are_the_specifications_examples() {
        assert_eq!(text(&md5(b"")), "d41d8cd98f00b204e9800998ecf8427e");
        assert_eq!(text(&md5(b"message digest")), "f96b697d7cb7938d525a2f31aaf161d0");
        let digits = b"1234567890".repeat(8);
        assert_eq!(text(&md5(&digits)), "57edf4a22be3c955ac49da2e2107b67a");
        assert_eq!(text(&sha1(b"abc")), "a9993e364706816aba3e25717850c26c9cd0d89d");
        assert_eq!(
            text(&sha256(b"abc")),
            "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
        );
    }

    #[test]
    fn a_file_has_the_same_digests_however_it_is_cut() {
        let bytes: Vec<u8> = (0..300_u32).map(|it| it as u8).collect();
        let wanted = FileDigests { md5: true, sha1: true, sha256: true };
        for length in [0, 1, 55, 56, 63, 64, 65, 127, 128, 300] {
            let bytes = &bytes[..length];
            for piece in [1, 7, 63, 64, 65, 300] {
                let mut digester = Digester::of(wanted).unwrap();
                bytes.chunks(piece).for_each(|it| digester.update(it));
                let Digests { md5: one, sha1: two, sha256: three } = digester.digests();
                assert_eq!(one, Some(md5(bytes)), "{length} by {piece}");
                assert_eq!((two, three), (Some(sha1(bytes)), Some(sha256(bytes))));
            }
        }
    }

    #[test]
    fn what_is_not_wanted_is_not_computed() {
        assert!(Digester::of(FileDigests::default()).is_none());
        let digester = Digester::of(FileDigests { sha1: true, ..Default::default() }).unwrap();
        let digests = digester.digests();
        assert!(digests.sha1.is_some() && digests.md5.is_none() && digests.sha256.is_none());
    }
}
