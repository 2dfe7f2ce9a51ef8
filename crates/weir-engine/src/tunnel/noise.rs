//! Noise_IKpsk2_25519_ChaChaPoly_BLAKE2s, WireGuard's construction, by the library `snow`.
//!
//! `snow` asks for its primitives here: X25519 and ChaCha20-Poly1305 come from the cipher library
//! that seals packets, and the ephemeral key from bytes that the caller gives, used once.

use std::sync::LazyLock;

use aws_lc_rs::aead::{Aad, CHACHA20_POLY1305, LessSafeKey, Nonce, UnboundKey};
use aws_lc_rs::agreement::{PrivateKey, UnparsedPublicKey, X25519, agree};
use blake2::{Blake2s256, Digest};
use snow::params::{CipherChoice, DHChoice, HashChoice, NoiseParams};
use snow::resolvers::CryptoResolver;
use snow::types::{Cipher, Dh, Hash, Random};
use snow::{Builder, HandshakeState};
use zeroize::Zeroizing;

use super::key::{Identity, KEY_LEN, PresharedKey, PublicKey};

static PARAMETERS: LazyLock<NoiseParams> = LazyLock::new(|| {
    "Noise_IKpsk2_25519_ChaChaPoly_BLAKE2s".parse().expect("a name that the library knows")
});

/// Where the preshared key is mixed in: before the second message's payload.
const PSK_PLACE: u8 = 2;

/// The state of an initiator that will draw `seed` as its ephemeral key.
pub(super) fn initiator(
    identity: &Identity,
    peer: &PublicKey,
    preshared: &PresharedKey,
    prologue: &[u8],
    seed: Zeroizing<[u8; KEY_LEN]>,
) -> Result<HandshakeState, snow::Error> {
    Builder::with_resolver(PARAMETERS.clone(), Box::new(Primitives { seed }))
        .prologue(prologue)?
        .local_private_key(identity.secret())?
        .remote_public_key(&peer.0)?
        .psk(PSK_PLACE, preshared.bytes())?
        .build_initiator()
}

/// The state of a responder, who does not know yet with whom it speaks: see
/// [`set_preshared`].
pub(super) fn responder(
    identity: &Identity,
    prologue: &[u8],
    seed: Zeroizing<[u8; KEY_LEN]>,
) -> Result<HandshakeState, snow::Error> {
    Builder::with_resolver(PARAMETERS.clone(), Box::new(Primitives { seed }))
        .prologue(prologue)?
        .local_private_key(identity.secret())?
        .build_responder()
}

/// Gives a responder the preshared key of the peer that spoke.
pub(super) fn set_preshared(
    state: &mut HandshakeState,
    preshared: &PresharedKey,
) -> Result<(), snow::Error> {
    state.set_psk(usize::from(PSK_PLACE), preshared.bytes())
}

/// Overwrites the copy of the preshared key in a state that is about to be dropped.
pub(super) fn forget_preshared(state: &mut HandshakeState) {
    // The place exists: it is the pattern's.
    let _ = state.set_psk(usize::from(PSK_PLACE), &[0; KEY_LEN]);
}

struct Primitives {
    seed: Zeroizing<[u8; KEY_LEN]>,
}

impl CryptoResolver for Primitives {
    fn resolve_rng(&self) -> Option<Box<dyn Random>> {
        Some(Box::new(Once(Some(self.seed.clone()))))
    }

    fn resolve_dh(&self, choice: &DHChoice) -> Option<Box<dyn Dh>> {
        matches!(choice, DHChoice::Curve25519).then(|| Box::<KeyPair>::default() as Box<dyn Dh>)
    }

    fn resolve_hash(&self, choice: &HashChoice) -> Option<Box<dyn Hash>> {
        matches!(choice, HashChoice::Blake2s).then(|| Box::<Blake2s>::default() as Box<dyn Hash>)
    }

    fn resolve_cipher(&self, choice: &CipherChoice) -> Option<Box<dyn Cipher>> {
        matches!(choice, CipherChoice::ChaChaPoly)
            .then(|| Box::<ChaChaPoly>::default() as Box<dyn Cipher>)
    }
}

/// Random bytes for one ephemeral key; a second request fails rather than repeat them.
struct Once(Option<Zeroizing<[u8; KEY_LEN]>>);

impl Random for Once {
    fn try_fill_bytes(&mut self, bytes: &mut [u8]) -> Result<(), snow::Error> {
        let seed = self.0.take().filter(|seed| seed.len() == bytes.len());
        bytes.copy_from_slice(&seed.ok_or(snow::Error::Rng)?[..]);
        Ok(())
    }
}

