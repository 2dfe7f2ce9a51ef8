//! What a requester hears whose request is rejected, as tshark reads it.

#![allow(clippy::disallowed_methods, reason = "only the engine itself does without these")]

use std::process::Command;

use super::judged::cm::{Exchange, reject_in};
use super::judged::{self, Gateway, b_to_a};
use super::talk::{A, B, Packet};
use weir_engine::access::{AccessAction, Line, Operation};
use weir_engine::output::Destination;
use weir_engine::verdict::{DropReason, Side, Verdict};
use weir_wire::bth::{Opcode, Psn, Qpn};
use weir_wire::ext::{self, NakCause, Syndrome};
use weir_wire::frame::{Frame, Link, Meta, Offload};
use weir_wire::icrc::{self, IcrcStatus};
use weir_wire::parse::parse;

fn no_writes() -> Vec<Line> {
    vec![b_to_a("no-writes", &[Operation::Write], AccessAction::Reject)]
}

impl Gateway {
    /// What is answered to a packet that is rejected.
    fn answers(&mut self, side: Side, mut bytes: Vec<u8>) -> Vec<Vec<u8>> {
        self.now = self.now.plus_ns(1000);
        let (len, original_len) = (bytes.len(), bytes.len() as u32);
        let offload = Offload::default();
        let meta = Meta { time: self.now, original_len, link: Link::Ethernet, offload };
        let mut frames = [Frame::new(&mut bytes, 0, len, meta)];
        let output = self.engine.process(self.now, side, &mut frames);
        assert_eq!(output.verdicts, [Verdict::Drop(DropReason::AccessDenied)]);
        let back = if side == Side::Host { Destination::Host } else { Destination::Wire };
        assert!(output.packets.iter().all(|it| it.destination == back));
        output.parts.iter().map(|part| output.resolve(part, &frames).to_vec()).collect()
    }

    /// B connects to A, and A acknowledges seven messages.
    fn connected(lines: Vec<Line>) -> Self {
        let mut gateway = Self::with(lines, AccessAction::Allow);
        let exchange = Exchange::of(B, A);
        gateway.verdicts_on(Side::Wire, &[exchange.request()], Offload::default());
        gateway.verdicts_on(Side::Host, &[exchange.reply()], Offload::default());
        gateway
    }
}

/// An acknowledgment of A's that seven messages are complete.
fn seventh_ack() -> Vec<u8> {
    let mut bytes = A.ack(106).bytes();
    let parsed = parse(&bytes, Link::Ethernet, bytes.len() as u32);
    let aeth = usize::from(parsed.rdma.unwrap().bth_offset) + 12;
    bytes[aeth + 3] = 7;
    assert!(icrc::write(&mut bytes, &parsed));
    bytes
}

#[test]
fn a_rejected_write_is_answered_by_the_nak_of_its_responder() {
    let mut gateway = Gateway::connected(no_writes());
    gateway.passes(&[B.send_only(106)]);
    gateway.verdicts_on(Side::Host, &[seventh_ack()], Offload::default());
    let answers = gateway.answers(Side::Wire, B.write_first(107).bytes());
    assert_eq!(answers.len(), 1);
    let bytes = &answers[0];
    let parsed = parse(bytes, Link::Ethernet, bytes.len() as u32);
    let rdma = parsed.rdma.unwrap();
    assert_eq!((parsed.source[15], parsed.destination[15]), (1, 2));
    assert_eq!((parsed.link.source.0[5], parsed.link.destination.0[5]), (1, 2));
    assert_eq!(rdma.opcode, Opcode::RC_ACKNOWLEDGE);
    assert_eq!((rdma.destination_qp, rdma.psn), (Qpn::new(0xb), Psn::new(107)));
    let aeth = ext::aeth(bytes, &rdma).unwrap();
    assert_eq!(aeth.syndrome(), Syndrome::Nak(NakCause::RemoteAccess));
    assert_eq!(aeth.message_sequence(), 7);
    assert_eq!(icrc::check(bytes, &parsed), IcrcStatus::Valid);
    // The rest of the message is dropped without a word.
    assert!(gateway.answers(Side::Wire, B.write_middle(108).bytes()).is_empty());
    assert_eq!(gateway.engine.access().unwrap().answers(), [1, 0]);
}

#[test]
fn the_host_is_answered_by_its_own_port() {
    let line = Line {
        from: judged::host(1),
        to: judged::host(2),
        ..b_to_a("no-reads", &[Operation::Read], AccessAction::Reject)
    };
    let mut gateway = Gateway::connected(vec![line]);
    let answers = gateway.answers(Side::Host, A.read(500, 4096).bytes());
    let parsed = parse(&answers[0], Link::Ethernet, answers[0].len() as u32);
    let rdma = parsed.rdma.unwrap();
    assert_eq!((parsed.source[15], rdma.destination_qp), (2, Qpn::new(0xa)));
}

