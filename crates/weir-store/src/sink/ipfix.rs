//! IPFIX (RFC 7011): the message header, and what sets it apart from NetFlow v9.

use super::encoder::Format;
use super::fields::{IPFIX_V4, IPFIX_V6, NS_PER_S};
use super::templated::{Dialect, Header};

/// RFC 7011 s3.1, with sequence numbers that count data records.
pub(crate) static IPFIX: Dialect = Dialect {
    format: Format::Ipfix,
    header_bytes: 16,
    write_header,
    template_set: 2,
    alignment: 1,
    has_enterprises: true,
    flow: [IPFIX_V4, IPFIX_V6],
    sequence_step: |records| records,
};

/// Where the sequence number stands in a message.
const SEQUENCE: std::ops::Range<usize> = 8..12;

/// Numbers a message anew. Sequence numbers count within a transport session (RFC 7011 s3.1): a
/// message that waited for another session gets its number from that one.
pub fn renumber(message: &mut [u8], sequence: u32) {
    if let Some(field) = message.get_mut(SEQUENCE) {
        field.copy_from_slice(&sequence.to_be_bytes());
    }
}

fn write_header(header: &Header, out: &mut [u8]) {
    out[0..2].copy_from_slice(&10u16.to_be_bytes());
    out[2..4].copy_from_slice(&(header.length as u16).to_be_bytes());
    out[4..8].copy_from_slice(&((header.now.0 / NS_PER_S) as u32).to_be_bytes());
    out[SEQUENCE].copy_from_slice(&header.sequence.to_be_bytes());
    out[12..16].copy_from_slice(&header.domain.to_be_bytes());
}
