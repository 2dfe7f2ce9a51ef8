//! Field by field against tshark: whatever it shows of the watched fields we must have found, and
//! nothing else.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{Ipv4Addr, Ipv6Addr};
use std::path::Path;
use std::process::Command;

use serde_json::Value;
use weir_wire::bth::{Bth, Service};
use weir_wire::cm::{self, ConnectRequest, Message};
use weir_wire::esp::EspHeader;
use weir_wire::ethernet::ethertype;
use weir_wire::frame::Link;
use weir_wire::grh::Grh;
use weir_wire::icrc;
use weir_wire::ip::{Ipv4Header, Ipv6Header, unmapped};
use weir_wire::lrh::Lrh;
use weir_wire::parse::{Encapsulation, Network, Parsed, Rdma, Transport, TunnelKind, parse_inner};
use weir_wire::udp::UdpHeader;
use weir_wire::{ext, mad};
use zerocopy::FromBytes;

use crate::captures::{self, Packet};

/// tshark field name to the values in packet order, as numbers or addresses.
type Fields = BTreeMap<String, Vec<String>>;

#[test]
fn every_field_of_the_recorded_packets_is_as_tshark_says() {
    if !is_installed() {
        return;
    }
    for file in captures::files() {
        compare(&file, &captures::packets(&file));
    }
}

pub(crate) fn is_installed() -> bool {
    let is_installed = Command::new("tshark").arg("--version").output().is_ok();
    if !is_installed {
        eprintln!("SKIPPED: tshark is not installed");
    }
    is_installed
}

/// Compares our fields of `packets` with tshark's of the file they were read from.
pub(crate) fn compare(file: &Path, packets: &[Packet]) {
    let judged = dissect(file);
    assert_eq!(judged.len(), packets.len(), "{file:?}");
    let mut differences = Vec::new();
    for (index, (packet, mut theirs)) in packets.iter().zip(judged).enumerate() {
        let parsed = packet.parsed();
        let mut ours = Fields::new();
        claim(&mut ours, &packet.bytes, &parsed, packet.link);
        theirs.retain(|name, _| is_watched(name, packet.link));
        if let Some(kinds) = theirs.get_mut("eth.type") {
            kinds.retain(|kind| !kind.parse().is_ok_and(ethertype::is_vlan));
        }
        theirs.retain(|_, values| !values.is_empty());
        correct(&mut theirs, &parsed);
        let names: BTreeSet<_> = ours.keys().chain(theirs.keys()).collect();
        for name in names {
            let (ours, theirs) = (ours.get(name), theirs.get(name));
            if ours != theirs {
                differences.push(format!("packet {}: {name} {ours:?} {theirs:?}", index + 1));
            }
        }
    }
    assert!(differences.is_empty(), "{file:?}: ours, tshark's:\n{}", differences.join("\n"));
}

/// Takes out what tshark 4.0 is known to get wrong.
fn correct(theirs: &mut Fields, parsed: &Parsed) {
    // It reports these once as a header and once as its only field.
    for name in ["infiniband.immdt", "infiniband.ieth"] {
        if let Some(values) = theirs.get_mut(name) {
            values.truncate(1);
        }
    }
    // It takes either port for RoCE v2; Annex A17 names the destination's.
    if parsed.rdma.is_none() {
        theirs.retain(|name, _| !name.starts_with("infiniband."));
    }
    // It takes the last bytes of a first fragment for the ICRC.
    if parsed.fragment.is_some() {
        theirs.remove("infiniband.invariant.crc");
    }
    // It looks for the RDETH eight bytes too late.
    if parsed.rdma.is_some_and(|rdma| has_misread_extensions(&rdma)) {
        theirs.retain(|name, _| !name.starts_with("infiniband.") || name.contains(".bth."));
    }
}

fn has_misread_extensions(rdma: &Rdma) -> bool {
    rdma.opcode.service() == Service::ReliableDatagram
}

fn dissect(file: &Path) -> Vec<Fields> {
    let output = Command::new("tshark")
        .args(["-n", "-r"])
        .arg(file)
        .args(["-T", "json", "--no-duplicate-keys"])
        // It guesses RPC from a SEND's first bytes and then calls the packet malformed.
        .args(["--disable-protocol", "rpcordma"])
        .args(["-o", "ip.defragment:FALSE", "-o", "ipv6.defragment:FALSE"])
        .args(["-o", "tcp.desegment_tcp_streams:FALSE", "-o", "tcp.analyze_sequence_numbers:FALSE"])
        .output()
        .expect("tshark runs");
    let packets: Value = serde_json::from_slice(&output.stdout).expect("tshark prints JSON");
    packets
        .as_array()
        .expect("an array")
        .iter()
        .map(|packet| {
            let mut fields = Fields::new();
            gather(&packet["_source"]["layers"], &mut fields);
            fields
        })
        .collect()
}

