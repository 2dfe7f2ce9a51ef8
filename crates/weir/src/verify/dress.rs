//! What EVE's settings in a test say of events, beside what there is to tell: fields that are left
//! out, and those that come with them.

use std::collections::HashMap;
use std::net::IpAddr;

use anyhow::Result;
use serde_json::{Map, Value, json};
use weir_detect::RuleSet;
use weir_detect::alert::End;
use weir_store::sink::eve_record;

use super::case::Case;
use super::run::{community_seed, eve, has_ja3, is_yes, settings, text, types};
use crate::read::events::EVENT_KINDS;

/// What the settings of one test ask for.
pub(super) struct Dress {
    has_metadata: bool,
    has_version: bool,
    /// The capture's name, where it is told.
    capture: Option<String>,
    /// `sensor-name`, which events tell.
    host: Option<String>,
    has_passwords: bool,
    /// Objects that alerts do without.
    left_out: Vec<&'static str>,
    /// Parts of alerts that nobody asked for.
    unasked: Vec<&'static str>,
    /// Parts of HTTP's object that alerts do without.
    bodies_left_out: Vec<String>,
    /// What rules say of themselves, by their generators and numbers.
    rules: HashMap<(u64, u64), Told>,
    forwarded: Option<Forwarded>,
    /// The seed of Community IDs, where events have them.
    community_seed: Option<u16>,
    has_ja3: bool,
    has_alerts: bool,
    /// Alerts tell what their rule has for `metadata`, and with that of files.
    has_rule_metadata: bool,
    /// Files say that they are to be kept.
    keeps_files: bool,
    /// The kinds of `smb` that are told, where some are named.
    smb_kinds: Option<Vec<String>>,
}

/// What alerts tell of their rule (`metadata.rule` of `alert`).
#[derive(Default)]
struct Told {
    raw: Option<String>,
    references: Vec<String>,
}

/// What is told of addresses that a proxy names (`xff` of EVE).
struct Forwarded {
    /// The address takes the place of the proxy's.
    overwrites: bool,
    /// Which of several: the last one, or the first.
    is_reverse: bool,
}

impl Dress {
    pub(super) fn new(case: &Case, rules: &RuleSet) -> Result<Self> {
        let setting = |name: &str| eve(case).and_then(|it| it.get(name));
        let types = types(case);
        let of_alerts = |name: &str| settings(types.as_deref(), "alert", name);
        let is_asked = |name: &str| of_alerts(name).is_some_and(is_yes);
        let bodies = [("http-body", ""), ("http-body-printable", "_printable")];
        let no_bodies = bodies.iter().filter(|it| !is_asked(it.0));
        let forwarded = setting("xff").filter(|it| it.get("enabled").is_some_and(is_yes));
        Ok(Self {
            has_metadata: setting("metadata").is_none_or(is_yes),
            has_version: setting("suricata-version").is_some_and(is_yes),
            capture: (setting("pcap-file").is_some_and(is_yes))
                .then(|| case.capture.display().to_string()),
            host: case.setting("sensor-name"),
            has_passwords: settings(types.as_deref(), "mqtt", "passwords").is_none_or(is_yes),
            left_out: left_out(of_alerts("metadata")),
            unasked: unasked(&is_asked),
            bodies_left_out: no_bodies
                .flat_map(|it| {
                    ["request", "response"].map(|who| format!("http_{who}_body{}", it.1))
                })
                .collect(),
            rules: told_of_rules(case, rules, of_alerts("metadata"))?,
            forwarded: forwarded.map(|it| Forwarded {
                overwrites: it.get("mode").is_some_and(|it| it == "overwrite"),
                is_reverse: it.get("deployment").is_none_or(|it| it != "forward"),
            }),
            community_seed: community_seed(case),
            has_ja3: has_ja3(case),
            has_alerts: of_alerts("enabled").is_none_or(is_yes),
            has_rule_metadata: of_alerts("metadata").is_none_or(|it| match it.get("rule") {
                Some(rule) => rule.get("metadata").is_none_or(is_yes),
                None => it.is_object() || is_yes(it),
            }),
            keeps_files: settings(types.as_deref(), "files", "force-filestore").is_some_and(is_yes),
            smb_kinds: smb_kinds(settings(types.as_deref(), "smb", "types")),
        })
    }

