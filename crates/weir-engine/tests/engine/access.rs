//! The RDMA firewall: an engine with lines of access, told who says what.

use super::judged::{Gateway, MTU, b_to_a};
use super::talk::{A, B, End, Packet};
use weir_engine::access::{AccessAction, Line, Memory, Operation};
use weir_engine::pipeline::Associations;
use weir_engine::policy::Policy;
use weir_engine::verdict::{DropReason, Side, Verdict};
use weir_wire::bth::{Opcode, Qpn};
use weir_wire::frame::{Offload, SegmentKind, Segmentation};

fn b_reads() -> Line {
    b_to_a("b-reads", &[Operation::Read], AccessAction::Allow)
}

fn b_writes() -> Line {
    b_to_a("b-writes", &[Operation::Write], AccessAction::Deny)
}

fn write_of_three(from: End, psn: u32) -> [Packet; 3] {
    [from.write_first(psn), from.write_middle(psn + 1), from.write_last(psn + 2)]
}

fn of(from: End, opcode: Opcode, psn: u32) -> Packet {
    Packet { opcode, ..from.datagram(psn) }
}

mod operations {
    use super::*;

    #[test]
    fn a_denied_write_loses_all_of_its_packets_and_nothing_else() {
        let mut gateway = Gateway::with(vec![b_reads(), b_writes()], AccessAction::Allow);
        gateway.passes(&[B.send_only(1)]);
        gateway.denies(&write_of_three(B, 2));
        gateway.denies(&[B.write_only(5)]);
        gateway.passes(&[B.send_only(6)]);
        gateway.passes(&write_of_three(A, 1));
        assert_eq!(gateway.hits(), [(0, 0), (2, 4), (3, 5)]);
    }

    #[test]
    fn a_read_passes_and_so_does_its_answer() {
        let mut gateway = Gateway::with(vec![b_reads()], AccessAction::Deny);
        gateway.passes(&[B.read(1, 3072)]);
        gateway.passes(&[A.read_first(1), A.read_middle(2), A.read_last(3)]);
        gateway.denies(&[B.fetch_add(4)]);
        gateway.denies(&[A.read(1, 64)]);
        assert_eq!(gateway.hits(), [(1, 1), (2, 2)]);
    }

    #[test]
    fn each_operation_is_told_from_the_others() {
        for (packet, operation) in [
            (B.send_only(1), Operation::Send),
            (of(B, Opcode::RC_SEND_LAST_IMMEDIATE, 1), Operation::SendImmediate),
            (B.write_only(1), Operation::Write),
            (of(B, Opcode::UC_WRITE_ONLY_IMMEDIATE, 1), Operation::Write),
            (of(B, Opcode::RC_ATOMIC_WRITE, 1), Operation::Write),
            (of(B, Opcode::XRC_FLUSH, 1), Operation::Write),
            (B.read(1, 8), Operation::Read),
            (of(B, Opcode::XRC_READ_REQUEST, 1), Operation::Read),
            (B.fetch_add(1), Operation::Atomic),
            (B.datagram(1), Operation::Send),
            (End { to_qp: 1, ..B }.datagram(1), Operation::Connect),
            (End { to_qp: 0xff_ffff, ..B }.datagram(1), Operation::Multicast),
            (of(B, Opcode(0xc4), 1), Operation::Other),
        ] {
            let lines = vec![b_to_a("only", &[operation], AccessAction::Deny)];
            Gateway::with(lines, AccessAction::Allow).denies(&[packet]);
            let others: Vec<_> = Operation::ALL.into_iter().filter(|it| *it != operation).collect();
            let lines = vec![b_to_a("others", &others, AccessAction::Deny)];
            Gateway::with(lines, AccessAction::Allow).passes(&[packet]);
        }
    }

    #[test]
    fn only_datagrams_connect() {
        // A reliable SEND to queue pair 1 is none that its owner takes; it is no way around either.
        let connects = b_to_a("connects", &[Operation::Connect], AccessAction::Allow);
        let mut gateway = Gateway::with(vec![connects], AccessAction::Deny);
        gateway.denies(&[End { to_qp: 1, ..B }.send_only(1)]);
    }
}

mod lines {
    use super::*;

