//! What the bytes at hand told, and how each application takes them.

use super::{Application, MessageUpdate, upgrade};
use crate::application::unit::Said;
use crate::application::{ApplicationChoice, Parser};
use crate::buffers::http::{BodyWanted, MessageEnd};
use crate::decode::Event;
use crate::detector::{AsSuricata, Limits};
use crate::digest::FileDigests;
use crate::frame::Frame;
use crate::rule::Protocol;

/// What the bytes at hand told.
#[derive(Debug, Default)]
pub(super) struct Heard {
    pub(super) messages: Vec<MessageUpdate>,
    pub(super) said: Said,
    pub(super) frames: Vec<Frame>,
    /// Where messages of HTTP/1 ended, where that is asked for.
    pub(super) ends: Vec<MessageEnd>,
    /// Both sides have agreed to go on in that.
    pub(super) goes_on_in: Option<Protocol>,
    /// They go on in something else.
    pub(super) unexpected: Option<Event>,
    /// Applications that are not looked for.
    pub(super) choice: ApplicationChoice,
    /// What is wanted of bodies of HTTP.
    pub(super) bodies: [BodyWanted; 2],
}

impl Heard {
    pub(super) fn of(digests: FileDigests, limits: &Limits) -> Self {
        let AsSuricata { cuts_files, keeps_separators, bodies, knows_no_more, .. } =
            limits.as_suricata;
        let bodies = bodies.map(|kept| BodyWanted { digests, kept, cuts_files, keeps_separators });
        let is_inline = limits.is_hasty();
        let said = Said { is_inline, knows_no_more, ..Said::with_digests(digests) };
        Self { said, bodies, choice: limits.as_suricata.applications, ..Self::default() }
    }

    /// Nothing yet, of somebody who wants the same.
    pub(super) fn beginning(&self) -> Self {
        let Said { is_inline, knows_no_more, wanted, .. } = self.said;
        let said = Said { is_inline, knows_no_more, ..Said::with_digests(wanted) };
        Self { said, bodies: self.bodies, choice: self.choice, ..Self::default() }
    }

    /// Messages, units among them, and what units tell beside themselves.
    pub(super) fn told(mut self) -> (Vec<MessageUpdate>, Said) {
        let units = std::mem::take(&mut self.said.units).into_iter();
        self.messages.extend(units.map(|it| MessageUpdate::Unit(Box::new(it))));
        (self.messages, self.said)
    }
}

pub(super) fn feed(application: &mut Application, side: usize, bytes: &[u8], heard: &mut Heard) {
    let messages = &mut heard.messages;
    match application {
        Application::Http(connection) => {
            let mut numbers = Vec::new();
            connection.wanted = heard.bodies;
            connection.take(side, bytes, &mut numbers);
            heard.said.has_failed |= connection.has_failed();
            heard.ends = connection.take_ends();
            let upgraded = upgrade::upgraded(connection, side, &mut numbers, &mut heard.said);
            messages.extend(numbers.into_iter().map(MessageUpdate::Http));
            if let Some(upgraded) = upgraded {
                *application = upgraded;
            }
        }
        Application::Websocket(_, parser) => {
            let is_other = parser.is_not_upgraded(side, bytes);
            heard.unexpected = is_other.then_some(Event::ApplicationUnexpected);
            parser.take(side, bytes, &mut heard.said);
        }
        Application::Http2(connection) => {
            let mut numbers = Vec::new();
            connection.wanted = heard.bodies;
            connection.take(side, bytes, &mut numbers);
            heard.said.has_failed |= connection.has_failed;
            messages.extend(numbers.into_iter().map(MessageUpdate::Http));
            messages.extend(connection.take_dns().into_iter().map(MessageUpdate::Dns));
        }
        Application::Tls(session) => {
            if session.take(side, bytes) {
                messages.push(MessageUpdate::Tls);
            }
            heard.said.has_failed |= session.has_failed();
            messages.extend(session.shows(side).then_some(MessageUpdate::State));
        }
        Application::Ssh(session) => {
            session.is_strict = heard.said.knows_no_more;
            if session.take(side, bytes) {
                messages.push(MessageUpdate::Ssh);
            }
            heard.said.has_failed |= session.has_failed();
            messages.extend(session.shows(side).then_some(MessageUpdate::State));
        }
        Application::Dns(stream) => {
            stream.take(side, bytes, &mut |it| messages.push(MessageUpdate::Dns(it)));
            heard.said.has_failed |= stream.has_failed();
            if stream.is_too_long(side) {
                *application = Application::None;
            }
        }
        Application::Other(_, Some(parser)) => {
            parser.take(side, bytes, &mut heard.said);
            if parser.becomes_tls() {
                parser.end(&mut heard.said);
                heard.unexpected = parser.is_followed().then_some(Event::ApplicationNoTls);
                (*application, heard.goes_on_in) = (Application::Unknown, Some(Protocol::Tls));
            }
        }
        Application::Other(_, None) | Application::Unknown | Application::None => {}
    }
}
