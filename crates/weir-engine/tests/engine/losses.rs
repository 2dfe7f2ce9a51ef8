//! Whose fault a loss is: crafted sequence numbers, lost and overtaken on each side of the gateway.

use std::collections::VecDeque;

use super::talk::{A, B, Packet, Talk};
use proptest::prelude::*;
use weir_engine::meter::{ConversationRecord, LossTotals, MeterLimits, Reason};
use weir_engine::rdma::{LossWay, Losses};
use weir_engine::verdict::Side;

/// A gateway's meter: A is its host, B beyond the wire.
fn gateway() -> Talk {
    Talk { has_sides: true, ..Talk::new(MeterLimits::default()) }
}

fn heard(packets: impl IntoIterator<Item = Packet>) -> Talk {
    let mut talk = gateway();
    talk.hear(packets);
    talk
}

/// What is charged to A's packets and to B's.
fn charged(talk: &Talk) -> [Losses; 2] {
    let mut losses = [Losses::default(); 2];
    for one in talk.meter.conversations().iter() {
        let record = ConversationRecord::of(one, Reason::Flushed);
        for direction in record.directions() {
            let from = direction.key.source()[15];
            losses[usize::from(from - 1)] = direction.counters.losses;
        }
    }
    losses
}

const NONE: Losses = Losses { before: 0, inside: 0, after: 0, overtaken: 0 };

#[track_caller]
fn assert_charged(talk: &Talk, from_a: Losses, from_b: Losses) {
    assert_eq!(charged(talk), [from_a, from_b]);
    let totals = talk.meter.totals().rdma.losses;
    let of = |it: Losses| LossTotals {
        before: it.before.into(),
        inside: it.inside.into(),
        after: it.after.into(),
        overtaken: it.overtaken.into(),
    };
    assert_eq!(totals, [of(from_a), of(from_b)], "the totals say the same");
}

/// 10 passes and is answered.
fn begun() -> Talk {
    heard([A.write_only(10), B.ack(10)])
}

mod before {
    use super::*;

    #[test]
    fn a_number_that_never_came_was_lost_before_us_and_its_repetition_changes_nothing() {
        let mut talk = begun();
        talk.hear([A.write_only(12), B.nak(11, 0)]);
        talk.hear([A.write_only(11), A.write_only(12), B.ack(12), A.write_only(13), B.ack(13)]);
        assert_charged(&talk, Losses { before: 1, ..NONE }, NONE);
        assert_eq!(talk.meter.totals().rdma.lost_at(Side::Host), 1);
        assert_eq!(talk.meter.totals().rdma.lost_at(Side::Wire), 0);
    }

    #[test]
    fn a_packet_that_comes_late_and_unrefused_was_overtaken_before_us() {
        let mut talk = begun();
        talk.hear([A.write_only(12), A.write_only(11), B.ack(12)]);
        assert_charged(&talk, Losses { overtaken: 1, ..NONE }, NONE);
    }

    #[test]
    fn the_refusal_and_repetition_that_reordering_causes_are_nobody_s_loss() {
        let mut talk = begun();
        talk.hear([A.write_only(12), A.write_only(11), B.nak(11, 0)]);
        talk.hear([A.write_only(11), A.write_only(12), B.ack(12)]);
        assert_charged(&talk, Losses { overtaken: 1, ..NONE }, NONE);
    }

    #[test]
    fn a_packet_that_comes_after_a_timeout_was_lost_although_nobody_refused() {
        let mut talk = begun();
        talk.hear([A.write_only(12)]);
        talk.wait_ms(70);
        talk.hear([A.write_only(11), A.write_only(12), B.ack(12)]);
        assert_charged(&talk, Losses { before: 1, ..NONE }, NONE);
    }

    #[test]
    fn a_repetition_that_lacks_a_number_lost_it_before_us_if_it_is_refused() {
        let mut talk = begun();
        talk.hear([A.write_only(11), A.write_only(12), A.write_only(13), B.nak(11, 0)]);
        talk.hear([A.write_only(11), A.write_only(13), B.nak(12, 0)]);
        talk.hear([A.write_only(12), A.write_only(13), B.ack(13)]);
        assert_charged(&talk, Losses { before: 1, after: 1, ..NONE }, NONE);
    }

    #[test]
    fn a_hole_in_a_read_response_was_lost_between_the_responder_and_us() {
        let mut talk = heard([A.read(5, 4096), B.read_first(5)]);
        talk.hear([B.read_middle(6), B.read_last(8)]);
        talk.hear([A.read(7, 2048), B.read_first(7), B.read_last(8)]);
        assert_charged(&talk, NONE, Losses { before: 1, ..NONE });
        assert_eq!(talk.meter.totals().rdma.lost_at(Side::Wire), 1);
    }

