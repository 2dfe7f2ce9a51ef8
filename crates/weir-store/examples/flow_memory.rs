//! What a million flows cost: bytes each, and how long the packet path stands still when all of
//! them end at once. Prints a JSON line a figure:
//!
//! `cargo run --release -p weir-store --example flow_memory -- [--quick]`
//!
//! The engine, its tables, and an exporter to a UDP port of this machine are those of a gateway.
//! Bytes are resident memory, as the kernel counts it.

#![expect(clippy::disallowed_methods, reason = "an example measures from outside")]

use std::hint::black_box;
use std::net::UdpSocket;
use std::time::Instant;

use rustix::time::{ClockId, clock_gettime};
use weir_engine::meter::{Meter, MeterLimits};
use weir_engine::pipeline::{Associations, Engine};
use weir_engine::policy::{Action, Policy};
use weir_engine::verdict::Side;
use weir_store::sink::{
    Collector, EncoderOptions, Endpoint, Exporter, Format, Interfaces, RecordSender,
};
use weir_wire::frame::{Frame, Meta, Time};

const FLOWS: usize = 1_000_000;
const QUICK_FLOWS: usize = 20_000;
const BATCH: usize = 64;
const START: Time = Time(1_700_000_000_000_000_000);
/// Past the idle timeout of every flow.
const LATER_NS: u64 = 100_000_000_000;

fn main() {
    let is_quick = std::env::args().any(|argument| argument == "--quick");
    let count = if is_quick { QUICK_FLOWS } else { FLOWS };
    let collector = UdpSocket::bind("127.0.0.1:0").expect("a UDP port");
    let address = collector.local_addr().expect("its address").to_string();
    let options = EncoderOptions::datagrams(Format::Ipfix);
    let collectors = [Collector { endpoint: Endpoint::Udp(address), options, spool: None }];
    let exporter = Exporter::start(&collectors, START).expect("an exporter");
    let sender = exporter.sender(Interfaces::default());
    let (flows, flow_spike) = measure(count, 1, &sender, tuple_frame);
    print("million_flows_bytes_each", flows, "bytes", "a 5-tuple; want at most 400", count);
    let (pairs, pair_spike) = measure(count, 2, &sender, queue_pair_frame);
    let what = "a queue-pair conversation, both directions; want at most 1024";
    print("million_flows_bytes_each_qp", pairs, "bytes", what, count);
    let spike = flow_spike.ending.own_us.max(pair_spike.ending.own_us);
    let what = format!(
        "the longest turn of ending flows that all end at once, records handed to an exporter, in \
         time of its thread: 5-tuples {}; conversations {}; want at most 1000. As many turns of \
         bare arithmetic, one after each and as long as most are, show what the machine adds",
        flow_spike.words(),
        pair_spike.words()
    );
    print("expiry_spike_us", spike, "us", &what, count);
}

/// The longest turn of a kind, in microseconds.
#[derive(Clone, Copy, Default)]
struct Spike {
    /// Of this thread's own time.
    own_us: f64,
    /// By the clock.
    clock_us: f64,
    /// Turns of more than a millisecond of their own.
    over: usize,
    turns: usize,
}

impl Spike {
    /// Takes in what `turn` takes, and returns what it does.
    fn measure<T>(&mut self, turn: impl FnOnce() -> T) -> T {
        let (begin, own_begin) = (Instant::now(), own_us());
        let done = turn();
        let own = own_us() - own_begin;
        self.own_us = self.own_us.max(own);
        self.clock_us = self.clock_us.max(begin.elapsed().as_secs_f64() * 1e6);
        self.over += usize::from(own > 1000.0);
        self.turns += 1;
        done
    }
}

/// Turns of ending flows, and of arithmetic beside them.
#[derive(Clone, Copy, Default)]
struct Spikes {
    ending: Spike,
    arithmetic: Spike,
}

impl Spikes {
    fn words(&self) -> String {
        let Self { ending, arithmetic } = self;
        format!(
            "{:.0} ({} of {} turns above 1000; by the clock {:.0}), arithmetic {:.0} ({} above; by \
             the clock {:.0})",
            ending.own_us,
            ending.over,
            ending.turns,
            ending.clock_us,
            arithmetic.own_us,
            arithmetic.over,
            arithmetic.clock_us
        )
    }
}