/// Flattens a layer into its fields.
fn gather(value: &Value, fields: &mut Fields) {
    match value {
        Value::Array(items) => items.iter().for_each(|item| gather(item, fields)),
        Value::Object(entries) => {
            for (name, value) in entries {
                // tshark has two dissectors for VLAN tags, by their EtherType.
                let name = name.replace("ieee8021ad.", "vlan.");
                let values = fields.entry(name).or_default();
                match value {
                    Value::String(text) => values.push(canonical(text)),
                    Value::Array(items) => {
                        values.extend(items.iter().filter_map(Value::as_str).map(canonical));
                        gather(value, fields);
                    }
                    _ => gather(value, fields),
                }
            }
        }
        _ => {}
    }
}

/// Numbers in decimal, whatever base and width tshark chose.
fn canonical(text: &str) -> String {
    let digits = text.strip_prefix("0x").map(|hex| u128::from_str_radix(hex, 16));
    match digits {
        Some(Ok(number)) => number.to_string(),
        _ => text.to_string(),
    }
}

const WATCHED: &[&str] = &[
    "eth.dst",
    "eth.src",
    "eth.type",
    "vlan.id",
    "vlan.priority",
    "ip.src",
    "ip.dst",
    "ip.proto",
    "ip.ttl",
    "ip.dsfield",
    "ip.len",
    "ip.hdr_len",
    "ip.id",
    "ip.flags.mf",
    "ip.frag_offset",
    "ipv6.src",
    "ipv6.dst",
    "ipv6.hlim",
    "ipv6.tclass",
    "ipv6.plen",
    "ipv6.fraghdr.offset",
    "ipv6.fraghdr.more",
    "ipv6.fraghdr.ident",
    "udp.srcport",
    "udp.dstport",
    "udp.length",
    "tcp.srcport",
    "tcp.dstport",
    "tcp.seq_raw",
    "tcp.ack_raw",
    "tcp.flags",
    "tcp.len",
    "icmp.type",
    "icmp.code",
    "icmpv6.type",
    "icmpv6.code",
    "arp.src.proto_ipv4",
    "arp.dst.proto_ipv4",
    "esp.spi",
    "esp.sequence",
    "vxlan.vni",
    "geneve.vni",
    "gre.key",
    "infiniband.lrh.vl",
    "infiniband.lrh.lver",
    "infiniband.lrh.sl",
    "infiniband.lrh.lnh",
    "infiniband.lrh.dlid",
    "infiniband.lrh.pktlen",
    "infiniband.lrh.slid",
    "infiniband.grh.ipver",
    "infiniband.grh.tclass",
    "infiniband.grh.flowlabel",
    "infiniband.grh.paylen",
    "infiniband.grh.nxthdr",
    "infiniband.grh.hoplmt",
    "infiniband.grh.sgid",
    "infiniband.grh.dgid",
    "infiniband.bth.opcode",
    "infiniband.bth.se",
    "infiniband.bth.m",
    "infiniband.bth.padcnt",
    "infiniband.bth.tver",
    "infiniband.bth.p_key",
    "infiniband.bth.destqp",
    "infiniband.bth.a",
    "infiniband.bth.psn",
    "infiniband.reth.va",
    "infiniband.reth.r_key",
    "infiniband.reth.dmalen",
    "infiniband.aeth.syndrome",
    "infiniband.aeth.msn",
    "infiniband.deth.q_key",
    "infiniband.deth.srcqp",
    "infiniband.atomiceth.swapdt",
    "infiniband.atomiceth.cmpdt",
    "infiniband.atomicacketh.origremdt",
    "infiniband.immdt",
    "infiniband.ieth",
    "infiniband.rdeth.eecnxt",
    "infiniband.invariant.crc",
    "infiniband.variant.crc",
    "infiniband.mad.mgmtclass",
    "infiniband.mad.method",
    "infiniband.mad.status",
    "infiniband.mad.transactionid",
    "infiniband.mad.attributeid",
    "infiniband.mad.attributemodifier",
];

