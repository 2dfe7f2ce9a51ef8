//! What crossed lately, and in the same span before.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use serde::Serialize;
use utoipa::ToSchema;
use weir_store::sqlite::{PeriodRow, Range};

use crate::app::App;
use crate::dto::{ErrorBody, Rows};
use crate::query;
use crate::routes::{Answer, ApiError, Asked, TimeQuery, ask_stores};

/// What crossed a gateway in a span of time.
#[derive(Clone, Copy, Debug, Default, Serialize, ToSchema)]
#[allow(missing_docs, reason = "the names say it")]
pub struct Period {
    /// From hosts.
    pub host_bytes: u64,
    /// From the wire.
    pub wire_bytes: u64,
    pub host_packets: u64,
    pub wire_packets: u64,
    /// Packets dropped, at all ports.
    pub dropped: u64,
}

/// A span of time, and the one of the same length before it.
#[derive(Clone, Debug, Serialize, ToSchema)]
#[allow(missing_docs, reason = "the names say it")]
pub struct Periods {
    pub gateway: String,
    pub seconds: u64,
    pub now: Period,
    pub before: Period,
}

impl From<PeriodRow> for Period {
    fn from(row: PeriodRow) -> Self {
        let PeriodRow { host_bytes, wire_bytes, host_packets, wire_packets, dropped } = row;
        Self { host_bytes, wire_bytes, host_packets, wire_packets, dropped }
    }
}

/// What crossed in a span of time, and in the same span before it
#[utoipa::path(get, path = "/api/v1/periods", params(TimeQuery),
    responses((status = 200, body = Rows<Periods>), (status = 400, body = ErrorBody)))]
pub(crate) async fn list(
    State(app): State<Arc<App>>,
    Asked(asked): Asked<TimeQuery>,
) -> Answer<Rows<Periods>> {
    let range = asked.range()?;
    asked.limit()?;
    let seconds = range.seconds();
    let from_s = range.from_s.checked_sub(seconds);
    let before = from_s.map(|from_s| Range { from_s, until_s: range.from_s });
    let before = before.ok_or_else(|| ApiError::bad("there is no time before: ask for less"))?;
    let (rows, problems) = ask_stores(app, move |places| {
        query::each(places, asked.gateway.as_deref(), |name, reader| {
            let (now, before) = (reader.period(range)?.into(), reader.period(before)?.into());
            Ok(vec![Periods { gateway: name.to_owned(), seconds, now, before }])
        })
    })
    .await?;
    Ok(Json(Rows { rows, problems }))
}
