//! The snapshot of a pair with several workers (docs/adr/0025): the sum of theirs, and each by
//! itself.
//!
//! Counters add up. What is the pair's and not a worker's (names, the policy, handshakes, what the
//! guard counts) is worker 0's, and of times and positions the latest or highest counts.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::dto::{
    AccessSnapshot, EvidenceDiskSnapshot, EvidenceSnapshot, FastPathSnapshot, KeyingSnapshot,
    LossSnapshot, MirrorSnapshot, PairSnapshot, PeerSnapshot, PortSnapshot, RdmaSnapshot,
    RolloutSnapshot, SideSnapshot, TagSnapshot, WireProofSnapshot,
};

/// One of a pair's workers.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
pub struct WorkerSnapshot {
    /// 0 to 15; the lowest bits of the SPIs that it opens.
    pub number: usize,
    /// Frames from the host.
    pub host_received: u64,
    /// Their bytes.
    pub host_received_bytes: u64,
    /// Of those frames, sealed.
    pub sealed: u64,
    /// Frames from the wire.
    pub wire_received: u64,
    /// Their bytes.
    pub wire_received_bytes: u64,
    /// Of those frames, opened.
    pub opened: u64,
    /// Frames of both sides that it dropped.
    pub dropped: u64,
    /// Frames of both sides that its rings lost.
    pub lost_ring_full: u64,
    /// Flows in its table.
    pub flows: u64,
}

impl WorkerSnapshot {
    fn new(number: usize, of: &PairSnapshot) -> Self {
        Self {
            number,
            host_received: of.host.received,
            host_received_bytes: of.host.received_bytes,
            sealed: of.host.sealed,
            wire_received: of.wire.received,
            wire_received_bytes: of.wire.received_bytes,
            opened: of.wire.opened,
            dropped: of.host.dropped + of.wire.dropped,
            lost_ring_full: of.host.port.lost_ring_full + of.wire.port.lost_ring_full,
            flows: of.flows,
        }
    }
}

impl PairSnapshot {
    /// The snapshot of a pair whose workers have these, in their order.
    pub fn join(workers: Vec<PairSnapshot>) -> Self {
        let mut workers = workers;
        for worker in &mut workers {
            worker.access.iter_mut().for_each(AccessSnapshot::name_lines);
        }
        let mut of_each = Vec::new();
        if workers.len() > 1 {
            let numbered = workers.iter().enumerate();
            of_each.extend(numbered.map(|(number, it)| WorkerSnapshot::new(number, it)));
        }
        let joined = workers.into_iter().reduce(|mut sum, more| {
            sum.add(&more);
            sum
        });
        let mut joined = Self { workers: of_each, ..joined.unwrap_or_default() };
        if joined.workers.len() > 1 {
            joined.fast_path.share(&joined.host, &joined.wire);
        }
        joined
    }

    fn add(&mut self, more: &Self) {
        self.age_seconds = self.age_seconds.max(more.age_seconds);
        self.peers_age_seconds = self.peers_age_seconds.max(more.peers_age_seconds);
        self.host.add(&more.host);
        self.wire.add(&more.wire);
        if let (Some(access), Some(more)) = (&mut self.access, &more.access) {
            access.add(more);
        }
        if let (Some(detection), Some(more)) = (&mut self.detection, &more.detection) {
            detection.add(more);
        }
        self.inside.add(&more.inside);
        self.wire_proof.add(&more.wire_proof);
        for peer in &mut self.peers {
            let same = more.peers.iter().find(|it| it.name == peer.name);
            same.into_iter().for_each(|more| peer.add(more));
        }
        self.rdma.add(&more.rdma);
        if let (Some(keying), Some(more)) = (&mut self.keying, &more.keying) {
            keying.add(more);
        }
        self.fast_path.add(&more.fast_path);
        if let (Some(evidence), Some(more)) = (&mut self.evidence, &more.evidence) {
            evidence.add(more);
        }
        for mirror in &mut self.mirrors {
            let same = more.mirrors.iter().find(|it| it.name == mirror.name);
            same.into_iter().for_each(|more| mirror.add(more));
        }
        for (sum, more) in [
            (&mut self.own_sent, more.own_sent),
            (&mut self.own_refused, more.own_refused),
            (&mut self.mss_clamped, more.mss_clamped),
            (&mut self.path_mtu_clamped, more.path_mtu_clamped),
            (&mut self.too_big_answered, more.too_big_answered),
            (&mut self.too_big_cut, more.too_big_cut),
            (&mut self.ce_combined, more.ce_combined),
            (&mut self.withheld, more.withheld),
            (&mut self.flows, more.flows),
            (&mut self.flows_evicted, more.flows_evicted),
        ] {
            *sum += more;
        }
    }
}

