//! Who exports to `weir collect`, and what of it was lost on the way.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use serde::Serialize;
use utoipa::ToSchema;
use weir_store::sqlite::ExporterRow;

use crate::app::App;
use crate::dto::{ErrorBody, Rows, time_text};
use crate::query;
use crate::routes::{Answer, Asked, TimeQuery, ask_stores, greatest};

/// An exporter's observation domain, over the time that was asked for.
#[derive(Clone, Debug, Serialize, ToSchema)]
#[allow(missing_docs, reason = "the names say it")]
pub struct Exporter {
    /// The collector: its store's name.
    pub gateway: String,
    /// Where its messages come from.
    pub exporter: String,
    /// Observation domain (IPFIX), source ID (NetFlow v9) or engine (v5).
    pub domain: String,
    /// When it last said something, to the slice of counters.
    pub last: String,
    pub messages: u64,
    /// Rows in the store.
    pub records: u64,
    /// Missing by its sequence numbers: records (NetFlow v5, IPFIX) or messages (v9).
    pub lost: u64,
    /// Taken for lost, then came.
    pub late: u64,
    /// Times that its numbers began anew.
    pub restarts: u64,
    /// Sets of records whose template had not come.
    pub without_template: u64,
    pub malformed: u64,
    /// Sets of records that could not be taken apart.
    pub undecoded: u64,
}

impl Exporter {
    /// From a row of `collector`'s store.
    pub fn of(collector: &str, row: ExporterRow) -> Self {
        let count = |name: &str| row.counters.get(name).copied().unwrap_or(0);
        Self {
            gateway: collector.to_owned(),
            last: time_text(row.last_s.saturating_mul(1_000_000_000)),
            messages: count("messages"),
            records: count("records"),
            lost: count("lost"),
            late: count("late"),
            restarts: count("restarts"),
            without_template: count("without_template"),
            malformed: count("malformed"),
            undecoded: count("undecoded"),
            exporter: row.exporter,
            domain: row.domain,
        }
    }
}

/// Exporters of records, and what of theirs was lost
#[utoipa::path(get, path = "/api/v1/exporters", params(TimeQuery),
    responses((status = 200, body = Rows<Exporter>), (status = 400, body = ErrorBody)))]
pub(crate) async fn list(
    State(app): State<Arc<App>>,
    Asked(asked): Asked<TimeQuery>,
) -> Answer<Rows<Exporter>> {
    let (range, limit) = (asked.range()?, asked.limit()?);
    let (rows, problems) = ask_stores(app, move |places| {
        query::each(places, asked.gateway.as_deref(), |name, reader| {
            let rows = reader.exporters(range)?;
            Ok(rows.into_iter().map(|row| Exporter::of(name, row)).collect())
        })
    })
    .await?;
    Ok(Json(Rows { rows: greatest(rows, limit, |row| row.records), problems }))
}
