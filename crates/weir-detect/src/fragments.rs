//! Pieces of IP datagrams to whole ones, in the way of the host that they are for: where pieces
//! overlap, systems differ in which they believe.

mod carrier;
mod piece;

use std::hash::BuildHasher;

use hashlink::LinkedHashMap;
use weir_wire::frame::Time;
use weir_wire::parse::{Network, Parsed};

use crate::decode::Event;
use crate::hosts::{Hosts, System};
use crate::state::Keyed;

pub use carrier::Carrier;
use carrier::Way;
use piece::Piece;

/// Datagrams that wait for pieces, at most; the oldest are given up, and counted.
const DATAGRAMS_MAX: usize = 4096;
/// Bytes that wait, at most, over all datagrams.
const BYTES_MAX: usize = 32 << 20;
/// Pieces of one datagram, at most; it is given up beyond.
const PIECES_MAX: usize = 8192;
/// A datagram that is not whole after so long is given up.
const QUIET_NS: u64 = 60_000_000_000;
/// The same where its pieces are held: no receiver has any of them, so that its patience does not
/// matter, and a busy sender uses an identification again after seconds (RFC 4963).
const HELD_QUIET_NS: u64 = 2_000_000_000;
/// What a held piece weighs beside its bytes.
const HELD_WEIGHT: usize = 512;
/// Bytes of a datagram, at most.
const DATAGRAM_MAX: usize = 65_535;
/// Bytes of an Ethernet header. What a tunnel carries may have none.
const ETHERNET_LEN: usize = 14;

/// Which of two pieces a system believes where they overlap.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Policy {
    /// The first.
    First,
    /// The last.
    Last,
    /// The first, unless the second begins before it.
    #[default]
    Bsd,
    /// The second, unless it begins before the first.
    BsdRight,
    /// The first, if it begins before the second.
    Linux,
    /// The first, unless the second begins before it and ends behind it.
    Windows,
    /// The first, unless the second begins before it and ends no earlier.
    Solaris,
}

impl Policy {
    /// Whether a second piece's bytes stand for a first one's.
    pub(crate) fn takes_second(self, first: (usize, usize), second: (usize, usize)) -> bool {
        match self {
            Self::First => false,
            Self::Last => true,
            Self::Bsd => second.0 < first.0,
            Self::BsdRight => second.0 >= first.0,
            Self::Linux => second.0 <= first.0,
            Self::Windows => second.0 < first.0 && second.1 > first.1,
            Self::Solaris => second.0 < first.0 && second.1 >= first.1,
        }
    }
}

/// What came of a piece.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Taken {
    /// What was odd about it.
    pub events: Vec<Event>,
    /// The whole packet, from the link header on, if this was the last piece of it.
    pub whole: Option<Vec<u8>>,
    /// The number of the datagram that it is a piece of; none: no receiver takes it.
    pub number: Option<u64>,
    /// It is none of its datagram, and is to go no further: see [`Fragments::refuse_conflicts`].
    pub is_refused: bool,
}

/// A datagram that was given up before it was whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GivenUp {
    /// As in [`Taken::number`].
    pub number: u64,
    /// Why.
    pub cause: Cause,
}

/// Why a datagram is given up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// There was no room for it.
    Room,
    /// Its pieces did not come in time.
    Late,
    /// A piece came that has other bytes in the place of one that is there.
    Conflict,
}

/// Whose piece it is: addresses, identification, protocol, VLAN, tunnels.
type Key = ([u8; 16], [u8; 16], u32, u8, u16, u64);

#[derive(Debug, Default)]
struct Datagram {
    number: u64,
    begun: Time,
    /// What it weighs in [`Fragments::bytes`].
    weight: usize,
    /// Where each piece lies.
    pieces: Vec<(usize, usize)>,
    /// The piece, from 1, that said where the datagram ends; 0: none yet.
    last: u16,
    data: Vec<u8>,
    /// By byte, which piece it is of, from 1; 0: none yet.
    owners: Vec<u16>,
    /// How its first piece came: see [`Piece::lead`].
    lead: Vec<u8>,
    /// So many bytes from the first on are there: each piece would look through all of them else.
    known: usize,
    /// What stands before the data, and where the network header begins in it, once the first
    /// piece is there.
    head: Option<(Vec<u8>, usize)>,
    len: Option<usize>,
}

