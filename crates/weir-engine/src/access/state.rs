//! Connections, and whose queue pairs are whose.

use weir_wire::bth::{Opcode, Psn, Qpn, Service};
use weir_wire::cm::{self, ConnectRequest, DisconnectRequest, LoadAlternatePath, Message};
use weir_wire::frame::Time;
use weir_wire::parse::{Parsed, Rdma};

use super::alternate::{self, Alternates, Directions};
use super::awaited::Awaited;
use super::owners::{
    ANYBODY, CONNECTED_SILENT_NS, ConnectionChange, Full, LEARNT_SILENT_NS, Owner, Owners,
};
use super::saved::{SavedOwner, SavingPlace};
use crate::flow::HashSeed;
use crate::meter::{Meter, Observation, Observed};
use crate::rdma::cm::{Connection, Contradiction};
use crate::rdma::{ConversationHandle, ConversationTable, QueuePairKey};
use crate::verdict::{DropReason, Side};

/// What happens to packets that do not fit how their queue pair was set up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AccessState {
    /// Nothing: nobody looks.
    #[default]
    Off,
    /// A queue pair number belongs to whom its first packet comes from, or whom connection managers
    /// agreed on; others are dropped.
    Learn,
    /// A connected queue pair's packets are dropped unless connection managers agreed on it.
    Strict,
}

impl AccessState {
    /// Its name in configuration and JSON.
    pub const fn name(self) -> &'static str {
        match self {
            AccessState::Off => "off",
            AccessState::Learn => "learn",
            AccessState::Strict => "strict",
        }
    }
}

/// What was done about queue pair numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StateCounters {
    /// Connections that managers agreed.
    pub connections: u64,
    /// DREQs that ended one, and REJs of what was agreed.
    pub disconnects: u64,
    /// Packets and messages that were dropped as `qp_forged`.
    pub forged: u64,
    /// Packets for which there was no connection.
    pub unconnected: u64,
    /// Directions that passed without an owner, for want of room.
    pub untracked: u64,
    /// REPs that were dropped for want of room.
    pub refused: u64,
    /// Alternate paths that connections may use from then on.
    pub paths: u64,
    /// Alternate paths that are not followed: for want of room, or because nothing is known of the
    /// connection's other queue pair.
    pub paths_missed: u64,
}

/// A direction of packets that asks whom its queue pair belongs to.
#[derive(Clone, Copy)]
pub(super) struct Claim {
    /// The queue pair.
    pub(super) key: u64,
    /// The address that speaks to it.
    pub(super) peer: u64,
    /// The port that the queue pair's host must be behind.
    pub(super) lives: Side,
    pub(super) judged: (ConversationHandle, u8),
    pub(super) now: Time,
}

/// What is known of a direction's connection.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Admitted {
    /// What it serves.
    pub(super) service: Option<u64>,
    /// It may end soon, or says little: the next packet asks again.
    pub(super) is_passing: bool,
    /// Where packets of an owner were judged who gave the number up.
    pub(super) void: Option<(ConversationHandle, u8)>,
    /// The queue pair that the packet made its sender's, or its host's.
    pub(super) learnt: Option<u64>,
}

/// What first packets have named before of a queue pair that is claimed.
pub(super) enum Claimed {
    /// Who claims it.
    Already,
    /// Nobody who keeps it.
    Anew {
        /// Where packets of an owner were judged who gave the number up.
        void: Option<(ConversationHandle, u8)>,
    },
}

/// Directions that must be judged anew, because a queue pair number now belongs to another owner.
pub(super) type Void = [Option<(ConversationHandle, u8)>; 6];

/// Where in [`Void`] those of an alternate path that ended stand.
const VOID_PATH: usize = 4;

/// Who owns which queue pair.
#[derive(Debug)]
pub(super) struct State {
    pub(super) seed: HashSeed,
    pub(super) connected: Owners,
    pub(super) learnt: Owners,
    /// Whether the side on which a host is can be known.
    knows_sides: bool,
    /// Where the numbers of a new connection's directions begin.
    agreed: Option<[(QueuePairKey, Psn); 2]>,
    alternates: Alternates,
    /// Responders' queue pairs whose connections were agreed and not confirmed.
    unconfirmed: Awaited,
    /// Services that were asked for and not named yet.
    pub(super) asked: Awaited,
    /// A datagram queue pair serves something else than before.
    pub(super) serves_anew: bool,
    pub(super) counters: StateCounters,
}

