//! When keys are made anew, when they end, and when a silent peer is looked for.
//!
//! Make before break: new associations are in place at both ends before one packet is sealed with
//! them, and old ones open what is still under way until they expire.

const SECOND_NS: u64 = 1_000_000_000;

/// Between two initiations while nobody answers; doubled twice as attempts go on.
pub(super) const RETRY_NS: u64 = SECOND_NS;
const ATTEMPTS_EACH: u32 = 5;
const DOUBLED_MAX: u32 = 2;

/// Unanswered initiations after which a peer is called dead.
pub(super) const ATTEMPTS_UNTIL_DEAD: u32 = 3;

/// What WireGuard's clients expect (whitepaper s6): an answer to data within so long, else a new
/// handshake is made; and a sign of life when data came and nothing was sent for so long.
pub(super) const CLIENT_ANSWERS_NS: u64 = 15 * SECOND_NS;
pub(super) const CLIENT_KEEPALIVE_NS: u64 = 10 * SECOND_NS;

/// Unanswered initiations to a client before it is left alone until a packet wants it: a minute and
/// a half.
pub(super) const CLIENT_ATTEMPTS_MAX: u32 = 24;

/// Associations of one peer that open, at most: the one in use, one that waits for its first
/// packet, and two for what is under way.
pub const OPENING_MAX: usize = 4;

/// How long keys serve.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Age at which the initiator makes new keys, nanoseconds. Who loses a key opens at most this
    /// much traffic, and half as much again.
    pub rekey_after_ns: u64,
    /// Bytes sealed likewise.
    pub rekey_after_bytes: u64,
    /// Packets sealed likewise.
    pub rekey_after_packets: u64,
    /// Between two signs of life, nanoseconds; a peer silent for two and a half of them is looked
    /// for. 0: none are sent, and an idle peer's end goes unnoticed.
    pub keepalive_ns: u64,
}

impl Default for Limits {
    /// WireGuard's two minutes. A TiB: 2^36 cipher blocks, far below where AES-GCM weakens (2^48
    /// blocks give an attacker 2^-32). 2^32 packets. Two seconds find a dead peer within eight.
    fn default() -> Self {
        Self {
            rekey_after_ns: 120 * SECOND_NS,
            rekey_after_bytes: 1 << 40,
            rekey_after_packets: 1 << 32,
            keepalive_ns: 2 * SECOND_NS,
        }
    }
}

impl Limits {
    /// The age at which keys are no longer used, however it goes.
    pub(super) fn expire_after_ns(&self) -> u64 {
        self.rekey_after_ns.saturating_add((self.rekey_after_ns / 2).max(30 * SECOND_NS))
    }

    /// The age at which a session is renewed: the responder leaves its initiator a tenth more, and
    /// `jitter`, 0 to 255, spreads sessions that were made at one time over another tenth.
    pub(super) fn renew_after_ns(&self, responds: bool, jitter: u8) -> u64 {
        let tenth = self.rekey_after_ns / 10;
        let late = if responds { tenth } else { 0 };
        self.rekey_after_ns.saturating_add(late + tenth / 256 * u64::from(jitter))
    }

    /// Whether so much was sealed that new keys are due.
    pub(super) fn is_worn(&self, packets: u64, bytes: u64) -> bool {
        packets >= self.rekey_after_packets || bytes >= self.rekey_after_bytes
    }

    /// How long a peer may be silent; `None`: for ever.
    pub(super) fn silence_ns(&self) -> Option<u64> {
        (self.keepalive_ns > 0).then(|| self.keepalive_ns.saturating_mul(5) / 2)
    }
}

/// How long to wait for the answer to the initiation of this number, from 1.
pub(super) fn retry_ns(attempts: u32, jitter: u8) -> u64 {
    let doubled = (attempts / ATTEMPTS_EACH).min(DOUBLED_MAX);
    (RETRY_NS << doubled) + RETRY_NS / 1024 * u64::from(jitter)
}
