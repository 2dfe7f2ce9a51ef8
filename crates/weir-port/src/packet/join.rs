//! Equal UDP datagrams of one flow that follow each other leave as one super-packet, which the
//! device, or the kernel for it, cuts into the same datagrams again (UDP segmentation offload).
//!
//! ```text
//!   [ headers | one ] [ headers | two ] [ headers | 3 ]  -->  [ headers' | one | two | 3 ]
//! ```
//!
//! Only datagrams that say so ([`Offload::joinable`]) are joined: all of them get a checksum, which
//! the kernel demands, and IPv4 packets get identifications that count from the first one's.

use arrayvec::ArrayVec;
use weir_wire::checksum::{ipv4_header, pseudo_header_v4, pseudo_header_v6};
use weir_wire::frame::{Offload, PartialChecksum, SegmentKind, Segmentation};

use crate::port::Outgoing;

/// Ethernet with two tags, IPv6, UDP.
const HEADERS_LEN_MAX: usize = 22 + 40 + UDP_LEN;
const UDP_LEN: usize = 8;
const IPV4_LEN: usize = 20;
const IPV6_LEN: usize = 40;
const PROTOCOL_UDP: u8 = 17;
/// Segments that every kernel cuts (UDP_MAX_SEGMENTS before Linux 6.9).
const SEGMENTS_MAX: usize = 64;

/// Datagrams that go together.
#[derive(Debug)]
pub(super) struct Joined {
    /// How many.
    pub(super) count: usize,
    /// What stands before their payloads, in the place of the headers of each.
    pub(super) headers: ArrayVec<u8, HEADERS_LEN_MAX>,
    /// How they are to be cut.
    pub(super) offload: Offload,
    /// Bytes of headers and payloads.
    pub(super) len: usize,
}

/// The datagrams at the beginning of `frames` that can go together, at least two; `None`: the first
/// goes by itself.
pub(super) fn join(frames: &[Outgoing<'_>]) -> Option<Joined> {
    let [first, others @ ..] = frames else { return None };
    let start = Start::of(first)?;
    let payload_len = start.payload_len;
    // Of the payloads, with UDP's header.
    let room = usize::from(u16::MAX) - start.network_len();
    let (mut count, mut datagram_len) = (1, UDP_LEN + payload_len);
    for next in others.iter().take(SEGMENTS_MAX - 1) {
        let Some(next) = Start::of(next) else { break };
        let is_last = next.payload_len < payload_len;
        let fits = next.payload_len <= payload_len && datagram_len + next.payload_len <= room;
        if !fits || !start.is_like(&next) {
            break;
        }
        count += 1;
        datagram_len += next.payload_len;
        if is_last {
            break;
        }
    }
    (count > 1).then(|| start.joined(count, datagram_len))
}

/// The headers of a datagram that can be joined.
struct Start<'a> {
    headers: &'a [u8],
    is_ipv6: bool,
    payload_len: usize,
}

impl<'a> Start<'a> {
    fn of(frame: &'a Outgoing<'_>) -> Option<Self> {
        let [bytes] = frame.parts else { return None };
        let (headers, payload) = bytes.split_at_checked(frame.offload.joinable?.into())?;
        let payload_len = payload.len();
        let at = |behind: usize| headers.len().checked_sub(UDP_LEN + behind);
        let version = |behind| at(behind).and_then(|at| headers.get(at)).map(|first| first >> 4);
        // Both are looked for where they would begin: before IPv6 addresses no 4 can stand there.
        let is_ipv6 = match (version(IPV6_LEN), version(IPV4_LEN)) {
            (Some(6), _) if ethertype(headers, at(IPV6_LEN)?) == Some(0x86dd) => true,
            (_, Some(4)) if ethertype(headers, at(IPV4_LEN)?) == Some(0x0800) => false,
            _ => return None,
        };
        let fits = payload_len > 0 && headers.len() <= HEADERS_LEN_MAX;
        fits.then_some(Self { headers, is_ipv6, payload_len })
    }

    /// Bytes of the IP header.
    fn network_len(&self) -> usize {
        if self.is_ipv6 { IPV6_LEN } else { IPV4_LEN }
    }

    fn network_offset(&self) -> usize {
        self.headers.len() - UDP_LEN - self.network_len()
    }

    /// Whether their headers say the same, but for lengths.
    fn is_like(&self, next: &Self) -> bool {
        if self.payload_len == next.payload_len {
            return self.headers == next.headers;
        }
        self.headers.len() == next.headers.len()
            && self.is_ipv6 == next.is_ipv6
            && self.without_lengths() == next.without_lengths()
    }

    fn without_lengths(&self) -> ArrayVec<u8, HEADERS_LEN_MAX> {
        let mut headers = self.headers.iter().copied().collect::<ArrayVec<u8, _>>();
        self.set_lengths(&mut headers, 0, 0);
        headers
    }

