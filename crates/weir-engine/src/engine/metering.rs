//! What the engine tells of what its joint counted and judged.

use std::sync::Arc;

use weir_detect::{Alert, RuleSet};
use weir_wire::frame::Time;

use super::Engine;
use crate::access::{Access, AccessEvent, SavedOwner, Spent};
use crate::detect::Detection;
use crate::meter::{Meter, Record};
use crate::plain::InsideCounters;
use crate::rdma::LossWay;
use crate::verdict::Side;

/// Flows that end in one call of [`Engine::expire`], at most, and as many conversations: no packet
/// waits for longer than these take.
const EXPIRED_MAX: usize = 64;

impl Engine {
    /// Says that a port lost packets, not known which: see [`Meter::note_own_loss`].
    pub fn note_own_loss(&mut self, way: LossWay, side: Side, packets: u64, now: Time) {
        self.plain.meter.note_own_loss(way, side, packets, now);
    }

    /// Hands over the records of flows that ended, a bounded number a call; returns whether there
    /// may be more.
    pub fn expire(&mut self, now: Time, take: &mut dyn FnMut(Record<'_>)) -> bool {
        self.plain.expire(now);
        self.plain.meter.expire(now, EXPIRED_MAX, take)
    }

    /// Hands over the records of all flows, which end: when the gateway does.
    pub fn flush(&mut self, take: &mut dyn FnMut(Record<'_>)) {
        self.plain.meter.flush(take);
    }

    /// Has one more detector look at every packet in clear; `None`: no more.
    pub fn set_judge(&mut self, judge: Option<Box<dyn crate::plain::Judge>>) {
        self.plain.set_judge(judge);
    }

    /// The last moment that it was told of.
    pub fn now(&self) -> Time {
        self.now
    }

    /// What was seen in clear, on both sides.
    pub fn meter(&self) -> &Meter {
        &self.plain.meter
    }

    /// The access lines in force and what they decided; `None`: there are none.
    pub fn access(&self) -> Option<&Access> {
        self.plain.access()
    }

    /// What sources have taken out of their limits since the last call, for the other workers of
    /// the pair.
    pub fn take_spent(&mut self, tell: impl FnMut(Spent)) {
        if let Some(access) = self.plain.access_mut() {
            access.take_spent(tell);
        }
    }

    /// Charges a source with what another worker of the pair let it do. Their meters have one seed.
    pub fn note_spent(&mut self, spent: &Spent, now: Time) {
        if let Some(access) = self.plain.access_mut() {
            access.note_spent(spent, now);
        }
    }

    /// Takes in owners of queue pairs of an earlier life whose meter had the same seed. Without
    /// access lines nobody asks for them.
    pub fn restore_owners<'s>(
        &mut self,
        owners: impl IntoIterator<Item = &'s SavedOwner>,
        now: Time,
    ) {
        let Some(access) = self.plain.access_mut() else { return };
        owners.into_iter().for_each(|owner| access.restore(owner, now));
    }

    /// The oldest event of access lines that waits, of at most [`crate::access::EVENTS_MAX`].
    pub fn take_access_event(&mut self) -> Option<AccessEvent> {
        self.plain.access_mut()?.take_event()
    }

    /// How often packets were looked into for what they carry.
    pub fn inside_counters(&self) -> InsideCounters {
        self.plain.inside_counters()
    }

    /// The rules at work and what they did; `None`: there are none.
    pub fn detection(&self) -> Option<&Detection> {
        self.plain.detection()
    }

    /// Hands over the alerts that wait, each with the rules that it is of.
    pub fn take_alerts(&mut self, take: &mut dyn FnMut(Alert, &Arc<RuleSet>)) {
        self.plain.take_alerts(take);
    }
}
