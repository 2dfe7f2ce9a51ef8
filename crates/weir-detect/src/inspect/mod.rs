//! Whether a buffer is as a rule's steps say.
//!
//! Steps are taken in order. One that counts from where the last ended may fail where another
//! occurrence of the last would do: then that is tried, within [`TRIES_MAX`].

pub(crate) mod base64;
mod number;
mod search;

use std::sync::Arc;

use crate::alert::TextScope;
use crate::dataset::{DatasetTest, Datasets};
use crate::rule::Base64Mode;
use crate::rule::step::{Capture, Content, Pcre, Step, Value};
use search::Search;

/// Steps tried for one rule and buffer, at most. A rule that needs more does not match, which is
/// counted.
pub(crate) const TRIES_MAX: u32 = 3000;
/// Variables of a rule, which one buffer's steps hand to the next's.
pub(crate) type Variables = [i64; VARIABLES];
const VARIABLES: usize = 16;

/// Bytes to look at, and where they stand in the stream that they are a window of.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bytes<'a> {
    pub(crate) bytes: &'a [u8],
    /// Bytes of the stream before the window.
    pub(crate) before: u64,
    /// The buffer's end is not here yet: nothing can be said of it.
    pub(crate) is_open: bool,
    /// What comes behind it is looked at together with it: it has no end yet.
    pub(crate) goes_on: bool,
    /// Of a call whose numbers have their lowest byte first.
    pub(crate) is_little: bool,
}

impl<'a> Bytes<'a> {
    pub(crate) fn whole(bytes: &'a [u8]) -> Self {
        Self { bytes, before: 0, is_open: false, goes_on: false, is_little: false }
    }
}

/// What a look costs, whether it was given up, and what it found out by the way.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Cost {
    pub(crate) tries: u32,
    /// A pattern ran into its limit.
    pub(crate) pcre_limits: u32,
    /// The last entropy that was reckoned, whatever the rule wants it to be.
    pub(crate) entropy: Option<f64>,
    /// That of what stood there in base64.
    pub(crate) decoded_entropy: Option<f64>,
}

/// What steps read and put beside the buffer.
pub(crate) struct Memory<'a> {
    pub(crate) variables: &'a mut Variables,
    pub(crate) sets: &'a mut Datasets,
    /// Texts that expressions captured.
    pub(crate) texts: &'a mut Texts,
    /// Contents that are to be replaced.
    pub(crate) replaced: &'a mut Vec<Replaced>,
}

/// A content that was found and is to be replaced: where it begins, and what is written there.
pub(crate) type Replaced = (usize, Arc<[u8]>);

/// Bytes of a text that is captured, at most; the rest of it is left out.
const TEXT_LEN_MAX: usize = 1024;

/// Texts that a rule's expressions captured, each name once.
#[derive(Clone, Debug, Default)]
pub(crate) struct Texts(Vec<(TextScope, u32, Vec<u8>)>);

