//! Authentication without added bytes, after Lee & Kim: the ICRC of RoCE packets carries a tag.
//!
//! ```text
//!   host --> [ headers | payload | ICRC ] --tag--> [ headers | payload | tag ] --> fabric
//!   host <-- [ headers | payload | ICRC ] <-restore- [ the same ] <----------------+
//! ```
//!
//! The tag is AES-128-CMAC (RFC 4493) over what the ICRC covers, cut to 32 bits. **It is weaker
//! than ESP**: nothing is encrypted, a guess succeeds once in 2^32 / 3, and a packet that was heard
//! can be played again while its epoch lasts. Both ends' clocks must agree to within an epoch.
//!
//! Keys: master key -> one for each scope (partition, or queue pair and addresses) and epoch, by
//! CMAC in counter mode (NIST SP 800-108 s4.1). An RC packet names only the queue pair it goes to,
//! so that and both addresses stand for the pair.

use aws_lc_rs::cmac;
use weir_wire::covered::covered;
use weir_wire::frame::Time;
use weir_wire::icrc::{self, ICRC_LEN, IcrcStatus};
use weir_wire::parse::Parsed;
use zeroize::Zeroize;

/// Bytes of the master key that both gateways hold.
pub const MASTER_KEY_LEN: usize = 32;

/// Seconds of an epoch unless told otherwise. A packet that was heard is worthless after two. At
/// 200,000 packets/s a queue pair's PSN comes round after 84 s, eight epochs.
pub const EPOCH_S_DEFAULT: u32 = 10;

/// Scopes whose key is kept, 3 epochs each. Two scopes that share a place take turns at the price
/// of a derivation (about a microsecond).
const PLACES: usize = 1024;

/// Wrong tags that a place forgives at once, and in a second. At 16 a second and three epochs tried
/// for each, a forger succeeds once in 2.8 years, a place.
const FAILURES_BURST: u32 = 64;
const FAILURES_PER_SECOND: u32 = 16;
const NS_PER_S: u64 = 1_000_000_000;
const LABEL: &[u8] = b"weir icrc tag";

/// What shares a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyedBy {
    /// A partition: whoever is in it is trusted not to speak for the others.
    Partition,
    /// Source, destination and destination queue pair.
    QueuePair,
}

/// Why a packet is not passed on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum TagRefusal {
    /// Not RoCE, a fragment, or cut short: there is no place for a tag.
    NotRoce,
    /// From the host: its ICRC was wrong before; a tag would vouch for damage.
    IcrcBad,
    /// From the wire: an untouched ICRC. Whoever sent it knows no tag.
    Foreign,
    /// From the wire: the tag of no neighbouring epoch. Forged, damaged, too old, or of another
    /// key.
    Forged,
    /// Too many wrong ones lately; not even looked at.
    FailureLimit,
    /// The cipher library refused: its build or the machine is broken.
    CipherRefused,
}

impl TagRefusal {
    /// The name in counters.
    pub const fn name(self) -> &'static str {
        match self {
            TagRefusal::NotRoce => "tag_not_roce",
            TagRefusal::IcrcBad => "icrc_bad",
            TagRefusal::Foreign => "tag_foreign",
            TagRefusal::Forged => "tag_forged",
            TagRefusal::FailureLimit => "tag_failure_limit",
            TagRefusal::CipherRefused => "cipher_refused",
        }
    }
}

/// Tags what goes to one peer and checks what comes from it.
#[derive(Debug)]
pub struct IcrcTag {
    master: cmac::Key,
    keyed_by: KeyedBy,
    epoch_ns: u64,
    places: Vec<Place>,
}

/// What a key belongs to, in bytes.
type Scope = [u8; 36];

#[derive(Debug)]
struct Place {
    scope: Option<Scope>,
    /// By epoch modulo 3.
    keys: [Option<(u64, cmac::Key)>; 3],
    failures_left: u32,
    refilled: Time,
}

impl IcrcTag {
    /// For a peer with which `master` is shared; it is wiped. Epochs last `epoch_s` seconds, at
    /// least one.
    ///
    /// # Errors
    /// [`TagRefusal::CipherRefused`].
    pub fn new(
        mut master: [u8; MASTER_KEY_LEN],
        keyed_by: KeyedBy,
        epoch_s: u32,
    ) -> Result<Self, TagRefusal> {
        let key = cmac::Key::new(cmac::AES_256, &master);
        master.zeroize();
        let empty = || Place {
            scope: None,
            keys: [const { None }; 3],
            failures_left: FAILURES_BURST,
            refilled: Time::default(),
        };
        Ok(Self {
            master: key.map_err(|_| TagRefusal::CipherRefused)?,
            keyed_by,
            epoch_ns: u64::from(epoch_s.max(1)) * NS_PER_S,
            places: (0..PLACES).map(|_| empty()).collect(),
        })
    }

