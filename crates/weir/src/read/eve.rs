//! EVE's events of captures: what is said of a packet beside its alert, of flows when they end, of
//! transactions, and of everything in the end.

use std::collections::BTreeMap;

use aws_lc_rs::digest::{SHA1_FOR_LEGACY_USE_ONLY, digest};
use base64ct::{Base64, Encoding};
use serde_json::{Map, Value, json};
use weir_detect::alert::{End, FlowView};
use weir_detect::record::{FlowRecord, HttpRecord};
use weir_store::sink::eve;
use weir_wire::frame::{Link, Time};
use weir_wire::parse::{Network, Parsed, Transport};

use super::layers::Layer;

/// An event on its way.
pub type Event = Map<String, Value>;

/// The ends of a packet.
pub fn ends(parsed: &Parsed) -> [End; 2] {
    let (source, destination) = match parsed.transport {
        Transport::Tcp { source, destination, .. } | Transport::Udp { source, destination } => {
            (source, destination)
        }
        _ => (0, 0),
    };
    [
        End { address: parsed.source, port: source },
        End { address: parsed.destination, port: destination },
    ]
}

fn head(time: Time, kind: &str, ends: [End; 2], protocol: u8) -> Event {
    let mut event = Event::new();
    event.insert("timestamp".into(), eve::timestamp(time).into());
    event.insert("event_type".into(), kind.into());
    event.insert("src_ip".into(), eve::address(&ends[0]).into());
    event.insert("dest_ip".into(), eve::address(&ends[1]).into());
    if matches!(protocol, 6 | 17 | 132) {
        event.insert("src_port".into(), ends[0].port.into());
        event.insert("dest_port".into(), ends[1].port.into());
    }
    event.insert("proto".into(), eve::protocol(protocol).into());
    event
}

/// An event of kind `kind` about a packet.
pub fn of_packet(time: Time, kind: &str, number: u64, layer: &Layer<'_>) -> Event {
    let parsed = &layer.parsed;
    let mut event = match parsed.network {
        Network::Ipv4 | Network::Ipv6 => head(time, kind, ends(parsed), parsed.protocol),
        _ => {
            let mut event = Event::new();
            event.insert("timestamp".into(), eve::timestamp(time).into());
            event.insert("event_type".into(), kind.into());
            event
        }
    };
    describe(&mut event, number, layer);
    event
}

/// Adds what is said of every packet.
pub fn describe(event: &mut Event, number: u64, layer: &Layer<'_>) {
    let parsed = &layer.parsed;
    event.insert("pcap_cnt".into(), number.into());
    event.insert("pkt_src".into(), layer.source.into());
    if !layer.vlans.ids().is_empty() {
        event.insert("vlan".into(), layer.vlans.ids().into());
    }
    match parsed.transport {
        Transport::Icmp { kind, code } => {
            event.insert("icmp_type".into(), kind.into());
            event.insert("icmp_code".into(), code.into());
        }
        Transport::Esp { spi, .. } => _ = event.insert("spi".into(), spi.into()),
        _ => {}
    }
    if matches!(parsed.network, Network::Ipv4 | Network::Ipv6) {
        let version = if parsed.network == Network::Ipv4 { 4 } else { 6 };
        event.insert("ip_v".into(), version.into());
    }
    if layer.link == Link::Ethernet {
        let link = &parsed.link;
        let ether = json!({
            "src_mac": link.source.to_string(),
            "dest_mac": link.destination.to_string(),
            "ether_type": link.ethertype,
        });
        event.insert("ether".into(), ether);
    }
    let outermost = std::iter::successors(layer.outer, |it| it.outer).last();
    if let (Some(outer), true) = (outermost, layer.source != "wire/pcap") {
        let [source, destination] = ends(&outer.parsed);
        let tunnel = json!({
            "src_ip": eve::address(&source),
            "src_port": source.port,
            "dest_ip": eve::address(&destination),
            "dest_port": destination.port,
            "proto": eve::protocol(outer.parsed.protocol),
            "depth": layer.depth,
            "pcap_cnt": number,
            "pkt_src": outer.source,
        });
        event.insert("tunnel".into(), tunnel);
    }
}

