//! What stands behind a message: the next one, or what Suricata takes for more of its body.

use super::transaction::begins_response;
use super::{Connection, Expect, begins, begins_with_any_method, odd};
use crate::buffers::event::AppEvent;

/// Bytes of a line by which a response is told.
const RESPONSE_MARK_LEN: usize = 4;

impl Connection {
    /// What follows a message in the same piece. A line that begins no other is more of its body; a
    /// request whose method Suricata does not know is that too, and begins one.
    pub(super) fn behind(
        &mut self,
        side: usize,
        bytes: &[u8],
        progressed: &mut Vec<u64>,
    ) -> Option<usize> {
        let end = bytes.iter().position(|it| *it == b'\n');
        let line = &bytes[..end.map_or(bytes.len(), |it| it + 1)];
        let start = line.iter().take_while(|it| odd::is_space(**it)).count();
        let word = line[start..].split(|it| odd::is_space(*it)).next().unwrap_or_default();
        let is_next = if side == 0 { odd::is_method(word) } else { begins_response(line) };
        let is_any = match side {
            0 if !is_next => begins_with_any_method(&line[start..]),
            _ => Some(false),
        };
        let told = std::mem::take(&mut self.sides[side].behind_told).min(line.len());
        if end.is_some() && (is_next || is_any == Some(true)) {
            if !is_next {
                self.more_of_body(side, &line[told..], false, progressed);
                self.raise(0, AppEvent::HttpBodyUnexpected);
            }
            self.sides[side].expect = Expect::Head;
            if side == 1 {
                self.set_behind(true, progressed);
            }
            return Some(0);
        }
        let is_word_whole = word.len() < line.len() - start;
        let may_be_next = is_next
            || (side == 0 && !is_word_whole && odd::begins_method(word))
            || (side == 1 && line.len() - start < RESPONSE_MARK_LEN);
        if end.is_none() && may_be_next {
            self.sides[side].behind_told = told;
            if side == 1 {
                self.set_behind(false, progressed);
            }
            return None;
        }
        self.more_of_body(side, &line[told..], end.is_none(), progressed);
        if end.is_none() && is_any.is_none() {
            self.sides[side].behind_told = line.len();
            return None;
        }
        if end.is_none() {
            self.sides[side].expect = Expect::BehindLine;
            if side == 1 {
                self.set_behind(false, progressed);
            }
        } else if side == 1 {
            self.raise_behind();
        } else if !word.is_empty() {
            self.raise(0, AppEvent::HttpBodyUnexpected);
        }
        Some(line.len())
    }

    /// The rest of a line behind a message.
    pub(super) fn behind_line(
        &mut self,
        side: usize,
        bytes: &[u8],
        progressed: &mut Vec<u64>,
    ) -> usize {
        let end = bytes.iter().position(|it| *it == b'\n');
        let line = &bytes[..end.map_or(bytes.len(), |it| it + 1)];
        self.more_of_body(side, line, end.is_none(), progressed);
        if end.is_some() {
            self.sides[side].expect = Expect::Behind;
            match side {
                0 => self.raise(0, AppEvent::HttpBodyUnexpected),
                _ => self.raise_behind(),
            }
        }
        line.len()
    }

    /// Of what stands behind a response a line is not whole, and Suricata waits for its end before
    /// it tells of the response; or no more comes.
    pub(super) fn set_behind(&mut self, is_over: bool, progressed: &mut Vec<u64>) {
        let number = self.sides[1].current.saturating_sub(1);
        if let Some(half) = self.transaction(number).and_then(|it| it.half_mut(1))
            && half.is_followed == is_over
        {
            (half.is_followed, half.goes_on) = (!is_over, false);
            progressed.push(number);
        }
    }

    /// Notes that more came behind a response.
    fn raise_behind(&mut self) {
        let number = self.sides[1].current.saturating_sub(1);
        self.raise_of(number, 1, AppEvent::HttpResponseBodyUnexpected);
    }

    /// Passes over a line that begins no request.
    pub(super) fn next_request(&mut self, side: usize, bytes: &[u8]) -> Option<usize> {
        let blanks = bytes.iter().take_while(|it| odd::is_space(**it)).count();
        let request = &bytes[blanks..];
        self.sides[side].expect = match begins_with_any_method(request) {
            _ if side == 1 => Expect::Nothing,
            _ if blanks > 0 => Expect::Request,
            None if !begins(request) => return None,
            None | Some(true) => Expect::Head,
            Some(false) => Expect::RequestLine,
        };
        Some(blanks)
    }

