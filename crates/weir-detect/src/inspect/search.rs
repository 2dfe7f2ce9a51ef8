//! Where in a buffer a content may stand.

use super::Bytes;
use crate::rule::step::{Content, Value};

/// Places left where a content may begin.
pub(super) struct Search<'a> {
    content: &'a Content,
    /// The first byte that the next occurrence may have.
    from: usize,
    /// No occurrence may end behind this.
    until: usize,
}

impl Search<'_> {
    /// Whether a negated content is there: at the end, where that is asked. As by Suricata 8.0.7
    /// its first occurrence tells, and where that begins counts from where it was looked for,
    /// twice.
    pub(super) fn is_there(&mut self, buffer: &[u8]) -> bool {
        let Self { content, from, until } = *self;
        let found = self.next(buffer);
        let reaches_end = until == buffer.len();
        let is_end = |start| reaches_end && start + content.bytes.len() + from == until;
        found.is_some_and(|start| !content.ends || is_end(start))
    }

    /// Where the next occurrence begins.
    pub(super) fn next(&mut self, buffer: &[u8]) -> Option<usize> {
        let Search { content, from, until } = *self;
        let length = content.bytes.len();
        if content.ends && !content.is_negated {
            let start = buffer.len().checked_sub(length)?;
            self.from = usize::MAX;
            let is_inside = start >= from && until == buffer.len();
            return (is_inside && same(content, &buffer[start..])).then_some(start);
        }
        let window = buffer.get(from..until)?;
        let start = from + find(content, window)?;
        self.from = start + 1;
        Some(start)
    }
}

fn same(content: &Content, window: &[u8]) -> bool {
    match content.is_nocase {
        true => window.eq_ignore_ascii_case(&content.bytes),
        false => *window == *content.bytes,
    }
}

/// The first occurrence. Windows are short but for streams, where a fast pattern came first.
fn find(content: &Content, window: &[u8]) -> Option<usize> {
    let length = content.bytes.len();
    let last = window.len().checked_sub(length)?;
    if !content.is_nocase {
        return memchr::memmem::find(window, &content.bytes);
    }
    let first = content.bytes[0];
    let (lower, upper) = (first.to_ascii_lowercase(), first.to_ascii_uppercase());
    memchr::memchr2_iter(lower, upper, &window[..=last])
        .find(|at| same(content, &window[*at..at + length]))
}

/// Where `content` may stand, `here` being where the step before ended; `None`: nowhere.
pub(super) fn of<'a>(
    content: &'a Content,
    buffer: Bytes<'_>,
    here: usize,
    value: &dyn Fn(Value) -> i64,
) -> Option<Search<'a>> {
    // Of a variable that many bits count, as in Suricata 8.0.7.
    let signed = |it| i64::from(value(it) as i32);
    let unsigned = |it| i64::from(value(it) as u32);
    let length = buffer.bytes.len() as i64;
    let before = i64::try_from(buffer.before).unwrap_or(i64::MAX);
    let (mut from, mut until) = (0, length);
    if content.is_relative() {
        let distance = content.distance.map_or(0, signed);
        from = (here as i64).saturating_add(distance).max(0);
        if let Some(within) = content.within.map(signed) {
            let end = (here as i64).saturating_add(distance).saturating_add(within);
            // Before the first byte it is no end, as in Suricata 8.0.7.
            until = if end < 0 { until } else { until.min(end) };
        }
        if let Some(depth) = content.depth.map(unsigned) {
            until = until.min((here as i64).saturating_add(depth));
        }
    } else {
        let offset = content.offset.map_or(0, unsigned);
        let depth = match content.starts {
            true => Some(content.bytes.len() as i64),
            false => content.depth.map(unsigned),
        };
        // Offsets count from the stream's first byte, depths from the offset.
        if let Some(depth) = depth {
            until = until.min(offset.saturating_add(depth).saturating_sub(before));
        }
        from = (offset - before).max(from).max(0);
    }
    from = from.max(i64::from(content.skip).saturating_sub(before));
    if from > until || until <= 0 {
        return None;
    }
    Some(Search { content, from: from as usize, until: until as usize })
}
