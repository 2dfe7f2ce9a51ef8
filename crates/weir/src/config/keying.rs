//! Keys agreed between gateways: `[keying]`, a peer's `public_key`, and the files of one key each.
//!
//! A file holds one line of base64, 32 bytes, as `wg genkey` and `weir keys identity` make it;
//! empty lines and lines that begin with `#` are passed over.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use base64ct::{Base64, Encoding};
use toml::Spanned;
use weir_engine::tunnel::key::{Identity, KEY_LEN, PresharedKey, PublicKey};
use weir_engine::tunnel::rekey::Limits;
use zeroize::Zeroizing;

use super::file;
use super::key::{KeyError, read_key_file, read_secret_line};
use super::problem::Problems;
use super::settings::{Keying, Pair, PeerKeys};

/// The UDP port of handshakes, unless configured. Not WireGuard's 51820: hosts may use that.
pub const PORT_DEFAULT: u16 = 51840;

/// Seconds between new keys: at least so many that a handshake fits in, at most a day.
const REKEY_S: [u32; 2] = [1, 86_400];
/// Milliseconds between signs of life; 0 sends none.
const KEEPALIVE_MS: [u32; 2] = [100, 60_000];
/// The fewest bytes and packets between new keys: a handshake a second at 10 Mb/s.
const REKEY_MIB_MIN: u64 = 1;
const REKEY_PACKETS_MIN: u64 = 1000;
const NS_PER_MS: u64 = 1_000_000;

/// A public key from base64.
///
/// # Errors
/// What is wrong with it.
pub fn public_key(text: &str) -> Result<PublicKey, String> {
    let bytes = decode(text).map_err(|error| format!("`{text}` is no public key: {error}"))?;
    if *bytes == [0; KEY_LEN] {
        return Err(format!("`{text}` is no public key: it is zero"));
    }
    Ok(PublicKey(*bytes))
}

/// The public key of `deploy/examples` and the guide, whose owner nobody knows.
const SAMPLE: &str = "B6N8vBQgk8i3Vdwb4QMstCY3StFqqFPtC9+wsrhtHHw=";

/// Refuses peers that still have the examples' public key.
pub(super) fn refuse_samples(pairs: &[Pair], problems: &mut Problems) {
    let sample = public_key(SAMPLE).ok();
    for peer in pairs.iter().flat_map(|it| &it.peers) {
        if let PeerKeys::Agreed { public_key, .. } = &peer.keys
            && Some(public_key) == sample.as_ref()
        {
            let what = format!("peer `{}` has the public key of the examples", peer.name);
            let remedy = "write the one that `weir keys identity` printed on the peer's machine";
            problems.error_in_file(what, remedy);
        }
    }
}

/// A public key as base64.
pub fn public_text(key: &PublicKey) -> String {
    Base64::encode_string(&key.0)
}

/// A secret as base64, for its file.
pub fn secret_text(bytes: &[u8; KEY_LEN]) -> Zeroizing<String> {
    Zeroizing::new(Base64::encode_string(bytes))
}

fn decode(text: &str) -> Result<Zeroizing<[u8; KEY_LEN]>, &'static str> {
    let mut bytes = Zeroizing::new([0; KEY_LEN]);
    match Base64::decode(text.trim(), &mut bytes[..]) {
        Ok(found) if found.len() == KEY_LEN => Ok(bytes),
        _ => Err("32 bytes of base64 (44 characters) are wanted"),
    }
}

/// The identity in the file at `path`.
///
/// # Errors
/// [`KeyError`].
pub fn read_identity(path: &Path) -> Result<Identity, KeyError> {
    let remedy = "make it with `weir keys identity FILE`";
    let bytes = read(path, IDENTITY, remedy)?;
    Identity::new(bytes).ok_or_else(|| KeyError::Unusable {
        what: format!("identity file {} holds no X25519 key", path.display()),
        remedy: remedy.into(),
    })
}

/// The preshared key in the file at `path`.
///
/// # Errors
/// [`KeyError`].
pub fn read_preshared(path: &Path) -> Result<PresharedKey, KeyError> {
    let remedy = "make it with `weir keys preshared FILE`, and copy it to the peer by a safe way";
    read(path, "preshared key", remedy).map(PresharedKey::new)
}

const IDENTITY: &str = "identity";
/// The first line of a file with an identity, behind `# `: such keys look alike.
pub const IDENTITY_COMMENT: &str =
    "an identity: never copy it; `weir keys public` tells its public key";
/// The same of a preshared key.
pub const PRESHARED_COMMENT: &str = "a preshared key: copy it to the other gateway by a safe way";

