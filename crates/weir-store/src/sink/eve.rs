//! EVE: alerts and drops as JSON, a line each, in the shape that Suricata gives them and others
//! read, with an object of ours for RDMA.

use std::borrow::Cow;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::Arc;

use jiff::Timestamp;
use serde_json::{Map, Value, json};
use weir_detect::alert::{End, FlowKey, FlowView, RdmaView, TunnelView};
use weir_detect::headers::{Headers, NetworkFields, TransportFields};
use weir_detect::{Alert, Blocked, FloodView, Rule, RuleSet, TextScope};
use weir_wire::bth::Opcode;
use weir_wire::frame::Time;
use weir_wire::parse::Encapsulation;

pub use super::eve_record::object;
use super::eve_record::{put_community_id, put_objects};
use crate::names::Names;

/// The lines that `alert` makes: `alert`, and `drop` where the packet went no further; each with
/// its line feed. `rules` is the set that the detector ran.
pub fn write(alert: &Alert, rules: &RuleSet, marks: &Marks, out: &mut Vec<u8>) {
    let mut event = alert_event(alert, rules);
    marks.put(&mut event);
    push(out, event);
    if matches!(alert.blocked, Blocked::Dropped | Blocked::Rejected) {
        let mut event = head(alert, "drop");
        event.insert("drop".into(), drop_object(&alert.headers, "rules"));
        event.insert("alert".into(), alert_object(alert, rules));
        event.insert("flow".into(), flow_object(&alert.flow));
        if let Some(rdma) = &alert.rdma {
            event.insert("rdma".into(), rdma_object(rdma));
        }
        if let Some(tunnel) = &alert.tunnel {
            event.insert("tunnel".into(), tunnel_object(tunnel));
        }
        marks.put(&mut event);
        push(out, event);
    }
}

/// What `drop` says of a packet that goes no further, and why it does not.
pub fn drop_object(headers: &Headers, reason: &str) -> Value {
    let mut object = match headers.network {
        NetworkFields::Ipv4 { length, service, hops, id } => {
            json!({ "len": length, "tos": service, "ttl": hops, "ipid": id })
        }
        NetworkFields::Ipv6 { length, class, hops, label } => {
            json!({ "len": length, "tc": class, "hoplimit": hops, "flowlbl": label })
        }
        NetworkFields::Other { length, class, hops } => {
            json!({ "len": length, "tos": class, "ttl": hops })
        }
    };
    match headers.transport {
        TransportFields::Tcp { sequence, acknowledgment, window, flags, reserved, urgent } => {
            object["tcpseq"] = sequence.into();
            object["tcpack"] = acknowledgment.into();
            object["tcpwin"] = window.into();
            for (bit, name) in ["fin", "syn", "rst", "psh", "ack", "urg"].into_iter().enumerate() {
                object[name] = (flags >> bit & 1 == 1).into();
            }
            object["tcpres"] = reserved.into();
            object["tcpurgp"] = urgent.into();
        }
        TransportFields::Udp { length } => object["udplen"] = length.into(),
        // As they lie in the memory of the machines that Suricata mostly runs on.
        TransportFields::Icmp { id, sequence } => {
            object["icmp_id"] = id.swap_bytes().into();
            object["icmp_seq"] = sequence.swap_bytes().into();
        }
        TransportFields::Other => {}
    }
    object["reason"] = reason.into();
    object
}

/// The line of `fast.log`, as Suricata writes it.
pub fn fast(alert: &Alert, rules: &RuleSet, out: &mut Vec<u8>) {
    let rule = rules.rule(alert.rule);
    let time = Timestamp::from_nanosecond(alert.time.0.into()).unwrap_or_default();
    let action = match alert.blocked {
        Blocked::Dropped | Blocked::Rejected => "[Drop] ",
        Blocked::Would => "[wDrop] ",
        Blocked::No => "",
    };
    // Readers want a port, so of ICMP type and code stand there.
    let (source_port, destination_port) = match alert.icmp {
        Some((kind, code)) => (kind.into(), code.into()),
        None => (alert.source.port, alert.destination.port),
    };
    let end = |end: &End, port: u16| format!("{}:{port}", address(end));
    let protocol = if alert.rdma.is_some() { "RDMA".into() } else { protocol(alert.protocol) };
    let line = format!(
        "{}  {action}[**] [{}:{}:{}] {} [**] [Classification: {}] [Priority: {}] {{{protocol}}} \
         {} -> {}\n",
        time.strftime("%m/%d/%Y-%H:%M:%S.%6f"),
        rule.generator,
        rule.sid,
        rule.revision,
        printable(&rule.message),
        printable(rules.category(rule)),
        rule.priority,
        end(&alert.source, source_port),
        end(&alert.destination, destination_port),
    );
    out.extend_from_slice(line.as_bytes());
}