impl State {
    /// Nobody owns anything. Room for the queue pairs of `conversations_max` conversations.
    pub(super) fn new(seed: HashSeed, conversations_max: usize, knows_sides: bool) -> Self {
        let table = || Owners::new(2 * conversations_max);
        let counters = StateCounters::default();
        Self {
            seed,
            connected: table(),
            learnt: table(),
            knows_sides,
            agreed: None,
            alternates: Alternates::default(),
            unconfirmed: Awaited::default(),
            asked: Awaited::default(),
            serves_anew: false,
            counters,
        }
    }

    /// Queue pairs with an owner.
    pub(super) fn len(&self) -> usize {
        self.connected.len() + self.learnt.len()
    }

    /// Where the numbers begin of the connection that was agreed last, once.
    pub(super) fn take_agreed(&mut self) -> Option<[(QueuePairKey, Psn); 2]> {
        self.agreed.take()
    }

    /// How often owners changed.
    pub(super) fn changes(&self) -> u64 {
        self.connected.changes() + self.learnt.changes()
    }

    /// Goes on with a walk over all owners; says whether there are more.
    pub(super) fn save_some(&self, place: &mut SavingPlace, out: &mut Vec<SavedOwner>) -> bool {
        place.some([&self.connected, &self.learnt], out)
    }

    /// Takes an owner of an earlier life in.
    pub(super) fn restore(&mut self, saved: &SavedOwner, now: Time) {
        match saved.owner() {
            (owner, true) => self.connected.restore(owner, now),
            (owner, false) => self.learnt.restore(owner, now),
        }
    }

    /// Keeps for other workers which connections stand, from now on.
    pub(super) fn share(&mut self) {
        self.connected.share();
    }

    /// Connections that were made or ended here, of which other workers have not heard.
    pub(super) fn take_connections(&mut self) -> Vec<ConnectionChange> {
        self.connected.take_connections()
    }

    /// Takes in what another worker told of its connections.
    pub(super) fn note_connections(&mut self, changes: &[ConnectionChange]) {
        self.connected.note_connections(changes);
    }

    /// Connections that stand which `address` asked for, at whichever worker of the pair.
    pub(super) fn connections_of(&self, address: &[u8; 16]) -> u32 {
        self.connected.count_of(self.address(address))
    }

    /// Fingerprints of the packet's source, and of the queue pair that it is for.
    pub(super) fn fingerprints(&self, packet: &Observation<'_>, rdma: &Rdma) -> [u64; 2] {
        [self.address(&packet.parsed.source), self.key(packet.parsed, rdma, None)]
    }

    /// Whether a direction's packets come from whom their queue pair belongs to.
    ///
    /// # Errors
    /// [`DropReason::QpForged`], [`DropReason::AccessNoConnection`].
    pub(super) fn admit(
        &mut self,
        kind: AccessState,
        seen: &Observed,
        packet: &Observation<'_>,
        conversations: &ConversationTable,
    ) -> Result<Admitted, DropReason> {
        let Some(rdma) = &packet.parsed.rdma else { return Ok(Admitted::default()) };
        let judged = seen.conversation.map(|handle| (handle, seen.direction));
        let admitted = match (judged, rdma.opcode.service()) {
            // Carried by a tunnel: nobody knows whose queue pairs are whose in there.
            (None, _) if kind == AccessState::Strict => Err(DropReason::AccessNoConnection),
            (None, _) => Ok(Admitted::default()),
            (Some(judged), Service::UnreliableDatagram) => {
                self.datagram(kind, judged, packet, rdma, conversations)
            }
            (Some(judged), _) => self.connected_packet(kind, judged, packet, rdma, conversations),
        };
        match admitted {
            Err(DropReason::QpForged) => self.counters.forged += 1,
            Err(_) => self.counters.unconnected += 1,
            Ok(_) => {}
        }
        admitted
    }

