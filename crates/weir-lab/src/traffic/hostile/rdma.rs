//! Attacks on queue pairs, and scans.

use std::net::Ipv4Addr;

use weir_wire::bth::Opcode;
use weir_wire::cm::attribute;
use weir_wire::tcp::flags;

use super::build::{PORT, Roce, Sender, cm, reth, tcp};
use super::{Campaign, Hostile, Random, connections, extended, saturation, unreliable};
use crate::topology::{HOST_MAC, HOST_V4, Side};
use crate::traffic::frames::Planned;

/// Host A's queue pair.
pub(super) const QUEUE_PAIR: u32 = 0x11;
/// Host B's.
const OWN_QUEUE_PAIR: u32 = 0x22;
/// The key to host A's memory.
pub(super) const KEY: u32 = 0x1a2b;
const NAK_ACCESS: u32 = 0x62 << 24;

pub(super) const TO: Ipv4Addr = HOST_V4[0];

pub(super) fn host_b() -> Sender {
    Sender::host(Side::B)
}

/// The frames of an attack, or of its twin.
pub(super) fn frames(campaign: &Campaign, random: &mut Random) -> Vec<Planned> {
    let mut planned = Vec::with_capacity(campaign.count + 8);
    let first = random.below(1 << 24) as u32;
    let mut number = 0;
    while planned.len() < campaign.count {
        planned.extend(step(campaign, first, number, random));
        number += 1;
    }
    planned
}

fn write(sender: Sender, psn: u32, address: u64, fill: u8) -> Planned {
    let headers = reth(address, KEY, 64);
    let roce = Roce::new(Opcode::RC_WRITE_ONLY, QUEUE_PAIR, psn);
    Roce { headers: &headers, payload_len: 64, fill, ..roce }.by(sender, TO)
}

pub(super) fn read(psn: u32, key: u32, address: u64, length: u32) -> Planned {
    let headers = reth(address, key, length);
    let roce = Roce::new(Opcode::RC_READ_REQUEST, QUEUE_PAIR, psn);
    Roce { headers: &headers, ..roce }.by(host_b(), TO)
}

pub(super) fn answer(opcode: Opcode, psn: u32, syndrome: u32, payload_len: usize) -> Planned {
    let headers = (syndrome | psn & 0xff_ffff).to_be_bytes();
    let roce = Roce { headers: &headers, ..Roce::new(opcode, OWN_QUEUE_PAIR, psn) };
    Roce { payload_len, ..roce }.by(Sender::host(Side::A), HOST_V4[1])
}

/// What host B sends at its `number`th turn, and what host A answers.
pub(super) fn step(
    campaign: &Campaign,
    first: u32,
    number: u32,
    random: &mut Random,
) -> Vec<Planned> {
    let is_benign = campaign.is_benign;
    let psn = first.wrapping_add(number);
    match campaign.hostile {
        // Every other packet is the queue pair's own.
        Hostile::PsnInjection => injection(is_benign, first, number, random),
        Hostile::PsnConflict => {
            let own = write(host_b(), psn, u64::from(number) * 64, number as u8);
            let again = random.one(16).then(|| match is_benign {
                true => own.clone(),
                false => write(host_b(), psn, u64::from(number) * 64, !(number as u8)),
            });
            [Some(own), again].into_iter().flatten().collect()
        }
        Hostile::UcPsnInjection | Hostile::UcPsnConflict | Hostile::UcInvalidRequest => {
            unreliable::step(campaign, first, number, random)
        }
        Hostile::XrcPsnConflict | Hostile::XrcKeyGuessing | Hostile::XrcWriteLength => {
            extended::step(campaign, first, number, random)
        }
        Hostile::GuidConflict => connections::guids(is_benign, number, random),
        Hostile::IdleQueuePairs => connections::idle(is_benign, number, random),
        Hostile::KeySaturation
        | Hostile::PipelineSaturation
        | Hostile::RnrFlood
        | Hostile::RogueSm => saturation::step(campaign, psn, number, random),
        Hostile::WriteLength => lengths(is_benign, first.wrapping_add(6 * number), random),
        Hostile::AddressGuessing => addresses(is_benign, psn, number, random),
        Hostile::InvalidRequest => messages(is_benign, first.wrapping_add(4 * number), random),
        Hostile::KeyGuessing => {
            let key = random.next() as u32;
            let answered = match is_benign {
                true => answer(Opcode::RC_READ_RESPONSE_ONLY, psn, 0, 64),
                false => answer(Opcode::RC_ACKNOWLEDGE, psn, NAK_ACCESS, 0),
            };
            vec![read(psn, key, 0x1000, 64), answered]
        }
        Hostile::QpExhaustion => {
            // REQ and REP; the RTU and the DREQ are the twin's alone.
            let mut planned = connections::ended(host_b(), number);
            planned.truncate(if is_benign { 4 } else { 2 });
            planned
        }
        Hostile::Exfiltration => exfiltration(is_benign, psn, number),
        Hostile::Scan => scan(is_benign, number, random),
        _ => field(campaign, psn, number, random),
    }
}

