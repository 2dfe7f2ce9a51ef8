//! ESP read as its specification: what is sealed opens, what was touched does not, and nothing
//! repeats over any crash.

use std::collections::BTreeSet;

use super::buffers::Packet;
use proptest::prelude::*;
use weir_engine::esp::nonce::RESERVATION_BLOCK;
use weir_engine::esp::open::{OpenError, OpeningSa, OpeningState};
use weir_engine::esp::sa::{AeadKey, SaError, SaParameters, Salt, Sequence, Spi};
use weir_engine::esp::seal::{SealError, SealingSa, SealingState};
use weir_engine::esp::{esp_len, next_header};
use weir_engine::verdict::DropReason;
use weir_wire::frame::{Frame, Meta};

#[test]
fn sealed_packets_open_to_what_they_were() {
    for parameters in all_parameters() {
        let (mut sealing, mut opening) = pair(&parameters);
        for len in (0..70).chain([1400, 4096, 8900, 65_000]) {
            let inner = pattern(len);
            let mut packet = Packet::new(&inner);
            packet.seal(&mut sealing, next_header::IPV4).unwrap();
            assert_eq!(packet.bytes().len(), esp_len(len));
            assert!(len < 16 || !contains(packet.bytes(), &inner[..16]), "nothing stays in clear");
            let opened = packet.open(&mut opening).unwrap();
            assert_eq!(opened.next_header, next_header::IPV4);
            assert_eq!(packet.bytes(), inner);
        }
    }
}

#[test]
fn the_three_ways_to_seal_give_the_same_bytes() {
    for parameters in all_parameters() {
        for len in (0..40).chain([1400, 8900]) {
            let inner = pattern(len);
            let mut packet = Packet::new(&inner);
            packet.seal(&mut pair(&parameters).0, next_header::IPV6).unwrap();
            let mut out = vec![0xee; esp_len(len)];
            let (first, second) = inner.split_at(len / 3);
            let pieces = [first, &[], second];
            let count = pair(&parameters).0.seal_pieces(&pieces, next_header::IPV6, &mut out);
            assert_eq!((count, &out[..]), (Ok(esp_len(len)), packet.bytes()));
            out.fill(0xee);
            let count = pair(&parameters).0.seal_to(&inner, next_header::IPV6, &mut out);
            assert_eq!((count, &out[..]), (Ok(esp_len(len)), packet.bytes()));
        }
    }
}

#[test]
fn any_flipped_bit_is_refused() {
    for parameters in all_parameters() {
        let (mut sealing, mut opening) = pair(&parameters);
        let mut sealed = Packet::new(&pattern(21));
        sealed.seal(&mut sealing, next_header::IPV4).unwrap();
        for bit in 0..sealed.bytes().len() * 8 {
            let mut touched = Packet::new(sealed.bytes());
            touched.bytes_mut()[bit / 8] ^= 1 << (bit % 8);
            let expected = match bit / 8 {
                0..4 => OpenError::WrongSpi,
                // A number changed from 1 to 0 is one that no sender uses.
                4..8 if bit == 56 => OpenError::ReplayOld,
                // With extended numbering a high bit set lies "before the first" (App. A2).
                4..8 if parameters.extended_sequence && far_ahead(&touched) => OpenError::ReplayOld,
                _ => OpenError::Authentication,
            };
            assert_eq!(touched.open(&mut opening), Err(expected), "bit {bit}");
        }
        assert!(sealed.open(&mut opening).is_ok(), "forgeries did not move the window");
    }
}

#[test]
fn any_cut_is_refused() {
    let (mut sealing, mut opening) = pair(&parameters(32, true));
    let mut sealed = Packet::new(&pattern(50));
    sealed.seal(&mut sealing, next_header::IPV4).unwrap();
    for len in 0..sealed.bytes().len() {
        let expected = if len < 36 || !len.is_multiple_of(4) {
            OpenError::Malformed
        } else {
            OpenError::Authentication
        };
        let mut cut = Packet::new(&sealed.bytes()[..len]);
        assert_eq!(cut.open(&mut opening), Err(expected), "{len} bytes");
    }
    let mut longer = Packet::new(&[sealed.bytes(), &[0; 4]].concat());
    assert_eq!(longer.open(&mut opening), Err(OpenError::Authentication));
}

#[test]
fn another_key_salt_or_numbering_is_refused() {
    let ours = parameters(32, true);
    let mut other_key = ours.clone();
    other_key.key = AeadKey::new(&[9; 32]).unwrap();
    let mut other_salt = ours.clone();
    other_salt.salt = Salt::new([9; 4]);
    let mut other_numbering = ours.clone();
    other_numbering.extended_sequence = false;
    for other in [other_key, other_salt, other_numbering] {
        let mut sealed = Packet::new(&pattern(50));
        sealed.seal(&mut pair(&ours).0, next_header::IPV4).unwrap();
        assert_eq!(sealed.open(&mut pair(&other).1), Err(OpenError::Authentication));
    }
}

