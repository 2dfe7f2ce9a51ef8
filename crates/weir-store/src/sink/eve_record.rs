//! EVE's events beside alerts: flows when they end, transactions, counters; and the Community ID.

use std::collections::BTreeMap;

use aws_lc_rs::digest::{SHA1_FOR_LEGACY_USE_ONLY, digest};
use base64ct::{Base64, Encoding};
use serde_json::{Map, Value, json};
use weir_detect::alert::{End, FlowView};
use weir_detect::record::{
    AnomalyRecord, ApplicationRecord, DropRecord, FlowRecord, HttpRecord, Object, Oddity,
    SpokenBeside, UnitRecord, Value as RecordValue,
};
use weir_wire::frame::Time;

use super::eve;

/// What a global routing header says of the transport header behind it (IBTA Vol 1 s8.3).
const GRH_NEXT_IBA: u8 = 0x1b;

/// An event on its way.
pub type Event = Map<String, Value>;

/// What every event begins with.
pub fn head(time: Time, kind: &str, ends: [End; 2], protocol: u8) -> Event {
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
    event.insert("ip_v".into(), eve::version(&ends[0]).into());
    event
}

/// The event of kind `flow`.
pub fn flow(record: &FlowRecord, community_seed: Option<u16>) -> Event {
    let FlowRecord { view, .. } = record;
    let ends = [view.initiator, view.responder];
    let mut event = head(record.last, "flow", ends, record.protocol);
    put_rdma(&mut event, record.protocol);
    eve::put_flow_id(&mut event, view);
    put_vlans(&mut event, record);
    // Of TCP and UDP, ICMP only says that something did not arrive.
    let icmp = if matches!(record.protocol, 1 | 58) { record.icmp } else { [None; 2] };
    if let Some((kind, code)) = icmp[0] {
        event.insert("icmp_type".into(), kind.into());
        event.insert("icmp_code".into(), code.into());
    }
    if let Some((kind, code)) = icmp[1] {
        event.insert("response_icmp_type".into(), kind.into());
        event.insert("response_icmp_code".into(), code.into());
    }
    if let Some(spi) = record.spi {
        event.insert("spi".into(), spi.into());
    }
    if let Some(application) = record.application {
        event.insert("app_proto".into(), application.into());
    }
    put_beside(&mut event, &record.beside);
    let mut object = eve::flow_counts(view);
    object["end"] = eve::timestamp(record.last).into();
    object["age"] = age(record).into();
    object["state"] = record.state().into();
    if record.view.bypassed.is_some() {
        // By the program that writes this; Suricata has others, by NICs and kernels.
        object["bypass"] = "local".into();
    }
    object["reason"] = record.reason.name().into();
    object["alerted"] = record.is_alerted.into();
    if record.transactions > 0 {
        object["tx_cnt"] = record.transactions.into();
    }
    if record.is_dropped {
        object["action"] = "drop".into();
    } else if record.is_passed {
        object["action"] = "pass".into();
    }
    event.insert("flow".into(), object);
    if record.protocol == 6 {
        event.insert("tcp".into(), tcp(record));
    }
    put_flow_community_id(&mut event, record, community_seed);
    event
}

fn put_vlans(event: &mut Event, record: &FlowRecord) {
    if !record.vlans.ids().is_empty() {
        event.insert("vlan".into(), record.vlans.ids().into());
    }
}

/// Adds the flow's Community ID, where there is a seed for it.
fn put_flow_community_id(event: &mut Event, record: &FlowRecord, seed: Option<u16>) {
    if let Some(seed) = seed {
        // Messages about a flow's packets are of it, and say nothing of what it is.
        let icmp = record.icmp[0].filter(|_| matches!(record.protocol, 1 | 58));
        let id = flow_community_id(&record.view, record.protocol, icmp, record.spi, seed);
        event.insert("community_id".into(), id.into());
    }
}

