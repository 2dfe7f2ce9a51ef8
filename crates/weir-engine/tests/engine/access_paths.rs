//! Alternate paths of connections: REQ with one, LAP and APR.

use super::judged::Gateway;
use super::judged::cm::Exchange;
use super::talk::{A, B, End};
use weir_engine::access::{AccessAction, AccessState};
use weir_engine::verdict::{DropReason, Side, Verdict};
use weir_wire::frame::Offload;

/// The other ports of both hosts: 12 is B's, 11 is A's.
const ALTERNATE: [u8; 2] = [12, 11];
const B_ELSEWHERE: End = End { host: 12, peer: 11, ..B };
const A_ELSEWHERE: End = End { host: 11, peer: 12, ..A };

fn gateway() -> Gateway {
    Gateway::with_state(vec![], AccessAction::Allow, AccessState::Strict)
}

fn b_to_a() -> Exchange {
    Exchange::of(B, A)
}

impl Gateway {
    #[track_caller]
    fn lets_through(&mut self, side: Side, bytes: Vec<u8>) {
        assert_eq!(self.verdicts_on(side, &[bytes], Offload::default()), [Verdict::Forward]);
    }

    /// B asks, and A grants; both spoke.
    #[track_caller]
    fn connects_and_speaks(&mut self) {
        self.lets_through(Side::Wire, b_to_a().request());
        self.lets_through(Side::Host, b_to_a().reply());
        self.passes(&[B.write_only(100)]);
        self.passes(&[A.ack(100)]);
    }

    #[track_caller]
    fn loads(&mut self, alternate: [u8; 2]) {
        self.lets_through(Side::Wire, b_to_a().load_alternate(alternate));
        self.lets_through(Side::Host, b_to_a().answer_alternate(0));
    }

    fn paths(&self) -> [u64; 2] {
        let counters = self.engine.access().unwrap().state_counters();
        [counters.paths, counters.paths_missed]
    }
}

#[test]
fn a_connection_moves_to_the_path_that_was_loaded_and_back() {
    let mut gateway = gateway();
    gateway.connects_and_speaks();
    gateway.drops(&[B_ELSEWHERE.write_only(101)], DropReason::AccessNoConnection);
    gateway.loads(ALTERNATE);
    gateway.passes(&[B_ELSEWHERE.write_only(101)]);
    gateway.lets_through(Side::Host, A_ELSEWHERE.ack(101).bytes());
    gateway.lets_through(Side::Host, A_ELSEWHERE.send_only(500).bytes());
    gateway.passes(&[B.write_only(102)]);
    assert_eq!(gateway.paths(), [1, 0]);
    // Whoever else speaks there is a stranger.
    let stranger = End { host: 3, ..B_ELSEWHERE };
    gateway.drops(&[stranger.write_only(102)], DropReason::QpForged);
}

#[test]
fn a_path_of_the_request_holds_from_the_beginning() {
    let mut gateway = gateway();
    gateway.lets_through(Side::Wire, b_to_a().request_with(ALTERNATE));
    gateway.lets_through(Side::Host, b_to_a().reply());
    gateway.passes(&[B.write_only(100), B_ELSEWHERE.write_only(101)]);
    gateway.lets_through(Side::Host, A_ELSEWHERE.ack(101).bytes());
    assert_eq!(gateway.paths(), [1, 0]);
}

#[test]
fn a_path_that_was_refused_or_only_proposed_or_proposed_by_a_stranger_is_none() {
    let mut gateway = gateway();
    gateway.connects_and_speaks();
    let is_none = |gateway: &mut Gateway| {
        gateway.drops(&[B_ELSEWHERE.write_only(101)], DropReason::AccessNoConnection);
    };
    gateway.lets_through(Side::Wire, b_to_a().load_alternate(ALTERNATE));
    is_none(&mut gateway);
    gateway.lets_through(Side::Host, b_to_a().answer_alternate(1));
    is_none(&mut gateway);
    // Of another connection, by its names; of another host.
    let guessed = Exchange { ids: [71, 73], ..b_to_a() };
    gateway.lets_through(Side::Wire, guessed.load_alternate(ALTERNATE));
    gateway.lets_through(Side::Host, guessed.answer_alternate(0));
    is_none(&mut gateway);
    let stranger = Exchange::of(End { host: 3, ..B }, End { peer: 3, ..A });
    gateway.lets_through(Side::Wire, stranger.load_alternate(ALTERNATE));
    gateway.lets_through(Side::Host, stranger.answer_alternate(0));
    is_none(&mut gateway);
    assert_eq!(gateway.paths(), [0, 0]);
}

