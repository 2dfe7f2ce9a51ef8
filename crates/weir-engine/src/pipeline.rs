//! The order of the stages, and nothing else.
//!
//! ```text
//!            arrive ------> unprotect ------> plain ------> route ------> protect ------> leave
//!
//!  host ---- learn, NAT -------------------> plain ------> where to? -+-> nobody: gather > wire
//!                                                                     +-> Clear ---------> wire
//!                                                                     +-> Tag -----------> wire
//!                                                                     +-> Esp, WireGuard > wire
//!                                                                     `-> Kernel, Nic > xfrm if.
//!  wire -+-- ESP, WireGuard -> open --------> plain ------> NAT, clamp, gather ----------> host
//!        +-- in clear -------> tag off -----> plain ------> clamp, gather ---------------> host
//!        +-- handshake -> inbox
//!        `-- the gateway's own: learn ---------------------------------------------------> punt
//!  xfrm interface -----------> sources ------> plain ------> clamp -----------------------> host
//! ```
//!
//! A stage is a module that knows no other, and works on the parts that it is given. Only here they
//! are known all. What the shell asks of an [`Engine`] beside its batches is in [`crate::engine`].

use weir_wire::frame::{Frame, Offload, Time};
use weir_wire::parse::parse_frame;

use crate::arrive::{self, Arrival, arp, is_routable};
use crate::classify::frame_class;
use crate::engine::Origin;
use crate::leave::{self, Answering};
use crate::meter::Observed;
use crate::mtu;
use crate::neighbour::QUESTION_BYTES_MAX;
use crate::offload::checksum::complete;
use crate::offload::undone;
use crate::output::{Destination, Output, Part};
use crate::peer::{Heading, Nearby};
use crate::plain::segments;
use crate::policy::FrameClass;
use crate::protect::esp::Inner;
use crate::protect::{self, Leaving, Parts, Protector};
use crate::rdma::LossWay;
use crate::route::route;
use crate::run::Run;
use crate::verdict::{DropReason, Side, Verdict};

pub use crate::arrive::INBOX_MAX;
pub use crate::engine::{Counted, Engine, Onward, PolicyError, Reassembled, Usage, UsageDirection};
pub use crate::peer::{Agreed, Associations, Left, PeerChange, PeerId, SealingChange};
pub use crate::surroundings::{Sighting, Who};

mod again;
mod onward;

/// Questions for neighbours in one call of [`Engine::tick`], at most.
const QUESTIONS_MAX: usize = 256;

/// Beyond so many peers, outer headers follow neighbours' answers by the tick, not by each.
const REFRESHED_AT_ONCE_MAX: usize = 64;