    /// Puts the tag in the place of a right ICRC.
    ///
    /// # Errors
    /// [`TagRefusal`]; the packet is as it was.
    pub fn tag(&mut self, now: Time, bytes: &mut [u8], parsed: &Parsed) -> Result<(), TagRefusal> {
        match icrc::check(bytes, parsed) {
            IcrcStatus::Valid => {}
            IcrcStatus::Invalid => return Err(TagRefusal::IcrcBad),
            IcrcStatus::Unchecked => return Err(TagRefusal::NotRoce),
        }
        let scope = self.scope(parsed)?;
        let tag = self.computed(&scope, self.epoch(now), bytes, parsed)?;
        write(bytes, parsed, tag)
    }

    /// Checks the tag and puts the right ICRC in its place.
    ///
    /// # Errors
    /// [`TagRefusal`]; the packet is as it was.
    pub fn restore(
        &mut self,
        now: Time,
        bytes: &mut [u8],
        parsed: &Parsed,
    ) -> Result<(), TagRefusal> {
        let scope = self.scope(parsed)?;
        if !self.places[place(&scope)].may_fail(now) {
            return Err(TagRefusal::FailureLimit);
        }
        let present = icrc::present(bytes, parsed).ok_or(TagRefusal::NotRoce)?;
        let epoch = self.epoch(now);
        for candidate in [epoch, epoch.wrapping_sub(1), epoch.wrapping_add(1)] {
            if self.computed(&scope, candidate, bytes, parsed)? == present {
                let icrc = icrc::computed(bytes, parsed).ok_or(TagRefusal::NotRoce)?;
                return write(bytes, parsed, icrc);
            }
        }
        self.places[place(&scope)].failures_left -= 1;
        Err(match icrc::check(bytes, parsed) {
            IcrcStatus::Valid => TagRefusal::Foreign,
            _ => TagRefusal::Forged,
        })
    }

    fn epoch(&self, now: Time) -> u64 {
        now.0 / self.epoch_ns
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

    /// The tag of a packet. Comparing tags in variable time tells a forger nothing that the fate of
    /// the packet does not.
    fn computed(
        &mut self,
        scope: &Scope,
        epoch: u64,
        bytes: &[u8],
        parsed: &Parsed,
    ) -> Result<[u8; ICRC_LEN], TagRefusal> {
        let Self { master, keyed_by, places, .. } = self;
        let key = places[place(scope)].key(master, *keyed_by, scope, epoch)?;
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
}

impl Place {
    /// The key of `scope` in `epoch`, made if it is not at hand.
    fn key(
        &mut self,
        master: &cmac::Key,
        keyed_by: KeyedBy,
        scope: &Scope,
        epoch: u64,
    ) -> Result<&cmac::Key, TagRefusal> {
        if self.scope != Some(*scope) {
            self.scope = Some(*scope);
            self.keys = [const { None }; 3];
        }
        let slot = &mut self.keys[(epoch % 3) as usize];
        if slot.as_ref().is_none_or(|(of, _)| *of != epoch) {
            *slot = Some((epoch, derive(master, keyed_by, scope, epoch)?));
        }
        slot.as_ref().map(|(_, key)| key).ok_or(TagRefusal::CipherRefused)
    }

    /// Whether a wrong tag would still be forgiven.
    fn may_fail(&mut self, now: Time) -> bool {
        let seconds = now.since_ns(self.refilled) / NS_PER_S;
        if seconds > 0 {
            let more = u32::try_from(seconds).unwrap_or(u32::MAX);
            let left = self.failures_left.saturating_add(more.saturating_mul(FAILURES_PER_SECOND));
            self.failures_left = left.min(FAILURES_BURST);
            self.refilled = now;
        }
        self.failures_left > 0
    }
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

/// Where the state of `scope` lies. Not keyed: who makes scopes collide makes his own slow.
fn place(scope: &Scope) -> usize {
    let words = scope.chunks_exact(4).filter_map(|four| four.first_chunk());
    let mixed = words.fold(0u32, |sum, word| {
        (sum ^ u32::from_be_bytes(*word)).wrapping_mul(0x9e37_79b1).rotate_left(15)
    });
    mixed as usize % PLACES
}

fn write(bytes: &mut [u8], parsed: &Parsed, value: [u8; ICRC_LEN]) -> Result<(), TagRefusal> {
    let offset = parsed.rdma.and_then(|rdma| rdma.icrc_offset).ok_or(TagRefusal::NotRoce)?;
    let field = bytes.get_mut(usize::from(offset)..).and_then(|rest| rest.first_chunk_mut());
    *field.ok_or(TagRefusal::NotRoce)? = value;
    Ok(())
}
