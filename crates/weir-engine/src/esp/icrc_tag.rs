//! Authentication without added bytes, after Lee & Kim: the ICRC of RoCE packets carries a tag.
//!
//! ```text
//!   host --> [ headers | payload | ICRC ] --tag--> [ headers | payload | tag ] --> fabric
//!   host <-- [ headers | payload | ICRC ] <-restore- [ the same ] <----------------+
//! ```
//!
//! The tag is AES-128-CMAC (RFC 4493) over what the ICRC covers, cut to 32 bits. **It is weaker
//! than ESP**: nothing is encrypted, a guess succeeds once in 2^32 for each key that is tried, and
//! a packet that was heard can be played again while its epoch lasts.
//!
//! Keys: master key -> one for each scope (partition, or queue pair and addresses) and epoch, by
//! CMAC in counter mode (NIST SP 800-108 s4.1). An RC packet names only the queue pair it goes to,
//! so that and both addresses stand for the pair. A master key from a file has epochs by the clock;
//! one from a handshake is an epoch itself, and the next handshake begins the next.
//!
//! A tag never equals the packet's right ICRC: one that would is inverted. So a packet with a right
//! ICRC is untagged, for certain and for everybody, and need not be tried.

use std::fmt;

use arrayvec::ArrayVec;
use aws_lc_rs::cmac;
use weir_wire::covered::covered;
use weir_wire::frame::Time;
use weir_wire::icrc::{self, ICRC_LEN};
use weir_wire::parse::Parsed;
use zeroize::Zeroizing;

use super::secret::Secret;
use crate::policy::KeyedBy;

/// Bytes of a master key.
pub const MASTER_KEY_LEN: usize = 32;

/// Seconds of an epoch unless told otherwise. A packet that was heard is worthless after two. At
/// 200,000 packets/s a queue pair's PSN comes round after 84 s, eight epochs.
pub const EPOCH_S_DEFAULT: u32 = 10;

/// Master keys by which tags are accepted, at most: as many as associations open.
pub const ACCEPTED_MAX: usize = 5;

/// Derived keys that are cached, by scope. Two scopes that fall on one slot replace each other,
/// which costs a derivation each time (about a microsecond).
const SLOTS: usize = 1024;

/// Keys of a scope that are kept: three epochs of two master keys, or one to tag with and those
/// that are accepted.
const KEYS_MAX: usize = 6;

/// Wrong tags that a slot forgives at once, and in a second. At one a second and three epochs
/// tried for each, a forger succeeds once in 45 years, a slot. Bits that flip on a cable are
/// rarer.
const FAILURES_BURST: u32 = 64;
const FAILURES_PER_SECOND: u32 = 1;
const NS_PER_S: u64 = 1_000_000_000;

/// Epochs on either side that a wrong tag is compared with, to tell clocks that differ and late
/// replays from forgeries. None of them is accepted.
const OTHER_EPOCHS: u64 = 6;

const LABEL: &[u8] = b"weir icrc tag";

/// A master key. Wiped when dropped; never printed.
#[derive(Clone, PartialEq, Eq)]
pub struct TagKey(Secret<MASTER_KEY_LEN>);

impl TagKey {
    /// These bytes.
    pub fn new(bytes: Zeroizing<[u8; MASTER_KEY_LEN]>) -> Self {
        Self(Secret::of(&bytes))
    }

    fn expand(&self) -> Result<cmac::Key, TagRefusal> {
        cmac::Key::new(cmac::AES_256, &self.0[..]).map_err(|_| TagRefusal::CipherRefused)
    }
}

impl fmt::Debug for TagKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TagKey(..)")
    }
}

/// Why a packet is not passed on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TagRefusal {
    /// Not RoCE, a fragment, or cut short: there is no place for a tag.
    #[error("not RoCE, or cut short")]
    NotRoce,
    /// From the host: its ICRC was wrong before; a tag would vouch for damage.
    #[error("the ICRC was wrong before")]
    IcrcBad,
    /// There is no key yet.
    #[error("there is no key to tag with")]
    NoKey,
    /// From the wire: an untouched ICRC. Whoever sent it knows no tag.
    #[error("an ordinary ICRC, and no tag")]
    Foreign,
    /// From the wire: the tag of no epoch near. Forged, damaged, or of another key.
    #[error("a wrong tag")]
    Forged,
    /// From the wire: the right tag of an epoch that has ended or not begun.
    #[error("the tag of another epoch")]
    OtherEpoch,
    /// Too many wrong ones lately; not even looked at.
    #[error("too many wrong tags lately")]
    FailureLimit,
    /// The cipher library refused: its build or the machine is broken.
    #[error("the cipher library refuses")]
    CipherRefused,
}

