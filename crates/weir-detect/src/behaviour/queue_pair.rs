//! What one queue pair is sent: PSNs in order, message by message, each once.

use std::hash::{BuildHasher, Hasher};

use weir_wire::bth::{Opcode, Operation, Psn, Service};
use weir_wire::ext;
use weir_wire::frame::Time;
use weir_wire::parse::{Parsed, Rdma};

use super::lately::Lately;
use crate::state::Keyed;

/// How far a request may be from the one expected: more than any requester has on its way.
const WINDOW: i32 = 1 << 14;
/// Answers so near to one that was far off are of a queue pair that has begun anew.
const NEAR: u32 = 64;
/// Nanoseconds that a packet takes at least: no queue pair sends more than 30 million a second, so
/// that no more can be missing between two packets of one.
const PACKET_NS: u64 = 32;
/// The smallest path MTU: so many packets may answer a READ at most.
const MTU_MIN: u32 = 256;
/// Requests whose content is remembered, those of them whose place is taken, and milliseconds for
/// which one is kept that is ahead of those that come.
const REMEMBERED: usize = 16;
const DISPLACED: usize = 8;
const KEPT_MS: u32 = 1_000;

/// One direction of a connected queue pair.
///
/// A reliable one answers each packet that it does not expect, and its requester sends again. An
/// unreliable one (UC) passes over the rest of a message of which a packet is missing, and takes
/// up the next First or Only wherever that is (IBTA Vol 1 s9.8.2.2): there a gap is loss, however
/// wide, and moves the queue pair on. What loss cannot do is to go back, or to skip more packets
/// than could be sent meanwhile.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct QueuePair {
    /// Which of the pair's connections it belongs to: see `Pair::epoch`.
    pub(super) epoch: u32,
    /// When it was last sent a request.
    pub(super) last: Time,
    is_known: bool,
    /// The highest PSN that was sent, and the highest that may come next.
    low: Psn,
    high: Psn,
    /// The operation whose Last has not come yet.
    open: Option<Operation>,
    /// Bytes of an open WRITE that are to come; `None` where its First was not seen.
    left: Option<u32>,
    /// The requests before, each in the place that its PSN says.
    requests: [Option<Request>; REMEMBERED],
    /// Those of them that others took the place of which came much further on.
    displaced: [Option<Request>; DISPLACED],
    /// The UDP ports it came from.
    ports: Lately<u16>,
}

/// A request that was sent.
#[derive(Clone, Copy, Debug)]
struct Request {
    psn: Psn,
    content: u32,
    /// When, in milliseconds.
    at: u32,
}

/// What is wrong with a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Wrong {
    /// Its PSN is far from all that could come.
    pub(super) is_far: bool,
    /// Another request had its PSN.
    pub(super) is_other: bool,
    /// It does not continue the message before it, begins one too early, or is of another length
    /// than the message's RETH says.
    pub(super) is_disordered: bool,
    /// It came from a port that the queue pair had left.
    pub(super) is_from_other_port: bool,
}

/// Whether an opcode is one of a requester's on a connection. Extended reliable connections (XRC)
/// have the operations, PSNs and answers of reliable ones; an XRCETH names the shared receive queue
/// of each request (IBTA Vol 1 Annex A14).
pub(super) fn is_request(rdma: &Rdma) -> bool {
    matches!(
        rdma.opcode.service(),
        Service::ReliableConnection
            | Service::UnreliableConnection
            | Service::ExtendedReliableConnection
    ) && matches!(
        rdma.opcode.operation(),
        Operation::Send
            | Operation::Write
            | Operation::ReadRequest
            | Operation::Atomic
            | Operation::Flush
            | Operation::AtomicWrite
    )
}

/// Whether an opcode is one of an unreliable connection.
pub(super) fn is_unreliable(rdma: &Rdma) -> bool {
    rdma.opcode.service() == Service::UnreliableConnection
}

impl QueuePair {
    /// One of the pair's connections at that time, of which nothing is known yet.
    pub(super) fn of(epoch: u32, last: Time) -> Self {
        Self { epoch, last, ..Self::default() }
    }

