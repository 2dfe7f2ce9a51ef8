//! Which segments of a connection their receivers take: what a receiver discards hides nothing
//! that it reads.
//!
//! The tests are those that every receiver makes (RFC 9293 s3.10.7.4, RFC 7323 s5.3): of the
//! sequence number, of the acknowledgment, of the timestamp. Whether a segment is odd beyond that
//! is [`session`](crate::session)'s matter. Nothing is tested of a connection of which not both
//! beginnings were seen.

use crate::sequence::{before, later};
use weir_wire::tcp::flags::{ACK, FIN, RST, SYN};

use crate::packet::View;

/// The largest shift of a window (RFC 7323 s2.3).
const SHIFT_MAX: u8 = 14;

/// The timestamp of a side that has told none that counts: stacks take zero for that.
const UNSET: u32 = 0;

/// What a segment's header says.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Header {
    pub(super) sequence: u32,
    pub(super) acknowledgment: u32,
    pub(super) flags: u8,
    pub(super) window: u16,
    /// Bytes of data.
    pub(super) length: u32,
    /// A SYN's window shift.
    pub(super) shift: Option<u8>,
    pub(super) timestamp: Option<u32>,
}

impl Header {
    /// That of a packet of TCP with such numbers (sequence, acknowledgment) and flags.
    pub(super) fn of(view: &View<'_>, [sequence, acknowledgment]: [u32; 2], flags: u8) -> Self {
        Self {
            sequence,
            acknowledgment,
            flags,
            window: view.tcp_window(),
            length: view.payload.len() as u32,
            shift: if flags & SYN == 0 { None } else { view.tcp_shift() },
            timestamp: view.tcp_timestamps().map(|it| it.0),
        }
    }
}

/// What is known of what a side sends, and of the room that the other has for it.
#[derive(Clone, Copy, Debug, Default)]
struct Side {
    has_begun: bool,
    /// Its SYN's number.
    first: u32,
    /// Behind the last byte that it sent.
    sent: u32,
    /// Up to where the other has it.
    acknowledged: u32,
    /// The end of the other's room.
    room: u32,
    /// How it shifts its own windows, and the widest that it gave.
    shift: Option<u8>,
    widest: u32,
    /// The timestamp that segments may not be older than (TS.Recent).
    timestamp: Option<u32>,
    /// Behind its FIN.
    fin: Option<u32>,
}

/// Both sides of a connection.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Acceptance {
    sides: [Side; 2],
    goes_on: bool,
    /// Acknowledgments of what is long ago are believed: some receivers take what comes with them.
    pub(super) believes_old: bool,
    /// By which side a reset came that its receiver heeds, if it gets it: it has the number of
    /// what that waits for (RFC 5961 s3.2).
    is_reset_by: [bool; 2],
    /// Number of the client's last SYN.
    syn: u32,
    /// It came when the connection went on.
    is_asked_again: bool,
    /// The server's answer before the last one: the client tells which of them it took.
    other: Option<Side>,
    chosen: Option<u32>,
}

impl Acceptance {
    /// Whether the receiver takes a segment in; what it says is noted if so. With `sees_all`, all
    /// that the receiver sent came by here before it was acknowledged.
    pub(super) fn takes(&mut self, side: usize, header: &Header, sees_all: bool) -> bool {
        if header.flags & (SYN | RST) != 0 {
            if header.flags & RST == 0 {
                self.begin(side, header);
            } else {
                self.is_reset_by[side] |= header.sequence == self.sides[side].acknowledged;
            }
            return true;
        }
        if !self.sides.iter().all(|it| it.has_begun) {
            return true;
        }
        self.choose(side, header);
        let is_taken = self.is_acceptable(side, header, sees_all);
        if !is_taken && self.is_probe(side, header) {
            let own = &mut self.sides[side];
            own.sent = later(own.sent, header.sequence.wrapping_add(1));
        }
        // What acknowledges nothing is discarded too (RFC 9293 s3.10.7.4).
        if is_taken && header.flags & ACK != 0 {
            self.note(side, header);
        }
        is_taken
    }

