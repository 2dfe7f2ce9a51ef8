//! `[rules]`: detection at the joint.
//!
//! ```toml
//! [rules]
//! paths = ["/etc/weir/rules"]       # rule files, and folders of them; several
//! variables = "suricata.yaml"       # [Suricata's defaults] file with address-groups, port-groups,
//!                                   # and reputations for rules with `iprep`
//! lists = { DROP = "drop.txt" }     # [none] files of addresses and nets, by the variable that
//!                                   # stands for them: `drop ip $DROP any -> any any (...)`
//! geoip = "GeoLite2-Country.mmdb"   # [none] country database, for rules with the keyword `geoip`
//! would_drop = [3200005]            # [none] rules, by sid, that only report what they would drop
//! disable = [2017404]               # [none] rules, by sid, that do not run
//! mode = "enforce"                  # [enforce] enforce | watch: rules drop nothing, only report
//! eve = "/var/log/weir/eve.json"    # [none] file for alerts and drops, as EVE JSON lines; its
//!                                   # folder is made where its parent is there; or a socket:
//!                                   # "unix:/run/eve.sock", "unix-dgram:/run/eve.sock"; or
//!                                   # "syslog", the machine's (local5.info), or "syslog:SOCKET"
//! eve_mib = 1024                    # [1024] at this size, the file is renamed to eve.json.1
//! eve_records = true                # [true] also write flows, dns, tls, http, stats to `eve`; or
//!                                   # which, by EVE's names: ["flow", "dns"]; several
//! eve_anomalies = false             # [false] also write anomalies; this checks each packet
//! eve_digests = ["sha256"]          # [what rules need] file digests there: md5, sha1, sha256
//! eve_dns = 3                       # [3] version of `dns` records there: 3, as Suricata 8 writes
//!                                   # them, or 2, which Elastic's integration for Suricata reads
//! fast = "/var/log/weir/fast.log"   # [none] file for alerts, one line each; needs `eve`
//! flows = 262144                    # [262144] flows with rule state, per pair
//! memory_mib = 1024                 # [1024] memory for what flows say, per pair; then the flows
//!                                   # that were silent longest are forgotten
//! bypass_mib = 0                    # [0: never] stop inspecting a connection after so many MiB
//! tunnel_ports = { vxlan = [4789, 8472] }   # [4789] UDP ports, at most four of each kind, whose
//!                                   # datagrams are looked into; likewise geneve [6081], teredo
//!                                   # [3544]
//! checksums = "verify"              # [verify] verify | trust: accept wrong TCP checksums
//!
//! [rules.exceptions]                # what cannot be inspected: "pass" (counted) or "drop"; a pair
//!                                   # with [[access]] lines or an `access_` key always drops it
//! layers = "pass"                   # [pass] more than 16 nested packets
//! fragments = "drop"                # [drop] fragments for which there is no room
//!                                   # the next two: only where written here
//! midstream = "pass"                # [pass] TCP connections older than the gateway's look at them
//! gaps = "pass"                     # [pass] TCP data beyond 32 MiB behind missing bytes
//! conflicts = "drop"                # [drop] TCP data that differ from earlier data in their place
//! parser_errors = "pass"            # [pass] connections, datagrams at which a parser gives up;
//!                                   # "drop" has parsers run on every flow
//! ```

use std::collections::BTreeSet;
use std::fmt;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use serde::de::{Unexpected, Visitor};
use serde::{Deserialize, Deserializer};
use toml::Spanned;
use weir_detect::tunnels::{PORTS_MAX, Ports, TunnelPorts};
use weir_detect::{Expected, FileDigests, Limits, LoadReport, RuleSet};
use weir_engine::detect::{RuleMode, Rules};
use weir_engine::policy::{Exception, Exceptions};
use weir_store::sink::eve_dns::DnsVersion;
use weir_store::sink::{self, EveFile, EvePlace, EveRecords};

use super::file::File;
use super::problem::Problems;
use super::settings::{FastPathMode, Settings};
use super::several::Several;
use crate::read::events::EVENT_KINDS;
use crate::rules::{self, Lists};

