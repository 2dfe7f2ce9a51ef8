//! The packets that gateways remember, in clear: what they hold, and a capture of what is asked
//! for. By the operators' socket of gateways that let it be administered so.

use std::io::{IoSlice, Read, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use utoipa::{IntoParams, ToSchema};
use weir_store::evidence::FlowFilter;
use weir_store::sqlite::{AlertFilter, Range};

use crate::app::App;
use crate::blocks::socket_of;
use crate::dto::{ErrorBody, Rows};
use crate::guard::Visitor;
use crate::query;
use crate::routes::{Answer, ApiError, Asked, GatewayQuery, ask_stores};
use crate::token::Role;

/// Bytes of a capture, at most: it is held in memory.
const CAPTURE_BYTES_MAX: u64 = 32 << 20;

/// How long a gateway may take: it may read a disk.
const PATIENCE: Duration = Duration::from_secs(60);

/// What of an alert is cut: so long before it and after it.
const AROUND_NS: u64 = 5_000_000_000;

/// What a pair of ports remembers.
#[derive(Clone, Debug, Serialize, ToSchema)]
#[allow(missing_docs, reason = "the names say it")]
pub struct Held {
    pub gateway: String,
    pub pair: String,
    /// In memory.
    pub packets: u64,
    pub bytes: u64,
    pub capacity_bytes: u64,
    /// How far it reaches back, if it holds anything.
    pub oldest_seconds: Option<f64>,
    /// The same on disk, where a disk is used.
    pub disk_packets: Option<u64>,
    pub disk_bytes: Option<u64>,
    pub disk_oldest_seconds: Option<f64>,
}

/// Which packets.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct CutQuery {
    /// Of this gateway
    gateway: String,
    /// What belongs to the alert of this number: its flow, five seconds around it
    #[param(maximum = 9223372036854775807_u64)]
    alert: Option<u64>,
    /// Only this pair of ports
    pair: Option<String>,
    /// The last so many seconds (10)
    #[param(minimum = 1, maximum = 86400)]
    last: Option<u64>,
    /// In pcap-filter's language
    filter: Option<String>,
}

/// What gateways remember of the packets
#[utoipa::path(get, path = "/api/v1/evidence", params(GatewayQuery),
    responses((status = 200, body = Rows<Held>), (status = 400, body = ErrorBody)))]
pub(crate) async fn list(
    State(app): State<Arc<App>>,
    Asked(asked): Asked<GatewayQuery>,
) -> Answer<Rows<Held>> {
    let mut rows = Vec::new();
    for status in app.board.statuses() {
        if asked.gateway.as_ref().is_some_and(|wanted| *wanted != status.name) {
            continue;
        }
        for pair in &status.pairs {
            let Some(ring) = &pair.evidence else { continue };
            let disk = ring.disk.as_ref();
            rows.push(Held {
                gateway: status.name.clone(),
                pair: pair.name.clone(),
                packets: ring.packets,
                bytes: ring.bytes,
                capacity_bytes: ring.capacity_bytes,
                oldest_seconds: ring.oldest_seconds,
                disk_packets: disk.map(|it| it.packets),
                disk_bytes: disk.map(|it| it.bytes),
                disk_oldest_seconds: disk.and_then(|it| it.oldest_seconds),
            });
        }
    }
    Ok(Json(Rows { rows, problems: Vec::new() }))
}

/// A pcapng of remembered packets, in clear; for operators
#[utoipa::path(get, path = "/api/v1/evidence/cut", params(CutQuery),
    responses((status = 200, description = "pcapng", content_type = "application/octet-stream"),
              (status = 400, body = ErrorBody), (status = 403, body = ErrorBody),
              (status = 404, body = ErrorBody), (status = 413, body = ErrorBody),
              (status = 503, body = ErrorBody)))]
