//! What is said to a requester whose request is rejected, in the responder's name (IBTA Vol 1
//! s9.7.5.1.2, s12.6.7, s12.11.2): the request's headers, turned round.

use weir_wire::bth::{Bth, Opcode, Qpn, Service};
use weir_wire::checksum;
use weir_wire::cm::{self, Message};
use weir_wire::ext;
use weir_wire::frame::{Link, Time};
use weir_wire::icrc::{self, ICRC_LEN, IcrcStatus};
use weir_wire::mad::{GENERAL_SERVICES_QUEUE_KEY, MAD_LEN, MadHeader};
use weir_wire::parse::{Encapsulation, Network, Rdma, parse};

use super::{Access, Operation};
use crate::meter::{Meter, Observation, Observed};

/// The longest answer: link header with two tags, IPv6, UDP, BTH, DETH, a management datagram.
pub(crate) const ANSWER_LEN_MAX: usize = 22 + 40 + 8 + Bth::LEN + 8 + MAD_LEN + ICRC_LEN;

const ANSWERS_PER_SECOND: u32 = 1000;
const NS_PER_S: u64 = 1_000_000_000;

/// NAK, remote access error.
const REMOTE_ACCESS_ERROR: u32 = 0x62 << 24;
/// REJ: the consumer does not want it.
const REJECTED_BY_CONSUMER: u16 = 28;
/// SIDR_REP: the service does not want it.
const SERVICE_REJECTS: u8 = 2;

const PROTOCOL_UDP: u8 = 17;
const UDP_LEN: usize = 8;
const HOP_LIMIT: u8 = 64;
/// BTH flags of an answer: the path is as agreed (MigReq).
const FLAGS: u8 = 0x40;

/// An answer to be sent, in memory of its own.
#[derive(Debug)]
pub(crate) struct Answer {
    bytes: [u8; ANSWER_LEN_MAX],
    len: usize,
    left: u32,
    refilled: Time,
    pub(super) sent: u64,
    pub(super) unsent: u64,
}

impl Default for Answer {
    fn default() -> Self {
        let bytes = [0; ANSWER_LEN_MAX];
        let left = ANSWERS_PER_SECOND;
        Self { bytes, len: 0, left, refilled: Time::default(), sent: 0, unsent: 0 }
    }
}

impl Access {
    /// Prepares the answer to a message of which this is the first packet that is dropped.
    #[cold]
    pub(super) fn reject(
        &mut self,
        operation: Operation,
        seen: &Observed,
        packet: &Observation<'_>,
        rdma: &Rdma,
        meter: &Meter,
    ) {
        if operation == Operation::Connect {
            self.answer.refuse_connection(packet);
        } else if rdma.opcode.starts_message() || operation == Operation::SendImmediate {
            let other = usize::from(seen.direction ^ 1);
            let conversation = seen.conversation.filter(|_| packet.segments <= 1);
            let requester = conversation.and_then(|handle| {
                let directions = meter.conversations().entry(handle)?.directions();
                directions.map(|it| it.key.destination_qp()).nth(other)
            });
            let apart = conversation.map(|handle| self.aparts.at(handle, other as u8));
            let msn = apart.map_or(0, |it| it.message_sequence);
            self.answer.refuse(packet, requester, msn);
        }
    }

    /// Remembers how many messages a responder has completed.
    pub(super) fn note_acknowledged(
        &mut self,
        seen: &Observed,
        packet: &Observation<'_>,
        rdma: &Rdma,
    ) {
        let Some(aeth) = ext::aeth(packet.bytes, rdma) else { return };
        if let Some(handle) = seen.conversation {
            let apart = self.aparts.at_mut(handle, seen.direction);
            apart.message_sequence = aeth.message_sequence();
        }
    }
}

impl Answer {
    /// Refuses the packet's message to its sender, whose queue pair is `requester_qp`. `msn`: the
    /// responder's completed messages.
    pub(crate) fn refuse(
        &mut self,
        packet: &Observation<'_>,
        requester_qp: Option<Qpn>,
        msn: u32,
    ) -> Option<()> {
        let rdma = packet.parsed.rdma.as_ref()?;
        // An answer asks for nothing; two gateways that refuse each other's would never stop.
        if rdma.opcode.is_response() {
            return None;
        }
        let opcode = match rdma.opcode.service() {
            Service::ReliableConnection => Opcode::RC_ACKNOWLEDGE,
            Service::ExtendedReliableConnection => Opcode::XRC_ACKNOWLEDGE,
            _ => return None,
        };
        let aeth = (REMOTE_ACCESS_ERROR | msn & 0xff_ffff).to_be_bytes();
        let written = requester_qp.and_then(|to| {
            let psn = rdma.psn.value();
            self.write(packet, opcode, to, psn, &[&aeth])
        });
        self.count(written)
    }

    /// Refuses what a connection manager asks for, if it asks for anything.
    pub(crate) fn refuse_connection(&mut self, packet: &Observation<'_>) -> Option<()> {
        let (header, message) = cm::message(packet.bytes, packet.parsed)?;
        let mut mad = [0; MAD_LEN];
        let (head, body) = mad.split_at_mut(MadHeader::LEN);
        let attribute = match message {
            Message::Request(request) => {
                body[4..8].copy_from_slice(&request.local_comm_id.get().to_be_bytes());
                body[10..12].copy_from_slice(&REJECTED_BY_CONSUMER.to_be_bytes());
                cm::attribute::REJ
            }
            Message::ServiceRequest(request) => {
                body[..4].copy_from_slice(&request.request_id.get().to_be_bytes());
                body[4] = SERVICE_REJECTS;
                body[12..20].copy_from_slice(&request.service_id.get().to_be_bytes());
                cm::attribute::SIDR_REP
            }
            _ => return None,
        };
        head[..4].copy_from_slice(&[
            header.base_version,
            header.management_class,
            header.class_version,
            header.method,
        ]);
        head[8..16].copy_from_slice(&header.transaction_id.get().to_be_bytes());
        head[16..18].copy_from_slice(&attribute.to_be_bytes());
        let mut deth = [0; 8];
        deth[..4].copy_from_slice(&GENERAL_SERVICES_QUEUE_KEY.to_be_bytes());
        deth[4..].copy_from_slice(&Qpn::GENERAL_SERVICES.value().to_be_bytes());
        let (opcode, to) = (Opcode::UD_SEND_ONLY, Qpn::GENERAL_SERVICES);
        let written = self.write(packet, opcode, to, 0, &[&deth, &mad]);
        self.count(written)
    }