/// A text without control characters, which could forge a line, or steer the terminal that shows
/// it: they are written as JSON has them.
fn printable(text: &str) -> Cow<'_, str> {
    if !text.contains(char::is_control) {
        return text.into();
    }
    let mut shown = String::with_capacity(text.len() + 8);
    for letter in text.chars() {
        match letter {
            '\n' => shown.push_str("\\n"),
            '\r' => shown.push_str("\\r"),
            '\t' => shown.push_str("\\t"),
            it if it.is_control() => shown.push_str(&format!("\\u{:04x}", u32::from(it))),
            it => shown.push(it),
        }
    }
    shown.into()
}

/// What the gateway knows of an alert that its packet does not say.
#[derive(Clone, Debug, Default)]
pub struct Marks {
    /// The VPN client that sent it.
    pub source: Option<Arc<str>>,
    /// The one that it is for.
    pub destination: Option<Arc<str>>,
    /// By which its evidence is found, where the alert is stored.
    pub number: Option<u64>,
    /// The interface that the packet came by.
    pub interface: Option<Arc<str>>,
}

impl Marks {
    /// Those of what goes from `source` to `destination`, as far as they are known.
    pub fn of(ends: [&[u8; 16]; 2], number: Option<u64>, names: &Names) -> Self {
        let [source, destination] = ends.map(|it| names.of(it));
        Self { source, destination, number, interface: None }
    }

    /// Puts them into `event`: `src_peer`, `dest_peer`, `in_iface` and `weir.alert_id`.
    pub fn put(&self, event: &mut Map<String, Value>) {
        for (key, name) in [
            ("src_peer", &self.source),
            ("dest_peer", &self.destination),
            ("in_iface", &self.interface),
        ] {
            if let Some(name) = name {
                event.insert(key.into(), name.as_ref().into());
            }
        }
        if let Some(number) = self.number {
            event.insert("weir".into(), json!({ "alert_id": number }));
        }
    }
}

/// The event of kind `alert`.
pub fn alert_event(alert: &Alert, rules: &RuleSet) -> Map<String, Value> {
    let mut event = head(alert, "alert");
    event.insert("alert".into(), alert_object(alert, rules));
    if let Some(application) = alert.application {
        event.insert("app_proto".into(), application.into());
    }
    let direction = if alert.flow.to_server { "to_server" } else { "to_client" };
    event.insert("direction".into(), direction.into());
    event.insert("flow".into(), flow_object(&alert.flow));
    if let Some(rdma) = &alert.rdma {
        event.insert("rdma".into(), rdma_object(rdma));
    }
    if let Some(flood) = &alert.flood {
        event.insert("flood".into(), flood_object(flood));
    }
    if let Some(tunnel) = &alert.tunnel {
        event.insert("tunnel".into(), tunnel_object(tunnel));
    }
    if let Some(transaction) = &alert.transaction {
        if let Some(number) = transaction.number {
            event.insert("tx_id".into(), number.into());
        }
        let progress = ["ts_progress", "tc_progress"].into_iter().zip(transaction.progress);
        for (name, state) in progress.filter(|it| !it.1.is_empty()) {
            event.insert(name.into(), state.into());
        }
        put_objects(&mut event, &transaction.objects);
        // As by Suricata: the values by their types are for events of DNS alone.
        event.get_mut("dns").and_then(Value::as_object_mut).map(|it| it.remove("grouped"));
        let files: Vec<Value> = transaction.files.iter().map(object).collect();
        if !files.is_empty() {
            event.insert("files".into(), files.into());
        }
    }
    event
}

