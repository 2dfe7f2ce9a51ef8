//! ESP: packets in clear to sealed packets and back (RFC 4303, AES-GCM after RFC 4106).
//!
//! ```text
//!   outer.rs                                       seal.rs / open.rs
//!   +----------+------+-----+  +-----+----------+----+---------------+---------+----+-----+
//!   | Ethernet |  IP  | UDP |  | SPI | sequence | IV | inner payload | padding | nh | ICV |
//!   +----------+------+-----+  +-----+----------+----+---------------+---------+----+-----+
//!                              |<---- 16 bytes ---->|<-------- encrypted ------>|
//!                              |<- authenticated ------------------------------>|
//! ```
//!
//! [`seal::SealingSa`] and [`open::OpeningSa`] are different types: one key never does both.
//! Numbers come from [`nonce`], which refuses to repeat one; [`replay`] refuses to accept one
//! twice. Nothing here allocates after an association was made.

pub mod aead;
pub mod sa;
pub mod secret;
pub mod spread;

pub mod nonce;
pub mod seal;

pub mod outer;
pub mod silent;
pub mod transport;
pub mod wireguard;

pub mod open;
pub mod replay;

pub mod state;

pub mod icrc_tag;

/// Bytes before the inner payload: SPI, sequence number, explicit IV (RFC 4303 s2, RFC 4106 s3).
pub const HEADER_LEN: usize = 16;

/// Bytes of the integrity check value. The short forms of RFC 4106 s6 are not offered.
pub const ICV_LEN: usize = 16;

/// Pad length and next header (RFC 4303 s2.5, s2.6).
pub(crate) const TRAILER_LEN: usize = 2;

/// Padding, pad length and next header together end on this boundary (RFC 4303 s2.4).
const ALIGNMENT: usize = 4;

/// Text of whole cipher blocks spares the cipher an odd end (docs/adr/0032).
const BLOCK: usize = 16;

/// Padding begins so (RFC 4303 s2.4).
const PADDING: [u8; BLOCK] = [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16];

/// Next-header values that ESP carries (IANA protocol numbers).
pub mod next_header {
    /// An IPv4 packet: tunnel mode.
    pub const IPV4: u8 = 4;
    /// TCP, in transport mode.
    pub const TCP: u8 = 6;
    /// UDP, in transport mode.
    pub const UDP: u8 = 17;
    /// An IPv6 packet: tunnel mode.
    pub const IPV6: u8 = 41;
    /// ESP itself, as the outer header names it.
    pub const ESP: u8 = 50;
    /// Nothing: a dummy packet that hides when traffic flows (RFC 4303 s2.6).
    pub const DUMMY: u8 = 59;
    /// An EtherIP header and an Ethernet frame (RFC 3378).
    pub const ETHERIP: u8 = 97;
}

/// Bytes of padding that an inner payload of `inner_len` bytes needs, 0 to 3.
const fn padding_len(inner_len: usize) -> usize {
    (ALIGNMENT - (inner_len + TRAILER_LEN) % ALIGNMENT) % ALIGNMENT
}

/// Bytes of padding that make whole cipher blocks of the text, 0 to 15, unless that would be more
/// than `text_max` bytes: then [`padding_len`].
const fn block_padding_len(inner_len: usize, text_max: usize) -> usize {
    let text = inner_len + TRAILER_LEN;
    let whole = text.next_multiple_of(BLOCK);
    if whole <= text_max { whole - text } else { padding_len(inner_len) }
}

/// Bytes of the shortest ESP packet, header through ICV, that carries `inner_len` bytes.
pub const fn esp_len(inner_len: usize) -> usize {
    HEADER_LEN + inner_len + padding_len(inner_len) + TRAILER_LEN + ICV_LEN
}

/// The most inner bytes that fit an ESP packet of `budget` bytes; `None` when not even an empty
/// payload fits.
pub const fn max_inner(budget: usize) -> Option<usize> {
    if budget < esp_len(0) {
        return None;
    }
    let text = (budget - HEADER_LEN - ICV_LEN) / ALIGNMENT * ALIGNMENT;
    Some(text - TRAILER_LEN)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn max_inner_is_the_exact_inverse_of_esp_len() {
        assert_eq!(max_inner(35), None);
        for budget in 36..2000 {
            let inner = max_inner(budget).expect("36 bytes carry an empty payload");
            assert!(esp_len(inner) <= budget, "{inner} bytes fit {budget}");
            assert!(esp_len(inner + 1) > budget, "{inner} bytes are the most for {budget}");
        }
    }

    #[test]
    fn text_is_whole_blocks_where_they_fit_and_else_the_least() {
        for (inner, max) in (0..64).flat_map(|inner| (0..80).map(move |max| (inner, max))) {
            let text = inner + block_padding_len(inner, max) + TRAILER_LEN;
            let least = inner + padding_len(inner) + TRAILER_LEN;
            assert!(text == least || text.is_multiple_of(BLOCK) && text <= max, "{inner} of {max}");
            assert!(
                text.is_multiple_of(BLOCK) || least.next_multiple_of(BLOCK) > max,
                "{inner} of {max}"
            );
        }
    }

    #[test]
    fn sealed_text_ends_on_four_bytes() {
        for inner in 0..64 {
            assert_eq!((inner + padding_len(inner) + 2) % 4, 0);
            assert!(padding_len(inner) < 4);
        }
    }
}
