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
    /// The first, unless the second begins no later and ends behind it.
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
            Self::Windows => second.0 <= first.0 && second.1 > first.1,
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
    /// Whose policy is another.
    hosts: Hosts,
    /// Whether a piece counts whose IPv4 header's checksum is wrong.
    takes_wrong_headers: bool,
    refuses_conflicts: bool,
    are_held: bool,
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
            hosts,
            takes_wrong_headers: false,
            refuses_conflicts: false,
            are_held: false,
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
        let is_new = !self.waiting.contains_key(&key);
        self.numbers += u64::from(is_new);
        let number = self.numbers;
        let datagram = self.waiting.entry(key).or_insert_with(|| Datagram::new(number, now));
        taken.number = Some(datagram.number);
        let before = datagram.data.len();
        if datagram.add(piece, policy) {
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
        let patience = if self.are_held { HELD_QUIET_NS } else { QUIET_NS };
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
    fn add(&mut self, piece: &Piece<'_>, policy: Policy) -> bool {
        if self.pieces.is_empty() {
            self.lead.clone_from(&piece.lead);
        }
        let (start, end) = (piece.start, piece.start + piece.data.len());
        if start == 0 && self.head.is_none() {
            self.head = Some((piece.head.clone(), piece.network));
        }
        if !piece.more && self.len.is_none_or(|known| end > known) {
            self.len = Some(end);
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
                if !policy.takes_second(self.pieces[known], (start, end)) {
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
mod tests {
    use proptest::prelude::*;
    use weir_wire::checksum::Sum;
    use weir_wire::frame::Link;
    use weir_wire::parse::parse;

    use super::*;

    fn piece(offset: u16, more: bool, data: &[u8]) -> Vec<u8> {
        let mut packet = vec![0x45, 0];
        packet.extend((20 + data.len() as u16).to_be_bytes());
        packet.extend([0, 9]);
        packet.extend(((offset / 8) | (u16::from(more) << 13)).to_be_bytes());
        packet.extend([64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
        let checksum = Sum::new().with(&packet).checksum();
        packet[10..12].copy_from_slice(&checksum.to_be_bytes());
        packet.extend(data);
        packet
    }

    fn take(fragments: &mut Fragments, packet: &[u8]) -> Taken {
        fragments.take(Time(1), packet, &parse(packet, Link::Ip, packet.len() as u32))
    }

    /// The data of what two pieces that overlap make, and a third ends.
    fn overlapped(policy: Policy, first: u16, second: u16) -> Vec<u8> {
        let mut fragments = Fragments::new(policy, 0);
        take(&mut fragments, &piece(first, true, &[b'a'; 16]));
        let told = take(&mut fragments, &piece(second, true, &[b'b'; 16]));
        assert_eq!(told.events, [Event::Ipv4FragmentOverlap]);
        let whole = take(&mut fragments, &piece(24, false, b"cccccccc")).whole.unwrap();
        whole[20..].to_vec()
    }

    #[test]
    fn a_piece_with_a_wrong_header_is_none() {
        for takes_wrong_headers in [false, true] {
            let mut fragments = Fragments::new(Policy::First, 0);
            if takes_wrong_headers {
                fragments.take_wrong_headers();
            }
            let mut wrong = piece(0, true, b"xxxxxxxx");
            wrong[8] ^= 1;
            take(&mut fragments, &wrong);
            take(&mut fragments, &piece(0, true, b"aaaaaaaa"));
            let whole = take(&mut fragments, &piece(8, false, b"b")).whole.unwrap();
            assert_eq!(whole[20..] == *b"aaaaaaaab", !takes_wrong_headers);
        }
    }

    #[test]
    fn systems_differ_in_what_they_believe() {
        let later = b"aaaaaaaaaaaaaaaabbbbbbbbcccccccc";
        let second = b"aaaaaaaabbbbbbbbbbbbbbbbcccccccc";
        assert_eq!(overlapped(Policy::Bsd, 0, 8), later);
        assert_eq!(overlapped(Policy::First, 0, 8), later);
        assert_eq!(overlapped(Policy::Last, 0, 8), second);
        assert_eq!(overlapped(Policy::BsdRight, 0, 8), second);
        let before = b"bbbbbbbbbbbbbbbbaaaaaaaacccccccc";
        assert_eq!(overlapped(Policy::Bsd, 8, 0), before);
        assert_eq!(overlapped(Policy::Linux, 8, 0), before);
    }

    #[test]
    fn one_that_is_too_large_is_told_of_and_left() {
        let mut fragments = Fragments::new(Policy::Bsd, 0);
        let told = take(&mut fragments, &piece(65_528, false, &[0; 64]));
        assert_eq!(told, Taken { events: vec![Event::Ipv4FragmentTooLarge], ..Taken::default() });
        assert_eq!((fragments.bytes, fragments.waiting.len()), (0, 0));
    }

    #[test]
    fn what_is_refused_leaves_nothing_behind() {
        let mut fragments = Fragments::new(Policy::Bsd, 0);
        fragments.refuse_conflicts(true);
        for odd in [piece(0, true, b""), piece(8, true, b"abc")] {
            assert!(take(&mut fragments, &odd).is_refused);
        }
        assert_eq!(fragments.waiting.len(), 0);
        assert!(!take(&mut fragments, &piece(0, true, &[1; 16])).is_refused);
        assert!(take(&mut fragments, &piece(8, true, &[2; 16])).is_refused);
        assert_eq!(fragments.bytes, 3 * 16);
    }

    /// Linux gives up what it has, and keeps what comes then.
    #[test]
    fn what_lies_behind_the_end_or_ends_elsewhere_is_refused() {
        for (first, second) in [
            (piece(16, false, &[1; 8]), piece(24, true, &[2; 8])),
            (piece(16, false, &[1; 8]), piece(24, false, &[2; 8])),
            (piece(24, true, &[1; 8]), piece(16, false, &[2; 8])),
            (piece(24, false, &[1; 8]), piece(16, false, &[2; 8])),
        ] {
            let mut fragments = Fragments::new(Policy::Linux, 0);
            fragments.refuse_conflicts(true);
            assert!(!take(&mut fragments, &first).is_refused);
            assert!(take(&mut fragments, &second).is_refused);
        }
    }

    #[test]
    fn a_first_piece_of_ipv6_has_all_headers() {
        const LATER: [u8; 8] = [17, 0, 1, 4, 0, 0, 0, 0];
        for (kind, data, is_whole) in [
            (17, &[0; 8][..], true),
            (6, &[0; 16], false),
            (6, &[0; 24], true),
            (60, &LATER, false),
            (60, &[LATER, [0; 8]].concat(), true),
            (43, &[17, 2, 0, 0, 0, 0, 0, 0], false),
        ] {
            let mut packet = vec![0x60, 0, 0, 0, 0, 8 + data.len() as u8, 44, 64];
            packet.extend([0xfd; 32]);
            packet.extend([kind, 0, 0, 1, 0, 0, 0, 7]);
            packet.extend(data);
            let mut fragments = Fragments::new(Policy::Linux, 0);
            fragments.refuse_conflicts(true);
            assert_eq!(take(&mut fragments, &packet).is_refused, !is_whole, "{kind} {data:?}");
        }
    }

    #[test]
    fn held_pieces_make_room_for_others_in_their_place() {
        let mut fragments = Fragments::new(Policy::Bsd, 0);
        fragments.refuse_conflicts(true);
        fragments.set_held(true);
        let lost = take(&mut fragments, &piece(8, true, b"olderold")).number.unwrap();
        let first = take(&mut fragments, &piece(0, true, b"aaaaaaaa")).number;
        assert_eq!(first, Some(lost), "nobody knows that it is another");
        take(&mut fragments, &piece(8, true, b"bbbbbbbb"));
        let told = GivenUp { number: lost, cause: Cause::Conflict };
        assert_eq!(fragments.take_given_up(), [told]);
        let again = take(&mut fragments, &piece(8, true, b"bbbbbbbb"));
        assert!(!again.is_refused && fragments.take_given_up().is_empty(), "doubled on its way");
        for other in [piece(8, true, b"cccccccc"), piece(8, true, &[b'c'; 16])] {
            let old = fragments.waiting.values().next().unwrap().number;
            let taken = take(&mut fragments, &other);
            assert_ne!(taken.number, Some(old));
            let told = GivenUp { number: old, cause: Cause::Conflict };
            assert_eq!(fragments.take_given_up(), [told]);
        }
    }

    #[test]
    fn pieces_of_any_lengths_and_marks_make_a_datagram_if_they_go_one_way() {
        let ethernet = |mac: u8, packet: &[u8]| {
            [&[2, 0, 0, 0, 0, mac, 2, 0, 0, 0, 0, 9, 8, 0][..], packet].concat()
        };
        let marked = |mut packet: Vec<u8>, place: usize, by: u8| {
            packet[place] ^= by;
            packet[10..12].fill(0);
            let checksum = Sum::new().with(&packet[..20]).checksum();
            packet[10..12].copy_from_slice(&checksum.to_be_bytes());
            packet
        };
        let (first, last) = (piece(0, true, b"aaaaaaaa"), piece(8, false, b"bbb"));
        let congested = marked(last.clone(), 1, 3);
        let elsewhere = marked(last.clone(), 8, 1);
        for (link, frames, is_whole) in [
            (Link::Ip, [first.clone(), last.clone()], true),
            (Link::Ip, [first.clone(), congested], true),
            (Link::Ip, [first.clone(), elsewhere], false),
            (Link::Ethernet, [ethernet(1, &first), ethernet(1, &last)], true),
            (Link::Ethernet, [ethernet(1, &first), ethernet(3, &last)], false),
        ] {
            let mut fragments = Fragments::new(Policy::Bsd, 0);
            fragments.refuse_conflicts(true);
            fragments.set_held(true);
            let taken =
                frames.map(|it| fragments.take(Time(1), &it, &parse(&it, link, it.len() as u32)));
            assert_eq!(taken[1].whole.is_some(), is_whole, "{taken:?}");
        }
    }

    #[test]
    fn who_holds_pieces_is_told_which_wait_in_vain() {
        let mut fragments = Fragments::new(Policy::Bsd, 0);
        fragments.set_held(true);
        let numbers: Vec<_> = (0..DATAGRAMS_MAX + 1)
            .map(|id| {
                let mut first = piece(0, true, &[1; 8]);
                first[4..6].copy_from_slice(&(id as u16).to_be_bytes());
                first[10..12].fill(0);
                let checksum = Sum::new().with(&first[..20]).checksum();
                first[10..12].copy_from_slice(&checksum.to_be_bytes());
                take(&mut fragments, &first).number.expect("it is a piece")
            })
            .collect();
        let told = [GivenUp { number: numbers[0], cause: Cause::Room }];
        assert_eq!(fragments.take_given_up(), told, "the oldest made room");
        assert_eq!(fragments.take_given_up(), []);
        fragments.expire(Time(HELD_QUIET_NS));
        assert_eq!(fragments.take_given_up(), [], "the others have time");
        fragments.expire(Time(HELD_QUIET_NS + 2));
        let late = numbers[1..].iter().map(|it| GivenUp { number: *it, cause: Cause::Late });
        assert_eq!(fragments.take_given_up(), late.collect::<Vec<_>>());
        assert_eq!(fragments.bytes, 0);
    }

    proptest! {
        #[test]
        fn what_waits_is_counted_and_bounded(
            pieces in prop::collection::vec(
                (0u16..4000, any::<bool>(), 0usize..60, any::<u16>()),
                1..60,
            ),
        ) {
            let mut fragments = Fragments::new(Policy::Windows, 0);
            for (offset, more, length, id) in pieces {
                let mut packet = piece(offset * 8, more, &vec![1; length]);
                packet[4..6].copy_from_slice(&(id % 8).to_be_bytes());
                take(&mut fragments, &packet);
            }
            let sum: usize = fragments.waiting.values().map(|it| it.data.len()).sum();
            prop_assert_eq!(fragments.bytes, 3 * sum);
        }
    }
}