/// Appends an event and its line feed.
pub fn push(out: &mut Vec<u8>, event: Map<String, Value>) {
    // Writing to memory does not fail.
    let _ = serde_json::to_writer(&mut *out, &Value::Object(event));
    out.push(b'\n');
}

fn head(alert: &Alert, kind: &str) -> Map<String, Value> {
    let mut event = Map::new();
    event.insert("timestamp".into(), timestamp(alert.time).into());
    put_flow_id(&mut event, &alert.flow);
    event.insert("event_type".into(), kind.into());
    event.insert("src_ip".into(), address(&alert.source).into());
    event.insert("dest_ip".into(), address(&alert.destination).into());
    if matches!(alert.protocol, 6 | 17 | 132) {
        event.insert("src_port".into(), alert.source.port.into());
        event.insert("dest_port".into(), alert.destination.port.into());
    }
    // RoCE v2 goes over UDP; the other ways over no IP, whose numbers would be others'.
    let is_over_ip = alert.rdma.as_ref().is_none_or(|it| it.encapsulation == Encapsulation::RoceV2);
    if is_over_ip {
        event.insert("ip_v".into(), version(&alert.source).into());
    }
    let protocol = if is_over_ip { protocol(alert.protocol) } else { "RDMA".into() };
    event.insert("proto".into(), protocol.into());
    if let Some((kind, code)) = alert.icmp {
        event.insert("icmp_type".into(), kind.into());
        event.insert("icmp_code".into(), code.into());
    }
    put_community_id(&mut event, &[alert.source, alert.destination], alert.protocol, alert.icmp);
    event
}

/// What EVE's `alert` says of the rule.
pub fn rule_object(rule: &Rule, is_blocked: bool, rules: &RuleSet) -> Value {
    json!({
        "action": if is_blocked { "blocked" } else { "allowed" },
        "gid": rule.generator,
        "signature_id": rule.sid,
        "rev": rule.revision,
        "signature": rule.message,
        "category": rules.category(rule),
        "severity": rule.priority,
    })
}

/// What an alert says of its rule, and of what became of the packet.
pub fn alert_object(alert: &Alert, rules: &RuleSet) -> Value {
    let rule = rules.rule(alert.rule);
    let is_blocked = matches!(alert.blocked, Blocked::Dropped | Blocked::Rejected);
    let mut object = rule_object(rule, is_blocked, rules);
    if alert.blocked == Blocked::Would {
        object["would_drop"] = true.into();
    }
    let context = alert.texts.iter().filter(|it| it.kept == TextScope::Alert);
    let mut context: Map<String, Value> =
        context.map(|it| (it.name.clone(), String::from_utf8_lossy(&it.bytes).into())).collect();
    for known in &alert.contexts {
        // It was JSON when the rules were read.
        let value = serde_json::from_str(&known.json).unwrap_or_default();
        context.insert(known.name.to_string(), value);
    }
    if !context.is_empty() {
        object["context"] = context.into();
    }
    if let Some(target) = &rule.target {
        let (source, target) = match target.as_str() {
            "src_ip" => (&alert.destination, &alert.source),
            _ => (&alert.source, &alert.destination),
        };
        let has_ports = [source.port, target.port] != [0; 2];
        for (name, end) in [("source", source), ("target", target)] {
            object[name] = json!({ "ip": address(end) });
            if has_ports {
                object[name]["port"] = end.port.into();
            }
        }
    }
    if !rule.metadata.is_empty() {
        let mut metadata: Map<String, Value> = Map::new();
        // The last of several comes first, as with Suricata.
        for (key, value) in rule.metadata.iter().rev() {
            let list = metadata.entry(key.as_str()).or_insert_with(|| json!([]));
            if let Some(list) = list.as_array_mut() {
                list.push(value.as_str().into());
            }
        }
        object["metadata"] = Value::Object(metadata);
    }
    object
}

