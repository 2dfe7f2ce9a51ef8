//! What each side speaks, at first and at last.

use super::{Application, Conversation, ToldBy};
use crate::detector::Limits;
use crate::record::SpokenBeside;
use crate::rule::{Protocol, Speaks, Speech};
use crate::stream::Stream;

impl Conversation {
    /// What is spoken, as `app-layer-protocol` asks for it.
    pub(crate) fn speech(&self) -> Speech {
        let last = match (self.protocol(), &self.application) {
            (Some(protocol), _) => Speaks::Is(protocol),
            (None, _) if self.agreement.has_failed() => Speaks::Failed,
            (None, _) => Speaks::Unknown,
        };
        let sides = [0, 1].map(|side| {
            let (window, before) = self.streams[side].window();
            let has_spoken = before + window.len() as u64 > self.begins[side];
            match last {
                _ if !has_spoken => Speaks::Unknown,
                // What SSH cannot read, Suricata calls nothing else.
                Speaks::Is(Protocol::Ssh) if self.has_failed_ssh() => last,
                Speaks::Is(told) => self.agreement.spoken(side, told),
                other => other,
            }
        });
        Speech { sides, first: self.change.map_or(Speaks::Unknown, |it| Speaks::Is(it.from)), last }
    }

    /// The same, as far as those who it is said to have acknowledged what told it.
    pub(crate) fn speech_heard(&self) -> Speech {
        let mut speech = self.speech();
        let is_heard = [0, 1].map(|it| self.streams[it].acknowledged().0 > self.begins[it]);
        let has = |side: usize, end: Option<u32>| {
            let behind = self.streams[side].acknowledged().1;
            end.zip(behind).is_some_and(|(end, it)| it.wrapping_sub(end) as i32 >= 0)
        };
        let is_told = match self.told_by {
            None => false,
            Some(ToldBy::Side(side, end)) => has(side, Some(end)),
            Some(ToldBy::Both(ends)) => has(0, ends[0]) && has(1, ends[1]),
        };
        if !is_told {
            return Speech::default();
        }
        for (spoken, _) in speech.sides.iter_mut().zip(is_heard).filter(|it| !it.1) {
            *spoken = Speaks::Unknown;
        }
        speech
    }

    fn has_failed_ssh(&self) -> bool {
        matches!(&self.application, Application::Ssh(session) if session.has_failed())
    }

    /// Whether a side speaks HTTP/1, and is between two messages.
    pub(crate) fn is_between_messages(&self, side: usize) -> bool {
        match &self.application {
            Application::Http(connection) => connection.is_between_messages(side),
            _ => false,
        }
    }

    /// Notes whose bytes told what is spoken, where a side's bytes have.
    pub(super) fn note_teller(&mut self, side: usize, told: Option<Protocol>) {
        if self.told_by.is_some() {
            return;
        }
        self.told_by = match told {
            Some(_) => self.streams[side].next().map(|end| ToldBy::Side(side, end)),
            None if self.agreement.has_failed() => {
                Some(ToldBy::Both(self.streams.each_ref().map(Stream::next)))
            }
            None => None,
        };
    }

    /// Whether it is known what a side speaks, as far as rules about packets hear of it.
    pub(super) fn is_speech_known(&self, side: usize, limits: &Limits) -> bool {
        let speech = match limits.waits_for_acknowledgment {
            true => self.speech_heard(),
            false => self.speech(),
        };
        speech.sides[side] != Speaks::Unknown
    }

    /// Whether with a side's packet it is decided what it speaks, which was known before or not:
    /// with its next packet once it is known, where acknowledgments count; otherwise with the one
    /// that tells, and with the next too where what came before is looked at again.
    pub(super) fn decide(&mut self, side: usize, was_known: bool, limits: &Limits) -> bool {
        if self.is_decided[side] {
            return false;
        }
        let is_known = was_known || self.is_speech_known(side, limits);
        let is_told = match limits.waits_for_acknowledgment {
            true => was_known,
            false => is_known,
        };
        self.is_decided[side] =
            if limits.as_suricata.looks_again > 0 { was_known } else { is_told };
        is_told
    }

    /// What is spoken beside what the flow is told to speak, by EVE's names; where acknowledgments
    /// count, of what is acknowledged.
    pub(crate) fn spoken(&self, waits: bool) -> SpokenBeside {
        let mut speech = self.speech();
        if waits {
            speech.sides = self.speech_heard().sides;
        }
        let name = |it: Speaks| match it {
            _ if it == speech.last => None,
            Speaks::Is(it) => Some(it.name()),
            Speaks::Failed => Some("failed"),
            Speaks::Unknown => None,
        };
        let expected = self.change.and_then(|it| it.to).map(Speaks::Is).and_then(name);
        SpokenBeside { sides: speech.sides.map(name), original: name(speech.first), expected }
    }
}