/// Tags what goes to one peer and checks what comes from it.
#[derive(Debug)]
pub struct IcrcTag {
    keyed_by: KeyedBy,
    /// `None`: each key is an epoch of its own.
    epoch_ns: Option<u64>,
    sealing: Option<Master>,
    /// The likeliest first.
    accepted: ArrayVec<Master, ACCEPTED_MAX>,
    ids: u64,
    slots: Vec<CacheSlot>,
}

/// A master key at work.
#[derive(Clone, Debug)]
struct Master {
    /// Unique here: names its keys.
    id: u64,
    /// Its owner's name for it.
    number: u32,
    key: cmac::Key,
}

/// What a key belongs to, in bytes.
type Scope = [u8; 36];

/// What is remembered of one scope: its keys, and how many wrong tags are still forgiven.
#[derive(Debug)]
struct CacheSlot {
    scope: Option<Scope>,
    /// With the master key's id and the epoch; the oldest first.
    keys: Vec<(u64, u64, cmac::Key)>,
    failures_left: u32,
    refilled: Time,
}

impl IcrcTag {
    /// For a peer with which `master` is shared, in epochs of `epoch_s` seconds, at least one. Tags
    /// by `also_accepted` are accepted, too: the key before, or the next.
    ///
    /// # Errors
    /// [`TagRefusal::CipherRefused`].
    pub fn shared(
        master: &TagKey,
        also_accepted: Option<&TagKey>,
        keyed_by: KeyedBy,
        epoch_s: u32,
    ) -> Result<Self, TagRefusal> {
        let mut tag = Self::agreed(keyed_by);
        tag.epoch_ns = Some(u64::from(epoch_s.max(1)) * NS_PER_S);
        let master = tag.master(0, master)?;
        tag.accepted.push(master.clone());
        tag.sealing = Some(master);
        if let Some(key) = also_accepted {
            let other = tag.master(1, key)?;
            tag.accepted.push(other);
        }
        Ok(tag)
    }

    /// For a peer with which keys are agreed; there are none yet.
    pub fn agreed(keyed_by: KeyedBy) -> Self {
        let empty = || CacheSlot {
            scope: None,
            keys: Vec::new(),
            failures_left: FAILURES_BURST,
            refilled: Time::default(),
        };
        Self {
            keyed_by,
            epoch_ns: None,
            sealing: None,
            accepted: ArrayVec::new(),
            ids: 0,
            slots: (0..SLOTS).map(|_| empty()).collect(),
        }
    }

    /// Tags by `key` from now on.
    ///
    /// # Errors
    /// [`TagRefusal::CipherRefused`].
    pub fn tag_with(&mut self, number: u32, key: &TagKey) -> Result<(), TagRefusal> {
        self.sealing = Some(self.master(number, key)?);
        Ok(())
    }

    /// Accepts tags by `key`, too, under its owner's `number`. At the bound the oldest goes.
    ///
    /// # Errors
    /// [`TagRefusal::CipherRefused`].
    pub fn accept(&mut self, number: u32, key: &TagKey) -> Result<(), TagRefusal> {
        let master = self.master(number, key)?;
        if self.accepted.is_full() {
            self.accepted.pop();
        }
        self.accepted.insert(0, master);
        Ok(())
    }

    /// Accepts tags by the key of this number no longer.
    pub fn forget(&mut self, number: u32) {
        self.accepted.retain(|it| it.number != number);
    }

    /// Tags and accepts nothing until there are new keys.
    pub fn close(&mut self) {
        self.sealing = None;
        self.accepted.clear();
    }

    /// Whether there is a key to tag with.
    pub fn can_tag(&self) -> bool {
        self.sealing.is_some()
    }

