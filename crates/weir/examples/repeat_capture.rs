//! Makes a large capture of small ones: repeats their packets, with time and sequence numbers moved
//! on and ICRCs made good, until OUT holds SIZE_MIB.
//!
//! `cargo run --release -p weir --example repeat_capture -- OUT.pcap SIZE_MIB CAPTURE...`

use std::collections::HashMap;
use std::process::ExitCode;

use anyhow::Context;
use weir_port::capture::{CaptureFormat, CaptureReader, CaptureWriter, PacketNote};
use weir_wire::bth::Psn;
use weir_wire::frame::{Link, Meta};
use weir_wire::icrc;
use weir_wire::parse::{Parsed, parse};

/// Offset of the PSN's three bytes in the BTH.
const PSN_OFFSET: usize = 9;

struct Packet {
    bytes: Vec<u8>,
    meta: Meta,
    parsed: Parsed,
}

fn main() -> anyhow::Result<ExitCode> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [out, size_mib, captures @ ..] = arguments.as_slice() else {
        eprintln!("usage: repeat_capture OUT.pcap SIZE_MIB CAPTURE...");
        return Ok(ExitCode::from(2));
    };
    let size_bytes = size_mib.parse::<u64>().context("SIZE_MIB is a number")? << 20;
    let mut packets = Vec::new();
    for path in captures {
        read(path, &mut packets)?;
    }
    let Some(last) = packets.iter().map(|packet| packet.meta.time).max() else {
        anyhow::bail!("the captures hold no packets");
    };
    let first = packets.iter().map(|packet| packet.meta.time).min().unwrap_or(last);
    let strides = strides(&packets);
    let ethernet = [("repeat", Link::Ethernet)];
    let mut writer = CaptureWriter::create(out, CaptureFormat::Pcap, &ethernet)?;
    let mut written = 0;
    while written < size_bytes {
        for packet in &mut packets {
            writer.write(0, &packet.meta, &[&packet.bytes], PacketNote::default())?;
            written += packet.bytes.len() as u64 + 16;
            packet.meta.time = packet.meta.time.plus_ns(last.since_ns(first) + 1_000_000);
            move_on(packet, &strides);
        }
    }
    writer.finish()?;
    Ok(ExitCode::SUCCESS)
}

fn read(path: &str, packets: &mut Vec<Packet>) -> anyhow::Result<()> {
    let mut reader = CaptureReader::open(path)?;
    let mut take = |frames: &mut [weir_wire::frame::Frame<'_>]| {
        for frame in frames {
            let (bytes, meta) = (frame.bytes().to_vec(), frame.meta);
            let parsed = parse(&bytes, meta.link, meta.original_len);
            packets.push(Packet { bytes, meta, parsed });
        }
    };
    while reader.next_batch(&mut take)? > 0 {}
    Ok(())
}

/// Numbers used between two addresses: the step from one repetition to the next. Both directions
/// share it, since responses repeat the numbers of requests.
fn strides(packets: &[Packet]) -> HashMap<[[u8; 16]; 2], u32> {
    let mut spans: HashMap<_, HashMap<_, (Psn, i32, i32)>> = HashMap::new();
    for packet in packets {
        let Some(rdma) = packet.parsed.rdma else { continue };
        let per_pair = spans.entry(pair_of(&packet.parsed)).or_default();
        let span = per_pair.entry(rdma.destination_qp).or_insert((rdma.psn, 0, 0));
        let distance = rdma.psn.distance(span.0);
        (span.1, span.2) = (span.1.min(distance), span.2.max(distance));
    }
    let widest = |spans: HashMap<_, (Psn, i32, i32)>| {
        spans.into_values().map(|span| (span.2 - span.1 + 1) as u32).max().unwrap_or(1)
    };
    spans.into_iter().map(|(pair, spans)| (pair, widest(spans))).collect()
}

fn pair_of(parsed: &Parsed) -> [[u8; 16]; 2] {
    let mut pair = [parsed.source, parsed.destination];
    pair.sort_unstable();
    pair
}

fn move_on(packet: &mut Packet, strides: &HashMap<[[u8; 16]; 2], u32>) {
    let pair = pair_of(&packet.parsed);
    let Some(rdma) = &mut packet.parsed.rdma else { return };
    let stride = strides[&pair];
    rdma.psn = rdma.psn.add(stride);
    let at = usize::from(rdma.bth_offset) + PSN_OFFSET;
    packet.bytes[at..at + 3].copy_from_slice(&rdma.psn.value().to_be_bytes()[1..]);
    icrc::write(&mut packet.bytes, &packet.parsed);
}
