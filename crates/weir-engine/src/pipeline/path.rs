//! How wide the path to a peer is: probes and answers that [`crate::tunnel::path_mtu`] wants
//! sealed, and what the wire says of them.

use std::net::IpAddr;

use weir_wire::frame::Frame;
use weir_wire::parse::{Network, Parsed, Transport};

use super::Engine;
use crate::egress::address;
use crate::esp::next_header;
use crate::tunnel::key::PublicKey;
use crate::tunnel::path_mtu::ProbeMessage;
use crate::verdict::Verdict;

/// Between two ICMP messages that are looked at: each costs a look at every peer.
const HEED_PERIOD_NS: u64 = 10_000_000;

const ICMP_HEADER_LEN: usize = 8;
const UDP_HEADER_LEN: usize = 8;

impl Engine {
    /// Seals a question about the path's width, padded to its size, or an answer into `output()`,
    /// which grows until [`Engine::begin`]. Neither is ever fragmented by us.
    pub fn send_probe(&mut self, peer: &PublicKey, message: ProbeMessage) {
        let Some(index) = self.index_of(peer) else { return };
        let size_bytes = match message {
            ProbeMessage::Ask(probe) => usize::from(probe.size_bytes),
            ProbeMessage::Answer(_) => 0,
        };
        if self.seal_dummy(index, &message.bytes(), size_bytes).is_some() {
            self.counters.path_probes_sent += 1;
        }
    }

    /// From now on, packets for `peer` have at most so many bytes, outer IP header included; never
    /// more than the wire's.
    pub fn set_path_mtu(&mut self, peer: &PublicKey, bytes: u16) {
        let Some(index) = self.index_of(peer) else { return };
        let mtu = bytes.min(self.policy.wire_mtu);
        self.sealing[index].set_mtu(mtu);
    }

    /// An authentic packet of a peer held nothing for the host: is it about the path?
    #[cold]
    pub(super) fn heard_dummy(&mut self, index: usize, message: Option<ProbeMessage>) -> Verdict {
        if let Some(message) = message {
            self.heard_probe(index, message);
        }
        Verdict::Consumed
    }

    fn heard_probe(&mut self, index: usize, message: ProbeMessage) {
        let Some(agreed) = &mut self.sealing[index].agreed else { return };
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

    /// Notes that ICMP calls a packet of ours too large, when it quotes one: addresses and SPI.
    pub(super) fn heed_too_large(&mut self, parsed: &Parsed, frame: &Frame<'_>) {
        let Transport::Icmp { kind, code } = parsed.transport else { return };
        let is_too_large = match parsed.network {
            Network::Ipv4 => (kind, code) == (3, 4),
            _ => kind == 2,
        };
        if is_too_large {
            self.look_for_quoted(parsed, frame);
        }
    }

    #[cold]
    fn look_for_quoted(&mut self, parsed: &Parsed, frame: &Frame<'_>) {
        if self.now.since_ns(self.keyed.heeded) < HEED_PERIOD_NS && self.now >= self.keyed.heeded {
            return;
        }
        let at = usize::from(parsed.transport_offset) + ICMP_HEADER_LEN;
        let quoted = frame.bytes().get(at..parsed.end as usize).and_then(quoted_esp);
        let Some((endpoint, spi)) = quoted else { return };
        self.keyed.heeded = self.now;
        let seals = |(index, it): (usize, &crate::egress::SealingPeer)| {
            let is_sealed_so = match &it.association {
                Some(association) => association.spi().value() == spi,
                None => self.kernel.seals(index, spi),
            };
            it.endpoint() == Some(endpoint) && is_sealed_so
        };
        let Some(index) = self.sealing.iter().enumerate().position(seals) else { return };
        if let Some(agreed) = &mut self.sealing[index].agreed {
            agreed.note.too_large = true;
            self.counters.too_large_heard += 1;
            self.note(index);
        }
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
