//! Associations that come and go while packets flow: what [`crate::tunnel`] agrees on is put in
//! place here, and what it must know is noted here.
//!
//! A peer whose keys are agreed costs a packet one flag that says whether it was noted already;
//! peers that nothing happens to cost nothing. What is noted waits for [`Peers::take_activity`].
//!
//! A peer that moves is followed by its newest authentic packet: its address, and its UDP port
//! where a translator may change that.

use std::net::IpAddr;

use weir_wire::frame::Frame;
use weir_wire::parse::{MacAddress, Network, Parsed};

use super::life::Life;
use super::{Nearby, OpeningPeer, PeerEntry, Peers};
use crate::counters::PeerCounters;
use crate::esp::icrc_tag::TagKey;
use crate::esp::open::OpeningSa;
use crate::esp::seal::{SealingSa, SealingState};
use crate::policy::{self, Policy, address, mapped};
use crate::tunnel::handshake::Role;
use crate::tunnel::key::PublicKey;
use crate::tunnel::path::{LinkHeader, Path, Remote};
use crate::tunnel::state::PeerActivity;

/// New associations with a peer.
#[derive(Debug)]
pub struct Agreed {
    /// Who.
    pub peer: PublicKey,
    /// The initiator seals at once, the responder when the initiator's first packet is opened.
    pub role: Role,
    /// Where it is.
    pub path: Path,
    /// To it.
    pub sealing: SealingSa,
    /// From it.
    pub opening: OpeningSa,
    /// The keys of tags, to and from it, where its packets carry them.
    pub tags: Option<[TagKey; 2]>,
}

/// What protects packets to a peer from the moment on that its [`Life`] says.
#[derive(Debug)]
pub(crate) struct Next {
    sealing: SealingSa,
    /// The key of tags, beside the association that seals.
    tag: Option<TagKey>,
}

/// What belongs to a peer whose keys are agreed.
#[derive(Debug)]
pub(crate) struct AgreedPeer {
    identity: PublicKey,
    /// Whether its id waits in the table's list.
    is_noted: bool,
    pub(super) note: PeerActivity,
    /// Sealed by its associations before the one in use.
    bytes_before: u64,
    /// Opened by associations that are gone.
    pub(super) opened_before: PeerCounters,
    pub(crate) life: Life<(), Next>,
    /// Where authentic packets come from.
    heard_from: [u8; 16],
    /// By which datagrams travel; for a borrowed address, keepalives too.
    path: Option<Path>,
}

impl AgreedPeer {
    pub(super) fn new(identity: PublicKey, endpoint: Option<IpAddr>) -> Self {
        Self {
            identity,
            is_noted: false,
            note: PeerActivity::default(),
            bytes_before: 0,
            opened_before: PeerCounters::default(),
            life: Life::default(),
            heard_from: endpoint.map(mapped).unwrap_or_default(),
            path: None,
        }
    }

    /// By which its last handshake came.
    pub(crate) fn path(&self) -> Option<&Path> {
        self.path.as_ref()
    }
}

impl Peers {
    /// Puts new associations in place; false when there is no such peer any more, or another
    /// association has the SPI: then the next activity says that the peer's are lost.
    pub(crate) fn install(&mut self, agreed: Agreed, nearby: &mut Nearby<'_>) -> bool {
        let Some(index) = self.index_of(&agreed.peer) else { return false };
        let Agreed { role, path, mut sealing, opening, tags, .. } = agreed;
        if self.openings.find(opening.spi().value()).is_some() {
            self.lose(index);
            return false;
        }
        // The key is fresh and dies with this process: there is nothing to keep on disk.
        let everything = SealingState { reserved_until: u64::MAX, ..sealing.state() };
        sealing.extend_reservation(&everything);
        let Some(entry) = self.get_mut(index) else { return false };
        let Some(life) = entry.agreed.as_ref().map(|it| &it.life) else { return false };
        let leaves = life.leaves_next();
        let own = nearby.policy.own.is_some();
        let unplaced = own && entry.endpoint().is_none();
        if let Some(oldest) = leaves {
            self.forget(index, oldest);
        }
        if own && (role == Role::Initiator || unplaced) {
            let hop = path.link.first_chunk().map(|mac| MacAddress(*mac));
            self.move_to(index, path.remote.address, hop, nearby);
            self.set_client_port(index, path.remote.port, nearby);
        }
        let Some(entry) = self.get_mut(index) else { return false };
        let Some(peer) = entry.agreed.as_mut() else { return false };
        let open_spi = opening.spi().value();
        peer.path = Some(path.lasting());
        let (tag, accepted) = tags.map(|[seal, open]| (seal, open)).unzip();
        let in_use = peer.life.install(role, open_spi, (), Next { sealing, tag });
        if let (Some(tagged), Some(key)) = (&mut entry.tag, accepted) {
            // A refusal by the cipher library leaves the peer without keys: then nothing passes.
            let _ = tagged.tag.accept(open_spi, &key);
        }
        if let Some(next) = in_use {
            entry.put_in_use(next);
        }
        self.openings.insert(OpeningPeer { peer: index, ..OpeningPeer::agreed(opening) });
        true
    }

