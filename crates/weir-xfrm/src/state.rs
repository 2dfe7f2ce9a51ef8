//! One association as a front end describes it: read from `XFRM_MSG_NEWSA`, told in answers.

use std::fmt;
use std::net::IpAddr;

use weir_engine::esp::sa::{Fingerprint, SaParameters, Spi};
use zerocopy::{FromBytes, IntoBytes};
use zeroize::Zeroizing;

use crate::netlink::{Writer, attributes};
use crate::plan::Role;
use crate::refusal::{Errno, Refusal, refuse};
use crate::uapi::*;

/// Words at most in the bitmap of an extended replay state (`XFRMA_REPLAY_ESN_MAX`, 4096 bits).
const BITMAP_WORDS_MAX: u32 = 128;

/// The only ICV that Weir makes, in bits.
const ICV_BITS: u32 = 128;

/// AES-GCM in ESP (RFC 4106) as Linux names it.
const GCM_NAME: &[u8] = b"rfc4106(gcm(aes))";

/// Where an association is in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// Without keys: an SPI was allocated, or a packet asked for it.
    Larval,
    /// In use.
    Valid,
    /// Its soft limit was reached and told: another is preferred.
    Dying,
}

/// Bytes with a key in them: wiped when dropped, never printed.
#[derive(Clone, Default)]
struct Secret(Zeroizing<Vec<u8>>);

impl Secret {
    fn of(bytes: &[u8]) -> Self {
        Self(Zeroizing::new(bytes.to_vec()))
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(..)")
    }
}

/// An association.
#[derive(Clone, Debug)]
pub struct State {
    /// The fixed part of what was written, with the counters of now.
    pub info: SaInfo,
    /// Where it is in its life.
    pub stage: Stage,
    /// Its keys; `None` while larval.
    pub parameters: Option<SaParameters>,
    /// Their name, which takes a hash.
    fingerprint: Option<Fingerprint>,
    /// The attribute with algorithm and key, to be told again.
    aead: Secret,
    /// ESP in UDP.
    pub encapsulation: Option<Encapsulation>,
    /// 64-bit numbers: the head of the replay state as written. The window is told from it.
    esn: Option<ReplayEsnHead>,
    /// Attributes that change nothing here and are told again.
    kept: Vec<(u16, Vec<u8>)>,
    /// The number to start after, as written; where its key ended before is the gateway's to know.
    pub sealed_before: u64,
    /// The highest number accepted before.
    pub opened_before: u64,
    /// The last number sealed, the highest opened; one of them stays 0.
    pub sealed: u64,
    /// See `sealed`.
    pub opened: u64,
    /// Second of the last packet.
    pub last_used: u64,
    /// Who asked for a larval association and waits for it (a policy's index), if a packet did.
    pub acquired_for: Option<u32>,
    /// What it does by the last plan.
    pub role: Role,
    /// Where its peer was seen last, when that was told.
    pub moved_to: Option<([u8; 16], u16)>,
}

impl State {
    /// The association that a request describes.
    ///
    /// # Errors
    /// The kernel's own refusals, and what Weir's ESP does not do.
    pub fn read(body: &[u8], now: u64) -> Result<Self, Refusal> {
        let Ok((mut info, rest)) = SaInfo::read_from_prefix(body) else {
            return refuse(Errno::EINVAL, "the message is shorter than an association");
        };
        check_info(&info)?;
        let given = Given::read(rest)?;
        let mut state = Self::larval(info, now);
        let Some(aead) = given.aead else {
            return match given.other_algorithm {
                true => refuse(Errno::ENOSYS, "Weir seals with rfc4106(gcm(aes)) and 128 bit ICV"),
                false => refuse(Errno::EINVAL, "ESP needs an algorithm: aead 'rfc4106(gcm(aes))'"),
            };
        };
        let mut parameters = keys(&info, aead)?;
        state.aead = Secret::of(aead);
        state.esn = replay_esn(&info, given.replay_esn)?;
        parameters.extended_sequence = info.flags & FLAG_ESN != 0;
        let window = state.esn.map_or(u32::from(info.replay_window), |esn| esn.window);
        parameters.replay_window = window_for(window);
        if let Some(esn) = state.esn {
            let high =
                |high: u32| if info.flags & FLAG_ESN != 0 { u64::from(high) << 32 } else { 0 };
            state.sealed_before = high(esn.sealed_high) | u64::from(esn.sealed);
            state.opened_before = high(esn.opened_high) | u64::from(esn.opened);
        } else if let Some(replay) = given.replay {
            state.sealed_before = replay.sealed.into();
            state.opened_before = replay.opened.into();
        }
        state.encapsulation = given.encapsulation;
        state.kept = given.kept;
        state.fingerprint = Some(parameters.fingerprint());
        state.parameters = Some(parameters);
        state.stage = Stage::Valid;
        info = state.info;
        if let Some(used) = given.used {
            info.used = LifetimeUsed { add_time: now, use_time: used.use_time, ..used };
        }
        state.info = info;
        Ok(state)
    }

