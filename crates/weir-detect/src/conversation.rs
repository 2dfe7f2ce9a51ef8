//! What is spoken over a TCP connection: both streams, and the application that they turn out to
//! be.

mod acceptance;
mod agreement;
mod beginning;
mod chunks;
mod heard;
mod matched;
mod message;
mod opaque;
mod opening;
mod overlap;
mod size;
mod speech;
mod upgrade;

pub(crate) use beginning::begins_as;

use weir_wire::parse::Transport;
use weir_wire::tcp::flags;

use crate::application::unit::{Announced, Objects, Said, Unit};
use crate::application::websocket::Websocket;
use crate::application::{self, ApplicationChoice, Parser, TransportProtocol};
use crate::buffers::http::http2;
use crate::buffers::{dns, http, ssh, tls};
use crate::decode::Event;
use crate::detector::{AsSuricata, Direction, Limits, Unseen};
use crate::digest::FileDigests;
use crate::frame::{Frame, Framer};
use crate::hosts::System;
use crate::packet::View;
use crate::record::HttpRecord;
use crate::rule::{Protocol, RuleIndex};
use crate::stream::{Stream, Taken};
use crate::value::Object;
use acceptance::{Acceptance, Header};
use agreement::Agreement;
use chunks::Chunks;
pub(crate) use chunks::is_in_chunks;
use heard::{Heard, feed};
pub(crate) use message::{Message, MessageUpdate};

/// A TCP connection.
#[derive(Debug, Default)]
pub(crate) struct Conversation {
    streams: [Stream; 2],
    chunks: [Chunks; 2],
    /// Data came with the server's SYN, which not every client takes.
    has_early_answer: bool,
    acceptance: Acceptance,
    /// Another connection has begun with the segment at hand.
    is_renewed: bool,
    /// The one that it has replaced.
    before: Option<Box<Self>>,
    /// No more is said, and its applications are at their end.
    pub(crate) has_ended: bool,
    is_told_to_its_end: bool,
    application: Application,
    agreement: Agreement,
    /// What was spoken before, and what both sides have agreed to go on in.
    change: Option<Change>,
    /// Where in each stream begins what is spoken.
    begins: [u64; 2],
    /// With the end of whose bytes it became clear that what comes is encrypted, for who waits
    /// until they are acknowledged.
    opaque_from: Option<(usize, u64)>,
    /// Set where somebody asks for frames.
    framer: Option<Box<Framer>>,
    /// Rules whose fast pattern came, with where the stream was then, by side.
    pub(crate) waiting: [Vec<(RuleIndex, u64)>; 2],
    /// Where the stream was when a rule matched it last, by side.
    pub(crate) matched: [Vec<(RuleIndex, u64)>; 2],
    /// Rules that matched behind a gap, and where, by side.
    pub(crate) ahead: [Vec<(RuleIndex, u64)>; 2],
    /// Bytes that a rule dropped with their packet alone, by side: sequence number, how many.
    withheld: [Vec<(RuleIndex, u32, u32)>; 2],
    /// It is decided what a side speaks.
    is_decided: [bool; 2],
    /// Whose bytes told what is spoken.
    told_by: Option<ToldBy>,
    /// Transactions that a client began before its server told what is spoken, for its next packet.
    late: Vec<MessageUpdate>,
    /// Transactions that the other side has brought further, for a side's next packet.
    later: [Vec<Unit>; 2],
    /// All that a side has said was acknowledged when its last packet was looked at.
    is_looked_through: [bool; 2],
    /// Its application is taken apart no further: something was none of its messages.
    has_given_up: bool,
    /// Rules that matched what a side has shown of its session: they do not again.
    pub(crate) of_session: [Vec<RuleIndex>; 2],
    /// Digests of files that somebody wants.
    pub(crate) wanted: FileDigests,
}

/// What told what is spoken.
#[derive(Clone, Copy, Debug)]
enum ToldBy {
    /// A side's bytes, up to that number.
    Side(usize, u32),
    /// What both said, that it is nothing known.
    Both([Option<u32>; 2]),
}

/// An agreement to speak another application.
#[derive(Clone, Copy, Debug)]
struct Change {
    from: Protocol,
    /// `None`: anything may follow.
    to: Option<Protocol>,
}

