use std::sync::Arc;

use super::*;
use crate::rule::load::{LoadOptions, RuleSource};
use crate::rule::variables::Variables;
use crate::ruleset::RuleSet;

const MINUTE_NS: u64 = 60_000_000_000;
const SYN_ONLY: u8 = 2;
const DATA: u8 = 0x18;
const FIN_ACK: u8 = 0x11;

struct Bench {
    table: FlowTable,
    detector: Detector,
    alerts: Alerts,
}

impl Bench {
    fn new(flows: usize) -> Self {
        Self::with(Limits { flows, ..Limits::default() })
    }

    fn with(limits: Limits) -> Self {
        let text = "alert tcp any any -> any any (content:\"evil\"; sid:1;)\n\
                    drop tcp any any -> any any (content:\"worse\"; sid:2;)"
            .to_owned();
        let source = RuleSource { name: "test".into(), text };
        let loaded =
            RuleSet::load(&[source], &Variables::default(), &LoadOptions::default()).unwrap();
        let detector = Detector::new(Arc::new(loaded.rules), limits).unwrap();
        Self { table: FlowTable::new(limits), detector, alerts: Alerts::new(8) }
    }

    /// A segment of the client with this port; how many alerts there were.
    fn segment(&mut self, now: u64, port: u16, flags: u8, at: u32, payload: &[u8]) -> usize {
        self.from((false, port), now, flags, [at, 1], payload)
    }

    /// The same of the client or its server, with its number and what it acknowledges.
    fn from(
        &mut self,
        (is_server, port): (bool, u16),
        now: u64,
        flags: u8,
        numbers: [u32; 2],
        payload: &[u8],
    ) -> usize {
        let (mut ends, mut ports) = ([[10, 0, 0, 1], [10, 0, 0, 2]], [port, 80]);
        if is_server {
            ends.reverse();
            ports.reverse();
        }
        let mut frame = vec![0; 12];
        frame.extend([8, 0, 0x45, 0]);
        frame.extend((40 + payload.len() as u16).to_be_bytes());
        frame.extend([0, 0, 0, 0, 64, 6, 0, 0]);
        frame.extend(ends.concat());
        frame.extend(ports.map(u16::to_be_bytes).concat());
        frame.extend(numbers.map(u32::to_be_bytes).concat());
        frame.extend([0x50, flags, 0x20, 0, 0, 0, 0, 0]);
        frame.extend(payload);
        let parsed = parse(&frame, Link::Ethernet, frame.len() as u32);
        let packet = Packet {
            bytes: &frame,
            parsed: &parsed,
            decoded: None,
            is_rebuilt: false,
            is_verified: false,
            icrc: None,
            port: None,
        };
        let Self { table, detector, alerts } = self;
        table.inspect(detector, Time(now), &packet, alerts);
        alerts.drain().count()
    }
}

#[test]
fn a_stream_that_pauses_for_minutes_is_not_forgotten() {
    let mut bench = Bench::new(16);
    bench.segment(1, 1000, SYN_ONLY, 9, b"");
    assert_eq!(bench.segment(2, 1000, DATA, 10, b"ev"), 0);
    assert_eq!(bench.segment(9 * MINUTE_NS, 1000, DATA, 12, b"il"), 1);
}

#[test]
fn flows_that_hold_too_much_memory_are_forgotten_the_longest_silent_first() {
    const MAX: usize = 1 << 20;
    let mut bench = Bench::with(Limits { memory: MAX, ..Limits::default() });
    for port in 0..200 {
        bench.segment(1, port, SYN_ONLY, 9, b"");
        for at in 0..20 {
            // Behind a byte that does not come.
            bench.segment(2, port, DATA, 11 + at * 1000, &[b'x'; 1000]);
        }
    }
    assert!((MAX * 3 / 4..=MAX).contains(&bench.detector.memory()));
    assert!(bench.table.evicted() > 100 && bench.table.len() > 30);
    // The last one is there, and goes on.
    assert_eq!(bench.segment(3, 199, DATA, 20_011, b"evil"), 1);
    bench.table.flush(&mut bench.detector);
    assert_eq!((bench.detector.memory(), bench.detector.flows()), (0, 0));
}

#[test]
fn a_flow_ends_after_ten_minutes_of_silence() {
    let mut bench = Bench::new(16);
    bench.segment(1, 1000, DATA, 10, b"x");
    bench.table.expire(Time(11 * MINUTE_NS), 8, &mut bench.detector);
    assert_eq!((bench.table.len(), bench.detector.flows()), (0, 0));
}

