//! One handshake, as values: who holds an [`Attempt`] has sent an initiation, who holds an
//! [`Offer`] has received one, and both end with the same [`Agreement`].
//!
//! ```text
//!   initiator                                                     responder
//!   attempt() --- e, es, s, ss, {timestamp, terms, KEM key} --->  receive() -> Offer
//!   finish()  <-- e, ee, se, psk, {KEM ciphertext, workers} ----  Offer::respond()
//!   Agreement: one key each way                                   Agreement
//! ```
//!
//! ML-KEM-768 (FIPS 203) is mixed in behind Noise: the ESP keys come of both secrets, so whoever
//! would read them must break X25519 and ML-KEM. Its own random bytes come from the cipher
//! library, which offers no other way.

use aws_lc_rs::hkdf::{HKDF_SHA256, KeyType, Salt};
use aws_lc_rs::kem::{Ciphertext, DecapsulationKey, EncapsulationKey, ML_KEM_768};
use snow::HandshakeState;
use zeroize::Zeroizing;

use super::key::{Identity, KEY_LEN, PresharedKey, PublicKey};
use super::message::{
    KEM_CIPHERTEXT_LEN, KEM_KEY_LEN, PAYLOAD_MAX, TERMS_LEN, TIMESTAMP_LEN, WORKERS_LEN,
};
use super::noise;
use crate::esp::icrc_tag::{MASTER_KEY_LEN, TagKey};
use crate::esp::sa::{SaError, SaParameters, Spi};
use crate::esp::secret::Secret;
use crate::esp::spread::WORKERS_MAX;
use crate::policy::{Encapsulation, KeyedBy, Mode, TagTerms};

/// AES-256 key and salt (RFC 4106 s8.1).
const KEYING_MATERIAL_LEN: usize = 36;
const TAG_LEN: usize = 16;
/// `e` and the encrypted `s` before the payload.
const NOISE_HEAD: usize = 2 * KEY_LEN + TAG_LEN;

/// What the handshake is for; it parts their transcripts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// Keys for ESP between gateways.
    Esp,
    /// WireGuard itself, whose peers judge the construction.
    WireGuard,
}

impl Protocol {
    const fn prologue(self) -> &'static [u8] {
        match self {
            Protocol::Esp => b"Weir gateway keying, version 1: ESP, AES-256-GCM",
            Protocol::WireGuard => b"WireGuard v1 zx2c4 Jason@zx2c4.com",
        }
    }
}

/// When an initiation was made: TAI64N, so that a later one compares greater.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Timestamp(pub [u8; TIMESTAMP_LEN]);

impl Timestamp {
    /// Nanoseconds since 1970.
    pub fn new(unix_ns: u64) -> Self {
        const TAI64_EPOCH: u64 = (1 << 62) + 10;
        let mut bytes = [0; TIMESTAMP_LEN];
        bytes[..8].copy_from_slice(&(TAI64_EPOCH + unix_ns / 1_000_000_000).to_be_bytes());
        bytes[8..].copy_from_slice(&((unix_ns % 1_000_000_000) as u32).to_be_bytes());
        Self(bytes)
    }
}

/// What both gateways must have configured alike. It travels encrypted in the initiation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Terms {
    /// What ESP carries.
    pub mode: Mode,
    /// What stands before ESP.
    pub encapsulation: Encapsulation,
    /// Whether ML-KEM-768 is mixed in.
    pub ml_kem: bool,
    /// Associations that it can have at a time, one a worker: 1 to 16. They need not be alike, the
    /// lesser number is used.
    pub workers: u8,
}

/// Why a handshake came to nothing, although the peer is who it should be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Mismatch {
    /// One side mixes ML-KEM in.
    #[error("the peer has ml_kem = {theirs}, and here it is {ours}; set both alike")]
    MlKem {
        /// Here.
        ours: bool,
        /// There.
        theirs: bool,
    },
    /// Other modes, or tags with other keys.
    #[error("the peer has another `mode`, or another `keyed_by`; set both alike")]
    Mode,
    /// Other encapsulations.
    #[error("the peer has another `encapsulation`; set both alike")]
    Encapsulation,
}

