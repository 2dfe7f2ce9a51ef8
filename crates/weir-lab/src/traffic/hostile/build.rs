//! Frames of any opcode and any TCP/IP, between the lab's hosts or in the name of others.

use std::net::Ipv4Addr;

use weir_wire::bth::Opcode;
use weir_wire::checksum;
use weir_wire::icrc::ICRC_LEN;
use weir_wire::mad::{MAD_LEN, MadHeader, class};

use crate::topology::{HOST_MAC, HOST_V4, Side};
use crate::traffic::frames::{Planned, complete_icrc};

/// As adapters take it: from RFC 6335's dynamic ports.
pub(super) const PORT: u16 = 0xc001;

/// Who sends a packet.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sender {
    pub(super) from: Side,
    pub(super) mac: [u8; 6],
    pub(super) address: Ipv4Addr,
    pub(super) port: u16,
}

impl Sender {
    pub(super) fn host(from: Side) -> Self {
        let at = from.index();
        Self { from, mac: HOST_MAC[at], address: HOST_V4[at], port: PORT }
    }

    pub(super) fn at(self, address: Ipv4Addr) -> Self {
        Self { address, ..self }
    }
}

/// One RDMA packet, without what its opcode adds.
#[derive(Clone, Debug)]
pub(super) struct Roce<'a> {
    pub(super) opcode: Opcode,
    pub(super) queue_pair: u32,
    pub(super) psn: u32,
    pub(super) partition: u16,
    /// Headers behind the BTH.
    pub(super) headers: &'a [u8],
    pub(super) payload_len: usize,
    /// What the payload is filled with.
    pub(super) fill: u8,
}

impl Roce<'_> {
    pub(super) fn new(opcode: Opcode, queue_pair: u32, psn: u32) -> Self {
        let (headers, payload_len, fill) = (&[][..], 0, 0);
        Roce { opcode, queue_pair, psn, partition: 0xffff, headers, payload_len, fill }
    }

    pub(super) fn by(&self, sender: Sender, to: Ipv4Addr) -> Planned {
        let mut transport = vec![self.opcode.0, 0];
        transport.extend(self.partition.to_be_bytes());
        transport.extend((self.queue_pair & 0xff_ffff).to_be_bytes());
        transport.extend((self.psn & 0xff_ffff).to_be_bytes());
        transport.extend(self.headers);
        transport.extend(std::iter::repeat_n(self.fill, self.payload_len));
        transport.extend([0; ICRC_LEN]);
        let mut planned = udp(sender, to, 4791, &transport);
        complete_icrc(&mut planned.bytes);
        planned
    }
}

/// A RETH.
pub(super) fn reth(address: u64, key: u32, length: u32) -> Vec<u8> {
    [&address.to_be_bytes()[..], &key.to_be_bytes(), &length.to_be_bytes()].concat()
}

/// A management datagram of communication, to queue pair 1: its sender's name for the connection,
/// and nothing else.
pub(super) fn cm(sender: Sender, to: Ipv4Addr, attribute: u16, number: u64) -> Planned {
    cm_with(sender, to, attribute, number, &(number as u32).to_be_bytes())
}

/// The same with a message behind the header, or the begin of one.
pub(super) fn cm_with(
    sender: Sender,
    to: Ipv4Addr,
    attribute: u16,
    number: u64,
    message: &[u8],
) -> Planned {
    // Class version 2, method Send (IBTA Vol 1 s13.4.3).
    mad_with(sender, to, [class::COMMUNICATION, 2, 3], (attribute, number), message)
}

/// A management datagram of that class, class version and method: to queue pair 0 if the subnet is
/// managed by it, else to 1.
pub(super) fn mad(
    sender: Sender,
    to: Ipv4Addr,
    kind: [u8; 3],
    attribute: u16,
    number: u64,
) -> Planned {
    mad_with(sender, to, kind, (attribute, number), &(number as u32).to_be_bytes())
}

fn mad_with(
    sender: Sender,
    to: Ipv4Addr,
    kind: [u8; 3],
    (attribute, number): (u16, u64),
    message: &[u8],
) -> Planned {
    let mut mad = vec![0; MAD_LEN];
    mad[0] = 1;
    mad[1..4].copy_from_slice(&kind);
    mad[8..16].copy_from_slice(&number.to_be_bytes());
    mad[16..18].copy_from_slice(&attribute.to_be_bytes());
    mad[MadHeader::LEN..][..message.len()].copy_from_slice(message);
    let is_subnet = matches!(kind[0], class::SUBNET_LID_ROUTED | class::SUBNET_DIRECTED_ROUTE);
    // The Q_Key of queue pair 1; 0 has none.
    let (queue_key, queue_pair) = if is_subnet { ([0; 4], 0) } else { ([0x80, 0x01, 0, 0], 1_u32) };
    let headers = [&queue_key[..], &queue_pair.to_be_bytes(), &mad].concat();
    let roce = Roce::new(Opcode::UD_SEND_ONLY, queue_pair, number as u32);
    Roce { headers: &headers, ..roce }.by(sender, to)
}

/// A datagram; no checksum, as RoCE senders do.
pub(super) fn udp(sender: Sender, to: Ipv4Addr, port: u16, payload: &[u8]) -> Planned {
    let length = 8 + payload.len() as u16;
    let mut datagram = sender.port.to_be_bytes().to_vec();
    datagram.extend(port.to_be_bytes());
    datagram.extend(length.to_be_bytes());
    datagram.extend([0, 0]);
    datagram.extend(payload);
    ip(sender, to, 17, &datagram)
}

/// A segment without payload.
pub(super) fn tcp(sender: Sender, to: Ipv4Addr, port: u16, sequence: u32, flags: u8) -> Planned {
    let mut segment = sender.port.to_be_bytes().to_vec();
    segment.extend(port.to_be_bytes());
    segment.extend(sequence.to_be_bytes());
    segment.extend([0, 0, 0, 0, 0x50, flags, 0x20, 0, 0, 0, 0, 0]);
    let ends = [sender.address.octets(), to.octets()];
    let header = checksum::pseudo_header_v4(ends[0], ends[1], 6, segment.len() as u16);
    let sum = header.with(&segment).checksum();
    segment[16..18].copy_from_slice(&sum.to_be_bytes());
    ip(sender, to, 6, &segment)
}

/// An echo request.
pub(super) fn echo(sender: Sender, to: Ipv4Addr, number: u16) -> Planned {
    let mut message = vec![8, 0, 0, 0, 0, 1];
    message.extend(number.to_be_bytes());
    message.extend([0x77; 56]);
    let sum = checksum::ipv4_header(&message);
    message[2..4].copy_from_slice(&sum.to_be_bytes());
    ip(sender, to, 1, &message)
}

fn ip(sender: Sender, to: Ipv4Addr, protocol: u8, payload: &[u8]) -> Planned {
    let mut bytes = HOST_MAC[sender.from.other().index()].to_vec();
    bytes.extend(sender.mac);
    bytes.extend(0x0800_u16.to_be_bytes());
    let mut header = [0; 20];
    header[0] = 0x45;
    header[2..4].copy_from_slice(&(20 + payload.len() as u16).to_be_bytes());
    header[6] = 0x40;
    header[8] = 64;
    header[9] = protocol;
    header[12..16].copy_from_slice(&sender.address.octets());
    header[16..20].copy_from_slice(&to.octets());
    let sum = checksum::ipv4_header(&header);
    header[10..12].copy_from_slice(&sum.to_be_bytes());
    bytes.extend(header);
    bytes.extend(payload);
    Planned { from: sender.from, bytes }
}
