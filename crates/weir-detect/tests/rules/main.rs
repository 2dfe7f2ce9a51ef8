//! What each keyword means, as packets and rules say it.

mod bench;

mod absences;
mod applications;
mod beginnings;
mod bodies;
mod bypasses;
mod calls;
mod contents;
mod filters;
mod floods;
mod forms;
mod frames;
mod headers;
mod heads;
mod limits;
mod looks;
mod odd;
mod orders;
mod parser_errors;
mod past;
mod progress;
mod quic_and_websocket;
mod rdma;
mod receivers;
mod sessions;
mod sessions_in_clear;
mod sharing;
mod sides;
mod speech;
mod states;
mod units;
