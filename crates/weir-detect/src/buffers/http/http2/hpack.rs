//! HPACK (RFC 7541): lists of headers from the blocks that they are sent in.

use std::collections::VecDeque;

use super::huffman;
use crate::heap::heap_size;

/// Headers of a block, at most, and bytes of their names and values; the rest is not looked at.
const HEADERS_MAX: usize = 256;
const LIST_LEN_MAX: usize = 64 * 1024;
/// Bytes of the table that a sender may have remembered, at most (Suricata's limit).
const TABLE_LEN_MAX: usize = 64 * 1024;
const TABLE_LEN_DEFAULT: usize = 4096;
/// What an entry counts beside its bytes (RFC 7541 s4.1).
const ENTRY_OVERHEAD: usize = 32;
/// Bits of a number's bytes, together, at most.
const NUMBER_BITS_MAX: u32 = 28;

/// A header; names of pseudo headers begin with a colon.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::buffers::http) struct Header {
    pub(in crate::buffers::http) name: Vec<u8>,
    pub(in crate::buffers::http) value: Vec<u8>,
}
heap_size!(Header { name, value });

/// What one sender has had remembered.
#[derive(Debug)]
pub(super) struct Decoder {
    table: VecDeque<Header>,
    len: usize,
    len_max: usize,
    /// The sender may have more remembered than is kept here.
    is_capped: bool,
    /// A block was lost or could not be read: what follows it means nothing.
    is_lost: bool,
}
heap_size!(Decoder { table });

/// What a block says.
#[derive(Debug, Default)]
pub(super) struct Block {
    pub(super) headers: Vec<Header>,
    /// New sizes of the table.
    pub(super) sizes: Vec<u64>,
    /// It could not be read to its end.
    pub(super) is_odd: bool,
    /// A number of it was too long.
    pub(super) is_overflow: bool,
    /// More was to be remembered than is kept.
    pub(super) is_table_full: bool,
}

/// Why a block cannot be read on.
enum Fault {
    Odd,
    Overflow,
}

impl Default for Decoder {
    fn default() -> Self {
        let table = VecDeque::new();
        Self { table, len: 0, len_max: TABLE_LEN_DEFAULT, is_capped: false, is_lost: false }
    }
}

impl Decoder {
    /// Takes in a whole block.
    pub(super) fn take(&mut self, mut bytes: &[u8]) -> Block {
        let mut block = Block { is_odd: self.is_lost, ..Block::default() };
        let mut len = 0;
        while !bytes.is_empty() && !self.is_lost {
            match self.field(&mut bytes, &mut block) {
                Ok(Some(header)) => {
                    len += header.len();
                    if block.headers.len() < HEADERS_MAX && len <= LIST_LEN_MAX {
                        block.headers.push(header);
                    }
                }
                Ok(None) => {}
                Err(fault) => {
                    (self.is_lost, block.is_odd) = (true, true);
                    block.is_overflow = matches!(fault, Fault::Overflow);
                }
            }
        }
        block
    }

    /// A block did not come whole.
    pub(super) fn lose(&mut self) {
        self.is_lost = true;
        self.table.clear();
    }

    /// One field's representation (RFC 7541 s6).
    fn field(&mut self, bytes: &mut &[u8], block: &mut Block) -> Result<Option<Header>, Fault> {
        let first = *bytes.first().ok_or(Fault::Odd)?;
        if first & 0x80 != 0 {
            let index = number(bytes, 7)?;
            let (name, value) = self.at(index).ok_or(Fault::Odd)?;
            return Ok(Some(Header { name: name.to_vec(), value: value.to_vec() }));
        }
        if first & 0xe0 == 0x20 {
            let size = number(bytes, 5)?;
            block.sizes.push(size as u64);
            (self.is_capped, self.len_max) = (size > TABLE_LEN_MAX, size.min(TABLE_LEN_MAX));
            self.shrink();
            return Ok(None);
        }
        let is_kept = first & 0x40 != 0;
        let index = number(bytes, if is_kept { 6 } else { 4 })?;
        let name = match index {
            0 => text(bytes)?,
            index => self.at(index).ok_or(Fault::Odd)?.0.to_vec(),
        };
        let header = Header { name, value: text(bytes)? };
        if is_kept {
            self.len += header.len() + ENTRY_OVERHEAD;
            self.table.push_front(header.clone());
            block.is_table_full |= self.is_capped && self.len > self.len_max;
            self.shrink();
        }
        Ok(Some(header))
    }

    fn shrink(&mut self) {
        while self.len > self.len_max {
            match self.table.pop_back() {
                Some(last) => self.len -= last.len() + ENTRY_OVERHEAD,
                None => break,
            }
        }
    }

    /// Name and value of that number: those that everybody knows come first.
    fn at(&self, index: usize) -> Option<(&[u8], &[u8])> {
        let index = index.checked_sub(1)?;
        match KNOWN.get(index) {
            Some((name, value)) => Some((name.as_bytes(), value.as_bytes())),
            None => self.table.get(index - KNOWN.len()).map(|it| (&it.name[..], &it.value[..])),
        }
    }
}

impl Header {
    fn len(&self) -> usize {
        self.name.len() + self.value.len()
    }
}

