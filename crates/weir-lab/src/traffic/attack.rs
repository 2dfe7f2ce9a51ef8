//! What rules are to stop, and its harmless twins: host B against host A.

use weir_wire::bth::Opcode;
use weir_wire::checksum;

use super::frames::{PREBUILT_TCP_PORTS, Planned, address_ethernet, ipv4_header};
use super::memory;
use crate::topology::{HOST_V4, Side};

/// What gives the attack away.
pub const PATTERN: &str = "/etc/shadow";
/// The same request for something harmless, as long.
const HARMLESS: &str = "/index.html";

const TCP: u8 = 6;
const TCP_LEN: usize = 20;
const PSH_ACK: u8 = 0x18;
/// Where the attack's stream begins, and its twin's: far enough from each other to be two.
const FIRST_SEQUENCE: [u32; 2] = [0x1000_0000, 0x2000_0000];

/// Request `number` of a stream of segments, for what is forbidden.
pub(super) fn tcp(number: u32) -> Vec<Planned> {
    vec![request(FIRST_SEQUENCE[0], number, PATTERN)]
}

/// The same for what is not.
pub(super) fn benign_tcp(number: u32) -> Vec<Planned> {
    vec![request(FIRST_SEQUENCE[1], number, HARMLESS)]
}

/// A FETCH_ADD on host A's memory, by the queue pair that READs there otherwise.
pub(super) fn rdma(psn: u32) -> Vec<Planned> {
    vec![memory::request(Side::B, Opcode::RC_FETCH_ADD, psn)]
}

fn request(first: u32, number: u32, path: &str) -> Planned {
    let payload = format!("GET {path} HTTP/1.1\r\nHost: storage\r\n\r\n");
    let sequence = first.wrapping_add(number * payload.len() as u32);
    let from = Side::B;
    let mut segment = PREBUILT_TCP_PORTS.to_vec();
    segment.extend(sequence.to_be_bytes());
    segment.extend([0, 0, 0, 1]);
    segment.extend([(TCP_LEN as u8 / 4) << 4, PSH_ACK, 0x20, 0, 0, 0, 0, 0]);
    segment.extend(payload.as_bytes());
    let [source, destination] = [from, from.other()].map(|it| HOST_V4[it.index()].octets());
    let header = checksum::pseudo_header_v4(source, destination, TCP, segment.len() as u16);
    let sum = header.with(&segment).checksum();
    segment[16..18].copy_from_slice(&sum.to_be_bytes());
    let mut bytes = vec![0; 12];
    address_ethernet(&mut bytes, from);
    bytes.extend(0x0800_u16.to_be_bytes());
    bytes.extend(ipv4_header(from, segment.len(), TCP));
    bytes.extend(segment);
    Planned { from, bytes }
}
