//! A test's capture through the detector: the events that come of it.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, Result};
use serde_json::Value;
use weir_detect::fragments::Policy;
use weir_detect::hosts::{Hosts, System};
use weir_detect::reputation::Reputation;
use weir_detect::tunnels::{PORTS_MAX, Ports, TunnelPorts};
use weir_detect::{
    Action, ApplicationChoice, AsSuricata, FileDigests, LoadOptions, LoadReport, RuleSource,
    Variables, Wanted,
};
use weir_store::sink::eve_dns::DnsVersion;

use super::case::Case;
use super::dress::Dress;
use super::{http, timeouts};
use crate::read::detection::{Checksums, Detection, Exception, Options};
use crate::read::eve::USUAL_TLS;
use crate::read::events::{Anomalies, Applications, DnsMessages, Events};
use crate::rules::{self, classes, yaml};

/// Alerts of a packet that Suricata tells, unless it is told otherwise.
const ALERTS_OF_PACKET_MAX: usize = 15;
/// Settings that ask for more than so many are passed over.
const ALERTS_SET_MAX: usize = 255;
/// What of a stream an alert has, unless settings say otherwise.
const PAYLOAD_BUFFER: usize = 4096;

/// What came of a run.
pub(super) struct Run {
    pub(super) events: Vec<Value>,
    /// The rules that do not run, and why.
    pub(super) refused: Vec<String>,
    /// What the run says of itself: how severe that is, and what.
    pub(super) log: Vec<(&'static str, String)>,
    /// Its settings end it before it begins.
    pub(super) is_refused: bool,
}

/// Runs `case`. Sets that rules change are kept in the folder that it names, or in `made`.
pub(super) fn run(case: &Case, made: &Path) -> Result<Run> {
    if let Some(kind) = logged_twice(case) {
        let what = format!("only one '{kind}' logger can be enabled");
        let (refused, log) = (vec![what.clone()], vec![("Error", what)]);
        return Ok(Run { events: Vec::new(), refused, log, is_refused: true });
    }
    let datasets = case.data_folder.clone().unwrap_or_else(|| made.to_owned());
    let mut text = rules::read(&case.rules, variables(case))?;
    text.read_kept(&datasets)?;
    text.set_options(load_options(case)?);
    text.ignore_checksums(case.trusts_checksums());
    let loaded = text.compile()?;
    // A rule that says itself that it is not for us is left out, and nothing is wrong.
    let refused = loaded
        .report
        .refused
        .iter()
        .chain(&loaded.report.unused)
        .filter(|it| it.keyword != "requires");
    let refused = refused.map(|it| {
        let sid = it.sid.unwrap_or_default();
        format!("rule {sid} does not run: {}: {}", it.keyword, it.reason)
    });
    let refused: Vec<String> = wrong_policy(case).into_iter().chain(refused).collect();
    let log = log(case, &loaded.report, &refused)?;
    if case.is_check {
        return Ok(Run { events: Vec::new(), refused, log, is_refused: false });
    }
    let dress = Dress::new(case, &loaded.rules)?;
    let mut out = Vec::new();
    let options = Options { datasets: Some(datasets), ..options(case) };
    let mut detection = Detection::new(loaded.rules, options, &mut out)?;
    detection.tell_rules(&loaded.report);
    for capture in captures(case)? {
        detection.read(&capture, &Arc::default())?;
    }
    detection.finish()?;
    let lines = out.split(|it| *it == b'\n').filter(|it| !it.is_empty());
    let mut events: Vec<Value> = lines.map(serde_json::from_slice).collect::<Result<_, _>>()?;
    dress.put(&mut events);
    Ok(Run { events, refused, log, is_refused: false })
}

/// A kind of events that two logs of EVE ask for, though one alone may.
fn logged_twice(case: &Case) -> Option<&'static str> {
    let outputs = case.settings.get("outputs").and_then(Value::as_array);
    let logs: Vec<&Value> =
        outputs.into_iter().flatten().filter_map(|it| it.get("eve-log")).collect();
    let is_on = |log: &&&Value| log.get("enabled").is_none_or(|it| *it != false && it != "no");
    let asks = |log: &&Value, kind: &str| {
        let kinds = log.get("types").and_then(Value::as_array);
        kinds.into_iter().flatten().any(|it| it == kind || it.get(kind).is_some())
    };
    let is_twice =
        |kind: &&str| logs.iter().filter(is_on).filter(|it| asks(it, kind)).nth(1).is_some();
    ["anomaly", "drop"].into_iter().find(is_twice)
}

