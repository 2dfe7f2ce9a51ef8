//! `mode = "icrc-tag"`: RoCE packets authenticated by a tag in the place of their ICRC, and what a
//! peer may say about it.
//!
//! ```toml
//! [[peer]]
//! mode = "icrc-tag"
//! weaker_than_esp = true          # required, so that readers of this file know it is weaker
//! protects = ["10.0.0.2/32"]      # prefixes
//! public_key = "..."              # keys by handshakes, one epoch each; without it, by a file:
//! [peer.tag]
//! key_file = "ab.tag"             # 32 bytes in base64, the same at both gateways
//! previous_key_file = "old.tag"   # [none] also accepted: the previous key, or the next
//! epoch_s = 10                    # [10] seconds, 1 to 3600; the clocks of both gateways must
//! #                                 differ by less; the same at both gateways
//! keyed_by = "queue-pair"         # [queue-pair] a key per queue-pair | partition; same at both
//! other = "drop"                  # [drop] drop | clear: packets that are not RoCE
//! ```

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use toml::Spanned;
use weir_engine::esp::icrc_tag::{EPOCH_S_DEFAULT, IcrcTag, TagKey, TagRefusal};
use weir_engine::policy;

use super::combine;
use super::file;
use super::key::{KeyError, Keys};
use super::keying;
use super::problem::Problems;
use super::settings::{Mode, Pair, PeerKeys, Tagging};

/// Seconds of an epoch: at most an hour, for a packet that was heard can be played again for two.
const EPOCH_S: [u32; 2] = [1, 3600];

const REMEDY: &str =
    "make it with `weir keys preshared FILE`, and copy it to the peer by a safe way";

/// `[peer.tag]`.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
#[allow(missing_docs, reason = "the keys are documented in the format above")]
pub struct Written {
    pub key_file: Option<Spanned<PathBuf>>,
    pub previous_key_file: Option<Spanned<PathBuf>>,
    pub epoch_s: Option<Spanned<u32>>,
    #[serde(default)]
    pub keyed_by: KeyedBy,
    #[serde(default)]
    pub other: OtherTraffic,
}

/// What shares a key.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum KeyedBy {
    /// Both addresses and the destination's queue pair.
    #[default]
    QueuePair,
    /// A partition: its members are trusted not to speak for each other.
    Partition,
}

/// What happens to packets that are not RoCE.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum OtherTraffic {
    /// Dropped and counted, both ways.
    #[default]
    Drop,
    /// Passed in clear, both ways, unprotected.
    Clear,
}

/// What `peer` says about tags; `None` in another mode.
pub(super) fn resolve(peer: &file::Peer, problems: &mut Problems) -> Option<Tagging> {
    let name = peer.name.get_ref();
    if *peer.mode.get_ref() != Mode::IcrcTag {
        let alone = [
            ("tag", peer.tag.as_ref().map(Spanned::span)),
            ("weaker_than_esp", peer.weaker_than_esp.as_ref().map(Spanned::span)),
        ];
        for (key, span) in alone.into_iter().filter_map(|(key, span)| Some((key, span?))) {
            let what = format!("`{key}` at peer `{name}`, whose packets are sealed by ESP");
            problems.error(span, what, "remove it, or write mode = \"icrc-tag\"");
        }
        return None;
    }
    if peer.weaker_than_esp.as_ref().is_none_or(|it| !it.get_ref()) {
        problems.error(
            peer.mode.span(),
            format!(
                "mode = \"icrc-tag\" at peer `{name}` is weaker than ESP: nothing is encrypted, a \
                 guess succeeds once in 2^32, what was heard can be replayed within an epoch"
            ),
            "use mode = \"ethernet\", \"tunnel\" or \"transport\"; where not a byte may be added, \
             write weaker_than_esp = true here",
        );
    } else {
        problems.warning(
            peer.mode.span(),
            format!("peer `{name}`: its RoCE packets are authenticated by 32 bits, and readable"),
            "use ESP wherever its bytes find room",
        );
    }
    let default = Written::default();
    let written = peer.tag.as_ref().map_or(&default, |it| it.get_ref());
    if written.other == OtherTraffic::Clear {
        problems.warning(
            peer.mode.span(),
            format!("peer `{name}`: packets that are not RoCE pass in clear, unprotected"),
            "leave `other` out, unless that is what you want",
        );
    }
    check_keys(peer, written, problems);
    let epoch_s = written.epoch_s.as_ref().map_or(EPOCH_S_DEFAULT, |it| *it.get_ref());
    if let Some(span) = written.epoch_s.as_ref().map(Spanned::span)
        && !(EPOCH_S[0]..=EPOCH_S[1]).contains(&epoch_s)
    {
        let remedy = format!("write a number from {} to {}", EPOCH_S[0], EPOCH_S[1]);
        problems.error(span, format!("epoch_s = {epoch_s}"), remedy);
    }
    Some(Tagging { keyed_by: written.keyed_by, epoch_s, other: written.other })
}

