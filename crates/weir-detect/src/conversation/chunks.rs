//! Who watches looks at streams in which nothing known is spoken in chunks: once so much was
//! acknowledged, and when a side closes (Suricata's `chunk-size`). At those of HTTP also when a
//! message has ended.

use super::{Application, Conversation};

/// Bytes of a chunk (Suricata's `toserver-chunk-size`, which it varies by a tenth).
const CHUNK_LEN: u64 = 2560;
/// Applications whose streams Suricata looks at in chunks although it knows them, and the sides of
/// which it does: the client's first. That of HTTP asks for a look at the end of a message, that of
/// SSH behind its banner, that of RFB with each part of its handshake, the others never.
const IN_CHUNKS: [(&str, [bool; 2]); 8] = [
    ("ftp", [true; 2]),
    ("smb", [true; 2]),
    ("http", [true; 2]),
    ("ssh", [true; 2]),
    ("rfb", [true; 2]),
    ("modbus", [true, false]),
    ("nfs", [true, false]),
    ("mqtt", [false, true]),
];

/// How far a side's stream was looked at, in bytes.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Chunks {
    looked_at: u64,
    /// The same before the last look.
    looked_from: u64,
    is_at_once: bool,
    /// Where a message ended last.
    message_end: Option<u64>,
}

impl Chunks {
    pub(super) fn looked_at(&self) -> u64 {
        self.looked_at
    }
}

/// Whether a side's stream in which this is spoken is looked at in chunks.
pub(crate) fn is_in_chunks(application: Option<&str>, side: usize) -> bool {
    application.is_none_or(|spoken| IN_CHUNKS.iter().any(|it| it.0 == spoken && it.1[side]))
}

impl Conversation {
    /// A packet of a side comes when so many of its bytes are acknowledged: up to which of them
    /// rules about bytes have looked before, and with it. From one on they do at once: the
    /// connection is closing, or what is spoken is not looked at in chunks.
    pub(crate) fn look_through(
        &mut self,
        side: usize,
        acknowledged: u64,
        is_at_once: bool,
    ) -> (u64, u64) {
        let chunks = &mut self.chunks[side];
        let before = chunks.looked_at;
        chunks.is_at_once |= is_at_once;
        let is_new = |end: u64| end > chunks.looked_at && end <= acknowledged;
        let is_much = acknowledged >= chunks.looked_at + CHUNK_LEN;
        let is_due = chunks.is_at_once || is_much || chunks.message_end.is_some_and(is_new);
        if is_due && acknowledged > chunks.looked_at {
            (chunks.looked_from, chunks.looked_at) = (chunks.looked_at, acknowledged);
        }
        let looked_at = chunks.looked_at;
        if let Some(number) = self.number_at(side, looked_at) {
            self.streams[side].settle_before(number);
        }
        (before, looked_at)
    }

    /// The byte of a side from which on rules look at what it says: that behind the last message,
    /// where looks are at messages.
    pub(crate) fn chunk_from(&self, side: usize) -> u64 {
        let chunks = &self.chunks[side];
        if self.is_in_messages() { chunks.looked_at } else { 0 }
    }

    /// What rules look at of a side's stream, and how many bytes are missing before it.
    pub(crate) fn chunk(&self, side: usize) -> (&[u8], u64) {
        let Chunks { looked_at, looked_from, .. } = self.chunks[side];
        let from = if self.is_in_messages() { looked_from } else { 0 };
        let (window, before) = self.window_from(side, from);
        let count = usize::try_from(looked_at.saturating_sub(before)).unwrap_or(usize::MAX);
        (&window[..count.min(window.len())], before.saturating_sub(from))
    }

    fn is_in_messages(&self) -> bool {
        matches!(self.application, Application::Http(_))
    }

    /// Notes that a side's message has ended with what it has said, if one has; of SSH its banner.
    pub(crate) fn note_message_end(&mut self, side: usize) {
        let has_ended = match &self.application {
            Application::Ssh(session) => session.has_greeted_alone(side),
            Application::Other(_, Some(parser)) => parser.asks_for_look(),
            _ => self.is_between_messages(side),
        };
        if has_ended {
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
