use proptest::prelude::*;

use super::*;

fn begun(syn: u32) -> Stream {
    let mut stream = Stream::default();
    stream.begin(syn);
    stream
}

proptest! {
    #[test]
    fn any_order_of_overlapping_segments_gives_the_stream(
        syn: u32,
        cuts in prop::collection::vec((0usize..200, 1usize..60), 1..40),
    ) {
        let data: Vec<u8> = (0..=255).cycle().take(300).collect();
        let mut stream = begun(syn);
        let mut rest: Vec<(usize, usize)> = cuts;
        rest.extend((0..300).step_by(25).map(|at| (at, 25)));
        for (start, len) in rest {
            let end = (start + len).min(data.len());
            let sequence = syn.wrapping_add(1).wrapping_add(start as u32);
            stream.take(sequence, &data[start..end]);
        }
        prop_assert_eq!(stream.window(), (data.as_slice(), 0));
    }
}

#[test]
fn of_bytes_that_come_twice_the_first_count_where_the_receiver_has_it_so() {
    let mut stream = begun(9);
    stream.set_receiver(System::First);
    stream.take(12, b"cd");
    stream.take(11, b"XYZ");
    let taken = stream.take(10, b"a");
    assert_eq!(stream.window().0, b"aXcd");
    assert_eq!((taken.new, taken.gaps), (4, 0));
    assert_eq!(
        stream.take(10, b"zzzz"),
        Taken { is_part: true, differs: true, ..Taken::default() }
    );
}

#[test]
fn any_byte_may_keep_a_connection_alive() {
    let mut stream = begun(9);
    stream.take(10, b"abc");
    assert!(stream.take(12, b"x").differs, "the receiver may lack what it is for");
    stream.acknowledge(13);
    assert!(!stream.take(12, b"y").differs);
    assert!(stream.take(11, b"yz").differs);
}

#[test]
fn what_waits_and_differs_is_kept_where_the_receiver_believes_it() {
    let filled = |system: System| {
        let mut stream = begun(9);
        stream.set_receiver(system);
        stream.take(12, b"CD");
        let taken = stream.take(10, b"abcde");
        assert!(taken.differs && taken.new == 5);
        stream.window().0.to_vec()
    };
    assert_eq!(filled(System::Vista), b"abCDe");
    assert_eq!(filled(System::Bsd), b"abcde");
    // After many others nobody knows what the receiver has.
    let mut stream = begun(9);
    stream.set_receiver(System::Vista);
    stream.take(12, b"CD");
    (0..80).for_each(|it| _ = stream.take(100 + 20 * it, b"."));
    stream.take(10, b"abcde");
    assert_eq!(stream.window().0, b"abcde");
}

#[test]
fn a_byte_counts_if_all_segments_that_came_in_its_place_let_it() {
    let end = |system: System, segments: &[(u32, &[u8])]| {
        let mut stream = begun(9);
        stream.set_receiver(system);
        segments.iter().for_each(|it| _ = stream.take(10 + it.0, it.1));
        String::from_utf8(stream.window().0.to_vec()).unwrap()
    };
    // The third is longer than the first, and lies in the second.
    let within: [(u32, &[u8]); 4] = [(2, b"aaa"), (2, b"ACKxxxxx"), (2, b"zzzzz"), (0, b"..")];
    assert_eq!(end(System::Linux, &within), "..ACKxxxxx");
    assert_eq!(end(System::Last, &within), "..zzzzzxxx");
    // One that was not taken says as much as another of what comes in its place.
    let twice: [(u32, &[u8]); 4] = [(2, b"aaaaaaaa"), (2, b"bbbb"), (2, b"cccc"), (0, b"..")];
    assert_eq!(end(System::OldLinux, &twice), "..aaaaaaaa");
}

#[test]
fn what_the_receiver_has_stays_as_it_is_also_what_waited_for_it() {
    let mut stream = begun(9);
    stream.take(10, b"ab");
    stream.doubt(12, b'E');
    stream.take(13, b"VIL");
    stream.acknowledge(16);
    let taken = stream.take(13, b"xxx");
    assert_eq!((taken.new, stream.window().0), (4, b"abEVIL".as_slice()));
    // Of what waits the receiver has some.
    let mut stream = begun(9);
    stream.take(12, b"CDEF");
    stream.acknowledge(14);
    stream.take(10, b"abcdef");
    assert_eq!(stream.window().0, b"abCDef");
}