/// Bytes each, and the longest turn.
fn measure(
    count: usize,
    packets_each: usize,
    sender: &RecordSender,
    frame: fn(usize, usize) -> Vec<u8>,
) -> (f64, Spikes) {
    let before = resident_bytes();
    let limits =
        MeterLimits { flows_max: count, conversations_max: count, ..MeterLimits::default() };
    let mut policy = Policy::watch(1, 9000);
    policy.default = Action::Clear;
    policy.check_icrc = false;
    let mut engine =
        Engine::new(policy, Associations::default(), Meter::new(limits, 7)).expect("an engine");
    let mut buffers = vec![vec![0u8; 512]; BATCH];
    for first in (0..count * packets_each).step_by(BATCH) {
        let now = START.plus_ns(first as u64 * 100);
        let mut frames: Vec<Frame<'_>> = buffers
            .iter_mut()
            .enumerate()
            .map(|(index, buffer)| {
                let number = (first + index).min(count * packets_each - 1);
                let bytes = frame(number / packets_each, number % packets_each);
                buffer[128..128 + bytes.len()].copy_from_slice(&bytes);
                let meta = Meta { time: now, original_len: bytes.len() as u32, ..Meta::default() };
                Frame::new(buffer, 128, 128 + bytes.len(), meta)
            })
            .collect();
        black_box(engine.process(now, Side::Host, &mut frames));
    }
    let meter = engine.meter();
    let held = meter.flows().len().max(meter.conversations().len());
    // The index probes no further than its bound, which may cost a few their places.
    assert!(held > count - count / 10_000, "{held}: {:?}", meter.totals());
    let each = (resident_bytes() - before) / held as f64;
    let later = START.plus_ns(LATER_NS);
    let mut spikes = Spikes::default();
    loop {
        let is_left =
            spikes.ending.measure(|| engine.expire(later, &mut |record| sender.send(record)));
        spikes.arithmetic.measure(arithmetic);
        if !is_left {
            return (each, spikes);
        }
    }
}

/// About as long as most turns are: some tens of microseconds, in registers alone.
fn arithmetic() {
    let mut number = black_box(1u64);
    for _ in 0..20_000 {
        number = number.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(7);
    }
    black_box(number);
}

/// Time that this thread has had a processor.
fn own_us() -> f64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec as f64 * 1e6 + time.tv_nsec as f64 / 1e3
}

/// UDP from one of many ports and addresses.
fn tuple_frame(number: usize, _: usize) -> Vec<u8> {
    let mut frame = vec![2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 8, 0, 0x45, 0, 0, 60];
    frame.extend([0, 0, 0x40, 0, 64, 17, 0, 0, 10, 1]);
    frame.extend(((number >> 12) as u16).to_be_bytes());
    frame.extend([10, 0, 0, 2]);
    frame.extend((1024 + (number & 0xfff) as u16).to_be_bytes());
    frame.extend([1, 0xbb, 0, 40, 0, 0]);
    frame.resize(14 + 60, 0x5a);
    frame
}

/// RoCE v1 (no 5-tuple beside it): a request of a queue pair of its own, or the answer to it.
fn queue_pair_frame(number: usize, packet: usize) -> Vec<u8> {
    const RC_SEND_ONLY: u8 = 0x04;
    const RC_ACKNOWLEDGE: u8 = 0x11;
    let is_answer = packet == 1;
    let (from, to) = if is_answer { (2, 1) } else { (1, 2) };
    let mut frame = vec![2, 0, 0, 0, 0, to, 2, 0, 0, 0, 0, from, 0x89, 0x15];
    let len: u16 = if is_answer { 12 + 4 + 4 } else { 12 + 64 + 4 };
    frame.extend([0x60, 0, 0, 0]);
    frame.extend(len.to_be_bytes());
    frame.extend([0x1b, 64]);
    let gid = |host: u8| [0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, host];
    frame.extend([gid(from), gid(to)].concat());
    let opcode = if is_answer { RC_ACKNOWLEDGE } else { RC_SEND_ONLY };
    let queue_pair = number as u32 + if is_answer { 0x80_0000 } else { 0x10 };
    frame.extend([opcode, 0x40, 0xff, 0xff]);
    frame.extend((queue_pair & 0xff_ffff).to_be_bytes());
    frame.extend((number as u32 & 0xff_ffff | 1 << 31).to_be_bytes());
    frame.resize(14 + 40 + usize::from(len), 0);
    frame
}

fn resident_bytes() -> f64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|it| it.strip_prefix("VmRSS:"));
    let kib = line.and_then(|it| it.trim().trim_end_matches(" kB").parse::<f64>().ok());
    kib.unwrap_or(f64::NAN) * 1024.0
}

fn print(name: &str, value: f64, unit: &str, what: &str, count: usize) {
    println!(
        "{{\"name\":\"{name}\",\"value\":{value:.1},\"unit\":\"{unit}\",\"peer\":\"\",\
         \"peer_value\":null,\"ratio\":null,\"command\":\"make bench ONLY={name}\",\
         \"note\":\"{count} at once, {what}\"}}"
    );
}