    /// Protects with what waits for the first packet by `open_spi`, which came to another worker.
    /// Does nothing when that waits no longer.
    pub(crate) fn confirm_with(&mut self, peer: &PublicKey, open_spi: u32) {
        if let Some(index) = self.index_of(peer) {
            self.confirm(index, open_spi);
        }
    }

    /// The first packet by `open_spi` came: the initiator has the new keys, so they protect what we
    /// send too. Does nothing when nothing waits for it.
    #[cold]
    pub(crate) fn confirm(&mut self, index: usize, open_spi: u32) {
        let Some(entry) = self.get_mut(index) else { return };
        let Some(agreed) = &mut entry.agreed else { return };
        let Some(next) = agreed.life.confirm(open_spi) else { return };
        agreed.note.confirmed = Some(open_spi);
        agreed.note.heard = true;
        entry.put_in_use(next);
        self.note(index);
    }

    /// An association opens no longer.
    pub(crate) fn forget(&mut self, index: usize, open_spi: u32) {
        let is_its_own = |it: &OpeningPeer| it.peer == index && it.is_agreed;
        if !self.openings.of_spi(open_spi).is_some_and(is_its_own) {
            return;
        }
        let gone = self.openings.remove(open_spi);
        let Some(entry) = self.get_mut(index) else { return };
        if let Some(tagged) = &mut entry.tag {
            tagged.tag.forget(open_spi);
        }
        if let Some(agreed) = &mut entry.agreed {
            agreed.life.forget(open_spi);
            if let Some(gone) = gone {
                add(&mut agreed.opened_before, &gone.counters);
            }
        }
    }

    /// Seals nothing more to the peer until there are new keys.
    pub(crate) fn close(&mut self, index: usize) {
        let Some(entry) = self.get_mut(index) else { return };
        entry.association = None;
        if let Some(tagged) = &mut entry.tag {
            tagged.tag.close();
        }
        let gone = entry.agreed.as_mut().map(|it| it.life.close()).unwrap_or_default();
        for spi in gone {
            self.forget(index, spi);
        }
    }

    /// What opens packets of `spi` is to be another's, whose key the policy names: a peer that has
    /// agreed on that SPI agrees anew.
    pub(super) fn make_way(&mut self, spi: u32) {
        let holder = self.openings.of_spi(spi).filter(|it| it.is_agreed).map(|it| it.peer);
        if let Some(index) = holder {
            self.lose(index);
        }
    }

    /// Closes a peer whose associations cannot be, and has its next activity say so.
    #[cold]
    pub(super) fn lose(&mut self, index: usize) {
        self.close(index);
        if let Some(agreed) = self.get_mut(index).and_then(|it| it.agreed.as_mut()) {
            agreed.note.lost = true;
        }
        self.note(index);
    }

    /// Tells what happened to peers since the last call; of those that nothing happened to,
    /// nothing. Stops when `take` says false, and goes on there the next time.
    pub(crate) fn take_activity(&mut self, take: &mut dyn FnMut(PublicKey, PeerActivity) -> bool) {
        while let Some(id) = self.noted.pop() {
            let Some(index) = self.index(id) else { continue };
            let Some(entry) = self.get_mut(index) else { continue };
            let sealed = entry.association.as_ref().map(|association| {
                let packets = association.next_sequence().0.saturating_sub(1);
                let before = entry.agreed.as_ref().map_or(0, |it| it.bytes_before);
                (association.spi().value(), packets, entry.counters.sealed_bytes - before)
            });
            let Some(agreed) = &mut entry.agreed else { continue };
            agreed.is_noted = false;
            let note = std::mem::take(&mut agreed.note);
            let activity = PeerActivity { sealed: sealed.or(note.sealed), ..note };
            if !take(agreed.identity, activity) {
                return;
            }
        }
    }