    /// Whether the client's last SYN has this number.
    pub(super) fn is_last_syn(&self, sequence: u32) -> bool {
        self.syn == sequence
    }

    /// The client acknowledges one of several answers.
    fn choose(&mut self, side: usize, header: &Header) {
        if side != 0 || self.goes_on || header.flags & ACK == 0 {
            return;
        }
        let is_of = |it: &Side| header.acknowledgment == it.first.wrapping_add(1);
        if let Some(other) = self.other.take_if(|it| is_of(it))
            && !is_of(&self.sides[1])
        {
            self.chosen = Some(other.first);
            self.sides[1] = other;
        }
        self.goes_on = is_of(&self.sides[1]);
    }

    /// The number of the server's SYN, if it was found out to be another than the last.
    pub(super) fn take_chosen(&mut self) -> Option<u32> {
        self.chosen.take()
    }

    /// Whether a server's answer may count: the first, or another to a SYN that was seen.
    pub(super) fn may_count(&self, header: &Header) -> bool {
        let [client, server] = &self.sides;
        let number = header.acknowledgment;
        let answers = number == client.acknowledged || number.wrapping_sub(1) == self.syn;
        !server.has_begun || answers
    }

    /// A SYN: until one is answered and more is said the last counts.
    fn begin(&mut self, side: usize, header: &Header) {
        let is_answer = header.flags & ACK != 0;
        let [client, server] = &self.sides;
        let is_new = match side {
            0 => !is_answer && !server.has_begun,
            _ if is_answer => client.has_begun && !self.goes_on && self.may_count(header),
            // Both begin (RFC 9293 s3.5): the client answers.
            _ => client.has_begun && !server.has_begun,
        };
        if side == 0 && !is_answer {
            self.syn = header.sequence;
            self.is_asked_again |= self.goes_on;
        }
        if !is_new {
            return;
        }
        let known = self.sides[side];
        let shift = header.shift.map(|it| it.min(SHIFT_MAX));
        let repeats = known.has_begun && known.first == header.sequence;
        if is_answer && known.has_begun && !repeats {
            self.other = Some(known);
        }
        self.sides[side] = Side {
            has_begun: true,
            first: header.sequence,
            sent: header.sequence.wrapping_add(1 + header.length),
            acknowledged: header.sequence,
            room: header.sequence.wrapping_add(1 + u32::from(u16::MAX)),
            // Which of several SYNs with one number arrived, nobody knows.
            shift: if repeats { shift.max(known.shift) } else { shift },
            widest: header.window.into(),
            fin: None,
            timestamp: match (known.timestamp, header.timestamp) {
                (Some(old), Some(new)) if repeats && before(old, new) => Some(old),
                (_, new) => new,
            },
        };
        if is_answer {
            self.answer(header);
        } else if side == 1 {
            let acknowledgment = self.sides[0].first.wrapping_add(1);
            self.answer(&Header { acknowledgment, ..*header });
        }
    }

    /// What the server's SYN says of the client's.
    fn answer(&mut self, header: &Header) {
        let [client, server] = &mut self.sides;
        let number = header.acknowledgment;
        if !before(client.first, number) || before(client.sent, number) {
            // It answers one before the last, which may have said something else.
            client.timestamp = client.timestamp.map(|_| UNSET);
            client.shift = Some(SHIFT_MAX);
        }
        (client.acknowledged, client.sent) = (number, number);
        // The window of a SYN is not shifted (RFC 7323 s2.2).
        client.room = number.wrapping_add(header.window.into());
        if server.shift.is_none() {
            client.shift = None;
        }
        // Timestamps that not both offered mean nothing (RFC 7323 s3.2).
        if server.timestamp.is_none() {
            client.timestamp = None;
        } else if client.timestamp.is_none() {
            server.timestamp = None;
        }
    }

