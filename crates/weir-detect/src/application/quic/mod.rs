//! QUIC (RFC 9000, RFC 9369, drafts, and Google's before them): what packets of a handshake say
//! until both hellos are there. The first packets are sealed with keys that anybody can derive.

mod google;
mod ja3;
mod keys;
mod packet;
mod tell;

use std::collections::BTreeMap;

use super::Parser;
use super::unit::{Said, Unit};
use crate::buffers::event::AppEvent;
use crate::buffers::tls::Hello;
use crate::heap::heap_size;
use crate::rule::{Buffer, Protocol};
use crate::value::Object;
use keys::Keys;
use packet::{FIXED, Kind, LONG, Packet, integer, version_name};

type Digest = [u8; 32];

/// Bytes of a side's handshake, at most, and pieces of it that wait for others.
const HANDSHAKE_LEN_MAX: usize = 65_535;
const PIECES_MAX: usize = 256;
/// Connections of a flow that are looked at, at most.
const CONNECTIONS_MAX: usize = 8;
/// Servers pass over a client's first packets in shorter datagrams (RFC 9000 s14.1); captures have
/// such.
const FULL_LEN: usize = 1200;
/// Keys that are made for one datagram, at most: receivers pass over packets in it that go to
/// another connection than its first (RFC 9000 s12.2).
const MADE_MAX: usize = 4;
/// Of a handshake message, its type and length.
const HEAD_LEN: usize = 4;
const CLIENT_HELLO: u8 = 1;
const SERVER_HELLO: u8 = 2;
/// Ports where packets of versions that nobody knows, and with public headers, are taken for QUIC.
const PORTS: [u16; 2] = [80, 443];

/// Whether a datagram to such a port of the server begins a connection.
pub(crate) fn begins(datagram: &[u8], port: u16) -> bool {
    let Some(packet) = Packet::read(datagram).filter(|it| it.version != 0) else { return false };
    match datagram[0] & (LONG | FIXED) {
        // Little tells a public header from what others say.
        0 => PORTS.contains(&port),
        LONG => false,
        _ => PORTS.contains(&port) || (packet::is_known(packet.version) && opens(datagram)),
    }
}

/// Whether a packet of a datagram opens as a client's first; of versions whose keys nobody here can
/// make, any may.
fn opens(datagram: &[u8]) -> bool {
    let mut whole = Datagram { is_full: true, made: Vec::new() };
    let mut packets = std::iter::successors(Packet::read(datagram), |it| Packet::read(it.behind));
    packets.any(|it| {
        !keys::are_known(it.version) || (it.kind == Kind::Initial && whole.begin(&it).is_some())
    })
}

/// The connections of a flow: a client may begin several, and what looks like a beginning may be
/// one that no server takes.
#[derive(Debug, Default)]
pub(crate) struct Quic {
    /// The last are those that a packet came for last.
    connections: Vec<Connection>,
    count: u64,
}
heap_size!(Quic { connections });

/// A connection whose first packet of the client was opened.
#[derive(Debug)]
struct Connection {
    keys: Box<Keys>,
    /// By side, the number that its packets go to: the one that the keys are of, the client's.
    ids: [Vec<u8>; 2],
    /// The number that the server chose for what the client sends later.
    later: Option<Vec<u8>>,
    /// What the client says in datagrams that servers take, and in all. Where they differ, some
    /// server may take the one or the other.
    client: [Side; 2],
    server: Side,
    /// A datagram that servers take was one of its.
    is_full: bool,
    /// Of the client's hello that was told.
    told: Option<Digest>,
}
heap_size!(Connection { keys, ids, later, client, server });

#[derive(Debug, Default)]
struct Side {
    /// Pieces of its handshake by their places.
    pieces: BTreeMap<usize, Vec<u8>>,
    /// It has said hello: what comes is encrypted.
    is_over: bool,
}
heap_size!(Side { pieces });

/// A datagram whose packets are looked at.
struct Datagram {
    /// Servers take first packets from it.
    is_full: bool,
    /// Keys that were made for it, each with version and number.
    made: Vec<(u32, Vec<u8>, Keys)>,
}

impl Parser for Quic {
    fn take(&mut self, side: usize, datagram: &[u8], said: &mut Said) {
        let (mut rest, is_full) = (datagram, datagram.len() >= FULL_LEN);
        let mut datagram = Datagram { is_full, made: Vec::new() };
        while !rest.is_empty() {
            let Some(packet) = Packet::read(rest) else { return };
            rest = packet.behind;
            match (packet.kind, side) {
                (Kind::Initial, 0) => self.of_client(&packet, &mut datagram, said),
                (Kind::Initial, _) => self.of_server(&packet, said),
                (Kind::Google, _) => {
                    let (mut unit, mut object) = self.unit(&packet);
                    tell::google(&packet, &mut unit, &mut object);
                    unit.tells("quic", object);
                    said.message(unit, side);
                }
                // With a Retry the client begins again, with other keys: that is one more.
                _ if !self.is_over(side) => self.say(&packet, side, None, said),
                _ => {}
            }
        }
    }
}

