//! Layout of ESP (RFC 4303) and of EtherIP (RFC 3378) inside it. No keys here.

use zerocopy::network_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// What stands before the ciphertext, in clear.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned,
)]
#[repr(C)]
pub struct EspHeader {
    /// Security parameters index; 0 never, 1-255 reserved.
    pub spi: U32,
    /// Low 32 bits of the sequence number.
    pub sequence: U32,
}

/// The last two bytes of the plaintext, behind the padding 1, 2, 3, ...
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned,
)]
#[repr(C)]
pub struct EspTrailer {
    /// Bytes of padding before this one.
    pub pad_len: u8,
    /// Protocol of the payload.
    pub next_header: u8,
}

/// Bytes of the explicit initialisation vector of AES-GCM in ESP (RFC 4106).
pub const GCM_IV_LEN: usize = 8;
/// Bytes of the integrity check value: 128 bits.
pub const ICV_LEN: usize = 16;
/// The plaintext with its trailer is a multiple of this many bytes.
pub const ALIGNMENT: usize = 4;
/// Bytes of the non-ESP marker that tells IKE from ESP on port 4500 (RFC 3948 s2.2).
pub const NON_ESP_MARKER_LEN: usize = 4;

/// Bytes of padding for a payload of `payload_len` bytes.
#[inline]
pub const fn pad_len(payload_len: usize) -> usize {
    (payload_len + size_of::<EspTrailer>()).wrapping_neg() % ALIGNMENT
}

/// EtherIP: two bytes before a whole Ethernet frame.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned,
)]
#[repr(C)]
pub struct EtherIpHeader {
    /// Version 3 in the high four bits, zeros below.
    pub version: U16,
}

impl EtherIpHeader {
    /// The only value a receiver takes.
    pub const VERSION_3: EtherIpHeader = EtherIpHeader { version: U16::new(0x3000) };
}

impl EspHeader {
    /// Its length in bytes.
    pub const LEN: usize = 8;
}

const _: () = assert!(size_of::<EspHeader>() == EspHeader::LEN);
const _: () = assert!(size_of::<EspTrailer>() == 2);
const _: () = assert!(size_of::<EtherIpHeader>() == 2);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn padding_fills_payload_and_trailer_to_words() {
        assert_eq!([0, 1, 2, 3, 4].map(pad_len), [2, 1, 0, 3, 2]);
    }
}