/// Datagrams that are not whole yet.
#[derive(Debug)]
pub struct Fragments {
    waiting: LinkedHashMap<Key, Datagram, Keyed>,
    bytes: usize,
    policy: Policy,
    /// See [`Self::believe_ends`].
    believes_ends: bool,
    /// Whose policy is another.
    hosts: Hosts,
    /// Whether a piece counts whose IPv4 header's checksum is wrong.
    takes_wrong_headers: bool,
    refuses_conflicts: bool,
    are_held: bool,
    /// How long datagrams wait since their last piece, where that counts.
    quiet_ns: Option<u64>,
    numbers: u64,
    given_up: u64,
    /// Which ones, until somebody takes them.
    told: Vec<GivenUp>,
}

impl Fragments {
    /// None yet. `seed` keys the table.
    pub fn new(policy: Policy, seed: u64) -> Self {
        let waiting = LinkedHashMap::with_hasher(Keyed(seed));
        let hosts = Hosts::default();
        Self {
            waiting,
            bytes: 0,
            policy,
            believes_ends: false,
            hosts,
            takes_wrong_headers: false,
            refuses_conflicts: false,
            are_held: false,
            quiet_ns: None,
            numbers: 0,
            given_up: 0,
            told: Vec::new(),
        }
    }

    /// Whether pieces are refused that receivers put together in several ways: those that overlap
    /// another and are not the same, that go elsewhere than the others, have IPv4 options, no bytes
    /// or fewer than they say, or are not the last and of a length that is no multiple of 8. Where
    /// pieces are held, the other one goes, with its datagram: its sender may have come round to
    /// the same identification. Then those of IPv6 that have one identification are of one
    /// datagram whatever protocol they name (RFC 8200 s4.5).
    pub fn refuse_conflicts(&mut self, refuses: bool) {
        self.refuses_conflicts = refuses;
    }

    /// Whether somebody holds the pieces until their datagram is whole: then they weigh more, wait
    /// for 2 seconds instead of 60, and [`Fragments::take_given_up`] tells which wait in vain.
    pub fn set_held(&mut self, are_held: bool) {
        self.are_held = are_held;
        self.told.clear();
    }

    /// Datagrams wait so long since their last piece, instead of a minute since their first.
    pub fn wait_since_last(&mut self, quiet_ns: u64) {
        self.quiet_ns = Some(quiet_ns);
    }

    /// Whether [`Fragments::set_held`] said so.
    pub fn are_held(&self) -> bool {
        self.are_held
    }

    /// Datagrams that were given up since this was asked last, if pieces are held.
    pub fn take_given_up(&mut self) -> Vec<GivenUp> {
        std::mem::take(&mut self.told)
    }

    /// Pieces count though the checksum of their IPv4 header is wrong, which no receiver takes.
    pub fn take_wrong_headers(&mut self) {
        self.takes_wrong_headers = true;
    }

    /// A datagram's last piece stands for what begins behind it, whichever came first, as in
    /// Suricata 8.0.7.
    pub fn believe_ends(&mut self) {
        self.believes_ends = true;
    }

    /// What the hosts are that fragments are for; the policy is of those that are not named.
    pub fn set_hosts(&mut self, hosts: Hosts) {
        self.hosts = hosts;
    }

    /// Datagrams that were given up before they were whole.
    pub fn given_up(&self) -> u64 {
        self.given_up
    }

    /// Takes in a packet, which `parsed` says is a fragment.
    pub fn take(&mut self, now: Time, bytes: &[u8], parsed: &Parsed) -> Taken {
        self.take_from(now, bytes, parsed, None)
    }

    /// The same of a packet that another carries.
    pub fn take_from(
        &mut self,
        now: Time,
        bytes: &[u8],
        parsed: &Parsed,
        carrier: Option<&Carrier<'_>>,
    ) -> Taken {
        let Way { tunnels, lead } = Way::by(carrier, parsed.traffic_class);
        let piece = parsed.fragment.and_then(|it| Piece::of(bytes, parsed, it, lead));
        let Some(piece) = piece else { return Taken::default() };
        let tunnels = if tunnels.is_empty() { 0 } else { self.waiting.hasher().hash_one(tunnels) };
        self.take_piece(now, (bytes.len(), parsed), &piece, tunnels)
    }

