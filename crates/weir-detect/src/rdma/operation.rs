//! Operations of several packets: what rules look for may lie over the border of two of them.
//!
//! ```text
//!   FIRST  MIDDLE  MIDDLE  LAST      PSNs count up
//!   ------ past ------ | new         one window an operation, a few operations a queue pair
//! ```
//!
//! Which of two packets with one PSN the receiver has is not known here: it passes over what it
//! has, and never sees what was lost or damaged behind the gateway. So a packet that comes again as
//! it was changes nothing, one with another payload makes a second version of its operation, and a
//! first packet begins one beside those under way. A packet behind a gap is looked at by itself:
//! its receiver does not take it (reliable connections), or gives the message up.
//!
//! What a sender begins in vain must not push out what is under way. A responder of a reliable
//! connection takes the packet with the one PSN that it expects, answers earlier ones as
//! duplicates, and later ones with a NAK (IBTA Vol 1 s9.7.5.1). Whatever it took was a chain of
//! PSNs that count up, and goes on so where the sender went back and repeated some. So packets are
//! followed as chains: the first one is taken for what the responder took, until another is so
//! much longer that the connection must have begun anew. Operations that are pieces of it give way
//! last, others the sooner the shorter their chain: first packets with old PSNs or such as are far
//! ahead, and other versions of what was sent, only push out each other.
//!
//! Before a connection was followed for a while anything may look like the right chain. A requester
//! on a reliable connection has one message under way, and comes back to few places of it. Where so
//! many were begun within [`UNDER_WAY_PACKETS`] and half a second that there is no room, nobody
//! could look at the rest of what another begins: see [`Piece::Lost`].

use std::hash::BuildHasher;
use std::ops::Range;

use weir_wire::bth::{Operation as Kind, Position, Psn, Service};
use weir_wire::ext;
use weir_wire::frame::Time;
use weir_wire::parse::Rdma;

use crate::detector::Limits;
use crate::heap::{heap_size, no_heap};
use crate::packet::View;
use crate::rule::RuleIndex;
use crate::ruleset::Successors;
use crate::state::Keyed;

/// Bytes of an operation's past that are looked at together with a packet's.
const PAST_MAX: usize = 4096;
/// Rules that wait for more of an operation, and rules that matched it, at most.
const RULES_MAX: usize = 256;
/// Operations and versions of them, of one sender and service to one queue pair, at most. Of the
/// lightest the one that no packet came for the longest gives way.
const OPERATIONS_MAX: usize = 8;
/// Those of them that have ended, at most.
const ENDED_MAX: usize = 2;
/// Those that begin alike, at most: the one that came furthest, and one that goes over it again.
const BEGUN_ALIKE_MAX: usize = 2;
/// An operation without a piece among so many packets, or for so long, is given up: a requester
/// that goes on tries again by then.
const UNDER_WAY_PACKETS: u32 = 256;
const UNDER_WAY_NS: u64 = 500_000_000;
/// Chains of PSNs, likewise.
const CHAINS_MAX: usize = 8;
/// The smallest packets of a path (IBTA Vol 1 s9.4): a READ takes a PSN for each of its answers.
const PATH_MTU_MIN: u32 = 256;
/// A chain that is longer by so many packets than the one that was taken for the right one is it.
const RESTARTED_PACKETS: u32 = 1024;
/// PSNs that requests without data may take between two READs' answers.
const ANSWERS_APART_MAX: u32 = 1024;

/// What the first packet said of its operation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Head {
    pub(crate) remote_key: Option<u32>,
    pub(crate) length: Option<u32>,
}

/// The operations of one sender to one queue pair that are under way.
#[derive(Debug, Default)]
pub(crate) struct Operations {
    /// The last are those that a packet came for last.
    under_way: Vec<Operation>,
    /// How many of them, from the end, the packet at hand is a piece of.
    at_hand: usize,
    chains: Vec<Chain>,
    /// Packets so far, and when the last came.
    packets: (u32, Time),
    /// That of the packet at hand.
    service: Option<Service>,
    /// Whether there must be room for what it begins, and there was none.
    needs_room: bool,
    is_lost: bool,
    /// Keys what stands for first packets.
    seed: u64,
}
heap_size!(Operations { under_way, chains });

