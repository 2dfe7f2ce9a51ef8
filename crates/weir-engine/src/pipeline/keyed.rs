//! Associations that come and go while packets flow: what [`crate::tunnel`] agrees on is put in
//! place here, and what it must know is noted here.
//!
//! A peer whose keys are agreed costs a packet one flag that says whether it was noted already;
//! peers that nothing happens to cost nothing. What is noted waits for [`Engine::take_reports`].

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::net::IpAddr;

use arrayvec::ArrayVec;
use weir_wire::frame::{Frame, Offload, Time};
use weir_wire::parse::{MacAddress, Network, Parsed, Transport};

use super::Engine;
use crate::counters::PeerCounters;
use crate::egress::{SealingPeer, address};
use crate::esp::icrc_tag::TagKey;
use crate::esp::open::OpeningSa;
use crate::esp::outer::{
    OuterFields, OuterHeader, OuterLink, UdpChecksum, UdpEncapsulation, UdpSource,
};
use crate::esp::seal::{SealingSa, SealingState};
use crate::ingress::OpeningPeer;
use crate::output::{Destination, Part};
use crate::policy::{Mode, mapped};
use crate::tunnel::handshake::Role;
use crate::tunnel::key::PublicKey;
use crate::tunnel::path::{LinkHeader, Path, Remote};
use crate::tunnel::state::Report;
use crate::tunnel::{MESSAGE_LEN_MAX, MESSAGE_LEN_MIN};
use crate::verdict::{DropReason, Verdict};

/// Handshake datagrams that wait to be taken, at most; more of them are dropped as `keying_busy`.
pub const INBOX_MAX: usize = 256;

/// Associations of one peer that open, at most: as `tunnel::rekey` has them, and one on its way
/// out.
const OPENING_MAX: usize = 5;

/// Hop limit of datagrams of our own.
const HOP_LIMIT: u8 = 64;

/// Finds associations by SPI. SPIs are ours to choose, so nobody else can make them collide.
pub(super) type BySpi = HashMap<u32, u32, BuildHasherDefault<SpiHasher>>;

/// Spreads numbers that may lie next to each other.
#[derive(Debug, Default)]
pub(super) struct SpiHasher(u64);

impl Hasher for SpiHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_u32(u32::from(*byte));
        }
    }

    #[inline]
    fn write_u32(&mut self, number: u32) {
        let mixed = (self.0 ^ u64::from(number)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        self.0 = mixed ^ mixed >> 32;
    }
}

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

/// What belongs to a peer whose keys are agreed.
#[derive(Debug)]
pub(crate) struct AgreedPeer {
    identity: PublicKey,
    /// Whether its index waits in [`Keyed::noted`].
    is_noted: bool,
    pub(super) note: Report,
    /// Sealed by its associations before the one in use.
    bytes_before: u64,
    /// Opened by associations that are gone.
    opened_before: PeerCounters,
    /// SPI that opens, and what seals as soon as a packet came by it.
    pending: Option<(u32, SealingSa)>,
    /// SPIs that open, oldest first.
    open_spis: ArrayVec<u32, OPENING_MAX>,
    /// Where authentic packets come from.
    heard_from: [u8; 16],
    /// UDP port that they come from, of a client that speaks WireGuard; else 0.
    heard_port: u16,
    /// By which datagrams travel; for a borrowed address, keepalives too.
    path: Option<Path>,
}

impl AgreedPeer {
    pub(crate) fn new(identity: PublicKey, endpoint: Option<IpAddr>) -> Self {
        Self {
            identity,
            is_noted: false,
            note: Report::default(),
            bytes_before: 0,
            opened_before: PeerCounters::default(),
            pending: None,
            open_spis: ArrayVec::new(),
            heard_from: endpoint.map(mapped).unwrap_or_default(),
            heard_port: 0,
            path: None,
        }
    }

    /// By which its last handshake came.
    pub(super) fn path(&self) -> Option<&Path> {
        self.path.as_ref()
    }
}