#[derive(Debug, Default)]
enum Application {
    /// Too little was said.
    #[default]
    Unknown,
    Http(Box<http::Connection>),
    Http2(Box<http2::Connection>),
    /// Behind HTTP's transactions, which are still told of.
    Websocket(Box<http::Connection>, Box<Websocket>),
    Tls(Box<tls::Session>),
    Dns(Box<dns::Stream>),
    Ssh(Box<ssh::Session>),
    /// One that is told in units, and its parser, where there is one.
    Other(Protocol, Option<Box<dyn Parser>>),
    /// None that is known.
    None,
}

/// What a packet brought.
#[derive(Debug, Default)]
pub(crate) struct Progress {
    /// Bytes that the stream grew by.
    pub(crate) new: usize,
    /// The packet's payload belongs to the stream.
    pub(crate) is_part: bool,
    /// With it another connection begins between the same ends.
    pub(crate) is_renewed: bool,
    /// Its receiver does not take it.
    pub(crate) is_unacceptable: bool,
    pub(crate) gaps: u32,
    /// Why it is none of the stream, and is to go no further.
    pub(crate) refused: Option<Unseen>,
    /// Bytes that were there already are others now.
    pub(crate) differs: bool,
    /// Some of its bytes lie where others came before.
    pub(crate) overlaps: bool,
    /// So many bytes at the stream's end were looked at, and are others now.
    pub(crate) rewritten: usize,
    /// The number of the first byte that is another now, of the stream or of what waits.
    pub(crate) changed: Option<u32>,
    /// The stream is as long with it as it may be.
    pub(crate) reaches_depth: bool,
    /// What comes is encrypted: nobody looks into it.
    pub(crate) is_opaque: bool,
    /// What lies together behind a gap, with the segment, and bytes of the stream before it.
    pub(crate) island: Option<(u64, Vec<u8>)>,
    /// Messages that came further.
    pub(crate) messages: Vec<MessageUpdate>,
    /// What units tell beside themselves.
    pub(crate) said: Said,
    /// Frames that ended.
    pub(crate) frames: Vec<Frame>,
    /// What is odd about what is spoken.
    pub(crate) event: Option<Event>,
    /// With this packet it is decided what its side speaks, or that nobody knows.
    pub(crate) is_decided: bool,
}

impl From<Taken> for Progress {
    fn from(taken: Taken) -> Self {
        Self {
            new: taken.new,
            is_part: taken.is_part,
            gaps: taken.gaps,
            refused: taken.refused,
            differs: taken.differs,
            rewritten: taken.rewritten,
            changed: taken.changed,
            reaches_depth: taken.reaches_depth,
            ..Self::default()
        }
    }
}

impl Progress {
    /// What a datagram said.
    pub(crate) fn of(said: Said) -> Self {
        let (messages, said) = Heard { said, ..Heard::default() }.told();
        Self { messages, said, ..Self::default() }
    }
}

impl Conversation {
    /// One between such systems: the client's, and the server's.
    pub(crate) fn between(systems: [System; 2]) -> Self {
        let mut conversation = Self::default();
        // Who receives decides.
        conversation.streams[0].set_receiver(systems[1]);
        conversation.streams[1].set_receiver(systems[0]);
        conversation
    }

    /// Whether there is memory for much that waits behind gaps.
    pub(crate) fn set_room(&mut self, has_room: bool) {
        self.streams.iter_mut().for_each(|it| it.may_wait(has_room));
    }

    /// Takes a packet's segment in.
    pub(crate) fn take(
        &mut self,
        direction: Direction,
        view: &View<'_>,
        limits: &Limits,
    ) -> Progress {
        let Transport::Tcp { sequence, acknowledgment, flags: seen, source, destination } =
            view.parsed.transport
        else {
            return Progress::default();
        };
        let side = direction.index();
        let port = if side == 0 { destination } else { source };
        let header = Header::of(view, [sequence, acknowledgment], seen);
        let before = self.acceptance;
        let is_opaque = self.is_opaque(limits);
        if side == 0 && self.refuses_syn(view, &header, limits) {
            return Progress { refused: Some(Unseen::Conflict), ..Progress::default() };
        }
        if !self.accepts(side, &header, limits.sees_all) {
            let refused = self.refuses_unacceptable(side, (view.payload, &header), limits);
            return Progress { is_unacceptable: true, refused, is_opaque, ..Progress::default() };
        }
        let asks_before = limits.waits_for_acknowledgment || limits.as_suricata.looks_again > 0;
        let asks_before = asks_before && !self.is_decided[side];
        let was_known = asks_before && self.is_speech_known(side, limits);
        let is_told = self.tells_conflict(side, (sequence, view.payload.len()), limits);
        let overlaps = self.streams[side].overlaps(sequence, view.payload.len());
        let mut progress = self.take_acceptable(side, (view, &header), port, limits);
        progress.overlaps = overlaps;
        progress.differs &= is_told;
        progress.is_decided = self.decide(side, was_known, limits);
        progress.is_renewed = std::mem::take(&mut self.is_renewed);
        progress.is_opaque |= is_opaque && !progress.is_renewed;
        self.note_opaque(side, limits);
        if progress.refused.is_some() && seen & flags::SYN == 0 {
            // Its receiver does not hear of it: what it said of itself counts for nothing.
            self.acceptance = before;
        }
        progress
    }