/// MiB of the alerts' file unless configured.
const EVE_MIB_DEFAULT: u32 = 1024;
/// The most: 1 TiB.
const EVE_MIB_MAX: u32 = 1 << 20;
/// Flows with state unless configured; each takes some 600 bytes beside `memory_mib`.
const FLOWS_DEFAULT: u32 = 1 << 18;
/// MiB for what flows say unless configured, and the most: 1 TiB.
const MEMORY_MIB_DEFAULT: u32 = 1024;
const MEMORY_MIB_MAX: u32 = 1 << 20;
/// The most that a connection is looked at: 1 TiB.
const BYPASS_MIB_MAX: u32 = 1 << 20;
/// What is odd and waits until it is told, of a worker: it is told ten times a second.
const ANOMALIES_MAX: usize = 256;
/// Where the machine's syslog listens.
const SYSLOG: &str = "syslog:/dev/log";
/// Bytes of a Unix socket's path (unix(7)), its end apart.
const SOCKET_PATH_MAX: usize = 107;
/// The least and the most.
const FLOWS_MIN: u32 = 64;
const FLOWS_MAX: u32 = 1 << 22;

/// Kinds of events that no record of a gateway is.
const NOT_RECORDS: [&str; 5] = ["alert", "all", "arp", "frame", "netflow"];

/// `[rules]`, as written.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
#[allow(missing_docs, reason = "the keys are documented in the module's format")]
pub struct Written {
    #[serde(default)]
    pub paths: Several<PathBuf>,
    pub variables: Option<PathBuf>,
    #[serde(default)]
    pub lists: Lists,
    pub geoip: Option<PathBuf>,
    #[serde(default)]
    pub would_drop: Several<Sid>,
    #[serde(default)]
    pub disable: Several<Sid>,
    pub mode: Option<Spanned<Mode>>,
    pub eve: Option<PathBuf>,
    pub eve_mib: Option<Spanned<u32>>,
    pub eve_records: Option<Several<Recorded>>,
    #[serde(default)]
    pub eve_anomalies: bool,
    #[serde(default)]
    pub eve_digests: Several<Digest>,
    pub eve_dns: Option<Spanned<u8>>,
    pub fast: Option<PathBuf>,
    pub flows: Option<Spanned<u32>>,
    pub memory_mib: Option<Spanned<u32>>,
    pub bypass_mib: Option<Spanned<u32>>,
    #[serde(default)]
    pub checksums: Checksums,
    #[serde(default)]
    pub tunnel_ports: WrittenTunnelPorts,
    #[serde(default)]
    pub exceptions: WrittenExceptions,
}

/// `tunnel_ports`.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
#[allow(missing_docs, reason = "the keys are documented in the module's format")]
pub struct WrittenTunnelPorts {
    pub vxlan: Option<Several<u16>>,
    pub geneve: Option<Several<u16>>,
    pub teredo: Option<Several<u16>>,
}

/// `[rules.exceptions]`.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
#[allow(missing_docs, reason = "the keys are documented in the module's format")]
pub struct WrittenExceptions {
    pub layers: WrittenException,
    pub fragments: Option<WrittenException>,
    pub midstream: WrittenException,
    pub gaps: WrittenException,
    pub conflicts: Option<WrittenException>,
    pub parser_errors: WrittenException,
}

/// A rule's number.
#[derive(Debug)]
pub struct Sid(u32);

impl<'de> Deserialize<'de> for Sid {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Reader;
        impl Visitor<'_> for Reader {
            type Value = Sid;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a rule's number")
            }

            fn visit_i64<E: serde::de::Error>(self, number: i64) -> Result<Sid, E> {
                let wrong = |_| E::invalid_value(Unexpected::Signed(number), &self);
                u32::try_from(number).map(Sid).map_err(wrong)
            }
        }
        deserializer.deserialize_i64(Reader)
    }
}

/// `eve_records`: all or none, or a kind of them.
#[derive(Debug, Deserialize)]
#[serde(untagged, expecting = "expected true, false, or EVE's names of records")]
#[allow(missing_docs, reason = "what is written")]
pub enum Recorded {
    All(bool),
    Kind(String),
}

/// What becomes of what cannot be looked into.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum WrittenException {
    /// It passes, and is counted.
    #[default]
    Pass,
    /// It is dropped.
    Drop,
}

