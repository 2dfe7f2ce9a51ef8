//! Headers of transports, and of tunnels up to what they carry.

use super::{Event, VLANS_MAX, Walk, word};

const PROTOCOL_PPP: usize = 0x880b;
const PROTOCOL_ERSPAN: usize = 0x88be;

impl Walk {
    pub(super) fn transport(&mut self, protocol: u8, bytes: &[u8]) {
        match protocol {
            1 => self.icmpv4(bytes),
            6 if bytes.len() < 20 => self.0.push(Event::TcpTooSmall),
            6 => {
                let length = usize::from(bytes[12] >> 4) * 4;
                match bytes.get(20..length) {
                    Some(options) => self.tcp_options(options),
                    None if length < 20 => self.0.push(Event::TcpInvalidOptionLen),
                    None => self.0.push(Event::TcpHeaderTooSmall),
                }
            }
            17 if bytes.len() < 8 => self.0.push(Event::UdpHeaderTooSmall),
            17 => match word(bytes, 4).unwrap_or_default() {
                length if length < 8 => self.0.push(Event::UdpLengthInvalid),
                length if length > bytes.len() => self.0.push(Event::UdpTooSmall),
                _ => self.datagram(word(bytes, 2).unwrap_or_default(), &bytes[8..]),
            },
            47 => self.gre(bytes),
            50 if bytes.len() < 8 => self.0.push(Event::EspTooSmall),
            132 if bytes.len() < 12 => self.0.push(Event::SctpTooSmall),
            _ => {}
        }
    }

    fn tcp_options(&mut self, mut options: &[u8]) {
        let mut seen: u64 = 0;
        while let [kind, rest @ ..] = options {
            let length = match (kind, rest) {
                (0, _) => return,
                (1, _) => 1,
                (_, []) => return,
                (_, [length, ..]) => usize::from(*length),
            };
            if *kind != 1 && !(2..=options.len()).contains(&length) {
                return self.0.push(Event::TcpOptionInvalidLen);
            }
            let fits = match kind {
                2 => length == 4,
                3 => length == 3,
                4 => length == 2,
                // One without a block says nothing, and is sent.
                5 => length == 2 || matches!(length, 10 | 18 | 26 | 34),
                8 => length == 10,
                19 => length == 18,
                29 => length >= 4,
                253 | 254 => is_fast_open(&options[2..length]),
                34 => length == 2 || (matches!(length, 6..=18) && length.is_multiple_of(2)),
                _ => true,
            };
            if !fits {
                self.0.push(Event::TcpOptionInvalidLen);
            } else if matches!(kind, 2..=5 | 8 | 19 | 29 | 34) {
                if seen >> kind & 1 == 1 {
                    self.0.push(Event::TcpOptionDuplicate);
                }
                seen |= 1 << kind;
            }
            options = &options[length..];
        }
    }

    fn icmpv4(&mut self, bytes: &[u8]) {
        let [kind, code, _, _, _, _, _, _, inner @ ..] = bytes else {
            return self.0.push(Event::Icmpv4TooSmall);
        };
        let codes = match kind {
            3 => 0..=15,
            5 => 0..=3,
            11 => 0..=1,
            // Suricata takes any, as 16 of a router that does not route common traffic (RFC 3344).
            9 => 0..=255,
            0 | 4 | 8 | 12..=18 => 0..=0,
            _ => return self.0.push(Event::Icmpv4UnknownType),
        };
        // Beyond the eight bytes that all have.
        let more = match kind {
            9 => usize::from(bytes[4]) * usize::from(bytes[5]) * 4,
            13 | 14 => 12,
            _ => 0,
        };
        if inner.len() < more {
            return self.0.push(Event::Icmpv4InnerTruncated);
        }
        if !codes.contains(code) {
            return self.0.push(Event::Icmpv4UnknownCode);
        }
        if !matches!(kind, 3..=5 | 11 | 12) || (inner.is_empty() && *kind != 4) {
            return;
        }
        match inner.first() {
            Some(first) if inner.len() >= 20 && first >> 4 != 4 => {
                self.0.push(Event::Icmpv4InnerVersion);
            }
            _ if inner.len() < 20 => self.0.push(Event::Icmpv4InnerTruncated),
            _ => {}
        }
    }

