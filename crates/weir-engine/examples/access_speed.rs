//! What lines of access cost, in memory, one core: 10,000 lines and 100,000 queue pairs before an
//! engine that forwards, beside the same engine without a policy; connections a second; memory.
//!
//! Prints a JSON line a figure: `cargo run --release -p weir-engine --example access_speed`.

#![allow(clippy::disallowed_methods, reason = "only the engine itself does without these")]

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::time::Instant;

use weir_engine::access::{
    AccessAction, AccessPolicy, AccessState, Line, Operation, Operations, Party, Terms,
};
use weir_engine::meter::{Meter, MeterLimits};
use weir_engine::pipeline::{Associations, Engine};
use weir_engine::policy::{Policy, Prefix};
use weir_engine::verdict::{Side, Verdict};
use weir_wire::checksum;
use weir_wire::cm::{ConnectReply, ConnectRequest, MESSAGE_LEN, attribute};
use weir_wire::frame::{Frame, Link, Meta, Offload, Time};
use weir_wire::icrc;
use weir_wire::mad::{GENERAL_SERVICES_QUEUE_KEY, MAD_LEN, MadHeader, class};
use weir_wire::parse::parse;
use zerocopy::FromBytes;

const LINES: usize = 10_000;
const QUEUE_PAIRS: u32 = 100_000;
const BATCH: usize = 64;
/// Packets of a round.
const PACKETS: usize = 400_000;
const ROUNDS: usize = 15;
const CONNECTIONS: u32 = 100_000;
const START: u64 = 1_700_000_000_000_000_000;

fn main() {
    let quick = std::env::args().any(|argument| argument == "--quick");
    let (packets, rounds) = if quick { (PACKETS / 20, 1) } else { (PACKETS, ROUNDS) };
    let queue_pairs = if quick { QUEUE_PAIRS / 50 } else { QUEUE_PAIRS };
    for payload in [1024, 4096] {
        cost(payload, queue_pairs, packets, rounds);
    }
    connections(if quick { CONNECTIONS / 50 } else { CONNECTIONS }, rounds);
}

/// Packets a second with the lines and without, and how much longer a packet takes.
fn cost(payload: usize, queue_pairs: u32, packets: usize, rounds: usize) {
    // The lines' own memory is not a queue pair's.
    let lines = policy();
    let bytes_before = resident_bytes();
    let mut without = engine(None, queue_pairs);
    warm(&mut without, payload, queue_pairs);
    let bytes_of_meter = resident_bytes() - bytes_before;
    let mut with = engine(Some(lines), queue_pairs);
    warm(&mut with, payload, queue_pairs);
    let bytes_of_both = resident_bytes() - bytes_before - bytes_of_meter;
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    for round in 0..rounds as u32 {
        theirs.push(rate_ns(&mut without, payload, queue_pairs, packets, round));
        ours.push(rate_ns(&mut with, payload, queue_pairs, packets, round));
    }
    let shares = ours.iter().zip(&theirs).map(|(ours, theirs)| theirs / ours).collect();
    let added_us =
        ours.iter().zip(&theirs).map(|(ours, theirs)| (ours - theirs) / 1000.0).collect();
    let (ours, theirs) = (median(ours), median(theirs));
    let what = format!("{LINES} lines, {queue_pairs} queue pairs in turn, RC WRITE Only");
    let note = format!(
        "{what} of {payload} bytes, ICRC checked, in memory, one core: {:.2} against {:.2} Mpps",
        1000.0 / ours,
        1000.0 / theirs
    );
    print(&format!("access_cost_share_{payload}"), median(shares), "share", &note);
    print(&format!("access_added_latency_us_{payload}"), median(added_us), "us", &note);
    if payload == 1024 {
        let access = bytes_of_both.saturating_sub(bytes_of_meter) as f64;
        let note = format!(
            "{what}, access_state learn, both ends' queue pairs counted: resident memory above \
             that of the meter; an owner and a direction are {} bytes by the types",
            weir_engine::access::BYTES_PER_QUEUE_PAIR
        );
        print("access_bytes_per_qp", access / f64::from(2 * queue_pairs), "bytes", &note);
    }
}

/// Connections that managers agree, each REQ and REP.
fn connections(count: u32, rounds: usize) {
    let mut rates = Vec::new();
    for _ in 0..rounds.min(5) {
        let mut engine = engine(Some(policy().with_state(AccessState::Strict)), count);
        let mut exchanges: Vec<[Vec<u8>; 2]> = (0..count).map(exchange).collect();
        let start = Instant::now();
        for (number, [request, reply]) in exchanges.iter_mut().enumerate() {
            let now = Time(START + number as u64 * 20_000);
            pass(&mut engine, now, Side::Wire, std::slice::from_mut(request));
            pass(&mut engine, now, Side::Host, std::slice::from_mut(reply));
        }
        rates.push(f64::from(count) / start.elapsed().as_secs_f64());
        let agreed = engine.access().unwrap().state_counters().connections;
        assert_eq!(agreed, u64::from(count), "all are agreed");
    }
    let note = format!("REQ and REP of {count} connections, {LINES} lines, strict, one core");
    print("access_setup_per_s", median(rates), "connections/s", &note);
}

