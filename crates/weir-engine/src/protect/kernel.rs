//! Peers whose ESP the gateway's kernel does (docs/adr/0024): what must be sealed goes to their
//! xfrm interface as the IP packet that it is, what the kernel opened comes from there and is
//! checked as if it had been opened here. Agreed keys are installed by who speaks to the kernel,
//! and told here by SPI alone. Likewise clients of a daemon that seals behind a tunnel device
//! (docs/adr/0170).
//!
//! ```text
//!   host -> clamp, cut, fits? -> xfrm interface          Verdict::Handed
//!   wire -> ESP of its association: not ours to open     Verdict::Handed
//!   xfrm interface -> selectors -> meter -> host         Verdict::Opened
//! ```
//!
//! What a NIC opened (docs/adr/0035) shows on the wire port too, as it would look if somebody had
//! sent it in clear. It is left to the guard, which knows the one from the other: the one comes by
//! the xfrm interface, the other goes nowhere.

use weir_wire::frame::{Frame, Link, Offload};
use weir_wire::parse::{Network, Parsed};
use weir_wire::walker::Walker;

use super::esp::{Inner, silent_in};
use super::rows::{Given, Row};
use super::{Leaving, Parts, clamp, clear};
use crate::classify::has_address;
use crate::offload::checksum::complete;
use crate::offload::undone;
use crate::output::{Destination, Output, Part};
use crate::peer::{Peers, Sources};
use crate::surroundings::HostAddresses;
use crate::verdict::{DropReason, Verdict};

const ETHERNET_LEN: usize = 14;
const ETHERTYPE_IPV4: [u8; 2] = [8, 0];
const ETHERTYPE_IPV6: [u8; 2] = [0x86, 0xdd];

/// What such a peer needs; one whose ESP a NIC does needs it too.
pub(super) const ROW: Row = Row {
    name: "offload = \"kernel\"",
    what: "the kernel does ESP, by an xfrm interface",
    cannot: &[
        (Given::NoTunnel, "mode = \"tunnel\""),
        (Given::Borrowed, "an `endpoint`, and a pair with an `address`"),
        (Given::Everything, "prefixes in `protects`, not \"everything\""),
        (Given::InUdp, "encapsulation = \"esp\""),
        (Given::MayBeClear, "sealing = \"require\""),
        (Given::ShortSequence, "extended_sequence = true"),
        (Given::WindowOverKernel, "a replay_window of at most 4096 packets"),
        (Given::Xdp, "a pair with driver = \"packet\""),
        (Given::Vlan, "a pair without `vlan`"),
        (Given::ClassMaps, "a pair without `dscp_map` or `pcp_map`"),
        (Given::FrontEnd, "a pair without `xfrm`"),
        (Given::Workers, "a pair with one worker"),
    ],
    like: None,
};

/// What is decided about ESP for the kernel: no fragment leads to its association.
pub(crate) fn handed_whole(outer: &Parsed) -> Result<Verdict, DropReason> {
    match outer.fragment {
        Some(_) => Err(DropReason::Fragment),
        None => Ok(Verdict::Handed),
    }
}

/// Sends a packet to its peer's xfrm interface, the one at `place`.
pub(super) fn protect(
    parts: &mut Parts<'_>,
    place: u16,
    packet: Leaving<'_, '_>,
) -> Result<Verdict, DropReason> {
    if !matches!(packet.parsed.network, Network::Ipv4 | Network::Ipv6) {
        return Err(DropReason::NoPolicy);
    }
    let kernel = parts.peers.kernel.at(place).ok_or(DropReason::KernelEsp)?;
    if kernel.is_lost {
        return Err(DropReason::KernelEsp);
    }
    let by_device = parts.policy.peers[packet.peer].mode.is_device();
    if kernel.seal_spi.is_none() && !by_device {
        return clear::protect(parts, packet);
    }
    let Leaving { peer, index, frame, parsed, .. } = packet;
    let entry = parts.peers.get(peer).ok_or(DropReason::NoPolicy)?;
    if entry.outer_header().is_none() && !by_device {
        return Err(DropReason::NeighbourUnknown);
    }
    clamp(entry, parts.counters, frame, parsed);
    let bytes = frame.len() as u64;
    let packets = if frame.meta.offload.segmentation.is_some() {
        entry.cut_for_kernel(frame, parsed, place, parts.output)?
    } else if !entry.fits(parsed, frame.len()) {
        return Err(DropReason::TooBig);
    } else if !complete(frame) {
        return Err(DropReason::Malformed);
    } else {
        let range = u32::from(parsed.network_offset)..parsed.end;
        let part = Part::Frame { frame: index, range };
        parts.output.send(Destination::Kernel(place), Offload::default(), part);
        1
    };
    if let Some(kernel) = parts.peers.kernel.at_mut(place) {
        kernel.counters.sealed_packets += packets;
        kernel.counters.sealed_bytes += bytes;
        kernel.counters.last_sealed = frame.meta.time;
    }
    Ok(Verdict::Handed)
}

