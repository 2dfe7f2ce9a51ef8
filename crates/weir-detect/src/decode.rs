//! What is odd about a packet's headers: the events that `decode-event` asks for, and those of
//! streams.
//!
//! The walk of `weir-wire` stops at the first contradiction; this one says which it was, in the
//! names of Suricata's language. It is made only where some rule or report asks.

use weir_wire::frame::Link;

macro_rules! events {
    ($($event:ident $name:literal)+) => {
        /// Something odd.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum Event {
            $(#[doc = concat!("`", $name, "`")] $event,)+
        }

        impl Event {
            /// By its whole name.
            pub fn from_name(name: &str) -> Option<Self> {
                match name {
                    $($name => Some(Self::$event),)+
                    _ => None,
                }
            }

            /// Its name, beginning with `decoder.` or `stream.`.
            pub fn name(self) -> &'static str {
                match self {
                    $(Self::$event => $name,)+
                }
            }
        }
    };
}

events! {
    EthernetTooSmall "decoder.ethernet.pkt_too_small"
    EthernetUnknownType "decoder.ethernet.unknown_ethertype"
    VlanTooSmall "decoder.vlan.header_too_small"
    VlanTooManyLayers "decoder.vlan.too_many_layers"
    TooManyLayers "decoder.too_many_layers"
    Ipv4TooSmall "decoder.ipv4.pkt_too_small"
    Ipv4HeaderTooSmall "decoder.ipv4.hlen_too_small"
    Ipv4LengthTooSmall "decoder.ipv4.iplen_smaller_than_hlen"
    Ipv4Truncated "decoder.ipv4.trunc_pkt"
    Ipv4WrongVersion "decoder.ipv4.wrong_ip_version"
    Ipv4OptionInvalidLen "decoder.ipv4.opt_invalid_len"
    Ipv4OptionPadRequired "decoder.ipv4.opt_pad_required"
    Ipv4OptionEndRequired "decoder.ipv4.opt_eol_required"
    Ipv4OptionDuplicate "decoder.ipv4.opt_duplicate"
    Ipv4OptionUnknown "decoder.ipv4.opt_unknown"
    Ipv4WithIcmpv6 "decoder.ipv4.icmpv6"
    Ipv4FragmentTooLarge "decoder.ipv4.frag_pkt_too_large"
    Ipv4FragmentOverlap "decoder.ipv4.frag_overlap"
    Ipv6TooSmall "decoder.ipv6.pkt_too_small"
    Ipv6Truncated "decoder.ipv6.trunc_pkt"
    Ipv6TruncatedExtension "decoder.ipv6.trunc_exthdr"
    Ipv6WrongVersion "decoder.ipv6.wrong_ip_version"
    Ipv6DoubleFragmentHeader "decoder.ipv6.exthdr_dupl_fh"
    Ipv6UselessFragmentHeader "decoder.ipv6.exthdr_useless_fh"
    Ipv6DoubleRoutingHeader "decoder.ipv6.exthdr_dupl_rh"
    Ipv6DoubleHopHeader "decoder.ipv6.exthdr_dupl_hh"
    Ipv6DoubleDestinationHeader "decoder.ipv6.exthdr_dupl_dh"
    Ipv6DoubleAuthentication "decoder.ipv6.exthdr_dupl_ah"
    Ipv6InvalidOptionLen "decoder.ipv6.exthdr_invalid_optlen"
    Ipv6AuthenticationReserved "decoder.ipv6.exthdr_ah_res_not_null"
    Ipv6HopUnknownOption "decoder.ipv6.hopopts_unknown_opt"
    Ipv6HopOnlyPadding "decoder.ipv6.hopopts_only_padding"
    Ipv6DestinationUnknownOption "decoder.ipv6.dstopts_unknown_opt"
    Ipv6DestinationOnlyPadding "decoder.ipv6.dstopts_only_padding"
    Ipv6RoutingType0 "decoder.ipv6.rh_type_0"
    Ipv6ZeroLenPadding "decoder.ipv6.zero_len_padn"
    Ipv6FragmentReserved "decoder.ipv6.fh_non_zero_reserved_field"
    Ipv6DataAfterNone "decoder.ipv6.data_after_none_header"
    Ipv6UnknownNextHeader "decoder.ipv6.unknown_next_header"
    Ipv6WithIcmpv4 "decoder.ipv6.icmpv4"
    Ipv6FragmentTooLarge "decoder.ipv6.frag_pkt_too_large"
    Ipv6FragmentOverlap "decoder.ipv6.frag_overlap"
    Ipv6FragmentInvalidLen "decoder.ipv6.frag_invalid_length"
    TcpTooSmall "decoder.tcp.pkt_too_small"
    TcpHeaderTooSmall "decoder.tcp.hlen_too_small"
    TcpInvalidOptionLen "decoder.tcp.invalid_optlen"
    UdpTooSmall "decoder.udp.pkt_too_small"
    UdpHeaderTooLong "decoder.udp.hlen_too_small"
    UdpHeaderInvalid "decoder.udp.hlen_invalid"
    UdpLengthInvalid "decoder.udp.len_invalid"
    Icmpv4TooSmall "decoder.icmpv4.pkt_too_small"
    Icmpv6TooSmall "decoder.icmpv6.pkt_too_small"
    StreamGap "stream.reassembly_seq_gap"
    StreamOverlapDiffers "stream.reassembly_overlap_different_data"
    StreamInvalidTimestamp "stream.pkt_invalid_timestamp"
}

