//! What crossed in a span of time, whole: to be set against the span before it.

use rusqlite::types::Value;
use rusqlite::{Row, params_from_iter};

use super::read::{QueryError, Range, Reader};

/// What crossed all pairs of a gateway.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names of the API")]
pub struct PeriodRow {
    /// From hosts.
    pub host_bytes: u64,
    /// From the wire.
    pub wire_bytes: u64,
    pub host_packets: u64,
    pub wire_packets: u64,
    /// Packets dropped, at all ports.
    pub dropped: u64,
}

impl Reader {
    /// What crossed within `range`, in the slices of counters that suit it.
    ///
    /// # Errors
    /// [`QueryError`].
    pub fn period(&self, range: Range) -> Result<PeriodRow, QueryError> {
        let (resolution, [from, until]) = self.counter_slices(range);
        let sql = "SELECT scope.kind AS kind, counter_name.name AS name, sum(value) AS value \
                   FROM counter JOIN scope ON scope.id = counter.scope \
                   JOIN counter_name ON counter_name.id = counter.name \
                   WHERE resolution_s = ? AND time_s >= ? AND time_s < ? \
                   AND scope.kind IN ('host', 'wire') \
                   AND counter_name.name IN ('received', 'received_bytes', 'dropped') \
                   GROUP BY 1, 2";
        let values: [Value; 3] = [resolution, from, until];
        let mut period = PeriodRow::default();
        for (kind, name, value) in self.rows(sql, params_from_iter(values), sum)? {
            match (kind.as_str(), name.as_str()) {
                (_, "dropped") => period.dropped += value,
                ("host", "received_bytes") => period.host_bytes = value,
                ("wire", "received_bytes") => period.wire_bytes = value,
                ("host", _) => period.host_packets = value,
                _ => period.wire_packets = value,
            }
        }
        Ok(period)
    }
}

fn sum(row: &Row<'_>) -> rusqlite::Result<(String, String, u64)> {
    Ok((row.get("kind")?, row.get("name")?, row.get::<_, i64>("value")? as u64))
}