/// Adds the payload that was looked at.
pub fn put_payload(event: &mut Event, payload: &[u8], is_stream: bool) {
    event.insert("payload".into(), Base64::encode_string(payload).into());
    event.insert("payload_printable".into(), printable(payload).into());
    event.insert("stream".into(), u8::from(is_stream).into());
}

/// Adds the packet itself, with the link type that its capture names.
pub fn put_packet(event: &mut Event, layer: &Layer<'_>, capture_link: Option<u32>) {
    event.insert("packet".into(), Base64::encode_string(layer.bytes).into());
    let (number, name) = match (layer.link, capture_link) {
        _ if layer.source.contains("tunnel") || layer.source.contains("encapsulation") => {
            (12, "RAW")
        }
        (Link::Ip, Some(228)) => (228, "IPv4"),
        (Link::Ip, Some(229)) => (229, "IPv6"),
        (Link::Ip, _) => (12, "RAW"),
        (Link::Ethernet, _) => (1, "EN10MB"),
        (Link::Ppp, _) => (9, "PPP"),
        (Link::Loopback, _) => (0, "NULL"),
        (Link::LinuxSll, _) => (113, "LINUX_SLL"),
        (Link::LinuxSll2, _) => (276, "LINUX_SLL2"),
        (Link::InfiniBand, _) => (247, "INFINIBAND"),
    };
    event.insert("packet_info".into(), json!({ "linktype": number, "linktype_name": name }));
}

/// Bytes as text: those that cannot be printed are dots.
fn printable(bytes: &[u8]) -> String {
    let letter = |byte: &u8| match byte {
        b'\r' | b'\n' | b' '..=b'~' => char::from(*byte),
        _ => '.',
    };
    bytes.iter().map(letter).collect()
}

/// The event of kind `flow`.
pub fn flow(record: &FlowRecord, community_seed: Option<u16>) -> Event {
    let FlowRecord { view, .. } = record;
    let ends = [view.initiator, view.responder];
    let mut event = head(record.last, "flow", ends, record.protocol);
    event.insert("flow_id".into(), eve::flow_id(view).into());
    if !record.vlans.ids().is_empty() {
        event.insert("vlan".into(), record.vlans.ids().into());
    }
    if let Some((kind, code)) = record.icmp[0] {
        event.insert("icmp_type".into(), kind.into());
        event.insert("icmp_code".into(), code.into());
    }
    if let Some((kind, code)) = record.icmp[1] {
        event.insert("response_icmp_type".into(), kind.into());
        event.insert("response_icmp_code".into(), code.into());
    }
    if let Some(spi) = record.spi {
        event.insert("spi".into(), spi.into());
    }
    if let Some(application) = record.application {
        event.insert("app_proto".into(), application.into());
    }
    let mut object = eve::flow_object(view);
    object["end"] = eve::timestamp(record.last).into();
    object["age"] = age(record).into();
    object["state"] = record.state().into();
    object["reason"] = record.reason.name().into();
    object["alerted"] = record.is_alerted.into();
    if record.is_dropped {
        object["action"] = "drop".into();
    } else if record.is_passed {
        object["action"] = "pass".into();
    }
    event.insert("flow".into(), object);
    if record.protocol == 6 {
        event.insert("tcp".into(), tcp(record));
    }
    if let Some(seed) = community_seed {
        event.insert("community_id".into(), community_id(record, seed).into());
    }
    event
}

fn age(record: &FlowRecord) -> u64 {
    let second = |it: Time| it.0 / 1_000_000_000;
    second(record.last).saturating_sub(second(record.view.start))
}