    /// Writes the datagram's length, and what goes with it: the IP header's checksum, and UDP's.
    fn set_lengths(&self, headers: &mut [u8], datagram_len: u16, checksum: u16) {
        let (network, udp) = headers[self.network_offset()..].split_at_mut(self.network_len());
        udp[4..6].copy_from_slice(&datagram_len.to_be_bytes());
        udp[6..8].copy_from_slice(&checksum.to_be_bytes());
        if self.is_ipv6 {
            network[4..6].copy_from_slice(&datagram_len.to_be_bytes());
            return;
        }
        let total_len = if datagram_len == 0 { 0 } else { datagram_len + IPV4_LEN as u16 };
        network[2..4].copy_from_slice(&total_len.to_be_bytes());
        network[10..12].fill(0);
        if datagram_len > 0 {
            let sum = ipv4_header(network);
            network[10..12].copy_from_slice(&sum.to_be_bytes());
        }
    }

    fn joined(&self, count: usize, datagram_len: usize) -> Joined {
        let network = &self.headers[self.network_offset()..];
        let len = datagram_len as u16;
        let pseudo = match (self.is_ipv6, network) {
            (true, [_, _, _, _, _, _, _, _, addresses @ ..]) => {
                let (source, destination) = addresses.split_at(16);
                let address = |bytes: &[u8]| *bytes.first_chunk().expect("32 bytes of addresses");
                let (source, destination) = (address(source), address(destination));
                pseudo_header_v6(&source, &destination, PROTOCOL_UDP, len.into())
            }
            _ => {
                let address = |at: usize| *network[at..].first_chunk().expect("a whole header");
                pseudo_header_v4(address(12), address(16), PROTOCOL_UDP, len)
            }
        };
        let mut headers = self.headers.iter().copied().collect::<ArrayVec<u8, _>>();
        self.set_lengths(&mut headers, len, pseudo.folded());
        let start = (self.headers.len() - UDP_LEN) as u16;
        let offload = Offload {
            checksum: Some(PartialChecksum { start, field: start + 6 }),
            segmentation: Some(Segmentation {
                kind: SegmentKind::Udp,
                segment_len: self.payload_len as u16,
                header_len: self.headers.len() as u16,
                ecn: false,
            }),
            ..Offload::default()
        };
        Joined { count, len: headers.len() - UDP_LEN + datagram_len, headers, offload }
    }
}

/// The two bytes before `network_offset`: what the link header says follows it.
fn ethertype(headers: &[u8], network_offset: usize) -> Option<u16> {
    let bytes = headers.get(network_offset.checked_sub(2)?..network_offset)?;
    Some(u16::from_be_bytes([bytes[0], bytes[1]]))
}

#[cfg(test)]
mod tests {
    use std::io::IoSlice;

    use weir_wire::checksum::Sum;

    use super::*;

    const V4: usize = 14 + IPV4_LEN + UDP_LEN;

    /// A datagram as the engine makes them: no UDP checksum, the right one over an IPv4 header.
    fn datagram(link: &[u8], is_ipv6: bool, port: u16, payload: &[u8]) -> Vec<u8> {
        let len = (UDP_LEN + payload.len()) as u16;
        let mut bytes = link.to_vec();
        if is_ipv6 {
            bytes.extend([0x86, 0xdd, 0x6b, 0x80, 0x12, 0x34]);
            bytes.extend(len.to_be_bytes());
            bytes.extend([PROTOCOL_UDP, 64]);
            bytes.extend([[0xfd; 16], [0xfe; 16]].concat());
        } else {
            bytes.extend([8, 0]);
            let mut header = [0x45, 0xb8, 0, 0, 0, 0, 0x40, 0, 64, PROTOCOL_UDP, 0, 0, 10, 0, 0, 1]
                .into_iter()
                .chain([10, 0, 0, 2])
                .collect::<Vec<u8>>();
            header[2..4].copy_from_slice(&(len + IPV4_LEN as u16).to_be_bytes());
            let sum = ipv4_header(&header);
            header[10..12].copy_from_slice(&sum.to_be_bytes());
            bytes.extend(header);
        }
        bytes.extend(port.to_be_bytes());
        bytes.extend(4500_u16.to_be_bytes());
        bytes.extend(len.to_be_bytes());
        bytes.extend([0, 0]);
        bytes.extend(payload);
        bytes
    }

    fn plain(port: u16, payload: &[u8]) -> Vec<u8> {
        datagram(&[2; 12], false, port, payload)
    }

