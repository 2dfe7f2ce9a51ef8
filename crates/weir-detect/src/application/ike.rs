//! IKE, versions 1 (RFC 2408, 2409) and 2 (RFC 7296): how two gateways agree on keys.

use super::Parser;
use super::unit::{Said, Unit};
use crate::buffers::event::AppEvent;
use crate::heap::heap_size;
use crate::rule::{Buffer, Field, Protocol};
use crate::value::{Object, hex};

const HEAD_LEN: usize = 28;
/// Payloads of a message, and proposals and transforms of one, at most.
const PAYLOADS_MAX: usize = 64;
const TRANSFORMS_MAX: usize = 256;
/// The mark that messages of IKE have on the port that NAT traversal uses.
const NOT_ESP: &[u8] = &[0; 4];

/// A flow between two gateways.
#[derive(Debug, Default)]
pub(crate) struct Ike {
    count: u64,
    /// Version 1, of each side: keys and nonces so far.
    sides: [Object; 2],
    /// What the responder chose.
    chosen: Object,
    domain: Option<u32>,
    selected: Selected,
}
heap_size!(Ike { sides, chosen });

/// What the responder of version 2 selected last, by kinds of transforms (RFC 7296 s3.3.2):
/// encryption, pseudorandom function, integrity, group and sequence numbers.
#[derive(Debug)]
struct Selected([u16; 5]);

impl Default for Selected {
    fn default() -> Self {
        Self([ENCR_NULL, 0, 0, 0, 0])
    }
}

const ENCR_NULL: u16 = 11;
/// Proposals of this protocol encrypt nothing (RFC 7296 s3.3.1).
const AH: u8 = 2;
/// Notifications below tell of errors (RFC 7296 s3.10.1).
const STATUS: u16 = 16_384;

/// A message's header.
struct Head {
    initiator: [u8; 8],
    responder: [u8; 8],
    next: u8,
    version: [u8; 2],
    exchange: u8,
    flags: u8,
    message: u32,
}

impl Parser for Ike {
    fn take(&mut self, side: usize, bytes: &[u8], said: &mut Said) {
        // What keeps a translator's mapping alive (RFC 3948 s2.3).
        if bytes == [0xff] {
            return;
        }
        let bytes = bytes.strip_prefix(NOT_ESP).unwrap_or(bytes);
        let mut unit = Unit::new(Protocol::Ike, self.count);
        let Some(head) = head(bytes) else {
            unit.odd(AppEvent::IkeMalformed);
            return said.unreadable(unit);
        };
        self.count += 1;
        unit.text(Buffer::IkeInitiator, hex(&head.initiator, "").as_bytes());
        unit.text(Buffer::IkeResponder, hex(&head.responder, "").as_bytes());
        unit.number(Field::IkeExchange, head.exchange);
        let object = match head.version[0] {
            1 => self.first(side, &head, &bytes[HEAD_LEN..], &mut unit),
            _ => self.second(side, &head, &bytes[HEAD_LEN..], &mut unit),
        };
        unit.tells("ike", object);
        said.message(unit, side);
    }
}

fn head(bytes: &[u8]) -> Option<Head> {
    let (head, _) = bytes.split_first_chunk::<HEAD_LEN>()?;
    let mut spis = [[0; 8]; 2];
    spis[0].copy_from_slice(&head[..8]);
    spis[1].copy_from_slice(&head[8..16]);
    let length = u32::from_be_bytes([head[24], head[25], head[26], head[27]]);
    let is_whole = length as usize == bytes.len();
    is_whole.then_some(Head {
        initiator: spis[0],
        responder: spis[1],
        next: head[16],
        version: [head[17] >> 4, head[17] & 15],
        exchange: head[18],
        flags: head[19],
        message: u32::from_be_bytes([head[20], head[21], head[22], head[23]]),
    })
}