    /// Notes that a packet wanted an association that is not there, and where its peer may be.
    #[cold]
    pub(crate) fn want(
        &mut self,
        index: usize,
        policy: &Policy,
        frame: &Frame<'_>,
        parsed: &Parsed,
    ) {
        let Some(agreed) = self.get_mut(index).and_then(|it| it.agreed.as_mut()) else { return };
        if agreed.is_noted && agreed.note.wanted.is_some() {
            return;
        }
        let path = (|| {
            let port = policy.keying_port.filter(|_| policy.own.is_none())?;
            let link = link_of(frame, parsed)?;
            let borrowed = Some(address(&parsed.source));
            let remote = Remote { address: address(&parsed.destination), port };
            let of_ip = matches!(parsed.network, Network::Ipv4 | Network::Ipv6);
            of_ip.then_some(Path { remote, borrowed, link })
        })();
        agreed.note.wanted = Some(path);
        self.note(index);
    }

    /// Notes what an authentic packet tells of its peer, which it came from at `outer`'s source and
    /// at the UDP port `port`, if it came in UDP. `is_newest`: no later one came before. Returns
    /// whether the peer has moved.
    #[inline]
    pub(crate) fn heard(
        &mut self,
        opening: usize,
        (outer, port): (&Parsed, Option<u16>),
        is_newest: bool,
        nearby: &mut Nearby<'_>,
    ) -> bool {
        let Some(opening) = self.openings.at(opening) else { return false };
        let (index, spi) = (opening.peer, opening.association.spi().value());
        let Some(entry) = self.get_mut(index) else { return false };
        let Some(agreed) = &mut entry.agreed else { return false };
        let awaits = agreed.life.awaits(spi);
        let is_news = !agreed.note.heard || !agreed.is_noted;
        agreed.note.heard = true;
        let moved = agreed.heard_from != outer.source || entry.is_at_another(port);
        let follows = moved && is_newest && entry.endpoint().is_some();
        if awaits {
            self.confirm(index, spi);
        } else if is_news {
            self.note(index);
        }
        if follows {
            self.follow(index, (outer.source, outer.link.source), port, nearby);
        }
        follows
    }

    /// Notes that a packet was sealed, once between two calls of [`Peers::take_activity`].
    #[inline]
    pub(crate) fn sealed(&mut self, index: usize) {
        let agreed = self.get(index).and_then(|it| it.agreed.as_ref());
        if agreed.is_some_and(|it| !it.is_noted) {
            self.note(index);
        }
    }

    /// Whatever happens next to this peer is told by its next activity.
    pub(crate) fn note(&mut self, index: usize) {
        let Some(id) = self.id_of(index) else { return };
        let Some(agreed) = self.get_mut(index).and_then(|it| it.agreed.as_mut()) else { return };
        if !std::mem::replace(&mut agreed.is_noted, true) {
            self.noted.push(id);
        }
    }

    /// Adds what the kernel's associations of the peer at `place` did to its next activity.
    pub(crate) fn note_kernel_use(&mut self, place: u16, used: &PeerActivity) {
        let Some(index) = self.kernel.at(place).map(|it| it.index) else { return };
        let Some(agreed) = self.get_mut(index).and_then(|it| it.agreed.as_mut()) else { return };
        let note = &mut agreed.note;
        note.sealed = used.sealed.or(note.sealed);
        note.confirmed = used.confirmed.or(note.confirmed);
        note.heard |= used.heard;
        note.lost |= used.lost;
        self.note(index);
    }

    /// Seals to where the peer is now, as another worker heard.
    pub(crate) fn move_peer(&mut self, index: usize, path: &Path, nearby: &mut Nearby<'_>) {
        let remote = path.remote;
        let endpoint = self.get(index).and_then(|it| it.endpoint());
        if nearby.policy.own.is_some() && endpoint != Some(remote.address) {
            self.move_to(index, remote.address, None, nearby);
        }
        self.set_client_port(index, remote.port, nearby);
    }