impl Terms {
    fn encode(self) -> [u8; TERMS_LEN] {
        let mode = match self.mode {
            Mode::Ethernet => 1,
            Mode::Tunnel => 2,
            Mode::Transport => 3,
            Mode::IcrcTag(TagTerms { keyed_by: KeyedBy::Partition, .. }) => 4,
            Mode::IcrcTag(TagTerms { keyed_by: KeyedBy::QueuePair, .. }) => 5,
            // Its handshake carries no terms.
            Mode::WireGuard => 6,
            // It has no handshake of ours.
            Mode::Device { .. } => 7,
        };
        let encapsulation = match self.encapsulation {
            Encapsulation::Esp => 1,
            _ => 2,
        };
        // A gateway with one worker announces none, like gateways that have no workers at all.
        let workers = if self.workers > 1 { self.workers } else { 0 };
        [mode, encapsulation, u8::from(self.ml_kem), workers]
    }

    /// Which handshake these are the terms of.
    pub fn protocol(self) -> Protocol {
        match self.mode {
            Mode::WireGuard => Protocol::WireGuard,
            _ => Protocol::Esp,
        }
    }

    /// What differs between `self`, ours, and what the peer sent.
    fn compare(self, theirs: [u8; TERMS_LEN]) -> Result<(), Mismatch> {
        let ours = self.encode();
        if ours[2] != theirs[2] {
            return Err(Mismatch::MlKem { ours: self.ml_kem, theirs: theirs[2] != 0 });
        }
        if ours[0] != theirs[0] {
            return Err(Mismatch::Mode);
        }
        if ours[1] != theirs[1] { Err(Mismatch::Encapsulation) } else { Ok(()) }
    }
}

/// The number of workers that a byte of the peer's tells.
fn told_workers(byte: u8) -> u8 {
    byte.clamp(1, WORKERS_MAX as u8)
}

/// A message that does not belong to this handshake: forged, damaged, by another key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the handshake message is not authentic")]
pub struct NotAuthentic;

impl From<snow::Error> for NotAuthentic {
    fn from(_: snow::Error) -> Self {
        Self
    }
}

/// An initiation that was sent.
pub struct Attempt {
    noise: Box<HandshakeState>,
    kem: Option<DecapsulationKey>,
    protocol: Protocol,
    workers: u8,
}

impl std::fmt::Debug for Attempt {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Attempt({:?}, ..)", self.protocol)
    }
}

impl Drop for Attempt {
    fn drop(&mut self) {
        noise::forget_preshared(&mut self.noise);
    }
}

/// Who initiates with whom.
#[derive(Clone, Copy, Debug)]
pub struct Parties<'a> {
    /// Which handshake.
    pub protocol: Protocol,
    /// We.
    pub identity: &'a Identity,
    /// They.
    pub peer: &'a PublicKey,
    /// What both know.
    pub preshared: &'a PresharedKey,
}

/// Begins a handshake: the attempt, and its noise message.
///
/// # Errors
/// [`NotAuthentic`]: the cipher library refuses the keys.
pub fn attempt(
    parties: Parties<'_>,
    terms: Terms,
    timestamp: Timestamp,
    seed: Zeroizing<[u8; KEY_LEN]>,
) -> Result<(Attempt, Vec<u8>), NotAuthentic> {
    let Parties { protocol, identity, peer, preshared } = parties;
    let mut noise = noise::initiator(identity, peer, preshared, protocol.prologue(), seed)?;
    let mut payload = timestamp.0.to_vec();
    let mut kem = None;
    if protocol == Protocol::Esp {
        payload.extend(terms.encode());
        if terms.ml_kem {
            let key = DecapsulationKey::generate(&ML_KEM_768).map_err(|_| NotAuthentic)?;
            let public = key.encapsulation_key().and_then(|it| it.key_bytes());
            payload.extend_from_slice(public.map_err(|_| NotAuthentic)?.as_ref());
            kem = Some(key);
        }
    }
    let mut message = vec![0; NOISE_HEAD + payload.len() + TAG_LEN];
    let length = noise.write_message(&payload, &mut message)?;
    message.truncate(length);
    let workers = terms.workers;
    Ok((Attempt { noise: Box::new(noise), kem, protocol, workers }, message))
}

