//! Where a peer is, and whether its pair can reach that.

use std::net::IpAddr;

use super::address::InterfaceAddress;
use super::file::{self, Mode};
use super::problem::Problems;

/// What is wrong with a peer's `endpoint`, or the lack of one.
pub(super) fn check(peer: &file::Peer, pair: &file::Pair, problems: &mut Problems) {
    let mode = *peer.mode.get_ref();
    let name = peer.name.get_ref();
    let Some(endpoint) = &peer.endpoint else {
        // Who knows its peer by its key may wait for it to speak.
        let may_wait = peer.public_key.is_some() && !pair.address.0.is_empty();
        if mode == Mode::Ethernet && !may_wait {
            let what = format!("peer `{name}` in ethernet mode has no `endpoint`");
            let remedy = "add the peer's outer address: a frame has none to borrow";
            problems.error(peer.mode.span(), what, remedy);
        } else if mode == Mode::Tunnel && !pair.address.0.is_empty() {
            let what = format!("peer `{name}` has no `endpoint`, and its pair an `address`");
            let remedy = "add the peer's outer address, or remove the pair's (bump in the wire)";
            problems.error(peer.mode.span(), what, remedy);
        }
        return;
    };
    let ip = *endpoint.get_ref();
    if mode == Mode::Transport {
        let what = "transport mode with an `endpoint`: packets keep their own addresses";
        problems.error(endpoint.span(), what, "remove `endpoint`, or use mode = \"tunnel\"");
        return;
    }
    if ip.is_unspecified() || ip.is_multicast() || ip.is_loopback() {
        let what = format!("`{ip}` is no address of a peer");
        problems.error(endpoint.span(), what, "write the peer's unicast address on the wire");
        return;
    }
    let own = pair.address.0.iter().find(|own| own.get_ref().address.is_ipv4() == ip.is_ipv4());
    let Some(own) = own else {
        let family = if ip.is_ipv4() { "IPv4" } else { "IPv6" };
        problems.error(
            endpoint.span(),
            format!("peer `{name}` has an {family} endpoint, and its pair no {family} `address`"),
            "give the [[pair]] an outer address of it, such as `address = \"192.0.2.1/24\"`",
        );
        return;
    };
    if own.get_ref().address == ip {
        let what = format!("endpoint `{ip}` is the pair's own address");
        problems.error(endpoint.span(), what, "write the peer's address");
    } else if !on_link(ip, pair)
        && !pair.next_hop.iter().any(|hop| hop.get_ref().is_ipv4() == ip.is_ipv4())
    {
        let what =
            format!("endpoint `{ip}` is outside the pair's network, and there is no next hop");
        problems.error(endpoint.span(), what, "add `next_hop` to the [[pair]]");
    }
}

/// Whether `ip` is in a network of the pair's `address`.
pub(super) fn on_link(ip: IpAddr, pair: &file::Pair) -> bool {
    let link_local = matches!(ip, IpAddr::V6(v6) if v6.is_unicast_link_local());
    pair.address.0.iter().any(|address| {
        let address: &InterfaceAddress = address.get_ref();
        address.network().contains(ip) || (link_local && address.address.is_ipv6())
    })
}