    /// Takes a request into account, of such [`content`].
    pub(super) fn take(
        &mut self,
        now: Time,
        (bytes, parsed, rdma): (&[u8], &Parsed, &Rdma),
        content: u32,
        port: u16,
    ) -> Wrong {
        let psn = rdma.psn;
        let silent_ns = now.since_ns(self.last);
        self.last = now;
        let mut wrong = Wrong { is_from_other_port: self.ports.is_back(port), ..Wrong::default() };
        if !self.is_known {
            self.is_known = true;
            self.is_other(now, psn, content);
            wrong.is_disordered = self.advance(bytes, parsed, rdma, false);
            return wrong;
        }
        let ahead = psn.distance(self.low);
        let expected = self.high.distance(self.low);
        let is_far = ahead < -WINDOW || ahead > expected + WINDOW;
        if is_far && !is_unreliable(rdma) {
            wrong.is_far = true;
            return wrong;
        }
        let lost_at_most = (silent_ns / PACKET_NS).saturating_add(WINDOW as u64);
        wrong.is_far = is_far && (ahead < 0 || ahead.unsigned_abs() as u64 > lost_at_most);
        wrong.is_other = self.is_other(now, psn, content);
        if ahead > 0 || is_far {
            // Behind a gap, what is missing may have been the First or the Last.
            wrong.is_disordered = self.advance(bytes, parsed, rdma, ahead == 1);
        }
        wrong
    }

    /// Goes on to a packet, the next one or one behind a gap; whether it contradicts what came
    /// before, or itself.
    fn advance(&mut self, bytes: &[u8], parsed: &Parsed, rdma: &Rdma, is_next: bool) -> bool {
        let length = ext::reth(bytes, rdma).map(|it| it.dma_length.get());
        let count = match (rdma.opcode.operation(), length) {
            (Operation::ReadRequest, Some(length)) => length.div_ceil(MTU_MIN).clamp(1, 1 << 22),
            _ => 1,
        };
        let is_out_of_order = is_next && continues(rdma.opcode) != self.open;
        self.open = opens(rdma.opcode);
        (self.low, self.high) = (rdma.psn, rdma.psn.add(count));
        let left = self.left.take().filter(|_| is_next && !is_out_of_order);
        // The length of a fragment is not the packet's.
        let is_measured = rdma.opcode.operation() == Operation::Write && parsed.fragment.is_none();
        is_out_of_order || is_measured && self.measure(rdma, length, left)
    }

    /// Takes a packet of a WRITE whose message still has `left` bytes, or begins with a RETH that
    /// says `length`; whether its payload contradicts that (IBTA Vol 1 s9.7.4.1.6): an Only has all
    /// of it, a Last the rest, and behind a First or Middle there is more.
    fn measure(&mut self, rdma: &Rdma, length: Option<u32>, left: Option<u32>) -> bool {
        let payload = u32::from(rdma.payload_len);
        let Some(left) = length.or(left) else { return false };
        if self.open.is_none() {
            return left != payload;
        }
        self.left = left.checked_sub(payload).filter(|it| *it > 0);
        self.left.is_none()
    }

    /// Whether another request was sent with a PSN; remembers this one if none was.
    ///
    /// A request ahead of this one keeps its place, and is compared when its PSN comes: who forges
    /// one and then others further ahead, to have the first forgotten, is told of by those. So is
    /// the first, as long as no more than a few took each other's place.
    fn is_other(&mut self, now: Time, psn: Psn, content: u32) -> bool {
        let at = (now.0 / 1_000_000) as u32;
        let is_recent = |it: &Request| at.wrapping_sub(it.at) <= KEPT_MS;
        let place = &mut self.requests[psn.value() as usize % REMEMBERED];
        let known = *place;
        if let Some(it) = known.filter(|it| it.psn == psn) {
            return it.content != content;
        }
        let mut displaced = self.displaced.iter().flatten();
        if let Some(same) = displaced.find(|it| it.psn == psn && is_recent(it)) {
            return same.content != content;
        }
        let is_ahead = |it: &Request| (1..=WINDOW).contains(&it.psn.distance(psn));
        if known.is_some_and(|it| is_ahead(&it) && is_recent(&it)) {
            return false;
        }
        *place = Some(Request { psn, content, at });
        // Where all came that stand between, the one that had its place was compared with them.
        let before = psn.add(0xff_ffff);
        let last = &self.requests[before.value() as usize % REMEMBERED];
        let follows = last.is_some_and(|it| it.psn == before);
        let is_next = |it: &Request| follows && psn.distance(it.psn) == REMEMBERED as i32;
        if let Some(displaced) = known.filter(|it| is_recent(it) && !is_next(it)) {
            self.displaced.rotate_right(1);
            self.displaced[0] = Some(displaced);
        }
        false
    }
}

