//! Questions whose answers are sums, from whole slices and what is not in them yet.

use std::collections::{HashMap, HashSet};

use rusqlite::Connection;

use super::super::columns::sums_of_records;
use super::super::labels::{LabelFilter, Labels};
use super::super::read::{Order, QueryError, ROWS_MAX, Range, Reader, RecordFilter};
use super::super::rows::TalkerRow;
use super::super::summary::{GroupBy, VolumeRow, Volumes};
use super::advance::State;
use super::source::{Deltas, KINDS, LID};
use super::{Dimension, Keyed, LEVELS_S, REST, Sums, add_to, floor, read_slices};

/// The greatest of what was asked for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Summed<T> {
    /// The greatest first.
    pub rows: Vec<T>,
    /// Bytes, there and back, of keys that were not among the greatest of their slice, and are
    /// not named.
    pub rest_bytes: u64,
}

/// A stretch of whole slices: their length, from and until, seconds since 1970.
type Stretch = (i64, std::ops::Range<i64>);

impl Reader {
    /// Who sent and received most within `range`, whole minutes, of `kind` or of all, with the name
    /// `label` or with any.
    ///
    /// # Errors
    /// [`QueryError`].
    pub fn talkers(
        &self,
        range: Range,
        kind: Option<&str>,
        label: Option<&LabelFilter>,
        limit: u32,
    ) -> Result<Vec<TalkerRow>, QueryError> {
        let Some(number) = kind.map_or(Some(None), number_of) else { return Ok(Vec::new()) };
        let mut called = Called::new(self, label)?;
        let mut keyed = self.summed(Dimension::TALKERS, range, &mut |key| {
            let (tag, address) = key.split_first()?;
            let is_wanted = number.is_none_or(|it| it == *tag);
            (is_wanted && called.fits(&[address])).then(|| address.to_vec())
        })?;
        keyed.remove(REST);
        let rows = greatest(keyed, Order::Bytes, limit);
        let peers = self.peers(range, number, rows.iter().map(|(key, _)| array(key)))?;
        let row = |(key, sums): (Vec<u8>, Sums)| TalkerRow {
            address: array(&key),
            kind: kind.map(str::to_owned),
            sent_packets: sums.packets,
            sent_bytes: sums.bytes,
            received_packets: sums.reply_packets,
            received_bytes: sums.reply_bytes,
            peers: peers.get(&array(&key)).map_or(0, |it| it.len() as u64),
        };
        Ok(rows.into_iter().map(row).collect())
    }

    /// Whom each of `addresses` talked with.
    fn peers(
        &self,
        range: Range,
        number: Option<u8>,
        addresses: impl Iterator<Item = [u8; 16]>,
    ) -> Result<HashMap<[u8; 16], HashSet<[u8; 16]>>, QueryError> {
        let mut peers: HashMap<_, _> = addresses.map(|it| (it, HashSet::new())).collect();
        for of in [Volumes::Flows, Volumes::Conversations] {
            self.summed(Dimension::of(of, GroupBy::Ends), range, &mut |key| {
                let (tag, ends) = key.split_first()?;
                if number.is_none_or(|it| it == tag & !LID) {
                    let (one, other) = ends.split_at_checked(16)?;
                    let (one, other) = (array(one), array(other));
                    peers.get_mut(&one).map(|it| it.insert(other));
                    peers.get_mut(&other).map(|it| it.insert(one));
                }
                None
            })?;
        }
        Ok(peers)
    }