/// Kinds and contents of the payloads that follow each other; whether all could be read.
fn payloads(mut kind: u8, mut rest: &[u8]) -> (Vec<(u8, &[u8])>, bool) {
    let mut all = Vec::new();
    while kind != 0 && all.len() < PAYLOADS_MAX {
        let [next, _, high, low, ..] = *rest else { return (all, false) };
        let length = usize::from(u16::from_be_bytes([high, low]));
        let Some(content) = rest.get(4..length) else { return (all, false) };
        all.push((kind, content));
        // What is encrypted names the first payload inside.
        kind = if kind == 46 || kind == 53 { 0 } else { next };
        rest = &rest[length..];
    }
    (all, true)
}

fn beginning(head: &Head) -> Object {
    Object::default()
        .with("version_major", head.version[0])
        .with("version_minor", head.version[1])
        .with("exchange_type", head.exchange)
        .with("message_id", head.message)
        .with("init_spi", hex(&head.initiator, ""))
        .with("resp_spi", hex(&head.responder, ""))
}

impl Ike {
    /// A message of version 1.
    fn first(&mut self, side: usize, head: &Head, rest: &[u8], unit: &mut Unit) -> Object {
        let is_encrypted = head.flags & 1 != 0;
        let mut proposed = None;
        let mut vendors = Vec::new();
        let mut kinds = if is_encrypted { vec![head.next] } else { Vec::new() };
        let (payloads, is_whole) =
            if is_encrypted { (Vec::new(), true) } else { payloads(head.next, rest) };
        if !is_whole {
            unit.odd(AppEvent::IkeMalformed);
        }
        for (kind, content) in payloads {
            if !kinds.contains(&kind) {
                kinds.push(kind);
            }
            match kind {
                1 => {
                    self.domain = content.first_chunk().map(|it| u32::from_be_bytes(*it));
                    let proposals = first_proposals(content.get(8..).unwrap_or_default());
                    kinds.extend([2, 3]);
                    if side == 1 {
                        proposals.iter().for_each(|it| choose(it, unit));
                        self.chosen = proposals.first().map(|it| described(it)).unwrap_or_default();
                    } else {
                        proposed =
                            Some(proposals.iter().map(|it| described(it)).collect::<Vec<_>>());
                    }
                }
                4 => key_exchange(content, &mut self.sides[side], unit),
                10 => nonce(content, &mut self.sides[side], unit),
                13 => {
                    let vendor = hex(content, "");
                    unit.text(Buffer::IkeVendor, vendor.as_bytes());
                    vendors.push(vendor);
                }
                _ => {}
            }
        }
        let mut first = Object::default();
        first.put_some("doi", self.domain);
        first.put("encrypted_payloads", is_encrypted);
        if !is_encrypted {
            let [client, server] = &self.sides;
            let mut client = client.clone();
            client.put_some("proposals", proposed);
            first.put("client", client);
            first.put("server", server.clone());
        }
        if !vendors.is_empty() {
            first.put("vendor_ids", vendors);
        }
        let mut object = beginning(head);
        for (name, value) in self.chosen.iter() {
            object.put(name.to_owned(), value.clone());
        }
        object.put("payload", kinds.iter().map(|it| first_payload_name(*it)).collect::<Vec<_>>());
        object.put("ikev1", first);
        object
    }
}

fn key_exchange(content: &[u8], told: &mut Object, unit: &mut Unit) {
    unit.text(Buffer::IkeKeyExchange, content);
    unit.number(Field::IkeKeyLength, i64::try_from(content.len()).unwrap_or(i64::MAX));
    told.put("key_exchange_payload", hex(content, ""));
    told.put("key_exchange_payload_length", content.len());
}

fn nonce(content: &[u8], told: &mut Object, unit: &mut Unit) {
    unit.text(Buffer::IkeNonce, content);
    unit.number(Field::IkeNonceLength, i64::try_from(content.len()).unwrap_or(i64::MAX));
    told.put("nonce_payload", hex(content, ""));
    told.put("nonce_payload_length", content.len());
}

