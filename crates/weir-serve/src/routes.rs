//! The routes of the API. Each asks the stores or the board and gives a type of [`crate::dto`].

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::extract::rejection::QueryRejection;
use axum::extract::{FromRequestParts, Query, State};
use axum::http::StatusCode;
use axum::response::sse::{Event as Message, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use futures_util::stream::{self, Stream};
use serde::Deserialize;
use tokio::sync::OwnedSemaphorePermit;
use tokio::sync::broadcast::{Receiver, error::RecvError};
use utoipa::IntoParams;
use weir_store::sqlite::{AlertFilter, LabelFilter, Order, ROWS_MAX, Range, RecordFilter};

use crate::app::App;
use crate::dto::{
    Alert, Conversation, Counter, Counters, Drops, ErrorBody, Event, Flow, PortAccount, Rows,
    StatusList, Talker, Tunnel, TunnelChange, Tunnels,
};
use crate::gateways::Places;
use crate::live::Point;
use crate::query;

/// Rows of an answer where nothing is said.
const LIMIT_DEFAULT: u32 = 100;

/// Rows of an answer, at most.
const LIMIT_MAX: u32 = 1000;

/// The greatest number of a queue pair: it has 24 bits.
const QUEUE_PAIR_MAX: u32 = 0xff_ffff;

/// A refusal, as JSON.
#[derive(Debug)]
pub(crate) struct ApiError {
    status: StatusCode,
    error: String,
}

impl ApiError {
    pub(crate) fn new(status: StatusCode, error: impl Into<String>) -> Self {
        Self { status, error: error.into() }
    }

    pub(crate) fn said(&self) -> &str {
        &self.error
    }

    pub(crate) fn bad(error: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, error)
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        (self.status, Json(ErrorBody { error: self.error })).into_response()
    }
}

/// A query that is refused in JSON too.
#[derive(FromRequestParts)]
#[from_request(via(Query), rejection(ApiError))]
pub(crate) struct Asked<T>(pub(crate) T);

impl From<QueryRejection> for ApiError {
    fn from(rejection: QueryRejection) -> Self {
        Self::bad(rejection.body_text())
    }
}

pub(crate) type Answer<T> = Result<Json<T>, ApiError>;

/// Which gateway.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct GatewayQuery {
    /// Only this gateway
    pub(crate) gateway: Option<String>,
}

/// Which time, of which gateway.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct TimeQuery {
    /// Only this gateway
    pub(crate) gateway: Option<String>,
    /// From this second since 1970 on
    #[param(maximum = 253402300799_u64)]
    from: Option<u64>,
    /// Before this second since 1970; absent: until now
    #[param(maximum = 253402300799_u64)]
    until: Option<u64>,
    /// Without `from`: the last so many seconds (an hour)
    #[param(maximum = 253402300799_u64)]
    last: Option<u64>,
    /// Rows, at most (100)
    #[param(minimum = 1, maximum = 1000)]
    limit: Option<u32>,
}

/// Which flows.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct FlowQuery {
    /// Only this gateway
    gateway: Option<String>,
    /// From this second since 1970 on
    #[param(maximum = 253402300799_u64)]
    from: Option<u64>,
    /// Before this second since 1970; absent: until now
    #[param(maximum = 253402300799_u64)]
    until: Option<u64>,
    /// Without `from`: the last so many seconds (an hour)
    #[param(maximum = 253402300799_u64)]
    last: Option<u64>,
    /// Rows, at most (100)
    #[param(minimum = 1, maximum = 1000)]
    limit: Option<u32>,
    /// Only this pair of ports
    pair: Option<String>,
    /// All records of one flow as one row, their counts added up
    group: Option<bool>,
    /// What comes first: `last` (where nothing is said), `bytes` or `packets`, there and back
    order: Option<String>,
    /// An end's address or prefix
    address: Option<String>,
    /// An end called so by `[[label]]`: `NAME`, or `tenant=NAME` (host, tenant, job, rail)
    label: Option<String>,
    /// Told of by this exporter, an address
    exporter: Option<String>,
    /// An end's port
    #[param(maximum = 65535)]
    port: Option<u16>,
    /// IP protocol number
    #[param(maximum = 255)]
    protocol: Option<u8>,
}