/// What an engine knows beside its peers.
#[derive(Debug, Default)]
pub(super) struct Keyed {
    by_identity: HashMap<PublicKey, u32>,
    noted: Vec<u32>,
    inbox: Vec<(Path, Vec<u8>)>,
    /// When ICMP was last looked at.
    pub(super) heeded: Time,
    /// Associations in front of `Engine::opening` that the policy names.
    pub(super) configured: usize,
    /// Behind the last peer whose keys are configured.
    pub(super) configured_until: usize,
}

/// What survives a change of policy: a peer's sealing side, and what opens.
pub(super) type Survivors = HashMap<PublicKey, (SealingPeer, Vec<OpeningPeer>)>;

impl Engine {
    /// Puts new associations in place; false when the policy has no such peer any more.
    pub fn install(&mut self, agreed: Agreed) -> bool {
        let Some(index) = self.index_of(&agreed.peer) else { return false };
        let Agreed { role, path, mut sealing, opening, tags, .. } = agreed;
        // The key is fresh and dies with this process: there is nothing to keep on disk.
        let everything = SealingState { reserved_until: u64::MAX, ..sealing.state() };
        sealing.extend_reservation(&everything);
        let own = self.policy.own.is_some();
        let Some(peer) = self.sealing[index].agreed.as_mut() else { return false };
        let spi = opening.spi().value();
        let full = peer.open_spis.is_full().then(|| peer.open_spis[0]);
        let spis = [sealing.spi().value(), spi];
        let unplaced = own && self.sealing[index].endpoint().is_none();
        if let Some(oldest) = full {
            self.remove_opening(index, oldest);
        }
        if own && (role == Role::Initiator || unplaced) {
            let hop = path.link.first_chunk().map(|mac| MacAddress(*mac));
            self.move_to(index, path.remote.address, hop);
            self.set_client_port(index, path.remote.port);
        }
        let peer = self.sealing[index].agreed.as_mut().expect("looked at above");
        peer.open_spis.push(spi);
        peer.path = Some(path.lasting());
        match role {
            Role::Responder => peer.pending = Some((spi, sealing)),
            Role::Initiator => self.put_in_use(index, sealing),
        }
        self.opening_by_spi.insert(spi, self.opening.len() as u32);
        if let (Some(tagged), Some(keys)) = (&mut self.sealing[index].tag, tags) {
            tagged.install(role, spis, keys);
        }
        let pending = role == Role::Responder;
        self.opening.push(OpeningPeer { peer: index, pending, ..OpeningPeer::agreed(opening) });
        true
    }

    /// Seals with the associations that wait for their first packet, as if it had come: another
    /// worker's of the same handshake has. Does nothing when they wait no longer.
    pub fn confirm_with(&mut self, peer: &PublicKey, open_spi: u32) {
        let opening = self.opening_by_spi.get(&open_spi).map(|it| *it as usize);
        let waits = |it: &usize| {
            let opening = &self.opening[*it];
            opening.pending && Some(opening.peer) == self.index_of(peer)
        };
        if let Some(opening) = opening.filter(waits) {
            self.confirm(opening);
        }
    }

    /// Seals to where `peer` is now, as another worker heard.
    pub fn move_peer(&mut self, peer: &PublicKey, path: &Path) {
        let Some(index) = self.index_of(peer) else { return };
        let address = path.remote.address;
        if self.policy.own.is_some() && self.sealing[index].endpoint() != Some(address) {
            self.move_to(index, address, None);
        }
        self.set_client_port(index, path.remote.port);
    }

    /// Removes an association that opens.
    pub fn forget(&mut self, peer: &PublicKey, open_spi: u32) {
        let Some(index) = self.index_of(peer) else { return };
        self.remove_opening(index, open_spi);
    }

