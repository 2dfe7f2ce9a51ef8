//! How a TCP connection goes on: whether each segment is as RFC 9293 and the segments before it
//! let expect, and what is odd about it where not.
//!
//! ```text
//!   none -> syn sent -> syn received -> established -+-> fin wait 1 -> fin wait 2 -> time wait
//!                                                    |       `-> closing ----------------^
//!                                                    `-> close wait -> last ack -> closed
//! ```
//!
//! The names are of the connection's life as seen from the side that closes first (`fin wait`), or
//! from the client's where the server does (`close wait` is the client's FIN). Only what is odd is
//! told; what the stream takes in is [`stream`](crate::stream)'s matter.

mod handshake;
mod shutdown;

use weir_wire::parse::Transport;
use weir_wire::tcp::flags::{ACK, FIN, RST, SYN, URG};

use crate::decode::Event;
use crate::detector::{Direction, Limits};
use crate::packet::View;
use crate::sequence::{before, later, not_behind};

/// So many SYNs before the last may be the one that is answered.
const OLDER: usize = 4;
/// The largest shift of a window (RFC 7323 s2.3).
const SHIFT_MAX: u8 = 14;

/// How far a connection is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum State {
    #[default]
    None,
    SynSent,
    SynReceived,
    Established,
    FinWait1,
    FinWait2,
    TimeWait,
    CloseWait,
    LastAck,
    Closing,
    Closed,
}

/// What is known of what a side sends.
#[derive(Clone, Copy, Debug, Default)]
struct Side {
    /// Number of its SYN.
    first: u32,
    /// Behind the last byte that it sent.
    next: u32,
    /// Up to where the other has acknowledged.
    acknowledged: u32,
    /// Up to where it had when this side said something last.
    settled: u32,
    /// What the other has room for, in bytes.
    window: u32,
    /// The end of that room.
    window_end: u32,
    /// How the other's windows are shifted.
    shift: u8,
}

/// A connection.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Session {
    state: State,
    /// What the client sends, and the server.
    sides: [Side; 2],
    /// Both have begun by a SYN each.
    is_four_way: bool,
    /// Segments came after the handshake.
    is_confirmed: bool,
    beginnings: u8,
    syns: u8,
    /// Numbers of the last SYNs before the client's last, of which the one that is answered counts;
    /// then those of other answers, of which the one that is acknowledged does.
    older: [u32; OLDER],
    /// Who reset the connection.
    reset_by: Option<u8>,
    /// Segments that have no place in the connection go no further: nobody speaks before the
    /// handshake that was seen here is over.
    is_strict: bool,
    /// The last segment has none.
    is_refused: bool,
    /// What comes with a SYN counts where it asks for that alone: see
    /// [`AsSuricata::wants_handshakes`](crate::AsSuricata::wants_handshakes).
    wants_handshakes: bool,
    /// Connections are followed although nobody saw how they began.
    takes_up: bool,
    /// Nobody saw how this one began.
    is_midstream: bool,
    /// Connections are followed of which one side alone is seen.
    follows_one_side: bool,
    /// The side of which alone something was seen.
    alone: Option<u8>,
    /// The SYN asked for TCP Fast Open.
    asks_early: bool,
    /// It is known what is spoken, or that nobody knows.
    is_spoken: bool,
    /// See [`Self::has_set_up`].
    has_set_up: bool,
    closing: Closing,
}

/// How a segment stands to the end of its connection, as far as Suricata's way is asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Closing {
    #[default]
    None,
    /// It resets it: what its sender has said is looked at now.
    Reset,
    /// It comes behind it, and is no part of it.
    Behind,
}

/// A segment.
#[derive(Clone, Copy)]
struct Segment {
    side: usize,
    sequence: u32,
    acknowledgment: u32,
    flags: u8,
    window: u32,
    length: u32,
    /// Its SYN's window shift.
    shift: Option<u8>,
    /// It asks for TCP Fast Open (RFC 7413).
    asks_early: bool,
}

impl Segment {
    fn of(direction: Direction, view: &View<'_>) -> Option<Self> {
        let Transport::Tcp { sequence, acknowledgment, flags, .. } = view.parsed.transport else {
            return None;
        };
        Some(Self {
            side: direction.index(),
            sequence,
            acknowledgment,
            flags,
            window: view.tcp_window().into(),
            length: view.payload.len() as u32,
            shift: if flags & SYN == 0 { None } else { view.tcp_shift() },
            asks_early: flags & SYN != 0 && view.asks_early(),
        })
    }

    fn has(&self, bits: u8) -> bool {
        self.flags & bits == bits
    }

    fn end(&self) -> u32 {
        self.sequence.wrapping_add(self.length)
    }
}