    /// An association without keys.
    pub fn larval(mut info: SaInfo, now: u64) -> Self {
        if info.selector.family == 0 && info.flags & FLAG_ANY_FAMILY == 0 {
            info.selector.family = info.family;
        }
        info.used = LifetimeUsed { add_time: now, ..LifetimeUsed::default() };
        info.statistics = Statistics::default();
        Self {
            info,
            stage: Stage::Larval,
            parameters: None,
            fingerprint: None,
            aead: Secret::default(),
            encapsulation: None,
            esn: None,
            kept: Vec::new(),
            sealed_before: 0,
            opened_before: 0,
            sealed: 0,
            opened: 0,
            last_used: 0,
            acquired_for: None,
            role: Role::Idle,
            moved_to: None,
        }
    }

    /// Its index.
    pub fn spi(&self) -> u32 {
        u32::from_be_bytes(self.info.id.spi)
    }

    /// The outer address that it leads to.
    pub fn destination(&self) -> IpAddr {
        ip(&self.info.id.destination, self.info.family)
    }

    /// The outer address that it comes from; unspecified: any.
    pub fn source(&self) -> IpAddr {
        ip(&self.info.source, self.info.family)
    }

    /// Whether this is the association of that name.
    pub fn is(&self, destination: &Address, spi: [u8; 4], protocol: u8, family: u16) -> bool {
        let id = &self.info.id;
        id.spi == spi
            && id.protocol == protocol
            && self.info.family == family
            && same(&id.destination, destination, family)
    }

    /// The name of key and salt; `None` while larval.
    pub fn fingerprint(&self) -> Option<Fingerprint> {
        self.fingerprint
    }

    /// Takes over what an update may change (limits, encapsulation, selector, replay numbers).
    pub fn update(&mut self, newer: Self) {
        self.info.limits = newer.info.limits;
        self.info.selector = newer.info.selector;
        self.encapsulation = newer.encapsulation.or(self.encapsulation);
        if self.stage == Stage::Dying {
            self.stage = Stage::Valid;
        }
    }

    /// The body of `XFRM_MSG_NEWSA`: the fixed part, and the attributes in the kernel's order.
    pub fn write(&self, header: Header) -> Vec<u8> {
        self.write_attributes(Writer::new(header, &self.told()))
    }

    /// What is told in the fixed part.
    pub fn told(&self) -> SaInfo {
        let mut info = self.info;
        if self.esn.is_some() {
            info.replay_window = 0;
        }
        info
    }

    /// Appends what `XFRM_MSG_NEWSA` tells besides the fixed part.
    pub fn write_attributes(&self, writer: Writer) -> Vec<u8> {
        let mut writer =
            writer.with_some(attribute::LAST_USED, Some(&self.last_used).filter(|it| **it > 0));
        if !self.aead.0.is_empty() {
            writer = writer.with(attribute::ALG_AEAD, &self.aead.0[..]);
        }
        writer = writer.with_some(attribute::ENCAP, self.encapsulation.as_ref());
        for (kind, value) in &self.kept {
            writer = writer.with(*kind, &value[..]);
        }
        self.write_replay(writer).finish()
    }

    /// Appends the numbering.
    pub fn write_replay(&self, writer: Writer) -> Writer {
        match self.replay_esn() {
            Some(bytes) => writer.with(attribute::REPLAY_ESN_VALUE, &bytes[..]),
            None => writer.with(attribute::REPLAY_VALUE, &self.replay()),
        }
    }

