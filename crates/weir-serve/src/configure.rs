//! A gateway's configuration: told, checked, tried for a time, kept or taken back. By the
//! operators' socket of gateways that let it be administered so, and for admins alone.

use std::sync::Arc;

use axum::extract::State;
use axum::{Extension, Json};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use utoipa::ToSchema;

use crate::app::App;
use crate::blocks::{Sent, send, socket_of};
use crate::dto::{ErrorBody, Rows};
use crate::guard::Visitor;
use crate::routes::{Answer, ApiError, Asked, GatewayQuery};
use crate::token::Role;

/// Seconds of a trial for which nothing is said.
const TRIAL_S_DEFAULT: u64 = 60;

/// The configuration of a gateway.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct Configuration {
    /// The gateway.
    pub gateway: String,
    /// Its number; each accepted configuration raises it.
    pub epoch: u64,
    /// `confirmed`, `unconfirmed`, `restarting` or `stopping`.
    pub state: String,
    /// Where it was read.
    pub path: String,
    /// Until it is taken back, while it is unconfirmed.
    pub seconds_left: Option<f64>,
    /// Why the last one was taken back; absent once another was accepted.
    pub rolled_back_because: Option<String>,
    /// What is in force, as written; absent where a key stands in it.
    pub text: Option<String>,
    /// What is wrong with the text that was sent: nothing was changed.
    pub problems: Option<String>,
    /// Where the text that was sent differs from what is in force, as `diff -u` writes it.
    pub difference: Option<String>,
}

/// A configuration to look at or to try.
#[derive(Clone, Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NewConfiguration {
    /// At this gateway.
    pub gateway: String,
    /// The whole file.
    #[schema(max_length = 262_144)]
    pub text: String,
    /// It is taken back after so many seconds unless it is confirmed (60).
    #[schema(minimum = 5, maximum = 86_400)]
    pub within_seconds: Option<u64>,
}

/// Which trial.
#[derive(Clone, Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Decision {
    /// Of this gateway.
    pub gateway: String,
}

/// What is in force at gateways that tell it here
#[utoipa::path(get, path = "/api/v1/config", params(GatewayQuery),
    responses((status = 200, body = Rows<Configuration>), (status = 400, body = ErrorBody),
              (status = 403, body = ErrorBody)))]
pub(crate) async fn show(
    State(app): State<Arc<App>>,
    Extension(visitor): Extension<Visitor>,
    Asked(asked): Asked<GatewayQuery>,
) -> Answer<Rows<Configuration>> {
    visitor.must_be(Role::Admin)?;
    let (mut rows, mut problems) = (Vec::new(), Vec::new());
    for name in app.places.operate_sockets().into_keys() {
        if asked.gateway.as_ref().is_some_and(|wanted| *wanted != name) {
            continue;
        }
        match tell(&app, &visitor, &name, &json!({ "what": "show" })).await {
            Ok(configuration) => rows.push(configuration),
            Err(error) => problems.push(format!("{name}: {}", error.said())),
        }
    }
    Ok(Json(Rows { rows, problems }))
}

/// What is wrong with a configuration, and where it differs; nothing is changed
#[utoipa::path(post, path = "/api/v1/config/check", request_body = NewConfiguration,
    responses((status = 200, body = Configuration), (status = 400, body = ErrorBody),
              (status = 403, body = ErrorBody), (status = 404, body = ErrorBody),
              (status = 413, body = ErrorBody), (status = 415, body = ErrorBody),
              (status = 422, body = ErrorBody), (status = 503, body = ErrorBody)))]
pub(crate) async fn check(
    State(app): State<Arc<App>>,
    Extension(visitor): Extension<Visitor>,
    Sent(new): Sent<NewConfiguration>,
) -> Answer<Configuration> {
    visitor.must_be(Role::Admin)?;
    let what = json!({ "what": "check", "text": new.text });
    let mut told = tell(&app, &visitor, &new.gateway, &what).await?;
    told.difference = told.text.as_deref().map(|own| difference(own, &new.text));
    Ok(Json(told))
}

