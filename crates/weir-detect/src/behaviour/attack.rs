//! Attacks on queue pairs, each by marks that its packets leave: so many within so many seconds,
//! and from then on the packets that bring one more belong to it.

mod connections;

use std::collections::VecDeque;
use std::hash::BuildHasher;

use weir_wire::bth::{Operation, Psn};
use weir_wire::frame::Time;
use weir_wire::parse::{Encapsulation, Rdma};
use weir_wire::{cm, ext, mad};

use super::distinct::Distinct;
use super::guid::{GuidChange, Guids, Host};
use super::idle::{self, Idle};
use super::lately::Lately;
use super::pair::{Access, Pair};
use super::queue_pair::{Answers, QueuePair, content, is_request, is_unreliable};
use super::table::Table;
use super::tally::{MarkChange, Tally};
use super::{NS_PER_S, Signs, Watch, parts};
use crate::packet::View;
use crate::rdma::remote_key;
use crate::state::Keyed;

use connections::Asked;

/// Entries of each table of one worker.
const ENTRIES_MAX: usize = 1 << 15;
/// Sources of which each worker counts the R_Keys: 2 KiB each.
const SOURCES_MAX: usize = 1 << 10;
/// A READ or atomic of at most so many bytes is small.
const SMALL: u32 = 64;
/// A READ of at most so many bytes costs its responder a message, hardly any bandwidth; its answer
/// is up to fourteen times as large as the request.
const SMALL_ANSWER: u32 = 1024;
/// The low bits of an R_Key that change each time its memory is registered anew: what stands above
/// them is the adapter's entry.
const KEY_VARIANT_BITS: u32 = 8;
/// Fewer small READs in a row are no run.
const RUN_MIN: u32 = 8;
/// Set, of subnet management (IBTA Vol 1 s13.4.5).
const METHOD_SET: u8 = 2;
/// Acknowledged so near to a PSN that was far off, it is where the queue pair is now.
const NEAR: u32 = 64;
/// Pairs of hosts that are seen so long after the start, or less, are nothing new.
const LEARNING_NS: u64 = 300 * NS_PER_S;
/// A queue pair that was silent for so long may have been made anew, with other PSNs.
const QUIET_NS: u64 = 60 * NS_PER_S;
/// A pair of hosts is new for so long.
const NEW_NS: u64 = 3600 * NS_PER_S;