/// Attributes of a transform: kinds and values.
fn attributes(mut rest: &[u8]) -> Vec<(u16, u64)> {
    let mut all = Vec::new();
    while let [a, b, c, d, behind @ ..] = rest {
        let kind = u16::from_be_bytes([*a, *b]);
        let word = u16::from_be_bytes([*c, *d]);
        if kind & 0x8000 != 0 {
            all.push((kind & 0x7fff, word.into()));
            rest = behind;
            continue;
        }
        let Some((value, behind)) = behind.split_at_checked(word.into()) else { break };
        let number = value.iter().take(8).fold(0, |all, it| all << 8 | u64::from(*it));
        all.push((kind, number));
        rest = behind;
    }
    all
}

/// The transforms of version 1's proposals, each as its attributes.
fn first_proposals(mut rest: &[u8]) -> Vec<Vec<(u16, u64)>> {
    let mut all = Vec::new();
    while let [_, _, high, low, _, _, spi, count, ..] = *rest {
        let length = usize::from(u16::from_be_bytes([high, low]));
        let Some(mut transforms) = rest.get(8 + usize::from(spi)..length) else { break };
        for _ in 0..count {
            let [_, _, high, low, ..] = *transforms else { break };
            let length = usize::from(u16::from_be_bytes([high, low]));
            let Some(content) = transforms.get(8..length) else { break };
            if all.len() < TRANSFORMS_MAX {
                all.push(attributes(content));
            }
            transforms = &transforms[length..];
        }
        rest = rest.get(length.max(8)..).unwrap_or_default();
    }
    all
}

/// What rules ask of what was chosen.
fn choose(attributes: &[(u16, u64)], unit: &mut Unit) {
    for (kind, value) in attributes {
        let field = match kind {
            1 => Field::IkeEncryption,
            2 => Field::IkeHash,
            3 => Field::IkeAuthentication,
            4 => Field::IkeGroup,
            11 => Field::IkeLifeType,
            12 => Field::IkeLifeDuration,
            14 => Field::IkeKeyBits,
            _ => continue,
        };
        unit.number(field, i64::try_from(*value).unwrap_or(i64::MAX));
    }
}

/// A transform of version 1, as EVE has it (RFC 2409 appendix A).
fn described(attributes: &[(u16, u64)]) -> Object {
    let mut object = Object::default();
    let mut put = |name: &'static str, raw: &'static str, spelt: &str, value: u64| {
        object.put(name, spelt);
        object.put(raw, value);
    };
    for (kind, value) in attributes {
        match kind {
            1 => put("alg_enc", "alg_enc_raw", first_encryption(*value), *value),
            2 => put("alg_hash", "alg_hash_raw", first_hash(*value), *value),
            3 => put("alg_auth", "alg_auth_raw", first_authentication(*value), *value),
            4 => put("alg_dh", "alg_dh_raw", first_group(*value), *value),
            11 => {
                let spelt = match value {
                    1 => "LifeTypeSeconds",
                    2 => "LifeTypeKilobytes",
                    _ => "Unknown",
                };
                put("sa_life_type", "sa_life_type_raw", spelt, *value);
            }
            12 => put("sa_life_duration", "sa_life_duration_raw", "Unknown", *value),
            14 => put("sa_key_length", "sa_key_length_raw", "Unknown", *value),
            _ => {}
        }
    }
    object
}

fn first_encryption(number: u64) -> &'static str {
    match number {
        1 => "EncDesCbc",
        2 => "EncIdeaCbc",
        3 => "EncBlowfishCbc",
        4 => "EncRc5R16B64Cbc",
        5 => "EncTripleDesCbc",
        6 => "EncCastCbc",
        7 => "EncAesCbc",
        8 => "EncCamelliaCbc",
        _ => "Unknown",
    }
}

fn first_hash(number: u64) -> &'static str {
    match number {
        1 => "HashMd5",
        2 => "HashSha",
        3 => "HashTiger",
        4 => "HashSha2_256",
        5 => "HashSha2_384",
        6 => "HashSha2_512",
        _ => "Unknown",
    }
}

