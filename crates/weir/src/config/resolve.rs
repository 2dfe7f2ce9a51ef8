//! From the file as written to settings: fills in defaults and finds contradictions. It goes on
//! after a problem, so that one run names all of them.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::path::{Path, PathBuf};

use toml::Spanned;
use weir_engine::esp::sa::Fingerprint;
use weir_engine::policy::{Action, FrameActions, FrameClass};

use super::access;
use super::address::Prefix;
use super::endpoint;
use super::export;
use super::fastpath;
use super::file::{self, File, FrameAction, OnFailure, Selector, Unprotected};
use super::front_end;
use super::key::{KeyError, KeySource, Keys};
use super::keying;
use super::labels;
use super::marking;
use super::offload;
use super::overlap;
use super::problem::Problems;
use super::rollout;
use super::rules;
use super::settings::*;
use super::sinks;
use super::store;
use super::tag;
use super::transport;
use super::watching;
use super::wireguard;
use super::workers;
use super::{openvpn, vpn};

/// How keys that this user may not read are taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyAccess {
    /// As an error: the gateway needs them.
    Needed,
    /// As a warning: `weir check` runs without privilege.
    IfPermitted,
}

/// Joins the tables; `None` when a problem leaves nothing to build. `directory` is the file's own:
/// relative key files start there.
pub fn resolve(file: File, directory: &Path, problems: &mut Problems) -> Option<Settings> {
    let unread = problems.refused();
    let gateway = match &file.gateway {
        Some(gateway) => Some(resolve_gateway(gateway, problems)),
        None => {
            if !unread {
                problems.error_in_file("the table [gateway] is missing", "add it, with a `name`");
            }
            None
        }
    };
    if file.pairs.is_empty() && !unread {
        problems.error_in_file(
            "there is no [[pair]]",
            "add one with `host` and `wire`, the interfaces towards host and fabric",
        );
    }
    let mut pairs: Vec<Pair> = Vec::new();
    let mut interfaces = BTreeMap::new();
    for (_, pair) in &file.pairs {
        let name = pair.name.as_ref().unwrap_or(&pair.host);
        if pairs.iter().any(|other| other.name == *name.get_ref()) {
            let what = format!("a second pair is named `{}`", name.get_ref());
            problems.error(name.span(), what, "give it a name of its own");
        }
        check_interfaces(pair, name.get_ref(), &mut interfaces, problems);
        let peers = peers_of(name.get_ref(), &file);
        pairs.push(resolve_pair(pair, name.get_ref(), &peers, directory, problems));
    }
    check_peers(&file, &pairs, problems);
    check_associations(&file, directory, problems);
    keying::check(&file, &pairs, problems);
    tag::check(&file, problems);
    access::resolve(&file, directory, &mut pairs, problems);
    let keying = keying::resolve(file.keying.as_ref(), directory, problems);
    check_failure(&file, &pairs, problems);
    let detection = rules::resolve(&file, directory, problems);
    let evidence = watching::evidence(file.evidence.as_ref(), directory, problems);
    workers::check_evidence(&file, evidence.as_ref(), problems);
    let limits = resolve_limits(file.limits.unwrap_or_default(), problems);
    let mirrors = watching::mirrors(&file.mirrors, &pairs, problems);
    let gateway = gateway?;
    let collectors = export::resolve(&file.exports, directory, &gateway.state_dir, problems);
    let sinks = sinks::resolve(&file.sinks, directory, &gateway.state_dir, &gateway.name, problems);
    let labels = labels::resolve(&file.labels, file.store.is_some(), problems);
    let kept = file.store.as_ref();
    let store = store::resolve(kept, directory, &gateway.state_dir, &gateway.name, problems);
    (!problems.refused()).then_some(Settings {
        gateway,
        pairs,
        limits,
        evidence,
        store,
        detection,
        mirrors,
        collectors,
        sinks,
        labels,
        keying,
    })
}

/// A gateway may fail open only if none of its pairs ever seals.
fn check_failure(file: &File, pairs: &[Pair], problems: &mut Problems) {
    let on_failure = file.gateway.as_ref().and_then(|gateway| gateway.on_failure.as_ref());
    let Some(on_failure) = on_failure.filter(|it| *it.get_ref() == OnFailure::Open) else { return };
    if !pairs.iter().all(Pair::monitors_only) {
        problems.error(
            on_failure.span(),
            "on_failure = \"open\" in a gateway that seals: a crash would send plaintext",
            "remove `on_failure`: it is for a gateway that only watches, with no [[peer]], `xfrm`, \
             [pair.vpn] or [pair.openvpn]",
        );
    }
}

