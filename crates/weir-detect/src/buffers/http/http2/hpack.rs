//! HPACK (RFC 7541): lists of headers from the blocks that they are sent in.

use std::collections::VecDeque;
use std::sync::Arc;

use super::huffman;
use crate::buffers::http::names::HEADERS_MAX;
use crate::heap::{HeapSize, heap_size, no_heap};

/// Sizes of the table that a block names, at most; the rest is not told.
const SIZES_MAX: usize = 256;
/// Bytes of the table that a sender may have remembered, at most (Suricata's limit).
const TABLE_LEN_MAX: usize = 64 * 1024;
const TABLE_LEN_DEFAULT: usize = 4096;
/// What an entry counts beside its bytes (RFC 7541 s4.1).
const ENTRY_OVERHEAD: usize = 32;
/// Bytes of a number behind its first, at most; it is 0 where there are more.
const NUMBER_LEN_MAX: usize = 10;

/// A header; names of pseudo headers begin with a colon.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::buffers::http) struct Header {
    pub(in crate::buffers::http) name: Vec<u8>,
    pub(in crate::buffers::http) value: Vec<u8>,
}
heap_size!(Header { name, value });

/// What is told of a header otherwise.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::buffers::http) enum Note {
    /// A new size of the table stands there, which rules see as a header without name and value (as
    /// Suricata's do).
    Size(u64),
    /// The same with a reference that names nothing; EVE's word for it.
    Fault(&'static str),
    /// It has the name of one before it by reference: it is not told again.
    Again,
}
no_heap!(Note);

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
    /// By the places of headers.
    pub(super) notes: Vec<(usize, Note)>,
    /// Names that were referred to, or may be.
    names: Vec<Arc<[u8]>>,
    /// It ends within a field: it means nothing.
    pub(super) is_broken: bool,
    /// A reference of it names nothing.
    pub(super) is_odd: bool,
    /// More was to be remembered than is kept.
    pub(super) is_table_full: bool,
}

/// A block ends within a field.
struct Cut;

impl Default for Decoder {
    fn default() -> Self {
        let table = VecDeque::new();
        Self { table, len: 0, len_max: TABLE_LEN_DEFAULT, is_capped: false }
    }
}

impl Decoder {
    /// Takes in a whole block, of whose headers so many bytes are wanted.
    pub(super) fn take(&mut self, mut bytes: &[u8], room: usize) -> Block {
        let mut block = Block { room, ..Block::default() };
        while !bytes.is_empty() {
            if let Err(Cut) = self.field(&mut bytes, &mut block) {
                return Block { is_broken: true, ..Block::default() };
            }
        }
        block
    }

    /// One field's representation (RFC 7541 s6). References that name nothing are passed over, as
    /// Suricata passes over them: a receiver should end the connection.
    fn field(&mut self, bytes: &mut &[u8], block: &mut Block) -> Result<(), Cut> {
        let first = *bytes.first().ok_or(Cut)?;
        if first & 0x80 != 0 {
            self.refer(number(bytes, 7)?, block);
            return Ok(());
        }
        if first & 0xe0 == 0x20 {
            let size = number(bytes, 5)?;
            if block.sizes.len() < SIZES_MAX {
                block.sizes.push(size as u64);
                block.note(Note::Size(size as u64));
            }
            (self.is_capped, self.len_max) = (size > TABLE_LEN_MAX, size.min(TABLE_LEN_MAX));
            self.shrink();
            return Ok(());
        }
        let is_kept = first & 0x40 != 0;
        let index = number(bytes, if is_kept { 6 } else { 4 })?;
        let name: Arc<[u8]> = match index {
            0 => text(bytes)?.into(),
            // A name that is not known is none.
            index => self.name(index).unwrap_or_default(),
        };
        let value = text(bytes)?;
        if is_kept || index > KNOWN.len() {
            block.put_named(&name, &value);
        } else {
            block.put(&name, &value);
        }
        if is_kept {
            let entry = Entry { name, value };
            self.len += entry.len() + ENTRY_OVERHEAD;
            self.table.push_front(entry);
            block.is_table_full |= self.is_capped && self.len > self.len_max;
            self.shrink();
        }
        Ok(())
    }

    /// The header of that number.
    fn refer(&self, index: usize, block: &mut Block) {
        match index.checked_sub(1) {
            None => block.fault("HTTP2HeaderDecodeIndex0"),
            Some(known) if known < KNOWN.len() => {
                let (name, value) = KNOWN[known];
                block.put(name.as_bytes(), value.as_bytes());
            }
            Some(index) => match self.table.get(index - KNOWN.len()) {
                Some(Entry { name, value }) => block.put_named(name, value),
                None => block.fault("HTTP2HeaderDecodeNotIndexed"),
            },
        }
    }