macro_rules! attacks {
    ($($(#[$doc:meta])* $attack:ident $name:literal $count:literal $seconds:literal;)+) => {
        /// What may be done to a queue pair or its host.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub(crate) enum Attack {
            $($(#[$doc])* $attack,)+
        }

        /// Their names in rules, and how many marks within how many seconds are usually enough.
        const ATTACKS: &[(&str, Attack, u32, u32)] =
            &[$(($name, Attack::$attack, $count, $seconds),)+];
    };
}

attacks! {
    /// PSNs far from all that the queue pair expects, or that go back and forth (ReDMArk A1).
    PsnInjection "psn_injection" 8 1;
    /// Two requests of one PSN (ReDMArk A1, NeVerMore).
    PsnConflict "psn_conflict" 2 10;
    /// Messages that no requester sends, or that the responder refuses as invalid (ReDMArk A2).
    InvalidRequest "invalid_request" 4 10;
    /// Accesses refused, and behind them new R_Keys, or new addresses under one that was refused
    /// (ReDMArk A3).
    KeyGuessing "key_guessing" 5 10;
    /// Connections asked for and not completed for a second (ReDMArk A4).
    QpExhaustion "qp_exhaustion" 64 30;
    /// The same by whom they were asked for, whoever asked.
    QpExhaustionOfHost "qp_exhaustion_of_host" 1024 30;
    /// Connections that were completed and not used for a minute (ReDMArk A4).
    IdleQueuePairs "idle_queue_pairs" 512 3600;
    /// KiB read by a host that became known of late, which the one that is read asked (ReDMArk A6).
    Exfiltration "exfiltration" 65536 60;
    /// A queue pair's packets come from two UDP ports in turn (NeVerMore).
    PortChange "port_change" 4 10;
    /// One address by two MAC addresses in turn (Warren 2012).
    AddressConflict "address_conflict" 4 10;
    /// The GUID of one channel adapter by two hosts in turn (Warren 2012).
    GuidConflict "guid_conflict" 2 60;
    /// Queue pairs of one source that are new to this gateway (HT-Verbs, Husky).
    StateSaturation "state_saturation" 2048 10;
    /// Partition keys of one source (Lee & Kim).
    PkeyGuessing "pkey_guessing" 8 10;
    /// Queue keys of one source (Lee & Kim).
    QkeyGuessing "qkey_guessing" 8 10;
    /// Small READs in turn between few addresses, thousands in a row (Pythia).
    SideChannel "side_channel" 4096 60;
    /// Congestion notifications for data that nobody sent.
    ForgedCnp "forged_cnp" 8 1;
    /// "Receiver not ready", again and again: requests come where no buffer is, or none is given.
    RnrFlood "rnr_flood" 1000 10;
    /// Small READs and atomics of one source, as fast as its adapter can (HT-Verbs, Husky).
    PipelineSaturation "pipeline_saturation" 400000 1;
    /// R_Keys of one source, which push others out of the adapter's cache (HT-Verbs).
    KeySaturation "key_saturation" 4096 10;
    /// Somebody plays the subnet manager, which RoCE has none of (Schmitt 2019).
    RogueSm "rogue_sm" 1 10;
}

/// An attack that a rule has watched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct AttackWatch {
    attack: Attack,
    count: u32,
    seconds: u32,
}

impl AttackWatch {
    pub(super) fn parse(value: &str) -> Result<Self, String> {
        let (mut own_count, mut own_seconds) = (None, None);
        let word = |word: &str| Err(format!("`{word}` behind rdma.event: count or seconds"));
        let number = |name: &str, value: u32| {
            match name {
                "count" => own_count = Some(value),
                "seconds" => own_seconds = Some(value),
                _ => return false,
            }
            true
        };
        let first = parts(value, word, number)?;
        let known = ATTACKS.iter().find(|(name, ..)| *name == first);
        let (_, attack, count, seconds) =
            known.ok_or_else(|| format!("`{first}` is no attack that is watched for"))?;
        let (count, seconds) = (own_count.unwrap_or(*count), own_seconds.unwrap_or(*seconds));
        Ok(Self { attack: *attack, count, seconds })
    }
}

/// The attacks that rules have watched, and what they are told by.
#[derive(Debug)]
pub(super) struct Attacks {
    /// With the bit of each.
    watches: Vec<(u8, AttackWatch)>,
    start: Option<Time>,
    pairs: Table<Pair>,
    queue_pairs: Table<QueuePair>,
    answers: Table<Answers>,
    /// The last MAC addresses of a source.
    senders: Table<Lately<[u8; 6]>>,
    /// The hosts that announce each GUID, where a rule asks.
    guids: Option<Guids>,
    /// Connections that nobody uses, where a rule asks.
    idle: Option<Idle>,
    /// Connections that were asked for, by who asked whom and the name that he gave it.
    asked: Table<Asked>,
    /// The same in the order in which they were asked for, by what stands for them, until they
    /// were open for a second.
    open: VecDeque<(Time, u64)>,
    /// The R_Keys that a source uses.
    source_keys: Table<Distinct>,
    marks: Tally,
    /// Nobody else knows which bytes of a request are compared with those of another.
    secret: u64,
}

type Hosts = (u128, u128);

impl Attacks {
    pub(super) fn new(watches: &[Watch], seed: u64) -> Option<Self> {
        let attacks = watches.iter().zip(0..).filter_map(|(watch, bit)| match watch {
            Watch::Attack(watch) => Some((bit, *watch)),
            _ => None,
        });
        let counted: Vec<_> = attacks.collect();
        let asks = |it: &Watch| matches!(it, Watch::Flood(flood) if flood.is_unasked());
        if counted.is_empty() && !watches.iter().any(asks) {
            return None;
        }
        let watches = counted;
        let asks_for = |attack: Attack| watches.iter().any(|(_, it)| it.attack == attack);
        let sources = if asks_for(Attack::KeySaturation) { SOURCES_MAX } else { 0 };
        let guids = asks_for(Attack::GuidConflict).then(|| Guids::new(seed ^ 7));
        let idle = asks_for(Attack::IdleQueuePairs).then(|| Idle::new(seed ^ 8));
        Some(Self {
            watches,
            start: None,
            pairs: Table::new(ENTRIES_MAX, seed ^ 2),
            queue_pairs: Table::new(ENTRIES_MAX, seed ^ 3),
            answers: Table::new(ENTRIES_MAX, seed ^ 11),
            senders: Table::new(ENTRIES_MAX, seed ^ 4),
            guids,
            idle,
            asked: Table::new(ENTRIES_MAX, seed ^ 9),
            open: VecDeque::new(),
            source_keys: Table::new(sources, seed ^ 6),
            marks: Tally::new(ENTRIES_MAX, seed ^ 5),
            secret: seed ^ 10,
        })
    }

    pub(super) fn look(&mut self, now: Time, view: &View<'_>) -> Signs {
        let Some(rdma) = &view.parsed.rdma else { return 0 };
        let start = *self.start.get_or_insert(now);
        let mut signs = self.sender(now, view);
        let hosts = (view.source, view.destination);
        let is_management = mad::is_management(rdma);
        let operation = rdma.opcode.operation();
        let queue_key = ext::deth(view.bytes, rdma).map(|it| it.queue_key.get());
        let (pair, is_new) = self.pairs.enter(now, hosts);
        if is_new {
            pair.first = now;
        }
        if !is_management && brings_data(operation) {
            pair.data = now;
        }
        let is_late = pair.first.since_ns(start) > LEARNING_NS;
        let is_news = is_late && pair.has_asked && now.since_ns(pair.first) < NEW_NS;
        let keyed = Keyed(self.secret);
        let has_new_partition = pair.partitions.add(keyed.hash_one(rdma.partition_key.0));
        let has_new_queue_key =
            queue_key.is_some_and(|key| pair.queue_keys.add(keyed.hash_one(key)));
        if has_new_partition {
            signs |= self.mark(now, Attack::PkeyGuessing, hosts, 1);
        }
        if has_new_queue_key {
            signs |= self.mark(now, Attack::QkeyGuessing, hosts, 1);
        }
        if is_management {
            return signs | self.management(now, view, rdma);
        }
        signs
            | match operation {
                Operation::CongestionNotification => self.notification(now, view),
                Operation::Acknowledge | Operation::AtomicAcknowledge => {
                    self.acknowledgment(now, view, rdma)
                }
                Operation::ReadResponse if is_news => {
                    self.acknowledgment(now, view, rdma) | self.exfiltrated(now, view)
                }
                Operation::ReadResponse => self.acknowledgment(now, view, rdma),
                _ => self.request(now, view, rdma),
            }
    }

    /// Keeps for other workers from now on what sources are marked by, and who announces GUIDs.
    pub(super) fn share(&mut self) {
        self.marks.share();
        self.guids.iter_mut().for_each(Guids::share);
    }

    pub(super) fn take_shared(&mut self) -> (Vec<MarkChange>, Vec<GuidChange>) {
        let guids = self.guids.as_mut().map(Guids::take_shared).unwrap_or_default();
        (self.marks.take_shared(), guids)
    }

    /// Adds what another worker marked and was announced.
    pub(super) fn add_shared(&mut self, now: Time, marks: &[MarkChange], guids: &[GuidChange]) {
        self.marks.add_shared(now, marks);
        if let Some(own) = &mut self.guids {
            own.add_shared(guids);
        }
    }

    /// Marks `hosts` by an attack; the bits of its watches for which that is enough. What two hosts
    /// do to each other comes to one worker.
    fn mark(&mut self, now: Time, attack: Attack, hosts: Hosts, by: u32) -> Signs {
        let mut signs = 0;
        for (bit, watch) in self.watches.iter().filter(|(_, it)| it.attack == attack) {
            let key = (attack, watch.count, watch.seconds, hosts);
            let marks = match hosts {
                (_, 0) | (0, _) => self.marks.add(now, key, by, watch.seconds),
                _ => self.marks.add_here(now, key, by, watch.seconds),
            };
            if marks >= watch.count {
                signs |= 1 << bit;
            }
        }
        signs
    }

    /// The bits of an attack's watches that were marked often enough.
    fn marked(&mut self, now: Time, attack: Attack, hosts: Hosts) -> Signs {
        let mut signs = 0;
        for (bit, watch) in self.watches.iter().filter(|(_, it)| it.attack == attack) {
            let key = (attack, watch.count, watch.seconds, hosts);
            if self.marks.count(now, key, watch.seconds) >= watch.count {
                signs |= 1 << bit;
            }
        }
        signs
    }

    /// Takes a mark away again.
    fn unmark(&mut self, now: Time, attack: Attack, hosts: Hosts) {
        for (_, watch) in self.watches.iter().filter(|(_, it)| it.attack == attack) {
            let key = (attack, watch.count, watch.seconds, hosts);
            self.marks.take(now, key, watch.seconds);
        }
    }

    fn pair(&mut self, now: Time, hosts: Hosts) -> &mut Pair {
        self.pairs.enter(now, hosts).0
    }

    fn sender(&mut self, now: Time, view: &View<'_>) -> Signs {
        let mac = view.parsed.link.source.0;
        match self.senders.enter(now, view.source).0.is_back(mac) {
            true => self.mark(now, Attack::AddressConflict, (view.source, 0), 1),
            false => 0,
        }
    }

    fn management(&mut self, now: Time, view: &View<'_>, rdma: &Rdma) -> Signs {
        let Some(header) = mad::header(view.bytes, view.parsed) else { return 0 };
        if is_subnet_change(header, rdma) {
            return self.mark(now, Attack::RogueSm, (view.source, 0), 1);
        }
        let datagram = mad::padded(view.bytes, view.parsed);
        let Some(message) = datagram.as_ref().and_then(cm::message_of) else { return 0 };
        let others = self.adapter(now, view, &message) | self.unused(now, view, &message);
        others | self.connection(now, (view.source, view.destination), &message)
    }

    /// A connection begins: PSNs of a queue pair that it names begin anew.
    fn renew(&mut self, hosts: Hosts, queue_pair: u32) {
        for is_unreliable in [false, true] {
            if let Some(known) = self.queue_pairs.get((hosts, queue_pair, is_unreliable)) {
                *known = QueuePair::default();
            }
        }
        if let Some(known) = self.answers.get((hosts, queue_pair)) {
            *known = Answers::default();
        }
    }

    /// A REQ or REP says whose channel adapter it comes from.
    fn adapter(&mut self, now: Time, view: &View<'_>, message: &cm::Message<'_>) -> Signs {
        let Some(guids) = &mut self.guids else { return 0 };
        let guid = match message {
            cm::Message::Request(request) => request.local_ca_guid.get(),
            cm::Message::Reply(reply) => reply.local_ca_guid.get(),
            _ => return 0,
        };
        let host = Host { mac: view.parsed.link.source.0, address: view.source };
        match guids.announce(now, guid, host) {
            true => self.mark(now, Attack::GuidConflict, (guid.into(), 0), 1),
            false => 0,
        }
    }

    /// Whether the sender of a message has too many connections that nobody uses.
    fn unused(&mut self, now: Time, view: &View<'_>, message: &cm::Message<'_>) -> Signs {
        let Some(idle) = &mut self.idle else { return 0 };
        let hosts = (view.source, view.destination);
        let ended = idle.manage(now, hosts, message);
        for change in idle.ripen(now).into_iter().flatten().chain(ended) {
            self.count_idle(now, change);
        }
        self.marked(now, Attack::IdleQueuePairs, (view.source, 0))
    }

    fn count_idle(&mut self, now: Time, change: idle::Change) {
        let hosts = (change.requester, 0);
        match change.is_more {
            true => _ = self.mark(now, Attack::IdleQueuePairs, hosts, 1),
            false => self.unmark(now, Attack::IdleQueuePairs, hosts),
        }
    }

    /// Whether the packet is a congestion notification for which no data went the other way yet, or
    /// none for a second: nothing that could have met congestion.
    pub(super) fn is_unasked(&mut self, now: Time, view: &View<'_>) -> bool {
        let is_notification = view
            .parsed
            .rdma
            .is_some_and(|it| it.opcode.operation() == Operation::CongestionNotification);
        is_notification && {
            let back = (view.destination, view.source);
            let data = self.pairs.get(back).map(|it| it.data);
            !data.is_some_and(|it| it != Time(0) && now.since_ns(it) < NS_PER_S)
        }
    }

    fn notification(&mut self, now: Time, view: &View<'_>) -> Signs {
        if !self.is_unasked(now, view) {
            return 0;
        }
        self.mark(now, Attack::ForgedCnp, (view.source, view.destination), 1)
    }

    /// Of requests in the other direction.
    fn acknowledgment(&mut self, now: Time, view: &View<'_>, rdma: &Rdma) -> Signs {
        let hosts = (view.source, view.destination);
        let answers = self.answers.enter(now, (hosts, rdma.destination_qp.value())).0;
        let injected = match answers.take(now, rdma.psn, QUIET_NS) {
            true => self.mark(now, Attack::PsnInjection, hosts, 1),
            false => 0,
        };
        injected | self.answered(now, view, rdma)
    }

    fn answered(&mut self, now: Time, view: &View<'_>, rdma: &Rdma) -> Signs {
        let requester = (view.destination, view.source);
        // Middle packets of READ responses have none.
        let syndrome = ext::aeth(view.bytes, rdma).map(|it| it.syndrome());
        match syndrome {
            Some(ext::Syndrome::Nak(ext::NakCause::RemoteAccess)) => {
                self.pair(now, requester).accesses.refuse(rdma.psn);
                // The answer itself passes: the next request is what is judged by it.
                let guesses = self.mark(now, Attack::KeyGuessing, requester, 1);
                if guesses != 0 {
                    self.pair(now, requester).refuse(now, guesses);
                }
                0
            }
            Some(ext::Syndrome::Nak(ext::NakCause::InvalidRequest)) => {
                self.mark(now, Attack::InvalidRequest, requester, 1)
            }
            Some(ext::Syndrome::Nak(_)) => 0,
            Some(ext::Syndrome::RnrNak { .. }) => self.mark(now, Attack::RnrFlood, requester, 1),
            _ => {
                let Some(pair) = self.pairs.get(requester) else { return 0 };
                if syndrome.is_some() {
                    let is_read = rdma.opcode.operation() == Operation::ReadResponse;
                    pair.accesses.grant(rdma.psn, is_read);
                }
                let is_near = |candidate: Psn| rdma.psn.distance(candidate).unsigned_abs() <= NEAR;
                if pair.candidate.is_some_and(is_near) {
                    pair.candidate = None;
                    pair.epoch = pair.epoch.wrapping_add(1);
                }
                0
            }
        }
    }

    fn exfiltrated(&mut self, now: Time, view: &View<'_>) -> Signs {
        let hosts = (view.source, view.destination);
        let bytes = &mut self.pair(now, hosts).answered_bytes;
        *bytes += view.payload.len() as u32;
        let kib = *bytes / 1024;
        *bytes %= 1024;
        self.mark(now, Attack::Exfiltration, hosts, kib)
    }

    fn request(&mut self, now: Time, view: &View<'_>, rdma: &Rdma) -> Signs {
        let mut signs = self.load(now, view, rdma);
        // The key of a request for nothing is not looked at (IBTA Vol 1 C9-88).
        let is_empty = ext::reth(view.bytes, rdma).is_some_and(|it| it.dma_length.get() == 0);
        if let Some(key) = remote_key(view.bytes, view.parsed).filter(|_| !is_empty) {
            signs |= self.access(now, view, rdma, key);
        }
        if is_request(rdma) {
            signs |= self.connected(now, view, rdma);
        }
        signs
    }

    /// What small READs and atomics do to the responder, many of them.
    fn load(&mut self, now: Time, view: &View<'_>, rdma: &Rdma) -> Signs {
        let hosts = (view.source, view.destination);
        let (signs, length) = match rdma.opcode.operation() {
            Operation::ReadRequest => {
                let Some(reth) = ext::reth(view.bytes, rdma) else { return 0 };
                let length = reth.dma_length.get();
                let reads = &mut self.pair(now, hosts).reads;
                let run = reads.take(reth.virtual_address.get(), length <= SMALL);
                (self.run(now, hosts, run), length)
            }
            Operation::Atomic => (0, 0),
            _ => return 0,
        };
        match length <= SMALL_ANSWER {
            true => signs | self.mark(now, Attack::PipelineSaturation, (view.source, 0), 1),
            false => signs,
        }
    }

    /// A request by a remote key: whether it is guessed, and how many there are of the source.
    fn access(&mut self, now: Time, view: &View<'_>, rdma: &Rdma, key: u32) -> Signs {
        let hosts = (view.source, view.destination);
        let access = if is_unreliable(rdma) { None } else { Access::of(view.bytes, rdma) };
        let (pair, _) = self.pairs.enter(now, hosts);
        if let Some(access) = access {
            pair.accesses.ask(access);
        }
        let is_new = !pair.remote_keys.contains(key);
        let is_guess = access.is_some_and(|it| pair.accesses.is_guess(&it));
        let is_suspect = pair.accesses.is_refused && (is_new || is_guess);
        let mut guesses = 0;
        if is_suspect {
            // Guesses that all came before the last refusal are told of with the next request.
            guesses = pair.take_refused(now) | self.marked(now, Attack::KeyGuessing, hosts);
        }
        if !is_new {
            return guesses;
        }
        if guesses == 0 {
            self.pair(now, hosts).remote_keys.add(key);
        }
        guesses | self.source_key(now, view, key)
    }

    /// An R_Key that was not among the last of these two hosts.
    fn source_key(&mut self, now: Time, view: &View<'_>, key: u32) -> Signs {
        if !self.watches.iter().any(|(_, it)| it.attack == Attack::KeySaturation) {
            return 0;
        }
        let hash = self.source_keys.key((view.destination, key >> KEY_VARIANT_BITS));
        match self.source_keys.enter(now, view.source).0.add(now, hash) {
            0 => 0,
            more => self.mark(now, Attack::KeySaturation, (view.source, 0), more),
        }
    }

    /// A request on a connection: what its queue pair was sent before.
    fn connected(&mut self, now: Time, view: &View<'_>, rdma: &Rdma) -> Signs {
        let hosts = (view.source, view.destination);
        let mut signs = 0;
        let epoch = self.pair(now, hosts).epoch;
        let key = (hosts, rdma.destination_qp.value(), is_unreliable(rdma));
        let (queue_pair, is_new) = self.queue_pairs.enter(now, key);
        let begins = queue_pair.epoch != epoch || now.since_ns(queue_pair.last) > QUIET_NS;
        if begins {
            *queue_pair = QueuePair::of(epoch, now);
        }
        let content = content(self.secret, view.bytes, view.parsed, rdma);
        let wrong =
            queue_pair.take(now, (view.bytes, view.parsed, rdma), content, view.source_port);
        if begins && let Some(idle) = &mut self.idle {
            let direction = (view.source, view.destination, rdma.destination_qp.value());
            if let Some(change) = idle.used(direction) {
                self.count_idle(now, change);
            }
        }
        if is_new {
            signs |= self.mark(now, Attack::StateSaturation, (view.source, 0), 1);
        }
        if wrong.is_far && !is_unreliable(rdma) {
            self.pair(now, hosts).candidate = Some(rdma.psn);
        }
        for (is_so, attack) in [
            (wrong.is_far, Attack::PsnInjection),
            (wrong.is_other, Attack::PsnConflict),
            (wrong.is_disordered, Attack::InvalidRequest),
            (wrong.is_from_other_port, Attack::PortChange),
        ] {
            if is_so {
                signs |= self.mark(now, attack, hosts, 1);
            }
        }
        signs
    }

    /// A READ that is one of a run of so many small ones: enough of them, and soon enough.
    fn run(&mut self, now: Time, hosts: Hosts, run: u32) -> Signs {
        if run < RUN_MIN {
            return 0;
        }
        let marked = self.mark(now, Attack::SideChannel, hosts, 1);
        let is_long = |it: &&(u8, AttackWatch)| run >= it.1.count;
        let long = self.watches.iter().filter(|(_, it)| it.attack == Attack::SideChannel);
        marked & long.filter(is_long).fold(0, |signs, (bit, _)| signs | 1 << bit)
    }
}

/// Whether a packet brings what may meet congestion.
fn brings_data(operation: Operation) -> bool {
    !matches!(
        operation,
        Operation::CongestionNotification | Operation::Acknowledge | Operation::AtomicAcknowledge
    )
}

/// Whether a datagram changes what a subnet manager alone may, where there is none: over RoCE, in
/// whose networks Ethernet's switches do what it is for.
fn is_subnet_change(header: &mad::MadHeader, rdma: &Rdma) -> bool {
    let is_subnet = matches!(
        header.management_class,
        mad::class::SUBNET_LID_ROUTED | mad::class::SUBNET_DIRECTED_ROUTE
    );
    is_subnet && header.method == METHOD_SET && rdma.encapsulation != Encapsulation::InfiniBand
}

#[cfg(test)]
mod tests;