/// Reads every key once, and refuses what would repeat a nonce.
pub fn read_keys(settings: &Settings, access: KeyAccess, problems: &mut Problems) -> Option<Keys> {
    let mut keys = Keys::default();
    let mut owners: BTreeMap<Fingerprint, u32> = BTreeMap::new();
    let mut complete = true;
    for association in settings.associations() {
        match association.key.read(association.cipher) {
            Ok(key) => {
                if let Some(spi) = owners.insert(key.fingerprint(), association.spi) {
                    problems.error_in_file(
                        format!(
                            "associations {spi:#x} and {:#x} have the same key: AES-GCM dies of \
                             a nonce used twice",
                            association.spi
                        ),
                        "make a key for each direction with `weir keys generate`",
                    );
                }
                keys.by_source.insert(association.key.clone(), key);
            }
            Err(error @ KeyError::Forbidden(_)) if access == KeyAccess::IfPermitted => {
                problems.warning_in_file(format!("{error}: not checked"), error.remedy());
                complete = false;
            }
            Err(error) => {
                let what = format!("association {:#x}: {error}", association.spi);
                problems.error_in_file(what, error.remedy());
            }
        }
    }
    let tags = tag::read_keys(&settings.pairs, &mut keys);
    let secrets = settings.keying.as_ref().map(|it| keying::read_secrets(it, &settings.pairs));
    let secrets = secrets.transpose().map(|read| keys.secrets = read);
    for error in [tags, secrets].into_iter().filter_map(Result::err) {
        if matches!(error, KeyError::Forbidden(_)) && access == KeyAccess::IfPermitted {
            problems.warning_in_file(format!("{error}: not checked"), error.remedy());
            complete = false;
        } else {
            problems.error_in_file(error.to_string(), error.remedy());
        }
    }
    (complete && !problems.refused()).then_some(keys)
}

fn resolve_gateway(gateway: &file::Gateway, problems: &mut Problems) -> Gateway {
    check_name(&gateway.name, problems);
    let directory = |path: &Option<Spanned<PathBuf>>, default: &str, problems: &mut Problems| {
        let Some(path) = path else { return PathBuf::from(default) };
        if !path.get_ref().is_absolute() {
            let what = format!("`{}` is no absolute path", path.get_ref().display());
            problems.error(path.span(), what, "write it from `/` on");
        }
        path.get_ref().clone()
    };
    Gateway {
        name: gateway.name.get_ref().clone(),
        state_dir: directory(&gateway.state_dir, "/var/lib/weir", problems),
        run_dir: directory(&gateway.run_dir, "/run/weir", problems),
        on_failure: gateway.on_failure.as_ref().map(|it| *it.get_ref()).unwrap_or_default(),
    }
}

/// What a name is made of.
pub const OF_NAMES: &str = "use 1 to 64 letters, digits, `-`, `_` or `.`, and no `.` in front";

/// Whether a gateway, a pair or a peer may have such a name.
pub fn is_name(text: &str) -> bool {
    let legal = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    (1..=64).contains(&text.len()) && text.chars().all(legal) && !text.starts_with('.')
}

pub(super) fn check_name(name: &Spanned<String>, problems: &mut Problems) {
    let text = name.get_ref();
    if !is_name(text) {
        problems.error(name.span(), format!("`{text}` is no name"), OF_NAMES);
    }
}

fn check_interfaces<'a>(
    pair: &'a file::Pair,
    name: &'a str,
    taken: &mut BTreeMap<&'a str, &'a str>,
    problems: &mut Problems,
) {
    if let Some(name) = &pair.name {
        check_name(name, problems);
    }
    for interface in [&pair.host, &pair.wire] {
        let text = interface.get_ref().as_str();
        let legal = |c: char| !c.is_whitespace() && !c.is_control() && c != '/' && c != ':';
        if text.is_empty() || text.len() > 15 || !text.chars().all(legal) || text == "lo" {
            problems.error(
                interface.span(),
                format!("`{text}` is no interface for a gateway"),
                "name one that `ip link` shows, other than `lo`",
            );
        } else if let Some(other) = taken.insert(text, name) {
            problems.error(
                interface.span(),
                format!("interface `{text}` is in use twice (pair `{other}`)"),
                "every port belongs to one pair and one side",
            );
        }
    }
}

