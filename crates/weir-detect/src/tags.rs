//! Packets behind tags that the walk does not enter: a third VLAN, labels of MPLS, other tags, and
//! sessions of PPPoE.

use weir_wire::ethernet::ethertype;
use weir_wire::frame::Link;
use weir_wire::parse::{Network, Parsed, parse};

use crate::packet::Vlans;

/// Labels of one frame, at most, and a quarter of its tags.
const LAYERS_MAX: usize = 16;

const NSH: u16 = 0x894f;
const MPLS: u16 = 0x8847;
const MPLS_MULTICAST: u16 = 0x8848;
const PPPOE_SESSION: u16 = 0x8864;
const SERVICE_TAG: u16 = 0x88e7;
const FABRIC_PATH: u16 = 0x8903;
const VN_TAG: u16 = 0x8926;

/// A packet that was looked for behind tags.
#[derive(Debug)]
pub struct Tagged {
    /// What the walk found, with offsets into the whole frame.
    pub parsed: Parsed,
    /// The VLANs that it is in.
    pub vlans: Vlans,
    /// Labels that were passed over.
    pub labels: usize,
    /// Tags and sessions that were passed over, by the names of EVE's counters.
    pub tags: Vec<&'static str>,
}

/// Whether something stands before the packet that the walk does not enter: [`look_behind`].
#[inline]
pub fn hides(parsed: &Parsed) -> bool {
    parsed.network == Network::None
        && matches!(
            parsed.link.ethertype,
            MPLS | MPLS_MULTICAST | PPPOE_SESSION | NSH | VN_TAG | SERVICE_TAG | FABRIC_PATH
        )
}

/// The walk, and a way to what it does not enter: a third VLAN, and what stands behind labels,
/// other tags and in sessions of PPPoE.
pub fn look_behind(bytes: &[u8], link: Link, original_len: u32) -> Tagged {
    let parsed = parse(bytes, link, original_len);
    let vlans = Vlans::of(&parsed);
    let mut found = Tagged { parsed, vlans, labels: 0, tags: Vec::new() };
    if link != Link::Ethernet || parsed.network != Network::None {
        return found;
    }
    let mut at = 12;
    let mut vlans = Vlans::default();
    for _ in 0..4 * LAYERS_MAX {
        let Some([high, low, rest @ ..]) = bytes.get(at..) else { return found };
        let inside = match (u16::from_be_bytes([*high, *low]), rest) {
            (0x8100 | 0x88a8 | 0x9100, [high, low, ..]) => {
                vlans.push(u16::from_be_bytes([*high, *low]));
                at += 4;
                continue;
            }
            (kind @ (VN_TAG | SERVICE_TAG | FABRIC_PATH), _) => {
                let (name, length) = tag(kind);
                found.tags.push(name);
                at += length;
                continue;
            }
            (PPPOE_SESSION, _) => match behind_pppoe(rest) {
                Some(header) => {
                    found.tags.push("pppoe");
                    (at + 2 + header, Link::Ip)
                }
                None => return found,
            },
            (NSH, _) => match behind_path(rest) {
                Some((header, link)) => {
                    found.tags.push("nsh");
                    at += 2 + header;
                    if link == Link::Ethernet {
                        at += 12;
                        continue;
                    }
                    (at, link)
                }
                None => return found,
            },
            (ethertype::IPV4 | ethertype::IPV6, _) => (at + 2, Link::Ip),
            (MPLS | MPLS_MULTICAST, _) => match behind_labels(bytes, at + 2, &mut found.labels) {
                // A frame behind labels: on with its type.
                Some((frame, Link::Ethernet)) => {
                    found.tags.extend(["mpls", "ethernet"]);
                    at = frame + 12;
                    continue;
                }
                Some(inside) => {
                    found.tags.push("mpls");
                    inside
                }
                None => return found,
            },
            _ => return found,
        };
        let (start, link) = inside;
        let Some(inner) = bytes.get(start..) else { return found };
        let before = found.parsed.link;
        let original_len = original_len.saturating_sub(start as u32);
        found.parsed = shifted(parse(inner, link, original_len), start);
        found.parsed.link = before;
        found.vlans = vlans;
        return found;
    }
    found
}

/// A tag's name, and how far it is to the next type: VN-tag, a service's tag with the frame behind
/// it (IEEE 802.1ah), FabricPath.
fn tag(kind: u16) -> (&'static str, usize) {
    match kind {
        VN_TAG => ("vntag", 6),
        SERVICE_TAG => ("ieee8021ah", 18),
        _ => ("fabricpath", 16),
    }
}

