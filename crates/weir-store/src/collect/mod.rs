//! Records of other exporters: NetFlow v5 and v9 and IPFIX become rows of the store.
//!
//! ```text
//!  datagram or IPFIX stream --netflow_parser (templates by exporter and domain)--> elements
//!      elements --record--> FlowRow | ConversationRow --StoreSender--> the store's thread
//!      header   --sequence--> what was lost on the way, by exporter
//! ```
//!
//! The parser is the crate `netflow_parser`; what its elements mean is said in `record`, sequence
//! numbers are judged in `sequence`, sockets are `listen`'s. Nothing here trusts an exporter: its
//! templates, domains and tables are bounded, and what is refused is counted.

mod fill;
pub mod listen;
mod record;
mod sequence;

use std::collections::{BTreeMap, HashMap};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use netflow_parser::variable_versions::ipfix::{FlowSetBody as IpfixSet, IPFix};
use netflow_parser::variable_versions::v9::FlowSetBody as V9Set;
use netflow_parser::{AutoScopedParser, ConfigError, NetflowPacket, NetflowParser};
use netflow_parser::{PendingFlowsConfig, TtlConfig};

use crate::sqlite::{Collected, ConversationRow};
use fill::Layouts;
use record::{Elements, Meanings, Stamp};
use sequence::Sequence;

/// Exporters, each with each of its observation domains, that are told apart; a further one is
/// refused until one has said nothing for [`FORGET_AFTER_S`].
pub const SOURCES_MAX: usize = 1024;

/// A source that says nothing for so long makes room for another.
const FORGET_AFTER_S: u64 = 3600;

/// Ports of a source whose sequence numbers are remembered; with more, all begin anew.
const PORTS_MAX: usize = 64;

/// Templates of a source; the one that was used least makes room.
const TEMPLATES_MAX: usize = 256;

/// What came of one exporter's observation domain, since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SourceCounters {
    /// Messages that were read.
    pub messages: u64,
    /// Rows that they gave.
    pub records: u64,
    /// What its sequence numbers say is missing: records (NetFlow v5, IPFIX) or messages (v9).
    pub lost: u64,
    /// Of what was counted as lost, how much came later.
    pub late: u64,
    /// Times that its numbers began anew.
    pub restarts: u64,
    /// Sets of records whose template is not known (yet); with them their records are lost.
    pub without_template: u64,
    /// Messages, or what is left of them, that are none.
    pub malformed: u64,
    /// Records that name no addresses.
    pub without_addresses: u64,
    /// Sets that the parser can take nothing out of.
    pub undecoded: u64,
    /// Records of packets that leave an exporter, which are left out where they were asked to be.
    pub egress: u64,
}

impl SourceCounters {
    /// By name, for the store.
    pub fn named(&self) -> BTreeMap<String, u64> {
        let counts = [
            ("messages", self.messages),
            ("records", self.records),
            ("lost", self.lost),
            ("late", self.late),
            ("restarts", self.restarts),
            ("without_template", self.without_template),
            ("malformed", self.malformed),
            ("without_addresses", self.without_addresses),
            ("undecoded", self.undecoded),
            ("egress", self.egress),
        ];
        counts.into_iter().map(|(name, count)| (name.to_owned(), count)).collect()
    }
}

/// Who exports: an address, and the observation domain (IPFIX), source ID (v9) or engine (v5).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Source {
    /// Where its messages come from.
    pub address: IpAddr,
    /// Its domain.
    pub domain: u32,
}

#[derive(Debug)]
struct Known {
    exporter: Arc<str>,
    pair: Arc<str>,
    /// By port: each is a transport session, with numbers of its own.
    sequences: HashMap<u16, Sequence>,
    layouts: Layouts,
    is_ingress_only: bool,
    counters: SourceCounters,
    heard_s: u64,
}

/// Reads messages.
#[derive(Debug)]
pub struct Decoder {
    parser: AutoScopedParser,
    meanings: Meanings,
    sources: HashMap<Source, Known>,
    /// Messages of sources beyond [`SOURCES_MAX`].
    refused: u64,
    /// Messages that are of no version known here.
    foreign: u64,
    is_ingress_only: bool,
}

