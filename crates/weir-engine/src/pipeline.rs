//! The order of the stages, and nothing else.
//!
//! ```text
//! host -> parse -> meter -> where to? -+-> clear, or its peer cannot or need not yet -> wire
//!                                      +-> a tag in the place of its ICRC ---------> wire
//!                                      +-> clamp, cut, seal, outer headers --------> wire
//!                                      +-> the kernel's ESP: clamp, cut ------> xfrm interface
//! wire -> parse -+-> ESP: open -> parse inner -> selectors -> meter -> clamp, gather -> host
//!                +-> own ARP/ND answers: learn; the gateway's own: punt
//!                +-> tagged: ICRC put back -> meter ---------------------------------> host
//!                +-> clear, where the policy says so -> meter -----------------------> host
//! ```

use std::collections::BTreeMap;
use std::sync::Arc;

use weir_wire::frame::{Frame, Offload, Time};
use weir_wire::parse::{Network, Parsed, Transport};
use weir_wire::tcp;

use crate::classify::frame_class;
use crate::counters::{Counters, PeerCounters};
use crate::egress::SealingPeer;
use crate::esp::open::OpeningSa;
use crate::esp::outer::OuterFields;
use crate::esp::seal::SealingSa;
use crate::esp::wireguard;
use crate::fastpath::{self, FastParts, FastPath};
use crate::ingress::{HostAddresses, Inner, OpeningPeer};
use crate::limit::Way;
use crate::meter::{Meter, Observed};
use crate::mtu::{self, AnswerLimit};
use crate::nat::Nat;
use crate::neighbour::{Neighbours, QUESTION_BYTES_MAX};
use crate::offload::checksum::complete;
use crate::offload::gather::Gather;
use crate::output::{Destination, Output, Part};
use crate::plain::Plain;
use crate::policy::{FrameClass, Mode, Policy};
use crate::rdma::LossWay;
use crate::verdict::{DropReason, Side, Verdict};

mod associations;
mod dummy;
mod kernel;
mod keyed;
mod limits;
mod masquerade;
mod metering;
mod own;
mod path;
mod proxy;
mod rejected;
mod rollout;
mod route;
mod tagged;
mod told;
mod usage;
mod walked;

pub use associations::{Associations, Left, PolicyError};
use kernel::KernelPeers;
pub(crate) use keyed::AgreedPeer;
pub use keyed::{Agreed, INBOX_MAX};
use keyed::{BySpi, Keyed};
pub(crate) use rollout::Rollout;
pub use rollout::SealingChange;
use route::is_routable;
pub(crate) use route::route;
pub(crate) use tagged::TaggedPeer;
use told::News;
pub use told::{Told, Who};
pub use usage::{Usage, UsageDirection};
use walked::Walked;

/// Bytes of the arena: a full batch of super-packets, cut, with room around each piece.
const ARENA_BYTES: usize = 8 << 20;

/// The queue pair that connection management arrives at (IBTA Vol 1 s3.9.2).
const GENERAL_SERVICES_QP: u32 = 1;

/// Questions for neighbours in one call of [`Engine::tick`], at most.
const QUESTIONS_MAX: usize = 256;

/// Beyond so many peers, outer headers follow neighbours' answers by the tick, not by each.
const REFRESHED_AT_ONCE_MAX: usize = 64;

/// One pair of ports: policy, associations, tables and counters. Owned by one worker.
#[derive(Debug)]
pub struct Engine {
    policy: Arc<Policy>,
    /// Beside `policy.peers`, by index.
    sealing: Vec<SealingPeer>,
    /// In the order of `policy.open_spis()`; behind them those that are agreed.
    opening: Vec<OpeningPeer>,
    /// Indices into `opening`.
    opening_by_spi: BySpi,
    keyed: Keyed,
    kernel: KernelPeers,
    /// The neighbours' version that the outer headers are of.
    refreshed: u64,
    /// The last moment that we were told of.
    now: Time,
    neighbours: Neighbours,
    hosts: HostAddresses,
    /// Whether a peer's tunnel ends at an own address: then hosts' MAC addresses must be known.
    tunnels_end_here: bool,
    answers: AnswerLimit,
    news: News,
    counters: Counters,
    plain: Plain,
    /// `None`: clients are seen under their own addresses.
    nat: Option<Box<Nat>>,
    gather: Gather,
    /// `None`: every packet comes through here.
    fast_path: Option<Box<FastPath>>,
    output: Output,
}

