//! What the gateway's own kernel says on the wire and hears there.

use weir_wire::frame::{Frame, Offload};
use weir_wire::parse::{Network, Parsed, Transport};

use crate::policy::Policy;

/// Whether the packet belongs to the gateway's own kernel.
#[inline]
pub(crate) fn is_own(policy: &Policy, parsed: &Parsed) -> bool {
    let Some(own) = &policy.own else { return false };
    match parsed.network {
        Network::Arp | Network::Ipv4 => own.holds(&parsed.destination),
        Network::Ipv6 => {
            own.holds(&parsed.destination) || own.is_solicited_group(&parsed.destination)
        }
        _ => false,
    }
}

/// What the kernel may say on the wire: address resolution, ICMP, IKE, and what daemons say from
/// the ports that they have; from an own address.
pub(crate) fn may_leave(policy: &Policy, parsed: &Parsed) -> bool {
    let Some(own) = &policy.own else { return false };
    if parsed.link.source != own.mac || !own.holds(&parsed.source) {
        return false;
    }
    match parsed.transport {
        Transport::Icmp { .. } => true,
        Transport::Udp { source, .. } => {
            matches!(source, 500 | 4500) || own.daemon_ports.contains(&source)
        }
        _ => parsed.network == Network::Arp,
    }
}

/// Puts the pair's tag on a frame of the kernel's; false: there is no room for it.
pub(crate) fn tag(policy: &Policy, frame: &mut Frame<'_>) -> bool {
    let Some(vlan) = policy.own.as_ref().and_then(|own| own.vlan) else { return true };
    let Some(bytes) = frame.prepend(4) else { return false };
    bytes.copy_within(4..16, 0);
    bytes[12..14].copy_from_slice(&0x8100u16.to_be_bytes());
    bytes[14..16].copy_from_slice(&vlan.to_be_bytes());
    frame.meta.offload.checksum = frame.meta.offload.checksum.map(|mut partial| {
        partial.start += 4;
        partial.field += 4;
        partial
    });
    true
}

/// Takes the pair's tag off a frame for the kernel.
pub(crate) fn untag(policy: &Policy, frame: &mut Frame<'_>) {
    let tagged = policy.own.as_ref().is_some_and(|own| own.vlan.is_some());
    if tagged && frame.len() >= 18 && frame.bytes()[12..14] == [0x81, 0] {
        frame.bytes_mut().copy_within(0..12, 4);
        frame.trim_front(4);
        frame.meta.offload = Offload::default();
    }
}