/// What a packet is to the operations of its queue pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Piece {
    /// It is one by itself, or no piece of any that is known.
    None,
    /// It is a piece.
    Here,
    /// Of a reliable connection: rules cannot look at it together with what follows it.
    Lost,
}

/// Packets whose PSNs count up.
#[derive(Clone, Copy, Debug)]
struct Chain {
    /// No queue pair takes what is of another service than its own.
    service: Service,
    /// Answers have the PSNs of the other side's requests.
    is_answer: bool,
    /// The PSN of the next packet, and how far behind that it may be.
    next: Psn,
    slack: u32,
    /// How many they were behind the first.
    packets: u32,
    /// It is what the receiver took.
    is_main: bool,
}
no_heap!(Chain);

impl Chain {
    /// What an operation weighs that is a piece of it.
    fn weight(&self) -> u32 {
        if self.is_main { u32::MAX } else { self.packets }
    }
}

/// Which operations give way first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Standing {
    /// Its last packet came.
    Ended,
    /// No piece of it came for long.
    GivenUp,
    UnderWay,
    /// Of the chain that the responder took.
    Main,
}

/// One of them.
#[derive(Clone, Debug)]
pub(crate) struct Operation {
    service: Service,
    kind: Kind,
    /// PSNs of its first packet, and of the next.
    first: Psn,
    next: Psn,
    /// Of the chain that its pieces are of.
    weight: u32,
    /// The number of the packet that was its last piece so far, and when that came.
    touched: (u32, Time),
    /// Bytes of payload that each packet but the last has, and what stands for those of the first.
    packet_len: usize,
    first_packet: u64,
    head: Head,
    /// The last bytes so far, and how many came before.
    bytes: Vec<u8>,
    before: u64,
    /// Its last packet is here.
    is_ended: bool,
    /// Of `bytes`, those of the packet at hand.
    new: Range<usize>,
    waiting: Vec<RuleIndex>,
    matched: Vec<RuleIndex>,
}
heap_size!(Operation { bytes });

/// Where a packet belongs.
#[derive(Clone, Copy, Debug)]
struct Place {
    service: Service,
    kind: Kind,
    psn: Psn,
    /// Of its chain.
    weight: u32,
}

/// What a packet is to an operation.
enum Fit {
    /// No piece of it.
    Not,
    /// The next piece.
    Next,
    /// A piece that came before, the same bytes.
    Again(Range<usize>),
    /// One in the place of a piece that came before: other bytes.
    Other,
    /// One whose place was forgotten.
    Forgotten,
}

impl Operations {
    /// Takes a packet in.
    pub(crate) fn take(&mut self, now: Time, view: &View<'_>, limits: &Limits) -> Piece {
        (self.at_hand, self.is_lost) = (0, false);
        self.packets = (self.packets.0.wrapping_add(1), now);
        let Some(rdma) = &view.parsed.rdma else { return Piece::None };
        let kind = rdma.opcode.operation();
        (self.seed, self.service) = (limits.seed, Some(rdma.opcode.service()));
        self.needs_room = limits.refuses_conflicts
            && !limits.only_watches
            && matches!(
                rdma.opcode.service(),
                Service::ReliableConnection | Service::ExtendedReliableConnection
            );
        let weight = self.follow(view, rdma);
        if !matches!(kind, Kind::Send | Kind::Write | Kind::ReadResponse) {
            return Piece::None;
        }
        let piece = Place { service: rdma.opcode.service(), kind, psn: rdma.psn, weight };
        // The answer to a READ of what is missing of another begins where that broke off.
        let resumes = kind == Kind::ReadResponse;
        match rdma.opcode.position() {
            Position::First if resumes => self.resume(piece, view, false),
            Position::Only if resumes => self.resume(piece, view, true),
            Position::First => self.begin(Operation::begin(piece, view, self.seed)),
            Position::Middle => self.go_on(piece, view.payload, false),
            Position::Last => self.go_on(piece, view.payload, true),
            Position::Only => {}
        }
        self.merge();
        let at_hand = self.under_way.len() - self.at_hand;
        self.under_way[at_hand..].iter_mut().for_each(|it| it.touched = self.packets);
        match self.at_hand {
            _ if self.is_lost => Piece::Lost,
            0 => Piece::None,
            _ => Piece::Here,
        }
    }