fn print(name: &str, value: f64, unit: &str, note: &str) {
    println!(
        "{{\"name\":\"{name}\",\"value\":{value:.3},\"unit\":\"{unit}\",\"peer\":\"\",\
         \"peer_value\":null,\"ratio\":null,\"command\":\"make bench ONLY={name}\",\
         \"note\":\"{note}\"}}"
    );
}

/// Lines about hosts of 10.1.0.0/16 that write to hosts of 10.2.0.0/16; those at work come last.
fn policy() -> AccessPolicy {
    let line = |number: usize| {
        let number = number as u32;
        let prefix =
            |base: u32, len| Prefix::new(IpAddr::V4(Ipv4Addr::from(base + number % 65_536)), len);
        let is_last = number as usize == LINES - 1;
        let [from, to] = match is_last {
            true => [Party::new(vec![prefix(0x0a00_0000 - number % 65_536, 8)]), Party::any()],
            false => [0x0b00_0000, 0x0b80_0000].map(|base| Party::new(vec![prefix(base, 32)])),
        };
        Line {
            name: format!("line-{number}").into(),
            from,
            to,
            operations: if is_last { Operations::ALL } else { Operations::of([Operation::Write]) },
            terms: Terms::default(),
            limits: None,
            action: if is_last { AccessAction::Allow } else { AccessAction::Deny },
            log: false,
        }
    };
    let lines = (0..LINES).map(line).collect();
    AccessPolicy::new(lines, AccessAction::Deny).with_state(AccessState::Learn)
}

fn engine(access: Option<AccessPolicy>, queue_pairs: u32) -> Engine {
    let mut policy = Policy::watch(1, 9000);
    policy.access = access.map(Arc::new);
    let conversations_max = queue_pairs as usize;
    let limits = MeterLimits { conversations_max, ..MeterLimits::default() };
    Engine::new(policy, Associations::default(), Meter::new(limits, 7)).unwrap()
}

/// Makes every queue pair known, and its partner by an answer.
fn warm(engine: &mut Engine, payload: usize, queue_pairs: u32) {
    for number in 0..queue_pairs {
        let now = Time(START + u64::from(number) * 1000);
        pass(engine, now, Side::Wire, &mut [write(number, number, payload)]);
        pass(engine, now, Side::Host, &mut [acknowledge(number)]);
    }
}

/// Nanoseconds a packet.
fn rate_ns(
    engine: &mut Engine,
    payload: usize,
    queue_pairs: u32,
    packets: usize,
    round: u32,
) -> f64 {
    let mut batch: Vec<Vec<u8>> = (0..BATCH as u32).map(|it| write(it, 0, payload)).collect();
    let (mut spent, mut number) = (0, 0u32);
    for turn in 0..(packets / BATCH) as u32 {
        for packet in &mut batch {
            // Neighbours in time are no neighbours in the tables.
            number = number.wrapping_add(7919);
            let one = number % queue_pairs;
            renumber(packet, one, one + 1 + round);
        }
        let now = Time(START + 1_000_000_000 + u64::from(round * 1000 + turn) * 1000);
        spent += pass(engine, now, Side::Wire, &mut batch);
    }
    spent as f64 / (packets / BATCH * BATCH) as f64
}

/// Nanoseconds that the packets took, all of which go on.
fn pass(engine: &mut Engine, now: Time, side: Side, packets: &mut [Vec<u8>]) -> u64 {
    let mut frames: Vec<Frame<'_>> = packets
        .iter_mut()
        .map(|bytes| {
            let (len, offload) = (bytes.len(), Offload::default());
            let meta = Meta { time: now, original_len: len as u32, link: Link::Ethernet, offload };
            Frame::new(bytes, 0, len, meta)
        })
        .collect();
    let start = Instant::now();
    let output = engine.process(now, side, &mut frames);
    let spent = start.elapsed().as_nanos() as u64;
    assert!(output.verdicts.iter().all(|it| *it == Verdict::Forward), "{:?}", output.verdicts);
    spent
}

/// An RC WRITE Only from 10.1.0.0/16 to queue pair `number` of 10.2.0.1.
fn write(number: u32, psn: u32, payload: usize) -> Vec<u8> {
    let mut frame = frame(12 + 16 + payload + 4, 0);
    let bth = frame.len() - (12 + 16 + payload + 4);
    frame[bth] = 10;
    renumber(&mut frame, number, psn);
    frame
}

