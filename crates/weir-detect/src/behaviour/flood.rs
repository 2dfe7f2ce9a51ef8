//! Floods: more packets of a kind than a bucket gives, by source or by destination.
//!
//! A bucket holds half a second of its rate, so that a burst passes and a flood empties it within
//! a fraction of a second. From then on:
//!
//! UDP counts where it is not answered, and `unasked_cnp` where no data went the other way.
//!
//! - by source: all its packets of the kind belong to the flood;
//! - by destination (sources are forged, or many): all but those of flows that had an answer before
//!   it began, of SYNs that are sent again as a real host does, and of a trickle, a tenth of the
//!   rate;
//!
//! until for `hold` seconds fewer than half of the rate arrive.

use weir_wire::bth::Operation;
use weir_wire::frame::Time;
use weir_wire::mad;
use weir_wire::parse::Transport;
use weir_wire::tcp::flags::{ACK, SYN};

use super::table::Table;
use super::tally::Tally;
use super::{NS_PER_S, Signs, Watch, parts};
use crate::detector::Direction;
use crate::flow::Flow;
use crate::packet::View;
use crate::shared::Unshared;

/// Packets that were counted of a flood, by what stands for its bucket and the bit of its watch.
pub(crate) type FloodChange = ((u64, u8), u32);

/// Buckets of one worker.
const BUCKETS_MAX: usize = 1 << 16;
/// What a bucket holds: so many milliseconds of its rate.
const BURST_MS: u64 = 500;
/// What passes to a destination during a flood: one packet of so many of its rate.
const TRICKLE: u64 = 10;
/// A flow of UDP with an answer to so many packets is a conversation, however fast: QUIC, NFS.
const ANSWERED: u64 = 16;
/// How long a SYN may take to be sent again (RFC 6298: after 1 s, then 2, 4 and 8).
const SENT_AGAIN_S: u32 = 16;
const PORT_DNS: u16 = 53;
const PORT_ROCE: u16 = 4791;
/// Communication management's REQ (IBTA Vol 1 s12.6.5).
const CM_REQ: u16 = 0x10;

/// What a flood is made of. The gate in the kernel numbers them so, too
/// (weir-port/bpf/gate.bpf.h).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FloodKind {
    /// TCP SYNs.
    Syn,
    /// UDP, RoCE and DNS answers apart.
    Udp,
    /// ICMP and ICMPv6.
    Icmp,
    /// DNS answers that nobody asked for.
    Dns,
    /// READ requests and atomics.
    RdmaRead,
    /// WRITEs, by message.
    RdmaWrite,
    /// Requests for connections.
    Cm,
    /// Management datagrams.
    Mad,
    /// Congestion notifications.
    Cnp,
}

/// Names of kinds, and packets a second that are usual.
const KINDS: &[(&str, FloodKind, u32)] = &[
    ("syn", FloodKind::Syn, 2_000),
    ("udp", FloodKind::Udp, 20_000),
    ("icmp", FloodKind::Icmp, 1_000),
    ("dns", FloodKind::Dns, 1_000),
    ("rdma_read", FloodKind::RdmaRead, 1_000_000),
    ("rdma_write", FloodKind::RdmaWrite, 2_000_000),
    ("cm", FloodKind::Cm, 500),
    ("mad", FloodKind::Mad, 2_000),
    ("cnp", FloodKind::Cnp, 20_000),
    (UNASKED_CNP, FloodKind::Cnp, 1_000),
];

/// Congestion notifications for data that nobody sent: no honest adapter sends one.
const UNASKED_CNP: &str = "unasked_cnp";

/// Whose packets are counted together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Of {
    Source,
    Destination,
}

/// A kind of flood that a rule has watched.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct FloodWatch {
    kind: FloodKind,
    of: Of,
    /// Packets a second that are no flood yet.
    rate: u32,
    /// Seconds of calm after which it is over.
    hold_s: u32,
    /// Counts notifications alone for whose data none went the other way.
    is_unasked: bool,
}

impl FloodWatch {
    pub(super) fn parse(value: &str) -> Result<Self, String> {
        let (mut of, mut rate, mut hold_s) = (Of::Source, None, 10);
        let word = |word: &str| {
            of = match word {
                "by_src" => Of::Source,
                "by_dst" => Of::Destination,
                _ => return Err(format!("`{word}` behind flood: by_src or by_dst")),
            };
            Ok(())
        };
        let number = |name: &str, value: u32| {
            match name {
                "rate" => rate = Some(value),
                "hold" => hold_s = value,
                _ => return false,
            }
            true
        };
        let first = parts(value, word, number)?;
        let (name, kind, usual) = KINDS
            .iter()
            .find(|(name, ..)| *name == first)
            .ok_or_else(|| format!("`{first}` is no kind of flood"))?;
        let is_unasked = *name == UNASKED_CNP;
        Ok(Self { kind: *kind, of, rate: rate.unwrap_or(*usual), hold_s, is_unasked })
    }
}