fn is_watched(name: &str, link: Link) -> bool {
    // Behind an LRH tshark goes on into IPoIB, which our walk leaves to its caller.
    let is_ours = link != Link::InfiniBand || name.starts_with("infiniband.");
    is_ours && (WATCHED.contains(&name) || CM_WATCHED.contains(&name))
}

fn push(fields: &mut Fields, name: &str, value: impl ToString) {
    fields.entry(name.to_string()).or_default().push(value.to_string());
}

fn claim(fields: &mut Fields, bytes: &[u8], parsed: &Parsed, link: Link) {
    if link == Link::Ethernet {
        claim_ethernet(fields, parsed);
    }
    if link == Link::InfiniBand {
        claim_lrh(fields, bytes);
    }
    claim_network(fields, bytes, parsed);
    claim_transport(fields, bytes, parsed);
    if let Some(rdma) = &parsed.rdma {
        claim_rdma(fields, bytes, parsed, rdma);
    }
    if let Some(tunnel) = &parsed.tunnel {
        match tunnel.kind {
            TunnelKind::Vxlan => push(fields, "vxlan.vni", tunnel.id),
            TunnelKind::Geneve => push(fields, "geneve.vni", tunnel.id),
            TunnelKind::Gre if tunnel.id != 0 => push(fields, "gre.key", tunnel.id),
            TunnelKind::Gre | TunnelKind::Erspan => {}
        }
        let inner = parse_inner(bytes, parsed, tunnel, bytes.len() as u32);
        let inner_bytes = &bytes[usize::from(tunnel.inner_offset)..];
        claim(fields, inner_bytes, &inner, tunnel.inner_link);
    }
}

fn claim_ethernet(fields: &mut Fields, parsed: &Parsed) {
    let link = &parsed.link;
    push(fields, "eth.dst", link.destination);
    push(fields, "eth.src", link.source);
    let tags = &link.vlan_tci[..usize::from(link.vlan_count)];
    for tci in tags {
        push(fields, "vlan.id", tci & 0xfff);
        push(fields, "vlan.priority", tci >> 13);
    }
    if tags.is_empty() && !ethertype::is_length(link.ethertype) {
        push(fields, "eth.type", link.ethertype);
    }
}

fn claim_lrh(fields: &mut Fields, bytes: &[u8]) {
    let (lrh, _) = Lrh::ref_from_prefix(bytes).expect("an LRH");
    push(fields, "infiniband.lrh.vl", lrh.virtual_lane());
    push(fields, "infiniband.lrh.lver", lrh.version());
    push(fields, "infiniband.lrh.sl", lrh.service_level());
    push(fields, "infiniband.lrh.lnh", lrh.next_header() as u8);
    push(fields, "infiniband.lrh.dlid", lrh.destination);
    push(fields, "infiniband.lrh.pktlen", lrh.packet_len() / 4);
    push(fields, "infiniband.lrh.slid", lrh.source);
}

fn claim_network(fields: &mut Fields, bytes: &[u8], parsed: &Parsed) {
    let header = &bytes[usize::from(parsed.network_offset)..];
    match parsed.network {
        Network::Ipv4 => {
            let (ip, _) = Ipv4Header::ref_from_prefix(header).unwrap();
            let address = |mapped| Ipv4Addr::from(unmapped(mapped).expect("mapped IPv4"));
            push(fields, "ip.src", address(&parsed.source));
            push(fields, "ip.dst", address(&parsed.destination));
            push(fields, "ip.proto", ip.protocol);
            push(fields, "ip.ttl", parsed.hop_limit);
            push(fields, "ip.dsfield", parsed.traffic_class);
            push(fields, "ip.len", parsed.end as usize - usize::from(parsed.network_offset));
            push(fields, "ip.hdr_len", ip.header_len());
            push(fields, "ip.id", ip.id);
            push(fields, "ip.flags.mf", u8::from(parsed.fragment.is_some_and(|f| f.more)));
            push(fields, "ip.frag_offset", parsed.fragment.map_or(0, |f| f.offset / 8));
        }
        Network::Ipv6 => {
            let (ip, _) = Ipv6Header::ref_from_prefix(header).unwrap();
            push(fields, "ipv6.src", Ipv6Addr::from(parsed.source));
            push(fields, "ipv6.dst", Ipv6Addr::from(parsed.destination));
            push(fields, "ipv6.hlim", parsed.hop_limit);
            push(fields, "ipv6.tclass", parsed.traffic_class);
            push(fields, "ipv6.plen", ip.payload_len);
            if let Some(fragment) = parsed.fragment {
                push(fields, "ipv6.fraghdr.offset", fragment.offset / 8);
                push(fields, "ipv6.fraghdr.more", u8::from(fragment.more));
                push(fields, "ipv6.fraghdr.ident", fragment.id);
            }
        }
        Network::Grh => {
            let (grh, _) = Grh::ref_from_prefix(header).unwrap();
            push(fields, "infiniband.grh.ipver", grh.version());
            push(fields, "infiniband.grh.tclass", parsed.traffic_class);
            push(fields, "infiniband.grh.flowlabel", grh.flow_label());
            push(fields, "infiniband.grh.paylen", grh.payload_len);
            push(fields, "infiniband.grh.nxthdr", parsed.protocol);
            push(fields, "infiniband.grh.hoplmt", parsed.hop_limit);
            push(fields, "infiniband.grh.sgid", Ipv6Addr::from(parsed.source));
            push(fields, "infiniband.grh.dgid", Ipv6Addr::from(parsed.destination));
        }
        Network::Arp => {
            let address = |mapped| Ipv4Addr::from(unmapped(mapped).expect("mapped IPv4"));
            push(fields, "arp.src.proto_ipv4", address(&parsed.source));
            push(fields, "arp.dst.proto_ipv4", address(&parsed.destination));
        }
        Network::Lrh | Network::None => {}
    }
}

