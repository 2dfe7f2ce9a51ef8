//! Bidirectional records (RFC 5103), judged by tshark, which knows the reverse elements.

use std::collections::BTreeMap;
use std::io::Write;
use std::net::IpAddr;
use std::process::Command;

use super::traffic::{self, Sums, add};
use weir_store::sink::{Encoder, EncoderOptions, Message};
use weir_wire::frame::Time;

const START: Time = Time(1_700_000_000_000_000_000);

#[test]
fn tshark_reads_both_directions_from_one_record() {
    let (items, sums) = traffic::flows(300, true, START);
    let options = EncoderOptions { biflow: true, ..EncoderOptions::stream() };
    let mut encoder = Encoder::new(&options, START);
    let (mut stream, mut records) = (Vec::new(), 0);
    let mut keep = |message: Message<'_>| stream.extend_from_slice(message.bytes);
    encoder.templates(START, &mut keep);
    for item in &items {
        records += encoder.add(item, START, &mut keep).records;
    }
    encoder.flush(START, &mut keep);
    assert_eq!(records as usize, items.len(), "one record a flow");

    let mut file = tempfile::Builder::new().suffix(".ipfix").tempfile().unwrap();
    file.write_all(&stream).unwrap();
    let Ok(output) = Command::new("tshark").arg("-r").arg(file.path()).arg("-V").output() else {
        eprintln!("SKIPPED: tshark is not installed");
        return;
    };
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(!text.contains("Malformed"), "{text}");
    let found = both_directions(&text);
    for (tuple, sum) in &sums {
        assert_eq!(found.get(tuple), Some(sum), "{tuple:?}, {} found", found.len());
    }
    assert_eq!(found.len(), sums.len());
}

/// Sums of each direction from tshark's tree: what it marks as reverse counts the other way.
fn both_directions(text: &str) -> Sums {
    let mut sums = Sums::new();
    for flow in text.split("\n        Flow ").skip(1) {
        let (mut there, mut back) = (BTreeMap::new(), BTreeMap::new());
        for line in flow.lines() {
            let Some((name, value)) = line.trim().split_once(": ") else { continue };
            let of = if value.contains("(Reverse Type") { &mut back } else { &mut there };
            of.entry(name).or_insert(value);
        }
        let word = |name: &str| there[name].split_whitespace().next().unwrap();
        let address = |name: &str| word(name).parse::<IpAddr>().unwrap();
        let port = |name: &str| word(name).parse::<u16>().unwrap();
        let protocol = if there["Protocol"].contains("(6)") { 6 } else { 17 };
        let (source, destination) = (address("SrcAddr"), address("DstAddr"));
        let (from, to) = (port("SrcPort"), port("DstPort"));
        let number = |of: &BTreeMap<&str, &str>, name: &str| -> u64 {
            of[name].split_whitespace().next().unwrap().parse().unwrap()
        };
        let forward = (source, destination, from, to, protocol);
        add(&mut sums, forward, number(&there, "Packets"), number(&there, "Octets"));
        if number(&back, "Packets") > 0 {
            let reverse = (destination, source, to, from, protocol);
            add(&mut sums, reverse, number(&back, "Packets"), number(&back, "Octets"));
        }
    }
    sums
}
