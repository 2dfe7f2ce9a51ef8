//! How a connection ends.

use weir_wire::tcp::flags::{ACK, FIN, RST, SYN};

use super::{Segment, Session, Side, State, before, is_valid, later, not_behind};
use crate::decode::Event;

/// What a state says of a segment that it does not expect: of its place, of what it acknowledges.
#[derive(Clone, Copy)]
struct Complaints {
    fin: Event,
    place: Event,
    acknowledgment: Event,
}

impl State {
    fn complaints(self) -> Complaints {
        let (fin, place, acknowledgment) = match self {
            Self::FinWait1 => (
                Event::StreamFin1WrongSeq,
                Event::StreamFin1AckWrongSeq,
                Event::StreamFin1InvalidAck,
            ),
            Self::FinWait2 => (
                Event::StreamFin2WrongSeq,
                Event::StreamFin2AckWrongSeq,
                Event::StreamFin2InvalidAck,
            ),
            Self::CloseWait => (
                Event::StreamCloseWaitFinOutOfWindow,
                Event::StreamCloseWaitAckOutOfWindow,
                Event::StreamCloseWaitInvalidAck,
            ),
            Self::LastAck => (
                Event::StreamLastAckWrongSeq,
                Event::StreamLastAckWrongSeq,
                Event::StreamLastAckInvalidAck,
            ),
            Self::Closing => (
                Event::StreamClosingWrongSeq,
                Event::StreamClosingWrongSeq,
                Event::StreamClosingInvalidAck,
            ),
            _ => (
                Event::StreamTimeWaitWrongSeq,
                Event::StreamTimeWaitWrongSeq,
                Event::StreamTimeWaitInvalidAck,
            ),
        };
        Complaints { fin, place, acknowledgment }
    }
}

impl Segment {
    /// Whether a state expects it where it stands.
    fn place(&self, state: State, own: &Side, other: &Side, repeats: bool) -> Result<(), Event> {
        let (sequence, next, complaints) = (self.sequence, own.next, state.complaints());
        let distance = sequence.wrapping_sub(next) as i32;
        let limit = own.acknowledged.wrapping_add(own.window.max(1));
        let is_beyond = |number| before(limit, number) && before(next, number);
        let is_wrong = match (state, self.has(FIN)) {
            (State::Closing, _) => distance != 0,
            _ if repeats => false,
            (State::FinWait2, true)
                if distance == -1 && self.acknowledgment == other.acknowledged =>
            {
                false
            }
            (State::FinWait1, true) => distance < -1 || is_beyond(sequence),
            (_, true) => distance < 0 || is_beyond(sequence),
            // Only what acknowledges the server's FIN has to stand within the window.
            (State::FinWait1, _) if self.side == 0 && self.acknowledgment != other.next => false,
            (State::FinWait1 | State::FinWait2, _) => is_beyond(self.end()),
            (State::LastAck, _) => distance > 1,
            (State::TimeWait, _) => {
                let first = -(self.side as i32);
                !(first..=first + 1).contains(&distance)
            }
            _ => is_beyond(sequence),
        };
        match is_wrong {
            true if self.has(FIN) => Err(complaints.fin),
            true => Err(complaints.place),
            false => Ok(()),
        }
    }
}

impl Session {
    /// A reset of a connection that was established.
    pub(super) fn reset(
        &mut self,
        segment: &Segment,
        events: &mut Vec<Event>,
    ) -> Result<(), Event> {
        let is_alone = self.alone.is_some();
        let (own, other) = self.both(segment.side);
        if segment.has(ACK) && segment.acknowledgment != 0 && !is_valid(segment, other) {
            events.push(Event::StreamInvalidAck);
            return Err(Event::StreamRstInvalidAck);
        }
        let is_next = segment.sequence == own.next;
        match is_next || (is_alone && before(own.next, segment.sequence)) {
            true => self.close(segment),
            false => self.is_refused = true,
        }
        Ok(())
    }

    /// The first FIN.
    pub(super) fn fin(&mut self, segment: &Segment, events: &mut Vec<Event>) -> Result<(), Event> {
        let side = segment.side;
        let (own, other) = self.both(side);
        if !is_valid(segment, other) {
            events.push(Event::StreamInvalidAck);
            return Err(Event::StreamFinInvalidAck);
        }
        let limit = own.acknowledged.wrapping_add(own.window);
        if before(segment.sequence, own.acknowledged) || before(limit, segment.end()) {
            return Err(Event::StreamFinOutOfWindow);
        }
        // The server's FIN counts at once, the client's when it is acknowledged.
        match side {
            0 => own.sent(segment.end()),
            _ => own.next = segment.end().wrapping_add(1),
        }
        other.acknowledge(segment.acknowledgment, segment.window << other.shift);
        // What was not seen here was sent all the same.
        other.next = later(other.next, other.acknowledged);
        self.state = if side == 0 { State::CloseWait } else { State::FinWait1 };
        Ok(())
    }

