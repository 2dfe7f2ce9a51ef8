//! A capture as a port: its packets arrive, with the room that the port contract promises, as fast
//! as the caller asks. Nothing can be sent to it.

use std::io;
use std::os::fd::RawFd;

use weir_wire::frame::Frame;

use super::CaptureReader;
use crate::port::{BATCH, Outgoing, Port, PortCounters, Transmitted};
use crate::room::RoomyBuffers;

/// Plays a capture into the gateway.
#[derive(Debug)]
pub struct CapturePort {
    reader: CaptureReader,
    buffers: RoomyBuffers,
    counters: PortCounters,
}

impl CapturePort {
    /// Packets of `reader`, copied into buffers of their own.
    pub fn new(reader: CaptureReader) -> Self {
        let buffers = RoomyBuffers::new(BATCH);
        Self { reader, buffers, counters: PortCounters::default() }
    }
}

impl Port for CapturePort {
    fn name(&self) -> &str {
        self.reader.name()
    }

    fn receive(&mut self, handle: &mut dyn FnMut(&mut [Frame<'_>])) -> io::Result<usize> {
        let Self { reader, buffers, counters } = self;
        let count = reader
            .next_batch(&mut |frames| {
                for frame in frames.iter() {
                    counters.received_frames += 1;
                    counters.received_bytes += frame.len() as u64;
                }
                let packets = frames.iter().map(|frame| (frame.bytes(), frame.meta));
                buffers.with_copies(packets, handle);
            })
            .map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?;
        Ok(count)
    }

    fn transmit(&mut self, frames: &[Outgoing<'_>]) -> Transmitted {
        let dropped = frames.len() as u64;
        self.counters.send_refused += dropped;
        Transmitted { sent: 0, dropped }
    }

    fn counters(&mut self) -> PortCounters {
        self.counters
    }

    fn poll_fd(&self) -> Option<RawFd> {
        None
    }
}