impl Engine {
    /// An engine for `policy`, with an association for each of its peers, that counts with `meter`.
    ///
    /// # Errors
    /// [`PolicyError`].
    pub fn new(
        policy: Policy,
        associations: Associations,
        meter: Meter,
    ) -> Result<Self, PolicyError> {
        let mut engine = Self {
            plain: Plain::new(meter),
            policy: Arc::new(Policy::watch(0, policy.wire_mtu)),
            sealing: Vec::new(),
            opening: Vec::new(),
            opening_by_spi: BySpi::default(),
            keyed: Keyed::default(),
            kernel: KernelPeers::default(),
            refreshed: u64::MAX,
            now: Time::default(),
            neighbours: Neighbours::default(),
            hosts: HostAddresses::default(),
            tunnels_end_here: false,
            answers: AnswerLimit::default(),
            news: News::default(),
            counters: Counters::default(),
            nat: None,
            gather: Gather::new(),
            fast_path: None,
            output: Output::new(ARENA_BYTES),
        };
        engine.swap(policy, associations)?;
        Ok(engine)
    }

    /// Takes `policy` instead of the present one, whole or not at all. Associations that it still
    /// names go on, unless `associations` brings another of the same SPI. Tells how far those went
    /// that it does not.
    ///
    /// # Errors
    /// [`PolicyError`]; the present policy goes on.
    pub fn swap(
        &mut self,
        policy: Policy,
        associations: Associations,
    ) -> Result<Left, PolicyError> {
        self.check(&policy, &associations)?;
        self.plain.renew(&policy)?;
        let mut left = Left::default();
        let rollouts = self.take_rollouts();
        let tags = self.take_tags();
        let survivors = self.take_survivors();
        let mut sealing: BTreeMap<u32, (SealingSa, PeerCounters)> = BTreeMap::new();
        let mut opening: BTreeMap<u32, OpeningPeer> = BTreeMap::new();
        for peer in self.sealing.drain(..) {
            let Some(association) = peer.association else { continue };
            sealing.insert(association.spi().value(), (association, peer.counters));
        }
        opening.extend(self.opening.drain(..).map(|it| (it.association.spi().value(), it)));
        for association in associations.sealing {
            let new = (association, PeerCounters::default());
            if let Some((old, _)) = sealing.insert(new.0.spi().value(), new) {
                left.add_sealing(&old);
            }
        }
        for association in associations.opening {
            let new = OpeningPeer::new(association);
            if let Some(mut old) = opening.insert(new.association.spi().value(), new) {
                left.add_opening(&mut old.association);
            }
        }
        for (index, peer) in policy.peers.iter().enumerate() {
            let (association, counters) =
                peer.seal_spi.and_then(|spi| sealing.remove(&spi)).unzip();
            let counters = counters.unwrap_or_default();
            self.sealing.push(SealingPeer::new(peer, association, policy.wire_mtu, counters));
            let found = peer.open_spis.iter().filter_map(|spi| opening.remove(spi));
            self.opening.extend(found.map(|it| OpeningPeer { peer: index, ..it }));
        }
        sealing.values().for_each(|(association, _)| left.add_sealing(association));
        opening.values_mut().for_each(|it| left.add_opening(&mut it.association));
        self.opening_by_spi = policy.open_spis().zip(0..).collect();
        self.tunnels_end_here = policy.peers.iter().any(|it| {
            it.mode == Mode::WireGuard || it.mode == Mode::Tunnel && it.endpoint.is_some()
        });
        self.neighbours = Neighbours::new(&policy, &self.neighbours);
        self.kernel.renew(&policy);
        self.renew_nat(&policy);
        self.policy = Arc::new(policy);
        self.restore(survivors);
        self.restore_rollouts(rollouts);
        self.restore_tags(tags, associations.tags);
        Ok(left)
    }

