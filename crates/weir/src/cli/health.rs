//! What is not as it should be with a gateway, a sentence each: why `weir status --check` fails.

use crate::api::dto::{KeyingSnapshot, PairSnapshot, PeerSnapshot, SinkSnapshot, Snapshot};

/// A peer with keys in files is missed after so many seconds.
const SILENT_S: f64 = 60.0;

/// What an operator must be woken for, a sentence each.
pub(super) fn findings(snapshot: &Snapshot) -> Vec<String> {
    let mut findings = Vec::new();
    if !snapshot.adds_up {
        findings.push(format!("{}: the counters do not add up", snapshot.name));
    }
    for pair in &snapshot.pairs {
        let proof = &pair.wire_proof;
        if proof.plaintext > 0 {
            findings.push(format!(
                "{}: pair {}: {} frames in plaintext came to the wire, {} of them left; the last: \
                 {}",
                snapshot.name,
                pair.name,
                proof.plaintext,
                proof.plaintext - proof.plaintext_dropped,
                proof.plaintext_last.as_deref().unwrap_or("no headers"),
            ));
        }
        for peer in &pair.peers {
            let unsealed = peer.kernel.as_ref().map_or(0, |it| it.unsealed_packets);
            if unsealed > 0 {
                findings.push(format!(
                    "{}: pair {}: peer {}: {unsealed} packets left that its NIC did not seal",
                    snapshot.name, pair.name, peer.name,
                ));
            }
        }
    }
    findings
}

/// Links that are down and peers that are not reached, a sentence each with what is known of why.
pub(super) fn unreached(snapshot: &Snapshot) -> Vec<String> {
    let mut findings = Vec::new();
    for pair in &snapshot.pairs {
        let mut add = |what: String| {
            findings.push(format!("{}: pair {}: {what}", snapshot.name, pair.name));
        };
        for side in [&pair.host, &pair.wire] {
            if matches!(side.link.as_str(), "down" | "gone") {
                add(format!("port {} is {}", side.interface, side.link));
            }
        }
        for peer in &pair.peers {
            if let Some(why) = why_unreached(pair, peer) {
                add(format!("peer {}: {why}", peer.name));
            }
        }
    }
    findings
}

/// Rules that are configured and of which none runs, a sentence each.
pub(super) fn unwatched(snapshot: &Snapshot) -> Vec<String> {
    let none_runs = |it: &&PairSnapshot| it.detection.as_ref().is_some_and(|it| it.rules == 0);
    let pairs = snapshot.pairs.iter().filter(none_runs);
    let line = |it: &PairSnapshot| {
        let (gateway, pair) = (&snapshot.name, &it.name);
        format!("{gateway}: pair {pair}: [rules], and none runs: nothing is looked for")
    };
    pairs.map(line).collect()
}

/// Evidence and alerts that cannot be written now, and sinks that are down, a sentence each.
pub(super) fn unwritten(snapshot: &Snapshot) -> Vec<String> {
    let name = &snapshot.name;
    let of_pair = |it: &PairSnapshot| {
        let failure = it.evidence.as_ref()?.disk.as_ref()?.failure.as_ref()?;
        Some(format!("{name}: pair {}: evidence is not kept on disk: {failure}", it.name))
    };
    let alerts = snapshot.alerts.iter().flat_map(|it| &it.failures);
    let of_alerts = alerts.map(|it| format!("{name}: alerts are not written: {it}"));
    let sinks = snapshot.alerts.iter().flat_map(|it| &it.sinks);
    let of_sinks = sinks.filter_map(|it| {
        let SinkSnapshot { to, waiting, failure, .. } = it;
        let failure = failure.as_ref()?;
        Some(format!("{name}: the sink {to} is down, {waiting} events wait: {failure}"))
    });
    snapshot.pairs.iter().filter_map(of_pair).chain(of_alerts).chain(of_sinks).collect()
}

