//! Events of what was said over TCP, until its receiver acknowledged it.

use std::collections::HashMap;

use weir_wire::parse::Transport;
use weir_wire::tcp::flags;

use super::super::eve::Event;
use super::super::layers::Layer;

/// Events of a flow that wait, at most; further ones are told at once.
const OF_FLOW_MAX: usize = 1 << 12;
/// Flows of which events wait, at most.
const FLOWS_MAX: usize = 1 << 16;

/// What a packet of TCP sends, and what it has of the other side.
#[derive(Clone, Copy, Debug)]
pub(super) struct Segment {
    /// The sequence number behind its last byte.
    pub(super) end: u32,
    /// What it acknowledges; a reset hears all.
    acknowledgment: Option<u32>,
}

impl Segment {
    pub(super) fn of(layer: &Layer<'_>) -> Option<Self> {
        let Transport::Tcp { sequence, acknowledgment, flags: seen, .. } = layer.parsed.transport
        else {
            return None;
        };
        let length = layer.payload().len() as u32;
        let acknowledgment = Some(acknowledgment).filter(|_| seen & flags::RST == 0);
        Some(Self { end: sequence.wrapping_add(length), acknowledgment })
    }

    /// Whether it acknowledges all before `end`.
    pub(super) fn hears(self, end: u32) -> bool {
        self.acknowledgment.is_none_or(|it| it.wrapping_sub(end) < 1 << 31)
    }
}

/// Events that wait, by flow.
#[derive(Debug, Default)]
pub(super) struct Waiting(HashMap<u64, Vec<One>>);

#[derive(Debug)]
struct One {
    to_server: bool,
    /// Whether the client sent the file that it is about.
    is_of_client: bool,
    /// The sequence number behind what it is about.
    end: u32,
    is_acknowledged: bool,
    event: Event,
}

impl Waiting {
    /// Keeps an event of what a packet said, by whether the client sent the packet and the file,
    /// and by its end; returns it where there is no room.
    pub(super) fn hold(
        &mut self,
        flow: u64,
        ([to_server, is_of_client], end): ([bool; 2], u32),
        event: Event,
    ) -> Option<Event> {
        let is_full = self.0.len() >= FLOWS_MAX && !self.0.contains_key(&flow);
        let list = self.0.entry(flow).or_default();
        if is_full || list.len() >= OF_FLOW_MAX {
            return Some(event);
        }
        list.push(One { to_server, is_of_client, end, is_acknowledged: false, event });
        None
    }

    /// Events that a packet makes ready: those of messages by the other side's packet that
    /// acknowledges them, those of files by the next packet of who sent the file.
    pub(super) fn take(&mut self, flow: u64, to_server: bool, segment: Segment) -> Vec<Event> {
        let Some(list) = self.0.get_mut(&flow) else { return Vec::new() };
        let mut ready = Vec::new();
        for mut one in std::mem::take(list) {
            let is_answer = one.to_server != to_server && segment.hears(one.end);
            one.is_acknowledged |= is_answer;
            let is_senders = one.is_of_client == to_server;
            let is_file = one.event.get("event_type").is_some_and(|it| it == "fileinfo");
            if one.is_acknowledged && (is_senders || !is_file) {
                ready.push(one.event);
            } else {
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
        let of = |acknowledgment| Segment { end: 0, acknowledgment };
        assert!(waiting.hold(1, ([false; 2], 7), event("http")).is_none());
        assert!(waiting.hold(1, ([false; 2], 7), event("fileinfo")).is_none());
        for (flow, to_server, heard) in [(1, false, 7), (2, true, 7), (1, true, 6)] {
            assert!(waiting.take(flow, to_server, of(Some(heard))).is_empty());
        }
        assert_eq!(waiting.take(1, true, of(Some(7))), [event("http")]);
        assert_eq!(waiting.take(1, false, of(Some(7))), [event("fileinfo")]);
        assert!(waiting.hold(1, ([true; 2], 7), event("tls")).is_none());
        assert_eq!(waiting.take(1, false, of(None)), [event("tls")]);
        assert!(waiting.hold(1, ([true; 2], 7), event("smtp")).is_none());
        assert_eq!(waiting.end_all(), [event("smtp")]);
    }
}
