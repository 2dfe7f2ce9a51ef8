//! The sums follow the records: what is beyond the watermark is added up, in the transaction that
//! moves the watermark, so that a gateway that is killed counts nothing twice and forgets nothing.

use std::collections::{BTreeSet, HashMap};

use rusqlite::{Connection, Transaction, params};

use super::super::labels;
use super::super::summary::{GroupBy, Volumes};
use super::source::Deltas;
use super::{
    Dimension, KEYS_MAX, Keyed, LEVELS_S, OPEN_KEYS_MAX, REST, SUMS, Sums, add_to, floor,
    keep_greatest, read_slices,
};
use crate::clock;

/// Records of each kind that one transaction adds up.
pub(in super::super) const CHUNK_RECORDS: usize = 32_768;

/// How long after its end a slice still grows: records come when a flow was idle for so long.
const GRACE_S: i64 = 60;

/// Slices whose keys are counted in memory; beyond, the counts are read again.
const COUNTED_MAX: usize = 65_536;

/// How far the sums are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct State {
    /// The last flow and the last conversation that are in the sums.
    pub(super) records: [i64; 2],
    /// Slices of [`LEVELS_S`] that begin before are over, and whole.
    pub(super) until_s: [i64; 4],
}

/// Slices of one dimension that grow at a time: those of a minute, for [`GRACE_S`] more.
const GROWING_SLICES: u64 = 3;

/// What a row takes, about.
const ROW_BYTES: u64 = 60;

const RECORD_TABLES: [&str; 2] = ["flow", "conversation"];

impl State {
    pub(super) fn read(connection: &Connection) -> rusqlite::Result<Self> {
        let mut select =
            connection.prepare_cached("SELECT value FROM rollup_state WHERE name = ?1")?;
        let mut value = |name: &str| match select.query_row([name], |row| row.get(0)) {
            Err(rusqlite::Error::QueryReturnedNoRows) => Ok(0),
            other => other,
        };
        let mut state = Self::default();
        for (own, table) in state.records.iter_mut().zip(RECORD_TABLES) {
            *own = value(table)?;
        }
        for (own, level) in state.until_s.iter_mut().zip(LEVELS_S) {
            *own = value(&format!("until_{level}"))?;
        }
        Ok(state)
    }

    fn write(&self, connection: &Connection) -> rusqlite::Result<()> {
        let mut insert = connection
            .prepare_cached("INSERT OR REPLACE INTO rollup_state (name, value) VALUES (?1, ?2)")?;
        for (own, table) in self.records.iter().zip(RECORD_TABLES) {
            insert.execute((table, own))?;
        }
        for (own, level) in self.until_s.iter().zip(LEVELS_S) {
            insert.execute((format!("until_{level}"), own))?;
        }
        Ok(())
    }
}

/// The numbers of records that were removed are given again: the watermark must not stand above
/// them. To be called after each removal, and when a store is opened.
pub(in super::super) fn records_removed(connection: &Connection) -> rusqlite::Result<()> {
    for table in RECORD_TABLES {
        let sql = format!(
            "UPDATE rollup_state SET value = \
             min(value, (SELECT coalesce(max(id), 0) FROM {table})) WHERE name = '{table}'"
        );
        connection.execute(&sql, [])?;
    }
    Ok(())
}

/// Removes slices of `level` seconds that begin within `times`, as far as coarser ones have them.
pub(in super::super) fn remove(
    connection: &Connection,
    level: i64,
    times: std::ops::Range<i64>,
) -> rusqlite::Result<()> {
    // What is in no coarser slice yet stays.
    let until_s = times.end.min(in_coarser_until(connection, level)?);
    let mut remove = connection.prepare_cached(
        "DELETE FROM rollup WHERE slice_s = ?1 AND dimension = ?2 AND time_s >= ?3 AND time_s < ?4",
    )?;
    for dimension in dimensions() {
        remove.execute((level, dimension.number(), times.start, until_s))?;
    }
    Ok(())
}

/// The time before which coarser slices have what those of `level` seconds have.
pub(in super::super) fn in_coarser_until(
    connection: &Connection,
    level: i64,
) -> rusqlite::Result<i64> {
    let state = State::read(connection)?;
    let coarser = LEVELS_S.iter().position(|it| *it > level).map(|index| state.until_s[index]);
    Ok(coarser.unwrap_or(i64::MAX))
}

