//! Lines of access, and what each decided.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use crate::app::App;
use crate::dto::{ErrorBody, Rows};
use crate::routes::{Answer, Asked};

/// What one line decided since the gateway's start or its last change.
#[derive(Clone, Debug, Serialize, ToSchema)]
#[allow(missing_docs, reason = "the names say it")]
pub struct AccessLine {
    pub gateway: String,
    pub pair: String,
    /// From one on, in the order in which they are tried; zero: what no line matches.
    pub place: u64,
    /// Its name; `default` for what no line matches.
    pub name: String,
    /// `allow`, `deny`, `reject` or `would_deny`.
    pub action: String,
    pub messages: u64,
    pub packets: u64,
    pub bytes: u64,
}

/// Which lines.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct AccessQuery {
    /// Only this gateway
    gateway: Option<String>,
    /// Only this pair of ports
    pair: Option<String>,
}

/// Who may do what by RDMA, line by line, with what each decided
#[utoipa::path(get, path = "/api/v1/access", params(AccessQuery),
    responses((status = 200, body = Rows<AccessLine>), (status = 400, body = ErrorBody)))]
pub(crate) async fn list(
    State(app): State<Arc<App>>,
    Asked(asked): Asked<AccessQuery>,
) -> Answer<Rows<AccessLine>> {
    let mut rows = Vec::new();
    for status in app.board.statuses() {
        if asked.gateway.as_ref().is_some_and(|wanted| *wanted != status.name) {
            continue;
        }
        for pair in &status.pairs {
            if asked.pair.as_ref().is_some_and(|wanted| *wanted != pair.name) {
                continue;
            }
            let Some(access) = &pair.access else { continue };
            let row = |place: usize, name: &str, action: &str, counts: [u64; 3]| AccessLine {
                gateway: status.name.clone(),
                pair: pair.name.clone(),
                place: place as u64,
                name: name.to_owned(),
                action: action.to_owned(),
                messages: counts[0],
                packets: counts[1],
                bytes: counts[2],
            };
            rows.extend(access.lines.iter().enumerate().map(|(index, line)| {
                let counts = [line.messages, line.packets, line.bytes];
                row(index + 1, &line.name, &line.action, counts)
            }));
            let counts = [access.default_messages, access.default_packets, access.default_bytes];
            rows.push(row(0, "default", &access.default_action, counts));
        }
    }
    Ok(Json(Rows { rows, problems: Vec::new() }))
}