    /// A first packet of an answer, or its only one: more of one that broke off before it, and the
    /// beginning of another.
    fn resume(&mut self, piece: Place, view: &View<'_>, is_last: bool) {
        let mut place = 0;
        for _ in 0..self.under_way.len() {
            let operation = &mut self.under_way[place];
            if let Fit::Next = operation.fit(piece, view.payload) {
                operation.append(piece.psn, view.payload, is_last);
                operation.weight = operation.weight.max(piece.weight);
                self.put_at_hand(place);
            } else {
                place += 1;
            }
        }
        if !is_last {
            self.begin(Operation::begin(piece, view, self.seed));
        }
    }

    /// Of operations at hand that have come to the same, keeps the one that has more of its past.
    fn merge(&mut self) {
        let mut place = self.under_way.len() - self.at_hand;
        while place < self.under_way.len() {
            let first = self.under_way.len() - self.at_hand;
            let own = &self.under_way[place];
            let has_all = |it: &usize| *it != place && self.under_way[*it].has_all_of(own);
            let Some(kept) = (first..self.under_way.len()).find(has_all) else {
                place += 1;
                continue;
            };
            let Operation { waiting, matched, .. } = self.under_way.remove(place);
            self.at_hand -= 1;
            let kept = &mut self.under_way[kept - usize::from(kept > place)];
            matched.into_iter().for_each(|it| kept.match_ends(it));
            for rule in waiting {
                let _ = kept.is_matched(rule) || kept.wait(rule);
            }
        }
    }

    /// Finds the chain that a packet is the next of, or begins one; what it weighs.
    fn follow(&mut self, view: &View<'_>, rdma: &Rdma) -> u32 {
        let (kind, psn, position) = (rdma.opcode.operation(), rdma.psn, rdma.opcode.position());
        let service = rdma.opcode.service();
        let is_answer = kind == Kind::ReadResponse;
        let is_alike = |it: &Chain| (it.service, it.is_answer) == (service, is_answer);
        let slack = match kind {
            Kind::Acknowledge | Kind::AtomicAcknowledge | Kind::CongestionNotification => return 0,
            Kind::ReadResponse if matches!(position, Position::First | Position::Middle) => 0,
            Kind::ReadResponse => ANSWERS_APART_MAX,
            Kind::ReadRequest => ext::reth(view.bytes, rdma)
                .map_or(0, |it| it.dma_length.get().div_ceil(PATH_MTU_MIN).saturating_sub(1)),
            _ => 0,
        };
        let ahead = |it: &Chain| u32::try_from(psn.distance(it.next)).ok();
        let goes_on = |it: &&Chain| is_alike(it) && ahead(it).is_some_and(|by| by <= it.slack);
        let found = self.chains.iter().filter(goes_on).max_by_key(|it| it.weight());
        let (packets, is_main) = match found {
            Some(chain) => (chain.packets.saturating_add(1), chain.is_main),
            None => (0, !self.chains.iter().any(is_alike)),
        };
        let mut chain = Chain { service, is_answer, next: psn.add(1), slack, packets, is_main };
        let main = self.chains.iter().find(|it| is_alike(it) && it.is_main);
        if let Some(main) = main
            && !is_main
            && packets > main.packets.saturating_add(RESTARTED_PACKETS)
        {
            chain.is_main = true;
            let own = self.under_way.iter_mut().filter(|it| it.service == service);
            own.for_each(|it| it.weight = 0);
        }
        // One that may go on elsewhere stays beside, and weighs less than what it did go on with.
        self.chains.retain(|it| !is_alike(it) || ahead(it) != Some(0));
        if chain.is_main {
            let same = self.chains.iter_mut().filter(|it| is_alike(it));
            same.for_each(|it| it.is_main = false);
        }
        let own = self.chains.iter().enumerate().filter(|it| it.1.service == service);
        if own.clone().count() >= CHAINS_MAX
            && let Some((place, _)) = own.min_by_key(|it| it.1.weight())
        {
            self.chains.remove(place);
        }
        self.chains.push(chain);
        chain.weight()
    }

