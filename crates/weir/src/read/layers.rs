//! A captured packet to the packets in it: fragments to whole ones, tunnels to what they carry.
//!
//! ```text
//!   frame -> walk -+-> fragment  --whole?--> walk again
//!                  +-> tunnel    --inner---> walk again        16 layers at most
//!                  `-> the packet itself, last
//! ```

use std::collections::BTreeMap;

use weir_detect::Vlans;
use weir_detect::decode::{self, Event};
use weir_detect::fragments::{Fragments, Policy};
use weir_detect::hosts::Hosts;
use weir_detect::tunnels::TunnelPorts;
use weir_wire::frame::{Link, Time};
use weir_wire::parse::{Network, Parsed, Transport, TunnelKind, parse};

/// What is odd about one packet and told, at most, as Suricata has it.
const EVENTS_MAX: usize = 15;
/// Layers of one packet, at most; the rest is not looked at, which is an event.
const LAYERS_MAX: usize = 16;

const GRE: u8 = 47;
const SCTP: u8 = 132;

/// A packet, and where it was found.
pub struct Layer<'a> {
    /// From its link header on.
    pub bytes: &'a [u8],
    /// What `bytes` begin with.
    pub link: Link,
    /// What the walk found.
    pub parsed: Parsed,
    /// The VLANs that it is in.
    pub vlans: Vlans,
    /// What is odd about it.
    pub events: Vec<Event>,
    /// As EVE's `pkt_src` spells where it comes from.
    pub source: &'static str,
    /// The packet that carries it, where one does.
    pub outer: Option<&'a Layer<'a>>,
    /// Layers around it.
    pub depth: usize,
}

impl Layer<'_> {
    /// Whether it was put together from fragments.
    pub fn is_rebuilt(&self) -> bool {
        self.outer.is_some_and(|it| it.parsed.fragment.is_some())
    }

    /// Whether a flow is kept of it: it is whole, and RDMA or of a transport that Suricata keeps
    /// flows of: GRE is of none.
    pub fn has_flow(&self) -> bool {
        let parsed = &self.parsed;
        let is_ip = matches!(parsed.network, Network::Ipv4 | Network::Ipv6);
        let is_whole = parsed.fragment.is_none() && parsed.fault.is_none();
        let is_kept = matches!(parsed.protocol, 1 | 4 | 6 | 17 | 41 | 50 | 58 | 132);
        (parsed.rdma.is_some() || (is_ip && is_kept)) && is_whole
    }

    /// Whether it says that another packet did not arrive: it may be of that one's flow, and
    /// begins none.
    pub fn is_complaint(&self) -> bool {
        let is_v4 = self.parsed.network == Network::Ipv4;
        is_v4 && matches!(self.parsed.transport, Transport::Icmp { kind: 3 | 4 | 5 | 11 | 12, .. })
    }
}