    fn replay(&self) -> ReplayState {
        ReplayState { sealed: self.sealed as u32, opened: self.opened as u32, bitmap: 0 }
    }

    /// The bitmap is told empty: only the worker knows it, and it changes with every packet.
    fn replay_esn(&self) -> Option<Vec<u8>> {
        let head = ReplayEsnHead {
            sealed: self.sealed as u32,
            sealed_high: (self.sealed >> 32) as u32,
            opened: self.opened as u32,
            opened_high: (self.opened >> 32) as u32,
            ..self.esn?
        };
        let mut bytes = head.as_bytes().to_vec();
        bytes.resize(bytes.len() + 4 * head.words as usize, 0);
        Some(bytes)
    }
}

/// The attributes of a request that mean something here.
#[derive(Default)]
struct Given<'a> {
    aead: Option<&'a [u8]>,
    other_algorithm: bool,
    encapsulation: Option<Encapsulation>,
    replay: Option<ReplayState>,
    replay_esn: Option<&'a [u8]>,
    used: Option<LifetimeUsed>,
    kept: Vec<(u16, Vec<u8>)>,
}

impl<'a> Given<'a> {
    fn read(bytes: &'a [u8]) -> Result<Self, Refusal> {
        let mut given = Self::default();
        for (kind, value) in attributes(bytes) {
            match kind {
                attribute::ALG_AEAD => given.aead = Some(value),
                attribute::ALG_AUTH | attribute::ALG_AUTH_TRUNC | attribute::ALG_CRYPT => {
                    given.other_algorithm = true;
                }
                attribute::ALG_COMP => {
                    return refuse(Errno::EINVAL, "compression does not belong to ESP");
                }
                attribute::ENCAP => given.encapsulation = Some(encapsulation(value)?),
                attribute::REPLAY_VALUE => given.replay = Some(fixed(value)?),
                attribute::REPLAY_ESN_VALUE => given.replay_esn = Some(value),
                attribute::LIFETIME_VALUE => given.used = Some(fixed(value)?),
                attribute::OFFLOAD_DEVICE => {
                    return refuse(
                        Errno::EOPNOTSUPP,
                        "Weir seals by itself; for a NIC set `offload` in its configuration",
                    );
                }
                attribute::TFC_PAD => {
                    return refuse(Errno::EOPNOTSUPP, "Weir does not pad against traffic analysis");
                }
                attribute::INTERFACE_ID if value.iter().any(|byte| *byte != 0) => {
                    return refuse(
                        Errno::EOPNOTSUPP,
                        "Weir has no xfrm interfaces; leave if_id out",
                    );
                }
                attribute::MARK => {
                    let mark: Mark = fixed(value)?;
                    if mark != Mark::default() {
                        return refuse(Errno::EOPNOTSUPP, "Weir knows no marks; leave mark out");
                    }
                }
                attribute::EXTRA_FLAGS => {
                    let _: u32 = fixed(value)?;
                    given.kept.push((kind, value.to_vec()));
                }
                _ => {}
            }
        }
        Ok(given)
    }
}

fn check_info(info: &SaInfo) -> Result<(), Refusal> {
    let prefix_len_max = match info.family {
        FAMILY_V4 => 32,
        FAMILY_V6 => 128,
        _ => return refuse(Errno::EINVAL, "the family is neither IPv4 nor IPv6"),
    };
    let selector = &info.selector;
    if selector.source_len > prefix_len_max || selector.destination_len > prefix_len_max {
        return refuse(Errno::EINVAL, "a prefix of the selector is longer than an address");
    }
    match info.id.protocol {
        PROTOCOL_ESP => {}
        PROTOCOL_AH | PROTOCOL_COMP => {
            return refuse(Errno::EPROTONOSUPPORT, "Weir speaks ESP; no AH and no IPComp");
        }
        _ => return refuse(Errno::EINVAL, "no protocol of associations"),
    }
    match info.mode {
        MODE_TRANSPORT | MODE_TUNNEL => Ok(()),
        2..=MODE_LAST => refuse(Errno::EPROTONOSUPPORT, "Weir has tunnel and transport mode"),
        _ => refuse(Errno::EINVAL, "no such mode"),
    }
}

