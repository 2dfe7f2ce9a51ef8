//! How a connection begins: by three segments, by four where both ends begin, or unseen.

use weir_wire::tcp::flags::{ACK, FIN, RST, SYN};

use super::{OLDER, SHIFT_MAX, Segment, Session, State, before, is_valid, not_behind};
use crate::decode::Event;

/// Answers to a SYN with other numbers, and SYNs with others, that a connection may begin with.
const BEGINNINGS_MAX: u8 = 5;
const SYNS_MAX: u8 = 10;

impl Session {
    /// A segment of a connection that has not begun.
    pub(super) fn nothing(&mut self, segment: &Segment) -> Result<(), Event> {
        match () {
            () if segment.has(RST) => Err(Event::StreamRstWithoutSession),
            () if segment.has(FIN) => Err(Event::StreamFinWithoutSession),
            () if segment.has(SYN) && segment.flags & ACK == 0 => {
                self.begin(segment);
                Ok(())
            }
            () if self.takes_up && segment.has(ACK) => {
                self.take_up(segment);
                Ok(())
            }
            () => Ok(()),
        }
    }

    /// Follows it although nobody saw how it began. Who does not know how windows are shifted takes
    /// them to be as large as can be.
    fn take_up(&mut self, segment: &Segment) {
        let is_answer = segment.has(SYN);
        if is_answer && segment.side == 0 {
            return;
        }
        self.is_midstream = true;
        self.alone = self.follows_one_side.then_some(segment.side as u8);
        let (own, other) = self.both(segment.side);
        own.begin(segment.sequence.wrapping_sub(u32::from(!is_answer)));
        other.begin(segment.acknowledgment.wrapping_sub(1));
        if is_answer {
            other.acknowledge(segment.acknowledgment, segment.window);
            own.window = segment.window;
            own.window_end = own.next.wrapping_add(own.window);
            self.state = State::SynReceived;
            return;
        }
        for side in [&mut *own, &mut *other] {
            side.shift = SHIFT_MAX;
            side.acknowledge(side.next, segment.window << SHIFT_MAX);
        }
        own.sent(segment.end());
        self.state = State::Established;
    }

    /// The client's SYN: whatever was before is over.
    pub(super) fn begin(&mut self, segment: &Segment) {
        let Self { wants_handshakes, is_strict, .. } = *self;
        let asks_early = segment.asks_early;
        *self = Self {
            state: State::SynSent,
            wants_handshakes,
            is_strict,
            asks_early,
            ..Self::default()
        };
        let Self { sides: [client, server], .. } = self;
        client.begin(segment.sequence);
        if asks_early || !wants_handshakes {
            client.next = client.next.wrapping_add(segment.length);
        }
        server.window = segment.window;
        server.shift = segment.shift.map_or(0, |it| it.min(SHIFT_MAX));
    }

    /// A segment while a SYN waits for its answer.
    pub(super) fn syn_sent(
        &mut self,
        segment: &Segment,
        events: &mut Vec<Event>,
    ) -> Result<(), Event> {
        if segment.has(RST) {
            return self.reset_beginning(segment, events);
        }
        if segment.has(SYN | ACK) {
            return self.answer(segment);
        }
        if segment.has(SYN) {
            if segment.side == 1 {
                // Both ends begin.
                self.is_four_way = true;
                self.sides[1].begin(segment.sequence);
                return Ok(());
            }
            if segment.sequence != self.sides[0].first {
                let (syns, mut older) = (self.syns.saturating_add(1), self.older);
                older[usize::from(syns - 1) % OLDER] = self.sides[0].first;
                self.begin(segment);
                (self.syns, self.older) = (syns, older);
                if syns > SYNS_MAX {
                    return Err(Event::StreamSynFlood);
                }
            } else if !segment.asks_early {
                // What came with the SYN before is not to be taken.
                self.asks_early = false;
                self.sides[0].next = segment.sequence.wrapping_add(1);
            }
            return Ok(());
        }
        if self.follows_one_side && segment.has(ACK) && !segment.has(FIN) {
            return self.go_on_alone(segment);
        }
        Ok(())
    }

