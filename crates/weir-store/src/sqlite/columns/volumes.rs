//! What records carried by who or what, added up record by record.

use super::{Block, ByKey, Keys, Layout, Walk};
use crate::sqlite::labels::Labels;
use crate::sqlite::read::{QueryError, Range, Reader, RecordFilter};
use crate::sqlite::rollup::source::{GROUPS_MAX, LID, label_keys, service_of_flow};
use crate::sqlite::rollup::{Keyed, Sums, add_to};
use crate::sqlite::summary::{GroupBy, Volumes};

/// The sums of all records that ended within `range` and that `filter` chooses, by the keys of the
/// roll-ups, without the kind of traffic.
pub(in super::super) fn sums_of_records(
    reader: &Reader,
    (of, by): (Volumes, GroupBy),
    range: Range,
    filter: &RecordFilter,
) -> Result<Keyed, QueryError> {
    let layout = match of {
        Volumes::Flows => &Layout::FLOWS,
        Volumes::Conversations => &Layout::CONVERSATIONS,
    };
    let mut keyed = Keyed::new();
    let Some(groups) = Groups::new(layout, of, by) else { return Ok(keyed) };
    let moment = reader.connection.unchecked_transaction()?;
    let walk = Walk::new(reader, &moment, layout, range, filter)?;
    let labels = reader.labels()?;
    let mut keys = Keys::new(groups.places.clone());
    let (mut known, mut found) = (ByKey::<u32>::default(), Vec::<(Vec<u8>, Sums)>::new());
    walk.each(&mut |block, rows, _| {
        keys.of(block);
        for &row in rows {
            let next = found.len() as u32;
            let group = *known.entry(keys.get(row)).or_insert(next);
            if group == next {
                found.push((groups.key(block, row as usize), Sums::default()));
            }
            found[group as usize].1.add(&groups.sums(block, row as usize));
            if found.len() == GROUPS_MAX {
                groups.give_over(&mut found, &labels, &mut keyed);
                known.clear();
            }
        }
        if keyed.len() > GROUPS_MAX { Err(QueryError::TooMany(GROUPS_MAX)) } else { Ok(true) }
    })?;
    drop(known);
    groups.give_over(&mut found, &labels, &mut keyed);
    if keyed.len() > GROUPS_MAX { Err(QueryError::TooMany(GROUPS_MAX)) } else { Ok(keyed) }
}

/// What tells groups apart, and what is added up of each.
struct Groups {
    by: GroupBy,
    layout: &'static Layout,
    /// Of the columns that tell groups apart.
    places: Vec<usize>,
    counts: [Option<usize>; 7],
}

impl Groups {
    /// `None`: such records have nothing of it.
    fn new(layout: &'static Layout, of: Volumes, by: GroupBy) -> Option<Self> {
        let mut names: Vec<&str> = match (of, by) {
            (_, GroupBy::Source) => vec!["source"],
            (_, GroupBy::Destination) => vec!["destination"],
            (_, GroupBy::Ends | GroupBy::Label) => vec!["source", "destination"],
            (_, GroupBy::Exporter) => vec!["exporter"],
            (Volumes::Flows, GroupBy::Service) => vec!["protocol", "destination_port"],
            (Volumes::Conversations, GroupBy::Service) => vec!["service"],
            (Volumes::Conversations, GroupBy::QueuePair) => {
                vec!["source", "destination", "source_qp", "destination_qp"]
            }
            (Volumes::Flows, GroupBy::QueuePair) => return None,
        };
        if of == Volumes::Conversations {
            names.push("encapsulation");
        }
        let places = names.iter().filter_map(|name| layout.place(name)).collect();
        let counts = [
            "packets",
            "bytes",
            "reply_packets",
            "reply_bytes",
            "retransmissions",
            "naks",
            "response_ns",
        ];
        Some(Self { by, layout, places, counts: counts.map(|name| layout.place(name)) })
    }

    /// The key of a record's group; nothing where the record has none.
    fn key(&self, block: &Block<'_>, row: usize) -> Vec<u8> {
        let value = |name: &str| self.layout.place(name).and_then(|it| block.value(it, row));
        let number = |name: &str| self.layout.place(name).map_or(0, |it| block.number(it, row));
        let address = |name: &str| value(name).unwrap_or_default();
        let encapsulation = value("encapsulation");
        let tag = if encapsulation == Some(&b"infiniband"[..]) { LID } else { 0 };
        let mut key = vec![tag];
        match self.by {
            GroupBy::Source => key.extend(address("source")),
            GroupBy::Destination => key.extend(address("destination")),
            GroupBy::Ends | GroupBy::QueuePair | GroupBy::Label => {
                key.extend(address("source"));
                key.extend(address("destination"));
            }
            GroupBy::Exporter => match value("exporter") {
                Some(exporter) => key.extend(exporter),
                None => key.clear(),
            },
            GroupBy::Service => match encapsulation {
                Some(encapsulation) => {
                    key.extend(value("service").unwrap_or_default());
                    key.push(b' ');
                    key.extend(encapsulation);
                }
                None => {
                    let (protocol, port) = (number("protocol"), number("destination_port"));
                    key.extend(service_of_flow(protocol as u8, port as u16).as_bytes());
                }
            },
        }
        if self.by == GroupBy::QueuePair {
            // Number zero is no sender's: what a direction alone tells of has none.
            for number in [number("source_qp").max(0), number("destination_qp")] {
                key.extend((number as u32).to_be_bytes());
            }
        }
        key
    }

    /// What a record carried.
    fn sums(&self, block: &Block<'_>, row: usize) -> Sums {
        let count = |place: Option<usize>| place.map_or(0, |it| block.number(it, row));
        let [packets, bytes, reply_packets, reply_bytes, retransmissions, naks, response_ns] =
            self.counts.map(count);
        Sums {
            records: 1,
            packets: packets as u64,
            bytes: bytes as u64,
            reply_packets: reply_packets as u64,
            reply_bytes: reply_bytes as u64,
            retransmissions: retransmissions as u64,
            naks: naks as u64,
            response_ns: response_ns.max(0) as u64,
        }
    }

    /// Moves what was found to where it is added up by its last key.
    fn give_over(&self, found: &mut Vec<(Vec<u8>, Sums)>, labels: &Labels, keyed: &mut Keyed) {
        for (key, sums) in found.drain(..).filter(|(key, _)| !key.is_empty()) {
            if self.by != GroupBy::Label {
                add_to(keyed, &key, &sums);
                continue;
            }
            let ends = key[1..].as_chunks::<16>().0;
            for key in label_keys(labels, ends) {
                add_to(keyed, &key, &sums);
            }
        }
    }
}