impl Engine {
    /// Decides about a batch from one side. The frames are changed in place; what to send is in the
    /// output until the next call.
    pub fn process(&mut self, now: Time, side: Side, frames: &mut [Frame<'_>]) -> &Output {
        self.output.clear();
        self.now = now;
        match side {
            Side::Host => self.host_batch(frames),
            Side::Wire => self.wire_batch(frames),
        }
        self.bring_back();
        self.plain.meter.end_train();
        &self.output
    }

    fn host_batch(&mut self, frames: &mut [Frame<'_>]) {
        let now = self.now;
        let mut run = Run::default();
        for index in 0..frames.len() {
            let frame = &mut frames[index];
            let bytes = frame.len();
            let settled = undone::settle(frame);
            let is_known = self.nat.as_mut().map_or(Ok(()), |nat| nat.unmasquerade(frame));
            run.walk(frame);
            let settled = settled
                .inspect_err(|it| self.plain.tell_drop(now, *it, frame.bytes(), run.parsed()));
            let verdict =
                settled.and(is_known).and_then(|()| self.host_frame(index as u32, frame, &mut run));
            let verdict = verdict.unwrap_or_else(Verdict::Drop);
            let parsed = run.parsed();
            if matches!(verdict, Verdict::Drop(_)) && parsed.rdma.is_some() {
                self.plain.note_drop(Side::Host, frame, parsed);
            }
            self.answer_rejected(Side::Host, verdict);
            if self.plain.has_aside() {
                self.settle_pieces(verdict, bytes);
            }
            if goes_to_wire(verdict) {
                let Self { policy, gather, output, .. } = self;
                let clear = (run.parsed(), Destination::Wire);
                leave::in_clear(policy, gather, output, (frames, index), clear);
            }
            self.output.verdicts.push(verdict);
            self.counters.host.count(bytes, verdict);
        }
        self.gather.finish(frames, &mut self.output);
    }

    fn wire_batch(&mut self, frames: &mut [Frame<'_>]) {
        let now = self.now;
        let (mut outer, mut inner) = (Run::default(), Run::default());
        for index in 0..frames.len() {
            let frame = &mut frames[index];
            let bytes = frame.len();
            let settled = undone::settle(frame);
            outer.walk(frame);
            let settled = settled
                .inspect_err(|it| self.plain.tell_drop(now, *it, frame.bytes(), outer.parsed()));
            let verdict =
                settled.and_then(|()| self.wire_frame(index as u32, frame, &mut outer, &mut inner));
            let verdict = verdict.unwrap_or_else(Verdict::Drop);
            if let Verdict::Drop(reason) = verdict
                && reason.may_hide_a_packet()
            {
                self.plain.meter.note_own_loss(LossWay::In, Side::Wire, 1, self.now);
            }
            self.answer_rejected(Side::Wire, verdict);
            if self.plain.has_aside() {
                self.settle_pieces(verdict, bytes);
            }
            if goes_to_host(verdict) {
                let clear = if verdict == Verdict::Opened { &inner } else { &outer };
                let Self { policy, gather, output, .. } = self;
                let clear = (clear.parsed(), Destination::Host);
                leave::in_clear(policy, gather, output, (frames, index), clear);
            }
            self.output.verdicts.push(verdict);
            self.counters.wire.count(bytes, verdict);
        }
        self.gather.finish(frames, &mut self.output);
    }

    fn host_frame(
        &mut self,
        index: u32,
        frame: &mut Frame<'_>,
        run: &mut Run,
    ) -> Result<Verdict, DropReason> {
        let seen = run.pass(&mut self.plain, Side::Host, frame)?;
        if self.plain.has_aside() {
            return self.hold(frame, Side::Host, Origin::Host);
        }
        self.onward(index, frame, run, seen)
    }

    /// What becomes of a frame of the host's that was let through. One that [`goes_to_wire`] is not
    /// sent yet.
    #[inline]
    fn onward(
        &mut self,
        index: u32,
        frame: &mut Frame<'_>,
        run: &mut Run,
        seen: Option<Observed>,
    ) -> Result<Verdict, DropReason> {
        let (class, route) = run.way(&self.policy);
        let parsed = run.parsed();
        if !is_routable(parsed) && self.policy.seals() {
            return Err(DropReason::Malformed);
        }
        self.surroundings.learn_host(parsed);
        if self.surroundings.ending_here > 0
            && arp::speaks_of_neighbours(parsed)
            && self.takes_neighbour(frame, run)
        {
            return Ok(Verdict::Consumed);
        }
        let Some((peer, protector)) = route? else {
            self.consider(Side::Host, class, frame, run, seen);
            return Ok(self.passed(class));
        };
        self.peers.limit(peer, Heading::ToPeer, frame)?;
        let fields = match protector.writes_outer_headers() {
            true => run.outer_fields(&self.policy.marking),
            false => Default::default(),
        };
        let packet = Leaving { peer, index, frame: &mut *frame, parsed: run.parsed(), fields };
        match protect::protect(protector, &mut self.parts(), packet) {
            Err(DropReason::TooBig) => self.too_big(peer, protector, frame, run),
            decided => decided,
        }
    }

    /// The verdict about a frame from the wire, the last that `outer` walked over. `inner` walks
    /// over what was in it. What passes goes to the host.
    #[inline]
    fn wire_frame(
        &mut self,
        index: u32,
        frame: &mut Frame<'_>,
        outer: &mut Run,
        inner: &mut Run,
    ) -> Result<Verdict, DropReason> {
        match arrive::from_wire(&self.policy, &self.peers, frame, outer)? {
            Arrival::Sealed(place) => self.open(place, frame, outer, inner),
            Arrival::Plain => self.wire_plain(frame, outer),
            Arrival::ForKernel => protect::kernel::handed_whole(outer.parsed()),
            Arrival::OfNic => Ok(Verdict::Handed),
            Arrival::Keying(port) => {
                self.inbox.take_in(&self.policy, frame, outer.parsed(), port)?;
                self.counters.keying_received += 1;
                Ok(Verdict::Consumed)
            }
            Arrival::Own => self.punt(index, frame, outer),
        }
    }

    #[inline]
    fn open(
        &mut self,
        place: usize,
        frame: &mut Frame<'_>,
        outer: &Run,
        inner: &mut Run,
    ) -> Result<Verdict, DropReason> {
        let Self { now, policy, peers, output, counters, surroundings, .. } = self;
        let mut parts = Parts { now: *now, policy, peers, output, counters };
        let packet = (&mut *frame, outer.parsed());
        let arrived = protect::esp::open(&mut parts, surroundings, place, packet, inner.opened());
        if let Err(DropReason::NeighbourUnknown) = arrived {
            self.ask_for_host(&inner.parsed().destination);
        }
        let arrived = arrived?;
        let peer = arrived.peer;
        match arrived.inner {
            Inner::Nothing(message) => {
                self.peers.heard_dummy(peer, message);
                Ok(Verdict::Consumed)
            }
            Inner::Packet { follows, congestion_combined } => {
                inner.note(follows);
                self.peers.limit(peer, Heading::FromPeer, frame)?;
                self.counters.ce_combined += u64::from(congestion_combined);
                inner.pass(&mut self.plain, Side::Wire, frame)?;
                if self.plain.has_aside()
                    && let Some(peer) = self.peers.id_of(peer)
                {
                    return self.hold(frame, Side::Wire, Origin::Opened(peer));
                }
                if let Some(nat) = &mut self.nat {
                    nat.masquerade(&self.policy, peer, frame, inner.walker.parsed_mut())?;
                }
                self.clamp(peer, frame, inner);
                Ok(Verdict::Opened)
            }
        }
    }

    /// A frame from the wire that nothing opens.
    fn wire_plain(&mut self, frame: &mut Frame<'_>, run: &mut Run) -> Result<Verdict, DropReason> {
        let class = frame_class(run.parsed());
        let Some(peer) = route(&self.policy, class, Side::Wire, run.parsed())? else {
            let seen = run.pass(&mut self.plain, Side::Wire, frame)?;
            if self.plain.has_aside() {
                return self.hold(frame, Side::Wire, Origin::Plain(self.passed(class)));
            }
            self.consider(Side::Wire, class, frame, run, seen);
            return Ok(self.passed(class));
        };
        let parsed = run.parsed();
        let verdict = protect::unprotect_plain(&mut self.parts(), peer, frame, parsed)?;
        if verdict == Verdict::Handed {
            return Ok(verdict);
        }
        self.plain.pass(Side::Wire, frame, parsed, &mut Default::default())?;
        if self.plain.has_aside() {
            return self.hold(frame, Side::Wire, Origin::Plain(verdict));
        }
        if verdict == Verdict::Unsealed {
            let Self { peers, counters, .. } = self;
            protect::clear::taken(peers, counters, peer, frame, parsed);
        }
        Ok(verdict)
    }

    /// A frame for the gateway's own kernel.
    fn punt(
        &mut self,
        index: u32,
        frame: &mut Frame<'_>,
        run: &Run,
    ) -> Result<Verdict, DropReason> {
        let parsed = run.parsed();
        let is_heard = self.peers.heed_too_large(self.now, parsed, frame);
        self.counters.too_large_heard += u64::from(is_heard);
        let has_learnt = self.surroundings.learn_neighbour(self.now, parsed, frame);
        if has_learnt && self.peers.len() <= REFRESHED_AT_ONCE_MAX {
            self.refresh();
        }
        self.plain.pass_own(frame, parsed)?;
        if self.plain.has_aside() {
            return self.hold(frame, Side::Wire, Origin::Own);
        }
        Ok(self.hand_to_own(index, frame))
    }

    fn hand_to_own(&mut self, index: u32, frame: &mut Frame<'_>) -> Verdict {
        arrive::untag(&self.policy, frame);
        self.output.send_whole(Destination::Punt, index, frame);
        Verdict::Punt
    }

    /// Decides about IP packets that the kernel opened, which came by the xfrm interface at
    /// `place`. Like [`Engine::process`].
    pub fn process_opened(&mut self, now: Time, place: u16, frames: &mut [Frame<'_>]) -> &Output {
        self.output.clear();
        self.now = now;
        let mut run = Run::default();
        for (index, frame) in frames.iter_mut().enumerate() {
            let bytes = frame.len();
            let verdict = self.opened_frame(place, frame, &mut run);
            let verdict = verdict.unwrap_or_else(Verdict::Drop);
            if verdict == Verdict::Opened {
                self.output.send_whole(Destination::Host, index as u32, frame);
            }
            if self.plain.has_aside() {
                self.settle_pieces(verdict, bytes);
            }
            self.output.verdicts.push(verdict);
            self.counters.kernel.count(bytes, verdict);
        }
        self.plain.meter.end_train();
        &self.output
    }

    fn opened_frame(
        &mut self,
        place: u16,
        frame: &mut Frame<'_>,
        run: &mut Run,
    ) -> Result<Verdict, DropReason> {
        let Self { now, policy, peers, output, counters, surroundings, .. } = self;
        let parts = Parts { now: *now, policy, peers, output, counters };
        let hosts = &surroundings.hosts;
        let arrived = protect::kernel::unprotect(&parts, hosts, place, frame, run.opened());
        match arrived {
            Err(DropReason::SelectorMismatch) => self.peers.kernel.refused(place),
            Err(DropReason::PeerReach) => self.peers.kernel.denied(place),
            Err(DropReason::NeighbourUnknown) => self.ask_for_host(&run.parsed().destination),
            _ => {}
        }
        let (peer, inner) = arrived?;
        match inner {
            Inner::Nothing(message) => {
                self.peers.heard_dummy(peer, message);
                Ok(Verdict::Consumed)
            }
            Inner::Packet { follows, .. } => {
                run.note(follows);
                self.peers.limit(peer, Heading::FromPeer, frame)?;
                run.pass(&mut self.plain, Side::Wire, frame)?;
                if self.plain.has_aside()
                    && let Some(peer) = self.peers.id_of(peer)
                {
                    return self.hold(frame, Side::Wire, Origin::Kernel(peer, place));
                }
                self.opened_by_kernel(peer, place, frame, run)
            }
        }
    }

    fn opened_by_kernel(
        &mut self,
        peer: usize,
        place: u16,
        frame: &mut Frame<'_>,
        run: &mut Run,
    ) -> Result<Verdict, DropReason> {
        if let Some(nat) = &mut self.nat {
            nat.masquerade(&self.policy, peer, frame, run.walker.parsed_mut())?;
        }
        self.clamp(peer, frame, run);
        let packets = segments(frame, run.parsed());
        protect::kernel::taken(&mut self.peers, place, frame, packets);
        Ok(Verdict::Opened)
    }

    /// Frames that the gateway's own kernel sends: only from the own addresses, and only what must
    /// be clear.
    pub fn process_own(&mut self, frames: &mut [Frame<'_>]) -> &Output {
        self.output.clear();
        for (index, frame) in frames.iter_mut().enumerate() {
            let parsed = parse_frame(frame);
            if !arrive::may_leave(&self.policy, &parsed) || !arrive::tag(&self.policy, frame) {
                self.counters.own_refused += 1;
                continue;
            }
            self.counters.own_sent += 1;
            self.output.send_whole(Destination::Wire, index as u32, frame);
        }
        &self.output
    }

    /// Packets of the gateway's own that are due: questions for neighbours. Call every 100 ms.
    pub fn tick(&mut self, now: Time) -> &Output {
        self.output.clear();
        self.now = now;
        let mut question = [0; QUESTION_BYTES_MAX];
        for _ in 0..QUESTIONS_MAX {
            let asked = self.surroundings.neighbours.question(now, &mut question);
            let Some(len) = asked else { break };
            let Some(range) = self.output.allocate(len) else { break };
            self.output.arena_mut(&range).copy_from_slice(&question[..len]);
            self.output.send(Destination::Wire, Offload::default(), Part::Arena(range));
            self.counters.own_sent += 1;
        }
        self.refresh();
        self.expire_pieces();
        if let Some(nat) = &mut self.nat {
            nat.expire(now);
        }
        &self.output
    }

    /// A packet of the host's that does not fit once it is sealed: in pieces where it may be cut,
    /// or its sender is told.
    #[cold]
    fn too_big(
        &mut self,
        peer: usize,
        protector: Protector,
        frame: &mut Frame<'_>,
        run: &Run,
    ) -> Result<Verdict, DropReason> {
        let Some(entry) = self.peers.get(peer) else { return Err(DropReason::NoPolicy) };
        let parsed = run.parsed();
        if protector.writes_outer_headers()
            && frame.meta.offload.segmentation.is_none()
            && let Some(pieces) = mtu::cut(parsed, frame.bytes(), entry.ip_mtu(parsed))
            && complete(frame)
        {
            return self.send_pieces(&pieces);
        }
        let Self { now, nat, output, counters, answers: limit, .. } = self;
        let nat = nat.as_deref_mut();
        Answering { now: *now, limit, nat, output, counters }.too_big(entry, frame, parsed);
        Err(DropReason::TooBig)
    }

    #[cold]
    fn takes_neighbour(&mut self, frame: &Frame<'_>, run: &Run) -> bool {
        let masquerade = self.nat.as_ref().map(|it| it.address());
        let packet = (frame, run.parsed());
        let taken = arp::take(&self.policy, masquerade, &mut self.output, packet);
        self.counters.own_sent += u64::from(taken == Some(arp::Taken::Answered));
        taken.is_some()
    }

    #[cold]
    fn ask_for_host(&mut self, address: &[u8; 16]) {
        if self.policy.own.is_some() && self.answers.take(self.now) {
            let asked = arp::ask(&self.policy, &mut self.output, address);
            self.counters.own_sent += u64::from(asked);
        }
    }

    #[inline]
    fn clamp(&mut self, peer: usize, frame: &mut Frame<'_>, run: &Run) {
        if let Some(entry) = self.peers.get(peer) {
            protect::clamp(entry, &mut self.counters, frame, run.parsed());
        }
    }

    #[inline]
    fn consider(
        &mut self,
        side: Side,
        class: Option<FrameClass>,
        frame: &Frame<'_>,
        run: &Run,
        seen: Option<Observed>,
    ) {
        let Self { fast_path: Some(fast_path), policy, plain, .. } = self else { return };
        if class.is_none() && plain.is_settled(run.parsed()) {
            fast_path.look_at(policy, &plain.meter, side, (frame, run.parsed()), || {
                seen.unwrap_or_else(|| run.observed())
            });
        }
    }

    fn passed(&self, class: Option<FrameClass>) -> Verdict {
        match class {
            Some(class) if self.policy.seals() => Verdict::Clear(class),
            _ => Verdict::Forward,
        }
    }

    /// Writes outer headers anew where neighbours have moved: peers are many, and neighbours seldom
    /// do.
    pub(crate) fn refresh(&mut self) {
        if self.surroundings.take_change() {
            let Self { peers, policy, surroundings, now, .. } = self;
            let neighbours = &mut surroundings.neighbours;
            peers.refresh(&Nearby { policy, neighbours, now: *now });
        }
    }

    /// What protectors work with.
    #[inline]
    pub(crate) fn parts(&mut self) -> Parts<'_> {
        let Self { now, policy, peers, output, counters, .. } = self;
        Parts { now: *now, policy, peers, output, counters }
    }
}

/// Whether a frame from the host goes to the wire as it is, for no peer.
#[inline]
fn goes_to_wire(verdict: Verdict) -> bool {
    matches!(verdict, Verdict::Forward | Verdict::Clear(_))
}

/// Whether a frame from the wire goes on to the host.
#[inline]
fn goes_to_host(verdict: Verdict) -> bool {
    use Verdict::{Clear, Forward, Opened, Tagged, Unsealed};
    matches!(verdict, Forward | Clear(_) | Unsealed | Opened | Tagged)
}
