//! Connections that were looked at for long go past the rules; those that follow them between the
//! same ends do not.

use std::sync::Arc;

use weir_detect::alert::End;
use weir_detect::{Alerts, Decision, Detector, FlowTable, Limits, Packet, RuleSet};
use weir_wire::frame::{Link, Time};
use weir_wire::parse::parse;

use crate::bench::{CLIENT, SERVER, load, tcp};

const FIN_ACK: u8 = 0x11;
const SYN: u8 = 2;
const RST: u8 = 4;
const SYN_ACK: u8 = 0x12;
const ACK: u8 = 0x10;
const DATA: u8 = 0x18;
const EVIL: &str = "drop tcp any any -> any any (flow:established; content:\"evil\"; sid:1;)";

/// Who sends.
#[derive(Clone, Copy, Debug)]
enum Sender {
    Client,
    Server,
}
use Sender::{Client, Server};

/// Who sends, flags, numbers and payload.
type Sent = (Sender, u8, [u32; 2], &'static [u8]);

struct Bench {
    table: FlowTable,
    detector: Detector,
    alerts: Alerts,
    now: Time,
}

impl Bench {
    fn new(rules: &str) -> Self {
        let limits = Limits {
            flows: 16,
            bypass_bytes: Some(10_000),
            sees_all: true,
            refuses_gaps: true,
            refuses_conflicts: true,
            ..Limits::default()
        };
        let detector = Detector::new(rules_of(rules), limits).unwrap();
        Self { table: FlowTable::new(limits), detector, alerts: Alerts::new(64), now: Time(1) }
    }

    /// Whether a segment with these numbers passes.
    fn send(&mut self, from: Sender, flags: u8, numbers: [u32; 2], payload: &[u8]) -> bool {
        let ends = [(CLIENT, 40_000), (SERVER, 80)];
        let [source, destination] = match from {
            Client => ends,
            Server => [ends[1], ends[0]],
        };
        let frame = tcp(source, destination, flags, numbers[0], numbers[1], payload);
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
        self.now = self.now.plus_ns(1000);
        let Self { table, detector, alerts, now } = self;
        table.inspect(detector, *now, &packet, alerts) == Decision::Pass
    }

    fn connect(&mut self, [client, server]: [u32; 2]) {
        assert!(self.send(Client, SYN, [client, 0], b""));
        assert!(self.send(Server, SYN_ACK, [server, client + 1], b""));
        assert!(self.send(Client, ACK, [client + 1, server + 1], b""));
    }

    /// A connection of which so much came that nobody looks any more.
    fn pass_by(&mut self) {
        self.connect([999, 4999]);
        for number in 0..12 {
            assert!(self.send(Server, DATA, [5000 + number * 1000, 1000], &[b'x'; 1000]));
            assert!(self.send(Client, ACK, [1000, 6000 + number * 1000], b""));
        }
        assert!(self.detector.is_settled());
        assert!(self.send(Client, DATA, [1000, 17_000], b"evil"), "nobody looks any more");
        assert!(self.send(Server, ACK, [17_000, 1004], b""));
    }
}

fn rules_of(text: &str) -> Arc<RuleSet> {
    Arc::new(load(text).0)
}

#[test]
fn a_connection_behind_one_that_went_past_is_looked_at_however_that_ended() {
    let endings: [&[(Sender, u8, [u32; 2])]; 4] = [
        // Unseen.
        &[],
        &[(Client, RST | ACK, [1004, 17_000])],
        &[(Server, RST, [17_000, 0])],
        &[
            (Client, FIN_ACK, [1004, 17_000]),
            (Server, FIN_ACK, [17_000, 1005]),
            (Client, ACK, [1005, 17_001]),
        ],
    ];
    for (number, ending) in endings.into_iter().enumerate() {
        let mut bench = Bench::new(EVIL);
        bench.pass_by();
        assert!(bench.table.take_returned().is_empty());
        for (from, flags, numbers) in ending {
            assert!(bench.send(*from, *flags, *numbers, b""));
        }
        bench.connect([70_000, 90_000]);
        assert!(!bench.detector.is_settled(), "{number}");
        let port = |port: u16| move |it: &End| it.port == port;
        let returned = bench.table.take_returned();
        let is_of = |it: &[End; 2]| it.iter().any(port(80)) && it.iter().any(port(40_000));
        assert!(returned.len() == 1 && is_of(&returned[0]), "{number}: {returned:?}");
        assert!(bench.send(Client, DATA, [70_001, 90_001], b"ev"));
        assert!(!bench.send(Client, DATA, [70_003, 90_001], b"il"), "{number}");
    }
}

#[test]
fn who_resets_a_connection_that_goes_past_or_begins_another_has_it_looked_at_again_at_worst() {
    for (from, flags, numbers) in [
        (Client, SYN, [400_000, 0]),
        (Client, SYN, [1003, 0]),
        (Server, SYN, [800_000, 0]),
        (Client, RST, [3, 0]),
        (Server, SYN_ACK, [800_000, 77]),
    ] {
        let mut bench = Bench::new(EVIL);
        bench.pass_by();
        bench.send(from, flags, numbers, b"");
        // Who is in a connection says how far it is (RFC 5961 s4).
        match from {
            Client => assert!(bench.send(Server, ACK, [17_000, 1004], b"")),
            Server => assert!(bench.send(Client, ACK, [1004, 17_000], b"")),
        }
        assert!(
            bench.send(Client, DATA, [1004, 17_000], b"good"),
            "it goes on: {from:?} {flags} {numbers:?}"
        );
        assert!(
            bench.send(Server, DATA, [17_000, 1008], b"good"),
            "it goes on: {from:?} {flags} {numbers:?}"
        );
        let is_settled = bench.detector.is_settled();
        assert_eq!(is_settled, flags != SYN);
        assert_eq!(bench.send(Client, DATA, [1008, 17_004], b"evil"), is_settled, "looked at");
    }
}

#[test]
fn who_sends_syns_all_the_time_is_looked_at_all_the_time() {
    let mut bench = Bench::new(EVIL);
    bench.pass_by();
    for number in 0..50 {
        let at = 1004 + 4 * number;
        bench.send(Client, SYN, [500_000 + number, 0], b"");
        assert!(bench.send(Server, ACK, [17_000, at], b""));
        assert!(!bench.send(Client, DATA, [at, 17_000], b"evil"), "{number}");
        // Of a rule that dropped it nothing is left with the next.
        bench = Bench::new(EVIL);
        bench.pass_by();
    }
}

#[test]
fn other_rules_look_at_the_next_packet_of_each_side_that_went_past() {
    for (rules, stops) in [
        ("drop tcp any any -> any 80 (sid:2;)", true),
        ("drop tcp any 80 -> any any (sid:2;)", true),
        ("drop tcp any any -> any 81 (sid:2;)", false),
    ] {
        let mut bench = Bench::new(EVIL);
        bench.pass_by();
        bench.detector.swap(rules_of(rules)).unwrap();
        bench.send(Client, ACK, [1004, 17_000], b"");
        bench.send(Server, ACK, [17_000, 1004], b"");
        assert_eq!(!bench.send(Client, ACK, [1004, 17_000], b""), stops, "{rules}");
        assert_eq!(bench.detector.is_settled(), !stops, "{rules}");
        // Nobody else may carry what is dropped.
        assert_eq!(bench.table.take_returned().len(), usize::from(stops), "{rules}");
    }
}

#[test]
fn who_pretends_that_the_connection_before_goes_on_hides_nothing_in_the_next() {
    let decoys: [&[Sent]; 4] = [
        &[(Client, ACK, [1004, 17_000], b"")],
        &[(Client, DATA, [1004, 17_000], b"decoy")],
        &[(Server, ACK, [17_000, 1004], b""), (Client, DATA, [1004, 17_000], b"decoy")],
        &[(Client, DATA, [70_001, 17_000], b"xx"), (Server, DATA, [17_000, 1004], b"decoy")],
    ];
    for (number, decoys) in decoys.into_iter().enumerate() {
        let mut bench = Bench::new(EVIL);
        bench.pass_by();
        assert!(bench.send(Client, SYN, [70_000, 0], b""));
        for (from, flags, numbers, payload) in decoys {
            bench.send(*from, *flags, *numbers, payload);
        }
        assert!(bench.send(Server, SYN_ACK, [90_000, 70_001], b""));
        assert!(bench.send(Client, ACK, [70_001, 90_001], b""));
        assert!(bench.send(Client, DATA, [70_001, 90_001], b"ev"), "{number}");
        assert!(!bench.send(Client, DATA, [70_003, 90_001], b"il"), "{number}");
    }
}
