//! Who has the MAC address of a peer, or of the next hop to it: ARP (RFC 826) and neighbour
//! solicitation (RFC 4861 s7.2) of the gateway's own, and learning from their answers.
//!
//! The table holds the policy's hops and no more, so a flood of answers cannot grow it. Answers
//! count only for addresses that we ask for. The gateway's kernel answers what others ask (the
//! `punt` verdict); in here we only ask.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use weir_wire::checksum;
use weir_wire::frame::Time;
use weir_wire::parse::{MacAddress, Network, Parsed, Transport};

use crate::policy::{OwnAddress, Policy};

/// Between two questions while nobody answers.
const RETRY_NS: u64 = 500_000_000;
/// Between two questions once somebody answered: a moved peer is found within this time.
const REFRESH_NS: u64 = 20_000_000_000;
/// Hops beside the policy's: of peers that moved, and of those that ask for a handshake.
const FOLLOWED_MAX: usize = 1024;
/// An answer older than this is no longer used.
const STALE_NS: u64 = 90_000_000_000;

const ETHERTYPE_ARP: u16 = 0x0806;
const ETHERTYPE_IPV4: u16 = 0x0800;
const ETHERTYPE_IPV6: u16 = 0x86dd;
const ICMPV6_SOLICITATION: u8 = 135;
const ICMPV6_ADVERTISEMENT: u8 = 136;

/// The longest question: Ethernet, one VLAN tag, IPv6, solicitation with one option.
pub const QUESTION_BYTES_MAX: usize = 14 + 4 + 40 + 32;

#[derive(Debug)]
struct Entry {
    hop: IpAddr,
    source: IpAddr,
    mac: Option<MacAddress>,
    answered: Time,
    asked: Option<Time>,
    /// Peers of the policy that it leads to; 0: it was followed.
    peers: u32,
}

/// The hops of one policy.
#[derive(Debug, Default)]
pub struct Neighbours {
    own: OwnAddress,
    entries: Vec<Entry>,
    /// Indices into `entries`.
    by_hop: HashMap<IpAddr, u32>,
    /// Entries in front that the policy names.
    configured: usize,
    /// The next of those behind to leave.
    leaving: usize,
    /// Where the search for questions goes on.
    cursor: usize,
    /// Counts what changed.
    version: u64,
}

impl Neighbours {
    /// The hops that `policy` needs, keeping what `previous` knows of them.
    pub fn new(policy: &Policy, previous: &Neighbours) -> Self {
        let version = previous.version + 1;
        let Some(own) = &policy.own else { return Self { version, ..Self::default() } };
        let mut table = Self { own: own.clone(), version, ..Self::default() };
        for endpoint in policy.peers.iter().filter_map(|peer| peer.endpoint) {
            let hop = own.hop_for(endpoint);
            let Some(source) = own.source_for(hop) else { continue };
            if let Some(index) = table.by_hop.get(&hop) {
                table.entries[*index as usize].peers += 1;
                continue;
            }
            let known = previous.entry(hop);
            table.by_hop.insert(hop, table.entries.len() as u32);
            table.entries.push(Entry {
                hop,
                source,
                mac: known.and_then(|entry| entry.mac),
                answered: known.map_or(Time::default(), |entry| entry.answered),
                asked: None,
                peers: 1,
            });
        }
        table.configured = table.entries.len();
        table
    }

    /// Asks for the hop to the endpoint of one more peer of the policy.
    pub(crate) fn add(&mut self, endpoint: IpAddr) {
        let hop = self.own.hop_for(endpoint);
        let Some(source) = self.own.source_for(hop) else { return };
        let found = self.by_hop.get(&hop).map(|it| *it as usize);
        let at = found.unwrap_or(self.entries.len());
        if found.is_none() {
            let (mac, answered) = (None, Time::default());
            self.entries.push(Entry { hop, source, mac, answered, asked: None, peers: 0 });
            self.by_hop.insert(hop, at as u32);
            self.version += 1;
        }
        self.entries[at].peers += 1;
        if at >= self.configured {
            self.swap(at, self.configured);
            self.configured += 1;
        }
    }

    /// One peer of the policy that is reached at `endpoint` is gone; with the last of a hop, so is
    /// the hop.
    pub(crate) fn remove(&mut self, endpoint: IpAddr) {
        let hop = self.own.hop_for(endpoint);
        let Some(at) = self.by_hop.get(&hop).map(|it| *it as usize) else { return };
        let entry = &mut self.entries[at];
        entry.peers = entry.peers.saturating_sub(1);
        if entry.peers > 0 || at >= self.configured {
            return;
        }
        self.configured -= 1;
        self.swap(at, self.configured);
        let last = self.entries.len() - 1;
        self.swap(self.configured, last);
        self.entries.pop();
        self.cursor = self.cursor.min(self.entries.len());
        self.by_hop.remove(&hop);
        self.version += 1;
    }

