//! Which outer port is whose. A client's port has one outer port, whomever it speaks to (RFC 4787
//! REQ-1, RFC 5382 REQ-1), the same number where that is free.

use std::collections::HashMap;

use weir_wire::frame::Time;
use weir_wire::tcp::flags;

use super::packet::Packet;
use crate::verdict::DropReason;

/// Outer ports from this one on, for each protocol.
const PORT_FIRST: u16 = 1024;
const PORTS: usize = 65536 - PORT_FIRST as usize;
const WORD: usize = u64::BITS as usize;
const _: () = assert!(PORTS.is_multiple_of(WORD));
/// Outer ports of one client, of all protocols: one cannot use up what is everybody's.
pub(super) const CLIENT_PORTS_MAX: u32 = 8192;
/// Ports looked at in one call of [`Table::expire`], of each protocol.
const EXPIRED_MAX: usize = 2048;

const SECOND: u64 = 1_000_000_000;
/// RFC 4787 REQ-5: two minutes at least, five by default.
const UDP_NS: u64 = 300 * SECOND;
/// RFC 5508 REQ-1: sixty seconds at least.
const ECHO_NS: u64 = 60 * SECOND;
/// RFC 5382 REQ-5: established, two hours and four minutes at least; else four minutes.
const TCP_NS: u64 = (2 * 3600 + 4 * 60) * SECOND;
const TCP_TRANSITORY_NS: u64 = 240 * SECOND;
/// A packet so long after a FIN or RST is another connection's.
const TCP_CLOSED_NS: u64 = 60 * SECOND;

/// What has ports here.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Protocol {
    Tcp,
    Udp,
    /// ICMP echo, by its number.
    Echo,
}

/// What a TCP packet says of its connection.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Flags {
    opens: bool,
    closes: bool,
}

impl Flags {
    pub(super) fn of(packet: &Packet<'_>) -> Self {
        let bits = packet.tcp_flags().unwrap_or_default();
        let (opens, closes) = (flags::SYN, flags::FIN | flags::RST);
        Self { opens: bits & opens != 0, closes: bits & closes != 0 }
    }
}

#[derive(Clone, Copy, Debug)]
struct Mapping {
    client: [u8; 4],
    port: u16,
    used: Time,
    /// Whether packets that open nothing went out and came in.
    spoken: [bool; 2],
    /// When a connection ended; another may have begun since.
    closed: Option<Time>,
}

impl Mapping {
    fn life_ns(&self, protocol: Protocol) -> u64 {
        match protocol {
            Protocol::Udp => UDP_NS,
            Protocol::Echo => ECHO_NS,
            Protocol::Tcp if self.spoken == [true; 2] && self.closed.is_none() => TCP_NS,
            Protocol::Tcp => TCP_TRANSITORY_NS,
        }
    }

    fn is_over(&self, protocol: Protocol, now: Time) -> bool {
        now.since_ns(self.used) > self.life_ns(protocol)
    }

    fn note(&mut self, now: Time, flags: Flags, comes_in: bool) {
        self.used = now;
        if flags.closes {
            self.closed = Some(now);
        } else if flags.opens {
            (self.spoken, self.closed) = ([false; 2], None);
        } else {
            self.spoken[usize::from(comes_in)] = true;
            self.closed = self.closed.filter(|at| now.since_ns(*at) < TCP_CLOSED_NS);
        }
    }
}

/// The ports of one protocol.
#[derive(Debug, Default)]
struct Ports {
    /// By outer port; empty until the first one is needed.
    mappings: Vec<Option<Mapping>>,
    /// A bit for each of them that is taken.
    taken: Vec<u64>,
    /// The word of those bits where the search goes on, and the port where the sweep does.
    next: usize,
    swept: usize,
}

impl Ports {
    /// Finds a free one: `wanted`, or the next.
    fn find(&mut self, wanted: Option<usize>) -> Option<usize> {
        let is_free = |it: &usize| self.taken[it / WORD] >> (it % WORD) & 1 == 0;
        if let Some(wanted) = wanted.filter(is_free) {
            return Some(wanted);
        }
        let words = self.taken.len();
        let mut order = (self.next..self.next + words).map(|it| it % words);
        let word = order.find(|it| self.taken[*it] != u64::MAX)?;
        self.next = (word + 1) % words;
        Some(word * WORD + self.taken[word].trailing_ones() as usize)
    }

    fn take(&mut self, place: usize, mapping: Mapping) {
        self.mappings[place] = Some(mapping);
        self.taken[place / WORD] |= 1 << (place % WORD);
    }

    fn free(&mut self, place: usize) -> Option<Mapping> {
        self.taken[place / WORD] &= !(1 << (place % WORD));
        self.mappings[place].take()
    }
}

/// All translations.
#[derive(Debug, Default)]
pub(super) struct Table {
    ports: [Ports; 3],
    by_client: HashMap<(Protocol, [u8; 4], u16), u16>,
    held: HashMap<[u8; 4], u32>,
}

