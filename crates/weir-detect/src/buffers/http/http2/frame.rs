//! Frames of HTTP/2 (RFC 9113 s4, s6): their heads, and what rules ask of them.

use crate::buffers::event::AppEvent;
use crate::heap::heap_size;
use crate::rule::{MessageField, MessageTest};

/// Bytes of a frame's head.
pub(super) const HEAD_LEN: usize = 9;
/// Numbers of one kind that are kept of a stream, at most.
const NUMBERS_MAX: usize = 256;

pub(super) const DATA: u8 = 0;
pub(super) const HEADERS: u8 = 1;
pub(super) const PRIORITY: u8 = 2;
pub(super) const RST_STREAM: u8 = 3;
pub(super) const SETTINGS: u8 = 4;
pub(super) const PUSH_PROMISE: u8 = 5;
pub(super) const GOAWAY: u8 = 7;
pub(super) const WINDOW_UPDATE: u8 = 8;
pub(super) const CONTINUATION: u8 = 9;

pub(super) const END_STREAM: u8 = 0x01;
pub(super) const END_HEADERS: u8 = 0x04;
pub(super) const PADDED: u8 = 0x08;
pub(super) const HAS_PRIORITY: u8 = 0x20;

/// What a frame's head says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Head {
    pub(super) length: usize,
    pub(super) kind: u8,
    pub(super) flags: u8,
    pub(super) stream: u32,
}

/// What came in the frames that a side sent for a stream, as rules ask for it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Frames {
    pub(crate) kinds: Vec<u8>,
    pub(crate) error_codes: Vec<u32>,
    /// The first of those ended the connection (GOAWAY).
    pub(super) is_away: bool,
    /// Weights.
    pub(crate) priorities: Vec<u8>,
    pub(crate) windows: Vec<u32>,
    /// New sizes of the table of headers.
    pub(crate) table_sizes: Vec<u64>,
    /// Names and values.
    pub(crate) settings: Vec<(u16, u32)>,
    /// Something of it was not looked at.
    pub(crate) is_fresh: bool,
}
heap_size!(Frames { kinds, error_codes, priorities, windows, table_sizes });

impl Head {
    pub(super) fn of(bytes: &[u8]) -> Option<Self> {
        let [a, b, c, kind, flags, stream @ ..] = bytes.first_chunk::<HEAD_LEN>()?;
        let length = usize::from(*a) << 16 | usize::from(*b) << 8 | usize::from(*c);
        let stream = u32::from_be_bytes(*stream) & 0x7fff_ffff;
        Some(Self { length, kind: *kind, flags: *flags, stream })
    }

    pub(super) fn has(&self, flag: u8) -> bool {
        self.flags & flag != 0
    }

    /// What is odd about its length (RFC 9113 s6).
    pub(super) fn odd_length(&self) -> Option<AppEvent> {
        let is_right = match self.kind {
            PRIORITY => self.length == 5,
            RST_STREAM | WINDOW_UPDATE => self.length == 4,
            GOAWAY => self.length >= 8,
            _ => true,
        };
        (!is_right).then_some(AppEvent::Http2FrameLength)
    }
}

impl Frames {
    /// Takes in a frame's payload; a frame of headers without its padding.
    pub(super) fn take(&mut self, head: &Head, payload: &[u8]) {
        self.is_fresh = true;
        put(&mut self.kinds, head.kind);
        if head.odd_length().is_some() {
            return;
        }
        let word = |at: usize| {
            let bytes = payload.get(at..at + 4)?;
            Some(u32::from_be_bytes(bytes.try_into().ok()?))
        };
        match head.kind {
            PRIORITY => payload.get(4).into_iter().for_each(|it| put(&mut self.priorities, *it)),
            HEADERS if head.has(HAS_PRIORITY) => {
                payload.get(4).into_iter().for_each(|it| put(&mut self.priorities, *it));
            }
            RST_STREAM => word(0).into_iter().for_each(|it| put(&mut self.error_codes, it)),
            GOAWAY => {
                self.is_away |= self.error_codes.is_empty();
                word(4).into_iter().for_each(|it| put(&mut self.error_codes, it));
            }
            WINDOW_UPDATE => {
                word(0).into_iter().for_each(|it| put(&mut self.windows, it & 0x7fff_ffff));
            }
            SETTINGS => {
                for setting in payload.chunks_exact(6) {
                    let name = u16::from_be_bytes([setting[0], setting[1]]);
                    let value = [setting[2], setting[3], setting[4], setting[5]];
                    put(&mut self.settings, (name, u32::from_be_bytes(value)));
                }
            }
            _ => {}
        }
    }

