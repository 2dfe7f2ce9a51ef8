//! How fast one core parses, classifies and meters the captures given, from memory, with and
//! without ICRC. Prints a JSON line a figure:
//!
//! `cargo run --release -p weir-engine --example meter_speed -- CAPTURE.pcap...`
//!
//! The packets of all files together are metered again and again, one call per packet as in the
//! pipeline, with clock and sequence numbers moving on. Prints the median of the rounds.

#![allow(clippy::disallowed_methods, reason = "only the engine itself does without these")]

use std::hint::black_box;
use std::time::{Duration, Instant};

use weir_engine::meter::{Icrc, Meter, MeterLimits, Observation};
use weir_wire::frame::{Link, Time};
use weir_wire::icrc;
use weir_wire::parse::parse;

/// Numbers from one round to the next: more than a capture's queue pair uses.
const PSN_STRIDE: u32 = 4096;

/// Time spent per figure, and in a quick run.
const BUDGET: Duration = Duration::from_secs(2);
const QUICK_BUDGET: Duration = Duration::from_millis(50);

fn main() {
    let (options, paths): (Vec<String>, Vec<String>) =
        std::env::args().skip(1).partition(|argument| argument.starts_with("--"));
    let budget = if options.contains(&"--quick".to_owned()) { QUICK_BUDGET } else { BUDGET };
    let mut packets: Vec<Vec<u8>> = paths.iter().flat_map(|path| read(path)).collect();
    if packets.is_empty() {
        eprintln!("usage: meter_speed [--quick] CAPTURE.pcap... (classic pcap, Ethernet)");
        std::process::exit(2);
    }
    for icrc in [Icrc::Skip, Icrc::Check] {
        let mut meter = Meter::new(MeterLimits::default(), 1);
        let mut now = 0;
        let ns = median_ns(&mut packets, budget, |packets| {
            for bytes in packets {
                now += 200;
                observe(&mut meter, Time(now), bytes, icrc);
            }
            meter.expire(Time(now), 8, &mut |record| {
                black_box(record);
            });
        });
        print(icrc, &packets, ns);
        let totals = black_box(meter.totals());
        assert_eq!(totals.rdma.icrc_bad, 0, "the captures are sound");
    }
}

fn observe(meter: &mut Meter, now: Time, bytes: &[u8], icrc: Icrc) {
    let original_len = bytes.len() as u32;
    let parsed = &parse(bytes, Link::Ethernet, original_len);
    let observed = meter.observe(&Observation {
        now,
        side: None,
        bytes,
        parsed,
        original_len,
        segments: 1,
        icrc,
    });
    black_box(observed);
}

fn print(icrc: Icrc, packets: &[Vec<u8>], round_ns: u64) {
    let bits: usize = packets.iter().map(|packet| packet.len() * 8).sum();
    let (count, ns) = (packets.len() as f64, round_ns as f64);
    let (mpps, gbps) = (count * 1e3 / ns, bits as f64 / ns);
    let (name, value, unit) = match icrc {
        Icrc::Skip => ("meter_memory_mpps", mpps, "Mpps"),
        Icrc::Check => ("meter_icrc_gbps", gbps, "Gb/s"),
    };
    println!(
        "{{\"name\":\"{name}\",\"value\":{value:.2},\"unit\":\"{unit}\",\"peer\":\"\",\
         \"peer_value\":null,\"ratio\":null,\"command\":\"make bench ONLY={name}\",\
         \"note\":\"parse, classify and meter {} packets of {} bytes on average, one core: \
         {mpps:.2} Mpps, {gbps:.1} Gb/s, {:.1} ns a packet\"}}",
        packets.len(),
        bits / 8 / packets.len(),
        ns / count,
    );
}

fn median_ns(packets: &mut [Vec<u8>], budget: Duration, mut round: impl FnMut(&[Vec<u8>])) -> u64 {
    let start = Instant::now();
    let mut times = Vec::new();
    while times.is_empty() || start.elapsed() < budget {
        let begin = Instant::now();
        round(packets);
        times.push(begin.elapsed().as_nanos() as u64);
        packets.iter_mut().for_each(|packet| move_on(packet));
    }
    times.sort_unstable();
    times[times.len() / 2]
}

fn move_on(packet: &mut [u8]) {
    let mut parsed = parse(packet, Link::Ethernet, packet.len() as u32);
    let Some(rdma) = &mut parsed.rdma else { return };
    let at = usize::from(rdma.bth_offset) + 9;
    let psn = rdma.psn.add(PSN_STRIDE).value();
    packet[at..at + 3].copy_from_slice(&psn.to_be_bytes()[1..]);
    icrc::write(packet, &parsed);
}

/// The packets of a little-endian classic pcap file.
fn read(path: &str) -> Vec<Vec<u8>> {
    let file = std::fs::read(path).unwrap_or_else(|error| panic!("{path}: {error}"));
    let mut packets = Vec::new();
    // Other formats and native InfiniBand are read by `weir read`, not here.
    let header = [&[0xd4, 0xc3, 0xb2, 0xa1][..], &[1, 0, 0, 0]];
    if file.len() < 24 || [&file[..4], &file[20..24]] != header {
        eprintln!("{path}: passed over: no little-endian classic pcap of Ethernet frames");
        return packets;
    }
    let mut rest = &file[24..];
    while let Some((header, tail)) = rest.split_first_chunk::<16>() {
        let len = u32::from_le_bytes([header[8], header[9], header[10], header[11]]) as usize;
        let Some((packet, next)) = tail.split_at_checked(len) else { break };
        packets.push(packet.to_vec());
        rest = next;
    }
    packets
}