/// How long a network service header is, and what follows it (RFC 8300 s2.2).
fn behind_path(header: &[u8]) -> Option<(usize, Link)> {
    let [_, words, _, next, ..] = header else { return None };
    let link = match next {
        1 | 2 => Link::Ip,
        3 => Link::Ethernet,
        _ => return None,
    };
    Some((usize::from(words & 0x3f) * 4, link))
}

/// Where the last label of MPLS ends, and what follows it (RFC 3032, RFC 4385).
fn behind_labels(bytes: &[u8], mut at: usize, labels: &mut usize) -> Option<(usize, Link)> {
    loop {
        let label: &[u8; 4] = bytes.get(at..)?.first_chunk()?;
        *labels += 1;
        at += 4;
        if label[2] & 1 == 0 && *labels <= LAYERS_MAX {
            continue;
        }
        return match bytes.get(at)? >> 4 {
            4 | 6 => Some((at, Link::Ip)),
            // A pseudowire's control word.
            0 => Some((at + 4, Link::Ethernet)),
            _ => Some((at, Link::Ethernet)),
        };
    }
}

/// How long the headers of PPPoE and PPP before an IP packet are (RFC 2516 s4, RFC 1661 s2): PPP's
/// protocol has a byte, or two.
fn behind_pppoe(session: &[u8]) -> Option<usize> {
    match session.get(6..8)? {
        [0x00, 0x21 | 0x57] => Some(8),
        [0x21 | 0x57, _] => Some(7),
        _ => None,
    }
}

/// Offsets that count from `by` bytes before.
fn shifted(mut parsed: Parsed, by: usize) -> Parsed {
    let short = by as u16;
    for offset in
        [&mut parsed.network_offset, &mut parsed.transport_offset, &mut parsed.payload_offset]
    {
        *offset = offset.saturating_add(short);
    }
    parsed.end += by as u32;
    if let Some(tunnel) = &mut parsed.tunnel {
        tunnel.inner_offset = tunnel.inner_offset.saturating_add(short);
    }
    if let Some(rdma) = &mut parsed.rdma {
        rdma.bth_offset = rdma.bth_offset.saturating_add(short);
        rdma.payload_offset = rdma.payload_offset.saturating_add(short);
        rdma.icrc_offset = rdma.icrc_offset.map(|it| it.saturating_add(short));
    }
    parsed
}

#[cfg(test)]
mod tests {
    use weir_wire::parse::Transport;

    use super::*;

    /// A frame of this type and what follows it.
    fn frame(behind: &[&[u8]]) -> Vec<u8> {
        let mut frame = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2];
        behind.iter().for_each(|it| frame.extend_from_slice(it));
        frame
    }

    #[test]
    fn packets_behind_tags_and_in_sessions_are_found() {
        let mut udp = vec![0x45, 0, 0, 28, 0, 1, 0, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2];
        udp.extend([0, 7, 0, 9, 0, 8, 0, 0]);
        let session = [0x88, 0x64, 0x11, 0, 0, 1, 0, 30];
        let service = [&[0x88, 0xe7, 0, 0, 0, 1][..], &[2; 12]].concat();
        let path = [[0x89, 0x4f, 0, 6, 1, 1].as_slice(), &[0; 20]].concat();
        let mut path_of_frames = [&path[..], &[2; 12], &[8, 0]].concat();
        path_of_frames[5] = 3;
        let cases: [(&[&[u8]], &[&str]); 7] = [
            (&[&path, &udp], &["nsh"]),
            (&[&path_of_frames, &udp], &["nsh"]),
            (&[&session, &[0, 0x21], &udp], &["pppoe"]),
            (&[&session, &[0x21], &udp], &["pppoe"]),
            (&[&[0x89, 0x26, 0, 1, 0, 2, 8, 0], &udp], &["vntag"]),
            (&[&[0x89, 0x26, 0, 1, 0, 2, 0x81, 0, 0, 7, 8, 0], &udp], &["vntag"]),
            (&[&service, &[8, 0], &udp], &["ieee8021ah"]),
        ];
        for (behind, tags) in cases {
            let bytes = frame(behind);
            let found = look_behind(&bytes, Link::Ethernet, bytes.len() as u32);
            assert_eq!(found.tags, tags);
            assert!(hides(&parse(&bytes, Link::Ethernet, bytes.len() as u32)), "{tags:?}");
            assert_eq!(found.parsed.transport, Transport::Udp { source: 7, destination: 9 });
            assert_eq!(usize::from(found.parsed.network_offset), bytes.len() - udp.len());
        }
        let opening = frame(&[&session, &[0xc0, 0x21, 1, 1, 0, 4]]);
        let found = look_behind(&opening, Link::Ethernet, opening.len() as u32);
        assert_eq!((found.parsed.network, found.tags.len()), (Network::None, 0));
    }
}
