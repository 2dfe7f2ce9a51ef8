//! Floods: more packets of a kind than a bucket gives, by source or by destination: one host, or a
//! network.
//!
//! ```text
//!   packet of a kind -> Bucket of its network: half a second of the rate left? --no--> a flood
//!                                 `--half of it gone--> Talkers: few sources, or forged ones
//! ```
//!
//! A bucket holds half a second of its rate, so that a burst passes and a flood empties it within
//! a fraction of a second. From then on:
//!
//! - by source: all its packets of the kind belong to the flood;
//! - by destination, if few sources send most of it: all of theirs, but those of flows that had an
//!   answer before it began (of UDP and ICMP up to the rate), and of others what exceeds the rate;
//! - by destination else (sources are forged, or many): all but those of flows that had an answer
//!   before it began, of SYNs that are sent again as a real host does, four times the rate of these
//!   at most, and of a trickle, a tenth of the rate;
//!
//! until for `hold` seconds fewer than half of the rate arrive.
//!
//! UDP counts where it is not answered, echo replies of ICMP where nobody asked for them, and
//! `unasked_cnp` where no data went the other way. In `half_open` a SYN counts until its connection
//! is set up; during a flood, one that is sent again counts no more than the first.

mod bucket;
mod talkers;
mod watch;

use weir_wire::bth::Operation;
use weir_wire::frame::Time;
use weir_wire::mad;
use weir_wire::parse::{Rdma, Transport};
use weir_wire::tcp::flags::{ACK, SYN};

use self::bucket::Bucket;
pub use self::talkers::FloodSources;
use self::talkers::Talkers;
pub(crate) use self::watch::FloodWatch;
use self::watch::{Counted, Of};
pub use self::watch::{Flood, FloodKind};
use super::table::Table;
use super::tally::Tally;
use super::{NS_PER_S, Signs, Watch};
use crate::detector::Direction;
use crate::flow::Flow;
use crate::packet::View;
use crate::shared::Unshared;

/// Packets that were counted of a flood, by what stands for its bucket and the bit of its watch.
pub(crate) type FloodChange = ((u64, u8), i64);

/// Buckets of one worker.
const BUCKETS_MAX: usize = 1 << 16;
/// Floods of one worker whose sources are looked at.
const SKETCHES_MAX: usize = 64;
/// What passes to a destination during a flood: one packet of so many of its rate.
const TRICKLE: u64 = 10;
/// A flow of UDP with an answer to so many packets is a conversation, however fast: QUIC, NFS.
const ANSWERED: u64 = 16;
/// How long a SYN may take to be sent again (RFC 6298: after 1 s, then 2, 4 and 8).
const SENT_AGAIN_S: u32 = 16;
/// SYNs that are sent again pass during a flood: so many times its rate.
const SENT_AGAIN: u64 = 4;
/// Where a rule asks for what is usual, nothing is told before so much was seen.
const LEARN_NS: u64 = 60 * NS_PER_S;
const PORT_DNS: u16 = 53;
/// Communication management's REQ (IBTA Vol 1 s12.6.5).
const CM_REQ: u16 = 0x10;

/// The floods that rules have watched, and how much of each there is.
#[derive(Debug)]
pub(super) struct Floods {
    /// With the bit of each.
    watches: Vec<(u8, FloodWatch)>,
    counts: Counts,
}

/// What was counted of them.
#[derive(Debug)]
struct Counts {
    buckets: Table<Bucket>,
    sources: Table<Talkers>,
    /// SYNs that were refused.
    refused: Tally,
    unshared: Unshared<(u64, u8), i64>,
    /// Whom of RDMA's requesters a responder has answered, and since when; for floods to one. Their
    /// flows have one direction alone.
    answered: Option<Table<Time>>,
    /// When the first packet was counted.
    begun: Option<Time>,
}

