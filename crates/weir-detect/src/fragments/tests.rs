use proptest::prelude::*;
use weir_wire::checksum::Sum;
use weir_wire::frame::Link;
use weir_wire::parse::parse;

use super::*;

fn piece(offset: u16, more: bool, data: &[u8]) -> Vec<u8> {
    let mut packet = vec![0x45, 0];
    packet.extend((20 + data.len() as u16).to_be_bytes());
    packet.extend([0, 9]);
    packet.extend(((offset / 8) | (u16::from(more) << 13)).to_be_bytes());
    packet.extend([64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
    let checksum = Sum::new().with(&packet).checksum();
    packet[10..12].copy_from_slice(&checksum.to_be_bytes());
    packet.extend(data);
    packet
}

fn take(fragments: &mut Fragments, packet: &[u8]) -> Taken {
    fragments.take(Time(1), packet, &parse(packet, Link::Ip, packet.len() as u32))
}

/// The data of what two pieces that overlap make, and a third ends.
fn overlapped(policy: Policy, first: u16, second: u16) -> Vec<u8> {
    let mut fragments = Fragments::new(policy, 0);
    take(&mut fragments, &piece(first, true, &[b'a'; 16]));
    let told = take(&mut fragments, &piece(second, true, &[b'b'; 16]));
    assert_eq!(told.events, [Event::Ipv4FragmentOverlap]);
    let whole = take(&mut fragments, &piece(24, false, b"cccccccc")).whole.unwrap();
    whole[20..].to_vec()
}

#[test]
fn a_piece_with_a_wrong_header_is_none() {
    for takes_wrong_headers in [false, true] {
        let mut fragments = Fragments::new(Policy::First, 0);
        if takes_wrong_headers {
            fragments.take_wrong_headers();
        }
        let mut wrong = piece(0, true, b"xxxxxxxx");
        wrong[8] ^= 1;
        take(&mut fragments, &wrong);
        take(&mut fragments, &piece(0, true, b"aaaaaaaa"));
        let whole = take(&mut fragments, &piece(8, false, b"b")).whole.unwrap();
        assert_eq!(whole[20..] == *b"aaaaaaaab", !takes_wrong_headers);
    }
}

#[test]
fn systems_differ_in_what_they_believe() {
    let later = b"aaaaaaaaaaaaaaaabbbbbbbbcccccccc";
    let second = b"aaaaaaaabbbbbbbbbbbbbbbbcccccccc";
    assert_eq!(overlapped(Policy::Bsd, 0, 8), later);
    assert_eq!(overlapped(Policy::First, 0, 8), later);
    assert_eq!(overlapped(Policy::Last, 0, 8), second);
    assert_eq!(overlapped(Policy::BsdRight, 0, 8), second);
    let before = b"bbbbbbbbbbbbbbbbaaaaaaaacccccccc";
    assert_eq!(overlapped(Policy::Bsd, 8, 0), before);
    assert_eq!(overlapped(Policy::Linux, 8, 0), before);
    // As Suricata 8.0.7 was seen to believe the first or the second: one that begins before it,
    // with it and behind it, each ending before it, with it and behind it.
    let seconds = [2, 4, 5].map(|start| [6, 8, 10].map(|end| (start, end)));
    for (policy, row) in [
        (Policy::Bsd, "222111111"),
        (Policy::BsdRight, "111222222"),
        (Policy::Linux, "222222111"),
        (Policy::Windows, "112111111"),
        (Policy::Solaris, "122111111"),
        (Policy::First, "111111111"),
        (Policy::Last, "222222222"),
    ] {
        let of = |it: &(usize, usize)| if policy.takes_second((4, 8), *it) { '2' } else { '1' };
        let found: String = seconds.as_flattened().iter().map(of).collect();
        assert_eq!(found, row, "{policy:?}");
    }
}

#[test]
fn a_last_piece_may_stand_for_what_begins_behind_it() {
    for believes_ends in [false, true] {
        for last_first in [false, true] {
            let mut fragments = Fragments::new(Policy::First, 0);
            if believes_ends {
                fragments.believe_ends();
            }
            let mut pieces = [piece(16, true, b"aaaaaaaa"), piece(8, false, &[b'b'; 24])];
            pieces.rotate_left(usize::from(last_first));
            pieces.iter().for_each(|it| _ = take(&mut fragments, it));
            let whole = take(&mut fragments, &piece(0, true, b"cccccccc")).whole.unwrap();
            let is_last_one = whole[20..] == *b"ccccccccbbbbbbbbbbbbbbbbbbbbbbbb";
            assert_eq!(is_last_one, believes_ends || last_first);
        }
    }
}

/// One that ends where the last does, and says that more comes, is not the last.
#[test]
fn the_last_piece_alone_stands_for_what_begins_behind_it() {
    let mut fragments = Fragments::new(Policy::Windows, 0);
    fragments.believe_ends();
    let pieces = [piece(16, false, &[b'a'; 16]), piece(8, true, &[b'b'; 24])];
    pieces.iter().for_each(|it| _ = take(&mut fragments, it));
    let whole = take(&mut fragments, &piece(0, true, b"cccccccc")).whole.unwrap();
    // As Suricata 8.0.7 has it.
    assert_eq!(whole[20..], *b"ccccccccbbbbbbbbaaaaaaaaaaaaaaaa");
}

#[test]
fn one_that_is_too_large_is_told_of_and_left() {
    let mut fragments = Fragments::new(Policy::Bsd, 0);
    let told = take(&mut fragments, &piece(65_528, false, &[0; 64]));
    assert_eq!(told, Taken { events: vec![Event::Ipv4FragmentTooLarge], ..Taken::default() });
    assert_eq!((fragments.bytes, fragments.waiting.len()), (0, 0));
}

#[test]
fn what_is_refused_leaves_nothing_behind() {
    let mut fragments = Fragments::new(Policy::Bsd, 0);
    fragments.refuse_conflicts(true);
    for odd in [piece(0, true, b""), piece(8, true, b"abc")] {
        assert!(take(&mut fragments, &odd).is_refused);
    }
    assert_eq!(fragments.waiting.len(), 0);
    assert!(!take(&mut fragments, &piece(0, true, &[1; 16])).is_refused);
    assert!(take(&mut fragments, &piece(8, true, &[2; 16])).is_refused);
    assert_eq!(fragments.bytes, 3 * 16);
}

/// Linux gives up what it has, and keeps what comes then.
#[test]
fn what_lies_behind_the_end_or_ends_elsewhere_is_refused() {
    for (first, second) in [
        (piece(16, false, &[1; 8]), piece(24, true, &[2; 8])),
        (piece(16, false, &[1; 8]), piece(24, false, &[2; 8])),
        (piece(24, true, &[1; 8]), piece(16, false, &[2; 8])),
        (piece(24, false, &[1; 8]), piece(16, false, &[2; 8])),
    ] {
        let mut fragments = Fragments::new(Policy::Linux, 0);
        fragments.refuse_conflicts(true);
        assert!(!take(&mut fragments, &first).is_refused);
        assert!(take(&mut fragments, &second).is_refused);
    }
}

#[test]
fn a_first_piece_of_ipv6_has_all_headers() {
    const LATER: [u8; 8] = [17, 0, 1, 4, 0, 0, 0, 0];
    for (kind, data, is_whole) in [
        (17, &[0; 8][..], true),
        (6, &[0; 16], false),
        (6, &[0; 24], true),
        (60, &LATER, false),
        (60, &[LATER, [0; 8]].concat(), true),
        (43, &[17, 2, 0, 0, 0, 0, 0, 0], false),
    ] {
        let mut packet = vec![0x60, 0, 0, 0, 0, 8 + data.len() as u8, 44, 64];
        packet.extend([0xfd; 32]);
        packet.extend([kind, 0, 0, 1, 0, 0, 0, 7]);
        packet.extend(data);
        let mut fragments = Fragments::new(Policy::Linux, 0);
        fragments.refuse_conflicts(true);
        assert_eq!(take(&mut fragments, &packet).is_refused, !is_whole, "{kind} {data:?}");
    }
}

#[test]
fn held_pieces_make_room_for_others_in_their_place() {
    let mut fragments = Fragments::new(Policy::Bsd, 0);
    fragments.refuse_conflicts(true);
    fragments.set_held(true);
    let lost = take(&mut fragments, &piece(8, true, b"olderold")).number.unwrap();
    let first = take(&mut fragments, &piece(0, true, b"aaaaaaaa")).number;
    assert_eq!(first, Some(lost), "nobody knows that it is another");
    take(&mut fragments, &piece(8, true, b"bbbbbbbb"));
    let told = GivenUp { number: lost, cause: Cause::Conflict };
    assert_eq!(fragments.take_given_up(), [told]);
    let again = take(&mut fragments, &piece(8, true, b"bbbbbbbb"));
    assert!(!again.is_refused && fragments.take_given_up().is_empty(), "doubled on its way");
    for other in [piece(8, true, b"cccccccc"), piece(8, true, &[b'c'; 16])] {
        let old = fragments.waiting.values().next().unwrap().number;
        let taken = take(&mut fragments, &other);
        assert_ne!(taken.number, Some(old));
        let told = GivenUp { number: old, cause: Cause::Conflict };
        assert_eq!(fragments.take_given_up(), [told]);
    }
}

#[test]
fn pieces_of_any_lengths_and_marks_make_a_datagram_if_they_go_one_way() {
    let ethernet = |mac: u8, packet: &[u8]| {
        [&[2, 0, 0, 0, 0, mac, 2, 0, 0, 0, 0, 9, 8, 0][..], packet].concat()
    };
    let marked = |mut packet: Vec<u8>, place: usize, by: u8| {
        packet[place] ^= by;
        packet[10..12].fill(0);
        let checksum = Sum::new().with(&packet[..20]).checksum();
        packet[10..12].copy_from_slice(&checksum.to_be_bytes());
        packet
    };
    let (first, last) = (piece(0, true, b"aaaaaaaa"), piece(8, false, b"bbb"));
    let congested = marked(last.clone(), 1, 3);
    let elsewhere = marked(last.clone(), 8, 1);
    for (link, frames, is_whole) in [
        (Link::Ip, [first.clone(), last.clone()], true),
        (Link::Ip, [first.clone(), congested], true),
        (Link::Ip, [first.clone(), elsewhere], false),
        (Link::Ethernet, [ethernet(1, &first), ethernet(1, &last)], true),
        (Link::Ethernet, [ethernet(1, &first), ethernet(3, &last)], false),
    ] {
        let mut fragments = Fragments::new(Policy::Bsd, 0);
        fragments.refuse_conflicts(true);
        fragments.set_held(true);
        let taken =
            frames.map(|it| fragments.take(Time(1), &it, &parse(&it, link, it.len() as u32)));
        assert_eq!(taken[1].whole.is_some(), is_whole, "{taken:?}");
    }
}

#[test]
fn who_holds_pieces_is_told_which_wait_in_vain() {
    let mut fragments = Fragments::new(Policy::Bsd, 0);
    fragments.set_held(true);
    let numbers: Vec<_> = (0..DATAGRAMS_MAX + 1)
        .map(|id| {
            let mut first = piece(0, true, &[1; 8]);
            first[4..6].copy_from_slice(&(id as u16).to_be_bytes());
            first[10..12].fill(0);
            let checksum = Sum::new().with(&first[..20]).checksum();
            first[10..12].copy_from_slice(&checksum.to_be_bytes());
            take(&mut fragments, &first).number.expect("it is a piece")
        })
        .collect();
    let told = [GivenUp { number: numbers[0], cause: Cause::Room }];
    assert_eq!(fragments.take_given_up(), told, "the oldest made room");
    assert_eq!(fragments.take_given_up(), []);
    fragments.expire(Time(HELD_QUIET_NS));
    assert_eq!(fragments.take_given_up(), [], "the others have time");
    fragments.expire(Time(HELD_QUIET_NS + 2));
    let late = numbers[1..].iter().map(|it| GivenUp { number: *it, cause: Cause::Late });
    assert_eq!(fragments.take_given_up(), late.collect::<Vec<_>>());
    assert_eq!(fragments.bytes, 0);
}

proptest! {
    #[test]
    fn what_waits_is_counted_and_bounded(
        pieces in prop::collection::vec(
            (0u16..4000, any::<bool>(), 0usize..60, any::<u16>()),
            1..60,
        ),
    ) {
        let mut fragments = Fragments::new(Policy::Windows, 0);
        for (offset, more, length, id) in pieces {
            let mut packet = piece(offset * 8, more, &vec![1; length]);
            packet[4..6].copy_from_slice(&(id % 8).to_be_bytes());
            take(&mut fragments, &packet);
        }
        let sum: usize = fragments.waiting.values().map(|it| it.data.len()).sum();
        prop_assert_eq!(fragments.bytes, 3 * sum);
    }
}