impl Table {
    /// The outer port of a client's, new where it has none.
    ///
    /// # Errors
    /// [`DropReason::NatFull`]: those that there are go on.
    pub(super) fn outbound(
        &mut self,
        now: Time,
        protocol: Protocol,
        (client, port): ([u8; 4], u16),
        flags: Flags,
    ) -> Result<u16, DropReason> {
        let known = self.port_of(now, protocol, client, port);
        let outer = match known {
            Some(outer) => outer,
            None => self.map(now, protocol, client, port)?,
        };
        if let Some(mapping) = self.at(protocol, outer) {
            mapping.note(now, flags, false);
        }
        Ok(outer)
    }

    /// Whose an outer port is; a packet came for it.
    pub(super) fn inbound(
        &mut self,
        now: Time,
        protocol: Protocol,
        outer: u16,
        flags: Flags,
    ) -> Option<([u8; 4], u16)> {
        let mapping = self.at(protocol, outer)?;
        if mapping.is_over(protocol, now) {
            return None;
        }
        mapping.note(now, flags, true);
        Some((mapping.client, mapping.port))
    }

    /// Whose an outer port is.
    pub(super) fn client_of(
        &mut self,
        now: Time,
        protocol: Protocol,
        outer: u16,
    ) -> Option<([u8; 4], u16)> {
        let mapping = self.at(protocol, outer)?;
        (!mapping.is_over(protocol, now)).then_some((mapping.client, mapping.port))
    }

    /// The outer port that a client's port has.
    pub(super) fn port_of(
        &mut self,
        now: Time,
        protocol: Protocol,
        client: [u8; 4],
        port: u16,
    ) -> Option<u16> {
        let outer = *self.by_client.get(&(protocol, client, port))?;
        let is_over = self.at(protocol, outer).is_none_or(|it| it.is_over(protocol, now));
        if is_over {
            self.remove(protocol, place(outer)?);
        }
        (!is_over).then_some(outer)
    }

    /// Ends translations that were not used for long.
    pub(super) fn expire(&mut self, now: Time) {
        for protocol in [Protocol::Tcp, Protocol::Udp, Protocol::Echo] {
            let ports = &self.ports[protocol as usize];
            if ports.mappings.is_empty() {
                continue;
            }
            let from = ports.swept;
            for place in (from..from + EXPIRED_MAX).map(|it| it % PORTS) {
                let mapping = self.ports[protocol as usize].mappings[place];
                if mapping.is_some_and(|it| it.is_over(protocol, now)) {
                    self.remove(protocol, place);
                }
            }
            self.ports[protocol as usize].swept = (from + EXPIRED_MAX) % PORTS;
        }
    }

    /// Ends the translations of clients that are gone.
    pub(super) fn retain(&mut self, mut is_there: impl FnMut([u8; 4]) -> bool) {
        let gone: Vec<[u8; 4]> = self.held.keys().copied().filter(|it| !is_there(*it)).collect();
        if gone.is_empty() {
            return;
        }
        for protocol in [Protocol::Tcp, Protocol::Udp, Protocol::Echo] {
            for place in 0..self.ports[protocol as usize].mappings.len() {
                let mapping = self.ports[protocol as usize].mappings[place];
                if mapping.is_some_and(|it| gone.contains(&it.client)) {
                    self.remove(protocol, place);
                }
            }
        }
    }

    fn at(&mut self, protocol: Protocol, outer: u16) -> Option<&mut Mapping> {
        self.ports[protocol as usize].mappings.get_mut(place(outer)?)?.as_mut()
    }

    fn map(
        &mut self,
        now: Time,
        protocol: Protocol,
        client: [u8; 4],
        port: u16,
    ) -> Result<u16, DropReason> {
        if self.held.get(&client).is_some_and(|held| *held >= CLIENT_PORTS_MAX) {
            return Err(DropReason::NatFull);
        }
        let ports = &mut self.ports[protocol as usize];
        if ports.mappings.is_empty() {
            ports.mappings = vec![None; PORTS];
            ports.taken = vec![0; PORTS / WORD];
        }
        let found = ports.find(place(port)).ok_or(DropReason::NatFull)?;
        let mapping = Mapping { client, port, used: now, spoken: [false; 2], closed: None };
        ports.take(found, mapping);
        let outer = PORT_FIRST + found as u16;
        self.by_client.insert((protocol, client, port), outer);
        *self.held.entry(client).or_default() += 1;
        Ok(outer)
    }

    fn remove(&mut self, protocol: Protocol, place: usize) {
        let Some(gone) = self.ports[protocol as usize].free(place) else { return };
        self.by_client.remove(&(protocol, gone.client, gone.port));
        if let Some(held) = self.held.get_mut(&gone.client) {
            *held -= 1;
            if *held == 0 {
                self.held.remove(&gone.client);
            }
        }
    }
}

/// Where an outer port stands in its table.
fn place(outer: u16) -> Option<usize> {
    outer.checked_sub(PORT_FIRST).map(usize::from)
}