/// Which conversations.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct ConversationQuery {
    /// Only this gateway
    gateway: Option<String>,
    /// From this second since 1970 on
    #[param(maximum = 253402300799_u64)]
    from: Option<u64>,
    /// Before this second since 1970; absent: until now
    #[param(maximum = 253402300799_u64)]
    until: Option<u64>,
    /// Without `from`: the last so many seconds (an hour)
    #[param(maximum = 253402300799_u64)]
    last: Option<u64>,
    /// Rows, at most (100)
    #[param(minimum = 1, maximum = 1000)]
    limit: Option<u32>,
    /// Only this pair of ports
    pair: Option<String>,
    /// All records of one conversation as one row, their counts added up
    group: Option<bool>,
    /// What comes first: `last` (where nothing is said), `bytes` or `packets`, there and back,
    /// `retransmissions`, `naks` or `response`, the slowest
    order: Option<String>,
    /// An end's address or prefix, GID or `lid 0x1f`
    address: Option<String>,
    /// An end called so by `[[label]]`: `NAME`, or `tenant=NAME` (host, tenant, job, rail)
    label: Option<String>,
    /// Told of by this exporter, an address
    exporter: Option<String>,
    /// An end's queue pair
    #[param(maximum = 16777215)]
    queue_pair: Option<u32>,
}

/// Which talkers.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct TalkerQuery {
    /// Only this gateway
    gateway: Option<String>,
    /// From this second since 1970 on
    #[param(maximum = 253402300799_u64)]
    from: Option<u64>,
    /// Before this second since 1970; absent: until now
    #[param(maximum = 253402300799_u64)]
    until: Option<u64>,
    /// Without `from`: the last so many seconds (an hour)
    #[param(maximum = 253402300799_u64)]
    last: Option<u64>,
    /// Rows, at most (100)
    #[param(minimum = 1, maximum = 1000)]
    limit: Option<u32>,
    /// `rdma`, `tcp`, `udp`, `icmp` or `other`
    kind: Option<String>,
    /// An end called so by `[[label]]`: `NAME`, or `tenant=NAME` (host, tenant, job, rail)
    label: Option<String>,
}

/// Which peers, and their changes in which time.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct TunnelQuery {
    /// Only this gateway
    gateway: Option<String>,
    /// From this second since 1970 on
    #[param(maximum = 253402300799_u64)]
    from: Option<u64>,
    /// Before this second since 1970; absent: until now
    #[param(maximum = 253402300799_u64)]
    until: Option<u64>,
    /// Without `from`: the last so many seconds (an hour)
    #[param(maximum = 253402300799_u64)]
    last: Option<u64>,
    /// Changes, at most (100)
    #[param(minimum = 1, maximum = 1000)]
    limit: Option<u32>,
    /// An endpoint called so by `[[label]]`: `NAME`, or `tenant=NAME` (host, tenant, job, rail)
    label: Option<String>,
}

/// Which alerts.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct AlertQuery {
    /// Only this gateway
    pub(crate) gateway: Option<String>,
    /// From this second since 1970 on
    #[param(maximum = 253402300799_u64)]
    from: Option<u64>,
    /// Before this second since 1970; absent: until now
    #[param(maximum = 253402300799_u64)]
    until: Option<u64>,
    /// Without `from`: the last so many seconds (an hour)
    #[param(maximum = 253402300799_u64)]
    last: Option<u64>,
    /// Rows, at most (100)
    #[param(minimum = 1, maximum = 1000)]
    pub(crate) limit: Option<u32>,
    /// Only this pair of ports
    pair: Option<String>,
    /// Only the rule of this number
    #[param(maximum = 4294967295_u64)]
    sid: Option<u32>,
    /// At least as severe; 1 is the most
    #[param(maximum = 255)]
    severity: Option<u8>,
    /// `allowed`, `blocked` or `would_block`
    action: Option<String>,
    /// An end's address or prefix, or GID
    address: Option<String>,
    /// An end called so by `[[label]]`: `NAME`, or `tenant=NAME` (host, tenant, job, rail)
    label: Option<String>,
    /// Only those that are suppressed, or only the others; absent: both
    suppressed: Option<bool>,
}

