//! Which events are written of captures that rules look at, by EVE's names.

use serde_json::Value;
use weir_store::sink::eve_dns::DnsVersion;

use super::eve::Event;

/// Kinds of what is odd, by EVE's names.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Anomalies {
    /// About a packet.
    pub decode: bool,
    /// About a segment in its stream.
    pub stream: bool,
    /// About what is spoken.
    pub applayer: bool,
}

/// What is told of applications' messages and sessions.
#[derive(Clone, Debug, Default)]
pub struct Applications {
    /// Kinds that are told, by EVE's names; without, all are but frames.
    pub kinds: Option<Vec<String>>,
    /// Fields of `tls` that are told, by their names in suricata.yaml; without, those that are
    /// usual there.
    pub tls: Option<Vec<String>>,
    /// Which messages of DNS, and how.
    pub dns: DnsMessages,
    /// HTTP/2 is a kind of its own (`http2`), though its events are of kind `http`.
    pub is_http2_apart: bool,
}

/// Which messages of DNS are told, and how: as `dns` in suricata.yaml's `types` says.
#[derive(Clone, Debug)]
pub struct DnsMessages {
    /// How `dns` objects are written.
    pub version: DnsVersion,
    /// Whether requests are told.
    pub requests: bool,
    /// Whether responses are.
    pub responses: bool,
    /// Whether each record of a response is told.
    pub is_detailed: bool,
    /// Whether values are told by the types of their records.
    pub is_grouped: bool,
    /// Types, in capitals, of which a question must be; without, all are told.
    pub types: Option<Vec<String>>,
}

impl Default for DnsMessages {
    fn default() -> Self {
        Self {
            version: DnsVersion::default(),
            requests: true,
            responses: true,
            is_detailed: true,
            is_grouped: true,
            types: None,
        }
    }
}

impl DnsMessages {
    /// The events for one of kind `dns` as the detector tells it; others are as they were.
    pub(super) fn events(&self, mut event: Event) -> Vec<Event> {
        let Some(told) = event.get_mut("dns").and_then(Value::as_object_mut) else {
            return vec![event];
        };
        let is_request = told.get("type").is_some_and(|it| it == "request");
        if !(if is_request { self.requests } else { self.responses }) {
            return Vec::new();
        }
        if let (Some(types), Some(Value::Array(questions))) = (&self.types, told.get_mut("queries"))
        {
            let is_told = |it: &Value| types.iter().any(|kind| it["rrtype"] == **kind);
            questions.retain(is_told);
            if questions.is_empty() {
                return Vec::new();
            }
        }
        for (name, is_told) in [("answers", self.is_detailed), ("grouped", self.is_grouped)] {
            if !is_told {
                told.remove(name);
            }
        }
        self.version.events(event)
    }
}

impl Applications {
    pub(super) fn tells(&self, kind: &str) -> bool {
        self.kinds.as_ref().is_none_or(|kinds| kinds.iter().any(|it| it == kind))
    }

    /// Whether that kind is among those that are named.
    pub(super) fn names(&self, kind: &str) -> bool {
        self.kinds.is_some() && self.tells(kind)
    }

    pub(super) fn tells_any(&self) -> bool {
        self.kinds.as_ref().is_none_or(|kinds| !kinds.is_empty())
    }
}

/// Kinds of events.
#[derive(Clone, Debug)]
pub struct Events {
    /// `flow`, when one ends.
    pub flow: bool,
    /// `netflow`: a flow's two sides.
    pub netflow: bool,
    /// What is told of applications.
    pub applications: Applications,
    /// `anomaly`: what is odd.
    pub anomaly: Anomalies,
    /// `stats`, at the end.
    pub stats: bool,
    /// `packet`: packets behind one that a rule with `tag` matched.
    pub tagged: bool,
    /// `arp`: requests and answers.
    pub arp: bool,
    /// `drop`.
    pub drops: bool,
    /// Of the packets that a flow loses, the first of each side alone is told of.
    pub first_drops: bool,
    /// The seed of `community_id` in flows; none without.
    pub community_seed: Option<u16>,
    /// Whether records of applications and anomalies name the MAC addresses of their packet
    /// (`ethernet`).
    pub ethernet: bool,
}

/// What [`Events::of_kinds`] takes.
pub const EVENT_KINDS: [&str; 40] = [
    "alert",
    "anomaly",
    "arp",
    "bittorrent_dht",
    "dcerpc",
    "dhcp",
    "dnp3",
    "dns",
    "drop",
    "enip",
    "fileinfo",
    "flow",
    "frame",
    "ftp",
    "ftp_data",
    "http",
    "ike",
    "krb5",
    "ldap",
    "mdns",
    "modbus",
    "mqtt",
    "netflow",
    "nfs",
    "pgsql",
    "pop3",
    "quic",
    "rdp",
    "rfb",
    "rpc",
    "sip",
    "smb",
    "smtp",
    "snmp",
    "ssh",
    "stats",
    "tftp",
    "tls",
    "websocket",
    "all",
];

impl Events {
    /// Those of the kinds that are named, by EVE's names; alerts and drops need no name.
    pub fn of_kinds(kinds: &[String]) -> Self {
        let has = |name: &str| kinds.iter().any(|it| it == name);
        if has("all") {
            // ARP, frames and `netflow` are not among them: they are named beside it.
            let kinds = || EVENT_KINDS.map(str::to_owned).to_vec();
            let applications =
                Applications { kinds: has("frame").then(kinds), ..Applications::default() };
            let (arp, netflow) = (has("arp"), has("netflow"));
            return Self { arp, netflow, applications, ..Self::default() };
        }
        let others = ["alert", "arp", "drop", "flow", "netflow", "anomaly", "stats"];
        let applications = kinds.iter().filter(|it| !others.contains(&it.as_str())).cloned();
        let is_odd = has("anomaly");
        Self {
            flow: has("flow"),
            netflow: has("netflow"),
            applications: Applications {
                kinds: Some(applications.collect()),
                ..Applications::default()
            },
            anomaly: Anomalies { decode: is_odd, stream: is_odd, applayer: is_odd },
            stats: has("stats"),
            arp: has("arp"),
            ..Self::default()
        }
    }
}

impl Default for Events {
    fn default() -> Self {
        Self {
            flow: true,
            netflow: false,
            applications: Applications::default(),
            anomaly: Anomalies { decode: true, stream: true, applayer: true },
            stats: true,
            tagged: true,
            arp: false,
            drops: true,
            first_drops: true,
            community_seed: Some(0),
            ethernet: false,
        }
    }
}