/// A number whose first byte has `bits` of it (RFC 7541 s5.1).
fn number(bytes: &mut &[u8], bits: u32) -> Result<usize, Fault> {
    let (first, mut rest) = bytes.split_first().ok_or(Fault::Odd)?;
    let most = (1_usize << bits) - 1;
    let mut number = usize::from(*first) & most;
    if number == most {
        let mut shift = 0;
        loop {
            let (byte, behind) = rest.split_first().ok_or(Fault::Odd)?;
            rest = behind;
            if shift > NUMBER_BITS_MAX - 7 {
                return Err(Fault::Overflow);
            }
            number += usize::from(byte & 0x7f) << shift;
            shift += 7;
            if byte & 0x80 == 0 {
                break;
            }
        }
    }
    *bytes = rest;
    Ok(number)
}

/// A string, coded or as it is (RFC 7541 s5.2).
fn text(bytes: &mut &[u8]) -> Result<Vec<u8>, Fault> {
    let is_coded = bytes.first().ok_or(Fault::Odd)? & 0x80 != 0;
    let length = number(bytes, 7)?;
    let (text, rest) = bytes.split_at_checked(length).ok_or(Fault::Odd)?;
    *bytes = rest;
    match is_coded {
        true => huffman::decode(text).ok_or(Fault::Odd),
        false => Ok(text.to_vec()),
    }
}

/// What everybody knows (RFC 7541, appendix A).
const KNOWN: [(&str, &str); 61] = [
    (":authority", ""),
    (":method", "GET"),
    (":method", "POST"),
    (":path", "/"),
    (":path", "/index.html"),
    (":scheme", "http"),
    (":scheme", "https"),
    (":status", "200"),
    (":status", "204"),
    (":status", "206"),
    (":status", "304"),
    (":status", "400"),
    (":status", "404"),
    (":status", "500"),
    ("accept-charset", ""),
    ("accept-encoding", "gzip, deflate"),
    ("accept-language", ""),
    ("accept-ranges", ""),
    ("accept", ""),
    ("access-control-allow-origin", ""),
    ("age", ""),
    ("allow", ""),
    ("authorization", ""),
    ("cache-control", ""),
    ("content-disposition", ""),
    ("content-encoding", ""),
    ("content-language", ""),
    ("content-length", ""),
    ("content-location", ""),
    ("content-range", ""),
    ("content-type", ""),
    ("cookie", ""),
    ("date", ""),
    ("etag", ""),
    ("expect", ""),
    ("expires", ""),
    ("from", ""),
    ("host", ""),
    ("if-match", ""),
    ("if-modified-since", ""),
    ("if-none-match", ""),
    ("if-range", ""),
    ("if-unmodified-since", ""),
    ("last-modified", ""),
    ("link", ""),
    ("location", ""),
    ("max-forwards", ""),
    ("proxy-authenticate", ""),
    ("proxy-authorization", ""),
    ("range", ""),
    ("referer", ""),
    ("refresh", ""),
    ("retry-after", ""),
    ("server", ""),
    ("set-cookie", ""),
    ("strict-transport-security", ""),
    ("transfer-encoding", ""),
    ("user-agent", ""),
    ("vary", ""),
    ("via", ""),
    ("www-authenticate", ""),
];

#[cfg(test)]
mod tests {
    use super::*;

    fn list(block: &Block) -> Vec<(&str, &str)> {
        let text = |bytes| std::str::from_utf8(bytes).unwrap();
        block.headers.iter().map(|it| (text(&it.name), text(&it.value))).collect()
    }

    #[test]
    fn blocks_of_a_connection_are_read_one_after_the_other() {
        // RFC 7541 s C.4.
        let first = b"\x82\x86\x84\x41\x8c\xf1\xe3\xc2\xe5\xf2\x3a\x6b\xa0\xab\x90\xf4\xff";
        let second = b"\x82\x86\x84\xbe\x58\x86\xa8\xeb\x10\x64\x9c\xbf";
        let mut decoder = Decoder::default();
        let common = [(":method", "GET"), (":scheme", "http"), (":path", "/")];
        let host = (":authority", "www.example.com");
        assert_eq!(list(&decoder.take(first)), [common[0], common[1], common[2], host]);
        let cache = ("cache-control", "no-cache");
        assert_eq!(list(&decoder.take(second)), [common[0], common[1], common[2], host, cache]);
        assert_eq!(decoder.len, 57 + 53);
    }

    #[test]
    fn what_a_sender_has_remembered_is_bounded() {
        let mut decoder = Decoder::default();
        let entry = [b"\x40\x01a\x7f\xa1\x1e".as_slice(), &[b'x'; 4000]].concat();
        for _ in 0..3 {
            assert!(!decoder.take(&entry).is_odd);
        }
        assert_eq!((decoder.table.len(), decoder.len), (1, 4033));
        // Each byte names the long header again.
        let bomb = decoder.take(&[0xbe; 10_000]);
        assert_eq!(bomb.headers.len(), LIST_LEN_MAX / 4001);
        assert_eq!(decoder.take(b"\x20").sizes, [0]);
        assert!(decoder.table.is_empty());
        assert!(decoder.take(b"\x3f\xff\xff\xff\xff\x0f").is_overflow);
        assert!(decoder.take(b"\x82").is_odd, "what follows means nothing");
    }

    #[test]
    fn a_block_that_is_cut_is_odd() {
        for block in [b"\x41\x8c\xf1".as_slice(), b"\x7f", b"\xff\x80", b"\xc0", b"\x80"] {
            assert!(Decoder::default().take(block).is_odd, "{block:?}");
        }
    }
}
