//! `[evidence]` and `[[mirror]]`: from what is written to what is kept and copied.

use std::ops::Range;
use std::path::Path;

use toml::Spanned;
use weir_port::FrameFilter;
use weir_store::evidence::{
    DiskOptions, EvidenceOptions, SEGMENT_BYTES, SEGMENTS_MIN, SLOT_BYTES, SLOTS_MIN,
};

use super::file::{self, MirrorEncapsulation};
use super::problem::Problems;
use super::settings::{
    Evidence, Forbidden, ForbiddenPort, Mirror, MirrorTunnel, Pair, Settings, TunnelForm,
};

/// MiB of an evidence ring unless configured: 160,000 packets of [`EVIDENCE_SNAP_DEFAULT`] bytes.
const EVIDENCE_MIB_DEFAULT: u32 = 64;
/// Bytes kept of each packet unless configured: all headers of any RDMA packet, and connection
/// management whole (a datagram of 256 bytes behind IPv6, two VLAN tags, BTH and DETH).
const EVIDENCE_SNAP_DEFAULT: usize = 384;
/// The most: what a machine with 64 GiB can spare.
const EVIDENCE_MIB_MAX: u32 = 16 << 10;
/// MiB of a pair's file unless configured.
const DISK_MIB_DEFAULT: u32 = 1024;
/// The most: its index takes 24 MiB of memory.
const DISK_MIB_MAX: u32 = 256 << 10;
/// Mirrors, at most: each looks at every packet.
const MIRRORS_MAX: usize = 16;
/// Queue pairs of one mirror, at most.
const QUEUE_PAIRS_MAX: usize = 64;
const VXLAN_ID_MAX: u32 = 0xff_ffff;
const ERSPAN_ID_MAX: u32 = 0x3ff;

/// What is kept; `None`: nothing.
pub(super) fn evidence(
    table: Option<&file::Evidence>,
    directory: &Path,
    problems: &mut Problems,
) -> Option<Evidence> {
    let table = table?;
    let mib = table.memory_mib.as_ref().map_or(EVIDENCE_MIB_DEFAULT, |it| *it.get_ref());
    if mib > EVIDENCE_MIB_MAX || (1..SEGMENTS_MIN as u32).contains(&mib) {
        let span = table.memory_mib.as_ref().map_or(0..0, Spanned::span);
        let remedy =
            format!("write a number from {SEGMENTS_MIN} to {EVIDENCE_MIB_MAX}; 0 keeps nothing");
        problems.error(span, format!("memory_mib = {mib}"), remedy);
    }
    let snap_bytes = match table.snap {
        None => EVIDENCE_SNAP_DEFAULT,
        Some(0) => usize::MAX,
        Some(bytes) => bytes as usize,
    };
    let disk = evidence_disk(table, directory, problems);
    if let (0, Some(folder)) = (mib, &table.disk) {
        let remedy =
            format!("what goes to disk passes through memory: memory_mib = {SEGMENTS_MIN}");
        problems.error(folder.span(), "evidence on disk with memory_mib = 0", remedy);
    }
    let memory = EvidenceOptions { bytes: mib as usize * SEGMENT_BYTES, snap_bytes };
    (mib > 0).then_some(Evidence { memory, disk })
}

fn evidence_disk(
    table: &file::Evidence,
    directory: &Path,
    problems: &mut Problems,
) -> Option<DiskOptions> {
    let mib = table.disk_mib.as_ref().map_or(DISK_MIB_DEFAULT, |it| *it.get_ref());
    let span = table.disk_mib.as_ref().map_or(0..0, Spanned::span);
    let min = ((SLOTS_MIN + 1) * SLOT_BYTES).div_ceil(1 << 20) as u32;
    if !(min..=DISK_MIB_MAX).contains(&mib) {
        let remedy = format!("write a number from {min} to {DISK_MIB_MAX}");
        problems.error(span.clone(), format!("disk_mib = {mib}"), remedy);
    }
    let Some(folder) = &table.disk else {
        if table.disk_mib.is_some() {
            problems.error(span, "disk_mib without a disk", "add `disk`, a folder");
        }
        return None;
    };
    // A folder beside the configuration, like every path in it.
    let folder = directory.join(folder.get_ref());
    Some(DiskOptions { folder, bytes: u64::from(mib) << 20 })
}

