//! The embedded store: one SQLite file a gateway, so that a gateway remembers without a database to
//! install.
//!
//! ```text
//!  worker ---StoreSender (bounded, never waits)---+
//!  control --samples, events----------------------+--> Store's thread --> one file (WAL)
//!                 weir serve, weir flows: Reader, read only <---------------+
//! ```
//!
//! The thread alone writes. What it committed survives `kill -9` and a power cut (synchronous =
//! FULL); what its queue cannot take is counted. A full disk keeps the batch at hand and tries
//! again. A file that is damaged is moved aside, one of a newer version is left alone; both are
//! said in [`StoreCounters::failure`] and the log, and the gateway goes on.

mod clock;
mod collected;
mod columns;
mod exporters;
mod files;
mod group;
mod insert;
pub mod labels;
mod notes;
mod numbers;
mod periods;
pub mod read;
mod retention;
mod rollup;
pub mod rows;
mod samples;
mod schema;
pub mod summary;
mod suppressions;
mod writer;

pub use exporters::ExporterRow;
pub use labels::{LABEL_KINDS, LABELS_MAX, Label, LabelFilter, Labels, Names};
pub use notes::AlertNote;
pub use periods::PeriodRow;
pub use read::{
    AlertFilter, Order, QUERY_TIME_MAX, QueryError, ROWS_MAX, Range, Reader, RecordFilter,
    bound_memory,
};
pub use rollup::Summed;
pub use rows::{
    AlertRow, AskedRow, Collected, ConversationRow, CounterRow, EventRow, FlowRow, PeerStateRow,
    TalkerRow,
};
pub use samples::{Event, PeerState, Sample, Scope, ScopeKind};
pub use schema::{SCHEMA_VERSION, StoreError};
pub use summary::{AlertSlice, GroupBy, SignatureRow, VolumeRow, Volumes};
pub use suppressions::{SUPPRESSIONS_MAX, Suppression, SuppressionChange};
pub use writer::{
    AlertStore, CollectedStore, Retention, Store, StoreCounters, StoreOptions, StoreSender,
};