    fn more_of_body(&mut self, side: usize, line: &[u8], goes_on: bool, progressed: &mut Vec<u64>) {
        // A response is over when the next is waited for.
        let number = self.sides[side].current.saturating_sub(side as u64);
        let wanted = self.wanted[side];
        if let Some(half) = self.transaction(number).and_then(|it| it.half_mut(side)) {
            half.add_body(line, wanted);
            half.goes_on = goes_on;
        }
        progressed.push(number);
    }

    /// A side says no more. What says so may not arrive: then more comes nevertheless.
    pub(crate) fn close(&mut self, side: usize) {
        if std::mem::replace(&mut self.sides[side].is_closed, true) {
            return;
        }
        let (held, expect) = (std::mem::take(&mut self.sides[side].held), self.sides[side].expect);
        let number = self.sides[side].current;
        let mut progressed = Vec::new();
        match expect {
            Expect::Head if held.trim_ascii().is_empty() => {}
            Expect::Head if side == 0 || held.contains(&b'\n') => {
                let number = self.cut_head(side, &held);
                self.begun = if side == 0 { number } else { self.begun };
                progressed.extend(number);
            }
            Expect::Head if !begins_response(&held) => {
                let wanted = self.wanted[1];
                if let Some(transaction) = self.transaction(number) {
                    let half = transaction.half_or_new(1);
                    half.add_body(&held, wanted);
                    half.is_cut = true;
                    progressed.push(number);
                }
            }
            Expect::Behind if !held.is_empty() => {
                let state = &mut self.sides[side];
                let told = std::mem::replace(&mut state.behind_told, held.len()).min(held.len());
                self.more_of_body(side, &held[told..], false, &mut progressed);
                if side == 1 {
                    self.set_behind(true, &mut progressed);
                }
            }
            Expect::BehindLine if side == 1 => self.set_behind(true, &mut progressed),
            Expect::BodyToEnd => {
                if let Some(half) = self.transaction(number).and_then(|it| it.half_mut(side)) {
                    half.complete();
                    progressed.push(number);
                }
            }
            it => progressed.extend(self.cut_body(side, it)),
        }
        self.odd[side].append(&mut progressed);
        self.sides[side].held = held;
    }

    /// Its flow ends: what has come of a request is one, as far as its lines are whole; its number.
    pub(crate) fn cut_request(&mut self) -> Option<u64> {
        let state = &mut self.sides[0];
        let has_begun = state.expect == Expect::Head && !state.held.trim_ascii().is_empty();
        if state.is_closed || !has_begun || !state.search.ends() {
            return None;
        }
        let held = std::mem::take(&mut state.held);
        // A header that is not whole is none.
        let whole = if state.search.line > 0 { state.search.line } else { held.len() };
        self.cut_head(0, &held[..whole.min(held.len())])
    }

    /// No more comes of a body that is not whole; its transaction.
    fn cut_body(&mut self, side: usize, expect: Expect) -> Option<u64> {
        use Expect as E;
        let number = self.sides[side].current;
        match expect {
            E::Body(_) | E::ChunkSize | E::Chunk(_) | E::ChunkEnd | E::Trailer | E::BodyToEnd => {
                self.transaction(number)?.half_mut(side)?.is_cut = true;
                Some(number)
            }
            _ => None,
        }
    }

    /// A side gives up, if the other believes it: else more of a head comes.
    pub(crate) fn reset(&mut self, side: usize) {
        let state = &mut self.sides[side];
        let has_begun = state.expect == Expect::Head && !state.held.trim_ascii().is_empty();
        if has_begun && state.search.ends() {
            let held = std::mem::take(&mut state.held);
            let number = self.cut_head(side, &held);
            self.sides[side].held = held;
            self.begun = if side == 0 { number } else { self.begun };
            self.odd[side].extend(number);
        }
        let number = self.cut_body(side, self.sides[side].expect);
        self.odd[side].extend(number);
        if side == 1 && matches!(self.sides[1].expect, Expect::Behind | Expect::BehindLine) {
            let mut progressed = Vec::new();
            self.set_behind(true, &mut progressed);
            self.odd[1].append(&mut progressed);
        }
    }
}
