//! Flow export: NetFlow v5 and v9 (RFC 3954), IPFIX (RFC 7011); alerts as EVE JSON.
//!
//! The encoders do no I/O: records and the time go in, messages come out. [`exporter`] runs them,
//! one thread a collector, so that a collector that stalls holds up no other.

pub mod access_event;
mod alerts;
pub mod exporter;

pub mod encoder;
pub mod eve;
pub mod eve_dns;
mod eve_out;
pub mod eve_record;
mod eve_socket;
pub mod fields;
pub mod ipfix;
pub mod netflow;
pub mod rdma;
pub mod templated;

mod session;
pub mod siem;
mod siem_link;
pub mod siem_text;
pub mod spool;
pub mod transport;

pub use alerts::{AlertCounters, AlertSender, AlertSink, EveFile, EvePlace, EveRecords};
pub use encoder::{Encoder, EncoderOptions, Format, Interfaces, Item, Message, TemplateRefresh};
pub use eve_out::unfit;
pub use exporter::{Collector, CollectorCounters, ExportError, Exporter, RecordSender, Spooling};
pub use siem::{Siem, SiemCounters, SiemSink};
pub use siem_text::SiemFormat;
pub use transport::{Endpoint, TlsFiles};
