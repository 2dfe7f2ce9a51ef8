//! Whose datagram queue pairs are: SIDR names them, and what they send shows them.

use weir_wire::bth::Qpn;
use weir_wire::cm::{ServiceReply, ServiceRequest};
use weir_wire::ext;
use weir_wire::parse::{Parsed, Rdma};

use super::owners::{ANYBODY, Full, Owner};
use super::state::{AccessState, Admitted, Claim, Claimed, State, Void, side};
use crate::meter::Observation;
use crate::rdma::{ConversationHandle, ConversationTable, QueuePairKey};
use crate::verdict::DropReason;

impl State {
    /// A datagram shows the queue pair that it is from: that lives where it came in.
    pub(super) fn datagram(
        &mut self,
        kind: AccessState,
        judged: (ConversationHandle, u8),
        packet: &Observation<'_>,
        rdma: &Rdma,
        conversations: &ConversationTable,
    ) -> Result<Admitted, DropReason> {
        let source_qp = ext::deth(packet.bytes, rdma).map(|it| it.source_qp());
        let key = QueuePairKey::of(packet.parsed, rdma, source_qp);
        let Some(own) = key.answer().map(|it| it.destination_fingerprint(&self.seed)) else {
            return Ok(Admitted::default());
        };
        let destination = key.destination_fingerprint(&self.seed);
        let service = self.datagram_service(destination).or_else(|| self.datagram_service(own));
        let mut admitted = Admitted { service: service.flatten(), ..Admitted::default() };
        let towards = self.home(side(packet).opposite());
        let is_known = self.datagrams_to(destination).is_some_and(|it| it.lives == towards);
        let is_group = rdma.destination_qp == Qpn::MULTICAST;
        let claim = Claim {
            key: own,
            peer: ANYBODY,
            lives: self.home(side(packet)),
            judged,
            now: packet.now,
        };
        match kind {
            AccessState::Off => return Ok(admitted),
            AccessState::Strict if !is_known && !is_group => {
                return Err(DropReason::AccessNoConnection);
            }
            _ => {}
        }
        let of_managers = self.connected.find(own).map(|at| self.connected.owner(at));
        if let Some(Owner { lives, .. }) = of_managers.filter(|it| !it.is_path) {
            return if *lives == claim.lives { Ok(admitted) } else { Err(DropReason::QpForged) };
        }
        match self.claimed(&claim, conversations)? {
            Claimed::Already => return Ok(admitted),
            Claimed::Anew { void } => admitted.void = void,
        }
        self.add_learnt(Owner::new(own, ANYBODY, claim.lives), &claim, conversations);
        admitted.learnt = Some(own);
        Ok(admitted)
    }

    /// What a known datagram queue pair serves; `None`: it is not known.
    fn datagram_service(&self, key: u64) -> Option<Option<u64>> {
        self.datagrams_to(key).map(|it| it.service())
    }

    /// Whose a known datagram queue pair is.
    fn datagrams_to(&self, key: u64) -> Option<&Owner> {
        let is_datagrams = |owner: &&Owner| owner.peer == ANYBODY;
        let connected = self.connected.find(key).map(|at| self.connected.owner(at));
        let learnt = || self.learnt.find(key).map(|at| self.learnt.owner(at));
        connected.filter(is_datagrams).or_else(|| learnt().filter(is_datagrams))
    }

    /// What joins a SIDR_REP to its SIDR_REQ, which comes in by the other port.
    fn service_hash(&self, packet: &Observation<'_>, request_id: u32, is_request: bool) -> u64 {
        let Parsed { source, destination, .. } = packet.parsed;
        let (ends, asker) = match is_request {
            true => ([source, destination], side(packet)),
            false => ([destination, source], side(packet).opposite()),
        };
        self.exchange_hash(ends, [request_id, self.home(asker) as u32])
    }

    /// Whether the queue pair that SIDR_REP names is known as its sender's already.
    fn serves(&self, reply: &ServiceReply, packet: &Observation<'_>) -> bool {
        let key = self.key_at_source(packet, reply.qpn());
        let owner = key.and_then(|key| self.datagrams_to(key));
        owner.is_some_and(|it| {
            it.lives == self.home(side(packet)) && it.service() == Some(reply.service_id.get())
        })
    }

    /// SIDR_REQ: a reply is awaited.
    pub(super) fn note_question(&mut self, request: &ServiceRequest, packet: &Observation<'_>) {
        let hash = self.service_hash(packet, request.request_id.get(), true);
        self.asked.note(hash, request.service_id.get());
    }

    /// SIDR_REP that names a queue pair.
    ///
    /// # Errors
    /// Those of [`State::serve`]; [`DropReason::AccessNoConnection`]: nobody asked.
    pub(super) fn answer_question(
        &mut self,
        kind: AccessState,
        reply: &ServiceReply,
        packet: &Observation<'_>,
        conversations: &ConversationTable,
    ) -> Result<Void, DropReason> {
        let hash = self.service_hash(packet, reply.request_id.get(), false);
        if self.asked.take(hash) == Some(reply.service_id.get()) {
            return self.serve(reply, packet, conversations);
        }
        match kind {
            AccessState::Strict if !self.serves(reply, packet) => {
                Err(DropReason::AccessNoConnection)
            }
            _ => Ok(Void::default()),
        }
    }

    /// SIDR_REP: names a datagram queue pair of its sender's.
    fn serve(
        &mut self,
        reply: &ServiceReply,
        packet: &Observation<'_>,
        conversations: &ConversationTable,
    ) -> Result<Void, DropReason> {
        let Some(key) = self.key_at_source(packet, reply.qpn()) else { return Ok(Void::default()) };
        let lives = self.home(side(packet));
        let service = reply.service_id.get();
        let mut void = Void::default();
        let before = self.connected.find(key).map(|at| (at, *self.connected.owner(at)));
        if let Some((at, owner)) = before {
            if owner.lives != lives && !owner.is_closed() && !owner.is_path {
                return Err(DropReason::QpForged);
            }
            void[0] = self.connected.remove(at);
        }
        // What others send to it was decided by what it served.
        self.serves_anew |=
            before.is_none_or(|(_, it)| it.peer != ANYBODY || it.service != service);
        let owner = Owner { service, ..Owner::new(key, ANYBODY, lives) };
        match self.connected.insert(owner, packet.now, conversations) {
            Ok(()) => Ok(void),
            Err(Full) => Err(DropReason::AccessTableFull),
        }
    }
}