/// Removes the oldest slice of `level` seconds that begins before `until_s`, of each dimension; how
/// many rows those were.
pub(in super::super) fn remove_oldest(
    connection: &Connection,
    level: i64,
    until_s: i64,
) -> rusqlite::Result<usize> {
    let mut remove = connection.prepare_cached(
        "DELETE FROM rollup WHERE slice_s = ?1 AND dimension = ?2 AND time_s = \
         (SELECT min(time_s) FROM rollup WHERE slice_s = ?1 AND dimension = ?2) AND time_s < ?3",
    )?;
    dimensions().map(|dimension| remove.execute((level, dimension.number(), until_s))).sum()
}

/// The store thread's part of the sums.
#[derive(Debug)]
pub(in super::super) struct Rollup {
    /// Keys of a dimension in a slice that still grows.
    open_keys_max: usize,
    /// Keys of a dimension in a slice that is over.
    keys_max: usize,
    /// The latest second that a record ended in.
    newest_s: i64,
    /// Keys of slices, as far as they were counted.
    keys: HashMap<(i64, i64, Dimension), usize>,
}

impl Rollup {
    /// Slices that still grow take at most about a quarter of a store of so many bytes.
    pub(in super::super) fn new(size_bytes_max: u64) -> Self {
        let growing = dimensions().count() as u64 * GROWING_SLICES * ROW_BYTES;
        let fitting = usize::try_from(size_bytes_max / 4 / growing).unwrap_or(usize::MAX);
        let open_keys_max = fitting.clamp(1, OPEN_KEYS_MAX);
        Self {
            open_keys_max,
            keys_max: open_keys_max.min(KEYS_MAX),
            newest_s: 0,
            keys: HashMap::new(),
        }
    }

    /// Adds up what came since; whether there is more.
    pub(in super::super) fn advance(
        &mut self,
        connection: &mut Connection,
    ) -> rusqlite::Result<bool> {
        let advanced = self.try_advance(connection);
        if advanced.is_err() {
            // What was counted may not have been written.
            self.keys.clear();
        }
        advanced
    }

    fn try_advance(&mut self, connection: &mut Connection) -> rusqlite::Result<bool> {
        let transaction = connection.transaction()?;
        let before = State::read(&transaction)?;
        let mut state = before;
        let mut deltas = Deltas::new(labels::read(&transaction)?, None);
        let chosen = "id > ?1 ORDER BY id LIMIT ?2";
        let limit = CHUNK_RECORDS as i64;
        let [flow, conversation] = before.records;
        let (last, flows) = deltas.add_flows(&transaction, chosen, &[&flow, &limit])?;
        state.records[0] = last.max(flow);
        let (last, conversations) =
            deltas.add_conversations(&transaction, chosen, &[&conversation, &limit])?;
        state.records[1] = last.max(conversation);
        let latest = deltas.slices.keys().map(|(time_s, _)| time_s + LEVELS_S[0]).max();
        // A clock that was ahead for a while must not end all slices until then.
        self.newest_s = self.newest_s.max(latest.unwrap_or(0)).min(now_s() + LEVELS_S[0]);
        for ((time_s, dimension), mut keyed) in deltas.slices {
            self.write_delta(&transaction, &state, (time_s, dimension), &mut keyed)?;
        }
        self.end_slices(&transaction, &mut state)?;
        if state != before {
            state.write(&transaction)?;
        }
        transaction.commit()?;
        Ok(flows == CHUNK_RECORDS || conversations == CHUNK_RECORDS)
    }

    /// What came of a slice of a minute, into it and into the coarser ones that are made already.
    fn write_delta(
        &mut self,
        transaction: &Transaction<'_>,
        state: &State,
        (time_s, dimension): (i64, Dimension),
        keyed: &mut Keyed,
    ) -> rusqlite::Result<()> {
        let is_over = time_s + LEVELS_S[0] + GRACE_S <= self.newest_s;
        if is_over && self.key_count(transaction, (LEVELS_S[0], time_s, dimension))? == 0 {
            keep_greatest(keyed, self.keys_max);
        }
        let is_ended = time_s < state.until_s[0];
        let keys_max = if is_ended { self.keys_max } else { self.open_keys_max };
        self.add(transaction, (LEVELS_S[0], time_s, dimension), keyed, keys_max)?;
        for (level, until_s) in LEVELS_S.into_iter().zip(state.until_s).skip(1) {
            let start = floor(time_s, level);
            if start < until_s {
                self.add(transaction, (level, start, dimension), keyed, self.keys_max)?;
            }
        }
        Ok(())
    }