    pub(super) fn put(&self, events: &mut Vec<Value>) {
        if !self.has_alerts {
            events.retain(|it| it["event_type"] != "alert");
        }
        if let Some(kinds) = &self.smb_kinds {
            let is_asked = |it: &Value| kinds.iter().any(|kind| kind == smb_kind(&it["smb"]));
            events.retain(|it| it["event_type"] != "smb" || is_asked(it));
        }
        events.iter_mut().filter_map(Value::as_object_mut).for_each(|it| self.put_on(it));
    }

    fn put_on(&self, event: &mut Map<String, Value>) {
        if let Some(forwarded) = &self.forwarded {
            forwarded.put(event);
        }
        if self.keeps_files {
            let listed = event.get_mut("files").and_then(Value::as_array_mut);
            listed.into_iter().flatten().for_each(|it| it["storing"] = true.into());
            event.get_mut("fileinfo").into_iter().for_each(|it| it["storing"] = true.into());
        }
        if event.get("event_type").is_some_and(|it| it == "alert") {
            self.put_on_alert(event);
        }
        if !self.has_metadata {
            event.remove("metadata");
        }
        if let Some(id) = self.community_seed.and_then(|it| community_id(event, it)) {
            event.insert("community_id".into(), id.into());
        }
        if !self.has_ja3
            && let Some(tls) = event.get_mut("tls").and_then(Value::as_object_mut)
        {
            ["ja3", "ja3s"].iter().for_each(|it| drop(tls.remove(*it)));
        }
        // Suricata counts here what a kernel or a card lets by, and reading captures has neither.
        let flow = event.get_mut("flow").and_then(|it| it.get_mut("bypassed"));
        if let Some(bypassed) = flow.and_then(Value::as_object_mut) {
            bypassed.values_mut().for_each(|it| *it = 0.into());
        }
        if self.has_version {
            event.insert("suricata_version".into(), "8.0.7".into());
        }
        if let Some(host) = &self.host {
            event.insert("host".into(), host.as_str().into());
        }
        if let Some(name) = &self.capture {
            event.insert("pcap_filename".into(), name.as_str().into());
        }
        if !self.has_passwords
            && let Some(connect) = event.get_mut("mqtt").and_then(|it| it.get_mut("connect"))
        {
            connect.as_object_mut().map(|it| it.remove("password"));
        }
    }

    fn put_on_alert(&self, event: &mut Map<String, Value>) {
        event.retain(|name, _| {
            !self.left_out.contains(&name.as_str()) && !self.unasked.contains(&name.as_str())
        });
        if let Some(http) = event.get_mut("http").and_then(Value::as_object_mut) {
            http.retain(|name, _| !self.bodies_left_out.contains(name));
        }
        if !self.has_rule_metadata {
            event.remove("files");
        }
        let Some(alert) = event.get_mut("alert").and_then(Value::as_object_mut) else { return };
        if !self.has_rule_metadata {
            alert.remove("metadata");
        }
        let number = |name: &str| alert.get(name).and_then(Value::as_u64).unwrap_or_default();
        let Some(told) = self.rules.get(&(number("gid"), number("signature_id"))) else { return };
        if let Some(raw) = &told.raw {
            alert.insert("rule".into(), raw.as_str().into());
        }
        if !told.references.is_empty() {
            alert.insert("references".into(), json!(told.references));
        }
    }
}