/// Attacks by one field of each packet.
fn field(campaign: &Campaign, psn: u32, number: u32, random: &mut Random) -> Vec<Planned> {
    let is_benign = campaign.is_benign;
    match campaign.hostile {
        Hostile::PortChange => {
            let moved = match is_benign {
                true => number > 50,
                false => number % 2 == 1,
            };
            let port = PORT + u16::from(moved);
            vec![write(Sender { port, ..host_b() }, psn, 0, 0)]
        }
        Hostile::AddressConflict => {
            let moved = match is_benign {
                true => number > 50,
                false => number % 2 == 1,
            };
            let mac = if moved { [2, 0x66, 0, 0, 0, 1] } else { HOST_MAC[Side::B.index()] };
            vec![write(Sender { mac, ..host_b() }, psn, 0, 0)]
        }
        Hostile::StateSaturation => {
            let queue_pair = match is_benign {
                true => 0x100 + number % 16,
                false => 0x100 + number,
            };
            let psn = if is_benign { psn.wrapping_sub(number - number / 16) } else { psn };
            let headers = reth(0, KEY, 8);
            let roce = Roce::new(Opcode::RC_WRITE_ONLY, queue_pair, psn);
            vec![Roce { headers: &headers, payload_len: 8, ..roce }.by(host_b(), TO)]
        }
        Hostile::PkeyGuessing => {
            let partition = match is_benign {
                true => [0xffff, 0x8001][number as usize % 2],
                false => random.next() as u16,
            };
            let headers = reth(0, KEY, 0);
            let roce = Roce::new(Opcode::RC_WRITE_ONLY, QUEUE_PAIR, psn);
            vec![Roce { headers: &headers, partition, ..roce }.by(host_b(), TO)]
        }
        Hostile::QkeyGuessing => {
            let key = match is_benign {
                true => [0x1111_1111, 0x2222_2222][number as usize % 2],
                false => random.next() as u32,
            };
            let headers = [key.to_be_bytes(), OWN_QUEUE_PAIR.to_be_bytes()].concat();
            let roce = Roce::new(Opcode::UD_SEND_ONLY, 0x40, psn);
            vec![Roce { headers: &headers, payload_len: 64, ..roce }.by(host_b(), TO)]
        }
        Hostile::SideChannel => {
            let address = match (is_benign, number % 2000) {
                (false, _) => u64::from(number % 3) * 4096,
                (true, ..1000) => 0x1000,
                (true, _) => random.below(1 << 20) * 64,
            };
            vec![read(psn, KEY, address, 8), answer(Opcode::RC_READ_RESPONSE_ONLY, psn, 0, 8)]
        }
        _ => {
            let data = answer(Opcode::RC_READ_RESPONSE_ONLY, psn, 0, 1024);
            let roce = Roce { headers: &[0; 16], ..Roce::new(Opcode::CNP, QUEUE_PAIR, 0) };
            let forged = roce.by(host_b(), TO);
            if is_benign { vec![data, forged] } else { vec![forged] }
        }
    }
}

/// A sweep over all PSNs from a random one on, beside the queue pair's own packets; or losses.
fn injection(is_benign: bool, first: u32, number: u32, random: &mut Random) -> Vec<Planned> {
    let own = write(host_b(), first.wrapping_add(number), u64::from(number) * 64, number as u8);
    if is_benign {
        // What was lost comes later, and what was not comes twice.
        return match random.one(8) {
            true => Vec::new(),
            false => vec![own.clone(), own],
        };
    }
    let away = first.wrapping_add(0x40_0000 + number);
    vec![own, write(host_b(), away, 0, 0xee)]
}

/// A WRITE of three packets and one of its own; or the same without its First.
fn messages(is_benign: bool, psn: u32, random: &mut Random) -> Vec<Planned> {
    let headers = reth(0, KEY, 3 * 256);
    let piece = |opcode, at: u32, headers: &[u8]| {
        let roce = Roce::new(opcode, QUEUE_PAIR, psn.wrapping_add(at));
        Roce { headers, payload_len: 256, ..roce }.by(host_b(), TO)
    };
    let first = match is_benign || random.one(4) {
        true => piece(Opcode::RC_WRITE_FIRST, 0, &headers),
        false => write(host_b(), psn, 0, 0),
    };
    vec![
        first,
        piece(Opcode::RC_WRITE_MIDDLE, 1, &[]),
        piece(Opcode::RC_WRITE_LAST, 2, &[]),
        write(host_b(), psn.wrapping_add(3), 0, 0),
    ]
}