    /// What flows or conversations that ended within `range`, whole minutes, carried, the greatest
    /// groups first: by volume where they have nothing of `order`.
    ///
    /// # Errors
    /// [`QueryError`].
    pub fn volumes(
        &self,
        of: Volumes,
        by: GroupBy,
        range: Range,
        label: Option<&LabelFilter>,
        (order, limit): (Order, u32),
    ) -> Result<Summed<VolumeRow>, QueryError> {
        let (dimension, range_s) = (Dimension::of(of, by), range_s(range));
        let mut keyed = match (label, by) {
            (None, _) => self.summed(dimension, range, &mut |key| grouped(by, key))?,
            (Some(label), GroupBy::Service | GroupBy::Exporter | GroupBy::Label) => {
                let [from_s, until_s] = [range_s.start, range_s.end].map(|it| it.max(0) as u64);
                let filter = RecordFilter { label: Some(label.clone()), ..RecordFilter::default() };
                sums_of_records(self, (of, by), Range { from_s, until_s }, &filter)?
            }
            (Some(_), by) => {
                let mut called = Called::new(self, label)?;
                let finest = if by == GroupBy::QueuePair { by } else { GroupBy::Ends };
                self.summed(Dimension::of(of, finest), range, &mut |key| {
                    let (source, destination) = (key.get(1..17)?, key.get(17..33)?);
                    called.fits(&[source, destination]).then(|| grouped(by, key)).flatten()
                })?
            }
        };
        let rest_bytes = keyed.remove(REST).unwrap_or_default().volume();
        let rows = greatest(keyed, order, limit).into_iter();
        Ok(Summed {
            rows: rows.map(|(key, sums)| VolumeRow::of(by, &key, &sums)).collect(),
            rest_bytes,
        })
    }

    /// What the flows or conversations that `filter` chooses carried, added up record by record:
    /// exactly those that ended within `range`, and every group, however small. Takes longer than
    /// [`Self::volumes`] by what is recorded.
    ///
    /// # Errors
    /// [`QueryError`].
    pub fn volumes_of_records(
        &self,
        of: Volumes,
        by: GroupBy,
        range: Range,
        filter: &RecordFilter,
        limit: u32,
    ) -> Result<Vec<VolumeRow>, QueryError> {
        let groups = sums_of_records(self, (of, by), range, filter)?;
        let rows = greatest(groups, filter.order, limit).into_iter();
        Ok(rows.map(|(key, sums)| VolumeRow::of(by, &key, &sums)).collect())
    }

    /// The sums of `dimension` by what `key_of` makes of its keys.
    fn summed(
        &self,
        dimension: Dimension,
        range: Range,
        key_of: &mut dyn FnMut(&[u8]) -> Option<Vec<u8>>,
    ) -> Result<Keyed, QueryError> {
        if !self.has_table("rollup")? {
            let keyed = self.of_records(dimension, range)?;
            return Ok(mapped(keyed, key_of));
        }
        // What is in the slices, and what is not yet, at one moment.
        let moment = self.connection.unchecked_transaction()?;
        let (state, mut keyed) = (State::read(&moment)?, Keyed::new());
        let range_s = range_s(range);
        for (level, times) in stretches(&moment, dimension, &state, range_s.clone())? {
            read_slices(&moment, (level, dimension), times, &mut keyed, &mut *key_of)?;
        }
        let mut deltas = Deltas::new(super::super::labels::read(&moment)?, Some(dimension));
        let limit = super::advance::CHUNK_RECORDS as i64;
        let (from, until) =
            (range_s.start * 1_000_000_000, range_s.end.saturating_mul(1_000_000_000));
        // By number: the index by time would be walked through all of the span.
        let chosen = "id > ?1 AND +last_ns >= ?2 AND +last_ns < ?3 LIMIT ?4";
        let [flow, conversation] = state.records;
        deltas.add_flows(&moment, chosen, &[&flow, &from, &until, &limit])?;
        deltas.add_conversations(&moment, chosen, &[&conversation, &from, &until, &limit])?;
        for (key, sums) in deltas.slices.into_values().flatten() {
            if let Some(key) = key_of(&key) {
                add_to(&mut keyed, &key, &sums);
            }
        }
        Ok(keyed)
    }