impl TimeQuery {
    pub(crate) fn range(&self) -> Result<Range, ApiError> {
        query::range(self.from, self.until, self.last).map_err(ApiError::bad)
    }

    pub(crate) fn limit(&self) -> Result<u32, ApiError> {
        limit(self.limit)
    }
}

impl AlertQuery {
    pub(crate) fn range(&self) -> Result<Range, ApiError> {
        query::range(self.from, self.until, self.last).map_err(ApiError::bad)
    }

    pub(crate) fn filter(&self) -> Result<AlertFilter, ApiError> {
        let addresses = self.address.as_deref().map(query::addresses).transpose();
        Ok(AlertFilter {
            number: None,
            pair: self.pair.clone(),
            sid: self.sid,
            severity: self.severity,
            action: self.action.clone(),
            addresses: addresses.map_err(ApiError::bad)?,
            label: label(self.label.as_deref())?,
            suppressed: self.suppressed,
        })
    }
}

pub(crate) fn limit(asked: Option<u32>) -> Result<u32, ApiError> {
    match asked.unwrap_or(LIMIT_DEFAULT) {
        limit @ 1..=LIMIT_MAX => Ok(limit),
        limit => Err(ApiError::bad(format!("limit = {limit}: write 1 to {LIMIT_MAX}"))),
    }
}

pub(crate) fn label(asked: Option<&str>) -> Result<Option<LabelFilter>, ApiError> {
    asked.map(str::parse).transpose().map_err(ApiError::bad)
}

pub(crate) fn order(asked: Option<&str>, default: Order) -> Result<Order, ApiError> {
    asked.map_or(Ok(default), str::parse).map_err(ApiError::bad)
}

/// Asks the stores where that holds nobody up.
pub(crate) async fn ask_stores<T: Send + 'static>(
    app: Arc<App>,
    ask: impl FnOnce(&Places) -> T + Send + 'static,
) -> Result<T, ApiError> {
    let stopping = |_| ApiError::new(StatusCode::SERVICE_UNAVAILABLE, "the server is stopping");
    let _turn = app.queries.acquire().await.map_err(stopping)?;
    let places = app.places.clone();
    let asked = tokio::task::spawn_blocking(move || ask(&places)).await;
    let failed = |_| ApiError::new(StatusCode::INTERNAL_SERVER_ERROR, "the question failed");
    asked.map_err(failed)
}

/// Asks likewise what tells groups apart, of every record.
pub(crate) async fn ask_groups<T: Send + 'static>(
    app: Arc<App>,
    is_of_groups: bool,
    ask: impl FnOnce(&Places) -> T + Send + 'static,
) -> Result<T, ApiError> {
    let own = Arc::clone(&app);
    let _turn = match is_of_groups {
        true => own.groupings.acquire().await.ok(),
        false => None,
    };
    ask_stores(app, ask).await
}

/// Rows of all stores, the greatest by `key` first.
pub(crate) fn greatest<T, K: Ord>(mut rows: Vec<T>, limit: u32, key: impl Fn(&T) -> K) -> Vec<T> {
    rows.sort_by_key(|row| std::cmp::Reverse(key(row)));
    rows.truncate(limit as usize);
    rows
}

/// Whether the server serves
#[utoipa::path(get, path = "/healthz", security(()),
    responses((status = 200, description = "It does")))]
pub(crate) async fn healthz() -> &'static str {
    "ok\n"
}

/// All gateways of this machine, their ports and what is wrong
#[utoipa::path(get, path = "/api/v1/status", responses((status = 200, body = StatusList)))]
pub(crate) async fn status(State(app): State<Arc<App>>) -> Json<StatusList> {
    Json(StatusList { gateways: app.board.summaries() })
}

/// Records of flows, the latest first
#[utoipa::path(get, path = "/api/v1/flows", params(FlowQuery),
    responses((status = 200, body = Rows<Flow>), (status = 400, body = ErrorBody)))]
