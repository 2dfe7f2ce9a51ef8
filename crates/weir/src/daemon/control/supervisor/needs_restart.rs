//! What a reload cannot do.

use crate::config::Settings;
use crate::config::settings::{Pair, Peer};

/// What differs that a running gateway cannot change.
pub(super) fn needs_restart(old: &Settings, new: &Settings) -> Option<String> {
    if old.gateway != new.gateway {
        return Some("[gateway]".into());
    }
    if old.collectors != new.collectors {
        return Some("[[export]]".into());
    }
    if old.sinks != new.sinks {
        return Some("[[sink]]".into());
    }
    if old.store != new.store {
        return Some("[store]".into());
    }
    if old.keying != new.keying {
        return Some("[keying]".into());
    }
    if old.limits != new.limits {
        return Some("[limits]".into());
    }
    if old.pairs.len() != new.pairs.len() {
        return Some("the list of pairs".into());
    }
    let tunnels = |it: &Settings| it.detection.as_ref().map(|it| it.tunnels).unwrap_or_default();
    if tunnels(old) != tunnels(new) && old.pairs.iter().any(|it| it.workers > 1) {
        return Some("`tunnel_ports` of pairs with several workers".into());
    }
    old.pairs.iter().zip(&new.pairs).find_map(|(old, new)| pair_needs_restart(old, new))
}

fn pair_needs_restart(old: &Pair, new: &Pair) -> Option<String> {
    if (&old.name, &old.host, &old.wire) != (&new.name, &new.host, &new.wire) {
        return Some(format!("the ports of pair {}, or its name,", old.name));
    }
    let key = [
        (old.driver != new.driver, "driver"),
        (old.xfrm != new.xfrm, "xfrm"),
        (old.fastpath != new.fastpath, "fastpath"),
        (old.workers != new.workers, "workers"),
    ];
    if let Some((_, key)) = key.into_iter().find(|(differs, _)| *differs) {
        return Some(format!("`{key}` of pair {}", old.name));
    }
    fn by_kernel(pair: &Pair) -> impl Iterator<Item = &Peer> {
        pair.peers.iter().filter(|peer| peer.is_by_kernel() || peer.tunnel().is_some())
    }
    if !by_kernel(old).eq(by_kernel(new)) {
        let what = "a peer whose ESP the kernel or a NIC does, or a tunnel of OpenVPN";
        return Some(format!("{what}, in pair {},", old.name));
    }
    let has_moved = (&old.addresses, &old.next_hop) != (&new.addresses, &new.next_hop);
    (has_moved && by_kernel(old).next().is_some())
        .then(|| format!("the address of pair {}, whose ESP the kernel or a NIC does,", old.name))
}