/// The peers of pair `name`: those that name it, and those that name none when it is the only one.
fn peers_of<'a>(name: &str, file: &'a File) -> Vec<&'a file::Peer> {
    file.peers
        .iter()
        .map(|(_, peer)| peer)
        .filter(|peer| match &peer.pair {
            Some(pair) => pair.get_ref() == name,
            None => file.pairs.len() == 1,
        })
        .collect()
}

fn resolve_pair(
    pair: &file::Pair,
    name: &str,
    peers: &[&file::Peer],
    directory: &Path,
    problems: &mut Problems,
) -> Pair {
    check_addresses(pair, problems);
    marking::check_vlan(pair, problems);
    if let Some(mtu) = &pair.roce_mtu
        && ![256, 512, 1024, 2048, 4096].contains(mtu.get_ref())
    {
        let what = format!("{} is no RoCE MTU", mtu.get_ref());
        problems.error(mtu.span(), what, "write 256, 512, 1024, 2048 or 4096 (bytes of payload)");
    }
    let unprotected = check_unprotected(pair, name, peers, problems);
    check_overlaps(peers, problems);
    front_end::check(pair, peers, problems);
    offload::check_count(pair, peers, problems);
    Pair {
        name: name.to_owned(),
        host: pair.host.get_ref().clone(),
        wire: pair.wire.get_ref().clone(),
        driver: pair.driver,
        addresses: pair.address.0.iter().map(|it| *it.get_ref()).collect(),
        next_hop: pair.next_hop.as_ref().map(|it| *it.get_ref()),
        vlan: pair.vlan.as_ref().map(|it| *it.get_ref()),
        marking: marking::resolve(pair, peers, problems),
        roce_mtu_bytes: pair.roce_mtu.as_ref().map(|it| *it.get_ref()),
        icrc: pair.icrc,
        on_leak: pair.on_leak,
        xfrm: pair.xfrm,
        fastpath: fastpath::check(pair, peers, problems),
        workers: workers::of_pair(pair, peers, problems),
        unprotected,
        access: None,
        frames: resolve_frames(pair, peers, problems),
        peers: peers.iter().map(|peer| resolve_peer(peer, pair, directory, problems)).collect(),
        vpn: vpn::resolve(pair, directory, problems),
        openvpn: openvpn::resolve(pair, directory, problems),
    }
}

fn check_addresses(pair: &file::Pair, problems: &mut Problems) {
    let mut families = BTreeSet::new();
    for address in &pair.address.0 {
        if !families.insert(address.get_ref().address.is_ipv4()) {
            problems.error(
                address.span(),
                format!("`{}` is a second address of its family", address.get_ref()),
                "keep one IPv4 and one IPv6 address",
            );
        }
    }
    if let Some(hop) = &pair.next_hop
        && !endpoint::on_link(*hop.get_ref(), pair)
    {
        problems.error(
            hop.span(),
            format!("next hop `{}` is in no network of the pair's `address`", hop.get_ref()),
            "correct the length in `address`, or the next hop",
        );
    }
}

fn check_unprotected(
    pair: &file::Pair,
    name: &str,
    peers: &[&file::Peer],
    problems: &mut Problems,
) -> Unprotected {
    let (unprotected, span) = match &pair.default {
        Some(written) => (*written.get_ref(), written.span()),
        None => (Unprotected::default(), pair.host.span()),
    };
    if unprotected == Unprotected::Seal && peers.len() != 1 {
        problems.error(
            span.clone(),
            format!("default = \"seal\", and pair `{name}` has {} peers", peers.len()),
            "write `protects = [\"everything\"]` at the peer that shall get the rest",
        );
    }
    if unprotected == Unprotected::Seal
        && peers.iter().any(|peer| *peer.mode.get_ref() == Mode::Transport)
    {
        let what = "default = \"seal\" to a peer in transport mode: it opens its own packets only";
        problems.error(
            span.clone(),
            what,
            "use mode = \"ethernet\" or \"tunnel\", or leave `default` out",
        );
    }
    tag::check_pair(pair, peers, span.clone(), problems);
    let seals = pair.xfrm || pair.vpn.is_some() || pair.openvpn.is_some();
    if unprotected == Unprotected::Drop && peers.is_empty() && !seals {
        problems.warning(
            span.clone(),
            format!("pair `{name}` passes no traffic: it has no peer, and drops the rest"),
            "write default = \"forward\" in a pair that only watches, or add a [[peer]]",
        );
    }
    if unprotected == Unprotected::Forward && !peers.is_empty() {
        problems.warning(
            span,
            format!("pair `{name}` seals for its peers and sends all other traffic in clear"),
            "leave `default` out, unless that is what you want",
        );
    }
    unprotected
}

