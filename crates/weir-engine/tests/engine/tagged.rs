//! Two engines whose peer is tagged, as two gateways on a wire: what a host sends arrives byte for
//! byte, what others put on the wire does not, and the check before the wire tells one from the
//! other.

#![allow(clippy::disallowed_methods, reason = "only the engine itself does without these")]

use std::slice;

use super::talk::{self, A, B, Packet};
use weir_engine::esp::icrc_tag::{IcrcTag, TagKey};
use weir_engine::esp::open::OpeningSa;
use weir_engine::esp::sa::{SaParameters, Spi};
use weir_engine::esp::seal::SealingSa;
use weir_engine::meter::{Meter, MeterLimits};
use weir_engine::output::Destination;
use weir_engine::pipeline::{Agreed, Associations, Engine, PolicyError};
use weir_engine::policy::{
    Action, Encapsulation, FrameActions, KeyedBy, Mode, OtherTraffic, Peer, Policy, Prefix,
    Sealing, TagTerms,
};
use weir_engine::proof::WireProof;
use weir_engine::proof::witness::{Expectations, Violation, Witness};
use weir_engine::tunnel::handshake::Role;
use weir_engine::tunnel::key::PublicKey;
use weir_engine::tunnel::path::{LinkHeader, Path, Remote};
use weir_engine::verdict::{DropReason, Side};
use weir_wire::checksum::pseudo_header_v4;
use weir_wire::frame::{Frame, Link, Meta, Offload, SegmentKind, Segmentation, Time};
use weir_wire::icrc::{self, IcrcStatus};
use weir_wire::parse::parse;

const NOW: Time = Time(1_700_000_003_000_000_000);
const SECOND_NS: u64 = 1_000_000_000;
const HOST_A: u8 = 1;
const HOST_B: u8 = 2;

struct Gateway {
    engine: Engine,
    proof: WireProof,
    now: Time,
}

#[derive(Clone, Copy)]
struct Plan {
    sealing: Sealing,
    other: OtherTraffic,
    agreed: bool,
}

const STRICT: Plan = Plan { sealing: Sealing::Require, other: OtherTraffic::Drop, agreed: false };

fn policy(there: u8, plan: Plan) -> Policy {
    let mut policy = Policy::watch(1, 1500);
    policy.default = Action::Drop;
    policy.frames = FrameActions::sealing();
    policy.frames.set(weir_engine::policy::FrameClass::Arp, Action::Clear);
    let net = |host: u8| Prefix::new([10, 0, 0, host].into(), 32);
    policy.with_peers(vec![Peer {
        name: "peer".into(),
        mode: Mode::IcrcTag(TagTerms { keyed_by: KeyedBy::QueuePair, other: plan.other }),
        encapsulation: Encapsulation::Esp,
        sealing: plan.sealing,
        endpoint: None,
        protects: vec![net(there)],
        everything: false,
        seal_spi: None,
        open_spis: Vec::new(),
        agreed: plan.agreed.then_some(PublicKey([there; 32])),
        kernel: None,
        rate_limit: None,
        reaches: Vec::new(),
    }])
}

fn key(byte: u8) -> TagKey {
    TagKey::new([byte; 32].into())
}

fn keys(byte: u8) -> Associations {
    let tag = IcrcTag::shared(&key(byte), None, KeyedBy::QueuePair, 10).unwrap();
    Associations { tags: vec![("peer".into(), tag)], ..Associations::default() }
}

fn gateway(there: u8, plan: Plan) -> Gateway {
    let policy = policy(there, plan);
    let associations = if plan.agreed { Associations::default() } else { keys(7) };
    let proof = WireProof::new(&policy);
    let meter = Meter::new(MeterLimits::default(), 7);
    Gateway { engine: Engine::new(policy, associations, meter).unwrap(), proof, now: NOW }
}

/// The gateways of hosts A and B.
fn pair(plan: Plan) -> (Gateway, Gateway) {
    (gateway(HOST_B, plan), gateway(HOST_A, plan))
}