#[test]
fn replayed_and_old_packets_are_refused_each_by_its_name() {
    let (mut sealing, mut opening) = pair(&parameters(32, true));
    let sealed: Vec<Packet> = (0..1100)
        .map(|number| {
            let mut packet = Packet::new(&pattern(number % 50));
            packet.seal(&mut sealing, next_header::IPV4).unwrap();
            packet
        })
        .collect();
    let mut open = |index: usize| Packet::new(sealed[index].bytes()).open(&mut opening);
    assert!(open(1099).is_ok());
    assert_eq!(open(1099), Err(OpenError::ReplayDuplicate));
    assert!(open(1099 - 1023).is_ok(), "the window's last");
    assert_eq!(open(1099 - 1023), Err(OpenError::ReplayDuplicate));
    assert_eq!(open(1099 - 1024), Err(OpenError::ReplayOld));
}

#[test]
fn every_error_has_its_own_drop_reason() {
    let reasons = [
        DropReason::from(OpenError::Malformed),
        DropReason::from(OpenError::WrongSpi),
        DropReason::from(OpenError::ReplayOld),
        DropReason::from(OpenError::ReplayDuplicate),
        DropReason::from(OpenError::Authentication),
        DropReason::from(OpenError::Trailer),
        DropReason::from(SealError::NotReserved),
        DropReason::from(SealError::Exhausted),
        DropReason::from(SealError::NoRoom),
        DropReason::from(SealError::Cipher),
    ];
    let names: BTreeSet<&str> = reasons.iter().map(|reason| reason.name()).collect();
    assert_eq!(names.len(), reasons.len());
}

#[test]
fn dummy_packets_are_told() {
    let (mut sealing, mut opening) = pair(&parameters(16, false));
    let mut packet = Packet::new(&pattern(100));
    packet.seal(&mut sealing, next_header::DUMMY).unwrap();
    assert!(packet.open(&mut opening).unwrap().is_dummy());
}

#[test]
fn a_frame_without_room_is_left_as_it_was() {
    let (mut sealing, _) = pair(&parameters(32, true));
    let inner = pattern(40);
    let before = sealing.next_sequence();
    for (headroom, tailroom) in [(15, 64), (16, 17), (0, 0)] {
        let mut buffer = [&vec![0; headroom][..], &inner, &vec![0; tailroom]].concat();
        let end = headroom + inner.len();
        let mut frame = Frame::new(&mut buffer, headroom, end, Meta::default());
        assert_eq!(sealing.seal(&mut frame, next_header::IPV4), Err(SealError::NoRoom));
        assert_eq!(frame.bytes(), inner);
    }
    let mut short = vec![0; esp_len(40) - 1];
    assert_eq!(sealing.seal_to(&inner, 4, &mut short), Err(SealError::NoRoom));
    assert_eq!(sealing.seal_pieces(&[&inner], 4, &mut short), Err(SealError::NoRoom));
    assert_eq!(sealing.next_sequence(), before, "no number was wasted");
}

#[test]
fn numbering_ends_and_never_wraps() {
    for (extended, end) in [(false, 1 << 32), (true, u64::MAX)] {
        let parameters = parameters(32, extended);
        let fingerprint = parameters.fingerprint();
        let kept = SealingState { fingerprint, reserved_until: end - 1 };
        let mut sealing = SealingSa::new(&parameters, Some(&kept)).unwrap();
        let mut seal = || Packet::new(&pattern(40)).seal(&mut sealing, next_header::IPV4);
        assert_eq!(seal(), Err(SealError::NotReserved));
        sealing.extend_reservation(&sealing.reservation_needed().unwrap());
        let mut seal = || Packet::new(&pattern(40)).seal(&mut sealing, next_header::IPV4);
        assert_eq!(seal(), Ok(()));
        assert_eq!(seal(), Err(SealError::Exhausted));
    }
}