/// The captures of a test, in the order of their names.
fn captures(case: &Case) -> Result<Vec<PathBuf>> {
    if !case.capture.is_dir() {
        return Ok(vec![case.capture.clone()]);
    }
    let mut found = Vec::new();
    for entry in fs::read_dir(&case.capture)? {
        let path = entry?.path();
        if path.extension().is_some_and(|it| it.to_string_lossy().starts_with("pcap")) {
            found.push(path);
        }
    }
    found.sort();
    Ok(found)
}

/// What a run says of the rules: of each that does not run, which it is, in Suricata's words, and
/// why, in ours; and how many do.
fn log(
    case: &Case,
    report: &LoadReport,
    refused: &[String],
) -> Result<Vec<(&'static str, String)>> {
    let mut log = Vec::new();
    let texts = case.rules.iter().map(|it| text(it)).collect::<Result<Vec<_>>>()?;
    let (skipped, failed): (Vec<_>, Vec<_>) =
        report.refused.iter().partition(|it| it.keyword == "requires");
    for refusal in &failed {
        let source = case.rules.iter().position(|it| it.as_os_str() == refusal.source.as_str());
        let line = source.and_then(|it| texts[it].lines().nth(refusal.line.checked_sub(1)?));
        let Some(line) = line else { continue };
        let (line, source, number) = (line.trim(), &refusal.source, refusal.line);
        let what =
            format!("error parsing signature \"{line}\" from file {source} at line {number}");
        log.push(("Error", what));
    }
    log.extend(refused.iter().map(|it| ("Error", it.clone())));
    let (files, failed, skipped) = (case.rules.len(), failed.len(), skipped.len());
    let loaded = report.runnable;
    log.push((
        "Info",
        format!(
            "{files} rule files processed. {loaded} rules successfully loaded, {failed} rules \
             failed, {skipped} rules skipped"
        ),
    ));
    Ok(log)
}

/// The settings of EVE's file.
pub(super) fn eve(case: &Case) -> Option<&Value> {
    let outputs = case.settings.get("outputs").and_then(Value::as_array);
    outputs.and_then(|it| it.iter().find_map(|it| it.get("eve-log")))
}

/// The kinds of events of all its logs, each a name or a name with settings; `None`: none says
/// which.
pub(super) fn types(case: &Case) -> Option<Vec<Value>> {
    let outputs = case.settings.get("outputs").and_then(Value::as_array);
    let logs = outputs.into_iter().flatten().filter_map(|it| it.get("eve-log"));
    let types: Vec<_> = logs.map(|it| it.get("types").and_then(Value::as_array)).collect();
    (types.iter().any(Option::is_some))
        .then(|| types.into_iter().flatten().flatten().cloned().collect())
}

/// How its rules are to be read: order, reputation, thresholds.
fn load_options(case: &Case) -> Result<LoadOptions> {
    let mut options = LoadOptions::default();
    if let Some(Value::Array(names)) = case.settings.get("action-order") {
        let actions: Option<Vec<Action>> =
            names.iter().map(|it| Action::from_name(it.as_str()?)).collect();
        options.order = actions.and_then(|it| it.try_into().ok());
    }
    // Suricata goes on without a file that is not there.
    let read = |name: &str| {
        let path = file(case, &case.setting(name)?);
        path.exists().then(|| text(&path))
    };
    if let Some(filters) = read("threshold-file") {
        let (name, text) = ("threshold-file".to_owned(), filters?);
        options.filters = vec![RuleSource { name, text }];
    }
    // Its own has the classes that are built in.
    match read("classification-file").transpose()? {
        Some(text) => _ = options.classes.read(&text),
        None => options.classes = classes::built_in(),
    }
    options.reputation = reputation(case)?;
    Ok(options)
}

fn reputation(case: &Case) -> Result<Reputation> {
    let mut reputation = Reputation::default();
    if let Some(path) = case.setting("reputation-categories-file") {
        reputation.read_categories(&text(&file(case, &path))?);
    }
    let files = match case.settings.get("reputation-files") {
        Some(Value::Array(list)) => list.iter().filter_map(Value::as_str).collect(),
        Some(Value::String(one)) => vec![one.as_str()],
        _ => Vec::new(),
    };
    for path in files {
        reputation.read_scores(&text(&file(case, path))?);
    }
    Ok(reputation)
}