impl SideSnapshot {
    fn add(&mut self, more: &Self) {
        for (sum, more) in [
            (&mut self.received, more.received),
            (&mut self.received_bytes, more.received_bytes),
            (&mut self.forwarded, more.forwarded),
            (&mut self.fast, more.fast),
            (&mut self.fast_bytes, more.fast_bytes),
            (&mut self.sealed, more.sealed),
            (&mut self.opened, more.opened),
            (&mut self.clear, more.clear),
            (&mut self.unsealed, more.unsealed),
            (&mut self.tagged, more.tagged),
            (&mut self.handed, more.handed),
            (&mut self.punted, more.punted),
            (&mut self.consumed, more.consumed),
            (&mut self.dropped, more.dropped),
            (&mut self.dropped_early, more.dropped_early),
            (&mut self.guard_dropped, more.guard_dropped),
            (&mut self.kernel_copies, more.kernel_copies),
        ] {
            *sum += more;
        }
        add_each(&mut self.dropped_by_reason, &more.dropped_by_reason);
        add_each(&mut self.clear_by_kind, &more.clear_by_kind);
        self.adds_up &= more.adds_up;
        self.port.add(&more.port);
    }
}

impl PortSnapshot {
    fn add(&mut self, more: &Self) {
        for (sum, more) in [
            (&mut self.received_frames, more.received_frames),
            (&mut self.received_bytes, more.received_bytes),
            (&mut self.sent_frames, more.sent_frames),
            (&mut self.sent_bytes, more.sent_bytes),
            (&mut self.lost_ring_full, more.lost_ring_full),
            (&mut self.lost_truncated, more.lost_truncated),
            (&mut self.send_queue_full, more.send_queue_full),
            (&mut self.send_too_large, more.send_too_large),
            (&mut self.send_refused, more.send_refused),
            (&mut self.device_dropped, more.device_dropped),
            (&mut self.refused_by_device, more.refused_by_device),
        ] {
            *sum += more;
        }
    }
}

impl WireProofSnapshot {
    fn add(&mut self, more: &Self) {
        for (sum, more) in [
            (&mut self.checked, more.checked),
            (&mut self.esp, more.esp),
            (&mut self.tagged, more.tagged),
            (&mut self.keying, more.keying),
            (&mut self.own, more.own),
            (&mut self.clear_by_policy, more.clear_by_policy),
            (&mut self.plaintext, more.plaintext),
            (&mut self.plaintext_dropped, more.plaintext_dropped),
        ] {
            *sum += more;
        }
        add_each(&mut self.clear_by_kind, &more.clear_by_kind);
        self.plaintext_last = self.plaintext_last.take().or(more.plaintext_last.clone());
        self.adds_up &= more.adds_up;
    }
}

impl PeerSnapshot {
    fn add(&mut self, more: &Self) {
        self.sealed_packets += more.sealed_packets;
        self.sealed_bytes += more.sealed_bytes;
        self.opened_packets += more.opened_packets;
        self.opened_bytes += more.opened_bytes;
        self.refused_packets += more.refused_packets;
        self.denied_packets += more.denied_packets;
        self.limited_packets += more.limited_packets;
        self.last_seen_seconds = earliest(self.last_seen_seconds, more.last_seen_seconds);
        self.last_sealed_seconds = earliest(self.last_sealed_seconds, more.last_sealed_seconds);
        // The association nearest to its end is the one to look at; workers without one have none.
        if more.sequence_remaining > 0 {
            self.sequence_next = self.sequence_next.max(more.sequence_next);
            self.sequence_reserved_until =
                self.sequence_reserved_until.max(more.sequence_reserved_until);
            self.sequence_remaining = self.sequence_remaining.min(more.sequence_remaining);
        }
        self.sequence_received = self.sequence_received.max(more.sequence_received);
        if let (Some(rollout), Some(more)) = (&mut self.rollout, &more.rollout) {
            rollout.add(more);
        }
        if let (Some(tag), Some(more)) = (&mut self.tag, &more.tag) {
            tag.add(more);
        }
    }
}

