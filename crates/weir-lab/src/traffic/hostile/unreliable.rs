//! Attacks on queue pairs of unreliable connections (UC), which answer nothing: what is lost stays
//! lost, and the next message begins anew.

use weir_wire::bth::Opcode;

use super::build::Roce;
use super::rdma::{QUEUE_PAIR, TO, host_b};
use super::{Campaign, Hostile, Random};
use crate::traffic::frames::Planned;

fn piece(opcode: Opcode, psn: u32, fill: u8) -> Planned {
    let roce = Roce::new(opcode, QUEUE_PAIR, psn);
    Roce { payload_len: 256, fill, ..roce }.by(host_b(), TO)
}

/// What host B sends at its `number`th turn, and whoever sends in its name.
pub(super) fn step(
    campaign: &Campaign,
    first: u32,
    number: u32,
    random: &mut Random,
) -> Vec<Planned> {
    let is_benign = campaign.is_benign;
    match campaign.hostile {
        Hostile::UcPsnInjection => injection(is_benign, first, number, random),
        Hostile::UcPsnConflict => {
            let own = piece(Opcode::UC_SEND_ONLY, first.wrapping_add(number), number as u8);
            let again = random.one(16).then(|| match is_benign {
                true => own.clone(),
                false => piece(Opcode::UC_SEND_ONLY, first.wrapping_add(number), !(number as u8)),
            });
            [Some(own), again].into_iter().flatten().collect()
        }
        _ => messages(is_benign, first.wrapping_add(4 * number), random),
    }
}

/// The queue pair's own packets, and others that sweep over all PSNs. The twin loses one of eight;
/// two are now and then overtaken, and thrice in a thousand the link is down for 30,000 packets.
fn injection(is_benign: bool, first: u32, number: u32, random: &mut Random) -> Vec<Planned> {
    let fill = number as u8;
    if !is_benign {
        let own = first.wrapping_add(number);
        let away = first.wrapping_add(0x20_0000).wrapping_add(number.wrapping_mul(0x1_0001));
        let forged = piece(Opcode::UC_SEND_ONLY, away, 0xee);
        return vec![piece(Opcode::UC_SEND_ONLY, own, fill), forged];
    }
    // Pauses are as many PSNs as the turns are old: what comes after one goes on behind it.
    let psn = first.wrapping_add(2 * number + number / 333 * 30_000);
    let own = [psn, psn.wrapping_add(1)].map(|it| piece(Opcode::UC_SEND_ONLY, it, fill));
    let [one, other] = own;
    match random.below(8) {
        0 => vec![one],
        1 => vec![other, one],
        _ => vec![one, other],
    }
}

/// Messages of three packets and of one. The attacker's lack their First, or their Last; of the
/// twin's any piece is lost, one of eight.
fn messages(is_benign: bool, psn: u32, random: &mut Random) -> Vec<Planned> {
    let kinds =
        [Opcode::UC_SEND_FIRST, Opcode::UC_SEND_MIDDLE, Opcode::UC_SEND_LAST, Opcode::UC_SEND_ONLY];
    let mut planned = Vec::new();
    let wrong = random.below(4);
    for (at, opcode) in (0..).zip(kinds) {
        let opcode = match (is_benign, wrong, at) {
            (false, 0, 0) => Opcode::UC_SEND_ONLY,
            (false, 1, 2) => Opcode::UC_SEND_MIDDLE,
            _ => opcode,
        };
        if is_benign && random.one(8) {
            continue;
        }
        planned.push(piece(opcode, psn.wrapping_add(at), at as u8));
    }
    planned
}