    /// A first packet: an operation that is new, or one that begins again as it did.
    fn begin(&mut self, operation: Operation) {
        let mut is_again = false;
        let mut place = 0;
        for _ in 0..self.under_way.len() - self.at_hand {
            if self.under_way[place].begin_again(&operation) {
                is_again = true;
                self.put_at_hand(place);
            } else {
                place += 1;
            }
        }
        if is_again {
            return;
        }
        // Its beginning is behind it: the one that came least far is gone over once more.
        let alike = |it: &(usize, &Operation)| it.1.begins_as(&operation);
        let alike = self.under_way.iter().enumerate().filter(alike);
        let progress = |it: &Operation| it.next.distance(it.first);
        if alike.clone().count() >= BEGUN_ALIKE_MAX
            && let Some((place, _)) = alike.min_by_key(|it| progress(it.1))
        {
            self.under_way.remove(place);
        }
        self.add(operation);
    }

    fn go_on(&mut self, piece: Place, payload: &[u8], is_last: bool) {
        let mut versions = Vec::new();
        let mut forgotten = None;
        let mut place = 0;
        for _ in 0..self.under_way.len() {
            let operation = &mut self.under_way[place];
            match operation.fit(piece, payload) {
                Fit::Next => {
                    operation.append(piece.psn, payload, is_last);
                    operation.weight = operation.weight.max(piece.weight);
                }
                Fit::Again(new) => operation.new = new,
                Fit::Other => {
                    versions.push(operation.version(piece, payload, is_last));
                    place += 1;
                    continue;
                }
                Fit::Forgotten => {
                    forgotten = Some(place);
                    place += 1;
                    continue;
                }
                Fit::Not => {
                    place += 1;
                    continue;
                }
            }
            self.put_at_hand(place);
        }
        if self.at_hand == 0 && versions.is_empty() {
            let version = |it: usize| self.under_way[it].version(piece, payload, is_last);
            versions.extend(forgotten.map(version));
        }
        versions.into_iter().for_each(|it| self.add(it));
    }

    /// The packet at hand is a piece of the operation at `place`.
    fn put_at_hand(&mut self, place: usize) {
        self.under_way[place..].rotate_left(1);
        self.at_hand += 1;
    }

    /// Adds one that the packet at hand is a piece of, if it is the first such or outweighs
    /// another.
    fn add(&mut self, operation: Operation) {
        if self.at_hand().iter().any(|it| it.is_same(&operation)) {
            return;
        }
        let of_service = |it: &&Operation| it.service == operation.service;
        if self.under_way.iter().filter(of_service).count() >= OPERATIONS_MAX {
            let others = &self.under_way[..self.under_way.len() - self.at_hand];
            let standing = |it: &Operation| it.standing(self.packets);
            let others = others.iter().enumerate().filter(|it| of_service(&it.1));
            let others = others.map(|(place, it)| (standing(it), place));
            let Some((gives_way, place)) = others.min() else { return };
            let is_main = operation.weight == u32::MAX;
            let is_first = self.at_hand == 0;
            self.is_lost =
                self.needs_room && is_first && !is_main && gives_way.0 >= Standing::UnderWay;
            let is_lighter = !is_first && gives_way > standing(&operation);
            if self.is_lost || is_lighter {
                return;
            }
            self.under_way.remove(place);
        }
        self.under_way.push(operation);
        self.at_hand += 1;
    }

