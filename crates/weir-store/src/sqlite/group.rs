//! All records of one flow or conversation as one row, of every record in the time asked for.
//!
//! Two walks over the records: the first tells which groups have most of what is asked for, with a
//! hash and a number for each; the second adds up those that are answered. So memory holds whole
//! rows of these alone, whatever was recorded.

use std::collections::HashMap;
use std::hash::{BuildHasher, Hasher, RandomState};

use rusqlite::types::ValueRef;
use rusqlite::{Row, Statement, params_from_iter};

use super::read::{Order, Query, QueryError, ROWS_MAX, Reader};
use super::rows::{ConversationRow, FlowRow};

/// Groups of an answer that are told apart, at most: about 50 MB.
const GROUPS_MAX: usize = 1_000_000;

/// The reason of a row that adds several records up.
const SEVERAL: &str = "several";

/// A group by what its records have in common: 128 bits, by keys that nobody knows.
type Hashed = (u64, u64);

/// What becomes one row.
pub(super) trait Grouped: Sized {
    /// Columns that records of one group have in common.
    const SAME: &'static [&'static str];
    /// What is added up.
    const SUMS: &'static [&'static str];
    /// Of what the greatest counts.
    const GREATEST: &'static [&'static str];
    /// Bits that are or-ed.
    const FLAGS: &'static [&'static str];

    fn of(row: &Row<'_>) -> rusqlite::Result<Self>;

    /// Takes the counts of its whole group, itself the latest record of it.
    fn put(&mut self, total: &Total);
}

/// What the records of a group come to.
#[derive(Debug, Default)]
pub(super) struct Total {
    latest: i64,
    records: u64,
    started_ns: i64,
    last_ns: i64,
    sums: Vec<i64>,
    greatest: Vec<Option<i64>>,
    flags: Vec<i64>,
}

/// Tells groups apart.
#[derive(Default)]
struct Hashing {
    keys: [RandomState; 2],
    /// What is hashed, at once.
    bytes: Vec<u8>,
}

impl Hashing {
    /// Of the first `columns` of `row`.
    fn of(&mut self, row: &Row<'_>, columns: usize) -> rusqlite::Result<Hashed> {
        let bytes = &mut self.bytes;
        bytes.clear();
        for column in 0..columns {
            match row.get_ref(column)? {
                ValueRef::Null => bytes.push(0),
                ValueRef::Integer(value) => {
                    bytes.push(1);
                    bytes.extend_from_slice(&value.to_ne_bytes());
                }
                ValueRef::Real(value) => {
                    bytes.push(2);
                    bytes.extend_from_slice(&value.to_ne_bytes());
                }
                ValueRef::Text(text) | ValueRef::Blob(text) => {
                    bytes.push(3);
                    bytes.extend_from_slice(&(text.len() as u32).to_ne_bytes());
                    bytes.extend_from_slice(text);
                }
            }
        }
        let hash = |key: &RandomState| {
            let mut hasher = key.build_hasher();
            hasher.write(bytes);
            hasher.finish()
        };
        Ok((hash(&self.keys[0]), hash(&self.keys[1])))
    }
}

impl Reader {
    /// The groups that `query` chooses, those with most of its order first.
    pub(super) fn grouped<T: Grouped>(
        &self,
        query: &Query,
        limit: u32,
    ) -> Result<Vec<T>, QueryError> {
        // Both walks see the same records.
        let moment = self.connection.unchecked_transaction()?;
        let (mut hashing, limit) = (Hashing::default(), limit.min(ROWS_MAX) as usize);
        let (table, order) = (query.table, query.order.expression());
        let chosen = query.chosen();
        let same = T::SAME.join(", ");
        let ranked = match query.order {
            // What comes first is known before all is seen.
            Order::Last => {
                format!("SELECT {same}, {order} FROM {table} WHERE {chosen} ORDER BY last_ns DESC")
            }
            _ => format!("SELECT {same}, {order} FROM {table} WHERE {chosen}"),
        };
        let mut ranked = moment.prepare(&ranked)?;
        let first = rank::<T>(&mut ranked, query, &mut hashing, limit)?;
        let places: HashMap<Hashed, usize> =
            first.iter().enumerate().map(|(place, hashed)| (*hashed, place)).collect();
        let columns = [T::SUMS, T::GREATEST, T::FLAGS].concat().join(", ");
        let mut counted = moment.prepare(&format!(
            "SELECT {same}, id, started_ns, last_ns, {columns} FROM {table} WHERE {chosen}"
        ))?;
        let mut totals: Vec<Total> = Vec::new();
        totals.resize_with(first.len(), Total::default);
        let mut rows = counted.query(params_from_iter(&query.values))?;
        while let Some(row) = rows.next()? {
            if let Some(place) = places.get(&hashing.of(row, T::SAME.len())?) {
                totals[*place].add::<T>(row)?;
            }
        }
        let mut latest = moment.prepare(&format!(
            "SELECT {table}.*, pair.name AS pair_name FROM {table} \
             JOIN pair ON pair.id = {table}.pair WHERE {table}.id = ?1"
        ))?;
        let row = |total: &Total| {
            let mut row = latest.query_row([total.latest], T::of)?;
            row.put(total);
            Ok(row)
        };
        totals.iter().map(row).collect()
    }
}

