//! TCP (RFC 9293): header, flags and the one option a gateway rewrites.

use zerocopy::network_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Bits of the flag byte.
pub mod flags {
    /// No more data from the sender.
    pub const FIN: u8 = 0x01;
    /// Synchronise sequence numbers.
    pub const SYN: u8 = 0x02;
    /// Reset the connection.
    pub const RST: u8 = 0x04;
    /// Push.
    pub const PSH: u8 = 0x08;
    /// The acknowledgment number is valid.
    pub const ACK: u8 = 0x10;
    /// The urgent pointer is valid.
    pub const URG: u8 = 0x20;
    /// ECN echo.
    pub const ECE: u8 = 0x40;
    /// Congestion window reduced.
    pub const CWR: u8 = 0x80;
}

/// A TCP header without its options.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned,
)]
#[repr(C)]
pub struct TcpHeader {
    /// Source port.
    pub source: U16,
    /// Destination port.
    pub destination: U16,
    /// Sequence number.
    pub sequence: U32,
    /// Acknowledgment number.
    pub acknowledgment: U32,
    /// Header length in words (high four bits).
    pub data_offset: u8,
    /// [`flags`].
    pub flags: u8,
    /// Window, not scaled.
    pub window: U16,
    /// Checksum over pseudo header, header and payload.
    pub checksum: U16,
    /// Urgent pointer.
    pub urgent: U16,
}

impl TcpHeader {
    /// Its length in bytes without options.
    pub const LEN: usize = 20;
    /// Where the checksum stands in it.
    pub const CHECKSUM_OFFSET: usize = 16;

    /// Header bytes, options included, as the header says; sane only from 20.
    #[inline]
    pub fn header_len(&self) -> usize {
        usize::from(self.data_offset >> 4) * 4
    }
}

const _: () = assert!(size_of::<TcpHeader>() == TcpHeader::LEN);

/// Where the two bytes of the maximum segment size stand in `header` (TCP header with options,
/// from its first byte); `None` without that option, or behind a malformed one.
pub fn mss_offset(header: &[u8]) -> Option<usize> {
    const END: u8 = 0;
    const NO_OPERATION: u8 = 1;
    const MSS: u8 = 2;
    let mut offset = TcpHeader::LEN;
    loop {
        match *header.get(offset)? {
            END => return None,
            NO_OPERATION => offset += 1,
            kind => {
                let length = usize::from(*header.get(offset + 1)?);
                if length < 2 || offset + length > header.len() {
                    return None;
                }
                if kind == MSS && length == 4 {
                    return Some(offset + 2);
                }
                offset += length;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_segment_size_is_found_behind_other_options_and_never_outside() {
        let mut header = [0u8; 32];
        header[20..28].copy_from_slice(&[1, 3, 3, 7, 2, 4, 5, 180]);
        assert_eq!(mss_offset(&header), Some(26));
        assert_eq!(mss_offset(&header[..27]), None);
        header[21] = 0;
        assert_eq!(mss_offset(&header), None);
        header[20] = 9;
        assert_eq!(mss_offset(&header), None);
        assert_eq!(mss_offset(&header[..3]), None);
    }
}
