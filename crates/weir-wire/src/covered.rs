//! The bytes that an ICRC covers, with the fields that routers change as ones (IBTA Vol 1 s7.8.1;
//! Annexes A16, A17), for whoever protects them otherwise than by a CRC.
//!
//! [`crate::icrc`] runs the CRC over the same bytes, gathered for speed; a test holds the two
//! together.

use crate::bth::Bth;
use crate::grh::Grh;
use crate::parse::{Encapsulation, Network, Parsed};

/// Eight ones in the place of the LRH, network header with options, UDP, BTH.
const HEADERS_LEN_MAX: usize = 8 + 256 + 8 + Bth::LEN;

/// Hands `take` the covered bytes of a RoCE packet, in their order, in two pieces: headers, and
/// what lies between BTH and ICRC. `None`: not RoCE, a fragment, cut short, or with headers longer
/// than any sender's.
pub fn covered(bytes: &[u8], parsed: &Parsed, take: &mut dyn FnMut(&[u8])) -> Option<()> {
    let rdma = parsed.rdma.as_ref()?;
    if parsed.fragment.is_some() || rdma.encapsulation == Encapsulation::InfiniBand {
        return None;
    }
    let network = usize::from(parsed.network_offset);
    let bth = usize::from(rdma.bth_offset);
    let body = bytes.get(bth + Bth::LEN..usize::from(rdma.icrc_offset?))?;
    let mut headers = [0xff; HEADERS_LEN_MAX];
    let source = bytes.get(network..bth + Bth::LEN)?;
    let masked = headers.get_mut(8..8 + source.len())?;
    masked.copy_from_slice(source);
    match parsed.network {
        Network::Ipv4 => {
            masked[1] = 0xff;
            masked[8] = 0xff;
            masked[10..12].fill(0xff);
        }
        Network::Ipv6 | Network::Grh => {
            masked.get(..Grh::LEN)?;
            masked[0] |= 0x0f;
            masked[1..4].fill(0xff);
            masked[7] = 0xff;
        }
        _ => return None,
    }
    if rdma.encapsulation == Encapsulation::RoceV2 {
        let checksum = usize::from(parsed.transport_offset) - network + 6;
        masked.get_mut(checksum..checksum + 2)?.fill(0xff);
    }
    *masked.get_mut(bth - network + 4)? = 0xff;
    take(&headers[..8 + source.len()]);
    take(body);
    Some(())
}