    /// A segment after the first FIN.
    pub(super) fn shutting_down(
        &mut self,
        segment: &Segment,
        events: &mut Vec<Event>,
    ) -> Result<(), Event> {
        if self.state == State::Closed {
            return self.closed(segment);
        }
        if segment.has(RST) {
            return self.reset(segment, events);
        }
        if segment.has(SYN) && !segment.has(FIN) {
            let is_next = segment.flags & ACK == 0 && segment.side == 0;
            let may_be_over = self.state == State::TimeWait || self.is_replaceable();
            if is_next && may_be_over && !self.wants_handshakes {
                self.begin(segment);
                return Ok(());
            }
            return Err(Event::StreamShutdownSyn);
        }
        let (state, has_fin) = (self.state, segment.has(FIN));
        let is_last = matches!(state, State::LastAck | State::TimeWait);
        let is_of_ended = state == State::LastAck && segment.side == 1;
        let asked = if state == State::Closing { ACK } else { ACK | FIN };
        if segment.flags & asked == 0 || (is_last && has_fin) || is_of_ended {
            return Ok(());
        }
        let (own, other) = self.both(segment.side);
        let (end, has_data) = (segment.end(), segment.length > 0);
        let again = segment.sequence.wrapping_add(1) == own.next
            && segment.acknowledgment == other.acknowledged;
        let is_same_fin = state == State::FinWait2 && has_fin && again;
        let is_old = before(segment.sequence, own.acknowledged) || not_behind(end, own.next);
        let repeats = has_data && is_old && !is_same_fin;
        events.extend(repeats.then_some(Event::StreamRetransmission));
        if state == State::CloseWait && repeats && !has_fin && not_behind(end, own.acknowledged) {
            return Err(Event::StreamCloseWaitBeforeLastAck);
        }
        let place = segment.place(state, own, other, repeats);
        let acknowledgment = match is_valid(segment, other) {
            true => Ok(()),
            false => Err(state.complaints().acknowledgment),
        };
        let is_first =
            has_fin || matches!(state, State::CloseWait | State::Closing | State::TimeWait);
        let odd = if is_first { place.and(acknowledgment) } else { acknowledgment.and(place) };
        if odd == Err(state.complaints().acknowledgment) {
            events.push(Event::StreamInvalidAck);
        }
        odd?;
        self.go_on(segment, repeats);
        Ok(())
    }

    /// A segment that has its place.
    fn go_on(&mut self, segment: &Segment, repeats: bool) {
        let (state, side, has_fin) = (self.state, segment.side, segment.has(FIN));
        let (own, other) = self.both(side);
        let distance = segment.sequence.wrapping_sub(own.next) as i32;
        let ends_other = segment.acknowledgment == other.next;
        let again = has_fin && distance == -1 && segment.acknowledgment == other.acknowledged;
        let state = match (state, has_fin) {
            (state, _) if repeats => state,
            (State::FinWait1, true) if again && side == 1 => state,
            (State::FinWait2, true) if again => state,
            (State::FinWait1, true) if !segment.has(ACK) => State::Closing,
            (State::FinWait1 | State::FinWait2, true) => State::TimeWait,
            (State::FinWait1, false) if side == 0 && ends_other && distance == 0 => State::FinWait2,
            (State::FinWait1, false) if side == 1 && distance == -1 => State::FinWait2,
            (State::CloseWait, true) if side == 1 => State::LastAck,
            (State::LastAck, false) if distance >= 0 => State::Closed,
            (State::Closing, _) => State::TimeWait,
            (State::TimeWait, false) => State::Closed,
            (state, _) => state,
        };
        // The server's FIN, which counts at once, may turn out to be none.
        let is_next = match (self.state, side, has_fin) {
            (State::FinWait1, 1, _) => distance == -1 && !again,
            (State::FinWait2, 1, true) | (State::CloseWait, _, true) => false,
            (State::FinWait1 | State::FinWait2 | State::CloseWait, ..) => distance == 0,
            _ => false,
        };
        let (own, other) = self.both(side);
        if is_next {
            own.next = segment.end();
        }
        other.acknowledge(segment.acknowledgment, segment.window << other.shift);
        if self.state != State::FinWait2 || has_fin {
            let (_, other) = self.both(side);
            other.next = later(other.next, other.acknowledged);
        }
        self.state = state;
    }

    /// Segments of a connection that is over.
    fn closed(&mut self, segment: &Segment) -> Result<(), Event> {
        if segment.has(SYN) && segment.flags & ACK == 0 {
            self.begin(segment);
            return Ok(());
        }
        if self.wants_handshakes {
            return Ok(());
        }
        // Who has reset a connection does not go on: another did so in its name.
        match self.reset_by.take_if(|_| !segment.has(RST)) {
            Some(by) if usize::from(by) == segment.side => Err(Event::StreamSuspectedReset),
            _ => Ok(()),
        }
    }
}