/// A file of the test, by its name or by what stands for its folder.
fn file(case: &Case, path: &str) -> PathBuf {
    case.folder.join(path.trim_start_matches("${TEST_DIR}/"))
}

pub(super) fn text(path: &Path) -> Result<String> {
    let bytes = fs::read(path).with_context(|| format!("cannot read {}", path.display()))?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// How its capture is to be looked at, and what is told of it.
fn options(case: &Case) -> Options {
    let usual = Anomalies { applayer: true, ..Anomalies::default() };
    let mut events = Events { anomaly: usual, drops: false, ..Events::default() };
    let eve = eve(case);
    events.applications.tls = Some(usual_tls(true));
    events.applications.dns = dns(None, case);
    events.ethernet = eve.and_then(|it| it.get("ethernet")).is_some_and(is_yes);
    events.community_seed = Some(community_seed(case).unwrap_or_default());
    let types = types(case);
    if let Some(types) = &types {
        choose(&mut events, case, types);
    }
    Options {
        digests: file_digests(types.as_deref()),
        dhcp_extended: settings(types.as_deref(), "dhcp", "extended").is_some_and(is_yes),
        as_suricata: AsSuricata {
            applications: application_choice(case),
            tells_early: [true, !has_hassh(case)],
            bodies: http::bodies(case),
            bodies_from: Some(http::bodies_from(case)),
            keeps_separators: http::keeps_separators(case),
            follows_one_side: case.is_on("stream.async-oneside", false),
            timeouts: timeouts::of(case),
            only_tells: !case.is_inline,
            tells_bodies: http::tells_bodies(types.as_deref()),
            ..always()
        },
        http_headers: http_headers(types.as_deref()),
        http_custom: http_custom(types.as_deref()),
        http_brief: http::is_brief(types.as_deref()),
        ignores_vlans: !case.is_on("vlan.use-for-tracking", true),
        is_inline: case.is_inline,
        as_ips: case.is_on("stream.inline", case.is_inline),
        waits: !case.is_on("stream.inline", case.is_inline),
        tells_failed: true,
        checksums: match case.checks_segments() {
            true => Checksums::Verified,
            false => Checksums::Trusted,
        },
        midstream: follows_midstream(case),
        midstream_policy: midstream_policy(case),
        error_policy: exception(case, "app-layer.error-policy"),
        alerts_max: case
            .setting("packet-alert-max")
            .and_then(|it| it.parse().ok().filter(|it| *it <= ALERTS_SET_MAX))
            .or(Some(ALERTS_OF_PACKET_MAX)),
        bypass_depth: stream_depth(case).filter(|_| case.is_on("stream.bypass", false)),
        stream_depth: stream_depth(case),
        payload_max: Some(payload_max(types.as_deref())),
        drops_invalid: case.is_inline && case.is_on("stream.drop-invalid", true),
        looks_into_encrypted: encryption(case, "full"),
        bypasses_encrypted: encryption(case, "bypass"),
        tunnels: tunnels(case),
        layers_max: case.setting("decoder.max-layers").and_then(|it| it.parse().ok()),
        policy: Policy::default(),
        events,
        ..Options::default()
    }
}

/// What is done as Suricata does, whatever its settings say.
fn always() -> AsSuricata {
    AsSuricata {
        tells_both_ways: true,
        cuts_files: true,
        knows_no_more: true,
        tells_fewer_conflicts: true,
        wants_handshakes: true,
        stops_at_depth: true,
        trusts_ip_headers: true,
        ignores_invalid: true,
        answers_first: true,
        cuts_heads: true,
        cuts_datagrams: true,
        gives_up: true,
        ..AsSuricata::default()
    }
}

/// The kinds of events that its settings name.
fn choose(events: &mut Events, case: &Case, types: &[Value]) {
    let is_on = |it: &Value| it.get("enabled").is_none_or(is_yes);
    let has = |name: &str| types.iter().any(|it| it == name || it.get(name).is_some_and(is_on));
    events.flow = has("flow");
    events.netflow = has("netflow");
    events.arp = has("arp");
    let tagged = settings(Some(types), "alert", "tagged-packets");
    events.tagged = tagged.is_some_and(is_yes) || !case.has_settings;
    events.applications = applications(case, types);
    events.anomaly = anomalies(types).filter(|_| has("anomaly")).unwrap_or_default();
    let drop = types.iter().find_map(|it| it.get("drop"));
    events.drops = has("drop");
    events.first_drops = drop.is_none_or(|it| it["flows"] != "all");
}

/// Applications that are not looked for, or not taken apart. Where a test has no settings, those of
/// Suricata count; what settings do not speak of is as its program has it.
fn application_choice(case: &Case) -> ApplicationChoice {
    const OFF_BY_SETTINGS: [&str; 4] = ["dnp3", "enip", "modbus", "pgsql"];
    const OFF_BY_PROGRAM: [&str; 2] = ["dnp3", "modbus"];
    let mut choice = ApplicationChoice::default();
    let off = if case.has_settings { &OFF_BY_PROGRAM[..] } else { &OFF_BY_SETTINGS };
    let is_silent = |it: &&&str| case.setting(&format!("{PROTOCOLS}.{it}.enabled")).is_none();
    for name in off.iter().filter(is_silent) {
        choice.limit(name, [true, true], Wanted::Nothing);
    }
    for key in case.settings.keys() {
        let Some(rest) = key.strip_prefix(PROTOCOLS).and_then(|it| it.strip_prefix('.')) else {
            continue;
        };
        let Some((name, over)) = rest.split_once('.') else { continue };
        let over = match over {
            "enabled" => [true, true],
            "tcp.enabled" => [true, false],
            "udp.enabled" => [false, true],
            _ => continue,
        };
        match case.setting(key).as_deref() {
            Some("detection-only") => choice.limit(name, over, Wanted::Name),
            Some("no" | "false" | "off") => choice.limit(name, over, Wanted::Nothing),
            _ => {}
        }
    }
    choice
}

/// Where the settings of applications stand.
pub(super) const PROTOCOLS: &str = "app-layer.protocols";

/// What a kind of events says of itself.
pub(super) fn settings<'t>(
    types: Option<&'t [Value]>,
    kind: &str,
    name: &str,
) -> Option<&'t Value> {
    types?.iter().find_map(|it| it.get(kind)?.get(name))
}

