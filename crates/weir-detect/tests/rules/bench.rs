//! A detector with rules, and packets for it: `Bench::new(rules).client(b"GET").alerts()`.

use std::sync::Arc;

use weir_detect::hosts::{Hosts, System};
use weir_detect::{
    Alerts, Decision, Detector, Direction, FlowSlot, Limits, LoadOptions, LoadReport, Packet,
    RuleSet, RuleSource, Variables,
};
use weir_wire::checksum::{Sum, pseudo_header_v4};
use weir_wire::frame::{Link, Time};
use weir_wire::icrc::IcrcStatus;
use weir_wire::parse::parse;

pub(crate) const CLIENT: [u8; 4] = [192, 0, 2, 1];
pub(crate) const SERVER: [u8; 4] = [10, 0, 0, 2];
pub(crate) const SECOND: u64 = 1_000_000_000;

/// Rules and their report.
pub(crate) fn load(rules: &str) -> (RuleSet, LoadReport) {
    let source = RuleSource { name: "test.rules".into(), text: rules.into() };
    let loaded = RuleSet::load(&[source], &Variables::default(), &LoadOptions::default()).unwrap();
    (loaded.rules, loaded.report)
}

/// The keyword that stops the only rule of `rules`.
pub(crate) fn refused(rules: &str) -> String {
    let (_, report) = load(rules);
    assert_eq!(report.refused.len(), 1, "{report:?}");
    report.refused[0].keyword.clone()
}

pub(crate) struct Bench {
    pub(crate) detector: Detector,
    pub(crate) alerts: Alerts,
    pub(crate) slot: FlowSlot,
    pub(crate) now: Time,
    /// Of the connection.
    pub(crate) server_port: u16,
    /// Who receives its packets knows their checksums to be right, or unfinished.
    pub(crate) is_verified: bool,
    /// What a check of its packets' ICRC found before.
    pub(crate) icrc: Option<IcrcStatus>,
    /// Next sequence numbers of client and server.
    pub(crate) next: [u32; 2],
}

impl Bench {
    pub(crate) fn new(rules: &str) -> Self {
        Self::with(rules, Limits::default())
    }

    /// Whose hosts are such systems.
    pub(crate) fn towards(rules: &str, system: System) -> Self {
        let hosts = Hosts::new([("0.0.0.0/0", system)]).unwrap();
        let variables = Variables { hosts, ..Variables::default() };
        let source = RuleSource { name: "test.rules".into(), text: rules.into() };
        let loaded = RuleSet::load(&[source], &variables, &LoadOptions::default()).unwrap();
        let detector = Detector::new(Arc::new(loaded.rules), Limits::default()).unwrap();
        Self { detector, ..Self::new("") }
    }

    pub(crate) fn with(rules: &str, limits: Limits) -> Self {
        let (rules, report) = load(rules);
        assert!(report.refused.is_empty(), "{:?}", report.refused);
        let detector = Detector::new(Arc::new(rules), limits).unwrap();
        let now = Time(1_700_000_000 * SECOND);
        let (alerts, slot) = (Alerts::new(64), FlowSlot::default());
        Self {
            detector,
            alerts,
            slot,
            now,
            server_port: 80,
            is_verified: false,
            icrc: None,
            next: [1000, 5000],
        }
    }

    /// With files that the rules name.
    pub(crate) fn loaded(rules: &str, options: &LoadOptions) -> Self {
        let source = RuleSource { name: "test.rules".into(), text: rules.into() };
        let loaded = RuleSet::load(&[source], &Variables::default(), options).unwrap();
        assert!(loaded.report.refused.is_empty(), "{:?}", loaded.report.refused);
        let detector = Detector::new(Arc::new(loaded.rules), Limits::default()).unwrap();
        Self { detector, ..Self::new("") }
    }

    pub(crate) fn send(&mut self, direction: Direction, frame: &[u8]) -> Decision {
        let parsed = parse(frame, Link::Ethernet, frame.len() as u32);
        let packet = Packet {
            bytes: frame,
            parsed: &parsed,
            decoded: None,
            is_rebuilt: false,
            is_verified: self.is_verified,
            icrc: self.icrc,
            port: None,
        };
        self.now = self.now.plus_ns(1000);
        self.detector.inspect(self.now, &mut self.slot, direction, &packet, &mut self.alerts)
    }

    /// A datagram of the client.
    pub(crate) fn udp(&mut self, payload: &[u8]) -> Decision {
        self.send(Direction::Initiator, &udp(CLIENT, SERVER, 40_000, 53, payload))
    }

    /// The three packets that begin a connection.
    pub(crate) fn connect(&mut self) -> &mut Self {
        const SYN: u8 = 2;
        const ACK: u8 = 16;
        self.tcp(Direction::Initiator, SYN, b"");
        self.next[0] += 1;
        self.tcp(Direction::Responder, SYN | ACK, b"");
        self.next[1] += 1;
        self.tcp(Direction::Initiator, ACK, b"");
        self
    }

    /// Data of the client.
    pub(crate) fn client(&mut self, payload: &[u8]) -> Decision {
        self.data(Direction::Initiator, payload)
    }

    /// Data of the server.
    pub(crate) fn server(&mut self, payload: &[u8]) -> Decision {
        self.data(Direction::Responder, payload)
    }