    #[test]
    fn unreliable_connections_never_repeat_so_what_is_late_was_overtaken() {
        let mut talk = gateway();
        talk.hear([A.uc_send_only(1), A.uc_send_only(4), A.uc_send_only(2)]);
        talk.wait_ms(500);
        talk.hear([A.uc_send_only(5), A.uc_send_only(5)]);
        assert_charged(&talk, Losses { before: 1, overtaken: 1, ..NONE }, NONE);
    }
}

mod after {
    use super::*;

    #[test]
    fn a_refusal_of_what_passed_in_its_place_was_lost_behind_us() {
        let mut talk = begun();
        talk.hear([A.write_only(11), A.write_only(12), B.nak(11, 0), B.nak(11, 0)]);
        talk.hear([A.write_only(11), A.write_only(12), B.ack(12)]);
        assert_charged(&talk, Losses { after: 1, ..NONE }, NONE);
        assert_eq!(talk.meter.totals().rdma.lost_at(Side::Wire), 1);
        assert_eq!(talk.meter.totals().rdma.lost_at(Side::Host), 0);
    }

    #[test]
    fn each_time_that_it_is_lost_again_counts() {
        let mut talk = begun();
        for _ in 0..3 {
            talk.hear([A.write_only(11), A.write_only(12), B.nak(11, 0)]);
        }
        talk.hear([A.write_only(11), A.write_only(12), B.ack(12)]);
        assert_charged(&talk, Losses { after: 3, ..NONE }, NONE);
    }

    #[test]
    fn a_packet_lost_before_us_and_then_behind_us_is_charged_to_both() {
        let mut talk = begun();
        talk.hear([A.write_only(12), B.nak(11, 0), A.write_only(11), A.write_only(12)]);
        talk.hear([B.nak(11, 0), A.write_only(11), A.write_only(12), B.ack(12)]);
        assert_charged(&talk, Losses { before: 1, after: 1, ..NONE }, NONE);
    }

    #[test]
    fn an_unasked_repetition_of_what_was_not_answered_was_lost_behind_us() {
        let mut talk = begun();
        talk.hear([A.write_only(11), A.write_only(12)]);
        talk.wait_ms(70);
        talk.hear([A.write_only(11), A.write_only(12), B.ack(12)]);
        assert_charged(&talk, Losses { after: 1, ..NONE }, NONE);
    }

    #[test]
    fn a_repetition_of_what_was_answered_here_lost_its_answer_on_the_requester_s_side() {
        let mut talk = begun();
        talk.hear([A.write_only(11), B.ack(11)]);
        talk.wait_ms(70);
        talk.hear([A.write_only(11), B.ack(11)]);
        assert_charged(&talk, NONE, Losses { after: 1, ..NONE });
        assert_eq!(talk.meter.totals().rdma.lost_at(Side::Host), 1);
    }

    #[test]
    fn a_read_asked_again_in_its_middle_lost_a_response_behind_us() {
        // The path MTU is known, and so which numbers the responses use.
        let mut talk = heard([A.write_first(3), A.write_last(4), A.read(5, 4096)]);
        talk.hear([B.read_first(5), B.read_middle(6), B.read_middle(7), B.read_last(8)]);
        talk.hear([A.read(7, 2048), B.read_first(7), B.read_last(8)]);
        assert_charged(&talk, NONE, Losses { after: 1, ..NONE });
    }

    #[test]
    fn a_receiver_that_was_not_ready_lost_nothing() {
        let mut talk = begun();
        talk.hear([A.write_only(11), B.rnr(11)]);
        talk.wait_ms(5);
        talk.hear([A.write_only(11), B.ack(11)]);
        assert_charged(&talk, NONE, NONE);
    }

    #[test]
    fn a_repetition_whose_answers_take_another_way_is_charged_to_nobody() {
        let mut talk = heard([A.write_only(11), A.write_only(12)]);
        talk.wait_ms(70);
        talk.hear([A.write_only(11), A.write_only(12)]);
        assert_charged(&talk, NONE, NONE);
    }
}

mod inside {
    use super::*;

    #[test]
    fn a_packet_that_the_gateway_dropped_is_its_own_loss_and_nobody_else_s() {
        let mut talk = begun();
        talk.drop(A.write_only(11));
        talk.hear([A.write_only(12), B.nak(11, 0)]);
        talk.hear([A.write_only(11), A.write_only(12), B.ack(12)]);
        assert_charged(&talk, Losses { inside: 1, ..NONE }, NONE);
    }

