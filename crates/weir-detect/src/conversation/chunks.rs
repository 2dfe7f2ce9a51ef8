//! Who watches looks at streams in which nothing known is spoken in chunks: once so much was
//! acknowledged, and when a side closes (Suricata's `chunk-size`). At those of HTTP also when a
//! message has ended.

use super::Conversation;

/// Bytes of a chunk (Suricata's `toserver-chunk-size`, which it varies by a tenth).
const CHUNK_LEN: u64 = 2560;
/// Applications whose streams Suricata looks at in chunks although it knows them: their parsers ask
/// for no look of their own, or, as that of HTTP, at the end of a message.
const IN_CHUNKS: [&str; 3] = ["ftp", "smb", "http"];

/// How far a side's stream was looked at, in bytes.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Chunks {
    looked_at: u64,
    is_closing: bool,
    /// Where a message ended last.
    message_end: Option<u64>,
}

/// Whether a stream in which this is spoken is looked at in chunks.
pub(crate) fn is_in_chunks(application: Option<&str>) -> bool {
    application.is_none_or(|it| IN_CHUNKS.contains(&it))
}

impl Conversation {
    /// A packet of a side comes, which closes it or not, when so many of its bytes are
    /// acknowledged: up to which of them rules about bytes have looked with it.
    pub(crate) fn look_through(&mut self, side: usize, acknowledged: u64, closes: bool) -> u64 {
        let chunks = &mut self.chunks[side];
        chunks.is_closing |= closes;
        let is_new = |end: u64| end > chunks.looked_at && end <= acknowledged;
        let is_much = acknowledged >= chunks.looked_at + CHUNK_LEN;
        if chunks.is_closing || is_much || chunks.message_end.is_some_and(is_new) {
            chunks.looked_at = chunks.looked_at.max(acknowledged);
        }
        chunks.looked_at
    }

    /// Notes that a side's message has ended with what it has said, if one has.
    pub(crate) fn note_message_end(&mut self, side: usize) {
        if self.is_between_messages(side) {
            self.chunks[side].message_end = Some(self.streams[side].len());
        }
    }

    /// The number of the byte of a side before which so many are.
    pub(crate) fn number_at(&self, side: usize, bytes: u64) -> Option<u32> {
        let stream = &self.streams[side];
        let behind = stream.len().wrapping_sub(bytes) as u32;
        stream.next().map(|it| it.wrapping_sub(behind))
    }
}
