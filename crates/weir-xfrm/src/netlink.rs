//! Netlink's framing: messages in a datagram, attributes in a message.

use zerocopy::{FromBytes, Immutable, IntoBytes};

use crate::uapi::Header;

/// Bytes of a message header.
pub const HEADER_LEN: usize = size_of::<Header>();
const ATTRIBUTE_HEADER_LEN: usize = 4;
const ALIGNMENT: usize = 4;
/// The two upper bits of an attribute's type flag nesting and byte order.
const TYPE_MASK: u16 = 0x3fff;

/// The messages of a datagram: header and body. Like the kernel it stops at the first whose length
/// cannot be.
pub fn messages(mut datagram: &[u8]) -> impl Iterator<Item = (Header, &[u8])> {
    std::iter::from_fn(move || {
        let (header, _) = Header::read_from_prefix(datagram).ok()?;
        let length = header.length as usize;
        let body = datagram.get(HEADER_LEN..length)?;
        datagram = datagram.get(length.next_multiple_of(ALIGNMENT)..).unwrap_or_default();
        Some((header, body))
    })
}

/// Type and value of each attribute; stops at the first whose length cannot be.
pub fn attributes(mut bytes: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    std::iter::from_fn(move || {
        let ([length, kind], _) = <[u16; 2]>::read_from_prefix(bytes).ok()?;
        let value = bytes.get(ATTRIBUTE_HEADER_LEN..usize::from(length))?;
        bytes = bytes.get(usize::from(length).next_multiple_of(ALIGNMENT)..).unwrap_or_default();
        Some((kind & TYPE_MASK, value))
    })
}

/// A message in the making.
#[derive(Debug)]
pub struct Writer {
    bytes: Vec<u8>,
}

impl Writer {
    /// Begins a message with `body`; its length is filled in by [`Writer::finish`].
    pub fn new(header: Header, body: &(impl IntoBytes + Immutable + ?Sized)) -> Self {
        Self::with_room(HEADER_LEN + body.as_bytes().len(), header, body)
    }

    /// The same, with room for so many bytes: while a message with a key in it stays within, it
    /// leaves no copy behind.
    pub fn with_room(
        room: usize,
        header: Header,
        body: &(impl IntoBytes + Immutable + ?Sized),
    ) -> Self {
        let mut bytes = Vec::with_capacity(room);
        bytes.extend_from_slice(header.as_bytes());
        bytes.extend_from_slice(body.as_bytes());
        Self { bytes }
    }

    /// Appends an attribute.
    #[must_use]
    pub fn with(mut self, kind: u16, value: &(impl IntoBytes + Immutable + ?Sized)) -> Self {
        self.push(kind, value.as_bytes());
        self
    }

    /// Appends an attribute when there is one.
    #[must_use]
    pub fn with_some(self, kind: u16, value: Option<&(impl IntoBytes + Immutable)>) -> Self {
        match value {
            Some(value) => self.with(kind, value),
            None => self,
        }
    }

    fn push(&mut self, kind: u16, value: &[u8]) {
        self.bytes.resize(self.bytes.len().next_multiple_of(ALIGNMENT), 0);
        let length = (ATTRIBUTE_HEADER_LEN + value.len()).min(usize::from(u16::MAX)) as u16;
        self.bytes.extend(length.to_ne_bytes());
        self.bytes.extend(kind.to_ne_bytes());
        self.bytes.extend_from_slice(&value[..usize::from(length) - ATTRIBUTE_HEADER_LEN]);
    }

    /// The whole message.
    pub fn finish(mut self) -> Vec<u8> {
        self.bytes.resize(self.bytes.len().next_multiple_of(ALIGNMENT), 0);
        let length = self.bytes.len() as u32;
        self.bytes[..4].copy_from_slice(&length.to_ne_bytes());
        self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_again() {
        let header = Header { kind: 7, sequence: 9, ..Header::default() };
        let bytes = Writer::new(header, &[1u8, 2, 3, 4][..]).with(3, b"abc").with(4, &5u32);
        let bytes = bytes.finish();
        let [(header, body)] = messages(&bytes).collect::<Vec<_>>()[..] else { panic!() };
        assert_eq!((header.kind, header.sequence, header.length), (7, 9, 36));
        let found: Vec<_> = attributes(&body[4..]).collect();
        assert_eq!(found, [(3, &b"abc"[..]), (4, &5u32.to_ne_bytes()[..])]);
    }

    #[test]
    fn lengths_that_cannot_be_end_the_walk() {
        for length in [0u32, 15, 17, u32::MAX] {
            let header = Header { length, ..Header::default() };
            assert_eq!(messages(header.as_bytes()).count(), 0, "{length}");
        }
        for length in [0u16, 3, 5, u16::MAX] {
            let bytes = [length.to_ne_bytes(), [1, 0]].concat();
            assert_eq!(attributes(&bytes).count(), 0, "{length}");
        }
    }
}
