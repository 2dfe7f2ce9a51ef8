//! One piece of a datagram: where it belongs, and what it would be taken for.

use weir_wire::parse::{Fragment, Network, Parsed};

use super::ETHERNET_LEN;
use crate::checksums::{Checksum, is_valid};

/// Bytes of the fragment header of IPv6.
const FRAGMENT_HEADER_LEN: usize = 8;

/// One piece.
pub(super) struct Piece<'a> {
    pub(super) start: usize,
    pub(super) more: bool,
    pub(super) data: &'a [u8],
    pub(super) protocol: u8,
    /// Bytes before the data, as the whole packet begins.
    pub(super) head: Vec<u8>,
    pub(super) network: usize,
    pub(super) network_head_len: usize,
    /// What decides who receives a piece, and is the same of all: where its frame goes, with tags;
    /// hops left; in IPv6 what stands before the fragment header. One that another host took, or
    /// nobody, would be judged here as a part.
    pub(super) lead: Vec<u8>,
    /// IPv4 options, for which some receivers discard it.
    has_options: bool,
    /// The headers of IPv6 go on in the next piece (RFC 8200 s4.5: receivers discard it).
    is_headless: bool,
    /// Its IPv4 header's checksum is.
    pub(super) is_wrong: bool,
    /// Its header says that there are more bytes. Receivers discard it, unless a port on its way
    /// fills short frames up.
    pub(super) is_cut: bool,
}

impl<'a> Piece<'a> {
    /// `lead`: what carries it adds this to its own.
    pub(super) fn of(
        bytes: &'a [u8],
        parsed: &Parsed,
        fragment: Fragment,
        mut lead: Vec<u8>,
    ) -> Option<Self> {
        let network = usize::from(parsed.network_offset);
        let header = bytes.get(network..)?;
        let word =
            |at: usize| Some(usize::from(*header.get(at)?) << 8 | usize::from(header[at + 1]));
        let (data_at, end, protocol, head) = match parsed.network {
            Network::Ipv4 => {
                let length = usize::from(header.first()? & 15) * 4;
                let head = bytes.get(..network + length)?.to_vec();
                (length, word(2)?, *header.get(9)?, head)
            }
            Network::Ipv6 => {
                let at = fragment_header(header)?;
                let mut head = bytes.get(..network + at.offset)?.to_vec();
                let protocol = *header.get(at.offset)?;
                head[network + at.named_at] = protocol;
                (at.offset + FRAGMENT_HEADER_LEN, 40 + word(4)?, protocol, head)
            }
            _ => return None,
        };
        let is_cut = end > header.len();
        let data = header.get(data_at..end.min(header.len()))?;
        let start = usize::from(fragment.offset);
        let more = fragment.more;
        lead.push(parsed.hop_limit);
        if network >= ETHERNET_LEN {
            lead.extend_from_slice(&bytes[..6]);
            lead.extend_from_slice(&bytes[12..network]);
        }
        if parsed.network == Network::Ipv6 {
            lead.extend_from_slice(header.get(40..data_at - FRAGMENT_HEADER_LEN)?);
        }
        let has_options = parsed.network == Network::Ipv4 && data_at > 20;
        let is_first_of_v6 = parsed.network == Network::Ipv6 && start == 0 && more;
        let is_headless = is_first_of_v6 && !has_whole_chain(protocol, data);
        let network_head_len = data_at;
        Some(Self {
            start,
            more,
            data,
            protocol,
            head,
            network,
            network_head_len,
            lead,
            has_options,
            is_headless,
            is_wrong: is_valid(Checksum::Ipv4, bytes, parsed) == Some(false),
            is_cut,
        })
    }

    /// Whether receivers differ in what they make of it.
    pub(super) fn is_odd(&self) -> bool {
        self.has_options
            || self.is_headless
            || self.is_cut
            || self.data.is_empty()
            || (self.more && !self.data.len().is_multiple_of(8))
    }

    /// Whether what is read behind the headers of this first piece is not what is read behind
    /// those of another: IPv6 names the protocol there.
    pub(super) fn differs(&self, (head, network): &(Vec<u8>, usize)) -> bool {
        const NEXT_HEADER: usize = 6;
        const IPV6_LEN: usize = 40;
        let chain = |head: &[u8], network: usize| match head.get(network).map(|it| it >> 4) {
            Some(6) => head
                .get(network + NEXT_HEADER)
                .copied()
                .zip(head.get(network + IPV6_LEN..).map(<[u8]>::to_vec)),
            _ => None,
        };
        chain(&self.head, self.network) != chain(head, *network)
    }
}

struct FragmentHeader {
    offset: usize,
    /// Where the header before names it.
    named_at: usize,
}

/// The fragment header behind IPv6's, among other extension headers.
fn fragment_header(header: &[u8]) -> Option<FragmentHeader> {
    let (mut named_at, mut offset) = (6, 40);
    loop {
        let length = match *header.get(named_at)? {
            44 => return Some(FragmentHeader { offset, named_at }),
            0 | 43 | 60 | 135 | 139 | 140 => (usize::from(*header.get(offset + 1)?) + 1) * 8,
            51 => (usize::from(*header.get(offset + 1)?) + 2) * 4,
            _ => return None,
        };
        (named_at, offset) = (offset, offset + length);
    }
}

/// Whether the headers behind the fragment header, up to that of TCP, UDP or ICMPv6, are all in the
/// first piece.
fn has_whole_chain(mut kind: u8, mut rest: &[u8]) -> bool {
    loop {
        let length = match (kind, rest) {
            (6, _) => return rest.len() >= 20,
            (17 | 58, _) => return rest.len() >= 8,
            (59, _) => return true,
            (44, _) => FRAGMENT_HEADER_LEN,
            (0 | 43 | 60 | 135 | 139 | 140, [_, words, ..]) => (usize::from(*words) + 1) * 8,
            (51, [_, words, ..]) => (usize::from(*words) + 2) * 4,
            _ => return !rest.is_empty() && !matches!(kind, 0 | 43 | 51 | 60 | 135 | 139 | 140),
        };
        let (Some(next), Some(behind)) = (rest.first(), rest.get(length..)) else { return false };
        (kind, rest) = (*next, behind);
    }
}