impl From<WrittenException> for Exception {
    fn from(written: WrittenException) -> Self {
        match written {
            WrittenException::Pass => Self::Pass,
            WrittenException::Drop => Self::Drop,
        }
    }
}

/// Whether TCP checksums are looked at.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Checksums {
    /// A segment with a wrong one is no part of its connection.
    #[default]
    Verify,
    /// All count as right.
    Trust,
}

/// A digest of files.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
#[allow(missing_docs, reason = "their names")]
pub enum Digest {
    Md5,
    Sha1,
    Sha256,
}

/// All that are among `digests`.
pub fn digests(digests: impl IntoIterator<Item = Digest>) -> FileDigests {
    let none = FileDigests::default();
    digests.into_iter().fold(none, |all, one| {
        all.and(match one {
            Digest::Md5 => FileDigests { md5: true, ..none },
            Digest::Sha1 => FileDigests { sha1: true, ..none },
            Digest::Sha256 => FileDigests { sha256: true, ..none },
        })
    })
}

/// What rules may do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    /// Drop.
    #[default]
    Enforce,
    /// Tell what they would drop.
    Watch,
}

impl From<Mode> for RuleMode {
    fn from(mode: Mode) -> Self {
        match mode {
            Mode::Enforce => Self::Enforce,
            Mode::Watch => Self::Watch,
        }
    }
}

/// Which rules look at packets, and where their alerts go.
#[derive(Clone, Debug)]
pub struct Detection {
    /// Files and folders.
    pub paths: Vec<PathBuf>,
    /// Groups of addresses and ports, as a suricata.yaml has them.
    pub variables: Option<PathBuf>,
    /// Files of addresses, by the variable that stands for them.
    pub lists: Lists,
    /// A database of where addresses are.
    pub geoip: Option<PathBuf>,
    /// Rules that tell what they would drop, and drop nothing.
    pub would_drop: BTreeSet<u32>,
    /// Rules that do not run.
    pub disabled: BTreeSet<u32>,
    /// What rules may do.
    pub mode: RuleMode,
    /// Where alerts go; `None`: they are counted.
    pub eve: Option<EveFile>,
    /// Whether what is odd about packets is told there.
    pub tells_anomalies: bool,
    /// Digests of files that are told there, whether or not rules ask for them.
    pub digests: FileDigests,
    /// Flows that rules keep state of, a pair.
    pub flows: usize,
    /// Bytes of memory that they may take for what they say, a pair.
    pub memory: usize,
    /// Bytes of a connection after which it is looked at no more; `None`: never.
    pub bypass_bytes: Option<u64>,
    /// Whether TCP checksums are looked at.
    pub checksums: Checksums,
    /// What becomes of what cannot be looked into.
    pub exceptions: Exceptions,
    /// Where datagrams carry packets that are looked at.
    pub tunnels: TunnelPorts,
    /// Whether connections whose beginning was not seen are dropped.
    pub drops_midstream: bool,
    /// Whether data that finds no room behind a gap is.
    pub drops_gaps: bool,
    /// Whether data are that differ from what came before in their place.
    pub drops_conflicts: bool,
    /// Whether flows are whose application's parser gives up, from there on.
    pub drops_parser_errors: bool,
    /// The rules, once they were read.
    pub set: Option<Arc<RuleSet>>,
    /// Rules that do not run, as long as that is known.
    pub refused: usize,
    /// What was warned of when the rules were read.
    pub warnings: Vec<String>,
    /// [`rules::Text::digest`] of what was read.
    pub digest: u64,
    /// Where workers wait for connections that others have announced.
    expected: Expected,
}

impl Detection {
    /// What one of a pair's workers runs; `seed` keys its tables.
    pub fn of_worker(&self, workers: usize, seed: u64) -> Option<Rules> {
        let flows = self.flows.div_ceil(workers.max(1));
        let bypass_bytes = self.bypass_bytes;
        let anomalies = if self.tells_anomalies { ANOMALIES_MAX } else { 0 };
        let limits = Limits {
            flows,
            seed,
            memory: self.memory / workers.max(1),
            bypass_bytes,
            refuses_midstream: self.drops_midstream,
            refuses_gaps: self.drops_gaps,
            refuses_conflicts: self.drops_conflicts,
            refuses_parser_errors: self.drops_parser_errors,
            only_watches: self.mode == RuleMode::Watch,
            anomalies,
            digests: self.digests,
            checks_segments: self.checksums == Checksums::Verify,
            sees_all: true,
            ..Limits::default()
        };
        let tells_records = self.eve.as_ref().is_some_and(|it| it.records.any());
        let (mode, expected) = (self.mode, self.expected.clone());
        self.set.clone().map(|set| Rules { set, mode, limits, tells_records, expected })
    }
}