    /// Whether a server's SYN answers one that came in a connection that went on: only a server
    /// that no longer knows it does (RFC 9293 s3.5.1).
    pub(super) fn is_another(&self, header: &Header) -> bool {
        let [client, server] = &self.sides;
        let answered = header.acknowledgment.wrapping_sub(1);
        // The client may have begun again with the same number.
        let is_asked = answered != client.first || self.is_asked_again;
        let is_new = is_asked && header.sequence != server.first;
        self.goes_on && answered == self.syn && is_new
    }

    /// A connection that begins with the client's last SYN.
    pub(super) fn anew(&self) -> Self {
        let first = self.syn;
        let believes_old = self.believes_old;
        let mut anew = Self { syn: first, believes_old, ..Self::default() };
        // What else it said was not kept: nothing narrower than that.
        let (shift, timestamp) = (Some(SHIFT_MAX), Some(UNSET));
        let client =
            Side { has_begun: true, first, sent: first, shift, timestamp, ..Side::default() };
        anew.sides[0] = client;
        anew
    }

    /// Numbers that each side has used so far, its SYN's and its FIN's among them; `None` where not
    /// both beginnings were seen.
    pub(super) fn used(&self) -> Option<[u64; 2]> {
        let is_whole = self.sides.iter().all(|it| it.has_begun);
        is_whole.then(|| self.sides.each_ref().map(|it| it.sent.wrapping_sub(it.first).into()))
    }

    /// Whether it is over for both ends when this side begins anew, or was not seen from its
    /// beginning: the other side has reset it, or both have all that the other said. Whether a
    /// side's own reset arrived only the other's answer tells.
    pub(super) fn may_be_over_for(&self, side: usize) -> bool {
        let is_whole = self.sides.iter().all(|it| it.has_begun);
        !is_whole || self.is_reset_by[1 - side] || self.is_over()
    }

    /// Whether both sides have all that the other said, and that it says no more.
    pub(super) fn is_over(&self) -> bool {
        let has_ended = |it: &Side| it.fin.is_some_and(|fin| !before(it.acknowledged, fin));
        self.sides.iter().all(has_ended)
    }

    /// Whether no more is said: it is over, or, for who has seen it received, a side has reset it.
    pub(super) fn has_ended(&self, waits: bool) -> bool {
        self.is_over() || (waits && self.is_reset_by != [false; 2])
    }

    /// Whether anything was said behind both beginnings.
    pub(super) fn goes_on(&self) -> bool {
        self.goes_on
    }

    /// Whether its timestamp is older than the receiver's last one (RFC 7323 s5.3).
    pub(super) fn is_old(&self, side: usize, header: &Header) -> bool {
        match (self.sides[side].timestamp, header.timestamp) {
            // Linux takes one that is older by one.
            (Some(recent), Some(timestamp)) => {
                recent != UNSET && before(timestamp.wrapping_add(1), recent)
            }
            _ => false,
        }
    }

    /// Whether it asks whether a closed window has opened (RFC 9293 s3.8.6.1), which it may have
    /// before the segment arrives.
    pub(super) fn is_probe(&self, side: usize, header: &Header) -> bool {
        header.length == 1 && header.sequence == self.sides[side].room
    }

    fn is_acceptable(&self, side: usize, header: &Header, sees_all: bool) -> bool {
        let (own, other) = (&self.sides[side], &self.sides[1 - side]);
        if self.is_old(side, header) {
            return false;
        }
        if header.length > 0 && !before(header.sequence, own.room) {
            return false;
        }
        if header.flags & ACK == 0 {
            return true;
        }
        let end = if sees_all { other.sent } else { later(other.sent, other.room) };
        let floor = other.acknowledged.wrapping_sub(own.widest);
        !before(end, header.acknowledgment)
            && (self.believes_old || !before(header.acknowledgment, floor))
    }

