//! NetFlow version 5 (as Cisco published it) and the message header of version 9 (RFC 3954).

use weir_wire::frame::Time;

use super::encoder::{Added, EncoderOptions, Format, Item, Message};
use super::fields::{FlowView, NETFLOW_V4, NETFLOW_V6, NS_PER_MS, NS_PER_S, is_ipv4, uptime_ms};
use super::templated::{Dialect, Header};

/// RFC 3954 s5, with sequence numbers that count messages.
pub(crate) static V9: Dialect = Dialect {
    format: Format::Netflow9,
    header_bytes: 20,
    write_header: write_v9_header,
    template_set: 0,
    alignment: 4,
    has_enterprises: false,
    flow: [NETFLOW_V4, NETFLOW_V6],
    sequence_step: |_| 1,
};

fn write_v9_header(header: &Header, out: &mut [u8]) {
    // The header has whole seconds; the uptime is that of the same instant, so that a collector
    // which subtracts one from the other finds the same start in every message.
    let seconds = header.now.0 / NS_PER_S;
    let uptime = (seconds * 1000).wrapping_sub(header.boot.0 / NS_PER_MS) as u32;
    out[0..2].copy_from_slice(&9u16.to_be_bytes());
    out[2..4].copy_from_slice(&header.entries.to_be_bytes());
    out[4..8].copy_from_slice(&uptime.to_be_bytes());
    out[8..12].copy_from_slice(&(seconds as u32).to_be_bytes());
    out[12..16].copy_from_slice(&header.sequence.to_be_bytes());
    out[16..20].copy_from_slice(&header.domain.to_be_bytes());
}

const HEADER_BYTES: usize = 24;
const RECORD_BYTES: usize = 48;

/// Records of a version 5 message, at most.
const RECORDS_MAX: usize = 30;

/// Records that one direction may be cut into because its counters exceed 32 bits: 1 TiB. What is
/// beyond is left out of the last one.
const PIECES_MAX: u64 = 256;

/// Encodes NetFlow version 5.
#[derive(Debug)]
pub struct NetflowV5 {
    boot: Time,
    engine: u8,
    message: Vec<u8>,
    records: usize,
    records_max: usize,
    /// Records sent so far.
    sequence: u32,
}

impl NetflowV5 {
    pub(crate) fn new(options: &EncoderOptions, boot: Time) -> Self {
        let room = options.message_bytes_max.saturating_sub(HEADER_BYTES) / RECORD_BYTES;
        Self {
            boot,
            engine: options.domain as u8,
            message: Vec::with_capacity(HEADER_BYTES + RECORDS_MAX * RECORD_BYTES),
            records: 0,
            records_max: room.clamp(1, RECORDS_MAX),
            sequence: 0,
        }
    }

    pub(crate) fn add(
        &mut self,
        item: &Item,
        now: Time,
        send: &mut dyn FnMut(Message<'_>),
    ) -> Added {
        let without_form = Added { records: 0, is_without_form: true };
        let Item::Flow(record, interfaces) = item else { return without_form };
        if !is_ipv4(&record.key.address_a()) || !is_ipv4(&record.key.address_b()) {
            return without_form;
        }
        let mut added = Added::default();
        for direction in [record.initiator, record.initiator.reversed()] {
            let (interfaces, boot) = (*interfaces, self.boot);
            let view = FlowView { record: *record, direction, interfaces, boot };
            let mut packets = view.forward().packets;
            let mut octets = view.network_octets(view.forward());
            let most = u64::from(u32::MAX);
            for _ in 0..PIECES_MAX {
                if packets == 0 {
                    break;
                }
                // Every piece but the last leaves a packet for the next, which none may be without.
                let rest_octets = octets.saturating_sub(most);
                let rest_packets = match rest_octets {
                    0 => packets.saturating_sub(most),
                    _ => packets.saturating_sub(most.min(packets / 2).max(1)),
                };
                self.write(&view, packets - rest_packets, octets - rest_octets, now, send);
                added.records += 1;
                (packets, octets) = (rest_packets, rest_octets);
            }
        }
        added
    }

    pub(crate) fn flush(&mut self, now: Time, send: &mut dyn FnMut(Message<'_>)) {
        if self.records == 0 {
            return;
        }
        let uptime = (now.0 / NS_PER_MS).wrapping_sub(self.boot.0 / NS_PER_MS) as u32;
        let header = &mut self.message;
        header[0..2].copy_from_slice(&5u16.to_be_bytes());
        header[2..4].copy_from_slice(&(self.records as u16).to_be_bytes());
        header[4..8].copy_from_slice(&uptime.to_be_bytes());
        header[8..12].copy_from_slice(&((now.0 / NS_PER_S) as u32).to_be_bytes());
        // Cut to milliseconds as the uptimes are, so that they add up.
        let rest_ns = now.0 % NS_PER_S / NS_PER_MS * NS_PER_MS;
        header[12..16].copy_from_slice(&(rest_ns as u32).to_be_bytes());
        header[16..20].copy_from_slice(&self.sequence.to_be_bytes());
        header[21] = self.engine;
        send(Message { bytes: &self.message, records: self.records as u32 });
        self.sequence = self.sequence.wrapping_add(self.records as u32);
        self.message.clear();
        self.records = 0;
    }

    fn write(
        &mut self,
        view: &FlowView,
        packets: u64,
        octets: u64,
        now: Time,
        send: &mut dyn FnMut(Message<'_>),
    ) {
        if self.message.is_empty() {
            self.message.resize(HEADER_BYTES, 0);
        }
        let (source, source_port) = view.source();
        let (destination, destination_port) = view.destination();
        let narrow = |index: u32| u16::try_from(index).unwrap_or(0);
        let mut record = [0; RECORD_BYTES];
        record[0..4].copy_from_slice(&source[12..]);
        record[4..8].copy_from_slice(&destination[12..]);
        record[12..14].copy_from_slice(&narrow(view.ingress()).to_be_bytes());
        record[14..16].copy_from_slice(&narrow(view.egress()).to_be_bytes());
        record[16..20].copy_from_slice(&saturate(packets));
        record[20..24].copy_from_slice(&saturate(octets));
        let [first, last] = [view.record.started, view.record.last];
        record[24..28].copy_from_slice(&uptime_ms(self.boot, first).to_be_bytes());
        record[28..32].copy_from_slice(&uptime_ms(self.boot, last).to_be_bytes());
        record[32..34].copy_from_slice(&source_port.to_be_bytes());
        record[34..36].copy_from_slice(&destination_port.to_be_bytes());
        record[37] = view.forward().tcp_flags;
        record[38] = view.record.key.protocol();
        record[39] = view.forward().traffic_class;
        self.message.extend_from_slice(&record);
        self.records += 1;
        if self.records == self.records_max {
            self.flush(now, send);
        }
    }
}

fn saturate(number: u64) -> [u8; 4] {
    u32::try_from(number).unwrap_or(u32::MAX).to_be_bytes()
}