impl RolloutSnapshot {
    fn add(&mut self, more: &Self) {
        self.is_sealed &= more.is_sealed;
        self.sent_packets += more.sent_packets;
        self.sent_bytes += more.sent_bytes;
        self.received_packets += more.received_packets;
        self.received_bytes += more.received_bytes;
        self.too_big_packets += more.too_big_packets;
        let (first, other) = (self.first_seconds, more.first_seconds);
        self.first_seconds = first.map_or(other, |first| Some(first.max(other.unwrap_or(first))));
        self.last_seconds = earliest(self.last_seconds, more.last_seconds);
    }
}

impl TagSnapshot {
    fn add(&mut self, more: &Self) {
        for (sum, more) in [
            (&mut self.tagged_packets, more.tagged_packets),
            (&mut self.tagged_bytes, more.tagged_bytes),
            (&mut self.restored_packets, more.restored_packets),
            (&mut self.restored_bytes, more.restored_bytes),
            (&mut self.foreign, more.foreign),
            (&mut self.forged, more.forged),
            (&mut self.old_epoch, more.old_epoch),
            (&mut self.limited, more.limited),
            (&mut self.clear_sent_packets, more.clear_sent_packets),
            (&mut self.clear_received_packets, more.clear_received_packets),
        ] {
            *sum += more;
        }
        self.is_tagging |= more.is_tagging;
        let (last, more) = (self.last_restored_seconds, more.last_restored_seconds);
        self.last_restored_seconds = earliest(last, more);
    }
}

impl KeyingSnapshot {
    fn add(&mut self, more: &Self) {
        self.frames_sent += more.frames_sent;
        self.frames_received += more.frames_received;
        self.keepalives_sent += more.keepalives_sent;
        self.path_probes_sent += more.path_probes_sent;
        self.too_large_heard += more.too_large_heard;
        self.peers_moved += more.peers_moved;
    }
}

impl FastPathSnapshot {
    /// Shares are worked out anew by who has the counts of both sides.
    fn add(&mut self, more: &Self) {
        for (sum, more) in [
            (&mut self.flows, more.flows),
            (&mut self.flows_max, more.flows_max),
            (&mut self.installed, more.installed),
            (&mut self.removed, more.removed),
            (&mut self.refused_packets, more.refused_packets),
            (&mut self.events, more.events),
            (&mut self.events_lost, more.events_lost),
            (&mut self.heads_lost, more.heads_lost),
            (&mut self.voided, more.voided),
            (&mut self.holds, more.holds),
        ] {
            *sum += more;
        }
    }

    /// Of what both sides received and forwarded, the share that the kernel carried.
    pub fn share(&mut self, host: &SideSnapshot, wire: &SideSnapshot) {
        let share = |part: u64, whole: u64| (whole > 0).then(|| part as f64 / whole as f64);
        self.share_frames = share(host.fast + wire.fast, host.forwarded + wire.forwarded);
        self.share_bytes =
            share(host.fast_bytes + wire.fast_bytes, host.received_bytes + wire.received_bytes);
    }
}

impl EvidenceSnapshot {
    fn add(&mut self, more: &Self) {
        for (sum, more) in [
            (&mut self.packets, more.packets),
            (&mut self.bytes, more.bytes),
            (&mut self.capacity_bytes, more.capacity_bytes),
            (&mut self.recorded, more.recorded),
            (&mut self.cut, more.cut),
            (&mut self.overwritten, more.overwritten),
        ] {
            *sum += more;
        }
        self.oldest_seconds = latest(self.oldest_seconds, more.oldest_seconds);
        if let (Some(disk), Some(more)) = (&mut self.disk, &more.disk) {
            disk.add(more);
        }
    }
}

impl EvidenceDiskSnapshot {
    /// The path stays that of the first worker's file; the others' stand beside it.
    fn add(&mut self, more: &Self) {
        for (sum, more) in [
            (&mut self.packets, more.packets),
            (&mut self.bytes, more.bytes),
            (&mut self.capacity_bytes, more.capacity_bytes),
            (&mut self.written, more.written),
            (&mut self.lost, more.lost),
        ] {
            *sum += more;
        }
        self.oldest_seconds = latest(self.oldest_seconds, more.oldest_seconds);
        self.failure = self.failure.take().or_else(|| more.failure.clone());
    }
}