    /// Those that the last packet is a piece of.
    pub(crate) fn at_hand(&mut self) -> &mut [Operation] {
        let others = self.under_way.len() - self.at_hand;
        &mut self.under_way[others..]
    }

    /// The packet at hand was looked at. Of operations that have ended a few are kept: their last
    /// packet may come again, with other bytes, for a receiver that did not take the first one.
    pub(crate) fn let_go(&mut self) {
        self.at_hand = 0;
        loop {
            let (service, packets) = (self.service, self.packets);
            let ended = self.under_way.iter().enumerate();
            let ended = ended.filter(|(_, it)| it.is_ended && Some(it.service) == service);
            if ended.clone().count() <= ENDED_MAX {
                return;
            }
            let Some((place, _)) = ended.min_by_key(|it| it.1.standing(packets)) else { return };
            self.under_way.remove(place);
        }
    }

    /// Other rules will look.
    pub(crate) fn change_rules(&mut self, successors: &Successors) {
        for operation in &mut self.under_way {
            successors.rename(&mut operation.waiting, |it| it);
            successors.rename(&mut operation.matched, |it| it);
        }
    }
}

impl Operation {
    fn begin(piece: Place, view: &View<'_>, seed: u64) -> Self {
        let Place { service, kind, psn, weight } = piece;
        let reth = view.parsed.rdma.as_ref().and_then(|it| ext::reth(view.bytes, it));
        let head = Head {
            remote_key: reth.map(|it| it.remote_key.get()),
            length: reth.map(|it| it.dma_length.get()),
        };
        Self {
            service,
            kind,
            first: psn,
            next: psn.add(1),
            weight,
            touched: Default::default(),
            packet_len: view.payload.len(),
            first_packet: Keyed(seed).hash_one(view.payload),
            head,
            bytes: view.payload.to_vec(),
            before: 0,
            is_ended: false,
            new: 0..view.payload.len(),
            waiting: Vec::new(),
            matched: Vec::new(),
        }
    }

    /// Looks from its beginning again, if `other` begins as this did.
    fn begin_again(&mut self, other: &Self) -> bool {
        let is_same =
            self.begins_as(other) && self.before == 0 && self.bytes.starts_with(&other.bytes);
        if is_same {
            self.new = other.new.clone();
        }
        is_same
    }

    /// What gives way first after so many packets, and of each kind those that weigh least.
    fn standing(&self, (packets, now): (u32, Time)) -> (Standing, u32) {
        let is_old = packets.wrapping_sub(self.touched.0) > UNDER_WAY_PACKETS
            || now.since_ns(self.touched.1) > UNDER_WAY_NS;
        let standing = match self.weight {
            _ if self.is_ended => Standing::Ended,
            u32::MAX => Standing::Main,
            _ if is_old => Standing::GivenUp,
            _ => Standing::UnderWay,
        };
        (standing, self.weight)
    }

    /// Whether `other` has the same first packet, as far as that is still known.
    fn begins_as(&self, other: &Self) -> bool {
        (self.service, self.kind, self.first) == (other.service, other.kind, other.first)
            && (self.packet_len, self.head) == (other.packet_len, other.head)
            && self.first_packet == other.first_packet
    }

    /// Whether it has come as far as `other`, with the same last bytes or more of them.
    fn has_all_of(&self, other: &Self) -> bool {
        (self.service, self.kind, self.first) == (other.service, other.kind, other.first)
            && (self.next, self.head, self.is_ended) == (other.next, other.head, other.is_ended)
            && self.bytes.ends_with(&other.bytes)
    }

