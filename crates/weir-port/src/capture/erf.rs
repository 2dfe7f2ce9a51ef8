//! Endace's Extensible Record Format, as it stands inside pcap and pcapng (link type 197).

use weir_wire::frame::{Link, Time};

/// Timestamp, type, flags, record length, loss counter, wire length.
const HEADER_LEN: usize = 16;
const EXTENSION_LEN: usize = 8;
/// An extension header's count is not bounded by the format; no device writes more.
const EXTENSIONS_MAX: usize = 16;
/// Set in the type byte, and in each extension header's first, when another extension follows.
const MORE: u8 = 0x80;
/// Ethernet records carry an offset and a pad byte before the frame, and the frame's FCS.
const ETHERNET_PAD_LEN: usize = 2;
const FCS_LEN: usize = 4;

/// A packet found in an ERF record.
pub(super) struct Record {
    pub(super) start: usize,
    pub(super) end: usize,
    pub(super) original_len: u32,
    pub(super) time: Time,
    pub(super) link: Link,
}

/// The packet in `record`, which begins with an ERF header; `None` for kinds that we do not read
/// and records too short for their own headers.
pub(super) fn read(record: &[u8]) -> Option<Record> {
    let header = record.get(..HEADER_LEN)?;
    let timestamp = u64::from_le_bytes(header[..8].try_into().ok()?);
    let kind = header[8];
    let record_len = usize::from(u16::from_be_bytes([header[10], header[11]]));
    let wire_len = usize::from(u16::from_be_bytes([header[14], header[15]]));

    let mut start = HEADER_LEN;
    let mut more = kind & MORE != 0;
    for _ in 0..EXTENSIONS_MAX {
        if !more {
            break;
        }
        more = record.get(start)? & MORE != 0;
        start += EXTENSION_LEN;
    }
    if more {
        return None;
    }
    let (link, fcs_len) = match kind & !MORE {
        2 | 11 | 16 | 20 => {
            start += ETHERNET_PAD_LEN;
            (Link::Ethernet, FCS_LEN)
        }
        21 | 25 => (Link::InfiniBand, 0),
        22 | 23 => (Link::Ip, 0),
        _ => return None,
    };
    let end = record_len.min(record.len());
    let present = end.checked_sub(start)?.min(wire_len);
    let packet_len = wire_len.saturating_sub(fcs_len);
    Some(Record {
        start,
        end: start + present.min(packet_len),
        original_len: packet_len as u32,
        time: Time(nanoseconds(timestamp)),
        link,
    })
}

/// A 32.32 fixed-point count of seconds.
fn nanoseconds(timestamp: u64) -> u64 {
    let seconds = timestamp >> 32;
    let fraction = timestamp & 0xffff_ffff;
    // 2^32 s in nanoseconds fit 63 bits.
    seconds * 1_000_000_000 + ((fraction * 1_000_000_000) >> 32)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(kind: u8, extensions: usize, body: &[u8], wire_len: u16) -> Vec<u8> {
        let mut bytes = vec![0, 0, 0, 0x80, 1, 0, 0, 0];
        let more = if extensions > 0 { MORE } else { 0 };
        bytes.extend([kind | more, 4]);
        let len = (HEADER_LEN + extensions * EXTENSION_LEN + body.len()) as u16;
        bytes.extend(len.to_be_bytes());
        bytes.extend([0, 0]);
        bytes.extend(wire_len.to_be_bytes());
        for left in (0..extensions).rev() {
            bytes.extend([if left > 0 { MORE } else { 0 }, 0, 0, 0, 0, 0, 0, 0]);
        }
        bytes.extend(body);
        bytes
    }

    #[test]
    fn timestamp_is_fixed_point_seconds() {
        let packet = read(&record(21, 0, &[1, 2, 3], 3)).unwrap();
        assert_eq!(packet.time, Time(1_500_000_000));
    }

    #[test]
    fn extension_headers_are_passed_over() {
        let bytes = record(21, 3, &[7, 8, 9], 3);
        let packet = read(&bytes).unwrap();
        assert_eq!(&bytes[packet.start..packet.end], [7, 8, 9]);
        assert_eq!(packet.link, Link::InfiniBand);
    }

    #[test]
    fn ethernet_loses_its_pad_and_frame_check_sequence() {
        let mut body = vec![0, 0];
        body.extend([5u8; 60]);
        body.extend([0xfc; 4]);
        let bytes = record(2, 0, &body, 64);
        let packet = read(&bytes).unwrap();
        assert_eq!(&bytes[packet.start..packet.end], [5u8; 60]);
        assert_eq!((packet.original_len, packet.link), (60, Link::Ethernet));
    }

    #[test]
    fn padding_behind_the_packet_is_not_part_of_it() {
        let bytes = record(21, 0, &[1, 2, 3, 0, 0, 0, 0, 0], 3);
        let packet = read(&bytes).unwrap();
        assert_eq!(&bytes[packet.start..packet.end], [1, 2, 3]);
    }

    #[test]
    fn endless_extension_headers_end() {
        let mut bytes = record(21, 1, &[], 0);
        bytes[HEADER_LEN] = MORE;
        bytes.extend([MORE; 4096]);
        assert!(read(&bytes).is_none());
    }

    #[test]
    fn record_cut_inside_its_headers_holds_no_packet() {
        let bytes = record(21, 2, &[1], 1);
        for len in 0..HEADER_LEN + 2 * EXTENSION_LEN {
            assert!(read(&bytes[..len]).is_none_or(|packet| packet.start == packet.end), "{len}");
        }
    }
}
