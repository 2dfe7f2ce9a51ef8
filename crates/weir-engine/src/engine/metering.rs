//! What the engine tells of what its joint counted and judged.

use std::sync::Arc;

use weir_detect::{Alert, RuleSet, SharedCounts};
use weir_wire::frame::Time;

use super::Engine;
use crate::access::{Access, AccessEvent, ConnectionChange, SavedOwner, Spent};
use crate::detect::Detection;
use crate::meter::{Meter, Record};
use crate::plain::InsideCounters;
use crate::rdma::LossWay;
use crate::verdict::Side;

/// Flows that end in one call of [`Engine::expire`], at most, and as many conversations: no packet
/// waits for longer than these take.
const EXPIRED_MAX: usize = 64;

/// What one worker counted that limits of lines and rules go by (docs/adr/0181, 0221).
#[derive(Clone, Debug, Default)]
pub struct Counted {
    spent: Vec<Spent>,
    connections: Vec<ConnectionChange>,
    detection: Option<SharedCounts>,
}

impl Counted {
    fn is_empty(&self) -> bool {
        self.spent.is_empty() && self.connections.is_empty() && self.detection.is_none()
    }
}

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

    /// What was counted since the last call that limits, thresholds and floods go by, for the other
    /// workers of the pair; `None`: nothing.
    pub fn take_counted(&mut self) -> Option<Counted> {
        let (mut spent, mut connections) = (Vec::new(), Vec::new());
        if let Some(access) = self.plain.access_mut() {
            access.take_spent(|it| spent.push(it));
            connections = access.take_connections();
        }
        let detection = self.plain.detection_mut().and_then(|it| it.take_shared());
        let counted = Counted { spent, connections, detection };
        (!counted.is_empty()).then_some(counted)
    }

    /// Adds what another worker of the pair counted. Their meters, and their rules, have one seed.
    pub fn add_counted(&mut self, counted: &Counted, now: Time) {
        if let Some(access) = self.plain.access_mut() {
            counted.spent.iter().for_each(|it| access.note_spent(it, now));
            access.note_connections(&counted.connections);
        }
        if let (Some(detection), Some(shared)) = (self.plain.detection_mut(), &counted.detection) {
            detection.add_shared(now, shared);
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
