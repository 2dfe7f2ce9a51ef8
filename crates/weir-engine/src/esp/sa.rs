//! What two peers agree on for one direction: SPI, key, salt, numbering, replay window.

use std::fmt;

use aws_lc_rs::hmac;
use zeroize::Zeroizing;

use super::aead::{Aead, Algorithm, Provider};
use super::secret::Secret;
use super::wireguard;

/// A security parameters index (RFC 4303 s2.1): how the receiver finds the association.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Spi(u32);

impl Spi {
    /// The index `value`.
    ///
    /// # Errors
    /// [`SaError::ReservedSpi`] for 0 to 255, which RFC 4303 s2.1 keeps back.
    pub const fn new(value: u32) -> Result<Self, SaError> {
        if value < 256 { Err(SaError::ReservedSpi { spi: value }) } else { Ok(Self(value)) }
    }

    /// Its number.
    pub const fn value(self) -> u32 {
        self.0
    }
}

/// A packet's place in its association: 64 bits with extended numbering, else 32. The first is 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Sequence(pub u64);

impl Sequence {
    /// The half that travels (RFC 4303 s2.2).
    pub const fn low(self) -> u32 {
        self.0 as u32
    }

    /// The half that only the ICV covers (RFC 4303 s2.2.1).
    pub const fn high(self) -> u32 {
        (self.0 >> 32) as u32
    }
}

/// The four bytes that key exchange or configuration adds to the key; they open every nonce
/// (RFC 4106 s4).
#[derive(Clone, PartialEq, Eq)]
pub struct Salt(Zeroizing<[u8; 4]>);

impl Salt {
    /// These four bytes.
    pub fn new(bytes: [u8; 4]) -> Self {
        Self(Zeroizing::new(bytes))
    }

    pub(super) fn bytes(&self) -> [u8; 4] {
        *self.0
    }
}

impl fmt::Debug for Salt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Salt(..)")
    }
}

/// A cipher key. Wiped when dropped; never printed.
#[derive(Clone, PartialEq, Eq)]
pub enum AeadKey {
    /// 16 bytes: AES-128-GCM.
    Aes128(Secret<16>),
    /// 32 bytes: AES-256-GCM.
    Aes256(Secret<32>),
    /// 32 bytes: ChaCha20-Poly1305 (RFC 8439). The association then speaks WireGuard's data
    /// messages instead of ESP ([`super::wireguard`]).
    ChaCha20(Secret<32>),
}

impl AeadKey {
    /// An AES key of 16 or 32 bytes.
    ///
    /// # Errors
    /// [`SaError::KeyLength`] for any other length.
    pub fn new(bytes: &[u8]) -> Result<Self, SaError> {
        if let Ok(key) = bytes.try_into() {
            return Ok(Self::Aes128(Secret::of(key)));
        }
        match bytes.try_into() {
            Ok(key) => Ok(Self::Aes256(Secret::of(key))),
            Err(_) => Err(SaError::KeyLength { len: bytes.len() }),
        }
    }

    fn bytes(&self) -> &[u8] {
        match self {
            Self::Aes128(key) => &key[..],
            Self::Aes256(key) | Self::ChaCha20(key) => &key[..],
        }
    }

    /// The cipher's name as `ip xfrm` and the status output print it.
    pub const fn algorithm(&self) -> &'static str {
        match self {
            Self::Aes128(_) => "aes-128-gcm",
            Self::Aes256(_) => "aes-256-gcm",
            Self::ChaCha20(_) => "chacha20-poly1305",
        }
    }

    /// The expanded key, ready for use.
    pub(super) fn expand(&self, provider: Provider) -> Result<Aead, SaError> {
        let algorithm = match self {
            Self::Aes128(_) => Algorithm::Aes128Gcm,
            Self::Aes256(_) => Algorithm::Aes256Gcm,
            Self::ChaCha20(_) => Algorithm::ChaCha20Poly1305,
        };
        Aead::new(provider, algorithm, self.bytes())
            .map_err(|_| SaError::KeyLength { len: self.bytes().len() })
    }
}

impl fmt::Debug for AeadKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "AeadKey({}, ..)", self.algorithm())
    }
}

/// Names key and salt without telling them: kept state belongs to one fingerprint, and two
/// associations that seal must never share one (their nonces would repeat).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Fingerprint(pub [u8; 8]);

impl fmt::Display for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// The parameters of one association, one direction.
#[derive(Clone, Debug)]
pub struct SaParameters {
    /// How the receiver finds it.
    pub spi: Spi,
    /// The cipher key.
    pub key: AeadKey,
    /// The nonce's first four bytes.
    pub salt: Salt,
    /// 64-bit sequence numbers (RFC 4303 s2.2.1). Both ends must agree. Without them an association
    /// ends after 2^32 packets: 20 minutes at 3.5 M packets/s.
    pub extended_sequence: bool,
    /// How many packets late one may arrive, in packets: 64 to 8192, a multiple of 64. RDMA over
    /// several paths needs more than IPsec's customary 64; each 64 cost 8 bytes.
    pub replay_window: u32,
}

impl SaParameters {
    /// The replay window unless configured: a full batch from each of 16 queues out of order.
    pub const DEFAULT_REPLAY_WINDOW: u32 = 1024;