    fn shrink(&mut self) {
        while self.len > self.len_max {
            match self.table.pop_back() {
                Some(last) => self.len -= last.len() + ENTRY_OVERHEAD,
                None => break,
            }
        }
    }

    /// The name of that number: those that everybody knows come first.
    fn name(&self, index: usize) -> Option<Arc<[u8]>> {
        let index = index.checked_sub(1)?;
        match KNOWN.get(index) {
            Some((name, _)) => Some(name.as_bytes().into()),
            None => self.table.get(index - KNOWN.len()).map(|it| Arc::clone(&it.name)),
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

    /// Puts one whose name others refer to; each name is told once (as Suricata tells it).
    fn put_named(&mut self, name: &Arc<[u8]>, value: &[u8]) {
        // Behind what is kept nothing is told, and nothing is to be compared.
        if self.is_cut {
            return self.put(name, value);
        }
        if self.names.iter().any(|it| Arc::ptr_eq(it, name)) {
            self.note_of(Note::Again, name, value);
        } else {
            self.put(name, value);
            self.names.push(Arc::clone(name));
        }
    }

    fn fault(&mut self, name: &'static str) {
        self.is_odd = true;
        self.note(Note::Fault(name));
    }

    fn note(&mut self, note: Note) {
        self.note_of(note, b"", b"");
    }

    fn note_of(&mut self, note: Note, name: &[u8], value: &[u8]) {
        let place = self.headers.len();
        self.put(name, value);
        if self.headers.len() > place {
            self.notes.push((place, note));
        }
    }
}

impl Entry {
    fn len(&self) -> usize {
        self.name.len() + self.value.len()
    }
}

/// A number whose first byte has `bits` of it (RFC 7541 s5.1); 0: it is too large.
fn number(bytes: &mut &[u8], bits: u32) -> Result<usize, Cut> {
    let (first, rest) = bytes.split_first().ok_or(Cut)?;
    let most = (1_usize << bits) - 1;
    let number = usize::from(*first) & most;
    *bytes = rest;
    if number < most {
        return Ok(number);
    }
    let length = rest.iter().position(|it| it & 0x80 == 0).ok_or(Cut)? + 1;
    let (digits, rest) = rest.split_at(length);
    *bytes = rest;
    let places = digits.iter().zip((0..).step_by(7));
    let sum = places.take(NUMBER_LEN_MAX).try_fold(number, |sum, (digit, shift)| {
        let digit = u128::from(digit & 0x7f) << shift;
        sum.checked_add(usize::try_from(digit).ok()?)
    });
    Ok(sum.filter(|_| length <= NUMBER_LEN_MAX).unwrap_or(0))
}

/// A string, coded or as it is (RFC 7541 s5.2).
fn text(bytes: &mut &[u8]) -> Result<Vec<u8>, Cut> {
    let is_coded = bytes.first().ok_or(Cut)? & 0x80 != 0;
    let length = number(bytes, 7)?;
    let (text, rest) = bytes.split_at_checked(length).ok_or(Cut)?;
    *bytes = rest;
    Ok(if is_coded { huffman::decode(text) } else { text.to_vec() })
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
            assert!(!decoder.take(&entry, ROOM).is_broken);
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
        let most = [b"\x3f".as_slice(), &[0xff; 12], b"\0"].concat();
        assert_eq!(decoder.take(&most, ROOM).sizes, [0], "too large a number");
    }

    #[test]
    fn a_block_that_is_cut_means_nothing() {
        for block in [b"\x82\x41\x8c\xf1".as_slice(), b"\x82\x7f", b"\xff\x80", b"\0"] {
            let block = Decoder::default().take(block, ROOM);
            assert!(block.is_broken && block.headers.is_empty());
        }
    }

    #[test]
    fn what_is_told_beside_headers_has_its_place() {
        let faults = ["HTTP2HeaderDecodeIndex0", "HTTP2HeaderDecodeNotIndexed"].map(Note::Fault);
        let mut decoder = Decoder::default();
        let block = decoder.take(b"\x20\x82\x80\xbe\x3e\x40\x01a\x01b\x7e\x01c", ROOM);
        let size = Note::Size(30);
        assert_eq!(block.notes, [(0, Note::Size(0)), (2, faults[0]), (3, faults[1]), (4, size)]);
        let none = ("", "");
        let found = [none, (":method", "GET"), none, none, none, ("a", "b"), ("", "c")];
        assert_eq!(list(&block), found);
        let mut decoder = Decoder::default();
        let block = decoder.take(b"\x40\x01a\x01b\xbe\x7e\x01c\x00\x01a\x01b", ROOM);
        assert_eq!(list(&block), [("a", "b"), ("a", "b"), ("a", "c"), ("a", "b")]);
        assert_eq!(block.notes, [(1, Note::Again), (2, Note::Again)]);
        assert!(!block.is_odd && decoder.take(b"\x80", ROOM).is_odd);
    }
}