    /// Decides about a batch from one side. The frames are changed in place; what to send is in the
    /// output until the next call.
    pub fn process(&mut self, now: Time, side: Side, frames: &mut [Frame<'_>]) -> &Output {
        self.output.clear();
        self.now = now;
        match side {
            Side::Host => self.host_batch(now, frames),
            Side::Wire => self.wire_batch(now, frames),
        }
        self.plain.meter.end_train();
        &self.output
    }

    fn host_batch(&mut self, now: Time, frames: &mut [Frame<'_>]) {
        let mut walked = Walked::default();
        for (index, frame) in frames.iter_mut().enumerate() {
            let bytes = frame.len();
            let is_known = self.unmasquerade(frame);
            walked.walk(frame);
            let verdict =
                is_known.and_then(|()| self.host_frame(now, index as u32, frame, &mut walked));
            let verdict = verdict.unwrap_or_else(Verdict::Drop);
            let parsed = walked.parsed();
            if matches!(verdict, Verdict::Drop(_)) && parsed.rdma.is_some() {
                self.plain.note_drop(Side::Host, frame, parsed);
            }
            self.answer_rejected(now, Side::Host, verdict);
            self.output.verdicts.push(verdict);
            self.counters.host.count(bytes, verdict);
        }
    }

    fn wire_batch(&mut self, now: Time, frames: &mut [Frame<'_>]) {
        let (mut outer, mut inner) = (Walked::default(), Walked::default());
        for index in 0..frames.len() {
            let frame = &mut frames[index];
            let bytes = frame.len();
            outer.walk(frame);
            let verdict = self.wire_frame(now, index as u32, frame, &mut outer, &mut inner);
            let verdict = verdict.unwrap_or_else(Verdict::Drop);
            if let Verdict::Drop(reason) = verdict
                && reason.may_hide_a_packet()
            {
                self.plain.meter.note_own_loss(LossWay::In, Side::Wire, 1, now);
            }
            self.answer_rejected(now, Side::Wire, verdict);
            if matches!(
                verdict,
                Verdict::Forward
                    | Verdict::Clear(_)
                    | Verdict::Unsealed
                    | Verdict::Opened
                    | Verdict::Tagged
            ) {
                let Self { gather, output, .. } = self;
                let opened = if verdict == Verdict::Opened { &inner } else { &outer };
                if self.policy.gather && Gather::concerns(opened.parsed()) {
                    gather.push(frames, index as u32, opened.parsed(), Destination::Host, output);
                } else {
                    send_whole(output, Destination::Host, index as u32, &frames[index]);
                }
            }
            self.output.verdicts.push(verdict);
            self.counters.wire.count(bytes, verdict);
        }
        self.gather.finish(frames, &mut self.output);
    }

    /// Packets of the gateway's own that are due: questions for neighbours. Call every 100 ms.
    pub fn tick(&mut self, now: Time) -> &Output {
        self.output.clear();
        self.now = now;
        let mut question = [0; QUESTION_BYTES_MAX];
        for _ in 0..QUESTIONS_MAX {
            let Some(len) = self.neighbours.question(now, &mut question) else { break };
            let Some(range) = self.output.allocate(len) else { break };
            self.output.arena_mut(&range).copy_from_slice(&question[..len]);
            self.output.send(Destination::Wire, Offload::default(), Part::Arena(range));
            self.counters.own_sent += 1;
        }
        self.refresh(now);
        if let Some(nat) = &mut self.nat {
            nat.expire(now);
        }
        &self.output
    }

    fn host_frame(
        &mut self,
        now: Time,
        index: u32,
        frame: &mut Frame<'_>,
        walked: &mut Walked,
    ) -> Result<Verdict, DropReason> {
        let seen = walked.pass(&mut self.plain, Side::Host, frame)?;
        self.onward(now, index, frame, walked, seen)
    }

    /// What becomes of a frame of the host's that was let through.
    #[inline]
    fn onward(
        &mut self,
        now: Time,
        index: u32,
        frame: &mut Frame<'_>,
        walked: &mut Walked,
        seen: Option<Observed>,
    ) -> Result<Verdict, DropReason> {
        let (class, route) = walked.way(&self.policy);
        let parsed = walked.parsed();
        if !is_routable(parsed) && self.policy.seals() {
            return Err(DropReason::Malformed);
        }
        if self.tunnels_end_here && self.hosts.learn(parsed) {
            self.tell_host(parsed);
        }
        if parsed.network == Network::Arp
            && self.tunnels_end_here
            && let Some(verdict) = self.take_arp(frame, parsed)
        {
            return Ok(verdict);
        }
        let Some(peer) = route? else {
            self.consider(Side::Host, class, frame, walked, seen);
            send_whole(&mut self.output, Destination::Wire, index, frame);
            return Ok(self.passed(class));
        };
        self.limit(peer, Way::ToPeer, frame)?;
        if let Some(kernel) = self.policy.peers[peer].kernel {
            return self.hand_over(now, (peer, kernel.place), index, frame, parsed);
        }
        if !self.sealing[peer].seals() {
            return self.send_unsealed(peer, index, frame, parsed);
        }
        let fields = walked.outer_fields(&self.policy.marking);
        let parsed = walked.parsed();
        self.clamp(peer, frame, parsed);
        if frame.meta.offload.segmentation.is_some() {
            return self.seal_cut(now, peer, frame, parsed, fields);
        }
        if !self.sealing[peer].fits(parsed, frame.len()) {
            let ip_mtu = self.sealing[peer].ip_mtu(parsed);
            if let Some(pieces) =
                mtu::cut(parsed, frame.bytes(), ip_mtu).filter(|_| complete(frame))
            {
                return self.send_pieces(now, &pieces);
            }
            self.answer_too_big(now, peer, parsed, frame);
            return Err(DropReason::TooBig);
        }
        if !complete(frame) {
            return Err(DropReason::Malformed);
        }
        self.sealing[peer].seal(frame, parsed, fields)?;
        self.sealed(peer);
        send_whole(&mut self.output, Destination::Wire, index, frame);
        Ok(Verdict::Sealed)
    }

    /// A super-packet becomes one sealed packet a segment.
    fn seal_cut(
        &mut self,
        now: Time,
        peer: usize,
        frame: &mut Frame<'_>,
        parsed: &Parsed,
        fields: OuterFields,
    ) -> Result<Verdict, DropReason> {
        match self.sealing[peer].seal_cut(frame, parsed, fields, &mut self.output) {
            Err(DropReason::TooBig) => {
                self.answer_too_big(now, peer, parsed, frame);
                Err(DropReason::TooBig)
            }
            Err(reason) => Err(reason),
            Ok(()) => {
                self.sealed(peer);
                Ok(Verdict::Sealed)
            }
        }
    }

    /// The verdict about a frame from the wire, the last that `outer` walked over. `inner` walks
    /// over what was in it. What passes goes to the host.
    #[inline]
    fn wire_frame(
        &mut self,
        now: Time,
        index: u32,
        frame: &mut Frame<'_>,
        outer: &mut Walked,
        inner: &mut Walked,
    ) -> Result<Verdict, DropReason> {
        let parsed = outer.parsed();
        if !is_routable(parsed) && self.policy.seals() {
            return Err(DropReason::Malformed);
        }
        if let Transport::Esp { spi, in_udp, .. } = parsed.transport {
            if !in_udp && self.kernel.opens(spi, parsed) && self.is_own(parsed) {
                return kernel::handed_whole(parsed);
            }
            let opening = outer.opening(spi, &self.opening, &self.opening_by_spi);
            let parsed = outer.parsed();
            match opening {
                Some(index) => return self.open(index, frame, parsed, inner),
                None if self.is_own(parsed) => return Err(DropReason::UnknownSpi),
                None => {}
            }
        }
        let parsed = outer.parsed();
        if let Some(port) = self.keying_source(parsed) {
            if let Some(receiver) = wireguard::receiver(parsed.payload(frame.bytes())) {
                let opening = outer.opening(receiver, &self.opening, &self.opening_by_spi);
                let index = opening.ok_or(DropReason::UnknownSpi)?;
                return self.open(index, frame, outer.parsed(), inner);
            }
            return self.take_in(frame, parsed, port);
        }
        if self.kernel.may_be_silent(&self.policy, parsed) && self.is_own(parsed) {
            return Ok(Verdict::Handed);
        }
        if self.is_own(parsed) {
            self.heed_too_large(parsed, frame);
            let has_learnt = self.neighbours.learn(parsed, frame.bytes(), now);
            if has_learnt && self.sealing.len() <= REFRESHED_AT_ONCE_MAX {
                self.refresh(now);
            }
            self.tell_neighbour(parsed, frame.bytes());
            self.untag(frame);
            send_whole(&mut self.output, Destination::Punt, index, frame);
            return Ok(Verdict::Punt);
        }
        let class = frame_class(parsed);
        match route(&self.policy, class, Side::Wire, parsed)? {
            None => {
                let seen = outer.pass(&mut self.plain, Side::Wire, frame)?;
                self.consider(Side::Wire, class, frame, outer, seen);
                Ok(self.passed(class))
            }
            Some(peer) => self.take_plain(peer, frame, parsed),
        }
    }

    #[inline]
    fn open(
        &mut self,
        index: usize,
        frame: &mut Frame<'_>,
        outer: &Parsed,
        inner: &mut Walked,
    ) -> Result<Verdict, DropReason> {
        let opening = &mut self.opening[index];
        let (peer, highest) = (opening.peer, opening.association.highest());
        let held = opening.open(&self.policy, &self.hosts, frame, outer, inner.opened());
        if held == Err(DropReason::NeighbourUnknown) {
            self.ask_for_host(&inner.parsed().destination);
            return Err(DropReason::NeighbourUnknown);
        }
        let held = held?;
        if opening.is_agreed {
            let is_newest = opening.association.highest() > highest;
            self.heard(index, outer, is_newest);
        }
        match held {
            Inner::Nothing(message) => Ok(self.heard_dummy(peer, message)),
            Inner::Packet { follows, congestion_combined } => {
                inner.note(follows);
                self.limit(peer, Way::FromPeer, frame)?;
                self.counters.ce_combined += u64::from(congestion_combined);
                inner.pass(&mut self.plain, Side::Wire, frame)?;
                if self.nat.is_some() {
                    self.masquerade(peer, frame, inner.walker.parsed_mut())?;
                }
                self.clamp(peer, frame, inner.parsed());
                Ok(Verdict::Opened)
            }
        }
    }

    /// Whether the kernel can carry packets like this one, which is passed as it is.
    #[inline]
    fn consider(
        &mut self,
        side: Side,
        class: Option<FrameClass>,
        frame: &Frame<'_>,
        walked: &Walked,
        seen: Option<Observed>,
    ) {
        let parsed = walked.parsed();
        let Self { fast_path: Some(fast_path), policy, plain, .. } = self else { return };
        let is_odd = parsed.rdma.is_some() && frame.meta.offload.segmentation.is_some();
        if class.is_none() && !is_odd && fastpath::allows(policy) {
            let seen = seen.unwrap_or_else(|| walked.observed());
            fast_path.consider(&plain.meter, side, (frame.bytes(), parsed), seen);
        }
    }

    /// What [`crate::fastpath`] works with.
    pub(crate) fn fast_parts(&mut self) -> FastParts<'_> {
        let Self { fast_path, plain, counters, policy, .. } = self;
        FastParts { fast_path, meter: &mut plain.meter, counters, policy }
    }

    /// Lowers what a connection that is being set up may send, in both directions.
    #[inline]
    fn clamp(&mut self, peer: usize, frame: &mut Frame<'_>, parsed: &Parsed) {
        match (parsed.transport, &parsed.rdma) {
            (Transport::Tcp { flags, .. }, _) if flags & tcp::flags::SYN != 0 => {
                let ip_mtu = self.sealing[peer].ip_mtu(parsed);
                let partial = frame.meta.offload.checksum.is_some();
                let clamped = mtu::clamp_mss(frame.bytes_mut(), parsed, ip_mtu, partial);
                self.counters.mss_clamped += u64::from(clamped);
            }
            (_, Some(rdma)) if rdma.destination_qp.value() == GENERAL_SERVICES_QP => {
                let ip_mtu = self.sealing[peer].ip_mtu(parsed);
                let clamped = mtu::clamp_path_mtu(frame.bytes_mut(), parsed, ip_mtu);
                self.counters.path_mtu_clamped += u64::from(clamped);
            }
            _ => {}
        }
    }

    fn answer_too_big(&mut self, now: Time, peer: usize, parsed: &Parsed, frame: &Frame<'_>) {
        if !mtu::may_answer(parsed, frame.bytes()) || !self.answers.take(now) {
            return;
        }
        let ip_mtu = self.sealing[peer].ip_mtu(parsed);
        let Some(range) = self.output.allocate(mtu::answer_len(parsed)) else { return };
        mtu::answer_too_big(parsed, frame.bytes(), ip_mtu, self.output.arena_mut(&range));
        self.masquerade_answer(&range);
        self.output.send(Destination::Host, Offload::default(), Part::Arena(range));
        self.counters.too_big_answered += 1;
    }

    fn passed(&self, class: Option<FrameClass>) -> Verdict {
        match class {
            Some(class) if self.policy.seals() => Verdict::Clear(class),
            _ => Verdict::Forward,
        }
    }

    fn refresh(&mut self, now: Time) {
        // Peers are many, and neighbours seldom change.
        if std::mem::replace(&mut self.refreshed, self.neighbours.version())
            == self.neighbours.version()
        {
            return;
        }
        for peer in &mut self.sealing {
            peer.refresh(self.policy.own.as_ref(), &self.neighbours, now);
        }
    }

    /// Whether the packet belongs to the gateway's own kernel.
    fn is_own(&self, parsed: &Parsed) -> bool {
        let Some(own) = &self.policy.own else { return false };
        match parsed.network {
            Network::Arp | Network::Ipv4 => own.holds(&parsed.destination),
            Network::Ipv6 => {
                own.holds(&parsed.destination) || own.is_solicited_group(&parsed.destination)
            }
            _ => false,
        }
    }

    /// The policy in force.
    pub fn policy(&self) -> &Policy {
        &self.policy
    }

    /// All counters.
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// What was sealed to the peer of this index and opened from it, by the associations that it
    /// has.
    pub fn peer_counters(&self, peer: usize) -> PeerCounters {
        if let Some(counters) = self.kernel_counters(peer) {
            return counters;
        }
        let sealed = &self.sealing[peer].counters;
        PeerCounters {
            sealed_packets: sealed.sealed_packets,
            sealed_bytes: sealed.sealed_bytes,
            limited_packets: self.sealing[peer].limit.as_ref().map_or(0, |it| it.dropped_packets),
            ..self.opened_by(peer)
        }
    }

    /// The association that seals to the peer of this index, when it has one.
    pub fn sealing_association(&self, peer: usize) -> Option<&SealingSa> {
        self.sealing[peer].association.as_ref()
    }

    /// The associations that seal and that the policy names, to extend their reservations.
    pub fn sealing_associations(&mut self) -> impl Iterator<Item = &mut SealingSa> {
        let configured = &mut self.sealing[..self.keyed.configured_until];
        configured
            .iter_mut()
            .filter(|peer| peer.agreed.is_none())
            .filter_map(|peer| peer.association.as_mut())
    }

    /// The associations that open and that the policy names, in the order of its peers and of their
    /// SPIs, to keep their replay state before a batch is delivered.
    pub fn opening_associations(&mut self) -> impl Iterator<Item = &mut OpeningSa> {
        self.opening[..self.keyed.configured].iter_mut().map(|it| &mut it.association)
    }

    /// What each association did.
    pub fn usage(&self) -> impl Iterator<Item = Usage> {
        let sealing = self.sealing.iter().filter_map(|peer| {
            let association = peer.association.as_ref()?;
            Some(Usage {
                spi: association.spi(),
                packets: peer.counters.sealed_packets,
                bytes: peer.counters.sealed_bytes,
                sequence: association.next_sequence().0.saturating_sub(1),
                direction: UsageDirection::Sealing,
            })
        });
        let opening = self.opening.iter().map(|it| Usage {
            spi: it.association.spi(),
            packets: it.counters.opened_packets,
            bytes: it.counters.opened_bytes,
            sequence: it.association.highest().0,
            direction: UsageDirection::Opening { came_from: it.came_from },
        });
        sealing.chain(opening)
    }

    /// Peers that a packet wanted an association of since the last call, with its source and
    /// destination.
    pub fn take_wanted(&mut self) -> impl Iterator<Item = (usize, [[u8; 16]; 2])> {
        self.sealing.iter_mut().enumerate().filter_map(|(i, it)| Some((i, it.wanted.take()?)))
    }

    /// The output of the last call.
    pub fn output(&self) -> &Output {
        &self.output
    }
}

#[inline]
fn send_whole(output: &mut Output, destination: Destination, index: u32, frame: &Frame<'_>) {
    let range = 0..frame.len() as u32;
    output.send(destination, frame.meta.offload, Part::Frame { frame: index, range });
}