    fn connected_packet(
        &mut self,
        kind: AccessState,
        judged: (ConversationHandle, u8),
        packet: &Observation<'_>,
        rdma: &Rdma,
        conversations: &ConversationTable,
    ) -> Result<Admitted, DropReason> {
        let claim = Claim {
            key: self.key(packet.parsed, rdma, None),
            peer: self.address(&packet.parsed.source),
            lives: self.home(side(packet).opposite()),
            judged,
            now: packet.now,
        };
        let mut void = None;
        let at = self.connected.find(claim.key);
        if let Some(at) = at.filter(|at| !self.connected.owner(*at).waits) {
            let owner = self.connected.owner_mut(at);
            let is_own = owner.peer == claim.peer && owner.lives == claim.lives;
            if is_own && !owner.has_ended(claim.now) {
                let (service, is_passing) = (owner.service(), owner.is_closed());
                let partner = owner.is_path.then_some(owner.partner);
                self.connected.hear(at, claim.now, judged);
                if let Some(at) = partner.and_then(|it| self.connected.find(it)) {
                    self.connected.owner_mut(at).waits = false;
                }
                return Ok(Admitted { service, is_passing, ..Admitted::default() });
            }
            match kind {
                AccessState::Off => return Ok(Admitted::default()),
                AccessState::Learn
                    if owner.yields(claim.now, CONNECTED_SILENT_NS, conversations, judged) =>
                {
                    void = self.connected.remove(at);
                }
                _ if !is_own && !owner.is_closed() => return Err(DropReason::QpForged),
                _ => return Err(DropReason::AccessNoConnection),
            }
        }
        match kind {
            AccessState::Off => Ok(Admitted::default()),
            AccessState::Strict => Err(DropReason::AccessNoConnection),
            AccessState::Learn => {
                let is_notification = rdma.opcode == Opcode::CNP;
                let admitted = self.learn(&claim, is_notification, conversations)?;
                Ok(Admitted { void: admitted.void.or(void), ..admitted })
            }
        }
    }

    /// The first packet's source owns the queue pair; a congestion notification's does not.
    fn learn(
        &mut self,
        claim: &Claim,
        is_notification: bool,
        conversations: &ConversationTable,
    ) -> Result<Admitted, DropReason> {
        let mut admitted = Admitted { is_passing: is_notification, ..Admitted::default() };
        match self.claimed(claim, conversations)? {
            Claimed::Already => return Ok(admitted),
            Claimed::Anew { void } => admitted.void = void,
        }
        if !is_notification {
            self.add_learnt(Owner::new(claim.key, claim.peer, claim.lives), claim, conversations);
            admitted.learnt = Some(claim.key);
        }
        Ok(admitted)
    }

    /// Whether first packets have named the claim's sender before, who is heard then. Another
    /// whom they named gives way if he was silent for long.
    ///
    /// # Errors
    /// [`DropReason::QpForged`]: he was not.
    pub(super) fn claimed(
        &mut self,
        claim: &Claim,
        conversations: &ConversationTable,
    ) -> Result<Claimed, DropReason> {
        let Some(at) = self.learnt.find(claim.key) else {
            return Ok(Claimed::Anew { void: None });
        };
        let owner = self.learnt.owner_mut(at);
        let is_same = owner.peer == claim.peer || [owner.peer, claim.peer].contains(&ANYBODY);
        if owner.lives == claim.lives && is_same {
            if owner.peer == ANYBODY {
                owner.peer = claim.peer;
            }
            self.learnt.hear(at, claim.now, claim.judged);
            return Ok(Claimed::Already);
        }
        if !owner.yields(claim.now, LEARNT_SILENT_NS, conversations, claim.judged) {
            return Err(DropReason::QpForged);
        }
        Ok(Claimed::Anew { void: self.learnt.remove(at) })
    }

    pub(super) fn add_learnt(
        &mut self,
        owner: Owner,
        claim: &Claim,
        conversations: &ConversationTable,
    ) {
        let owner = owner.judged_at(claim.judged);
        let added = self.learnt.insert(owner, claim.now, conversations);
        self.counters.untracked += u64::from(added.is_err());
    }

    /// A queue pair is nobody's again: the packet that showed whose it is was dropped.
    pub(super) fn withdraw(&mut self, key: u64) {
        self.learnt.find(key).map(|at| self.learnt.remove(at));
    }

    /// Follows a management datagram that the lines let through.
    ///
    /// # Errors
    /// [`DropReason::QpForged`], [`DropReason::AccessNoConnection`],
    /// [`DropReason::AccessTableFull`]; in every state [`DropReason::AccessUnreadable`] for a REQ
    /// that contradicts an earlier one: nobody can tell which of them its receiver answers.
    pub(super) fn follow(
        &mut self,
        kind: AccessState,
        packet: &Observation<'_>,
        meter: &mut Meter,
    ) -> Result<Void, DropReason> {
        let followed = self.follow_message(kind, packet, meter);
        match followed {
            Err(DropReason::QpForged) => self.counters.forged += 1,
            Err(DropReason::AccessNoConnection) => self.counters.unconnected += 1,
            Err(DropReason::AccessUnreadable) => return followed,
            Err(_) => self.counters.refused += 1,
            Ok(_) => {}
        }
        if followed.is_err() && kind == AccessState::Off {
            return Ok(Void::default());
        }
        followed
    }

