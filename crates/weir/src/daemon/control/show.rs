//! From the engine's values to what `weir status` shows.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::ops::Range;

use weir_engine::counters::SideCounters;
use weir_engine::meter::Totals;
use weir_engine::policy::{KeyedBy, Mode, OtherTraffic, Peer, Sealing};
use weir_engine::verdict::Side;
use weir_port::{Interface, KernelRule, PortCounters};
use weir_store::sink::CollectorCounters;
use weir_wire::frame::Time;

use crate::api::dto::{
    AccessSnapshot, DetectionSnapshot, ExportSnapshot, FastPathSnapshot, KeyingSnapshot,
    LossSnapshot, MirrorSnapshot, PairSnapshot, PathMtuSnapshot, PeerKeyingSnapshot, PeerSnapshot,
    RdmaSnapshot, RolloutSnapshot, RuleSnapshot, SideSnapshot, TagSnapshot, WireProofSnapshot,
};
use crate::config::keying::public_text;
use crate::config::settings::{Driver, Pair};
use crate::daemon::keys::keying::KeyingStatus;
use crate::daemon::pair::control::ControlReport;
use crate::daemon::pair::evidence;
use crate::daemon::pair::fast_path::FastPathControl;
use crate::daemon::pair::mirror::{Mirror, MirrorCounters};
use crate::daemon::pair::offload::Answered;
use crate::daemon::pair::relay::Relay;

/// One pair at the moment `now`, without its peers: [`peers`].
pub fn pair(
    pair: &Pair,
    relay: &mut Relay,
    fast_path: FastPathSnapshot,
    now: Time,
) -> PairSnapshot {
    let mut ports = relay.port_counters();
    let has_kernel_ports = relay.has_kernel_ports();
    let withheld = relay.withheld();
    let wire_proof = WireProofSnapshot::new(relay.proof());
    let bystanders = relay.bystanders();
    let evidence = bystanders.evidence.as_ref().map(|it| {
        let (ring, disk) = it.counters();
        evidence::show(&ring, disk, now)
    });
    let mirrors = bystanders.mirrors.iter().map(mirror).collect();
    let engine = relay.engine();
    let counters = engine.counters().clone();
    let totals = engine.meter().totals();
    carried(&mut ports.host, &mut ports.wire, &counters.host);
    carried(&mut ports.wire, &mut ports.host, &counters.wire);
    let host = SideSnapshot::new(&pair.host, &counters.host, ports.host);
    let wire = SideSnapshot::new(&pair.wire, &counters.wire, ports.wire);
    let kernel =
        has_kernel_ports.then(|| SideSnapshot::new("weirx", &counters.kernel, ports.kernel));
    PairSnapshot {
        name: pair.name.clone(),
        driver: if pair.driver == Driver::Xdp { "xdp" } else { "packet" }.to_owned(),
        policy_epoch: engine.policy().epoch,
        host,
        wire,
        kernel,
        wire_proof,
        rdma: rdma(&totals),
        own_sent: counters.own_sent,
        own_refused: counters.own_refused,
        mss_clamped: counters.mss_clamped,
        path_mtu_clamped: counters.path_mtu_clamped,
        too_big_answered: counters.too_big_answered,
        too_big_cut: counters.too_big_cut,
        ce_combined: counters.ce_combined,
        dscp_map: engine.policy().marking.dscp_changes().collect(),
        pcp_map: engine.policy().marking.pcp_changes().collect(),
        withheld,
        keying: engine.policy().keying_port.map(|_| KeyingSnapshot {
            frames_sent: counters.keying_sent,
            frames_received: counters.keying_received,
            keepalives_sent: counters.keepalives_sent,
            path_probes_sent: counters.path_probes_sent,
            too_large_heard: counters.too_large_heard,
            peers_moved: counters.peers_moved,
            ..KeyingSnapshot::default()
        }),
        fast_path,
        flows: engine.meter().flows().len() as u64,
        flows_evicted: totals.flows_evicted,
        evidence,
        access: engine.access().map(AccessSnapshot::new),
        detection: engine.detection().map(DetectionSnapshot::new),
        inside: engine.inside_counters().into(),
        mirrors,
        ..PairSnapshot::default()
    }
}