/// The 32 bytes in the file at `path`.
///
/// # Errors
/// [`KeyError`].
pub(super) fn read(
    path: &Path,
    what: &str,
    remedy: &str,
) -> Result<Zeroizing<[u8; KEY_LEN]>, KeyError> {
    let unusable = |wrong: &str| KeyError::Unusable {
        what: format!("{what} file {}: {wrong}", path.display()),
        remedy: remedy.into(),
    };
    let text = read_key_file(path, remedy)?;
    let says = |comment: &str| text.lines().any(|it| it.strip_prefix("# ") == Some(comment));
    match what {
        IDENTITY if says(PRESHARED_COMMENT) => return Err(unusable("it is a preshared key")),
        IDENTITY => {}
        _ if says(IDENTITY_COMMENT) => return Err(unusable("it is an identity")),
        _ => {}
    }
    let line = read_secret_line(path, remedy)?;
    let bytes = decode(&line).map_err(unusable)?;
    match bytes.iter().all(|byte| *byte == bytes[0]) {
        true => Err(unusable("one byte repeated")),
        false => Ok(bytes),
    }
}

/// What handshakes need beside the settings.
#[derive(Debug)]
pub struct Secrets {
    /// Who we are.
    pub identity: Identity,
    /// What is shared with peers, by file.
    pub preshared: BTreeMap<PathBuf, PresharedKey>,
}

/// `[keying]` as it is meant; `None` when it is not there.
pub(super) fn resolve(
    written: Option<&file::Keying>,
    directory: &Path,
    problems: &mut Problems,
) -> Option<Keying> {
    let written = written?;
    let defaults = Limits::default();
    let mut bounded =
        |key: &str, it: &Option<Spanned<u32>>, default: u64, [least, most]: [u32; 2]| {
            let Some(it) = it else { return default };
            let value = *it.get_ref();
            if !may_be_zero(key, value) && !(least..=most).contains(&value) {
                let remedy = format!("write a number from {least} to {most}");
                problems.error(it.span(), format!("{key} = {value}"), remedy);
            }
            u64::from(value)
        };
    let (rekey, keepalive) = (&written.rekey_after_s, &written.keepalive_ms);
    let rekey_ms =
        1000 * bounded("rekey_after_s", rekey, defaults.rekey_after_ns / 1_000_000_000, REKEY_S);
    let keepalive_ms =
        bounded("keepalive_ms", keepalive, defaults.keepalive_ns / NS_PER_MS, KEEPALIVE_MS);
    let mut at_least = |key: &str, it: &Option<Spanned<u64>>, default: u64, least: u64| {
        let Some(it) = it else { return default };
        if *it.get_ref() < least {
            let what = format!("{key} = {}", it.get_ref());
            problems.error(it.span(), what, format!("write {least} or more"));
        }
        *it.get_ref()
    };
    let mib = at_least(
        "rekey_after_mib",
        &written.rekey_after_mib,
        defaults.rekey_after_bytes >> 20,
        REKEY_MIB_MIN,
    );
    let packets = at_least(
        "rekey_after_packets",
        &written.rekey_after_packets,
        defaults.rekey_after_packets,
        REKEY_PACKETS_MIN,
    );
    if let Some(port) = &written.port
        && matches!(*port.get_ref(), 0 | 500 | 4500 | 4791)
    {
        let what = format!("port = {}, which is 0 or another protocol's", port.get_ref());
        problems.error(port.span(), what, "write another UDP port, the same at all gateways");
    }
    Some(Keying {
        identity_file: directory.join(written.identity_file.get_ref()),
        port: written.port.as_ref().map_or(PORT_DEFAULT, |port| *port.get_ref()),
        limits: Limits {
            rekey_after_ns: rekey_ms * NS_PER_MS,
            rekey_after_bytes: mib.saturating_mul(1 << 20),
            rekey_after_packets: packets,
            keepalive_ns: keepalive_ms * NS_PER_MS,
        },
        probe_path_mtu: written.probe_path_mtu.unwrap_or(true),
    })
}

/// No signs of life at all is a choice.
fn may_be_zero(key: &str, value: u32) -> bool {
    value == 0 && key == "keepalive_ms"
}

