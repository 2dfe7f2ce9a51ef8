//! How wide the path to a peer is: what its probes and answers say ([`crate::tunnel::path_mtu`]),
//! and what the wire says of our packets.

use std::net::IpAddr;

use weir_wire::frame::{Frame, Time};
use weir_wire::parse::{Network, Parsed, Transport};

use super::Peers;
use crate::esp::next_header;
use crate::policy::address;
use crate::tunnel::path_mtu::ProbeMessage;

/// Between two ICMP messages that are looked at: anyone may send them.
const HEED_PERIOD_NS: u64 = 10_000_000;

const ICMP_HEADER_LEN: usize = 8;
const UDP_HEADER_LEN: usize = 8;

impl Peers {
    /// An authentic packet of a peer held nothing for the host: is it about the path?
    #[cold]
    pub(crate) fn heard_dummy(&mut self, index: usize, message: Option<ProbeMessage>) {
        let Some(message) = message else { return };
        let Some(agreed) = self.get_mut(index).and_then(|it| it.agreed.as_mut()) else { return };
        let (place, probe) = match message {
            ProbeMessage::Ask(probe) => (&mut agreed.note.probed, probe),
            ProbeMessage::Answer(probe) => (&mut agreed.note.probe_answered, probe),
        };
        let is_larger =
            place.is_none_or(|it| it.round != probe.round || it.size_bytes < probe.size_bytes);
        if is_larger {
            *place = Some(probe);
        }
        self.note(index);
    }

    /// Notes that ICMP calls a packet of ours too large, when it quotes one: address and SPI.
    /// Returns whether it does.
    pub(crate) fn heed_too_large(&mut self, now: Time, parsed: &Parsed, frame: &Frame<'_>) -> bool {
        let Transport::Icmp { kind, code } = parsed.transport else { return false };
        let is_too_large = match parsed.network {
            Network::Ipv4 => (kind, code) == (3, 4),
            _ => kind == 2,
        };
        is_too_large && self.look_for_quoted(now, parsed, frame)
    }

    #[cold]
    fn look_for_quoted(&mut self, now: Time, parsed: &Parsed, frame: &Frame<'_>) -> bool {
        if now.since_ns(self.heeded) < HEED_PERIOD_NS && now >= self.heeded {
            return false;
        }
        let at = usize::from(parsed.transport_offset) + ICMP_HEADER_LEN;
        let quoted = frame.bytes().get(at..parsed.end as usize).and_then(quoted_esp);
        let Some((endpoint, spi)) = quoted else { return false };
        self.heeded = now;
        let is_sealed_so =
            |index: &usize| match self.get(*index).and_then(|it| it.association.as_ref()) {
                Some(association) => association.spi().value() == spi,
                None => self.kernel.seals(*index, spi),
            };
        let Some(index) = self.at_endpoint(endpoint).find(is_sealed_so) else { return false };
        let agreed = self.get_mut(index).and_then(|it| it.agreed.as_mut());
        let Some(agreed) = agreed else { return false };
        agreed.note.too_large = true;
        self.note(index);
        true
    }
}

/// Destination and SPI of the ESP packet, in UDP or not, that `quoted` begins.
fn quoted_esp(quoted: &[u8]) -> Option<(IpAddr, u32)> {
    let (destination, protocol, mut at) = match quoted.first()? >> 4 {
        4 => {
            let octets: [u8; 4] = *quoted.get(16..)?.first_chunk()?;
            (IpAddr::from(octets), *quoted.get(9)?, usize::from(quoted[0] & 15) * 4)
        }
        6 => (address(quoted.get(24..)?.first_chunk()?), *quoted.get(6)?, 40),
        _ => return None,
    };
    match protocol {
        next_header::ESP => {}
        next_header::UDP => at += UDP_HEADER_LEN,
        _ => return None,
    }
    Some((destination, u32::from_be_bytes(*quoted.get(at..)?.first_chunk()?)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quoted_esp_packet_is_known_by_destination_and_spi() {
        let mut v4 = vec![0x45; 28];
        v4[9] = next_header::ESP;
        v4[16..20].copy_from_slice(&[192, 0, 2, 7]);
        v4[20..24].copy_from_slice(&[0, 0, 0x10, 1]);
        assert_eq!(quoted_esp(&v4), Some(([192, 0, 2, 7].into(), 0x1001)));
        v4[9] = next_header::UDP;
        assert_eq!(quoted_esp(&v4), None, "cut off before the SPI");
        v4.extend([0, 0, 0x10, 2, 0, 0, 0, 0]);
        assert_eq!(quoted_esp(&v4), Some(([192, 0, 2, 7].into(), 0x1002)));
        let mut v6 = vec![0x60; 44];
        v6[6] = next_header::ESP;
        v6[24..40].copy_from_slice(&[1; 16]);
        v6[40..44].copy_from_slice(&[0, 0, 0x10, 3]);
        assert_eq!(quoted_esp(&v6), Some(([1; 16].into(), 0x1003)));
        for wrong in [&[][..], &[0x45; 10], &[0x10; 60], &v6[..42]] {
            assert_eq!(quoted_esp(wrong), None);
        }
    }
}
