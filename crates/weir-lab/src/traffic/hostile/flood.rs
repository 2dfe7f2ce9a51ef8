//! Floods: one kind of packet, as fast as it is sent.

use weir_wire::bth::Opcode;
use weir_wire::cm::attribute;
use weir_wire::mad::class;
use weir_wire::tcp::flags;

use super::build::{PORT, Roce, Sender, cm, echo, mad, reth, tcp, udp};
use super::{Campaign, Hostile, Random};
use crate::topology::{HOST_V4, Side};
use crate::traffic::frames::Planned;

/// The frames of a flood, or of its twin: the rate tells them apart, which is the sender's.
pub(super) fn frames(campaign: &Campaign, random: &mut Random) -> Vec<Planned> {
    (0..campaign.count as u64).map(|number| frame(campaign, number, random)).collect()
}

fn frame(campaign: &Campaign, number: u64, random: &mut Random) -> Planned {
    let to = HOST_V4[Side::A.index()];
    let address = campaign.source(number, random);
    let sender = Sender::host(Side::B).at(address);
    let port = 1024 + random.below(60_000) as u16;
    let psn = number as u32;
    match campaign.hostile {
        Hostile::SynFlood => {
            let sender = Sender { port, ..sender };
            tcp(sender, to, 80, random.next() as u32, flags::SYN)
        }
        Hostile::UdpFlood => udp(Sender { port, ..sender }, to, 9, &[0x55; 64]),
        Hostile::DnsFlood => {
            // A large answer: id, response, one question, thirty answers that nobody reads.
            let mut message = vec![0; 480];
            message[..12].copy_from_slice(&[0, 0, 0x81, 0x80, 0, 1, 0, 30, 0, 0, 0, 0]);
            udp(Sender { port: 53, ..sender }, to, port, &message)
        }
        Hostile::IcmpFlood => echo(sender, to, number as u16),
        Hostile::ReadFlood => {
            let headers = reth(0x10_0000 + random.below(1 << 20), 0x1a2b, 8);
            let roce = Roce { headers: &headers, ..Roce::new(Opcode::RC_READ_REQUEST, 0x11, psn) };
            roce.by(Sender { port: PORT, ..sender }, to)
        }
        Hostile::WriteFlood => {
            let headers = reth(0x10_0000 + random.below(1 << 20), 0x1a2b, 8);
            let roce = Roce::new(Opcode::RC_WRITE_ONLY, 0x11, psn);
            Roce { headers: &headers, payload_len: 8, ..roce }.by(sender, to)
        }
        // The twin's tell of congestion that data met.
        Hostile::CnpFlood if campaign.is_benign && number.is_multiple_of(2) => {
            let headers = psn.to_be_bytes();
            let roce = Roce::new(Opcode::RC_READ_RESPONSE_ONLY, 0x22, psn);
            let roce = Roce { headers: &headers, payload_len: 64, ..roce };
            roce.by(Sender::host(Side::A), address)
        }
        Hostile::CnpFlood => {
            let roce = Roce { headers: &[0; 16], ..Roce::new(Opcode::CNP, 0x11, 0) };
            roce.by(sender, to)
        }
        // Counters of a port are asked for: method Get, attribute PortCounters.
        Hostile::MadFlood => mad(sender, to, [class::PERFORMANCE, 1, 1], 0x12, number),
        // The twin's connections are used.
        _ if campaign.is_benign && number % 2 == 1 => cm(sender, to, attribute::RTU, number),
        _ => cm(sender, to, attribute::REQ, number),
    }
}