#[test]
fn a_new_connection_on_the_same_ports_begins_anew() {
    let mut bench = Bench::new(16);
    bench.segment(1, 1000, SYN_ONLY, 9, b"");
    assert_eq!(bench.segment(2, 1000, DATA, 10, b"ev"), 0);
    bench.segment(3, 1000, FIN_ACK, 12, b"");
    bench.segment(4, 1000, SYN_ONLY, 11, b"");
    assert_eq!(bench.segment(5, 1000, DATA, 12, b"il"), 0);
    assert_eq!((bench.table.len(), bench.detector.flows()), (1, 1));
}

#[test]
fn an_end_that_no_receiver_takes_is_none() {
    let mut bench = Bench::new(16);
    bench.segment(1, 1000, SYN_ONLY, 9, b"");
    assert_eq!(bench.segment(2, 1000, DATA, 10, b"ev"), 0);
    // Checksums in these segments are 0, which is wrong.
    bench.detector.check_segments(true);
    bench.segment(3, 1000, FIN_ACK, 12, b"");
    bench.detector.check_segments(false);
    bench.segment(4, 1000, SYN_ONLY, 11, b"");
    assert_eq!(bench.segment(5, 1000, DATA, 12, b"il"), 1);
}

#[test]
fn at_the_bound_the_flow_that_was_silent_longest_leaves() {
    let mut bench = Bench::new(2);
    bench.segment(1, 1, SYN_ONLY, 9, b"");
    bench.segment(2, 2, SYN_ONLY, 9, b"");
    bench.segment(3, 1, DATA, 10, b"ev");
    bench.segment(4, 3, SYN_ONLY, 9, b"");
    assert_eq!((bench.table.evicted(), bench.detector.flows()), (1, 2));
    assert_eq!(bench.segment(5, 1, DATA, 12, b"il"), 1, "it spoke after the second");
}

/// The rest of what a rule dropped would pass as a connection whose beginning was not seen.
#[test]
fn beginnings_do_not_have_others_leave() {
    let mut bench = Bench::new(8);
    bench.segment(1, 1, SYN_ONLY, 9, b"");
    assert_eq!(bench.segment(2, 1, DATA, 10, b"worse"), 1);
    const ACK_ONLY: u8 = 0x10;
    bench.from((false, 2), 3, SYN_ONLY, [9, 0], b"");
    bench.from((true, 2), 3, SYN_ONLY | ACK_ONLY, [99, 10], b"");
    bench.from((false, 2), 3, ACK_ONLY, [10, 100], b"");
    assert_eq!(bench.from((false, 2), 4, DATA, [10, 100], b"ev"), 0);
    for port in 100..1000 {
        bench.segment(5, port, SYN_ONLY, 9, b"");
    }
    assert_eq!((bench.table.evicted(), bench.table.len()), (894, 8));
    assert_eq!(bench.from((false, 2), 6, DATA, [12, 100], b"il"), 1);
    let is_dropped =
        |bench: &Bench| bench.table.entries.values().any(|it| bench.detector.is_dropped(it.slot));
    assert!(is_dropped(&bench));
    // Where all others matter as much the first leaves.
    for port in 2000..2020 {
        connect(&mut bench, 7, port);
        bench.segment(7, port, SYN_ONLY, 9, b"");
        bench.segment(7, port, DATA, 10, b"worse");
    }
    assert_eq!(bench.table.len(), 8);
}

/// A connection that carries 20,000 bytes and ends, as far as its last acknowledgment.
fn connect(bench: &mut Bench, now: u64, port: u16) {
    const ACK_ONLY: u8 = 0x10;
    let (client, server) = ((false, port), (true, port));
    bench.from(client, now, SYN_ONLY, [9, 0], b"");
    bench.from(server, now, SYN_ONLY | ACK_ONLY, [99, 10], b"");
    bench.from(client, now, ACK_ONLY, [10, 100], b"");
    bench.from(server, now, DATA, [100, 10], &[b'x'; 20_000]);
    bench.from(client, now, FIN_ACK, [10, 20_100], b"");
    bench.from(server, now, FIN_ACK, [20_100, 11], b"");
    bench.from(client, now, ACK_ONLY, [11, 20_101], b"");
}