    #[test]
    fn so_is_an_answer() {
        let mut talk = begun();
        talk.hear([A.write_only(11)]);
        talk.drop(B.ack(11));
        talk.wait_ms(70);
        talk.hear([A.write_only(11), B.ack(11)]);
        assert_charged(&talk, NONE, Losses { inside: 1, ..NONE });
    }

    #[test]
    fn gaps_after_a_full_ring_are_charged_to_us_as_many_as_were_lost_there() {
        let mut talk = begun();
        talk.meter.note_own_loss(LossWay::In, Side::Host, 2, talk.now);
        talk.hear([A.write_only(14), B.nak(11, 0)]);
        assert_charged(&talk, Losses { before: 1, inside: 2, ..NONE }, NONE);
    }

    #[test]
    fn a_ring_that_was_full_on_the_other_side_or_long_ago_excuses_nobody() {
        let mut talk = begun();
        talk.meter.note_own_loss(LossWay::In, Side::Wire, 5, talk.now);
        talk.meter.note_own_loss(LossWay::In, Side::Host, 5, talk.now);
        talk.wait_ms(1500);
        talk.hear([A.write_only(12), B.nak(11, 0)]);
        assert_charged(&talk, Losses { before: 1, ..NONE }, NONE);
    }

    #[test]
    fn a_refusal_after_the_port_would_not_send_is_ours() {
        let mut talk = begun();
        talk.hear([A.write_only(11), A.write_only(12)]);
        talk.meter.note_own_loss(LossWay::Out, Side::Wire, 1, talk.now);
        talk.hear([B.nak(11, 0), A.write_only(11), A.write_only(12), B.ack(12)]);
        assert_charged(&talk, Losses { inside: 1, ..NONE }, NONE);
    }
}

/// A requester that goes back to what is refused, or to what is not answered after a timeout, and a
/// responder that refuses a gap once, on links that lose.
struct Stream {
    talk: Talk,
    next: u32,
    expected: u32,
    has_refused: bool,
    /// Refusals under way to the requester.
    back: VecDeque<(u32, u32)>,
    step: u32,
}

impl Stream {
    fn step(&mut self, is_lost_before: bool, is_lost_after: bool) {
        const DELAY: u32 = 3;
        const WINDOW: u32 = 8;
        self.step += 1;
        if let Some((_, psn)) = self.back.pop_front_if(|(due, _)| *due <= self.step) {
            self.next = psn;
        }
        if self.next >= self.expected + WINDOW {
            self.talk.wait_ms(70);
            self.back.clear();
            self.next = self.expected;
        }
        let psn = self.next;
        self.next += 1;
        if is_lost_before {
            return;
        }
        self.talk.hear([A.write_only(psn)]);
        if is_lost_after {
            return;
        }
        if psn <= self.expected {
            self.expected = self.expected.max(psn + 1);
            self.has_refused = false;
            self.talk.hear([B.ack(psn)]);
        } else if !std::mem::replace(&mut self.has_refused, true) {
            self.talk.hear([B.nak(self.expected, 0)]);
            self.back.push_back((self.step + DELAY, self.expected));
        }
    }
}

proptest! {
    /// Whatever is lost, and however often: the side that lost nothing is charged with nothing.
    #[test]
    fn a_side_that_loses_nothing_is_never_charged(
        fates in prop::collection::vec(0u8..10, 20..400),
        is_behind in any::<bool>(),
    ) {
        let talk = begun();
        let mut stream = Stream {
            talk,
            next: 11,
            expected: 11,
            has_refused: false,
            back: VecDeque::new(),
            step: 0,
        };
        let mut lost = 0;
        for fate in fates {
            let is_lost = fate == 0;
            lost += u32::from(is_lost);
            stream.step(is_lost && !is_behind, is_lost && is_behind);
        }
        // Whatever was lost last shows when what follows arrives.
        (0..40).for_each(|_| stream.step(false, false));
        let [from_a, from_b] = charged(&stream.talk);
        prop_assert_eq!(from_b, NONE);
        prop_assert_eq!(from_a.inside, 0);
        // Where most is lost, a repetition may pass for a packet that was overtaken: before us too.
        let before = from_a.before + from_a.overtaken;
        let (guilty, innocent) = match is_behind {
            true => (from_a.after, before),
            false => (before, from_a.after),
        };
        prop_assert_eq!(innocent, 0);
        prop_assert!(guilty <= lost && (guilty > 0) == (lost > 0), "{} of {}", guilty, lost);
    }
}