/// The answer to the first of them.
fn acknowledge(number: u32) -> Vec<u8> {
    let mut frame = frame(12 + 4 + 4, 1);
    let bth = frame.len() - (12 + 4 + 4);
    frame[bth] = 17;
    renumber(&mut frame, 0x10_0000 + number, number);
    frame[bth + 12..bth + 16].fill(0);
    frame
}

/// An Ethernet frame with IPv4, UDP to port 4791 and so many bytes behind.
fn frame(behind: usize, host: u8) -> Vec<u8> {
    let udp_len = 8 + behind;
    let mut frame = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 8, 0, 0x45, 2];
    frame.extend((20 + udp_len as u16).to_be_bytes());
    frame.extend([0, 0, 0x40, 0, 64, 17, 0, 0]);
    let ends = [[10, 1, 0, 1], [10, 2, 0, 1]];
    frame.extend(ends[usize::from(host)]);
    frame.extend(ends[usize::from(host ^ 1)]);
    let sum = checksum::ipv4_header(&frame[14..34]);
    frame[24..26].copy_from_slice(&sum.to_be_bytes());
    frame.extend(50_001u16.to_be_bytes());
    frame.extend(4791u16.to_be_bytes());
    frame.extend((udp_len as u16).to_be_bytes());
    frame.extend([0, 0]);
    frame.resize(frame.len() + behind, 0x5a);
    let bth = frame.len() - behind;
    frame[bth..bth + 12].copy_from_slice(&[0, 0x40, 0xff, 0xff, 0, 0, 0, 0, 0, 0, 0, 0]);
    frame
}

/// Sends it to another queue pair, under another number. The ICRC stays wrong: that costs the same.
fn renumber(frame: &mut [u8], number: u32, psn: u32) {
    let bth = 14 + 20 + 8;
    frame[bth + 4..bth + 8].copy_from_slice(&(0x100 + number).to_be_bytes());
    frame[bth + 8..bth + 12].copy_from_slice(&(psn & 0xff_ffff).to_be_bytes());
}

/// REQ from 10.1.0.1 and REP from 10.2.0.1 of connection `number`.
fn exchange(number: u32) -> [Vec<u8>; 2] {
    let mut body = [0; MESSAGE_LEN];
    let request = ConnectRequest::mut_from_bytes(&mut body).unwrap();
    request.local_comm_id.set(number);
    request.service_id.set(0x0106_4853);
    request.local_qpn_and_resources.set((0x100 + number) << 8);
    request.starting_psn_and_retry.set(500 << 8);
    request.path_mtu_and_rnr = 3 << 4;
    let first = message(0, attribute::REQ, &body);
    let mut body = [0; MESSAGE_LEN];
    let reply = ConnectReply::mut_from_bytes(&mut body).unwrap();
    reply.local_comm_id.set(!number);
    reply.remote_comm_id.set(number);
    reply.local_qpn.set((0x100 + number) << 8);
    reply.starting_psn.set(100 << 8);
    [first, message(1, attribute::REP, &body)]
}

fn message(host: u8, attribute: u16, body: &[u8; MESSAGE_LEN]) -> Vec<u8> {
    let mut frame = frame(12 + 8 + MAD_LEN + 4, host);
    let bth = 14 + 20 + 8;
    frame[bth] = 100;
    frame[bth + 4..bth + 8].copy_from_slice(&1u32.to_be_bytes());
    frame[bth + 12..bth + 16].copy_from_slice(&GENERAL_SERVICES_QUEUE_KEY.to_be_bytes());
    frame[bth + 16..bth + 20].copy_from_slice(&1u32.to_be_bytes());
    let (header, rest) = MadHeader::mut_from_prefix(&mut frame[bth + 20..]).unwrap();
    (header.base_version, header.management_class, header.class_version) =
        (1, class::COMMUNICATION, 2);
    header.method = 3;
    header.status.set(0);
    header.class_specific.set(0);
    header.transaction_id.set(77);
    header.attribute_id.set(attribute);
    header.attribute_modifier.set(0);
    header.reserved.set(0);
    rest[..MESSAGE_LEN].copy_from_slice(body);
    let parsed = parse(&frame, Link::Ethernet, frame.len() as u32);
    assert!(icrc::write(&mut frame, &parsed));
    frame
}

/// This process's memory, by the kernel.
fn resident_bytes() -> u64 {
    let text = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages = text.split_whitespace().nth(1).and_then(|it| it.parse::<u64>().ok());
    pages.unwrap_or_default() * 4096
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}
