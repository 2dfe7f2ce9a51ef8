//! QUIC (RFC 9000, RFC 9369, drafts, and Google's before them): what packets of a handshake say
//! until both hellos are there. The first packets are sealed with keys that anybody can derive.

mod google;
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
use packet::{Kind, Packet, integer, version_name};

/// Bytes of a side's handshake, at most, and pieces of it that wait for others.
const HANDSHAKE_LEN_MAX: usize = 65_535;
const PIECES_MAX: usize = 256;
/// Of a handshake message, its type and length.
const HEAD_LEN: usize = 4;
const CLIENT_HELLO: u8 = 1;
const SERVER_HELLO: u8 = 2;
/// Ports where packets of versions that nobody knows are taken for QUIC.
const PORTS: [u16; 2] = [80, 443];
const FIXED: u8 = 0x40;

/// Whether a datagram to such a port of the server begins a connection.
pub(crate) fn begins(datagram: &[u8], port: u16) -> bool {
    let is_fixed = datagram.first().is_some_and(|it| it & FIXED != 0);
    let packet = Packet::read(datagram).filter(|it| is_fixed && it.version != 0);
    packet.is_some_and(|it| packet::is_known(it.version) || PORTS.contains(&port))
}

/// A connection.
#[derive(Debug, Default)]
pub(crate) struct Quic {
    keys: Option<Box<Keys>>,
    sides: [Side; 2],
    count: u64,
}
heap_size!(Quic { sides });

#[derive(Debug, Default)]
struct Side {
    /// Pieces of its handshake by their places.
    pieces: BTreeMap<usize, Vec<u8>>,
    /// It has said hello: what comes is encrypted.
    is_over: bool,
}
heap_size!(Side { pieces });

impl Parser for Quic {
    fn take(&mut self, side: usize, datagram: &[u8], said: &mut Said) {
        let mut rest = datagram;
        while !rest.is_empty() && !self.sides[side].is_over {
            let Some(packet) = Packet::read(rest) else { return };
            rest = packet.behind;
            self.packet(side, &packet, said);
        }
        if self.sides.iter().all(|it| it.is_over) {
            self.keys = None;
        }
    }
}

impl Quic {
    fn packet(&mut self, side: usize, packet: &Packet<'_>, said: &mut Said) {
        let mut unit = Unit::new(Protocol::Quic, self.count);
        self.count += 1;
        unit.text(Buffer::QuicVersion, &packet.version.to_be_bytes());
        let mut object = Object::default().with("version", version_name(packet.version));
        match packet.kind {
            Kind::Initial => {
                if self.keys.is_none() {
                    self.keys = Keys::of(packet.version, packet.destination).map(Box::new);
                }
                self.initial(side, packet, &mut unit, &mut object);
            }
            Kind::Google => tell::google(packet, &mut unit, &mut object),
            // The client begins again, with other keys.
            Kind::Retry if side == 1 => (self.keys, self.sides[0]) = Default::default(),
            _ => {}
        }
        unit.tells("quic", object);
        said.message(unit, side);
    }

    fn initial(&mut self, side: usize, packet: &Packet<'_>, unit: &mut Unit, object: &mut Object) {
        let Some(keys) = &self.keys else { return };
        let Some(frames) = keys.open(side, packet.bytes, packet.head) else {
            return unit.odd(AppEvent::QuicDecrypt);
        };
        let it = &mut self.sides[side];
        if let Err(event) = frames_of(&frames, |at, piece| it.put(at, piece)) {
            unit.odd(event);
        }
        match it.hello(side) {
            Ok(Some(hello)) => {
                (it.is_over, it.pieces) = (true, BTreeMap::new());
                tell::hello(side, &hello, unit, object);
            }
            Ok(None) => {}
            Err(event) => {
                it.pieces.clear();
                unit.odd(event);
            }
        }
    }
}

impl Side {
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

    /// The side's hello, once it is whole; an error: it says something else.
    fn hello(&self, side: usize) -> Result<Option<Hello>, AppEvent> {
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
        Ok(rest.get(..length).map(|it| Hello::read(it, side == 0)))
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