impl Gateway {
    /// What leaves at the other side; what goes to the wire was admitted by the last check.
    fn pass(&mut self, side: Side, bytes: &[u8]) -> Vec<Vec<u8>> {
        self.pass_offloaded(side, bytes, Offload::default())
    }

    fn pass_offloaded(&mut self, side: Side, bytes: &[u8], offload: Offload) -> Vec<Vec<u8>> {
        let mut buffer = [vec![0; 192], bytes.to_vec(), vec![0; 64]].concat();
        let original_len = bytes.len() as u32;
        let meta = Meta { time: self.now, original_len, link: Link::Ethernet, offload };
        let end = buffer.len() - 64;
        let mut frames = [Frame::new(&mut buffer, 192, end, meta)];
        self.engine.process(self.now, side, &mut frames);
        let output = self.engine.output();
        let sent: Vec<Vec<u8>> = output
            .packets
            .iter()
            .map(|packet| {
                let parts = &output.parts[packet.parts.start as usize..packet.parts.end as usize];
                let towards =
                    if side == Side::Host { Destination::Wire } else { Destination::Host };
                assert_eq!(packet.destination, towards);
                parts.iter().flat_map(|part| output.resolve(part, &frames).to_vec()).collect()
            })
            .collect();
        if side == Side::Host {
            assert!(sent.iter().all(|it| self.proof.admit(it, it.len())), "admitted to the wire");
        }
        assert!(self.engine.counters().side(side).adds_up() && self.proof.counters().adds_up());
        sent
    }

    fn dropped(&self, side: Side, reason: DropReason) -> u64 {
        self.engine.counters().side(side).dropped_for(reason)
    }
}

fn has_icrc(bytes: &[u8]) -> bool {
    let parsed = parse(bytes, Link::Ethernet, bytes.len() as u32);
    icrc::check(bytes, &parsed) == IcrcStatus::Valid
}

/// A UDP datagram, no RoCE, from host A to host B.
fn datagram(destination: u16) -> Vec<u8> {
    let mut bytes = A.send_only(1).bytes();
    bytes[36..38].copy_from_slice(&destination.to_be_bytes());
    bytes
}

#[test]
fn roce_arrives_as_it_was_sent_and_has_no_ordinary_icrc_on_the_wire() {
    let (mut a, mut b) = pair(STRICT);
    for psn in [0, 1, 0xff_fffe, 0xff_ffff, 0, 1] {
        for packet in [A.write_only(psn), A.read_middle(psn), A.datagram(psn), A.cnp(psn)] {
            let original = packet.bytes();
            let wire = a.pass(Side::Host, &original);
            assert_eq!((wire.len(), wire[0].len()), (1, original.len()), "no byte more");
            assert!(has_icrc(&original) && !has_icrc(&wire[0]));
            assert_eq!(b.pass(Side::Wire, &wire[0]), [original]);
        }
    }
    let back = B.ack(0xff_ffff).bytes();
    let wire = b.pass(Side::Host, &back);
    assert_eq!(a.pass(Side::Wire, &wire[0]), [back]);
    assert_eq!((a.engine.counters().host.tagged, b.engine.counters().wire.tagged), (24, 24));
    let counters = b.engine.tag_counters(0).unwrap();
    assert_eq!((counters.tagged_packets, counters.restored_packets), (1, 24));
    assert_eq!((a.proof.counters().tagged, a.proof.counters().plaintext), (24, 0));
    let rdma = b.engine.meter().totals().rdma;
    assert_eq!((rdma.icrc_ok, rdma.icrc_bad), (25, 0), "the meter sees what the host sees");
}

