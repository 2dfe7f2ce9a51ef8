//! Associations that come and go, and packets of the gateway's own under them.

use weir_wire::frame::Time;
use weir_wire::parse::MacAddress;

use super::Engine;
use crate::arrive::keying;
use crate::peer::{Agreed, Nearby};
use crate::protect::dummy::seal_dummy;
use crate::surroundings::Sighting;
use crate::tunnel::key::PublicKey;
use crate::tunnel::path::Path;
use crate::tunnel::path_mtu::ProbeMessage;
use crate::tunnel::state::PeerActivity;

impl Engine {
    /// Puts new associations in place; false when the policy has no such peer any more, or another
    /// association has the SPI: then the next activity says that the peer's are lost.
    pub fn install(&mut self, agreed: Agreed) -> bool {
        let Self { peers, policy, surroundings, now, .. } = self;
        let neighbours = &mut surroundings.neighbours;
        peers.install(agreed, &mut Nearby { policy, neighbours, now: *now })
    }

    /// Seals with the associations that wait for their first packet, as if it had come: another
    /// worker's of the same handshake has. Does nothing when they wait no longer.
    pub fn confirm_with(&mut self, peer: &PublicKey, open_spi: u32) {
        self.peers.confirm_with(peer, open_spi);
    }

    /// Seals to where `peer` is now, as another worker heard.
    pub fn move_peer(&mut self, peer: &PublicKey, path: &Path) {
        let Some(index) = self.peers.index_of(peer) else { return };
        let Self { peers, policy, surroundings, now, .. } = self;
        let neighbours = &mut surroundings.neighbours;
        peers.move_peer(index, path, &mut Nearby { policy, neighbours, now: *now });
    }

    /// Removes an association that opens.
    pub fn forget(&mut self, peer: &PublicKey, open_spi: u32) {
        let Some(index) = self.peers.index_of(peer) else { return };
        self.peers.forget(index, open_spi);
    }

    /// Seals nothing more to `peer` until there are new keys.
    pub fn close(&mut self, peer: &PublicKey) {
        let Some(index) = self.peers.index_of(peer) else { return };
        self.peers.close(index);
    }

    /// Puts a handshake datagram into `output()`. False while the Ethernet address of the next hop
    /// is unknown: try again later.
    pub fn send_datagram(&mut self, path: &Path, datagram: &[u8]) -> bool {
        let Self { now, policy, surroundings, output, counters, .. } = self;
        let neighbours = &mut surroundings.neighbours;
        keying::send(*now, policy, neighbours, (output, counters), (path, datagram))
    }

    /// Empties the output, before datagrams and keepalives are put into it.
    pub fn begin(&mut self) {
        self.output.clear();
    }

    /// Hands over the datagrams that came to the keying port.
    pub fn take_datagrams(&mut self) -> impl Iterator<Item = (Path, Vec<u8>)> {
        self.inbox.take()
    }

    /// Whether datagrams wait.
    pub fn has_datagrams(&self) -> bool {
        !self.inbox.is_empty()
    }

    /// Tells what happened to peers since the last call; of those that nothing happened to,
    /// nothing. Stops when `take` says false, and goes on there the next time.
    pub fn take_activity(&mut self, take: &mut dyn FnMut(PublicKey, PeerActivity) -> bool) {
        self.peers.take_activity(take);
    }

    /// Seals an empty packet into `output()`, which grows until [`Engine::begin`].
    pub fn keepalive(&mut self, peer: &PublicKey) {
        let Some(index) = self.peers.index_of(peer) else { return };
        if seal_dummy(&mut self.parts(), index, &[], 0).is_some() {
            self.counters.keepalives_sent += 1;
        }
    }

    /// Seals a question about the path's width, padded to its size, or an answer into `output()`,
    /// which grows until [`Engine::begin`]. Neither is ever fragmented by us.
    pub fn send_probe(&mut self, peer: &PublicKey, message: ProbeMessage) {
        let Some(index) = self.peers.index_of(peer) else { return };
        let size_bytes = match message {
            ProbeMessage::Ask(probe) => usize::from(probe.size_bytes),
            ProbeMessage::Answer(_) => 0,
        };
        if seal_dummy(&mut self.parts(), index, &message.bytes(), size_bytes).is_some() {
            self.counters.path_probes_sent += 1;
        }
    }

    /// From now on, packets for `peer` have at most so many bytes, outer IP header included; never
    /// more than the wire's.
    pub fn set_path_mtu(&mut self, peer: &PublicKey, bytes: u16) {
        let Some(index) = self.peers.index_of(peer) else { return };
        let mtu = bytes.min(self.policy.wire_mtu);
        if let Some(entry) = self.peers.get_mut(index) {
            entry.set_mtu(mtu);
        }
    }

    /// The peer has keys and does not answer, or answers again. Where its sealing is preferred,
    /// packets to it go in clear, or sealed again.
    pub fn hold_in_clear(&mut self, peer: &PublicKey, is_held: bool) {
        let Some(index) = self.peers.index_of(peer) else { return };
        self.peers.hold_in_clear(index, is_held);
    }

    /// Says whether the kernel has lost the associations at `place`: then what belongs there is
    /// dropped as `kernel_esp`.
    pub fn note_kernel(&mut self, place: u16, is_lost: bool) {
        if let Some(peer) = self.peers.kernel.at_mut(place) {
            peer.is_lost = is_lost;
        }
    }

    /// Says which agreed associations the kernel has at `place`: the one that seals, without which
    /// packets are dropped as `no_association`, and those that open.
    pub fn set_kernel_associations(&mut self, place: u16, seal: Option<u32>, open: &[u32]) {
        self.peers.kernel.set(place, seal, open, &self.policy);
    }

    /// Adds to what the next activity tells of the peer at `place` what its associations in the
    /// kernel did: what they sealed, whether they opened anything, whether they are gone.
    pub fn note_kernel_use(&mut self, place: u16, used: &PeerActivity) {
        self.peers.note_kernel_use(place, used);
    }

    /// The MAC address that sealed packets of the xfrm interface at `place` go to; `None` while
    /// nobody has answered.
    pub fn kernel_hop(&self, place: u16) -> Option<MacAddress> {
        self.peers.get(self.peers.kernel.at(place)?.index)?.hop()
    }

    /// Makes it one of several workers: it notes what the others must know, and leaves their flows
    /// to them.
    pub fn set_one_of_several(&mut self) {
        self.surroundings.sightings.keep();
        self.plain.set_one_of_several();
    }

    /// Whether something waits to be told.
    pub fn has_sightings(&self) -> bool {
        self.surroundings.sightings.is_waiting()
    }

    /// The next that the others must know.
    pub fn take_sighting(&mut self) -> Option<Sighting> {
        self.surroundings.sightings.take()
    }

    /// Keeps what could not be told yet, unless there is something newer.
    pub fn keep_sighting(&mut self, told: Sighting) {
        self.surroundings.sightings.put_back(told);
    }

    /// Takes in what another worker told.
    pub fn hear(&mut self, told: Sighting, now: Time) {
        self.now = self.now.max(now);
        if self.surroundings.hear(told, now) {
            self.refresh();
        }
    }
}