fn first_authentication(number: u64) -> &'static str {
    match number {
        1 => "AuthPreSharedKey",
        2 => "AuthDssSignatures",
        3 => "AuthRsaSignatures",
        4 => "AuthEncryptionWithRsa",
        5 => "AuthRevisedEncryptionWithRsa",
        _ => "Unknown",
    }
}

fn first_group(number: u64) -> &'static str {
    match number {
        1 => "GroupDefault768BitModp",
        2 => "GroupAlternate1024BitModpGroup",
        5 => "GroupModp1536Bit",
        14 => "GroupModp2048Bit",
        15 => "GroupModp3072Bit",
        16 => "GroupModp4096Bit",
        17 => "GroupModp6144Bit",
        18 => "GroupModp8192Bit",
        19 => "GroupRandom256BitEcp",
        20 => "GroupRandom384BitEcp",
        21 => "GroupRandom521BitEcp",
        _ => "Unknown",
    }
}

fn first_payload_name(kind: u8) -> String {
    match kind {
        1 => "SecurityAssociation",
        2 => "Proposal",
        3 => "Transform",
        4 => "KeyExchange",
        5 => "Identification",
        6 => "Certificate",
        7 => "CertificateRequest",
        8 => "Hash",
        9 => "Signature",
        10 => "Nonce",
        11 => "Notification",
        12 => "Delete",
        13 => "VendorID",
        15 => "SaKekPayload",
        20 => "NatDiscovery",
        21 => "NatOriginalAddress",
        130 => "ExperimentalNatDiscovery",
        other => return other.to_string(),
    }
    .to_owned()
}

impl Ike {
    /// A message of version 2. Of its keys and nonces rules do not ask, as with Suricata.
    fn second(&mut self, side: usize, head: &Head, rest: &[u8], unit: &mut Unit) -> Object {
        let mut object = beginning(head);
        let (payloads, is_whole) = payloads(head.next, rest);
        if !is_whole {
            unit.odd(AppEvent::IkeMalformed);
        }
        let mut notifications = Vec::new();
        for (kind, content) in &payloads {
            match kind {
                33 => self.proposals(side, content, unit),
                41 => {
                    if let Some([high, low]) = content.get(2..4) {
                        notifications.push(u16::from_be_bytes([*high, *low]));
                    }
                }
                43 => unit.text(Buffer::IkeVendor, hex(content, "").as_bytes()),
                _ => {}
            }
        }
        let is_initiator = head.flags & 8 != 0;
        object.put("role", if is_initiator { "initiator" } else { "responder" });
        if !is_initiator {
            self.selected.put(&mut object);
        }
        let mut kinds: Vec<String> = payloads.iter().map(|it| second_payload_name(it.0)).collect();
        if is_whole {
            kinds.push("NoNextPayload".to_owned());
        }
        object.put("payload", kinds);
        let errors = notifications.iter().filter(|it| **it < STATUS).count();
        let mut told = Object::default().with("errors", errors);
        if !notifications.is_empty() {
            let names = notifications.into_iter().map(notification_name);
            told.put("notify", names.collect::<Vec<_>>());
        }
        object.put("ikev2", told);
        object
    }

    /// What is proposed, or selected; either is judged.
    fn proposals(&mut self, side: usize, mut rest: &[u8], unit: &mut Unit) {
        let mut count = 0;
        while let [_, _, high, low, _, protocol, spi, transforms, ..] = *rest {
            let length = usize::from(u16::from_be_bytes([high, low]));
            let Some(mut inner) = rest.get(8 + usize::from(spi)..length) else { break };
            count += 1;
            let mut all = Vec::new();
            for _ in 0..transforms {
                let [_, _, high, low, kind, _, first, second, ..] = *inner else { break };
                let length = usize::from(u16::from_be_bytes([high, low]));
                all.push((kind, u16::from_be_bytes([first, second])));
                let Some(behind) = inner.get(length.max(8)..) else { break };
                inner = behind;
            }
            judge(protocol, &all, unit);
            if side == 1 {
                all.into_iter().for_each(|it| self.selected.take(it));
            }
            rest = rest.get(length.max(8)..).unwrap_or_default();
        }
        if side == 1 && count > 1 {
            unit.odd(AppEvent::IkeManyProposals);
        }
    }
}

