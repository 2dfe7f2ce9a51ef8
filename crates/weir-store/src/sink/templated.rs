//! What NetFlow v9 and IPFIX have in common: messages of sets, described by templates.
//!
//! ```text
//!  header | set 0 or 2: templates (when due) | set 256: records | set 258: records | ...
//! ```

use weir_engine::flow::FlowDirection;
use weir_engine::meter::{ConversationRecord, FlowRecord};
use weir_wire::frame::Time;

use super::encoder::{Added, EncoderOptions, Format, Interfaces, Item, Message, TemplateRefresh};
use super::fields::{
    self, Element, Field, FlowView, NS_PER_S, REVERSE_ENTERPRISE, is_ipv4, record_bytes,
};
use super::rdma::{self, RdmaView};

/// How a format differs.
pub struct Dialect {
    pub(crate) format: Format,
    /// Bytes of the message header.
    pub(crate) header_bytes: usize,
    /// Writes it.
    pub(crate) write_header: fn(&Header, &mut [u8]),
    /// Set identifier of templates.
    pub(crate) template_set: u16,
    /// Sets end at a multiple of this many bytes.
    pub(crate) alignment: usize,
    /// Whether an element may carry an enterprise number.
    pub(crate) has_enterprises: bool,
    /// Fields of one direction of a flow: IPv4, IPv6.
    pub(crate) flow: [&'static [Field<FlowView>]; 2],
    /// How far a message of so many data records moves the sequence number.
    pub(crate) sequence_step: fn(u32) -> u32,
}

impl std::fmt::Debug for Dialect {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "Dialect({:?})", self.format)
    }
}

/// What a message header says.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Header {
    /// Bytes of the message.
    pub(crate) length: usize,
    /// Records in it, templates included.
    pub(crate) entries: u16,
    pub(crate) sequence: u32,
    pub(crate) domain: u32,
    pub(crate) now: Time,
    pub(crate) boot: Time,
}

/// Template identifiers. They never change meaning while a session lives (RFC 7011 s8.1).
const FLOW_ID: u16 = 256;
const BIFLOW_ID: u16 = 258;
const RDMA_ID: u16 = 260;

const SET_HEADER_BYTES: usize = 4;

/// Encodes into messages of templates and data records.
#[derive(Debug)]
pub struct Templated {
    dialect: &'static Dialect,
    options: EncoderOptions,
    boot: Time,
    /// All templates, each as the record that defines it.
    templates: Vec<Vec<u8>>,
    /// The message under way; empty, or with its header's place at least.
    message: Vec<u8>,
    /// The set under way: its identifier and where it starts.
    open: Option<(u16, usize)>,
    entries: u16,
    records: u32,
    sequence: u32,
    messages_since_templates: u32,
    /// When templates were sent last.
    templated: Option<Time>,
    conversations: u64,
}

impl Templated {
    pub(crate) fn new(dialect: &'static Dialect, options: &EncoderOptions, boot: Time) -> Self {
        let mut templates = Vec::new();
        let enterprise = options.enterprise;
        match dialect.has_enterprises && options.biflow {
            false => {
                for (id, fields) in (FLOW_ID..).zip(dialect.flow) {
                    templates.push(template(id, &[fields], enterprise));
                }
            }
            true => {
                for (id, fields) in (BIFLOW_ID..).zip([fields::BIFLOW_V4, fields::BIFLOW_V6]) {
                    templates.push(template(id, &[fields], enterprise));
                }
            }
        }
        if dialect.has_enterprises {
            for (id, addresses) in (RDMA_ID..).zip([rdma::ADDRESSES_V4, rdma::ADDRESSES_V6]) {
                templates.push(template(id, &[addresses, rdma::ELEMENTS], enterprise));
            }
        }
        Self {
            dialect,
            options: *options,
            // Whole seconds, as in NetFlow v9's header: an uptime there is then never negative.
            boot: Time(boot.0 / NS_PER_S * NS_PER_S),
            templates,
            message: Vec::with_capacity(options.message_bytes_max),
            open: None,
            entries: 0,
            records: 0,
            sequence: 0,
            messages_since_templates: 0,
            templated: None,
            conversations: 0,
        }
    }