/// A flow so far.
pub fn flow_object(flow: &FlowView) -> Value {
    let mut object = flow_counts(flow);
    object["src_ip"] = address(&flow.initiator).into();
    object["dest_ip"] = address(&flow.responder).into();
    // ICMP and others have none.
    if [flow.initiator.port, flow.responder.port] != [0; 2] {
        object["src_port"] = flow.initiator.port.into();
        object["dest_port"] = flow.responder.port.into();
    }
    object
}

/// The same without its ends.
pub(super) fn flow_counts(flow: &FlowView) -> Value {
    let mut object = json!({
        "pkts_toserver": flow.packets[0],
        "pkts_toclient": flow.packets[1],
        "bytes_toserver": flow.bytes[0],
        "bytes_toclient": flow.bytes[1],
        "start": timestamp(flow.start),
    });
    if let Some([packets, bytes]) = flow.bypassed {
        object["bypassed"] = json!({
            "pkts_toserver": packets[0],
            "pkts_toclient": packets[1],
            "bytes_toserver": bytes[0],
            "bytes_toclient": bytes[1],
        });
    }
    object
}

/// The outermost packet that carries another; Suricata's `pcap_cnt` is of captures alone.
fn tunnel_object(tunnel: &TunnelView) -> Value {
    json!({
        "src_ip": address(&tunnel.source),
        "src_port": tunnel.source.port,
        "dest_ip": address(&tunnel.destination),
        "dest_port": tunnel.destination.port,
        "proto": protocol(tunnel.protocol),
        "depth": tunnel.depth,
    })
}

fn flood_object(flood: &FloodView) -> Value {
    let network = match Ipv6Addr::from(flood.network).to_ipv4_mapped() {
        Some(it) => format!("{it}/{}", flood.bits.saturating_sub(96)),
        None => format!("{}/{}", Ipv6Addr::from(flood.network), flood.bits),
    };
    let mut object = json!({
        "kind": flood.kind,
        if flood.by_destination { "target" } else { "source" }: network,
        "packets_per_s": flood.rate,
        "allowed_per_s": flood.allowed,
    });
    if let Some(sources) = &flood.sources {
        let share = |permille: u16| f64::from(permille) / 1000.0;
        let talker = |(address, permille): &([u8; 16], u16)| {
            let address = Ipv6Addr::from(*address).to_canonical();
            json!({ "ip": address.to_string(), "share": share(*permille) })
        };
        object["sources"] = if sources.are_few { "few" } else { "many" }.into();
        object["source_entropy"] = share(sources.entropy_permille).into();
        object["talkers"] = sources.loudest.iter().map(talker).collect();
    }
    object
}

fn rdma_object(rdma: &RdmaView) -> Value {
    let encapsulation = match rdma.encapsulation {
        Encapsulation::RoceV1 => "roce_v1",
        Encapsulation::RoceV2 => "roce_v2",
        Encapsulation::InfiniBand => "infiniband",
    };
    let mut object = json!({
        "encapsulation": encapsulation,
        "opcode": rdma.opcode,
        "operation": Opcode(rdma.opcode).name(),
        "dest_qp": rdma.destination_qp,
        "psn": rdma.psn,
        "pkey": rdma.partition_key,
    });
    let fields = [
        ("src_qp", rdma.source_qp),
        ("rkey", rdma.remote_key),
        ("syndrome", rdma.syndrome.map(u32::from)),
        ("length", rdma.length),
    ];
    for (name, field) in fields {
        if let Some(value) = field {
            object[name] = value.into();
        }
    }
    object
}

