//! What stands between a link's header and the network's: labels and sessions.

use super::{Event, LABELS_MAX, Walk, word};

/// Between which link addresses ARP goes.
#[derive(Clone, Copy)]
pub(super) struct Arp {
    hardware: usize,
    address_len: u8,
}

impl Arp {
    pub(super) const ETHERNET: Self = Self { hardware: 1, address_len: 6 };
    /// RFC 4391 s9.2.
    pub(super) const INFINIBAND: Self = Self { hardware: 32, address_len: 20 };
}

impl Walk {
    /// MPLS (RFC 3032), and the best guess at what follows its last label.
    pub(super) fn labels(&mut self, mut bytes: &[u8]) {
        let mut label = 0;
        for _ in 0..LABELS_MAX {
            let Some((entry, behind)) = bytes.split_first_chunk::<4>() else {
                return self.0.push(Event::MplsHeaderTooSmall);
            };
            let entry = u32::from_be_bytes(*entry);
            (label, bytes) = (entry >> 12, behind);
            if entry & 0x100 != 0 {
                break;
            }
        }
        match label {
            0 => return self.ipv4(bytes),
            2 => return self.ipv6(bytes),
            1 => return self.0.push(Event::MplsRouterAlert),
            3 => return self.0.push(Event::MplsImplicitNull),
            4..15 => return self.0.push(Event::MplsReserved),
            _ => {}
        }
        match bytes {
            [first, _, _, _, behind @ ..] => match first >> 4 {
                4 => self.ipv4(bytes),
                6 => self.ipv6(bytes),
                // A pseudowire's control word.
                0 => self.ethernet(behind),
                _ => self.0.push(Event::MplsUnknownPayload),
            },
            _ => self.0.push(Event::MplsTooSmall),
        }
    }

    /// ARP for IPv4 (RFC 826).
    pub(super) fn arp(&mut self, bytes: &[u8], over: Arp) {
        const IPV4: usize = 0x0800;
        let whole = 16 + 2 * usize::from(over.address_len);
        let event = match (word(bytes, 0), word(bytes, 2), bytes.get(4..8)) {
            (Some(hardware), _, Some(_)) if hardware != over.hardware => {
                Event::ArpUnsupportedHardware
            }
            (_, Some(protocol), Some(_)) if protocol != IPV4 => Event::ArpUnsupportedProtocol,
            (_, _, Some(_)) if bytes.len() < whole => Event::ArpInvalid,
            (_, _, Some([hardware, ..])) if *hardware != over.address_len => Event::ArpHardwareSize,
            (_, _, Some([_, protocol, ..])) if *protocol != 4 => Event::ArpProtocolSize,
            // Requests and answers, those of RARP too.
            (_, _, Some([_, _, 0, 1..=4])) => return,
            (_, _, Some(_)) => Event::ArpUnsupportedOperation,
            _ => Event::ArpTooSmall,
        };
        self.0.push(event);
    }

    /// A network service header, and what it carries (RFC 8300 s2).
    pub(super) fn nsh(&mut self, bytes: &[u8]) {
        let Some([first, second, kind, next, ..]) = bytes.get(..8) else {
            return self.0.push(Event::NshTooSmall);
        };
        if first >> 6 != 0 {
            return self.0.push(Event::NshUnsupportedVersion);
        }
        let length = usize::from(second & 0x3f) * 4;
        let Some(inner) = bytes.get(length..).filter(|it| !it.is_empty()) else {
            return self.0.push(Event::NshHeaderLen);
        };
        match kind {
            0 | 15 => self.0.push(Event::NshReservedType),
            1 if length != 24 => self.0.push(Event::NshHeaderLen),
            1 | 2 => match next {
                1 => self.ipv4(inner),
                2 => self.ipv6(inner),
                3 => self.ethernet(inner),
                5 => self.labels(inner),
                _ => self.0.push(Event::NshUnknownPayload),
            },
            _ => self.0.push(Event::NshUnsupportedType),
        }
    }

    /// What a datagram to that port carries, if it is a packet: VXLAN (RFC 7348), GENEVE (RFC
    /// 8926).
    pub(super) fn datagram(&mut self, port: usize, payload: &[u8]) {
        let (kind, unknown) = match (port, payload) {
            (4789, [flags, _, _, _, _, _, _, 0, ..]) if flags & 8 != 0 => {
                (word(payload, 20), Event::VxlanUnknownPayload)
            }
            (6081, [first, _, ..]) if first >> 6 == 0 => {
                (word(payload, 2), Event::GeneveUnknownPayload)
            }
            _ => return,
        };
        let is_vxlan = port == 4789;
        match kind {
            None | Some(0x0800 | 0x86dd | 0x0806) => {}
            Some(0x8100 | 0x88a8 | 0x9100) if is_vxlan => {}
            Some(0x6558) if !is_vxlan => {}
            _ => self.0.push(unknown),
        }
    }

    /// PPP, with or without its address and control, its protocol in one byte or two.
    pub(super) fn ppp(&mut self, bytes: &[u8]) {
        let bytes = bytes.strip_prefix(&[0xff, 3]).unwrap_or(bytes);
        match bytes {
            [] | [_] => self.0.push(Event::PppTooSmall),
            [odd, packet @ ..] if odd & 1 == 1 => self.ppp_protocol((*odd).into(), packet),
            [high, low, packet @ ..] => {
                self.ppp_protocol(usize::from(*high) << 8 | usize::from(*low), packet);
            }
        }
    }