fn claim_transport(fields: &mut Fields, bytes: &[u8], parsed: &Parsed) {
    let header = &bytes[usize::from(parsed.transport_offset)..];
    let claim_udp = |fields: &mut Fields| {
        let (udp, _) = UdpHeader::ref_from_prefix(header).unwrap();
        push(fields, "udp.srcport", udp.source);
        push(fields, "udp.dstport", udp.destination);
        push(fields, "udp.length", udp.length);
    };
    match parsed.transport {
        Transport::Tcp { source, destination, sequence, acknowledgment, flags } => {
            push(fields, "tcp.srcport", source);
            push(fields, "tcp.dstport", destination);
            push(fields, "tcp.seq_raw", sequence);
            push(fields, "tcp.ack_raw", acknowledgment);
            push(fields, "tcp.flags", flags);
            push(fields, "tcp.len", parsed.payload(bytes).len());
        }
        Transport::Udp { source, destination } => {
            claim_udp(fields);
            assert_eq!(fields["udp.srcport"].last(), Some(&source.to_string()));
            assert_eq!(fields["udp.dstport"].last(), Some(&destination.to_string()));
        }
        Transport::Icmp { kind, code } => {
            let name = if parsed.network == Network::Ipv6 { "icmpv6" } else { "icmp" };
            push(fields, &format!("{name}.type"), kind);
            push(fields, &format!("{name}.code"), code);
        }
        Transport::Esp { spi, sequence, in_udp } => {
            if in_udp {
                claim_udp(fields);
            }
            push(fields, "esp.spi", spi);
            push(fields, "esp.sequence", sequence);
            let start = usize::from(parsed.payload_offset) - EspHeader::LEN;
            let (esp, _) = EspHeader::ref_from_prefix(&bytes[start..]).unwrap();
            assert_eq!((esp.spi.get(), esp.sequence.get()), (spi, sequence));
        }
        Transport::None => {}
    }
}

fn claim_rdma(fields: &mut Fields, bytes: &[u8], parsed: &Parsed, rdma: &Rdma) {
    push(fields, "infiniband.bth.opcode", rdma.opcode.0);
    push(fields, "infiniband.bth.se", rdma.flags >> 7);
    push(fields, "infiniband.bth.m", rdma.flags >> 6 & 1);
    push(fields, "infiniband.bth.padcnt", rdma.pad_count());
    push(fields, "infiniband.bth.tver", rdma.flags & 15);
    push(fields, "infiniband.bth.p_key", rdma.partition_key.0);
    push(fields, "infiniband.bth.destqp", rdma.destination_qp.value());
    push(fields, "infiniband.bth.a", u8::from(rdma.ack_request));
    push(fields, "infiniband.bth.psn", rdma.psn.value());
    let (bth, _) = Bth::ref_from_prefix(&bytes[usize::from(rdma.bth_offset)..]).unwrap();
    assert_eq!(
        (bth.opcode(), bth.psn(), bth.congestion()),
        (rdma.opcode, rdma.psn, rdma.congestion)
    );
    let is_vendors = matches!(
        rdma.opcode.service(),
        Service::CongestionNotification | Service::ExtendedReliableConnection | Service::Other
    );
    if is_vendors || has_misread_extensions(rdma) {
        return; // tshark 4.0 takes what follows for a vendor's.
    }
    claim_extensions(fields, bytes, rdma);
    if let Some(crc) = icrc::present(bytes, parsed) {
        push(fields, "infiniband.invariant.crc", u32::from_be_bytes(crc));
    }
    if rdma.encapsulation == Encapsulation::InfiniBand {
        let crc = icrc::variant_crc(&bytes[..parsed.end as usize]);
        push(fields, "infiniband.variant.crc", u16::from_be_bytes(crc));
    }
    if let Some((header, _)) = mad::mad(bytes, parsed) {
        push(fields, "infiniband.mad.mgmtclass", header.management_class);
        push(fields, "infiniband.mad.method", header.method);
        push(fields, "infiniband.mad.status", header.status);
        push(fields, "infiniband.mad.transactionid", header.transaction_id);
        push(fields, "infiniband.mad.attributeid", header.attribute_id);
        push(fields, "infiniband.mad.attributemodifier", header.attribute_modifier);
    }
    if let Some((_, message)) = cm::message(bytes, parsed) {
        claim_cm(fields, &message);
    }
}

