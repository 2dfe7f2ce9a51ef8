//! The table of queue-pair conversations: bounded, the least recently active leaves first.
//!
//! The index has a key for each direction, so a packet finds its conversation by one look-up
//! whichever way it goes. Joining two half conversations moves one direction and turns one index
//! slot round; no counter is touched.

use weir_wire::bth::Service;
use weir_wire::ext;
use weir_wire::frame::Time;

use super::cm::{Connection, Contradiction, Exchanges};
use super::departed::Departed;
use super::key::QueuePairKey;
use super::loss::Charged;
use super::pairing::{Match, Pairing};
use super::qp::{Conversation, Direction, Joined, Noticed, RdmaPacket};
use super::stage_data::{Rounds, StageData};
use crate::flow::index::Index;
use crate::flow::slab::{SLOT_OVERHEAD_BYTES, Slab};
use crate::flow::{HashSeed, Reason};
use crate::meter::fold::{Fold, Notice};
use crate::verdict::Side;

/// Where a conversation lies. It goes stale when the conversation leaves or is joined to another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConversationHandle {
    at: u32,
    generation: u32,
}

impl ConversationHandle {
    /// The first place, for tests.
    #[cfg(test)]
    pub(crate) const FIRST: Self = Self { at: 0, generation: 0 };

    /// Its place in the table, below the table's limit: what stages keep of a conversation lies
    /// there in tables of theirs.
    #[inline]
    pub(crate) fn place(self) -> usize {
        self.at as usize
    }
}

// One million conversations at 1 KiB each, the index (two keys, each with two slots or a little
// more) included.
const _: () = {
    const COUNT: usize = 1_000_000;
    let entry_bytes = size_of::<Conversation>() + SLOT_OVERHEAD_BYTES;
    assert!(COUNT * entry_bytes + Index::bytes(2 * COUNT) <= COUNT * 1024);
};

/// Queue-pair conversations by direction.
#[derive(Debug)]
pub struct ConversationTable {
    seed: HashSeed,
    index: Index,
    entries: Slab<Conversation>,
    pairing: Pairing,
    exchanges: Exchanges,
    rounds: Rounds,
    departed: Departed,
    /// Somebody judges connection managers' messages, and tells of those that pass.
    pub(crate) learns_when_told: bool,
    begun: u64,
    joins: u64,
    ambiguous: u64,
}

/// What became of a packet's conversation.
#[derive(Debug)]
pub(crate) struct Observed {
    pub(crate) handle: ConversationHandle,
    /// 0: the first direction, 1: the second.
    pub(crate) side: usize,
    /// The queue pair that it is for was not counted yet.
    pub(crate) is_new_destination: bool,
    pub(crate) noticed: Noticed,
}

impl ConversationTable {
    /// An empty table for `limit` conversations. Memory is reserved, not touched.
    pub fn new(limit: usize, seed: HashSeed) -> Self {
        let (index, entries) = (Index::new(2 * limit), Slab::new(limit));
        let (pairing, exchanges) = (Pairing::default(), Exchanges::default());
        Self {
            seed,
            index,
            entries,
            pairing,
            exchanges,
            rounds: Rounds::default(),
            departed: Departed::new(2 * limit),
            learns_when_told: false,
            begun: 0,
            joins: 0,
            ambiguous: 0,
        }
    }

    /// Conversations in it, half ones included.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Conversations begun so far, half ones included; two halves that were joined are one.
    pub fn begun(&self) -> u64 {
        self.begun - self.joins
    }

    /// Responses whose requester could not be told from others.
    pub fn ambiguous(&self) -> u64 {
        self.ambiguous
    }

    /// The conversation that a direction belongs to.
    pub fn find(&self, key: &QueuePairKey) -> Option<ConversationHandle> {
        Some(self.handle(self.find_direction(key, key.hash(&self.seed))? / 2))
    }

    /// The conversation behind a handle, if it is still there.
    pub fn entry(&self, handle: ConversationHandle) -> Option<&Conversation> {
        self.is_current(handle).then(|| self.entries.value(handle.at))
    }

    /// What a later stage keeps of a direction (0: the first), if that is still there.
    #[inline]
    pub(crate) fn stage_data(
        &mut self,
        handle: ConversationHandle,
        side: usize,
    ) -> Option<&mut StageData> {
        if !self.is_current(handle) {
            return None;
        }
        let conversation = self.entries.value_mut(handle.at);
        match side {
            0 => Some(&mut conversation.first.stage_data),
            _ => Some(&mut conversation.second.as_mut()?.stage_data),
        }
    }