/// What is known of a flood: for whoever reads of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FloodView {
    /// The kind, as rules name it: `syn`, `half_open`.
    pub kind: &'static str,
    /// Whether it goes to the network, rather than comes from it.
    pub by_destination: bool,
    /// The network's first address; an IPv4 address mapped.
    pub network: [u8; 16],
    /// Bits that its addresses have in common, of 128.
    pub bits: u8,
    /// Packets a second, of late.
    pub rate: u32,
    /// Packets a second that are no flood.
    pub allowed: u64,
    /// Who sends it, if it goes to the network.
    pub sources: Option<FloodSources>,
}

/// A packet, and the flow that it is of.
struct Seen<'a> {
    now: Time,
    flow: &'a Flow,
    direction: Direction,
    view: &'a View<'a>,
    /// How often this SYN was to be refused, this time included, once one watch asked.
    refusals: Option<u32>,
}

impl Floods {
    pub(super) fn new(watches: &[Watch], seed: u64) -> Option<Self> {
        let floods = watches.iter().zip(0..).filter_map(|(watch, bit)| match watch {
            Watch::Flood(watch) => Some((bit, *watch)),
            _ => None,
        });
        let watches: Vec<_> = floods.collect();
        if watches.is_empty() {
            return None;
        }
        let asks_rdma = watches.iter().any(|(_, it)| it.of == Of::Destination && it.is_of_rdma());
        let counts = Counts {
            buckets: Table::new(BUCKETS_MAX, seed),
            sources: Table::new(SKETCHES_MAX, seed),
            refused: Tally::new(BUCKETS_MAX, seed ^ 1),
            answered: asks_rdma.then(|| Table::new(BUCKETS_MAX, seed ^ 2)),
            unshared: Unshared::new(seed),
            begun: None,
        };
        Some(Self { watches, counts })
    }

    /// Keeps what is counted for other workers from now on.
    pub(super) fn share(&mut self) {
        self.counts.unshared.share();
    }

    pub(super) fn take_shared(&mut self) -> Vec<FloodChange> {
        self.counts.unshared.take()
    }

    /// Takes what another worker counted out of the buckets here.
    pub(super) fn add_shared(&mut self, now: Time, changes: &[FloodChange]) {
        for ((key, watched), packets) in changes {
            let watch = self.watches.iter().find(|(bit, _)| bit == watched);
            let Some((_, watch)) = watch else { continue };
            let bucket = self.counts.bucket(now, *key, watch);
            bucket.count(now, watch, u32::try_from(*packets).unwrap_or_default());
            match bucket.since {
                Some(_) => drop(bucket.goes_on(now, watch, *packets)),
                None => {
                    bucket.fill(now, bucket.allowed(watch));
                    bucket.change(*packets);
                }
            }
        }
    }

    /// Takes in how many packets of a flood were dropped before they came here, none at first;
    /// whether it goes on. Of a talker it does as long as that is one.
    pub(super) fn dropped_early(&mut self, now: Time, flood: &Flood, packets: u32) -> bool {
        let watch = &flood.watch;
        let Counts { buckets, sources, .. } = &mut self.counts;
        let key = buckets.key(watch.key(u128::from_be_bytes(flood.network)));
        if buckets.get_key(key).is_none() {
            return false;
        }
        // It is in use, although nothing of it comes here.
        let (bucket, _) = buckets.enter_key(now, key);
        bucket.count(now, watch, packets);
        let is_theirs = match flood.talker.map(u128::from_be_bytes) {
            Some(source) => {
                let hash = sources.key(source);
                let (talkers, _) = sources.enter_key(now, key);
                talkers.add(now, source, hash, packets);
                talkers.is_talker(hash)
            }
            None => {
                bucket.is_early = true;
                true
            }
        };
        let goes_on = bucket.since.is_some() && bucket.goes_on(now, watch, packets.into());
        if !goes_on {
            bucket.end(now, watch);
        }
        goes_on && is_theirs
    }