/// A flood that goes on, and that may be dropped before a packet of it is looked at: a rule drops
/// all of it, whatever else its packets are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Flood {
    /// What it is made of.
    pub kind: FloodKind,
    /// Whether it goes to the host, rather than comes from it.
    pub by_destination: bool,
    /// The host; an IPv4 address mapped.
    pub host: [u8; 16],
    watch: FloodWatch,
}

impl Flood {
    /// The flood of `watch` that a packet belongs to.
    pub(crate) fn of(watch: FloodWatch, source: [u8; 16], destination: [u8; 16]) -> Self {
        let by_destination = watch.of == Of::Destination;
        let host = if by_destination { destination } else { source };
        Self { kind: watch.kind, by_destination, host, watch }
    }

    /// Packets a second that pass for all that, where it goes to the host.
    pub fn trickle(&self) -> u32 {
        (self.watch.rate / TRICKLE as u32).max(1)
    }
}

impl FloodWatch {
    /// Whether it counts notifications alone for whose data none went the other way.
    pub(crate) fn is_unasked(&self) -> bool {
        self.is_unasked
    }

    /// What its buckets are kept by.
    fn key(&self, host: u128) -> (FloodKind, bool, Of, u32, u128) {
        (self.kind, self.is_unasked, self.of, self.rate, host)
    }

    /// Whether it looks for answers that nobody asked for: those come from port 53.
    pub(crate) fn is_dns(&self) -> bool {
        self.kind == FloodKind::Dns
    }

    /// Whether who was answered tells its packets from others.
    pub(crate) fn asks_for_answers(&self) -> bool {
        matches!(self.kind, FloodKind::Udp | FloodKind::Icmp | FloodKind::Dns)
    }
}

/// The floods that rules have watched, and how much of each there is.
#[derive(Debug)]
pub(super) struct Floods {
    /// With the bit of each.
    watches: Vec<(u8, FloodWatch)>,
    buckets: Table<Bucket>,
    /// SYNs that were refused.
    refused: Tally,
    unshared: Unshared<(u64, u8), u32>,
}

/// What one source or destination may have of a kind.
#[derive(Clone, Copy, Debug, Default)]
struct Bucket {
    /// Thousandths of packets.
    tokens: u64,
    last: Time,
    /// Since when there is a flood.
    since: Option<Time>,
    /// While there is one: the second that is counted, its packets, and when it was last as many as
    /// half of the rate.
    second: u64,
    packets: u32,
    busy: Time,
    /// Somebody drops most of it before it comes here, and lets through who seems real.
    is_early: bool,
}

impl Bucket {
    fn full(now: Time, watch: &FloodWatch) -> Self {
        Self { tokens: u64::from(watch.rate) * BURST_MS, last: now, ..Self::default() }
    }

    fn fill(&mut self, now: Time, rate: u64) {
        let most = rate * BURST_MS;
        // A rate of 1 a second gives a thousandth of a packet each millisecond.
        let given = u128::from(now.since_ns(self.last)) * u128::from(rate) / 1_000_000;
        self.tokens = most.min(self.tokens.saturating_add(given.min(most.into()) as u64));
        self.last = now;
    }

    fn take(&mut self) -> bool {
        let has = self.tokens >= 1_000;
        self.tokens -= if has { 1_000 } else { 0 };
        has
    }

    /// Counts packets during a flood; whether the flood goes on.
    fn goes_on(&mut self, now: Time, watch: &FloodWatch, packets: u32) -> bool {
        let second = now.0 / NS_PER_S;
        if second != self.second {
            (self.second, self.packets) = (second, 0);
        }
        self.packets = self.packets.saturating_add(packets);
        if self.packets > watch.rate / 2 {
            self.busy = now;
        }
        now.since_ns(self.busy) < u64::from(watch.hold_s) * NS_PER_S
    }
}

impl Floods {
    pub(super) fn new(watches: &[Watch], seed: u64) -> Option<Self> {
        let floods = watches.iter().zip(0..).filter_map(|(watch, bit)| match watch {
            Watch::Flood(watch) => Some((bit, *watch)),
            _ => None,
        });
        let watches: Vec<_> = floods.collect();
        let buckets = || Table::new(BUCKETS_MAX, seed);
        let refused = || Tally::new(BUCKETS_MAX, seed ^ 1);
        let unshared = Unshared::new(seed);
        (!watches.is_empty()).then(|| Self {
            watches,
            buckets: buckets(),
            refused: refused(),
            unshared,
        })
    }

    /// Keeps what is counted for other workers from now on.
    pub(super) fn share(&mut self) {
        self.unshared.share();
    }

    pub(super) fn take_shared(&mut self) -> Vec<FloodChange> {
        self.unshared.take()
    }

