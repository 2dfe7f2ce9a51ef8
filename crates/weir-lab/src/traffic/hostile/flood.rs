//! Floods: one kind of packet, as fast as it is sent.

use std::net::Ipv4Addr;

use weir_wire::bth::Opcode;
use weir_wire::cm::attribute;
use weir_wire::mad::class;
use weir_wire::tcp::flags;

use super::build::{PORT, Roce, Sender, cm, echo, mad, reth, tcp, udp};
use super::connections;
use super::{Campaign, Hostile, Random};
use crate::topology::{HOST_V4, Side};
use crate::traffic::frames::Planned;

/// The frames of a flood, or of its twin: the rate tells them apart, which is the sender's.
pub(super) fn frames(campaign: &Campaign, random: &mut Random) -> Vec<Planned> {
    (0..campaign.count as u64).map(|number| frame(campaign, number, random)).collect()
}

/// One of so many sources, each in a network of its own, unless the campaign says how many.
fn many(campaign: &Campaign, number: u64, address: Ipv4Addr, sources: u64) -> Ipv4Addr {
    match campaign.sources {
        1 => Ipv4Addr::from(0x0b00_0001 + ((number % sources) << 8) as u32),
        _ => address,
    }
}

/// The frames of connections that are set up, by as many hosts as there are.
fn handshake(number: u64, to: Ipv4Addr) -> Planned {
    let connection = (number / 3) as u32;
    let from = Ipv4Addr::from(0x0b00_0001 + (connection << 8));
    let client = Sender::host(Side::B).at(from);
    match number % 3 {
        0 => tcp(client, to, 80, connection, flags::SYN),
        1 => {
            let server = Sender { port: 80, ..Sender::host(Side::A) };
            tcp(server, from, client.port, !connection, flags::SYN | flags::ACK)
        }
        _ => tcp(client, to, 80, connection + 1, flags::ACK),
    }
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
        Hostile::HalfOpenFlood if campaign.is_benign => handshake(number, to),
        Hostile::HalfOpenFlood => {
            let sender = Sender { port, ..sender.at(many(campaign, number, address, 4_000)) };
            tcp(sender, to, 80, random.next() as u32, flags::SYN)
        }
        Hostile::CarpetFlood => {
            let sender = Sender { port, ..sender.at(many(campaign, number, address, 64)) };
            let [a, b, c, _] = to.octets();
            udp(sender, Ipv4Addr::new(a, b, c, random.next() as u8), 9, &[0x55; 64])
        }
        Hostile::AckFlood => {
            let sender = if campaign.is_benign { sender } else { Sender { port, ..sender } };
            tcp(sender, to, 80, psn, flags::ACK)
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
        // The twin's connections are answered, completed and ended.
        _ if campaign.is_benign => {
            connections::ended(sender, (number / 4) as u32).swap_remove((number % 4) as usize)
        }
        _ => cm(sender, to, attribute::REQ, number),
    }
}