#[test]
fn what_is_forged_foreign_late_or_damaged_is_dropped_under_its_own_reason() {
    let (mut a, mut b) = pair(STRICT);
    let original = A.send_only(7).bytes();
    let wire = a.pass(Side::Host, &original).remove(0);
    let mut forged = wire.clone();
    forged[70] ^= 1;
    assert!(b.pass(Side::Wire, &forged).is_empty());
    assert!(b.pass(Side::Wire, &original).is_empty(), "it has no tag");
    b.now = NOW.plus_ns(30 * SECOND_NS);
    assert!(b.pass(Side::Wire, &wire).is_empty(), "its epoch ended");
    let damaged = Packet { is_damaged: true, ..A.send_only(8) }.bytes();
    assert!(a.pass(Side::Host, &damaged).is_empty());
    for (reason, expected) in [
        (DropReason::TagForged, 1),
        (DropReason::TagForeign, 1),
        (DropReason::TagOldEpoch, 1),
        (DropReason::TagFailureLimit, 0),
    ] {
        assert_eq!(b.dropped(Side::Wire, reason), expected, "{reason:?}");
    }
    assert_eq!(a.dropped(Side::Host, DropReason::IcrcBad), 1);
    let counters = b.engine.tag_counters(0).unwrap();
    assert_eq!((counters.forged, counters.foreign, counters.old_epoch), (1, 1, 1));
}

#[test]
fn a_flood_of_forgeries_ends_at_the_limit_and_stalls_no_other_queue_pair() {
    let (mut a, mut b) = pair(STRICT);
    let mut forged = a.pass(Side::Host, &A.send_only(7).bytes()).remove(0);
    forged[70] ^= 1;
    for _ in 0..1000 {
        assert!(b.pass(Side::Wire, &forged).is_empty());
    }
    let counters = b.engine.tag_counters(0).unwrap();
    assert_eq!((counters.forged, counters.limited), (64, 936));
    let other = Packet { from: talk::End { to_qp: 0xc, ..A }, ..A.send_only(1) }.bytes();
    let wire = a.pass(Side::Host, &other).remove(0);
    assert_eq!(b.pass(Side::Wire, &wire), [other]);
}

#[test]
fn an_identical_retransmission_passes_and_so_does_a_replay_within_its_epochs() {
    let (mut a, mut b) = pair(STRICT);
    let original = A.send_only(7).bytes();
    let wire = a.pass(Side::Host, &original).remove(0);
    assert_eq!(
        a.pass(Side::Host, &original),
        slice::from_ref(&wire),
        "the same packet, the same tag"
    );
    for seconds in [0, 0, 9] {
        b.now = NOW.plus_ns(seconds * SECOND_NS);
        assert_eq!(b.pass(Side::Wire, &wire), slice::from_ref(&original));
    }
}

#[test]
fn what_is_not_roce_is_dropped_or_in_clear_and_never_looks_like_roce() {
    let tcp_super = Offload {
        segmentation: Some(Segmentation {
            kind: SegmentKind::Udp,
            segment_len: 40,
            header_len: 42,
            ecn: false,
        }),
        ..Offload::default()
    };
    for other in [OtherTraffic::Drop, OtherTraffic::Clear] {
        let (mut a, mut b) = pair(Plan { other, ..STRICT });
        let is_clear = other == OtherTraffic::Clear;
        let dns = datagram(53);
        let sent = a.pass(Side::Host, &dns);
        assert_eq!(!sent.is_empty(), is_clear);
        assert_eq!(!b.pass(Side::Wire, &dns).is_empty(), is_clear);
        let mut fragment = A.send_only(1).bytes();
        fragment[20] = 0x20;
        let mut cut = A.send_only(1).bytes();
        cut.truncate(44);
        cut[16..18].copy_from_slice(&30u16.to_be_bytes());
        cut[38..40].copy_from_slice(&10u16.to_be_bytes());
        for odd in [&fragment, &cut] {
            assert!(a.pass(Side::Host, odd).is_empty());
            assert!(b.pass(Side::Wire, odd).is_empty());
        }
        let roce = A.send_only(1).bytes();
        assert!(a.pass_offloaded(Side::Host, &roce, tcp_super).is_empty(), "no such RoCE");
        assert_eq!(a.proof.counters().plaintext, 0);
        assert_eq!(b.dropped(Side::Wire, DropReason::Fragment), 1);
        assert_eq!(a.dropped(Side::Host, DropReason::Malformed), 1);
        assert_eq!(a.dropped(Side::Host, DropReason::TagNotRoce), 1 + u64::from(!is_clear));
    }
}