    fn swap(&mut self, a: usize, b: usize) {
        self.entries.swap(a, b);
        for place in [a, b] {
            self.by_hop.insert(self.entries[place].hop, place as u32);
        }
    }

    /// Asks for the hop to `endpoint` from now on, and believes `hint` until somebody answers; at
    /// the table's bound, the oldest that was added so leaves.
    pub fn follow(&mut self, endpoint: IpAddr, hint: Option<MacAddress>, now: Time) {
        let hop = self.own.hop_for(endpoint);
        let Some(source) = self.own.source_for(hop) else { return };
        let hint = hint.filter(|mac| mac.0[0] & 1 == 0 && *mac != MacAddress::default());
        // Old enough to be asked for at once, young enough to serve.
        let answered = Time(now.0.saturating_sub(REFRESH_NS));
        if let Some(index) = self.by_hop.get(&hop) {
            let entry = &mut self.entries[*index as usize];
            if entry.mac.is_none() && hint.is_some() {
                (entry.mac, entry.answered) = (hint, answered);
                self.version += 1;
            }
            return;
        }
        let new = Entry { hop, source, mac: hint, answered, asked: None, peers: 0 };
        self.version += 1;
        if self.entries.len() < self.configured + FOLLOWED_MAX {
            self.by_hop.insert(hop, self.entries.len() as u32);
            self.entries.push(new);
            return;
        }
        let index = self.configured + self.leaving;
        self.leaving = (self.leaving + 1) % FOLLOWED_MAX;
        self.by_hop.insert(hop, index as u32);
        let gone = std::mem::replace(&mut self.entries[index], new);
        self.by_hop.remove(&gone.hop);
    }

    /// Grows whenever a MAC address that [`Neighbours::mac_for`] tells may have changed.
    pub fn version(&self) -> u64 {
        self.version
    }

    fn entry(&self, hop: IpAddr) -> Option<&Entry> {
        self.by_hop.get(&hop).map(|index| &self.entries[*index as usize])
    }

    /// The MAC address to send to for `endpoint`; `None` while nobody has answered.
    pub fn mac_for(&self, endpoint: IpAddr, now: Time) -> Option<MacAddress> {
        let hop = self.own.hop_for(endpoint);
        let entry = self.entry(hop)?;
        entry.mac.filter(|_| now.since_ns(entry.answered) < STALE_NS)
    }

    /// Takes in an answer (ARP reply or request from a hop, neighbour advertisement). Returns
    /// whether it told of a hop of ours.
    pub fn learn(&mut self, parsed: &Parsed, bytes: &[u8], now: Time) -> bool {
        claim(parsed, bytes).is_some_and(|(address, mac)| self.note(address, mac, now))
    }

    /// Takes in where `address` is, as [`Neighbours::learn`].
    pub(crate) fn note(&mut self, address: IpAddr, mac: MacAddress, now: Time) -> bool {
        let Some(index) = self.by_hop.get(&address) else { return false };
        let entry = &mut self.entries[*index as usize];
        if mac.0[0] & 1 == 1 || mac == MacAddress::default() {
            return false;
        }
        let is_new = entry.mac != Some(mac) || now.since_ns(entry.answered) >= STALE_NS;
        entry.mac = Some(mac);
        entry.answered = now;
        self.version += u64::from(is_new);
        true
    }

    /// Writes the next question that is due into `buffer` and returns its length; call again until
    /// `None`.
    pub fn question(&mut self, now: Time, buffer: &mut [u8; QUESTION_BYTES_MAX]) -> Option<usize> {
        let found = self.entries[self.cursor..].iter_mut().position(|entry| {
            let age = now.since_ns(entry.answered);
            if entry.mac.is_some() && age >= STALE_NS {
                entry.mac = None;
                self.version += 1;
            }
            let fresh = entry.mac.is_some() && age < REFRESH_NS;
            let waiting = entry.asked.is_some_and(|asked| now.since_ns(asked) < RETRY_NS);
            !fresh && !waiting
        });
        let Some(index) = found.map(|it| it + self.cursor) else {
            self.cursor = 0;
            return None;
        };
        self.cursor = index + 1;
        let entry = &mut self.entries[index];
        entry.asked = Some(now);
        let len = match (entry.source, entry.hop) {
            (IpAddr::V4(source), IpAddr::V4(hop)) => arp_request(&self.own, source, hop, buffer),
            (IpAddr::V6(source), IpAddr::V6(hop)) => solicitation(&self.own, source, hop, buffer),
            _ => return None,
        };
        Some(len)
    }
}