/// VLAN tags that are read.
const VLANS_MAX: usize = 3;
/// Extension headers that are read.
const EXTENSIONS_MAX: usize = 64;

/// What is odd about the headers of `bytes`, which begin with `link`'s, up to the first that is
/// carried inside of another packet.
pub fn look(bytes: &[u8], link: Link) -> Vec<Event> {
    let mut walk = Walk(Vec::new());
    match link {
        Link::Ethernet if bytes.len() < 14 => walk.0.push(Event::EthernetTooSmall),
        Link::Ethernet => walk.ethertype(bytes, 12),
        Link::LinuxSll => walk.ethertype(bytes, 14),
        Link::LinuxSll2 => walk.ethertype(bytes.get(18..).unwrap_or_default(), 0),
        Link::Ip => walk.ip(bytes),
        Link::Loopback => walk.ip(bytes.get(4..).unwrap_or_default()),
        Link::Ppp => match bytes {
            [0xff, 3, 0, 0x21 | 0x57, ip @ ..] | [0, 0x21 | 0x57, ip @ ..] => walk.ip(ip),
            [0x21 | 0x57, ip @ ..] => walk.ip(ip),
            _ => {}
        },
        Link::InfiniBand => {}
    }
    walk.0
}

struct Walk(Vec<Event>);

fn word(bytes: &[u8], at: usize) -> Option<usize> {
    Some(usize::from(*bytes.get(at)?) << 8 | usize::from(*bytes.get(at + 1)?))
}

impl Walk {
    fn ethertype(&mut self, bytes: &[u8], mut at: usize) {
        for layer in 0.. {
            let Some(kind) = word(bytes, at) else {
                self.0.push(Event::VlanTooSmall);
                return;
            };
            let inner = bytes.get(at + 2..).unwrap_or_default();
            match kind {
                0x8100 | 0x88a8 | 0x9100 if layer == VLANS_MAX => {
                    self.0.push(Event::VlanTooManyLayers);
                    return;
                }
                0x8100 | 0x88a8 | 0x9100 => at += 4,
                0x0800 => return self.ipv4(inner),
                0x86dd => return self.ipv6(inner),
                // ARP, RARP, PPPoE, MPLS, bridging and RoCE are known, lengths are no type.
                0x0806 | 0x8035 | 0x8863 | 0x8864 | 0x8847 | 0x8848 | 0x6558 | 0x8915 => return,
                0x0000..0x0600 => return,
                _ => {
                    self.0.push(Event::EthernetUnknownType);
                    return;
                }
            }
        }
    }

    fn ip(&mut self, bytes: &[u8]) {
        match bytes.first().map(|it| it >> 4) {
            Some(6) => self.ipv6(bytes),
            _ => self.ipv4(bytes),
        }
    }