impl Texts {
    pub(crate) fn clear(&mut self) {
        self.0.clear();
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &(TextScope, u32, Vec<u8>)> {
        self.0.iter()
    }

    pub(crate) fn put(&mut self, kept: TextScope, name: u32, text: &[u8]) {
        let text = text[..text.len().min(TEXT_LEN_MAX)].to_vec();
        match self.0.iter_mut().find(|it| (it.0, it.1) == (kept, name)) {
            Some(known) => known.2 = text,
            None => self.0.push((kept, name, text)),
        }
    }
}

/// Whether `buffer` is as `steps` say.
pub(crate) fn holds(
    steps: &[Step],
    buffer: Bytes<'_>,
    memory: Memory<'_>,
    cost: &mut Cost,
) -> bool {
    let Memory { variables, sets, texts, replaced } = memory;
    let is_over = false;
    let mut inspection = Inspection { buffer, variables, sets, texts, replaced, cost, is_over };
    inspection.run(steps, 0).is_some()
}

struct Inspection<'a, 'c> {
    buffer: Bytes<'a>,
    variables: &'c mut Variables,
    sets: &'c mut Datasets,
    texts: &'c mut Texts,
    replaced: &'c mut Vec<Replaced>,
    cost: &'c mut Cost,
    /// What failed counts from nowhere: no other occurrence of what is before it is tried, as in
    /// Suricata 8.0.7.
    is_over: bool,
}

impl Inspection<'_, '_> {
    /// Whether the steps hold, the first counting from `here`.
    fn run(&mut self, steps: &[Step], here: usize) -> Option<()> {
        let Some((step, rest)) = steps.split_first() else { return Some(()) };
        self.cost.tries += 1;
        if self.cost.tries > TRIES_MAX {
            return None;
        }
        match step {
            Step::Content(content) => self.content(content, rest, here),
            Step::Pcre(pcre) => self.pcre(pcre, rest, here),
            Step::IsDataAt { at, is_relative, is_negated } => {
                let at = self.value(*at) as u64;
                let length = self.buffer.bytes.len() as u64;
                let is_there = match is_relative {
                    true => at.saturating_add(here as u64) <= length,
                    false => at < length,
                };
                let is_known = is_there || !self.buffer.goes_on;
                (is_known && is_there != *is_negated).then_some(())?;
                self.run(rest, here)
            }
            Step::Size(numbers) => {
                let length = self.buffer.before + self.buffer.bytes.len() as u64;
                (!self.buffer.is_open && numbers.contain(length)).then_some(())?;
                self.run(rest, here)
            }
            Step::Asn1(test) => {
                test.holds(self.buffer.bytes, here).then_some(())?;
                self.run(rest, here)
            }
            Step::Dataset(test) => self.dataset(*test, rest, here),
            Step::Entropy(test) => {
                let entropy = test.of(self.buffer.bytes)?;
                self.cost.entropy = Some(entropy);
                test.holds(entropy).then_some(())?;
                self.run(rest, here)
            }
            Step::ByteTest(test) => {
                self.byte_test(test, here).then_some(())?;
                self.run(rest, here)
            }
            Step::ByteJump(jump) => {
                let to = self.byte_jump(jump, here)?;
                self.run(rest, to)
            }
            Step::ByteExtract { read, variable, multiplier, align } => {
                let (number, end) = self.read(read, here)?;
                let mut number = number.wrapping_mul(*multiplier as i64);
                number = number.wrapping_add(align - 1) & -align;
                self.variables[*variable] = number;
                self.run(rest, end)
            }
            Step::ByteMath { read, operator, operand, variable } => {
                let operand = self.value(*operand);
                let (result, end) = self.reckon(read, here, *operator, operand)?;
                self.variables[*variable] = result;
                self.run(rest, end)
            }
            Step::Base64 { bytes, offset, is_relative, then } => {
                let start = *offset as usize + if *is_relative { here } else { 0 };
                self.base64(start, *bytes, then)?;
                self.run(rest, here)
            }
        }
    }

    /// Whether what so many bytes from `start` stand for is as `steps` say. Whoever asks nothing of
    /// it is told nothing, as in Suricata 8.0.7.
    fn base64(&mut self, start: usize, bytes: Option<u32>, steps: &[Step]) -> Option<()> {
        let encoded = self.buffer.bytes.get(start..)?;
        let count = bytes.map_or(usize::MAX, |it| it as usize).min(encoded.len());
        let decoded = base64::decode(&encoded[..count], Base64Mode::Rfc4648)?;
        let Self { variables, sets, texts, replaced, .. } = self;
        let memory = Memory { variables, sets, texts, replaced };
        let own = self.cost.entropy.take();
        let holds = holds(steps, Bytes::whole(&decoded), memory, self.cost);
        let decoded = std::mem::replace(&mut self.cost.entropy, own);
        self.cost.decoded_entropy = decoded.or(self.cost.decoded_entropy);
        (holds && !steps.is_empty()).then_some(())
    }