    /// Puts the tag in the place of a right ICRC.
    ///
    /// # Errors
    /// [`TagRefusal`]; the packet is as it was.
    pub fn tag(&mut self, now: Time, bytes: &mut [u8], parsed: &Parsed) -> Result<(), TagRefusal> {
        let (Some(right), Some(present)) =
            (icrc::computed(bytes, parsed), icrc::present(bytes, parsed))
        else {
            return Err(TagRefusal::NotRoce);
        };
        if right != present {
            return Err(TagRefusal::IcrcBad);
        }
        let scope = self.scope(parsed)?;
        let epoch = self.epoch(now);
        let Self { sealing, slots, keyed_by, .. } = self;
        let master = sealing.as_ref().ok_or(TagRefusal::NoKey)?;
        let key = slots[slot_of(&scope)].key(master, *keyed_by, &scope, epoch)?;
        let tag = apart(cmac_of(key, bytes, parsed)?, right);
        write(bytes, parsed, tag)
    }

    /// Checks the tag and puts the right ICRC in its place; says by which key's number it was
    /// right.
    ///
    /// # Errors
    /// [`TagRefusal`]; the packet is as it was.
    pub fn restore(
        &mut self,
        now: Time,
        bytes: &mut [u8],
        parsed: &Parsed,
    ) -> Result<u32, TagRefusal> {
        let (Some(right), Some(present)) =
            (icrc::computed(bytes, parsed), icrc::present(bytes, parsed))
        else {
            return Err(TagRefusal::NotRoce);
        };
        if right == present {
            return Err(TagRefusal::Foreign);
        }
        let scope = self.scope(parsed)?;
        let epoch = self.epoch(now);
        let Self { accepted, slots, keyed_by, epoch_ns, .. } = self;
        if accepted.is_empty() {
            return Err(TagRefusal::NoKey);
        }
        let slot = &mut slots[slot_of(&scope)];
        if !slot.may_fail(now) {
            return Err(TagRefusal::FailureLimit);
        }
        let epochs = [epoch, epoch.wrapping_sub(1), epoch.wrapping_add(1)];
        let epochs = if epoch_ns.is_some() { &epochs[..] } else { &epochs[..1] };
        // Comparing in variable time tells a forger nothing that the packet's fate does not.
        for candidate in epochs {
            for master in &*accepted {
                let key = slot.key(master, *keyed_by, &scope, *candidate)?;
                if apart(cmac_of(key, bytes, parsed)?, right) == present {
                    write(bytes, parsed, right)?;
                    return Ok(master.number);
                }
            }
        }
        slot.failures_left -= 1;
        let is_timed = epoch_ns.is_some();
        let far = (2..=OTHER_EPOCHS).filter(|_| is_timed);
        for candidate in far.flat_map(|it| [epoch.wrapping_sub(it), epoch.wrapping_add(it)]) {
            for master in &*accepted {
                let key = derive(&master.key, *keyed_by, &scope, candidate)?;
                if apart(cmac_of(&key, bytes, parsed)?, right) == present {
                    return Err(TagRefusal::OtherEpoch);
                }
            }
        }
        Err(TagRefusal::Forged)
    }

    fn master(&mut self, number: u32, key: &TagKey) -> Result<Master, TagRefusal> {
        self.ids += 1;
        Ok(Master { id: self.ids, number, key: key.expand()? })
    }

    fn epoch(&self, now: Time) -> u64 {
        self.epoch_ns.map_or(0, |epoch_ns| now.0 / epoch_ns)
    }

    fn scope(&self, parsed: &Parsed) -> Result<Scope, TagRefusal> {
        let rdma = parsed.rdma.as_ref().ok_or(TagRefusal::NotRoce)?;
        let mut scope = [0; 36];
        match self.keyed_by {
            // The membership bit differs between members of one partition.
            KeyedBy::Partition => {
                let index = rdma.partition_key.0 & 0x7fff;
                scope[..2].copy_from_slice(&index.to_be_bytes());
            }
            KeyedBy::QueuePair => {
                scope[..16].copy_from_slice(&parsed.source);
                scope[16..32].copy_from_slice(&parsed.destination);
                scope[32..].copy_from_slice(&rdma.destination_qp.value().to_be_bytes());
            }
        }
        Ok(scope)
    }
}

impl CacheSlot {
    /// The key of `scope` in `epoch`, made if it is not at hand.
    fn key(
        &mut self,
        master: &Master,
        keyed_by: KeyedBy,
        scope: &Scope,
        epoch: u64,
    ) -> Result<&cmac::Key, TagRefusal> {
        if self.scope != Some(*scope) {
            self.scope = Some(*scope);
            self.keys.clear();
        }
        let found = self.keys.iter().position(|(id, of, _)| (*id, *of) == (master.id, epoch));
        let index = match found {
            Some(index) => index,
            None => {
                let key = derive(&master.key, keyed_by, scope, epoch)?;
                if self.keys.len() >= KEYS_MAX {
                    self.keys.remove(0);
                }
                self.keys.push((master.id, epoch, key));
                self.keys.len() - 1
            }
        };
        Ok(&self.keys[index].2)
    }