fn check_overlaps(peers: &[&file::Peer], problems: &mut Problems) {
    let mut prefixes: Vec<(Prefix, &Spanned<Selector>, &str)> = Vec::new();
    let mut everything: Option<&str> = None;
    for peer in peers {
        let name = peer.name.get_ref().as_str();
        for selector in &peer.protects.0 {
            match selector.get_ref() {
                Selector::Everything => {
                    if let Some(other) = everything.replace(name) {
                        let what = format!("peers `{other}` and `{name}` both protect everything");
                        problems.error(selector.span(), what, "give one of them prefixes");
                    }
                }
                Selector::Prefix(prefix) => prefixes.push((*prefix, selector, name)),
            }
        }
    }
    for (covered, covering) in overlap::find(prefixes, |(prefix, ..)| *prefix) {
        let ((prefix, selector, name), (other, _, owner)) = (covered, covering);
        problems.error(
            selector.span(),
            format!("`{prefix}` of peer `{name}` overlaps `{other}` of peer `{owner}`"),
            "every address belongs to one peer: split or remove a prefix",
        );
    }
}

fn resolve_frames(
    pair: &file::Pair,
    peers: &[&file::Peer],
    problems: &mut Problems,
) -> FrameActions {
    let carries_frames = peers.iter().any(|peer| *peer.mode.get_ref() == Mode::Ethernet);
    let written = &pair.frames;
    let has_clients = pair.vpn.is_some() || pair.openvpn.is_some();
    let kind = match (peers.is_empty() && !pair.xfrm && !has_clients, carries_frames) {
        (true, _) => PairKind::Monitor,
        (false, true) => PairKind::Ethernet,
        (false, false) => PairKind::Ip,
    };
    let mut actions = default_frames(kind);
    for class in FrameClass::ALL {
        let Some(written) = written_for(written, class) else { continue };
        let action = match written.get_ref() {
            FrameAction::Seal => Action::Seal,
            FrameAction::Clear => Action::Clear,
            FrameAction::Drop => Action::Drop,
        };
        if action == Action::Seal && !carries_frames {
            problems.error(
                written.span(),
                "\"seal\", and no peer of the pair carries whole frames",
                "write mode = \"ethernet\" at a peer, or \"clear\" or \"drop\" here",
            );
        }
        actions.set(class, action);
    }
    actions
}

fn written_for(frames: &file::Frames, class: FrameClass) -> Option<&Spanned<FrameAction>> {
    let written = match class {
        FrameClass::Lldp => &frames.lldp,
        FrameClass::Lacp => &frames.lacp,
        FrameClass::Eapol => &frames.eapol,
        FrameClass::Ptp => &frames.ptp,
        FrameClass::Pause => &frames.pause,
        FrameClass::Stp => &frames.stp,
        FrameClass::LinkLocal => &frames.link_local,
        FrameClass::Arp => &frames.arp,
        FrameClass::NeighbourDiscovery => &frames.neighbour_discovery,
        FrameClass::Broadcast => &frames.broadcast,
        FrameClass::Multicast => &frames.multicast,
    };
    written.as_ref()
}

