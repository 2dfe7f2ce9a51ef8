//! Attacks, each by a few packets, and what looks like one and is none.

use weir_wire::frame::Link;
use weir_wire::parse::parse;
use zerocopy::{FromZeros, IntoBytes};

use super::super::queue_pair::tests::frame;
use super::connections::{OPEN_NS, TIMEOUT};
use super::*;
use crate::packet::Vlans;

/// One attack watched, and the time, which goes on by a millisecond a packet.
struct Given {
    attacks: Attacks,
    now: Time,
    psn: u32,
    /// The transport service, in the high three bits of opcodes.
    service: u8,
}

impl Given {
    fn watching(value: &str) -> Self {
        let watch = Watch::Attack(AttackWatch::parse(value).expect(value));
        let attacks = Attacks::new(&[watch], 7).expect("one is watched");
        Self { attacks, now: Time(1_000 * NS_PER_S), psn: 0, service: 0 }
    }

    /// The same on an extended reliable connection.
    fn extended(value: &str) -> Self {
        Self { service: 0xa0, ..Self::watching(value) }
    }

    /// Whether a packet shows what is watched for.
    fn look(&mut self, bytes: &[u8]) -> bool {
        self.now = self.now.plus_ns(1_000_000);
        let parsed = parse(bytes, Link::Ethernet, bytes.len() as u32);
        let view = View::new(bytes, &parsed, Vlans::default(), &[]);
        self.attacks.look(self.now, &view) != 0
    }

    /// A request with a RETH.
    fn access(&mut self, opcode: u8, address: u64, key: u32, length: u32) -> bool {
        self.psn += 1;
        let reth = [&address.to_be_bytes()[..], &key.to_be_bytes(), &length.to_be_bytes()];
        self.look(&frame(self.service | opcode, self.psn, None, &reth.concat()))
    }

    /// The answer to the last request, with that syndrome.
    fn answer(&mut self, syndrome: u8) -> bool {
        self.answer_by(0x11, syndrome)
    }

    /// The response to a READ, in one packet.
    fn respond(&mut self) -> bool {
        self.answer_by(0x10, ACK)
    }

    fn answer_by(&mut self, opcode: u8, syndrome: u8) -> bool {
        let mut bytes = frame(self.service | opcode, self.psn, None, &[syndrome, 0, 0, 1]);
        let (source, destination) = ([10, 0, 0, 1], [10, 0, 0, 2]);
        bytes[26..30].copy_from_slice(&destination);
        bytes[30..34].copy_from_slice(&source);
        self.look(&bytes)
    }

    /// A message of connection management from the host of that number, with the GUID where REQ
    /// or REP have it.
    fn announce(&mut self, attribute: u16, guid: u64, host: u8) -> bool {
        let mut datagram = vec![0; 8 + mad::MAD_LEN];
        let (header, message) = datagram[8..].split_at_mut(mad::MadHeader::LEN);
        header[..4].copy_from_slice(&[1, mad::class::COMMUNICATION, 2, 3]);
        header[16..18].copy_from_slice(&attribute.to_be_bytes());
        let at = if attribute == cm::attribute::REQ { 16 } else { 28 };
        message[at..at + 8].copy_from_slice(&guid.to_be_bytes());
        let mut bytes = frame(0x64, 0, None, &datagram);
        bytes[14 + 20 + 8 + 7] = 1;
        (bytes[11], bytes[29]) = (host, 10 + host);
        self.look(&bytes)
    }

    /// A management datagram of that class and method, to queue pair 0.
    fn manage(&mut self, class: u8, method: u8) -> bool {
        let mut datagram = vec![0; 8 + mad::MAD_LEN];
        datagram[8..12].copy_from_slice(&[1, class, 1, method]);
        datagram[8 + 17] = 0x15;
        let mut bytes = frame(0x64, 0, None, &datagram);
        bytes[14 + 20 + 8 + 7] = 0;
        self.look(&bytes)
    }
}

const READ: u8 = 0x0c;
const WRITE_ONLY: u8 = 0x0a;
const ACK: u8 = 0x1f;
const RNR_NAK: u8 = 0x2c;
const NAK_ACCESS: u8 = 0x62;

