//! What holds for any bytes: no panic, no offset outside, and a CRC that sees every covered bit.

use proptest::prelude::*;
use weir_wire::frame::Link;
use weir_wire::icrc::{self, IcrcStatus};
use weir_wire::parse::{Encapsulation, Fault, Network, Parsed};

use crate::captures::{self, Packet};

#[path = "../corpus/exercise.rs"]
mod exercise;

const LINKS: [Link; 6] =
    [Link::Ethernet, Link::Ip, Link::LinuxSll, Link::LinuxSll2, Link::InfiniBand, Link::Ipoib];

/// A few packets of every capture: the first of each opcode.
fn samples() -> Vec<Packet> {
    let mut samples = Vec::new();
    for file in captures::files() {
        let mut seen = Vec::new();
        for packet in captures::packets(&file) {
            let parsed = packet.parsed();
            let kind = (parsed.network, parsed.rdma.map(|rdma| rdma.opcode));
            if !seen.contains(&kind) {
                seen.push(kind);
                samples.push(packet);
            }
        }
    }
    samples
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..Default::default() })]

    #[test]
    fn arbitrary_bytes_never_panic_and_offsets_stay_inside(
        bytes in prop::collection::vec(any::<u8>(), 0..200), link in 0..LINKS.len(),
        more in 0u32..100,
    ) {
        exercise::exercise(&bytes, LINKS[link], bytes.len() as u32 + more);
    }
}

#[test]
fn mutated_packets_never_panic_and_offsets_stay_inside() {
    let mut random = 0x9e37_79b9_7f4a_7c15_u64;
    let mut next = |bound: usize| {
        random = random.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
        (random >> 33) as usize % bound
    };
    for packet in samples() {
        for _ in 0..2000 {
            let mut bytes = packet.bytes.clone();
            for _ in 0..=next(4) {
                // Headers are what the walk reads: mutate them most.
                let at = if next(4) == 0 { next(bytes.len()) } else { next(bytes.len().min(100)) };
                bytes[at] = next(256) as u8;
            }
            if next(3) == 0 {
                bytes.truncate(next(bytes.len()));
            }
            exercise::exercise(&bytes, packet.link, packet.original_len);
        }
    }
}

#[test]
fn a_cut_capture_is_truncated_and_never_malformed() {
    for packet in samples() {
        for len in 0..packet.parsed().end as usize {
            let bytes = &packet.bytes[..len];
            let parsed = exercise::exercise(bytes, packet.link, packet.original_len);
            assert_eq!(parsed.fault, Some(Fault::Truncated), "{len} of {}", packet.bytes.len());
            assert_eq!(icrc::check(bytes, &parsed), IcrcStatus::Unchecked);
        }
    }
}

/// Bits of a packet that the ICRC leaves out although they stand before it, as
/// (offset, mask of bits left out).
fn masked(parsed: &Parsed) -> Vec<(usize, u8)> {
    let rdma = parsed.rdma.expect("RDMA");
    let network = usize::from(parsed.network_offset);
    let transport = usize::from(parsed.transport_offset);
    let flow = [(0, 0x0f), (1, 0xff), (2, 0xff), (3, 0xff), (7, 0xff)];
    let mut masked = vec![(usize::from(rdma.bth_offset) + 4, 0xff)];
    match parsed.network {
        Network::Ipv4 => masked.extend([1, 8, 10, 11].map(|at| (network + at, 0xff))),
        Network::Ipv6 | Network::Grh => {
            masked.extend(flow.map(|(at, mask)| (network + at, mask)));
        }
        _ => masked.push((0, 0xf0)),
    }
    if rdma.encapsulation == Encapsulation::RoceV2 {
        masked.extend([(transport + 6, 0xff), (transport + 7, 0xff)]);
    } else if rdma.encapsulation == Encapsulation::InfiniBand && parsed.network == Network::Grh {
        masked.extend((0..8).map(|at| (at, 0xff)));
    }
    masked
}

#[test]
fn the_icrc_sees_every_covered_bit_and_no_masked_one() {
    for packet in samples() {
        let parsed = packet.parsed();
        let Some(rdma) = parsed.rdma else { continue };
        let masked = masked(&parsed);
        let first = if rdma.encapsulation == Encapsulation::InfiniBand {
            0
        } else {
            usize::from(parsed.network_offset)
        };
        let behind = usize::from(rdma.icrc_offset.expect("whole")) + icrc::ICRC_LEN;
        for at in first..behind {
            for bit in 0..8 {
                let mut bytes = packet.bytes.clone();
                bytes[at] ^= 1 << bit;
                let is_masked =
                    masked.iter().any(|(place, mask)| *place == at && mask >> bit & 1 != 0);
                let expected = if is_masked { IcrcStatus::Valid } else { IcrcStatus::Invalid };
                // The places found in the whole packet: what a flip does to the walk is not asked.
                let found = icrc::check(&bytes, &parsed);
                assert_eq!(found, expected, "byte {at} bit {bit} of {rdma:?}");
                if rdma.encapsulation == Encapsulation::InfiniBand {
                    let found = icrc::check_variant(&bytes, &parsed);
                    assert_eq!(found, IcrcStatus::Invalid, "VCRC: byte {at} bit {bit}");
                }
            }
        }
    }
}

#[test]
fn an_icrc_taken_in_pieces_equals_the_whole() {
    for packet in samples() {
        let parsed = packet.parsed();
        let Some(rdma) = parsed.rdma else { continue };
        let end = usize::from(rdma.icrc_offset.expect("whole"));
        let body = &packet.bytes[icrc::Icrc::body_offset(&rdma)..end];
        for piece_len in [1, 3, 64, 1000] {
            let mut icrc = icrc::Icrc::begin(&packet.bytes, &parsed).expect("RDMA");
            body.chunks(piece_len).for_each(|piece| icrc.update(piece));
            assert_eq!(Some(icrc.finish()), icrc::present(&packet.bytes, &parsed));
        }
    }
}