    /// The sums of `dimension` from the records alone: of a store of an earlier Weir.
    fn of_records(&self, dimension: Dimension, range: Range) -> Result<Keyed, QueryError> {
        let chosen = "last_ns >= ? AND last_ns < ?";
        let range_s = range_s(range);
        let times = [range_s.start, range_s.end].map(|it| it.saturating_mul(1_000_000_000));
        let values: [&dyn rusqlite::ToSql; 2] = [&times[0], &times[1]];
        let mut deltas = Deltas::new(self.labels()?, Some(dimension));
        let exporters = self.connection.prepare("SELECT exporter FROM flow LIMIT 0");
        if exporters.is_err() {
            return Ok(Keyed::new());
        }
        deltas.add_flows(&self.connection, chosen, &values)?;
        deltas.add_conversations(&self.connection, chosen, &values)?;
        let mut keyed = Keyed::new();
        for (key, sums) in deltas.slices.into_values().flatten() {
            add_to(&mut keyed, &key, &sums);
        }
        Ok(keyed)
    }
}

/// Whole minutes, seconds since 1970.
fn range_s(range: Range) -> std::ops::Range<i64> {
    let bounded = |it: u64| i64::try_from(it).unwrap_or(i64::MAX).min(i64::MAX / 2_000_000_000);
    floor(bounded(range.from_s), LEVELS_S[0])..bounded(range.until_s)
}

/// The coarsest whole slices that make up `range_s`. Where the fine ones are gone, a coarser one
/// counts though it begins before or ends after.
fn stretches(
    connection: &Connection,
    dimension: Dimension,
    state: &State,
    range_s: std::ops::Range<i64>,
) -> Result<Vec<Stretch>, QueryError> {
    let mut oldest = [i64::MAX; 4];
    for (own, level) in oldest.iter_mut().zip(LEVELS_S) {
        let sql = "SELECT min(time_s) FROM rollup WHERE slice_s = ?1 AND dimension = ?2";
        let found: Option<i64> = connection
            .prepare_cached(sql)?
            .query_row((level, dimension.number()), |row| row.get(0))?;
        *own = found.unwrap_or(i64::MAX);
    }
    let first = oldest.iter().min().copied().unwrap_or(i64::MAX);
    let mut at = range_s.start.max(floor(first, LEVELS_S[0]));
    // The finest whose slices reach back so far.
    if let Some(finest) = (0..4).find(|index| oldest[*index] <= at && state.until_s[*index] > at) {
        at = floor(at, LEVELS_S[finest]);
    }
    let mut stretches: Vec<Stretch> = Vec::new();
    while at < range_s.end {
        // All that is left are slices of a minute.
        if at >= state.until_s[0] {
            stretches.push((LEVELS_S[0], at..range_s.end));
            break;
        }
        let fits = |index: &usize| {
            let level = LEVELS_S[*index];
            let has_finer = oldest[..*index].iter().any(|it| *it <= at);
            at % level == 0
                && at + level <= state.until_s[*index]
                && (at + level <= range_s.end || !has_finer)
        };
        let level = (1..4).rev().find(fits).map_or(LEVELS_S[0], |index| LEVELS_S[index]);
        match stretches.last_mut() {
            Some((own, times)) if *own == level && times.end == at => times.end = at + level,
            _ => stretches.push((level, at..at + level)),
        }
        at += level;
    }
    Ok(stretches)
}

/// The key of a group, from that of its dimension or of a finer one; the rest is nobody's.
fn grouped(by: GroupBy, key: &[u8]) -> Option<Vec<u8>> {
    let Some((tag, rest)) = key.split_first() else { return Some(REST.to_vec()) };
    let tag = [tag & LID];
    let part = match by {
        GroupBy::Source => rest.get(..16)?,
        GroupBy::Destination => rest.get(rest.len().saturating_sub(16)..)?,
        _ => rest,
    };
    Some([&tag, part].concat())
}

