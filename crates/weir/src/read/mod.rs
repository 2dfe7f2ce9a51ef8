//! Analysis of captures with the gateway's own engine.
//!
//! ```text
//!  files --CaptureReader--> parse --> Meter --> Report --json, csv, text--> standard output
//!                             |
//!                             +--> Detection (--rules) --> EVE
//! ```

mod alike;
pub mod analysis;
pub mod csv;
pub mod detection;
pub mod eve;
pub mod events;
mod exception;
pub mod layers;
pub mod report;
mod stats;
pub mod text;

pub use analysis::{Analysis, FileOutcome, analyse};
pub use report::CaptureReport;
