//! A captured packet to the packets in it: fragments to whole ones, tunnels to what they carry.
//!
//! ```text
//!   frame -> walk -+-> fragment  --whole?--> walk again
//!                  +-> tunnel    --inner---> walk again        16 layers at most
//!                  `-> the packet itself, last
//! ```

use std::collections::BTreeMap;

use weir_detect::decode::{self, Event};
use weir_detect::fragments::{Fragments, Policy};
use weir_detect::hosts::Hosts;
use weir_detect::tags::{self, Tagged};
use weir_detect::tunnels::{self, TunnelPorts};
use weir_detect::{Decoded, Timeouts, Vlans};
use weir_wire::frame::{Link, Time};
use weir_wire::parse::{Network, Parsed, Transport, TunnelKind};

use super::alike;

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
    /// Rules look at no payload of it: it carries a packet that they look at.
    pub is_carrier: bool,
    /// Where what rules see of it begins and ends, where that is not as it was parsed.
    pub payload: Option<[usize; 2]>,
}

impl Layer<'_> {
    /// What it says, as rules see it.
    pub fn payload(&self) -> &[u8] {
        let Self { parsed, bytes, .. } = self;
        match self.payload {
            Some([from, to]) => bytes.get(from..to).unwrap_or_default(),
            None if parsed.rdma.is_some() => parsed.payload(bytes),
            None => weir_detect::said(parsed, bytes),
        }
    }

    /// What rules are told of it.
    pub fn decoded(&self) -> Decoded<'_> {
        let Self { is_carrier, payload, .. } = *self;
        Decoded { is_carrier, payload, ..Decoded::new(self.vlans, &self.events) }
    }

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
        let is_kept = match parsed.network {
            Network::Ipv4 => matches!(parsed.protocol, 1 | 4 | 6 | 17 | 41 | 50 | 132),
            _ => matches!(parsed.protocol, 4 | 6 | 17 | 41 | 50 | 58 | 132),
        };
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
    /// Whether packets are taken apart no further than Suricata does.
    knows_no_more: bool,
}

/// What [`Layers::take`] gives each packet to, the innermost first.
type Take<'t> = &'t mut dyn FnMut(&Layer<'_>);

impl Layers {
    /// One that puts fragments together as systems of this kind do.
    pub fn new(policy: Policy, seed: u64) -> Self {
        let fragments = Fragments::new(policy, seed);
        let (counts, events, tunnels) = (Vec::new(), Vec::new(), TunnelPorts::default());
        let (largest, layers_max, knows_no_more) = (0, LAYERS_MAX, false);
        Self { fragments, counts, largest, events, tunnels, layers_max, knows_no_more }
    }

    /// Looks into datagrams at such ports, and at no layers beyond so many.
    pub fn open(&mut self, tunnels: TunnelPorts, layers_max: Option<usize>) {
        self.tunnels = tunnels;
        self.layers_max = layers_max.map_or(LAYERS_MAX, |it| it.min(LAYERS_MAX));
    }

    /// Packets are taken apart no further than Suricata does.
    pub fn know_no_more(&mut self) {
        self.knows_no_more = true;
        self.fragments.believe_ends();
    }

    /// Fragments count though the checksum of their IPv4 header is wrong.
    pub fn take_wrong_headers(&mut self) {
        self.fragments.take_wrong_headers();
    }

    /// How long fragments wait, if not as for their receiver.
    pub fn wait(&mut self, timeouts: &Timeouts) {
        if let Some(seconds) = timeouts.fragments {
            self.fragments.wait_since_last(seconds.saturating_mul(1_000_000_000));
        }
    }

    /// What the hosts are that fragments are for.
    pub fn set_hosts(&mut self, hosts: Hosts) {
        self.fragments.set_hosts(hosts);
    }

    /// What was seen, by the names of EVE's `stats.decoder`; events of streams by their own.
    pub fn counters(&self) -> BTreeMap<String, u64> {
        let counts = self.counts.iter().map(|(name, count)| ((*name).to_owned(), *count));
        // An event of no layer is counted by its own name.
        let events = self.events.iter().filter_map(|(name, count)| {
            let name = name.trim_start_matches("decoder.");
            name.contains('.').then(|| (format!("event.{name}"), *count))
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

    /// Gives `take` the packets of a layer; of one that Suricata does not look at any more, by how
    /// many layers it is too deep.
    fn layer(
        &mut self,
        now: Time,
        bytes: &[u8],
        (link, original_len): (Link, u32),
        source: &'static str,
        outer: Option<&Layer<'_>>,
        take: Take<'_>,
    ) -> usize {
        let depth = outer.map_or(0, |it| it.depth + 1);
        let found = tags::look_behind(bytes, link, original_len);
        let mut events = decode::look(bytes, link);
        events.truncate(EVENTS_MAX);
        let Tagged { parsed, vlans, labels, tags } = found;
        // Who only reads opens no ESP.
        let parsed = parsed.datagram(bytes).unwrap_or(parsed);
        let (is_carrier, payload) = (false, None);
        let mut layer =
            Layer { bytes, link, parsed, vlans, events, source, outer, depth, is_carrier, payload };
        let layers =
            if self.knows_no_more { alike::layers(&layer, labels) } else { depth + labels };
        let beyond = layers.saturating_sub(self.layers_max);
        let is_too_deep = beyond > 0;
        if is_too_deep && self.knows_no_more {
            if outer.is_some() {
                return beyond;
            }
            layer.events.clear();
        }
        tags.into_iter().for_each(|it| self.count(it));
        if is_too_deep {
            layer.events.push(Event::TooManyLayers);
        }
        self.count_layer(&layer);
        if self.knows_no_more {
            alike::know_no_more(&mut layer);
        }
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
        0
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
        if self.knows_no_more && alike::is_closed(layer, start, source) {
            return;
        }
        let end = tunnels::inner_end(&parsed);
        if let Some(inner) = bytes.get(start..end).filter(|it| !it.is_empty()) {
            layer.is_carrier =
                self.knows_no_more && alike::is_carrier(&parsed, inner, link, source);
            let length = inner.len() as u32;
            let beyond = self.layer(now, inner, (link, length), source, Some(layer), take);
            // As by Suricata, which says nothing where the first header is too deep.
            if beyond > 1 {
                layer.events.push(Event::TooManyLayers);
            }
        }
    }

    fn count_layer(&mut self, layer: &Layer<'_>) {
        let parsed = &layer.parsed;
        // What a packet carries, or is put together to, has no link of its own but a frame's.
        let is_own = layer.source == "wire/pcap";
        let has_link = matches!(layer.link, Link::Ethernet | Link::Ppp);
        if is_own || (has_link && layer.source != "defrag") {
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
            ("ipoib encapsulation", _) => self.count("ipoib"),
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
            Link::Ipoib => "ipoib",
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