/// How a peer's keys come about; `None` when that is not clear.
pub(super) fn agreed(
    peer: &file::Peer,
    pair: &file::Pair,
    directory: &Path,
    problems: &mut Problems,
) -> Option<PeerKeys> {
    let written = peer.public_key.as_ref()?;
    for static_key in [&peer.seal, &peer.open].into_iter().flatten() {
        problems.error(
            static_key.span(),
            format!("peer `{}` has a `public_key` and a key of its own", peer.name.get_ref()),
            "remove `seal` and `open`: handshakes make the keys; or remove `public_key`",
        );
    }
    if peer.extended_sequence == Some(false) {
        problems.error(
            written.span(),
            "extended_sequence = false beside `public_key`",
            "remove it: agreed keys always number by 64 bits",
        );
    }
    if *peer.mode.get_ref() == file::Mode::Transport && !pair.address.0.is_empty() {
        problems.error(
            written.span(),
            "transport mode with `public_key`, in a pair with an `address`",
            "remove the pair's `address` (handshakes borrow the hosts'), or use another mode",
        );
    }
    let public_key = match public_key(written.get_ref()) {
        Ok(key) => key,
        Err(what) => {
            let remedy = "write what `weir keys public FILE` prints at the peer";
            problems.error(written.span(), what, remedy);
            return None;
        }
    };
    let preshared = peer.preshared_key_file.as_ref().map(|file| directory.join(file.get_ref()));
    Some(PeerKeys::Agreed { public_key, preshared, ml_kem: peer.ml_kem.unwrap_or(false) })
}

/// Whether outer source ports follow inner flows: between gateways of ours by default. Strangers
/// may compare them.
pub(super) fn spreads(peer: &file::Peer, problems: &mut Problems) -> bool {
    let Some(written) = &peer.spread else { return peer.public_key.is_some() };
    if *written.get_ref() && peer.encapsulation == file::Encapsulation::Esp {
        problems.error(
            written.span(),
            "spread = true, and no UDP header whose source port could tell flows apart",
            "write encapsulation = \"udp\" as well (IPv6 flow labels are always set)",
        );
    }
    *written.get_ref()
}

/// What is wrong with all peers together.
pub(super) fn check(file: &file::File, pairs: &[Pair], problems: &mut Problems) {
    let first = file.peers.iter().find_map(|(_, peer)| peer.public_key.as_ref());
    if let (Some(key), None) = (first, &file.keying) {
        problems.error(
            key.span(),
            "peers with `public_key`, and no [keying]",
            "add [keying] with `identity_file`; `weir keys identity FILE` makes one",
        );
    }
    for (_, peer) in &file.peers {
        let alone = [
            ("preshared_key_file", peer.preshared_key_file.as_ref().map(Spanned::span)),
            ("ml_kem", peer.ml_kem.filter(|it| *it).map(|_| peer.name.span())),
        ];
        for (what, span) in alone {
            if let (Some(span), None) = (span, &peer.public_key) {
                let what = format!("`{what}` without `public_key`");
                problems.error(span, what, "add the peer's `public_key`, or remove it");
            }
        }
    }
    for pair in pairs {
        let mut owners: BTreeMap<PublicKey, &str> = BTreeMap::new();
        for peer in &pair.peers {
            let PeerKeys::Agreed { public_key, .. } = &peer.keys else { continue };
            if let Some(other) = owners.insert(*public_key, &peer.name) {
                problems.error_in_file(
                    format!("peers `{other}` and `{}` have the same public key", peer.name),
                    "join what they protect in one [[peer]], or correct the key",
                );
            }
        }
    }
}

/// Reads the secrets of `keying` and `pairs`.
///
/// # Errors
/// The first that cannot be had.
pub(super) fn read_secrets(keying: &Keying, pairs: &[Pair]) -> Result<Secrets, KeyError> {
    let identity = read_identity(&keying.identity_file)?;
    let mut preshared = BTreeMap::new();
    for peer in pairs.iter().flat_map(|pair| &pair.peers) {
        let PeerKeys::Agreed { public_key, preshared: file, .. } = &peer.keys else { continue };
        if *public_key == identity.public() {
            return Err(KeyError::Unusable {
                what: format!("peer `{}` has the gateway's own public key", peer.name),
                remedy: "write what `weir keys public FILE` prints at the peer".into(),
            });
        }
        if let Some(file) = file
            && !preshared.contains_key(file)
        {
            preshared.insert(file.clone(), read_preshared(file)?);
        }
    }
    Ok(Secrets { identity, preshared })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_read_as_wg_writes_them() {
        let text = "B6N8vBQgk8i3Vdwb4QMstCY3StFqqFPtC9+wsrhtHHw=";
        let key = public_key(text).unwrap();
        assert_eq!(public_text(&key), text);
        for wrong in ["", "AAAA", "B6N8vBQgk8i3Vdwb4QMstCY3StFqqFPtC9+wsrhtHH==", "?"] {
            assert!(public_key(wrong).is_err(), "{wrong}");
        }
        assert!(public_key(&public_text(&PublicKey([0; 32]))).is_err());
    }
}
