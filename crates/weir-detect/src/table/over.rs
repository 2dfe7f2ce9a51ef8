//! Connections that are over, in the order in which they ended: they leave before others do.

use std::collections::VecDeque;

use weir_wire::frame::Time;

use super::Key;

/// So long a connection stays known that is over: Suricata's timeout of closed ones, and as long as
/// Linux keeps its ports (TIME-WAIT, RFC 9293 s3.10.7.8).
const OVER_NS: u64 = 60_000_000_000;

/// Those that ended, and when. One whose ends have begun anew since is there too.
#[derive(Debug, Default)]
pub(super) struct Over(VecDeque<(Key, Time)>);

impl Over {
    /// It ended.
    pub(super) fn push(&mut self, key: Key, now: Time) {
        self.0.push_back((key, now));
    }

    /// The one that ended first, and when.
    pub(super) fn pop(&mut self) -> Option<(Key, Time)> {
        self.0.pop_front()
    }

    /// The same, if that was long ago.
    pub(super) fn pop_old(&mut self, now: Time) -> Option<(Key, Time)> {
        self.0.front().filter(|it| now.since_ns(it.1) > OVER_NS)?;
        self.pop()
    }

    /// How many.
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }
}