#[test]
fn a_udp_checksum_in_use_stays_right_on_the_wire_and_comes_back() {
    let (mut a, mut b) = pair(STRICT);
    let right = |bytes: &[u8]| {
        let udp = &bytes[34..];
        let address = |at: usize| bytes[at..at + 4].try_into().unwrap();
        let pseudo = pseudo_header_v4(address(26), address(30), 17, udp.len() as u16);
        pseudo.with(&udp[..6]).with(&udp[8..]).udp_checksum()
    };
    for psn in 0..500 {
        let mut original = A.write_only(psn).bytes();
        let sum = right(&original);
        original[40..42].copy_from_slice(&sum.to_be_bytes());
        let wire = a.pass(Side::Host, &original).remove(0);
        assert_eq!(wire[40..42], right(&wire).to_be_bytes(), "{psn}");
        assert_eq!(b.pass(Side::Wire, &wire), [original]);
    }
}

#[test]
fn roll_out_by_steps_loses_nothing_in_either_order() {
    use Sealing::{Observe, Prefer, Require};
    let of = |sealing| Plan { sealing, ..STRICT };
    // Each end one step at a time, either first.
    for (near, far) in [
        (Observe, Observe),
        (Prefer, Observe),
        (Observe, Prefer),
        (Prefer, Prefer),
        (Require, Prefer),
        (Prefer, Require),
        (Require, Require),
    ] {
        let (mut a, mut b) = (gateway(HOST_B, of(near)), gateway(HOST_A, of(far)));
        let original = A.send_only(3).bytes();
        let wire = a.pass(Side::Host, &original);
        assert_eq!(has_icrc(&wire[0]), near == Observe);
        assert_eq!(b.pass(Side::Wire, &wire[0]), [original], "{near:?} to {far:?}");
        let back = B.ack(3).bytes();
        let wire = b.pass(Side::Host, &back);
        assert_eq!(a.pass(Side::Wire, &wire[0]), [back], "{far:?} to {near:?}");
        assert_eq!((a.proof.counters().plaintext, b.proof.counters().plaintext), (0, 0));
    }
}

#[test]
fn a_frame_with_its_ordinary_icrc_is_plaintext_to_the_last_check() {
    let mut a = gateway(HOST_B, STRICT);
    let wire = a.pass(Side::Host, &A.send_only(1).bytes()).remove(0);
    let plain = A.send_only(1).bytes();
    assert!(!a.proof.admit(&plain, plain.len()));
    assert!(!a.proof.admit(&wire[..100], wire.len()), "what cannot be read whole");
    assert!(a.proof.admit(&wire, wire.len()));
    assert!(!a.proof.admit(&datagram(53), plain.len()), "not RoCE, which is to be dropped");
    assert_eq!((a.proof.counters().tagged, a.proof.counters().plaintext), (2, 3));
}

#[test]
fn another_key_takes_over_and_without_any_the_policy_is_refused() {
    let (mut a, mut b) = pair(STRICT);
    let original = A.send_only(7).bytes();
    a.engine.swap(policy(HOST_B, STRICT), keys(8)).unwrap();
    let wire = a.pass(Side::Host, &original).remove(0);
    assert!(b.pass(Side::Wire, &wire).is_empty());
    let both = IcrcTag::shared(&key(7), Some(&key(8)), KeyedBy::QueuePair, 10).unwrap();
    let both = Associations { tags: vec![("peer".into(), both)], ..Associations::default() };
    b.engine.swap(policy(HOST_A, STRICT), both).unwrap();
    assert_eq!(b.pass(Side::Wire, &wire), slice::from_ref(&original));
    b.engine.swap(policy(HOST_A, STRICT), Associations::default()).unwrap();
    assert_eq!(b.pass(Side::Wire, &wire), [original], "keys that nobody changes go on");
    assert_eq!(b.engine.tag_counters(0).unwrap().restored_packets, 2);
    let mut other = policy(HOST_A, STRICT);
    other.peers[0].name = "another".into();
    let refused = b.engine.swap(other, Associations::default());
    assert_eq!(refused, Err(PolicyError::NoTagKey { peer: "another".into() }));
}