    /// `len`: of the packet that is the piece.
    fn take_piece(
        &mut self,
        now: Time,
        (len, parsed): (usize, &Parsed),
        piece: &Piece<'_>,
        tunnels: u64,
    ) -> Taken {
        let mut taken = Taken::default();
        if (piece.is_wrong && !self.takes_wrong_headers)
            || (piece.is_cut && !self.refuses_conflicts)
        {
            return taken;
        }
        self.expire(now);
        let is_v4 = parsed.network == Network::Ipv4;
        let end = piece.start + piece.data.len();
        let room = DATAGRAM_MAX - if is_v4 { piece.network_head_len } else { 0 };
        if end > room {
            taken.events.push(match is_v4 {
                true => Event::Ipv4FragmentTooLarge,
                false => Event::Ipv6FragmentTooLarge,
            });
            // Among headers that are shorter than its own it may have room.
            return Taken { is_refused: self.refuses_conflicts, ..taken };
        }
        let key = self.key(parsed, piece.protocol, tunnels);
        let named = self.hosts.named(parsed.destination);
        let policy = named.map_or(self.policy, System::fragments);
        if self.refuses_conflicts {
            let conflicts = self.waiting.get(&key).is_some_and(|it| it.conflicts(piece));
            // What is refused leaves nothing behind.
            if piece.is_odd() || (conflicts && !self.are_held) {
                return Taken { is_refused: true, ..taken };
            }
            if conflicts {
                self.give_up(&key, Cause::Conflict);
            }
        }
        self.await_more(key, now);
        let Some(datagram) = self.waiting.get_mut(&key) else { return taken };
        taken.number = Some(datagram.number);
        let before = datagram.data.len();
        if datagram.add(piece, (policy, self.believes_ends)) {
            taken.events.push(match is_v4 {
                true => Event::Ipv4FragmentOverlap,
                false => Event::Ipv6FragmentOverlap,
            });
        }
        let held = if self.are_held { len + HELD_WEIGHT } else { 0 };
        let weight = 3 * (datagram.data.len() - before) + held;
        datagram.weight += weight;
        self.bytes += weight;
        if datagram.is_whole() {
            taken.whole = datagram.packet(is_v4);
            match taken.whole {
                Some(_) => drop(self.remove(&key)),
                // Too long with its headers, which may be others where it is received.
                None if self.refuses_conflicts => self.give_up(&key, Cause::Conflict),
                None => self.give_up(&key, Cause::Room),
            }
        } else if datagram.pieces.len() > PIECES_MAX {
            self.give_up(&key, Cause::Room);
        }
        while self.waiting.len() > DATAGRAMS_MAX || self.bytes > BYTES_MAX {
            self.give_up_oldest(Cause::Room);
        }
        taken
    }

    /// The datagram waits for more pieces; from now on, where its last counts.
    fn await_more(&mut self, key: Key, now: Time) {
        if self.quiet_ns.is_some()
            && let Some(datagram) = self.waiting.to_back(&key)
        {
            datagram.begun = now;
            return;
        }
        let is_new = !self.waiting.contains_key(&key);
        self.numbers += u64::from(is_new);
        let number = self.numbers;
        self.waiting.entry(key).or_insert_with(|| Datagram::new(number, now));
    }

    fn key(&self, parsed: &Parsed, protocol: u8, tunnels: u64) -> Key {
        let vlan = parsed.link.vlan_tci[0] & 0xfff;
        let id = parsed.fragment.map_or(0, |it| it.id);
        let is_v4 = parsed.network == Network::Ipv4;
        let is_named = is_v4 || !(self.refuses_conflicts || self.are_held);
        let protocol = if is_named { protocol } else { 0 };
        (parsed.source, parsed.destination, id, protocol, vlan, tunnels)
    }

    /// Gives up what is not whole and will not be any more.
    pub fn expire(&mut self, now: Time) {
        let patience =
            if self.are_held { HELD_QUIET_NS } else { self.quiet_ns.unwrap_or(QUIET_NS) };
        while self.waiting.front().is_some_and(|(_, it)| now.since_ns(it.begun) > patience) {
            self.give_up_oldest(Cause::Late);
        }
    }

    fn give_up_oldest(&mut self, cause: Cause) {
        if let Some(oldest) = self.waiting.front().map(|(key, _)| *key) {
            self.give_up(&oldest, cause);
        }
    }