    fn follow_message(
        &mut self,
        kind: AccessState,
        packet: &Observation<'_>,
        meter: &mut Meter,
    ) -> Result<Void, DropReason> {
        let Some((_, message)) = cm::message(packet.bytes, packet.parsed) else {
            return Ok(Void::default());
        };
        match message {
            Message::Request(request) => {
                if !is_of(request, packet.parsed) {
                    return Err(DropReason::QpForged);
                }
                meter.learn(packet).map_err(|Contradiction| DropReason::AccessUnreadable)?;
            }
            Message::Reply(reply) => {
                let ids = [reply.local_comm_id.get(), reply.remote_comm_id.get()];
                if self.knows(packet, reply.local_qpn(), ids) {
                    return Ok(Void::default());
                }
                let Ok(Some(connection)) = meter.learn(packet) else {
                    return match kind {
                        AccessState::Strict => Err(DropReason::AccessNoConnection),
                        _ => Ok(Void::default()),
                    };
                };
                if self.knows_sides && connection.sides[0] == connection.sides[1] {
                    return Err(DropReason::QpForged);
                }
                return self.connect(&connection, packet, meter.conversations());
            }
            Message::DisconnectRequest(request) => return Ok(self.disconnect(request, packet)),
            Message::Ready(ready) => {
                let ids = [ready.local_comm_id.get(), ready.remote_comm_id.get()];
                self.unconfirmed.take(self.asked_hash(packet, ids));
            }
            Message::Reject(reject) => {
                let ids = [reject.local_comm_id.get(), reject.remote_comm_id.get()];
                if let Some(key) = self.unconfirmed.take(self.asked_hash(packet, ids)) {
                    return Ok(self.end(key, ids, packet));
                }
            }
            Message::ServiceRequest(request) => self.note_question(request, packet),
            Message::ServiceReply(reply) if reply.status == 0 => {
                return self.answer_question(kind, reply, packet, meter.conversations());
            }
            Message::LoadAlternatePath(proposal) => {
                self.propose(proposal, packet, meter.conversations());
            }
            Message::AlternatePathResponse(answer) if answer.status == 0 => {
                let ids = [answer.remote_comm_id.get(), answer.local_comm_id.get()];
                let Parsed { source, destination, .. } = packet.parsed;
                let hash = self.exchange_hash([destination, source], ids);
                let mut void = Void::default();
                if let Some((asked, path)) = self.alternates.take_proposed(hash) {
                    self.load_path(asked, path, packet, meter.conversations(), &mut void);
                }
                return Ok(void);
            }
            _ => {}
        }
        Ok(Void::default())
    }

    /// Whether the sender's queue pair `qpn` is of a connection that stands, of these names, its
    /// own first.
    fn knows(&self, packet: &Observation<'_>, qpn: Qpn, comm_ids: [u32; 2]) -> bool {
        let Some(key) = self.key_at_source(packet, qpn) else { return false };
        let owner = self.connected.find(key).map(|at| self.connected.owner(at));
        owner.is_some_and(|it| {
            it.comm_ids == comm_ids
                && it.peer == self.address(&packet.parsed.destination)
                && !it.is_closed()
        })
    }