/// The answers that one queue pair gets.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Answers {
    last: Option<Psn>,
    at: Time,
    /// One that was far from them.
    candidate: Option<Psn>,
}

impl Answers {
    /// Takes one into account; whether it is far from those before, and not behind another that
    /// was as far: behind them, or further ahead than requests can have been sent meanwhile, of
    /// which one in many may ask for an answer. After `quiet_ns` of silence any may come.
    pub(super) fn take(&mut self, now: Time, psn: Psn, quiet_ns: u64) -> bool {
        let silent_ns = now.since_ns(self.at);
        let is_near = |it: Psn| psn.distance(it).unsigned_abs() <= NEAR;
        let begins = silent_ns > quiet_ns || self.candidate.is_some_and(is_near);
        let ahead = self.last.filter(|_| !begins).map_or(0, |it| psn.distance(it));
        let most = (silent_ns / PACKET_NS).saturating_add(WINDOW as u64);
        let is_far = ahead < -WINDOW || (ahead > 0 && u64::from(ahead.unsigned_abs()) > most);
        if is_far {
            self.candidate = Some(psn);
            return true;
        }
        self.at = now;
        if begins || ahead >= 0 {
            (self.last, self.candidate) = (Some(psn), None);
        }
        false
    }
}

/// The operation that a packet leaves open, or `None` with its Last or Only.
fn opens(opcode: Opcode) -> Option<Operation> {
    let goes_on = matches!(opcode.0 & 0x1f, 0x00 | 0x01 | 0x06 | 0x07);
    goes_on.then(|| opcode.operation())
}

/// The operation that must be open before a packet, or `None` before a First or an Only.
fn continues(opcode: Opcode) -> Option<Operation> {
    // Middle, Last, Last with immediate or with invalidate.
    let continues = matches!(opcode.0 & 0x1f, 0x01..=0x03 | 0x07..=0x09 | 0x16);
    continues.then(|| opcode.operation())
}

/// What stands for all behind the BTH, which nobody can aim at who does not know the secret: the
/// same for a packet that is sent again.
pub(super) fn content(secret: u64, bytes: &[u8], parsed: &Parsed, rdma: &Rdma) -> u32 {
    let end = rdma.icrc_offset.map_or(parsed.end as usize, usize::from);
    let begin = usize::from(rdma.bth_offset) + 12;
    let bytes = bytes.get(begin..end).unwrap_or_default();
    let mut hasher = Keyed(secret).build_hasher();
    hasher.write_u8(rdma.opcode.0);
    hasher.write_usize(bytes.len());
    hasher.write(bytes);
    hasher.finish() as u32
}

#[cfg(test)]
pub(super) mod tests {
    use weir_wire::bth::Extension;
    use weir_wire::frame::Link;
    use weir_wire::parse::parse;

    use super::*;

    /// A packet of RoCE v2 over IPv4 from 10.0.0.1 to 10.0.0.2, its ICRC left 0; of an XRC request
    /// to shared receive queue 5.
    pub(in super::super) fn frame(
        opcode: u8,
        psn: u32,
        reth_length: Option<u32>,
        payload: &[u8],
    ) -> Vec<u8> {
        let mut transport = vec![opcode, 0, 0xff, 0xff, 0, 0, 0, 0x11];
        transport.extend(psn.to_be_bytes());
        if Opcode(opcode).carries(Extension::Xrceth) {
            transport.extend([0, 0, 0, 5]);
        }
        if let Some(length) = reth_length {
            transport.extend([0; 12]);
            transport.extend(length.to_be_bytes());
        }
        transport.extend(payload);
        transport.extend([0; 4]);
        let mut bytes = vec![2; 12];
        bytes.extend([8, 0, 0x45, 0]);
        bytes.extend((28 + transport.len() as u16).to_be_bytes());
        bytes.extend([0, 0, 0x40, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2, 0xc0, 1]);
        bytes.extend(4791_u16.to_be_bytes());
        bytes.extend((8 + transport.len() as u16).to_be_bytes());
        bytes.extend([0, 0]);
        bytes.extend(transport);
        bytes
    }

    /// A queue pair and the time, which goes on by a microsecond a packet.
    #[derive(Default)]
    struct Given {
        queue_pair: QueuePair,
        now: Time,
    }