    /// Takes in a segment that its receiver takes.
    fn take_acceptable(
        &mut self,
        side: usize,
        (view, header): (&View<'_>, &Header),
        port: u16,
        limits: &Limits,
    ) -> Progress {
        let Header { sequence, acknowledgment, flags: seen, .. } = *header;
        if seen & flags::ACK != 0 {
            self.streams[1 - side].acknowledge(acknowledgment);
        }
        if let Some(passed_over) = self.passes_over(side, view, seen, limits) {
            return passed_over;
        }
        if limits.midstream && !view.payload.is_empty() && !self.streams[side].has_begun() {
            self.streams[side].pick_up(sequence);
        }
        let first = if seen & flags::SYN != 0 { sequence.wrapping_add(1) } else { sequence };
        let is_encrypted = self.is_encrypted(limits);
        self.streams[side].may_miss(!limits.sees_all);
        self.streams[side].may_change(limits.waits_for_acknowledgment);
        let taken = match is_encrypted {
            true => self.streams[side].pass(first, view.payload.len()),
            false => self.streams[side].take(first, view.payload),
        };
        let ends = |it: &Self| it.streams[side].ends_at(first, view.payload.len());
        if is_encrypted {
            let mut progress = self.passed(side, taken, view.payload);
            if seen & flags::FIN != 0 && ends(self) {
                self.close(side, &mut progress);
            }
            let comes = (!view.payload.is_empty(), false);
            self.tell_odd(side, comes, limits, &mut progress.messages);
            return progress;
        }
        let mut progress = Progress::from(taken);
        let again = limits.as_suricata.looks_again > 0 && taken.is_part;
        if (taken.waits || again) && taken.new == 0 {
            progress.island = self.streams[side].island(first);
        }
        if taken.changed.is_some() && limits.waits_for_acknowledgment {
            progress.rewritten = self.look_again(side, taken.new, taken.rewritten);
            if let (0, Some((before, _))) = (progress.rewritten, &progress.island) {
                // It was looked at with all that lies beside it.
                progress.changed = self.number_at(side, *before);
            }
        }
        if taken.gaps > 0 {
            self.lose(side, taken.lost);
        }
        let stops = taken.reaches_depth && limits.as_suricata.stops_at_depth;
        progress.is_part |= stops;
        if taken.new > 0 && !(stops && self.protocol().is_none()) {
            self.hear(side, taken.new, (view, port), limits, &mut progress);
        }
        if (seen & flags::FIN != 0 && ends(self)) || taken.reaches_depth {
            self.close(side, &mut progress);
        }
        if let (true, Application::Http(connection)) =
            (seen & flags::RST != 0, &mut self.application)
        {
            connection.reset(side);
        }
        let comes = (!view.payload.is_empty(), seen & flags::FIN != 0);
        self.tell_odd(side, comes, limits, &mut progress.messages);
        progress
    }

    /// Hears the `new` bytes of a side, which are its last.
    fn hear(
        &mut self,
        side: usize,
        new: usize,
        (view, port): (&View<'_>, u16),
        limits: &Limits,
        progress: &mut Progress,
    ) {
        // It went on after all.
        (self.has_ended, self.is_told_to_its_end) = (false, false);
        let is_dns = view.source_port == 53 || view.destination_port == 53;
        let was = self.protocol();
        let mut heard = Heard::of(self.wanted, limits);
        if !self.has_given_up {
            self.tell(side, new, is_dns, port, &mut heard);
        }
        progress.frames = std::mem::take(&mut heard.frames);
        let unexpected = heard.unexpected;
        (progress.messages, progress.said) = heard.told();
        self.has_given_up |= progress.said.has_failed && limits.as_suricata.gives_up;
        self.put_off(1 - side, std::mem::take(&mut progress.said.later));
        let told = self.protocol();
        let choice = limits.as_suricata.applications;
        progress.event = unexpected.or(self.look_at_agreement(side, told, port, choice));
        self.note_teller(side, told);
        if was != told && was.is_some() {
            self.is_decided = [false; 2];
        }
    }

    /// What is odd about who speaks what.
    fn look_at_agreement(
        &mut self,
        side: usize,
        told: Option<Protocol>,
        port: u16,
        choice: ApplicationChoice,
    ) -> Option<Event> {
        let (window, before) = self.streams[1 - side].window();
        let other = before + window.len() as u64;
        self.agreement.look(side, self.streams[side].window(), other, (told, port), choice)
    }

    /// A side says no more, or nobody hears it.
    fn close(&mut self, side: usize, progress: &mut Progress) {
        match &mut self.application {
            Application::Http(connection) => {
                let number = connection.current(side);
                connection.close(side);
                if let Some(framer) = &mut self.framer {
                    framer.close(side, number, &mut progress.frames);
                }
            }
            Application::Tls(session) => {
                session.close(side);
                progress.messages.extend(session.shows(side).then_some(MessageUpdate::State));
            }
            Application::Other(_, Some(parser)) => {
                let mut heard = Heard::default();
                parser.close(side, &mut heard.said);
                progress.messages.extend(heard.told().0);
            }
            _ => {}
        }
    }

    /// Bytes are missing for good: nobody finds the next message of an application without them.
    fn lose(&mut self, side: usize, count: u32) {
        if let Application::Http(connection) = &mut self.application {
            connection.lose(side, u64::from(count));
        }
        if let Application::Tls(session) = &mut self.application {
            session.lose(side);
        }
        if let Application::Dns(stream) = &mut self.application {
            stream.lose(side);
        }
        if matches!(self.application, Application::Websocket(..)) {
            self.application = Application::Other(Protocol::Websocket, None);
        }
        if let Application::Other(_, parser) = &mut self.application {
            let goes_on = parser.as_mut().is_some_and(|it| it.lose(side, count.into()));
            parser.take_if(|_| !goes_on);
        }
        self.framer.iter_mut().for_each(|it| it.lose());
    }

    /// Finds frames from here on: the stream begins.
    pub(crate) fn find_frames(&mut self) {
        self.framer = Some(Box::default());
    }

    /// The last bytes of a side, and how many came before them.
    pub(crate) fn window(&self, side: usize) -> (&[u8], u64) {
        self.streams[side].window()
    }

    /// The same from a place in the stream on.
    pub(crate) fn window_from(&self, side: usize, place: u64) -> (&[u8], u64) {
        let (all, before) = self.window(side);
        let skip = usize::try_from(place.saturating_sub(before)).unwrap_or_default();
        (all.get(skip..).unwrap_or_default(), before + skip as u64)
    }

    /// The last `count` bytes of it.
    pub(crate) fn window_end(&self, side: usize, count: usize) -> (&[u8], u64) {
        let (all, before) = self.window(side);
        self.window_from(side, (before + all.len() as u64).saturating_sub(count as u64))
    }

    /// What a side said, gaps named, for whoever reads it.
    pub(crate) fn told(&self, side: usize, is_whole: bool) -> Vec<u8> {
        self.streams[side].told(is_whole)
    }

    /// What is spoken, once it is known.
    pub(crate) fn protocol(&self) -> Option<Protocol> {
        let is_told = !matches!(self.application, Application::Unknown);
        let before = self.change.filter(|_| !is_told).map(|it| it.from);
        self.application.protocol().or(before)
    }

    /// What a side has said of what is spoken, as far as it is at hand.
    fn since(&self, side: usize) -> Option<&[u8]> {
        let (window, before) = self.streams[side].window();
        window.get(usize::try_from(self.begins[side].checked_sub(before)?).ok()?..)
    }

    /// A transaction or session as it stands now, where it goes on by itself.
    pub(crate) fn so_far(&self, number: u64, side: usize) -> Option<Message<'_>> {
        Some(match &self.application {
            Application::Http(connection) | Application::Websocket(connection, _) => {
                Message::Http(connection.transaction_of(number)?, side)
            }
            Application::Http2(connection) => {
                Message::Http(connection.transaction_of(number)?, side)
            }
            Application::Tls(session) => Message::Tls(session, side),
            Application::Ssh(session) => Message::Ssh(session, side),
            _ => return None,
        })
    }

    /// Bytes of a side's stream, and how many of them its receiver has.
    pub(crate) fn heard(&self, side: usize) -> (u64, u64) {
        (self.streams[side].len(), self.streams[side].acknowledged().0)
    }

    /// The transaction of a stream of HTTP/2.
    pub(crate) fn transaction_of_stream(&self, stream: u32) -> Option<u64> {
        match &self.application {
            Application::Http2(connection) => connection.find(stream),
            _ => None,
        }
    }

    /// The transaction of that number, and what rules look at of a side beside it.
    pub(crate) fn transaction(
        &mut self,
        number: u64,
        side: usize,
    ) -> Option<(&mut http::Transaction, &[u8])> {
        let from = self.chunk_from(side);
        let (window, before) = self.streams[side].window();
        let skip = usize::try_from(from.saturating_sub(before)).unwrap_or(usize::MAX);
        let transaction = match &mut self.application {
            Application::Http(connection) | Application::Websocket(connection, _) => {
                connection.transaction(number)?
            }
            Application::Http2(connection) => connection.transaction(number)?,
            _ => return None,
        };
        Some((transaction, &window[skip.min(window.len())..]))
    }

    /// What is told by now of a transaction of a parser's, and its files.
    pub(crate) fn told_now(&self, number: u64, side: usize) -> Option<(Objects, Vec<Object>)> {
        match &self.application {
            Application::Other(_, Some(parser)) => parser.told_now(number, side),
            _ => None,
        }
    }

    /// What was told, as a rule looks at it.
    pub(crate) fn message<'a>(
        &'a self,
        told: &'a MessageUpdate,
        side: usize,
    ) -> Option<Message<'a>> {
        match (told, &self.application) {
            (
                MessageUpdate::Http(number),
                Application::Http(connection) | Application::Websocket(connection, _),
            ) => Some(Message::Http(connection.transaction_of(*number)?, side)),
            (MessageUpdate::Http(number), Application::Http2(connection)) => {
                Some(Message::Http(connection.transaction_of(*number)?, side))
            }
            (
                MessageUpdate::Tls | MessageUpdate::State | MessageUpdate::Odd(_),
                Application::Tls(session),
            ) => Some(Message::Tls(session, side)),
            (
                MessageUpdate::Ssh | MessageUpdate::State | MessageUpdate::Odd(_),
                Application::Ssh(session),
            ) => Some(Message::Ssh(session, side)),
            (MessageUpdate::Dns(message), _) => Some(Message::Dns(message)),
            (MessageUpdate::Unit(unit), _) => Some(Message::Unit(unit)),
            (MessageUpdate::Odd(_), Application::Dns(dns)) => Some(Message::Dns(&dns.odd)),
            _ => None,
        }
    }

    /// Its flow ends: the number of a request that is not whole and was none yet.
    pub(crate) fn cut_request(&mut self) -> Option<u64> {
        match &mut self.application {
            Application::Http(connection) => connection.cut_request(),
            _ => None,
        }
    }

    /// What is told of transactions that were not told of before, with all headers of those sides.
    pub(crate) fn records(&mut self, headers: [bool; 2]) -> Vec<HttpRecord> {
        match &mut self.application {
            Application::Http(connection) | Application::Websocket(connection, _) => {
                connection.records(headers)
            }
            Application::Http2(connection) => connection.records(headers),
            _ => Vec::new(),
        }
    }

    /// What there is to tell of an application when its connection or its flow ends, once.
    pub(crate) fn end(&mut self) -> Said {
        let mut said = Said::default();
        if std::mem::replace(&mut self.is_told_to_its_end, true) {
            return said;
        }
        match &mut self.application {
            Application::Other(_, Some(parser)) => parser.end(&mut said),
            Application::Http(connection) => said.records = connection.cut_files(),
            Application::Http2(connection) => said.records = connection.cut_files(),
            _ => {}
        }
        said
    }

    /// Takes it for the connection for data that was announced.
    pub(crate) fn announce(&mut self, announced: Announced) {
        let parser = application::data_of_ftp(announced);
        self.application = Application::Other(Protocol::FtpData, Some(parser));
    }

    /// What is told of a session of which nothing was told, when its beginning is over or, with
    /// `is_end`, however far it came: EVE's name for it, and what there is.
    pub(crate) fn session_record(
        &mut self,
        is_end: bool,
        as_suricata: &AsSuricata,
    ) -> Option<(&'static str, Object)> {
        let [tls, ssh] = as_suricata.tells_early;
        match &mut self.application {
            Application::Tls(session) if is_end || session.is_to_be_told(tls) => {
                let mut object = session.record(tls)?;
                object.put_some("from_proto", self.change.map(|it| it.from.name()));
                Some(("tls", object))
            }
            Application::Ssh(session) if is_end || session.is_to_be_told(ssh) => {
                Some(("ssh", session.record()?))
            }
            _ => None,
        }
    }

    /// Gives the application the new bytes of a side, once it is known which it is.
    fn tell(&mut self, side: usize, new: usize, is_dns: bool, port: u16, heard: &mut Heard) {
        self.enter_tunnel(side, new);
        self.hear_server(side, new, port);
        let is_new = matches!(self.application, Application::Unknown);
        if is_new {
            if heard.said.knows_no_more && self.is_foreign(side, port) {
                return;
            }
            self.application = self.told_by_beginning(side, is_dns, port).chosen(heard.choice);
            if matches!(self.application, Application::Unknown | Application::None) {
                return;
            }
            let told = self.application.protocol();
            let is_other = |it: Change| it.to.is_some() && told != it.to;
            if self.change.is_some_and(is_other) {
                heard.unexpected = Some(Event::ApplicationNoTls);
                self.application.leave();
            }
            let is_astray = side == 1 && told.is_some_and(|it| self.is_astray(it, port));
            let other = self.since(1 - side).unwrap_or_default().to_vec();
            // What both sides have said so far is new to it; rules have looked at what the other
            // side said, as a stream.
            let Self { application, framer, .. } = self;
            if let (Application::Http(connection), Some(_)) = (&mut *application, &framer) {
                connection.note_ends();
            }
            if let (true, Application::Other(_, Some(parser))) = (is_astray, &mut *application) {
                // It may find a message among what its client says.
                parser.lose(0, 1);
            }
            // What is too short to be known, nobody has looked at.
            let is_heard = side == 0
                || match application {
                    Application::Http(_) => {
                        http::begins(&other) || agreement::is_long(0, &other, port)
                    }
                    // What a client says before its first record would hide its server's.
                    Application::Tls(_) => {
                        tls::begins(0, &other) || other.starts_with(&[tls::RECORD_HANDSHAKE])
                    }
                    _ => true,
                };
            if is_heard {
                let mut before = heard.beginning();
                let protocol = application.protocol();
                feed(application, 1 - side, &other, &mut before);
                if let (Some(framer), Some(protocol)) = (framer, protocol) {
                    framer.take_late(protocol, 1 - side, (&other, &before.ends));
                }
                // Nobody has looked at units of it.
                heard.said = before.said;
                if side == 1 {
                    self.keep_late(before.messages);
                }
            }
        }
        let known = if is_new { self.since(side).map_or(new, <[u8]>::len) } else { new };
        let Self { streams, application, framer, .. } = self;
        let bytes = streams[side].newest(known);
        let before = application.protocol();
        feed(application, side, bytes, heard);
        if let (Some(framer), Some(before)) = (framer, before) {
            framer.take(before, side, (bytes, &heard.ends), &mut heard.frames);
            // What follows an upgrade in the same piece.
            if let Some(after) = application.protocol().filter(|it| *it != before) {
                framer.take(after, side, (&[], &[]), &mut heard.frames);
            }
        }
        self.goes_on(before, heard.goes_on_in.take());
    }
}

impl Application {
    /// Takes nothing apart any more: nobody expects what is spoken.
    fn leave(&mut self) {
        if let Self::Other(_, parser) = self {
            *parser = None;
        }
    }

    /// It, as far as somebody wants to know of it.
    fn chosen(self, choice: ApplicationChoice) -> Self {
        match self.protocol() {
            Some(it) if choice.is_off(TransportProtocol::Tcp, it) => Self::None,
            Some(it) if choice.is_unparsed(it) => Self::Other(it, None),
            _ => self,
        }
    }

    fn protocol(&self) -> Option<Protocol> {
        match self {
            Self::Http(_) => Some(Protocol::Http),
            Self::Http2(it) if it.carries_dns => Some(Protocol::Doh2),
            Self::Http2(_) => Some(Protocol::Http2),
            Self::Websocket(..) => Some(Protocol::Websocket),
            Self::Tls(_) => Some(Protocol::Tls),
            Self::Dns(_) => Some(Protocol::Dns),
            Self::Ssh(_) => Some(Protocol::Ssh),
            Self::Other(protocol, _) => Some(*protocol),
            Self::Unknown | Self::None => None,
        }
    }
}
