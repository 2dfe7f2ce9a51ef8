//! Captures as `traffic_from_rules.py` writes them: pcap, little-endian, microseconds, Ethernet,
//! IPv4.

const FILE_HEADER_LEN: usize = 24;
const RECORD_HEADER_LEN: usize = 16;

/// Calls `take` with the time in nanoseconds and the bytes of each packet.
pub(crate) fn each(file: &[u8], take: &mut dyn FnMut(u64, &[u8])) {
    let mut rest = &file[FILE_HEADER_LEN..];
    while let Some((header, behind)) = rest.split_at_checked(RECORD_HEADER_LEN) {
        let word = |at: usize| {
            u32::from_le_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]])
        };
        let (bytes, after) = behind.split_at(word(8) as usize);
        take(u64::from(word(0)) * 1_000_000_000 + u64::from(word(4)) * 1000, bytes);
        rest = after;
    }
}

/// Source, destination and both ports together (in either order alike) with the protocol.
pub(crate) fn ends(frame: &[u8]) -> Option<(String, String, u32)> {
    let ip = frame.get(14..)?;
    let header_len = usize::from(ip.first()? & 15) * 4;
    let address =
        |at: usize| ip.get(at..at + 4).map(|it| format!("{}.{}.{}.{}", it[0], it[1], it[2], it[3]));
    let ports = match ip.get(9)? {
        6 | 17 => {
            let port = |at: usize| {
                let bytes = ip.get(header_len + at..header_len + at + 2)?;
                Some(u32::from(u16::from_be_bytes([bytes[0], bytes[1]])))
            };
            port(0)?.wrapping_mul(port(2)?) ^ port(0)? ^ port(2)?
        }
        _ => 0,
    };
    Some((address(12)?, address(16)?, ports << 1 ^ u32::from(*ip.get(9)?)))
}