/// What `file` says of rules; they are not read yet.
pub(super) fn resolve(file: &File, directory: &Path, problems: &mut Problems) -> Option<Detection> {
    let written = file.rules.as_ref()?;
    if written.paths.0.is_empty() {
        problems.error_in_file("[rules] names no rules", "add `paths`, files or folders of rules");
    }
    for (_, pair) in &file.pairs {
        if let Some(fastpath) = &pair.fastpath
            && written.bypass_mib.as_ref().is_none_or(|it| *it.get_ref() == 0)
            && *fastpath.get_ref() == FastPathMode::Tc
        {
            problems.error(
                fastpath.span(),
                "there are [rules]: each packet is looked at, and none goes past",
                "write bypass_mib in [rules], behind which flows go past, or fastpath = \"auto\"",
            );
        }
    }
    let mut bounded = |key: &str, value: &Option<Spanned<u32>>, default, least, most| {
        let Some(value) = value else { return default };
        let number = *value.get_ref();
        if !(least..=most).contains(&number) {
            let remedy = format!("write a number from {least} to {most}");
            problems.error(value.span(), format!("{key} = {number}"), remedy);
        }
        number
    };
    let mib = bounded("eve_mib", &written.eve_mib, EVE_MIB_DEFAULT, 1, EVE_MIB_MAX);
    let bypass_mib = bounded("bypass_mib", &written.bypass_mib, 0, 0, BYPASS_MIB_MAX);
    let memory_mib =
        bounded("memory_mib", &written.memory_mib, MEMORY_MIB_DEFAULT, 16, MEMORY_MIB_MAX);
    let flows = bounded("flows", &written.flows, FLOWS_DEFAULT, FLOWS_MIN, FLOWS_MAX);
    let drops_midstream = written.exceptions.midstream == WrittenException::Drop;
    if bypass_mib > 0 && drops_midstream {
        problems.error_in_file(
            "bypass_mib, and `midstream = \"drop\"` in [rules.exceptions]: a connection that \
             went past for long would be cut",
            "leave one of them out",
        );
    }
    Some(Detection {
        paths: written.paths.0.iter().map(|path| directory.join(path.get_ref())).collect(),
        variables: written.variables.as_ref().map(|path| directory.join(path)),
        lists: written.lists.iter().map(|(n, path)| (n.clone(), directory.join(path))).collect(),
        geoip: written.geoip.as_ref().map(|path| directory.join(path)),
        would_drop: sids(&written.would_drop),
        disabled: sids(&written.disable),
        mode: written.mode.as_ref().map(|it| *it.get_ref()).unwrap_or_default().into(),
        eve: eve(written, directory, u64::from(mib) << 20, problems),
        tells_anomalies: written.eve_anomalies,
        digests: digests(written.eve_digests.0.iter().map(|it| *it.get_ref())),
        flows: flows as usize,
        memory: (memory_mib as usize) << 20,
        bypass_bytes: (bypass_mib > 0).then(|| u64::from(bypass_mib) << 20),
        checksums: written.checksums,
        exceptions: Exceptions {
            layers: written.exceptions.layers.into(),
            fragments: written.exceptions.fragments.unwrap_or(WrittenException::Drop).into(),
        },
        tunnels: tunnels(&written.tunnel_ports, problems),
        drops_midstream,
        drops_conflicts: written.exceptions.conflicts != Some(WrittenException::Pass),
        drops_parser_errors: written.exceptions.parser_errors == WrittenException::Drop,
        drops_gaps: written.exceptions.gaps == WrittenException::Drop,
        set: None,
        refused: 0,
        warnings: Vec::new(),
        digest: 0,
        expected: Expected::default(),
    })
}

