//! What rules about streams and messages do to a flow where these are looked at once their receiver
//! has acknowledged them (docs/adr/0313): their alerts wait, and so do notes, `pass` and `drop`.

use std::collections::VecDeque;

use super::{Change, Flow, Notes};
use crate::detector::{Direction, Limits};
use crate::heap::heap_size;
use crate::rule::{Buffer, RuleIndex};

/// Effects of a flow that wait, at most; what is beyond takes effect at once.
const EFFECTS_MAX: usize = 1 << 8;

/// What a rule does to a flow.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Effect {
    Note(Change),
    Entropy(Option<Buffer>, f64),
    Pass(RuleIndex),
    Drop(RuleIndex),
    Tag(RuleIndex),
    Bypass,
}

/// What waits, and for whom.
#[derive(Clone, Debug)]
pub(crate) struct Waiting {
    pub(crate) effect: Effect,
    /// Whose bytes it is about, and where they end in the stream.
    pub(crate) side: Direction,
    pub(crate) end: u64,
    /// A rule about a stream's bytes: those are looked at with packets, before messages.
    pub(crate) is_of_bytes: bool,
}

/// Effects that wait.
#[derive(Debug)]
pub(crate) struct Later {
    effects: VecDeque<Waiting>,
    /// What is noted of the flow as rules about packets see it meanwhile.
    notes: Notes,
}

heap_size!(Later { notes });

/// How far the stream of a packet's side has come, in bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HeardStream {
    pub(crate) length: u64,
    /// What its receiver has of it.
    pub(crate) acknowledged: u64,
    /// What rules about bytes have looked at.
    pub(crate) looked_at: u64,
}

impl HeardStream {
    /// No more comes of it.
    pub(crate) const OVER: Self =
        Self { length: u64::MAX, acknowledged: u64::MAX, looked_at: u64::MAX };

    fn is_over(&self) -> bool {
        self.length == u64::MAX
    }
}

impl Flow {
    /// Puts an effect off until the bytes that it is about are acknowledged. The caller
    /// makes a note besides, for who looks at messages.
    pub(crate) fn put_off(&mut self, waiting: Waiting, limits: &Limits) {
        let notes = &self.notes;
        let new = || Box::new(Later { effects: VecDeque::new(), notes: notes.clone() });
        let later = self.later.get_or_insert_with(new);
        // Of a buffer the last counts.
        if let Effect::Entropy(buffer, _) = waiting.effect {
            let is_same =
                |it: &Waiting| matches!(it.effect, Effect::Entropy(of, _) if of == buffer);
            later.effects.retain(|it| it.side != waiting.side || !is_same(it));
        }
        later.effects.push_back(waiting);
        if later.effects.len() > EFFECTS_MAX
            && let Some(oldest) = later.effects.pop_front()
        {
            match oldest.effect {
                Effect::Note(change) => _ = later.notes.make(&change),
                Effect::Entropy(buffer, entropy) => self.note_entropy(buffer, entropy),
                Effect::Pass(_) => self.is_passed = true,
                Effect::Drop(rule) => self.drop_by(rule, limits),
                Effect::Tag(rule) => self.due_tags.push(rule),
                Effect::Bypass => self.is_bypassed = true,
            }
        }
    }

    /// Rules about packets are looked at from here on, or no more: what they see noted changes
    /// places with what rules about messages see.
    pub(crate) fn swap_notes(&mut self) {
        if let Some(later) = &mut self.later {
            std::mem::swap(&mut self.notes, &mut later.notes);
        }
    }

    /// Changes what is noted for those who do not look now, too.
    pub(crate) fn note_for_others(&mut self, change: &Change) {
        if let Some(later) = &mut self.later {
            later.notes.make(change);
        }
    }

    /// What is noted and takes effect already.
    pub(crate) fn notes_by_now(&self) -> &Notes {
        self.later.as_ref().map_or(&self.notes, |it| &it.notes)
    }

    /// What waits takes effect with a packet of the side whose stream has come so far; notes of
    /// rules about bytes before rules about the packet are looked at, all else behind them. The
    /// rule that lets the rest pass with it, if one does.
    pub(crate) fn take_effect(
        &mut self,
        (side, heard): (Direction, HeardStream),
        is_before: bool,
        limits: &Limits,
    ) -> Option<RuleIndex> {
        let mut later = self.later.take()?;
        let mut passer = None;
        let is_due = |it: &Waiting| {
            let is_early = it.is_of_bytes && matches!(it.effect, Effect::Note(_));
            let end = if it.is_of_bytes { heard.looked_at } else { heard.acknowledged };
            it.side == side && it.end <= end && (is_early || !is_before)
        };
        let mut left = VecDeque::new();
        for waiting in later.effects.drain(..) {
            if !is_due(&waiting) {
                left.push_back(waiting);
                continue;
            }
            match waiting.effect {
                Effect::Note(change) => _ = later.notes.make(&change),
                Effect::Entropy(buffer, entropy) => self.note_entropy(buffer, entropy),
                Effect::Pass(rule) => passer = passer.or(Some(rule)),
                Effect::Drop(rule) => self.drop_by(rule, limits),
                Effect::Tag(rule) => self.due_tags.push(rule),
                // Of what is over nothing more comes that could go by.
                Effect::Bypass => self.is_bypassed |= !heard.is_over(),
            }
        }
        later.effects = left;
        // Whoever looks sees the same again.
        self.later = (!later.effects.is_empty()).then_some(later);
        passer
    }

    /// A rule lets the rest of it pass, once that takes effect.
    pub(crate) fn is_to_pass(&self) -> bool {
        self.awaits(|it| matches!(it, Effect::Pass(_)))
    }

    /// A rule drops the rest of it, once that takes effect.
    pub(crate) fn is_to_drop(&self) -> bool {
        self.awaits(|it| matches!(it, Effect::Drop(_)))
    }

    fn awaits(&self, is_such: impl Fn(&Effect) -> bool) -> bool {
        self.later.as_ref().is_some_and(|it| it.effects.iter().any(|it| is_such(&it.effect)))
    }
}
