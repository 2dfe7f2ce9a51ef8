//! Signatures whose alerts nobody wants to see for a while: told from the stores, changed by the
//! gateways' operate sockets.

use std::sync::Arc;

use axum::Extension;
use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use utoipa::{IntoParams, ToSchema};
use weir_store::clock;
use weir_store::sqlite::{Labels, Suppression as Row};

use crate::app::App;
use crate::blocks::{Sent, send, socket_of};
use crate::dto::{ErrorBody, Rows, address_text, time_text};
use crate::guard::Visitor;
use crate::names::Names;
use crate::query;
use crate::routes::{Answer, ApiError, Asked, ask_stores, label};

/// The longest time: ten years.
pub const SECONDS_MAX: u64 = 315_360_000;

/// A signature whose alerts are suppressed.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct Suppression {
    /// The gateway.
    pub gateway: String,
    /// The rule's number.
    pub sid: u32,
    /// Only what comes from this address or prefix; absent: from anywhere.
    pub source: Option<String>,
    /// Since when.
    pub since: String,
    /// Until when.
    pub until: String,
    /// Who said so last.
    pub who: String,
    /// Why, in the operator's words.
    pub reason: String,
    /// What `[[label]]` calls the source; of a prefix, what its first and last address share.
    pub source_names: Names,
}

/// Which suppressions.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct ListQuery {
    /// Only this gateway
    gateway: Option<String>,
    /// That suppress alerts from an end called so by `[[label]]`, those from anywhere among them:
    /// `NAME`, or `tenant=NAME` (host, tenant, job, rail)
    label: Option<String>,
}

/// What to suppress.
#[derive(Clone, Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NewSuppression {
    /// At this gateway.
    pub gateway: String,
    /// Alerts of the rule of this number.
    pub sid: u32,
    /// Only what comes from this address or prefix; absent: from anywhere.
    pub source: Option<String>,
    /// For so many seconds; of one that is suppressed already, from now on.
    #[schema(minimum = 1, maximum = 315360000_u64)]
    pub seconds: u64,
    /// Why.
    #[schema(max_length = 200)]
    pub reason: Option<String>,
}

/// What to show again.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct EndQuery {
    /// At this gateway
    gateway: String,
    /// The rule's number
    #[param(maximum = 4294967295_u64)]
    sid: u32,
    /// As the list shows it
    source: Option<String>,
}

impl Suppression {
    /// From a row of `gateway`'s store.
    pub fn of(gateway: &str, row: Row, labels: &Labels) -> Self {
        let names = row.source.map(|(first, last)| [first, last].map(|it| Names::of(labels, it)));
        let source_names = names.map_or_else(Names::default, |[first, last]| first.shared(&last));
        Self {
            source_names,
            gateway: gateway.to_owned(),
            sid: row.sid,
            source: row.source.map(prefix_text),
            since: time_text(row.since_ns),
            until: time_text(row.until_ns),
            who: row.who,
            reason: row.reason,
        }
    }
}

/// A range of addresses as the prefix that it is.
fn prefix_text((first, last): ([u8; 16], [u8; 16])) -> String {
    let host = (u128::from_be_bytes(first) ^ u128::from_be_bytes(last)).leading_zeros();
    let text = address_text(first, false);
    let length = if text.contains(':') { host } else { host.saturating_sub(96) };
    format!("{text}/{length}")
}

/// Signatures whose alerts are suppressed now, what ends first first
#[utoipa::path(get, path = "/api/v1/alerts/suppressions", params(ListQuery),
    responses((status = 200, body = Rows<Suppression>), (status = 400, body = ErrorBody)))]
pub(crate) async fn list(
    State(app): State<Arc<App>>,
    Asked(asked): Asked<ListQuery>,
) -> Answer<Rows<Suppression>> {
    let wanted = label(asked.label.as_deref())?;
    let (mut rows, problems) = ask_stores(app, move |places| {
        query::each(places, asked.gateway.as_deref(), |name, reader| {
            let (rows, labels) = (reader.suppressions(clock::time().0)?, reader.labels()?);
            let rows = rows.into_iter().map(|row| Suppression::of(name, row, &labels));
            Ok(rows.collect::<Vec<_>>())
        })
    })
    .await?;
    if let Some(wanted) = &wanted {
        rows.retain(|it: &Suppression| it.source.is_none() || it.source_names.fit(wanted));
    }
    rows.sort_by(|one, other| one.until.cmp(&other.until));
    Ok(Json(Rows { rows, problems }))
}

/// Suppress the alerts of a signature for a while: they stay stored and counted
#[utoipa::path(post, path = "/api/v1/alerts/suppressions", request_body = NewSuppression,
    responses((status = 202, description = "It is in force within a second"),
              (status = 400, body = ErrorBody), (status = 403, body = ErrorBody),
              (status = 404, body = ErrorBody), (status = 415, body = ErrorBody),
              (status = 422, body = ErrorBody)))]
pub(crate) async fn add(
    State(app): State<Arc<App>>,
    Extension(visitor): Extension<Visitor>,
    Sent(new): Sent<NewSuppression>,
) -> Result<StatusCode, ApiError> {
    if !(1..=SECONDS_MAX).contains(&new.seconds) {
        let said = format!("seconds = {}: write 1 to {SECONDS_MAX}", new.seconds);
        return Err(ApiError::bad(said));
    }
    let what = json!({
        "what": "begin", "sid": new.sid, "source": new.source, "seconds": new.seconds,
        "reason": new.reason.unwrap_or_default(),
    });
    change(&app, &visitor, &new.gateway, &what).await
}

/// Show them again
#[utoipa::path(delete, path = "/api/v1/alerts/suppressions", params(EndQuery),
    responses((status = 202, description = "It is in force within a second"),
              (status = 400, body = ErrorBody), (status = 403, body = ErrorBody),
              (status = 404, body = ErrorBody)))]
pub(crate) async fn remove(
    State(app): State<Arc<App>>,
    Extension(visitor): Extension<Visitor>,
    Asked(asked): Asked<EndQuery>,
) -> Result<StatusCode, ApiError> {
    let what = json!({ "what": "end", "sid": asked.sid, "source": asked.source });
    change(&app, &visitor, &asked.gateway, &what).await
}

async fn change(
    app: &App,
    visitor: &Visitor,
    gateway: &str,
    what: &Value,
) -> Result<StatusCode, ApiError> {
    let request = json!({ "command": "suppress", "by": visitor.title(), "suppression": what });
    send(&socket_of(app, gateway)?, &request).await?;
    tracing::info!(who = visitor.title(), gateway, %what, "suppressions were changed");
    Ok(StatusCode::ACCEPTED)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_is_shown_as_the_prefix_that_it_was_asked_by() {
        for text in ["10.0.0.0/24", "10.0.0.7/32", "2001:db8::/32", "0.0.0.0/0", "::/0"] {
            assert_eq!(prefix_text(query::addresses(text).unwrap()), text);
        }
    }
}