/// The mirrors of a file.
pub(super) fn mirrors(
    tables: &[(Range<usize>, file::Mirror)],
    pairs: &[Pair],
    problems: &mut Problems,
) -> Vec<Mirror> {
    if let Some((span, _)) = tables.get(MIRRORS_MAX) {
        let what = format!("{} tables [[mirror]]", tables.len());
        problems.error(span.clone(), what, format!("at most {MIRRORS_MAX} are possible"));
    }
    let mut mirrors: Vec<Mirror> = Vec::new();
    for (span, table) in tables {
        if mirrors.iter().any(|other| other.name == *table.name.get_ref()) {
            let what = format!("a second mirror is named `{}`", table.name.get_ref());
            problems.error(table.name.span(), what, "give it a name of its own");
        }
        let Some(pair) = pair_of(span, table, pairs, problems) else { continue };
        check_port(table, pairs, problems);
        let queue_pairs = table.queue_pairs.as_ref();
        if let Some(list) = queue_pairs
            && (list.get_ref().len() > QUEUE_PAIRS_MAX
                || list.get_ref().iter().any(|number| *number > 0xff_ffff))
        {
            let what = format!("queue_pairs = {:?}", list.get_ref());
            let remedy = format!("write at most {QUEUE_PAIRS_MAX} numbers of 24 bits");
            problems.error(list.span(), what, remedy);
        }
        mirrors.push(Mirror {
            name: table.name.get_ref().clone(),
            pair: pair.name.clone(),
            port: table.port.get_ref().clone(),
            direction: table.direction,
            filter: table.filter.as_ref().map(|it| it.get_ref().clone()),
            queue_pairs: queue_pairs.map(|it| it.get_ref().clone()).unwrap_or_default(),
            snap_bytes: table.snap.filter(|bytes| *bytes > 0),
            tunnel: tunnel(span, table, problems),
            forbidden: forbidden(table, pairs),
            passes_guards: table.leak_plaintext_on_wire
                || pairs.iter().any(|it| it.wire == *table.port.get_ref() && it.monitors_only()),
        });
    }
    mirrors
}

/// The ports that copies keep off. What leads to them is seen on the machine alone
/// (`daemon::pair::mirror::egress`).
fn forbidden(table: &file::Mirror, pairs: &[Pair]) -> Vec<ForbiddenPort> {
    let mut ports = Vec::new();
    for pair in pairs {
        let mut forbid = |port: &str, because| {
            ports.push(ForbiddenPort { port: port.to_owned(), because });
        };
        forbid(&pair.host, Forbidden::Host);
        forbid(&pair.own_port(), Forbidden::OwnKernel);
        if !pair.monitors_only() && !table.leak_plaintext_on_wire {
            forbid(&pair.wire, Forbidden::SealedWire);
        }
    }
    ports
}

fn pair_of<'p>(
    span: &Range<usize>,
    table: &file::Mirror,
    pairs: &'p [Pair],
    problems: &mut Problems,
) -> Option<&'p Pair> {
    match (&table.pair, pairs) {
        (None, [only]) => Some(only),
        (None, _) => {
            let what = "a mirror of which pair?";
            problems.error(span.clone(), what, "add `pair`, the name of a [[pair]]");
            None
        }
        (Some(name), _) => {
            let found = pairs.iter().find(|pair| pair.name == *name.get_ref());
            if found.is_none() {
                let what = format!("there is no pair `{}`", name.get_ref());
                problems.error(name.span(), what, "name a [[pair]]");
            }
            found
        }
    }
}

