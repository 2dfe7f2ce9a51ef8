//! Records behind those that are looked into: their heads are in clear.

use super::{RECORD_CHANGE_CIPHER_SPEC, RECORD_HEARTBEAT};

/// Bytes of a record's head: type, version, length.
const HEAD_LEN: usize = 5;

/// What is left of the record at hand, or what has come of the next one's head.
#[derive(Debug, Default)]
pub(super) struct Walk {
    head: [u8; HEAD_LEN],
    have: usize,
    left: usize,
    /// Nobody knows where the next one begins.
    is_lost: bool,
    /// What came is no record.
    is_odd: bool,
}

impl Walk {
    /// The type and length of the next record whose head is whole with these bytes, which it takes.
    pub(super) fn next(&mut self, bytes: &mut &[u8]) -> Option<(u8, usize)> {
        if self.is_lost {
            return None;
        }
        let passed = self.left.min(bytes.len());
        self.left -= passed;
        *bytes = &bytes[passed..];
        let count = (HEAD_LEN - self.have).min(bytes.len());
        self.head[self.have..self.have + count].copy_from_slice(&bytes[..count]);
        *bytes = &bytes[count..];
        self.have += count;
        if self.have < HEAD_LEN {
            return None;
        }
        let [kind, major, _, high, low] = self.head;
        self.have = 0;
        self.left = usize::from(u16::from_be_bytes([high, low]));
        self.is_odd = major != 3 || !(RECORD_CHANGE_CIPHER_SPEC..=RECORD_HEARTBEAT).contains(&kind);
        self.is_lost = self.is_odd;
        (!self.is_lost).then_some((kind, self.left))
    }

    /// Whether something came that is no record.
    pub(super) fn is_odd(&self) -> bool {
        self.is_odd
    }

    /// Bytes are missing.
    pub(super) fn lose(&mut self) {
        self.is_lost = true;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn heads_are_found_however_the_stream_is_cut() {
        let stream =
            [&[23, 3, 3, 0, 2, 9, 9, 24, 3, 3, 0, 0, 24, 3, 1, 1, 0][..], &[7; 256]].concat();
        for piece in 1..stream.len() {
            let mut walk = Walk::default();
            let mut found = Vec::new();
            for mut bytes in stream.chunks(piece) {
                while let Some(record) = walk.next(&mut bytes) {
                    found.push(record);
                }
            }
            assert_eq!(found, [(23, 2), (24, 0), (24, 256)], "{piece}");
        }
        let mut walk = Walk::default();
        assert_eq!(walk.next(&mut &b"GET / HTTP/1.1\r\n"[..]), None);
        assert_eq!(walk.next(&mut &[23, 3, 3, 0, 0][..]), None, "it is lost");
    }
}
