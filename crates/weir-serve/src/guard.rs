//! What stands before every route: the token, the rate limit, the time limit, and the headers that
//! tell a browser to trust nothing but our own files.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use axum::extract::{Request, State};
use axum::http::header::{self, HeaderMap, HeaderName, HeaderValue};
use axum::http::{Method, StatusCode};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use weir_store::clock;

use crate::app::{App, Client};
use crate::routes::ApiError;
use crate::token::{Holder, Role};

/// Requests a second by one who asks, in the long run.
const REQUESTS_PER_S: f64 = 50.0;

/// Requests that one may make at once.
const REQUESTS_BURST: f64 = 200.0;

/// Wrong tokens that a client may show in a row, one more every ten seconds.
const WRONG_BURST: f64 = 10.0;
const WRONG_PER_S: f64 = 0.1;

/// Askers remembered; at the bound, the one longest unseen is forgotten.
const ASKERS_MAX: usize = 1024;

/// How long an answer may take.
const ANSWER_WITHIN: Duration = Duration::from_secs(10);

/// Characters of a path and query, at most.
const TARGET_MAX: usize = 2048;

const HEADERS: &[(&str, &str)] = &[
    (
        "content-security-policy",
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; \
         connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    ),
    ("x-content-type-options", "nosniff"),
    ("x-frame-options", "DENY"),
    ("referrer-policy", "no-referrer"),
    ("cross-origin-opener-policy", "same-origin"),
    ("cross-origin-resource-policy", "same-origin"),
    ("permissions-policy", "camera=(), geolocation=(), microphone=()"),
];

/// Who asks: the place of the token that is shown, if it is one, and the address. Behind a proxy
/// all have one address, and a stranger there must not use up what belongs to who was let in.
type Asker = (Option<usize>, IpAddr);

/// The tokens, and how much each has asked for.
#[derive(Debug)]
pub(crate) struct Guard {
    holders: Vec<Holder>,
    askers: Mutex<BTreeMap<Asker, Buckets>>,
}

#[derive(Clone, Copy, Debug)]
struct Buckets {
    seen: Instant,
    requests: f64,
    wrong: f64,
}

impl Guard {
    pub(crate) fn new(holders: Vec<Holder>) -> Self {
        Self { holders, askers: Mutex::default() }
    }

    /// The place of the token that is shown. All are looked at, so that the time does not tell
    /// which it is.
    pub(crate) fn holder(&self, headers: &HeaderMap) -> Option<usize> {
        let shown = shown(headers)?;
        let holders = self.holders.iter().enumerate();
        holders.fold(None, |found, (place, it)| if it.shows(shown) { Some(place) } else { found })
    }

    /// Takes from an asker's bucket; false when it is empty.
    fn take(&self, asker: Asker, now: Instant, from: fn(&mut Buckets) -> &mut f64) -> bool {
        let mut askers = self.askers.lock().unwrap_or_else(PoisonError::into_inner);
        if askers.len() >= ASKERS_MAX && !askers.contains_key(&asker) {
            let oldest = askers.iter().min_by_key(|(_, it)| it.seen).map(|(asker, _)| *asker);
            oldest.map(|oldest| askers.remove(&oldest));
        }
        let full = Buckets { seen: now, requests: REQUESTS_BURST, wrong: WRONG_BURST };
        let buckets = askers.entry(asker).or_insert(full);
        let seconds = now.saturating_duration_since(buckets.seen).as_secs_f64();
        buckets.seen = now;
        buckets.requests = (buckets.requests + seconds * REQUESTS_PER_S).min(REQUESTS_BURST);
        buckets.wrong = (buckets.wrong + seconds * WRONG_PER_S).min(WRONG_BURST);
        let left = from(buckets);
        if *left < 1.0 {
            return false;
        }
        *left -= 1.0;
        true
    }
}

/// Somebody who was let in; put into each request behind the guard.
#[derive(Clone, Debug)]
pub(crate) struct Visitor {
    pub(crate) role: Role,
    name: String,
    client: IpAddr,
}

impl Visitor {
    /// As the log book names him.
    pub(crate) fn title(&self) -> String {
        format!("api: {} ({}) from {}", self.name, self.role.name(), self.client)
    }

