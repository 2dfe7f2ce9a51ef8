//! Rules against captures: `captures RULES ALERTS CAPTURE...` reads Ethernet captures (classic
//! pcap of this machine's byte order) and writes an EVE record for each alert, as small as scripts
//! that compare engines need. A `classification.config` beside RULES is read.
//!
//! For `perf` too: nothing but the detector runs. `weir read` is the whole.

#![allow(clippy::disallowed_methods, reason = "only the detector itself does without these")]

use std::fs;
use std::io::Write;
use std::net::IpAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use weir_detect::alert::End;
use weir_detect::{
    Alerts, Decoded, Detector, FlowTable, Limits, LoadOptions, Packet, RuleSet, RuleSource,
    Variables, Vlans,
};
use weir_wire::frame::{Link, Time};
use weir_wire::parse::parse;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let usage = "captures RULES ALERTS CAPTURE...";
    let (rules, out) = (arguments.next().ok_or(usage)?, arguments.next().ok_or(usage)?);
    let text = String::from_utf8_lossy(&fs::read(&rules)?).into_owned();
    let classes = Path::new(&rules).with_file_name("classification.config");
    let source = RuleSource { name: rules, text };
    let begun = Instant::now();
    let mut options = LoadOptions { ignores_checksums: true, ..LoadOptions::default() };
    // Severities decide who comes first, and so who sees which bits of its flow.
    options.classes.read(&fs::read_to_string(classes).unwrap_or_default());
    let loaded = RuleSet::load(&[source], &Variables::default(), &options)?;
    let rules = Arc::new(loaded.rules);
    eprintln!(
        "{} of {} rules, {:.2} s, {} MiB of patterns",
        loaded.report.runnable,
        loaded.report.enabled,
        begun.elapsed().as_secs_f64(),
        rules.pattern_bytes() >> 20
    );
    let limits = Limits::default();
    let mut detector = Detector::new(rules.clone(), limits)?;
    let mut flows = FlowTable::new(limits);
    let mut alerts = Alerts::new(1 << 12);
    let mut out = std::io::BufWriter::new(fs::File::create(out)?);
    for path in arguments {
        let file = fs::read(&path)?;
        let begun = Instant::now();
        let mut packets = 0_u64;
        for (now, bytes) in frames(&file) {
            let parsed = parse(bytes, Link::Ethernet, bytes.len() as u32);
            let decoded = Some(Decoded::new(Vlans::of(&parsed), &[]));
            let packet = Packet {
                bytes,
                parsed: &parsed,
                decoded,
                is_rebuilt: false,
                is_verified: false,
                icrc: None,
                port: None,
            };
            flows.inspect(&mut detector, now, &packet, &mut alerts);
            packets += 1;
            for alert in alerts.drain() {
                let address = |end: &End| IpAddr::from(end.address).to_canonical();
                writeln!(
                    out,
                    "{{\"event_type\":\"alert\",\"src_ip\":\"{}\",\"src_port\":{},\
                     \"dest_ip\":\"{}\",\"dest_port\":{},\"alert\":{{\"signature_id\":{}}}}}",
                    address(&alert.source),
                    alert.source.port,
                    address(&alert.destination),
                    alert.destination.port,
                    rules.rule(alert.rule).sid
                )?;
            }
        }
        let seconds = begun.elapsed().as_secs_f64();
        eprintln!("{path}: {packets} packets, {:.1} kpps", packets as f64 / seconds / 1000.0);
        eprintln!("{} KiB held by {} flows", detector.memory() >> 10, flows.len());
    }
    eprintln!("{:?}", detector.counters());
    Ok(())
}

/// Times and bytes of the packets of a capture.
fn frames(file: &[u8]) -> impl Iterator<Item = (Time, &[u8])> {
    const FILE_HEADER_LEN: usize = 24;
    const RECORD_HEADER_LEN: usize = 16;
    let mut rest = file.get(FILE_HEADER_LEN..).unwrap_or_default();
    std::iter::from_fn(move || {
        let (header, behind) = rest.split_at_checked(RECORD_HEADER_LEN)?;
        let word =
            |at: usize| header[at..at + 4].iter().rev().fold(0, |n, it| n << 8 | u64::from(*it));
        let (bytes, after) = behind.split_at_checked(word(8) as usize)?;
        rest = after;
        Some((Time(word(0) * 1_000_000_000 + word(4) * 1000), bytes))
    })
}