impl MirrorSnapshot {
    /// Adds copies that somebody else made.
    pub fn add(&mut self, more: &Self) {
        for (sum, more) in [
            (&mut self.chosen, more.chosen),
            (&mut self.mirrored, more.mirrored),
            (&mut self.truncated, more.truncated),
            (&mut self.dropped, more.dropped),
            (&mut self.dropped_queue_full, more.dropped_queue_full),
            (&mut self.dropped_too_large, more.dropped_too_large),
            (&mut self.dropped_port_down, more.dropped_port_down),
        ] {
            *sum += more;
        }
    }
}

impl RdmaSnapshot {
    fn add(&mut self, more: &Self) {
        for (sum, more) in [
            (&mut self.packets, more.packets),
            (&mut self.roce_v1, more.roce_v1),
            (&mut self.roce_v2, more.roce_v2),
            (&mut self.queue_pairs, more.queue_pairs),
            (&mut self.icrc_ok, more.icrc_ok),
            (&mut self.icrc_bad, more.icrc_bad),
            (&mut self.icrc_unchecked, more.icrc_unchecked),
            (&mut self.rnr_naks, more.rnr_naks),
            (&mut self.retransmissions, more.retransmissions),
            (&mut self.cnp, more.cnp),
        ] {
            *sum += more;
        }
        add_each(&mut self.opcodes, &more.opcodes);
        add_each(&mut self.naks, &more.naks);
        let LossSnapshot { host_side, gateway, wire_side, .. } = more.losses;
        let losses = &mut self.losses;
        losses.host_side += host_side;
        losses.gateway += gateway;
        losses.wire_side += wire_side;
        losses.host_side_overtaken += more.losses.host_side_overtaken;
        losses.wire_side_overtaken += more.losses.wire_side_overtaken;
    }
}

fn add_each(sum: &mut BTreeMap<String, u64>, more: &BTreeMap<String, u64>) {
    for (name, count) in more {
        *sum.entry(name.clone()).or_default() += count;
    }
}

/// The lesser age.
fn earliest(one: Option<f64>, other: Option<f64>) -> Option<f64> {
    one.map_or(other, |one| Some(one.min(other.unwrap_or(one))))
}

/// The greater age.
fn latest(one: Option<f64>, other: Option<f64>) -> Option<f64> {
    one.map_or(other, |one| Some(one.max(other.unwrap_or(one))))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn worker(received: u64, reason: &str) -> PairSnapshot {
        let side = SideSnapshot {
            received,
            forwarded: received - 1,
            dropped: 1,
            dropped_by_reason: BTreeMap::from([(reason.to_owned(), 1)]),
            adds_up: true,
            ..SideSnapshot::default()
        };
        let port = PortSnapshot { device_dropped: 3, lost_ring_full: 2, ..PortSnapshot::default() };
        let peer = PeerSnapshot {
            name: "b".into(),
            seal_spi: 0x1000,
            sealed_packets: received,
            last_seen_seconds: Some(received as f64),
            ..PeerSnapshot::default()
        };
        PairSnapshot {
            name: "p".into(),
            host: SideSnapshot { port, ..side.clone() },
            wire: side,
            peers: vec![peer],
            ..PairSnapshot::default()
        }
    }

    #[test]
    fn counters_are_summed_and_each_workers_stand_beside() {
        let joined = PairSnapshot::join(vec![worker(5, "malformed"), worker(7, "too_big")]);
        assert_eq!((joined.host.received, joined.host.verdicts()), (12, 12));
        assert_eq!(joined.host.dropped_by_reason.len(), 2);
        assert_eq!((joined.host.port.lost_ring_full, joined.host.port.device_dropped), (4, 6));
        assert_eq!(joined.peers.len(), 1);
        assert_eq!((joined.peers[0].sealed_packets, joined.peers[0].seal_spi), (12, 0x1000));
        assert_eq!(joined.peers[0].last_seen_seconds, Some(5.0));
        let received: Vec<_> = joined.workers.iter().map(|it| it.host_received).collect();
        assert_eq!(received, [5, 7]);
    }

    #[test]
    fn one_worker_is_its_pair() {
        let alone = worker(5, "malformed");
        assert_eq!(PairSnapshot::join(vec![alone.clone()]), alone);
    }
}