/// What was lost since the start of what should be told, a sentence each. It is over, and no reason
/// to wake anybody for ever.
pub(super) fn losses(snapshot: &Snapshot) -> Vec<String> {
    let mut told = Vec::new();
    let mut add = |count: u64, what: &str| {
        if count > 0 {
            told.push(format!("{}: since its start {count} {what}", snapshot.name));
        }
    };
    let waiting = snapshot.pairs.iter().filter_map(|it| it.detection.as_ref());
    add(waiting.map(|it| it.alerts_lost).sum(), "alerts were lost before they were told");
    if let Some(alerts) = &snapshot.alerts {
        add(alerts.lost, "alerts were lost to EVE");
        add(alerts.fast_lost, "alerts were lost to fast.log");
        add(alerts.records_lost, "records of flows and transactions were lost to EVE");
        for sink in &alerts.sinks {
            add(sink.lost, &format!("events were lost to the sink {}", sink.to));
        }
    }
    if let Some(store) = &snapshot.store {
        add(store.overflowed, "records were lost to the store");
        add(store.alerts_lost, "alerts were lost to the store");
    }
    for export in &snapshot.exports {
        let lost = export.data_records_lost + export.overflowed;
        add(lost, &format!("records were lost to the collector {}", export.collector));
    }
    told
}

/// Why a peer is not reached; `None`: it is, or nobody has tried.
fn why_unreached(pair: &PairSnapshot, peer: &PeerSnapshot) -> Option<String> {
    let Some(keying) = &peer.keying else { return why_silent(peer) };
    // VPN clients come and go.
    if keying.state == "up" || peer.is_client {
        return None;
    }
    if let Some(why) = &keying.refused_because {
        return Some(format!("refused: {why}"));
    }
    let since = match keying.last_handshake_seconds {
        Some(seconds) => format!("the last handshake was {seconds:.0} s ago"),
        None => "no handshake ever came to keys".to_owned(),
    };
    let hint = pair.keying.as_ref().and_then(heard_instead).unwrap_or_default();
    let unanswered = keying.unanswered;
    (keying.state == "dead" || unanswered > 0)
        .then(|| format!("{}, {unanswered} initiations unanswered; {since}{hint}", keying.state))
}

/// The same of a peer with keys in files, which nobody asks for a sign of life: it is missed while
/// packets are sealed to it.
fn why_silent(peer: &PeerSnapshot) -> Option<String> {
    let Some(seen) = peer.last_seen_seconds else {
        return (peer.sealed_packets > 0).then(|| {
            "nothing authentic has come from it, though packets were sealed to it: compare keys \
             and SPIs at both ends, and look whether it runs"
                .to_owned()
        });
    };
    let sealed = peer.last_sealed_seconds.unwrap_or(f64::MAX);
    (seen > SILENT_S && sealed < seen - SILENT_S / 2.0).then(|| {
        format!(
            "nothing authentic has come from it for {seen:.0} s, though packets were sealed to it \
             {sealed:.0} s ago: look whether it runs"
        )
    })
}

