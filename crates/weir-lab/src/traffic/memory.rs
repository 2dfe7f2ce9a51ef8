//! RDMA on the other host's memory: host B reads host A's, or writes to it, by one reliable queue
//! pair. What a line of access allows and denies.

use weir_wire::bth::{Extension, Opcode};
use weir_wire::icrc::ICRC_LEN;

use super::frames::{Planned, address_ethernet, complete_icrc, ipv4_header};
use crate::topology::Side;

/// Bytes of each packet's payload.
const PAYLOAD: usize = 1024;
/// The key to host A's memory.
const REMOTE_KEY: u32 = 0x0000_1a2b;
/// Queue pair of host A, and of host B. Answers to READs show a gateway that these are a pair: then
/// it can say to whom a WRITE is refused.
const PAIR: [u32; 2] = [0x11, 0x22];
/// As `rdma_rxe` and adapters take it: from the range of RFC 6335's dynamic ports.
const SOURCE_PORT: u16 = 0xc001;

/// One READ of host A's memory: the request, and the answer. PSNs go on from `psn`.
pub(super) fn read(psn: u32) -> Vec<Planned> {
    vec![
        packet(Side::B, Opcode::RC_READ_REQUEST, PAIR, psn, 0),
        packet(Side::A, Opcode::RC_READ_RESPONSE_ONLY, PAIR, psn, PAYLOAD),
    ]
}

/// One WRITE to host A's memory, in three packets. Its responder says nothing: it is to be stopped.
pub(super) fn write(psn: u32) -> Vec<Planned> {
    let opcodes = [Opcode::RC_WRITE_FIRST, Opcode::RC_WRITE_MIDDLE, Opcode::RC_WRITE_LAST];
    let packets = opcodes.into_iter().zip(psn..);
    packets.map(|(opcode, psn)| packet(Side::B, opcode, PAIR, psn, PAYLOAD)).collect()
}

/// A request of its own by the queue pair that reads.
pub(super) fn request(from: Side, opcode: Opcode, psn: u32) -> Planned {
    packet(from, opcode, PAIR, psn, 0)
}

fn packet(from: Side, opcode: Opcode, pair: [u32; 2], psn: u32, payload_len: usize) -> Planned {
    let mut transport = vec![opcode.0, 0, 0xff, 0xff];
    transport.extend(pair[from.other().index()].to_be_bytes());
    transport.extend((psn & 0xff_ffff).to_be_bytes());
    if opcode.carries(Extension::Reth) {
        let dma_len = if opcode == Opcode::RC_WRITE_FIRST { 3 * PAYLOAD } else { PAYLOAD };
        transport.extend(u64::from(psn).to_be_bytes());
        transport.extend(REMOTE_KEY.to_be_bytes());
        transport.extend((dma_len as u32).to_be_bytes());
    }
    if opcode.carries(Extension::AtomicEth) {
        transport.extend(u64::from(psn).to_be_bytes());
        transport.extend(REMOTE_KEY.to_be_bytes());
        // Add one; FETCH_ADD compares with nothing.
        transport.extend(1_u64.to_be_bytes());
        transport.extend(0_u64.to_be_bytes());
    }
    if opcode.carries(Extension::Aeth) {
        transport.extend([0, 0, 0, 0]);
    }
    transport.extend((0..payload_len).map(|index| index as u8));
    transport.extend([0; ICRC_LEN]);
    let udp_len = 8 + transport.len();
    let mut bytes = vec![0; 12];
    address_ethernet(&mut bytes, from);
    bytes.extend(0x0800_u16.to_be_bytes());
    bytes.extend(ipv4_header(from, udp_len, 17));
    bytes.extend(SOURCE_PORT.to_be_bytes());
    bytes.extend(4791_u16.to_be_bytes());
    bytes.extend((udp_len as u16).to_be_bytes());
    bytes.extend([0, 0]);
    bytes.extend(transport);
    complete_icrc(&mut bytes);
    Planned { from, bytes }
}
