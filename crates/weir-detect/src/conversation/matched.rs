//! Which rules have matched what is spoken, and which wait for more of it.

use weir_wire::parse::Transport;

use super::{Application, Conversation};
use crate::packet::View;
use crate::rule::RuleIndex;
use crate::ruleset::Successors;

/// Rules that wait for more of a stream, at most, of one direction.
const WAITING_MAX: usize = 1024;
/// Packets whose bytes are withheld, at most, of one direction: more do not fit a window without
/// the first.
const WITHHELD_MAX: usize = 64;

impl Conversation {
    /// A rule matched what a side has shown of its session.
    pub(crate) fn match_session(&mut self, side: usize, rule: RuleIndex) {
        if self.of_session[side].len() < WAITING_MAX {
            self.of_session[side].push(rule);
        }
    }

    /// Has a rule wait for more of a side's stream; whether there is room for it.
    #[must_use]
    pub(crate) fn wait(&mut self, side: usize, rule: RuleIndex) -> bool {
        let (window, before) = self.streams[side].window();
        let at = before + window.len() as u64;
        let waiting = &mut self.waiting[side];
        let is_known = waiting.iter().any(|(known, _)| *known == rule);
        let has_room = is_known || waiting.len() < WAITING_MAX;
        if !is_known && has_room {
            waiting.push((rule, at));
        }
        has_room
    }

    /// The fast patterns of these rules came again: those that wait do from here on.
    pub(crate) fn renew(&mut self, side: usize, rules: &[RuleIndex]) {
        let (window, before) = self.streams[side].window();
        let at = before + window.len() as u64;
        for (known, since) in &mut self.waiting[side] {
            if rules.contains(known) {
                *since = at;
            }
        }
    }

    /// Rules no longer wait whose fast pattern has left the window.
    pub(crate) fn forget(&mut self, side: usize) {
        let (_, before) = self.streams[side].window();
        self.waiting[side].retain(|(_, since)| *since >= before);
    }

    /// A rule matched a side's stream as it is: its bytes do not count again.
    pub(crate) fn match_ends(&mut self, side: usize, rule: RuleIndex) {
        let (window, before) = self.streams[side].window();
        let at = before + window.len() as u64;
        self.waiting[side].retain(|(known, _)| *known != rule);
        let matched = &mut self.matched[side];
        matched.retain(|(known, since)| *known != rule && *since > before);
        if matched.len() < WAITING_MAX {
            matched.push((rule, at));
        }
    }

    /// A rule matched behind a gap: it does not again, there and when the gap is filled.
    pub(crate) fn matched_ahead(&mut self, side: usize, rule: RuleIndex, at: u64) {
        if self.ahead[side].len() < WAITING_MAX {
            self.ahead[side].push((rule, at));
        }
    }

    /// Some of the last bytes before the `new` ones of a side's stream, or of what waits, are
    /// others now: what waits counts as new, and of the stream, where `rewritten` bytes of it are
    /// concerned, all that rules have not looked at, for who waits. How many bytes before the new
    /// ones those are.
    pub(super) fn look_again(&mut self, side: usize, new: usize, rewritten: usize) -> usize {
        self.ahead[side].clear();
        if rewritten == 0 {
            return 0;
        }
        let stream = &self.streams[side];
        let known = stream.len().saturating_sub(new as u64);
        let from = self.chunks[side].looked_at().min(known.saturating_sub(rewritten as u64));
        self.matched[side].iter_mut().for_each(|it| it.1 = it.1.min(from));
        ((known - from) as usize).min(stream.window().0.len().saturating_sub(new))
    }

    /// A rule drops these bytes and not their flow: they are dropped however they come again.
    /// Whether there is room to remember it.
    pub(crate) fn withhold(&mut self, side: usize, view: &View<'_>, rule: RuleIndex) -> bool {
        let (Some(first), length) = (sequence(view), view.payload.len() as u32) else {
            return true;
        };
        let withheld = &mut self.withheld[side];
        let has_room = withheld.len() < WITHHELD_MAX;
        if has_room && length > 0 {
            withheld.push((rule, first, length));
        }
        has_room
    }

    /// The rule that dropped some of a segment's bytes before.
    pub(crate) fn withholds(&self, side: usize, view: &View<'_>) -> Option<RuleIndex> {
        let (first, length) = (sequence(view)?, view.payload.len() as u32);
        let overlaps = |from: u32, known: u32| {
            first.wrapping_sub(from) < known || from.wrapping_sub(first) < length
        };
        self.withheld[side].iter().find(|it| overlaps(it.1, it.2)).map(|it| it.0)
    }

    /// Other rules run from here on.
    pub(crate) fn change_rules(&mut self, successors: &Successors) {
        for lists in [&mut self.waiting, &mut self.matched, &mut self.ahead] {
            lists.iter_mut().for_each(|list| successors.rename(list, |it| &mut it.0));
        }
        self.withheld.iter_mut().for_each(|list| successors.rename(list, |it| &mut it.0));
        self.of_session.iter_mut().for_each(|list| successors.rename(list, |it| it));
        match &mut self.application {
            Application::Http(connection) | Application::Websocket(connection, _) => {
                connection.change_rules(successors);
            }
            Application::Http2(connection) => connection.change_rules(successors),
            _ => {}
        }
    }
}

fn sequence(view: &View<'_>) -> Option<u32> {
    match view.parsed.transport {
        Transport::Tcp { sequence, .. } => Some(sequence),
        _ => None,
    }
}
