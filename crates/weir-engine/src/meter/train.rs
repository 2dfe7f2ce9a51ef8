//! A packet train: plain packets of one flow that follow each other. They are summed up and counted
//! together when it ends, which is when another flow is observed, or the batch is over.

use weir_wire::frame::Time;
use weir_wire::parse::{Parsed, Transport};

use super::meter::{FlowPlace, Meter, end_record_when_due};

/// The train under way; without packets: none.
#[derive(Debug, Default)]
pub(super) struct Train {
    place: FlowPlace,
    traffic_class: u8,
    packets: u64,
    bytes: u64,
    last: Time,
    tcp_flags: u8,
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
        let goes_on = train.packets > 0
            && train.place == place
            && train.traffic_class == parsed.traffic_class;
        if !goes_on && !self.begin_train(now, parsed, place) {
            return false;
        }
        let train = &mut self.train;
        train.packets += 1;
        train.bytes += u64::from(wire_len);
        train.last = train.last.max(now);
        if let Transport::Tcp { flags, .. } = parsed.transport {
            train.tcp_flags |= flags;
        }
        true
    }

    /// Counts the train under way, which ends. Between batches there is none.
    #[inline]
    pub(crate) fn end_train(&mut self) {
        if self.train.packets > 0 {
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
        self.train = Train { place, traffic_class, last: now, ..Train::default() };
        true
    }

    #[inline(never)]
    fn count_train(&mut self) {
        let train = std::mem::take(&mut self.train);
        self.totals.packets += train.packets;
        self.totals.bytes += train.bytes;
        let FlowPlace(Some((handle, way))) = train.place else { return };
        // No flow left meanwhile: that takes another, whose packet ends the train.
        let Some(entry) = self.flows.touch(handle, train.last) else { return };
        entry.last = entry.last.max(train.last);
        let counters = &mut entry.counters[way.index()];
        counters.packets += train.packets;
        counters.bytes += train.bytes;
        if train.traffic_class & 3 == 3 {
            counters.congestion_experienced += train.packets;
        }
        counters.traffic_class = train.traffic_class;
        counters.tcp_flags |= train.tcp_flags;
    }
}