/// Names of IP's protocols from 0 on, as IANA and Suricata have them. Those that stand for no
/// single one are all `Any`.
const PROTOCOLS: &str = "\
    HOPOPT ICMP IGMP GGP IP-in-IP ST TCP CBT EGP IGP BBN-RCC-MON NVP-II PUP ARGUS EMCON XNET \
    CHAOS UDP MUX DCN-MEAS HMP PRM XNS-IDP TRUNK-1 TRUNK-2 LEAF-1 LEAF-2 RDP IRTP ISO-TP4 \
    NETBLT MFE-NSP MERIT-INP DCCP 3PC IDPR XTP DDP IDPR-CMTP TP++ IL IPv6 SDRP IPv6-Route \
    IPv6-Frag IDRP RSVP GRE DSR BNA ESP AH I-NLSP SwIPe NARP MOBILE TLSP SKIP IPv6-ICMP \
    IPv6-NoNxt IPv6-Opts Any CFTP Any SAT-EXPAK KRYPTOLAN RVD IPPC Any SAT-MON VISA IPCU \
    CPNX CPHB WSN PVP BR-SAT-MON SUN-ND WB-MON WB-EXPAK ISO-IP VMTP SECURE-VMTP VINES TTP \
    NSFNET-IGP DGP TCF EIGRP OSPF Sprite-RPC LARP MTP AX.25 OS MICP SCC-SP ETHERIP ENCAP Any \
    GMTP IFMP PNNI PIM ARIS SCPS QNX A/N IPComp SNP Compaq-Peer IPX-in-IP VRRP PGM Any L2TP \
    DDX IATP STP SRP UTI SMP SM PTP IS-IS FIRE CRTP CRUDP SSCOPMCE IPLT SPS PIPE SCTP FC \
    RSVP-E2E-IGNORE Mobility UDPLite MPLS-in-IP manet HIP Shim6 WESP ROHC Ethernet";

/// The name of an IP protocol, or its number.
pub fn protocol(number: u8) -> String {
    let name = PROTOCOLS.split_ascii_whitespace().nth(number.into());
    name.map_or_else(|| number.to_string(), str::to_owned)
}

/// The number of a protocol that [`protocol`] calls so, or that is written as a number, as earlier
/// versions stored it; `None`: RDMA, and what has none of its own.
pub fn protocol_number(name: &str) -> Option<u8> {
    let named = (0..=u8::MAX).find(|it| name != "Any" && protocol(*it) == name);
    named.or_else(|| name.parse().ok())
}

/// An address: IPv6 in full, as Suricata writes it.
pub fn address(end: &End) -> String {
    match Ipv6Addr::from(end.address).to_canonical() {
        IpAddr::V4(address) => address.to_string(),
        IpAddr::V6(address) => {
            let parts = address.segments().map(|it| format!("{it:04x}"));
            parts.join(":")
        }
    }
}

/// The version of IP that an address is of.
pub fn version(end: &End) -> u8 {
    if Ipv6Addr::from(end.address).to_canonical().is_ipv4() { 4 } else { 6 }
}

/// A moment: `2026-01-31T23:59:59.123456+0000`
pub fn timestamp(time: Time) -> String {
    let time = Timestamp::from_nanosecond(time.0.into()).unwrap_or_default();
    time.strftime("%Y-%m-%dT%H:%M:%S.%6f+0000").to_string()
}

/// Joins the events of a flow: 53 bits, which every reader of JSON keeps.
pub fn flow_id(flow: &FlowView) -> u64 {
    id_of(&flow.key())
}

/// Puts `flow_id`, and `parent_id` where another flow has announced it.
pub fn put_flow_id(event: &mut Map<String, Value>, flow: &FlowView) {
    event.insert("flow_id".into(), flow_id(flow).into());
    if let Some(parent) = &flow.parent {
        event.insert("parent_id".into(), id_of(parent).into());
    }
}

fn id_of(flow: &FlowKey) -> u64 {
    const OFFSET: u64 = 0xcbf2_9ce4_8422_2325;
    const PRIME: u64 = 0x0100_0000_01b3;
    let ends = [flow.initiator, flow.responder];
    let ends = ends.iter().flat_map(|it| it.address.into_iter().chain(it.port.to_be_bytes()));
    let bytes = ends.chain(flow.start.0.to_be_bytes());
    bytes.fold(OFFSET, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(PRIME)) >> 11
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_characters_are_written_as_json_has_them() {
        assert_eq!(printable("a \\ \"b\" \u{e9}"), "a \\ \"b\" \u{e9}");
        assert_eq!(printable("a\nb\u{1b}[2Jc\u{9b}\t"), "a\\nb\\u001b[2Jc\\u009b\\t");
    }
}