    pub(super) fn look(
        &mut self,
        now: Time,
        flow: &Flow,
        direction: Direction,
        view: &View<'_>,
        is_unasked: bool,
    ) -> Signs {
        self.counts.note_answer(now, view);
        let kinds = kinds(flow, direction, view);
        let is_set_up = is_set_up(flow, direction);
        if kinds == [None; 3] && !is_set_up {
            return 0;
        }
        let Self { watches, counts } = self;
        counts.begun.get_or_insert(now);
        let mut seen = Seen { now, flow, direction, view, refusals: None };
        let mut signs = 0;
        for (bit, watch) in watches.iter() {
            if is_set_up && watch.counted == Counted::HalfOpen {
                counts.take_off(&seen, *bit, watch);
            }
            let is_counted = watch.counted != Counted::Unasked || is_unasked;
            if is_counted
                && kinds.contains(&Some(watch.kind))
                && counts.is_over(&mut seen, *bit, watch)
            {
                signs |= 1 << *bit;
            }
        }
        signs
    }

    /// The flood of a watch that a packet, which was dropped for it, belongs to: all that goes to
    /// the network or comes from it, or what its talkers send; `None` if the packet is not of these
    /// and only what exceeds the rate is dropped, or while it is not known yet whose it is.
    pub(super) fn flood(
        &mut self,
        watch: FloodWatch,
        source: u128,
        destination: u128,
    ) -> Option<Flood> {
        let Counts { buckets, sources, .. } = &mut self.counts;
        let flood = Flood::of(watch, source, destination, false);
        let key = buckets.key(watch.key(u128::from_be_bytes(flood.network)));
        let hash = sources.key(source);
        let is_young = buckets.get_key(key).is_some_and(|it| it.is_young());
        match sources.get_key(key).filter(|_| flood.by_destination) {
            Some(talkers) if talkers.are_few() => {
                talkers.is_talker(hash).then(|| Flood::of(watch, source, destination, true))
            }
            Some(talkers) if is_young && talkers.is_unsure() => None,
            _ if flood.by_destination && watch.is_of_rdma() => None,
            _ => Some(flood),
        }
    }

    /// What is known of the flood of a watch that a packet belongs to.
    pub(super) fn tell(
        &mut self,
        watch: FloodWatch,
        source: u128,
        destination: u128,
    ) -> Option<FloodView> {
        let Counts { buckets, sources, .. } = &mut self.counts;
        let Flood { by_destination, network, bits, .. } =
            Flood::of(watch, source, destination, false);
        let key = buckets.key(watch.key(u128::from_be_bytes(network)));
        let bucket = buckets.get_key(key)?;
        let (kind, rate, allowed) = (watch.name(), bucket.rate(), bucket.allowed(&watch));
        let sources = sources.get_key(key).and_then(|it| it.tell());
        Some(FloodView { kind, by_destination, network, bits, rate, allowed, sources })
    }
}

impl Counts {
    /// The bucket that `key` stands for.
    fn bucket(&mut self, now: Time, key: u64, watch: &FloodWatch) -> &mut Bucket {
        let all_are_new = self.is_learning(now);
        let (bucket, is_new) = self.buckets.enter_key(now, key);
        if is_new {
            *bucket = Bucket::full(now, watch, all_are_new);
        }
        bucket
    }

    fn is_learning(&self, now: Time) -> bool {
        self.begun.is_none_or(|begun| now.since_ns(begun) < LEARN_NS)
    }

    /// What stands for the bucket of a packet.
    fn key(&self, view: &View<'_>, watch: &FloodWatch) -> u64 {
        let host = match watch.of {
            Of::Source => view.source,
            Of::Destination => view.destination,
        };
        self.buckets.key(watch.key(watch.network(host).0))
    }

    /// A connection was set up, whose SYN was counted.
    fn take_off(&mut self, seen: &Seen<'_>, bit: u8, watch: &FloodWatch) {
        let key = self.key(seen.view, watch);
        self.give_back(seen.now, (key, bit), watch);
    }