/// The kinds of `smb` that are asked for; `None`: all.
fn smb_kinds(types: Option<&Value>) -> Option<Vec<String>> {
    let named = types?.as_array()?.iter().filter_map(Value::as_str);
    let named: Vec<String> = named.map(str::to_owned).collect();
    (!named.is_empty() && !named.iter().any(|it| it == "all")).then_some(named)
}

/// Of which of those a transaction is.
fn smb_kind(smb: &Value) -> &'static str {
    let command = smb["command"].as_str().unwrap_or_default();
    let is = |names: &[&str]| names.iter().any(|it| command.contains(it));
    let has = |name: &str| smb.get(name).is_some();
    match command {
        _ if has("dcerpc") => "dcerpc",
        _ if is(&["NEGOTIATE"]) => "negotiate",
        _ if is(&["SESSION_SETUP"]) => "session_setup",
        _ if is(&["TREE_CONNECT"]) => "tree_connect",
        _ if is(&["CREATE"]) => "create",
        _ if is(&["READ", "WRITE"]) && has("filename") => "file",
        _ if is(&["IOCTL"]) => "ioctl",
        _ if has("rename") => "rename",
        _ if has("set_info") || (is(&["TRANS2"]) && has("filename")) => "set_file_path_info",
        _ => "generic",
    }
}

/// Parts of alerts that come where somebody asks for them alone.
fn unasked(is_asked: &dyn Fn(&str) -> bool) -> Vec<&'static str> {
    const PAYLOADS: [(&str, &str); 3] = [
        ("payload", "payload"),
        ("payload-printable", "payload_printable"),
        ("payload-length", "payload_length"),
    ];
    let mut unasked: Vec<&str> =
        PAYLOADS.iter().filter(|it| !is_asked(it.0)).map(|it| it.1).collect();
    if unasked.len() == PAYLOADS.len() {
        unasked.push("stream");
    }
    if !is_asked("packet") {
        unasked.extend(["packet", "packet_info"]);
    }
    if !is_asked("verdict") {
        unasked.push("verdict");
    }
    unasked
}

/// Objects that alerts do without, as `metadata` of `alert` says: all of them, or those of
/// applications and of flows by themselves.
fn left_out(metadata: Option<&Value>) -> Vec<&'static str> {
    let Some(metadata) = metadata else { return Vec::new() };
    let is_on = |name: &str| match metadata {
        Value::Object(parts) => parts.get(name).is_none_or(is_yes),
        all => is_yes(all),
    };
    const OTHERS: [&str; 7] = ["alert", "anomaly", "arp", "drop", "flow", "netflow", "stats"];
    let mut names = Vec::new();
    if !is_on("app-layer") {
        names.extend(["ts_progress", "tc_progress"]);
        names.extend(EVENT_KINDS.iter().filter(|it| !OTHERS.contains(it)));
    }
    if !is_on("flow") {
        names.push("flow");
    }
    names
}

/// What rules say of themselves, as far as `metadata` of `alert` asks for it.
fn told_of_rules(
    case: &Case,
    rules: &RuleSet,
    metadata: Option<&Value>,
) -> Result<HashMap<(u64, u64), Told>> {
    let is_on = |name: &str| metadata.and_then(|it| it.get("rule")?.get(name)).is_some_and(is_yes);
    let mut told: HashMap<(u64, u64), Told> = HashMap::new();
    if is_on("reference") {
        for rule in rules.iter() {
            let key = (rule.generator.into(), rule.sid.into());
            let links = rule.references.iter().map(|(system, name)| link(system, name));
            told.entry(key).or_default().references = links.collect();
        }
    }
    if is_on("raw") {
        let texts = case.rules.iter().map(|it| text(it)).collect::<Result<Vec<_>>>()?;
        let texts = texts.join("\n").replace("\\\n", "");
        for line in texts.lines().map(str::trim).filter(|it| !it.starts_with('#')) {
            let options = || line.split(['(', ';']).filter_map(|it| it.split_once(':'));
            let number = |name: &str| {
                let (_, value) = options().find(|it| it.0.trim() == name)?;
                value.trim().parse::<u64>().ok()
            };
            if let Some(sid) = number("sid") {
                told.entry((number("gid").unwrap_or(1), sid)).or_default().raw = Some(line.into());
            }
        }
    }
    Ok(told)
}