    /// Seals nothing more to `peer` until there are new keys.
    pub fn close(&mut self, peer: &PublicKey) {
        let Some(index) = self.index_of(peer) else { return };
        self.sealing[index].association = None;
        if let Some(tagged) = &mut self.sealing[index].tag {
            tagged.close();
        }
        if let Some(agreed) = &mut self.sealing[index].agreed {
            agreed.pending = None;
            for spi in std::mem::take(&mut agreed.open_spis) {
                self.remove_opening(index, spi);
            }
        }
    }

    /// Puts a handshake datagram into `output()`; false while nobody has answered for the next
    /// hop's address: then try again.
    pub fn send_datagram(&mut self, path: &Path, datagram: &[u8]) -> bool {
        let Some(port) = self.policy.keying_port else { return true };
        let udp = UdpEncapsulation {
            source: UdpSource::Fixed(port),
            destination_port: path.remote.port,
            checksum: UdpChecksum::Full,
        };
        let remote = path.remote.address;
        let own = self.policy.own.as_ref().and_then(|own| own.source_for(remote));
        let Some(source) = path.borrowed.or(own) else { return true };
        let mut outer = None;
        if path.link.is_empty() {
            outer = self.own_link(remote);
            if outer.is_none() {
                return false;
            }
        }
        let made = OuterHeader::new(outer, source, remote, HOP_LIMIT, Some(udp));
        let (Ok(header), link) = (made, &path.link) else { return true };
        let Self { output, counters, .. } = self;
        let Some(range) = output.allocate(link.len() + header.len() + datagram.len()) else {
            return false;
        };
        let (front, packet) = output.arena_mut(&range).split_at_mut(link.len());
        front.copy_from_slice(link);
        packet[header.len()..].copy_from_slice(datagram);
        if header.write(packet, OuterFields::default()).is_ok() {
            counters.keying_sent += 1;
            output.send(Destination::Wire, Offload::default(), Part::Arena(range));
        }
        true
    }

    /// Empties the output, before datagrams and keepalives are put into it.
    pub fn begin(&mut self) {
        self.output.clear();
    }

    /// Hands over the datagrams that came to the keying port.
    pub fn take_datagrams(&mut self) -> impl Iterator<Item = (Path, Vec<u8>)> {
        self.keyed.inbox.drain(..)
    }

    /// Whether datagrams wait.
    pub fn has_datagrams(&self) -> bool {
        !self.keyed.inbox.is_empty()
    }

    /// Tells what happened to peers since the last call; of those that nothing happened to,
    /// nothing. Stops when `take` says false, and goes on there the next time.
    pub fn take_reports(&mut self, take: &mut dyn FnMut(PublicKey, Report) -> bool) {
        while let Some(index) = self.keyed.noted.pop() {
            let peer = &mut self.sealing[index as usize];
            let sealed = peer.association.as_ref().map(|association| {
                let packets = association.next_sequence().0.saturating_sub(1);
                let before = peer.agreed.as_ref().map_or(0, |it| it.bytes_before);
                (association.spi().value(), packets, peer.counters.sealed_bytes - before)
            });
            let Some(agreed) = &mut peer.agreed else { continue };
            agreed.is_noted = false;
            let note = std::mem::take(&mut agreed.note);
            let report = Report { sealed: sealed.or(note.sealed), ..note };
            if !take(agreed.identity, report) {
                return;
            }
        }
    }

    /// Takes a handshake datagram out of the wire's frames.
    #[cold]
    pub(super) fn take_in(
        &mut self,
        frame: &Frame<'_>,
        parsed: &Parsed,
        port: u16,
    ) -> Result<Verdict, DropReason> {
        let payload = usize::from(parsed.payload_offset)..parsed.end as usize;
        let datagram = frame.bytes().get(payload).ok_or(DropReason::Malformed)?;
        if !(MESSAGE_LEN_MIN..=MESSAGE_LEN_MAX).contains(&datagram.len()) {
            return Err(DropReason::Malformed);
        }
        if self.keyed.inbox.len() >= INBOX_MAX {
            return Err(DropReason::KeyingBusy);
        }
        let remote = Remote { address: address(&parsed.source), port };
        let mut link = link_of(frame, parsed).ok_or(DropReason::Malformed)?;
        let (to, from) = link[..12].split_at_mut(6);
        to.swap_with_slice(from);
        let borrowed = self.policy.own.is_none().then(|| address(&parsed.destination));
        self.counters.keying_received += 1;
        self.keyed.inbox.push((Path { remote, borrowed, link }, datagram.to_vec()));
        Ok(Verdict::Consumed)
    }

