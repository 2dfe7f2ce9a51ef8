//! What keeps a flood of handshakes from costing public-key work (WireGuard's white paper, s5.4.4
//! and s5.4.7).
//!
//! mac1 proves that the sender knows whom it speaks to. While there are more initiations than this
//! gateway wants to work on, mac2 must prove that it receives at the address that it sends from:
//! it is keyed by a cookie that is sent there, and such an address gets its share and no more.

use blake2::digest::{FixedOutput, KeyInit, Mac, consts::U16};
use blake2::{Blake2s256, Blake2sMac, Digest};
use chacha20poly1305::aead::AeadInPlace;
use chacha20poly1305::{XChaCha20Poly1305, XNonce};
use zeroize::Zeroizing;

use super::key::{Entropy, KEY_LEN, PublicKey};
use super::message::{MAC_LEN, Macs};
use super::path::Remote;

/// How long a cookie is good for, on both sides.
const COOKIE_LIFE_NS: u64 = 120_000_000_000;
const SECOND_NS: u64 = 1_000_000_000;
/// Initiations that are worked on in a second before cookies are asked for: a tenth of a core.
const UNHURRIED_PER_SECOND: u32 = 400;
/// Under load, handshakes that an address may begin in a second, and at once.
const PER_ADDRESS_PER_SECOND: u64 = 20;
const PER_ADDRESS_AT_ONCE: u64 = 5;
/// Addresses that are told apart under load; more of them share.
const ADDRESSES: usize = 4096;

type Mac128 = Blake2sMac<U16>;

/// The MAC of `data` under `key`.
fn mac(key: &[u8], data: &[u8]) -> [u8; MAC_LEN] {
    let mut mac = <Mac128 as KeyInit>::new_from_slice(key).expect("a key of at most 32 bytes");
    Mac::update(&mut mac, data);
    mac.finalize_fixed().into()
}

fn equal(left: &[u8; MAC_LEN], right: &[u8; MAC_LEN]) -> bool {
    aws_lc_rs::constant_time::verify_slices_are_equal(left, right).is_ok()
}

/// What messages to one gateway are authenticated with, by everyone who knows its public key.
#[derive(Clone, Debug)]
pub(super) struct MacKeys {
    mac1: [u8; KEY_LEN],
    cookie: [u8; KEY_LEN],
}

impl MacKeys {
    /// Those of the gateway `public`.
    pub(super) fn new(public: &PublicKey) -> Self {
        let hash = |label: &[u8]| -> [u8; KEY_LEN] {
            Blake2s256::new().chain_update(label).chain_update(public.0).finalize().into()
        };
        Self { mac1: hash(b"mac1----"), cookie: hash(b"cookie--") }
    }

    /// Appends both MACs to a message for this gateway, and returns the first.
    pub(super) fn finish(
        &self,
        message: &mut Vec<u8>,
        cookie: Option<&[u8; MAC_LEN]>,
    ) -> [u8; MAC_LEN] {
        let mac1 = mac(&self.mac1, message);
        message.extend_from_slice(&mac1);
        let mac2 = cookie.map_or([0; MAC_LEN], |cookie| mac(cookie, message));
        message.extend_from_slice(&mac2);
        mac1
    }

    /// Whether a message is for this gateway.
    pub(super) fn check(&self, macs: &Macs<'_>) -> bool {
        equal(&mac(&self.mac1, macs.covered_by_1), macs.mac1)
    }

    fn cipher(&self) -> XChaCha20Poly1305 {
        XChaCha20Poly1305::new(&self.cookie.into())
    }

    /// The cookie in a reply of this gateway to the message whose first MAC was `mac1`.
    pub(super) fn open_cookie(
        &self,
        nonce: &[u8; 24],
        sealed: &[u8],
        mac1: &[u8; MAC_LEN],
    ) -> Option<[u8; MAC_LEN]> {
        let (text, tag) = sealed.split_first_chunk::<MAC_LEN>()?;
        let tag: [u8; MAC_LEN] = tag.try_into().ok()?;
        let mut cookie = *text;
        let nonce = XNonce::from_slice(nonce);
        self.cipher().decrypt_in_place_detached(nonce, mac1, &mut cookie, &tag.into()).ok()?;
        Some(cookie)
    }

    fn seal_cookie(
        &self,
        nonce: &[u8; 24],
        cookie: [u8; MAC_LEN],
        mac1: &[u8; MAC_LEN],
    ) -> Option<[u8; 2 * MAC_LEN]> {
        let mut sealed = [0; 2 * MAC_LEN];
        let (text, tag) = sealed.split_at_mut(MAC_LEN);
        text.copy_from_slice(&cookie);
        let nonce = XNonce::from_slice(nonce);
        let made = self.cipher().encrypt_in_place_detached(nonce, mac1, text).ok()?;
        tag.copy_from_slice(&made);
        Some(sealed)
    }
}

