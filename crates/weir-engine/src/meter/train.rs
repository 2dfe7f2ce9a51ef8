//! A packet train: plain packets of one flow that follow each other. They are summed up and counted
//! together when it ends, which is when another flow is observed, or the batch is over.

use weir_wire::frame::Time;
use weir_wire::parse::{Parsed, Transport};

use super::meter::{FlowPlace, Meter, end_record_when_due};
use crate::flow::FlowCounters;

/// The train under way; without packets: none.
#[derive(Debug, Default)]
pub(super) struct Train {
    place: FlowPlace,
    /// Its packets, of one traffic class and none of them a fragment.
    counted: FlowCounters,
    last: Time,
}

impl Meter {
    /// Counts a packet of `wire_len` bytes that follows one counted at `place`. False, and nothing
    /// is counted, when that must be done by [`Meter::observe_at`].
    #[inline]
    pub(crate) fn observe_follower(
        &mut self,
        now: Time,
        parsed: &Parsed,
        wire_len: u32,
        place: FlowPlace,
    ) -> bool {
        if parsed.rdma.is_some() || parsed.fault.is_some() {
            return false;
        }
        let train = &mut self.train;
        let goes_on = train.counted.packets > 0
            && train.place == place
            && train.counted.traffic_class == parsed.traffic_class;
        if !goes_on && !self.begin_train(now, parsed, place) {
            return false;
        }
        let train = &mut self.train;
        train.counted.packets += 1;
        train.counted.bytes += u64::from(wire_len);
        train.last = train.last.max(now);
        if let Transport::Tcp { flags, .. } = parsed.transport {
            train.counted.tcp_flags |= flags;
        }
        true
    }

    /// Counts the train under way, which ends. Between batches there is none.
    #[inline]
    pub(crate) fn end_train(&mut self) {
        if self.train.counted.packets > 0 {
            self.count_train();
        }
    }

    #[inline(never)]
    fn begin_train(&mut self, now: Time, parsed: &Parsed, place: FlowPlace) -> bool {
        self.end_train();
        // The flow may have left since.
        let touched = place.handle().and_then(|handle| self.flows.touch(handle, now));
        let Some(entry) = touched else { return false };
        end_record_when_due(entry, now, &self.limits, &mut self.waiting);
        let traffic_class = parsed.traffic_class;
        let counted = FlowCounters { traffic_class, ..FlowCounters::default() };
        self.train = Train { place, counted, last: now };
        true
    }

    #[inline(never)]
    fn count_train(&mut self) {
        let train = std::mem::take(&mut self.train);
        self.totals.packets += train.counted.packets;
        self.totals.bytes += train.counted.bytes;
        let FlowPlace(Some((handle, way))) = train.place else { return };
        // No flow left meanwhile: that takes another, whose packet ends the train.
        let Some(entry) = self.flows.touch(handle, train.last) else { return };
        entry.add(way, train.last, &train.counted);
    }
}