    /// The source port of a frame from the wire that is a handshake's: it is for us, or for what
    /// stands behind a gateway that borrows addresses, from what stands behind a peer.
    #[inline]
    pub(super) fn keying_source(&self, parsed: &Parsed) -> Option<u16> {
        let Transport::Udp { source, destination } = parsed.transport else { return None };
        if self.policy.keying_port != Some(destination) {
            return None;
        }
        let behind = |address| {
            let peer = self.policy.peer_for(address)?;
            self.policy.peers[peer].agreed.filter(|_| self.policy.peers[peer].endpoint.is_none())
        };
        let ours = match &self.policy.own {
            Some(own) => own.holds(&parsed.destination),
            None => behind(&parsed.source).is_some(),
        };
        ours.then_some(source)
    }

    /// Notes that a packet wanted an association that is not there, and where its peer may be.
    #[cold]
    pub(super) fn want(&mut self, index: usize, frame: &Frame<'_>, parsed: &Parsed) {
        let own = self.policy.own.is_some();
        let port = self.policy.keying_port;
        let Some(agreed) = self.sealing[index].agreed.as_mut() else { return };
        if agreed.is_noted && agreed.note.wanted.is_some() {
            return;
        }
        let path = (|| {
            let port = port.filter(|_| !own)?;
            let link = link_of(frame, parsed)?;
            let borrowed = Some(address(&parsed.source));
            let remote = Remote { address: address(&parsed.destination), port };
            let of_ip = matches!(parsed.network, Network::Ipv4 | Network::Ipv6);
            of_ip.then_some(Path { remote, borrowed, link })
        })();
        agreed.note.wanted = Some(path);
        self.note(index);
    }

    /// Notes what an authentic packet tells of its peer. `is_newest`: no later one came before.
    #[inline]
    pub(super) fn heard(&mut self, opening: usize, outer: &Parsed, is_newest: bool) {
        let OpeningPeer { peer: index, pending, .. } = self.opening[opening];
        let peer = &mut self.sealing[index];
        let Some(agreed) = &mut peer.agreed else { return };
        if pending {
            self.confirm(opening);
        } else if !agreed.note.heard || !agreed.is_noted {
            agreed.note.heard = true;
            self.note(index);
        }
        let peer = &mut self.sealing[index];
        let port = match outer.transport {
            Transport::Udp { source, .. } => source,
            _ => 0,
        };
        let moved = peer
            .agreed
            .as_ref()
            .is_some_and(|it| it.heard_from != outer.source || it.heard_port != port);
        if moved && is_newest && peer.endpoint().is_some() {
            self.follow(index, (outer.source, outer.link.source), port);
        }
    }

    /// Notes that a packet was sealed, once between two reports.
    #[inline]
    pub(super) fn sealed(&mut self, index: usize) {
        if self.sealing[index].agreed.as_ref().is_some_and(|it| !it.is_noted) {
            self.note(index);
        }
    }

    /// The first packet tagged by the keys beside the association that opens with `spi` came.
    #[cold]
    pub(super) fn confirm_by_tag(&mut self, spi: u32) {
        let opening = self.opening_by_spi.get(&spi).map(|it| *it as usize);
        if let Some(opening) = opening.filter(|it| self.opening[*it].pending) {
            self.confirm(opening);
        }
    }