pub(crate) async fn flows(
    State(app): State<Arc<App>>,
    Asked(asked): Asked<FlowQuery>,
) -> Answer<Rows<Flow>> {
    let range = query::range(asked.from, asked.until, asked.last).map_err(ApiError::bad)?;
    let limit = limit(asked.limit)?;
    let order = order(asked.order.as_deref(), Order::Last)?;
    if !Order::OF_FLOWS.contains(&order) {
        return Err(ApiError::bad("order: flows know last, bytes and packets"));
    }
    let addresses = asked.address.as_deref().map(query::addresses).transpose();
    let filter = RecordFilter {
        pair: asked.pair,
        is_grouped: asked.group.unwrap_or(false),
        order,
        addresses: addresses.map_err(ApiError::bad)?,
        label: label(asked.label.as_deref())?,
        exporter: asked.exporter,
        port: asked.port,
        protocol: asked.protocol,
        ..RecordFilter::default()
    };
    let (rows, problems) = ask_groups(app, filter.is_grouped, move |places| {
        query::each(places, asked.gateway.as_deref(), |name, reader| {
            let labels = reader.labels()?;
            let rows = reader.flows(range, &filter, limit)?;
            Ok(rows.into_iter().map(|row| Flow::of(name, row, &labels)).collect())
        })
    })
    .await?;
    Ok(Json(Rows { rows: greatest(rows, limit, |row| row.rank(order)), problems }))
}

/// Records of queue-pair conversations, the latest first
#[utoipa::path(get, path = "/api/v1/conversations", params(ConversationQuery),
    responses((status = 200, body = Rows<Conversation>), (status = 400, body = ErrorBody)))]
pub(crate) async fn conversations(
    State(app): State<Arc<App>>,
    Asked(asked): Asked<ConversationQuery>,
) -> Answer<Rows<Conversation>> {
    let range = query::range(asked.from, asked.until, asked.last).map_err(ApiError::bad)?;
    let limit = limit(asked.limit)?;
    if let Some(number) = asked.queue_pair.filter(|it| *it > QUEUE_PAIR_MAX) {
        let said = format!("queue_pair = {number}: write 0 to {QUEUE_PAIR_MAX}");
        return Err(ApiError::bad(said));
    }
    let order = order(asked.order.as_deref(), Order::Last)?;
    let addresses = asked.address.as_deref().map(query::addresses).transpose();
    let filter = RecordFilter {
        pair: asked.pair,
        is_grouped: asked.group.unwrap_or(false),
        order,
        addresses: addresses.map_err(ApiError::bad)?,
        label: label(asked.label.as_deref())?,
        exporter: asked.exporter,
        queue_pair: asked.queue_pair,
        ..RecordFilter::default()
    };
    let (rows, problems) = ask_groups(app, filter.is_grouped, move |places| {
        query::each(places, asked.gateway.as_deref(), |name, reader| {
            let labels = reader.labels()?;
            let rows = reader.conversations(range, &filter, limit)?;
            Ok(rows.into_iter().map(|row| Conversation::of(name, row, &labels)).collect())
        })
    })
    .await?;
    Ok(Json(Rows { rows: greatest(rows, limit, |row| row.rank(order)), problems }))
}

/// Addresses that sent and received most
#[utoipa::path(get, path = "/api/v1/talkers", params(TalkerQuery),
    responses((status = 200, body = Rows<Talker>), (status = 400, body = ErrorBody)))]
pub(crate) async fn talkers(
    State(app): State<Arc<App>>,
    Asked(asked): Asked<TalkerQuery>,
) -> Answer<Rows<Talker>> {
    let range = query::range(asked.from, asked.until, asked.last).map_err(ApiError::bad)?;
    let label = label(asked.label.as_deref())?;
    let limit = limit(asked.limit)?;
    let (rows, problems) = ask_stores(app, move |places| {
        query::each(places, asked.gateway.as_deref(), |name, reader| {
            let labels = reader.labels()?;
            let rows = reader.talkers(range, asked.kind.as_deref(), label.as_ref(), limit)?;
            Ok(rows.into_iter().map(|row| Talker::of(name, row, &labels)).collect())
        })
    })
    .await?;
    let rows = greatest(rows, limit, |row| row.sent_bytes.saturating_add(row.received_bytes));
    Ok(Json(Rows { rows, problems }))
}