impl Quic {
    fn unit(&mut self, packet: &Packet<'_>) -> (Unit, Object) {
        let mut unit = Unit::new(Protocol::Quic, self.count);
        self.count += 1;
        unit.text(Buffer::QuicVersion, &packet.version.to_be_bytes());
        (unit, Object::default().with("version", version_name(packet.version)))
    }

    /// Tells of a packet, and what is odd about it.
    fn say(&mut self, packet: &Packet<'_>, side: usize, odd: Option<AppEvent>, said: &mut Said) {
        let heard = Heard { hello: None, odd };
        self.hear(packet, side, [heard].into(), said);
    }

    /// Tells of a packet by each hello that it makes whole, or once without one.
    fn hear(&mut self, packet: &Packet<'_>, side: usize, heard: Vec<Heard>, said: &mut Said) {
        for Heard { hello, odd } in heard {
            let (mut unit, mut object) = self.unit(packet);
            if let Some(hello) = hello {
                tell::hello(side, &hello, &mut unit, &mut object);
            }
            if let Some(event) = odd {
                unit.odd(event);
            }
            unit.tells("quic", object);
            said.message(unit, side);
        }
    }

    /// Whether a hello of that side was whole.
    fn is_over(&self, side: usize) -> bool {
        self.connections.iter().any(|it| match side {
            0 => it.client.iter().any(|it| it.is_over),
            _ => it.server.is_over,
        })
    }

    /// Takes the connection of a packet out, with the packet's frames. One whose number is the
    /// packet's comes first: where there is such a one, no other is tried.
    fn take_out(&mut self, side: usize, packet: &Packet<'_>) -> Option<(Connection, Vec<u8>)> {
        let is_named = |it: &Connection| {
            it.ids[side] == packet.destination
                || (side == 0 && it.later.as_deref() == Some(packet.destination))
        };
        let has_named = self.connections.iter().any(is_named);
        let places = (0..self.connections.len()).rev();
        let (place, frames) =
            places.filter(|it| !has_named || is_named(&self.connections[*it])).find_map(|it| {
                Some((it, self.connections[it].keys.open(side, packet.bytes, packet.head)?))
            })?;
        Some((self.connections.remove(place), frames))
    }

    fn of_client(&mut self, packet: &Packet<'_>, datagram: &mut Datagram, said: &mut Said) {
        let opened = self.take_out(0, packet).or_else(|| datagram.begin(packet));
        let Some((mut connection, frames)) = opened else {
            if !self.is_over(0) {
                let odd = keys::are_known(packet.version).then_some(AppEvent::QuicDecrypt);
                self.say(packet, 0, odd, said);
            }
            return;
        };
        connection.is_full |= datagram.is_full;
        let heard = connection.hear_client(&frames, datagram.is_full);
        self.hear(packet, 0, heard, said);
        self.keep(connection);
    }

    fn of_server(&mut self, packet: &Packet<'_>, said: &mut Said) {
        let Some((mut connection, frames)) = self.take_out(1, packet) else {
            if !self.is_over(1) {
                let odd = (!self.connections.is_empty()).then_some(AppEvent::QuicDecrypt);
                self.say(packet, 1, odd, said);
            }
            return;
        };
        connection.later = Some(packet.source.to_vec());
        if !connection.server.is_over {
            let (hello, odd) = connection.server.take(1, &frames);
            let hello = hello.map(|it| it.0);
            self.hear(packet, 1, [Heard { hello, odd }].into(), said);
        }
        self.keep(connection);
    }

    /// Keeps a connection. Where there are too many, one goes that no server takes; then one whose
    /// client has said all; then the one that was silent longest. One that no server takes drives
    /// no other out that servers take.
    fn keep(&mut self, connection: Connection) {
        if self.connections.len() >= CONNECTIONS_MAX {
            let all = &self.connections;
            let untaken = all.iter().position(|it| !it.is_full);
            let over = || all.iter().position(|it| it.client[0].is_over);
            let oldest = connection.is_full.then_some(0);
            let Some(place) = untaken.or_else(over).or(oldest) else { return };
            self.connections.remove(place);
        }
        self.connections.push(connection);
    }
}

/// What a packet brings.
struct Heard {
    /// A hello that is whole with it.
    hello: Option<Hello>,
    odd: Option<AppEvent>,
}

impl Datagram {
    /// A connection that begins with a packet.
    fn begin(&mut self, packet: &Packet<'_>) -> Option<(Connection, Vec<u8>)> {
        let is_of =
            |it: &(u32, Vec<u8>, Keys)| (it.0, &*it.1) == (packet.version, packet.destination);
        let place = match self.made.iter().position(is_of) {
            Some(place) => place,
            None if self.made.len() == MADE_MAX => return None,
            None => {
                let keys = Keys::of(packet.version, packet.destination)?;
                self.made.push((packet.version, packet.destination.to_vec(), keys));
                self.made.len() - 1
            }
        };
        let frames = self.made[place].2.open(0, packet.bytes, packet.head)?;
        let (_, number, keys) = self.made.swap_remove(place);
        let connection = Connection {
            keys: Box::new(keys),
            ids: [number, packet.source.to_vec()],
            later: None,
            client: Default::default(),
            server: Side::default(),
            is_full: self.is_full,
            told: None,
        };
        Some((connection, frames))
    }
}