    pub(super) fn icmpv6(&mut self, bytes: &[u8], hop_limit: u8) {
        let [kind, code, _, _, _, _, _, _, inner @ ..] = bytes else {
            return self.0.push(Event::Icmpv6TooSmall);
        };
        let codes = match kind {
            1 => 0..=6,
            3 => 0..=1,
            4 | 138..=140 => 0..=2,
            155 => 0..=3,
            2 | 128..=137 | 141..=149 | 154 | 156..=159 => 0..=0,
            100 | 101 | 200 | 201 => return self.0.push(Event::Icmpv6Experimental),
            0 | 127 => return self.0.push(Event::Icmpv6UnknownType),
            5..=126 | 160..=199 | 202..=255 => return self.0.push(Event::Icmpv6UnassignedType),
            _ => return,
        };
        // Listeners' messages come from the link alone (RFC 2710 s3).
        if matches!(kind, 130..=132) && hop_limit != 1 {
            self.0.push(Event::Icmpv6ListenerHopLimit);
        }
        let is_renumbering = (*kind, *code) == (138, 255);
        if !codes.contains(code) && !is_renumbering {
            return self.0.push(Event::Icmpv6UnknownCode);
        }
        match kind {
            1..=4 if inner.len() < 40 => self.0.push(Event::Icmpv6InnerTruncated),
            1..=4 if inner[0] >> 4 != 6 => self.0.push(Event::Icmpv6InnerVersion),
            _ => {}
        }
    }

    /// GRE (RFC 2784), and its version 1 that carries PPP (RFC 2637).
    fn gre(&mut self, bytes: &[u8]) {
        let [flags, more, _, _, ..] = *bytes else {
            return self.0.push(Event::GreTooSmall);
        };
        let protocol = word(bytes, 2).unwrap_or_default();
        let has = |bit: u8| flags & bit != 0;
        let width = |bit: u8| if has(bit) { 4 } else { 0 };
        let (recursion, reserved) = (flags & 7 != 0, more & 0xf8 != 0);
        let length = match more & 7 {
            0 if recursion => return self.0.push(Event::Gre0Recursion),
            0 if reserved => return self.0.push(Event::Gre0Flags),
            0 => 4 + width(0xc0) + width(0x20) + width(0x10),
            1 => {
                let wrong = [
                    (has(0x80), Event::Gre1Checksum),
                    (has(0x40), Event::Gre1Route),
                    (has(0x08), Event::Gre1StrictRoute),
                    (recursion, Event::Gre1Recursion),
                    (more & 0x78 != 0, Event::Gre1Flags),
                    (protocol != PROTOCOL_PPP, Event::Gre1WrongProtocol),
                    (!has(0x20), Event::Gre1NoKey),
                ];
                if let Some((_, event)) = wrong.into_iter().find(|it| it.0) {
                    return self.0.push(event);
                }
                8 + width(0x10) + if more & 0x80 == 0 { 0 } else { 4 }
            }
            _ => return self.0.push(Event::GreWrongVersion),
        };
        let Some(mut rest) = bytes.get(length..) else {
            return self.0.push(match more & 7 {
                0 => Event::Gre0HeaderTooBig,
                _ => Event::Gre1HeaderTooBig,
            });
        };
        if has(0x40) {
            match behind_routes(rest) {
                Some(behind) => rest = behind,
                None => return self.0.push(Event::Gre0MalformedRoute),
            }
        }
        if protocol == PROTOCOL_ERSPAN && has(0x10) {
            self.erspan(rest);
        }
    }

    /// ERSPAN's second type: eight bytes, and the frame that was seen.
    fn erspan(&mut self, bytes: &[u8]) {
        let Some((header, frame)) = bytes.split_first_chunk::<8>() else {
            return self.0.push(Event::ErspanTooSmall);
        };
        if header[0] >> 4 != 1 {
            return self.0.push(Event::ErspanWrongVersion);
        }
        let is_tag = |at: usize| matches!(word(frame, at), Some(0x8100 | 0x88a8 | 0x9100));
        let tags = (0..=VLANS_MAX).take_while(|it| is_tag(12 + 4 * it)).count();
        if tags > VLANS_MAX {
            self.0.push(Event::ErspanTooManyVlans);
        }
    }
}

/// Whether an experimental option of TCP is the one that is known: fast open, before it had a
/// number (RFC 7413 s4.1.1).
fn is_fast_open(body: &[u8]) -> bool {
    body.starts_with(&[0xf9, 0x89]) && matches!(body.len(), 2 | 6 | 8 | 10 | 12 | 14 | 16 | 18)
}

/// What follows the routes of GRE's version 0 (RFC 1701): the last is empty.
fn behind_routes(mut bytes: &[u8]) -> Option<&[u8]> {
    loop {
        let (entry, rest) = bytes.split_first_chunk::<4>()?;
        if [entry[0], entry[1], entry[3]] == [0; 3] {
            return Some(rest);
        }
        bytes = rest.get(usize::from(entry[3])..)?;
    }
}