/// The (address, MAC) pair that a packet claims.
pub(crate) fn claim(parsed: &Parsed, bytes: &[u8]) -> Option<(IpAddr, MacAddress)> {
    match parsed.network {
        Network::Arp => {
            let arp = bytes.get(parsed.network_offset as usize..)?.get(..28)?;
            let mac = MacAddress(arp[8..14].try_into().ok()?);
            Some((IpAddr::V4(Ipv4Addr::new(arp[14], arp[15], arp[16], arp[17])), mac))
        }
        Network::Ipv6 => {
            let Transport::Icmp { kind: ICMPV6_ADVERTISEMENT, .. } = parsed.transport else {
                return None;
            };
            // RFC 4861 s7.1.2: only a packet that no router forwarded is believed.
            if parsed.hop_limit != 255 {
                return None;
            }
            let message = bytes.get(parsed.transport_offset as usize..parsed.end as usize)?;
            let target: [u8; 16] = message.get(8..24)?.try_into().ok()?;
            let option = message.get(24..32)?;
            if option[0] != 2 || option[1] != 1 {
                return None;
            }
            let mac = MacAddress(option[2..8].try_into().ok()?);
            Some((IpAddr::V6(Ipv6Addr::from(target)), mac))
        }
        _ => None,
    }
}

/// Ethernet header with the own VLAN tag; returns its length.
fn ethernet(own: &OwnAddress, to: MacAddress, ethertype: u16, buffer: &mut [u8]) -> usize {
    buffer[..6].copy_from_slice(&to.0);
    buffer[6..12].copy_from_slice(&own.mac.0);
    let mut at = 12;
    if let Some(vlan) = own.vlan {
        buffer[at..at + 2].copy_from_slice(&0x8100u16.to_be_bytes());
        buffer[at + 2..at + 4].copy_from_slice(&vlan.to_be_bytes());
        at += 4;
    }
    buffer[at..at + 2].copy_from_slice(&ethertype.to_be_bytes());
    at + 2
}

fn arp_request(own: &OwnAddress, source: Ipv4Addr, hop: Ipv4Addr, buffer: &mut [u8]) -> usize {
    let at = ethernet(own, MacAddress([0xff; 6]), ETHERTYPE_ARP, buffer);
    let arp = &mut buffer[at..at + 28];
    arp[0..2].copy_from_slice(&1u16.to_be_bytes());
    arp[2..4].copy_from_slice(&ETHERTYPE_IPV4.to_be_bytes());
    arp[4..8].copy_from_slice(&[6, 4, 0, 1]);
    arp[8..14].copy_from_slice(&own.mac.0);
    arp[14..18].copy_from_slice(&source.octets());
    arp[18..24].fill(0);
    arp[24..28].copy_from_slice(&hop.octets());
    at + 28
}

fn solicitation(own: &OwnAddress, source: Ipv6Addr, hop: Ipv6Addr, buffer: &mut [u8]) -> usize {
    let (to, message) = solicitation_of(own.mac, source, hop);
    let at = ethernet(own, to, ETHERTYPE_IPV6, buffer);
    buffer[at..at + message.len()].copy_from_slice(&message);
    at + message.len()
}

/// The IPv6 packet by which `mac` at `source` asks where `target` is, and the MAC address of those
/// who hear it (RFC 4861 s4.3).
pub(crate) fn solicitation_of(
    mac: MacAddress,
    source: Ipv6Addr,
    target: Ipv6Addr,
) -> (MacAddress, [u8; 72]) {
    // RFC 4291 s2.7.1: the solicited-node group of the target.
    let target = target.octets();
    let mut group = [0xff, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0xff, 0, 0, 0];
    group[13..].copy_from_slice(&target[13..]);
    let to = MacAddress([0x33, 0x33, group[12], group[13], group[14], group[15]]);
    let mut packet = [0; 72];
    let (header, message) = packet.split_at_mut(40);
    header[0..4].copy_from_slice(&[0x60, 0, 0, 0]);
    header[4..6].copy_from_slice(&32u16.to_be_bytes());
    header[6..8].copy_from_slice(&[58, 255]);
    header[8..24].copy_from_slice(&source.octets());
    header[24..40].copy_from_slice(&group);
    message[0..8].copy_from_slice(&[ICMPV6_SOLICITATION, 0, 0, 0, 0, 0, 0, 0]);
    message[8..24].copy_from_slice(&target);
    message[24..26].copy_from_slice(&[1, 1]);
    message[26..32].copy_from_slice(&mac.0);
    let pseudo = checksum::pseudo_header_v6(&source.octets(), &group, 58, 32);
    let sum = pseudo.with(message).checksum();
    message[2..4].copy_from_slice(&sum.to_be_bytes());
    (to, packet)
}