fn sids(written: &Several<Sid>) -> BTreeSet<u32> {
    written.0.iter().map(|it| it.get_ref().0).collect()
}

/// Where datagrams carry packets.
fn tunnels(written: &WrittenTunnelPorts, problems: &mut Problems) -> TunnelPorts {
    let usual = TunnelPorts::default();
    let mut ports = |name: &str, written: &Option<Several<u16>>, usual: Ports| {
        let Some(written) = written else { return usual };
        let mut places = written.0.iter().enumerate();
        if let Some((_, wrong)) = places.find(|(at, it)| *at >= PORTS_MAX || *it.get_ref() == 0) {
            let what = format!("tunnel_ports: {name}, port {}", wrong.get_ref());
            let remedy = format!("name at most {PORTS_MAX} ports, from 1 to 65535");
            problems.error(wrong.span(), what, remedy);
        }
        let numbers: Vec<u16> = written.0.iter().map(|it| *it.get_ref()).collect();
        Ports::of(&numbers).unwrap_or(usual)
    };
    TunnelPorts {
        vxlan: ports("vxlan", &written.vxlan, usual.vxlan),
        geneve: ports("geneve", &written.geneve, usual.geneve),
        teredo: ports("teredo", &written.teredo, usual.teredo),
    }
}

/// Refuses files for alerts that are something else: the configuration itself, the store, or what
/// rules are made of.
pub(super) fn check_outputs(config: &Path, settings: &Settings, problems: &mut Problems) {
    let Some(detection) = &settings.detection else { return };
    let Some(eve) = &detection.eve else { return };
    let file = |path: &Path| std::fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    let mut taken: Vec<(PathBuf, &str)> = vec![(file(config), "this configuration")];
    taken.extend(settings.store.iter().map(|it| (file(&it.path), "the store")));
    let of_rules = detection.paths.iter().chain(&detection.variables).chain(&detection.geoip);
    let of_rules = of_rules.chain(detection.lists.values());
    taken.extend(of_rules.map(|it| (file(it), "a file of rules")));
    let is_file = eve.place == EvePlace::File;
    let eve_file = is_file.then_some(("eve", &eve.path));
    for (key, path) in eve_file.into_iter().chain(eve.fast.as_ref().map(|it| ("fast", it))) {
        let own = file(path);
        if let Some((_, what)) = taken.iter().find(|it| it.0 == own) {
            let remedy = "name a file of its own: alerts are written there";
            problems.error_in_file(format!("{key} = \"{}\" is {what}", path.display()), remedy);
        }
        if let Some((what, remedy)) = sink::unfit(path) {
            problems.error_in_file(format!("{key} = \"{}\" {what}", path.display()), remedy);
        }
        taken.push((own, "where `eve` goes"));
    }
}