    /// Parameters from keying material as RFC 4106 s8.1 and `ip xfrm` write it: the key and then
    /// four bytes of salt. Extended numbering, default window.
    ///
    /// # Errors
    /// [`SaError::KeyLength`] unless there are 20 or 36 bytes.
    pub fn new(spi: Spi, keying_material: &[u8]) -> Result<Self, SaError> {
        let wrong = SaError::KeyLength { len: keying_material.len().saturating_sub(4) };
        let (key, salt) = keying_material.split_last_chunk::<4>().ok_or(wrong)?;
        Ok(Self {
            spi,
            key: AeadKey::new(key)?,
            salt: Salt::new(*salt),
            extended_sequence: true,
            replay_window: Self::DEFAULT_REPLAY_WINDOW,
        })
    }

    /// Parameters of WireGuard's data messages for the receiver's index `receiver`.
    pub fn wireguard(receiver: Spi, key: &[u8; 32]) -> Self {
        Self {
            spi: receiver,
            key: AeadKey::ChaCha20(Secret::of(key)),
            salt: Salt::new([0; 4]),
            extended_sequence: true,
            replay_window: Self::DEFAULT_REPLAY_WINDOW,
        }
    }

    /// Whether packets have WireGuard's form, and not ESP's.
    pub fn is_wireguard(&self) -> bool {
        matches!(self.key, AeadKey::ChaCha20(_))
    }

    /// Key and salt as [`SaParameters::new`] takes them: for who asked for the keys themselves.
    pub fn keying_material(&self) -> Zeroizing<Vec<u8>> {
        let mut material = Zeroizing::new(Vec::with_capacity(36));
        material.extend_from_slice(self.key.bytes());
        material.extend_from_slice(&self.salt.bytes());
        material
    }

    /// The name of key and salt.
    pub fn fingerprint(&self) -> Fingerprint {
        let key = hmac::Key::new(hmac::HMAC_SHA256, self.key.bytes());
        let mut context = hmac::Context::with_key(&key);
        context.update(b"weir association state");
        context.update(&self.salt.bytes());
        let mut fingerprint = [0; 8];
        fingerprint.copy_from_slice(&context.sign().as_ref()[..8]);
        Fingerprint(fingerprint)
    }

    /// The first number that may not be used: numbering never wraps (RFC 4303 s3.3.3).
    pub(super) const fn sequence_end(&self) -> u64 {
        match (&self.key, self.extended_sequence) {
            (AeadKey::ChaCha20(_), _) => wireguard::COUNTER_END,
            (_, true) => u64::MAX,
            (_, false) => 1 << 32,
        }
    }
}

/// Why an association cannot be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SaError {
    /// The SPI is one that RFC 4303 keeps back.
    #[error("SPI {spi} is reserved (RFC 4303 section 2.1); choose one from 256 upwards")]
    ReservedSpi {
        /// The refused number.
        spi: u32,
    },
    /// The key has no length that AES-GCM knows.
    #[error("key of {len} bytes; AES-GCM needs 16 or 32 bytes, followed by 4 bytes of salt")]
    KeyLength {
        /// Bytes of key, without the salt.
        len: usize,
    },
    /// The window is out of bounds or no multiple of 64.
    #[error("replay window of {window} packets; choose a multiple of 64 from 64 to 8192")]
    ReplayWindow {
        /// The refused size.
        window: u32,
    },
    /// Bytes that are no state, or were damaged.
    #[error("kept association state is damaged: {what}; install a new key, then remove the state")]
    StateDamaged {
        /// What is wrong with it.
        what: &'static str,
    },
    /// The state was kept for another key.
    #[error("kept association state belongs to key {found}, this one is {expected}")]
    StateForeign {
        /// The key that the state was kept for.
        found: Fingerprint,
        /// The key at hand.
        expected: Fingerprint,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reserved_spis_are_refused() {
        assert_eq!(Spi::new(0), Err(SaError::ReservedSpi { spi: 0 }));
        assert_eq!(Spi::new(255), Err(SaError::ReservedSpi { spi: 255 }));
        assert_eq!(Spi::new(256).map(Spi::value), Ok(256));
    }

    #[test]
    fn keys_of_other_lengths_are_refused() {
        let spi = Spi::new(256).unwrap();
        for len in [0, 3, 4, 16, 19, 21, 28, 32, 35, 37] {
            let result = SaParameters::new(spi, &vec![7; len]);
            assert!(matches!(result, Err(SaError::KeyLength { .. })), "{len} bytes");
        }
        assert!(SaParameters::new(spi, &[7; 20]).is_ok());
        assert!(SaParameters::new(spi, &[7; 36]).is_ok());
    }

    #[test]
    fn debug_output_tells_no_key_byte() {
        let parameters = SaParameters::new(Spi::new(4096).unwrap(), &[0xa7; 36]).unwrap();
        let text = format!("{parameters:?}");
        assert!(!text.contains("167") && !text.to_lowercase().contains("a7"), "{text}");
        assert!(text.contains("aes-256-gcm"), "{text}");
    }

    #[test]
    fn fingerprints_tell_key_and_salt_apart_but_not_spi() {
        let of = |spi, key: u8, salt: u8| {
            let mut material = [key; 36];
            material[32..].fill(salt);
            SaParameters::new(Spi::new(spi).unwrap(), &material).unwrap().fingerprint()
        };
        assert_eq!(of(256, 1, 1), of(257, 1, 1));
        assert_ne!(of(256, 1, 1), of(256, 2, 1));
        assert_ne!(of(256, 1, 1), of(256, 1, 2));
    }
}
