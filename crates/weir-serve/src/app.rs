//! The router, and what its routes share.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

use axum::Router;
use axum::extract::{DefaultBodyLimit, Request};
use axum::middleware;
use axum::routing::{get, post};
use tokio::sync::Semaphore;

use crate::gateways::Places;
use crate::guard::{self, Guard};
use crate::live::Board;
use crate::token::{Holder, Token};
use crate::{
    access, assets, blocks, configure, evidence, exporters, live, metrics, openapi, periods,
    routes, summary, suppressions,
};

/// Questions to stores at a time; others wait.
const QUERIES_MAX: usize = 4;

/// Questions at a time that tell groups apart: each may take most of the memory that `weir serve`
/// has.
const GROUPINGS_MAX: usize = 1;

/// Listeners of the live stream at a time; more are refused.
const LISTENERS_MAX: usize = 64;

/// Bytes of what a client sends along.
const BODY_BYTES_MAX: usize = 4096;

/// Bytes of a configuration that a client sends along.
const CONFIGURATION_BYTES_MAX: usize = 256 << 10;

/// Captures that are cut at a time, each in memory; more are refused.
const CUTS_MAX: usize = 1;

/// What the routes share.
#[derive(Debug)]
pub struct App {
    /// Where gateways are.
    pub places: Places,
    /// What they do now.
    pub board: Arc<live::Board>,
    pub(crate) guard: Guard,
    pub(crate) queries: Semaphore,
    pub(crate) groupings: Semaphore,
    pub(crate) listeners: Arc<Semaphore>,
    pub(crate) cuts: Arc<Semaphore>,
}

impl App {
    /// An application that lets in who shows `token`, as an admin.
    pub fn new(places: Places, token: Token) -> Arc<Self> {
        Self::with_holders(places, vec![Holder::admin(token)])
    }

    /// One that lets in the `holders` of tokens.
    pub fn with_holders(places: Places, holders: Vec<Holder>) -> Arc<Self> {
        Arc::new(Self {
            places,
            board: Arc::new(Board::default()),
            guard: Guard::new(holders),
            queries: Semaphore::new(QUERIES_MAX),
            groupings: Semaphore::new(GROUPINGS_MAX),
            listeners: Arc::new(Semaphore::new(LISTENERS_MAX)),
            cuts: Arc::new(Semaphore::new(CUTS_MAX)),
        })
    }
}

/// Who asks; put into each request by the server.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Client(pub(crate) IpAddr);

impl Client {
    /// Who sent `request`; a request without a connection (a test's) is this machine's.
    pub(crate) fn of(request: &Request) -> Self {
        let client = request.extensions().get::<Self>().copied();
        client.unwrap_or(Self(IpAddr::V4(Ipv4Addr::LOCALHOST)))
    }
}

/// Everything that `weir serve` answers.
pub fn router(app: Arc<App>) -> Router {
    let configuring = Router::new()
        .route("/api/v1/config", get(configure::show))
        .route("/api/v1/config/check", post(configure::check))
        .route("/api/v1/config/try", post(configure::try_out))
        .route("/api/v1/config/confirm", post(configure::confirm))
        .route("/api/v1/config/rollback", post(configure::roll_back))
        .layer(DefaultBodyLimit::max(CONFIGURATION_BYTES_MAX));
    let with_token = Router::new()
        .route("/metrics", get(metrics::show))
        .route("/api/v1/openapi.json", get(openapi::show))
        .route("/api/v1/status", get(routes::status))
        .route("/api/v1/flows", get(routes::flows))
        .route("/api/v1/conversations", get(routes::conversations))
        .route("/api/v1/talkers", get(routes::talkers))
        .route("/api/v1/alerts", get(routes::alerts))
        .route("/api/v1/alerts/summary", get(summary::alerts))
        .route("/api/v1/alerts/notes", post(blocks::note))
        .route(
            "/api/v1/alerts/suppressions",
            get(suppressions::list).post(suppressions::add).delete(suppressions::remove),
        )
        .route("/api/v1/volumes", get(summary::volumes))
        .route("/api/v1/counters", get(routes::counters))
        .route("/api/v1/drops", get(routes::drops))
        .route("/api/v1/tunnels", get(routes::tunnels))
        .route("/api/v1/exporters", get(exporters::list))
        .route("/api/v1/events", get(routes::events))
        .route("/api/v1/blocks", get(blocks::list).post(blocks::add).delete(blocks::remove))
        .route("/api/v1/periods", get(periods::list))
        .route("/api/v1/access", get(access::list))
        .route("/api/v1/evidence", get(evidence::list))
        .route("/api/v1/evidence/cut", get(evidence::cut))
        .route("/api/v1/live", get(routes::live))
        .layer(DefaultBodyLimit::max(BODY_BYTES_MAX))
        .merge(configuring)
        .route_layer(middleware::from_fn_with_state(Arc::clone(&app), guard::token));
    Router::new()
        .merge(with_token)
        .route("/healthz", get(routes::healthz))
        .route("/", get(assets::index))
        .route("/assets/{name}", get(assets::asset))
        .fallback(routes::not_found)
        .method_not_allowed_fallback(routes::method_not_allowed)
        .layer(middleware::from_fn_with_state(Arc::clone(&app), guard::limits))
        .layer(middleware::from_fn(guard::headers))
        .with_state(app)
}