impl Decoder {
    /// One that reads RDMA elements under the number `enterprise`.
    ///
    /// # Errors
    /// The parser refuses its bounds.
    pub fn new(enterprise: u32) -> Result<Self, ConfigError> {
        let builder = NetflowParser::builder()
            .with_cache_size(TEMPLATES_MAX)
            .with_ttl(TtlConfig::new(std::time::Duration::from_secs(4 * FORGET_AFTER_S)))
            .with_pending_flows(PendingFlowsConfig::default())
            .with_allowed_versions(&[5, 9, 10]);
        Ok(Self {
            parser: AutoScopedParser::try_with_builder(builder)?.with_max_sources(SOURCES_MAX)?,
            meanings: Meanings::new(enterprise),
            sources: HashMap::new(),
            refused: 0,
            foreign: 0,
            is_ingress_only: false,
        })
    }

    /// Leaves out records that say egress (element 61): of exporters that tell of each packet where
    /// it comes in and where it leaves, as Open vSwitch does.
    #[must_use]
    pub fn ingress_only(self) -> Self {
        Self { is_ingress_only: true, ..self }
    }

    /// The rows of a message that came from `from` at `now_ns`.
    pub fn read(&mut self, from: SocketAddr, message: &[u8], now_ns: u64) -> Vec<Collected> {
        let Some(domain) = domain(message) else {
            self.foreign += 1;
            return Vec::new();
        };
        let source = Source { address: from.ip().to_canonical(), domain };
        if !self.admits(source, now_ns / 1_000_000_000) {
            self.refused += 1;
            return Vec::new();
        }
        let Some(known) = self.sources.get_mut(&source) else { return Vec::new() };
        let filled = known.layouts.filled(from.port(), message);
        let result = self.parser.parse_from_source(from, &filled);
        known.heard_s = now_ns / 1_000_000_000;
        known.counters.messages += 1;
        if result.error.is_some() {
            known.counters.malformed += 1;
        }
        let mut rows = Vec::new();
        for packet in &result.packets {
            known.take(from.port(), packet, &self.meanings, now_ns, &mut rows);
        }
        known.counters.records += rows.len() as u64;
        rows
    }

    fn admits(&mut self, source: Source, now_s: u64) -> bool {
        if self.sources.contains_key(&source) {
            return true;
        }
        if self.sources.len() >= SOURCES_MAX {
            self.sources.retain(|_, it| it.heard_s + FORGET_AFTER_S > now_s);
        }
        if self.sources.len() >= SOURCES_MAX {
            return false;
        }
        let known = Known {
            exporter: source.address.to_string().into(),
            pair: format!("domain {}", source.domain).into(),
            sequences: HashMap::new(),
            layouts: Layouts::default(),
            is_ingress_only: self.is_ingress_only,
            counters: SourceCounters::default(),
            heard_s: now_s,
        };
        self.sources.insert(source, known);
        true
    }

    /// What came of each source.
    pub fn sources(&self) -> BTreeMap<Source, SourceCounters> {
        self.sources.iter().map(|(source, known)| (*source, known.counters)).collect()
    }

    /// Messages of sources beyond [`SOURCES_MAX`], and those that are no NetFlow v5, v9 or IPFIX.
    pub fn refused(&self) -> (u64, u64) {
        (self.refused, self.foreign)
    }
}

impl Known {
    fn take(
        &mut self,
        port: u16,
        packet: &NetflowPacket,
        meanings: &Meanings,
        now_ns: u64,
        rows: &mut Vec<Collected>,
    ) {
        let begin = rows.len();
        match packet {
            NetflowPacket::V5(v5) => {
                let header = &v5.header;
                let count = v5.flowsets.len() as u32;
                self.numbered(port, header.flow_sequence, Some(count), Some(header.sys_up_time));
                let stamp = Stamp::of_v5(header, now_ns);
                rows.extend(v5.flowsets.iter().map(|it| Collected::Flow(stamp.v5(it))));
            }
            NetflowPacket::V9(v9) => {
                let header = &v9.header;
                self.numbered(port, header.sequence_number, Some(1), Some(header.sys_up_time));
                let stamp = Stamp::new(header.unix_secs, Some(header.sys_up_time), now_ns);
                for set in &v9.flowsets {
                    match &set.body {
                        V9Set::Data(data) => {
                            for record in &data.fields {
                                self.record(&Elements::of_v9(record), &stamp, rows);
                            }
                        }
                        V9Set::NoTemplate(_) => self.counters.without_template += 1,
                        _ => {}
                    }
                }
            }
            NetflowPacket::IPFix(ipfix) => self.take_ipfix(port, ipfix, meanings, now_ns, rows),
            _ => {}
        }
        join_directions(rows, begin);
        for row in &mut rows[begin..] {
            row.belongs_to(&self.exporter, &self.pair);
        }
    }