impl Selected {
    fn take(&mut self, (kind, number): (u8, u16)) {
        let place = usize::from(kind).checked_sub(1).and_then(|it| self.0.get_mut(it));
        place.into_iter().for_each(|it| *it = number);
    }

    fn put(&self, object: &mut Object) {
        let Self([encryption_number, prf, integrity_number, group_number, sequence]) = *self;
        object.put("alg_enc", encryption(encryption_number));
        object.put("alg_prf", pseudorandom(prf));
        object.put("alg_auth", integrity(integrity_number));
        object.put("alg_dh", group(group_number));
        object.put("alg_esn", if sequence == 0 { "NoESN" } else { "ESN" });
    }
}

/// Whether something is odd about a proposal: what it has that was broken, and what it lacks.
fn judge(protocol: u8, transforms: &[(u8, u16)], unit: &mut Unit) {
    transforms.iter().filter_map(|it| oddity(*it)).for_each(|it| unit.odd(it));
    if !transforms.iter().any(|it| it.0 == 4) {
        unit.odd(AppEvent::IkeNoGroup);
    }
    if protocol == AH {
        unit.odd(AppEvent::IkeNoEncryption);
    }
    // Ciphers that authenticate what they encrypt need no integrity beside them.
    let is_whole = |it: &(u8, u16)| match it {
        (1, number) => matches!(number, 14..=16 | 18..=20 | 25..=28),
        (3, number) => *number != 0,
        _ => false,
    };
    if !transforms.iter().any(is_whole) {
        unit.odd(AppEvent::IkeNoAuthentication);
    }
}

/// Whether a transform is one that was broken, or that nobody knows.
fn oddity(transform: (u8, u16)) -> Option<AppEvent> {
    Some(match transform {
        (1, 1..=9 | ENCR_NULL) => AppEvent::IkeWeakEncryption,
        (2 | 4, 0) => AppEvent::IkeInvalidProposal,
        (2, 1 | 2) => AppEvent::IkeWeakPrf,
        (3, 1..=7) => AppEvent::IkeWeakAuthentication,
        (4, 1 | 2 | 5 | 22) => AppEvent::IkeWeakGroup,
        (1..=5, _) => return None,
        _ => AppEvent::IkeUnknownProposal,
    })
}

/// What has no name, as EVE spells it.
fn nameless(kind: &str, number: u16) -> String {
    format!("{kind}({number} / {number:#x})")
}

fn encryption(number: u16) -> String {
    match number {
        1 => "ENCR_DES_IV64",
        2 => "ENCR_DES",
        3 => "ENCR_3DES",
        4 => "ENCR_RC5",
        5 => "ENCR_IDEA",
        6 => "ENCR_CAST",
        7 => "ENCR_BLOWFISH",
        8 => "ENCR_3IDEA",
        9 => "ENCR_DES_IV32",
        ENCR_NULL => "ENCR_NULL",
        12 => "ENCR_AES_CBC",
        13 => "ENCR_AES_CTR",
        14 => "ENCR_AES_CCM_8",
        15 => "ENCR_AES_CCM_12",
        16 => "ENCR_AES_CCM_16",
        18 => "ENCR_AES_GCM_8",
        19 => "ENCR_AES_GCM_12",
        20 => "ENCR_AES_GCM_16",
        28 => "ENCR_CHACHA20_POLY1305",
        other => return nameless("IkeTransformEncType", other),
    }
    .to_owned()
}