/// What handshakes came that were none of a peer's: a wrong key at one end shows so.
fn heard_instead(keying: &KeyingSnapshot) -> Option<String> {
    let counted = [
        (keying.mac1_wrong, "for another public key than ours: the peer has a wrong key of ours"),
        (keying.unknown_peer, "of an identity that is no peer's: we have a wrong key of the peer"),
        (keying.not_authentic, "not authentic: compare the preshared keys at both ends"),
        (keying.mismatched, "of a peer that is configured otherwise"),
    ];
    let (count, what) = counted.into_iter().find(|(count, _)| *count > 0)?;
    Some(format!("; {count} handshake messages came {what}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::dto::{
        AlertsSnapshot, DetectionSnapshot, EvidenceDiskSnapshot, EvidenceSnapshot,
        PeerKeyingSnapshot,
    };

    fn snapshot(change: impl FnOnce(&mut PairSnapshot)) -> Snapshot {
        let keying = PeerKeyingSnapshot { state: "up".into(), ..Default::default() };
        let peer =
            PeerSnapshot { name: "gw-b".into(), keying: Some(keying), ..PeerSnapshot::default() };
        let mut pair = PairSnapshot { peers: vec![peer], ..PairSnapshot::default() };
        pair.keying = Some(KeyingSnapshot::default());
        change(&mut pair);
        Snapshot { pairs: vec![pair], ..Snapshot::default() }
    }

    #[track_caller]
    fn assert_told(snapshot: &Snapshot, what: &str) {
        let told = unreached(snapshot);
        assert!(told.len() == 1 && told[0].contains(what), "{told:?}, not {what}");
    }

    #[test]
    fn a_gateway_whose_peers_are_up_has_no_finding() {
        assert!(unreached(&snapshot(|_| {})).is_empty());
    }

    #[test]
    fn links_that_are_down_are_named() {
        let down = snapshot(|pair| {
            pair.wire.interface = "p0".into();
            pair.wire.link = "down".into();
        });
        assert_told(&down, "port p0 is down");
    }

    #[test]
    fn rules_of_which_none_runs_are_a_fault_and_no_rules_are_none() {
        let with = |rules| {
            let detection = DetectionSnapshot { rules, ..DetectionSnapshot::default() };
            unwatched(&snapshot(|pair| pair.detection = Some(detection)))
        };
        assert!(unwatched(&snapshot(|_| {})).is_empty());
        assert!(with(7).is_empty());
        assert!(with(0)[0].ends_with("none runs: nothing is looked for"));
    }

    #[test]
    fn what_cannot_be_written_now_is_a_fault() {
        let mut full = snapshot(|pair| {
            let failure = Some("no space".to_owned());
            let disk = Some(EvidenceDiskSnapshot { failure, ..Default::default() });
            pair.evidence = Some(EvidenceSnapshot { disk, ..Default::default() });
        });
        let failures = vec!["/x/fast.log: no space".to_owned()];
        full.alerts = Some(AlertsSnapshot { failures, ..Default::default() });
        let told = unwritten(&full);
        assert!(told[0].ends_with("evidence is not kept on disk: no space"), "{told:?}");
        assert!(told[1].ends_with("alerts are not written: /x/fast.log: no space"), "{told:?}");
        assert!(unwritten(&snapshot(|_| {})).is_empty());
    }

    #[test]
    fn what_was_lost_is_told_each_by_its_name() {
        let mut lossy = snapshot(|pair| {
            pair.detection = Some(DetectionSnapshot { alerts_lost: 2, ..Default::default() });
        });
        lossy.name = "gw-a".into();
        lossy.alerts = Some(AlertsSnapshot { lost: 3, records_lost: 4, ..Default::default() });
        let expected = [
            "gw-a: since its start 2 alerts were lost before they were told",
            "gw-a: since its start 3 alerts were lost to EVE",
            "gw-a: since its start 4 records of flows and transactions were lost to EVE",
        ];
        assert_eq!(losses(&lossy), expected);
        assert!(losses(&snapshot(|_| {})).is_empty());
    }

    #[test]
    fn a_dead_peer_is_named_with_what_came_instead() {
        let dead = |change: fn(&mut KeyingSnapshot)| {
            snapshot(|pair| {
                let keying = pair.peers[0].keying.as_mut().unwrap();
                (keying.state, keying.unanswered) = ("dead".into(), 7);
                change(pair.keying.as_mut().unwrap());
            })
        };
        assert_told(&dead(|_| {}), "7 initiations unanswered; no handshake ever came to keys");
        assert_told(&dead(|it| it.mac1_wrong = 3), "the peer has a wrong key of ours");
        assert_told(&dead(|it| it.unknown_peer = 3), "we have a wrong key of the peer");
        assert_told(&dead(|it| it.not_authentic = 3), "compare the preshared keys");
    }

    #[test]
    fn a_peer_with_keys_in_files_is_named_once_packets_to_it_find_no_answer() {
        let silent = |sealed_packets| {
            snapshot(|pair| {
                pair.peers[0].keying = None;
                pair.peers[0].sealed_packets = sealed_packets;
            })
        };
        assert!(unreached(&silent(0)).is_empty());
        assert_told(&silent(5), "nothing authentic has come from it");
        // It answered once, and does not any more.
        let heard = |seen: f64, sealed: f64| {
            snapshot(|pair| {
                let peer = &mut pair.peers[0];
                (peer.keying, peer.sealed_packets) = (None, 5);
                (peer.last_seen_seconds, peer.last_sealed_seconds) = (Some(seen), Some(sealed));
            })
        };
        assert!(unreached(&heard(3.0, 1.0)).is_empty());
        assert!(unreached(&heard(500.0, 499.0)).is_empty(), "nobody has anything to say");
        assert_told(&heard(500.0, 2.0), "for 500 s, though packets were sealed to it 2 s ago");
    }
}
