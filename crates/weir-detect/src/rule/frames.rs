//! `frame`: the units of a protocol, and `stream`, all that a side says in it.

use super::keywords::{Collected, Refused};
use super::{Buffer, BufferTest};
use crate::frame::FrameKind;

impl Collected {
    /// The buffer that `frame` names. A stream is the payload's, from where it begins.
    pub(super) fn frame(&mut self, value: &str) -> Result<Buffer, String> {
        let Some(protocol) = FrameKind::stream(value, self.protocol)? else {
            return FrameKind::parse(value, self.protocol).map(Buffer::Frame);
        };
        if self.stream_of.is_none() && !self.buffers.is_empty() {
            return Err("nothing else of the stream goes with a frame".to_owned());
        }
        self.stream_of = Some(protocol);
        Ok(Buffer::Payload)
    }

    /// Has the rule look at the stream alone, if it names one.
    pub(super) fn settle_stream(&mut self) -> Result<(), Refused> {
        if self.stream_of.is_none() {
            return Ok(());
        }
        let is_payload = |it: &BufferTest| it.key.buffer == Buffer::Payload;
        let is_alone = self.messages.is_empty()
            && self.units.is_empty()
            && self.app_events.is_empty()
            && self.buffers.iter().all(is_payload);
        if !is_alone || self.buffers.is_empty() {
            let why = "it is asked for contents, and nothing else of the stream goes with it";
            return Err(Refused::new("frame", why));
        }
        self.flow.only_stream = Some(true);
        Ok(())
    }
}
