//! What is added up: records, read back from their tables, to keys and sums.

use std::collections::HashMap;

use rusqlite::{Connection, Row, ToSql};

use super::super::labels::{LABEL_KINDS, Labels};
use super::super::summary::{GroupBy, Volumes};
use super::{Dimension, Keyed, LEVELS_S, Sums, add_to, floor};

/// Keys of a slice, at most: about 70 MB. More than that have only stores of an earlier Weir whose
/// records are asked before they are added up; the others are left out there.
pub(in super::super) const GROUPS_MAX: usize = 200_000;

/// UDP port of RoCE v2.
const ROCE_V2_PORT: u16 = 4791;

/// In the first byte of a key: the addresses are LIDs. Its other bits say the kind of traffic,
/// where keys differ by that.
pub(in super::super) const LID: u8 = 0x80;

/// Kinds of traffic, by the first byte of a key.
pub(super) const KINDS: [&str; 5] = ["rdma", "tcp", "udp", "icmp", "other"];

/// What is read of a flow.
const FLOW_COLUMNS: &str = "id, last_ns, source, destination, packets, bytes, reply_packets, \
                            reply_bytes, protocol, source_port, destination_port, exporter";

/// What is read of a conversation.
const CONVERSATION_COLUMNS: &str = "id, last_ns, source, destination, packets, bytes, \
                                    reply_packets, reply_bytes, encapsulation, service, \
                                    source_qp, destination_qp, retransmissions, naks, \
                                    response_ns, exporter";

/// Records added up by slice of a minute, dimension and key.
pub(super) struct Deltas {
    /// Where one dimension alone is wanted, all is one slice.
    pub(super) slices: HashMap<(i64, Dimension), Keyed>,
    labels: Labels,
    /// Labels of addresses, as keys.
    called: HashMap<[u8; 16], Vec<Vec<u8>>>,
    /// The only dimension that is wanted; absent: all.
    only: Option<Dimension>,
}

/// A record's ends.
type Ends = [[u8; 16]; 2];

impl Deltas {
    pub(super) fn new(labels: Labels, only: Option<Dimension>) -> Self {
        Self { slices: HashMap::new(), labels, called: HashMap::new(), only }
    }

    /// Adds the flows that `chosen` has; the number of the last and how many there were.
    pub(super) fn add_flows(
        &mut self,
        connection: &Connection,
        chosen: &str,
        values: &[&dyn ToSql],
    ) -> rusqlite::Result<(i64, usize)> {
        let sql = format!("SELECT {FLOW_COLUMNS} FROM flow WHERE {chosen}");
        let mut select = connection.prepare_cached(&sql)?;
        let mut rows = select.query(values)?;
        let (mut last, mut count) = (0, 0);
        while let Some(row) = rows.next()? {
            self.add_flow(row)?;
            (last, count) = (row.get(0)?, count + 1);
        }
        Ok((last, count))
    }

    /// Adds conversations likewise.
    pub(super) fn add_conversations(
        &mut self,
        connection: &Connection,
        chosen: &str,
        values: &[&dyn ToSql],
    ) -> rusqlite::Result<(i64, usize)> {
        let sql = format!("SELECT {CONVERSATION_COLUMNS} FROM conversation WHERE {chosen}");
        let mut select = connection.prepare_cached(&sql)?;
        let mut rows = select.query(values)?;
        let (mut last, mut count) = (0, 0);
        while let Some(row) = rows.next()? {
            self.add_conversation(row)?;
            (last, count) = (row.get(0)?, count + 1);
        }
        Ok((last, count))
    }

    fn add_flow(&mut self, row: &Row<'_>) -> rusqlite::Result<()> {
        let (time_s, ends, sums) = common(row)?;
        let (protocol, ports) = (row.get::<_, u8>(8)?, [row.get::<_, u16>(9)?, row.get(10)?]);
        let kind = kind(protocol, ports);
        self.add_talkers(time_s, kind, ends, &sums);
        self.add_ends(Volumes::Flows, time_s, (0, kind), ends, &sums);
        if self.wants(Dimension::of(Volumes::Flows, GroupBy::Service)) {
            let service = service_of_flow(protocol, ports[1]);
            self.add(Volumes::Flows, GroupBy::Service, time_s, &[&[0], service.as_bytes()], &sums);
        }
        if let Some(exporter) = row.get_ref(11)?.as_str_or_null()? {
            self.add(
                Volumes::Flows,
                GroupBy::Exporter,
                time_s,
                &[&[0], exporter.as_bytes()],
                &sums,
            );
        }
        self.add_labels(Volumes::Flows, time_s, ends, &sums);
        Ok(())
    }

    fn add_conversation(&mut self, row: &Row<'_>) -> rusqlite::Result<()> {
        let (time_s, ends, mut sums) = common(row)?;
        sums.retransmissions = row.get::<_, i64>(12)? as u64;
        sums.naks = row.get::<_, i64>(13)? as u64;
        sums.response_ns = row.get::<_, Option<i64>>(14)?.unwrap_or_default() as u64;
        let (encapsulation, service) = (row.get_ref(8)?.as_str()?, row.get_ref(9)?.as_str()?);
        let lid = if encapsulation == "infiniband" { LID } else { 0 };
        // RoCE v2 is in the flows already.
        if encapsulation != "roce_v2" {
            self.add_talkers(time_s, 0, ends, &sums);
        }
        let of = Volumes::Conversations;
        self.add_ends(of, time_s, (lid, 0), ends, &sums);
        if self.wants(Dimension::of(of, GroupBy::Service)) {
            let name = format!("{service} {encapsulation}");
            self.add(of, GroupBy::Service, time_s, &[&[lid], name.as_bytes()], &sums);
        }
        // Number zero is no sender's: what a direction alone tells of has none.
        let source_qp = row.get::<_, Option<u32>>(10)?.unwrap_or_default().to_be_bytes();
        let destination_qp = row.get::<_, u32>(11)?.to_be_bytes();
        let key: [&[u8]; 5] = [&[lid], &ends[0], &ends[1], &source_qp, &destination_qp];
        self.add(of, GroupBy::QueuePair, time_s, &key, &sums);
        if let Some(exporter) = row.get_ref(15)?.as_str_or_null()? {
            self.add(of, GroupBy::Exporter, time_s, &[&[lid], exporter.as_bytes()], &sums);
        }
        self.add_labels(of, time_s, ends, &sums);
        Ok(())
    }