#[test]
fn who_is_refused_at_one_address_after_another_guesses_and_may_use_what_he_was_granted() {
    for watching in [Given::watching, Given::extended] {
        let mut given = watching("key_guessing, count 5, seconds 10");
        for address in 0..20 {
            assert!(!given.access(READ, 0x1000 + address * 64, 7, 64) && !given.respond());
        }
        for address in 1..=5 {
            assert!(!given.access(READ, 0x9000 * address, 7, 64), "{address}");
            assert!(!given.answer(NAK_ACCESS), "answers pass");
        }
        assert!(given.access(READ, 0x9000 * 6, 7, 64), "the next one");
        assert!(given.access(WRITE_ONLY, 0, 7, 64), "below");
        assert!(!given.access(READ, 0x1100, 7, 64), "granted before");
        assert!(given.access(READ, 0x1100, 8, 64), "a new key");
        given.now = given.now.plus_ns(20 * NS_PER_S);
        assert!(!given.access(READ, 0x9000 * 7, 7, 64), "it is over");
    }
}

#[test]
fn receivers_that_are_not_ready_are_counted() {
    let mut given = Given::watching("rnr_flood, count 3, seconds 10");
    assert!(!given.answer(RNR_NAK) && !given.answer(ACK) && !given.answer(RNR_NAK));
    assert!(given.answer(RNR_NAK));
}

#[test]
fn small_reads_are_counted_by_source_and_large_ones_are_not() {
    let mut given = Given::watching("pipeline_saturation, count 3, seconds 1");
    for address in 0..10 {
        assert!(!given.access(READ, address, 7, 1025), "bandwidth bounds it");
    }
    assert!(!given.access(READ, 0, 7, 8) && !given.access(READ, 0, 7, 1024));
    // A FETCH ADD: address, key, operands.
    assert!(given.look(&frame(0x14, 99, None, &[0; 28])));
    let mut given = Given::extended("pipeline_saturation, count 3, seconds 1");
    assert!(!given.access(READ, 0, 7, 1025) && !given.access(READ, 0, 7, 8));
    assert!(!given.access(READ, 0, 7, 1024));
    assert!(given.look(&frame(0xb4, 99, None, &[0; 28])));
}

#[test]
fn remote_keys_are_counted_by_their_entries() {
    let mut given = Given::watching("key_saturation, count 100, seconds 10");
    for key in 0..256 {
        assert!(!given.access(WRITE_ONLY, 0, 0x1200 + key, 4), "registered anew: {key}");
    }
    let told = (0..200).position(|key| given.access(WRITE_ONLY, 0, 0x2000 + (key << 8), 4));
    assert!(told.is_some_and(|it| (95..=100).contains(&it)), "{told:?}");
}

#[test]
fn marks_of_queue_pairs_count_on_extended_reliable_connections() {
    let mut given = Given::extended("psn_conflict, count 2, seconds 10");
    for psn in 0..8 {
        assert!(!given.look(&frame(0xa4, psn, None, b"own ")), "{psn}");
    }
    assert!(!given.look(&frame(0xa4, 7, None, b"own ")), "sent again");
    assert!(!given.look(&frame(0xa4, 7, None, b"evil")));
    assert!(given.look(&frame(0xa4, 6, None, b"evil")));
    let mut given = Given::extended("invalid_request, count 2, seconds 10");
    assert!(!given.look(&frame(0xaa, 0, Some(4), b"whol")));
    assert!(!given.look(&frame(0xaa, 1, Some(8), b"half")));
    assert!(given.look(&frame(0xaa, 2, Some(2), b"more")));
}

#[test]
fn an_adapter_is_known_by_the_guid_of_its_req_and_rep() {
    let mut given = Given::watching("guid_conflict, count 2, seconds 60");
    let (req, rep) = (cm::attribute::REQ, cm::attribute::REP);
    let in_turn = [(1, req), (2, rep), (1, req), (2, req)]
        .map(|(host, attribute)| given.announce(attribute, 0x0002_c903_0000_0001, host));
    assert_eq!(in_turn, [false, false, false, true], "two came back");
    assert!(!given.announce(req, 0x0002_c903_0000_0001, 2), "and stays");
    assert!((0..9).all(|turn| !given.announce(cm::attribute::RTU, 7, turn % 2)), "has none");
    assert!((0..9).all(|turn| !given.announce(req, 0, turn % 2)), "0 is no GUID");
}