    fn give_up(&mut self, key: &Key, cause: Cause) {
        let Some(Datagram { number, .. }) = self.remove(key) else { return };
        self.given_up += 1;
        if self.are_held {
            self.told.push(GivenUp { number, cause });
        }
    }

    fn remove(&mut self, key: &Key) -> Option<Datagram> {
        let datagram = self.waiting.remove(key)?;
        self.bytes -= datagram.weight;
        Some(datagram)
    }
}

impl Datagram {
    /// Whether some of a piece's places are taken already, other than by the same piece, or it came
    /// in another way.
    fn conflicts(&self, piece: &Piece<'_>) -> bool {
        let place = (piece.start, piece.start + piece.data.len());
        let mut overlapping =
            self.pieces.iter().filter(|it| it.0 < place.1 && place.0 < it.1).peekable();
        let is_same = || self.data.get(place.0..place.1) == Some(piece.data);
        let is_other =
            overlapping.peek().is_some() && !(overlapping.all(|it| *it == place) && is_same());
        let is_other = is_other || piece.lead != self.lead;
        // Behind the end that another gives the datagram, or that ends it elsewhere: some receivers
        // give up what they have.
        let is_last = !piece.more;
        let is_other = is_other
            || self.len.is_some_and(|len| place.1 > len || (is_last && place.1 != len))
            || (is_last && self.data.len() > place.1);
        is_other || (piece.start == 0 && self.head.as_ref().is_some_and(|it| piece.differs(it)))
    }

    fn new(number: u64, begun: Time) -> Self {
        Self { number, begun, ..Self::default() }
    }

    /// Puts a piece where it belongs; whether it overlaps one that was there.
    fn add(&mut self, piece: &Piece<'_>, (policy, believes_ends): (Policy, bool)) -> bool {
        if self.pieces.is_empty() {
            self.lead.clone_from(&piece.lead);
        }
        let (start, end) = (piece.start, piece.start + piece.data.len());
        if start == 0 && self.head.is_none() {
            self.head = Some((piece.head.clone(), piece.network));
        }
        if !piece.more && self.len.is_none_or(|known| end > known) {
            self.len = Some(end);
            self.last = self.pieces.len() as u16 + 1;
        }
        if self.data.len() < end {
            self.data.resize(end, 0);
            self.owners.resize(end, 0);
        }
        self.pieces.push((start, end));
        let mut overlaps = false;
        for (at, byte) in (start..end).zip(piece.data) {
            let owner = self.owners[at];
            if let Some(known) = usize::from(owner).checked_sub(1) {
                overlaps = true;
                let first = self.pieces[known];
                let takes_second = match believes_ends {
                    true if start < first.0 && self.last == self.pieces.len() as u16 => true,
                    true if first.0 < start && self.last == owner => false,
                    _ => policy.takes_second(first, (start, end)),
                };
                if !takes_second {
                    continue;
                }
            }
            self.data[at] = *byte;
            self.owners[at] = self.pieces.len() as u16;
        }
        while self.owners.get(self.known).is_some_and(|owner| *owner != 0) {
            self.known += 1;
        }
        overlaps
    }

    fn is_whole(&self) -> bool {
        self.head.is_some() && self.len.is_some_and(|len| self.known >= len)
    }

    /// The packet, with the lengths and the checksum that it has as a whole.
    fn packet(&self, is_v4: bool) -> Option<Vec<u8>> {
        let (mut packet, network) = self.head.clone()?;
        let head_len = packet.len();
        packet.extend_from_slice(self.data.get(..self.len?)?);
        let total = packet.len() - network;
        let header = &mut packet[network..head_len];
        if is_v4 {
            header[2..4].copy_from_slice(&u16::try_from(total).ok()?.to_be_bytes());
            header[6..8].fill(0);
            header[10..12].fill(0);
            let words = header.chunks(2).map(|it| u32::from(it[0]) << 8 | u32::from(it[1]));
            let sum: u32 = words.sum();
            let sum = (sum & 0xffff) + (sum >> 16);
            let checksum = !((sum & 0xffff) + (sum >> 16)) as u16;
            header[10..12].copy_from_slice(&checksum.to_be_bytes());
        } else {
            header[4..6].copy_from_slice(&u16::try_from(total - 40).ok()?.to_be_bytes());
        }
        Some(packet)
    }
}

#[cfg(test)]
mod tests;
