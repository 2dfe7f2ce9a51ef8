//! What each keyword means, as packets and rules say it.

mod bench;

mod applications;
mod contents;
mod headers;
mod odd;
mod quic_and_websocket;
mod rdma;
mod sessions;
mod sessions_in_clear;
mod states;
mod units;