    impl Given {
        fn take(&mut self, opcode: u8, psn: u32, length: Option<u32>, payload: &[u8]) -> Wrong {
            self.now = self.now.plus_ns(1_000);
            let bytes = frame(opcode, psn & 0xff_ffff, length, payload);
            let parsed = parse(&bytes, Link::Ethernet, bytes.len() as u32);
            let rdma = parsed.rdma.expect("RDMA");
            let content = content(7, &bytes, &parsed, &rdma);
            self.queue_pair.take(self.now, (&bytes, &parsed, &rdma), content, 0xc001)
        }

        fn send(&mut self, opcode: u8, psn: u32) -> Wrong {
            self.take(opcode, psn, None, &psn.to_be_bytes())
        }
    }

    /// The transport services, in the high three bits of opcodes.
    const RC: u8 = 0x00;
    const UC: u8 = 0x20;
    const XRC: u8 = 0xa0;
    const RC_SEND_ONLY: u8 = 0x04;
    const UC_SEND_FIRST: u8 = 0x20;
    const UC_SEND_MIDDLE: u8 = 0x21;
    const UC_SEND_LAST: u8 = 0x22;
    const UC_SEND_ONLY: u8 = 0x24;
    const RIGHT: Wrong =
        Wrong { is_far: false, is_other: false, is_disordered: false, is_from_other_port: false };

    #[test]
    fn loss_moves_an_unreliable_queue_pair_on_and_only_going_back_is_far() {
        let mut given = Given::default();
        for psn in [0xff_fff0, 0xff_fff8, 3, 2, 4] {
            assert_eq!(given.send(UC_SEND_ONLY, psn), RIGHT, "{psn:#x}");
        }
        // A millisecond without a link, at 30 million packets a second.
        given.now = given.now.plus_ns(1_000_000);
        assert_eq!(given.send(UC_SEND_ONLY, 40_000), RIGHT, "lost");
        assert_eq!(given.send(UC_SEND_ONLY, 40_001), RIGHT, "and goes on there");
        assert!(given.send(UC_SEND_ONLY, 4).is_far, "back");
        assert!(given.send(UC_SEND_ONLY, 6_000_000).is_far, "more than were sent meanwhile");
        assert!(given.send(UC_SEND_ONLY, 40_002).is_far, "and back again");
        let mut reliable = Given::default();
        reliable.send(RC_SEND_ONLY, 0);
        assert!(
            reliable.send(RC_SEND_ONLY, 40_000).is_far && !reliable.send(RC_SEND_ONLY, 1).is_far
        );
    }

    #[test]
    fn who_has_a_forged_packet_forgotten_by_others_further_ahead_is_told_of_by_those() {
        let mut given = Given::default();
        let took = |given: &mut Given, psn, payload: &[u8]| {
            given.take(RC_SEND_ONLY, psn, None, payload).is_other
        };
        took(&mut given, 0, b"own ");
        took(&mut given, 1, b"evil");
        for psn in 1_000..1_016 {
            took(&mut given, psn, b"fill");
        }
        let told = (1..1_016).filter(|psn| took(&mut given, *psn, b"own "));
        assert_eq!(told.count(), 17, "each of the fillers, and the first");
        // A queue pair made anew, a second later, has nothing to do with them.
        for psn in 5_000..5_016 {
            took(&mut given, psn, b"old ");
        }
        given.now = given.now.plus_ns(1_100_000_000);
        assert!((4_000..5_016).all(|psn| !took(&mut given, psn, b"new ")));
    }

    #[test]
    fn one_packet_that_is_far_ahead_does_not_hide_a_forged_one() {
        for filler in [16_000, 32, 16] {
            let mut given = Given::default();
            given.take(RC_SEND_ONLY, 0, None, b"own ");
            given.take(RC_SEND_ONLY, 1, None, b"evil");
            given.take(RC_SEND_ONLY, 1 + filler, None, b"fill");
            assert!(given.take(RC_SEND_ONLY, 1, None, b"own ").is_other, "{filler}");
        }
    }

    #[test]
    fn a_byte_in_the_middle_makes_another_request() {
        let payload = [7; 4096];
        for at in (0..4096).step_by(97) {
            let mut given = Given::default();
            given.take(RC_SEND_ONLY, 0, None, &payload);
            let mut other = payload;
            other[at] = 8;
            assert!(given.take(RC_SEND_ONLY, 0, None, &other).is_other, "{at}");
        }
    }

