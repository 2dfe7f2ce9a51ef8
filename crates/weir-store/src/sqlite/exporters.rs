//! Who exports to a collector, from the counters that it stores.

use std::collections::BTreeMap;

use rusqlite::{Row, params_from_iter};

use super::read::{QueryError, Range, Reader};

/// An exporter's domain, and what its counters grew by.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ExporterRow {
    /// Its address.
    pub exporter: String,
    /// `domain 7`.
    pub domain: String,
    /// The latest slice in which it said something, seconds since 1970.
    pub last_s: u64,
    /// By name, as [`crate::collect::SourceCounters::named`] has them.
    pub counters: BTreeMap<String, u64>,
}

impl Reader {
    /// Exporters that said something within `range`, by address.
    ///
    /// # Errors
    /// [`QueryError`].
    pub fn exporters(&self, range: Range) -> Result<Vec<ExporterRow>, QueryError> {
        let (resolution, [from, until]) = self.counter_slices(range);
        let sql = "SELECT scope.name AS exporter, scope.pair AS domain, \
                   counter_name.name AS name, sum(value) AS value, max(time_s) AS last_s \
                   FROM scope JOIN counter ON counter.scope = scope.id \
                   JOIN counter_name ON counter_name.id = counter.name \
                   WHERE scope.kind = 'exporter' AND resolution_s = ? AND time_s >= ? \
                   AND time_s < ? GROUP BY 1, 2, 3 ORDER BY 1, 2";
        let counters = self.rows(sql, params_from_iter([resolution, from, until]), counter)?;
        let mut rows: Vec<ExporterRow> = Vec::new();
        for (exporter, domain, name, value, last_s) in counters {
            if rows.last().is_none_or(|it| (&it.exporter, &it.domain) != (&exporter, &domain)) {
                rows.push(ExporterRow { exporter, domain, ..ExporterRow::default() });
            }
            if let Some(row) = rows.last_mut() {
                row.last_s = row.last_s.max(last_s);
                row.counters.insert(name, value);
            }
        }
        Ok(rows)
    }
}

fn counter(row: &Row<'_>) -> rusqlite::Result<(String, String, String, u64, u64)> {
    let count = |name: &str| row.get::<_, i64>(name).map(|it| it as u64);
    Ok((
        row.get("exporter")?,
        row.get("domain")?,
        row.get("name")?,
        count("value")?,
        count("last_s")?,
    ))
}
