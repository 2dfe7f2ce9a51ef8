//! Prints what the walk and the ICRC cost on this machine, per packet of a RoCE v2 WRITE.
//!
//! `cargo run --release -p weir-wire --example speed`

use std::hint::black_box;
use std::time::Instant;

use weir_wire::checksum::Sum;
use weir_wire::frame::Link;
use weir_wire::icrc::{self, IcrcStatus};
use weir_wire::parse::parse;

const ROUNDS: u32 = 100;
const PACKETS_PER_ROUND: u32 = 20_000;

fn main() {
    println!(
        "{:>8} {:>10} {:>12} {:>12} {:>14}",
        "payload", "parse ns", "ICRC ns", "Gb/s", "sum Gb/s"
    );
    for payload_len in [0, 64, 256, 1024, 2048, 4096, 8192, 9000] {
        let frame = roce_v2_write(payload_len);
        let parsed = parse(&frame, Link::Ethernet, frame.len() as u32);
        assert_eq!(icrc::check(&frame, &parsed), IcrcStatus::Valid);
        let parse_ns = fastest_ns(|| {
            black_box(parse(black_box(&frame), Link::Ethernet, frame.len() as u32));
        });
        let check_ns = fastest_ns(|| {
            black_box(icrc::check(black_box(&frame), black_box(&parsed)));
        });
        let sum_ns = fastest_ns(|| {
            black_box(Sum::new().with(black_box(&frame)).folded());
        });
        let bits = frame.len() as f64 * 8.0;
        println!(
            "{payload_len:>8} {parse_ns:>10.1} {check_ns:>12.1} {:>12.1} {:>14.1}",
            bits / check_ns,
            bits / sum_ns
        );
    }
}

/// Nanoseconds a call in the fastest of several rounds.
fn fastest_ns(mut call: impl FnMut()) -> f64 {
    (0..ROUNDS)
        .map(|_| {
            let start = Instant::now();
            for _ in 0..PACKETS_PER_ROUND {
                call();
            }
            start.elapsed().as_nanos() as f64 / f64::from(PACKETS_PER_ROUND)
        })
        .fold(f64::MAX, f64::min)
}

/// An RC RDMA WRITE Middle over IPv4 with a valid ICRC.
fn roce_v2_write(payload_len: u16) -> Vec<u8> {
    let udp_len = 8 + 12 + payload_len + 4;
    let mut frame = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 0x08, 0x00];
    frame.extend([0x45, 0]);
    frame.extend((20 + udp_len).to_be_bytes());
    frame.extend([0, 0, 0x40, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
    frame.extend([0xc0, 0x00, 0x12, 0xb7]);
    frame.extend(udp_len.to_be_bytes());
    frame.extend([0, 0]);
    frame.extend([0x07, 0x40, 0xff, 0xff, 0, 0, 0, 17, 0, 0, 0, 1]);
    frame.extend((0..payload_len + 4).map(|index| index as u8));
    let parsed = parse(&frame, Link::Ethernet, frame.len() as u32);
    assert!(icrc::write(&mut frame, &parsed));
    frame
}