    /// Whether `other` has come as far, with the same bytes.
    fn is_same(&self, other: &Self) -> bool {
        (self.service, self.kind, self.first) == (other.service, other.kind, other.first)
            && (self.next, self.before, self.head) == (other.next, other.before, other.head)
            && self.bytes == other.bytes
    }

    /// What a packet that is not the first is to it.
    fn fit(&self, Place { service, kind, psn, .. }: Place, payload: &[u8]) -> Fit {
        if (service, kind) != (self.service, self.kind) {
            return Fit::Not;
        }
        if psn.distance(self.first) <= 0 || psn.distance(self.next) > 0 {
            return Fit::Not;
        }
        if psn == self.next {
            return if self.is_ended { Fit::Not } else { Fit::Next };
        }
        let Some(start) = self.place_of(psn) else { return Fit::Forgotten };
        let end = start + payload.len();
        let is_there = self.bytes.get(start..end) == Some(payload);
        // The last packet is as long as it was, too.
        let is_last = psn.add(1) == self.next;
        let is_same = is_there && (!is_last || end == self.bytes.len());
        if is_same { Fit::Again(start..end) } else { Fit::Other }
    }

    /// Where among the bytes the packet's begin, if they are there.
    fn place_of(&self, psn: Psn) -> Option<usize> {
        let packets = u64::try_from(psn.distance(self.first)).ok()?;
        let at = packets.saturating_mul(self.packet_len as u64).checked_sub(self.before)?;
        usize::try_from(at).ok().filter(|it| *it <= self.bytes.len())
    }

    /// Takes the next packet.
    fn append(&mut self, psn: Psn, payload: &[u8], is_last: bool) {
        let past = self.bytes.len().saturating_sub(PAST_MAX);
        self.bytes.drain(..past);
        self.before += past as u64;
        let start = self.bytes.len();
        self.bytes.extend_from_slice(payload);
        self.new = start..self.bytes.len();
        self.next = psn.add(1);
        self.is_ended = is_last;
    }

    /// The same operation with another packet from `psn` on.
    fn version(&self, piece: Place, payload: &[u8], is_last: bool) -> Self {
        let Place { psn, weight, .. } = piece;
        let mut version = Self { weight, ..self.clone() };
        match self.place_of(psn) {
            Some(place) => version.bytes.truncate(place),
            None => {
                version.bytes.clear();
                let packets = u64::try_from(psn.distance(self.first)).unwrap_or_default();
                version.before = packets.saturating_mul(self.packet_len as u64);
            }
        }
        version.append(psn, payload, is_last);
        version
    }

    /// Its last bytes, how many stand before them, and how many of them are new.
    pub(crate) fn window(&self) -> (&[u8], u64, usize) {
        (&self.bytes[..self.new.end], self.before, self.new.len())
    }

    /// What its first packet said.
    pub(crate) fn head(&self) -> Head {
        self.head
    }

    /// Whether the packet at hand is its last.
    pub(crate) fn is_whole(&self) -> bool {
        self.is_ended && self.new.end == self.bytes.len()
    }

    /// Rules whose fast pattern came, but not all that they ask.
    pub(crate) fn waiting(&self) -> &[RuleIndex] {
        &self.waiting
    }

    /// A rule waits for more; whether there was room for it.
    pub(crate) fn wait(&mut self, rule: RuleIndex) -> bool {
        if self.waiting.contains(&rule) {
            return true;
        }
        let has_room = self.waiting.len() < RULES_MAX;
        if has_room {
            self.waiting.push(rule);
        }
        has_room
    }

    pub(crate) fn is_matched(&self, rule: RuleIndex) -> bool {
        self.matched.contains(&rule)
    }

    /// A rule matched: it does not count again for this operation.
    pub(crate) fn match_ends(&mut self, rule: RuleIndex) {
        self.waiting.retain(|it| *it != rule);
        if self.matched.len() < RULES_MAX && !self.is_matched(rule) {
            self.matched.push(rule);
        }
    }
}