/// Takes in an IP packet that the kernel opened, which came by the xfrm interface at `place`:
/// afterwards it is the frame for the host.
///
/// # Errors
/// Why it is dropped.
pub(crate) fn unprotect(
    parts: &Parts<'_>,
    hosts: &HostAddresses,
    place: u16,
    frame: &mut Frame<'_>,
    (walker, sources): (&mut Walker, &mut Sources),
) -> Result<(usize, Inner), DropReason> {
    let peer = parts.peers.kernel.at(place).ok_or(DropReason::KernelEsp)?.index;
    let ethertype = match frame.bytes().first().map(|byte| byte >> 4) {
        Some(4) => ETHERTYPE_IPV4,
        Some(6) => ETHERTYPE_IPV6,
        _ => return Err(DropReason::EspTrailer),
    };
    let own = parts.policy.own.as_ref().map(|own| own.mac).unwrap_or_default();
    let head = frame.prepend(ETHERNET_LEN).ok_or(DropReason::NoRoom)?;
    head[6..12].copy_from_slice(&own.0);
    head[12..14].copy_from_slice(&ethertype);
    frame.meta.original_len = frame.len() as u32;
    frame.meta.link = Link::Ethernet;
    frame.meta.offload = frame.meta.offload.shifted(ETHERNET_LEN as u16);
    // Only now it is a frame of which its link is known.
    undone::settle(frame)?;
    let follows = walker.walk(frame);
    let parsed = walker.parsed();
    if parsed.fault.is_some() && !has_address(parsed) {
        return Err(DropReason::Malformed);
    }
    if !parts.policy.peers[peer].may_reach(parsed) {
        return Err(DropReason::PeerReach);
    }
    let led = match sources.are_of(parts.policy, peer, parsed) {
        true => hosts.lead(frame, walker),
        false => Err(DropReason::SelectorMismatch),
    };
    if let Err(reason) = led {
        if parts.policy.peers[peer].mode.is_device() {
            return Err(reason);
        }
        let message = silent_in(frame, walker.parsed()).ok_or(reason)?;
        return Ok((peer, Inner::Nothing(message)));
    }
    Ok((peer, Inner::Packet { follows, congestion_combined: false }))
}

/// Such a packet was let through: it is counted, as the packets that the kernel gathered to it.
pub(crate) fn taken(peers: &mut Peers, place: u16, frame: &Frame<'_>, packets: u32) {
    let Some(kernel) = peers.kernel.at_mut(place) else { return };
    kernel.counters.opened_packets += u64::from(packets);
    kernel.counters.opened_bytes += frame.len() as u64;
    kernel.counters.last_opened = frame.meta.time;
}

/// Hands over an IP packet of the gateway's own.
pub(super) fn hand_over_own(
    peers: &Peers,
    output: &mut Output,
    place: u16,
    packet: &[u8],
) -> Option<()> {
    peers.kernel.at(place)?.seal_spi?;
    let range = output.allocate(packet.len())?;
    output.arena_mut(&range).copy_from_slice(packet);
    output.send(Destination::Kernel(place), Offload::default(), Part::Arena(range));
    Some(())
}
