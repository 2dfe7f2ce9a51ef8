//! What is done to packets on the wire's side: one protector a peer, and both its directions.
//!
//! ```text
//!   protect:    routed to a peer -+-> Esp, WireGuard: clamped, sealed, outer headers -> wire
//!                                 +-> Tag: a tag in the place of the ICRC ------------> wire
//!                                 +-> Clear: as it is, counted -----------------------> wire
//!                                 `-> Kernel, Nic: clamped, cut ---------------> xfrm interface
//!   unprotect:  the same the other way, up to the packet in clear that [`crate::plain`] judges
//! ```
//!
//! Which protector a packet has is found once a run of packets, with its route, and is one `match`
//! for each. What a protector needs, and what it does not go with, is its row in [`rows`].

use weir_wire::frame::{Frame, Time};
use weir_wire::parse::Parsed;

use crate::counters::Counters;
use crate::esp::outer::OuterFields;
use crate::output::Output;
use crate::peer::Peers;
use crate::policy::{self, Mode, Policy, Sealing};
use crate::verdict::{DropReason, Verdict};

mod clamp;
pub(crate) mod clear;
pub(crate) mod dummy;
pub(crate) mod esp;
pub(crate) mod kernel;
mod nic;
pub mod rows;
pub(crate) mod tag;
mod wireguard;

pub(crate) use clamp::clamp;

/// What protects the packets of a peer. Room is left for one whose NIC seals by PSP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Protector {
    /// Nothing: its packets are counted, and no more.
    Clear,
    /// ESP, made here.
    Esp,
    /// WireGuard's data messages, made here.
    WireGuard,
    /// A tag in the place of the ICRC.
    Tag,
    /// ESP, made by the kernel behind the xfrm interface at this place, or a daemon's own behind a
    /// tunnel device.
    Kernel(u16),
    /// ESP, made by a NIC beneath the kernel.
    Nic(u16),
}

impl Protector {
    /// That of a peer.
    #[inline]
    pub(crate) fn of(peer: &policy::Peer) -> Self {
        match (peer.kernel, peer.mode) {
            (Some(kernel), _) if kernel.nic_reaches.is_some() => Self::Nic(kernel.place),
            (Some(kernel), _) => Self::Kernel(kernel.place),
            (None, Mode::IcrcTag(_)) => Self::Tag,
            (None, Mode::WireGuard) => Self::WireGuard,
            (None, _) if peer.sealing == Sealing::Observe => Self::Clear,
            // A device has a place.
            (None, Mode::Device { .. }) => Self::Clear,
            (None, Mode::Ethernet | Mode::Tunnel | Mode::Transport) => Self::Esp,
        }
    }

    /// Whether it writes outer headers, which take over fields of the packet.
    #[inline]
    pub(crate) fn writes_outer_headers(self) -> bool {
        matches!(self, Self::Esp | Self::WireGuard)
    }
}

/// A packet of the host's for a peer.
pub(crate) struct Leaving<'a, 'f> {
    /// The peer's index.
    pub(crate) peer: usize,
    /// The frame's place in its batch.
    pub(crate) index: u32,
    pub(crate) frame: &'a mut Frame<'f>,
    pub(crate) parsed: &'a Parsed,
    /// What outer headers take over, of a protector that writes them.
    pub(crate) fields: OuterFields,
}

/// What protectors work with beside the packet.
pub(crate) struct Parts<'a> {
    pub(crate) now: Time,
    pub(crate) policy: &'a Policy,
    pub(crate) peers: &'a mut Peers,
    pub(crate) output: &'a mut Output,
    pub(crate) counters: &'a mut Counters,
}

/// Protects a packet and sends it.
///
/// # Errors
/// Why it is dropped. [`DropReason::TooBig`]: nothing was changed, and its sender may be told.
#[inline]
pub(crate) fn protect(
    protector: Protector,
    parts: &mut Parts<'_>,
    packet: Leaving<'_, '_>,
) -> Result<Verdict, DropReason> {
    match protector {
        Protector::Esp | Protector::WireGuard => esp::protect(parts, packet),
        Protector::Clear => clear::protect(parts, packet),
        Protector::Tag => tag::protect(parts, packet),
        Protector::Kernel(place) | Protector::Nic(place) => kernel::protect(parts, place, packet),
    }
}

/// Decides about a packet of a peer's that came without ESP, and takes its tag off.
///
/// # Errors
/// Why it is dropped.
pub(crate) fn unprotect_plain(
    parts: &mut Parts<'_>,
    peer: usize,
    frame: &mut Frame<'_>,
    parsed: &Parsed,
) -> Result<Verdict, DropReason> {
    let Some(wanted) = parts.policy.peers.get(peer) else { return Err(DropReason::NoPolicy) };
    match Protector::of(wanted) {
        Protector::Tag => tag::unprotect(parts, peer, frame, parsed),
        protector => clear::unprotect(parts.policy, peer, protector),
    }
}
