//! Events of what was said over TCP, until its receiver acknowledged it.

use std::collections::HashMap;

use super::super::eve::Event;

/// Events of a flow that wait, at most; further ones are told at once.
const OF_FLOW_MAX: usize = 1 << 12;
/// Flows of which events wait, at most.
const FLOWS_MAX: usize = 1 << 16;

/// Events that wait, by flow.
#[derive(Debug, Default)]
pub(super) struct Waiting(HashMap<u64, Vec<One>>);

#[derive(Debug)]
struct One {
    to_server: bool,
    is_acknowledged: bool,
    event: Event,
}

impl Waiting {
    /// Keeps an event of what a packet said; returns it where there is no room.
    pub(super) fn hold(&mut self, flow: u64, to_server: bool, event: Event) -> Option<Event> {
        let is_full = self.0.len() >= FLOWS_MAX && !self.0.contains_key(&flow);
        let list = self.0.entry(flow).or_default();
        if is_full || list.len() >= OF_FLOW_MAX {
            return Some(event);
        }
        list.push(One { to_server, is_acknowledged: false, event });
        None
    }

    /// Events that a packet makes ready: those of messages by the other side's next packet, those
    /// of files by the sender's packet behind it.
    pub(super) fn take(&mut self, flow: u64, to_server: bool) -> Vec<Event> {
        let Some(list) = self.0.get_mut(&flow) else { return Vec::new() };
        let mut ready = Vec::new();
        for mut one in std::mem::take(list) {
            let is_answer = one.to_server != to_server;
            let is_file = one.event.get("event_type").is_some_and(|it| it == "fileinfo");
            if if is_file { one.is_acknowledged && !is_answer } else { is_answer } {
                ready.push(one.event);
            } else {
                one.is_acknowledged |= is_answer;
                list.push(one);
            }
        }
        ready
    }

    /// Events of a flow that is over.
    pub(super) fn end(&mut self, flow: u64) -> Vec<Event> {
        let left = self.0.remove(&flow).unwrap_or_default();
        left.into_iter().map(|it| it.event).collect()
    }

    /// All that are left, flow by flow.
    pub(super) fn end_all(&mut self) -> Vec<Event> {
        let mut flows: Vec<u64> = self.0.keys().copied().collect();
        flows.sort_unstable();
        flows.into_iter().flat_map(|it| self.end(it)).collect()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn event(kind: &str) -> Event {
        let mut event = Event::new();
        event.insert("event_type".into(), json!(kind));
        event
    }

    #[test]
    fn messages_wait_for_the_other_side_and_files_for_their_sender_behind_it() {
        let mut waiting = Waiting::default();
        assert!(waiting.hold(1, false, event("http")).is_none());
        assert!(waiting.hold(1, false, event("fileinfo")).is_none());
        assert!(waiting.take(1, false).is_empty() && waiting.take(2, true).is_empty());
        assert_eq!(waiting.take(1, true), [event("http")]);
        assert_eq!(waiting.take(1, false), [event("fileinfo")]);
        assert!(waiting.hold(1, true, event("smtp")).is_none());
        assert_eq!(waiting.end_all(), [event("smtp")]);
    }
}