/// A cookie that a peer gave us.
#[derive(Clone, Copy, Debug)]
pub(super) struct Cookie {
    pub(super) bytes: [u8; MAC_LEN],
    pub(super) since_ns: u64,
}

impl Cookie {
    /// The cookie, while the peer knows it.
    pub(super) fn at(&self, now_ns: u64) -> Option<&[u8; MAC_LEN]> {
        (now_ns.saturating_sub(self.since_ns) < COOKIE_LIFE_NS).then_some(&self.bytes)
    }
}

/// What to do with an initiation for us.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Admission {
    /// Work on it.
    Work,
    /// Send a cookie, and forget it.
    SendCookie,
    /// Forget it: its address has had its share.
    Refuse,
}

/// Decides which initiations are worth public-key work.
pub(super) struct Doorkeeper {
    secret: Zeroizing<[u8; KEY_LEN]>,
    renewed_ns: Option<u64>,
    second_ns: u64,
    this_second: u32,
    loaded_until_ns: u64,
    /// When each address has had its share, in nanoseconds, by keyed hash.
    shares: Box<[u64]>,
}

impl std::fmt::Debug for Doorkeeper {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Doorkeeper({} this second, ..)", self.this_second)
    }
}

impl Doorkeeper {
    pub(super) fn new() -> Self {
        Self {
            secret: Zeroizing::new([0; KEY_LEN]),
            renewed_ns: None,
            second_ns: 0,
            this_second: 0,
            loaded_until_ns: 0,
            shares: vec![0; ADDRESSES].into(),
        }
    }

    /// Whether cookies are asked for at `now_ns`.
    pub(super) fn is_loaded(&self, now_ns: u64) -> bool {
        now_ns < self.loaded_until_ns
    }

    /// Decides about an initiation from `remote`, whose mac1 is right.
    pub(super) fn admit(
        &mut self,
        now_ns: u64,
        remote: &Remote,
        macs: &Macs<'_>,
        entropy: &mut dyn Entropy,
    ) -> Admission {
        self.count(now_ns);
        self.admit_answer(now_ns, remote, macs, entropy)
    }

    /// One more message that costs work.
    pub(super) fn count(&mut self, now_ns: u64) {
        if now_ns.saturating_sub(self.second_ns) >= SECOND_NS {
            (self.second_ns, self.this_second) = (now_ns, 0);
        }
        self.this_second = self.this_second.saturating_add(1);
        if self.this_second > UNHURRIED_PER_SECOND {
            self.loaded_until_ns = now_ns.saturating_add(SECOND_NS);
        }
    }

    /// The same about an answer that is awaited, which counts only where it turns out to be forged
    /// ([`Doorkeeper::count`]): a gateway that begins with thousands of peers is not attacked.
    pub(super) fn admit_answer(
        &mut self,
        now_ns: u64,
        remote: &Remote,
        macs: &Macs<'_>,
        entropy: &mut dyn Entropy,
    ) -> Admission {
        if !self.is_loaded(now_ns) {
            return Admission::Work;
        }
        self.renew(now_ns, entropy);
        if !equal(&mac(&self.cookie(remote), macs.covered_by_2), macs.mac2) {
            return Admission::SendCookie;
        }
        self.share(now_ns, remote)
    }

    /// The reply that brings `remote` its cookie; `sealer` is of our own public key.
    pub(super) fn reply(
        &mut self,
        sealer: &MacKeys,
        remote: &Remote,
        macs: &Macs<'_>,
        entropy: &mut dyn Entropy,
    ) -> Option<([u8; 24], [u8; 2 * MAC_LEN])> {
        let mut nonce = [0; 24];
        entropy.fill(&mut nonce);
        Some((nonce, sealer.seal_cookie(&nonce, self.cookie(remote), macs.mac1)?))
    }

    fn renew(&mut self, now_ns: u64, entropy: &mut dyn Entropy) {
        let is_old = |since: u64| now_ns.saturating_sub(since) >= COOKIE_LIFE_NS;
        if self.renewed_ns.is_none_or(is_old) {
            self.secret = entropy.seed();
            self.renewed_ns = Some(now_ns);
        }
    }

    fn cookie(&self, remote: &Remote) -> [u8; MAC_LEN] {
        mac(&self.secret[..], &remote.bytes())
    }

    fn share(&mut self, now_ns: u64, remote: &Remote) -> Admission {
        let address = mac(&self.secret[..], &remote.address_bytes());
        let index = u64::from_le_bytes(std::array::from_fn(|i| address[i])) as usize % ADDRESSES;
        let each = SECOND_NS / PER_ADDRESS_PER_SECOND;
        let until = self.shares[index].max(now_ns);
        if until - now_ns >= each * PER_ADDRESS_AT_ONCE {
            return Admission::Refuse;
        }
        self.shares[index] = until + each;
        Admission::Work
    }
}
