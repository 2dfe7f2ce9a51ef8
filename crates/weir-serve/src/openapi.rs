//! The OpenAPI document, made from the routes and their types.

use axum::Json;
use utoipa::openapi::security::{Http, HttpAuthScheme, SecurityScheme};
use utoipa::openapi::{RefOr, Response};
use utoipa::{Modify, OpenApi};

use crate::{
    access, blocks, configure, evidence, exporters, periods, routes, summary, suppressions,
};

#[derive(OpenApi)]
#[openapi(
    info(title = "Weir", description = "What Weir gateways see, seal and drop."),
    paths(
        routes::healthz, routes::status, routes::flows, routes::conversations, routes::talkers,
        routes::alerts, summary::alerts, summary::volumes,
        blocks::list, blocks::add, blocks::remove, blocks::note,
        suppressions::list, suppressions::add, suppressions::remove,
        routes::counters, routes::drops, routes::tunnels, routes::events, routes::live,
        exporters::list, periods::list, access::list, evidence::list, evidence::cut,
        configure::show, configure::check, configure::try_out, configure::confirm,
        configure::roll_back
    ),
    security(("token" = [])),
    modifiers(&Token, &Everywhere)
)]
struct Document;

struct Token;

impl Modify for Token {
    fn modify(&self, document: &mut utoipa::openapi::OpenApi) {
        let scheme = SecurityScheme::Http(Http::new(HttpAuthScheme::Bearer));
        document.components.get_or_insert_default().add_security_scheme("token", scheme);
    }
}

/// What stands before every route may answer in its place.
struct Everywhere;

impl Modify for Everywhere {
    fn modify(&self, document: &mut utoipa::openapi::OpenApi) {
        let answers = [
            ("401", "Show the token"),
            ("414", "The address is too long"),
            ("429", "Too many requests, or wrong tokens"),
            ("503", "It took too long, or what is asked for is not to be had now"),
        ];
        for (path, item) in &mut document.paths.paths {
            let operations = [&mut item.get, &mut item.post, &mut item.delete];
            for operation in operations.into_iter().flatten() {
                for (status, why) in
                    answers.iter().filter(|(status, _)| *status != "401" || path != "/healthz")
                {
                    let answers = &mut operation.responses.responses;
                    answers
                        .entry((*status).to_owned())
                        .or_insert_with(|| RefOr::T(Response::new(*why)));
                }
            }
        }
    }
}

/// This document
pub(crate) async fn show() -> Json<utoipa::openapi::OpenApi> {
    Json(Document::openapi())
}