/// The groups that come first, in order.
fn rank<T: Grouped>(
    ranked: &mut Statement<'_>,
    query: &Query,
    hashing: &mut Hashing,
    limit: usize,
) -> Result<Vec<Hashed>, QueryError> {
    let mut groups: HashMap<Hashed, i64> = HashMap::new();
    let mut rows = ranked.query(params_from_iter(&query.values))?;
    while let Some(row) = rows.next()? {
        let hashed = hashing.of(row, T::SAME.len())?;
        let value: i64 = row.get(T::SAME.len())?;
        let count = groups.len();
        match groups.get_mut(&hashed) {
            Some(_) if query.order == Order::Last => {}
            Some(own) if query.order == Order::Response => *own = value.max(*own),
            Some(own) => *own = own.saturating_add(value),
            None if query.order == Order::Last && count == limit => break,
            None if count == GROUPS_MAX => return Err(QueryError::TooMany(GROUPS_MAX)),
            None => drop(groups.insert(hashed, value)),
        }
    }
    let mut first: Vec<(Hashed, i64)> = groups.into_iter().collect();
    let order = |one: &(Hashed, i64), other: &(Hashed, i64)| other.1.cmp(&one.1);
    if first.len() > limit {
        first.select_nth_unstable_by(limit, order);
        first.truncate(limit);
    }
    first.sort_by(order);
    Ok(first.into_iter().map(|(hashed, _)| hashed).collect())
}

impl Total {
    fn add<T: Grouped>(&mut self, row: &Row<'_>) -> rusqlite::Result<()> {
        let mut column = T::SAME.len();
        let mut next = || {
            column += 1;
            row.get::<_, Option<i64>>(column - 1)
        };
        let mut number = || next().map(Option::unwrap_or_default);
        let (id, started_ns, last_ns) = (number()?, number()?, number()?);
        if self.records == 0 {
            self.started_ns = started_ns;
            self.sums = vec![0; T::SUMS.len()];
            self.greatest = vec![None; T::GREATEST.len()];
            self.flags = vec![0; T::FLAGS.len()];
        }
        if self.records == 0 || (last_ns, id) > (self.last_ns, self.latest) {
            (self.latest, self.last_ns) = (id, last_ns);
        }
        self.records += 1;
        self.started_ns = self.started_ns.min(started_ns);
        for own in &mut self.sums {
            // Counters are stored by their bits.
            *own = (*own as u64).saturating_add(number()? as u64) as i64;
        }
        for own in &mut self.greatest {
            *own = (*own).max(next()?);
        }
        for own in &mut self.flags {
            *own |= next()?.unwrap_or_default();
        }
        Ok(())
    }
}

/// Puts `sums` where they belong.
fn put<const N: usize>(own: [&mut u64; N], sums: &[i64]) {
    own.into_iter().zip(sums).for_each(|(own, sum)| *own = *sum as u64);
}

impl Grouped for FlowRow {
    const SAME: &'static [&'static str] = &[
        "pair",
        "protocol",
        "source",
        "source_port",
        "destination",
        "destination_port",
        "vlan",
        "side",
        "exporter",
    ];
    const SUMS: &'static [&'static str] =
        &["packets", "bytes", "reply_packets", "reply_bytes", "congestion_marks", "fast_packets"];
    const GREATEST: &'static [&'static str] = &[];
    const FLAGS: &'static [&'static str] = &["tcp_flags"];

    fn of(row: &Row<'_>) -> rusqlite::Result<Self> {
        Self::of(row)
    }

    fn put(&mut self, total: &Total) {
        self.started_ns = total.started_ns as u64;
        put(
            [
                &mut self.packets,
                &mut self.bytes,
                &mut self.reply_packets,
                &mut self.reply_bytes,
                &mut self.congestion_marks,
                &mut self.fast_packets,
            ],
            &total.sums,
        );
        self.tcp_flags = total.flags[0] as u8;
        if total.records > 1 {
            SEVERAL.clone_into(&mut self.reason);
        }
    }
}

impl Grouped for ConversationRow {
    const SAME: &'static [&'static str] = &[
        "pair",
        "encapsulation",
        "service",
        "source",
        "source_qp",
        "destination",
        "destination_qp",
        "vlan",
        "side",
        "partition_key",
        "exporter",
    ];
    const SUMS: &'static [&'static str] = &[
        "packets",
        "bytes",
        "payload_bytes",
        "messages",
        "reply_packets",
        "reply_bytes",
        "reply_payload_bytes",
        "reply_messages",
        "send_bytes",
        "write_bytes",
        "read_bytes",
        "atomic_bytes",
        "retransmissions",
        "naks",
        "rnr_naks",
        "cnp",
        "congestion_marks",
        "missing",
        "icrc_bad",
    ];
    const GREATEST: &'static [&'static str] = &["path_mtu", "response_ns"];
    const FLAGS: &'static [&'static str] = &[];

    fn of(row: &Row<'_>) -> rusqlite::Result<Self> {
        Self::of(row)
    }

    fn put(&mut self, total: &Total) {
        self.started_ns = total.started_ns as u64;
        put(
            [
                &mut self.packets,
                &mut self.bytes,
                &mut self.payload_bytes,
                &mut self.messages,
                &mut self.reply_packets,
                &mut self.reply_bytes,
                &mut self.reply_payload_bytes,
                &mut self.reply_messages,
                &mut self.send_bytes,
                &mut self.write_bytes,
                &mut self.read_bytes,
                &mut self.atomic_bytes,
                &mut self.retransmissions,
                &mut self.naks,
                &mut self.rnr_naks,
                &mut self.cnp,
                &mut self.congestion_marks,
                &mut self.missing,
                &mut self.icrc_bad,
            ],
            &total.sums,
        );
        self.path_mtu = total.greatest[0].unwrap_or_default() as u16;
        self.response_ns = total.greatest[1].map(|ns| ns as u64);
        if total.records > 1 {
            SEVERAL.clone_into(&mut self.reason);
        }
    }
}