/// Copies are in clear: they never leave by the wire of a gateway that seals unless somebody wrote
/// down that they may.
fn check_port(table: &file::Mirror, pairs: &[Pair], problems: &mut Problems) {
    let port = table.port.get_ref();
    if pairs.iter().any(|pair| pair.host == *port) {
        problems.error(
            table.port.span(),
            format!("a mirror to {port}, a host port: the host would hear itself twice"),
            "name an interface that an analyser is on",
        );
    }
    let Some(pair) = pairs.iter().find(|pair| pair.wire == *port) else { return };
    if pair.monitors_only() {
        return;
    }
    if table.leak_plaintext_on_wire {
        problems.warning(
            table.port.span(),
            format!("the mirror to {port} LEAKS PLAINTEXT onto the wire that is to be sealed"),
            "take `leak_plaintext_on_wire` out, and name another `port`",
        );
        return;
    }
    problems.error(
        table.port.span(),
        format!("a mirror to {port}, the wire of a gateway that seals, would leak plaintext"),
        "name another `port`, or write leak_plaintext_on_wire = true if that is what you want",
    );
}

fn tunnel(
    span: &Range<usize>,
    table: &file::Mirror,
    problems: &mut Problems,
) -> Option<MirrorTunnel> {
    let (form, id_max) = match table.encapsulation {
        MirrorEncapsulation::None => return None,
        MirrorEncapsulation::Vxlan => (TunnelForm::Vxlan, VXLAN_ID_MAX),
        MirrorEncapsulation::Erspan1 => (TunnelForm::Erspan1, 0),
        MirrorEncapsulation::Erspan2 => (TunnelForm::Erspan2, ERSPAN_ID_MAX),
        MirrorEncapsulation::Erspan3 => (TunnelForm::Erspan3, ERSPAN_ID_MAX),
    };
    let (Some(local), Some(remote), Some(mac)) = (&table.local, &table.remote, &table.remote_mac)
    else {
        problems.error(
            span.clone(),
            "an encapsulated mirror needs to know where to",
            "add `local`, `remote` (IPv4) and `remote_mac` (of it, or of the router on the way)",
        );
        return None;
    };
    let Some(remote_mac) = mac_address(mac.get_ref()) else {
        let what = format!("`{}` is no unicast MAC address", mac.get_ref());
        problems.error(mac.span(), what, "write it as 02:00:00:00:00:09");
        return None;
    };
    let id = table.id.as_ref().map_or(id_max.min(1), |id| *id.get_ref());
    if let Some(span) = table.id.as_ref().map(Spanned::span).filter(|_| id > id_max) {
        let hint = match form {
            TunnelForm::Erspan1 => "take it out: ERSPAN type I carries no number".to_owned(),
            _ => format!("write a number up to {id_max}"),
        };
        problems.error(span, format!("id = {id}"), hint);
    }
    Some(MirrorTunnel { form, local: *local.get_ref(), remote: *remote.get_ref(), remote_mac, id })
}

fn mac_address(text: &str) -> Option<[u8; 6]> {
    let mut bytes = [0; 6];
    let mut words = text.split(':');
    for byte in &mut bytes {
        *byte = u8::from_str_radix(words.next().filter(|word| word.len() == 2)?, 16).ok()?;
    }
    (words.next().is_none() && bytes[0] & 1 == 0).then_some(bytes)
}

/// Whether libpcap understands the mirrors' filters: a word that it does not know is a host's name
/// to it, which nobody has.
pub(super) fn compile_filters(settings: &Settings, problems: &mut Problems) {
    for mirror in &settings.mirrors {
        let Some(filter) = &mirror.filter else { continue };
        if let Err(error) = FrameFilter::compile(filter) {
            let what = format!("mirror `{}`: filter `{filter}`: {error}", mirror.name);
            problems.error_in_file(what, "see `man pcap-filter`; `weir capture` takes the same");
        }
    }
}