/// An initiation that was received: its sender holds the secret of `peer`, and nothing is agreed.
pub struct Offer {
    noise: Box<HandshakeState>,
    protocol: Protocol,
    /// Who initiates.
    pub peer: PublicKey,
    /// When, by its clock.
    pub timestamp: Timestamp,
    terms: [u8; TERMS_LEN],
    kem: Option<Vec<u8>>,
}

impl std::fmt::Debug for Offer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Offer({:?}, {:?}, ..)", self.protocol, self.peer)
    }
}

impl Drop for Offer {
    fn drop(&mut self) {
        noise::forget_preshared(&mut self.noise);
    }
}

/// Reads the noise message of an initiation. `seed` becomes the ephemeral key of the response.
///
/// # Errors
/// [`NotAuthentic`].
pub fn receive(
    protocol: Protocol,
    identity: &Identity,
    message: &[u8],
    seed: Zeroizing<[u8; KEY_LEN]>,
) -> Result<Offer, NotAuthentic> {
    let mut noise = noise::responder(identity, protocol.prologue(), seed)?;
    let mut payload = [0; PAYLOAD_MAX + TAG_LEN];
    let length = noise.read_message(message, &mut payload)?;
    let payload = payload.get(..length).ok_or(NotAuthentic)?;
    let peer = noise.get_remote_static().and_then(|key| key.try_into().ok());
    let (timestamp, rest) = payload.split_first_chunk().ok_or(NotAuthentic)?;
    let (terms, kem) = match (protocol, rest.split_first_chunk()) {
        (Protocol::Esp, Some((terms, []))) => (*terms, None),
        (Protocol::Esp, Some((terms, kem))) if kem.len() == KEM_KEY_LEN => {
            (*terms, Some(kem.to_vec()))
        }
        (Protocol::WireGuard, None) if rest.is_empty() => ([0; TERMS_LEN], None),
        _ => return Err(NotAuthentic),
    };
    Ok(Offer {
        noise: Box::new(noise),
        protocol,
        peer: PublicKey(peer.ok_or(NotAuthentic)?),
        timestamp: Timestamp(*timestamp),
        terms,
        kem,
    })
}

impl Offer {
    /// Whether the peer wants what `ours` says.
    ///
    /// # Errors
    /// What differs.
    pub fn check(&self, ours: Terms) -> Result<(), Mismatch> {
        if self.protocol != ours.protocol() {
            return Err(Mismatch::Mode);
        }
        if self.protocol == Protocol::WireGuard {
            return Ok(());
        }
        ours.compare(self.terms)?;
        match self.kem.is_some() == ours.ml_kem {
            true => Ok(()),
            false => Err(Mismatch::MlKem { ours: ours.ml_kem, theirs: self.kem.is_some() }),
        }
    }

    /// Agrees: returns the noise message of the response, and the keys. An initiator that announced
    /// more than one worker gets our number, `workers`, in one more byte at the end.
    ///
    /// # Errors
    /// [`NotAuthentic`]: the peer's encapsulation key is none.
    pub fn respond(
        mut self,
        preshared: &PresharedKey,
        workers: u8,
    ) -> Result<(Vec<u8>, Agreement), NotAuthentic> {
        noise::set_preshared(&mut self.noise, preshared)?;
        let mut payload = Vec::new();
        let mut kem = None;
        if let Some(key) = &self.kem {
            let key = EncapsulationKey::new(&ML_KEM_768, key).map_err(|_| NotAuthentic)?;
            let (ciphertext, secret) = key.encapsulate().map_err(|_| NotAuthentic)?;
            payload.extend_from_slice(ciphertext.as_ref());
            kem = Some(Zeroizing::new(secret.as_ref().to_vec()));
        }
        let theirs = told_workers(self.terms[3]);
        if theirs > 1 {
            payload.push(workers);
        }
        let mut message = vec![0; KEY_LEN + payload.len() + TAG_LEN];
        let length = self.noise.write_message(&payload, &mut message)?;
        message.truncate(length);
        let workers = theirs.min(workers);
        Ok((message, Agreement::new(&mut self.noise, kem, Role::Responder, workers)))
    }
}