#[test]
fn what_was_acknowledged_may_change_until_it_counts_as_looked_at() {
    let mut stream = begun(9);
    stream.set_receiver(System::Last);
    stream.may_change(true);
    stream.take(10, b"abcd");
    stream.acknowledge(14);
    let taken = stream.take(11, b"XYZ");
    assert_eq!((taken.changed, taken.rewritten), (Some(11), 3));
    assert_eq!(stream.window().0, b"aXYZ");
    stream.settle_before(14);
    assert_eq!(stream.take(11, b"123").changed, None);
    assert_eq!(stream.window().0, b"aXYZ");
}

#[test]
fn a_gap_is_given_up_when_the_receiver_has_what_was_missing() {
    let mut stream = begun(9);
    stream.may_miss(true);
    stream.take(10, b"a");
    stream.take(14, b"ef");
    assert_eq!(stream.take(16, b"g").new, 0);
    // The gap is acknowledged and a byte behind it, and then a segment comes behind it.
    stream.acknowledge(15);
    assert_eq!(stream.take(11, b"").new, 3, "nothing of it is to come");
    assert_eq!(stream.window(), (b"efg".as_slice(), 4));

    let mut stream = begun(9);
    stream.may_miss(true);
    stream.take(14, b"ef");
    stream.acknowledge(15);
    // It was only late in the capture.
    assert_eq!(stream.take(10, b"abcd").new, 6);

    let long = vec![7; 3 * WINDOW_LEN];
    let mut stream = begun(9);
    stream.may_miss(true);
    stream.take(14, &long);
    stream.acknowledge(15);
    let taken = stream.take(14 + long.len() as u32, b"g");
    assert_eq!((taken.new, taken.gaps, taken.lost), (long.len() + 1, 1, 4));
    assert_eq!(stream.newest(taken.new).len(), taken.new);

    // Where all go by, no acknowledgment tells of others.
    let mut stream = begun(9);
    stream.take(14, b"ef");
    stream.acknowledge(15);
    assert_eq!(stream.take(16, b"g").new, 0);
}

#[test]
fn more_waits_where_there_is_room() {
    for (may_wait, waits) in [(false, WAITING_MAX), (true, WAITING_LONG_MAX)] {
        let mut stream = begun(0);
        stream.may_wait(may_wait);
        let mut segments = (2..).step_by(1024).map(|at| stream.take(at, &[b'.'; 1024]).gaps);
        assert_eq!(segments.position(|gaps| gaps > 0), Some(waits / 1024));
    }
}

#[test]
fn bytes_that_come_one_by_one_wait_together_in_any_order() {
    let forth = (0..9000_u32).collect::<Vec<_>>();
    let back = forth.iter().rev().copied().collect::<Vec<_>>();
    for order in [forth, back] {
        let mut stream = begun(9);
        for at in order {
            assert_eq!(stream.take(11 + at, &[at as u8]).gaps, 0);
        }
        assert!(stream.waiting.iter().count() < 10);
        assert_eq!(stream.take(10, b".").new, 9001);
    }
}

#[test]
fn a_gap_is_given_up_when_too_much_waits_behind_it() {
    let mut stream = begun(0);
    let piece = vec![7; 1000];
    let mut gaps = 0;
    for index in 0..WAITING_MAX / 1000 + 1 {
        gaps += stream.take(2 + 1000 * index as u32, &piece).gaps;
    }
    assert_eq!(gaps, 1);
    assert!(stream.waiting.is_empty());
}

#[test]
fn or_what_finds_no_room_is_refused() {
    let mut stream = begun(0);
    stream.refuse(Refusals { gaps: true, ..Refusals::default() });
    let piece = vec![7; 1000];
    let refused = |it: usize, stream: &mut Stream| {
        let taken = stream.take(2 + 1000 * it as u32, &piece);
        assert_eq!(taken.gaps, 0);
        taken.refused == Some(Unseen::Gap)
    };
    let full = WAITING_MAX / 1000;
    assert!((0..full).all(|it| !refused(it, &mut stream)));
    assert!(refused(full, &mut stream) && refused(full + 1, &mut stream));
    // The missing byte comes, and what was refused may come again.
    assert_eq!(stream.take(1, &[7]).new, 1 + full * 1000);
    assert!(!refused(full, &mut stream));
}