#[test]
fn two_hosts_whose_connections_come_to_two_workers_are_told_of_too() {
    let watching = || Given::watching("guid_conflict, count 2, seconds 60");
    let mut workers = [watching(), watching()];
    workers.iter_mut().for_each(|it| it.attacks.share());
    let in_turn = [0_u8, 1, 0, 1].map(|host| {
        let [one, other] = &mut workers;
        let (own, other) = if host == 0 { (one, other) } else { (other, one) };
        own.now = other.now.plus_ns(NS_PER_S);
        let is_told = own.announce(cm::attribute::REQ, 0x0002_c903_0000_0001, host);
        let (marks, guids) = own.attacks.take_shared();
        other.attacks.add_shared(own.now, &marks, &guids);
        is_told
    });
    assert_eq!(in_turn, [false, false, false, true]);
}

#[test]
fn over_roce_nobody_may_set_what_a_subnet_manager_sets() {
    let mut given = Given::watching("rogue_sm");
    let subnet = [mad::class::SUBNET_LID_ROUTED, mad::class::SUBNET_DIRECTED_ROUTE];
    assert!(!given.manage(subnet[0], 1) && !given.manage(subnet[1], 0x81), "asked, answered");
    assert!(!given.manage(mad::class::PERFORMANCE, METHOD_SET), "counters are reset");
    assert!(given.manage(subnet[0], METHOD_SET) && given.manage(subnet[1], METHOD_SET));
}

#[test]
fn a_sender_beside_an_unreliable_queue_pair_is_told_and_its_losses_are_not() {
    let mut given = Given::watching("psn_injection, count 3, seconds 1");
    for psn in [0, 1, 2, 5, 30_000, 30_001, 60_000] {
        assert!(!given.look(&frame(0x24, psn, None, &[1; 4])), "{psn}");
    }
    let sent = [0x70_0000, 60_001, 0x70_0001, 60_002];
    assert!(sent.iter().any(|psn| given.look(&frame(0x24, *psn, None, &[1; 4]))));
}

/// A message of connection management from a host to the other, in a datagram of so many bytes
/// and such an opcode.
fn told(is_answer: bool, attribute: u16, message: &[u8], length: usize, opcode: u8) -> Vec<u8> {
    let mut datagram = vec![0; mad::MadHeader::LEN];
    datagram[..4].copy_from_slice(&[1, mad::class::COMMUNICATION, 2, 3]);
    datagram[16..18].copy_from_slice(&attribute.to_be_bytes());
    datagram.extend_from_slice(message);
    datagram.truncate(length);
    let before: &[u8] = if opcode == 0x65 { &[0; 12] } else { &[0; 8] };
    let mut bytes = frame(opcode, 0, None, &[before, &datagram].concat());
    bytes[14 + 20 + 8 + 7] = 1;
    if is_answer {
        let ends = bytes[26..34].to_vec();
        bytes[26..30].copy_from_slice(&ends[4..]);
        bytes[30..34].copy_from_slice(&ends[..4]);
    }
    bytes
}

/// How the responder calls its connections.
const NAMED: u32 = 0x77;

fn told_request(request: &cm::ConnectRequest) -> Vec<u8> {
    told(false, cm::attribute::REQ, request.as_bytes(), mad::MAD_LEN, 0x64)
}

fn request(name: u32, opcode: u8, length: usize) -> Vec<u8> {
    let mut request = cm::ConnectRequest::new_zeroed();
    request.local_comm_id.set(name);
    request.local_qpn_and_resources.set((0x100 + name) << 8);
    told(false, cm::attribute::REQ, request.as_bytes(), length, opcode)
}

fn reply(name: u32, queue_pair: u32) -> Vec<u8> {
    let mut reply = cm::ConnectReply::new_zeroed();
    reply.remote_comm_id.set(name);
    reply.local_qpn.set(queue_pair << 8);
    reply.local_comm_id.set(NAMED);
    told(true, cm::attribute::REP, reply.as_bytes(), mad::MAD_LEN, 0x64)
}