    /// Parts what agreed peers have from the rest, before the policy changes.
    pub(super) fn take_survivors(&mut self) -> Survivors {
        let mut survivors = Survivors::new();
        for opening in self.opening.split_off(self.keyed.configured) {
            let Some(identity) = self.policy.peers[opening.peer].agreed else { continue };
            let peer = &mut self.sealing[opening.peer];
            let entry = survivors.entry(identity).or_insert_with(|| (peer.take(), Vec::new()));
            entry.1.push(opening);
        }
        // The kernel has the associations of some.
        for (peer, wanted) in self.sealing.iter_mut().zip(&self.policy.peers) {
            if let (Some(_), Some(identity)) = (wanted.kernel, wanted.agreed) {
                survivors.insert(identity, (peer.take(), Vec::new()));
            }
        }
        survivors
    }

    /// Gives agreed peers of the new policy what they had.
    pub(super) fn restore(&mut self, mut survivors: Survivors) {
        self.keyed.configured = self.opening.len();
        let peers = &self.policy.peers;
        let last = peers.iter().rposition(|peer| peer.agreed.is_none());
        self.keyed.configured_until = last.map_or(0, |last| last + 1);
        self.keyed.noted.clear();
        self.keyed.by_identity.clear();
        for index in 0..self.sealing.len() {
            let Some(identity) = self.policy.peers[index].agreed else { continue };
            self.keyed.by_identity.insert(identity, index as u32);
            let Some((before, openings)) = survivors.remove(&identity) else { continue };
            let moved = before.endpoint().filter(|_| self.policy.own.is_some());
            if !self.sealing[index].go_on(before) {
                continue;
            }
            for opening in openings {
                let spi = opening.association.spi().value();
                self.opening_by_spi.insert(spi, self.opening.len() as u32);
                self.opening.push(OpeningPeer { peer: index, ..opening });
            }
            if let Some(endpoint) = moved {
                self.move_to(index, endpoint, None);
            }
            if let Some(agreed) = &mut self.sealing[index].agreed {
                agreed.is_noted = true;
            }
            self.keyed.noted.push(index as u32);
        }
    }

    /// The highest sequence number that was accepted under the SPI of an association that opens.
    pub fn highest_received(&self, spi: u32) -> Option<u64> {
        let opening = self.opening_by_spi.get(&spi)?;
        Some(self.opening[*opening as usize].association.highest().0)
    }

    /// What the peer's associations opened, those that are gone included.
    pub(super) fn opened_by(&self, peer: usize) -> PeerCounters {
        let agreed = self.sealing[peer].agreed.as_ref();
        let mut sum = agreed.map(|it| it.opened_before).unwrap_or_default();
        let configured = self.policy.peers[peer].open_spis.iter();
        let agreed = agreed.map(|it| &it.open_spis[..]).unwrap_or_default();
        for spi in configured.chain(agreed) {
            let Some(opening) = self.opening_by_spi.get(spi) else { continue };
            add(&mut sum, &self.opening[*opening as usize].counters);
        }
        sum
    }

    pub(super) fn index_of(&self, peer: &PublicKey) -> Option<usize> {
        self.keyed.by_identity.get(peer).map(|index| *index as usize)
    }

    /// Whatever happens next to this peer is told by the next report.
    pub(super) fn note(&mut self, index: usize) {
        let Some(agreed) = &mut self.sealing[index].agreed else { return };
        if !std::mem::replace(&mut agreed.is_noted, true) {
            self.keyed.noted.push(index as u32);
        }
    }

    /// The initiator seals with the new keys: so do we.
    #[cold]
    fn confirm(&mut self, opening: usize) {
        let peer = &mut self.opening[opening];
        peer.pending = false;
        let (index, spi) = (peer.peer, peer.association.spi().value());
        if let Some(tagged) = &mut self.sealing[index].tag {
            tagged.confirm(spi);
        }
        let Some(agreed) = &mut self.sealing[index].agreed else { return };
        agreed.note.confirmed = Some(spi);
        agreed.note.heard = true;
        if let Some((_, sealing)) = agreed.pending.take_if(|(pending, _)| *pending == spi) {
            self.put_in_use(index, sealing);
        }
        self.note(index);
    }

