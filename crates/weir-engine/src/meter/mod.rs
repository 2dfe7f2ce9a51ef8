//! Counting: totals, flow records and queue-pair conversation records, from the one walk's
//! findings.
//!
//! ```text
//!  Parsed --Meter::observe--> totals, flow table, conversation table --timeouts, bound--> records
//!  the fast path's counters --Meter::fold--^
//! ```

pub mod counters;
pub mod fold;
#[expect(clippy::module_inception, reason = "the meter is what this folder is about")]
pub mod meter;
pub mod record;
mod train;

pub use crate::flow::Reason;
pub use counters::{LossTotals, RdmaTotals, Totals};
pub use fold::{Fold, Notice};
pub(crate) use meter::FlowPlace;
pub use meter::{Icrc, Meter, MeterLimits, Observation, Observed};
pub use record::{ConversationRecord, DirectionRecord, FlowRecord, Record};
