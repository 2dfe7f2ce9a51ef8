//! The OpenAPI document, made from the routes and their types.

use axum::Json;
use utoipa::openapi::security::{Http, HttpAuthScheme, SecurityScheme};
use utoipa::{Modify, OpenApi};

use crate::{access, blocks, configure, evidence, exporters, periods, routes, summary};

#[derive(OpenApi)]
#[openapi(
    info(title = "Weir", description = "What Weir gateways see, seal and drop."),
    paths(
        routes::healthz, routes::status, routes::flows, routes::conversations, routes::talkers,
        routes::alerts, summary::alerts, summary::volumes,
        blocks::list, blocks::add, blocks::remove, blocks::note,
        routes::counters, routes::drops, routes::tunnels, routes::events, routes::live,
        exporters::list, periods::list, access::list, evidence::list, evidence::cut,
        configure::show, configure::check, configure::try_out, configure::confirm,
        configure::roll_back
    ),
    security(("token" = [])),
    modifiers(&Token)
)]
struct Document;

struct Token;

impl Modify for Token {
    fn modify(&self, document: &mut utoipa::openapi::OpenApi) {
        let scheme = SecurityScheme::Http(Http::new(HttpAuthScheme::Bearer));
        document.components.get_or_insert_default().add_security_scheme("token", scheme);
    }
}

/// This document
pub(crate) async fn show() -> Json<utoipa::openapi::OpenApi> {
    Json(Document::openapi())
}
