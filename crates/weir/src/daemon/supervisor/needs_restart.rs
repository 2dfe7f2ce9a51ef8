//! What a reload cannot do.

use crate::config::Settings;
use crate::config::settings::Pair;

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
    let ports = |pairs: &[Pair]| -> Vec<_> {
        pairs
            .iter()
            .map(|it| {
                let ports = (it.name.clone(), it.host.clone(), it.wire.clone());
                (ports, it.driver, it.xfrm, it.fastpath, it.workers)
            })
            .collect()
    };
    let by_kernel = |pairs: &[Pair]| -> Vec<String> {
        let peers = pairs.iter().flat_map(|pair| pair.peers.iter().map(move |peer| (pair, peer)));
        peers
            .filter(|(_, peer)| peer.is_by_kernel())
            .map(|(pair, peer)| format!("{:?} {:?} {peer:?}", pair.addresses, pair.next_hop))
            .collect()
    };
    if by_kernel(&old.pairs) != by_kernel(&new.pairs) {
        return Some("a peer whose ESP the kernel or a NIC does, or its pair's address,".into());
    }
    (ports(&old.pairs) != ports(&new.pairs))
        .then(|| "the list of pairs, their ports, `workers`, `xfrm` or `fastpath`".into())
}