/// Adds what the control thread saw to what the workers published.
pub fn add_control(pair: &mut PairSnapshot, report: &ControlReport) {
    let ControlReport { guard, devices, .. } = report;
    for (side, guard, lost) in
        [(&mut pair.host, &guard.host, devices.host), (&mut pair.wire, &guard.wire, devices.wire)]
    {
        (side.guard_dropped, side.kernel_copies) = (kept_back(guard), guard.ingress_dropped);
        let port = &mut side.port;
        let silent_sends = lost.leaving.saturating_sub(port.refused_by_device);
        port.device_dropped = lost.arriving + silent_sends;
    }
    if let Some(kernel) = &mut pair.kernel {
        kernel.guard_dropped = kept_back(&guard.xfrm);
    }
    for mirror in &mut pair.mirrors {
        let of_kernel = report.mirrors.iter().find(|(name, _)| *name == mirror.name);
        of_kernel.into_iter().for_each(|(_, counters)| mirror.add(&copies(*counters)));
    }
    if report.kernel.is_empty() {
        return;
    }
    let by_name = report.kernel.iter().map(|it| (it.name.as_str(), it));
    let by_name: HashMap<&str, &PeerSnapshot> = by_name.collect();
    for peer in &mut pair.peers {
        let Some(of_kernel) = by_name.get(peer.name.as_str()) else { continue };
        (peer.seal_spi, peer.open_spi) = (of_kernel.seal_spi, of_kernel.open_spi);
        peer.sequence_next = of_kernel.sequence_next;
        peer.sequence_reserved_until = of_kernel.sequence_reserved_until;
        peer.sequence_remaining = of_kernel.sequence_remaining;
        peer.sequence_received = of_kernel.sequence_received;
        peer.kernel = of_kernel.kernel.clone();
    }
}

fn mirror(mirror: &Mirror) -> MirrorSnapshot {
    MirrorSnapshot {
        name: mirror.settings().name.clone(),
        port: mirror.settings().port.clone(),
        by_kernel: mirror.is_by_kernel(),
        ..copies(mirror.counters())
    }
}

fn copies(counters: MirrorCounters) -> MirrorSnapshot {
    let MirrorCounters { chosen, mirrored, truncated, dropped, .. } = counters;
    MirrorSnapshot {
        chosen,
        mirrored,
        truncated,
        dropped,
        dropped_queue_full: counters.queue_full,
        dropped_too_large: counters.too_large,
        dropped_port_down: counters.port_down,
        ..MirrorSnapshot::default()
    }
}

/// Adds the fast path's frames to the ports' counters: a carried frame was received by one port and
/// sent by the other, a dropped one only received.
fn carried(from: &mut PortCounters, to: &mut PortCounters, side: &SideCounters) {
    from.received_frames += side.fast;
    from.received_bytes += side.fast_bytes;
    to.sent_frames += side.fast;
    to.sent_bytes += side.fast_bytes;
    from.received_frames += side.early;
    from.received_bytes += side.early_bytes;
}

/// The fast path of a pair, `why_not` if it has none.
pub fn fast_path(
    pair: &Pair,
    relay: &mut Relay,
    fast_path: Option<&FastPathControl>,
    why_not: Option<&str>,
) -> FastPathSnapshot {
    let engine = relay.engine();
    let mut snapshot = match fast_path {
        Some(fast_path) => fast_path.snapshot(engine, pair.fastpath),
        None => FastPathSnapshot {
            setting: pair.fastpath.name().to_owned(),
            state: why_not.unwrap_or_default().to_owned(),
            ..FastPathSnapshot::default()
        },
    };
    let (host, wire) = (&engine.counters().host, &engine.counters().wire);
    let share = |part: u64, whole: u64| (whole > 0).then(|| part as f64 / whole as f64);
    snapshot.share_frames = share(host.fast + wire.fast, host.forwarded + wire.forwarded);
    snapshot.share_bytes =
        share(host.fast_bytes + wire.fast_bytes, host.received_bytes + wire.received_bytes);
    snapshot
}

/// Adds what the gateway put into the kernel at the pair's ports. Asks the kernel for all of it:
/// not to be called where packets wait.
pub fn add_rules(pair: &mut PairSnapshot) {
    for interface in [&pair.host.interface, &pair.wire.interface] {
        let rules = KernelRule::all(interface).unwrap_or_default();
        pair.fast_path.rules.extend(rules.into_iter().map(|rule| RuleSnapshot {
            interface: interface.clone(),
            direction: rule.direction.to_owned(),
            program: rule.program,
            placement: rule.placement.name().to_owned(),
        }));
    }
}

/// What the guard did not let the gateway's own network stack send.
fn kept_back(port: &weir_port::guard::PortGuardCounters) -> u64 {
    port.egress_arp_dropped + port.egress_ipv6_neighbour_dropped + port.egress_other_dropped
}