#[derive(Default)]
struct KeyPair {
    secret: Zeroizing<[u8; KEY_LEN]>,
    public: [u8; KEY_LEN],
    key: Option<PrivateKey>,
}

impl KeyPair {
    fn expand(&mut self) {
        let key = PrivateKey::from_private_key(&X25519, &self.secret[..]).ok();
        let public = key.as_ref().and_then(|key| key.compute_public_key().ok());
        if let Some(public) = public
            && let Ok(public) = public.as_ref().try_into()
        {
            self.public = public;
        }
        self.key = key;
    }
}

impl Dh for KeyPair {
    fn name(&self) -> &'static str {
        "25519"
    }

    fn pub_len(&self) -> usize {
        KEY_LEN
    }

    fn priv_len(&self) -> usize {
        KEY_LEN
    }

    fn set(&mut self, secret: &[u8]) {
        if secret.len() == KEY_LEN {
            self.secret.copy_from_slice(secret);
            self.expand();
        }
    }

    fn generate(&mut self, random: &mut dyn Random) -> Result<(), snow::Error> {
        random.try_fill_bytes(&mut self.secret[..])?;
        self.expand();
        Ok(())
    }

    fn pubkey(&self) -> &[u8] {
        &self.public
    }

    fn privkey(&self) -> &[u8] {
        &self.secret[..]
    }

    fn dh(&self, public: &[u8], out: &mut [u8]) -> Result<(), snow::Error> {
        let key = self.key.as_ref().ok_or(snow::Error::Dh)?;
        let public = public.get(..KEY_LEN).ok_or(snow::Error::Dh)?;
        let out = out.get_mut(..KEY_LEN).ok_or(snow::Error::Dh)?;
        // Refuses a result of zeros, which a hostile public key would cause (RFC 7748 s6.1).
        agree(key, UnparsedPublicKey::new(&X25519, public), snow::Error::Dh, |secret| {
            out.copy_from_slice(secret);
            Ok(())
        })
    }
}

#[derive(Default)]
struct Blake2s(Blake2s256);

impl Hash for Blake2s {
    fn name(&self) -> &'static str {
        "BLAKE2s"
    }

    fn block_len(&self) -> usize {
        64
    }

    fn hash_len(&self) -> usize {
        32
    }

    fn reset(&mut self) {
        self.0 = Blake2s256::new();
    }

    fn input(&mut self, data: &[u8]) {
        self.0.update(data);
    }

    fn result(&mut self, out: &mut [u8]) {
        out[..32].copy_from_slice(&self.0.finalize_reset());
    }
}

/// Without a key it refuses to open, and what it seals nobody opens: `snow` always sets one first.
#[derive(Default)]
struct ChaChaPoly(Option<LessSafeKey>);

const TAG_LEN: usize = 16;

/// Noise s12.3: four zeros, and the counter in little-endian.
fn nonce(counter: u64) -> Nonce {
    let mut bytes = [0; 12];
    bytes[4..].copy_from_slice(&counter.to_le_bytes());
    Nonce::assume_unique_for_key(bytes)
}

impl Cipher for ChaChaPoly {
    fn name(&self) -> &'static str {
        "ChaChaPoly"
    }

    fn set(&mut self, key: &[u8; 32]) {
        self.0 = UnboundKey::new(&CHACHA20_POLY1305, key).ok().map(LessSafeKey::new);
    }

    fn encrypt(&self, counter: u64, authentic: &[u8], plain: &[u8], out: &mut [u8]) -> usize {
        let (text, tag) = out[..plain.len() + TAG_LEN].split_at_mut(plain.len());
        text.copy_from_slice(plain);
        let made = self.0.as_ref().and_then(|key| {
            key.seal_in_place_separate_tag(nonce(counter), Aad::from(authentic), text).ok()
        });
        match made {
            Some(made) => tag.copy_from_slice(made.as_ref()),
            None => text.fill(0),
        }
        plain.len() + TAG_LEN
    }

    fn decrypt(
        &self,
        counter: u64,
        authentic: &[u8],
        sealed: &[u8],
        out: &mut [u8],
    ) -> Result<usize, snow::Error> {
        let key = self.0.as_ref().ok_or(snow::Error::Decrypt)?;
        let length = sealed.len().checked_sub(TAG_LEN).ok_or(snow::Error::Decrypt)?;
        let (text, tag) = sealed.split_at(length);
        let out = out.get_mut(..length).ok_or(snow::Error::Decrypt)?;
        key.open_separate_gather(nonce(counter), Aad::from(authentic), text, tag, out)
            .map_err(|_| snow::Error::Decrypt)?;
        Ok(length)
    }
}