/// Flows of RDMA without IP have what its headers call the next one, or none: to a reader of IP's
/// numbers they would be of RDP, which nobody speaks, or of HOPOPT.
pub fn put_rdma(event: &mut Event, protocol: u8) {
    if matches!(protocol, 0 | GRH_NEXT_IBA) {
        event.insert("proto".into(), "RDMA".into());
        event.remove("ip_v");
    }
}

fn age(record: &FlowRecord) -> u64 {
    let second = |it: Time| it.0 / 1_000_000_000;
    second(record.last).saturating_sub(second(record.view.start))
}

fn tcp(record: &FlowRecord) -> Value {
    // Of what is no connection that is followed, Suricata keeps nothing.
    let [client, server] = if record.is_followed { record.tcp_flags } else { [0, 0] };
    let mut object = json!({
        "tcp_flags": format!("{:02x}", client | server),
        "tcp_flags_ts": format!("{client:02x}"),
        "tcp_flags_tc": format!("{server:02x}"),
    });
    if record.is_followed {
        object["state"] = record.tcp_state().into();
        for (name, _) in ["ts_gap", "tc_gap"].into_iter().zip(record.has_gap).filter(|it| it.1) {
            object[name] = true.into();
        }
        // How many places of a stream were kept apart at once: what is behind a gap waits in the
        // same place, or the gap is skipped.
        object["ts_max_regions"] = 1.into();
        object["tc_max_regions"] = 1.into();
    }
    put_flags(&mut object, client | server);
    object
}

/// Adds the flags that are set.
fn put_flags(object: &mut Value, flags: u8) {
    let names = ["fin", "syn", "rst", "psh", "ack", "urg", "ecn", "cwr"];
    for (bit, name) in names.into_iter().enumerate() {
        if flags >> bit & 1 == 1 {
            object[name] = true.into();
        }
    }
}

/// The events of kind `netflow`: one for each side that sent something, with which that is.
pub fn netflow(record: &FlowRecord, community_seed: Option<u16>) -> Vec<(usize, Event)> {
    let FlowRecord { view, .. } = record;
    let mut events = Vec::new();
    for side in 0..2 {
        if view.packets[side] == 0 {
            continue;
        }
        let mut ends = [view.initiator, view.responder];
        ends.rotate_left(side);
        let mut event = head(record.last, "netflow", ends, record.protocol);
        put_rdma(&mut event, record.protocol);
        event.remove("ip_v");
        eve::put_flow_id(&mut event, view);
        put_vlans(&mut event, record);
        let application = record.beside.sides[side].or(record.application);
        event.insert("app_proto".into(), application.unwrap_or("unknown").into());
        // Of TCP and UDP, ICMP only says that something did not arrive.
        let icmp = record.icmp[side].filter(|_| matches!(record.protocol, 1 | 58));
        if let Some((kind, code)) = icmp {
            event.insert("icmp_type".into(), kind.into());
            event.insert("icmp_code".into(), code.into());
        }
        if let Some(spi) = record.spi {
            event.insert("spi".into(), spi.into());
        }
        let mut object = json!({
            "pkts": view.packets[side],
            "bytes": view.bytes[side],
            "start": eve::timestamp(view.start),
            "end": eve::timestamp(record.last),
            "age": age(record),
        });
        if let Some((least, greatest)) = record.hop_limits[side] {
            (object["min_ttl"], object["max_ttl"]) = (least.into(), greatest.into());
        }
        if record.transactions > 0 {
            object["tx_cnt"] = record.transactions.into();
        }
        event.insert("netflow".into(), object);
        if record.protocol == 6 {
            let flags = if record.is_followed { record.tcp_flags[side] } else { 0 };
            let mut tcp = json!({ "tcp_flags": format!("{flags:02x}") });
            put_flags(&mut tcp, flags);
            event.insert("tcp".into(), tcp);
        }
        put_flow_community_id(&mut event, record, community_seed);
        events.push((side, event));
    }
    events
}