fn resolve_peer(
    peer: &file::Peer,
    pair: &file::Pair,
    directory: &Path,
    problems: &mut Problems,
) -> Peer {
    check_name(&peer.name, problems);
    endpoint::check(peer, pair, problems);
    transport::check(peer, problems);
    wireguard::check(peer, pair, problems);
    let protects = resolve_protects(peer, problems);
    let window = peer.replay_window.as_ref().map_or(REPLAY_WINDOW_DEFAULT, |it| *it.get_ref());
    if let Some(written) = &peer.replay_window
        && (!(REPLAY_WINDOW_MIN..=REPLAY_WINDOW_MAX).contains(&window)
            || !window.is_multiple_of(64))
    {
        problems.error(
            written.span(),
            format!("replay_window = {window} packets"),
            format!("write a multiple of 64 from {REPLAY_WINDOW_MIN} to {REPLAY_WINDOW_MAX}"),
        );
    }
    let (offload, auto_lacks) = offload::resolve(peer, pair, problems);
    Peer {
        name: peer.name.get_ref().clone(),
        endpoint: peer.endpoint.as_ref().map(|it| *it.get_ref()),
        mode: *peer.mode.get_ref(),
        encapsulation: peer.encapsulation,
        spread: keying::spreads(peer, problems),
        sealing: rollout::resolve(peer, problems),
        offload,
        auto_lacks,
        is_in_nic: false,
        rate_limit: None,
        reaches: Vec::new(),
        tag: tag::resolve(peer, problems),
        protects,
        replay_window_packets: window,
        extended_sequence: peer.extended_sequence.unwrap_or(true),
        keys: resolve_keys(peer, pair, directory, problems),
        workers: workers::resolve(peer, pair, problems),
    }
}

/// Where the peer's keys come from. What is missing is a problem, and stands there empty.
fn resolve_keys(
    peer: &file::Peer,
    pair: &file::Pair,
    directory: &Path,
    problems: &mut Problems,
) -> PeerKeys {
    if let Some(agreed) = keying::agreed(peer, pair, directory, problems) {
        return agreed;
    }
    if let Some(keys) = tag::keys(peer, directory) {
        return keys;
    }
    let mut association = |name: &str, written: &Option<Spanned<file::Association>>| {
        let Some(written) = written else {
            if peer.public_key.is_none() {
                problems.error(
                    peer.name.span(),
                    format!("peer `{}` has no `public_key`, and no `{name}`", peer.name.get_ref()),
                    "add its `public_key` (`weir keys public`), or `seal` and `open`",
                );
            }
            let (spi, key) = (0, KeySource::File(PathBuf::new()));
            return Association { spi, cipher: Cipher::default(), key };
        };
        let source = key_source(written.get_ref(), directory);
        Association {
            spi: *written.get_ref().spi.get_ref(),
            cipher: written.get_ref().cipher,
            key: source.unwrap_or(KeySource::File(PathBuf::new())),
        }
    };
    let seal = association("seal", &peer.seal);
    PeerKeys::Configured { seal, open: association("open", &peer.open) }
}

fn resolve_protects(peer: &file::Peer, problems: &mut Problems) -> Protects {
    let everything =
        peer.protects.0.iter().find(|selector| *selector.get_ref() == Selector::Everything);
    let Some(everything) = everything else {
        if peer.protects.0.is_empty() {
            let remedy = "list the prefixes behind it, or write [\"everything\"]";
            problems.error(peer.name.span(), "the peer protects nothing", remedy);
        }
        let prefixes = peer.protects.0.iter().filter_map(|selector| match selector.get_ref() {
            Selector::Prefix(prefix) => Some(*prefix),
            Selector::Everything => None,
        });
        return Protects::Prefixes(prefixes.collect());
    };
    if peer.protects.0.len() > 1 {
        let remedy = "keep \"everything\" alone, or the prefixes alone";
        problems.error(everything.span(), "\"everything\" beside prefixes", remedy);
    }
    let what = match peer.mode.get_ref() {
        Mode::Ethernet | Mode::Tunnel => return Protects::Everything,
        Mode::Transport => {
            "transport mode with \"everything\": it seals IP packets only, to hosts that open them"
        }
        Mode::WireGuard | Mode::OpenVpn => "a client with \"everything\"",
        Mode::IcrcTag => "icrc-tag mode with \"everything\": it tags RoCE packets only",
    };
    let remedy = "list the prefixes behind the peer, or use mode = \"ethernet\" or \"tunnel\"";
    problems.error(everything.span(), what, remedy);
    Protects::Everything
}

fn check_peers(file: &File, pairs: &[Pair], problems: &mut Problems) {
    let mut names = BTreeSet::new();
    for (_, peer) in &file.peers {
        let name = peer.name.get_ref();
        if !names.insert(name) {
            let what = format!("a second peer is named `{name}`");
            problems.error(peer.name.span(), what, "give it a name of its own");
        }
        match &peer.pair {
            Some(pair) if !pairs.iter().any(|it| it.name == *pair.get_ref()) => {
                let what = format!(
                    "peer `{name}` belongs to pair `{}`, which is not there",
                    pair.get_ref()
                );
                problems.error(pair.span(), what, format!("write one of: {}", names_of(pairs)));
            }
            None if pairs.len() > 1 => {
                let what = format!("peer `{name}` does not say which pair it belongs to");
                problems.error(
                    peer.name.span(),
                    what,
                    format!("add `pair`, one of: {}", names_of(pairs)),
                );
            }
            _ => {}
        }
    }
}