#[test]
fn extended_numbers_cross_their_32_bit_border() {
    let parameters = parameters(32, true);
    let fingerprint = parameters.fingerprint();
    let kept = SealingState { fingerprint, reserved_until: (1 << 32) - 700 };
    let mut sealing = SealingSa::new(&parameters, Some(&kept)).unwrap();
    sealing.extend_reservation(&sealing.reservation_needed().unwrap());
    let mut opening = OpeningSa::new(&parameters, None).unwrap();
    let mut late = Vec::new();
    for number in (1_u64 << 32) - 700..(1 << 32) + 700 {
        let mut packet = Packet::new(&pattern(30));
        packet.seal(&mut sealing, next_header::IPV4).unwrap();
        if number % 3 == 0 {
            late.push((number, packet));
            continue;
        }
        let opened = packet.open(&mut opening).expect("near the border");
        assert_eq!(opened.sequence, Sequence(number));
        if late.len() > 150 {
            let (number, mut packet) = late.remove(0);
            let opened = packet.open(&mut opening).expect("late, but inside the window");
            assert_eq!(opened.sequence, Sequence(number));
        }
    }
}

#[test]
fn a_receiver_that_lost_its_state_finds_a_sender_far_ahead() {
    let parameters = parameters(32, true);
    let fingerprint = parameters.fingerprint();
    for start in [(1 << 32) - 1, 1 << 32, (5 << 32) + 77, u64::MAX - 2] {
        let kept = SealingState { fingerprint, reserved_until: start };
        let mut sealing = SealingSa::new(&parameters, Some(&kept)).unwrap();
        sealing.extend_reservation(&sealing.reservation_needed().unwrap());
        let mut opening = OpeningSa::new(&parameters, None).unwrap();
        let mut packet = Packet::new(&pattern(30));
        packet.seal(&mut sealing, next_header::IPV4).unwrap();
        let mut replayed = Packet::new(packet.bytes());
        assert_eq!(packet.open(&mut opening).map(|o| o.sequence), Ok(Sequence(start)));
        assert_eq!(replayed.open(&mut opening), Err(OpenError::ReplayDuplicate));
    }
}

#[test]
fn state_of_another_key_is_refused() {
    let ours = parameters(32, true);
    let mut theirs = ours.clone();
    theirs.key = AeadKey::new(&[9; 32]).unwrap();
    let (sealing, mut opening) = pair(&theirs);
    let refused = SealingSa::new(&ours, Some(&sealing.state()));
    assert!(matches!(refused, Err(SaError::StateForeign { .. })));
    let mut state = opening.empty_state();
    opening.snapshot(&mut state);
    assert!(matches!(OpeningSa::new(&ours, Some(&state)), Err(SaError::StateForeign { .. })));
}

/// What a gateway does with an association's life.
#[derive(Clone, Debug)]
enum Step {
    Seal(u16),
    /// Write the new mark, then use it: the only order there is.
    Reserve,
    /// kill -9 after the mark was written and before it was used.
    ReserveAndDie,
    Restart,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        8 => (1_u16..2000).prop_map(Step::Seal),
        2 => Just(Step::Reserve),
        1 => Just(Step::ReserveAndDie),
        1 => Just(Step::Restart),
    ];
    prop::collection::vec(step, 1..60)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    /// The nonce is the salt and the whole number, the key never changes: that no IV repeats on
    /// the wire over any interleaving of seal, kill and restart is that no (key, nonce) pair does.
    #[test]
    fn no_nonce_repeats_over_any_crash(steps in steps(), extended in any::<bool>()) {
        let parameters = parameters(32, extended);
        let mut disk: Vec<u8> = Vec::new();
        let boot = |disk: &[u8]| {
            let kept = SealingState::decode(disk).ok();
            SealingSa::new(&parameters, kept.as_ref()).unwrap()
        };
        let mut sealing = boot(&disk);
        let mut used = BTreeSet::new();
        for step in steps {
            match step {
                Step::Seal(count) => for _ in 0..count {
                    let mut packet = Packet::new(&[0; 4]);
                    match packet.seal(&mut sealing, next_header::IPV4) {
                        Ok(()) => {
                            let iv = packet.bytes()[8..16].to_vec();
                            prop_assert!(used.insert(iv), "an IV went out twice");
                        }
                        Err(error) => prop_assert_eq!(error, SealError::NotReserved),
                    }
                },
                Step::Reserve => if let Some(state) = sealing.reservation_needed() {
                    state.encode(&mut disk);
                    sealing.extend_reservation(&state);
                },
                Step::ReserveAndDie => if let Some(state) = sealing.reservation_needed() {
                    state.encode(&mut disk);
                    sealing = boot(&disk);
                },
                Step::Restart => sealing = boot(&disk),
            }
        }
    }

    /// Packets leave the gateway only after the snapshot that knows them is kept. Then no number
    /// leaves twice, wherever between two writes the gateway dies.
    #[test]
    fn no_packet_leaves_twice_over_any_crash(
        batches in prop::collection::vec(
            (prop::collection::vec(1_u64..400, 1..40), any::<bool>(), 0_u8..6), 1..40),
    ) {
        let parameters = parameters(32, true);
        let (mut sealing, _) = pair(&parameters);
        let sealed: Vec<Vec<u8>> = (0..400).map(|_| {
            let mut packet = Packet::new(&[1, 2, 3, 4]);
            packet.seal(&mut sealing, next_header::IPV4).unwrap();
            packet.bytes().to_vec()
        }).collect();
        let mut disk: Vec<u8> = Vec::new();
        let boot = |disk: &[u8]| {
            let kept = OpeningState::decode(disk).ok();
            OpeningSa::new(&parameters, kept.as_ref()).unwrap()
        };
        let mut opening = boot(&disk);
        let mut left = BTreeSet::new();
        for (numbers, dies_before_writing, restart) in batches {
            let accepted: Vec<Sequence> = numbers.iter()
                .filter_map(|number| Packet::new(&sealed[*number as usize]).open(&mut opening).ok())
                .map(|opened| opened.sequence)
                .collect();
            prop_assert_eq!(opening.is_dirty(), !accepted.is_empty());
            if dies_before_writing {
                opening = boot(&disk);
                continue;
            }
            if opening.is_dirty() {
                let mut state = opening.empty_state();
                opening.snapshot(&mut state);
                state.encode(&mut disk);
            }
            for sequence in accepted {
                prop_assert!(left.insert(sequence), "{sequence:?} left twice");
            }
            if restart == 0 {
                opening = boot(&disk);
            }
        }
    }

    #[test]
    fn hostile_bytes_never_open(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let (_, mut opening) = pair(&parameters(16, true));
        prop_assert!(Packet::new(&bytes).open(&mut opening).is_err());
    }
}