impl Attempt {
    /// Agrees, from the noise message of the response. A message that is not authentic leaves the
    /// attempt as it was.
    ///
    /// # Errors
    /// [`NotAuthentic`].
    pub fn finish(&mut self, message: &[u8]) -> Result<Agreement, NotAuthentic> {
        let mut payload = [0; KEM_CIPHERTEXT_LEN + WORKERS_LEN + TAG_LEN];
        let kem_len = if self.kem.is_some() { KEM_CIPHERTEXT_LEN } else { 0 };
        let told_len = if self.workers > 1 { WORKERS_LEN } else { 0 };
        let fixed = KEY_LEN + kem_len + TAG_LEN;
        if message.len() != fixed && message.len() != fixed + told_len {
            return Err(NotAuthentic);
        }
        let length = self.noise.read_message(message, &mut payload)?;
        let (ciphertext, told) = payload[..length].split_at(kem_len);
        let workers = told.first().map_or(1, |byte| told_workers(*byte)).min(self.workers);
        let kem = match &self.kem {
            None => None,
            Some(key) => {
                let secret = key.decapsulate(Ciphertext::from(ciphertext));
                Some(Zeroizing::new(secret.map_err(|_| NotAuthentic)?.as_ref().to_vec()))
            }
        };
        Ok(Agreement::new(&mut self.noise, kem, Role::Initiator, workers))
    }
}

/// Which end of a handshake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Sent the initiation.
    Initiator,
    /// Sent the response.
    Responder,
}

/// What both ends know after a handshake, and nobody else.
pub struct Agreement {
    /// From the initiator, to the initiator.
    noise: [Secret<KEY_LEN>; 2],
    kem: Option<Zeroizing<Vec<u8>>>,
    transcript: [u8; KEY_LEN],
    role: Role,
    /// Associations each way: the lesser of both ends' workers.
    pub workers: u8,
}

impl std::fmt::Debug for Agreement {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Agreement({:?}, ..)", self.role)
    }
}

impl Agreement {
    fn new(
        noise: &mut HandshakeState,
        kem: Option<Zeroizing<Vec<u8>>>,
        role: Role,
        workers: u8,
    ) -> Self {
        let (from, to) = noise.dangerously_get_raw_split();
        let (from, to) = (Zeroizing::new(from), Zeroizing::new(to));
        let mut transcript = [0; KEY_LEN];
        transcript.copy_from_slice(noise.get_handshake_hash());
        let noise = [Secret::of(&from), Secret::of(&to)];
        Self { noise, kem, transcript, role, workers }
    }

    /// The keys as WireGuard uses them: to send with, to receive with.
    pub fn wireguard_keys(&self) -> (&[u8; KEY_LEN], &[u8; KEY_LEN]) {
        let [from, to] = &self.noise;
        match self.role {
            Role::Initiator => (from, to),
            Role::Responder => (to, from),
        }
    }

    /// The parameters of both associations, to seal and to open with. Extended numbering always.
    ///
    /// Key and salt are HKDF-SHA-256 (RFC 5869) of the direction's Noise key and the KEM's secret,
    /// salted by the transcript, with the SPI that travels in that direction.
    ///
    /// # Errors
    /// [`SaError`]: none that legal SPIs can cause.
    pub fn associations(&self, seal: Spi, open: Spi) -> Result<[SaParameters; 2], SaError> {
        let (send, receive) = self.wireguard_keys();
        Ok([self.derive(send, seal)?, self.derive(receive, open)?])
    }

    /// The same for WireGuard's data messages.
    pub fn data_associations(&self, seal: Spi, open: Spi) -> [SaParameters; 2] {
        let (send, receive) = self.wireguard_keys();
        [SaParameters::wireguard(seal, send), SaParameters::wireguard(open, receive)]
    }

    fn derive(&self, noise: &[u8; KEY_LEN], spi: Spi) -> Result<SaParameters, SaError> {
        let material = self.expand(noise, b"weir esp association", spi)?;
        SaParameters::new(spi, &material[..])
    }

    /// The master keys of the tags that stand beside both associations, to tag and to accept with:
    /// the same derivation under another label.
    ///
    /// # Errors
    /// As [`Agreement::associations`].
    pub fn tag_keys(&self, seal: Spi, open: Spi) -> Result<[TagKey; 2], SaError> {
        let (send, receive) = self.wireguard_keys();
        let derive = |noise, spi| {
            let material = self.expand(noise, b"weir icrc tag", spi)?;
            let mut key = Zeroizing::new([0; MASTER_KEY_LEN]);
            key.copy_from_slice(&material[..MASTER_KEY_LEN]);
            Ok(TagKey::new(key))
        };
        Ok([derive(send, seal)?, derive(receive, open)?])
    }