    fn connect(
        &mut self,
        connection: &Connection,
        packet: &Observation<'_>,
        conversations: &ConversationTable,
    ) -> Result<Void, DropReason> {
        let responders = connection.key;
        let requesters = connection.key.reversed_to(connection.partner_qp);
        let keys = [responders, requesters].map(|it| it.destination_fingerprint(&self.seed));
        let peers = [responders, requesters].map(|it| self.address(&it.source()));
        let lives = [side(packet), side(packet).opposite()].map(|it| self.home(it));
        let [requester_id, responder_id] = connection.comm_ids;
        let ids = [[responder_id, requester_id], [requester_id, responder_id]];
        let is_elsewhere = |which: usize| {
            let owner = self.connected.find(keys[which]).map(|at| self.connected.owner(at));
            owner.is_some_and(|it| it.lives != lives[which] && !it.is_closed() && !it.is_path)
        };
        if is_elsewhere(0) || is_elsewhere(1) {
            return Err(DropReason::QpForged);
        }
        let mut void = Void::default();
        for which in [0, 1] {
            void[2 * which] =
                self.connected.find(keys[which]).and_then(|at| self.connected.remove(at));
            void[2 * which + 1] =
                self.learnt.find(keys[which]).and_then(|at| self.learnt.remove(at));
            let owner = Owner {
                partner: keys[1 - which],
                service: connection.service_id,
                comm_ids: ids[which],
                // The responder's queue pair, whose peer asked.
                is_counted: which == 0,
                ..Owner::new(keys[which], peers[which], lives[which])
            };
            if let Err(Full) = self.connected.insert(owner, packet.now, conversations) {
                if let Some(at) = self.connected.find(keys[0]) {
                    self.connected.remove(at);
                }
                return Err(DropReason::AccessTableFull);
            }
        }
        self.counters.connections += 1;
        let ends = [responders.source(), responders.destination()];
        let hash = self.exchange_hash([&ends[0], &ends[1]], connection.comm_ids);
        self.unconfirmed.note(hash, keys[0]);
        let qps = [connection.partner_qp, responders.destination_qp()];
        if let Some(path) = alternate::path(responders, connection.alternate, qps) {
            self.load_path(keys[0], path, packet, conversations, &mut void);
        }
        self.agreed = Some([(responders, connection.psn), (requesters, connection.partner_psn)]);
        Ok(void)
    }

    /// DREQ, where it is of a connection that there is.
    fn disconnect(&mut self, request: &DisconnectRequest, packet: &Observation<'_>) -> Void {
        let Some(rdma) = &packet.parsed.rdma else { return Void::default() };
        let key = QueuePairKey::of(packet.parsed, rdma, None).reversed_to(Qpn::new(0));
        let key = key.reversed_to(request.remote_qpn()).destination_fingerprint(&self.seed);
        let ids = [request.local_comm_id.get(), request.remote_comm_id.get()];
        self.end(key, ids, packet)
    }

    /// Ends the connection of queue pair `key`, if it is one with the packet's sender, of these
    /// names, the sender's first.
    fn end(&mut self, key: u64, comm_ids: [u32; 2], packet: &Observation<'_>) -> Void {
        let mut void = Void::default();
        let Some(at) = self.connected.find(key) else { return void };
        let owner = *self.connected.owner(at);
        let is_its = owner.comm_ids == [comm_ids[1], comm_ids[0]]
            && owner.peer == self.address(&packet.parsed.source)
            && owner.lives == self.home(side(packet).opposite());
        if !is_its || owner.is_closed() {
            return void;
        }
        self.counters.disconnects += 1;
        self.end_path([key, owner.partner], packet.now, &mut void);
        let partner = self.connected.find(owner.partner);
        for (place, at) in void.iter_mut().zip([Some(at), partner].into_iter().flatten()) {
            *place = self.connected.close(at, packet.now);
        }
        void
    }

    /// LAP, where it is of a connection that there is: the path waits for its APR.
    fn propose(
        &mut self,
        proposal: &LoadAlternatePath,
        packet: &Observation<'_>,
        conversations: &ConversationTable,
    ) {
        let Some(rdma) = &packet.parsed.rdma else { return };
        let like = QueuePairKey::of(packet.parsed, rdma, None).reversed_to(Qpn::new(0));
        let like = like.reversed_to(proposal.remote_qpn());
        let key = like.destination_fingerprint(&self.seed);
        let Some(owner) = self.connected.find(key).map(|at| *self.connected.owner(at)) else {
            return;
        };
        let ids = [proposal.local_comm_id.get(), proposal.remote_comm_id.get()];
        let is_its = owner.comm_ids == [ids[1], ids[0]]
            && owner.peer == self.address(&packet.parsed.source)
            && owner.lives == self.home(side(packet).opposite());
        if !is_its || owner.is_closed() {
            return;
        }
        // A LAP names the queue pair of who is asked alone.
        let conversation = conversations.find(&like).and_then(|it| conversations.entry(it));
        let back = conversation.and_then(|it| it.directions().find(|it| it.key != like));
        let ends = [proposal.local_gid, proposal.remote_gid];
        let path = back.and_then(|back| {
            let qps = [back.key.destination_qp(), proposal.remote_qpn()];
            alternate::path(like, ends, qps)
        });
        let Some(path) = path else {
            self.counters.paths_missed += 1;
            return;
        };
        let hash = self.asked_hash(packet, ids);
        self.alternates.propose(hash, key, path);
    }