pub(crate) async fn cut(
    State(app): State<Arc<App>>,
    Extension(visitor): Extension<Visitor>,
    Asked(asked): Asked<CutQuery>,
) -> Result<Response, ApiError> {
    visitor.must_be(Role::Operator)?;
    let socket = socket_of(&app, &asked.gateway)?;
    let wanted = match asked.alert {
        Some(number) => of_alert(&app, &asked, number).await?,
        None => {
            let last = asked.last.unwrap_or(10);
            if !(1..=86_400).contains(&last) {
                return Err(ApiError::bad(format!("last = {last}: write 1 to 86400")));
            }
            json!({ "pair": asked.pair, "last_ms": last * 1000, "expression": asked.filter })
        }
    };
    let busy = |_| ApiError::new(StatusCode::SERVICE_UNAVAILABLE, "another capture is being cut");
    let _turn = Arc::clone(&app.cuts).try_acquire_owned().map_err(busy)?;
    tracing::info!(who = visitor.title(), gateway = asked.gateway, %wanted, "evidence is cut");
    let request = json!({ "command": "evidence", "by": visitor.title(), "cut": wanted });
    let asking = tokio::task::spawn_blocking(move || capture(&socket, &request));
    let failed = |_| ApiError::new(StatusCode::INTERNAL_SERVER_ERROR, "the question failed");
    let (packets, bytes) = asking.await.map_err(failed)??;
    if let (Some(number), 0) = (asked.alert, packets) {
        let said = format!("none of the packets of alert {number} is kept any more");
        return Err(ApiError::new(StatusCode::NOT_FOUND, said));
    }
    let name = match asked.alert {
        Some(number) => format!("alert-{number}.pcapng"),
        None => "evidence.pcapng".to_owned(),
    };
    let headers = [
        (header::CONTENT_TYPE, "application/octet-stream".to_owned()),
        (header::CONTENT_DISPOSITION, format!("attachment; filename=\"{name}\"")),
    ];
    Ok((headers, bytes).into_response())
}

/// What belongs to an alert, as `weir evidence cut --alert` asks for it.
async fn of_alert(app: &Arc<App>, asked: &CutQuery, number: u64) -> Result<Value, ApiError> {
    let gateway = asked.gateway.clone();
    let filter = AlertFilter { number: Some(number), ..AlertFilter::default() };
    let always = Range { from_s: 0, until_s: u64::MAX / 2_000_000_000 };
    let (rows, problems) = ask_stores(Arc::clone(app), move |places| {
        query::each(places, Some(&gateway), |_, reader| reader.alerts(always, &filter, 1))
    })
    .await?;
    if let Some(problem) = problems.first() {
        return Err(ApiError::new(StatusCode::SERVICE_UNAVAILABLE, problem));
    }
    let Some(alert) = rows.first() else {
        return Err(ApiError::new(StatusCode::NOT_FOUND, "there is no alert of this number"));
    };
    Ok(json!({
        "pair": asked.pair.clone().unwrap_or_else(|| alert.pair.clone()),
        "from_ns": alert.time_ns.saturating_sub(AROUND_NS),
        "until_ns": alert.time_ns.saturating_add(AROUND_NS),
        "flow": FlowFilter::of_alert(alert),
    }))
}

/// Has the gateway write into a pipe, of which no more is read than is kept; how many packets, and
/// the capture.
fn capture(socket: &Path, request: &Value) -> Result<(u64, Vec<u8>), ApiError> {
    let down = |error: std::io::Error| {
        let said = format!("the gateway does not answer: {error}");
        ApiError::new(StatusCode::SERVICE_UNAVAILABLE, said)
    };
    let (reading, writing) = std::io::pipe().map_err(down)?;
    let mut stream = UnixStream::connect(socket).map_err(down)?;
    stream.set_read_timeout(Some(PATIENCE)).map_err(down)?;
    stream.set_write_timeout(Some(PATIENCE)).map_err(down)?;
    pass(&mut stream, request, writing.into()).map_err(down)?;
    let mut bytes = Vec::new();
    let mut reading = reading.take(CAPTURE_BYTES_MAX + 1);
    reading.read_to_end(&mut bytes).map_err(down)?;
    if bytes.len() as u64 > CAPTURE_BYTES_MAX {
        let said = format!("more than {} MiB: ask for less", CAPTURE_BYTES_MAX >> 20);
        return Err(ApiError::new(StatusCode::PAYLOAD_TOO_LARGE, said));
    }
    let mut answer = Vec::new();
    stream.take(1 << 20).read_to_end(&mut answer).map_err(down)?;
    let answer: Value = serde_json::from_slice(&answer).unwrap_or_default();
    match answer.get("error").and_then(Value::as_str) {
        Some(error) => Err(ApiError::bad(error)),
        None => {
            let packets = answer.pointer("/evidence/packets").and_then(Value::as_u64);
            Ok((packets.unwrap_or_default(), bytes))
        }
    }
}

/// Sends the request, and `file` beside it (SCM_RIGHTS); ours is closed then.
fn pass(stream: &mut UnixStream, request: &Value, file: OwnedFd) -> std::io::Result<()> {
    let line = format!("{request}\n");
    let passed = [file.as_fd()];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    control.push(SendAncillaryMessage::ScmRights(&passed));
    let pieces = [IoSlice::new(line.as_bytes())];
    let sent = rustix::net::sendmsg(&*stream, &pieces, &mut control, SendFlags::NOSIGNAL)?;
    stream.write_all(&line.as_bytes()[sent..])
}
