//! Messages as rules look at them.

use weir_wire::frame::Time;

use super::{Application, Conversation};
use crate::application::unit::Unit;
use crate::buffers::event::AppEvent;
use crate::buffers::{dns, http, ssh, tls};
use crate::detector::{AsSuricata, Limits};
use crate::digest::Digests;
use crate::frame::Frame;
use crate::rule::{Buffer, Hook, MessageField, MessageTest, OF_HTTP, OF_TLS, Protocol, UnitTest};
use crate::value::Object;

/// A message of the application that came further.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum MessageUpdate {
    /// The transaction of that number.
    Http(u64),
    Tls,
    Ssh,
    /// A session of either came into another state.
    State,
    Dns(dns::Message),
    /// What is odd about a session that comes no further by it.
    Odd(Vec<AppEvent>),
    Unit(Box<Unit>),
}

impl MessageUpdate {
    /// Whether what it is about stays to be looked at.
    fn is_kept(&self) -> bool {
        matches!(self, Self::Http(_) | Self::Tls | Self::Ssh)
    }
}

/// Units that wait for a side's next packet, at most.
const LATER_MAX: usize = 64;

impl Conversation {
    /// Keeps what the client has said for its next packet.
    pub(super) fn keep_late(&mut self, mut messages: Vec<MessageUpdate>) {
        messages.retain(MessageUpdate::is_kept);
        self.late = messages;
    }

    /// Keeps units for the next packet of a side; of too many the first.
    pub(super) fn put_off(&mut self, side: usize, mut units: Vec<Unit>) {
        units.truncate(LATER_MAX - self.later[side].len());
        self.later[side].append(&mut units);
    }

    /// What was odd, or told late, and not looked at with packets of a side before. Inline that is
    /// looked at with the next bytes, and what one side shows is none of the other's message that
    /// was looked at to its end before (as with Suricata).
    pub(super) fn tell_odd(
        &mut self,
        side: usize,
        (brings, ends): (bool, bool),
        limits: &Limits,
        messages: &mut Vec<MessageUpdate>,
    ) {
        let (length, acknowledged) = self.heard(side);
        let was_looked_through =
            std::mem::replace(&mut self.is_looked_through[side], acknowledged >= length);
        let is_inline = limits.as_suricata.looks_at_pieces;
        if !is_inline || brings {
            messages.extend(self.put_off_before(side));
        } else if !ends {
            return;
        }
        let is_past =
            is_inline || side == 0 && limits.waits_for_acknowledgment && was_looked_through;
        let awaits_answer = side == 1 && limits.as_suricata.answers_first;
        if side == 0 && !self.late.is_empty() {
            messages.splice(..0, std::mem::take(&mut self.late));
        }
        let events = match &mut self.application {
            Application::Http(connection) | Application::Websocket(connection, _) => {
                for number in connection.take_odd(side, awaits_answer) {
                    let transaction = connection.transaction_of(number);
                    let is_past =
                        is_past && transaction.is_none_or(|it| it.is_looked_through(side));
                    if !is_past && !messages.contains(&MessageUpdate::Http(number)) {
                        messages.push(MessageUpdate::Http(number));
                    }
                }
                return;
            }
            Application::Http2(connection) => {
                for number in connection.take_odd(side) {
                    if !messages.contains(&MessageUpdate::Http(number)) {
                        messages.push(MessageUpdate::Http(number));
                    }
                }
                return;
            }
            Application::Tls(session) => session.take_events(side),
            Application::Ssh(session) => session.take_events(side),
            Application::Dns(dns) => dns.take_events(),
            _ => return,
        };
        if !events.is_empty() {
            messages.push(MessageUpdate::Odd(events));
        }
    }

    /// Those that were kept for the packet of a side that comes now.
    fn put_off_before(&mut self, side: usize) -> impl Iterator<Item = MessageUpdate> {
        let later = std::mem::take(&mut self.later[side]);
        later.into_iter().map(|it| MessageUpdate::Unit(Box::new(it)))
    }
}

