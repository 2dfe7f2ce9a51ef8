//! What is odd about a packet's headers: the events that `decode-event` asks for, and those of
//! streams.
//!
//! The walk of `weir-wire` stops at the first contradiction; this one says which it was, in the
//! names of Suricata's language. It is made only where some rule or report asks.

mod carried;
mod event;
mod internet;
mod transport;

use carried::Arp;
use weir_wire::frame::Link;
use weir_wire::ipoib::IpoibHeader;

pub use event::Event;

/// VLAN tags that are read.
const VLANS_MAX: usize = 3;
/// Extension headers that are read.
const EXTENSIONS_MAX: usize = 64;
/// Labels of MPLS that are read.
const LABELS_MAX: usize = 32;

/// What is odd about the headers of `bytes`, which begin with `link`'s, up to the first that is
/// carried inside of another packet.
pub fn look(bytes: &[u8], link: Link) -> Vec<Event> {
    let mut walk = Walk(Vec::new());
    match link {
        Link::Ethernet => walk.ethernet(bytes),
        Link::LinuxSll if bytes.len() < 16 => walk.0.push(Event::SllTooSmall),
        Link::LinuxSll => walk.ethertype(bytes, 14),
        Link::LinuxSll2 if bytes.len() < 20 => walk.0.push(Event::Sll2TooSmall),
        Link::LinuxSll2 => walk.ethertype(bytes.get(18..).unwrap_or_default(), 0),
        Link::Ip => walk.ip(bytes),
        Link::Loopback => walk.loopback(bytes),
        Link::Ppp => walk.ppp(bytes),
        Link::CiscoHdlc if bytes.len() < 4 => walk.0.push(Event::HdlcTooSmall),
        Link::CiscoHdlc => match word(bytes, 2) {
            Some(0x0800) => walk.ipv4(bytes.get(4..).unwrap_or_default()),
            Some(0x86dd) => walk.ipv6(bytes.get(4..).unwrap_or_default()),
            _ => {}
        },
        Link::InfiniBand => {}
        Link::Ipoib => walk.ipoib(bytes),
    }
    walk.0
}

struct Walk(Vec<Event>);

fn word(bytes: &[u8], at: usize) -> Option<usize> {
    Some(usize::from(*bytes.get(at)?) << 8 | usize::from(*bytes.get(at + 1)?))
}

impl Walk {
    fn ethernet(&mut self, bytes: &[u8]) {
        match bytes.len() < 14 {
            true => self.0.push(Event::EthernetTooSmall),
            false => self.ethertype(bytes, 12),
        }
    }

    /// What follows the type at `at`, tags passed over.
    fn ethertype(&mut self, bytes: &[u8], mut at: usize) {
        let (mut vlans, mut unknown) = (0, Event::EthernetUnknownType);
        let mut too_small = Event::EthernetTooSmall;
        loop {
            let Some(kind) = word(bytes, at) else { return self.0.push(too_small) };
            let inner = bytes.get(at + 2..).unwrap_or_default();
            match kind {
                0x8100 | 0x88a8 | 0x9100 if vlans == VLANS_MAX => {
                    return self.0.push(Event::VlanTooManyLayers);
                }
                0x8100 | 0x88a8 | 0x9100 => {
                    (vlans, at) = (vlans + 1, at + 4);
                    (unknown, too_small) = (Event::VlanUnknownType, Event::VlanTooSmall);
                }
                0x8926 => {
                    at += 6;
                    (unknown, too_small) = (Event::VntagUnknownType, Event::VntagTooSmall);
                }
                0x88e7 => {
                    // A service's tag, and the frame that it carries (IEEE 802.1ah).
                    at += 18;
                    (unknown, too_small) = (Event::EthernetUnknownType, Event::BackboneTooSmall);
                }
                0x0800 => return self.ipv4(inner),
                0x86dd => return self.ipv6(inner),
                0x8847 | 0x8848 => return self.labels(inner),
                0x8863 => return self.pppoe_discovery(inner),
                0x8864 => return self.pppoe_session(inner),
                0x8903 => match inner.len() < 14 {
                    true => return self.0.push(Event::DceTooSmall),
                    // Cisco's FabricPath: a tag of two bytes, and the frame.
                    false => at += 16,
                },
                0x0806 => return self.arp(inner, Arp::ETHERNET),
                0x894f => return self.nsh(inner),
                // Bridging and RoCE are known, lengths are no type.
                0x6558 | 0x8915 | 0x0000..0x0600 => return,
                _ if matches!(unknown, Event::VntagUnknownType | Event::VlanUnknownType) => {
                    return self.0.extend([unknown, Event::EthernetUnknownType]);
                }
                _ => return self.0.push(unknown),
            }
        }
    }

    fn ip(&mut self, bytes: &[u8]) {
        match bytes.first().map(|it| it >> 4) {
            Some(4) => self.ipv4(bytes),
            Some(6) => self.ipv6(bytes),
            Some(_) => self.0.push(Event::RawWrongVersion),
            None => self.0.push(Event::Ipv4TooSmall),
        }
    }

    /// Suricata knows none of it: no event is its own.
    fn ipoib(&mut self, bytes: &[u8]) {
        let start = IpoibHeader::offset_in(bytes);
        let Some(inner) = bytes.get(start + IpoibHeader::LEN..) else { return };
        match word(bytes, start) {
            Some(0x0800) => self.ipv4(inner),
            Some(0x86dd) => self.ipv6(inner),
            Some(0x0806) => self.arp(inner, Arp::INFINIBAND),
            _ => {}
        }
    }

    fn loopback(&mut self, bytes: &[u8]) {
        let Some((family, packet)) = bytes.split_first_chunk() else {
            return self.0.push(Event::LoopbackTooSmall);
        };
        // In the byte order of its machine.
        match u32::from_le_bytes(*family).min(u32::from_be_bytes(*family)) {
            2 => self.ipv4(packet),
            10 | 24 | 28 | 30 => self.ipv6(packet),
            _ => self.0.push(Event::LoopbackUnknownType),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn no_bytes_break_it(bytes in prop::collection::vec(any::<u8>(), 0..200), kind in 0..4) {
            let links = [Link::Ethernet, Link::Ip, Link::LinuxSll2, Link::Ipoib];
            let link = links[kind as usize];
            look(&bytes, link);
            let mut packet = vec![0x60, 0, 0, 0, 0, bytes.len() as u8, 44, 1];
            packet.extend([0; 32]);
            packet.extend(&bytes);
            look(&packet, Link::Ip);
        }
    }

    #[test]
    fn fragment_headers_that_are_useless_or_double_are_told() {
        let mut packet = vec![0x60, 0, 0, 0, 0, 24, 44, 1];
        packet.extend([0; 32]);
        packet.extend([44, 0, 0, 0, 0, 0, 0, 1, 58, 0, 0, 0, 0, 0, 0, 1, 128, 0, 0, 0, 0, 0, 0, 0]);
        let events = look(&packet, Link::Ip);
        let both = [Event::Ipv6UselessFragmentHeader, Event::Ipv6DoubleFragmentHeader];
        assert_eq!(events, both);
        assert_eq!(Event::from_name("decoder.ipv6.exthdr_dupl_fh"), Some(both[1]));
    }
}