    /// Takes what another worker counted out of the buckets here.
    pub(super) fn add_shared(&mut self, now: Time, changes: &[FloodChange]) {
        for ((key, watched), packets) in changes {
            let watch = self.watches.iter().find(|(bit, _)| bit == watched);
            let Some((_, watch)) = watch else { continue };
            let (bucket, is_new) = self.buckets.enter_key(now, *key);
            if is_new {
                *bucket = Bucket::full(now, watch);
            }
            match bucket.since {
                Some(_) => drop(bucket.goes_on(now, watch, *packets)),
                None => {
                    bucket.fill(now, watch.rate.into());
                    let taken = u64::from(*packets).saturating_mul(1_000);
                    bucket.tokens = bucket.tokens.saturating_sub(taken);
                }
            }
        }
    }

    /// Takes in how many packets of a flood were dropped before they came here, none at first;
    /// whether it goes on.
    pub(super) fn dropped_early(&mut self, now: Time, flood: &Flood, packets: u32) -> bool {
        let watch = &flood.watch;
        let key = watch.key(u128::from_be_bytes(flood.host));
        let Some(bucket) = self.buckets.get(key) else { return false };
        bucket.is_early = true;
        let goes_on = bucket.since.is_some() && bucket.goes_on(now, watch, packets);
        if !goes_on {
            *bucket = Bucket::full(now, watch);
        }
        goes_on
    }

    pub(super) fn look(
        &mut self,
        now: Time,
        flow: &Flow,
        direction: Direction,
        view: &View<'_>,
        is_unasked: bool,
    ) -> Signs {
        let mut signs = 0;
        let kinds = kinds(direction, view);
        if kinds == [None; 2] {
            return signs;
        }
        for (bit, watch) in &self.watches {
            if kinds.contains(&Some(watch.kind))
                && (is_unasked || !watch.is_unasked)
                && is_over(
                    (&mut self.buckets, &mut self.refused, &mut self.unshared),
                    (now, flow, direction, view),
                    (*bit, watch),
                )
            {
                signs |= 1 << bit;
            }
        }
        signs
    }
}

/// Whether the packet is of a flood.
fn is_over(
    (buckets, refused, unshared): (&mut Table<Bucket>, &mut Tally, &mut Unshared<(u64, u8), u32>),
    (now, flow, direction, view): (Time, &Flow, Direction, &View<'_>),
    (bit, watch): (u8, &FloodWatch),
) -> bool {
    let rate = u64::from(watch.rate);
    let answers = flow.packets[1 - direction.index()];
    if watch.kind == FloodKind::Udp && answers * ANSWERED >= flow.packets[direction.index()] {
        return false;
    }
    let host = match watch.of {
        Of::Source => view.source,
        Of::Destination => view.destination,
    };
    let key = buckets.key(watch.key(host));
    unshared.change((key, bit), |packets| *packets = packets.saturating_add(1));
    let (bucket, is_new) = buckets.enter_key(now, key);
    if is_new {
        *bucket = Bucket::full(now, watch);
    }
    let Some(since) = bucket.since else {
        bucket.fill(now, rate);
        if bucket.take() {
            return false;
        }
        let (since, second) = (Some(now), now.0 / NS_PER_S);
        // As if the second had been busy so far: it was.
        *bucket = Bucket { since, second, packets: watch.rate, busy: now, ..*bucket };
        return true;
    };
    if !bucket.goes_on(now, watch, 1) {
        *bucket = Bucket::full(now, watch);
        return false;
    }
    if watch.of == Of::Source {
        return true;
    }
    if answers > 0 && flow.start < since {
        return false;
    }
    if bucket.is_early && watch.kind == FloodKind::Syn {
        // The trickle, or one that was sent again.
        return false;
    }
    bucket.fill(now, (rate / TRICKLE).max(1));
    if bucket.take() {
        return false;
    }
    let Transport::Tcp { sequence, .. } = view.parsed.transport else { return true };
    let ends = (view.source, view.destination, view.source_port, view.destination_port);
    refused.add_here(now, (ends, sequence), 1, SENT_AGAIN_S) < 2
}

/// What floods a packet may belong to: one of TCP, UDP, ICMP or RDMA; a request for a connection is
/// a management datagram too.
fn kinds(direction: Direction, view: &View<'_>) -> [Option<FloodKind>; 2] {
    let parsed = view.parsed;
    if let Some(rdma) = &parsed.rdma {
        if mad::is_management(rdma) {
            let header = mad::mad(view.bytes, parsed).map(|(header, _)| header);
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
        Transport::Udp { .. } if view.destination_port != PORT_ROCE => Some(FloodKind::Udp),
        Transport::Icmp { .. } => Some(FloodKind::Icmp),
        _ => None,
    };
    [kind, None]
}