    #[test]
    fn the_default_denies_what_no_line_matches() {
        let mut gateway = Gateway::with(vec![], AccessAction::Deny);
        gateway.denies(&[B.send_only(1)]);
        gateway.denies(&[A.send_only(1)]);
        gateway.passes(&[A.ack(1)]);
        assert_eq!(gateway.hits(), [(2, 2)]);
    }

    #[test]
    fn would_deny_passes_and_is_counted_and_told_of() {
        let tried = b_to_a("tried", &[Operation::Write], AccessAction::WouldDeny);
        let mut gateway = Gateway::with(vec![tried], AccessAction::Allow);
        gateway.passes(&write_of_three(B, 1));
        assert_eq!(gateway.hits(), [(1, 3), (0, 0)]);
        let events = gateway.events();
        assert_eq!(events.len(), 1, "one a message");
        assert_eq!(events[0].action, AccessAction::WouldDeny);
    }

    #[test]
    fn an_event_names_line_queue_pair_operation_key_and_length() {
        let mut gateway = Gateway::with(vec![b_writes()], AccessAction::Allow);
        gateway.denies(&[Packet { remote_key: 0x1234, dma_len: 70_000, ..B.write_first(1) }]);
        gateway.denies(&[B.write_last(2)]);
        let events = gateway.events();
        assert_eq!(events.len(), 1);
        assert_eq!(events[0].line.as_deref(), Some("b-writes"));
        assert_eq!(events[0].destination_qp, Qpn::new(B.to_qp));
        assert_eq!(events[0].operation, Operation::Write);
        assert_eq!(events[0].memory, Some(Memory { remote_key: 0x1234, length: 70_000 }));
        assert_eq!((events[0].from[15], events[0].to[15]), (2, 1));
        assert_eq!(events[0].side, Some(Side::Wire));
    }

    #[test]
    fn an_event_of_an_atomic_names_its_key_too() {
        let all = b_to_a("all", &[], AccessAction::Deny);
        let mut gateway = Gateway::with(vec![all], AccessAction::Allow);
        gateway.denies(&[B.fetch_add(1)]);
        let memory = gateway.events()[0].memory.expect("an R_Key");
        assert_eq!(memory.length, 8);
    }

    #[test]
    fn allowed_messages_are_told_of_where_the_line_says_so() {
        let logged = Line { log: true, ..b_reads() };
        let mut gateway = Gateway::with(vec![logged], AccessAction::Allow);
        gateway.passes(&[B.read(1, 64)]);
        gateway.passes(&[B.write_only(2)]);
        assert_eq!(gateway.events().len(), 1);
    }

    #[test]
    fn events_that_nobody_takes_are_bounded_and_counted() {
        let mut gateway = Gateway::with(vec![], AccessAction::Deny);
        for psn in 0..weir_engine::access::EVENTS_MAX as u32 + 7 {
            gateway.denies(&[B.send_only(psn)]);
        }
        assert_eq!(gateway.engine.access().unwrap().events_lost(), 7);
        assert_eq!(gateway.events().len(), weir_engine::access::EVENTS_MAX);
    }

    #[test]
    fn queue_pairs_that_stand_are_judged_again_after_a_reload_and_hits_go_on() {
        let mut gateway = Gateway::with(vec![b_reads(), b_writes()], AccessAction::Allow);
        gateway.denies(&[B.write_only(1)]);
        gateway.passes(&[B.read(2, 64)]);
        let writes = b_to_a("b-writes", &[Operation::Write], AccessAction::Allow);
        let reads = b_to_a("b-reads-not", &[Operation::Read], AccessAction::Deny);
        gateway.reload(vec![reads, b_reads(), writes], AccessAction::Allow);
        gateway.passes(&[B.write_only(3)]);
        gateway.denies(&[B.read(4, 64)]);
        // The line that allows what it denied before begins anew.
        assert_eq!(gateway.hits(), [(1, 1), (1, 1), (1, 1), (0, 0)]);
        gateway.engine.swap(Policy::watch(2, MTU), Associations::default()).unwrap();
        gateway.passes(&[B.read(5, 64)]);
        assert!(gateway.engine.access().is_none());
    }
}

mod readable {
    use super::*;

    /// The bytes of a packet, its IP header changed.
    fn with_ip(packet: Packet, change: impl Fn(&mut [u8])) -> Vec<u8> {
        let mut bytes = packet.bytes();
        change(&mut bytes[14..]);
        bytes
    }