    /// Adds to a slice that has room for `keys_max` keys; the others join its rest.
    fn add(
        &mut self,
        transaction: &Transaction<'_>,
        slice: (i64, i64, Dimension),
        keyed: &Keyed,
        keys_max: usize,
    ) -> rusqlite::Result<()> {
        let mut count = self.key_count(transaction, slice)?;
        let is_new = count == 0;
        let mut rest = Sums::default();
        for (key, sums) in keyed {
            let is_named = key.as_slice() != REST;
            if is_named && !is_new && raise(transaction, slice, key, sums)? {
                continue;
            }
            if is_named && count < keys_max {
                insert(transaction, slice, key, sums)?;
                count += 1;
            } else {
                rest.add(sums);
            }
        }
        if rest.records > 0 && !raise(transaction, slice, REST, &rest)? {
            insert(transaction, slice, REST, &rest)?;
        }
        self.keys.insert(slice, count);
        Ok(())
    }

    fn key_count(
        &mut self,
        transaction: &Transaction<'_>,
        slice: (i64, i64, Dimension),
    ) -> rusqlite::Result<usize> {
        if let Some(count) = self.keys.get(&slice) {
            return Ok(*count);
        }
        if self.keys.len() >= COUNTED_MAX {
            self.keys.clear();
        }
        let (level, time_s, dimension) = slice;
        let mut select = transaction.prepare_cached(
            "SELECT count(*) FROM rollup WHERE slice_s = ?1 AND dimension = ?2 AND time_s = ?3 \
             AND key > x''",
        )?;
        let counted: i64 =
            select.query_row((level, dimension.number(), time_s), |row| row.get(0))?;
        self.keys.insert(slice, counted as usize);
        Ok(counted as usize)
    }

    /// Cuts slices that are over to their greatest keys, and makes the coarser ones.
    fn end_slices(
        &mut self,
        transaction: &Transaction<'_>,
        state: &mut State,
    ) -> rusqlite::Result<()> {
        let until_s = floor(self.newest_s - GRACE_S, LEVELS_S[0]);
        if until_s <= state.until_s[0] {
            return Ok(());
        }
        for dimension in dimensions() {
            cut(transaction, dimension, state.until_s[0]..until_s)?;
        }
        state.until_s[0] = until_s;
        for index in 1..LEVELS_S.len() {
            let (finer, level) = (LEVELS_S[index - 1], LEVELS_S[index]);
            let (from_s, until_s) = (state.until_s[index], floor(state.until_s[index - 1], level));
            if until_s <= from_s {
                break;
            }
            for dimension in dimensions() {
                for start in starts(transaction, (finer, dimension), from_s..until_s, level)? {
                    let mut keyed = Keyed::new();
                    let slice = (finer, dimension);
                    let times = start..start + level;
                    read_slices(transaction, slice, times, &mut keyed, |key| Some(key.to_vec()))?;
                    keep_greatest(&mut keyed, self.keys_max);
                    self.add(transaction, (level, start, dimension), &keyed, self.keys_max)?;
                }
            }
            state.until_s[index] = until_s;
        }
        let over_s = state.until_s[0];
        self.keys.retain(|(level, time_s, _), _| *level == LEVELS_S[0] && *time_s >= over_s);
        Ok(())
    }
}

/// All that are added up.
fn dimensions() -> impl Iterator<Item = Dimension> {
    let volumes = [Volumes::Flows, Volumes::Conversations]
        .into_iter()
        .flat_map(|of| GroupBy::ALL.into_iter().map(move |by| Dimension::of(of, by)));
    std::iter::once(Dimension::TALKERS).chain(volumes)
}

/// Starts of the slices of `level` seconds that slices of `finer` seconds within `times` make.
fn starts(
    transaction: &Transaction<'_>,
    (finer, dimension): (i64, Dimension),
    times: std::ops::Range<i64>,
    level: i64,
) -> rusqlite::Result<BTreeSet<i64>> {
    let mut select = transaction.prepare_cached(
        "SELECT DISTINCT time_s FROM rollup WHERE slice_s = ?1 AND dimension = ?2 \
         AND time_s >= ?3 AND time_s < ?4",
    )?;
    let values = params![finer, dimension.number(), times.start, times.end];
    let rows = select.query_map(values, |row| row.get::<_, i64>(0))?;
    rows.map(|it| Ok(floor(it?, level))).collect()
}

