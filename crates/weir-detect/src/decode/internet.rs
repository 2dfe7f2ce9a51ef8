//! IP's headers, options and extensions.

use super::{EXTENSIONS_MAX, Event, Walk, word};

impl Walk {
    pub(super) fn ipv4(&mut self, bytes: &[u8]) {
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
                if length > options.len() || length < 2 {
                    return self.0.push(Event::Ipv4OptionInvalidLen);
                }
                let body = &options[2..length];
                match *kind {
                    7 | 25 | 68 | 130 | 131 | 133 | 134 | 136 | 137 | 148 => {
                        let odd = odd_option(*kind, body);
                        if seen.contains(kind) {
                            self.0.push(Event::Ipv4OptionDuplicate);
                        } else if odd.is_none() {
                            seen.push(*kind);
                        }
                        self.0.extend(odd);
                        if odd == Some(Event::Ipv4OptionMalformed) {
                            return;
                        }
                    }
                    _ => self.0.push(Event::Ipv4OptionInvalid),
                }
            }
            options = &options[length..];
        }
    }

    pub(super) fn ipv6(&mut self, bytes: &[u8]) {
        if bytes.len() < 40 {
            return self.0.push(Event::Ipv6TooSmall);
        }
        if bytes[0] >> 4 != 6 {
            return self.0.push(Event::Ipv6WrongVersion);
        }
        let length = word(bytes, 4).unwrap_or_default();
        match bytes[40..].get(..length) {
            Some(payload) => self.extensions((bytes[6], bytes[7]), payload),
            None => self.0.push(Event::Ipv6Truncated),
        }
    }

    fn extensions(&mut self, (mut kind, hop_limit): (u8, u8), mut bytes: &[u8]) {
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
                (4, _) if bytes.len() < 20 => return self.0.push(Event::Ipv4InIpv6TooSmall),
                (4, _) if bytes[0] >> 4 != 4 => {
                    return self.0.push(Event::Ipv4InIpv6WrongVersion);
                }
                (41, _) if bytes.len() < 40 => return self.0.push(Event::Ipv6InIpv6TooSmall),
                (41, _) if bytes[0] >> 4 != 6 => {
                    return self.0.push(Event::Ipv6InIpv6WrongVersion);
                }
                (58, _) => return self.icmpv6(bytes, hop_limit),
                (4 | 6 | 17 | 41 | 47 | 50 | 132, _) => return self.transport(kind, bytes),
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
}

/// What is wrong with an option of IPv4: its length, or what stands in it (RFC 791 s3.1).
fn odd_option(kind: u8, body: &[u8]) -> Option<Event> {
    let length = body.len() + 2;
    let (fits, is_whole) = match (kind, body) {
        (25, _) => (length == 8, true),
        (130, _) => (length == 11, true),
        (136 | 148, _) => (length == 4, true),
        (7 | 131 | 137, [pointer, ..]) => {
            let pointer = usize::from(*pointer);
            (true, pointer >= 4 && pointer.is_multiple_of(4) && pointer <= length + 1)
        }
        (68, [pointer, flags, ..]) if length >= 5 => {
            let pointer = usize::from(*pointer);
            let step = if matches!(flags & 15, 1 | 3) { 8 } else { 4 };
            let is_aligned = pointer >= 5 && (pointer - 5).is_multiple_of(step);
            (true, is_aligned && pointer <= length + 1 && matches!(flags & 15, 0 | 1 | 3))
        }
        (134, _) if length >= 10 => (true, are_labels(body)),
        (133, _) => (length >= 3, true),
        _ => (false, true),
    };
    match (fits, is_whole) {
        (false, _) => Some(Event::Ipv4OptionInvalidLen),
        (true, false) => Some(Event::Ipv4OptionMalformed),
        _ => None,
    }
}

/// Whether a CIPSO option holds a domain and tags that are known, one after the other (FIPS 188).
fn are_labels(body: &[u8]) -> bool {
    let Some((domain, mut tags)) = body.split_first_chunk::<4>() else { return false };
    if *domain == [0; 4] {
        return false;
    }
    while let [kind, length, ..] = tags {
        let length = usize::from(*length);
        let fits = match kind {
            1 | 2 | 5..=7 => (4..=tags.len()).contains(&length) && tags[2] == 0,
            _ => false,
        };
        if !fits {
            return false;
        }
        tags = &tags[length..];
    }
    tags.is_empty()
}
