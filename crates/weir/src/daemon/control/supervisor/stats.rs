//! EVE's `stats`: what the gateway counted, in Suricata's names, every eight seconds as there.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use super::Gateway;
use crate::api::dto::PairSnapshot;

/// Suricata's own interval.
const EVERY: Duration = Duration::from_secs(8);

impl Gateway {
    /// Hands the counters to the file of EVE, when it is time and there is one.
    pub(super) fn tell_stats(&mut self, now: Instant) {
        let eve = self.settings.detection.as_ref().and_then(|it| it.eve.as_ref());
        if !eve.is_some_and(|it| it.records.has("stats"))
            || now.duration_since(self.stats_told) < EVERY
        {
            return;
        }
        self.stats_told = now;
        let pairs = self.workers.iter().filter_map(|it| it.snapshot().ok());
        let mut counters = BTreeMap::from([("uptime".to_owned(), self.uptime_s(now))]);
        pairs.for_each(|pair| add(&mut counters, &pair));
        self.alerts.stats(counters);
    }

    fn uptime_s(&self, now: Instant) -> u64 {
        now.duration_since(self.started).as_secs()
    }
}

fn add(counters: &mut BTreeMap<String, u64>, pair: &PairSnapshot) {
    let mut count = |name: &str, more: u64| *counters.entry(name.to_owned()).or_default() += more;
    for side in [&pair.host, &pair.wire] {
        count("capture.kernel_packets", side.received);
        count("capture.kernel_drops", side.port.lost_ring_full);
        count("decoder.pkts", side.received - side.dropped_early);
        count("decoder.bytes", side.received_bytes);
        count("ips.accepted", side.received - side.dropped);
        count("ips.blocked", side.dropped);
        for (reason, packets) in &side.dropped_by_reason {
            count(&format!("ips.drop_reason.{reason}"), *packets);
        }
    }
    let Some(detection) = &pair.detection else { return };
    count("detect.alert", detection.alerts);
    count("detect.alert_queue_overflow", detection.alerts_lost);
    count("flow.active", detection.flows);
    count("flow.memcap", detection.flows_evicted);
    count("flow_bypassed.pkts", detection.bypassed);
}