fn pseudorandom(number: u16) -> String {
    match number {
        0 => "PRF_NULL",
        1 => "PRF_HMAC_MD5",
        2 => "PRF_HMAC_SHA1",
        3 => "PRF_HMAC_TIGER",
        4 => "PRF_AES128_XCBC",
        5 => "PRF_HMAC_SHA2_256",
        6 => "PRF_HMAC_SHA2_384",
        7 => "PRF_HMAC_SHA2_512",
        8 => "PRF_AES128_CMAC",
        other => return nameless("IkeTransformPRFType", other),
    }
    .to_owned()
}

fn integrity(number: u16) -> String {
    match number {
        0 => "NONE",
        1 => "AUTH_HMAC_MD5_96",
        2 => "AUTH_HMAC_SHA1_96",
        3 => "AUTH_DES_MAC",
        4 => "AUTH_KPDK_MD5",
        5 => "AUTH_AES_XCBC_96",
        6 => "AUTH_HMAC_MD5_128",
        7 => "AUTH_HMAC_SHA1_160",
        8 => "AUTH_AES_CMAC_96",
        12 => "AUTH_HMAC_SHA2_256_128",
        13 => "AUTH_HMAC_SHA2_384_192",
        14 => "AUTH_HMAC_SHA2_512_256",
        other => return nameless("IkeTransformAuthType", other),
    }
    .to_owned()
}

fn group(number: u16) -> String {
    match number {
        0 => "None",
        1 => "Modp768",
        2 => "Modp1024",
        5 => "Modp1536",
        14 => "Modp2048",
        15 => "Modp3072",
        16 => "Modp4096",
        17 => "Modp6144",
        18 => "Modp8192",
        19 => "Ecp256",
        20 => "Ecp384",
        21 => "Ecp521",
        22 => "Modp1024s160",
        23 => "Modp2048s224",
        24 => "Modp2048s256",
        25 => "Ecp192",
        26 => "Ecp224",
        31 => "Curve25519",
        32 => "Curve448",
        other => return nameless("IkeTransformDHType", other),
    }
    .to_owned()
}

fn second_payload_name(kind: u8) -> String {
    match kind {
        33 => "SecurityAssociation",
        34 => "KeyExchange",
        35 => "IDi",
        36 => "IDr",
        37 => "Certificate",
        38 => "CertificateRequest",
        39 => "Authentication",
        40 => "Nonce",
        41 => "Notify",
        42 => "Delete",
        43 => "VendorID",
        44 => "TSi",
        45 => "TSr",
        46 => "EncryptedAndAuthenticated",
        47 => "Configuration",
        48 => "ExtensibleAuthentication",
        other => return nameless("IkePayloadType", other.into()),
    }
    .to_owned()
}

/// RFC 7296 s3.10.1.
fn notification_name(number: u16) -> String {
    match number {
        1 => "UNSUPPORTED_CRITICAL_PAYLOAD",
        4 => "INVALID_IKE_SPI",
        5 => "INVALID_MAJOR_VERSION",
        7 => "INVALID_SYNTAX",
        9 => "INVALID_MESSAGE_ID",
        11 => "INVALID_SPI",
        14 => "NO_PROPOSAL_CHOSEN",
        17 => "INVALID_KE_PAYLOAD",
        24 => "AUTHENTICATION_FAILED",
        16384 => "INITIAL_CONTACT",
        16385 => "SET_WINDOW_SIZE",
        16386 => "ADDITIONAL_TS_POSSIBLE",
        16387 => "IPCOMP_SUPPORTED",
        16388 => "NAT_DETECTION_SOURCE_IP",
        16389 => "NAT_DETECTION_DESTINATION_IP",
        16390 => "COOKIE",
        16391 => "USE_TRANSPORT_MODE",
        16430 => "IKEV2_FRAGMENTATION_SUPPORTED",
        16431 => "SIGNATURE_HASH_ALGORITHMS",
        other => return nameless("NotifyType", other),
    }
    .to_owned()
}

#[cfg(test)]
mod tests;