    #[track_caller]
    fn assert_unreadable(gateway: &mut Gateway, packets: &[Vec<u8>]) {
        let verdicts = gateway.verdicts_on(Side::Wire, packets, Offload::default());
        let unreadable = Verdict::Drop(DropReason::AccessUnreadable);
        assert!(verdicts.iter().all(|it| *it == unreadable), "{verdicts:?}");
    }

    #[test]
    fn fragments_to_the_port_are_dropped_each_of_them() {
        let mut gateway = Gateway::with(vec![], AccessAction::Allow);
        let first = with_ip(B.send_only(1), |ip| ip[6] = 0x20);
        assert_unreadable(&mut gateway, &[first.clone(), first.clone(), first]);
        assert_eq!(gateway.engine.access().unwrap().unreadable_packets(), 3);
    }

    #[test]
    fn what_is_too_short_to_be_read_is_dropped_also_behind_others_of_its_flow() {
        let mut short = B.send_only(1).bytes();
        short.truncate(14 + 20 + 8 + 4);
        short[16..18].copy_from_slice(&32u16.to_be_bytes());
        short[38..40].copy_from_slice(&12u16.to_be_bytes());
        let mut gateway = Gateway::with(vec![], AccessAction::Allow);
        assert_unreadable(&mut gateway, &[short.clone(), short.clone(), short]);
    }

    #[test]
    fn a_super_packet_is_not_judged_by_its_first_segment() {
        let mut gateway = Gateway::with(vec![b_writes()], AccessAction::Allow);
        let joined = [B.send_only(1).bytes(), B.write_only(2).bytes()[42..].to_vec()].concat();
        let segment_len = (B.send_only(1).bytes().len() - 42) as u16;
        let kind = SegmentKind::Udp;
        let segmentation = Segmentation { kind, segment_len, header_len: 42, ecn: false };
        let offload = Offload { segmentation: Some(segmentation), ..Offload::default() };
        let mut bytes = joined;
        let (ip_len, udp_len) = (bytes.len() as u16 - 14, bytes.len() as u16 - 34);
        bytes[16..18].copy_from_slice(&ip_len.to_be_bytes());
        bytes[38..40].copy_from_slice(&udp_len.to_be_bytes());
        let verdicts = gateway.verdicts_on(Side::Wire, &[bytes], offload);
        assert_eq!(verdicts, [Verdict::Drop(DropReason::AccessUnreadable)]);
    }

    #[test]
    fn more_vlan_tags_than_are_read_hide_nothing() {
        let mut bytes = B.write_only(1).bytes();
        for _ in 0..3 {
            bytes.splice(12..12, [0x81, 0, 0, 1]);
        }
        let mut gateway = Gateway::with(vec![b_writes()], AccessAction::Allow);
        assert_unreadable(&mut gateway, &[bytes]);
    }

    #[test]
    fn other_traffic_passes_a_default_that_denies() {
        let mut dns = B.send_only(1).bytes();
        dns[36..38].copy_from_slice(&53u16.to_be_bytes());
        let mut gateway = Gateway::with(vec![], AccessAction::Deny);
        let verdicts = gateway.verdicts_on(Side::Wire, &[dns.clone(), dns], Offload::default());
        assert_eq!(verdicts, [Verdict::Forward, Verdict::Forward]);
        assert_eq!(gateway.hits(), [(0, 0)]);
    }

    #[test]
    fn roce_v1_is_judged_by_its_gids() {
        let v2 = B.write_only(1).bytes();
        let mut v1 = v2[..12].to_vec();
        v1.extend([0x89, 0x15, 0x60, 0, 0, 0]);
        v1.extend((v2.len() as u16 - 42).to_be_bytes());
        v1.extend([0x1b, 64]);
        for last in [2, 1] {
            v1.extend([0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 0, 0, last]);
        }
        v1.extend(&v2[42..]);
        let mut gateway = Gateway::with(vec![b_writes()], AccessAction::Allow);
        let verdicts = gateway.verdicts_on(Side::Wire, &[v1.clone()], Offload::default());
        assert_eq!(verdicts, [Verdict::Drop(DropReason::AccessDenied)]);
        // As much of it as shows no queue pair.
        assert_unreadable(&mut gateway, &[v1[..60].to_vec()]);
    }
}
