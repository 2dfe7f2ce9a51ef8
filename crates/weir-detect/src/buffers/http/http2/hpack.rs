//! HPACK (RFC 7541): lists of headers from the blocks that they are sent in.

use std::collections::VecDeque;
use std::sync::Arc;

use super::huffman;
use crate::buffers::http::names::HEADERS_MAX;
use crate::heap::{HeapSize, heap_size};

/// Sizes of the table that a block names, at most; the rest is not told.
const SIZES_MAX: usize = 256;
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

/// A header that is remembered. Others may have its name: two bytes may name a long one again.
#[derive(Clone, Debug)]
struct Entry {
    name: Arc<[u8]>,
    value: Vec<u8>,
}

impl HeapSize for Entry {
    fn heap_size(&self) -> usize {
        self.name.len() + self.value.heap_size()
    }
}

/// What one sender has had remembered.
#[derive(Debug)]
pub(super) struct Decoder {
    table: VecDeque<Entry>,
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
    /// Bytes of their names and values, and how many those may be.
    pub(super) len: usize,
    room: usize,
    /// There were more.
    pub(super) is_cut: bool,
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
    /// Takes in a whole block, of whose headers so many bytes are wanted.
    pub(super) fn take(&mut self, mut bytes: &[u8], room: usize) -> Block {
        let mut block = Block { is_odd: self.is_lost, room, ..Block::default() };
        while !bytes.is_empty() && !self.is_lost {
            if let Err(fault) = self.field(&mut bytes, &mut block) {
                (self.is_lost, block.is_odd) = (true, true);
                block.is_overflow = matches!(fault, Fault::Overflow);
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
    fn field(&mut self, bytes: &mut &[u8], block: &mut Block) -> Result<(), Fault> {
        let first = *bytes.first().ok_or(Fault::Odd)?;
        if first & 0x80 != 0 {
            let index = number(bytes, 7)?;
            let (name, value) = self.at(index).ok_or(Fault::Odd)?;
            block.put(name, value);
            return Ok(());
        }
        if first & 0xe0 == 0x20 {
            let size = number(bytes, 5)?;
            if block.sizes.len() < SIZES_MAX {
                block.sizes.push(size as u64);
            }
            (self.is_capped, self.len_max) = (size > TABLE_LEN_MAX, size.min(TABLE_LEN_MAX));
            self.shrink();
            return Ok(());
        }
        let is_kept = first & 0x40 != 0;
        let index = number(bytes, if is_kept { 6 } else { 4 })?;
        let name = match index {
            0 => text(bytes)?.into(),
            index => self.name(index).ok_or(Fault::Odd)?,
        };
        let value = text(bytes)?;
        block.put(&name, &value);
        if is_kept {
            let entry = Entry { name, value };
            self.len += entry.len() + ENTRY_OVERHEAD;
            self.table.push_front(entry);
            block.is_table_full |= self.is_capped && self.len > self.len_max;
            self.shrink();
        }
        Ok(())
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

    /// The name of that number.
    fn name(&self, index: usize) -> Option<Arc<[u8]>> {
        match index.checked_sub(KNOWN.len() + 1) {
            Some(place) => self.table.get(place).map(|it| Arc::clone(&it.name)),
            None => self.at(index).map(|it| it.0.into()),
        }
    }
}

impl Block {
    /// Puts a header, as far as there is room: nothing is copied beyond it, for a byte may name a
    /// long header.
    fn put(&mut self, name: &[u8], value: &[u8]) {
        let len = self.len + name.len() + value.len();
        if self.headers.len() == HEADERS_MAX || len > self.room {
            self.is_cut = true;
            return;
        }
        self.len = len;
        self.headers.push(Header { name: name.to_vec(), value: value.to_vec() });
    }
}

impl Entry {
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

    const ROOM: usize = 64 * 1024;

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
        assert_eq!(list(&decoder.take(first, ROOM)), [common[0], common[1], common[2], host]);
        let cache = ("cache-control", "no-cache");
        assert_eq!(
            list(&decoder.take(second, ROOM)),
            [common[0], common[1], common[2], host, cache]
        );
        assert_eq!(decoder.len, 57 + 53);
    }

    #[test]
    fn what_a_sender_has_remembered_is_bounded() {
        let mut decoder = Decoder::default();
        let entry = [b"\x40\x01a\x7f\xa1\x1e".as_slice(), &[b'x'; 4000]].concat();
        for _ in 0..3 {
            assert!(!decoder.take(&entry, ROOM).is_odd);
        }
        assert_eq!((decoder.table.len(), decoder.len), (1, 4033));
        // Each byte names the long header again.
        let bomb = decoder.take(&[0xbe; 10_000], ROOM);
        assert_eq!(bomb.headers.len(), ROOM / 4001);
        assert!(bomb.is_cut && bomb.len <= ROOM);
        // What finds room behind a long one is there.
        let cut = decoder.take(b"\xbe\x82", 100);
        assert_eq!((list(&cut), cut.is_cut), (vec![(":method", "GET")], true));
        assert_eq!(decoder.take(b"\x20", ROOM).sizes, [0]);
        assert!(decoder.table.is_empty());
        assert!(decoder.take(b"\x3f\xff\xff\xff\xff\x0f", ROOM).is_overflow);
        assert!(decoder.take(b"\x82", ROOM).is_odd, "what follows means nothing");
    }

    #[test]
    fn a_block_that_is_cut_is_odd() {
        for block in [b"\x41\x8c\xf1".as_slice(), b"\x7f", b"\xff\x80", b"\xc0", b"\x80"] {
            assert!(Decoder::default().take(block, ROOM).is_odd, "{block:?}");
        }
    }
}
