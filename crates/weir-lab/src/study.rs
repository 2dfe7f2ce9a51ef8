//! Studies: designed experiments, run trial by trial in the lab, recorded as they go.
//!
//! ```text
//!   studies/NAME.toml -> design::Study -> plan (trials in random order)
//!     -> run: for each trial fresh namespaces, its steps, its record -> DIR/trials.jsonl, DIR/raw/
//!     -> report: tables, figures, tests from DIR alone
//! ```
//!
//! A trial that fails or is disturbed is recorded as such, repeated a bounded number of times, and
//! a failed one never counts. What is recorded survives a killed run, which goes on where it was.

pub mod order;

pub mod design;

pub mod catalogue;

pub mod steps;

mod attacking;
mod bypassing;
mod generating;
mod governor;
mod listening;
mod stream;
mod tunnels;
mod verbs;

pub mod load;

pub mod environment;

pub mod record;

pub mod run;
