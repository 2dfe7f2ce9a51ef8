//! The keys that gateways know each other by. None of them is ever printed.

use std::fmt;

use aws_lc_rs::agreement::{PrivateKey, X25519};
use zeroize::Zeroizing;

use crate::esp::secret::Secret;

/// Bytes of every key here.
pub const KEY_LEN: usize = 32;

/// An X25519 public key (RFC 7748): a gateway's identity.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PublicKey(pub [u8; KEY_LEN]);

impl fmt::Debug for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("PublicKey(")?;
        self.0[..4].iter().try_for_each(|byte| write!(f, "{byte:02x}"))?;
        f.write_str("..)")
    }
}

/// The secret half of an identity. Wiped when dropped.
#[derive(Clone)]
pub struct Identity {
    secret: Secret<KEY_LEN>,
    public: PublicKey,
}

impl Identity {
    /// The identity of these 32 random bytes; `None` when the cipher library refuses them.
    pub fn new(secret: Zeroizing<[u8; KEY_LEN]>) -> Option<Self> {
        let key = PrivateKey::from_private_key(&X25519, &secret[..]).ok()?;
        let public = key.compute_public_key().ok()?.as_ref().try_into().ok()?;
        Some(Self { secret: Secret::of(&secret), public: PublicKey(public) })
    }

    /// The half that peers are told.
    pub fn public(&self) -> PublicKey {
        self.public
    }

    pub(super) fn secret(&self) -> &[u8; KEY_LEN] {
        &self.secret
    }
}

impl fmt::Debug for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Identity({:?})", self.public)
    }
}

/// A secret that two gateways share beside their identities: without it a stolen identity, or a
/// machine that breaks X25519, is not enough. Wiped when dropped.
#[derive(Clone, PartialEq, Eq)]
pub struct PresharedKey(Secret<KEY_LEN>);

impl PresharedKey {
    /// These 32 bytes.
    pub fn new(bytes: Zeroizing<[u8; KEY_LEN]>) -> Self {
        Self(Secret::of(&bytes))
    }

    /// What the construction takes where there is none: zeros, as WireGuard does.
    pub fn none() -> Self {
        Self(Secret::of(&[0; KEY_LEN]))
    }

    pub(super) fn bytes(&self) -> &[u8; KEY_LEN] {
        &self.0
    }
}

impl fmt::Debug for PresharedKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("PresharedKey(..)")
    }
}

/// Where random bytes come from: the engine has no source of its own.
pub trait Entropy {
    /// Fills `bytes` with bytes that nobody can guess.
    fn fill(&mut self, bytes: &mut [u8]);

    /// 32 of them.
    fn seed(&mut self) -> Zeroizing<[u8; KEY_LEN]> {
        let mut seed = Zeroizing::new([0; KEY_LEN]);
        self.fill(&mut seed[..]);
        seed
    }
}

impl<F: FnMut(&mut [u8])> Entropy for F {
    fn fill(&mut self, bytes: &mut [u8]) {
        self(bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_public_key_is_what_wg_pubkey_makes_of_the_secret() {
        let secret = std::array::from_fn(|i| i as u8 + 1);
        let identity = Identity::new(Zeroizing::new(secret)).unwrap();
        let hex: String = identity.public().0.iter().map(|byte| format!("{byte:02x}")).collect();
        let known = "07a37cbc142093c8b755dc1b10e86cb426374ad16aa853ed0bdfc0b2b86d1c7c";
        assert_eq!(hex, known);
    }

    #[test]
    fn no_debug_text_shows_a_secret() {
        let identity = Identity::new(Zeroizing::new([0xa7; 32])).unwrap();
        let text = format!("{identity:?} {:?}", PresharedKey::new(Zeroizing::new([0xa7; 32])));
        assert!(!text.contains("a7a7") && !text.contains("167"), "{text}");
    }
}