    pub(crate) fn add(
        &mut self,
        item: &Item,
        now: Time,
        send: &mut dyn FnMut(Message<'_>),
    ) -> Added {
        match item {
            Item::Flow(record, interfaces) => self.add_flow(record, *interfaces, now, send),
            Item::Conversation(record, interfaces) if self.dialect.has_enterprises => {
                self.add_conversation(record, *interfaces, now, send)
            }
            Item::Conversation(..) => Added { records: 0, is_without_form: true },
        }
    }

    pub(crate) fn flush(&mut self, now: Time, send: &mut dyn FnMut(Message<'_>)) {
        if self.message.is_empty() {
            return;
        }
        self.close_set();
        let header = Header {
            length: self.message.len(),
            entries: self.entries,
            sequence: self.sequence,
            domain: self.options.domain,
            now,
            boot: self.boot,
        };
        (self.dialect.write_header)(&header, &mut self.message);
        send(Message { bytes: &self.message, records: self.records });
        self.sequence = self.sequence.wrapping_add((self.dialect.sequence_step)(self.records));
        self.messages_since_templates = self.messages_since_templates.saturating_add(1);
        self.message.clear();
        self.entries = 0;
        self.records = 0;
    }

    pub(crate) fn templates(&mut self, now: Time, send: &mut dyn FnMut(Message<'_>)) {
        self.flush(now, send);
        self.write_templates(now, send);
        self.flush(now, send);
    }

    fn add_flow(
        &mut self,
        record: &FlowRecord,
        interfaces: Interfaces,
        now: Time,
        send: &mut dyn FnMut(Message<'_>),
    ) -> Added {
        let family = usize::from(!is_ipv4(&record.key.address_a()));
        let boot = self.boot;
        let view =
            |direction: FlowDirection| FlowView { record: *record, direction, interfaces, boot };
        if self.dialect.has_enterprises && self.options.biflow {
            let fields = [fields::BIFLOW_V4, fields::BIFLOW_V6][family];
            let view = view(record.initiator);
            self.write(BIFLOW_ID + family as u16, &[fields], &view, now, send);
            return Added { records: 1, ..Added::default() };
        }
        let mut added = Added::default();
        for direction in [record.initiator, record.initiator.reversed()] {
            let view = view(direction);
            if view.forward().packets > 0 {
                let fields = self.dialect.flow[family];
                self.write(FLOW_ID + family as u16, &[fields], &view, now, send);
                added.records += 1;
            }
        }
        added
    }

    fn add_conversation(
        &mut self,
        record: &ConversationRecord,
        interfaces: Interfaces,
        now: Time,
        send: &mut dyn FnMut(Message<'_>),
    ) -> Added {
        self.conversations += 1;
        let family = usize::from(!is_ipv4(&record.first.key.source()));
        let addresses = [rdma::ADDRESSES_V4, rdma::ADDRESSES_V6][family];
        let mut added = Added::default();
        for is_second in [false, true].into_iter().take(1 + usize::from(record.second.is_some())) {
            let flow_id = self.conversations;
            let view = RdmaView { record: *record, is_second, flow_id, interfaces };
            let lists = [addresses, rdma::ELEMENTS];
            self.write(RDMA_ID + family as u16, &lists, &view, now, send);
            added.records += 1;
        }
        added
    }

    fn write<T>(
        &mut self,
        id: u16,
        lists: &[&[Field<T>]],
        view: &T,
        now: Time,
        send: &mut dyn FnMut(Message<'_>),
    ) {
        let length = lists.iter().map(|fields| record_bytes(fields)).sum();
        if !self.has_room(id, length) {
            self.flush(now, send);
        }
        if self.message.is_empty() && self.templates_are_due(now) {
            self.write_templates(now, send);
        }
        self.make_room(id, length, now, send);
        for fields in lists {
            for field in *fields {
                field.write(view, &mut self.message);
            }
        }
        self.entries += 1;
        self.records += 1;
    }

    fn templates_are_due(&self, now: Time) -> bool {
        let Some(TemplateRefresh { messages, interval_ns }) = self.options.refresh else {
            return false;
        };
        // A clock that was set back makes them due: it may stay behind for long.
        self.messages_since_templates >= messages
            || self.templated.is_none_or(|sent| now < sent || now.since_ns(sent) >= interval_ns)
    }

    fn write_templates(&mut self, now: Time, send: &mut dyn FnMut(Message<'_>)) {
        self.messages_since_templates = 0;
        self.templated = Some(now);
        let templates = std::mem::take(&mut self.templates);
        for template in &templates {
            self.make_room(self.dialect.template_set, template.len(), now, send);
            self.message.extend_from_slice(template);
            self.entries += 1;
        }
        self.templates = templates;
    }

    /// Whether `length` bytes of set `id` fit into this message.
    fn has_room(&self, id: u16, length: usize) -> bool {
        let slack = self.dialect.alignment - 1;
        let is_open = self.open.is_some_and(|(open, _)| open == id);
        let wanted = length + slack + if is_open { 0 } else { SET_HEADER_BYTES + slack };
        let fits = self.message.len() + wanted <= self.options.message_bytes_max;
        fits && self.entries < u16::MAX
    }

    /// Leaves set `id` open, with room for `length` bytes, in this message or the next.
    fn make_room(&mut self, id: u16, length: usize, now: Time, send: &mut dyn FnMut(Message<'_>)) {
        if !self.has_room(id, length) {
            self.flush(now, send);
        }
        if self.message.is_empty() {
            self.message.resize(self.dialect.header_bytes, 0);
        }
        if self.open.is_none_or(|(open, _)| open != id) {
            self.close_set();
            self.open = Some((id, self.message.len()));
            self.message.extend_from_slice(&id.to_be_bytes());
            self.message.extend_from_slice(&[0, 0]);
        }
    }

    fn close_set(&mut self) {
        let Some((_, start)) = self.open.take() else { return };
        let length = self.message.len() - start;
        let padded = length.next_multiple_of(self.dialect.alignment);
        self.message.resize(start + padded, 0);
        self.message[start + 2..start + 4].copy_from_slice(&(padded as u16).to_be_bytes());
    }
}

/// A template record (RFC 7011 s3.4.1, RFC 3954 s5.2).
fn template<T>(id: u16, lists: &[&[Field<T>]], rdma_enterprise: u32) -> Vec<u8> {
    const ENTERPRISE_BIT: u16 = 0x8000;
    let count: usize = lists.iter().map(|fields| fields.len()).sum();
    let mut out = Vec::new();
    out.extend_from_slice(&id.to_be_bytes());
    out.extend_from_slice(&(count as u16).to_be_bytes());
    for field in lists.iter().copied().flatten() {
        let (number, enterprise) = match field.element {
            Element::Iana(number) => (number, None),
            Element::Reverse(number) => (number | ENTERPRISE_BIT, Some(REVERSE_ENTERPRISE)),
            Element::Rdma(number) => (number | ENTERPRISE_BIT, Some(rdma_enterprise)),
        };
        out.extend_from_slice(&number.to_be_bytes());
        out.extend_from_slice(&field.length.to_be_bytes());
        if let Some(enterprise) = enterprise {
            out.extend_from_slice(&enterprise.to_be_bytes());
        }
    }
    out
}
