//! Does a RoCE packet carry an ordinary ICRC (IBTA Vol 1 s7.8.1; Annexes A16, A17)?
//!
//! Who is to see tags on the wire and sees this, sees a packet that nobody tagged. Of another value
//! nobody without the key can say whether it is a tag. Gathers the covered bytes by itself, as
//! [`super::glance`] walks by itself.

use super::glance::{Glance, Kind};

const ETHERNET_LEN: usize = 14;
const GLOBAL_HEADER_LEN: usize = 40;
const UDP_LEN: usize = 8;
const BTH_LEN: usize = 12;
const ICRC_LEN: usize = 4;
/// Next header of a fragment (RFC 8200 s4.5).
const IPV6_FRAGMENT: u8 = 44;
/// Eight ones in the place of the LRH, network header with options, UDP, BTH.
const HEADERS_LEN_MAX: usize = 8 + 256 + UDP_LEN + BTH_LEN;
pub(super) const ETHERTYPE_ROCE_V1: u16 = 0x8915;
pub(super) const ROCE_V2_PORT: u16 = 4791;

/// Whether the frame is addressed as RoCE is.
pub(super) fn is_roce(glance: &Glance) -> bool {
    glance.ethertype == ETHERTYPE_ROCE_V1
        || matches!(glance.kind, Kind::Udp { ports: (_, ROCE_V2_PORT), .. })
}

/// Whether a RoCE frame of `len` bytes holds its ordinary ICRC; `None` when `bytes` are not all of
/// it, or it is too short to hold one.
pub(super) fn has_plain_icrc(glance: &Glance, bytes: &[u8], len: usize) -> Option<bool> {
    let bytes = bytes.get(..len)?;
    let network = network_offset(glance, bytes)?;
    let (base, end) = match glance.kind {
        Kind::Udp { payload_offset, payload_len, .. } => {
            (payload_offset, payload_offset + payload_len)
        }
        _ => {
            let payload_len = bytes.get(network + 4..)?.first_chunk()?;
            let base = network + GLOBAL_HEADER_LEN;
            (base, base + usize::from(u16::from_be_bytes(*payload_len)))
        }
    };
    let icrc_offset = end.checked_sub(ICRC_LEN)?;
    let present: [u8; ICRC_LEN] = *bytes.get(icrc_offset..)?.first_chunk()?;
    let body = bytes.get(base + BTH_LEN..icrc_offset)?;
    let headers = bytes.get(network..base + BTH_LEN)?;
    if is_fragment(glance.ethertype, headers) {
        return None;
    }
    let mut gathered = [0xff; HEADERS_LEN_MAX];
    let masked = gathered.get_mut(8..8 + headers.len())?;
    masked.copy_from_slice(headers);
    if headers[0] >> 4 == 4 {
        for at in [1, 8, 10, 11] {
            masked[at] = 0xff;
        }
    } else {
        masked[0] |= 15;
        for at in [1, 2, 3, 7] {
            masked[at] = 0xff;
        }
    }
    if glance.ethertype != ETHERTYPE_ROCE_V1 {
        let checksum = base.checked_sub(network + 2)?;
        masked.get_mut(checksum..checksum + 2)?.fill(0xff);
    }
    masked[base - network + 4] = 0xff;
    let mut crc = crc32fast::Hasher::new();
    crc.update(&gathered[..8 + headers.len()]);
    crc.update(body);
    Some(crc.finalize().to_le_bytes() == present)
}

/// A first fragment looks like a packet, and its last bytes are no ICRC.
fn is_fragment(ethertype: u16, network: &[u8]) -> bool {
    match ethertype {
        0x0800 => u16::from_be_bytes([network[6], network[7]]) & 0x3fff != 0,
        0x86dd => network[6] == IPV6_FRAGMENT,
        _ => false,
    }
}

/// Behind as many VLAN tags as there are.
fn network_offset(glance: &Glance, bytes: &[u8]) -> Option<usize> {
    let wanted = glance.ethertype.to_be_bytes();
    (0..=2).map(|tags| ETHERNET_LEN + 4 * tags).find(|at| {
        let ethertype = at.checked_sub(2).and_then(|it| bytes.get(it..*at));
        ethertype == Some(&wanted[..])
    })
}