impl Side {
    fn begin(&mut self, sequence: u32) {
        self.first = sequence;
        self.next = sequence.wrapping_add(1);
        (self.acknowledged, self.settled) = (sequence, sequence);
        self.window_end = self.next;
    }

    /// The other acknowledges so far, and has room for so much more.
    fn acknowledge(&mut self, number: u32, window: u32) {
        if before(self.acknowledged, number) {
            self.acknowledged = number;
        }
        self.window = window;
        let end = self.acknowledged.wrapping_add(window);
        if before(self.window_end, end) {
            self.window_end = end;
        }
    }

    fn sent(&mut self, end: u32) {
        if before(self.next, end) {
            self.next = end;
        }
        if before(self.window_end, self.next) && self.window == 0 {
            self.window_end = self.next;
        }
    }
}

impl Session {
    /// How far the connection is, as EVE's `tcp.state` spells it; `None`: it has not begun.
    pub(crate) fn state(&self) -> Option<&'static str> {
        Some(match self.state {
            State::None => return None,
            State::SynSent => "syn_sent",
            State::SynReceived => "syn_recv",
            State::Established => "established",
            State::FinWait1 => "fin_wait1",
            State::FinWait2 => "fin_wait2",
            State::TimeWait => "time_wait",
            State::CloseWait => "close_wait",
            State::LastAck => "last_ack",
            State::Closing => "closing",
            State::Closed => "closed",
        })
    }

    /// Whether a SYN was answered.
    pub(crate) fn is_under_way(&self) -> bool {
        !matches!(self.state, State::None | State::SynSent)
    }

    /// Whether it is followed although nobody saw how it began.
    pub(crate) fn is_taken_up(&self) -> bool {
        self.is_midstream
    }

    /// Whether it is not set up, is, or is closed by both ends: 0, 1, 2.
    pub(crate) fn stage(&self) -> usize {
        use State::{CloseWait, Established, FinWait1, FinWait2};
        match self.state {
            State::None | State::SynSent | State::SynReceived => 0,
            Established | FinWait1 | FinWait2 | CloseWait => 1,
            _ => 2,
        }
    }

    /// It is known what is spoken, or that nobody knows, or not.
    pub(crate) fn speaks(&mut self, is_spoken: bool) {
        self.is_spoken = is_spoken;
    }

    /// How the last segment stood to its end.
    pub(crate) fn closing(&self) -> Closing {
        self.closing
    }

    /// The number of what a side says next, if it is set up.
    pub(crate) fn next(&self, side: usize) -> Option<u32> {
        self.is_set_up().then_some(self.sides[side].next)
    }

    /// Whether it has not begun, or the client has ended it.
    pub(crate) fn is_replaceable(&self) -> bool {
        use State::*;
        matches!(self.state, None | CloseWait | LastAck | Closing | Closed)
    }

    /// Whether this side alone is seen of it.
    pub(crate) fn is_alone(&self, side: usize) -> bool {
        self.alone.is_some_and(|it| usize::from(it) == side)
    }

    /// Whether it is set up, or was.
    fn is_set_up(&self) -> bool {
        !matches!(self.state, State::None | State::SynSent | State::SynReceived)
    }

    /// Whether the last segment was one of a connection that is set up: it was before, or the
    /// segment brings what is next with the last acknowledgment of the handshake.
    pub(crate) fn has_set_up(&self) -> bool {
        self.has_set_up
    }

    /// What is odd about a segment; it is taken into account where nothing is. Strictly, what has
    /// no place in the connection does not arrive.
    pub(crate) fn take(
        &mut self,
        direction: Direction,
        view: &View<'_>,
        limits: &Limits,
    ) -> Vec<Event> {
        let mut events = Vec::new();
        (self.is_strict, self.is_refused) = (limits.refuses_invalid, false);
        self.wants_handshakes = limits.as_suricata.wants_handshakes;
        self.takes_up = self.wants_handshakes && limits.midstream;
        self.follows_one_side = limits.as_suricata.follows_one_side;
        let Some(segment) = Segment::of(direction, view) else { return events };
        self.has_set_up = self.is_set_up();
        let was_closed = self.state == State::Closed;
        let is_next = self.state == State::SynReceived
            && segment.side == 0
            && segment.sequence == self.sides[0].next;
        self.believe(&segment);
        self.take_segment(&segment, &mut events);
        self.has_set_up |= self.state == State::Established && is_next && segment.length > 0;
        self.closing = match (was_closed, self.state) {
            _ if !self.wants_handshakes => Closing::None,
            (true, State::Closed) => Closing::Behind,
            (false, State::Closed) if segment.has(RST) => Closing::Reset,
            _ => Closing::None,
        };
        let is_alone = self.alone == Some(segment.side as u8);
        let own = &mut self.sides[segment.side];
        if is_alone {
            own.acknowledged = later(own.acknowledged, own.next);
        }
        if !events.iter().any(|it| it.is_of_segment_beside()) {
            own.settled = own.acknowledged;
        }
        events
    }

    /// Whose other side is not seen is believed what it acknowledges, and that it is heard.
    fn believe(&mut self, segment: &Segment) {
        let Some(alone) = self.alone else { return };
        if usize::from(alone) != segment.side {
            self.alone = None;
            return;
        }
        let (own, other) = self.both(segment.side);
        let number = segment.acknowledgment;
        if segment.has(ACK) && before(other.acknowledged, number) {
            other.window_end = later(other.window_end, number);
        }
        own.window_end = later(own.window_end, segment.end());
    }

    fn take_segment(&mut self, segment: &Segment, events: &mut Vec<Event>) {
        if segment.flags & ACK == 0 && segment.acknowledgment != 0 {
            events.push(Event::StreamBrokenAck);
        }
        let is_over = matches!(self.state, State::None | State::Closed);
        if segment.has(RST) && segment.length > 0 && !is_over {
            events.push(Event::StreamRstWithData);
        }
        if segment.has(SYN | FIN) && !segment.has(RST) {
            match self.state {
                // It begins nothing.
                State::None if self.wants_handshakes => return,
                State::SynSent if self.wants_handshakes => {}
                _ => {
                    self.is_refused = true;
                    events.push(Event::StreamFinSyn);
                    return;
                }
            }
        }
        if self.is_bad_window_update(segment) {
            events.push(Event::StreamBadWindowUpdate);
            return;
        }
        if self.keeps_alive(segment) || self.is_outdated(segment) {
            return;
        }
        if self.is_spurious(segment) {
            events.push(Event::StreamSpuriousRetransmission);
            // What lies before the stream is looked at no further; nor, who is strict and knows
            // what is spoken, at what was acknowledged before this side spoke last.
            let own = &self.sides[segment.side];
            let first = own.first.wrapping_add(1);
            let is_settled = self.is_strict && self.is_spoken && before(first, own.settled);
            let first = if is_settled { own.settled } else { first };
            if not_behind(segment.end(), first) {
                return;
            }
        }
        // A SYN that was taken back, or refused, may still be answered.
        let is_unanswered = self.state == State::Closed && self.sides[1].next == 0;
        if is_unanswered && segment.side == 1 && segment.has(SYN | ACK) {
            (self.state, self.reset_by) = (State::SynSent, None);
        }
        let odd = match self.state {
            State::None => self.nothing(segment),
            State::SynSent => self.syn_sent(segment, events),
            State::SynReceived => self.syn_received(segment, events),
            State::Established => self.established(segment, events),
            _ => self.shutting_down(segment, events),
        };
        self.is_refused |= odd.is_err_and(Event::refuses_segment);
        events.extend(odd.err());
    }

    /// Whether the last segment has no place in the connection, as far as that is known: a gateway
    /// that drops such segments drops it (Suricata's `stream.drop-invalid`).
    pub(crate) fn is_refused(&self) -> bool {
        self.is_refused
    }

    fn close(&mut self, segment: &Segment) {
        self.state = State::Closed;
        // As by Suricata: whom it tells that nothing is heard goes on with what is acknowledged.
        if self.wants_handshakes && segment.has(RST | ACK) && segment.acknowledgment != 0 {
            self.sides[1 - segment.side].next = segment.acknowledgment;
        }
        self.reset_by = segment.has(RST).then_some(segment.side as u8);
    }

    fn established(&mut self, segment: &Segment, events: &mut Vec<Event>) -> Result<(), Event> {
        if segment.has(RST) {
            return self.reset(segment, events);
        }
        if segment.has(FIN) {
            return self.fin(segment, events);
        }
        let [client, server] = &self.sides;
        if segment.has(SYN | ACK) {
            return match () {
                () if segment.side == 0 => Err(Event::StreamEstSynAckToServer),
                () if segment.acknowledgment != client.acknowledged => {
                    Err(Event::StreamEstSynAckDifferentAck)
                }
                () if segment.sequence != server.first => Err(Event::StreamEstSynAckDifferentSeq),
                () if self.is_confirmed => Err(Event::StreamEstSynAckResend),
                () => Ok(()),
            };
        }
        if segment.has(SYN) {
            return match () {
                () if segment.side == 1 => Err(Event::StreamEstSynToClient),
                // Suricata says so of each.
                () if self.wants_handshakes || segment.sequence != client.first => {
                    Err(Event::StreamEstSynDifferentSeq)
                }
                () if self.is_confirmed => Err(Event::StreamEstSynResend),
                () => Ok(()),
            };
        }
        if segment.flags & ACK == 0 {
            return Ok(());
        }
        self.goes_on(segment, events)
    }

    /// A segment of an established connection.
    fn goes_on(&mut self, segment: &Segment, events: &mut Vec<Event>) -> Result<(), Event> {
        let (own, other) = self.both(segment.side);
        let end = segment.end();
        if !is_valid(segment, other) {
            events.push(Event::StreamInvalidAck);
            return Err(Event::StreamEstInvalidAck);
        }
        let is_probe = segment.length <= 1 && segment.sequence == own.next.wrapping_sub(1);
        if before(end, own.acknowledged) && !is_probe {
            return Err(Event::StreamEstBeforeLastAck);
        }
        let is_zero_probe = own.window == 0 && segment.length == 1 && segment.sequence == own.next;
        let is_far = before(own.window_end, end) && !is_zero_probe;
        own.sent(end);
        if is_far {
            return Err(Event::StreamEstOutOfWindow);
        }
        other.acknowledge(segment.acknowledgment, segment.window << other.shift);
        self.is_confirmed |= segment.side == 1;
        Ok(())
    }

    /// What the segment's sender sends, and what its receiver does.
    fn both(&mut self, side: usize) -> (&mut Side, &mut Side) {
        let [client, server] = &mut self.sides;
        if side == 0 { (client, server) } else { (server, client) }
    }

    /// A window that gets smaller with an acknowledgment of what was not sent.
    fn is_bad_window_update(&self, segment: &Segment) -> bool {
        let (own, other) = (&self.sides[segment.side], &self.sides[1 - segment.side]);
        let window = segment.window << other.shift;
        let end = segment.acknowledgment.wrapping_add(window);
        let ahead = segment.sequence.wrapping_sub(own.next) as i32;
        let unsent = segment.acknowledgment.wrapping_sub(other.next) as i32;
        use State::{CloseWait, Closing, LastAck, TimeWait};
        // Each may stand behind a FIN that is not counted.
        let may_be_last = matches!(self.state, CloseWait | Closing | LastAck | TimeWait)
            && segment.length == 0
            && (ahead, unsent) == (1, 1);
        self.is_running()
            && segment.flags & (SYN | FIN | RST | URG) == 0
            && segment.has(ACK)
            && window < other.window
            && not_behind(end, other.acknowledged.wrapping_add(other.window))
            && ahead > 0
            && unsent > 0
            && !may_be_last
    }

    /// Asks whether the other is there (RFC 9293 s3.8.4).
    fn keeps_alive(&self, segment: &Segment) -> bool {
        let (own, other) = (&self.sides[segment.side], &self.sides[1 - segment.side]);
        !matches!(self.state, State::None | State::Closed)
            && segment.length <= 1
            && segment.flags & (SYN | RST | FIN) == 0
            && segment.sequence == own.next.wrapping_sub(1)
            && segment.acknowledgment == other.acknowledged
    }

    /// An acknowledgment that others have overtaken.
    fn is_outdated(&self, segment: &Segment) -> bool {
        let (own, other) = (&self.sides[segment.side], &self.sides[1 - segment.side]);
        self.is_running()
            && segment.length == 0
            && segment.flags & (SYN | RST | FIN | ACK) == ACK
            && segment.sequence == own.next
            && before(segment.acknowledgment, other.acknowledged)
    }

    /// Whether it is set up, and not over.
    fn is_running(&self) -> bool {
        !matches!(self.state, State::None | State::SynSent | State::SynReceived | State::Closed)
    }

    /// All of it was acknowledged.
    fn is_spurious(&self, segment: &Segment) -> bool {
        let own = &self.sides[segment.side];
        let is_running = match self.state {
            State::None => false,
            State::SynSent => segment.side == 1 || self.wants_handshakes,
            _ => true,
        };
        let end = segment.end();
        let is_known =
            || not_behind(end, own.acknowledged) || not_behind(end, own.first.wrapping_add(1));
        is_running && segment.length > 0 && is_known()
    }
}

/// Whether an acknowledgment is one of what the side has sent, or may.
fn is_valid(segment: &Segment, of: &Side) -> bool {
    let acknowledgment = segment.acknowledgment;
    let floor = of.acknowledged.wrapping_sub(of.window);
    let is_old = of.window != 0 && before(acknowledgment, floor);
    let end = if before(of.window_end, of.next) { of.next } else { of.window_end };
    !segment.has(ACK) || (!is_old && not_behind(acknowledgment, end))
}