fn ready(name: u32) -> Vec<u8> {
    told_ready(name, NAMED)
}

fn told_ready(name: u32, remote: u32) -> Vec<u8> {
    let mut ready = cm::Plain::new_zeroed();
    (ready.local_comm_id, ready.remote_comm_id) = (name.into(), remote.into());
    told(false, cm::attribute::RTU, ready.as_bytes(), mad::MAD_LEN, 0x64)
}

fn reject(is_answer: bool, [local, remote]: [u32; 2], timeout_of: Option<u64>) -> Vec<u8> {
    let mut reject = cm::Reject::new_zeroed();
    (reject.local_comm_id, reject.remote_comm_id) = (local.into(), remote.into());
    if let Some(adapter) = timeout_of {
        reject.reason.set(TIMEOUT);
        reject.information[..8].copy_from_slice(&adapter.to_be_bytes());
    }
    told(is_answer, cm::attribute::REJ, reject.as_bytes(), mad::MAD_LEN, 0x64)
}

/// Forty connections of which each is asked for and then treated so; whether a later one is told.
fn is_exhausted(value: &str, after: impl Fn(u32) -> Vec<Vec<u8>>) -> bool {
    let mut given = Given::watching(value);
    for name in 1..=40 {
        assert!(!given.look(&request(name, 0x64, mad::MAD_LEN)), "all at once: {name}");
        after(name).iter().for_each(|it| _ = given.look(it));
    }
    given.now = given.now.plus_ns(OPEN_NS);
    given.look(&request(99, 0x64, mad::MAD_LEN))
}

#[test]
fn a_connection_counts_that_is_not_complete_or_refused_within_a_second() {
    for watched in ["qp_exhaustion, count 8, seconds 10", "qp_exhaustion_of_host, count 8"] {
        let is_exhausted = |after: &dyn Fn(u32) -> Vec<Vec<u8>>| is_exhausted(watched, after);
        assert!(is_exhausted(&|_| vec![]));
        assert!(is_exhausted(&|name| vec![reply(name, 1)]), "answered and not completed");
        assert!(!is_exhausted(&|name| vec![reply(name, 1), ready(name)]));
        assert!(!is_exhausted(&|name| vec![reject(true, [0, name], None)]), "refused");
        assert!(!is_exhausted(&|name| vec![reply(name, 1), reject(false, [name, NAMED], None)]));
        assert!(!is_exhausted(&|name| vec![reject(false, [name, 0], Some(0))]), "given up");
        // What names another connection, or one that nobody answered, leaves it open.
        for others in [0xdead, 0] {
            assert!(is_exhausted(&|name| vec![ready(name + others)]));
        }
        assert!(is_exhausted(&|name| vec![reply(name, 1), told_ready(name, 0xbad)]));
        assert!(is_exhausted(&|name| vec![reply(name, 1), reject(false, [name, 0xbad], None)]));
        assert!(is_exhausted(&|name| vec![reply(name, 1), reject(true, [0xbad, name], None)]));
        assert!(is_exhausted(&|name| vec![reject(false, [name, 0xbad], None)]));
        assert!(is_exhausted(&|name| vec![reject(false, [name, 0], Some(0xbad))]));
    }
    let mut given = Given::watching("qp_exhaustion, count 8, seconds 10");
    let told = (1..=100).filter(|name| given.look(&request(*name, 0x64, mad::MAD_LEN)));
    assert_eq!(told.count(), 100 - 63, "eight times as many, in a tenth of a second");
    // Their responder takes each for another.
    let mut given = Given::watching("qp_exhaustion, count 8, seconds 10");
    let told = (1..=40).filter(|queue_pair| {
        given.now = given.now.plus_ns(OPEN_NS / 4);
        let mut request = cm::ConnectRequest::new_zeroed();
        request.local_comm_id.set(7);
        request.local_qpn_and_resources.set(queue_pair << 8);
        given.look(&told_request(&request))
    });
    assert!(told.count() > 20, "of one name");
    let mut given = Given::watching("qp_exhaustion, count 8, seconds 10");
    for turn in 0..40 {
        given.now = given.now.plus_ns(OPEN_NS / 10);
        assert!(!given.look(&request(turn % 7, 0x64, mad::MAD_LEN)), "sent again");
    }
}

