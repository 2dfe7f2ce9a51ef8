//! Who watches looks at streams in which nothing known is spoken in chunks: once so much was
//! acknowledged, and when a side closes (Suricata's `chunk-size`). At those of HTTP also when a
//! message has ended.

use std::io::Write;

use weir_detect::Packet;
use weir_store::sink::eve as sink;
use weir_wire::parse::Transport;
use weir_wire::tcp::flags::{ACK, FIN, RST, SYN};

use super::super::layers::Layer;
use super::{HELD_MAX, Look};

/// Bytes of a chunk (Suricata's `toserver-chunk-size`, which it varies by a tenth).
const CHUNK_LEN: u32 = 2560;

/// How far a side's stream came, as numbers of its bytes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Chunks {
    acknowledged: u32,
    looked_at: u32,
    is_closing: bool,
    /// Where a message ended last.
    message_end: Option<u32>,
}

impl<W: Write> Look<W> {
    /// Notes what the packet acknowledges, and whether its own side's stream is looked at with it:
    /// up to which number.
    pub(super) fn note_chunks(&mut self, layer: &Layer<'_>, packet: &Packet<'_>) {
        self.chunk = None;
        if self.detector.is_ignored() {
            return;
        }
        let Transport::Tcp { sequence, acknowledgment, flags, .. } = layer.parsed.transport else {
            return;
        };
        let Some(view) = self.flows.view(&self.detector, packet).filter(|_| self.options.waits)
        else {
            return;
        };
        let id = sink::flow_id(&view);
        if flags & SYN != 0 && self.chunks.len() < HELD_MAX {
            let first = sequence.wrapping_add(1);
            let (is_closing, message_end) = (false, None);
            let new = Chunks { acknowledged: first, looked_at: first, is_closing, message_end };
            self.chunks.insert((id, view.to_server), new);
        }
        if let (true, Some(other)) = (flags & ACK != 0, self.chunks.get_mut(&(id, !view.to_server)))
            && acknowledgment.wrapping_sub(other.acknowledged) as i32 > 0
        {
            other.acknowledged = acknowledgment;
        }
        let Some(own) = self.chunks.get_mut(&(id, view.to_server)) else { return };
        own.is_closing |= flags & (FIN | RST) != 0;
        let is_behind = |one: u32, other: u32| one.wrapping_sub(other) as i32 > 0;
        let has_message = own
            .message_end
            .is_some_and(|end| is_behind(end, own.looked_at) && !is_behind(end, own.acknowledged));
        let length = layer.parsed.payload(layer.bytes).len() as u32;
        if length > 0 && self.flows.has_ended_message(&self.detector, packet) {
            own.message_end = Some(sequence.wrapping_add(length));
        }
        let is_much = own.acknowledged.wrapping_sub(own.looked_at) >= CHUNK_LEN;
        if own.is_closing || is_much || has_message {
            own.looked_at = own.acknowledged;
            self.chunk = Some(own.acknowledged);
        }
    }
}
