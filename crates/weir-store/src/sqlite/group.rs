//! All records of one flow or conversation as one row, of every record in the time asked for.
//!
//! One walk over the records tells which groups have most of what is asked for, with a hash and a
//! number for each; then the records of those that are answered are added up, each by its number.
//! So memory holds whole rows of these alone, whatever was recorded.

use std::collections::HashMap;
use std::hash::{BuildHasher, Hasher, RandomState};

use rusqlite::types::ValueRef;
use rusqlite::{Connection, Row, params_from_iter};

use super::read::{Order, Query, QueryError, ROWS_MAX, Reader};
use super::rows::{ConversationRow, FlowRow};

/// Groups of an answer that are told apart, at most: about 50 MB.
const GROUPS_MAX: usize = 1_000_000;

/// Records whose groups are kept beside the groups, at most: 32 MB.
const MEMBERS_MAX: usize = 2_000_000;

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

/// Which place each group of an answer has in it.
type Places = HashMap<Hashed, u32>;

/// Records, each by the place of its group and its number.
type Members = Vec<(u32, i64)>;

impl Reader {
    /// The groups that `query` chooses, those with most of its order first.
    pub(super) fn grouped<T: Grouped>(
        &self,
        query: &Query,
        limit: u32,
    ) -> Result<Vec<T>, QueryError> {
        // All is read at one moment.
        let moment = self.connection.unchecked_transaction()?;
        let (mut hashing, limit) = (Hashing::default(), limit.min(ROWS_MAX) as usize);
        let (table, walk) = (query.table, query.by_number(&moment)?);
        let columns = [T::SUMS, T::GREATEST, T::FLAGS].concat().join(", ");
        let mut counted = moment.prepare(&format!(
            "SELECT id, started_ns, last_ns, {columns} FROM {table} WHERE id = ?1"
        ))?;
        let mut totals: Vec<Total> = Vec::new();
        let mut add = |place: u32, id: i64| {
            let place = place as usize;
            totals.resize_with(totals.len().max(place + 1), Total::default);
            counted.query_row([id], |row| totals[place].add::<T>(row))
        };
        let (places, members) = match query.order {
            Order::Last => (latest::<T>(&moment, query, &mut hashing, limit)?, None),
            _ => ranked::<T>(&moment, &walk, &mut hashing, limit)?,
        };
        match members {
            Some(members) => members.into_iter().try_for_each(|(place, id)| add(place, id))?,
            None => {
                let mut select = moment.prepare(&walk.select(&[T::SAME, &["id"]].concat()))?;
                let mut rows = select.query(params_from_iter(&walk.values))?;
                while let Some(row) = rows.next()? {
                    if let Some(place) = places.get(&hashing.of(row, T::SAME.len())?) {
                        add(*place, row.get(T::SAME.len())?)?;
                    }
                }
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

/// The groups whose last record is the latest: what comes first is known before all is seen.
fn latest<T: Grouped>(
    moment: &Connection,
    query: &Query,
    hashing: &mut Hashing,
    limit: usize,
) -> Result<Places, QueryError> {
    let mut places = Places::new();
    let mut select = moment.prepare(&format!("{} ORDER BY last_ns DESC", query.select(T::SAME)))?;
    let mut rows = select.query(params_from_iter(&query.values))?;
    while places.len() < limit {
        let Some(row) = rows.next()? else { break };
        let next = places.len() as u32;
        places.entry(hashing.of(row, T::SAME.len())?).or_insert(next);
    }
    Ok(places)
}

/// The groups that have most, and the records of each, by place; without these where they are more
/// than [`MEMBERS_MAX`].
fn ranked<T: Grouped>(
    moment: &Connection,
    walk: &Query,
    hashing: &mut Hashing,
    limit: usize,
) -> Result<(Places, Option<Members>), QueryError> {
    let mut groups = Places::new();
    let mut values: Vec<i64> = Vec::new();
    let mut seen = Some(Members::new());
    let columns = [T::SAME, &["id", walk.order.expression()]].concat();
    let mut select = moment.prepare(&walk.select(&columns))?;
    let mut rows = select.query(params_from_iter(&walk.values))?;
    while let Some(row) = rows.next()? {
        let next = values.len() as u32;
        let group = *groups.entry(hashing.of(row, T::SAME.len())?).or_insert(next);
        if group == next {
            if values.len() == GROUPS_MAX {
                return Err(QueryError::TooMany(GROUPS_MAX));
            }
            values.push(0);
        }
        let (own, value) = (&mut values[group as usize], row.get::<_, i64>(T::SAME.len() + 1)?);
        *own = match walk.order {
            Order::Response => value.max(*own),
            _ => own.saturating_add(value),
        };
        match &mut seen {
            Some(all) if all.len() < MEMBERS_MAX => all.push((group, row.get(T::SAME.len())?)),
            _ => seen = None,
        }
    }
    let mut first: Vec<u32> = (0..values.len() as u32).collect();
    let most_first = |group: &u32| std::cmp::Reverse(values[*group as usize]);
    if first.len() > limit {
        first.select_nth_unstable_by_key(limit, most_first);
        first.truncate(limit);
    }
    first.sort_by_key(most_first);
    let mut place_of = vec![None; values.len()];
    (0..).zip(&first).for_each(|(place, group)| place_of[*group as usize] = Some(place));
    groups.retain(|_, group| match place_of[*group as usize] {
        Some(place) => {
            *group = place;
            true
        }
        None => false,
    });
    let member = |(group, id): (u32, i64)| Some((place_of[group as usize]?, id));
    let members = seen.map(|all| all.into_iter().filter_map(member).collect());
    Ok((groups, members))
}

impl Total {
    fn add<T: Grouped>(&mut self, row: &Row<'_>) -> rusqlite::Result<()> {
        let mut column = 0;
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