    /// What was kept of a direction that left the table before, if that is still there.
    pub(crate) fn departed(&self, key: &QueuePairKey) -> Option<StageData> {
        self.departed.find(key.hash(&self.seed))
    }

    /// The same, which is void now.
    pub(crate) fn forget_departed(&mut self, key: &QueuePairKey) {
        self.departed.forget(key.hash(&self.seed));
    }

    /// A number for the stage data that is written from now on; that of other numbers is void.
    pub(crate) fn next_round(&mut self) -> u16 {
        let (round, begins_anew) = self.rounds.next();
        if begins_anew {
            self.entries.for_each_mut(|conversation| {
                conversation.first.stage_data = StageData::default();
                if let Some(second) = &mut conversation.second {
                    second.stage_data = StageData::default();
                }
            });
            self.departed.clear();
        }
        round
    }

    /// All conversations, the most recently active first.
    pub fn iter(&self) -> impl Iterator<Item = &Conversation> {
        self.entries.iter().map(|(_, entry)| entry)
    }

    /// Counts a packet. `leave` gets each conversation whose record ends, with the reason.
    #[inline]
    pub(crate) fn observe(
        &mut self,
        packet: &RdmaPacket<'_>,
        active_timeout_ns: u64,
        leave: &mut dyn FnMut(&Conversation, Reason),
    ) -> Observed {
        let key = self.key_of(packet);
        let hash = key.hash(&self.seed);
        let direction = match self.find_direction(&key, hash) {
            Some(direction) => direction,
            None => self.add(key, hash, packet, leave),
        };
        let (mut at, mut side) = (direction / 2, direction as usize % 2);
        let conversation = self.entries.touch(at, packet.now);
        if packet.now.since_ns(conversation.started) >= active_timeout_ns
            && conversation.is_counting()
        {
            leave(conversation, Reason::Active);
            conversation.restart(packet.now);
        }
        let noticed = conversation.observe(side, packet);
        let is_new_destination = !conversation.direction_mut(side).is_destination_noted;
        if conversation.is_half() {
            (at, side) = self.seek_partner(at, packet);
        }
        let handle = self.handle(at);
        if !self.learns_when_told {
            // Of two REQs that contradict each other the first counts.
            let _ = self.learn(packet, leave);
        }
        Observed { handle, side, is_new_destination, noticed }
    }

    /// Takes in a connection manager's message; returns the connection that it completes.
    ///
    /// # Errors
    /// [`Contradiction`].
    #[inline]
    pub(crate) fn learn(
        &mut self,
        packet: &RdmaPacket<'_>,
        leave: &mut dyn FnMut(&Conversation, Reason),
    ) -> Result<Option<Connection>, Contradiction> {
        let connection = self.exchanges.learn(packet, &self.seed)?;
        if let Some(connection) = &connection {
            self.connect(connection, packet, leave);
        }
        Ok(connection)
    }

    /// Counts what the kernel carried of the direction `key`; returns its conversation's path MTU.
    pub(crate) fn fold(
        &mut self,
        key: &QueuePairKey,
        service: Service,
        fold: &Fold<'_>,
        active_timeout_ns: u64,
        leave: &mut dyn FnMut(&Conversation, Reason),
    ) -> u16 {
        let hash = key.hash(&self.seed);
        let direction = self.find_direction(key, hash).unwrap_or_else(|| {
            let direction = Direction::new(*key, fold.last);
            let side = Some(fold.side);
            let conversation = Conversation::new(direction, service, fold.last, side);
            self.insert(conversation, hash, fold.last, leave) * 2
        });
        let conversation = self.entries.touch(direction / 2, fold.last);
        if fold.last.since_ns(conversation.started) >= active_timeout_ns
            && conversation.is_counting()
        {
            leave(conversation, Reason::Active);
            conversation.restart(fold.last);
        }
        conversation.direction_mut(direction as usize % 2).fold(fold.counted, fold.last);
        conversation.path_mtu
    }

    /// Takes in what a carried packet of the direction `key` says beyond the kernel's counts.
    pub(crate) fn notice(
        &mut self,
        key: &QueuePairKey,
        notice: &Notice<'_>,
        packet: &RdmaPacket<'_>,
    ) -> Option<(ConversationHandle, usize, Noticed)> {
        let direction = self.find_direction(key, key.hash(&self.seed))?;
        let (at, side) = (direction / 2, direction as usize % 2);
        let noticed = self.entries.value_mut(at).notice(side, notice, packet);
        Some((self.handle(at), side, noticed))
    }

