use super::*;
use crate::access::direction::Aparts;
use crate::rdma::ConversationHandle;

fn at(seconds: u64) -> Time {
    Time(1_700_000_000_000_000_000 + seconds * NS_PER_S)
}

const ONE: Count = Count { least: 1, most: 1 };

/// A window, and what is beside it.
struct Stream(Window, Aparts, Windows);

impl Stream {
    fn at(psn: u32) -> Self {
        Self(Window::new(Psn::new(psn), at(0)), Aparts::new(1), Windows::default())
    }

    fn place(aparts: &mut Aparts) -> Place<'_> {
        Place { aparts, conversation: ConversationHandle::FIRST, direction: 0 }
    }

    /// Whether a request passes.
    fn asks(&mut self, psn: u32, count: Count, seconds: u64) -> bool {
        let Self(window, aparts, windows) = self;
        let (mut place, asked) = (Self::place(aparts), (Psn::new(psn), count));
        windows.request(PsnCheck::Drop, window, &mut place, asked, at(seconds))
    }

    /// Whether an answer does.
    fn answers(&mut self, psn: u32, seconds: u64) -> bool {
        let Self(window, aparts, windows) = self;
        let mut place = Self::place(aparts);
        windows.response(PsnCheck::Drop, window, &mut place, Psn::new(psn), at(seconds))
    }

    fn holds(&mut self, psn: u32) -> bool {
        self.0.holds(Psn::new(psn), &mut Self::place(&mut self.1))
    }

    fn next(&self) -> u32 {
        self.0.next().value()
    }
}

#[test]
fn a_window_holds_what_may_come_and_wraps() {
    let mut stream = Stream::at(5);
    for (psn, holds) in [
        (5, true),
        (4, true),
        (0xff_fff0, true),
        (65_000, true),
        (70_000, false),
        (0xff_ffff - 70_000, false),
        (0x80_0000, false),
    ] {
        assert_eq!(stream.holds(psn), holds, "{psn:#x}");
    }
    assert!(stream.asks(5, Count { least: 1 << 20, most: 1 << 20 }, 0));
    assert_eq!(stream.next(), 5 + (1 << 20));
    assert!(stream.holds(6), "the READ goes on where it was lost");
}

#[test]
fn who_hits_a_window_by_chance_does_not_take_it_along() {
    let mut stream = Stream::at(5);
    assert!(stream.asks(5, ONE, 0) && stream.answers(5, 0));
    let read = Count { least: 1 << 20, most: 1 << 22 };
    let swept = (60_000..200_000).step_by(7);
    let passed = swept.filter(|psn| stream.asks(*psn, read, 0)).count();
    assert_eq!((stream.next(), passed), (6, (65_541 - 60_000_usize).div_ceil(7)));
    // What was overtaken, and then acknowledged, has come.
    assert!(stream.asks(90, ONE, 0) && stream.answers(90, 0));
    assert_eq!(stream.next(), 91);
}

#[test]
fn answers_to_what_nobody_asked_take_a_window_nowhere() {
    let mut stream = Stream::at(5);
    assert!(stream.asks(5, ONE, 0) && stream.answers(5, 0));
    for psn in (0..1 << 24).step_by(60_000) {
        stream.answers(psn, 0);
    }
    assert_eq!(stream.next(), 6);
    assert!(stream.asks(6, ONE, 0) && stream.answers(6, 0));
    assert_eq!(stream.next(), 7);
}

#[test]
fn a_read_of_an_unknown_path_is_answered_up_to_where_it_may_end() {
    let mut stream = Stream::at(5);
    assert!(stream.asks(5, Count { least: 4, most: 64 }, 0));
    assert_eq!(stream.next(), 9);
    assert!((5..37).all(|psn| stream.answers(psn, 0)));
    assert_eq!(stream.next(), 37);
    assert!(stream.answers(200, 0));
    assert_eq!(stream.next(), 69, "and no further");
}

#[test]
fn a_window_yields_after_a_silence_and_not_before() {
    let window = Window::new(Psn::new(5), at(0));
    assert!(window.has_begun() && !Window::default().has_begun());
    assert!((0..12).all(|seconds| !window.is_silent(at(seconds))));
    assert!((18..40).all(|seconds| window.is_silent(at(seconds))));
}

#[test]
fn a_queue_pair_that_is_set_up_again_is_believed_when_it_is_answered() {
    let mut stream = Stream::at(5);
    assert!(stream.asks(5, ONE, 0) && stream.answers(5, 0));
    assert!(!stream.asks(0x80_0000, ONE, 5), "its owner spoke a moment ago");
    assert!(stream.asks(0x80_0000, ONE, 20) && stream.asks(0x80_0001, ONE, 20));
    assert_eq!(stream.next(), 6);
    assert!(stream.answers(0x80_0000, 20));
    assert_eq!(stream.next(), 0x80_0002);
    assert!(!stream.asks(6, ONE, 21));
}

#[test]
fn nobody_shuts_the_owner_out_by_a_packet_in_its_name() {
    let mut stream = Stream::at(5);
    assert!(stream.asks(5, ONE, 0) && stream.answers(5, 0));
    // After a rest one number passes, those near it, and another after 13 s.
    for seconds in 20..200 {
        let passed = (1..10).filter(|it| stream.asks(it * 1_000_000, ONE, seconds)).count();
        assert!(passed <= 1, "{passed} after {seconds} s");
    }
    assert!(stream.asks(6, ONE, 200) && stream.answers(6, 200));
    assert!(stream.asks(7, ONE, 200));
    assert_eq!(stream.next(), 8);
    // Numbers that nobody confirmed have no claim against others.
    let mut stream = Stream::at(0x80_0000);
    assert!(stream.asks(0x80_0000, ONE, 0), "somebody was first");
    assert!(stream.asks(5, ONE, 1) && stream.answers(5, 1));
    assert_eq!(stream.next(), 6);
}

#[test]
fn an_attack_wakes_the_filter_and_a_quiet_minute_ends_it() {
    let mut windows = Windows::default();
    let mut pass = |count: u32, seconds| {
        (0..count).filter(|_| windows.passes(PsnCheck::UnderAttack, at(seconds))).count()
    };
    assert_eq!([pass(63, 0), pass(63, 1), pass(100, 3)], [63, 63, 63]);
    assert_eq!([pass(1, 50), pass(1, 109)], [0, 0], "each prolongs it");
    assert_eq!([pass(1, 170), pass(63, 171)], [1, 63]);
}