/// Bytes of a stream that an alert tells, at most: the buffer for them ends with a zero.
fn payload_max(types: Option<&[Value]>) -> usize {
    let set = settings(types, "alert", "payload-buffer-size").map(yaml::word);
    let buffer = set.and_then(|it| usize::try_from(size(&it)?).ok());
    buffer.unwrap_or(PAYLOAD_BUFFER).saturating_sub(1)
}

/// Digests of all files, by `force-hash`.
fn file_digests(types: Option<&[Value]>) -> FileDigests {
    let named = settings(types, "files", "force-hash").and_then(Value::as_array);
    let has = |name: &str| named.is_some_and(|it| it.iter().any(|it| it == name));
    FileDigests { md5: has("md5"), sha1: has("sha1"), sha256: has("sha256") }
}

/// Whose headers `http` tells in full, by `dump-all-headers`.
fn http_headers(types: Option<&[Value]>) -> [bool; 2] {
    let whose = settings(types, "http", "dump-all-headers").and_then(Value::as_str);
    ["request", "response"].map(|it| whose.is_some_and(|whose| whose == it || whose == "both"))
}

/// Headers that `custom` of `http` may name: those that the object has no name of its own for.
const HTTP_CUSTOM: [&str; 52] = [
    "accept",
    "accept-charset",
    "accept-datetime",
    "accept-encoding",
    "accept-language",
    "accept-range",
    "age",
    "allow",
    "authorization",
    "cache-control",
    "connection",
    "content-encoding",
    "content-language",
    "content-length",
    "content-location",
    "content-md5",
    "content-range",
    "content-type",
    "cookie",
    "date",
    "dnt",
    "etags",
    "expires",
    "from",
    "last-modified",
    "link",
    "location",
    "max-forwards",
    "org-src-ip",
    "origin",
    "pragma",
    "proxy-authenticate",
    "proxy-authorization",
    "range",
    "refresh",
    "retry-after",
    "server",
    "set-cookie",
    "te",
    "trailer",
    "transfer-encoding",
    "true-client-ip",
    "upgrade",
    "vary",
    "via",
    "warning",
    "www-authenticate",
    "x-authenticated-user",
    "x-bluecoat-via",
    "x-flash-version",
    "x-forwarded-proto",
    "x-requested-with",
];