/// Keys come from a file or from handshakes, and from nowhere else.
fn check_keys(peer: &file::Peer, written: &Written, problems: &mut Problems) {
    let name = peer.name.get_ref();
    for association in [&peer.seal, &peer.open].into_iter().flatten() {
        problems.error(
            association.span(),
            format!("`seal` or `open` at peer `{name}`, whose packets are not sealed"),
            "remove it: tags take `key_file` in [peer.tag], or `public_key`",
        );
    }
    let path =
        |it: &Option<Spanned<PathBuf>>| it.as_ref().map(|it| (it.span(), it.get_ref().clone()));
    let (key, previous) = (path(&written.key_file), path(&written.previous_key_file));
    if peer.public_key.is_some() {
        let epoch = written.epoch_s.as_ref().map(Spanned::span);
        let files = [&key, &previous].into_iter().flatten().map(|(span, _)| span.clone());
        for span in files.chain(epoch) {
            problems.error(
                span,
                format!("peer `{name}` has a `public_key`, and keys or epochs of its own"),
                "keep `keyed_by` and `other` alone: each handshake makes keys and begins an epoch",
            );
        }
        return;
    }
    if peer.endpoint.is_some() {
        let span = peer.endpoint.as_ref().map_or(peer.name.span(), Spanned::span);
        let what = "mode = \"icrc-tag\" with an `endpoint`: packets keep their own addresses";
        problems.error(span, what, "remove `endpoint`; only handshakes (`public_key`) have one");
    }
    match (key, previous) {
        (None, _) => problems.error(
            peer.name.span(),
            format!("peer `{name}` has no `public_key`, and no `key_file` in [peer.tag]"),
            "add one of them: `weir keys public`, or `weir keys preshared FILE`",
        ),
        (Some((_, key)), Some((span, previous))) if key == previous => problems.error(
            span,
            "`key_file` and `previous_key_file` are the same",
            "name the other key, or remove `previous_key_file`",
        ),
        _ => {}
    }
}

/// Where the keys of a tagged peer are kept, when they are kept in files.
pub(super) fn keys(peer: &file::Peer, directory: &Path) -> Option<PeerKeys> {
    if *peer.mode.get_ref() != Mode::IcrcTag {
        return None;
    }
    let written = peer.tag.as_ref().map(Spanned::get_ref);
    let path = |it: &Option<Spanned<PathBuf>>| it.as_ref().map(|it| directory.join(it.get_ref()));
    Some(PeerKeys::Tagged {
        key: written.and_then(|it| path(&it.key_file)).unwrap_or_default(),
        previous: written.and_then(|it| path(&it.previous_key_file)),
    })
}

/// What is wrong with all peers together: who shares a key can speak for the others.
pub(super) fn check(file: &file::File, problems: &mut Problems) {
    let mut owners: BTreeMap<PathBuf, &str> = BTreeMap::new();
    for (_, peer) in &file.peers {
        let Some(key) = peer.tag.as_ref().and_then(|it| it.get_ref().key_file.as_ref()) else {
            continue;
        };
        if let Some(other) = owners.insert(key.get_ref().clone(), peer.name.get_ref()) {
            let what =
                format!("peers `{other}` and `{}` have the same key file", peer.name.get_ref());
            let remedy = "make a key for each peer: who has it can speak for the other";
            problems.error(key.span(), what, remedy);
        }
    }
}

/// What a pair's tagged peers need of it.
pub(super) fn check_pair(
    pair: &file::Pair,
    peers: &[&file::Peer],
    span: Range<usize>,
    problems: &mut Problems,
) {
    for peer in peers.iter().filter(|peer| *peer.mode.get_ref() == Mode::IcrcTag) {
        for needs in combine::lacks("mode = \"icrc-tag\"", peer, pair) {
            let what = format!("tagged peer `{}` needs {needs}", peer.name.get_ref());
            problems.error(span.clone(), what, "leave `default` out, or use a mode with ESP");
        }
    }
}

/// Reads the keys of `pairs` that are kept in files.
///
/// # Errors
/// The first that cannot be had.
pub(super) fn read_keys(pairs: &[Pair], keys: &mut Keys) -> Result<(), KeyError> {
    for peer in pairs.iter().flat_map(|pair| &pair.peers) {
        let PeerKeys::Tagged { key, previous } = &peer.keys else { continue };
        for path in [Some(key), previous.as_ref()].into_iter().flatten() {
            if !keys.tags.contains_key(path) {
                let bytes = keying::read(path, "tag key", REMEDY)?;
                keys.tags.insert(path.clone(), TagKey::new(bytes));
            }
        }
    }
    Ok(())
}

/// How the engine is told.
pub(super) fn terms(tagging: &Tagging) -> policy::TagTerms {
    policy::TagTerms {
        keyed_by: match tagging.keyed_by {
            KeyedBy::QueuePair => policy::KeyedBy::QueuePair,
            KeyedBy::Partition => policy::KeyedBy::Partition,
        },
        other: match tagging.other {
            OtherTraffic::Drop => policy::OtherTraffic::Drop,
            OtherTraffic::Clear => policy::OtherTraffic::Clear,
        },
    }
}

/// What tags the packets of each peer of `pair` whose key is kept in a file, by the peer's name.
///
/// # Errors
/// The cipher library refuses a key.
pub fn tags(pair: &Pair, keys: &Keys) -> Result<Vec<(String, IcrcTag)>, TagRefusal> {
    let mut tags = Vec::new();
    for peer in &pair.peers {
        let (PeerKeys::Tagged { key, previous }, Some(tagging)) = (&peer.keys, &peer.tag) else {
            continue;
        };
        let key = keys.tags.get(key).ok_or(TagRefusal::NoKey)?;
        let previous = previous.as_ref().and_then(|path| keys.tags.get(path));
        let keyed_by = terms(tagging).keyed_by;
        let tag = IcrcTag::shared(key, previous, keyed_by, tagging.epoch_s)?;
        tags.push((peer.name.clone(), tag));
    }
    Ok(tags)
}