    fn ppp_protocol(&mut self, protocol: usize, packet: &[u8]) {
        match protocol {
            0x21 if packet.len() < 20 => self.0.push(Event::PppIpv4TooSmall),
            0x21 => self.ipv4(packet),
            0x57 if packet.len() < 40 => self.0.push(Event::PppIpv6TooSmall),
            0x57 => self.ipv6(packet),
            // Van Jacobson's header compression, where this packet's is not compressed.
            0x2f if packet.len() < 20 => self.0.push(Event::PppVjTooSmall),
            0x2f if packet[0] >> 4 == 4 => self.ipv4(packet),
            0x2f => {}
            0x23 | 0x25 | 0x27 | 0x29 | 0x2b | 0x2d | 0x31 | 0x33 | 0x35 => self.unsupported(),
            0x0201 | 0x0231 | 0x0281 | 0x0283 | 0x8281 => self.unsupported(),
            0x8021 | 0x8023 | 0x8025 | 0x8027 | 0x8029 | 0x802b | 0x8031 | 0x8033 | 0x8035
            | 0x8057 => self.unsupported(),
            0xc021 | 0xc023 | 0xc025 | 0xc223 => self.unsupported(),
            0x4021 | 0x4025 | 0x405d | 0x0205 => self.unsupported(),
            _ => self.0.push(Event::PppWrongType),
        }
    }

    fn unsupported(&mut self) {
        self.0.push(Event::PppUnsupported);
    }

    /// PPPoE's discovery (RFC 2516 s5): a code, and tags.
    pub(super) fn pppoe_discovery(&mut self, bytes: &[u8]) {
        let Some((header, tags)) = bytes.split_first_chunk::<6>() else {
            return self.0.push(Event::PppoeTooSmall);
        };
        if !matches!(header[1], 0x07 | 0x09 | 0x19 | 0x65 | 0xa7) {
            return self.0.push(Event::PppoeWrongCode);
        }
        let length = word(header, 4).unwrap_or_default();
        let Some(mut tags) = tags.get(..length) else {
            return self.0.push(Event::PppoeMalformedTags);
        };
        while let [_, _, high, low, behind @ ..] = tags {
            let length = usize::from(*high) << 8 | usize::from(*low);
            match behind.get(length..) {
                Some(rest) => tags = rest,
                None => return self.0.push(Event::PppoeMalformedTags),
            }
        }
    }

    /// PPPoE's session (RFC 2516 s6).
    pub(super) fn pppoe_session(&mut self, bytes: &[u8]) {
        match bytes {
            [_, _, _, _, _, _, odd, packet @ ..] if odd & 1 == 1 => {
                self.ppp_protocol((*odd).into(), packet);
            }
            [_, _, _, _, _, _, high, low, packet @ ..] => {
                let protocol = usize::from(*high) << 8 | usize::from(*low);
                // What opens and keeps the session.
                if !matches!(protocol, 0x8000..) {
                    self.ppp_protocol(protocol, packet);
                }
            }
            _ => self.0.push(Event::PppoeTooSmall),
        }
    }
}

#[cfg(test)]
mod tests {
    use weir_wire::frame::Link;

    use super::super::look;
    use super::*;

    fn frame(kind: u16, rest: &[u8]) -> Vec<Event> {
        look(&[&[0; 12], &kind.to_be_bytes()[..], rest].concat(), Link::Ethernet)
    }

    #[test]
    fn what_is_wrong_first_with_arp_is_told() {
        let mut packet = vec![0, 1, 8, 0, 6, 4, 0, 1];
        assert_eq!(frame(0x0806, &packet), [Event::ArpInvalid]);
        assert_eq!(frame(0x0806, &packet[..7]), [Event::ArpTooSmall]);
        packet.resize(28, 0);
        assert_eq!(frame(0x0806, &packet), []);
        for (place, value, event) in [
            (7, 9, Event::ArpUnsupportedOperation),
            (5, 16, Event::ArpProtocolSize),
            (4, 8, Event::ArpHardwareSize),
            (3, 6, Event::ArpUnsupportedProtocol),
            (1, 2, Event::ArpUnsupportedHardware),
        ] {
            packet[place] = value;
            assert_eq!(frame(0x0806, &packet), [event]);
        }
    }

    #[test]
    fn arp_over_infiniband_has_link_addresses_of_its_own() {
        let mut packet = vec![8, 6, 0, 0, 0, 32, 8, 0, 20, 4, 0, 1];
        packet.resize(60, 0);
        assert_eq!(look(&packet, Link::Ipoib), []);
        assert_eq!(look(&packet[..59], Link::Ipoib), [Event::ArpInvalid]);
        assert_eq!(look(&packet[..3], Link::Ipoib), []);
        assert_eq!(frame(0x0806, &packet[4..]), [Event::ArpUnsupportedHardware]);
        packet[5] = 1;
        assert_eq!(look(&packet, Link::Ipoib), [Event::ArpUnsupportedHardware]);
    }

    #[test]
    fn a_service_header_tells_what_it_carries() {
        let packet = |second, kind, next| [&[0, second, kind, next][..], &[0; 40]].concat();
        assert_eq!(frame(0x894f, &[0; 7]), [Event::NshTooSmall]);
        assert_eq!(frame(0x894f, &packet(2, 2, 9)), [Event::NshUnknownPayload]);
        assert_eq!(frame(0x894f, &packet(2, 1, 1)), [Event::NshHeaderLen]);
        assert_eq!(frame(0x894f, &packet(63, 2, 1)), [Event::NshHeaderLen]);
        assert_eq!(frame(0x894f, &packet(2, 0, 1)), [Event::NshReservedType]);
        assert_eq!(frame(0x894f, &packet(2, 3, 1)), [Event::NshUnsupportedType]);
    }
}
