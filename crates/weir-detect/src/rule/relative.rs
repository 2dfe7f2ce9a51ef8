//! Steps that count from where the one before them ended.

use super::content;
use super::keywords::Refused;
use super::step::{ByteOrder, Content, Step, Value};

pub(super) fn is_relative(step: &Step) -> bool {
    match step {
        Step::IsDataAt { is_relative, .. } => *is_relative,
        Step::Asn1(it) => it.is_relative,
        Step::ByteTest(it) => it.read.is_relative,
        Step::ByteJump(it) => it.read.is_relative,
        Step::ByteExtract { read, .. } | Step::ByteMath { read, .. } => read.is_relative,
        _ => false,
    }
}

/// The byte order of the number that a step reads.
pub(super) fn order(step: &Step) -> Option<ByteOrder> {
    match step {
        Step::ByteTest(it) => Some(it.read.order),
        Step::ByteJump(it) => Some(it.read.order),
        Step::ByteExtract { read, .. } | Step::ByteMath { read, .. } => Some(read.order),
        _ => None,
    }
}

/// Whether something is found from which others may count.
pub(super) fn has_text(steps: &[Step]) -> bool {
    steps.iter().any(|it| matches!(it, Step::Content(_) | Step::Pcre(_)))
}

/// Notes of contents and expressions whether what follows counts from their ends: another
/// occurrence is tried then. The next content or expression may stand behind other steps; any other
/// follows at once.
pub(super) fn finish(steps: &mut [Step]) -> Result<(), Refused> {
    skip(steps);
    let (mut next_text, mut next) = (false, false);
    for step in steps.iter_mut().rev() {
        match step {
            Step::Content(it) => {
                content::check(it).map_err(|why| Refused::new("content", why))?;
                it.leads = next_text || next;
                next_text = it.within.is_some() || (it.is_negated && it.is_relative());
                next = false;
            }
            Step::Pcre(it) => {
                it.leads = next_text || next;
                (next_text, next) = (it.is_relative, false);
            }
            Step::IsDataAt { is_relative, .. } => next = *is_relative,
            Step::ByteTest(it) => next = it.read.is_relative,
            Step::ByteJump(it) => next = it.read.is_relative,
            Step::ByteExtract { read, .. } | Step::ByteMath { read, .. } => {
                next = read.is_relative;
            }
            Step::Asn1(it) => next = it.is_relative,
            Step::Size(_) | Step::Dataset(_) | Step::Entropy(_) => {}
            Step::Base64 { then, .. } => {
                finish(then)?;
                // It decodes from the first occurrence alone, as in Suricata 8.0.7.
                next = false;
            }
        }
    }
    Ok(())
}

/// A content with a distance from a negated one that may stand anywhere does not begin before such
/// a one could have ended, had it stood first: so Suricata 8.0.7 has it. Relative expressions may
/// stand between them.
fn skip(steps: &mut [Step]) {
    let mut before: Option<i64> = None;
    for step in steps {
        let Step::Content(content) = step else {
            before = before.filter(|_| matches!(step, Step::Pcre(it) if it.is_relative));
            continue;
        };
        if let (Some(length), Some(Value::Fixed(distance))) = (before, content.distance)
            && !content.is_negated
        {
            content.skip = (length + distance).clamp(0, i64::from(u32::MAX)) as u32;
        }
        before = is_nowhere(content).then_some(content.bytes.len() as i64);
    }
}

/// Whether it is that it stands nowhere at all.
fn is_nowhere(content: &Content) -> bool {
    let has_place = content.offset.is_some() || content.depth.is_some() || content.starts;
    content.is_negated && !has_place && !content.is_relative()
}

/// Bytes that a buffer has at least, where a content stands in it.
pub(super) fn least(step: &Step) -> u64 {
    match step {
        Step::Content(it) if !it.is_negated => fixed(it.offset) as u64 + it.bytes.len() as u64,
        _ => 0,
    }
}

/// Bytes up to the end of contents that follow each other as near as they may, those included that
/// must not be there: so many a payload must have for Suricata 8.0.7.
pub(super) fn longest(steps: &[Step]) -> i64 {
    let (mut longest, mut end) = (0, 0);
    for (place, step) in steps.iter().enumerate() {
        let Step::Content(content) = step else {
            end = 0;
            continue;
        };
        let length = content.bytes.len() as i64;
        let from = match content.is_relative() {
            true => end + fixed(content.distance),
            false => fixed(content.offset),
        };
        // What must not be there leads nowhere.
        if content.is_negated && content.is_relative() {
            longest = longest.max(from + length);
            continue;
        }
        end = from + length;
        let next = steps.get(place + 1);
        let is_last = !matches!(next, Some(Step::Content(it)) if it.is_relative());
        longest = if is_last { longest.max(end) } else { longest };
    }
    longest
}

/// A number that is written there; of a variable nothing is known.
fn fixed(value: Option<Value>) -> i64 {
    match value {
        Some(Value::Fixed(number)) => number,
        _ => 0,
    }
}