fn names_of(pairs: &[Pair]) -> String {
    pairs.iter().map(|pair| format!("`{}`", pair.name)).collect::<Vec<_>>().join(", ")
}

/// SPIs and key places: what can be told without reading a key.
fn check_associations(file: &File, directory: &Path, problems: &mut Problems) {
    let mut seal_spis = BTreeMap::new();
    let mut open_spis = BTreeMap::new();
    let mut sources: BTreeMap<KeySource, String> = BTreeMap::new();
    for (_, peer) in &file.peers {
        let name = peer.name.get_ref();
        for (direction, written, spis) in
            [("seal", &peer.seal, &mut seal_spis), ("open", &peer.open, &mut open_spis)]
        {
            let Some(written) = written else { continue };
            let label = format!("`{direction}` of peer `{name}`");
            let association = written.get_ref();
            workers::check_spis(&association.spi, workers::of_peer(peer), &label, spis, problems);
            match key_source(association, directory) {
                Err((what, remedy)) => {
                    problems.error(written.span(), format!("{label}: {what}"), remedy);
                }
                Ok(source) => {
                    if let Some(other) = sources.insert(source, label.clone()) {
                        problems.error(
                            key_span(association).unwrap_or(written.span()),
                            format!(
                                "{other} and {label} have the same key: AES-GCM dies of a \
                                 nonce used twice"
                            ),
                            "make a key for each direction with `weir keys generate`",
                        );
                    }
                }
            }
            if let Some(key) = &association.key {
                problems.warning(
                    key.span(),
                    format!("{label}: the key stands in the configuration"),
                    "move it to a file of mode 600 and name that by `key_file`",
                );
            }
        }
    }
}

fn key_span(association: &file::Association) -> Option<Range<usize>> {
    let file = association.key_file.as_ref().map(Spanned::span);
    file.or_else(|| association.key.as_ref().map(Spanned::span))
}

fn key_source(
    association: &file::Association,
    directory: &Path,
) -> Result<KeySource, (&'static str, &'static str)> {
    match (&association.key_file, &association.key) {
        (Some(path), None) => Ok(KeySource::File(directory.join(path.get_ref()))),
        (None, Some(text)) => Ok(KeySource::Inline(text.get_ref().clone())),
        (Some(_), Some(_)) => Err(("both `key_file` and `key`", "keep `key_file`")),
        (None, None) => {
            Err(("no key", "add `key_file`; `weir keys generate --help` shows how to make one"))
        }
    }
}

fn resolve_limits(limits: file::Limits, problems: &mut Problems) -> Limits {
    let mut bounded = |key: &str, written: Option<Spanned<u32>>, default: u32, least, most| {
        let Some(written) = written else { return default };
        let value = *written.get_ref();
        if !(least..=most).contains(&value) {
            let remedy = format!("write a number from {least} to {most}");
            problems.error(written.span(), format!("{key} = {value}"), remedy);
        }
        value
    };
    let (least, most) = (TABLE_ENTRIES_MIN, TABLE_ENTRIES_MAX);
    let (active, idle) = (ACTIVE_TIMEOUT_S_DEFAULT, IDLE_TIMEOUT_S_DEFAULT);
    let conversations = limits.conversations;
    Limits {
        flows: bounded("flows", limits.flows, FLOWS_DEFAULT, least, most),
        conversations: bounded("conversations", conversations, CONVERSATIONS_DEFAULT, least, most),
        active_timeout_s: bounded(
            "active_timeout_s",
            limits.active_timeout_s,
            active,
            1,
            TIMEOUT_S_MAX,
        ),
        idle_timeout_s: bounded("idle_timeout_s", limits.idle_timeout_s, idle, 1, TIMEOUT_S_MAX),
        fast_flows: bounded(
            "fast_flows",
            limits.fast_flows,
            FAST_FLOWS_DEFAULT,
            least,
            FAST_FLOWS_MAX,
        ),
    }
}
