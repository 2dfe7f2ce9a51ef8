//! What `weir status` says of a peer: its traffic, who seals it, its keys, what passes in clear.

use std::fmt::Write as _;

use super::duration;
use crate::api::dto::{
    KernelEspSnapshot, PeerKeyingSnapshot, PeerSnapshot, RolloutSnapshot, TagSnapshot,
};

/// All that is told of one.
pub(super) fn peer_line(text: &mut String, peer: &PeerSnapshot) {
    let seen = match peer.last_seen_seconds {
        Some(seconds) => format!("last heard {seconds:.1} s ago"),
        None => "not heard yet".to_owned(),
    };
    if let Some(rollout) = &peer.rollout {
        rollout_line(text, peer, rollout);
    }
    if let Some(keying) = &peer.keying {
        keying_line(text, &peer.name, keying);
    }
    if let Some(offload) = peer.offload.as_ref().filter(|it| it.in_hw) {
        let _ = writeln!(text, "  peer {}: offload {}: in the NIC", peer.name, offload.asked);
    } else if let Some(offload) = &peer.offload {
        let _ = writeln!(
            text,
            "  peer {}: offload {}: NOT IN HARDWARE, {} seals: {}",
            peer.name,
            offload.asked,
            if peer.kernel.is_some() { "the kernel" } else { "Weir" },
            offload.reason,
        );
    }
    if let Some(openvpn) = &peer.openvpn {
        let _ = writeln!(
            text,
            "  peer {}: OpenVPN at port {}: {}, {} clients, {} restarts{}",
            peer.name,
            openvpn.port,
            openvpn.state,
            openvpn.clients.len(),
            openvpn.restarts,
            if openvpn.state == "serving" {
                String::new()
            } else {
                format!(": {}", openvpn.last_line)
            },
        );
    }
    if let Some(kernel) = &peer.kernel {
        kernel_line(text, peer, kernel);
        return;
    }
    if let Some(tag) = &peer.tag {
        tag_line(text, &peer.name, tag);
        return;
    }
    let _ = writeln!(
        text,
        "  peer {}: sealed {} packets, {} bytes; opened {} packets, {} bytes; {seen}",
        peer.name, peer.sealed_packets, peer.sealed_bytes, peer.opened_packets, peer.opened_bytes,
    );
}

fn kernel_line(text: &mut String, peer: &PeerSnapshot, kernel: &KernelEspSnapshot) {
    let _ = writeln!(
        text,
        "  peer {}: ESP by the kernel, {}: handed {} packets, it sealed {}, {} seen to leave so; \
         it opened {}, taken {}; {} replays, {} forged{}",
        peer.name,
        kernel.interface,
        peer.sealed_packets,
        kernel.sealed_packets,
        kernel.left_packets,
        kernel.opened_packets,
        peer.opened_packets,
        kernel.replayed,
        kernel.forged,
        match (kernel.is_lost, &peer.keying) {
            (false, _) => "",
            _ if kernel.unsealed_packets > 0 => "; PLAINTEXT LEFT, shut until a restart",
            (true, None) => "; THE KERNEL LOST IT: restart",
            (true, Some(_)) => "; THE KERNEL LOST IT: new keys are asked for",
        },
    );
}

fn tag_line(text: &mut String, name: &str, tag: &TagSnapshot) {
    let now = if tag.is_tagging { "tagging" } else { "NOT TAGGING AT PRESENT" };
    let seen = match tag.last_restored_seconds {
        Some(seconds) => format!("last right tag {seconds:.1} s ago"),
        None => "no right tag yet".to_owned(),
    };
    let _ = writeln!(
        text,
        "  peer {name}: ICRC tags by {}, WEAKER THAN ESP: {now}; tagged {} packets, {} bytes; \
         restored {} packets, {} bytes; {seen}; dropped: {} without a tag, {} forged, {} of \
         another epoch, {} beyond the limit of forgeries; in clear: {} sent, {} received",
        tag.keyed_by,
        tag.tagged_packets,
        tag.tagged_bytes,
        tag.restored_packets,
        tag.restored_bytes,
        tag.foreign,
        tag.forged,
        tag.old_epoch,
        tag.limited,
        tag.clear_sent_packets,
        tag.clear_received_packets,
    );
}

/// What passes in clear, in capitals where anything did.
fn rollout_line(text: &mut String, peer: &PeerSnapshot, rollout: &RolloutSnapshot) {
    let now = match (rollout.is_sealed, rollout.sealing.as_str()) {
        (true, _) => "sealed at present",
        (false, "observe") => "nothing is sealed",
        (false, _) => "NOT SEALED AT PRESENT",
    };
    let _ = write!(text, "  peer {}: {}: {now}; ", peer.name, rollout.sealing.to_uppercase());
    let (Some(first), Some(last)) = (rollout.first_seconds, rollout.last_seconds) else {
        text.push_str("no packet in clear so far\n");
        return;
    };
    let _ = writeln!(
        text,
        "{} packets ({} bytes) sent and {} ({} bytes) received IN CLEAR since {} ago, the last {} \
         ago; {} of those sent would not fit the wire sealed",
        rollout.sent_packets,
        rollout.sent_bytes,
        rollout.received_packets,
        rollout.received_bytes,
        duration(first as u64),
        duration(last as u64),
        rollout.too_big_packets,
    );
}

fn keying_line(text: &mut String, name: &str, keying: &PeerKeyingSnapshot) {
    let handshake = match keying.last_handshake_seconds {
        Some(seconds) => format!("last handshake {seconds:.0} s ago, {} rekeys", keying.rekeys),
        None => "no handshake yet".to_owned(),
    };
    let endpoint = keying.endpoint.as_deref().unwrap_or("unknown");
    let _ = write!(text, "  peer {name}: {} at {endpoint}; {handshake}", keying.state);
    let width = &keying.path_mtu;
    match width.state.as_str() {
        "found" => drop(write!(text, "; path MTU {}", width.bytes)),
        "searching" | "unanswered" => {
            let _ = write!(text, "; path MTU {} ({})", width.bytes, width.state);
        }
        _ => {}
    }
    if width.black_holes > 0 {
        let _ = write!(text, ", lower than before {} times", width.black_holes);
    }
    if keying.unanswered > 0 {
        let _ = write!(text, "; {} initiations unanswered", keying.unanswered);
    }
    if let Some(why) = &keying.refused_because {
        let _ = write!(text, "; refused: {why}");
    }
    text.push('\n');
}