    /// Each end of a record: what it sent, and what it received.
    fn add_talkers(&mut self, time_s: i64, kind: u8, [source, destination]: Ends, sums: &Sums) {
        if !self.wants(Dimension::TALKERS) {
            return;
        }
        let back = reversed(sums);
        for (address, sums) in [(source, sums), (destination, &back)] {
            let key = [&[kind][..], &address].concat();
            self.put(Dimension::TALKERS, time_s, &key, sums);
        }
    }

    fn add_ends(
        &mut self,
        of: Volumes,
        time_s: i64,
        (lid, kind): (u8, u8),
        ends: Ends,
        sums: &Sums,
    ) {
        let [source, destination] = &ends;
        self.add(of, GroupBy::Ends, time_s, &[&[lid | kind], source, destination], sums);
        self.add(of, GroupBy::Source, time_s, &[&[lid], source], sums);
        self.add(of, GroupBy::Destination, time_s, &[&[lid], destination], sums);
    }

    /// What ends are called: a record between two of one name counts once.
    fn add_labels(&mut self, of: Volumes, time_s: i64, ends: Ends, sums: &Sums) {
        if self.labels.is_empty() || !self.wants(Dimension::of(of, GroupBy::Label)) {
            return;
        }
        let labels = &self.labels;
        let mut keys: Vec<Vec<u8>> = Vec::new();
        for end in ends {
            let own = self.called.entry(end).or_insert_with(|| label_keys(labels, &[end]));
            keys.extend(own.iter().filter(|it| !keys.contains(*it)).cloned().collect::<Vec<_>>());
        }
        for key in keys {
            self.add(of, GroupBy::Label, time_s, &[&key], sums);
        }
    }

    fn add(&mut self, of: Volumes, by: GroupBy, time_s: i64, key: &[&[u8]], sums: &Sums) {
        let dimension = Dimension::of(of, by);
        if self.wants(dimension) {
            self.put(dimension, time_s, &key.concat(), sums);
        }
    }

    fn wants(&self, dimension: Dimension) -> bool {
        self.only.is_none_or(|only| only == dimension)
    }

    fn put(&mut self, dimension: Dimension, time_s: i64, key: &[u8], sums: &Sums) {
        if self.wants(dimension) {
            let time_s = if self.only.is_some() { 0 } else { floor(time_s, LEVELS_S[0]) };
            let keyed = self.slices.entry((time_s, dimension)).or_default();
            if keyed.len() < GROUPS_MAX || keyed.contains_key(key) {
                add_to(keyed, key, sums);
            }
        }
    }
}

/// The service that a flow is of: the protocol and the port that answers.
pub(in super::super) fn service_of_flow(protocol: u8, port: u16) -> String {
    match protocol {
        6 => format!("tcp {port}"),
        17 => format!("udp {port}"),
        1 => "icmp".to_owned(),
        58 => "icmpv6".to_owned(),
        other => format!("protocol {other}"),
    }
}

/// Keys of what `ends` are called: a record between two of one name counts once.
pub(in super::super) fn label_keys(labels: &Labels, ends: &[[u8; 16]]) -> Vec<Vec<u8>> {
    let mut keys: Vec<Vec<u8>> = Vec::new();
    for end in ends {
        let names = labels.names(*end);
        for (kind, name) in LABEL_KINDS.iter().zip(&names) {
            let key = name.as_ref().map(|name| format!("\0{kind}={name}").into_bytes());
            keys.extend(key.filter(|it| !keys.contains(it)));
        }
    }
    keys
}

/// What flows and conversations have in the same columns.
fn common(row: &Row<'_>) -> rusqlite::Result<(i64, Ends, Sums)> {
    let count = |index: usize| row.get::<_, i64>(index).map(|it| it as u64);
    let sums = Sums {
        records: 1,
        packets: count(4)?,
        bytes: count(5)?,
        reply_packets: count(6)?,
        reply_bytes: count(7)?,
        ..Sums::default()
    };
    let time_s = row.get::<_, i64>(1)? / 1_000_000_000;
    Ok((time_s, [row.get(2)?, row.get(3)?], sums))
}

/// As who answers sees it.
fn reversed(sums: &Sums) -> Sums {
    Sums {
        packets: sums.reply_packets,
        bytes: sums.reply_bytes,
        reply_packets: sums.packets,
        reply_bytes: sums.bytes,
        ..*sums
    }
}

/// What traffic it is, for people: a place in [`KINDS`].
fn kind(protocol: u8, ports: [u16; 2]) -> u8 {
    match protocol {
        17 if ports.contains(&ROCE_V2_PORT) => 0,
        6 => 1,
        17 => 2,
        1 | 58 => 3,
        _ => 4,
    }
}
