//! Records for the tests: made by the meter, from frames whose sums are known without it.
#![allow(dead_code, reason = "each test file uses a part")]

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::Path;

use weir_engine::meter::{Icrc, Meter, MeterLimits, Observation, Record};
use weir_engine::verdict::Side;
use weir_port::capture::CaptureReader;
use weir_store::sink::{Interfaces, Item};
use weir_wire::frame::{Frame, Meta, Time};
use weir_wire::parse::parse_frame;

/// Source, destination, source port, destination port, protocol.
pub(crate) type Tuple = (IpAddr, IpAddr, u16, u16, u8);

/// Records, packets, bytes of the network layer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Sum {
    pub(crate) records: u64,
    pub(crate) packets: u64,
    pub(crate) octets: u64,
}

pub(crate) type Sums = BTreeMap<Tuple, Sum>;

pub(crate) const INTERFACES: Interfaces = Interfaces { host: 3, wire: 4 };

/// Adds a record to the sums.
pub(crate) fn add(sums: &mut Sums, tuple: Tuple, packets: u64, octets: u64) {
    let sum = sums.entry(tuple).or_default();
    sum.records += 1;
    sum.packets += packets;
    sum.octets += octets;
}

/// `count` flows, each of both directions (every seventh of one), of IPv4 and, if `ipv6`, every
/// third of IPv6, and what a collector must find: one record a direction.
pub(crate) fn flows(count: u32, ipv6: bool, start: Time) -> (Vec<Item>, Sums) {
    let mut meter = Meter::new(MeterLimits::for_captures(), 1);
    let mut sums = Sums::new();
    for number in 0..count {
        let is_ipv6 = ipv6 && number % 3 == 0;
        let protocol = if number % 2 == 0 { 6 } else { 17 };
        let host = |network: u32| -> IpAddr {
            let low = network << 16 | number;
            match is_ipv6 {
                true => IpAddr::from((0x2001_0db8_u128 << 96 | u128::from(low)).to_be_bytes()),
                false => IpAddr::from((0x0a00_0000 | low).to_be_bytes()),
            }
        };
        let tuple = (host(1), host(2), 40_000 + (number % 20_000) as u16, 443, protocol);
        let back = (tuple.1, tuple.0, tuple.3, tuple.2, protocol);
        let directions = [(tuple, 1 + number % 5, Side::Host), (back, 1 + number % 3, Side::Wire)];
        let one_way = number % 7 == 0;
        for (way, packets, side) in directions.into_iter().take(2 - usize::from(one_way)) {
            let frame = frame(&way, 100 + number as usize % 1000);
            for step in 0..u64::from(packets) {
                let now = start.plus_ns(u64::from(number) * 1_000_000 + step * 10_000_000);
                observe(&mut meter, &frame, now, Some(side));
            }
            add(&mut sums, way, packets.into(), u64::from(packets) * (frame.len() as u64 - 14));
        }
    }
    (items(meter), sums)
}

/// What the meter holds, as items.
pub(crate) fn items(mut meter: Meter) -> Vec<Item> {
    let mut items = Vec::new();
    meter.flush(&mut |record| items.push(Item::of(record, INTERFACES)));
    items
}

/// The record in an item.
pub(crate) fn record(item: &Item) -> Record<'_> {
    match item {
        Item::Flow(flow, _) => Record::Flow(flow),
        Item::Conversation(conversation, _) => Record::Conversation(conversation),
    }
}

/// The records of a capture in `testdata/roce`.
pub(crate) fn capture(name: &str) -> Vec<Item> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata/roce");
    let mut reader = CaptureReader::open(root.join(name)).expect("the capture is there");
    let mut meter = Meter::new(MeterLimits::for_captures(), 1);
    let mut read = |frames: &mut [Frame<'_>]| {
        for frame in frames {
            observe(&mut meter, frame.bytes(), frame.meta.time, Some(Side::Host));
        }
    };
    while reader.next_batch(&mut read).expect("the capture is whole") > 0 {}
    items(meter)
}

pub(crate) fn observe(meter: &mut Meter, bytes: &[u8], now: Time, side: Option<Side>) {
    let mut buffer = bytes.to_vec();
    let (len, original_len) = (buffer.len(), buffer.len() as u32);
    let meta = Meta { time: now, original_len, ..Meta::default() };
    let frame = Frame::new(&mut buffer, 0, len, meta);
    let parsed = parse_frame(&frame);
    let icrc = Icrc::Check;
    let (bytes, parsed) = (frame.bytes(), &parsed);
    meter.observe(&Observation { now, side, bytes, parsed, original_len, segments: 1, icrc });
}

/// An Ethernet frame of a 5-tuple with `payload` bytes.
pub(crate) fn frame(tuple: &Tuple, payload: usize) -> Vec<u8> {
    let (source, destination, source_port, destination_port, protocol) = *tuple;
    let mut transport = [source_port.to_be_bytes(), destination_port.to_be_bytes()].concat();
    match protocol {
        6 => {
            transport.extend([0, 0, 0, 1, 0, 0, 0, 2, 0x50, 0x18, 0x10, 0, 0, 0, 0, 0]);
        }
        _ => {
            transport.extend((8 + payload as u16).to_be_bytes());
            transport.extend([0, 0]);
        }
    }
    transport.resize(transport.len() + payload, 0x55);
    let length = transport.len() as u16;
    let mut out = vec![2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1];
    match (source, destination) {
        (IpAddr::V4(source), IpAddr::V4(destination)) => {
            out.extend([8, 0, 0x45, 0]);
            out.extend((20 + length).to_be_bytes());
            out.extend([0, 0, 0x40, 0, 64, protocol, 0, 0]);
            out.extend(source.octets());
            out.extend(destination.octets());
        }
        (IpAddr::V6(source), IpAddr::V6(destination)) => {
            out.extend([0x86, 0xdd, 0x60, 0, 0, 0]);
            out.extend(length.to_be_bytes());
            out.extend([protocol, 64]);
            out.extend(source.octets());
            out.extend(destination.octets());
        }
        _ => panic!("one family a flow"),
    }
    out.extend(transport);
    out
}
