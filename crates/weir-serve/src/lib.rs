//! The API and the dashboard: HTTP over what gateways publish and store.
//!
//! ```text
//!  gateway --status socket (last snapshot, a second old at most)--> Poller --> live, /metrics
//!  gateway --> store (SQLite, WAL) ------Reader, read only--------> routes --> JSON
//!  browser, curl, Prometheus <-- axum <-- token, rate limit, time limit
//! ```
//!
//! What speaks HTTP holds no keys: it is a process of its own, without privileges, that reads one
//! socket and one file of each gateway. What it changes goes by the operators' socket of gateways
//! that have one (docs/adr/0191).

#![forbid(unsafe_code)]

pub mod account;

pub mod gateways;
pub mod status;

pub mod columns;
pub mod dto;
pub mod exporters;
pub mod names;
pub mod periods;
pub mod query;

pub mod token;

pub mod live;
pub mod server;

pub mod access;
mod app;
mod assets;
pub mod blocks;
pub mod configure;
pub mod evidence;
mod guard;
mod metrics;
mod openapi;
mod routes;
mod standing;
pub mod summary;
pub mod suppressions;

pub use app::{App, router};
