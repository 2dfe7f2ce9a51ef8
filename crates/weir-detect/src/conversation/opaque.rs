//! Connections whose two sides have begun to encrypt: nobody looks into what comes then, unless it
//! is asked for ([`Limits::looks_into_encrypted`]).

use super::{Application, Conversation, MessageUpdate, Progress};
use crate::detector::Limits;
use crate::rule::Protocol;
use crate::stream::Taken;

impl Conversation {
    /// What is spoken, if it has come so far that it is encrypted.
    pub(crate) fn encrypted(&self) -> Option<Protocol> {
        match &self.application {
            Application::Tls(session) => session.has_data().then_some(Protocol::Tls),
            Application::Ssh(session) => session.is_encrypted().then_some(Protocol::Ssh),
            _ => None,
        }
    }

    /// Whether rules see nothing of the payloads that come. Who waits for acknowledgments knows it
    /// with them.
    pub(crate) fn is_opaque(&self, limits: &Limits) -> bool {
        let is_known = || match (limits.waits_for_acknowledgment, self.opaque_from) {
            (false, _) => true,
            (true, Some((side, end))) => self.streams[side].acknowledged().0 >= end,
            (true, None) => false,
        };
        self.is_to_be_opaque(limits) && is_known()
    }

    fn is_to_be_opaque(&self, limits: &Limits) -> bool {
        let [tls, ssh] = limits.looks_into_encrypted;
        self.encrypted().is_some_and(|it| if it == Protocol::Tls { !tls } else { !ssh })
    }

    /// Notes with whose bytes it became so.
    pub(super) fn note_opaque(&mut self, side: usize, limits: &Limits) {
        let waits = limits.waits_for_acknowledgment;
        if waits && self.opaque_from.is_none() && self.is_to_be_opaque(limits) {
            self.opaque_from = Some((side, self.streams[side].len()));
        }
    }

    /// Whether the streams take in nothing of what comes: no parser finds anything in it either.
    pub(super) fn is_encrypted(&self, limits: &Limits) -> bool {
        let [tls, ssh] = limits.looks_into_encrypted;
        match &self.application {
            Application::Tls(session) => !tls && session.is_encrypted(),
            Application::Ssh(session) => !ssh && session.is_encrypted(),
            _ => false,
        }
    }

    /// What came of an encrypted segment: of TLS the heads of records are in clear.
    pub(super) fn passed(&mut self, side: usize, taken: Taken, payload: &[u8]) -> Progress {
        let mut progress = Progress { is_part: taken.is_part, ..Progress::default() };
        let new = &payload[payload.len() - taken.new..];
        if let Application::Ssh(session) = &mut self.application {
            session.take(side, new);
            progress.messages.extend(session.shows(side).then_some(MessageUpdate::State));
        }
        if let Application::Tls(session) = &mut self.application {
            match taken.gaps > 0 {
                true => session.lose(side),
                false => session.pass(side, new),
            }
            progress.messages.extend(session.shows(side).then_some(MessageUpdate::State));
            match &mut self.framer {
                Some(framer) if taken.gaps > 0 => framer.lose(),
                Some(framer) => framer.take(Protocol::Tls, side, (new, &[]), &mut progress.frames),
                None => {}
            }
        }
        progress
    }
}