    /// Whether the packet is of a flood.
    fn is_over(&mut self, seen: &mut Seen<'_>, bit: u8, watch: &FloodWatch) -> bool {
        let Seen { now, flow, direction, view, .. } = *seen;
        let answers = flow.packets[1 - direction.index()];
        let own = flow.packets[direction.index()];
        let is_asked_for = match watch.kind {
            FloodKind::Udp => answers * ANSWERED >= own,
            FloodKind::Icmp => is_echo_reply(view) && answers >= own,
            _ => false,
        };
        if is_asked_for {
            return false;
        }
        let key = self.key(view, watch);
        self.unshared.change((key, bit), |packets| *packets += 1);
        let learns = watch.times > 0 && self.is_learning(now);
        let bucket = self.bucket(now, key, watch);
        bucket.count(now, watch, 1);
        if learns {
            return false;
        }
        let is_to = watch.of == Of::Destination;
        if bucket.since.is_none() {
            bucket.fill(now, bucket.allowed(watch));
            let has_room = bucket.take();
            if !has_room {
                bucket.begin(now, watch);
            }
            if is_to && bucket.is_suspicious(watch) {
                self.note_source(now, key, view);
            }
            if has_room {
                return false;
            }
        } else if !bucket.goes_on(now, watch, 1) {
            bucket.end(now, watch);
            return false;
        } else if is_to && !bucket.is_early {
            self.note_source(now, key, view);
        }
        let answered = match watch.is_of_rdma() {
            true => self.rdma_answered(view),
            false => Some(flow.start).filter(|_| answers > 0),
        };
        !is_to || self.is_of_flood_to(seen, (key, bit), watch, answered)
    }

    /// Notes that a responder answers a requester of RDMA, where it matters.
    fn note_answer(&mut self, now: Time, view: &View<'_>) {
        let Some(answered) = &mut self.answered else { return };
        let is_answer = |it: Rdma| {
            use Operation as O;
            matches!(it.opcode.operation(), O::Acknowledge | O::AtomicAcknowledge | O::ReadResponse)
        };
        if view.parsed.rdma.is_some_and(is_answer) && !view.is_damaged {
            let (since, is_new) = answered.enter(now, (view.destination, view.source));
            if is_new {
                *since = now;
            }
        }
    }

    /// Since when the packet's destination has answered its source.
    fn rdma_answered(&mut self, view: &View<'_>) -> Option<Time> {
        self.answered.as_mut()?.get((view.source, view.destination)).copied()
    }

    /// Whether a packet to whom a flood goes is one of it.
    fn is_of_flood_to(
        &mut self,
        seen: &mut Seen<'_>,
        (key, bit): (u64, u8),
        watch: &FloodWatch,
        answered: Option<Time>,
    ) -> bool {
        let Seen { now, view, .. } = *seen;
        let Self { buckets, sources, refused, .. } = self;
        let Some(bucket) = buckets.get_key(key) else { return false };
        if answered.is_some_and(|answered| bucket.since.is_some_and(|since| answered < since)) {
            // One answer is had for one packet: it is no leave to send any number.
            let is_limited = watch.asks_for_answers() || watch.is_of_rdma();
            return is_limited && !bucket.take_real(now, bucket.allowed(watch));
        }
        let is_syn = watch.kind == FloodKind::Syn;
        let hash = sources.key(view.source);
        let few = sources.get_key(key).filter(|it| it.are_few());
        let given = match &few {
            Some(talkers) if talkers.is_talker(hash) => return true,
            Some(_) => bucket.allowed(watch),
            None => bucket.trickle(watch),
        };
        // Who sends each SYN twice is no more real than others. A busy server's clients do, all of
        // them, while its half-open connections are too many.
        let again = match watch.counted {
            Counted::HalfOpen => u64::from(u32::MAX),
            _ => bucket.allowed(watch).saturating_mul(SENT_AGAIN),
        };
        if bucket.is_early && is_syn {
            // The trickle, or one that was sent again.
            let passes = bucket.take_real(now, again);
            if passes {
                self.forgive(now, (key, bit), watch);
            }
            return !passes;
        }
        bucket.fill(now, given);
        if bucket.take() {
            return false;
        }
        let Transport::Tcp { sequence, .. } = view.parsed.transport else { return true };
        let ends = (view.source, view.destination, view.source_port, view.destination_port);
        let count = || refused.add_here(now, (ends, sequence), 1, SENT_AGAIN_S);
        let is_sent_again = is_syn && *seen.refusals.get_or_insert_with(count) > 1;
        let passes = is_sent_again && bucket.take_real(now, again);
        if passes {
            self.forgive(now, (key, bit), watch);
        }
        !passes
    }