#[test]
fn other_bytes_in_a_place_are_refused_until_the_receiver_has_acknowledged_it() {
    let mut stream = begun(0);
    stream.refuse(Refusals { conflicts: true, ..Refusals::default() });
    let data: Vec<u8> = (0..=255).cycle().take(60_000).collect();
    for (at, piece) in data.chunks(1000).enumerate() {
        assert_eq!(stream.take(1 + at as u32 * 1000, piece).refused, None);
    }
    // Ahead of the next byte, too.
    stream.take(60_011, b"ahead");
    for at in [0, 1, 30_000, 55_950, 59_950] {
        let mut piece = data[at..(at + 50).min(60_000)].to_vec();
        piece[40] ^= 1;
        let taken = stream.take(1 + at as u32, &piece);
        assert_eq!(taken.refused, Some(Unseen::Conflict), "{at}");
    }
    assert_eq!(stream.take(60_010, b".other").refused, Some(Unseen::Conflict));
    // What is the same, and what was acknowledged, is nothing new.
    assert_eq!(stream.take(30_001, &data[30_000..31_400]).refused, None);
    stream.acknowledge(50_001);
    assert_eq!(stream.take(50_000, b"!").refused, None, "a keepalive");
    assert_eq!(stream.take(49_001, &[7; 1000]).refused, None);
    assert_eq!(stream.take(49_001, &[7; 1001]).refused, Some(Unseen::Conflict));
}

#[test]
fn what_was_said_before_its_beginning_or_far_ahead_is_none_of_it() {
    let of = |is_picked_up: bool| {
        let mut stream = Stream::default();
        stream.refuse(Refusals { conflicts: true, ..Refusals::default() });
        match is_picked_up {
            true => stream.pick_up(100_001),
            false => stream.begin(100_000),
        }
        // The other side speaks, of what was before.
        stream.acknowledge(1000);
        stream
    };
    for at in [99_999, 1000, 100_001_u32.wrapping_sub(AHEAD_MAX + 9)] {
        assert_eq!(of(false).take(at, b"xx").refused, Some(Unseen::Conflict), "{at}");
        assert_eq!(of(true).take(at, b"xx").refused, None, "{at}: its beginning is not known");
    }
    let mut stream = of(false);
    stream.acknowledge(100_001);
    assert_eq!(stream.take(100_000, b"!").refused, None, "a keepalive");
    stream.take(100_001, b"abc");
    assert_eq!(stream.take(100_001, b"abc").refused, None);
}

#[test]
fn what_lies_behind_a_gap_is_looked_at_as_far_as_rules_look() {
    let mut stream = begun(0);
    for at in (2..100_000).step_by(1000) {
        stream.take(at, &[b'a'; 1000]);
    }
    let (_, island) = stream.island(50_002).unwrap();
    let least = 2 * WINDOW_LEN;
    assert!((least..least + 3 * waiting::JOINED_MAX).contains(&island.len()), "in whole pieces");
}

#[test]
fn thousands_of_single_bytes_wait() {
    let mut stream = begun(0);
    let places: Vec<u32> = (2..4000).step_by(2).chain((3..4000).step_by(2)).collect();
    for at in &places {
        assert_eq!(stream.take(*at, &[*at as u8]).gaps, 0);
    }
    let (before, island) = stream.island(2000).unwrap();
    assert_eq!((before, island.len()), (1, places.len()));
    assert_eq!(stream.take(1, &[1]).new, places.len() + 1);
    assert!(stream.window().0.iter().zip(1_u32..).all(|(byte, at)| *byte == at as u8));
}

#[test]
fn the_window_keeps_the_newest_bytes() {
    let mut stream = begun(0);
    let mut sequence = 1;
    for _ in 0..50 {
        stream.take(sequence, &[1; 1000]);
        sequence += 1000;
    }
    let (window, before) = stream.window();
    assert_eq!(window.len() as u64 + before, 50_000);
    assert!(window.len() <= 2 * WINDOW_LEN + 1000);
}