    fn take_ipfix(
        &mut self,
        port: u16,
        ipfix: &IPFix,
        meanings: &Meanings,
        now_ns: u64,
        rows: &mut Vec<Collected>,
    ) {
        let stamp = Stamp::new(ipfix.header.export_time, None, now_ns);
        let mut count = Some(0);
        for set in &ipfix.flowsets {
            match &set.body {
                IpfixSet::Data(data) if data.fields.is_empty() => {
                    self.counters.undecoded += 1;
                    count = None;
                }
                IpfixSet::Data(data) => {
                    count = count.map(|it| it + data.fields.len() as u32);
                    for record in &data.fields {
                        let elements = Elements::of_ipfix(record, meanings);
                        self.record(&elements, &stamp, rows);
                    }
                }
                IpfixSet::V9Data(data) => {
                    count = count.map(|it| it + data.fields.len() as u32);
                    for record in &data.fields {
                        self.record(&Elements::of_v9(record), &stamp, rows);
                    }
                }
                IpfixSet::OptionsData(data) => {
                    count = count.map(|it| it + data.fields.len() as u32);
                }
                IpfixSet::V9OptionsData(_) => count = None,
                IpfixSet::NoTemplate(_) => {
                    self.counters.without_template += 1;
                    count = None;
                }
                _ => {}
            }
        }
        self.numbered(port, ipfix.header.sequence_number, count, None);
    }

    fn record(&mut self, elements: &Elements, stamp: &Stamp, rows: &mut Vec<Collected>) {
        if self.is_ingress_only && elements.is_egress() {
            self.counters.egress += 1;
            return;
        }
        match stamp.row(elements) {
            Some(row) => rows.push(row),
            None => self.counters.without_addresses += 1,
        }
    }

    fn numbered(&mut self, port: u16, number: u32, count: Option<u32>, uptime_ms: Option<u32>) {
        let Self { sequences, counters, .. } = self;
        if sequences.len() >= PORTS_MAX && !sequences.contains_key(&port) {
            sequences.clear();
        }
        sequences.entry(port).or_default().heard(number, count, uptime_ms, counters);
    }
}

/// Both directions of a conversation come one behind the other, and become one row.
fn join_directions(rows: &mut Vec<Collected>, begin: usize) {
    let mut joined: Vec<Collected> = Vec::with_capacity(rows.len() - begin);
    for row in rows.drain(begin..) {
        let before = joined.last_mut();
        match (before, row) {
            (Some(Collected::Conversation(first)), Collected::Conversation(second))
                if is_other_direction(first, &second) =>
            {
                first.add_reply(&second);
            }
            (_, row) => joined.push(row),
        }
    }
    rows.append(&mut joined);
}

fn is_other_direction(first: &ConversationRow, second: &ConversationRow) -> bool {
    first.source == second.destination
        && first.destination == second.source
        && first.flow_id.is_some()
        && first.flow_id == second.flow_id
        && first.reply_packets == 0
}

/// The observation domain (IPFIX), source ID (v9) or engine (v5) of a message.
fn domain(message: &[u8]) -> Option<u32> {
    let word = |at: usize| -> Option<u32> {
        Some(u32::from_be_bytes(message.get(at..at + 4)?.try_into().ok()?))
    };
    match message.get(..2)? {
        [0, 5] => Some(message.get(21).copied()?.into()),
        [0, 9] => word(16),
        [0, 10] => word(12),
        _ => None,
    }
}