/// A message as rules look at it.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Message<'a> {
    Http(&'a http::Transaction, usize),
    Tls(&'a tls::Session, usize),
    Dns(&'a dns::Message),
    Ssh(&'a ssh::Session, usize),
    Unit(&'a Unit),
    Frame(&'a Frame, Option<&'a MessageUpdate>),
}

impl Message<'_> {
    pub(crate) fn protocol(&self) -> Protocol {
        match self {
            Self::Http(it, _) if it.is_of_http2() => Protocol::Http2,
            Self::Http(..) => Protocol::Http,
            Self::Tls(..) => Protocol::Tls,
            Self::Dns(_) => Protocol::Dns,
            Self::Ssh(..) => Protocol::Ssh,
            Self::Unit(unit) => unit.protocol,
            Self::Frame(frame, _) => frame.kind.protocol(),
        }
    }

    /// Calls `look` with each instance of the buffer until it says yes; whether it did.
    pub(crate) fn each(&self, buffer: Buffer, look: &mut dyn FnMut(&[u8]) -> bool) -> bool {
        match self {
            Self::Http(transaction, side) => transaction.each(*side, buffer, look),
            Self::Tls(session, side) => session.each(*side, buffer, look),
            Self::Unit(unit) => unit.each(buffer, look),
            Self::Ssh(session, side) => session.each(*side, buffer, look),
            Self::Frame(frame, _) => buffer == Buffer::Frame(frame.kind) && look(&frame.bytes),
            Self::Dns(message) => match buffer {
                Buffer::DnsQuery if message.is_response => false,
                // Of requests and of responses.
                Buffer::DnsQuery | Buffer::DnsQuestion => message.each_question(look),
                Buffer::DnsAnswer => message.each_owner(0, look),
                _ if !message.is_response => false,
                Buffer::DnsResponse => message.each_name(look),
                Buffer::DnsAuthority => message.each_owner(1, look),
                Buffer::DnsAdditional => message.each_owner(2, look),
                _ => false,
            },
        }
    }

    /// Whether it is known to have no such buffer: it has come behind where that would stand. As in
    /// Suricata, that is said of some applications alone.
    pub(crate) fn lacks(&self, buffer: Buffer) -> bool {
        let is_behind = match self {
            Self::Http(transaction, side) => transaction.is_behind(*side, buffer),
            Self::Tls(..) => true,
            Self::Unit(unit) => unit.is_behind(buffer),
            Self::Dns(_) | Self::Ssh(..) | Self::Frame(..) => false,
        };
        is_behind && !self.each(buffer, &mut |_| true)
    }

    /// The transaction and the side of which a buffer of it holds the body.
    fn body(&self, buffer: Buffer) -> Option<(&http::Transaction, usize)> {
        let Self::Http(transaction, side) = self else { return None };
        let side = match buffer {
            Buffer::HttpRequestBody => 0,
            Buffer::HttpResponseBody => 1,
            Buffer::FileData => *side,
            _ => return None,
        };
        Some((transaction, side))
    }

    /// Whether what a buffer of it holds is the beginning of a body of which more comes.
    pub(crate) fn awaits(&self, buffer: Buffer) -> bool {
        self.body(buffer).is_some_and(|(transaction, side)| transaction.awaits_body(side))
    }

    /// Whether more of its head is to come.
    pub(crate) fn is_begun(&self) -> bool {
        matches!(self, Self::Http(transaction, side) if transaction.is_begun(*side))
    }

    /// Whether what a buffer of it holds is a body of which that much has not come.
    pub(crate) fn is_early(&self, buffer: Buffer, from: [u64; 2]) -> bool {
        self.body(buffer).is_some_and(|(transaction, side)| transaction.is_body_early(side, from))
    }

    /// Whether numbers in a buffer of it have their lowest byte first.
    pub(crate) fn is_little(&self, buffer: Buffer) -> bool {
        matches!(self, Self::Unit(unit) if unit.is_little && buffer == Buffer::DcerpcStub)
    }

    /// Whether something is odd about it.
    pub(crate) fn has(&self, event: AppEvent) -> bool {
        match self {
            Self::Http(transaction, _) => transaction.events.has(event),
            Self::Tls(session, _) => session.events.has(event),
            Self::Dns(message) => message.events.has(event),
            Self::Ssh(session, _) => session.has(event),
            Self::Unit(unit) => unit.events.has(event),
            Self::Frame(..) => false,
        }
    }

    /// Whether what a unit says is as a rule asks.
    pub(crate) fn asks(&self, test: &UnitTest, source: u128) -> bool {
        match self {
            Self::Unit(unit) => test.holds(unit, source),
            Self::Http(transaction, side) if *test == UnitTest::File => {
                !transaction.files(*side).is_empty()
            }
            Self::Http(transaction, side) if test.protocols().contains(&Protocol::Http) => {
                let mut unit = Unit::new(Protocol::Http, 0);
                for file in &*transaction.files(*side) {
                    let digests = || transaction.digests(*side, file);
                    let digests = if test.is_of_digests() { digests() } else { Digests::default() };
                    file.size.into_iter().for_each(|it| unit.whole_file(it, digests));
                }
                test.holds(&unit, source)
            }
            _ => false,
        }
    }

    /// Whether it is in the state that a rule asks for; one that is whole has come through all.
    pub(crate) fn is_at(&self, hook: Hook) -> bool {
        match self {
            Self::Http(transaction, side) => {
                transaction.states[*side].is_some_and(|it| hook.holds(it))
            }
            Self::Tls(session, side) => hook.holds(session.states(*side)),
            Self::Ssh(session, side) => hook.holds(session.states(*side)),
            Self::Unit(unit) => unit.states.is_none_or(|it| hook.holds(it)),
            Self::Dns(_) | Self::Frame(..) => true,
        }
    }

    /// How far each side of its transaction has come, as EVE spells it; empty where that is not
    /// told.
    pub(crate) fn progress(&self) -> [&'static str; 2] {
        match self {
            Self::Http(transaction, _) if !transaction.is_of_http2() => {
                let places = transaction.places();
                [0, 1].map(|side| OF_HTTP[side][places[side]])
            }
            Self::Tls(session, _) => {
                let places = session.places();
                [0, 1].map(|side| OF_TLS[side].get(places[side]).copied().unwrap_or_default())
            }
            _ => [""; 2],
        }
    }

    /// What is told of it beside an alert: EVE's name of its application, and what there is.
    /// `number` is its transaction's.
    pub(crate) fn object(
        &self,
        number: u64,
        as_suricata: &AsSuricata,
    ) -> Option<(&'static str, Object)> {
        let object = match self {
            Self::Http(transaction, _) => transaction.object(),
            Self::Tls(session, _) => session.object(false, as_suricata.tells_early[0]),
            Self::Dns(message) => message.object(number),
            Self::Ssh(session, _) => session.object(),
            Self::Unit(_) => return None,
            Self::Frame(frame, _) => frame.object(),
        };
        let name = match self {
            Self::Http(..) => "http",
            Self::Frame(..) => "frame",
            other => other.protocol().name(),
        };
        Some((name, object))
    }

    /// Whether a number in it is as a rule says; one that it lacks is not.
    pub(crate) fn holds(&self, test: &MessageTest, now: Time) -> bool {
        let holds = |number: u16| test.holds(number.into());
        match (self, test.field) {
            (Self::Dns(it), MessageField::DnsOpcode) => holds(it.opcode),
            (Self::Dns(it), MessageField::DnsResponseCode) => holds(it.response_code),
            (Self::Dns(it), MessageField::DnsType) if it.is_response => {
                it.records[0].iter().any(|it| holds(it.kind))
            }
            (Self::Dns(it), MessageField::DnsType) => it.types.iter().any(|it| holds(*it)),
            (Self::Tls(session, side), _) => session.holds(*side, test, now),
            (Self::Http(transaction, side), _) => {
                transaction.frames(*side).is_some_and(|it| it.hold(test))
            }
            _ => false,
        }
    }
}