    /// A client goes on whose server is not seen.
    fn go_on_alone(&mut self, segment: &Segment) -> Result<(), Event> {
        let [client, server] = &mut self.sides;
        if segment.side == 1 || segment.sequence != client.next {
            return Err(Event::StreamAsyncWrongSeq);
        }
        self.alone = Some(0);
        client.acknowledge(segment.end(), segment.window);
        server.begin(segment.acknowledgment.wrapping_sub(1));
        server.acknowledged = server.next;
        (server.window, server.window_end) = (0, server.next);
        self.state = State::Established;
        Ok(())
    }

    /// The answer to a SYN.
    fn answer(&mut self, segment: &Segment) -> Result<(), Event> {
        let [client, server] = &mut self.sides;
        if self.is_four_way && segment.side == 0 {
            if segment.acknowledgment != server.first.wrapping_add(1) {
                return Err(Event::StreamFourWayWrongAck);
            }
            if segment.sequence != client.first {
                return Err(Event::StreamFourWayWrongSyn);
            }
            self.state = State::SynReceived;
            client.acknowledged = client.next;
            server.acknowledge(segment.acknowledgment, segment.window);
            return Ok(());
        }
        if segment.side == 0 {
            return Err(Event::StreamSynAckWrongDirection);
        }
        let older = &self.older[..OLDER.min(self.syns.into())];
        if older.contains(&segment.acknowledgment.wrapping_sub(1)) {
            client.begin(segment.acknowledgment.wrapping_sub(1));
        }
        let is_whole = segment.acknowledgment == client.next;
        let is_of_syn = segment.acknowledgment == client.first.wrapping_add(1);
        if !is_whole && !is_of_syn {
            return Err(Event::StreamSynAckWrongAck);
        }
        self.is_four_way = false;
        // What came with the SYN was not taken, and comes again.
        client.next = segment.acknowledgment;
        server.begin(segment.sequence);
        server.acknowledged = server.next;
        client.shift = segment.shift.map_or(0, |it| it.min(SHIFT_MAX));
        if segment.shift.is_none() {
            server.shift = 0;
        }
        client.acknowledge(segment.acknowledgment, segment.window);
        server.window_end = server.next.wrapping_add(server.window);
        self.state = State::SynReceived;
        if is_whole || !self.asks_early { Ok(()) } else { Err(Event::StreamFastOpenIgnored) }
    }

    /// A segment while the answer waits for its acknowledgment.
    pub(super) fn syn_received(
        &mut self,
        segment: &Segment,
        events: &mut Vec<Event>,
    ) -> Result<(), Event> {
        let [client, server] = &mut self.sides;
        if segment.has(RST) {
            return self.reset_beginning(segment, events);
        }
        if segment.has(FIN) {
            return self.fin(segment, events);
        }
        if segment.has(SYN | ACK) {
            return match () {
                () if segment.side == 0 => Err(Event::StreamSynAckToServer),
                () if segment.acknowledgment != client.first.wrapping_add(1) => {
                    Err(Event::StreamSynAckDifferentAck)
                }
                () if segment.sequence != server.first => {
                    self.beginnings = self.beginnings.saturating_add(1);
                    let place = usize::from(self.beginnings - 1) % OLDER;
                    self.older[place] = segment.sequence;
                    match self.beginnings > BEGINNINGS_MAX {
                        true => Err(Event::StreamSynAckFlood),
                        false => Ok(()),
                    }
                }
                () => Ok(()),
            };
        }
        if segment.has(SYN) {
            return match () {
                () if segment.side == 1 => Err(Event::StreamSynToClient),
                () if segment.sequence != client.first => Err(Event::StreamSynDifferentSeq),
                () => Ok(()),
            };
        }
        if segment.flags & ACK == 0 {
            return Ok(());
        }
        self.last_of_handshake(segment, events)
    }

