//! A pair's `workers`, and a peer's: who shares the work, and what does not go with several yet
//! (docs/adr/0025).

use std::collections::BTreeMap;
use std::ops::Range;

use toml::Spanned;
use weir_engine::esp::spread::{SPI_WORKER_MASK, WORKERS_MAX};
use weir_store::evidence::{SEGMENT_BYTES, SEGMENTS_MIN, SLOT_BYTES, SLOTS_MIN};

use super::combine;
use super::file::{self, File, Mode, PEERS_MAX};
use super::problem::Problems;
use super::settings::Evidence;

/// A pair's number of workers. What each of several cannot do yet is refused with the reason.
pub(super) fn of_pair(pair: &file::Pair, peers: &[&file::Peer], problems: &mut Problems) -> usize {
    let Some(written) = &pair.workers else { return 1 };
    let workers = *written.get_ref();
    if !(1..=WORKERS_MAX).contains(&workers) {
        let remedy = format!("write a number from 1 to {WORKERS_MAX}");
        problems.error(written.span(), format!("workers = {workers}"), remedy);
        return 1;
    }
    if workers == 1 {
        return 1;
    }
    for needs in combine::pair_lacks("workers = 2 to 16", pair, peers) {
        refuse(problems, written.span(), &format!("workers = {workers} needs {needs}"));
    }
    if peers.len() * workers as usize > PEERS_MAX {
        let what = format!("{} peers with {workers} workers", peers.len());
        problems.error(written.span(), what, format!("peers times workers: {PEERS_MAX} at most"));
    }
    for peer in peers {
        check_peer(peer, problems);
    }
    workers as usize
}

/// What a peer may not be where its pair has several workers.
fn check_peer(peer: &file::Peer, problems: &mut Problems) {
    let name = peer.name.get_ref();
    if let Some(open) = &peer.open {
        check_base(&open.get_ref().spi, "open", name, problems);
    }
    if let (Some(seal), true) = (&peer.seal, of_peer(peer) > 1) {
        check_base(&seal.get_ref().spi, "seal", name, problems);
    }
}

fn refuse(problems: &mut Problems, span: Range<usize>, what: &str) {
    problems.error(span, what, "write that, or workers = 1");
}

fn check_base(spi: &Spanned<u32>, direction: &str, peer: &str, problems: &mut Problems) {
    let number = *spi.get_ref();
    if number & SPI_WORKER_MASK != 0 {
        let base = (number & !SPI_WORKER_MASK).max(256);
        problems.error(
            spi.span(),
            format!("`{direction}` of `{peer}`: SPI {number:#x} in a pair with several workers"),
            format!(
                "write a multiple of {WORKERS_MAX}, such as {base:#x}, at both gateways: the \
                 lowest bits are the worker's number"
            ),
        );
    }
}

/// Workers that both gateways have for a peer whose keys are configured.
pub(super) fn of_peer(peer: &file::Peer) -> usize {
    let written = peer.workers.as_ref().map_or(1, |it| *it.get_ref());
    written.clamp(1, WORKERS_MAX) as usize
}

/// A peer's number of workers; more than its pair has are refused.
pub(super) fn resolve(peer: &file::Peer, pair: &file::Pair, problems: &mut Problems) -> usize {
    let of_pair = pair.workers.as_ref().map_or(1, |it| *it.get_ref());
    let Some(written) = &peer.workers else {
        let is_tagged = *peer.mode.get_ref() == Mode::IcrcTag && peer.public_key.is_none();
        return if is_tagged { of_pair.clamp(1, WORKERS_MAX) as usize } else { 1 };
    };
    let name = peer.name.get_ref();
    if peer.public_key.is_some() {
        problems.error(
            written.span(),
            format!("peer `{name}` has `workers` and a `public_key`"),
            "remove `workers`: handshakes tell how many there are",
        );
    } else if *peer.mode.get_ref() == Mode::IcrcTag {
        problems.error(
            written.span(),
            format!("peer `{name}` has `workers` and mode = \"icrc-tag\""),
            "remove `workers`: a tag has no sequence number, so all of the pair's share its flows",
        );
    } else if *written.get_ref() == 0 || *written.get_ref() > of_pair {
        problems.error(
            written.span(),
            format!("peer `{name}`: workers = {}, and its pair has {of_pair}", written.get_ref()),
            format!("write a number from 1 to {of_pair}: the lesser of both gateways'"),
        );
    }
    of_peer(peer)
}

/// Each worker keeps an equal share of the evidence, which must not be too small.
pub(super) fn check_evidence(file: &File, evidence: Option<&Evidence>, problems: &mut Problems) {
    let (Some(table), Some(evidence)) = (&file.evidence, evidence) else { return };
    let workers = file.pairs.iter().filter_map(|(_, pair)| pair.workers.as_ref());
    let Some(workers) = workers.max_by_key(|it| *it.get_ref()) else { return };
    let count = *workers.get_ref() as usize;
    let needed = count * SEGMENTS_MIN;
    if evidence.memory.bytes < needed * SEGMENT_BYTES {
        let span = table.memory_mib.as_ref().map_or(workers.span(), Spanned::span);
        let mib = evidence.memory.bytes / SEGMENT_BYTES;
        problems.error(
            span,
            format!("memory_mib = {mib} in [evidence], for a pair with {count} workers"),
            format!("write {needed} at least: each worker keeps its share, of {SEGMENTS_MIN} MiB"),
        );
    }
    let slots = (SLOTS_MIN + 1) * SLOT_BYTES * count;
    if evidence.disk.as_ref().is_some_and(|disk| disk.bytes < slots as u64) {
        let span = table.disk_mib.as_ref().map_or(workers.span(), Spanned::span);
        let needed = slots.div_ceil(1 << 20);
        problems.error(
            span,
            format!("disk_mib in [evidence] is too small for a pair with {count} workers"),
            format!("write {needed} at least: each worker has a file of its own"),
        );
    }
}

/// The SPIs of one direction's associations, one a worker: each is legal and nobody else's.
pub(super) fn check_spis(
    spi: &Spanned<u32>,
    workers: usize,
    label: &str,
    taken: &mut BTreeMap<u32, String>,
    problems: &mut Problems,
) {
    let number = *spi.get_ref();
    if number < 256 {
        let what = format!("{label}: SPI {number} is reserved (RFC 4303 s2.1)");
        problems.error(spi.span(), what, "write a number from 256 to 4294967295");
        return;
    }
    for number in (number..=u32::MAX).take(workers) {
        if let Some(other) = taken.insert(number, label.to_owned()) {
            let what = format!("{other} and {label} have the same SPI {number:#x}");
            problems.error(spi.span(), what, "give every association an SPI of its own");
            return;
        }
    }
}
