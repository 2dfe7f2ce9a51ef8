//! How a connection ends.

use weir_wire::tcp::flags::{ACK, FIN, RST, SYN};

use super::{Segment, Session, State, before, is_valid, not_behind};
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

impl Session {
    /// A reset of a connection that was established.
    pub(super) fn reset(
        &mut self,
        segment: &Segment,
        events: &mut Vec<Event>,
    ) -> Result<(), Event> {
        let (own, other) = self.both(segment.side);
        if segment.has(ACK) && segment.acknowledgment != 0 && !is_valid(segment, other) {
            events.push(Event::StreamInvalidAck);
            return Err(Event::StreamRstInvalidAck);
        }
        match segment.sequence == own.next || segment.sequence == own.end() {
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
        if before(segment.sequence, own.acknowledged) || before(limit, segment.sequence) {
            return Err(Event::StreamFinOutOfWindow);
        }
        own.sent(segment.end());
        own.has_ended = true;
        other.acknowledge(segment.acknowledgment, segment.window << other.shift);
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
            if segment.flags & ACK == 0 && segment.side == 0 && self.state == State::TimeWait {
                self.begin(segment);
                return Ok(());
            }
            return Err(Event::StreamShutdownSyn);
        }
        if segment.flags & (ACK | FIN) == 0 {
            return Ok(());
        }
        let (state, side) = (self.state, segment.side);
        let complaints = state.complaints();
        let (own, other) = self.both(side);
        let limit = own.acknowledged.wrapping_add(own.window.max(1));
        let end = segment.end();
        let repeats = segment.length > 0 && not_behind(end, own.next);
        if state == State::CloseWait && before(end, own.acknowledged) && segment.length > 0 {
            return Err(Event::StreamCloseWaitBeforeLastAck);
        }
        if matches!(state, State::LastAck | State::Closing) && segment.has(FIN) {
            return Ok(());
        }
        let distance = segment.sequence.wrapping_sub(own.next) as i32;
        let is_wrong = match state {
            State::TimeWait | State::LastAck | State::Closing => !(0..=1).contains(&distance),
            _ if segment.has(FIN) && distance < 0 => true,
            _ => before(limit.max(own.next), segment.sequence),
        };
        if !repeats && is_wrong {
            return Err(if segment.has(FIN) { complaints.fin } else { complaints.place });
        }
        if !is_valid(segment, other) {
            events.push(Event::StreamInvalidAck);
            return Err(complaints.acknowledgment);
        }
        if repeats {
            events.push(Event::StreamRetransmission);
        }
        let is_next = segment.sequence == own.next;
        own.sent(end);
        own.has_ended |= segment.has(FIN);
        let ends_other = other.has_ended && segment.acknowledgment == other.end();
        other.acknowledge(segment.acknowledgment, segment.window << other.shift);
        self.state = match (state, segment.has(FIN)) {
            // The side that closes second sends its FIN; it is the client in `fin wait`.
            (State::FinWait1, true) if side == 0 && ends_other => State::TimeWait,
            (State::FinWait1, true) if side == 0 => State::Closing,
            (State::FinWait1, false) if side == 0 && ends_other && is_next => State::FinWait2,
            (State::FinWait2, true) if side == 0 => State::TimeWait,
            (State::CloseWait, true) if side == 1 => State::LastAck,
            (State::LastAck, false) if side == 0 && ends_other => State::Closed,
            (State::Closing, false) if ends_other => State::TimeWait,
            (State::TimeWait, false) if side == 1 && ends_other => State::Closed,
            (state, _) => state,
        };
        Ok(())
    }

    /// Segments of a connection that is over.
    fn closed(&mut self, segment: &Segment) -> Result<(), Event> {
        if segment.has(SYN) && segment.flags & ACK == 0 {
            self.begin(segment);
            return Ok(());
        }
        // Who has reset a connection does not go on: another did so in its name.
        match self.reset_by.take_if(|_| !segment.has(RST)) {
            Some(by) if usize::from(by) == segment.side => Err(Event::StreamSuspectedReset),
            _ => Ok(()),
        }
    }
}