fn keys(info: &SaInfo, aead: &[u8]) -> Result<SaParameters, Refusal> {
    let Ok((head, key)) = AeadHead::read_from_prefix(aead) else {
        return refuse(Errno::ERANGE, "the algorithm is cut off");
    };
    let name = head.name.as_flattened();
    let name = &name[..name.iter().position(|byte| *byte == 0).unwrap_or(name.len())];
    if name != GCM_NAME {
        return refuse(Errno::ENOSYS, "Weir seals with rfc4106(gcm(aes)) only");
    }
    let key_len = head.key_bits.div_ceil(8) as usize;
    let Some(key) = key.get(..key_len) else {
        return refuse(Errno::EINVAL, "the key is shorter than it says");
    };
    if head.icv_bits != ICV_BITS {
        return refuse(Errno::EINVAL, "Weir makes ICVs of 128 bits; end the algorithm with 128");
    }
    let spi = u32::from_be_bytes(info.id.spi);
    let refused =
        |error: weir_engine::esp::sa::SaError| Refusal::new(Errno::EINVAL, error.to_string());
    let spi = Spi::new(spi).map_err(refused)?;
    SaParameters::new(spi, key).map_err(refused)
}

/// As the kernel's `verify_replay` has it: iproute2 leaves an empty bitmap out.
fn replay_esn(info: &SaInfo, given: Option<&[u8]>) -> Result<Option<ReplayEsnHead>, Refusal> {
    let esn = info.flags & FLAG_ESN != 0;
    let Some(value) = given else {
        return match esn {
            true => refuse(Errno::EINVAL, "ESN needs a replay window of its own form"),
            false => Ok(None),
        };
    };
    let Ok((head, bitmap)) = ReplayEsnHead::read_from_prefix(value) else {
        return refuse(Errno::ERANGE, "the replay state is cut off");
    };
    if head.words > BITMAP_WORDS_MAX
        || !bitmap.is_empty() && bitmap.len() < 4 * head.words as usize
        || head.window > head.words * 32
    {
        return refuse(Errno::EINVAL, "the replay window does not fit its bitmap");
    }
    if info.replay_window != 0 {
        return refuse(Errno::EINVAL, "there are two replay windows");
    }
    Ok(Some(head))
}

fn encapsulation(value: &[u8]) -> Result<Encapsulation, Refusal> {
    let found: Encapsulation = fixed(value)?;
    match found.kind {
        ENCAP_ESP_IN_UDP => Ok(found),
        _ => refuse(Errno::EOPNOTSUPP, "Weir encapsulates by UDP (type espinudp) only"),
    }
}

/// A replay window that Weir has: it offers none below 64, and a multiple of 64.
fn window_for(wanted: u32) -> u32 {
    match wanted {
        0 => SaParameters::DEFAULT_REPLAY_WINDOW,
        wanted => wanted.next_multiple_of(64).clamp(64, 8192),
    }
}

/// An attribute of fixed size; a longer one is taken, as the kernel takes it.
pub(crate) fn fixed<T: FromBytes>(value: &[u8]) -> Result<T, Refusal> {
    match T::read_from_prefix(value) {
        Ok((value, _)) => Ok(value),
        Err(_) => refuse(Errno::ERANGE, "an attribute is cut off"),
    }
}

/// The address that stands in `bytes`.
pub fn ip(bytes: &Address, family: u16) -> IpAddr {
    match family {
        FAMILY_V4 => IpAddr::from([bytes[0], bytes[1], bytes[2], bytes[3]]),
        _ => IpAddr::from(*bytes),
    }
}

/// The bytes of an address, and its family.
pub fn address(ip: IpAddr) -> (Address, u16) {
    match ip {
        IpAddr::V4(v4) => {
            let mut bytes = Address::default();
            bytes[..4].copy_from_slice(&v4.octets());
            (bytes, FAMILY_V4)
        }
        IpAddr::V6(v6) => (v6.octets(), FAMILY_V6),
    }
}

/// Whether two addresses of a family are the same; what stands behind IPv4's four bytes is no part
/// of it.
pub(crate) fn same(one: &Address, other: &Address, family: u16) -> bool {
    let len = if family == FAMILY_V4 { 4 } else { 16 };
    one[..len] == other[..len]
}