    /// A SYN that was just counted is one that was sent again, as real hosts do: a connection
    /// counts once, until it is set up.
    fn forgive(&mut self, now: Time, change: (u64, u8), watch: &FloodWatch) {
        if watch.counted == Counted::HalfOpen {
            self.give_back(now, change, watch);
        }
    }

    /// Takes off a packet that was counted, for other workers too.
    fn give_back(&mut self, now: Time, change: (u64, u8), watch: &FloodWatch) {
        self.unshared.change(change, |packets| *packets -= 1);
        let Some(bucket) = self.buckets.get_key(change.0) else { return };
        match bucket.since {
            Some(_) => drop(bucket.goes_on(now, watch, -1)),
            None => bucket.change(-1),
        }
    }

    fn note_source(&mut self, now: Time, key: u64, view: &View<'_>) {
        let hash = self.sources.key(view.source);
        self.sources.enter_key(now, key).0.add(now, view.source, hash, 1);
    }
}

/// Whether it is an echo reply (RFC 792, RFC 4443 s4.2): a request and its reply are of one flow.
fn is_echo_reply(view: &View<'_>) -> bool {
    let Transport::Icmp { kind, .. } = view.parsed.transport else { return false };
    matches!((view.parsed.protocol, kind), (1, 0) | (58, 129))
}

/// Whether a packet sets up the connection whose SYN came before.
fn is_set_up(flow: &Flow, direction: Direction) -> bool {
    direction == Direction::Initiator && flow.is_set_up
}

/// What floods a packet may belong to: one of TCP, UDP, ICMP or RDMA; a request for a connection is
/// a management datagram too; and any packet may be a flow's first.
fn kinds(flow: &Flow, direction: Direction, view: &View<'_>) -> [Option<FloodKind>; 3] {
    // Whoever of its ends sends it: of an older connection it may be the server.
    let is_first = flow.packets[0] + flow.packets[1] == 1;
    let [kind, second] = kinds_of_packet(direction, view);
    // Who reads no RDMA in it may have its port, and its network carries it.
    let is_datagram_too = view.is_damaged || view.parsed.rdma.is_some_and(is_reserved);
    let second = if is_datagram_too { Some(FloodKind::Udp) } else { second };
    [kind, second, is_first.then_some(FloodKind::NewFlow)]
}

/// Whether no operation has that opcode.
fn is_reserved(rdma: Rdma) -> bool {
    rdma.opcode.operation() == Operation::Reserved
}

fn kinds_of_packet(direction: Direction, view: &View<'_>) -> [Option<FloodKind>; 2] {
    let parsed = view.parsed;
    if let Some(rdma) = &parsed.rdma {
        if mad::is_management(rdma) {
            let header = mad::header(view.bytes, parsed);
            let is_request = header.is_some_and(|it| {
                it.management_class == mad::class::COMMUNICATION && it.attribute_id.get() == CM_REQ
            });
            return [Some(FloodKind::Mad), is_request.then_some(FloodKind::Cm)];
        }
        let kind = match rdma.opcode.operation() {
            Operation::ReadRequest | Operation::Atomic => FloodKind::RdmaRead,
            Operation::Write if weir_wire::ext::reth(view.bytes, rdma).is_some() => {
                FloodKind::RdmaWrite
            }
            Operation::CongestionNotification => FloodKind::Cnp,
            _ => return [None; 2],
        };
        return [Some(kind), None];
    }
    let kind = match parsed.transport {
        Transport::Tcp { flags, .. } if flags & (SYN | ACK) == SYN => Some(FloodKind::Syn),
        Transport::Udp { .. } if view.source_port == PORT_DNS => {
            (direction == Direction::Initiator).then_some(FloodKind::Dns)
        }
        Transport::Udp { .. } => Some(FloodKind::Udp),
        Transport::Icmp { .. } => Some(FloodKind::Icmp),
        _ => None,
    };
    [kind, None]
}