fn mapped(keyed: Keyed, key_of: &mut dyn FnMut(&[u8]) -> Option<Vec<u8>>) -> Keyed {
    let mut mapped = Keyed::new();
    for (key, sums) in keyed {
        if let Some(key) = key_of(&key) {
            add_to(&mut mapped, &key, &sums);
        }
    }
    mapped
}

fn greatest(keyed: Keyed, order: Order, limit: u32) -> Vec<(Vec<u8>, Sums)> {
    let rank = |sums: &Sums| match order {
        Order::Last | Order::Bytes => (sums.volume(), 0),
        Order::Packets => (sums.packets.saturating_add(sums.reply_packets), sums.volume()),
        Order::Retransmissions => (sums.retransmissions, sums.volume()),
        Order::Naks => (sums.naks, sums.volume()),
        Order::Response => (sums.response_ns, sums.volume()),
    };
    let mut rows: Vec<_> = keyed.into_iter().collect();
    rows.sort_unstable_by(|one, other| {
        rank(&other.1).cmp(&rank(&one.1)).then_with(|| one.0.cmp(&other.0))
    });
    rows.truncate(limit.min(ROWS_MAX) as usize);
    rows
}

/// The number of a kind of traffic, as a filter; `None`: there is no such kind.
#[allow(clippy::option_option, reason = "absent kind, kind of no number")]
fn number_of(kind: &str) -> Option<Option<u8>> {
    KINDS.iter().position(|it| *it == kind).map(|it| Some(it as u8))
}

fn array(address: &[u8]) -> [u8; 16] {
    address.try_into().unwrap_or_default()
}

/// Which addresses have the name that is asked for.
struct Called<'a> {
    filter: Option<&'a LabelFilter>,
    labels: Labels,
    known: HashMap<[u8; 16], bool>,
}

impl<'a> Called<'a> {
    fn new(reader: &Reader, filter: Option<&'a LabelFilter>) -> Result<Self, QueryError> {
        let labels = if filter.is_some() { reader.labels()? } else { Labels::default() };
        Ok(Self { filter, labels, known: HashMap::new() })
    }

    /// Whether one of `ends` has it.
    fn fits(&mut self, ends: &[&[u8]]) -> bool {
        let Some(filter) = self.filter else { return true };
        let (known, labels) = (&mut self.known, &self.labels);
        ends.iter().any(|end| {
            let end = array(end);
            *known.entry(end).or_insert_with(|| filter.fits(&labels.names(end)))
        })
    }
}

impl VolumeRow {
    /// From a key of the dimension `by`.
    fn of(by: GroupBy, key: &[u8], sums: &Sums) -> Self {
        let is_lid = key.first().is_some_and(|tag| tag & LID != 0);
        let rest = key.get(1..).unwrap_or_default();
        let address = |at: usize| rest.get(at..at + 16).map(array);
        let number = |at: usize| {
            let bytes = rest.get(at..at + 4).and_then(|it| it.try_into().ok());
            bytes.map(u32::from_be_bytes)
        };
        let text = || Some(String::from_utf8_lossy(rest).into_owned());
        let mut row = Self {
            is_lid,
            records: sums.records,
            packets: sums.packets,
            bytes: sums.bytes,
            reply_packets: sums.reply_packets,
            reply_bytes: sums.reply_bytes,
            retransmissions: sums.retransmissions,
            naks: sums.naks,
            response_ns: (sums.response_ns > 0).then_some(sums.response_ns),
            ..Self::default()
        };
        match by {
            GroupBy::Source => row.source = address(0),
            GroupBy::Destination => row.destination = address(0),
            GroupBy::Ends => (row.source, row.destination) = (address(0), address(16)),
            GroupBy::QueuePair => {
                (row.source, row.destination) = (address(0), address(16));
                row.source_qp = number(32).filter(|it| *it > 0);
                row.destination_qp = number(36);
            }
            GroupBy::Service => row.service = text(),
            GroupBy::Exporter => row.exporter = text(),
            GroupBy::Label => row.label = text(),
        }
        row
    }
}
