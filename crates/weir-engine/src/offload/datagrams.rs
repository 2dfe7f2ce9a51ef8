//! Super-packets of ESP in UDP or of WireGuard's data messages, cut into the datagrams that they
//! stand for before anybody looks at them: each datagram is a packet of its own to ESP. Where rules
//! look at packets, all of UDP is cut: what follows the first datagram may say anything. Those that
//! a tunnel carries are cut everywhere ([`carried`]).
//!
//! They come from gateways that hand datagrams over joined (UDP segmentation offload), over links
//! that never cut them (`veth`, virtio between guests), and from adapters that gather what they
//! receive.

use arrayvec::ArrayVec;
use weir_wire::frame::{Frame, Meta, Offload, SegmentKind};
use weir_wire::parse::{Parsed, Transport, parse_frame};

use super::carried::{self, CarriedCut};
use super::segment::Cut;
use crate::esp::wireguard;

/// Datagrams in one batch, at most.
const BATCH_MAX: usize = 64;
/// Free bytes before and behind each, as ports leave them.
const HEADROOM: usize = 192;
const TAILROOM: usize = 64;

/// Cuts batches. Reused from batch to batch; takes memory when the first super-packet comes.
#[derive(Debug, Default)]
pub struct Datagrams {
    memory: Vec<u8>,
}

impl Datagrams {
    /// Hands `frames` to `handle` in their order and in one batch or several, packets in the place
    /// of super-packets inside tunnels, and datagrams in that of `joined` ones. One whose headers
    /// contradict its offload stays as it is.
    #[inline]
    pub fn each_batch(
        &mut self,
        frames: &mut [Frame<'_>],
        joined: Joined,
        handle: &mut dyn FnMut(&mut [Frame<'_>]),
    ) {
        if !frames.iter().any(may_be_joined) {
            return handle(frames);
        }
        for run in frames.chunk_by_mut(|one, next| !may_be_joined(one) && !may_be_joined(next)) {
            match plan(&run[0], joined) {
                Some(cut) => self.cut(&run[0], &cut, handle),
                None => handle(run),
            }
        }
    }

    fn cut(&mut self, frame: &Frame<'_>, cut: &Plan, handle: &mut dyn FnMut(&mut [Frame<'_>])) {
        let each = HEADROOM + cut.longest() + TAILROOM;
        let needed = each * cut.count().min(BATCH_MAX);
        if self.memory.len() < needed {
            self.memory.resize(needed, 0);
        }
        for first in (0..cut.count()).step_by(BATCH_MAX) {
            let indices = first..cut.count().min(first + BATCH_MAX);
            let mut datagrams = ArrayVec::<Frame<'_>, BATCH_MAX>::new();
            for (index, memory) in indices.zip(self.memory.chunks_exact_mut(each)) {
                datagrams.push(datagram(frame, cut, index, memory));
            }
            handle(&mut datagrams);
        }
    }
}

/// Which joined datagrams are cut, beside those inside tunnels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Joined {
    /// None: nobody looks into them.
    None,
    /// What ESP is to open: ESP in UDP, and WireGuard's data messages.
    Sealed,
    /// All: rules look at each.
    All,
}

/// How a super-packet is cut.
enum Plan {
    /// Its own datagrams.
    Own(Cut),
    /// The packets that it carries, each in a tunnel.
    Carried(CarriedCut),
}

impl Plan {
    fn count(&self) -> usize {
        match self {
            Self::Own(cut) => cut.count(),
            Self::Carried(cut) => cut.count(),
        }
    }

    fn longest(&self) -> usize {
        match self {
            Self::Own(cut) => cut.longest(),
            Self::Carried(cut) => cut.longest(),
        }
    }
}

fn plan(frame: &Frame<'_>, joined: Joined) -> Option<Plan> {
    if !may_be_joined(frame) {
        return None;
    }
    if carried::may_be(frame)
        && let Some(cut) = CarriedCut::new(frame)
    {
        return Some(Plan::Carried(cut));
    }
    if !is_udp(frame) || joined == Joined::None {
        return None;
    }
    let mut parsed = parse_frame(frame);
    let is_cut = match parsed.transport {
        // Not those that each of the outer datagrams would carry, and that could not be cut.
        Transport::Udp { .. } if joined == Joined::All && is_outermost(frame, &parsed) => {
            // Whatever is wrong with what the first of them says.
            parsed.fault = None;
            true
        }
        Transport::Esp { in_udp, .. } => in_udp,
        Transport::Udp { .. } => wireguard::receiver(parsed.payload(frame.bytes())).is_some(),
        _ => false,
    };
    is_cut.then(|| Cut::new(frame, &parsed))??.ok().map(Plan::Own)
}

fn is_outermost(frame: &Frame<'_>, parsed: &Parsed) -> bool {
    let checksum = frame.meta.offload.checksum;
    checksum.is_none_or(|it| it.start == parsed.transport_offset)
}

fn may_be_joined(frame: &Frame<'_>) -> bool {
    is_udp(frame) || carried::may_be(frame)
}

fn is_udp(frame: &Frame<'_>) -> bool {
    frame.meta.offload.segmentation.is_some_and(|it| it.kind == SegmentKind::Udp)
}

fn datagram<'m>(frame: &Frame<'_>, plan: &Plan, index: usize, memory: &'m mut [u8]) -> Frame<'m> {
    let len = match plan {
        Plan::Carried(cut) => cut.write(index, frame.bytes(), &mut memory[HEADROOM..]),
        Plan::Own(cut) => {
            let payload = &frame.bytes()[cut.payload(index)];
            let (headers, behind) = memory[HEADROOM..].split_at_mut(cut.header_len());
            cut.write_headers(index, payload, headers);
            behind[..payload.len()].copy_from_slice(payload);
            cut.header_len() + payload.len()
        }
    };
    let meta = Meta { original_len: len as u32, offload: Offload::default(), ..frame.meta };
    Frame::new(memory, HEADROOM, HEADROOM + len, meta)
}