impl Connection {
    fn hear_client(&mut self, frames: &[u8], is_full: bool) -> Vec<Heard> {
        let Self { client: [in_full, in_any], told, .. } = self;
        let mut heard = Vec::new();
        for (side, is_seen) in [(in_full, is_full), (in_any, true)] {
            if !is_seen || side.is_over {
                continue;
            }
            let (hello, odd) = side.take(0, frames);
            // Most clients say the same in both.
            let hello = hello.and_then(|(hello, digest)| {
                let is_new = told.replace(digest) != Some(digest);
                is_new.then_some(hello)
            });
            if heard.is_empty() || hello.is_some() {
                heard.push(Heard { hello, odd });
            }
        }
        heard
    }
}

impl Side {
    /// Takes a packet's frames in: the hello that is whole with them, and what is odd.
    fn take(&mut self, side: usize, frames: &[u8]) -> (Option<(Hello, Digest)>, Option<AppEvent>) {
        let odd = frames_of(frames, |at, piece| self.put(at, piece)).err();
        match self.hello(side) {
            Ok(Some(hello)) => {
                (self.is_over, self.pieces) = (true, BTreeMap::new());
                (Some(hello), odd)
            }
            Ok(None) => (None, odd),
            Err(event) => {
                self.pieces.clear();
                (None, Some(event))
            }
        }
    }

    fn put(&mut self, at: u64, piece: &[u8]) -> Result<(), AppEvent> {
        let at = usize::try_from(at).unwrap_or(usize::MAX);
        let held: usize = self.pieces.values().map(Vec::len).sum();
        let end = at.saturating_add(piece.len()).max(held + piece.len());
        if end > HANDSHAKE_LEN_MAX || self.pieces.len() == PIECES_MAX {
            return Err(AppEvent::QuicTooLong);
        }
        // What came first stays.
        let known = self.pieces.entry(at).or_default();
        known.extend_from_slice(piece.get(known.len()..).unwrap_or_default());
        Ok(())
    }

    /// The side's hello, once it is whole, and its digest; an error: it says something else.
    fn hello(&self, side: usize) -> Result<Option<(Hello, Digest)>, AppEvent> {
        let mut bytes = Vec::new();
        for (at, piece) in &self.pieces {
            let Some(known) = bytes.len().checked_sub(*at) else { break };
            bytes.extend_from_slice(piece.get(known..).unwrap_or_default());
        }
        let Some((head, rest)) = bytes.split_first_chunk::<HEAD_LEN>() else { return Ok(None) };
        if head[0] != [CLIENT_HELLO, SERVER_HELLO][side] {
            return Err(AppEvent::QuicData);
        }
        let length = u32::from_be_bytes([0, head[1], head[2], head[3]]) as usize;
        Ok(rest.get(..length).map(|it| {
            let digest = ring::digest::digest(&ring::digest::SHA256, it);
            let digest = digest.as_ref().first_chunk().copied().unwrap_or_default();
            let mut hello = Hello::read(it, side == 0);
            ja3::put(&mut hello, it, side == 0);
            (hello, digest)
        }))
    }
}

/// Calls `crypto` with each piece of the handshake and its place (RFC 9000 s19); whatever may not
/// stand in a first packet ends the look.
fn frames_of(
    mut rest: &[u8],
    mut crypto: impl FnMut(u64, &[u8]) -> Result<(), AppEvent>,
) -> Result<(), AppEvent> {
    const CUT: AppEvent = AppEvent::QuicData;
    const PADDING: u8 = 0;
    const PING: u8 = 1;
    const ACK: u8 = 2;
    const ACK_ECN: u8 = 3;
    const CRYPTO: u8 = 6;
    while let [kind, behind @ ..] = rest {
        rest = behind;
        let mut next = || integer(&mut rest).ok_or(CUT);
        match *kind {
            PADDING | PING => {}
            ACK | ACK_ECN => {
                // Largest, delay; then a first range, and so many gaps and ranges.
                let (_, _, ranges, _) = (next()?, next()?, next()?, next()?);
                let more = ranges.saturating_mul(2) + if *kind == ACK_ECN { 3 } else { 0 };
                for _ in 0..more {
                    next()?;
                }
            }
            CRYPTO => {
                let (at, length) = (next()?, next()?);
                let length = usize::try_from(length).unwrap_or(usize::MAX);
                let (piece, behind) = rest.split_at_checked(length).ok_or(CUT)?;
                crypto(at, piece)?;
                rest = behind;
            }
            _ => break,
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