    fn expand(
        &self,
        noise: &[u8; KEY_LEN],
        label: &[u8],
        spi: Spi,
    ) -> Result<Zeroizing<[u8; KEYING_MATERIAL_LEN]>, SaError> {
        struct Length;
        impl KeyType for Length {
            fn len(&self) -> usize {
                KEYING_MATERIAL_LEN
            }
        }
        let kem = self.kem.as_ref().map_or(&[][..], |kem| &kem[..]);
        // Room for both: a vector that grows leaves a copy behind.
        let mut secret = Zeroizing::new(Vec::with_capacity(KEY_LEN + kem.len()));
        secret.extend_from_slice(noise);
        secret.extend_from_slice(kem);
        let salt = Salt::new(HKDF_SHA256, &self.transcript);
        let key = salt.extract(&secret);
        let mut material = Zeroizing::new([0; KEYING_MATERIAL_LEN]);
        let spi_bytes = spi.value().to_be_bytes();
        key.expand(&[label, &spi_bytes], Length)
            .and_then(|okm| okm.fill(&mut material[..]))
            .map_err(|_| SaError::KeyLength { len: KEYING_MATERIAL_LEN })?;
        Ok(material)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn identity(number: u8) -> Identity {
        Identity::new(Zeroizing::new([number; KEY_LEN])).unwrap()
    }

    /// Both ends' agreements, after `change` of what the responder was told.
    fn agree(
        workers: [u8; 2],
        ml_kem: bool,
        change: impl FnOnce(&mut Offer),
    ) -> (Vec<u8>, [Agreement; 2]) {
        let (ours, theirs) = (identity(1), identity(2));
        let parties = Parties {
            protocol: Protocol::Esp,
            identity: &ours,
            peer: &theirs.public(),
            preshared: &PresharedKey::none(),
        };
        let (mode, encapsulation) = (Mode::Tunnel, Encapsulation::Esp);
        let terms = Terms { mode, encapsulation, ml_kem, workers: workers[0] };
        let seed = |byte| Zeroizing::new([byte; KEY_LEN]);
        let (mut attempt, noise) = attempt(parties, terms, Timestamp::new(1), seed(3)).unwrap();
        let mut offer = receive(Protocol::Esp, &theirs, &noise, seed(4)).unwrap();
        assert_eq!(offer.check(Terms { workers: workers[1], ..terms }), Ok(()));
        change(&mut offer);
        let (noise, responder) = offer.respond(&PresharedKey::none(), workers[1]).unwrap();
        let initiator = attempt.finish(&noise).unwrap();
        (noise, [initiator, responder])
    }

    #[test]
    fn both_ends_come_to_the_lesser_number_of_workers() {
        let pairs = [([1, 1], 1), ([1, 4], 1), ([4, 1], 1), ([2, 3], 2), ([16, 16], 16)];
        for (workers, expected) in pairs {
            for ml_kem in [false, true] {
                let (_, ends) = agree(workers, ml_kem, |_| {});
                assert_eq!(ends.map(|it| it.workers), [expected; 2], "{workers:?}");
            }
        }
    }

    #[test]
    fn who_knows_of_one_worker_says_and_hears_what_it_always_did() {
        let (response, _) = agree([1, 4], false, |offer| assert_eq!(offer.terms[3], 0));
        assert_eq!(response.len(), KEY_LEN + TAG_LEN);
        // A responder that never looks at the byte answers as if it were zero.
        let (response, [initiator, _]) = agree([4, 1], false, |offer| offer.terms[3] = 0);
        assert_eq!((response.len(), initiator.workers), (KEY_LEN + TAG_LEN, 1));
        let (told, _) = agree([4, 2], false, |_| {});
        assert_eq!(told.len(), KEY_LEN + WORKERS_LEN + TAG_LEN);
    }

    #[test]
    fn a_number_that_is_none_counts_as_the_nearest() {
        let (_, [_, responder]) = agree([4, 16], false, |offer| offer.terms[3] = 255);
        assert_eq!(responder.workers, 16);
    }
}