/// WRITEs of one packet and of several; of an attack one of four is not as long as its RETH says:
/// too long or too short in one packet, a First that is all, a message that ends early or goes on.
fn lengths(is_benign: bool, psn: u32, random: &mut Random) -> Vec<Planned> {
    let piece = |opcode, at: u32, length: Option<u32>, payload_len: usize| {
        let headers = length.map_or(Vec::new(), |it| reth(0, KEY, it));
        let roce = Roce::new(opcode, QUEUE_PAIR, psn.wrapping_add(at));
        Roce { headers: &headers, payload_len, ..roce }.by(host_b(), TO)
    };
    let small = 4 * random.below(64) as u32;
    let rest = 4 + 4 * random.below(63) as u32;
    let (mut only, mut whole, mut second) = (small, 512 + rest, 512);
    match random.below(16) {
        _ if is_benign => {}
        0 => only += 4,
        1 => only = random.next() as u32 | 1,
        2 => whole = 256,
        3 => (whole, second) = (whole + 256, 256 + rest),
        _ => {}
    }
    vec![
        piece(Opcode::RC_WRITE_ONLY, 0, Some(only), small as usize),
        piece(Opcode::RC_WRITE_FIRST, 1, Some(whole), 256),
        piece(Opcode::RC_WRITE_MIDDLE, 2, None, 256),
        piece(Opcode::RC_WRITE_LAST, 3, None, rest as usize),
        piece(Opcode::RC_WRITE_FIRST, 4, Some(second), 256),
        piece(Opcode::RC_WRITE_LAST, 5, None, 256),
    ]
}

/// READs and WRITEs by one valid key. The attacker looks for addresses where it works, over a new
/// queue pair each time, for the last one broke; the twin uses its memory and errs once in a while.
fn addresses(is_benign: bool, psn: u32, number: u32, random: &mut Random) -> Vec<Planned> {
    let is_granted = is_benign && !random.one(2_000);
    let address = match is_benign {
        true => 0x10_0000 + 64 * random.below(1 << 16),
        false => 0x7f00_0000_0000 + 4096 * u64::from(number),
    };
    let queue_pair = if is_benign { QUEUE_PAIR } else { QUEUE_PAIR + number };
    let is_read = random.one(2);
    let opcode = if is_read { Opcode::RC_READ_REQUEST } else { Opcode::RC_WRITE_ONLY };
    let headers = reth(address, KEY, 64);
    let payload_len = if is_read { 0 } else { 64 };
    let roce = Roce { headers: &headers, payload_len, ..Roce::new(opcode, queue_pair, psn) };
    let answered = match (is_granted, is_read) {
        (false, _) => answer(Opcode::RC_ACKNOWLEDGE, psn, NAK_ACCESS, 0),
        (true, true) => answer(Opcode::RC_READ_RESPONSE_ONLY, psn, 0, 64),
        (true, false) => answer(Opcode::RC_ACKNOWLEDGE, psn, 0, 0),
    };
    vec![roce.by(host_b(), TO), answered]
}

/// Host A asks host B for a connection, by which B then reads A's memory.
fn exfiltration(is_benign: bool, psn: u32, number: u32) -> Vec<Planned> {
    let mut planned = Vec::new();
    if is_benign && number == 0 {
        planned.push(cm(Sender::host(Side::A), HOST_V4[1], attribute::REQ, 1));
    }
    if number == 0 {
        // Another host is here from the start.
        let headers = reth(0, KEY, 64);
        let roce = Roce::new(Opcode::RC_WRITE_ONLY, 0x99, 0);
        let other = host_b().at(Ipv4Addr::new(10, 77, 0, 9));
        planned.push(Roce { headers: &headers, payload_len: 64, ..roce }.by(other, TO));
        return planned;
    }
    if !is_benign && number == 1 {
        planned.push(cm(Sender::host(Side::A), HOST_V4[1], attribute::REQ, 1));
    }
    planned.push(read(psn, KEY, u64::from(number) * 4096, 4096));
    planned.push(answer(Opcode::RC_READ_RESPONSE_ONLY, psn, 0, 4096));
    planned
}

/// A SYN to another service each, refused; or taken.
fn scan(is_benign: bool, number: u32, random: &mut Random) -> Vec<Planned> {
    let port = (number % 1000) as u16 + 1;
    let own = 1024 + random.below(60_000) as u16;
    let sequence = random.next() as u32;
    let syn = tcp(Sender { port: own, ..host_b() }, TO, port, sequence, flags::SYN);
    let answer = if is_benign { flags::SYN | flags::ACK } else { flags::RST | flags::ACK };
    let answering = Sender { port, ..Sender::host(Side::A) };
    vec![syn, tcp(answering, HOST_V4[1], own, 1, answer)]
}