/// Where to read on about a reference, by the systems that are built in
/// (Suricata's `reference.config`).
fn link(system: &str, name: &str) -> String {
    let place = match system.to_ascii_lowercase().as_str() {
        "cve" => "https://cve.mitre.org/cgi-bin/cvename.cgi?name=",
        "nessus" => "https://www.tenable.com/plugins/nessus/",
        "url" | "telus" => "https://",
        "mcafee" => "https://vil.nai.com/vil/content/v_",
        "bid" | "bugtraq" => "https://www.securityfocus.com/bid/",
        "md5" => "https://www.threatexpert.com/report.aspx?md5=",
        "secunia" => "https://www.secunia.com/advisories/",
        "arachnids" => "https://www.whitehats.com/info/IDS",
        "exploitdb" => "https://www.exploit-db.com/exploits/",
        "msft" => "https://technet.microsoft.com/security/bulletin/",
        "et" => "https://doc.emergingthreats.net/",
        "etpro" => "https://doc.emergingthreatspro.com/",
        "xforce" => "http://xforce.iss.net/xforce/xfdb/",
        "osvdb" => "http://osvdb.org/show/osvdb/",
        "threatexpert" => "http://www.threatexpert.com/report.aspx?md5=",
        "openpacket" => "https://www.openpacket.org/capture/grab/",
        "securitytracker" => "http://securitytracker.com/id?",
        _ => "",
    };
    format!("{place}{name}")
}

/// The Community ID of an event's flow between ports; other events have theirs, or none.
fn community_id(event: &Map<String, Value>, seed: u16) -> Option<String> {
    let protocol = match event.get("proto")?.as_str()? {
        "TCP" => 6,
        "UDP" => 17,
        "SCTP" => 132,
        _ => return None,
    };
    event.get("flow_id")?;
    let end = |address: &str, port: &str| {
        let address = match event.get(address)?.as_str()?.parse().ok()? {
            IpAddr::V4(it) => it.to_ipv6_mapped().octets(),
            IpAddr::V6(it) => it.octets(),
        };
        Some(End { address, port: u16::try_from(event.get(port)?.as_u64()?).ok()? })
    };
    let ends = [end("src_ip", "src_port")?, end("dest_ip", "dest_port")?];
    Some(eve_record::community_id([&ends[0], &ends[1]], protocol, None, seed))
}

impl Forwarded {
    fn put(&self, event: &mut Map<String, Value>) {
        let Some(address) = event.get("http").and_then(|it| self.address(it["xff"].as_str()?))
        else {
            return;
        };
        match event.get_mut("alert").and_then(Value::as_object_mut) {
            Some(_) if self.overwrites => {
                let is_request = event.get("direction").is_some_and(|it| it == "to_server");
                let end = if is_request { "src_ip" } else { "dest_ip" };
                event.insert(end.into(), address.into());
            }
            Some(alert) => _ = alert.insert("xff".into(), address.into()),
            None if !self.overwrites => _ = event.insert("xff".into(), address.into()),
            None => {}
        }
    }

    /// The address that a proxy names, without its port.
    fn address(&self, header: &str) -> Option<String> {
        let mut named = header.split(',');
        let named = if self.is_reverse { named.next_back() } else { named.next() };
        let named = named?.trim();
        let without_port = match named.strip_prefix('[') {
            Some(rest) => rest.split_once(']')?.0,
            None if named.matches(':').count() == 1 => named.split_once(':')?.0,
            None => named,
        };
        without_port.parse::<IpAddr>().ok()?;
        Some(without_port.to_owned())
    }
}