#[test]
fn a_datagram_that_is_short_or_has_immediate_data_is_one_for_its_receiver() {
    for (opcode, length) in [(0x64, 100), (0x65, mad::MAD_LEN), (0x64, mad::MadHeader::LEN + 8)] {
        let mut given = Given::watching("qp_exhaustion, count 8, seconds 10");
        (0..8).for_each(|name| assert!(!given.look(&request(name, opcode, length))));
        given.now = given.now.plus_ns(OPEN_NS);
        assert!(given.look(&request(9, opcode, length)), "{opcode:x} {length}");
    }
    let mut given = Given::watching("rogue_sm, count 1, seconds 10");
    let mut bytes = request(1, 0x65, 40);
    (bytes[14 + 20 + 8 + 12 + 12 + 1], bytes[14 + 20 + 8 + 12 + 12 + 3]) =
        (mad::class::SUBNET_LID_ROUTED, METHOD_SET);
    assert!(given.look(&bytes));
}

#[test]
fn answers_far_from_all_others_are_told_of() {
    let answer = |psn: u32| frame(0x11, psn & 0xff_ffff, None, &[0, 0, 0, 1]);
    let mut given = Given::watching("psn_injection, count 8, seconds 10");
    let own = (0..2_000).map(|it| 0xff_ff00 + 7 * it);
    // A message of 20,000 packets a millisecond, and one answer to each.
    let long = (0..100).map(|it| 20_000 * it);
    assert!(!long.clone().any(|psn| given.look(&answer(psn))));
    let mut given = Given::watching("psn_injection, count 8, seconds 10");
    assert!(!own.clone().any(|psn| given.look(&answer(psn))), "with gaps, and over the end");
    for psn in (0..5).map(|it| 0x40_0000 + it) {
        assert!(!given.look(&answer(psn)), "a queue pair that begins anew");
    }
    let mut given = Given::watching("psn_injection, count 8, seconds 10");
    let forged = own.map(|psn| [psn, psn.wrapping_mul(0x9e37_79b1) >> 8]);
    assert!(forged.flatten().any(|psn| given.look(&answer(psn))));
}

#[test]
fn small_reads_in_turn_are_a_run_where_they_are_soon_enough() {
    let is_told = |apart_ms: u64| {
        let mut given = Given::watching("side_channel, count 100, seconds 10");
        (0..400).any(|turn| {
            given.now = given.now.plus_ns(apart_ms * 1_000_000);
            given.access(0x0c, 0x1000 + 64 * (turn % 2), 7, 8)
        })
    };
    assert!(is_told(10) && !is_told(1_000), "a poll of two words");
}

#[test]
fn only_the_answer_to_a_request_begins_psns_anew_and_those_it_names() {
    const SEND: u8 = 0x04;
    let far = |turn: u32| 0x80_0000 * (turn % 2) + 0x1_0000 * turn;
    let injected = |others: &[Vec<u8>]| {
        let mut given = Given::watching("psn_injection, count 8, seconds 60");
        (0..40).any(|turn| {
            others.iter().for_each(|it| _ = given.look(it));
            given.look(&frame(SEND, far(turn), None, b"data"))
        })
    };
    assert!(injected(&[]));
    assert!(injected(&[reply(7, 0x11)]), "nobody asked");
    assert!(injected(&[request(7, 0x64, mad::MAD_LEN), reply(7, 0x12)]), "another queue pair");
    assert!(!injected(&[request(7, 0x64, mad::MAD_LEN), reply(7, 0x11), ready(7)]));
}

#[test]
fn access_to_nothing_grants_nothing() {
    let mut given = Given::watching("key_guessing, count 5, seconds 10");
    for key in 0..15 {
        for address in [0, u64::MAX] {
            given.access(WRITE_ONLY, address, 0x1000 + key, 0);
            given.answer(0);
        }
    }
    let told = (0..15).any(|key| {
        let is_told = given.access(WRITE_ONLY, 0x7f00_0000, 0x1000 + key, 8);
        given.answer(0x62);
        is_told
    });
    assert!(told);
}