fn claim_extensions(fields: &mut Fields, bytes: &[u8], rdma: &Rdma) {
    if let Some(reth) = ext::reth(bytes, rdma) {
        push(fields, "infiniband.reth.va", reth.virtual_address);
        push(fields, "infiniband.reth.r_key", reth.remote_key);
        push(fields, "infiniband.reth.dmalen", reth.dma_length);
    }
    if let Some(atomic) = ext::atomic_eth(bytes, rdma) {
        push(fields, "infiniband.reth.va", atomic.virtual_address);
        push(fields, "infiniband.reth.r_key", atomic.remote_key);
        push(fields, "infiniband.atomiceth.swapdt", atomic.swap_or_add);
        push(fields, "infiniband.atomiceth.cmpdt", atomic.compare);
    }
    if let Some(aeth) = ext::aeth(bytes, rdma) {
        push(fields, "infiniband.aeth.syndrome", aeth.syndrome_byte());
        push(fields, "infiniband.aeth.msn", aeth.message_sequence());
    }
    if let Some(deth) = ext::deth(bytes, rdma) {
        push(fields, "infiniband.deth.q_key", deth.queue_key);
        push(fields, "infiniband.deth.srcqp", deth.source_qp().value());
    }
    if let Some(atomic) = ext::atomic_ack_eth(bytes, rdma) {
        push(fields, "infiniband.atomicacketh.origremdt", atomic.original);
    }
    if let Some(rdeth) = ext::rdeth(bytes, rdma) {
        push(fields, "infiniband.rdeth.eecnxt", rdeth.ee_context());
    }
    let hex = |word: u32| word.to_be_bytes().map(|byte| format!("{byte:02x}")).join(":");
    if let Some(immediate) = ext::imm_dt(bytes, rdma) {
        push(fields, "infiniband.immdt", hex(immediate.data.get()));
    }
    if let Some(invalidate) = ext::ieth(bytes, rdma) {
        push(fields, "infiniband.ieth", hex(invalidate.remote_key.get()));
    }
}

const CM_WATCHED: &[&str] = &[
    "infiniband.cm.req",
    "infiniband.cm.req.serviceid",
    "infiniband.cm.req.localcaguid",
    "infiniband.cm.req.localqkey",
    "infiniband.cm.req.localqpn",
    "infiniband.cm.req.responderres",
    "infiniband.cm.req.initdepth",
    "infiniband.cm.req.transpsvctype",
    "infiniband.cm.req.startpsn",
    "infiniband.cm.req.retrcount",
    "infiniband.cm.req.pkey",
    "infiniband.cm.req.pppmtu",
    "infiniband.cm.req.rnrretrcount",
    "infiniband.cm.req.prim_locallid",
    "infiniband.cm.req.prim_remotelid",
    "infiniband.cm.req.prim_tfcclass",
    "infiniband.cm.req.prim_hoplim",
    "infiniband.cm.req.alt_locallid",
    "infiniband.cm.req.ip_cm.sport",
    "infiniband.cm.rep",
    "infiniband.cm.rep.remotecommid",
    "infiniband.cm.rep.localqkey",
    "infiniband.cm.rep.localqpn",
    "infiniband.cm.rep.startpsn",
    "infiniband.cm.rep.respres",
    "infiniband.cm.rep.initdepth",
    "infiniband.cm.rep.localcaguid",
    "infiniband.cm.rtu.localcommid",
    "infiniband.cm.rtu.remotecommid",
    "infiniband.cm.rej.localcommid",
    "infiniband.cm.rej.remotecommid",
    "infiniband.cm.rej.reason",
    "infiniband.cm.dreq.localcommid",
    "infiniband.cm.dreq.remotecommid",
    "infiniband.cm.req.remoteqpneecn",
    "infiniband.cm.drsp.localcommid",
    "infiniband.cm.drsp.remotecommid",
];