/// The peers of these places in the policy, at the moment `now`.
pub fn peers(
    engine: &weir_engine::pipeline::Engine,
    places: Range<usize>,
    now: Time,
) -> Vec<PeerSnapshot> {
    let first = places.start;
    let of = |(index, peer): (usize, &Peer)| {
        let counters = engine.peer_counters(index);
        let sealing = engine.sealing_association(index);
        let seen = counters.opened_packets > 0;
        let last_seen_seconds = seen.then(|| now.since_ns(counters.last_opened) as f64 / 1e9);
        let sealed = counters.sealed_packets > 0;
        let last_sealed_seconds = sealed.then(|| now.since_ns(counters.last_sealed) as f64 / 1e9);
        let open_spi = peer.open_spis.last().copied().unwrap_or_default();
        PeerSnapshot {
            sequence_next: sealing.map_or(0, |it| it.next_sequence().0),
            sequence_reserved_until: sealing.map_or(0, |it| it.state().reserved_until),
            sequence_remaining: sealing.map_or(0, |it| it.remaining()),
            sequence_received: engine.highest_received(open_spi).unwrap_or_default(),
            last_seen_seconds,
            last_sealed_seconds,
            is_client: peer.mode.is_client(),
            rollout: rollout(engine, (index, peer), now),
            tag: tag(engine, (index, peer), now),
            ..PeerSnapshot::new(&peer.name, peer.seal_spi.unwrap_or_default(), open_spi, &counters)
        }
    };
    let peers = engine.policy().peers[places].iter().enumerate();
    peers.map(|(at, peer)| of((first + at, peer))).collect()
}

/// What was done about the tags of a peer that has them.
fn tag(
    engine: &weir_engine::pipeline::Engine,
    (index, peer): (usize, &Peer),
    now: Time,
) -> Option<TagSnapshot> {
    let Mode::IcrcTag(terms) = peer.mode else { return None };
    let counters = engine.tag_counters(index).unwrap_or_default();
    let clear = engine.clear_counters(index);
    let heard = counters.restored_packets > 0;
    Some(TagSnapshot {
        keyed_by: match terms.keyed_by {
            KeyedBy::QueuePair => "queue-pair",
            KeyedBy::Partition => "partition",
        }
        .to_owned(),
        other: match terms.other {
            OtherTraffic::Drop => "drop",
            OtherTraffic::Clear => "clear",
        }
        .to_owned(),
        is_tagging: engine.is_sealed_to(index),
        tagged_packets: counters.tagged_packets,
        tagged_bytes: counters.tagged_bytes,
        restored_packets: counters.restored_packets,
        restored_bytes: counters.restored_bytes,
        foreign: counters.foreign,
        forged: counters.forged,
        old_epoch: counters.old_epoch,
        limited: counters.limited,
        clear_sent_packets: clear.sent_packets,
        clear_received_packets: clear.received_packets,
        last_restored_seconds: heard.then(|| now.since_ns(counters.last_restored) as f64 / 1e9),
    })
}

/// What passes in clear to and from a peer that need not be sealed to yet.
fn rollout(
    engine: &weir_engine::pipeline::Engine,
    (index, peer): (usize, &Peer),
    now: Time,
) -> Option<RolloutSnapshot> {
    let sealing = match peer.sealing {
        Sealing::Require => return None,
        Sealing::Prefer => "prefer",
        Sealing::Observe => "observe",
    };
    let counters = engine.clear_counters(index);
    let age = |at: Time| (at.0 > 0).then(|| now.since_ns(at) as f64 / 1e9);
    Some(RolloutSnapshot {
        sealing: sealing.to_owned(),
        is_sealed: engine.is_sealed_to(index),
        sent_packets: counters.sent_packets,
        sent_bytes: counters.sent_bytes,
        received_packets: counters.received_packets,
        received_bytes: counters.received_bytes,
        too_big_packets: counters.too_big_packets,
        first_seconds: age(counters.first),
        last_seconds: age(counters.last),
    })
}

/// How the link of `interface` stands, as [`SideSnapshot::link`] says it.
pub fn link(interface: &str) -> &'static str {
    match Interface::find(interface).and_then(|it| it.has_link()) {
        Ok(true) => "up",
        Ok(false) => "down",
        Err(_) => "gone",
    }
}

/// Adds how the links stand, and what the NICs count of pause frames. Asks their drivers, which may
/// take long: not to be called where packets wait.
pub fn add_pauses(pair: &mut PairSnapshot) {
    for side in [&mut pair.host, &mut pair.wire] {
        side.link = link(&side.interface).to_owned();
        let statistics = Interface::find(&side.interface).and_then(|it| it.statistics());
        let pauses = statistics.unwrap_or_default().into_iter();
        side.pause = pauses.filter(|(name, count)| name.contains("pause") && *count > 0).collect();
    }
}