#[test]
fn connections_that_are_over_leave_first_and_hold_little() {
    let mut bench = Bench::new(3);
    bench.segment(1, 1, SYN_ONLY, 9, b"");
    assert_eq!(bench.segment(2, 1, DATA, 10, b"ev"), 0);
    for port in 2..100 {
        connect(&mut bench, 3, port);
    }
    assert_eq!((bench.table.evicted(), bench.table.len()), (0, 3));
    assert!(bench.detector.memory() < 16 * 1024, "{}", bench.detector.memory());
    assert_eq!(bench.segment(4, 1, DATA, 12, b"il"), 1, "it is not over");
    // Those that begin again are not over; nor is what only one end says.
    connect(&mut bench, 5, 99);
    bench.segment(6, 99, SYN_ONLY, 50_000, b"");
    bench.segment(6, 98, SYN_ONLY, 9, b"");
    bench.segment(6, 98, FIN_ACK, 10, b"");
    bench.table.expire(Time(2 * MINUTE_NS), 9, &mut bench.detector);
    assert_eq!(bench.table.len(), 3);
    connect(&mut bench, 2 * MINUTE_NS, 99);
    bench.table.expire(Time(4 * MINUTE_NS), 9, &mut bench.detector);
    assert_eq!(bench.table.len(), 2);
}

#[test]
fn a_connection_that_went_past_the_rules_is_over_a_minute_after_its_ends() {
    let mut bench =
        Bench::with(Limits { flows: 4, bypass_bytes: Some(10_000), ..Limits::default() });
    connect(&mut bench, 1, 1000);
    connect(&mut bench, 1, 1001);
    assert_eq!((bench.table.len(), bench.detector.counters().bypassed), (2, 8));
    // Ends that nobody took: it goes on.
    bench.from((true, 1001), MINUTE_NS / 2, DATA, [20_101, 11], b"more");
    bench.table.expire(Time(2 * MINUTE_NS), 9, &mut bench.detector);
    assert_eq!(bench.table.len(), 1);
    // Its next packet may be the last.
    bench.from((true, 1001), 2 * MINUTE_NS, DATA, [20_105, 11], b"more");
    bench.table.expire(Time(4 * MINUTE_NS), 9, &mut bench.detector);
    assert_eq!(bench.table.len(), 0);
}

#[test]
fn who_the_server_of_an_older_connection_is_it_says_itself() {
    let answer = b"HTTP/1.1 200 OK\r\n\r\n";
    let mut bench = Bench::with(Limits { flows: 4, midstream: true, ..Limits::default() });
    bench.table.keep_records();
    bench.from((true, 1000), 1, DATA, [20, 10], answer);
    // Heard of before it says anything.
    bench.from((true, 1001), 2, 0x10, [20, 10], b"");
    bench.from((true, 1001), 3, DATA, [20, 10], answer);
    bench.from((false, 1001), 4, 0x10, [10, 40], b"");
    // A client, and what nobody knows.
    bench.from((false, 1002), 5, DATA, [20, 10], b"GET / HTTP/1.1\r\n\r\n");
    bench.from((true, 1003), 6, DATA, [20, 10], b"\0\0\0\0");
    bench.table.flush(&mut bench.detector);
    let ended = bench.table.take_ended();
    let told: Vec<_> = ended
        .iter()
        .map(|it| (it.view.initiator.port, it.view.responder.port, it.view.packets))
        .collect();
    assert_eq!(
        told,
        [(1000, 80, [0, 1]), (1001, 80, [1, 2]), (1002, 80, [1, 0]), (80, 1003, [1, 0])]
    );
}

#[test]
fn a_connection_that_paused_has_its_client_still() {
    let mut bench = Bench::with(Limits { flows: 4, sees_all: true, ..Limits::default() });
    bench.table.keep_records();
    // Its ports are those of a server.
    bench.from((true, 40_000), 1, SYN_ONLY, [20, 0], b"");
    bench.from((true, 40_000), 11 * MINUTE_NS, DATA, [21, 10], b"more");
    // Of this one nobody saw the beginning.
    bench.from((true, 40_001), 11 * MINUTE_NS, DATA, [21, 10], b"more");
    bench.table.flush(&mut bench.detector);
    let clients: Vec<_> =
        bench.table.take_ended().iter().map(|it| it.view.initiator.port).collect();
    assert_eq!(clients, [80, 80, 40_001]);
}