    /// [`State::exchange_hash`] of a message by who asked.
    fn asked_hash(&self, packet: &Observation<'_>, comm_ids: [u32; 2]) -> u64 {
        self.exchange_hash([&packet.parsed.source, &packet.parsed.destination], comm_ids)
    }

    /// What joins messages of managers at `ends`, the asker's first, that name no queue pair: a LAP
    /// to its APR, a REJ or RTU to its REP.
    pub(super) fn exchange_hash(&self, ends: [&[u8; 16]; 2], comm_ids: [u32; 2]) -> u64 {
        let [asker, asked] = ends.map(|it| self.address(it));
        self.seed.hash(&[asker, asked, u64::from(comm_ids[0]) << 32 | u64::from(comm_ids[1])])
    }

    /// The connection of the queue pair `asked` may use `path`, and an earlier one no longer. What
    /// belongs to somebody by then stays his.
    fn load_path(
        &mut self,
        asked: u64,
        path: Directions,
        packet: &Observation<'_>,
        conversations: &ConversationTable,
        void: &mut Void,
    ) {
        let Some(first) = self.connected.find(asked).map(|at| *self.connected.owner(at)) else {
            return;
        };
        self.end_path([asked, first.partner], packet.now, void);
        let keys = path.map(|it| it.destination_fingerprint(&self.seed));
        let is_free = keys.iter().all(|it| self.connected.find(*it).is_none());
        let asker = self.connected.find(first.partner).map(|at| *self.connected.owner(at));
        let (Some(asker), true) = (asker, is_free && self.alternates.has_room()) else {
            self.counters.paths_missed += 1;
            return;
        };
        for (which, like) in [first, asker].into_iter().enumerate() {
            let peer = self.address(&path[which].source());
            let partner = keys[1 - which];
            let owner = Owner {
                partner,
                service: like.service,
                comm_ids: like.comm_ids,
                is_path: true,
                waits: which == 1,
                ..Owner::new(keys[which], peer, like.lives)
            };
            if self.connected.insert(owner, packet.now, conversations).is_err() {
                self.counters.paths_missed += 1;
                return;
            }
        }
        self.alternates.load([asked, first.partner], keys);
        self.counters.paths += 1;
    }

    /// Ends the alternate path of the connection between these queue pairs, if it has one.
    fn end_path(&mut self, first: [u64; 2], now: Time, void: &mut Void) {
        let ended = self.alternates.unload(first).into_iter().flatten();
        for (place, key) in void[VOID_PATH..].iter_mut().zip(ended) {
            // A connection may have taken its place.
            let path = self.connected.find(key).filter(|at| self.connected.owner(*at).is_path);
            *place = path.and_then(|at| self.connected.close(at, now));
        }
    }

    fn key(&self, parsed: &Parsed, rdma: &Rdma, source_qp: Option<Qpn>) -> u64 {
        QueuePairKey::of(parsed, rdma, source_qp).destination_fingerprint(&self.seed)
    }

    /// Queue pair `qpn` at the packet's source.
    pub(super) fn key_at_source(&self, packet: &Observation<'_>, qpn: Qpn) -> Option<u64> {
        let key = QueuePairKey::of(packet.parsed, packet.parsed.rdma.as_ref()?, None);
        Some(key.reversed_to(qpn).destination_fingerprint(&self.seed))
    }

    /// Where a host lives that is behind `side`.
    pub(super) fn home(&self, side: Side) -> Side {
        if self.knows_sides { side } else { Side::Host }
    }

    pub(super) fn address(&self, address: &[u8; 16]) -> u64 {
        let number = u128::from_be_bytes(*address);
        self.seed.hash(&[(number >> 64) as u64, number as u64]).max(1)
    }
}

/// Whether the requester asks for itself: its GID is where the message comes from. Not all say.
fn is_of(request: &ConnectRequest, parsed: &Parsed) -> bool {
    let gid = request.primary.local_gid;
    gid == [0; 16] || gid == parsed.source
}

pub(super) fn side(packet: &Observation<'_>) -> Side {
    packet.side.unwrap_or(Side::Wire)
}