/// Adds how the pair's keys come about.
pub fn add_keying(pair: &mut PairSnapshot, status: &KeyingStatus) {
    let counters = status.counters;
    pair.keying = Some(KeyingSnapshot {
        handshakes: counters.handshakes,
        initiations_sent: counters.initiations_sent,
        responses_sent: counters.responses_sent,
        cookies_sent: counters.cookies_sent,
        cookies_received: counters.cookies_received,
        received: counters.received,
        malformed: counters.malformed,
        mac1_wrong: counters.mac1_wrong,
        not_authentic: counters.not_authentic,
        unknown_peer: counters.unknown_peer,
        replayed: counters.replayed,
        mismatched: counters.mismatched,
        refused: counters.refused,
        overflowed: status.overflowed,
        is_loaded: status.is_loaded,
        ..pair.keying.take().unwrap_or_default()
    });
    for peer in &mut pair.peers {
        let Some(keyed) = status.peers.get(&peer.name) else { continue };
        let seconds = |age_ns: u64| age_ns as f64 / 1e9;
        let (seal_spi, open_spi) = keyed.spis.unwrap_or_default();
        (peer.seal_spi, peer.open_spi) = (seal_spi, open_spi);
        peer.last_seen_seconds = keyed.heard_age_ns.map(seconds);
        peer.keying = Some(PeerKeyingSnapshot {
            public_key: public_text(&keyed.public_key),
            state: keyed.state.name().to_owned(),
            endpoint: keyed.path.as_ref().map(|path| match peer.is_client {
                true => SocketAddr::new(path.remote.address, path.remote.port).to_string(),
                false => path.remote.address.to_string(),
            }),
            last_handshake_seconds: keyed.handshake_age_ns.map(seconds),
            handshakes: keyed.handshakes,
            rekeys: keyed.handshakes.saturating_sub(1),
            unanswered: keyed.unanswered,
            refused_because: keyed.mismatch.map(|why| why.to_string()),
            path_mtu: PathMtuSnapshot {
                bytes: keyed.path_mtu.in_force_bytes,
                state: keyed.path_mtu.state.name().to_owned(),
                black_holes: keyed.path_mtu.black_holes,
            },
        });
    }
}

/// Adds, for peers that asked for the NIC, whether it or the kernel does their ESP.
pub fn add_offload(pair: &mut PairSnapshot, answered: &[Answered]) {
    for peer in &mut pair.peers {
        let of = |it: &&Answered| it.pair == pair.name && it.peer == peer.name;
        peer.offload = answered.iter().find(of).map(Answered::snapshot);
        // The NIC took the trial association at the start, but not the later ones.
        if let (Some(offload), Some(kernel)) = (&mut peer.offload, &peer.kernel)
            && offload.in_hw
            && !kernel.in_nic
        {
            offload.in_hw = false;
            offload.reason = "the NIC took no association since; see the log".to_owned();
        }
    }
}

fn rdma(totals: &Totals) -> RdmaSnapshot {
    let rdma = &totals.rdma;
    RdmaSnapshot {
        packets: rdma.packets,
        roce_v1: rdma.roce_v1,
        roce_v2: rdma.roce_v2,
        queue_pairs: rdma.queue_pairs,
        opcodes: rdma.opcodes_seen().map(|(opcode, n)| (opcode.to_string(), n)).collect(),
        icrc_ok: rdma.icrc_ok,
        icrc_bad: rdma.icrc_bad,
        icrc_unchecked: rdma.icrc_unchecked,
        naks: rdma
            .naks_by_cause()
            .filter(|(_, n)| *n > 0)
            .map(|(cause, n)| (cause.to_string(), n))
            .collect(),
        rnr_naks: rdma.rnr_naks,
        retransmissions: rdma.retransmissions,
        losses: LossSnapshot {
            host_side: rdma.lost_at(Side::Host),
            gateway: rdma.losses_total().inside,
            wire_side: rdma.lost_at(Side::Wire),
            host_side_overtaken: rdma.losses[Side::Host as usize].overtaken,
            wire_side_overtaken: rdma.losses[Side::Wire as usize].overtaken,
        },
        cnp: rdma.cnp,
    }
}

/// What a collector was sent.
pub fn export(counters: CollectorCounters) -> ExportSnapshot {
    ExportSnapshot {
        collector: counters.collector,
        is_connected: counters.is_connected,
        records: counters.records,
        overflowed: counters.overflowed,
        without_form: counters.without_form,
        data_records: counters.data_records,
        data_records_lost: counters.data_records_lost,
        messages_sent: counters.messages_sent,
        messages_waiting: counters.messages_waiting,
        messages_resent: counters.messages_resent,
    }
}
