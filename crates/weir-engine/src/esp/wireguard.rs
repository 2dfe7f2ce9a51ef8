//! WireGuard's data messages (whitepaper s5.4.6), for peers that are standard clients.
//!
//! ```text
//!   4 0 0 0 | receiver 4 | counter 8 | IP packet, zeros to 16 bytes | tag 16
//!   <------- 16 bytes, not authenticated -----><--- encrypted --->
//! ```
//!
//! All fields little-endian. The nonce is four zero bytes and the counter. Header and tag are as
//! long as ESP's with AES-GCM, so both forms live in the same associations
//! ([`super::seal::SealingSa`], [`super::open::OpeningSa`]): one counter that refuses to repeat,
//! one window that refuses replays. Associations number from 1, and WireGuard's counters from 0.

use aws_lc_rs::aead::NONCE_LEN;

use super::next_header;
use super::sa::{Sequence, Spi};
use super::{HEADER_LEN, ICV_LEN};

/// The first four bytes of a data message.
pub const DATA: [u8; 4] = [4, 0, 0, 0];

/// Text is padded to a multiple of so many bytes.
pub(super) const PADDING: usize = 16;

/// Counters from this one on are not used (whitepaper s6.1: Reject-After-Messages).
pub(super) const COUNTER_END: u64 = u64::MAX - (1 << 13);

/// Bytes of a data message that carries `inner_len` bytes.
pub const fn data_len(inner_len: usize) -> usize {
    HEADER_LEN + inner_len.next_multiple_of(PADDING) + ICV_LEN
}

/// The most inner bytes that fit a data message of `budget` bytes.
pub const fn max_inner(budget: usize) -> usize {
    budget.saturating_sub(HEADER_LEN + ICV_LEN) / PADDING * PADDING
}

/// The receiver's index in a datagram's payload that is a data message.
#[inline]
pub(crate) fn receiver(payload: &[u8]) -> Option<u32> {
    let (header, _) = payload.split_first_chunk::<HEADER_LEN>()?;
    let [a, b, c, d, receiver @ .., _, _, _, _, _, _, _, _] = *header;
    (payload.len() >= data_len(0) && [a, b, c, d] == DATA).then(|| u32::from_le_bytes(receiver))
}

/// The header of the message that carries `sequence`.
#[inline]
pub(super) fn header(receiver: Spi, sequence: Sequence) -> [u8; HEADER_LEN] {
    let mut header = [0; HEADER_LEN];
    header[..4].copy_from_slice(&DATA);
    header[4..8].copy_from_slice(&receiver.value().to_le_bytes());
    header[8..].copy_from_slice(&counter(sequence).to_le_bytes());
    header
}

/// The sequence number that a header of `receiver` carries; `None`: it is none of ours, or its
/// counter is beyond what may be used.
#[inline]
pub(super) fn sequence(receiver: Spi, header: &[u8; HEADER_LEN]) -> Option<Sequence> {
    let [a, b, c, d, index @ .., _, _, _, _, _, _, _, _] = *header;
    let [_, _, _, _, _, _, _, _, counter @ ..] = *header;
    let counter = u64::from_le_bytes(counter);
    let is_ours = [a, b, c, d] == DATA && u32::from_le_bytes(index) == receiver.value();
    (is_ours && counter < COUNTER_END).then_some(Sequence(counter + 1))
}

/// The nonce of the message that carries `sequence`.
#[inline]
pub(super) fn nonce(sequence: Sequence) -> [u8; NONCE_LEN] {
    let mut bytes = [0; NONCE_LEN];
    bytes[4..].copy_from_slice(&counter(sequence).to_le_bytes());
    bytes
}

fn counter(sequence: Sequence) -> u64 {
    sequence.0.saturating_sub(1)
}

/// Length and protocol of the packet in decrypted text, whose padding tells neither; a message
/// without text is a sign of life. `None`: it is no IP packet, or longer than its text.
#[inline]
pub(super) fn inner_packet(text: &[u8]) -> Option<(usize, u8)> {
    let Some(first) = text.first() else { return Some((0, next_header::DUMMY)) };
    let word = |at: usize| Some(usize::from(u16::from_be_bytes(*text.get(at..)?.first_chunk()?)));
    let (len, protocol) = match first >> 4 {
        4 => (word(2)?, next_header::IPV4),
        6 => (word(4)? + 40, next_header::IPV6),
        _ => return None,
    };
    (len <= text.len()).then_some((len, protocol))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_tells_receiver_and_counter_and_the_first_counter_is_zero() {
        let receiver_index = Spi::new(0x1234_5678).unwrap();
        let first = header(receiver_index, Sequence(1));
        assert_eq!(first, [4, 0, 0, 0, 0x78, 0x56, 0x34, 0x12, 0, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(sequence(receiver_index, &first), Some(Sequence(1)));
        assert_eq!(sequence(Spi::new(999).unwrap(), &first), None, "another's");
        let mut message = first.to_vec();
        message.resize(data_len(0), 0);
        assert_eq!(receiver(&message), Some(0x1234_5678));
        assert_eq!(receiver(&message[..31]), None, "too short for a tag");
    }

    #[test]
    fn counters_that_must_not_be_used_are_refused() {
        let receiver = Spi::new(256).unwrap();
        let mut bytes = header(receiver, Sequence(1));
        bytes[8..].copy_from_slice(&COUNTER_END.to_le_bytes());
        assert_eq!(sequence(receiver, &bytes), None);
    }

    #[test]
    fn the_packet_ends_where_its_own_header_says() {
        let mut packet = vec![0; 48];
        packet[0] = 0x45;
        packet[3] = 41;
        assert_eq!(inner_packet(&packet), Some((41, next_header::IPV4)));
        packet[3] = 49;
        assert_eq!(inner_packet(&packet), None, "longer than the text");
        packet[0] = 0x60;
        packet[4..6].copy_from_slice(&[0, 8]);
        assert_eq!(inner_packet(&packet), Some((48, next_header::IPV6)));
        assert_eq!(inner_packet(&[]), Some((0, next_header::DUMMY)));
        assert_eq!(inner_packet(&[0x10]), None);
    }

    #[test]
    fn max_inner_is_what_fits() {
        for budget in 32..200 {
            let inner = max_inner(budget);
            assert!(data_len(inner) <= budget && data_len(inner + 1) > budget);
        }
    }
}
