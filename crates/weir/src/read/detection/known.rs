//! Inline, a segment that says other bytes than its sender said before in the same place goes on
//! with those: its receiver has, or gets, one version alone (Suricata's IPS mode).

use std::io::Write;

use weir_detect::{Decoded, Packet, decode};
use weir_wire::checksum::updated;
use weir_wire::frame::Time;
use weir_wire::parse::Transport;

use super::super::layers::Layer;
use super::Look;

/// Where TCP's header has its checksum (RFC 9293 s3.1).
const CHECKSUM_OFFSET: usize = 16;

impl<W: Write> Look<W> {
    /// Looks at a packet: inline, with the bytes that its sender said first.
    pub(super) fn packet(&mut self, now: Time, layer: &Layer<'_>) {
        let known = self.options.as_ips.then(|| self.as_known(layer)).flatten();
        let Some((bytes, [is_told, is_told_again])) = known else {
            return self.packet_as_it_is(now, layer);
        };
        let mut events = layer.events.clone();
        // Behind this nobody sees it any more.
        for _ in [is_told, is_told_again].iter().filter(|it| **it) {
            let event = decode::Event::StreamOverlapDiffers;
            events.push(event);
            self.count(event.name());
        }
        if is_told_again {
            self.count("tcp.overlap_diff_data");
        }
        let known = Layer { bytes: &bytes, events, ..*layer };
        self.packet_as_it_is(now, &known);
    }

    /// The packet with such bytes, and whether it is told of, and once more; `None`: it has them.
    fn as_known(&self, layer: &Layer<'_>) -> Option<(Vec<u8>, [bool; 2])> {
        let Layer { bytes, parsed, .. } = layer;
        let is_segment = matches!(parsed.transport, Transport::Tcp { .. });
        if !is_segment || parsed.payload(bytes).is_empty() {
            return None;
        }
        let decoded = Some(Decoded::new(layer.vlans, &[]));
        let (is_rebuilt, is_verified) = (layer.is_rebuilt(), true);
        let packet =
            Packet { bytes, parsed, decoded, is_rebuilt, is_verified, icrc: None, port: None };
        let (payload, is_told) = self.flows.as_known(&self.detector, &packet)?;
        let mut bytes = bytes.to_vec();
        let start = usize::from(parsed.payload_offset);
        let place = usize::from(parsed.transport_offset) + CHECKSUM_OFFSET;
        let mut checksum = word(bytes.get(place..)?);
        let old = bytes.get(start..start + payload.len())?;
        for (old, new) in old.chunks(2).zip(payload.chunks(2)) {
            checksum = updated(checksum, word(old), word(new));
        }
        bytes[start..start + payload.len()].copy_from_slice(&payload);
        bytes.get_mut(place..place + 2)?.copy_from_slice(&checksum.to_be_bytes());
        Some((bytes, is_told))
    }
}

/// The first 16 bits, with zeros for what is not there.
fn word(bytes: &[u8]) -> u16 {
    let at = |place: usize| bytes.get(place).copied().unwrap_or_default();
    u16::from_be_bytes([at(0), at(1)])
}