    /// Charges the gateway with a packet that it counted and dropped.
    pub(crate) fn charge_drop(
        &mut self,
        packet: &RdmaPacket<'_>,
    ) -> Option<(ConversationHandle, usize, Charged)> {
        let key = self.key_of(packet);
        let direction = self.find_direction(&key, key.hash(&self.seed))?;
        let (at, side) = (direction / 2, direction as usize % 2);
        let charged = self.entries.value_mut(at).charge_drop(side, packet);
        Some((self.handle(at), side, charged))
    }

    /// Enters a pair that the connection managers agreed; whatever used its queue pairs before
    /// ends.
    fn connect(
        &mut self,
        connection: &Connection,
        reply: &RdmaPacket<'_>,
        leave: &mut dyn FnMut(&Conversation, Reason),
    ) {
        let now = reply.now;
        let keys = [connection.key, connection.key.reversed_to(connection.partner_qp)];
        let hashes = keys.map(|key| key.hash(&self.seed));
        let known = [0, 1].map(|side| self.find_direction(&keys[side], hashes[side]));
        if let [Some(first), Some(second)] = known
            && first / 2 == second / 2
        {
            return; // A repeated exchange.
        }
        for side in [0, 1] {
            // Looked up again: the first may have taken the second with it.
            if let Some(direction) = self.find_direction(&keys[side], hashes[side]) {
                leave(self.remove(direction / 2), Reason::Superseded);
            }
        }
        let mut first = Direction::new(keys[0], now);
        first.start_at(connection.psn);
        let mut conversation =
            Conversation::new(first, connection.service, now, reply.side.map(Side::opposite));
        conversation.path_mtu = connection.path_mtu;
        let at = self.insert(conversation, hashes[0], now, leave);
        let mut second = Direction::new(keys[1], now);
        second.start_at(connection.partner_psn);
        self.attach(at, second, Joined::ByConnectionManager, leave);
    }

    /// The least recently active conversation.
    pub(crate) fn oldest(&self) -> Option<ConversationHandle> {
        self.entries.oldest().map(|at| self.handle(at))
    }

    /// The conversation behind a handle, to change; this does not count as activity.
    pub(crate) fn entry_mut(&mut self, handle: ConversationHandle) -> Option<&mut Conversation> {
        self.is_current(handle).then(|| self.entries.value_mut(handle.at))
    }

    /// The conversation behind a handle, marked as active now.
    pub(crate) fn touch(&mut self, handle: ConversationHandle, now: Time) {
        if self.is_current(handle) {
            self.entries.touch(handle.at, now);
        }
    }

    /// Takes a conversation out and returns what was known of it.
    pub(crate) fn take(&mut self, handle: ConversationHandle) -> Option<&Conversation> {
        self.is_current(handle).then(|| self.remove(handle.at))
    }

    #[inline]
    fn key_of(&self, packet: &RdmaPacket<'_>) -> QueuePairKey {
        let source_qp = match packet.rdma.opcode.service() {
            Service::UnreliableDatagram => {
                ext::deth(packet.bytes, packet.rdma).map(|deth| deth.source_qp())
            }
            _ => None,
        };
        QueuePairKey::of(packet.parsed, packet.rdma, source_qp)
    }

    #[inline]
    fn find_direction(&self, key: &QueuePairKey, hash: u64) -> Option<u32> {
        self.index.find(hash, |direction| {
            let conversation = self.entries.value(direction / 2);
            // Which of the two is asked first: the other's memory need not be read.
            match direction % 2 {
                0 => conversation.first.key == *key,
                _ => conversation.second.as_ref().is_some_and(|second| second.key == *key),
            }
        })
    }

    fn add(
        &mut self,
        key: QueuePairKey,
        hash: u64,
        packet: &RdmaPacket<'_>,
        leave: &mut dyn FnMut(&Conversation, Reason),
    ) -> u32 {
        let direction = Direction::new(key, packet.now);
        if let Some(answered) = key.answer() {
            let partner = self.find_direction(&answered, answered.hash(&self.seed));
            if let Some(partner) = partner.filter(|at| self.entries.value(at / 2).is_half()) {
                return self.attach(partner / 2, direction, Joined::ByDatagram, leave);
            }
        }
        let service = packet.rdma.opcode.service();
        let conversation = Conversation::new(direction, service, packet.now, packet.side);
        self.insert(conversation, hash, packet.now, leave) * 2
    }

