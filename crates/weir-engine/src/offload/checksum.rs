//! Completing and verifying transport checksums.
//!
//! Hosts leave the checksum of what they send to their network card. Sealed, no card can fill it
//! in any more.

use weir_wire::checksum::{Sum, pseudo_header_v6};
use weir_wire::frame::{Frame, PartialChecksum};
use weir_wire::ip::unmapped;
use weir_wire::parse::Parsed;

/// Completes the partial checksum that the frame's offload speaks of; nothing to do when it speaks
/// of none. `false`, and no change, when its offsets lie outside the frame.
#[inline]
pub fn complete(frame: &mut Frame<'_>) -> bool {
    let Some(PartialChecksum { start, field }) = frame.meta.offload.checksum else { return true };
    let bytes = frame.bytes_mut();
    let field = usize::from(field);
    let Some(covered) = bytes.get(start.into()..) else { return false };
    // Zero would mean "none" to UDP; to TCP both zeros are the same (RFC 768, RFC 1624 s3).
    let checksum = Sum::new().with(covered).udp_checksum();
    let Some(field) = bytes.get_mut(field..field + 2) else { return false };
    field.copy_from_slice(&checksum.to_be_bytes());
    frame.meta.offload.checksum = None;
    true
}

/// The sum over the pseudo header of `parsed`'s addresses, for `length` bytes of transport header
/// and payload.
#[inline]
pub(super) fn pseudo_header(parsed: &Parsed, protocol: u8, length: u32) -> Sum {
    match (unmapped(&parsed.source), unmapped(&parsed.destination)) {
        (Some(source), Some(destination)) => {
            Sum::new().with(&source).with(&destination).with_u16(protocol.into()).with_u32(length)
        }
        _ => pseudo_header_v6(&parsed.source, &parsed.destination, protocol, length),
    }
}

/// Whether the TCP checksum of the packet that was parsed is right.
#[inline]
pub fn is_tcp_right(bytes: &[u8], parsed: &Parsed) -> bool {
    let range = usize::from(parsed.transport_offset)..parsed.end as usize;
    let Some(segment) = bytes.get(range) else { return false };
    let pseudo = pseudo_header(parsed, parsed.protocol, segment.len() as u32);
    pseudo.with(segment).checksum() == 0
}

#[cfg(test)]
mod tests {
    use weir_wire::frame::Meta;

    use super::*;

    #[test]
    fn offsets_outside_the_frame_change_nothing() {
        for (start, field) in [(41, 0), (0, 39), (0, 40), (u16::MAX, u16::MAX), (0, u16::MAX)] {
            let mut bytes = [7; 40];
            let mut frame = Frame::new(&mut bytes, 0, 40, Meta::default());
            frame.meta.offload.checksum = Some(PartialChecksum { start, field });
            assert!(!complete(&mut frame));
            assert_eq!(bytes, [7; 40]);
        }
    }
}