    fn dataset(&mut self, test: DatasetTest, rest: &[Step], here: usize) -> Option<()> {
        let waiting = self.sets.waiting();
        self.sets.holds(test, self.buffer.bytes).then_some(())?;
        let rest = self.run(rest, here);
        if rest.is_none() {
            self.sets.give_up(waiting);
        }
        rest
    }

    fn value(&self, value: Value) -> i64 {
        match value {
            Value::Fixed(fixed) => fixed,
            Value::Variable(index) => self.variables[index],
        }
    }

    fn content(&mut self, content: &Content, rest: &[Step], here: usize) -> Option<()> {
        let place = search::of(content, self.buffer, here, &|value| self.value(value));
        let Some(search) = place else {
            return if content.is_negated { self.run(rest, here) } else { None };
        };
        let mut search: Search<'_> = search;
        if content.is_negated {
            let is_there = search.is_there(self.buffer.bytes);
            // At an end that is not here yet, nothing is known to be absent; a stream ends, for
            // this, where it ends so far, as in Suricata.
            let is_unknown = content.ends && self.buffer.goes_on;
            return if is_there || is_unknown { None } else { self.run(rest, here) };
        }
        if content.ends && self.buffer.goes_on {
            return None;
        }
        while let Some(start) = search.next(self.buffer.bytes) {
            let end = start + content.bytes.len();
            if self.run(rest, end).is_some() {
                self.replaced.extend(content.replacement.iter().map(|it| (start, it.clone())));
                return Some(());
            }
            self.is_over |= !content.leads;
            if self.is_over || self.cost.tries > TRIES_MAX {
                return None;
            }
        }
        self.is_over |= !content.is_relative();
        None
    }

    fn pcre(&mut self, pcre: &Pcre, rest: &[Step], here: usize) -> Option<()> {
        let base = if pcre.is_relative { here } else { 0 };
        let subject = self.buffer.bytes.get(base..)?;
        let mut from = 0;
        loop {
            let found = if pcre.captures.is_empty() {
                pcre.regex.find_at(subject, from).map(|it| it.map(|it| (it.start(), it.end())))
            } else {
                self.captured(pcre, subject, from)
            };
            // Nobody knows whether the text is there or absent: no match, as in Suricata.
            let found = found.inspect_err(|_| self.cost.pcre_limits += 1).ok()?;
            let Some((start, end)) = found else {
                return if pcre.is_negated { self.run(rest, here) } else { None };
            };
            if pcre.is_negated {
                return None;
            }
            if self.run(rest, base + end).is_some() {
                return Some(());
            }
            from = start + 1;
            let has_more = pcre.leads && from <= subject.len();
            if !has_more || self.is_over || self.cost.tries > TRIES_MAX {
                return None;
            }
        }
    }

    fn captured(
        &mut self,
        pcre: &Pcre,
        subject: &[u8],
        from: usize,
    ) -> Result<Option<(usize, usize)>, pcre2::Error> {
        let mut locations = pcre.regex.capture_locations();
        let Some(whole) = pcre.regex.captures_read_at(&mut locations, subject, from)? else {
            return Ok(None);
        };
        for (group, capture) in &pcre.captures {
            let text = locations.get(*group).and_then(|(start, end)| subject.get(start..end));
            match capture {
                Capture::Text(kept, name) => {
                    text.into_iter().for_each(|it| self.texts.put(*kept, *name, it));
                }
                Capture::Number(variable) => {
                    let digits = text.and_then(|it| std::str::from_utf8(it).ok());
                    let number = digits.and_then(|it| it.parse().ok());
                    self.variables[*variable] = number.unwrap_or_default();
                }
            }
        }
        Ok(Some((whole.start(), whole.end())))
    }
}