    /// Whether a number that came is as a rule wants it.
    pub(crate) fn hold(&self, test: &MessageTest) -> bool {
        match test.field {
            MessageField::Http2FrameType => self.kinds.iter().any(|it| test.holds((*it).into())),
            MessageField::Http2ErrorCode => {
                self.error_codes.iter().any(|it| test.holds((*it).into()))
            }
            MessageField::Http2Priority => {
                self.priorities.iter().any(|it| test.holds((*it).into()))
            }
            MessageField::Http2Window => self.windows.iter().any(|it| test.holds((*it).into())),
            MessageField::Http2TableSize => self.table_sizes.iter().any(|it| test.holds(*it)),
            MessageField::Http2Setting(name) => {
                self.settings.iter().any(|it| it.0 == name && test.holds(it.1.into()))
            }
            _ => false,
        }
    }

    /// Whether headers came, were they none.
    pub(super) fn has_headers(&self) -> bool {
        self.kinds.iter().any(|it| matches!(*it, HEADERS | PUSH_PROMISE | CONTINUATION))
    }

    /// Takes in new sizes of the table of headers.
    pub(super) fn resize(&mut self, sizes: &[u64]) {
        sizes.iter().for_each(|it| put(&mut self.table_sizes, *it));
    }
}

fn put<T>(list: &mut Vec<T>, one: T) {
    if list.len() < NUMBERS_MAX {
        list.push(one);
    }
}

/// The name of a setting (RFC 9113 s6.5.2, RFC 8441, RFC 9218).
pub(crate) const SETTINGS_NAMES: [(u16, &str); 8] = [
    (1, "SETTINGS_HEADER_TABLE_SIZE"),
    (2, "SETTINGS_ENABLE_PUSH"),
    (3, "SETTINGS_MAX_CONCURRENT_STREAMS"),
    (4, "SETTINGS_INITIAL_WINDOW_SIZE"),
    (5, "SETTINGS_MAX_FRAME_SIZE"),
    (6, "SETTINGS_MAX_HEADER_LIST_SIZE"),
    (8, "SETTINGS_ENABLE_CONNECT_PROTOCOL"),
    (9, "SETTINGS_NO_RFC7540_PRIORITIES"),
];

/// The names of errors, by their numbers (RFC 9113 s7).
pub(crate) const ERROR_NAMES: [&str; 14] = [
    "NO_ERROR",
    "PROTOCOL_ERROR",
    "INTERNAL_ERROR",
    "FLOW_CONTROL_ERROR",
    "SETTINGS_TIMEOUT",
    "STREAM_CLOSED",
    "FRAME_SIZE_ERROR",
    "REFUSED_STREAM",
    "CANCEL",
    "COMPRESSION_ERROR",
    "CONNECT_ERROR",
    "ENHANCE_YOUR_CALM",
    "INADEQUATE_SECURITY",
    "HTTP_1_1_REQUIRED",
];

/// The names of frames, by their numbers (RFC 9113 s6).
pub(crate) const FRAME_NAMES: [&str; 10] = [
    "DATA",
    "HEADERS",
    "PRIORITY",
    "RSTSTREAM",
    "SETTINGS",
    "PUSHPROMISE",
    "PING",
    "GOAWAY",
    "WINDOWUPDATE",
    "CONTINUATION",
];
