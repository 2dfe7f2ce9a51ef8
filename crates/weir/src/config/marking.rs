//! `dscp_map` and `pcp_map`: which classes of traffic the fabric sees, where they are not those of
//! the packets inside.
//!
//! ```toml
//! [[pair]]
//! dscp_map = { "26" = 34 }        # inner DSCP 26 becomes outer 34; values not listed are copied
//! pcp_map = { "3" = 5, "0" = 1 }  # the same for VLAN priority; untagged packets have priority 0
//! ```

use std::collections::BTreeMap;

use toml::Spanned;
use weir_engine::policy::{DSCP_COUNT, Marking, PCP_COUNT};

use super::file::{Mode, Pair, Peer};
use super::problem::Problems;

/// A map as it is written: classes inside, in quotes as TOML has keys, to classes outside.
pub type Written = Spanned<BTreeMap<Spanned<String>, Spanned<i64>>>;

/// The marking of `pair`, whose peers are `peers`.
pub(super) fn resolve(pair: &Pair, peers: &[&Peer], problems: &mut Problems) -> Marking {
    let mut marking = Marking::default();
    if let Some(written) = &pair.dscp_map {
        check_outer(written, "dscp_map", pair, peers, problems);
        for (inner, outer) in classes(written, DSCP_COUNT, "DSCP", problems) {
            marking.map_dscp(inner, outer);
        }
    }
    if let Some(written) = &pair.pcp_map {
        check_outer(written, "pcp_map", pair, peers, problems);
        if pair.vlan.is_none() || pair.address.0.is_empty() {
            let what = "pcp_map, and outer frames of the pair have no tag of their own";
            let remedy = "give the [[pair]] an `address` and a `vlan` (0: the priority alone)";
            problems.error(written.span(), what, remedy);
        }
        for (inner, outer) in classes(written, PCP_COUNT, "VLAN priority", problems) {
            marking.map_pcp(inner, outer);
        }
    }
    marking
}

/// A map needs outer headers that are not the packets' own.
fn check_outer(
    written: &Written,
    key: &str,
    pair: &Pair,
    peers: &[&Peer],
    problems: &mut Problems,
) {
    let has_outer = |peer: &&&Peer| matches!(peer.mode.get_ref(), Mode::Ethernet | Mode::Tunnel);
    if !pair.xfrm && peers.iter().find(has_outer).is_none() {
        problems.error(
            written.span(),
            format!("{key}, and no peer of the pair has outer headers: packets keep their own"),
            format!("remove `{key}`, or use mode = \"ethernet\" or \"tunnel\""),
        );
    }
}

/// Every class inside with that outside, both below `count`.
fn classes(written: &Written, count: usize, kind: &str, problems: &mut Problems) -> Vec<(u8, u8)> {
    let remedy = format!("write numbers from 0 to {}, as in {{ \"3\" = 5 }}", count - 1);
    let mut found = BTreeMap::new();
    for (inner, outer) in written.get_ref() {
        let class = |number: Option<i64>| -> Option<u8> {
            number?.try_into().ok().filter(|it| usize::from(*it) < count)
        };
        let Some(from) = class(inner.get_ref().parse().ok()) else {
            let what = format!("`{}` is no {kind}", inner.get_ref());
            problems.error(inner.span(), what, &remedy);
            continue;
        };
        let Some(to) = class(Some(*outer.get_ref())) else {
            let what = format!("{} is no {kind}", outer.get_ref());
            problems.error(outer.span(), what, &remedy);
            continue;
        };
        if found.insert(from, to).is_some() {
            let what = format!("{kind} {from} is mapped twice");
            problems.error(inner.span(), what, "keep one of them");
        }
    }
    found.into_iter().collect()
}

/// The VLAN of the outer frames is a number of one, and there are frames that can have it.
pub(super) fn check_vlan(pair: &Pair, problems: &mut Problems) {
    let Some(vlan) = &pair.vlan else { return };
    if !(0..=4094).contains(vlan.get_ref()) {
        let what = format!("{} is no VLAN identifier", vlan.get_ref());
        let remedy = "write a number from 1 to 4094, or 0 for a tag with the priority alone";
        problems.error(vlan.span(), what, remedy);
    } else if pair.address.0.is_empty() {
        let remedy = "give the pair an `address`; without one, packets keep the host's link header";
        problems.error(vlan.span(), "`vlan` without outer frames of our own", remedy);
    }
}