    fn put_in_use(&mut self, index: usize, sealing: SealingSa) {
        let peer = &mut self.sealing[index];
        peer.seal_with(sealing);
        if let Some(agreed) = &mut peer.agreed {
            agreed.bytes_before = peer.counters.sealed_bytes;
        }
    }

    /// The peer is somewhere else.
    #[cold]
    fn follow(&mut self, index: usize, (source, hop): ([u8; 16], MacAddress), port: u16) {
        let endpoint = address(&source);
        self.move_to(index, endpoint, Some(hop));
        self.set_client_port(index, port);
        let port = if port > 0 { port } else { self.policy.keying_port.unwrap_or_default() };
        if let Some(agreed) = &mut self.sealing[index].agreed {
            agreed.note.moved_to = Some(Path::to(endpoint, port));
        }
        self.counters.peers_moved += 1;
        self.note(index);
    }

    /// Seals to this UDP port of a client that speaks WireGuard; others have one of their own.
    fn set_client_port(&mut self, index: usize, port: u16) {
        let Some(own_port) = self.policy.keying_port else { return };
        if self.policy.peers[index].mode != Mode::WireGuard {
            return;
        }
        let Self { sealing, neighbours, policy, now, .. } = self;
        let peer = &mut sealing[index];
        if let Some(agreed) = &mut peer.agreed {
            agreed.heard_port = port;
        }
        peer.set_client_port(own_port, port);
        peer.refresh(policy.own.as_ref(), neighbours, *now);
    }

    /// `hop`: whence an authentic packet came. It serves until the neighbour has answered.
    fn move_to(&mut self, index: usize, endpoint: IpAddr, hop: Option<MacAddress>) {
        let Self { sealing, neighbours, policy, now, .. } = self;
        let peer = &mut sealing[index];
        if let Some(agreed) = &mut peer.agreed {
            agreed.heard_from = mapped(endpoint);
        }
        neighbours.follow(endpoint, hop, *now);
        peer.set_endpoint(endpoint);
        peer.refresh(policy.own.as_ref(), neighbours, *now);
    }

    fn remove_opening(&mut self, index: usize, spi: u32) {
        let Some(place) = self.opening_by_spi.get(&spi).map(|it| *it as usize) else { return };
        if place < self.keyed.configured || self.opening[place].peer != index {
            return;
        }
        self.opening_by_spi.remove(&spi);
        let gone = self.opening.swap_remove(place);
        if let Some(moved) = self.opening.get(place) {
            self.opening_by_spi.insert(moved.association.spi().value(), place as u32);
        }
        if let Some(tagged) = &mut self.sealing[index].tag {
            tagged.forget(spi);
        }
        if let Some(agreed) = &mut self.sealing[index].agreed {
            agreed.open_spis.retain(|it| *it != spi);
            add(&mut agreed.opened_before, &gone.counters);
            agreed.pending.take_if(|(pending, _)| *pending == spi);
        }
    }

    fn own_link(&mut self, remote: IpAddr) -> Option<OuterLink> {
        let own = self.policy.own.as_ref()?;
        self.neighbours.follow(remote, None, self.now);
        let destination = self.neighbours.mac_for(remote, self.now)?;
        Some(OuterLink { destination, source: own.mac, vlan_tci: own.vlan })
    }
}

fn link_of(frame: &Frame<'_>, parsed: &Parsed) -> Option<LinkHeader> {
    let link = frame.bytes().get(..usize::from(parsed.network_offset))?;
    (link.len() >= 14).then(|| LinkHeader::try_from(link).ok())?
}

fn add(sum: &mut PeerCounters, more: &PeerCounters) {
    sum.opened_packets += more.opened_packets;
    sum.opened_bytes += more.opened_bytes;
    sum.refused_packets += more.refused_packets;
    sum.last_opened = sum.last_opened.max(more.last_opened);
}