/// Community ID, version 1: the same flow has it in other tools. `icmp` are type and code of the
/// first message, where that is what flows.
pub fn community_id(ends: [&End; 2], protocol: u8, icmp: Option<(u8, u8)>, seed: u16) -> String {
    let has_ports = matches!(protocol, 1 | 6 | 17 | 58 | 132);
    hashed(ends, (protocol, has_ports), icmp, seed)
}

fn hashed(
    ends: [&End; 2],
    (protocol, has_ports): (u8, bool),
    icmp: Option<(u8, u8)>,
    seed: u16,
) -> String {
    let short = |end: &End| match end.address {
        [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, rest @ ..] => rest.to_vec(),
        whole => whole.to_vec(),
    };
    // A message that is answered goes by its kind and that of its answer; any other is no flow, and
    // keeps its direction.
    let answer = icmp.map(|it| icmp_answer(protocol, it.0));
    let ports = match icmp.zip(answer) {
        Some(((kind, _), Some(answer))) => (kind.into(), answer.into()),
        Some(((kind, code), None)) => (kind.into(), code.into()),
        None => (ends[0].port, ends[1].port),
    };
    let (from, to) = ((short(ends[0]), ports.0), (short(ends[1]), ports.1));
    let (first, second) = if from <= to || answer == Some(None) { (from, to) } else { (to, from) };
    let mut bytes = seed.to_be_bytes().to_vec();
    bytes.extend(first.0);
    bytes.extend(second.0);
    bytes.extend([protocol, 0]);
    if has_ports {
        bytes.extend(first.1.to_be_bytes());
        bytes.extend(second.1.to_be_bytes());
    }
    let hash = digest(&SHA1_FOR_LEGACY_USE_ONLY, &bytes);
    format!("1:{}", Base64::encode_string(hash.as_ref()))
}

/// The Community ID of a flow, as Suricata 8.0.7 has it: with ports of 0 where a protocol has none,
/// and of ESP with the lower half of the security association's index as the port it comes from.
pub fn flow_community_id(
    view: &FlowView,
    protocol: u8,
    icmp: Option<(u8, u8)>,
    spi: Option<u32>,
    seed: u16,
) -> String {
    let [mut from, mut to] = [view.initiator, view.responder];
    if let Some(spi) = spi {
        (from.port, to.port) = (spi as u16, 0);
    }
    hashed([&from, &to], (protocol, true), icmp, seed)
}

/// Tells the Community ID of a flow between ports, or of questions of ICMP and their answers: what
/// says that a packet did not arrive is of that packet's flow.
pub(super) fn put_community_id(
    event: &mut Event,
    [from, to]: &[End; 2],
    protocol: u8,
    icmp: Option<(u8, u8)>,
) {
    let is_flow = icmp.is_some_and(|it| icmp_answer(protocol, it.0).is_some());
    if matches!(protocol, 6 | 17 | 132) || is_flow {
        event.insert("community_id".into(), community_id([from, to], protocol, icmp, 0).into());
    }
}

/// The kind of message that answers one of ICMP, or that it answers, as Community IDs have it.
fn icmp_answer(protocol: u8, kind: u8) -> Option<u8> {
    const PAIRS: [(u8, u8, u8); 11] = [
        (1, 8, 0),
        (1, 10, 9),
        (1, 13, 14),
        (1, 15, 16),
        (1, 17, 18),
        (58, 128, 129),
        (58, 130, 131),
        (58, 133, 134),
        (58, 135, 136),
        (58, 139, 140),
        (58, 144, 145),
    ];
    let pair = PAIRS.iter().find(|it| it.0 == protocol && (it.1 == kind || it.2 == kind))?;
    Some(if pair.1 == kind { pair.2 } else { pair.1 })
}