    fn ipv4(&mut self, bytes: &[u8]) {
        if bytes.len() < 20 {
            return self.0.push(Event::Ipv4TooSmall);
        }
        if bytes[0] >> 4 != 4 {
            return self.0.push(Event::Ipv4WrongVersion);
        }
        let header_len = usize::from(bytes[0] & 15) * 4;
        let total = word(bytes, 2).unwrap_or_default();
        if header_len < 20 {
            return self.0.push(Event::Ipv4HeaderTooSmall);
        }
        if total < header_len {
            return self.0.push(Event::Ipv4LengthTooSmall);
        }
        let Some(packet) = bytes.get(..total) else {
            return self.0.push(Event::Ipv4Truncated);
        };
        let (header, payload) = packet.split_at(header_len);
        self.ipv4_options(&header[20..]);
        let is_fragment = word(packet, 6).is_some_and(|it| it & 0x3fff != 0);
        match packet[9] {
            _ if is_fragment => {}
            58 => self.0.push(Event::Ipv4WithIcmpv6),
            protocol => self.transport(protocol, payload),
        }
    }

    fn ipv4_options(&mut self, mut options: &[u8]) {
        if !options.len().is_multiple_of(8) {
            self.0.push(Event::Ipv4OptionPadRequired);
        }
        let mut seen = Vec::new();
        while let [kind, rest @ ..] = options {
            let length = match kind {
                0 => return,
                1 => 1,
                _ => match rest.first() {
                    None => return self.0.push(Event::Ipv4OptionEndRequired),
                    Some(length) => usize::from(*length),
                },
            };
            if *kind != 1 {
                // How long each may be: options of fixed length, and the least of the others.
                let fits = match kind {
                    25 => length == 8,
                    130 => length == 11,
                    136 | 148 => length == 4,
                    7 | 131 | 137 | 133 => length >= 3,
                    68 => length >= 5,
                    134 => length >= 10,
                    _ => length >= 2,
                };
                if length > options.len() || length < 2 || !fits {
                    self.0.push(Event::Ipv4OptionInvalidLen);
                }
                if length > options.len() || length < 2 {
                    return;
                }
                let is_known =
                    matches!(kind, 7 | 25 | 68 | 130 | 131 | 133 | 134 | 136 | 137 | 148);
                match is_known {
                    false => self.0.push(Event::Ipv4OptionUnknown),
                    true if seen.contains(kind) => self.0.push(Event::Ipv4OptionDuplicate),
                    true => seen.push(*kind),
                }
            }
            options = &options[length..];
        }
    }

    fn ipv6(&mut self, bytes: &[u8]) {
        if bytes.len() < 40 {
            return self.0.push(Event::Ipv6TooSmall);
        }
        if bytes[0] >> 4 != 6 {
            return self.0.push(Event::Ipv6WrongVersion);
        }
        let length = word(bytes, 4).unwrap_or_default();
        match bytes[40..].get(..length) {
            Some(payload) => self.extensions(bytes[6], payload),
            None => self.0.push(Event::Ipv6Truncated),
        }
    }

