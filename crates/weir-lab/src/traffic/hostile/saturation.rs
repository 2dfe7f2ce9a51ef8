//! What fills an adapter, keeps it busy or manages it, without breaking a queue pair.

use weir_wire::bth::Opcode;
use weir_wire::mad::class;

use super::build::{Roce, mad, reth};
use super::rdma::{KEY, QUEUE_PAIR, TO, answer, host_b, read};
use super::{Campaign, Hostile, Random};
use crate::traffic::frames::Planned;

/// "Receiver not ready", come again in 0.64 ms (timer code 12).
const RNR_NAK: u32 = 0x2c << 24;
const GET: u8 = 1;
const SET: u8 = 2;

/// What host B sends at its `number`th turn, and what host A answers.
pub(super) fn step(
    campaign: &Campaign,
    psn: u32,
    number: u32,
    random: &mut Random,
) -> Vec<Planned> {
    let is_benign = campaign.is_benign;
    match campaign.hostile {
        Hostile::KeySaturation => {
            // The low eight bits change each time that memory is registered anew.
            let key = match is_benign {
                true => (0x400 + number % 512) << 8 | (number / 512) & 0xff,
                false => (0x400 + number) << 8,
            };
            let headers = reth(64 * u64::from(number), key, 8);
            let roce = Roce::new(Opcode::RC_WRITE_ONLY, QUEUE_PAIR, psn);
            vec![Roce { headers: &headers, payload_len: 8, ..roce }.by(host_b(), TO)]
        }
        Hostile::PipelineSaturation => pipeline(is_benign, psn, number, random),
        Hostile::RnrFlood => not_ready(is_benign, psn, number, random),
        _ => {
            // NodeInfo, PortInfo, P_KeyTable, SMInfo, and PortCounters of performance management.
            let attribute = [0x11, 0x15, 0x16, 0x20][random.below(4) as usize];
            let subnet =
                [class::SUBNET_LID_ROUTED, class::SUBNET_DIRECTED_ROUTE][random.below(2) as usize];
            let number = u64::from(number);
            let one = match (is_benign, random.one(2)) {
                (false, _) => mad(host_b(), TO, [subnet, 1, SET], attribute, number),
                (true, true) => mad(host_b(), TO, [subnet, 1, GET], attribute, number),
                (true, false) => mad(host_b(), TO, [class::PERFORMANCE, 1, SET], 0x12, number),
            };
            vec![one]
        }
    }
}

/// Small READs and fetch-and-adds all over the memory; of the twin three of four are READs of
/// 16 KiB, which are bounded by bandwidth.
fn pipeline(is_benign: bool, psn: u32, number: u32, random: &mut Random) -> Vec<Planned> {
    let address = 0x10_0000 + 64 * random.below(1 << 20);
    let psn = if is_benign { psn.wrapping_add(3 * number) } else { psn };
    if is_benign && !number.is_multiple_of(4) {
        return vec![read(psn, KEY, address, 16 * 1024)];
    }
    if random.one(2) {
        return vec![read(psn, KEY, address, 8)];
    }
    let operands = [&KEY.to_be_bytes()[..], &1_u64.to_be_bytes(), &[0; 8]].concat();
    let headers = [&address.to_be_bytes()[..], &operands].concat();
    let roce = Roce::new(Opcode::RC_FETCH_ADD, QUEUE_PAIR, psn);
    vec![Roce { headers: &headers, ..roce }.by(host_b(), TO)]
}

/// A SEND that no buffer is there for, again and again; the twin's comes again once of 64.
fn not_ready(is_benign: bool, psn: u32, number: u32, random: &mut Random) -> Vec<Planned> {
    let psn = if is_benign { psn } else { psn.wrapping_sub(number) };
    let roce = Roce::new(Opcode::RC_SEND_ONLY, QUEUE_PAIR, psn);
    let own = Roce { payload_len: 64, fill: psn as u8, ..roce }.by(host_b(), TO);
    let refused = answer(Opcode::RC_ACKNOWLEDGE, psn, RNR_NAK, 0);
    let taken = answer(Opcode::RC_ACKNOWLEDGE, psn, 0, 0);
    match (is_benign, random.one(64)) {
        (false, _) => vec![own, refused],
        (true, true) => vec![own.clone(), refused, own, taken],
        (true, false) => vec![own, taken],
    }
}