#[test]
fn wrong_padding_from_an_authentic_sender_is_refused_but_counts_as_received() {
    use aws_lc_rs::aead::{AES_128_GCM, Aad, LessSafeKey, Nonce, UnboundKey};
    let parameters = parameters(16, false);
    for trailer in [&[1, 2, 4, 3, 4][..], &[0, 1, 4], &[255, 4], &[1, 2, 3, 9, 4]] {
        let mut text = vec![0x55; 19 - trailer.len()];
        text.extend_from_slice(trailer);
        text.resize(text.len().next_multiple_of(4), 0x04);
        let end = text.len() - trailer.len();
        text[end..].copy_from_slice(trailer);
        let key = LessSafeKey::new(UnboundKey::new(&AES_128_GCM, &[1; 16]).unwrap());
        let nonce = Nonce::assume_unique_for_key([2, 2, 2, 2, 0, 0, 0, 0, 0, 0, 0, 5]);
        let authenticated = [0, 0, 16, 0, 0, 0, 0, 5];
        let tag = key.seal_in_place_separate_tag(nonce, Aad::from(authenticated), &mut text);
        let iv = 5_u64.to_be_bytes();
        let packet = [&authenticated[..], &iv, &text, tag.unwrap().as_ref()].concat();
        let (_, mut opening) = pair(&parameters);
        assert_eq!(Packet::new(&packet).open(&mut opening), Err(OpenError::Trailer));
        assert_eq!(Packet::new(&packet).open(&mut opening), Err(OpenError::ReplayDuplicate));
    }
}

#[test]
fn the_block_of_numbers_is_small_against_a_32_bit_life() {
    const { assert!(RESERVATION_BLOCK <= (1 << 32) / 1024) }
}

fn parameters(key_len: usize, extended_sequence: bool) -> SaParameters {
    let mut material = vec![1; key_len];
    material.extend_from_slice(&[2; 4]);
    let spi = Spi::new(4096).unwrap();
    SaParameters { extended_sequence, ..SaParameters::new(spi, &material).unwrap() }
}

fn all_parameters() -> Vec<SaParameters> {
    [(16, false), (16, true), (32, false), (32, true)].map(|(k, e)| parameters(k, e)).into()
}

fn pair(parameters: &SaParameters) -> (SealingSa, OpeningSa) {
    let mut sealing = SealingSa::new(parameters, None).unwrap();
    sealing.extend_reservation(&sealing.reservation_needed().unwrap());
    (sealing, OpeningSa::new(parameters, None).unwrap())
}

fn pattern(len: usize) -> Vec<u8> {
    (0..len).map(|index| (index * 7 + index / 256 + 0x45) as u8).collect()
}

fn contains(haystack: &[u8], needle: &[u8]) -> bool {
    haystack.windows(needle.len()).any(|window| window == needle)
}

fn far_ahead(packet: &Packet) -> bool {
    let low = u32::from_be_bytes(packet.bytes()[4..8].try_into().unwrap());
    low > u32::MAX - 1023
}