/// Headers that `http` tells by `custom`.
fn http_custom(types: Option<&[Value]>) -> Vec<String> {
    let named = settings(types, "http", "custom").and_then(Value::as_array);
    let named = named.into_iter().flatten().filter_map(Value::as_str).map(str::to_ascii_lowercase);
    named.filter(|it| HTTP_CUSTOM.contains(&it.as_str())).collect()
}

/// Whether connections are followed whose beginning was not seen: not where that is an exception.
fn follows_midstream(case: &Case) -> bool {
    let policy = midstream_policy(case);
    let lets_pass = matches!(policy, None | Some(Exception::PassFlow));
    case.is_on("stream.midstream", false) && lets_pass
}

/// What is done with connections whose beginning was not seen: who drops, drops them too, unless
/// something else is said. Suricata warns of a policy that is none for them, and follows it.
fn midstream_policy(case: &Case) -> Option<Exception> {
    match case.setting(MIDSTREAM_POLICY).as_deref() {
        Some(name) if name != "auto" => Exception::from_name(name),
        _ if wrong_policy(case).is_some() => None,
        None | Some("auto") if case.is_on("stream.midstream", false) => {
            let all = case.setting("exception-policy");
            let all = all.as_deref().and_then(Exception::from_name);
            all.filter(|it| case.is_inline || !is_drop(*it))
        }
        _ => exception(case, MIDSTREAM_POLICY),
    }
}

const MIDSTREAM_POLICY: &str = "stream.midstream-policy";

/// Why the policy for such connections is none: it is of flows, who only watches drops none, and
/// who follows them from then on has nothing to refuse.
fn wrong_policy(case: &Case) -> Option<String> {
    let own = case.setting(MIDSTREAM_POLICY);
    let (setting, name) = match &own {
        Some(name) => (MIDSTREAM_POLICY, name.clone()),
        None => ("exception-policy", case.setting("exception-policy")?),
    };
    let policy = Exception::from_name(&name);
    let is_packets = matches!(policy, Some(Exception::DropPacket | Exception::PassPacket));
    let follows = case.is_on("stream.midstream", false);
    let is_known = policy.is_some() || matches!(name.as_str(), "auto" | "ignore");
    let is_wrong = match own.is_some() {
        true => {
            !is_known
                || is_packets
                || (follows && policy.is_some_and(|it| it != Exception::PassFlow))
                || (!case.is_inline && policy.is_some_and(is_drop))
        }
        false => !is_known || (case.is_inline && is_packets),
    };
    is_wrong.then(|| format!("{setting}: `{name}` is none for connections here"))
}

fn is_drop(policy: Exception) -> bool {
    matches!(policy, Exception::DropFlow | Exception::DropPacket)
}

/// What `setting` says is done with what cannot be looked at. Who only watches drops nothing,
/// whatever is said of all such cases.
fn exception(case: &Case, setting: &str) -> Option<Exception> {
    let own = case.setting(setting);
    let said = own.clone().or_else(|| case.setting("exception-policy"));
    match said.as_deref() {
        None | Some("auto") => case.is_inline.then_some(Exception::DropFlow),
        Some(name) => {
            Exception::from_name(name).filter(|it| case.is_inline || own.is_some() || !is_drop(*it))
        }
    }
}

/// Bytes of a connection's side that are put together: Suricata's own settings say so many, its
/// program has no bound.
fn stream_depth(case: &Case) -> Option<u64> {
    let depth = case.setting("stream.reassembly.depth");
    let depth = depth.or_else(|| (!case.has_settings).then(|| "1mb".into()))?;
    size(&depth).filter(|it| *it > 0)
}

/// A size as Suricata's settings write it: `4kb`, `1 MiB`.
pub(super) fn size(text: &str) -> Option<u64> {
    let small = text.trim().to_ascii_lowercase().replace("ib", "b");
    let units = [("kb", 10), ("mb", 20), ("gb", 30)];
    let unit = units.iter().find_map(|(unit, bits)| Some((small.strip_suffix(unit)?, *bits)));
    let (digits, bits) = unit.unwrap_or((&small, 0));
    digits.trim().parse::<u64>().ok()?.checked_mul(1 << bits)
}

