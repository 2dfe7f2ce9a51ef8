//! EVE's events of captures: what is said of a packet beside its alert, of flows when they end, of
//! transactions, and of everything in the end.

use std::fs::File;
use std::io::Read;
use std::net::Ipv4Addr;
use std::path::Path;

use base64ct::{Base64, Encoding};
use serde_json::{Value, json};
use weir_detect::alert::End;
use weir_detect::{Marks, TextScope, printable};
use weir_store::sink::eve;
pub use weir_store::sink::eve_record::{
    Event, anomaly_object, application, flow, http, netflow, stats, unit,
};
use weir_store::sink::eve_record::{head, put_rdma};
use weir_wire::arp::ArpPacket;
use weir_wire::frame::{Link, Time};
use weir_wire::ipoib::IpoibArp;
use weir_wire::parse::{Encapsulation, Network, Parsed, Rdma, Transport};

use super::layers::Layer;

/// The ends of a packet. A piece of a datagram has no ports.
pub fn ends(parsed: &Parsed) -> [End; 2] {
    let (source, destination) = match parsed.transport {
        _ if parsed.fragment.is_some() => (0, 0),
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

/// An event of kind `kind` about a packet.
pub fn of_packet(time: Time, kind: &str, number: u64, layer: &Layer<'_>) -> Event {
    let parsed = &layer.parsed;
    let mut event = match parsed.network {
        Network::Ipv4 | Network::Ipv6 => head(time, kind, ends(parsed), parsed.protocol),
        _ if parsed.rdma.is_some() => {
            let mut event = head(time, kind, ends(parsed), parsed.protocol);
            put_rdma(&mut event, parsed.protocol);
            event
        }
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

/// What Suricata calls the protocol of a piece of an IPv6 packet.
const PIECE: &str = "IPv6-Frag";

/// Whether it is a piece of an IPv6 packet.
pub fn is_piece(parsed: &Parsed) -> bool {
    parsed.network == Network::Ipv6 && parsed.fragment.is_some()
}

/// Adds what is said of every packet.
pub fn describe(event: &mut Event, number: u64, layer: &Layer<'_>) {
    let parsed = &layer.parsed;
    // What stands in another packet, or is none, has no number of its own in the capture.
    if layer.source == "wire/pcap" {
        event.insert("pcap_cnt".into(), number.into());
    }
    event.insert("pkt_src".into(), layer.source.into());
    if is_piece(parsed) && event.contains_key("proto") {
        event.insert("proto".into(), PIECE.into());
        ["src_port", "dest_port"].iter().for_each(|it| drop(event.remove(*it)));
    }
    if !layer.vlans.ids().is_empty() {
        event.insert("vlan".into(), layer.vlans.ids().into());
    }
    match parsed.transport {
        // It is the whole's.
        _ if parsed.fragment.is_some() => {}
        Transport::Icmp { kind, code } => {
            event.insert("icmp_type".into(), kind.into());
            event.insert("icmp_code".into(), code.into());
        }
        _ => {}
    }
    if matches!(parsed.network, Network::Ipv4 | Network::Ipv6) {
        let version = if parsed.network == Network::Ipv4 { 4 } else { 6 };
        event.insert("ip_v".into(), version.into());
    } else if parsed.rdma.is_none() {
        // Nobody has an address.
        let of_ends = ["src_ip", "src_port", "dest_ip", "dest_port", "proto"];
        event.retain(|name, _| !of_ends.contains(&name.as_str()));
    }
    if layer.link == Link::Ethernet {
        event.insert("ether".into(), ether(layer.bytes, parsed));
    }
    let rebuilt = std::iter::successors(Some(layer), |it| it.outer).filter(|it| it.is_rebuilt());
    let depth = layer.depth.saturating_sub(rebuilt.count());
    // Alerts alone say what carried their packet, as with Suricata, which tells of no ARP there.
    if event.get("event_type").is_none_or(|it| it != "alert" && it != "arp") {
        return;
    }
    let outermost = std::iter::successors(layer.outer, |it| it.outer).last();
    if let (Some(outer), true) = (outermost, layer.source != "wire/pcap") {
        let [source, destination] = ends(&outer.parsed);
        let carrier = match outer.parsed.rdma {
            // It has no protocol of IP, and carries packets in this way alone.
            Some(Rdma { encapsulation: Encapsulation::InfiniBand, .. }) => "IPoIB".to_owned(),
            _ => eve::protocol(outer.parsed.protocol),
        };
        let tunnel = json!({
            "src_ip": eve::address(&source),
            "src_port": source.port,
            "dest_ip": eve::address(&destination),
            "dest_port": destination.port,
            "proto": if is_piece(&outer.parsed) { PIECE.into() } else { carrier },
            "depth": depth,
            "pcap_cnt": number,
            "pkt_src": outer.source,
        });
        event.insert("tunnel".into(), tunnel);
    }
}

/// The addresses of a frame of Ethernet, and the type behind them, which may be a tag's.
pub fn ether(bytes: &[u8], parsed: &Parsed) -> Value {
    let link = &parsed.link;
    let kind = bytes.get(12..14).map(|it| u16::from_be_bytes([it[0], it[1]]));
    json!({
        "src_mac": link.source.to_string(),
        "dest_mac": link.destination.to_string(),
        "ether_type": kind,
    })
}

/// Fields of `tls` that are told where nothing else is asked for: all but the certificates.
pub const USUAL_TLS: [&str; 16] = [
    "subject",
    "issuer",
    "session_resumed",
    "serial",
    "fingerprint",
    "sni",
    "version",
    "not_before",
    "not_after",
    "subjectaltname",
    "ja3",
    "ja3s",
    "ja4",
    "client_alpns",
    "server_alpns",
    "client",
];

/// Leaves the fields of a `tls` object that are wanted, by their names in suricata.yaml.
pub fn choose_tls<T: AsRef<str>>(object: &mut serde_json::Value, wanted: &[T]) {
    let has = |name: &str| wanted.iter().any(|it| it.as_ref() == name);
    let is_wanted = |name: &str| match name {
        "issuerdn" => has("issuer"),
        "notbefore" => has("not_before"),
        "notafter" => has("not_after"),
        other => has(other) || matches!(other, "client" | "from_proto"),
    };
    let Some(fields) = object.as_object_mut() else { return };
    fields.retain(|name, _| is_wanted(name));
    let client = fields.get_mut("client").and_then(|it| it.as_object_mut());
    let client = client.map(|client| {
        client.retain(|name, _| match name.as_str() {
            "certificate" => has("client_certificate"),
            "chain" => has("client_chain"),
            _ => has("client"),
        });
        client.is_empty()
    });
    if client == Some(true) {
        fields.remove("client");
    }
}

/// What rules have noted of a flow, as EVE's `metadata` and `traffic` have it: bits that are named
/// so say what kind of traffic it is.
pub fn noted(marks: Marks) -> Event {
    if marks == Marks::default() {
        return Event::new();
    }
    let (mut noted, mut metadata, mut traffic) = (Event::new(), Event::new(), Event::new());
    let mut bits = marks.bits;
    for kind in ["id", "label"] {
        let prefix = format!("traffic/{kind}/");
        let of_kind: Vec<String> = bits.extract_if(.., |it| it.starts_with(&prefix)).collect();
        if !of_kind.is_empty() {
            let names = of_kind.iter().map(|it| &it[prefix.len()..]);
            traffic.insert(kind.into(), names.collect());
        }
    }
    if !bits.is_empty() {
        metadata.insert("flowbits".into(), bits.into());
    }
    if !marks.counters.is_empty() {
        metadata.insert("flowints".into(), marks.counters.into_iter().collect());
    }
    if !marks.entropies.is_empty() {
        let number = |it: f64| if it.fract() == 0.0 { json!(it as u64) } else { json!(it) };
        let entropies = marks.entropies.into_iter().map(|it| (it.0, number(it.1)));
        metadata.insert("entropy".into(), Value::Object(entropies.collect()));
    }
    for (name, kept) in [("flowvars", TextScope::Flow), ("pktvars", TextScope::Packet)] {
        let texts = marks.texts.iter().filter(|it| it.kept == kept);
        let texts = texts.map(|it| json!({ it.name.as_str(): printable(&it.bytes) }));
        let texts: Vec<_> = texts.collect();
        if !texts.is_empty() {
            metadata.insert(name.into(), texts.into());
        }
    }
    for (name, object) in [("traffic", traffic), ("metadata", metadata)] {
        if !object.is_empty() {
            noted.insert(name.into(), object.into());
        }
    }
    noted
}

/// What a packet of ARP says, as EVE has it; none of another kind, or that is odd.
pub fn arp_object(layer: &Layer<'_>) -> Option<Value> {
    let bytes = layer.bytes.get(usize::from(layer.parsed.network_offset)..)?;
    let arp = ArpPacket::of(bytes)?;
    let operation = match arp.operation.get() {
        1 => "request",
        2 => "reply",
        3 => "request_reverse",
        4 => "reply_reverse",
        _ => return None,
    };
    let object = |kind: &str, macs: [String; 2], ips: [[u8; 4]; 2]| {
        json!({
            "hw_type": kind,
            "proto_type": "ipv4",
            "opcode": operation,
            "src_mac": macs[0],
            "src_ip": Ipv4Addr::from(ips[0]).to_string(),
            "dest_mac": macs[1],
            "dest_ip": Ipv4Addr::from(ips[1]).to_string(),
        })
    };
    if let Some(arp) = IpoibArp::of(bytes).filter(IpoibArp::is_ipv4_over_infiniband) {
        let macs =
            [arp.sender, arp.target].map(|it| it.map(|byte| format!("{byte:02x}")).join(":"));
        return Some(object("infiniband", macs, [arp.sender_ip, arp.target_ip]));
    }
    let macs = [arp.sender_mac, arp.target_mac].map(|it| it.to_string());
    arp.is_ipv4_over_ethernet().then(|| object("ethernet", macs, [arp.sender_ip, arp.target_ip]))
}

/// Says of a flow that none of its packets has gone by yet that nobody looks at.
pub fn put_bypassed(event: &mut Event) {
    let names = ["pkts_toserver", "pkts_toclient", "bytes_toserver", "bytes_toclient"];
    let none: Event = names.iter().map(|it| ((*it).to_owned(), 0.into())).collect();
    event.get_mut("flow").into_iter().for_each(|it| it["bypassed"] = none.clone().into());
}

/// Adds the payload that was looked at, if there is one.
pub fn put_payload(event: &mut Event, payload: &[u8], is_stream: bool) {
    if !payload.is_empty() {
        event.insert("payload".into(), Base64::encode_string(payload).into());
        event.insert("payload_printable".into(), printable(payload).into());
    }
    event.insert("payload_length".into(), payload.len().into());
    event.insert("stream".into(), u8::from(is_stream).into());
}

/// Adds the packet itself, or what stands for it, with the link type that its capture names.
pub fn put_packet(
    event: &mut Event,
    (layer, bytes): (&Layer<'_>, &[u8]),
    capture_link: Option<u32>,
) {
    event.insert("packet".into(), Base64::encode_string(bytes).into());
    let (number, name) = match (layer.link, capture_link) {
        _ if layer.source.contains("tunnel") || layer.source.contains("encapsulation") => {
            (12, "RAW")
        }
        (Link::Ip, Some(228)) => (228, "IPv4"),
        (Link::Ip, Some(229)) => (229, "IPv6"),
        (Link::Ip, _) => (12, "RAW"),
        (Link::Ethernet, _) => (1, "EN10MB"),
        (Link::Ppp, _) => (9, "PPP"),
        (Link::CiscoHdlc, _) => (104, "C_HDLC"),
        (Link::Loopback, _) => (0, "NULL"),
        (Link::LinuxSll, _) => (113, "LINUX_SLL"),
        (Link::LinuxSll2, _) => (276, "LINUX_SLL2"),
        (Link::InfiniBand, _) => (247, "INFINIBAND"),
        (Link::Ipoib, _) => (242, "IPOIB"),
    };
    event.insert("packet_info".into(), json!({ "linktype": number, "linktype_name": name }));
}

/// The link type in a pcap file's head; pcapng names one for each interface, deeper inside.
pub fn named_link(path: &Path) -> Option<u32> {
    let mut head = [0; 24];
    File::open(path).ok()?.read_exact(&mut head).ok()?;
    let number: [u8; 4] = *head.last_chunk()?;
    match head[..4] {
        [0xd4 | 0x4d, 0xc3 | 0x3c, 0xb2, 0xa1] => Some(u32::from_le_bytes(number) & 0xffff),
        [0xa1, 0xb2, 0xc3 | 0x3c, 0xd4 | 0x4d] => Some(u32::from_be_bytes(number) & 0xffff),
        _ => None,
    }
}