    /// Whether a wrong tag would still be forgiven.
    fn may_fail(&mut self, now: Time) -> bool {
        let seconds = now.since_ns(self.refilled) / NS_PER_S;
        // A clock that was set back forgives nothing, and does not stop forgiving.
        self.refilled = self.refilled.min(now);
        if seconds > 0 {
            let more = u32::try_from(seconds).unwrap_or(u32::MAX);
            let left = self.failures_left.saturating_add(more.saturating_mul(FAILURES_PER_SECOND));
            self.failures_left = left.min(FAILURES_BURST);
            self.refilled = now;
        }
        self.failures_left > 0
    }
}

/// The tag of a packet.
#[inline]
fn cmac_of(key: &cmac::Key, bytes: &[u8], parsed: &Parsed) -> Result<[u8; ICRC_LEN], TagRefusal> {
    let mut context = cmac::Context::with_key(key);
    let mut refused = false;
    let mut take = |piece: &[u8]| refused |= context.update(piece).is_err();
    covered(bytes, parsed, &mut take).ok_or(TagRefusal::NotRoce)?;
    let tag = context.sign().map_err(|_| TagRefusal::CipherRefused)?;
    match tag.as_ref().first_chunk() {
        Some(first) if !refused => Ok(*first),
        _ => Err(TagRefusal::CipherRefused),
    }
}

/// `tag`, inverted where it would be the packet's right ICRC.
#[inline]
fn apart(tag: [u8; ICRC_LEN], right: [u8; ICRC_LEN]) -> [u8; ICRC_LEN] {
    if tag == right { tag.map(|byte| !byte) } else { tag }
}

/// One block of the derivation: counter, label, zero, scope and epoch, length in bits.
fn derive(
    master: &cmac::Key,
    keyed_by: KeyedBy,
    scope: &Scope,
    epoch: u64,
) -> Result<cmac::Key, TagRefusal> {
    let mut context = cmac::Context::with_key(master);
    let kind = [keyed_by as u8];
    let epoch = epoch.to_be_bytes();
    for piece in [&[1][..], LABEL, &[0], &kind, scope, &epoch, &[0, 128]] {
        context.update(piece).map_err(|_| TagRefusal::CipherRefused)?;
    }
    let derived = context.sign().map_err(|_| TagRefusal::CipherRefused)?;
    cmac::Key::new(cmac::AES_128, derived.as_ref()).map_err(|_| TagRefusal::CipherRefused)
}

/// The slot of `scope`. Not keyed: who makes scopes collide makes his own slow.
fn slot_of(scope: &Scope) -> usize {
    let words = scope.chunks_exact(4).filter_map(|four| four.first_chunk());
    let mixed = words.fold(0u32, |sum, word| {
        (sum ^ u32::from_be_bytes(*word)).wrapping_mul(0x9e37_79b1).rotate_left(15)
    });
    mixed as usize % SLOTS
}

fn write(bytes: &mut [u8], parsed: &Parsed, value: [u8; ICRC_LEN]) -> Result<(), TagRefusal> {
    let offset = parsed.rdma.and_then(|rdma| rdma.icrc_offset).ok_or(TagRefusal::NotRoce)?;
    let field = bytes.get_mut(usize::from(offset)..).and_then(|rest| rest.first_chunk_mut());
    *field.ok_or(TagRefusal::NotRoce)? = value;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tag_that_would_be_the_icrc_is_inverted() {
        assert_eq!(apart([1, 2, 3, 4], [1, 2, 3, 4]), [254, 253, 252, 251]);
        assert_eq!(apart([1, 2, 3, 4], [1, 2, 3, 5]), [1, 2, 3, 4]);
    }

    #[test]
    fn debug_output_tells_no_key_byte() {
        let key = TagKey::new(Zeroizing::new([0xa7; 32]));
        assert_eq!(format!("{key:?}"), "TagKey(..)");
        let tag = IcrcTag::shared(&key, None, KeyedBy::Partition, 10).unwrap();
        assert!(!format!("{tag:?}").to_lowercase().contains("a7a7"));
    }
}
