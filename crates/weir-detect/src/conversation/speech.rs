//! What each side speaks, at first and at last.

use super::{Application, Conversation};
use crate::record::SpokenBeside;
use crate::rule::{Speaks, Speech};

impl Conversation {
    /// What is spoken, as `app-layer-protocol` asks for it.
    pub(crate) fn speech(&self) -> Speech {
        let last = match (self.protocol(), &self.application) {
            (Some(protocol), _) => Speaks::Is(protocol),
            (None, Application::None) => Speaks::Failed,
            (None, _) if self.agreement.has_failed() => Speaks::Failed,
            (None, _) => Speaks::Unknown,
        };
        let sides = [0, 1].map(|side| {
            let (window, before) = self.streams[side].window();
            let has_spoken = before + window.len() as u64 > self.begins[side];
            match last {
                _ if !has_spoken => Speaks::Unknown,
                Speaks::Is(told) => self.agreement.spoken(side, told),
                other => other,
            }
        });
        Speech { sides, first: self.change.map_or(last, |it| Speaks::Is(it.from)), last }
    }

    /// The same, as far as those who it is said to have acknowledged what told it.
    pub(crate) fn speech_heard(&self) -> Speech {
        let is_told = self.told_by.is_some_and(|(side, end)| {
            let (_, behind) = self.streams[side].acknowledged();
            behind.is_some_and(|it| it.wrapping_sub(end) as i32 >= 0)
        });
        if !is_told {
            return Speech::default();
        }
        let mut speech = self.speech();
        for (side, spoken) in speech.sides.iter_mut().enumerate() {
            if self.streams[side].acknowledged().0 <= self.begins[side] {
                *spoken = Speaks::Unknown;
            }
        }
        speech
    }

    /// What is spoken beside what the flow is told to speak, by EVE's names.
    pub(crate) fn spoken(&self) -> SpokenBeside {
        let speech = self.speech();
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
