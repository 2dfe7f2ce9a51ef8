//! From records to messages of a format, without I/O.

use weir_engine::meter::{ConversationRecord, FlowRecord, Record};
use weir_engine::verdict::Side;
use weir_wire::frame::Time;

use super::ipfix;
use super::netflow::{self, NetflowV5};
use super::templated::Templated;

/// An export format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// NetFlow version 5: IPv4 flows only, 32-bit counters.
    Netflow5,
    /// NetFlow version 9 (RFC 3954): flows.
    Netflow9,
    /// IPFIX (RFC 7011): flows and queue-pair conversations.
    Ipfix,
}

/// Interface indices of a pair of ports, as collectors know interfaces; zero: not known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Interfaces {
    /// Of the host port.
    pub host: u32,
    /// Of the wire port.
    pub wire: u32,
}

impl Interfaces {
    /// Of the port on `side`.
    pub fn of(self, side: Option<Side>) -> u32 {
        match side {
            Some(Side::Host) => self.host,
            Some(Side::Wire) => self.wire,
            None => 0,
        }
    }
}

/// A record of its own, with where it was made.
#[derive(Clone, Copy, Debug)]
#[expect(clippy::large_enum_variant, reason = "queues hold items by value: no allocation a record")]
pub enum Item {
    /// A 5-tuple.
    Flow(FlowRecord, Interfaces),
    /// A queue-pair conversation.
    Conversation(ConversationRecord, Interfaces),
}

impl Item {
    /// A copy of `record`.
    pub fn of(record: Record<'_>, interfaces: Interfaces) -> Self {
        match record {
            Record::Flow(flow) => Self::Flow(*flow, interfaces),
            Record::Conversation(conversation) => Self::Conversation(*conversation, interfaces),
        }
    }
}

/// When templates are repeated; over transports that may lose them only.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TemplateRefresh {
    /// After this many messages.
    pub messages: u32,
    /// After this many nanoseconds.
    pub interval_ns: u64,
}

impl Default for TemplateRefresh {
    /// Every 20 messages and every minute: a collector that starts late, or loses one, understands
    /// the stream again within a minute (RFC 7011 s8.4 and RFC 3954 s9 ask for both).
    fn default() -> Self {
        Self { messages: 20, interval_ns: 60_000_000_000 }
    }
}

/// How to encode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EncoderOptions {
    /// The format.
    pub format: Format,
    /// Bytes of a message, at most; [`MESSAGE_BYTES_MIN`] to 65,535.
    pub message_bytes_max: usize,
    /// Observation domain (IPFIX), source ID (v9), low byte: engine ID (v5).
    pub domain: u32,
    /// The number under which [`super::rdma::ELEMENTS`] are exported.
    pub enterprise: u32,
    /// IPFIX: one record for both directions of a flow (RFC 5103), instead of one for each.
    pub biflow: bool,
    /// `None`: templates are sent by [`Encoder::templates`] alone, once a session.
    pub refresh: Option<TemplateRefresh>,
}

/// The least [`EncoderOptions::message_bytes_max`]: the longest template fits.
pub const MESSAGE_BYTES_MIN: usize = 1024;

/// Bytes of a datagram, at most, unless configured: fits an Ethernet MTU with IPv6, a VLAN and a
/// tunnel around it.
pub const DATAGRAM_BYTES_MAX: usize = 1400;

/// RFC 5612's number for documentation: it belongs to nobody, so no other exporter's elements can
/// be mistaken for these. NOT a registered number of this project.
pub const ENTERPRISE_UNREGISTERED: u32 = 32473;

impl EncoderOptions {
    /// Datagrams of `format`, with all defaults.
    pub fn datagrams(format: Format) -> Self {
        Self {
            format,
            message_bytes_max: DATAGRAM_BYTES_MAX,
            domain: 1,
            enterprise: ENTERPRISE_UNREGISTERED,
            biflow: false,
            refresh: Some(TemplateRefresh::default()),
        }
    }

    /// IPFIX for a stream: larger messages, templates once a session.
    pub fn stream() -> Self {
        Self { message_bytes_max: 8192, refresh: None, ..Self::datagrams(Format::Ipfix) }
    }
}

/// A whole message, ready to send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Message<'a> {
    /// Its bytes.
    pub bytes: &'a [u8],
    /// Data records in it.
    pub records: u32,
}

/// What became of an item.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Added {
    /// Data records written for it.
    pub records: u32,
    /// Whether the format has no form for it: IPv6 and conversations in NetFlow v5, conversations
    /// in v9 (their packets are in the flows' records).
    pub is_without_form: bool,
}

/// Encodes items of one session.
#[derive(Debug)]
pub enum Encoder {
    /// NetFlow v5.
    V5(NetflowV5),
    /// NetFlow v9 or IPFIX.
    Templated(Templated),
}

impl Encoder {
    /// An encoder whose uptimes count from `boot`.
    pub fn new(options: &EncoderOptions, boot: Time) -> Self {
        match options.format {
            Format::Netflow5 => Self::V5(NetflowV5::new(options, boot)),
            Format::Netflow9 => Self::Templated(Templated::new(&netflow::V9, options, boot)),
            Format::Ipfix => Self::Templated(Templated::new(&ipfix::IPFIX, options, boot)),
        }
    }

    /// Adds an item; what is full leaves by `send`.
    pub fn add(&mut self, item: &Item, now: Time, send: &mut dyn FnMut(Message<'_>)) -> Added {
        match self {
            Self::V5(encoder) => encoder.add(item, now, send),
            Self::Templated(encoder) => encoder.add(item, now, send),
        }
    }

    /// Sends what was added and has not left.
    pub fn flush(&mut self, now: Time, send: &mut dyn FnMut(Message<'_>)) {
        match self {
            Self::V5(encoder) => encoder.flush(now, send),
            Self::Templated(encoder) => encoder.flush(now, send),
        }
    }

    /// Sends all templates, without data: how a session over a stream begins.
    pub fn templates(&mut self, now: Time, send: &mut dyn FnMut(Message<'_>)) {
        if let Self::Templated(encoder) = self {
            encoder.templates(now, send);
        }
    }
}
