//! Blocks of columns beside the records: what a question for groups needs of 4096 records, column
//! by column, so that it is added up at the speed of memory (docs/adr/0267).
//!
//! ```text
//!  flow      | 1 2 3 ... 4096 | 4097 ... 8192 | 8193 ... newest |
//!  flow_block|      block     |     block     |  (rows as yet)  |
//! ```
//!
//! A block repeats its records and is true by that alone: a trigger removes it with the first of
//! them. What is in no block is read from the rows and made a block in memory, so that one way of
//! adding up serves both.

mod advance;
mod block;
mod keys;
mod volumes;
mod walk;

use rusqlite::Row;

pub(super) use advance::advance;
pub(super) use block::{ABSENT, Block};
pub(super) use keys::{ByKey, Keys};
pub(super) use volumes::sums_of_records;
pub(super) use walk::Walk;

/// Records of a block.
pub(super) const BLOCK_RECORDS: usize = 4096;

/// What a column holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// Integers, absent ones as [`ABSENT`].
    Number,
    /// Texts and bytes, of which many records have the same.
    Value,
}

/// Columns of a table that its blocks have. The first are those of [`FIRST`].
#[derive(Debug)]
pub(super) struct Layout {
    pub(super) table: &'static str,
    /// What records of one group have in common.
    pub(super) same: &'static [(&'static str, Kind)],
    /// What is added up.
    pub(super) sums: &'static [&'static str],
    /// Of what the greatest counts.
    pub(super) greatest: &'static [&'static str],
    /// Bits that are or-ed.
    pub(super) flags: &'static [&'static str],
}

/// Number, end and start of each record.
const FIRST: [&str; 3] = ["id", "last_ns", "started_ns"];

/// Places of the columns of [`FIRST`].
pub(super) const ID: usize = 0;
pub(super) const LAST_NS: usize = 1;
pub(super) const STARTED_NS: usize = 2;

impl Layout {
    /// All that have blocks.
    pub(super) const ALL: [&'static Self; 2] = [&Self::FLOWS, &Self::CONVERSATIONS];

    pub(super) const FLOWS: Self = Self {
        table: "flow",
        same: &[
            ("pair", Kind::Number),
            ("protocol", Kind::Number),
            ("source", Kind::Value),
            ("source_port", Kind::Number),
            ("destination", Kind::Value),
            ("destination_port", Kind::Number),
            ("vlan", Kind::Number),
            ("side", Kind::Value),
            ("exporter", Kind::Value),
        ],
        sums: &[
            "packets",
            "bytes",
            "reply_packets",
            "reply_bytes",
            "congestion_marks",
            "fast_packets",
        ],
        greatest: &[],
        flags: &["tcp_flags"],
    };

    pub(super) const CONVERSATIONS: Self = Self {
        table: "conversation",
        same: &[
            ("pair", Kind::Number),
            ("encapsulation", Kind::Value),
            ("service", Kind::Value),
            ("source", Kind::Value),
            ("source_qp", Kind::Number),
            ("destination", Kind::Value),
            ("destination_qp", Kind::Number),
            ("vlan", Kind::Number),
            ("side", Kind::Value),
            ("partition_key", Kind::Number),
            ("exporter", Kind::Value),
        ],
        sums: &[
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
        ],
        greatest: &["path_mtu", "response_ns"],
        flags: &[],
    };

    /// All columns with their kinds, in the order of a block.
    fn columns(&self) -> impl Iterator<Item = (&'static str, Kind)> {
        let first = FIRST.into_iter().map(|name| (name, Kind::Number));
        let counts = self.sums.iter().chain(self.greatest).chain(self.flags);
        let counts = counts.map(|name| (*name, Kind::Number));
        first.chain(self.same.iter().copied()).chain(counts)
    }

    /// The place of a column, where there is one of that name.
    pub(super) fn place(&self, name: &str) -> Option<usize> {
        self.columns().position(|(own, _)| own == name)
    }

    /// Places of what records of one group have in common.
    pub(super) fn same_places(&self) -> std::ops::Range<usize> {
        FIRST.len()..FIRST.len() + self.same.len()
    }

    /// Places of what is added up.
    pub(super) fn sum_places(&self) -> std::ops::Range<usize> {
        let start = self.same_places().end;
        start..start + self.sums.len()
    }

    /// Places of what the greatest counts of.
    pub(super) fn greatest_places(&self) -> std::ops::Range<usize> {
        let start = self.sum_places().end;
        start..start + self.greatest.len()
    }

    /// Places of bits that are or-ed.
    pub(super) fn flag_places(&self) -> std::ops::Range<usize> {
        let start = self.greatest_places().end;
        start..start + self.flags.len()
    }

    /// A question for the columns of a block, without its conditions.
    fn select(&self) -> String {
        let names: Vec<_> = self.columns().map(|(name, _)| name).collect();
        format!("SELECT {} FROM {}", names.join(", "), self.table)
    }

    /// The table of its blocks.
    fn blocks(&self) -> String {
        format!("{}_block", self.table)
    }
}

/// Gathers records for a block.
fn gather(builder: &mut block::Builder, row: &Row<'_>) -> rusqlite::Result<()> {
    builder.add(|place| row.get_ref(place))
}