    #[test]
    fn flushes_and_atomic_writes_are_requests() {
        let mut given = Given::default();
        given.send(RC_SEND_ONLY, 0);
        for (psn, opcode) in [(1, 0x1c), (2, 0x1d), (3, 0x04)] {
            assert_eq!(given.take(opcode, psn, Some(8), &[1; 8]), RIGHT, "{opcode:#x}");
        }
        assert!(given.take(0x1d, 2, Some(8), &[2; 8]).is_other);
    }

    #[test]
    fn two_packets_of_one_number_are_another_on_unreliable_queue_pairs_too() {
        let mut given = Given::default();
        given.take(UC_SEND_ONLY, 7, None, b"own ");
        assert_eq!(given.take(UC_SEND_ONLY, 7, None, b"own "), RIGHT, "the network's double");
        assert!(given.take(UC_SEND_ONLY, 7, None, b"evil").is_other);
    }

    #[test]
    fn an_extended_reliable_queue_pair_is_told_of_as_a_reliable_one() {
        for service in [RC, XRC] {
            let (first, middle, last, only, read) = (0x00, 0x01, 0x02, 0x04, 0x0c);
            let mut given = Given::default();
            let mut send = |opcode: u8, psn: u32| match opcode {
                0x0c => given.take(service | opcode, psn, Some(8), &[]),
                _ => given.send(service | opcode, psn),
            };
            let whole = [first, middle, last, only, only, read, only];
            for (psn, opcode) in (0..).zip(whole) {
                assert_eq!(send(opcode, psn), RIGHT, "{service:#x}, {psn}");
            }
            assert_eq!(send(only, 4), RIGHT, "sent again");
            assert!(send(read, 4).is_other, "another operation");
            assert!(send(only, 40_000).is_far && !send(only, 7).is_far, "{service:#x}");
            assert!(send(last, 8).is_disordered && !send(first, 9).is_disordered);
            assert!(send(only, 10).is_disordered, "within a message");
        }
        let mut given = Given::default();
        given.take(XRC | 0x04, 7, None, b"own ");
        assert_eq!(given.take(XRC | 0x04, 7, None, b"own "), RIGHT);
        assert!(given.take(XRC | 0x04, 7, None, b"evil").is_other);
    }

    #[test]
    fn a_message_without_first_or_last_is_disordered_only_where_nothing_was_lost() {
        let mut given = Given::default();
        let whole = [UC_SEND_FIRST, UC_SEND_MIDDLE, UC_SEND_LAST, UC_SEND_ONLY];
        for (psn, opcode) in (0..).zip(whole) {
            assert_eq!(given.send(opcode, psn), RIGHT);
        }
        // PSN 4, a First, is lost; and 7, a Last.
        for (psn, opcode) in [(5, UC_SEND_MIDDLE), (6, UC_SEND_MIDDLE), (8, UC_SEND_FIRST)] {
            assert_eq!(given.send(opcode, psn), RIGHT, "{psn}");
        }
        assert!(given.send(UC_SEND_ONLY, 9).is_disordered, "within a message");
        assert!(given.send(UC_SEND_LAST, 10).is_disordered, "without a First");
    }

    #[test]
    fn a_write_is_as_long_as_its_reth_says() {
        for service in [RC, UC, XRC] {
            let (first, middle, last, only) = (6, 7, 8, 10);
            let mut given = Given::default();
            let mut psn = 0;
            let mut write = |opcode: u8, length: Option<u32>, payload: usize| {
                psn += 1;
                given.take(service | opcode, psn, length, &vec![psn as u8; payload]).is_disordered
            };
            assert!(!write(only, Some(0), 0) && !write(only, Some(64), 64));
            assert!(write(only, Some(65), 64) && write(only, Some(60), 64));
            assert!(!write(first, Some(600), 256) && !write(middle, None, 256));
            assert!(!write(last, None, 88));
            assert!(write(first, Some(256), 256), "an Only's length");
            assert!(!write(last, None, 256), "what began wrong is marked once");
            assert!(!write(first, Some(600), 256) && write(last, None, 256), "ends early");
            assert!(!write(first, Some(300), 256) && write(middle, None, 256), "goes past");
            assert!(!write(last, None, 4));
        }
    }

    #[test]
    fn what_a_lost_piece_of_a_write_had_is_not_guessed() {
        let mut given = Given::default();
        assert_eq!(given.take(0x26, 0, Some(1024), &[1; 256]), RIGHT);
        assert_eq!(given.take(0x28, 3, None, &[3; 256]), RIGHT, "two were lost");
        assert_eq!(given.take(0x2a, 4, Some(8), &[4; 8]), RIGHT);
    }
}
