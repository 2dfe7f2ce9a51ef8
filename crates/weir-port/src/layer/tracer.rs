//! A line for every frame that passes.

use std::io::{self, Write};
use std::os::fd::RawFd;

use weir_wire::frame::{Frame, Offload};

use crate::port::{Outgoing, Port, PortCounters, Transmitted};

/// First bytes of a frame that are shown.
const SHOWN_LEN: usize = 64;

/// Writes a line for every frame received and sent:
/// `p0 < 98 bytes 0200000000020200000000010800...`
#[derive(Debug)]
pub struct Tracer<P, W> {
    port: P,
    sink: W,
    lines_failed: u64,
}

impl<P: Port, W: Write> Tracer<P, W> {
    /// Traces `port` into `sink`.
    pub fn new(port: P, sink: W) -> Self {
        Self { port, sink, lines_failed: 0 }
    }

    /// Lines that the sink did not take. Traffic goes on without them.
    pub fn lines_failed(&self) -> u64 {
        self.lines_failed
    }

    /// The port below and the sink.
    pub fn into_parts(self) -> (P, W) {
        (self.port, self.sink)
    }
}

impl<P: Port, W: Write> Port for Tracer<P, W> {
    fn name(&self) -> &str {
        self.port.name()
    }

    fn receive(&mut self, handle: &mut dyn FnMut(&mut [Frame<'_>])) -> io::Result<usize> {
        let Self { port, sink, lines_failed } = self;
        let name = port.name().to_owned();
        port.receive(&mut |frames| {
            for frame in frames.iter() {
                let bytes = frame.bytes();
                let line = line(&name, '<', bytes.len(), bytes.iter(), &frame.meta.offload);
                *lines_failed += u64::from(writeln!(sink, "{line}").is_err());
            }
            handle(frames);
        })
    }

    fn transmit(&mut self, frames: &[Outgoing<'_>]) -> Transmitted {
        for frame in frames {
            let len = frame.parts.iter().map(|part| part.len()).sum();
            let bytes = frame.parts.iter().flat_map(|part| part.iter());
            let line = line(self.port.name(), '>', len, bytes, &frame.offload);
            self.lines_failed += u64::from(writeln!(self.sink, "{line}").is_err());
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

fn line<'a>(
    name: &str,
    direction: char,
    len: usize,
    bytes: impl Iterator<Item = &'a u8>,
    offload: &Offload,
) -> String {
    use std::fmt::Write as _;
    let mut line = format!("{name} {direction} {len} bytes ");
    for byte in bytes.take(SHOWN_LEN) {
        // Writing to a String cannot fail.
        let _ = write!(line, "{byte:02x}");
    }
    if let Some(segmentation) = offload.segmentation {
        let _ = write!(line, " {:?} segments of {}", segmentation.kind, segmentation.segment_len);
    }
    line
}

#[cfg(test)]
mod tests {
    use std::io::IoSlice;

    use super::*;
    use crate::MemoryPort;

    #[test]
    fn every_frame_leaves_a_line() {
        let (mut near, _far) = MemoryPort::pair("p0", "far", 8);
        near.push(&[1, 2, 0xab], Default::default());
        let mut tracer = Tracer::new(near, Vec::new());
        tracer.receive(&mut |_| ()).unwrap();
        let parts = [IoSlice::new(&[0xff]), IoSlice::new(&[0])];
        tracer.transmit(&[Outgoing { parts: &parts, offload: Offload::default() }]);
        let (_, lines) = tracer.into_parts();
        assert_eq!(String::from_utf8(lines).unwrap(), "p0 < 3 bytes 0102ab\np0 > 2 bytes ff00\n");
    }

    #[test]
    fn failing_sink_does_not_stop_traffic() {
        let (mut near, _far) = MemoryPort::pair("p0", "far", 8);
        near.push(&[1], Default::default());
        let full: &mut [u8] = &mut [];
        let mut tracer = Tracer::new(near, full);
        assert_eq!(tracer.receive(&mut |_| ()).unwrap(), 1);
        assert_eq!(tracer.lines_failed(), 1);
    }
}