#[test]
fn a_requester_whose_queue_pair_nobody_saw_is_denied_and_not_answered() {
    let mut gateway = Gateway::with(no_writes(), AccessAction::Allow);
    assert!(gateway.answers(Side::Wire, B.write_only(1).bytes()).is_empty());
    assert_eq!(gateway.engine.access().unwrap().answers(), [0, 1]);
    // An answer that passes shows it.
    gateway.passes(&[B.send_only(2)]);
    gateway.passes(&[A.ack(2)]);
    assert_eq!(gateway.answers(Side::Wire, B.write_only(3).bytes()).len(), 1);
}

#[test]
fn what_is_damaged_or_unreliable_is_not_answered() {
    let mut gateway = Gateway::connected(no_writes());
    let damaged = Packet { is_damaged: true, ..B.write_only(100) };
    assert!(gateway.answers(Side::Wire, damaged.bytes()).is_empty());
    let unreliable = Packet { opcode: Opcode::UC_WRITE_ONLY, ..B.write_only(101) };
    assert!(gateway.answers(Side::Wire, unreliable.bytes()).is_empty());
}

#[test]
fn answers_are_a_thousand_a_second_at_most() {
    let mut gateway = Gateway::connected(no_writes());
    let answered = (0..1500)
        .filter(|psn| !gateway.answers(Side::Wire, B.write_only(100 + psn).bytes()).is_empty());
    assert_eq!(answered.count(), 1000);
    gateway.wait_ms(1000);
    assert_eq!(gateway.answers(Side::Wire, B.write_only(9).bytes()).len(), 1);
}

#[test]
fn a_rejected_request_for_a_connection_is_answered_by_rej() {
    let line = b_to_a("nobody-connects", &[Operation::Connect], AccessAction::Reject);
    let mut gateway = Gateway::with(vec![line], AccessAction::Allow);
    let answers = gateway.answers(Side::Wire, Exchange::of(B, A).request());
    let reject = reject_in(&answers[0]).expect("a REJ");
    assert_eq!((reject.remote_comm_id.get(), reject.reason.get()), (71, 28));
    let parsed = parse(&answers[0], Link::Ethernet, answers[0].len() as u32);
    assert_eq!(icrc::check(&answers[0], &parsed), IcrcStatus::Valid);
}

/// A capture of Ethernet frames.
fn capture(frames: &[Vec<u8>]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for word in [0xa1b2_c3d4u32, 2 | 4 << 16, 0, 0, 65535, 1] {
        bytes.extend(word.to_le_bytes());
    }
    for frame in frames {
        let len = frame.len() as u32;
        for word in [1_700_000_000, 0, len, len] {
            bytes.extend(u32::to_le_bytes(word));
        }
        bytes.extend(frame);
    }
    bytes
}

#[test]
fn tshark_reads_our_answers_as_we_mean_them() {
    let mut gateway = Gateway::connected(no_writes());
    gateway.passes(&[B.send_only(106)]);
    gateway.verdicts_on(Side::Host, &[seventh_ack()], Offload::default());
    let mut frames = gateway.answers(Side::Wire, B.write_only(107).bytes());
    let line = b_to_a("nobody-connects", &[Operation::Connect], AccessAction::Reject);
    let mut other = Gateway::with(vec![line], AccessAction::Allow);
    frames.extend(other.answers(Side::Wire, Exchange::of(B, A).request()));
    let file = std::env::temp_dir().join(format!("weir-reject-{}.pcap", std::process::id()));
    std::fs::write(&file, capture(&frames)).unwrap();
    let fields = [
        "ip.src",
        "infiniband.bth.opcode",
        "infiniband.bth.destqp",
        "infiniband.bth.psn",
        "infiniband.aeth.syndrome",
        "infiniband.aeth.msn",
        "infiniband.cm.rej.reason",
        "_ws.malformed",
        "ip.checksum.status",
    ];
    let mut command = Command::new("tshark");
    command.args(["-o", "ip.check_checksum:TRUE", "-T", "fields", "-r"]).arg(&file);
    fields.iter().for_each(|field| {
        command.args(["-e", field]);
    });
    let Ok(said) = command.output() else {
        eprintln!("SKIPPED: tshark_reads_our_answers_as_we_mean_them needs tshark");
        return;
    };
    std::fs::remove_file(&file).unwrap();
    let said = String::from_utf8(said.stdout).unwrap();
    let rows: Vec<Vec<&str>> = said.lines().map(|it| it.split('\t').collect()).collect();
    assert_eq!(rows.len(), 2, "{said}");
    assert_eq!(rows[0], ["10.0.0.1", "17", "0x00000b", "107", "98", "7", "", "", "1"], "{said}");
    assert_eq!(rows[1][..4], ["10.0.0.1", "100", "0x000001", "0"], "{said}");
    assert_eq!((rows[1][6], rows[1][7]), ("0x001c", ""), "{said}");
}