/// The event of kind `http`.
pub fn http(time: Time, record: &HttpRecord) -> Event {
    let FlowView { initiator, responder, .. } = record.flow;
    let mut event = head(time, "http", [initiator, responder], 6);
    put_community_id(&mut event, &[initiator, responder], 6, None);
    eve::put_flow_id(&mut event, &record.flow);
    if !record.is_of_http2 {
        event.insert("tx_id".into(), record.number.into());
    }
    event.insert("http".into(), object(&record.object));
    event
}

/// Adds what is spoken beside `app_proto`.
pub fn put_beside(event: &mut Event, beside: &SpokenBeside) {
    let named = [
        ("app_proto_ts", beside.sides[0]),
        ("app_proto_tc", beside.sides[1]),
        ("app_proto_orig", beside.original),
        ("app_proto_expected", beside.expected),
    ];
    for (name, spoken) in named.into_iter().filter_map(|it| Some((it.0, it.1?))) {
        event.insert(name.into(), spoken.into());
    }
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

/// The event of an application's message or session.
pub fn application(record: &ApplicationRecord) -> Event {
    let FlowView { initiator, responder, to_server, .. } = record.flow;
    let mut ends = [initiator, responder];
    if !to_server {
        ends.reverse();
    }
    let mut event = head(record.time, record.kind, ends, record.protocol);
    put_community_id(&mut event, &ends, record.protocol, None);
    eve::put_flow_id(&mut event, &record.flow);
    event.insert(record.kind.into(), object(&record.object));
    event
}

/// Events that tell the number of their transaction, as Suricata has them.
const NUMBERED: [&str; 2] = ["smtp", "smb"];

/// The event of a transaction of another application, of the kind that is its name.
pub fn unit(record: &UnitRecord) -> Event {
    let FlowView { initiator, responder, to_server, .. } = record.flow;
    let mut ends = [initiator, responder];
    if !to_server {
        ends.reverse();
    }
    let mut event = head(record.time, record.kind, ends, record.protocol);
    put_community_id(&mut event, &ends, record.protocol, None);
    eve::put_flow_id(&mut event, &record.flow);
    if let Some(number) = record.number.filter(|_| NUMBERED.contains(&record.kind)) {
        event.insert("tx_id".into(), number.into());
    }
    if matches!(record.kind, "fileinfo" | "frame") {
        event.insert("app_proto".into(), record.application.unwrap_or("unknown").into());
    }
    put_objects(&mut event, &record.objects);
    event
}

/// Puts what is told of a transaction, each object by its name.
pub fn put_objects(event: &mut Event, objects: &[(&'static str, Object)]) {
    for (name, told) in objects {
        event.insert((*name).into(), object(told));
    }
}

/// An object as JSON.
pub fn object(told: &Object) -> Value {
    told.iter()
        .map(|(name, value)| (name.to_owned(), converted(value)))
        .collect::<Map<_, _>>()
        .into()
}

fn converted(told: &RecordValue) -> Value {
    match told {
        RecordValue::Bool(is_so) => (*is_so).into(),
        RecordValue::Number(number) => (*number).into(),
        RecordValue::Fraction(bits) => f64::from_bits(*bits).into(),
        RecordValue::Text(text) => text.as_str().into(),
        RecordValue::List(list) => list.iter().map(converted).collect::<Vec<_>>().into(),
        RecordValue::Object(inner) => object(inner),
    }
}

/// The event of kind `anomaly`.
pub fn anomaly(record: &AnomalyRecord) -> Event {
    let ends = [record.source, record.destination];
    let mut event = match record.version {
        0 => {
            let mut event = Event::new();
            event.insert("timestamp".into(), eve::timestamp(record.time).into());
            event.insert("event_type".into(), "anomaly".into());
            event
        }
        version => {
            let mut event = head(record.time, "anomaly", ends, record.protocol);
            event.insert("ip_v".into(), version.into());
            put_community_id(&mut event, &ends, record.protocol, record.icmp);
            event
        }
    };
    eve::put_flow_id(&mut event, &record.flow);
    event.insert("pkt_src".into(), "wire/pcap".into());
    if !record.vlans.ids().is_empty() {
        event.insert("vlan".into(), record.vlans.ids().into());
    }
    if let Some((kind, code)) = record.icmp {
        event.insert("icmp_type".into(), kind.into());
        event.insert("icmp_code".into(), code.into());
    }
    if let Some(number) = record.event.transaction() {
        event.insert("tx_id".into(), number.into());
    }
    event.insert("anomaly".into(), anomaly_object(record.event, record.application));
    event
}

/// The event of kind `drop` of a packet of which no alert tells.
pub fn drop(record: &DropRecord) -> Event {
    let ends = [record.source, record.destination];
    let mut event = head(record.time, "drop", ends, record.protocol);
    put_rdma(&mut event, record.protocol);
    put_community_id(&mut event, &ends, record.protocol, None);
    if let Some(application) = record.application {
        event.insert("app_proto".into(), application.into());
    }
    if let Some(flow) = &record.flow {
        eve::put_flow_id(&mut event, flow);
        let direction = if flow.to_server { "to_server" } else { "to_client" };
        event.insert("direction".into(), direction.into());
        event.insert("flow".into(), eve::flow_object(flow));
    }
    event.insert("drop".into(), eve::drop_object(&record.headers, record.reason));
    event
}

/// What was odd, by its name in Suricata's language.
pub fn anomaly_object(event: Oddity, application: Option<&str>) -> Value {
    let (kind, name, layer) = event.names();
    match layer {
        Some(layer) => json!({
            "app_proto": application.unwrap_or("unknown"),
            "type": kind,
            "event": name,
            "layer": layer,
        }),
        None => json!({ "type": kind, "event": name }),
    }
}

#[cfg(test)]
mod tests {
    use weir_detect::headers::{Headers, NetworkFields, TransportFields};

    use super::*;

    /// As Suricata 8.0.7 has them.
    #[test]
    fn an_association_of_esp_has_a_community_id() {
        for ([from, to], spi, id) in [
            ([1, 2], 0x1111_2222, "1:VfqdY7w4uP3sJ/x/6K6uPKBXbQ4="),
            ([2, 1], 0x3333_4444, "1:7fS3b6zLhs2tFBFuueJpE9DpVi4="),
        ] {
            let end = |last| End {
                address: std::net::Ipv4Addr::new(10, 0, 0, last).to_ipv6_mapped().octets(),
                port: 0,
            };
            let view = FlowView { initiator: end(from), responder: end(to), ..FlowView::default() };
            assert_eq!(flow_community_id(&view, 50, None, Some(spi), 0), id);
        }
    }

    #[test]
    fn a_question_of_icmp_and_its_answer_have_one_community_id() {
        let end = |address: &str| End {
            address: address.parse::<std::net::Ipv6Addr>().unwrap().octets(),
            port: 0,
        };
        let ends = [end("2001:db8:1::1"), end("2001:db8:2::2")];
        let id = |from: usize, kind| {
            community_id([&ends[from], &ends[1 - from]], 58, Some((kind, 0)), 0)
        };
        // As Suricata 8.0.7 has them.
        assert_eq!(id(0, 128), "1:ihOQ6xH6jp19/QAVUcxK4qLItB0=");
        assert_eq!(id(1, 129), id(0, 128));
        assert_eq!(id(0, 135), "1:Jb62UZLftsd2QBlJqi0Myh10+FE=");
        assert_ne!(id(0, 1), id(1, 1));
        // An alert's, of messages that are of no other flow.
        let told = |kind| {
            let mut event = Event::new();
            put_community_id(&mut event, &[ends[1], ends[0]], 58, Some((kind, 0)));
            event.get("community_id").and_then(|it| it.as_str().map(str::to_owned))
        };
        assert_eq!((told(129), told(1)), (Some(id(0, 128)), None));
    }

    #[test]
    fn a_flow_of_rdma_without_ip_is_of_no_protocol_of_ip() {
        for protocol in [0, GRH_NEXT_IBA] {
            let record = FlowRecord { protocol, ..FlowRecord::default() };
            assert_eq!(flow(&record, None)["proto"], "RDMA");
            assert!(flow(&record, None).get("ip_v").is_none());
        }
    }

    #[test]
    fn a_drop_without_an_alert_tells_its_packet_and_why() {
        let end = |last: u8, port| {
            let mut address = [0; 16];
            address[10..].copy_from_slice(&[0xff, 0xff, 192, 0, 2, last]);
            End { address, port }
        };
        let record = DropRecord {
            time: Time(0),
            reason: "flow drop",
            source: end(1, 49_152),
            destination: end(2, 80),
            protocol: 6,
            headers: Headers {
                network: NetworkFields::Ipv4 { length: 60, service: 8, hops: 63, id: 7 },
                transport: TransportFields::Udp { length: 40 },
            },
            application: Some("http"),
            flow: Some(weir_detect::alert::FlowView::default()),
        };
        let event = drop(&record);
        let expected = json!({
            "len": 60, "tos": 8, "ttl": 63, "ipid": 7, "udplen": 40, "reason": "flow drop"
        });
        assert_eq!((&event["event_type"], &event["drop"]), (&"drop".into(), &expected));
        assert_eq!((&event["src_ip"], &event["dest_port"]), (&"192.0.2.1".into(), &80.into()));
        assert!(event.contains_key("flow_id") && event.contains_key("community_id"), "{event:?}");
        let blocked = drop(&DropRecord { reason: "blocked", flow: None, ..record });
        assert_eq!((&blocked["drop"]["reason"], blocked.get("flow_id")), (&"blocked".into(), None));
    }

    #[test]
    fn a_flow_names_the_one_that_announced_it_and_counts_what_passed_without_a_look() {
        let view = FlowView { bypassed: Some([[3, 1], [300, 60]]), ..FlowView::default() };
        let plain = flow(&FlowRecord { view, ..FlowRecord::default() }, None);
        assert_eq!(plain.get("parent_id"), None);
        let told = &plain["flow"];
        assert_eq!((&told["state"], &told["bypass"]), (&"bypassed".into(), &"local".into()));
        let counted = json!({
            "pkts_toserver": 3, "pkts_toclient": 1, "bytes_toserver": 300, "bytes_toclient": 60,
        });
        assert_eq!(told["bypassed"], counted);
        let parent = FlowView { start: Time(7), ..FlowView::default() };
        let view = FlowView { parent: Some(parent.key()), ..FlowView::default() };
        let child = flow(&FlowRecord { view, ..FlowRecord::default() }, None);
        assert_eq!(child["parent_id"], eve::flow_id(&parent));
        assert_ne!(child["parent_id"], child["flow_id"]);
        assert_eq!((child["flow"].get("bypassed"), child["flow"].get("bypass")), (None, None));
    }

    #[test]
    fn a_flow_tells_what_was_spoken_in_it_beside_its_application() {
        let plain = flow(&FlowRecord { application: Some("http"), ..FlowRecord::default() }, None);
        let names = ["app_proto_ts", "app_proto_tc", "app_proto_orig", "app_proto_expected"];
        assert!(names.iter().all(|it| !plain.contains_key(*it)), "{plain:?}");
        assert_eq!(plain["flow"].get("tx_cnt"), None);
        let record = FlowRecord {
            application: Some("ssh"),
            beside: SpokenBeside {
                sides: [None, Some("failed")],
                original: Some("smtp"),
                expected: Some("tls"),
            },
            transactions: 2,
            ..FlowRecord::default()
        };
        let event = flow(&record, None);
        assert_eq!(
            names.map(|it| event.get(it).and_then(Value::as_str)),
            [None, Some("failed"), Some("smtp"), Some("tls"),]
        );
        assert_eq!(event["flow"]["tx_cnt"], 2);
    }
}
