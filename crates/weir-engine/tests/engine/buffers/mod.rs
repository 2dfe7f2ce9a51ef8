//! A packet that owns its buffer, as tests need it.
#![allow(dead_code, reason = "each test binary uses its part")]

use weir_engine::esp::open::{OpenError, Opened, OpeningSa};
use weir_engine::esp::seal::{SealError, SealingSa};
use weir_wire::frame::{Frame, Link, Meta};
use weir_wire::parse::{Parsed, parse};

const ROOM: usize = 128;

/// A packet in a buffer of its own, with room around it.
#[derive(Clone, Debug)]
pub(crate) struct Packet {
    buffer: Vec<u8>,
    start: usize,
    end: usize,
    pub(crate) meta: Meta,
}

impl Packet {
    pub(crate) fn new(bytes: &[u8]) -> Self {
        Self::with_meta(bytes, Meta { original_len: bytes.len() as u32, ..Meta::default() })
    }

    pub(crate) fn with_meta(bytes: &[u8], meta: Meta) -> Self {
        let buffer = [&[0; ROOM][..], bytes, &[0; ROOM]].concat();
        Self { buffer, start: ROOM, end: ROOM + bytes.len(), meta }
    }

    /// The walk over its bytes as they are now.
    pub(crate) fn parse(&self, link: Link) -> Parsed {
        parse(self.bytes(), link, self.bytes().len() as u32)
    }

    pub(crate) fn frame(&mut self) -> Frame<'_> {
        Frame::new(&mut self.buffer, self.start, self.end, self.meta)
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.buffer[self.start..self.end]
    }

    pub(crate) fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.buffer[self.start..self.end]
    }

    pub(crate) fn seal(
        &mut self,
        sealing: &mut SealingSa,
        next_header: u8,
    ) -> Result<(), SealError> {
        self.change(|frame| sealing.seal(frame, next_header))
    }

    pub(crate) fn open(&mut self, opening: &mut OpeningSa) -> Result<Opened, OpenError> {
        self.change(|frame| opening.open(frame))
    }

    pub(crate) fn change<T>(&mut self, change: impl FnOnce(&mut Frame<'_>) -> T) -> T {
        let mut frame = Frame::new(&mut self.buffer, self.start, self.end, self.meta);
        let result = change(&mut frame);
        let (start, len, meta) = (frame.headroom(), frame.len(), frame.meta);
        (self.start, self.end, self.meta) = (start, start + len, meta);
        result
    }
}