    fn note(&mut self, side: usize, header: &Header) {
        self.goes_on |= header.length > 0 || header.flags & FIN != 0;
        let [own, other] = match &mut self.sides {
            [client, server] if side == 0 => [client, server],
            [client, server] => [server, client],
        };
        let end = header.sequence.wrapping_add(header.length);
        // More behind its FIN: whoever hears that has not heard the FIN.
        if header.length > 0 && own.fin.is_some_and(|fin| !before(end, fin)) {
            own.fin = None;
        }
        let end = end.wrapping_add(u32::from(header.flags & FIN != 0));
        // One before what it sent is old, and ends nothing.
        if header.flags & FIN != 0 && !before(end.wrapping_sub(1), own.sent) {
            own.fin = Some(end);
        }
        let is_of_room = !before(own.room, header.sequence);
        if is_of_room {
            own.sent = later(own.sent, end);
        }
        // Of segments that bring what the receiver waits for, and of no others (RFC 7323 s4.3).
        let is_next = !before(own.acknowledged, header.sequence) && !before(end, own.acknowledged);
        if own.timestamp.is_some() && header.timestamp.is_some() && is_next {
            own.timestamp = header.timestamp;
        }
        if header.flags & ACK != 0 {
            let window = u32::from(header.window) << own.shift.unwrap_or(0);
            own.widest = own.widest.max(window);
            other.acknowledged = later(other.acknowledged, header.acknowledgment);
            other.room = later(other.room, header.acknowledgment.wrapping_add(window));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CLIENT: u32 = u32::MAX - 50;
    const SERVER: u32 = 7000;

    fn header(flags: u8, sequence: u32, acknowledgment: u32, length: u32) -> Header {
        Header { sequence, acknowledgment, flags, window: 1000, length, ..Header::default() }
    }

    fn begun(client: Header, server: Header) -> Acceptance {
        let mut acceptance = Acceptance::default();
        assert!(acceptance.takes(0, &client, true));
        assert!(acceptance.takes(1, &server, true));
        acceptance
    }

    fn connected() -> Acceptance {
        let answer = header(SYN | ACK, SERVER, CLIENT.wrapping_add(1), 0);
        let mut acceptance = begun(header(SYN, CLIENT, 0, 0), answer);
        assert!(acceptance.takes(0, &data(0, 0, 0), true));
        acceptance
    }

    /// Of the client, so far into both streams.
    fn data(at: u32, acknowledged: u32, length: u32) -> Header {
        header(ACK, CLIENT.wrapping_add(1 + at), SERVER.wrapping_add(1 + acknowledged), length)
    }

    fn answer(at: u32, acknowledged: u32, length: u32) -> Header {
        header(ACK, SERVER + 1 + at, CLIENT.wrapping_add(1 + acknowledged), length)
    }

    #[test]
    fn data_is_taken_up_to_the_end_of_the_receivers_window() {
        let mut connection = connected();
        assert!(!connection.takes(0, &data(1000, 0, 1), true));
        assert!(connection.takes(0, &data(999, 0, 1), true));
        assert!(connection.takes(1, &answer(0, 500, 0), true));
        assert!(connection.takes(0, &data(1499, 0, 1), true));
        assert!(!connection.takes(0, &data(1500, 0, 1), true));
    }

    #[test]
    fn who_acknowledges_what_was_not_sent_or_long_ago_is_not_heard() {
        let mut connection = connected();
        assert!(!connection.takes(0, &data(0, 1, 5), true));
        assert!(connection.takes(1, &answer(0, 0, 900), true));
        assert!(connection.takes(0, &data(0, 900, 5), true));
        assert!(connection.takes(0, &data(5, 0, 5), true));
        for at in 1..4 {
            assert!(connection.takes(1, &answer(at * 900, 5, 900), true));
            assert!(connection.takes(0, &data(10, (at + 1) * 900, 0), true));
        }
        assert!(!connection.takes(0, &data(10, 0, 5), true));
    }

    #[test]
    fn a_connection_is_over_when_both_have_each_others_fin_and_no_more_comes() {
        let fin = |header: Header| Header { flags: ACK | FIN, ..header };
        let half_closed = || {
            let mut connection = connected();
            assert!(connection.takes(1, &fin(answer(0, 0, 0)), true));
            assert!(connection.takes(0, &data(0, 1, 5), true));
            assert!(connection.takes(1, &answer(1, 5, 0), true));
            connection
        };
        // One with a number that was acknowledged is heard by nobody.
        let mut connection = half_closed();
        assert!(connection.takes(0, &fin(data(0, 1, 0)), true));
        assert!(connection.takes(1, &answer(1, 5, 0), true));
        assert!(!connection.is_over());
        // In the place of this one data come: it did not arrive.
        assert!(connection.takes(0, &fin(data(5, 1, 0)), true));
        assert!(connection.takes(0, &data(5, 1, 1), true));
        assert!(connection.takes(1, &answer(1, 6, 0), true));
        assert!(!connection.is_over());
        assert!(connection.takes(0, &fin(data(6, 1, 2)), true));
        assert!(!connection.is_over());
        assert!(connection.takes(1, &answer(1, 9, 0), true));
        assert!(connection.is_over());
    }

    #[test]
    fn who_has_not_seen_all_believes_acknowledgments_within_the_window() {
        let mut connection = connected();
        assert!(connection.takes(0, &data(0, 900, 5), false));
        assert!(!connection.takes(0, &data(5, 70_000, 5), false));
    }

    #[test]
    fn timestamps_go_forward_with_what_the_receiver_waits_for() {
        let stamped = |header: Header, timestamp| Header { timestamp: Some(timestamp), ..header };
        let first = stamped(header(SYN, CLIENT, 0, 0), 100);
        let second = stamped(header(SYN | ACK, SERVER, CLIENT.wrapping_add(1), 0), 1);
        let mut connection = begun(first, second);
        // Far ahead in time, but not what the receiver waits for.
        assert!(connection.takes(0, &stamped(data(10, 0, 5), 9000), true));
        assert!(connection.takes(0, &stamped(data(0, 0, 5), 200), true));
        assert!(!connection.takes(0, &stamped(data(5, 0, 5), 150), true));
        assert!(connection.takes(0, &data(5, 0, 5), true));
    }

    #[test]
    fn windows_are_shifted_where_both_sides_say_so() {
        let shifted = |header: Header, shift| Header { shift: Some(shift), ..header };
        let answer_of = header(SYN | ACK, SERVER, CLIENT.wrapping_add(1), 0);
        for (shift, is_taken) in [(Some(3), true), (None, false)] {
            let second = Header { shift, ..answer_of };
            let mut connection = begun(shifted(header(SYN, CLIENT, 0, 0), 7), second);
            assert!(connection.takes(1, &answer(0, 0, 5), true));
            assert_eq!(connection.takes(0, &data(7999, 0, 5), true), is_taken);
        }
    }

    #[test]
    fn what_began_unseen_is_not_judged() {
        let mut connection = Acceptance::default();
        assert!(connection.takes(0, &data(0, 50_000, 5), true));
        assert!(connection.takes(1, &answer(90_000, 5, 5), true));
    }

    #[test]
    fn the_last_of_several_syns_before_the_answer_counts() {
        let mut connection = Acceptance::default();
        let other = CLIENT.wrapping_sub(400_000);
        connection.takes(0, &header(SYN, other, 0, 0), true);
        connection.takes(0, &header(SYN, CLIENT, 0, 0), true);
        connection.takes(1, &header(SYN | ACK, SERVER, CLIENT.wrapping_add(1), 0), true);
        // A late one changes nothing.
        connection.takes(0, &header(SYN, other, 0, 0), true);
        assert!(connection.takes(0, &data(0, 0, 5), true));
        assert!(!connection.takes(0, &data(1000, 0, 5), true));
    }
}