/// Where alerts go.
fn eve(
    written: &Written,
    directory: &Path,
    bytes_max: u64,
    problems: &mut Problems,
) -> Option<EveFile> {
    let records = records(written.eve_records.as_ref(), problems);
    let of_records = [
        ("eve_anomalies", "anomaly", written.eve_anomalies),
        ("eve_digests", "fileinfo", !written.eve_digests.0.is_empty()),
    ];
    for (key, kind, _) in of_records.into_iter().filter(|it| it.2) {
        if written.eve.is_none() || !records.has(kind) {
            let what = format!("{key}, and no records that they are among");
            let remedy = format!("name `eve`, and have `{kind}` among `eve_records`");
            problems.error_in_file(what, remedy);
        }
    }
    if written.eve_dns.is_some() && written.eve.is_none() {
        let remedy = "name `eve`, or leave `eve_dns` out";
        problems.error_in_file("eve_dns, and no `eve` that it is about", remedy);
    }
    if written.fast.is_some() && written.eve.is_none() {
        let remedy = "name `eve`, or leave `fast` out";
        problems.error_in_file("fast, and no `eve` that it goes with", remedy);
    }
    let path = written.eve.as_ref()?;
    let text = path.to_str().unwrap_or_default();
    let text = if text == "syslog" { SYSLOG } else { text };
    let places = [
        ("unix-dgram:", EvePlace::Datagrams),
        ("unix:", EvePlace::Stream),
        ("syslog:", EvePlace::Syslog),
    ];
    let mut places = places.into_iter();
    let socket = places.find_map(|(prefix, place)| Some((text.strip_prefix(prefix)?, place)));
    let (path, place) = match socket {
        Some((path, place)) => (directory.join(path), place),
        None => (directory.join(path), EvePlace::File),
    };
    let is_unnamed = place != EvePlace::File && socket.is_some_and(|it| it.0.is_empty());
    if is_unnamed || (place == EvePlace::File && is_no_file(text)) {
        let remedy = "write a file, `unix:PATH`, `unix-dgram:PATH` or `syslog` (`./NAME` is a file \
                      whatever its name); collectors elsewhere are a [[sink]]";
        problems.error_in_file(format!("eve = \"{text}\" names no file and no socket"), remedy);
    }
    let named_fast = written.fast.as_ref().and_then(|it| it.to_str());
    if let Some(text) = named_fast.filter(|it| is_no_file(it)) {
        problems.error_in_file(format!("fast = \"{text}\" names no file"), "write a file");
    }
    if place != EvePlace::File && path.as_os_str().len() > SOCKET_PATH_MAX {
        let what = format!("eve: {} is too long for a socket", path.display());
        problems.error_in_file(what, format!("choose one of {SOCKET_PATH_MAX} bytes at most"));
    }
    let fast = written.fast.as_ref().map(|path| directory.join(path));
    if let (Some(mib), false, None) = (&written.eve_mib, place == EvePlace::File, &fast) {
        let remedy = "leave it out: what goes to a socket is no file that grows";
        problems.error(mib.span(), "eve_mib, and `eve` is a socket", remedy);
    }
    let dns = match written.eve_dns.as_ref().map(|it| (it.span(), *it.get_ref())) {
        None | Some((_, 3)) => DnsVersion::Three,
        Some((_, 2)) => DnsVersion::Two,
        Some((span, other)) => {
            problems.error(span, format!("eve_dns = {other}"), "write 2 or 3");
            DnsVersion::default()
        }
    };
    Some(EveFile { path, place, bytes_max, records, fast, dns })
}

/// Which records `eve_records` says.
fn records(written: Option<&Several<Recorded>>, problems: &mut Problems) -> EveRecords {
    let Some(written) = written else { return EveRecords::All };
    if let [only] = &written.0[..]
        && let Recorded::All(all) = only.get_ref()
    {
        return if *all { EveRecords::All } else { EveRecords::None };
    }
    let mut kinds = BTreeSet::new();
    for one in &written.0 {
        let kind = match one.get_ref() {
            Recorded::Kind(kind) => kind.clone(),
            Recorded::All(all) => all.to_string(),
        };
        if !EVENT_KINDS.contains(&kind.as_str()) || NOT_RECORDS.contains(&kind.as_str()) {
            let names = EVENT_KINDS.into_iter().filter(|it| !NOT_RECORDS.contains(it));
            let remedy = format!("name some of {}", names.collect::<Vec<_>>().join(", "));
            let what = format!("eve_records: no record is called \"{kind}\"");
            problems.error(one.span(), what, remedy);
        }
        kinds.insert(kind);
    }
    match kinds.is_empty() {
        true => EveRecords::None,
        false => EveRecords::Kinds(kinds),
    }
}

/// Whether a text is what elsewhere names a standard stream or a place in a network, and hardly a
/// file.
fn is_no_file(text: &str) -> bool {
    let is_of_scheme = |it: char| it.is_ascii_alphanumeric() || matches!(it, '+' | '-');
    let scheme = text.split_once(':').map(|it| it.0);
    matches!(text, "" | "-")
        || scheme.is_some_and(|it| it.len() > 1 && it.chars().all(is_of_scheme))
}

/// Goes on with the rules of `kept`, whatever their files say by now.
pub(super) fn keep(settings: &mut Settings, kept: &Detection) {
    let Some(detection) = &mut settings.detection else { return };
    detection.set.clone_from(&kept.set);
    (detection.refused, detection.digest) = (kept.refused, kept.digest);
    detection.warnings.clone_from(&kept.warnings);
}

