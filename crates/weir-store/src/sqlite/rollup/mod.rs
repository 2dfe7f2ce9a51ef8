//! Sums by dimension and slice of time, so that a question over millions of records reads thousands
//! of rows (docs/adr/0190).
//!
//! ```text
//!  flow, conversation --records beyond the watermark--> slices of 60 s -> 600 s -> 3600 s -> 1 day
//!                                                            |            |         |          |
//!                              a question: the coarsest whole slices that its span has --------+
//! ```
//!
//! A slice keeps the [`KEYS_MAX`] greatest keys of a dimension; what is smaller is added up as
//! [`REST`]. Sums are exact; keys that were never among the greatest of their slice are not named.

pub(super) mod advance;
mod answer;
pub(super) mod source;

use std::collections::HashMap;
use std::hash::Hash;

use rusqlite::{Row, params};

use super::summary::{GroupBy, Volumes};

pub use answer::Summed;

/// Slices, seconds; each is a multiple of the one before.
pub(super) const LEVELS_S: [i64; 4] = [60, 600, 3600, 86_400];

/// Keys of a dimension in a slice that is over.
pub(super) const KEYS_MAX: usize = 2048;

/// Keys of a dimension in a slice that still grows: who will be among the greatest shows late.
pub(super) const OPEN_KEYS_MAX: usize = 8192;

/// The key of all that is not named.
pub(super) const REST: &[u8] = &[];

/// What is added up: of one kind of records, by one kind of key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct Dimension(i64);

impl Dimension {
    /// By address: packets that it sent, and as replies those that it received.
    pub(super) const TALKERS: Self = Self(0);

    /// What [`super::Reader::volumes`] asks for.
    pub(super) fn of(of: Volumes, by: GroupBy) -> Self {
        let kind = match of {
            Volumes::Flows => 16,
            Volumes::Conversations => 32,
        };
        Self(kind + by as i64)
    }

    /// As the file has it.
    pub(super) fn number(self) -> i64 {
        self.0
    }
}

/// What one key carried in a slice.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Sums {
    pub(super) records: u64,
    pub(super) packets: u64,
    pub(super) bytes: u64,
    pub(super) reply_packets: u64,
    pub(super) reply_bytes: u64,
    pub(super) retransmissions: u64,
    pub(super) naks: u64,
    /// The slowest answer; zero: none was timed.
    pub(super) response_ns: u64,
}

/// The columns of [`Sums`], in order.
pub(super) const SUMS: &str = "records, packets, bytes, reply_packets, reply_bytes, \
                               retransmissions, naks, response_ns";

impl Sums {
    pub(super) fn add(&mut self, other: &Self) {
        for (own, other) in [
            (&mut self.records, other.records),
            (&mut self.packets, other.packets),
            (&mut self.bytes, other.bytes),
            (&mut self.reply_packets, other.reply_packets),
            (&mut self.reply_bytes, other.reply_bytes),
            (&mut self.retransmissions, other.retransmissions),
            (&mut self.naks, other.naks),
        ] {
            *own = own.saturating_add(other);
        }
        self.response_ns = self.response_ns.max(other.response_ns);
    }

    /// Bytes there and back: by these the greatest are told.
    pub(super) fn volume(&self) -> u64 {
        self.bytes.saturating_add(self.reply_bytes)
    }

    /// From the columns of [`SUMS`], the first of which is at `first`.
    fn at(row: &Row<'_>, first: usize) -> rusqlite::Result<Self> {
        let count = |index: usize| row.get::<_, i64>(first + index).map(|it| it as u64);
        Ok(Self {
            records: count(0)?,
            packets: count(1)?,
            bytes: count(2)?,
            reply_packets: count(3)?,
            reply_bytes: count(4)?,
            retransmissions: count(5)?,
            naks: count(6)?,
            response_ns: count(7)?,
        })
    }

    /// As the file has them: SQLite's integers end where those of 63 bits do.
    fn values(&self) -> [i64; 8] {
        [
            self.records,
            self.packets,
            self.bytes,
            self.reply_packets,
            self.reply_bytes,
            self.retransmissions,
            self.naks,
            self.response_ns,
        ]
        .map(|it| i64::try_from(it).unwrap_or(i64::MAX))
    }
}

/// Sums by key.
pub(super) type Keyed = HashMap<Vec<u8>, Sums>;

/// Adds `sums` to what `key` has; a key is copied only when it is new.
pub(super) fn add_to(keyed: &mut Keyed, key: &[u8], sums: &Sums) {
    match keyed.get_mut(key) {
        Some(own) => own.add(sums),
        None => {
            keyed.insert(key.to_vec(), *sums);
        }
    }
}

/// Keeps the greatest `keys_max` keys of `keyed`; the others become the rest.
pub(super) fn keep_greatest(keyed: &mut Keyed, keys_max: usize) {
    let mut rest = keyed.remove(REST).unwrap_or_default();
    if keyed.len() > keys_max {
        let mut all: Vec<_> = keyed.drain().collect();
        all.select_nth_unstable_by(keys_max, |one, other| {
            other.1.volume().cmp(&one.1.volume()).then_with(|| one.0.cmp(&other.0))
        });
        all[keys_max..].iter().for_each(|(_, sums)| rest.add(sums));
        all.truncate(keys_max);
        keyed.extend(all);
    }
    if rest.records > 0 {
        keyed.insert(REST.to_vec(), rest);
    }
}

/// Start of the slice of `level` seconds that `time_s` lies in.
pub(super) fn floor(time_s: i64, level: i64) -> i64 {
    time_s - time_s.rem_euclid(level)
}

/// All rows of `dimension` in slices of `level` seconds that begin within `times`, into `keyed`.
fn read_slices(
    connection: &rusqlite::Connection,
    (level, dimension): (i64, Dimension),
    times: std::ops::Range<i64>,
    keyed: &mut Keyed,
    mut key_of: impl FnMut(&[u8]) -> Option<Vec<u8>>,
) -> rusqlite::Result<()> {
    let mut select = connection.prepare_cached(&format!(
        "SELECT key, {SUMS} FROM rollup WHERE slice_s = ?1 AND dimension = ?2 \
         AND time_s >= ?3 AND time_s < ?4"
    ))?;
    let mut rows = select.query(params![level, dimension.number(), times.start, times.end])?;
    while let Some(row) = rows.next()? {
        let key = row.get_ref(0)?.as_blob().unwrap_or(REST);
        if let Some(key) = key_of(key) {
            add_to(keyed, &key, &Sums::at(row, 1)?);
        }
    }
    Ok(())
}