    fn extensions(&mut self, mut kind: u8, mut bytes: &[u8]) {
        let mut seen: Vec<u8> = Vec::new();
        for _ in 0..EXTENSIONS_MAX {
            let length = match (kind, bytes) {
                (0 | 43 | 60 | 135 | 139 | 140, [_, length, ..]) => (usize::from(*length) + 1) * 8,
                (51, [_, length, ..]) => (usize::from(*length) + 2) * 4,
                (44, _) => 8,
                (0 | 43 | 51 | 60 | 135 | 139 | 140, _) => usize::MAX,
                (59, []) => return,
                (59, _) => return self.0.push(Event::Ipv6DataAfterNone),
                (1, _) => return self.0.push(Event::Ipv6WithIcmpv4),
                (4 | 6 | 17 | 41 | 47 | 50 | 58 | 132, _) => return self.transport(kind, bytes),
                _ => return self.0.push(Event::Ipv6UnknownNextHeader),
            };
            let Some(header) = bytes.get(..length) else {
                return self.0.push(Event::Ipv6TruncatedExtension);
            };
            let times = seen.iter().filter(|it| **it == kind).count();
            seen.push(kind);
            match kind {
                44 => {
                    if header[1] != 0 {
                        self.0.push(Event::Ipv6FragmentReserved);
                    }
                    if times > 0 {
                        self.0.push(Event::Ipv6DoubleFragmentHeader);
                    } else if word(header, 2).is_some_and(|it| it & 0xfff9 == 0) {
                        self.0.push(Event::Ipv6UselessFragmentHeader);
                    } else {
                        // What follows is looked at when all pieces are there.
                        return;
                    }
                }
                43 if times > 0 => self.0.push(Event::Ipv6DoubleRoutingHeader),
                43 if header[2] == 0 => self.0.push(Event::Ipv6RoutingType0),
                0 if times > 0 => self.0.push(Event::Ipv6DoubleHopHeader),
                60 if times > 1 => self.0.push(Event::Ipv6DoubleDestinationHeader),
                0 | 60 => self.ipv6_options(kind == 0, &header[2..]),
                51 if times > 0 => self.0.push(Event::Ipv6DoubleAuthentication),
                51 if word(header, 2) != Some(0) => {
                    self.0.push(Event::Ipv6AuthenticationReserved);
                }
                _ => {}
            }
            (kind, bytes) = (header[0], &bytes[length..]);
        }
    }

    fn ipv6_options(&mut self, is_hop: bool, mut options: &[u8]) {
        let (mut padding, mut others) = (0, 0);
        while let [kind, rest @ ..] = options {
            if *kind == 0 {
                padding += 1;
                options = rest;
                continue;
            }
            let body = rest
                .split_first()
                .and_then(|(length, body)| body.split_at_checked(usize::from(*length)));
            let Some((body, behind)) = body else {
                self.0.push(Event::Ipv6InvalidOptionLen);
                break;
            };
            match kind {
                1 => {
                    padding += 1;
                    if body.is_empty() {
                        self.0.push(Event::Ipv6ZeroLenPadding);
                    }
                }
                5 | 0xc2 if is_hop => others += 1,
                0xc9 if !is_hop => others += 1,
                _ => {
                    others += 1;
                    self.0.push(match is_hop {
                        true => Event::Ipv6HopUnknownOption,
                        false => Event::Ipv6DestinationUnknownOption,
                    });
                }
            }
            options = behind;
        }
        if padding > 0 && others == 0 {
            self.0.push(match is_hop {
                true => Event::Ipv6HopOnlyPadding,
                false => Event::Ipv6DestinationOnlyPadding,
            });
        }
    }

    fn transport(&mut self, protocol: u8, bytes: &[u8]) {
        match protocol {
            6 if bytes.len() < 20 => self.0.push(Event::TcpTooSmall),
            6 => {
                let length = usize::from(bytes[12] >> 4) * 4;
                match bytes.get(20..length) {
                    Some(options) => self.tcp_options(options),
                    None => self.0.push(Event::TcpHeaderTooSmall),
                }
            }
            17 if bytes.len() < 8 => self.0.push(Event::UdpTooSmall),
            17 => match word(bytes, 4).unwrap_or_default() {
                length if length < 8 => self.0.push(Event::UdpLengthInvalid),
                length if length > bytes.len() => self.0.push(Event::UdpHeaderTooLong),
                length if length < bytes.len() => self.0.push(Event::UdpHeaderInvalid),
                _ => {}
            },
            1 if bytes.len() < 8 => self.0.push(Event::Icmpv4TooSmall),
            58 if bytes.len() < 8 => self.0.push(Event::Icmpv6TooSmall),
            _ => {}
        }
    }

    fn tcp_options(&mut self, mut options: &[u8]) {
        while let [kind, rest @ ..] = options {
            let length = match (kind, rest) {
                (0, _) => return,
                (1, _) => 1,
                (_, [length, ..]) if *length >= 2 => usize::from(*length),
                _ => return,
            };
            match options.get(length..) {
                Some(behind) => options = behind,
                None => return self.0.push(Event::TcpInvalidOptionLen),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn no_bytes_break_it(bytes in prop::collection::vec(any::<u8>(), 0..200), kind in 0..3) {
            let link = [Link::Ethernet, Link::Ip, Link::LinuxSll2][kind as usize];
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