/// Whether what SSH offers counts: by a setting, or because a rule asks.
fn has_hassh(case: &Case) -> bool {
    let asks = |it: &PathBuf| fs::read(it).is_ok_and(|it| it.windows(5).any(|it| it == b"hassh"));
    case.is_on("app-layer.protocols.ssh.hassh", false) || case.rules.iter().any(asks)
}

/// Whether that is what is done with TLS, and SSH, that is encrypted. The older word for it is
/// TLS's alone, and counts where the newer one is not said.
fn encryption(case: &Case, how: &str) -> [bool; 2] {
    let said = |it: &str| case.setting(&format!("{PROTOCOLS}.{it}.encryption-handling"));
    let older = || case.is_on(&format!("{PROTOCOLS}.tls.no-reassemble"), false).then_some("bypass");
    let tls = said("tls");
    [tls.as_deref().or_else(older) == Some(how), said("ssh").as_deref() == Some(how)]
}

/// Where datagrams carry packets. Suricata's own settings name Teredo's port, its program has none.
fn tunnels(case: &Case) -> TunnelPorts {
    let usual = TunnelPorts::default();
    let ports = |name: &str, unsaid: Ports, usual: Ports| {
        if !case.is_on(&format!("decoder.{name}.enabled"), true) {
            return Ports::NONE;
        }
        let said = case.settings.get(&format!("decoder.{name}.ports"));
        let Some(said) = said.map(yaml::word) else { return unsaid };
        let numbers = said.split(|it: char| !it.is_ascii_digit()).filter_map(|it| it.parse().ok());
        let numbers: Vec<u16> = numbers.take(PORTS_MAX).collect();
        match said.trim() {
            "any" => Ports::Any,
            // Variables have their usual values.
            _ if numbers.is_empty() => usual,
            _ => Ports::of(&numbers).unwrap_or(usual),
        }
    };
    let TunnelPorts { vxlan, geneve, teredo } = usual;
    let unsaid = if case.has_settings { Ports::Any } else { teredo };
    TunnelPorts {
        vxlan: ports("vxlan", vxlan, vxlan),
        geneve: ports("geneve", geneve, geneve),
        teredo: ports("teredo", unsaid, teredo),
    }
}

/// The applications among `types`, and what is told of them.
fn applications(case: &Case, types: &[Value]) -> Applications {
    let kind = |it: &Value| match it {
        Value::String(name) => Some(name.replace('-', "_")),
        other => Some(other.as_object()?.keys().next()?.replace('-', "_")),
    };
    let is_on = |it: &&Value| {
        let settings = it.as_object().and_then(|it| it.values().next());
        settings.and_then(|it| it.get("enabled")).is_none_or(is_yes)
    };
    let mut kinds: Vec<String> = types.iter().filter(is_on).filter_map(kind).collect();
    // Events that come with others.
    for (kind, with) in [("ftp", "ftp_data"), ("files", "fileinfo")] {
        if kinds.iter().any(|it| it == kind) {
            kinds.push(with.to_owned());
        }
    }
    let tls = types.iter().find_map(|it| it.get("tls"));
    let custom = tls.and_then(|it| it.get("custom")).and_then(Value::as_array);
    let custom: Option<Vec<String>> =
        custom.map(|it| it.iter().filter_map(Value::as_str).map(str::to_owned).collect());
    let is_extended = tls.is_some_and(|it| it.get("extended").is_some_and(is_yes));
    let tls = custom.unwrap_or_else(|| usual_tls(is_extended));
    let dns = dns(types.iter().find_map(|it| it.get("dns")), case);
    Applications { kinds: Some(kinds), tls: Some(tls), dns, is_http2_apart: true }
}

/// Which messages of DNS are told, by `dns` among `types`; the environment may name a version.
fn dns(settings: Option<&Value>, case: &Case) -> DnsMessages {
    let setting = |name: &str| settings.and_then(|it| it.get(name));
    let is_told = |name: &str| setting(name).is_none_or(is_yes);
    let formats = setting("formats").and_then(Value::as_array);
    let has_format = |name: &str| formats.is_none_or(|it| it.iter().any(|it| it == name));
    let by_environment = case.environment.get("SURICATA_EVE_DNS_VERSION");
    let version = setting("version").or(by_environment);
    let types = setting("types").and_then(Value::as_array).map(|it| {
        it.iter().filter_map(Value::as_str).map(str::to_ascii_uppercase).collect::<Vec<_>>()
    });
    DnsMessages {
        version: match version {
            Some(two) if *two == 2 || *two == "2" => DnsVersion::Two,
            _ => DnsVersion::Three,
        },
        requests: is_told("requests"),
        responses: is_told("responses"),
        is_detailed: has_format("detailed"),
        is_grouped: has_format("grouped"),
        types,
    }
}