/// Rules that matched, the latest first
#[utoipa::path(get, path = "/api/v1/alerts", params(AlertQuery),
    responses((status = 200, body = Rows<Alert>), (status = 400, body = ErrorBody)))]
pub(crate) async fn alerts(
    State(app): State<Arc<App>>,
    Asked(asked): Asked<AlertQuery>,
) -> Answer<Rows<Alert>> {
    let range = asked.range()?;
    let limit = limit(asked.limit)?;
    let filter = asked.filter()?;
    let (rows, problems) = ask_stores(app, move |places| {
        query::each(places, asked.gateway.as_deref(), |name, reader| {
            let labels = reader.labels()?;
            let rows = reader.alerts(range, &filter, limit)?;
            Ok(rows.into_iter().map(|row| Alert::of(name, row, &labels)).collect())
        })
    })
    .await?;
    Ok(Json(Rows { rows: greatest(rows, limit, |row| row.time.clone()), problems }))
}

/// What counters grew by, in slices of 10 seconds, a minute or an hour
#[utoipa::path(get, path = "/api/v1/counters", params(TimeQuery),
    responses((status = 200, body = Counters), (status = 400, body = ErrorBody)))]
pub(crate) async fn counters(
    State(app): State<Arc<App>>,
    Asked(asked): Asked<TimeQuery>,
) -> Answer<Counters> {
    let range = query::range(asked.from, asked.until, asked.last).map_err(ApiError::bad)?;
    limit(asked.limit)?;
    let (answers, problems) = ask_stores(app, move |places| {
        query::each(places, asked.gateway.as_deref(), |name, reader| {
            let (resolution_s, rows) = reader.counters(range)?;
            let rows = rows.into_iter().map(|row| Counter::of(name, row)).collect::<Vec<_>>();
            Ok(vec![(resolution_s, rows)])
        })
    })
    .await?;
    let resolution_s = answers.first().map_or(0, |(resolution_s, _)| *resolution_s);
    let mut rows: Vec<Counter> = answers.into_iter().flat_map(|(_, rows)| rows).collect();
    rows.sort_by_key(|row| row.time_s);
    Ok(Json(Counters { resolution_s, rows, problems }))
}

/// Where all frames went since the start, by port: received = accepted + dropped + bypassed
#[utoipa::path(get, path = "/api/v1/drops", responses((status = 200, body = Drops)))]
pub(crate) async fn drops(State(app): State<Arc<App>>) -> Json<Drops> {
    let mut ports = Vec::new();
    for status in app.board.statuses() {
        for pair in &status.pairs {
            ports.extend(PortAccount::all(&status.name, pair));
        }
    }
    let reasons = ports.iter().flat_map(|port: &PortAccount| port.reasons.keys());
    let meaning = |name: &String| Some((name.clone(), weir_store::meaning(name)?.to_owned()));
    let meanings = reasons.filter_map(meaning).collect();
    Json(Drops { ports, meanings })
}

/// Peers, and when their states changed
#[utoipa::path(get, path = "/api/v1/tunnels", params(TunnelQuery),
    responses((status = 200, body = Tunnels), (status = 400, body = ErrorBody)))]