#[test]
fn a_witness_tells_untagged_roce_and_claims_no_more() {
    let mut a = gateway(HOST_B, STRICT);
    let plain = A.send_only(1).bytes();
    let wire = a.pass(Side::Host, &plain).remove(0);
    let tagged = vec![Prefix::new([10, 0, 0, 0].into(), 24)];
    let mut witness = Witness::new(Expectations { tagged, ..Expectations::default() });
    assert_eq!(witness.see(&wire, wire.len()), None);
    assert_eq!(witness.see(&plain, plain.len()), Some(Violation::Untagged));
    assert_eq!(witness.see(&wire[..100], wire.len()), Some(Violation::Untagged), "cut short");
    assert_eq!(witness.see(&datagram(53), plain.len()), None);
    let counters = witness.counters();
    assert_eq!((counters.tagged, counters.untagged, counters.outside), (1, 2, 1));
    let mut damaged = plain.clone();
    damaged[70] ^= 1;
    assert_eq!(witness.see(&damaged, damaged.len()), None, "damage looks like a tag");
}

/// Who checks last and a witness gather the covered bytes by themselves; on real captures they see
/// what `weir_wire` sees.
#[test]
fn ordinary_icrcs_are_recognised_on_real_captures() {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata/roce");
    let everything = [Prefix::ALL].to_vec();
    let mut witness = Witness::new(Expectations { tagged: everything, ..Default::default() });
    let mut expected = [0, 0];
    for file in std::fs::read_dir(folder).unwrap().flatten() {
        let bytes = std::fs::read(file.path()).unwrap();
        if bytes.first_chunk() != Some(&0xa1b2_c3d4_u32.to_le_bytes()) {
            continue;
        }
        let mut rest = &bytes[24..];
        while let Some((header, behind)) = rest.split_first_chunk::<16>() {
            let len = u32::from_le_bytes(header[8..12].try_into().unwrap()) as usize;
            let (frame, behind) = behind.split_at(len);
            rest = behind;
            let parsed = parse(frame, Link::Ethernet, len as u32);
            let Some(rdma) = parsed.rdma else { continue };
            assert_eq!(witness.see(frame, len), Some(Violation::Untagged));
            let mut tagged = frame.to_vec();
            tagged[usize::from(rdma.icrc_offset.unwrap())] ^= 1;
            assert_eq!(witness.see(&tagged, len), None);
            expected = [expected[0] + 1, expected[1] + 1];
        }
    }
    assert!(expected[0] > 100);
    assert_eq!([witness.counters().untagged, witness.counters().tagged], expected);
}

/// To the gateway in front of host `there`, under the addresses of the hosts.
fn path(there: u8) -> Path {
    let here = HOST_A + HOST_B - there;
    let link = [&[2, 0, 0, 0, 0, there, 2, 0, 0, 0, 0, here][..], &[8, 0]].concat();
    Path {
        remote: Remote { address: [10, 0, 0, there].into(), port: 51840 },
        borrowed: Some([10, 0, 0, here].into()),
        link: LinkHeader::try_from(&link[..]).unwrap(),
    }
}