/// Take a configuration on trial: without a confirmation in time it is taken back
#[utoipa::path(post, path = "/api/v1/config/try", request_body = NewConfiguration,
    responses((status = 200, body = Configuration), (status = 400, body = ErrorBody),
              (status = 403, body = ErrorBody), (status = 404, body = ErrorBody),
              (status = 413, body = ErrorBody), (status = 415, body = ErrorBody),
              (status = 422, body = ErrorBody), (status = 503, body = ErrorBody)))]
pub(crate) async fn try_out(
    State(app): State<Arc<App>>,
    Extension(visitor): Extension<Visitor>,
    Sent(new): Sent<NewConfiguration>,
) -> Answer<Configuration> {
    visitor.must_be(Role::Admin)?;
    let within_s = new.within_seconds.unwrap_or(TRIAL_S_DEFAULT);
    let what = json!({ "what": "try", "text": new.text, "within_s": within_s });
    let told = tell(&app, &visitor, &new.gateway, &what).await?;
    tracing::info!(who = visitor.title(), gateway = new.gateway, "a configuration was tried");
    Ok(Json(told))
}

/// Keep what is on trial, and write it into the gateway's file
#[utoipa::path(post, path = "/api/v1/config/confirm", request_body = Decision,
    responses((status = 200, body = Configuration), (status = 400, body = ErrorBody),
              (status = 403, body = ErrorBody), (status = 404, body = ErrorBody),
              (status = 415, body = ErrorBody), (status = 422, body = ErrorBody),
              (status = 503, body = ErrorBody)))]
pub(crate) async fn confirm(
    State(app): State<Arc<App>>,
    Extension(visitor): Extension<Visitor>,
    Sent(decision): Sent<Decision>,
) -> Answer<Configuration> {
    decide(&app, &visitor, &decision.gateway, "confirm").await
}

/// Take back what is on trial, now
#[utoipa::path(post, path = "/api/v1/config/rollback", request_body = Decision,
    responses((status = 200, body = Configuration), (status = 400, body = ErrorBody),
              (status = 403, body = ErrorBody), (status = 404, body = ErrorBody),
              (status = 415, body = ErrorBody), (status = 422, body = ErrorBody),
              (status = 503, body = ErrorBody)))]
pub(crate) async fn roll_back(
    State(app): State<Arc<App>>,
    Extension(visitor): Extension<Visitor>,
    Sent(decision): Sent<Decision>,
) -> Answer<Configuration> {
    decide(&app, &visitor, &decision.gateway, "rollback").await
}

async fn decide(app: &App, visitor: &Visitor, gateway: &str, what: &str) -> Answer<Configuration> {
    visitor.must_be(Role::Admin)?;
    let told = tell(app, visitor, gateway, &json!({ "what": what })).await?;
    tracing::info!(who = visitor.title(), gateway, what, "a trial was decided");
    Ok(Json(told))
}

/// What a gateway says.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct GatewayAnswer {
    configuration: Standing,
    text: Option<String>,
    problems: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Standing {
    epoch: u64,
    state: String,
    path: String,
    seconds_left: Option<f64>,
    rolled_back_because: Option<String>,
}

async fn tell(
    app: &App,
    visitor: &Visitor,
    gateway: &str,
    configure: &Value,
) -> Result<Configuration, ApiError> {
    let socket = socket_of(app, gateway)?;
    let request = json!({ "command": "configure", "by": visitor.title(), "configure": configure });
    let said = send(&socket, &request).await?;
    let told = said.get("configured").cloned().unwrap_or_default();
    let other = |_| {
        let said = "the gateway says something else";
        ApiError::new(axum::http::StatusCode::SERVICE_UNAVAILABLE, said)
    };
    let GatewayAnswer { configuration, text, problems } =
        serde_json::from_value(told).map_err(other)?;
    let Standing { epoch, state, path, seconds_left, rolled_back_because } = configuration;
    Ok(Configuration {
        gateway: gateway.to_owned(),
        epoch,
        state,
        path,
        seconds_left,
        rolled_back_because,
        text,
        problems,
        difference: None,
    })
}

