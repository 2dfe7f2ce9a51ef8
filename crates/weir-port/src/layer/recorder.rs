//! Recording what passes a port into a capture.

use std::io::{self, Write};
use std::os::fd::RawFd;

use arrayvec::ArrayVec;
use weir_wire::frame::{Frame, Meta};

use crate::capture::{CaptureFormat, CaptureWriter, Direction, PacketNote};
use crate::port::{Outgoing, Port, PortCounters, Transmitted};
use crate::sys::clock;

/// Pieces of a frame that are written without being put together first.
const PIECES: usize = 64;

/// Writes every frame received and sent to a pcapng capture, with its direction. A super-packet is
/// recorded as one frame, as tcpdump shows it.
#[derive(Debug)]
pub struct Recorder<P, W: Write> {
    port: P,
    writer: CaptureWriter<W>,
    failed: u64,
}

impl<P: Port, W: Write> Recorder<P, W> {
    /// Records `port` into `sink`.
    ///
    /// # Errors
    /// The sink did not take the capture's header.
    pub fn new(port: P, sink: W) -> io::Result<Self> {
        let interfaces = [(port.name(), Default::default())];
        let writer = CaptureWriter::new(sink, CaptureFormat::PcapNg, &interfaces)?;
        Ok(Self { port, writer, failed: 0 })
    }

    /// Frames that the sink did not take. Traffic goes on without them.
    pub fn failed(&self) -> u64 {
        self.failed
    }

    /// Ends the recording; the port below and the sink.
    ///
    /// # Errors
    /// The sink did not take its last bytes.
    pub fn finish(self) -> io::Result<(P, W)> {
        Ok((self.port, self.writer.finish()?))
    }
}

impl<P: Port, W: Write> Port for Recorder<P, W> {
    fn name(&self) -> &str {
        self.port.name()
    }

    fn receive(&mut self, handle: &mut dyn FnMut(&mut [Frame<'_>])) -> io::Result<usize> {
        let Self { port, writer, failed } = self;
        port.receive(&mut |frames| {
            let note = PacketNote { direction: Some(Direction::Inbound), comment: None };
            for frame in frames.iter() {
                let written = writer.write(0, &frame.meta, &[frame.bytes()], note);
                *failed += u64::from(written.is_err());
            }
            handle(frames);
        })
    }

    fn transmit(&mut self, frames: &[Outgoing<'_>]) -> Transmitted {
        let meta = Meta { time: clock::time(), ..Meta::default() };
        let note = PacketNote { direction: Some(Direction::Outbound), comment: None };
        for frame in frames {
            let written = if frame.parts.len() <= PIECES {
                let parts: ArrayVec<&[u8], PIECES> = frame.parts.iter().map(|p| &p[..]).collect();
                self.writer.write(0, &meta, &parts, note)
            } else {
                let parts: Vec<&[u8]> = frame.parts.iter().map(|part| &part[..]).collect();
                self.writer.write(0, &meta, &parts, note)
            };
            self.failed += u64::from(written.is_err());
        }
        self.port.transmit(frames)
    }

    fn counters(&mut self) -> PortCounters {
        self.port.counters()
    }

    fn poll_fd(&self) -> Option<RawFd> {
        self.port.poll_fd()
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Cursor, IoSlice};

    use super::*;
    use crate::{CaptureReader, MemoryPort};

    #[test]
    fn both_directions_are_recorded_in_order() {
        let (mut near, _far) = MemoryPort::pair("p0", "far", 8);
        near.push(b"received", Meta::default());
        let mut recorder = Recorder::new(near, Vec::new()).unwrap();
        recorder.receive(&mut |_| ()).unwrap();
        let parts = [IoSlice::new(b"se"), IoSlice::new(b"nt")];
        recorder.transmit(&[Outgoing { parts: &parts, offload: Default::default() }]);
        assert_eq!(recorder.failed(), 0);
        let (_, file) = recorder.finish().unwrap();

        let mut reader = CaptureReader::from_source("recording", Cursor::new(file)).unwrap();
        let mut seen = Vec::new();
        while reader
            .next_batch(&mut |frames| seen.extend(frames.iter().map(|f| f.bytes().to_vec())))
            .unwrap()
            > 0
        {}
        assert_eq!(seen, [b"received".to_vec(), b"sent".to_vec()]);
    }
}