    fn count(&mut self, written: Option<()>) -> Option<()> {
        match written {
            Some(()) => self.sent += 1,
            None => self.unsent += 1,
        }
        written
    }

    /// The answer that waits.
    pub(crate) fn take(&mut self) -> Option<&[u8]> {
        let len = std::mem::take(&mut self.len);
        (len > 0).then(|| &self.bytes[..len])
    }

    /// There is none.
    pub(super) fn clear(&mut self) {
        self.len = 0;
    }

    fn write(
        &mut self,
        packet: &Observation<'_>,
        opcode: Opcode,
        to: Qpn,
        psn: u32,
        behind: &[&[u8]],
    ) -> Option<()> {
        let rdma = packet.parsed.rdma.as_ref()?;
        if icrc::check(packet.bytes, packet.parsed) != IcrcStatus::Valid || !self.may(packet.now) {
            return None;
        }
        let behind_len: usize = behind.iter().map(|it| it.len()).sum();
        let at = self.write_network(packet, Bth::LEN + behind_len + ICRC_LEN)?;
        let bth = &mut self.bytes[at..];
        bth[..2].copy_from_slice(&[opcode.0, FLAGS]);
        bth[2..4].copy_from_slice(&rdma.partition_key.0.to_be_bytes());
        bth[4..8].copy_from_slice(&to.value().to_be_bytes());
        bth[8..12].copy_from_slice(&(psn & 0xff_ffff).to_be_bytes());
        let mut at = at + Bth::LEN;
        for piece in behind {
            self.bytes[at..at + piece.len()].copy_from_slice(piece);
            at += piece.len();
        }
        let end = at + ICRC_LEN;
        let bytes = &mut self.bytes[..end];
        let parsed = parse(bytes, Link::Ethernet, end as u32);
        icrc::write(bytes, &parsed).then(|| self.len = end)
    }

    /// Link, network and UDP headers before `transport_len` bytes; returns where those begin.
    fn write_network(&mut self, packet: &Observation<'_>, transport_len: usize) -> Option<usize> {
        let (parsed, rdma) = (packet.parsed, packet.parsed.rdma.as_ref()?);
        let at = usize::from(parsed.network_offset);
        let is_v2 = rdma.encapsulation == Encapsulation::RoceV2;
        let header_len = if parsed.network == Network::Ipv4 { 20 } else { 40 };
        let udp_len = if is_v2 { UDP_LEN } else { 0 };
        if at + header_len + udp_len + transport_len > ANSWER_LEN_MAX {
            return None;
        }
        let out = &mut self.bytes;
        out[..at].copy_from_slice(packet.bytes.get(..at)?);
        out[..6].copy_from_slice(&parsed.link.source.0);
        out[6..12].copy_from_slice(&parsed.link.destination.0);
        // The sender's class, and no word about congestion.
        let class = parsed.traffic_class & !3;
        let payload_len = (udp_len + transport_len) as u16;
        let (header, rest) = out[at..].split_at_mut(header_len);
        match parsed.network {
            Network::Ipv4 => {
                header[..2].copy_from_slice(&[0x45, class]);
                header[2..4].copy_from_slice(&(20 + payload_len).to_be_bytes());
                header[4..12].copy_from_slice(&[0, 0, 0x40, 0, HOP_LIMIT, PROTOCOL_UDP, 0, 0]);
                header[12..16].copy_from_slice(&parsed.destination[12..]);
                header[16..20].copy_from_slice(&parsed.source[12..]);
                let sum = checksum::ipv4_header(header);
                header[10..12].copy_from_slice(&sum.to_be_bytes());
            }
            Network::Ipv6 | Network::Grh => {
                // A GRH names what follows in its own way, as the request's does.
                let next = *packet.bytes.get(at + 6)?;
                header[..4].copy_from_slice(&[0x60 | class >> 4, class << 4, 0, 0]);
                header[4..6].copy_from_slice(&payload_len.to_be_bytes());
                header[6..8].copy_from_slice(&[if is_v2 { PROTOCOL_UDP } else { next }, HOP_LIMIT]);
                header[8..24].copy_from_slice(&parsed.destination);
                header[24..40].copy_from_slice(&parsed.source);
            }
            _ => return None,
        }
        if is_v2 {
            let udp = usize::from(parsed.transport_offset);
            rest[..4].copy_from_slice(packet.bytes.get(udp..udp + 4)?);
            rest[4..6].copy_from_slice(&payload_len.to_be_bytes());
            rest[6..8].fill(0);
        }
        Some(at + header_len + udp_len)
    }

    /// Takes one answer out of this second's.
    fn may(&mut self, now: Time) -> bool {
        if now.since_ns(self.refilled) >= NS_PER_S || now < self.refilled {
            (self.left, self.refilled) = (ANSWERS_PER_SECOND, now);
        }
        let may = self.left > 0;
        self.left = self.left.saturating_sub(1);
        may
    }
}
