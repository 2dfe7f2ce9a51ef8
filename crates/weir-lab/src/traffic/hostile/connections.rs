//! Connections as connection management sets them up: whose GUID their REQs and REPs announce, and
//! whether anybody uses them.

use std::net::Ipv4Addr;

use weir_wire::bth::Opcode;
use weir_wire::cm::attribute;

use super::Random;
use super::build::{Roce, Sender, cm_with};
use super::rdma::{TO, host_b};
use crate::topology::{HOST_V4, Side};
use crate::traffic::frames::Planned;

/// Of an application's own, not rdma_cm's.
const SERVICE: u64 = 0x1000_0000_0000_4853;
/// Connections that the twin makes before it uses one that it has left: more than a minute's.
const LATER: u32 = 16 * 75;
/// Connections of the twins before something is moved or replaced.
const BEFORE: u32 = 60;

/// Host B takes the GUID of a third host, and both connect with host A; of the twin three hosts
/// do, each with a GUID of its own.
pub(super) fn guids(is_benign: bool, number: u32, random: &mut Random) -> Vec<Planned> {
    let (sender, guid) = match (is_benign, random.one(2)) {
        (true, _) => honest(number),
        (false, true) => (third(9), guid_of(9)),
        (false, false) => (host_b(), guid_of(9)),
    };
    connection(sender, guid, number)
}

/// Connections of host B, none of which is used. Of the twin eleven of sixteen are at once, by
/// either side, or end; four are later, and one never is.
pub(super) fn idle(is_benign: bool, number: u32, random: &mut Random) -> Vec<Planned> {
    let mut planned = connection(host_b(), guid_of(2), number);
    if !is_benign {
        return planned;
    }
    let used = match number % 16 {
        0 => None,
        1..5 => number.checked_sub(LATER),
        _ => Some(number),
    };
    let Some(used) = used else { return planned };
    let answers = Sender::host(Side::A);
    let send = Roce { payload_len: 64, ..Roce::new(Opcode::RC_SEND_ONLY, queue_pair(used), used) };
    planned.push(match random.below(4) {
        0 => end(host_b(), used),
        1 => send.by(answers, HOST_V4[1]),
        _ => send.by(host_b(), TO),
    });
    planned
}

/// One of three hosts: host B with two addresses; an adapter that moves to another host once, which
/// gives it other addresses; a host whose adapter is replaced.
fn honest(number: u32) -> (Sender, u64) {
    let is_later = number > BEFORE;
    match number % 3 {
        0 if number.is_multiple_of(2) => (host_b(), guid_of(2)),
        0 => (host_b().at(third(3).address), guid_of(2)),
        1 => (third(if is_later { 5 } else { 4 }), guid_of(4)),
        _ => {
            let adapter = if is_later { 7 } else { 6 };
            (third(adapter).at(third(6).address), guid_of(adapter))
        }
    }
}

/// A host beside host B.
fn third(number: u8) -> Sender {
    let address = Ipv4Addr::new(10, 77, 0, number);
    Sender { mac: [2, 0x77, 0, 0, 0, 0x20 + number], ..host_b().at(address) }
}

/// The GUID of an adapter, as they are made of MAC addresses (EUI-64).
fn guid_of(number: u8) -> u64 {
    0x0077_00ff_fe00_0020 + u64::from(number)
}

/// Both sides' queue pair of a connection.
fn queue_pair(number: u32) -> u32 {
    0x100 + number
}

/// The requester's name for a connection, and the responder's.
fn comm_ids(number: u32) -> [u32; 2] {
    [number << 8 | 1, number << 8 | 2]
}

/// REQ, REP and RTU of a connection of an adapter that everybody knows, and the DREQ that ends it.
pub(super) fn ended(sender: Sender, number: u32) -> Vec<Planned> {
    let mut planned = connection(sender, guid_of(2), number);
    planned.push(end(sender, number));
    planned
}

/// The DREQ of a connection with host A.
fn end(sender: Sender, number: u32) -> Planned {
    let [own, answering] = comm_ids(number);
    let message = [own, answering, queue_pair(number) << 8].map(u32::to_be_bytes).concat();
    cm_with(sender, HOST_V4[0], attribute::DREQ, number.into(), &message)
}

/// REQ, REP and RTU of a connection with host A.
fn connection(sender: Sender, guid: u64, number: u32) -> Vec<Planned> {
    let [own, answering] = comm_ids(number);
    let gids = [sender.address, TO].map(|it| it.to_ipv6_mapped().octets());
    let queue_pair = queue_pair(number);
    let request = [
        &own.to_be_bytes()[..],
        &[0; 4],
        &SERVICE.to_be_bytes(),
        &guid.to_be_bytes(),
        &[0; 8],
        // With 16 READs at once in either direction, on a reliable connection.
        &(queue_pair << 8 | 16).to_be_bytes(),
        &16_u32.to_be_bytes(),
        &[0; 4],
        &(number << 8 | 7).to_be_bytes(),
        // The default partition, a path MTU of 1024, all the retries that there are.
        &[0xff, 0xff, 0x37, 0xf0],
        &[0xff; 4],
        gids.as_flattened(),
    ]
    .concat();
    let reply = [
        &answering.to_be_bytes()[..],
        &own.to_be_bytes(),
        &[0; 4],
        &(queue_pair << 8).to_be_bytes(),
        &[0; 4],
        &(number << 8).to_be_bytes(),
        &[16, 16, 0, 0xe0],
        &guid_of(1).to_be_bytes(),
    ]
    .concat();
    let ready = [own.to_be_bytes(), answering.to_be_bytes()].concat();
    let answers = Sender::host(Side::A);
    vec![
        cm_with(sender, HOST_V4[0], attribute::REQ, number.into(), &request),
        cm_with(answers, sender.address, attribute::REP, number.into(), &reply),
        cm_with(sender, HOST_V4[0], attribute::RTU, number.into(), &ready),
    ]
}