/// Cuts slices of a minute to their greatest keys.
fn cut(
    transaction: &Transaction<'_>,
    dimension: Dimension,
    times: std::ops::Range<i64>,
) -> rusqlite::Result<()> {
    let level = LEVELS_S[0];
    let mut select = transaction.prepare_cached(
        "SELECT time_s FROM rollup WHERE slice_s = ?1 AND dimension = ?2 AND time_s >= ?3 \
         AND time_s < ?4 AND key > x'' GROUP BY time_s HAVING count(*) > ?5",
    )?;
    let values = params![level, dimension.number(), times.start, times.end, KEYS_MAX as i64];
    let full: Vec<i64> = select.query_map(values, |row| row.get(0))?.collect::<Result<_, _>>()?;
    for time_s in full {
        let mut smaller = transaction.prepare_cached(&format!(
            "SELECT key, {SUMS} FROM rollup WHERE slice_s = ?1 AND dimension = ?2 \
             AND time_s = ?3 AND key > x'' ORDER BY bytes + reply_bytes DESC LIMIT -1 OFFSET ?4"
        ))?;
        let mut remove = transaction.prepare_cached(
            "DELETE FROM rollup WHERE slice_s = ?1 AND dimension = ?2 AND time_s = ?3 AND key = ?4",
        )?;
        let mut removed = Keyed::new();
        let values = params![level, dimension.number(), time_s, KEYS_MAX as i64];
        let mut rows = smaller.query(values)?;
        while let Some(row) = rows.next()? {
            add_to(&mut removed, row.get_ref(0)?.as_blob()?, &Sums::at(row, 1)?);
        }
        drop(rows);
        let mut rest = Sums::default();
        for (key, sums) in removed {
            remove.execute(params![level, dimension.number(), time_s, key])?;
            rest.add(&sums);
        }
        let slice = (level, time_s, dimension);
        if !raise(transaction, slice, REST, &rest)? {
            insert(transaction, slice, REST, &rest)?;
        }
    }
    Ok(())
}

/// Adds to a key of a slice. A sum that SQLite's integers have no room for stays at the greatest:
/// it would become a floating-point number, and nobody could read it.
const RAISE: &str = "UPDATE rollup SET \
    records = min(records, 9223372036854775807 - ?5) + ?5, \
    packets = min(packets, 9223372036854775807 - ?6) + ?6, \
    bytes = min(bytes, 9223372036854775807 - ?7) + ?7, \
    reply_packets = min(reply_packets, 9223372036854775807 - ?8) + ?8, \
    reply_bytes = min(reply_bytes, 9223372036854775807 - ?9) + ?9, \
    retransmissions = min(retransmissions, 9223372036854775807 - ?10) + ?10, \
    naks = min(naks, 9223372036854775807 - ?11) + ?11, \
    response_ns = max(response_ns, ?12) \
    WHERE slice_s = ?1 AND dimension = ?2 AND time_s = ?3 AND key = ?4";

/// Adds to a key of a slice; whether it is there.
fn raise(
    transaction: &Transaction<'_>,
    (level, time_s, dimension): (i64, i64, Dimension),
    key: &[u8],
    sums: &Sums,
) -> rusqlite::Result<bool> {
    let mut update = transaction.prepare_cached(RAISE)?;
    let [a, b, c, d, e, f, g, h] = sums.values();
    let values = params![level, dimension.number(), time_s, key, a, b, c, d, e, f, g, h];
    Ok(update.execute(values)? > 0)
}

fn insert(
    transaction: &Transaction<'_>,
    (level, time_s, dimension): (i64, i64, Dimension),
    key: &[u8],
    sums: &Sums,
) -> rusqlite::Result<()> {
    let mut insert = transaction.prepare_cached(
        "INSERT INTO rollup (slice_s, dimension, time_s, key, records, packets, bytes, \
         reply_packets, reply_bytes, retransmissions, naks, response_ns) \
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12)",
    )?;
    let [a, b, c, d, e, f, g, h] = sums.values();
    insert.execute(params![level, dimension.number(), time_s, key, a, b, c, d, e, f, g, h])?;
    Ok(())
}

fn now_s() -> i64 {
    clock::seconds() as i64
}