    fn last_of_handshake(
        &mut self,
        segment: &Segment,
        events: &mut Vec<Event>,
    ) -> Result<(), Event> {
        let [client, server] = &mut self.sides;
        if self.is_four_way && segment.side == 1 {
            if segment.sequence != server.next {
                return Err(Event::StreamFourWayWrongSeq);
            }
            if !is_valid(segment, client) {
                events.push(Event::StreamInvalidAck);
                return Err(Event::StreamFourWayInvalidAck);
            }
            client.acknowledge(segment.acknowledgment, segment.window << client.shift);
            server.sent(segment.end());
            self.state = State::Established;
            return Ok(());
        }
        if segment.side == 1 {
            if self.is_strict && self.alone.is_none() {
                let is_next = segment.sequence == server.next && segment.length > 0;
                return Err(match is_next && segment.acknowledgment == client.acknowledged {
                    _ if self.is_midstream => Event::StreamWrongSeqWrongAck,
                    true => Event::StreamDataInjected,
                    false => Event::StreamAckWrongDirection,
                });
            }
            // The server speaks of more, so it heard what was not seen here.
            let has_heard = before(client.next, segment.acknowledgment);
            let is_alone = self.alone.is_some();
            let is_answer = segment.sequence == server.next
                && (is_alone || segment.acknowledgment == client.acknowledged);
            let floor = server.next.wrapping_sub(server.window);
            if !is_answer && (!has_heard || before(segment.sequence, floor)) {
                return Err(Event::StreamWrongSeqWrongAck);
            }
            self.state = State::Established;
            server.next = segment.end();
            client.acknowledge(segment.acknowledgment, segment.window << client.shift);
            return Ok(());
        }
        // Of several answers the one that is acknowledged counts.
        let first = segment.acknowledgment.wrapping_sub(1);
        if self.older[..OLDER.min(self.beginnings.into())].contains(&first) {
            server.begin(first);
            server.acknowledged = server.next;
            server.window_end = server.next.wrapping_add(server.window);
        }
        let is_next = segment.sequence == client.next;
        let acknowledges = segment.acknowledgment == server.next;
        let is_ahead = before(client.next, segment.sequence)
            && not_behind(segment.sequence, client.window_end)
            && segment.acknowledgment == server.next;
        if !(is_next && acknowledges || is_ahead) {
            return Err(match is_next {
                true => Event::StreamRightSeqWrongAck,
                false => Event::StreamWrongSeqWrongAck,
            });
        }
        self.state = State::Established;
        server.acknowledge(segment.acknowledgment, segment.window << server.shift);
        client.sent(segment.end());
        Ok(())
    }

    /// A reset while a connection begins.
    fn reset_beginning(&mut self, segment: &Segment, events: &mut Vec<Event>) -> Result<(), Event> {
        let (is_sent, as_asked) = (self.state == State::SynSent, self.wants_handshakes);
        let is_first = is_sent && self.follows_one_side && segment.side == 0;
        let is_alone = self.alone == Some(segment.side as u8);
        let (own, other) = self.both(segment.side);
        let is_right = match is_sent {
            true if is_first => true,
            true => segment.side == 1 && segment.acknowledgment == other.next,
            false => is_valid(segment, other),
        };
        // Who has no connection answers an acknowledgment alone with its number (RFC 9293 s3.5.2).
        if segment.has(ACK) && segment.acknowledgment != 0 && !is_right {
            events.push(Event::StreamInvalidAck);
            return Err(Event::StreamRstInvalidAck);
        }
        let is_meant = match is_sent && segment.side == 1 {
            true if as_asked => segment.sequence == own.next,
            true => segment.acknowledgment == other.next,
            false if as_asked && is_alone => !before(segment.sequence, own.next),
            false if as_asked => !is_sent && segment.sequence == own.next,
            false => segment.sequence == own.next || segment.sequence == own.first,
        };
        match is_meant {
            true => self.close(segment),
            false => self.is_refused = true,
        }
        Ok(())
    }
}