pub(crate) async fn tunnels(
    State(app): State<Arc<App>>,
    Asked(asked): Asked<TunnelQuery>,
) -> Answer<Tunnels> {
    let range = query::range(asked.from, asked.until, asked.last).map_err(ApiError::bad)?;
    let limit = limit(asked.limit)?;
    let label = label(asked.label.as_deref())?;
    let mut statuses = app.board.statuses();
    statuses.retain(|it| asked.gateway.as_deref().is_none_or(|wanted| wanted == it.name));
    // Names are told apart here: where one is wanted, all changes are looked at.
    let rows_max = if label.is_some() { ROWS_MAX } else { limit };
    let (answers, problems) = ask_stores(app, move |places| {
        query::each(places, asked.gateway.as_deref(), |name, reader| {
            let labels = reader.labels()?;
            let rows = reader.peer_states(range, rows_max)?.into_iter();
            let changes: Vec<_> = rows.map(|row| TunnelChange::of(name, row, &labels)).collect();
            Ok(vec![(name.to_owned(), labels, changes)])
        })
    })
    .await?;
    let (mut tunnels, mut changes, mut named) = (Vec::new(), Vec::new(), BTreeMap::new());
    for (name, labels, own) in answers {
        changes.extend(own);
        named.insert(name, labels);
    }
    for status in &statuses {
        tunnels.extend(Tunnel::all(status, named.entry(status.name.clone()).or_default()));
    }
    if let Some(label) = &label {
        tunnels.retain(|it: &Tunnel| it.endpoint_names.fit(label));
        changes.retain(|it: &TunnelChange| it.endpoint_names.fit(label));
    }
    let changes = greatest(changes, limit, |row| row.time.clone());
    Ok(Json(Tunnels { tunnels, changes, problems }))
}

/// The gateways' log books: starts, stops, reloads
#[utoipa::path(get, path = "/api/v1/events", params(TimeQuery),
    responses((status = 200, body = Rows<Event>), (status = 400, body = ErrorBody)))]
pub(crate) async fn events(
    State(app): State<Arc<App>>,
    Asked(asked): Asked<TimeQuery>,
) -> Answer<Rows<Event>> {
    let range = query::range(asked.from, asked.until, asked.last).map_err(ApiError::bad)?;
    let limit = limit(asked.limit)?;
    let (rows, problems) = ask_stores(app, move |places| {
        query::each(places, asked.gateway.as_deref(), |name, reader| {
            let rows = reader.events(range, limit)?;
            Ok(rows.into_iter().map(|row| Event::of(name, row)).collect())
        })
    })
    .await?;
    Ok(Json(Rows { rows: greatest(rows, limit, |row| row.time.clone()), problems }))
}

/// Server-sent events: `history`, a list of points, then a `point` a second and gateway
#[utoipa::path(get, path = "/api/v1/live",
    responses((status = 200, description = "Events", body = Point,
               content_type = "text/event-stream"),
              (status = 503, body = ErrorBody)))]
pub(crate) async fn live(State(app): State<Arc<App>>) -> Result<Response, ApiError> {
    let too_many = |_| ApiError::new(StatusCode::SERVICE_UNAVAILABLE, "too many listeners");
    let turn = Arc::clone(&app.listeners).try_acquire_owned().map_err(too_many)?;
    let (kept, receiver) = app.board.listen();
    let stream = Sse::new(messages(kept, receiver, turn));
    Ok(stream.keep_alive(KeepAlive::new().interval(Duration::from_secs(15))).into_response())
}

fn messages(
    kept: Vec<Point>,
    receiver: Receiver<Arc<Point>>,
    turn: OwnedSemaphorePermit,
) -> impl Stream<Item = Result<Message, Infallible>> {
    let first = serde_json::to_string(&kept).unwrap_or_default();
    let start = (Some(first), receiver, turn);
    stream::unfold(start, |(first, mut receiver, turn)| async move {
        if let Some(history) = first {
            let message = Message::default().event("history").data(history);
            return Some((Ok(message), (None, receiver, turn)));
        }
        loop {
            match receiver.recv().await {
                Ok(point) => {
                    let text = serde_json::to_string(&*point).unwrap_or_default();
                    let message = Message::default().event("point").data(text);
                    return Some((Ok(message), (None, receiver, turn)));
                }
                // What a slow listener missed, it missed.
                Err(RecvError::Lagged(_)) => {}
                Err(RecvError::Closed) => return None,
            }
        }
    })
}

pub(crate) async fn not_found() -> ApiError {
    ApiError::new(StatusCode::NOT_FOUND, "there is nothing here; see /api/v1/openapi.json")
}

pub(crate) async fn method_not_allowed() -> ApiError {
    ApiError::new(
        StatusCode::METHOD_NOT_ALLOWED,
        "this cannot be done here; see /api/v1/openapi.json",
    )
}