/// The digest of the rules that `settings` name, as they stand on disk; 0 without rules.
///
/// # Errors
/// They cannot be read.
pub fn digest(settings: &Settings) -> anyhow::Result<u64> {
    settings.detection.as_ref().map_or(Ok(0), |it| Ok(read(it)?.digest()))
}

fn read(detection: &Detection) -> anyhow::Result<rules::Text> {
    let Detection { paths, variables, lists, would_drop, disabled, .. } = detection;
    let mut text = rules::read_with(paths, variables.as_deref(), lists)?;
    text.choose(would_drop.clone(), disabled.clone());
    Ok(text)
}

/// The files named that cannot be opened, each with its key.
fn unreadable(detection: &Detection) -> Vec<(&'static str, anyhow::Error)> {
    let Detection { paths, variables, lists, geoip, .. } = detection;
    let paths = paths.iter().filter(|it| !it.is_dir()).map(|it| ("paths", it));
    let named = paths
        .chain(variables.iter().map(|it| ("variables", it)))
        .chain(lists.values().map(|it| ("lists", it)))
        .chain(geoip.iter().map(|it| ("geoip", it)));
    named.filter_map(|(key, path)| Some((key, rules::opened(path).err()?))).collect()
}

/// Reads the rules that `settings` name. Rules that do not run are warned of, in one line: a set of
/// others' rules always has some.
pub(super) fn load(settings: &mut Settings, problems: &mut Problems) {
    let Some(detection) = &mut settings.detection else { return };
    let read_all = || -> anyhow::Result<rules::Text> {
        let mut text = read(detection)?;
        text.read_kept(&settings.gateway.datasets())?;
        detection.geoip.as_deref().map(|it| text.read_countries(it)).transpose()?;
        Ok(text)
    };
    let missing = unreadable(detection);
    if !missing.is_empty() {
        for (key, error) in missing {
            let remedy = format!("correct `{key}` in [rules], or the file");
            problems.error_in_file(format!("{error:#}"), remedy);
        }
        return;
    }
    let text = match read_all() {
        Ok(text) => text,
        Err(error) => {
            let remedy = "correct the file, or `paths`, `variables`, `lists` or `geoip` in [rules]";
            return problems.error_in_file(format!("{error:#}"), remedy);
        }
    };
    match compiled(&text) {
        // The last good ones stay in force, or nothing passes: who wrote rules wants some to run.
        Ok(Compiled { report, .. }) if report.runnable == 0 && report.enabled > 0 => {
            let why = rules::left_out(&report).unwrap_or_default();
            problems.error_in_file(why, rules::SEE_REFUSED);
        }
        Ok(compiled) => {
            let warnings = text.warnings(&compiled.set, &compiled.report);
            detection.set = Some(compiled.set);
            detection.digest = text.digest();
            detection.refused = compiled.report.refused.len();
            for spoiled in &compiled.report.spoiled {
                let remedy = "nothing need be done: the file is written anew without them";
                problems.warning_in_file(spoiled.as_str(), remedy);
            }
            for (what, remedy) in warnings {
                detection.warnings.push(format!("{what}; {remedy}"));
                problems.warning_in_file(what, remedy);
            }
        }
        Err(error) => problems.error_in_file(
            format!("{error:#}"),
            "name fewer rules, or give the machine more memory",
        ),
    }
}

#[derive(Clone)]
struct Compiled {
    set: Arc<RuleSet>,
    report: LoadReport,
}

/// The rules that were compiled last, while somebody runs them: a reload that changes none of them
/// goes on with the set at hand, and so with all that it knows of flows.
static LAST: Mutex<Option<(u64, Weak<RuleSet>, LoadReport)>> = Mutex::new(None);

fn compiled(text: &rules::Text) -> anyhow::Result<Compiled> {
    let mut hasher = DefaultHasher::new();
    text.hash(&mut hasher);
    let digest = hasher.finish();
    let mut last = LAST.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some((known, set, report)) = &*last
        && *known == digest
        && let Some(set) = set.upgrade()
    {
        return Ok(Compiled { set, report: report.clone() });
    }
    let loaded = text.compile()?;
    let set = Arc::new(loaded.rules);
    *last = Some((digest, Arc::downgrade(&set), loaded.report.clone()));
    Ok(Compiled { set, report: loaded.report })
}