    pub(crate) fn data(&mut self, direction: Direction, payload: &[u8]) -> Decision {
        const PSH_ACK: u8 = 24;
        let decision = self.tcp(direction, PSH_ACK, payload);
        self.next[direction as usize] += payload.len() as u32;
        decision
    }

    pub(crate) fn tcp(&mut self, direction: Direction, flags: u8, payload: &[u8]) -> Decision {
        let at = self.next[direction as usize];
        self.segment(direction, flags, at, payload)
    }

    /// A segment at a place of its own, counted from the next byte.
    pub(crate) fn segment_at(
        &mut self,
        direction: Direction,
        ahead: i32,
        payload: &[u8],
    ) -> Decision {
        let at = self.next[direction as usize].wrapping_add_signed(ahead);
        self.segment(direction, 24, at, payload)
    }

    /// The client's next bytes, in a segment that its receiver does not take: its checksum is
    /// wrong.
    pub(crate) fn spoiled(&mut self, payload: &[u8]) -> Decision {
        self.spoiled_with(24, payload)
    }

    /// The same with flags of its own.
    pub(crate) fn spoiled_with(&mut self, flags: u8, payload: &[u8]) -> Decision {
        const CHECKSUM: usize = 14 + 20 + 16;
        let (client, server) = ((CLIENT, 40_000), (SERVER, self.server_port));
        let mut frame = tcp(client, server, flags, self.next[0], self.next[1], payload);
        frame[CHECKSUM] ^= 0x55;
        self.send(Direction::Initiator, &frame)
    }

    /// The client's next bytes in a segment that is changed on the way.
    pub(crate) fn forged(&mut self, flags: u8, payload: &[u8], change: fn(&mut Vec<u8>)) {
        let (client, server) = ((CLIENT, 40_000), (SERVER, self.server_port));
        let mut frame = tcp(client, server, flags, self.next[0], self.next[1], payload);
        change(&mut frame);
        self.send(Direction::Initiator, &frame);
    }

    fn segment(&mut self, direction: Direction, flags: u8, at: u32, payload: &[u8]) -> Decision {
        const ACK: u8 = 16;
        // Without the flag the number says nothing (RFC 9293 s3.1).
        let acknowledged = if flags & ACK == 0 { 0 } else { self.next[1 - direction as usize] };
        let frame = match direction {
            Direction::Initiator => {
                tcp((CLIENT, 40_000), (SERVER, self.server_port), flags, at, acknowledged, payload)
            }
            Direction::Responder => {
                tcp((SERVER, self.server_port), (CLIENT, 40_000), flags, at, acknowledged, payload)
            }
        };
        self.send(direction, &frame)
    }

    /// The sids that alerted since this was asked last, in the order in which they did.
    pub(crate) fn alerted(&mut self) -> Vec<u32> {
        let rules = self.detector.rules().clone();
        self.alerts.drain().map(|it| rules.rule(it.rule).sid).collect()
    }
}

pub(crate) fn ipv4(source: [u8; 4], destination: [u8; 4], protocol: u8, rest: &[u8]) -> Vec<u8> {
    let mut frame = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 8, 0, 0x45, 0];
    frame.extend((20 + rest.len() as u16).to_be_bytes());
    frame.extend([0x12, 0x34, 0x40, 0, 64, protocol, 0, 0]);
    frame.extend(source);
    frame.extend(destination);
    let checksum = Sum::new().with(&frame[14..]).checksum();
    frame[24..26].copy_from_slice(&checksum.to_be_bytes());
    frame.extend(rest);
    frame
}

pub(crate) fn udp(
    source: [u8; 4],
    destination: [u8; 4],
    source_port: u16,
    destination_port: u16,
    payload: &[u8],
) -> Vec<u8> {
    let mut rest = source_port.to_be_bytes().to_vec();
    rest.extend(destination_port.to_be_bytes());
    rest.extend((8 + payload.len() as u16).to_be_bytes());
    rest.extend([0, 0]);
    rest.extend(payload);
    ipv4(source, destination, 17, &rest)
}

pub(crate) fn tcp(
    source: ([u8; 4], u16),
    destination: ([u8; 4], u16),
    flags: u8,
    sequence: u32,
    acknowledgment: u32,
    payload: &[u8],
) -> Vec<u8> {
    let mut rest = source.1.to_be_bytes().to_vec();
    rest.extend(destination.1.to_be_bytes());
    rest.extend(sequence.to_be_bytes());
    rest.extend(acknowledgment.to_be_bytes());
    rest.extend([0x50, flags, 0x20, 0, 0, 0, 0, 0]);
    rest.extend(payload);
    let head = pseudo_header_v4(source.0, destination.0, 6, rest.len() as u16);
    let checksum = head.with(&rest).checksum();
    rest[16..18].copy_from_slice(&checksum.to_be_bytes());
    ipv4(source.0, destination.0, 6, &rest)
}

/// A RoCE v2 packet; `behind` is what follows the BTH, ICRC excluded.
pub(crate) fn roce(opcode: u8, queue_pair: u32, psn: u32, behind: &[u8]) -> Vec<u8> {
    let mut payload = vec![opcode, 0, 0xff, 0xff];
    payload.extend(queue_pair.to_be_bytes());
    payload.extend(psn.to_be_bytes());
    payload.extend(behind);
    payload.extend([0; 4]);
    udp(CLIENT, SERVER, 49_152, 4791, &payload)
}
