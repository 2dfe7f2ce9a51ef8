//! A pair's `workers`, and a peer's: who shares the work, and what does not go with several yet
//! (docs/adr/0025).

use std::collections::BTreeMap;
use std::ops::Range;

use toml::Spanned;
use weir_engine::esp::spread::{SPI_WORKER_MASK, WORKERS_MAX};

use super::file::{self, Driver, FastPathMode, File, Mode, PEERS_MAX};
use super::offload::Offload;
use super::problem::Problems;

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
    let fastpath = pair.fastpath.as_ref().map(|it| *it.get_ref()).unwrap_or_default();
    for (is_met, needs) in [
        (pair.driver == Driver::Packet, "driver = \"packet\": AF_XDP has one ring here"),
        (fastpath == FastPathMode::Off, "fastpath = \"off\": it follows one ring a port"),
        (!pair.xfrm, "a pair without `xfrm`: a front end installs one association"),
    ] {
        if !is_met {
            refuse(problems, written.span(), &format!("workers = {workers} needs {needs}"));
        }
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
    let by_kernel = !matches!(
        peer.offload.as_ref().map_or(Offload::None, |it| *it.get_ref()),
        Offload::None | Offload::Auto
    );
    for (is_met, needs) in [
        (*peer.mode.get_ref() != Mode::IcrcTag, "another mode than \"icrc-tag\""),
        (!by_kernel, "offload = \"none\" or \"auto\": Weir seals"),
    ] {
        if !is_met {
            let what = format!("peer `{name}` in a pair with several workers needs {needs}");
            refuse(problems, peer.name.span(), &what);
        }
    }
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
    let Some(written) = &peer.workers else { return 1 };
    let of_pair = pair.workers.as_ref().map_or(1, |it| *it.get_ref());
    let name = peer.name.get_ref();
    if peer.public_key.is_some() {
        problems.error(
            written.span(),
            format!("peer `{name}` has `workers` and a `public_key`"),
            "remove `workers`: handshakes tell how many there are",
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

/// What looks at a pair from beside, and knows one ring or file a pair.
pub(super) fn check_bystanders(file: &File, problems: &mut Problems) {
    let several = |pair: &file::Pair| pair.workers.as_ref().is_some_and(|it| *it.get_ref() > 1);
    let name = |pair: &file::Pair| pair.name.as_ref().unwrap_or(&pair.host).get_ref().clone();
    for (_, pair) in file.pairs.iter().filter(|(_, pair)| several(pair)) {
        let Some(workers) = &pair.workers else { continue };
        if file.evidence.is_some() {
            let what = "several workers, and [evidence], which keeps one ring a pair";
            problems.error(workers.span(), what, "write workers = 1, or remove [evidence]");
        }
        let of_pair = |mirror: &&(Range<usize>, file::Mirror)| match &mirror.1.pair {
            Some(of) => *of.get_ref() == name(pair),
            None => file.pairs.len() == 1,
        };
        if let Some((_, mirror)) = file.mirrors.iter().find(of_pair) {
            problems.error(
                mirror.name.span(),
                format!("mirror `{}` of a pair with several workers", mirror.name.get_ref()),
                "write workers = 1 at the pair, or remove the mirror",
            );
        }
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