#[test]
fn a_newer_path_takes_the_place_of_the_one_before_and_a_disconnect_ends_it() {
    let mut gateway = gateway();
    gateway.connects_and_speaks();
    gateway.loads(ALTERNATE);
    gateway.passes(&[B_ELSEWHERE.write_only(101)]);
    gateway.loads([22, 21]);
    let newer = End { host: 22, peer: 21, ..B };
    gateway.passes(&[newer.write_only(102)]);
    gateway.wait_ms(3_000);
    gateway.drops(&[B_ELSEWHERE.write_only(103)], DropReason::AccessNoConnection);
    gateway.lets_through(Side::Wire, b_to_a().disconnect());
    gateway.wait_ms(3_000);
    for end in [B, newer] {
        gateway.drops(&[end.write_only(103)], DropReason::AccessNoConnection);
    }
}

#[test]
fn a_path_to_what_is_another_connections_takes_nothing_from_it() {
    let mut gateway = gateway();
    gateway.connects_and_speaks();
    // Host 3 owns queue pair 0xa at A's other address, by managers.
    let other = Exchange {
        ids: [81, 82],
        ..Exchange::of(End { host: 3, peer: 11, ..B }, End { host: 11, peer: 3, ..A })
    };
    gateway.lets_through(Side::Wire, other.request());
    gateway.lets_through(Side::Host, other.reply());
    gateway.loads(ALTERNATE);
    gateway.passes(&[other.requester.write_only(100)]);
    gateway.drops(&[B_ELSEWHERE.write_only(101)], DropReason::QpForged);
    assert_eq!(gateway.paths(), [0, 1]);
}

#[test]
fn a_path_takes_nothing_from_a_host_that_never_spoke_and_opens_nothing_to_it() {
    let mut gateway = gateway();
    // B says that host 12's queue pair 0xb, behind A's port, is by its alternate path.
    gateway.lets_through(Side::Wire, b_to_a().request_with(ALTERNATE));
    gateway.lets_through(Side::Host, b_to_a().reply());
    let not_asked = A_ELSEWHERE.send_only(500).bytes();
    gateway.takes(Side::Host, not_asked, Err(DropReason::AccessNoConnection));
    // Host 12, behind A's port, grants a connection of its queue pair 0xb to host 3.
    let host_3 = End { host: 3, peer: 12, to_qp: 0xb, ..B };
    let host_12 = End { host: 12, peer: 3, to_qp: 0xc, ..A };
    let honest = Exchange { ids: [81, 82], ..Exchange::of(host_3, host_12) };
    gateway.connects(&honest);
    gateway.passes(&[host_3.write_only(100)]);
    // The end of B's connection is not the end of that one.
    gateway.lets_through(Side::Wire, b_to_a().disconnect());
    gateway.wait_ms(3_000);
    gateway.passes(&[host_3.write_only(101)]);
}

#[test]
fn a_path_without_a_lid_is_none() {
    let mut gateway = gateway();
    gateway.lets_through(Side::Wire, b_to_a().request_by(ALTERNATE, 0));
    gateway.lets_through(Side::Host, b_to_a().reply());
    gateway.passes(&[B.write_only(100)]);
    gateway.drops(&[B_ELSEWHERE.write_only(101)], DropReason::AccessNoConnection);
    assert_eq!(gateway.paths(), [0, 0]);
}
