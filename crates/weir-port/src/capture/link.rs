//! Link types (tcpdump.org/linktypes.html): which ones we read, and what they mean for a frame.

use weir_wire::frame::Link;

pub(super) const LOOPBACK: u16 = 0;
pub(super) const ETHERNET: u16 = 1;
pub(super) const PPP: u16 = 9;
pub(super) const PPP_HDLC: u16 = 50;
pub(super) const CISCO_HDLC: u16 = 104;
pub(super) const LOOPBACK_OPENBSD: u16 = 108;
pub(super) const RAW_BSD: u16 = 12;
pub(super) const RAW_OPENBSD: u16 = 14;
pub(super) const RAW: u16 = 101;
pub(super) const LINUX_SLL: u16 = 113;
pub(super) const ERF: u16 = 197;
pub(super) const IPV4: u16 = 228;
pub(super) const IPV6: u16 = 229;
pub(super) const IPOIB: u16 = 242;
pub(super) const INFINIBAND: u16 = 247;
pub(super) const LINUX_SLL2: u16 = 276;

/// How a packet of an interface is to be taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LinkType {
    /// The packet as it stands.
    Plain(Link),
    /// Behind an ERF record header, which names the kind.
    Erf,
    /// Not one of ours.
    Unknown,
}

impl LinkType {
    pub(super) fn from_number(number: u16) -> Self {
        match number {
            ETHERNET => LinkType::Plain(Link::Ethernet),
            RAW_BSD | RAW_OPENBSD | RAW | IPV4 | IPV6 => LinkType::Plain(Link::Ip),
            LOOPBACK | LOOPBACK_OPENBSD => LinkType::Plain(Link::Loopback),
            PPP | PPP_HDLC => LinkType::Plain(Link::Ppp),
            CISCO_HDLC => LinkType::Plain(Link::CiscoHdlc),
            LINUX_SLL => LinkType::Plain(Link::LinuxSll),
            LINUX_SLL2 => LinkType::Plain(Link::LinuxSll2),
            INFINIBAND => LinkType::Plain(Link::InfiniBand),
            IPOIB => LinkType::Plain(Link::Ipoib),
            ERF => LinkType::Erf,
            _ => LinkType::Unknown,
        }
    }
}

/// The number to write for a frame of this link.
pub(super) fn number_of(link: Link) -> u16 {
    match link {
        Link::Ethernet => ETHERNET,
        Link::Ip => RAW,
        Link::Ppp => PPP,
        Link::CiscoHdlc => CISCO_HDLC,
        Link::Loopback => LOOPBACK,
        Link::LinuxSll => LINUX_SLL,
        Link::LinuxSll2 => LINUX_SLL2,
        Link::InfiniBand => INFINIBAND,
        Link::Ipoib => IPOIB,
    }
}