fn claim_cm(fields: &mut Fields, message: &Message<'_>) {
    match message {
        Message::Request(request) => claim_connect_request(fields, request),
        Message::Reply(reply) => {
            push(fields, "infiniband.cm.rep", reply.local_comm_id);
            push(fields, "infiniband.cm.rep.remotecommid", reply.remote_comm_id);
            push(fields, "infiniband.cm.rep.localqkey", reply.local_queue_key);
            push(fields, "infiniband.cm.rep.localqpn", reply.local_qpn().value());
            push(fields, "infiniband.cm.rep.startpsn", reply.starting_psn().value());
            push(fields, "infiniband.cm.rep.respres", reply.responder_resources);
            push(fields, "infiniband.cm.rep.initdepth", reply.initiator_depth);
            push(fields, "infiniband.cm.rep.localcaguid", reply.local_ca_guid);
        }
        Message::Ready(ready) => {
            push(fields, "infiniband.cm.rtu.localcommid", ready.local_comm_id);
            push(fields, "infiniband.cm.rtu.remotecommid", ready.remote_comm_id);
        }
        Message::Reject(reject) => {
            push(fields, "infiniband.cm.rej.localcommid", reject.local_comm_id);
            push(fields, "infiniband.cm.rej.remotecommid", reject.remote_comm_id);
            push(fields, "infiniband.cm.rej.reason", reject.reason);
        }
        Message::DisconnectRequest(request) => {
            push(fields, "infiniband.cm.dreq.localcommid", request.local_comm_id);
            push(fields, "infiniband.cm.dreq.remotecommid", request.remote_comm_id);
            push(fields, "infiniband.cm.req.remoteqpneecn", request.remote_qpn().value());
        }
        Message::DisconnectReply(reply) => {
            push(fields, "infiniband.cm.drsp.localcommid", reply.local_comm_id);
            push(fields, "infiniband.cm.drsp.remotecommid", reply.remote_comm_id);
        }
        // tshark 4.0 does not dissect these.
        Message::Receipt(_)
        | Message::ServiceRequest(_)
        | Message::ServiceReply(_)
        | Message::LoadAlternatePath(_)
        | Message::AlternatePathResponse(_) => {}
    }
}

fn claim_connect_request(fields: &mut Fields, request: &ConnectRequest) {
    push(fields, "infiniband.cm.req", request.local_comm_id);
    push(fields, "infiniband.cm.req.serviceid", request.service_id);
    push(fields, "infiniband.cm.req.localcaguid", request.local_ca_guid);
    push(fields, "infiniband.cm.req.localqkey", request.local_queue_key);
    push(fields, "infiniband.cm.req.localqpn", request.local_qpn().value());
    push(fields, "infiniband.cm.req.responderres", request.responder_resources());
    push(fields, "infiniband.cm.req.initdepth", request.initiator_depth());
    push(fields, "infiniband.cm.req.transpsvctype", request.transport_service());
    push(fields, "infiniband.cm.req.startpsn", request.starting_psn().value());
    push(fields, "infiniband.cm.req.retrcount", request.retry_count());
    push(fields, "infiniband.cm.req.pkey", request.partition_key().0);
    push(fields, "infiniband.cm.req.pppmtu", request.path_mtu().map_or(0, |mtu| mtu as u8));
    push(fields, "infiniband.cm.req.rnrretrcount", request.rnr_retry_count());
    push(fields, "infiniband.cm.req.prim_locallid", request.primary.local_lid);
    push(fields, "infiniband.cm.req.prim_remotelid", request.primary.remote_lid);
    push(fields, "infiniband.cm.req.prim_tfcclass", request.primary.traffic_class);
    push(fields, "infiniband.cm.req.prim_hoplim", request.primary.hop_limit);
    push(fields, "infiniband.cm.req.alt_locallid", request.alternate.local_lid);
    if let Some(addresses) = request.ip_addresses() {
        push(fields, "infiniband.cm.req.ip_cm.sport", addresses.source_port);
    }
}