/// The seed of Community IDs, where they are asked for.
pub(super) fn community_seed(case: &Case) -> Option<u16> {
    let eve = eve(case).filter(|it| it.get("community-id").is_some_and(is_yes))?;
    let seed = eve.get("community-id-seed").and_then(Value::as_u64);
    Some(seed.and_then(|it| it.try_into().ok()).unwrap_or_default())
}

/// Fields of `tls` where none are named.
fn usual_tls(is_extended: bool) -> Vec<String> {
    let basic = ["subject", "issuer", "session_resumed"];
    let all = USUAL_TLS.iter().filter(|it| is_extended || basic.contains(it));
    all.map(|it| (*it).to_owned()).collect()
}

/// Whether JA3 is told of TLS: by a setting, or because a rule asks.
pub(super) fn has_ja3(case: &Case) -> bool {
    let asks = |it: &PathBuf| fs::read(it).is_ok_and(|it| it.windows(3).any(|it| it == b"ja3"));
    match case.setting("app-layer.protocols.tls.ja3-fingerprints").as_deref() {
        None | Some("auto") => case.rules.iter().any(asks),
        Some(set) => matches!(set, "yes" | "true" | "on"),
    }
}

pub(super) fn is_yes(value: &Value) -> bool {
    matches!(value, Value::Bool(true)) || matches!(value.as_str(), Some("yes" | "true" | "on"))
}

/// The kinds of `anomaly` among `types`: of applications, where it names none.
fn anomalies(types: &[Value]) -> Option<Anomalies> {
    let named = types.iter().find_map(|it| it.get("anomaly"));
    let plain = || types.iter().find(|it| *it == "anomaly");
    let kinds = named.or_else(plain)?.get("types");
    let is_on = |name: &str, default: bool| match kinds.and_then(|it| it.get(name)) {
        Some(Value::Bool(is_on)) => *is_on,
        Some(Value::String(text)) => matches!(text.as_str(), "yes" | "true" | "on"),
        _ => default,
    };
    let (decode, stream) = (is_on("decode", false), is_on("stream", false));
    Some(Anomalies { decode, stream, applayer: is_on("applayer", true) })
}

/// `host-os-policy`: lists of addresses by the system there.
fn hosts(case: &Case) -> Hosts {
    let mut named = Vec::new();
    for (name, value) in &case.settings {
        let system = name.strip_prefix("host-os-policy.").and_then(System::from_name);
        if let (Some(system), Some(list)) = (system, value.as_array()) {
            named.extend(list.iter().filter_map(Value::as_str).map(|it| (it, system)));
        }
    }
    Hosts::new(named).unwrap_or_default()
}

fn variables(case: &Case) -> Variables {
    let keeps_sets = case.is_on("datasets.rules.allow-write", true);
    let mut variables = Variables { hosts: hosts(case), keeps_sets, ..Variables::default() };
    let mut sets: BTreeMap<&str, String> = BTreeMap::new();
    for (name, value) in &case.settings {
        let value = &yaml::word(value);
        let of_set = name.strip_prefix("datasets.").and_then(|it| it.rsplit_once('.'));
        if let Some((set, key)) =
            of_set.filter(|it| !matches!(it.0, "defaults" | "limits" | "rules"))
        {
            let value = match key {
                "load" => file(case, value).display().to_string(),
                _ => value.to_owned(),
            };
            let options = sets.entry(set).or_insert_with(|| set.to_owned());
            options.push_str(&format!(", {key} {value}"));
        }
        if let Some(name) = name.strip_prefix("vars.address-groups.") {
            variables.addresses.insert(name.to_owned(), value.to_owned());
        } else if let Some(name) = name.strip_prefix("vars.port-groups.") {
            variables.ports.insert(name.to_owned(), value.to_owned());
        }
    }
    variables.sets = sets.into_values().collect();
    variables
}