    fn insert(
        &mut self,
        conversation: Conversation,
        hash: u64,
        now: Time,
        leave: &mut dyn FnMut(&Conversation, Reason),
    ) -> u32 {
        if let Some(oldest) = self.entries.oldest().filter(|_| self.entries.is_full()) {
            leave(self.remove(oldest), Reason::Evicted);
        }
        self.begun += 1;
        let at = self.entries.insert(conversation, now);
        self.enter(hash, at * 2, leave);
        at
    }

    /// Gives conversation `at` its second direction; returns that direction.
    fn attach(
        &mut self,
        at: u32,
        second: Direction,
        joined: Joined,
        leave: &mut dyn FnMut(&Conversation, Reason),
    ) -> u32 {
        let hash = second.key.hash(&self.seed);
        let conversation = self.entries.value_mut(at);
        conversation.joined = joined;
        conversation.second = Some(second);
        self.enter(hash, at * 2 + 1, leave);
        at * 2 + 1
    }

    fn enter(&mut self, hash: u64, direction: u32, leave: &mut dyn FnMut(&Conversation, Reason)) {
        while let Err(in_the_way) = self.index.insert(hash, direction) {
            if in_the_way / 2 == direction / 2 {
                return; // Only itself in the way: stays unindexed, and half as far as packets go.
            }
            leave(self.remove(in_the_way / 2), Reason::Evicted);
        }
    }

    /// Notes a request of the half conversation `at`, or finds who sent the request that a response
    /// of it answers, and joins the two. Returns the conversation and side to go on with.
    fn seek_partner(&mut self, at: u32, packet: &RdmaPacket<'_>) -> (u32, usize) {
        let opcode = packet.rdma.opcode;
        let service = opcode.service();
        let is_reliable = service == Service::ReliableConnection
            || service == Service::ExtendedReliableConnection;
        if !is_reliable || !(opcode.is_request() || opcode.is_response()) {
            return (at, 0);
        }
        let (key, psn) = (self.entries.value(at).first.key, packet.rdma.psn.value());
        let port = packet.source_port();
        if opcode.is_request() {
            let hash = key.request_hash(psn, &self.seed);
            self.pairing.note_request(hash, at, port, packet.now);
            return (at, 0);
        }
        let hash = key.answered_hash(psn, &self.seed);
        let may_ask = |other: u32| {
            other != at && self.entries.is_occupied(other) && {
                let other = self.entries.value(other);
                other.is_half()
                    && other.first.key.reversed_to(key.destination_qp()) == key
                    && other.first.has_asked(packet)
            }
        };
        match self.pairing.find(hash, port, packet.now, may_ask) {
            Match::None => (at, 0),
            Match::Ambiguous => {
                self.ambiguous += 1;
                (at, 0)
            }
            Match::One(asker) => {
                self.join(asker, at, packet.now);
                (asker, 1)
            }
        }
    }

    /// Makes the only direction of `gone` the second direction of `kept`.
    fn join(&mut self, kept: u32, gone: u32, now: Time) {
        let (second, started, mtu) = {
            let gone = self.entries.remove(gone);
            // Whoever keeps something of it knows it by the handle that ends here.
            let mut second = gone.first.clone();
            second.stage_data = StageData::default();
            (second, gone.started, gone.path_mtu)
        };
        self.index.repoint(second.key.hash(&self.seed), gone * 2, kept * 2 + 1);
        let conversation = self.entries.touch(kept, now);
        conversation.second = Some(second);
        conversation.joined = Joined::ByData;
        conversation.started = conversation.started.min(started);
        conversation.path_mtu = conversation.path_mtu.max(mtu);
        self.joins += 1;
    }

    fn remove(&mut self, at: u32) -> &Conversation {
        let conversation = self.entries.value(at);
        let directions = [Some(&conversation.first), conversation.second.as_ref()];
        for (it, side) in directions.into_iter().zip([0, 1]) {
            let Some(it) = it else { continue };
            let hash = it.key.hash(&self.seed);
            self.index.remove(hash, at * 2 + side);
            self.departed.keep(hash, it.stage_data);
        }
        self.entries.remove(at)
    }

    #[inline]
    fn is_current(&self, handle: ConversationHandle) -> bool {
        self.entries.is_current(handle.at, handle.generation)
    }

    #[inline]
    fn handle(&self, at: u32) -> ConversationHandle {
        ConversationHandle { at, generation: self.entries.generation(at) }
    }
}