    /// What the peer's associations opened, those that are gone included.
    pub(super) fn opened_by(&self, entry: &PeerEntry, peer: &policy::Peer) -> PeerCounters {
        let mut sum = entry.agreed.as_ref().map(|it| it.opened_before).unwrap_or_default();
        let agreed = entry.agreed.iter().flat_map(|it| it.life.spis());
        for spi in peer.open_spis.iter().copied().chain(agreed) {
            if let Some(opening) = self.openings.of_spi(spi) {
                add(&mut sum, &opening.counters);
            }
        }
        sum
    }

    /// Has the peer's next activity tell what its data path does, whatever was told before.
    pub(super) fn note_again(&mut self, index: usize) {
        if let Some(agreed) = self.get_mut(index).and_then(|it| it.agreed.as_mut()) {
            agreed.is_noted = false;
        }
        self.note(index);
    }

    /// The peer is somewhere else.
    #[cold]
    fn follow(
        &mut self,
        index: usize,
        (source, hop): ([u8; 16], MacAddress),
        port: Option<u16>,
        nearby: &mut Nearby<'_>,
    ) {
        let endpoint = address(&source);
        let is_elsewhere = self.get(index).is_some_and(|it| it.endpoint() != Some(endpoint));
        self.move_to(index, endpoint, Some(hop), nearby);
        let Some(entry) = self.get_mut(index) else { return };
        let is_client = entry.is_client();
        if let Some(port) = port {
            entry.set_port(port, nearby.policy.keying_port);
        }
        entry.refresh(nearby.policy.own.as_ref(), nearby.neighbours, nearby.now);
        // A client's handshakes come from the port of its data; those of others from one of their
        // own, of which this packet tells nothing.
        let keying = nearby.policy.keying_port.unwrap_or_default();
        let keying = if is_client { port.unwrap_or(keying) } else { keying };
        if let Some(agreed) = entry.agreed.as_mut().filter(|_| is_client || is_elsewhere) {
            agreed.note.moved_to = Some(Path::to(endpoint, keying));
        }
        self.note(index);
    }

    /// Seals to this UDP port of a client that speaks WireGuard; others have one of their own.
    fn set_client_port(&mut self, index: usize, port: u16, nearby: &mut Nearby<'_>) {
        let Some(entry) = self.get_mut(index).filter(|it| it.is_client()) else { return };
        entry.set_port(port, nearby.policy.keying_port);
        entry.refresh(nearby.policy.own.as_ref(), nearby.neighbours, nearby.now);
    }

    /// `hop`: whence an authentic packet came. It serves until the neighbour has answered.
    pub(super) fn move_to(
        &mut self,
        index: usize,
        endpoint: IpAddr,
        hop: Option<MacAddress>,
        nearby: &mut Nearby<'_>,
    ) {
        let Some(entry) = self.slots.get_mut(index).and_then(|it| it.entry.as_mut()) else {
            return;
        };
        if let Some(agreed) = &mut entry.agreed {
            agreed.heard_from = mapped(endpoint);
        }
        nearby.neighbours.follow(endpoint, hop, nearby.now);
        if let Some(before) = entry.endpoint() {
            self.by_endpoint.remove(&(before, index as u32));
        }
        self.by_endpoint.insert((endpoint, index as u32));
        entry.set_endpoint(endpoint);
        entry.refresh(nearby.policy.own.as_ref(), nearby.neighbours, nearby.now);
    }
}

impl PeerEntry {
    fn put_in_use(&mut self, next: Next) {
        let Next { sealing, tag } = next;
        if let (Some(tagged), Some(key)) = (&mut self.tag, &tag) {
            let _ = tagged.tag.tag_with(sealing.spi().value(), key);
        }
        self.seal_with(sealing);
        if let Some(agreed) = &mut self.agreed {
            agreed.bytes_before = self.counters.sealed_bytes;
        }
    }
}

/// The Ethernet header of a frame, tags included.
pub(crate) fn link_of(frame: &Frame<'_>, parsed: &Parsed) -> Option<LinkHeader> {
    let link = frame.bytes().get(..usize::from(parsed.network_offset))?;
    (link.len() >= 14).then(|| LinkHeader::try_from(link).ok())?
}

pub(super) fn add(sum: &mut PeerCounters, more: &PeerCounters) {
    sum.opened_packets += more.opened_packets;
    sum.opened_bytes += more.opened_bytes;
    sum.refused_packets += more.refused_packets;
    sum.denied_packets += more.denied_packets;
    sum.last_opened = sum.last_opened.max(more.last_opened);
}