/// Lines of both texts that are compared one by one: beyond, all that differs is one piece.
const COMPARED_LINES_MAX: usize = 2000;

/// Lines around a change.
const CONTEXT_LINES: usize = 3;

/// What `diff -u` would write of `own` and `new`.
fn difference(own: &str, new: &str) -> String {
    let (own, new): (Vec<&str>, Vec<&str>) = (own.lines().collect(), new.lines().collect());
    let steps = steps(&own, &new);
    let is_near = |at: usize| {
        let from = at.saturating_sub(CONTEXT_LINES);
        let until = (at + CONTEXT_LINES + 1).min(steps.len());
        steps[from..until].iter().any(|(sign, _)| *sign != ' ')
    };
    let (mut text, mut was_near) = (String::new(), false);
    let (mut own_line, mut new_line) = (1, 1);
    for (at, (sign, line)) in steps.iter().enumerate() {
        let near = is_near(at);
        if near && !was_near {
            text.push_str(&format!("@@ -{own_line} +{new_line} @@\n"));
        }
        if near {
            text.push_str(&format!("{sign}{line}\n"));
        }
        was_near = near;
        own_line += usize::from(*sign != '+');
        new_line += usize::from(*sign != '-');
    }
    text
}

/// Each line with what becomes of it, by the longest common subsequence of what differs.
fn steps<'a>(own: &[&'a str], new: &[&'a str]) -> Vec<(char, &'a str)> {
    let head = own.iter().zip(new).take_while(|(own, new)| own == new).count();
    let (own_rest, new_rest) = (&own[head..], &new[head..]);
    let pairs = own_rest.iter().rev().zip(new_rest.iter().rev());
    let tail = pairs.take_while(|(own, new)| own == new).count();
    let a = &own_rest[..own_rest.len() - tail];
    let b = &new_rest[..new_rest.len() - tail];
    let mut steps: Vec<_> = own[..head].iter().map(|line| (' ', *line)).collect();
    if a.len().max(b.len()) > COMPARED_LINES_MAX {
        steps.extend(a.iter().map(|line| ('-', *line)));
        steps.extend(b.iter().map(|line| ('+', *line)));
    } else {
        // The longest common subsequence of what follows each pair of places.
        let mut longest = vec![vec![0_u16; b.len() + 1]; a.len() + 1];
        for i in (0..a.len()).rev() {
            for j in (0..b.len()).rev() {
                longest[i][j] = match a[i] == b[j] {
                    true => longest[i + 1][j + 1] + 1,
                    false => longest[i + 1][j].max(longest[i][j + 1]),
                };
            }
        }
        let (mut i, mut j) = (0, 0);
        while i < a.len() || j < b.len() {
            if i < a.len() && j < b.len() && a[i] == b[j] {
                steps.push((' ', a[i]));
                (i, j) = (i + 1, j + 1);
            } else if i < a.len() && (j == b.len() || longest[i + 1][j] >= longest[i][j + 1]) {
                steps.push(('-', a[i]));
                i += 1;
            } else {
                steps.push(('+', b[j]));
                j += 1;
            }
        }
    }
    steps.extend(own[own.len() - tail..].iter().map(|line| (' ', *line)));
    steps
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_difference_is_what_diff_u_shows() {
        let own = "a\nb\nc\nd\ne\nf\ng\nh\n";
        let new = "a\nb\nc\nd\nE\nf\ng\nh\ni\n";
        let wanted = "@@ -2 +2 @@\n b\n c\n d\n-e\n+E\n f\n g\n h\n+i\n";
        assert_eq!(difference(own, new), wanted);
        assert_eq!(difference(own, own), "");
        assert_eq!(difference("", "x\n"), "@@ -1 +1 @@\n+x\n");
    }
}
