//! Keys of a connection's first packets, which whoever saw its first number can derive
//! (RFC 9001 s5, RFC 9369 s3.3).

use ring::aead::quic::{AES_128 as HEADER_AES_128, HeaderProtectionKey};
use ring::aead::{AES_128_GCM, Aad, LessSafeKey, Nonce, UnboundKey};
use ring::hkdf::{HKDF_SHA256, KeyType, Prk, Salt};

use super::packet::{DRAFT_MASK, DRAFTS, VERSION_1, VERSION_2};
use crate::heap::no_heap;

/// Of version 1, and of drafts 33 and 34.
const SALT_1: [u8; 20] = [
    0x38, 0x76, 0x2c, 0xf7, 0xf5, 0x59, 0x34, 0xb3, 0x4d, 0x17, 0x9a, 0xe6, 0xa4, 0xc8, 0x0c, 0xad,
    0xcc, 0xbb, 0x7f, 0x0a,
];
const SALT_2: [u8; 20] = [
    0x0d, 0xed, 0xe3, 0xde, 0xf7, 0x00, 0xa6, 0xdb, 0x81, 0x93, 0x81, 0xbe, 0x6e, 0x26, 0x9d, 0xcb,
    0xf9, 0xbd, 0x2e, 0xd9,
];
/// Of drafts 29 to 32.
const SALT_DRAFT_29: [u8; 20] = [
    0xaf, 0xbf, 0xec, 0x28, 0x99, 0x93, 0xd2, 0x4c, 0x9e, 0x97, 0x86, 0xf1, 0x9c, 0x61, 0x11, 0xe0,
    0x43, 0x90, 0xa8, 0x99,
];
/// Bytes of a packet that its header's mask is made from, and of the longest packet number before.
const SAMPLE_LEN: usize = 16;
const NUMBER_LEN_MAX: usize = 4;

/// Keys of both sides.
#[derive(Debug)]
pub(super) struct Keys {
    sides: [SideKeys; 2],
}

no_heap!(Keys);

struct SideKeys {
    header: HeaderProtectionKey,
    packet: LessSafeKey,
    iv: [u8; 12],
}

impl std::fmt::Debug for SideKeys {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("SideKeys")
    }
}

impl Keys {
    /// Of a connection of that version whose client first sent to `destination`; `None`: nobody
    /// here knows how to.
    pub(super) fn of(version: u32, destination: &[u8]) -> Option<Self> {
        let salt = salt(version)?;
        let words: [&[u8]; 3] = match version {
            VERSION_2 => [b"quicv2 key", b"quicv2 iv", b"quicv2 hp"],
            _ => [b"quic key", b"quic iv", b"quic hp"],
        };
        let initial = Salt::new(HKDF_SHA256, &salt).extract(destination);
        let side = |label: &[u8]| {
            let secret: [u8; 32] = expand(&initial, label)?;
            let secret = Prk::new_less_safe(HKDF_SHA256, &secret);
            let (key, mask): ([u8; 16], [u8; 16]) =
                (expand(&secret, words[0])?, expand(&secret, words[2])?);
            Some(SideKeys {
                header: HeaderProtectionKey::new(&HEADER_AES_128, &mask).ok()?,
                packet: LessSafeKey::new(UnboundKey::new(&AES_128_GCM, &key).ok()?),
                iv: expand(&secret, words[1])?,
            })
        };
        Some(Self { sides: [side(b"client in")?, side(b"server in")?] })
    }

    /// What a side's packet says whose number begins at `head`; `None`: it was made with other
    /// keys, or changed.
    pub(super) fn open(&self, side: usize, packet: &[u8], head: usize) -> Option<Vec<u8>> {
        let keys = &self.sides[side];
        let sample = packet.get(head + NUMBER_LEN_MAX..head + NUMBER_LEN_MAX + SAMPLE_LEN)?;
        let mask = keys.header.new_mask(sample).ok()?;
        let mut bytes = packet.to_vec();
        bytes[0] ^= mask[0] & 0x0f;
        let length = usize::from(bytes[0] & 3) + 1;
        let mut nonce = keys.iv;
        for place in 0..length {
            bytes[head + place] ^= mask[1 + place];
            nonce[12 - length + place] ^= bytes[head + place];
        }
        let (aad, sealed) = bytes.split_at_mut(head + length);
        let nonce = Nonce::assume_unique_for_key(nonce);
        let opened = keys.packet.open_in_place(nonce, Aad::from(&*aad), sealed).ok()?;
        Some(opened.to_vec())
    }

    /// A client's packet of number 0, of one byte, behind `head`.
    #[cfg(test)]
    pub(super) fn seal(&self, head: &[u8], frames: &[u8]) -> Vec<u8> {
        let keys = &self.sides[0];
        let mut packet = [head, &[0]].concat();
        let (aad, mut sealed) = (Aad::from(packet.clone()), frames.to_vec());
        let nonce = Nonce::assume_unique_for_key(keys.iv);
        keys.packet.seal_in_place_append_tag(nonce, aad, &mut sealed).unwrap();
        packet.extend(sealed);
        let sample = head.len() + NUMBER_LEN_MAX;
        let mask = keys.header.new_mask(&packet[sample..sample + SAMPLE_LEN]).unwrap();
        packet[0] ^= mask[0] & 0x0f;
        packet[head.len()] ^= mask[1];
        packet
    }
}

/// Whether keys of that version can be made.
pub(super) fn are_known(version: u32) -> bool {
    salt(version).is_some()
}

fn salt(version: u32) -> Option<[u8; 20]> {
    Some(match version {
        VERSION_1 => SALT_1,
        VERSION_2 => SALT_2,
        draft if draft & DRAFT_MASK == DRAFTS => match draft & !DRAFT_MASK {
            29..=32 => SALT_DRAFT_29,
            33 | 34 => SALT_1,
            _ => return None,
        },
        _ => return None,
    })
}

/// A length of key material.
struct Length(usize);

impl KeyType for Length {
    fn len(&self) -> usize {
        self.0
    }
}

/// HKDF-Expand-Label with an empty context (RFC 8446 s7.1).
fn expand<const N: usize>(secret: &Prk, label: &[u8]) -> Option<[u8; N]> {
    const PREFIX: &[u8] = b"tls13 ";
    let lengths = [0, N as u8, (PREFIX.len() + label.len()) as u8];
    let info = [&lengths[..], PREFIX, label, &[0]];
    let mut bytes = [0; N];
    secret.expand(&info, Length(N)).ok()?.fill(&mut bytes).ok()?;
    Some(bytes)
}
