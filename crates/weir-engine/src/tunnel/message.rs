//! What travels by UDP: the messages of WireGuard's handshake, byte for byte, around payloads of
//! our own.
//!
//! ```text
//!   initiation    1 0 0 0 | sender   4 | noise: e 32, s 32+16, payload n+16 | mac1 16 | mac2 16
//!   response      2 0 0 0 | sender   4 | receiver 4 | noise: e 32, payload n+16 | mac1 | mac2
//!   cookie reply  3 0 0 0 | receiver 4 | nonce 24 | cookie 16+16
//! ```
//!
//! `sender` is the SPI under which the sender opens what the other one seals, little-endian.

/// Bytes of each MAC.
pub(super) const MAC_LEN: usize = 16;
/// Bytes of the tag behind each encrypted field.
const TAG_LEN: usize = 16;
const KEY_LEN: usize = 32;
const INITIATION: u32 = 1;
const RESPONSE: u32 = 2;
const COOKIE_REPLY: u32 = 3;
const INITIATION_HEAD: usize = 8;
const RESPONSE_HEAD: usize = 12;
const COOKIE_REPLY_LEN: usize = 64;
const NONCE_LEN: usize = 24;

/// Bytes of an ML-KEM-768 encapsulation key and ciphertext (FIPS 203 s8).
pub(super) const KEM_KEY_LEN: usize = 1184;
pub(super) const KEM_CIPHERTEXT_LEN: usize = 1088;

/// Bytes of a timestamp, TAI64N.
pub(super) const TIMESTAMP_LEN: usize = 12;
/// Bytes of what both ends must agree about.
pub(super) const TERMS_LEN: usize = 4;
/// Bytes of the noise message of WireGuard's own initiation: other handshakes' are longer.
pub(super) const WIREGUARD_INITIATION_LEN: usize = 2 * KEY_LEN + TAG_LEN + TIMESTAMP_LEN + TAG_LEN;

/// Bytes of a responder's number of workers, which is told to who has several.
pub(super) const WORKERS_LEN: usize = 1;

/// The longest message: an initiation with an encapsulation key. Fits the least MTU of IPv6 but
/// for 104 bytes, and every wire that carries RoCE.
pub const MESSAGE_LEN_MAX: usize =
    INITIATION_HEAD + 2 * KEY_LEN + TAG_LEN + PAYLOAD_MAX + TAG_LEN + 2 * MAC_LEN;
pub(super) const PAYLOAD_MAX: usize = TIMESTAMP_LEN + TERMS_LEN + KEM_KEY_LEN;

/// The shortest.
pub const MESSAGE_LEN_MIN: usize = COOKIE_REPLY_LEN;

/// A message as it came, each field at its length.
#[derive(Debug)]
pub(super) enum Message<'a> {
    Initiation { sender: u32, noise: &'a [u8], macs: Macs<'a> },
    Response { sender: u32, receiver: u32, noise: &'a [u8], macs: Macs<'a> },
    CookieReply { receiver: u32, nonce: &'a [u8; NONCE_LEN], sealed: &'a [u8] },
}

/// The end of a message, and what each MAC covers.
#[derive(Clone, Copy, Debug)]
pub(super) struct Macs<'a> {
    pub(super) covered_by_1: &'a [u8],
    pub(super) covered_by_2: &'a [u8],
    pub(super) mac1: &'a [u8; MAC_LEN],
    pub(super) mac2: &'a [u8; MAC_LEN],
}

/// The message in a datagram; `None` when it is none, or of a length that no payload makes.
pub(super) fn parse(datagram: &[u8]) -> Option<Message<'_>> {
    let word = |at: usize| -> Option<u32> {
        Some(u32::from_le_bytes(*datagram.get(at..)?.first_chunk()?))
    };
    match (word(0)?, datagram.len()) {
        (INITIATION, length) if is_initiation(length) => {
            let (noise, macs) = split(datagram, INITIATION_HEAD)?;
            Some(Message::Initiation { sender: word(4)?, noise, macs })
        }
        (RESPONSE, length) if is_response(length) => {
            let (noise, macs) = split(datagram, RESPONSE_HEAD)?;
            Some(Message::Response { sender: word(4)?, receiver: word(8)?, noise, macs })
        }
        (COOKIE_REPLY, COOKIE_REPLY_LEN) => {
            let (nonce, sealed) = datagram[8..].split_first_chunk()?;
            Some(Message::CookieReply { receiver: word(4)?, nonce, sealed })
        }
        _ => None,
    }
}

fn is_initiation(length: usize) -> bool {
    let fixed = INITIATION_HEAD + 2 * KEY_LEN + 2 * TAG_LEN + 2 * MAC_LEN;
    let payloads = [TIMESTAMP_LEN, TIMESTAMP_LEN + TERMS_LEN, PAYLOAD_MAX];
    payloads.iter().any(|payload| length == fixed + payload)
}

fn is_response(length: usize) -> bool {
    let fixed = RESPONSE_HEAD + KEY_LEN + TAG_LEN + 2 * MAC_LEN;
    let payloads = [0, KEM_CIPHERTEXT_LEN].into_iter();
    payloads.flat_map(|kem| [kem, kem + WORKERS_LEN]).any(|payload| length == fixed + payload)
}

fn split(datagram: &[u8], head: usize) -> Option<(&[u8], Macs<'_>)> {
    let (covered_by_2, mac2) = datagram.split_last_chunk()?;
    let (covered_by_1, mac1) = covered_by_2.split_last_chunk()?;
    Some((covered_by_1.get(head..)?, Macs { covered_by_1, covered_by_2, mac1, mac2 }))
}

/// An initiation without its MACs.
pub(super) fn initiation(sender: u32, noise: &[u8]) -> Vec<u8> {
    [&INITIATION.to_le_bytes()[..], &sender.to_le_bytes(), noise].concat()
}

/// A response without its MACs.
pub(super) fn response(sender: u32, receiver: u32, noise: &[u8]) -> Vec<u8> {
    [&RESPONSE.to_le_bytes()[..], &sender.to_le_bytes(), &receiver.to_le_bytes(), noise].concat()
}

/// A whole cookie reply.
pub(super) fn cookie_reply(receiver: u32, nonce: &[u8; NONCE_LEN], sealed: &[u8]) -> Vec<u8> {
    [&COOKIE_REPLY.to_le_bytes()[..], &receiver.to_le_bytes(), nonce, sealed].concat()
}
