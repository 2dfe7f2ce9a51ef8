//! Whose packets are dropped, and whose never, and what is said of alerts: told and changed by the
//! gateways' operate sockets, which take nothing else.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use axum::extract::rejection::JsonRejection;
use axum::extract::{FromRequest, State};
use axum::http::StatusCode;
use axum::{Extension, Json};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use utoipa::{IntoParams, ToSchema};

use crate::app::App;
use crate::dto::{ErrorBody, Rows, time_text};
use crate::guard::Visitor;
use crate::query;
use crate::routes::{Answer, ApiError, Asked, GatewayQuery, ask_stores};
use crate::token::Role;

/// How long a gateway may take.
const PATIENCE: Duration = Duration::from_secs(5);

/// Bytes of its answer, at most.
const ANSWER_BYTES_MAX: u64 = 16 << 20;

/// Characters of a reason.
const REASON_MAX: usize = 200;

/// A prefix whose packets are dropped, or never.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct Block {
    /// The gateway.
    pub gateway: String,
    /// `block`, or `allow`: dropped by no block and no rule.
    pub list: String,
    /// An address or prefix.
    pub prefix: String,
    /// Since when.
    pub since: String,
    /// Until it is over; absent: until it is removed.
    pub seconds_left: Option<u64>,
    /// Why, in the operator's words.
    pub reason: String,
    /// Packets that it dropped since the gateway started.
    pub packets: u64,
    /// Their bytes.
    pub bytes: u64,
}

/// What to block or allow.
#[derive(Clone, Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NewBlock {
    /// At this gateway.
    pub gateway: String,
    /// `block` (where nothing is said) or `allow`; the latter takes an admin.
    pub list: Option<String>,
    /// An address or prefix.
    pub prefix: String,
    /// For so many seconds; absent: until it is removed.
    #[schema(minimum = 1)]
    pub seconds: Option<u64>,
    /// Why.
    #[schema(max_length = 200)]
    pub reason: Option<String>,
}

/// What to remove.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct RemoveQuery {
    /// At this gateway
    gateway: String,
    /// `block` (where nothing is said) or `allow`
    list: Option<String>,
    /// As the list shows it
    prefix: String,
}

/// A body that is refused in JSON too.
#[derive(FromRequest)]
#[from_request(via(Json), rejection(ApiError))]
pub(crate) struct Sent<T>(pub(crate) T);

impl From<JsonRejection> for ApiError {
    fn from(rejection: JsonRejection) -> Self {
        Self::new(rejection.status(), rejection.body_text())
    }
}

/// What a gateway says of its lists.
#[derive(Debug, Deserialize)]
struct Lists {
    blocks: Vec<Entry>,
    allowed: Vec<Entry>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Entry {
    prefix: String,
    since_ns: u64,
    seconds_left: Option<u64>,
    reason: String,
    packets: u64,
    bytes: u64,
}

/// Who is blocked, and who never
#[utoipa::path(get, path = "/api/v1/blocks", params(GatewayQuery),
    responses((status = 200, body = Rows<Block>), (status = 400, body = ErrorBody)))]
pub(crate) async fn list(
    State(app): State<Arc<App>>,
    Extension(visitor): Extension<Visitor>,
    Asked(asked): Asked<GatewayQuery>,
) -> Answer<Rows<Block>> {
    let (mut rows, mut problems) = (Vec::new(), Vec::new());
    for (name, socket) in app.places.operate_sockets() {
        if asked.gateway.as_ref().is_some_and(|wanted| *wanted != name) {
            continue;
        }
        match tell(&socket, &visitor, &json!({ "what": "list" })).await {
            Ok(lists) => rows.extend(lists.rows(&name)),
            Err(error) => problems.push(format!("{name}: {}", error.said())),
        }
    }
    Ok(Json(Rows { rows, problems }))
}

/// Block what an address sends, or never drop it
#[utoipa::path(post, path = "/api/v1/blocks", request_body = NewBlock,
    responses((status = 200, body = Rows<Block>), (status = 400, body = ErrorBody),
              (status = 403, body = ErrorBody), (status = 404, body = ErrorBody),
              (status = 415, body = ErrorBody), (status = 422, body = ErrorBody)))]
pub(crate) async fn add(
    State(app): State<Arc<App>>,
    Extension(visitor): Extension<Visitor>,
    Sent(new): Sent<NewBlock>,
) -> Answer<Rows<Block>> {
    let reason = new.reason.unwrap_or_default();
    if reason.chars().count() > REASON_MAX || reason.chars().any(char::is_control) {
        return Err(ApiError::bad(format!("reason: write {REASON_MAX} characters of text")));
    }
    let what = match list_of(new.list.as_deref(), &visitor)? {
        List::Block => {
            let ttl_s = new.seconds;
            if ttl_s == Some(0) {
                return Err(ApiError::bad("seconds = 0: write 1 or more, or leave it out"));
            }
            json!({ "what": "block", "prefix": new.prefix, "ttl_s": ttl_s, "reason": reason })
        }
        List::Allow if new.seconds.is_some() => {
            return Err(ApiError::bad("seconds: what is allowed is so until it is removed"));
        }
        List::Allow => json!({ "what": "allow", "prefix": new.prefix, "reason": reason }),
    };
    change(&app, &visitor, &new.gateway, &what).await
}

/// Drop it no longer, or judge it like others
#[utoipa::path(delete, path = "/api/v1/blocks", params(RemoveQuery),
    responses((status = 200, body = Rows<Block>), (status = 400, body = ErrorBody),
              (status = 403, body = ErrorBody), (status = 404, body = ErrorBody)))]