    /// What is joined of `frames`, whose headers have `header_len` bytes.
    fn joined(frames: &[Vec<u8>], header_len: usize) -> Option<Joined> {
        let parts: Vec<[IoSlice<'_>; 1]> = frames.iter().map(|it| [IoSlice::new(it)]).collect();
        let offload = Offload { joinable: Some(header_len as u16), ..Offload::default() };
        let outgoing: Vec<Outgoing<'_>> =
            parts.iter().map(|parts| Outgoing { parts, offload }).collect();
        join(&outgoing)
    }

    fn count(frames: &[Vec<u8>]) -> usize {
        joined(frames, V4).map_or(1, |it| it.count)
    }

    #[test]
    fn equal_datagrams_go_together_and_a_shorter_one_is_the_last() {
        let [one, two, short] = [&[1; 300][..], &[2; 300], &[3; 299]].map(|it| plain(50_000, it));
        let long = plain(50_000, &[4; 301]);
        assert_eq!(count(&[one.clone(), two.clone()]), 2);
        assert_eq!(count(&[one.clone(), short.clone(), short.clone()]), 2);
        assert_eq!(count(&[one.clone(), two.clone(), long.clone()]), 2);
        assert_eq!(count(&[one.clone(), long]), 1);
        assert_eq!(count(&[short, one]), 1);
    }

    #[test]
    fn headers_that_differ_in_more_than_lengths_keep_datagrams_apart() {
        let one = plain(50_000, &[1; 64]);
        let others = [0, 12 + 2 + 1, 14 + 8, 14 + 15, 14 + 20, 14 + 22].map(|at| {
            let mut other = one.clone();
            other[at] ^= 1;
            other
        });
        for (case, other) in others.into_iter().enumerate() {
            assert_eq!(count(&[one.clone(), other.clone()]), 1, "{case}");
            assert_eq!(count(&[one.clone(), other[..other.len() - 1].to_vec()]), 1, "{case}");
        }
    }

    #[test]
    fn only_datagrams_that_say_so_are_joined() {
        let frames = [plain(50_000, &[1; 64]), plain(50_000, &[2; 64])];
        let parts = frames.each_ref().map(|it| [IoSlice::new(it)]);
        let can = Offload { joinable: Some(V4 as u16), ..Offload::default() };
        for offloads in [[Offload::default(), can], [can, Offload::default()]] {
            let outgoing = [0, 1].map(|at| Outgoing { parts: &parts[at], offload: offloads[at] });
            assert!(join(&outgoing).is_none(), "{offloads:?}");
        }
        // Nor those whose headers are not what was said.
        for header_len in [0, 8, V4 - 4, V4 + 4, V4 + 64, 2000] {
            assert!(joined(&frames, header_len).is_none(), "{header_len}");
        }
        assert!(joined(&frames[..1], V4).is_none(), "there is nobody to join");
        assert!(joined(&[], V4).is_none());
    }

    #[test]
    fn a_super_packet_stays_within_what_every_kernel_takes() {
        let small = vec![plain(50_000, &[7; 32]); 100];
        assert_eq!(count(&small), SEGMENTS_MAX);
        let large = vec![plain(50_000, &[7; 8972]); 100];
        // 65535 less IPv4's and UDP's headers.
        assert_eq!(count(&large), 65_507 / 8972);
        let whole = vec![plain(50_000, &vec![7; 65_507]); 2];
        assert_eq!(count(&whole), 1);
    }

    #[test]
    fn its_headers_say_how_long_it_is_and_leave_the_checksum_to_the_kernel() {
        for (link, is_ipv6) in [
            (vec![2; 12], false),
            (vec![2; 12], true),
            ([vec![2; 12], vec![0x81, 0, 0xa0, 5]].concat(), true),
            ([vec![2; 12], vec![0x88, 0xa8, 0, 1, 0x81, 0, 0xa0, 5]].concat(), false),
        ] {
            let frames =
                [[1; 400], [2; 400], [3; 400]].map(|it| datagram(&link, is_ipv6, 50_000, &it));
            let header_len = frames[0].len() - 400;
            let Joined { count, headers, offload, len } = joined(&frames, header_len).unwrap();
            assert_eq!((count, headers.len(), len), (3, header_len, header_len + 1200));
            let udp = header_len - UDP_LEN;
            let network = link.len() + 2;
            let datagram_len = (UDP_LEN + 1200) as u16;
            assert_eq!(headers[udp + 4..udp + 6], datagram_len.to_be_bytes());
            let ip = &headers[network..udp];
            let pseudo = if is_ipv6 {
                assert_eq!(ip[4..6], datagram_len.to_be_bytes());
                Sum::new().with(&ip[8..40])
            } else {
                assert_eq!(ip[2..4], (datagram_len + 20).to_be_bytes());
                assert_eq!(Sum::new().with(ip).checksum(), 0, "the header's own checksum");
                Sum::new().with(&ip[12..20])
            };
            let pseudo = pseudo.with_u16(PROTOCOL_UDP.into()).with_u16(datagram_len).folded();
            assert_eq!(headers[udp + 6..udp + 8], pseudo.to_be_bytes());
            let checksum = offload.checksum.unwrap();
            assert_eq!((checksum.start, checksum.field), (udp as u16, udp as u16 + 6));
            let segmentation = offload.segmentation.unwrap();
            assert_eq!(segmentation.kind, SegmentKind::Udp);
            assert_eq!(segmentation.segment_len, 400);
            assert_eq!(usize::from(segmentation.header_len), header_len);
            // All else is as in the first.
            let mut first = frames[0][..header_len].to_vec();
            for at in [udp + 4..udp + 8, network + 2..network + 4] {
                first[at.clone()].copy_from_slice(&headers[at]);
            }
            let sums = if is_ipv6 { network + 4..network + 6 } else { network + 10..network + 12 };
            first[sums.clone()].copy_from_slice(&headers[sums]);
            assert_eq!(first[..], headers[..]);
        }
    }
}
