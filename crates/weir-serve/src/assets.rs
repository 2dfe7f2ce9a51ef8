//! The dashboard's files, built from `web/` and part of the program: it needs nothing from outside.

use axum::extract::Path;
use axum::http::header;
use axum::response::{IntoResponse, Response};

use crate::routes;

/// Name, type, bytes.
const FILES: &[(&str, &str, &[u8])] = &[
    ("index.js", "text/javascript; charset=utf-8", include_bytes!("../assets/assets/index.js")),
    ("index.css", "text/css; charset=utf-8", include_bytes!("../assets/assets/index.css")),
    ("icon.svg", "image/svg+xml", include_bytes!("../assets/assets/icon.svg")),
];

const INDEX: &[u8] = include_bytes!("../assets/index.html");

/// The dashboard.
pub(crate) async fn index() -> Response {
    ([(header::CONTENT_TYPE, "text/html; charset=utf-8")], INDEX).into_response()
}

/// One of its files.
pub(crate) async fn asset(Path(name): Path<String>) -> Response {
    match FILES.iter().find(|(known, _, _)| *known == name) {
        Some((_, kind, bytes)) => ([(header::CONTENT_TYPE, *kind)], *bytes).into_response(),
        None => routes::not_found().await.into_response(),
    }
}
