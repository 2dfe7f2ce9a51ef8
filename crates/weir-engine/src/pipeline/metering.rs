//! The engine's meter: what it is told of, and what it tells.

use weir_wire::frame::{Frame, Meta, Time};
use weir_wire::parse::Parsed;

use super::Engine;
use super::walked::Walked;
use crate::meter::{Icrc, Meter, Observation, Observed, Record};
use crate::rdma::LossWay;
use crate::verdict::Side;

/// Flows that end in one call of [`Engine::expire`], at most, and as many conversations: no packet
/// waits for longer than these take.
const EXPIRED_MAX: usize = 64;

impl Engine {
    /// Counts a packet in clear, as its sender sent it.
    #[inline]
    pub(super) fn observe(&mut self, side: Side, frame: &Frame<'_>, parsed: &Parsed) -> Observed {
        let observation = self.observation(side, frame, parsed);
        self.meter.observe(&observation)
    }

    /// The same for a packet that may follow others of its flow. `None`: it did, and was counted
    /// where they were.
    #[inline]
    pub(super) fn observe_next(
        &mut self,
        side: Side,
        frame: &Frame<'_>,
        walked: &mut Walked,
    ) -> Option<Observed> {
        let Walked { walker, place, .. } = &*walked;
        let Meta { time, original_len, offload, .. } = frame.meta;
        if offload.segmentation.is_none()
            && self.meter.observe_follower(time, walker.parsed(), original_len, *place)
        {
            return None;
        }
        Some(self.observe_first(side, frame, walked))
    }

    #[inline(never)]
    fn observe_first(&mut self, side: Side, frame: &Frame<'_>, walked: &mut Walked) -> Observed {
        let Walked { walker, place, .. } = walked;
        let observation = self.observation(side, frame, walker.parsed());
        self.meter.observe_at(&observation, place)
    }

    #[inline]
    pub(super) fn observation<'a>(
        &self,
        side: Side,
        frame: &'a Frame<'_>,
        parsed: &'a Parsed,
    ) -> Observation<'a> {
        let segments = frame.meta.offload.segmentation.map_or(1, |segmentation| {
            let payload = parsed.end.saturating_sub(u32::from(parsed.payload_offset));
            payload.div_ceil(u32::from(segmentation.segment_len).max(1))
        });
        Observation {
            now: frame.meta.time,
            side: Some(side),
            bytes: frame.bytes(),
            parsed,
            original_len: frame.meta.original_len,
            segments,
            icrc: if self.policy.check_icrc { Icrc::Check } else { Icrc::Skip },
        }
    }

    /// Says that a port lost packets, not known which: see [`Meter::note_own_loss`].
    pub fn note_own_loss(&mut self, way: LossWay, side: Side, packets: u64, now: Time) {
        self.meter.note_own_loss(way, side, packets, now);
    }

    /// Hands over the records of flows that ended, a bounded number a call; returns whether there
    /// may be more.
    pub fn expire(&mut self, now: Time, take: &mut dyn FnMut(Record<'_>)) -> bool {
        self.meter.expire(now, EXPIRED_MAX, take)
    }

    /// Hands over the records of all flows, which end: when the gateway does.
    pub fn flush(&mut self, take: &mut dyn FnMut(Record<'_>)) {
        self.meter.flush(take);
    }

    /// The last moment that it was told of.
    pub fn now(&self) -> Time {
        self.now
    }

    /// What was seen in clear, on both sides.
    pub fn meter(&self) -> &Meter {
        &self.meter
    }
}
