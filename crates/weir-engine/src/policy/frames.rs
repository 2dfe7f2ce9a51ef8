//! Classes of frames that no address decides about, and what happens to each.

use super::Action;

/// Frames that no address selector decides: link-local protocols, address resolution, group
/// traffic. Told apart by EtherType; IP packets and RoCE v1 by their destination address, and what
/// has none by destination MAC.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum FrameClass {
    /// LLDP (EtherType 0x88cc).
    Lldp,
    /// Slow protocols: LACP, marker (0x8809).
    Lacp,
    /// 802.1X (0x888e).
    Eapol,
    /// PTP over Ethernet (0x88f7).
    Ptp,
    /// MAC control: pause, PFC (0x8808).
    Pause,
    /// Spanning tree and other 802.3 LLC frames to 01:80:c2:00:00:00.
    Stp,
    /// Anything else to 01:80:c2:00:00:00 .. 0f, which a bridge never forwards.
    LinkLocal,
    /// ARP.
    Arp,
    /// IPv6 neighbour and router discovery (ICMPv6 133 to 137, code 0, hop limit 255).
    NeighbourDiscovery,
    /// Broadcast that is none of the above; of IP packets, those to 255.255.255.255.
    Broadcast,
    /// Multicast that is none of the above; of IP packets, those to a group's address.
    Multicast,
}

impl FrameClass {
    /// All classes, in counter order.
    pub const ALL: [FrameClass; 11] = [
        FrameClass::Lldp,
        FrameClass::Lacp,
        FrameClass::Eapol,
        FrameClass::Ptp,
        FrameClass::Pause,
        FrameClass::Stp,
        FrameClass::LinkLocal,
        FrameClass::Arp,
        FrameClass::NeighbourDiscovery,
        FrameClass::Broadcast,
        FrameClass::Multicast,
    ];

    /// The name in configuration, counters and JSON.
    pub const fn name(self) -> &'static str {
        match self {
            FrameClass::Lldp => "lldp",
            FrameClass::Lacp => "lacp",
            FrameClass::Eapol => "eapol",
            FrameClass::Ptp => "ptp",
            FrameClass::Pause => "pause",
            FrameClass::Stp => "stp",
            FrameClass::LinkLocal => "link_local",
            FrameClass::Arp => "arp",
            FrameClass::NeighbourDiscovery => "neighbour_discovery",
            FrameClass::Broadcast => "broadcast",
            FrameClass::Multicast => "multicast",
        }
    }
}

/// The action for each [`FrameClass`], by its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrameActions(pub [Action; FrameClass::ALL.len()]);

impl FrameActions {
    /// Everything in clear: a gateway that only watches.
    pub const fn all_clear() -> Self {
        Self([Action::Clear; FrameClass::ALL.len()])
    }

    /// A sealing gateway's defaults: what a bridge never forwards ends here; the rest is sealed.
    pub const fn sealing() -> Self {
        use Action::{Drop, Seal};
        Self([Drop, Drop, Drop, Drop, Drop, Drop, Drop, Seal, Seal, Seal, Seal])
    }

    /// The action for one class.
    pub const fn of(&self, class: FrameClass) -> Action {
        self.0[class as usize]
    }

    /// Changes the action for one class.
    pub const fn set(&mut self, class: FrameClass, action: Action) {
        self.0[class as usize] = action;
    }
}