    /// # Errors
    /// He may not do what takes `role`.
    pub(crate) fn must_be(&self, role: Role) -> Result<(), ApiError> {
        if self.role >= role {
            return Ok(());
        }
        tracing::warn!(who = self.title(), "asked for what only an {} may", role.name());
        let said = format!("your token is that of a {}: ask an {}", self.role.name(), role.name());
        Err(ApiError::new(StatusCode::FORBIDDEN, said))
    }
}

/// The token that a request shows.
fn shown(headers: &HeaderMap) -> Option<&str> {
    headers.get(header::AUTHORIZATION)?.to_str().ok()?.strip_prefix("Bearer ")
}

/// Lets in who shows a token; what changes something takes an operator.
pub(crate) async fn token(
    State(app): State<Arc<App>>,
    mut request: Request,
    next: Next,
) -> Response {
    let Client(client) = Client::of(&request);
    if let Some(place) = app.guard.holder(request.headers()) {
        let holder = &app.guard.holders[place];
        let visitor = Visitor { role: holder.role, name: holder.name.clone(), client };
        let is_reading = matches!(*request.method(), Method::GET | Method::HEAD);
        let needed = if is_reading { Role::Viewer } else { Role::Operator };
        if let Err(refused) = visitor.must_be(needed) {
            return refused.into_response();
        }
        request.extensions_mut().insert(visitor);
        return next.run(request).await;
    }
    let has_shown_one = shown(request.headers()).is_some();
    if has_shown_one && !app.guard.take((None, client), clock::now(), |it| &mut it.wrong) {
        return too_many();
    }
    let said = ApiError::new(
        StatusCode::UNAUTHORIZED,
        "show the token of `weir serve`: Authorization: Bearer TOKEN",
    );
    let mut response = said.into_response();
    response.headers_mut().insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
    response
}

/// Refuses what is too much, too long or too slow.
pub(crate) async fn limits(State(app): State<Arc<App>>, request: Request, next: Next) -> Response {
    let Client(client) = Client::of(&request);
    let asker = (app.guard.holder(request.headers()), client);
    if !app.guard.take(asker, clock::now(), |it| &mut it.requests) {
        return too_many();
    }
    let target = request.uri().path_and_query().map_or(0, |it| it.as_str().len());
    if target > TARGET_MAX {
        return ApiError::new(StatusCode::URI_TOO_LONG, "the address is too long").into_response();
    }
    // The answer to a listener begins at once and ends when he leaves.
    match tokio::time::timeout(ANSWER_WITHIN, next.run(request)).await {
        Ok(response) => response,
        Err(_) => {
            let said = "no answer in time: ask for less";
            ApiError::new(StatusCode::SERVICE_UNAVAILABLE, said).into_response()
        }
    }
}

fn too_many() -> Response {
    let said = "too many requests: wait a moment";
    let mut response = ApiError::new(StatusCode::TOO_MANY_REQUESTS, said).into_response();
    response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from_static("10"));
    response
}

/// Adds what a browser must know.
pub(crate) async fn headers(request: Request, next: Next) -> Response {
    let mut response = next.run(request).await;
    let headers: &mut HeaderMap = response.headers_mut();
    for (name, value) in HEADERS {
        headers.insert(HeaderName::from_static(name), HeaderValue::from_static(value));
    }
    headers.entry(header::CACHE_CONTROL).or_insert(HeaderValue::from_static("no-store"));
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_run_dry_fill_again_and_are_bounded() {
        let guard = Guard::new(Vec::new());
        let client = |number: u32| (None, IpAddr::from(number.to_be_bytes()));
        let start = clock::now();
        let requests: fn(&mut Buckets) -> &mut f64 = |it| &mut it.requests;
        let passed = (0..1000).filter(|_| guard.take(client(1), start, requests)).count();
        assert_eq!(passed, REQUESTS_BURST as usize);
        assert!(guard.take(client(2), start, requests), "another client has its own");
        let later = start + Duration::from_secs(1);
        assert!(guard.take(client(1), later, requests));
        for number in 0..5000 {
            guard.take(client(number), later, requests);
        }
        assert_eq!(guard.askers.lock().unwrap().len(), ASKERS_MAX);
    }
}