/// Puts agreed keys in place, as a handshake between both would.
fn agree(a: &mut Gateway, b: &mut Gateway, number: u8) {
    let spi = |end: u32| 0x1000 + 2 * u32::from(number) + end;
    let parameters = |end| {
        let material: Vec<u8> = (0..36).map(|byte| byte ^ spi(end) as u8).collect();
        SaParameters::new(Spi::new(spi(end)).unwrap(), &material).unwrap()
    };
    let (to_b, to_a) = (key(2 * number), key(2 * number + 1));
    let ends = [
        (&mut a.engine, HOST_B, Role::Initiator, [0, 1], [to_b.clone(), to_a.clone()]),
        (&mut b.engine, HOST_A, Role::Responder, [1, 0], [to_a, to_b]),
    ];
    for (engine, there, role, [seal, open], tags) in ends {
        assert!(engine.install(Agreed {
            peer: PublicKey([there; 32]),
            role,
            path: path(there),
            sealing: SealingSa::new(&parameters(seal), None).unwrap(),
            opening: OpeningSa::new(&parameters(open), None).unwrap(),
            tags: Some(tags),
        }));
    }
}

#[test]
fn agreed_keys_are_used_by_the_initiator_first_and_then_by_both() {
    let (mut a, mut b) = pair(Plan { agreed: true, ..STRICT });
    let (there, back) = (A.send_only(7).bytes(), B.ack(7).bytes());
    a.pass(Side::Host, &datagram(53));
    let mut wanted = Vec::new();
    a.engine.take_activity(&mut |_, activity| {
        wanted.push(activity.wanted);
        true
    });
    assert_eq!(wanted.len(), 1, "any packet asks for keys");
    assert!(a.pass(Side::Host, &there).is_empty());
    assert_eq!(a.dropped(Side::Host, DropReason::NoAssociation), 1);
    for number in 1..6 {
        agree(&mut a, &mut b, number);
        if number == 1 {
            assert!(b.pass(Side::Host, &back).is_empty(), "not confirmed yet");
        } else {
            // Until the first packet by the new keys, the responder uses those before.
            let wire = b.pass(Side::Host, &back).remove(0);
            assert_eq!(a.pass(Side::Wire, &wire), slice::from_ref(&back));
        }
        let wire = a.pass(Side::Host, &there).remove(0);
        assert_eq!(b.pass(Side::Wire, &wire), slice::from_ref(&there));
        let wire = b.pass(Side::Host, &back).remove(0);
        assert_eq!(a.pass(Side::Wire, &wire), slice::from_ref(&back));
    }
    // A packet of keys that are forgotten is worth nothing more.
    let wire = a.pass(Side::Host, &there).remove(0);
    b.engine.forget(&PublicKey([HOST_A; 32]), 0x1000 + 2 * 5);
    assert!(b.pass(Side::Wire, &wire).is_empty());
    // Keys go on under another policy, with what is not RoCE treated otherwise.
    let clear = Plan { agreed: true, other: OtherTraffic::Clear, ..STRICT };
    a.engine.swap(policy(HOST_B, clear), Associations::default()).unwrap();
    assert_eq!(a.pass(Side::Host, &there).len(), 1);
    a.engine.close(&PublicKey([HOST_B; 32]));
    assert!(a.pass(Side::Host, &there).is_empty());
}

#[test]
fn signs_of_life_travel_as_esp_and_carry_nothing() {
    let (mut a, mut b) = pair(Plan { agreed: true, ..STRICT });
    agree(&mut a, &mut b, 1);
    a.engine.begin();
    a.engine.keepalive(&PublicKey([HOST_B; 32]));
    let output = a.engine.output();
    let parts = output.packets.iter().map(|it| it.parts.start as usize..it.parts.end as usize);
    let sent: Vec<Vec<u8>> =
        parts.map(|it| output.resolve(&output.parts[it.start], &[]).to_vec()).collect();
    let [life] = &sent[..] else { panic!("{} packets", sent.len()) };
    assert!(a.proof.admit(life, life.len()) && a.proof.counters().esp == 1);
    assert!(b.pass(Side::Wire, life).is_empty());
    assert_eq!(b.engine.counters().wire.consumed, 1);
    // It confirmed the keys as a tagged packet would have.
    let back = B.ack(7).bytes();
    let wire = b.pass(Side::Host, &back).remove(0);
    assert_eq!(a.pass(Side::Wire, &wire), [back]);
}
