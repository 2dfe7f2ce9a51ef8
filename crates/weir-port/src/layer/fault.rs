//! Faults on purpose: loss, duplication, reordering, corruption of received frames, told by a seed.

use std::io;
use std::os::fd::RawFd;

use weir_wire::frame::{Frame, Meta};

use crate::port::{BATCH, Outgoing, Port, PortCounters, Transmitted};
use crate::room::RoomyBuffers;

/// How often each fault befalls a frame, in parts of a million.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Faults {
    /// The frame is not handed over.
    pub loss_ppm: u32,
    /// The frame comes twice.
    pub duplication_ppm: u32,
    /// The frame comes after the next one.
    pub reorder_ppm: u32,
    /// One bit of the frame is wrong.
    pub corruption_ppm: u32,
}

/// What was done so far, in frames.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FaultCounts {
    /// Not handed over.
    pub lost: u64,
    /// Handed over twice.
    pub duplicated: u64,
    /// Exchanged with their successor.
    pub reordered: u64,
    /// Handed over with a wrong bit.
    pub corrupted: u64,
}

/// Damages what it receives; what it sends is left alone. The same seed and the same frames give
/// the same faults.
#[derive(Debug)]
pub struct FaultInjector<P> {
    port: P,
    faults: Faults,
    random: SplitMix,
    counts: FaultCounts,
    buffers: RoomyBuffers,
    /// What the next call hands over: the frames of at most two batches.
    waiting: Vec<(Vec<u8>, Meta)>,
}

impl<P: Port> FaultInjector<P> {
    /// Faults over `port`, by `seed`.
    pub fn new(port: P, faults: Faults, seed: u64) -> Self {
        let buffers = RoomyBuffers::new(BATCH);
        let random = SplitMix(seed);
        let counts = FaultCounts::default();
        Self { port, faults, random, counts, buffers, waiting: Vec::new() }
    }

    /// What was done so far.
    pub fn counts(&self) -> FaultCounts {
        self.counts
    }

    /// The port below.
    pub fn into_inner(self) -> P {
        self.port
    }
}

impl<P: Port> Port for FaultInjector<P> {
    fn name(&self) -> &str {
        self.port.name()
    }

    fn receive(&mut self, handle: &mut dyn FnMut(&mut [Frame<'_>])) -> io::Result<usize> {
        let Self { port, faults, random, counts, buffers, waiting } = self;
        if waiting.is_empty() {
            port.receive(&mut |frames| {
                for frame in frames.iter() {
                    befall(frame, faults, random, counts, waiting);
                }
            })?;
        }
        if waiting.is_empty() {
            return Ok(0);
        }
        let batch: Vec<_> = waiting.drain(..waiting.len().min(BATCH)).collect();
        let packets = batch.iter().map(|(bytes, meta)| (bytes.as_slice(), *meta));
        buffers.with_copies(packets, handle);
        Ok(batch.len())
    }

    fn transmit(&mut self, frames: &[Outgoing<'_>]) -> Transmitted {
        self.port.transmit(frames)
    }

    fn counters(&mut self) -> PortCounters {
        self.port.counters()
    }

    fn poll_fd(&self) -> Option<RawFd> {
        self.port.poll_fd()
    }
}

/// Puts `frame` among the waiting ones, or not, once or twice, sound or damaged.
fn befall(
    frame: &Frame<'_>,
    faults: &Faults,
    random: &mut SplitMix,
    counts: &mut FaultCounts,
    waiting: &mut Vec<(Vec<u8>, Meta)>,
) {
    if random.strikes(faults.loss_ppm) {
        counts.lost += 1;
        return;
    }
    let mut bytes = frame.bytes().to_vec();
    if random.strikes(faults.corruption_ppm) && !bytes.is_empty() {
        let bit = random.next() as usize % (bytes.len() * 8);
        bytes[bit / 8] ^= 1 << (bit % 8);
        counts.corrupted += 1;
    }
    if random.strikes(faults.duplication_ppm) {
        waiting.push((bytes.clone(), frame.meta));
        counts.duplicated += 1;
    }
    waiting.push((bytes, frame.meta));
    if random.strikes(faults.reorder_ppm) && waiting.len() > 1 {
        let last = waiting.len() - 1;
        waiting.swap(last, last - 1);
        counts.reordered += 1;
    }
}

/// SplitMix64 (Steele, Lea, Flood 2014): small, and good enough to roll dice.
#[derive(Debug)]
struct SplitMix(u64);

impl SplitMix {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn strikes(&mut self, ppm: u32) -> bool {
        ppm > 0 && self.next() % 1_000_000 < u64::from(ppm)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::MemoryPort;

    const FRAMES: u32 = 10_000;

    fn damaged(faults: Faults, seed: u64) -> (Vec<Vec<u8>>, FaultCounts) {
        let (mut near, _far) = MemoryPort::pair("p0", "far", 1);
        for number in 0..FRAMES {
            near.push(&number.to_be_bytes(), Meta::default());
        }
        let mut port = FaultInjector::new(near, faults, seed);
        let mut seen = Vec::new();
        loop {
            let count = port
                .receive(&mut |frames| seen.extend(frames.iter().map(|f| f.bytes().to_vec())))
                .unwrap();
            if count == 0 && port.counters().received_frames == u64::from(FRAMES) {
                return (seen, port.counts());
            }
        }
    }

    #[test]
    fn without_faults_nothing_changes() {
        let (seen, counts) = damaged(Faults::default(), 1);
        assert!(
            seen.iter().map(Vec::as_slice).eq((0..FRAMES)
                .map(u32::to_be_bytes)
                .collect::<Vec<_>>()
                .iter()
                .map(|b| &b[..]))
        );
        assert_eq!(counts, FaultCounts::default());
    }

    #[test]
    fn every_frame_is_accounted_for() {
        let faults = Faults {
            loss_ppm: 100_000,
            duplication_ppm: 50_000,
            reorder_ppm: 20_000,
            corruption_ppm: 10_000,
        };
        let (seen, counts) = damaged(faults, 7);
        assert_eq!(seen.len() as u64, u64::from(FRAMES) - counts.lost + counts.duplicated);
        for (count, expected) in [
            (counts.lost, 1000),
            (counts.duplicated, 450),
            (counts.reordered, 180),
            (counts.corrupted, 90),
        ] {
            assert!((expected / 2..expected * 2).contains(&count), "{counts:?}");
        }
    }

    #[test]
    fn same_seed_gives_the_same_faults() {
        let faults = Faults { loss_ppm: 300_000, ..Faults::default() };
        assert_eq!(damaged(faults, 42), damaged(faults, 42));
        assert_ne!(damaged(faults, 42), damaged(faults, 43));
    }
}