pub(crate) async fn remove(
    State(app): State<Arc<App>>,
    Extension(visitor): Extension<Visitor>,
    Asked(asked): Asked<RemoveQuery>,
) -> Answer<Rows<Block>> {
    let what = match list_of(asked.list.as_deref(), &visitor)? {
        List::Block => "unblock",
        List::Allow => "disallow",
    };
    let what = json!({ "what": what, "prefix": asked.prefix });
    change(&app, &visitor, &asked.gateway, &what).await
}

enum List {
    Block,
    Allow,
}

fn list_of(name: Option<&str>, visitor: &Visitor) -> Result<List, ApiError> {
    match name {
        None | Some("block") => Ok(List::Block),
        Some("allow") => visitor.must_be(Role::Admin).map(|()| List::Allow),
        Some(other) => Err(ApiError::bad(format!("list = {other}: write block or allow"))),
    }
}

pub(crate) fn socket_of(app: &App, gateway: &str) -> Result<PathBuf, ApiError> {
    app.places.operate_sockets().remove(gateway).ok_or_else(|| {
        let said = format!("gateway {gateway} lets nobody change it by the API: `[store] operate`");
        ApiError::new(StatusCode::NOT_FOUND, said)
    })
}

async fn change(app: &App, visitor: &Visitor, gateway: &str, what: &Value) -> Answer<Rows<Block>> {
    let lists = tell(&socket_of(app, gateway)?, visitor, what).await?;
    tracing::info!(who = visitor.title(), gateway, %what, "blocks were changed");
    Ok(Json(Rows { rows: lists.rows(gateway), problems: Vec::new() }))
}

impl Lists {
    fn rows(self, gateway: &str) -> Vec<Block> {
        let row = |list: &str, entry: Entry| Block {
            gateway: gateway.to_owned(),
            list: list.to_owned(),
            prefix: entry.prefix,
            since: time_text(entry.since_ns),
            seconds_left: entry.seconds_left,
            reason: entry.reason,
            packets: entry.packets,
            bytes: entry.bytes,
        };
        let blocks = self.blocks.into_iter().map(|it| row("block", it));
        let allowed = self.allowed.into_iter().map(|it| row("allow", it));
        blocks.chain(allowed).collect()
    }
}

/// Asks the gateway behind `socket` in the name of `visitor`.
async fn tell(socket: &Path, visitor: &Visitor, blocks: &Value) -> Result<Lists, ApiError> {
    let request = json!({ "command": "operate", "by": visitor.title(), "blocks": blocks });
    let lists = send(socket, &request).await?.get("blocks").cloned().unwrap_or_default();
    let other = |_| {
        let said = "the gateway says something else";
        ApiError::new(StatusCode::SERVICE_UNAVAILABLE, said)
    };
    serde_json::from_value(lists).map_err(other)
}

/// What the gateway behind `socket` answers.
pub(crate) async fn send(socket: &Path, request: &Value) -> Result<Value, ApiError> {
    let ask = async {
        let mut stream = UnixStream::connect(socket).await?;
        stream.write_all(format!("{request}\n").as_bytes()).await?;
        let mut text = Vec::new();
        stream.take(ANSWER_BYTES_MAX).read_to_end(&mut text).await?;
        io::Result::Ok(serde_json::from_slice::<Value>(&text)?)
    };
    let down = |why: String| ApiError::new(StatusCode::SERVICE_UNAVAILABLE, why);
    let answer = match tokio::time::timeout(PATIENCE, ask).await {
        Ok(Ok(answer)) => answer,
        Ok(Err(error)) => return Err(down(format!("the gateway does not answer: {error}"))),
        Err(_) => return Err(down("the gateway does not answer in time".to_owned())),
    };
    match answer.get("error").and_then(Value::as_str) {
        Some(error) => Err(ApiError::bad(error)),
        None => Ok(answer),
    }
}

/// What to say of an alert.
#[derive(Clone, Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NewNote {
    /// At this gateway.
    pub gateway: String,
    /// Its number in the gateway's store.
    pub alert: u64,
    /// Whether nobody need look at it any more.
    pub acknowledged: bool,
    /// Why; takes the place of an earlier comment.
    #[schema(max_length = 500)]
    pub comment: Option<String>,
}

/// Acknowledge an alert, or comment on it
#[utoipa::path(post, path = "/api/v1/alerts/notes", request_body = NewNote,
    responses((status = 202, description = "It is stored within a second"),
              (status = 400, body = ErrorBody), (status = 403, body = ErrorBody),
              (status = 404, body = ErrorBody), (status = 415, body = ErrorBody),
              (status = 422, body = ErrorBody)))]
pub(crate) async fn note(
    State(app): State<Arc<App>>,
    Extension(visitor): Extension<Visitor>,
    Sent(new): Sent<NewNote>,
) -> Result<StatusCode, ApiError> {
    let socket = socket_of(&app, &new.gateway)?;
    let (gateway, alert) = (new.gateway.clone(), new.alert);
    let (found, problems) = ask_stores(Arc::clone(&app), move |places| {
        query::each(places, Some(&gateway), |_, reader| Ok(vec![reader.has_alert(alert)?]))
    })
    .await?;
    if let Some(problem) = problems.first() {
        return Err(ApiError::new(StatusCode::SERVICE_UNAVAILABLE, problem));
    }
    if found != [true] {
        return Err(ApiError::new(StatusCode::NOT_FOUND, "there is no alert of this number"));
    }
    let request = json!({
        "command": "remark", "by": visitor.title(), "alert": alert,
        "is_acknowledged": new.acknowledged, "comment": new.comment.unwrap_or_default(),
    });
    send(&socket, &request).await?;
    tracing::info!(who = visitor.title(), gateway = new.gateway, alert, "an alert was remarked on");
    Ok(StatusCode::ACCEPTED)
}