fn tcp(record: &FlowRecord) -> Value {
    let [client, server] = record.tcp_flags;
    let mut object = json!({
        "tcp_flags": format!("{:02x}", client | server),
        "tcp_flags_ts": format!("{client:02x}"),
        "tcp_flags_tc": format!("{server:02x}"),
        "state": record.tcp_state(),
    });
    let names = ["fin", "syn", "rst", "psh", "ack", "urg", "ecn", "cwr"];
    for (bit, name) in names.into_iter().enumerate() {
        if (client | server) >> bit & 1 == 1 {
            object[name] = true.into();
        }
    }
    object
}

/// The events of kind `netflow`: one for each side that sent something.
pub fn netflow(record: &FlowRecord) -> Vec<Event> {
    let FlowRecord { view, .. } = record;
    let mut events = Vec::new();
    for side in 0..2 {
        if view.packets[side] == 0 {
            continue;
        }
        let mut ends = [view.initiator, view.responder];
        ends.rotate_left(side);
        let mut event = head(record.last, "netflow", ends, record.protocol);
        event.insert("flow_id".into(), eve::flow_id(view).into());
        if let Some(spi) = record.spi {
            event.insert("spi".into(), spi.into());
        }
        let object = json!({
            "pkts": view.packets[side],
            "bytes": view.bytes[side],
            "start": eve::timestamp(view.start),
            "end": eve::timestamp(record.last),
            "age": age(record),
        });
        event.insert("netflow".into(), object);
        events.push(event);
    }
    events
}

/// Community ID, version 1: the same flow has it in other tools.
fn community_id(record: &FlowRecord, seed: u16) -> String {
    let FlowRecord { view, .. } = record;
    let short = |end: &End| match end.address {
        [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, rest @ ..] => rest.to_vec(),
        whole => whole.to_vec(),
    };
    let ports = match record.icmp[0] {
        Some((kind, code)) => (kind.into(), code.into()),
        None => (view.initiator.port, view.responder.port),
    };
    let (from, to) = ((short(&view.initiator), ports.0), (short(&view.responder), ports.1));
    let (first, second) = if from <= to { (from, to) } else { (to, from) };
    let mut bytes = seed.to_be_bytes().to_vec();
    bytes.extend(first.0);
    bytes.extend(second.0);
    bytes.extend([record.protocol, 0]);
    if matches!(record.protocol, 1 | 6 | 17 | 58 | 132) {
        bytes.extend(first.1.to_be_bytes());
        bytes.extend(second.1.to_be_bytes());
    }
    let hash = digest(&SHA1_FOR_LEGACY_USE_ONLY, &bytes);
    format!("1:{}", Base64::encode_string(hash.as_ref()))
}

/// The event of kind `http`.
pub fn http(time: Time, record: &HttpRecord) -> Event {
    let FlowView { initiator, responder, .. } = record.flow;
    let mut event = head(time, "http", [initiator, responder], 6);
    event.insert("flow_id".into(), eve::flow_id(&record.flow).into());
    event.insert("tx_id".into(), record.number.into());
    let mut object = Map::new();
    for (name, value) in &record.fields {
        let text = String::from_utf8_lossy(value);
        let value = match (*name, text.parse::<u64>()) {
            ("status", Ok(number)) => number.into(),
            _ => Value::from(text.into_owned()),
        };
        object.insert((*name).into(), value);
    }
    object.insert("length".into(), record.length.into());
    event.insert("http".into(), Value::Object(object));
    event
}

/// The event of kind `stats`: counters by their dotted names.
pub fn stats(time: Time, counters: &BTreeMap<String, u64>) -> Event {
    let mut event = Event::new();
    event.insert("timestamp".into(), eve::timestamp(time).into());
    event.insert("event_type".into(), "stats".into());
    let mut object = json!({});
    for (name, count) in counters {
        let pointer = format!("/{}", name.replace('.', "/"));
        put(&mut object, pointer.trim_start_matches('/'), *count);
    }
    event.insert("stats".into(), object);
    event
}

fn put(object: &mut Value, path: &str, count: u64) {
    match path.split_once('/') {
        Some((first, rest)) => put(&mut object[first], rest, count),
        None => object[path] = count.into(),
    }
}
