//! Attacks on queue pairs of extended reliable connections (XRC): those on reliable ones, with the
//! opcodes of XRC, and in each request the header that names its shared receive queue.

use weir_wire::bth::{Extension, Opcode};
use weir_wire::checksum;

use super::{Campaign, Hostile, Random, rdma};
use crate::traffic::frames::{Planned, complete_icrc};

/// The transport service, in the high three bits of opcodes.
const XRC: u8 = 5 << 5;
/// An XRCETH: shared receive queue 0x33.
const XRCETH: [u8; 4] = [0, 0, 0, 0x33];
const IPV4: usize = 14;
const UDP: usize = IPV4 + 20;
const BTH: usize = UDP + 8;

/// What host B sends at its `number`th turn, and what host A answers.
pub(super) fn step(
    campaign: &Campaign,
    first: u32,
    number: u32,
    random: &mut Random,
) -> Vec<Planned> {
    let hostile = match campaign.hostile {
        Hostile::XrcPsnConflict => Hostile::PsnConflict,
        Hostile::XrcKeyGuessing => Hostile::KeyGuessing,
        _ => Hostile::WriteLength,
    };
    let reliable = Campaign { hostile, ..*campaign };
    rdma::step(&reliable, first, number, random).into_iter().map(extended).collect()
}

/// A packet of a reliable connection as an extended one has it.
fn extended(Planned { from, mut bytes }: Planned) -> Planned {
    let opcode = Opcode(bytes[BTH] | XRC);
    bytes[BTH] = opcode.0;
    if opcode.carries(Extension::Xrceth) {
        let behind = BTH + 12;
        bytes.splice(behind..behind, XRCETH);
        let [packet, datagram] = [IPV4, UDP].map(|it| ((bytes.len() - it) as u16).to_be_bytes());
        bytes[IPV4 + 2..IPV4 + 4].copy_from_slice(&packet);
        bytes[UDP + 4..UDP + 6].copy_from_slice(&datagram);
        bytes[IPV4 + 10..IPV4 + 12].fill(0);
        let sum = checksum::ipv4_header(&bytes[IPV4..UDP]);
        bytes[IPV4 + 10..IPV4 + 12].copy_from_slice(&sum.to_be_bytes());
    }
    complete_icrc(&mut bytes);
    Planned { from, bytes }
}