/// Takes captured packets apart.
pub struct Layers {
    fragments: Fragments,
    /// What was seen, by the names of EVE's `stats.decoder`.
    counts: Vec<(&'static str, u64)>,
    /// Bytes of the largest packet.
    largest: u64,
    /// Events, by their whole names.
    events: Vec<(&'static str, u64)>,
    /// Where datagrams carry others.
    tunnels: TunnelPorts,
    layers_max: usize,
}

/// What [`Layers::take`] gives each packet to, the innermost first.
type Take<'t> = &'t mut dyn FnMut(&Layer<'_>);

impl Layers {
    /// One that puts fragments together as systems of this kind do.
    pub fn new(policy: Policy, seed: u64) -> Self {
        let fragments = Fragments::new(policy, seed);
        let (counts, events, tunnels) = (Vec::new(), Vec::new(), TunnelPorts::default());
        Self { fragments, counts, largest: 0, events, tunnels, layers_max: LAYERS_MAX }
    }

    /// Looks into datagrams at such ports, and at no layers beyond so many.
    pub fn open(&mut self, tunnels: TunnelPorts, layers_max: Option<usize>) {
        self.tunnels = tunnels;
        self.layers_max = layers_max.map_or(LAYERS_MAX, |it| it.min(LAYERS_MAX));
    }

    /// Fragments count though the checksum of their IPv4 header is wrong.
    pub fn take_wrong_headers(&mut self) {
        self.fragments.take_wrong_headers();
    }

    /// What the hosts are that fragments are for.
    pub fn set_hosts(&mut self, hosts: Hosts) {
        self.fragments.set_hosts(hosts);
    }

    /// What was seen, by the names of EVE's `stats.decoder`; events of streams by their own.
    pub fn counters(&self) -> BTreeMap<String, u64> {
        let counts = self.counts.iter().map(|(name, count)| ((*name).to_owned(), *count));
        let events = self.events.iter().map(|(name, count)| {
            (format!("event.{}", name.trim_start_matches("decoder.")), *count)
        });
        let largest = [("max_pkt_size".to_owned(), self.largest)];
        counts.chain(events).chain(largest).collect()
    }

    /// Gives `take` the packets that a frame holds.
    pub fn take(&mut self, now: Time, bytes: &[u8], link: Link, original_len: u32, take: Take<'_>) {
        self.count("pkts");
        add(&mut self.counts, "bytes", bytes.len() as u64);
        self.largest = self.largest.max(bytes.len() as u64);
        self.layer(now, bytes, (link, original_len), "wire/pcap", None, take);
    }

    fn count(&mut self, name: &'static str) {
        add(&mut self.counts, name, 1);
    }

    fn layer(
        &mut self,
        now: Time,
        bytes: &[u8],
        (link, original_len): (Link, u32),
        source: &'static str,
        outer: Option<&Layer<'_>>,
        take: Take<'_>,
    ) {
        let depth = outer.map_or(0, |it| it.depth + 1);
        let found = find(bytes, link, original_len);
        let mut events = decode::look(bytes, link);
        events.truncate(EVENTS_MAX);
        let Found { parsed, vlans, labels, tags } = found;
        // Who only reads opens no ESP.
        let parsed = parsed.datagram(bytes).unwrap_or(parsed);
        tags.into_iter().for_each(|it| self.count(it));
        let mut layer = Layer { bytes, link, parsed, vlans, events, source, outer, depth };
        let is_too_deep = depth + labels > self.layers_max;
        if is_too_deep {
            layer.events.push(Event::TooManyLayers);
        }
        self.count_layer(&layer);
        if !is_too_deep {
            self.inside(now, &mut layer, take);
        }
        for event in &layer.events {
            add(&mut self.events, event.name(), 1);
            match event {
                Event::TooManyLayers => self.count("too_many_layers"),
                Event::EthernetUnknownType => self.count("unknown_ethertype"),
                _ => {}
            }
        }
        take(&layer);
    }

    /// What the packet carries, and what it is a piece of.
    fn inside(&mut self, now: Time, layer: &mut Layer<'_>, take: Take<'_>) {
        let Layer { bytes, link, parsed, .. } = *layer;
        if parsed.fragment.is_some() {
            let taken = self.fragments.take(now, bytes, &parsed);
            let names = match parsed.network {
                Network::Ipv4 => ["defrag.ipv4.fragments", "defrag.ipv4.reassembled"],
                _ => ["defrag.ipv6.fragments", "defrag.ipv6.reassembled"],
            };
            self.count(names[0]);
            layer.events.extend(taken.events);
            if let Some(whole) = taken.whole {
                self.count(names[1]);
                let length = whole.len() as u32;
                self.layer(now, &whole, (link, length), "defrag", Some(layer), take);
            }
            return;
        }
        if parsed.fault.is_some() && parsed.tunnel.is_none() {
            return;
        }
        let Some((start, link, source)) = self.tunnels.inner(bytes, &parsed) else { return };
        let end = parsed.end as usize;
        if let Some(inner) = bytes.get(start..end).filter(|it| !it.is_empty()) {
            self.layer(now, inner, (link, inner.len() as u32), source, Some(layer), take);
        }
    }

    fn count_layer(&mut self, layer: &Layer<'_>) {
        let parsed = &layer.parsed;
        // What a packet carries, or is put together to, has no link of its own but a frame.
        let is_own = layer.source == "wire/pcap";
        if is_own || (layer.link == Link::Ethernet && layer.source != "defrag") {
            self.count_link(layer);
        }
        match parsed.network {
            Network::Ipv4 => self.count("ipv4"),
            Network::Ipv6 => self.count("ipv6"),
            Network::Arp => self.count("arp"),
            _ => {}
        }
        if parsed.fault.is_some() {
            self.count("invalid");
        }
        match parsed.transport {
            _ if parsed.fragment.is_some() => {}
            Transport::Tcp { .. } => self.count("tcp"),
            Transport::Udp { .. } => self.count("udp"),
            Transport::Icmp { .. } if parsed.network == Network::Ipv4 => self.count("icmpv4"),
            Transport::Icmp { .. } => self.count("icmpv6"),
            Transport::Esp { .. } => self.count("esp"),
            Transport::None if parsed.protocol == SCTP => self.count("sctp"),
            Transport::None => {}
        }
        match parsed.tunnel.map(|it| it.kind) {
            Some(TunnelKind::Erspan) => self.count("erspan"),
            _ if parsed.protocol == GRE => self.count("gre"),
            _ => {}
        }
        match (layer.source, parsed.network) {
            ("vxlan encapsulation", _) => self.count("vxlan"),
            ("geneve encapsulation", _) => self.count("geneve"),
            ("teredo tunnel", _) => self.count("teredo"),
            ("ipv4 tunnel", Network::Ipv4) => self.count("ipv4_in_ipv4"),
            ("ipv4 tunnel", Network::Ipv6) => self.count("ipv6_in_ipv4"),
            ("ipv6 tunnel", Network::Ipv4) => self.count("ipv4_in_ipv6"),
            ("ipv6 tunnel", Network::Ipv6) => self.count("ipv6_in_ipv6"),
            _ => {}
        }
    }

    fn count_link(&mut self, layer: &Layer<'_>) {
        self.count(match layer.link {
            Link::Ethernet => "ethernet",
            Link::Ip => "raw",
            Link::LinuxSll => "sll",
            Link::LinuxSll2 => "sll2",
            Link::Ppp => "ppp",
            Link::CiscoHdlc => "chdlc",
            Link::Loopback => "null",
            Link::InfiniBand => "infiniband",
        });
        // Each tag is one more, by its place.
        let names = ["vlan", "vlan_qinq", "vlan_qinqinq"];
        names.into_iter().take(layer.vlans.ids().len()).for_each(|it| self.count(it));
    }
}

/// Names are few: a look along a list costs less than a map.
fn add(counts: &mut Vec<(&'static str, u64)>, name: &'static str, count: u64) {
    match counts.iter_mut().find(|it| it.0 == name) {
        Some(known) => known.1 += count,
        None => counts.push((name, count)),
    }
}

struct Found {
    parsed: Parsed,
    vlans: Vlans,
    /// Labels that were passed over.
    labels: usize,
    /// Tags and sessions that were passed over, by the names of counters.
    tags: Vec<&'static str>,
}

/// The walk, and a way to what it does not enter: a third VLAN, and what stands behind labels,
/// other tags and in sessions of PPPoE.
fn find(bytes: &[u8], link: Link, original_len: u32) -> Found {
    let parsed = parse(bytes, link, original_len);
    let vlans = Vlans::of(&parsed);
    let mut found = Found { parsed, vlans, labels: 0, tags: Vec::new() };
    if link != Link::Ethernet || parsed.network != Network::None {
        return found;
    }
    let mut at = 12;
    let mut vlans = Vlans::default();
    for _ in 0..4 * LAYERS_MAX {
        let Some([high, low, rest @ ..]) = bytes.get(at..) else { return found };
        let inside = match (u16::from_be_bytes([*high, *low]), rest) {
            (0x8100 | 0x88a8 | 0x9100, [high, low, ..]) => {
                vlans.push(u16::from_be_bytes([*high, *low]));
                at += 4;
                continue;
            }
            // A tag, and what it stands before: VN-tag, a service's tag with the frame behind it
            // (IEEE 802.1ah), FabricPath.
            (kind @ (0x8926 | 0x88e7 | 0x8903), _) => {
                let (name, length) = match kind {
                    0x8926 => ("vntag", 6),
                    0x88e7 => ("ieee8021ah", 18),
                    _ => ("fabricpath", 16),
                };
                found.tags.push(name);
                at += length;
                continue;
            }
            (0x8864, _) => match behind_pppoe(rest) {
                Some(header) => {
                    found.tags.push("pppoe");
                    (at + 2 + header, Link::Ip)
                }
                None => return found,
            },
            (0x0800 | 0x86dd, _) => (at + 2, Link::Ip),
            (0x8847 | 0x8848, _) => match behind_labels(bytes, at + 2, &mut found.labels) {
                // A frame behind labels: on with its type.
                Some((frame, Link::Ethernet)) => {
                    found.tags.extend(["mpls", "ethernet"]);
                    at = frame + 12;
                    continue;
                }
                Some(inside) => {
                    found.tags.push("mpls");
                    inside
                }
                None => return found,
            },
            _ => return found,
        };
        let (start, link) = inside;
        let Some(inner) = bytes.get(start..) else { return found };
        let before = found.parsed.link;
        let original_len = original_len.saturating_sub(start as u32);
        found.parsed = shifted(parse(inner, link, original_len), start);
        found.parsed.link = before;
        found.vlans = vlans;
        return found;
    }
    found
}

/// Where the last label of MPLS ends, and what follows it (RFC 3032, RFC 4385).
fn behind_labels(bytes: &[u8], mut at: usize, labels: &mut usize) -> Option<(usize, Link)> {
    loop {
        let label: &[u8; 4] = bytes.get(at..)?.first_chunk()?;
        *labels += 1;
        at += 4;
        if label[2] & 1 == 0 && *labels <= LAYERS_MAX {
            continue;
        }
        return match bytes.get(at)? >> 4 {
            4 | 6 => Some((at, Link::Ip)),
            // A pseudowire's control word.
            0 => Some((at + 4, Link::Ethernet)),
            _ => Some((at, Link::Ethernet)),
        };
    }
}

/// How long the headers of PPPoE and PPP before an IP packet are (RFC 2516 s4, RFC 1661 s2): PPP's
/// protocol has a byte, or two.
fn behind_pppoe(session: &[u8]) -> Option<usize> {
    match session.get(6..8)? {
        [0x00, 0x21 | 0x57] => Some(8),
        [0x21 | 0x57, _] => Some(7),
        _ => None,
    }
}

/// Offsets that count from `by` bytes before.
fn shifted(mut parsed: Parsed, by: usize) -> Parsed {
    let short = by as u16;
    for offset in
        [&mut parsed.network_offset, &mut parsed.transport_offset, &mut parsed.payload_offset]
    {
        *offset = offset.saturating_add(short);
    }
    parsed.end += by as u32;
    if let Some(tunnel) = &mut parsed.tunnel {
        tunnel.inner_offset = tunnel.inner_offset.saturating_add(short);
    }
    if let Some(rdma) = &mut parsed.rdma {
        rdma.bth_offset = rdma.bth_offset.saturating_add(short);
        rdma.payload_offset = rdma.payload_offset.saturating_add(short);
        rdma.icrc_offset = rdma.icrc_offset.map(|it| it.saturating_add(short));
    }
    parsed
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A frame of this type and what follows it.
    fn frame(behind: &[&[u8]]) -> Vec<u8> {
        let mut frame = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2];
        behind.iter().for_each(|it| frame.extend_from_slice(it));
        frame
    }

    #[test]
    fn packets_behind_tags_and_in_sessions_are_found() {
        let mut udp = vec![0x45, 0, 0, 28, 0, 1, 0, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2];
        udp.extend([0, 7, 0, 9, 0, 8, 0, 0]);
        let session = [0x88, 0x64, 0x11, 0, 0, 1, 0, 30];
        let service = [&[0x88, 0xe7, 0, 0, 0, 1][..], &[2; 12]].concat();
        let cases: [(&[&[u8]], &[&str]); 5] = [
            (&[&session, &[0, 0x21], &udp], &["pppoe"]),
            (&[&session, &[0x21], &udp], &["pppoe"]),
            (&[&[0x89, 0x26, 0, 1, 0, 2, 8, 0], &udp], &["vntag"]),
            (&[&[0x89, 0x26, 0, 1, 0, 2, 0x81, 0, 0, 7, 8, 0], &udp], &["vntag"]),
            (&[&service, &[8, 0], &udp], &["ieee8021ah"]),
        ];
        for (behind, tags) in cases {
            let bytes = frame(behind);
            let found = find(&bytes, Link::Ethernet, bytes.len() as u32);
            assert_eq!(found.tags, tags);
            assert_eq!(found.parsed.transport, Transport::Udp { source: 7, destination: 9 });
            assert_eq!(usize::from(found.parsed.network_offset), bytes.len() - udp.len());
        }
        let opening = frame(&[&session, &[0xc0, 0x21, 1, 1, 0, 4]]);
        let found = find(&opening, Link::Ethernet, opening.len() as u32);
        assert_eq!((found.parsed.network, found.tags.len()), (Network::None, 0));
    }
}
